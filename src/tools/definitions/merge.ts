/** Two schemas that must both fit, as one. */
import { canonicalJson, isObject, type Json, type JsonObject } from '../../base/json.ts'
import { asText } from './words.ts'

/**
 * One schema for all that fits both, as far as JSON Schema can say that without `allOf` at its top; `left` holds what of
 * `b` it cannot. Titles, defaults and the like of `a` win over those of `b`.
 */
export function merge(a: JsonObject, b: JsonObject): { node: JsonObject; left: JsonObject } {
  const node: JsonObject = { ...a }
  const left: JsonObject = {}
  for (const [key, theirs] of Object.entries(b)) {
    const ours = node[key]
    if (ours === undefined) node[key] = theirs
    else if (!winners.has(key) && canonicalJson(ours) !== canonicalJson(theirs)) {
      const both = mergers.get(key)?.(ours, theirs)
      if (both === undefined) left[key] = theirs
      else node[key] = both
    }
  }
  return { node, left }
}

/** Of these the first stays: they demand nothing. References are looked up from the root. */
const winners = new Set(['title', 'default', '$defs', 'definitions', '$id', '$anchor', '$schema', '$comment'])

type Merger = (ours: Json, theirs: Json) => Json | undefined

const larger: Merger = (a, b) => (typeof a === 'number' && typeof b === 'number' ? Math.max(a, b) : undefined)
const smaller: Merger = (a, b) => (typeof a === 'number' && typeof b === 'number' ? Math.min(a, b) : undefined)
const eachName: Merger = (a, b) => {
  if (!isObject(a) || !isObject(b)) return undefined
  const names = Object.entries(b).map(([name, theirs]) => [
    name,
    Object.hasOwn(a, name) ? both(a[name] ?? true, theirs) : theirs,
  ])
  return { ...a, ...(Object.fromEntries(names) as JsonObject) }
}
const lists: Merger = (a, b) => (Array.isArray(a) && Array.isArray(b) ? union(a, b) : undefined)

const mergers = new Map<string, Merger>([
  ['type', types],
  ['description', (a, b) => `${asText(a)}\n${asText(b)}`],
  ['examples', lists],
  ['required', lists],
  ['enum', (a, b) => (Array.isArray(a) && Array.isArray(b) ? intersection(a, b) : undefined)],
  ['properties', eachName],
  ['patternProperties', eachName],
  ['dependentSchemas', eachName],
  ['dependentRequired', (a, b) => namedLists(a, b)],
  ['items', both],
  ['additionalProperties', both],
  ['propertyNames', both],
  ['uniqueItems', (a, b) => a === true || b === true],
  ['deprecated', (a, b) => a === true || b === true],
  ...['minimum', 'exclusiveMinimum', 'minLength', 'minItems', 'minProperties'].map((key) => [key, larger] as const),
  ...['maximum', 'exclusiveMaximum', 'maxLength', 'maxItems', 'maxProperties'].map((key) => [key, smaller] as const),
])

/** A schema of what fits both schemas; true and false are schemas too. */
function both(a: Json, b: Json): Json {
  if (a === false || b === false) return false
  if (a === true) return b
  if (b === true || canonicalJson(a) === canonicalJson(b)) return a
  return { allOf: [a, b] }
}

/** Types that both allow. Of a number that must be an integer, the integer. */
function types(a: Json, b: Json): Json {
  const [ours, theirs] = [list(a), list(b)]
  const allowed = ours.flatMap((type) => {
    if (theirs.includes(type)) return [type]
    if (type === 'number' && theirs.includes('integer')) return ['integer']
    return type === 'integer' && theirs.includes('number') ? [type] : []
  })
  const [only] = allowed
  return allowed.length === 1 && only !== undefined ? only : allowed
}

function namedLists(a: Json, b: Json): Json | undefined {
  if (!isObject(a) || !isObject(b)) return undefined
  const names = Object.entries(b).map(([name, needs]) => [
    name,
    Object.hasOwn(a, name) ? union(list(a[name] ?? []), list(needs)) : needs,
  ])
  return { ...a, ...(Object.fromEntries(names) as JsonObject) }
}

function list(value: Json): Json[] {
  return Array.isArray(value) ? value : [value]
}

function union(a: Json[], b: Json[]): Json[] {
  const known = new Set(a.map(canonicalJson))
  return [...a, ...b.filter((each) => !known.has(canonicalJson(each)))]
}

function intersection(a: Json[], b: Json[]): Json[] {
  const allowed = new Set(b.map(canonicalJson))
  return a.filter((each) => allowed.has(canonicalJson(each)))
}
