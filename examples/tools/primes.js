// A tool that would hold up the whole node while it computes: it runs in a worker thread, and a cancel ends that.
import { defineTool } from 'convoke'

export const primes = defineTool({
  name: 'primes',
  description: 'Finds the prime numbers up to a limit, and streams the largest of each block as it goes.',
  input: {
    type: 'object',
    properties: { limit: { type: 'integer', minimum: 2, maximum: 2_000_000_000 } },
    required: ['limit'],
    additionalProperties: false,
  },
  output: {
    type: 'object',
    properties: { count: { type: 'integer' }, largest: { type: 'integer' } },
    required: ['count', 'largest'],
  },
  traits: { readOnly: true, category: 'math', concurrency: 2 },
  blocking: { module: new URL('./primes-worker.js', import.meta.url), export: 'findPrimes', maxMemoryMb: 256 },
})
