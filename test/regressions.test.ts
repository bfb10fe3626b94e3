/** What a review once found wrong: each of these was a crash, an endless wait, or something lost. */
import {
  ConvokeError,
  createNode,
  defineTool,
  type JsonObject,
  type Message,
  type MessageHandler,
  type MessageOutcome,
  type NodeOptions,
  type Task,
  type Tool,
} from 'convoke'
import { createHash } from 'node:crypto'
import { once } from 'node:events'
import { writeFile } from 'node:fs/promises'
import { request as httpRequest, type IncomingMessage } from 'node:http'
import { join } from 'node:path'
import { text as textOf } from 'node:stream/consumers'
import { afterAll, afterEach, beforeAll, describe, expect, test, vi } from 'vitest'
import { z } from 'zod'
import { createGuardedFetch } from '../dist/base/guarded-fetch.js'
import { createExecutor } from '../dist/server/executor.js'
import { Operations, type CallContext, type StoredContext } from '../dist/server/operations.js'
import { openStore } from '../dist/store/open.js'
import type { Store } from '../dist/store/store.js'
import { PushService } from '../dist/tasks/push.js'
import { TaskRuntime } from '../dist/tasks/runtime.js'
import { delegationLimits } from '../dist/protocol/delegation.js'
import { DelegationGuard } from '../dist/tools/delegation.js'
import { LocalToolRegistry } from '../dist/tools/local.js'
import { ToolManager } from '../dist/tools/manager.js'
import { cleanup, deferred, startNode, temporaryFolder, until, within } from './support/lifetime.ts'
import { serve } from './support/process.ts'
import { startReceiver } from './support/receiver.ts'
import {
  begin,
  chunkOf,
  getTask,
  request,
  rest,
  resultOf,
  rpc,
  say,
  send,
  sendStream,
  stateOf,
  toolCall,
  toolErrorOf,
  wordsOf,
  type Answer,
  type RestErrorBody,
  type RpcBody,
} from './support/wire.ts'

const library = new URL('../dist/index.js', import.meta.url).href
const input = { type: 'object' } as const
const silent = { debug() {}, info() {}, warn() {}, error() {} }
const me: StoredContext = { caller: { id: 'me', scopes: ['*'] } }

// What nobody catches ends a node; here it would end no test by itself.
const uncaught: unknown[] = []
const note = (error: unknown): void => void uncaught.push(error)
beforeAll(() => {
  process.on('unhandledRejection', note)
  process.on('uncaughtException', note)
})
afterAll(() => {
  process.off('unhandledRejection', note)
  process.off('uncaughtException', note)
})
afterEach(() => {
  const errors = uncaught.splice(0)
  if (errors.length > 0) throw new AggregateError(errors, 'Nobody caught this; it would have ended the node.')
})

const echo = defineTool({ name: 'echo', description: 'Gives back.', input, run: (params) => params })
const asking = defineTool({
  name: 'ask',
  description: 'Asks, and gives the answer back.',
  input,
  run: (_params, { ask }) => ask({ message: 'Well?' }),
})
/** Runs until it is told to stop. */
const hold = defineTool({
  name: 'hold',
  description: 'Holds.',
  input,
  async *run(_params, { signal }) {
    yield 'holding'
    await new Promise<void>((resolve) => signal.addEventListener('abort', () => resolve()))
    throw signal.reason
  },
})

const nextTurn = (): Promise<void> => new Promise((resolve) => setImmediate(resolve))

/** A task runtime without a node around it. */
function runtimeOn(
  store: Store,
  tools: readonly Tool[],
  { onMessage, ...options }: { leaseMs?: number; compactAfterMs?: number; onMessage?: MessageHandler } = {},
): TaskRuntime<StoredContext> {
  const registry = new LocalToolRegistry()
  for (const tool of tools) registry.register(tool)
  const runtime = new TaskRuntime<StoredContext>({
    store,
    log: silent,
    execute: createExecutor({
      tools: new ToolManager({ registry }),
      onMessage,
      guard: new DelegationGuard('alice', delegationLimits),
      log: silent,
    }),
    cancelGraceMs: 50,
    maxRuns: 100,
    deduplicate: true,
    retentionMs: 1e9,
    ...options,
  })
  cleanup(() => runtime.close(0))
  return runtime
}

async function openedStore(url = ':memory:'): Promise<Store> {
  const store = await openStore({ url })
  cleanup(() => store.close())
  return store
}

const legacyCall = (name: string, params: JsonObject = {}): JsonObject => ({
  kind: 'message',
  messageId: crypto.randomUUID(),
  role: 'user',
  parts: [{ kind: 'text', text: 'Call.' }],
  metadata: { _tool_call: { name, params } },
})

const legacyRestCall = (name: string, params: JsonObject = {}): JsonObject => ({
  messageId: crypto.randomUUID(),
  role: 'ROLE_USER',
  content: [{ text: 'Call.' }],
  metadata: { _tool_call: { name, params } },
})

describe.each(['memory', 'sqlite'])('when the events of a task were compacted (%s)', (kind) => {
  async function compacted() {
    const store = await openedStore(
      kind === 'memory' ? ':memory:' : `sqlite:${join(await temporaryFolder(), 'tasks.db')}`,
    )
    let claims = 0
    const claimPushes = store.claimPushes.bind(store)
    store.claimPushes = (options) => {
      // An endless loop of promises would let no timer of the test come to its turn.
      if (++claims > 100) throw new Error('Webhooks are looked up without end.')
      return claimPushes(options)
    }
    const fetch = createGuardedFetch({ allowPrivate: true })
    cleanup(() => fetch.close())
    const runtime = runtimeOn(store, [echo], { compactAfterMs: -1 })
    const push = new PushService({
      store,
      log: silent,
      fetch,
      allowPrivate: true,
      snapshot: (taskId) => runtime.peek(taskId),
      toLegacyBody: () => Promise.resolve(undefined),
    })
    cleanup(() => push.close())
    runtime.onPublished((taskId, isLast) => push.published(taskId, isLast))
    push.start()
    const operations = new Operations({ runtime, push, extendedCard: undefined })
    const context: CallContext = { ...me, signal: new AbortController().signal, version: '1.0' }
    const message = toolCall('echo', { n: 1 })
    const sendAgain = async (configuration: JsonObject = {}): Promise<Task> => {
      const text = await operations.sendMessage({ message, configuration }, context)
      return (JSON.parse(text) as { task: Task }).task
    }
    const { id } = await sendAgain()
    await runtime.sweep()
    expect((await store.load(id))?.artifacts).toEqual(expect.any(String))
    claims = 0
    return { store, push, runtime, sendAgain, id, claims: () => claims }
  }

  test('its message can be repeated with a webhook as often as one likes', async () => {
    const receiver = await startReceiver()
    const { store, sendAgain, id, claims } = await compacted()
    const taskPushNotificationConfig = { url: receiver.hook('mine') }
    for (let n = 0; n < 20; n++) {
      expect((await sendAgain({ taskPushNotificationConfig })).status.state).toBe('TASK_STATE_COMPLETED')
    }
    for (let n = 0; n < 200; n++) await nextTurn()
    expect(await store.listPush(id)).toEqual([])
    expect(receiver.calls('mine')).toBe(0)
    expect(claims()).toBeLessThan(50)
  })

  test('a webhook that missed them gets the whole task once, and is served with that', async () => {
    const receiver = await startReceiver()
    const { store, push, runtime, id, claims } = await compacted()
    await push.put({ taskId: id, url: receiver.hook('mine') }, { version: '1.0', cursor: 0 })
    const { seq, text } = await runtime.peek(id)
    await until(async () => (await store.listPush(id))[0]?.cursor === seq, 'the webhook to be served')
    for (let n = 0; n < 200; n++) await nextTurn()
    expect(receiver.taken('mine').map(({ body }) => body)).toEqual([{ task: JSON.parse(text) as Task }])
    expect(await store.nextPushAt()).toBeUndefined()
    expect(await store.compactable(Date.now() + 1000, 10)).toEqual([])
    expect(claims()).toBeLessThan(50)
  })
})

describe('a call fails by itself, and the node goes on', () => {
  test('for params that an asynchronous schema refuses', async () => {
    let runs = 0
    const picky = defineTool({
      name: 'picky',
      description: 'Looks twice.',
      input: z.object({ a: z.string().refine(async (value) => value === 'ok', 'is not ok') }),
      run: () => ++runs,
    })
    const store = { url: `sqlite:${join(await temporaryFolder(), 'node.db')}` }
    const { url } = await startNode({ tools: [picky], store })
    const task = await send(url, toolCall('picky', { a: 'no' }))
    expect(task.status.state).toBe('TASK_STATE_REJECTED')
    expect(toolErrorOf(task)).toMatchObject({ code: 'invalid_params', issues: [{ path: '/a', message: 'is not ok' }] })
    expect(runs).toBe(0)
    expect(resultOf(await send(url, toolCall('picky', { a: 'ok' })))).toBe(1)
  })

  test('for a handler whose last word is not JSON', async () => {
    const { url } = await startNode({
      async *onMessage({ parts: [part] }) {
        yield { type: 'status', text: 'Hm.' }
        const odd = { state: 'completed', text: 'Done.', metadata: { n: 1n } } as unknown as MessageOutcome
        return part?.text === 'odd' ? odd : 'Done.'
      },
    })
    const task = await send(url, say('odd'))
    expect(task.status.state).toBe('TASK_STATE_FAILED')
    expect(wordsOf(task.status.message)).toBe('An internal error occurred. It is in the log of the node.')
    expect(await getTask(url, task.id)).toEqual(task)
    const events = await (await sendStream(url, say('odd'))).all()
    expect(stateOf(events.at(-1)!)).toBe('TASK_STATE_FAILED')
    expect((await send(url, say('even'))).status.state).toBe('TASK_STATE_COMPLETED')
  })

  test('for an error whose issues are none', async () => {
    const bad = defineTool({
      name: 'bad',
      description: 'Fails oddly.',
      input,
      run() {
        throw new ConvokeError('tool_failed', 'It failed.', { issues: [null, { path: '/a', message: 'b' }] as never })
      },
    })
    const { url } = await startNode({ tools: [bad] })
    const task = await send(url, toolCall('bad'))
    expect(task.status.state).toBe('TASK_STATE_FAILED')
    expect(toolErrorOf(task)).toMatchObject({ code: 'tool_failed', message: 'It failed.' })
    expect(toolErrorOf(task)?.issues).toEqual([{ path: '/a', message: 'b' }])
  })

  const circle: JsonObject = { type: 'object' }
  circle['properties'] = { circle }
  test.each<[string, JsonObject]>([
    ['is a circle', circle],
    ['is none', { type: 'nonsense' }],
    ['refers to nothing', { $ref: '#/nowhere' }],
  ])('for a question whose schema %s, before anybody is asked', async (_what, schema) => {
    const curious = defineTool({
      name: 'curious',
      description: 'Asks what cannot be answered.',
      input,
      run: (_params, { ask }) => ask({ message: 'Well?', schema }),
    })
    const { url } = await startNode({ tools: [curious] })
    const events = await (await sendStream(url, toolCall('curious'))).all()
    expect(events.map(stateOf)).not.toContain('TASK_STATE_INPUT_REQUIRED')
    const task = await getTask(url, events[0]!.data.task!.id)
    expect(task.status.state).toBe('TASK_STATE_FAILED')
    expect(task.history).toHaveLength(1)
    expect(wordsOf(task.status.message)).toMatch(/./)
  })

  test('for progress that is no JSON, out of a worker thread', async () => {
    const module = join(await temporaryFolder(), 'work.mjs')
    await writeFile(module, 'export const run = (_params, { progress }) => { progress({ progress: 1n }); return 1 }')
    const work = defineTool({ name: 'work', description: 'Works.', input, blocking: { module } })
    const { url } = await startNode({ tools: [work, echo] })
    const task = await send(url, toolCall('work'))
    expect(task.status.state).toBe('TASK_STATE_FAILED')
    expect(toolErrorOf(task)?.message).toContain('context.progress')
    expect((await send(url, toolCall('echo'))).status.state).toBe('TASK_STATE_COMPLETED')
  })

  test.each([
    ['progress is NaN', { progress: NaN }],
    ['total is Infinity', { progress: 1, total: Infinity }],
    ['progress is a bigint', { progress: 1n as unknown as number }],
  ])('for progress that counts nothing: %s', async (said, progress) => {
    const work = defineTool({
      name: 'work',
      description: 'Works.',
      input,
      run(_params, context) {
        context.progress(progress)
        return 1
      },
    })
    const { url } = await startNode({ tools: [work] })
    const task = await send(url, toolCall('work'))
    expect(task.status.state).toBe('TASK_STATE_FAILED')
    expect(toolErrorOf(task)?.message).toBe(`context.progress takes finite numbers; ${said}.`)
  })
})

test.each([
  [
    ['/iss|a\nb', 'c'],
    ['/iss|a', 'b\nc'],
  ],
  [
    ['/a b', 'c'],
    ['/a', 'b c'],
  ],
  [
    ['/a 2 b', 'c'],
    ['/a', '2 b c'],
  ],
])('messages of two owners never mix, whatever is in their names: %j and %j', async (one, other) => {
  const runtime = runtimeOn(await openedStore(), [hold])
  const begun = async ([owner = '', messageId = '']: string[]) => {
    const message: Message = { ...toolCall('hold', {}, { parts: [{ text: `Secret of ${owner}.` }] }), messageId }
    return runtime.send({ owner, message, context: me }, undefined)
  }
  const first = await begun(one)
  const second = await begun(other)
  expect([first.fresh, second.fresh]).toEqual([true, true])
  expect(second.taskId).not.toBe(first.taskId)
  const task = JSON.parse(await second.task({})) as Task
  expect(wordsOf(task.history?.[0])).toBe(`Secret of ${other[0]}.`)
  expect((await begun(one)).taskId).toBe(first.taskId)
})

test('what a handler calls is stopped with it at once, and knows whose message it is', async () => {
  const began = deferred<string>()
  const stopped = deferred<unknown>()
  const inner = defineTool({
    name: 'inner',
    description: 'Runs until it is told to stop.',
    input,
    async run(_params, { caller, signal }) {
      signal.addEventListener('abort', () => stopped.resolve(signal.reason))
      began.resolve(caller.id)
      await stopped.promise
      throw signal.reason
    },
  })
  const node = await startNode({
    tools: [inner],
    async *onMessage(_message, { tools }) {
      yield { type: 'status', text: 'Calling.' }
      await tools.call('inner')
      return 'Done.'
    },
    // Nobody is to wait for the end of that.
    server: {
      cancelGraceMs: 60_000,
      auth: { tokens: [{ id: 'bob', sha256: createHash('sha256').update('token-of-bob').digest('hex') }] },
    },
  })
  const asBob = { headers: { authorization: 'Bearer token-of-bob' } }
  const { id } = await begin(node.url, say('Go.'), asBob)
  expect(await within(began.promise, 'the tool to run')).toBe('bob')
  const { body } = await within(rpc<Task>(node.url, 'CancelTask', { id }, asBob), 'the cancel')
  expect(body.result?.status.state).toBe('TASK_STATE_CANCELED')
  expect(await within(stopped.promise, 'the tool to hear of it')).toMatchObject({ code: 'canceled' })
  expect(node.stats).toEqual({ running: 0, abandoned: 0 })
})

describe('a repeat', () => {
  test.each(['memory', 'sqlite'])('of a reply gives its task after that has ended (%s)', async (kind) => {
    const store = kind === 'memory' ? {} : { url: `sqlite:${join(await temporaryFolder(), 'node.db')}` }
    const { url } = await startNode({ tools: [asking], store })
    const { id } = await send(url, toolCall('ask'))
    const reply = say('Good.', { taskId: id })
    const ended = await send(url, reply)
    expect(ended.status.state).toBe('TASK_STATE_COMPLETED')
    expect(await send(url, reply)).toEqual(ended)
    const events = await (await sendStream(url, reply)).all()
    expect(events.map(({ data }) => data.task)).toEqual([ended])
    // Another message is still one too many.
    const late = await rpc(url, 'SendMessage', { message: say('Good?', { taskId: id }) })
    expect(late.body.error?.code).toBe(-32004)
  })

  test('of a streaming message ends at once at the question that its sender has already', async () => {
    const { url } = await startNode({ tools: [asking] })
    const message = toolCall('ask')
    const events = await (await sendStream(url, message)).all()
    expect(stateOf(events.at(-1)!)).toBe('TASK_STATE_INPUT_REQUIRED')
    const { id: lastEventId } = events.at(-1)!
    expect(await (await sendStream(url, message, { lastEventId: lastEventId! })).all()).toEqual([])
    // Who has not seen it gets it.
    const before = await (await sendStream(url, message, { lastEventId: lastEventId! - 1 })).all()
    expect(before).toEqual(events.slice(-1))
  })
})

test('a full store refuses a reply and a cancel at once, and neither is lost when there is room again', async () => {
  // The sweep that makes room runs every minute; the test turns the clock of the intervals.
  vi.useFakeTimers({ toFake: ['setInterval', 'clearInterval'] })
  cleanup(() => vi.useRealTimers())
  const gate = deferred()
  cleanup(() => gate.resolve())
  const late = defineTool({
    name: 'late',
    description: 'Says much when it is told to, and does not stop by itself.',
    input,
    async *run(_params, { signal }) {
      yield 'early'
      await gate.promise
      yield 'y'.repeat(200_000)
      await new Promise<void>((resolve) => signal.addEventListener('abort', () => resolve()))
    },
  })
  const { url } = await startNode({
    tools: [echo, asking, late],
    async *onMessage(message, { history }) {
      if (history.length > 1) return `${wordsOf(message).length} letters`
      yield { type: 'status', text: 'Hm.' }
      return { state: 'input-required', text: 'How many?' }
    },
    store: { url: `sqlite:${join(await temporaryFolder(), 'node.db')}`, maxBytes: 1_500_000, retention: 1 },
  })
  const running = await sendStream(url, toolCall('late'))
  const held = (await running.upTo((event) => chunkOf(event) === 'early'))[0]!.data.task!
  const asked = await send(url, toolCall('ask'))
  const resting = await send(url, say('Count.'))
  const first = await begin(url, toolCall('echo'))
  for (const size of [50_000, 5_000]) {
    const fill = async (): Promise<boolean> => {
      const message = toolCall('echo', { bulk: Array.from({ length: size / 1000 }, () => 'x'.repeat(1000)) })
      const { status } = await rpc(url, 'SendMessage', { message, configuration: { returnImmediately: true } })
      return status === 503
    }
    await until(fill, 'the store to be full')
  }
  gate.resolve()

  const refusals: [string, Promise<Answer>][] = []
  const words = 'w'.repeat(200_000)
  const reply = say(words, { taskId: asked.id })
  const count = say(words, { taskId: resting.id })
  refusals.push(['a reply to a tool', rpc(url, 'SendMessage', { message: reply })])
  refusals.push(['a message on a task at rest', rpc(url, 'SendMessage', { message: count })])
  refusals.push(['a cancel', rpc(url, 'CancelTask', { id: held.id })])
  refusals.push(['a cancel over HTTP+JSON', rest(url, `POST /tasks/${held.id}:cancel`)])
  const bulk = { bulk: words }
  const older = { version: '0.3' }
  refusals.push(['a call of 0.3', rpc(url, 'message/send', { message: legacyCall('echo', bulk) }, older)])
  const overRest = { message: legacyRestCall('echo', bulk) }
  refusals.push(['a call of 0.3 over HTTP+JSON', rest(url, 'POST /v1/message:send', overRest, older)])
  for (const [what, refused] of refusals) {
    const { status, headers } = await within(refused, `the answer to ${what}`)
    expect([what, status]).toEqual([what, 503])
    expect(headers.get('retry-after'), what).toMatch(/^\d+$/)
  }

  await until(async () => {
    vi.advanceTimersByTime(60_000)
    return (await rpc(url, 'GetTask', { id: first.id })).body.error !== undefined
  }, 'the sweep')
  vi.useRealTimers()
  const ended = ({ id }: Task, state: string): Promise<Task> =>
    until(async () => {
      const task = await getTask(url, id)
      return task.status.state === state && task
    }, state)
  expect(resultOf(await ended(asked, 'TASK_STATE_COMPLETED'))).toBe(words)
  expect(wordsOf((await ended(resting, 'TASK_STATE_COMPLETED')).status.message)).toBe('200000 letters')
  await ended(held, 'TASK_STATE_CANCELED')
  expect(stateOf((await running.all()).at(-1)!)).toBe('TASK_STATE_CANCELED')
  // Whoever did as the 503 said and came again finds the work done.
  expect((await send(url, reply)).status.state).toBe('TASK_STATE_COMPLETED')
})

test('a store that cannot write refuses the cancel of a task at rest at once, too, and does it later', async () => {
  const store = await openedStore()
  const commit = store.commit.bind(store)
  let full = false
  store.commit = (...change) =>
    full ? Promise.reject(new ConvokeError('unavailable', 'The store is full.')) : commit(...change)
  cleanup(() => (full = false))
  const runtime = runtimeOn(store, [], {
    async *onMessage() {
      yield { type: 'status', text: 'Hm.' }
      return { state: 'input-required', text: 'How many?' }
    },
  })
  const sent = await runtime.send({ owner: '/me', message: say('Count.'), context: me }, undefined)
  await sent.settled()
  full = true
  const refused = within(runtime.cancel('/me', sent.taskId), 'the cancel')
  await expect(refused).rejects.toMatchObject({ code: 'unavailable' })
  full = false
  const state = async (): Promise<string> => (await runtime.state('/me', sent.taskId)).state
  await until(async () => (await state()) === 'TASK_STATE_CANCELED', 'the end of the task')
})

test('questions that nobody answers hold up no other call', async () => {
  const { url } = await startNode({ tools: [asking, echo, hold], server: { maxRunningTasks: 2 } })
  const waiting = [await send(url, toolCall('ask')), await send(url, toolCall('ask'))]
  for (const { status } of waiting) expect(status.state).toBe('TASK_STATE_INPUT_REQUIRED')
  const other = await rpc(url, 'SendMessage', { message: toolCall('echo', { n: 1 }) })
  expect([other.status, other.body.error]).toEqual([200, undefined])
  // Calls that work are still counted.
  await begin(url, toolCall('hold'))
  await begin(url, toolCall('hold'))
  expect((await rpc(url, 'SendMessage', { message: toolCall('echo') })).status).toBe(429)
  expect(resultOf(await send(url, say('Good.', { taskId: waiting[0]!.id })))).toBe('Good.')
})

test.each([60, 15_000])('a cancel ends a task whose worker has died (leases of %i ms)', async (leaseMs) => {
  const store = await openedStore()
  const row = {
    id: 'task',
    owner: '/me',
    contextId: 'context',
    messageId: 'm',
    metadata: null,
    request: JSON.stringify({ context: me }),
    repeatable: false,
    worker: 'dead',
    leaseUntil: Date.now() + 50,
  }
  const text = '{"state":"TASK_STATE_WORKING","timestamp":"2026-01-01T00:00:00.000Z"}'
  const status = { state: 'TASK_STATE_WORKING', text, at: 1 }
  await store.create(row, { status, history: JSON.stringify([toolCall('hold')]), events: [] })
  const workers = [runtimeOn(store, [hold], { leaseMs }), runtimeOn(store, [hold], { leaseMs })]
  // Whoever asks, and asks again meanwhile, hears of the one end.
  const cancels = await within(Promise.all(workers.map((each) => each.cancel('/me', 'task'))), 'the cancels')
  for (const canceled of cancels) expect((JSON.parse(canceled) as Task).status.state).toBe('TASK_STATE_CANCELED')
})

test('the words of an agent are not taken from a caller', async () => {
  const { url } = await startNode({ tools: [asking] })
  const { id } = await send(url, toolCall('ask'))
  for (const role of ['ROLE_AGENT', 'agent', 2]) {
    const { body } = await rpc(url, 'SendMessage', { message: { ...say('Mine.', { taskId: id }), role } })
    expect(body.error?.code).toBe(-32602)
    expect(body.error?.data?.[0]?.['fieldViolations']).toMatchObject([{ field: 'message.role' }])
  }
  const message = { ...say('Mine.', { taskId: id }), role: 'ROLE_AGENT' }
  expect((await rest(url, 'POST /message:send', { message })).status).toBe(400)
  const older = { version: '0.3' }
  const legacy = { ...legacyCall('ask'), role: 'agent', taskId: id }
  const overRpc = await rpc(url, 'message/send', { message: legacy }, older)
  expect(overRpc.body.error?.code).toBe(-32602)
  const legacyRest = { ...legacyRestCall('ask'), role: 'ROLE_AGENT', taskId: id }
  expect((await rest(url, 'POST /v1/message:send', { message: legacyRest }, older)).status).toBe(400)
  const task = await getTask(url, id)
  expect(task.status.state).toBe('TASK_STATE_INPUT_REQUIRED')
  expect(task.history).toHaveLength(1)
})

test('a reader whose task is cleared away under it hears of that', async () => {
  const size = 64 * 1024
  const burst = defineTool({
    name: 'burst',
    description: 'Says more than any buffer on the way holds.',
    input,
    async *run() {
      for (let n = 0; n < 320; n++) yield `${n} `.padEnd(size, '.')
      return 'said'
    },
  })
  const node = await startNode({ tools: [burst, echo], store: { maxBytes: 1000 } })
  const rpcReader = await sendStream(node.url, toolCall('burst'))
  const { id } = (await rpcReader.next())!.data.task!
  await until(() => node.stats.running === 0, 'the end of the burst')
  await send(node.url, toolCall('echo'))
  expect((await rpc(node.url, 'GetTask', { id })).body.error?.code).toBe(-32001)
  await expect(rpcReader.all()).rejects.toThrow(/An error on the stream: .*-32001/)
})

describe('the card', () => {
  const path = '/.well-known/agent-card.json'
  const card = (url: string, headers: Record<string, string> = {}): Promise<Answer> =>
    request(url + path, { headers: { 'accept-encoding': 'identity', ...headers } })

  test('is not the same for a change within the second', async () => {
    vi.useFakeTimers({ toFake: ['Date'], now: 1_800_000_000_100 })
    cleanup(() => vi.useRealTimers())
    const { url, registry } = await startNode({ tools: [echo] })
    const second = () => vi.setSystemTime(Date.now() + 1000)
    let since = (await card(url)).headers.get('last-modified')!
    second()
    expect((await card(url, { 'if-modified-since': since })).status).toBe(304)
    for (const tool of [asking, hold]) {
      registry.register(tool)
      const changed = await card(url, { 'if-modified-since': since })
      expect(changed.status).toBe(200)
      expect(changed.text).toContain(tool.description)
      since = changed.headers.get('last-modified')!
      // Another change may still come in this second.
      expect((await card(url, { 'if-modified-since': since })).status).toBe(200)
      second()
      expect((await card(url, { 'if-modified-since': since })).status).toBe(304)
    }
  })

  test('has a tag for each encoding, and knows both again', async () => {
    const { url } = await startNode({ tools: [echo, asking] })
    const plain = await card(url)
    const zipped = await card(url, { 'accept-encoding': 'gzip' })
    expect([plain, zipped].map(({ headers }) => headers.get('content-encoding'))).toEqual([null, 'gzip'])
    expect(zipped.text).toBe(plain.text)
    const tags = [plain, zipped].map(({ headers }) => headers.get('etag')!)
    expect(new Set(tags).size).toBe(2)
    for (const tag of tags) expect(tag).toMatch(/^"[^"]+"$/)
    for (const [encoding, tag] of [
      ['identity', tags[0]!],
      ['gzip', tags[1]!],
    ] as const) {
      const known = await card(url, { 'accept-encoding': encoding, 'if-none-match': tag })
      expect(known.status).toBe(304)
      expect(known.headers.get('etag')).toBe(tag)
    }
    expect((await card(url, { 'if-none-match': '"another"' })).status).toBe(200)
  })

  test.each<[NonNullable<NodeOptions['server']>, string]>([
    [{}, 'A2A-Version, Accept-Encoding'],
    [
      { trustProxy: ['loopback'] },
      'A2A-Version, Accept-Encoding, X-Forwarded-Host, X-Forwarded-Proto, X-Forwarded-Prefix',
    ],
  ])('tells caches what it varies by (%j)', async (server, vary) => {
    const { url } = await startNode({ tools: [echo], server })
    expect((await card(url)).headers.get('vary')).toBe(vary)
  })
})

describe('a node that cannot be made', () => {
  const agent = { id: 'alice' }

  test.each<[string, (store: { url: string }) => Partial<NodeOptions>]>([
    ['retention', (store) => ({ store: { ...store, retention: 'abc' } })],
    ['trustProxy', (store) => ({ store, server: { trustProxy: ['nonsense'] } })],
  ])('for its %s lets go of its database', async (_what, options) => {
    const store = { url: `sqlite:${join(await temporaryFolder(), 'node.db')}` }
    const wrong = { agent, logLevel: 'silent', ...options(store) } as const
    await expect(createNode(wrong)).rejects.toMatchObject({ name: 'ConvokeError', code: 'config' })
    const node = await createNode({ agent, logLevel: 'silent', store })
    await node.stop()
  })

  test.each<[string, NonNullable<NodeOptions['server']>]>([
    ['publicUrl', { publicUrl: 'nonsense' }],
    ['publicUrl', { publicUrl: 'ftp://example.com/' }],
    ['publicUrl', { publicUrl: '' }],
    ['port', { port: 99_999 }],
    ['port', { port: -1 }],
    ['port', { port: 1.5 }],
  ])('for its %s says so (%j)', async (name, server) => {
    const message = expect.stringContaining(`server.${name}`) as string
    const making = createNode({ agent, logLevel: 'silent', server })
    await expect(making).rejects.toMatchObject({ name: 'ConvokeError', code: 'config', message })
  })
})

test('what code of the author throws is in the log with its stack, and only its message leaves', async () => {
  const folder = await temporaryFolder()
  const module = join(folder, 'failing-tools.mjs')
  const failing = `
import { defineTool } from ${JSON.stringify(library)}
function turnTheValve() {
  throw new TypeError('The valve is stuck.', { cause: new Error('pump at 10.1.2.3') })
}
export const pump = defineTool({ name: 'pump', description: 'Pumps.', input: { type: 'object' }, run: turnTheValve })
const schema = {
  '~standard': {
    version: 1,
    vendor: 'own',
    validate() { throw new Error('The gauge broke.') },
    jsonSchema: { input: () => ({ type: 'object' }), output: () => ({ type: 'object' }) },
  },
}
export const gauge = defineTool({ name: 'gauge', description: 'Measures.', input: schema, run: () => 1 })
`
  await writeFile(module, failing)
  const handler = join(folder, 'failing-handler.mjs')
  const throwing = `export async function* onMessage() { yield { type: 'status', text: 'Hm.' }; talk() }
function talk() { throw new Error('The tongue is tied.') }`
  await writeFile(handler, throwing)
  const node = await serve(folder, {}, { module, handler, logLevel: 'warn' })

  const pump = await send(node.url, toolCall('pump'))
  expect(pump.status.state).toBe('TASK_STATE_FAILED')
  expect(toolErrorOf(pump)).toMatchObject({ code: 'tool_failed', message: 'The valve is stuck.' })
  const gauge = await send(node.url, toolCall('gauge'))
  expect(gauge.status.state).toBe('TASK_STATE_REJECTED')
  expect(toolErrorOf(gauge)).toMatchObject({ code: 'internal' })
  const talk = await send(node.url, say('Talk.'))
  expect(talk.status.state).toBe('TASK_STATE_FAILED')
  expect(JSON.stringify([pump, gauge, talk])).not.toMatch(
    /turnTheValve|10\.1\.2\.3|TypeError|failing-|gauge broke|tied/,
  )
  for (const told of [
    /The valve is stuck\.[^\n]*turnTheValve[^\n]*failing-tools\.mjs:\d+/,
    /pump at 10\.1\.2\.3/,
    /The gauge broke\.[^\n]*failing-tools\.mjs:\d+/,
    /The tongue is tied\.[^\n]*failing-handler\.mjs:\d+/,
  ]) {
    await until(
      () => told.test(node.log()),
      () => `the log to tell ${told}; it tells ${node.log()}`,
    )
  }
  expect(node.child.exitCode).toBeNull()
})

describe('an answer to a question', () => {
  const deep = '['.repeat(100_000)
  const list = defineTool({
    name: 'list',
    description: 'Asks for a list.',
    input,
    run: (_params, { ask }) => ask({ message: 'Which?', schema: { type: 'array' } }),
  })

  test.each([
    ['without an end', deep],
    ['with one', deep + ']'.repeat(100_000)],
  ])('that nests too deep is asked for again (%s)', async (_what, text) => {
    const { url } = await startNode({ tools: [list] })
    const { id } = await send(url, toolCall('list'))
    const again = await send(url, say(text, { taskId: id }))
    expect(again.status.state).toBe('TASK_STATE_INPUT_REQUIRED')
    expect(wordsOf(again.status.message)).toContain('Which? The answer did not fit:')
    expect(resultOf(await send(url, say('["this"]', { taskId: id })))).toEqual(['this'])
  })

  test('may have to fit a schema of zod, which has the last word on it', async () => {
    const schema = z.object({ n: z.number().refine((n) => n % 2 === 0, 'must be even'), word: z.string().default('-') })
    const even = defineTool({
      name: 'even',
      description: 'Asks for an even number.',
      input,
      run: (_params, { ask }) => ask({ message: 'Which?', schema }),
    })
    const { url } = await startNode({ tools: [even] })
    const asked = await send(url, toolCall('even'))
    const reply = (text: string): Promise<Task> => send(url, say(text, { taskId: asked.id }))
    expect(asked.status.message?.metadata?.['_tool_question']).toMatchObject({
      schema: { type: 'object', properties: { n: { type: 'number' } } },
    })
    for (const [text, problem] of [
      ['even', 'object'],
      ['{"n":"4"}', 'number'],
      ['{"n":3}', 'must be even'],
    ] as const) {
      const again = await reply(text)
      expect(again.status.state).toBe('TASK_STATE_INPUT_REQUIRED')
      expect(wordsOf(again.status.message)).toContain(problem)
    }
    expect(resultOf(await reply('{"n":4}'))).toEqual({ n: 4, word: '-' })
  })
})

describe('the artifacts of a handler', () => {
  const kept = [{ text: 'Keep me.' }]
  const partsOf = ({ artifacts }: Task) => artifacts?.map(({ parts }) => parts)

  test.each<[string, JsonObject]>([
    ['a new attempt', { _tool_attempt: 1 }],
    ['a new attempt behind something', { a: {}, metadata: { _tool_attempt: 1 } }],
  ])('outlive parts that it echoes, even with the mark of %s on them', async (_what, metadata) => {
    const { url } = await startNode({
      async *onMessage({ parts }) {
        yield { type: 'text', text: 'Keep me.' }
        yield { type: 'status', parts }
        return { state: 'completed', parts }
      },
    })
    const parts = [
      { text: 'x', metadata },
      { data: {}, metadata },
    ]
    const task = await send(url, say('', { parts }))
    expect(partsOf(task)).toEqual([kept])
    expect(partsOf(await getTask(url, task.id))).toEqual([kept])
  })

  test('outlive metadata that it echoes, even the mark of a new attempt', async () => {
    const { url } = await startNode({
      async *onMessage({ metadata }) {
        yield { type: 'text', text: 'Keep me.' }
        yield { type: 'status', metadata: metadata! }
        return 'Done.'
      },
    })
    const task = await send(url, say('', { metadata: { _tool_attempt: 1 } }))
    expect(partsOf(task)).toEqual([kept])
  })
})

test('a request may name the whole URL, as those to a proxy do', async () => {
  const { url } = await startNode({ tools: [echo] })
  async function absolute(method: string, target: string, body?: unknown): Promise<{ status: number; body: unknown }> {
    const { hostname, port } = new URL(url)
    const headers = { 'content-type': 'application/json', 'a2a-version': '1.0' }
    const asked = httpRequest({ hostname, port, method, path: url + target, headers, agent: false })
    asked.end(body === undefined ? undefined : JSON.stringify(body))
    const [answer] = (await once(asked, 'response')) as [IncomingMessage]
    return { status: answer.statusCode ?? 0, body: JSON.parse(await textOf(answer)) as unknown }
  }
  const card = await absolute('GET', '/.well-known/agent-card.json')
  expect(card).toMatchObject({ status: 200, body: { name: 'Alice' } })
  const params = { message: toolCall('echo', { n: 1 }) }
  const called = await absolute('POST', '/', { jsonrpc: '2.0', id: 1, method: 'SendMessage', params })
  const { id } = (called.body as RpcBody<{ task: Task }>).result!.task
  expect(await absolute('POST', '/message:send', params)).toMatchObject({ status: 200, body: { task: { id } } })
  expect(await absolute('GET', `/tasks/${id}`)).toMatchObject({ status: 200, body: { id } })
})

test('an id with NUL is refused at the door, not by what keeps it', async () => {
  const { url } = await startNode({ onMessage: () => 'Hello.' })
  for (const [field, message] of Object.entries({
    'message.messageId': say('Hi.', { messageId: 'a\0b' }),
    'message.contextId': say('Hi.', { contextId: 'a\0b' }),
    'message.taskId': say('Hi.', { taskId: 'a\0b' }),
  })) {
    const { body } = await rpc(url, 'SendMessage', { message })
    expect(body.error, field).toMatchObject({ code: -32602, message: expect.stringContaining('NUL') })
    expect(body.error?.data?.[0]?.['fieldViolations']).toMatchObject([{ field }])
  }
})

test('a tenant that is no text is refused as such', async () => {
  const { url } = await startNode({ tools: [echo] })
  // Not escaped by us: the answer must come from the node.
  for (const method of ['ListTasks', 'SendMessage']) {
    const { body } = await rpc(url, method, { tenant: '\ud800', message: toolCall('echo') })
    expect(body.error?.code).toBe(-32602)
    expect(body.error?.data?.[0]?.['fieldViolations']).toMatchObject([{ field: 'tenant' }])
  }
  const overRest = await rest<RestErrorBody>(url, 'POST /message:send', {
    tenant: '\udfff',
    message: toolCall('echo'),
  })
  expect(overRest.status).toBe(400)
})

test('callers of version 0.3 hear when to come back to a node that is full', async () => {
  const { url } = await startNode({ tools: [hold, echo], server: { maxRunningTasks: 1 } })
  await begin(url, toolCall('hold'))
  const older = { version: '0.3' }
  for (const [what, { status, headers }] of Object.entries({
    'message/send': await rpc(url, 'message/send', { message: legacyCall('echo') }, older),
    'message/stream': await rpc(url, 'message/stream', { message: legacyCall('echo') }, older),
    'message:send': await rest(url, 'POST /v1/message:send', { message: legacyRestCall('echo') }, older),
    'message:stream': await rest(url, 'POST /v1/message:stream', { message: legacyRestCall('echo') }, older),
  })) {
    expect.soft([what, status, headers.get('retry-after')]).toEqual([what, 429, '1'])
  }
})

describe('a request of version 0.3 of the wrong shape', () => {
  const older = { version: '0.3' }
  const invalid = 'Invalid params: they do not have the shape of A2A 0.3.'
  const message = legacyCall('echo')

  test.each([
    ['message/send', { message: { ...message, extensions: 5 } }],
    ['message/send', { message, configuration: { acceptedOutputModes: 5 } }],
    ['message/stream', { message: { ...message, referenceTaskIds: 5 } }],
    ['tasks/pushNotificationConfig/set', {}],
    ['tasks/pushNotificationConfig/set', { taskId: 'x', pushNotificationConfig: null }],
  ])('tells nothing of the inside: %s %j', async (method, params) => {
    const { url } = await startNode({ tools: [echo] })
    const { body } = await rpc(url, method, params as JsonObject, older)
    expect(body.error).toEqual({ code: -32602, message: invalid })
  })

  test.each(['message:send', 'message:stream'])('tells nothing of the inside over HTTP+JSON: %s', async (path) => {
    const { url } = await startNode({ tools: [echo] })
    const request = { message: { ...legacyRestCall('echo'), content: [null] } }
    const { status, body } = await rest(url, `POST /v1/${path}`, request, older)
    expect([status, body]).toEqual([400, { code: -32602, message: invalid }])
  })

  test('is not called one of invalid params when it names no method there is', async () => {
    const { url } = await startNode({ tools: [echo] })
    const { body } = await rpc(url, 'tasks/forget', undefined, older)
    expect(body.error?.code).toBe(-32601)
  })
})
