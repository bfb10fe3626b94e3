// What models may do: look reviews up, and tell shipping of a complaint.
import { readFile } from 'node:fs/promises'
import { defineTool } from 'convoke'

export const notifyShipping = defineTool({
  name: 'notify_shipping',
  description: 'Tells the shipping department of a review that complains about the delivery: late, lost or damaged.',
  input: {
    type: 'object',
    properties: {
      id: { type: 'string', description: 'The id of the review.' },
      problem: { type: 'string', description: 'What went wrong, in the words of the review.' },
    },
    required: ['id', 'problem'],
  },
  run({ id, problem }) {
    // Here a mail would go out.
    console.log(`${id}  ✉ shipping: ${problem}`)
    return 'Shipping knows.'
  },
})

export const findReviews = defineTool({
  name: 'find_reviews',
  description: 'Finds the reviews of a product.',
  input: {
    type: 'object',
    properties: { product: { enum: ['kettle', 'lamp', 'backpack'] } },
    required: ['product'],
  },
  traits: { readOnly: true },
  async run({ product }) {
    const lines = await readFile(new URL('reviews.jsonl', import.meta.url), 'utf8')
    const reviews = lines
      .trim()
      .split('\n')
      .map((line) => JSON.parse(line))
    return reviews.filter(({ key }) => key === product).map(({ value }) => value)
  },
})
