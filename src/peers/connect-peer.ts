/** One peer without a node: the client, and its tools. */
import type { Logger } from '../base/logger.ts'
import type { ToolEvent, ToolValue } from '../tools/tool.ts'
import { PeerClient, type PeerClientOptions } from './client.ts'
import type { PeerOptions } from './peer.ts'
import { RemoteToolExecutor, type RemoteCallOptions } from './remote-executor.ts'
import { RemoteToolRegistry } from './remote-registry.ts'
import type { RemoteToolInfo } from './remote-tool-info.ts'

export interface ConnectOptions
  extends Omit<PeerOptions, 'url'>, Pick<PeerClientOptions, 'card' | 'cardOrder' | 'onWire'> {
  /** What the peer is called in messages. Default: `peer`. */
  readonly id?: string
  /** Short for `auth: { bearer }`. */
  readonly bearer?: string
  /** Short for `auth: { apiKey }`. */
  readonly apiKey?: string
  readonly log?: Logger
  readonly signal?: AbortSignal
}

/** What a tool takes and what it gives, as types. */
export interface ToolTypes {
  readonly params: unknown
  readonly result: unknown
}

/** Tools of which nothing is known. */
export type AnyTools = Readonly<Record<string, ToolTypes>>

/** Whatever has a {@link ToolTypes} for each name; an interface, too, as `convoke types` writes one. */
type ToolTable<Tools> = { readonly [Name in keyof Tools]: ToolTypes }

type NameOf<Tools> = keyof Tools & string
/** Any name where the tools are not known; none where they are. */
type AnyName<Tools> = string extends keyof Tools ? string : never
type Of<Tools extends ToolTable<Tools>, Name extends keyof Tools, Part extends keyof ToolTypes> = Tools[Name][Part]

/** Params may be left out where the tool needs none. */
type Arguments<Params> = {} extends Params
  ? [params?: Params, options?: RemoteCallOptions]
  : [params: Params, options?: RemoteCallOptions]

/** A {@link ToolEvent} of a tool whose result has this type. */
export type ToolEventOf<Result> =
  | Exclude<ToolEvent, { readonly type: 'result' }>
  | { readonly type: 'result'; readonly result: Result }

/**
 * A peer that was connected to. Close it when it is no longer needed. With the types of its tools, `Peer<Tools>`, calls
 * are checked by the compiler: which tools there are, what each takes and what it gives.
 */
export class Peer<Tools extends ToolTable<Tools> = AnyTools> extends PeerClient {
  readonly #registry: RemoteToolRegistry
  readonly #executor: RemoteToolExecutor

  constructor(options: PeerClientOptions) {
    super(options)
    const log = options.log === undefined ? {} : { log: options.log }
    this.#registry = new RemoteToolRegistry({
      clients: { ids: [this.id], has: (id) => id === this.id, get: () => this },
      ...log,
    })
    this.#executor = new RemoteToolExecutor({ registry: this.#registry, ...log })
  }

  /** The peer's tools, asked for now. */
  async listRemoteTools(options: { readonly signal?: AbortSignal } = {}): Promise<readonly RemoteToolInfo[]> {
    return await this.#executor.listRemoteTools(this.id, options)
  }

  /** Calls a tool and resolves with its result. Rejects with a ConvokeError, mostly a PeerError. */
  executeRemoteTool<T = ToolValue>(name: AnyName<Tools>, params?: unknown, options?: RemoteCallOptions): Promise<T>
  executeRemoteTool<Name extends NameOf<Tools>>(
    name: Name,
    ...rest: Arguments<Of<Tools, Name, 'params'>>
  ): Promise<Of<Tools, Name, 'result'>>
  async executeRemoteTool(name: string, params?: unknown, options?: RemoteCallOptions): Promise<unknown> {
    return await this.#executor.executeRemoteTool(this.id, name, params, options)
  }

  /** Progress and chunks as they come, then one result. Leaving the loop cancels the task. */
  executeRemoteToolStreaming(
    name: AnyName<Tools>,
    params?: unknown,
    options?: RemoteCallOptions,
  ): AsyncGenerator<ToolEvent, void, void>
  executeRemoteToolStreaming<Name extends NameOf<Tools>>(
    name: Name,
    ...rest: Arguments<Of<Tools, Name, 'params'>>
  ): AsyncGenerator<ToolEventOf<Of<Tools, Name, 'result'>>, void, void>
  async *executeRemoteToolStreaming(
    name: string,
    params?: unknown,
    options?: RemoteCallOptions,
  ): AsyncGenerator<ToolEvent, void, void> {
    yield* this.#executor.executeRemoteToolStreaming(this.id, name, params, options)
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close()
  }
}

/**
 * Connects to a peer: fetches its card and chooses the interface. `url` is the agent's base URL, or that of its card.
 * Throws `config` for options that make no sense, and PeerError where the peer cannot be spoken to. The types of the
 * peer's tools, `connectPeer<Tools>(url)`, are taken on trust; `convoke types` writes them off its card.
 */
export async function connectPeer<Tools extends ToolTable<Tools> = AnyTools>(
  url: string,
  options: ConnectOptions = {},
): Promise<Peer<Tools>> {
  const { id = 'peer', bearer, apiKey, signal, ...rest } = options
  const auth = rest.auth ?? (bearer !== undefined ? { bearer } : apiKey !== undefined ? { apiKey } : undefined)
  const peer = new Peer<Tools>({ ...rest, url, id, ...(auth === undefined ? {} : { auth }) })
  try {
    await peer.connect(signal === undefined ? {} : { signal })
    return peer
  } catch (error) {
    await peer.close()
    throw error
  }
}
