/**
 * One task's events as one stream, however often the connection is cut: none is lost and none comes twice. Peers that
 * number their events go on behind the last one. Any other is asked for the task as it stands, and what the reader has
 * not seen of it is told as events.
 */
import { abortReason, firstOf, pause } from '../base/abort.ts'
import { isInterrupted, isTerminal, type Artifact, type StreamResponse, type Task } from '../protocol/a2a.ts'
import { keys } from '../protocol/extension.ts'
import { PeerError, toPeerError } from './errors.ts'
import type { PeerEvent } from './peer.ts'
import { longestRetryAfterMs } from './retry.ts'
import type { EventBatches } from './transport.ts'

export interface FollowOptions {
  readonly peer: string
  readonly signal: AbortSignal | undefined
  /** Aborts when the client is closed, which ends its requests; this ends the pauses between them. */
  readonly closing: AbortSignal
  /** Ends where the task waits for its caller, too. */
  readonly untilRest: boolean
  /** Sends the message that begins the stream. Default: the task is there already, and its stream is opened. */
  readonly send?: (() => Promise<EventBatches>) | undefined
  /** The stream of a task again, behind an event if one is named. */
  readonly resume: (taskId: string, lastEventId: number | undefined) => Promise<EventBatches>
  /** The task as it stands. */
  readonly get: (taskId: string) => Promise<Task>
  /** Whether the message may be sent again before the stream has named its task. */
  readonly mayResend: boolean
  /** The seq of the last event that the reader has already. */
  readonly lastEventId?: number | undefined
  readonly taskId?: string | undefined
  /** Whether the peer numbers the events of a task, so that a stream can go on behind one. What others put there means nothing. */
  readonly hasIds: boolean
}

/** How often in a row a peer may fail before anything new came. */
const maxFailures = 6
/** A connection that held for so long is no failure, however silent it was: something on the way ends long ones. */
const steadyMs = 5_000
const firstPauseMs = 100
const longestPauseMs = 5_000

/** Throws PeerError when the stream is cut and cannot be had again. */
export async function* follow(options: FollowOptions): AsyncGenerator<PeerEvent, void, void> {
  const seen = new Seen(options)
  let failures = 0
  // Times in a row that nothing new came: a peer that cannot stream is asked again and again, ever more slowly.
  let rounds = 0
  let opened = await begin(options, seen)
  while (opened !== undefined) {
    let cut: PeerError | undefined
    const openedAt = Date.now()
    try {
      // The first event after a cut may be the task as it stands; of an opened stream it is the task as it begins.
      for await (const batch of opened) {
        for (const event of batch) {
          for (const news of seen.take(event)) {
            failures = 0
            rounds = 0
            yield news
          }
          if (seen.isOver(options.untilRest)) return
        }
      }
    } catch (error) {
      cut = toPeerError(error, options.peer)
    }
    opened = undefined
    throwIfAborted(options.signal)
    if (cut !== undefined && !isCut(cut)) throw toPeerError(cut, options.peer)
    if (seen.taskId === undefined) cut ??= new PeerError('network', options.peer, 'Its stream ended without a task.')
    else if (Date.now() - openedAt >= steadyMs) failures = rounds = 0
    while (opened === undefined) {
      if (cut !== undefined && ++failures > maxFailures) throw cutError(options.peer, seen, cut)
      if (cut instanceof PeerError && pauseOf(cut) > longestRetryAfterMs) throw cut
      await pauseBetween(++rounds, cut, options)
      try {
        opened = await again(options, seen, cut)
      } catch (error) {
        throwIfAborted(options.signal)
        if (!isCut(error)) throw error
        cut = toPeerError(error, options.peer)
      }
    }
  }
}

/** The first stream; undefined where there is nothing left to follow. */
async function begin(options: FollowOptions, seen: Seen): Promise<EventBatches | undefined> {
  const { send, get, lastEventId, hasIds } = options
  if (send !== undefined) return send()
  const taskId = options.taskId ?? ''
  try {
    return await options.resume(taskId, hasIds ? lastEventId : undefined)
  } catch (error) {
    if (!isRefusal(error)) throw error
    const task = await get(taskId)
    // With the last event at hand, nothing was missed of a task that has ended.
    if (hasIds && lastEventId !== undefined && isTerminal(task.status.state)) return undefined
    if (lastEventId !== undefined) seen.expectSnapshot()
    return single(task)
  }
}

async function again(options: FollowOptions, seen: Seen, cut: unknown): Promise<EventBatches> {
  const { taskId } = seen
  if (taskId === undefined) {
    if (options.mayResend && options.send !== undefined) return options.send()
    throw lostStart(options.peer, cut)
  }
  seen.expectSnapshot()
  try {
    return await options.resume(taskId, options.hasIds ? seen.lastId : undefined)
  } catch (error) {
    // A task that has ended, or a peer without subscriptions: the task itself says what was missed.
    if (!isRefusal(error)) throw error
    return single(await options.get(taskId))
  }
}

/** Whether the peer answered that it will not, or cannot. */
function isRefusal(error: unknown): boolean {
  return error instanceof PeerError && error.kind === 'protocol'
}

async function* single(task: Task): EventBatches {
  yield await Promise.resolve([{ event: { task } }])
}

/** A request that was not answered in time is as good as a cut: it was ours, not the caller's limit. */
const cuts: ReadonlySet<string> = new Set(['network', 'unavailable', 'rate_limited', 'timeout'])

function isCut(error: unknown): boolean {
  return error instanceof PeerError && error.retryable && cuts.has(error.code)
}

/** The failure of a message that may not be sent again, though nobody knows whether it arrived. */
export function lostStart(peer: string, cause: unknown): PeerError {
  const text =
    'The connection broke before an answer came. The work may have begun; it is not sent again, because this peer may do it twice.'
  const attempt = cause instanceof PeerError ? cause.attempt : undefined
  return new PeerError('network', peer, text, {
    retryable: false,
    cause,
    ...(attempt === undefined ? {} : { attempt }),
  })
}

function cutError(peer: string, seen: Seen, cause: unknown): PeerError {
  const text = `The stream was cut ${maxFailures} times without anything new; the task may go on without us.`
  return new PeerError('network', peer, text, {
    cause,
    ...(seen.taskId === undefined ? {} : { taskId: seen.taskId }),
  })
}

/** What the peer asked for, in milliseconds. */
function pauseOf(cut: unknown): number {
  return cut instanceof PeerError ? (cut.retryAfterMs ?? 0) : 0
}

async function pauseBetween(round: number, cut: unknown, { signal, closing }: FollowOptions): Promise<void> {
  const askedMs = pauseOf(cut)
  // The first time at once: most cuts are a proxy's timeout, or a replica that goes.
  const ms =
    round === 1 && askedMs === 0
      ? 0
      : Math.max(askedMs, Math.min(firstPauseMs * 2 ** round, longestPauseMs) * (0.5 + Math.random() / 2))
  const stop = firstOf(signal, closing)
  if (ms > 0) await pause(ms, stop.signal, { keepAlive: true })
  stop.end()
  throwIfAborted(stop.signal)
}

function throwIfAborted(signal: AbortSignal | undefined): void {
  if (signal?.aborted === true) throw abortReason(signal)
}

/** What the reader has of an artifact: how many parts, and how much text is in the last one and in all of them. */
interface Extent {
  readonly parts: number
  readonly lastText: number
  readonly text: number
  /** Which run of the tool it is of. */
  readonly attempt: number
}

/** What the reader has seen of a task, in a few numbers. */
export class Seen {
  taskId: string | undefined
  lastId: number | undefined
  #state = ''
  #statusKey = ''
  #isMessage = false
  #snapshotExpected = false
  readonly #hasIds: boolean
  readonly #artifacts = new Map<string, Extent>()

  constructor({ taskId, lastEventId, hasIds }: Pick<FollowOptions, 'taskId' | 'lastEventId' | 'hasIds'>) {
    this.taskId = taskId
    this.lastId = lastEventId
    this.#hasIds = hasIds
  }

  isOver(untilRest: boolean): boolean {
    return this.#isMessage || isTerminal(this.#state) || (untilRest && isInterrupted(this.#state))
  }

  /** The next `task` event is the task as it stands, of which the reader may have a part. */
  expectSnapshot(): void {
    this.#snapshotExpected = true
  }

  /** What of an event is new to the reader. */
  take({ id: given, event }: PeerEvent): PeerEvent[] {
    const taskId = taskIdOf(event)
    // What an agent says of another task is not ours, and its end is not our end.
    if (this.taskId !== undefined && taskId !== undefined && taskId !== this.taskId) return []
    const id = this.#hasIds ? given : undefined
    if (id !== undefined) {
      if (this.lastId !== undefined && id <= this.lastId && event.task === undefined) return []
      this.lastId = Math.max(id, this.lastId ?? 0)
    }
    const known = this.taskId !== undefined && this.#snapshotExpected
    this.#note(event)
    if (event.task !== undefined && known) {
      return this.#missing(event.task).map((news) => (id === undefined ? { event: news } : { id, event: news }))
    }
    this.#count(event)
    return [id === undefined ? { event } : { id, event }]
  }

  #note(event: StreamResponse): void {
    if (event.message !== undefined) this.#isMessage = true
    this.taskId ??= taskIdOf(event)
    const status = event.task?.status ?? event.statusUpdate?.status
    if (status !== undefined) this.#state = status.state
  }

  #count(event: StreamResponse): void {
    const { task, statusUpdate, artifactUpdate } = event
    if (task !== undefined) {
      this.#statusKey = keyOf(task.status)
      this.#artifacts.clear()
      for (const artifact of task.artifacts ?? []) this.#artifacts.set(artifact.artifactId, extentOf(artifact))
    }
    if (statusUpdate !== undefined) {
      this.#statusKey = keyOf(statusUpdate.status)
      // The tool runs anew, and all that it said before is void.
      if (statusUpdate.metadata?.[keys.attempt] !== undefined) this.#artifacts.clear()
    }
    if (artifactUpdate !== undefined) {
      const { artifact, append } = artifactUpdate
      const before = append === true ? this.#artifacts.get(artifact.artifactId) : undefined
      this.#artifacts.set(artifact.artifactId, add(before, extentOf(artifact)))
    }
  }

  /** The task as it stands, as the events that the reader lacks. */
  #missing(task: Task): StreamResponse[] {
    this.#snapshotExpected = false
    const { id: taskId, contextId } = task
    const events: StreamResponse[] = []
    for (const artifact of task.artifacts ?? []) {
      const update = this.#lacking(artifact)
      if (update !== undefined) events.push({ artifactUpdate: { taskId, contextId, ...update } })
      this.#artifacts.set(artifact.artifactId, extentOf(artifact))
    }
    const key = keyOf(task.status)
    if (key !== this.#statusKey) events.push({ statusUpdate: { taskId, contextId, status: task.status } })
    this.#statusKey = key
    return events
  }

  #lacking(artifact: Artifact): { artifact: Artifact; append: boolean } | undefined {
    const has = this.#artifacts.get(artifact.artifactId)
    if (has === undefined) return { artifact, append: false }
    const now = extentOf(artifact)
    const { parts } = artifact
    const [only] = parts
    // Some agents put all text that they append into one part, behind what is there.
    if (now.parts < has.parts && now.parts === 1 && only?.text !== undefined && has.text > 0 && now.text >= has.text) {
      return now.text === has.text ? undefined : appended(artifact, [{ ...only, text: only.text.slice(has.text) }])
    }
    if (now.parts < has.parts || now.attempt !== has.attempt) return { artifact, append: false }
    const last = parts[has.parts - 1]
    const isGrown = last?.text !== undefined && has.lastText > 0 && last.text.length > has.lastText
    const grown = isGrown ? [{ ...last, text: last.text?.slice(has.lastText) ?? '' }] : []
    const more = [...grown, ...parts.slice(has.parts)]
    return more.length === 0 ? undefined : appended(artifact, more)
  }
}

function appended(artifact: Artifact, parts: Artifact['parts']): { artifact: Artifact; append: boolean } {
  return { artifact: { ...artifact, parts }, append: true }
}

function extentOf({ parts, metadata }: Artifact): Extent {
  const attempt = metadata?.[keys.attempt]
  return {
    parts: parts.length,
    lastText: parts.at(-1)?.text?.length ?? 0,
    text: parts.reduce((sum, { text = '' }) => sum + text.length, 0),
    attempt: typeof attempt === 'number' ? attempt : 1,
  }
}

function add(before: Extent | undefined, more: Extent): Extent {
  if (before === undefined) return more
  return { ...more, parts: before.parts + more.parts, text: before.text + more.text }
}

/** The task that an event is of, where it says so. */
function taskIdOf({ task, statusUpdate, artifactUpdate }: StreamResponse): string | undefined {
  const id = task?.id ?? statusUpdate?.taskId ?? artifactUpdate?.taskId
  return id === '' ? undefined : id
}

function keyOf(status: Task['status']): string {
  return `${status.state} ${status.timestamp ?? ''} ${status.message?.messageId ?? ''}`
}
