/**
 * Tools that would hold up the event loop run in worker threads: a stop ends the thread, even in an endless loop.
 * The threads belong to the process, not to a node: they know nothing but the module they were told to run.
 */
import { isAbsolute } from 'node:path'
import { availableParallelism } from 'node:os'
import { pathToFileURL } from 'node:url'
import { Worker } from 'node:worker_threads'
import { abortReason, onAbort } from '../base/abort.ts'
import { Channel } from '../base/channel.ts'
import { ConvokeError } from '../base/errors.ts'
import { isObject } from '../base/json.ts'
import { asConvokeError } from './failure.ts'
import { Gate } from './gate.ts'
import { chunkWindow, handled, type FromWorker, type Thrown, type ToWorker } from './thread-messages.ts'
import type { Chunk, Tool, ToolContext, ToolValue } from './tool.ts'
import { excerpt } from './value.ts'

export interface Blocking {
  /** The module with the function, as `new URL('./primes-worker.js', import.meta.url)`, or an absolute path. */
  readonly module: string | URL
  /** The name of the exported function `(params, context)`: plain, async or a generator. Default: `run`, else `default`. */
  readonly export?: string
  /** The largest heap of the thread. A tool that needs more fails. Default: 1024. */
  readonly maxMemoryMb?: number
}

const defaultMaxMemoryMb = 1024
/** Idle threads that are kept for the next call, and for how long. */
const maxIdle = availableParallelism()
const idleMs = 10_000
/** More threads than cores, because a thread whose reader is slow does nothing but wait. */
const maxThreads = Math.max(4, 2 * maxIdle)

const threads = new Gate(maxThreads)
const idle = new Map<Thread, NodeJS.Timeout>()

/** Ends the worker threads that no call uses. Those in use are other nodes' of this process, and end with their calls. */
export async function closeIdleWorkers(): Promise<void> {
  await Promise.all(
    [...idle.keys()].map((thread) => thread.end(new ConvokeError('unavailable', 'The node is stopping.'))),
  )
}

/** The `run` of a blocking tool. Throws `config` when the declaration is wrong. */
export function blockingRun(name: string, blocking: unknown): Tool['run'] {
  const { module, exportName, maxMemoryMb } = checkBlocking(name, blocking)
  return async function* (params, context) {
    const turn = threads.enter(context, 'The pool of worker threads')
    if (turn !== undefined) await turn
    let thread: Thread | undefined
    let stopListening = (): void => {}
    try {
      if (context.signal.aborted) throw abortReason(context.signal)
      const messages = new Channel<Piece>(chunkWindow + 1)
      const running = (thread = takeThread(maxMemoryMb))
      stopListening = onAbort(context.signal, () => void running.end(abortReason(context.signal)))
      running.start(messages, context, {
        type: 'run',
        module,
        exportName,
        params,
        call: { ...context.call },
        caller: context.caller,
        deadline: context.deadline,
        counters: running.counters,
      })
      let taken = 0
      for await (const piece of messages) {
        if (piece.type === 'result') return piece.result as ToolValue
        if (piece.type === 'thrown') throw putTogether(piece.thrown)
        yield piece.chunk as Chunk
        // In halves of the window, so that messages are few and the worker seldom waits.
        if (++taken < chunkWindow / 2) continue
        running.worker.postMessage({ type: 'credit', chunks: taken } satisfies ToWorker)
        taken = 0
      }
      throw new ConvokeError('internal', 'A worker thread fell silent.')
    } finally {
      stopListening()
      if (thread !== undefined) giveBack(thread)
      threads.leave()
    }
  }
}

function checkBlocking(name: string, blocking: unknown): { module: string; exportName: string; maxMemoryMb: number } {
  const wrong = (message: string): ConvokeError =>
    new ConvokeError('config', `The \`blocking\` of the tool "${name}" ${message}`)
  if (!isObject(blocking)) throw wrong(`must be { module, export? }, got ${excerpt(blocking)}.`)
  const { module, export: exportName = 'run', maxMemoryMb = defaultMaxMemoryMb } = blocking
  if (typeof exportName !== 'string' || exportName === '') {
    throw wrong(`must name an exported function in \`export\`, got ${excerpt(exportName)}.`)
  }
  if (typeof maxMemoryMb !== 'number' || !(maxMemoryMb >= 16)) {
    throw wrong(`must have 16 or more as \`maxMemoryMb\`, got ${excerpt(maxMemoryMb)}.`)
  }
  const href = module instanceof URL ? module.href : typeof module === 'string' ? toHref(module) : undefined
  if (href === undefined) {
    // A relative path would start from wherever this file lies.
    throw wrong(
      `needs its module as \`new URL('./worker.js', import.meta.url)\` or an absolute path, got ${excerpt(module)}.`,
    )
  }
  return { module: href, exportName, maxMemoryMb }
}

function toHref(module: string): string | undefined {
  if (isAbsolute(module)) return pathToFileURL(module).href
  return module.startsWith('file:') ? module : undefined
}

/** What a running tool says in order. Progress and log overtake it. */
type Piece = Extract<FromWorker, { type: 'chunk' | 'result' | 'thrown' }>
type Note = Extract<FromWorker, { type: 'progress' | 'notice' | 'log' }>

class Thread {
  readonly maxMemoryMb: number
  readonly worker: Worker
  readonly counters = new SharedArrayBuffer(2 * Int32Array.BYTES_PER_ELEMENT)
  readonly #counts = new Int32Array(this.counters)
  #messages: Channel<Piece> | undefined
  #context: ToolContext | undefined
  /** Whether it may take another call: its last one said how it ended, and nobody ended the thread. */
  reusable = true

  constructor(maxMemoryMb: number) {
    this.maxMemoryMb = maxMemoryMb
    this.worker = new Worker(new URL('./worker.js', import.meta.url), {
      resourceLimits: { maxOldGenerationSizeMb: maxMemoryMb },
    })
    this.worker.on('message', (message: FromWorker) => this.#receive(message))
    this.worker.on('error', (error) => this.#ended(crash(error, maxMemoryMb)))
    this.worker.on('exit', (code) => {
      this.#ended(
        new ConvokeError(
          'tool_failed',
          `The tool's worker thread ended itself (exit code ${code}) before it had a result.`,
        ),
      )
    })
  }

  start(messages: Channel<Piece>, context: ToolContext, order: ToWorker): void {
    this.#messages = messages
    this.#context = context
    this.reusable = false
    this.worker.postMessage(order)
  }

  /** Ends the thread, in the middle of whatever it does. Its call fails at once. */
  async end(reason: ConvokeError): Promise<void> {
    this.#ended(reason)
    await this.worker.terminate()
  }

  #receive(message: FromWorker): void {
    if (message.type === 'progress' || message.type === 'notice' || message.type === 'log') {
      Atomics.add(this.#counts, handled, 1)
      this.#note(message)
      return
    }
    if (message.type !== 'chunk') {
      this.reusable = true
      this.#context = undefined
    }
    void this.#messages?.push(message)
  }

  /** Nobody awaits this: what is thrown here would end the process, so it ends the call instead. */
  #note(message: Note): void {
    try {
      if (message.type === 'progress') this.#context?.progress(message.progress)
      else if (message.type === 'notice') this.#context?.notice(message.log)
      else this.#context?.log[message.level](message.details, message.message)
    } catch (error) {
      void this.end(ConvokeError.from(error))
    }
  }

  #ended(reason: ConvokeError): void {
    this.reusable = false
    this.#context = undefined
    this.#messages?.fail(reason)
    forget(this)
  }
}

function crash(error: unknown, maxMemoryMb: number): ConvokeError {
  const code = error instanceof Error && 'code' in error ? error.code : undefined
  const message =
    code === 'ERR_WORKER_OUT_OF_MEMORY'
      ? `The tool needed more than its ${maxMemoryMb} MB of memory, and was ended.`
      : 'The tool crashed its worker thread.'
  return new ConvokeError('tool_failed', message, { cause: error })
}

function takeThread(maxMemoryMb: number): Thread {
  // The one that was used last has the warmest caches.
  const found = [...idle.keys()].findLast((thread) => thread.maxMemoryMb === maxMemoryMb)
  if (found === undefined) return new Thread(maxMemoryMb)
  forget(found)
  found.worker.ref()
  return found
}

function giveBack(thread: Thread): void {
  if (!thread.reusable || idle.size >= maxIdle) {
    void thread.worker.terminate()
    return
  }
  // Neither an idle thread nor its timer keeps the process alive.
  thread.worker.unref()
  const timer = setTimeout(() => {
    forget(thread)
    void thread.worker.terminate()
  }, idleMs)
  idle.set(thread, timer.unref())
}

function forget(thread: Thread): void {
  clearTimeout(idle.get(thread))
  idle.delete(thread)
}

function putTogether(thrown: Thrown): unknown {
  if (thrown.kind === 'value') return thrown.value
  const { name, message, stack, ...members } = thrown
  const error = new Error(message)
  error.name = name
  if (stack !== undefined) error.stack = stack
  if (name !== 'ConvokeError') return error
  return asConvokeError(Object.assign(error, members)) ?? error
}
