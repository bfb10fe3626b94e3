/** An agent's task when its process dies, or is told to stop: what was done is not done again, and the conversation goes on. */
import { Agent, defineTool, InputEvent, type NodeOptions, type Task } from 'convoke'
import { writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { describe, expect, test } from 'vitest'
import { openStore } from '../dist/store/open.js'
import { deferred, startNode, temporaryFolder, until, within } from './support/lifetime.ts'
import { startModelServer, type ModelRequest, type ModelScript, type ModelServer } from './support/model-server.ts'
import { freePort, serveConfig, type NodeProcess } from './support/process.ts'
import {
  begin,
  getTask,
  idsOf,
  range,
  say,
  send,
  sendStream,
  stateOf,
  subscribe,
  toolErrorOf,
  wordsOf,
  type StreamEvent,
} from './support/wire.ts'

const tools = fileURLToPath(new URL('./support/agent-tools.js', import.meta.url))

/** A node in a process of its own; both lives have one store and one model. */
async function start(folder: string, model: ModelServer, more: Record<string, unknown> = {}): Promise<NodeProcess> {
  return await serveConfig(folder, {
    agent: { id: 'alice', react: { model: 'local' } },
    models: { local: { baseUrl: model.url, model: 'scripted' } },
    server: { port: 0, drainMs: 50 },
    store: { url: 'sqlite:./node.db' },
    tools: [{ module: tools }],
    ...more,
  })
}

const ended = ({ status }: Task): boolean => /COMPLETED|FAILED|CANCELED/.test(status.state)
const answered = (url: string, id: string): Promise<Task> =>
  until(async () => {
    const task = await getTask(url, id)
    return ended(task) ? task : undefined
  }, 'the task to end')
const textOf = (task: Task): string | undefined => task.artifacts?.[0]?.parts.map(({ text = '' }) => text).join('')
const said = ({ body }: ModelRequest): string[] =>
  body.messages.flatMap(({ role, content }) => (role === 'system' ? [] : [`${role}: ${content}`]))

/** Two tools in one round, then an answer. */
const twoTools =
  (second: string): ModelScript =>
  ({ body }) => {
    const last = body.messages.at(-1)
    if (last?.role === 'tool') {
      const results = body.messages.flatMap(({ role, content }) => (role === 'tool' ? [content ?? ''] : []))
      return ['Done: ', results.join(' ')]
    }
    if (last?.content?.includes('again') === true) return 'Again.'
    return ['One moment.', { call: { name: 'note', arguments: { n: 1 } } }, { call: { name: second, arguments: {} } }]
  }

describe.each(['SIGKILL', 'SIGTERM'] as const)('after %s in the middle of a round of tools', (signal) => {
  test('the run goes on, and what was done is not done again', async () => {
    const folder = await temporaryFolder()
    const model = await startModelServer(twoTools('look'))
    const first = await start(folder, model)
    const message = say('Hi.', { contextId: 'talk' })
    const reader = await sendStream(first.url, message)
    const before = await reader.upTo(({ data }) => data.statusUpdate?.metadata?.['_tool_progress'] !== undefined)
    const { id } = before[0]!.data.task!
    await first.heard('note 1')
    await first.heard('look runs')
    // The step is durable before its result is told.
    const isNoted = ({ data }: (typeof before)[number]): boolean =>
      (data.statusUpdate?.metadata?.['_tool_progress'] as { progress?: number } | undefined)?.progress === 1
    if (!before.some(isNoted)) before.push(...(await reader.upTo(isNoted)))
    expect(await first.end(signal)).toBe(signal === 'SIGTERM' ? 0 : null)

    const second = await start(folder, model)
    await second.heard('look runs')
    const again = await subscribe(second.url, id, { lastEventId: before.at(-1)!.id! })
    second.release('go')
    const after = await again.all()
    expect(stateOf(after.at(-1)!)).toBe('TASK_STATE_COMPLETED')
    expect(idsOf([...before, ...after])).toEqual(range(1, before.length + after.length))
    // The answer begins anew under its attempt.
    const restart = after.find(({ data }) => data.statusUpdate?.metadata?.['_tool_attempt'] !== undefined)
    expect(restart?.data.statusUpdate?.metadata).toEqual({ _tool_attempt: 2 })
    const pieces = after.flatMap(({ data }) => data.artifactUpdate ?? [])
    expect(pieces[0]).toMatchObject({ append: false, artifact: { metadata: { _tool_attempt: 2 } } })
    const task = await getTask(second.url, id)
    expect(textOf(task)).toBe('Done: {"noted":1} {"waited":true}')
    expect(second.count('note 1')).toBe(0)
    expect(second.count('look runs')).toBe(1)
    // The model is not asked again for the round that it had answered.
    expect(model.requests).toHaveLength(2)

    // The message finds its task, and the conversation goes on.
    expect((await send(second.url, message)).id).toBe(id)
    expect(textOf(await send(second.url, say('And again?', { contextId: 'talk' })))).toBe('Again.')
    expect(said(model.requests[2]!).at(0)).toBe('user: Hi.')
    expect(said(model.requests[2]!).at(-2)).toBe('assistant: Done: {"noted":1} {"waited":true}')
  })
})

test.each(['SIGKILL', 'SIGTERM'] as const)(
  'an answer that %s cuts is given whole by the next process',
  async (signal) => {
    const folder = await temporaryFolder()
    const model = await startModelServer((_request, index) =>
      index === 0 ? ['One, two, ', { silent: true }] : index === 1 ? ['One, two, ', 'three.'] : 'Four.',
    )
    const first = await start(folder, model)
    const reader = await sendStream(first.url, say('Count.', { contextId: 'talk' }))
    const before = await reader.upTo(({ data }) => data.artifactUpdate !== undefined)
    const { id } = before[0]!.data.task!
    await first.end(signal)
    const second = await start(folder, model)
    const after = await (await subscribe(second.url, id, { lastEventId: before.at(-1)!.id! })).all()
    expect(idsOf([...before, ...after])).toEqual(range(1, before.length + after.length))
    const pieces = after.flatMap(({ data }) => data.artifactUpdate ?? [])
    expect(pieces[0]).toMatchObject({ append: false, artifact: { metadata: { _tool_attempt: 2 } } })
    expect(textOf(await getTask(second.url, id))).toBe('One, two, three.')
    expect(textOf(await send(second.url, say('Go on.', { contextId: 'talk' })))).toBe('Four.')
    expect(said(model.requests[2]!)).toEqual(['user: Count.', 'assistant: One, two, three.', 'user: Go on.'])
  },
)

test('a tool that may not run twice, and had begun, is told as lost to the model', async () => {
  const folder = await temporaryFolder()
  const model = await startModelServer(twoTools('pay'))
  const first = await start(folder, model)
  const { id } = await begin(first.url, say('Hi.'))
  await first.heard('pay runs')
  await first.heard('note 1')
  await first.end('SIGKILL')
  const second = await start(folder, model)
  const task = await answered(second.url, id)
  expect(task.status.state).toBe('TASK_STATE_COMPLETED')
  expect(textOf(task)).toContain('worker_lost')
  expect(second.count('pay runs')).toBe(0)
})

test("what a peer's tool came to is still known when the peer is gone", async () => {
  const bob = await startNode({
    agent: { id: 'bob' },
    tools: [defineTool({ name: 'noted', description: 'Once.', input: { type: 'object' }, run: () => 'by bob' })],
  })
  const begun = deferred()
  const go = deferred()
  const look = defineTool({
    name: 'look',
    description: 'Waits for the test.',
    input: { type: 'object' },
    traits: { readOnly: true },
    async run(_params, { signal }) {
      begun.resolve()
      await Promise.race([go.promise, new Promise((resolve) => signal.addEventListener('abort', resolve))])
      signal.throwIfAborted()
      return 'by alice'
    },
  })
  const model = await startModelServer(({ body }) => {
    const results = body.messages.flatMap(({ role, content }) => (role === 'tool' ? [content ?? ''] : []))
    if (results.length > 3) return results.join(', ')
    // More rounds of that tool alone than a model may have with tools that there are not.
    const wanted = results.length < 3 ? /noted/ : /noted|look/
    const names = (body.tools ?? []).map((tool) => tool.function.name).filter((name) => wanted.test(name))
    return names.map((name) => ({ call: { name, arguments: { n: results.length } } }))
  })
  const options: Partial<NodeOptions> = {
    agent: { id: 'alice', react: { model: 'local' } },
    models: { local: { baseUrl: model.url, model: 'scripted' } },
    peers: { bob: { url: bob.url } },
    store: { url: `sqlite:${join(await temporaryFolder(), 'node.db')}` },
    tools: [look],
  }
  const first = await startNode(options)
  const reader = await sendStream(first.url, say('Hi.'))
  const isNoted = ({ data }: StreamEvent): boolean =>
    (data.statusUpdate?.metadata?.['_tool_progress'] as { progress?: number } | undefined)?.progress === 4
  const events = await reader.upTo(isNoted)
  await within(begun.promise, 'the other tool')
  await first.stop()
  await bob.stop()
  const second = await startNode(options)
  go.resolve()
  const task = await answered(second.url, events[0]!.data.task!.id)
  expect(textOf(task)?.split(', ').toSorted()).toEqual(['by alice', ...Array.from({ length: 4 }, () => 'by bob')])
})

test.each(['SIGKILL', 'SIGTERM'] as const)('a run that waits for an answer has ended after %s', async (signal) => {
  const folder = await temporaryFolder()
  const model = await startModelServer(({ body }) =>
    body.messages.at(-1)?.role === 'tool' ? 'Done.' : [{ call: { name: 'ask', arguments: {} } }],
  )
  const first = await start(folder, model)
  const asked = await send(first.url, say('Hi.', { contextId: 'talk' }))
  expect(wordsOf(asked.status.message)).toBe('Which one?')
  await first.end(signal)
  const second = await start(folder, model)
  const task = await answered(second.url, asked.id)
  expect(task.status.state).toBe(signal === 'SIGTERM' ? 'TASK_STATE_CANCELED' : 'TASK_STATE_FAILED')
  expect(toolErrorOf(task)?.code).toBe(signal === 'SIGTERM' ? 'canceled' : 'worker_lost')
  // The next message of the conversation is not held up by it.
  const next = await send(second.url, say('Hi.', { contextId: 'talk' }))
  expect(next.status.state).toBe('TASK_STATE_INPUT_REQUIRED')
})

test('messages that wait for their turn keep it', async () => {
  const folder = await temporaryFolder()
  const model = await startModelServer((request) => {
    const last = request.body.messages.at(-1)
    if (last?.role === 'tool') return 'Looked.'
    return last?.content === 'One.' ? [{ call: { name: 'look', arguments: {} } }] : `You said ${last?.content}`
  })
  const first = await start(folder, model)
  const one = await begin(first.url, say('One.', { contextId: 'talk' }))
  await first.heard('look runs')
  const two = await begin(first.url, say('Two.', { contextId: 'talk' }))
  const three = await begin(first.url, say('Three.', { contextId: 'talk' }))
  await first.end('SIGKILL')
  const second = await start(folder, model)
  await second.heard('look runs')
  second.release('go')
  expect(textOf(await answered(second.url, three.id))).toBe('You said Three.')
  expect(textOf(await getTask(second.url, one.id))).toBe('Looked.')
  expect(textOf(await getTask(second.url, two.id))).toBe('You said Two.')
  expect(said(model.requests.at(-1)!).filter((each) => each.startsWith('user'))).toEqual([
    'user: One.',
    'user: Two.',
    'user: Three.',
  ])
})

test('a message that comes while a node is only just back waits for those before it', async () => {
  const folder = await temporaryFolder()
  const model = await startModelServer((request) => {
    const last = request.body.messages.at(-1)
    if (last?.role === 'tool') return 'Looked.'
    if (last?.content === 'Two.') return 'You said Two.'
    return [{ call: { name: last?.content === 'One.' ? 'look' : 'ask', arguments: {} } }]
  })
  const first = await start(folder, model)
  // Each of them is ended, one after the other, before the node is back.
  await Promise.all(Array.from({ length: 60 }, () => send(first.url, say('Ask me.'))))
  const one = await begin(first.url, say('One.', { contextId: 'talk' }))
  await first.heard('look runs')
  await first.end('SIGKILL')

  const port = await freePort()
  const message = say('Two.', { contextId: 'talk' })
  const starting = start(folder, model, { server: { port } })
  const two = await until(
    () => begin(`http://127.0.0.1:${port}`, message).catch(() => undefined),
    'the port of the second node to open',
  )
  const second = await starting
  await second.heard('look runs')
  second.release('go')
  expect(textOf(await answered(second.url, two.id))).toBe('You said Two.')
  expect(textOf(await getTask(second.url, one.id))).toBe('Looked.')
})

test('what no task goes on with is ended when the node starts', async () => {
  const store = { url: `sqlite:${join(await temporaryFolder(), 'node.db')}` }
  const left = await openStore(store)
  await left.agents.append('agent', 'key', { id: 'left', event: JSON.stringify(new InputEvent('Left.', 'left')) })
  await left.close()
  const heard: unknown[] = []
  const agent = new Agent().addAction('answer', [InputEvent], (event) => void heard.push(event.value))
  // Nobody waits for it: a node that stops too early leaves it to the next one.
  const failure = await until(async () => {
    const node = await startNode({ onMessage: agent, store })
    await send(node.url, say('Hi.'))
    await node.stop()
    const after = await openStore(store)
    const result = await after.agents.result('agent', 'key', 'left')
    await after.close()
    return result?.failure
  }, 'the input to be ended')
  expect(failure).toContain('worker_lost')
  expect(new Set(heard)).toEqual(new Set(['Hi.']))
})

describe('an agent that is asked by a step which is repeated answers once', () => {
  /** Asks bob, dies while it waits for the answer, and goes on. */
  async function askTwice(
    folder: string,
    more: Record<string, unknown>,
    script: ModelScript = [],
  ): Promise<string | undefined> {
    let asked = 0
    const go = deferred()
    const bob = await startNode({
      agent: { id: 'bob' },
      onMessage: async function* () {
        asked++
        await go.promise
        yield 'Bob is well.'
      },
    })
    const model = await startModelServer(script)
    const options = { ...more, peers: { bob: { url: bob.url } } }
    const first = await start(folder, model, options)
    const { id } = await begin(first.url, say('Ask Bob.'))
    await until(() => asked === 1, 'bob to be asked')
    await first.end('SIGKILL')
    const second = await start(folder, model, options)
    go.resolve()
    const task = await answered(second.url, id)
    expect(asked).toBe(1)
    return textOf(task)
  }

  test('as a tool of a model', async () => {
    const react = { model: 'local', tools: [], agents: ['bob'] }
    const answer = await askTwice(await temporaryFolder(), { agent: { id: 'alice', react } }, ({ body }) =>
      body.messages.at(-1)?.role === 'tool'
        ? `Bob: ${body.messages.at(-1)?.content}`
        : [{ call: { name: 'ask_bob', arguments: { message: 'How are you?' } } }],
    )
    expect(answer).toBe('Bob: Bob is well.')
  })

  test('as a resource of an action', async () => {
    const folder = await temporaryFolder()
    await writeFile(
      join(folder, 'agent.mjs'),
      `import { Agent, InputEvent, OutputEvent } from '${new URL('../dist/index.js', import.meta.url).href}'
      export const agent = new Agent().addAction('ask', [InputEvent], async (event, context) => {
        const { answer } = await (await context.getResource('bob', 'remoteAgent')).ask('How are you?')
        context.sendEvent(new OutputEvent(answer))
      })`,
    )
    expect(await askTwice(folder, { agent: { id: 'alice', module: './agent.mjs' } })).toBe('Bob is well.')
  })
})

test('what an action does after its run has ended is refused, and the node goes on', async () => {
  const folder = await temporaryFolder()
  await writeFile(
    join(folder, 'agent.mjs'),
    `import { Agent, InputEvent, OutputEvent } from ${JSON.stringify(new URL('../dist/index.js', import.meta.url).href)}
import { tell } from ${JSON.stringify(new URL('./support/gates.js', import.meta.url).href)}
const late = {
  memory: async (context) => context.shortTermMemory.set('late', 1),
  event: async (context) => context.sendEvent(new OutputEvent('late')),
  step: async (context) => context.durableExecute('late', () => 1),
}
process.on('uncaughtExceptionMonitor', ({ code = 'other' }) => tell(code))
export const agent = new Agent().addAction('start', [InputEvent], (event, context) => {
  const work = late[event.value]
  if (work) setTimeout(() => work(context))
  if (event.value === 'timer') setTimeout(() => context.shortTermMemory.set('late', 1))
  if (event.value === 'broken') setTimeout(() => { throw new Error('broken') })
  context.sendEvent(new OutputEvent(context.shortTermMemory.get('late') ?? null))
})
`,
  )
  const node = await serveConfig(folder, {
    agent: { id: 'alice', module: './agent.mjs' },
    server: { port: 0 },
    store: { url: 'sqlite:./node.db' },
  })
  for (const [i, what] of ['memory', 'event', 'step', 'timer'].entries()) {
    const task = await send(node.url, say(what, { contextId: 'a' }))
    expect(task.artifacts?.[0]?.parts).toEqual([{ data: null }])
    await until(() => node.count('run_ended') === i + 1, 'the late work to be refused')
  }
  expect((await send(node.url, say('again', { contextId: 'a' }))).artifacts?.[0]?.parts).toEqual([{ data: null }])
  void send(node.url, say('broken')).catch(() => {})
  expect(await node.ended()).toBe(1)
})
