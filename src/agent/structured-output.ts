/** A model's answer as the JSON that it was asked for. */
import { ConvokeError, type Issue } from '../base/errors.ts'
import { maxJsonDepth, parseJson, type Json, type JsonObject } from '../base/json.ts'
import { describeIssues } from '../tools/issues.ts'
import { findJsonBreak } from '../tools/model-call.ts'
import { compile, type Validator } from '../tools/schema.ts'

export type ReadOutput = { readonly value: Json } | { readonly issues: readonly Issue[] }

/**
 * The value in an answer, if it fits the schema. The answer is JSON, or holds one value of JSON: in a code fence, or as the
 * only object or list in a text, or the only one of them that fits. Throws `config` for a schema that makes no sense.
 */
export function readOutput(answer: string, schema: JsonObject): ReadOutput {
  const found = findValue(answer, schema)
  // Whoever wants a text gets it without quotes from most models.
  if ('issues' in found && schema['type'] === 'string') return checked(answer.trim(), schema)
  return 'issues' in found ? found : checked(found.value, schema)
}

function checked(value: Json, schema: JsonObject): ReadOutput {
  const issues = validate(value, schema)
  return issues.length === 0 ? { value } : { issues }
}

function validate(value: Json, schema: JsonObject): readonly Issue[] {
  try {
    return validatorFor(schema).validate(value)
  } catch (cause) {
    const reason = cause instanceof Error ? cause.message : String(cause)
    throw new ConvokeError('config', `The output schema of the request makes no sense. ${reason}`, { cause })
  }
}

/** Schemas in use, by their JSON: compiling one takes milliseconds, and the events that carry it are new each time. */
const validators = new Map<string, Validator>()
const maxValidators = 100

function validatorFor(schema: JsonObject): Validator {
  const key = JSON.stringify(schema)
  const validator = validators.get(key) ?? compile(schema)
  // The last used stand last, and the first goes.
  validators.delete(key)
  validators.set(key, validator)
  if (validators.size > maxValidators) validators.delete(validators.keys().next().value ?? '')
  return validator
}

function findValue(answer: string, schema: JsonObject): ReadOutput {
  const whole = tryParse(answer)
  if (whole !== undefined) return whole
  const fenced = onlyOne(blocksOf(answer).flatMap((block) => tryParse(block) ?? []))
  if (fenced !== undefined) return fenced
  const { values, isCut } = valuesIn(answer)
  // Beside its answer a model may show an example, or point at [1].
  const only = onlyOne(values) ?? onlyOne(values.filter(({ value }) => validate(value, schema).length === 0))
  if (only !== undefined && !isCut) return only
  if (values.length > 1) return wrong(`must be one JSON value, and holds ${values.length} of them`)
  if (answer.trim() === '') return wrong('must be JSON, and is empty')
  if (isJson(answer)) return wrong(`nests deeper than ${maxJsonDepth} levels`)
  return wrong(isCut ? 'is not complete JSON: its end is missing' : 'must be JSON, and is none')
}

function wrong(message: string): ReadOutput {
  return { issues: [{ path: '', message }] }
}

function onlyOne<Value>(values: readonly Value[]): Value | undefined {
  return values.length === 1 ? values[0] : undefined
}

function tryParse(text: string): { readonly value: Json } | undefined {
  try {
    return { value: parseJson(text) as Json }
  } catch {
    // Whatever is wrong with it, it is no JSON value for us.
    return undefined
  }
}

function isJson(text: string): boolean {
  try {
    JSON.parse(text)
    return true
  } catch {
    return false
  }
}

/** At how many places of a text a value is looked for: to find that there is none takes as long as a thousand characters. */
const maxPlaces = 1_000

/** What stands between fences, without the word that names its language. */
function blocksOf(text: string): string[] {
  return text
    .split('```', 2 * maxPlaces)
    .filter((_, i) => i % 2 === 1)
    .map((block) => block.replace(/^[ \t]*[\w+.-]*[ \t]*\r?\n/, ''))
}

/**
 * The objects and lists in a text, and whether one of them has no end. Each character is looked at a few times at most: what
 * begins like a value and is none is passed over as far as it was like one.
 */
function valuesIn(text: string): { readonly values: { readonly value: Json }[]; readonly isCut: boolean } {
  const values: { readonly value: Json }[] = []
  const opening = /[[{]/g
  for (let places = 0; places < maxPlaces; places++) {
    const start = opening.exec(text)?.index
    if (start === undefined) break
    const rest = text.slice(start)
    const length = findJsonBreak(rest)
    const parsed = tryParse(rest.slice(0, length))
    if (parsed !== undefined) values.push(parsed)
    else if (length === rest.length) return { values, isCut: true }
    opening.lastIndex = start + Math.max(length, 1)
  }
  return { values, isCut: false }
}

/** The failure of an answer that does not fit. `tries` is how many did not, `finishReason` the endpoint's. */
export function invalidOutput(issues: readonly Issue[], tries: number, finishReason?: string): ConvokeError {
  const advice =
    finishReason === 'length'
      ? 'It was cut at the limit of tokens for one answer (finish_reason "length"): raise `max_tokens` in the `parameters` of the chat model setup, or ask for less.'
      : `Say in the prompt what is wanted, ${tries > 1 ? 'or make the schema simpler' : 'make the schema simpler, or let the model try again with the error strategy `retry` (`onError` of agent.react)'}.`
  const after = tries > 1 ? `, after ${tries} tries` : ''
  return new ConvokeError(
    'invalid_output',
    `The model's answer does not fit the output schema${after}: ${describeIssues(issues)}. ${advice}`,
    { issues },
  )
}

/** What the model is told of it. */
export function complaint(issues: readonly Issue[], finishReason?: string): string {
  const lines = issues.map(({ path, message }) => `- ${path === '' ? 'the answer' : path}: ${message}`)
  const cut = finishReason === 'length' ? ['It was cut because it was too long: write less.'] : []
  return [
    'Your answer does not fit the JSON Schema that it must fit:',
    ...lines,
    ...cut,
    'Answer again, with the JSON value alone and nothing around it.',
  ].join('\n')
}

/** The instruction for a model whose endpoint may not hold it to the schema. */
export function schemaPrompt(schema: JsonObject): string {
  const { $schema: _, ...rest } = schema
  return `Your final answer must be one JSON value that fits this JSON Schema, and nothing around it:\n${JSON.stringify(rest)}`
}
