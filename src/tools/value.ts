/** What may pass between tools and callers, and how values are shown in messages. */
import { maxJsonDepth } from '../base/json.ts'
import type { Issue } from '../base/errors.ts'

/**
 * Where and why a value is not JSON, or undefined when it is. Strict where JSON.stringify would lose something
 * silently (a forgotten promise, a Date, a Map, NaN), because a caller in the same process would see another value
 * than one across the wire. Members that are undefined count as absent. A key `__proto__` is refused: copying
 * such an object by assignment would change the prototype of the copy.
 */
export function findNotJson(value: unknown): Issue | undefined {
  const found = walk(value, 0)
  if (found === undefined) return undefined
  const path = found.path.reverse()
  const shown = path.length <= 20 ? path : [...path.slice(0, 20), '…']
  return { path: toPointer(shown), message: found.message }
}

/** `path` is written from the inside out, and only once something was found. */
interface Found {
  readonly path: (string | number)[]
  readonly message: string
}

function walk(value: unknown, depth: number): Found | undefined {
  switch (typeof value) {
    case 'string':
    case 'boolean':
      return undefined
    case 'number':
      return Number.isFinite(value) ? undefined : notJson(`${value} is not a JSON number`)
    case 'object':
      break
    case 'bigint':
      return notJson('a BigInt is not JSON; use a number or a string')
    default:
      return notJson(value === undefined ? 'undefined is not JSON; use null' : `a ${typeof value} is not JSON`)
  }
  if (value === null) return undefined
  if (depth >= maxJsonDepth) return notJson(`is circular, or nests deeper than ${maxJsonDepth} levels`)
  if (Array.isArray(value)) {
    for (let i = 0; i < value.length; i++) {
      const found = walk(value[i], depth + 1)
      if (found !== undefined) return within(found, i)
    }
    return undefined
  }
  if (!isPlain(value)) return notJson(`${describeInstance(value)} is not JSON`)
  for (const key in value) {
    if (key === '__proto__') return notJson('a key may not be called __proto__')
    const member: unknown = (value as Record<string, unknown>)[key]
    if (member === undefined) continue
    const found = walk(member, depth + 1)
    if (found !== undefined) return within(found, key)
  }
  return undefined
}

function notJson(message: string): Found {
  return { path: [], message }
}

function within(found: Found, key: string | number): Found {
  found.path.push(key)
  return found
}

/** An object literal, from this realm or another; the prototype of an Object.prototype is null. */
function isPlain(value: object): boolean {
  const prototype: unknown = Object.getPrototypeOf(value)
  return prototype === null || prototype === Object.prototype || Object.getPrototypeOf(prototype) === null
}

function describeInstance(value: object): string {
  if (value instanceof Promise) return 'a Promise (a forgotten await?)'
  if (value instanceof Date) return 'a Date (use toISOString())'
  if (value instanceof Uint8Array) return 'bytes inside of JSON (return them alone, or as base64 text)'
  const name = (value.constructor as { name?: unknown } | undefined)?.name
  return typeof name === 'string' && name !== '' ? `an instance of ${clip(name, 64)}` : 'an instance of a class'
}

/** Whether a value has more than `limit` members all told. Looks at no more than that. */
export function isLargerThan(value: unknown, limit: number): boolean {
  let left = limit
  const count = (part: unknown): boolean => {
    if (--left < 0) return true
    if (typeof part !== 'object' || part === null) return false
    for (const member of Array.isArray(part) ? part : Object.values(part)) {
      if (count(member)) return true
    }
    return false
  }
  return count(value)
}

/** A JSON Pointer (RFC 6901). */
export function toPointer(path: readonly PropertyKey[]): string {
  return path.map((key) => `/${escapePointer(clip(String(key), 100))}`).join('')
}

export function escapePointer(key: string): string {
  if (!key.includes('~') && !key.includes('/')) return key
  return key.replaceAll('~', '~0').replaceAll('/', '~1')
}

export function clip(text: string, maxLength: number): string {
  return text.length <= maxLength ? text : `${text.slice(0, maxLength)}…`
}

/** A value in a few words, however large it is: at most some 80 characters. */
export function excerpt(value: unknown): string {
  if (typeof value === 'string') return clip(JSON.stringify(value.slice(0, 81)), 80)
  if (Array.isArray(value)) return `an array of ${value.length}`
  if (value instanceof Uint8Array) return `${value.byteLength} bytes`
  if (typeof value === 'object' && value !== null) return 'an object'
  return clip(String(value), 80)
}

/**
 * The candidate that was probably meant, if one is close: as many characters apart as `limit` says, by default a third of all, so that of
 * one or two letters only another case is close. Looks at the first 200 only.
 */
export function closest(
  name: string,
  candidates: readonly string[],
  limit: number = Math.floor(name.length / 3),
): string | undefined {
  if (name.length > 64) return undefined
  let best: { readonly candidate: string; readonly distance: number } | undefined
  for (const candidate of candidates.slice(0, 200)) {
    const [one, other] = [simplify(name), simplify(candidate)]
    if (Math.abs(one.length - other.length) > limit) continue
    const distance = editDistance(one, other)
    if (distance <= limit && (best === undefined || distance < best.distance)) best = { candidate, distance }
  }
  return best?.candidate
}

/** `maxItems`, `max_items` and `max-items` are the same word to whoever mixes them up. */
function simplify(name: string): string {
  return name.toLowerCase().replace(/[_-]/g, '')
}

function editDistance(a: string, b: string): number {
  let row = Array.from({ length: b.length + 1 }, (_, j) => j)
  for (let i = 1; i <= a.length; i++) {
    const next = [i]
    for (let j = 1; j <= b.length; j++) {
      const above = row[j] ?? 0
      const left = next[j - 1] ?? 0
      const corner = row[j - 1] ?? 0
      next.push(Math.min(above + 1, left + 1, corner + (a[i - 1] === b[j - 1] ? 0 : 1)))
    }
    row = next
  }
  return row[b.length] ?? 0
}
