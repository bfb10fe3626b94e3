/** A node whose messages go to an agent of actions: what these may do, and what becomes of what they do wrong. */
import {
  Agent,
  AgentEvent,
  AgentPlan,
  ChatRequestEvent,
  ChatResponseEvent,
  ConvokeError,
  defineTool,
  InputEvent,
  OutputEvent,
  type ActionFor,
  type Json,
  type JsonObject,
  type Memory,
  type MessageHandler,
  type Node,
  type NodeOptions,
  type Task,
} from 'convoke'
import { once } from 'node:events'
import { readFile, writeFile } from 'node:fs/promises'
import { connect, type Socket } from 'node:net'
import { join } from 'node:path'
import { setFlagsFromString } from 'node:v8'
import { runInNewContext } from 'node:vm'
import { describe, expect, test } from 'vitest'
import { cleanup, deferred, startNode, temporaryFolder, within } from './support/lifetime.ts'
import { stdioServer } from './support/mcp-servers.ts'
import { startModelServer } from './support/model-server.ts'
import { begin, getTask, rpc, say, send, sendStream, stateOf, toolCall, toolErrorOf, wordsOf } from './support/wire.ts'

const run = (action: ActionFor<typeof InputEvent>): Agent => new Agent().addAction('answer', InputEvent, action)

async function nodeOf(action: ActionFor<typeof InputEvent> | Agent, options: Partial<NodeOptions> = {}): Promise<Node> {
  return await startNode({ onMessage: action instanceof Agent ? action : run(action), ...options })
}

/** A request in one piece: what is written is there for the node's next look at its sockets. */
function post(url: string, method: string, params: JsonObject): string {
  const body = JSON.stringify({ jsonrpc: '2.0', id: 1, method, params })
  const { host } = new URL(url)
  return `POST / HTTP/1.1\r\nhost: ${host}\r\na2a-version: 1.0\r\ncontent-type: application/json\r\ncontent-length: ${body.length}\r\n\r\n${body}`
}

/** A connection that the node has taken and answered on. */
async function connectedSocket(url: string): Promise<Socket> {
  const socket = connect(Number(new URL(url).port), '127.0.0.1')
  cleanup(() => socket.destroy())
  socket.write(post(url, 'ListTasks', {}))
  await within(once(socket, 'data'), 'the first answer')
  return socket
}

/** What is held in memory once all else is collected. */
function heldBytes(): number {
  setFlagsFromString('--expose-gc')
  ;(runInNewContext('gc') as () => void)()
  const { heapUsed, external } = process.memoryUsage()
  return heapUsed + external
}

const partsOf = ({ artifacts = [] }: Task): Record<string, unknown> =>
  Object.fromEntries(artifacts.map(({ artifactId, parts }) => [artifactId, parts]))

describe('what actions put out', () => {
  test('are artifacts of the task, in their order', async () => {
    const { url } = await nodeOf((_event, context) => {
      for (const value of ['One.', { two: 2 }, 'Three.']) context.sendEvent(new OutputEvent(value))
    })
    const task = await send(url, say('Hi.'))
    expect(task.status.state).toBe('TASK_STATE_COMPLETED')
    expect(partsOf(task)).toEqual({
      answer: [{ text: 'One.' }],
      'answer-2': [{ data: { two: 2 } }],
      'answer-3': [{ text: 'Three.' }],
    })
  })

  test.each<[Json, unknown]>([
    [7, { data: 7 }],
    [false, { data: false }],
    [['a'], { data: ['a'] }],
    ['', { text: '' }],
  ])('may be %j', async (value, part) => {
    const { url } = await nodeOf((_event, context) => context.sendEvent(new OutputEvent(value)))
    expect(partsOf(await send(url, say('Hi.')))).toEqual({ answer: [part] })
  })

  test('may be nothing', async () => {
    const { url } = await nodeOf(() => {})
    const task = await send(url, say('Hi.'))
    expect(task.status.state).toBe('TASK_STATE_COMPLETED')
    expect(task.artifacts).toBeUndefined()
  })

  test('is what a model was asked for, by the name that the configuration gives it', async () => {
    const model = await startModelServer([['Hel', 'lo.']])
    const agent = run(({ value }, context) => {
      const messages = [{ role: 'user' as const, content: JSON.stringify(value) }]
      context.sendEvent(new ChatRequestEvent({ model: 'local', messages, stream: true }))
    }).addAction('end', [ChatResponseEvent], ({ payload }, context) =>
      context.sendEvent(new OutputEvent(payload.response.content)),
    )
    const { url } = await nodeOf(agent, {
      models: { local: { baseUrl: model.url, model: 'scripted', temperature: 0.5, maxTokens: 9 } },
    })
    const task = await send(url, say('Hi.'))
    expect(partsOf(task)).toEqual({ answer: [{ text: 'Hello.' }] })
    expect(model.requests[0]?.body).toMatchObject({ model: 'scripted', temperature: 0.5, max_tokens: 9 })
  })
})

describe('what actions work with', () => {
  test('settings are values, or stand in a file beside the configuration', async () => {
    const folder = await temporaryFolder()
    await writeFile(join(folder, 'agent.yaml'), 'greeting:\n  words: Hello from the file\n')
    const greet: ActionFor<typeof InputEvent> = (_event, { config, sendEvent }) =>
      sendEvent(new OutputEvent(config.getString('greeting.words', 'Nothing')))
    const answers: unknown[] = []
    for (const settings of [{ 'greeting.words': 'Hello' }, './agent.yaml', undefined]) {
      const agent = { id: 'alice', ...(settings === undefined ? {} : { settings }) }
      const { url } = await nodeOf(greet, { agent, baseDir: folder })
      answers.push(partsOf(await send(url, say('Hi.')))['answer'])
    }
    expect(answers).toEqual([[{ text: 'Hello' }], [{ text: 'Hello from the file' }], [{ text: 'Nothing' }]])
    await expect(
      nodeOf(greet, { agent: { id: 'alice', settings: './no.yaml' }, baseDir: folder }),
    ).rejects.toMatchObject({
      code: 'config',
      message: expect.stringContaining('no.yaml'),
    })
  })

  test('memory is kept for a conversation, also from task to task', async () => {
    const { url } = await nodeOf((_event, context) => {
      const count = Number(context.shortTermMemory.get('count') ?? 0) + 1
      context.shortTermMemory.set('count', count)
      context.sendEvent(new OutputEvent(`Message ${count}.`))
    })
    const ask = async (contextId: string): Promise<unknown> =>
      partsOf(await send(url, say('Hi.', { contextId })))['answer']
    expect(await ask('a')).toEqual([{ text: 'Message 1.' }])
    expect(await ask('a')).toEqual([{ text: 'Message 2.' }])
    expect(await ask('b')).toEqual([{ text: 'Message 1.' }])
  })

  test('tools are those of the node, called for the one who sent the message', async () => {
    const server = await stdioServer()
    const who = defineTool({
      name: 'who',
      description: 'Tells who calls.',
      input: { type: 'object' },
      run: (_params, { caller, call }) => ({
        caller: caller.id,
        taskId: call.taskId ?? '',
        contextId: call.contextId ?? '',
      }),
    })
    const { url } = await nodeOf(
      async (_event, context) => {
        const { tools } = context
        context.sendEvent(new OutputEvent((await tools.call('who')) as Json))
        context.sendEvent(new OutputEvent((await tools.call('files.echo', { value: 'x' })) as Json))
        const { success } = await tools.tryCall('nobody')
        context.sendEvent(new OutputEvent({ success }))
      },
      { tools: [who], mcpServers: { files: server.options } },
    )
    const task = await send(url, say('Hi.', { contextId: 'talk' }))
    expect(partsOf(task)).toEqual({
      answer: [{ data: { caller: 'anonymous', taskId: task.id, contextId: 'talk' } }],
      'answer-2': [{ text: '"x"' }],
      'answer-3': [{ data: { success: false } }],
    })
  })

  test("its own tools are not for callers unless they say so, and its MCP servers are the node's", async () => {
    const server = await stdioServer()
    const quiet = defineTool({ name: 'quiet', description: 'Q.', input: { type: 'object' }, run: () => 'quiet' })
    const loud = defineTool({
      name: 'loud',
      description: 'L.',
      input: { type: 'object' },
      traits: { published: true },
      run: () => 'loud',
    })
    const agent = run(async (_event, context) => {
      const said = [await context.tools.call('quiet'), await context.tools.call('shelf.echo', { value: 1 })]
      context.sendEvent(new OutputEvent(said as Json))
    })
      .addResource('quiet', quiet)
      .addResource('loud', loud)
      .addResource('shelf', server.options, 'mcpServer')
    const node = await nodeOf(agent)
    expect(partsOf(await send(node.url, say('Hi.')))).toEqual({ answer: [{ data: ['quiet', '1'] }] })
    expect((node.card()['skills'] as { id: string }[]).map(({ id }) => id)).toEqual(['chat', 'tool-loud'])
    expect(toolErrorOf(await send(node.url, toolCall('quiet')))?.code).toBe('not_found')
    expect(node.mcpServers.has('shelf')).toBe(true)
  })

  test('what it brings must have names of its own', async () => {
    const quiet = defineTool({ name: 'quiet', description: 'Q.', input: { type: 'object' }, run: () => 'quiet' })
    const withTool = run(() => {}).addResource('quiet', quiet)
    await expect(nodeOf(withTool, { tools: [quiet] })).rejects.toMatchObject({
      code: 'config',
      message: 'The agent brings a tool "quiet", and there is one already. Give one of them another name.',
    })
    const withServer = run(() => {}).addResource('bob', { command: 'bob' }, 'mcpServer')
    await expect(nodeOf(withServer, { peers: { bob: { url: 'http://127.0.0.1:1' } } })).rejects.toMatchObject({
      code: 'config',
      message: 'The agent has an MCP server "bob", which is the id of a peer. Rename one of them.',
    })
  })

  test("questions are the caller's to answer", async () => {
    const { url } = await nodeOf(async (_event, context) => {
      const name = await context.ask({ message: 'Who are you?' })
      context.sendEvent(new OutputEvent(`Hello, ${name as string}.`))
    })
    const asked = await send(url, say('Hi.'))
    expect(asked.status.state).toBe('TASK_STATE_INPUT_REQUIRED')
    const task = await send(url, say('Ann', { taskId: asked.id }))
    expect(partsOf(task)).toEqual({ answer: [{ text: 'Hello, Ann.' }] })
  })

  test('a cancel is waited for until the action has stopped', async () => {
    const begun = deferred()
    const go = deferred()
    const node = await nodeOf(async (_event, { signal }) => {
      begun.resolve()
      await new Promise((resolve) => signal.addEventListener('abort', resolve))
      await go.promise
      throw signal.reason
    })
    const { id } = await send(node.url, say('Hi.'), { returnImmediately: true })
    await within(begun.promise, 'the action')
    const cancel = rpc<Task>(node.url, 'CancelTask', { id })
    await new Promise((resolve) => setImmediate(resolve))
    expect((await getTask(node.url, id)).status.state).toBe('TASK_STATE_WORKING')
    go.resolve()
    expect((await cancel).body.result?.status.state).toBe('TASK_STATE_CANCELED')
  })

  test('a cancel that comes while the run is committed leaves nothing of a cancelled message in memory', async () => {
    const go = deferred()
    let cancel = (): void => {}
    const node = await nodeOf(
      async ({ value }, { shortTermMemory: memory, sendEvent }) => {
        const seen = [...((memory.get('seen') as Json[] | undefined) ?? []), value]
        memory.set('seen', seen)
        sendEvent(new OutputEvent(seen))
        await go.promise
        // A commit waits for the end of its turn of the event loop; what is in a socket by now comes before that.
        await new Promise((resolve) => setImmediate(resolve))
        cancel()
      },
      { store: { url: `sqlite:${join(await temporaryFolder(), 'node.db')}` } },
    )
    const message = say('One.', { contextId: 'talk' })
    const { id } = await begin(node.url, message)
    const socket = await connectedSocket(node.url)
    cancel = () => socket.write(post(node.url, 'CancelTask', { id }))
    go.resolve()
    const { status } = await send(node.url, message)
    cancel = () => {}
    const next = await send(node.url, say('Two.', { contextId: 'talk' }))
    const seen = status.state === 'TASK_STATE_CANCELED' ? ['Two.'] : ['One.', 'Two.']
    expect(partsOf(next)).toEqual({ answer: [{ data: seen }] })
  })
})

describe('what a node says of its agent', () => {
  const agent = run((_event, context) => context.sendEvent(new OutputEvent('Yes.')))

  test('is where its events are written, whole when the node has stopped', async () => {
    const baseDir = await temporaryFolder()
    const node = await nodeOf(agent, { agent: { id: 'alice', eventLog: { file: './logs/events.jsonl' } }, baseDir })
    const { id } = await send(node.url, say('Hi.'))
    await node.stop()
    const lines = (await readFile(join(baseDir, 'logs/events.jsonl'), 'utf8')).trimEnd().split('\n')
    const entries = lines.map((line) => JSON.parse(line) as JsonObject)
    expect(entries.map(({ kind, phase, type, action }) => phase ?? type ?? action ?? kind)).toEqual([
      'begun',
      'input',
      'answer',
      'output',
      'ended',
    ])
    expect(entries[0]?.['run']).toContain(id)
    await expect(nodeOf(agent, { agent: { id: 'alice', eventLog: { file: '.' } }, baseDir })).rejects.toMatchObject({
      code: 'config',
      message: expect.stringContaining('event log'),
    })
  })
})

describe('other agents', () => {
  async function startPair(onMessage: MessageHandler, action: ActionFor<typeof InputEvent>): Promise<Node> {
    const bob = await startNode({ agent: { id: 'bob' }, onMessage })
    return await startNode({
      onMessage: run(action),
      peers: { bob: { url: bob.url } },
    })
  }

  test('are resources by the ids of their peers, and the conversation with them goes on', async () => {
    const heard: string[] = []
    const node = await startPair(
      async function* (message, { contextId }) {
        heard.push(contextId)
        yield `Bob heard ${message.parts[0]?.text}`
      },
      async (_event, context) => {
        const bob = await context.getResource('bob', 'remoteAgent')
        const { answer } = await bob.ask('one')
        context.sendEvent(new OutputEvent([answer, (await bob.ask('one')).answer]))
      },
    )
    const task = await send(node.url, say('Hi.', { contextId: 'a' }))
    expect(partsOf(task)).toEqual({ answer: [{ data: ['Bob heard one', 'Bob heard one'] }] })
    await send(node.url, say('Hi.', { contextId: 'a' }))
    await send(node.url, say('Hi.', { contextId: 'b' }))
    const [first] = heard
    expect(heard.slice(0, 4)).toEqual([first, first, first, first])
    expect(new Set(heard).size).toBe(2)
  })

  test('answer each question, also where an action looks for them anew and asks the same again', async () => {
    let heard = 0
    const node = await startPair(
      () => `Answer ${++heard}`,
      async (_event, context) => {
        const ask = async () => (await (await context.getResource('bob', 'remoteAgent')).ask('Is it done?')).answer
        context.sendEvent(new OutputEvent([await ask(), await ask(), await ask()]))
      },
    )
    expect(partsOf(await send(node.url, say('Hi.')))).toEqual({
      answer: [{ data: ['Answer 1', 'Answer 2', 'Answer 3'] }],
    })
  })

  test('have conversations that an action names itself, and these stay apart', async () => {
    const heard: string[] = []
    const node = await startPair(
      (_message, { contextId }) => `Heard ${heard.push(contextId)}`,
      async (_event, context) => {
        const bob = await context.getResource('bob', 'remoteAgent')
        await bob.ask('one', { contextId: 'own' })
        await bob.ask('two')
        await bob.ask('three', { contextId: 'own' })
        await bob.ask('four')
      },
    )
    await send(node.url, say('Hi.'))
    const [own, other] = heard
    expect(own).toBe('own')
    expect(heard).toEqual([own, other, own, other])
    expect(other).not.toBe('own')
  })

  test('are there as soon as their peers are', async () => {
    const node = await nodeOf(async (_event, context) => {
      const carol = await context.getResource('carol', 'remoteAgent')
      context.sendEvent(new OutputEvent((await carol.ask('Hi.')).answer))
    })
    expect(toolErrorOf(await send(node.url, say('Hi.')))?.code).toBe('not_found')
    const carol = await startNode({ agent: { id: 'carol' }, onMessage: () => 'Carol here.' })
    node.peers.add('carol', { url: carol.url })
    expect(partsOf(await send(node.url, say('Hi.')))).toEqual({ answer: [{ text: 'Carol here.' }] })
    await node.peers.remove('carol')
    expect(toolErrorOf(await send(node.url, say('Hi.')))?.code).toBe('not_found')
  })

  test('may ask, and the caller answers', async () => {
    const node = await startPair(
      async function* (_message, context) {
        yield `You said ${(await context.ask('Which one?')) as string}.`
      },
      async (_event, context) => {
        const bob = await context.getResource('bob', 'remoteAgent')
        context.sendEvent(new OutputEvent((await bob.ask('Go.')).answer))
      },
    )
    const asked = await send(node.url, say('Hi.'))
    expect(wordsOf(asked.status.message)).toBe('Which one?')
    expect(partsOf(await send(node.url, say('this', { taskId: asked.id })))).toEqual({
      answer: [{ text: 'You said this.' }],
    })
  })

  test('cannot ask each other in circles', async () => {
    const asks = (whom: string): Agent =>
      run(async (_event, context) => {
        const other = await context.getResource(whom, 'remoteAgent')
        context.sendEvent(new OutputEvent((await other.ask('And you?')).answer))
      })
    // Each needs the address of the other, so the first is told of it in time.
    const alice = await startNode({ onMessage: asks('bob'), peers: { bob: { url: 'http://127.0.0.1:1' } } })
    const bob = await startNode({
      agent: { id: 'bob' },
      onMessage: asks('alice'),
      peers: { alice: { url: alice.url } },
    })
    await alice.peers.remove('bob')
    alice.peers.add('bob', { url: bob.url })
    const task = await send(alice.url, say('Go.'))
    expect(['TASK_STATE_FAILED', 'TASK_STATE_REJECTED']).toContain(task.status.state)
    expect(toolErrorOf(task)?.message).toContain('circles')
  })
})

test('what is told waits in the store, and not in memory, for a reader that does not read', async () => {
  const size = 128 * 1024
  const count = 300
  let ahead = 0
  const node = await nodeOf(
    async (_event, { tell, stableId, sendEvent }) => {
      const before = heldBytes()
      for (let n = 0; n < count; n++) {
        const requestId = stableId(String(n))
        await tell({ type: 'text', requestId, text: Buffer.alloc(size, `${n} `).toString() })
        await tell({ type: 'restart', requestId })
      }
      ahead = heldBytes() - before
      sendEvent(new OutputEvent('Done.'))
    },
    { store: { url: `sqlite:${join(await temporaryFolder(), 'node.db')}` } },
  )
  const message = say('Hi.')
  const before = heldBytes()
  const stalled = await sendStream(node.url, message)
  const first = (await stalled.next())!
  expect((await send(node.url, message)).status.state).toBe('TASK_STATE_COMPLETED')
  // Of 39 MB: what an action may be ahead of its task, and what is on its way to the store and to the reader.
  expect(ahead).toBeLessThan(20_000_000)
  expect(heldBytes() - before).toBeLessThan(20_000_000)
  const events = [first, ...(await stalled.all())]
  expect(events.map(({ id }) => id)).toEqual(events.map((_, i) => i + 1))
  expect(events.filter(({ data }) => data.artifactUpdate !== undefined)).toHaveLength(count + 1)
}, 60_000)

describe('what an action does wrong', () => {
  let kept: Memory | undefined
  test.each<[string, string, ActionFor<typeof InputEvent>]>([
    [
      'throws',
      'action_failed',
      () => {
        throw new Error('password hunter2 at http://db.example.com')
      },
    ],
    ['rejects', 'action_failed', () => Promise.reject(new TypeError('hunter2'))],
    [
      'throws a code of its own',
      'rate_limited',
      () => {
        throw new ConvokeError('rate_limited', 'Too much. Try again later.')
      },
    ],
    [
      'sends a payload that is not JSON',
      'invalid_event',
      (_event, context) => context.sendEvent(new AgentEvent('x', { a: () => {} } as never)),
    ],
    ['puts out what is not JSON', 'invalid_event', (_event, context) => context.sendEvent(new OutputEvent(NaN))],
    [
      'remembers what is not JSON',
      'invalid_event',
      (_event, context) => context.shortTermMemory.set('a', new Date() as never),
    ],
    [
      'asks for the JSON of a plan with a closure',
      'invalid_plan',
      () => {
        AgentPlan.fromAgent(run(() => {})).toJSON()
      },
    ],
    ['sends events without end', 'event_limit', (_event, context) => context.sendEvent(new InputEvent('again'))],
    [
      'asks for a resource that there is not',
      'not_found',
      async (_event, context) => void (await context.getResource('x', 'prompt')),
    ],
  ])('%s: the task has failed with %s, and the next message works', async (_what, code, action) => {
    let isWrong = true
    const { url } = await nodeOf(async (event, context) => {
      if (isWrong) return await action(event, context)
      context.sendEvent(new OutputEvent('Well.'))
    })
    const task = await send(url, say('Hi.', { contextId: 'talk' }))
    expect(task.status.state).toBe('TASK_STATE_FAILED')
    expect(toolErrorOf(task)).toMatchObject({ code })
    expect(JSON.stringify(task.status)).not.toMatch(/hunter2|https?:|\bat \S+:\d+/)
    isWrong = false
    expect(partsOf(await send(url, say('Hi.', { contextId: 'talk' })))).toEqual({ answer: [{ text: 'Well.' }] })
  })

  test('a memory that is written after its run has ended fails the run that does so', async () => {
    const { url } = await nodeOf((_event, context) => {
      kept?.set('late', true)
      kept ??= context.shortTermMemory
      context.sendEvent(new OutputEvent('Well.'))
    })
    expect(partsOf(await send(url, say('Hi.')))).toEqual({ answer: [{ text: 'Well.' }] })
    const task = await send(url, say('Hi.'))
    expect(task.status.state).toBe('TASK_STATE_FAILED')
    expect(toolErrorOf(task)?.code).toBe('run_ended')
  })

  test('an action that cannot be loaded says where it stands to nobody but the log', async () => {
    const baseDir = await temporaryFolder()
    await writeFile(join(baseDir, 'broken.mjs'), `throw new Error('password hunter2 is wrong')`)
    for (const module of ['./gone.mjs', './broken.mjs']) {
      const agent = new Agent().addAction('answer', [InputEvent], { module, export: 'answer' })
      const { url } = await nodeOf(agent, { baseDir })
      const task = await send(url, say('Hi.'))
      expect(toolErrorOf(task)).toMatchObject({ code: 'invalid_plan', message: expect.stringContaining('"answer"') })
      expect(JSON.stringify(task)).not.toContain(baseDir)
      expect(JSON.stringify(task)).not.toContain('hunter2')
    }
  })

  test('a failure behind a piece of the answer leaves the piece, and ends the stream', async () => {
    const model = await startModelServer([['Hel', { cut: true }]])
    const agent = run((_event, context) =>
      context.sendEvent(
        new ChatRequestEvent({ model: 'local', messages: [{ role: 'user', content: 'Hi.' }], stream: true }),
      ),
    )
    const { url } = await nodeOf(agent, { models: { local: { baseUrl: model.url, model: 'scripted', retries: 0 } } })
    const events = await (await sendStream(url, say('Hi.'))).all()
    expect(stateOf(events.at(-1)!)).toBe('TASK_STATE_FAILED')
  })
})

describe('agent.module', () => {
  const convoke = new URL('../dist/index.js', import.meta.url).href
  const load = async (code: string): Promise<Node> => {
    const baseDir = await temporaryFolder()
    await writeFile(join(baseDir, 'agent.mjs'), `import { Agent, InputEvent, OutputEvent } from '${convoke}'\n${code}`)
    return await startNode({ agent: { id: 'alice', module: './agent.mjs' }, baseDir })
  }
  const action = `addAction('answer', [InputEvent], (event, context) => context.sendEvent(new OutputEvent('Hello ' + event.value)))`
  test.each([
    ['an agent as `agent`', `export const agent = new Agent().${action}`],
    ['a class as `agent`', `export class agent extends Agent { constructor() { super(); this.${action} } }`],
    ['an agent as its default', `export default new Agent().${action}`],
    ['a class as its default', `export default class extends Agent { constructor() { super(); this.${action} } }`],
    ['a handler as its default', `export default () => 'Hello you'`],
  ])('may export %s', async (what, code) => {
    const { url } = await load(code)
    const { body } = await rpc<{ task?: Task; message?: { parts: unknown } }>(url, 'SendMessage', {
      message: say('you'),
    })
    const { task, message } = body.result!
    expect(task === undefined ? message?.parts : partsOf(task)['answer'], what).toEqual([{ text: 'Hello you' }])
  })

  test.each([
    [
      'both',
      `export const agent = new Agent(); export const onMessage = () => 'Hi.'`,
      'exports both agent and onMessage',
    ],
    ['an agent that is none', `export const agent = { name: 'x' }`, 'exports an agent that is none'],
    [
      'a class that throws',
      `export class agent extends Agent { constructor() { super(); throw new Error('No luck.') } }`,
      'has an agent that cannot be made: No luck.',
    ],
    ['nothing', `export const x = 1`, 'must export an agent, or a function onMessage'],
  ])('may not export %s', async (_what, code, expected) => {
    await expect(load(code)).rejects.toMatchObject({ code: 'config', message: expect.stringContaining(expected) })
  })
})
