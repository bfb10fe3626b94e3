import {
  createDefinitions,
  CallHistory,
  Content,
  defineTool,
  executeBatch,
  LocalToolRegistry,
  toAnthropicBlocks,
  ToolManager,
  toOpenAiMessages,
  type BatchSpace,
  type CallAnswer,
  type CallRecord,
  type Tool,
  type ToolResult,
  type ToolTraits,
} from 'convoke'
import { describe, expect, test } from 'vitest'
import { findJsonBreak } from '../dist/tools/model-call.js'
import { deferred, within } from './support/lifetime.ts'

const anyObject = { type: 'object' } as const

function tool(name: string, run: (params: Record<string, unknown>) => unknown, traits: ToolTraits = {}): Tool {
  return defineTool({
    name,
    description: `Does ${name}.`,
    input: anyObject,
    traits,
    run: (params) => run(params) as never,
  })
}

/** A real manager's tools. What it knows of them is asked of the registry. */
function spaceOf(...tools: Tool[]): BatchSpace {
  const registry = new LocalToolRegistry()
  for (const each of tools) registry.register(each)
  const manager = new ToolManager({ registry })
  return {
    tryCall: (name, params, options) => manager.tryCall(name, params, options),
    get: (name) => registry.get(name),
    list: () => manager.list(),
  }
}

const add = defineTool({
  name: 'add',
  description: 'Adds.',
  input: {
    type: 'object',
    properties: { a: { type: 'number' }, b: { type: 'number', default: 1 } },
    required: ['a'],
    additionalProperties: false,
  },
  run: ({ a, b }) => ({ sum: a + (b ?? 0) }),
})

/** A promise that rejects with anything at all, as those of others do. */
// oxlint-disable-next-line typescript/prefer-promise-reject-errors -- just that
const rejected = (reason: unknown): Promise<never> => Promise.reject(reason)

const summary = (answers: readonly CallAnswer[]): unknown[] =>
  answers.map(({ id, success, errorType, data }) => (success ? [id, data] : [id, errorType]))

describe('a round', () => {
  test('is answered in the order of its calls, by their ids, while they run side by side', async () => {
    const both = [deferred(), deferred()] as const
    const first = tool('first', async () => {
      both[0].resolve()
      await within(both[1].promise, 'the second call to begin')
      return 'one'
    })
    const second = tool('second', async () => {
      both[1].resolve()
      await within(both[0].promise, 'the first call to begin')
      return 'two'
    })
    const { answers, warnings } = await executeBatch(spaceOf(first, second), [
      { id: 'x', name: 'first', arguments: {} },
      { id: 'y', name: 'second', arguments: '{}' },
    ])
    expect(answers.map(({ id, name, content, success }) => [id, name, content, success])).toEqual([
      ['x', 'first', 'one', true],
      ['y', 'second', 'two', true],
    ])
    expect(warnings).toEqual([])
  })

  test('runs no more calls at once than it may', async () => {
    let running = 0
    let most = 0
    const slow = tool('slow', async () => {
      most = Math.max(most, ++running)
      await new Promise((resolve) => setImmediate(resolve))
      running--
      return null
    })
    const calls = Array.from({ length: 10 }, (_, n) => ({ id: `${n}`, name: 'slow', arguments: { n } }))
    await executeBatch(spaceOf(slow), calls, { concurrency: 3 })
    expect(most).toBe(3)
  })

  test('reads the calls of OpenAI, Anthropic and Gemini', async () => {
    const { answers } = await executeBatch(spaceOf(add), [
      { id: 'chat', type: 'function', function: { name: 'add', arguments: '{"a":1,"b":1}' } },
      { type: 'function_call', id: 'item', call_id: 'responses', name: 'add', arguments: '{"a":2,"b":2}' },
      { type: 'tool_use', id: 'toolu', name: 'add', input: { a: 3, b: 3 } },
      { functionCall: { name: 'add', args: { a: 4, b: 4 } } },
    ])
    expect(summary(answers)).toEqual([
      ['chat', { sum: 2 }],
      ['responses', { sum: 4 }],
      ['toolu', { sum: 6 }],
      ['call_4', { sum: 8 }],
    ])
  })

  test('gives a call without an id one that is its place, and nobody else’s', async () => {
    const { answers } = await executeBatch(spaceOf(add), [
      { name: 'add', arguments: { a: 1 } },
      { id: 'call_3', name: 'add', arguments: { a: 2 } },
      { id: '', name: 'add', arguments: { a: 3 } },
      { id: null, name: 'add', arguments: { a: 4 } },
    ])
    expect(answers.map(({ id }) => id)).toEqual(['call_1', 'call_3', 'call_3_', 'call_4'])
  })

  test('without calls has no answers; what is no list of calls is no round', async () => {
    expect(await executeBatch(spaceOf(add), [])).toMatchObject({ answers: [], warnings: [] })
    const { answers, warnings } = await executeBatch(spaceOf(add), null as never)
    expect(answers).toEqual([])
    expect(warnings).toEqual(['A round of calls must be an array, got null.'])
  })

  test('does not change what it is given', async () => {
    const call = { id: '1', name: 'add', arguments: { a: 1 } }
    const { answers } = await executeBatch(spaceOf(add), [call])
    expect(answers[0]?.data).toEqual({ sum: 2 })
    expect(call).toEqual({ id: '1', name: 'add', arguments: { a: 1 } })
  })

  test.each([
    ['limit', 0],
    ['limit', 1.5],
    ['limit', '10'],
    ['concurrency', 0],
    ['maxChars', 10],
  ])('is refused with the option %s = %j', async (key, value) => {
    await expect(executeBatch(spaceOf(add), [], { [key]: value })).rejects.toMatchObject({
      code: 'config',
      message: expect.stringMatching(new RegExp(`\`${key}\` must be a whole number of`)),
    })
  })
})

describe('calls that repeat others', () => {
  test('run once, and each id gets the answer', async () => {
    let runs = 0
    const count = tool('count', () => ++runs)
    const { answers, warnings } = await executeBatch(spaceOf(count, add), [
      { id: 'a', name: 'count', arguments: { x: 1, y: { p: 1, q: [1, 2] } } },
      { id: 'b', name: 'add', arguments: { a: 1 } },
      { id: 'c', name: 'count', arguments: '{"y": {"q": [1, 2], "p": 1}, "x": 1}' },
      { id: 'd', name: 'count', arguments: { x: 1, y: { p: 1, q: [2, 1] } } },
      { id: 'e', name: 'count', arguments: { y: { q: [1, 2], p: 1 }, x: 1 } },
    ])
    expect(runs).toBe(2)
    expect(answers.map(({ id, data, deduplicated, executed }) => [id, data, deduplicated, executed])).toEqual([
      ['a', 1, undefined, true],
      ['b', { sum: 2 }, undefined, true],
      ['c', 1, true, false],
      ['d', 2, undefined, true],
      ['e', 1, true, false],
    ])
    expect(warnings).toEqual([
      '2 calls repeat others of the round, by name and arguments; the tool is called once for all of them.',
    ])
  })

  test('are the same tool’s under whatever name it is called', async () => {
    const space = spaceOf(add)
    const aliased: BatchSpace = {
      tryCall: (name, params, options) => space.tryCall(name === 'plus' ? 'add' : name, params, options),
      get: (name) => space.get?.(name === 'plus' ? 'add' : name),
    }
    const { answers } = await executeBatch(aliased, [
      { id: 'a', name: 'plus', arguments: { a: 1 } },
      { id: 'b', name: 'add', arguments: { a: 1 } },
    ])
    expect(answers.map(({ name, data, deduplicated }) => [name, data, deduplicated])).toEqual([
      ['plus', { sum: 2 }, undefined],
      ['add', { sum: 2 }, true],
    ])
  })

  test('share a failure too', async () => {
    const { answers } = await executeBatch(spaceOf(add), [
      { id: 'a', name: 'add', arguments: {} },
      { id: 'b', name: 'add', arguments: '' },
    ])
    expect(answers.map(({ errorType }) => errorType)).toEqual(['invalid_params', 'invalid_params'])
    expect(answers[1]).toMatchObject({ deduplicated: true, content: answers[0]?.content })
  })
})

describe('the limit', () => {
  const calls = (count: number): { id: string; name: string; arguments: object }[] =>
    Array.from({ length: count }, (_, n) => ({ id: `${n}`, name: 'add', arguments: { a: n } }))

  test('lets the first ten calls of a round run and answers the others with the reason', async () => {
    const { answers, warnings } = await executeBatch(spaceOf(add), calls(12))
    expect(answers.slice(0, 10).every(({ success }) => success)).toBe(true)
    expect(answers.slice(10).map(({ id, error, executed }) => [id, executed, error])).toEqual([
      ['10', false, expect.stringContaining('not executed: limit 10')],
      ['11', false, expect.stringContaining('not executed: limit 10')],
    ])
    expect(warnings).toEqual(['The round has 12 calls and may have 10; the first 10 are executed.'])
  })

  test('counts repeated calls once', async () => {
    const [one, two, three] = calls(3)
    const { answers } = await executeBatch(
      spaceOf(add),
      [one, { ...one!, id: 'again' }, two, three, { ...three!, id: 'z' }],
      {
        limit: 2,
      },
    )
    expect(answers.map(({ id, success, deduplicated }) => [id, success, deduplicated])).toEqual([
      ['0', true, undefined],
      ['again', true, true],
      ['1', true, undefined],
      ['2', false, undefined],
      ['z', false, true],
    ])
  })
})

describe('a tool that takes control', () => {
  const runs: string[] = []
  const research = tool('research', () => runs.push('research'), { takeControl: true })
  const plain = tool('plain', () => runs.push('plain'))

  test('runs alone, also when it is called twice alike', async () => {
    runs.length = 0
    const { answers } = await executeBatch(spaceOf(research, plain), [
      { id: '1', name: 'research', arguments: {} },
      { id: '2', name: 'research', arguments: '{}' },
    ])
    expect(summary(answers)).toEqual([
      ['1', 1],
      ['2', 1],
    ])
    expect(runs).toEqual(['research'])
  })

  test('stops its whole round beside others, which are told what to do', async () => {
    runs.length = 0
    const { answers, warnings } = await executeBatch(spaceOf(research, plain), [
      { id: '1', name: 'plain', arguments: {} },
      { id: '2', name: 'research', arguments: {} },
      { id: '3', name: 'plain', arguments: {} },
      { id: '4', name: 'research', arguments: { deep: true } },
      { id: '5', name: 'plain', arguments: '{"broken' },
    ])
    expect(runs).toEqual([])
    expect(answers.map(({ id, errorType, executed }) => [id, errorType, executed])).toEqual(
      ['1', '2', '3', '4', '5'].map((id) => [id, 'conflict', false]),
    )
    expect(answers[0]?.error).toMatch(/"research" of the same round takes control and stood in the way/)
    expect(answers[1]?.error).toMatch(/Call it alone, after the others/)
    expect(answers[3]?.error).toMatch(/Call it alone, after the others/)
    expect(warnings).toHaveLength(2)
  })
})

describe('arguments', () => {
  const echo = tool('echo', (params) => params)
  const answerTo = async (args: unknown): Promise<CallAnswer> => {
    const { answers } = await executeBatch(spaceOf(echo), [{ id: '1', name: 'echo', arguments: args as never }])
    return answers[0]!
  }

  test.each([
    ['an object', { a: 1 }, { a: 1 }],
    ['JSON text', ' {"a": 1} ', { a: 1 }],
    ['nothing', undefined, {}],
    ['null', null, {}],
    ['an empty text', '', {}],
    ['blanks', ' \n', {}],
    ['the text null', 'null', {}],
    ['JSON inside of JSON', JSON.stringify('{"a":"{}"}'), { a: '{}' }],
  ])('may be %s', async (_, given, expected) => {
    expect(await answerTo(given)).toMatchObject({ success: true, data: expected })
  })

  test.each([
    ['an array', [1], 'must be an object, got an array of 1'],
    ['a number in JSON', '5', 'must be an object, got 5'],
    ['a text in JSON', '"abc"', 'must be an object, got "abc"'],
    ['a text that stops early', '{"a": {"b": "c', 'are not complete JSON: they end after 14 characters'],
    ['broken JSON', '{"a": x}', 'are not JSON from character 7 on: behind "{\\"a\\": " stands "x}"'],
    ['two values', '{"a":1}{"b":2}', 'are not JSON from character 8 on'],
    ['a date', { when: new Date(0) }, 'are not JSON at "/when": a Date (use toISOString()) is not JSON'],
  ])('may not be %s', async (_, given, expected) => {
    const answer = await answerTo(given)
    expect(answer).toMatchObject({ success: false, errorType: 'invalid_params', executed: false, tool: 'echo' })
    expect(answer.error).toContain(expected)
    expect(answer.issues).toHaveLength(1)
  })

  test('that nest without end, or refer to themselves, are refused', async () => {
    const circular: Record<string, unknown> = {}
    circular['self'] = circular
    expect((await answerTo(circular)).errorType).toBe('invalid_params')
    const deep = '{"a":'.repeat(100_000) + '1' + '}'.repeat(100_000)
    expect((await answerTo(deep)).errorType).toBe('invalid_params')
  })

  test('that the schema forbids are answered with what is wrong, for the model to mend', async () => {
    const { answers } = await executeBatch(spaceOf(add), [{ id: '1', name: 'add', arguments: { a: 'x', c: 1 } }])
    const body = JSON.parse(answers[0]!.content) as { error: string; error_type: string; issues: { path: string }[] }
    expect(body).toMatchObject({ error_type: 'invalid_params', retryable: false, tool: 'add' })
    expect(body.error).toContain('Invalid params for the tool "add"')
    expect(body.issues.map(({ path }) => path).toSorted()).toEqual(['/a', '/c'])
    expect(answers[0]?.issues).toEqual(body.issues)
  })

  test('are said to break where JSON.parse would break', () => {
    const good = '{"a": [1, -2.5e3, true, null, "x\\u00e9\\n"], "b": {"c": {}}, "d": []}'
    for (let end = 0; end < good.length; end++) {
      const cut = good.slice(0, end)
      expect(findJsonBreak(cut), cut).toBe(end)
    }
    for (let at = 0; at < good.length; at++) {
      const broken = `${good.slice(0, at)}\u0001${good.slice(at)}`
      expect(() => JSON.parse(broken) as unknown).toThrow(/JSON/)
      const found = findJsonBreak(broken)
      expect(found, broken).toBeLessThanOrEqual(at)
      // A word or an escape that is broken in its middle is broken from its beginning.
      expect(at - found, broken).toBeLessThanOrEqual(6)
    }
  })
})

describe('what cannot be called', () => {
  test('is answered with the name that was probably meant', async () => {
    const { answers } = await executeBatch(
      spaceOf(
        add,
        tool('word_count', () => 1),
      ),
      [
        { id: '1', name: 'wordCount', arguments: {} },
        { id: '2', name: 'nothing_like_it', arguments: {} },
      ],
    )
    expect(answers[0]).toMatchObject({ id: '1', success: false, errorType: 'not_found' })
    expect(answers[0]?.error).toBe('There is no tool "wordCount" here. Did you mean "word_count"?')
    expect(answers[1]?.error).toBe('There is no tool "nothing_like_it" here.')
    // A snapshot need not say what it holds.
    const space = spaceOf()
    const snapshot = (): BatchSpace => ({ tryCall: (name) => space.tryCall(name) })
    const later = await executeBatch({ ...space, list: () => [{ ...add, name: 'bob.add' }], snapshot }, [
      { name: 'add' },
    ])
    expect(later.answers[0]?.error).toBe('There is no tool "add" here. Did you mean "bob.add"?')
  })

  test('is answered with why it is no call', async () => {
    const hostile = {
      get name(): string {
        throw new Error('no')
      },
    }
    const calls = [null, undefined, 5, 'add', {}, { id: 'x' }, { id: 'y', name: 7 }, { function: null }, hostile, []]
    const { answers } = await executeBatch(spaceOf(add), calls as never)
    expect(answers).toHaveLength(calls.length)
    expect(answers.every(({ success, errorType }) => !success && errorType === 'invalid_params')).toBe(true)
    expect(answers.map(({ id }) => id)).toEqual([
      ...['call_1', 'call_2', 'call_3', 'call_4', 'call_5', 'x', 'y', 'call_8', 'call_9', 'call_10'],
    ])
    expect(answers[0]?.error).toBe('A call must be an object { id, name, arguments }, got null.')
    expect(answers[6]?.error).toBe('A call must name its tool in `name`, got 7.')
  })

  test('is called by the name that the model knows', async () => {
    const asked: string[] = []
    const space: BatchSpace = {
      tryCall: (name) => {
        asked.push(name)
        return Promise.resolve({ success: true, data: 1, meta: { tool: name, callId: '', durationMs: 0 } })
      },
    }
    const names = {
      nameOf: (handle: string) => handle.replace('.', '__'),
      handleOf: (name: string) => name.replace('__', '.'),
    }
    const { answers } = await executeBatch(space, [{ id: '1', name: 'bob__sum', arguments: {} }], { names })
    expect(asked).toEqual(['bob.sum'])
    expect(answers[0]).toMatchObject({ name: 'bob__sum', tool: 'bob.sum' })
  })
})

describe('a tool that fails', () => {
  test('is answered with the reason; the others go on', async () => {
    const broken = tool('broken', () => {
      throw new Error('The disk is full.')
    })
    const { answers } = await executeBatch(spaceOf(broken, add), [
      { id: '1', name: 'broken', arguments: {} },
      { id: '2', name: 'add', arguments: { a: 1 } },
    ])
    expect(summary(answers)).toEqual([
      ['1', 'tool_failed'],
      ['2', { sum: 2 }],
    ])
    expect(JSON.parse(answers[0]!.content)).toMatchObject({ error: 'The disk is full.', error_type: 'tool_failed' })
    expect(answers[0]?.content).not.toContain('at ')
  })

  test.each<[string, () => unknown, string, string]>([
    [
      'throws',
      () => {
        throw new Error('bang')
      },
      'tool_failed',
      'The tool "t" failed: bang',
    ],
    ['rejects with nothing', () => rejected(undefined), 'tool_failed', 'The tool "t" failed.'],
    ['answers nothing', () => undefined, 'invalid_result', 'answered in a wrong shape: expected an object'],
    [
      'answers a text',
      () => 'ok',
      'invalid_result',
      'answered in a wrong shape: expected an object { success, … }, got "ok"',
    ],
    [
      'does not say whether it went well',
      () => ({ data: 1 }),
      'invalid_result',
      '`success` must be true or false, got undefined',
    ],
    ['answers what is no JSON', () => ({ success: true, data: { f() {} } }), 'invalid_result', 'no value at "/f"'],
    ['fails without a word', () => ({ success: false }), 'invalid_result', '`error` must be a text'],
    ['fails with a code of its own', () => ({ success: false, error: 'no', errorType: 'E42' }), 'tool_failed', 'no'],
  ])('because its space %s', async (_, tryCall, errorType, message) => {
    const { answers } = await executeBatch({ tryCall: tryCall as never }, [{ id: '1', name: 't', arguments: {} }])
    expect(answers).toHaveLength(1)
    expect(answers[0]).toMatchObject({ id: '1', success: false, errorType, executed: true })
    expect(answers[0]?.error).toContain(message)
    expect(JSON.parse(answers[0]!.content)).toMatchObject({ error_type: errorType })
  })
})

test('an aborted round stops what runs, begins nothing more and still answers each call', async () => {
  const controller = new AbortController()
  const begun = deferred()
  let stopped = false
  const forever = defineTool({
    name: 'forever',
    description: 'Waits for its signal.',
    input: anyObject,
    run: async (_, { signal }) => {
      signal.addEventListener('abort', () => (stopped = true))
      begun.resolve()
      await new Promise<void>((resolve) => signal.addEventListener('abort', () => resolve()))
      return 'too late'
    },
  })
  const space = spaceOf(add, forever)
  const round = executeBatch(
    space,
    [
      { id: '1', name: 'add', arguments: { a: 1 } },
      { id: '2', name: 'forever', arguments: {} },
      { id: '3', name: 'add', arguments: { a: 2 } },
      { id: '4', name: 'forever', arguments: '{}' },
    ],
    { signal: controller.signal, concurrency: 1 },
  )
  await within(begun.promise, 'the call to begin')
  controller.abort()
  const { answers } = await within(round, 'the round to end')
  expect(stopped).toBe(true)
  expect(answers.map(({ id, success, errorType, executed }) => [id, success, errorType, executed])).toEqual([
    ['1', true, undefined, true],
    ['2', false, 'canceled', true],
    ['3', false, 'canceled', false],
    ['4', false, 'canceled', false],
  ])
  expect(answers[2]?.error).toBe('Not executed: The call was cancelled.')
})

test('an aborted round does not wait for a space that ignores its signal', async () => {
  const controller = new AbortController()
  const tryCall = (): Promise<ToolResult> => {
    controller.abort()
    return new Promise(() => {})
  }
  const { answers } = await within(
    executeBatch({ tryCall }, [{ id: '1', name: 't', arguments: {} }], { signal: controller.signal }),
    'the round to end',
  )
  expect(answers[0]).toMatchObject({ id: '1', errorType: 'canceled' })
})

test('a round keeps to the tools of its beginning', async () => {
  let table = new Map([['v', 'old']])
  const spaceOver = (tools: ReadonlyMap<string, string>): BatchSpace => ({
    tryCall: async (name) => {
      await new Promise((resolve) => setImmediate(resolve))
      const meta = { tool: name, callId: '', durationMs: 0 }
      return { success: true, data: tools.get(name) ?? 'gone', meta }
    },
  })
  const space: BatchSpace = { tryCall: (name) => spaceOver(table).tryCall(name), snapshot: () => spaceOver(table) }
  const calls = [1, 2, 3].map((n) => ({ id: `${n}`, name: 'v', arguments: { n } }))
  const round = executeBatch(space, calls, { concurrency: 1 })
  table = new Map()
  expect((await round).answers.map(({ content }) => content)).toEqual(['old', 'old', 'old'])
  expect((await executeBatch(space, calls)).answers.map(({ content }) => content)).toEqual(['gone', 'gone', 'gone'])
})

describe('what a round leaves behind', () => {
  test('references out of results, each once', async () => {
    const web = tool('web', () => ({
      text: 'x',
      references: [
        'https://a.example/1',
        { url: 'https://a.example/2', title: 'Two', id: 7 },
        { uri: 'https://a.example/3', name: 'Three', mimeType: 'text/html' },
        'A book',
        {},
        5,
      ],
      sources: ['https://a.example/1'],
    }))
    const files = tool(
      'files',
      () =>
        new Content([
          { text: 'see' },
          { url: 'file:///a.txt', filename: 'a.txt', mediaType: 'text/plain' },
          { data: { content: [{ type: 'resource_link', uri: 'mem://x', title: 'X' }] } },
        ]),
    )
    const { answers, references } = await executeBatch(spaceOf(web, files), [
      { id: '1', name: 'web', arguments: {} },
      { id: '2', name: 'files', arguments: {} },
      { id: '3', name: 'web', arguments: {} },
    ])
    const fromWeb = [
      { url: 'https://a.example/1' },
      { url: 'https://a.example/2', id: '7', title: 'Two' },
      { url: 'https://a.example/3', title: 'Three', mediaType: 'text/html' },
      { title: 'A book' },
    ]
    const fromFiles = [
      { url: 'file:///a.txt', title: 'a.txt', mediaType: 'text/plain' },
      { url: 'mem://x', title: 'X' },
    ]
    expect(answers.map((answer) => answer.references)).toEqual([fromWeb, fromFiles, fromWeb])
    expect(references).toEqual([...fromWeb, ...fromFiles])
  })

  test('the checks of the tools that were executed, each once', async () => {
    const one = tool('one', () => 1, { evaluationChecks: ['hallucination', 'tone'] })
    const two = tool('two', () => 2, { evaluationChecks: ['tone', 'sources'] })
    const three = tool('three', () => 3, { evaluationChecks: ['never'] })
    const { evaluationChecks } = await executeBatch(
      spaceOf(one, two, three),
      [
        { id: '1', name: 'one', arguments: {} },
        { id: '2', name: 'two', arguments: {} },
        { id: '3', name: 'three', arguments: {} },
      ],
      { limit: 2 },
    )
    expect(evaluationChecks).toEqual(['hallucination', 'tone', 'sources'])
  })

  test('what is worth knowing of each call', async () => {
    const local = tool('local', () => 1, { exclusive: true })
    const peer: Tool = { ...tool('peer', () => 1), kind: 'a2a' }
    const server: Tool = { ...tool('server', () => 1), kind: 'mcp' }
    const tools = [local, peer, server]
    const space: BatchSpace = {
      get: (name) => tools.find((each) => each.name === name),
      tryCall: (name) => Promise.resolve({ success: true, data: 1, meta: { tool: name, callId: '', durationMs: 0 } }),
    }
    const calls = ['local', 'peer', 'server'].map((name) => ({ id: name, name, arguments: {} }))
    const { answers } = await executeBatch(space, calls, { forced: ['peer'] })
    const seconds = expect.any(Number)
    expect(answers.map(({ debug }) => debug)).toEqual([
      { is_exclusive: true, is_forced: false, execution_time_s: seconds },
      { is_exclusive: false, is_forced: true, is_sub_agent: true, execution_time_s: seconds },
      { is_exclusive: false, is_forced: false, is_mcp: true, execution_time_s: seconds },
    ])
    for (const { debug } of answers) expect(String(debug.execution_time_s)).toMatch(/^\d+(\.\d{1,3})?$/)
  })

  test('a history, which forgets the oldest', async () => {
    const history = new CallHistory({ maxRecords: 3 })
    const plain: CallRecord[] = []
    for (let n = 0; n < 5; n++) {
      const call = { id: `${n}`, name: 'add', arguments: `{"a":${n}}` }
      await executeBatch(spaceOf(add), [call], { history })
      await executeBatch(spaceOf(add), [call, null], { history: plain })
    }
    expect([...history].map(({ id, arguments: args, content }) => [id, args, content])).toEqual([
      ['2', { a: 2 }, '{"sum":3}'],
      ['3', { a: 3 }, '{"sum":4}'],
      ['4', { a: 4 }, '{"sum":5}'],
    ])
    expect(history).toMatchObject({ length: 3, total: 5 })
    expect(plain).toHaveLength(10)
    expect(plain[1]).toMatchObject({ id: 'call_2', success: false, executed: false, errorType: 'invalid_params' })
    expect(() => new CallHistory({ maxRecords: 0 })).toThrow(/whole number of 1 or more, got 0/)
  })

  test('a history that fails costs no answer', async () => {
    const history = {
      push() {
        throw new Error('full')
      },
    }
    const { answers } = await executeBatch(spaceOf(add), [{ id: '1', name: 'add', arguments: { a: 1 } }], { history })
    expect(answers[0]?.data).toEqual({ sum: 2 })
  })

  test('the messages that providers want', async () => {
    const { answers } = await executeBatch(spaceOf(add), [
      { id: 'a', name: 'add', arguments: { a: 1 } },
      { id: 'b', name: 'gone', arguments: {} },
    ])
    expect(toOpenAiMessages(answers)).toEqual([
      { role: 'tool', tool_call_id: 'a', content: '{"sum":2}' },
      { role: 'tool', tool_call_id: 'b', content: answers[1]?.content },
    ])
    expect(toAnthropicBlocks(answers)).toEqual([
      { type: 'tool_result', tool_use_id: 'a', content: '{"sum":2}' },
      { type: 'tool_result', tool_use_id: 'b', content: answers[1]?.content, is_error: true },
    ])
  })

  test('no content that is longer than it may be, of results and of failures', async () => {
    const long = tool('long', () => 'x'.repeat(100_000))
    const failing = tool('failing', () => {
      throw new Error('y'.repeat(3_000))
    })
    const calls = ['long', 'failing'].map((name) => ({ id: name, name, arguments: {} }))
    const { answers } = await executeBatch(spaceOf(long, failing), calls, { maxChars: 500 })
    expect(answers.every(({ content }) => content.length <= 500)).toBe(true)
    expect(answers[0]?.data).toHaveLength(100_000)
    expect(JSON.parse(answers[1]!.content)).toMatchObject({ error_type: 'tool_failed' })
  })
})

/** Numbers that look random and are the same in each run. */
function numbers(seed: number): (below: number) => number {
  let state = seed
  return (below) => {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0
    return Math.floor((state / 2 ** 32) * below)
  }
}

test('any round at all gets one answer for each call, in order, and nothing is thrown', async () => {
  let runs = 0
  const space = spaceOf(
    add,
    tool('ok', () => ++runs),
    tool('fails', () => Promise.reject(new Error('no'))),
    tool('odd', () => undefined),
    tool('later', () => new Promise((resolve) => setImmediate(() => resolve('late')))),
    tool('bytes', () => new Uint8Array(10)),
    tool('takes', () => 1, { takeControl: true }),
  )
  const names = ['add', 'ok', 'fails', 'odd', 'later', 'bytes', 'gone', '', null, 'constructor', '__proto__']
  const args = [
    {},
    { a: 1 },
    { a: 1, b: 2 },
    { b: 2, a: 1 },
    '{"a":1}',
    '',
    '{',
    null,
    undefined,
    [],
    7,
    { f: () => 1 },
  ]
  const junk = [null, undefined, 1, 'add', [], {}, { id: 5 }, Object.create(null), () => 1]
  for (let seed = 0; seed < 300; seed++) {
    const next = numbers(seed)
    const pick = <Item>(items: readonly Item[]): Item => items[next(items.length)]!
    const calls = Array.from({ length: next(16) }, (_, n) => {
      if (next(10) === 0) return pick(junk)
      const id = pick([`id_${n}`, `id_${n}`, undefined, 'call_1', 'same'])
      const name = next(40) === 0 ? 'takes' : pick(names)
      const given = pick(args)
      return pick([
        { id, name, arguments: given },
        { id, type: 'function', function: { name, arguments: given } },
        { id, type: 'tool_use', name, input: given },
      ])
    })
    const controller = new AbortController()
    if (next(5) === 0) setImmediate(() => controller.abort())
    const limit = 1 + next(12)
    const { answers } = await executeBatch(space, calls as never, {
      limit,
      concurrency: 1 + next(4),
      signal: controller.signal,
    })
    const shown = `seed ${seed}`
    expect(answers, shown).toHaveLength(calls.length)
    expect(answers.filter(({ executed }) => executed).length, shown).toBeLessThanOrEqual(limit)
    answers.forEach((answer, i) => {
      const call = calls[i] as { id?: unknown } | null | undefined
      expect(answer.id, shown).toBe(typeof call?.id === 'string' ? call.id : answer.id)
      expect(answer.id, shown).not.toBe('')
      expect(typeof answer.content, shown).toBe('string')
      expect(answer.success, shown).toBe(answer.errorType === undefined)
      const said = answer.success ? undefined : (JSON.parse(answer.content) as { error_type: string }).error_type
      expect(said, shown).toBe(answer.errorType)
    })
  }
  expect(runs).toBeGreaterThan(0)
})

test('a round by definitions whose schemas were bent gets its params back', async () => {
  const seen: unknown[] = []
  const tool = defineTool({
    name: 'find',
    description: 'Finds.',
    input: {
      type: 'object',
      properties: { text: { type: 'string' }, limit: { type: 'integer' } },
      required: ['text'],
      additionalProperties: false,
    },
    run: (params) => void seen.push(params),
  })
  const registry = new LocalToolRegistry()
  registry.register(tool)
  const definitions = createDefinitions([tool], { for: 'openai', strict: true })
  expect(definitions.notStrict).toEqual([])
  const call = {
    id: '1',
    type: 'function',
    function: { name: 'find', arguments: '{"text":"a","limit":null}' },
  } as const
  const { answers } = await executeBatch(new ToolManager({ registry }), [call], { names: definitions })
  expect(answers[0]?.success).toBe(true)
  expect(seen).toEqual([{ text: 'a' }])
})

test('pictures go along to a model that takes them', async () => {
  const registry = new LocalToolRegistry()
  const parts = [
    { text: 'A dot.' },
    { raw: 'iVBORw==', mediaType: 'image/png' },
    { raw: 'AAAA', mediaType: 'audio/wav' },
  ]
  registry.register(
    defineTool({ name: 'dot', description: 'Draws.', input: { type: 'object' }, run: () => new Content(parts) }),
  )
  const { answers } = await executeBatch(new ToolManager({ registry }), [{ id: '1', name: 'dot', arguments: {} }])
  const [block] = toAnthropicBlocks(answers)
  expect(block?.content).toEqual([
    { type: 'text', text: expect.stringContaining('A dot.') as string },
    { type: 'image', source: { type: 'base64', media_type: 'image/png', data: 'iVBORw==' } },
  ])
})
