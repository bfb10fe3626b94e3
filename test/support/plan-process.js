// A process that knows nothing of an agent but the plan that comes in on stdin: it runs it with one input, calls its tools,
// asks its vector stores, and prints what came of it.
import { AgentPlan, AgentRunner, getExecutionEnvironment, LocalToolRegistry } from 'convoke'
import { text } from 'node:stream/consumers'
import { createMemoryAgentStore } from '../../dist/store/agent-memory.js'

const { plan: json, input } = JSON.parse(await text(process.stdin))
const plan = AgentPlan.fromJSON(json)
const log = { debug() {}, info() {}, warn() {}, error: console.error }

const store = createMemoryAgentStore()
const runner = new AgentRunner({ plan, store, log, openServers: async () => noServers })
const noServers = {
  tools: { list: () => [], get: () => undefined },
  close: async () => {},
}
const { outputs } = await runner.run('key', input)
await runner.close()
const environment = getExecutionEnvironment({ log, openServers: async () => noServers })
const applied = await environment
  .fromList([{ key: 'key', value: input }])
  .apply(plan)
  .toList()

const context = {
  log,
  baseDir: process.cwd(),
  getResource: (name, type) => plan.resources.get(type).get(name).provide(context),
}
const registry = new LocalToolRegistry()
for (const provider of plan.resources.get('tool')?.values() ?? []) registry.register(await provider.provide(context))
const called = {}
for (const { name, input: schema } of registry.list()) {
  const params = { a: 2, b: 3, text: 'hi', product: 'tea' }
  called[name] = await registry.call(name, Object.fromEntries(schema.required.map((key) => [key, params[key]])))
}

const found = {}
for (const [name, provider] of plan.resources.get('vectorStore') ?? []) {
  const [document] = await (await provider.provide(context)).query('tea')
  found[name] = document.content
}
process.stdout.write(JSON.stringify({ again: plan, outputs, applied, called, found }))
