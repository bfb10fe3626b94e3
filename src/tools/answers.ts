/** Answers to the questions of tools: what a reply may mean, and whether it fits what was asked for. */
import { ConvokeError, type Issue } from '../base/errors.ts'
import { isObject, parseJson, type Json, type JsonObject } from '../base/json.ts'
import { toSampled } from '../protocol/sampling.ts'
import { compile, type Validator } from './schema.ts'
import { isStandardSchema, jsonSchemaOf, refineWith, type StandardSchema } from './standard.ts'
import type { Question } from './tool.ts'
import { clip, excerpt } from './value.ts'

/** An answer as the tool gets it, or what is wrong with it. */
export type CheckedAnswer =
  | { readonly value: Json; readonly issues?: undefined }
  | { readonly value?: undefined; readonly issues: readonly Issue[] }

/** Holds answers against the schema of a question. */
export class AnswerCheck {
  /** What an answer must look like, for those who are asked. */
  readonly schema: JsonObject
  readonly #question: Question
  readonly #standard: StandardSchema | undefined
  readonly #validator: Validator

  /** Throws for a schema that cannot be compiled. */
  constructor(question: Question & { readonly schema: NonNullable<Question['schema']> }) {
    const { schema } = question
    this.#question = question
    this.#standard = isStandardSchema(schema) ? schema : undefined
    this.schema = this.#standard === undefined ? (schema as JsonObject) : jsonSchemaOf(this.#standard, 'input')
    // The question may be one that a peer asks.
    this.#validator = compile(this.schema, { defaults: this.#standard === undefined, foreign: true })
    this.#validator.prepare()
  }

  /**
   * The first reading of the answer that fits, defaults filled in: pass a value that belongs to the call. `{action:
   * "decline"}`, where that does not fit, is no answer, and throws `rejected`.
   */
  async check(answer: Json): Promise<CheckedAnswer> {
    const { sampling, read } = this.#question
    // Seen before defaults are filled in.
    const declines = isDecline(answer)
    // Any text would do as a model's.
    if (declines && sampling !== undefined) throw declined(this.#question)
    let issues: readonly Issue[] = []
    for (const candidate of readings(answer, this.#question)) {
      issues = this.#validator.validate(candidate)
      if (issues.length > 0) continue
      if (this.#standard === undefined) return { value: candidate }
      const refined = await refineWith(this.#standard, candidate)
      if (refined.issues === undefined) return { value: refined.value as Json }
      issues = refined.issues
    }
    if (declines) throw declined(this.#question)
    if (read === undefined || typeof answer !== 'string' || toJson(answer) !== undefined) return { issues }
    const message = `${excerpt(answer)} is not enough, or not what was asked for: reply word for word as the question says`
    return { issues: [{ path: '', message }] }
  }
}

/** Throws `rejected` for what MCP hosts, and nodes between us and one, say of somebody who does not answer. */
export function refuseDecline(question: Question, answer: Json): void {
  if (isDecline(answer)) throw declined(question)
}

function isDecline(answer: Json): boolean {
  const json = typeof answer === 'string' ? toJson(answer) : answer
  return isObject(json) && Object.keys(json).length === 1 && json['action'] === 'decline'
}

function declined({ message }: Question): ConvokeError {
  return new ConvokeError('rejected', `The caller declined to answer: ${clip(message, 500)}`)
}

/** What an answer may mean, in the order they are tried. */
function readings(answer: Json, { sampling, read }: Question): Json[] {
  if (typeof answer !== 'string') return [answer]
  const meant = [read?.(answer.trim()), answer, toJson(answer), sampling === undefined ? undefined : toSampled(answer)]
  return meant.filter((each) => each !== undefined)
}

function toJson(text: string): Json | undefined {
  try {
    return parseJson(text) as Json
  } catch {
    // Not every answer is JSON.
    return undefined
  }
}
