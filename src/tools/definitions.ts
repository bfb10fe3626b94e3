/** A tool's schema as others want it: a plain list of its params, and the definition that a language model is given. */
import { isObject, type Json, type JsonObject } from '../base/json.ts'
import type { Tool } from './tool.ts'

/** One param of a tool, for forms and lists. The tool's JSON Schema says the whole of it. */
export interface ParameterSchema {
  readonly name: string
  /** The JSON Schema type; several are joined by `|`, and `any` stands for none. */
  readonly type: string
  readonly required: boolean
  readonly description?: string
  readonly default?: Json
}

/** A function tool as OpenAI's chat completions, and the many endpoints like them, take it. */
export interface OpenAiTool {
  readonly type: 'function'
  readonly function: { readonly name: string; readonly description: string; readonly parameters: JsonObject }
}

/** The params in the order of the schema's properties. A schema without properties gives none. */
export function toParameters(tool: Tool): ParameterSchema[] {
  const { properties, required } = tool.input
  if (!isObject(properties)) return []
  const needed = new Set(Array.isArray(required) ? required : [])
  return Object.entries(properties).map(([name, schema]) => toParameter(name, schema, needed.has(name)))
}

function toParameter(name: string, schema: Json, required: boolean): ParameterSchema {
  if (!isObject(schema)) return { name, type: 'any', required }
  const { type, description } = schema
  return {
    name,
    type: typeNames(type).join('|') || 'any',
    required,
    ...(typeof description === 'string' ? { description } : {}),
    ...(schema['default'] === undefined ? {} : { default: schema['default'] }),
  }
}

function typeNames(type: Json | undefined): string[] {
  return (Array.isArray(type) ? type : [type]).filter((name) => typeof name === 'string')
}

/** The definition for a model. It holds the tool's own schema, which is not to be changed. */
export function toOpenAi({ name, description, input }: Tool): OpenAiTool {
  return { type: 'function', function: { name, description, parameters: input } }
}
