/* oxlint-disable typescript/only-throw-error -- tools throw what they like */
// defineTool and callTool: what an author writes, and what a caller gets.
import { setMaxListeners } from 'node:events'
import { setTimeout as delay } from 'node:timers/promises'
import { expect, test } from 'vitest'
import { ConvokeError } from '../dist/base/errors.js'
import { callTool, runTool } from '../dist/tools/call.js'
import { checkParams } from '../dist/tools/validation.js'
import { defineTool, isDefinedTool } from '../dist/tools/define.js'
import type { Tool, ToolContext, ToolValue } from '../dist/tools/tool.js'
import { failureOf } from './support/failure.ts'

const noParams = { type: 'object', properties: {} } as const

function contextWith(changes: Partial<ToolContext> = {}): ToolContext {
  const unused = async (): Promise<never> => {
    throw new Error('not in this test')
  }
  return {
    signal: new AbortController().signal,
    deadline: undefined,
    caller: { id: 'test', scopes: ['*'] },
    call: { id: 'call-1' },
    progress: () => {},
    notice: () => {},
    ask: unused,
    log: { debug() {}, info() {}, warn() {}, error() {} },
    tools: { call: unused, stream: async function* () {} },
    ...changes,
  }
}

async function collect(work: AsyncGenerator<ToolValue, ToolValue, void>) {
  const chunks: ToolValue[] = []
  for (;;) {
    const step = await work.next()
    if (step.done === true) return { chunks, result: step.value }
    chunks.push(step.value)
  }
}

async function call(tool: Tool, params?: unknown, changes?: Partial<ToolContext>) {
  return await collect(callTool(tool, params, contextWith(changes)))
}

/** Lets everything happen that can happen now. */
function turn(): Promise<void> {
  return new Promise((resolve) => setImmediate(resolve))
}

/** A tool around a function, whatever it gives. */
function toolOf(
  run: (params: never, context: ToolContext) => unknown,
  output?: Parameters<typeof defineTool>[0]['output'],
): Tool {
  const base = { name: 'sample', description: 'A sample.', input: noParams, run }
  return defineTool(output === undefined ? base : ({ ...base, output } as typeof base))
}

test.each([
  ['a plain function', () => 7, [], 7],
  ['an async function', async () => 7, [], 7],
  [
    'a generator',
    function* () {
      yield 1
      yield 'two'
      return 7
    },
    [1, 'two'],
    7,
  ],
  [
    'an async generator',
    async function* () {
      yield 1
      yield 'two'
      return 7
    },
    [1, 'two'],
    7,
  ],
  [
    'an async function that gives a generator',
    async () =>
      (function* () {
        yield 1
        return 7
      })(),
    [1],
    7,
  ],
  ['a function that returns nothing', () => {}, [], null],
  [
    'a generator that yields and returns nothing',
    function* () {
      yield
    },
    [null],
    null,
  ],
])('%s is a tool', async (_, run, chunks, result) => {
  expect(await call(toolOf(run))).toEqual({ chunks, result })
})

test('bytes pass as chunks and as the result', async () => {
  const bytes = Buffer.from('abc')
  const tool = toolOf(function* () {
    yield bytes
    return bytes
  })
  const { chunks, result } = await call(tool)
  expect(chunks[0]).toBe(bytes)
  expect(result).toBe(bytes)
})

test('absent params are {}, defaults are merged before run sees them', async () => {
  const tool = defineTool({
    name: 'defaults',
    description: 'Shows its params.',
    input: {
      type: 'object',
      properties: {
        n: { type: 'integer', default: 3 },
        o: { type: 'object', properties: { x: { default: 'y' } }, default: {} },
      },
    },
    run: (params) => params,
  })
  expect((await call(tool)).result).toEqual({ n: 3, o: { x: 'y' } })
  expect((await call(tool, { n: 4 })).result).toEqual({ n: 4, o: { x: 'y' } })
})

test.each([
  ['null', null, 'must be an object, got null'],
  ['an array', [1], 'must be an object, got an array of 1'],
  ['a text', 'n=1', 'must be an object, got "n=1"'],
  ['a wrong type', { n: 'one' }, '/n: must be an integer, got a string: "one"'],
  ['a missing param', {}, '/n: the required property "n" is missing (an integer)'],
  ['a BigInt', { n: 1n }, '/n: a BigInt is not JSON; use a number or a string'],
])('%s as params is refused with a sentence that names the tool', async (_, params, said) => {
  const tool = defineTool({
    name: 'strict',
    description: 'Takes a number.',
    input: { type: 'object', properties: { n: { type: 'integer' } }, required: ['n'] },
    run: () => null,
  })
  const error = await failureOf(call(tool, params))
  expect(error).toMatchObject({ code: 'invalid_params', message: `Invalid params for the tool "strict": ${said}` })
  expect(error.issues).toHaveLength(1)
})

test('params with a __proto__ key are refused, and pollute nothing', async () => {
  const tool = toolOf((params: object) => Object.assign({}, params) as ToolValue)
  for (const text of ['{"__proto__": {"polluted": true}}', '{"a": [{"__proto__": {"polluted": true}}]}']) {
    const error = await failureOf(call(tool, JSON.parse(text)))
    expect(error.message).toContain('a key may not be called __proto__')
  }
  expect(({} as { polluted?: boolean }).polluted).toBeUndefined()
})

test('params called constructor or toString are params like others', async () => {
  const tool = defineTool({
    name: 'odd',
    description: 'Has odd names.',
    input: {
      type: 'object',
      properties: { constructor: { type: 'string' }, toString: { type: 'integer' } },
      required: ['constructor'],
    },
    run: (params) => ({ got: params.constructor }),
  })
  expect((await failureOf(call(tool, {}))).message).toContain('"constructor" is missing')
  expect((await call(tool, { constructor: 'x' })).result).toEqual({ got: 'x' })
})

test('a circular object as params is refused', async () => {
  const params: Record<string, unknown> = {}
  params['self'] = params
  expect(
    await failureOf(
      call(
        toolOf(() => null),
        params,
      ),
    ),
  ).toMatchObject({ code: 'invalid_params' })
})

test('checkParams refuses before anything runs, and runTool takes what it gives', async () => {
  const tool = defineTool({
    name: 'split',
    description: 'Doubles.',
    input: { type: 'object', properties: { n: { type: 'number', default: 2 } } },
    run: ({ n }) => n * 2,
  })
  expect(() => checkParams(tool, { n: 'x' })).toThrow(/must be a number/)
  const params = await checkParams(tool, undefined)
  expect((await collect(runTool(tool, params, contextWith()))).result).toBe(4)
})

const circular: Record<string, unknown> = {}
circular['deep'] = { circular }

test.each([
  ['a BigInt', { a: [{ b: 1n }] }, '/a/0/b', 'BigInt'],
  ['a function', { f: () => {} }, '/f', 'a function is not JSON'],
  ['a symbol', [Symbol('s')], '/0', 'a symbol is not JSON'],
  ['NaN', { n: Number.NaN }, '/n', 'NaN is not a JSON number'],
  ['undefined in an array', [undefined], '/0', 'use null'],
  ['a forgotten promise', { p: Promise.resolve(1) }, '/p', 'a forgotten await?'],
  ['a Date', { at: new Date() }, '/at', 'toISOString'],
  ['a Map', new Map(), '', 'an instance of Map'],
  ['bytes inside of JSON', { bytes: Buffer.from('x') }, '/bytes', 'bytes inside of JSON'],
  ['a circular value', circular, '/deep/circular/deep', 'circular'],
])('%s as result is invalid_result and says where', async (_, value, path, said) => {
  for (const run of [
    () => value,
    function* () {
      yield value
    },
  ]) {
    const error = await failureOf(call(toolOf(run)))
    expect(error.code).toBe('invalid_result')
    expect(error.message).toContain(said)
    expect(error.message.length).toBeLessThan(1000)
    expect(error.issues?.[0]?.path.startsWith(path)).toBe(true)
  }
})

test('members that are undefined count as absent', async () => {
  const { result } = await call(toolOf(() => ({ a: 1, b: undefined })))
  expect(JSON.stringify(result)).toBe('{"a":1}')
})

test('a result that its output schema forbids is invalid_result with issues', async () => {
  const output = { type: 'object', properties: { ok: { type: 'boolean' } }, required: ['ok'] }
  const error = await failureOf(call(toolOf(() => ({ ok: 'yes' }), output)))
  expect(error).toMatchObject({
    code: 'invalid_result',
    issues: [{ path: '/ok', message: 'must be a boolean, got a string: "yes"' }],
  })
  expect((await failureOf(call(toolOf(() => Buffer.from('x'), output)))).message).toContain('returned bytes')
})

test.each([
  [
    'an Error',
    () => {
      throw new RangeError('Too far.')
    },
    'Too far.',
  ],
  ['a rejected promise', () => Promise.reject(new Error('Not today.')), 'Not today.'],
  [
    'an Error without a message',
    () => {
      throw new TypeError()
    },
    'The tool "sample" threw TypeError without a message.',
  ],
  [
    'a text',
    () => {
      throw 'Just no.'
    },
    'Just no.',
  ],
  [
    'undefined',
    () => {
      throw undefined
    },
    'The tool "sample" threw undefined.',
  ],
  [
    'an object',
    () => {
      throw { reason: 1 }
    },
    'The tool "sample" threw an object.',
  ],
  [
    'an object with a message',
    () => {
      throw { message: 'Said so.' }
    },
    'Said so.',
  ],
])('a tool that throws %s is tool_failed with a sentence', async (_, run, message) => {
  expect(await failureOf(call(toolOf(run)))).toMatchObject({ code: 'tool_failed', message, retryable: false })
})

test('what a tool threw is the cause of its failure, for the log', async () => {
  const thrown = new Error('Inside.')
  expect(
    (
      await failureOf(
        call(
          toolOf(() => {
            throw thrown
          }),
        ),
      )
    ).cause,
  ).toBe(thrown)
})

test('a thrown ConvokeError passes as it is, also one of another copy of the package', async () => {
  const ours = new ConvokeError('rate_limited', 'Later.', { retryAfterMs: 5 })
  expect(
    await failureOf(
      call(
        toolOf(() => {
          throw ours
        }),
      ),
    ),
  ).toBe(ours)
  const theirs = Object.assign(new Error('Later.'), {
    name: 'ConvokeError',
    code: 'rate_limited',
    retryable: true,
    retryAfterMs: 5,
  })
  expect(
    await failureOf(
      call(
        toolOf(() => {
          throw theirs
        }),
      ),
    ),
  ).toMatchObject({ code: 'rate_limited', retryAfterMs: 5 })
})

test('a failure after a chunk comes after the chunk', async () => {
  const work = callTool(
    toolOf(function* () {
      yield 1
      throw new Error('Midway.')
    }),
    {},
    contextWith(),
  )
  expect(await work.next()).toEqual({ done: false, value: 1 })
  expect(await failureOf(work.next())).toMatchObject({ code: 'tool_failed', message: 'Midway.' })
})

test('the reason of the stop passes when the tool throws it, or the AbortError of a Node API', async () => {
  const reason = new ConvokeError('timeout', 'Too late.')
  const runs = [
    async (_: object, { signal }: ToolContext) => {
      await new Promise((resolve) => signal.addEventListener('abort', resolve))
      signal.throwIfAborted()
    },
    async (_: object, { signal }: ToolContext) => {
      await delay(60_000, undefined, { signal })
    },
  ]
  for (const run of runs) {
    const controller = new AbortController()
    const calling = failureOf(call(toolOf(run), {}, { signal: controller.signal }))
    controller.abort(reason)
    expect(await calling).toBe(reason)
  }
})

test('an error of the tool that has nothing to do with the stop is its own', async () => {
  const signal = AbortSignal.abort()
  expect(
    await failureOf(
      call(
        toolOf(() => {
          throw new Error('Broken.')
        }),
        {},
        { signal },
      ),
    ),
  ).toMatchObject({ code: 'tool_failed' })
})

test('a generator that never looks at its signal stops at its next yield, and cleans up', async () => {
  const controller = new AbortController()
  let cleaned = false
  const tool = toolOf(function* () {
    try {
      for (let i = 0; ; i++) yield i
    } finally {
      cleaned = true
    }
  })
  const work = callTool(tool, {}, contextWith({ signal: controller.signal }))
  await work.next()
  controller.abort()
  expect(await failureOf(work.next())).toMatchObject({ code: 'canceled' })
  expect(cleaned).toBe(true)
})

test.each([
  [
    'a sync',
    function* (_: object, { progress }: ToolContext) {
      try {
        yield 1
        yield 2
      } finally {
        progress({ progress: 1 })
      }
    },
  ],
  [
    'an async',
    async function* (_: object, { progress }: ToolContext) {
      try {
        yield 1
        yield 2
      } finally {
        progress({ progress: 1 })
      }
    },
  ],
])('leaving the loop runs the finally of %s generator', async (_, run) => {
  let closed = 0
  const work = callTool(toolOf(run), {}, contextWith({ progress: () => closed++ }))
  await work.next()
  await work.return(null)
  expect(closed).toBe(1)
})

test('no more calls run at once than the concurrency says, and the others come in order', async () => {
  const releases: (() => void)[] = []
  const started: number[] = []
  const tool = defineTool({
    name: 'narrow',
    description: 'Runs two at a time.',
    input: { type: 'object', properties: { i: { type: 'integer' } }, required: ['i'] },
    traits: { concurrency: 2 },
    async run({ i }) {
      started.push(i)
      await new Promise<void>((resolve) => releases.push(resolve))
      return i
    },
  })
  const calls = [0, 1, 2, 3].map((i) => call(tool, { i }))
  await turn()
  expect(started).toEqual([0, 1])
  releases.shift()?.()
  await calls[0]
  await turn()
  expect(started).toEqual([0, 1, 2])
  for (let i = 0; i < 3; i++) {
    releases.shift()?.()
    await turn()
  }
  expect((await Promise.all(calls)).map(({ result }) => result)).toEqual([0, 1, 2, 3])
})

test('a call that is stopped in the queue leaves it, and its place is not lost', async () => {
  let release = (): void => {}
  const tool = defineTool({
    name: 'single',
    description: 'One at a time.',
    input: noParams,
    traits: { concurrency: 1 },
    run: () => new Promise<void>((resolve) => (release = resolve)),
  })
  const first = call(tool)
  const controller = new AbortController()
  const second = failureOf(call(tool, {}, { signal: controller.signal }))
  const third = call(tool)
  await turn()
  controller.abort()
  expect(await second).toMatchObject({ code: 'canceled' })
  release()
  await first
  await turn()
  release()
  expect((await third).result).toBeNull()
})

test('a full queue is rate_limited and says when to come back; wrong params never queue', async () => {
  const tool = defineTool({
    name: 'full',
    description: 'One at a time.',
    input: noParams,
    traits: { concurrency: 1 },
    async run(_, { signal }) {
      await new Promise((resolve) => signal.addEventListener('abort', resolve))
    },
  })
  const controller = new AbortController()
  const { signal } = controller
  setMaxListeners(0, signal)
  const calls = Array.from({ length: 1001 }, () => call(tool, {}, { signal }).catch(() => {}))
  await turn()
  const error = await failureOf(call(tool, {}, { signal }))
  expect(error).toMatchObject({ code: 'rate_limited', retryable: true, retryAfterMs: 1000 })
  expect(await failureOf(call(tool, null, { signal }))).toMatchObject({ code: 'invalid_params' })
  controller.abort()
  await Promise.all(calls)
})

test('a failed call gives its place back', async () => {
  const tool = defineTool({
    name: 'fails',
    description: 'Fails.',
    input: noParams,
    traits: { concurrency: 1 },
    run() {
      throw new Error('No.')
    },
  })
  for (let i = 0; i < 3; i++) expect(await failureOf(call(tool))).toMatchObject({ code: 'tool_failed' })
})

test('what defineTool gives is frozen, branded, and as the author wrote it', () => {
  const tool = defineTool({
    name: 'a-B_9',
    description: 'Fine.',
    input: noParams,
    traits: { category: 'x', timeoutMs: 5, prompt: { system: 'Use it first.', reminder: 'Once is enough.' } },
    run: () => 1,
  })
  expect(tool).toMatchObject({
    name: 'a-B_9',
    description: 'Fine.',
    input: noParams,
    traits: { category: 'x', timeoutMs: 5, prompt: { system: 'Use it first.', reminder: 'Once is enough.' } },
  })
  expect(Object.isFrozen(tool)).toBe(true)
  expect(Object.isFrozen(tool.traits.prompt)).toBe(true)
  expect(isDefinedTool(tool)).toBe(true)
  expect(isDefinedTool({ ...tool, name: 'other' })).toBe(true)
  expect(isDefinedTool({ name: 'x', run() {} })).toBe(false)
})

const good = { name: 'good', description: 'Good.', input: noParams, run: () => null }

test.each([
  ['nothing', undefined, 'defineTool needs an object'],
  ['no name', { ...good, name: undefined }, '`name` must be 1 to 64 letters, digits, _ or -, got undefined'],
  ['a name with a dot', { ...good, name: 'a.b' }, 'got "a.b"'],
  ['an empty name', { ...good, name: '' }, 'got ""'],
  ['a name that is too long', { ...good, name: 'x'.repeat(65) }, 'must be 1 to 64'],
  ['no description', { ...good, description: undefined }, 'needs a `description`'],
  ['a blank description', { ...good, description: ' ' }, 'needs a `description`'],
  ['no input', { ...good, input: undefined }, "`input: { type: 'object', properties: {} }`"],
  ['an input that is no schema', { ...good, input: 'string' }, 'must be a JSON Schema object, got "string"'],
  [
    'an input without a type',
    { ...good, input: { properties: {} } },
    '/type: must be "object", because params have names, but is missing',
  ],
  ['an input that is a string', { ...good, input: { type: 'string' } }, 'but is "string"'],
  [
    'a wrong type inside',
    { ...good, input: { type: 'object', properties: { a: { type: 'int' } } } },
    '/properties/a/type: must be one of',
  ],
  [
    'an output that is no schema',
    { ...good, output: { type: 'objekt' } },
    'The output schema of the tool "good" is wrong',
  ],
  ['no run', { ...good, run: undefined }, 'needs `run`'],
  ['a run that is no function', { ...good, run: 'later' }, 'must be a function (params, context), got "later"'],
  ['both run and blocking', { ...good, blocking: { module: '/x.js' } }, 'has both `run` and `blocking`'],
  [
    'a relative blocking module',
    { ...good, run: undefined, blocking: { module: './x.js' } },
    "new URL('./worker.js', import.meta.url)",
  ],
  ['a blocking without a module', { ...good, run: undefined, blocking: {} }, 'needs its module'],
  [
    'a timeout of 0',
    { ...good, traits: { timeoutMs: 0 } },
    '`timeoutMs` of the tool "good" must be milliseconds above 0',
  ],
  ['a timeout beyond what timers can', { ...good, traits: { timeoutMs: 1e12 } }, 'up to 2147483647, got 1000000000000'],
  [
    'half a concurrency',
    { ...good, traits: { concurrency: 0.5 } },
    '`concurrency` of the tool "good" must be an integer of 1 or more, got 0.5',
  ],
  [
    'a prompt that is no object',
    { ...good, traits: { prompt: 'Use it.' } },
    '`prompt` of the tool "good" must be an object',
  ],
  ['an empty text of a prompt', { ...good, traits: { prompt: { user: ' ' } } }, 'must be a text, got " "'],
  ['an unknown text of a prompt', { ...good, traits: { prompt: { remind: 'x' } } }, 'unknown key "remind"'],
  ['an unknown trait', { ...good, traits: { timeout: 5 } }, 'unknown key "timeout"; write `timeoutMs`'],
  [
    'a trait of the wrong type',
    { ...good, traits: { readOnly: 'yes' } },
    '`readOnly` of the tool "good" must be true or false, got "yes"',
  ],
  ['the words of another library', { ...good, inputSchema: {} }, 'unknown key "inputSchema"; write `input`'],
  ['a typing error', { ...good, desription: 'x' }, 'unknown key "desription"; write `description`'],
])('a definition with %s is refused with what to do', (_, definition, said) => {
  let error: unknown
  try {
    defineTool(definition as never)
  } catch (thrown) {
    error = thrown
  }
  expect(error).toMatchObject({ name: 'ConvokeError', code: 'config' })
  expect((error as ConvokeError).message).toContain(said)
})
