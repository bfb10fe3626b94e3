/** A peer's tool as a tool of this side. */
import { randomUUID } from 'node:crypto'
import type { JsonObject } from '../base/json.ts'
import type { Logger } from '../base/logger.ts'
import type { Message } from '../protocol/a2a.ts'
import { extendDelegation } from '../protocol/delegation.ts'
import { keys } from '../protocol/extension.ts'
import { toCallMessage } from '../protocol/tool-call.ts'
import type { Tool, ToolContext } from '../tools/tool.ts'
import type { PeerClient } from './client.ts'
import { toPeerError } from './errors.ts'
import { RemoteCall } from './remote-call.ts'
import type { RemoteToolInfo } from './remote-tool-info.ts'

export interface RemoteToolOptions {
  readonly client: PeerClient
  readonly info: RemoteToolInfo
  /** The id of this node in the chains of its calls; a program that is no node has none. */
  readonly self: string | undefined
  readonly log: Logger
  /** Hears when the peer does not know the tool any more, or sees its schema otherwise. */
  readonly onStale: () => void
}

const anyParams = { type: 'object' } as const

/** What a peer's tool says of itself: that which rules and pins go by. */
export type RemoteToolDescription = Omit<Tool, 'run' | 'refine' | 'elsewhere'>

export function describeRemoteTool(info: RemoteToolInfo): RemoteToolDescription {
  const { handle, description, parametersSchema, returnSchema, capabilities } = info
  const [category] = capabilities
  return {
    name: handle,
    description,
    input: parametersSchema ?? anyParams,
    ...(returnSchema === undefined ? {} : { output: returnSchema }),
    traits: { ...info.traits, tags: capabilities, ...(category === undefined ? {} : { category }) },
    kind: 'a2a',
  }
}

export function createRemoteTool(options: RemoteToolOptions): Tool {
  const { client, info, log, onStale } = options
  const said = describeRemoteTool(info)
  const { timeoutMs } = client
  const repeatable = info.traits.readOnly === true || info.traits.idempotent === true
  return {
    ...said,
    traits: { ...said.traits, ...(timeoutMs === undefined ? {} : { timeoutMs }), published: false },
    elsewhere: {
      failure: (error, task) => {
        const about = { tool: info.name, ...(task === undefined ? {} : { taskId: task.taskId }), attempt: 1 }
        return client.clean(toPeerError(error, client.id, about))
      },
    },
    run: (params, context) => {
      const message = toMessage(options, params, context)
      return new RemoteCall({ client, message, tool: info.name, repeatable, log, onStale }, context).run()
    },
  }
}

/** The call with the chain that it came along, for the peer to see how long it will be waited for. */
function toMessage({ info, self }: RemoteToolOptions, params: JsonObject, context: ToolContext): Message {
  const { deadline, call, hop } = context
  const timeoutMs = deadline === undefined ? undefined : Math.max(1, Math.ceil(deadline - Date.now()))
  const message = toCallMessage({ name: info.name, params, callId: call.id, timeoutMs }, randomUUID())
  if (self === undefined) return message
  return {
    ...message,
    metadata: { ...message.metadata, [keys.delegation]: extendDelegation(hop?.chain, self, deadline) },
  }
}
