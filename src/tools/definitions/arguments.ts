/** The way back: what a model wrote for a bent schema, as the tool's own schema wants it. */
import { canonicalJson, isObject, type Json } from '../../base/json.ts'
import type { JsonSchema } from '../tool.ts'
import { acceptedName } from './bending.ts'
import { Document, isUnion, propertiesOf, requiredOf } from './document.ts'
import { constants, hasConstants, typeFits, types, type Type } from './node.ts'

export interface ModelArgumentsOptions {
  /** What names of properties had to look like for the provider. Default: they are as they were. */
  readonly propertyName?: RegExp
  /** What null in place of an optional member means: that it is not given, or null. Default: `absent`. */
  readonly nulls?: 'absent' | 'keep'
}

/**
 * Arguments that a model wrote for a strict schema: a member that is null, need not be given and may not be null, or is null by default, is
 * taken out; with `propertyName`, members get their own names again. The arguments given stay as they are; what fits no schema
 * is passed on, for the tool's own validation to say so.
 */
export function fromModelArguments<Args extends Json>(
  schema: JsonSchema,
  args: Args,
  options: ModelArgumentsOptions = {},
): Args {
  const document = new Document(schema)
  const how = { document, pattern: options.propertyName, keepsNulls: options.nulls === 'keep', left: maxValues }
  return restore(how, [schema], args) as Args
}

/** How many schemas are looked at for one value; a few lines of references can stand for millions. */
const maxLooks = 2000
/** How many objects and arrays of the arguments are looked into, each try counted. */
const maxValues = 200_000

interface Restoring {
  readonly document: Document
  readonly pattern: RegExp | undefined
  readonly keepsNulls: boolean
  /** How many values may still be looked into. What lies beyond is passed on as it is. */
  left: number
}

/** What several schemas, all of which may be meant, say of the members of a value. */
interface Members {
  readonly properties: Map<string, Json[]>
  readonly required: Set<string>
  readonly others: Json[]
  readonly items: Json[]
  readonly positions: Json[][]
}

function restore(how: Restoring, schemas: readonly Json[], value: Json): Json {
  if (typeof value !== 'object' || value === null || --how.left < 0) return value
  const { document, pattern, keepsNulls } = how
  const members = membersOf(document, schemas)
  if (Array.isArray(value)) {
    return value.map((item, i) => {
      const positioned = members.positions.flatMap((forms) => forms[i] ?? [])
      return pick(how, [...positioned, ...members.items], item)
    })
  }
  const own = new Map([...members.properties.keys()].map((name) => [acceptedName(name, pattern), name]))
  const restored = Object.entries(value).flatMap(([given, member]): [string, Json][] => {
    const name = own.get(given) ?? given
    const forms = members.properties.get(name)
    if (forms === undefined) return [[name, pick(how, members.others, member)]]
    const isSpare =
      !keepsNulls && member === null && !members.required.has(name) && !forms.some((form) => meansNull(document, form))
    return isSpare ? [] : [[name, pick(how, forms, member)]]
  })
  return Object.fromEntries(restored)
}

/** A value as the first of the schemas wants it that it then fits, as far as a glance tells. */
function pick(how: Restoring, forms: readonly Json[], value: Json): Json {
  if (typeof value !== 'object' || value === null || forms.length === 0) return value
  if (forms.length > 1) {
    for (const form of forms) {
      const restored = restore(how, [form], value)
      if (fits(how.document, form, restored)) return restored
    }
  }
  return restore(how, forms, value)
}

function membersOf(document: Document, schemas: readonly Json[]): Members {
  const members: Members = { properties: new Map(), required: new Set(), others: [], items: [], positions: [] }
  const forms = new Map<string, Map<string, Json>>()
  let left = maxLooks
  const collect = (schema: Json | undefined, isCertain: boolean): void => {
    if (!isObject(schema) || --left < 0) return
    const { node } = document.flatten(schema)
    for (const [name, form] of Object.entries(propertiesOf(node))) {
      // Branches often say the same of a property; each form more is one more to try.
      const known = forms.get(name) ?? new Map<string, Json>()
      forms.set(name, known.set(canonicalJson(form), form))
    }
    if (isCertain) for (const name of requiredOf(node)) members.required.add(name)
    for (const key of ['additionalProperties', 'unevaluatedProperties']) {
      if (isObject(node[key])) members.others.push(node[key])
    }
    if (isObject(node['patternProperties'])) members.others.push(...Object.values(node['patternProperties']))
    if (isObject(node['items'])) members.items.push(node['items'])
    if (Array.isArray(node['prefixItems'])) members.positions.push(node['prefixItems'])
    for (const key of ['anyOf', 'oneOf']) {
      const branches = node[key]
      if (isUnion(branches)) for (const branch of branches) collect(branch, false)
    }
    for (const key of ['then', 'else']) collect(node[key], false)
    if (isObject(node['dependentSchemas']))
      for (const branch of Object.values(node['dependentSchemas'])) collect(branch, false)
  }
  for (const schema of schemas) collect(schema, schemas.length === 1)
  for (const [name, known] of forms) members.properties.set(name, [...known.values()])
  return members
}

/** Whether null says anything that leaving the member out does not. */
function meansNull(document: Document, schema: Json): boolean {
  return fits(document, schema, null) && !(isObject(schema) && document.flatten(schema).node['default'] === null)
}

/** Whether a value can be meant by a schema: its type, its constants, what is required and what is closed. */
function fits(document: Document, schema: Json, value: Json, budget = { left: maxLooks }): boolean {
  if (!isObject(schema)) return schema !== false
  if (--budget.left < 0) return true
  const { node } = document.flatten(schema)
  if (hasConstants(node)) {
    const text = canonicalJson(value)
    if (!constants(node).some((each) => canonicalJson(each) === text)) return false
  }
  const allowed = types(node)
  if (allowed.length > 0 && !allowed.some((type) => (type === 'null' ? value === null : typeFits(value, type as Type))))
    return false
  if (isObject(value)) {
    const properties = propertiesOf(node)
    if (requiredOf(node).some((name) => !Object.hasOwn(value, name))) return false
    if (node['additionalProperties'] === false && Object.keys(value).some((name) => !Object.hasOwn(properties, name)))
      return false
    for (const [name, form] of Object.entries(properties)) {
      const member = value[name]
      if (member !== undefined && !fits(document, form, member, budget)) return false
    }
  }
  return (['anyOf', 'oneOf'] as const).every((key) => {
    const branches = node[key]
    return !isUnion(branches) || branches.some((branch) => fits(document, branch, value, budget))
  })
}
