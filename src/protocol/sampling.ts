/** Questions for a language model: what the answer to MCP's `sampling/createMessage` looks like. */
import { isObject, type JsonObject } from '../base/json.ts'

const block = { type: 'object', properties: { type: { type: 'string' } }, required: ['type'] }

/** A `CreateMessageResult`: `{role, content, model, stopReason?}`, with one content block or several. */
export const sampledSchema: JsonObject = {
  type: 'object',
  properties: {
    role: { enum: ['assistant', 'user'] },
    content: { anyOf: [block, { type: 'array', items: block }] },
    model: { type: 'string' },
    stopReason: { type: 'string' },
  },
  required: ['role', 'content', 'model'],
}

/** A text as such an answer: what a person wrote in place of a model. */
export function toSampled(text: string): JsonObject {
  return { role: 'assistant', content: { type: 'text', text }, model: 'none', stopReason: 'endTurn' }
}

/** The words that a model is asked: the text of the last message of the user, else of the last one. Empty where there is none. */
export function promptOf({ messages }: JsonObject): string {
  const all: JsonObject[] = Array.isArray(messages) ? messages.filter((each) => isObject(each)) : []
  const last = all.findLast(({ role }) => role === 'user') ?? all.at(-1)
  const content = last?.['content']
  const blocks = Array.isArray(content) ? content : [content]
  return blocks.flatMap((each) => (isObject(each) && typeof each['text'] === 'string' ? [each['text']] : [])).join('\n')
}
