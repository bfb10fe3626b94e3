/**
 * JSON Schemas of strangers as TypeScript: what a tool takes and gives, as a `.d.ts`. Equal schemas give equal text. What a
 * type cannot say is left out, and what is not understood is `unknown`.
 */
import { isObject, type Json } from '../../base/json.ts'
import { stripControls } from '../../base/text.ts'
import type { JsonSchema } from '../../tools/tool.ts'
import { atPointer } from './schema-ref.ts'

export interface TypedTool {
  readonly name: string
  readonly description: string
  readonly parametersSchema: JsonSchema | undefined
  readonly returnSchema: JsonSchema | undefined
}

/** A file with `interface Tools`, and a type for each `$ref` that a schema has within itself. `origin` says whose tools they are. */
export function toDeclarations(tools: readonly TypedTool[], origin: string): string {
  const aliases = new Aliases()
  // A card may tell a tool twice.
  const members = [...new Map(tools.map((tool) => [tool.name, tool])).values()]
    .toSorted((a, b) => (a.name < b.name ? -1 : a.name > b.name ? 1 : 0))
    .map(({ name, description, parametersSchema, returnSchema }) => {
      const params = toType(parametersSchema, new Scope(aliases, parametersSchema, `${name} params`), 2)
      const result = toType(returnSchema, new Scope(aliases, returnSchema, `${name} result`), 2)
      return `${jsDoc(description, 1)}  ${propertyName(name)}: {\n    params: ${params}\n    result: ${result}\n  }\n`
    })
  return [
    `// The tools of ${oneLine(origin)}. Written by \`convoke types\`; do not edit.\n\n`,
    jsDoc('What each tool takes and gives, by name: `connectPeer<Tools>(url)` knows it then.', 0),
    `export interface Tools {\n${members.join('')}}\n`,
    ...aliases.declarations(),
  ].join('')
}

/** The types that have a name of their own, those of all tools together. */
class Aliases {
  readonly #names = new Set<string>(['Tools'])
  readonly #texts = new Map<string, string>()
  /** From a type to those that it is at once, not only in a member: a circle of these would be no type. */
  readonly #edges = new Map<string, Set<string>>()

  /** A free name made from these words. */
  name(words: string): string {
    const pascal = words.replace(/(?:^|[^A-Za-z0-9]+)([A-Za-z0-9]?)/g, (_match, letter: string) => letter.toUpperCase())
    const base = /^[A-Za-z]/.test(pascal) ? pascal : `T${pascal}`
    let name = base
    for (let number = 2; this.#names.has(name); number++) name = `${base}${number}`
    this.#names.add(name)
    return name
  }

  declare(name: string, text: string): void {
    this.#texts.set(name, text)
  }

  /** Notes that `from` is `to`. False where that would close a circle. */
  link(from: string, to: string): boolean {
    if (from === to || this.#reaches(to, from, new Set())) return false
    const edges = this.#edges.get(from) ?? new Set()
    this.#edges.set(from, edges.add(to))
    return true
  }

  declarations(): string[] {
    const sorted = [...this.#texts].toSorted(([a], [b]) => (a < b ? -1 : 1))
    return sorted.map(([name, text]) => `\nexport type ${name} = ${text}\n`)
  }

  #reaches(from: string, to: string, seen: Set<string>): boolean {
    if (seen.has(from)) return false
    seen.add(from)
    for (const next of this.#edges.get(from) ?? []) if (next === to || this.#reaches(next, to, seen)) return true
    return false
  }
}

/** Where a schema stands: in which one its references lead, and which named type it is part of. */
class Scope {
  readonly aliases: Aliases
  readonly root: JsonSchema | undefined
  /** Of the tool, for names of types. */
  readonly words: string
  readonly depth: number
  /** The named type that this one is; undefined within a member, where circles are allowed. */
  readonly owner: string | undefined
  /** What a type adds to itself: nothing to a choice, and nothing to a sum of parts. */
  readonly circle: 'never' | 'unknown'
  /** References of this root by name. */
  readonly #known: Map<string, string>

  constructor(
    aliases: Aliases,
    root: JsonSchema | undefined,
    words: string,
    from?: Scope,
    owner?: string,
    circle: 'never' | 'unknown' = 'unknown',
  ) {
    this.circle = circle
    this.aliases = aliases
    this.root = root
    this.words = words
    this.depth = from === undefined ? 0 : from.depth + 1
    this.owner = owner
    this.#known = from === undefined ? new Map<string, string>() : from.#known
  }

  /** Of a part that is the same type: one of a choice, or one that holds besides others. */
  branch(circle: 'never' | 'unknown'): Scope {
    return new Scope(this.aliases, this.root, this.words, this, this.owner, circle)
  }

  /** Of a member or an item. */
  member(): Scope {
    return new Scope(this.aliases, this.root, this.words, this)
  }

  /** The name of what a `$ref` leads to, declared now if it is not yet. */
  reference(pointer: string): string {
    const target = atPointer(pointer, this.root)
    if (target === undefined) return 'unknown'
    let name = this.#known.get(pointer)
    if (name === undefined) {
      const last = pointer === '#' ? '' : pointer.slice(pointer.lastIndexOf('/') + 1)
      name = this.aliases.name(`${this.words} ${last}`)
      this.#known.set(pointer, name)
      if (this.owner !== undefined) this.aliases.link(this.owner, name)
      this.aliases.declare(name, toType(target, new Scope(this.aliases, this.root, this.words, this, name), 0))
      return name
    }
    return this.owner === undefined || this.aliases.link(this.owner, name) ? name : this.circle
  }
}

/** Schemas that nest deeper are no types that anybody reads. */
const maxDepth = 40
/** A union of more values says less than their kind. */
const maxChoices = 200

function toType(schema: unknown, scope: Scope, indent: number): string {
  if (schema === false) return 'never'
  if (!isObject(schema) || scope.depth > maxDepth) return 'unknown'
  const parts = [
    ...(typeof schema['$ref'] === 'string' ? [scope.reference(schema['$ref'])] : []),
    ...ownType(schema, scope, indent),
    ...branches(schema['anyOf'], scope, indent),
    ...branches(schema['oneOf'], scope, indent),
    ...(Array.isArray(schema['allOf'])
      ? schema['allOf'].map((each) => toType(each, scope.branch('unknown'), indent))
      : []),
  ]
  const type = intersection(parts)
  // OpenAPI's way to say it.
  return schema['nullable'] === true && type !== 'unknown' ? union([type, 'null']) : type
}

function branches(list: unknown, scope: Scope, indent: number): string[] {
  if (!Array.isArray(list) || list.length === 0) return []
  return [union(list.map((each) => toType(each, scope.branch('never'), indent)))]
}

/** What a schema says itself; nothing where it leaves that to others. */
function ownType(schema: Record<string, unknown>, scope: Scope, indent: number): string[] {
  if ('const' in schema) return [literal(schema['const'] as Json)]
  const { enum: choices, type } = schema
  if (Array.isArray(choices) && choices.length > 0 && choices.length <= maxChoices) return [union(choices.map(literal))]
  if (type !== undefined) {
    return [union([type].flat().map((each) => ofType(each, schema, scope, indent)))]
  }
  if (isObject(schema['properties']) || isObject(schema['additionalProperties']))
    return [objectType(schema, scope, indent)]
  return schema['items'] === undefined && schema['prefixItems'] === undefined ? [] : [arrayType(schema, scope, indent)]
}

function ofType(type: unknown, schema: Record<string, unknown>, scope: Scope, indent: number): string {
  switch (type) {
    case 'string':
    case 'boolean':
    case 'null':
    case 'number':
      return type
    case 'integer':
      return 'number'
    case 'array':
      return arrayType(schema, scope, indent)
    case 'object':
      return objectType(schema, scope, indent)
    default:
      return 'unknown'
  }
}

function arrayType(schema: Record<string, unknown>, scope: Scope, indent: number): string {
  const { items, prefixItems, additionalItems, minItems } = schema
  const tuple = Array.isArray(prefixItems) ? prefixItems : Array.isArray(items) ? items : undefined
  if (tuple === undefined) return `${atomic(toType(items ?? true, scope.member(), indent))}[]`
  const rest = Array.isArray(prefixItems) ? items : additionalItems
  const least = typeof minItems === 'number' ? minItems : 0
  const members = tuple.map((each, i) => {
    const item = toType(each, scope.member(), indent)
    return i < least ? item : `${atomic(item)}?`
  })
  const more = rest === false ? [] : [`...${atomic(toType(rest ?? true, scope.member(), indent))}[]`]
  return `[${[...members, ...more].join(', ')}]`
}

function objectType(schema: Record<string, unknown>, scope: Scope, indent: number): string {
  const { additionalProperties } = schema
  const properties = isObject(schema['properties']) ? schema['properties'] : {}
  const required = new Set(
    Array.isArray(schema['required']) ? schema['required'].filter((key) => typeof key === 'string') : [],
  )
  const names = [...new Set([...Object.keys(properties), ...required])]
  const pad = '  '.repeat(indent + 1)
  const members = names.map((name) => {
    const own = Object.hasOwn(properties, name) ? properties[name] : true
    const type = toType(own, scope.member(), indent + 1)
    const description = isObject(own) && typeof own['description'] === 'string' ? own['description'] : ''
    return `${jsDoc(description, indent + 1)}${pad}${propertyName(name)}${required.has(name) ? '' : '?'}: ${type}\n`
  })
  if (names.length === 0) {
    if (additionalProperties === false) return '{ [key: string]: never }'
    return `{ [key: string]: ${toType(additionalProperties ?? true, scope.member(), indent)} }`
  }
  // An index signature must take the members' own types as well. Without one, misspelt members are found.
  if (additionalProperties === true || isObject(additionalProperties)) members.push(`${pad}[key: string]: unknown\n`)
  return `{\n${members.join('')}${'  '.repeat(indent)}}`
}

function union(types: readonly string[]): string {
  const distinct = [...new Set(types)].filter((type) => type !== 'never')
  if (distinct.includes('unknown')) return 'unknown'
  return distinct.length === 0 ? 'never' : distinct.join(' | ')
}

function intersection(types: readonly string[]): string {
  const distinct = [...new Set(types)].filter((type) => type !== 'unknown')
  return distinct.length === 0
    ? 'unknown'
    : distinct.length === 1
      ? (distinct[0] ?? 'unknown')
      : distinct.map(atomic).join(' & ')
}

/** With brackets, where the type is not one word or one pair of braces. */
function atomic(type: string): string {
  return isCompound(type) ? `(${type})` : type
}

/** Whether a `|` or `&` stands outside of all brackets and strings. */
function isCompound(type: string): boolean {
  let depth = 0
  for (let i = 0; i < type.length; i++) {
    const character = type[i]
    if (character === '"') i = endOfString(type, i)
    else if (character === '/' && type[i + 1] === '*') i = type.indexOf('*/', i) + 1
    else if (character === '{' || character === '[' || character === '(') depth++
    else if (character === '}' || character === ']' || character === ')') depth--
    else if (depth === 0 && (character === '|' || character === '&')) return true
  }
  return false
}

function endOfString(text: string, from: number): number {
  for (let i = from + 1; i < text.length; i++) {
    if (text[i] === '\\') i++
    else if (text[i] === '"') return i
  }
  return text.length
}

/** A JSON value as the type that has it alone. */
function literal(value: Json): string {
  if (Array.isArray(value)) return `[${value.map(literal).join(', ')}]`
  if (isObject(value)) {
    const members = Object.entries(value).map(([key, each]) => `${propertyName(key)}: ${literal(each)}`)
    return members.length === 0 ? '{ [key: string]: never }' : `{ ${members.join('; ')} }`
  }
  return JSON.stringify(value)
}

function propertyName(name: string): string {
  return /^[A-Za-z_$][\w$]*$/.test(name) ? name : JSON.stringify(name)
}

/** A description as a comment that it cannot end. */
function jsDoc(text: string, indent: number): string {
  const safe = stripControls(text).replaceAll('*/', '*\\/').trim()
  if (safe === '') return ''
  const pad = '  '.repeat(indent)
  const lines = safe.split(/\r\n|[\n\r\u2028\u2029]/).map((line) => line.trimEnd())
  if (lines.length === 1) return `${pad}/** ${safe} */\n`
  return `${pad}/**\n${lines.map((line) => `${pad} *${line === '' ? '' : ` ${line}`}\n`).join('')}${pad} */\n`
}

function oneLine(text: string): string {
  return stripControls(text).replace(/\s+/g, ' ')
}
