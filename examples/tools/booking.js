// A tool that asks back: while it waits for the answer its task is input-required, and it goes on where it stood.
import { defineTool } from 'convoke'

const details = /** @type {const} */ ({
  date: { type: 'string', format: 'date', description: 'The day, as 2026-01-31.' },
  time: { type: 'string', pattern: '^([01]\\d|2[0-3]):[0-5]\\d$', description: 'The time of day, as 19:30.' },
  guests: { type: 'integer', minimum: 1, maximum: 12, description: 'How many people come.' },
})

export const bookTable = defineTool({
  name: 'book_table',
  description:
    'Books a table at a restaurant. Asks for the details that are missing, then for a yes. A demonstration: nothing is booked.',
  input: {
    type: 'object',
    properties: { restaurant: { type: 'string', minLength: 1, maxLength: 100 }, ...details },
    required: ['restaurant'],
    additionalProperties: false,
  },
  output: {
    type: 'object',
    properties: { booked: { type: 'boolean' }, reference: { type: 'string' } },
    required: ['booked'],
  },
  traits: { category: 'demo' },
  async run({ restaurant, ...given }, context) {
    const missing = Object.keys(details).filter((name) => given[name] === undefined)
    const booking = { ...given }
    if (missing.length > 0) {
      const answer = await context.ask({
        message: `To book a table at ${restaurant} I still need: ${missing.join(', ')}.`,
        schema: {
          type: 'object',
          properties: Object.fromEntries(missing.map((name) => [name, details[name]])),
          required: missing,
        },
      })
      Object.assign(booking, answer)
    }
    const { date = '', time = '', guests = 0 } = booking
    const confirmation = await context.ask({
      message: `A table for ${guests} at ${restaurant} on ${date} at ${time}: shall I book it?`,
      schema: { type: 'object', properties: { confirm: { type: 'boolean' } }, required: ['confirm'] },
    })
    if (confirmation.confirm !== true) return { booked: false }
    return { booked: true, reference: `${restaurant.slice(0, 3).toUpperCase()}-${date}-${time.replace(':', '')}` }
  },
})
