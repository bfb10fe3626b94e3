// Tools loaded from modules by configuration, the examples among them.
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { afterAll, expect, test } from 'vitest'
import { closeIdleWorkers } from '../dist/tools/blocking.js'
import { loadTools, type ToolEntry } from '../dist/tools/load.js'
import { LocalToolRegistry } from '../dist/tools/local.js'
import { ToolManager, type ToolCallOptions } from '../dist/tools/manager.js'
import type { Question, ToolEvent } from '../dist/tools/tool.js'

const folder = mkdtempSync(join(tmpdir(), 'convoke-load-'))
const define = JSON.stringify(new URL('../dist/tools/define.js', import.meta.url).href)

function write(path: string, text: string): void {
  mkdirSync(dirname(join(folder, path)), { recursive: true })
  writeFileSync(join(folder, path), text)
}

write(
  'tools/good.mjs',
  `
import { defineTool } from ${define}
const tool = (name) => defineTool({ name, description: name, input: { type: 'object', properties: {} }, run: () => name })
export const one = tool('one')
export const again = one
export const more = [tool('two'), 'something else', tool('three')]
export default tool('four')
export const plain = () => 1
export const settings = { get secret() { throw new Error('touched') } }
`,
)
write(
  'tools/single.mjs',
  `import { defineTool } from ${define}\nexport const one = defineTool({ name: 'one', description: 'Another.', input: { type: 'object' }, run: () => 'another' })`,
)
write('bad/syntax.mjs', 'export const = 1')
write('bad/throws.mjs', "throw new Error('No database.')")
write('bad/text.mjs', "throw 'nothing'")
write('bad/empty.mjs', 'export const x = 1')
write('bad/definition.mjs', `import { defineTool } from ${define}\nexport const x = defineTool({ name: 'x' })`)
write('node_modules/toolbox/package.json', '{"name":"toolbox","type":"module","exports":"./index.js"}')
write(
  'node_modules/toolbox/index.js',
  `import { defineTool } from ${define}\nexport const boxed = defineTool({ name: 'boxed', description: 'In a package.', input: { type: 'object' }, run: () => 1 })`,
)

afterAll(async () => {
  await closeIdleWorkers()
  rmSync(folder, { recursive: true })
})

async function load(...entries: ToolEntry[]) {
  const lines: string[] = []
  const warn = (_: object, message: string): void => void lines.push(message)
  const { tools, warnings } = await loadTools(entries, {
    baseDir: folder,
    log: { debug() {}, info() {}, warn, error() {} },
  })
  expect(lines.filter((line) => line.startsWith('Skipped in '))).toHaveLength(warnings.length)
  const notes = lines.filter((line) => !line.startsWith('Skipped in '))
  return { names: tools.map(({ name }) => name), tools, warnings, notes }
}

test('every exported tool is taken, by name, default or in an array, once; nothing else is touched', async () => {
  const { names, warnings } = await load({ module: './tools/good.mjs' })
  expect(names.sort()).toEqual(['four', 'one', 'three', 'two'])
  expect(warnings).toEqual([])
})

test('paths are relative to the base folder, with or without ./, and packages are found from there', async () => {
  expect((await load({ module: 'tools/single.mjs' }, { module: 'toolbox' })).names).toEqual(['one', 'boxed'])
})

test('an export can be chosen and renamed', async () => {
  const { tools } = await load(
    { module: './tools/good.mjs', export: 'one', name: 'uno' },
    { module: './tools/single.mjs' },
  )
  expect(tools.map(({ name }) => name)).toEqual(['uno', 'one'])
  const registry = new LocalToolRegistry()
  for (const tool of tools) registry.register(tool)
  expect(await registry.call('uno')).toBe('one')
})

test.each<[string, ToolEntry, string]>([
  ['a missing file', { module: './none.mjs' }, 'cannot be loaded: there is no such file.'],
  ['a missing package', { module: 'no-such-package' }, 'is neither a file in'],
  ['a syntax error', { module: './bad/syntax.mjs' }, 'cannot be loaded: '],
  ['a module that throws', { module: './bad/throws.mjs' }, 'cannot be loaded: No database.'],
  ['a module that throws a text', { module: './bad/text.mjs' }, 'cannot be loaded: "nothing"'],
  ['a wrong definition', { module: './bad/definition.mjs' }, 'needs a `description`'],
  [
    'a module without tools',
    { module: './bad/empty.mjs' },
    'exports no tool made by defineTool or from ToolBase; name a plain function with `export`.',
  ],
  [
    'an export that is not there',
    { module: './tools/good.mjs', export: 'ones' },
    'has no export `ones`; it exports again, default, more, one, plain, settings.',
  ],
  [
    'a plain function',
    { module: './tools/good.mjs', export: 'plain' },
    'the plain function `plain` has no JSDoc right before it. Say its params with `input` in the entry',
  ],
  ['an object', { module: './tools/good.mjs', export: 'settings' }, 'its export `settings` is no tool.'],
  ['a name for many', { module: './tools/good.mjs', name: 'all' }, '`name` can rename one; say which with `export`'],
  ['a wrong name', { module: './tools/single.mjs', name: 'a b' }, '`name` must be 1 to 64 letters'],
  ['a name that is taken', { module: './tools/single.mjs', name: 'boxed' }, 'there is a tool "boxed" already'],
])('%s is one warning, and the others load', async (_, entry, said) => {
  const { names, warnings } = await load({ module: 'toolbox' }, entry, { module: './tools/single.mjs' })
  expect(names).toEqual(['boxed', 'one'])
  expect(warnings).toHaveLength(1)
  expect(warnings[0]).toContain(`${entry.module}: `)
  expect(warnings[0]).toContain(said)
})

// Vitest rewrites the text of modules, unless they are in such a folder.
const plain = './node_modules/plain/index.mjs'
write(
  plain,
  `
/** Not this one. */
const before = 1

/**
 * Adds two
 * numbers.
 * @param {number} a - The first.
 * @param {number} [b=3] The second.
 * @returns {number} their sum
 */
// A remark between them.
export function add(a, b) { return a + b }

/**
 * Writes a greeting.
 *
 * @param {object} params
 * @param {string} params.who - Whom to greet.
 * @param {'hi' | "hello" | 'readonly'} [params.word='hello']
 * @param {string[]} [params.others]
 * @param {Object} [params.style]
 * @param {boolean} params.style.loud
 * @param {ToolContext} context
 * @returns {Promise<{ text: string, count: integer }>}
 */
export const greet = async ({ who, word, others = [], style: { loud } = {} }, { call }) => {
  const text = [word, who, ...others].join(' ')
  return { text: loud ? text.toUpperCase() : text, count: others.length, call: call.id === undefined ? 0 : 1 }
}

/**
 * Counts.
 * @param {{ to: integer, from?: integer }} options How far.
 * @yields {number}
 */
export async function* count({ to, from = 1 }, context) {
  for (let i = from; i <= to; i++) { context.progress({ progress: i }); yield i }
}

/** Says which call it is.
 * @param {string} prefix
 * @param {import('convoke').ToolContext} ctx
 */
export function which(prefix /* , not this */, ctx) { return prefix + ctx.call.id.length }

/** Takes (a, b) => a + b in a comment. @param is no tag here.
 * @param {?number} x
 * @param {(string|null)=} y
 * @param {readonly Array.<{n: number}>} z
 * @param {Record<string, boolean>} flags
 */
function shapes(x, y, z, flags = {}) { return [x ?? null, y ?? null, z.length, Object.keys(flags).length] }
export { shapes }

/** Doubles. */
export default function twice({ n }) { return n * 2 }
twice.input = { type: 'object', properties: { n: { type: 'number' } }, required: ['n'] }
twice.output = { type: 'number' }

export const untouched = (x) => x
untouched.schema = { paths: {} }
/** @param {string} a */
export function alsoUntouched(a) { return a }
export class NoTool { constructor() { throw new Error('touched') } run() {} }
`,
)

test('a plain function that carries its schema is a tool, and others of its module are not touched', async () => {
  const { names, tools, warnings, notes } = await load({ module: plain, description: 'Doubles n.' })
  expect(warnings).toEqual([])
  expect(names).toEqual(['twice'])
  expect(tools[0]).toMatchObject({ kind: 'local', description: 'Doubles n.', output: { type: 'number' } })
  expect(notes).toEqual([expect.stringContaining('the names of their exports, twice;')])
  const registry = new LocalToolRegistry()
  for (const tool of tools) registry.register(tool)
  expect(await registry.call('twice', { n: 4 })).toBe(8)
})

async function loadPlain(name: string, more: Partial<ToolEntry> = {}) {
  const { tools, warnings, notes } = await load({ module: plain, export: name, name, ...more })
  expect(warnings).toEqual([])
  expect(notes).toEqual([])
  const registry = new LocalToolRegistry()
  for (const tool of tools) registry.register(tool)
  const [tool] = tools
  if (tool === undefined) throw new Error(`${name} is not there.`)
  return { tool, registry, call: (args: object) => registry.call(name, args) }
}

test('the params of a plain function come out of its JSDoc, and are passed one by one', async () => {
  const { tool, call } = await loadPlain('add')
  expect(tool.description).toBe('Adds two numbers.')
  expect(tool.input).toEqual({
    type: 'object',
    properties: {
      a: { type: 'number', description: 'The first.' },
      b: { type: 'number', description: 'The second.', default: 3 },
    },
    required: ['a'],
    additionalProperties: false,
  })
  expect(tool.output).toEqual({ type: 'number' })
  expect(await call({ b: 1, a: 41 })).toBe(42)
  expect(await call({ a: 1 })).toBe(4)
  await expect(call({ a: '1' })).rejects.toMatchObject({ code: 'invalid_params' })
  await expect(call({ a: 1, c: 1 })).rejects.toMatchObject({ code: 'invalid_params' })
})

test('a function with one object takes the params as they are, nested ones and defaults too', async () => {
  const { tool, call } = await loadPlain('greet', { name: 'greet', output: { type: 'object' } })
  expect(tool.input).toEqual({
    type: 'object',
    properties: {
      who: { type: 'string', description: 'Whom to greet.' },
      word: { enum: ['hi', 'hello', 'readonly'], default: 'hello' },
      others: { type: 'array', items: { type: 'string' } },
      style: {
        type: 'object',
        properties: { loud: { type: 'boolean' } },
        required: ['loud'],
        additionalProperties: false,
      },
    },
    required: ['who'],
    additionalProperties: false,
  })
  expect(await call({ who: 'Ada', style: { loud: true } })).toEqual({ text: 'HELLO ADA', count: 0, call: 1 })
  expect(await call({ who: 'Ada', others: ['Bob'], word: 'hi' })).toEqual({ text: 'hi Ada Bob', count: 1, call: 1 })
  await expect(call({ who: 'Ada', word: 'hey' })).rejects.toMatchObject({ code: 'invalid_params' })
  await expect(call({ who: 'Ada', style: { low: 1 } })).rejects.toMatchObject({ code: 'invalid_params' })
  expect((await loadPlain('greet')).tool.output).toEqual({
    type: 'object',
    properties: { text: { type: 'string' }, count: { type: 'integer' } },
    required: ['text', 'count'],
  })
})

test('a plain generator streams, and the context comes where it is asked for', async () => {
  const { tool, registry } = await loadPlain('count')
  expect(tool.input).toMatchObject({ properties: { to: { type: 'integer' } }, required: ['to'] })
  const events: ToolEvent[] = []
  for await (const event of new ToolManager({ registry }).stream('count', { to: 2 })) events.push(event)
  expect(events).toEqual([
    { type: 'progress', progress: 1 },
    { type: 'chunk', chunk: 1 },
    { type: 'progress', progress: 2 },
    { type: 'chunk', chunk: 2 },
    { type: 'result', result: null },
  ])
  const which = await loadPlain('which')
  expect(Object.keys(which.tool.input['properties'] as object)).toEqual(['prefix'])
  expect(await which.call({ prefix: 'x' })).toBe('x36')
})

test('nullable, optional and repeated types mean what they say', async () => {
  const { tool, call } = await loadPlain('shapes')
  expect(tool.input).toMatchObject({
    properties: {
      x: { anyOf: [{ type: 'number' }, { type: 'null' }] },
      y: { anyOf: [{ type: 'string' }, { type: 'null' }] },
      z: { type: 'array', items: { type: 'object', required: ['n'] } },
      flags: { type: 'object', additionalProperties: { type: 'boolean' } },
    },
    required: ['x', 'z'],
  })
  expect(await call({ x: null, z: [{ n: 1 }], flags: { a: true } })).toEqual([null, null, 1, 1])
  await expect(call({ x: 1, z: [{}] })).rejects.toMatchObject({ code: 'invalid_params' })
})

test('the entry may say what the module does not', async () => {
  const input = { type: 'object', properties: { x: { type: 'string' } }, required: ['x'] }
  const description = 'Gives it back.'
  const { tool, registry } = await loadPlain('untouched', { name: 'echo', description, input })
  expect(tool).toMatchObject({ name: 'echo', description, input })
  expect(await registry.call('echo', { x: 'y' })).toEqual({ x: 'y' })
})

const odd = './node_modules/plain/odd.mjs'
write(
  odd,
  `
/** No types. @param a
 * @param a - Something.
 */
export function untyped(a) { return a }

/** @param {number} a */
export function missing(a, b) { return a + b }

/** @param {number} a
 * @param {number} b
 */
export function extra(a) { return a }

/**
 * Any object.
 * @param {object} params
 */
export function anyObject(params) { return params }

/** Any thing. @returns {number}
 * @param {{ a: any }} params
 */
export function anyMember(params) { return params }

/** Rest.
 * @param {...number} all
 */
export function rest(...all) { return all }

/** Foreign.
 *
 * @param {Map<string, number>} map
 */
export function foreign(map) { return map }

/** Broken.
 * @param {{ a: string } map
 */
export function broken(map) { return map }

/** Twice.
 * @param {string} a
 * @param {string} a
 */
export function double(a) { return a }

/** Wrong default.
 * @param {number} [a=many]
 */
export function standard(a) { return a }

/** List.
 * @param {string[]} list
 */
export function list([first]) { return first }

/**
 * @param {string} a
 */
export function wordless(a) { return a }

/* Not JSDoc. @param {string} a */
export function plainComment(a) { return a }

/** Of another.
 * @param {string} a
 */
const wrapped = ((inner) => (a) => inner(a))(String)
export { wrapped }

const a = /** @type {any} */ ((a) => a)
export { a as cast }

/** Same.
 * @param {string} a
 */
export const same = (a) => a
/*
const same = (a) => a
*/

/** Nothing to call it by.
 * @param {string} a
 */
export default (a) => [a]

/** Result.
 * @param {string} a
 * @returns {Foo}
 */
export function result(a) { return [a, a] }
`,
)

test.each<[string, string]>([
  ['untyped', 'line 3: @param a has no type; write @param {string} a'],
  ['missing', 'has a parameter `b` without a @param {TYPE} b'],
  ['extra', 'has no parameter `b`, of which its JSDoc speaks'],
  ['anyObject', 'line 17: @param params: the type {object} does not say what is in "object"'],
  ['anyMember', 'line 22: @param params: the type {{ a: any }} does not say what is in "any"'],
  ['rest', 'line 27: @param all: the type {...number} is not understood at "."'],
  ['foreign', 'line 33: @param map: the type {Map<string, number>} has "Map" in it, which is not understood'],
  ['broken', 'line 38: the type "{{ a: string } map" has no end'],
  ['double', 'line 44: @param a is there twice'],
  ['standard', 'line 49: @param a: its default "many" is not of its type'],
  ['list', 'has a parameter that cannot be passed by its name: [first]'],
  ['wordless', 'The tool "wordless" needs a `description`'],
  ['plainComment', 'has no JSDoc right before it'],
  ['wrapped', 'is not declared in that file'],
  ['cast', 'is not declared in that file'],
  ['same', 'stands twice in its file'],
  ['default', 'needs a `name` of 1 to 64 letters'],
  ['result', 'line 90: @returns: the type {Foo} has "Foo" in it, which is not understood'],
])('a plain function is never guessed at: %s is refused', async (name, said) => {
  const { names, warnings } = await load({ module: odd, export: name }, { module: './tools/single.mjs' })
  expect(names).toEqual(['one'])
  expect(warnings).toEqual([expect.stringContaining(said)])
})

const classes = './node_modules/plain/classes.mjs'
write(
  classes,
  `
import { ToolBase } from ${JSON.stringify(new URL('../dist/tools/tool-base.js', import.meta.url).href)}
const params = (...names) => ({ type: 'object', properties: Object.fromEntries(names.map((name) => [name, { type: 'string' }])) })
export { ToolBase }
export class Greet extends ToolBase {
  name = 'greet'
  description = 'Greets.'
  input = params('who')
  traits = { category: 'social' }
  #word
  constructor({ word = 'Hello' } = {}) { super(); this.#word = word }
  async run({ who }) { return this.#word + ' ' + who }
}
export class Shout extends Greet {
  name = 'shout'
  get output() { return { type: 'string' } }
  async run(params) { return (await super.run(params)).toUpperCase() }
}
export class Middle extends ToolBase { helper() {} }
export class Broken extends ToolBase {
  constructor() { super(); throw new Error('No licence.') }
  run() {}
}
export class Off extends ToolBase {
  name = 'off'; description = 'Off.'; input = params()
  async isEnabled() { return false }
  run() {}
}
export class Nameless extends ToolBase { description = 'x'; input = params(); run() {} }
export const made = new Shout({ word: 'Bye' })
export class Old {
  name = 'old'
  description = 'As registries of MCP-style tools have them.'
  input_schema = params('x')
  call({ x }) { return [this.name, x] }
}
export class Untouched { run() {} constructor() { throw new Error('touched') } }
export class Field extends ToolBase { name = 'field'; description = 'Field.'; input = params(); run = () => 1 }
`,
)

test('subclasses of ToolBase are tools; one that fails is skipped with one warning, and the others load', async () => {
  const { names, tools, warnings } = await load({ module: classes })
  expect(names).toEqual(['greet', 'shout'])
  expect(warnings).toEqual([
    `${classes}: the constructor of the class \`Broken\` failed: Error: No licence.`,
    expect.stringContaining("A tool's `name` must be 1 to 64 letters"),
    expect.stringContaining('there is a tool "shout" already'),
  ])
  expect(tools[0]).toMatchObject({ kind: 'local', traits: { category: 'social' } })
  expect(tools[1]).toMatchObject({ output: { type: 'string' } })
  const registry = new LocalToolRegistry()
  for (const tool of tools) registry.register(tool)
  expect(await registry.call('shout', { who: 'Ada' })).toBe('HELLO ADA')
})

test('a class gets the options of its entry, and may be renamed', async () => {
  const { tools, warnings } = await load(
    { module: classes, export: 'Greet', name: 'hail', options: { word: 'Hail' } },
    { module: classes, export: 'made', description: 'Says goodbye.' },
    { module: classes, export: 'Old' },
    { module: classes, export: 'Field' },
    { module: classes, export: 'Off' },
  )
  expect(warnings).toEqual([])
  const registry = new LocalToolRegistry()
  for (const tool of tools) registry.register(tool)
  expect(await registry.call('hail', { who: 'Ada' })).toBe('Hail Ada')
  expect(await registry.call('shout', { who: 'Ada' })).toBe('BYE ADA')
  expect(registry.get('shout')?.description).toBe('Says goodbye.')
  expect(await registry.call('old', { x: '1' })).toEqual(['old', '1'])
  expect(await registry.call('field')).toBe(1)
  expect(registry.list()).toHaveLength(4)
})

test.each<[ToolEntry, string]>([
  [{ module: classes, export: 'Middle' }, 'A tool that is an object needs a method `run`'],
  [{ module: classes, name: 'x' }, 'and `name` can rename one'],
  [{ module: classes, input: { type: 'object' } }, 'and `input` can describe one'],
  [{ module: './tools/single.mjs', input: { type: 'object' } }, 'has its schemas from defineTool'],
  [{ module: './tools/single.mjs', options: {} }, '`options` are for the constructor'],
  [{ module: plain, export: 'twice', input: { type: 'string' } }, 'has no export `twice`'],
  [
    { module: plain, export: 'default', description: 'Doubles.', input: { type: 'string' } },
    'The input schema of the tool "twice" is wrong',
  ],
])('an entry that asks for what is not there is one warning: %j', async (entry, said) => {
  const { tools, warnings } = await load(entry)
  expect(tools).toEqual([])
  expect(warnings).toEqual([expect.stringContaining(said)])
})

const examples = fileURLToPath(new URL('../examples/tools', import.meta.url))

async function loadExamples() {
  const modules = ['basics.js', 'text.js', 'files.js', 'primes.js', 'booking.js', 'failing.js']
  const { tools, warnings } = await loadTools(
    modules.map((module) => ({ module })),
    { baseDir: examples },
  )
  const registry = new LocalToolRegistry()
  for (const tool of tools) registry.register(tool)
  const manager = new ToolManager({ registry })
  const events = async (name: string, params: unknown, options?: ToolCallOptions): Promise<ToolEvent[]> => {
    const all: ToolEvent[] = []
    for await (const event of manager.stream(name, params, options)) all.push(event)
    return all
  }
  return { tools, warnings, manager, events }
}

test('the examples load without a warning', async () => {
  const { tools, warnings } = await loadExamples()
  expect(warnings).toEqual([])
  expect(tools.map(({ name }) => name).sort()).toEqual([
    'book_table',
    'count_to',
    'csv_rows',
    'diff',
    'echo',
    'extract',
    'fail_with',
    'primes',
    'statistics',
    'word_count',
  ])
})

test('the examples do what they say', async () => {
  const { manager, events } = await loadExamples()
  expect(await manager.call('echo', { text: 'hé' })).toEqual({ text: 'hé' })
  expect((await events('count_to', { n: 2 })).at(-1)).toEqual({ type: 'result', result: { counted: 2 } })
  expect(await manager.call('word_count', { text: 'One two. Two three!\nThree three.', top: 2 })).toEqual({
    characters: 32,
    words: 6,
    lines: 2,
    sentences: 3,
    frequent: [
      { word: 'three', count: 3 },
      { word: 'two', count: 2 },
    ],
  })
  expect(await manager.call('diff', { before: 'a\nb\nc\nd', after: 'a\nc\nx\nd' })).toEqual({
    added: 1,
    removed: 1,
    lines: [' a', '-b', ' c', '+x', ' d'],
  })
  expect(await manager.call('extract', { text: 'mail ada@example.org on 2026-01-31', kind: 'email' })).toEqual({
    found: [{ value: 'ada@example.org', index: 5 }],
  })
  expect(await manager.call('statistics', { numbers: [4, 1, 3, 2] })).toMatchObject({
    count: 4,
    sum: 10,
    mean: 2.5,
    median: 2.5,
    min: 1,
    max: 4,
  })
  expect((await events('primes', { limit: 3_000_000 })).at(-1)).toEqual({
    type: 'result',
    result: { count: 216_816, largest: 2_999_999 },
  })
})

test('csv_rows streams the rows of a file in the data folder, and of no other', async () => {
  const { manager, events } = await loadExamples()
  write('data/people.csv', 'name,says\nAda,"Hello, ""you"""\nBob,"two\nlines"\nCyd\n')
  process.env['DATA_DIR'] = join(folder, 'data')
  try {
    const all = await events('csv_rows', { file: 'people.csv', batch: 2 })
    expect(all.filter(({ type }) => type === 'chunk')).toEqual([
      {
        type: 'chunk',
        chunk: [
          { name: 'Ada', says: 'Hello, "you"' },
          { name: 'Bob', says: 'two\nlines' },
        ],
      },
      { type: 'chunk', chunk: [{ name: 'Cyd', says: '' }] },
    ])
    expect(all.at(-1)).toEqual({ type: 'result', result: { rows: 3, columns: ['name', 'says'] } })
    for (const file of ['none.csv', '../tools/good.mjs', '/etc/hostname', '.']) {
      expect(await manager.tryCall('csv_rows', { file })).toMatchObject({
        success: false,
        errorType: 'tool_failed',
        error: `There is no file "${file}" in the data folder.`,
      })
    }
  } finally {
    delete process.env['DATA_DIR']
  }
})

test('book_table asks for what is missing, then for a yes', async () => {
  const { manager } = await loadExamples()
  const asked: Question[] = []
  const answers = [{ time: '19:30', guests: 2 }, { confirm: true }]
  const ask = async (question: Question) => {
    asked.push(question)
    return answers[asked.length - 1] ?? null
  }
  expect(await manager.call('book_table', { restaurant: 'Noma', date: '2026-12-24' }, { ask })).toEqual({
    booked: true,
    reference: 'NOM-2026-12-24-1930',
  })
  expect(asked.map(({ message }) => message)).toEqual([
    'To book a table at Noma I still need: time, guests.',
    'A table for 2 at Noma on 2026-12-24 at 19:30: shall I book it?',
  ])
  expect(asked[0]?.schema).toMatchObject({ required: ['time', 'guests'] })
})

test.each([
  ['throw', 'tool_failed', 'This tool was asked to throw an error.'],
  ['reject', 'tool_failed', 'This tool was asked to reject.'],
  ['string', 'tool_failed', 'This tool was asked to throw a string.'],
  ['undefined', 'tool_failed', 'The tool "fail_with" threw undefined.'],
  ['bad_result', 'invalid_result', 'the required property "ok" is missing'],
  ['not_json', 'invalid_result', '/ok: a BigInt is not JSON'],
  ['circular', 'invalid_result', 'circular'],
  ['midway', 'tool_failed', 'after its first chunk'],
  ['never_ends', 'timeout', 'did not finish within 20 ms'],
  ['ignores_signal', 'timeout', 'did not finish within 20 ms'],
])('fail_with %s fails with %s', async (how, errorType, said) => {
  const { manager } = await loadExamples()
  expect(await manager.tryCall('fail_with', { how }, { timeoutMs: how.includes('_') ? 20 : 60_000 })).toMatchObject({
    success: false,
    errorType,
    error: expect.stringContaining(said),
  })
})
