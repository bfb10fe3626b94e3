/** What each provider calls a tool. */
import type { JsonObject } from '../../base/json.ts'
import type { LangChainTool } from './langchain.ts'

export type Provider = 'openai' | 'openai-responses' | 'anthropic' | 'gemini' | 'mcp' | 'langchain'

export type ObjectSchema = JsonObject & { type: 'object' }

/** A function tool as OpenAI's chat completions, and the many endpoints like them, take it. */
export interface OpenAiTool {
  readonly type: 'function'
  readonly function: {
    readonly name: string
    readonly description: string
    readonly parameters: ObjectSchema
    /** There when the schema is strict. */
    readonly strict?: true
  }
}

/** A function tool as OpenAI's responses take it. */
export interface OpenAiResponsesTool {
  readonly type: 'function'
  readonly name: string
  readonly description: string
  readonly parameters: ObjectSchema
  /** Always there: left out it would be true. */
  readonly strict: boolean
}

export interface AnthropicTool {
  readonly name: string
  readonly description: string
  readonly input_schema: ObjectSchema
}

/** A function for Gemini; without params it has neither of the two schemas. */
export interface GeminiFunction {
  readonly name: string
  readonly description: string
  readonly parameters?: ObjectSchema
  readonly parametersJsonSchema?: ObjectSchema
}

/** All functions for Gemini: one entry of a request's `tools`. */
export interface GeminiTool {
  readonly functionDeclarations: readonly GeminiFunction[]
}

export interface McpTool {
  readonly name: string
  readonly description: string
  readonly inputSchema: ObjectSchema
  /** There when the result is an object. */
  readonly outputSchema?: ObjectSchema
  readonly annotations: {
    readonly readOnlyHint?: boolean
    readonly destructiveHint?: boolean
    readonly idempotentHint?: boolean
  }
}

export interface DefinitionOf {
  readonly openai: OpenAiTool
  readonly 'openai-responses': OpenAiResponsesTool
  readonly anthropic: AnthropicTool
  readonly gemini: GeminiTool
  readonly mcp: McpTool
  readonly langchain: LangChainTool
}

/** `tool_choice` of a request, or what stands for it. */
export interface ChoiceOf {
  readonly openai: { readonly type: 'function'; readonly function: { readonly name: string } }
  readonly 'openai-responses': { readonly type: 'function'; readonly name: string }
  readonly anthropic: { readonly type: 'tool'; readonly name: string }
  /** The `toolConfig` of a request. */
  readonly gemini: {
    readonly functionCallingConfig: { readonly mode: 'ANY'; readonly allowedFunctionNames: readonly string[] }
  }
  readonly mcp: string
  readonly langchain: string
}
