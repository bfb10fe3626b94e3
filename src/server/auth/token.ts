/** Bearer tokens and API keys: the same secret under two headers, kept as a hash. */
import { hash, randomBytes } from 'node:crypto'

/** A new token: 256 random bits, with a prefix by which scanners find it in places where it should not be. */
export function createToken(): string {
  return `cvk_${randomBytes(32).toString('base64url')}`
}

/**
 * SHA-256 in hex. Enough for random tokens, of which nobody can try a noticeable part; a password would need
 * a slow hash. Looking the hash up in a map tells nothing by its timing: a caller cannot steer the hash.
 */
export function hashToken(token: string): string {
  return hash('sha256', token, 'hex')
}

/** What the id of a token may look like. No `|`, which ids of JWT callers have: the two never meet. */
export function isTokenId(id: string): boolean {
  return /^[A-Za-z0-9_.@-]{1,128}$/.test(id)
}
