/** The questions of a tool: answered by flags, by whoever sits at the terminal, or by nobody. */
import { createInterface } from 'node:readline/promises'
import { ConvokeError } from '../../base/errors.ts'
import type { Json } from '../../base/json.ts'
import { stripControls } from '../../base/text.ts'
import { describeIssues } from '../../tools/issues.ts'
import { isStandardSchema } from '../../tools/standard.ts'
import { compile } from '../../tools/schema.ts'
import type { JsonSchema, Question } from '../../tools/tool.ts'
import { paramsText, typeText } from './signature.ts'

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
  if (next !== undefined) return toAnswer(next, schemaOf(question)).value
  if (!process.stdin.isTTY || !process.stderr.isTTY) {
    throw new ConvokeError('unsupported_operation', 'Nobody can be asked: standard input is no terminal.')
  }
  onQuestion(question)
  return askTerminal(question, signal)
}

async function askTerminal(question: Question, signal: AbortSignal): Promise<Json> {
  const schema = schemaOf(question)
  const reader = createInterface({ input: process.stdin, output: process.stderr })
  // In raw mode a Ctrl-C is a character, and no signal comes.
  reader.on('SIGINT', () => process.kill(process.pid, 'SIGINT'))
  try {
    process.stderr.write(`${stripControls(question.message)}\n`)
    if (schema !== undefined) process.stderr.write(`(${shapeOf(schema)})\n`)
    for (;;) {
      const { value, issues } = toAnswer(await reader.question('> ', { signal }), schema)
      if (issues === '') return value
      process.stderr.write(`${issues}\n`)
    }
  } finally {
    reader.close()
  }
}

function schemaOf({ schema }: Question): JsonSchema | undefined {
  // That of a peer came over the wire.
  return schema === undefined || isStandardSchema(schema) ? undefined : schema
}

/** A text as the answer that fits: as it stands, else as the JSON that it is. */
function toAnswer(text: string, schema: JsonSchema | undefined): { value: Json; issues: string } {
  const json = parsed(text)
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
  if (json === undefined) return { value: text, issues: describeIssues(asText) }
  return { value: json, issues: describeIssues(validator.validate(json)) }
}

function parsed(text: string): Json | undefined {
  try {
    return JSON.parse(text) as Json
  } catch {
    return undefined
  }
}

function shapeOf(schema: JsonSchema): string {
  const type = typeText(schema, schema)
  return type === 'object' ? `JSON: {${paramsText(schema)}}` : type
}
