/** A resource of each type, out of an environment and out of a plan that was JSON: all of them real. */
import {
  Agent,
  AgentPlan,
  AgentRunner,
  ChatModelSetup,
  createMemoryAgentStore,
  EmbeddedVectorStore,
  getExecutionEnvironment,
  InputEvent,
  OpenAiConnection,
  OpenAiEmbeddingModel,
  openServers,
  PeerAgent,
  Prompt,
  ResourceDescriptor,
  type ResourceType,
} from 'convoke'
import { expect, test } from 'vitest'
import { cleanup, startNode } from './support/lifetime.ts'
import { stdioServer } from './support/mcp-servers.ts'
import { startModelServer } from './support/model-server.ts'
import { add, everything } from './support/plan-agent.js'

type Resource = readonly [name: string, resource: object, type?: ResourceType]

async function resources(): Promise<readonly Resource[]> {
  const model = await startModelServer(({ body }) => `You said ${body.messages.at(-1)?.content}`)
  const bob = await startNode({ agent: { id: 'bob' }, onMessage: () => 'Bob is well.' })
  const server = await stdioServer()
  const documents = ['Black tea from Assam', 'A cup of china'].map((content, n) => ({ id: String(n), content }))
  return [
    ['add', add],
    ['greeting', Prompt.fromMessages([{ role: 'user', content: 'Hi {name}.' }])],
    ['model', new ChatModelSetup({ connection: 'local' })],
    ['local', new ResourceDescriptor(OpenAiConnection, { baseUrl: model.url, model: 'scripted' })],
    ['embedding', new ResourceDescriptor(OpenAiEmbeddingModel, { baseUrl: model.url, model: 'words' })],
    ['shelf', new ResourceDescriptor(EmbeddedVectorStore, { embeddingModel: 'embedding', documents })],
    ['bob', new ResourceDescriptor(PeerAgent, { url: bob.url })],
    ['files', server.options, 'mcpServer'],
  ]
}

const found = {
  said: 'You said Hi Ann.',
  vectors: 1,
  document: 'Black tea from Assam',
  answer: 'Bob is well.',
  sum: 3,
  echo: '"hi"',
}

test("an environment's resources are those of all its agents, and an agent's own wins", async () => {
  const environment = getExecutionEnvironment()
  for (const [name, resource, type] of await resources()) environment.addResource(name, resource, type)
  const plain = new Agent().addAction('everything', [InputEvent], everything)
  const own = new Agent()
    .addAction('everything', [InputEvent], everything)
    .addResource('greeting', Prompt.fromText('Ho {name}.'))
  const input = [{ key: 'a', value: 'Ann' }]
  expect(await environment.fromList(input).apply(plain).toList()).toEqual([{ key: 'a', value: found }])
  expect(await environment.fromList(input).apply(own).toList()).toEqual([
    { key: 'a', value: { ...found, said: 'You said Ho Ann.' } },
  ])
})

test('a plan that was JSON has them all, and a program connects to its servers', async () => {
  const agent = new Agent().addAction('everything', [InputEvent], everything)
  for (const [name, resource, type] of await resources()) agent.addResource(name, resource, type)
  const plan = AgentPlan.fromJSON(JSON.parse(JSON.stringify(AgentPlan.fromAgent(agent))))
  const runner = new AgentRunner({ plan, store: createMemoryAgentStore(), openServers })
  cleanup(() => runner.close())
  expect(await runner.run('a', 'Ann')).toEqual({ outputs: [found] })
})
