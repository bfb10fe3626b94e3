/** What is wrong with a value that the schema refuses, in words. */
import { isObject, type JsonObject } from '../base/json.ts'
import { clip, toPointer } from '../tools/value.ts'
import { fromPointer, valueAt, type Path } from './path.ts'
import { isPrivate, showPath } from './privacy.ts'
import { configSchema, isNameFor, messageOf, propertiesOf, schemaAt, similarOf } from './schema.ts'
import type { Source } from './source.ts'

/** Says in words what is wrong at the place where the validator found something. */
export function explain(source: Source, root: unknown, pointer: string): void {
  let path = fromPointer(pointer)
  // Validators differ in whether a missing or unknown key is an issue of the key or of the mapping around it.
  while (path.length > 0 && (schemaAt(path) === undefined || valueAt(root, path) === undefined))
    path = path.slice(0, -1)
  const schema = schemaAt(path) ?? {}
  const value = valueAt(root, path)
  const { propertyNames } = schema
  if (isObject(propertyNames) && isObject(value)) {
    const wrong = Object.keys(value).filter((key) => !isNameFor(schema, key))
    for (const key of wrong) source.add([...path, key], `${messageOf(propertyNames)}.`, { at: 'key' })
    if (wrong.length > 0) return
  }
  const allowed = propertiesOf(schema)
  if (allowed !== undefined && isObject(value)) {
    const unknown = Object.keys(value).filter((key) => !Object.hasOwn(allowed, key))
    const required = Array.isArray(schema['required']) ? schema['required'].map(String) : []
    const missing = required.filter((key) => !Object.hasOwn(value, key))
    for (const key of unknown)
      source.add([...path, key], `is an unknown key${instead(key, Object.keys(allowed))}`, { at: 'key' })
    for (const key of missing) {
      const name = [...path, key]
      source.add(path, `is missing: it ${messageOf(schemaAt(name))}.`, { at: 'key', name })
    }
    if (unknown.length > 0 || missing.length > 0) return
  }
  // A variable that is not set was told already.
  if (source.problems.some((problem) => problem.path === toPointer(path) && source.variables.has(problem.path))) return
  source.add(path, `${messageOf(schema)}${butItIs(source, path, value, schema)}.`)
}

/** What a key that is unknown was to be. */
function instead(key: string, allowed: readonly string[]): string {
  const meant = similarOf(key, allowed) ?? placesOf(key)[0]
  if (meant !== undefined) return `; did you mean ${meant}?`
  return `. Allowed: ${allowed.filter((name) => name !== '$schema').join(', ')}.`
}

function butItIs(source: Source, path: Path, value: unknown, schema: JsonObject): string {
  const wantsText = [schema['type']].flat().includes('string')
  if (value === null) return ', but it is empty'
  if (Array.isArray(value)) {
    if (![schema['type']].flat().includes('array')) return ', but it is a list'
    return value.length === 0 && schema['minItems'] !== undefined ? ', but it is empty' : ''
  }
  if (isObject(value)) return schema['type'] === 'object' ? '' : ', but it is a mapping'
  if (typeof value === 'number' && wantsText && schema['minimum'] === undefined) {
    return isPrivate(path)
      ? ', but it is a number: put it in quotes'
      : `, but it is a number: put it in quotes, "${source.text(path)}"`
  }
  const variable = source.variables.get(toPointer(path))
  if (isPrivate(path)) return value === '' ? `, but ${variable ?? 'it'} is empty` : ''
  if (variable !== undefined) return `, but it is the value of ${variable}`
  return `, but it is ${clip(withoutUser(JSON.stringify(value)), 80)}`
}

/** A URL may carry a password, which may hold any character, and the URL may lack its beginning. */
function withoutUser(text: string): string {
  return text.includes(':') ? text.replace(/^"([a-z][a-z0-9+.-]*:\/\/)?.*@/i, '"$1[redacted]@') : text
}

/** Where in the file a key of that name may stand. */
function placesOf(key: string, schema: JsonObject = configSchema(), path: Path = []): string[] {
  const { additionalProperties: members } = schema
  const properties = Object.entries(propertiesOf(schema) ?? {})
  return properties
    .flatMap(([name, member]) => {
      const here = [...path, name]
      return [...(name === key ? [showPath(here)] : []), ...(isObject(member) ? placesOf(key, member, here) : [])]
    })
    .concat(isObject(members) ? placesOf(key, members, [...path, 'ID']) : [])
}
