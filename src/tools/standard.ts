/**
 * Schemas of other libraries (zod, ArkType, Valibot, …) by way of the Standard Schema and Standard JSON Schema
 * specifications (https://standardschema.dev): nothing here depends on any of them.
 */
import { ConvokeError, type Issue } from '../base/errors.ts'
import { isObject, type JsonObject } from '../base/json.ts'
import type { JsonSchema, Refined } from './tool.ts'
import { clip, toPointer } from './value.ts'

/** What of the Standard Schema interface, version 1, is used here. */
export interface StandardSchema<Input = unknown, Output = Input> {
  readonly '~standard': {
    readonly version: 1
    readonly vendor: string
    readonly validate: (value: unknown) => StandardResult<Output> | Promise<StandardResult<Output>>
    readonly types?: { readonly input: Input; readonly output: Output } | undefined
  }
}

export type StandardResult<Output> =
  | { readonly value: Output; readonly issues?: undefined }
  | { readonly issues: readonly StandardIssue[] }

export interface StandardIssue {
  readonly message: string
  readonly path?: readonly (PropertyKey | { readonly key: PropertyKey })[] | undefined
}

export type StandardInput<Schema extends StandardSchema> = NonNullable<Schema['~standard']['types']>['input']
export type StandardOutput<Schema extends StandardSchema> = NonNullable<Schema['~standard']['types']>['output']

export function isStandardSchema(value: unknown): value is StandardSchema {
  // ArkType's schemas are functions.
  if ((typeof value !== 'object' && typeof value !== 'function') || value === null) return false
  const standard: unknown = Reflect.get(value, '~standard')
  return isObject(standard) && typeof standard['validate'] === 'function'
}

/** Which side of a schema: what goes into it, or what comes out of its transforms and defaults. */
export type Side = 'input' | 'output'

const target = 'draft-2020-12'

/**
 * The JSON Schema of a Standard Schema: its own `~standard.jsonSchema`, or the methods that libraries had before that
 * was specified. Throws `config` with what to write instead when it cannot say one.
 */
export function jsonSchemaOf(schema: StandardSchema, side: Side): JsonSchema {
  const standard: object = schema['~standard']
  const vendor = schema['~standard'].vendor
  const convert = converters(schema, standard, side).find((each) => each !== undefined)
  if (convert === undefined)
    throw new ConvokeError(
      'config',
      `The ${side} schema made with ${vendor} cannot say its JSON Schema; ${advice(vendor)}.`,
    )
  try {
    const json: unknown = convert()
    // Through text, so that what stands on the card is plain JSON, without a library's functions or prototypes.
    return JSON.parse(JSON.stringify(json)) as JsonObject
  } catch (cause) {
    const reason = cause instanceof Error ? cause.message : String(cause)
    const message = `The ${side} schema made with ${vendor} has a part that JSON Schema cannot say: ${clip(reason, 300)}. Take JSON types on this side of it.`
    throw new ConvokeError('config', message, { cause })
  }
}

function converters(schema: StandardSchema, standard: object, side: Side): ((() => unknown) | undefined)[] {
  return [
    method(Reflect.get(standard, 'jsonSchema'), side, { target }),
    method(schema, 'toJSONSchema', { io: side, target }),
    method(schema, 'toJsonSchema'),
  ]
}

function method(owner: unknown, name: string, ...args: readonly unknown[]): (() => unknown) | undefined {
  if ((typeof owner !== 'object' && typeof owner !== 'function') || owner === null) return undefined
  const found: unknown = Reflect.get(owner, name)
  return typeof found === 'function' ? () => Reflect.apply(found, owner, args) as unknown : undefined
}

function advice(vendor: string): string {
  switch (vendor) {
    case 'valibot':
      return "wrap it: `import { toStandardJsonSchema } from '@valibot/to-json-schema'`, then `toStandardJsonSchema(schema)`"
    case 'zod':
      return 'use zod 4.2 or newer, or pass `z.toJSONSchema(schema)`'
    case 'arktype':
      return 'use arktype 2.1.28 or newer, or pass `schema.toJsonSchema()`'
    default:
      return 'give a schema that has `~standard.jsonSchema` (https://standardschema.dev/json-schema), or write the JSON Schema itself'
  }
}

/** Runs the schema's own validation, so that its refinements hold and its transforms and defaults come through. */
export function refineWith(schema: StandardSchema, value: unknown): Refined | Promise<Refined> {
  const result = schema['~standard'].validate(value)
  return result instanceof Promise ? result.then(toRefined) : toRefined(result)
}

function toRefined(result: StandardResult<unknown>): Refined {
  if (result.issues === undefined) return { value: result.value }
  return { issues: result.issues.slice(0, 20).map(toIssue) }
}

function toIssue({ message, path = [] }: StandardIssue): Issue {
  const keys = path.map((part) => (typeof part === 'object' ? part.key : part))
  return { path: toPointer(keys), message: clip(message, 500) }
}
