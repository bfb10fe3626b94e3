/**
 * What happened in an agent's runs, for people who want to know why: a file of JSON lines. `convoke agent trace` makes trees
 * of them (`event-trace.ts`).
 *
 * Every line has `at` (ISO 8601, UTC) and `kind`. What stands beside them, in this order:
 * - `run`: `run`, `key`, `phase` (`begun`, `resumed`, `ended`, `failed`), and `error` of a failed one.
 * - `event`: `run`, `key`, `id`, `type`, `payload`, and, unless it is the input, `cause`: `{event, action}`, which action
 *   said it while it heard which event; `unheard`, true where no action hears it and it is no output.
 * - `action`: `run`, `key`, `cause`: `{event}`, what it heard, `action`, `duration_ms`, and `error` where it failed.
 * - `dropped`: `dropped`, how many lines are missing here: they came faster than they could be written.
 *
 * An `error` is `{code, message}`, and `cause` where something lies beneath: what it said, in one line, without secrets.
 */
import { mkdir, open, rename, type FileHandle } from 'node:fs/promises'
import { dirname, resolve } from 'node:path'
import { ConvokeError, reasonsOf } from '../base/errors.ts'
import { silentLog, type Logger } from '../base/logger.ts'
import { clip, excerpt } from '../tools/value.ts'
import { OutputEvent, type AgentEvent } from './events.ts'
import {
  cutPayload,
  maxLineChars,
  maxNameChars,
  safeText,
  shorten,
  wholePayload,
  type PayloadLimits,
} from './log-payload.ts'

/** One thing that happened. `cause` is which action said it, while it heard which event; the input has none. */
export type EventLogEntry = { readonly runId: string; readonly key: string } & (
  | { readonly kind: 'run'; readonly phase: 'begun' | 'resumed' | 'ended' }
  | { readonly kind: 'run'; readonly phase: 'failed'; readonly error: ConvokeError }
  | {
      readonly kind: 'event'
      readonly event: AgentEvent<string, object>
      readonly cause: { readonly eventId: string; readonly action: string } | undefined
      /** Default: it is not said. */
      readonly isHeard?: boolean
    }
  | {
      readonly kind: 'action'
      readonly action: string
      readonly eventId: string
      readonly durationMs: number
      readonly error?: ConvokeError
    }
)

export interface EventLog {
  /** Never throws, never waits. */
  write(entry: EventLogEntry): void
  /** Resolves when everything is written. */
  close(): Promise<void>
}

/** `off`: nothing. `run`: how runs begin and end. `event`: events and actions, too, long payloads cut. `full`: payloads whole. */
export type EventLogLevel = 'off' | 'run' | 'event' | 'full'

export interface EventLogOptions {
  /** Appended to, and made with its folders if need be; only this user may read it. One process at a time writes it. */
  readonly file: string
  /** Default: `event`. */
  readonly level?: EventLogLevel
  /** For types of events another level than that: `{ chat_request: 'off', review: 'full' }`. */
  readonly levels?: Readonly<Record<string, Exclude<EventLogLevel, 'run'>>>
  /** Longer texts in payloads are cut at level `event`, and lists to 20 items; what is left out is counted. Default: 2,000. */
  readonly maxPayloadChars?: number
  /** A file that would grow past this becomes `FILE.1`, in place of an older one. Default: 64 MiB. */
  readonly maxBytes?: number
  /** Hears, once, when the file cannot be written. Default: nobody. */
  readonly log?: Logger
}

const defaultPayloadChars = 2_000
const defaultMaxBytes = 64 * 1_048_576
/** How many characters of lines wait for the disk at most; then lines are dropped. */
const maxQueuedChars = 8 * 1_048_576
/** How much of them is written at once. */
const maxBatchBytes = 262_144

/** Opens the file. Throws `config` where that cannot be done, or an option makes no sense. */
export async function openEventLog(options: EventLogOptions): Promise<EventLog> {
  checkOptions(options)
  const file = resolve(options.file)
  if ((options.level ?? 'event') === 'off' && Object.values(options.levels ?? {}).every((level) => level === 'off'))
    return { write() {}, close: () => Promise.resolve() }
  try {
    await mkdir(dirname(file), { recursive: true })
    return new FileLog(file, await LogFile.open(file), options)
  } catch (cause) {
    const { code = 'for an unknown reason' } = cause as NodeJS.ErrnoException
    throw new ConvokeError(
      'config',
      `The event log ${file} cannot be opened (${code}). Name a file in a folder that this user may write.`,
      { cause },
    )
  }
}

const levels: readonly unknown[] = ['off', 'run', 'event', 'full'] satisfies EventLogLevel[]

function checkOptions({ file, level, levels: byType = {}, maxPayloadChars, maxBytes }: EventLogOptions): void {
  const refuse = (what: string, got: unknown): never => {
    throw new ConvokeError('config', `${what}, got ${excerpt(got)}.`)
  }
  if (typeof file !== 'string' || file === '') refuse('The file of the event log must be a path', file)
  if (level !== undefined && !levels.includes(level))
    refuse('The level of the event log must be off, run, event or full', level)
  for (const [type, each] of Object.entries(byType)) {
    if (!levels.includes(each) || (each as unknown) === 'run')
      refuse(`The level of "${clip(type, 100)}" in the event log must be off, event or full`, each)
  }
  if (maxPayloadChars !== undefined && !(Number.isInteger(maxPayloadChars) && maxPayloadChars >= 0))
    refuse('maxPayloadChars of the event log must be a whole number, 0 or more', maxPayloadChars)
  if (maxBytes !== undefined && !(Number.isInteger(maxBytes) && maxBytes >= 1))
    refuse('maxBytes of the event log must be a whole number, 1 or more', maxBytes)
}

/** The file that is written, and how it makes room. */
class LogFile {
  readonly #file: string
  #handle: FileHandle
  bytes: number
  /** The file ends in the middle of a line: a process died, or a disk was full. */
  #isTorn: boolean

  private constructor(file: string, handle: FileHandle, bytes: number, isTorn: boolean) {
    this.#file = file
    this.#handle = handle
    this.bytes = bytes
    this.#isTorn = isTorn
  }

  static async open(file: string): Promise<LogFile> {
    // Readable, to see how it ends.
    const handle = await open(file, 'a+', 0o600)
    try {
      const { size } = await handle.stat()
      const { buffer, bytesRead } = await handle.read(Buffer.alloc(1), 0, 1, Math.max(0, size - 1))
      return new LogFile(file, handle, size, bytesRead === 1 && buffer[0] !== 0x0a)
    } catch (error) {
      await handle.close()
      throw error
    }
  }

  async append(text: string): Promise<void> {
    const data = Buffer.from(this.#isTorn ? `\n${text}` : text)
    // Until it is known to be all there.
    this.#isTorn = true
    await this.#handle.appendFile(data)
    this.#isTorn = false
    this.bytes += data.length
  }

  /** The file becomes `FILE.1`, and a new one begins. */
  async rotate(): Promise<void> {
    try {
      await rename(this.#file, `${this.#file}.1`)
    } catch (error) {
      // Somebody else has moved it, or the last attempt came no further than this.
      if ((error as NodeJS.ErrnoException).code !== 'ENOENT') throw error
    }
    const next = await open(this.#file, 'a', 0o600)
    const old = this.#handle
    this.#handle = next
    this.#isTorn = false
    this.bytes = 0
    await old.close()
  }

  close(): Promise<void> {
    return this.#handle.close()
  }
}

class FileLog implements EventLog {
  readonly #file: LogFile
  readonly #name: string
  readonly #level: EventLogLevel
  readonly #levels: Readonly<Record<string, EventLogLevel>>
  readonly #cut: PayloadLimits
  readonly #maxBytes: number
  readonly #log: Logger
  #lines: string[] = []
  #queuedChars = 0
  #dropped = 0
  #writing: Promise<void> | undefined
  #hasWarned = false
  #closed: Promise<void> | undefined

  constructor(name: string, file: LogFile, options: EventLogOptions) {
    this.#name = name
    this.#file = file
    this.#level = options.level ?? 'event'
    this.#levels = options.levels ?? {}
    this.#cut = cutPayload(options.maxPayloadChars ?? defaultPayloadChars)
    this.#maxBytes = options.maxBytes ?? defaultMaxBytes
    this.#log = options.log ?? silentLog
  }

  write(entry: EventLogEntry): void {
    if (this.#closed !== undefined) return
    try {
      const line = this.#lineOf(entry)
      if (line === undefined) return
      if (this.#queuedChars + line.length > maxQueuedChars) {
        this.#dropped++
        return
      }
      this.#lines.push(line)
      this.#queuedChars += line.length
    } catch {
      // What is no entry is not written; whoever looks on must not disturb the run.
      this.#dropped++
    }
    this.#writing ??= this.#drain()
  }

  close(): Promise<void> {
    return (this.#closed ??= this.#close())
  }

  async #close(): Promise<void> {
    while (this.#writing !== undefined) await this.#writing
    await this.#file.close().catch((error: unknown) => this.#warn(error))
  }

  /** Writes until nothing is left; never rejects. */
  async #drain(): Promise<void> {
    // What is said in one turn of the event loop goes out together.
    await new Promise((go) => setImmediate(go))
    while (this.#lines.length > 0 || this.#dropped > 0) {
      const dropped = this.#dropped
      const lines = this.#takeBatch()
      if (dropped > 0) lines.push(toLine({ at: now(), kind: 'dropped', dropped }))
      try {
        const text = lines.join('')
        if (this.#file.bytes > 0 && this.#file.bytes + Buffer.byteLength(text) > this.#maxBytes)
          await this.#file.rotate()
        await this.#file.append(text)
        this.#dropped -= dropped
        this.#hasWarned = false
      } catch (error) {
        this.#dropped += lines.length - (dropped > 0 ? 1 : 0)
        this.#warn(error)
        // With the next entry: a disk that is full now may have room then.
        if (this.#lines.length === 0) break
      }
    }
    this.#writing = undefined
  }

  /** As much as is written at once, and as the file has room for; at least one line, if there is one. */
  #takeBatch(): string[] {
    const left = this.#maxBytes - this.#file.bytes
    const room = Math.min(maxBatchBytes, left > 0 ? left : this.#maxBytes)
    let bytes = 0
    let count = 0
    for (const line of this.#lines) {
      bytes += Buffer.byteLength(line)
      if (count > 0 && bytes > room) break
      this.#queuedChars -= line.length
      count++
    }
    return this.#lines.splice(0, count)
  }

  #warn(error: unknown): void {
    if (this.#hasWarned) return
    this.#hasWarned = true
    this.#log.warn({ error, file: this.#name }, 'The event log of an agent cannot be written; entries are lost.')
  }

  #lineOf(entry: EventLogEntry): string | undefined {
    const { kind, runId, key } = entry
    const head = { at: now(), kind, run: clip(runId, maxNameChars), key: clip(key, maxNameChars) }
    switch (kind) {
      case 'run':
        if (this.#level === 'off') return undefined
        return toLine({ ...head, phase: entry.phase, ...('error' in entry ? { error: shownError(entry.error) } : {}) })
      case 'action': {
        if (this.#level === 'off' || this.#level === 'run') return undefined
        const { action, eventId, durationMs, error } = entry
        return toLine({
          ...head,
          cause: { event: eventId },
          action: clip(action, maxNameChars),
          duration_ms: Math.round(durationMs * 1_000) / 1_000,
          ...(error === undefined ? {} : { error: shownError(error) }),
        })
      }
      case 'event':
        return this.#eventLine(head, entry)
    }
  }

  #eventLine(head: object, { event, cause, isHeard }: Extract<EventLogEntry, { kind: 'event' }>): string | undefined {
    const { id, type, payload } = event
    const level = Object.hasOwn(this.#levels, type) ? this.#levels[type] : this.#level
    if (level === 'off' || level === 'run') return undefined
    const line = (shown: unknown): string => {
      const record: Record<string, unknown> = { ...head, id, type: clip(type, maxNameChars), payload: shown }
      if (cause !== undefined) record['cause'] = { event: cause.eventId, action: clip(cause.action, maxNameChars) }
      // An output is for those outside.
      if (isHeard === false && type !== OutputEvent.type) record['unheard'] = true
      return toLine(record)
    }
    const whole = level === 'full' ? line(shorten(payload, wholePayload)) : undefined
    return whole !== undefined && whole.length <= maxLineChars ? whole : line(shorten(payload, this.#cut))
  }
}

let [lastMs, lastText] = [0, '']

/** Many entries fall into one millisecond. */
function now(): string {
  const ms = Date.now()
  if (ms !== lastMs) [lastMs, lastText] = [ms, new Date(ms).toISOString()]
  return lastText
}

function toLine(record: object): string {
  return `${JSON.stringify(record)}\n`
}

function shownError(error: ConvokeError): { code: string; message: string; cause?: string } {
  const { code, message } = error
  const cause = safeText(reasonsOf(error), defaultPayloadChars)
  return { code, message: safeText(message, defaultPayloadChars), ...(cause === '' ? {} : { cause }) }
}
