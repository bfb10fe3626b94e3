/** The main module of a worker thread: runs one blocking tool after another. Knows nothing of the node. */
import { parentPort } from 'node:worker_threads'
import { ConvokeError } from '../base/errors.ts'
import { isObject } from '../base/json.ts'
import { describeIssues } from './issues.ts'
import type { Progress, ToolLog } from './tool.ts'
import {
  chunkWindow,
  handled,
  noteWindow,
  posted,
  type BlockingContext,
  type FromWorker,
  type LogLevel,
  type Thrown,
  type ToWorker,
} from './thread-messages.ts'
import { findNotJson } from './value.ts'

if (parentPort === null) throw new Error('This module runs in a worker thread only.')
const port = parentPort

/** Which export is run unless another one is named; without it the default one. */
const usualExport = 'run'

type Order = Extract<ToWorker, { type: 'run' }>

/** How many chunks the node has room for, and how to tell the tool that waits for more. */
const flow: { credit: number; wakeUp: () => void } = { credit: 0, wakeUp: () => {} }

port.on('message', (message: ToWorker) => {
  if (message.type === 'credit') {
    flow.credit += message.chunks
    flow.wakeUp()
    return
  }
  flow.credit = chunkWindow
  void run(message)
})

async function run(order: Order): Promise<void> {
  const notes = new Notes(order.counters)
  try {
    const result = await work(order, notes)
    notes.flush()
    post({ type: 'result', result })
  } catch (error) {
    notes.flush()
    post({ type: 'thrown', thrown: takeApart(error) })
  }
}

async function work(order: Order, notes: Notes): Promise<unknown> {
  const tool = await load(order, notes)
  if (typeof tool !== 'function') {
    const looked = order.exportName === usualExport ? '`run`, and no default one,' : `\`${order.exportName}\``
    throw new Error(`The module of this blocking tool has no function ${looked} among its exports.`)
  }
  const context: BlockingContext = {
    call: order.call,
    caller: order.caller,
    deadline: order.deadline,
    progress: (progress) => notes.progress(progress),
    notice: (log) => notes.notice(log),
    log: {
      debug: (details, message) => notes.log('debug', details, message),
      info: (details, message) => notes.log('info', details, message),
      warn: (details, message) => notes.log('warn', details, message),
      error: (details, message) => notes.log('error', details, message),
    },
  }
  const returned: unknown = await (tool as (params: unknown, context: BlockingContext) => unknown)(
    order.params,
    context,
  )
  if (!isGenerator(returned)) return returned
  for (;;) {
    const step = await returned.next()
    if (step.done === true) return step.value
    while (flow.credit === 0) {
      await new Promise<void>((resolve) => {
        flow.wakeUp = resolve
      })
    }
    flow.credit--
    notes.flush()
    post({ type: 'chunk', chunk: step.value })
  }
}

async function load({ module, exportName }: Order, notes: Notes): Promise<unknown> {
  try {
    const exported = (await import(module)) as Record<string, unknown>
    return exported[exportName] ?? (exportName === usualExport ? exported['default'] : undefined)
  } catch (error) {
    // Why is for the log: it names files of this machine.
    const reason = error instanceof Error ? (error.stack ?? error.message) : String(error)
    notes.log('error', { module, reason }, 'The module of a blocking tool cannot be loaded')
    throw new Error('The module of this blocking tool cannot be loaded. The log says why.', {
      cause: error,
    })
  }
}

function isGenerator(
  value: unknown,
): value is Generator<unknown, unknown, void> | AsyncGenerator<unknown, unknown, void> {
  return typeof value === 'object' && value !== null && 'next' in value && typeof value.next === 'function'
}

/** Progress and log. A loop that never comes to rest could post without end: what the node has not handled is counted. */
class Notes {
  readonly #counters: Int32Array
  #progress: Progress | undefined

  constructor(counters: SharedArrayBuffer) {
    this.#counters = new Int32Array(counters)
  }

  progress(progress: Progress): void {
    checkProgress(progress)
    // A copy: it may be posted later, and the tool may use its object again.
    this.#progress = { ...progress }
    if (this.#hasRoom()) this.flush()
  }

  notice(log: ToolLog): void {
    const issue = findNotJson(log)
    if (issue !== undefined) throw new TypeError(`context.notice takes JSON: ${describeIssues([issue])}`)
    if (!this.#hasRoom()) return
    this.#count()
    post({ type: 'notice', log })
  }

  log(level: LogLevel, details: object | string, message?: string): void {
    if (!this.#hasRoom()) return
    this.#count()
    try {
      post({ type: 'log', level, details, message })
    } catch {
      // Details that cannot be cloned (functions, sockets) are left out; the line itself counts.
      post({ type: 'log', level, details: {}, message })
    }
  }

  /** Posts the newest progress, if it has not been. */
  flush(): void {
    if (this.#progress === undefined) return
    const progress = this.#progress
    this.#progress = undefined
    this.#count()
    post({ type: 'progress', progress })
  }

  #hasRoom(): boolean {
    return Atomics.load(this.#counters, posted) - Atomics.load(this.#counters, handled) < noteWindow
  }

  #count(): void {
    Atomics.add(this.#counters, posted, 1)
  }
}

/** Here, where the stack has the tool's own line: a clone carries what JSON does not, and the node could not send it. */
function checkProgress(progress: unknown): void {
  const issue = isObject(progress) ? findNotJson(progress) : { path: '', message: 'must be an object' }
  if (issue === undefined && Number.isFinite((progress as Progress).progress)) return
  const said = describeIssues([issue ?? { path: '/progress', message: 'must be a number' }])
  throw new TypeError(`context.progress takes { progress, total?, message? }, with finite numbers: ${said}`)
}

function post(message: FromWorker): void {
  const value = message.type === 'chunk' ? message.chunk : message.type === 'result' ? message.result : undefined
  if (value instanceof Uint8Array) {
    // A small Buffer is a window on a large pool, and a clone would take all of it along.
    const copy = new Uint8Array(value)
    port.postMessage(message.type === 'chunk' ? { ...message, chunk: copy } : { ...message, result: copy }, [
      copy.buffer,
    ])
    return
  }
  try {
    port.postMessage(message)
  } catch (cause) {
    // Something that cannot be cloned, such as a function; said as it is for tools that run on the event loop.
    const issue = findNotJson(value) ?? { path: '', message: String(cause) }
    const said = `A blocking tool gave something that is not JSON: ${describeIssues([issue])}`
    throw new ConvokeError('invalid_result', said, { issues: [issue], cause })
  }
}

const blank = {
  kind: 'error',
  name: 'Error',
  message: '',
  stack: undefined,
  code: undefined,
  retryable: undefined,
  retryAfterMs: undefined,
  issues: undefined,
} as const

function takeApart(thrown: unknown): Thrown {
  if (!(thrown instanceof Error)) return { kind: 'value', value: toClonable(thrown) }
  const { name, message, stack } = thrown
  if (name !== 'ConvokeError') return { ...blank, name, message, stack }
  const { code, retryable, retryAfterMs, issues } = thrown as Partial<ConvokeError>
  return { kind: 'error', name, message, stack, code, retryable, retryAfterMs, issues: toClonable(issues) }
}

function toClonable(value: unknown): unknown {
  if (typeof value !== 'object') return typeof value === 'function' || typeof value === 'symbol' ? String(value) : value
  try {
    return JSON.parse(JSON.stringify(value)) as unknown
  } catch {
    return 'something that is not JSON'
  }
}
