// Bob's part of the demo: a tool that takes its time, one that never ends, and one that needs alice.
import { setTimeout as delay } from 'node:timers/promises'
import { defineTool } from 'convoke'

const brightest = 'Sirius Canopus Arcturus Vega Capella Rigel Procyon Achernar Betelgeuse Hadar Altair Acrux'.split(' ')

/** How often `observe` was begun. */
let nights = 0

export const observe = defineTool({
  name: 'observe',
  description: 'Looks for the brightest stars, one after the other.',
  input: {
    type: 'object',
    properties: { stars: { type: 'integer', minimum: 1, maximum: brightest.length } },
    required: ['stars'],
  },
  output: { type: 'object', properties: { seen: { type: 'integer' }, night: { type: 'integer' } } },
  traits: { idempotent: true },
  async *run({ stars }, { signal, progress }) {
    const night = ++nights
    for (const [i, star] of brightest.slice(0, stars).entries()) {
      await delay(200, undefined, { signal })
      progress({ progress: i + 1, total: stars })
      yield { number: i + 1, star }
    }
    return { seen: stars, night }
  },
})

/** How often the mill has turned. */
let turns = 0

export const mill = defineTool({
  name: 'mill',
  description: 'Turns until somebody stops it.',
  input: { type: 'object', properties: {} },
  async *run(_params, { signal }) {
    for (;;) {
      await delay(20, undefined, { signal })
      yield { turns: ++turns }
    }
  },
})

export const turnsOfTheMill = defineTool({
  name: 'mill_turns',
  description: 'How often the mill has turned.',
  input: { type: 'object', properties: {} },
  output: { type: 'object', properties: { turns: { type: 'integer' } }, required: ['turns'] },
  traits: { readOnly: true },
  run: () => ({ turns }),
})

const euros = { Lisbon: 240, Vienna: 180, Oslo: 420 }

export const price = defineTool({
  name: 'price',
  description: 'What a trip costs, in euros and dollars; alice knows the rate.',
  input: { type: 'object', properties: { city: { enum: Object.keys(euros) } }, required: ['city'] },
  traits: { readOnly: true },
  async *run({ city }, { tools }) {
    yield `bob asks alice for the dollars of ${euros[city]} euros`
    const { amount } = await tools.call('alice.exchange', { euros: euros[city], to: 'USD' })
    return { euros: euros[city], dollars: amount }
  },
})
