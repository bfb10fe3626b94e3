/**
 * A message handler for the official A2A compatibility kit. The kit drives an agent by the beginning of `messageId`;
 * the longest one that fits decides.
 */

/** @typedef {import('convoke').MessageHandler} MessageHandler */

const file = { filename: 'output.txt', mediaType: 'text/plain' }
const bytes = (text) => new TextEncoder().encode(text)

/** Working, one text artifact, completed. */
const stream = (text) =>
  async function* () {
    yield { type: 'status' }
    yield { type: 'text', text, last: true }
  }

/** Nothing but an end. */
const ending = (outcome) =>
  // oxlint-disable-next-line require-yield -- a handler is a generator, and this one has nothing to yield
  async function* () {
    return outcome
  }

const behaviours = {
  'tck-complete-task': ending('Hello from TCK'),
  'tck-artifact-text': async function* () {
    yield { type: 'text', text: 'Generated text content', last: true }
  },
  'tck-artifact-file': async function* () {
    yield { type: 'file', bytes: bytes('tck'), ...file, last: true }
  },
  'tck-artifact-file-url': async function* () {
    yield { type: 'file', url: 'https://example.com/output.txt', ...file, last: true }
  },
  'tck-artifact-data': async function* () {
    yield { type: 'data', data: { key: 'value', count: 42 }, last: true }
  },
  'tck-message-response': async function* () {
    yield { type: 'message', text: 'Direct message response' }
  },
  'tck-input-required': ending({ state: 'input-required', text: 'Please go on.' }),
  'tck-reject-task': ending({ state: 'rejected', text: 'Rejected, as asked.' }),
  'tck-stream-001': stream('Stream hello from TCK'),
  'tck-stream-002': ending(undefined),
  'tck-stream-003': stream('Stream task lifecycle'),
  'tck-stream-ordering-001': stream('Ordered output'),
  'tck-stream-artifact-text': stream('Streamed text content'),
  'tck-stream-artifact-file': async function* () {
    yield { type: 'status' }
    yield { type: 'file', bytes: bytes('Streamed text content'), ...file, last: true }
  },
  'tck-stream-artifact-chunked': async function* () {
    yield { type: 'status' }
    yield { type: 'text', text: 'chunk-1 ' }
    yield { type: 'text', text: 'chunk-2', last: true }
  },
  'test-resubscribe-message-id': async function* (_message, { signal }) {
    yield { type: 'status', text: 'Working for ten seconds.' }
    await new Promise((resolve) => {
      const timer = setTimeout(resolve, 10_000)
      signal.addEventListener('abort', () => {
        clearTimeout(timer)
        resolve(undefined)
      })
    })
  },
}

/** The ids of the kit for 0.3, which takes for granted that a task stays open until it is continued or cancelled. */
const openIds = /^test-|(^|-)(msg|message)-/

const prefixes = Object.keys(behaviours).sort((a, b) => b.length - a.length)

/** @type {MessageHandler} */
export async function* onMessage(message, context) {
  const prefix = prefixes.find((each) => message.messageId.startsWith(each))
  if (prefix === undefined) {
    yield { type: 'status' }
    return openIds.test(message.messageId) ? { state: 'working' } : 'Done.'
  }
  return yield* behaviours[prefix](message, context)
}
