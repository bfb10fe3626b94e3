/** Schemas for providers that take all of JSON Schema, but for some things. */
import { isObject, type Json, type JsonObject } from '../../base/json.ts'
import type { Bending } from './bending.ts'
import { dropped, subschemas } from './keywords.ts'
import { descriptionOf, types } from './node.ts'
import { asText, joinWords, say } from './words.ts'

/** The root: what it may not have stands in its properties or in words. */
export function bendOpen(bending: Bending): JsonObject {
  const { document } = bending
  const { notAtRoot } = bending.dialect
  const { root } = document
  const words: (string | undefined)[] = []
  let node = document.modern(root)
  if (notAtRoot.some((key) => node[key] !== undefined)) {
    const flat = document.flatten(root, document.recurs(root) ? [root] : [])
    const lifted = document.lift(flat.node, flat.trail)
    words.push(...flat.words, ...lifted.words)
    node = { ...lifted.node }
    for (const key of notAtRoot) {
      if (node[key] !== undefined) words.push(say(key, document.inlinedIn(key, node[key]), node))
      delete node[key]
    }
  }
  const bent: JsonObject = { ...(open(bending, node) as JsonObject), type: 'object' }
  if (bending.dialect.propertiesNeeded) bent['properties'] ??= {}
  const description = joinWords([descriptionOf(bent), ...words])
  return description === '' ? bent : { ...bent, description }
}

function open(bending: Bending, schema: Json): Json {
  if (!isObject(schema)) return schema
  const node = bending.document.modern(schema)
  const out: JsonObject = {}
  for (const [key, value] of Object.entries(node)) {
    if (dropped.has(key)) continue
    const kind = subschemas.get(key)
    if (key === '$ref' || key === '$dynamicRef')
      Object.assign(
        out,
        bending.reference(asText(value), (each) => open(bending, each)),
      )
    else if (kind === 'one') out[key] = open(bending, value)
    else if (kind === 'list' && Array.isArray(value)) out[key] = value.map((each) => open(bending, each))
    else if (kind === 'named' && isObject(value)) out[key] = openNamed(bending, key, value)
    else if (key === 'required' && Array.isArray(value)) out[key] = value.map((name) => bending.accepted(asText(name)))
    else if (key === 'dependentRequired' && isObject(value)) {
      const needs = Object.entries(value).map(([name, names]) => [
        bending.accepted(name),
        Array.isArray(names) ? names.map((each) => bending.accepted(asText(each))) : names,
      ])
      out[key] = Object.fromEntries(needs) as JsonObject
    } else out[key] = value
  }
  if (bending.dialect.itemsNeeded && types(node).includes('array') && out['items'] === undefined) out['items'] = {}
  return out
}

function openNamed(bending: Bending, key: string, schemas: JsonObject): JsonObject {
  const entries = Object.entries(schemas).map(([name, schema]) => {
    const bent = open(bending, schema)
    const form = bent === true ? {} : bent === false ? { not: {} } : bent
    return [key === 'patternProperties' ? name : bending.accepted(name), form]
  })
  return Object.fromEntries(entries) as JsonObject
}
