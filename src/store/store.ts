/**
 * The store contract: words on disk. Two kinds of adapters pass the one suite in `test/contract/store.ts`:
 * those that belong to one process (memory, SQLite) and those that many replicas share.
 *
 * The rules that every adapter keeps:
 * - One writer per task at a time. `rev` counts the commits of a task, `epoch` its owners: each
 *   {@link Store.claim} or {@link Store.acquire} adds one. A commit names both and fails with code `conflict`
 *   if either moved on, so a writer that lost its lease cannot write any more.
 * - A terminal task never changes again.
 * - Events are appended, never rewritten, and read back by cursor. `seq` is dense: 1, 2, 3, …
 * - What a resolved promise acknowledges is durable and visible to the next read.
 * - The owner is inside every query that serves a caller.
 * - A failure that may pass (full disk, lost connection) is a ConvokeError with code `unavailable`.
 */
import { ConvokeError } from '../base/errors.ts'
import { isTerminal } from '../protocol/a2a.ts'
import type { AgentStore } from './agent-store.ts'

/** One event of a task: `text` is a complete A2A 1.0 `StreamResponse` as JSON on one line. */
export interface EventRecord {
  readonly seq: number
  readonly text: string
}

/** An A2A task state, or `MESSAGE`: the agent answered with a bare message and callers see no task. */
export type StoredState = string

export interface TaskRow {
  readonly id: string
  /** Whose task it is: tenant and caller in one opaque string. */
  readonly owner: string
  readonly contextId: string
  /** Of the message that created the task; unique per owner. */
  readonly messageId: string
  readonly state: StoredState
  /** The `TaskStatus` as JSON. */
  readonly status: string
  /** When the status was last written, in milliseconds since 1970. Lists are ordered by it. */
  readonly statusAt: number
  /** The messages so far as a JSON array, oldest first. */
  readonly history: string
  /** The task's metadata as a JSON object, or null. */
  readonly metadata: string | null
  /** What the runtime needs to run the task again, as JSON; opaque here. */
  readonly request: string
  /** The bare message (state `MESSAGE`) as JSON, or null. */
  readonly reply: string | null
  readonly rev: number
  readonly epoch: number
  readonly lastSeq: number
  /** Who runs the task; null while nobody does (terminal, or at rest until the next message). */
  readonly worker: string | null
  /** Until when `worker` holds the task, in milliseconds since 1970. */
  readonly leaseUntil: number
  readonly cancelRequested: boolean
  /** May run a second time after its worker died. */
  readonly repeatable: boolean
  /** The artifacts as a JSON array once the events were compacted away, else null. */
  readonly artifacts: string | null
  readonly createdAt: number
}

/** What {@link Store.create} takes: a row before its first commit. `rev` and `epoch` begin at 1. */
export type NewTask = Pick<
  TaskRow,
  'id' | 'owner' | 'contextId' | 'messageId' | 'metadata' | 'request' | 'repeatable' | 'worker' | 'leaseUntil'
>

export interface StatusChange {
  readonly state: StoredState
  /** The `TaskStatus` as JSON. */
  readonly text: string
  /** Milliseconds since 1970. */
  readonly at: number
}

/** What one commit changes; what is left out stays as it is. */
export interface Change {
  /** In order, `seq` following on the last one. */
  readonly events?: readonly EventRecord[]
  readonly status?: StatusChange
  readonly history?: string
  readonly reply?: string
  /** Gives the task up: `worker` becomes null. A terminal or `MESSAGE` status does so by itself. */
  readonly release?: boolean
}

/** Which version of the task the writer believes to be the newest. */
export interface Expected {
  readonly rev: number
  readonly epoch: number
}

export interface ListQuery {
  readonly owner: string
  readonly contextId?: string
  readonly state?: string
  /** Only tasks whose `statusAt` is at or after this, in milliseconds since 1970. */
  readonly statusFrom?: number
  /** 1 or more. */
  readonly limit: number
  /** The last row of the page before: the page begins behind it. */
  readonly after?: { readonly statusAt: number; readonly id: string }
}

export interface ListPage {
  /** By `statusAt`, then `id`, both descending. `MESSAGE` rows are never listed. */
  readonly rows: TaskRow[]
  /** How many rows match without paging. */
  readonly total: number
}

/** A webhook of one task. Its cursor over the task's event log is the outbox: what lies behind it is still to be delivered. */
export interface PushRow {
  readonly taskId: string
  readonly id: string
  /** The `PushConfig` as JSON. */
  readonly config: string
  /** The protocol version that its receiver speaks: `1.0` or `0.3`. */
  readonly version: string
  /** Delivered up to and with this seq. */
  readonly cursor: number
  /** Failed deliveries of the event behind the cursor. */
  readonly attempts: number
  /** Not before this time, in milliseconds since 1970. */
  readonly nextAt: number
  /** Given up for good. */
  readonly failed: boolean
}

export interface Store {
  /** Which adapter this is, for people: `memory`, `sqlite`, `postgres`. */
  readonly kind: string

  /** What agents keep: mail, memory, outputs. Opened and closed with this store, over the same connection. */
  readonly agents: AgentStore

  /**
   * Creates a task with its first events and status in one step. A second create with the same owner and
   * `messageId` writes nothing and returns the row that is there, with `created: false`.
   */
  create(
    task: NewTask,
    change: Change & { status: StatusChange; history: string },
  ): Promise<{ created: boolean; row: TaskRow }>

  /**
   * Writes one change if the task is still at `expected` and not terminal; `rev` grows by one.
   * Throws `conflict` otherwise, and writes nothing. Commits of one turn of the event loop may share
   * one transaction; each still succeeds or fails by itself.
   */
  commit(id: string, expected: Expected, change: Change): Promise<void>

  /** The row, or undefined when there is none or, with `owner` given, when it belongs to somebody else. */
  load(id: string, owner?: string): Promise<TaskRow | undefined>

  /** The row that the owner's message created. */
  loadByMessage(owner: string, messageId: string): Promise<TaskRow | undefined>

  /**
   * Events behind `after`, in order, at most about `maxBytes` of text and at least one if there is one.
   * Empty when there are none, or when they were compacted away.
   */
  read(id: string, after: number, maxBytes: number): Promise<EventRecord[]>

  list(query: ListQuery): Promise<ListPage>

  /** Notes that the task is to be cancelled; its worker learns of it by {@link heartbeat}. */
  requestCancel(id: string): Promise<void>

  /**
   * Takes over tasks that are not terminal and whose worker's lease ended before `now`, at most `limit`,
   * oldest first. Each gets `epoch + 1`, the new worker and its lease. No two workers get the same one.
   */
  claim(worker: string, options: { now: number; leaseMs: number; limit: number }): Promise<TaskRow[]>

  /** Takes one task that is at rest, or whose lease ended. Undefined if somebody holds it or it is terminal. */
  acquire(id: string, worker: string, options: { now: number; leaseMs: number }): Promise<TaskRow | undefined>

  /** Renews the lease of all of this worker's tasks and returns those that were asked to cancel. */
  heartbeat(worker: string, options: { now: number; leaseMs: number }): Promise<string[]>

  /** Creates or replaces the webhook with this task and id. */
  putPush(row: PushRow): Promise<void>
  getPush(taskId: string, id: string): Promise<PushRow | undefined>
  /** By id. */
  listPush(taskId: string): Promise<PushRow[]>
  /** No error when there is none. */
  deletePush(taskId: string, id: string): Promise<void>
  /**
   * Webhooks that have something to deliver now, earliest first; each is hidden from other calls until
   * `now + leaseMs` or the next {@link advancePush}, whichever comes first.
   */
  claimPushes(options: { now: number; leaseMs: number; limit: number }): Promise<PushRow[]>
  /** Records what became of a delivery. Nothing happens when the webhook was deleted meanwhile. */
  advancePush(
    taskId: string,
    id: string,
    change: Pick<PushRow, 'cursor' | 'attempts' | 'nextAt' | 'failed'>,
  ): Promise<void>
  /** The earliest time at which a webhook has something to deliver, or undefined. */
  nextPushAt(): Promise<number | undefined>

  /** Terminal tasks with events, whose status is older than `before` and whose webhooks are all served. */
  compactable(before: number, limit: number): Promise<string[]>
  /** Replaces a terminal task's events by its artifacts, a JSON array. */
  compact(id: string, artifacts: string): Promise<void>
  /** Deletes at most `limit` terminal (and `MESSAGE`) tasks whose status is older than `before`, with all that is theirs. Returns how many. */
  expire(before: number, limit: number): Promise<number>

  /**
   * Calls `listener` with a task's id when another process may have changed it. A hint: it may be late,
   * doubled or lost. Stores of one process never call it. Returns how to stop.
   */
  watch(listener: (taskId: string) => void): () => void

  /** Resolves when the store can be written and read, throws `unavailable` otherwise. */
  check(): Promise<void>

  /** Waits for what was accepted, then closes. Idempotent. Whoever opened the store closes it. */
  close(): Promise<void>
}

/** Whether a task in this state takes no more events: it is terminal, or was answered by a bare message. */
export function isFinal(state: string): boolean {
  return state === 'MESSAGE' || isTerminal(state)
}

/** Throws `internal` unless the events of `change` are numbered without a gap after `lastSeq`. */
export function assertDense(change: Change, lastSeq: number): void {
  for (const event of change.events ?? []) {
    if (event.seq !== ++lastSeq) {
      throw new ConvokeError('internal', `An event with seq ${event.seq} came where ${lastSeq} is next.`)
    }
  }
}
