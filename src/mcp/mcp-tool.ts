/** An MCP server's tool as a tool of ours. */
import { ConvokeError } from '../base/errors.ts'
import { isObject, type JsonObject } from '../base/json.ts'
import type { Chunk, Tool, ToolContext, ToolValue } from '../tools/tool.ts'
import { clip } from '../tools/value.ts'
import type { McpCall } from './calls.ts'
import { fromMcpContent } from './content.ts'
import { saysUnknown } from './errors.ts'
import type { McpToolInfo } from './listing.ts'

export interface McpToolOptions {
  /** The id of its server. */
  readonly server: string
  readonly info: McpToolInfo
  readonly timeoutMs: number | undefined
  /** Takes the server's secrets out of a text. */
  readonly redact: (text: string) => string
  /** Calls it at its server, which is connected to if need be. */
  readonly call: (params: JsonObject, call: McpCall) => Promise<JsonObject>
  /** Hears that the server has other tools than was thought. */
  readonly onStale: () => void
}

const maxErrorLength = 4_000

export function createMcpTool(options: McpToolOptions): Tool {
  const { server, info, timeoutMs } = options
  const { name, description, input, output, traits } = info
  return {
    name: `${server}.${name}`,
    description,
    input,
    ...(output === undefined ? {} : { output }),
    traits: { ...traits, ...(timeoutMs === undefined ? {} : { timeoutMs }), published: false },
    kind: 'mcp',
    run: (params, context) => run(options, params, context),
  }
}

// oxlint-disable-next-line require-yield -- an MCP tool has a result and progress, and nothing in between
async function* run(
  { info, call, redact, onStale, server }: McpToolOptions,
  params: JsonObject,
  context: ToolContext,
): AsyncGenerator<Chunk, ToolValue, void> {
  const { readOnly, idempotent } = info.traits
  const { hop } = context
  try {
    const { content, structuredContent, isError } = await call(params, {
      tool: { name: info.name, isRepeatable: readOnly === true || idempotent === true },
      signal: hop?.stoppable === false ? undefined : context.signal,
      onProgress: hop?.streaming === false ? undefined : context.progress,
      ask: context.ask,
      notice: context.notice,
    })
    if (isError !== true) return fromMcpContent(content, structuredContent)
    const text = clip(redact(textOf(content)), maxErrorLength)
    // The SDK's own servers tell so of a tool that is not there.
    if (saysUnknown(text))
      throw new ConvokeError('not_found', `The MCP server ${server} has no tool ${info.name} any more: ${text}`)
    throw new ConvokeError(
      'tool_failed',
      text === '' ? `The tool "${server}.${info.name}" failed, without words.` : text,
    )
  } catch (error) {
    if (error instanceof ConvokeError && (error.code === 'not_found' || error.code === 'invalid_params')) onStale()
    throw error
  }
}

/** The texts of a result, a line each. */
function textOf(content: unknown): string {
  const blocks: unknown[] = Array.isArray(content) ? content : []
  return blocks.flatMap((each) => (isObject(each) && typeof each['text'] === 'string' ? [each['text']] : [])).join('\n')
}
