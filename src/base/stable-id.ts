/** Ids that are the same whenever they are made of the same words. */
import { hash } from 'node:crypto'

/** A UUID (version 8) out of texts, each of which counts by itself: `a`, `bc` and `ab`, `c` are two ids. */
export function stableUuid(...words: readonly string[]): string {
  const hex = hash('sha256', JSON.stringify(words))
  const variant = ((Number.parseInt(hex.charAt(16), 16) & 0x3) | 0x8).toString(16)
  return `${hex.slice(0, 8)}-${hex.slice(8, 12)}-8${hex.slice(13, 16)}-${variant}${hex.slice(17, 20)}-${hex.slice(20, 32)}`
}
