/** Questions to a caller: asked on the task, answered by the next message on it, asked again until the answer fits. */
import type { Json } from '../base/json.ts'
import { fromAnswerMessage, toQuestionMessage } from '../protocol/tool-call.ts'
import type { WorkContext } from '../tasks/work.ts'
import { AnswerCheck, refuseDecline } from '../tools/answers.ts'
import { describeIssues } from '../tools/issues.ts'
import type { Question } from '../tools/tool.ts'

/**
 * The answer: with a schema, a value that fits it (text counts as what the question reads in it, else as the JSON that it
 * is where the text itself does not fit, and where a language model is asked any text as the model's); without one, what
 * the reply holds. An answer that does not fit is sent back with what is wrong; `{action: "decline"}` is none, and throws
 * `rejected`. Throws for a schema that cannot be compiled, before anybody is asked.
 */
export async function ask(question: Question, toolName: string, work: WorkContext): Promise<Json> {
  const { message, schema, sampling } = question
  const more = sampling === undefined ? {} : { sampling }
  if (schema === undefined) {
    const answer = fromAnswerMessage(await work.ask(toQuestionMessage({ message, ...more }, toolName)))
    refuseDecline(question, answer)
    return answer
  }
  const check = new AnswerCheck({ ...question, schema })
  let text = message
  for (;;) {
    const asked = toQuestionMessage({ message: text, schema: check.schema, ...more }, toolName)
    const { value, issues } = await check.check(fromAnswerMessage(await work.ask(asked)))
    if (issues === undefined) return value
    text = `${message} The answer did not fit: ${describeIssues(issues)}`
  }
}
