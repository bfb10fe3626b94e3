/**
 * The one writer of a running task. It pulls the work's generator, numbers its events, and commits them before
 * anybody sees them. While one commit is under way the next events gather and go in one commit: the batch size
 * follows from how fast the store is, without a timer. A full batch makes the generator wait.
 */
import { randomUUID } from 'node:crypto'
import { pause } from '../base/abort.ts'
import { ConvokeError } from '../base/errors.ts'
import type { JsonObject } from '../base/json.ts'
import type { Logger } from '../base/log.ts'
import { isInterrupted, type InterruptedState, type Message, type TaskState } from '../protocol/a2a.ts'
import { keys } from '../protocol/extension.ts'
import type { EventRecord, StatusChange, Store, TaskRow } from '../store/store.ts'
import { artifactEventText, idMembers, markLastChunk, statusEventText, statusText, taskEventText } from './snapshot.ts'
import type { Outcome, Work, WorkContext, WorkEvent } from './work.ts'

/** Uncommitted events that make the generator wait. */
const pendingLimit = { events: 256, bytes: 64 * 1024 }
/** How long work may hold the event loop between two of its events, in milliseconds. */
const turnMs = 2
/** Committed events kept at hand for followers that are up to date; whoever is further behind reads the store. */
const tailLimitBytes = 256 * 1024
/** Messages kept in a task's history; the first one stays, then the newest. */
const historyLimit = 500
/** A store that cannot write is tried again after so long, doubling. */
const retryMs = { first: 100, most: 5000 }

/** What a run needs from the runtime. */
export interface RunHost {
  readonly store: Store
  readonly log: Logger
  readonly worker: string
  readonly leaseMs: number
  readonly graceMs: number
  /** New events of the task are committed. */
  published(run: Run): void
  /** The run is over and its last word is committed, or it lost the task. */
  ended(run: Run): void
  /** A tool did not stop in time; its task has ended without it. */
  abandoned(run: Run): void
}

/** Why a run is stopped before its work is done. */
interface Stop {
  readonly error: ConvokeError
  readonly state: 'TASK_STATE_CANCELED' | 'TASK_STATE_FAILED'
}

/** A question that the work asked; the first one in the queue is the one that the caller sees. */
interface Asked {
  readonly question: Message
  readonly state: InterruptedState
  resolve(message: Message): void
  reject(error: unknown): void
}

export interface NewRun {
  readonly id: string
  readonly contextId: string
  readonly owner: string
  readonly messageId: string
  readonly message: Message
  /** The task's metadata as JSON, or null. */
  readonly metadata: string | null
  /** The stored request as JSON. */
  readonly request: string
}

/** Where a run begins: the task as it is stored, or will be. */
type Head = Pick<
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

export class Run {
  readonly id: string
  readonly contextId: string
  readonly owner: string
  readonly messageId: string
  readonly work: Work
  readonly #host: RunHost
  readonly #members: string
  readonly #metadata: string | null
  readonly #request: string
  /** Made when the work asks for its signal: most small tools never do. */
  #controller: AbortController | undefined

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

  // What is committed.
  #committed: TaskRow | undefined
  #tail: EventRecord[] = []
  #tailBytes = 0

  #generator: AsyncGenerator<WorkEvent, Outcome, void> | undefined
  #stop: Stop | undefined
  #graceTimer: NodeJS.Timeout | undefined
  #deadlineTimer: NodeJS.Timeout | undefined
  #deadline: number | undefined
  #remainingMs: number | undefined
  #retry: AbortController | undefined
  #asked: Asked[] = []
  #answers: Message[] = []
  #said = false
  #shown = false
  #closed = false
  #lost: ConvokeError | undefined
  #settledListeners: (() => void)[] = []
  /** The store cannot write now; what is said waits here. */
  #stalled: ConvokeError | undefined
  /** Who waits for what the next commit brings, and for what the one under way does. */
  #waiting: (() => void)[] = []
  #inFlight: (() => void)[] = []
  readonly #stallListeners = new Set<(error: ConvokeError) => void>()
  #askedAt = 0

  /** A task that nobody has seen yet. */
  static create(host: RunHost, task: NewRun, work: Work): Run {
    const now = Date.now()
    const state = 'TASK_STATE_SUBMITTED'
    const text = statusText(state, timestamp(now))
    const history = `[${JSON.stringify(task.message)}]`
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
    const run = new Run(host, work, head, [task.message], false)
    run.#append(taskEventText(task, text, history, task.metadata))
    if (work.refusal === undefined) run.#setStatus('TASK_STATE_WORKING')
    return run
  }

  /**
   * Goes on with a stored task that this worker has just taken. `message` is the one that woke it, if one did;
   * `answers` are those that the work's first questions get without asking again.
   */
  static resume(host: RunHost, row: TaskRow, work: Work, message: Message | undefined, answers: Message[]): Run {
    const run = new Run(host, work, row, JSON.parse(row.history) as Message[], true)
    run.#committed = row
    run.#statusMessage = (JSON.parse(row.status) as { message?: Message }).message
    run.#answers = answers
    run.#rememberStatus()
    if (message !== undefined) run.#remember(message)
    // Repeatable work begins anew: what it said before no longer counts.
    if (work.refusal === undefined) {
      run.#setStatus('TASK_STATE_WORKING', undefined, work.repeatable ? { [keys.attempt]: row.epoch } : undefined)
    }
    return run
  }

  private constructor(host: RunHost, work: Work, task: Head, messages: Message[], created: boolean) {
    this.#host = host
    this.work = work
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
    this.#created = created
    this.#worker = host.worker
  }

  /** The task as last committed. Undefined before the first commit. */
  get row(): TaskRow | undefined {
    return this.#committed
  }

  get epoch(): number {
    return this.#epoch
  }

  /** Whether the last word of this run is committed, or somebody else's business. */
  get over(): boolean {
    return this.#lost !== undefined || this.#committed?.worker === null
  }

  /** Whether the work waits for a message on the task. */
  get asking(): boolean {
    return this.#asked.length > 0
  }

  /** Whether the caller has been asked, durably, and has not answered. */
  get waiting(): boolean {
    return this.#asked.length > 0 && this.#isSettled()
  }

  /** Since when the work waits for an answer, in milliseconds since 1970; undefined while it does not. */
  get askedAt(): number | undefined {
    return this.#asked.length > 0 ? this.#askedAt : undefined
  }

  /** Resolves when the run has settled; rejects, too, when the store cannot write its end now. */
  settledOrStalled(): Promise<void> {
    return this.#unlessStalled(this.settled())
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

  /** Makes the task durable. Throws `unavailable` when the store cannot write, and then nothing has happened. */
  async persist(): Promise<void> {
    await this.#unlessStalled(this.#durable())
    if (this.#lost !== undefined) throw this.#lost
  }

  /** {@link persist}, then `prepare`, then {@link start}: the work begins even when the task is durable later than anybody waits. */
  async persistThenStart(prepare: () => Promise<void>): Promise<void> {
    const started = this.#durable().then(async () => {
      if (this.#lost === undefined) await prepare()
      this.start()
    })
    await this.#unlessStalled(started)
    if (this.#lost !== undefined) throw this.#lost
  }

  /** Starts the work. Its end shows in the task's events. */
  start(): void {
    if (this.#closed) return
    if (this.work.refusal !== undefined) return this.#finish(this.work.refusal)
    if (this.#stop !== undefined) return this.#finish(this.#stopOutcome(this.#stop.error))
    this.#startDeadline(this.work.timeoutMs)
    this.#flushSoon()
    this.#pump().catch((error: unknown) => this.#finish(this.#failure(error)))
  }

  /**
   * Resolves once the task is committed as terminal, interrupted, at rest or answered by a bare message; at once
   * if it is. Rejects when the task was lost to another worker, or could not be created.
   */
  settled(): Promise<void> {
    if (this.#lost !== undefined) return Promise.reject(this.#lost)
    if (this.#isSettled()) return Promise.resolve()
    return new Promise((resolve, reject) => {
      this.#settledListeners.push(() => (this.#lost === undefined ? resolve() : reject(this.#lost)))
    })
  }

  /** From now on the caller knows the task, so it can no longer turn into a bare message. */
  show(): void {
    this.#shown = true
  }

  /** Whether it is clear that the answer is a task, or committed that it is a bare message. */
  get decided(): boolean {
    if (this.#said || this.work.mayReply !== true) return true
    return this.#reply === null ? this.#closed : this.#committed?.state === 'MESSAGE'
  }

  /**
   * Hands a message to work that waits for one. Resolves once the message is durable and the work goes on, which
   * `beforeGoingOn` comes right in front of; throws `conflict` when nothing waits.
   */
  async answer(message: Message, beforeGoingOn: () => void): Promise<void> {
    const asked = this.#asked.shift()
    if (asked === undefined) throw new ConvokeError('conflict', 'The task waits for no message.')
    this.#rememberStatus()
    this.#remember(message)
    const next = this.#asked[0]
    if (next === undefined) {
      this.#setStatus('TASK_STATE_WORKING')
    } else {
      this.#setStatus(next.state, next.question)
    }
    // The work goes on as soon as the answer is durable, even when that is later than its sender waits.
    const goOn = (): void => {
      const over = this.#lost ?? this.#stop?.error
      if (over !== undefined) return asked.reject(over)
      beforeGoingOn()
      if (next === undefined) this.#startDeadline(this.#remainingMs)
      asked.resolve(message)
    }
    const durable = this.#durable()
    void durable.then(goOn)
    await this.#unlessStalled(durable)
    if (this.#lost !== undefined) throw this.#lost
  }

  /**
   * Stops the work: its signal aborts, and what it still says is dropped. The task ends as soon as the work has
   * ended, after the grace period at the latest. Nothing happens when the end is decided already.
   */
  stop(error: ConvokeError): void {
    if (this.#closed || this.#stop !== undefined) return
    this.#stop = { error, state: error.code === 'canceled' ? 'TASK_STATE_CANCELED' : 'TASK_STATE_FAILED' }
    this.#clearDeadline()
    this.#graceTimer = setTimeout(() => {
      this.#host.abandoned(this)
      this.#finish(this.#stopOutcome(error))
    }, this.#host.graceMs)
    this.#interrupt(error)
  }

  /** Drops the run without a word in the task's log: the process is going, or another worker owns the task. */
  drop(error: ConvokeError): void {
    if (this.#lost !== undefined) return
    this.#lost = error
    this.#close()
    this.#interrupt(error)
    this.#retry?.abort()
    this.#release(this.#inFlight)
    this.#release(this.#waiting)
    this.#notifySettled()
    this.#host.ended(this)
  }

  #interrupt(error: ConvokeError): void {
    this.#controller?.abort(error)
    for (const asked of this.#asked.splice(0)) asked.reject(error)
    this.#makeRoom()
    // Work that stands at a yield ends here; work that is busy ends at its next yield.
    this.#generator?.return({ state: 'TASK_STATE_CANCELED' }).catch(() => {})
  }

  async #pump(): Promise<void> {
    let outcome: Outcome
    try {
      const generator = this.work.run(this.#context())
      this.#generator = generator
      let turnedAt = performance.now()
      for (;;) {
        const step = await generator.next()
        if (this.#closed) return
        if (step.done === true) {
          outcome = step.value
          break
        }
        this.#emit(step.value)
        if (this.#isFull()) {
          await this.#room()
        } else if (performance.now() - turnedAt > turnMs) {
          // Work that computes and never waits would keep what it says from leaving, and everybody else from their turn.
          await new Promise((resolve) => setImmediate(resolve))
        } else {
          continue
        }
        turnedAt = performance.now()
      }
    } catch (error) {
      if (this.#closed) return
      outcome = this.#failure(error)
    }
    this.#finish(this.#stop === undefined ? outcome : this.#stopOutcome(this.#stop.error))
  }

  #context(): WorkContext {
    return new Context(this.id, this.contextId, this.#epoch, {
      signal: () => this.#signal(),
      deadline: () => this.#deadline,
      emit: (event) => this.#emit(event),
      ask: (question, state) => this.#ask(question, state),
    })
  }

  #signal(): AbortSignal {
    this.#controller ??= new AbortController()
    const over = this.#stop?.error ?? this.#lost
    if (over !== undefined && !this.#controller.signal.aborted) this.#controller.abort(over)
    return this.#controller.signal
  }

  #ask(question: Message, state: InterruptedState): Promise<Message> {
    if (this.#stop !== undefined) return Promise.reject(this.#stop.error)
    if (this.#closed) return Promise.reject(new ConvokeError('canceled', 'The call has ended.'))
    // The history is cut at its limit, and a run that begins anew would miss the answers that were cut off.
    if (this.#history.length >= historyLimit - 2) {
      return Promise.reject(
        new ConvokeError('too_large', `A task may hold ${historyLimit} messages; it has asked too much.`),
      )
    }
    const known = this.#answers.shift()
    if (known !== undefined) return Promise.resolve(known)
    return new Promise((resolve, reject) => {
      // What cannot be put into JSON is refused here, before anything has changed.
      JSON.stringify(question)
      this.#asked.push({ question, state, resolve, reject })
      if (this.#asked.length > 1) return
      this.#said = true
      this.#askedAt = Date.now()
      this.#pauseDeadline()
      this.#setStatus(state, question)
      void this.#flush()
    })
  }

  #emit(event: WorkEvent): void {
    if (this.#closed || this.#stop !== undefined) return
    switch (event.type) {
      case 'reply':
        return this.#replyWith(event.message)
      case 'artifact':
        this.#said = true
        this.#lastIsProgress = false
        this.#append(artifactEventText(this.#members, event.artifact, event.append ?? false, event.lastChunk ?? false))
        return this.#flushSoon()
      case 'end':
        return this.#markLast(event.artifactId)
      case 'status': {
        this.#said = true
        // A question stays the task's status until it is answered.
        if (this.#asked.length > 0) return
        const isProgress = event.message === undefined
        // Progress that nobody has seen yet is replaced by the newer one.
        if (isProgress && this.#lastIsProgress) this.#dropLast()
        this.#setStatus('TASK_STATE_WORKING', event.message, event.metadata)
        this.#lastIsProgress = isProgress
        return this.#flushSoon()
      }
    }
  }

  /** A bare message instead of a task; when the task was shown already, its closing words. */
  #replyWith(message: Message): void {
    if (this.#said || this.#shown) return this.#finish({ state: 'TASK_STATE_COMPLETED', message })
    this.#close()
    this.#reply = JSON.stringify({ ...message, contextId: this.contextId })
    this.#pending = []
    this.#pendingBytes = 0
    this.#seq = this.#committed?.lastSeq ?? 0
    this.#state = 'MESSAGE'
    this.#statusAt = Date.now()
    this.#statusChanged = true
    this.#worker = null
    void this.#flush()
  }

  #finish(outcome: Outcome): void {
    if (this.#closed) return
    this.#close()
    try {
      this.#setStatus(outcome.state, outcome.message, outcome.metadata)
    } catch (error) {
      this.#host.log.error({ error, taskId: this.id }, 'What a task ended with cannot be put into JSON.')
      this.#setStatus('TASK_STATE_FAILED', unspeakable(this.id, this.contextId))
    }
    this.#worker = null
    void this.#flush()
  }

  #close(): void {
    this.#closed = true
    this.#clearDeadline()
    clearTimeout(this.#graceTimer)
    this.#makeRoom()
  }

  #failure(error: unknown): Outcome {
    const known = ConvokeError.from(error)
    if (this.#stop === undefined) {
      if (known.code === 'internal') this.#host.log.error({ error, taskId: this.id }, 'The work of a task failed.')
      // The caller gets the message; where it came from is for the author, and stands nowhere else.
      if (known.code === 'tool_failed' || known.code === 'invalid_result') {
        this.#host.log.warn({ error, taskId: this.id }, 'A tool failed.')
      }
    }
    return this.#say(known)
  }

  #stopOutcome(error: ConvokeError): Outcome {
    return { ...this.#say(error), state: this.#stop?.state ?? 'TASK_STATE_FAILED' }
  }

  /** An error in the words of the work, which is somebody else's code and may fail at that, too. */
  #say(known: ConvokeError): Outcome {
    try {
      return this.work.fail(known)
    } catch (error) {
      this.#host.log.error({ error, taskId: this.id }, 'A failure cannot be told.')
      return { state: 'TASK_STATE_FAILED', message: unspeakable(this.id, this.contextId) }
    }
  }

  #setStatus(state: TaskState, message?: Message, metadata?: JsonObject): void {
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
  #markLast(artifactId: string): void {
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

  #isFull(): boolean {
    return this.#pendingBytes >= pendingLimit.bytes || this.#pending.length >= pendingLimit.events
  }

  #room(): Promise<void> {
    return new Promise((resolve) => this.#roomListeners.push(resolve))
  }

  #makeRoom(): void {
    for (const listener of this.#roomListeners.splice(0)) listener()
  }

  /** Commits at the end of this turn of the event loop; a commit under way takes the rest along when it is done. */
  #flushSoon(): void {
    if (this.#flushing !== undefined) return
    this.#immediate ??= setImmediate(() => {
      this.#immediate = undefined
      void this.#flush()
    })
  }

  /** Commits all there is. Never rejects: a run that cannot commit is lost, and says so in `#lost`. */
  #flush(): Promise<void> {
    clearImmediate(this.#immediate)
    this.#immediate = undefined
    if (this.#flushing === undefined && this.#isDirty()) this.#flushing = this.#commitAll()
    return this.#flushing ?? Promise.resolve()
  }

  /**
   * Resolves when all that was said up to now is committed, or the run is lost. What the work says meanwhile is not
   * waited for: it may never stop.
   */
  #durable(): Promise<void> {
    void this.#flush()
    if (this.#lost !== undefined || this.#flushing === undefined) return Promise.resolve()
    const list = this.#isDirty() ? this.#waiting : this.#inFlight
    return new Promise((resolve) => list.push(resolve))
  }

  #release(list: (() => void)[]): void {
    for (const listener of list.splice(0)) listener()
  }

  /** Rejects as soon as the store cannot write; the run itself goes on trying. */
  async #unlessStalled(done: Promise<void>): Promise<void> {
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
          return this.drop(ConvokeError.from(error))
        }
        this.#committed = row
        this.#keep(change.events)
        this.#release(this.#inFlight)
        this.#host.published(this)
        this.#makeRoom()
        if (this.#isSettled()) this.#notifySettled()
        if (row.worker === null) return this.#host.ended(this)
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
      repeatable: this.work.repeatable,
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
    const { store, worker, leaseMs } = this.#host
    if (!this.#created) {
      const { id, owner, contextId, messageId } = this
      const task = {
        id,
        owner,
        contextId,
        messageId,
        metadata: this.#metadata,
        request: this.#request,
        repeatable: this.work.repeatable,
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
        // A store that cannot write now holds the run back; what it has said stays here and is written later.
        if (!(error instanceof ConvokeError) || error.code !== 'unavailable') throw error
        this.#host.log.warn(
          { error, taskId: this.id, retryMs: wait },
          'The store cannot take the events of a task now.',
        )
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

  #isSettled(): boolean {
    const row = this.#committed
    if (row === undefined || this.#statusChanged) return false
    return row.worker === null || (this.#asked.length > 0 && isInterrupted(row.state))
  }

  #notifySettled(): void {
    for (const listener of this.#settledListeners.splice(0)) listener()
  }

  #startDeadline(timeoutMs: number | undefined): void {
    if (timeoutMs === undefined) return
    this.#deadline = Date.now() + timeoutMs
    const error = new ConvokeError('timeout', `The call did not end within ${this.work.timeoutMs} ms.`)
    this.#deadlineTimer = setTimeout(() => this.stop(error), timeoutMs)
  }

  #pauseDeadline(): void {
    if (this.#deadline === undefined) return
    this.#remainingMs = Math.max(1, this.#deadline - Date.now())
    this.#clearDeadline()
  }

  #clearDeadline(): void {
    clearTimeout(this.#deadlineTimer)
  }
}

/** For an end that cannot be told in its own words. */
function unspeakable(taskId: string, contextId: string): Message {
  const text = 'An internal error occurred. It is in the log of the node.'
  return { messageId: randomUUID(), taskId, contextId, role: 'ROLE_AGENT', parts: [{ text }] }
}

/** What a run lets its work see and do. */
interface Powers {
  signal(): AbortSignal
  deadline(): number | undefined
  emit(event: WorkEvent): void
  ask(question: Message, state: InterruptedState): Promise<Message>
}

class Context implements WorkContext {
  readonly taskId: string
  readonly contextId: string
  readonly attempt: number
  readonly #powers: Powers

  constructor(taskId: string, contextId: string, attempt: number, powers: Powers) {
    this.taskId = taskId
    this.contextId = contextId
    this.attempt = attempt
    this.#powers = powers
  }

  get signal(): AbortSignal {
    return this.#powers.signal()
  }

  get deadline(): number | undefined {
    return this.#powers.deadline()
  }

  emit(event: WorkEvent): void {
    this.#powers.emit(event)
  }

  ask(question: Message, state: InterruptedState = 'TASK_STATE_INPUT_REQUIRED'): Promise<Message> {
    return this.#powers.ask(question, state)
  }
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
