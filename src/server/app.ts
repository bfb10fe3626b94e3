/** The HTTP server: every route on one screen, and how it starts and stops. */
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http'
import type { AddressInfo, Socket } from 'node:net'
import express, { type NextFunction, type Request, type Response } from 'express'
import { ConvokeError } from '../base/errors.ts'
import type { Logger } from '../base/logger.ts'
import { toRestError } from '../protocol/wire-errors.ts'
import type { CardRoute } from './card-route.ts'
import type { Gatekeeper } from './http.ts'
import { sendText } from './http.ts'
import { JsonRpcDoor } from './jsonrpc.ts'
import type { LegacyDoor } from './legacy.ts'
import { McpDoor, type McpDoorOptions } from './mcp-door.ts'
import type { Operations } from './operations.ts'
import { createRestRouter, sendError } from './rest.ts'

export interface AppOptions {
  readonly operations: Operations
  readonly legacy: LegacyDoor
  readonly cardRoute: CardRoute
  /** Where MCP hosts come in; undefined for a node that has no such door. */
  readonly mcp: McpDoorOptions | undefined
  readonly gatekeeper: Gatekeeper
  readonly log: Logger
  /** `''`, or a path with a slash in front and none behind. */
  readonly basePath: string
  readonly maxBodyBytes: number
  readonly heartbeatMs: number
  readonly headersTimeoutMs: number
  readonly requestTimeoutMs: number
  /** Resolves when the node can serve; rejects with what keeps it from that. */
  readonly ready: () => Promise<void>
}

const cardPaths = new Set(['/.well-known/agent-card.json', '/.well-known/agent.json'])

/** How long a closing server waits for readers to take what was written for them. */
const flushMs = 2000

/** What is answered to something that never became a request. */
const clientErrors: Record<string, string> = {
  ERR_HTTP_REQUEST_TIMEOUT: '408 Request Timeout',
  HPE_HEADER_OVERFLOW: '431 Request Header Fields Too Large',
}

export class HttpApp {
  readonly #server: Server
  readonly #rpc: JsonRpcDoor
  readonly #mcp: McpDoor | undefined
  readonly #options: AppOptions
  /** Connections without a request so far: clients open them ahead of need. */
  readonly #unused = new Set<Socket>()
  /** Resolves when the last connection is gone. */
  #closed: Promise<void> = Promise.resolve()

  constructor(options: AppOptions) {
    this.#options = options
    this.#rpc = new JsonRpcDoor(options)
    this.#mcp = options.mcp === undefined ? undefined : new McpDoor({ ...options, ...options.mcp })
    const app = this.#routes()
    // Node looks for slow clients only so often; the default of 30 s would stretch every limit below by as much.
    this.#server = createServer({ connectionsCheckingInterval: 1000 }, (req, res) => {
      this.#unused.delete(req.socket)
      req.url = withoutBase(req.url ?? '/', options.basePath)
      if (!this.#takeHot(req, res)) app(req, res)
    })
    this.#server.on('connection', (socket) => {
      this.#unused.add(socket)
      socket.once('close', () => this.#unused.delete(socket))
    })
    this.#server.headersTimeout = options.headersTimeoutMs
    this.#server.requestTimeout = options.requestTimeoutMs
    this.#server.on('clientError', (error: NodeJS.ErrnoException, socket) => {
      if (!socket.writable) return socket.destroy()
      socket.end(
        `HTTP/1.1 ${clientErrors[error.code ?? ''] ?? '400 Bad Request'}\r\nconnection: close\r\ncontent-length: 0\r\n\r\n`,
      )
    })
  }

  /** Listens. Rejects with `unavailable` when the address is taken or not ours. */
  listen(host: string, port: number): Promise<number> {
    return new Promise((resolve, reject) => {
      this.#server.once('error', (cause: NodeJS.ErrnoException) => {
        const why =
          cause.code === 'EADDRINUSE'
            ? 'is in use by another process; choose another port, or 0 for any'
            : `cannot be listened on (${cause.code})`
        reject(new ConvokeError('unavailable', `${host}:${port} ${why}.`, { cause }))
      })
      this.#server.listen(port, host, () => resolve((this.#server.address() as AddressInfo).port))
    })
  }

  /** Takes no new connections, and closes those that are idle. Streams and calls under way go on. */
  stopListening(): void {
    if (this.#server.listening) this.#closed = new Promise((resolve) => this.#server.close(() => resolve()))
    this.#server.closeIdleConnections()
    // Node does not count a connection as idle that has carried no request yet.
    for (const socket of this.#unused) socket.destroy()
  }

  /** Waits a moment for answers under way to leave, then closes every connection. */
  async close(): Promise<void> {
    this.stopListening()
    // A connection is idle as soon as its answer has left; node would keep it open for the next request.
    const idle = setInterval(() => this.#server.closeIdleConnections(), 10)
    const late = setTimeout(() => this.#server.closeAllConnections(), flushMs)
    await this.#closed
    clearInterval(idle)
    clearTimeout(late)
  }

  /** The requests that come most often. Express would cost several times the work itself. */
  #takeHot(req: IncomingMessage, res: ServerResponse): boolean {
    const { method, url } = req
    if (this.#mcp !== undefined && this.#mcp.isAt(url ?? '')) {
      void this.#mcp.handle(req, res)
      return true
    }
    if (method === 'POST') {
      if (url !== '/' && url?.startsWith('/?') !== true) return false
      void this.#rpc.handle(req, res)
      return true
    }
    if (method !== 'GET' && method !== 'HEAD') return false
    const path = url?.split('?', 1)[0] ?? ''
    if (!cardPaths.has(path)) return false
    this.#serve(req, res, () => this.#options.cardRoute.handle(req, res))
    return true
  }

  #routes(): express.Express {
    const { operations, cardRoute, log } = this.#options
    const app = express()
    app.disable('x-powered-by')
    app.disable('etag')

    app.get('/', (req, res) => this.#serve(req, res, () => this.#welcome(res)))
    app.get('/tools', (req, res) => this.#serve(req, res, () => cardRoute.handleTools(req, res)))
    app.get('/healthz', (_req, res) => sendText(res, 200, 'application/json', '{"status":"ok"}'))
    app.get('/readyz', async (_req, res) => this.#ready(res))
    app.use(createRestRouter({ ...this.#options, operations }))

    app.use((req: Request, res: Response) => {
      const { pathname } = new URL(req.url, 'http://node')
      const text = `There is nothing at ${req.method} ${pathname.slice(0, 100)}. The agent card is at /.well-known/agent-card.json.`
      sendText(
        res,
        404,
        'application/json',
        JSON.stringify(toRestError(new ConvokeError('method_not_found', text)).body),
      )
    })
    app.use((error: unknown, req: Request, res: Response, _next: NextFunction) => {
      // A path that cannot be decoded is the caller's mistake; express says so with a 400 of its own.
      const isTheirs = error instanceof URIError || (error as { status?: number }).status === 400
      sendError(
        req,
        res,
        isTheirs ? new ConvokeError('invalid_request', 'The URL is not valid.', { cause: error }) : error,
        log,
      )
    })
    return app
  }

  /** Public documents: no credentials, but the same guard against foreign pages. */
  #serve(req: IncomingMessage, res: ServerResponse, serve: () => void): void {
    try {
      this.#options.gatekeeper.guard(req.headers)
      serve()
    } catch (error) {
      const { httpStatus, body } = toRestError(error)
      sendText(res, httpStatus, 'application/json', JSON.stringify(body))
    }
  }

  #welcome(res: ServerResponse): void {
    const doors = {
      agentCard: '/.well-known/agent-card.json',
      jsonRpc: 'POST /',
      httpJson: 'POST /message:send',
      ...(this.#options.mcp === undefined ? {} : { mcp: this.#options.mcp.path }),
      health: '/healthz',
    }
    sendText(res, 200, 'application/json', JSON.stringify(doors))
  }

  async #ready(res: ServerResponse): Promise<void> {
    try {
      await this.#options.ready()
      sendText(res, 200, 'application/json', '{"status":"ready"}')
    } catch (error) {
      const { message } = ConvokeError.from(error)
      sendText(res, 503, 'application/json', JSON.stringify({ status: 'unavailable', message }), { 'retry-after': '1' })
    }
  }
}

/** The path below the base path. A proxy may have taken the base off already. */
function withoutBase(target: string, basePath: string): string {
  // A request to a proxy names the whole URL: RFC 9112, section 3.2.2.
  const url = target.startsWith('http') && URL.canParse(target) ? target.slice(new URL(target).origin.length) : target
  if (basePath === '' || !url.startsWith(basePath)) return url
  const rest = url.slice(basePath.length)
  if (rest === '' || rest.startsWith('?')) return `/${rest}`
  return rest.startsWith('/') ? rest : url
}
