// Tools for nodes that call each other, each in a process of its own. What happens is told to the test by the process's
// channel.
import { setImmediate as nextTurn } from 'node:timers/promises'
import { defineTool } from 'convoke'
import { tell, untilReleased } from './gates.js'

/** The nodes that a call still has to pass, `['bob', 'alice']`. */
const route = { type: 'array', items: { type: 'string' }, default: [] }

/** Everything that a stream can carry, one value a chunk. */
const anyValues = [
  { deep: [1, { a: null }] },
  'words',
  '',
  0,
  false,
  null,
  [],
  '漢字 😀',
  new Uint8Array([0, 127, 255]),
]

export const values = defineTool({
  name: 'values',
  description: 'Streams values of every kind, each behind a progress.',
  input: { type: 'object', properties: {} },
  traits: { readOnly: true },
  async *run(_params, { progress }) {
    for (const [i, value] of anyValues.entries()) {
      progress({ progress: i, total: anyValues.length, message: `Value ${i}.` })
      yield value
    }
    return { count: anyValues.length }
  },
})

export const count = defineTool({
  name: 'count',
  description: 'Counts up to n, and waits behind each number in `pauses` until it is let go.',
  input: {
    type: 'object',
    properties: { n: { type: 'integer' }, pauses: { type: 'array', items: { type: 'integer' }, default: [] } },
    required: ['n'],
  },
  traits: { idempotent: true },
  async *run({ n, pauses }) {
    tell('count runs')
    for (let i = 1; i <= n; i++) {
      yield { pid: process.pid, i }
      if (!pauses.includes(i)) continue
      tell(`count is at ${i}`)
      await untilReleased(`go on at ${i}`)
    }
    return { counted: n }
  },
})

const who = { name: 'who', description: 'Says who calls.', input: { type: 'object' } }
export const whoCalls = defineTool({ ...who, run: (_params, { caller }) => ({ caller: caller.id, pid: process.pid }) })

/** Calls the same tool at the next node of the route, and the last one there. */
const relay = (name, traits) =>
  defineTool({
    name,
    description: 'Passes a call on to the next node of its route; at the end of it calls the tool.',
    input: {
      type: 'object',
      properties: { route, tool: { type: 'string' }, params: { type: 'object' } },
      required: ['tool'],
    },
    traits,
    async *run({ route: [next, ...rest], tool, params = {} }, { tools, progress }) {
      tell(`${name} runs`)
      const call = next === undefined ? [tool, params] : [`${next}.${name}`, { route: rest, tool, params }]
      for await (const event of tools.stream(...call)) {
        if (event.type === 'chunk') yield event.chunk
        else if (event.type === 'progress') progress(event)
        else if (event.type === 'result') return event.result
      }
      throw new Error('The stream ended without a result.')
    },
  })

export const relayOpenly = relay('relay', {})
export const relayInTurn = relay('relay_in_turn', { concurrency: 1 })

export const watch = defineTool({
  name: 'watch',
  description: 'Streams the events of a call as its own chunks.',
  input: { type: 'object', properties: { tool: { type: 'string' }, params: { type: 'object' } }, required: ['tool'] },
  async *run({ tool, params }, { tools }) {
    for await (const event of tools.stream(tool, params)) yield event
  },
})

/** Goes up as long as a `spin` runs here. */
let turns = 0

export const spin = defineTool({
  name: 'spin',
  description: 'Turns a counter until it is told to stop, here and at all nodes of its route.',
  input: { type: 'object', properties: { route } },
  async *run({ route: [next, ...rest] }, { signal, tools, call, deadline }) {
    tell('spin runs')
    const stop = new AbortController()
    const turning = turn(AbortSignal.any([signal, stop.signal]))
    try {
      yield { taskId: call.taskId, deadline: deadline ?? null }
      if (next === undefined) await turning
      else
        for await (const { type, chunk } of tools.stream(`${next}.spin`, { route: rest }))
          if (type === 'chunk') yield chunk
    } finally {
      stop.abort()
      await turning
      tell(`spin was stopped: ${signal.reason?.code}`)
    }
    throw signal.reason
  },
})

async function turn(signal) {
  while (!signal.aborted) {
    turns++
    await nextTurn()
  }
}

export const counter = defineTool({
  name: 'counter',
  description: 'How often the counter of this node has turned.',
  input: { type: 'object' },
  traits: { readOnly: true },
  run: () => ({ turns }),
})
