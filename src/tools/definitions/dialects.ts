/**
 * What each provider takes of JSON Schema, read from its public documentation. A keyword that is missing here is not lost:
 * it is said in words in the description of its place.
 */

export interface Dialect {
  /** Keywords taken as they are, beside `type`, `properties`, `required`, `items`, `enum`, `anyOf` and `description`. Undefined: all of 2020-12. */
  readonly keywords?: ReadonlySet<string>
  /** Formats taken, as `TYPE FORMAT`. Undefined: all. */
  readonly formats?: ReadonlySet<string>
  /** Whether a schema may refer to its `$defs`. Otherwise what is referred to stands in its place. */
  readonly refs: boolean
  /** Keywords that the root may not have. */
  readonly notAtRoot: readonly string[]
  /** What the name of a property must look like. Undefined: anything. */
  readonly propertyName?: RegExp
  /** Whether each array must say what its items are. */
  readonly itemsNeeded: boolean
  /** Whether the root must have `properties`, if empty ones. */
  readonly propertiesNeeded: boolean
  /** Every object names all of its properties, all are required, and those that were optional may be null. */
  readonly closed: boolean
  /** How null is allowed: by the type `null`, or by `nullable: true`. */
  readonly nulls: 'type' | 'nullable'
  /** Whether `enum` may hold anything but strings. */
  readonly anyEnum: boolean
  /** Whether nothing may stand beside `anyOf`, not even a description. */
  readonly loneAnyOf: boolean
}

const all = {
  refs: true,
  propertiesNeeded: false,
  closed: false,
  nulls: 'type',
  anyEnum: true,
  loneAnyOf: false,
} as const

/**
 * OpenAI, not strict: `parameters` is "a JSON Schema object". The API answers 400 for an array without `items`, for tuples
 * of draft-07, for a root without `properties`, and for one with any of these keywords.
 * https://platform.openai.com/docs/guides/function-calling
 */
export const openAi: Dialect = {
  ...all,
  notAtRoot: ['oneOf', 'anyOf', 'allOf', 'enum', 'const', 'not', '$ref'],
  itemsNeeded: true,
  propertiesNeeded: true,
}

/**
 * OpenAI, `strict: true`: objects are closed and all of their properties required; `anyOf`, `$defs` and recursion, but no
 * `allOf`, `not`, `if`, `oneOf`, `default`; `pattern` and these formats for strings, limits for numbers, `minItems` and
 * `maxItems` for arrays.
 * https://platform.openai.com/docs/guides/structured-outputs#supported-schemas
 */
export const openAiStrict: Dialect = {
  ...all,
  // Titles are not on the list, but OpenAI's own client libraries send them.
  keywords: new Set([
    'title',
    'pattern',
    'format',
    'multipleOf',
    'minimum',
    'maximum',
    'exclusiveMinimum',
    'exclusiveMaximum',
    'minItems',
    'maxItems',
  ]),
  formats: new Set(
    ['date-time', 'time', 'date', 'duration', 'email', 'hostname', 'ipv4', 'ipv6', 'uuid'].map(
      (format) => `string ${format}`,
    ),
  ),
  notAtRoot: [],
  itemsNeeded: true,
  closed: true,
}

/**
 * Anthropic: `input_schema` is JSON Schema 2020-12 of type object. A root with a union is refused, and so are names of
 * properties that do not match this pattern.
 * https://docs.anthropic.com/en/docs/agents-and-tools/tool-use/implement-tool-use
 */
export const anthropic: Dialect = {
  ...all,
  notAtRoot: ['oneOf', 'anyOf', 'allOf', '$ref'],
  propertyName: /^[a-zA-Z0-9_.-]{1,64}$/,
  itemsNeeded: false,
}

/**
 * Gemini, `parameters`: the `Schema` object, "a select subset of an OpenAPI 3.0 schema object". `default` and `example` are
 * fields of it that are ignored, so they are said in words. Vertex AI refuses anything beside `anyOf`; the Gemini API
 * refuses other formats than these.
 * https://ai.google.dev/api/caching#Schema
 */
export const gemini: Dialect = {
  keywords: new Set([
    'title',
    'format',
    'pattern',
    'minLength',
    'maxLength',
    'minimum',
    'maximum',
    'minItems',
    'maxItems',
    'minProperties',
    'maxProperties',
  ]),
  formats: new Set(['string date-time', 'number float', 'number double', 'integer int32', 'integer int64']),
  refs: false,
  notAtRoot: [],
  propertyName: /^[a-zA-Z_][a-zA-Z0-9_.-]{0,63}$/,
  itemsNeeded: true,
  propertiesNeeded: false,
  closed: false,
  nulls: 'nullable',
  anyEnum: false,
  loneAnyOf: true,
}

/**
 * Gemini, `parametersJsonSchema`: JSON Schema, of which these keywords count. References may only stand alone and, where
 * they recur, in optional properties: what they refer to stands in their place instead.
 * https://ai.google.dev/gemini-api/docs/structured-output#json_schema_support
 */
export const geminiJsonSchema: Dialect = {
  ...all,
  keywords: new Set([
    'title',
    'format',
    'minimum',
    'maximum',
    'minItems',
    'maxItems',
    'prefixItems',
    'additionalProperties',
  ]),
  formats: new Set(['string date-time', 'string date', 'string time']),
  refs: false,
  notAtRoot: [],
  propertyName: /^[a-zA-Z_][a-zA-Z0-9_.-]{0,63}$/,
  itemsNeeded: true,
}

/**
 * MCP: JSON Schema of type object, 2020-12 unless `$schema` says otherwise. Widespread clients refuse `true` and `false`
 * as the schema of a property.
 * https://modelcontextprotocol.io/specification/2025-11-25/server/tools
 */
export const mcp: Dialect = { ...all, notAtRoot: [], itemsNeeded: false }

/** LangChain: a tool of it may be bound to any model, so its schema is one that OpenAI and Anthropic both take. */
export const langChain: Dialect = {
  ...anthropic,
  notAtRoot: openAi.notAtRoot,
  itemsNeeded: true,
  propertiesNeeded: true,
}
