/** One schema with all that its parts refer to. Nothing here changes what it is given. */
import { canonicalJson, isObject, type Json, type JsonObject } from '../../base/json.ts'
import { dialectOf } from '../schema-check.ts'
import { isAnnotation, subschemas } from './keywords.ts'
import { merge } from './merge.ts'
import { cut, quote } from './words.ts'

/** A schema without `$ref` and `allOf` at its top. */
export interface Flat {
  readonly node: JsonObject
  /** The schemas that were passed on the way in; one that comes up again recurs. */
  readonly trail: readonly JsonObject[]
  /** What could not be put in the node, in words. */
  readonly words: readonly string[]
}

const unions = ['anyOf', 'oneOf'] as const
/** The most branches that are lifted into one schema's properties. */
const maxLifted = 2000
/** How many references are followed; a few lines of them can stand for millions of places. */
const maxSteps = 20_000
/** Longest list of forms, in characters. */
const maxForms = 8000
/** How much of a schema one sentence holds, in nodes. */
const maxInlined = 200

export class Document {
  readonly root: JsonObject
  readonly #isDraft07: boolean
  readonly #found = new Map<string, Json | undefined>()
  readonly #recursive = new Map<JsonObject, boolean>()
  #byId: Map<string, JsonObject> | undefined
  readonly #flats = new Map<JsonObject, Flat>()
  #liftsLeft = maxLifted
  #stepsLeft = maxSteps

  constructor(root: JsonObject) {
    this.root = root
    this.#isDraft07 = dialectOf(root) === 'draft-07'
  }

  /** What a reference leads to: a schema, true or false; undefined where that is not in here. */
  find(ref: string): Json | undefined {
    if (!this.#found.has(ref)) this.#found.set(ref, this.#find(ref))
    return this.#found.get(ref)
  }

  #find(ref: string): Json | undefined {
    if (ref === '#') return this.root
    if (!ref.startsWith('#/')) return this.#ids().get(ref.replace(/^#|#$/g, ''))
    let place: Json | undefined = this.root
    for (const part of ref.slice(2).split('/')) {
      const key = decode(part)
      if (typeof place !== 'object' || place === null || !Object.hasOwn(place, key)) return undefined
      place = (place as JsonObject)[key]
    }
    return isObject(place) || typeof place === 'boolean' ? place : undefined
  }

  #ids(): Map<string, JsonObject> {
    if (this.#byId !== undefined) return this.#byId
    const ids = (this.#byId = new Map<string, JsonObject>())
    const walk = (value: Json): void => {
      if (Array.isArray(value)) return value.forEach(walk)
      if (!isObject(value)) return
      for (const key of ['$id', '$anchor', '$dynamicAnchor']) {
        const id = value[key]
        if (typeof id === 'string') ids.set(id.replace(/^#|#$/g, ''), value)
      }
      Object.values(value).forEach(walk)
    }
    walk(this.root)
    return ids
  }

  /** A node in the words of 2020-12, whatever the document's dialect. Its children are as they were; what stands beside `$ref` counts, as it does when tools are called. */
  modern(node: JsonObject): JsonObject {
    if (!this.#isDraft07) return node
    if (!Array.isArray(node['items']) && node['dependencies'] === undefined) return node
    const { items, additionalItems, dependencies, ...rest } = node
    if (Array.isArray(items)) {
      rest['prefixItems'] = items
      if (additionalItems !== undefined) rest['items'] = additionalItems
    } else if (items !== undefined) rest['items'] = items
    if (isObject(dependencies)) {
      const needs = Object.entries(dependencies)
      const named = needs.filter(([, need]) => Array.isArray(need))
      const formed = needs.filter(([, need]) => !Array.isArray(need))
      if (named.length > 0) rest['dependentRequired'] = Object.fromEntries(named)
      if (formed.length > 0) rest['dependentSchemas'] = Object.fromEntries(formed)
    }
    return rest
  }

  /** The schema that a node stands for when it is a reference and nothing more, but for a title or a description. */
  pureTarget(node: JsonObject): Json | undefined {
    const ref = refOf(node)
    if (ref === undefined || !Object.keys(node).every((key) => isRef(key) || isAnnotation(key))) return undefined
    return this.find(ref)
  }

  /** A node with what it refers to, and all branches of `allOf`, in its place. Not to be changed: it is kept. */
  flatten(schema: JsonObject, trail: readonly JsonObject[] = []): Flat {
    if (trail.length > 0) return this.#flatten(schema, trail, new Set())
    let flat = this.#flats.get(schema)
    if (flat === undefined) this.#flats.set(schema, (flat = this.#flatten(schema, trail, new Set())))
    return flat
  }

  /** `merged` holds what is in the node already: in a conjunction the second time adds nothing. */
  #flatten(schema: JsonObject, trail: readonly JsonObject[], merged: Set<JsonObject>): Flat {
    const words: string[] = []
    let node = this.modern(schema)
    let passed = trail
    for (;;) {
      const ref = refOf(node)
      if (ref !== undefined) {
        const { $ref: _ref, $dynamicRef: _dynamic, ...rest } = node
        const target = this.find(ref)
        node = rest
        if (target === undefined) words.push(`Must fit what ${quote(ref)} describes.`)
        else if (target === false) words.push('No value is allowed here.')
        else if (isObject(target) && !merged.has(target)) {
          const again = passed.includes(target)
          if (again || --this.#stepsLeft < 0) {
            words.push(again ? `Here the form ${nameOf(ref)} comes again.` : `Must fit what ${quote(ref)} describes.`)
            node = { ...(target['type'] === undefined ? {} : { type: target['type'] }), ...rest }
          } else {
            merged.add(target)
            if (this.recurs(target)) passed = [...passed, target]
            node = this.#fold(rest, this.modern(target), words)
          }
        }
        continue
      }
      if (!Array.isArray(node['allOf'])) return { node, trail: passed, words }
      const { allOf, ...rest } = node
      node = rest
      for (const branch of allOf) {
        if (branch === false) words.push('No value is allowed here.')
        if (!isObject(branch)) continue
        const flat = this.#flatten(branch, passed, merged)
        words.push(...flat.words)
        passed = flat.trail
        node = this.#fold(node, flat.node, words)
      }
    }
  }

  /** Whether a schema leads back to itself. */
  recurs(schema: JsonObject): boolean {
    const known = this.#recursive.get(schema)
    if (known !== undefined) return known
    const seen = new Set<Json>()
    const leadsBack = (value: Json): boolean => {
      if (typeof value !== 'object' || value === null || seen.has(value)) return false
      seen.add(value)
      if (Array.isArray(value)) return value.some(leadsBack)
      const ref = refOf(value)
      const target = ref === undefined ? undefined : this.find(ref)
      if (target === schema || (target !== undefined && leadsBack(target))) return true
      return Object.values(value).some(leadsBack)
    }
    const found = leadsBack(schema)
    this.#recursive.set(schema, found)
    return found
  }

  /** {@link merge}, with what cannot be merged in words. */
  #fold(a: JsonObject, b: JsonObject, words: string[]): JsonObject {
    const { node, left } = merge(a, b)
    if (Object.keys(left).length > 0) words.push(`Must also fit ${this.quote(left)}.`)
    return node
  }

  /**
   * An object's schema without its union: what the branches say of properties stands among its own, what they demand
   * together is required, and which belong together is said in words. A value that fitted fits still, unless it gives a
   * property that only another branch speaks of a meaning of its own.
   */
  lift(node: JsonObject, trail: readonly JsonObject[] = []): Flat {
    const key = unions.find((each) => isUnion(node[each]))
    if (key === undefined) return { node, trail, words: [] }
    const { [key]: union, ...rest } = node
    const branches = (union as Json[])
      .filter((branch) => isObject(branch))
      .filter(() => --this.#liftsLeft >= 0)
      .map((branch) => {
        const flat = this.flatten(branch, trail)
        const inner = this.lift(flat.node, flat.trail)
        return { node: inner.node, words: [...flat.words, ...inner.words] }
      })
    const own = propertiesOf(rest)
    /** What the branches say of each property: each form once, by its JSON. */
    const variants = new Map<string, Map<string, Json>>()
    for (const branch of branches) {
      for (const [name, schema] of Object.entries(propertiesOf(branch.node))) {
        const known = variants.get(name) ?? new Map<string, Json>()
        variants.set(name, known.set(canonicalJson(schema), schema))
      }
    }
    const lifted = [...variants].filter(([name]) => !Object.hasOwn(own, name))
    const forall = lifted.map(([name, forms]): [string, Json] => [name, alternatives([...forms.values()])])
    const properties = { ...own, ...Object.fromEntries(forall) }
    const [first, ...others] = branches.map((branch) => new Set(requiredOf(branch.node)))
    const together = [...(first ?? [])].filter((name) => others.every((names) => names.has(name)))
    const required = [...new Set([...requiredOf(rest), ...together])]
    const forms = branches.map(
      (branch, i) =>
        `(${i + 1}) ${this.#sayForm(branch.node, variants, own)}${branch.words.map((word) => ` ${word}`).join('')}`,
    )
    const opening = key === 'oneOf' ? 'Takes exactly one of these forms' : 'Takes one or more of these forms'
    const words = forms.length === 0 ? [] : [cut(`${opening}: ${forms.join('; ')}.`, maxForms)]
    const result: JsonObject = { ...rest, ...(Object.keys(properties).length === 0 ? {} : { properties }) }
    if (required.length > 0) result['required'] = required
    const more = this.lift(result, trail)
    return { node: more.node, trail, words: [...words, ...more.words] }
  }

  /** One branch: its properties by name, with what tells them apart from those of other branches. */
  #sayForm(branch: JsonObject, variants: ReadonlyMap<string, ReadonlyMap<string, Json>>, own: JsonObject): string {
    const required = new Set(requiredOf(branch))
    const { title, description, properties: _properties, required: _required, type: _type, ...rest } = branch
    const names = new Set([...required, ...Object.keys(propertiesOf(branch))])
    const parts = [...names].map((name) => {
      const schema = propertiesOf(branch)[name]
      const constant = isObject(schema) ? schema['const'] : undefined
      const differs = schema !== undefined && ((variants.get(name)?.size ?? 0) > 1 || Object.hasOwn(own, name))
      const form = constant !== undefined ? ` ${quote(constant)}` : differs ? ` ${this.quote(schema)}` : ''
      return `\`${name}\`${form}${required.has(name) ? '' : ' (optional)'}`
    })
    if (rest['additionalProperties'] === true) delete rest['additionalProperties']
    const more = Object.keys(rest).length === 0 ? [] : [`and fits ${this.quote(rest)}`]
    const about = [title, description].filter((text) => typeof text === 'string').map((text) => `${text.trim()}:`)
    const list =
      parts.length === 0 && more.length === 0
        ? ['anything else']
        : [...(parts.length === 0 ? [] : [parts.join(', ')]), ...more]
    return [...about, ...list].join(' ')
  }

  /** A schema as JSON within a sentence, with what it refers to in its place. */
  quote(schema: Json): string {
    return quote(this.inlined(schema))
  }

  /** A copy with what it refers to in its place; where that comes again, or grows too large, its name. */
  inlined(schema: Json): Json {
    return this.#inline(schema, [], { left: maxInlined })
  }

  /** What a keyword holds, a schema or several, {@link inlined}. */
  inlinedIn(key: string, value: Json): Json {
    return this.#inlineIn(key, value, [], { left: maxInlined })
  }

  #inlineIn(key: string, value: Json, trail: readonly Json[], budget: { left: number }): Json {
    const kind = subschemas.get(key)
    const inline = (schema: Json): Json => this.#inline(schema, trail, budget)
    if (kind === 'list' && Array.isArray(value)) return value.map(inline)
    if (kind === 'one') return inline(value)
    // Beside schemas there may be lists of names.
    const hasNames = kind === 'named' || key === 'dependencies'
    if (!hasNames || !isObject(value)) return value
    return Object.fromEntries(Object.entries(value).map(([name, schema]) => [name, inline(schema)]))
  }

  #inline(schema: Json, trail: readonly Json[], budget: { left: number }): Json {
    if (!isObject(schema)) return schema
    if (--budget.left < 0) return '…'
    const { $ref: _ref, $dynamicRef: _dynamic, $defs: _defs, definitions: _definitions, ...rest } = this.modern(schema)
    const members = Object.entries(rest).map(([key, value]) => [key, this.#inlineIn(key, value, trail, budget)])
    const copy = Object.fromEntries(members) as JsonObject
    const ref = refOf(schema)
    if (ref === undefined) return copy
    const target = this.find(ref)
    if (target === undefined || trail.includes(target)) return { ...copy, $ref: nameOf(ref) }
    const inner = this.#inline(target, [...trail, target], budget)
    return isObject(inner) ? { ...inner, ...copy } : Object.keys(copy).length === 0 ? inner : copy
  }
}

/** The last word of a reference, for people. */
export function nameOf(ref: string): string {
  return decode(ref.slice(ref.lastIndexOf('/') + 1).replace(/^#/, '')) || 'of the whole'
}

export function refOf(node: JsonObject): string | undefined {
  const ref = node['$ref'] ?? node['$dynamicRef']
  return typeof ref === 'string' ? ref : undefined
}

function isRef(key: string): boolean {
  return key === '$ref' || key === '$dynamicRef'
}

export function isUnion(value: Json | undefined): value is Json[] {
  return Array.isArray(value) && value.length > 0
}

export function requiredOf(node: JsonObject): string[] {
  const { required } = node
  return Array.isArray(required) ? required.filter((name) => typeof name === 'string') : []
}

export function propertiesOf(node: JsonObject): JsonObject {
  return isObject(node['properties']) ? node['properties'] : {}
}

/** Several schemas of which one must fit, as plain as can be said. */
function alternatives(forms: readonly Json[]): Json {
  const [only = true] = forms
  if (forms.length === 1) return only
  const constants = forms.flatMap((form) => (isObject(form) && form['const'] !== undefined ? [form['const']] : []))
  return constants.length === forms.length ? { enum: constants } : { anyOf: [...forms] }
}

function decode(part: string): string {
  try {
    return decodeURIComponent(part).replaceAll('~1', '/').replaceAll('~0', '~')
  } catch {
    return part
  }
}
