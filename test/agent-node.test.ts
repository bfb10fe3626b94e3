/** A node whose messages go to an agent: its model calls tools here, on MCP servers and on peers, and all of it is one task. */
import {
  connectPeer,
  type ConvokeError,
  defineTool,
  type Json,
  type JsonObject,
  type Node,
  type NodeOptions,
  type ReactOptions,
  type Task,
  type Tool,
} from 'convoke'
import { createHash } from 'node:crypto'
import { writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { describe, expect, test } from 'vitest'
import { clients, read } from './support/clients.ts'
import { cleanup, deferred, startNode, temporaryFolder, until, within } from './support/lifetime.ts'
import { stdioServer } from './support/mcp-servers.ts'
import {
  startModelServer,
  type ModelAnswer,
  type ModelRequest,
  type ModelScript,
  type ModelServer,
  type ModelStep,
} from './support/model-server.ts'
import { freePort } from './support/process.ts'
import {
  getTask,
  rest,
  rpc,
  say,
  send,
  sendStream,
  stateOf,
  toolErrorOf,
  wordsOf,
  type StreamEvent,
} from './support/wire.ts'

/** What the model was told by the words `name`: whichever name it has for the tool. */
function nameOf(request: ModelRequest, handle: string): string {
  const names = (request.body.tools ?? []).map((tool) => tool.function.name)
  const found = names.find(
    (name) => name === handle || name.replaceAll(/[^A-Za-z0-9]/g, '') === handle.replaceAll(/[^A-Za-z0-9]/g, ''),
  )
  if (found === undefined) throw new Error(`The model has no tool ${handle}; it has ${names.join(', ')}.`)
  return found
}

const call = (request: ModelRequest, handle: string, args: object = {}, id?: string): ModelStep => ({
  call: { name: nameOf(request, handle), arguments: args, ...(id === undefined ? {} : { id }) },
})

/** What came of the calls of the round before, in their order. */
const answers = ({ body }: ModelRequest): string[] =>
  body.messages.flatMap(({ role, content }) => (role === 'tool' ? [content ?? ''] : []))

const textOf = (task: Pick<Task, 'artifacts'>, id = 'answer'): string | undefined => {
  const artifact = task.artifacts?.find(({ artifactId }) => artifactId === id)
  return artifact?.parts.map(({ text = '' }) => text).join('')
}

/** The text of the answer's pieces as a reader of the stream puts them together. */
function joined(events: readonly StreamEvent[]): string {
  let text = ''
  for (const { data } of events) {
    const update = data.artifactUpdate
    if (update?.artifact.artifactId !== 'answer') continue
    if (update.append !== true) text = ''
    text += update.artifact.parts.map((part) => part.text ?? '').join('')
  }
  return text
}

const piecesOf = (events: readonly StreamEvent[]): string[] =>
  events.flatMap(({ data }) => data.artifactUpdate?.artifact.parts.map(({ text = '' }) => text) ?? [])

/** The names of tools, as the progress of the task has them. */
const progressOf = (events: readonly StreamEvent[]): JsonObject[] =>
  events.flatMap(({ data }) => {
    const progress = data.statusUpdate?.metadata?.['_tool_progress']
    return typeof progress === 'object' && progress !== null && !Array.isArray(progress) ? [progress] : []
  })

interface Talking {
  readonly node: Node
  readonly model: ModelServer
}

/** A node whose agent is a scripted model. */
async function talk(
  script: ModelScript,
  { react, ...options }: Omit<Partial<NodeOptions>, 'agent'> & { readonly react?: Partial<ReactOptions> } = {},
): Promise<Talking> {
  const model = await startModelServer(script)
  const node = await startNode({
    agent: { id: 'alice', name: 'Alice', react: { model: 'local', ...react } },
    models: { local: { baseUrl: model.url, model: 'scripted', retries: 0 } },
    ...options,
  })
  return { node, model }
}

const tool = (name: string, run: (params: JsonObject) => Json | Promise<Json>): Tool =>
  defineTool({ name, description: `The tool ${name}.`, input: { type: 'object' }, run })

describe('a message that names no tool', () => {
  test('is answered by the model, token by token', async () => {
    const { node, model } = await talk([['Hel', 'lo', '.']])
    const events = await (await sendStream(node.url, say('Hi.'))).all()
    expect(joined(events)).toBe('Hello.')
    expect(piecesOf(events)).toEqual(['Hel', 'lo', '.'])
    expect(stateOf(events.at(-1)!)).toBe('TASK_STATE_COMPLETED')
    expect(model.requests[0]?.body.messages).toEqual([
      { role: 'system', content: 'You are Alice.' },
      { role: 'user', content: 'Hi.' },
    ])
    const task = await getTask(node.url, events[0]!.data.task!.id)
    expect(task.artifacts).toEqual([
      { artifactId: 'answer', parts: [{ text: 'Hello.' }], metadata: { _joined_text: true } },
    ])
  })
})

describe('two rounds of tools here, on an MCP server and on a peer', () => {
  test('run side by side, and the answer streams', async () => {
    const server = await stdioServer()
    const here = deferred()
    const there = deferred()
    const bob = await startNode({
      agent: { id: 'bob' },
      tools: [
        tool('weigh', async () => {
          there.resolve()
          await here.promise
          return { kg: 3 }
        }),
      ],
    })
    const lookUp = tool('look_up', async () => {
      here.resolve()
      // It ends only if the two others have begun meanwhile.
      await there.promise
      await server.heard('call echo')
      return { price: 5 }
    })
    const rounds: string[][] = []
    const { node, model } = await talk(
      (request, index): ModelAnswer => {
        rounds.push(answers(request))
        if (index === 0) {
          return [
            'Let me see.',
            call(request, 'look_up', { item: 'apple' }),
            call(request, 'files.echo', { value: 'on the server' }),
            call(request, 'bob.weigh', { item: 'apple' }),
          ]
        }
        if (index === 1) return [call(request, 'files.echo', { value: 'again' })]
        return ['5 Euro', ' for 3', ' kg.']
      },
      { tools: [lookUp], mcpServers: { files: server.options }, peers: { bob: { url: bob.url } } },
    )
    const reader = await sendStream(node.url, say('What is an apple?'))
    const events = await reader.all()
    expect(stateOf(events.at(-1)!)).toBe('TASK_STATE_COMPLETED')
    expect(joined(events)).toBe('5 Euro for 3 kg.')
    expect(piecesOf(events)).toEqual(['Let me see.', '5 Euro', ' for 3', ' kg.'])
    const [, first, second] = rounds
    expect(first?.map((each) => JSON.parse(each) as Json)).toEqual([{ price: 5 }, 'on the server', { kg: 3 }])
    expect(second?.at(-1)).toBe('"again"')
    const names = new Set(progressOf(events).map(({ message }) => message))
    expect(names).toEqual(new Set(['look_up', 'files.echo', 'bob.weigh']))
    expect(progressOf(events).at(-1)).toMatchObject({ progress: 4, total: 4 })
    expect(model.requests).toHaveLength(3)
    const task = await getTask(node.url, events[0]!.data.task!.id)
    expect(textOf(task)).toBe('5 Euro for 3 kg.')
  })

  test('stop in the middle, and the model with them', async () => {
    const begun = deferred()
    const stopped = deferred<string>()
    const hold = defineTool({
      name: 'hold',
      description: 'Runs until it is told to stop.',
      input: { type: 'object' },
      async run(_params, { signal }) {
        begun.resolve()
        await new Promise((resolve) => signal.addEventListener('abort', resolve))
        stopped.resolve((signal.reason as ConvokeError).code)
        throw signal.reason
      },
    })
    const bob = await startNode({ agent: { id: 'bob' }, tools: [hold] })
    const { node, model } = await talk((request) => [call(request, 'bob.hold')], { peers: { bob: { url: bob.url } } })
    const { id } = await send(node.url, say('Hold on.'), { returnImmediately: true })
    await within(begun.promise, 'the tool of the peer')
    const { body } = await rpc<Task>(node.url, 'CancelTask', { id })
    expect(body.result?.status.state).toBe('TASK_STATE_CANCELED')
    expect(await within(stopped.promise, 'the tool of the peer to stop')).toBe('canceled')
    expect(bob.stats.running).toBe(0)
    expect(model.requests).toHaveLength(1)
  })

  test('a cancel ends the request to the model', async () => {
    const { node, model } = await talk([['One moment', { silent: true }]])
    const reader = await sendStream(node.url, say('Hi.'))
    const events = await reader.upTo(({ data }) => data.artifactUpdate !== undefined)
    const { body } = await rpc<Task>(node.url, 'CancelTask', { id: events[0]!.data.task!.id })
    expect(body.result?.status.state).toBe('TASK_STATE_CANCELED')
    await within(model.requests[0]!.aborted, 'the request to end')
    expect(stateOf((await reader.all()).at(-1)!)).toBe('TASK_STATE_CANCELED')
  })
})

test('a cancel reaches the model of the agent that is asked', async () => {
  const bobsModel = await startModelServer([{ silent: true }])
  const bob = await startNode({
    agent: { id: 'bob', react: { model: 'local' } },
    models: { local: { baseUrl: bobsModel.url, model: 'scripted' } },
  })
  const { node } = await talk((request) => [call(request, 'ask_bob', { message: 'Well?' })], {
    peers: { bob: { url: bob.url } },
    react: { agents: ['bob'] },
  })
  const { id } = await send(node.url, say('Ask Bob.'), { returnImmediately: true })
  const request = await within(bobsModel.request(0), 'the request to the model of bob')
  const { body } = await rpc<Task>(node.url, 'CancelTask', { id })
  expect(body.result?.status.state).toBe('TASK_STATE_CANCELED')
  await within(request.aborted, 'the request to end')
  expect(bob.stats.running).toBe(0)
})

test('the model is offered what its globs name and what rules let the caller have', async () => {
  const { node, model } = await talk(['Hi.'], {
    tools: ['read_a', 'read_b', 'write_a'].map((name) => tool(name, () => 1)),
    toolPolicy: [
      { tools: 'read_b', decision: 'deny' },
      { tools: '*', decision: 'allow' },
    ],
    react: { tools: ['read_*'] },
  })
  await send(node.url, say('Hi.'))
  expect(model.requests[0]?.body.tools?.map((each) => each.function.name)).toEqual(['read_a'])
})

test('a rule that asks asks the caller of the agent', async () => {
  const { node } = await talk(
    (request, index) => (index === 0 ? [call(request, 'pay')] : `Done: ${answers(request).at(-1)}`),
    { tools: [tool('pay', () => ({ paid: true }))], toolPolicy: [{ tools: 'pay', decision: 'ask' }] },
  )
  const asked = await send(node.url, say('Pay.'))
  expect(asked.status.state).toBe('TASK_STATE_INPUT_REQUIRED')
  const [reply = ''] = /approve [0-9a-f]+/.exec(wordsOf(asked.status.message)) ?? []
  const task = await send(node.url, say(reply, { taskId: asked.id }))
  expect(textOf(task)).toBe('Done: {"paid":true}')
})

test('a message that was passed on has the time that its chain has', async () => {
  const { node, model } = await talk([{ silent: true }])
  const metadata = { _delegation: { path: ['carol'], hops: 1, deadline: Date.now() + 1_500 } }
  const task = await send(node.url, { ...say('Hi.'), metadata })
  expect(toolErrorOf(task)?.code).toBe('timeout')
  await within(model.requests[0]!.aborted, 'the request to end')
})

test('an answer that is begun anew begins its artifact anew', async () => {
  const model = await startModelServer([
    ['Hal', { cut: true }],
    ['Hel', 'lo.'],
  ])
  const node = await startNode({
    agent: { id: 'alice', react: { model: 'local' } },
    models: { local: { baseUrl: model.url, model: 'scripted', retries: 1 } },
  })
  const events = await (await sendStream(node.url, say('Hi.'))).all()
  expect(events.flatMap(({ data }) => data.artifactUpdate?.append ?? [])).toEqual([false, false, true])
  expect(joined(events)).toBe('Hello.')
  expect(textOf(await getTask(node.url, events[0]!.data.task!.id))).toBe('Hello.')
})

describe('a conversation', () => {
  const said = ({ body }: ModelRequest): string[] =>
    body.messages.flatMap(({ role, content }) => (role === 'system' ? [] : [`${role}: ${content}`]))

  test('goes on in its context, also after a restart', async () => {
    const model = await startModelServer((_request, index) => `Answer ${index}.`)
    const folder = await temporaryFolder()
    const options: Partial<NodeOptions> = {
      agent: { id: 'alice', react: { model: 'local' } },
      models: { local: { baseUrl: model.url, model: 'scripted' } },
      store: { url: `sqlite:${join(folder, 'node.db')}` },
    }
    const first = await startNode(options)
    await send(first.url, say('One.', { contextId: 'talk' }))
    await send(first.url, say('Other.', { contextId: 'another' }))
    await first.stop()
    const second = await startNode(options)
    await send(second.url, say('Two.', { contextId: 'talk' }))
    expect(said(model.requests[2]!)).toEqual(['user: One.', 'assistant: Answer 0.', 'user: Two.'])
    expect(said(model.requests[1]!)).toEqual(['user: Other.'])
  })

  test("is each caller's own, whatever they call it", async () => {
    const tokens = ['ann', 'ben'].map((id) => ({
      id,
      sha256: createHash('sha256').update(`token-${id}`).digest('hex'),
    }))
    const { node, model } = await talk((_request, index) => `Answer ${index}.`, { server: { auth: { tokens } } })
    const as = (id: string): { headers: Record<string, string> } => ({
      headers: { authorization: `Bearer token-${id}` },
    })
    await send(node.url, say('I am Ann.', { contextId: 'talk' }), {}, as('ann'))
    await send(node.url, say('I am Ben.', { contextId: 'talk' }), {}, as('ben'))
    await send(node.url, say('Who am I?', { contextId: 'talk' }), {}, as('ann'))
    expect(said(model.requests[1]!)).toEqual(['user: I am Ben.'])
    expect(said(model.requests[2]!)).toEqual(['user: I am Ann.', 'assistant: Answer 0.', 'user: Who am I?'])
  })

  test('keeps its order when two messages come at once', async () => {
    const go = deferred()
    const { node, model } = await talk(async (_request, index) => {
      if (index === 0) await go.promise
      return `Answer ${index}.`
    })
    const one = send(node.url, say('One.', { contextId: 'talk' }))
    await within(model.request(0), 'the first request')
    const two = send(node.url, say('Two.', { contextId: 'talk' }))
    const other = await send(node.url, say('Aside.', { contextId: 'other' }))
    expect(textOf(other)).toBe('Answer 1.')
    go.resolve()
    expect(textOf(await one)).toBe('Answer 0.')
    expect(textOf(await two)).toBe('Answer 2.')
    expect(said(model.requests[2]!)).toEqual(['user: One.', 'assistant: Answer 0.', 'user: Two.'])
  })

  test('goes on past a message that was cancelled before its turn', async () => {
    const go = deferred()
    const { node, model } = await talk(async (_request, index) => {
      if (index === 0) await go.promise
      return `Answer ${index}.`
    })
    const one = send(node.url, say('One.', { contextId: 'talk' }))
    await within(model.request(0), 'the first request')
    const two = await send(node.url, say('Two.', { contextId: 'talk' }), { returnImmediately: true })
    const { body } = await rpc<Task>(node.url, 'CancelTask', { id: two.id })
    expect(body.result?.status.state).toBe('TASK_STATE_CANCELED')
    go.resolve()
    await one
    await send(node.url, say('Three.', { contextId: 'talk' }))
    expect(said(model.requests[1]!)).toEqual(['user: One.', 'assistant: Answer 0.', 'user: Three.'])
  })

  const book = defineTool({
    name: 'book',
    description: 'Books.',
    input: { type: 'object' },
    run: async (_params, { ask }) => {
      const answer = await ask({
        message: 'Which day?',
        schema: { type: 'object', properties: { day: { type: 'string' } }, required: ['day'] },
      })
      return { booked: answer }
    },
  })

  /** Sends a message whose tool asks for the day, tells it, and gives the end. */
  async function bookMonday({ node }: Talking): Promise<Task> {
    const asked = await send(node.url, say('Book it.'))
    expect(asked.status.state).toBe('TASK_STATE_INPUT_REQUIRED')
    expect(wordsOf(asked.status.message)).toBe('Which day?')
    const done = await send(node.url, { ...say(''), taskId: asked.id, parts: [{ data: { day: 'Monday' } }] })
    expect(done.status.state).toBe('TASK_STATE_COMPLETED')
    return done
  }

  test('may be asked something by a tool', async () => {
    const talking = await talk(
      (request, index) => (index === 0 ? [call(request, 'book')] : `Done: ${answers(request).at(-1)}`),
      { tools: [book] },
    )
    expect(textOf(await bookMonday(talking))).toBe('Done: {"booked":{"day":"Monday"}}')
  })

  test("may be asked something by a peer's tool, and by a tool of the agent that is asked", async () => {
    const bobsModel = await startModelServer((request, index) =>
      index === 0 ? [call(request, 'book')] : `Bob says ${answers(request).at(-1)}`,
    )
    const bob = await startNode({
      agent: { id: 'bob', react: { model: 'local' } },
      models: { local: { baseUrl: bobsModel.url, model: 'scripted' } },
      tools: [book],
    })
    for (const [name, params, said] of [
      ['bob__book', {}, '{"booked":{"day":"Monday"}}'],
      ['ask_bob', { message: 'Book it.' }, 'Bob says {"booked":{"day":"Monday"}}'],
    ] as const) {
      const talking = await talk(
        (request, index) => (index === 0 ? [call(request, name, params)] : `Done: ${answers(request).at(-1)}`),
        { peers: { bob: { url: bob.url } }, discovery: { startup: true }, react: { agents: ['bob'] } },
      )
      expect(textOf(await bookMonday(talking))).toBe(`Done: ${said}`)
    }
  })

  test('is told of params for another agent that were never sent, as if nobody had refused them', async () => {
    const { node } = await talk(
      (request, index) =>
        index === 0 ? [call(request, 'ask_bob', { text: 'Well?' })] : `Done: ${answers(request).at(-1)}`,
      { peers: { bob: { url: 'http://127.0.0.1:1' } }, react: { agents: ['bob'] } },
    )
    const answer = textOf(await send(node.url, say('Ask.'))) ?? ''
    expect(answer).toContain('Invalid params for the tool \\"ask_bob\\"')
    expect(answer).not.toContain('bob:')
  })

  test('may be cancelled while it is asked something, also where a peer asks', async () => {
    const bob = await startNode({ agent: { id: 'bob' }, tools: [book] })
    const { node } = await talk((request, index) => (index === 0 ? [call(request, 'bob__book')] : 'Well.'), {
      peers: { bob: { url: bob.url } },
      discovery: { startup: true },
    })
    const asked = await send(node.url, say('Book it.', { contextId: 'talk' }))
    expect(asked.status.state).toBe('TASK_STATE_INPUT_REQUIRED')
    const { body } = await rpc<Task>(node.url, 'CancelTask', { id: asked.id })
    expect(body.result?.status.state).toBe('TASK_STATE_CANCELED')
    const atBob = await rpc<{ tasks: Task[] }>(bob.url, 'ListTasks')
    expect(atBob.body.result?.tasks.map(({ status }) => status.state)).toEqual(['TASK_STATE_CANCELED'])
    expect(textOf(await send(node.url, say('Hi.', { contextId: 'talk' })))).toBe('Well.')
  })
})

describe('an answer', () => {
  test.each(clients)('reaches $name', async ({ connect }) => {
    const { node } = await talk([['Hel', 'lo.'], ['Hel', 'lo.'], { status: 500 }])
    const client = await connect(node.url)
    expect(client.skills).toEqual(['Chat'])
    const events = await read(client.stream(say('Hi.')))
    // Not put together by `append`, which the 0.3 client loses over HTTP+JSON.
    expect(piecesOf(events).join('')).toBe('Hello.')
    const task = await client.send(say('Hi.'))
    expect(task.status.state).toBe('TASK_STATE_COMPLETED')
    expect(textOf(task)).toBe('Hello.')
    const failed = await client.send(say('Hi.'))
    expect(failed.status.state).toBe('TASK_STATE_FAILED')
    expect(toolErrorOf(failed)?.code).toBe('model_unavailable')
  })

  test('is the same over HTTP+JSON', async () => {
    const { node } = await talk([['Hel', 'lo.']])
    const { body } = await rest<{ task: Task }>(node.url, 'POST /message:send', { message: say('Hi.') })
    expect(textOf(body.task)).toBe('Hello.')
  })

  test('is data where a schema says so, and what does not fit goes back or fails', async () => {
    const outputSchema = {
      type: 'object',
      properties: { score: { type: 'integer' } },
      required: ['score'],
      additionalProperties: false,
    }
    const fine = await talk(['```json\n{"score": 5}\n```'], { react: { outputSchema } })
    expect((await send(fine.node.url, say('Good?'))).artifacts).toEqual([
      { artifactId: 'answer', parts: [{ data: { score: 5 } }] },
    ])
    const failed = await talk(['{"score": "five"}'], { react: { outputSchema } })
    const task = await send(failed.node.url, say('Good?'))
    expect(toolErrorOf(task)).toMatchObject({ code: 'invalid_output', issues: [{ path: '/score' }] })
    const again = await talk(['{"score": "five"}', '{"score": 5}'], { react: { outputSchema, onError: 'retry' } })
    expect((await send(again.node.url, say('Good?'))).artifacts?.[0]?.parts).toEqual([{ data: { score: 5 } }])
    const ignored = await talk(['{"score": "five"}'], { react: { outputSchema, onError: 'ignore' } })
    const done = await send(ignored.node.url, say('Good?'))
    expect(done.status.state).toBe('TASK_STATE_COMPLETED')
    expect(done.artifacts).toBeUndefined()
    expect(wordsOf(done.status.message)).toBe('output ignored: schema mismatch')
  })

  test('that is ignored takes back what was seen of it', async () => {
    const { node } = await talk([['One', { cut: true }]], { react: { onError: 'ignore' } })
    const events = await (await sendStream(node.url, say('Hi.'))).all()
    expect(piecesOf(events)).toEqual(['One'])
    const task = await getTask(node.url, events[0]!.data.task!.id)
    expect(task.status.state).toBe('TASK_STATE_COMPLETED')
    expect(task.artifacts).toBeUndefined()
    expect(wordsOf(task.status.message)).toMatch(/^output ignored: /)
  })

  test('comes whole and in order, however long it is and however slowly it is read', async () => {
    const pieces = Array.from({ length: 3000 }, (_, i) => `${i} ${'x'.repeat(50)}\n`)
    const { node } = await talk([pieces])
    const reader = await sendStream(node.url, say('Hi.'))
    const events: StreamEvent[] = []
    for (let event = await reader.next(); event !== undefined; event = await reader.next()) {
      events.push(event)
      if (events.length % 500 === 0) await new Promise((resolve) => setImmediate(resolve))
    }
    expect(joined(events)).toBe(pieces.join(''))
    const task = await getTask(node.url, events[0]!.data.task!.id)
    expect(task.artifacts?.map(({ parts }) => parts)).toEqual([[{ text: pieces.join('') }]])
  })

  test('takes data and files into account', async () => {
    const { node, model } = await talk(['One.', 'Two.'], {
      react: { prompt: 'You judge {text} with {data} and {files}.' },
    })
    const parts = [{ text: 'this' }, { data: { a: 1 } }, { url: 'https://example.com/a.png', mediaType: 'image/png' }]
    await send(node.url, say('', { parts }))
    expect(model.requests[0]?.body.messages.at(-1)?.content).toBe(
      'You judge this with [{"a":1}] and [{"mediaType":"image/png","url":"https://example.com/a.png"}].',
    )
    await send(node.url, say('', { parts: [{ data: { text: 'that' } }] }))
    expect(model.requests[1]?.body.messages.at(-1)?.content).toContain('You judge that with {data}')
  })

  test('does not stand in the way of a call that names a tool', async () => {
    const { node, model } = await talk([], { tools: [tool('add', () => ({ sum: 3 }))] })
    const { body } = await rpc<{ task: Task }>(node.url, 'SendMessage', {
      message: { ...say('Add, please.'), metadata: { _tool_call: { name: 'add', params: {} } } },
    })
    expect(body.result?.task.artifacts?.[0]?.parts).toEqual([{ data: { sum: 3 } }])
    expect(model.requests).toEqual([])
  })
})

test('the card has an ordinary skill for the conversation, unless the template has its own', async () => {
  const { node } = await talk([], { tools: [tool('add', () => 1)] })
  expect(node.card()['skills']).toMatchObject([
    {
      id: 'chat',
      name: 'Chat',
      description: 'Talks with Alice: a message in words that names no tool.',
      tags: ['chat'],
    },
    { id: 'tool-add' },
  ])
  const peer = await connectPeer(node.url)
  cleanup(() => peer.close())
  expect((await peer.listRemoteTools()).map(({ name }) => name)).toEqual(['add'])

  const baseDir = await temporaryFolder()
  const own = { id: 'chat', name: 'Talk', description: 'Ours.', tags: ['talk'] }
  await writeFile(
    join(baseDir, 'card.json'),
    JSON.stringify({ name: 'A', description: 'B', version: '1', skills: [own] }),
  )
  const model = await startModelServer([])
  const other = await startNode({
    agent: { id: 'alice', card: './card.json', react: { model: 'local' } },
    models: { local: { baseUrl: model.url, model: 'scripted' } },
    baseDir,
  })
  expect(other.card()['skills']).toEqual([own])
})

describe('a failure ends the task with its own code, and says what to do', () => {
  const secret = 'sk-secret-key'
  /** What the caller is told; never where the model is, its key or a stack. */
  async function failure(
    script: ModelScript | 'down',
    {
      react,
      tools = [],
      timeoutMs = 30_000,
    }: { react?: Partial<ReactOptions>; tools?: Tool[]; timeoutMs?: number } = {},
  ): Promise<NonNullable<ReturnType<typeof toolErrorOf>>> {
    const model = await startModelServer(script === 'down' ? [] : script)
    if (script === 'down') await model.stop()
    const node = await startNode({
      agent: { id: 'alice', react: { model: 'local', ...react } },
      models: { local: { baseUrl: model.url, model: 'scripted', apiKey: secret, retries: 0, timeoutMs } },
      tools,
    })
    const task = await send(node.url, say('Hi.'))
    expect(task.status.state).toBe('TASK_STATE_FAILED')
    const error = toolErrorOf(task)!
    const text = JSON.stringify(task.status)
    expect(text).not.toContain(secret)
    expect(text).not.toContain(model.url)
    expect(text).not.toMatch(/https?:\/\/|127\.0\.0\.1|\bat \S+:\d+|\.id-/)
    expect(wordsOf(task.status.message)).toBe(error.message)
    return error
  }
  const add = tool('add', () => ({ sum: 3 }))

  test.each<[string, string, boolean, RegExp, () => ReturnType<typeof failure>]>([
    ['the model is down', 'model_unavailable', true, /running, and its baseUrl right/, () => failure('down')],
    ['the model says that it is busy', 'model_unavailable', true, /Try again later/i, () => failure([{ status: 429 }])],
    [
      'the model says nothing',
      'model_timeout',
      true,
      /Try again, or give the endpoint a longer timeoutMs/,
      () => failure([{ silent: true }], { timeoutMs: 100 }),
    ],
    [
      'the model falls silent',
      'model_timeout',
      true,
      /Try again, or give the endpoint a longer timeoutMs/,
      () => failure([['One', { silent: true }]], { timeoutMs: 100 }),
    ],
    ['the model cuts its stream', 'model_interrupted', true, /Try again/, () => failure([['One', { cut: true }]])],
    [
      'the model breaks off into nonsense',
      'model_invalid',
      false,
      /^The model's answer breaks off into what is no JSON. Ask again/,
      () => failure([['One', { raw: 'data: {"choices": [\n\n' }]]),
    ],
    ['the stream ends too early', 'model_interrupted', true, /Try again/, () => failure([['One', { end: true }]])],
    ['the key is wrong', 'model_refused', false, /apiKey/, () => failure([{ status: 401 }])],
    [
      'the answer is no JSON',
      'model_invalid',
      false,
      /baseUrl is to be/,
      () => failure([[{ raw: 'data: {"choices": [\n\n' }]]),
    ],
    [
      'the model goes on calling a tool that does not exist',
      'unknown_tool',
      false,
      /see `tools` of its setup/,
      () => failure(() => [{ call: { name: 'fly', arguments: {} } }], { tools: [add] }),
    ],
    [
      'the model makes the same call forever',
      'tool_loop',
      false,
      /Say in the prompt when it is done/,
      () => failure((request) => [call(request, 'add', { a: 1 })], { tools: [add] }),
    ],
    [
      'the model gives two calls one id',
      'duplicate_call_id',
      false,
      /Ask again/,
      () =>
        failure((request) => [call(request, 'add', { a: 1 }, 'c1'), call(request, 'add', { a: 2 }, 'c1')], {
          tools: [add],
        }),
    ],
    [
      'the model is asked too often',
      'round_limit',
      false,
      /raise `maxRounds`/,
      () =>
        failure((request, index) => [call(request, 'add', { a: index })], { tools: [add], react: { maxRounds: 3 } }),
    ],
    [
      'the model calls too many tools',
      'tool_call_limit',
      false,
      /raise `maxToolCalls`/,
      () =>
        failure((request, index) => [call(request, 'add', { a: index })], { tools: [add], react: { maxToolCalls: 2 } }),
    ],
    [
      'the model says more than a run may keep',
      'too_large',
      false,
      /Ask for less|start a new/i,
      () =>
        failure(
          (request, index) => [
            ...Array.from({ length: 6 }, () => 'x'.repeat(1_000_000)),
            call(request, 'add', { a: index }),
          ],
          { tools: [add] },
        ),
    ],
    [
      'the model uses too many tokens',
      'token_limit',
      false,
      /raise `maxTokens`/,
      () =>
        failure((request, index) => [call(request, 'add', { a: index }), { usage: { input: 500, output: 500 } }], {
          tools: [add],
          react: { maxTokens: 1500 },
        }),
    ],
    [
      'the model takes too long',
      'time_limit',
      false,
      /raise `timeoutMs`/,
      () => failure([{ silent: true }], { react: { timeoutMs: 100 } }),
    ],
  ])('when %s: %s', async (_what, code, retryable, advice, run) => {
    expect(await run()).toMatchObject({ code, retryable, message: expect.stringMatching(advice) })
  })
})

test('the tools of a peer that comes late are there with the next message', async () => {
  const port = await freePort()
  const { node, model } = await talk((_request, index) => `Answer ${index}.`, {
    peers: { bob: { url: `http://127.0.0.1:${port}` } },
    react: { tools: ['bob.*'] },
  })
  await send(node.url, say('Hi.'))
  expect(model.requests[0]?.body.tools ?? []).toEqual([])
  await startNode({ agent: { id: 'bob' }, tools: [tool('weigh', () => 3)], server: { port } })
  await until(async () => {
    await send(node.url, say('Hi.'))
    return (model.requests.at(-1)?.body.tools ?? []).length > 0
  }, 'the tools of bob')
})

describe('an agent among agents', () => {
  test('is asked by the model of another, in one conversation', async () => {
    const told: string[][] = []
    const bobsModel = await startModelServer((request, index) => {
      told.push(request.body.messages.flatMap(({ role, content }) => (role === 'user' ? [content ?? ''] : [])))
      return `Bob says ${index}.`
    })
    const bob = await startNode({
      agent: { id: 'bob', react: { model: 'local' } },
      models: { local: { baseUrl: bobsModel.url, model: 'scripted' } },
    })
    const { node } = await talk(
      (request, index) =>
        index % 2 === 0
          ? [call(request, 'ask_bob', { message: `Question ${index}` })]
          : `So: ${answers(request).at(-1)}`,
      { peers: { bob: { url: bob.url } }, react: { tools: [], agents: ['bob'] } },
    )
    expect(textOf(await send(node.url, say('Ask Bob.', { contextId: 'talk' })))).toBe('So: Bob says 0.')
    expect(textOf(await send(node.url, say('Ask again.', { contextId: 'talk' })))).toBe('So: Bob says 1.')
    await send(node.url, say('Ask once more.', { contextId: 'other' }))
    expect(told).toEqual([['Question 0'], ['Question 0', 'Question 2'], ['Question 4']])
  })

  test('is told by the tool that it goes round', async () => {
    const asks =
      (whom: string): ModelScript =>
      (request) =>
        answers(request).length === 0
          ? [call(request, `ask_${whom}`, { message: 'You?' })]
          : String(answers(request).at(-1))
    const alicesModel = await startModelServer(asks('bob'))
    const bobsModel = await startModelServer(asks('alice'))
    const agentOf = (id: string, other: string, baseUrl: string, url: string): Promise<Node> =>
      startNode({
        agent: { id, react: { model: 'local', tools: [], agents: [other] } },
        models: { local: { baseUrl, model: 'scripted' } },
        peers: { [other]: { url } },
      })
    const alice = await agentOf('alice', 'bob', alicesModel.url, 'http://127.0.0.1:1')
    const bob = await agentOf('bob', 'alice', bobsModel.url, alice.url)
    await alice.peers.remove('bob')
    alice.peers.add('bob', { url: bob.url })
    const task = await send(alice.url, say('Go.'))
    expect(task.status.state).toBe('TASK_STATE_COMPLETED')
    expect(textOf(task)).toContain('circles')
  })
})
