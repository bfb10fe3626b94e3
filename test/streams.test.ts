import { defineTool, type Message, type Tool } from 'convoke'
import { once } from 'node:events'
import { connect } from 'node:net'
import { join } from 'node:path'
import { describe, expect, test } from 'vitest'
import { cleanup, deferred, startNode, temporaryFolder, until, within, type Deferred } from './support/lifetime.ts'
import {
  begin,
  chunkOf,
  chunksOf,
  getTask,
  idsOf,
  range,
  restStream,
  resultOf,
  rpc,
  say,
  send,
  sendStream,
  stateOf,
  stream,
  subscribe,
  toolCall,
  type EventReader,
  type Params,
  type StreamEvent,
  type StreamOptions,
} from './support/wire.ts'

/** A tool that yields `before`, waits for the test, and yields `after`. */
function twoHalves(
  before: readonly string[],
  after: readonly string[],
): { tool: Tool; gate: Deferred<void>; runs: () => number } {
  const gate = deferred()
  let runs = 0
  const tool = defineTool({
    name: 'halves',
    description: 'Says one half, waits, and says the other.',
    input: { type: 'object' },
    async *run(_params, { signal }) {
      runs++
      yield* before
      await Promise.race([
        gate.promise,
        new Promise((_resolve, reject) => (signal.onabort = () => reject(signal.reason as Error))),
      ])
      yield* after
      return { said: before.length + after.length }
    },
  })
  return { tool, gate, runs: () => runs }
}

const chunk = (text: string) => (event: StreamEvent) => chunkOf(event) === text

async function storeUrl(kind: string): Promise<string> {
  return kind === 'memory' ? ':memory:' : `sqlite:${join(await temporaryFolder(), 'node.db')}`
}

describe.each(['memory', 'sqlite'])('a stream (%s)', (kind) => {
  test('numbers its events 1, 2, 3 and so on, and tells the whole story of the task', async () => {
    const { tool, gate } = twoHalves(['a', 'b'], ['c'])
    const { url } = await startNode({ tools: [tool], store: { url: await storeUrl(kind) } })
    gate.resolve()
    const reader = await sendStream(url, toolCall('halves'))
    const events = await reader.all()
    expect(idsOf(events)).toEqual(range(1, events.length))
    expect(events[0]?.data.task?.status.state).toBe('TASK_STATE_SUBMITTED')
    expect(chunksOf(events)).toEqual(['a', 'b', 'c'])
    const last = events.findLast(chunk('c'))
    expect(last?.data.artifactUpdate).toMatchObject({ append: true })
    expect(events.at(-2)?.data.artifactUpdate?.artifact).toMatchObject({
      artifactId: 'result',
      parts: [{ data: { said: 3 } }],
    })
    expect(events.flatMap((event) => stateOf(event) ?? [])).toEqual([
      'TASK_STATE_SUBMITTED',
      'TASK_STATE_WORKING',
      'TASK_STATE_COMPLETED',
    ])
    const ids = new Set(
      events.map(({ data }) => data.task?.id ?? data.statusUpdate?.taskId ?? data.artifactUpdate?.taskId),
    )
    expect(ids.size).toBe(1)
  })

  test('goes on behind Last-Event-ID with exactly what was missed', async () => {
    const { tool, gate } = twoHalves(['a', 'b', 'c'], ['d', 'e'])
    const { url } = await startNode({ tools: [tool], store: { url: await storeUrl(kind) } })
    const message = toolCall('halves')
    const first = await sendStream(url, message)
    const before = await first.upTo(chunk('b'))
    const id = before[0]!.data.task!.id
    first.close()
    const lastEventId = before.at(-1)!.id!

    // Three ways back to the same stream: by the task, by the message again, and over the other binding.
    const back = [
      await subscribe(url, id, { lastEventId }),
      await sendStream(url, message, { lastEventId }),
      await restStream(url, `GET /tasks/${id}:subscribe`, undefined, { lastEventId }),
      await restStream(url, 'POST /message:stream', { message }, { lastEventId }),
    ]
    const head = await Promise.all(back.map((reader) => reader.upTo(chunk('c'))))
    gate.resolve()
    for (const [index, reader] of back.entries()) {
      const events = [...before, ...head[index]!, ...(await reader.all())]
      expect(idsOf(events)).toEqual(range(1, events.length))
      expect(chunksOf(events)).toEqual(['a', 'b', 'c', 'd', 'e'])
      expect(stateOf(events.at(-1)!)).toBe('TASK_STATE_COMPLETED')
    }
  })

  test('begins with the task as it stands for whoever names no last event', async () => {
    const { tool, gate } = twoHalves(['a', 'b'], ['c'])
    const { url } = await startNode({ tools: [tool], store: { url: await storeUrl(kind) } })
    const message = toolCall('halves')
    const first = await sendStream(url, message)
    const before = await first.upTo(chunk('b'))
    const id = before[0]!.data.task!.id

    const back = [
      await subscribe(url, id),
      await sendStream(url, message),
      await restStream(url, `POST /tasks/${id}:subscribe`),
    ]
    const snapshots = await Promise.all(back.map((reader) => reader.next()))
    gate.resolve()
    for (const [index, reader] of back.entries()) {
      const snapshot = snapshots[index]!
      expect(snapshot.id).toBe(before.at(-1)!.id)
      expect(snapshot.data.task).toMatchObject({ id, status: { state: 'TASK_STATE_WORKING' } })
      expect(snapshot.data.task?.artifacts).toMatchObject([
        { artifactId: 'stream', parts: [{ text: 'a' }, { text: 'b' }] },
      ])
      const rest = await reader.all()
      expect(idsOf(rest)).toEqual(range(snapshot.id! + 1, snapshot.id! + rest.length))
      expect(chunksOf(rest)).toEqual(['c'])
      expect(stateOf(rest.at(-1)!)).toBe('TASK_STATE_COMPLETED')
    }
  })

  test('begins with the task for a Last-Event-ID that never was', async () => {
    const { tool } = twoHalves(['a'], ['b'])
    const { url } = await startNode({ tools: [tool], store: { url: await storeUrl(kind) } })
    const first = await sendStream(url, toolCall('halves'))
    const id = (await first.upTo(chunk('a')))[0]!.data.task!.id
    for (const headers of [{ 'last-event-id': '99' }, { 'last-event-id': '-1' }, { 'last-event-id': 'abc' }]) {
      const reader = await subscribe(url, id, { headers })
      expect((await reader.next())?.data.task?.id).toBe(id)
      reader.close()
    }
  })

  test('can be read to its end after the task has ended, and not subscribed to when nothing was missed', async () => {
    const { tool, gate } = twoHalves(['a'], ['b'])
    const { url } = await startNode({ tools: [tool], store: { url: await storeUrl(kind) } })
    gate.resolve()
    const message = toolCall('halves')
    const whole = await (await sendStream(url, message)).all()
    const id = whole[0]!.data.task!.id
    const after = whole.find(chunk('a'))!.id!

    const missed = whole.filter((event) => event.id! > after)
    expect(await (await subscribe(url, id, { lastEventId: after })).all()).toEqual(missed)
    expect(await (await sendStream(url, message, { lastEventId: after })).all()).toEqual(missed)
    const again = await (await sendStream(url, message)).all()
    expect(again).toHaveLength(1)
    expect(again[0]?.data.task).toEqual(await getTask(url, id))

    const { body } = await rpc(url, 'SubscribeToTask', { id }, { headers: { 'last-event-id': String(whole.length) } })
    expect(body.error?.code).toBe(-32004)
    expect((await rpc(url, 'SubscribeToTask', { id })).body.error?.code).toBe(-32004)
  })

  test('is the same for everybody who reads it', async () => {
    const { tool, gate } = twoHalves(range(1, 50).map(String), range(51, 100).map(String))
    const { url } = await startNode({ tools: [tool], store: { url: await storeUrl(kind) } })
    const sender = await sendStream(url, toolCall('halves'))
    const first = (await sender.next())!
    const id = first.data.task!.id
    const readers = [sender, await subscribe(url, id, { lastEventId: 1 }), await subscribe(url, id, { lastEventId: 1 })]
    gate.resolve()
    const [mine, ...theirs] = await Promise.all(readers.map((reader) => reader.all()))
    expect(chunksOf(mine!)).toEqual(range(1, 100).map(String))
    for (const events of theirs) expect(events).toEqual(mine)
  })

  test('waits for a reader that stalls: neither the tool nor other readers do, and it gets everything in the end', async () => {
    const size = 64 * 1024
    const count = 400
    const burst = defineTool({
      name: 'burst',
      description: 'Says more than any buffer on the way holds.',
      input: { type: 'object' },
      async *run() {
        for (let n = 0; n < count; n++) yield `${n} `.padEnd(size, '.')
        return count
      },
    })
    const { url } = await startNode({ tools: [burst], store: { url: await storeUrl(kind) } })
    const stalled = await sendStream(url, toolCall('burst'))
    const first = (await stalled.next())!
    const id = first.data.task!.id
    const quick = await subscribe(url, id, { lastEventId: 1 })
    const all = await quick.all()
    expect(chunksOf(all)).toHaveLength(count)
    expect((await getTask(url, id)).status.state).toBe('TASK_STATE_COMPLETED')
    const late = [first, ...(await stalled.all())]
    expect(idsOf(late)).toEqual(range(1, late.length))
    expect(chunksOf(late)).toEqual(chunksOf(all))
  })

  test('that nobody reads any more does not stop the work', async () => {
    const { tool, gate } = twoHalves(['a'], ['b'])
    const node = await startNode({ tools: [tool], store: { url: await storeUrl(kind) } })
    const reader = await sendStream(node.url, toolCall('halves'))
    const id = (await reader.upTo(chunk('a')))[0]!.data.task!.id
    reader.close()
    // Hanging up a blocking call is no cancel either.
    const hung = new AbortController()
    const blocking = rpc(node.url, 'SendMessage', { message: toolCall('halves') }, { signal: hung.signal })
    await until(() => node.stats.running === 2, 'the second call to run')
    hung.abort()
    await expect(blocking).rejects.toThrow('abort')
    gate.resolve()
    await until(() => node.stats.running === 0, 'both to end')
    expect(await getTask(node.url, id)).toMatchObject({ status: { state: 'TASK_STATE_COMPLETED' } })
    const { body } = await rpc<{ tasks: unknown[] }>(node.url, 'ListTasks', { status: 'TASK_STATE_COMPLETED' })
    expect(body.result?.tasks).toHaveLength(2)
  })

  test('of a message that was sent before runs nothing twice', async () => {
    const { tool, gate, runs } = twoHalves(['a'], ['b'])
    const { url } = await startNode({ tools: [tool], store: { url: await storeUrl(kind) } })
    const message = toolCall('halves')
    // At the same moment, and by every way there is.
    const tasks = Promise.all([send(url, message), send(url, message)])
    const streams = await Promise.all([
      sendStream(url, message),
      sendStream(url, message),
      restStream(url, 'POST /message:stream', { message }),
    ])
    const started = await begin(url, message)
    gate.resolve()
    const blocking = await tasks
    const streamed = await Promise.all(streams.map((reader) => reader.all()))
    const later = await send(url, message)
    const ids = [...blocking, started, later].map((task) => task.id)
    ids.push(...streamed.map((events) => events[0]!.data.task!.id))
    expect(new Set(ids).size).toBe(1)
    expect(runs()).toBe(1)
    for (const task of [...blocking, later]) expect(resultOf(task)).toEqual({ said: 2 })
    for (const events of streamed) expect(stateOf(events.at(-1)!)).toBe('TASK_STATE_COMPLETED')
    expect((await send(url, toolCall('halves'))).id).not.toBe(later.id)
  })
})

test('a stream opens at once and has heartbeats while a message handler thinks', async () => {
  const gate = deferred()
  cleanup(() => gate.resolve())
  const { url } = await startNode({ onMessage: () => gate.promise.then(() => 'Hm.'), server: { heartbeatMs: 20 } })
  const reader = await sendStream(url, say('Hello.'))
  while (reader.comments() < 2) await reader.pull()
  gate.resolve()
  const events = await reader.all()
  expect(events.map(({ data }) => data.message?.parts)).toEqual([[{ text: 'Hm.' }]])
})

test('the first chunk is there before the tool goes on', async () => {
  const { tool, gate } = twoHalves(['first'], ['second'])
  const { url } = await startNode({ tools: [tool] })
  const reader = await sendStream(url, toolCall('halves'))
  await reader.upTo(chunk('first'))
  gate.resolve()
  expect(chunksOf(await reader.all())).toEqual(['second'])
})

test('a stream has the headers that keep proxies from holding it back', async () => {
  const { tool, gate } = twoHalves([], [])
  const { url } = await startNode({ tools: [tool] })
  gate.resolve()
  const named = { headers: { 'a2a-extensions': 'urn:convoke:tool-call:v1' } }
  const readers = [
    await sendStream(url, toolCall('halves'), named),
    await restStream(url, 'POST /message:stream', { message: toolCall('halves') }, named),
  ]
  for (const { status, headers } of readers) {
    expect(status).toBe(200)
    expect(headers.get('content-type')).toBe('text/event-stream')
    expect(headers.get('x-accel-buffering')).toBe('no')
    expect(headers.get('cache-control')).toMatch(/no-cache.*no-transform/)
    expect(headers.get('a2a-extensions')).toBe('urn:convoke:tool-call:v1')
  }
})

test('comments keep a silent stream open, in both versions', async () => {
  const { tool, gate } = twoHalves(['a'], ['b'])
  const { url } = await startNode({ tools: [tool], server: { heartbeatMs: 20 } })
  const readers: EventReader[] = [
    await sendStream(url, toolCall('halves')),
    await restStream(url, 'POST /message:stream', { message: toolCall('halves') }),
    await legacyStream(url, toolCall('halves')),
    await restStream(url, 'POST /v1/message:stream', { message: legacyRest(toolCall('halves')) }, { version: '0.3' }),
  ]
  for (const reader of readers) {
    while (reader.comments() < 3) await reader.pull()
  }
  gate.resolve()
  for (const reader of readers) expect(JSON.stringify(await reader.all())).toMatch(/completed/i)
})

test('progress is told, and what nobody has seen yet is replaced by the newest', async () => {
  const gates = [deferred(), deferred()]
  const step = defineTool({
    name: 'step',
    description: 'Tells how far it is.',
    input: { type: 'object' },
    async run(_params, { progress }) {
      progress({ progress: 1, total: 3, message: 'one of three' })
      await gates[0]!.promise
      for (let n = 1; n <= 1000; n++) progress({ progress: 1 + n / 1000, total: 3 })
      await gates[1]!.promise
      progress({ progress: 3 })
      return 'done'
    },
  })
  const { url } = await startNode({ tools: [step] })
  const progressOf = ({ data }: StreamEvent): unknown => data.statusUpdate?.metadata?.['_tool_progress']
  const reader = await sendStream(url, toolCall('step'))
  const events = await reader.upTo((event) => progressOf(event) !== undefined)
  expect(progressOf(events.at(-1)!)).toEqual({ progress: 1, total: 3, message: 'one of three' })
  gates[0]!.resolve()
  const more = await reader.upTo((event) => (progressOf(event) as { progress?: number } | undefined)?.progress === 2)
  expect(more.length).toBeLessThan(100)
  gates[1]!.resolve()
  const rest = await reader.all()
  expect(progressOf(rest[0]!)).toEqual({ progress: 3 })
  expect(rest[0]?.data.statusUpdate?.status.state).toBe('TASK_STATE_WORKING')
  const all = [...events, ...more, ...rest]
  expect(idsOf(all)).toEqual(range(1, all.length))
})

test('a bare message is a stream of one event, which has no id', async () => {
  const { url } = await startNode({ onMessage: () => 'Hello yourself.' })
  for (const reader of [
    await sendStream(url, say('Hello.')),
    await restStream(url, 'POST /message:stream', { message: say('Hello.') }),
  ]) {
    const events = await reader.all()
    expect(events).toHaveLength(1)
    expect(events[0]).toMatchObject({
      id: undefined,
      data: { message: { role: 'ROLE_AGENT', parts: [{ text: 'Hello yourself.' }] } },
    })
  }
})

describe('a stream of version 0.3', () => {
  const isText = (text: string) => (event: StreamEvent) => JSON.stringify(event.data).includes(`"text":"${text}"`)

  test('has ids too, and goes on behind them', async () => {
    const { tool, gate } = twoHalves(['a', 'b'], ['c'])
    const { url } = await startNode({ tools: [tool] })
    const message = toolCall('halves')
    const reader = await legacyStream(url, message)
    const before = await reader.upTo(isText('a'))
    reader.close()
    const lastEventId = before.at(-1)!.id!
    const { id } = before[0]!.data as unknown as { id: string }
    const back = [
      await legacyStream(url, message, { lastEventId }),
      await stream(url, 'tasks/resubscribe', { id }, { version: '0.3', lastEventId }),
      await restStream(url, `GET /v1/tasks/${id}:subscribe`, undefined, { version: '0.3', lastEventId }),
    ]
    gate.resolve()
    for (const next of back) {
      const rest = await next.all()
      expect(isText('b')(rest[0]!)).toBe(true)
      const ids = [...idsOf(before), ...idsOf(rest)]
      expect(ids).toEqual(range(1, ids.length))
    }
  })

  test('opens at once and has heartbeats, also where nothing was missed', async () => {
    const { tool, gate } = twoHalves(['a'], ['b'])
    const { url } = await startNode({ tools: [tool], server: { heartbeatMs: 20 } })
    const reader = await legacyStream(url, toolCall('halves'))
    const before = await reader.upTo(isText('a'))
    const { id } = before[0]!.data as unknown as { id: string }
    const back = await stream(url, 'tasks/resubscribe', { id }, { version: '0.3', lastEventId: before.at(-1)!.id! })
    while (back.comments() < 2) await back.pull()
    gate.resolve()
    expect(await back.all()).toHaveLength((await reader.all()).length)
  })
})

describe('a node that is stopped', () => {
  test('waits for nobody who asked for nothing', async () => {
    const { tool } = twoHalves(['a'], [])
    const node = await startNode({ tools: [tool] })
    const { hostname, port } = new URL(node.url)
    // Clients keep connections in stock, and do not always use them.
    const sockets = await Promise.all(
      [1, 2].map(async () => {
        const socket = connect(Number(port), hostname)
        cleanup(() => socket.destroy())
        await once(socket, 'connect')
        return socket
      }),
    )
    const closed = Promise.all(sockets.map((socket) => once(socket.resume(), 'close')))
    await getTask(node.url, (await begin(node.url, toolCall('halves'))).id)
    const started = performance.now()
    await node.stop()
    await closed
    expect(performance.now() - started).toBeLessThan(1000)
  })

  test('ends its streams behind the last event of each task', async () => {
    const { tool } = twoHalves(['a'], [])
    const node = await startNode({ tools: [tool] })
    const reader = await sendStream(node.url, toolCall('halves'))
    await reader.upTo(chunk('a'))
    const stopped = node.stop()
    const rest = await reader.all()
    expect(stateOf(rest.at(-1)!)).toBe('TASK_STATE_CANCELED')
    await within(stopped, 'the node to stop')
  })

  test('still answers the calls that were under way', async () => {
    const { tool, gate } = twoHalves(['a'], [])
    const node = await startNode({ tools: [tool], server: { drainMs: 5000 } })
    const reader = await sendStream(node.url, toolCall('halves'))
    await reader.upTo(chunk('a'))
    const blocking = send(node.url, toolCall('halves'))
    await until(() => node.stats.running === 2, 'both calls to run')
    const stopped = node.stop()
    gate.resolve()
    expect((await blocking).status.state).toBe('TASK_STATE_COMPLETED')
    expect(stateOf((await reader.all()).at(-1)!)).toBe('TASK_STATE_COMPLETED')
    await within(stopped, 'the node to stop')
  })
})

/** The message as 0.3 writes it on JSON-RPC. */
function legacyRpc(message: Message): Params {
  return { ...message, kind: 'message', role: 'user', parts: message.parts.map((part) => ({ kind: 'text', ...part })) }
}

/** The message as 0.3 writes it on HTTP+JSON: the JSON of its proto. */
function legacyRest({ parts, ...message }: Message): Params {
  return { ...message, content: parts }
}

function legacyStream(url: string, message: Message, options: StreamOptions = {}): Promise<EventReader> {
  return stream(url, 'message/stream', { message: legacyRpc(message) }, { version: '0.3', ...options })
}
