/** What of a payload is written down: without secrets, and no more than there is room for. */
import { setMember } from '../base/json.ts'
import { isSecret, redacted, redactText } from '../base/secrets.ts'
import { clip } from '../tools/value.ts'

/** Room for one line: a payload that is to be written whole, and is longer, is cut. */
export const maxLineChars = 1_048_576
/** Of ids, keys and names. */
export const maxNameChars = 1_000

export interface PayloadLimits {
  /** Of one text. */
  readonly maxText: number
  readonly maxItems: number
  readonly maxDepth: number
  /** Of all values together, and the characters of their texts and names. */
  readonly maxValues: number
  readonly maxChars: number
}

/** Texts cut at `maxPayloadChars`, lists at 20 items; all together it stays within some ten times of that. */
export function cutPayload(maxPayloadChars: number): PayloadLimits {
  const maxText = Math.min(maxPayloadChars, maxLineChars / 64)
  return { maxText, maxItems: 20, maxDepth: 12, maxValues: 500, maxChars: 4_000 + 8 * maxText }
}

/** What a line has room for. */
export const wholePayload: PayloadLimits = {
  maxText: maxLineChars,
  maxItems: Number.POSITIVE_INFINITY,
  maxDepth: Number.POSITIVE_INFINITY,
  maxValues: maxLineChars,
  maxChars: maxLineChars,
}

/** A copy without secrets and within the limits; what is left out is counted where it stood. */
export function shorten(payload: unknown, limits: PayloadLimits): unknown {
  let values = limits.maxValues
  let chars = limits.maxChars
  const walk = (value: unknown, depth: number): unknown => {
    if (typeof value === 'string') {
      const text = safeText(value, Math.max(0, Math.min(limits.maxText, chars)))
      chars -= text.length
      return text
    }
    if (typeof value !== 'object' || value === null) return value
    if (depth >= limits.maxDepth) return '…'
    if (Array.isArray(value)) {
      const items: unknown[] = []
      for (const item of value) {
        if (items.length >= limits.maxItems || --values < 0 || chars < 0) break
        items.push(walk(item, depth + 1))
      }
      if (items.length < value.length) items.push(`… ${value.length - items.length} more`)
      return items
    }
    const copy: Record<string, unknown> = {}
    const members = Object.entries(value)
    let taken = 0
    for (const [key, member] of members) {
      if (--values < 0 || chars < 0) break
      taken++
      const name = clip(key, maxNameChars)
      chars -= name.length
      setMember(copy, name, isSecret(key, member) ? redacted : walk(member, depth + 1))
    }
    if (taken < members.length) copy['…'] = `… ${members.length - taken} more`
    return copy
  }
  return walk(payload, 0)
}

/** A member of JSON that stands in a text, as the arguments of a model's calls do. A text that was cut may end in its value. */
const memberInText = /"([^"\\]{1,64})"\s{0,8}:\s{0,8}"([^"\\]*(?:\\.[^"\\]*)*)(?:"|\\?$)/gs

/** The text without secrets, at most about so long. */
export function safeText(text: string, maxLength: number): string {
  const short = text.length > maxLength ? text.slice(0, maxLength) : text
  let safe = redactText(short)
  if (safe.includes('":') || safe.includes('" '))
    safe = safe.replace(memberInText, (whole, key: string, value: string) =>
      isSecret(key, value) ? `"${key}":"${redacted}"` : whole,
    )
  return short === text ? safe : `${safe}… ${text.length - maxLength} more characters`
}
