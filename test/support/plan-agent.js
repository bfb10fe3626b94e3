// What a plan names: its functions and tools are found here by whichever process runs it.
import { AgentEvent, defineTool, exportedFrom, OutputEvent, ToolBase } from 'convoke'

export async function start(event, context) {
  const sum = await context.tools.call('add', { a: event.value.length, b: 1 })
  const [document] = await (await context.getResource('notes', 'vectorStore')).query(event.value)
  context.sendEvent(new AgentEvent('started', { sum, found: document.content }))
}
exportedFrom(import.meta.url, start)

/** @public Found by its name. */
export function end(event, context) {
  context.sendEvent(new OutputEvent({ ...event.payload, least: context.actionConfig.least }))
}

export const add = exportedFrom(
  import.meta.url,
  'add',
  defineTool({
    name: 'add',
    description: 'Adds.',
    input: { type: 'object', properties: { a: { type: 'number' }, b: { type: 'number' } }, required: ['a', 'b'] },
    run: ({ a, b }) => a + b,
  }),
)

class Upper extends ToolBase {
  name = 'upper'
  description = 'Shouts.'
  input = { type: 'object', properties: { text: { type: 'string' } }, required: ['text'] }
  run({ text }) {
    return text.toUpperCase()
  }
}
export const upper = exportedFrom(import.meta.url, 'upper', new Upper())

/** Counts how many there are, and says when one is closed. */
export class Notes {
  static resourceType = /** @type {const} */ ('vectorStore')
  static module = import.meta.url
  static open = 0
  constructor(args, context) {
    if (args.broken) throw new Error('The password s3cret is wrong.')
    Notes.open++
    this.args = args
    this.baseDir = context.baseDir
  }
  async add() {}
  async query(text) {
    return [{ id: '1', content: `${this.args.prefix}${text}`, metadata: {}, score: 1 }]
  }
  close() {
    Notes.open--
  }
}

export class NoResource {}

export function makeNotes(context) {
  return new Notes({ prefix: 'made ' }, context)
}
exportedFrom(import.meta.url, makeNotes)

/** @public Found by its name. */
export const notTool = { name: 'not_tool' }
/** @public Found by its name. */
export const nested = { inner: { deep: () => 'deep' } }
/** @public Found by its name. */
export const nothing = null

/** Uses a resource of each type, and says what each of them gave. */
export async function everything(event, context) {
  const { signal } = context
  const setup = await context.getResource('model', 'chatModelSetup')
  const connection = await context.getResource(setup.connection, 'chatModelConnection')
  const messages = (await context.getResource('greeting', 'prompt')).formatMessages({ name: event.value })
  const chat = connection.chat({ messages }, { signal })
  let step = await chat.next()
  while (!step.done) step = await chat.next()
  const vectors = await (await context.getResource('embedding', 'embeddingModel')).embed(['tea'], { signal })
  const [document] = await (await context.getResource('shelf', 'vectorStore')).query('tea', { maxResults: 1 })
  const { answer } = await (await context.getResource('bob', 'remoteAgent')).ask('Well?')
  context.sendEvent(
    new OutputEvent({
      said: step.value.message.content,
      vectors: vectors.length,
      document: document.content,
      answer,
      sum: await context.tools.call('add', { a: 1, b: 2 }),
      echo: await context.tools.call('files.echo', { value: 'hi' }),
    }),
  )
}
exportedFrom(import.meta.url, everything)
