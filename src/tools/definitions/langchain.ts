/** Tools in the shape of LangChain's structured tools. No package of LangChain is needed: it looks at shapes. */
import { ConvokeError } from '../../base/errors.ts'
import { isObject, parseJson, type Json, type JsonObject } from '../../base/json.ts'
import { isContent } from '../../protocol/content.ts'
import type { Part } from '../../protocol/a2a.ts'
import type { CallOptions, ToolValue } from '../tool.ts'
import { excerpt } from '../value.ts'

/** What of LangChain's RunnableConfig counts here. */
export interface LangChainConfig {
  readonly signal?: AbortSignal
  /** In milliseconds. */
  readonly timeout?: number
}

/** What a LangChain tool with `responseFormat: 'content_and_artifact'` gives: text for the model, and the value itself. */
export type ContentAndArtifact = readonly [content: string, artifact: ToolValue]

/**
 * A structured tool. `isStructuredTool` looks for `lc_namespace`, `isLangChainTool` for `name` and a `schema` with a
 * `type`, agents for `lc_runnable`, and `ToolNode` calls `invoke` and makes a message of the text. `name`, `description`,
 * `schema`, `responseFormat` and `func` are also just what `new DynamicStructuredTool(…)` takes.
 */
export interface LangChainTool {
  readonly name: string
  readonly description: string
  readonly schema: JsonObject
  readonly responseFormat: 'content' | 'content_and_artifact'
  readonly lc_namespace: string[]
  readonly lc_runnable: true
  readonly returnDirect: false
  /**
   * Runs the tool with params, a JSON text of them, or a tool call `{type: 'tool_call', args}`. Resolves with text, or
   * with text and value, as `responseFormat` says; rejects with a ConvokeError, at once when `config.signal` aborts.
   */
  invoke(input: unknown, config?: LangChainConfig): Promise<string | ContentAndArtifact>
  /** The elder name of `invoke`. */
  call(input: unknown, config?: LangChainConfig): Promise<string | ContentAndArtifact>
  /** `invoke` as `DynamicStructuredTool` calls it; the second argument, its run manager, is not looked at. */
  func(input: unknown, runManager?: unknown, config?: LangChainConfig): Promise<string | ContentAndArtifact>
}

export interface LangChainToolOptions {
  readonly name: string
  readonly description: string
  readonly schema: JsonObject
  /** Runs the tool with the arguments of a model. */
  readonly run: (args: JsonObject, options: CallOptions) => Promise<ToolValue>
  readonly responseFormat: 'content' | 'content_and_artifact'
}

export function createLangChainTool(options: LangChainToolOptions): LangChainTool {
  const { name, description, schema, run, responseFormat } = options
  const invoke = async (input: unknown, config: LangChainConfig = {}): Promise<string | ContentAndArtifact> => {
    const value = await run(toArguments(name, input), {
      ...(config.signal === undefined ? {} : { signal: config.signal }),
      ...(config.timeout === undefined ? {} : { timeoutMs: config.timeout }),
    })
    return responseFormat === 'content' ? toText(value) : [toText(value), value]
  }
  return {
    name,
    description,
    schema,
    responseFormat,
    lc_namespace: ['convoke', 'tools'],
    lc_runnable: true,
    returnDirect: false,
    invoke,
    call: invoke,
    func: (input, _runManager, config) => invoke(input, config),
  }
}

function toArguments(name: string, input: unknown): JsonObject {
  const args = isObject(input) && input['type'] === 'tool_call' && 'args' in input ? input['args'] : input
  return args === undefined ? {} : parseArguments(name, args)
}

/** Arguments as a model gives them, an object or its JSON. Throws `invalid_params` for anything else. */
export function parseArguments(name: string, given: unknown): JsonObject {
  let args = given
  if (typeof given === 'string') {
    // Some models write nothing for a tool without params.
    if (given.trim() === '') return {}
    try {
      args = parseJson(given)
    } catch (cause) {
      throw new ConvokeError(
        'invalid_params',
        `The arguments for ${excerpt(name)} must be JSON, got ${excerpt(given)}.`,
        { cause },
      )
    }
  }
  if (isObject(args)) return args as JsonObject
  throw new ConvokeError(
    'invalid_params',
    `The arguments for ${excerpt(name)} must be a JSON object, got ${excerpt(args)}.`,
  )
}

/** A result as text for a model: text as it is, other values as JSON; of bytes, images and files what they are. */
export function toText(value: ToolValue): string {
  if (typeof value === 'string') return value
  if (value instanceof Uint8Array) return `[${value.byteLength} bytes]`
  return isContent(value) ? value.parts.map(sayPart).join('\n') : JSON.stringify(value satisfies Json)
}

function sayPart({ text, data, url, raw, mediaType, filename }: Part): string {
  if (text !== undefined) return text
  if (data !== undefined) return JSON.stringify(data)
  const about = [filename, mediaType].filter((each) => each !== undefined && each !== '')
  if (url !== undefined) return [url, ...about.map((each) => `(${each})`)].join(' ')
  return `[${[...about, `${Buffer.byteLength(raw ?? '', 'base64')} bytes`].join(', ')}]`
}
