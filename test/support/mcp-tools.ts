/** The tools of some MCP servers, as tests call them. */
import {
  type ConvokeError,
  LocalToolRegistry,
  McpServerRegistry,
  ToolManager,
  type McpServerOptions,
  type McpServerRegistryOptions,
  type ToolCallOptions,
  type ToolValue,
} from 'convoke'
import { cleanup } from './lifetime.ts'
import { failureOf } from './failure.ts'

interface Line {
  readonly level: string
  readonly text: string
}

export interface TestTools {
  readonly servers: McpServerRegistry
  readonly tools: ToolManager
  readonly lines: Line[]
  /** All that was logged, as text. */
  readonly log: () => string
  readonly call: (name: string, params?: unknown, options?: ToolCallOptions) => Promise<ToolValue>
  /** How the call fails. */
  readonly fail: (name: string, params?: unknown, options?: ToolCallOptions) => Promise<ConvokeError>
}

/** The tools of some MCP servers, without a node around them. */
export function toolsOf(servers: Record<string, McpServerOptions>, options: McpServerRegistryOptions = {}): TestTools {
  const lines: Line[] = []
  const write = (level: string) => (details: object | string, message?: string) =>
    void lines.push({ level, text: typeof details === 'string' ? details : `${message ?? ''} ${toText(details)}` })
  const log = { debug: write('debug'), info: write('info'), warn: write('warn'), error: write('error') }
  const registry = new McpServerRegistry({ servers, log, ...options })
  cleanup(() => registry.close())
  const tools = new ToolManager({
    registry: new LocalToolRegistry(),
    sources: [registry],
    results: { foreign: 'strict' },
    log,
  })
  return {
    servers: registry,
    tools,
    lines,
    log: () => lines.map(({ text }) => text).join('\n'),
    call: (name, params, given) => tools.call(name, params, given),
    async fail(name, params, given) {
      return failureOf(tools.call(name, params, given))
    },
  }
}

/** Errors are not in JSON by themselves. */
function toText(details: unknown): string {
  return JSON.stringify(details, (_key, value: unknown) =>
    value instanceof Error ? { message: value.message, cause: value.cause } : value,
  )
}
