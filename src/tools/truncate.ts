/** Results as the text that a language model is given: whole when they are small, else cut so that they still say what they are. */
import { isDeepStrictEqual } from 'node:util'
import { ConvokeError } from '../base/errors.ts'
import { isObject, maxJsonDepth, type Json, type JsonObject } from '../base/json.ts'
import type { Part } from '../protocol/a2a.ts'
import { isContent } from '../protocol/content.ts'
import type { ToolValue } from './tool.ts'
import { clip, excerpt } from './value.ts'

export interface ModelTextOptions {
  /** Longest text, in characters as JavaScript counts them; at least 100. Default: 20,000, some 5,000 tokens. */
  readonly maxChars?: number
  /** Bytes, images and sound in a line that says what they are, or as a `data:` URL where that fits. Default: `describe`. */
  readonly bytes?: 'describe' | 'base64'
}

export const defaultMaxChars = 20_000
const leastChars = 100

/**
 * The text of a result, never longer than `maxChars`. A text stands as it is, any other JSON value as JSON, the parts of
 * Content below each other, links and bytes in a line each.
 *
 * What is too long is cut where it is long, and says how much is missing: texts keep their head and tail, arrays their
 * first items, objects their first members; what lies too deep becomes a note. Cut JSON is JSON still. Takes time in
 * proportion to the size of the value at most. Throws `config` for a wrong `maxChars`.
 */
export function toModelText(value: ToolValue, options: ModelTextOptions = {}): string {
  const { maxChars = defaultMaxChars, bytes = 'describe' } = options
  checkMaxChars(maxChars)
  if (value instanceof Uint8Array) {
    const base64 = (): string => Buffer.from(value.buffer, value.byteOffset, value.byteLength).toString('base64')
    return bytesText({ size: value.byteLength, base64 }, { maxChars, bytes })
  }
  if (!isContent(value)) return jsonText(value, maxChars)
  return partsText(withoutEchoes(value.parts), { maxChars, bytes })
}

/** Throws `config` unless it can be the longest text. */
export function checkMaxChars(maxChars: unknown): void {
  if (Number.isSafeInteger(maxChars) && Number(maxChars) >= leastChars) return
  throw new ConvokeError(
    'config',
    `\`maxChars\` must be a whole number of ${leastChars} or more, got ${excerpt(maxChars)}.`,
  )
}

function jsonText(value: Json, maxChars: number): string {
  if (typeof value === 'string') return cutText(value, maxChars)
  const sizes: Sizes = new Map()
  if (measure(value, maxChars, sizes, 0) <= maxChars) return JSON.stringify(value)
  return JSON.stringify(shrink(value, maxChars, sizes, 0))
}

/** Head and tail of a text that is longer than `maxChars`, and between them how much was left out. */
export function cutText(text: string, maxChars: number): string {
  if (text.length <= maxChars) return text
  // The number can only get shorter from here.
  const room = Math.max(0, maxChars - note(text.length).length)
  const tailLength = Math.floor(room / 4)
  const head = text.slice(0, wholeUpTo(text, room - tailLength))
  const tail = text.slice(wholeFrom(text, text.length - tailLength))
  return `${head}${note(text.length - head.length - tail.length)}${tail}`.slice(0, maxChars)
}

function note(count: number): string {
  return `\n… ${grouped(count)} characters left out …\n`
}

/** 12,345, alike in every locale. */
function grouped(count: number): string {
  return String(count).replace(/\B(?=(\d{3})+$)/g, ',')
}

/** The index, or the one before where it would halve a code point. */
function wholeUpTo(text: string, index: number): number {
  return isHalved(text, index) ? index - 1 : index
}

function wholeFrom(text: string, index: number): number {
  return isHalved(text, index) ? index + 1 : index
}

function isHalved(text: string, index: number): boolean {
  if (index <= 0 || index >= text.length) return false
  const before = text.charCodeAt(index - 1)
  const after = text.charCodeAt(index)
  return before >= 0xd800 && before <= 0xdbff && after >= 0xdc00 && after <= 0xdfff
}

/** How long the JSON of arrays and objects is; measured once, as every level above asks for it. */
type Sizes = Map<object, number>

/** Stands for the size of what is longer than anybody has room for, and of what lies too deep. */
const tooLarge = 1e12

/** The length of a value's JSON, or `tooLarge` above `cap`: more of it than that is not looked at. */
function measure(value: Json | undefined, cap: number, sizes: Sizes, depth: number): number {
  if (typeof value === 'string') return value.length > cap ? tooLarge : stringSize(value)
  if (typeof value !== 'object' || value === null) return String(value).length
  const known = sizes.get(value)
  if (known !== undefined) return known
  const measured = depth >= maxJsonDepth ? tooLarge : measureMembers(value, cap, sizes, depth + 1)
  const size = measured > cap ? tooLarge : measured
  sizes.set(value, size)
  return size
}

function measureMembers(value: Json[] | JsonObject, cap: number, sizes: Sizes, depth: number): number {
  // Two brackets, and a comma behind all but the last.
  let size = 1
  if (Array.isArray(value)) {
    for (const item of value) {
      size += measure(item, cap, sizes, depth) + 1
      if (size > cap) break
    }
  } else {
    for (const key of Object.keys(value)) {
      const member = value[key]
      if (member === undefined) continue
      size += stringSize(key) + measure(member, cap, sizes, depth) + 2
      if (size > cap) break
    }
  }
  return Math.max(2, size)
}

function stringSize(text: string): number {
  return JSON.stringify(text).length
}

function members(object: JsonObject): [string, Json][] {
  return Object.entries(object).filter(([, member]) => member !== undefined)
}

/** The least that a value needs so as to be worth showing: what is shorter stays whole. */
const smallSize = 60

/** A value whose JSON is `budget` characters at most. A budget below some 60 leaves no more than a note, or nothing. */
function shrink(value: Json, budget: number, sizes: Sizes, depth: number): Json {
  if (measure(value, budget, sizes, depth) <= budget && depth < maxJsonDepth) return value
  if (typeof value === 'string') return shrinkString(value, budget)
  if (typeof value !== 'object' || value === null) return value
  const what = Array.isArray(value)
    ? `array of ${grouped(value.length)}`
    : `object of ${grouped(members(value).length)}`
  if (budget < smallSize || depth >= maxJsonDepth) return fitting(`… ${what} left out …`, budget)
  return Array.isArray(value) ? shrinkArray(value, budget, sizes, depth) : shrinkObject(value, budget, sizes, depth)
}

function fitting(text: string, budget: number): string {
  return stringSize(text) <= budget ? text : budget >= 3 ? '…' : ''
}

function shrinkString(text: string, budget: number): string {
  // The JSON of a text is longer than the text where it holds quotes, line breaks and the like; it can be six times as long.
  let length = budget - 2
  for (let tries = 0; tries < 24; tries++) {
    const cut =
      length >= smallSize ? cutText(text, length) : fitting(`… ${grouped(text.length)} characters left out …`, budget)
    const over = stringSize(cut) - budget
    if (over <= 0) return cut
    // By the share that was too much; where escapes stand in one heap that takes long, so by halves then.
    length = Math.floor(tries < 8 ? Math.min(length - over, (length * budget) / (budget + over)) : length / 2)
  }
  return fitting('…', budget)
}

function shrinkArray(items: readonly Json[], budget: number, sizes: Sizes, depth: number): Json {
  // Room for the note on those that are left out, and its comma.
  const room = budget - 2 - smallSize
  const wanted: number[] = []
  let least = 0
  for (const item of items) {
    const size = measure(item, budget, sizes, depth + 1) + 1
    least += Math.min(size, smallSize + 1)
    if (least > room) break
    wanted.push(size)
  }
  const shares = share(wanted, Math.max(0, room))
  const kept = shares.map((granted, i) => shrink(items[i] ?? null, granted - 1, sizes, depth + 1))
  const left = items.length - kept.length
  return left === 0 ? kept : [...kept, `… ${grouped(left)}${kept.length === 0 ? '' : ' more'} items left out …`]
}

function shrinkObject(object: JsonObject, budget: number, sizes: Sizes, depth: number): Json {
  const all = members(object)
  const room = budget - 2 - smallSize
  const wanted: number[] = []
  const keySizes: number[] = []
  let least = 0
  let keysSize = 0
  for (const [key, member] of all) {
    // Colon and comma.
    const keySize = stringSize(key) + 2
    const size = measure(member, budget, sizes, depth + 1)
    least += keySize + Math.min(size, smallSize)
    if (least > room) break
    keysSize += keySize
    keySizes.push(keySize)
    wanted.push(size)
  }
  const shares = share(wanted, Math.max(0, room - keysSize))
  const kept = shares.flatMap((granted, i): [string, Json][] => {
    const [key, member] = all[i] ?? ['', null]
    return [[key, shrink(member, granted, sizes, depth + 1)]]
  })
  const left = all.length - kept.length
  if (left > 0) kept.push([freeKey(kept), `${grouped(left)} more members left out`])
  // fromEntries defines its members: one may be called __proto__.
  return Object.fromEntries(kept)
}

function freeKey(kept: readonly (readonly [string, Json])[]): string {
  return kept.some(([key]) => key === '…') ? '… left out …' : '…'
}

/** Room for each: who wants little gets it, the others share what is left evenly. The sum is `room` at most. */
function share(wanted: readonly number[], room: number): number[] {
  const order = wanted.map((_, i) => i).sort((a, b) => (wanted[a] ?? 0) - (wanted[b] ?? 0))
  const shares = wanted.map(() => 0)
  let left = room
  order.forEach((index, done) => {
    const granted = Math.min(wanted[index] ?? 0, Math.floor(left / (order.length - done)))
    shares[index] = granted
    left -= granted
  })
  return shares
}

type Settings = Required<ModelTextOptions>

/** Least room for one part of several. */
const leastPart = 100

function partsText(parts: readonly Part[], settings: Settings): string {
  const { maxChars } = settings
  const render = (part: Part, room: number): string => partText(part, { ...settings, maxChars: room })
  // Each is looked at with all the room first, so none is ever longer than that.
  const shown = parts.slice(0, Math.max(1, Math.floor((maxChars - smallSize) / (leastPart + 1))))
  const whole = shown.map((part) => render(part, maxChars))
  const left = parts.length - shown.length
  const last = left === 0 ? [] : [`… ${grouped(left)} more parts left out …`]
  const room = maxChars - last.join('').length - shown.length
  const shares = share(
    whole.map((text) => text.length),
    room,
  )
  const texts = shown.map((part, i) => {
    const text = whole[i] ?? ''
    const granted = shares[i] ?? 0
    return text.length <= granted ? text : render(part, granted)
  })
  return [...texts, ...last].join('\n')
}

function partText(part: Part, settings: Settings): string {
  const { text, data, url, raw, filename, mediaType } = part
  const { maxChars } = settings
  if (text !== undefined) return cutText(text, maxChars)
  if (data !== undefined) return jsonText(data, maxChars)
  if (url !== undefined) {
    const type = mediaType === undefined ? '' : `, ${clip(mediaType, 100)}`
    return cutText(`[link${shownName(filename)}: ${url}${type}]`, maxChars)
  }
  const base64 = raw ?? ''
  return bytesText({ size: Buffer.byteLength(base64, 'base64'), base64: () => base64, mediaType, filename }, settings)
}

interface Bytes {
  readonly size: number
  readonly base64: () => string
  readonly mediaType?: string | undefined
  readonly filename?: string | undefined
}

function bytesText({ size, base64, mediaType, filename }: Bytes, { maxChars, bytes }: Settings): string {
  const type = clip(mediaType ?? 'application/octet-stream', 100)
  const start = `data:${type};base64,`
  // Cut base64 is of no use to anybody.
  if (bytes === 'base64' && start.length + Math.ceil(size / 3) * 4 <= maxChars) return start + base64()
  const kind = /^(image|audio|video)\//.exec(type)?.[1] ?? 'bytes'
  return cutText(`[${kind}${shownName(filename)}: ${type}, ${grouped(size)} bytes]`, maxChars)
}

function shownName(filename: string | undefined): string {
  return filename === undefined ? '' : ` ${JSON.stringify(clip(filename, 200))}`
}

/** Without the texts that say in JSON what a data part says: MCP servers send structured results both ways. */
function withoutEchoes(parts: readonly Part[]): readonly Part[] {
  const data = parts.flatMap((part) => (isObject(part.data) ? [part.data] : []))
  if (data.length !== 1) return parts
  const [only] = data
  return parts.filter(({ text }) => text === undefined || !/^\s*\{/.test(text) || !saysTheSame(text, only))
}

function saysTheSame(text: string, data: JsonObject | undefined): boolean {
  try {
    return isDeepStrictEqual(JSON.parse(text), data)
  } catch {
    return false
  }
}
