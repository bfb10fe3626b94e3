/** One live connection to one MCP server, from the handshake to its end. It does not come back: its server opens another. */
import { Client } from '@modelcontextprotocol/sdk/client/index.js'
import type { RequestOptions } from '@modelcontextprotocol/sdk/shared/protocol.js'
import type { Transport } from '@modelcontextprotocol/sdk/shared/transport.js'
import {
  CreateMessageRequestSchema,
  ElicitRequestSchema,
  ResultSchema,
  ToolListChangedNotificationSchema,
} from '@modelcontextprotocol/sdk/types.js'
import { abortReason, onAbort } from '../base/abort.ts'
import { ConvokeError } from '../base/errors.ts'
import { createGuardedFetch, NetworkError } from '../base/guarded-fetch.ts'
import { isObject, type Json, type JsonObject } from '../base/json.ts'
import type { Logger } from '../base/logger.ts'
import { isToolLogLevel, type ToolLog } from '../protocol/tool-call.ts'
import { cleanText } from '../tools/foreign.ts'
import { clip } from '../tools/value.ts'
import { Calls, type McpCall } from './calls.ts'
import { connectionLost, StatusFailure, toMcpFailure, withoutSecrets, type ErrorPlace } from './call-errors.ts'
import { SessionLost } from './errors.ts'
import { createSseTransport, HttpTransport, statusOf } from './http-transport.ts'
import { Questions } from './questions.ts'
import type { HttpSettings, ServerSettings } from './server-options.ts'
import { StdioTransport, type Environment } from './stdio-transport.ts'

export interface ConnectionOptions {
  readonly settings: ServerSettings
  readonly environment: Environment
  readonly log: Logger
  /** Takes the server's secrets out of a text. */
  readonly redact: (text: string) => string
  /** Hears of further secrets of the server, before it is told them. */
  readonly onSecrets: (secrets: readonly string[]) => void
  /** What the server is told that it talks to. */
  readonly clientInfo: { readonly name: string; readonly version: string }
  /** The server has other tools now. */
  readonly onListChanged: () => void
  /** The connection ended by itself, and why. Heard once, and not after `close`. */
  readonly onLost: (connection: Connection, error: ConvokeError) => void
}

/** What a server says of itself. */
export interface ServerInfo {
  readonly name: string
  readonly version: string
}

const maxPages = 1_000
const maxListed = 20_000
const maxStderrLines = 20
/** What servers are to log. More would be for their authors. */
const logLevel = 'info'

/** What carries the messages, and how it ends. */
interface Carrier {
  readonly transport: Transport
  readonly name: 'stdio' | 'http' | 'sse'
  readonly stdio?: StdioTransport
  readonly http?: HttpTransport
  /** Ends what the transport stands on. */
  release(): Promise<void>
}

/** What a program writes last is often a stack, or its version; why it ended stands above. */
const telling = /^(?!\s+at ).*(?:error|cannot|could not|not found|denied|refused|failed|missing)/i

export class Connection {
  readonly #options: ConnectionOptions
  readonly #carrier: Carrier
  readonly #client: Client
  readonly #questions: Questions
  readonly #calls = new Calls()
  /** The last lines of the server's stderr: they say why it ended. */
  readonly #said: string[]
  #closing: Promise<void> | undefined
  #lostBy: ConvokeError | undefined

  /** Connects and shakes hands. Throws what {@link toMcpFailure} gives, or the reason of the signal; nothing is left running then. */
  static async open(options: ConnectionOptions, signal: AbortSignal): Promise<Connection> {
    const { settings } = options
    const { transport } = settings
    if (transport.type !== 'auto') return await Connection.#open(options, transport.type, signal)
    try {
      return await Connection.#open(options, 'http', signal)
    } catch (error) {
      const status = error instanceof StatusFailure ? error.status : undefined
      // The specification's own way to tell an old server: it does not take the POST. These say something else.
      const isOld = status !== undefined && status >= 400 && status < 500 && ![401, 403, 408, 429].includes(status)
      if (!isOld || signal.aborted) throw error
      return await Connection.#open(options, 'sse', signal)
    }
  }

  static async #open(
    options: ConnectionOptions,
    kind: 'stdio' | 'http' | 'sse',
    signal: AbortSignal,
  ): Promise<Connection> {
    const connection = new Connection(options, kind)
    try {
      await connection.#connect(signal)
      connection.#setLogLevel()
      return connection
    } catch (error) {
      const failure = signal.aborted ? abortReason(signal) : connection.#failure(error, undefined)
      await connection.close()
      throw failure
    }
  }

  private constructor(options: ConnectionOptions, kind: 'stdio' | 'http' | 'sse') {
    const { settings, log, clientInfo } = options
    this.#options = options
    this.#said = []
    this.#questions = new Questions(settings.id, log)
    this.#client = new Client(clientInfo, {
      capabilities: { elicitation: { form: {}, url: {} }, sampling: {} },
      // Schemas are checked by our own validator; the SDK's would be made for nothing.
      jsonSchemaValidator: {
        getValidator: () => () => {
          throw new Error('The SDK validates nothing here.')
        },
      },
    })
    this.#carrier = this.#carry(kind)
    this.#listen()
  }

  /** Why the connection ended by itself. */
  get lost(): ConvokeError | undefined {
    return this.#lostBy
  }

  get transport(): Carrier['name'] {
    return this.#carrier.name
  }

  /** The id of the server's process, if it is one of ours that runs. */
  get pid(): number | undefined {
    return this.#carrier.stdio?.pid
  }

  get info(): ServerInfo | undefined {
    const given = this.#client.getServerVersion()
    return given === undefined
      ? undefined
      : { name: clip(cleanText(given.name), 200), version: clip(cleanText(given.version), 100) }
  }

  /** How many calls are under way. */
  get calls(): number {
    return this.#questions.calls
  }

  /** All pages of the server's tools, as it tells them. */
  async listTools(signal: AbortSignal): Promise<unknown[]> {
    if (this.#client.getServerCapabilities()?.tools === undefined) return []
    const tools: unknown[] = []
    const seen = new Set<string>()
    for (let cursor: string | undefined, page = 0; page < maxPages && tools.length < maxListed; page++) {
      const params: { cursor?: string } = cursor === undefined ? {} : { cursor }
      const result = await this.#ask({ method: 'tools/list', params }, signal)
      const { tools: listed, nextCursor } = result
      if (!Array.isArray(listed)) throw this.#wrong('answered tools/list with something that has no tools')
      // One by one: the arguments of a call are bounded.
      for (const tool of listed) tools.push(tool)
      if (typeof nextCursor !== 'string' || nextCursor === '') return tools
      if (seen.has(nextCursor)) throw this.#wrong('lists its tools in a circle')
      seen.add((cursor = nextCursor))
    }
    this.#options.log.warn(
      { server: this.#options.settings.id, tools: tools.length },
      'An MCP server lists tools without end; the first are taken.',
    )
    return tools
  }

  /**
   * Calls a tool and resolves with the result as the server gives it. An abort tells the server, and rejects at once.
   * Throws what {@link toMcpFailure} gives, and {@link SessionLost} where the server has not looked at the call.
   */
  async call(params: JsonObject, call: McpCall): Promise<JsonObject> {
    const { signal, tool } = call
    const free = this.#questions.free(signal)
    if (free !== undefined) await free
    if (signal !== undefined && isStopped(signal)) throw abortReason(signal)
    this.#questions.begin(call)
    const { http, transport } = this.#carrier
    let isAnswered = true
    try {
      return await this.#calls.send(transport, params, call, http === undefined ? undefined : (id) => http.endCall(id))
    } catch (error) {
      // The calls reject with the reason of the signal themselves, which no server gives.
      isAnswered = !isStopped(signal)
      throw isAnswered ? this.#failure(error, tool) : error
    } finally {
      this.#questions.end(call, isAnswered)
    }
  }

  /** Throws where the server does not answer in time. */
  async ping(timeoutMs: number): Promise<void> {
    try {
      await this.#client.request({ method: 'ping' }, ResultSchema, { timeout: timeoutMs })
    } catch (error) {
      throw this.#failure(error, undefined)
    }
  }

  /** Ends the connection, and the server's process. Calls under way fail. Never rejects. */
  close(): Promise<void> {
    this.#closing ??= this.#close()
    return this.#closing
  }

  async #close(): Promise<void> {
    try {
      await this.#carrier.http?.terminate()
      await this.#client.close()
      await this.#carrier.transport.close()
    } catch (error) {
      this.#options.log.debug(
        { server: this.#options.settings.id, error },
        'A connection to an MCP server ended badly.',
      )
    } finally {
      await this.#carrier.release()
    }
  }

  #carry(kind: Carrier['name']): Carrier {
    const { settings, environment, log, redact, onSecrets } = this.#options
    const { transport } = settings
    if (transport.type === 'stdio') {
      const onLine = (line: string): void => {
        const text = redact(cleanText(line))
        this.#said.push(text)
        if (this.#said.length > maxStderrLines) this.#said.shift()
        log.debug({ server: settings.id }, text)
      }
      const stdio = new StdioTransport(transport, { environment, onLine, onSecrets })
      return { transport: stdio, name: 'stdio', stdio, release: () => stdio.close() }
    }
    return this.#carryHttp(kind, transport)
  }

  #carryHttp(kind: Carrier['name'], settings: HttpSettings): Carrier {
    const { connectTimeoutMs } = this.#options.settings
    const fetch = createGuardedFetch({ allowPrivate: settings.allowPrivate, connectTimeoutMs })
    const onLost = (error: Error): void =>
      this.#lost(connectionLost(this.#place(undefined), withoutSecrets(error, this.#options.redact)))
    const release = (): Promise<void> => fetch.close()
    if (kind === 'sse') return { transport: createSseTransport(settings, fetch, onLost), name: 'sse', release }
    const http = new HttpTransport(settings, fetch, onLost)
    return { transport: http, name: 'http', http, release }
  }

  #listen(): void {
    const { log, settings, redact, onListChanged } = this.#options
    const server = settings.id
    const client = this.#client
    client.onerror = (error) =>
      log.debug({ server, reason: redact(clip(error.message, 1_000)) }, 'Something went wrong with an MCP server.')
    client.onclose = () => {
      this.#lost(connectionLost(this.#place(undefined)))
      this.#calls.fail(({ tool }) => connectionLost(this.#place(tool)))
    }
    client.setNotificationHandler(ToolListChangedNotificationSchema, onListChanged)
    client.setRequestHandler(CreateMessageRequestSchema, (request, { requestId, signal }) => {
      const asker = this.#calls.get(this.#carrier.http?.askerOf(requestId))
      return this.#questions.sample(request, asker, signal)
    })
    client.setRequestHandler(ElicitRequestSchema, (request, { requestId, signal }) => {
      const asker = this.#calls.get(this.#carrier.http?.askerOf(requestId))
      return this.#questions.answer(request, asker, signal)
    })
  }

  /** A line of the server's log: for the caller of the one call that it can belong to, else for the node's own. */
  #hear(params: unknown): void {
    if (!isObject(params) || params['data'] === undefined) return
    const { level, logger, data } = params
    const call = this.#calls.get(this.#carrier.http?.speaker) ?? this.#questions.only
    const { log, settings, redact } = this.#options
    const text = redact(cleanText(typeof data === 'string' ? data : JSON.stringify(data)))
    const about: Omit<ToolLog, 'data'> = {
      level: isToolLogLevel(level) ? level : 'info',
      ...(typeof logger === 'string' ? { logger: redact(cleanText(logger)) } : {}),
    }
    if (call === undefined) log.debug({ server: settings.id, ...about }, clip(text, 4_000))
    else call.notice({ ...about, data: typeof data === 'string' ? text : parsedOr(text) })
  }

  /** Without it some servers say nothing, and some say everything. Those that will not be told say what they like. */
  #setLogLevel(): void {
    if (this.#client.getServerCapabilities()?.logging === undefined) return
    this.#client.setLoggingLevel(logLevel).catch((error: unknown) => {
      const { log, settings } = this.#options
      log.debug({ server: settings.id, error }, 'An MCP server does not let its log be set.')
    })
  }

  /**
   * The SDK's own end of a connect is not waited for where it is stopped: the old transport's never comes, and none of them
   * has a limit of its own for what is before the handshake. Whoever catches the failure closes what was begun.
   */
  #connect(signal: AbortSignal): Promise<void> {
    const { connectTimeoutMs } = this.#options.settings
    return new Promise<void>((resolve, reject) => {
      const late = new ConvokeError('timeout', `It did not answer within ${connectTimeoutMs} ms.`)
      const timer = setTimeout(() => reject(late), connectTimeoutMs)
      const stopListening = onAbort(signal, () => {
        clearTimeout(timer)
        reject(abortReason(signal))
      })
      const { transport } = this.#carrier
      const connecting = this.#client.connect(transport, { timeout: connectTimeoutMs }).then(() => {
        const onward = transport.onmessage
        transport.onmessage = (message, extra) => {
          if (this.#calls.take(message)) return
          // Here it is still known by which stream it came.
          if ('method' in message && message.method === 'notifications/message') this.#hear(message.params)
          else onward?.(message, extra)
        }
      })
      void connecting.then(resolve, reject).finally(() => {
        clearTimeout(timer)
        stopListening()
      })
    })
  }

  async #ask(request: { method: string; params: { cursor?: string } }, signal: AbortSignal): Promise<JsonObject> {
    const stop = new AbortController()
    const stopListening = onAbort(signal, () => stop.abort(signal.reason))
    const options: RequestOptions = { signal: stop.signal, timeout: this.#options.settings.connectTimeoutMs }
    try {
      return (await this.#client.request(request, ResultSchema, options)) as JsonObject
    } catch (error) {
      throw signal.aborted ? abortReason(signal) : this.#failure(error, undefined)
    } finally {
      stopListening()
    }
  }

  #wrong(what: string): ConvokeError {
    return new ConvokeError('peer_failed', `The MCP server ${this.#options.settings.id} ${what}.`)
  }

  /** The failure of a request. One that says that the connection is of no more use ends it. */
  #failure(error: unknown, tool: McpCall['tool'] | undefined): ConvokeError {
    if (this.#isForgotten(error)) {
      const lost = new SessionLost(this.#options.settings.id, withoutSecrets(error, this.#options.redact))
      this.#lost(lost)
      return lost
    }
    const failure = toMcpFailure(error, this.#place(tool))
    // Nobody listens there any more.
    if (failure instanceof NetworkError && !failure.sent) this.#lost(failure)
    return failure
  }

  /** 404 is what the specification says of a session that is not known; many servers answer 400. */
  #isForgotten(error: unknown): boolean {
    if (this.#carrier.name !== 'sse' && this.#carrier.http?.sessionId === undefined) return false
    const status = statusOf(error)
    return status === 404 || (status === 400 && error instanceof Error && /session/i.test(error.message))
  }

  #place(tool: McpCall['tool'] | undefined): ErrorPlace {
    const { settings, redact } = this.#options
    const { stdio } = this.#carrier
    const last = this.#said.findLast((line) => telling.test(line)) ?? this.#said.at(-1)
    const ending = stdio?.ending
    return {
      server: settings.id,
      redact,
      ...(tool === undefined ? {} : { tool }),
      ...(ending === undefined
        ? {}
        : { ending: last === undefined ? ending : `${ending} (it last wrote: ${clip(last, 500)})` }),
    }
  }

  #lost(error: ConvokeError): void {
    if (this.#lostBy !== undefined || this.#closing !== undefined) return
    this.#lostBy = error
    this.#options.onLost(this, error)
  }
}

function isStopped(signal: AbortSignal | undefined): boolean {
  return signal?.aborted === true
}

/** JSON as it was before its secrets were taken out. */
function parsedOr(text: string): Json {
  try {
    return JSON.parse(text) as Json
  } catch {
    return text
  }
}
