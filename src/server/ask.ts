/** Questions to a caller: asked on the task, answered by the next message on it, asked again until the answer fits. */
import type { Issue } from '../base/errors.ts'
import type { Json } from '../base/json.ts'
import { fromAnswerMessage, toQuestionMessage } from '../protocol/tool-call.ts'
import type { WorkContext } from '../tasks/work.ts'
import { describeIssues } from '../tools/issues.ts'
import { compile } from '../tools/schema.ts'
import type { Question } from '../tools/tool.ts'

/**
 * The answer: with a schema, a value that fits it (text that is JSON counts as the JSON where the text itself does not
 * fit); without one, what the reply holds. An answer that does not fit is sent back with what is wrong.
 */
export async function ask(question: Question, toolName: string, work: WorkContext): Promise<Json> {
  const validator = question.schema === undefined ? undefined : compile(question.schema, { defaults: true })
  let asked = question
  for (;;) {
    const answer = fromAnswerMessage(await work.ask(toQuestionMessage(asked, toolName)))
    if (validator === undefined) return answer
    let issues: readonly Issue[] = []
    for (const candidate of readings(answer)) {
      issues = validator.validate(candidate)
      if (issues.length === 0) return candidate
    }
    asked = { ...question, message: `${question.message} The answer did not fit: ${describeIssues(issues)}` }
  }
}

function readings(answer: Json): Json[] {
  if (typeof answer !== 'string') return [answer]
  try {
    return [answer, JSON.parse(answer) as Json]
  } catch {
    return [answer]
  }
}
