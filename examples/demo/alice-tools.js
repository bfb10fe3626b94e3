// Alice's part of the demo: she asks bob for a price, and he asks her for the rate.
import { defineTool } from 'convoke'

export const planTrip = defineTool({
  name: 'plan_trip',
  description: 'Plans a trip to a city; bob says what it costs.',
  input: { type: 'object', properties: { city: { type: 'string' } }, required: ['city'] },
  traits: { readOnly: true },
  async *run({ city }, { tools }) {
    yield `alice asks bob what ${city} costs`
    for await (const event of tools.stream('bob.price', { city })) {
      if (event.type === 'chunk') yield event.chunk
      if (event.type === 'result') return { city, cost: event.result }
    }
  },
})

const rates = { EUR: 1, USD: 1.25, GBP: 0.8 }

export const exchange = defineTool({
  name: 'exchange',
  description: 'Changes an amount of euros into another currency.',
  input: {
    type: 'object',
    properties: { euros: { type: 'number' }, to: { enum: Object.keys(rates) } },
    required: ['euros', 'to'],
  },
  output: { type: 'object', properties: { amount: { type: 'number' } }, required: ['amount'] },
  traits: { readOnly: true },
  run: ({ euros, to }) => ({ amount: euros * rates[to] }),
})
