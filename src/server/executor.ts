/** Finds the work for a message: the tool that it names, else the node's agent or message handler, else a polite answer. */
import { ConvokeError } from '../base/errors.ts'
import type { Logger } from '../base/logger.ts'
import type { Delegation } from '../protocol/delegation.ts'
import { readToolCall, type ToolCall } from '../protocol/tool-call.ts'
import type { Executor, Start, Work } from '../tasks/work.ts'
import type { DelegationGuard } from '../tools/delegation.ts'
import type { ToolManager } from '../tools/manager.ts'
import type { PublishedTool } from '../tools/published.ts'
import type { Caller } from '../tools/tool.ts'
import { closest } from '../tools/value.ts'
import { toAgentWork, type ConversationAgent } from './agent-handler.ts'
import { describeTools, toMessageWork, type MessageHandler } from './message-handler.ts'
import type { StoredContext } from './operations.ts'
import type { TaskServices } from './task-services.ts'
import { toLateWork, toRefusal, toToolWork } from './tool-work.ts'

export interface ExecutorOptions {
  /** The agent's tools: those that callers may name, and those that tools and the message handler may call. */
  readonly tools: ToolManager
  readonly onMessage: MessageHandler | undefined
  /** Answers messages in place of `onMessage`. Default: there is none. */
  readonly agent?: ConversationAgent | undefined
  readonly guard: DelegationGuard
  readonly log: Logger
}

export function createExecutor(options: ExecutorOptions): Executor<StoredContext> {
  const { log, tools, guard } = options
  const politely: MessageHandler = (_message, { caller }) => describeTools(namesFor(tools, caller))
  const services: TaskServices = {
    log,
    resolve: (name) => tools.resolve(name),
    knows: (service) => tools.knows(service),
    guard,
    pipeline: tools.pipeline,
  }
  return (start: Start<StoredContext>): Work => {
    const { message, metadata, context } = start.request
    let call: ToolCall | undefined
    let chain: Delegation | undefined
    try {
      call = readToolCall(message, metadata)
      chain = guard.read(message.metadata)
    } catch (error) {
      return toRefusal(ConvokeError.from(error), call?.name ?? '')
    }
    if (call === undefined) {
      const { agent, onMessage } = options
      if (agent !== undefined) return toAgentWork(agent, start, { ...services, tools }, chain)
      return toMessageWork(onMessage ?? politely, start, services, chain)
    }
    return toCallWork(call, context.caller, tools, services, chain)
  }
}

function toCallWork(
  call: ToolCall,
  caller: Caller,
  tools: ToolManager,
  services: TaskServices,
  chain: Delegation | undefined,
): Work {
  const toWork = (found: PublishedTool | undefined): Work =>
    found === undefined ? unknown(call, caller, tools) : toToolWork(found, call, caller, services, chain)
  const found = tools.findPublished(call.name, caller)
  return found instanceof Promise ? toLateWork(found.then(toWork), call, chain) : toWork(found)
}

/** What is not published, disabled, or not for this caller, is not there. */
function unknown(call: ToolCall, caller: Caller, tools: ToolManager): Work {
  const name = call.name.slice(0, 100)
  const candidate = closest(name, namesFor(tools, caller))
  const hint = candidate === undefined ? 'The agent card lists the tools there are.' : `Did you mean "${candidate}"?`
  return toRefusal(new ConvokeError('not_found', `There is no tool "${name}" here for you. ${hint}`), call.name)
}

function namesFor(tools: ToolManager, caller: Caller): string[] {
  return tools.published(caller).map(({ name }) => name)
}
