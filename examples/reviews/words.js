// What the models are told, and what their answers must look like: the same for the workflow and for the ReAct agents.
import { Prompt } from 'convoke'

export const reviewPrompt = Prompt.fromMessages([
  {
    role: 'system',
    content:
      'You read product reviews. Give a score from 1 (very unhappy) to 5 (very happy), and the reasons for being unhappy, ' +
      'if any, in the words of the review. If it complains about the delivery, call notify_shipping first, once.',
  },
  { role: 'user', content: 'Product: {product}\nReview {id}: {review}' },
])

export const judgementSchema = {
  type: 'object',
  properties: {
    id: { type: 'string', description: 'The id of the review.' },
    score: { type: 'integer', minimum: 1, maximum: 5 },
    reasons: { type: 'array', items: { type: 'string' } },
  },
  required: ['id', 'score', 'reasons'],
}

export const suggestionPrompt = Prompt.fromMessages([
  {
    role: 'system',
    content:
      'You advise a shop. From what reviews say of one product, suggest what to do about it: few things, each short.',
  },
  { role: 'user', content: 'The reviews: {input}' },
])

export const adviceSchema = {
  type: 'object',
  properties: { suggestions: { type: 'array', items: { type: 'string' } } },
  required: ['suggestions'],
}
