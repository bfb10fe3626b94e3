/** One client for each peer, made when it is first needed and closed with the manager. */
import { randomUUID } from 'node:crypto'
import { ConvokeError } from '../base/errors.ts'
import type { GuardedFetch } from '../base/guarded-fetch.ts'
import { silentLog, type Logger } from '../base/logger.ts'
import type { Message, Task } from '../protocol/a2a.ts'
import { KeyError } from '../tools/local.ts'
import { excerpt } from '../tools/value.ts'
import { allowsPrivate, fetchFor, PeerClient, type PeerStatus, type SendRetry } from './client.ts'
import type { PeerOptions, RequestOptions, SendMessageResponse, SendOptions } from './peer.ts'

export interface ClientManagerOptions {
  /** The peers, by the id that they have on this side. */
  readonly peers?: Readonly<Record<string, PeerOptions>>
  readonly log?: Logger
  /** False: nothing goes out. */
  readonly enabled?: boolean
}

export class ClientManager {
  readonly #log: Logger
  readonly #enabled: boolean
  readonly #options = new Map<string, PeerOptions>()
  readonly #clients = new Map<string, PeerClient>()
  /** Peers that may be reached in the same ways share their connections' owner. */
  readonly #fetches = new Map<string, GuardedFetch>()
  readonly #listeners = new Set<(id: string) => void>()
  #isClosed = false

  /** Throws `config` for peers whose options make no sense. */
  constructor(options: ClientManagerOptions = {}) {
    this.#log = options.log ?? silentLog
    this.#enabled = options.enabled ?? true
    for (const [id, peer] of Object.entries(options.peers ?? {})) this.add(id, peer)
  }

  /** The ids of all peers, in the order of configuration. */
  get ids(): readonly string[] {
    return [...this.#options.keys()]
  }

  has(id: string): boolean {
    return this.#options.has(id)
  }

  optionsOf(id: string): PeerOptions | undefined {
    return this.#options.get(id)
  }

  /** Adds a peer. Throws `config` for an id that is taken, or options that make no sense. */
  add(id: string, options: PeerOptions): void {
    if (this.#options.has(id)) throw new ConvokeError('config', `There is a peer "${id}" already.`)
    // Made at once, so that mistakes show at once; nothing is sent.
    const client = this.#create(id, options)
    this.#options.set(id, options)
    this.#clients.set(id, client)
  }

  /** Closes a peer's client and forgets the peer, with all that is known of its tools. Returns whether there was one. */
  async remove(id: string): Promise<boolean> {
    const client = this.#clients.get(id)
    if (client === undefined) return false
    this.#options.delete(id)
    this.#clients.delete(id)
    for (const listener of this.#listeners) listener(id)
    await client.close()
    return true
  }

  /** Calls the listener with the id of each peer that is removed, after that took effect. Returns how to take it back. */
  onRemove(listener: (id: string) => void): () => void {
    this.#listeners.add(listener)
    return () => this.#listeners.delete(listener)
  }

  /** The client. Throws KeyError for a peer that is none, and `unsupported_operation` where delegation is turned off. */
  get(id: string): PeerClient {
    if (!this.#enabled) {
      throw new ConvokeError(
        'unsupported_operation',
        'Delegation to peers is turned off here (features.delegate: false).',
      )
    }
    const client = this.#clients.get(id)
    if (client === undefined) {
      const known = this.ids.slice(0, 20).join(', ')
      throw new KeyError(`There is no peer ${excerpt(id)} here.${known === '' ? '' : ` There are: ${known}.`}`)
    }
    return client
  }

  /** Sends a message, or a text, to a peer and waits for the end of its task, or its question. */
  async sendTask(
    id: string,
    message: Message | string,
    options?: SendOptions & SendRetry,
  ): Promise<SendMessageResponse> {
    return await this.get(id).sendTask(typeof message === 'string' ? toMessage(message) : message, options)
  }

  async getTask(id: string, taskId: string, options?: RequestOptions): Promise<Task> {
    return await this.get(id).getTask(taskId, options)
  }

  /** Resolves with the task once it has stopped. */
  async cancelTask(id: string, taskId: string, options?: RequestOptions): Promise<Task> {
    return await this.get(id).cancelTask(taskId, options)
  }

  /** Whether each peer can be reached, as far as is known. Asks nobody. */
  health(): PeerStatus[] {
    return [...this.#clients.values()].map(({ status }) => status)
  }

  /** Ends all requests and connections. */
  async close(): Promise<void> {
    this.#isClosed = true
    await Promise.all([...this.#clients.values()].map((client) => client.close()))
    await Promise.all([...this.#fetches.values()].map((fetch) => fetch.close()))
    this.#clients.clear()
  }

  #create(id: string, options: PeerOptions): PeerClient {
    if (this.#isClosed) throw new ConvokeError('unavailable', 'The node has stopped.')
    const key = JSON.stringify([allowsPrivate(options), options.tls ?? null])
    let fetch = this.#fetches.get(key)
    if (fetch === undefined) this.#fetches.set(key, (fetch = fetchFor(options)))
    return new PeerClient({ ...options, id, fetch: fetch.share(), log: this.#log })
  }
}

/** A text as a message to an agent. */
export function toMessage(text: string): Message {
  return { messageId: randomUUID(), role: 'ROLE_USER', parts: [{ text }] }
}
