/**
 * One configured MCP server: its one connection, opened when it is first needed and again after it was lost, and the
 * tools that it was last known to have.
 */
import { abortReason, firstOf, pause } from '../base/abort.ts'
import { ConvokeError } from '../base/errors.ts'
import { NetworkError } from '../base/network-error.ts'
import type { JsonObject } from '../base/json.ts'
import type { Logger } from '../base/logger.ts'
import { createRedactor } from '../base/redact.ts'
import { SharedWork } from '../base/shared-work.ts'
import type { SourceStatus } from '../tools/source.ts'
import type { Tool } from '../tools/tool.ts'
import type { McpCall } from './calls.ts'
import type { Connection, ConnectionOptions, ServerInfo } from './connection.ts'
import { SessionLost } from './errors.ts'
import { KnownTools } from './known-tools.ts'
import { readListing, type McpToolInfo } from './listing.ts'
import { createMcpTool } from './mcp-tool.ts'
import { secretsOf, type ServerSettings } from './server-options.ts'
import type { Environment } from './stdio-transport.ts'

export interface McpServerContext {
  readonly environment: Environment
  readonly log: Logger
  /** What servers are told that they talk to. */
  readonly clientInfo: { readonly name: string; readonly version: string }
  /** Hears of each change of the known tools. */
  readonly onChange: () => void
}

/** How a server is. Nothing in it is a secret. */
export interface McpServerHealth {
  readonly id: string
  /** `idle`: not connected, and no reason to be; the next call connects. */
  readonly state: 'idle' | 'connecting' | 'up' | 'down' | 'disabled'
  readonly transport: 'stdio' | 'http' | 'sse'
  readonly tools: number
  /** How often it was connected to again. */
  readonly restarts: number
  /** Why it is down. */
  readonly lastError?: string
  /** When the state began, in milliseconds since 1970. */
  readonly since: number
  readonly serverInfo?: ServerInfo
  /** The id of its process, where it is one of ours that runs. */
  readonly pid?: number
}

/** A ping takes no longer than a connect may. */
const maxPingMs = 10_000
/** After a failure to connect; doubles with each further one. */
const firstBackoffMs = 500
const maxBackoffMs = 30_000
/** How many lost connections in how long are replaced at once. A server that dies more often waits. */
const maxLosses = 10
const lossWindowMs = 60_000
/** Changes of a list come in bursts: each is waited for this long, in milliseconds. */
const gatherMs = 50

export class McpServer {
  readonly settings: ServerSettings
  readonly #context: McpServerContext
  #redact: (text: string) => string
  readonly #connecting = new SharedWork<Connection>()
  readonly #discovering = new SharedWork<void>()
  readonly #tools: KnownTools
  /** Connections that are being ended. */
  readonly #ending = new Set<Promise<void>>()
  readonly #closed = new AbortController()
  #connection: Connection | undefined
  #state: 'idle' | 'connecting' | 'up' | 'down' = 'idle'
  #since = Date.now()
  #lastTransport: 'stdio' | 'http' | 'sse' | undefined
  #info: ServerInfo | undefined
  #connections = 0
  #lastFailure: ConvokeError | undefined
  #failures = 0
  #losses: number[] = []
  /** Before this no call connects, in milliseconds since 1970. */
  #notBefore = 0
  #pinging: NodeJS.Timeout | undefined
  #idling: NodeJS.Timeout | undefined
  /** The server may have other tools than those that are known. */
  #isStale = false
  #refreshing: Promise<void> | undefined

  constructor(settings: ServerSettings, context: McpServerContext) {
    this.settings = settings
    this.#context = context
    this.#redact = createRedactor(secretsOf(settings))
    const { log, onChange } = context
    this.#tools = new KnownTools({ settings, log, onChange, toTool: (info) => this.#toTool(info) })
  }

  get health(): McpServerHealth {
    const { id, transport, isDisabled } = this.settings
    const pid = this.#connection?.pid
    const failure = this.#state === 'down' ? this.#lastFailure : undefined
    return {
      id,
      state: isDisabled ? 'disabled' : this.#state,
      transport: this.#lastTransport ?? (transport.type === 'auto' ? 'http' : transport.type),
      tools: this.list().length,
      restarts: Math.max(0, this.#connections - 1),
      ...(failure === undefined ? {} : { lastError: failure.message }),
      since: this.#since,
      ...(this.#info === undefined ? {} : { serverInfo: this.#info }),
      ...(pid === undefined ? {} : { pid }),
    }
  }

  get status(): SourceStatus {
    return this.#tools.status
  }

  /** The tools that are known and can be used, in the server's order. */
  list(): Tool[] {
    return this.#tools.list()
  }

  /** As {@link ToolSource.resolve}. */
  resolve(name: string, signal?: AbortSignal): Tool | Promise<Tool> {
    const tool = this.#tools.get(name)
    if (tool !== undefined) return tool
    if (this.settings.isDisabled) throw this.#disabled()
    if (this.#tools.isAttempted && !this.#discovering.isRunning) throw this.#tools.missing(name)
    return this.#resolveLater(name, signal)
  }

  async #resolveLater(name: string, signal: AbortSignal | undefined): Promise<Tool> {
    try {
      await this.discover(signal)
    } catch {
      // A lookup is silent about it; the status and the cause of what is thrown now tell.
    }
    const tool = this.#tools.get(name)
    if (tool === undefined) throw this.#tools.missing(name)
    return tool
  }

  /** Asks the server for its tools now, connecting to it if need be. Rejects with why that failed; the known tools stay. */
  discover(signal?: AbortSignal): Promise<void> {
    return this.#discovering.run((stop) => this.#discover(stop), signal)
  }

  async #discover(signal: AbortSignal): Promise<void> {
    const { settings } = this
    try {
      const connection = await this.connect(signal)
      this.#isStale = false
      const listed = await connection.listTools(signal)
      this.#tools.found(readListing(listed, (name) => settings.wants(name)))
    } catch (error) {
      const failure = ConvokeError.from(error)
      // Nobody wanted to know any more, which says nothing of the server.
      if (signal.aborted || this.#closed.signal.aborted) throw failure
      this.#tools.notFound(failure)
      this.#context.log.warn(
        { server: settings.id, error: failure },
        'The tools of an MCP server could not be found out.',
      )
      throw failure
    }
  }

  /** Forgets the tools, and that they were asked for. */
  invalidate(): void {
    this.#tools.forget()
  }

  /** The connection, opened now if there is none. Throws why it cannot be. */
  async connect(signal?: AbortSignal): Promise<Connection> {
    if (this.#closed.signal.aborted) throw abortReason(this.#closed.signal)
    if (this.settings.isDisabled) throw this.#disabled()
    return this.#connection ?? (await this.#connecting.run((stop) => this.#open(stop), signal))
  }

  /** Calls a tool. A call that the server has certainly not looked at goes out once more, over a new connection. */
  async call(params: JsonObject, call: McpCall): Promise<JsonObject> {
    clearTimeout(this.#idling)
    try {
      for (let isFirst = true; ; isFirst = false) {
        const connection = this.#connection ?? (await this.#reconnect(call.signal))
        try {
          return await connection.call(params, call)
        } catch (error) {
          const isUntouched = error instanceof SessionLost || (error instanceof NetworkError && !error.sent)
          if (!isFirst || !isUntouched) throw error
        }
      }
    } finally {
      this.#idle()
    }
  }

  /** Ends the connection and the server's process; calls under way fail. What is called afterwards fails. */
  async close(): Promise<void> {
    if (!this.#closed.signal.aborted) {
      this.#closed.abort(
        new ConvokeError('unavailable', `The connection to the MCP server ${this.settings.id} is closed.`),
      )
      this.#end('idle')
      this.#tools.drop()
    }
    await Promise.all([...this.#ending, this.#refreshing])
  }

  async #reconnect(signal: AbortSignal | undefined): Promise<Connection> {
    const waitMs = this.#notBefore - Date.now()
    if (waitMs > 0 && !this.#connecting.isRunning) {
      const why = this.#lastFailure === undefined ? '' : ` ${this.#lastFailure.message}`
      const text = `The MCP server ${this.settings.id} is down, and is tried again in ${Math.ceil(waitMs / 1000)} s.${why}`
      throw new ConvokeError('unavailable', text, { cause: this.#lastFailure, retryAfterMs: waitMs })
    }
    const connection = await this.connect(signal)
    // Another process, or another session, may have other tools.
    if (this.#isStale) this.#refresh()
    return connection
  }

  async #open(signal: AbortSignal): Promise<Connection> {
    const { settings } = this
    const { environment, log, clientInfo } = this.#context
    this.#enter('connecting')
    const stop = firstOf(signal, this.#closed.signal)
    const opening = openConnection(
      {
        settings,
        environment,
        log,
        clientInfo,
        redact: (text) => this.#redact(text),
        onSecrets: (more) => {
          this.#redact = createRedactor([...secretsOf(settings), ...more])
        },
        onListChanged: () => {
          this.#isStale = true
          this.#refresh()
        },
        onLost: (connection, error) => this.#lost(connection, error),
      },
      stop.signal,
    )
    // Whoever closes the server waits for what is being opened, too: there may be a process already.
    this.#track(opening)
    try {
      const connection = await opening
      if (connection.lost !== undefined) {
        this.#track(connection.close())
        throw connection.lost
      }
      this.#opened(connection)
      return connection
    } catch (error) {
      const failure = ConvokeError.from(error)
      if (stop.signal.aborted) {
        this.#enter('idle')
        throw failure
      }
      this.#failures++
      this.#notBefore = Date.now() + Math.min(firstBackoffMs * 2 ** (this.#failures - 1), maxBackoffMs)
      this.#fail(failure, 'An MCP server cannot be connected to.')
      throw failure
    } finally {
      stop.end()
    }
  }

  #opened(connection: Connection): void {
    this.#connection = connection
    this.#connections++
    this.#failures = 0
    this.#notBefore = 0
    this.#lastFailure = undefined
    this.#lastTransport = connection.transport
    this.#info = connection.info
    if (this.#connections > 1) this.#isStale = true
    this.#enter('up')
    const { pingIntervalMs } = this.settings
    if (pingIntervalMs > 0) this.#pinging = setInterval(() => void this.#ping(connection), pingIntervalMs).unref()
    this.#idle()
  }

  /** A connection ended by itself. The next call opens another; one that is lost again and again has to wait. */
  #lost(connection: Connection, error: ConvokeError): void {
    if (this.#connection !== connection) return
    const now = Date.now()
    this.#losses = [...this.#losses.filter((each) => each > now - lossWindowMs), now]
    const [oldest = now] = this.#losses
    if (this.#losses.length > maxLosses) this.#notBefore = oldest + lossWindowMs
    this.#end('down')
    this.#fail(error, 'An MCP server is gone.')
  }

  #fail(error: ConvokeError, message: string): void {
    this.#lastFailure = error
    this.#enter('down')
    this.#context.log.warn({ server: this.settings.id, error }, message)
  }

  #end(state: 'idle' | 'down'): void {
    const connection = this.#connection
    clearInterval(this.#pinging)
    clearTimeout(this.#idling)
    this.#connection = undefined
    this.#enter(state)
    if (connection !== undefined) this.#track(connection.close())
  }

  #track(work: Promise<unknown>): void {
    const ended = work.then(
      () => {},
      () => {},
    )
    this.#ending.add(ended)
    void ended.then(() => this.#ending.delete(ended))
  }

  #enter(state: 'idle' | 'connecting' | 'up' | 'down'): void {
    if (this.#state === state) return
    this.#state = state
    this.#since = Date.now()
  }

  async #ping(connection: Connection): Promise<void> {
    // One that works may have no time to say so.
    if (connection.calls > 0) return
    try {
      await connection.ping(Math.min(maxPingMs, this.settings.connectTimeoutMs))
    } catch (error) {
      const failure = ConvokeError.from(error)
      // Whoever answers with an error is there.
      if (failure.code !== 'timeout' && failure.code !== 'network') return
      if (connection.calls === 0) this.#lost(connection, failure)
    }
  }

  #idle(): void {
    const { idleMs } = this.settings
    if (idleMs === undefined || this.#connection === undefined || this.#connection.calls > 0) return
    clearTimeout(this.#idling)
    this.#idling = setTimeout(() => {
      if (this.#connection?.calls === 0) this.#end('idle')
    }, idleMs).unref()
  }

  /** Asks for the tools again, once for all who say so meanwhile. Its failure stands in the status. */
  #refresh(): void {
    if (!this.#tools.isAttempted || this.#closed.signal.aborted) return
    this.#refreshing ??= this.#refreshNow().finally(() => {
      this.#refreshing = undefined
    })
  }

  async #refreshNow(): Promise<void> {
    await pause(gatherMs, this.#closed.signal)
    // A change during the listing may not be in it.
    while (this.#isStale && this.#tools.isAttempted && !this.#closed.signal.aborted) {
      // A server that is down is asked when it is connected to again.
      if (this.#connection === undefined) return
      try {
        await this.discover(this.#closed.signal)
      } catch {
        return
      }
      if (this.#isStale) await pause(gatherMs, this.#closed.signal)
    }
  }

  #toTool(info: McpToolInfo): Tool {
    return createMcpTool({
      server: this.settings.id,
      info,
      timeoutMs: this.settings.timeoutMs,
      redact: (text) => this.#redact(text),
      call: (params, call) => this.call(params, call),
      onStale: () => {
        this.#isStale = true
        this.#refresh()
      },
    })
  }

  #disabled(): ConvokeError {
    return new ConvokeError('not_found', `The MCP server ${this.settings.id} is disabled in the configuration.`)
  }
}

/** Loads the SDK, which takes longer than all else of a node, at the first connect only. */
async function openConnection(options: ConnectionOptions, signal: AbortSignal): Promise<Connection> {
  const module = await import('./connection.ts')
  if (signal.aborted) throw abortReason(signal)
  return await module.Connection.open(options, signal)
}
