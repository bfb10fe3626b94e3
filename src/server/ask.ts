/** Questions to a caller: asked on the task, answered by the next message on it, asked again until the answer fits. */
import { ConvokeError, type Issue } from '../base/errors.ts'
import { isObject, parseJson, type Json, type JsonObject } from '../base/json.ts'
import { fromAnswerMessage, toQuestionMessage } from '../protocol/tool-call.ts'
import type { WorkContext } from '../tasks/work.ts'
import { describeIssues } from '../tools/issues.ts'
import { compile } from '../tools/schema.ts'
import { isStandardSchema, jsonSchemaOf, refineWith } from '../tools/standard.ts'
import type { Question } from '../tools/tool.ts'

/**
 * The answer: with a schema, a value that fits it (text that is JSON counts as the JSON where the text itself does not
 * fit); without one, what the reply holds. An answer that does not fit is sent back with what is wrong; `{action:
 * "decline"}` is none, and throws `rejected`. Throws for a schema that cannot be compiled, before anybody is asked.
 */
export async function ask(question: Question, toolName: string, work: WorkContext): Promise<Json> {
  const { message, schema } = question
  if (schema === undefined) return fromAnswerMessage(await work.ask(toQuestionMessage({ message }, toolName)))
  const standard = isStandardSchema(schema) ? schema : undefined
  const json: JsonObject = standard === undefined ? (schema as JsonObject) : jsonSchemaOf(standard, 'input')
  // The question may be one that a peer asks.
  const validator = compile(json, { defaults: standard === undefined, foreign: true })
  validator.prepare()
  let text = message
  for (;;) {
    const answer = fromAnswerMessage(await work.ask(toQuestionMessage({ message: text, schema: json }, toolName)))
    let issues: readonly Issue[] = []
    for (const candidate of readings(answer)) {
      issues = validator.validate(candidate)
      if (issues.length > 0) continue
      if (standard === undefined) return candidate
      const refined = await refineWith(standard, candidate)
      if (refined.issues === undefined) return refined.value as Json
      issues = refined.issues
    }
    // What MCP hosts say, and nodes between us and one.
    if (isDecline(answer)) throw new ConvokeError('rejected', 'The caller declined to answer.')
    text = `${message} The answer did not fit: ${describeIssues(issues)}`
  }
}

function isDecline(answer: Json): boolean {
  return readings(answer).some(
    (each) => isObject(each) && Object.keys(each).length === 1 && each['action'] === 'decline',
  )
}

function readings(answer: Json): Json[] {
  if (typeof answer !== 'string') return [answer]
  try {
    return [answer, parseJson(answer) as Json]
  } catch {
    // Not every answer is JSON; the text itself is the only reading then.
    return [answer]
  }
}
