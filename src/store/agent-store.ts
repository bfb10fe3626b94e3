/**
 * The store contract for agents: for each key (a conversation, a product, a customer) a mailbox of events in order, the
 * agent's memory, and what came out. `test/contract/agent-store.ts` is the suite that every adapter passes.
 *
 * The rules that every adapter keeps:
 * - Keys of one scope (an agent, a pipeline's stage) are told apart by scope and key; two scopes never see each other.
 * - Mail has a dense `seq` per key: 1, 2, 3, … and is consumed in that order. An id is taken once per key.
 * - A key belongs to one worker at a time. Each lease adds one to the key's `epoch`; whoever writes with an older one, or
 *   a lease that ran out and was taken by somebody else, gets code `conflict` and writes nothing.
 * - A commit is one step: memory, outputs and the consumed mail, or nothing of it.
 * - What a resolved promise acknowledges is durable and visible to the next read.
 * - A failure that may pass (full disk, lost connection) is a ConvokeError with code `unavailable`.
 */

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
  /** The steps of the first mail so far, in the order in which they began. */
  readonly steps: readonly StepRecord[]
}

/** What became of one mail. */
export interface MailResult {
  /** Each as JSON, in the order in which they were put out. */
  readonly outputs: readonly string[]
  /** The failure as JSON `{code, message, …}`; null where it went well. */
  readonly failure: string | null
}

/** One output, as a reader of a whole scope gets it. */
export interface OutputRow {
  /** The reader's cursor: grows with each commit of the scope, in the order in which commits became visible. */
  readonly place: number
  readonly key: string
  readonly mailId: string
  /** As JSON. */
  readonly output: string
}

export interface AgentStore {
  /**
   * Puts mail into a key's mailbox. An id that the key has seen writes nothing: `isNew` is false then, and `seq` that of the
   * mail that is there, or was.
   */
  append(
    scope: string,
    key: string,
    mail: { readonly id: string; readonly event: string },
  ): Promise<{ seq: number; isNew: boolean }>

  /**
   * Takes a key, whether it has mail or not; undefined while another worker's lease runs. The worker's own lease is taken
   * anew. `limit` is how much mail comes along, 1 or more.
   */
  lease(
    scope: string,
    key: string,
    worker: string,
    options: { readonly now: number; readonly leaseMs: number; readonly limit: number },
  ): Promise<KeyLease | undefined>

  /** Keys of the scope that have mail and that nobody holds at `now`, those that have waited the longest first. */
  ready(scope: string, options: { readonly now: number; readonly limit: number }): Promise<string[]>

  /** Prolongs all leases of the worker in this scope until `now + leaseMs`. */
  renew(scope: string, worker: string, options: { readonly now: number; readonly leaseMs: number }): Promise<void>

  /** Gives the key back. Nothing happens where it is somebody else's by now. */
  release(lease: KeyLease): Promise<void>

  /** Writes a step of the first mail, over the one of the same id. Throws `conflict` when the lease is lost. */
  saveStep(lease: KeyLease, mailId: string, step: StepRecord): Promise<void>

  /**
   * Ends the first mail: it is consumed, its steps are gone, its result is kept. `state` undefined leaves the memory as it
   * is. Throws `conflict` when the lease is lost, or `mailId` is not the first mail.
   */
  commit(
    lease: KeyLease,
    change: { readonly mailId: string; readonly now: number; readonly state?: string } & MailResult,
  ): Promise<void>

  /** The result of consumed mail; undefined for mail that waits, is unknown, or whose result has expired. */
  result(scope: string, key: string, mailId: string): Promise<MailResult | undefined>

  /** The key's memory as JSON, without a lease: for whoever only looks. */
  state(scope: string, key: string): Promise<string | undefined>

  /** Outputs of the scope behind `after` (0: from the beginning), by `place`, at most `limit`. */
  outputs(scope: string, options: { readonly after: number; readonly limit: number }): Promise<OutputRow[]>

  /**
   * Forgets results of mail consumed before `before` (milliseconds since 1970), and keys that have no mail, no lease and no
   * commit since; at most about `limit` rows. Returns how many rows went.
   */
  expire(before: number, limit: number): Promise<number>
}
