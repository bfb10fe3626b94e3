/** The built-in action that carries out rounds of tool calls, and the one that looks into a vector store. */
import {
  Agent,
  AgentPlan,
  AgentRunner,
  Content,
  ContextRetrievalRequestEvent,
  ContextRetrievalResponseEvent,
  createMemoryAgentStore,
  defineTool,
  EmbeddedVectorStore,
  InputEvent,
  OpenAiEmbeddingModel,
  OutputEvent,
  ResourceDescriptor,
  ToolManager,
  ToolRequestEvent,
  ToolResponseEvent,
  type Json,
  type RunEvent,
  type Tool,
} from 'convoke'
import { expect, test } from 'vitest'
import { add, chatAgent, said, startRunner } from './support/chat-agents.ts'
import { cleanup, deferred, startNode, until, within } from './support/lifetime.ts'
import { startModelServer } from './support/model-server.ts'
import { failureOf } from './support/failure.ts'

type Payload = ToolResponseEvent['payload']

const nothing = { type: 'object', properties: {} } as const

/** Sends each input as a tool request, and puts out the payload of the response. */
function toolAgent(tools: readonly Tool[], more: object = {}): Agent {
  const agent = new Agent()
    .addAction('call', [InputEvent], (event, context) =>
      context.sendEvent(new ToolRequestEvent({ calls: event.value as never, ...more })),
    )
    .addAction('out', [ToolResponseEvent], (event, context) =>
      context.sendEvent(new OutputEvent(event.payload as unknown as Json)),
    )
  for (const tool of tools) agent.addResource(tool.name, tool)
  return agent
}

async function round(agent: Agent, calls: Json, told: RunEvent[] = []): Promise<Payload> {
  const { outputs } = await startRunner(agent).run('key', calls, { onEvent: (event) => void told.push(event) })
  expect(outputs).toHaveLength(1)
  return outputs[0] as unknown as Payload
}

test('calls run at the same time, and are answered in their order under their ids', async () => {
  const both = deferred()
  let running = 0
  const meet = defineTool({
    name: 'meet',
    description: 'Ends when two of it run.',
    input: { type: 'object', properties: { n: { type: 'number' } } },
    run: async ({ n }) => {
      if (++running === 2) both.resolve()
      await both.promise
      return `met ${n}`
    },
  })
  const answer = await round(toolAgent([meet]), [
    { id: 'b', name: 'meet', arguments: { n: 1 } },
    { id: 'a', name: 'meet', arguments: '{"n": 2}' },
  ])
  expect(answer.callIds).toEqual(['b', 'a'])
  expect(answer.responses['b']).toEqual({ name: 'meet', success: true, content: 'met 1' })
  expect(answer.success).toEqual({ a: true, b: true })
  expect(answer.errors).toEqual({})
  expect(answer.externalIds).toEqual({ a: 'a', b: 'b' })
})

test('a missing tool, wrong arguments, broken JSON and a failing tool answer under their ids with what mends them', async () => {
  const fail = defineTool({
    name: 'fail',
    description: 'Fails.',
    input: nothing,
    run: () => {
      throw new Error('secret password')
    },
  })
  const answer = await round(toolAgent([add, fail]), [
    { id: '1', name: 'addd', arguments: { a: 1, b: 2 } },
    { id: '2', name: 'add', arguments: { a: 'one' } },
    { id: '3', name: 'add', arguments: '{"a": 1,' },
    { id: '4', name: 'fail', arguments: {} },
    { id: '5', name: 'add', arguments: { a: 1, b: 2 } },
  ])
  expect(answer.success).toEqual({ 1: false, 2: false, 3: false, 4: false, 5: true })
  expect(answer.errors['1']).toContain('Did you mean "add"?')
  expect(answer.responses['1']?.errorType).toBe('not_found')
  const issues = JSON.parse(answer.responses['2']?.content ?? '') as { issues: { path: string }[] }
  expect(issues.issues.map(({ path }) => path).toSorted()).toEqual(['/a', '/b'])
  expect(answer.errors['3']).toContain('not complete JSON')
  expect(answer.responses['4']?.errorType).toBe('tool_failed')
  expect(Object.keys(answer.errors)).toEqual(['1', '2', '3', '4'])
})

test('equal calls run once, and each of their ids is answered', async () => {
  let runs = 0
  const count = defineTool({ name: 'count', description: 'Counts.', input: nothing, run: () => ++runs })
  const told: RunEvent[] = []
  const calls = ['a', 'b', 'c'].map((id) => ({ id, name: 'count', arguments: {} }))
  const answer = await round(toolAgent([count]), calls, told)
  expect(runs).toBe(1)
  expect(Object.values(answer.responses).map(({ content }) => content)).toEqual(['1', '1', '1'])
  const of = (type: string): string[] =>
    told.flatMap((each) => (each.type === type && 'callId' in each ? [each.callId] : []))
  expect(of('tool-call').toSorted()).toEqual(['a', 'b', 'c'])
  expect(of('tool-result').toSorted()).toEqual(['a', 'b', 'c'])
})

test('calls above the limit of a round are answered with the reason', async () => {
  const calls = Array.from({ length: 12 }, (_, i) => ({ id: `c${i}`, name: 'add', arguments: { a: i, b: 0 } }))
  const answer = await round(toolAgent([add]), calls)
  expect(Object.values(answer.success).filter(Boolean)).toHaveLength(10)
  expect(answer.errors['c11']).toContain('not executed: limit 10')
})

test('calls without an id, with the id of another and with an awkward one are all answered', async () => {
  const call = (id: string, a: number): Json => ({ id, name: 'add', arguments: { a, b: 0 } })
  const answer = await round(toolAgent([add]), [call('x', 1), call('x', 2), call('', 3), call('__proto__', 4)])
  expect(answer.callIds).toEqual(['x', 'x_2', 'call_3', '__proto__'])
  expect(answer.callIds.map((id) => answer.responses[id]?.content)).toEqual(['1', '2', '3', '4'])
  expect(answer.callIds.map((id) => answer.externalIds[id])).toEqual(['x', 'x', '', '__proto__'])
})

test('what is no call is answered all the same', async () => {
  const answer = await round(toolAgent([add]), [null, 5, { id: 'x' }])
  expect(answer.callIds).toEqual(['call_1', 'call_2', 'x'])
  expect(Object.values(answer.success)).toEqual([false, false, false])
  expect((await round(toolAgent([add]), 'nonsense')).callIds).toEqual([])
})

test('a request that names its tools calls no others', async () => {
  const other = defineTool({ name: 'other', description: 'Another.', input: nothing, run: () => 'ran' })
  const answer = await round(toolAgent([add, other], { tools: ['ad*'] }), [
    { id: '1', name: 'add', arguments: { a: 1, b: 1 } },
    { id: '2', name: 'other', arguments: {} },
  ])
  expect(answer.success).toEqual({ 1: true, 2: false })
  expect(answer.responses['2']?.errorType).toBe('not_found')
})

test('a deadline of the request ends its calls', async () => {
  const seen = deferred<number | undefined>()
  const hang = defineTool({
    name: 'hang',
    description: 'Never ends.',
    input: nothing,
    run: (_params, { deadline }) => {
      seen.resolve(deadline)
      return new Promise(() => {})
    },
  })
  const deadline = Date.now() + 500
  const answer = await within(
    round(toolAgent([hang], { deadline }), [{ id: '1', name: 'hang', arguments: {} }]),
    'the round',
  )
  expect(answer.success['1']).toBe(false)
  // A little later than the round's, as it is counted from the call on.
  const ofTool = (await within(seen.promise, 'the tool')) ?? 0
  expect(ofTool).toBeGreaterThanOrEqual(deadline)
  expect(ofTool).toBeLessThan(deadline + 10_000)
})

test('tools of a peer are called by the names that the model was given', async () => {
  const bob = await startNode({ agent: { id: 'bob', name: 'Bob' }, tools: [add] })
  const alice = await startNode({ peers: { bob: { url: bob.url } } })
  await alice.tools.discover()
  const model = await startModelServer([[{ call: { name: 'bob__add', arguments: { a: 2, b: 3 } } }], 'It is 5.'])
  const runner = startRunner(chatAgent(model, { setup: { tools: ['bob.*'] } }), { tools: alice.tools })
  const told: RunEvent[] = []
  await runner.run('key', 'hello', { onEvent: (event) => void told.push(event) })
  expect(model.requests[0]?.body.tools?.map((tool) => tool.function.name)).toEqual(['bob__add'])
  expect(said(model.requests[1]).at(-1)).toBe('tool: 5')
  expect(told).toContainEqual(expect.objectContaining({ type: 'tool-call', tool: 'bob.add' }))
})

test('a cancelled run stops its tools', async () => {
  const begun = deferred()
  const stopped = deferred()
  const hang = defineTool({
    name: 'hang',
    description: 'Never ends.',
    input: nothing,
    run: (_params, { signal }) =>
      new Promise(() => {
        signal.addEventListener('abort', () => stopped.resolve())
        begun.resolve()
      }),
  })
  const controller = new AbortController()
  const run = startRunner(toolAgent([hang])).run('key', [{ id: '1', name: 'hang', arguments: {} }], {
    signal: controller.signal,
  })
  const failure = failureOf(run)
  await begun.promise
  controller.abort()
  await within(stopped.promise, 'the tool to stop')
  expect((await failure).code).toBe('canceled')
})

function results(told: readonly RunEvent[]): number {
  return told.filter(({ type }) => type === 'tool-result').length
}

/** Runs until `reached`, then ends the runner as a process ends that has no time left, and runs again. */
async function resumed(agent: Agent, calls: Json, reached: (told: readonly RunEvent[]) => boolean): Promise<Payload> {
  const store = createMemoryAgentStore()
  const plan = AgentPlan.fromAgent(agent)
  const first = new AgentRunner({ plan, store, graceMs: 50 })
  const told: RunEvent[] = []
  const lost = failureOf(first.run('key', calls, { id: 'input', onEvent: (event) => void told.push(event) }))
  await until(() => reached(told))
  await first.close()
  await lost
  const second = new AgentRunner({ plan, store })
  cleanup(() => second.close())
  const { outputs } = await second.run('key', calls, { id: 'input' })
  return outputs[0] as unknown as Payload
}

test('of a resumed round, what had ended is not done again, and what had begun only where that does no harm', async () => {
  const runs: string[] = []
  const make = (name: string, traits: object, hangs: boolean): Tool =>
    defineTool({
      name,
      description: name,
      input: nothing,
      traits,
      run: () => {
        runs.push(name)
        return hangs && runs.filter((each) => each === name).length === 1 ? new Promise(() => {}) : `${name} done`
      },
    })
  const agent = toolAgent([
    make('quick', {}, false),
    make('read', { readOnly: true }, true),
    make('repeat', { idempotent: true }, true),
    make('write', {}, true),
  ])
  const names = ['quick', 'read', 'repeat', 'write']
  const calls = names.map((name) => ({ id: name, name, arguments: {} }))
  const answer = await resumed(agent, calls, (told) => runs.length === 4 && results(told) === 1)
  expect(runs.toSorted()).toEqual(['quick', 'read', 'read', 'repeat', 'repeat', 'write'])
  expect(answer.responses['quick']?.content).toBe('quick done')
  expect(answer.responses['read']?.content).toBe('read done')
  expect(answer.responses['repeat']?.content).toBe('repeat done')
  expect(answer.responses['write']).toMatchObject({ success: false, errorType: 'worker_lost' })
  expect(answer.errors['write']).toContain('not made again')
})

test('results of all kinds survive a resumed run', async () => {
  const make = (name: string, result: never): Tool =>
    defineTool({ name, description: name, input: nothing, run: () => result })
  let isHeld = true
  const hold = defineTool({
    name: 'hold',
    description: 'Holds the round up.',
    input: nothing,
    traits: { readOnly: true },
    run: () => (isHeld ? new Promise(() => {}) : 'ok'),
  })
  let ran = 0
  const once = defineTool({
    name: 'once',
    description: 'Fails.',
    input: nothing,
    run: () => Promise.reject(new Error(`${++ran}`)),
  })
  const tools = [
    make('json', { a: [1, null] } as never),
    make('bytes', new Uint8Array([1, 2, 3]) as never),
    make('parts', new Content([{ text: 'hello' }, { data: { b: 2 } }]) as never),
    once,
    hold,
  ]
  const calls = tools.map(({ name }) => ({ id: name, name, arguments: {} }))
  const answer = await resumed(toolAgent(tools), calls, (told) => {
    if (results(told) === 4) isHeld = false
    return !isHeld
  })
  expect(ran).toBe(1)
  expect(answer.responses['json']?.content).toBe('{"a":[1,null]}')
  expect(answer.responses['bytes']?.content).toContain('3 bytes')
  expect(answer.responses['parts']?.content).toContain('hello')
  expect(answer.responses['once']?.errorType).toBe('tool_failed')
})

test('a tool space that throws is answered to the model like a failing tool', async () => {
  const tools = new ToolManager()
  cleanup(() => tools.close())
  const broken = {
    list: () => tools.list(),
    get: (name: string) => tools.get(name),
    call: () => Promise.reject(new Error('no')),
    tryCall: () => Promise.reject(new Error('The space is broken.')),
  }
  const runner = startRunner(toolAgent([]), { tools: broken })
  const { outputs } = await runner.run('key', [{ id: '1', name: 'any', arguments: {} }])
  expect((outputs[0] as unknown as Payload).responses['1']).toMatchObject({ success: false, errorType: 'tool_failed' })
})

test('documents that fit a query come out of a vector store', async () => {
  const model = await startModelServer([])
  const agent = new Agent()
    .addResource('words', new ResourceDescriptor(OpenAiEmbeddingModel, { baseUrl: model.url, model: 'tiny' }))
    .addResource('shelf', new ResourceDescriptor(EmbeddedVectorStore, { embeddingModel: 'words' }))
    .addAction('look', [InputEvent], async (event, context) => {
      const store = await context.getResource('shelf', 'vectorStore')
      await store.add([
        { id: 'tea', content: 'green tea is drunk hot', metadata: { shelf: 1 } },
        { id: 'ice', content: 'ice is cold' },
        { id: 'car', content: 'a car has wheels' },
      ])
      context.sendEvent(new ContextRetrievalRequestEvent(event.value as never))
    })
    .addAction('out', [ContextRetrievalResponseEvent], (event, context) =>
      context.sendEvent(new OutputEvent(event.payload as unknown as Json)),
    )
  const runner = startRunner(agent)
  const { outputs } = await runner.run('key', { query: 'hot tea', vectorStore: 'shelf', maxResults: 2 })
  const found = outputs[0] as unknown as ContextRetrievalResponseEvent['payload']
  expect(found.query).toBe('hot tea')
  expect(found.documents).toHaveLength(2)
  expect(found.documents[0]).toMatchObject({ id: 'tea', content: 'green tea is drunk hot', metadata: { shelf: 1 } })
  expect(await failureOf(runner.run('key', { query: 'x', vectorStore: 'shelf', maxResults: 0 }))).toMatchObject({
    code: 'config',
    message: '`maxResults` must be a whole number of 1 or more, got 0.',
  })
  expect((await failureOf(runner.run('key', { query: 'x', vectorStore: 'shelves' }))).code).toBe('not_found')
})
