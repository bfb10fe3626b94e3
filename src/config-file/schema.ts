/**
 * `convoke.schema.json` is the one description of what may stand in a configuration file, for editors and for this check. Its
 * keyword `errorMessage` (editors know it too) holds the words in which a mistake is told; the validator only
 * says where the mistakes are.
 */
import { readFileSync } from 'node:fs'
import type { Issue } from '../base/errors.ts'
import { isObject, type JsonObject } from '../base/json.ts'
import { compile } from '../tools/schema.ts'
import { closest } from '../tools/value.ts'
import type { Path } from './path.ts'

/** Parsed when the first file is read, and compiled with it. */
let parsedSchema: JsonObject | undefined

export function configSchema(): JsonObject {
  parsedSchema ??= JSON.parse(readFileSync(new URL('../../convoke.schema.json', import.meta.url), 'utf8')) as JsonObject
  return parsedSchema
}

/** Where a file is wrong. */
export function validateConfig(value: unknown): readonly Issue[] {
  return compile(configSchema()).validate(value)
}

/** What may stand at a place; undefined where nothing may. */
export function schemaAt(path: Path): JsonObject | undefined {
  let schema: unknown = configSchema()
  for (const segment of path) {
    if (!isObject(schema)) return undefined
    const properties: unknown = schema['properties']
    schema =
      isObject(properties) && Object.hasOwn(properties, segment)
        ? properties[segment]
        : (schema['items'] ?? schema['additionalProperties'])
  }
  return isObject(schema) ? (schema as JsonObject) : undefined
}

/** The schemas of the keys that a mapping knows by name. */
export function propertiesOf(schema: JsonObject): JsonObject | undefined {
  return isObject(schema['properties']) ? schema['properties'] : undefined
}

/** Whether a mapping may have that key, where the schema says what keys look like. */
export function isNameFor(schema: JsonObject, key: string): boolean {
  const { propertyNames } = schema
  const pattern: unknown = isObject(propertyNames) ? propertyNames['pattern'] : undefined
  return typeof pattern !== 'string' || new RegExp(pattern).test(key)
}

/** The one of these names that was probably meant. */
export function similarOf(key: string, allowed: readonly string[]): string | undefined {
  return allowed.find((name) => isSwapped(key, name)) ?? closest(key, allowed)
}

/** Whether two neighbouring letters changed places: `hots` for `host`, which counts as two mistakes otherwise. */
function isSwapped(typed: string, name: string): boolean {
  let at = 0
  while (at < name.length && name[at] === typed[at]) at++
  return name.slice(0, at) + name.charAt(at + 1) + name.charAt(at) + name.slice(at + 2) === typed
}

/** The rest of a sentence about a value that the schema refuses: `must be a mapping of names to handles`. */
export function messageOf(schema: JsonObject | undefined): string {
  const words = schema?.['errorMessage']
  return typeof words === 'string' ? words : 'is not what it must be'
}
