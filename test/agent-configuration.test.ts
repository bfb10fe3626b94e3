import { mkdir, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { AgentConfiguration, defineOption } from 'convoke'
import type { Json, JsonObject } from 'convoke'
import { describe, expect, test } from 'vitest'
import { temporaryFolder } from './support/lifetime.ts'

const retries = defineOption({ key: 'model.retries', type: 'integer', default: 2 })
const prompt = defineOption({ key: 'model.prompt', type: 'string' })

/** The message of the `config` error that the function throws. */
async function mistakeOf(work: () => unknown): Promise<string> {
  try {
    await work()
  } catch (error) {
    const { code, message } = error as { code?: string; message: string }
    return code === 'config' ? message : `${code}: ${message}`
  }
  return 'nothing was thrown'
}

describe('the configuration of an agent', () => {
  test('gives options their type, and their default where nothing is configured', () => {
    const config = new AgentConfiguration({ model: { retries: 5 } })
    const given: number = config.get(retries)
    const missing: string | undefined = config.get(prompt)
    expect([given, missing]).toEqual([5, undefined])
    expect(new AgentConfiguration().get(retries)).toBe(2)
    const flag = defineOption({ key: 'verbose', type: 'boolean', default: true })
    const names = defineOption({ key: 'names', type: 'array', default: ['a'] })
    const limits = defineOption({ key: 'limits', type: 'object', default: {} })
    const score = defineOption({ key: 'score', type: 'number', default: 0.5 })
    const filled = new AgentConfiguration({ verbose: false, names: [], limits: { rounds: 1 }, score: 0 })
    expect([flag, names, limits, score].map((option) => filled.get<unknown>(option))).toEqual([
      false,
      [],
      { rounds: 1 },
      0,
    ])
    expect([flag, names, limits, score].map((option) => new AgentConfiguration().get<unknown>(option))).toEqual([
      true,
      ['a'],
      {},
      0.5,
    ])
  })

  test.each<JsonObject>([
    { model: { name: 'qwen', limits: { rounds: 3 } } },
    { 'model.name': 'qwen', 'model.limits.rounds': 3 },
    { model: { name: 'qwen', 'limits.rounds': 3 } },
    { 'model.limits': { rounds: 3 }, model: { name: 'qwen' } },
    { model: { name: 'qwen' }, 'model.limits': { rounds: 3 } },
  ])('is the same flat and nested: %j', (values) => {
    const config = new AgentConfiguration(values)
    expect(config.get('model.name')).toBe('qwen')
    expect(config.get('model.limits.rounds')).toBe(3)
    expect(config.get('model.limits')).toEqual({ rounds: 3 })
    expect(config.get('model')).toEqual({ name: 'qwen', limits: { rounds: 3 } })
    expect(config.toJSON()).toEqual({ model: { name: 'qwen', limits: { rounds: 3 } } })
  })

  test('has nothing where nothing was configured, also below a value and behind the names of Object.prototype', () => {
    const config = new AgentConfiguration({ name: 'Alice', list: [1] })
    const keys = ['missing', 'name.length', 'list.0', 'constructor', '__proto__', 'toString.name']
    expect(keys.map((key) => config.get(key))).toEqual(keys.map(() => undefined))
    const strange = new AgentConfiguration(JSON.parse('{"__proto__.x":1,"a":{"__proto__":{"y":2}}}') as JsonObject)
    expect([strange.get('__proto__.x'), strange.get('a.__proto__.y')]).toEqual([1, 2])
    expect([({} as JsonObject)['x'], ({} as JsonObject)['y']]).toEqual([undefined, undefined])
  })

  test('has typed getters with fallbacks', () => {
    const config = new AgentConfiguration({ name: 'Alice', port: 80, ratio: 0.5, on: false, none: 0 })
    expect([config.getString('name'), config.getInteger('port'), config.getNumber('ratio')]).toEqual(['Alice', 80, 0.5])
    expect([config.getBoolean('on', true), config.getNumber('none', 7)]).toEqual([false, 0])
    expect([config.getString('x'), config.getInteger('x'), config.getNumber('x'), config.getBoolean('x')]).toEqual(
      Array(4).fill(undefined),
    )
    const [text, whole, number, flag]: [string, number, number, boolean] = [
      config.getString('x', 'y'),
      config.getInteger('x', 1),
      config.getNumber('x', 1.5),
      config.getBoolean('x', true),
    ]
    expect([text, whole, number, flag]).toEqual(['y', 1, 1.5, true])
  })

  test.each<[string, (config: AgentConfiguration) => unknown, JsonObject, string]>([
    [
      'a text for a number',
      (config) => config.get(retries),
      { 'model.retries': 'three' },
      'The option "model.retries" must be a whole number, got a text, "three". Change it, or remove it and take the default.',
    ],
    [
      'a quoted number',
      (config) => config.getNumber('port'),
      { port: '80' },
      'The option "port" must be a number, got a text, "80". Write it without quotes.',
    ],
    [
      'a fraction for a whole number',
      (config) => config.getInteger('port'),
      { port: 1.5 },
      'The option "port" must be a whole number, got a number, 1.5. Change it, or remove it and take the default.',
    ],
    [
      'a quoted flag',
      (config) => config.getBoolean('on'),
      { on: 'true' },
      'The option "on" must be true or false, got a text, "true". Write it without quotes.',
    ],
    [
      'a number for a text',
      (config) => config.getString('version'),
      { version: 1 },
      'The option "version" must be a text, got a number, 1. Put it in quotes.',
    ],
    [
      'a text for a list',
      (config) => config.get(defineOption({ key: 'tools', type: 'array', default: [] })),
      { tools: '*' },
      'The option "tools" must be a list, got a text, "*". Write [ ] around it.',
    ],
    [
      'a list for an object',
      (config) => config.get(defineOption({ key: 'limits', type: 'object' })),
      { limits: [1, 2] },
      'The option "limits" must be an object, got a list. Change it, or remove it and take the default.',
    ],
    [
      'nothing for a text',
      (config) => config.getString('name', 'x'),
      { name: null },
      'The option "name" must be a text, got null. Change it, or remove it and take the default.',
    ],
  ])('says what is wrong with %s', async (_what, get, values, message) => {
    expect(await mistakeOf(() => get(new AgentConfiguration(values)))).toBe(message)
  })

  test.each(['apiKey', 'model.token', 'db.Password', 'client_secret', 'secrets.first', 'keys', 'maxTokens'])(
    'never shows the value of %s',
    async (key) => {
      const config = new AgentConfiguration({ [key]: 's3cret' })
      const message = await mistakeOf(() => config.getNumber(key))
      expect(message).toBe(
        `The option "${key}" must be a number, got a text. Change it, or remove it and take the default.`,
      )
      expect(
        await mistakeOf(() => config.set(defineOption({ key, type: 'boolean' }), 's3cret' as never)),
      ).not.toContain('s3cret')
    },
  )

  test('shows no password of a URL', async () => {
    const config = new AgentConfiguration({ database: 'postgres://me:s3cret@db/x' })
    expect(await mistakeOf(() => config.getNumber('database'))).toContain('"postgres://[redacted]@db/x"')
  })

  test.each<[unknown, string]>([
    ['x', 'A configuration is an object of keys and values, got "x".'],
    [[1], 'A configuration is an object of keys and values, got an array of 1.'],
    [{ '': 1 }, 'A key is names with dots between them, such as "model.retries", got "".'],
    [{ 'a..b': 1 }, 'A key is names with dots between them, such as "model.retries", got "a..b".'],
    [
      { a: 1, 'a.b': 2 },
      'The key "a.b" is configured twice, or is a value and a group of keys at once. Keep one of them.',
    ],
    [
      { a: { b: 1 }, 'a.b': 1 },
      'The key "a.b" is configured twice, or is a value and a group of keys at once. Keep one of them.',
    ],
    [
      { 'a.b': 1, a: { b: { c: 1 } } },
      'The key "a.b" is configured twice, or is a value and a group of keys at once. Keep one of them.',
    ],
    [
      { a: { at: new Date(0) } },
      'The value of "a.at" is not JSON. Use text, finite numbers, true, false, null, lists and plain objects.',
    ],
    [
      { 'a.list': [1, Number.NaN] },
      'The value of "a.list.1" is not JSON. Use text, finite numbers, true, false, null, lists and plain objects.',
    ],
  ])('is not made of %j', async (values, message) => {
    expect(await mistakeOf(() => new AgentConfiguration(values as JsonObject))).toBe(message)
  })

  test('is not made of a circle', async () => {
    const circle: JsonObject = {}
    circle['self'] = circle
    expect(await mistakeOf(() => new AgentConfiguration(circle))).toBe(
      'The configuration is circular, or nests deeper than 200 levels.',
    )
  })

  test('sets values: by key over what is there, by option of its type', async () => {
    const config = new AgentConfiguration({ model: { name: 'a', limits: { rounds: 1 } }, kept: 1 })
    config.set('model.limits', { 'tokens.out': 5 })
    config.set('model.name.first', 'b')
    config.set(retries, 7)
    expect(config.toJSON()).toEqual({
      model: { name: { first: 'b' }, limits: { tokens: { out: 5 } }, retries: 7 },
      kept: 1,
    })
    config.set('model', 'none')
    expect(config.toJSON()).toEqual({ model: 'none', kept: 1 })
    expect(await mistakeOf(() => config.set(retries, 1.5))).toMatch(/^The option "model\.retries" must be a whole/)
    expect(await mistakeOf(() => config.set('a', undefined as unknown as Json))).toBe(
      'The value of "a" is undefined. Use null, or leave it out.',
    )
    expect(await mistakeOf(() => config.set('a', (() => 1) as unknown as Json))).toMatch(
      /^The value of "a" is not JSON/,
    )
    expect(await mistakeOf(() => config.set('a..b', 1))).toMatch(/^A key is names with dots/)
    expect(config.toJSON()).toEqual({ model: 'none', kept: 1 })
  })

  test('with overrides is another one: objects are merged, all else is replaced', () => {
    const config = new AgentConfiguration({ model: { name: 'a', limits: { rounds: 1, tokens: 2 } }, tools: ['x', 'y'] })
    const other = config.with({ 'model.limits.rounds': 9, tools: ['z'], extra: { a: 1 } })
    expect(other.toJSON()).toEqual({
      model: { name: 'a', limits: { rounds: 9, tokens: 2 } },
      tools: ['z'],
      extra: { a: 1 },
    })
    other.set('model.name', 'b')
    expect(config.toJSON()).toEqual({ model: { name: 'a', limits: { rounds: 1, tokens: 2 } }, tools: ['x', 'y'] })
    expect(new AgentConfiguration(JSON.parse(JSON.stringify(other)) as JsonObject).toJSON()).toEqual(other.toJSON())
  })

  test('gives what nobody can change, and does not change with what it was made of', () => {
    const values = { list: [1] }
    const config = new AgentConfiguration(values)
    values.list.push(2)
    expect(config.get('list')).toEqual([1])
    expect(() => (config.get('list') as number[]).push(2)).toThrow(TypeError)
  })

  test('declares no option that makes no sense', async () => {
    expect(await mistakeOf(() => defineOption({ key: 'a.', type: 'string' }))).toMatch(/^A key is names with dots/)
    expect(await mistakeOf(() => defineOption({ key: 'a', type: 'text' as 'string' }))).toBe(
      'The type of the option "a" must be one of string, number, integer, boolean, array, object, got "text".',
    )
    expect(await mistakeOf(() => defineOption({ key: 'a', type: 'number', default: 'x' as never }))).toMatch(
      /^The default of the option "a" must be a number, got a text, "x"\./,
    )
  })
})

describe('a configuration file', () => {
  test.each([
    ['agent.yaml', 'model:\n  name: qwen\n  limits.rounds: 3 # at most\ntools: [a, b]\n'],
    ['agent.json', '{"model": {"name": "qwen", "limits": {"rounds": 3}}, "tools": ["a", "b"]}'],
  ])('%s is read', async (name, text) => {
    const file = join(await temporaryFolder(), name)
    await writeFile(file, text)
    const config = await AgentConfiguration.fromFile(file)
    expect(config.toJSON()).toEqual({ model: { name: 'qwen', limits: { rounds: 3 } }, tools: ['a', 'b'] })
  })

  test('may be empty', async () => {
    const file = join(await temporaryFolder(), 'agent.yaml')
    await writeFile(file, '# nothing yet\n')
    expect((await AgentConfiguration.fromFile(file)).toJSON()).toEqual({})
  })

  test.each([
    ['a: 1\na: 2\n', /^:2:1: This is not valid YAML: Map keys must be unique\.$/],
    ['a: [1\nb: 2', /:\d+:\d+: This is not valid YAML: /],
    ['token: "s3cret" "s3cret2"\n', /^:1:\d+: This is not valid YAML: (?!.*s3cret)/],
    ['- a\n- b\n', /^: A configuration is keys with values, got an array of 2\.$/],
    ['just a text', /^: A configuration is keys with values, got "just a text"\.$/],
    ['a: .nan\n', /^: The value of "a" is not JSON/],
    ['a: *nobody\n', /: Unresolved alias|: This is not valid YAML/],
    ['a: 1\na.b: 2\n', /^: The key "a\.b" is configured twice/],
  ])('with a mistake is refused: %j', async (text, message) => {
    const file = join(await temporaryFolder(), 'agent.yaml')
    await writeFile(file, text)
    const told = await mistakeOf(() => AgentConfiguration.fromFile(file))
    expect(told.startsWith(file)).toBe(true)
    expect(told.slice(file.length)).toMatch(message)
  })

  test('that is not there, or a folder, is told', async () => {
    const folder = await temporaryFolder()
    await mkdir(join(folder, 'agent.yaml'))
    const missing = join(folder, 'other.yaml')
    expect(await mistakeOf(() => AgentConfiguration.fromFile(missing))).toBe(
      `Cannot read the configuration ${missing}: there is no such file.`,
    )
    expect(await mistakeOf(() => AgentConfiguration.fromFile(join(folder, 'agent.yaml')))).toMatch(
      /: it is a folder\.$/,
    )
  })
})
