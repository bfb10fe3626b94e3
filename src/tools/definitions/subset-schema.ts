/** Schemas for providers that take some keywords of JSON Schema: what the others say is said in words. */
import { isObject, type Json, type JsonObject } from '../../base/json.ts'
import type { Bending } from './bending.ts'
import type { Dialect } from './dialects.ts'
import { isUnion, propertiesOf, refOf, requiredOf, type Document } from './document.ts'
import { dropped, isAnnotation, scopes, subschemas } from './keywords.ts'
import { merge } from './merge.ts'
import {
  areApart,
  constants,
  descriptionOf,
  hasConstants,
  isOnlyNull,
  kindOf,
  split,
  typeFits,
  types,
  type Type,
  admitsNull,
} from './node.ts'
import { asText, joinWords, say } from './words.ts'

/** The most nodes that a bent schema may have; a few lines of references can stand for millions. */
const maxNodes = 5000
const maxDepth = 60

type Trail = readonly JsonObject[]

export class SubsetBender {
  readonly #bending: Bending
  readonly #dialect: Dialect
  readonly #document: Document
  #left = maxNodes
  #unfit: string | undefined

  constructor(bending: Bending) {
    this.#bending = bending
    this.#dialect = bending.dialect
    this.#document = bending.document
  }

  /** Why the dialect has no schema for this one. Only a closed dialect has not. */
  get unfit(): string | undefined {
    return this.#dialect.closed ? this.#unfit : undefined
  }

  root(): JsonObject {
    const { root } = this.#document
    const trail = this.#document.recurs(root) ? [root] : []
    const flat = this.#document.flatten(root, trail)
    const lifted = this.#document.lift(flat.node, flat.trail)
    return this.#typed('object', lifted.node, flat.trail, [...flat.words, ...lifted.words])
  }

  #bend(schema: Json, trail: Trail): JsonObject {
    // Nobody will see the rest of it.
    if (this.unfit !== undefined) return {}
    if (schema === false) return this.#anything(['No value is allowed here.'])
    if (!isObject(schema)) return this.#anything([])
    if (--this.#left < 0 || trail.length > maxDepth) {
      this.#unfit ??= 'it is too large'
      return this.#cutOff(schema)
    }
    const pure = this.#dialect.refs ? this.#document.pureTarget(schema) : undefined
    const ref = refOf(schema)
    if (isObject(pure) && ref !== undefined) {
      const words = Object.entries(schema).map(([key, value]) =>
        isAnnotation(key) && key !== 'description' ? say(key, value, schema) : undefined,
      )
      const { description } = schema
      return this.#describe(
        this.#bending.reference(ref, (target) => this.#bend(target, [target])),
        [typeof description === 'string' ? description : undefined, ...words],
      )
    }
    const flat = this.#document.flatten(schema, trail)
    return this.#flat(flat.node, flat.trail, flat.words)
  }

  #flat(node: JsonObject, trail: Trail, words: readonly (string | undefined)[]): JsonObject {
    const key = (['anyOf', 'oneOf'] as const).find((each) => isUnion(node[each]))
    if (key !== undefined) return this.#union(key, node, trail, words)
    const allowed = types(node)
    if (allowed.length === 0) return this.#anything([...words, ...this.#allWords(node)])
    const nullable = allowed.includes('null') && (!hasConstants(node) || constants(node).includes(null))
    const others = allowed.filter((type) => type !== 'null') as Type[]
    const [only] = others
    if (only === undefined) return this.#describe({ type: 'null' }, [descriptionOf(node), ...words])
    if (others.length === 1) {
      const bent = this.#typed(only, node, trail, words)
      return nullable ? this.#withNull(bent) : bent
    }
    const { about, rest } = split(node)
    const forms = others.map((type) => this.#typed(type, rest, trail, []))
    return this.#anyOf(forms, nullable, [...this.#about(about), ...words])
  }

  #union(key: 'anyOf' | 'oneOf', node: JsonObject, trail: Trail, words: readonly (string | undefined)[]): JsonObject {
    if (
      ['properties', 'required', 'additionalProperties', 'patternProperties'].some((each) => node[each] !== undefined)
    ) {
      const lifted = this.#document.lift({ type: 'object', ...node }, trail)
      return this.#flat(lifted.node, trail, [...words, ...lifted.words])
    }
    const { [key]: union, ...others } = node
    const { about, rest } = split(others)
    const shared = Object.keys(rest).length > 0
    if (!shared && (union as Json[]).includes(true)) return this.#anything([...this.#about(about), ...words])
    const forms: JsonObject[] = []
    let nullable = false
    for (const branch of union as Json[]) {
      if (branch === false) continue
      if (!isObject(branch) || (!shared && refOf(branch) !== undefined && this.#dialect.refs)) {
        forms.push(this.#bend(branch, trail))
        continue
      }
      if (--this.#left < 0) {
        this.#unfit ??= 'it is too large'
        forms.push(this.#cutOff(branch))
        continue
      }
      const flat = this.#document.flatten(branch, trail)
      const { node: form, left } = merge(flat.node, rest)
      const leftover = Object.keys(left).length === 0 ? [] : [`Must also fit ${this.#document.quote(left)}.`]
      if (Array.isArray(form['type']) && form['type'].length === 0) continue
      if (isOnlyNull(form)) nullable = true
      else forms.push(this.#flat(form, flat.trail, [...flat.words, ...leftover]))
    }
    const exactly = key === 'oneOf' && !areApart(forms) ? ['Exactly one of these forms must fit.'] : []
    return this.#anyOf(forms, nullable, [...this.#about(about), ...words, ...exactly])
  }

  #anyOf(forms: readonly JsonObject[], nullable: boolean, words: readonly (string | undefined)[]): JsonObject {
    const [only] = forms
    if (only === undefined) return nullable ? this.#describe({ type: 'null' }, words) : this.#anything(words)
    const flat = forms.flatMap((form) => {
      const inner = form['anyOf']
      return Array.isArray(inner) && Object.keys(form).length === 1 ? (inner as JsonObject[]) : [form]
    })
    const bent = flat.length === 1 ? only : { anyOf: flat }
    return this.#describe(nullable ? this.#withNull(bent) : bent, words, 'front')
  }

  /** The part of a schema that speaks of one type. */
  #typed(type: Type, node: JsonObject, trail: Trail, words: readonly (string | undefined)[]): JsonObject {
    const { keywords, formats } = this.#dialect
    const out: JsonObject = { type }
    const more: (string | undefined)[] = []
    if (hasConstants(node)) more.push(this.#constants(out, type, node))
    for (const [key, value] of Object.entries(node)) {
      if (structural.has(key)) continue
      const scope = scopes.get(key)
      // What a keyword says of other types is said with those.
      if (scope !== undefined && scope !== kindOf(type)) continue
      const taken = keywords?.has(key) === true && isTakenValue(key, value)
      if (taken && (key !== 'format' || formats === undefined || formats.has(`${type} ${asText(value)}`)))
        out[key] = value
      else more.push(this.#say(key, value, node))
    }
    if (type === 'object') more.push(...this.#object(out, node, trail))
    if (type === 'array') more.push(...this.#array(out, node, trail))
    return this.#describe(out, [descriptionOf(node), ...words, ...more])
  }

  #constants(out: JsonObject, type: Type, node: JsonObject): string | undefined {
    const values = constants(node).filter((value) => typeFits(value, type))
    const isScalar = kindOf(type) !== 'object' && type !== 'array'
    // Gemini refuses an empty text in an enum.
    const isTaken = this.#dialect.anyEnum ? isScalar : type === 'string' && !values.includes('')
    if (isTaken && values.length > 0) {
      out['enum'] = values
      return undefined
    }
    const [only] = values
    return values.length === 1 && only !== undefined ? say('const', only, node) : say('enum', values, node)
  }

  #object(out: JsonObject, node: JsonObject, trail: Trail): (string | undefined)[] {
    const { closed, keywords } = this.#dialect
    const words: (string | undefined)[] = []
    const required = requiredOf(node)
    // What is required may be described nowhere.
    const undescribed = required
      .filter((name) => !Object.hasOwn(propertiesOf(node), name))
      .map((name): [string, Json] => [name, true])
    const properties = [...Object.entries(propertiesOf(node)), ...undescribed]
    const members: [string, Json][] = []
    for (const [name, schema] of properties) {
      if (schema === false) {
        words.push(`\`${name}\` must not be given.`)
        continue
      }
      const bent = this.#bend(schema, trail)
      members.push([
        this.#bending.accepted(name),
        closed && !required.includes(name) ? this.#optional(bent, schema, trail) : bent,
      ])
    }
    if (members.length > 0) out['properties'] = Object.fromEntries(members)
    const needed = closed ? members.map(([name]) => name) : required.map((name) => this.#bending.accepted(name))
    if (needed.length > 0 || closed) out['required'] = needed
    const others = node['additionalProperties'] ?? node['unevaluatedProperties']
    const hasPatterns = isObject(node['patternProperties'])
    if (closed) {
      if (others !== undefined && others !== false) this.#unfit ??= 'an object in it takes properties of any name'
      if (hasPatterns) this.#unfit ??= 'an object in it takes properties by a pattern'
      if (members.length === 0 && others !== false) this.#unfit ??= 'an object in it does not say its properties'
      out['properties'] ??= {}
      out['additionalProperties'] = false
    } else if (others !== undefined) {
      if (keywords?.has('additionalProperties') !== true || hasPatterns) {
        words.push(this.#say('additionalProperties', others, node))
      } else out['additionalProperties'] = isObject(others) ? this.#bend(others, trail) : others
    }
    return words
  }

  /** In a closed object null stands for what is not given, so it must mean nothing else. */
  #optional(bent: JsonObject, schema: Json, trail: Trail): JsonObject {
    if (!admitsNull(bent)) return this.#describe(this.#withNull(bent), ['Null when not given.'])
    const preset = isObject(schema) ? this.#document.flatten(schema, trail).node['default'] : undefined
    if (preset !== null) this.#unfit ??= 'a property in it may be left out or be null, and the two differ'
    return bent
  }

  #array(out: JsonObject, node: JsonObject, trail: Trail): (string | undefined)[] {
    const { keywords } = this.#dialect
    const { prefixItems, items } = node
    if (!Array.isArray(prefixItems)) {
      out['items'] = this.#bend(items === undefined || items === false ? true : items, trail)
      return items === false ? ['No items.'] : []
    }
    const words: (string | undefined)[] = []
    const count = prefixItems.length
    if (items === false) {
      const { maxItems } = out
      if (keywords?.has('maxItems') === true)
        out['maxItems'] = typeof maxItems === 'number' ? Math.min(maxItems, count) : count
      else words.push(`No more than ${count} items.`)
    }
    if (keywords?.has('prefixItems') === true) {
      out['prefixItems'] = prefixItems.map((each) => this.#bend(each, trail))
      if (items !== false) out['items'] = this.#bend(items ?? true, trail)
      return words
    }
    const forms = items === false ? prefixItems : [...prefixItems, items ?? true]
    const [only] = forms
    out['items'] = this.#bend(forms.length === 1 && only !== undefined ? only : { anyOf: forms }, trail)
    return [this.#say('prefixItems', prefixItems, node), ...words]
  }

  /** Any value at all. A closed dialect has no words for that. */
  #anything(words: readonly (string | undefined)[]): JsonObject {
    this.#unfit ??= this.#dialect.closed ? 'a value in it may be anything' : undefined
    if (this.#dialect.nulls === 'type') return this.#describe({}, words)
    const simple: JsonObject[] = ['string', 'number', 'boolean', 'object'].map((type) => ({ type, nullable: true }))
    // An array must say its items, and theirs: somewhere that ends.
    const list = {
      type: 'array',
      items: { anyOf: simple },
      nullable: true,
      description: 'Its items may be any JSON value.',
    }
    return this.#describe({ anyOf: [...simple, list] }, words)
  }

  #cutOff(schema: JsonObject): JsonObject {
    const [type] = types(schema).filter((each) => each !== 'null')
    const words = [descriptionOf(schema), 'What may stand here is too much to be spelled out.']
    if (type === undefined || type === 'array') return this.#anything(words)
    return this.#describe({ type }, words)
  }

  #withNull(bent: JsonObject): JsonObject {
    if (admitsNull(bent)) return bent
    if (this.#dialect.nulls === 'nullable') {
      const { anyOf } = bent
      return Array.isArray(anyOf)
        ? { anyOf: anyOf.map((form) => this.#withNull(form as JsonObject)) }
        : { ...bent, nullable: true }
    }
    const { type, anyOf, enum: values, description, ...rest } = bent
    if (typeof type === 'string') {
      return { ...bent, type: [type, 'null'], ...(Array.isArray(values) ? { enum: [...values, null] } : {}) }
    }
    const about = description === undefined ? {} : { description }
    if (Array.isArray(anyOf)) return { ...about, ...rest, anyOf: [...anyOf, { type: 'null' }] }
    return { ...about, anyOf: [rest, { type: 'null' }] }
  }

  /** A bent schema with more words, behind its description or before it. */
  #describe(bent: JsonObject, words: readonly (string | undefined)[], where: 'front' | 'back' = 'back'): JsonObject {
    if (joinWords(words) === '') return bent
    const { anyOf, $ref } = bent
    if (this.#dialect.loneAnyOf && Array.isArray(anyOf)) {
      return { anyOf: anyOf.map((form) => this.#describe(form as JsonObject, words, where)) }
    }
    // Beside a reference OpenAI refuses anything.
    if ($ref !== undefined && this.#dialect.closed) return { anyOf: [bent], description: joinWords(words) }
    const own = descriptionOf(bent)
    return { ...bent, description: joinWords(where === 'front' ? [...words, own] : [own, ...words]) }
  }

  /** A keyword in words, with what it refers to in its place. */
  #say(key: string, value: Json, node: JsonObject): string | undefined {
    // Defaults, examples and the like are data, whatever they look like.
    const inlined = (schema: Json): Json => (subschemas.has(key) ? this.#document.inlinedIn(key, schema) : schema)
    const branches =
      key === 'if'
        ? ['then', 'else'].flatMap((each) =>
            node[each] === undefined ? [] : [[each, this.#document.inlined(node[each])]],
          )
        : []
    return say(key, inlined(value), { ...node, ...(Object.fromEntries(branches) as JsonObject) })
  }

  /** Titles, descriptions, defaults: what is said of a union rather than of its forms. */
  #about(node: JsonObject): (string | undefined)[] {
    return [descriptionOf(node), ...this.#allWords(node)]
  }

  #allWords(node: JsonObject): (string | undefined)[] {
    return Object.entries(node).map(([key, value]) => (structural.has(key) ? undefined : this.#say(key, value, node)))
  }
}

/** Keywords that make the shape of a bent schema, and are not looked at one by one. */
const structural = new Set([
  ...dropped,
  ...['type', 'nullable', 'enum', 'const', 'description', 'properties', 'required', 'additionalProperties'],
  ...['unevaluatedProperties', 'items', 'prefixItems', 'anyOf', 'oneOf', '$ref', '$dynamicRef'],
])

/** Patterns that look ahead or back are refused where patterns are taken. */
function isTakenValue(key: string, value: Json): boolean {
  return key !== 'pattern' || (typeof value === 'string' && !/\(\?[^:]|\\[1-9k]/.test(value))
}
