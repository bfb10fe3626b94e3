/** One call while it is shown: where its events go, who answers its questions, and what stops it. */
import { ConvokeError } from '../../base/errors.ts'
import type { Json } from '../../base/json.ts'
import type { Question } from '../../tools/tool.ts'
import type { Session } from '../a2a/session.ts'
import { CallOutput } from './call-output.ts'
import type { RemoteFlags } from './options.ts'
import { answer } from './question.ts'

export interface CallFlags extends RemoteFlags {
  readonly param?: readonly string[]
  readonly stream?: boolean
  readonly out?: string
  readonly detach?: boolean
  readonly answer?: readonly string[]
}

/** Close it when the call is over. */
export class ShownCall {
  readonly output: CallOutput
  /** Aborts as the session's does, and when nobody reads the output any more. */
  readonly signal: AbortSignal
  readonly #given: string[]
  readonly #closed = new AbortController()
  #isAsked = false

  constructor({ flags, isJson, signal }: Session<CallFlags>) {
    this.output = new CallOutput({
      form: !isJson ? 'text' : flags.stream === true ? 'lines' : 'json',
      out: flags.out,
    })
    this.signal = AbortSignal.any([signal, this.#closed.signal])
    this.#given = [...(flags.answer ?? [])]
    process.on('SIGPIPE', this.#onClosed)
  }

  /** Whoever read the output has what they wanted. */
  get isLeft(): boolean {
    return this.#closed.signal.aborted
  }

  /** Asks whoever sits there. Throws `unsupported_operation` where nobody does. */
  readonly ask = async (question: Question): Promise<Json> => {
    this.#isAsked = true
    const { signal } = this
    const reply = await answer(question, { given: this.#given, onQuestion: () => this.output.endLine(), signal })
    this.#isAsked = false
    return reply
  }

  /** Whether a question waits for its answer, or found nobody to give one. */
  get isAsked(): boolean {
    return this.#isAsked
  }

  close(): void {
    process.off('SIGPIPE', this.#onClosed)
  }

  readonly #onClosed = (): void => {
    this.#closed.abort(new ConvokeError('canceled', 'Nobody reads the output any more.'))
  }
}
