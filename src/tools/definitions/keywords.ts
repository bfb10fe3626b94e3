/** The keywords of JSON Schema by what they hold and what they speak of. */

/** Keywords that hold schemas: one, a list, or several by name. */
export const subschemas = new Map<string, 'one' | 'list' | 'named'>([
  ...['items', 'additionalProperties', 'propertyNames', 'contains', 'not', 'if', 'then', 'else'].map(
    (key) => [key, 'one'] as const,
  ),
  ...['unevaluatedItems', 'unevaluatedProperties'].map((key) => [key, 'one'] as const),
  ...['allOf', 'anyOf', 'oneOf', 'prefixItems'].map((key) => [key, 'list'] as const),
  ...['properties', 'patternProperties', 'dependentSchemas'].map((key) => [key, 'named'] as const),
])

/** What is said about a value, and demands nothing of it. */
const annotations = new Set(['title', 'description', 'default', 'examples', 'example', 'deprecated', '$comment'])

export function isAnnotation(key: string): boolean {
  return annotations.has(key)
}

/** Where a schema is and what it is called: nothing to those who fill in params. What `$defs` hold is carried over when it is used. */
export const dropped = new Set([
  '$schema',
  '$id',
  '$anchor',
  '$dynamicAnchor',
  '$vocabulary',
  '$comment',
  '$defs',
  'definitions',
])

/** The types that values have in these respects: an integer is a number. */
export type Kind = 'string' | 'number' | 'array' | 'object' | 'boolean'

/** Keywords that speak of values of one type only. */
export const scopes = new Map<string, Kind>([
  ...['minLength', 'maxLength', 'pattern', 'contentEncoding', 'contentMediaType', 'contentSchema'].map(
    (key) => [key, 'string'] as const,
  ),
  ...['minimum', 'maximum', 'exclusiveMinimum', 'exclusiveMaximum', 'multipleOf'].map(
    (key) => [key, 'number'] as const,
  ),
  ...['items', 'prefixItems', 'contains', 'minContains', 'maxContains', 'minItems', 'maxItems', 'uniqueItems'].map(
    (key) => [key, 'array'] as const,
  ),
  ...['unevaluatedItems'].map((key) => [key, 'array'] as const),
  ...['properties', 'required', 'additionalProperties', 'patternProperties', 'propertyNames'].map(
    (key) => [key, 'object'] as const,
  ),
  ...['minProperties', 'maxProperties', 'dependentRequired', 'dependentSchemas'].map((key) => [key, 'object'] as const),
  ...['unevaluatedProperties'].map((key) => [key, 'object'] as const),
])
