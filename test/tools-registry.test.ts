// The registry of local tools, and the manager that calls them for the agent.
import { expect, onTestFinished, test, vi } from 'vitest'
import { ConvokeError } from '../dist/base/errors.js'
import { defineTool } from '../dist/tools/define.js'
import { KeyError, LocalToolRegistry, ValueError } from '../dist/tools/local.js'
import { ToolManager } from '../dist/tools/manager.js'
import { ToolBase } from '../dist/tools/tool-base.js'
import { toolTypes, type Tool, type ToolContext, type ToolEvent } from '../dist/tools/tool.js'

const noParams = { type: 'object', properties: {} } as const

function sample(name: string, traits = {}, result: unknown = name): Tool {
  return defineTool({ name, description: `Says ${name}.`, input: noParams, traits, run: () => result })
}

/** A tool as other sources make them, with a schema that nobody has checked. */
function foreign(name: string, input: Tool['input']): Tool {
  return {
    name,
    description: '',
    input,
    kind: 'custom',
    traits: {},
    run: async function* () {
      yield* []
      return name
    },
  }
}

function registryWith(...tools: Tool[]) {
  const lines: { details: object; message: string }[] = []
  const warn = (details: object, message: string): void => void lines.push({ details, message })
  const registry = new LocalToolRegistry({ log: { debug() {}, info() {}, warn, error() {} } })
  for (const tool of tools) registry.register(tool)
  return { registry, lines, manager: new ToolManager({ registry }) }
}

async function failureOf(promise: Promise<unknown>): Promise<unknown> {
  return await promise.then(
    () => undefined,
    (thrown: unknown) => thrown,
  )
}

test('a name is taken once, unless it is to be replaced', async () => {
  const { registry, manager } = registryWith(sample('a'))
  expect(() => registry.register(sample('a'))).toThrow(/There is a tool "a" already.*replace: true/)
  registry.register(sample('a', {}, 'new'), { replace: true })
  expect(await manager.call('a')).toBe('new')
})

test('every change raises the revision and is told', () => {
  const { registry } = registryWith()
  const seen: number[] = []
  const stop = registry.onChange(() => seen.push(registry.revision))
  registry.register(sample('a'))
  registry.register(sample('a'), { replace: true })
  expect(registry.deregister('a')).toBe(true)
  expect(registry.deregister('a')).toBe(false)
  stop()
  registry.register(sample('b'))
  expect(seen).toEqual([1, 2, 3])
  expect(registry.revision).toBe(4)
})

test('lists follow category and publication, in order', () => {
  const { registry } = registryWith(
    sample('c'),
    sample('a', { category: 'x' }),
    sample('b', { category: 'x', published: false }),
  )
  const names = (filter?: Parameters<typeof registry.list>[0]) => registry.list(filter).map(({ name }) => name)
  expect(names()).toEqual(['c', 'a', 'b'])
  expect(names({ category: 'x' })).toEqual(['a', 'b'])
  expect(names({ published: true })).toEqual(['c', 'a'])
  expect(names({ published: false, category: 'x' })).toEqual(['b'])
})

test('names that every object has are names like others', async () => {
  const { registry, manager } = registryWith()
  for (const name of ['__proto__', 'constructor', 'toString']) {
    expect(registry.get(name)).toBeUndefined()
    expect(await failureOf(manager.call(name))).toBeInstanceOf(KeyError)
    registry.register(sample(name))
    expect(await manager.call(name)).toBe(name)
  }
  expect(Object.keys(registry.describe())).toEqual(['__proto__', 'constructor', 'toString'])
})

test('a bad schema disables that one tool, with one line in the log', async () => {
  const { registry, lines, manager } = registryWith(sample('fine'))
  registry.register(foreign('broken', { type: 'object', properties: { a: { type: 'strin' } } }))
  expect(registry.list().map(({ name }) => name)).toEqual(['fine'])
  expect(registry.get('broken')).toBeUndefined()
  expect(registry.problems()).toEqual([{ name: 'broken', reason: expect.stringContaining('/properties/a/type') }])
  expect(await failureOf(manager.call('broken'))).toMatchObject({
    code: 'not_found',
    message: expect.stringContaining('is disabled: its input schema is wrong'),
  })
  expect(await manager.call('fine')).toBe('fine')
  expect(lines).toHaveLength(1)
  expect(lines[0]?.message).toContain('The tool "broken" is disabled')
})

test('a schema that only fails when it is compiled disables its tool at the first call', async () => {
  const { registry, lines, manager } = registryWith(
    foreign('late', { type: 'object', properties: { a: { $ref: '#nowhere' } } }),
    sample('fine'),
  )
  expect(registry.list()).toHaveLength(2)
  expect(lines).toEqual([])
  const before = registry.revision
  for (let i = 0; i < 2; i++)
    expect(await failureOf(manager.call('late', { a: 1 }))).toMatchObject({ code: 'not_found' })
  expect(registry.list().map(({ name }) => name)).toEqual(['fine'])
  expect(registry.revision).toBe(before + 1)
  expect(lines).toHaveLength(1)
})

test('registering compiles nothing', () => {
  let read = 0
  const schema = new Proxy<Tool['input']>(
    { type: 'object', properties: {} },
    {
      get(target, key, receiver) {
        // The compiler looks for this; the check at registration walks over keys that are there.
        if (key === '$ref' || key === '$async') read++
        return Reflect.get(target, key, receiver) as unknown
      },
    },
  )
  const { registry } = registryWith(foreign('lazy', schema))
  expect(read).toBe(0)
  registry.resolve('lazy')
})

test('a tool without name or call is a TypeError, and one with a wrong name is told so', () => {
  const { registry } = registryWith()
  const register = (tool: unknown) => () => registry.register(tool as Tool)
  for (const tool of [undefined, 5, {}, { name: 'x' }, { call: () => 1 }, { name: 5, call: () => 1 }]) {
    expect(register(tool)).toThrow(TypeError)
  }
  expect(register({ name: 'a b', call: () => 1 })).toThrow(/must be 1 to 64 letters/)
  expect(register({ ...sample('a'), name: undefined })).toThrow(ConvokeError)
})

test('a tool of the MCP-style shape is called, described and replaced by its name', async () => {
  const { registry } = registryWith()
  const input_schema = { type: 'object', properties: { n: { type: 'integer', default: 2 } } }
  registry.register({ name: 'double', description: 'Doubles.', input_schema, call: ({ n }) => Number(n) * 2 })
  registry.register({ name: 'free', call: (args) => args })
  expect(registry.describe()).toEqual({
    double: { description: 'Doubles.', input_schema },
    free: { description: '', input_schema: {} },
  })
  expect(await registry.call('double', { n: 4 })).toBe(8)
  expect(await registry.call('double')).toBe(4)
  expect(await registry.call('free', { any: ['thing'] })).toEqual({ any: ['thing'] })
  expect(registry.list({ published: true }).map(({ name }) => name)).toEqual(['double'])
  expect(registry.list({ kind: toolTypes.CUSTOM }).map(({ name }) => name)).toEqual(['double', 'free'])
  registry.register({ name: 'double', input_schema, call: () => 'again' })
  expect(await registry.call('double')).toBe('again')
})

test('through the registry a tool throws what it throws, and an unknown name is a KeyError', async () => {
  const thrown = new RangeError('Its own.')
  const { registry } = registryWith()
  registry.register({
    name: 'bad',
    call: () => {
      throw thrown
    },
  })
  expect(await failureOf(registry.call('bad'))).toBe(thrown)
  const error = await failureOf(registry.call('none'))
  expect(error).toBeInstanceOf(KeyError)
  expect(error).toMatchObject({ code: 'not_found', message: 'There is no tool "none" here.' })
})

test('an MCP-style tool may have a run of its own, and takes the name of another', async () => {
  const { registry } = registryWith(sample('job'))
  registry.register({ name: 'job', call: () => 'called', run: () => 'run' })
  expect(await registry.call('job')).toBe('called')
})

test('a tool may be an instance of a class', async () => {
  class Counter extends ToolBase<{ by?: number }> {
    name = 'count'
    description = 'Counts up.'
    input = { type: 'object', properties: { by: { type: 'integer', default: 1 } } } as const
    override traits = { category: 'numbers' }
    #n = 0
    async *run({ by = 0 }, { progress }: ToolContext) {
      progress({ progress: this.#n })
      yield this.#n
      return (this.#n += by)
    }
  }
  const { registry, manager } = registryWith()
  registry.register(new Counter())
  expect(registry.list({ category: 'numbers' }).map(({ name }) => name)).toEqual(['count'])
  expect(await manager.call('count')).toBe(1)
  expect(await manager.call('count', { by: 4 })).toBe(5)
  expect(() => registry.register(new Counter())).toThrow(/There is a tool "count" already/)
  expect(await failureOf(manager.call('count', { by: 'x' }))).toMatchObject({ code: 'invalid_params' })
})

test('a call through the registry can be stopped, and its tool hears of it', async () => {
  const { tool, started } = stuck('stuck')
  const { registry } = registryWith(tool)
  const controller = new AbortController()
  const calling = failureOf(registry.call('stuck', {}, { signal: controller.signal }))
  const executing = failureOf(registry.execute({ name: 'stuck' }, { signal: controller.signal }))
  const signal = await started
  controller.abort()
  expect(await calling).toMatchObject({ code: 'canceled' })
  expect(await executing).toMatchObject({ code: 'canceled' })
  expect(signal.aborted).toBe(true)
  expect(await failureOf(registry.call('stuck', {}, { timeoutMs: 5 }))).toMatchObject({ code: 'timeout' })
})

test('execute does what its request says', async () => {
  const { registry } = registryWith()
  registry.register({ name: 'id', call: (args) => args })
  for (const request of [undefined, null, 'describe', { op: 'describe' }]) {
    expect(await registry.execute(request)).toEqual(registry.describe())
  }
  expect(await registry.execute({ name: 'id', arguments: { a: 1 } })).toEqual({ a: 1 })
  expect(await registry.execute({ op: 'call', name: 'id', arguments: { a: 1 } })).toEqual({ a: 1 })
  expect(await registry.execute({ name: 'id' })).toEqual({})
})

test.each<[unknown, new (...args: never[]) => Error]>([
  [{ op: 'remove', name: 'id' }, ValueError],
  [{ op: 5 }, ValueError],
  [{ op: 'call' }, ValueError],
  [{}, ValueError],
  [{ name: '' }, ValueError],
  [{ name: 5 }, ValueError],
  [{ name: 'none' }, KeyError],
  [{ name: 'id', arguments: [1] }, TypeError],
  [{ name: 'id', arguments: 'a' }, TypeError],
  [{ name: 'id', arguments: null }, TypeError],
  ['list', TypeError],
  [5, TypeError],
  [[], TypeError],
])('execute of %j fails with the right error', async (request, kind) => {
  const { registry } = registryWith()
  registry.register({ name: 'id', call: (args) => args })
  expect(await failureOf(registry.execute(request))).toBeInstanceOf(kind)
})

test('tryCall never throws and says how to retry', async () => {
  const busy = defineTool({
    name: 'busy',
    description: 'Busy.',
    input: noParams,
    run() {
      throw new ConvokeError('rate_limited', 'Later.', { retryAfterMs: 7 })
    },
  })
  const { manager } = registryWith(sample('fine'), busy)
  expect(await manager.tryCall('fine')).toEqual({
    success: true,
    data: 'fine',
    meta: { tool: 'fine', callId: expect.any(String), durationMs: expect.any(Number) },
  })
  expect(await manager.tryCall('busy', {}, { call: { id: 'c1' } })).toMatchObject({
    success: false,
    error: 'Later.',
    errorType: 'rate_limited',
    retry: { retryable: true, retries: 5, backoffMs: 1000, retryAfterMs: 7 },
    meta: { tool: 'busy', callId: 'c1' },
  })
  expect(await manager.tryCall('fine', 'x')).toMatchObject({
    success: false,
    errorType: 'invalid_params',
    issues: [{ path: '' }],
  })
  expect(await manager.tryCall('none')).toMatchObject({
    success: false,
    errorType: 'not_found',
    retry: { retryable: false },
  })
})

function stuck(name: string, traits = {}) {
  let tell = (_: AbortSignal): void => {}
  const started = new Promise<AbortSignal>((resolve) => (tell = resolve))
  const tool = defineTool({
    name,
    description: 'Does not end, and ignores its signal.',
    input: noParams,
    traits,
    run: async (_, { signal }) => {
      tell(signal)
      await new Promise(() => {})
    },
  })
  return { tool, started }
}

test('a call that is stopped rejects at once, though its tool ignores the signal', async () => {
  const { tool, started } = stuck('stuck')
  const { manager } = registryWith(tool)
  const controller = new AbortController()
  const calling = failureOf(manager.call('stuck', {}, { signal: controller.signal }))
  const signal = await started
  controller.abort()
  expect(await calling).toMatchObject({ code: 'canceled' })
  expect(signal.aborted).toBe(true)
  expect(await failureOf(manager.call('stuck', {}, { signal: controller.signal }))).toMatchObject({ code: 'canceled' })
})

test('the deadline of the call and the limit of the tool both hold', async () => {
  const own = stuck('own', { timeoutMs: 5 })
  const long = stuck('long', { timeoutMs: 60_000 })
  const { manager } = registryWith(own.tool, long.tool)
  const message = (name: string) => `The tool "${name}" did not finish within 5 ms.`
  expect(await failureOf(manager.call('own'))).toMatchObject({
    code: 'timeout',
    message: message('own'),
    retryable: true,
  })
  expect((await own.started).reason).toMatchObject({ code: 'timeout' })
  expect(await failureOf(manager.call('long', {}, { timeoutMs: 5 }))).toMatchObject({
    code: 'timeout',
    message: message('long'),
  })
  expect(await failureOf(manager.call('own', {}, { timeoutMs: 0 }))).toMatchObject({ code: 'invalid_request' })
})

test('the context says when the call ends, who calls, and as which call', async () => {
  const tool = defineTool({
    name: 'look',
    description: 'Looks at its context.',
    input: noParams,
    run: (_, { deadline, caller, call }) => ({ left: (deadline ?? 0) - Date.now(), caller: caller.id, call: call.id }),
  })
  const { manager } = registryWith(tool)
  const result = (await manager.call(
    'look',
    {},
    { timeoutMs: 60_000, caller: { id: 'ada', scopes: [] }, call: { id: 'c7' } },
  )) as Record<string, unknown>
  expect(result).toMatchObject({ caller: 'ada', call: 'c7' })
  expect(result['left']).toBeGreaterThan(50_000)
  expect(result['left']).toBeLessThanOrEqual(60_000)
  expect(await manager.call('look')).toMatchObject({ caller: 'local', call: expect.stringMatching(/^[0-9a-f-]{36}$/) })
})

test('nobody can be asked, unless the call says who; the time of the tool stands still meanwhile', async () => {
  const tool = defineTool({
    name: 'asks',
    description: 'Asks.',
    input: noParams,
    traits: { timeoutMs: 20 },
    run: async (_, { ask }) => await ask({ message: 'Your name?' }),
  })
  const { manager } = registryWith(tool)
  expect(await failureOf(manager.call('asks'))).toMatchObject({
    code: 'unsupported_operation',
    message: 'Nobody can be asked in this call: Your name?',
  })
  vi.useFakeTimers()
  onTestFinished(() => void vi.useRealTimers())
  let answer = (_: string): void => {}
  const calling = manager.call('asks', {}, { ask: () => new Promise((resolve) => (answer = resolve)) })
  await vi.advanceTimersByTimeAsync(60_000)
  answer('Ada')
  expect(await calling).toBe('Ada')
  const waiting = failureOf(manager.call('asks', {}, { ask: () => new Promise(() => {}), timeoutMs: 5000 }))
  await vi.advanceTimersByTimeAsync(5000)
  expect(await waiting).toMatchObject({ code: 'timeout' })
})

async function eventsOf(stream: AsyncIterable<ToolEvent>): Promise<ToolEvent[]> {
  const events: ToolEvent[] = []
  for await (const event of stream) events.push(event)
  return events
}

const counter = defineTool({
  name: 'count',
  description: 'Counts.',
  input: { type: 'object', properties: { n: { type: 'integer' } }, required: ['n'] },
  async *run({ n }, { progress }) {
    for (let i = 1; i <= n; i++) {
      progress({ progress: i, total: n })
      yield { i }
    }
    return { counted: n }
  },
})

test('a stream gives progress and chunks in order, then the result', async () => {
  const { manager } = registryWith(counter)
  expect(await eventsOf(manager.stream('count', { n: 2 }))).toEqual([
    { type: 'progress', progress: 1, total: 2 },
    { type: 'chunk', chunk: { i: 1 } },
    { type: 'progress', progress: 2, total: 2 },
    { type: 'chunk', chunk: { i: 2 } },
    { type: 'result', result: { counted: 2 } },
  ])
})

test('progress that was not read yet is replaced by the newest', async () => {
  const tool = defineTool({
    name: 'busy',
    description: 'Tells a lot.',
    input: noParams,
    run(_, { progress }) {
      for (let i = 0; i <= 1000; i++) progress({ progress: i })
    },
  })
  const { manager } = registryWith(tool)
  const events = await eventsOf(manager.stream('busy'))
  expect(events.length).toBeLessThan(5)
  expect(events.slice(-2)).toEqual([
    { type: 'progress', progress: 1000 },
    { type: 'result', result: null },
  ])
})

test('a tool waits for a slow reader', async () => {
  let made = 0
  const tool = defineTool({
    name: 'endless',
    description: 'Never ends.',
    input: noParams,
    async *run() {
      for (;;) yield ++made
    },
  })
  const { manager } = registryWith(tool)
  const stream = manager.stream('endless')
  await stream.next()
  for (let i = 0; i < 100; i++) await Promise.resolve()
  expect(made).toBeLessThan(30)
  for (let i = 0; i < 100; i++) await stream.next()
  expect(made).toBeGreaterThan(100)
  await stream.return()
})

test('leaving the loop stops the tool, also one that waits', async () => {
  const { tool, started } = stuck('stuck')
  let cleaned = (): void => {}
  const closed = new Promise<void>((resolve) => (cleaned = resolve))
  const careful = defineTool({
    name: 'careful',
    description: 'Cleans up.',
    input: noParams,
    async *run() {
      try {
        for (;;) yield 1
      } finally {
        cleaned()
      }
    },
  })
  const waits = defineTool({
    name: 'waits',
    description: 'Calls one that is stuck.',
    input: noParams,
    async *run(_, { tools }) {
      yield 1
      yield* tools.stream('stuck')
    },
  })
  const { manager } = registryWith(tool, careful, waits)
  const leaving = manager.stream('careful')
  expect((await leaving.next()).value).toEqual({ type: 'chunk', chunk: 1 })
  await leaving.return()
  await closed
  const outer = manager.stream('waits')
  await outer.next()
  expect((await started).aborted).toBe(false)
  await outer.return()
  expect((await started).reason).toMatchObject({ code: 'canceled' })
})

test('a stream that is stopped or fails throws after what came before', async () => {
  const fails = defineTool({
    name: 'fails',
    description: 'Fails.',
    input: noParams,
    *run() {
      yield 1
      throw new Error('Midway.')
    },
  })
  const { tool, started } = stuck('stuck')
  const { manager } = registryWith(fails, tool)
  const stream = manager.stream('fails')
  expect((await stream.next()).value).toEqual({ type: 'chunk', chunk: 1 })
  expect(await failureOf(stream.next())).toMatchObject({ code: 'tool_failed', message: 'Midway.' })
  const controller = new AbortController()
  const reading = failureOf(manager.stream('stuck', {}, { signal: controller.signal }).next())
  await started
  controller.abort()
  expect(await reading).toMatchObject({ code: 'canceled' })
  expect(await failureOf(manager.stream('none').next())).toMatchObject({ code: 'not_found' })
})

test('tools call the other tools of their agent, as the same caller, and stop with their own call', async () => {
  const { tool, started } = stuck('stuck')
  const who = defineTool({
    name: 'who',
    description: 'Says who calls.',
    input: noParams,
    run: (_, { caller }) => caller.id,
  })
  const outer = defineTool({
    name: 'outer',
    description: 'Calls others.',
    input: noParams,
    async run(_, { tools }) {
      const result = await tools.call('who')
      if (result !== 'ada') return result
      await tools.call('stuck')
    },
  })
  const { manager } = registryWith(tool, who, outer)
  const controller = new AbortController()
  const calling = failureOf(manager.call('outer', {}, { caller: { id: 'ada', scopes: [] }, signal: controller.signal }))
  const signal = await started
  controller.abort()
  expect(await calling).toMatchObject({ code: 'canceled' })
  expect(signal.aborted).toBe(true)
})

test('the deadline of a call holds for the calls inside of it, which may have an earlier one', async () => {
  const look = defineTool({
    name: 'look',
    description: 'Says when it will be stopped.',
    input: noParams,
    run: (_, { deadline }) => deadline,
  })
  const outer = defineTool({
    name: 'outer',
    description: 'Asks its own context, and what it calls.',
    input: noParams,
    run: async (_, { deadline, tools }) => [
      deadline,
      await tools.call('look'),
      await tools.call('look', {}, { timeoutMs: 90_000 }),
      await tools.call('look', {}, { timeoutMs: 1_000 }),
    ],
  })
  const { manager } = registryWith(look, outer)
  const [own, inner, later, earlier] = (await manager.call('outer', {}, { timeoutMs: 60_000 })) as [number, ...number[]]
  expect([inner, later]).toEqual([own, own])
  expect(earlier).toBeLessThan(own)
  expect(await manager.call('look')).toBe(null)
})

test('a tool that calls itself without end is stopped', async () => {
  const self = defineTool({
    name: 'self',
    description: 'Calls itself.',
    input: noParams,
    run: async (_, { tools }) => await tools.call('self'),
  })
  const { manager } = registryWith(self)
  expect(await failureOf(manager.call('self'))).toMatchObject({
    code: 'too_large',
    message: expect.stringContaining('calls itself'),
  })
})
