/** The tools of a node for MCP hosts over HTTP: by the official client, and by single requests. */
import {
  Content,
  createNode,
  defineTool,
  type ConvokeError,
  type Json,
  type JsonObject,
  type Node,
  type NodeOptions,
  type Tool,
} from 'convoke'
import {
  CallToolResultSchema,
  ElicitRequestSchema,
  McpError,
  ToolListChangedNotificationSchema,
  type Progress,
} from '@modelcontextprotocol/sdk/types.js'
import { once } from 'node:events'
import { writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { describe, expect, test } from 'vitest'
import { loadConfig } from '../dist/config.js'
import { EventReplay } from '../dist/mcp/event-replay.js'
import { hashToken } from '../dist/server/auth/token.js'
import { deferred, startNode, temporaryFolder, until, within } from './support/lifetime.ts'
import {
  beginSession,
  connectHost,
  handleOf,
  initialize,
  mcpUrl,
  post,
  read,
  request,
  send,
  textOf,
  type HostOptions,
} from './support/mcp-host.ts'

const nothing = { type: 'object', properties: {} }

const add = defineTool({
  name: 'add',
  description: 'Adds two numbers.',
  input: { type: 'object', properties: { a: { type: 'number' }, b: { type: 'number' } }, required: ['a', 'b'] },
  output: { type: 'object', properties: { sum: { type: 'number' } }, required: ['sum'] },
  traits: { readOnly: true },
  run: ({ a, b }) => ({ sum: a + b }),
})

const values: Record<string, () => Json | Uint8Array | Content> = {
  text: () => 'hello',
  list: () => [1, 2],
  nothing: () => null,
  bytes: () => new Uint8Array([1, 2, 3]),
  image: () => new Content([{ text: 'An image:' }, { raw: 'AQID', mediaType: 'image/png' }]),
  link: () => new Content([{ url: 'https://example.com/a.txt', filename: 'a.txt', mediaType: 'text/plain' }]),
}

const give = defineTool({
  name: 'give',
  description: 'Gives a value of a kind.',
  input: { type: 'object', properties: { kind: { type: 'string', enum: Object.keys(values) } }, required: ['kind'] },
  run: ({ kind }) => values[kind]?.() ?? null,
})

const fail = defineTool({
  name: 'fail',
  description: 'Fails.',
  input: nothing,
  run() {
    throw new Error('The disk is on fire.')
  },
})

const count = defineTool({
  name: 'count',
  description: 'Counts, and gives nothing in the end.',
  input: { type: 'object', properties: { to: { type: 'integer' } }, required: ['to'] },
  async *run({ to }) {
    for (let i = 1; i <= to; i++) yield `${i} `
    return null
  },
})

const steps = defineTool({
  name: 'steps',
  description: 'Says how far it is, and starts over once.',
  input: nothing,
  run(_params, { progress }) {
    for (const done of [0, 1, 2, 1, 2]) progress({ progress: done, total: 2, message: `step ${done}` })
    return 'done'
  },
})

/** A tool that says when it has begun and stopped, and ends when it is let go. */
function holding(name = 'hold', changes: Partial<Tool> = {}) {
  const begun = deferred()
  const stopped = deferred<unknown>()
  const release = deferred()
  const tool = defineTool({
    name,
    description: 'Runs until it is let go.',
    input: nothing,
    ...changes,
    async run(_params: JsonObject, { signal }: { signal: AbortSignal }) {
      begun.resolve()
      await Promise.race([release.promise, once(signal, 'abort')])
      if (signal.aborted) {
        stopped.resolve(signal.reason)
        throw signal.reason
      }
      return { held: true }
    },
  })
  return { tool, begun: begun.promise, stopped: stopped.promise, release: () => release.resolve() }
}

function asking(schema?: JsonObject): Tool {
  return defineTool({
    name: 'ask',
    description: 'Asks a question.',
    input: nothing,
    run: async (_params, { ask }) => ({
      answer: await ask({ message: 'What is it?', ...(schema === undefined ? {} : { schema }) }),
    }),
  })
}

const aliceToken = 'alice-token'
const bobToken = 'bob-token'
const auth = {
  tokens: [
    { id: 'alice', sha256: hashToken(aliceToken) },
    { id: 'bob', sha256: hashToken(bobToken), scopes: ['tool:add', 'tool:hold'] },
  ],
}

const withForms: HostOptions = { capabilities: { elicitation: { form: {} } } }

describe('the list of tools', () => {
  test('holds names, descriptions, schemas and hints, and the tools that follow a task', async () => {
    const node = await startNode({ tools: [add, give] })
    const { client } = await connectHost(node)
    expect(client.getServerVersion()).toMatchObject({ name: 'alice', title: 'Alice' })
    const { tools } = await client.listTools()
    expect(tools.map(({ name }) => name)).toEqual([
      'add',
      'give',
      'task_status',
      'task_result',
      'task_answer',
      'task_cancel',
    ])
    expect(tools[0]).toEqual({
      name: 'add',
      description: 'Adds two numbers.',
      inputSchema: add.input,
      outputSchema: add.output,
      annotations: { readOnlyHint: true, idempotentHint: true },
    })
    for (const { description } of tools) expect(description).toBeTruthy()
  })

  test('gives way to tools of the node where they have the same names', async () => {
    const mine = defineTool({ name: 'task_status', description: 'Mine.', input: nothing, run: () => 'mine' })
    const node = await startNode({ tools: [mine] })
    const { client } = await connectHost(node)
    const { tools } = await client.listTools()
    expect(tools.map(({ name }) => name)).toEqual([
      'task_status',
      'convoke_task_status',
      'task_result',
      'task_answer',
      'task_cancel',
    ])
    expect(textOf(await client.callTool({ name: 'task_status' }))).toBe('mine')
    const followed = await client.callTool({ name: 'convoke_task_status', arguments: { task_id: 'x' } })
    expect(textOf(followed)).toBe('Task "x" was not found.')
  })

  test('comes in pages, and a page goes on where the one before ended', async () => {
    const tools = Array.from({ length: 1100 }, (_, i) =>
      defineTool({ name: `tool_${i}`, description: 'One of many.', input: nothing, run: () => i }),
    )
    const node = await startNode({ tools })
    const { client } = await connectHost(node)
    const first = await client.listTools()
    expect(first.tools).toHaveLength(504)
    // What stood on the page before goes, and everything moves up.
    node.registry.deregister('tool_3')
    const second = await client.listTools({ cursor: first.nextCursor })
    expect(second.tools[0]?.name).toBe('tool_500')
    const third = await client.listTools({ cursor: second.nextCursor })
    expect(third.tools.map(({ name }) => name)).toEqual(Array.from({ length: 100 }, (_, i) => `tool_${1000 + i}`))
    expect(third.nextCursor).toBeUndefined()
    await expect(client.listTools({ cursor: 'nonsense' })).rejects.toThrow(/cursor must be the nextCursor/)
  })

  test('tells hosts of changes once, those whose tools have changed', async () => {
    const node = await startNode({ tools: [add], server: { auth } })
    const changes = { alice: 0, bob: 0 }
    for (const [id, token] of Object.entries({ alice: aliceToken, bob: bobToken })) {
      const { client } = await connectHost(node, { token })
      client.setNotificationHandler(ToolListChangedNotificationSchema, () => {
        changes[id as 'alice'] += 1
      })
    }
    const aborter = new AbortController()
    const notifications = { toolsListChanged: true }
    const listening = await send(
      node,
      'subscriptions/listen',
      { notifications },
      { token: aliceToken, signal: aborter.signal },
    )
    const events = listening.body?.pipeThrough(new TextDecoderStream()).getReader()
    expect((await events?.read())?.value).toContain('notifications/subscriptions/acknowledged')

    // The streams of the sessions open behind the connection.
    await until(async () => {
      node.registry.deregister('give')
      node.registry.register(give)
      node.registry.deregister('give')
      node.registry.register(fail, { replace: true })
      await new Promise((resolve) => setImmediate(resolve))
      return changes.alice > 0
    }, 'the host to hear of the change')
    expect((await events?.read())?.value).toContain('notifications/tools/list_changed')
    expect(changes).toEqual({ alice: 1, bob: 0 })
    aborter.abort()
    const hidden = holding('hold').tool
    node.registry.register(hidden)
    await until(() => changes.bob === 1, 'the other host to hear of its own tool')
  })
})

describe('results', () => {
  test('are structured content, texts, files and links', async () => {
    const node = await startNode({ tools: [add, give] })
    const { client } = await connectHost(node)
    await client.listTools()
    const result = async (kind: string) => (await client.callTool({ name: 'give', arguments: { kind } })).content
    expect(await client.callTool({ name: 'add', arguments: { a: 1, b: 2 } })).toEqual({
      content: [{ type: 'text', text: '{"sum":3}' }],
      structuredContent: { sum: 3 },
    })
    expect(await result('text')).toEqual([{ type: 'text', text: 'hello' }])
    expect(await result('list')).toEqual([{ type: 'text', text: '[1,2]' }])
    expect(await result('nothing')).toEqual([{ type: 'text', text: 'null' }])
    expect(await result('bytes')).toEqual([
      { type: 'resource', resource: expect.objectContaining({ blob: 'AQID', mimeType: 'application/octet-stream' }) },
    ])
    expect(await result('image')).toEqual([
      { type: 'text', text: 'An image:' },
      { type: 'image', data: 'AQID', mimeType: 'image/png' },
    ])
    expect(await result('link')).toEqual([
      { type: 'resource_link', uri: 'https://example.com/a.txt', name: 'a.txt', mimeType: 'text/plain' },
    ])
  })

  test('of a tool that only streams are what it streamed', async () => {
    const node = await startNode({ tools: [count] })
    const { client } = await connectHost(node)
    const { content } = await client.callTool({ name: 'count', arguments: { to: 3 } })
    expect(content).toEqual([{ type: 'text', text: '1 2 3 ' }])
  })

  test('say what failed, and what is wrong with params, so that a model can mend it', async () => {
    const node = await startNode({ tools: [add, fail] })
    const { client } = await connectHost(node)
    expect(await client.callTool({ name: 'fail' })).toEqual({
      isError: true,
      content: [{ type: 'text', text: 'The disk is on fire.' }],
      _meta: { _tool_error: expect.objectContaining({ code: 'tool_failed', message: 'The disk is on fire.' }) },
    })
    const wrong = await client.callTool({ name: 'add', arguments: { a: 'x' } })
    expect(wrong.isError).toBe(true)
    expect(textOf(wrong)).toMatch(/Invalid params for the tool "add".*\/a/)
    expect(wrong._meta?.['_tool_error']).toMatchObject({
      code: 'invalid_params',
      issues: expect.arrayContaining([{ path: '/a', message: expect.any(String) }]),
    })
  })

  test('are protocol errors for tools that are not there, or not for this caller', async () => {
    const secret = { ...add, name: 'secret' }
    const node = await startNode({ tools: [add, secret], server: { auth } })
    const { client } = await connectHost(node, { token: bobToken })
    const { tools } = await client.listTools()
    expect(tools.map(({ name }) => name)).not.toContain('secret')
    const { client: alice } = await connectHost(node, { token: aliceToken })
    // Another caller's list has made the name known here.
    expect((await alice.callTool({ name: 'secret', arguments: { a: 1, b: 1 } })).structuredContent).toEqual({ sum: 2 })
    for (const name of ['secret', 'no_such_tool', 'x'.repeat(500)]) {
      const failure = await client.callTool({ name, arguments: { a: 1, b: 1 } }).catch((error: unknown) => error)
      expect(failure).toBeInstanceOf(McpError)
      expect(failure).toMatchObject({ code: -32602, message: expect.stringContaining('Unknown tool: ') })
    }
  })

  test('of a node that has too much to do say so', async () => {
    const hold = holding()
    const node = await startNode({ tools: [hold.tool, fail], server: { maxRunningTasks: 1 } })
    const { client } = await connectHost(node)
    const held = client.callTool({ name: 'hold' })
    await hold.begun
    const refused = await client.callTool({ name: 'fail' })
    expect(refused.isError).toBe(true)
    expect(refused._meta?.['_tool_error']).toMatchObject({ code: 'rate_limited', retryable: true })
    hold.release()
    expect((await held).structuredContent).toEqual({ held: true })
  })
})

describe('progress', () => {
  const listen = async (node: Node, name: string, args: JsonObject = {}) => {
    const { client } = await connectHost(node)
    const heard: Progress[] = []
    const result = await client.callTool({ name, arguments: args }, CallToolResultSchema, {
      onprogress: (progress) => heard.push(progress),
    })
    return { heard, result }
  }

  test('rises with each message, also where the tool starts over, and all of it comes before the result', async () => {
    const node = await startNode({ tools: [steps] })
    for (let round = 0; round < 10; round++) {
      const { heard } = await listen(node, 'steps')
      const numbers = heard.map(({ progress }) => progress)
      expect(numbers).toEqual([...numbers].toSorted((a, b) => a - b))
      expect(new Set(numbers).size).toBe(numbers.length)
      expect(heard.at(-1)).toMatchObject({ message: 'step 2' })
      expect(numbers.length).toBeGreaterThan(0)
    }
  })

  test('carries what a tool streams, and is not sent too often', async () => {
    const node = await startNode({ tools: [count] })
    const { heard, result } = await listen(node, 'count', { to: 2000 })
    const said = heard.map(({ message }) => message ?? '').join('')
    expect(said).toMatch(/^1 2 3 /)
    expect(said).toMatch(/2000 $/)
    expect(heard.length).toBeLessThan(100)
    expect(textOf(result)).toHaveLength(Array.from({ length: 2000 }, (_, i) => `${i + 1} `).join('').length)
  })

  test('comes in silence, too, and keeps a call alive beyond the patience for others', async () => {
    const hold = holding()
    const node = await startNode({ tools: [hold.tool], server: { heartbeatMs: 20 }, mcp: { patienceMs: 10 } })
    const { client } = await connectHost(node)
    const heard: Progress[] = []
    const held = client.callTool({ name: 'hold' }, CallToolResultSchema, {
      onprogress: (progress) => heard.push(progress),
    })
    await until(() => heard.length >= 3, 'progress of a silent tool')
    hold.release()
    expect((await held).structuredContent).toEqual({ held: true })
  })

  test('makes a 2026-07-28 answer a stream with the result at its end', async () => {
    const node = await startNode({ tools: [steps] })
    const { messages, result } = await request(node, 'tools/call', { name: 'steps' }, { progressToken: 'p1' })
    expect(messages.length).toBeGreaterThan(1)
    for (const message of messages.slice(0, -1))
      expect(message).toMatchObject({ method: 'notifications/progress', params: { progressToken: 'p1' } })
    expect(result).toMatchObject({ content: [{ type: 'text', text: 'done' }] })
  })
})

describe('a call that is taken back', () => {
  test('stops the tool: by notifications/cancelled', async () => {
    const hold = holding()
    const node = await startNode({ tools: [hold.tool] })
    const { client } = await connectHost(node)
    const aborter = new AbortController()
    const held = client.callTool({ name: 'hold' }, CallToolResultSchema, { signal: aborter.signal })
    held.catch(() => {})
    await hold.begun
    aborter.abort()
    expect(await within(hold.stopped, 'the tool to stop')).toMatchObject({ code: 'canceled' })
    await until(() => node.stats.running === 0, 'the task to end')
  })

  test('stops the tool: by the end of the session', async () => {
    const hold = holding()
    const node = await startNode({ tools: [hold.tool] })
    const { client, transport } = await connectHost(node)
    client.callTool({ name: 'hold' }).catch(() => {})
    await hold.begun
    await transport.terminateSession()
    expect(await within(hold.stopped, 'the tool to stop')).toMatchObject({ code: 'canceled' })
  })

  test('stops the tool: by a connection that closes, in 2026-07-28', async () => {
    const hold = holding()
    const node = await startNode({ tools: [hold.tool] })
    const aborter = new AbortController()
    send(node, 'tools/call', { name: 'hold' }, { signal: aborter.signal }).catch(() => {})
    await hold.begun
    aborter.abort()
    expect(await within(hold.stopped, 'the tool to stop')).toMatchObject({ code: 'canceled' })
  })

  test('does not stop it where a session only lost its connection; the result is there for who comes back', async () => {
    const hold = holding()
    const node = await startNode({ tools: [hold.tool] })
    const session = await beginSession(node)
    const headers = { 'mcp-session-id': session, 'mcp-protocol-version': '2025-11-25' }
    const aborter = new AbortController()
    const body = JSON.stringify({ jsonrpc: '2.0', id: 7, method: 'tools/call', params: { name: 'hold' } })
    const lost = await post(node, body, headers, aborter.signal)
    const first = await lost.body?.pipeThrough(new TextDecoderStream()).getReader().read()
    const lastEventId = /^id: (.+)$/m.exec(first?.value ?? '')?.[1] ?? ''
    await hold.begun
    aborter.abort()
    hold.release()
    await until(() => node.stats.running === 0, 'the tool to end')
    const resumed = await fetch(mcpUrl(node), {
      headers: { ...headers, accept: 'text/event-stream', 'last-event-id': lastEventId },
    })
    const { messages } = await read(resumed)
    expect(messages).toEqual([
      expect.objectContaining({ id: 7, result: expect.objectContaining({ structuredContent: { held: true } }) }),
    ])
  })
})

describe('a question', () => {
  const person = (client: Awaited<ReturnType<typeof connectHost>>['client'], answer: JsonObject) => {
    const asked: JsonObject[] = []
    client.setRequestHandler(ElicitRequestSchema, ({ params }) => {
      asked.push(params as unknown as JsonObject)
      return answer
    })
    return asked
  }

  const schema = {
    type: 'object',
    properties: {
      size: { const: 'large' },
      amount: { type: 'integer', minimum: 1, multipleOf: 2, default: 4 },
      colour: { enum: ['red', 3, null] },
    },
    required: ['size', 'amount'],
  }

  test('becomes a form of the host, whose answer is the one that the tool wants', async () => {
    const node = await startNode({ tools: [asking(schema)] })
    const { client } = await connectHost(node, withForms)
    const asked = person(client, { action: 'accept', content: { amount: 6, colour: '3' } })
    const { structuredContent } = await client.callTool({ name: 'ask' })
    expect(asked).toEqual([
      {
        mode: 'form',
        message: 'What is it?',
        requestedSchema: {
          type: 'object',
          properties: {
            amount: { type: 'integer', minimum: 1, default: 4 },
            colour: { type: 'string', enum: ['red', '3', 'null'] },
          },
          required: ['amount'],
        },
      },
    ])
    expect(structuredContent).toEqual({ answer: { size: 'large', amount: 6, colour: 3 } })
  })

  test.each<[string, JsonObject | undefined, JsonObject, Json]>([
    ['without a schema', undefined, { answer: 'a text' }, 'a text'],
    ['of a simple value', { type: 'boolean' }, { answer: true }, true],
    ['of what no form can hold', { type: 'array', items: { type: 'number' } }, { answer: '[1,2]' }, [1, 2]],
    [
      'of nested objects',
      { type: 'object', properties: { at: { type: 'object' } } },
      { answer: '{"at":{}}' },
      { at: {} },
    ],
  ])('%s is a form of one field', async (_what, given, content, answer) => {
    const node = await startNode({ tools: [asking(given)] })
    const { client } = await connectHost(node, withForms)
    person(client, { action: 'accept', content })
    expect((await client.callTool({ name: 'ask' })).structuredContent).toEqual({ answer })
  })

  test('that may be left out stays a choice, and one with a condition that a person must meet stays JSON', async () => {
    const choice = { type: 'object', properties: { news: { const: 'weekly' }, name: { type: 'string' } } }
    const node = await startNode({ tools: [asking(choice)] })
    const { client } = await connectHost(node, withForms)
    const asked = person(client, { action: 'accept', content: { name: 'Ann' } })
    expect((await client.callTool({ name: 'ask' })).structuredContent).toEqual({ answer: { name: 'Ann' } })
    expect(asked).toMatchObject([{ requestedSchema: { properties: { news: { enum: ['weekly'] } }, required: [] } }])
    const otherwise = { if: { not: { required: ['news'] } }, else: { required: ['name'] } }
    const conditional = await startNode({ tools: [asking({ ...choice, ...otherwise })] })
    const { client: other } = await connectHost(conditional, withForms)
    const told = person(other, { action: 'accept', content: { answer: '{}' } })
    expect((await other.callTool({ name: 'ask' })).structuredContent).toEqual({ answer: {} })
    expect(told).toMatchObject([{ requestedSchema: { properties: { answer: { type: 'string' } } } }])
  })

  const gone: string[] = []
  const remove = defineTool({
    name: 'remove',
    description: 'Removes.',
    input: { type: 'object', properties: { path: { type: 'string' } }, required: ['path'] } as const,
    run: ({ path }) => void gone.push(path),
  })
  const toolPolicy = [{ tools: 'remove', decision: 'ask', reason: 'It is gone for good.' }] as const

  test('for an approval is one box to tick, bound to the arguments', async () => {
    gone.length = 0
    const node = await startNode({ tools: [remove], toolPolicy })
    const { client } = await connectHost(node, withForms)
    const call = (path: string) => client.callTool({ name: 'remove', arguments: { path } })
    const asked = person(client, { action: 'accept', content: { approve: true } })
    expect((await call('/a')).isError).not.toBe(true)
    expect(asked).toEqual([
      {
        mode: 'form',
        message: expect.stringContaining('{"path":"/a"}. Reason: It is gone for good.') as string,
        requestedSchema: { type: 'object', properties: { approve: { type: 'boolean' } }, required: ['approve'] },
      },
    ])
    for (const answer of [{ action: 'accept', content: { approve: false } }, { action: 'decline' }]) {
      person(client, answer)
      expect(await call('/b')).toMatchObject({ isError: true })
    }
    expect(gone).toEqual(['/a'])
  })

  test('for an approval is given by task_answer in words, where a host has no forms', async () => {
    gone.length = 0
    const node = await startNode({ tools: [remove], toolPolicy })
    const { client } = await connectHost(node)
    const handle = handleOf(await client.callTool({ name: 'remove', arguments: { path: '/a' } }))
    const { task_id } = handle
    const answering = (answer: Json) => client.callTool({ name: 'task_answer', arguments: { task_id, answer } })
    expect(handleOf(await answering('yes'))).toMatchObject({ state: 'input_required' })
    const words = /"(approve [0-9a-f]{8})"/.exec(String(handle['question']))?.[1] ?? ''
    expect((await answering(words)).isError).not.toBe(true)
    expect(gone).toEqual(['/a'])
  })

  test('for an approval counts in 2026-07-28 for the question that was shown, and no other of the same caller', async () => {
    gone.length = 0
    const node = await startNode({ tools: [remove], toolPolicy })
    const begin = async (path: string) => {
      const { result } = await request(node, 'tools/call', { name: 'remove', arguments: { path } }, withForms)
      return (result['requestState'] as string).split('.')
    }
    const [a, b] = [await begin('/a'), await begin('/b')]
    const inputResponses = { answer: { action: 'accept', content: { approve: true } } }
    const retry = (requestState: string) =>
      request(node, 'tools/call', { name: 'remove', inputResponses, requestState }, withForms)
    expect((await retry(`${a[0]}.${b[1]}`)).result).toMatchObject({ resultType: 'input_required' })
    expect((await retry(`${a[0]}`)).result).toMatchObject({ resultType: 'input_required' })
    expect(gone).toEqual([])
    await retry(`${a[0]}.${a[1]}`)
    expect(gone).toEqual(['/a'])
  })

  test('is asked again where the answer does not fit', async () => {
    const node = await startNode({ tools: [asking({ type: 'array', items: { type: 'number' } })] })
    const { client } = await connectHost(node, withForms)
    const answers = ['no json', '["x"]', '[7]']
    const asked: string[] = []
    client.setRequestHandler(ElicitRequestSchema, ({ params }) => {
      asked.push(params.message)
      return { action: 'accept', content: { answer: answers[asked.length - 1] ?? '' } }
    })
    expect((await client.callTool({ name: 'ask' })).structuredContent).toEqual({ answer: [7] })
    expect(asked).toEqual([
      'What is it?',
      expect.stringContaining('did not fit'),
      expect.stringContaining('did not fit'),
    ])
  })

  test('is not asked for ever of a host that answers by itself, and wrongly', async () => {
    const node = await startNode({ tools: [asking({ type: 'integer' })] })
    const { client } = await connectHost(node, withForms)
    const asked = person(client, { action: 'accept', content: { answer: 'x' } })
    expect(handleOf(await client.callTool({ name: 'ask' }))).toMatchObject({ state: 'input_required' })
    expect(asked.length).toBeLessThan(100)
  })

  test.each(['decline', 'cancel'])('that is answered with %s ends the tool', async (action) => {
    const node = await startNode({ tools: [asking()] })
    const { client } = await connectHost(node, withForms)
    person(client, { action })
    const result = await client.callTool({ name: 'ask' })
    expect(result).toMatchObject({ isError: true })
    expect(textOf(result)).toContain('What is it?')
    expect(node.stats.running).toBe(0)
  })

  test('to a host without forms is in a handle, and task_answer answers it', async () => {
    const node = await startNode({ tools: [asking(schema)] })
    const { client } = await connectHost(node)
    const handle = handleOf(await client.callTool({ name: 'ask' }))
    expect(handle).toMatchObject({ state: 'input_required', question: 'What is it?', schema })
    expect(handle.message).toContain('task_answer')
    const { task_id } = handle
    const wrong = await client.callTool({ name: 'task_answer', arguments: { task_id, answer: 'x' } })
    expect(handleOf(wrong)).toMatchObject({ state: 'input_required', question: expect.stringContaining('did not fit') })
    const answer = { size: 'large', amount: 2 }
    const done = await client.callTool({ name: 'task_answer', arguments: { task_id, answer } })
    expect(done.structuredContent).toEqual({ answer })
  })

  test('that the host takes back with its call ends the tool', async () => {
    const node = await startNode({ tools: [asking()] })
    const { client } = await connectHost(node, withForms)
    const asked = deferred()
    client.setRequestHandler(ElicitRequestSchema, () => {
      asked.resolve()
      return new Promise(() => {})
    })
    const aborter = new AbortController()
    client.callTool({ name: 'ask' }, CallToolResultSchema, { signal: aborter.signal }).catch(() => {})
    await asked.promise
    expect(node.stats.running).toBe(1)
    aborter.abort()
    await until(() => node.stats.running === 0, 'the task to end')
  })

  test('is a result of 2026-07-28, and the call that brings the answer goes on', async () => {
    const node = await startNode({ tools: [asking(schema)], server: { auth } })
    const options = { ...withForms, token: aliceToken }
    const { result } = await request(node, 'tools/call', { name: 'ask' }, options)
    expect(result).toMatchObject({
      resultType: 'input_required',
      inputRequests: { answer: { method: 'elicitation/create', params: { message: 'What is it?' } } },
      requestState: expect.any(String),
    })
    const retry = (inputResponses: JsonObject, requestState = result['requestState'] ?? '', token = aliceToken) =>
      request(node, 'tools/call', { name: 'ask', inputResponses, requestState }, { ...options, token })
    // Without an answer, or with one that does not fit, it asks again; of another caller's task nobody learns anything.
    expect((await retry({})).result).toMatchObject({ resultType: 'input_required' })
    const unfit = { answer: { action: 'accept', content: { size: 'small', amount: 1 } } }
    expect((await retry(unfit)).result).toMatchObject({ resultType: 'input_required' })
    expect((await retry({}, 'nonsense')).error).toMatchObject({ code: -32602 })
    const fits = { answer: { action: 'accept', content: { size: 'large', amount: 2 } } }
    const { result: done } = await retry(fits)
    expect(done).toMatchObject({ structuredContent: { answer: { size: 'large', amount: 2 } } })
    // The task has ended: the same round again gives its result again.
    expect((await retry(fits)).result).toMatchObject({ structuredContent: done['structuredContent'] })
  })

  test('of another caller cannot be answered', async () => {
    const node = await startNode({ tools: [{ ...asking(), name: 'hold' }], server: { auth } })
    const { result } = await request(node, 'tools/call', { name: 'hold' }, { ...withForms, token: aliceToken })
    const inputResponses = { answer: { action: 'accept', content: { answer: 'mine' } } }
    const params = { name: 'hold', inputResponses, requestState: result['requestState'] as string }
    const stolen = await request(node, 'tools/call', params, { ...withForms, token: bobToken })
    expect(stolen.error).toMatchObject({ code: -32602 })
  })

  test('in 2026-07-28 to a host without forms is in a handle', async () => {
    const node = await startNode({ tools: [asking()] })
    const { result } = await request(node, 'tools/call', { name: 'ask' })
    expect(handleOf(result)).toMatchObject({ state: 'input_required' })
  })

  test('can be declined in 2026-07-28', async () => {
    const node = await startNode({ tools: [asking()] })
    const { result } = await request(node, 'tools/call', { name: 'ask' }, withForms)
    const params = {
      name: 'ask',
      inputResponses: { answer: { action: 'decline' } },
      requestState: result['requestState'] as string,
    }
    expect((await request(node, 'tools/call', params, withForms)).result).toMatchObject({ isError: true })
    expect(node.stats.running).toBe(0)
  })
})

describe('a task that outlives the patience of its host', () => {
  const impatient = { mcp: { patienceMs: 30 } }

  test('goes on, and the host gets a handle and follows it', async () => {
    const hold = holding()
    const node = await startNode({ tools: [hold.tool], ...impatient })
    const { client } = await connectHost(node)
    const call = (name: string, args: JsonObject) => client.callTool({ name, arguments: args })
    const handle = handleOf(await client.callTool({ name: 'hold' }))
    expect(handle).toMatchObject({ state: 'working', message: expect.stringContaining('task_result') })
    const { task_id } = handle
    expect(handleOf(await call('task_status', { task_id }))).toMatchObject({ task_id, state: 'working' })
    expect(handleOf(await call('task_result', { task_id }))).toMatchObject({ task_id, state: 'working' })
    hold.release()
    await until(async () => handleOf(await call('task_status', { task_id })).state === 'completed', 'the end')
    expect((await call('task_result', { task_id })).structuredContent).toEqual({ held: true })
  })

  test('can be waited for and stopped, by its caller alone', async () => {
    const hold = holding()
    const node = await startNode({ tools: [hold.tool], server: { auth }, ...impatient })
    const { client: alice } = await connectHost(node, { token: aliceToken })
    const { client: bob } = await connectHost(node, { token: bobToken })
    const { task_id } = handleOf(await alice.callTool({ name: 'hold' }))
    for (const name of ['task_status', 'task_result', 'task_cancel', 'task_answer']) {
      const refused = await bob.callTool({ name, arguments: { task_id, answer: 'x' } })
      expect(refused).toMatchObject({ isError: true, _meta: { _tool_error: { code: 'task_not_found' } } })
    }
    // Who stops waiting does not stop the task.
    const aborter = new AbortController()
    const waiting = alice.callTool({ name: 'task_result', arguments: { task_id } }, CallToolResultSchema, {
      signal: aborter.signal,
      onprogress: () => {},
    })
    waiting.catch(() => {})
    aborter.abort()
    expect(handleOf(await alice.callTool({ name: 'task_status', arguments: { task_id } })).state).toBe('working')
    const stopped = handleOf(await alice.callTool({ name: 'task_cancel', arguments: { task_id } }))
    expect(stopped.state).toBe('canceled')
    expect(await within(hold.stopped, 'the tool to stop')).toMatchObject({ code: 'canceled' })
    const again = await alice.callTool({ name: 'task_cancel', arguments: { task_id } })
    expect(again).toMatchObject({ isError: true, _meta: { _tool_error: { code: 'task_not_cancelable' } } })
    expect(await alice.callTool({ name: 'task_result', arguments: { task_id } })).toMatchObject({ isError: true })
  })

  test('gives no structured content that its own schema forbids', async () => {
    const output = { type: 'object', properties: { held: { type: 'boolean' } }, required: ['held'] }
    const hold = holding('hold', { output })
    const node = await startNode({ tools: [hold.tool], ...impatient })
    const { client } = await connectHost(node)
    // The client holds results against the schemas that it has seen, and throws.
    await client.listTools()
    const result = await client.callTool({ name: 'hold' })
    expect(result).toMatchObject({ isError: true })
    expect(result.structuredContent).toBeUndefined()
    const { task_id } = handleOf(result)
    hold.release()
    await until(async () => {
      const { structuredContent } = await client.callTool({ name: 'task_result', arguments: { task_id } })
      return (structuredContent as JsonObject | undefined)?.['held'] === true
    }, 'the result')
  })

  test.each([
    ['task_status', {}, '`task_id`'],
    ['task_result', { task_id: 7 }, '`task_id`'],
    ['task_answer', { task_id: 'x' }, '`answer`'],
    ['task_cancel', { task_id: 'x' }, 'Task "x" was not found.'],
  ])('%s with %j says what is wrong', async (name, args, text) => {
    const node = await startNode()
    const { client } = await connectHost(node)
    const result = await client.callTool({ name, arguments: args })
    expect(result).toMatchObject({ isError: true })
    expect(textOf(result)).toContain(text)
  })
})

describe('the door', () => {
  test('wants credentials where the node does, and says which', async () => {
    const node = await startNode({ tools: [add], server: { auth } })
    for (const headers of [{}, { authorization: 'Bearer wrong' }]) {
      const refused = await post(node, initialize, headers)
      expect(refused.status).toBe(401)
      expect(refused.headers.get('www-authenticate')).toContain('Bearer')
      expect((await read(refused)).error?.message).toBeTruthy()
    }
    expect((await fetch(mcpUrl(node))).status).toBe(401)
  })

  test('keeps foreign pages out', async () => {
    const node = await startNode({ tools: [add] })
    expect((await post(node, initialize, { origin: 'https://evil.example.com' })).status).toBe(403)
  })

  test.each<[string, number, string, Record<string, string>]>([
    ['garbage', 400, 'not json', {}],
    ['nothing', 400, '', {}],
    ['a batch', 400, `[${initialize}]`, {}],
    ['a text', 400, '"initialize"', {}],
    ['null', 400, 'null', {}],
    ['an object that is no message', 400, '{"hello":1}', {}],
    ['too deep a nesting', 400, `${'['.repeat(300)}${']'.repeat(300)}`, {}],
    ['a huge body', 413, `{"a":"${'x'.repeat(5 * 1024 * 1024)}"}`, {}],
    ['another content type', 415, initialize, { 'content-type': 'text/plain' }],
    ['a content type that no host takes', 406, initialize, { accept: 'application/json' }],
    ['a call without a session', 400, '{"jsonrpc":"2.0","id":1,"method":"tools/list"}', {}],
    ['a session that is not there', 404, '{"jsonrpc":"2.0","id":1,"method":"tools/list"}', { 'mcp-session-id': 'x' }],
    [
      'a version that is not there',
      400,
      '{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2031-01-01"}}}',
      { 'mcp-protocol-version': '2031-01-01' },
    ],
  ])('refuses %s with %i', async (_what, status, body, headers) => {
    const node = await startNode({ tools: [add] })
    const answer = await read(await post(node, body, headers))
    expect(answer.status).toBe(status)
    expect(answer.error).toMatchObject({ code: expect.any(Number), message: expect.any(String) })
    expect(answer.error?.message).not.toMatch(/at .*\.js/)
    expect(node.mcp?.sessions).toBe(0)
  })

  test('refuses methods of HTTP that mean nothing here', async () => {
    const node = await startNode({ tools: [add] })
    expect((await fetch(mcpUrl(node), { method: 'PUT' })).status).toBe(405)
  })

  test('speaks the older protocols, too', async () => {
    const node = await startNode({ tools: [add] })
    for (const version of ['2025-06-18', '2025-03-26']) {
      const { result } = await read(await post(node, initialize.replace('2025-11-25', version)))
      expect(result['protocolVersion']).toBe(version)
    }
    const { result } = await read(await post(node, initialize.replace('2025-11-25', '1999-01-01')))
    expect(result['protocolVersion']).toBe('2025-11-25')
  })

  test('answers server/discover of 2026-07-28 without a session', async () => {
    const node = await startNode({ tools: [add] })
    const { result, headers } = await request(node, 'server/discover')
    expect(result).toMatchObject({ supportedVersions: ['2026-07-28'], capabilities: { tools: { listChanged: true } } })
    expect(headers.get('mcp-session-id')).toBeNull()
    const listed = await request(node, 'tools/list')
    expect(listed.result).toMatchObject({ tools: expect.arrayContaining([expect.objectContaining({ name: 'add' })]) })
  })

  test('is told of by the node, and can be elsewhere or closed', async () => {
    const elsewhere = await startNode({ tools: [add], mcp: { path: '/tools/mcp' } })
    expect(mcpUrl(elsewhere)).toBe(`${elsewhere.url}/tools/mcp`)
    expect(await (await fetch(`${elsewhere.url}/`)).json()).toMatchObject({ mcp: '/tools/mcp' })
    await connectHost(elsewhere)
    const closed = await startNode({ tools: [add], mcp: { publish: false } })
    expect(closed.doors.map(({ name }) => name)).not.toContain('MCP')
    expect((await fetch(`${closed.url}/mcp`, { method: 'POST' })).status).toBe(404)
  })

  test.each<[string, NodeOptions['mcp'] & object]>([
    ['mcp.path must be a path', { path: 'mcp' }],
    ['mcp.path must be a path that nothing else has', { path: '/healthz' }],
    ['mcp.patienceMs must be a whole number', { patienceMs: 0 }],
    ['mcp.maxSessions must be a whole number', { maxSessions: 1.5 }],
  ])('says %s', async (text, mcp) => {
    await expect(createNode({ agent: { id: 'alice' }, mcp })).rejects.toThrow(text)
  })
})

describe('in a configuration file', () => {
  test('the settings of the door are checked, and those that are right hold', async () => {
    const folder = await temporaryFolder()
    const write = async (mcp: JsonObject) => {
      const file = join(folder, 'convoke.json')
      await writeFile(file, JSON.stringify({ agent: { id: 'alice' }, mcp }))
      return file
    }
    const right = { publish: true, path: '/x/mcp', patienceMs: 1, maxWaitMs: 2, sessionTtlMs: 3, maxSessions: 4 }
    expect((await loadConfig(await write(right))).options.mcp).toEqual(right)
    const wrong = await write({ publish: 'yes', path: 'mcp', patienceMs: 0, maxWaitMs: 1.5, maxSessions: 0, ttl: 1 })
    const { issues } = (await loadConfig(wrong).catch((error: unknown) => error)) as ConvokeError
    expect(issues?.map(({ path }) => path).toSorted()).toEqual(
      ['maxSessions', 'maxWaitMs', 'path', 'patienceMs', 'publish', 'ttl'].map((key) => `/mcp/${key}`),
    )
  })
})

describe('what is kept for hosts that come back', () => {
  const message = (text: string) => ({ jsonrpc: '2.0' as const, method: 'x', params: { text } })
  const replayed = async (replay: EventReplay, after: string) => {
    const ids: string[] = []
    await replay.replayEventsAfter(after, { send: async (id) => void ids.push(id) })
    return ids
  }

  test('is the newest of each stream, within bounds, and goes with the session', async () => {
    const budget = { chars: 0 }
    const replay = new EventReplay(budget)
    const first = await replay.storeEvent('a', message('1'))
    for (let i = 0; i < 1500; i++) await replay.storeEvent(i % 2 === 0 ? 'a' : 'b', message('x'))
    expect(await replayed(replay, first)).toHaveLength(500)
    expect(await replay.getStreamIdForEventId(first)).toBe('a')
    expect(await replay.getStreamIdForEventId('nonsense')).toBeUndefined()
    const large = await replay.storeEvent('a', message('x'.repeat(3_000_000)))
    await replay.storeEvent('a', message('x'.repeat(3_000_000)))
    expect(budget.chars).toBeLessThan(4 * 1024 * 1024)
    expect(await replayed(replay, large)).toHaveLength(1)
    await replay.storeEvent('a', message('x'.repeat(5_000_000)))
    expect(await replayed(replay, large)).toHaveLength(0)
    await replay.storeEvent('a', message('x'))
    replay.clear()
    expect(budget.chars).toBe(0)
  })

  test('is bounded for all sessions together', async () => {
    const budget = { chars: 0 }
    const sessions = Array.from({ length: 40 }, () => new EventReplay(budget))
    for (const session of sessions) await session.storeEvent('a', message('x'.repeat(3_000_000)))
    expect(budget.chars).toBeLessThanOrEqual(64 * 1024 * 1024)
    expect(budget.chars).toBeGreaterThan(60_000_000)
  })
})

describe('a session', () => {
  const list = (node: Node, session: string, token?: string) =>
    post(node, '{"jsonrpc":"2.0","id":1,"method":"tools/list"}', {
      'mcp-session-id': session,
      ...(token === undefined ? {} : { authorization: `Bearer ${token}` }),
    })

  test('belongs to the caller that began it', async () => {
    const node = await startNode({ tools: [add], server: { auth } })
    const session = await beginSession(node, aliceToken)
    expect((await list(node, session, aliceToken)).status).toBe(200)
    expect((await list(node, session, bobToken)).status).toBe(404)
    const headers = { 'mcp-session-id': session, authorization: `Bearer ${bobToken}` }
    expect((await fetch(mcpUrl(node), { method: 'DELETE', headers })).status).toBe(404)
    expect((await list(node, session, aliceToken)).status).toBe(200)
  })

  test('gives each request what its own credentials allow', async () => {
    const weak = 'alice-weak-token'
    const tokens = [...auth.tokens, { id: 'alice', sha256: hashToken(weak), scopes: ['tool:add'] }]
    const node = await startNode({ tools: [add, fail], server: { auth: { tokens } } })
    const session = await beginSession(node, aliceToken)
    let id = 1
    const call = async (token: string) => {
      const body = JSON.stringify({ jsonrpc: '2.0', id: id++, method: 'tools/call', params: { name: 'fail' } })
      return read(await post(node, body, { 'mcp-session-id': session, authorization: `Bearer ${token}` }))
    }
    const [strong, refused] = await Promise.all([call(aliceToken), call(weak), call(aliceToken)])
    expect(strong.result).toMatchObject({ isError: true })
    expect(refused.error).toMatchObject({ code: -32602, message: expect.stringContaining('Unknown tool') })
    const { result } = await read(await list(node, session, weak))
    expect((result['tools'] as { name: string }[]).map(({ name }) => name)).not.toContain('fail')
  })

  test('ends when its host says so, and when it lies idle', async () => {
    const node = await startNode({ tools: [add], mcp: { sessionTtlMs: 50 } })
    const session = await beginSession(node)
    expect((await fetch(mcpUrl(node), { method: 'DELETE', headers: { 'mcp-session-id': session } })).status).toBe(200)
    expect((await list(node, session)).status).toBe(404)
    const idle = await beginSession(node)
    expect(node.mcp?.sessions).toBe(1)
    await until(() => node.mcp?.sessions === 0, 'the idle session to end')
    expect((await list(node, idle)).status).toBe(404)
  })

  test('stays while a call of it runs', async () => {
    const hold = holding()
    const node = await startNode({ tools: [hold.tool, add], mcp: { sessionTtlMs: 20 } })
    const session = await beginSession(node)
    const body = JSON.stringify({ jsonrpc: '2.0', id: 7, method: 'tools/call', params: { name: 'hold' } })
    const held = post(node, body, { 'mcp-session-id': session }).then(read)
    await hold.begun
    await beginSession(node)
    await until(() => node.mcp?.sessions === 1, 'the idle one of two to end')
    hold.release()
    expect((await held).result).toMatchObject({ structuredContent: { held: true } })
  })

  test('makes room for others when there are too many: the one that has been idle the longest goes', async () => {
    const node = await startNode({ tools: [add], mcp: { maxSessions: 2 } })
    const [first, second] = [await beginSession(node), await beginSession(node)]
    await (await list(node, first)).text()
    const third = await beginSession(node)
    const statuses = await Promise.all([first, second, third].map(async (id) => (await list(node, id)).status))
    expect(statuses).toEqual([200, 404, 200])
  })

  test('does not make room where its host is at work', async () => {
    const hold = holding()
    const node = await startNode({ tools: [hold.tool], mcp: { maxSessions: 1 } })
    const { client } = await connectHost(node)
    const held = client.callTool({ name: 'hold' })
    await hold.begun
    const refused = await post(node, initialize)
    expect(refused.status).toBe(429)
    hold.release()
    expect((await held).structuredContent).toEqual({ held: true })
  })

  test('does not hold up a node that stops', async () => {
    const hold = holding()
    const node = await startNode({ tools: [hold.tool] })
    const { client } = await connectHost(node)
    client.callTool({ name: 'hold' }).catch(() => {})
    await hold.begun
    await within(node.stop(), 'the node to stop')
    await hold.stopped
    expect(node.mcp?.sessions).toBe(0)
  })
})
