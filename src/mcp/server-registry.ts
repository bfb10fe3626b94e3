/** The MCP servers of one agent, and their tools: `SERVER.NAME`. */
import { ConvokeError } from '../base/errors.ts'
import { silentLog, type Logger } from '../base/logger.ts'
import { KeyError } from '../tools/local.ts'
import type { SourceStatus, ToolSource } from '../tools/source.ts'
import type { Tool } from '../tools/tool.ts'
import { excerpt } from '../tools/value.ts'
import { McpServer, type McpServerHealth } from './mcp-server.ts'
import { serviceId, toServerSettings, toServiceId, type McpServerOptions } from './server-options.ts'
import type { Environment } from './stdio-transport.ts'

export interface McpServerRegistryOptions {
  /** By the id that their tools are called with. One that is no id gets a safe one, and a warning. Default: none. */
  readonly servers?: Readonly<Record<string, McpServerOptions>>
  readonly log?: Logger
  /** What relative paths start from. Default: the working directory. */
  readonly baseDir?: string
  /** The variables of this process: servers get PATH, HOME and a few more of them, and nothing else. Default: none. */
  readonly environment?: Environment
  /** What servers are told that they talk to. */
  readonly clientInfo?: { readonly name: string; readonly version: string }
}

/**
 * MCP servers as a source of tools. Nothing is started before it is needed. Each registry has connections and processes of
 * its own: two with the same ids and other credentials never meet.
 */
export class McpServerRegistry implements ToolSource {
  readonly kind = 'mcp'
  readonly #servers = new Map<string, McpServer>()
  readonly #listeners = new Set<() => void>()
  readonly #skipped: string[] = []
  readonly #log: Logger
  readonly #baseDir: string
  readonly #environment: Environment
  readonly #clientInfo: { readonly name: string; readonly version: string }
  /** Servers that were taken out and are being ended. */
  readonly #ending = new Set<Promise<void>>()
  #revision = 0
  #isClosed = false

  /** A server that makes no sense is left out, with a warning; the others are not. */
  constructor(options: McpServerRegistryOptions = {}) {
    this.#log = options.log ?? silentLog
    this.#baseDir = options.baseDir ?? '.'
    this.#environment = options.environment ?? {}
    this.#clientInfo = options.clientInfo ?? { name: 'convoke', version: '1' }
    const given = Object.entries(options.servers ?? {})
    const named = new Set(given.map(([name]) => name))
    for (const [name, server] of given) {
      const id = toServiceId(name, (each) => this.#servers.has(each) || (each !== name && named.has(each)))
      if (id !== name)
        this.#log.warn(
          `The MCP server ${excerpt(name)} is called ${id} here: an id is 1 to 64 letters, digits, _ or -.`,
        )
      const problem = this.#add(id, server)
      if (problem === undefined) continue
      const skipped = `The MCP server ${id} is left out: ${problem}.`
      this.#skipped.push(skipped)
      this.#log.warn(skipped)
    }
  }

  /** The servers that were left out, and why, a sentence each. */
  get skipped(): readonly string[] {
    return this.#skipped
  }

  get revision(): number {
    return this.#revision
  }

  /** Without those that are disabled. */
  services(): readonly string[] {
    return [...this.#servers.values()].filter(({ settings }) => !settings.isDisabled).map(({ settings }) => settings.id)
  }

  /** Whether there is a server of that id, disabled or not. */
  has(server: string): boolean {
    return this.#servers.has(server)
  }

  /** How each server is, in the order of configuration. Asks nobody. */
  health(): McpServerHealth[] {
    return [...this.#servers.values()].map((server) => server.health)
  }

  list(): Tool[] {
    return [...this.#servers.values()].flatMap((server) => server.list())
  }

  /** As {@link ToolSource.resolve}. Who aborts `signal` leaves; the last one stops the connecting. */
  resolve(server: string, name: string, signal?: AbortSignal): Tool | Promise<Tool> {
    return this.#get(server).resolve(name, signal)
  }

  async discover(server: string, { signal }: { readonly signal?: AbortSignal } = {}): Promise<void> {
    await this.#get(server).discover(signal)
  }

  /** Connects to a server, or waits until it is connected. Throws why it cannot be. */
  async connect(server: string, { signal }: { readonly signal?: AbortSignal } = {}): Promise<void> {
    await this.#get(server).connect(signal)
  }

  invalidate(server: string): void {
    this.#servers.get(server)?.invalidate()
  }

  status(server: string): SourceStatus {
    return this.#servers.get(server)?.status ?? { state: 'never', tools: 0 }
  }

  /**
   * Adds a server. Throws `config` for an id that is none or is taken, and for options that make no sense; what in them is
   * not understood is logged.
   */
  register(server: string, options: McpServerOptions): void {
    if (this.#isClosed) throw new ConvokeError('unavailable', 'The registry of MCP servers is closed.')
    if (!serviceId.test(server)) {
      const text = `The id of an MCP server must be 1 to 64 letters, digits, _ or -, got ${excerpt(server)}.`
      throw new ConvokeError('config', text)
    }
    if (this.#servers.has(server))
      throw new ConvokeError('config', `There is an MCP server ${excerpt(server)} already.`)
    const problem = this.#add(server, options)
    if (problem !== undefined) throw new ConvokeError('config', `The MCP server ${server} cannot be used: ${problem}.`)
  }

  /** Takes a server out with its tools, and ends it. Calls under way fail. Resolves, when all is gone, with whether it was there. */
  async deregister(server: string): Promise<boolean> {
    const found = this.#servers.get(server)
    if (found === undefined) return false
    const hadTools = found.list().length > 0
    this.#servers.delete(server)
    const ended = found.close()
    this.#ending.add(ended)
    if (hadTools) this.#changed()
    await ended
    this.#ending.delete(ended)
    return true
  }

  /** Calls the listener after each change of the known tools. One that throws is logged. Returns how to take it back. */
  onChange(listener: () => void): () => void {
    this.#listeners.add(listener)
    return () => this.#listeners.delete(listener)
  }

  /** Ends all servers and connections; calls under way fail. Resolves when every process is gone. */
  async close(): Promise<void> {
    this.#isClosed = true
    await Promise.all([...[...this.#servers.values()].map((server) => server.close()), ...this.#ending])
  }

  #get(server: string): McpServer {
    const found = this.#servers.get(server)
    if (found === undefined) throw new KeyError(`There is no MCP server ${excerpt(server)} here.`)
    return found
  }

  /** What makes the server useless; undefined when it was added. */
  #add(id: string, options: McpServerOptions): string | undefined {
    const { settings, warnings } = toServerSettings(id, options, this.#baseDir)
    for (const warning of warnings) this.#log.warn(`The MCP server ${id} ${warning}.`)
    if (typeof settings === 'string') return settings
    const context = {
      environment: this.#environment,
      log: this.#log,
      clientInfo: this.#clientInfo,
      onChange: () => this.#changed(),
    }
    this.#servers.set(id, new McpServer(settings, context))
    return undefined
  }

  #changed(): void {
    this.#revision++
    for (const listener of this.#listeners) {
      try {
        listener()
      } catch (error) {
        // It is no failure of the server, and no reason to keep the change from others.
        this.#log.error({ error }, 'A listener for changes of the tools of MCP servers failed.')
      }
    }
  }
}
