/** Finds the work for a message: the tool that it names, else the node's message handler, else a polite answer. */
import { ConvokeError } from '../base/errors.ts'
import type { Logger } from '../base/logger.ts'
import type { Delegation } from '../protocol/delegation.ts'
import { skillPrefix } from '../protocol/extension.ts'
import { readToolCall, type ToolCall } from '../protocol/tool-call.ts'
import type { Executor, Start, Work } from '../tasks/work.ts'
import type { DelegationGuard } from '../tools/delegation.ts'
import type { Resolve } from '../tools/invoke.ts'
import type { LocalToolRegistry } from '../tools/local.ts'
import type { Caller, Tool } from '../tools/tool.ts'
import { closest } from '../tools/value.ts'
import { allows } from './auth/scopes.ts'
import { describeTools, toMessageWork, type MessageHandler } from './message-handler.ts'
import type { StoredContext } from './operations.ts'
import { toRefusal, toToolWork, type ToolServices } from './tool-work.ts'

export interface ExecutorOptions {
  readonly registry: LocalToolRegistry
  /** A tool of others that is published here, by its handle. Default: there are none. */
  readonly foreign?: (handle: string) => Tool | undefined
  readonly onMessage: MessageHandler | undefined
  /** Finds the tools that tools and the message handler may call. */
  readonly resolve: Resolve
  readonly guard: DelegationGuard
  readonly log: Logger
}

export function createExecutor(options: ExecutorOptions): Executor<StoredContext> {
  const politely: MessageHandler = (_message, { caller }) => describeTools(published(options.registry, caller))
  const { log, resolve, guard } = options
  const services: ToolServices = { log, resolve, guard }
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
    if (call === undefined) return toMessageWork(options.onMessage ?? politely, start, services, chain)
    return toCallWork(call, context.caller, options, services, chain)
  }
}

function toCallWork(
  call: ToolCall,
  caller: Caller,
  { registry, foreign }: ExecutorOptions,
  services: ToolServices,
  chain: Delegation | undefined,
): Work {
  const own = find(registry, call.name) ?? find(registry, withoutPrefix(call.name))
  const tool = own?.traits.published === false ? undefined : (own ?? foreign?.(call.name))
  // What is not published, disabled, or not for this caller, is not there.
  if (tool === undefined || !allows(caller, `tool:${tool.name}`)) {
    const candidate = closest(call.name.slice(0, 100), published(registry, caller))
    const hint = candidate === undefined ? 'The agent card lists the tools there are.' : `Did you mean "${candidate}"?`
    const text = `There is no tool "${call.name.slice(0, 100)}" here for you. ${hint}`
    return toRefusal(new ConvokeError('not_found', text), call.name)
  }
  return toToolWork(tool, call, caller, services, chain)
}

function withoutPrefix(name: string): string {
  return name.startsWith(skillPrefix) ? name.slice(skillPrefix.length) : name
}

/** The tool with its schemas compiled; a schema that turns out to be wrong disables the tool. */
function find(registry: LocalToolRegistry, name: string): Tool | undefined {
  try {
    return registry.resolve(name)
  } catch {
    return undefined
  }
}

function published(registry: LocalToolRegistry, caller: Caller): string[] {
  return registry
    .list({ published: true })
    .filter((tool) => allows(caller, `tool:${tool.name}`))
    .map((tool) => tool.name)
}
