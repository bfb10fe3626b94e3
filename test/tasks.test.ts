/** The task runtime by itself, where the node's doors do not reach: several workers on one store, compaction, limits. */
import { afterEach, describe, expect, test } from 'vitest'
import type { ConvokeError } from '../dist/base/errors.js'
import type { Message, Task } from '../dist/protocol/a2a.js'
import { openStore } from '../dist/store/open.js'
import type { EventRecord, Store } from '../dist/store/store.js'
import { TaskRuntime } from '../dist/tasks/runtime.js'
import type { Outcome, Work, WorkContext, WorkEvent } from '../dist/tasks/work.js'

const owner = '/me'
const silent = { debug() {}, info() {}, warn() {}, error() {} }
const closing: (() => Promise<void>)[] = []

afterEach(async () => {
  for (const close of closing.splice(0).reverse()) await close()
})

async function memoryStore(): Promise<Store> {
  const store = await openStore({ url: ':memory:' })
  closing.push(() => store.close())
  return store
}

type Run = (context: WorkContext) => AsyncGenerator<WorkEvent, Outcome, void>

function work(run: Run, traits: Partial<Work> = {}): Work {
  return {
    repeatable: false,
    run,
    fail: (error) => ({ state: 'TASK_STATE_FAILED', metadata: { code: error.code } }),
    ...traits,
  }
}

function runtime(store: Store, made: Work, options: { leaseMs?: number; maxRuns?: number } = {}): TaskRuntime<null> {
  const created = new TaskRuntime<null>({
    store,
    log: silent,
    execute: () => made,
    cancelGraceMs: 50,
    maxRuns: 100,
    deduplicate: true,
    retentionMs: 1e9,
    compactAfterMs: -1,
    ...options,
  })
  closing.push(() => created.close(0))
  return created
}

let count = 0

function message(more: Partial<Message> = {}): Message {
  return { messageId: `m-${++count}`, role: 'ROLE_USER', parts: [{ text: 'Go.' }], ...more }
}

async function gather(events: AsyncIterable<EventRecord[]>): Promise<EventRecord[]> {
  const all: EventRecord[] = []
  for await (const batch of events) all.push(...batch)
  return all
}

const never = new AbortController().signal

/** Works until it is stopped, and tells when it began and when it was stopped. */
function endless(): { made: Work; began: Promise<void>; stopped: Promise<ConvokeError> } {
  let onBegin = (): void => {}
  let onStop = (_error: ConvokeError): void => {}
  const began = new Promise<void>((resolve) => (onBegin = resolve))
  const stopped = new Promise<ConvokeError>((resolve) => (onStop = resolve))
  const made = work(async function* (context) {
    yield { type: 'artifact', artifact: { artifactId: 'a', parts: [{ text: 'begun' }] } }
    onBegin()
    await new Promise<void>((resolve) => context.signal.addEventListener('abort', () => resolve()))
    onStop(context.signal.reason as ConvokeError)
    return { state: 'TASK_STATE_COMPLETED' }
  })
  return { made, began, stopped }
}

describe('two workers on one store', () => {
  test('a cancel that comes to one stops the work of the other', async () => {
    const store = await memoryStore()
    const { made, began, stopped } = endless()
    const one = runtime(store, made, { leaseMs: 60 })
    const other = runtime(store, made, { leaseMs: 60 })
    const { taskId } = await one.send({ owner, message: message(), context: null }, undefined)
    await began
    const task = JSON.parse(await other.cancel(owner, taskId)) as Task
    expect(task.status.state).toBe('TASK_STATE_CANCELED')
    expect((await stopped).code).toBe('canceled')
  })

  test('one that lost its task to the other stops its work and writes no more', async () => {
    const store = await memoryStore()
    const { made, began, stopped } = endless()
    const one = runtime(store, made)
    const sent = await one.send({ owner, message: message(), context: null }, undefined)
    await began
    const [row] = await store.claim('other', { now: Date.now() + 1e9, leaseMs: 1000, limit: 10 })
    expect(row?.id).toBe(sent.taskId)
    const before = await store.load(sent.taskId)
    // Its end cannot be committed under the old epoch.
    await expect(one.cancel(owner, sent.taskId)).rejects.toMatchObject({ code: 'task_not_cancelable' })
    expect((await stopped).code).toBe('canceled')
    expect(await store.load(sent.taskId)).toEqual(before)
    expect(one.stats.running).toBe(0)
  })

  test('a task of a worker that died is taken over once', async () => {
    const store = await memoryStore()
    let runs = 0
    const made = work(
      async function* () {
        runs++
        yield { type: 'artifact', artifact: { artifactId: 'a', parts: [{ text: `run ${runs}` }] } }
        return { state: 'TASK_STATE_COMPLETED' }
      },
      { repeatable: true },
    )
    const dead = {
      id: 'task',
      owner,
      contextId: 'context',
      messageId: 'm',
      metadata: null,
      request: JSON.stringify({ context: null }),
      repeatable: true,
      worker: 'dead',
      leaseUntil: 0,
    }
    const status = {
      state: 'TASK_STATE_WORKING',
      text: '{"state":"TASK_STATE_WORKING","timestamp":"2026-01-01T00:00:00.000Z"}',
      at: 1,
    }
    await store.create(dead, { status, history: JSON.stringify([message()]), events: [] })
    const workers = [runtime(store, made), runtime(store, made)]
    const taken = await Promise.all(workers.map((each) => each.recover()))
    expect(taken.reduce((sum, each) => sum + each, 0)).toBe(1)
    const events = await gather(workers[0]!.follow(owner, 'task', 0, never))
    expect(events.map(({ seq }) => seq)).toEqual(events.map((_, index) => index + 1))
    expect(runs).toBe(1)
  })
})

describe('a task that ended', () => {
  const chunks = work(async function* () {
    for (const text of ['a', 'b', 'c']) {
      yield { type: 'artifact', artifact: { artifactId: 'chunks', parts: [{ text }] }, append: text !== 'a' }
    }
    return { state: 'TASK_STATE_COMPLETED' }
  })

  test('is the same before and after its events were compacted', async () => {
    const store = await memoryStore()
    const tasks = runtime(store, chunks)
    const sent = await tasks.send({ owner, message: message(), context: null }, undefined)
    await sent.settled()
    const before = await tasks.get(owner, sent.taskId)
    await tasks.sweep()
    expect((await store.load(sent.taskId))?.artifacts).toEqual(expect.any(String))
    expect(await tasks.get(owner, sent.taskId)).toBe(before)
    expect((JSON.parse(before) as Task).artifacts?.[0]?.parts).toEqual([{ text: 'a' }, { text: 'b' }, { text: 'c' }])
  })

  test('is kept as long as what agents keep: the sweep clears conversations away, too', async () => {
    const store = await memoryStore()
    const tasks = runtime(store, chunks)
    const { agents } = store
    // More than the sweep takes in one go.
    const keys = Array.from({ length: 250 }, (_, n) => `context-${n}`)
    for (const key of [...keys, 'recent']) {
      await agents.append('s', key, { id: 'm', event: '1' })
      const now = key === 'recent' ? Date.now() : Date.now() - 2e9
      const lease = await agents.lease('s', key, 'w', { now, leaseMs: 1000, limit: 1 })
      if (lease) await agents.commit(lease, { mailId: 'm', now, state: '{}', outputs: ['1'], failure: null })
      if (lease) await agents.release(lease)
    }
    await tasks.sweep()
    for (const key of keys) expect(await agents.state('s', key)).toBeUndefined()
    expect(await agents.state('s', 'recent')).toBe('{}')
    expect(await agents.outputs('s', { after: 0, limit: 1000 })).toHaveLength(1)
  })

  test('is one snapshot for a follower whose events were compacted away', async () => {
    const tasks = runtime(await memoryStore(), chunks)
    const sent = await tasks.send({ owner, message: message(), context: null }, undefined)
    await sent.settled()
    const events = await gather(tasks.follow(owner, sent.taskId, 0, never))
    await tasks.sweep()
    const rest = await gather(tasks.follow(owner, sent.taskId, 2, never))
    expect(rest).toEqual([{ seq: events.at(-1)?.seq, text: `{"task":${await tasks.get(owner, sent.taskId)}}` }])
    expect(await gather(tasks.follow(owner, sent.taskId, events.length, never))).toEqual([])
  })
})

test('a node that is full takes no more, and says when to come back', async () => {
  const { made, began } = endless()
  const tasks = runtime(await memoryStore(), made, { maxRuns: 1 })
  await tasks.send({ owner, message: message(), context: null }, undefined)
  await began
  const refused = tasks.send({ owner, message: message(), context: null }, undefined)
  await expect(refused).rejects.toMatchObject({ code: 'rate_limited', retryAfterMs: 1000 })
})

test('progress that nobody has seen yet is replaced by the newest, and chunks are not', async () => {
  const made = work(async function* (context) {
    for (let i = 0; i < 1000; i++) context.emit({ type: 'status', metadata: { i } })
    yield { type: 'artifact', artifact: { artifactId: 'a', parts: [{ text: 'x' }] } }
    for (let i = 1000; i < 2000; i++) context.emit({ type: 'status', metadata: { i } })
    return { state: 'TASK_STATE_COMPLETED' }
  })
  const tasks = runtime(await memoryStore(), made)
  const sent = await tasks.send({ owner, message: message(), context: null }, undefined)
  const events = await gather(tasks.follow(owner, sent.taskId, 0, never))
  const said = events.map(({ text }) => JSON.parse(text) as { statusUpdate?: { metadata?: { i: number } } })
  expect(said.flatMap(({ statusUpdate }) => statusUpdate?.metadata?.i ?? [])).toEqual([999, 1999])
  expect(events.map(({ seq }) => seq)).toEqual(events.map((_, index) => index + 1))
})

test('the last chunk says so when it has not left before the work ends', async () => {
  const made = work(async function* () {
    for (const text of ['a', 'b']) yield { type: 'artifact', artifact: { artifactId: 'chunks', parts: [{ text }] } }
    yield { type: 'end', artifactId: 'chunks' }
    return { state: 'TASK_STATE_COMPLETED' }
  })
  const tasks = runtime(await memoryStore(), made)
  let flags: unknown[] = []
  // The first run is slow enough for chunks to leave by themselves: nothing is compiled yet.
  for (let i = 0; i < 20; i++) {
    const sent = await tasks.send({ owner, message: message(), context: null }, undefined)
    const events = await gather(tasks.follow(owner, sent.taskId, 0, never))
    const said = events.map(({ text }) => JSON.parse(text) as { artifactUpdate?: { lastChunk: boolean } })
    flags = said.flatMap(({ artifactUpdate }) => artifactUpdate?.lastChunk ?? [])
  }
  expect(flags).toEqual([false, true])
})

test('two questions at once are asked one after the other, and each gets its own answer', async () => {
  const ask = (context: WorkContext, text: string) =>
    context.ask({ messageId: `q-${text}`, role: 'ROLE_AGENT', parts: [{ text }] })
  const got: (string | undefined)[] = []
  const made = work(async function* (context) {
    const answers = await Promise.all([ask(context, 'first?'), ask(context, 'second?')])
    got.push(...answers.map(({ parts }) => parts[0]?.text))
    yield { type: 'artifact', artifact: { artifactId: 'a', parts: [{ text: 'thanks' }] } }
    return { state: 'TASK_STATE_COMPLETED' }
  })
  const tasks = runtime(await memoryStore(), made)
  const sent = await tasks.send({ owner, message: message(), context: null }, undefined)
  await sent.settled()
  const { taskId } = sent
  for (const text of ['one', 'two']) {
    const reply = await tasks.send({ owner, message: message({ taskId, parts: [{ text }] }), context: null }, undefined)
    await reply.settled()
  }
  expect(got).toEqual(['one', 'two'])
  const history = (JSON.parse(await tasks.get(owner, taskId)) as Task).history ?? []
  expect(history.map(({ parts }) => parts[0]?.text)).toEqual(['Go.', 'first?', 'one', 'second?', 'two'])
})

test('a tool that does not stop is abandoned after the grace period, and what it says later is discarded', async () => {
  let release = (): void => {}
  const held = new Promise<void>((resolve) => (release = resolve))
  let onBegin = (): void => {}
  const began = new Promise<void>((resolve) => (onBegin = resolve))
  let leftAt = ''
  const made = work(async function* () {
    yield { type: 'artifact', artifact: { artifactId: 'a', parts: [{ text: 'begun' }] } }
    onBegin()
    await held
    leftAt = 'behind its wait'
    yield { type: 'artifact', artifact: { artifactId: 'a', parts: [{ text: 'too late' }] } }
    return { state: 'TASK_STATE_COMPLETED' }
  })
  const tasks = runtime(await memoryStore(), made)
  const { taskId } = await tasks.send({ owner, message: message(), context: null }, undefined)
  await began
  const canceled = await tasks.cancel(owner, taskId)
  expect(tasks.stats).toEqual({ running: 0, abandoned: 1 })
  release()
  await held
  await new Promise((resolve) => setImmediate(resolve))
  expect(leftAt).toBe('behind its wait')
  expect(await tasks.get(owner, taskId)).toBe(canceled)
})
