/** A tool's schema as a plain list of its params. */
import { isObject, type Json } from '../../base/json.ts'
import type { Tool } from '../tool.ts'

/** One param of a tool, for forms and lists. The tool's JSON Schema says the whole of it. */
export interface ParameterSchema {
  readonly name: string
  /** The JSON Schema type; several are joined by `|`, and `any` stands for none. */
  readonly type: string
  readonly required: boolean
  readonly description?: string
  readonly default?: Json
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
