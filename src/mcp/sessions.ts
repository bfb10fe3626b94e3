/** Sessions of hosts that speak MCP up to 2025-11-25 over HTTP: who has one, how long it lives, how many there are. */
import { randomUUID } from 'node:crypto'
import { WebStandardStreamableHTTPServerTransport, type McpServer } from '@modelcontextprotocol/server'
import { ConvokeError } from '../base/errors.ts'
import type { Caller } from '../tools/tool.ts'
import { isObject } from '../base/json.ts'
import { EventReplay, type ReplayBudget } from './event-replay.ts'

export interface SessionOptions {
  /** How long a session may lie idle, in milliseconds. */
  readonly ttlMs: number
  readonly maxSessions: number
  readonly keepAliveMs: number
  /** Makes the server of a session. */
  readonly connect: (connection: Connection) => McpServer
  /** The session is over. */
  readonly closed: (connection: Connection) => void
}

/** One host that is connected: who it is, and what it does. */
export interface Connection {
  /** The newest credentials that it came with. */
  caller: Caller
  /** Calls under way, and answers that are being read. */
  busy: number
}

interface Session extends Connection {
  readonly id: string
  readonly transport: WebStandardStreamableHTTPServerTransport
  readonly server: McpServer
  /** GETs that are open: many hosts keep one for as long as they live. */
  streams: number
  idleSince: number
}

export class Sessions {
  readonly #options: SessionOptions
  /** Least lately used first. */
  readonly #sessions = new Map<string, Session>()
  readonly #sweeper: NodeJS.Timeout
  readonly #replayBudget: ReplayBudget = { chars: 0 }
  #isClosed = false

  constructor(options: SessionOptions) {
    this.#options = options
    this.#sweeper = setInterval(() => this.#sweep(), Math.max(10, Math.min(options.ttlMs / 2, 60_000)))
    this.#sweeper.unref()
  }

  get size(): number {
    return this.#sessions.size
  }

  /**
   * The answer to a request of such a host. A session belongs to the caller that began it; for any other it is not
   * there.
   */
  async handle(request: Request, caller: Caller, body: unknown): Promise<Response> {
    if (this.#isClosed) throw new ConvokeError('unavailable', 'The node is shutting down.')
    const id = request.headers.get('mcp-session-id')
    if (id === null) {
      if (!methods.has(request.method))
        return refusal(405, -32000, 'Method not allowed.', { allow: [...methods].join() })
      if (isObject(body) && body['method'] === 'initialize') return this.#begin(request, caller, body)
      return refusal(400, -32000, 'The header Mcp-Session-Id is missing. `initialize` begins a session.')
    }
    const session = this.#sessions.get(id)
    if (session === undefined || !isSame(session.caller, caller)) {
      return refusal(404, -32001, 'There is no such session. Begin a new one.')
    }
    // The same caller may have come with other scopes.
    session.caller = caller
    return this.#serve(session, request, body)
  }

  /** Ends every session: what its host has called is cancelled. */
  async close(): Promise<void> {
    this.#isClosed = true
    clearInterval(this.#sweeper)
    await Promise.all([...this.#sessions.values()].map((session) => this.#end(session)))
  }

  async #begin(request: Request, caller: Caller, body: unknown): Promise<Response> {
    const id = randomUUID()
    const eventStore = new EventReplay(this.#replayBudget)
    const transport = new WebStandardStreamableHTTPServerTransport({
      sessionIdGenerator: () => id,
      eventStore,
      keepAliveMs: this.#options.keepAliveMs,
    })
    const connection: Connection = { caller, busy: 0 }
    const server = this.#options.connect(connection)
    const session: Session = Object.assign(connection, { id, transport, server, streams: 0, idleSince: Date.now() })
    await server.connect(transport)
    server.server.onclose = () => {
      this.#sessions.delete(id)
      eventStore.clear()
      this.#options.closed(connection)
    }
    // The transport calls a session its own once it has seen a good `initialize`.
    const response = await this.#serve(session, request, body)
    if (transport.sessionId === undefined || this.#isClosed) {
      await server.close()
    } else if (this.#makeRoom(caller)) {
      this.#sessions.set(id, session)
    } else {
      await response.body?.cancel()
      await server.close()
      throw new ConvokeError('rate_limited', 'There are too many sessions, and all of them are at work.')
    }
    return response
  }

  async #serve(session: Session, request: Request, body: unknown): Promise<Response> {
    const kind = request.method === 'GET' ? 'streams' : 'busy'
    session[kind]++
    const done = (): void => {
      session[kind]--
      this.#touch(session)
    }
    try {
      const response = await session.transport.handleRequest(request, { parsedBody: body })
      if (response.body === null) {
        done()
        return response
      }
      return whenRead(response, done)
    } catch (error) {
      done()
      throw error
    }
  }

  /** Puts it behind all others. */
  #touch(session: Session): void {
    session.idleSince = Date.now()
    if (this.#sessions.delete(session.id)) this.#sessions.set(session.id, session)
  }

  /** Ends the session that has called nothing for the longest, of this caller before any other's. Whether there is room now. */
  #makeRoom(caller: Caller): boolean {
    if (this.#sessions.size < this.#options.maxSessions) return true
    const idle = [...this.#sessions.values()].filter(({ busy }) => busy === 0)
    const eldest = idle.find((session) => isSame(session.caller, caller)) ?? idle[0]
    if (eldest === undefined) return false
    void this.#end(eldest)
    return true
  }

  #sweep(): void {
    const before = Date.now() - this.#options.ttlMs
    for (const session of this.#sessions.values()) {
      if (session.busy === 0 && session.streams === 0 && session.idleSince <= before) void this.#end(session)
    }
  }

  async #end(session: Session): Promise<void> {
    this.#sessions.delete(session.id)
    await session.server.close()
  }
}

const methods = new Set(['GET', 'POST', 'DELETE'])

function refusal(status: number, code: number, message: string, headers: Record<string, string> = {}): Response {
  return Response.json({ jsonrpc: '2.0', error: { code, message }, id: null }, { status, headers })
}

function isSame(a: Caller, b: Caller): boolean {
  return a.id === b.id && a.tenant === b.tenant
}

/** The response; `done` is called once its body has been read or given up. */
function whenRead(response: Response, done: () => void): Response {
  const body = (response.body as ReadableStream<Uint8Array>).getReader()
  let isDone = false
  const end = (): void => {
    if (!isDone) done()
    isDone = true
  }
  const watched = new ReadableStream<Uint8Array>(
    {
      async pull(controller) {
        try {
          const step = await body.read()
          if (!step.done) return controller.enqueue(step.value)
          end()
          controller.close()
        } catch (error) {
          end()
          controller.error(error)
        }
      },
      async cancel(reason) {
        end()
        await body.cancel(reason)
      },
    },
    { highWaterMark: 0 },
  )
  return new Response(watched, { status: response.status, headers: response.headers })
}
