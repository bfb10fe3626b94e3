/**
 * The tool space as an MCP server. What serves hosts is loaded with the first of them: most nodes never see one, and the
 * packages for it cost a fifth of a second.
 */
import type { IncomingMessage, ServerResponse } from 'node:http'
import type { Readable, Writable } from 'node:stream'
import { ConvokeError } from '../base/errors.ts'
import type { Logger } from '../base/logger.ts'
import type { Caller } from '../tools/tool.ts'
import type { PublishedTools } from './catalogue.ts'
import type { Patience, TaskDoor } from './host-call.ts'
import type { HostServer } from './host-server.ts'

export type { PublishedTools } from './catalogue.ts'
export type { TaskDoor } from './host-call.ts'

export interface PublisherOptions extends Patience {
  readonly tools: PublishedTools
  readonly tasks: TaskDoor
  /** Who the server says it is. */
  readonly agent: {
    readonly name: string
    readonly title: string
    readonly version: string
    readonly description?: string
  }
  readonly log: Logger
  /** How long a session may lie idle, in milliseconds. */
  readonly sessionTtlMs: number
  readonly maxSessions: number
  /** Largest message over stdio, in bytes. */
  readonly maxMessageBytes: number
}

export interface StdioOptions {
  readonly stdin: Readable
  readonly stdout: Writable
  /** Whose calls they are. */
  readonly caller: Caller
}

export class McpPublisher {
  readonly #options: PublisherOptions
  #server: HostServer | undefined
  #loading: Promise<HostServer> | undefined
  #isClosed = false

  constructor(options: PublisherOptions) {
    this.#options = options
  }

  /** How many sessions there are. */
  get sessions(): number {
    return this.#server?.sessions ?? 0
  }

  /**
   * Answers a request whose caller is known and whose body, where it is a POST, was read and parsed. Throws
   * `invalid_request` for a body that is no JSON object: batches are not taken.
   */
  async handle(req: IncomingMessage, res: ServerResponse, caller: Caller, body: unknown): Promise<void> {
    const server = await this.#load()
    await server.handle(req, res, caller, body)
  }

  /**
   * Serves one host over a pair of streams. Resolves when the host has gone (its end of `stdin`), the streams fail, or
   * {@link close} is called: the host's calls are cancelled then. To be called once.
   */
  async serveStdio(options: StdioOptions): Promise<void> {
    const server = await this.#load()
    await server.serveStdio(options)
  }

  /** Ends every session, stream and call; no further one begins. */
  async close(): Promise<void> {
    this.#isClosed = true
    const server = await this.#loading
    await server?.close()
  }

  async #load(): Promise<HostServer> {
    if (this.#isClosed) throw new ConvokeError('unavailable', 'The node is shutting down.')
    if (this.#server !== undefined) return this.#server
    this.#loading ??= import('./host-server.ts').then((loaded) => new loaded.HostServer(this.#options))
    this.#server = await this.#loading
    return this.#server
  }
}
