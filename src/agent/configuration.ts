/** What an agent was configured with: typed options over nested values. */
import { readFile } from 'node:fs/promises'
import { ConvokeError } from '../base/errors.ts'
import { freezeJson, isObject, maxJsonDepth, setMember, type Json, type JsonObject } from '../base/json.ts'
import { redactText } from '../base/secrets.ts'
import { whyUnreadable } from '../base/unreadable.ts'
import { clip, excerpt } from '../tools/value.ts'
import type { Frozen } from './events.ts'

/** The types that an option can have, by their names in JSON Schema. */
export interface OptionTypes {
  string: string
  number: number
  integer: number
  boolean: boolean
  array: readonly Frozen<Json>[]
  object: Frozen<JsonObject>
}

/** An option that {@link AgentConfiguration.get} gives the right type. */
export interface ConfigOption<Value = unknown> {
  /** Dotted: `model.retries`. */
  readonly key: string
  readonly type: keyof OptionTypes
  /** What it is where nothing is configured. */
  readonly default: Value
}

/** Declares an option; without a default it may be undefined. Throws `config` for a default of another type. */
export function defineOption<Type extends keyof OptionTypes>(option: {
  readonly key: string
  readonly type: Type
  readonly default: OptionTypes[Type]
}): ConfigOption<OptionTypes[Type]>
export function defineOption<Type extends keyof OptionTypes>(option: {
  readonly key: string
  readonly type: Type
}): ConfigOption<OptionTypes[Type] | undefined>
export function defineOption(option: Omit<ConfigOption, 'default'> & { readonly default?: unknown }): ConfigOption {
  const { key, type } = option
  namesOf(key)
  if (!Object.hasOwn(typeWords, type))
    throw new ConvokeError(
      'config',
      `The type of the option "${key}" must be one of ${Object.keys(typeWords).join(', ')}, got ${excerpt(type)}.`,
    )
  if (option.default !== undefined) checkType(key, option.default, type, 'The default of the option')
  return Object.freeze({ key, type, default: option.default })
}

/**
 * Values by dotted keys. `{ model: { retries: 2 } }` and `{ 'model.retries': 2 }` are the same: either way
 * `get('model.retries')` is 2 and `get('model')` is `{ retries: 2 }`. What `get` gives is frozen. Mistakes throw `config`;
 * no message shows the value of a key that sounds like a secret.
 */
export class AgentConfiguration {
  #values: Frozen<JsonObject> = {}

  /** Throws `config` for values that are not JSON, and for a key that has two of them. */
  constructor(values: Readonly<JsonObject> = {}) {
    this.#values = freeze(nest(values))
  }

  /** Reads a file in YAML or JSON; an empty one configures nothing. Throws `config`, with the line of a mistake. */
  static async fromFile(file: string): Promise<AgentConfiguration> {
    const values = await parse(file, await readText(file))
    try {
      return new AgentConfiguration(values)
    } catch (error) {
      throw error instanceof ConvokeError
        ? new ConvokeError('config', `${file}: ${error.message}`, { cause: error })
        : error
    }
  }

  /** The value as it is configured, undefined where it is not; of an option its value or default. Throws `config` for a value of another type. */
  get(key: string): Frozen<Json> | undefined
  get<Value>(option: ConfigOption<Value>): Value
  get(wanted: string | ConfigOption): unknown {
    if (typeof wanted === 'string') return this.#find(wanted)
    return this.#typed(wanted.key, wanted.type, wanted.default)
  }

  /** With a `fallback` never undefined; so do the others. */
  getString(key: string): string | undefined
  getString(key: string, fallback: string): string
  getString(key: string, fallback?: string): string | undefined {
    return this.#typed(key, 'string', fallback)
  }

  getNumber(key: string): number | undefined
  getNumber(key: string, fallback: number): number
  getNumber(key: string, fallback?: number): number | undefined {
    return this.#typed(key, 'number', fallback)
  }

  getInteger(key: string): number | undefined
  getInteger(key: string, fallback: number): number
  getInteger(key: string, fallback?: number): number | undefined {
    return this.#typed(key, 'integer', fallback)
  }

  getBoolean(key: string): boolean | undefined
  getBoolean(key: string, fallback: boolean): boolean
  getBoolean(key: string, fallback?: boolean): boolean | undefined {
    return this.#typed(key, 'boolean', fallback)
  }

  /** Puts a value over what is there. Throws `config` for one that is not JSON, or not of the option's type. */
  set(key: string, value: Json): void
  set<Value>(option: ConfigOption<Value>, value: Value): void
  set(where: string | ConfigOption, value: unknown): void {
    const key = typeof where === 'string' ? where : where.key
    if (value === undefined)
      throw new ConvokeError('config', `The value of "${clip(key, 100)}" is undefined. Use null, or leave it out.`)
    if (typeof where !== 'string') checkType(key, value, where.type, 'The option')
    const names = namesOf(key)
    const values: JsonObject = {}
    setMember(values, key, value as Json)
    const nested = nest(values)
    // An object that is set is all there is then; only the way to it is shared with what was there.
    this.#values = freeze(merge(this.#values, nested, names.length))
  }

  /** These values with `overrides` over them: objects are merged, all else is replaced. This one stays as it is. */
  with(overrides: Readonly<JsonObject>): AgentConfiguration {
    const merged = new AgentConfiguration()
    merged.#values = freeze(merge(this.#values, nest(overrides), Number.POSITIVE_INFINITY))
    return merged
  }

  /** Everything, nested; the constructor takes it. */
  toJSON(): Frozen<JsonObject> {
    return this.#values
  }

  #find(key: string): Frozen<Json> | undefined {
    let value: unknown = this.#values
    for (const name of namesOf(key)) {
      if (!isObject(value) || !Object.hasOwn(value, name)) return undefined
      value = value[name]
    }
    return value as Frozen<Json>
  }

  #typed<Type extends keyof OptionTypes>(key: string, type: Type, fallback: unknown): OptionTypes[Type] {
    const value = this.#find(key)
    if (value === undefined) return fallback as OptionTypes[Type]
    checkType(key, value, type, 'The option')
    return value as OptionTypes[Type]
  }
}

const typeWords: Readonly<Record<keyof OptionTypes, string>> = {
  string: 'a text',
  number: 'a number',
  integer: 'a whole number',
  boolean: 'true or false',
  array: 'a list',
  object: 'an object',
}

function isOfType(value: unknown, type: keyof OptionTypes): boolean {
  switch (type) {
    case 'integer':
      return Number.isSafeInteger(value)
    case 'number':
      return Number.isFinite(value)
    case 'array':
      return Array.isArray(value)
    case 'object':
      return isObject(value)
    default:
      return typeof value === type
  }
}

function checkType(key: string, value: unknown, type: keyof OptionTypes, what: string): void {
  if (isOfType(value, type)) return
  throw new ConvokeError(
    'config',
    `${what} "${clip(key, 100)}" must be ${typeWords[type]}, got ${describe(key, value)}.${hint(value, type)}`,
  )
}

/** Wider than what the log takes out: here nothing is lost but a word in a message. */
const secretName = /key|token|pass(word|phrase)|secret|credential|authorization|cookie/i

function describe(key: string, value: unknown): string {
  if (value === null || value === undefined) return String(value)
  const kind = Array.isArray(value)
    ? 'a list'
    : isObject(value)
      ? 'an object'
      : `a ${kindWords[typeof value] ?? 'value'}`
  return typeof value === 'object' || secretName.test(key) ? kind : `${kind}, ${redactText(excerpt(value))}`
}

const kindWords: Readonly<Record<string, string>> = { string: 'text', number: 'number', boolean: 'boolean' }

/** What was meant, likely. */
function hint(value: unknown, type: keyof OptionTypes): string {
  const unquoted = typeof value === 'string' ? value.trim() : undefined
  const isQuoted =
    type === 'boolean'
      ? unquoted === 'true' || unquoted === 'false'
      : (type === 'number' || type === 'integer') && unquoted !== '' && isOfType(Number(unquoted), type)
  if (isQuoted) return ' Write it without quotes.'
  if (type === 'string' && (typeof value === 'number' || typeof value === 'boolean')) return ' Put it in quotes.'
  if (type === 'array' && !isObject(value)) return ' Write [ ] around it.'
  return ' Change it, or remove it and take the default.'
}

function namesOf(key: string): string[] {
  const names = typeof key === 'string' ? key.split('.') : ['']
  if (names.includes(''))
    throw new ConvokeError(
      'config',
      `A key is names with dots between them, such as "model.retries", got ${excerpt(key)}.`,
    )
  return names
}

/** A copy with every dotted key spelt out as objects in objects. `at`: the key of `values`, for messages. */
function nest(values: unknown, at = '', depth = 0): JsonObject {
  if (depth > maxJsonDepth)
    throw new ConvokeError('config', `The configuration is circular, or nests deeper than ${maxJsonDepth} levels.`)
  if (!isObject(values))
    throw new ConvokeError('config', `A configuration is an object of keys and values, got ${excerpt(values)}.`)
  const nested: JsonObject = {}
  for (const [key, value] of Object.entries(values)) {
    if (value === undefined) continue
    const whole = at === '' ? key : `${at}.${key}`
    const names = namesOf(key)
    const inner = isPlain(value) ? nest(value, whole, depth + names.length) : (value as Json)
    add(nested, names, inner, whole)
  }
  return nested
}

function isPlain(value: unknown): boolean {
  if (!isObject(value)) return false
  const prototype: unknown = Object.getPrototypeOf(value)
  return prototype === Object.prototype || prototype === null
}

/** Puts a value below `names`; objects join with what is there, and two values of one key are a mistake. */
function add(into: JsonObject, names: readonly string[], value: Json, whole: string): void {
  const [name = '', ...rest] = names
  const made: Json = rest.length === 0 ? value : {}
  const there = Object.hasOwn(into, name) ? into[name] : undefined
  const target = there ?? made
  if (there === undefined) setMember(into, name, made)
  if (rest.length > 0 && isObject(target)) return add(target, rest, value, whole)
  if (there === undefined) return
  if (!isObject(there) || !isObject(value) || rest.length > 0)
    throw new ConvokeError(
      'config',
      `The key "${clip(whole, 100)}" is configured twice, or is a value and a group of keys at once. Keep one of them.`,
    )
  for (const [inner, each] of Object.entries(value)) add(there, [inner], each, `${whole}.${inner}`)
}

/** A new object with what `over` says; objects are merged down to `depth` names, and replaced below. */
function merge(under: Frozen<JsonObject>, over: JsonObject, depth: number): JsonObject {
  const merged = { ...under } as JsonObject
  for (const [name, value] of Object.entries(over)) {
    const there = Object.hasOwn(under, name) ? under[name] : undefined
    const isMerged = depth > 1 && isObject(there) && isObject(value)
    setMember(merged, name, isMerged ? merge(there, value, depth - 1) : value)
  }
  return merged
}

function freeze(values: JsonObject): Frozen<JsonObject> {
  const frozen = freezeJson(values)
  if ('value' in frozen) return frozen.value as Frozen<JsonObject>
  const key = frozen.at.slice(1).replaceAll('/', '.').replaceAll('~1', '/').replaceAll('~0', '~')
  throw new ConvokeError(
    'config',
    `The value of "${clip(key, 100)}" is not JSON. Use text, finite numbers, true, false, null, lists and plain objects.`,
  )
}

async function readText(file: string): Promise<string> {
  try {
    return await readFile(file, 'utf8')
  } catch (cause) {
    throw new ConvokeError('config', `Cannot read the configuration ${file}: ${whyUnreadable(cause)}.`, { cause })
  }
}

async function parse(file: string, text: string): Promise<JsonObject> {
  // Most agents are configured by the program that runs them.
  const { LineCounter, parseDocument } = await import('yaml')
  const lines = new LineCounter()
  const document = parseDocument(text, { lineCounter: lines, prettyErrors: false, stringKeys: true, logLevel: 'error' })
  const [error] = [...document.errors, ...document.warnings]
  if (error !== undefined) {
    const { line, col } = lines.linePos(error.pos[0])
    // What is quoted of the file may be a secret.
    const words = error.message.split(/[:"\\]/, 1)[0]?.trim() ?? ''
    throw new ConvokeError('config', `${file}:${line}:${col}: This is not valid YAML: ${words}.`)
  }
  let values: unknown
  try {
    values = document.toJS()
  } catch (cause) {
    // An alias that nothing defines, or so many that they would fill the memory.
    throw new ConvokeError('config', `${file}: ${(cause as Error).message}`, { cause })
  }
  if (values === null || values === undefined) return {}
  if (isObject(values)) return values as JsonObject
  throw new ConvokeError('config', `${file}: A configuration is keys with values, got ${excerpt(values)}.`)
}
