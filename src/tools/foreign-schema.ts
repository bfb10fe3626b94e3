/** Schemas that others wrote. */
import { isObject, type Json } from '../base/json.ts'
import { stripControls } from '../base/text.ts'
import type { JsonSchema } from './tool.ts'

/** What stands there is for people and models, and says nothing of which values fit. */
const wordKeys: ReadonlySet<string> = new Set(['title', 'description', '$comment'])
/** What stands there are values, not schemas. */
const valueKeys: ReadonlySet<string> = new Set(['const', 'enum', 'default', 'examples'])

/**
 * The schema without characters that people do not see and models obey in its titles, descriptions and comments. The
 * same object where there are none; values such as defaults and enums stay as they are.
 */
export function cleanSchema<Schema extends JsonSchema | undefined>(schema: Schema): Schema {
  return clean(schema) as Schema
}

function clean(value: Json | undefined): Json | undefined {
  if (Array.isArray(value)) {
    const items = value.map((item) => clean(item) as Json)
    return items.every((item, index) => item === value[index]) ? value : items
  }
  if (!isObject(value)) return value
  const entries = Object.entries(value)
  const cleaned = entries.map(([key, member]): [string, Json] => {
    if (typeof member === 'string' && wordKeys.has(key)) return [key, stripControls(member)]
    return [key, valueKeys.has(key) ? member : (clean(member) as Json)]
  })
  // fromEntries defines its members: a property may be called __proto__.
  return cleaned.every(([, member], index) => member === entries[index]?.[1]) ? value : Object.fromEntries(cleaned)
}
