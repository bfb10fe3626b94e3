/**
 * The client of one peer: it finds out how the peer is spoken to, speaks to it, and tries again where that is safe.
 * Tools are called through `remote-tool.ts` on top of it.
 */
import { abortReason, firstOf, pause } from '../base/abort.ts'
import { namesPrivateAddress } from '../base/address.ts'
import { ConvokeError } from '../base/errors.ts'
import { createGuardedFetch, NetworkError, type GuardedFetch } from '../base/guarded-fetch.ts'
import { isObject, type JsonObject } from '../base/json.ts'
import { silentLog, type Logger } from '../base/logger.ts'
import { isInterrupted, isTerminal, type Message, type Task } from '../protocol/a2a.ts'
import { declaresExtension, type ToolDescriptor } from '../protocol/card.ts'
import { parseSendMessageResponse, parseTask, parseTaskPage } from '../protocol/responses.ts'
import { excerpt } from '../tools/value.ts'

import { Breaker } from './breaker.ts'
import { CardResolver, checkCard, chooseInterface, interfacesOf, toPeerInfo } from './card-resolver.ts'
import { createCredentials } from './credentials.ts'
import { PeerError, redactError, toPeerError } from './errors.ts'
import { follow, lostStart } from './follow.ts'
import { startLimit } from './limit.ts'
import { Link, originOf, type Exchange, type WireLine } from './link.ts'
import { OpenCalls } from './open-calls.ts'
import type {
  Binding,
  ListTasksPage,
  ListTasksQuery,
  PeerEvent,
  PeerInfo,
  PeerOptions,
  PeerVersion,
  PushConfigInput,
  PushConfigRecord,
  RequestOptions,
  SendMessageResponse,
  SendOptions,
} from './peer.ts'
import { retry } from './retry.ts'
import { SharedWork } from '../base/shared-work.ts'
import { maxTimerMs } from '../base/timer.ts'
import { JsonRpcTransport, RestTransport, type Method, type StreamMethod, type Transport } from './transport.ts'

/** What the pauses between all attempts take at most, about. */
const retriesMs = 3_000

const defaults = {
  requestTimeoutMs: 30_000,
  idleTimeoutMs: 45_000,
  patienceMs: 10_000,
  bindings: ['JSONRPC', 'HTTP+JSON'] as readonly Binding[],
  versions: ['1.0', '0.3'] as readonly PeerVersion[],
}
/** How soon a task at a peer that does not stream is looked at again; each time twice as late. */
const firstPollMs = 50
const longestPollMs = 5_000
/** How often a request that may be repeated is tried again. */
const retries = 3
/** Largest event of a stream, in bytes. */
const maxEventBytes = 64 * 1024 * 1024

export interface PeerClientOptions extends PeerOptions {
  /** What the peer is called on this side. */
  readonly id: string
  readonly log?: Logger
  /** Where its requests go out; closed with it. Default: one of its own. */
  readonly fetch?: GuardedFetch
  /** The agent card, where it is at hand; then nothing is fetched for it, and `url` is where it was found. */
  readonly card?: JsonObject
  /** A URL of the origin that the credentials are for. Default: `url`; without one the first interface of the card. */
  readonly home?: string
  /** Take the card's order of bindings before that of `bindings`. Default: false. */
  readonly cardOrder?: boolean
  /** Hears each request and answer, credentials taken out. */
  readonly onWire?: (line: WireLine) => void
}

/** Whether a peer can be reached, and what went wrong last. */
export interface PeerStatus {
  readonly peer: string
  readonly url: string
  /** `unknown` until the first request. */
  readonly state: 'unknown' | 'up' | 'down'
  readonly info?: PeerInfo
  /** The last failure; gone with the next success. */
  readonly lastError?: PeerError
  /** When it last answered, in milliseconds since 1970. */
  readonly lastSeen?: number
}

export interface SendRetry {
  /** The work may be begun twice: a message that was perhaps sent is sent again. Default: only to peers that deduplicate. */
  readonly repeatable?: boolean
  /** Hears that the message goes out now. Until then the peer knows nothing of it. */
  readonly onSent?: () => void
}

/** Fetch for a peer's options: two peers that may reach the same addresses in the same way can share one. */
export function fetchFor(options: PeerOptions): GuardedFetch {
  return createGuardedFetch({
    allowPrivate: allowsPrivate(options),
    ...(options.tls === undefined ? {} : { tls: options.tls }),
  })
}

/** Whoever configures a private address means it; what a name resolves to, or a card says, is another matter. */
export function allowsPrivate({ url, allowPrivate }: PeerOptions): boolean {
  return allowPrivate ?? (URL.canParse(url) && namesPrivateAddress(url))
}

export class PeerClient {
  readonly id: string
  /** Calls of tools that are under way; each puts itself in and takes itself out. */
  readonly openCalls = new OpenCalls()
  readonly #options: PeerClientOptions
  readonly #log: Logger
  readonly #fetch: GuardedFetch
  readonly #link: Link
  readonly #resolver: CardResolver
  readonly #breaker: Breaker
  readonly #credentials: ReturnType<typeof createCredentials>
  readonly #closing = new AbortController()
  #transport: Transport | undefined
  #info: PeerInfo | undefined
  readonly #connecting = new SharedWork<PeerInfo>()
  #lastError: PeerError | undefined
  #lastSeen: number | undefined

  /** Throws `config` for options that make no sense. Nothing is sent before the first request. */
  constructor(options: PeerClientOptions) {
    checkOptions(options)
    const { id, card, auth, headers = {} } = options
    this.id = id
    this.#options = options
    this.#log = options.log ?? silentLog
    this.#fetch = options.fetch ?? fetchFor(options)
    this.#breaker = new Breaker(id)
    // A card in a file has no origin, and whoever has it at hand means what it says.
    const first = card === undefined || options.url !== '' ? undefined : interfacesOf(card)[0]?.url
    const home = options.home ?? first ?? options.url
    this.#credentials = createCredentials(auth, originOf(home), this.#fetch, id)
    this.#link = new Link({
      peer: id,
      fetch: this.#fetch,
      credentials: this.#credentials,
      home: originOf(home),
      headers,
      onWire: options.onWire,
    })
    this.#resolver = new CardResolver({ peer: id, url: options.url, link: this.#link, card })
  }

  get url(): string {
    return this.#options.url
  }

  /** How long a tool call may take unless it says so itself, in milliseconds. */
  get timeoutMs(): number | undefined {
    return this.#options.timeoutMs
  }

  /** How the peer is spoken to, once that is known. */
  get info(): PeerInfo | undefined {
    return this.#info
  }

  get status(): PeerStatus {
    const lastError = this.#lastError
    return {
      peer: this.id,
      url: this.#options.url,
      state: lastError !== undefined ? 'down' : this.#lastSeen === undefined ? 'unknown' : 'up',
      ...(this.#info === undefined ? {} : { info: this.#info }),
      ...(lastError === undefined ? {} : { lastError }),
      ...(this.#lastSeen === undefined ? {} : { lastSeen: this.#lastSeen }),
    }
  }

  /**
   * Fetches the card and chooses the interface; the second time what is known already. Throws PeerError:
   * `version_not_supported` where no interface can be spoken, `forbidden` where it stands on a foreign origin, and all
   * that a request can fail with.
   */
  async connect(options: RequestOptions = {}): Promise<PeerInfo> {
    if (this.#info !== undefined) return this.#info
    const limit = startLimit(options)
    try {
      return await this.#connecting.run((signal) => this.#connect(signal), limit.signal)
    } catch (error) {
      throw toPeerError(error, this.id)
    } finally {
      limit.end()
    }
  }

  /** The peer's card as raw JSON, fresh by its own Cache-Control, or with `again` asked for now. */
  async card(options: RequestOptions & { readonly again?: boolean } = {}): Promise<JsonObject> {
    const card = await this.#guarded(options, (exchange) => this.#resolver.card(exchange, options.again))
    this.#take(card)
    return card
  }

  /** The tools on the peer's card, with their schemas. */
  async descriptors(options: RequestOptions & { readonly again?: boolean } = {}): Promise<readonly ToolDescriptor[]> {
    const { card, tools } = await this.#guarded(options, (exchange) => this.#resolver.tools(exchange, options.again))
    this.#take(card)
    return tools
  }

  /** The card for us alone, where the peer has one: the tools that we may call. */
  async extendedCard(options: RequestOptions = {}): Promise<JsonObject> {
    return checkCard(await this.#call('GetExtendedAgentCard', {}, options, true))
  }

  /**
   * Sends a message. Waits until its task ends or asks, unless told to return immediately. The message goes out once: it
   * is sent again only where nothing of it was sent, or the peer is known to take each message once, or the work may be
   * repeated.
   */
  async sendMessage(message: Message, options: SendOptions & SendRetry = {}): Promise<SendMessageResponse> {
    const deadline = deadlineOf(options.timeoutMs)
    const info = this.#info ?? (await this.connect(options))
    const mayRepeat = info.convoke || options.repeatable === true
    // A wait has no limit of its own: the work takes as long as it takes.
    const timeoutMs = leftOf(deadline) ?? (options.returnImmediately === true ? this.#requestMs : noLimit)
    const { signal, onSent } = options
    const answer = await this.#call(
      'SendMessage',
      toSendParams(message, options),
      { signal, onSent, timeoutMs },
      mayRepeat,
    )
    return this.#parse(parseSendMessageResponse, answer)
  }

  /**
   * Sends a message and waits for the end of its task, or its question. Small answers come with the request; for longer
   * work it follows the task's stream, or asks again and again where the peer does not stream.
   */
  async sendTask(message: Message, options: SendOptions & SendRetry = {}): Promise<SendMessageResponse> {
    const limit = startLimit(options)
    try {
      return await this.#sendTask(message, withSignal(options, limit.signal))
    } finally {
      limit.end()
    }
  }

  async #sendTask(message: Message, options: SendOptions & SendRetry): Promise<SendMessageResponse> {
    const { convoke, streaming } = this.#info ?? (await this.connect(options))
    if (!convoke || !streaming) {
      const answer = await this.sendMessage(message, options)
      if (answer.task === undefined || isAtRest(answer.task)) return answer
      return { task: await this.waitFor(answer.task.id, options) }
    }
    const { patienceMs = defaults.patienceMs } = this.#options
    const startedAt = performance.now()
    try {
      // A timer of the request is cheaper than a signal, and most answers come with it.
      return await this.sendMessage(message, { ...options, timeoutMs: patienceMs })
    } catch (error) {
      // A connection that is cut late leaves no time for the pauses of further attempts; otherwise they were all made.
      const isLate = performance.now() - startedAt > patienceMs - retriesMs
      const goesOn = error instanceof PeerError && (error.code === 'timeout' || (isLate && isLost(error)))
      if (!goesOn || options.signal?.aborted === true) throw error
    }
    // The same message finds its task again, and this time with signs of life.
    let taskId: string | undefined
    for await (const { event } of this.streamMessage(message, options)) {
      if (event.message !== undefined) return { message: event.message }
      taskId ??= event.task?.id ?? event.statusUpdate?.taskId ?? event.artifactUpdate?.taskId
    }
    if (taskId === undefined) throw new PeerError('peer_failed', this.id, 'Its stream ended without a task.')
    return { task: await this.getTask(taskId, options) }
  }

  /** Waits until a task ends or asks, and resolves with it. */
  async waitFor(taskId: string, options: RequestOptions & { readonly pollMs?: number } = {}): Promise<Task> {
    const limit = startLimit(options)
    try {
      return await this.#waitFor(taskId, withSignal(options, limit.signal))
    } finally {
      limit.end()
    }
  }

  async #waitFor(taskId: string, options: RequestOptions & { readonly pollMs?: number }): Promise<Task> {
    const { streaming } = await this.connect(options)
    if (streaming) {
      for await (const { event } of this.#follow({ options, taskId, untilRest: true })) {
        const status = event.task?.status ?? event.statusUpdate?.status
        if (status !== undefined && (isTerminal(status.state) || isInterrupted(status.state))) break
      }
      return this.getTask(taskId, options)
    }
    for (
      let pauseMs = options.pollMs ?? firstPollMs;
      ;
      pauseMs = options.pollMs ?? Math.min(pauseMs * 2, longestPollMs)
    ) {
      const task = await this.getTask(taskId, options)
      if (isAtRest(task)) return task
      await this.#pause(pauseMs, options.signal)
    }
  }

  /** The events that follow from a message, until its task ends or asks; goes on by itself when it is cut. */
  async *streamMessage(message: Message, options: SendOptions & SendRetry = {}): AsyncGenerator<PeerEvent, void, void> {
    yield* this.#follow({ options, message, untilRest: true })
  }

  /** The events of a task from now on, the task itself first; behind `lastEventId` if that is given. Until the task ends. */
  async *subscribe(
    taskId: string,
    options: RequestOptions & { readonly lastEventId?: number } = {},
  ): AsyncGenerator<PeerEvent, void, void> {
    yield* this.#follow({ options, taskId, lastEventId: options.lastEventId, untilRest: false })
  }

  async getTask(id: string, options: RequestOptions & { readonly historyLength?: number } = {}): Promise<Task> {
    const { historyLength } = options
    const params = { id, ...(historyLength === undefined ? {} : { historyLength }) }
    return this.#parse(parseTask, await this.#call('GetTask', params, options, true))
  }

  async listTasks(query: ListTasksQuery = {}, options: RequestOptions = {}): Promise<ListTasksPage> {
    return this.#parse(parseTaskPage, await this.#call('ListTasks', { ...query }, options, true))
  }

  /** Resolves with the task once it has stopped. Throws `task_not_cancelable` where it had ended before. */
  async cancelTask(id: string, options: RequestOptions = {}): Promise<Task> {
    return this.#parse(parseTask, await this.#call('CancelTask', { id }, options, true))
  }

  async createPushConfig(
    taskId: string,
    config: PushConfigInput,
    options: RequestOptions = {},
  ): Promise<PushConfigRecord> {
    return toPushConfig(
      await this.#call('CreateTaskPushNotificationConfig', { taskId, ...config }, options, false),
      this.id,
    )
  }

  async getPushConfig(taskId: string, id: string, options: RequestOptions = {}): Promise<PushConfigRecord> {
    return toPushConfig(await this.#call('GetTaskPushNotificationConfig', { taskId, id }, options, true), this.id)
  }

  async listPushConfigs(taskId: string, options: RequestOptions = {}): Promise<PushConfigRecord[]> {
    const answer = await this.#call('ListTaskPushNotificationConfigs', { taskId }, options, true)
    const configs: unknown = isObject(answer) ? answer['configs'] : undefined
    return Array.isArray(configs) ? configs.map((config: unknown) => toPushConfig(config, this.id)) : []
  }

  async deletePushConfig(taskId: string, id: string, options: RequestOptions = {}): Promise<void> {
    await this.#call('DeleteTaskPushNotificationConfig', { taskId, id }, options, true)
  }

  /** Ends every request under way. Calls of tools tell the peer to stop first, and wait for its word, for 10 s at most. */
  async close(): Promise<void> {
    await this.openCalls.leave()
    this.#closing.abort(new ConvokeError('canceled', `The client of "${this.id}" was closed.`))
    await this.#fetch.close()
  }

  /** The error without our credentials, should the peer have said them back. */
  clean(error: PeerError): PeerError {
    return redactError(error, (text) => this.#link.redact(text))
  }

  get #requestMs(): number {
    return this.#options.requestTimeoutMs ?? defaults.requestTimeoutMs
  }

  async #connect(signal: AbortSignal): Promise<PeerInfo> {
    const card = await this.#guarded({ signal }, (exchange) => this.#resolver.card(exchange))
    return this.#take(card)
  }

  /** What the peer answered, made sure of. */
  #parse<T>(parse: (value: unknown) => T, value: unknown): T {
    try {
      return parse(value)
    } catch (error) {
      throw this.#failed(error)
    }
  }

  /** Chooses the interface anew when the card has changed it. */
  #take(card: JsonObject): PeerInfo {
    const {
      allowOrigins = [],
      bindings = defaults.bindings,
      versions = defaults.versions,
      cardOrder = false,
    } = this.#options
    const { url: place } = this.#options
    const own = place === '' ? interfacesOf(card).map((each) => each.url) : [place, this.#resolver.url]
    const origins = new Set([...own, ...allowOrigins].map(originOf))
    let chosen
    try {
      chosen = chooseInterface(this.id, card, {
        bindings,
        versions,
        cardOrder,
        isAllowed: (url) => origins.has(originOf(url)),
      })
    } catch (error) {
      throw this.#failed(error)
    }
    const info = toPeerInfo(card, chosen, declaresExtension(card))
    const before = this.#info
    this.#credentials.useCard(card)
    this.#info = info
    const isSame = before?.url === info.url && before.binding === info.binding && before.version === info.version
    if (!isSame) this.#transport = undefined
    return info
  }

  async #createTransport(): Promise<Transport> {
    const info = this.#info
    if (info === undefined) throw new ConvokeError('internal', 'A request went out before the peer was known.')
    const { url, binding, version } = info
    const { idleTimeoutMs = defaults.idleTimeoutMs } = this.#options
    const limits = { idleTimeoutMs: Math.min(idleTimeoutMs, maxTimerMs), maxEventBytes }
    const options = { peer: this.id, url, link: this.#link, limits }
    if (version === '0.3') {
      // The SDK takes a while to load, and few peers need it.
      const { LegacyTransport } = await import('./legacy-transport.ts')
      return (this.#transport = new LegacyTransport(options, binding))
    }
    return (this.#transport = binding === 'JSONRPC' ? new JsonRpcTransport(options) : new RestTransport(options))
  }

  async #call(method: Method, params: Record<string, unknown>, options: Request, mayRepeat: boolean): Promise<unknown> {
    const deadline = deadlineOf(options.timeoutMs)
    const info = this.#info ?? (await this.connect(plainOptions(options)))
    const request = info.tenant === undefined ? params : { tenant: info.tenant, ...params }
    const limits = { ...options, timeoutMs: leftOf(deadline) ?? options.timeoutMs }
    return this.#guarded(
      limits,
      async (exchange) => (this.#transport ?? (await this.#createTransport())).call(method, request, exchange),
      mayRepeat,
    )
  }

  /** One request with its retries, under one deadline, behind the breaker. */
  async #guarded<T>(options: Request, send: (exchange: Exchange) => Promise<T>, mayRepeat = true): Promise<T> {
    const timeoutMs = options.timeoutMs ?? this.#requestMs
    const deadline = deadlineOf(timeoutMs)
    const { signal, onSent } = options
    const once = async (attempt: number): Promise<T> => {
      if (signal?.aborted === true) throw toPeerError(abortReason(signal), this.id, { attempt })
      if (this.#closing.signal.aborted) throw toPeerError(abortReason(this.#closing.signal), this.id, { attempt })
      this.#breaker.enter()
      try {
        const answer = await send({ signal, timeoutMs: leftOf(deadline), onSent })
        this.#succeeded()
        return answer
      } catch (error) {
        // A limit that the caller set tells how patient it is, and nothing of the peer.
        throw this.#answered(error, attempt, signal, options.timeoutMs !== undefined)
      }
    }
    let first: unknown
    try {
      // Most requests succeed at once, and need nothing of what follows.
      return await once(1)
    } catch (error) {
      first = error
    }
    const stop = firstOf(signal, this.#closing.signal)
    try {
      if (!shouldRetry(first, mayRepeat)) throw first
      this.#log.debug({ peer: this.id, error: first }, 'A request to a peer failed and is tried again.')
      return await retry((number) => once(number + 1), {
        retries,
        signal: stop.signal,
        deadline,
        first,
        shouldRetry: (each) => shouldRetry(each, mayRepeat),
      })
    } catch (error) {
      if (!mayRepeat && isLost(error)) throw lostStart(this.id, error)
      throw toPeerError(error, this.id)
    } finally {
      stop.end()
    }
  }

  async *#follow({
    options,
    message,
    taskId,
    lastEventId,
    untilRest,
  }: FollowRequest): AsyncGenerator<PeerEvent, void, void> {
    const limit = startLimit(options)
    const { signal } = limit
    try {
      const info = this.#info ?? (await this.connect(withSignal(options, signal)))
      const mayResend = info.convoke || options.repeatable === true
      const open = (
        method: StreamMethod,
        params: Record<string, unknown>,
        lastId: number | undefined,
        again: boolean,
      ) =>
        this.#guarded(
          { signal, onSent: options.onSent },
          async (exchange) =>
            (this.#transport ?? (await this.#createTransport())).open(
              method,
              info.tenant === undefined ? params : { tenant: info.tenant, ...params },
              { ...exchange, lastEventId: lastId },
            ),
          again,
        )
      yield* follow({
        peer: this.id,
        signal,
        closing: this.#closing.signal,
        untilRest,
        hasIds: info.convoke && info.version === '1.0',
        mayResend,
        lastEventId,
        taskId,
        send:
          message === undefined
            ? undefined
            : () => open('SendStreamingMessage', toSendParams(message, options), undefined, mayResend),
        resume: (id, lastId) => open('SubscribeToTask', { id }, lastId, true),
        get: (id) => this.getTask(id, signal === undefined ? {} : { signal }),
      })
    } catch (error) {
      throw this.#failed(error)
    } finally {
      limit.end()
    }
  }

  #succeeded(): void {
    this.#breaker.succeeded()
    this.#lastError = undefined
    this.#lastSeen = Date.now()
  }

  /** How a request ended, as far as it tells whether the peer is there. */
  #answered(error: unknown, attempt: number, signal: AbortSignal | undefined, isPatience: boolean): PeerError {
    const failure = this.#failed(error, attempt)
    const { code, httpStatus } = failure
    // A request that was stopped says nothing of the peer; a refusal is an answer.
    if (signal?.aborted === true || code === 'canceled' || (isPatience && code === 'timeout')) this.#breaker.left()
    else if (code === 'network' || code === 'timeout' || (code === 'unavailable' && httpStatus !== undefined)) {
      this.#breaker.failed(failure.sentence)
    } else this.#breaker.succeeded()
    return failure
  }

  #failed(error: unknown, attempt?: number): PeerError {
    const failure = this.clean(toPeerError(error, this.id, attempt === undefined ? {} : { attempt }))
    const { kind, code } = failure
    const isDown =
      kind === 'connection' || kind === 'auth' || code === 'peer_failed' || code === 'version_not_supported'
    if (isDown && code !== 'rate_limited') this.#lastError = failure
    return failure
  }

  async #pause(ms: number, signal: AbortSignal | undefined): Promise<void> {
    const stop = firstOf(signal, this.#closing.signal)
    await pause(ms, stop.signal, { keepAlive: true })
    stop.end()
    if (stop.signal.aborted) throw abortReason(stop.signal)
  }
}

interface FollowRequest {
  readonly options: SendOptions & SendRetry
  readonly message?: Message
  readonly taskId?: string
  readonly lastEventId?: number | undefined
  readonly untilRest: boolean
}

/** As a limit in milliseconds: none. */
const noLimit = Infinity

/** A request's options, and what it tells meanwhile. */
type Request = {
  readonly signal?: AbortSignal | undefined
  readonly timeoutMs?: number | undefined
  readonly onSent?: (() => void) | undefined
}

function plainOptions({ signal, timeoutMs }: Request): RequestOptions {
  return {
    ...(signal === undefined ? {} : { signal }),
    ...(timeoutMs === undefined || timeoutMs === noLimit ? {} : { timeoutMs }),
  }
}

/** The options of a step under the limit that `signal` holds. */
function withSignal<Options extends RequestOptions>(options: Options, signal: AbortSignal | undefined): Options {
  const { timeoutMs: _, ...rest } = options
  return { ...rest, ...(signal === undefined ? {} : { signal }) } as Options
}

/** In milliseconds since 1970. */
function deadlineOf(timeoutMs: number | undefined): number | undefined {
  return timeoutMs === undefined || timeoutMs === noLimit ? undefined : Date.now() + timeoutMs
}

function leftOf(deadline: number | undefined): number | undefined {
  return deadline === undefined ? undefined : Math.max(1, deadline - Date.now())
}

/** Nothing was sent, or it may be sent twice; and it may go better the next time. */
function shouldRetry(error: unknown, mayRepeat: boolean): boolean {
  if (!(error instanceof PeerError) || !error.retryable) return false
  if (error.code === 'network') return mayRepeat || !isLost(error)
  // The peer says itself that it has not taken the request.
  if (error.code === 'rate_limited') return error.retryAfterMs !== undefined || mayRepeat
  return error.code === 'unavailable' && error.httpStatus !== undefined && mayRepeat
}

/** Whether nobody knows if the request arrived. */
function isLost(error: unknown): boolean {
  if (!(error instanceof PeerError) || error.code !== 'network') return false
  return !(error.cause instanceof NetworkError) || error.cause.sent
}

function isAtRest(task: Task): boolean {
  return isTerminal(task.status.state) || isInterrupted(task.status.state)
}

function toSendParams(message: Message, options: SendOptions): Record<string, unknown> {
  const { returnImmediately, historyLength, acceptedOutputModes, metadata, pushConfig } = options
  const configuration = {
    ...(acceptedOutputModes === undefined ? {} : { acceptedOutputModes }),
    ...(historyLength === undefined ? {} : { historyLength }),
    ...(returnImmediately === undefined ? {} : { returnImmediately }),
    ...(pushConfig === undefined ? {} : { taskPushNotificationConfig: pushConfig }),
  }
  return {
    message,
    ...(Object.keys(configuration).length === 0 ? {} : { configuration }),
    ...(metadata === undefined ? {} : { metadata }),
  }
}

function toPushConfig(value: unknown, peer: string): PushConfigRecord {
  // Version 0.3 and some servers of 1.0 have the configuration in a member of its own.
  const flat =
    isObject(value) && isObject(value['pushNotificationConfig'])
      ? { ...value, ...value['pushNotificationConfig'] }
      : value
  if (!isObject(flat) || typeof flat['url'] !== 'string') {
    throw new PeerError('peer_failed', peer, 'What it answered is no push notification configuration.')
  }
  return flat as unknown as PushConfigRecord
}

function checkOptions(options: PeerClientOptions): void {
  const { id, url, card, timeoutMs, requestTimeoutMs, idleTimeoutMs, patienceMs } = options
  if (!/^[A-Za-z0-9_-]{1,64}$/.test(id)) {
    throw new ConvokeError('config', `A peer's id must be 1 to 64 letters, digits, _ or -, got ${JSON.stringify(id)}.`)
  }
  for (const [name, ms] of Object.entries({ timeoutMs, requestTimeoutMs, idleTimeoutMs, patienceMs })) {
    const isLong = typeof ms === 'number' && (ms > 0 || (ms === 0 && name === 'patienceMs'))
    if (ms !== undefined && !isLong)
      throw new ConvokeError('config', `\`${name}\` of the peer "${id}" must be above 0, got ${excerpt(ms)}.`)
  }
  if (card !== undefined) return
  if (typeof url !== 'string') {
    throw new ConvokeError('config', `The url of the peer "${id}" must be a string, got ${excerpt(url)}.`)
  }
  if (!URL.canParse(url) || !/^https?:$/.test(new URL(url).protocol)) {
    const shown = JSON.stringify(url.replace(/\/\/.*@/, '//[redacted]@'))
    throw new ConvokeError('config', `The url of the peer "${id}" must be an http or https URL, got ${shown}.`)
  }
  if (new URL(url).username !== '' || new URL(url).password !== '') {
    throw new ConvokeError('config', `The url of the peer "${id}" has credentials in it; put them into auth.`)
  }
}
