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
  expect(lines).toHaveLength(warnings.length)
  return { names: tools.map(({ name }) => name), tools, warnings }
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
  ['a missing file', { module: './none.mjs' }, 'cannot be loaded: Error: Cannot find module'],
  ['a missing package', { module: 'no-such-package' }, 'is neither a file in'],
  ['a syntax error', { module: './bad/syntax.mjs' }, 'cannot be loaded: '],
  ['a module that throws', { module: './bad/throws.mjs' }, 'cannot be loaded: Error: No database.'],
  ['a module that throws a text', { module: './bad/text.mjs' }, 'cannot be loaded: "nothing"'],
  ['a wrong definition', { module: './bad/definition.mjs' }, 'needs a `description`'],
  ['a module without tools', { module: './bad/empty.mjs' }, 'exports no tool made by defineTool'],
  [
    'an export that is not there',
    { module: './tools/good.mjs', export: 'ones' },
    'has no export `ones`; it exports again, default, more, one, plain, settings.',
  ],
  [
    'a plain function',
    { module: './tools/good.mjs', export: 'plain' },
    'a plain function, whose params nobody knows; wrap it in defineTool',
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
