/**
 * `convoke agent run`: an agent over the items of a file. What is done is in the state when a run is committed, and outputs go from
 * there to where they are wanted; so the same command again goes on where it was stopped, however that was.
 */
import { stat } from 'node:fs/promises'
import { dirname, resolve } from 'node:path'
import type { Agent } from '../../agent/agent.ts'
import { AgentConfiguration } from '../../agent/configuration.ts'
import { openEventLog, type EventLog } from '../../agent/event-log.ts'
import { explained } from '../../agent/failed-runs.ts'
import { AgentPlan } from '../../agent/plan.ts'
import { AgentRunner } from '../../agent/runner.ts'
import { ConvokeError } from '../../base/errors.ts'
import { createLog } from '../../base/log.ts'
import type { LoadedConfig } from '../../config.ts'
import { openServers } from '../../execution.ts'
import type { OpenAgent } from '../../node-agent.ts'
import { quote } from '../a2a/text.ts'
import { loadConfigFile } from '../config.ts'
import { CommandFailure, ExitRequest } from '../failure.ts'
import { stopSignals } from '../signals.ts'
import { watchUncaught } from '../uncaught.ts'
import { readItems, type BadLine, type Item } from './items.ts'
import { runInLanes } from './lanes.ts'
import { loadAgent } from './load-agent.ts'
import { openNodeAgent } from './node-space.ts'
import { Outputs, takeStdout } from './outputs.ts'
import { RunReport, type Outcome } from './run-report.ts'
import { itemScope, RunState } from './run-state.ts'

export interface RunFlags {
  readonly input: string
  readonly out?: string
  readonly state?: string
  readonly concurrency: number
  readonly key?: string
  readonly export?: string
  readonly fail: 'fast' | 'continue'
  readonly config?: string
  readonly settings?: string
  readonly eventLog?: string
  readonly output: 'text' | 'json'
}

/** Ends the process: 0 all done, 1 some failed or it could not go on, 2 called wrongly, 130 interrupted. */
export async function runAgent(agentFile: string, flags: RunFlags): Promise<void> {
  const { input, out } = flags
  // A module may print something when it is loaded.
  const to = out ?? takeStdout()
  const hasOwnScreen = out !== undefined || !process.stdout.isTTY
  const { size, stateFile } = await checkFiles(flags)
  const node = flags.config === undefined ? undefined : await readNode(flags.config)
  const [agent, settings] = await Promise.all([loadAgent(agentFile, flags.export), readSettings(flags.settings)])
  const isJson = flags.output === 'json'
  const report = new RunReport({
    input: input === '-' ? 'stdin' : input,
    isJson,
    hasBar: process.stderr.isTTY && hasOwnScreen && !isJson,
    size,
  })
  const work = new FileRun({ flags, report, stateFile, to })
  try {
    const program = { agent, settings, node, baseDir: dirname(resolve(agentFile)) }
    // Before anything is opened, an agent that makes no sense is told.
    AgentPlan.fromAgent(agent, program)
    const outcome = await work.run(program)
    throw new ExitRequest(exitCodes[outcome])
  } finally {
    report.close()
  }
}

const exitCodes: Readonly<Record<Outcome, number>> = { done: 0, failed: 1, stopped: 1, interrupted: 130 }

/** What there is to know before anything is opened. */
async function checkFiles({
  input,
  out,
  state,
}: RunFlags): Promise<{ readonly size: number | undefined; readonly stateFile: string | undefined }> {
  const named = { '--input': input, '--out': out, '--state': state }
  const paths = Object.entries(named).flatMap(([flag, path]) =>
    path === undefined || path === '-' ? [] : [[flag, resolve(path)] as const],
  )
  for (const [i, [flag, path]] of paths.entries()) {
    const other = paths.slice(0, i).find(([, each]) => each === path)
    if (other !== undefined) throw new CommandFailure(2, `${other[0]} and ${flag} are the same file, ${path}.`)
  }
  if (input === '-') return { size: undefined, stateFile: state }
  const found = await stat(input).catch(() => undefined)
  if (found === undefined || found.isDirectory()) {
    const what = found === undefined ? `There is no file ${input}.` : `${input} is a folder.`
    throw new CommandFailure(2, `${what} --input names a file with a JSON value a line, or - for stdin.`)
  }
  // A pipe cannot be read again.
  if (!found.isFile()) return { size: undefined, stateFile: state }
  return { size: found.size, stateFile: state ?? `${input}.state.db` }
}

async function readNode(file: string): Promise<LoadedConfig> {
  try {
    return await loadConfigFile(file)
  } catch (error) {
    const hint = '--config takes a configuration such as convoke serve does; --settings FILE is for context.config.'
    throw error instanceof CommandFailure ? new CommandFailure(error.exitCode, `${error.message}\n${hint}`) : error
  }
}

async function readSettings(file: string | undefined): Promise<AgentConfiguration | undefined> {
  try {
    return file === undefined ? undefined : await AgentConfiguration.fromFile(file)
  } catch (error) {
    throw new CommandFailure(2, ConvokeError.from(error).message)
  }
}

interface FileRunOptions {
  readonly flags: RunFlags
  readonly report: RunReport
  readonly stateFile: string | undefined
  readonly to: string | ReturnType<typeof takeStdout>
}

interface Program {
  readonly agent: Agent
  readonly settings: AgentConfiguration | undefined
  /** The configuration whose models, tools, MCP servers and peers it has, if it has any. */
  readonly node: LoadedConfig | undefined
  /** Of the module. */
  readonly baseDir: string
}

interface Opened {
  readonly state: RunState
  readonly outputs: Outputs
  readonly eventLog: EventLog | undefined
}

/** One start of the command. */
class FileRun {
  readonly #options: FileRunOptions
  /** Aborts when nothing more is to be begun. */
  readonly #over = new AbortController()
  #outcome: Outcome = 'done'
  #open: OpenAgent | undefined

  constructor(options: FileRunOptions) {
    this.#options = options
  }

  async run(program: Program): Promise<Outcome> {
    const { flags, stateFile, to } = this.#options
    const { key: keyField, eventLog: logFile } = flags
    for (const signal of stopSignals) process.on(signal, this.#onSignal)
    process.on('SIGPIPE', this.#onSignal)
    const state = await RunState.open({ file: stateFile, isNamed: flags.state !== undefined, keyField })
    let outputs: Outputs | undefined
    let eventLog: EventLog | undefined
    try {
      outputs = await Outputs.open({ store: state.store, scope: itemScope, to, isResumed: state.isResumed })
      if (logFile !== undefined) eventLog = await openEventLog({ file: logFile }).catch(refuse)
      await this.#runAll(program, { state, outputs, eventLog })
    } finally {
      await this.#open?.close()
      await outputs?.close()
      await eventLog?.close()
      await state.close(this.#outcome === 'done' && outputs !== undefined && this.#options.report.failed === 0)
      for (const signal of stopSignals) process.off(signal, this.#onSignal)
      process.off('SIGPIPE', this.#onSignal)
    }
    this.#tell(state)
    return this.#outcome
  }

  async #openAgent({ agent, settings: config, node, baseDir }: Program, opened: Opened): Promise<OpenAgent> {
    const { flags, report } = this.#options
    const log = createLog('warn', {
      write: (line) => report.log(line),
      ...(flags.output === 'json' ? { pretty: false } : {}),
    })
    watchUncaught(log)
    const { state, eventLog } = opened
    const running = {
      store: state.store,
      scope: itemScope,
      log,
      ...(config === undefined ? {} : { config }),
      ...(eventLog === undefined ? {} : { eventLog }),
    }
    if (node !== undefined) {
      const space = await openNodeAgent({ agent, options: node.options, ...running, signal: this.#over.signal })
      for (const warning of [...node.warnings, ...space.warnings]) report.warning(warning)
      return space
    }
    const plan = AgentPlan.fromAgent(agent, { baseDir })
    const runner = new AgentRunner({
      ...running,
      plan,
      openServers: (servers) => openServers(servers, baseDir),
      baseDir,
    })
    return { runner, warnings: [], close: () => runner.close() }
  }

  async #runAll(program: Program, opened: Opened): Promise<void> {
    const { flags, report } = this.#options
    const { signal } = this.#over
    const { state, outputs } = opened
    this.#open = await this.#openAgent(program, opened)
    const { runner } = this.#open
    const file = flags.input === '-' ? undefined : flags.input
    const items = this.#good(readItems({ file, keyField: flags.key, signal }), state)
    const lanes = { concurrency: flags.concurrency, signal, sizeOf: ({ size }: Item) => size }
    let failure: unknown
    try {
      // Those that a crash has kept from being written.
      await outputs.drain()
      await runInLanes(items, (item) => this.#runOne(item, { runner, state, outputs }), lanes)
    } catch (error) {
      failure = error
    }
    // What is under way is stopped; what it has committed until then is written.
    await runner.close()
    await outputs.drain().catch((error: unknown) => (failure ??= error))
    if (failure !== undefined) {
      this.#outcome = 'stopped'
      throw failure instanceof CommandFailure ? failure : new CommandFailure(1, goOn(failure, state))
    }
    if (this.#outcome === 'done' && report.failed > 0) this.#outcome = 'failed'
  }

  /** The lines that are items; the others are told. */
  async *#good(lines: AsyncIterable<Item | BadLine>, state: RunState): AsyncGenerator<Item, void, void> {
    for await (const line of lines) {
      if ('key' in line) {
        await state.check(line)
        yield line
        continue
      }
      const { line: number, problem, size } = line
      const message = `The line ${problem}.`
      this.#options.report.failure({ line: number, key: null, code: 'invalid_params', message }, size)
      if (this.#options.flags.fail === 'fast') return this.#stop('stopped')
    }
  }

  async #runOne(
    item: Item,
    { runner, state, outputs }: { runner: AgentRunner; state: RunState; outputs: Outputs },
  ): Promise<void> {
    const { report, flags } = this.#options
    const { line, key, value, size } = item
    const id = await state.idOf(item)
    if (id === undefined) return report.wasDone(item)
    let count: number
    try {
      ;({
        outputs: { length: count },
      } = await runner.run(key, value, { id }))
    } catch (error) {
      const { code, message } = explained(ConvokeError.from(error))
      const isConsumed = await state.isConsumed(key, id)
      // Stopped, not failed: it is run at the next start.
      if (!isConsumed && this.#over.signal.aborted) return
      if (!isConsumed && (code === 'unavailable' || code === 'conflict' || code === 'internal')) throw error
      report.failure({ line, key, code, message }, size)
      if (flags.fail === 'fast') this.#stop('stopped')
      return
    }
    report.done(item, count)
    await outputs.committed(count)
  }

  #stop(outcome: Outcome): void {
    if (this.#over.signal.aborted) return
    this.#outcome = outcome
    this.#over.abort()
    // Runs that are under way hear of it here.
    void this.#open?.runner.close()
  }

  /** The first one stops in order, the second at once: that is as safe. */
  readonly #onSignal = (): void => {
    if (this.#over.signal.aborted) process.exit(130)
    this.#stop('interrupted')
  }

  #tell(state: RunState): void {
    const { report, flags } = this.#options
    const command = ['convoke', ...process.argv.slice(2)].map(quote).join(' ')
    const kept = state.isKept
      ? `What is done is kept in ${state.path}.`
      : 'Nothing is kept of an input that cannot be read again; --state FILE would.'
    const isLeft = this.#outcome !== 'done'
    const again = this.#outcome === 'interrupted' ? 'To go on' : 'To try the rest again'
    const hints = !isLeft || state.isEmpty ? [] : state.isKept ? [`${kept} ${again}: ${command}`] : [kept]
    const details = {
      out: flags.out ?? null,
      state: state.isKept && (isLeft || flags.state !== undefined) ? state.path : null,
    }
    report.end(this.#outcome, details, hints)
  }
}

function refuse(error: unknown): never {
  throw new CommandFailure(2, ConvokeError.from(error).message)
}

/** Why it could not go on, which is no matter of the agent's. */
function goOn(error: unknown, state: RunState): string {
  const reason = error instanceof Error ? error.message : String(error)
  return `The run cannot go on: ${reason}${state.isKept ? ` What is done is kept in ${state.path}; the same command goes on with it.` : ''}`
}
