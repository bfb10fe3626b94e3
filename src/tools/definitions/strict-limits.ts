/** The limits of OpenAI's strict schemas. */
import { isObject, type Json, type JsonObject } from '../../base/json.ts'

/** https://platform.openai.com/docs/guides/structured-outputs#supported-schemas */
const maxStrict = { depth: 10, properties: 5000, enumValues: 1000, characters: 120_000 }

/** What of OpenAI's limits a strict schema passes. */
export function beyondStrict(schema: JsonObject): string | undefined {
  let properties = 0
  let enumValues = 0
  let characters = 0
  let deepest = 0
  const walk = (node: Json, depth: number): void => {
    if (!isObject(node)) return
    deepest = Math.max(deepest, depth)
    const { properties: members, enum: values, items, anyOf, $defs } = node
    for (const [name, member] of Object.entries(isObject(members) ? members : {})) {
      properties++
      characters += name.length
      walk(member, depth + 1)
    }
    for (const value of Array.isArray(values) ? values : []) {
      enumValues++
      characters += typeof value === 'string' ? value.length : 0
    }
    if (items !== undefined) walk(items, depth + 1)
    for (const form of Array.isArray(anyOf) ? anyOf : []) walk(form, depth)
    for (const [name, form] of Object.entries(isObject($defs) ? $defs : {})) {
      characters += name.length
      walk(form, depth)
    }
  }
  walk(schema, 1)
  if (deepest > maxStrict.depth) return `it nests deeper than ${maxStrict.depth} levels`
  if (properties > maxStrict.properties) return `it has more than ${maxStrict.properties} properties`
  if (enumValues > maxStrict.enumValues) return `it lists more than ${maxStrict.enumValues} values`
  return characters > maxStrict.characters
    ? `its names and values have more than ${maxStrict.characters} characters`
    : undefined
}
