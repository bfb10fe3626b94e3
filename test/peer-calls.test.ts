/** Calls of peers' tools: how they are stopped, what they ask, what they give, and when they are sent again. */
import {
  connectPeer,
  defineTool,
  type ConnectOptions,
  type Json,
  type JsonObject,
  type Message,
  type Node,
  type Peer,
  type Question,
  type Task,
} from 'convoke'
import { afterEach, describe, expect, test, vi } from 'vitest'
import { startFaultProxy } from './support/fault-proxy.ts'
import { cleanup, deferred, startNode, until, within, type Deferred } from './support/lifetime.ts'
import { startLegacyPeer, startMinimalPeer } from './support/peers.ts'
import {
  artifactOf,
  extension,
  resultArtifact,
  says,
  startScriptedPeer,
  statusOf,
  taskAs,
  type ScriptedExchange,
} from './support/scripted-peer.ts'
import { getTask, range, request, say } from './support/wire.ts'
import { failureOf } from './support/failure.ts'

afterEach(() => {
  vi.useRealTimers()
})

async function connect(url: string, options: ConnectOptions = {}): Promise<Peer> {
  const peer = await connectPeer(url, { id: 'bob', ...options })
  cleanup(() => peer.close())
  return peer
}

async function drain(events: AsyncIterable<unknown>): Promise<void> {
  for await (const _ of events);
}

/** Takes the first event, and leaves the loop as `break` does. */
async function leave<Event>(events: AsyncGenerator<Event, void, void>): Promise<Event | undefined> {
  const { value } = await events.next()
  await events.return()
  return value === undefined ? undefined : value
}

const isCall = ({ method }: { method: string }): boolean =>
  method === 'SendMessage' || method === 'SendStreamingMessage'
const convoke = { card: () => ({ capabilities: extension() }) }
const noStream = { card: () => ({ capabilities: { streaming: false } }) }

interface Ticking {
  readonly node: Node
  /** How often the tool has done something. */
  readonly ticks: () => number
}

/** A node whose tool `tick` does something again and again until it is stopped. */
async function startTicking(): Promise<Ticking> {
  let ticks = 0
  const tick = defineTool({
    name: 'tick',
    description: 'Ticks.',
    input: { type: 'object' },
    async *run(_params, { signal }) {
      for (; !signal.aborted; ticks++) {
        if (ticks % 20 === 0) yield ticks
        await new Promise((resolve) => setImmediate(resolve))
      }
      return 'never'
    },
  })
  return { node: await startNode({ tools: [tick] }), ticks: () => ticks }
}

/** Fails when the tool still does something. */
async function expectStill({ node, ticks }: Ticking): Promise<void> {
  await until(() => node.stats.running === 0, 'the tool to stop')
  const before = ticks()
  for (const _ of range(1, 50)) await new Promise((resolve) => setImmediate(resolve))
  expect(ticks()).toBe(before)
  expect(node.stats.abandoned).toBe(0)
}

interface Gated {
  readonly node: Node
  readonly gate: Deferred<void>
  /** How often the tool began. */
  readonly runs: () => number
}

/** A node whose tool waits for the gate. It may not run twice. */
async function startGated(): Promise<Gated> {
  const gate = deferred()
  let runs = 0
  const gated = defineTool({
    name: 'gated',
    description: 'Waits.',
    input: { type: 'object' },
    async run(_params, { signal }) {
      runs++
      await Promise.race([gate.promise, new Promise((resolve) => signal.addEventListener('abort', resolve))])
      return 'done'
    },
  })
  return { node: await startNode({ tools: [gated] }), gate, runs: () => runs }
}

describe('the work at a Convoke node stands still', () => {
  const ways: Record<string, (peer: Peer, ticking: Ticking) => Promise<unknown>> = {
    async 'when the reader leaves the loop'(peer) {
      await leave(peer.executeRemoteToolStreaming('tick'))
    },
    async 'when the reader of a stream aborts'(peer) {
      const controller = new AbortController()
      const events = peer.executeRemoteToolStreaming('tick', {}, { signal: controller.signal })
      await events.next()
      controller.abort()
      expect(await failureOf(drain(events))).toMatchObject({ code: 'canceled', kind: 'canceled' })
    },
    async 'when the time of a stream is up'(peer) {
      const events = peer.executeRemoteToolStreaming('tick', {}, { timeoutMs: 100 })
      expect(await failureOf(drain(events))).toMatchObject({ code: 'timeout', kind: 'timeout' })
    },
    async 'when the caller aborts'(peer, { ticks }) {
      const controller = new AbortController()
      const call = peer.executeRemoteTool('tick', {}, { signal: controller.signal })
      void until(() => ticks() > 0).then(() => controller.abort())
      expect(await failureOf(call)).toMatchObject({ code: 'canceled' })
    },
    async 'when the time of a call is up'(peer) {
      const failure = await failureOf(peer.executeRemoteTool('tick', {}, { timeoutMs: 100 }))
      expect(failure).toMatchObject({ code: 'timeout' })
    },
  }

  test.each(
    Object.entries(ways).flatMap(([name, way]) =>
      (['JSONRPC', 'HTTP+JSON'] as const).flatMap((binding) =>
        (['1.0', '0.3'] as const).map((version) => ({ name, way, binding, version })),
      ),
    ),
  )('$name, over $binding $version', async ({ way, binding, version }) => {
    const ticking = await startTicking()
    const peer = await connect(ticking.node.url, { bindings: [binding], versions: [version] })
    expect(peer.status.info).toMatchObject({ binding, version })
    await way(peer, ticking)
    await expectStill(ticking)
  })

  test('when the call came through the tools of another node', async () => {
    const ticking = await startTicking()
    const alice = await startNode({ peers: { bob: { url: ticking.node.url } } })
    await leave(alice.tools.stream('bob.tick'))
    await expectStill(ticking)
    const controller = new AbortController()
    const call = alice.tools.call('bob.tick', {}, { signal: controller.signal })
    await until(() => ticking.node.stats.running === 1)
    controller.abort()
    expect(await failureOf(call)).toMatchObject({ code: 'canceled' })
    await expectStill(ticking)
  })

  test.each([true, false])('wherever in its way the call is aborted, streaming: %s', async (isStream) => {
    const ticking = await startTicking()
    const codes: string[] = []
    // Once nothing is left to abort, the time is up.
    for (let abortAt = 1; codes.at(-1) !== 'timeout' && abortAt < 20; abortAt++) {
      const controller = new AbortController()
      let lines = -Infinity
      const onWire = (): void => {
        if (++lines === abortAt) controller.abort()
      }
      const peer = await connect(ticking.node.url, { onWire })
      lines = 0
      const options = { signal: controller.signal, timeoutMs: 400 }
      const call = isStream
        ? drain(peer.executeRemoteToolStreaming('tick', {}, options))
        : peer.executeRemoteTool('tick', {}, options)
      codes.push((await failureOf(call)).code)
      await expectStill(ticking)
      await peer.close()
    }
    expect(codes.slice(0, 3)).toEqual(['canceled', 'canceled', 'canceled'])
    expect(new Set(codes.slice(0, -1))).toEqual(new Set(['canceled']))
  })
})

describe('the work at another agent is told to stop', () => {
  test.each([true, false])('at one that knows the wire of the extension, streaming: %s', async (isStream) => {
    const minimal = await startMinimalPeer()
    const peer = await connect(minimal.url)
    const controller = new AbortController()
    const { signal } = controller
    const call = isStream
      ? drain(peer.executeRemoteToolStreaming('hold', {}, { signal }))
      : peer.executeRemoteTool('hold', {}, { signal })
    await until(() => minimal.runs === 1)
    controller.abort()
    expect(await failureOf(call)).toMatchObject({ code: 'canceled' })
    await until(() => minimal.count('CancelTask') === 1)
    expect(minimal.runs).toBe(1)
  })

  test.each(['JSONRPC', 'HTTP+JSON'] as const)('at one of A2A 0.3, over %s', async (binding) => {
    const legacy = await startLegacyPeer()
    const proxy = await startFaultProxy(legacy.url)
    const { text } = await request(`${legacy.url}/.well-known/agent-card.json`)
    const card = JSON.parse(text.replaceAll(legacy.url, proxy.url)) as JsonObject
    const peer = await connect(proxy.url, { card, bindings: [binding] })
    const first = await leave(peer.executeRemoteToolStreaming('hold'))
    expect(first).toEqual({ type: 'chunk', chunk: { holding: true } })
    const failure = await failureOf(peer.executeRemoteTool('hold', {}, { timeoutMs: 200 }))
    expect(failure).toMatchObject({ code: 'timeout' })
    const cancels = () =>
      legacy.requests.filter(({ method }) => method === 'tasks/cancel' || method.endsWith(':cancel'))
    await until(() => cancels().length === 2 || (proxy.sent.match(/:cancel /g)?.length ?? 0) === 2)
  })

  test('that does not stream', async () => {
    const scripted = await startScriptedPeer(({ method, result }) => {
      if (isCall({ method })) result({ task: taskAs('t', 'TASK_STATE_WORKING') })
      if (method === 'GetTask') result(taskAs('t', 'TASK_STATE_WORKING'))
      if (method === 'CancelTask') result(taskAs('t', 'TASK_STATE_CANCELED'))
    }, noStream)
    const peer = await connect(scripted.url)
    const failure = await failureOf(peer.executeRemoteTool('add', { n: 1 }, { timeoutMs: 150 }))
    expect(failure).toMatchObject({ code: 'timeout', taskId: 't' })
    await until(() => scripted.count('CancelTask') === 1)
  })

  test('before its task has a name, by the same message where the peer takes each message once', async () => {
    const scripted = await startScriptedPeer(({ method, result }) => {
      if (method === 'SendMessage') result({ task: taskAs('t', 'TASK_STATE_WORKING') })
      if (method === 'CancelTask') result(taskAs('t', 'TASK_STATE_CANCELED'))
    }, convoke)
    const peer = await connect(scripted.url)
    const controller = new AbortController()
    const call = drain(peer.executeRemoteToolStreaming('put', { n: 1 }, { signal: controller.signal }))
    await until(() => scripted.count('SendStreamingMessage') === 1)
    controller.abort()
    expect(await failureOf(call)).toMatchObject({ code: 'canceled' })
    const { requests } = scripted
    expect(requests.map(({ method }) => method).slice(-3)).toEqual([
      'SendStreamingMessage',
      'SendMessage',
      'CancelTask',
    ])
    expect(new Set(requests.filter(isCall).map(({ messageId }) => messageId)).size).toBe(1)
    expect(requests.at(-1)?.params).toEqual({ id: 't' })
  })

  test('before its task has a name, as soon as any other peer names it', async () => {
    const aborted = deferred()
    const scripted = await startScriptedPeer(async ({ method, result, events }) => {
      if (method === 'CancelTask') return result(taskAs('t', 'TASK_STATE_CANCELED'))
      if (!isCall({ method })) return
      await aborted.promise
      await events({ task: taskAs('t', 'TASK_STATE_WORKING') })
    })
    const peer = await connect(scripted.url)
    const controller = new AbortController()
    const call = failureOf(drain(peer.executeRemoteToolStreaming('put', { n: 1 }, { signal: controller.signal })))
    await until(() => scripted.count('SendStreamingMessage') === 1)
    controller.abort()
    aborted.resolve()
    expect(await call).toMatchObject({ code: 'canceled' })
    expect(scripted.count('CancelTask')).toBe(1)
    expect(scripted.requests.filter(isCall)).toHaveLength(1)
  })

  test('not at all where the call never went out', async () => {
    const { node, runs } = await startGated()
    const proxy = await startFaultProxy(node.url)
    const peer = await connect(proxy.url)
    await peer.listRemoteTools()
    proxy.refuse()
    proxy.cut()
    const controller = new AbortController()
    const call = failureOf(drain(peer.executeRemoteToolStreaming('gated', {}, { signal: controller.signal })))
    await until(() => peer.status.lastError?.code === 'network', 'the first attempt to fail')
    controller.abort()
    const startedAt = Date.now()
    await proxy.resume()
    expect(await call).toMatchObject({ code: 'canceled' })
    expect(Date.now() - startedAt).toBeLessThan(1_000)
    expect(proxy.sent).not.toContain('POST')
    expect(runs()).toBe(0)
  })

  test('and goes on where it is detached', async () => {
    for (const isStream of [true, false]) {
      const { node, gate, runs } = await startGated()
      const peer = await connect(node.url)
      const controller = new AbortController()
      let taskId = ''
      const options = {
        signal: controller.signal,
        detach: true,
        onTask: (task: { taskId: string }) => (taskId = task.taskId),
      }
      const call = isStream
        ? drain(peer.executeRemoteToolStreaming('gated', {}, options))
        : peer.executeRemoteTool('gated', {}, options)
      await until(() => runs() === 1)
      controller.abort()
      expect(await failureOf(call)).toMatchObject({ code: 'canceled' })
      await until(() => taskId !== '', 'the name of the task')
      expect(node.stats.running).toBe(1)
      gate.resolve()
      await until(async () => (await getTask(node.url, taskId)).status.state === 'TASK_STATE_COMPLETED')
      expect(runs()).toBe(1)
    }
  })

  test('and what goes wrong then stays with the log', async () => {
    for (const detach of [true, false]) {
      const scripted = await startScriptedPeer(({ method, raw }) => {
        if (method === 'SendMessage') raw(500, {}, 'Broken.')
      }, convoke)
      const peer = await connect(scripted.url)
      const controller = new AbortController()
      const { signal } = controller
      const call = failureOf(drain(peer.executeRemoteToolStreaming('put', { n: 1 }, { signal, detach })))
      await until(() => scripted.count('SendStreamingMessage') === 1)
      controller.abort()
      expect(await call).toMatchObject({ code: 'canceled' })
      expect(scripted.count('SendMessage')).toBe(1)
    }
  })
})

describe('who leaves', () => {
  test('while the peer is asked for its card leaves nobody else without it', async () => {
    const gate = deferred()
    let isHeld = false
    const scripted = await startScriptedPeer(async ({ method, result }) => {
      if (method === 'GET' && isHeld) await gate.promise
      if (isCall({ method })) result({ message: says('{"sum":1}') })
    }, noStream)
    const node = await startNode({ peers: { bob: { url: scripted.url } } })
    isHeld = true
    const controller = new AbortController()
    const first = failureOf(node.peers.sendTask('bob', 'Hi.', { signal: controller.signal }))
    const second = node.peers.sendTask('bob', 'Hi.')
    await until(() => scripted.count('GET') === 1)
    controller.abort()
    expect(await first).toMatchObject({ code: 'canceled', peer: 'bob' })
    gate.resolve()
    expect((await second).message?.parts).toEqual([{ text: '{"sum":1}' }])
    expect(scripted.count('GET')).toBe(1)
  })

  test('last stops the request, and the next one asks anew', async () => {
    let isHeld = false
    const scripted = await startScriptedPeer(async ({ method, res, result }) => {
      if (method === 'GET' && isHeld) await new Promise((resolve) => res.on('close', resolve))
      if (isCall({ method })) result({ message: says('{"sum":1}') })
    }, noStream)
    const peer = await connect(scripted.url)
    isHeld = true
    const controller = new AbortController()
    const { signal } = controller
    const calls = [1, 2].map(() => failureOf(peer.executeRemoteTool('add', { n: 1 }, { signal })))
    await until(() => scripted.count('GET') === 2)
    controller.abort()
    for (const call of calls) expect(await call).toMatchObject({ code: 'canceled' })
    isHeld = false
    expect(await within(peer.executeRemoteTool('add', { n: 1 }), 'the tool')).toEqual({ sum: 1 })
  })

  test('by closing its client ends all connections', async () => {
    const { node, runs } = await startGated()
    const proxy = await startFaultProxy(node.url)
    const alice = await startNode({ peers: { bob: { url: proxy.url }, carol: { url: proxy.url } } })
    const calls = ['bob.gated', 'carol.gated'].map((name) => failureOf(alice.tools.call(name)))
    await until(() => runs() === 2)
    await alice.peers.remove('bob')
    expect(await within(calls[0]!, 'the call to bob to end')).toMatchObject({ peer: 'bob' })
    await alice.peers.remove('carol')
    await calls[1]
    await alice.stop()
    await until(() => proxy.open === 0, 'all connections to be closed')
  })
})

describe('a question of a peer', () => {
  const schema = { type: 'object', properties: { age: { type: 'integer' } }, required: ['age'] }
  const survey = defineTool({
    name: 'survey',
    description: 'Asks.',
    input: { type: 'object' },
    async *run(_params, { ask }) {
      yield 'before'
      const first = await ask({ message: 'Who?' })
      const second = (await ask({ message: 'How old?', schema })) as JsonObject
      yield 'behind'
      return { first, ...second }
    },
  })

  test.each([true, false])('reaches the caller with its schema, and is answered, streaming: %s', async (isStream) => {
    const node = await startNode({ tools: [survey] })
    const peer = await connect(node.url)
    const questions: Question[] = []
    // An answer that does not fit is asked for again.
    const answers: Json[] = ['Ann', { age: 'old' }, { age: 7 }]
    const ask = async (question: Question): Promise<Json> => {
      questions.push(question)
      return answers.shift() ?? null
    }
    const said: unknown[] = []
    if (isStream) {
      for await (const event of peer.executeRemoteToolStreaming('survey', {}, { ask })) {
        said.push(event.type === 'chunk' ? event.chunk : event.type === 'result' ? event.result : event)
      }
    } else said.push('before', 'behind', await peer.executeRemoteTool('survey', {}, { ask }))
    expect(said).toEqual(['before', 'behind', { first: 'Ann', age: 7 }])
    expect(questions[0]).toEqual({ message: 'Who?' })
    expect(questions[1]).toEqual({ message: 'How old?', schema })
    expect(questions[2]?.message).toContain('How old?')
    expect(questions).toHaveLength(3)
  })

  test('that nobody can answer fails with what was asked, and the task is stopped', async () => {
    const node = await startNode({ tools: [survey] })
    const peer = await connect(node.url)
    const calls = [peer.executeRemoteTool('survey'), drain(peer.executeRemoteToolStreaming('survey'))].map(failureOf)
    for (const failure of await Promise.all(calls)) {
      expect(failure).toMatchObject({ code: 'unsupported_operation', tool: 'survey', taskId: expect.any(String) })
      expect(failure.message).toBe('bob.survey: It asks, and nobody can answer here: Who?')
      const { taskId } = failure as unknown as { taskId: string }
      expect((await getTask(node.url, taskId)).status.state).toBe('TASK_STATE_CANCELED')
    }
  })

  test('whose answer fails stops the task, and the failure is that of the one who was asked', async () => {
    const node = await startNode({ tools: [survey] })
    const peer = await connect(node.url)
    const ask = (): Promise<Json> => Promise.reject(new Error('I am busy.'))
    const failure = await failureOf(peer.executeRemoteTool('survey', {}, { ask }))
    expect(failure).toMatchObject({ cause: { message: 'I am busy.' } })
    await until(() => node.stats.running === 0)
  })

  test('for credentials is told from others, and goes on with the answer', async () => {
    const replies: Message[] = []
    const scripted = await startScriptedPeer(async ({ params, events, res, result, method }) => {
      if (method === 'CancelTask') result(taskAs('t', 'TASK_STATE_CANCELED'))
      if (!isCall({ method })) return
      const message = params['message'] as unknown as Message
      if (message.taskId === undefined) {
        const status = statusOf('t', 'TASK_STATE_AUTH_REQUIRED', says('Sign in at example.org.'))
        await events({ task: taskAs('t', 'TASK_STATE_WORKING') }, status)
      } else {
        replies.push(message)
        await events(statusOf('t', 'TASK_STATE_WORKING'), artifactOf('t', 'a', [{ data: { sum: 2 } }]))
        await events(statusOf('t', 'TASK_STATE_COMPLETED'))
      }
      res.end()
    })
    const peer = await connect(scripted.url)
    const asked: string[] = []
    const ask = async ({ message }: Question): Promise<Json> => {
      asked.push(message)
      return 'done'
    }
    expect(await peer.executeRemoteTool('add', { n: 1 }, { ask })).toEqual({ sum: 2 })
    expect(asked).toEqual(['Authentication is required: Sign in at example.org.'])
    expect(replies).toMatchObject([{ taskId: 't', contextId: 'c', parts: [{ text: 'done' }] }])
    const failure = await failureOf(peer.executeRemoteTool('add', { n: 1 }))
    expect(failure.message).toContain('wants you to authenticate, and nobody can answer here: Sign in')
  })
})

describe('the result of an agent without the extension', () => {
  const bytes = new Uint8Array([1, 2, 3])
  const raw = Buffer.from(bytes).toString('base64')
  const text = (...words: string[]) => words.map((each) => ({ text: each }))
  const rows: readonly [string, NonNullable<Task['artifacts']>, Message | undefined, unknown][] = [
    ['a data part', [{ artifactId: 'a', parts: [...text('Here:'), { data: { sum: 1 } }] }], says('Done.'), { sum: 1 }],
    ['a data part that is null', [{ artifactId: 'a', parts: [{ data: null }] }], undefined, null],
    ['JSON in text', [{ artifactId: 'a', parts: text('{"sum":', ' 1}') }], undefined, { sum: 1 }],
    [
      'JSON in the text of one of several artifacts',
      [
        { artifactId: 'thoughts', parts: text('Let me see.') },
        { artifactId: 'answer', parts: text('[1, 2]') },
      ],
      undefined,
      [1, 2],
    ],
    ['text', [{ artifactId: 'a', parts: text('It is ', '42.') }], says('Done.'), 'It is 42.'],
    ['text that is a number stays text', [{ artifactId: 'a', parts: text('42') }], undefined, '42'],
    ['text that only looks like JSON', [{ artifactId: 'a', parts: text('{not}') }], undefined, '{not}'],
    ['bytes', [{ artifactId: 'a', parts: [{ raw }] }], says('Done.'), bytes],
    ['a link', [{ artifactId: 'a', parts: [{ url: 'https://example.org/a' }] }], undefined, 'https://example.org/a'],
    ['its closing words', [], says('It is done.'), 'It is done.'],
    ['JSON in its closing words', [], says('{"sum":1}'), { sum: 1 }],
    ['nothing', [], undefined, null],
  ]
  const answers: Record<string, (task: Task) => (exchange: ScriptedExchange) => unknown> = {
    streams: (task) => async (exchange) => {
      const { events, res } = exchange
      if (!isCall(exchange)) return
      await events({ task: taskAs('t', 'TASK_STATE_WORKING') })
      for (const artifact of task.artifacts ?? [])
        await events({ artifactUpdate: { taskId: 't', contextId: 'c', artifact } })
      await events(statusOf('t', 'TASK_STATE_COMPLETED', task.status.message))
      res.end()
    },
    'answers whole': (task) => (exchange) => {
      if (isCall(exchange)) exchange.result({ task })
    },
    'is polled': (task) => (exchange) => {
      if (isCall(exchange)) exchange.result({ task: taskAs('t', 'TASK_STATE_SUBMITTED') })
      if (exchange.method === 'GetTask') exchange.result(exchange.call < 2 ? taskAs('t', 'TASK_STATE_WORKING') : task)
    },
  }

  test.each(rows)('is %s', async (_name, artifacts, message, expected) => {
    const task = taskAs('t', 'TASK_STATE_COMPLETED', { artifacts })
    if (message !== undefined) task.status.message = message
    for (const [way, answer] of Object.entries(answers)) {
      const scripted = await startScriptedPeer(answer(task), way === 'streams' ? {} : noStream)
      const peer = await connect(scripted.url)
      expect(await peer.executeRemoteTool('add', { n: 1 }), `a peer that ${way}`).toEqual(expected)
    }
  })

  test('is what a bare message says', async () => {
    for (const options of [{}, noStream]) {
      const scripted = await startScriptedPeer(async ({ method, events, result, res }) => {
        if (method === 'SendMessage') result({ message: says('{"sum":3}') })
        if (method !== 'SendStreamingMessage') return
        await events({ message: says('{"sum":3}') })
        res.end()
      }, options)
      expect(await (await connect(scripted.url)).executeRemoteTool('add', { n: 1 })).toEqual({ sum: 3 })
      expect(scripted.count('CancelTask')).toBe(0)
    }
  })

  test('may be replaced as often as the peer likes', async () => {
    const large = 'x'.repeat(1024 * 1024)
    const scripted = await startScriptedPeer(async ({ method, events, res }) => {
      if (!isCall({ method })) return
      await events({ task: taskAs('t', 'TASK_STATE_WORKING') })
      for (const i of range(1, 20)) await events(artifactOf('t', 'draft', [{ text: `${i}${large}` }]))
      await events(statusOf('t', 'TASK_STATE_COMPLETED'))
      res.end()
    })
    expect(await (await connect(scripted.url)).executeRemoteTool('add', { n: 1 })).toBe(`20${large}`)
  })
})

describe('a call whose answer is lost', () => {
  /** Breaks the connection of the first call, and answers the others. */
  const losing = (exchange: ScriptedExchange): void => {
    if (!isCall(exchange)) return
    if (exchange.call === 1) exchange.res.socket?.resetAndDestroy()
    else exchange.result({ task: taskAs('t', 'TASK_STATE_COMPLETED', { artifacts: [resultArtifact({ sum: 1 })] }) })
  }

  test('goes out once at a peer that may do it twice', async () => {
    const scripted = await startScriptedPeer(losing)
    const peer = await connect(scripted.url)
    const failure = await failureOf(peer.executeRemoteTool('put', { n: 1 }))
    expect(failure).toMatchObject({ code: 'network', retryable: false, peer: 'bob', tool: 'put', attempt: 1 })
    expect(failure.message).toContain('The work may have begun; it is not sent again')
    expect(scripted.requests.filter(isCall)).toHaveLength(1)
  })

  test('goes out again with the same messageId where the tool may run twice', async () => {
    const scripted = await startScriptedPeer(losing)
    const node = await startNode({ peers: { bob: { url: scripted.url } } })
    node.remoteTools.register({ peer: 'bob', name: 'sum', idempotent: true })
    node.remoteTools.register({ peer: 'bob', name: 'look', readOnly: true })
    expect(await node.tools.call('bob.sum', {})).toEqual({ sum: 1 })
    const ids = scripted.requests.filter(isCall).map(({ messageId }) => messageId)
    expect(ids).toHaveLength(2)
    expect(new Set(ids).size).toBe(1)
    expect(await node.tools.call('bob.look', {})).toEqual({ sum: 1 })
  })

  test('goes out again to a Convoke node, whose tool runs once', async () => {
    const { node, gate, runs } = await startGated()
    gate.resolve()
    const proxy = await startFaultProxy(node.url)
    const peer = await connect(proxy.url)
    await peer.listRemoteTools()
    for (const isStream of [false, true]) {
      const before = runs()
      proxy.cutAfter(1)
      await (isStream ? drain(peer.executeRemoteToolStreaming('gated')) : peer.executeRemoteTool('gated'))
      expect(runs()).toBe(before + 1)
    }
    expect(proxy.cuts).toBe(2)
    const ids = [...proxy.sent.matchAll(/"messageId":"([^"]+)"/g)].map(([, id]) => id)
    expect(ids).toHaveLength(4)
    expect(new Set(ids).size).toBe(2)
  })

  test('goes out again to any peer where the connection failed before anything was sent', async () => {
    const scripted = await startScriptedPeer(({ method, result }) => {
      if (isCall({ method })) result({ message: says('{"sum":1}') })
    }, noStream)
    const proxy = await startFaultProxy(scripted.url)
    const { text } = await request(`${scripted.url}/.well-known/agent-card.json`)
    const peer = await connect(proxy.url, { card: JSON.parse(text.replaceAll(scripted.url, proxy.url)) as JsonObject })
    await peer.listRemoteTools()
    proxy.refuse()
    const call = peer.executeRemoteTool('put', { n: 1 })
    await until(() => peer.status.lastError?.code === 'network', 'the first attempt to fail')
    await proxy.resume()
    expect(await call).toEqual({ sum: 1 })
    expect(scripted.count('SendMessage')).toBe(1)
  })
})

describe('a request is tried again', () => {
  test('when the peer said that it may be', async () => {
    const at: number[] = []
    const scripted = await startScriptedPeer(({ method, error, result }) => {
      if (!isCall({ method })) return
      at.push(Date.now())
      const data = [{ '@type': 'type.googleapis.com/google.rpc.RetryInfo', retryDelay: '0.7s' }]
      if (at.length === 1) error(-32052, 'Too much.', data)
      else result({ message: says('{"sum":1}') })
    }, noStream)
    const peer = await connect(scripted.url)
    expect(await peer.executeRemoteTool('put', { n: 1 })).toEqual({ sum: 1 })
    const [first = 0, second = 0] = at
    expect(second - first).toBeGreaterThanOrEqual(690)
    expect(second - first).toBeLessThan(1_500)
  })

  test('under one limit, however often', async () => {
    const scripted = await startScriptedPeer(({ method, raw }) => {
      if (isCall({ method })) raw(503, {}, '')
    }, convoke)
    const peer = await connect(scripted.url)
    const startedAt = Date.now()
    const failure = await failureOf(peer.sendTask(say('Hi.'), { timeoutMs: 600 }))
    expect(Date.now() - startedAt).toBeLessThan(1_000)
    expect(['unavailable', 'timeout']).toContain(failure.code)
    expect(scripted.count('SendMessage')).toBeLessThan(4)
  })

  test('under a limit that holds for the card as well', async () => {
    const scripted = await startScriptedPeer(({ res }) => new Promise((resolve) => res.on('close', resolve)))
    const node = await startNode({ peers: { bob: { url: scripted.url } } })
    const startedAt = Date.now()
    expect(await failureOf(node.peers.sendTask('bob', 'Hi.', { timeoutMs: 200 }))).toMatchObject({ code: 'timeout' })
    expect(Date.now() - startedAt).toBeLessThan(1_000)
  })
})

describe('a peer that does not answer', () => {
  test('is left alone, and asked by one call whether it is back', async () => {
    let isBroken = true
    const gate = deferred()
    const scripted = await startScriptedPeer(async ({ method, res, result }) => {
      if (!isCall({ method })) return
      if (isBroken) return res.socket?.resetAndDestroy()
      await gate.promise
      result({ message: says('{"sum":1}') })
    }, noStream)
    const peer = await connect(scripted.url)
    const put = () => peer.executeRemoteTool('put', { n: 1 })
    for (const _ of range(1, 5)) expect(await failureOf(put())).toMatchObject({ code: 'network' })
    const before = scripted.requests.length
    const failure = await failureOf(put())
    expect(failure).toMatchObject({
      code: 'unavailable',
      kind: 'connection',
      retryable: true,
      peer: 'bob',
      tool: 'put',
      message: expect.stringMatching(
        /^bob\.put: It did not answer 5 times in a row and is left alone for a moment\. The last time: .*127\.0\.0\.1:\d+.*\.$/,
      ),
    })
    expect(failure.retryAfterMs).toBeGreaterThan(0)
    expect(failure.retryAfterMs).toBeLessThanOrEqual(1_000)
    expect(scripted.requests).toHaveLength(before)

    vi.useFakeTimers({ toFake: ['Date'] })
    vi.setSystemTime(Date.now() + 1_001)
    // It is not back: the rest is twice as long now.
    expect(await failureOf(put())).toMatchObject({ code: 'network' })
    expect(await failureOf(put())).toMatchObject({ code: 'unavailable' })
    vi.setSystemTime(Date.now() + 1_500)
    expect(await failureOf(put())).toMatchObject({ code: 'unavailable' })
    expect(scripted.requests).toHaveLength(before + 1)

    isBroken = false
    vi.setSystemTime(Date.now() + 1_000)
    const probe = put()
    await until(() => scripted.requests.length === before + 2, 'the one call')
    expect(await failureOf(put())).toMatchObject({ code: 'unavailable' })
    gate.resolve()
    expect(await probe).toEqual({ sum: 1 })
    expect(await Promise.all([put(), put()])).toEqual([{ sum: 1 }, { sum: 1 }])
    expect(peer.status).toMatchObject({ state: 'up' })
  })

  test('is not one that refuses, says that it is not available in an answer, or whose callers give up', async () => {
    const scripted = await startScriptedPeer(async ({ method, error, res }) => {
      const { n } = { n: scripted.requests.filter(isCall).length }
      if (!isCall({ method })) return
      if (n % 2 === 0) error(-32053, 'Not now.')
      else await new Promise((resolve) => res.on('close', resolve))
    }, noStream)
    const peer = await connect(scripted.url)
    await peer.listRemoteTools()
    for (const _ of range(1, 8)) {
      const { code } = await failureOf(peer.sendMessage(say('Hi.'), { signal: AbortSignal.timeout(60) }))
      expect(['timeout', 'unavailable']).toContain(code)
    }
    expect(scripted.requests.filter(isCall)).toHaveLength(8)
  })
})

describe('a call that takes longer than one request is waited for', () => {
  test('is followed as a stream, and the tool runs once', async () => {
    const { node, gate, runs } = await startGated()
    const sent: string[] = []
    const onWire: ConnectOptions['onWire'] = ({ direction, text = '' }) => {
      const method = /"method":"(Send\w+)"/.exec(text)?.[1]
      if (direction === 'out' && method !== undefined) sent.push(method)
    }
    const peer = await connect(node.url, { patienceMs: 50, onWire })
    // More at once than failures would make the peer be left alone.
    const calls = Promise.all(range(1, 6).map(() => peer.executeRemoteTool('gated')))
    await until(() => sent.filter((method) => method === 'SendStreamingMessage').length === 6, 'the streams')
    expect(peer.status).toMatchObject({ state: 'up' })
    gate.resolve()
    expect(await calls).toEqual(range(1, 6).map(() => 'done'))
    expect(sent).toHaveLength(12)
    expect(runs()).toBe(6)
  })

  test('and ends with its limit', async () => {
    const { node } = await startGated()
    const peer = await connect(node.url, { patienceMs: 50 })
    await peer.listRemoteTools()
    const message = { ...say('Call it.'), metadata: { _tool_call: { name: 'gated', params: {} } } }
    const startedAt = Date.now()
    expect(await failureOf(peer.sendTask(message, { timeoutMs: 250 }))).toMatchObject({ code: 'timeout' })
    expect(Date.now() - startedAt).toBeGreaterThanOrEqual(240)
    expect(Date.now() - startedAt).toBeLessThan(1_000)
  })

  test('and a task that has ended meanwhile is there at once', async () => {
    const { node, gate } = await startGated()
    gate.resolve()
    const peer = await connect(node.url)
    const message = { ...say('Call it.'), metadata: { _tool_call: { name: 'gated', params: {} } } }
    const { task } = await peer.sendTask(message)
    expect((await peer.waitFor(task!.id)).status.state).toBe('TASK_STATE_COMPLETED')
    const events = []
    for await (const { event } of peer.subscribe(task!.id)) events.push(event)
    expect(events.map((event) => event.task?.id)).toEqual([task!.id])
  })
})
