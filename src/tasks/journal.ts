/**
 * The journal of one running task: numbers its events, keeps its status and history, and commits them before anybody
 * sees them. While one commit is under way the next events gather and go in one commit: the batch size follows from how
 * fast the store is, without a timer.
 */
import { pause } from '../base/abort.ts'
import { ConvokeError } from '../base/errors.ts'
import type { JsonObject } from '../base/json.ts'
import type { Logger } from '../base/logger.ts'
import type { Artifact, Message, TaskState } from '../protocol/a2a.ts'
import type { EventRecord, StatusChange, Store, TaskRow } from '../store/store.ts'
import { artifactEventText, idMembers, markLastChunk, statusEventText, statusText, taskEventText } from './snapshot.ts'

/** Uncommitted events that make the writer wait. */
const pendingLimit = { events: 256, bytes: 64 * 1024 }
/** Committed events kept at hand for followers that are up to date; whoever is further behind reads the store. */
const tailLimitBytes = 256 * 1024
/** Messages kept in a task's history; the first one stays, then the newest. */
export const historyLimit = 500
/** A store that cannot write is tried again after so long, doubling. */
const retryMs = { first: 100, most: 5000 }

export interface JournalHost {
  readonly store: Store
  readonly log: Logger
  readonly worker: string
  readonly leaseMs: number
}

export interface JournalOptions {
  readonly host: JournalHost
  readonly repeatable: boolean
  /** A commit is done; the row is the task behind it. */
  readonly onCommitted: (row: TaskRow) => void
  /** The task cannot be written any more: another worker owns it, or it could not be created. */
  readonly onLost: (error: ConvokeError) => void
}

/** Where a journal begins: the task as it is stored, or will be. */
export type Head = Pick<
  TaskRow,
  | 'id'
  | 'contextId'
  | 'owner'
  | 'messageId'
  | 'metadata'
  | 'request'
  | 'state'
  | 'status'
  | 'statusAt'
  | 'history'
  | 'rev'
  | 'epoch'
  | 'lastSeq'
  | 'createdAt'
>

export class Journal {
  readonly id: string
  readonly contextId: string
  readonly owner: string
  readonly messageId: string
  readonly #options: JournalOptions
  readonly #members: string
  readonly #metadata: string | null
  readonly #request: string

  // The task as the next commit will leave it.
  #state: string
  #status: string
  #statusAt: number
  #statusMessage: Message | undefined
  #history: Message[]
  #historyText: string
  #rev: number
  #epoch: number
  #seq: number
  #reply: string | null = null
  #worker: string | null
  #createdAt: number
  #created: boolean

  // What is not committed yet.
  #pending: EventRecord[] = []
  #pendingBytes = 0
  #statusChanged = false
  #historyChanged = false
  #lastIsProgress = false
  #immediate: NodeJS.Immediate | undefined
  #flushing: Promise<void> | undefined
  #roomListeners: (() => void)[] = []
  /** Who waits for what the next commit brings, and for what the one under way does. */
  #waiting: (() => void)[] = []
  #inFlight: (() => void)[] = []

  // What is committed.
  #committed: TaskRow | undefined
  #tail: EventRecord[] = []
  #tailBytes = 0

  #lost: ConvokeError | undefined
  /** The store cannot write now; what is said waits here. */
  #stalled: ConvokeError | undefined
  readonly #stallListeners = new Set<(error: ConvokeError) => void>()
  #retry: AbortController | undefined

  /** A task that nobody has seen yet begins with the event that shows it. */
  static create(options: JournalOptions, task: Omit<Head, FirstValues>, message: Message): Journal {
    const now = Date.now()
    const state = 'TASK_STATE_SUBMITTED'
    const text = statusText(state, timestamp(now))
    const history = `[${JSON.stringify(message)}]`
    // Field by field: a spread with more behind it makes an object that is slow to build and to read.
    const head: Head = {
      id: task.id,
      contextId: task.contextId,
      owner: task.owner,
      messageId: task.messageId,
      metadata: task.metadata,
      request: task.request,
      state,
      status: text,
      statusAt: now,
      history,
      rev: 0,
      epoch: 1,
      lastSeq: 0,
      createdAt: now,
    }
    const journal = new Journal(options, head, [message], undefined)
    journal.#append(taskEventText(task, text, history, task.metadata))
    return journal
  }

  /** Goes on behind a stored row. The agent's last words, if there are any, are history from now on. */
  static resume(options: JournalOptions, row: TaskRow): Journal {
    const journal = new Journal(options, row, JSON.parse(row.history) as Message[], row)
    journal.#statusMessage = (JSON.parse(row.status) as { message?: Message }).message
    journal.#rememberStatus()
    return journal
  }

  private constructor(options: JournalOptions, task: Head, messages: Message[], committed: TaskRow | undefined) {
    this.#options = options
    this.id = task.id
    this.contextId = task.contextId
    this.owner = task.owner
    this.messageId = task.messageId
    this.#members = idMembers(task)
    this.#metadata = task.metadata
    this.#request = task.request
    this.#state = task.state
    this.#status = task.status
    this.#statusAt = task.statusAt
    this.#history = messages
    this.#historyText = task.history
    this.#rev = task.rev
    this.#epoch = task.epoch
    this.#seq = task.lastSeq
    this.#createdAt = task.createdAt
    this.#created = committed !== undefined
    this.#committed = committed
    this.#worker = options.host.worker
  }

  /** The task as last committed. Undefined before the first commit. */
  get row(): TaskRow | undefined {
    return this.#committed
  }

  get epoch(): number {
    return this.#epoch
  }

  /** Why nothing can be written any more. */
  get lost(): ConvokeError | undefined {
    return this.#lost
  }

  /** Whether the status as it stands is committed. */
  get isStatusCommitted(): boolean {
    return this.#committed !== undefined && !this.#statusChanged
  }

  /** Whether a bare message was written instead of a task. */
  get isReply(): boolean {
    return this.#reply !== null
  }

  /** Whether the history has no room for another question and its answer. */
  get isHistoryFull(): boolean {
    return this.#history.length >= historyLimit - 2
  }

  get hasAnswers(): boolean {
    return holdsAnswers(this.#history)
  }

  /** Whether a message with this id has reached the task already. */
  has(messageId: string): boolean {
    return this.#history.some((message) => message.messageId === messageId)
  }

  /** Committed events behind `after`, as far as they are at hand: undefined means that the store must be asked. */
  tailAfter(after: number): EventRecord[] | undefined {
    const first = this.#tail[0]
    if (first === undefined) return this.#committed !== undefined && after >= this.#committed.lastSeq ? [] : undefined
    if (after < first.seq - 1) return undefined
    return this.#tail.slice(after - first.seq + 1)
  }

  /** {@link tailAfter}, at most about `maxChars` of text and at least one event if there is one. */
  nextAfter(after: number, maxChars: number): EventRecord[] | undefined {
    const first = this.#tail[0]
    if (first === undefined || after < first.seq - 1) return this.tailAfter(after)
    const start = after - first.seq + 1
    let end = start
    for (let chars = 0; end < this.#tail.length && chars < maxChars; end++) chars += this.#tail[end]?.text.length ?? 0
    return this.#tail.slice(start, end)
  }

  /** A piece of an artifact. Throws for what is no JSON, and then nothing has changed. */
  addArtifact(artifact: Artifact, append: boolean, lastChunk: boolean): void {
    this.#append(artifactEventText(this.#members, artifact, append, lastChunk))
    this.#lastIsProgress = false
    this.flushSoon()
  }

  /** Working, without words. What nobody has seen yet is replaced by the newer one. */
  addProgress(metadata: JsonObject | undefined): void {
    if (this.#lastIsProgress) this.#dropLast()
    this.setStatus('TASK_STATE_WORKING', undefined, metadata)
    this.#lastIsProgress = true
    this.flushSoon()
  }

  /** The task's status from now on. Throws for what is no JSON, and then nothing has changed. Who needs it out calls {@link flush}. */
  setStatus(state: TaskState, message?: Message, metadata?: JsonObject): void {
    const now = Date.now()
    // Both may throw for what is no JSON, and then nothing has changed.
    const status = statusText(state, timestamp(now), message)
    const event = statusEventText(this.#members, status, metadata)
    this.#rememberStatus()
    this.#statusMessage = message
    this.#state = state
    this.#statusAt = now
    this.#status = status
    this.#statusChanged = true
    this.#lastIsProgress = false
    this.#append(event)
  }

  /** A caller's message, behind the agent's last words. */
  addMessage(message: Message): void {
    this.#rememberStatus()
    this.#remember(message)
  }

  /** A bare message in place of all that was not committed yet. */
  setReply(message: Message): void {
    this.#reply = JSON.stringify({ ...message, contextId: this.contextId })
    this.#pending = []
    this.#pendingBytes = 0
    this.#seq = this.#committed?.lastSeq ?? 0
    this.#state = 'MESSAGE'
    this.#statusAt = Date.now()
    this.#statusChanged = true
  }

  /** With the next commit nobody holds the task any more; it is this journal's last. */
  giveUp(): void {
    this.#worker = null
    void this.flush()
  }

  /** Writes no more. Who waits is let go; who asks finds the error in {@link lost}. */
  drop(error: ConvokeError): void {
    this.#lost = error
    this.#retry?.abort()
    release(this.#inFlight)
    release(this.#waiting)
    this.makeRoom()
  }

  /** The agent's words move into the history when something comes behind them. */
  #rememberStatus(): void {
    if (this.#statusMessage !== undefined) this.#remember(this.#statusMessage)
    this.#statusMessage = undefined
  }

  #remember(message: Message): void {
    this.#history.push(message)
    if (this.#history.length > historyLimit) this.#history.splice(1, 1)
    this.#historyChanged = true
  }

  #append(text: string): void {
    this.#pending.push({ seq: ++this.#seq, text })
    this.#pendingBytes += text.length
  }

  /** Says on the last chunk that it was the last, if it has not left yet. */
  markLast(artifactId: string): void {
    const last = this.#pending[this.#pending.length - 1]
    if (last === undefined) return
    const text = markLastChunk(last.text, artifactId)
    if (text !== undefined) this.#pending[this.#pending.length - 1] = { seq: last.seq, text }
  }

  #dropLast(): void {
    const last = this.#pending.pop()
    if (last === undefined) return
    this.#seq--
    this.#pendingBytes -= last.text.length
  }

  /** Whether so much is uncommitted that the writer should wait for {@link room}. */
  get isFull(): boolean {
    return this.#pendingBytes >= pendingLimit.bytes || this.#pending.length >= pendingLimit.events
  }

  /** Resolves with the next commit, or when nothing is written any more. */
  room(): Promise<void> {
    return new Promise((resolve) => this.#roomListeners.push(resolve))
  }

  /** Lets the writer go on. */
  makeRoom(): void {
    release(this.#roomListeners)
  }

  /** Commits at the end of this turn of the event loop; a commit under way takes the rest along when it is done. */
  flushSoon(): void {
    if (this.#flushing !== undefined) return
    this.#immediate ??= setImmediate(() => {
      this.#immediate = undefined
      void this.flush()
    })
  }

  /** Commits all there is. Never rejects: what cannot be committed is {@link lost}. */
  flush(): Promise<void> {
    clearImmediate(this.#immediate)
    this.#immediate = undefined
    if (this.#flushing === undefined && this.#isDirty()) this.#flushing = this.#commitAll()
    return this.#flushing ?? Promise.resolve()
  }

  /**
   * Resolves when all that was said up to now is committed, or the task is lost. What the work says meanwhile is not
   * waited for: it may never stop.
   */
  durable(): Promise<void> {
    void this.flush()
    if (this.#lost !== undefined || this.#flushing === undefined) return Promise.resolve()
    const list = this.#isDirty() ? this.#waiting : this.#inFlight
    return new Promise((resolve) => list.push(resolve))
  }

  /** Rejects as soon as the store cannot write; the journal itself goes on trying. */
  async unlessStalled(done: Promise<void>): Promise<void> {
    let onStall = (_error: ConvokeError): void => {}
    const stalled = new Promise<never>((_resolve, reject) => (onStall = reject))
    this.#stallListeners.add(onStall)
    try {
      if (this.#stalled !== undefined) onStall(this.#stalled)
      await Promise.race([done, stalled])
    } finally {
      this.#stallListeners.delete(onStall)
    }
  }

  #isDirty(): boolean {
    return this.#lost === undefined && (this.#pending.length > 0 || this.#statusChanged || this.#historyChanged)
  }

  async #commitAll(): Promise<void> {
    try {
      while (this.#isDirty()) {
        const { change, row } = this.#take()
        this.#inFlight = this.#waiting
        this.#waiting = []
        try {
          await this.#write(change)
        } catch (error) {
          return this.#options.onLost(ConvokeError.from(error))
        }
        this.#committed = row
        this.#keep(change.events)
        release(this.#inFlight)
        this.#options.onCommitted(row)
        this.makeRoom()
        if (row.worker === null) return
      }
    } finally {
      // Here, and not behind the promise: an event that comes before its callbacks run must find no commit under way.
      this.#flushing = undefined
    }
  }

  /** What is not committed yet, as one change, and the row as it will be behind it. */
  #take(): { change: WholeChange; row: TaskRow } {
    const historyChanged = this.#historyChanged || !this.#created
    if (this.#historyChanged) this.#historyText = JSON.stringify(this.#history)
    const events = this.#pending
    this.#pending = []
    this.#pendingBytes = 0
    this.#historyChanged = false
    this.#statusChanged = false
    this.#lastIsProgress = false
    const row: TaskRow = {
      id: this.id,
      owner: this.owner,
      contextId: this.contextId,
      messageId: this.messageId,
      state: this.#state,
      status: this.#status,
      statusAt: this.#statusAt,
      history: this.#historyText,
      metadata: this.#metadata,
      request: this.#request,
      reply: this.#reply,
      rev: this.#rev + 1,
      epoch: this.#epoch,
      lastSeq: this.#seq,
      worker: this.#worker,
      leaseUntil: 0,
      cancelRequested: false,
      repeatable: this.#options.repeatable,
      artifacts: null,
      createdAt: this.#createdAt,
    }
    const change: WholeChange = {
      events,
      status: { state: row.state, text: row.status, at: row.statusAt },
      release: row.worker === null,
    }
    // The history holds the caller's params, which may be large: it is written when it changes.
    if (historyChanged) change.history = row.history
    if (row.reply !== null) change.reply = row.reply
    return { change, row }
  }

  async #write(change: WholeChange): Promise<void> {
    const { store, worker, leaseMs, log } = this.#options.host
    if (!this.#created) {
      const { id, owner, contextId, messageId } = this
      const task = {
        id,
        owner,
        contextId,
        messageId,
        metadata: this.#metadata,
        request: this.#request,
        repeatable: this.#options.repeatable,
        worker,
        leaseUntil: Date.now() + leaseMs,
      }
      const { created, row } = await store.create(task, change as WholeChange & { history: string })
      if (!created) {
        const text = `Message "${messageId}" was taken in by another replica at the same moment. Send it again to find its task.`
        throw new ConvokeError('unavailable', text, { retryAfterMs: 50 })
      }
      this.#created = true
      this.#rev = row.rev
      return
    }
    for (let wait = retryMs.first; ; wait = Math.min(wait * 2, retryMs.most)) {
      try {
        await store.commit(this.id, { rev: this.#rev, epoch: this.#epoch }, change)
        this.#rev++
        this.#stalled = undefined
        return
      } catch (error) {
        // A store that cannot write now holds the work back; what it has said stays here and is written later.
        if (!(error instanceof ConvokeError) || error.code !== 'unavailable') throw error
        log.warn({ error, taskId: this.id, retryMs: wait }, 'The store cannot take the events of a task now.')
        this.#stalled = error
        for (const listener of [...this.#stallListeners]) listener(error)
        this.#retry ??= new AbortController()
        await pause(wait, this.#retry.signal)
        if (this.#lost !== undefined) throw error
      }
    }
  }

  #keep(events: readonly EventRecord[]): void {
    for (const event of events) {
      this.#tail.push(event)
      this.#tailBytes += event.text.length
    }
    if (this.#tailBytes <= tailLimitBytes) return
    let cut = 0
    while (this.#tailBytes > tailLimitBytes && cut < this.#tail.length - 1) {
      this.#tailBytes -= this.#tail[cut++]?.text.length ?? 0
    }
    this.#tail = this.#tail.slice(cut)
  }
}

/** Whether the caller has sent more than the message that the task began with. */
export function holdsAnswers(history: readonly Message[]): boolean {
  return history.filter(({ role }) => role === 'ROLE_USER').length > 1
}

/** What a task that begins is given by its journal. */
type FirstValues = 'state' | 'status' | 'statusAt' | 'history' | 'rev' | 'epoch' | 'lastSeq' | 'createdAt'

function release(list: (() => void)[]): void {
  for (const listener of list.splice(0)) listener()
}

/** One commit. The first one of a task always has its history. */
interface WholeChange {
  events: EventRecord[]
  status: StatusChange
  release: boolean
  history?: string
  reply?: string
}

let lastMs = 0
let lastText = ''

/** ISO 8601 in UTC. Many events share a millisecond, and the formatting costs more than the rest of an event. */
function timestamp(ms: number): string {
  if (ms !== lastMs) {
    lastMs = ms
    lastText = new Date(ms).toISOString()
  }
  return lastText
}
