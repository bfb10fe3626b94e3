/** The agents' part of a store in plain Maps, gone with the process. */
import { ConvokeError } from '../base/errors.ts'
import type { AgentStore, Consumption, KeyLease, Mail, MailResult, OutputRow, StepRecord } from './agent-store.ts'
import { assertName, leaseLost, notFirst } from './agent-store.ts'

const defaultMaxBytes = 64 * 1024 * 1024

// What the objects around the texts weigh, measured with 300,000 small ones on Node 20 and rounded up.
const bytesPerMail = 224
const bytesPerStep = 192
const bytesPerResult = 192
const bytesPerOutput = 128
const bytesPerKey = 512

/** In at most one {@link Line} at a time. */
interface Linked<Item> {
  older: Item | undefined
  newer: Item | undefined
}

/** A queue that anything can leave from anywhere, in one step. (A Map asked for its first key walks over all that left before it.) */
class Line<Item extends Linked<Item>> {
  oldest: Item | undefined
  newest: Item | undefined

  push(item: Item): void {
    item.older = this.newest
    if (this.newest) this.newest.newer = item
    else this.oldest = item
    this.newest = item
  }

  remove(item: Item): void {
    if (item.older) item.older.newer = item.newer
    else this.oldest = item.newer
    if (item.newer) item.newer.older = item.older
    else this.newest = item.older
    item.older = item.newer = undefined
  }
}

interface Letter extends Linked<Letter> {
  readonly mail: Mail
}

/** A key. It stands in its scope's line while mail waits, in the line of idle keys while there is neither mail nor a lease. */
interface Entry extends Linked<Entry> {
  readonly scope: Scope
  readonly key: string
  lastSeq: number
  epoch: number
  /** Undefined while nobody holds the key. */
  worker: string | undefined
  leaseUntil: number
  state: string | null
  /** What waits. */
  readonly mailbox: Line<Letter>
  /** Every id that is taken: the seq of mail that waits, the result of mail that was consumed. */
  readonly taken: Map<string, number | Result>
  /** Of the first mail. */
  steps: Map<string, StepRecord> | undefined
  /** The latest `now` of its commits. */
  activeAt: number
}

interface Result extends Linked<Result> {
  readonly entry: Entry
  readonly id: string
  readonly seq: number
  readonly failure: string | null
  readonly consumedAt: number
  /** Of its first output; the others follow. */
  readonly place: number
  readonly outputs: number
  readonly bytes: number
}

interface Scope {
  readonly keys: Map<string, Entry>
  /** Keys with mail, those that have waited the longest first. */
  readonly waiting: Line<Entry>
  readonly held: Set<Entry>
  /** The output with place `firstPlace + n` stands at n; those that are gone leave holes, everything before `head` is holes. */
  readonly rows: (OutputRow | undefined)[]
  head: number
  firstPlace: number
}

export interface MemoryAgentStore extends AgentStore {
  /** Forgets everything; whoever calls later gets `unavailable`. */
  close(): void
}

/**
 * Makes an empty store. Everything in it counts: two bytes for each character and a little for what holds it. Once it is more
 * than `maxBytes` (default: 64 MiB), results go, those consumed first at first, then whole keys without mail and lease, with
 * their memory, those that are idle the longest first. The newest result and the newest idle key stay until mail or a step
 * needs their room. Mail that waits and keys that are held are never dropped: when they alone fill the store, `append` throws
 * `rate_limited`. Of results at most `maxResults` (default: no limit) are kept, the newest ones.
 */
export function createMemoryAgentStore(
  options: { readonly maxBytes?: number; readonly maxResults?: number } = {},
): MemoryAgentStore {
  return new InMemory(options.maxBytes ?? defaultMaxBytes, options.maxResults ?? Number.POSITIVE_INFINITY)
}

class InMemory implements MemoryAgentStore {
  readonly #maxBytes: number
  readonly #maxResults: number
  readonly #scopes = new Map<string, Scope>()
  /** In the order in which they were consumed. */
  readonly #results = new Line<Result>()
  #resultCount = 0
  readonly #idle = new Line<Entry>()
  /** Of all leases, so that a key that was forgotten and comes back goes on where it was. */
  #epoch = 0
  /** Of everything. */
  #bytes = 0
  /** Of what may be dropped: results and idle keys. */
  #looseBytes = 0
  #closed = false

  constructor(maxBytes: number, maxResults: number) {
    this.#maxBytes = maxBytes
    this.#maxResults = maxResults
  }

  async append(
    scope: string,
    key: string,
    { id, event }: { readonly id: string; readonly event: string },
  ): Promise<{ seq: number; isNew: boolean }> {
    this.#assertOpen()
    assertName('id', id)
    const known = this.#find(scope, key)
    const taken = known?.taken.get(id)
    if (taken !== undefined) return { seq: typeof taken === 'number' ? taken : taken.seq, isNew: false }

    const mail: Mail = { seq: (known?.lastSeq ?? 0) + 1, id, event }
    this.#assertRoom(bytesOfMail(mail), key, known)
    const entry = known ?? this.#add(scope, key)
    if (isIdle(entry)) this.#leaveIdle(entry)
    if (!entry.mailbox.oldest) entry.scope.waiting.push(entry)
    entry.lastSeq = mail.seq
    entry.mailbox.push({ mail, older: undefined, newer: undefined })
    entry.taken.set(id, mail.seq)
    this.#bytes += bytesOfMail(mail)
    this.#trim('nothing')
    return { seq: mail.seq, isNew: true }
  }

  async lease(
    scope: string,
    key: string,
    worker: string,
    { now, leaseMs, limit }: { readonly now: number; readonly leaseMs: number; readonly limit: number },
  ): Promise<KeyLease | undefined> {
    this.#assertOpen()
    const entry = this.#find(scope, key) ?? this.#add(scope, key)
    if (entry.worker !== undefined && entry.worker !== worker && entry.leaseUntil >= now) return undefined
    if (isIdle(entry)) this.#leaveIdle(entry)
    entry.scope.held.add(entry)
    entry.worker = worker
    entry.leaseUntil = now + leaseMs
    entry.epoch = ++this.#epoch
    const mail: Mail[] = []
    for (let letter = entry.mailbox.oldest; letter && mail.length < limit; letter = letter.newer) mail.push(letter.mail)
    return {
      scope,
      key,
      worker,
      epoch: entry.epoch,
      state: entry.state,
      mail,
      steps: entry.steps ? [...entry.steps.values()] : [],
    }
  }

  async ready(scope: string, options: { readonly now: number; readonly limit: number }): Promise<string[]> {
    this.#assertOpen()
    const keys: string[] = []
    for (let entry = this.#scopes.get(scope)?.waiting.oldest; entry; entry = entry.newer) {
      if (keys.length >= options.limit) break
      if (entry.worker === undefined || entry.leaseUntil < options.now) keys.push(entry.key)
    }
    return keys
  }

  async renew(
    scope: string,
    worker: string,
    { now, leaseMs }: { readonly now: number; readonly leaseMs: number },
  ): Promise<void> {
    this.#assertOpen()
    for (const entry of this.#scopes.get(scope)?.held ?? []) {
      if (entry.worker === worker) entry.leaseUntil = now + leaseMs
    }
  }

  async release(lease: KeyLease): Promise<void> {
    this.#assertOpen()
    const entry = this.#held(lease)
    if (!entry) return
    this.#free(entry)
    this.#trim('newest')
  }

  async saveStep(lease: KeyLease, mailId: string, step: StepRecord): Promise<void> {
    this.#assertOpen()
    assertName('id', step.id)
    const entry = this.#first(lease, mailId)
    entry.steps ??= new Map()
    const before = entry.steps.get(step.id)
    if (before) this.#bytes -= bytesOfStep(before)
    entry.steps.set(step.id, step)
    this.#bytes += bytesOfStep(step)
    this.#trim('nothing')
  }

  async commit(lease: KeyLease, change: Consumption): Promise<void> {
    this.#assertOpen()
    const entry = this.#first(lease, change.mailId)
    const seq = this.#consume(entry)
    // To the end of the line, or out of it.
    const { waiting } = entry.scope
    waiting.remove(entry)
    if (entry.mailbox.oldest) waiting.push(entry)

    if (change.state !== undefined) {
      this.#bytes += 2 * (change.state.length - (entry.state?.length ?? 0))
      entry.state = change.state
    }
    entry.activeAt = Math.max(entry.activeAt, change.now)
    this.#keep(entry, seq, change)
    this.#trim('newest')
  }

  async result(scope: string, key: string, mailId: string): Promise<MailResult | undefined> {
    this.#assertOpen()
    const entry = this.#find(scope, key)
    const result = entry?.taken.get(mailId)
    if (!entry || result === undefined || typeof result === 'number') return undefined
    const { rows, firstPlace } = entry.scope
    const outputs: string[] = []
    for (let n = 0; n < result.outputs; n++) {
      const row = rows[result.place - firstPlace + n]
      if (row) outputs.push(row.output)
    }
    return { outputs, failure: result.failure }
  }

  async state(scope: string, key: string): Promise<string | undefined> {
    this.#assertOpen()
    return this.#find(scope, key)?.state ?? undefined
  }

  async outputs(scope: string, options: { readonly after: number; readonly limit: number }): Promise<OutputRow[]> {
    this.#assertOpen()
    const found: OutputRow[] = []
    const { rows = [], head = 0, firstPlace = 1 } = this.#scopes.get(scope) ?? {}
    for (let n = Math.max(head, options.after + 1 - firstPlace); n < rows.length; n++) {
      if (found.length >= options.limit) break
      const row = rows[n]
      if (row) found.push(row)
    }
    return found
  }

  async expire(before: number, limit: number): Promise<number> {
    this.#assertOpen()
    let gone = 0
    for (let result = this.#results.oldest; result && gone < limit;) {
      const { newer, consumedAt } = result
      if (consumedAt < before) {
        this.#dropResult(result)
        gone++
      }
      result = newer
    }
    for (const { held } of this.#scopes.values()) {
      for (const entry of held) if (entry.leaseUntil < before) this.#free(entry)
    }
    for (let entry = this.#idle.oldest; entry && gone < limit;) {
      const { newer, activeAt } = entry
      if (activeAt < before) {
        this.#dropKey(entry)
        gone++
      }
      entry = newer
    }
    return gone
  }

  close(): void {
    this.#closed = true
    this.#scopes.clear()
    this.#results.oldest = this.#results.newest = undefined
    this.#idle.oldest = this.#idle.newest = undefined
  }

  #assertOpen(): void {
    if (this.#closed) throw new ConvokeError('unavailable', 'The store is closed.')
  }

  #find(scope: string, key: string): Entry | undefined {
    return this.#scopes.get(scope)?.keys.get(key)
  }

  /** A new key, which is idle. */
  #add(name: string, key: string): Entry {
    assertName('scope', name)
    assertName('key', key)
    let scope = this.#scopes.get(name)
    if (!scope) {
      scope = { keys: new Map(), waiting: new Line(), held: new Set(), rows: [], head: 0, firstPlace: 1 }
      this.#scopes.set(name, scope)
    }
    const entry: Entry = {
      scope,
      key,
      lastSeq: 0,
      epoch: 0,
      worker: undefined,
      leaseUntil: 0,
      state: null,
      mailbox: new Line(),
      taken: new Map(),
      steps: undefined,
      activeAt: 0,
      older: undefined,
      newer: undefined,
    }
    scope.keys.set(key, entry)
    this.#bytes += bytesOfKey(entry)
    this.#enterIdle(entry)
    return entry
  }

  /** The key, while the lease is the newest one and was not given back. */
  #held(lease: KeyLease): Entry | undefined {
    const entry = this.#find(lease.scope, lease.key)
    return entry?.epoch === lease.epoch && entry.worker === lease.worker ? entry : undefined
  }

  #first(lease: KeyLease, mailId: string): Entry {
    const entry = this.#held(lease)
    if (!entry) throw leaseLost(lease)
    if (entry.mailbox.oldest?.mail.id !== mailId) throw notFirst(lease, mailId)
    return entry
  }

  /** Takes the first mail out, and its steps. Returns its seq. */
  #consume(entry: Entry): number {
    for (const step of entry.steps?.values() ?? []) this.#bytes -= bytesOfStep(step)
    entry.steps = undefined
    const letter = entry.mailbox.oldest
    if (!letter) return 0
    entry.mailbox.remove(letter)
    this.#bytes -= bytesOfMail(letter.mail)
    return letter.mail.seq
  }

  #keep(entry: Entry, seq: number, { mailId, now, outputs, failure }: Consumption): void {
    const { rows, firstPlace } = entry.scope
    const place = firstPlace + rows.length
    let bytes = bytesPerResult + 2 * (mailId.length + (failure?.length ?? 0))
    for (const output of outputs) {
      rows.push({ place: firstPlace + rows.length, key: entry.key, mailId, output })
      bytes += bytesPerOutput + 2 * output.length
    }
    const result: Result = {
      entry,
      id: mailId,
      seq,
      failure,
      consumedAt: now,
      place,
      outputs: outputs.length,
      bytes,
      older: undefined,
      newer: undefined,
    }
    entry.taken.set(mailId, result)
    this.#results.push(result)
    this.#resultCount++
    this.#bytes += bytes
    this.#looseBytes += bytes
  }

  #free(entry: Entry): void {
    entry.worker = undefined
    entry.leaseUntil = 0
    entry.scope.held.delete(entry)
    if (entry.mailbox.oldest) return
    this.#enterIdle(entry)
    // It was taken without ever having had mail.
    if (entry.lastSeq === 0) this.#dropKey(entry)
  }

  #enterIdle(entry: Entry): void {
    this.#idle.push(entry)
    this.#looseBytes += bytesOfKey(entry)
  }

  #leaveIdle(entry: Entry): void {
    this.#idle.remove(entry)
    this.#looseBytes -= bytesOfKey(entry)
  }

  /** What cannot be dropped must fit, with the new mail and its key. */
  #assertRoom(ofMail: number, key: string, entry: Entry | undefined): void {
    const bytes = ofMail + (!entry ? bytesPerKey + 2 * key.length : isIdle(entry) ? bytesOfKey(entry) : 0)
    if (bytes > this.#maxBytes) {
      throw new ConvokeError(
        'too_large',
        `Mail that takes ${bytes} bytes with its key does not fit into a store of ${this.#maxBytes}.`,
      )
    }
    if (this.#bytes - this.#looseBytes + bytes <= this.#maxBytes) return
    throw new ConvokeError(
      'rate_limited',
      `The mail that waits fills the store of ${this.#maxBytes} bytes. Send more when some of it is done.`,
      { retryAfterMs: 1000 },
    )
  }

  /** For mail and steps everything may go. What a run has just left stays: its caller wants to read it. */
  #trim(spared: 'nothing' | 'newest'): void {
    while (this.#resultCount > this.#maxResults && this.#results.oldest) this.#dropResult(this.#results.oldest)
    if (this.#bytes <= this.#maxBytes) return
    const isFull = (): boolean => this.#bytes > this.#maxBytes
    const last = spared === 'newest' ? this.#results.newest : undefined
    while (isFull() && this.#results.oldest && this.#results.oldest !== last) this.#dropResult(this.#results.oldest)
    const lastIdle = spared === 'newest' ? this.#idle.newest : undefined
    for (let entry = this.#idle.oldest; entry && entry !== lastIdle && isFull();) {
      const { newer } = entry
      if (entry !== last?.entry) this.#dropKey(entry)
      entry = newer
    }
  }

  #dropResult(result: Result): void {
    this.#results.remove(result)
    this.#resultCount--
    this.#bytes -= result.bytes
    this.#looseBytes -= result.bytes
    result.entry.taken.delete(result.id)
    const { scope } = result.entry
    for (let n = 0; n < result.outputs; n++) scope.rows[result.place - scope.firstPlace + n] = undefined
    while (scope.head < scope.rows.length && scope.rows[scope.head] === undefined) scope.head++
    if (scope.head < 1024 || 2 * scope.head < scope.rows.length) return
    scope.rows.splice(0, scope.head)
    scope.firstPlace += scope.head
    scope.head = 0
  }

  /** An idle one. */
  #dropKey(entry: Entry): void {
    this.#leaveIdle(entry)
    this.#bytes -= bytesOfKey(entry)
    entry.scope.keys.delete(entry.key)
  }
}

function isIdle({ worker, mailbox }: Entry): boolean {
  return worker === undefined && !mailbox.oldest
}

function bytesOfMail({ id, event }: Mail): number {
  return bytesPerMail + 2 * (id.length + event.length)
}

function bytesOfStep({ id, value }: StepRecord): number {
  return bytesPerStep + 2 * (id.length + (value?.length ?? 0))
}

function bytesOfKey({ key, state }: Entry): number {
  return bytesPerKey + 2 * (key.length + (state?.length ?? 0))
}
