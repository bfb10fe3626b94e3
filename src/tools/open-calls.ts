/** The calls that a program has under way in a tool space: known, so that they can be waited for, and stopped. */
import type { ConvokeError } from '../base/errors.ts'

export interface OpenCall {
  stop(reason: ConvokeError): void
}

export class OpenCalls {
  readonly #calls = new Set<OpenCall>()
  #whenNone: (() => void) | undefined

  add(call: OpenCall): void {
    this.#calls.add(call)
  }

  delete(call: OpenCall): void {
    this.#calls.delete(call)
    if (this.#calls.size === 0) this.#whenNone?.()
  }

  /** Resolves when none is left, or after `ms` milliseconds. */
  async drain(ms: number): Promise<void> {
    if (this.#calls.size === 0 || ms <= 0) return
    await new Promise<void>((resolve) => {
      const timer = setTimeout(resolve, ms)
      this.#whenNone = () => {
        clearTimeout(timer)
        resolve()
      }
    })
    this.#whenNone = undefined
  }

  /** Stops them all. */
  stop(reason: ConvokeError): void {
    for (const call of [...this.#calls]) call.stop(reason)
  }
}
