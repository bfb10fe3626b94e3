/** What Ctrl-C means: stop what is under way; the second time, leave. */
import { ConvokeError } from '../../base/errors.ts'

/** Close it when the chat is over. */
export class Interrupts {
  readonly #leaving = new AbortController()
  #stopping: AbortController | undefined
  readonly #hasPrompt: boolean
  #isAsked = false

  /** `hasPrompt`: somebody sits there, and may have hit the keys by mistake where there is nothing to stop. */
  constructor(hasPrompt: boolean) {
    this.#hasPrompt = hasPrompt
    process.on('SIGINT', this.interrupt)
  }

  /** Aborts when nothing is waited for any more. */
  get leave(): AbortSignal {
    return this.#leaving.signal
  }

  /** Whether there was a Ctrl-C since the last answer. */
  get isAsked(): boolean {
    return this.#isAsked
  }

  /** A message goes out: until `end` the first Ctrl-C aborts this signal. */
  begin(): AbortController {
    this.#isAsked = false
    this.#stopping = new AbortController()
    return this.#stopping
  }

  end(): void {
    this.#stopping = undefined
  }

  readonly interrupt = (): void => {
    const error = new ConvokeError('canceled', 'Interrupted.')
    if (this.#stopping?.signal.aborted === false) this.#stopping.abort(error)
    else if (this.#stopping !== undefined || this.#isAsked || !this.#hasPrompt) this.#leaving.abort(error)
    this.#isAsked = true
  }

  close(): void {
    process.off('SIGINT', this.interrupt)
  }
}
