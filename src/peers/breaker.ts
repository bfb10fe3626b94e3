/** Leaves a peer alone that does not answer, and lets one request find out whether it is back. */
import { PeerError } from './errors.ts'

/** Failures in a row that open it. */
const limit = 5
const firstRestMs = 1_000
const longestRestMs = 60_000

/**
 * Closed, all requests pass. After {@link limit} failures in a row it opens: requests fail at once, without any traffic.
 * After a rest, which doubles each time, one request is let through; if that succeeds it closes.
 */
export class Breaker {
  readonly #peer: string
  #failures = 0
  #openUntil = 0
  #restMs = firstRestMs
  #probing = false
  /** The last failure, as a sentence. */
  #reason = ''

  constructor(peer: string) {
    this.#peer = peer
  }

  get isOpen(): boolean {
    return this.#failures >= limit
  }

  /** Throws `unavailable` while the peer is left alone. */
  enter(): void {
    if (!this.isOpen) return
    const leftMs = this.#openUntil - Date.now()
    if (leftMs <= 0 && !this.#probing) {
      this.#probing = true
      return
    }
    throw new PeerError(
      'unavailable',
      this.#peer,
      `It did not answer ${this.#failures} times in a row and is left alone for a moment. The last time: ${this.#reason}`,
      { retryAfterMs: Math.max(leftMs, 100) },
    )
  }

  /** The peer answered, whatever it said. */
  succeeded(): void {
    this.#failures = 0
    this.#restMs = firstRestMs
    this.#probing = false
  }

  /** No answer came; `reason` is a sentence that says why. */
  failed(reason: string): void {
    this.#probing = false
    this.#reason = reason
    this.#failures++
    if (this.#failures < limit) return
    this.#openUntil = Date.now() + this.#restMs
    this.#restMs = Math.min(this.#restMs * 2, longestRestMs)
  }

  /** The request ended without telling anything of the peer: it was aborted. */
  left(): void {
    this.#probing = false
  }
}
