/**
 * An agent of three actions over many keys, or the same work in bare functions. `options`: `{build, how}`, `how` being
 * `bare`, `agent`, `react`: one with a model that answers at once, in this process, `round`: one whose model calls a tool
 * before, or `calls`: these calls alone. It listens nowhere.
 */
import { join } from 'node:path'
import { pathToFileURL } from 'node:url'
import { options, ready } from '../lib/child.js'

const load = (file) => import(pathToFileURL(join(options.build, file)).href)
const { Agent, AgentEvent, getExecutionEnvironment, InputEvent, OutputEvent, ReActAgent } = await load('index.js')
const { defineTool, executeBatch, LocalToolRegistry, ToolManager } = await load('index.js')

/** Of each input: itself, two on the way, and the output; with a round of tools a request and a response more. */
const eventsPerInput = options.how === 'round' || options.how === 'calls' ? 6 : 4

const score = ({ n, text }) => ({ n, score: (text.length % 5) + 1 })
const add = (memory, { n, score: points }) => ({ n, total: (memory.total ?? 0) + points, last: n })

const agent = new Agent()
  .addAction('score', [InputEvent], (event, context) => {
    context.sendEvent(new AgentEvent('scored', score(event.value)))
  })
  .addAction('add', ['scored'], (event, context) => {
    const memory = context.shortTermMemory
    const summed = add({ total: memory.get('total') }, event.payload)
    memory.set('total', summed.total)
    memory.set('last', summed.last)
    context.sendEvent(new AgentEvent('summed', summed))
  })
  .addAction('finish', ['summed'], (event, context) => context.sendEvent(new OutputEvent(event.payload)))

class Words {
  static resourceType = 'chatModelConnection'

  async *chat({ messages }) {
    const { content } = messages.at(-1)
    yield { type: 'text', text: content }
    return { message: { role: 'assistant', content }, finishReason: 'stop' }
  }
}

const react = new ReActAgent({ chatModel: { connection: 'words', prompt: 'You repeat.' } }).addResource(
  'words',
  new Words(),
)

/** Calls a tool with the question, and says what it answered. */
class Calling {
  static resourceType = 'chatModelConnection'

  async *chat({ messages }) {
    const { role, content } = messages.at(-1)
    if (role === 'tool') {
      yield { type: 'text', text: content }
      return { message: { role: 'assistant', content }, finishReason: 'stop' }
    }
    const message = {
      role: 'assistant',
      content: '',
      toolCalls: [{ id: 'call_1', name: 'repeat', arguments: content }],
    }
    return { message, finishReason: 'tool_calls' }
  }
}

const repeat = defineTool({
  name: 'repeat',
  description: 'Repeats.',
  input: { type: 'object', properties: { n: { type: 'integer' }, text: { type: 'string' } }, required: ['n', 'text'] },
  traits: { readOnly: true },
  run: (params) => params,
})

const round = new ReActAgent({
  chatModel: { connection: 'calling', prompt: 'You repeat.', tools: ['repeat'] },
})
  .addResource('calling', new Calling())
  .addResource(repeat)

function* inputs(count, keys) {
  for (let n = 0; n < count; n++) yield { key: `product-${n % keys}`, value: { n, text: `Review ${n} of it.` } }
}

/** The outputs of one key come in order, each once. */
class Check {
  #last = new Map()
  outputs = 0
  wrong = 0

  constructor(keys) {
    this.keys = keys
  }

  see(key, { n, last }) {
    const before = this.#last.get(key)
    if (last !== n || n !== (before === undefined ? n % this.keys : before + this.keys)) this.wrong++
    this.#last.set(key, n)
    this.outputs++
  }
}

const ways = {
  /** What the actions do, and the JSON that a memory is kept as, with nothing around. */
  async bare({ count, keys }) {
    const memories = new Map()
    const check = new Check(keys)
    for (const { key, value } of inputs(count, keys)) {
      const memory = JSON.parse(memories.get(key) ?? '{}')
      const summed = add(memory, score(value))
      memories.set(key, JSON.stringify({ total: summed.total, last: summed.last }))
      check.see(key, summed)
    }
    return check
  },
  async agent({ count, keys }) {
    const check = new Check(keys)
    const stream = getExecutionEnvironment().fromStream(inputs(count, keys)).apply(agent).toStream()
    for await (const { key, value } of stream) check.see(key, value)
    return check
  },
  react: (work) => ask(react, work),
  round: (work) => ask(round, work),
  /** The calls of `round` by themselves, as a model's calls are carried out. */
  async calls({ count, keys }) {
    const check = new Check(keys)
    const registry = new LocalToolRegistry()
    registry.register(repeat)
    const tools = new ToolManager({ registry })
    for (const { key, value } of inputs(count, keys)) {
      const call = { id: 'call_1', name: 'repeat', arguments: JSON.stringify(value) }
      const { answers } = await executeBatch(tools, [call])
      const { n } = JSON.parse(answers[0].content)
      check.see(key, { n, last: n })
    }
    return check
  },
}

async function ask(model, { count, keys }) {
  const check = new Check(keys)
  const questions = (function* () {
    for (const { key, value } of inputs(count, keys)) yield { key, value: JSON.stringify(value) }
  })()
  for await (const { key, value } of getExecutionEnvironment().fromStream(questions).apply(model).toStream()) {
    const { n } = JSON.parse(value)
    check.see(key, { n, last: n })
  }
  return check
}

/** The stream stands still behind each part, so that memory can be looked at while the environment lives. */
let held
const gates = []
const reached = []

async function* inParts(count, keys, parts) {
  let n = 0
  for (const input of inputs(count, keys)) {
    yield input
    if (++n % (count / parts) !== 0) continue
    await new Promise((resolve) => {
      gates.push(resolve)
      reached.shift()?.()
    })
  }
}

ready(0, {
  async run(argument) {
    const { outputs, wrong } = await ways[options.how](argument)
    if (outputs !== argument.count || wrong > 0) throw new Error(`${outputs} outputs, ${wrong} out of order.`)
    return outputs * eventsPerInput
  },
  /** Begins a long stream; {@link reach} waits for the end of a part, {@link go} begins the next one. */
  begin({ count, keys, parts }) {
    const check = new Check(keys)
    held = (async () => {
      const stream = getExecutionEnvironment()
        .fromStream(inParts(count, keys, parts))
        .apply(agent)
        .toStream()
      for await (const { key, value } of stream) check.see(key, value)
      return { outputs: check.outputs, wrong: check.wrong }
    })()
  },
  async reach() {
    if (gates.length === 0) await new Promise((resolve) => reached.push(resolve))
  },
  go: () => gates.shift()(),
  async end() {
    return await held
  },
})
