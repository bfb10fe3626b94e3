/**
 * What serves MCP hosts: over HTTP for hosts of protocol 2026-07-28 (each request stands alone) and of 2025-11-25
 * and before (sessions), and over stdio for both. A call of a host is a task of this node, so that policy, limits,
 * deadlines and cancel are those of every other door.
 */
import { AsyncLocalStorage } from 'node:async_hooks'
import type { IncomingMessage, ServerResponse } from 'node:http'
import {
  createMcpHandler,
  CLIENT_CAPABILITIES_META_KEY,
  inputResponse,
  isLegacyRequest,
  McpServer,
  type ClientCapabilities,
  type McpHttpHandler,
  type ServerContext,
  type ServerEvent,
  type ServerEventBus,
} from '@modelcontextprotocol/server'
import { serveStdio, StdioServerTransport } from '@modelcontextprotocol/server/stdio'
import { ConvokeError } from '../base/errors.ts'
import { isObject, type JsonObject } from '../base/json.ts'
import type { Caller } from '../tools/tool.ts'
import { Catalogue } from './catalogue.ts'
import { answerKey, HostCall, type CalledTool, unknownTool, type HostRequest, type HostResult } from './host-call.ts'
import type { PublisherOptions, StdioOptions } from './publisher.ts'
import { Sessions, type Connection } from './sessions.ts'
import { sendWebResponse, toWebRequest } from './web-bridge.ts'

/** Changes that follow each other are told once. */
const listChangedDelayMs = 50
const maxSubscriptions = 1024

type Era = 'legacy' | 'modern'

type Capabilities = ClientCapabilities | undefined

/** A server that tells its host of changes by itself. */
interface Listener {
  readonly connection: Connection
  readonly tell: () => void
  /** What the host knows of. */
  digest: string
}

export class HostServer {
  readonly #options: PublisherOptions
  readonly #catalogue: Catalogue
  readonly #sessions: Sessions
  readonly #modern: McpHttpHandler
  readonly #listeners = new Set<Listener>()
  readonly #bySession = new Map<Connection, Listener>()
  /** Whose request it is. What a session knows of its caller is no help: two requests may come with other scopes each. */
  readonly #callers = new AsyncLocalStorage<Caller>()
  readonly #unlink: () => void
  #change: NodeJS.Timeout | undefined
  #stdio: (() => Promise<void>) | undefined

  constructor(options: PublisherOptions) {
    this.#options = options
    this.#catalogue = new Catalogue(options.tools)
    this.#sessions = new Sessions({
      ttlMs: options.sessionTtlMs,
      maxSessions: options.maxSessions,
      keepAliveMs: options.heartbeatMs,
      connect: (connection) => this.#connect(connection),
      closed: (connection) => this.#forget(connection),
    })
    const onerror = (error: Error): void => this.#debug(error)
    this.#modern = createMcpHandler(() => this.#createServer({ caller: this.#caller(), busy: 0 }, 'modern'), {
      legacy: 'reject',
      keepAliveMs: options.heartbeatMs,
      maxSubscriptions,
      bus: this.#createBus(),
      onerror,
    })
    this.#unlink = options.tools.onChange(() => this.#changed())
  }

  /** How many sessions there are. */
  get sessions(): number {
    return this.#sessions.size
  }

  /**
   * Answers a request whose caller is known and whose body, where it is a POST, was read and parsed. Throws
   * `invalid_request` for a body that is no JSON object: batches are not taken.
   */
  async handle(req: IncomingMessage, res: ServerResponse, caller: Caller, body: unknown): Promise<void> {
    if (req.method === 'POST' && !isObject(body)) {
      throw new ConvokeError('invalid_request', 'The body must be one JSON-RPC message; batches are not taken.')
    }
    const request = toWebRequest(req, res)
    const response = await this.#callers.run(caller, async () =>
      (await isLegacyRequest(request, body))
        ? this.#sessions.handle(request, caller, body)
        : this.#modern.fetch(request, { parsedBody: body }),
    )
    await sendWebResponse(res, response)
  }

  /**
   * Serves one host over a pair of streams. Resolves when the host has gone (its end of `stdin`), the streams fail, or
   * {@link close} is called: the host's calls are cancelled then. To be called once.
   */
  serveStdio({ stdin, stdout, caller }: StdioOptions): Promise<void> {
    const connection: Connection = { caller, busy: 0 }
    return new Promise((resolve) => {
      const transport = new StdioServerTransport(stdin, stdout, { maxBufferSize: this.#options.maxMessageBytes })
      const handle = serveStdio(
        ({ era }) => {
          // A probe of the newer protocol may come before the older one; only the last server counts.
          this.#forget(connection)
          return this.#connect(connection, era)
        },
        { transport, maxSubscriptions, onerror: (error) => this.#debug(error) },
      )
      const { onclose } = transport
      transport.onclose = () => {
        onclose?.()
        this.#forget(connection)
        resolve()
      }
      this.#stdio = () => handle.close()
    })
  }

  /** Ends every session, stream and call. */
  async close(): Promise<void> {
    this.#unlink()
    clearTimeout(this.#change)
    await Promise.all([this.#sessions.close(), this.#modern.close(), this.#stdio?.()])
    this.#listeners.clear()
  }

  #caller(): Caller {
    const caller = this.#callers.getStore()
    if (caller === undefined) throw new Error('A request has no caller.')
    return caller
  }

  #connect(connection: Connection, era: Era = 'legacy'): McpServer {
    const published = this.#createServer(connection, era)
    const listener: Listener = {
      connection,
      digest: this.#catalogue.digest(connection.caller),
      tell: () => void published.server.sendToolListChanged().catch((error: unknown) => this.#debug(error)),
    }
    this.#bySession.set(connection, listener)
    this.#listeners.add(listener)
    return published
  }

  #forget(connection: Connection): void {
    const listener = this.#bySession.get(connection)
    if (listener !== undefined) this.#listeners.delete(listener)
    this.#bySession.delete(connection)
  }

  #createServer(connection: Connection, era: Era): McpServer {
    const { agent, tools } = this.#options
    const published = new McpServer(
      { name: agent.name, title: agent.title, version: agent.version },
      {
        capabilities: { tools: { listChanged: true } },
        ...(agent.description === undefined ? {} : { instructions: agent.description }),
      },
    )
    const { server } = published
    server.setRequestHandler('tools/list', async ({ params }, { mcpReq }) => {
      await tools.ready?.(mcpReq.signal)
      return this.#catalogue.page(this.#callers.getStore() ?? connection.caller, params?.cursor)
    })
    server.setRequestHandler('tools/call', async ({ params }, context) => {
      connection.busy++
      try {
        return await this.#call(
          this.#callers.getStore() ?? connection.caller,
          params,
          context,
          era,
          capabilitiesOf(server, context),
        )
      } finally {
        connection.busy--
      }
    })
    server.onerror = (error) => this.#debug(error)
    return published
  }

  async #call(
    caller: Caller,
    { name, arguments: given }: { readonly name: string; readonly arguments?: Record<string, unknown> | undefined },
    { mcpReq }: ServerContext,
    era: Era,
    capabilities: Capabilities,
  ): Promise<HostResult> {
    const params = (given ?? {}) as JsonObject
    const target = this.#catalogue.taskTool(caller, name) ?? (await this.#find(caller, name, mcpReq.signal))
    mcpReq.signal.throwIfAborted()
    const call = new HostCall(
      { ...this.#options, catalogue: this.#catalogue },
      {
        caller,
        signal: mcpReq.signal,
        sendProgress: sendProgressOf(mcpReq),
        asking: this.#askingOf(mcpReq, era, capabilities),
      },
    )
    const tool = typeof target === 'string' ? undefined : target
    const state = era === 'modern' ? mcpReq.requestState<string>() : undefined
    if (state !== undefined) return call.retry(tool, state, inputResponse(mcpReq.inputResponses, answerKey))
    return typeof target === 'string' ? call.follow(target, params) : call.call(target, params)
  }

  /** A host may call what it knows from before as soon as it is connected, so the first look at peers is waited for. */
  async #find(caller: Caller, name: string, signal: AbortSignal): Promise<CalledTool> {
    let handle = this.#catalogue.handleOf(caller, name)
    if (handle === undefined && this.#options.tools.ready !== undefined) {
      await this.#options.tools.ready(signal)
      handle = this.#catalogue.handleOf(caller, name)
    }
    if (handle === undefined) throw unknownTool(name)
    return { name, handle }
  }

  #askingOf(mcpReq: ServerContext['mcpReq'], era: Era, capabilities: Capabilities): HostRequest['asking'] {
    const elicitation = capabilities?.elicitation
    // Before there were modes, `{}` meant forms.
    if (elicitation === undefined || (elicitation.form === undefined && elicitation.url !== undefined)) return undefined
    if (era === 'modern') return { by: 'retry' }
    const { maxWaitMs } = this.#options
    return {
      by: 'elicit',
      elicit: (form) =>
        mcpReq.send(
          { method: 'elicitation/create', params: form },
          // Asked of a person: what keeps the call alive is the same as for the tool itself.
          { timeout: maxWaitMs, signal: mcpReq.signal },
        ),
    }
  }

  #changed(): void {
    this.#catalogue.invalidate()
    this.#change ??= setTimeout(() => {
      this.#change = undefined
      void this.#tellAll()
    }, listChangedDelayMs).unref()
  }

  async #tellAll(): Promise<void> {
    for (const listener of this.#listeners) {
      this.#tellIfChanged(listener)
      // A long list takes some milliseconds for each caller, and there may be many.
      await new Promise((resolve) => setImmediate(resolve))
    }
  }

  #tellIfChanged(listener: Listener): void {
    const digest = this.#catalogue.digest(listener.connection.caller)
    if (digest === listener.digest) return
    listener.digest = digest
    listener.tell()
  }

  /** Each stream that a host of 2026-07-28 listens on hears of its own caller's tools only. */
  #createBus(): ServerEventBus {
    return {
      publish: () => {},
      subscribe: (tell: (event: ServerEvent) => void) => {
        const caller = this.#caller()
        const listener: Listener = {
          connection: { caller, busy: 0 },
          digest: this.#catalogue.digest(caller),
          tell: () => tell({ kind: 'tools_list_changed' }),
        }
        this.#listeners.add(listener)
        return () => this.#listeners.delete(listener)
      },
    }
  }

  #debug(error: unknown): void {
    this.#options.log.debug({ error }, 'An MCP host did something that could not be done.')
  }
}

/** What the host says it can do: with each request in the newer protocol, at the beginning of a session in the older. */
function capabilitiesOf(server: McpServer['server'], { mcpReq }: ServerContext): Capabilities {
  const envelope: { readonly [CLIENT_CAPABILITIES_META_KEY]?: ClientCapabilities } | undefined = mcpReq.envelope
  // oxlint-disable-next-line typescript/no-deprecated -- of a session there is no other place to ask
  return envelope?.[CLIENT_CAPABILITIES_META_KEY] ?? server.getClientCapabilities()
}

function sendProgressOf({ _meta, notify }: ServerContext['mcpReq']): HostRequest['sendProgress'] {
  const progressToken = _meta?.progressToken
  if (progressToken === undefined) return undefined
  return (progress) => notify({ method: 'notifications/progress', params: { progressToken, ...progress } })
}
