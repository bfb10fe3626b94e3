import { defineTool, type Json, type Tool } from 'convoke'
import { once } from 'node:events'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { describe, expect, test } from 'vitest'
import { clients, read, statesOf, type Client } from './support/clients.ts'
import { cleanup, deferred, startNode, until, within } from './support/lifetime.ts'
import {
  chunkOf,
  chunksOf,
  getTask,
  range,
  rawChunksOf,
  request,
  resultOf,
  rpc,
  send,
  sendStream,
  stateOf,
  toolCall,
  toolErrorOf,
  valueOf,
  wordsOf,
  type StreamEvent,
} from './support/wire.ts'

const add = defineTool({
  name: 'add',
  description: 'Adds two numbers.',
  input: { type: 'object', properties: { a: { type: 'number' }, b: { type: 'number' } }, required: ['a', 'b'] },
  traits: { readOnly: true },
  run: ({ a, b }) => ({ sum: a + b }),
})

const count = defineTool({
  name: 'count',
  description: 'Counts up to n.',
  input: { type: 'object', properties: { n: { type: 'integer' } }, required: ['n'] },
  async *run({ n }, { progress }) {
    for (let i = 1; i <= n; i++) {
      progress({ progress: i, total: n })
      yield { i }
    }
    return { counted: n }
  },
})

const book = defineTool({
  name: 'book',
  description: 'Asks for a date and books it.',
  input: { type: 'object' },
  async run(_params, { ask }) {
    const schema = { type: 'object', properties: { day: { type: 'string' } }, required: ['day'] }
    const answer = await ask({ message: 'Which day?', schema })
    return { booked: answer }
  },
})

/** Ticks every millisecond until it is told to stop; what it did can be seen from outside. */
function ticker(): { tool: Tool; ticks: () => number; stopped: Promise<unknown>; go: () => void } {
  let ticks = 0
  const stopped = deferred<unknown>()
  const gate = deferred()
  const tool = defineTool({
    name: 'tick',
    description: 'Ticks until it is stopped.',
    input: { type: 'object' },
    async *run(_params, { signal }) {
      yield 'ticking'
      const timer = setInterval(() => ticks++, 1)
      const aborted = new Promise<never>((_resolve, reject) => {
        signal.addEventListener('abort', () => {
          clearInterval(timer)
          stopped.resolve(signal.reason)
          reject(signal.reason as Error)
        })
      })
      await Promise.race([aborted, gate.promise])
      clearInterval(timer)
      yield 'going on'
      return ticks
    },
  })
  return { tool, ticks: () => ticks, stopped: stopped.promise, go: () => gate.resolve() }
}

const chunk = (text: string) => (event: StreamEvent) => chunkOf(event) === text

describe.each(clients)('$name', ({ connect }) => {
  async function start(...tools: Tool[]): Promise<{ client: Client; url: string }> {
    const { url } = await startNode({ tools })
    return { url, client: await connect(url) }
  }

  test('finds the tools on the card', async () => {
    const { client } = await start(add, count)
    expect(client.skills).toEqual(['add', 'count'])
  })

  test('calls a tool and waits for its result', async () => {
    const { client } = await start(add)
    const task = await client.send(toolCall('add', { a: 1, b: 2 }))
    expect(task.status.state).toBe('TASK_STATE_COMPLETED')
    expect(resultOf(task)).toEqual({ sum: 3 })
    expect(task.metadata).toMatchObject({ _tool_call: { name: 'add', params: { a: 1, b: 2 } } })
  })

  test('sees why a call was refused', async () => {
    const { client } = await start(add)
    const task = await client.send(toolCall('add', { a: 'one' }))
    expect(task.status.state).toBe('TASK_STATE_REJECTED')
    expect(toolErrorOf(task)).toMatchObject({ code: 'invalid_params', retryable: false, tool_name: 'add' })
    expect(toolErrorOf(task)?.issues?.map(({ path }) => path)).toContain('/a')
    expect(wordsOf(task.status.message)).toMatch(/Invalid params for the tool "add"/)
  })

  test('streams chunks in order, then the result, then the end', async () => {
    const { client } = await start(count)
    const events = await read(client.stream(toolCall('count', { n: 20 })))
    // Not put together by `append`, which the 0.3 client loses over HTTP+JSON.
    expect(rawChunksOf(events)).toEqual(range(1, 20).map((i) => ({ i })))
    expect(statesOf(events)).toEqual(['TASK_STATE_SUBMITTED', 'TASK_STATE_WORKING', 'TASK_STATE_COMPLETED'])
    const result = events.findIndex(({ data }) => data.artifactUpdate?.artifact.artifactId === 'result')
    expect(result).toBe(events.length - 2)
    expect(resultOf({ artifacts: [events[result]!.data.artifactUpdate!.artifact] })).toEqual({ counted: 20 })
  })

  test('cancels a running tool: its signal fires, it stands still, and the task says so', async () => {
    const { tool, ticks, stopped } = ticker()
    const { client } = await start(tool)
    const stream = client.stream(toolCall('tick'))
    const first = await read(stream, chunk('ticking'))
    const id = first[0]!.data.task!.id
    await until(() => ticks() > 2, 'a few ticks')
    const canceled = await client.cancel(id)
    expect(canceled.status.state).toBe('TASK_STATE_CANCELED')
    expect(await within(stopped, 'the signal')).toMatchObject({ code: 'canceled' })
    const then = ticks()
    expect(statesOf(await read(stream)).at(-1)).toBe('TASK_STATE_CANCELED')
    expect((await client.get(id)).status.state).toBe('TASK_STATE_CANCELED')
    expect(ticks()).toBe(then)
    await expect(client.cancel(id)).rejects.toThrow(/cancel/i)
  })

  test('comes back to a running task and follows it to its end', async () => {
    const { tool, go } = ticker()
    const { client } = await start(tool)
    const left = new AbortController()
    const first = await read(client.stream(toolCall('tick'), left.signal), chunk('ticking'))
    const id = first[0]!.data.task!.id
    left.abort()
    const again = client.resubscribe(id)
    const [snapshot] = await read(again, () => true)
    expect(snapshot?.data.task).toMatchObject({ id, status: { state: 'TASK_STATE_WORKING' } })
    expect(snapshot?.data.task?.artifacts).toMatchObject([{ artifactId: 'stream', parts: [{ text: 'ticking' }] }])
    go()
    const rest = await read(again)
    expect(chunksOf(rest)).toEqual(['going on'])
    expect(stateOf(rest.at(-1)!)).toBe('TASK_STATE_COMPLETED')
  })

  test('answers a question on the same task', async () => {
    const { client } = await start(book)
    const asked = await client.send(toolCall('book'))
    expect(asked.status.state).toBe('TASK_STATE_INPUT_REQUIRED')
    expect(wordsOf(asked.status.message)).toBe('Which day?')
    expect(asked.status.message?.metadata).toMatchObject({ _tool_question: { schema: { required: ['day'] } } })
    const reply = { taskId: asked.id, contextId: asked.contextId, metadata: {}, parts: [{ data: { day: 'Monday' } }] }
    const done = await client.send(toolCall('book', {}, reply))
    expect(done).toMatchObject({ id: asked.id, status: { state: 'TASK_STATE_COMPLETED' } })
    expect(resultOf(done)).toEqual({ booked: { day: 'Monday' } })
  })

  test('streams up to a question, and from the answer to the end', async () => {
    const { client } = await start(book)
    const asked = await read(client.stream(toolCall('book')))
    expect(statesOf(asked)).toEqual(['TASK_STATE_SUBMITTED', 'TASK_STATE_WORKING', 'TASK_STATE_INPUT_REQUIRED'])
    const { id, contextId } = asked[0]!.data.task!
    const reply = toolCall('book', {}, { taskId: id, contextId, metadata: {}, parts: [{ data: { day: 'Friday' } }] })
    const answered = await read(client.stream(reply))
    expect(statesOf(answered).slice(-2)).toEqual(['TASK_STATE_WORKING', 'TASK_STATE_COMPLETED'])
    expect(resultOf(await client.get(id))).toEqual({ booked: { day: 'Friday' } })
  })

  test('cancels a task that waits for an answer', async () => {
    const { client } = await start(book)
    const asked = await client.send(toolCall('book'))
    expect((await client.cancel(asked.id)).status.state).toBe('TASK_STATE_CANCELED')
    const late = toolCall('book', {}, { taskId: asked.id, contextId: asked.contextId, metadata: {} })
    await expect(client.send(late)).rejects.toThrow(/has ended|not supported/)
  })

  test('gets its tasks back, and hears which are not there', async () => {
    const { client } = await start(count)
    const { id } = await client.send(toolCall('count', { n: 3 }))
    const task = await client.get(id)
    expect(task).toMatchObject({ id, status: { state: 'TASK_STATE_COMPLETED' }, history: [{ role: 'ROLE_USER' }] })
    expect(task.artifacts?.map(({ artifactId }) => artifactId)).toEqual(['stream', 'result'])
    expect(task.artifacts?.[0]?.parts.map((part) => valueOf(part, false))).toEqual([{ i: 1 }, { i: 2 }, { i: 3 }])
    await expect(client.get('nobody')).rejects.toThrow(/not found/i)
    await expect(client.cancel('nobody')).rejects.toThrow(/not found/i)
  })

  test('hears that the task it comes back to is not there', async () => {
    const { client } = await start(count)
    await expect(read(client.resubscribe('nobody'))).rejects.toThrow(/not found/i)
  })

  test('keeps webhooks: creates, gets, lists and deletes them', async () => {
    const { client } = await start(book)
    const { id } = await client.send(toolCall('book'))
    const url = await sink()
    const created = await client.createPush(id, { id: 'mine', url, token: 'secret' })
    expect(created).toMatchObject({ id: 'mine', url, token: 'secret' })
    await client.createPush(id, { id: 'other', url })
    expect(await client.getPush(id, 'mine')).toMatchObject({ id: 'mine', url, token: 'secret' })
    expect((await client.listPush(id)).map((config) => config.id)).toEqual(expect.arrayContaining(['mine', 'other']))
    await client.deletePush(id, 'mine')
    await client.deletePush(id, 'mine')
    expect((await client.listPush(id)).map((config) => config.id)).toEqual(['other'])
    await expect(client.getPush(id, 'mine')).rejects.toThrow(/no push notification configuration|not found/i)
    await expect(client.createPush('nobody', { url })).rejects.toThrow(/not found/i)
    await client.cancel(id)
  })

  test('gets every kind of value back as it was', async () => {
    const values: Json[] = [
      null,
      false,
      0,
      '',
      [],
      {},
      { result: 1 },
      { value: 2 },
      'text',
      1.5,
      [null],
      { nested: [{ deep: null }] },
    ]
    const echo = echoing(values)
    const { client, url } = await start(echo)
    for (const [index, value] of values.entries()) {
      const task = await client.send(toolCall('echo', { index }))
      expect(resultOf(task), JSON.stringify(value)).toStrictEqual(value)
      expect(resultOf(await client.get(task.id)), JSON.stringify(value)).toStrictEqual(value)
      expect(resultOf(await getTask(url, task.id)), JSON.stringify(value)).toStrictEqual(value)
    }
    const bytes = await client.send(toolCall('bytes'))
    expect(bytes.status.state).toBe('TASK_STATE_REJECTED')
  })

  test('gets binary results as bytes', async () => {
    const { client } = await start(bytes)
    const task = await client.send(toolCall('bytes', { length: 1000 }))
    expect(resultOf(task)).toStrictEqual(pattern(1000))
    expect(resultOf(await client.get(task.id))).toStrictEqual(pattern(1000))
  })
})

describe.each(clients.filter(({ version }) => version === '1.0'))('$name', ({ connect }) => {
  test('lists its tasks in pages, newest first', async () => {
    const { url } = await startNode({ tools: [add, book] })
    const client = await connect(url)
    const ids: string[] = []
    for (let n = 0; n < 5; n++) ids.unshift((await client.send(toolCall('add', { a: n, b: n }))).id)
    const asked = await client.send(toolCall('book'))
    const first = await client.list!({ status: 'TASK_STATE_COMPLETED', pageSize: 3 })
    expect(first.totalSize).toBe(5)
    const second = await client.list!({ status: 'TASK_STATE_COMPLETED', pageSize: 3, pageToken: first.nextPageToken })
    expect(second.nextPageToken).toBe('')
    const listed = [...first.tasks, ...second.tasks].map(({ id }) => id)
    // Tasks of the same millisecond come in any order, and never twice.
    expect([...listed].sort()).toEqual([...ids].sort())
    expect((await client.list!({ status: 'TASK_STATE_INPUT_REQUIRED' })).tasks.map(({ id }) => id)).toEqual([asked.id])
  })
})

/** A tool that yields and returns one of these values. */
function echoing(values: readonly Json[]): Tool {
  return defineTool({
    name: 'echo',
    description: 'Gives one of the values back.',
    input: { type: 'object', properties: { index: { type: 'integer' } }, required: ['index'] },
    async *run({ index }) {
      yield values[index]!
      return values[index]!
    },
  })
}

/** Every byte there is, over and over. */
function pattern(length: number): Uint8Array {
  return Uint8Array.from({ length }, (_, index) => (index * 7) % 256)
}

const bytes = defineTool({
  name: 'bytes',
  description: 'Gives bytes.',
  input: { type: 'object', properties: { length: { type: 'integer' } }, required: ['length'] },
  async *run({ length }) {
    yield pattern(10)
    return pattern(length)
  },
})

/** A webhook that takes everything. */
async function sink(): Promise<string> {
  const server = createServer((req, res) => {
    req.resume().on('end', () => res.end())
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  cleanup(() => {
    server.closeAllConnections()
    return new Promise((resolve) => server.close(resolve))
  })
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}/hook`
}

describe('a result on the wire', () => {
  const big = 'é€😀 "\\\n'.repeat(5_000_000 / 10)
  const values: Json[] = [null, false, 0, '', [], {}, { result: 1 }, big]

  test.each(values.map((value, index) => ({ index, what: JSON.stringify(value).slice(0, 20) })))(
    '$what comes back exactly as it was, as chunk and as result, at once and later',
    async ({ index }) => {
      const { url } = await startNode({ tools: [echoing(values)] })
      const task = await send(url, toolCall('echo', { index }))
      expect(task.status.state).toBe('TASK_STATE_COMPLETED')
      const value = values[index]
      for (const each of [task, await getTask(url, task.id)]) {
        expect(resultOf(each)).toStrictEqual(value)
        const [chunk] = each.artifacts!.find(({ artifactId }) => artifactId === 'stream')!.parts
        expect(valueOf(chunk!, chunk!.metadata?.['_tool_result_wrapped'] === true)).toStrictEqual(value)
      }
      const events = await (await sendStream(url, toolCall('echo', { index }))).all()
      expect(chunksOf(events)).toStrictEqual([value])
      expect(resultOf({ artifacts: [events.at(-2)!.data.artifactUpdate!.artifact] })).toStrictEqual(value)
    },
  )

  test('5 MB of bytes come back exactly as they were', async () => {
    const { url } = await startNode({ tools: [bytes] })
    const expected = Buffer.from(pattern(5_000_000))
    const task = await send(url, toolCall('bytes', { length: 5_000_000 }))
    for (const each of [task, await getTask(url, task.id)]) {
      // Buffer.equals, since comparing them byte for byte in JavaScript takes seconds.
      expect(expected.equals(resultOf(each) as Uint8Array)).toBe(true)
      expect(each.artifacts?.[0]?.parts).toMatchObject([{ raw: Buffer.from(pattern(10)).toString('base64') }])
    }
  })

  test('an object stays as it is, anything else stands in {result} and says so', async () => {
    const { url } = await startNode({ tools: [echoing([{ result: 1 }, 1])] })
    const [plain, wrapped] = await Promise.all([0, 1].map((index) => send(url, toolCall('echo', { index }))))
    expect(plain?.artifacts?.at(-1)).toEqual({
      artifactId: 'result',
      name: 'result',
      extensions: ['urn:convoke:tool-call:v1'],
      metadata: { _tool_result: true, tool_name: 'echo', execution_time_ms: expect.any(Number) },
      parts: [{ data: { result: 1 } }],
    })
    expect(wrapped?.artifacts?.at(-1)).toMatchObject({
      metadata: { _tool_result_wrapped: true },
      parts: [{ data: { result: 1 } }],
    })
  })
})

describe('a call in the words of others', () => {
  const message = { messageId: 'm', role: 'ROLE_USER', parts: [{ text: 'add' }] }
  const call = { name: 'add', params: { a: 1, b: 2 } }

  test.each([
    ['request metadata', { message, metadata: { _tool_call: call } }],
    ['the URI as key', { message: { ...message, metadata: { 'urn:convoke:tool-call:v1': call } } }],
    [
      'a data part {skill, input}',
      { message: { ...message, parts: [{ data: { skill: 'tool-add', input: call.params } }] } },
    ],
    [
      'a data part {skill, parameters}',
      { message: { ...message, parts: [{ data: { skill: 'add', parameters: call.params } }] } },
    ],
    ['the name of the skill', { message: { ...message, metadata: { _tool_call: { ...call, name: 'tool-add' } } } }],
    [
      'snake case, as a proto is written too',
      { message: { message_id: 'm', role: 'user', parts: [{ text: 'add' }], metadata: { _tool_call: call } } },
    ],
  ])('is understood: %s', async (_what, params) => {
    const { url } = await startNode({ tools: [add] })
    const { body } = await rpc<{ task: Parameters<typeof resultOf>[0] }>(url, 'SendMessage', params)
    expect(resultOf(body.result!.task)).toEqual({ sum: 3 })
  })

  test('is refused when it says two different things', async () => {
    const { url } = await startNode({ tools: [add] })
    const { metadata } = toolCall('add', { a: 1, b: 3 })
    const { body } = await rpc<{ task: Parameters<typeof toolErrorOf>[0] }>(url, 'SendMessage', {
      message: { ...message, metadata },
      metadata: { _tool_call: call },
    })
    expect(body.result?.task.status.state).toBe('TASK_STATE_REJECTED')
    expect(toolErrorOf(body.result!.task)).toMatchObject({ code: 'invalid_params' })
  })

  test('works as one plain POST that says nothing of versions and extensions', async () => {
    const { url } = await startNode({ tools: [add] })
    const body = JSON.stringify({
      jsonrpc: '2.0',
      id: 'x',
      method: 'SendMessage',
      params: { message: toolCall('add', { a: 2, b: 2 }) },
    })
    const answer = await request<{ id: string; result: { task: Parameters<typeof resultOf>[0] } }>(url, {
      method: 'POST',
      body,
      headers: { 'content-type': 'application/json' },
    })
    expect(answer.body.id).toBe('x')
    expect(resultOf(answer.body.result.task)).toEqual({ sum: 4 })
  })
})
