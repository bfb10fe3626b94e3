import { defineTool, type JsonObject, type Task } from 'convoke'
import { join } from 'node:path'
import { describe, expect, test, vi } from 'vitest'
import { cleanup, deferred, startNode, temporaryFolder, until } from './support/lifetime.ts'
import { serve } from './support/process.ts'
import {
  begin,
  chunkOf,
  chunksOf,
  getTask,
  idsOf,
  range,
  rest,
  resultOf,
  rpc,
  say,
  send,
  sendStream,
  stateOf,
  subscribe,
  toolCall,
  toolErrorOf,
  wordsOf,
  type RestErrorBody,
  type StreamEvent,
} from './support/wire.ts'

const isChunk = (i: number) => (event: StreamEvent) => (chunkOf(event) as JsonObject | undefined)?.['i'] === i

describe('after kill -9 in the middle of a stream', () => {
  test('a tool that may run twice runs again, and the client goes on from its last event', async () => {
    const folder = await temporaryFolder()
    const first = await serve(folder)
    const message = toolCall('count_again', { n: 6, pauseAt: 3 })
    const before = await (await sendStream(first.url, message)).upTo(isChunk(3))
    const id = before[0]!.data.task!.id
    const lastEventId = before.at(-1)!.id!
    expect(await first.end('SIGKILL')).toBeNull()

    const second = await serve(folder)
    await second.heard('count_again runs')
    const reader = await subscribe(second.url, id, { lastEventId })
    const head = await reader.upTo(isChunk(3))
    second.release('go')
    const after = [...head, ...(await reader.all())]

    // One story without a gap, in which nothing that was told is told otherwise.
    expect(idsOf([...before, ...after])).toEqual(range(1, before.length + after.length))
    expect(await (await subscribe(second.url, id, { lastEventId: 0 })).all()).toEqual([...before, ...after])

    const again = after.filter((event) => chunkOf(event) !== undefined)
    expect(again[0]?.data.artifactUpdate).toMatchObject({ append: false, artifact: { metadata: { _tool_attempt: 2 } } })
    for (const event of again.slice(1)) {
      expect(event.data.artifactUpdate).toMatchObject({ append: true, artifact: { metadata: { _tool_attempt: 2 } } })
    }
    const { pid } = second.child
    const chunks = range(1, 6).map((i) => ({ pid, i }))
    expect(chunksOf([...before, ...after])).toEqual(chunks)
    expect(stateOf(after.at(-1)!)).toBe('TASK_STATE_COMPLETED')
    const task = await getTask(second.url, id)
    expect(resultOf(task)).toEqual({ counted: 6 })
    expect(task.artifacts?.[0]?.parts.map(({ data }) => data)).toEqual(chunks)

    // The message finds its task again, and runs nothing.
    expect((await send(second.url, message)).id).toBe(id)
    expect(second.count('count_again runs')).toBe(1)
  })

  test('a tool that may not run twice has failed, and what it said is still there', async () => {
    const folder = await temporaryFolder()
    const first = await serve(folder)
    const message = toolCall('count_once', { n: 6, pauseAt: 3 })
    const before = await (await sendStream(first.url, message)).upTo(isChunk(3))
    const id = before[0]!.data.task!.id
    await first.end('SIGKILL')

    const second = await serve(folder)
    const task = await getTask(second.url, id)
    expect(task.status.state).toBe('TASK_STATE_FAILED')
    expect(toolErrorOf(task)).toMatchObject({ code: 'worker_lost', retryable: false, tool_name: 'count_once' })
    expect(task.artifacts?.[0]?.parts.map(({ data }) => (data as JsonObject)['i'])).toEqual([1, 2, 3])
    const after = await (await subscribe(second.url, id, { lastEventId: before.at(-1)!.id! })).all()
    expect(after).toHaveLength(1)
    expect(after[0]?.id).toBe(before.length + 1)
    expect(stateOf(after[0]!)).toBe('TASK_STATE_FAILED')
    expect((await send(second.url, message)).id).toBe(id)
    expect(second.count('count_once runs')).toBe(0)
  })
})

test.each(['SIGKILL', 'SIGTERM'] as const)(
  'a task that waits for an answer survives %s if its tool may run twice, and has ended otherwise',
  async (signal) => {
    const folder = await temporaryFolder()
    const first = await serve(folder, { drainMs: 100 })
    const reply = (url: string, taskId: string, text: string): Promise<Task> => send(url, say(text, { taskId }))
    const { id } = await send(first.url, toolCall('interview_again', { words: ['mine'] }))
    expect(wordsOf((await reply(first.url, id, 'one')).status.message)).toBe('Second?')
    const unwanted = await send(first.url, toolCall('interview_again'))
    const once = await send(first.url, toolCall('interview_once'))
    expect(await first.end(signal)).toBe(signal === 'SIGTERM' ? 0 : null)

    const second = await serve(folder)
    const ended = await getTask(second.url, once.id)
    expect(ended.status.state).toBe(signal === 'SIGTERM' ? 'TASK_STATE_CANCELED' : 'TASK_STATE_FAILED')
    expect(toolErrorOf(ended)?.code).toBe(signal === 'SIGTERM' ? 'canceled' : 'worker_lost')
    const waiting = await getTask(second.url, id)
    expect(waiting.status).toMatchObject({
      state: 'TASK_STATE_INPUT_REQUIRED',
      message: { parts: [{ text: 'Second?' }] },
    })

    // A cancel ends it without a run.
    const canceled = await rpc<Task>(second.url, 'CancelTask', { id: unwanted.id })
    expect(canceled.body.result?.status.state).toBe('TASK_STATE_CANCELED')
    expect(second.count('interview_again runs')).toBe(0)

    // It runs from its beginning with what it had: the params that were sent, which it changes, and the first answer.
    const done = await reply(second.url, id, 'two')
    expect(done.status.state).toBe('TASK_STATE_COMPLETED')
    expect(resultOf(done)).toEqual({ words: ['mine', 'changed'], answers: ['one', 'two'] })
    expect(second.count('interview_again runs')).toBe(1)
    expect(second.count('interview_once runs')).toBe(0)
  },
)

describe('SIGTERM', () => {
  test('lets a running task finish within the drain time, and the process ends with 0', async () => {
    const folder = await temporaryFolder()
    const first = await serve(folder, { drainMs: 30_000 })
    const { id } = await begin(first.url, toolCall('count_once', { n: 3, pauseAt: 2 }))
    await first.heard('count_once runs')
    first.child.kill('SIGTERM')
    await until(
      () =>
        fetch(first.url).then(
          () => false,
          () => true,
        ),
      'the node to take no more connections',
    )
    first.release('go')
    expect(await first.ended()).toBe(0)
    const second = await serve(folder)
    const task = await getTask(second.url, id)
    expect(task.status.state).toBe('TASK_STATE_COMPLETED')
    expect(resultOf(task)).toEqual({ counted: 3 })
  })

  test('cancels what takes longer, and the tool hears of it', async () => {
    const folder = await temporaryFolder()
    const first = await serve(folder, { drainMs: 50 })
    const reader = await sendStream(first.url, toolCall('hold'))
    const id = (await reader.upTo((event) => chunkOf(event) === 'holding'))[0]!.data.task!.id
    expect(await first.end('SIGTERM')).toBe(0)
    await first.heard('hold was stopped: canceled')
    const second = await serve(folder)
    const task = await getTask(second.url, id)
    expect(task.status.state).toBe('TASK_STATE_CANCELED')
    expect(toolErrorOf(task)).toMatchObject({ code: 'canceled' })
  })
})

test('a full store refuses with 503, is still read, and recovers without a restart', async () => {
  // The sweep that makes room runs every minute; the test turns the clock of the intervals.
  vi.useFakeTimers({ toFake: ['setInterval', 'clearInterval'] })
  cleanup(() => vi.useRealTimers())
  const gate = deferred()
  const fill = (name: string, idempotent: boolean) =>
    defineTool({
      name,
      description: 'Takes room.',
      input: { type: 'object' },
      traits: { idempotent },
      run: () => 'x'.repeat(50_000),
    })
  const late = defineTool({
    name: 'late',
    description: 'Says much when it is told to.',
    input: { type: 'object' },
    async *run() {
      yield 'early'
      await gate.promise
      yield 'y'.repeat(100_000)
      return 'late'
    },
  })
  const url = `sqlite:${join(await temporaryFolder(), 'node.db')}`
  const node = await startNode({
    tools: [fill('fill', false), fill('fill_again', true), late],
    store: { url, maxBytes: 1_000_000, retention: 1 },
  })
  const running = await sendStream(node.url, toolCall('late'))
  const early = await running.upTo((event) => chunkOf(event) === 'early')
  const id = early[0]!.data.task!.id

  const first = await send(node.url, toolCall('fill'))
  const bulk = Array.from({ length: 40 }, () => 'x'.repeat(1000))
  // Not waited for: where a task still fits and its result does not, it would end with the sweep only.
  const more = () =>
    rpc(node.url, 'SendMessage', { message: toolCall('fill', { bulk }), configuration: { returnImmediately: true } })
  let refused = await more()
  for (let n = 0; n < 60 && refused.body.error === undefined; n++) refused = await more()
  expect(refused.status).toBe(503)
  expect(refused.body.error).toMatchObject({ code: -32053, message: expect.stringContaining('store') })
  expect(refused.headers.get('retry-after')).toMatch(/^\d+$/)
  const again = await rpc(node.url, 'SendMessage', { message: toolCall('fill_again', { bulk }) })
  expect(again.status).toBe(503)
  const overRest = await rest<RestErrorBody>(node.url, 'POST /message:send', { message: toolCall('fill', { bulk }) })
  expect(overRest.status).toBe(503)
  expect(overRest.body.error.status).toBe('UNAVAILABLE')
  const streaming = await rpc(node.url, 'SendStreamingMessage', { message: toolCall('fill', { bulk }) })
  expect(streaming.status).toBe(503)

  // What is there can be read.
  expect((await getTask(node.url, first.id)).status.state).toBe('TASK_STATE_COMPLETED')
  expect((await rpc<{ tasks: unknown[] }>(node.url, 'ListTasks', {})).body.result?.tasks.length).toBeGreaterThan(3)
  expect((await getTask(node.url, id)).status.state).toBe('TASK_STATE_WORKING')
  // What runs is held back, and loses nothing.
  gate.resolve()

  // Finished tasks are past their retention: the next sweep makes room.
  await until(async () => {
    vi.advanceTimersByTime(60_000)
    return (await rpc(node.url, 'GetTask', { id: first.id })).body.error !== undefined
  }, 'the sweep')
  const { status } = await until(async () => {
    const { body } = await rpc<{ task: { status: { state: string } } }>(node.url, 'SendMessage', {
      message: toolCall('fill'),
    })
    return body.result?.task
  }, 'the store to take tasks again')
  expect(status.state).toBe('TASK_STATE_COMPLETED')
  const later = await running.all()
  expect(idsOf([...early, ...later])).toEqual(range(1, early.length + later.length))
  expect(chunksOf(later)).toEqual(['y'.repeat(100_000)])
  expect(stateOf(later.at(-1)!)).toBe('TASK_STATE_COMPLETED')
})
