/** The params of a call as they are given on a command line: JSON, `--param name=value`, or standard input. */
import { addAbortSignal } from 'node:stream'
import { text as readText } from 'node:stream/consumers'
import { isObject, parseJson, type JsonObject } from '../../base/json.ts'
import type { RemoteToolInfo } from '../../peers/remote-tool-info.ts'
import { compile } from '../../tools/schema.ts'
import { clip } from '../../tools/value.ts'
import type { JsonSchema } from '../../tools/tool.ts'
import { exampleOf } from '../banner.ts'
import { ClientFailure, usageFailure } from '../a2a/failure.ts'
import { quote } from '../a2a/text.ts'
import { resolveRef } from './schema-ref.ts'

/** The params as one object, those of --param over those of the JSON. Throws `A2ACLI_ERR_USAGE` for what makes none. */
export async function readParams(
  json: string | undefined,
  pairs: readonly string[],
  schema: JsonSchema | undefined,
  signal: AbortSignal,
): Promise<JsonObject> {
  const params =
    json === undefined ? {} : json === '-' ? parseParams(await readInput(signal), true) : parseParams(json, false)
  for (const pair of pairs) setParam(params, pair, schema)
  return params
}

function readInput(signal: AbortSignal): Promise<string> {
  return readText(addAbortSignal(signal, process.stdin))
}

const objectHint = `Give an object in quotes: '{"name": "value"}', or --param name=value`

function parseParams(text: string, isInput: boolean): JsonObject {
  let value: unknown
  try {
    value = parseJson(text)
  } catch {
    throw unreadable(text, isInput)
  }
  if (isObject(value)) return value as JsonObject
  throw usageFailure('The params must be a JSON object.', objectHint)
}

/** What a person likely meant by params that are no JSON. */
function unreadable(text: string, isInput: boolean): ClientFailure {
  if (text.trim() === '') {
    return usageFailure(
      isInput ? 'There are no params on standard input: it is empty.' : 'The params are empty.',
      objectHint,
    )
  }
  if (!isInput && /^[\w.-]+=/.test(text)) {
    return usageFailure(
      `The params are JSON, and ${JSON.stringify(clip(text, 40))} is a pair.`,
      `Write: --param ${quote(text)}`,
    )
  }
  if (!isInput && text.startsWith('@')) {
    return usageFailure('The params are JSON, and no file is read for @.', `Write: - < ${quote(text.slice(1))}`)
  }
  const hint = isInput ? undefined : objectHint
  return usageFailure(`The params are not valid JSON: ${whereBroken(text)}.`, hint)
}

/** Where the first mistake is, in a few words. */
function whereBroken(text: string): string {
  let at: string | undefined
  try {
    JSON.parse(text)
    return 'they nest too deep'
  } catch (error) {
    const said = error instanceof Error ? error.message : ''
    if (said.startsWith('Unexpected end')) return 'they end too early'
    at = /at position (\d+)/.exec(said)?.[1]
  }
  // The engine names no place where the text is short.
  if (at === undefined) return `they are ${JSON.stringify(clip(text, 40))}`
  if (Number(at) >= text.trimEnd().length) return 'they end too early'
  return `see character ${Number(at) + 1}, at ${JSON.stringify(clip(text.slice(Number(at)), 20))}`
}

/** Puts `path=value` into the params; what the value is, the schema says. A second value of an array is one more item. */
function setParam(params: JsonObject, pair: string, schema: JsonSchema | undefined): void {
  const at = pair.indexOf('=')
  if (at < 1) throw usageFailure(`--param ${JSON.stringify(pair)} is not NAME=VALUE.`)
  const keys = keysOf(pair.slice(0, at), schema)
  const last = keys.pop() ?? ''
  let place: JsonObject | unknown[] = params
  let here: unknown = schema
  for (const key of keys) {
    here = memberOf(here, key, schema)
    const next: unknown = memberAt(place, key)
    if (typeof next === 'object' && next !== null) {
      place = next as JsonObject
      continue
    }
    const made: JsonObject | unknown[] = typesOf(here, schema).includes('array') ? [] : {}
    put(place, key, made)
    place = made
  }
  const text = pair.slice(at + 1)
  const member = memberOf(here, last, schema)
  const before: unknown = memberAt(place, last)
  const isList = typesOf(member, schema)[0] === 'array'
  if (isList && !/^\s*\[/.test(text)) {
    const item = toValue(text, memberOf(member, '0', schema), schema)
    put(place, last, Array.isArray(before) ? [...(before as unknown[]), item] : [item])
  } else put(place, last, toValue(text, member, schema))
}

/** The keys of a path. A name that has dots itself, and is known as such, stays whole. */
function keysOf(path: string, schema: JsonSchema | undefined): string[] {
  const keys = isKnown(schema, path, schema) ? [path] : path.split('.')
  const wrong = keys.find((key) => key === '' || key === '__proto__')
  if (wrong !== undefined)
    throw usageFailure(`--param ${JSON.stringify(path)} names nothing: write a.b for b within a.`)
  return keys
}

function memberAt(place: JsonObject | unknown[], key: string): unknown {
  return Object.hasOwn(place, key) ? (place as Record<string, unknown>)[key] : undefined
}

function put(place: JsonObject | unknown[], key: string, value: unknown): void {
  if (Array.isArray(place) && !(/^\d{1,6}$/.test(key) && Number(key) <= place.length)) {
    throw usageFailure(`--param: ${JSON.stringify(key)} is no place in a list; the next one is ${place.length}.`)
  }
  ;(place as Record<string, unknown>)[key] = value
}

function isKnown(schema: unknown, key: string, root: JsonSchema | undefined): boolean {
  return branchesOf(schema, root).some(({ properties }) => isObject(properties) && Object.hasOwn(properties, key))
}

/** The schema of a member; undefined where none is known. */
function memberOf(schema: unknown, key: string, root: JsonSchema | undefined): unknown {
  for (const { properties, items, prefixItems, additionalProperties } of branchesOf(schema, root)) {
    if (isObject(properties) && Object.hasOwn(properties, key)) return properties[key]
    if (/^\d+$/.test(key) && Array.isArray(prefixItems) && prefixItems[Number(key)] !== undefined) {
      return prefixItems[Number(key)]
    }
    if (/^\d+$/.test(key) && isObject(items)) return items
    if (isObject(additionalProperties)) return additionalProperties
  }
  return undefined
}

const maxDepth = 8

/** A schema and all that it may be besides, in its own order. */
function branchesOf(schema: unknown, root: JsonSchema | undefined, depth = 0): Record<string, unknown>[] {
  const found = resolveRef(schema, root)
  if (!isObject(found) || depth > maxDepth) return []
  const more = [found['allOf'], found['anyOf'], found['oneOf']].flatMap((list): unknown[] =>
    Array.isArray(list) ? list : [],
  )
  return [found, ...more.flatMap((branch) => branchesOf(branch, root, depth + 1))]
}

/** The types that a value may have, in the order of the schema; empty where it says nothing. */
function typesOf(schema: unknown, root: JsonSchema | undefined): string[] {
  return branchesOf(schema, root).flatMap(({ type, enum: choices, const: only, properties }) => {
    if (type !== undefined) return [type].flat().map(String)
    const values = Array.isArray(choices) ? choices : only === undefined ? [] : [only]
    if (values.length > 0) return values.map((value) => (value === null ? 'null' : typeof value))
    return properties === undefined ? [] : ['object']
  })
}

/**
 * A text as the value that the schema wants. One that is none of the kind stays text, and the check of the params says
 * what is wrong with it. Where nothing is known of it, a number, true, false, null, an object or a list is what it looks like.
 */
function toValue(text: string, schema: unknown, root: JsonSchema | undefined): unknown {
  const types = typesOf(schema, root)
  const value = parsed(text)
  const kind = Array.isArray(value) ? 'array' : value === null ? 'null' : typeof value
  if (types.length === 0) return value ?? (text === 'null' ? null : text)
  return types.includes(kind) || (kind === 'number' && types.includes('integer')) ? value : text
}

function parsed(text: string): unknown {
  try {
    const value: unknown = parseJson(text)
    return typeof value === 'string' ? undefined : value
  } catch {
    // Words are words.
    return undefined
  }
}

/**
 * Throws `A2ACLI_ERR_USAGE` with everything that is wrong with the params, and an example. A schema that cannot be
 * compiled says nothing: whoever runs the tool will.
 */
export function checkParams(
  params: JsonObject,
  tool: Pick<RemoteToolInfo, 'name' | 'parametersSchema'>,
  { command, isNoneGiven }: { readonly command: string; readonly isNoneGiven: boolean },
): void {
  const schema = tool.parametersSchema
  if (schema === undefined) return
  const validator = compile(schema)
  try {
    validator.prepare()
  } catch {
    // The peer checks its own params; doctor tells of the schema.
    return
  }
  const issues = validator.validate(params)
  if (issues.length === 0) return
  const places = issues.length === 1 ? 'in one place' : `in ${issues.length} places`
  const example = `An example that fits: ${command} ${quote(JSON.stringify(exampleOf(schema)))}`
  const hint = isNoneGiven && !process.stdin.isTTY ? `${example}; to read params from stdin, put -` : example
  throw new ClientFailure('A2ACLI_ERR_USAGE', `The params of ${tool.name} are wrong ${places}.`, { issues, hint })
}
