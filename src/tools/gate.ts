/** How many may be inside at once; the others wait in line, first come, first served. */
import { abortReason, onAbort } from '../base/abort.ts'
import { ConvokeError } from '../base/errors.ts'

/** How long the line may get. */
export const defaultMaxWaiting = 1000
const retryAfterMs = 1000

export class Gate {
  readonly #limit: number
  readonly #maxWaiting: number
  #inside = 0
  // A Set keeps the order of arrival and lets an aborted one leave from the middle.
  readonly #waiting = new Set<() => void>()

  constructor(limit: number, maxWaiting = defaultMaxWaiting) {
    this.#limit = limit
    this.#maxWaiting = maxWaiting
  }

  /**
   * Goes in: at once (undefined), or when the promise resolves. It rejects with the reason of the call's signal when
   * that aborts first; nobody looks at the signal of one that need not wait. Throws `rate_limited` when the line is full; `what` is named then. Each one that got in must {@link leave}.
   */
  enter(call: { readonly signal: AbortSignal }, what: string): Promise<void> | undefined {
    if (this.#inside < this.#limit) {
      this.#inside++
      return undefined
    }
    const { signal } = call
    if (signal.aborted) throw abortReason(signal)
    if (this.#waiting.size >= this.#maxWaiting) {
      const message = `${what} is busy: ${this.#limit} calls run and ${this.#maxWaiting} wait. Try again later.`
      throw new ConvokeError('rate_limited', message, { retryAfterMs })
    }
    return new Promise((resolve, reject) => {
      const go = (): void => {
        stop()
        resolve()
      }
      const stop = onAbort(signal, () => {
        this.#waiting.delete(go)
        reject(abortReason(signal))
      })
      this.#waiting.add(go)
    })
  }

  /** Whether nobody is inside or waits. */
  get isIdle(): boolean {
    return this.#inside === 0
  }

  /** Goes out: the place passes to the first in line. */
  leave(): void {
    const [first] = this.#waiting
    if (first === undefined) {
      this.#inside--
      return
    }
    this.#waiting.delete(first)
    first()
  }
}
