// A process that knows nothing of an agent but the plan that comes in on stdin: it runs what hears the input, calls the
// tools, asks the vector stores, and prints what came of it.
import { AgentPlan, LocalToolRegistry } from 'convoke'
import { text } from 'node:stream/consumers'

const { plan: json, input } = JSON.parse(await text(process.stdin))
const plan = AgentPlan.fromJSON(json)
const log = { debug() {}, info() {}, warn() {}, error() {} }
const context = {
  log,
  baseDir: process.cwd(),
  getResource: (name, type) => plan.resources.get(type).get(name).provide(context),
}

const events = []
for (const action of plan.actionsFor('input')) {
  const run = await action.load()
  await run(
    { type: 'input', payload: { value: input }, value: input },
    {
      actionConfig: action.config,
      sendEvent: ({ type, payload }) => events.push({ by: action.name, type, payload }),
    },
  )
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
process.stdout.write(JSON.stringify({ again: plan, events, called, found }))
