/**
 * An MCP server as a child process, a message a line. The SDK has a transport for that, too; this one leads a process
 * group of its own, so that what the program has started ends with it (npx starts node), and bounds what it keeps.
 */
import { spawn, type ChildProcessWithoutNullStreams } from 'node:child_process'
import { readFile } from 'node:fs/promises'
import { setTimeout as wait } from 'node:timers/promises'
import { parseEnv } from 'node:util'
import type { Transport } from '@modelcontextprotocol/sdk/shared/transport.js'
import type { JSONRPCMessage } from '@modelcontextprotocol/sdk/types.js'
import { ConvokeError } from '../base/errors.ts'
import { isObject, parseJson } from '../base/json.ts'
import { excerpt } from '../tools/value.ts'
import type { StdioSettings } from './server-options.ts'

/** The variables of a process. */
export type Environment = Readonly<Record<string, string | undefined>>

export interface StdioOptions {
  /** What the server gets of the node's own variables is chosen from these. */
  readonly environment: Environment
  /** Hears each line of the server's stderr, and of its stdout what is no message. */
  readonly onLine: (line: string) => void
  /** Hears what its `envFile` holds, before it is started. */
  readonly onSecrets: (secrets: readonly string[]) => void
  /** How long the server may take to end when its stdin does, and again when it is told to, in milliseconds. Default: 2,000. */
  readonly graceMs?: number
}

/** Largest message from a server, in bytes. */
const maxMessageBytes = 64 * 1024 * 1024
/** How much may wait for a server that does not read, in bytes. */
const maxUnsentBytes = 64 * 1024 * 1024
const maxLineLength = 4_096
const defaultGraceMs = 2_000
/** How long those that a server has started may outlive it. */
const orphanGraceMs = 500

/** Enough to find programs, files and the language; nothing that may be a secret of the node. */
const inherited = (
  'PATH HOME USER LOGNAME SHELL TERM LANG LC_ALL LC_CTYPE TZ TMPDIR TMP TEMP ' +
  'APPDATA LOCALAPPDATA HOMEDRIVE HOMEPATH PATHEXT PROCESSOR_ARCHITECTURE PROGRAMFILES SystemDrive SystemRoot USERNAME USERPROFILE'
).split(' ')

export class StdioTransport implements Transport {
  onclose?: () => void
  onerror?: (error: Error) => void
  onmessage?: (message: JSONRPCMessage) => void
  readonly #settings: StdioSettings
  readonly #options: StdioOptions
  #child: ChildProcessWithoutNullStreams | undefined
  #group: number | undefined
  /** Resolves when the process, all in its group and its pipes are gone. */
  #gone: Promise<void> = Promise.resolve()
  /** Resolves when what the process has started is gone. */
  #buried: Promise<void> = Promise.resolve()
  #closing: Promise<void> | undefined
  #ending: string | undefined
  #pieces: Buffer[] = []
  #bytes = 0

  constructor(settings: StdioSettings, options: StdioOptions) {
    this.#settings = settings
    this.#options = options
  }

  /** The process's id while it runs. */
  get pid(): number | undefined {
    return this.#ending === undefined ? this.#child?.pid : undefined
  }

  /** How the process ended, for messages; undefined while it runs. */
  get ending(): string | undefined {
    return this.#ending
  }

  /** Throws `unavailable` where the program cannot be started. */
  async start(): Promise<void> {
    const { command, args, cwd } = this.#settings
    const env = await this.#environment()
    if (this.#closing !== undefined) throw new ConvokeError('canceled', 'It was closed before it was started.')
    const isWindows = process.platform === 'win32'
    const child = spawn(command, args, { cwd, env, shell: false, detached: !isWindows, windowsHide: true })
    this.#child = child
    this.#group = isWindows ? undefined : child.pid
    if (this.#group !== undefined) groups.add(this.#group)
    this.#gone = this.#watch(child)
    await new Promise<void>((resolve, reject) => {
      child.once('spawn', resolve)
      child.once('error', (cause: NodeJS.ErrnoException) => reject(cannotStart(this.#settings, cause)))
    })
    // Aborted between the two: whoever called close() then had nothing to end.
    if (this.#closing !== undefined) throw new ConvokeError('canceled', 'It was closed while it was started.')
  }

  async send(message: JSONRPCMessage): Promise<void> {
    const stdin = this.#child?.stdin
    if (stdin === undefined || !stdin.writable) throw new ConvokeError('network', 'The MCP server has ended.')
    if (stdin.writableLength > maxUnsentBytes)
      throw new ConvokeError('unavailable', `The MCP server does not read: ${stdin.writableLength} bytes wait for it.`)
    // Nothing is gained by waiting for the pipe: the answer is what is waited for, and what is unsent is bounded.
    stdin.write(`${JSON.stringify(message)}\n`)
  }

  /** Ends stdin, then asks the whole group to end, then kills it. Resolves when all is gone; never rejects. */
  close(): Promise<void> {
    this.#closing ??= this.#close()
    return this.#closing
  }

  async #close(): Promise<void> {
    const child = this.#child
    if (child === undefined) return
    const { graceMs = defaultGraceMs } = this.#options
    child.stdin.end()
    if (await isWithin(this.#gone, graceMs)) return
    this.#signal('SIGTERM')
    if (await isWithin(this.#gone, graceMs)) return
    this.#signal('SIGKILL')
    await this.#gone
  }

  async #environment(): Promise<Record<string, string>> {
    const { env, envFile } = this.#settings
    const kept = inherited.flatMap((name): [string, string][] => {
      const value = this.#options.environment[name]
      // Exported shell functions are programs.
      return value === undefined || value.startsWith('()') ? [] : [[name, value]]
    })
    if (envFile === undefined) return { ...Object.fromEntries(kept), ...env }
    try {
      const more = parseEnv(await readFile(envFile, 'utf8')) as Record<string, string>
      this.#options.onSecrets(Object.values(more))
      return { ...Object.fromEntries(kept), ...more, ...env }
    } catch (cause) {
      throw new ConvokeError('unavailable', `Its envFile ${excerpt(envFile)} cannot be read.`, {
        cause,
        retryable: false,
      })
    }
  }

  #watch(child: ChildProcessWithoutNullStreams): Promise<void> {
    child.stdout.on('data', (chunk: Buffer) => this.#take(chunk))
    const stderr = new Lines(this.#options.onLine)
    child.stderr.on('data', (chunk: Buffer) => stderr.take(chunk))
    // A pipe whose other end is gone; the exit tells the rest.
    for (const pipe of [child.stdin, child.stdout, child.stderr]) pipe.on('error', () => {})
    return new Promise((resolve) => {
      child.once('error', () => {
        if (child.pid === undefined) resolve()
      })
      child.once('exit', (code, signal) => {
        this.#ending = signal === null ? `ended with exit code ${code}` : `was ended by ${signal}`
        void this.#bury(child)
      })
      child.once('close', () => {
        stderr.end()
        this.#pieces = []
        this.onclose?.()
        resolve(this.#buried)
      })
    })
  }

  /** What the program has started ends behind it, and so do pipes that somebody else still holds. */
  #bury(child: ChildProcessWithoutNullStreams): Promise<void> {
    const group = this.#group
    this.#buried = (async () => {
      for (let waited = 0; isAlive(group) && waited < orphanGraceMs; waited += 20) await wait(20)
      if (isAlive(group)) this.#signal('SIGKILL')
      if (group !== undefined) groups.delete(group)
      this.#group = undefined
      // One that has left the group holds them open for ever.
      if (!child.stdout.closed)
        await isWithin(new Promise<void>((done) => child.once('close', () => done())), orphanGraceMs)
      child.stdout.destroy()
      child.stderr.destroy()
    })()
    return this.#buried
  }

  #signal(signal: NodeJS.Signals): void {
    if (this.#group === undefined) this.#child?.kill(signal)
    else signalGroup(this.#group, signal)
  }

  /** Messages are lines. Pieces of a long one are joined once: joining each with the next costs its square. */
  #take(chunk: Buffer): void {
    let from = 0
    for (let end = chunk.indexOf(10); end !== -1; end = chunk.indexOf(10, from)) {
      const piece = chunk.subarray(from, end)
      const line = this.#pieces.length === 0 ? piece : Buffer.concat([...this.#pieces, piece])
      this.#pieces = []
      this.#bytes = 0
      from = end + 1
      this.#receive(line.toString('utf8'))
    }
    if (from === chunk.length) return
    this.#pieces.push(chunk.subarray(from))
    this.#bytes += chunk.length - from
    if (this.#bytes <= maxMessageBytes) return
    this.#pieces = []
    this.#bytes = 0
    this.onerror?.(
      new ConvokeError('too_large', `The MCP server sent a message of more than ${maxMessageBytes} bytes.`),
    )
    this.#signal('SIGKILL')
  }

  #receive(line: string): void {
    if (line.trim() === '') return
    let message: unknown
    try {
      message = parseJson(line)
    } catch {
      // Some greet on stdout; it is no message, and harms nobody.
      this.#options.onLine(line.slice(0, maxLineLength))
      return
    }
    if (isObject(message) && message['jsonrpc'] === '2.0') this.onmessage?.(message as JSONRPCMessage)
    else this.#options.onLine(line.slice(0, maxLineLength))
  }
}

/** Text in lines, of which no more is kept than one. */
class Lines {
  readonly #onLine: (line: string) => void
  readonly #decoder = new TextDecoder()
  #rest = ''

  constructor(onLine: (line: string) => void) {
    this.#onLine = onLine
  }

  take(chunk: Uint8Array): void {
    const lines = (this.#rest + this.#decoder.decode(chunk, { stream: true })).split('\n')
    this.#rest = (lines.pop() ?? '').slice(0, maxLineLength)
    for (const line of lines) this.#say(line)
  }

  end(): void {
    this.#say(this.#rest)
    this.#rest = ''
  }

  #say(line: string): void {
    const text = line.trimEnd()
    if (text !== '') this.#onLine(text.slice(0, maxLineLength))
  }
}

function cannotStart({ command, cwd }: StdioSettings, cause: NodeJS.ErrnoException): ConvokeError {
  const why =
    cause.code === 'ENOENT'
      ? `there is no program ${excerpt(command)}, or no folder ${excerpt(cwd)}`
      : cause.code === 'EACCES'
        ? `${excerpt(command)} may not be run`
        : `${excerpt(command)} failed with ${cause.code ?? cause.message}`
  return new ConvokeError('unavailable', `It cannot be started: ${why}.`, { cause, retryable: false })
}

async function isWithin(event: Promise<unknown>, ms: number): Promise<boolean> {
  const over = new AbortController()
  const timeout = wait(ms, false, { signal: over.signal }).catch(() => false)
  try {
    return await Promise.race([event.then(() => true), timeout])
  } finally {
    over.abort()
  }
}

function isAlive(group: number | undefined): boolean {
  if (group === undefined || process.platform === 'win32') return false
  try {
    process.kill(-group, 0)
    return true
  } catch {
    // Nobody is in it any more.
    return false
  }
}

function signalGroup(group: number, signal: NodeJS.Signals): void {
  try {
    process.kill(-group, signal)
  } catch {
    // All have ended.
  }
}

/** The groups that run. If this process ends without closing them, they end with it; if it is killed, their stdin ends. */
const groups = new (class {
  readonly #running = new Set<number>()
  readonly #killAll = (): void => {
    for (const group of this.#running) signalGroup(group, 'SIGKILL')
  }

  add(group: number): void {
    if (this.#running.size === 0) process.on('exit', this.#killAll)
    this.#running.add(group)
  }

  delete(group: number): void {
    this.#running.delete(group)
    if (this.#running.size === 0) process.removeListener('exit', this.#killAll)
  }
})()
