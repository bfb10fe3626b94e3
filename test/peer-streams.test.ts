/** Streams of peers that are cut: whoever reads them does not notice. */
import {
  connectPeer,
  defineTool,
  type ConnectOptions,
  type JsonObject,
  type Node,
  type Peer,
  type PeerEvent,
  type ToolEvent,
} from 'convoke'
import { once } from 'node:events'
import type { ServerResponse } from 'node:http'
import { afterEach, describe, expect, test, vi } from 'vitest'
import { startFaultProxy } from './support/fault-proxy.ts'
import { cleanup, deferred, startNode, until, within, type Deferred } from './support/lifetime.ts'
import { startLegacyPeer, startMinimalPeer, startPlainPeer } from './support/peers.ts'
import { artifactOf, extension, resultArtifact, startScriptedPeer, statusOf, taskAs } from './support/scripted-peer.ts'
import { range, request, say, type StreamResponse } from './support/wire.ts'

const countTo = defineTool({
  name: 'count_to',
  description: 'Counts.',
  input: { type: 'object', properties: { n: { type: 'integer' } }, required: ['n'] },
  output: { type: 'object', properties: { counted: { type: 'integer' } }, required: ['counted'] },
  traits: { idempotent: true },
  async *run({ n }) {
    for (let i = 1; i <= n; i++) yield { i }
    return { counted: n }
  },
})

afterEach(() => {
  vi.useRealTimers()
})

async function connect(url: string, options: ConnectOptions = {}): Promise<Peer> {
  const peer = await connectPeer(url, { id: 'bob', ...options })
  cleanup(() => peer.close())
  await peer.listRemoteTools()
  return peer
}

async function read(events: AsyncIterable<ToolEvent>): Promise<ToolEvent[]> {
  const all: ToolEvent[] = []
  for await (const event of events) all.push(event)
  return all
}

/** Without progress, which is replaced by newer. */
function said(events: readonly ToolEvent[]): unknown[] {
  return events.flatMap((event): unknown[] => {
    if (event.type === 'chunk') return [event.chunk]
    return event.type === 'progress' ? [] : [event.type === 'result' ? { result: event.result } : event.type]
  })
}

/** Between two offsets that are looked at, in bytes. */
const step = 71

const counted = (n: number): unknown[] => [...range(1, n).map((i) => ({ i })), { result: { counted: n } }]

/** How many bytes the answer to a streamed call has, with its headers. */
async function answerBytes(url: string, options: ConnectOptions): Promise<number> {
  const proxy = await startFaultProxy(url)
  const peer = await connect(proxy.url, { ...options, card: await cardBehind(url, proxy.url) })
  const before = proxy.received
  await read(peer.executeRemoteToolStreaming('count_to', { n: 3 }))
  return proxy.received - before
}

/** Cuts a call at places all over its answer. All offsets take too long; each time others of them are looked at. */
async function cutEverywhere(url: string, options: ConnectOptions): Promise<number> {
  const bytes = await answerBytes(url, options)
  const first = 1 + Math.floor(Math.random() * step)
  const offsets = range(first, bytes).filter((offset) => (offset - first) % step === 0)
  // Side by side because of the pauses.
  const lanes = range(0, 9).map((lane) => offsets.filter((_, index) => index % 10 === lane))
  const cuts = await Promise.all(lanes.map((lane) => cutEach(url, lane, options)))
  return cuts.reduce((sum, each) => sum + each)
}

/** The card of a peer as if it stood behind a proxy. */
async function cardBehind(url: string, proxyUrl: string): Promise<JsonObject> {
  const { text } = await request(`${url}/.well-known/agent-card.json`)
  return JSON.parse(text.replaceAll(url, proxyUrl)) as JsonObject
}

async function texts(events: AsyncIterable<PeerEvent>): Promise<string[]> {
  const all: string[] = []
  for await (const { event } of events) {
    for (const { text } of event.artifactUpdate?.artifact.parts ?? []) if (text !== undefined) all.push(text)
  }
  return all
}

/** A node whose tool says `before`, waits for the gate, and says `behind`. */
async function startGated(): Promise<{ node: Node; gate: Deferred<void> }> {
  const gate = deferred()
  const gated = defineTool({
    name: 'gated',
    description: 'Waits.',
    input: { type: 'object' },
    async *run(_params, { signal }) {
      yield 'before'
      await Promise.race([gate.promise, once(signal, 'abort')])
      yield 'behind'
      return 'done'
    },
  })
  return { node: await startNode({ tools: [gated] }), gate }
}

/** Cuts one call behind each of the offsets. */
async function cutEach(url: string, offsets: readonly number[], options: ConnectOptions): Promise<number> {
  const proxy = await startFaultProxy(url)
  const peer = await connect(proxy.url, { ...options, card: await cardBehind(url, proxy.url) })
  for (const offset of offsets) {
    proxy.cutAfter(offset)
    const events = await within(read(peer.executeRemoteToolStreaming('count_to', { n: 3 })), `the cut behind ${offset}`)
    expect(said(events), `cut behind byte ${offset}`).toEqual(counted(3))
    proxy.heal()
  }
  return proxy.cuts
}

describe('a stream of a Convoke node', () => {
  test.each([
    ['1.0, JSON-RPC', { bindings: ['JSONRPC'], versions: ['1.0'] }],
    ['1.0, HTTP+JSON', { bindings: ['HTTP+JSON'], versions: ['1.0'] }],
    ['0.3, JSON-RPC', { bindings: ['JSONRPC'], versions: ['0.3'] }],
    ['0.3, HTTP+JSON', { bindings: ['HTTP+JSON'], versions: ['0.3'] }],
  ] as const)('that is cut behind any byte goes on where it was, over %s', async (_name, options) => {
    const node = await startNode({ tools: [countTo] })
    const cuts = await cutEverywhere(node.url, options)
    expect(cuts).toBeGreaterThan(20)
  })

  test('goes on when the connection falls silent', async () => {
    const { node, gate } = await startGated()
    const proxy = await startFaultProxy(node.url)
    const peer = await connect(proxy.url, { idleTimeoutMs: 100 })
    const events = peer.executeRemoteToolStreaming('gated')
    expect(await events.next()).toMatchObject({ value: { chunk: 'before' } })
    proxy.halfOpen()
    const before = proxy.connections
    gate.resolve()
    await until(() => proxy.connections > before, 'the client to come back')
    proxy.heal()
    expect(said(await read(events))).toEqual(['behind', { result: 'done' }])
    expect(node.stats.running).toBe(0)
  })

  test('goes on when the peer refused connections for a while', async () => {
    const { node, gate } = await startGated()
    const proxy = await startFaultProxy(node.url)
    let resumed = 0
    const onWire: ConnectOptions['onWire'] = ({ text = '', direction }) => {
      if (direction === 'out' && text.includes('SubscribeToTask')) resumed++
    }
    const peer = await connect(proxy.url, { onWire })
    const events = peer.executeRemoteToolStreaming('gated')
    await events.next()
    proxy.refuse()
    proxy.cut()
    await until(() => resumed >= 2, 'the client to try again')
    gate.resolve()
    await proxy.resume()
    expect(said(await read(events))).toEqual(['behind', { result: 'done' }])
  })

  test('may be cut as often as it likes where each connection held for a while', async () => {
    const { node, gate } = await startGated()
    const proxy = await startFaultProxy(node.url)
    const peer = await connect(proxy.url)
    vi.useFakeTimers({ toFake: ['Date'] })
    const events = peer.executeRemoteToolStreaming('gated')
    await events.next()
    const rest = read(events)
    for (let cuts = 1; cuts <= 8; cuts++) {
      const { received } = proxy
      vi.setSystemTime(Date.now() + 60_000)
      proxy.cut()
      await until(() => proxy.received > received, 'the stream to be there again')
    }
    gate.resolve()
    expect(said(await rest)).toEqual(['behind', { result: 'done' }])
  })

  test('that cannot be had again ends with the limit of the call, and its task is stopped', async () => {
    const { node } = await startGated()
    const proxy = await startFaultProxy(node.url)
    let cancels = 0
    const onWire: ConnectOptions['onWire'] = ({ text = '', direction }) => {
      if (direction === 'out' && text.includes('CancelTask')) cancels++
    }
    const peer = await connect(proxy.url, { onWire })
    const events = peer.executeRemoteToolStreaming('gated', {}, { timeoutMs: 300 })
    await events.next()
    proxy.refuse()
    proxy.cut()
    const end = events.next().catch((error: unknown) => error)
    await until(() => cancels > 0, 'the client to cancel')
    await proxy.resume()
    expect(await end).toMatchObject({ code: 'timeout', peer: 'bob', tool: 'gated', attempt: 1 })
    await until(() => node.stats.running === 0, 'the task to be stopped')
  })
})

describe('a stream of another agent that is cut', () => {
  test('goes on behind the last event at a peer that knows the wire of the extension', async () => {
    const minimal = await startMinimalPeer()
    expect(await cutEverywhere(minimal.url, { versions: ['1.0'] })).toBeGreaterThan(20)
    expect(minimal.count('SubscribeToTask')).toBeGreaterThan(0)
  })

  test.each(['JSONRPC', 'HTTP+JSON'] as const)(
    'goes on with the snapshot at a peer of A2A 0.3, over %s',
    async (binding) => {
      const { url } = await startLegacyPeer()
      const proxy = await startFaultProxy(url)
      const peer = await connect(proxy.url, { bindings: [binding], card: await cardBehind(url, proxy.url) })
      expect(peer.status.info).toMatchObject({ version: '0.3', binding, convoke: false })
      const before = proxy.received
      expect(said(await read(peer.executeRemoteToolStreaming('count_to', { n: 3 })))).toEqual(counted(3))
      const bytes = proxy.received - before
      // Before the task has a name, a message that is not known to be repeatable is not sent again.
      for (const offset of range(1, 12).map((part) => bytes - part * 40)) {
        proxy.cutAfter(offset)
        const events = await within(
          read(peer.executeRemoteToolStreaming('count_to', { n: 3 })),
          `the cut behind ${offset}`,
        )
        expect(said(events), `cut behind byte ${offset} of ${bytes}`).toEqual(counted(3))
        proxy.heal()
      }
    },
  )

  test.each(range(1, 6))('goes on with the snapshot at a plain peer, cut behind event %i', async (cutAfter) => {
    const plain = await startPlainPeer({ cutAfter })
    const peer = await connect(plain.url)
    expect(await texts(peer.streamMessage(say('count 4')))).toEqual(['1 ', '2 ', '3 ', '4 '])
    expect(plain.runs).toBe(1)
  })

  test('gives what was appended once, also where the peer puts all of it into one part', async () => {
    const scripted = await startScriptedPeer(async ({ method, events, result, res }) => {
      if (method === 'SendStreamingMessage') {
        await events({ task: taskAs('t', 'TASK_STATE_WORKING') }, artifactOf('t', 'a', [{ text: 'one ' }]))
        await events(artifactOf('t', 'a', [{ text: 'two ' }], true))
        res.destroy()
      } else if (method === 'SubscribeToTask') {
        const artifacts = [{ artifactId: 'a', parts: [{ text: 'one two three ' }] }]
        await events({ task: taskAs('t', 'TASK_STATE_WORKING', { artifacts }) })
        res.destroy()
      } else if (method === 'GetTask') {
        const artifacts = [{ artifactId: 'a', parts: [{ text: 'one two three four' }] }]
        result(taskAs('t', 'TASK_STATE_COMPLETED', { artifacts }))
      }
    })
    const peer = await connect(scripted.url)
    const seen: string[] = []
    for await (const { event } of peer.streamMessage(say('go'))) {
      seen.push(...(event.artifactUpdate?.artifact.parts ?? []).map(({ text = '' }) => text))
      if (seen.length === 3) break
    }
    expect(seen).toEqual(['one ', 'two ', 'three '])
  })

  test('is polled where the peer has no subscriptions, and gives each part once', async () => {
    const parts = range(1, 4).map((i) => ({ data: { i } }))
    const scripted = await startScriptedPeer(async ({ method, events, error, result, res, call }) => {
      if (method === 'SendStreamingMessage') {
        await events({ task: taskAs('t', 'TASK_STATE_WORKING') }, artifactOf('t', 'stream', parts.slice(0, 1)))
        res.destroy()
      } else if (method === 'SubscribeToTask') error(-32601, 'What is that?')
      else if (method === 'GetTask') {
        const state = call < 3 ? 'TASK_STATE_WORKING' : 'TASK_STATE_COMPLETED'
        const artifacts = [{ artifactId: 'stream', parts: parts.slice(0, call + 1) }]
        result(taskAs('t', state, { artifacts: call < 3 ? artifacts : [...artifacts, resultArtifact({ sum: 4 })] }))
      }
    })
    const peer = await connect(scripted.url)
    const events = await read(peer.executeRemoteToolStreaming('add', { n: 4 }))
    expect(said(events)).toEqual([...parts.map(({ data }) => data), { result: { sum: 4 } }])
    expect(scripted.count('GetTask')).toBe(3)
    expect(scripted.count('SendStreamingMessage')).toBe(1)
  })

  test('is not mistaken by ids of events that number something else', async () => {
    const send = (res: ServerResponse, id: number, ...all: StreamResponse[]): void => {
      res.writeHead(200, { 'content-type': 'text/event-stream' })
      // Milliseconds, say, or anew on each connection: here all events of a connection have the same.
      for (const result of all) res.write(`id: ${id}\ndata: ${JSON.stringify({ jsonrpc: '2.0', id: 1, result })}\n\n`)
      res.end()
    }
    const scripted = await startScriptedPeer(({ method, res }) => {
      const task = taskAs('t', 'TASK_STATE_WORKING')
      const chunk = (i: number) => artifactOf('t', 'stream', [{ data: { i } }], i > 1)
      if (method === 'SendStreamingMessage') send(res, 9, { task }, chunk(1), chunk(2))
      else if (method === 'SubscribeToTask') {
        const artifacts = [{ artifactId: 'stream', parts: [{ data: { i: 1 } }, { data: { i: 2 } }] }]
        const result = { artifactUpdate: { taskId: 't', contextId: 'c', artifact: resultArtifact({ sum: 3 }) } }
        send(res, 1, { task: { ...task, artifacts } }, chunk(3), result, statusOf('t', 'TASK_STATE_COMPLETED'))
      }
    })
    const peer = await connect(scripted.url)
    const events = await read(peer.executeRemoteToolStreaming('add', { n: 3 }))
    expect(said(events)).toEqual([{ i: 1 }, { i: 2 }, { i: 3 }, { result: { sum: 3 } }])
    expect(scripted.requests.every(({ headers }) => headers['last-event-id'] === undefined)).toBe(true)
  })

  test('that ends without a task is asked for less and less often', async () => {
    const scripted = await startScriptedPeer(
      ({ method, res, error }) => {
        if (method === 'SendStreamingMessage') res.writeHead(200, { 'content-type': 'text/event-stream' }).end()
        else if (method === 'SendMessage') error(-32603, 'Not now.')
      },
      { card: () => ({ capabilities: extension() }) },
    )
    const peer = await connect(scripted.url)
    const call = read(peer.executeRemoteToolStreaming('add', { n: 1 }, { timeoutMs: 500 }))
    await expect(call).rejects.toMatchObject({ code: 'timeout' })
    expect(scripted.count('SendStreamingMessage')).toBeLessThan(5)
  })
})

describe('a second attempt of a tool', () => {
  const chunk = (i: number, attempt = 1, append = i > 1): StreamResponse => {
    const update = artifactOf('t', 'stream', [{ data: { i, attempt } }], append)
    if (attempt > 1) update.artifactUpdate!.artifact.metadata = { _tool_attempt: attempt }
    return update
  }
  const anew: StreamResponse = {
    statusUpdate: { ...statusOf('t', 'TASK_STATE_WORKING').statusUpdate!, metadata: { _tool_attempt: 2 } },
  }
  const end = [
    { artifactUpdate: { taskId: 't', contextId: 'c', artifact: resultArtifact({ sum: 2 }) } },
    statusOf('t', 'TASK_STATE_COMPLETED'),
  ]
  const expected = [
    { i: 1, attempt: 1 },
    { i: 2, attempt: 1 },
    'restart',
    ...range(1, 3).map((i) => ({ i, attempt: 2 })),
    { result: { sum: 2 } },
  ]

  test.each([
    ['as an event', [anew, chunk(1, 2), chunk(2, 2), chunk(3, 2), ...end]],
    ['by its chunks only', [chunk(1, 2), chunk(2, 2), chunk(3, 2), ...end]],
    [
      'in a snapshot',
      [
        {
          task: taskAs('t', 'TASK_STATE_COMPLETED', {
            artifacts: [
              {
                artifactId: 'stream',
                metadata: { _tool_attempt: 2 },
                parts: range(1, 3).map((i) => ({ data: { i, attempt: 2 } })),
              },
              resultArtifact({ sum: 2 }),
            ],
          }),
        },
      ],
    ],
  ])('is told %s, and no chunk of the first is mixed in', async (_name, rest: StreamResponse[]) => {
    for (const capabilities of [extension(), { streaming: true }]) {
      const scripted = await startScriptedPeer(
        async ({ method, events, res }) => {
          if (method === 'SendStreamingMessage') {
            await events({ task: taskAs('t', 'TASK_STATE_WORKING') }, chunk(1), chunk(2))
            res.destroy()
          } else if (method === 'SubscribeToTask') {
            await events(...rest)
            res.end()
          }
        },
        { card: () => ({ capabilities }) },
      )
      const peer = await connect(scripted.url)
      expect(said(await read(peer.executeRemoteToolStreaming('add', { n: 1 })))).toEqual(expected)
    }
  })
})

test('a slow reader makes the peer wait', async () => {
  const total = 400
  const text = 'x'.repeat(50_000)
  let written = 0
  const scripted = await startScriptedPeer(async ({ method, events, res }) => {
    if (method !== 'SendStreamingMessage') return
    await events({ task: taskAs('t', 'TASK_STATE_WORKING') })
    for (; written < total; written++)
      await events(artifactOf('t', 'stream', [{ text: `${written} ${text}` }], written > 0))
    await events(statusOf('t', 'TASK_STATE_COMPLETED'))
    res.end()
  })
  const peer = await connect(scripted.url)
  const events = peer.executeRemoteToolStreaming('add', { n: 1 })
  await events.next()
  // It stands still once all buffers on the way are full: the same number at each of many looks.
  let looks = 0
  let before = -1
  await until(() => {
    looks = written === before ? looks + 1 : 0
    before = written
    return looks === 20
  }, 'the peer to stand still')
  expect(written).toBeLessThan(total)
  const rest = await read(events)
  expect(rest.filter(({ type }) => type === 'chunk')).toHaveLength(total - 1)
})
