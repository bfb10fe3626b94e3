// The two smallest tools there are: one that answers, one that streams. `convoke serve` publishes them when
// convoke.yaml names this file under `tools`.
import { setTimeout as delay } from 'node:timers/promises'
import { defineTool } from 'convoke'

export const echo = defineTool({
  name: 'echo',
  description: 'Gives back the text it was sent.',
  input: {
    type: 'object',
    properties: { text: { type: 'string', description: 'Any text.' } },
    required: ['text'],
    additionalProperties: false,
  },
  output: { type: 'object', properties: { text: { type: 'string' } }, required: ['text'] },
  traits: { readOnly: true, category: 'demo' },
  run({ text }) {
    return { text }
  },
})

export const countTo = defineTool({
  name: 'count_to',
  description: 'Counts up to n, one number a tick.',
  input: {
    type: 'object',
    properties: {
      n: { type: 'integer', minimum: 1, maximum: 1_000_000, description: 'The last number.' },
      delay_ms: { type: 'integer', minimum: 0, maximum: 60_000, default: 0, description: 'The length of a tick.' },
    },
    required: ['n'],
    additionalProperties: false,
  },
  output: { type: 'object', properties: { counted: { type: 'integer' } }, required: ['counted'] },
  traits: { idempotent: true, category: 'demo' },
  async *run({ n, delay_ms }, context) {
    for (let i = 1; i <= n; i++) {
      context.signal.throwIfAborted()
      // The signal ends the wait too, so that a cancel is felt at once.
      if (delay_ms > 0) await delay(delay_ms, undefined, { signal: context.signal })
      context.progress({ progress: i, total: n })
      yield { i }
    }
    return { counted: n }
  },
})
