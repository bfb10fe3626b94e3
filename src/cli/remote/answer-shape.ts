/** What an answer to a question looks like, as far as its schema says. */
import { isObject, type Json, type JsonObject } from '../../base/json.ts'
import { isStandardSchema } from '../../tools/standard.ts'
import type { JsonSchema, Question } from '../../tools/tool.ts'
import { paramsText, typeText } from './signature.ts'

/** What an answer looks like, where that is known: `"red" | "blue"`, `yes or no`, `JSON: {…}`. */
export function shapeOfAnswer(question: Question): string | undefined {
  const schema = schemaOf(question)
  return schema === undefined ? undefined : shapeOf(schema)
}

/** What an answer has to fit; undefined where any will do. */
export function schemaOf({ schema, sampling }: Question): JsonSchema | undefined {
  // A text will do where a model is asked.
  if (sampling !== undefined) return undefined
  // That of a peer came over the wire.
  return schema === undefined || isStandardSchema(schema) ? undefined : schema
}

/** An object of which some members are given by its schema. */
export interface Form {
  readonly given: JsonObject
  /** The one member left, if it is all that is left and a boolean. */
  readonly choice: string | undefined
}

/** Undefined for a schema that leaves everything open. */
export function formOf(schema: JsonSchema | undefined): Form | undefined {
  const { type, properties } = schema ?? {}
  if (type !== 'object' || !isObject(properties)) return undefined
  const members = Object.entries(properties)
  const given = members.flatMap(([name, member]): [string, Json][] =>
    isObject(member) && member['const'] !== undefined ? [[name, member['const']]] : [],
  )
  if (given.length === 0) return undefined
  const [left, ...others] = members.filter(([, member]) => !(isObject(member) && member['const'] !== undefined))
  const isChoice = left !== undefined && others.length === 0 && isObject(left[1]) && left[1]['type'] === 'boolean'
  return { given: Object.fromEntries(given), choice: isChoice ? left[0] : undefined }
}

function shapeOf(schema: JsonSchema): string {
  if (formOf(schema)?.choice !== undefined) return 'yes or no'
  const type = typeText(schema, schema)
  return type === 'object' ? `JSON: {${paramsText(schema)}}` : type
}
