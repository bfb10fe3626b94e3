/**
 * A cheap look at a schema when its tool is registered: 10,000 tools must not cost 10,000 compilations (1 ms each)
 * before the node answers. It finds what authors get wrong; what it misses is found when the schema is first used.
 */
import type { Issue } from '../base/errors.ts'
import { isObject } from '../base/json.ts'
import { closest, escapePointer, excerpt } from './value.ts'

/** The two dialects, by the `$schema` that names them. Their close elders are read as them. */
export function dialectOf(schema: Readonly<Record<string, unknown>>): 'draft-07' | '2020-12' | undefined {
  const name = schema['$schema']
  if (name === undefined) return '2020-12'
  if (typeof name !== 'string') return undefined
  const match = /^https?:\/\/json-schema\.org\/(draft-0[67]|draft\/2019-09|draft\/2020-12)\/schema#?$/.exec(name)
  if (match === null) return undefined
  return match[1]?.startsWith('draft-') === true ? 'draft-07' : '2020-12'
}

/** What is wrong with an input schema; empty when nothing was found. Its values are objects: params have names. */
export function checkInputSchema(schema: unknown): Issue[] {
  const issues = checkSchema(schema)
  if (issues.length === 0 && isObject(schema) && schema['type'] !== 'object') {
    const got = schema['type'] === undefined ? 'is missing' : `is ${JSON.stringify(schema['type'])}`
    issues.push({ path: '/type', message: `must be "object", because params have names, but ${got}` })
  }
  return issues
}

/** What is wrong with a schema, at most 20 things; empty when nothing was found. Compiles nothing. */
export function checkSchema(schema: unknown): Issue[] {
  if (!isObject(schema)) return [{ path: '', message: `must be a JSON Schema object, got ${excerpt(schema)}` }]
  const dialect = dialectOf(schema)
  if (dialect === undefined) {
    const message = `must be "https://json-schema.org/draft/2020-12/schema" or "http://json-schema.org/draft-07/schema#", got ${excerpt(schema['$schema'])}`
    return [{ path: '/$schema', message }]
  }
  const check: Check = { root: schema, isDraft07: dialect === 'draft-07', issues: [], hasIds: false, refs: undefined }
  checkNode(check, schema, '', 0)
  for (const ref of check.refs ?? []) checkRef(check, ref.path, ref.target)
  return check.issues
}

const maxIssues = 20
const maxDepth = 100

interface Check {
  readonly root: Record<string, unknown>
  readonly isDraft07: boolean
  readonly issues: Issue[]
  hasIds: boolean
  refs: { readonly path: string; readonly target: unknown }[] | undefined
}

type Keyword =
  | 'schema'
  | 'schemas'
  | 'schema list'
  | 'items'
  | 'type'
  | 'enum'
  | 'names'
  | 'pattern'
  | 'string'
  | 'number'
  | 'count'
  | 'factor'
  | 'boolean'
  | 'ref'
  | 'id'

const keywords = new Map<string, Keyword>([
  ['type', 'type'],
  ['properties', 'schemas'],
  ['required', 'names'],
  ['items', 'items'],
  ['enum', 'enum'],
  ['pattern', 'pattern'],
  ['format', 'string'],
  ['title', 'string'],
  ['description', 'string'],
  ['additionalProperties', 'schema'],
  ['patternProperties', 'schemas'],
  ['propertyNames', 'schema'],
  ['dependentSchemas', 'schemas'],
  ['prefixItems', 'schema list'],
  ['contains', 'schema'],
  ['additionalItems', 'schema'],
  ['unevaluatedItems', 'schema'],
  ['unevaluatedProperties', 'schema'],
  ['allOf', 'schema list'],
  ['anyOf', 'schema list'],
  ['oneOf', 'schema list'],
  ['not', 'schema'],
  ['if', 'schema'],
  ['then', 'schema'],
  ['else', 'schema'],
  ['$defs', 'schemas'],
  ['definitions', 'schemas'],
  ['minimum', 'number'],
  ['maximum', 'number'],
  ['exclusiveMinimum', 'number'],
  ['exclusiveMaximum', 'number'],
  ['multipleOf', 'factor'],
  ['minLength', 'count'],
  ['maxLength', 'count'],
  ['minItems', 'count'],
  ['maxItems', 'count'],
  ['minProperties', 'count'],
  ['maxProperties', 'count'],
  ['minContains', 'count'],
  ['maxContains', 'count'],
  ['uniqueItems', 'boolean'],
  ['$ref', 'ref'],
  ['$id', 'id'],
])

const typeNames = ['object', 'array', 'string', 'number', 'integer', 'boolean', 'null']
const types = new Set(typeNames)

function checkNode(check: Check, schema: Record<string, unknown>, path: string, depth: number): void {
  if (depth > maxDepth) return report(check, path, `nests deeper than ${maxDepth} levels, or is circular`)
  for (const name in schema) {
    const kind = keywords.get(name)
    if (kind === undefined) continue
    const value = schema[name]
    if (value === undefined) continue
    // The path is put together only where something is wrong or goes deeper: most of the cost of this walk was text.
    switch (kind) {
      case 'type':
        if (typeof value !== 'string' || !types.has(value)) checkTypes(check, value, path)
        break
      case 'schemas':
        checkSchemas(check, value, `${path}/${name}`, name === 'patternProperties', depth)
        break
      case 'schema':
        checkSubschema(check, value, `${path}/${name}`, depth)
        break
      case 'items':
        if (!Array.isArray(value)) checkSubschema(check, value, `${path}/${name}`, depth)
        else if (check.isDraft07) checkSchemaList(check, value, `${path}/${name}`, depth)
        else
          report(
            check,
            `${path}/${name}`,
            'must be one schema; for a schema per position write `prefixItems` (or name draft-07 in `$schema`)',
          )
        break
      case 'schema list':
        if (!Array.isArray(value) || value.length === 0)
          report(check, `${path}/${name}`, 'must be an array of at least one schema')
        else checkSchemaList(check, value, `${path}/${name}`, depth)
        break
      case 'enum':
        if (!Array.isArray(value) || value.length === 0)
          report(check, `${path}/${name}`, 'must be an array of at least one value')
        break
      case 'names':
        if (!Array.isArray(value))
          report(check, `${path}/${name}`, `must be an array of property names, got ${excerpt(value)}`)
        else if (!value.every((each) => typeof each === 'string'))
          report(check, `${path}/${name}`, 'must hold only strings')
        break
      case 'pattern':
        if (typeof value !== 'string' || toRegExp(value) === undefined) {
          report(check, `${path}/${name}`, `must be a regular expression, got ${excerpt(value)}`)
        }
        break
      case 'string':
        if (typeof value !== 'string') report(check, `${path}/${name}`, `must be a string, got ${excerpt(value)}`)
        break
      case 'number':
        if (!Number.isFinite(value)) report(check, `${path}/${name}`, `must be a number, got ${excerpt(value)}`)
        break
      case 'factor':
        if (!Number.isFinite(value) || Number(value) <= 0)
          report(check, `${path}/${name}`, `must be a number above 0, got ${excerpt(value)}`)
        break
      case 'count':
        if (!Number.isInteger(value) || Number(value) < 0) {
          report(check, `${path}/${name}`, `must be an integer of 0 or more, got ${excerpt(value)}`)
        }
        break
      case 'boolean':
        if (typeof value !== 'boolean') report(check, `${path}/${name}`, `must be true or false, got ${excerpt(value)}`)
        break
      case 'ref':
        ;(check.refs ??= []).push({ path: `${path}/${name}`, target: value })
        break
      case 'id':
        check.hasIds = true
        break
    }
  }
}

function report({ issues }: Check, path: string, message: string): void {
  if (issues.length < maxIssues) issues.push({ path, message })
}

function checkTypes(check: Check, value: unknown, path: string): void {
  const names: readonly unknown[] = Array.isArray(value) ? value : [value]
  for (const name of names) {
    if (typeof name === 'string' && types.has(name)) continue
    const meant = typeof name === 'string' ? (typeWords[name.toLowerCase()] ?? closest(name, typeNames)) : undefined
    const hint = meant === undefined ? '' : ` (did you mean "${meant}"?)`
    report(check, `${path}/type`, `must be one of ${typeNames.join(', ')}, got ${excerpt(name)}${hint}`)
  }
  if (names.length === 0) report(check, `${path}/type`, 'must name at least one type')
}

const typeWords: Readonly<Record<string, string | undefined>> = {
  int: 'integer',
  float: 'number',
  bool: 'boolean',
  str: 'string',
  list: 'array',
  dict: 'object',
}

function checkSchemas(check: Check, value: unknown, path: string, keysArePatterns: boolean, depth: number): void {
  if (!isObject(value)) return report(check, path, `must be an object of schemas, got ${excerpt(value)}`)
  for (const key in value) {
    if (key === '__proto__') report(check, path, 'no property may be called __proto__')
    else if (keysArePatterns && toRegExp(key) === undefined) {
      report(check, path, `the key ${excerpt(key)} is not a regular expression`)
    } else checkSubschema(check, value[key], `${path}/${escapePointer(key)}`, depth)
  }
}

function checkSchemaList(check: Check, value: readonly unknown[], path: string, depth: number): void {
  for (const [i, each] of value.entries()) checkSubschema(check, each, `${path}/${i}`, depth)
}

function checkSubschema(check: Check, value: unknown, path: string, depth: number): void {
  if (isObject(value)) checkNode(check, value, path, depth + 1)
  else if (typeof value !== 'boolean')
    report(check, path, `must be a schema (an object, true or false), got ${excerpt(value)}`)
}

/** References into the schema itself must lead somewhere. Nothing is ever loaded from elsewhere. */
function checkRef(check: Check, path: string, target: unknown): void {
  if (typeof target !== 'string') return report(check, path, `must be a string, got ${excerpt(target)}`)
  // With ids of their own, parts of a schema have names; the compiler follows those.
  if (check.hasIds || /^https?:\/\/json-schema\.org\//.test(target)) return
  if (!target.startsWith('#')) {
    return report(
      check,
      path,
      `${excerpt(target)} is outside of the schema, and nothing is loaded from elsewhere; put it under $defs and write "#/$defs/NAME"`,
    )
  }
  if (target === '#' || !target.startsWith('#/')) return
  let node: unknown = check.root
  for (const part of target.slice(2).split('/')) {
    const key = decode(part)
    if (key === undefined || typeof node !== 'object' || node === null || !Object.hasOwn(node, key)) {
      return report(check, path, `${excerpt(target)} leads nowhere in this schema`)
    }
    node = (node as Record<string, unknown>)[key]
  }
  if (!isObject(node) && typeof node !== 'boolean') report(check, path, `${excerpt(target)} does not lead to a schema`)
}

function decode(part: string): string | undefined {
  try {
    return decodeURIComponent(part).replaceAll('~1', '/').replaceAll('~0', '~')
  } catch {
    return undefined
  }
}

/**
 * A pattern as a RegExp, or undefined. The specification wants the `u` flag; patterns from other languages often hold
 * escapes that are only valid without it.
 */
export function toRegExp(pattern: string): RegExp | undefined {
  for (const flags of ['u', '']) {
    try {
      return new RegExp(pattern, flags)
    } catch {
      // Not with this flag.
    }
  }
  return undefined
}
