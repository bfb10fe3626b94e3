/** The questions of a tool: answered by flags, by whoever sits at the terminal, or by nobody. */
import { createInterface } from 'node:readline/promises'
import { ConvokeError } from '../../base/errors.ts'
import { isObject, type Json, type JsonObject } from '../../base/json.ts'
import { stripControls } from '../../base/text.ts'
import { approvingReply, withoutReplies } from '../../tools/approval.ts'
import { describeIssues } from '../../tools/issues.ts'
import { compile } from '../../tools/schema.ts'
import type { JsonSchema, Question } from '../../tools/tool.ts'
import { formOf, schemaOf, shapeOfAnswer, type Form } from './answer-shape.ts'

export interface Answers {
  /** Those of --answer that are not given yet, the next one first. */
  readonly given: string[]
  /** Hears what is asked before anybody is. */
  readonly onQuestion: (question: Question) => void
  readonly signal: AbortSignal
}

/** The next answer. Throws `unsupported_operation` where there is nobody to ask. */
export async function answer(question: Question, { given, onQuestion, signal }: Answers): Promise<Json> {
  const next = given.shift()
  if (next !== undefined) return readAnswer(next, question).value
  if (!process.stdin.isTTY || !process.stderr.isTTY) {
    throw new ConvokeError('unsupported_operation', 'Nobody can be asked: standard input is no terminal.')
  }
  onQuestion(question)
  return askTerminal(question, signal)
}

async function askTerminal(question: Question, signal: AbortSignal): Promise<Json> {
  const reader = createInterface({ input: process.stdin, output: process.stderr })
  // In raw mode a Ctrl-C is a character, and no signal comes.
  reader.on('SIGINT', () => process.kill(process.pid, 'SIGINT'))
  try {
    for (const line of questionLines(question)) process.stderr.write(`${line}\n`)
    for (;;) {
      const { value, issues } = readAnswer(await reader.question('> ', { signal }), question)
      if (issues === '') return value
      process.stderr.write(`${issues}\n`)
    }
  } finally {
    reader.close()
  }
}

/** What is asked, and what an answer looks like where that is known. Of a language model, what it is told to be, too. */
function questionLines(question: Question): string[] {
  const { message, sampling } = question
  const words = shapeOfAnswer(question)
  const shape = words === undefined ? [] : [`(${words})`]
  const { systemPrompt } = sampling ?? {}
  const before = typeof systemPrompt === 'string' ? [`(as: ${systemPrompt})`] : []
  const lead = sampling === undefined ? [] : ['The tool asks a language model. Answer in its place:']
  return [...lead, ...before, askedText(message, schemaOf(question)), ...shape].map(stripControls)
}

/** What is asked: an approval that takes yes and no here has a longer way to say so in its words. */
export function askedText(message: string, schema: JsonSchema | undefined): string {
  return schema === undefined || approvingReply(schema) === undefined ? message : withoutReplies(message)
}

/** What there is to know of a question beside its message: what an answer looks like. */
export function hintLines(question: Question): string[] {
  const { message } = question
  return questionLines(question).filter((line) => !stripControls(message).includes(line))
}

/** A text as the answer to a question; `issues` is empty where it fits. */
export function readAnswer(text: string, question: Question): { value: Json; issues: string } {
  return toAnswer(text, schemaOf(question), question.read)
}

/**
 * A text as the answer that fits: as it stands, else as the JSON that it is. What the schema leaves no choice about is
 * filled in, and where one yes or no is left, `yes` and `no` in some of their words are taken for it.
 */
function toAnswer(
  text: string,
  schema: JsonSchema | undefined,
  read: Question['read'],
): { value: Json; issues: string } {
  const meant = schema === undefined ? undefined : read?.(text.trim())
  if (meant !== undefined) return { value: meant, issues: '' }
  const form = formOf(schema)
  const json = filledIn(form?.choice === undefined ? parsed(text) : (toChoice(text, form.choice) ?? parsed(text)), form)
  if (schema === undefined) return { value: json !== null && typeof json === 'object' ? json : text, issues: '' }
  const validator = compile(schema)
  try {
    validator.prepare()
  } catch {
    // The peer says what is wrong with the answer.
    return { value: json ?? text, issues: '' }
  }
  const asText = validator.validate(text)
  if (asText.length === 0) return { value: text, issues: '' }
  if (json === undefined) {
    return { value: text, issues: form?.choice === undefined ? describeIssues(asText) : 'Answer yes or no.' }
  }
  return { value: json, issues: describeIssues(validator.validate(json)) }
}

function parsed(text: string): Json | undefined {
  try {
    return JSON.parse(text) as Json
  } catch {
    return undefined
  }
}

function filledIn(json: Json | undefined, form: Form | undefined): Json | undefined {
  return form === undefined || !isObject(json) ? json : { ...form.given, ...json }
}

const yes = /^(y|yes|true|ok|approve|approved)$/i
const no = /^(n|no|false|deny|denied|decline|reject)$/i

function toChoice(text: string, name: string): JsonObject | undefined {
  const word = text.trim()
  return yes.test(word) ? { [name]: true } : no.test(word) ? { [name]: false } : undefined
}
