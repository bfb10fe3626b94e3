/**
 * The store contract for agents: for each key (a conversation, a product, a customer) a mailbox of events in order, the
 * agent's memory, and what came out. `test/contract/agent-store.ts` is the suite that every adapter passes.
 *
 * The rules that every adapter keeps:
 * - Keys of one scope (an agent, a pipeline's stage) are told apart by scope and key; two scopes never see each other. Scopes
 *   are few and never forgotten.
 * - Scopes, keys and ids are any text without NUL and without half a surrogate pair, the empty text too; others are refused with
 *   `invalid_params`, since databases refuse or bend them. No length is too long; adapters whose indexes have a limit hash.
 *   Events, memory, outputs, failures and values of steps are opaque texts under the same rule, which `JSON.stringify` keeps.
 * - Mail has a dense `seq` per key: 1, 2, 3, … and is consumed in that order. An id is taken once per key, for as long as the
 *   mail waits or its result is kept. A key that was forgotten begins anew at 1.
 * - A key belongs to one worker at a time. Each lease has a greater `epoch` than all leases of that key before it; whoever
 *   writes with an older one, or with one that was given back, gets code `conflict` and writes nothing. A lease that ran out
 *   may still write until somebody else has taken the key.
 * - `now` is the caller's clock. Clocks that differ make a lost key wait longer or lose a living worker its key, but never
 *   make two of them write: only `epoch` decides that.
 * - A commit is one step: memory, outputs and the consumed mail, or nothing of it.
 * - What a resolved promise acknowledges is durable and visible to the next read. Leases alone need not outlive the process,
 *   where the process before is known to be dead.
 * - A failure that may pass (full disk, lost connection) is a ConvokeError with code `unavailable`. Whether the write was made is
 *   open then, and it may be sent again: an append finds its id, a step its own value; a commit that was made says `conflict`,
 *   and `result` has it.
 */
import { ConvokeError } from '../base/errors.ts'

/** One event that waits for its key's turn. */
export interface Mail {
  /** 1 or more, dense per key. */
  readonly seq: number
  /** Unique per key: the same id again is the same mail. */
  readonly id: string
  /** The event as JSON. */
  readonly event: string
}

/** A step of the mail under way that must not happen twice. */
export interface StepRecord {
  /** Unique within the mail. */
  readonly id: string
  readonly state: 'begun' | 'done'
  /** What it came to, as JSON; null while it is only begun. */
  readonly value: string | null
}

/** The right to write a key, with what its owner needs to go on. */
export interface KeyLease {
  readonly scope: string
  readonly key: string
  readonly worker: string
  readonly epoch: number
  /** The key's memory as JSON; null where there is none yet. */
  readonly state: string | null
  /** What is not consumed, oldest first, at most `limit`. */
  readonly mail: readonly Mail[]
  /** The steps of the first mail so far, in the order in which they began. Only the first mail can have any. */
  readonly steps: readonly StepRecord[]
}

/** What became of one mail. */
export interface MailResult {
  /** Each as JSON, in the order in which they were put out. */
  readonly outputs: readonly string[]
  /** The failure as JSON `{code, message, …}`; null where it went well. */
  readonly failure: string | null
}

/** What ends a mail. */
export interface Consumption extends MailResult {
  readonly mailId: string
  /** The worker's clock, milliseconds since 1970. */
  readonly now: number
  /** The key's memory from now on, as JSON. Default: it stays as it is. */
  readonly state?: string
}

/** One output, as a reader of a whole scope gets it. */
export interface OutputRow {
  /**
   * The reader's cursor, 1 or more, an output's own within its scope, never given twice. The outputs of a commit follow each
   * other in their order. What becomes visible later has the greater place, so whoever goes on behind the last place it read
   * misses nothing. Places may have gaps.
   */
  readonly place: number
  readonly key: string
  readonly mailId: string
  /** As JSON. */
  readonly output: string
}

export interface AgentStore {
  /**
   * Puts mail into a key's mailbox. An id that the key has seen writes nothing: `isNew` is false then, and `seq` that of the
   * mail that is there, or was. Needs no lease, and disturbs none.
   * Throws `too_large` for mail that is larger than all that the store may hold, and `rate_limited` while the mail that waits
   * leaves no room for it (in memory: nothing of that is ever dropped; it helps to wait until some is consumed).
   */
  append(
    scope: string,
    key: string,
    mail: { readonly id: string; readonly event: string },
  ): Promise<{ seq: number; isNew: boolean }>

  /**
   * Takes a key, whether it has mail or not; undefined while another worker's lease runs: until `now` is greater than its
   * `now + leaseMs`. The worker's own lease is taken anew, and what it had before is an older lease. `limit` is how much mail
   * comes along, 1 or more.
   */
  lease(
    scope: string,
    key: string,
    worker: string,
    options: { readonly now: number; readonly leaseMs: number; readonly limit: number },
  ): Promise<KeyLease | undefined>

  /**
   * Keys of the scope that have mail and that nobody holds at `now`, those that have waited the longest first: since mail came
   * to the empty mailbox, or since the mail before was consumed. So a key with much mail takes turns with the others.
   */
  ready(scope: string, options: { readonly now: number; readonly limit: number }): Promise<string[]>

  /** Prolongs all leases of the worker in this scope until `now + leaseMs`, those too that ran out and that nobody has taken. */
  renew(scope: string, worker: string, options: { readonly now: number; readonly leaseMs: number }): Promise<void>

  /** Gives the key back. Nothing happens where it is somebody else's by now. */
  release(lease: KeyLease): Promise<void>

  /**
   * Writes a step of the first mail, over the one of the same id, which keeps its place in the order. Throws `conflict` when
   * the lease is lost, or `mailId` is not the first mail.
   */
  saveStep(lease: KeyLease, mailId: string, step: StepRecord): Promise<void>

  /**
   * Ends the first mail: it is consumed, its steps are gone, its result is kept; the event is not. The lease stays: its owner goes on with the next mail. Throws `conflict` when the lease is lost, or
   * `mailId` is not the first mail. Never refused for want of room in memory.
   */
  commit(lease: KeyLease, change: Consumption): Promise<void>

  /** The result of consumed mail; undefined for mail that waits, is unknown, or whose result has expired. */
  result(scope: string, key: string, mailId: string): Promise<MailResult | undefined>

  /** The key's memory as JSON, without a lease: for whoever only looks. */
  state(scope: string, key: string): Promise<string | undefined>

  /** Outputs of the scope behind `after` (0: from the beginning), by `place`, at most `limit`. They go with their results. */
  outputs(scope: string, options: { readonly after: number; readonly limit: number }): Promise<OutputRow[]>

  /**
   * Ends leases that ran out before `before` (milliseconds since 1970), and forgets results of mail consumed before it, oldest
   * first, then keys that have no mail, no lease, and no commit since. At most `limit` results and keys together. Returns how
   * many went: fewer than `limit` when nothing is left to go. Mail that waits never expires.
   */
  expire(before: number, limit: number): Promise<number>
}

const unfit = /[\0\p{Surrogate}]/u

/** Throws `invalid_params` for a scope, key or id that not every database holds as it is. */
export function assertName(what: 'scope' | 'key' | 'id', name: string): void {
  if (!unfit.test(name)) return
  throw new ConvokeError(
    'invalid_params',
    `${JSON.stringify(name.slice(0, 80))} cannot be the ${what} of an agent's mail: it holds NUL or half a surrogate pair.`,
  )
}

/** What a writer is told whose lease is older than the key's newest, or was given back. */
export function leaseLost(lease: KeyLease): ConvokeError {
  return new ConvokeError('conflict', `Another worker took the key ${JSON.stringify(lease.key)} over.`)
}

/** What a writer is told whose mail is not the one whose turn it is. */
export function notFirst(lease: KeyLease, mailId: string): ConvokeError {
  return new ConvokeError(
    'conflict',
    `The mail ${JSON.stringify(mailId)} is not the first of the key ${JSON.stringify(lease.key)}; it may be consumed already.`,
  )
}
