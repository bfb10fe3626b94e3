/** An agent's memory: JSON values under dotted paths. */
import { ConvokeError } from '../base/errors.ts'
import { cloneJson, isObject, maxJsonDepth, setMember, type Json, type JsonObject } from '../base/json.ts'
import { clip, excerpt, findNotJson } from '../tools/value.ts'
import type { Frozen } from './events.ts'

/**
 * What goes in and comes out is a copy. Paths are dotted: `set('order.items', […])` makes `order` an object on the way. They
 * lead through objects alone: a list is one value, which is got, changed and set as a whole. A name that holds a dot
 * itself is part of the value around it. Throws `invalid_event` for a value that is not JSON, a path that is none, or one
 * that leads through something that is no object; `too_large` for more than memory may hold, which is then as it was before;
 * and `run_ended` once the run has ended.
 */
export interface Memory {
  /** Undefined where there is nothing. */
  get(path: string): Json | undefined
  /** Over what is there, objects too. `value` may be, or have in it, what an event had. */
  set(path: string, value: Json | Frozen<Json>): void
  /** False, too, where the path leads through something that is no object. */
  has(path: string): boolean
  /** Whether there was something. */
  delete(path: string): boolean
  /**
   * The names right below the path (default: the top), in the order in which they were set; whole numbers come first, as in any
   * object. None below a list or a plain value.
   */
  keys(path?: string): string[]
  /** Everything, as one object. */
  toJSON(): Json
}

export interface MemoryOptions {
  /** How much it may hold, in bytes of JSON. Default: 1 MiB. */
  readonly maxBytes?: number
}

const defaultMaxBytes = 1_048_576

/**
 * A memory of one run. Nothing is parsed before the first use; what is put in is copied once, and what was there is neither
 * copied nor written anew where nothing has changed. Belongs to the run; the runner reads `toText` and calls `end`.
 */
export class MemoryTree implements Memory {
  readonly #maxBytes: number
  #root: JsonObject | undefined
  /** The JSON of the tree; undefined where it has changed since. */
  #text: string | undefined
  /** The JSON is no longer than this. To know more it has to be made, which waits until this passes the limit. */
  #mostBytes: number
  #changed = false
  #ended = false

  /** `initial`: the text that `toText` gave, or an object, which is copied. Throws `invalid_event` for an object that is not JSON. */
  constructor(initial?: string | JsonObject, options: MemoryOptions = {}) {
    this.#maxBytes = options.maxBytes ?? defaultMaxBytes
    if (typeof initial === 'string') {
      this.#text = initial
      this.#mostBytes = Buffer.byteLength(initial)
    } else {
      const { copy, mostBytes } = copyIn(initial ?? {}, 0, 'The memory')
      if (!isObject(copy)) throw new ConvokeError('invalid_event', `A memory is an object, got ${excerpt(initial)}.`)
      this.#root = copy
      this.#mostBytes = mostBytes
    }
  }

  /** Whether something was set or deleted. */
  get changed(): boolean {
    return this.#changed
  }

  get(path: string): Json | undefined {
    return cloneJson(this.#look(path))
  }

  set(path: string, value: Json | Frozen<Json>): void {
    const names = namesOf(path)
    const root = this.#tree()
    const { copy, mostBytes } = copyIn(value, names.length, `The value for "${clip(path, maxShown)}"`)
    // Down to the object that is there; what is missing below it is made in one piece, so that one write takes it back.
    let object = root
    let depth = 0
    for (; depth < names.length - 1; depth++) {
      const next = member(object, names[depth])
      if (next === undefined) break
      if (!isObject(next)) throw noObject(path, names.slice(0, depth + 1), next)
      object = next
    }
    const name = names[depth] ?? ''
    let made = copy
    for (let i = names.length - 1; i > depth; i--) {
      const around: JsonObject = {}
      setMember(around, names[i] ?? '', made)
      made = around
    }
    const before = member(object, name)
    const [textBefore, mostBytesBefore] = [this.#text, this.#mostBytes]
    setMember(object, name, made)
    this.#text = undefined
    this.#mostBytes += mostBytes + path.length * mostBytesOfUnit + names.length * bytesAround
    if (this.#mostBytes > this.#maxBytes) {
      const bytes = Buffer.byteLength(this.#toText())
      this.#mostBytes = bytes
      if (bytes > this.#maxBytes) {
        if (before === undefined) delete object[name]
        else setMember(object, name, before)
        this.#text = textBefore
        this.#mostBytes = mostBytesBefore
        throw new ConvokeError(
          'too_large',
          `With "${clip(path, maxShown)}" the memory would be ${bytes} bytes of JSON, and may be ${this.#maxBytes}. ` +
            'Keep less in it: delete what is no longer needed, and keep large things elsewhere, with their names here.',
        )
      }
    }
    this.#changed = true
  }

  has(path: string): boolean {
    let value: Json | undefined = this.#tree()
    for (const name of namesOf(path)) value = isObject(value) ? member(value, name) : undefined
    return value !== undefined
  }

  delete(path: string): boolean {
    const names = namesOf(path)
    const object = this.#objectAbove(names, path)
    const name = last(names)
    if (object === undefined || member(object, name) === undefined) return false
    delete object[name]
    this.#text = undefined
    this.#changed = true
    return true
  }

  keys(path?: string): string[] {
    const value = path === undefined ? this.#tree() : this.#look(path)
    return isObject(value) ? Object.keys(value) : []
  }

  toJSON(): JsonObject {
    return cloneJson(this.#tree())
  }

  /** Everything as JSON text, also when the run has ended. */
  toText(): string {
    return this.#toText()
  }

  /** The run has ended: from now on every use of the {@link Memory} throws `run_ended`. */
  end(): void {
    this.#ended = true
  }

  #toText(): string {
    return (this.#text ??= JSON.stringify(this.#root))
  }

  #tree(): JsonObject {
    if (this.#ended)
      throw new ConvokeError(
        'run_ended',
        'The memory was used after its run had ended. Await everything that an action begins before the action returns.',
      )
    return (this.#root ??= parseState(this.#text))
  }

  #look(path: string): Json | undefined {
    const names = namesOf(path)
    const object = this.#objectAbove(names, path)
    return object === undefined ? undefined : member(object, last(names))
  }

  /** The object that holds the last name, if there is one. */
  #objectAbove(names: readonly string[], path: string): JsonObject | undefined {
    let object = this.#tree()
    for (let i = 0; i < names.length - 1; i++) {
      const next = member(object, names[i])
      if (next === undefined) return undefined
      if (!isObject(next)) throw noObject(path, names.slice(0, i + 1), next)
      object = next
    }
    return object
  }
}

function parseState(text: string | undefined): JsonObject {
  let value: unknown
  try {
    value = JSON.parse(text ?? '')
  } catch (cause) {
    throw new ConvokeError('internal', 'The memory of this key cannot be read from the store.', { cause })
  }
  if (!isObject(value)) throw new ConvokeError('internal', 'The memory of this key in the store is no object.')
  return value as JsonObject
}

/** How much of a path an error shows. */
const maxShown = 80

function namesOf(path: string): string[] {
  // Whoever writes plain JavaScript may hand over anything.
  if (typeof path === 'string' && path !== '' && !path.includes('.')) return [path]
  const names = typeof path === 'string' ? path.split('.') : []
  if (names.length === 0 || names.length >= maxJsonDepth || names.includes('')) {
    throw new ConvokeError(
      'invalid_event',
      `A path in memory is names with dots between them, such as "order.items", got ${excerpt(path)}.`,
    )
  }
  return names
}

function last(names: readonly string[]): string {
  return names.at(-1) ?? ''
}

/** Own members only: a path such as `constructor` finds nothing that nobody has set. */
function member(object: JsonObject, name: string | undefined): Json | undefined {
  return name !== undefined && Object.hasOwn(object, name) ? object[name] : undefined
}

function noObject(path: string, names: readonly string[], value: Json): ConvokeError {
  const what = Array.isArray(value) ? 'a list' : value === null ? 'null' : `a ${typeof value}`
  const whole = clip(names.join('.'), maxShown)
  return new ConvokeError(
    'invalid_event',
    `The path "${clip(path, maxShown)}" leads through "${whole}", which is ${what} and no object. ` +
      `Get "${whole}" as a whole, change it, and set it again.`,
  )
}

/** What a UTF-16 unit takes in JSON at most: `\u0000`. */
const mostBytesOfUnit = 6
/** Quotes, colon, comma, brackets. */
const bytesAround = 6
/** `-1.2345678901234567e-300` and the shorter words. */
const mostBytesOfPlain = 25

/** A copy that shares nothing, and how many bytes of JSON it takes at most. Throws `invalid_event` where it is not JSON. */
function copyIn(value: unknown, depth: number, what: string): { copy: Json; mostBytes: number } {
  let mostBytes = 0
  let isJson = true
  const walk = (each: unknown, level: number): Json => {
    if (typeof each === 'string') {
      mostBytes += each.length * mostBytesOfUnit + bytesAround
      return each
    }
    mostBytes += mostBytesOfPlain
    if (each === null || typeof each === 'boolean') return each
    if (typeof each === 'number' && Number.isFinite(each)) return each
    if (typeof each === 'object' && level < maxJsonDepth) {
      // Also of holes, which map would pass over.
      if (Array.isArray(each)) return Array.from(each, (item) => (isJson ? walk(item, level + 1) : null))
      const prototype: unknown = Object.getPrototypeOf(each)
      if (prototype === Object.prototype || prototype === null || Object.getPrototypeOf(prototype) === null) {
        const copy: JsonObject = {}
        for (const [key, inside] of Object.entries(each)) {
          if (!isJson) break
          if (inside === undefined) continue
          mostBytes += key.length * mostBytesOfUnit + bytesAround
          setMember(copy, key, walk(inside, level + 1))
        }
        return copy
      }
    }
    isJson = false
    return null
  }
  const copy = walk(value, depth)
  if (isJson) return { copy, mostBytes }
  // Only now: where it stands is of no interest to values that are right.
  const issue = findNotJson(value)
  const where = issue === undefined || issue.path === '' ? '' : ` at ${issue.path}`
  const why = issue?.message ?? `nests deeper than ${maxJsonDepth} levels, those of its path included`
  const hint = value === undefined ? ', or delete' : ''
  throw new ConvokeError('invalid_event', `${what} cannot be kept${where}: ${why}${hint}.`)
}
