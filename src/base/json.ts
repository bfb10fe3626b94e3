/** JSON values, and the limits on those that strangers send. */
import { ConvokeError } from './errors.ts'

export type Json = string | number | boolean | null | Json[] | { [key: string]: Json }
export type JsonObject = { [key: string]: Json }

export function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}

/** Sets a member by a name that a stranger has chosen. */
export function setMember<Value>(object: Record<string, Value>, name: string, value: Value): void {
  // Assigning to this one name would set the prototype instead.
  if (name === '__proto__')
    Object.defineProperty(object, name, { value, enumerable: true, configurable: true, writable: true })
  else object[name] = value
}

/** A copy that shares nothing but strings. Many times cheaper than structuredClone for the small values that calls carry. */
export function cloneJson<T>(value: T): T {
  if (Array.isArray(value)) return value.map(cloneJson) as T
  if (!isObject(value)) return value
  const copy: Record<string, unknown> = {}
  for (const key of Object.keys(value)) setMember(copy, key, cloneJson(value[key]))
  return copy as T
}

/** Its subclasses put their fields on the object that they are given. */
class Given {
  constructor(object: object) {
    return object
  }
}

/**
 * Marks what {@link freezeJson} has made, by a private field that is put on the object: nobody else sees it or can forge it, and it costs
 * 5 ns where an entry in a WeakSet costs 400.
 */
class Frozen extends Given {
  readonly #isFrozen = true
  static mark(object: object): void {
    new Frozen(object)
  }
  static has(object: object): boolean {
    return #isFrozen in object && object.#isFrozen
  }
}

/**
 * A deeply frozen copy of a JSON value. What this function has frozen before is shared, not copied, so values that are passed on
 * cost little. Returns the JSON Pointer of the first thing that is not JSON in place of a copy: undefined members of
 * objects are left out, and anything else (a function, NaN, a Date, a circle) is not JSON.
 */
export function freezeJson(value: unknown): { readonly value: Json } | { readonly at: string } {
  const copy = frozenCopy(value, 0)
  if (!(copy instanceof NotJson)) return { value: copy }
  const path = copy.path.toReversed()
  return { at: path.map((key) => `/${key.replaceAll('~', '~0').replaceAll('/', '~1')}`).join('') }
}

/** Where a value is not JSON: the keys from the inside out. */
class NotJson {
  readonly path: string[] = []
}

function frozenCopy(value: unknown, depth: number): Json | NotJson {
  if (value === null || typeof value === 'string' || typeof value === 'boolean') return value
  if (typeof value === 'number') return Number.isFinite(value) ? value : new NotJson()
  if (typeof value !== 'object' || depth >= maxJsonDepth) return new NotJson()
  if (Frozen.has(value)) return value as Json
  let copy: Json
  if (Array.isArray(value)) {
    copy = []
    for (const item of value as readonly unknown[]) {
      const inside = frozenCopy(item, depth + 1)
      if (inside instanceof NotJson) {
        inside.path.push(String(copy.length))
        return inside
      }
      copy.push(inside)
    }
  } else {
    const prototype: unknown = Object.getPrototypeOf(value)
    if (prototype !== Object.prototype && prototype !== null) return new NotJson()
    copy = {}
    for (const key of Object.keys(value)) {
      const member = (value as Record<string, unknown>)[key]
      if (member === undefined) continue
      const inside = frozenCopy(member, depth + 1)
      if (inside instanceof NotJson) {
        inside.path.push(key)
        return inside
      }
      setMember(copy, key, inside)
    }
  }
  Frozen.mark(copy)
  return Object.freeze(copy) as Json
}

/**
 * JSON with its object keys sorted, so that equal values give equal text. `undefined` members are
 * left out, as JSON.stringify does.
 */
export function canonicalJson(value: unknown): string {
  return JSON.stringify(value, (_key, member: unknown) =>
    isObject(member)
      ? Object.fromEntries(Object.entries(member).sort(([a], [b]) => (a < b ? -1 : a > b ? 1 : 0)))
      : member,
  )
}

/** How deep a request's JSON may nest. JSON.stringify and every walk over a value recurse this deep. */
export const maxJsonDepth = 200

/**
 * Parses JSON text from a stranger. Throws `parse_error` for text that is not JSON or that nests
 * deeper than {@link maxJsonDepth}.
 */
export function parseJson(text: string): unknown {
  if (isTooDeep(text)) {
    throw new ConvokeError('parse_error', `The JSON nests deeper than ${maxJsonDepth} levels.`)
  }
  try {
    return JSON.parse(text)
  } catch {
    throw new ConvokeError('parse_error', 'The body is not valid JSON.')
  }
}

/** Looks at the brackets outside of strings only; whether the rest is JSON is JSON.parse's matter. */
function isTooDeep(text: string): boolean {
  // A text shorter than the limit in brackets cannot nest past it; most requests stop here.
  if (text.length <= maxJsonDepth) return false
  let depth = 0
  for (let i = 0; i < text.length; i++) {
    const code = text.charCodeAt(i)
    if (code === 0x22) {
      // indexOf runs at memory speed; a quote behind an odd number of backslashes does not end the string.
      for (;;) {
        i = text.indexOf('"', i + 1)
        if (i === -1) return false
        let backslashes = 0
        while (text.charCodeAt(i - 1 - backslashes) === 0x5c) backslashes++
        if (backslashes % 2 === 0) break
      }
    } else if (code === 0x7b || code === 0x5b) {
      if (++depth > maxJsonDepth) return true
    } else if (code === 0x7d || code === 0x5d) {
      depth--
    }
  }
  return false
}
