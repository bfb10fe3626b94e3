// What the compiler knows of a tool's params and results. Checked by `npm run typecheck`; never run.
import { toStandardJsonSchema } from '@valibot/to-json-schema'
import { type } from 'arktype'
import * as v from 'valibot'
import { z } from 'zod'
import type { Json, JsonObject } from '../../dist/base/json.js'
import { defineTool } from '../../dist/tools/define.js'
import type { JsonSchema } from '../../dist/tools/tool.js'

type Same<A, B> = (<T>() => T extends A ? 1 : 2) extends <T>() => T extends B ? 1 : 2 ? true : false
/** Compiles only for values of just this type. */
function is<Expected>() {
  return <Actual>(
    _value: Actual,
    ..._proof: Same<Actual, Expected> extends true ? [] : ['has another type']
  ): void => {}
}

const base = { name: 'sample', description: 'A sample.' } as const

// The sample in the design.
export const countTo = defineTool({
  name: 'count_to',
  description: 'Counts up to n, one number a tick.',
  input: { type: 'object', properties: { n: { type: 'integer', minimum: 1 } }, required: ['n'] },
  output: { type: 'object', properties: { counted: { type: 'integer' } }, required: ['counted'] },
  traits: { idempotent: true, category: 'demo', timeoutMs: 60_000 },
  async *run({ n }, context) {
    is<number>()(n)
    is<AbortSignal>()(context.signal)
    for (let i = 1; i <= n; i++) {
      context.signal.throwIfAborted()
      context.progress({ progress: i, total: n })
      yield { i }
    }
    return { counted: n }
  },
})

defineTool({
  ...base,
  input: {
    type: 'object',
    properties: {
      text: { type: 'string' },
      flag: { type: 'boolean' },
      nothing: { type: 'null' },
      list: { type: 'array', items: { type: 'object', properties: { x: { type: 'number' } }, required: ['x'] } },
      loose: { type: 'array' },
      color: { enum: ['red', 'green', 1, null] },
      fixed: { const: 'on' },
      many: { type: ['string', 'integer', 'null'] },
      either: { anyOf: [{ type: 'string' }, { type: 'array', items: { type: 'boolean' } }] },
      map: { type: 'object', additionalProperties: { type: 'number' } },
      open: { type: 'object' },
      unknown: { $ref: '#/$defs/x' },
      filled: { type: 'integer', default: 3 },
      maybe: { type: 'string' },
    },
    required: [
      'text',
      'flag',
      'nothing',
      'list',
      'loose',
      'color',
      'fixed',
      'many',
      'either',
      'map',
      'open',
      'unknown',
    ],
    $defs: { x: {} },
  },
  run(params) {
    is<string>()(params.text)
    is<boolean>()(params.flag)
    is<null>()(params.nothing)
    is<{ x: number }[]>()(params.list)
    is<Json[]>()(params.loose)
    is<'red' | 'green' | 1 | null>()(params.color)
    is<'on'>()(params.fixed)
    is<string | number | null>()(params.many)
    is<string | boolean[]>()(params.either)
    is<{ [key: string]: number }>()(params.map)
    is<{ [key: string]: Json }>()(params.open)
    is<Json>()(params.unknown)
    is<number>()(params.filled)
    is<string | undefined>()(params.maybe)
    // @ts-expect-error no such param
    return params.none
  },
})

// A schema that is only known as one.
declare const schema: JsonSchema
defineTool({
  ...base,
  input: schema,
  output: schema,
  run(params) {
    is<JsonObject>()(params)
    return params['anything']
  },
})

// No params; nothing returned; bytes.
defineTool({ ...base, input: { type: 'object', properties: {} }, run() {} })
defineTool({ ...base, input: { type: 'object' }, run: async () => Buffer.from('x') })

// Functions of every kind may return what the output schema says, and nothing else. The words of an enum are checked at
// run time.
const output = {
  type: 'object',
  properties: { status: { enum: ['ok', 'bad'] }, n: { type: 'number' } },
  required: ['status'],
} as const
const input = { type: 'object', properties: {} } as const
const typed = { ...base, input, output }
defineTool({ ...typed, run: (_) => ({ status: 'ok' }) })
defineTool({ ...typed, run: () => ({ status: 'ok' }) })
defineTool({ ...typed, run: async (_) => ({ status: 'ok', n: 1 }) })
defineTool({
  ...typed,
  *run(_) {
    yield 1
    return { status: 'bad' }
  },
})
defineTool({
  ...typed,
  async *run(_) {
    yield 1
    return { status: 'bad' }
  },
})
// @ts-expect-error status is a word
defineTool({ ...typed, run: (_) => ({ status: 5 }) })
// @ts-expect-error status is missing
defineTool({ ...typed, run: async (_) => ({ n: 1 }) })
defineTool({
  ...typed,
  // @ts-expect-error status is missing
  async *run(_) {
    yield 1
    return {}
  },
})

// Schemas of other libraries: what comes out of them goes into run, what goes into them comes out of run.
defineTool({
  ...base,
  input: z.object({ at: z.iso.date().transform((text) => new Date(text)), n: z.number().default(1) }),
  output: z.object({ text: z.number().transform(String) }),
  run({ at, n }) {
    is<Date>()(at)
    is<number>()(n)
    return { text: 1 }
  },
})
defineTool({
  ...base,
  input: type({ name: 'string', 'n?': 'number' }),
  run({ name, n }) {
    is<string>()(name)
    is<number | undefined>()(n)
  },
})
defineTool({
  ...base,
  input: toStandardJsonSchema(v.object({ name: v.string(), n: v.optional(v.number(), 1) })),
  run({ name, n }) {
    is<string>()(name)
    is<number>()(n)
  },
})

// What blocks runs elsewhere.
defineTool({ ...base, input, blocking: { module: new URL('file:///x.js'), export: 'work' } })
// @ts-expect-error either run or blocking
defineTool({ ...base, input, blocking: { module: '/x.js' }, run: () => null })
// @ts-expect-error input is needed
defineTool({ ...base, run: () => null })
// @ts-expect-error traits are known
defineTool({ ...base, input, traits: { timeout: 5 }, run: () => null })
