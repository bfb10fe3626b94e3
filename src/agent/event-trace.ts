/** Out of an event log, what came of what: the lineage of each run. */
import { createReadStream } from 'node:fs'
import { access } from 'node:fs/promises'
import { isObject } from '../base/json.ts'

export interface TraceError {
  readonly code: string
  readonly message: string
  /** What lies beneath it. */
  readonly cause?: string
}

/** A line of the log, as `event-log.ts` describes it. */
export type TraceRecord = { readonly at: string; readonly run: string; readonly key: string } & (
  | { readonly kind: 'run'; readonly phase: 'begun' | 'resumed' | 'ended' | 'failed'; readonly error?: TraceError }
  | {
      readonly kind: 'event'
      readonly id: string
      readonly type: string
      readonly payload: unknown
      readonly cause?: { readonly event: string; readonly action: string }
      readonly unheard?: boolean
    }
  | {
      readonly kind: 'action'
      readonly cause: { readonly event: string }
      readonly action: string
      readonly duration_ms?: number
      readonly error?: TraceError
    }
)

export interface TraceFilter {
  /** Only the run of this id. */
  readonly run?: string
  /** Only the runs of this key; of a node's agent, the id of the conversation will do. */
  readonly key?: string
}

export interface TraceFile {
  readonly records: readonly TraceRecord[]
  /** How many records there are, with those that the filter has left out. */
  readonly total: number
  /** The last {@link maxKeys} of all keys, the newest first. */
  readonly keys: readonly string[]
  /** How many lines were skipped, since they are none of a log. */
  readonly broken: number
  /** How many lines the log could not write. */
  readonly dropped: number
  /** The last line is half there: somebody is writing it, or died while doing so. */
  readonly isCut: boolean
}

const maxKeys = 5

/** Longer ones are none of ours. */
const maxLineChars = 4 * 1_048_576

/**
 * Reads a log, behind the older `FILE.1` if there is one. Takes memory for the records that the filter lets through. Throws the
 * system's error when the file cannot be read.
 */
export async function readTrace(file: string, filter: TraceFilter = {}): Promise<TraceFile> {
  const records: TraceRecord[] = []
  let [total, broken, dropped, isCut] = [0, 0, 0, false]
  const keys = new Set<string>()
  const older = `${file}.1`
  const hasOlder = await access(older).then(
    () => true,
    () => false,
  )
  for (const each of hasOlder ? [older, file] : [file]) {
    for await (const { text, isEnded } of linesOf(each)) {
      if (text === '') continue
      const found = text === undefined ? undefined : parseRecord(text)
      if (found === undefined) {
        if (isEnded) broken++
        else isCut = true
      } else if (found.kind === 'dropped') {
        dropped += found.dropped
      } else if (found.kind !== 'unknown') {
        total++
        note(keys, found.key)
        if (fits(found, filter)) records.push(found)
      }
    }
  }
  return { records, total, keys: [...keys].toReversed(), broken, dropped, isCut }
}

function note(keys: Set<string>, key: string): void {
  keys.delete(key)
  keys.add(key)
  for (const oldest of keys) if (keys.size > maxKeys) keys.delete(oldest)
}

/** The text is undefined where it is too long to be kept. */
async function* linesOf(file: string): AsyncGenerator<{ text: string | undefined; isEnded: boolean }> {
  let parts: string[] = []
  let length = 0
  const take = (isEnded: boolean) => {
    const line = { text: length > maxLineChars ? undefined : parts.join(''), isEnded }
    parts = []
    length = 0
    return line
  }
  const add = (part: string): void => {
    length += part.length
    if (length > maxLineChars) parts = []
    else parts.push(part)
  }
  for await (const chunk of createReadStream(file, 'utf8') as AsyncIterable<string>) {
    const pieces = chunk.split('\n')
    for (const [i, piece] of pieces.entries()) {
      add(piece)
      if (i < pieces.length - 1) yield take(true)
    }
  }
  if (length > 0) yield take(false)
}

/** Undefined for what is no line of a log; `unknown` for a kind that a later version may have. */
function parseRecord(
  text: string,
): TraceRecord | { readonly kind: 'dropped'; readonly dropped: number } | { readonly kind: 'unknown' } | undefined {
  let value: unknown
  try {
    value = JSON.parse(text)
  } catch {
    return undefined
  }
  if (!isObject(value) || typeof value['kind'] !== 'string' || !isTime(value['at'])) return undefined
  const { kind, dropped, run, key } = value
  if (kind === 'dropped') return typeof dropped === 'number' ? { kind, dropped } : undefined
  if (!isKnown(kind)) return { kind: 'unknown' }
  if (typeof run !== 'string' || typeof key !== 'string' || !isComplete[kind](value)) return undefined
  return value as TraceRecord
}

function isTime(value: unknown): boolean {
  return typeof value === 'string' && !Number.isNaN(Date.parse(value))
}

function isKnown(kind: string): kind is TraceRecord['kind'] {
  return Object.hasOwn(isComplete, kind)
}

const phases: readonly unknown[] = ['begun', 'resumed', 'ended', 'failed']

const isComplete: Readonly<Record<TraceRecord['kind'], (record: Record<string, unknown>) => boolean>> = {
  run: ({ phase, error }) => phases.includes(phase) && isError(error),
  event: ({ id, type, cause, unheard }) =>
    typeof id === 'string' &&
    typeof type === 'string' &&
    (unheard === undefined || typeof unheard === 'boolean') &&
    (cause === undefined || (hasEvent(cause) && typeof cause['action'] === 'string')),
  action: ({ action, cause, duration_ms: ms, error }) =>
    typeof action === 'string' && hasEvent(cause) && (ms === undefined || typeof ms === 'number') && isError(error),
}

function hasEvent(cause: unknown): cause is Record<string, unknown> {
  return isObject(cause) && typeof cause['event'] === 'string'
}

function isError(error: unknown): boolean {
  return (
    error === undefined ||
    (isObject(error) &&
      typeof error['code'] === 'string' &&
      typeof error['message'] === 'string' &&
      (error['cause'] === undefined || typeof error['cause'] === 'string'))
  )
}

function fits(record: TraceRecord, { run, key }: TraceFilter): boolean {
  return (run === undefined || record.run === run) && (key === undefined || isOfKey(record, key))
}

/** A node's agent has a key for each conversation, `["owner","contextId"]`, and whoever looks for one knows the second. */
function isOfKey(record: TraceRecord, key: string): boolean {
  return record.key === key || (record.key.startsWith('["') && record.key.endsWith(`",${JSON.stringify(key)}]`))
}

/** An event, and what came of it. */
export interface TraceEvent {
  readonly id: string
  /** Undefined for an event that is not in the log itself, only what came of it. */
  readonly type: string | undefined
  readonly payload: unknown
  readonly at: string | undefined
  /** No action of the agent hears it. */
  readonly isUnheard: boolean
  /** What heard it, in the order in which the log tells of it. */
  readonly actions: readonly TraceAction[]
}

export interface TraceAction {
  readonly action: string
  /** Undefined while it goes on, or where the log says nothing of its end. */
  readonly durationMs: number | undefined
  readonly error: TraceError | undefined
  /** What it said. */
  readonly events: readonly TraceEvent[]
}

/** One attempt at a run. */
export interface Trace {
  readonly run: string
  readonly key: string
  /** 1, and one more each time that it was resumed. */
  readonly attempt: number
  /** `lost`: the process died, and the next attempt began. */
  readonly state: 'running' | 'ended' | 'failed' | 'lost'
  /** When the log first tells of it. */
  readonly at: string
  /** Until it ended or failed. */
  readonly durationMs: number | undefined
  readonly error: TraceError | undefined
  /** The input; beside it, events whose cause is not in the log. */
  readonly roots: readonly TraceEvent[]
}

type Writable<T> = { -readonly [Key in keyof T]: T[Key] }
type OpenEvent = Omit<Writable<TraceEvent>, 'actions'> & { readonly actions: OpenAction[] }
type OpenAction = Omit<Writable<TraceAction>, 'events'> & { readonly events: OpenEvent[] }
type OpenTrace = Omit<Writable<Trace>, 'roots'> & { readonly roots: OpenEvent[] }

/** The attempts at runs, in the order in which they began. */
export function toTree(records: Iterable<TraceRecord>, filter: TraceFilter = {}): readonly Trace[] {
  const traces: OpenTrace[] = []
  const growing = new Map<string, Growth>()
  for (const record of records) {
    if (!fits(record, filter)) continue
    const name = JSON.stringify([record.key, record.run])
    let growth = growing.get(name)
    const isResumed = record.kind === 'run' && record.phase === 'resumed'
    if (growth === undefined || isResumed) {
      if (growth?.trace.state === 'running') growth.trace.state = 'lost'
      growth = new Growth(record, (growth?.trace.attempt ?? 0) + 1)
      growing.set(name, growth)
      traces.push(growth.trace)
    }
    growth.add(record)
  }
  return traces
}

/** A tree that grows by one record after the other. */
class Growth {
  readonly trace: OpenTrace
  readonly #events = new Map<string, OpenEvent>()

  constructor({ run, key, at }: TraceRecord, attempt: number) {
    this.trace = { run, key, attempt, state: 'running', at, durationMs: undefined, error: undefined, roots: [] }
  }

  add(record: TraceRecord): void {
    switch (record.kind) {
      case 'run':
        if (record.phase === 'ended' || record.phase === 'failed') {
          this.trace.state = record.phase
          this.trace.durationMs = Date.parse(record.at) - Date.parse(this.trace.at)
          this.trace.error = record.error
        }
        return
      case 'action': {
        const action = this.#action(record.cause.event, record.action)
        action.durationMs = record.duration_ms
        action.error = record.error
        return
      }
      case 'event': {
        const { id, type, payload, at, cause, unheard: isUnheard = false } = record
        const known = this.#events.get(id)
        if (known !== undefined) {
          // It stays where it is: moved below its cause, it might come to stand below itself.
          if (known.type === undefined) Object.assign(known, { type, payload, at, isUnheard })
          return
        }
        const event: OpenEvent = { id, type, payload, at, isUnheard, actions: [] }
        const isRoot = cause === undefined || cause.event === id
        const among = isRoot ? this.trace.roots : this.#action(cause.event, cause.action).events
        this.#events.set(id, event)
        among.push(event)
      }
    }
  }

  #action(eventId: string, name: string): OpenAction {
    let event = this.#events.get(eventId)
    if (event === undefined) {
      event = { id: eventId, type: undefined, payload: undefined, at: undefined, isUnheard: false, actions: [] }
      this.#events.set(eventId, event)
      this.trace.roots.push(event)
    }
    let action = event.actions.find((each) => each.action === name)
    if (action === undefined) {
      action = { action: name, durationMs: undefined, error: undefined, events: [] }
      event.actions.push(action)
    }
    return action
  }
}
