/** Another node's agent as an action of one run asks it. */
import type { RemoteAgent } from './chat-model.ts'
import type { RunnerContext } from './context.ts'

/** The ids of conversations at other agents, by the name of the resource, in the key's memory. */
const place = '_remote_agents'

/**
 * Fills in what the run knows: message ids that are the same when it is resumed, as long as the action asks in the same order; the
 * signal, who is asked, the chain; and the conversation, which goes on as long as runs end well.
 */
export function remoteAgentOf(
  name: string,
  agent: RemoteAgent,
  context: Pick<RunnerContext, 'signal' | 'stableId' | 'shortTermMemory' | 'tools' | 'ask'>,
): RemoteAgent {
  const path = `${place}.${name.replaceAll('.', '_')}`
  let asked = 0
  return {
    async ask(message, options = {}) {
      const known = context.shortTermMemory.get(path)
      const answered = await agent.ask(message, {
        messageId: context.stableId(`ask ${name} ${++asked} ${message}`),
        ...(typeof known === 'string' ? { contextId: known } : {}),
        signal: context.signal,
        ask: (question) => context.ask(question),
        chain: context.tools.chain?.(),
        ...options,
      })
      // A conversation that the action names itself is its own matter.
      const { contextId } = answered
      if (contextId !== undefined && options.contextId === undefined) context.shortTermMemory.set(path, contextId)
      return answered
    },
  }
}
