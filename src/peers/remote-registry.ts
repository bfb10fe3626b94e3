/**
 * The tools of all peers: found on their cards, kept until a card says otherwise, told apart by peer. A lookup asks a
 * peer at most once by itself; whoever wants it asked again says so.
 */
import { ConvokeError } from '../base/errors.ts'
import { silentLog, type Logger } from '../base/logger.ts'
import { foreignNameRule, isForeignName } from '../tools/foreign.ts'
import { prepareTool } from '../tools/validation.ts'
import { KeyError } from '../tools/local.ts'
import type { ToolSource } from '../tools/source.ts'
import type { JsonSchema, Tool } from '../tools/tool.ts'
import { closest, excerpt } from '../tools/value.ts'
import type { PeerClient } from './client.ts'
import { toPeerError, PeerError } from './errors.ts'
import { createRemoteTool } from './remote-tool.ts'
import { toRemoteToolInfo, type RemoteToolInfo } from './remote-tool-info.ts'
import { SharedWork } from '../base/shared-work.ts'

/** What a tool must be to be found. All that is given must fit. */
export interface RemoteToolFilter {
  readonly name?: string
  readonly peer?: string
  /** All of these must be among its capabilities. */
  readonly capabilities?: readonly string[]
  /** One of its tags; capabilities and tags are the same list. */
  readonly tag?: string
}

/** A tool by hand, for peers whose card does not tell it. */
export interface RemoteToolRegistration {
  readonly peer: string
  readonly name: string
  readonly description?: string
  readonly capabilities?: readonly string[]
  readonly parametersSchema?: JsonSchema
  readonly returnSchema?: JsonSchema
  readonly readOnly?: boolean
  readonly idempotent?: boolean
}

export type RemoteToolChange =
  | { readonly type: 'added'; readonly tool: RemoteToolInfo }
  | { readonly type: 'changed'; readonly tool: RemoteToolInfo; readonly before: RemoteToolInfo }
  | { readonly type: 'removed'; readonly tool: RemoteToolInfo }

/** What is known of the discovery of one peer. */
export interface DiscoveryStatus {
  readonly peer: string
  /** `never` looked at, `ok` the last time, or `failed`. */
  readonly state: 'never' | 'ok' | 'failed'
  readonly tools: number
  /** When it was looked at last, in milliseconds since 1970. */
  readonly lastDiscovery?: number
  /** Why the last look failed. */
  readonly lastError?: PeerError
}

/** Where the clients of peers are. A ClientManager is one. */
export interface PeerClients {
  readonly ids: readonly string[]
  has(id: string): boolean
  /** Throws where there is none, or nothing may go out. */
  get(id: string): PeerClient
  /** Calls the listener with the id of each peer that is removed. Default: none ever is. */
  onRemove?(listener: (id: string) => void): () => void
}

export interface RemoteToolRegistryOptions {
  readonly clients: PeerClients
  /** The id of this node in the chains of its calls. Default: they begin without one. */
  readonly self?: string
  readonly log?: Logger
}

interface Entry {
  readonly info: RemoteToolInfo
  readonly tool: Tool
  /** Registered by hand: no card takes it away. */
  readonly byHand: boolean
  /** Its schemas are compiled. */
  isReady: boolean
}

interface Shelf {
  readonly entries: Map<string, Entry>
  /** A lookup has asked the peer, or somebody has told it to; no further lookup does. */
  attempted: boolean
  readonly discovering: SharedWork<readonly RemoteToolInfo[]>
  state: DiscoveryStatus['state']
  lastDiscovery: number | undefined
  lastError: PeerError | undefined
  /** When a call told last that the card has changed. */
  lastStale: number
  /** When the peer had last answered anything when its discovery failed. */
  seenBefore: number | undefined
}

/** Most tools that are taken from one peer. */
const maxTools = 10_000
/** Most candidates that a message names. */
const maxShown = 20

/** How soon a peer is asked again after calls told that its card has changed, in milliseconds. */
const staleEveryMs = 1_000

export class RemoteToolRegistry implements ToolSource {
  readonly kind = 'a2a'
  readonly #clients: PeerClients
  readonly #self: string | undefined
  readonly #log: Logger
  readonly #shelves = new Map<string, Shelf>()
  readonly #listeners = new Set<(change: RemoteToolChange) => void>()
  #revision = 0
  #isClosed = false

  constructor(options: RemoteToolRegistryOptions) {
    this.#clients = options.clients
    this.#self = options.self
    this.#log = options.log ?? silentLog
    this.#clients.onRemove?.((peer) => this.forget(peer))
  }

  get revision(): number {
    return this.#revision
  }

  /** The ids of the peers. */
  services(): readonly string[] {
    return this.#clients.ids
  }

  /** Whether there is a peer of that id. */
  has(peer: string): boolean {
    return this.#clients.has(peer)
  }

  /** The known tools that fit, by peer in the order of configuration. Never asks anybody. */
  find(filter: RemoteToolFilter = {}): RemoteToolInfo[] {
    const { name, peer, capabilities = [], tag } = filter
    return [...this.#shelves].flatMap(([id, { entries }]) => {
      if (peer !== undefined && id !== peer) return []
      return [...entries.values()]
        .map(({ info }) => info)
        .filter((info) => {
          if (name !== undefined && info.name !== name) return false
          if (tag !== undefined && !info.capabilities.includes(tag)) return false
          return capabilities.every((capability) => info.capabilities.includes(capability))
        })
    })
  }

  /** What is known of a tool. Never asks anybody. */
  get(peer: string, name: string): RemoteToolInfo | undefined {
    return this.#shelves.get(peer)?.entries.get(name)?.info
  }

  /** The one tool that a handle `PEER.NAME` or a bare name means. Throws `not_found`, with the candidates where several have the name. */
  lookup(name: string): RemoteToolInfo {
    const dot = name.indexOf('.')
    if (dot > 0) {
      const info = this.get(name.slice(0, dot), name.slice(dot + 1))
      if (info !== undefined) return info
      throw this.#missing(name.slice(0, dot), name.slice(dot + 1))
    }
    const [only, ...others] = this.find({ name })
    if (only === undefined) throw new KeyError(`No peer is known to have a tool ${excerpt(name)}.`)
    if (others.length === 0) return only
    const all = [only, ...others].map(({ handle }) => handle)
    const handles = all.slice(0, maxShown).join(', ') + (all.length > maxShown ? ', …' : '')
    throw new ConvokeError('not_found', `Several peers have a tool ${excerpt(name)}; say which one: ${handles}.`)
  }

  /** The known tools, ready to be called, by handle. */
  list(): Tool[] {
    return [...this.#shelves.values()].flatMap(({ entries }) => [...entries.values()].map(({ tool }) => tool))
  }

  /**
   * The tool, ready to be called. The first lookup at a peer asks it for its tools; all who ask meanwhile wait for the
   * same answer. After that, and after a failure, a lookup asks nobody; only a peer that failed and has answered
   * something else since is asked once more. Throws `not_found`; its cause is why the peer could not be asked. Who aborts
   * `signal` leaves; the last one stops the request.
   */
  resolve(peer: string, name: string, signal?: AbortSignal): Tool | Promise<Tool> {
    this.#checkOpen()
    const shelf = this.#shelf(peer)
    // Says why where nothing may go out.
    const client = this.#clients.get(peer)
    const entry = shelf.entries.get(name)
    if (entry !== undefined) return readyTool(entry)
    if (shelf.attempted && !shelf.discovering.isRunning && !isBack(shelf, client)) throw this.#missing(peer, name)
    return this.#resolveLater(peer, name, shelf, signal)
  }

  async #resolveLater(peer: string, name: string, shelf: Shelf, signal: AbortSignal | undefined): Promise<Tool> {
    try {
      await this.discover(peer, signal === undefined ? {} : { signal })
    } catch {
      // A lookup is silent about it; status() and the cause of what is thrown now tell.
    }
    const entry = shelf.entries.get(name)
    if (entry === undefined) throw this.#missing(peer, name)
    return readyTool(entry)
  }

  /**
   * Asks a peer for its tools now. Those that have left its card leave the registry, and listeners are told of every
   * change. Whoever asks while it is being asked gets the same answer; the signal ends the wait of its own caller only.
   * Throws PeerError; the tools known before stay.
   */
  async discover(peer: string, { signal }: { readonly signal?: AbortSignal } = {}): Promise<readonly RemoteToolInfo[]> {
    this.#checkOpen()
    const shelf = this.#shelf(peer)
    return shelf.discovering.run((stop) => this.#discover(peer, shelf, stop), signal)
  }

  async #discover(peer: string, shelf: Shelf, signal: AbortSignal): Promise<readonly RemoteToolInfo[]> {
    const client = this.#clients.get(peer)
    try {
      const tools = await client.descriptors({ signal, again: true })
      this.#checkKept(peer, shelf)
      shelf.attempted = true
      shelf.state = 'ok'
      shelf.lastError = undefined
      shelf.lastDiscovery = Date.now()
      const { url } = client.status.info ?? client
      const found = new Map<string, RemoteToolInfo>()
      for (const tool of tools) {
        if (found.size === maxTools) break
        if (found.has(tool.name) || !isForeignName(tool.name)) continue
        found.set(tool.name, toRemoteToolInfo(tool, { id: peer, url }, shelf.entries.get(tool.name)?.info))
      }
      const skipped = tools.length - found.size
      if (skipped > 0) {
        const text = `Tools of a peer are not used: their names are taken or no names, or there are more than ${maxTools}.`
        this.#log.warn({ peer, skipped }, text)
      }
      this.#replace(shelf, found)
      return [...found.values()]
    } catch (error) {
      const failure = toPeerError(error, peer)
      this.#checkKept(peer, shelf)
      // Nobody wanted to know any more, which says nothing of the peer.
      if (signal.aborted) throw failure
      shelf.attempted = true
      shelf.state = 'failed'
      shelf.lastError = failure
      shelf.lastDiscovery = Date.now()
      shelf.seenBefore = client.status.lastSeen
      this.#log.warn({ peer, error: failure }, 'The tools of a peer could not be found out.')
      throw failure
    }
  }

  /** What comes in for a peer that was removed meanwhile belongs to nobody. */
  #checkKept(peer: string, shelf: Shelf): void {
    if (this.#shelves.get(peer) === shelf) return
    throw new PeerError('canceled', peer, 'It was removed while it was asked for its tools.')
  }

  /**
   * Adds a tool by hand, or replaces it. A card that tells the same tool wins. Throws `not_found` for a peer that is
   * none, `invalid_params` for a name that is none.
   */
  register(tool: RemoteToolRegistration): RemoteToolInfo {
    if (!isForeignName(tool.name)) {
      const text = `The name of a peer's tool must be ${foreignNameRule}, got ${excerpt(tool.name)}.`
      throw new ConvokeError('invalid_params', text)
    }
    const client = this.#clients.get(tool.peer)
    const shelf = this.#shelf(tool.peer)
    const { name, description = '', capabilities = [], parametersSchema, returnSchema, readOnly, idempotent } = tool
    const before = shelf.entries.get(name)?.info
    const info = toRemoteToolInfo(
      {
        name,
        description,
        tags: capabilities,
        ...(parametersSchema === undefined ? {} : { inputSchema: parametersSchema }),
        ...(returnSchema === undefined ? {} : { outputSchema: returnSchema }),
        annotations: { readOnlyHint: readOnly ?? false, idempotentHint: idempotent ?? false },
      },
      { id: tool.peer, url: client.url },
      before,
    )
    this.#put(shelf, info, true)
    return info
  }

  /** Takes a tool out. Returns whether it was there. */
  deregister(peer: string, name: string): boolean {
    const shelf = this.#shelves.get(peer)
    const entry = shelf?.entries.get(name)
    if (shelf === undefined || entry === undefined) return false
    shelf.entries.delete(name)
    this.#tell({ type: 'removed', tool: entry.info })
    return true
  }

  /** What is known of a peer no longer counts, nor that it was asked: the next lookup asks it once more. With a name, forgets that tool only. */
  invalidate(peer: string, name?: string): void {
    const shelf = this.#shelves.get(peer)
    if (shelf === undefined) return
    shelf.attempted = false
    for (const [each, { byHand }] of [...shelf.entries]) {
      if (!byHand && (name === undefined || each === name)) this.deregister(peer, each)
    }
  }

  /** Drops a peer with all its tools. */
  forget(peer: string): void {
    for (const name of [...(this.#shelves.get(peer)?.entries.keys() ?? [])]) this.deregister(peer, name)
    this.#shelves.delete(peer)
  }

  /** Calls the listener with each change, after it took effect. One that throws is logged. Returns how to take it back. */
  onChange(listener: (change: RemoteToolChange) => void): () => void {
    this.#listeners.add(listener)
    return () => this.#listeners.delete(listener)
  }

  /** What is known of the discovery of a peer. */
  status(peer: string): DiscoveryStatus {
    const shelf = this.#shelves.get(peer)
    const { lastDiscovery, lastError } = shelf ?? {}
    return {
      peer,
      state: shelf?.state ?? 'never',
      tools: shelf?.entries.size ?? 0,
      ...(lastDiscovery === undefined ? {} : { lastDiscovery }),
      ...(lastError === undefined ? {} : { lastError }),
    }
  }

  /** The connections are those of the clients, and end with them. */
  async close(): Promise<void> {
    this.#isClosed = true
    for (const peer of [...this.#shelves.keys()]) this.forget(peer)
  }

  #checkOpen(): void {
    if (this.#isClosed) throw new ConvokeError('unavailable', 'The registry of remote tools is closed.')
  }

  #shelf(peer: string): Shelf {
    let shelf = this.#shelves.get(peer)
    if (shelf === undefined) {
      if (!this.#clients.has(peer)) throw new KeyError(`There is no peer ${excerpt(peer)} here.`)
      shelf = {
        entries: new Map(),
        attempted: false,
        discovering: new SharedWork(),
        state: 'never',
        lastDiscovery: undefined,
        lastError: undefined,
        lastStale: 0,
        seenBefore: undefined,
      }
      this.#shelves.set(peer, shelf)
    }
    return shelf
  }

  /** The card is the truth: what it does not tell any more is gone. */
  #replace(shelf: Shelf, found: ReadonlyMap<string, RemoteToolInfo>): void {
    for (const [name, { info, byHand }] of [...shelf.entries]) {
      if (byHand || found.has(name)) continue
      shelf.entries.delete(name)
      this.#tell({ type: 'removed', tool: info })
    }
    for (const info of found.values()) this.#put(shelf, info, false)
  }

  #put(shelf: Shelf, info: RemoteToolInfo, byHand: boolean): void {
    const before = shelf.entries.get(info.name)
    // The same tool object as long as nothing has changed: its schemas are compiled once.
    const isSame = before?.info.version === info.version
    const tool = isSame && before !== undefined ? before.tool : this.#toTool(info)
    shelf.entries.set(info.name, { info, tool, byHand, isReady: isSame && before !== undefined && before.isReady })
    if (before === undefined) this.#tell({ type: 'added', tool: info })
    else if (!isSame) this.#tell({ type: 'changed', tool: info, before: before.info })
  }

  #toTool(info: RemoteToolInfo): Tool {
    const client = this.#clients.get(info.agentId)
    return createRemoteTool({
      client,
      info,
      self: this.#self,
      log: this.#log,
      onStale: () => this.#stale(info.agentId),
    })
  }

  /** A call told that the peer's tools are others than we think: it is asked again, once for many calls. */
  #stale(peer: string): void {
    const shelf = this.#shelves.get(peer)
    if (shelf === undefined || shelf.lastStale > Date.now() - staleEveryMs) return
    shelf.lastStale = Date.now()
    // Nobody waits for it, and its failure stands in status().
    this.discover(peer).catch(() => {})
  }

  #tell(change: RemoteToolChange): void {
    this.#revision++
    for (const listener of this.#listeners) {
      try {
        listener(change)
      } catch (error) {
        // It is no failure of the peer, and no reason to keep the change from others.
        this.#log.error({ error }, 'A listener for changes of remote tools failed.')
      }
    }
  }

  #missing(peer: string, name: string): ConvokeError {
    const shelf = this.#shelves.get(peer)
    const { lastError } = shelf ?? {}
    if (lastError !== undefined) {
      const text = `There is no tool ${excerpt(name)} at ${peer}, as far as is known: ${peer} could not be asked (${lastError.code}).`
      return new ConvokeError('not_found', text, { cause: lastError, retryable: lastError.retryable })
    }
    const names = [...(shelf?.entries.keys() ?? [])]
    if (names.length === 0 && shelf?.state === 'ok') {
      const text = `${peer} has no tools: it is an agent that takes messages only. Send it a message instead.`
      return new ConvokeError('not_found', text)
    }
    const similar = closest(name, names)
    const hint = similar === undefined ? '' : ` Did you mean "${similar}"?`
    return new ConvokeError('not_found', `There is no tool ${excerpt(name)} at ${peer}.${hint}`)
  }
}

/** Whether a peer that could not tell its tools has answered something since: it is worth another question. */
function isBack(shelf: Shelf, client: PeerClient): boolean {
  if (shelf.state !== 'failed') return false
  const { state, lastSeen } = client.status
  return state === 'up' && lastSeen !== shelf.seenBefore
}

/** The tool with its schemas compiled. Throws PeerError for those that cannot be: the tool is of no use, and all others are. */
function readyTool(entry: Entry): Tool {
  const { tool, info } = entry
  if (entry.isReady) return tool
  try {
    prepareTool(tool)
  } catch (cause) {
    const why = cause instanceof Error ? cause.message : String(cause)
    throw new PeerError('peer_failed', info.agentId, `The tool cannot be used: ${why}`, { tool: info.name, cause })
  }
  entry.isReady = true
  return tool
}
