/** What is remembered of the tools of others: how a look at a tool changes it, and what a file of it must look like. */
import { isObject, type Json } from '../base/json.ts'
import type { JsonSchema } from './tool.ts'

/** What a tool said of itself, as far as whoever calls it relies on it. */
export interface Snapshot {
  /** SHA-256 in hex of the canonical JSON of the rest. */
  readonly hash: string
  readonly description: string
  readonly input: JsonSchema
  readonly output?: JsonSchema
  readonly annotations: SnapshotAnnotations
}

/** The tool policy may decide by these. */
export interface SnapshotAnnotations {
  readonly readOnly: boolean
  readonly idempotent: boolean
  /** The category and the tags, sorted. */
  readonly tags: readonly string[]
}

/** All times in milliseconds since 1970. */
export interface PinRecord extends Snapshot {
  readonly firstSeen: number
  /** To the hour. */
  readonly lastSeen: number
  /** What the tool says now, held back until somebody approves. */
  readonly pending?: Snapshot & { readonly seenAt: number }
  /** What was pinned before the last change that was taken or approved, and when that was. */
  readonly previous?: Snapshot & { readonly until: number }
}

/** One look at a tool. */
export interface Sighting {
  readonly handle: string
  readonly snapshot: Snapshot
  readonly at: number
  /** Whether a change is taken as it comes. */
  readonly trusted: boolean
}

/** What a look came to. `full`: there is no room for one more tool of its service. */
export type Outcome = 'new' | 'same' | 'changed' | 'quarantined' | 'full'

/** How long a tool that nobody sees any more keeps its place when its service has no room left, in milliseconds. */
const keptUnseenMs = 30 * 24 * 60 * 60 * 1000

/** The records by handle. The limit holds for each service, so that none can push out what is known of another. */
export class PinRecords {
  readonly byHandle: Map<string, PinRecord>
  /** How often a record was replaced or taken out. New ones change nothing for the others. */
  changes = 0
  readonly #maxPerService: number
  readonly #counts = new Map<string, number>()
  /** Services without room, and when the first of their tools may go. */
  readonly #fullUntil = new Map<string, number>()

  constructor(byHandle: Map<string, PinRecord>, maxPerService: number) {
    this.byHandle = byHandle
    this.#maxPerService = maxPerService
    for (const handle of byHandle.keys()) this.#count(handle, 1)
  }

  see({ handle, snapshot, at, trusted }: Sighting): Outcome {
    const record = this.byHandle.get(handle)
    if (record === undefined) {
      if (!this.#hasRoom(serviceOf(handle), at)) return 'full'
      this.byHandle.set(handle, { ...snapshot, firstSeen: at, lastSeen: at })
      this.#count(handle, 1)
      return 'new'
    }
    this.changes++
    const lastSeen = Math.max(record.lastSeen, at)
    if (record.hash === snapshot.hash) {
      const { pending, ...rest } = record
      // Another process may have seen the change after this look.
      const isOver = pending !== undefined && pending.seenAt <= at
      this.byHandle.set(handle, { ...(isOver ? rest : record), lastSeen })
      return 'same'
    }
    if (trusted) {
      this.byHandle.set(handle, accept(record, snapshot, at))
      return 'changed'
    }
    const pending = record.pending?.hash === snapshot.hash ? record.pending : { ...snapshot, seenAt: at }
    this.byHandle.set(handle, { ...record, lastSeen, pending })
    return 'quarantined'
  }

  /** Pins what is held back. Returns whether anything was. */
  approve(handle: string, at: number): boolean {
    const record = this.byHandle.get(handle)
    if (record?.pending === undefined) return false
    const { seenAt: _, ...snapshot } = record.pending
    this.changes++
    this.byHandle.set(handle, accept(record, snapshot, at))
    return true
  }

  forget(handle: string): boolean {
    const found = this.byHandle.delete(handle)
    if (found) {
      this.changes++
      this.#count(handle, -1)
    }
    return found
  }

  #count(handle: string, by: number): void {
    const service = serviceOf(handle)
    this.#counts.set(service, (this.#counts.get(service) ?? 0) + by)
    if (by < 0) this.#fullUntil.delete(service)
  }

  /**
   * Makes room by dropping what was not seen for long. What was seen lately stays: otherwise a service could list many
   * tools, be asked for none of them, and have forgotten whichever it wants to change.
   */
  #hasRoom(service: string, now: number): boolean {
    if ((this.#counts.get(service) ?? 0) < this.#maxPerService) return true
    if (now < (this.#fullUntil.get(service) ?? 0)) return false
    let firstToGo = Infinity
    for (const [handle, { lastSeen }] of this.byHandle) {
      if (serviceOf(handle) !== service) continue
      if (lastSeen + keptUnseenMs <= now) this.forget(handle)
      else firstToGo = Math.min(firstToGo, lastSeen + keptUnseenMs)
    }
    if ((this.#counts.get(service) ?? 0) < this.#maxPerService) return true
    this.#fullUntil.set(service, firstToGo)
    return false
  }
}

/** What stands before the first dot of a handle. */
export function serviceOf(handle: string): string {
  return handle.slice(0, Math.max(handle.indexOf('.'), 0))
}

function accept(record: PinRecord, next: Snapshot, at: number): PinRecord {
  const { firstSeen, pending: _, previous: __, lastSeen: ___, ...before } = record
  return { ...next, firstSeen, lastSeen: Math.max(record.lastSeen, at), previous: { ...before, until: at } }
}

const version = 1

export function toText(records: ReadonlyMap<string, PinRecord>): string {
  // A tool on each line: a person may want to look, and a version control to compare.
  const lines = [...records]
    .sort(([a], [b]) => (a < b ? -1 : 1))
    .map(([handle, record]) => `${JSON.stringify(handle)}: ${JSON.stringify(record)}`)
  return `{"version": ${version}, "tools": {\n${lines.join(',\n')}\n}}\n`
}

/** The records in a text; throws an Error that says in half a sentence what is wrong. */
export function fromText(text: string): Map<string, PinRecord> {
  let value: unknown
  try {
    value = JSON.parse(text)
  } catch {
    throw new Error(text === '' ? 'it is empty' : 'it is not JSON')
  }
  if (!isObject(value) || !isObject(value['tools'])) throw new Error('it has no tools in it')
  if (value['version'] !== version) {
    throw new Error(`it is of version ${JSON.stringify(value['version'])}, and only ${version} is known here`)
  }
  const entries = Object.entries(value['tools'])
  const wrong = entries.find(([, record]) => !isRecord(record))
  if (wrong !== undefined) throw new Error(`what it holds of ${JSON.stringify(wrong[0])} is incomplete`)
  return new Map(entries as [string, PinRecord][])
}

function isRecord(value: unknown): boolean {
  if (!isSnapshot(value) || !isTime(value['firstSeen']) || !isTime(value['lastSeen'])) return false
  const { pending, previous } = value
  if (pending !== undefined && !(isSnapshot(pending) && isTime(pending['seenAt']))) return false
  return previous === undefined || (isSnapshot(previous) && isTime(previous['until']))
}

function isSnapshot(value: unknown): value is Record<string, Json> {
  if (!isObject(value)) return false
  const { hash, description, input, output, annotations } = value
  if (typeof hash !== 'string' || !/^[0-9a-f]{64}$/.test(hash) || typeof description !== 'string') return false
  if (!isObject(input) || (output !== undefined && !isObject(output)) || !isObject(annotations)) return false
  const { readOnly, idempotent, tags } = annotations
  return typeof readOnly === 'boolean' && typeof idempotent === 'boolean' && Array.isArray(tags)
}

function isTime(value: unknown): boolean {
  return typeof value === 'number' && Number.isFinite(value)
}
