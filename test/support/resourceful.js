// A program with a node whose agent has opened a resource of each type. It stops the node when it is told to, and ends when
// nothing is left to do: what was left when it was done, and how long its end took, it says.
import { once } from 'node:events'
import { setImmediate as nextTurn } from 'node:timers/promises'
import {
  Agent,
  ChatModelSetup,
  createNode,
  EmbeddedVectorStore,
  InputEvent,
  OpenAiConnection,
  OpenAiEmbeddingModel,
  PeerAgent,
  Prompt,
  ResourceDescriptor,
} from 'convoke'
import { add, everything } from './plan-agent.js'

const { modelUrl, peerUrl, server } = JSON.parse(process.argv[2])
const documents = [{ id: 'tea', content: 'Black tea from Assam' }]
const agent = new Agent()
  .addAction('everything', [InputEvent], everything)
  .addResource('add', add)
  .addResource('greeting', Prompt.fromMessages([{ role: 'user', content: 'Hi {name}.' }]))
  .addResource('model', new ChatModelSetup({ connection: 'local' }))
  .addResource('local', new ResourceDescriptor(OpenAiConnection, { baseUrl: modelUrl, model: 'scripted' }))
  .addResource('embedding', new ResourceDescriptor(OpenAiEmbeddingModel, { baseUrl: modelUrl, model: 'words' }))
  .addResource(
    'shelf',
    new ResourceDescriptor(EmbeddedVectorStore, { embeddingModel: 'embedding', documents, file: './shelf.jsonl' }),
  )
  .addResource('bob', new ResourceDescriptor(PeerAgent, { url: peerUrl }))
  .addResource('files', server, 'mcpServer')

const node = await createNode({
  agent: { id: 'visitor', eventLog: { file: './events.jsonl' } },
  onMessage: agent,
  store: { url: 'sqlite:./node.db' },
  server: { drainMs: 0 },
  baseDir: process.cwd(),
  logLevel: 'silent',
})
await node.start()
process.send(node.url)
await once(process, 'message')
process.disconnect()
await node.stop()

const doneAt = performance.now()
// What was closed is gone with the next turn.
await nextTurn()
// Standard output is a pipe, and not of our making.
const handles = process.getActiveResourcesInfo().filter((kind) => kind !== 'PipeWrap')
process.on('exit', () => process.stdout.write(JSON.stringify({ handles, msToEnd: performance.now() - doneAt })))
