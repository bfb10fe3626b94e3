/** The tools of the node that answers the golden requests; README.md says in words what each one does. */
import { Content, ConvokeError, defineTool, type JsonObject, type Tool } from '../../dist/index.js'

const nothing = { type: 'object', properties: {}, additionalProperties: false } as const

const echo = defineTool({
  name: 'echo',
  description: 'Gives its value back.',
  input: { type: 'object', properties: { value: {} }, required: ['value'] },
  traits: { readOnly: true },
  run: ({ value }) => value,
})

const countTo = defineTool({
  name: 'count_to',
  description: 'Counts up to n.',
  input: {
    type: 'object',
    properties: { n: { type: 'integer', minimum: 1 } },
    required: ['n'],
    additionalProperties: false,
  },
  output: { type: 'object', properties: { counted: { type: 'integer' } }, required: ['counted'] },
  traits: { idempotent: true, category: 'demo', tags: ['numbers'] },
  *run({ n }, context) {
    for (let i = 1; i <= n; i++) {
      context.progress({ progress: i, total: n, message: `At ${i}.` })
      yield { i }
    }
    return { counted: n }
  },
})

const speak = defineTool({
  name: 'speak',
  description: 'One chunk of every kind.',
  input: nothing,
  *run() {
    yield 'one'
    yield ''
    yield { two: 2 }
    yield 3
    yield null
    yield [true]
    yield new Uint8Array([0, 1, 2, 255])
    return null
  },
})

const picture = defineTool({
  name: 'picture',
  description: 'Bytes.',
  input: nothing,
  run: () => new Uint8Array([137, 80, 78, 71]),
})

const survey = defineTool({
  name: 'survey',
  description: 'Asks for a name.',
  input: nothing,
  traits: { readOnly: true },
  async *run(_params, context) {
    yield 'Let me see.'
    const schema = { type: 'object', properties: { name: { type: 'string' } }, required: ['name'] }
    const answer = await context.ask({ message: 'What is your name?', schema })
    return { answer }
  },
})

const murmur = defineTool({
  name: 'murmur',
  description: 'Logs.',
  input: nothing,
  traits: { readOnly: true },
  run(_params, { notice }) {
    notice({ level: 'info', data: 'Looking.' })
    notice({ level: 'warning', data: { left: 3 }, logger: 'disk' })
    return null
  },
})

const consult = defineTool({
  name: 'consult',
  description: 'Asks a language model.',
  input: nothing,
  async run(_params, context) {
    const sampling = {
      messages: [{ role: 'user', content: { type: 'text', text: 'What is 2 + 2?' } }],
      maxTokens: 10,
    }
    const schema = { type: 'object', required: ['role', 'content', 'model'] }
    const answer = (await context.ask({ message: 'What is 2 + 2?', schema, sampling })) as JsonObject
    return { said: answer['content'] ?? null }
  },
})

const hold = defineTool({
  name: 'hold',
  description: 'Never ends by itself.',
  input: nothing,
  async *run(_params, { signal }) {
    yield 'holding'
    await new Promise((_resolve, reject) => signal.addEventListener('abort', () => reject(signal.reason as Error)))
  },
})

const fail = defineTool({
  name: 'fail',
  description: 'Fails.',
  input: nothing,
  run() {
    throw new Error('The disk is full.')
  },
})

const outage = defineTool({
  name: 'outage',
  description: 'Fails for now.',
  input: nothing,
  run() {
    throw new ConvokeError('unavailable', 'The service is down.', { retryAfterMs: 1500 })
  },
})

const lie = defineTool({
  name: 'lie',
  description: 'Breaks its own output schema.',
  input: nothing,
  output: { type: 'object', properties: { counted: { type: 'integer' } }, required: ['counted'] },
  run: () => JSON.parse('{"counted":"many"}') as { counted: number },
})

const secret = defineTool({
  name: 'secret',
  description: 'Not published.',
  input: nothing,
  traits: { published: false },
  run: () => 'told',
})

const report = defineTool({
  name: 'report',
  description: 'Two rows, in every form.',
  input: nothing,
  traits: { readOnly: true },
  run: () =>
    new Content([
      { data: { rows: 2 } },
      { text: 'Two rows.' },
      { raw: 'iVBORw==', mediaType: 'image/png', filename: 'rows.png' },
      { url: 'https://example.com/rows.csv', mediaType: 'text/csv', metadata: { origin: 'export' } },
    ]),
})

export const tools: readonly Tool[] = [
  echo,
  countTo,
  speak,
  picture,
  report,
  survey,
  murmur,
  consult,
  hold,
  fail,
  outage,
  lie,
  secret,
]
