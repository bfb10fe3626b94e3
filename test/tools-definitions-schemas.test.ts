import {
  createDefinitions,
  defineTool,
  fromModelArguments,
  type Json,
  type JsonObject,
  type JsonSchema,
  type Tool,
} from 'convoke'
import { expect, test } from 'vitest'
import { compile } from '../dist/tools/schema.js'

/** A schema, values that fit it, and what a model must be told, in the schema or in words. */
interface Case {
  readonly schema: JsonSchema
  readonly values: readonly JsonObject[]
  readonly says: readonly string[]
  /** Whether OpenAI can take it strictly. Default: true. */
  readonly strict?: false
}

const string = { type: 'string' }
const number = { type: 'number' }

function object(properties: JsonObject, more: JsonObject = {}): JsonSchema {
  return { type: 'object', properties, ...more }
}

const cases: Record<string, Case> = {
  'no params': { schema: { type: 'object', additionalProperties: false }, values: [{}], says: [] },
  'params of any name': { schema: { type: 'object' }, values: [{}, { a: 1 }], says: [], strict: false },
  limits: {
    schema: object(
      {
        a: { type: 'integer', minimum: 12, exclusiveMaximum: 345, multipleOf: 1.25, default: 15 },
        b: { type: 'string', minLength: 21, maxLength: 42, pattern: '^x+y$', format: 'hostname' },
        c: { type: 'array', items: { type: 'string', format: 'byte' }, minItems: 31, uniqueItems: true, maxItems: 64 },
        d: object({ x: string }, { minProperties: 1, maxProperties: 77 }),
      },
      { required: ['b'] },
    ),
    values: [
      { b: `${'x'.repeat(24)}y`, a: 15 },
      { b: `${'x'.repeat(24)}y`, d: { x: '1' } },
    ],
    says: [
      '12',
      '345',
      '1.25',
      '15',
      '21',
      '42',
      '^x+y$',
      'hostname',
      '31',
      '64',
      'byte',
      '77',
      'niqueItems|No item twice',
    ],
  },
  'a pattern that looks ahead': {
    schema: object({ a: { type: 'string', pattern: '^(?!no)[a-z]+$' } }, { required: ['a'] }),
    values: [{ a: 'yes' }],
    says: ['^(?!no)[a-z]+$'],
  },
  'lists of types': {
    schema: object(
      {
        a: { type: ['string', 'number', 'null'], minimum: 503, maxLength: 909 },
        b: { type: ['array', 'boolean'], items: number },
      },
      { required: ['a', 'b'] },
    ),
    values: [
      { a: 'x', b: [1] },
      { a: 504, b: true },
      { a: null, b: [] },
    ],
    says: ['503', '909'],
  },
  'constants and enums of all types': {
    schema: object(
      {
        a: { const: 'only' },
        b: { enum: ['one', 'two', 3, true, null] },
        c: { const: 17 },
        d: { enum: [1, 2, 3] },
        e: { type: 'integer', enum: [4, 5] },
        f: { enum: ['', 'full'] },
      },
      { required: ['a', 'b', 'c', 'd', 'e', 'f'] },
    ),
    values: [
      { a: 'only', b: 'two', c: 17, d: 2, e: 4, f: '' },
      { a: 'only', b: null, c: 17, d: 3, e: 5, f: 'full' },
      { a: 'only', b: true, c: 17, d: 1, e: 4, f: '' },
      { a: 'only', b: 3, c: 17, d: 1, e: 4, f: '' },
    ],
    says: ['only', 'one', 'two', 'true', '17', 'full'],
  },
  'words that may be left out': {
    schema: object({ mode: { enum: ['fast', 'slow'] }, unit: { const: 'cm' } }),
    values: [{}, { mode: 'fast', unit: 'cm' }],
    says: ['fast', 'slow', 'cm'],
  },
  'a constant that is an object': {
    schema: object({ a: { const: { k: [1, 'deep'] } } }, { required: ['a'] }),
    values: [{ a: { k: [1, 'deep'] } }],
    says: ['deep'],
    strict: false,
  },
  'a choice of forms within': {
    schema: object(
      {
        at: {
          description: 'Where to look.',
          oneOf: [
            {
              type: 'object',
              title: 'Circle',
              properties: { kind: { const: 'circle' }, r: number },
              required: ['kind', 'r'],
              additionalProperties: false,
            },
            {
              type: 'object',
              properties: { kind: { const: 'line' }, to: string },
              required: ['kind'],
              additionalProperties: false,
            },
            { type: 'string', maxLength: 88 },
            { type: 'null' },
          ],
        },
      },
      { required: ['at'] },
    ),
    values: [
      { at: { kind: 'circle', r: 1 } },
      { at: { kind: 'line' } },
      { at: { kind: 'line', to: 'x' } },
      { at: 'here' },
      { at: null },
    ],
    says: ['Where to look.', 'Circle', 'circle', 'line', '88'],
  },
  'a choice beside its type and limits': {
    schema: object(
      {
        a: { type: 'string', minLength: 2, pattern: '^.{2,207}$', anyOf: [{ format: 'ipv4' }, { maxLength: 71 }] },
        b: { type: ['string', 'null'], oneOf: [{ type: 'string', maxLength: 505 }, { type: 'null' }] },
      },
      { required: ['a', 'b'] },
    ),
    values: [
      { a: '192.0.2.1', b: 'x' },
      { a: 'name', b: null },
    ],
    says: ['ipv4', '71', '207', '505'],
  },
  'forms of the whole': {
    schema: object(
      { verbose: { type: 'boolean' } },
      {
        required: ['verbose'],
        oneOf: [
          { properties: { mode: { const: 'file' }, path: string }, required: ['mode', 'path'] },
          { properties: { mode: { const: 'url' }, url: { type: 'string', format: 'uri' } }, required: ['mode', 'url'] },
        ],
      },
    ),
    values: [
      { verbose: true, mode: 'file', path: '/x' },
      { verbose: false, mode: 'url', url: 'https://example.org/' },
    ],
    says: ['exactly one|oneOf', 'file', 'path', 'url', 'uri'],
  },
  'at least one of two': {
    schema: object({ a: string, b: string }, { anyOf: [{ required: ['a'] }, { required: ['b'] }] }),
    values: [{ a: 'x' }, { b: 'y' }, { a: 'x', b: 'y' }],
    says: ['one or more|anyOf', '`a`|"a"'],
  },
  'all of several': {
    schema: object(
      {
        a: { allOf: [{ $ref: '#/$defs/base' }, { properties: { y: number }, required: ['y'] }], description: 'Both.' },
      },
      {
        required: ['a'],
        allOf: [{ properties: { b: string }, required: ['b'] }, { properties: { b: { maxLength: 93 } } }],
        $defs: { base: { type: 'object', properties: { x: string }, required: ['x'] } },
      },
    ),
    values: [{ a: { x: 's', y: 1 }, b: 't' }],
    says: ['Both.', '93'],
  },
  'references, one of them recursive': {
    schema: object(
      { tree: { $ref: '#/$defs/node' }, leaf: { $ref: '#/$defs/leaf', description: 'A leaf.' } },
      {
        required: ['tree', 'leaf'],
        $defs: {
          node: {
            type: 'object',
            properties: {
              leaf: { $ref: '#/$defs/leaf' },
              children: { type: 'array', items: { $ref: '#/$defs/node' } },
            },
            required: ['leaf', 'children'],
          },
          leaf: { type: 'string', maxLength: 55 },
        },
      },
    ),
    values: [{ leaf: 'l', tree: { leaf: 'a', children: [{ leaf: 'b', children: [{ leaf: 'c', children: [] }] }] } }],
    says: ['A leaf.', '55', 'node'],
  },
  'a schema that refers to itself': {
    schema: object(
      { value: number, next: { anyOf: [{ $ref: '#' }, { type: 'null' }] } },
      { required: ['value', 'next'] },
    ),
    values: [{ value: 1, next: { value: 2, next: null } }],
    says: ['again|"#"'],
  },
  'tuples, old and new': {
    schema: object(
      { pair: { type: 'array', prefixItems: [{ type: 'string', maxLength: 44 }, number], items: false } },
      { required: ['pair'] },
    ),
    values: [{ pair: ['a', 1] }, { pair: ['a'] }],
    says: ['44'],
  },
  'draft-07': {
    schema: {
      $schema: 'http://json-schema.org/draft-07/schema#',
      ...object(
        {
          pair: {
            type: 'array',
            items: [{ $ref: '#/definitions/name', minLength: 2 }, number],
            additionalItems: false,
          },
          a: string,
          b: string,
          c: string,
        },
        {
          required: ['pair'],
          definitions: { name: { type: 'string', maxLength: 66 } },
          dependencies: { a: ['b'], b: { required: ['c'] } },
        },
      ),
    },
    values: [{ pair: ['name', 1] }, { pair: ['name'], a: '', b: '', c: '' }],
    says: ['66', '`b`|"b"', '`c`|"c"'],
  },
  'open and closed objects': {
    schema: object({
      any: { type: 'object', additionalProperties: { type: 'integer', minimum: 19 } },
      named: {
        type: 'object',
        patternProperties: { '^x-': { type: 'string', maxLength: 73 } },
        additionalProperties: false,
      },
      closed: object({ x: number }, { additionalProperties: false }),
    }),
    values: [{ any: { a: 20 }, named: { 'x-a': 's' }, closed: {} }],
    says: ['19', '^x-', '73', 'additionalProperties":false|No other properties'],
    strict: false,
  },
  'conditions and exclusions': {
    schema: object(
      { a: { type: 'string', not: { enum: ['never'] } }, n: { type: 'integer' } },
      {
        required: ['n'],
        if: { properties: { n: { minimum: 97 } } },
        // oxlint-disable-next-line unicorn/no-thenable -- a keyword of JSON Schema
        then: { required: ['a'] },
        else: { properties: { a: { maxLength: 47 } } },
        dependentRequired: { a: ['n'] },
        propertyNames: { maxLength: 86 },
        not: { required: ['forbidden'] },
      },
    ),
    values: [
      { n: 100, a: 'long enough' },
      { n: 1, a: 'abc' },
    ],
    says: ['never', '97', '47', '86', 'forbidden'],
  },
  'true and false as schemas': {
    schema: object({ never: false, a: { type: 'array', items: true }, e: true }, { required: ['e'] }),
    values: [{ e: 1, a: ['x', 2, true] }, { e: { f: 1 } }, { e: ['x'] }],
    says: ['never'],
    strict: false,
  },
  'what is required and not described': {
    schema: { type: 'object', required: ['mystery'], properties: { a: string } },
    values: [{ mystery: 'x', a: 'y' }],
    says: ['mystery'],
    strict: false,
  },
  'lists with conditions on items': {
    schema: object(
      { a: { type: 'array', items: string, contains: { const: 'needle' }, minContains: 2, maxContains: 37 } },
      { required: ['a'] },
    ),
    values: [{ a: ['needle', 'hay', 'needle'] }],
    says: ['needle', '37'],
  },
  'names that objects have already': {
    schema: object(
      { constructor: string, toString: { type: 'number', maximum: 61 }, definitions: string, $ref: string },
      { required: ['constructor'] },
    ),
    values: [{ constructor: 'x', toString: 1, definitions: 'd', $ref: 'r' }],
    says: ['61'],
  },
  'anchors and ids': {
    schema: object(
      { a: { $ref: '#place' }, b: { $ref: 'urn:x:unit' } },
      {
        required: ['a', 'b'],
        $defs: { p: { $anchor: 'place', type: 'string', maxLength: 52 }, u: { $id: 'urn:x:unit', enum: ['cm', 'in'] } },
      },
    ),
    values: [{ a: 'x', b: 'cm' }],
    says: ['52', 'cm'],
  },
  'words of others': {
    schema: object(
      { a: { type: 'string', examples: ['like this'], deprecated: true, 'x-unit': 'furlong', title: 'The A' } },
      { required: ['a'] },
    ),
    values: [{ a: 's' }],
    says: ['like this', 'eprecated', 'furlong', 'The A'],
  },
}

function toolOf(input: JsonSchema): Tool {
  return defineTool({ name: 'nasty', description: 'Nasty.', input, run: () => null })
}

/** The schemas of a tool for all providers, by what they are called here. */
function bentFor(input: JsonSchema): Record<string, JsonSchema | undefined> {
  const tools = [toolOf(input)]
  const [gemini] = createDefinitions(tools, { for: 'gemini' }).definitions
  const [geminiJson] = createDefinitions(tools, { for: 'gemini', jsonSchema: true }).definitions
  const openAi = createDefinitions(tools, { for: 'openai', strict: true })
  return {
    openai: createDefinitions(tools, { for: 'openai' }).definitions[0]?.function.parameters,
    strict: openAi.notStrict.length > 0 ? undefined : openAi.definitions[0]?.function.parameters,
    responses: createDefinitions(tools, { for: 'openai-responses' }).definitions[0]?.parameters,
    anthropic: createDefinitions(tools, { for: 'anthropic' }).definitions[0]?.input_schema,
    gemini: gemini?.functionDeclarations[0]?.parameters ?? { type: 'object' },
    geminiJson: geminiJson?.functionDeclarations[0]?.parametersJsonSchema,
    mcp: createDefinitions(tools, { for: 'mcp' }).definitions[0]?.inputSchema,
  }
}

const providers = ['openai', 'responses', 'anthropic', 'gemini', 'geminiJson', 'mcp', 'strict']
const table = Object.entries(cases).flatMap(([name, each]) =>
  providers
    .filter((provider) => provider !== 'strict' || each.strict !== false)
    .map((provider) => [name, provider, each] as const),
)
const loose = Object.entries(cases).filter(([, { strict }]) => strict === false)

/** Null for each required member that is not there: what a model writes for a strict schema. */
function withNulls(schema: Json, value: Json, root: JsonObject): Json {
  if (typeof schema !== 'object' || schema === null || Array.isArray(schema)) return value
  const { $ref, anyOf, properties, required, items } = schema
  if (typeof $ref === 'string') {
    const name = $ref.slice('#/$defs/'.length)
    return withNulls($ref === '#' ? root : ((root['$defs'] as JsonObject)[name] ?? true), value, root)
  }
  if (Array.isArray(anyOf)) {
    const filled = anyOf.map((form) => withNulls(form, value, root))
    const formOf = (i: number): JsonObject => {
      const form = anyOf[i] as JsonObject
      return form['$ref'] === '#' ? root : { ...form, $defs: root['$defs'] ?? {} }
    }
    return filled.find((each, i) => compile(formOf(i)).validate(each).length === 0) ?? value
  }
  if (Array.isArray(value)) return value.map((each) => withNulls(items ?? true, each, root))
  if (typeof value !== 'object' || value === null || !Array.isArray(required)) return value
  const names = [...new Set([...Object.keys(value), ...required.map(String)])]
  const forms = properties as JsonObject
  return Object.fromEntries(
    names.map((name) => [
      name,
      Object.hasOwn(value, name) ? withNulls(forms[name] ?? true, value[name] ?? null, root) : null,
    ]),
  )
}

test.each(table)('%s: what fits still fits for %s', (_, provider, { schema, values }) => {
  const before = JSON.stringify(schema)
  const bent = bentFor(schema)[provider]
  expect(JSON.stringify(schema)).toBe(before)
  const original = compile(schema)
  const validator = compile(bent ?? {})
  expect(bent).toMatchObject({ type: 'object' })
  for (const value of values) {
    expect(original.validate(value)).toEqual([])
    const written = provider === 'strict' ? withNulls(bent ?? {}, value, bent ?? {}) : value
    expect({ written, issues: validator.validate(written) }).toEqual({ written, issues: [] })
    expect(provider === 'strict' ? fromModelArguments(schema, written) : written).toEqual(value)
  }
})

test.each(table)('%s: nothing is left unsaid for %s', (_, provider, { schema, says }) => {
  const text = JSON.stringify(
    bentFor(schema)[provider] ?? createDefinitions([toolOf(schema)], { for: 'gemini' }).definitions,
  )
  for (const said of says) {
    const ways = said.startsWith('^') ? [said] : said.split('|')
    expect({ text, said, found: ways.some((way) => text.replaceAll('\\"', '"').includes(way)) }).toMatchObject({
      found: true,
    })
  }
})

const taken: Record<string, readonly string[]> = {
  gemini: [
    'type',
    'nullable',
    'title',
    'description',
    'format',
    'enum',
    'pattern',
    'minLength',
    'maxLength',
    'minimum',
    'maximum',
    'items',
    'minItems',
    'maxItems',
    'properties',
    'required',
    'minProperties',
    'maxProperties',
    'anyOf',
  ],
  geminiJson: [
    'type',
    'title',
    'description',
    'format',
    'enum',
    'minimum',
    'maximum',
    'items',
    'prefixItems',
    'minItems',
    'maxItems',
    'properties',
    'required',
    'additionalProperties',
    'anyOf',
  ],
  strict: [
    'type',
    'title',
    'description',
    'format',
    'enum',
    'pattern',
    'multipleOf',
    'minimum',
    'maximum',
    'exclusiveMinimum',
    'exclusiveMaximum',
    'items',
    'minItems',
    'maxItems',
    'properties',
    'required',
    'additionalProperties',
    'anyOf',
    '$ref',
    '$defs',
  ],
}

/** Every schema within a schema, itself first. */
function nodesOf(schema: Json): JsonObject[] {
  if (typeof schema !== 'object' || schema === null || Array.isArray(schema)) return []
  const {
    properties = {},
    $defs = {},
    items = true,
    anyOf = [],
    prefixItems = [],
    additionalProperties = true,
  } = schema
  const lists = [...(anyOf as Json[]), ...(prefixItems as Json[])]
  return [
    schema,
    ...[
      ...Object.values(properties as JsonObject),
      ...Object.values($defs as JsonObject),
      ...lists,
      items,
      additionalProperties,
    ].flatMap(nodesOf),
  ]
}

test.each(loose)('%s cannot be strict', (_, { schema }) => {
  expect(bentFor(schema)['strict']).toBeUndefined()
})

/** What Gemini's `parameters` would be refused for. */
function geminiProblems(node: JsonObject): string[] {
  const { type, anyOf, enum: values, items, properties = {}, required = [] } = node
  if (anyOf !== undefined) return Object.keys(node).length === 1 ? [] : ['something stands beside anyOf']
  const texts = (values ?? ['x']) as Json[]
  const unknown = (required as string[]).filter((name) => !Object.hasOwn(properties as JsonObject, name))
  return [
    typeof type === 'string' ? [] : ['it has no type'],
    texts.every((each) => typeof each === 'string' && each !== '') ? [] : ['its enum holds no texts'],
    type === 'array' && items === undefined ? ['it has no items'] : [],
    unknown.map((name) => `${name} is required and unknown`),
  ].flat()
}

function strictProblems(node: JsonObject): string[] {
  const { $ref, type, properties = {}, required = [], additionalProperties } = node
  if ($ref !== undefined) return Object.keys(node).length === 1 ? [] : ['something stands beside $ref']
  if (![type].flat().includes('object')) return []
  const optional = Object.keys(properties as JsonObject).filter((name) => !(required as string[]).includes(name))
  return [...(additionalProperties === false ? [] : ['it is open']), ...optional.map((name) => `${name} is optional`)]
}

test.each(Object.entries(cases))('%s: no provider is sent what it refuses', (_, { schema }) => {
  const bent = bentFor(schema)
  const problems = Object.entries(taken).flatMap(([provider, keywords]) =>
    nodesOf(bent[provider] ?? {}).flatMap((node) => Object.keys(node).filter((key) => !keywords.includes(key))),
  )
  expect(problems).toEqual([])
  expect(nodesOf(bent['gemini'] ?? {}).flatMap(geminiProblems)).toEqual([])
  expect(nodesOf(bent['strict'] ?? {}).flatMap(strictProblems)).toEqual([])
  for (const key of ['oneOf', 'anyOf', 'allOf']) {
    for (const provider of ['openai', 'responses', 'anthropic', 'strict', 'gemini'])
      expect(bent[provider] ?? {}).not.toHaveProperty(key)
  }
})
