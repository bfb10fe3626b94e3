// Plans over the in-process registry, and a server as one of its tools.
import { expect, test, vi } from 'vitest'
import { ConvokeError } from '../dist/base/errors.js'
import { defineTool } from '../dist/tools/define.js'
import { LocalToolRegistry, ValueError } from '../dist/tools/local.js'
import { ToolManager } from '../dist/tools/manager.js'
import { runPlan, type Planner, type PlanStep, type StepOutcome } from '../dist/tools/planner.js'
import { createServerTool } from '../dist/tools/server-tool.js'
import type { SourceStatus } from '../dist/tools/source.js'
import type { Tool } from '../dist/tools/tool.js'
import { deferred, startNode, within } from './support/lifetime.ts'

const boom = new RangeError('Its own.')

function registry(): LocalToolRegistry {
  const made = new LocalToolRegistry()
  made.register({ name: 'double', call: ({ n }) => Number(n) * 2 })
  made.register({
    name: 'fail',
    call: () => {
      throw boom
    },
  })
  made.register({ name: 'costly', call: () => ({ output: 7, meta: { cost: 0.02, cache_hit: true, model: 'x' } }) })
  return made
}

const double = (n: number): PlanStep => ({ type: 'tool', name: 'double', arguments: { n } })
const fail: PlanStep = { type: 'tool', name: 'fail' }
const outputs = (outcomes: readonly StepOutcome[]) => outcomes.map((each) => (each.success ? each.output : each.error))

async function failureOf(promise: Promise<unknown>): Promise<unknown> {
  return await promise.then(
    () => undefined,
    (thrown: unknown) => thrown,
  )
}

test('steps run in order until the reply, and the planner sees how each went', async () => {
  const planner: Planner = ({ last }) => {
    if (last === undefined) return [double(1), double(2)]
    if (!last.success || last.output === 4) return double(20)
    return { type: 'reply', text: 'Done.', output: { n: last.output as number } }
  }
  const { reply, outcomes, latencyMs } = await runPlan(registry(), planner)
  expect(reply).toEqual({ type: 'reply', text: 'Done.', output: { n: 40 } })
  expect(outputs(outcomes)).toEqual([2, 4, 40])
  expect(latencyMs).toBeGreaterThan(0)
  expect(outcomes[0]).toEqual({
    success: true,
    step: double(1),
    output: 2,
    meta: { latencyMs: expect.any(Number), attempts: 1 },
  })
})

test('a result of output and meta is taken apart', async () => {
  const { outcomes } = await runPlan(registry(), ({ last }) =>
    last === undefined ? { type: 'tool', name: 'costly' } : undefined,
  )
  expect(outcomes).toMatchObject([{ output: 7, meta: { cost: 0.02, cacheHit: true, attempts: 1 } }])
})

test('an async generator gets each outcome from its yield, and may leave a reply behind a failure', async () => {
  const closed: string[] = []
  async function* planner(): AsyncGenerator<PlanStep, void, StepOutcome> {
    try {
      const first = yield double(2)
      const second = yield fail
      const text = `${String(outputs([first]))} ${second.success ? '' : String(second.error)}`
      yield { type: 'reply', text }
      closed.push('gone on')
    } finally {
      closed.push('closed')
    }
  }
  const { reply } = await runPlan(registry(), planner)
  expect(reply).toEqual({ type: 'reply', text: '4 RangeError: Its own.' })
  expect(closed).toEqual(['closed'])
})

test('a failure leaves out the rest of its list and is the planner\u2019s to mend', async () => {
  const seen: unknown[] = []
  const planner: Planner = ({ last, outcomes }) => {
    seen.push(last?.success)
    if (outcomes.length === 0) return [double(1), fail, double(3)]
    return last?.success === false && outcomes.length < 4 ? fail : { type: 'reply', text: 'Which file?' }
  }
  const { reply, outcomes } = await runPlan(registry(), planner)
  expect(reply?.text).toBe('Which file?')
  expect(outputs(outcomes)).toEqual([2, boom, boom, boom])
  expect(outcomes.map(({ meta }) => meta.attempts)).toEqual([1, 1, 2, 3])
  expect(seen).toEqual([undefined, false, false, false])
})

test('a failure that the planner has no answer to comes out as the tool threw it', async () => {
  expect(await failureOf(runPlan(registry(), ({ last }) => (last === undefined ? fail : undefined)))).toBe(boom)
  const streamed = async function* (): AsyncGenerator<PlanStep> {
    yield fail
  }
  expect(await failureOf(runPlan(registry(), streamed))).toBe(boom)
  const planner = vi.fn<Planner>(() => [fail])
  expect(await failureOf(runPlan(registry(), planner, { onFailure: 'throw' }))).toBe(boom)
  expect(planner).toHaveBeenCalledTimes(1)
})

test('a plan may end without a reply', async () => {
  expect(await runPlan(registry(), () => undefined)).toMatchObject({ reply: undefined, outcomes: [] })
  expect(await runPlan(registry(), ({ last }) => (last === undefined ? double(1) : []))).toMatchObject({
    reply: undefined,
    outcomes: [{ output: 2 }],
  })
})

test.each<[string, unknown, new (...args: never[]) => Error]>([
  ['an unknown tool', { type: 'tool', name: 'none' }, ConvokeError],
  ['a step without a name', { type: 'tool' }, ValueError],
  ['arguments that are no object', { type: 'tool', name: 'double', arguments: [1] }, TypeError],
  ['arguments that are null', { type: 'tool', name: 'double', arguments: null }, TypeError],
])('%s is a failure that the planner is told of', async (_, step, kind) => {
  const planner: Planner = ({ last }) => (last === undefined ? (step as PlanStep) : { type: 'reply' })
  const { outcomes } = await runPlan(registry(), planner)
  expect(outcomes[0]?.success === false ? outcomes[0].error : undefined).toBeInstanceOf(kind)
})

test.each([[{ type: 'think' }], ['double'], [null], [5], [{}], [[null]]])(
  'what is no step ends the plan: %j',
  async (step) => {
    const error = await failureOf(runPlan(registry(), () => step as never))
    expect(error).toBeInstanceOf(ValueError)
    expect(error).toMatchObject({ message: expect.stringContaining('A step is { type: "tool", name, arguments }') })
  },
)

test('what the planner throws comes out as it is, also while it streams', async () => {
  const own = new Error('No model.')
  const throwing = async (): Promise<never> => {
    throw own
  }
  expect(await failureOf(runPlan(registry(), throwing))).toBe(own)
  const streamed = async function* (): AsyncGenerator<PlanStep> {
    yield double(1)
    throw own
  }
  expect(await failureOf(runPlan(registry(), streamed))).toBe(own)
})

test('no plan is endless', async () => {
  const endless: Planner = () => double(1)
  expect(await failureOf(runPlan(registry(), endless, { maxSteps: 3 }))).toMatchObject({
    code: 'too_large',
    message: 'The plan wants more than 3 steps; the next would call the tool "double".',
  })
  let made = 0
  const left = deferred()
  const streamed = async function* (): AsyncGenerator<PlanStep> {
    try {
      for (;;) yield double(++made)
    } finally {
      left.resolve()
    }
  }
  expect(await failureOf(runPlan(registry(), streamed))).toMatchObject({ code: 'too_large' })
  expect(made).toBe(33)
  await within(left.promise, 'the generator to be closed')
  const hanging: Planner = () => new Promise(() => {})
  expect(await failureOf(runPlan(registry(), hanging, { timeoutMs: 5 }))).toMatchObject({
    code: 'timeout',
    message: 'The plan did not end within 5 ms.',
  })
  const silent = async function* (): AsyncGenerator<PlanStep> {
    yield double(1)
    await new Promise(() => {})
  }
  expect(await failureOf(runPlan(registry(), silent, { timeoutMs: 5 }))).toMatchObject({ code: 'timeout' })
})

test.each([{ maxSteps: 0 }, { maxSteps: 1.5 }, { timeoutMs: 0 }, { timeoutMs: Infinity }, { timeoutMs: Number.NaN }])(
  'limits that are none are refused: %j',
  async (options) => {
    expect(await failureOf(runPlan(registry(), () => undefined, options))).toMatchObject({ code: 'invalid_request' })
  },
)

test('an abort ends the plan and the tool that runs', async () => {
  const tools = registry()
  const started = deferred<AbortSignal>()
  tools.register({
    name: 'stuck',
    call: (_, context) => {
      if (context !== undefined) started.resolve(context.signal)
      return new Promise(() => {})
    },
  })
  const controller = new AbortController()
  const planning = failureOf(runPlan(tools, () => ({ type: 'tool', name: 'stuck' }), { signal: controller.signal }))
  const signal = await within(started.promise, 'the tool to start')
  controller.abort()
  expect(await planning).toMatchObject({ code: 'canceled' })
  expect(signal.aborted).toBe(true)
  const again = runPlan(tools, () => double(1), { signal: controller.signal })
  expect(await failureOf(again)).toMatchObject({ code: 'canceled' })
})

/** A source of one service `files` with a tool `read`, and an unreachable one `gone`. */
function source() {
  const asked: string[] = []
  const known = new Map<string, Tool>()
  const read = (run: Tool['run']): Tool => ({
    ...defineTool({
      name: 'read',
      description: 'Reads a file.',
      input: { type: 'object', properties: { path: { type: 'string' } }, required: ['path'] },
      run: () => null,
    }),
    name: 'files.read',
    kind: 'mcp',
    run,
  })
  const thrown = new RangeError('No such file.')
  const tool = read(async function* ({ path }, { progress, ask, caller, signal, deadline }) {
    progress({ progress: 1, total: 2 })
    yield 'a chunk'
    if (path === 'none') throw thrown
    if (path === 'ask') return await ask({ message: 'Sure?' })
    if (path === 'wait') await new Promise((_, reject) => signal.addEventListener('abort', () => reject(boom)))
    return { path: path ?? null, caller: caller.id, limited: deadline !== undefined }
  })
  return {
    asked,
    thrown,
    list: () => [...known.values(), { ...tool, name: 'other.read' }],
    resolve: (service: string, name: string): Tool => {
      if (service === 'files' && name === 'read') return tool
      throw new ConvokeError('not_found', `The server ${service} has no tool ${name}.`)
    },
    discover: async (service: string) => {
      asked.push(service)
      if (service === 'gone') throw new ConvokeError('network', 'It does not answer.')
      known.set('files.read', tool)
    },
    status: (service: string): SourceStatus => ({
      state: service === 'files' && known.size > 0 ? 'ok' : 'never',
      tools: known.size,
    }),
  }
}

test('a server is one tool of the registry, whose params choose the tool', async () => {
  const files = source()
  const tools = registry()
  tools.register(createServerTool(files, 'files'))
  expect(tools.describe()['files']).toMatchObject({
    description: expect.stringContaining('The tools of the server "files".'),
    input_schema: { type: 'object', additionalProperties: false },
  })
  const call = { tool: 'read', arguments: { path: 'a.txt' } }
  const result = { path: 'a.txt', caller: 'local', limited: false }
  expect(await tools.call('files', call)).toEqual(result)
  expect(await tools.execute({ name: 'files', arguments: { op: 'call', ...call } })).toEqual(result)
  expect(files.asked).toEqual([])
  const described = {
    read: { description: 'Reads a file.', input_schema: expect.objectContaining({ type: 'object' }) },
  }
  expect(await tools.call('files', { op: 'describe' })).toEqual(described)
  expect(await tools.call('files', { op: 'describe' })).toEqual(described)
  expect(files.asked).toEqual(['files'])
  const { reply } = await runPlan(tools, ({ last }) =>
    last?.success === true
      ? { type: 'reply', output: last.output as string }
      : { type: 'tool', name: 'files', arguments: call },
  )
  expect(reply?.output).toEqual(result)
})

test('failures of a server\u2019s tool come through as they are', async () => {
  const files = source()
  const tools = new LocalToolRegistry()
  tools.register(createServerTool(files, 'files'))
  tools.register(createServerTool(files, 'gone', { name: 'lost', description: 'Lost.' }))
  const fails = (name: string, args: object) => failureOf(tools.call(name, args))
  expect(await fails('files', { tool: 'read', arguments: { path: 'none' } })).toBe(files.thrown)
  expect(await fails('files', { tool: 'write' })).toMatchObject({ code: 'not_found' })
  expect(await fails('files', { tool: 'read', arguments: { path: 5 } })).toMatchObject({
    code: 'invalid_params',
    issues: [{ path: '/path' }],
  })
  expect(await fails('files', {})).toBeInstanceOf(ValueError)
  expect(await fails('files', { op: 'list' })).toMatchObject({ code: 'invalid_params' })
  expect(await fails('lost', { op: 'describe' })).toMatchObject({ code: 'network' })
  expect(tools.describe()['lost']?.description).toBe('Lost.')
})

test('without a registry the adapter checks its arguments itself', async () => {
  const tool = createServerTool(source(), 'files')
  expect(await tool.call({ tool: 'read', arguments: { path: 'b' } })).toMatchObject({ path: 'b' })
  for (const args of [{ op: 'list' }, { op: null }, {}, { tool: 5 }, { tool: '' }])
    expect(await failureOf(tool.call(args))).toBeInstanceOf(ValueError)
  for (const args of [null, [1], 'x'])
    expect(await failureOf(tool.call({ tool: 'read', arguments: args }))).toBeInstanceOf(TypeError)
})

test('stop, progress, questions and the caller pass through the adapter', async () => {
  const files = source()
  const tools = new LocalToolRegistry()
  tools.register(createServerTool(files, 'files'))
  const manager = new ToolManager({ registry: tools })
  const events: unknown[] = []
  const stream = manager.stream(
    'files',
    { tool: 'read', arguments: { path: 'a' } },
    { caller: { id: 'ada', scopes: [] }, timeoutMs: 60_000 },
  )
  for await (const event of stream) events.push(event)
  expect(events).toEqual([
    { type: 'progress', progress: 1, total: 2 },
    { type: 'result', result: { path: 'a', caller: 'ada', limited: true } },
  ])
  expect(
    await manager.call('files', { tool: 'read', arguments: { path: 'ask' } }, { ask: async ({ message }) => message }),
  ).toBe('Sure?')
  const waiting = manager.call('files', { tool: 'read', arguments: { path: 'wait' } }, { timeoutMs: 20 })
  expect(await failureOf(waiting)).toMatchObject({ code: 'timeout' })
})

test('the tools of a peer are one tool too, with one look at the peer for all calls', async () => {
  let served = 0
  const echo = defineTool({
    name: 'echo',
    description: 'Gives it back.',
    input: { type: 'object', properties: { text: { type: 'string' } }, required: ['text'] },
    run: ({ text }) => ({ text, served: ++served }),
  })
  const bob = await startNode({ agent: { id: 'bob' }, tools: [echo] })
  const alice = await startNode({ peers: { bob: { url: bob.url } } })
  alice.registry.register(createServerTool(alice.remoteTools, 'bob'))
  // Which tools of others callers see is for `publish` to say, one by one.
  expect(alice.tools.published()).toEqual([])
  const call = (text: string) => alice.registry.call('bob', { tool: 'echo', arguments: { text } })
  const results = await Promise.all(['a', 'b', 'c'].map(call))
  expect(results).toMatchObject([{ text: 'a' }, { text: 'b' }, { text: 'c' }])
  expect(served).toBe(3)
  expect(await alice.registry.call('bob', { op: 'describe' })).toMatchObject({
    echo: { description: 'Gives it back.' },
  })
  expect(await failureOf(alice.registry.call('bob', { tool: 'none' }))).toMatchObject({ code: 'not_found' })
})
