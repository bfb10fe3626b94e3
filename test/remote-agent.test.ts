import {
  PeerAgent,
  type ConvokeError,
  type Json,
  type JsonObject,
  type MessageHandler,
  type Node,
  type Part,
  type PeerOptions,
  type Question,
} from 'convoke'
import { describe, expect, test } from 'vitest'
import { askToolName, createAskTool } from '../dist/peers/remote-agent.js'
import { startFaultProxy } from './support/fault-proxy.ts'
import { cleanup, deferred, startNode, until, within } from './support/lifetime.ts'
import { startPlainPeer } from './support/peers.ts'
import { artifactOf, startScriptedPeer, statusOf, taskAs } from './support/scripted-peer.ts'
import { failureOf } from './support/failure.ts'
import type { StreamResponse } from './support/wire.ts'

const silent = { debug() {}, info() {}, warn() {}, error() {} }
const never = new AbortController().signal

/** An agent at a node whose handler this is. */
async function agentOf(onMessage: MessageHandler, options: Partial<PeerOptions> = {}): Promise<PeerAgent> {
  const { url } = await startNode({ agent: { id: 'bob' }, onMessage })
  return agentAt(url, options)
}

function agentAt(url: string, options: Partial<PeerOptions> = {}): PeerAgent {
  const agent = new PeerAgent({ url, id: 'bob', ...options }, { log: silent })
  cleanup(() => agent.close())
  return agent
}

describe('what an agent answers', () => {
  test.each<[string, MessageHandler, Json]>([
    [
      'a text that came in pieces',
      async function* () {
        yield 'Hel'
        yield 'lo.'
      },
      'Hello.',
    ],
    [
      'texts of several artifacts',
      async function* () {
        yield 'One.'
        yield { type: 'text', text: 'Two.', artifact: 'more' }
      },
      'One.\n\nTwo.',
    ],
    [
      'text that looks like JSON',
      async function* () {
        yield '{"a": 1}'
      },
      '{"a": 1}',
    ],
    [
      'data beside text',
      async function* () {
        yield 'Here.'
        yield { type: 'data', data: { score: 5 } }
      },
      { score: 5 },
    ],
    [
      'several pieces of data',
      async function* () {
        yield { type: 'data', data: { a: 1 } }
        yield { type: 'data', data: { b: 2 } }
      },
      [{ a: 1 }, { b: 2 }],
    ],
    [
      'a file',
      async function* () {
        yield { type: 'file', url: 'https://example.com/a.png' }
      },
      'https://example.com/a.png',
    ],
    [
      'its closing words',
      async function* () {
        yield { type: 'progress', progress: 1 }
        return 'Done.'
      },
      'Done.',
    ],
    ['nothing', async function* () {}, null],
    ['a bare message', () => 'Hello.', 'Hello.'],
  ])('is %s', async (_what, handler, expected) => {
    const bob = await agentOf(handler)
    const { answer, contextId } = await bob.ask('Hi.', { messageId: 'm1', contextId: 'talk', signal: never })
    expect(answer).toEqual(expected)
    expect(contextId).toBe('talk')
  })

  test('is the same for a message that comes again, and nobody is asked twice', async () => {
    let asked = 0
    const bob = await agentOf(async function* () {
      yield `Answer ${++asked}.`
    })
    const first = await bob.ask('Hi.', { messageId: 'm1', signal: never })
    expect(await bob.ask('Hi.', { messageId: 'm1', signal: never })).toEqual(first)
    expect(first.answer).toBe('Answer 1.')
    expect(asked).toBe(1)
    expect((await bob.ask('Hi.', { messageId: 'm2', signal: never })).answer).toBe('Answer 2.')
  })

  test.each([
    ['data well', { answer: 'well' }],
    ['text well', 'well'],
    ['status well', 'well'],
    ['message well', 'well'],
    ['count 3', '1 2 3 '],
  ])('comes from an agent without the extension that is asked %j, too', async (message, expected) => {
    for (const streaming of [true, false]) {
      const { url } = await startPlainPeer({ streaming })
      expect((await agentAt(url).ask(message, { messageId: 'm1', signal: never })).answer).toEqual(expected)
    }
    const cut = await startPlainPeer({ cutAfter: 2 })
    if (message.startsWith('message')) return
    expect((await agentAt(cut.url).ask(message, { messageId: 'm1', signal: never })).answer).toEqual(expected)
    expect(cut.runs).toBe(1)
  })

  test('is waited for through a cut', async () => {
    const go = deferred()
    const begun = deferred()
    const { url } = await startNode({
      agent: { id: 'bob' },
      onMessage: async function* () {
        yield 'Wait'
        begun.resolve()
        await go.promise
        yield ' for it.'
      },
    })
    const proxy = await startFaultProxy(url)
    const bob = agentAt(proxy.url, { patienceMs: 50, idleTimeoutMs: 5_000 })
    const answer = bob.ask('Hi.', { messageId: 'm1', signal: never })
    await within(begun.promise, 'the agent to begin')
    proxy.cut()
    go.resolve()
    expect((await answer).answer).toBe('Wait for it.')
  })
})

describe('a remote agent', () => {
  test('that is left stops', async () => {
    const begun = deferred()
    const stopped = deferred<string>()
    const bob = await agentOf(async function* (_message, { signal }) {
      yield 'Working'
      begun.resolve()
      await new Promise((resolve) => signal.addEventListener('abort', resolve))
      stopped.resolve((signal.reason as ConvokeError).code)
    })
    const controller = new AbortController()
    const failure = failureOf(bob.ask('Hi.', { messageId: 'm1', signal: controller.signal }))
    await within(begun.promise, 'the agent to begin')
    controller.abort()
    expect((await failure).code).toBe('canceled')
    expect(await within(stopped.promise, 'the agent to stop')).toBe('canceled')
  })

  test('may ask who asks it', async () => {
    const bob = await agentOf(async function* (_message, context) {
      const city = await context.ask({
        message: 'Where?',
        schema: { type: 'object', properties: { city: { type: 'string' } } },
      })
      yield { type: 'data', data: { asked: city } }
    })
    const questions: Question[] = []
    const ask = (question: Question): Promise<Json> => {
      questions.push(question)
      return Promise.resolve({ city: 'Jena' })
    }
    expect((await bob.ask('Hi.', { messageId: 'm1', signal: never, ask })).answer).toEqual({ asked: { city: 'Jena' } })
    expect(questions.map(({ message }) => message)).toEqual(['Where?'])

    const failure = await failureOf(bob.ask('Hi.', { messageId: 'm2', signal: never }))
    expect(failure.code).toBe('unsupported_operation')
    expect(failure.message).toBe('bob: It asks, and nobody can answer here: Where?')
  })

  test('fails with the code that it tells', async () => {
    const { ConvokeError: Failure } = await import('convoke')
    const bob = await agentOf(async function* () {
      yield 'Well'
      throw new Failure('model_unavailable', 'The model is down. Try again later.')
    })
    const failure = await failureOf(bob.ask('Hi.', { messageId: 'm1', signal: never }))
    expect(failure).toMatchObject({
      code: 'model_unavailable',
      retryable: true,
      message: 'bob: The model is down. Try again later.',
    })
  })

  test.each<[string, (i: number) => StreamResponse]>([
    [
      'empty parts',
      () =>
        artifactOf(
          't',
          'a',
          Array.from({ length: 100_000 }, (): Part => ({ text: '' })),
          true,
        ),
    ],
    [
      'the metadata of parts',
      (i) => artifactOf('t', `a${i}`, [{ text: '', metadata: { words: 'x'.repeat(1_000_000) } }]),
    ],
    ['links', (i) => artifactOf('t', `a${i}`, [{ url: `https://bob.example/${'x'.repeat(1_000_000)}` }])],
  ])('is too large also by %s', async (_, make) => {
    const peer = await startScriptedPeer(async ({ method, events, result, res }) => {
      if (method === 'CancelTask') return result(taskAs('t', 'TASK_STATE_CANCELED'))
      if (method !== 'SendStreamingMessage') return
      await events({ task: taskAs('t', 'TASK_STATE_WORKING') })
      for (let i = 0; i < 20 && !res.destroyed; i++) await events(make(i))
      await events(statusOf('t', 'TASK_STATE_COMPLETED'))
      res.end()
    })
    expect(await failureOf(agentAt(peer.url).ask('Hello.'))).toMatchObject({ code: 'too_large' })
  })

  test('that is not there fails as a connection does', async () => {
    const { url } = await startNode({ agent: { id: 'bob' } }).then(async (node) => {
      const { url } = node
      await node.stop()
      return { url }
    })
    expect((await failureOf(agentAt(url).ask('Hi.', { messageId: 'm1', signal: never }))).code).toBe('network')
  })
})

describe('an agent as a tool', () => {
  /** A node with `bob` as its peer and as a tool; `told` is what bob heard. */
  async function startPair(onMessage: MessageHandler): Promise<Node> {
    const bob = await startNode({ agent: { id: 'bob' }, onMessage })
    const alice = await startNode({ peers: { bob: { url: bob.url } } })
    const client = () => alice.peers.get('bob')
    alice.registry.register(createAskTool({ peer: 'bob', name: askToolName('bob'), client, self: 'alice' }))
    return alice
  }

  test('is not published, and answers', async () => {
    const alice = await startPair(async function* (message) {
      yield `You said ${message.parts[0]?.text}`
    })
    expect(await alice.tools.call('ask_bob', { message: 'Hi.' })).toBe('You said Hi.')
    expect(alice.card()['skills']).toEqual([])
    expect((await failureOf(alice.tools.call('ask_bob', {}))).code).toBe('invalid_params')
  })

  test('has one conversation for one of this side, and asks once for one call', async () => {
    const heard: { contextId: string; text: string | undefined }[] = []
    const alice = await startPair(async function* (message, { contextId }) {
      heard.push({ contextId, text: message.parts[0]?.text })
      yield String(heard.length)
    })
    const ask = (id: string, conversation: string, message: string): Promise<unknown> =>
      alice.tools.call('ask_bob', { message }, { call: { id, taskId: 'task', conversation } })
    expect(await ask('1', 'ann', 'one')).toBe('1')
    expect(await ask('2', 'ann', 'two')).toBe('2')
    expect(await ask('1', 'ann', 'one')).toBe('1')
    expect(await ask('1', 'ben', 'one')).toBe('3')
    expect(heard.map(({ text }) => text)).toEqual(['one', 'two', 'one'])
    const [first, second, third] = heard
    expect(second?.contextId).toBe(first?.contextId)
    expect(third?.contextId).not.toBe(first?.contextId)
  })

  test('goes on with the conversation of a peer that chooses its ids itself', async () => {
    const peer = await startScriptedPeer(async ({ method, events, res }) => {
      if (method !== 'SendStreamingMessage') return
      const artifacts = [{ artifactId: 'answer', parts: [{ text: 'Well.' }] }]
      await events({ task: taskAs('t1', 'TASK_STATE_COMPLETED', { contextId: 'theirs', artifacts }) })
      res.end()
    })
    const alice = await startNode({ peers: { bob: { url: peer.url } } })
    const client = () => alice.peers.get('bob')
    alice.registry.register(createAskTool({ peer: 'bob', name: 'ask_bob', client, self: 'alice' }))
    await alice.tools.call('ask_bob', { message: 'one' }, { call: { id: '1', conversation: 'ann' } })
    await alice.tools.call('ask_bob', { message: 'two' }, { call: { id: '2', conversation: 'ann' } })
    const sent = peer.requests.filter(({ method }) => method === 'SendStreamingMessage')
    const contexts = sent.map(({ params }) => (params['message'] as JsonObject)['contextId'])
    expect(contexts).toEqual([expect.stringMatching(/^[0-9a-f-]{36}$/), 'theirs'])
  })

  test('cannot go round', async () => {
    const bob: { node?: Node } = {}
    const alice = await startNode({
      onMessage: async function* (_message, { tools }) {
        yield { type: 'data', data: (await tools.call('ask_bob', { message: 'And you?' })) as Json }
      },
    })
    bob.node = await startNode({
      agent: { id: 'bob' },
      peers: { alice: { url: alice.url } },
      onMessage: async function* (_message, { tools }) {
        yield { type: 'data', data: (await tools.call('ask_alice', { message: 'No, you?' })) as Json }
      },
    })
    const { node } = bob
    node.registry.register(
      createAskTool({ peer: 'alice', name: 'ask_alice', client: () => node.peers.get('alice'), self: 'bob' }),
    )
    alice.peers.add('bob', { url: node.url })
    alice.registry.register(
      createAskTool({ peer: 'bob', name: 'ask_bob', client: () => alice.peers.get('bob'), self: 'alice' }),
    )
    const failure = await failureOf(alice.tools.call('ask_bob', { message: 'Go.' }))
    expect(failure.message).toContain('circles')
    await until(() => alice.stats.running === 0 && node.stats.running === 0)
  })

  test('has a name that any tool may have', () => {
    expect(askToolName('bob')).toBe('ask_bob')
    const long = 'a'.repeat(64)
    expect(askToolName(long)).toMatch(/^ask_a{51}_[0-9a-f]{8}$/)
    expect(askToolName(long)).not.toBe(askToolName(`${'a'.repeat(63)}b`))
  })
})
