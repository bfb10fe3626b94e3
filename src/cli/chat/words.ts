/** What an agent's messages say: their text, their parts, and what they ask. */
import type { JsonObject } from '../../base/json.ts'
import type { Message, Part, TaskStatus } from '../../protocol/a2a.ts'
import { fromQuestionMessage } from '../../protocol/tool-call.ts'
import { approvalReader } from '../../tools/approval.ts'
import type { Question } from '../../tools/tool.ts'
import type { ChatEvent } from './events.ts'

/** A question as it came over the wire. */
export type AskedQuestion = Question & { readonly schema?: JsonObject }

/** What an agent asks whose task waits for its caller. `text` is that of its message. */
export function toQuestion({ state, message }: TaskStatus, text: string): AskedQuestion {
  const asked = message === undefined ? undefined : fromQuestionMessage(message)
  const isAuth = state === 'TASK_STATE_AUTH_REQUIRED'
  const words = asked?.message ?? text
  const silent = isAuth ? 'It wants you to authenticate.' : 'It asks for input, without words.'
  const sentence = words === '' ? silent : words
  return {
    message: isAuth ? `Authentication is required: ${sentence}` : sentence,
    ...(asked?.schema === undefined ? {} : { schema: asked.schema, read: approvalReader(asked.schema) }),
    ...(asked?.sampling === undefined ? {} : { sampling: asked.sampling }),
  }
}

/** Parts as they are shown; empty texts are not. */
export function* partsOf(parts: readonly Part[], artifactId: string | null): Generator<ChatEvent, void, void> {
  for (const part of parts) {
    if (part.text === undefined) yield { type: 'part', artifactId, part }
    else if (part.text !== '') yield { type: 'text', artifactId, text: part.text }
  }
}

/** All text of a message. */
export function textOf(message: Message | undefined): string {
  return (message?.parts ?? []).flatMap(({ text }) => (text === undefined ? [] : [text])).join('\n')
}
