/** What one node of a schema says of its value. */
import { isObject, type Json, type JsonObject } from '../../base/json.ts'
import { dropped, isAnnotation, scopes, type Kind } from './keywords.ts'

export type Type = 'string' | 'number' | 'integer' | 'boolean' | 'array' | 'object'
export function kindOf(type: Type): Kind {
  return type === 'integer' ? 'number' : type
}

/** The types that a node allows; empty for any. Where it does not say, they are those that its keywords speak of. */
export function types(node: JsonObject): string[] {
  const { type, nullable } = node
  if (type !== undefined) {
    const named = (Array.isArray(type) ? type : [type]).filter((each) => typeof each === 'string')
    const plain = named.includes('number') ? named.filter((each) => each !== 'integer') : named
    return nullable === true && !plain.includes('null') ? [...plain, 'null'] : plain
  }
  if (hasConstants(node)) return [...new Set(constants(node).map(typeOf))]
  const kinds = Object.keys(node).flatMap((key) => scopes.get(key) ?? (key === 'format' ? ['string'] : []))
  return [...new Set(kinds)]
}

export function hasConstants(node: JsonObject): boolean {
  return node['const'] !== undefined || Array.isArray(node['enum'])
}

/** The values that a node allows, when it lists them. */
export function constants(node: JsonObject): Json[] {
  const { const: only, enum: values } = node
  if (only !== undefined) return [only]
  return Array.isArray(values) ? values : []
}

export function typeOf(value: Json): string {
  if (value === null) return 'null'
  return Array.isArray(value) ? 'array' : typeof value
}

export function typeFits(value: Json, type: Type): boolean {
  return type === 'integer' ? Number.isInteger(value) : typeOf(value) === type
}

export function descriptionOf(node: JsonObject): string | undefined {
  return typeof node['description'] === 'string' ? node['description'] : undefined
}

/** What a node says about its value, and what it demands of it. */
export function split(node: JsonObject): { about: JsonObject; rest: JsonObject } {
  const of = (wanted: boolean): JsonObject =>
    Object.fromEntries(Object.entries(node).filter(([key]) => !dropped.has(key) && isAnnotation(key) === wanted))
  return { about: of(true), rest: of(false) }
}

export function isOnlyNull(node: JsonObject): boolean {
  if (hasConstants(node)) return constants(node).every((value) => value === null)
  const allowed = types(node)
  return allowed.length === 1 && allowed[0] === 'null'
}

export function admitsNull({ type, nullable, anyOf, enum: values, $ref }: JsonObject): boolean {
  if (Array.isArray(anyOf)) return anyOf.some((form) => isObject(form) && admitsNull(form))
  if (type === undefined) return $ref === undefined && values === undefined
  return type === 'null' || nullable === true || (Array.isArray(type) && type.includes('null'))
}

/** Whether no value can fit two of the forms: they are of different types, or list their values. */
export function areApart(forms: readonly JsonObject[]): boolean {
  if (forms.every(({ enum: values }) => Array.isArray(values))) return true
  const named = forms.map(({ type }) => type)
  return (
    named.every((type) => typeof type === 'string') &&
    new Set(named).size === forms.length &&
    !(named.includes('number') && named.includes('integer'))
  )
}
