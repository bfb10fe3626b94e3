/** A whole server as one tool of an in-process registry: its params choose which of the server's tools to call. */
import { ConvokeError } from '../base/errors.ts'
import { isObject, type JsonObject } from '../base/json.ts'
import { silentLog } from '../base/logger.ts'
import { invokeStreaming, whenFound, type Surroundings } from './invoke.ts'
import { localCaller, ValueError, type McpStyleTool, type ToolDescription } from './local.ts'
import type { ToolSource } from './source.ts'
import type { JsonSchema, Tool, ToolContext, ToolEvent, ToolTraits, ToolValue } from './tool.ts'
import { excerpt } from './value.ts'

export interface ServerToolOptions {
  /** Default: the id of the service. */
  readonly name?: string
  /** Default: a sentence on how to find and call the server's tools. */
  readonly description?: string
}

/** A server with the members of an MCP-style tool, to be registered beside functions or called as it is. */
export interface ServerTool extends McpStyleTool {
  readonly description: string
  readonly input_schema: JsonSchema
  /** Not published: which tools of others callers from outside see is said of each. */
  readonly traits: ToolTraits
  /**
   * `{tool, arguments}`, with or without `op: 'call'`, calls a tool of the server; `{op: 'describe'}` gives
   * `{name: {description, input_schema}}` of all. Rejects with ValueError for another `op` or a `tool` that is no name,
   * with TypeError for arguments that are no object, with `not_found` for a tool that the server does not have, and with
   * what the tool itself fails with.
   */
  call(args: JsonObject, context?: ToolContext): Promise<ToolValue | Record<string, ToolDescription>>
}

/**
 * Makes a service of a source, such as an MCP server, look like one tool. The connection is the source's: it stays open
 * between calls, any number of which may be under way, and is closed with the source. The stop signal, the deadline and
 * questions go through to the server, and its progress comes back; chunks are left out. In a tool space that has the
 * service itself the calls go through that: rules, pins and limits that are written for the server's tools hold for them.
 */
export function createServerTool(
  source: Pick<ToolSource, 'list' | 'resolve' | 'discover' | 'status'>,
  service: string,
  options: ServerToolOptions = {},
): ServerTool {
  const { name = service, description = defaultDescription(service) } = options
  return {
    name,
    description,
    input_schema: inputSchema,
    traits: { published: false },
    async call(args, context) {
      const { op = 'call', tool: toolName, arguments: params = {} } = args
      if (op === 'describe') {
        // Whoever asks what there is wants to know it now, also when the last look failed.
        if (source.status(service).state !== 'ok') await source.discover(service, signalOf(context))
        return describe(source.list(), service)
      }
      if (op !== 'call') throw new ValueError(`\`op\` must be "call" or "describe", got ${excerpt(op)}.`)
      if (typeof toolName !== 'string' || toolName === '')
        throw new ValueError(`\`tool\` must name a tool of "${service}", got ${excerpt(toolName)}.`)
      if (!isObject(params)) throw new TypeError(`\`arguments\` must be an object, got ${excerpt(params)}.`)
      for await (const event of eventsOf(source, service, toolName, params, context)) {
        if (event.type === 'progress') context?.progress(event)
        else if (event.type === 'log') context?.notice(event)
        else if (event.type === 'result') return event.result
      }
      // Not reached: a stream ends with a result, or throws.
      return null
    },
  }
}

async function* eventsOf(
  source: Pick<ToolSource, 'resolve'>,
  service: string,
  name: string,
  params: JsonObject,
  context: ToolContext | undefined,
): AsyncGenerator<ToolEvent, void, void> {
  if (context?.tools.knows?.(service) === true) {
    try {
      yield* context.tools.stream(service === '' ? name : `${service}.${name}`, params)
      return
    } catch (error) {
      // What is wrong with the inner call's params is wrong with this call's: its caller chose them.
      if (!(error instanceof ConvokeError)) throw error
      const { code, message, retryable, retryAfterMs, issues } = error
      const more = {
        ...(retryAfterMs === undefined ? {} : { retryAfterMs }),
        ...(issues === undefined ? {} : { issues }),
      }
      throw new ConvokeError(code, message, { cause: error, retryable, ...more })
    }
  }
  const resolve = (): Tool | Promise<Tool> => source.resolve(service, name)
  const found = await whenFound(resolve(), name, aroundIn(resolve, context))
  yield* invokeStreaming(found.tool, params, found.around)
}

function defaultDescription(service: string): string {
  return `The tools of the server "${service}". Call one with { tool, arguments }; { op: "describe" } says which there are, and what arguments they take.`
}

const inputSchema: JsonSchema = {
  type: 'object',
  properties: {
    op: { enum: ['call', 'describe'], default: 'call', description: 'Call a tool, or describe them all.' },
    tool: { type: 'string', minLength: 1, description: 'Which tool to call.' },
    arguments: { type: 'object', default: {}, description: 'What it is called with.' },
  },
  additionalProperties: false,
}

function signalOf(context: ToolContext | undefined): { signal?: AbortSignal } {
  return context === undefined ? {} : { signal: context.signal }
}

/** Of the tools of all services those of one, without its id before their names. */
function describe(tools: readonly Tool[], service: string): Record<string, ToolDescription> {
  const prefix = service === '' ? '' : `${service}.`
  const own = tools.filter(({ name }) => (prefix === '' ? !name.includes('.') : name.startsWith(prefix)))
  return Object.fromEntries(
    own.map(({ name, description, input }) => [name.slice(prefix.length), { description, input_schema: input }]),
  )
}

/** What stands around the inner call: all of the outer one's, where there is one. */
function aroundIn(resolve: Surroundings['resolve'], context: ToolContext | undefined): Surroundings {
  if (context === undefined) return { resolve, caller: localCaller, log: silentLog, signals: [], depth: 0 }
  return {
    resolve,
    caller: context.caller,
    log: context.log,
    ask: context.ask,
    signals: [context.signal],
    deadline: () => context.deadline,
    detach: context.hop?.detach,
    chain: () => context.hop?.chain,
    depth: 1,
  }
}
