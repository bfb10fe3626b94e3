/** Tasks in plain Maps, gone with the process: for throw-away nodes, tests and benchmarks. */
import { ConvokeError } from '../base/errors.ts'
import { isTerminal } from '../protocol/a2a.ts'
import { createMemoryAgentStore, type MemoryAgentStore } from './agent-memory.ts'
import type { StoreOptions } from './open.ts'
import type {
  Change,
  EventRecord,
  Expected,
  ListPage,
  ListQuery,
  NewTask,
  PushRow,
  StatusChange,
  Store,
  TaskRow,
} from './store.ts'
import { assertDense, isFinal } from './store.ts'

const defaultMaxBytes = 64 * 1024 * 1024

// What the objects around the texts weigh, measured with 1,000,000 small tasks on Node 20 and rounded up.
const bytesPerTask = 768

/** Texts of a row that stand in front of the events in a packed task. */
const rowTexts = 6

interface Entry {
  /** Replaced, never changed: whoever was handed one keeps a snapshot. Without its texts once they are packed. */
  row: TaskRow
  /** Event `seq` stands at `seq - 1`. Empty once they are packed. */
  events: EventRecord[]
  /**
   * All texts of a finished task as one, a line each. A collection copies what lives through it piece by piece: a
   * hundred strings and ropes a task cost more there than the call that made them.
   */
  packed: string | undefined
  pushes: Map<string, PushRow> | undefined
  /** What it counts for once it is finished. */
  bytes: number
  readonly owner: Owner
  /** Its neighbours in the owner's list. */
  newer: Entry | undefined
  older: Entry | undefined
}

interface Owner {
  readonly byMessage: Map<string, Entry>
  /** Head of the list: by `statusAt` descending, equal ones in any order. Without `MESSAGE` rows. */
  newest: Entry | undefined
  listed: number
}

/**
 * Opens an empty store. Running tasks stay until they finish; finished ones are dropped, first finished
 * first, once they take more than `maxBytes`: two bytes for each character of their texts and a little
 * for what holds them. The one that finished last always stays, so that its caller can read it. What agents keep
 * has `maxBytes` of its own.
 * Rows and events are handed out as they are kept and are never changed afterwards; do not change them either.
 */
export function openMemoryStore(options: StoreOptions): Store {
  return new MemoryStore(options.maxBytes ?? defaultMaxBytes)
}

class MemoryStore implements Store {
  readonly kind = 'memory'
  readonly agents: MemoryAgentStore
  readonly #maxBytes: number
  readonly #tasks = new Map<string, Entry>()
  readonly #owners = new Map<string, Owner>()
  /** Tasks that a worker holds. */
  readonly #held = new Set<Entry>()
  /** Tasks with webhooks. */
  readonly #hooked = new Set<Entry>()
  /**
   * Finished tasks in the order in which they finished. A dropped one leaves a hole, everything before
   * `#head` is holes. (A Map asked for its first key walks over all keys deleted before it: 58 µs at 200,000.)
   */
  #finished: (Entry | undefined)[] = []
  #head = 0
  #finishedCount = 0
  #finishedBytes = 0
  #closed = false

  constructor(maxBytes: number) {
    this.#maxBytes = maxBytes
    this.agents = createMemoryAgentStore({ maxBytes })
  }

  async create(
    task: NewTask,
    change: Change & { status: StatusChange; history: string },
  ): Promise<{ created: boolean; row: TaskRow }> {
    this.#assertOpen()
    let owner = this.#owners.get(task.owner)
    const known = owner?.byMessage.get(task.messageId)
    if (known) return { created: false, row: wholeRow(known) }
    if (this.#tasks.has(task.id))
      throw new ConvokeError('conflict', `There is a task with the id "${task.id}" already.`)
    assertDense(change, 0)

    if (!owner) this.#owners.set(task.owner, (owner = { byMessage: new Map(), newest: undefined, listed: 0 }))
    const { status } = change
    const free = change.release === true || isFinal(status.state)
    const row: TaskRow = {
      id: task.id,
      owner: task.owner,
      contextId: task.contextId,
      messageId: task.messageId,
      state: status.state,
      status: status.text,
      statusAt: status.at,
      history: change.history,
      metadata: task.metadata,
      request: task.request,
      reply: change.reply ?? null,
      rev: 1,
      epoch: 1,
      lastSeq: change.events?.length ?? 0,
      worker: free ? null : task.worker,
      leaseUntil: free ? 0 : task.leaseUntil,
      cancelRequested: false,
      repeatable: task.repeatable,
      artifacts: null,
      createdAt: status.at,
    }
    const entry: Entry = {
      row,
      events: [],
      packed: undefined,
      pushes: undefined,
      bytes: 0,
      owner,
      newer: undefined,
      older: undefined,
    }
    this.#tasks.set(row.id, entry)
    owner.byMessage.set(row.messageId, entry)
    if (row.worker !== null) this.#held.add(entry)
    this.#written(entry, change)
    return { created: true, row }
  }

  async commit(id: string, expected: Expected, change: Change): Promise<void> {
    this.#assertOpen()
    const entry = this.#tasks.get(id)
    if (!entry) throw new ConvokeError('conflict', `There is no task "${id}" any more.`)
    const { row } = entry
    if (row.rev !== expected.rev || row.epoch !== expected.epoch || isFinal(row.state)) {
      throw new ConvokeError('conflict', `The task "${id}" moved on under its writer.`)
    }
    assertDense(change, row.lastSeq)

    const { status, events } = change
    const free = change.release === true || (status !== undefined && isFinal(status.state))
    if (free && row.worker !== null) this.#held.delete(entry)
    const next = copyOf(row)
    next.rev++
    if (events) next.lastSeq += events.length
    if (change.history !== undefined) next.history = change.history
    if (change.reply !== undefined) next.reply = change.reply
    if (status) {
      next.state = status.state
      next.status = status.text
      next.statusAt = status.at
    }
    if (free) {
      next.worker = null
      next.leaseUntil = 0
    }
    entry.row = next
    this.#written(entry, change)
  }

  async load(id: string, owner?: string): Promise<TaskRow | undefined> {
    this.#assertOpen()
    const entry = this.#tasks.get(id)
    if (entry === undefined || (owner !== undefined && entry.row.owner !== owner)) return undefined
    return wholeRow(entry)
  }

  async loadByMessage(owner: string, messageId: string): Promise<TaskRow | undefined> {
    this.#assertOpen()
    const entry = this.#owners.get(owner)?.byMessage.get(messageId)
    return entry === undefined ? undefined : wholeRow(entry)
  }

  async read(id: string, after: number, maxBytes: number): Promise<EventRecord[]> {
    this.#assertOpen()
    const entry = this.#tasks.get(id)
    const events = entry === undefined ? [] : allEvents(entry)
    const start = Math.max(0, after)
    let end = start
    for (let bytes = 0; end < events.length; end++) {
      bytes += events[end]?.text.length ?? 0
      if (bytes > maxBytes && end > start) break
    }
    return events.slice(start, end)
  }

  async list(query: ListQuery): Promise<ListPage> {
    this.#assertOpen()
    const { contextId, state, statusFrom, limit, after } = query
    const owner = this.#owners.get(query.owner)
    const filtered = contextId !== undefined || state !== undefined || statusFrom !== undefined
    const page: Entry[] = []
    let matching = 0
    let full = false
    for (let entry = owner?.newest; entry; entry = entry.older) {
      const { row } = entry
      if (statusFrom !== undefined && row.statusAt < statusFrom) break
      if (contextId !== undefined && row.contextId !== contextId) continue
      if (state !== undefined && row.state !== state) continue
      matching++
      if (after && (row.statusAt > after.statusAt || (row.statusAt === after.statusAt && row.id >= after.id))) continue
      // Equal times stand in any order: a page is full only when the time of its last row has passed.
      full ||= page.length >= limit && row.statusAt !== page.at(-1)?.row.statusAt
      if (!full) page.push(entry)
      else if (!filtered) break
    }
    page.sort((a, b) => newestFirst(a.row, b.row))
    return { rows: page.slice(0, limit).map(wholeRow), total: filtered ? matching : (owner?.listed ?? 0) }
  }

  async requestCancel(id: string): Promise<void> {
    this.#assertOpen()
    const entry = this.#tasks.get(id)
    if (!entry || isFinal(entry.row.state)) return
    const next = copyOf(entry.row)
    next.cancelRequested = true
    entry.row = next
  }

  async claim(worker: string, options: { now: number; leaseMs: number; limit: number }): Promise<TaskRow[]> {
    this.#assertOpen()
    return [...this.#held]
      .filter((entry) => entry.row.leaseUntil < options.now)
      .sort((a, b) => a.row.leaseUntil - b.row.leaseUntil)
      .slice(0, options.limit)
      .map((entry) => this.#hand(entry, worker, options))
  }

  async acquire(id: string, worker: string, options: { now: number; leaseMs: number }): Promise<TaskRow | undefined> {
    this.#assertOpen()
    const entry = this.#tasks.get(id)
    if (!entry || isFinal(entry.row.state)) return undefined
    if (entry.row.worker !== null && entry.row.leaseUntil >= options.now) return undefined
    return this.#hand(entry, worker, options)
  }

  async heartbeat(worker: string, options: { now: number; leaseMs: number }): Promise<string[]> {
    this.#assertOpen()
    const canceled: string[] = []
    for (const entry of this.#held) {
      if (entry.row.worker !== worker) continue
      const next = copyOf(entry.row)
      next.leaseUntil = options.now + options.leaseMs
      entry.row = next
      if (next.cancelRequested) canceled.push(next.id)
    }
    return canceled
  }

  async putPush(row: PushRow): Promise<void> {
    this.#assertOpen()
    const entry = this.#tasks.get(row.taskId)
    if (!entry) throw new ConvokeError('task_not_found', `There is no task "${row.taskId}".`)
    entry.pushes ??= new Map()
    entry.pushes.set(row.id, { ...row })
    this.#hooked.add(entry)
  }

  async getPush(taskId: string, id: string): Promise<PushRow | undefined> {
    this.#assertOpen()
    return this.#tasks.get(taskId)?.pushes?.get(id)
  }

  async listPush(taskId: string): Promise<PushRow[]> {
    this.#assertOpen()
    return [...(this.#tasks.get(taskId)?.pushes?.values() ?? [])].sort((a, b) => (a.id < b.id ? -1 : 1))
  }

  async deletePush(taskId: string, id: string): Promise<void> {
    this.#assertOpen()
    const entry = this.#tasks.get(taskId)
    if (entry?.pushes?.delete(id) && entry.pushes.size === 0) this.#hooked.delete(entry)
  }

  async claimPushes(options: { now: number; leaseMs: number; limit: number }): Promise<PushRow[]> {
    this.#assertOpen()
    return [...this.#unserved()]
      .filter((push) => push.nextAt <= options.now)
      .sort((a, b) => a.nextAt - b.nextAt)
      .slice(0, options.limit)
      .map((push) => this.#setPush({ ...push, nextAt: options.now + options.leaseMs }))
  }

  async advancePush(
    taskId: string,
    id: string,
    change: Pick<PushRow, 'cursor' | 'attempts' | 'nextAt' | 'failed'>,
  ): Promise<void> {
    this.#assertOpen()
    const push = this.#tasks.get(taskId)?.pushes?.get(id)
    if (push) this.#setPush({ ...push, ...change })
  }

  async nextPushAt(): Promise<number | undefined> {
    this.#assertOpen()
    let next: number | undefined
    for (const push of this.#unserved()) if (next === undefined || push.nextAt < next) next = push.nextAt
    return next
  }

  async compactable(before: number, limit: number): Promise<string[]> {
    this.#assertOpen()
    const ids: string[] = []
    for (let i = this.#head; i < this.#finished.length && ids.length < limit; i++) {
      const entry = this.#finished[i]
      if (!entry || entry.row.statusAt >= before || !isTerminal(entry.row.state)) continue
      if (entry.row.lastSeq === 0 || entry.row.artifacts !== null) continue
      if (!hasUnserved(entry)) ids.push(entry.row.id)
    }
    return ids
  }

  async compact(id: string, artifacts: string): Promise<void> {
    this.#assertOpen()
    const entry = this.#tasks.get(id)
    if (!entry || !isTerminal(entry.row.state)) return
    const next = copyOf(wholeRow(entry))
    next.artifacts = artifacts
    entry.row = next
    entry.events = []
    this.#finishedBytes -= entry.bytes
    pack(entry)
    this.#finishedBytes += entry.bytes
  }

  async expire(before: number, limit: number): Promise<number> {
    this.#assertOpen()
    let expired = 0
    for (let i = this.#head; i < this.#finished.length && expired < limit; i++) {
      const entry = this.#finished[i]
      if (!entry || entry.row.statusAt >= before) continue
      this.#drop(i, entry)
      expired++
    }
    this.#closeHoles()
    return expired
  }

  watch(): () => void {
    return () => {}
  }

  async check(): Promise<void> {
    this.#assertOpen()
  }

  async close(): Promise<void> {
    this.#closed = true
    this.agents.close()
    this.#tasks.clear()
    this.#owners.clear()
    this.#held.clear()
    this.#hooked.clear()
    this.#finished = []
  }

  #assertOpen(): void {
    if (this.#closed) throw new ConvokeError('unavailable', 'The store is closed.')
  }

  /** What create and commit have in common once the row is in place. */
  #written(entry: Entry, change: Change): void {
    for (const event of change.events ?? []) entry.events.push(event)
    if (!change.status) return
    unlink(entry)
    link(entry)
    if (isFinal(entry.row.state)) this.#finish(entry)
  }

  #hand(entry: Entry, worker: string, options: { now: number; leaseMs: number }): TaskRow {
    const next = copyOf(entry.row)
    next.worker = worker
    next.leaseUntil = options.now + options.leaseMs
    next.epoch++
    entry.row = next
    this.#held.add(entry)
    return next
  }

  #setPush(push: PushRow): PushRow {
    this.#tasks.get(push.taskId)?.pushes?.set(push.id, push)
    return push
  }

  *#unserved(): Iterable<PushRow> {
    for (const { pushes, row } of this.#hooked) {
      for (const push of pushes?.values() ?? []) if (isUnserved(push, row)) yield push
    }
  }

  #finish(entry: Entry): void {
    pack(entry)
    this.#finishedBytes += entry.bytes
    this.#finished.push(entry)
    this.#finishedCount++
    while (this.#finishedBytes > this.#maxBytes && this.#finishedCount > 1) {
      const oldest = this.#finished[this.#head]
      if (oldest) this.#drop(this.#head, oldest)
      this.#head++
    }
    this.#closeHoles()
  }

  #drop(index: number, entry: Entry): void {
    this.#finished[index] = undefined
    this.#finishedCount--
    this.#finishedBytes -= entry.bytes
    const { row, owner } = entry
    this.#tasks.delete(row.id)
    this.#hooked.delete(entry)
    unlink(entry)
    owner.byMessage.delete(row.messageId)
    if (owner.byMessage.size === 0) this.#owners.delete(row.owner)
  }

  /** Copies the array only when more than half of it is holes, so each drop pays for one step of a copy. */
  #closeHoles(): void {
    if (this.#finished.length < 2 * this.#finishedCount + 1024) return
    this.#finished = this.#finished.filter((entry) => entry !== undefined)
    this.#head = 0
  }
}

/** To write the next version on. Field by field because `{ ...row }` takes 315 ns for so many, this 20. */
function copyOf(row: TaskRow): { -readonly [Key in keyof TaskRow]: TaskRow[Key] } {
  return {
    id: row.id,
    owner: row.owner,
    contextId: row.contextId,
    messageId: row.messageId,
    state: row.state,
    status: row.status,
    statusAt: row.statusAt,
    history: row.history,
    metadata: row.metadata,
    request: row.request,
    reply: row.reply,
    rev: row.rev,
    epoch: row.epoch,
    lastSeq: row.lastSeq,
    worker: row.worker,
    leaseUntil: row.leaseUntil,
    cancelRequested: row.cancelRequested,
    repeatable: row.repeatable,
    artifacts: row.artifacts,
    createdAt: row.createdAt,
  }
}

/** Makes one text of all that a finished task holds, and weighs it. */
function pack(entry: Entry): void {
  const { row, events } = entry
  let text = `${row.status}\n${row.history}\n${row.metadata ?? ''}\n${row.request}\n${row.reply ?? ''}\n${row.artifacts ?? ''}`
  for (const event of events) text += `\n${event.text}`
  // Reading a character makes V8 copy the pieces into one flat string and let go of them.
  text.charCodeAt(0)
  entry.packed = text
  entry.bytes = 2 * text.length + bytesPerTask
  entry.events = noEvents
  const slim = copyOf(row)
  slim.status = slim.history = slim.request = ''
  slim.metadata = row.metadata === null ? null : ''
  slim.reply = row.reply === null ? null : ''
  slim.artifacts = row.artifacts === null ? null : ''
  entry.row = slim
}

/** A finished task gets no more events, so one empty list does for all. */
const noEvents: EventRecord[] = []

function wholeRow({ row, packed }: Entry): TaskRow {
  if (packed === undefined) return row
  const [status = '', history = '', metadata = '', request = '', reply = '', artifacts = ''] = packed.split(
    '\n',
    rowTexts,
  )
  const whole = copyOf(row)
  whole.status = status
  whole.history = history
  whole.request = request
  if (row.metadata !== null) whole.metadata = metadata
  if (row.reply !== null) whole.reply = reply
  if (row.artifacts !== null) whole.artifacts = artifacts
  return whole
}

function allEvents({ events, packed }: Entry): EventRecord[] {
  if (packed === undefined) return events
  return packed
    .split('\n')
    .slice(rowTexts)
    .map((text, index) => ({ seq: index + 1, text }))
}

function newestFirst(a: TaskRow, b: TaskRow): number {
  return b.statusAt - a.statusAt || (a.id < b.id ? 1 : -1)
}

/** Puts the entry where its time belongs; clocks run forward, so this is nearly always the head. */
function link(entry: Entry): void {
  const { owner, row } = entry
  if (row.state === 'MESSAGE') return
  let newer: Entry | undefined
  let older = owner.newest
  while (older && older.row.statusAt > row.statusAt) {
    newer = older
    older = older.older
  }
  entry.newer = newer
  entry.older = older
  if (older) older.newer = entry
  if (newer) newer.older = entry
  else owner.newest = entry
  owner.listed++
}

/** Nothing happens when it is not in the list. */
function unlink(entry: Entry): void {
  const { owner, newer, older } = entry
  if (!newer && owner.newest !== entry) return
  if (newer) newer.older = older
  else owner.newest = older
  if (older) older.newer = newer
  entry.newer = entry.older = undefined
  owner.listed--
}

function isUnserved(push: PushRow, row: TaskRow): boolean {
  return !push.failed && push.cursor < row.lastSeq
}

function hasUnserved({ pushes, row }: Entry): boolean {
  for (const push of pushes?.values() ?? []) if (isUnserved(push, row)) return true
  return false
}
