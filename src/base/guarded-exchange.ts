/**
 * One request and its answer, as undici's dispatch tells of it. This is the cheapest way through undici: no streams, no
 * signals made for timeouts, one timer and one listener that go when the answer has come.
 */
import type { Dispatcher } from 'undici'
import { abortReason, onAbort } from './abort.ts'
import { ConvokeError } from './errors.ts'
import { isTlsError } from './guarded-connect.ts'
import { NetworkError } from './network-error.ts'
import { maxTimerMs } from './timer.ts'

export type ResponseHeaders = Readonly<Record<string, string | string[] | undefined>>

/** Takes an answer in. `start` comes first and at most once, `end` or `fail` last and exactly once. */
export interface Sink {
  start(exchange: Exchange, status: number, headers: ResponseHeaders): void
  data(chunk: Buffer): void
  end(): void
  fail(error: ConvokeError): void
}

/** A URL in the parts that a request needs. Taken apart once: URL objects make theirs anew each time they are asked. */
export interface Target {
  readonly href: string
  readonly protocol: string
  readonly origin: string
  /** With the query. */
  readonly path: string
  /** `host:port`, for messages. */
  readonly where: string
}

export interface ExchangeRequest {
  readonly method: 'GET' | 'HEAD' | 'POST' | 'PUT' | 'PATCH' | 'DELETE'
  readonly headers: Readonly<Record<string, string>>
  readonly body?: string
  /** Up to the end of the body, or until {@link Exchange.endTimeout}. */
  readonly timeoutMs?: number
  readonly signal?: AbortSignal
  /** Hears that the first byte goes out now. */
  readonly onSent?: () => void
}

/** One request under way. It ends once: with its answer, with a failure, or with {@link Exchange.abort}. */
export class Exchange implements Dispatcher.DispatchHandler {
  readonly target: Target
  readonly #sink: Sink
  readonly #live: Exchange[]
  #place = 0
  #controller: Dispatcher.DispatchController | undefined
  #timer: NodeJS.Timeout | undefined
  #stopListening: (() => void) | undefined
  #isOver = false
  #onSent: (() => void) | undefined

  /**
   * `live` holds the exchange as long as it is under way. It is an array in no order because a Set that much goes
   * through leaves tables behind that refer to each other and to what was in them: a tenth of the CPU time of small
   * requests went into the garbage collection of that.
   */
  constructor(live: Exchange[], target: Target, sink: Sink) {
    this.target = target
    this.#sink = sink
    this.#live = live
  }

  /** Sends the request; once. */
  begin(dispatcher: Dispatcher, { method, headers, body, timeoutMs, signal, onSent }: ExchangeRequest): void {
    this.#place = this.#live.push(this) - 1
    if (signal !== undefined) {
      if (signal.aborted) return this.abort(abortReason(signal))
      this.#stopListening = onAbort(signal, () => this.abort(abortReason(signal)))
    }
    if (timeoutMs !== undefined) this.#timer = setTimeout(onTimeout, Math.min(timeoutMs, maxTimerMs), this, timeoutMs)
    this.#onSent = onSent
    const { origin, path } = this.target
    dispatcher.dispatch({ origin, path, method, headers, body: body ?? null }, this)
  }

  /** The body may take as long as it likes. */
  endTimeout(): void {
    clearTimeout(this.#timer)
  }

  /** Takes no more for now. What is on its way still comes. */
  pause(): void {
    this.#controller?.pause()
  }

  resume(): void {
    this.#controller?.resume()
  }

  /** Ends the exchange and its connection; the sink fails with the error. Nothing once it is over. */
  abort(error: ConvokeError): void {
    if (this.#isOver) return
    this.#settle()
    this.#controller?.abort(error)
    this.#sink.fail(error)
  }

  /** Ends the exchange because the node closes. */
  close(): void {
    this.abort(this.#closed())
  }

  onRequestStart(controller: Dispatcher.DispatchController): void {
    this.#controller = controller
    // It was given up while it waited for a connection.
    if (this.#isOver) controller.abort(new Error('The request was given up.'))
    else this.#onSent?.()
  }

  onResponseStart(_controller: Dispatcher.DispatchController, status: number, headers: ResponseHeaders): void {
    // 103 and its like come before the answer.
    if (status >= 200 && !this.#isOver) this.#sink.start(this, status, headers)
  }

  onResponseData(_controller: Dispatcher.DispatchController, chunk: Buffer): void {
    if (!this.#isOver) this.#sink.data(chunk)
  }

  onResponseEnd(): void {
    if (this.#isOver) return
    this.#settle()
    this.#sink.end()
  }

  onResponseError(_controller: Dispatcher.DispatchController, error: Error): void {
    if (this.#isOver) return
    this.#settle()
    this.#sink.fail(this.#toOurs(error))
  }

  #settle(): void {
    this.#isOver = true
    clearTimeout(this.#timer)
    this.#stopListening?.()
    const last = this.#live.pop()
    if (last === undefined || last === this) return
    last.#place = this.#place
    this.#live[last.#place] = last
  }

  #closed(cause?: Error): NetworkError {
    return new NetworkError('closed', 'The node closed its connections.', { sent: this.#isSent, cause })
  }

  /** Right before the first byte is written, undici gives the controller. */
  get #isSent(): boolean {
    return this.#controller !== undefined
  }

  #toOurs(error: NodeJS.ErrnoException): ConvokeError {
    // Of the dial, or of a sink.
    if (error instanceof ConvokeError) return error
    const { code = '' } = error
    const { where } = this.target
    const because = { sent: this.#isSent, cause: error }
    switch (code) {
      case 'UND_ERR_DESTROYED':
      case 'UND_ERR_CLOSED':
        return this.#closed(error)
      case 'UND_ERR_SOCKET':
      case 'UND_ERR_RES_CONTENT_LENGTH_MISMATCH':
      case 'HPE_INVALID_EOF_STATE':
        return new NetworkError('closed', `${where} closed the connection before its answer was complete.`, because)
      case 'ECONNRESET':
      case 'EPIPE':
      case 'ETIMEDOUT':
        return new NetworkError('reset', `The connection to ${where} broke before the answer was complete.`, because)
    }
    if (isTlsError(code)) {
      return new NetworkError('tls', `${where} ended the TLS connection (${code}).`, { ...because, retryable: false })
    }
    if (code.startsWith('HPE_')) return new NetworkError('other', `${where} does not speak HTTP.`, because)
    return new NetworkError('other', `The request to ${where} failed${code === '' ? '' : ` (${code})`}.`, because)
  }
}

function onTimeout(exchange: Exchange, timeoutMs: number): void {
  exchange.abort(
    new ConvokeError('timeout', `The request to ${exchange.target.where} took longer than ${timeoutMs} ms.`),
  )
}
