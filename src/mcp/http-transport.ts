/**
 * MCP servers behind a URL: the SDK's transports over our guarded fetch. Each call has a stream of its own, so that it is
 * known which call a question of the server belongs to, and when an answer can no longer come.
 */
import { setTimeout as wait } from 'node:timers/promises'
import { SSEClientTransport, SseError } from '@modelcontextprotocol/sdk/client/sse.js'
import { StreamableHTTPClientTransport, StreamableHTTPError } from '@modelcontextprotocol/sdk/client/streamableHttp.js'
import type { FetchLike, Transport } from '@modelcontextprotocol/sdk/shared/transport.js'
import { ErrorCode, type JSONRPCMessage, type RequestId } from '@modelcontextprotocol/sdk/types.js'
import { ConvokeError } from '../base/errors.ts'
import type { BodyStream, GuardedFetch } from '../base/guarded-fetch.ts'
import { isCallId } from './calls.ts'
import type { HttpSettings } from './server-options.ts'

/** Largest message from a server, in bytes. */
const maxMessageBytes = 64 * 1024 * 1024
/** How much of an answer that tells a failure is read. */
const maxErrorBytes = 64 * 1024
/** A server may say how soon its stream is to be opened again; no sooner than this. */
const fewestReopenMs = 500
/** How long a stream may take to end behind the answer of its call. */
const lingerMs = 1_000
/** How long the end of an abandoned session may take. */
const terminateMs = 2_000

/** Streamable HTTP. `onLost` hears once that the server is gone or has forgotten the session. */
export class HttpTransport implements Transport {
  onclose?: () => void
  onerror?: (error: Error) => void
  onmessage?: (message: JSONRPCMessage) => void
  readonly #onLost: (error: Error) => void
  readonly #url: URL
  readonly #fetch: FetchLike
  readonly #main: StreamableHTTPClientTransport
  /** The streams of calls under way, by the ids of their requests. */
  readonly #calls = new Map<RequestId, CallStream>()
  /** Those, and the streams of calls that have ended a moment ago. */
  readonly #streams = new Set<CallStream>()
  /** By which call's stream a request of the server came. */
  readonly #askers = new Map<RequestId, RequestId>()
  #version: string | undefined
  #isClosed = false

  constructor({ url, headers }: HttpSettings, guarded: GuardedFetch, onLost: (error: Error) => void) {
    this.#onLost = onLost
    this.#url = new URL(url)
    this.#fetch = toFetch(guarded, this.#url.origin, headers)
    this.#main = new StreamableHTTPClientTransport(this.#url, { fetch: this.#fetch })
    this.#main.onmessage = (message) => this.onmessage?.(message)
    this.#main.onerror = (error) => {
      this.onerror?.(error)
      if (isGivenUp(error)) this.#onLost(error)
    }
  }

  get sessionId(): string | undefined {
    return this.#main.sessionId
  }

  setProtocolVersion(version: string): void {
    this.#version = version
    this.#main.setProtocolVersion(version)
  }

  start(): Promise<void> {
    return this.#main.start()
  }

  /** The call whose stream brought a request of the server; undefined where it came by the common stream. */
  askerOf(request: RequestId): RequestId | undefined {
    return this.#askers.get(request)
  }

  /** Forgets a call, and ends its stream. */
  endCall(id: RequestId): void {
    this.#calls.get(id)?.end()
    this.#calls.delete(id)
    for (const [request, asker] of this.#askers) if (asker === id) this.#askers.delete(request)
  }

  /** A call gets a stream of its own, which {@link endCall} ends. */
  async send(message: JSONRPCMessage): Promise<void> {
    if (!('id' in message) || !('method' in message) || !isCallId(message.id)) return await this.#main.send(message)
    const { id } = message
    const stream = new CallStream(id, this.#url, this.#fetch, this.#main.sessionId, this.#version)
    this.#calls.set(id, stream)
    this.#streams.add(stream)
    stream.onGone = () => this.#streams.delete(stream)
    stream.onMessage = (incoming) => {
      if ('method' in incoming && 'id' in incoming) this.#askers.set(incoming.id, id)
      this.onmessage?.(incoming)
    }
    stream.onError = (error) => this.onerror?.(error)
    await stream.send(message)
  }

  /** Tells the server that the session is over, if it takes longer than two seconds in vain. Never rejects. */
  async terminate(): Promise<void> {
    if (this.#main.sessionId === undefined) return
    const over = new AbortController()
    try {
      await Promise.race([this.#main.terminateSession(), wait(terminateMs, undefined, { signal: over.signal })])
    } catch {
      // It has forgotten it already, or is gone.
    } finally {
      over.abort()
    }
  }

  async close(): Promise<void> {
    if (this.#isClosed) return
    this.#isClosed = true
    for (const stream of [...this.#streams]) stream.close()
    await this.#main.close()
    this.onclose?.()
  }
}

/** The stream of one call: it ends with the answer, or with an answer of our own that says that none can come. */
class CallStream {
  onMessage: (message: JSONRPCMessage) => void = () => {}
  onError: (error: Error) => void = () => {}
  /** Hears that nothing of it is left. */
  onGone: () => void = () => {}
  readonly #id: RequestId
  readonly #transport: StreamableHTTPClientTransport
  #isAnswered = false
  /** There is a body that has not ended. */
  #isOpen = false
  /** The server has given the stream a position: the SDK opens it again where it is cut. */
  #isResumable = false
  #lingering: NodeJS.Timeout | undefined

  constructor(id: RequestId, url: URL, fetch: FetchLike, sessionId: string | undefined, version: string | undefined) {
    this.#id = id
    const watched: FetchLike = async (target, init) => {
      const response = await fetch(target, init)
      if (response.body === null || !isEventStream(response)) return response
      this.#isOpen = true
      return new Response(
        whenRead(response.body, () => this.#streamEnded()),
        response,
      )
    }
    this.#transport = new StreamableHTTPClientTransport(url, {
      fetch: watched,
      ...(sessionId === undefined ? {} : { sessionId }),
    })
    if (version !== undefined) this.#transport.setProtocolVersion(version)
    this.#transport.onmessage = (message) => {
      if (!('method' in message) && 'id' in message && message.id === id) this.#isAnswered = true
      this.onMessage(message)
    }
    this.#transport.onerror = (error) => {
      this.onError(error)
      if (isGivenUp(error)) this.#lose()
    }
  }

  async send(message: JSONRPCMessage): Promise<void> {
    await this.#transport.start()
    await this.#transport.send(message, {
      onresumptiontoken: () => {
        this.#isResumable = true
      },
    })
  }

  /** The call is over. Behind its answer the server ends the stream; to cut it would cost the connection. */
  end(): void {
    if (this.#isAnswered && this.#isOpen) this.#lingering = setTimeout(() => this.close(), lingerMs).unref()
    else this.close()
  }

  close(): void {
    this.#isAnswered = true
    clearTimeout(this.#lingering)
    void this.#transport.close()
    this.onGone()
  }

  #streamEnded(): void {
    this.#isOpen = false
    if (this.#lingering !== undefined) return this.close()
    // What was read last is still on its way through the SDK's streams, which take turns but no timers.
    setImmediate(() => {
      if (!this.#isResumable) this.#lose()
    })
  }

  #lose(): void {
    if (this.#isAnswered) return
    this.#isAnswered = true
    const error = { code: ErrorCode.ConnectionClosed, message: 'Connection closed' }
    this.onMessage({ jsonrpc: '2.0', id: this.#id, error })
  }
}

/** The SDK's words, which have no code: it tried to open a stream again as often as it does. */
function isGivenUp(error: Error): boolean {
  return error.message.startsWith('Maximum reconnection attempts')
}

/** The transport of servers from before streamable HTTP. `onLost` hears that its one stream is gone. */
export function createSseTransport(
  { url, headers }: HttpSettings,
  guarded: GuardedFetch,
  onLost: (error: Error) => void,
): Transport {
  const target = new URL(url)
  // oxlint-disable-next-line typescript/no-deprecated -- there are servers that know no other
  const transport = new SSEClientTransport(target, { fetch: toFetch(guarded, target.origin, headers) })
  transport.onerror = (error) => {
    // The stream comes back by itself, but as another session, of which nobody has told the server anything.
    if (error instanceof SseError) onLost(error)
  }
  return transport
}

/** The status of an answer that a transport took for a failure. */
export function statusOf(error: unknown): number | undefined {
  const code = error instanceof StreamableHTTPError || error instanceof SseError ? error.code : undefined
  if (code !== undefined && code >= 100) return code
  // The old transport says it in words only.
  const [, told] = (error instanceof Error && /\(HTTP (\d{3})\)/.exec(error.message)) || []
  return told === undefined ? undefined : Number(told)
}

/** A guarded fetch as the SDK calls it. The configured headers go to their origin and nowhere else. */
function toFetch(guarded: GuardedFetch, home: string, headers: Readonly<Record<string, string>>): FetchLike {
  let lastOpened = 0
  return async (input, init = {}) => {
    const url = new URL(input)
    const signal = init.signal ?? null
    const method = (init.method ?? 'GET') as 'GET' | 'POST' | 'DELETE'
    if (method === 'GET') {
      const pauseMs = lastOpened + fewestReopenMs - performance.now()
      if (lastOpened > 0 && pauseMs > 0) await wait(pauseMs, undefined, signal === null ? {} : { signal })
      lastOpened = performance.now()
    }
    const own = Object.fromEntries(new Headers(init.headers).entries())
    const answer = await guarded.open(url.href, {
      method,
      headers: { ...(url.origin === home ? headers : {}), ...own },
      ...(typeof init.body === 'string' ? { body: init.body } : {}),
      ...(signal === null ? {} : { signal }),
    })
    const given = Object.entries(answer.headers).flatMap(([name, value]) =>
      value === undefined ? [] : [[name, Array.isArray(value) ? value.join(', ') : value] as [string, string]],
    )
    const { status } = answer
    const isEmpty = status === 204 || status === 205 || status === 304
    if (isEmpty) answer.body.cancel()
    const response = { status, headers: given }
    if (isEmpty) return new Response(null, response)
    const isStream = isEventStream({ headers: new Headers(given) })
    const maxBytes = status >= 300 ? maxErrorBytes : maxMessageBytes
    return new Response(toWebStream(answer.body, maxBytes, isStream), response)
  }
}

function isEventStream({ headers }: Pick<Response, 'headers'>): boolean {
  return headers.get('content-type')?.startsWith('text/event-stream') === true
}

/** The body at the reader's pace. Bounded as a whole; of an event stream, each event. */
function toWebStream(body: BodyStream, maxBytes: number, isStream: boolean): ReadableStream<Uint8Array> {
  const chunks = body[Symbol.asyncIterator]()
  let bytes = 0
  return new ReadableStream<Uint8Array>(
    {
      async pull(controller) {
        const step = await chunks.next()
        if (step.done === true) return controller.close()
        const chunk = step.value
        bytes = isStream ? bytesBehindEvents(bytes, chunk) : bytes + chunk.length
        if (bytes > maxBytes) {
          body.cancel()
          throw new ConvokeError('too_large', `The MCP server sent a message of more than ${maxBytes} bytes.`)
        }
        controller.enqueue(chunk)
      },
      cancel: () => body.cancel(),
    },
    { highWaterMark: 0 },
  )
}

const feeds = Buffer.from('\n\n')
const returns = Buffer.from('\r\n\r\n')

/** How much of a stream belongs to an event that is not complete. */
function bytesBehindEvents(before: number, chunk: Uint8Array): number {
  const buffer = Buffer.from(chunk.buffer, chunk.byteOffset, chunk.byteLength)
  const end = Math.max(buffer.lastIndexOf(feeds), buffer.lastIndexOf(returns))
  return end === -1 ? before + chunk.length : chunk.length - end
}

/** The same stream; tells when it has ended, cleanly or not. */
function whenRead(stream: ReadableStream<Uint8Array>, ended: () => void): ReadableStream<Uint8Array> {
  const reader = stream.getReader()
  return new ReadableStream<Uint8Array>(
    {
      async pull(controller) {
        try {
          const { done, value } = await reader.read()
          if (!done) return controller.enqueue(value)
          controller.close()
        } catch (error) {
          controller.error(error)
        }
        ended()
      },
      cancel: (reason) => reader.cancel(reason),
    },
    { highWaterMark: 0 },
  )
}
