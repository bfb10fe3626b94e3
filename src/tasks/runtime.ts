/**
 * The life of tasks: start, get, list, follow, cancel, recover. Callers come in by owner; "not yours" and "not there"
 * are the same answer. Each running task has one {@link Run}, which alone writes it; everybody else reads by cursor.
 */
import { randomUUID } from 'node:crypto'
import { ConvokeError } from '../base/errors.ts'
import type { JsonObject } from '../base/json.ts'
import type { Logger } from '../base/logger.ts'
import { isInterrupted, isTerminal, type Message, type TaskStatus, type TerminalState } from '../protocol/a2a.ts'
import type { EventRecord, ListQuery, Store, TaskRow } from '../store/store.ts'
import { holdsAnswers } from './journal.ts'
import { Run, type RunHost } from './run.ts'
import { ArtifactFold, stateOf, taskText, type SnapshotOptions } from './snapshot.ts'
import { Wakeups } from './wakeups.ts'
import type { Executor, TaskRequest, Work } from './work.ts'

export interface RuntimeOptions<Context> {
  /** The runtime uses the store; whoever opened it closes it. */
  readonly store: Store
  readonly log: Logger
  readonly execute: Executor<Context>
  /** How long a stopped tool may take before it is abandoned, in milliseconds. */
  readonly cancelGraceMs: number
  /** How many runs there may be at once. */
  readonly maxRuns: number
  /** Whether a run waits for what this message starts: it is taken in however many there are. Default: none is. */
  readonly isAwaited?: (message: Message) => boolean
  /** Whether a message whose id came before finds its task again, or starts another. */
  readonly deduplicate: boolean
  /** How long finished tasks are kept, in milliseconds. */
  readonly retentionMs: number
  /** Called with a task's id when this process goes on with a task that it did not create. */
  readonly resumed?: (taskId: string) => void
  /** How long after its end a task keeps its single events, in milliseconds. Default: 10 minutes. */
  readonly compactAfterMs?: number
  /** How long a worker holds a task without a sign of life, in milliseconds. Default: 15,000. */
  readonly leaseMs?: number
}

/** What {@link TaskRuntime.send} gives: the task, or the bare message instead of one. */
export interface Sent {
  readonly taskId: string
  /** False when the message had come before, and this is the task it started then. */
  readonly fresh: boolean
  /** For a message that went on with a task: the task as JSON as it stood then, and the seq of the last event in it. */
  readonly begin?: { readonly seq: number; readonly text: string } | undefined
  /** Resolves when the task has ended, waits for its caller, or rests. */
  settled(): Promise<void>
  /** {@link settled}, then `{"task": …}` or `{"message": …}` as JSON. */
  answer(options: SnapshotOptions): Promise<string>
  /**
   * Resolves as soon as it is clear whether a task or a bare message answers (or the signal aborts), with the message
   * as JSON if so.
   */
  decided(signal?: AbortSignal): Promise<string | undefined>
  /** Resolves once the task is durable. Throws `unavailable` when the store cannot take it, and then there is none. */
  persisted(): Promise<void>
  /** Resolves within a turn of the event loop with the bare message if there is one by then; from now on it is a task. */
  now(): Promise<string | undefined>
  /** The task as JSON, as it stands now. */
  task(options: SnapshotOptions): string | Promise<string>
}

/** What one read of a follower may hold in memory, in characters. */
const readBytes = 64 * 1024
const sweepEveryMs = 60_000
/** How many times as many runs may wait, for an answer or for each other, as may work. */
const waitingFactor = 10

export class TaskRuntime<Context> {
  readonly #options: Required<RuntimeOptions<Context>>
  readonly #store: Store
  readonly #worker = randomUUID()
  readonly #runs = new Map<string, Run>()
  /** Runs by owner and message, so that a repeat finds one that is not in the store yet. */
  readonly #byMessage = new Map<string, Run>()
  readonly #wakeups = new Wakeups()
  readonly #host: RunHost
  readonly #listeners = new Set<(taskId: string, isLast: boolean) => void>()
  #unwatch: () => void
  #heartbeat: NodeJS.Timeout
  #sweeper: NodeJS.Timeout
  #lastContext: Context | undefined
  #lastContextText = ''
  #closing: ConvokeError | undefined
  #closed: Promise<void> | undefined
  /** Nothing happens here any more; who still follows a task is let go. */
  #over = false
  #abandoned = 0
  #idle: (() => void)[] = []

  constructor(options: RuntimeOptions<Context>) {
    this.#options = {
      compactAfterMs: 600_000,
      leaseMs: 15_000,
      resumed: () => {},
      isAwaited: () => false,
      ...options,
    }
    this.#store = options.store
    this.#host = {
      store: options.store,
      log: options.log,
      worker: this.#worker,
      leaseMs: this.#options.leaseMs,
      graceMs: options.cancelGraceMs,
      published: (run) => this.#published(run.id, run.row !== undefined && isTerminal(run.row.state)),
      ended: (run) => this.#ended(run),
      abandoned: (run) => {
        this.#abandoned++
        this.#options.log.warn(
          { taskId: run.id },
          'A tool did not stop in time and was abandoned; its result is discarded.',
        )
      },
    }
    this.#unwatch = options.store.watch((taskId) => this.#published(taskId, false))
    this.#heartbeat = setInterval(() => void this.#beat(), this.#options.leaseMs / 3)
    this.#heartbeat.unref()
    this.#sweeper = setInterval(() => void this.sweep(), sweepEveryMs)
    this.#sweeper.unref()
  }

  /** How many tasks run here, and how many tools were abandoned since the start. */
  get stats(): { running: number; abandoned: number } {
    return { running: this.#runs.size, abandoned: this.#abandoned }
  }

  /** Calls `listener` with a task's id whenever events of it were committed, and whether they are its last. Returns how to stop. */
  onPublished(listener: (taskId: string, isLast: boolean) => void): () => void {
    this.#listeners.add(listener)
    return () => this.#listeners.delete(listener)
  }

  /**
   * Takes a message in: starts a task, or goes on with the one it names. Resolves once the task is durable, or at
   * once for repeatable work. A message that came before (same owner and `messageId`) finds its task again.
   *
   * Throws `task_not_found`, `unsupported_operation` (the task has ended, or runs and asks nothing), `invalid_params`
   * (the contextId is another task's), `rate_limited`, `unavailable`.
   */
  async send(request: TaskRequest<Context>, metadata: JsonObject | undefined): Promise<Sent> {
    if (this.#closing !== undefined) throw this.#closing
    const { owner, message } = request
    if (message.taskId !== undefined) return this.#continue(owner, message.taskId, message)
    // A name of its own makes every message a new one.
    const messageId = this.#options.deduplicate ? message.messageId : randomUUID()
    const key = messageKey(owner, messageId)
    const running = this.#byMessage.get(key)
    if (running !== undefined) return this.#sent(running, false)
    const known = await this.#store.loadByMessage(owner, messageId)
    if (known !== undefined) return this.#repeat(known)
    // While the store was asked another request may have brought the same message.
    const rival = this.#byMessage.get(key)
    if (rival !== undefined) return this.#sent(rival, false)
    this.#admit(message)
    const id = randomUUID()
    const contextId = message.contextId ?? randomUUID()
    const mine = address(message, id, contextId)
    const work = this.#options.execute({
      request: replaceMessage(request, mine),
      taskId: id,
      contextId,
      message: mine,
      history: [mine],
    })
    const run = Run.create(
      this.#host,
      {
        id,
        contextId,
        owner,
        messageId,
        message: mine,
        metadata: metadata === undefined ? null : JSON.stringify(metadata),
        request: this.#storedRequest(request),
      },
      work,
    )
    this.#add(run)
    if (!work.repeatable) await run.persist()
    run.start()
    return this.#sent(run, true)
  }

  /** The task as JSON. Throws `task_not_found`. */
  async get(owner: string, id: string, options: SnapshotOptions = {}): Promise<string> {
    const row = await this.#row(owner, id)
    return taskText(row, await this.#artifacts(row), options)
  }

  /** Any task as JSON, whoever owns it, and the seq of its last event; for what the node itself sends out. Throws `task_not_found`. */
  async peek(id: string): Promise<{ seq: number; text: string }> {
    const row = this.#runs.get(id)?.row ?? (await this.#store.load(id))
    if (row === undefined) throw notFound(id)
    return { seq: row.lastSeq, text: taskText(row, await this.#artifacts(row)) }
  }

  /** One page of the owner's tasks as JSON texts, newest status first; `next` is where the next page begins, if there is one. */
  async list(
    query: ListQuery,
    options: SnapshotOptions & { includeArtifacts: boolean },
  ): Promise<{ tasks: string[]; total: number; next: { statusAt: number; id: string } | undefined }> {
    // One row more than asked for tells whether there is another page.
    const { rows, total } = await this.#store.list({ ...query, limit: query.limit + 1 })
    const page = rows.slice(0, query.limit)
    const tasks: string[] = []
    for (const row of page) {
      tasks.push(taskText(row, options.includeArtifacts ? await this.#artifacts(row) : undefined, options))
    }
    const last = rows.length > page.length ? page[page.length - 1] : undefined
    return { tasks, total, next: last === undefined ? undefined : { statusAt: last.statusAt, id: last.id } }
  }

  /** The task's row for its owner. Throws `task_not_found`; a bare message is no task. */
  async #row(owner: string, id: string): Promise<TaskRow> {
    const run = this.#runs.get(id)
    const row = run?.owner === owner && run.row !== undefined ? run.row : await this.#store.load(id, owner)
    if (row === undefined || row.state === 'MESSAGE') throw notFound(id)
    return row
  }

  /** What following may begin with: the newest state of the task, and where it stands. Throws `task_not_found`. */
  async snapshot(owner: string, id: string): Promise<{ seq: number; state: string; text: string }> {
    const row = await this.#row(owner, id)
    return { seq: row.lastSeq, state: row.state, text: taskText(row, await this.#artifacts(row)) }
  }

  /** The task's state and last seq. Throws `task_not_found`. */
  async state(owner: string, id: string): Promise<{ state: string; lastSeq: number }> {
    const { state, lastSeq } = await this.#row(owner, id)
    return { state, lastSeq }
  }

  /**
   * The task's events behind `after` as they are committed, in order, none twice, in batches of bounded size. Ends
   * behind the terminal event, or when the signal aborts, and with `untilRest` also when nobody works on the task any
   * more. A follower holds a cursor, so one that reads slowly costs no memory. Where single events were compacted away,
   * one snapshot event stands for them. Throws `task_not_found`.
   */
  async *follow(
    owner: string,
    id: string,
    after: number,
    signal: AbortSignal,
    { untilRest = false } = {},
  ): AsyncGenerator<EventRecord[], void, void> {
    await this.#row(owner, id)
    let cursor = after
    while (!signal.aborted && !this.#over) {
      const run = this.#runs.get(id)
      const near = run?.nextAfter(cursor, readBytes)
      if (near?.length === 0) {
        if (untilRest && run?.waiting === true) return
        await this.#wakeups.wait(id, signal).woken
        continue
      }
      const waiter = run === undefined ? this.#wakeups.wait(id, signal) : undefined
      const events = near ?? (await this.#store.read(id, cursor, readBytes))
      const last = events[events.length - 1]
      if (last !== undefined) {
        waiter?.cancel()
        yield events
        cursor = last.seq
        const state = stateOf(last)
        if (state !== undefined && isTerminal(state)) return
        continue
      }
      const row = await this.#store.load(id, owner)
      const isOver =
        row === undefined || ((isTerminal(row.state) || (untilRest && row.worker === null)) && row.lastSeq <= cursor)
      if (isOver) waiter?.cancel()
      if (row === undefined)
        throw new ConvokeError('task_not_found', `Task "${id}" was cleared away while it was read.`)
      if (isOver) return
      if (row.artifacts !== null) {
        waiter?.cancel()
        yield [{ seq: row.lastSeq, text: `{"task":${taskText(row, row.artifacts)}}` }]
        return
      }
      await waiter?.woken
    }
  }

  /**
   * Stops a task and resolves with it as JSON once it has ended. Repeated while the first is under way it waits for the
   * same end. Throws `task_not_found`, and `task_not_cancelable` when the task had ended before.
   */
  async cancel(owner: string, id: string): Promise<string> {
    const reason = new ConvokeError('canceled', 'The task was cancelled by its caller.')
    const run = this.#runs.get(id)
    if (run?.owner === owner) {
      run.stop(reason)
      try {
        await run.settledOrStalled()
      } catch (error) {
        // A run that is lost meanwhile leaves its task to another worker; the row says what became of it.
        if (!run.over) throw error
      }
    } else {
      const row = await this.#row(owner, id)
      if (isTerminal(row.state)) throw notCancelable(id, row.state)
      await this.#cancelElsewhere(row, reason)
    }
    const row = await this.#row(owner, id)
    if (row.state !== 'TASK_STATE_CANCELED') throw notCancelable(id, row.state)
    return taskText(row, await this.#artifacts(row))
  }

  /** A task that does not run here: at rest it is ended at once, held by another worker that one is asked. */
  async #cancelElsewhere(row: TaskRow, reason: ConvokeError): Promise<void> {
    let asked = false
    for (;;) {
      const lease = { now: Date.now(), leaseMs: this.#options.leaseMs }
      const taken = await this.#store.acquire(row.id, this.#worker, lease)
      if (taken !== undefined) return this.#end(taken, reason, 'TASK_STATE_CANCELED')
      if (!asked) await this.#store.requestCancel(row.id)
      asked = true
      // The other worker hears of it with its next heartbeat, if it lives; the hint that it is done may be lost.
      const waiter = this.#wakeups.wait(row.id, AbortSignal.timeout(1000))
      const now = await this.#store.load(row.id)
      if (now === undefined || isTerminal(now.state)) return waiter.cancel()
      await waiter.woken
    }
  }

  /**
   * Takes over the tasks of workers that are gone: repeatable ones run again, one that waits for an answer goes to rest
   * until it comes; resumable ones run again unless they had asked; any other fails with `worker_lost`. Resolves with how
   * many there were.
   */
  async recover(): Promise<number> {
    let count = 0
    for (;;) {
      const lease = { now: Date.now(), leaseMs: this.#options.leaseMs, limit: 100 }
      const rows = await this.#store.claim(this.#worker, lease)
      for (const row of rows) await this.#recoverOne(row)
      count += rows.length
      if (rows.length < lease.limit) return count
    }
  }

  async #recoverOne(row: TaskRow): Promise<void> {
    if (row.repeatable && isInterrupted(row.state)) {
      await this.#store.commit(row.id, row, { release: true })
      return
    }
    if (row.cancelRequested) {
      const error = new ConvokeError('canceled', 'The task was cancelled by its caller.')
      return this.#end(row, error, 'TASK_STATE_CANCELED')
    }
    const text = 'The node stopped while this ran. It may have run in part, so it was not run again.'
    const lost = new ConvokeError('worker_lost', text)
    const asked = hasAsked(row)
    const run = this.#resume(row, undefined, (work) =>
      row.repeatable || (work.resumable === true && !asked) ? work : refused(work, lost, 'TASK_STATE_FAILED'),
    )
    run.start()
    if (run.work.refusal === undefined) return
    try {
      await run.settledOrStalled()
    } catch (error) {
      // Its end is decided, and written when the store takes it; nobody needs to wait for that.
      this.#options.log.warn({ error, taskId: row.id }, 'The end of a lost task cannot be stored now.')
    }
  }

  /** Ends a task that nobody works on, without running its work. Throws `unavailable` when that cannot be stored now. */
  async #end(row: TaskRow, error: ConvokeError, state: TerminalState): Promise<void> {
    const run = this.#resume(row, undefined, (work) => refused(work, error, state))
    run.start()
    await run.settledOrStalled()
  }

  /** Deletes what is past its time and compacts what has ended; runs by itself every minute. */
  async sweep(): Promise<void> {
    const now = Date.now()
    const step = 200
    const late = new ConvokeError('timeout', 'The question was not answered in time.')
    for (const run of [...this.#runs.values()]) {
      if (run.askedAt !== undefined && run.askedAt < now - this.#options.retentionMs) run.stop(late)
    }
    try {
      const before = now - this.#options.retentionMs
      while ((await this.#store.expire(before, step)) === step) await nextTurn()
      while ((await this.#store.agents.expire(before, step)) === step) await nextTurn()
      for (;;) {
        const ids = await this.#store.compactable(now - this.#options.compactAfterMs, step)
        for (const id of ids) await this.#store.compact(id, await this.#foldStored(id))
        if (ids.length < step) return
        await nextTurn()
      }
    } catch (error) {
      this.#options.log.warn(
        { error },
        'Old tasks and conversations could not be cleared away; trying again in a minute.',
      )
    }
  }

  /**
   * Takes no more messages, lets running tasks go on for `drainMs`, then cancels the rest and waits for their end, but for
   * resumable ones, which are left to the next process; `leaving` is called right before. Tasks at rest stay as they are.
   */
  close(drainMs: number, leaving = (): void => {}): Promise<void> {
    this.#closing ??= new ConvokeError('unavailable', 'The node is shutting down. Try again in a moment.')
    this.#closed ??= this.#drain(drainMs, leaving)
    return this.#closed
  }

  async #drain(drainMs: number, leaving: () => void): Promise<void> {
    // Work that waits for an answer cannot end by itself any more: answers are refused from now on.
    for (const run of [...this.#runs.values()]) if (run.asking) this.#leave(run)
    const timers = [
      setTimeout(() => {
        leaving()
        for (const run of [...this.#runs.values()]) this.#leave(run)
      }, drainMs),
      // The grace period bounds the wait for tools; this bounds the wait for a store that cannot write.
      setTimeout(
        () => {
          for (const run of [...this.#runs.values()]) run.drop(new ConvokeError('unavailable', 'The node was stopped.'))
        },
        drainMs + this.#options.cancelGraceMs + 2000,
      ),
    ]
    if (this.#runs.size > 0) await new Promise<void>((resolve) => this.#idle.push(resolve))
    for (const timer of timers) clearTimeout(timer)
    clearInterval(this.#heartbeat)
    clearInterval(this.#sweeper)
    this.#unwatch()
    await nextTurn()
    this.#over = true
    this.#wakeups.wakeAll()
  }

  /** Stops a run with the node. What the next process can go on with stays as it is: a question stays asked. */
  #leave(run: Run): void {
    const { repeatable, resumable = false } = run.work
    const goesOn = run.asking ? repeatable : resumable && !run.hasAsked
    if (goesOn && this.#store.kind !== 'memory') run.drop(new ConvokeError('unavailable', 'The node was stopped.'))
    else run.stop(new ConvokeError('canceled', 'The node was stopped.'))
  }

  async #continue(owner: string, id: string, message: Message): Promise<Sent> {
    const row = await this.#row(owner, id)
    if (message.contextId !== undefined && message.contextId !== row.contextId) {
      const text = `Task "${id}" belongs to another context than "${message.contextId}".`
      throw new ConvokeError('invalid_params', text, { issues: [{ path: '/message/contextId', message: text }] })
    }
    const mine = address(message, id, row.contextId)
    const run = this.#runs.get(id)
    if (this.#options.deduplicate) {
      if (run?.has(message.messageId) === true) return this.#sent(run, false)
      if (run === undefined && hasMessage(row, message.messageId)) return this.#repeat(row)
    }
    if (isTerminal(row.state)) {
      throw new ConvokeError(
        'unsupported_operation',
        `Task "${id}" has ended (${row.state}) and takes no more messages.`,
      )
    }
    if (run !== undefined) {
      if (!run.asking) throw new ConvokeError('unsupported_operation', `Task "${id}" is running and asks for nothing.`)
      // Put together before the work goes on, so that nothing stands both in it and behind it.
      let begin: Sent['begin']
      await run.answer(mine, () => (begin = snapshotNow(run)))
      return this.#sent(run, true, begin ?? (await this.peek(id)))
    }
    this.#admit(message)
    const taken = await this.#store.acquire(id, this.#worker, { now: Date.now(), leaseMs: this.#options.leaseMs })
    if (taken === undefined) throw new ConvokeError('unavailable', `Task "${id}" is busy on another replica.`)
    const resumed = this.#resume(taken, mine)
    // A store that cannot write now is told to the sender; the work begins all the same once the message is durable.
    let begin: Sent['begin']
    await resumed.persistThenStart(async () => {
      begin = await this.peek(id)
    })
    return this.#sent(resumed, true, begin)
  }

  /** What the store keeps of a request. The context is the same object for all calls of a caller, mostly. */
  #storedRequest({ metadata, context }: TaskRequest<Context>): string {
    if (context !== this.#lastContext) {
      this.#lastContext = context
      this.#lastContextText = JSON.stringify(context)
    }
    const text = this.#lastContextText
    return metadata === undefined ? `{"context":${text}}` : `{"metadata":${JSON.stringify(metadata)},"context":${text}}`
  }

  /** A new run of a task that this worker has just taken; `message` is the one that woke it. */
  #resume(row: TaskRow, message: Message | undefined, change = (work: Work): Work => work): Run {
    const history = JSON.parse(row.history) as Message[]
    const { message: lastWords } = JSON.parse(row.status) as TaskStatus
    if (lastWords !== undefined) history.push(lastWords)
    if (message !== undefined) history.push(message)
    const first = history[0]
    if (first === undefined) throw new ConvokeError('internal', `Task ${row.id} has no first message.`)
    const stored = JSON.parse(row.request) as { metadata?: JsonObject; context: Context }
    const { metadata, context } = stored
    const request: TaskRequest<Context> = { owner: row.owner, message: first, metadata, context }
    const { id: taskId, contextId } = row
    const work = change(this.#options.execute({ request, taskId, contextId, message: message ?? first, history }))
    // Repeatable work begins at its beginning, and its questions were answered already.
    const answers = work.repeatable ? history.slice(1).filter(({ role }) => role === 'ROLE_USER') : []
    const run = Run.resume(this.#host, row, work, message, answers)
    run.show()
    this.#add(run)
    this.#options.resumed(taskId)
    return run
  }

  #repeat(row: TaskRow): Sent {
    const reply = row.reply ?? undefined
    const decided = (): Promise<string | undefined> => Promise.resolve(reply)
    const task = (options: SnapshotOptions): Promise<string> => this.get(row.owner, row.id, options)
    return {
      taskId: row.id,
      fresh: false,
      settled: () => Promise.resolve(),
      answer: async (options) => (reply === undefined ? `{"task":${await task(options)}}` : `{"message":${reply}}`),
      decided,
      now: decided,
      persisted: () => Promise.resolve(),
      task,
    }
  }

  #sent(run: Run, fresh: boolean, begin?: Sent['begin']): Sent {
    return new SentToRun(run, fresh, begin, this.#wakeups, (options) => this.#snapshotOf(run, options))
  }

  #snapshotOf(run: Run, options: SnapshotOptions): string | Promise<string> {
    const { row } = run
    if (row === undefined) return run.persist().then(() => this.get(run.owner, run.id, options))
    const tail = run.tailAfter(0)
    if (tail === undefined) return this.#artifacts(row).then((artifacts) => taskText(row, artifacts, options))
    return taskText(row, foldOf(tail), options)
  }

  async #artifacts(row: TaskRow): Promise<string> {
    if (row.artifacts !== null) return row.artifacts
    const tail = this.#runs.get(row.id)?.tailAfter(0)
    if (tail !== undefined) return foldOf(tail)
    return this.#foldStored(row.id, row.lastSeq)
  }

  async #foldStored(id: string, upTo = Infinity): Promise<string> {
    const fold = new ArtifactFold()
    for (let cursor = 0; cursor < upTo;) {
      const events = await this.#store.read(id, cursor, readBytes * 16)
      const last = events[events.length - 1]
      if (last === undefined) break
      fold.add(last.seq <= upTo ? events : events.filter((event) => event.seq <= upTo))
      cursor = last.seq
    }
    return fold.toText()
  }

  #admit(message: Message): void {
    const { maxRuns, isAwaited } = this.#options
    if (this.#runs.size < maxRuns) return
    // Who waits for an answer does not work; but that is not without a limit, either.
    let waiting = 0
    for (const run of this.#runs.values()) if (run.asking) waiting++
    if (this.#runs.size - waiting < maxRuns && waiting < maxRuns * waitingFactor) return
    // The run that waits for this one keeps its place meanwhile: refused, they would wait for each other.
    if (this.#runs.size < maxRuns * waitingFactor && isAwaited(message)) return
    const text = `The node runs ${this.#runs.size} tasks, which is all it may. Try again later.`
    throw new ConvokeError('rate_limited', text, { retryAfterMs: 1000 })
  }

  #add(run: Run): void {
    this.#runs.set(run.id, run)
    this.#byMessage.set(messageKey(run.owner, run.messageId), run)
  }

  #ended(run: Run): void {
    if (this.#runs.get(run.id) === run) this.#runs.delete(run.id)
    const key = messageKey(run.owner, run.messageId)
    if (this.#byMessage.get(key) === run) this.#byMessage.delete(key)
    this.#wakeups.wake(run.id)
    if (this.#runs.size === 0) for (const resolve of this.#idle.splice(0)) resolve()
  }

  #published(taskId: string, isLast: boolean): void {
    this.#wakeups.wake(taskId)
    for (const listener of this.#listeners) listener(taskId, isLast)
  }

  async #beat(): Promise<void> {
    try {
      // First what is ours: a lease that ran out while this process was busy is still nobody else's.
      if (this.#runs.size > 0) {
        const ids = await this.#store.heartbeat(this.#worker, { now: Date.now(), leaseMs: this.#options.leaseMs })
        const canceled = new ConvokeError('canceled', 'The task was cancelled by its caller.')
        for (const id of ids) this.#runs.get(id)?.stop(canceled)
      }
      // Then workers that died since the start, and runs of this one that were lost.
      if (this.#closing === undefined) await this.recover()
    } catch (error) {
      this.#options.log.warn({ error }, 'The leases of running tasks could not be renewed.')
    }
  }
}

/** What became of a message whose task runs here. */
class SentToRun implements Sent {
  readonly taskId: string
  readonly fresh: boolean
  readonly begin: Sent['begin']
  readonly task: Sent['task']
  readonly #run: Run
  readonly #wakeups: Wakeups

  constructor(run: Run, fresh: boolean, begin: Sent['begin'], wakeups: Wakeups, task: Sent['task']) {
    this.taskId = run.id
    this.fresh = fresh
    this.begin = begin
    this.task = task
    this.#run = run
    this.#wakeups = wakeups
  }

  settled(): Promise<void> {
    return this.#run.settled()
  }

  async answer(options: SnapshotOptions): Promise<string> {
    await this.#run.settled()
    const reply = this.#reply()
    return reply === undefined ? `{"task":${await this.task(options)}}` : `{"message":${reply}}`
  }

  async decided(signal?: AbortSignal): Promise<string | undefined> {
    const run = this.#run
    while (!run.over && signal?.aborted !== true && !(run.decided && run.row !== undefined)) {
      await this.#wakeups.wait(run.id, signal).woken
    }
    run.show()
    if (run.row === undefined && signal?.aborted !== true) await run.settled()
    return this.#reply()
  }

  async now(): Promise<string | undefined> {
    if (!this.#run.decided) await nextTurn()
    this.#run.show()
    await this.#run.persist()
    return this.#reply()
  }

  persisted(): Promise<void> {
    return this.#run.persist()
  }

  #reply(): string | undefined {
    return this.#run.row?.reply ?? undefined
  }
}

/** The message as part of a task. Field by field, because spreading makes objects that are slow to read and to write. */
function address(message: Message, taskId: string, contextId: string): Message {
  const { messageId, role, parts, metadata, extensions, referenceTaskIds } = message
  const mine: Message = { messageId, contextId, taskId, role, parts }
  if (metadata !== undefined) mine.metadata = metadata
  if (extensions !== undefined) mine.extensions = extensions
  if (referenceTaskIds !== undefined) mine.referenceTaskIds = referenceTaskIds
  return mine
}

/** The task as it is committed, if all of it is at hand. */
function snapshotNow(run: Run): Sent['begin'] {
  const { row } = run
  const tail = run.tailAfter(0)
  if (row === undefined || tail === undefined) return undefined
  return { seq: row.lastSeq, text: taskText(row, foldOf(tail)) }
}

function foldOf(events: readonly EventRecord[]): string {
  const fold = new ArtifactFold()
  fold.add(events)
  return fold.toText()
}

/** The work as one that ends so before it begins. */
function refused(work: Work, error: ConvokeError, state: TerminalState): Work {
  return { ...work, refusal: { ...work.fail(error), state } }
}

/** Whether the task waits for an answer of its caller, or has had one. */
function hasAsked(row: TaskRow): boolean {
  return isInterrupted(row.state) || holdsAnswers(JSON.parse(row.history) as Message[])
}

/** Whether the message has reached the task already. */
function hasMessage(row: TaskRow, messageId: string): boolean {
  return (JSON.parse(row.history) as Message[]).some((known) => known.messageId === messageId)
}

function replaceMessage<Context>(request: TaskRequest<Context>, message: Message): TaskRequest<Context> {
  const { owner, metadata, context } = request
  return { owner, message, metadata, context }
}

function messageKey(owner: string, messageId: string): string {
  // The length in front keeps an owner and a message apart, whatever is in them.
  return `${owner.length} ${owner} ${messageId}`
}

function notFound(id: string): ConvokeError {
  return new ConvokeError('task_not_found', `Task "${id.slice(0, 100)}" was not found.`)
}

function notCancelable(id: string, state: string): ConvokeError {
  return new ConvokeError('task_not_cancelable', `Task "${id}" has ended (${state}) and cannot be cancelled.`)
}

function nextTurn(): Promise<void> {
  return new Promise((resolve) => setImmediate(resolve))
}
