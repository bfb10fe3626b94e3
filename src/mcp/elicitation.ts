/** A tool's question as a form that an MCP host can show, and what is filled in as the answer that the tool wants. */
import { isObject, type Json, type JsonObject } from '../base/json.ts'
import type { WireQuestion } from '../protocol/tool-call.ts'
import { clip } from '../tools/value.ts'

/** The form of a question. */
export interface Form {
  readonly message: string
  /** An object whose properties are texts, numbers, booleans and choices: forms know no more. */
  readonly requestedSchema: { type: 'object'; properties: Record<string, JsonObject>; required: string[] }
  /** The answer in what a person filled in. */
  toAnswer(content: JsonObject): Json
}

/** One field of a form, and what its value stands for. */
interface Field {
  readonly schema: JsonObject
  toValue(filled: Json): Json
}

/** How much of a schema that no form can hold is told in words, in characters. */
const maxDescription = 2000

const same = (value: Json): Json => value

/**
 * An object of simple properties becomes a form of them, without those that can have one value only, and a simple value a form of one field, `answer`. What no form
 * can hold is asked for as JSON in a text `answer`, with the schema in its description. The tool's own check of the
 * answer has the last word, and it asks again.
 */
export function toForm({ message, schema, sampling }: WireQuestion): Form {
  // A person writes what a model would have said.
  if (schema === undefined || sampling !== undefined)
    return formOf(message, { schema: { type: 'string' }, toValue: same })
  const given = givenMembers(schema)
  const fields = objectFields(schema, given)
  if (fields !== undefined) {
    const properties = Object.fromEntries([...fields].map(([name, field]) => [name, field.schema]))
    return {
      message,
      requestedSchema: { type: 'object', properties, required: requiredIn(schema).filter((name) => fields.has(name)) },
      toAnswer: (content) => ({
        ...Object.fromEntries(
          Object.entries(content).map(([name, filled]) => [name, fields.get(name)?.toValue(filled) ?? filled]),
        ),
        ...given,
      }),
    }
  }
  return formOf(message, toField(schema) ?? jsonField(schema))
}

function formOf(message: string, field: Field): Form {
  return {
    message,
    requestedSchema: { type: 'object', properties: { answer: field.schema }, required: ['answer'] },
    toAnswer: ({ answer }) => field.toValue(answer ?? null),
  }
}

/**
 * The members that an answer must have, perhaps under a condition, and that can have one value only: there is nothing to
 * ask a person. One that may be left out is a choice.
 */
function givenMembers(schema: JsonObject): JsonObject {
  const { properties } = schema
  if (!isObject(properties)) return {}
  const wanted = new Set([schema, ...branchesOf(schema)].flatMap(requiredIn))
  return Object.fromEntries(
    Object.entries(properties).flatMap(([name, property]): [string, Json][] =>
      wanted.has(name) && isObject(property) && property['const'] !== undefined ? [[name, property['const']]] : [],
    ),
  )
}

function branchesOf({ if: condition, then, else: otherwise }: JsonObject): JsonObject[] {
  return condition === undefined ? [] : [then, otherwise].filter((branch) => isObject(branch))
}

function requiredIn({ required }: JsonObject): string[] {
  return Array.isArray(required) ? required.filter((name) => typeof name === 'string') : []
}

/** Whether a condition asks for nothing but members that are given anyway. */
function isSettled(schema: JsonObject, given: JsonObject): boolean {
  return branchesOf(schema).every(
    (branch) =>
      Object.keys(branch).every((key) => key === 'required') &&
      requiredIn(branch).every((name) => Object.hasOwn(given, name)),
  )
}

/** The fields of an object schema but for what is given; undefined where it is none, or says more than a form can. */
function objectFields(schema: JsonObject, given: JsonObject): Map<string, Field> | undefined {
  const { type, properties } = schema
  if (type !== 'object' || !isObject(properties) || Object.keys(properties).length === 0) return undefined
  if (['allOf', 'anyOf', 'oneOf', '$ref', 'patternProperties'].some((key) => schema[key] !== undefined))
    return undefined
  if (!isSettled(schema, given)) return undefined
  const fields = new Map<string, Field>()
  for (const [name, property] of Object.entries(properties)) {
    if (Object.hasOwn(given, name)) continue
    const field = isObject(property) ? toField(property) : undefined
    if (field === undefined) return undefined
    fields.set(name, field)
  }
  return fields
}

function toField(schema: JsonObject): Field | undefined {
  const about = pick(schema, ['title', 'description'])
  const { type, const: only } = schema
  if (only !== undefined) return choice(about, [only], only)
  if (Array.isArray(schema['enum'])) return choice(about, schema['enum'], schema['default'], schema['enumNames'])
  switch (type) {
    case 'string':
      return textField(schema, about)
    case 'number':
    case 'integer':
      return { schema: { ...about, type, ...pick(schema, ['minimum', 'maximum', 'default'], 'number') }, toValue: same }
    case 'boolean':
      return { schema: { ...about, type, ...pick(schema, ['default'], 'boolean') }, toValue: same }
    case 'array':
      return listField(schema, about)
    default:
      return undefined
  }
}

const formats = new Set<Json | undefined>(['email', 'uri', 'date', 'date-time'])

function textField(schema: JsonObject, about: JsonObject): Field {
  const options = titled(schema['oneOf'])
  if (options !== undefined)
    return { schema: { ...about, type: 'string', oneOf: options, ...pick(schema, ['default']) }, toValue: same }
  const format = formats.has(schema['format']) ? pick(schema, ['format']) : {}
  const limits = pick(schema, ['minLength', 'maxLength'], 'number')
  return { schema: { ...about, type: 'string', ...limits, ...format, ...pick(schema, ['default']) }, toValue: same }
}

/** Several of some texts. */
function listField(schema: JsonObject, about: JsonObject): Field | undefined {
  const { items } = schema
  if (!isObject(items)) return undefined
  const { default: preset } = schema
  const isPreset = Array.isArray(preset) && preset.every((each) => typeof each === 'string')
  const more = { ...pick(schema, ['minItems', 'maxItems'], 'number'), ...(isPreset ? { default: preset } : {}) }
  const options = titled(items['anyOf'] ?? items['oneOf'])
  if (options !== undefined)
    return { schema: { ...about, type: 'array', ...more, items: { anyOf: options } }, toValue: same }
  const choices: unknown = items['enum']
  if (!Array.isArray(choices) || !choices.every((each) => typeof each === 'string')) return undefined
  return { schema: { ...about, type: 'array', ...more, items: { type: 'string', enum: choices } }, toValue: same }
}

/** One of some values. Forms offer texts, so any other value is offered as its JSON. */
function choice(about: JsonObject, values: Json[], preset: Json | undefined, names?: Json): Field | undefined {
  if (values.length === 0 || values.some((value) => typeof value === 'object' && value !== null)) return undefined
  const shown = values.map((value) => (typeof value === 'string' ? value : JSON.stringify(value)))
  // Of 1 and "1" nobody could say which was chosen.
  if (new Set(shown).size < shown.length) return undefined
  const index = preset === undefined ? -1 : values.indexOf(preset)
  return {
    schema: {
      ...about,
      type: 'string',
      enum: shown,
      ...(Array.isArray(names) && names.length === shown.length ? { enumNames: names } : {}),
      ...(index === -1 ? {} : { default: shown[index] as string }),
    },
    toValue: (filled) => {
      const chosen = values[shown.indexOf(filled as string)]
      return chosen === undefined ? filled : chosen
    },
  }
}

/** `[{const, title}]`, which forms know; undefined for anything else. */
function titled(oneOf: Json | undefined): JsonObject[] | undefined {
  if (!Array.isArray(oneOf) || oneOf.length === 0) return undefined
  const options = oneOf.flatMap((option) => {
    if (!isObject(option) || typeof option['const'] !== 'string') return []
    return [{ const: option['const'], title: typeof option['title'] === 'string' ? option['title'] : option['const'] }]
  })
  return options.length === oneOf.length ? options : undefined
}

function jsonField(schema: JsonObject): Field {
  const description = clip(`JSON that fits this schema: ${JSON.stringify(schema)}`, maxDescription)
  return {
    schema: { type: 'string', description },
    toValue: (filled) => {
      if (typeof filled !== 'string') return filled
      try {
        return JSON.parse(filled) as Json
      } catch {
        // The tool says what is wrong with it, and asks again.
        return filled
      }
    },
  }
}

function pick(
  schema: JsonObject,
  names: readonly string[],
  type: 'string' | 'number' | 'boolean' = 'string',
): JsonObject {
  return Object.fromEntries(
    names.flatMap((name) => {
      const value = schema[name]
      return value !== undefined && typeof value === type ? [[name, value]] : []
    }),
  )
}
