/** `run_command` */
import { spawn, type ChildProcess } from 'node:child_process'
import { once } from 'node:events'
import type { Readable } from 'node:stream'
import { setTimeout as wait } from 'node:timers/promises'
import { abortReason, onAbort } from '../../base/abort.ts'
import { Channel } from '../../base/channel.ts'
import { ConvokeError } from '../../base/errors.ts'
import { defineTool } from '../define.ts'
import type { Tool } from '../tool.ts'
import { excerpt } from '../value.ts'
import type { Kit } from './kit.ts'
import { adopt, endGroup } from './process-group.ts'
import { findProgram, toCommandEnvironment, type Environment, type Programs } from './program.ts'

type StreamName = 'stdout' | 'stderr'

interface Output {
  readonly stream: StreamName
  readonly text: string
}

/** Pieces of output that wait for their reader before the command is made to wait. */
const capacity = 16
/** How long what a command has said may take to arrive when it has ended, in milliseconds: others may hold its pipes. */
const drainMs = 500

export interface CommandKit extends Kit {
  /** The programs that may run, as callers name them. */
  readonly commands: readonly string[]
  readonly environment: Environment
  readonly baseDir: string
}

export function createRunCommand(kit: CommandKit): Tool {
  const { workspace, maxBytes, timeoutMs: longest, traits, commands, baseDir } = kit
  const environment = toCommandEnvironment(kit.environment)
  const programs: Programs = { allowed: commands, environment, workspace, baseDir }
  return defineTool({
    name: 'run_command',
    description:
      `Runs a program in the workspace and gives what it says and its exit code. Programs: ${commands.join(', ') || 'none'}. ` +
      'There is no shell: no pipes, no redirects, no wildcards, no variables; each argument reaches the program as it is. ' +
      'What the program has started ends with it.',
    input: {
      type: 'object',
      properties: {
        program: { type: 'string', minLength: 1, maxLength: 1000, description: 'One of the programs that may run.' },
        args: {
          type: 'array',
          maxItems: 1000,
          default: [],
          items: { type: 'string', maxLength: 100_000 },
          description: 'Its arguments, one by one.',
        },
        cwd: {
          type: 'string',
          minLength: 1,
          default: '.',
          description: 'The folder to run in, relative to the root of the workspace.',
        },
        stdin: { type: 'string', description: 'What the program can read. Default: nothing.' },
        timeout_ms: {
          type: 'integer',
          minimum: 1,
          maximum: longest,
          default: longest,
          description: 'When it is ended, in milliseconds.',
        },
      },
      required: ['program'],
      additionalProperties: false,
    },
    output: {
      type: 'object',
      properties: {
        exit_code: { type: ['integer', 'null'], description: '0 is success; null when a signal ended it.' },
        signal: { type: ['string', 'null'], description: 'The signal that ended it, such as SIGTERM.' },
        timed_out: { type: 'boolean', description: 'Whether it was ended because it took too long.' },
        stdout: { type: 'string' },
        stderr: { type: 'string' },
        truncated: { type: 'boolean', description: 'Whether it said more than is here, which was left out.' },
        duration_ms: { type: 'integer' },
      },
      required: ['exit_code', 'signal', 'timed_out', 'stdout', 'stderr', 'truncated', 'duration_ms'],
    },
    traits: traits('run_command', {}),
    async *run({ program, args, cwd, stdin, timeout_ms: timeoutMs }, { signal }) {
      if (args.some((arg) => arg.includes('\0'))) {
        throw new ConvokeError('invalid_params', 'An argument cannot hold a NUL character.')
      }
      const file = await findProgram(program, programs)
      const folder = await workspace.openFolder(cwd)
      let command: Command | undefined
      try {
        if (signal.aborted) throw abortReason(signal)
        const startedAt = performance.now()
        command = new Command({ program, file, args, at: folder.at, environment, stdin, maxBytes })
        await command.started()
        let timedOut = false
        const timer = setTimeout(() => {
          timedOut = true
          command?.stop()
        }, timeoutMs)
        const stopListening = onAbort(signal, () => command?.stop())
        try {
          for await (const output of command.output) yield { ...output }
        } finally {
          clearTimeout(timer)
          stopListening()
        }
        if (signal.aborted) throw abortReason(signal)
        const { stdout, stderr, truncated, exitCode, endedBy } = command
        return {
          exit_code: exitCode,
          signal: endedBy,
          timed_out: timedOut,
          stdout,
          stderr,
          truncated,
          duration_ms: Math.round(performance.now() - startedAt),
        }
      } finally {
        await command?.close()
        await folder.close()
      }
    },
  })
}

interface Start {
  readonly program: string
  readonly file: string
  readonly args: readonly string[]
  readonly at: string
  readonly environment: Record<string, string>
  readonly stdin: string | undefined
  readonly maxBytes: number
}

/** A command under way. Its output ends when it and all that it has started have ended. */
class Command {
  readonly output = new Channel<Output>(capacity)
  readonly #child: ChildProcess
  readonly #program: string
  readonly #said: Record<StreamName, string> = { stdout: '', stderr: '' }
  readonly #ended: Promise<void>
  readonly #bytesLeft: Record<StreamName, number>
  #saidLast = 0
  #isStopped = false
  #ending: Promise<void> | undefined
  truncated = false

  constructor({ program, file, args, at, environment, stdin, maxBytes }: Start) {
    this.#program = program
    this.#bytesLeft = { stdout: maxBytes, stderr: maxBytes }
    this.#child = this.#spawn(file, args, { at, environment, stdin })
    // Told by `started`; later ones are of signals that could not be sent, which `endGroup` sees for itself.
    this.#child.on('error', () => {})
    for (const name of ['stdout', 'stderr'] as const) {
      const stream = this.#child[name]
      stream?.setEncoding('utf8').on('data', (text: string) => this.#say(name, text, stream))
    }
    // A program may end, or close its input, before it has read everything.
    this.#child.stdin?.on('error', () => {}).end(stdin)
    this.#ended = this.#follow()
  }

  get stdout(): string {
    return this.#said.stdout
  }

  get stderr(): string {
    return this.#said.stderr
  }

  get exitCode(): number | null {
    return this.#child.exitCode
  }

  get endedBy(): string | null {
    return this.#child.signalCode
  }

  /** Rejects when it could not be started. To be called at once. */
  async started(): Promise<void> {
    if (this.#child.pid === undefined) throw this.#failure((await once(this.#child, 'error'))[0])
  }

  /** Ends it and all that it has started; its output ends soon. */
  stop(): void {
    this.#isStopped = true
    this.#ending ??= endGroup(this.#child)
  }

  /** Resolves when nothing of it is left. */
  async close(): Promise<void> {
    this.stop()
    // Nobody reads any more; what is still said must not hold it up.
    await this.output.return()
    this.#child.stdout?.resume()
    this.#child.stderr?.resume()
    await this.#ended
  }

  #spawn(
    file: string,
    args: readonly string[],
    { at, environment, stdin }: Pick<Start, 'at' | 'environment' | 'stdin'>,
  ): ChildProcess {
    try {
      return spawn(file, args, {
        cwd: at,
        env: environment,
        shell: false,
        windowsHide: true,
        // The leader of a group of its own, which can be ended with all that it starts.
        detached: process.platform !== 'win32',
        stdio: [stdin === undefined ? 'ignore' : 'pipe', 'pipe', 'pipe'],
      })
    } catch (cause) {
      throw this.#failure(cause)
    }
  }

  #failure(cause: unknown): ConvokeError {
    const reason = cause instanceof Error && 'code' in cause ? String(cause.code) : ''
    const name = excerpt(this.#program)
    if (reason === 'E2BIG') {
      return new ConvokeError('too_large', `The arguments of ${name} are too long for the system.`, { cause })
    }
    if (reason === 'EAGAIN' || reason === 'ENOMEM' || reason === 'EMFILE') {
      return new ConvokeError('unavailable', `The program ${name} cannot be started now (${reason}).`, { cause })
    }
    return new ConvokeError('forbidden', `The program ${name} could not be started (${reason}).`, { cause })
  }

  async #follow(): Promise<void> {
    const child = this.#child
    if (child.pid === undefined) return this.output.end()
    adopt(child)
    const closed = new Promise<void>((resolve) => child.once('close', resolve))
    if (child.exitCode === null && child.signalCode === null) {
      await new Promise<void>((resolve) => child.once('exit', resolve))
    }
    // What it has left running, if anything, ends with it.
    await (this.#ending ??= endGroup(child))
    await this.#drain(closed)
    child.stdout?.destroy()
    child.stderr?.destroy()
    this.output.end()
  }

  /** A slow reader gets all that was said. What has left the group may hold the pipes, and is not waited for. */
  async #drain(closed: Promise<void>): Promise<void> {
    const { stdout, stderr } = this.#child
    for (;;) {
      const since = performance.now()
      const controller = new AbortController()
      const patience = wait(drainMs, 'silent', { signal: controller.signal }).catch(() => 'closed')
      const outcome = await Promise.race([closed, patience])
      controller.abort()
      const isHeldUp = stdout?.isPaused() === true || stderr?.isPaused() === true
      if (outcome !== 'silent' || this.#isStopped || !(isHeldUp || this.#saidLast > since)) return
    }
  }

  #say(name: StreamName, text: string, stream: Readable): void {
    this.#saidLast = performance.now()
    const kept = cutBytes(text, this.#bytesLeft[name])
    this.#bytesLeft[name] -= Buffer.byteLength(kept)
    if (kept.length < text.length) {
      this.truncated = true
      // What comes behind the gap would look as if it belonged there.
      this.#bytesLeft[name] = 0
    }
    if (kept === '') return
    this.#said[name] += kept
    const room = this.output.push({ stream: name, text: kept })
    if (room === undefined) return
    stream.pause()
    void room.then(() => stream.resume())
  }
}

/** The beginning of a text in that many bytes, no character cut through. */
function cutBytes(text: string, maxBytes: number): string {
  if (Buffer.byteLength(text) <= maxBytes) return text
  const bytes = Buffer.from(text).subarray(0, maxBytes)
  return new TextDecoder('utf-8', { ignoreBOM: true }).decode(bytes, { stream: true })
}
