/** The chunks of an answer as they come, whichever way the endpoint sends it. */
import { readEvents } from '../base/event-stream.ts'
import { ConvokeError } from '../base/errors.ts'
import type { Answer, BodyStream } from '../base/guarded-fetch.ts'
import { parseJson } from '../base/json.ts'

/** How large an answer may be with all that stands around it. */
export const maxAnswerBytes = 16 * 1024 * 1024
/** How large one event of its stream may be. */
const maxEventBytes = 4 * 1024 * 1024
/** What may come behind the end of a stream, and how long it is waited for, so that its connection can be used again. */
const maxTailBytes = 1024
const tailTimeoutMs = 1_000

/** How a stream ended: with `[DONE]`, or just so. `isStream` is false where what came was no stream of events at all. */
export interface StreamEnd {
  readonly isDone: boolean
  readonly isStream: boolean
}

/**
 * Yields each chunk of a stream, or the one completion. Reads at the reader's pace. Throws `parse_error` for a chunk that is
 * not JSON, `too_large`, `network` for silence, and what the body throws. Whoever leaves ends the request.
 */
export async function* readChunks(
  { headers, body }: Answer & { readonly body: BodyStream },
  idleTimeoutMs: number,
): AsyncGenerator<unknown, StreamEnd, void> {
  const type = String(headers['content-type'] ?? '').toLowerCase()
  if (!/json|html/.test(type)) {
    return yield* readStream(new LimitedBody(body), type.startsWith('text/event-stream'), idleTimeoutMs)
  }
  const text = await body.text(maxAnswerBytes, idleTimeoutMs)
  // Some gateways say so of a stream: https://github.com/openclaw/openclaw/pull/97454. Then it is told at once.
  if (/^\uFEFF?(?:data|event|id|retry)?:/.test(text)) return yield* readStream(pieceOf(text), true, idleTimeoutMs)
  yield parseJson(text)
  return { isDone: true, isStream: true }
}

async function* readStream(
  body: AsyncIterable<Uint8Array>,
  isDeclared: boolean,
  idleTimeoutMs: number,
): AsyncGenerator<unknown, StreamEnd, void> {
  let isStream = isDeclared
  for await (const batch of readEvents(body, { idleTimeoutMs, maxEventBytes })) {
    for (const { data } of batch) {
      isStream = true
      if (data.trim() === '[DONE]') {
        if (body instanceof LimitedBody) body.isDone = true
        return { isDone: true, isStream }
      }
      if (data !== '') yield parseJson(data)
    }
  }
  return { isDone: false, isStream }
}

async function* pieceOf(text: string): AsyncGenerator<Uint8Array, void, void> {
  yield Buffer.from(text)
}

/** A body up to its limit. One that is left when all of it was said ends by itself, so that its connection lives on. */
class LimitedBody implements AsyncIterable<Uint8Array>, AsyncIterator<Uint8Array, undefined> {
  isDone = false
  readonly #body: BodyStream
  readonly #pieces: AsyncIterator<Uint8Array>
  #bytes = 0

  constructor(body: BodyStream) {
    this.#body = body
    this.#pieces = body[Symbol.asyncIterator]()
  }

  async next(): Promise<IteratorResult<Uint8Array, undefined>> {
    const step = await this.#pieces.next()
    if (step.done === true) return { value: undefined, done: true }
    this.#bytes += step.value.length
    if (this.#bytes > maxAnswerBytes)
      throw new ConvokeError('too_large', `The answer is larger than ${maxAnswerBytes} bytes.`)
    return step
  }

  return(): Promise<IteratorResult<Uint8Array, undefined>> {
    // Fails for a tail that is too long or late, which costs the connection and nothing else.
    if (this.isDone) this.#body.text(maxTailBytes, tailTimeoutMs).catch(() => {})
    else this.#body.cancel()
    return Promise.resolve({ value: undefined, done: true })
  }

  [Symbol.asyncIterator](): this {
    return this
  }
}
