/** What takes answers in: whole texts, bodies that are read piece by piece, and bodies that nobody wants. */
import { promisify } from 'node:util'
import { brotliDecompress, unzip } from 'node:zlib'
import { ConvokeError } from './errors.ts'
import type { Exchange, ResponseHeaders, Sink } from './guarded-exchange.ts'
import { NetworkError } from './network-error.ts'

/** The limit of a text that names none of its own. */
const defaultMaxBytes = 16 * 1024 * 1024
const defaultIdleTimeoutMs = 30_000
/** How much of a body waits for its reader before the peer is made to wait. */
const maxBufferedBytes = 64 * 1024
/** How much of an unwanted body is read to keep its connection; one that is longer costs the connection. */
const maxUnwantedBytes = 64 * 1024

export interface Answer {
  readonly status: number
  readonly headers: ResponseHeaders
  /** Where it came from, after redirects. */
  readonly url: string
}

/** The body of an answer, read once. Whoever opened it reads it to its end or cancels it. */
export interface BodyStream extends AsyncIterable<Uint8Array> {
  /** Ends the reading and the connection, if the answer is not complete. Iterations end as if the body did. */
  cancel(): void
  /**
   * All that is left, decompressed, as text. Throws `too_large` beyond `maxBytes`, and `network` when nothing comes for
   * `idleTimeoutMs`. Default: 30,000.
   */
  text(maxBytes: number, idleTimeoutMs?: number): Promise<string>
  /** {@link text}, as it is. */
  bytes(maxBytes: number, idleTimeoutMs?: number): Promise<Buffer>
}

type Resolve<Value> = (value: Value | Promise<Value>) => void
type Reject = (error: ConvokeError) => void

const nothingYet: Answer = { status: 0, headers: {}, url: '' }

/** Collects the body as text. */
export class TextSink implements Sink {
  readonly #maxBytes: number
  readonly #resolve: Resolve<Answer & { text: string }>
  readonly #reject: Reject
  readonly #chunks: Buffer[] = []
  #bytes = 0
  #exchange: Exchange | undefined
  #answer = nothingYet

  constructor(maxBytes: number | undefined, resolve: Resolve<Answer & { text: string }>, reject: Reject) {
    this.#maxBytes = maxBytes ?? defaultMaxBytes
    this.#resolve = resolve
    this.#reject = reject
  }

  start(exchange: Exchange, status: number, headers: ResponseHeaders): void {
    this.#exchange = exchange
    this.#answer = { status, headers, url: exchange.target.href }
    if (Number(headers['content-length']) > this.#maxBytes) exchange.abort(tooLarge(this.#maxBytes))
  }

  data(chunk: Buffer): void {
    this.#bytes += chunk.length
    if (this.#bytes > this.#maxBytes) this.#exchange?.abort(tooLarge(this.#maxBytes))
    else this.#chunks.push(chunk)
  }

  end(): void {
    const { status, headers, url } = this.#answer
    const bytes = join(this.#chunks)
    const encoding = headers['content-encoding']
    if (encoding === undefined) this.#resolve({ status, headers, url, text: toText(bytes) })
    else {
      const decoded = decode(bytes, encoding, this.#maxBytes).then(toText)
      this.#resolve(decoded.then((text) => ({ status, headers, url, text })))
    }
  }

  fail(error: ConvokeError): void {
    this.#chunks.length = 0
    this.#reject(error)
  }
}

/** Throws the body away. */
export class UnwantedSink implements Sink {
  readonly #resolve: Resolve<Answer>
  readonly #reject: Reject
  #answer = nothingYet
  #exchange: Exchange | undefined
  #bytes = 0

  constructor(resolve: Resolve<Answer>, reject: Reject) {
    this.#resolve = resolve
    this.#reject = reject
  }

  start(exchange: Exchange, status: number, headers: ResponseHeaders): void {
    this.#exchange = exchange
    this.#answer = { status, headers, url: exchange.target.href }
  }

  data(chunk: Buffer): void {
    this.#bytes += chunk.length
    if (this.#bytes <= maxUnwantedBytes) return
    this.end()
    this.#exchange?.abort(tooLarge(maxUnwantedBytes))
  }

  end(): void {
    this.#resolve(this.#answer)
  }

  fail(error: ConvokeError): void {
    this.#reject(error)
  }
}

/** Gives the body to a reader, at the reader's pace. */
export class BodySink implements Sink, BodyStream, AsyncIterator<Buffer, undefined> {
  readonly #resolve: Resolve<Answer & { body: BodyStream }>
  readonly #reject: Reject
  #chunks: Buffer[] = []
  #bytes = 0
  #exchange: Exchange | undefined
  #encoding: string | string[] | undefined
  #isPaused = false
  #isOver = false
  #failure: ConvokeError | undefined
  #wake: (() => void) | undefined

  constructor(resolve: Resolve<Answer & { body: BodyStream }>, reject: Reject) {
    this.#resolve = resolve
    this.#reject = reject
  }

  start(exchange: Exchange, status: number, headers: ResponseHeaders): void {
    this.#exchange = exchange
    this.#encoding = headers['content-encoding']
    exchange.endTimeout()
    this.#resolve({ status, headers, url: exchange.target.href, body: this })
  }

  data(chunk: Buffer): void {
    this.#chunks.push(chunk)
    this.#bytes += chunk.length
    if (this.#bytes >= maxBufferedBytes && !this.#isPaused) {
      this.#isPaused = true
      this.#exchange?.pause()
    }
    this.#wakeReader()
  }

  end(): void {
    this.#isOver = true
    this.#wakeReader()
  }

  fail(error: ConvokeError): void {
    if (this.#exchange === undefined) return this.#reject(error)
    // What came before a cut is the reader's; who aborts wants no more of it.
    if (!(error instanceof NetworkError)) this.#chunks = []
    this.#isOver = true
    this.#failure ??= error
    this.#wakeReader()
  }

  /** All that came since the last time, as one chunk: a slow reader pays for few of them. */
  async next(): Promise<IteratorResult<Buffer, undefined>> {
    if (this.#chunks.length === 0 && !this.#isOver) {
      await new Promise<void>((resolve) => {
        this.#wake = resolve
      })
    }
    if (this.#chunks.length === 0) {
      if (this.#failure !== undefined) throw this.#failure
      return { value: undefined, done: true }
    }
    const value = join(this.#chunks)
    this.#chunks = []
    this.#bytes = 0
    if (this.#isPaused) {
      this.#isPaused = false
      this.#exchange?.resume()
    }
    return { value, done: false }
  }

  return(): Promise<IteratorResult<Buffer, undefined>> {
    this.cancel()
    return Promise.resolve({ value: undefined, done: true })
  }

  [Symbol.asyncIterator](): this {
    return this
  }

  cancel(): void {
    this.#exchange?.abort(new ConvokeError('canceled', 'The reader left.'))
    this.#chunks = []
    this.#isOver = true
    this.#failure = undefined
    this.#wakeReader()
  }

  async text(maxBytes: number, idleTimeoutMs?: number): Promise<string> {
    return toText(await this.bytes(maxBytes, idleTimeoutMs))
  }

  async bytes(maxBytes: number, idleTimeoutMs = defaultIdleTimeoutMs): Promise<Buffer> {
    const chunks: Buffer[] = []
    let bytes = 0
    const timer = setTimeout(() => {
      this.#exchange?.abort(new ConvokeError('network', `The answer fell silent for ${idleTimeoutMs} ms.`))
    }, idleTimeoutMs)
    try {
      for await (const chunk of this) {
        timer.refresh()
        bytes += chunk.length
        if (bytes > maxBytes) throw tooLarge(maxBytes)
        chunks.push(chunk)
      }
    } finally {
      clearTimeout(timer)
    }
    return this.#encoding === undefined ? join(chunks) : decode(join(chunks), this.#encoding, maxBytes)
  }

  #wakeReader(): void {
    this.#wake?.()
    this.#wake = undefined
  }
}

function tooLarge(maxBytes: number): ConvokeError {
  return new ConvokeError('too_large', `The answer is larger than ${maxBytes} bytes.`)
}

function join(chunks: readonly Buffer[]): Buffer {
  const [first] = chunks
  return first !== undefined && chunks.length === 1 ? first : Buffer.concat(chunks)
}

/** UTF-8; some servers put a byte order mark in front, which JSON forbids. */
function toText(bytes: Buffer): string {
  const hasMark = bytes[0] === 0xef && bytes[1] === 0xbb && bytes[2] === 0xbf
  return bytes.toString('utf8', hasMark ? 3 : 0)
}

type Decoder = (bytes: Buffer, options: { maxOutputLength: number }) => Promise<Buffer>

const decoders: ReadonlyMap<string, Decoder> = new Map<string, Decoder>([
  ['gzip', promisify(unzip)],
  ['x-gzip', promisify(unzip)],
  ['deflate', promisify(unzip)],
  ['br', promisify(brotliDecompress)],
  ['identity', (bytes) => Promise.resolve(bytes)],
])

/** Decompresses; the limit is one of what comes out, so that a small bomb stays small. */
async function decode(bytes: Buffer, encoding: string | string[], maxBytes: number): Promise<Buffer> {
  const decoder = decoders.get(String(encoding).trim().toLowerCase())
  if (decoder === undefined) {
    const text = 'The answer is compressed in a way that this node does not know.'
    throw new NetworkError('other', text, { sent: true, retryable: false })
  }
  if (bytes.length === 0) return bytes
  try {
    return await decoder(bytes, { maxOutputLength: maxBytes })
  } catch (cause) {
    if (cause instanceof RangeError) throw tooLarge(maxBytes)
    throw new NetworkError('other', 'The answer could not be decompressed.', { sent: true, cause })
  }
}
