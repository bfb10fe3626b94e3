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
import { fork } from 'node:child_process'
import { once } from 'node:events'
import { text } from 'node:stream/consumers'
import { fileURLToPath } from 'node:url'
import { expect, test } from 'vitest'
import { cleanup, startNode, temporaryFolder, within } from './support/lifetime.ts'
import { stdioServer } from './support/mcp-servers.ts'
import { startModelServer } from './support/model-server.ts'
import { add, everything } from './support/plan-agent.js'
import { begin, say, send } from './support/wire.ts'

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

test('a node that has them all open, and a model that is silent, ends by itself once it is stopped', async () => {
  const model = await startModelServer(({ body }) => {
    const asked = body.messages.at(-1)?.content ?? ''
    return asked.includes('Nobody') ? { silent: true } : `You said ${asked}`
  })
  const bob = await startNode({ agent: { id: 'bob' }, onMessage: () => 'Bob is well.' })
  const server = await stdioServer()
  const given = JSON.stringify({ modelUrl: model.url, peerUrl: bob.url, server: server.options })
  const program = fileURLToPath(new URL('./support/resourceful.js', import.meta.url))
  const child = fork(program, [given], { cwd: await temporaryFolder(), stdio: ['ignore', 'pipe', 'inherit', 'ipc'] })
  const exited = once(child, 'exit')
  const said = text(child.stdout!)
  cleanup(() => child.kill('SIGKILL'))
  const [url] = (await within(once(child, 'message'), 'the node')) as [string]
  const { artifacts } = await send(url, say('Ann'))
  expect(artifacts?.[0]?.parts[0]?.data).toEqual(found)
  await begin(url, say('Nobody'))
  await within(model.request(1), 'the request to the model')
  child.send('stop')
  expect(await within(exited, 'the program to end')).toEqual([0, null])
  const { handles, msToEnd } = JSON.parse(await said) as { handles: string[]; msToEnd: number }
  expect(handles).toEqual([])
  // A connection that is kept for the next request would hold it for seconds.
  expect(msToEnd).toBeLessThan(1_000)
})
