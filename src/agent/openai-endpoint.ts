/** An endpoint in OpenAI's manner: what it is sent, how long it may take, and what its failures mean. */
import { inspect } from 'node:util'
import { abortReason } from '../base/abort.ts'
import { namesPrivateAddress } from '../base/address.ts'
import { ConvokeError, type ErrorCode, type ErrorOptions } from '../base/errors.ts'
import { createGuardedFetch, type Answer, type BodyStream, type GuardedFetch } from '../base/guarded-fetch.ts'
import { isObject, type JsonObject } from '../base/json.ts'
import { NetworkError, type NetworkReason } from '../base/network-error.ts'
import { createRedactor } from '../base/redact.ts'
import { parseRetryAfter } from '../base/retry-after.ts'
import { stripControls } from '../base/text.ts'
import { clip, excerpt } from '../tools/value.ts'

export interface OpenAiEndpointOptions {
  /** Up to where `/chat/completions` goes, mostly `…/v1`; a query stays at the end. `user:password@` becomes Basic credentials. */
  readonly baseUrl: string
  /** Sent as `Authorization: Bearer`. */
  readonly apiKey?: string
  /** Further headers of each request, over those that it has by itself. */
  readonly headers?: Readonly<Record<string, string>>
  /** How long the endpoint may say nothing: before its first byte, and between two pieces. In milliseconds. Default: 300,000. */
  readonly timeoutMs?: number
  /** Whether the address may be one that is not public. Default: whether `baseUrl` itself names such an address. */
  readonly allowPrivate?: boolean
}

/** An answer that was not what was asked for. */
export interface Refusal {
  readonly status: number
  /** What it said, as it came; at most 64 KiB. */
  readonly said: string
  readonly error: ConvokeError
}

/** As long as Ollama gives itself to load a model; whoever leaves before makes it begin anew. */
const defaultTimeoutMs = 300_000
/** Of what an endpoint says of its failure. */
const maxSaidBytes = 64 * 1024
const maxExcerpt = 1000
/** How long the end of a failure's text is waited for. */
const saidTimeoutMs = 5_000

/** Messages name no address and nothing that the endpoint said: those who called may read them. The cause has both. */
export class OpenAiEndpoint {
  readonly timeoutMs: number
  readonly #base: URL
  /** Where requests go, without what may be secret. */
  readonly #shown: string
  readonly #headers: Readonly<Record<string, string>>
  readonly #redact: (text: string) => string
  readonly #fetch: GuardedFetch
  #isClosed = false

  /** `path` is where below `baseUrl` it is asked. Throws `config` for options that make no sense. Nothing is sent. */
  constructor(path: string, options: OpenAiEndpointOptions) {
    const { baseUrl, apiKey, headers = {}, timeoutMs = defaultTimeoutMs } = options
    this.#base = parseBase(baseUrl)
    checkOptions(options)
    this.timeoutMs = timeoutMs
    this.#shown = this.#base.origin + this.#base.pathname.replace(/\/$/, '') + path
    const basic = basicOf(this.#base)
    const bearer = apiKey === undefined || apiKey === '' ? basic : `Bearer ${apiKey}`
    this.#headers = {
      'content-type': 'application/json',
      ...(bearer === undefined ? {} : { authorization: bearer }),
      ...Object.fromEntries(Object.entries(headers).map(([name, value]) => [name.toLowerCase(), value])),
    }
    const { username, password, searchParams } = this.#base
    this.#redact = createRedactor([
      ...(apiKey === undefined ? [] : [apiKey]),
      ...(basic === undefined ? [] : [basic.slice('Basic '.length)]),
      ...[username, password].flatMap((part) => [part, decode(part)]),
      ...searchParams.values(),
      // A header may say its scheme before its secret.
      ...Object.values(headers).flatMap((value) => [value, ...value.split(' ').slice(1)]),
    ])
    const allowPrivate = options.allowPrivate ?? namesPrivateAddress(baseUrl)
    this.#fetch = createGuardedFetch({ allowPrivate })
  }

  /** The answer at its headers, whatever its status. Throws what {@link failure} makes of what went wrong before. */
  async post(
    body: JsonObject,
    accept: string,
    signal: AbortSignal | undefined,
  ): Promise<Answer & { readonly body: BodyStream }> {
    if (this.#isClosed) {
      throw new ConvokeError('model_unavailable', 'The connection to the model was closed.', { retryable: false })
    }
    try {
      return await this.#fetch.open(this.#shown + this.#base.search, {
        method: 'POST',
        headers: { accept, ...this.#headers },
        body: JSON.stringify(body),
        timeoutMs: this.timeoutMs,
        ...(signal === undefined ? {} : { signal }),
      })
    } catch (error) {
      throw this.failure(error, signal)
    }
  }

  /** What an answer that is no success means. Reads its body. */
  async refusal(answer: Answer & { readonly body: BodyStream }, signal: AbortSignal | undefined): Promise<Refusal> {
    // What it says is for the log alone; that it cannot be read takes nothing from the failure.
    const said = await answer.body.text(maxSaidBytes, Math.min(this.timeoutMs, saidTimeoutMs)).catch(() => '')
    if (signal?.aborted === true) throw abortReason(signal)
    const { status, headers } = answer
    return { status, said, error: this.#statusFailure(status, said, retryAfterOf(headers) ?? retryDelayIn(said)) }
  }

  /** What it means that an answer of status 200 tells of an error, in a stream or alone. */
  said(error: unknown): ConvokeError {
    const { status, words } = readError(error)
    const said = typeof error === 'string' ? error : JSON.stringify(error)
    if (status !== undefined && status >= 400) return this.#statusFailure(status, said)
    if (/rate.?limit|overload|unavailable|capacity/i.test(words)) return this.#statusFailure(503, said)
    if (/invalid_request|context_length/i.test(words)) return this.#statusFailure(400, said)
    const text =
      'The model endpoint broke its answer off with an error of its own. Try again; its words are in the log.'
    return this.#error('model_interrupted', text, said)
  }

  /** A failure on the way, as one of a model. Those that are ours already stay as they are. */
  failure(error: unknown, signal: AbortSignal | undefined): ConvokeError {
    if (signal?.aborted === true) return abortReason(signal)
    if (error instanceof NetworkError) return this.#networkFailure(error)
    if (!(error instanceof ConvokeError)) return ConvokeError.from(error)
    switch (error.code) {
      // The second is that of a body that fell silent.
      case 'timeout':
      case 'network':
        return this.#error(
          'model_timeout',
          `The model said nothing for ${this.timeoutMs} ms. Try again, or give the endpoint a longer timeoutMs.`,
          error,
        )
      case 'forbidden':
        return this.#error(
          'model_unavailable',
          "The model endpoint's address is not of the public internet, and may only be called with allowPrivate.",
          error,
          { retryable: false },
        )
      case 'too_large':
        return this.invalid('is larger than an answer may be', error)
      case 'parse_error':
        return this.foreign('is no JSON, or broken JSON', error)
      default:
        return error
    }
  }

  /** A `model_invalid` error: what is wrong with the model's answer. */
  invalid(clause: string, cause?: unknown): ConvokeError {
    return this.#error('model_invalid', `The model's answer ${clause}. Ask again, or use another model.`, cause)
  }

  /** A `model_invalid` error for what does not come from such an endpoint at all. */
  foreign(clause: string, cause?: unknown): ConvokeError {
    const text = `What the model endpoint answered ${clause}. Its baseUrl is to be that of an OpenAI-compatible API, which mostly ends in /v1.`
    return this.#error('model_invalid', text, cause)
  }

  /** A `model_interrupted` error: the answer ended before it was complete. */
  interrupted(cause?: unknown): ConvokeError {
    return this.#error('model_interrupted', "The model's answer was cut before it was complete. Try again.", cause)
  }

  /** Ends all requests and connections. */
  async close(): Promise<void> {
    this.#isClosed = true
    await this.#fetch.close()
  }

  #networkFailure(error: NetworkError): ConvokeError {
    const { reason, sent, retryable } = error
    if (this.#isClosed && reason === 'closed') {
      return this.#error('model_unavailable', 'The connection to the model was closed.', error, { retryable: false })
    }
    if (sent && (reason === 'reset' || reason === 'closed')) return this.interrupted(error)
    const text = `The model endpoint cannot be reached: ${unreachable[reason]}. Is the model server running, and its baseUrl right? The log has the address.`
    return this.#error('model_unavailable', text, error, { retryable })
  }

  #statusFailure(status: number, said: string, retryAfterMs?: number): ConvokeError {
    const later = retryAfterMs === undefined ? {} : { retryAfterMs }
    const when = retryAfterMs === undefined ? 'later' : `in ${Math.ceil(retryAfterMs / 1000)} s`
    if (/\bfailed_generation\b|tool_use_failed/.test(said)) {
      // Groq's, of what its model wrote: the next try is often right.
      const text =
        "The model's answer was dropped by its endpoint, which could not read it. Try again, or use another model."
      return this.#error('model_interrupted', text, said)
    }
    if (status === 429 && /insufficient_quota/.test(said)) {
      const text = 'The quota at the model endpoint is used up (429). It has to be raised there.'
      return this.#error('model_unavailable', text, said, { retryable: false })
    }
    if (status === 429)
      return this.#error(
        'model_unavailable',
        `The model endpoint is asked too much (429). Try again ${when}.`,
        said,
        later,
      )
    if (status >= 500 || status === 408 || status === 409 || status === 425) {
      const text = `The model endpoint cannot answer now (${status}). Try again ${when}; what it said is in the log.`
      return this.#error('model_unavailable', text, said, later)
    }
    const text =
      reasons.find(({ words }) => words.test(said))?.text(status) ??
      (status === 404 ? notFound(said) : (refusals[status] ?? otherRefusal(status)))
    return this.#error('model_refused', text, said)
  }

  /** `cause` is what went wrong underneath, or what the endpoint said. */
  #error(code: ErrorCode, message: string, cause: unknown, options: ErrorOptions = {}): ConvokeError {
    const words = typeof cause === 'string' ? cause : cause instanceof Error ? cause.message : ''
    const safe = clip(stripControls(this.#redact(words)), maxExcerpt)
    const note = new Error(`POST ${this.#shown}${safe === '' ? '' : `: ${safe}`}`)
    // A cause that would show a secret is left behind; its message stays.
    const isClean = cause instanceof Error && this.#redact(inspect(cause)) === inspect(cause)
    if (isClean) note.cause = cause
    return new ConvokeError(code, message, { ...options, cause: note })
  }
}

const unreachable: Readonly<Record<NetworkReason, string>> = {
  refused: 'it refused the connection',
  dns: 'its name is not known',
  tls: 'its certificate was not accepted, or it does not speak TLS',
  connect_timeout: 'it did not take the connection in time',
  reset: 'the connection broke while it was made',
  closed: 'the connection was closed while it was made',
  redirects: 'it is redirected',
  other: 'the connection failed',
}

const refusals: Readonly<Record<number, string>> = {
  401: 'The model endpoint wants credentials, or other ones (401). Its apiKey is to be set or changed.',
  402: 'The credit at the model endpoint is used up (402). It has to be paid for there.',
  403: 'The model endpoint does not let these credentials do this (403). Its apiKey, or the model, is to be changed.',
  413: 'The request is larger than the model endpoint takes (413). Begin a new conversation, or give the model fewer tools.',
}

/** What refusals of any status may be about, in the words of many endpoints. */
const reasons: readonly { readonly words: RegExp; readonly text: (status: number) => string }[] = [
  {
    words: /context[ _](?:length|size|window)|maximum context|prompt is too long|too many (?:input )?tokens/i,
    text: (status) =>
      `The request is longer than the model takes (${status}). Begin a new conversation, give the model fewer tools, or raise the context length of its server.`,
  },
  {
    words: /support(?:s|ing)? (?:tools?|function calling)\b|tool choice requires|tools? (?:is|are) not supported/i,
    text: (status) =>
      `The model, or its server as it is set, cannot call tools (${status}). Take a model that can, or give the agent no tools.`,
  },
]

/** A model that is not there, and a path that is not, have one status; most endpoints say which it was. */
function notFound(said: string): string {
  const model = 'Its model is to be one that it has: list or pull it there'
  const path = 'its baseUrl is to be that of an OpenAI-compatible API, which mostly ends in /v1'
  const isPage = /^\s*</.test(said)
  if (!isPage && /model(?![a-z])/i.test(said)) return `The model endpoint does not have this model (404). ${model}.`
  if (said.trim() !== '') return `The model endpoint has no such path (404): ${path}.`
  return `The model endpoint does not have this model, or has no such path (404). ${model}, and ${path}.`
}

function otherRefusal(status: number): string {
  if (status < 400)
    return `The model endpoint answered with ${status}, which is no answer, or a redirect. Its baseUrl is to be where that leads.`
  return `The model endpoint refused the request (${status}): it may have a parameter that the model does not know, or be too long. What it said is in the log.`
}

/** The status and the telling words of an error in OpenAI's shape, or one like it. */
function readError(error: unknown): { status: number | undefined; words: string } {
  if (!isObject(error)) return { status: undefined, words: String(error) }
  const { code, status, type } = error
  const number = [status, code].map(Number).find((each) => Number.isInteger(each) && each >= 100 && each <= 599)
  return { status: number, words: [type, code, status].filter((each) => typeof each === 'string').join(' ') }
}

function retryAfterOf(headers: Answer['headers']): number | undefined {
  // OpenAI's own, and finer.
  const ms = Number(headers['retry-after-ms'])
  if (Number.isFinite(ms) && ms >= 0) return ms
  const after = headers['retry-after']
  return parseRetryAfter(typeof after === 'string' ? after : undefined)
}

/** As Google says it. */
function retryDelayIn(said: string): number | undefined {
  const seconds = /"retryDelay":\s*"(\d+(?:\.\d+)?)s"/.exec(said)?.[1]
  return seconds === undefined ? undefined : Number(seconds) * 1000
}

function parseBase(baseUrl: unknown): URL {
  if (typeof baseUrl !== 'string' || !URL.canParse(baseUrl) || !/^https?:$/.test(new URL(baseUrl).protocol)) {
    const got = typeof baseUrl === 'string' ? baseUrl.replace(/\/\/.*@/, '//[redacted]@').replace(/\?.*/, '') : baseUrl
    throw new ConvokeError(
      'config',
      `\`baseUrl\` of a model must be an http or https URL such as http://127.0.0.1:11434/v1, got ${excerpt(got)}.`,
    )
  }
  const base = new URL(baseUrl)
  // One slash stays where there is no path.
  base.pathname = base.pathname.replace(/\/+$/, '')
  base.hash = ''
  return base
}

function checkOptions({ apiKey, headers = {}, timeoutMs, allowPrivate }: OpenAiEndpointOptions): void {
  const wrong = (text: string): ConvokeError => new ConvokeError('config', text)
  // Neither is shown: both may be secret.
  if (apiKey !== undefined && (typeof apiKey !== 'string' || notInHeaders.test(apiKey)))
    throw wrong('`apiKey` of a model must be a text without line breaks and the like.')
  if (!isObject(headers)) throw wrong(`\`headers\` of a model must be an object, got ${excerpt(headers)}.`)
  for (const [name, value] of Object.entries(headers)) {
    if (!/^[\w!#$%&'*+.^`|~-]+$/.test(name) || typeof value !== 'string' || notInHeaders.test(value))
      throw wrong(`The header ${excerpt(name)} of a model cannot be sent as it is.`)
  }
  if (timeoutMs !== undefined && !(typeof timeoutMs === 'number' && timeoutMs > 0))
    throw wrong(`\`timeoutMs\` of a model must be above 0, got ${excerpt(timeoutMs)}.`)
  if (allowPrivate !== undefined && typeof allowPrivate !== 'boolean')
    throw wrong(`\`allowPrivate\` of a model must be true or false, got ${excerpt(allowPrivate)}.`)
}

const notInHeaders = /[^\t\x20-\x7e\x80-\xff]/

function basicOf({ username, password }: URL): string | undefined {
  if (username === '' && password === '') return undefined
  return `Basic ${Buffer.from(`${decode(username)}:${decode(password)}`).toString('base64')}`
}

function decode(part: string): string {
  try {
    return decodeURIComponent(part)
  } catch {
    // A lone % stands for itself.
    return part
  }
}
