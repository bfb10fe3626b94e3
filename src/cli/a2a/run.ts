/** How a client command runs: what it is given, what stops it, and how its failure is told. */
import type { Command, CommanderError } from 'commander'
import { ConvokeError } from '../../base/errors.ts'
import { environment, isReadableByOthers, loadSources, type Source } from '../environment.ts'
import { ExitRequest } from '../failure.ts'
import { stopSignals } from '../signals.ts'
import { toClientFailure, usageFailure, type ClientFailure } from './failure.ts'
import { Session } from './session.ts'
import { resolveSettings, variableOf, type AgentFlags, type ClientFlags } from './settings.ts'
import { field } from './text.ts'

/**
 * Runs the work of a client command. Whatever it throws but an ExitRequest is told here, as an envelope on stdout with `-o json` and on
 * stderr without; then it throws an ExitRequest. `settingsFlag` is the option that names the .env file. `limit`: whether
 * --timeout is for all of the work, or for each source of which it asks something, which is its own affair then. `signals`
 * stop the work; others are its own affair, too.
 */
export async function runClientCommand<Flags extends ClientFlags = AgentFlags>(
  command: Command,
  work: (session: Session<Flags>) => Promise<void>,
  settingsFlag: 'config' | 'envFile' = 'config',
  limit: 'all' | 'each' = 'all',
  signals: readonly NodeJS.Signals[] = stopSignals,
): Promise<void> {
  const stop = new AbortController()
  const interrupted = (): void => stop.abort(new ConvokeError('canceled', 'Interrupted.'))
  let session: Session<Flags> | undefined
  let sources: readonly Source[] = [{ kind: 'environment', variables: environment() }]
  let timer: NodeJS.Timeout | undefined
  for (const signal of signals) process.once(signal, interrupted)
  try {
    sources = await findSources(command, settingsFlag)
    const settings = resolveSettings(command, sources)
    const flags = command.opts<Flags>()
    if (flags.timeout !== undefined && limit === 'all')
      timer = setTimeout(() => stop.abort(timeoutError(flags.timeout)), flags.timeout)
    session = new Session(flags, settings, sources, stop.signal)
    await warnOfOpenFiles(session)
    await work(session)
  } catch (error) {
    if (error instanceof ExitRequest) throw error
    const context = {
      connecting: session?.isConnected === false,
      hasCredentials: session?.hasCredentials === true,
      agentFlag: session?.agentFlag ?? '',
      taskId: session?.taskId,
      isOver: session?.isOver === true,
      credentialsHint: session?.credentialsHint,
      cardHint: session?.cardHint,
      addressHint: session?.addressHint,
      helpCommand: helpCommand(command),
    }
    // A request that was cut off by the signal may say so in other words.
    const failure = toClientFailure(stop.signal.aborted ? stop.signal.reason : error, context)
    reportFailure(failure, session?.flags.output ?? outputFormat(sources))
    if (session?.flags.debug === true && failure.cause instanceof Error) session.debug('failed', causeOf(failure.cause))
    throw new ExitRequest(failure.exitCode)
  } finally {
    clearTimeout(timer)
    session?.close()
    for (const signal of signals) process.off(signal, interrupted)
  }
}

function causeOf({ name, message, stack, cause }: Error): object {
  return { name, message, stack, ...(cause instanceof Error ? { cause: causeOf(cause) } : {}) }
}

function timeoutError(ms: number | undefined): ConvokeError {
  return new ConvokeError('timeout', `The --timeout of ${ms} ms passed before the work was done.`)
}

async function findSources(command: Command, flag: 'config' | 'envFile'): Promise<readonly Source[]> {
  const named = command.opts<ClientFlags & { readonly envFile?: string }>()[flag] ?? environment()[variableOf('config')]
  try {
    return await loadSources(named)
  } catch (error) {
    throw usageFailure(`Cannot read the settings: ${error instanceof Error ? error.message : String(error)}`)
  }
}

async function warnOfOpenFiles(session: Session<ClientFlags>): Promise<void> {
  const secrets = session.settings.filter(({ name }) => name === 'bearer' || name === 'api-key')
  for (const { source, from } of secrets) {
    if ((source !== 'local' && source !== 'global') || from === undefined) continue
    if (await isReadableByOthers(from))
      session.note(`warning: others can read the credential in ${from}: chmod 600 it.`)
  }
}

/** What -o would be, for failures that come before options are read. */
function outputFormat(sources: readonly Source[]): 'text' | 'json' {
  const given = /(?:^|\s)(?:-o\s?|--output[\s=])(text|json)(?=\s|$)/g
  const flag = [...process.argv.slice(2).join(' ').matchAll(given)].at(-1)?.[1]
  const variable = sources.map(({ variables }) => variables[variableOf('output')]).find((each) => each !== undefined)
  return (flag ?? variable) === 'json' ? 'json' : 'text'
}

function reportFailure(failure: ClientFailure, output: 'text' | 'json'): void {
  if (output === 'json') {
    process.stdout.write(`${JSON.stringify(failure.toEnvelope())}\n`)
    return
  }
  const { code, sentence, issues, hint } = failure
  const lines = issues.map(({ path, message }) => `  ${field(path === '' ? '/' : path, message)}`)
  process.stderr.write(`${field('convoke', `${code}: ${sentence}`)}${lines.join('')}${field('hint', hint)}`)
}

/** `convoke task get --help` */
export function helpCommand(command: Command): string {
  const names: string[] = []
  for (let each: Command | null = command; each !== null; each = each.parent) names.unshift(each.name())
  return `${names.join(' ')} --help`
}

/** Makes what commander finds wrong with a client command an envelope as well, where JSON is asked for. */
export function reportUsageAsEnvelope(command: Command): Command {
  const isJson = (): boolean => outputFormat([{ kind: 'environment', variables: environment() }]) === 'json'
  return command
    .configureOutput({
      writeErr: (text) => {
        if (!isJson()) process.stderr.write(text)
      },
    })
    .exitOverride((error: CommanderError) => {
      if (error.exitCode === 0) throw error
      if (isJson()) {
        const isHelp = error.code === 'commander.help'
        const message = isHelp ? 'A subcommand is missing.' : error.message.replace(/^error: /, '')
        reportFailure(usageFailure(message, `See ${helpCommand(command)}.`), 'json')
      }
      throw new ExitRequest(2)
    })
}
