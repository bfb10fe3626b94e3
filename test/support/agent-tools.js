// Tools for a node with an agent in a process of its own. They tell the test that they run, and wait for it.
import { defineTool } from 'convoke'
import { tell, untilReleased } from './gates.js'

export const note = defineTool({
  name: 'note',
  description: 'Does something that must not be done twice.',
  input: { type: 'object', properties: { n: { type: 'integer' } } },
  async run({ n }) {
    tell(`note ${n}`)
    return { noted: n }
  },
})

const wait = (name, traits) =>
  defineTool({
    name,
    description: 'Waits for the test.',
    input: { type: 'object' },
    traits,
    async run(_params, { signal }) {
      tell(`${name} runs`)
      await Promise.race([untilReleased('go'), new Promise((resolve) => signal.addEventListener('abort', resolve))])
      if (signal.aborted) throw signal.reason
      return { waited: true }
    },
  })

export const look = wait('look', { readOnly: true })
export const pay = wait('pay', {})

export const ask = defineTool({
  name: 'ask',
  description: 'Asks.',
  input: { type: 'object' },
  traits: { readOnly: true },
  run: async (_params, context) => ({ said: await context.ask({ message: 'Which one?' }) }),
})
