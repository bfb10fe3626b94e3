/** A node whose messages go to an agent: its model calls tools here, on MCP servers and on peers, and all of it is one task. */
import {
  connectPeer,
  ConvokeError,
  defineTool,
  type Json,
  type JsonObject,
  type Message,
  type Node,
  type NodeOptions,
  type ReactOptions,
  type Task,
  type Tool,
} from 'convoke'
import { writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { describe, expect, test } from 'vitest'
import { clients, read } from './support/clients.ts'
import { cleanup, deferred, startNode, temporaryFolder, until, within } from './support/lifetime.ts'
import { stdioServer } from './support/mcp-servers.ts'
import {
  startModelServer,
  type ModelAnswer,
  type ModelRequest,
  type ModelScript,
  type ModelServer,
  type ModelStep,
} from './support/model-server.ts'
import {
  getTask,
  rest,
  rpc,
  say,
  send,
  sendStream,
  stateOf,
  toolErrorOf,
  wordsOf,
  type StreamEvent,
} from './support/wire.ts'

/** What the model was told by the words `name`: whichever name it has for the tool. */
function nameOf(request: ModelRequest, handle: string): string {
  const names = (request.body.tools ?? []).map((tool) => tool.function.name)
  const found = names.find(
    (name) => name === handle || name.replaceAll(/[^A-Za-z0-9]/g, '') === handle.replaceAll(/[^A-Za-z0-9]/g, ''),
  )
  if (found === undefined) throw new Error(`The model has no tool ${handle}; it has ${names.join(', ')}.`)
  return found
}

const call = (request: ModelRequest, handle: string, args: object = {}, id?: string): ModelStep => ({
  call: { name: nameOf(request, handle), arguments: args, ...(id === undefined ? {} : { id }) },
})

/** What came of the calls of the round before, in their order. */
const answers = ({ body }: ModelRequest): string[] =>
  body.messages.flatMap(({ role, content }) => (role === 'tool' ? [content ?? ''] : []))

const textOf = (task: Pick<Task, 'artifacts'>, id = 'answer'): string | undefined => {
  const artifact = task.artifacts?.find(({ artifactId }) => artifactId === id)
  return artifact?.parts.map(({ text = '' }) => text).join('')
}

/** The text of the answer's pieces as a reader of the stream puts them together. */
function joined(events: readonly StreamEvent[]): string {
  let text = ''
  for (const { data } of events) {
    const update = data.artifactUpdate
    if (update?.artifact.artifactId !== 'answer') continue
    if (update.append !== true) text = ''
    text += update.artifact.parts.map((part) => part.text ?? '').join('')
  }
  return text
}

const piecesOf = (events: readonly StreamEvent[]): string[] =>
  events.flatMap(({ data }) => data.artifactUpdate?.artifact.parts.map(({ text = '' }) => text) ?? [])

/** The names of tools, as the progress of the task has them. */
const progressOf = (events: readonly StreamEvent[]): JsonObject[] =>
  events.flatMap(({ data }) => {
    const progress = data.statusUpdate?.metadata?.['_tool_progress']
    return progress === undefined ? [] : [progress as JsonObject]
  })

interface Talking {
  readonly node: Node
  readonly model: ModelServer
}

/** A node whose agent is a scripted model. */
async function talk(
  script: ModelScript,
  { react, ...options }: Omit<Partial<NodeOptions>, 'agent'> & { readonly react?: Partial<ReactOptions> } = {},
): Promise<Talking> {
  const model = await startModelServer(script)
  const node = await startNode({
    agent: { id: 'alice', name: 'Alice', react: { model: 'local', ...react } },
    models: { local: { baseUrl: model.url, model: 'scripted', retries: 0 } },
    ...options,
  })
  return { node, model }
}

const tool = (name: string, run: Tool['run'] | ((params: JsonObject) => Json | Promise<Json>)): Tool =>
  defineTool({ name, description: `The tool ${name}.`, input: { type: 'object' }, run: run as never })

describe('a message that names no tool', () => {
  test('is answered by the model, token by token', async () => {
    const { node, model } = await talk([['Hel', 'lo', '.']])
    const events = await (await sendStream(node.url, say('Hi.'))).all()
    expect(joined(events)).toBe('Hello.')
    expect(piecesOf(events)).toEqual(['Hel', 'lo', '.'])
    expect(stateOf(events.at(-1)!)).toBe('TASK_STATE_COMPLETED')
    expect(model.requests[0]?.body.messages).toEqual([
      { role: 'system', content: 'You are Alice.' },
      { role: 'user', content: 'Hi.' },
    ])
    const task = await getTask(node.url, events[0]!.data.task!.id)
    expect(task.artifacts).toEqual([
      { artifactId: 'answer', parts: [{ text: 'Hello.' }], metadata: { _joined_text: true } },
    ])
  })
})
