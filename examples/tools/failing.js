// Fails on request, in all the ways a tool can: to see what a caller gets, and that the node does not mind.
import { once } from 'node:events'
import { defineTool } from 'convoke'

/** @type {Record<string, (context: { signal: AbortSignal }) => unknown>} */
const ways = {
  throw() {
    throw new Error('This tool was asked to throw an error.')
  },
  async reject() {
    throw new Error('This tool was asked to reject.')
  },
  string() {
    // oxlint-disable-next-line typescript/only-throw-error -- that is what it is for
    throw 'This tool was asked to throw a string.'
  },
  undefined() {
    // oxlint-disable-next-line typescript/only-throw-error -- that is what it is for
    throw undefined
  },
  // Its output schema says otherwise.
  bad_result: () => ({ wrong: true }),
  not_json: () => ({ ok: 10n }),
  circular() {
    const result = { ok: 'yes' }
    return Object.assign(result, { result })
  },
  // Ends when it is told to.
  async never_ends({ signal }) {
    await once(signal, 'abort')
    signal.throwIfAborted()
  },
  // Does not even end when it is told to: it is abandoned.
  ignores_signal: () => new Promise(() => {}),
}

export const failWith = defineTool({
  name: 'fail_with',
  description: 'Fails in the way you choose, for trying out how failures look to a caller.',
  input: {
    type: 'object',
    properties: {
      how: {
        enum: [
          'throw',
          'reject',
          'string',
          'undefined',
          'bad_result',
          'not_json',
          'circular',
          'midway',
          'never_ends',
          'ignores_signal',
        ],
      },
    },
    required: ['how'],
    additionalProperties: false,
  },
  output: { type: 'object', properties: { ok: { type: 'string' } }, required: ['ok'] },
  traits: { readOnly: true, category: 'demo' },
  async *run({ how }, context) {
    if (how !== 'midway') return await ways[how](context)
    yield { said: 'So far all is well.' }
    throw new Error('This tool was asked to fail after its first chunk.')
  },
})
