/**
 * Questions of an MCP server (`elicitation/create`, `sampling/createMessage`), asked of whoever made the call that they belong to.
 *
 * The protocol does not say which call that is. Over streamable HTTP it shows in the stream that brought the question.
 * On a pipe, and over the old SSE, it is the one call under way; with several, the question waits until the others have
 * ended, and new calls wait behind it. Where that takes too long, as many questions wait as calls, or a call was stopped
 * that may have asked, the question is cancelled: to ask the wrong caller would tell one of the other's business.
 */
import {
  ErrorCode,
  McpError,
  type CreateMessageRequest,
  type CreateMessageResult,
  type ElicitRequest,
  type ElicitResult,
} from '@modelcontextprotocol/sdk/types.js'
import { abortReason, onAbort } from '../base/abort.ts'
import { ConvokeError } from '../base/errors.ts'
import { isObject, type Json, type JsonObject } from '../base/json.ts'
import type { Logger } from '../base/logger.ts'
import { promptOf, sampledSchema } from '../protocol/sampling.ts'
import { cleanSchema, cleanText } from '../tools/foreign.ts'
import type { JsonSchema, ToolContext } from '../tools/tool.ts'
import { clip } from '../tools/value.ts'

/** A call under way, as far as what the server says to its caller matters. */
export type Asked = Pick<ToolContext, 'ask' | 'notice'>

/** How long a question waits for the other calls to end, in milliseconds. */
const patienceMs = 10_000
/** How long after a call was stopped a question may still be its. */
const echoMs = 10_000
const maxMessageLength = 4_000
/** Largest question for a language model, as JSON in characters. It stays in the history of its task. */
const maxSamplingChars = 256 * 1024
/** How the protocol's own examples say that a user refused. */
const refusedCode = -1
const maxUrlLength = 4_000

export class Questions {
  readonly #log: Logger
  readonly #server: string
  readonly #calls = new Set<Asked>()
  readonly #waiting = new Set<() => void>()
  #held: (() => void)[] = []
  #lastStop = -Infinity

  constructor(server: string, log: Logger) {
    this.#server = server
    this.#log = log
  }

  /** How many calls are under way. */
  get calls(): number {
    return this.#calls.size
  }

  /** The one call under way; undefined where there are others, or a call was stopped that may still have a say. */
  get only(): Asked | undefined {
    if (this.#isUnsure()) return undefined
    const [only] = this.#calls
    return this.#calls.size > 1 ? undefined : only
  }

  /** A promise where a new call has to wait, because a question looks for its own. An abort ends the wait. */
  free(signal: AbortSignal | undefined): Promise<void> | undefined {
    if (this.#waiting.size === 0) return undefined
    return new Promise<void>((resolve) => {
      const stopListening = signal === undefined ? undefined : onAbort(signal, resolve)
      this.#held.push(() => {
        stopListening?.()
        resolve()
      })
    }).then(() => (signal?.aborted === true ? undefined : this.free(signal)))
  }

  begin(call: Asked): void {
    this.#calls.add(call)
  }

  /** A call ends; `isAnswered` where the server has said so, too. */
  end(call: Asked, isAnswered: boolean): void {
    if (!this.#calls.delete(call)) return
    if (!isAnswered) this.#lastStop = performance.now()
    for (const look of [...this.#waiting]) look()
  }

  /** Answers a question. `asker` is its call where the transport knows it; `signal` aborts when the server takes it back. */
  async answer({ params }: ElicitRequest, asker: Asked | undefined, signal: AbortSignal): Promise<ElicitResult> {
    const call = asker ?? (await this.#findAsker())
    if (signal.aborted || call === undefined) {
      if (!signal.aborted) this.#warn()
      return { action: 'cancel' }
    }
    const message = clip(cleanText(params.message), maxMessageLength)
    const isVisit = params.mode === 'url'
    const question = isVisit
      ? { message: `${message}\nOpen ${clip(cleanText(params.url), maxUrlLength)} and say when you are done.` }
      : { message, schema: cleanSchema(params.requestedSchema as JsonSchema) }
    try {
      return toElicitResult(await unlessTakenBack(call.ask(question), signal), isVisit)
    } catch (error) {
      const { code } = ConvokeError.from(error)
      // Nobody can be asked, or the call is over: neither says anything about the question.
      if (code !== 'rejected') return { action: 'cancel' }
      return { action: 'decline' }
    }
  }

  /** Asks for the words of a language model. Throws McpError where there are none. */
  async sample(
    { params }: CreateMessageRequest,
    asker: Asked | undefined,
    signal: AbortSignal,
  ): Promise<CreateMessageResult> {
    // What stands there is between this server and us.
    const { _meta, task: _task, ...rest } = params
    const sampling = rest as JsonObject
    if (JSON.stringify(sampling).length > maxSamplingChars)
      throw new McpError(ErrorCode.InvalidParams, `The request is longer than ${maxSamplingChars} characters.`)
    const call = asker ?? (await this.#findAsker())
    if (signal.aborted || call === undefined) {
      if (!signal.aborted) this.#warn()
      throw new McpError(refusedCode, 'The request was cancelled: it is not known which call it belongs to.')
    }
    const words = clip(cleanText(promptOf(sampling)), maxMessageLength)
    const message = words === '' ? 'A language model is asked, without words.' : words
    let answer: Json
    try {
      // A text that somebody wrote in place of a model is one of a model by now.
      answer = await unlessTakenBack(call.ask({ message, schema: sampledSchema, sampling }), signal)
    } catch (error) {
      const { code } = ConvokeError.from(error)
      const why = code === 'rejected' ? 'The user rejected the request.' : 'No model could be asked.'
      throw new McpError(refusedCode, why)
    }
    if (!isObject(answer) || answer['content'] === undefined)
      throw new McpError(refusedCode, 'The answer is no message of a model.')
    // The SDK holds it against its own schema before it leaves.
    return answer as CreateMessageResult
  }

  #warn(): void {
    this.#log.warn(
      { server: this.#server, calls: this.#calls.size },
      'A question of an MCP server was cancelled: it could belong to several calls, or to none.',
    )
  }

  async #findAsker(): Promise<Asked | undefined> {
    if (this.#calls.size <= 1 || this.#isUnsure()) return this.only
    const about = { server: this.#server, calls: this.#calls.size }
    this.#log.debug(about, 'A question of an MCP server waits until it is clear whose it is.')
    return await this.#alone()
  }

  #isUnsure(): boolean {
    return performance.now() - this.#lastStop < echoMs
  }

  /** Resolves with the one call that is left, or with undefined where that is not to be expected. */
  #alone(): Promise<Asked | undefined> {
    return new Promise((resolve) => {
      const done = (): void => {
        clearTimeout(timer)
        this.#waiting.delete(look)
        // Before the calls that were held begin.
        resolve(this.only)
        if (this.#waiting.size === 0) for (const start of this.#held.splice(0)) start()
      }
      const look = (): void => {
        if (this.#calls.size <= 1 || this.#isUnsure()) done()
      }
      const timer = setTimeout(done, patienceMs)
      timer.unref()
      this.#waiting.add(look)
      // Each of these calls waits for an answer, and none will end.
      if (this.#waiting.size >= this.#calls.size) done()
    })
  }
}

function unlessTakenBack(answer: Promise<Json>, signal: AbortSignal): Promise<Json> {
  return new Promise((resolve, reject) => {
    const stopListening = onAbort(signal, () => reject(abortReason(signal)))
    answer.then(resolve, reject).finally(stopListening)
  })
}

function toElicitResult(answer: Json, isVisit: boolean): ElicitResult {
  if (isObject(answer) && Object.keys(answer).length === 1) {
    const { action } = answer
    if (action === 'decline' || action === 'cancel') return { action }
  }
  if (isVisit) return { action: 'accept' }
  // The schema of a question is that of an object, so anything else is no answer to it.
  return isObject(answer)
    ? { action: 'accept', content: answer as NonNullable<ElicitResult['content']> }
    : { action: 'cancel' }
}
