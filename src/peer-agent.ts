/** A remote agent by its URL, as a resource of an agent that runs without a node. */
import type { AskAgentOptions, RemoteAgent } from './agent/chat-model.ts'
import type { ResourceContext } from './agent/resources.ts'
import { PeerClient } from './peers/client.ts'
import type { PeerOptions } from './peers/peer.ts'
import { createRemoteAgent } from './peers/remote-agent.ts'

export interface PeerAgentArguments extends PeerOptions {
  /** What the agent is called in messages. Default: `agent`. */
  readonly id?: string
}

/** Descriptor of another node's agent: `{ clazz: PeerAgent, arguments: { url } }`. Throws `config` for options that make no sense. */
export class PeerAgent implements RemoteAgent {
  static readonly resourceType = 'remoteAgent'
  static readonly module = 'convoke'
  readonly #client: PeerClient
  readonly #agent: RemoteAgent

  constructor({ id = 'agent', ...options }: PeerAgentArguments, { log }: Pick<ResourceContext, 'log'>) {
    this.#client = new PeerClient({ ...options, id, log })
    this.#agent = createRemoteAgent({ client: () => this.#client, log })
  }

  async ask(message: string, options?: AskAgentOptions): ReturnType<RemoteAgent['ask']> {
    return await this.#agent.ask(message, options)
  }

  async close(): Promise<void> {
    await this.#client.close()
  }
}
