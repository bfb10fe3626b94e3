/** Our node with the tools that the benches call. `options`: `{build, store, tools, model}`; with the port of a model its agent answers messages. */
import { subscribe } from 'node:diagnostics_channel'
import { join } from 'node:path'
import { pathToFileURL } from 'node:url'
import { options, ready } from '../lib/child.js'
import { chunk, echoInput, manyTools } from './work.js'

const { createNode, defineTool } = await import(pathToFileURL(join(options.build, 'index.js')).href)

/** What stands between a tool that waits and the bench that lets it go on. */
let release = () => {}
let released = new Promise((resolve) => (release = resolve))
let marks = []

const none = { type: 'object', properties: {} }
const count = { type: 'object', properties: { n: { type: 'integer', minimum: 1 } }, required: ['n'] }
const repeatable = { readOnly: true }

const tools = [
  defineTool({
    name: 'echo',
    description: 'Gives back the text it was sent.',
    input: echoInput,
    traits: repeatable,
    run: ({ text }) => ({ text }),
  }),
  defineTool({
    name: 'write',
    description: 'The same, but must not run twice, so the task is stored before it runs.',
    input: echoInput,
    run: ({ text }) => ({ text }),
  }),
  defineTool({
    name: 'stream',
    description: 'Yields n chunks of 1 KB.',
    input: count,
    traits: repeatable,
    async *run({ n }) {
      for (let i = 0; i < n; i++) yield chunk
      return { n }
    },
  }),
  defineTool({
    name: 'gated',
    description: 'Yields one chunk, and a second one once the bench says so.',
    input: none,
    traits: repeatable,
    async *run() {
      mark('yield 1')
      yield 'first'
      await released
      mark('yield 2')
      yield 'second'
      return null
    },
  }),
  defineTool({
    name: 'busy',
    description: 'Yields n chunks and computes 2 ms for each, without ever giving the event loop a turn by itself.',
    input: count,
    traits: repeatable,
    async *run({ n }) {
      for (let i = 1; i <= n; i++) {
        const until = performance.now() + 2
        while (performance.now() < until);
        mark(`yield ${i}`)
        yield { i }
      }
      return null
    },
  }),
  defineTool({
    name: 'wait',
    description: 'Ends when the bench says so.',
    input: none,
    traits: repeatable,
    run: async () => {
      await released
      return null
    },
  }),
]

/** `hrtime` is the same clock in every process of a machine. */
function mark(name) {
  marks.push({ name, at: Number(process.hrtime.bigint() / 1000n) })
}

const sockets = new Set()
subscribe('net.server.socket', ({ socket }) => {
  sockets.add(socket)
  socket.once('close', () => sockets.delete(socket))
})

const node = await createNode({
  agent: { id: 'bench', ...(options.model === undefined ? {} : { react: { model: 'words', tools: [] } }) },
  ...(options.model === undefined
    ? {}
    : { models: { words: { baseUrl: `http://127.0.0.1:${options.model}/v1`, model: 'words' } } }),
  store: { url: options.store ?? ':memory:' },
  tools: options.tools === undefined ? tools : manyTools(options.tools).map((tool) => defineTool(tool)),
})
await node.start()
ready(Number(new URL(node.url).port), {
  release: () => {
    release()
    released = new Promise((resolve) => (release = resolve))
  },
  /** Bytes that the kernel took from the connections which are open now. */
  written: () => [...sockets].reduce((sum, socket) => sum + socket.bytesWritten - socket.writableLength, 0),
  /** What the tools noted since the last question: `[{name, at}]` in microseconds of the machine's clock. */
  marks: () => {
    const noted = marks
    marks = []
    return noted
  },
})
