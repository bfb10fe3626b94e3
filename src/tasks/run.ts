/**
 * One run of a task's work: pulls its generator, writes what it says into the journal, asks its questions, and ends it
 * when it is done, stopped or too late. A full journal makes the generator wait.
 */
import { randomUUID } from 'node:crypto'
import { ConvokeError } from '../base/errors.ts'
import { logFailureOnce } from '../base/logger.ts'
import { isInterrupted, type InterruptedState, type Message } from '../protocol/a2a.ts'
import { keys } from '../protocol/extension.ts'
import type { EventRecord, TaskRow } from '../store/store.ts'
import { historyLimit, Journal, type JournalHost, type JournalOptions } from './journal.ts'
import type { Outcome, Work, WorkContext, WorkEvent } from './work.ts'

/** How long work may hold the event loop between two of its events, in milliseconds. */
const turnMs = 5

/** What a run needs from the runtime. */
export interface RunHost extends JournalHost {
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

export class Run {
  readonly id: string
  readonly contextId: string
  readonly owner: string
  readonly messageId: string
  readonly work: Work
  readonly #host: RunHost
  readonly #journal: Journal
  /** Made when the work asks for its signal: most small tools never do. */
  #controller: AbortController | undefined
  #generator: AsyncGenerator<WorkEvent, Outcome, void> | undefined
  #stop: Stop | undefined
  /** The work's own end is the task's, whatever comes now. */
  #isConcluded = false
  #graceTimer: NodeJS.Timeout | undefined
  #deadlineTimer: NodeJS.Timeout | undefined
  #deadline: number | undefined
  /** How long the run may take in all, for messages. */
  #timeoutMs: number | undefined
  #remainingMs: number | undefined
  #asked: Asked[] = []
  #askedAt = 0
  #answers: Message[] = []
  /** The work has said something that makes it a task. */
  #said = false
  /** The caller knows of the task. */
  #shown = false
  /** How it ends is decided. */
  #closed = false
  #settledListeners: (() => void)[] = []

  /** A task that nobody has seen yet. */
  static create(host: RunHost, task: NewRun, work: Work): Run {
    const run = new Run(host, work, (options) => Journal.create(options, task, task.message))
    if (work.refusal === undefined) run.#journal.setStatus('TASK_STATE_WORKING')
    return run
  }

  /**
   * Goes on with a stored task that this worker has just taken. `message` is the one that woke it, if one did;
   * `answers` are those that the work's first questions get without asking again.
   */
  static resume(host: RunHost, row: TaskRow, work: Work, message: Message | undefined, answers: Message[]): Run {
    const run = new Run(host, work, (options) => Journal.resume(options, row))
    run.#answers = answers
    if (message !== undefined) run.#journal.addMessage(message)
    if (work.refusal === undefined) {
      // Work that begins anew says everything again: what it said before no longer counts.
      const isAnew = work.repeatable || (work.resumable === true && message === undefined)
      const metadata = isAnew ? { [keys.attempt]: row.epoch } : undefined
      run.#journal.setStatus('TASK_STATE_WORKING', undefined, metadata)
    }
    return run
  }

  private constructor(host: RunHost, work: Work, open: (options: JournalOptions) => Journal) {
    this.#host = host
    this.work = work
    this.#journal = open({
      host,
      repeatable: work.repeatable,
      onCommitted: (row) => this.#committed(row),
      onLost: (error) => this.drop(error),
    })
    const { id, contextId, owner, messageId } = this.#journal
    this.id = id
    this.contextId = contextId
    this.owner = owner
    this.messageId = messageId
  }

  /** The task as last committed. Undefined before the first commit. */
  get row(): TaskRow | undefined {
    return this.#journal.row
  }

  /** Whether the last word of this run is committed, or somebody else's business. */
  get over(): boolean {
    return this.#journal.lost !== undefined || this.row?.worker === null
  }

  /** Whether the work waits for a message on the task. */
  get asking(): boolean {
    return this.#asked.length > 0
  }

  /** Whether the task's caller was asked for anything so far. */
  get hasAsked(): boolean {
    return this.asking || this.#journal.hasAnswers
  }

  /** Whether the caller has been asked, durably, and has not answered. */
  get waiting(): boolean {
    return this.asking && this.#isSettled()
  }

  /** Since when the work waits for an answer, in milliseconds since 1970; undefined while it does not. */
  get askedAt(): number | undefined {
    return this.asking ? this.#askedAt : undefined
  }

  /** Whether it is clear that the answer is a task, or committed that it is a bare message. */
  get decided(): boolean {
    if (this.#said || this.work.mayReply !== true) return true
    return this.#journal.isReply ? this.row?.state === 'MESSAGE' : this.#closed
  }

  /** From now on the caller knows the task, so it can no longer turn into a bare message. */
  show(): void {
    this.#shown = true
  }

  /** Whether a message with this id has reached the task already. */
  has(messageId: string): boolean {
    return this.#journal.has(messageId)
  }

  /** Committed events behind `after`, as far as they are at hand: undefined means that the store must be asked. */
  tailAfter(after: number): EventRecord[] | undefined {
    return this.#journal.tailAfter(after)
  }

  /** {@link tailAfter}, at most about `maxChars` of text and at least one event if there is one. */
  nextAfter(after: number, maxChars: number): EventRecord[] | undefined {
    return this.#journal.nextAfter(after, maxChars)
  }

  /** Makes the task durable. Throws `unavailable` when the store cannot write, and then nothing has happened. */
  async persist(): Promise<void> {
    await this.#unlessStalled(this.#journal.durable())
  }

  /** {@link persist}, then `prepare`, then {@link start}: the work begins even when the task is durable later than anybody waits. */
  async persistThenStart(prepare: () => Promise<void>): Promise<void> {
    const started = this.#journal.durable().then(async () => {
      if (this.#journal.lost === undefined) await prepare()
      this.start()
    })
    await this.#unlessStalled(started)
  }

  /** Starts the work. Its end shows in the task's events. */
  start(): void {
    if (this.#closed) return
    if (this.work.refusal !== undefined) return this.#finish(this.work.refusal)
    if (this.#stop !== undefined) return this.#finish(this.#stopOutcome(this.#stop.error))
    this.#timeoutMs = this.work.timeoutMs
    this.#startDeadline(this.#timeoutMs)
    this.#journal.flushSoon()
    this.#pump().catch((error: unknown) => this.#finish(this.#failure(error)))
  }

  /**
   * Resolves once the task is committed as terminal, interrupted, at rest or answered by a bare message; at once
   * if it is. Rejects when the task was lost to another worker, or could not be created.
   */
  settled(): Promise<void> {
    const { lost } = this.#journal
    if (lost !== undefined) return Promise.reject(lost)
    if (this.#isSettled()) return Promise.resolve()
    return new Promise((resolve, reject) => {
      this.#settledListeners.push(() => (this.#journal.lost === undefined ? resolve() : reject(this.#journal.lost)))
    })
  }

  /** {@link settled}; rejects, too, when the store cannot write the end now. */
  settledOrStalled(): Promise<void> {
    return this.#journal.unlessStalled(this.settled())
  }

  /**
   * Hands a message to work that waits for one. Resolves once the message is durable and the work goes on, which
   * `beforeGoingOn` comes right in front of; throws `conflict` when nothing waits.
   */
  async answer(message: Message, beforeGoingOn: () => void): Promise<void> {
    const asked = this.#asked.shift()
    if (asked === undefined) throw new ConvokeError('conflict', 'The task waits for no message.')
    const next = this.#asked[0]
    this.#journal.addMessage(message)
    if (next === undefined) this.#journal.setStatus('TASK_STATE_WORKING')
    else this.#journal.setStatus(next.state, next.question)
    // The work goes on as soon as the answer is durable, even when that is later than its sender waits.
    const goOn = (): void => {
      const over = this.#journal.lost ?? this.#stop?.error
      if (over !== undefined) return asked.reject(over)
      beforeGoingOn()
      if (next === undefined) this.#startDeadline(this.#remainingMs)
      asked.resolve(message)
    }
    const durable = this.#journal.durable()
    void durable.then(goOn)
    await this.#unlessStalled(durable)
  }

  /**
   * Stops the work: its signal aborts, and what it still says is dropped. The task ends as soon as the work has
   * ended, after the grace period at the latest. Nothing happens when the end is decided already.
   */
  stop(error: ConvokeError): void {
    if (this.#closed || this.#isConcluded || this.#stop !== undefined) return
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
    if (this.#journal.lost !== undefined) return
    this.#journal.drop(error)
    this.#close()
    this.#interrupt(error)
    this.#notifySettled()
    this.#host.ended(this)
  }

  #interrupt(error: ConvokeError): void {
    this.#controller?.abort(error)
    for (const asked of this.#asked.splice(0)) asked.reject(error)
    this.#journal.makeRoom()
    // Work that stands at a yield ends here; work that is busy ends at its next yield. What it throws while it is left
    // is nobody's any more.
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
        if (this.#journal.isFull) {
          await this.#journal.room()
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
    return new Context(this.id, this.contextId, this.#journal.epoch, {
      signal: () => this.#signal(),
      deadline: () => this.#deadline,
      limit: (timeoutMs) => this.#limit(timeoutMs),
      conclude: () => (this.#isConcluded = true),
      emit: (event) => this.#emit(event),
      ask: (question, state) => this.#ask(question, state),
    })
  }

  #signal(): AbortSignal {
    this.#controller ??= new AbortController()
    const over = this.#stop?.error ?? this.#journal.lost
    if (over !== undefined && !this.#controller.signal.aborted) this.#controller.abort(over)
    return this.#controller.signal
  }

  #ask(question: Message, state: InterruptedState): Promise<Message> {
    if (this.#stop !== undefined) return Promise.reject(this.#stop.error)
    if (this.#closed) return Promise.reject(new ConvokeError('canceled', 'The call has ended.'))
    // The history is cut at its limit, and a run that begins anew would miss the answers that were cut off.
    if (this.#journal.isHistoryFull) {
      const text = `A task may hold ${historyLimit} messages; it has asked too much.`
      return Promise.reject(new ConvokeError('too_large', text))
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
      this.#journal.setStatus(state, question)
      void this.#journal.flush()
    })
  }

  #emit(event: WorkEvent): void {
    if (this.#closed || this.#stop !== undefined) return
    switch (event.type) {
      case 'reply':
        return this.#replyWith(event.message)
      case 'artifact':
        this.#said = true
        return this.#journal.addArtifact(event.artifact, event.append ?? false, event.lastChunk ?? false)
      case 'end':
        return this.#journal.markLast(event.artifactId)
      case 'status':
        this.#said = true
        // A question stays the task's status until it is answered.
        if (this.asking) return
        if (event.message === undefined && event.isKept !== true) return this.#journal.addProgress(event.metadata)
        this.#journal.setStatus('TASK_STATE_WORKING', event.message, event.metadata)
        return this.#journal.flushSoon()
    }
  }

  /** A bare message instead of a task; when the task was shown already, its closing words. */
  #replyWith(message: Message): void {
    if (this.#said || this.#shown) return this.#finish({ state: 'TASK_STATE_COMPLETED', message })
    this.#close()
    this.#journal.setReply(message)
    this.#journal.giveUp()
  }

  #finish(outcome: Outcome): void {
    if (this.#closed) return
    this.#close()
    try {
      this.#journal.setStatus(outcome.state, outcome.message, outcome.metadata)
    } catch (error) {
      this.#host.log.error({ error, taskId: this.id }, 'What a task ended with cannot be put into JSON.')
      this.#journal.setStatus('TASK_STATE_FAILED', unspeakable(this.id, this.contextId))
    }
    this.#journal.giveUp()
  }

  #close(): void {
    this.#closed = true
    this.#clearDeadline()
    clearTimeout(this.#graceTimer)
    this.#journal.makeRoom()
  }

  #failure(error: unknown): Outcome {
    const known = ConvokeError.from(error)
    if (this.#stop === undefined) {
      if (known.code === 'internal') {
        logFailureOnce(this.#host.log, known, { error, taskId: this.id }, 'The work of a task failed.')
      }
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

  #committed(row: TaskRow): void {
    this.#host.published(this)
    if (this.#isSettled()) this.#notifySettled()
    if (row.worker === null) this.#host.ended(this)
  }

  async #unlessStalled(done: Promise<void>): Promise<void> {
    await this.#journal.unlessStalled(done)
    if (this.#journal.lost !== undefined) throw this.#journal.lost
  }

  #isSettled(): boolean {
    const { row } = this
    if (row === undefined || !this.#journal.isStatusCommitted) return false
    return row.worker === null || (this.asking && isInterrupted(row.state))
  }

  #notifySettled(): void {
    for (const listener of this.#settledListeners.splice(0)) listener()
  }

  #startDeadline(timeoutMs: number | undefined): void {
    if (timeoutMs === undefined) return
    this.#deadline = Date.now() + timeoutMs
    const error = new ConvokeError('timeout', `The call did not end within ${this.#timeoutMs} ms.`)
    this.#deadlineTimer = setTimeout(() => this.stop(error), timeoutMs)
  }

  #limit(timeoutMs: number): void {
    if (this.#closed || this.#stop !== undefined) return
    if (this.#deadline !== undefined && this.#deadline <= Date.now() + timeoutMs) return
    this.#timeoutMs = timeoutMs
    this.#clearDeadline()
    this.#startDeadline(timeoutMs)
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
  limit(timeoutMs: number): void
  conclude(): void
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

  limit(timeoutMs: number): void {
    this.#powers.limit(timeoutMs)
  }

  conclude(): void {
    this.#powers.conclude()
  }

  emit(event: WorkEvent): void {
    this.#powers.emit(event)
  }

  ask(question: Message, state: InterruptedState = 'TASK_STATE_INPUT_REQUIRED'): Promise<Message> {
    return this.#powers.ask(question, state)
  }
}
