/** `convoke types`: what it writes is taken by the compiler, and makes calls typed. */
import { defineTool, type JsonObject } from 'convoke'
import { execFile } from 'node:child_process'
import { readFile, writeFile } from 'node:fs/promises'
import { join, resolve } from 'node:path'
import { expect, test } from 'vitest'
import { toDeclarations } from '../dist/cli/remote/declarations.js'
import { convoke } from './support/command.ts'
import { startNode, temporaryFolder } from './support/lifetime.ts'

const root = resolve(import.meta.dirname, '..')

/** What the compiler says about the files in a folder; empty where it finds nothing wrong. */
async function compile(folder: string): Promise<string> {
  const config = {
    compilerOptions: {
      target: 'es2022',
      module: 'nodenext',
      strict: true,
      noEmit: true,
      skipLibCheck: false,
      types: [],
      lib: ['es2023', 'esnext.disposable', 'dom'],
      paths: { convoke: [join(root, 'dist/index.d.ts')] },
    },
    include: ['*.ts'],
  }
  await writeFile(join(folder, 'tsconfig.json'), JSON.stringify(config))
  await writeFile(join(folder, 'package.json'), '{"type":"module"}')
  const tsc = join(root, 'node_modules/typescript/bin/tsc')
  return new Promise((done) => {
    execFile(process.execPath, [tsc, '-p', folder], (_error, stdout, stderr) => done(stdout + stderr))
  })
}

/** The declarations of one tool with these schemas. */
function declare(params: JsonObject | undefined, result?: JsonObject, description = ''): string {
  return toDeclarations([{ name: 'tool', description, parametersSchema: params, returnSchema: result }], 'a test')
}

/** The type of the params that a member `x` of this schema has. */
function typeOf(schema: JsonObject, more: JsonObject = {}): string {
  const text = declare({ type: 'object', properties: { x: schema }, required: ['x'], ...more })
  return /params: \{\n +(?:\/\*\*.*\*\/\n +)?x: ([\s\S]*?)\n {4}\}\n/.exec(text)?.[1] ?? text
}

test('the types of a real node make its calls typed', async () => {
  const countTo = defineTool({
    name: 'count_to',
    description: 'Counts up to n. */ export const evil = 1 /*',
    input: {
      type: 'object',
      properties: { n: { type: 'integer', description: 'The last number.' }, delay_ms: { type: 'integer' } },
      required: ['n'],
    },
    output: { type: 'object', properties: { counted: { type: 'integer' } }, required: ['counted'] },
    run: ({ n }) => ({ counted: n }),
  })
  const now = defineTool({
    name: 'now-utc',
    description: 'Tells the time.',
    input: { type: 'object', properties: { zone: { type: 'string' } } },
    output: { type: 'string' },
    run: () => 'now',
  })
  const { url } = await startNode({ tools: [countTo, now] })
  const folder = await temporaryFolder()
  const written = await convoke(['types', url, '--out', 'alice.d.ts'], { cwd: folder })
  expect(written).toMatchObject({ code: 0, stdout: '', stderr: 'alice.d.ts has the types of 2 tools.\n' })
  expect((await convoke(['types', url])).stdout).toBe(await readFile(join(folder, 'alice.d.ts'), 'utf8'))

  await writeFile(
    join(folder, 'usage.ts'),
    `import { connectPeer } from 'convoke'
import type { Tools } from './alice.js'

const peer = await connectPeer<Tools>('http://127.0.0.1:1')
const { counted } = await peer.executeRemoteTool('count_to', { n: 3, delay_ms: 5 })
export const sum: number = counted
export const time: string = await peer.executeRemoteTool('now-utc')
for await (const event of peer.executeRemoteToolStreaming('count_to', { n: 3 }, { timeoutMs: 5 })) {
  if (event.type === 'result') event.result.counted.toFixed()
}
// @ts-expect-error -- n is a number
await peer.executeRemoteTool('count_to', { n: 'three' })
// @ts-expect-error -- n is missing
await peer.executeRemoteTool('count_to')
// @ts-expect-error -- there is no such tool
await peer.executeRemoteTool('count_two', { n: 3 })
// @ts-expect-error -- the result has no such member
counted.count
// @ts-expect-error -- params are checked in streams as well
peer.executeRemoteToolStreaming('now-utc', { zone: 1 })

const untyped = await connectPeer('http://127.0.0.1:1')
const typed = await untyped.executeRemoteTool<{ a: number }>('anything', { b: 1 })
typed.a.toFixed()
for await (const event of untyped.executeRemoteToolStreaming('anything')) event.type
`,
  )
  expect(await compile(folder)).toBe('')
})

test('schemas of all kinds become types', () => {
  expect(typeOf({ type: 'string' })).toBe('string')
  expect(typeOf({ type: ['integer', 'null'] })).toBe('number | null')
  expect(typeOf({ type: 'string', nullable: true })).toBe('string | null')
  expect(typeOf({ enum: ['a"b', 1, null, { k: [true] }] })).toBe('"a\\"b" | 1 | null | { k: [true] }')
  expect(typeOf({ const: 'on' })).toBe('"on"')
  expect(typeOf({ type: 'array', items: { type: ['string', 'number'] } })).toBe('(string | number)[]')
  expect(typeOf({ type: 'array' })).toBe('unknown[]')
  expect(
    typeOf({ type: 'array', prefixItems: [{ type: 'string' }, { type: 'number' }], minItems: 1, items: false }),
  ).toBe('[string, number?]')
  expect(typeOf({ type: 'array', items: [{ enum: ['|'] }], additionalItems: { type: 'null' } })).toBe(
    '["|"?, ...null[]]',
  )
  expect(typeOf({ type: 'object', additionalProperties: { type: 'number' } })).toBe('{ [key: string]: number }')
  expect(typeOf({ type: 'object' })).toBe('{ [key: string]: unknown }')
  expect(typeOf({ anyOf: [{ type: 'string' }, { type: 'array', items: {} }] })).toBe('string | unknown[]')
  expect(
    typeOf(
      { allOf: [{ $ref: '#/$defs/a' }, { oneOf: [{ type: 'string' }, { type: 'null' }] }] },
      { $defs: { a: { type: 'string' } } },
    ),
  ).toBe('ToolParamsA & (string | null)')
  expect(typeOf({ $ref: 'https://elsewhere.example.com/schema' })).toBe('unknown')
  expect(typeOf({ type: 'whatever' })).toBe('unknown')
  expect(declare(undefined)).toContain('params: unknown\n    result: unknown\n')
})

test('equal tools give equal text, whatever their order', () => {
  const a = { name: 'a', description: 'A.', parametersSchema: { type: 'object' }, returnSchema: undefined }
  const b = { ...a, name: 'b' }
  expect(toDeclarations([a, b], 'x')).toBe(toDeclarations([b, a, a], 'x'))
})

test('the compiler takes circles, odd names and hostile texts', async () => {
  const folder = await temporaryFolder()
  const node = {
    type: 'object',
    properties: { value: {}, children: { type: 'array', items: { $ref: '#/$defs/node' } }, next: { $ref: '#' } },
  }
  const hostile = {
    type: 'object',
    description: 'ends */ here',
    properties: {
      tree: { $ref: '#/$defs/node' },
      'a-b': { type: 'string', description: 'one\n*/ two\u2028three' },
      '': { type: 'null' },
      '1x': { const: '*/ ` ${x}' },
      constructor: { type: 'number' },
      same: { $ref: '#/$defs/same' },
      first: { $ref: '#/$defs/first' },
      mapped: { type: 'object', properties: { k: { type: 'number' } }, additionalProperties: { type: 'string' } },
      nowhere: { $ref: '#/$defs/nowhere' },
      never: false,
      list: { type: 'array', items: { const: '/* " ] | &' } },
    },
    required: ['tree', 'undeclared'],
    $defs: {
      node,
      same: { $ref: '#/$defs/same' },
      first: { anyOf: [{ $ref: '#/$defs/second' }, { type: 'string' }] },
      second: { anyOf: [{ $ref: '#/$defs/first' }, { type: 'object', properties: { up: { $ref: '#/$defs/first' } } }] },
      'odd name/~': { type: 'string' },
    },
  }
  const tools = ['tool', 'Tools', 'tools-2', 'x.y', 'default'].map((name) => ({
    name,
    description: 'First line.\n\n */ second',
    parametersSchema: hostile,
    returnSchema: { anyOf: [{ $ref: '#/$defs/odd~1' }, node], $defs: { node, 'odd/': { type: 'boolean' } } },
  }))
  await writeFile(join(folder, 'odd.d.ts'), toDeclarations(tools, 'evil\n */ name\u2028next'))
  await writeFile(
    join(folder, 'usage.ts'),
    `import type { Tools } from './odd.js'
type Params = Tools['x.y']['params']
export const good: Params = { tree: { children: [{ value: 1, children: [] }] }, undeclared: 1, 'a-b': 'x', first: 'x', constructor: 1 }
export const deep: Params['first'] = { up: { up: 'x' } }
// @ts-expect-error -- a child is an object
export const bad: Params = { tree: { children: [1] }, undeclared: 1, constructor: 1 }
// @ts-expect-error -- neither a string nor an object
export const worse: Params['first'] = 1
`,
  )
  expect(await compile(folder)).toBe('')
})
