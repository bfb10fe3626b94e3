/** What an agent's output must look like, in the ways in which it can be said. */
import { ConvokeError, type Issue } from '../base/errors.ts'
import { freezeJson, isObject, type Json, type JsonObject } from '../base/json.ts'
import { describeIssues } from '../tools/issues.ts'
import { checkSchema } from '../tools/schema-check.ts'
import { isStandardSchema, jsonSchemaOf, refineWith, type StandardSchema } from '../tools/standard.ts'
import { excerpt, findNotJson } from '../tools/value.ts'

/** A row: fields by name, each with the type of the same place. The output is an object with these fields, in their order. */
export interface RowType {
  readonly names: readonly string[]
  /** `string`, `integer`, `number` or `boolean`, or what databases and stream processors call them: `INT`, `BIGINT`, `DOUBLE`, …; or the row of a field. */
  readonly types: readonly (string | RowType)[]
}

/** A JSON Schema, a schema of a library such as zod, or a row. */
export type OutputSchema = JsonObject | StandardSchema | RowType

export interface ReadSchema {
  readonly schema: JsonObject
  /** What the library's own schema makes of a value that fits; undefined where JSON Schema says all there is. */
  readonly refine?: (value: Json) => Promise<{ readonly value: Json } | { readonly issues: readonly Issue[] }>
}

/** Throws TypeError for what is no schema. */
export function readOutputSchema(given: unknown): ReadSchema {
  if (isStandardSchema(given)) {
    // The model writes what goes into the schema; what comes out of its transforms is the output.
    return { schema: toSchema(() => jsonSchemaOf(given, 'input')), refine: refiner(given) }
  }
  if (isRow(given)) return { schema: rowSchema(given) }
  const copy = freezeJson(given)
  if ('at' in copy && copy.at !== '') throw wrong(`it is no JSON at ${copy.at}`)
  if ('at' in copy || !isObject(copy.value))
    throw wrong(
      `it must be a JSON Schema, a Standard Schema (zod and the like) or { names, types }, got ${excerpt(given)}`,
    )
  const { value: schema } = copy
  const issues = checkSchema(schema)
  if (issues.length > 0) throw wrong(describeIssues(issues))
  if (!says(schema))
    throw wrong(
      `no keyword of JSON Schema stands in it, so anything would fit; did you mean { type: 'object', properties: ${excerpt(schema)} }`,
    )
  return { schema }
}

/** Whether the schema says anything of the value. */
function says(schema: JsonObject): boolean {
  return Object.keys(schema).some((key) => keywords.has(key))
}

const keywords: ReadonlySet<string> = new Set(
  '$ref,$dynamicRef,allOf,anyOf,const,else,enum,if,items,maxLength,maximum,minLength,minimum,multipleOf,not,oneOf,pattern,prefixItems,properties,required,then,type'.split(
    ',',
  ),
)

function wrong(what: string): TypeError {
  return new TypeError(`The output schema of an agent is wrong: ${what}.`)
}

function toSchema(make: () => JsonObject): JsonObject {
  try {
    return make()
  } catch (error) {
    if (error instanceof ConvokeError) throw new TypeError(error.message, { cause: error })
    throw error
  }
}

function refiner(schema: StandardSchema): NonNullable<ReadSchema['refine']> {
  return async (value) => {
    const refined = await refineWith(schema, value)
    if (refined.issues !== undefined) return { issues: refined.issues }
    const issue = findNotJson(refined.value)
    return issue === undefined ? { value: refined.value as Json } : { issues: [issue] }
  }
}

/** By their names in lower case, without the length or precision in brackets. */
const rowTypes: Readonly<Record<string, string>> = {
  string: 'string',
  str: 'string',
  text: 'string',
  varchar: 'string',
  char: 'string',
  int: 'integer',
  integer: 'integer',
  long: 'integer',
  bigint: 'integer',
  short: 'integer',
  smallint: 'integer',
  byte: 'integer',
  tinyint: 'integer',
  number: 'number',
  float: 'number',
  double: 'number',
  real: 'number',
  decimal: 'number',
  numeric: 'number',
  boolean: 'boolean',
  bool: 'boolean',
}

function isRow(given: unknown): given is { readonly names: readonly unknown[]; readonly types: readonly unknown[] } {
  return isObject(given) && Array.isArray(given['names']) && Array.isArray(given['types'])
}

function rowSchema({
  names,
  types,
}: {
  readonly names: readonly unknown[]
  readonly types: readonly unknown[]
}): JsonObject {
  if (names.length === 0 || names.length !== types.length)
    throw wrong(
      `a row needs as many types as names, and at least one; got ${names.length} names and ${types.length} types`,
    )
  const fields = names.map((name, i): [string, Json] => {
    if (typeof name !== 'string' || name === '')
      throw wrong(`the name of a row's field must be a text, got ${excerpt(name)}`)
    const type = types[i]
    if (isRow(type)) return [name, rowSchema(type)]
    const known = typeof type === 'string' ? rowTypes[type.toLowerCase().replace(/\(.*\)$/, '')] : undefined
    if (known === undefined)
      throw wrong(
        `the type of the row's field ${excerpt(name)} must be one of string, integer, number, boolean, or a row, got ${excerpt(type)}`,
      )
    return [name, { type: known }]
  })
  const properties = Object.fromEntries(fields)
  const required = Object.keys(properties)
  if (required.length !== names.length) throw wrong('two fields of a row have the same name')
  return { type: 'object', properties, required, additionalProperties: false }
}
