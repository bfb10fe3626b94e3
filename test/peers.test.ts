/** The agents that other tests call are what they say: as raw HTTP. */
import { expect, test } from 'vitest'
import type { Message, Task } from 'convoke'
import { startLegacyPeer, startMinimalPeer, startPlainPeer } from './support/peers.ts'
import { clients, read } from './support/clients.ts'
import { deferred } from './support/lifetime.ts'
import {
  begin,
  chunksOf,
  getTask,
  idsOf,
  range,
  request,
  resultOf,
  rpc,
  say,
  send,
  sendStream,
  stateOf,
  subscribe,
  toolCall,
  toolErrorOf,
  wordsOf,
} from './support/wire.ts'

interface Card {
  readonly skills: { readonly id: string; readonly input_schema?: object }[]
  readonly capabilities: { readonly extensions?: { readonly uri: string }[] }
}

const readCard = async (url: string): Promise<Card> => (await request<Card>(`${url}/.well-known/agent-card.json`)).body

test('the minimal peer streams, comes back behind any event and takes a message in once', async () => {
  const peer = await startMinimalPeer()
  const card = await readCard(peer.url)
  expect(card.capabilities.extensions?.[0]?.uri).toBe('urn:convoke:tool-call:v1')
  expect(card.skills.map(({ id }) => id)).toContain('tool-count_to')

  const message = toolCall('count_to', { n: 3 })
  const events = await (await sendStream(peer.url, message)).all()
  expect(idsOf(events)).toEqual(range(1, 10))
  expect(chunksOf(events)).toEqual([{ i: 1 }, { i: 2 }, { i: 3 }])
  expect(stateOf(events[9]!)).toBe('TASK_STATE_COMPLETED')
  const id = events[0]?.data.task?.id ?? ''
  for (let seq = 1; seq < 10; seq++) {
    const again = await sendStream(peer.url, message, { lastEventId: seq })
    expect(await again.all()).toEqual(events.slice(seq))
    expect(await (await subscribe(peer.url, id, { lastEventId: seq })).all()).toEqual(events.slice(seq))
  }
  const task = await send(peer.url, message)
  expect(task).toEqual(await getTask(peer.url, id))
  expect(resultOf(task)).toEqual({ counted: 3 })
  expect(peer.runs).toBe(1)
  expect(peer.count('SendStreamingMessage')).toBe(10)
  expect(peer.requests[1]).toMatchObject({ method: 'SendStreamingMessage', messageId: message.messageId })
})

test('the minimal peer waits before a chunk, and gives a snapshot to whoever comes in between', async () => {
  const gate = deferred()
  const peer = await startMinimalPeer({ beforeChunk: (i) => (i === 2 ? gate.promise : undefined) })
  const task = await begin(peer.url, toolCall('count_to', { n: 2 }))
  const stream = await subscribe(peer.url, task.id)
  const snapshot = await stream.next()
  expect(snapshot?.id).toBe(4)
  expect(snapshot?.data.task?.artifacts?.[0]?.parts).toEqual([{ data: { i: 1 } }])
  gate.resolve()
  expect(idsOf(await stream.all())).toEqual(range(5, 8))
})

test('the minimal peer fails, asks, holds and refuses', async () => {
  const { url, runs } = await startMinimalPeer()
  expect(runs).toBe(0)
  expect(resultOf(await send(url, toolCall('echo', { value: null })))).toBe(null)
  expect(toolErrorOf(await send(url, toolCall('fail')))).toMatchObject({ code: 'tool_failed' })
  expect(toolErrorOf(await send(url, toolCall('magic')))).toMatchObject({ code: 'not_found' })

  const asking = await send(url, toolCall('ask'))
  expect(asking.status.state).toBe('TASK_STATE_INPUT_REQUIRED')
  const reply: Message = { messageId: 'r', role: 'ROLE_USER', taskId: asking.id, parts: [{ data: { name: 'Ann' } }] }
  expect(resultOf(await send(url, reply))).toEqual({ answer: { name: 'Ann' } })

  const held = await begin(url, toolCall('hold'))
  const stopped = await rpc<Task>(url, 'CancelTask', { id: held.id })
  expect(stopped.body.result?.status.state).toBe('TASK_STATE_CANCELED')
  expect((await rpc(url, 'CancelTask', { id: held.id })).body.error?.code).toBe(-32002)
  expect((await rpc(url, 'GetTask', { id: 'nope' })).body.error?.code).toBe(-32001)
  expect((await rpc(url, 'ListTasks')).body.error?.code).toBe(-32601)
})

test('the plain peer answers in every way that agents without tools do', async () => {
  const { url } = await startPlainPeer()
  const card = await readCard(url)
  expect(card.capabilities.extensions).toBe(undefined)
  expect(card.skills.every((skill) => skill.input_schema === undefined)).toBe(true)
  const partOf = async (words: string) => (await send(url, say(words))).artifacts?.[0]?.parts
  expect(await partOf('data 42')).toEqual([{ data: { answer: '42' } }])
  expect(await partOf('json 42')).toEqual([{ text: '{"answer":"42"}', mediaType: 'application/json' }])
  expect(await partOf('text 42')).toEqual([{ text: '42' }])
  expect(wordsOf((await send(url, say('status It is done.'))).status.message)).toBe('It is done.')
  const { body } = await rpc<{ message: Message }>(url, 'SendMessage', { message: say('message Hello.') })
  expect(wordsOf(body.result?.message)).toBe('Hello.')
  expect((await send(url, say('fail It broke.'))).status.state).toBe('TASK_STATE_FAILED')
  const asking = await send(url, say('ask'))
  expect((await send(url, say('This one.', { taskId: asking.id }))).artifacts?.[0]?.parts[0]?.text).toBe('This one.')
})

test('the plain peer cuts its first stream, has no event ids and begins anew with a snapshot', async () => {
  const peer = await startPlainPeer({ cutAfter: 2 })
  const cut = await sendStream(peer.url, say('hold'))
  const first = await cut.next()
  expect(first?.id).toBe(undefined)
  await cut.next()
  await expect(cut.next()).rejects.toThrow('terminated')

  const stream = await subscribe(peer.url, first?.data.task?.id ?? '')
  expect((await stream.next())?.data.task?.status.state).toBe('TASK_STATE_WORKING')
  await rpc(peer.url, 'CancelTask', { id: first?.data.task?.id })
  expect((await stream.all()).map(stateOf)).toEqual(['TASK_STATE_CANCELED'])
  const message = say('count 3')
  for (const _ of [1, 2]) expect(await (await sendStream(peer.url, message)).all()).toHaveLength(6)
  expect(peer.runs).toBe(3)
})

test('the plain peer may not stream', async () => {
  const { url } = await startPlainPeer({ streaming: false })
  expect((await rpc(url, 'SendStreamingMessage', { message: say('text a') })).body.error?.code).toBe(-32004)
})

test('the legacy peer runs tools for a client of its time', async () => {
  const peer = await startLegacyPeer()
  expect((await readCard(peer.url)).skills[0]).toMatchObject({ tags: ['tool'], input_schema: { type: 'object' } })
  const legacy = clients.find(({ name }) => name === 'SDK 0.3, JSON-RPC')
  const client = await legacy!.connect(peer.url)
  const events = await read(client.stream(toolCall('count_to', { n: 3 })))
  expect(chunksOf(events)).toEqual([{ i: 1 }, { i: 2 }, { i: 3 }])
  expect(stateOf(events.at(-1)!)).toBe('TASK_STATE_COMPLETED')
  expect(resultOf(await client.send(toolCall('echo', { value: [1] })))).toEqual([1])
  expect((await client.send(toolCall('magic'))).status.state).toBe('TASK_STATE_FAILED')

  const holding = client.stream(toolCall('hold'))
  const [task] = await read(holding, ({ data }) => data.artifactUpdate !== undefined)
  expect((await client.cancel(task?.data.task?.id ?? '')).status.state).toBe('TASK_STATE_CANCELED')
  expect(peer.count('message/stream')).toBe(2)
  expect(peer.runs).toBe(4)
})
