/* oxlint-disable unicorn/no-thenable -- `then` is a keyword of JSON Schema */
// Schemas: what is found wrong with them, and what they say about values.
import { setFlagsFromString } from 'node:v8'
import { runInNewContext } from 'node:vm'
import { toStandardJsonSchema } from '@valibot/to-json-schema'
import { type } from 'arktype'
import * as v from 'valibot'
import { expect, test } from 'vitest'
import { z } from 'zod'
import { callTool } from '../dist/tools/call.js'
import { defineTool } from '../dist/tools/define.js'
import { describeIssues } from '../dist/tools/issues.js'
import { checkInputSchema, checkSchema } from '../dist/tools/schema-check.js'
import { compile } from '../dist/tools/schema.js'
import type { JsonSchema, Tool, ToolContext } from '../dist/tools/tool.js'

function object(properties: JsonSchema, required: string[] = [], more: JsonSchema = {}): JsonSchema {
  return { type: 'object', properties, required, ...more }
}

function said(schema: JsonSchema, value: unknown): string {
  return describeIssues(compile(schema).validate(value))
}

const shapes = {
  circle: object({ kind: { const: 'circle' }, r: { type: 'number' } }, ['kind', 'r']),
  square: object({ kind: { const: 'square' }, side: { type: 'number' } }, ['kind', 'side']),
}

test.each<[string, JsonSchema, unknown, string]>([
  ['type', object({ n: { type: 'integer' } }), { n: 'x' }, '/n: must be an integer, got a string: "x"'],
  ['types', object({ n: { type: ['string', 'null'] } }), { n: 5 }, '/n: must be a string or null, got a number: 5'],
  [
    'required',
    object({ n: { type: 'integer', description: 'how far' } }, ['n']),
    {},
    '/n: the required property "n" is missing (an integer: how far)',
  ],
  [
    'required enum',
    object({ c: { type: 'string', enum: ['red', 'green'] } }, ['c']),
    {},
    '/c: the required property "c" is missing (one of "red", "green")',
  ],
  [
    'enum',
    object({ c: { enum: ['red', 'green', 1] } }),
    { c: 'gren' },
    '/c: must be one of "red", "green", 1, got "gren" (did you mean "green"?)',
  ],
  ['const', object({ c: { const: 1 } }), { c: 2 }, '/c: must be 1, got 2'],
  [
    'additionalProperties',
    object({ max_items: {} }, [], { additionalProperties: false }),
    { maxItems: 2 },
    '/maxItems: the property "maxItems" is unknown (did you mean "max_items"?); allowed: max_items',
  ],
  [
    'no properties at all',
    object({}, [], { additionalProperties: false }),
    { a: 2 },
    '/a: the property "a" is unknown; none is allowed here',
  ],
  ['minimum', object({ n: { minimum: 1 } }), { n: 0 }, '/n: must be 1 or more, got 0'],
  ['exclusiveMaximum', object({ n: { exclusiveMaximum: 1 } }), { n: 1 }, '/n: must be less than 1, got 1'],
  ['multipleOf', object({ n: { multipleOf: 3 } }), { n: 4 }, '/n: must be a multiple of 3, got 4'],
  ['minItems', object({ l: { type: 'array', minItems: 2 } }), { l: [1] }, '/l: must have at least 2 items, has 1'],
  [
    'uniqueItems',
    object({ l: { type: 'array', uniqueItems: true } }),
    {
      l: [
        { a: 1, b: 2 },
        { b: 2, a: 1 },
      ],
    },
    '/l: must not hold the same item twice',
  ],
  [
    'pattern',
    object({ p: { type: 'string', pattern: '^a+$' } }),
    { p: 'b' },
    '/p: must match the pattern ^a+$, got "b"',
  ],
  [
    'format',
    object({ d: { type: 'string', format: 'date' } }),
    { d: 'x' },
    '/d: must be of the format date such as 2026-01-31, got "x"',
  ],
  [
    'propertyNames',
    object({}, [], { propertyNames: { pattern: '^a' } }),
    { b: 1 },
    'the property name "b" must match the pattern ^a, got "b"',
  ],
  [
    'dependentRequired',
    object({}, [], { dependentRequired: { a: ['b'] } }),
    { a: 1 },
    'needs the property "b" when "a" is there',
  ],
  [
    'if and then',
    object({}, [], { if: { required: ['a'] }, then: { required: ['bee'] } }),
    { a: 1 },
    '/bee: the required property "bee" is missing',
  ],
  [
    'anyOf types',
    object({ a: { anyOf: [{ type: 'string' }, { type: 'number' }] } }),
    { a: [1] },
    '/a: must be a string or a number, got an array of 1',
  ],
  [
    'anyOf with null',
    object({ a: { anyOf: [{ type: 'null' }, object({ x: { type: 'string' } })] } }),
    { a: { x: 5 } },
    '/a/x: must be a string, got a number: 5',
  ],
  [
    'anyOf constants',
    object({ a: { anyOf: [{ const: 'on' }, { const: 'off' }] } }),
    { a: 'of' },
    '/a: must be one of "on", "off", got "of"',
  ],
  [
    'oneOf by its discriminator',
    { ...object({ s: { oneOf: [{ $ref: '#/$defs/circle' }, { $ref: '#/$defs/square' }] } }), $defs: shapes },
    { s: { kind: 'circle', r: 'x' } },
    '/s/r: must be a number, got a string: "x"',
  ],
  [
    'oneOf that fits twice',
    object({ a: { oneOf: [{ type: 'number' }, { type: 'integer' }] } }),
    { a: 1 },
    '/a: fits more than one of the allowed forms, and must fit exactly one',
  ],
  [
    'anyOf forms',
    object({ a: { anyOf: [object({}, ['x']), object({}, ['y'])] } }),
    { a: {} },
    '/a: fits none of the 2 allowed forms: (1) /x: the required property "x" is missing (2) /y: the required property "y" is missing',
  ],
])('a value that breaks %s is told how to be mended', (_, schema, value, sentence) => {
  expect(said(schema, value)).toBe(sentence)
})

test('all issues are found, twenty are reported, five are spelled out', () => {
  const schema = object({ l: { type: 'array', items: { type: 'integer' } }, m: { type: 'null' } })
  const issues = compile(schema).validate({ l: Array.from({ length: 100 }, () => 'x'), m: 1 })
  expect(issues).toHaveLength(20)
  expect(describeIssues(issues)).toMatch(/^\/l\/0: .*; and 15 more$/)
})

test('a huge value with a million faults gets one short issue', () => {
  const schema = object({ l: { type: 'array', items: { type: 'integer' } } })
  const issues = compile(schema).validate({ l: Array.from({ length: 200_000 }, () => 'x'.repeat(50)) })
  expect(issues).toEqual([{ path: '/l/0', message: `must be an integer, got a string: "${'x'.repeat(50)}"` }])
})

test('no message grows with the value', () => {
  const huge = 'y'.repeat(1_000_000)
  const schema = object({ n: { type: 'integer' }, p: { type: 'string', pattern: '^a$' }, e: { enum: ['a'] } }, [], {
    additionalProperties: false,
  })
  const issues = compile(schema).validate({ n: huge, p: huge, e: huge, [huge]: 1 })
  expect(issues).toHaveLength(4)
  for (const { path, message } of issues) expect(path.length + message.length).toBeLessThan(1000)
})

test('lengths count characters, not UTF-16 units', () => {
  const schema = object({ s: { type: 'string', minLength: 3, maxLength: 3 } })
  expect(said(schema, { s: '😀😀😀' })).toBe('')
  expect(said(schema, { s: 'abc' })).toBe('')
  expect(said(schema, { s: '😀😀' })).toBe('/s: must have at least 3 characters, got "😀😀"')
  expect(said(schema, { s: '😀😀😀😀' })).toBe('/s: must have at most 3 characters, has 4')
  expect(said(object({ s: { type: 'string', minLength: 4 } }), { s: '\ud800\ud800\ud800\ud800' })).toBe('')
})

test('the dialect is chosen by $schema', () => {
  const tuple = object({ t: { type: 'array', items: [{ type: 'string' }] } })
  expect(said({ $schema: 'http://json-schema.org/draft-07/schema#', ...tuple }, { t: [1] })).toContain('/t/0')
  expect(checkSchema(tuple)[0]?.message).toContain('prefixItems')
  const prefix = object({ t: { type: 'array', prefixItems: [{ type: 'string' }] } })
  expect(said(prefix, { t: [1] })).toContain('/t/0')
  expect(said({ $schema: 'https://json-schema.org/draft/2020-12/schema', ...prefix }, { t: [1] })).toContain('/t/0')
})

test('nothing is coerced', () => {
  const value = { n: '5' }
  expect(said(object({ n: { type: 'integer' } }), value)).not.toBe('')
  expect(value).toEqual({ n: '5' })
})

test('schemas with the same $id do not meet', () => {
  const schema = (inner: string): JsonSchema => ({
    $id: 'https://example.org/s',
    ...object({ a: { $ref: '#/$defs/a' } }),
    $defs: { a: { $id: 'a', type: inner } },
  })
  expect(said(schema('string'), { a: 1 })).toBe('/a: must be a string, got a number: 1')
  expect(said(schema('number'), { a: 'x' })).toBe('/a: must be a number, got a string: "x"')
  expect(said(object({ a: { type: 'boolean' } }), { a: true })).toBe('')
})

test('a schema is compiled at its first use, and a bad one fails then, each time the same', () => {
  const read: string[] = []
  const watched = new Proxy(object({ a: { type: 'string' } }), {
    get(target, key, receiver) {
      read.push(String(key))
      return Reflect.get(target, key, receiver) as unknown
    },
  })
  const validator = compile(watched)
  expect(read).toEqual([])
  validator.validate({})
  const afterFirst = read.length
  expect(afterFirst).toBeGreaterThan(0)
  validator.validate({})
  expect(read).toHaveLength(afterFirst)

  const bad = compile(object({ a: { $ref: '#nowhere' } }))
  const failures = [1, 2].map(() => {
    try {
      return bad.validate({})
    } catch (error) {
      return error
    }
  })
  expect(failures[0]).toBeInstanceOf(Error)
  expect(failures[1]).toBe(failures[0])
})

test.each<[string, unknown, string, string]>([
  ['a text', 'object', '', 'must be a JSON Schema object'],
  ['a misspelt type', { type: 'objct' }, '/type', 'did you mean "object"?'],
  ['the type of another language', object({ a: { type: 'str' } }), '/properties/a/type', 'did you mean "string"?'],
  ['properties as an array', { type: 'object', properties: [] }, '/properties', 'an object of schemas'],
  ['a property that is no schema', object({ a: 'string' }), '/properties/a', 'must be a schema'],
  [
    'required as a flag',
    object({ a: { type: 'string', required: true } }),
    '/properties/a/required',
    'an array of property names',
  ],
  ['required that holds numbers', { type: 'object', required: [1] }, '/required', 'only strings'],
  ['a broken pattern', object({ a: { pattern: '(' } }), '/properties/a/pattern', 'a regular expression'],
  ['an enum that is no array', object({ a: { enum: 'x' } }), '/properties/a/enum', 'an array of at least one value'],
  ['a $ref that leads nowhere', object({ a: { $ref: '#/$defs/x' } }), '/properties/a/$ref', 'leads nowhere'],
  [
    'a $ref to elsewhere',
    object({ a: { $ref: 'https://example.org/x' } }),
    '/properties/a/$ref',
    'nothing is loaded from elsewhere',
  ],
  ['a limit as text', object({ a: { minimum: '1' } }), '/properties/a/minimum', 'must be a number, got "1"'],
  ['a negative length', object({ a: { maxLength: -1 } }), '/properties/a/maxLength', 'an integer of 0 or more'],
  ['an empty anyOf', object({ a: { anyOf: [] } }), '/properties/a/anyOf', 'at least one schema'],
  ['an old dialect', { $schema: 'http://json-schema.org/draft-04/schema#', type: 'object' }, '/$schema', 'draft-07'],
  [
    'a property called __proto__',
    { type: 'object', properties: JSON.parse('{"__proto__": {}}') },
    '/properties',
    '__proto__',
  ],
  ['no type', { properties: {} }, '/type', 'must be "object"'],
])('the check at registration finds %s', (_, schema, path, message) => {
  const [issue] = checkInputSchema(schema)
  expect(issue?.path).toBe(path)
  expect(issue?.message).toContain(message)
})

test('the check takes what is right, references and odd names included', () => {
  const schema = {
    ...object({ tree: { $ref: '#/$defs/node' }, root: { $ref: '#' }, 'a/b~c': { $ref: '#/properties/a~1b~0c/items' } }),
    $defs: { node: object({ children: { type: 'array', items: { $ref: '#/$defs/node' } } }) },
  }
  const properties = (schema as JsonSchema)['properties'] as Record<string, unknown>
  properties['a/b~c'] = { items: true, $ref: '#/properties/a~1b~0c/items' }
  expect(checkInputSchema(schema)).toEqual([])
  expect(said(schema as JsonSchema, { tree: { children: [{ children: 5 }] } })).toBe(
    '/tree/children/0/children: must be an array, got a number: 5',
  )
})

test('a schema that is circular as an object is found', () => {
  const schema: Record<string, unknown> = { type: 'object' }
  schema['not'] = schema
  expect(checkSchema(schema)[0]?.message).toContain('circular')
})

const context = { signal: new AbortController().signal } as ToolContext

async function resultOf(tool: Tool, params: unknown): Promise<unknown> {
  const step = await callTool(tool, params, context).next()
  return step.value
}

test.each<[string, Parameters<typeof defineTool>[0]['input']]>([
  ['zod', z.object({ name: z.string().min(2), times: z.number().int().default(2) })],
  ['ArkType', type({ name: 'string >= 2', times: 'number.integer = 2' })],
  [
    'Valibot',
    toStandardJsonSchema(
      v.object({ name: v.pipe(v.string(), v.minLength(2)), times: v.optional(v.pipe(v.number(), v.integer()), 2) }),
    ),
  ],
])('a schema of %s is published as JSON Schema, validates, and fills in its defaults', async (_, input) => {
  const tool = defineTool({ name: 'standard', description: 'Shows its params.', input, run: (params) => params })
  expect(tool.input).toMatchObject({
    type: 'object',
    properties: { name: { type: 'string', minLength: 2 } },
    required: ['name'],
  })
  expect(await resultOf(tool, { name: 'ada' })).toEqual({ name: 'ada', times: 2 })
  await expect(resultOf(tool, { name: 'a' })).rejects.toMatchObject({
    code: 'invalid_params',
    issues: [{ path: '/name', message: 'must have at least 2 characters, got "a"' }],
  })
})

test('refinements hold, transforms reach run, and results go through the output schema', async () => {
  const tool = defineTool({
    name: 'refined',
    description: 'Adds a day.',
    input: z
      .object({ from: z.iso.date().transform((text) => new Date(text)), to: z.iso.date() })
      .refine(({ from, to }) => from < new Date(to), { path: ['to'], message: 'must be after `from`' }),
    output: z.object({ days: z.number().transform((days) => `${days} days`) }).pipe(z.object({ days: z.string() })),
    run: ({ from, to }) => ({ days: (Date.parse(to) - from.getTime()) / 86_400_000, secret: 1 }),
  })
  expect(await resultOf(tool, { from: '2026-01-01', to: '2026-01-31' })).toEqual({ days: '30 days' })
  await expect(resultOf(tool, { from: '2026-01-31', to: '2026-01-01' })).rejects.toMatchObject({
    code: 'invalid_params',
    message: 'Invalid params for the tool "refined": /to: must be after `from`',
  })
})

test('a schema that validates asynchronously is waited for', async () => {
  const tool = defineTool({
    name: 'slow',
    description: 'Checks elsewhere.',
    input: z.object({ user: z.string().refine(async (user) => user === 'ada', 'is not known') }),
    run: ({ user }) => user,
  })
  expect(await resultOf(tool, { user: 'ada' })).toBe('ada')
  await expect(resultOf(tool, { user: 'bob' })).rejects.toMatchObject({
    issues: [{ path: '/user', message: 'is not known' }],
  })
})

test('a library schema that cannot say its JSON Schema is refused with what to write', () => {
  const define = (input: never) => () => defineTool({ name: 'mute', description: 'Mute.', input, run: () => null })
  expect(define(v.object({ a: v.string() }) as never)).toThrow(/toStandardJsonSchema\(schema\)/)
  expect(define(z.object({ at: z.date() }) as never)).toThrow(/Date cannot be represented/)
  expect(define({ '~standard': { version: 1, vendor: 'own', validate: () => ({ value: 1 }) } } as never)).toThrow(
    /made with own cannot say its JSON Schema.*~standard\.jsonSchema/,
  )
  expect(define(z.union([z.object({ a: z.string() }), z.object({ b: z.string() })]) as never)).toThrow(
    /must be "object"/,
  )
})

test('nothing keeps a compiled schema when its tool is gone', async () => {
  setFlagsFromString('--expose-gc')
  const gc = runInNewContext('gc') as () => void
  const compileOne = (n: number): WeakRef<object> => {
    const properties = { n: { type: 'integer', maximum: n, default: n }, child: { $ref: '#' } }
    const issues = compile(object(properties), { defaults: true }).validate({ child: { n: n + 1 } })
    expect(issues).toHaveLength(1)
    return new WeakRef(properties)
  }
  const compiled = Array.from({ length: 20 }, (_, n) => compileOne(n))
  // A WeakRef holds on until its turn of the event loop has ended.
  await new Promise((resolve) => setImmediate(resolve))
  gc()
  // The last one may still be on the stack.
  expect(compiled.filter((each) => each.deref() !== undefined).length).toBeLessThanOrEqual(1)
})
