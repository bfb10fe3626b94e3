import {
  Content,
  createDefinitions,
  defineTool,
  estimateTokens,
  fromModelArguments,
  LocalToolRegistry,
  ModelNames,
  toLangChain,
  toMcp,
  ToolManager,
  toOpenAi,
  toolPrompts,
  toParameters,
  type DefinitionOptions,
  type JsonObject,
  type JsonSchema,
  type Provider,
  type Tool,
} from 'convoke'
import { expect, test } from 'vitest'
import { until } from './support/lifetime.js'

const search = defineTool({
  name: 'search',
  description: 'Finds notes.',
  input: {
    type: 'object',
    properties: {
      text: { type: 'string', description: 'What to look for.' },
      limit: { type: 'integer', default: 10 },
      since: { type: ['string', 'null'] },
      anything: {},
    },
    required: ['text'],
  },
  run: () => [],
})

/** A tool of another, by its handle. */
function foreign(name: string, more: Partial<Tool> = {}): Tool {
  const input = { type: 'object', properties: { n: { type: 'integer' } } } as const
  const tool = defineTool({ name: 'foreign', description: 'Foreign.', input, run: () => null })
  return { ...tool, kind: 'mcp', name, description: `Does ${name}.`, ...more }
}

function managerOf(...tools: Tool[]): ToolManager {
  const registry = new LocalToolRegistry()
  for (const tool of tools) registry.register(tool)
  return new ToolManager({ registry })
}

test('the params of a tool are listed with type, need and default, in the order of its schema', () => {
  expect(toParameters(search)).toEqual([
    { name: 'text', type: 'string', required: true, description: 'What to look for.' },
    { name: 'limit', type: 'integer', required: false, default: 10 },
    { name: 'since', type: 'string|null', required: false },
    { name: 'anything', type: 'any', required: false },
  ])
  const none = defineTool({ name: 'none', description: 'Takes nothing.', input: { type: 'object' }, run: () => null })
  expect(toParameters(none)).toEqual([])
})

test('a model is given the whole schema of a tool', () => {
  expect(toOpenAi(search)).toEqual({
    type: 'function',
    function: { name: 'search', description: 'Finds notes.', parameters: search.input },
  })
})

test('tools are told apart by where they come from', () => {
  const registry = new LocalToolRegistry()
  registry.register(search)
  registry.register({ name: 'plain', call: () => 1 })
  expect(registry.list({ kind: 'local' }).map(({ name }) => name)).toEqual(['search'])
  expect(registry.list({ kind: 'custom' }).map(({ name }) => name)).toEqual(['plain'])
  expect(registry.list({ kind: 'mcp' })).toEqual([])
})

const counter = foreign('bob.count', {
  description: 'Counts.',
  input: { type: 'object', properties: { n: { type: 'integer', minimum: 1 } }, required: ['n'] },
})
const name = 'bob__count'
const description = 'Counts.'
const schema = counter.input

const shapes: { readonly [For in Provider]: unknown } = {
  openai: { type: 'function', function: { name, description, parameters: schema } },
  'openai-responses': { type: 'function', name, description, parameters: schema, strict: false },
  anthropic: { name, description, input_schema: schema },
  gemini: { functionDeclarations: [{ name, description, parameters: schema }] },
  mcp: { name, description, inputSchema: schema, annotations: {} },
  langchain: {
    name,
    description,
    schema,
    responseFormat: 'content',
    returnDirect: false,
    lc_namespace: ['convoke', 'tools'],
    lc_runnable: true,
  },
}
const choices: { readonly [For in Provider]: unknown } = {
  openai: { type: 'function', function: { name } },
  'openai-responses': { type: 'function', name },
  anthropic: { type: 'tool', name },
  gemini: { functionCallingConfig: { mode: 'ANY', allowedFunctionNames: [name] } },
  mcp: name,
  langchain: name,
}

function optionsFor(provider: Provider): DefinitionOptions<Provider> {
  return { for: provider, space: managerOf() } as DefinitionOptions<Provider>
}

test.each(Object.keys(shapes) as Provider[])('%s gets its own shape, and a name that leads back', (provider) => {
  const made = createDefinitions([counter], optionsFor(provider))
  expect(made.definitions).toHaveLength(1)
  expect(made.definitions[0]).toMatchObject(shapes[provider] as object)
  // Functions are compared by what they do, below.
  const said = JSON.parse(JSON.stringify(made.definitions)) as unknown[]
  expect(said).toEqual([shapes[provider]])
  expect(made.choiceOf('bob.count')).toEqual(choices[provider])
  expect(made.nameOf('bob.count')).toBe(name)
  expect(made.handleOf(name)).toBe('bob.count')
  expect(made.handleOf('bob.count')).toBeUndefined()
  expect(made.argumentsOf(name, { n: 3 })).toEqual({ n: 3 })
  expect(() => made.choiceOf('bob.other')).toThrow(/"bob.other" is not among the definitions/)
  expect(createDefinitions([], optionsFor(provider))).toMatchObject({ definitions: [], tokens: 0 })
})

test('arguments come as an object or as its JSON; anything else says what is wrong', () => {
  const { argumentsOf } = createDefinitions([counter], { for: 'openai' })
  expect(argumentsOf(name, '{"n": 3}')).toEqual({ n: 3 })
  expect(argumentsOf(name, ' ')).toEqual({})
  const failures = [
    ['{"n":', 'invalid_params', 'must be JSON, got'],
    ['[3]', 'invalid_params', 'must be a JSON object, got an array of 1'],
    [null, 'invalid_params', 'must be a JSON object, got null'],
    ['['.repeat(500), 'invalid_params', 'must be JSON'],
  ] as const
  for (const [given, code, message] of failures) {
    expect(() => argumentsOf(name, given)).toThrow(
      expect.objectContaining({ code, message: expect.stringContaining(message) as string }),
    )
  }
  expect(() => argumentsOf('bob.count', {})).toThrow(expect.objectContaining({ code: 'not_found' }))
})

test('names keep the limits of their provider, and may be shared between lists', () => {
  const long = foreign(`${'s'.repeat(60)}.${'t'.repeat(60)}`)
  const digit = foreign('9lives.x')
  const accepted: Partial<Record<Provider, RegExp>> = {
    mcp: /^[A-Za-z0-9_-]{1,45}$/,
    gemini: /^[A-Za-z_][A-Za-z0-9_-]{0,63}$/,
  }
  for (const provider of Object.keys(shapes) as Provider[]) {
    const made = createDefinitions([long, digit], optionsFor(provider))
    for (const tool of [long, digit]) {
      const given = made.nameOf(tool.name)
      expect(given).toMatch(accepted[provider] ?? /^[A-Za-z0-9_-]{1,64}$/)
      expect(made.handleOf(given)).toBe(tool.name)
    }
  }
  const names = new ModelNames()
  createDefinitions([counter], { for: 'openai', names })
  expect(names.handleOf(name)).toBe('bob.count')
})

test('a strict definition asks for every member, and null for what is not given is taken out again', () => {
  const input: JsonSchema = {
    type: 'object',
    properties: {
      path: { type: 'string' },
      limit: { type: 'integer', default: 10 },
      at: {
        type: 'object',
        properties: { line: { type: 'integer' }, column: { type: 'integer' } },
        required: ['line'],
      },
      tags: { type: 'array', items: { type: 'object', properties: { k: { type: 'string' } } } },
      owner: { type: ['string', 'null'], default: null },
    },
    required: ['path'],
  }
  const made = createDefinitions([foreign('read', { input })], { for: 'openai', strict: true })
  expect(made.notStrict).toEqual([])
  expect(made.definitions[0]?.function).toMatchObject({
    strict: true,
    parameters: {
      required: ['path', 'limit', 'at', 'tags', 'owner'],
      additionalProperties: false,
      properties: {
        path: { type: 'string' },
        limit: { type: ['integer', 'null'], description: 'Default: 10.\nNull when not given.' },
        at: { type: ['object', 'null'], required: ['line', 'column'], additionalProperties: false },
      },
    },
  })
  const written = {
    path: 'x',
    limit: null,
    at: { line: 1, column: null },
    tags: [{ k: null }, { k: 'v' }],
    owner: null,
  }
  const before = structuredClone(written)
  expect(made.argumentsOf('read', written)).toEqual({ path: 'x', at: { line: 1 }, tags: [{}, { k: 'v' }] })
  expect(written).toEqual(before)
  expect(made.argumentsOf('read', { path: null, limit: null })).toEqual({ path: null })
  const responses = createDefinitions([foreign('read', { input })], { for: 'openai-responses', strict: true })
  expect(responses.definitions[0]).toMatchObject({ name: 'read', strict: true })
})

test.each<[string, JsonObject, string]>([
  ['any value', { v: {} }, 'a value in it may be anything'],
  [
    'properties of any name',
    { v: { type: 'object', additionalProperties: { type: 'string' } } },
    'takes properties of any name',
  ],
  ['an object without properties', { v: { type: 'object' } }, 'does not say its properties'],
  ['null that means something', { v: { type: ['string', 'null'] } }, 'may be left out or be null'],
  ['too deep an object', deep(12), 'nests deeper than 10 levels'],
  ['too many values', { v: { enum: Array.from({ length: 1001 }, (_, i) => `v${i}`) } }, 'lists more than 1000 values'],
])('a schema with %s is not strict, and says why', (_, properties, reason) => {
  const tool = foreign('loose', { input: { type: 'object', properties } })
  const made = createDefinitions([tool], { for: 'openai', strict: true })
  expect(made.notStrict).toEqual([{ handle: 'loose', reason: expect.stringContaining(reason) as string }])
  expect(made.definitions[0]?.function).toEqual({ name: 'loose', description: 'Does loose.', parameters: tool.input })
  expect(made.argumentsOf('loose', { v: null })).toEqual({ v: null })
})

function deep(levels: number): JsonObject {
  return { v: levels === 0 ? { type: 'string' } : { type: 'object', properties: deep(levels - 1) } }
}

test('names of properties that a provider refuses are replaced, everywhere, and put back', () => {
  const input: JsonSchema = {
    type: 'object',
    properties: {
      $filter: { type: 'string' },
      'größe in cm': { type: 'object', properties: { 'x y': { type: 'number' } }, required: ['x y'] },
      plain: { type: 'array', items: { $ref: '#/$defs/item' } },
    },
    required: ['$filter'],
    dependentRequired: { $filter: ['größe in cm'] },
    $defs: { item: { type: 'object', properties: { 'a/b': { type: 'string' } } } },
  }
  const tool = foreign('odata', { input })
  const anthropic = createDefinitions([tool], { for: 'anthropic' })
  const [{ input_schema: bent } = { input_schema: {} as JsonObject }] = anthropic.definitions
  const names = Object.keys(bent['properties'] as JsonObject)
  expect(names).toEqual([
    expect.stringMatching(/^_filter_[0-9a-f]{8}$/),
    expect.stringMatching(/^gr__e_in_cm_[0-9a-f]{8}$/),
    'plain',
  ])
  const [filter = '', size = ''] = names
  expect(bent).toMatchObject({ required: [filter], dependentRequired: { [filter]: [size] } })
  const [xy = ''] = (bent['properties'] as Record<string, { required?: string[] }>)[size]?.required ?? []
  expect(xy).toMatch(/^x_y_[0-9a-f]{8}$/)
  const item = Object.keys(((bent['$defs'] as JsonObject)['item'] as JsonObject)['properties'] as JsonObject)
  const given = { [filter]: 'f', [size]: { [xy]: 1 }, plain: [{ [item[0] ?? '']: 'ab' }], other: null }
  const meant = { $filter: 'f', 'größe in cm': { 'x y': 1 }, plain: [{ 'a/b': 'ab' }], other: null }
  expect(anthropic.argumentsOf('odata', given)).toEqual(meant)
  expect(createDefinitions([tool], { for: 'gemini' }).argumentsOf('odata', given)).toEqual(meant)
  expect(toOpenAi(tool).function.parameters).toHaveProperty(['properties', '$filter'])
})

test('a recursive schema is cut for Gemini where it comes again, and a small one that stands for millions where it ends', () => {
  const bomb: JsonObject = { d30: { type: 'string' } }
  for (let i = 0; i < 30; i++) {
    const next = { $ref: `#/$defs/d${i + 1}` }
    bomb[`d${i}`] = { type: 'object', properties: { a: next, b: next }, anyOf: [next, next], allOf: [next, next] }
  }
  const tool = foreign('bomb', {
    input: {
      type: 'object',
      properties: { x: { $ref: '#/$defs/d0' } },
      anyOf: [{ $ref: '#/$defs/d0' }, { $ref: '#/$defs/d1' }],
      $defs: bomb,
    },
  })
  for (const provider of Object.keys(shapes) as Provider[]) {
    const made = createDefinitions([tool], {
      ...optionsFor(provider),
      ...(provider === 'openai' ? { strict: true } : {}),
    })
    expect(made.tokens).toBeLessThan(1_000_000)
  }
  const started = performance.now()
  fromModelArguments(tool.input, { x: { a: { a: { b: null } }, b: null } })
  expect(performance.now() - started).toBeLessThan(5000)
})

test('a description is cut at what OpenAI takes, and says how much is missing', () => {
  const description = `${'x'.repeat(1100)}🙂`
  const { definitions } = createDefinitions([foreign('long', { description })], { for: 'openai' })
  const text = definitions[0]?.function.description ?? ''
  expect(text.length).toBeGreaterThan(1000)
  expect(text.length).toBeLessThanOrEqual(1024)
  const cut = /^(x+) \[…(\d+) more characters\]$/.exec(text)
  expect((cut?.[1]?.length ?? 0) + Number(cut?.[2])).toBe(description.length)
  // Not in the middle of a character.
  const pairs = createDefinitions([foreign('long', { description: '🙂'.repeat(1000) })], { for: 'openai' })
    .definitions[0]
  expect(pairs?.function.description).toMatch(/^(?:🙂)+ \[…\d+ more characters\]$/u)
  expect(createDefinitions([foreign('long', { description })], { for: 'anthropic' }).definitions[0]?.description).toBe(
    description,
  )
  expect(toMcp(foreign('bare', { description: ' ' })).description).toBe('The tool bare.')
})

test('a function of Gemini without params has no schema; what is said of them goes with its description', () => {
  const input: JsonSchema = { type: 'object', minProperties: 1, description: 'Whatever you like.' }
  expect(createDefinitions([foreign('free', { input })], { for: 'gemini' }).definitions).toEqual([
    { functionDeclarations: [{ name: 'free', description: 'Does free.\nWhatever you like.' }] },
  ])
  const json = createDefinitions([foreign('free', { input })], { for: 'gemini', jsonSchema: true }).definitions
  expect(json[0]?.functionDeclarations[0]).toHaveProperty('parametersJsonSchema.type', 'object')
})

test('MCP hosts are told what a tool changes and what it gives; only an object is promised', () => {
  const output: JsonSchema = { type: 'object', properties: { n: false, m: true } }
  expect(toMcp(foreign('a.b', { output, traits: { readOnly: true } }))).toMatchObject({
    name: 'a__b',
    outputSchema: { type: 'object', properties: { n: { not: {} }, m: {} } },
    annotations: { readOnlyHint: true, destructiveHint: false },
  })
  const number = toMcp(
    foreign('a.b', { output: { type: 'number', minimum: 7 }, traits: { idempotent: true } }),
    'other',
  )
  expect(number).toEqual({
    name: 'other',
    description: 'Does a.b.\nThe result fits {"type":"number","minimum":7}.',
    inputSchema: { type: 'object', properties: { n: { type: 'integer' } } },
    annotations: { idempotentHint: true },
  })
})

test('definitions are made once, and never of the tool itself', () => {
  const frozen = Object.freeze({
    ...counter.input,
    properties: Object.freeze({ n: Object.freeze({ type: 'integer' }) }),
  })
  const tool = foreign('frozen', { input: frozen as unknown as JsonSchema })
  const [first] = createDefinitions([tool], { for: 'openai' }).definitions
  const [second] = createDefinitions([tool], { for: 'openai' }).definitions
  expect(second?.function.parameters).toBe(first?.function.parameters)
  expect(first?.function.parameters).not.toBe(tool.input)
})

test('tools are selected by handle, by glob and by search, the most relevant first, each once', () => {
  const tools = ['a.one', 'a.two', 'b.one', 'b.two', 'c'].map((handle) => foreign(handle))
  const texts: string[] = []
  const find = (text: string): string[] => {
    texts.push(text)
    return ['b.two', 'gone', 'a.one', 'c']
  }
  const made = createDefinitions([...tools, foreign('c')], {
    for: 'mcp',
    select: { handles: ['b.one', 'a.*', 'nope', 'x.*'], search: { text: 'words', find } },
  })
  expect(made.definitions.map((each) => each.name)).toEqual(['b__one', 'a__one', 'a__two', 'b__two', 'c'])
  expect(made.unknown).toEqual(['nope', 'x.*'])
  expect(texts).toEqual(['words'])
  expect(createDefinitions([...tools, foreign('c')], { for: 'mcp' }).definitions).toHaveLength(5)
  expect(createDefinitions(tools, { for: 'mcp', select: {} }).definitions).toEqual([])
})

test('a budget of tokens keeps the most relevant tools that fit, and says which it left out', () => {
  const big = foreign('big', { description: 'x'.repeat(4000) })
  const tools = [foreign('first'), big, foreign('second'), foreign('third')]
  const all = createDefinitions(tools, { for: 'anthropic' })
  expect(all.tokens).toBe(all.definitions.reduce((sum, each) => sum + estimateTokens(each), 0))
  expect(estimateTokens({ a: 1 })).toBe(2)
  const two = estimateTokens(all.definitions[0]) + estimateTokens(all.definitions[2])
  const made = createDefinitions(tools, { for: 'anthropic', maxTokens: two })
  expect(made.definitions.map((each) => each.name)).toEqual(['first', 'second'])
  expect(made.leftOut).toEqual(['big', 'third'])
  expect(made.tokens).toBe(two)
  expect(made.handleOf('third')).toBeUndefined()
  expect(createDefinitions(tools, { for: 'anthropic', maxTokens: 0 }).definitions).toEqual([])
  expect(createDefinitions(tools, { for: 'anthropic', maxTokens: 1e9 }).leftOut).toEqual([])
})

test.each<[object, string]>([
  [
    { for: 'claude' },
    '`for` must be one of openai, openai-responses, anthropic, gemini, mcp, langchain, got "claude".',
  ],
  [{ for: 'gemini', strict: true }, 'Only definitions for OpenAI can be strict, not those for gemini.'],
  [{ for: 'mcp', maxTokens: -1 }, '`maxTokens` must be a number of 0 or more, got -1.'],
  [{ for: 'mcp', maxTokens: Number.NaN }, '`maxTokens` must be a number of 0 or more, got NaN.'],
  [{ for: 'langchain' }, 'Tools for LangChain need a `space` that runs them'],
])('options %j are refused with what to do', (options, message) => {
  expect(() => createDefinitions([], options as DefinitionOptions<'mcp'>)).toThrow(
    expect.objectContaining({ code: 'config', message: expect.stringContaining(message) as string }),
  )
})

const greet = defineTool({
  name: 'greet',
  description: 'Greets.',
  input: { type: 'object', properties: { 'who is it': { type: 'string' } }, required: ['who is it'] },
  run: (params) => {
    const who = params['who is it']
    if (who === 'parts')
      return new Content([
        { text: 'Hello' },
        { data: { a: 1 } },
        { raw: 'AAAA', mediaType: 'image/png' },
        { url: 'https://example.org/x', filename: 'x' },
      ])
    if (who === 'bytes') return new Uint8Array(5)
    if (who === 'nobody') throw new Error('There is nobody.')
    return who === 'json' ? { hello: true } : `Hello ${who}.`
  },
})

test('a LangChain tool is one by the looks of it, runs by the manager and gives text', async () => {
  const tool = toLangChain(greet, managerOf(greet))
  // What `isStructuredTool`, `isLangChainTool` and `Runnable.isRunnable` of @langchain/core look at.
  expect(Array.isArray(tool.lc_namespace) && 'name' in tool && tool.schema.type === 'object' && tool.lc_runnable).toBe(
    true,
  )
  const [who = ''] = Object.keys(tool.schema['properties'] as JsonObject)
  expect(who).toMatch(/^who_is_it_[0-9a-f]{8}$/)
  expect(await tool.invoke({ [who]: 'Ada' })).toBe('Hello Ada.')
  expect(await tool.invoke({ type: 'tool_call', id: '1', name: 'greet', args: { [who]: 'Ada' } })).toBe('Hello Ada.')
  expect(await tool.call(JSON.stringify({ [who]: 'json' }))).toBe('{"hello":true}')
  expect(await tool.func({ [who]: 'bytes' })).toBe('[5 bytes]')
  expect(await tool.invoke({ [who]: 'parts' })).toBe('Hello\n{"a":1}\n[image/png, 3 bytes]\nhttps://example.org/x (x)')
  await expect(tool.invoke({ [who]: 'nobody' })).rejects.toMatchObject({
    code: 'tool_failed',
    message: 'There is nobody.',
  })
  await expect(tool.invoke({})).rejects.toMatchObject({ code: 'invalid_params' })
  await expect(tool.invoke(7)).rejects.toMatchObject({ code: 'invalid_params' })
})

test('a LangChain tool gives the value beside the text where that is asked for', async () => {
  const { definitions } = createDefinitions([greet], {
    for: 'langchain',
    space: managerOf(greet),
    responseFormat: 'content_and_artifact',
  })
  const [tool] = definitions
  const [who = ''] = Object.keys(tool?.schema['properties'] as JsonObject)
  expect(tool?.responseFormat).toBe('content_and_artifact')
  expect(await tool?.invoke({ [who]: 'json' })).toEqual(['{"hello":true}', { hello: true }])
})

test('the signal and the timeout of a LangChain call stop the tool', async () => {
  const signals: AbortSignal[] = []
  const wait = defineTool({
    name: 'wait',
    description: 'Waits.',
    input: { type: 'object' },
    run: async (_, { signal }) => {
      signals.push(signal)
      await new Promise((_resolve, reject) => signal.addEventListener('abort', () => reject(signal.reason as Error)))
    },
  })
  const tool = toLangChain(wait, managerOf(wait))
  const stop = new AbortController()
  const stopped = tool.invoke({}, { signal: stop.signal })
  await until(() => signals.length === 1)
  stop.abort()
  await expect(stopped).rejects.toMatchObject({ code: 'canceled' })
  expect(signals[0]?.aborted).toBe(true)
  await expect(tool.func({}, undefined, { timeout: 20 })).rejects.toMatchObject({ code: 'timeout' })
  expect(signals[1]?.aborted).toBe(true)
})

test('prompts say when to use each tool, how to write its params, and what to heed afterwards', () => {
  const edit = foreign('files.edit', {
    description: 'Changes a file.',
    input: {
      type: 'object',
      properties: {
        path: { type: 'string', description: 'From the root.\n  Not absolute.' },
        mode: { type: 'string', default: 'w' },
        note: {},
      },
      required: ['path'],
    },
    traits: {
      idempotent: true,
      timeoutMs: 1500,
      prompt: {
        system: 'Read a file before you change it.',
        user: 'Name the file.',
        reminder: 'Say what you changed.',
      },
    },
  })
  const look = foreign('look', {
    input: { type: 'object' },
    traits: { readOnly: true, prompt: { reminder: 'Look once.' } },
  })
  const { system, user, remind } = toolPrompts([edit, look])
  expect(system).toBe(`# Tools

## files__edit
Changes a file.
Read a file before you change it.
A second call with the same params changes nothing more. Runs for up to 1.5 s.
Params:
- \`path\` (string, required): From the root. Not absolute.
- \`mode\` (string, default "w")
- \`note\` (any, optional)

## look
Does look.
Changes nothing.
No params.`)
  expect(user).toBe('files__edit: Name the file.')
  expect(remind(['look', 'files.edit', 'look', 'other'])).toBe('look: Look once.\nfiles__edit: Say what you changed.')
  expect(remind([])).toBe('')
  const { nameOf } = createDefinitions([edit, look], { for: 'mcp' })
  expect(toolPrompts([edit], { nameOf }).system).toContain('## files__edit')
  expect(toolPrompts([])).toMatchObject({ system: '', user: '' })
})

test.each<[JsonObject]>([
  [{ properties: null, required: 'x' }],
  [{ properties: { a: 5, b: null, c: 'x', d: [] } }],
  [{ properties: { a: { type: 7, enum: 'x', items: 5, anyOf: {}, oneOf: [] } } }],
  [{ properties: { a: { $ref: 5 }, b: { $ref: '#nowhere' }, c: { $ref: '#/properties/none' } } }],
  [{ allOf: [1, null, { $ref: '#' }], anyOf: [null, 'x', false], not: null, if: 7 }],
  [
    {
      properties: {
        a: { type: [], anyOf: [false, { type: 'null' }] },
        b: { type: 'array', prefixItems: {}, items: [] },
      },
    },
  ],
  [JSON.parse('{"properties": {"__proto__": {"type": "string"}}, "required": ["__proto__"]}') as JsonObject],
])('a stranger’s schema that makes no sense, %j, is no reason to fail', (odd) => {
  const tool = foreign('odd', { input: { type: 'object', ...odd } })
  for (const provider of Object.keys(shapes) as Provider[]) {
    const options = { ...optionsFor(provider), ...(provider.startsWith('openai') ? { strict: true } : {}) }
    const made = createDefinitions([tool], options)
    expect(made.argumentsOf(made.nameOf('odd'), { a: [{ a: 1 }], x: null })).toMatchObject({ a: [{ a: 1 }] })
    expect(JSON.stringify(made.definitions)).toContain('odd')
  }
  expect(toolPrompts([tool]).system).toContain('## odd')
})
