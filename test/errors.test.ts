import {
  ConvokeError,
  defineTool,
  type JsonObject,
  type Message,
  type Node,
  type NodeOptions,
  type Task,
  type Tool,
} from 'convoke'
import { randomUUID } from 'node:crypto'
import { connect } from 'node:net'
import { describe, expect, test } from 'vitest'
import { cleanup, deferred, startNode, within } from './support/lifetime.ts'
import {
  begin,
  getTask,
  request,
  rest,
  rpc,
  send,
  sendStream,
  stateOf,
  toolCall,
  toolErrorOf,
  wordsOf,
  type Answer,
  type CallOptions,
  type Params,
  type RestErrorBody,
  type RpcBody,
  type SendResult,
} from './support/wire.ts'

/** One way to send a message, and to read what comes back. */
interface Door {
  readonly name: string
  /** Where and how a whole body is posted. */
  post(url: string, body: string, options?: CallOptions): Promise<Answer>
  /** The body of a request that sends this message. */
  body(message: unknown, more?: Params): string
  task(answer: Answer): Task
  /** The error in an answer, as the code of JSON-RPC and the status of HTTP that say the same. */
  error(answer: Answer): { code?: number; http?: number; message: string }
}

const doors: readonly Door[] = [
  {
    name: 'JSON-RPC 1.0',
    post: (url, body, options) => post(url, body, '1.0', options),
    body: (message, more) =>
      JSON.stringify({ jsonrpc: '2.0', id: 7, method: 'SendMessage', params: { message, ...more } }),
    task: ({ body }) => (body as RpcBody<SendResult>).result!.task!,
    error: rpcError,
  },
  {
    name: 'HTTP+JSON 1.0',
    post: (url, body, options) => post(`${url}/message:send`, body, '1.0', options),
    body: (message, more) => JSON.stringify({ message, ...more }),
    task: ({ body }) => (body as SendResult).task!,
    error({ status, headers, body }) {
      const { error } = body as RestErrorBody
      expect(headers.get('content-type')).toMatch(/json/)
      expect(error.code).toBe(status)
      return { http: status, message: error.message }
    },
  },
  {
    name: 'JSON-RPC 0.3',
    post: (url, body, options) => post(url, body, '0.3', options),
    body: (message, more) =>
      JSON.stringify({
        jsonrpc: '2.0',
        id: 7,
        method: 'message/send',
        params: { message: toLegacy(message), ...more },
      }),
    task: ({ body }) => fromLegacy((body as RpcBody<Task>).result!),
    error: rpcError,
  },
]

function post(url: string, body: string, version: string, { headers }: CallOptions = {}): Promise<Answer> {
  return request(url, {
    method: 'POST',
    body,
    headers: { 'content-type': 'application/json', 'a2a-version': version, ...headers },
  })
}

function rpcError({ status, headers, body }: Answer): { code: number; message: string } {
  const { error, result, jsonrpc } = body as RpcBody
  expect(headers.get('content-type')).toMatch(/json/)
  expect(jsonrpc).toBe('2.0')
  expect(result).toBeUndefined()
  if (error === undefined) throw new Error(`No error came back, but ${status}: ${JSON.stringify(body)}`)
  return { code: error.code, message: error.message }
}

function isObject(value: unknown): value is JsonObject {
  return typeof value === 'object' && value !== null
}

function toLegacy(message: unknown): unknown {
  if (typeof message !== 'object' || message === null) return message
  const { parts, role, ...rest } = message as Record<string, unknown>
  return {
    kind: 'message',
    ...rest,
    ...(role === 'ROLE_USER' ? { role: 'user' } : role === undefined ? {} : { role }),
    ...(Array.isArray(parts)
      ? {
          parts: parts.map((part: unknown) =>
            isObject(part) ? { kind: 'text' in part ? 'text' : 'data', ...part } : part,
          ),
        }
      : parts === undefined
        ? {}
        : { parts }),
  }
}

function fromLegacy(task: Task): Task {
  const state = `TASK_STATE_${task.status.state.toUpperCase().replace('-', '_')}` as Task['status']['state']
  return { ...task, status: { ...task.status, state } }
}

const strict = defineTool({
  name: 'strict',
  description: 'Takes a count.',
  input: {
    type: 'object',
    properties: { count: { type: 'integer', minimum: 1 }, unit: { enum: ['day', 'week'], default: 'day' } },
    required: ['count'],
    additionalProperties: false,
  },
  run: (params) => params,
})

const hidden = defineTool({
  name: 'hidden',
  description: 'Not for others.',
  input: { type: 'object' },
  traits: { published: false },
  run: () => 'secret',
})

const liar = defineTool({
  name: 'liar',
  description: 'Promises a number.',
  input: { type: 'object' },
  output: { type: 'object', properties: { total: { type: 'number' } }, required: ['total'] },
  run: () => JSON.parse('{"total":"many"}') as { total: number },
})

/** Returns or throws whatever the test wants. */
function misbehaving(run: () => unknown): Tool {
  return defineTool({ name: 'bad', description: 'Misbehaves.', input: { type: 'object' }, run: () => run() as null })
}

describe.each(doors)('$name: a call that is refused or fails', (door) => {
  async function callOn(options: Partial<NodeOptions>, message: Message): Promise<Task> {
    const { url } = await startNode(options)
    const answer = await door.post(url, door.body(message))
    expect(answer.status).toBe(200)
    const task = door.task(answer)
    // A sentence for people stands beside every error.
    expect(wordsOf(task.status.message)).toBe(toolErrorOf(task)?.message)
    return task
  }

  test.each(['nothing_like_it', '__proto__', 'constructor', 'toString', 'strict ', 'STRICT', '.', 'tool-', '💥'])(
    'there is no tool %j',
    async (name) => {
      const task = await callOn({ tools: [strict] }, toolCall(name))
      expect(task.status.state).toBe('TASK_STATE_REJECTED')
      expect(toolErrorOf(task)).toMatchObject({ code: 'not_found', retryable: false })
      expect(toolErrorOf(task)?.message).toMatch(/^There is no tool/)
    },
  )

  test('a name of 1 MB is refused in a few words', async () => {
    const task = await callOn({ tools: [strict] }, toolCall('x'.repeat(1_000_000)))
    expect(task.status.state).toBe('TASK_STATE_REJECTED')
    expect(toolErrorOf(task)?.code).toBe('not_found')
    expect(JSON.stringify(task.status).length).toBeLessThan(2000)
  })

  test.each([undefined, null, 7, '', ['strict'], {}])('%j is no name of a tool', async (name) => {
    const message = toolCall('x')
    const task = await callOn(
      { tools: [strict] },
      { ...message, metadata: { _tool_call: { name: name as null, params: {} } } },
    )
    expect(task.status.state).toBe('TASK_STATE_REJECTED')
    expect(toolErrorOf(task)).toMatchObject({ code: 'invalid_params' })
  })

  test.each([null, [], [1], 'text', 7, true])('params %j are refused', async (params) => {
    const task = await callOn({ tools: [strict] }, toolCall('strict', params))
    expect(task.status.state).toBe('TASK_STATE_REJECTED')
    expect(toolErrorOf(task)).toMatchObject({ code: 'invalid_params', tool_name: 'strict', issues: [{ path: '' }] })
  })

  test.each([
    [{}, '/count', /required/],
    [{ count: 'three' }, '/count', /integer/],
    [{ count: 0 }, '/count', />= 1|at least 1|1 or more|minimum/],
    [{ count: 1, unit: 'year' }, '/unit', /day.*week/],
    [{ count: 1, cuont: 2 }, '/cuont', /.+/],
    [JSON.parse('{"count": 1, "__proto__": {"x": 1}}'), '/__proto__', /.+/],
  ])('params %j are refused, and the issue says where', async (params, path, text) => {
    const task = await callOn({ tools: [strict] }, toolCall('strict', params))
    expect(task.status.state).toBe('TASK_STATE_REJECTED')
    const error = toolErrorOf(task)
    expect(error?.code).toBe('invalid_params')
    const issue = error?.issues?.find((each) => each.path === path || each.path === '')
    expect(issue, JSON.stringify(error)).toBeDefined()
    expect(error?.message).toMatch(text)
  })

  test('a tool that is not published is not there', async () => {
    const tools = [strict, hidden]
    const blur = (task: Task, name: string): string =>
      JSON.stringify(task.status)
        .replaceAll(name, 'NAME')
        .replaceAll(/[0-9a-f]{8}-[0-9a-f-]{27}/g, 'ID')
        .replace(/"timestamp":"[^"]+"/, '')
    const secret = await callOn({ tools }, toolCall('hidden'))
    const unknown = await callOn({ tools }, toolCall('hidxyz'))
    expect(secret.status.state).toBe('TASK_STATE_REJECTED')
    expect(blur(secret, 'hidden')).toBe(blur(unknown, 'hidxyz'))
  })

  test('a result that breaks its own schema is a failure, and does not come back', async () => {
    const task = await callOn({ tools: [liar] }, toolCall('liar'))
    expect(task.status.state).toBe('TASK_STATE_FAILED')
    expect(toolErrorOf(task)).toMatchObject({ code: 'invalid_result', tool_name: 'liar', issues: [{ path: '/total' }] })
    expect(JSON.stringify(task.artifacts ?? [])).not.toContain('many')
  })

  const circular: Record<string, unknown> = {}
  circular['self'] = circular
  test.each([
    ['a function', () => () => {}],
    ['a bigint', () => ({ big: 1n })],
    ['a circle', () => circular],
    ['NaN', () => [Number.NaN]],
    ['a Map', () => new Map()],
    ['bytes inside of JSON', () => ({ bytes: new Uint8Array(1) })],
  ])('a result that is not JSON is a failure: %s', async (_what, run) => {
    const task = await callOn({ tools: [misbehaving(run)] }, toolCall('bad'))
    expect(task.status.state).toBe('TASK_STATE_FAILED')
    expect(toolErrorOf(task)).toMatchObject({ code: 'invalid_result', tool_name: 'bad' })
  })

  test.each([
    ['a string', 'Out of paper.', 'Out of paper.'],
    ['an error', new Error('Out of ink.', { cause: new Error('secret cause') }), 'Out of ink.'],
    ['an error without a message', new TypeError(), /threw TypeError without a message/],
    ['null', null, /threw null/],
    ['undefined', undefined, /threw undefined/],
    ['an object', { message: 'Out of toner.' }, 'Out of toner.'],
    ['a number', 42, /threw 42/],
  ])('what a tool throws is a failure in its words: %s', async (_what, thrown, message) => {
    const run = (): never => {
      // oxlint-disable-next-line typescript/only-throw-error -- tools throw all sorts of things
      throw thrown
    }
    const task = await callOn({ tools: [misbehaving(run)] }, toolCall('bad'))
    expect(task.status.state).toBe('TASK_STATE_FAILED')
    expect(toolErrorOf(task)).toMatchObject({ code: 'tool_failed', retryable: false, tool_name: 'bad' })
    expect(toolErrorOf(task)?.message).toMatch(message)
    expect(JSON.stringify(task)).not.toContain('secret cause')
  })

  test('a ConvokeError keeps its code', async () => {
    const run = (): never => {
      throw new ConvokeError('network', 'The printer cannot be reached.', { retryAfterMs: 5000 })
    }
    const task = await callOn({ tools: [misbehaving(run)] }, toolCall('bad'))
    expect(task.status.state).toBe('TASK_STATE_FAILED')
    expect(toolErrorOf(task)).toEqual({
      code: 'network',
      message: 'The printer cannot be reached.',
      retryable: true,
      retry_after_ms: 5000,
      tool_name: 'bad',
    })
  })

  test('a tool that does not end in its time fails with timeout', async () => {
    const aborted = deferred<unknown>()
    const slow = defineTool({
      name: 'slow',
      description: 'Never ends by itself.',
      input: { type: 'object' },
      traits: { timeoutMs: 30 },
      run: (_params, { signal }) =>
        new Promise<null>((_resolve, reject) => {
          signal.onabort = () => {
            aborted.resolve(signal.reason)
            reject(signal.reason as Error)
          }
        }),
    })
    const task = await callOn({ tools: [slow] }, toolCall('slow'))
    expect(task.status.state).toBe('TASK_STATE_FAILED')
    expect(toolErrorOf(task)).toMatchObject({ code: 'timeout', retryable: true, tool_name: 'slow' })
    expect(await aborted.promise).toMatchObject({ code: 'timeout' })
  })

  test('the caller may wait less long than the tool may run', async () => {
    const { tool } = endless()
    const message = toolCall('endless')
    const task = await callOn(
      { tools: [tool] },
      { ...message, metadata: { _tool_call: { name: 'endless', params: {}, timeout_ms: 30 } } },
    )
    expect(task.status.state).toBe('TASK_STATE_FAILED')
    expect(toolErrorOf(task)).toMatchObject({ code: 'timeout' })
    expect(toolErrorOf(task)?.message).toContain('30')
  })
})

/** A tool that runs until its signal says stop. */
function endless(): { tool: Tool; stopped: Promise<unknown> } {
  const stopped = deferred<unknown>()
  const tool = defineTool({
    name: 'endless',
    description: 'Never ends by itself.',
    input: { type: 'object' },
    async *run(_params, { signal }) {
      yield 'begun'
      await new Promise((resolve) => signal.addEventListener('abort', resolve))
      stopped.resolve(signal.reason)
      return 'too late'
    },
  })
  return { tool, stopped: stopped.promise }
}

test('chunks stay when the tool fails behind them', async () => {
  const failing = defineTool({
    name: 'failing',
    description: 'Fails half way.',
    input: { type: 'object' },
    async *run() {
      yield 'half'
      throw new Error('The other half is missing.')
    },
  })
  const { url } = await startNode({ tools: [failing] })
  const task = await send(url, toolCall('failing'))
  expect(task.status.state).toBe('TASK_STATE_FAILED')
  expect(task.artifacts).toMatchObject([{ artifactId: 'stream', parts: [{ text: 'half' }] }])
  expect(toolErrorOf(task)?.message).toBe('The other half is missing.')
})

test('a call is kept as it was sent, whatever the tool does with its params', async () => {
  const greedy = defineTool({
    name: 'greedy',
    description: 'Eats its params.',
    input: { type: 'object', properties: { items: { type: 'array' }, size: { type: 'integer', default: 7 } } },
    async run(params, { ask }) {
      const items = params.items as string[]
      const first = items.shift()
      await ask({ message: 'More?' })
      return { first, size: params.size }
    },
  })
  const { url } = await startNode({ tools: [greedy] })
  const message = toolCall('greedy', { items: ['a', 'b'] })
  const asked = await send(url, message)
  await send(url, toolCall('', {}, { taskId: asked.id, metadata: {} }))
  const task = await getTask(url, asked.id)
  expect(task.artifacts?.[0]?.parts).toEqual([{ data: { first: 'a', size: 7 } }])
  for (const each of [asked, task]) {
    expect(each.history?.[0]?.metadata).toEqual(message.metadata)
    expect(each.metadata).toEqual(message.metadata)
  }
})

describe('a tool that never ends', () => {
  test('is stopped by a cancel, and what it still says is dropped', async () => {
    const { tool, stopped } = endless()
    const node = await startNode({ tools: [tool] })
    const { id } = await begin(node.url, toolCall('endless'))
    const { body } = await rpc<Task>(node.url, 'CancelTask', { id })
    expect(body.result?.status.state).toBe('TASK_STATE_CANCELED')
    expect(await stopped).toMatchObject({ code: 'canceled' })
    const task = await getTask(node.url, id)
    expect(toolErrorOf(task)).toMatchObject({ code: 'canceled', tool_name: 'endless' })
    expect(JSON.stringify(task.artifacts)).not.toContain('too late')
    expect((await rpc(node.url, 'CancelTask', { id })).body.error?.code).toBe(-32002)
    expect(node.stats).toEqual({ running: 0, abandoned: 0 })
  })

  test('and ignores its signal is abandoned after the grace period, its result discarded, and counted', async () => {
    const gate = deferred()
    const done = deferred()
    const deaf = defineTool({
      name: 'deaf',
      description: 'Does not listen.',
      input: { type: 'object' },
      async run() {
        await gate.promise
        done.resolve()
        return 'I did it anyway'
      },
    })
    const node = await startNode({ tools: [deaf], server: { cancelGraceMs: 100 } })
    const reader = await sendStream(node.url, toolCall('deaf'))
    const id = (await reader.next())!.data.task!.id
    const started = performance.now()
    // Who cancels again meanwhile waits for the same end.
    const cancels = await Promise.all([1, 2].map(() => rpc<Task>(node.url, 'CancelTask', { id })))
    expect(performance.now() - started).toBeGreaterThan(90)
    expect(cancels.map(({ body }) => body.result?.status.state)).toEqual(['TASK_STATE_CANCELED', 'TASK_STATE_CANCELED'])
    expect(stateOf((await reader.all()).at(-1)!)).toBe('TASK_STATE_CANCELED')
    expect(node.stats).toEqual({ running: 0, abandoned: 1 })
    const before = await getTask(node.url, id)
    gate.resolve()
    await done.promise
    expect(await getTask(node.url, id)).toEqual(before)
    expect(JSON.stringify(before)).not.toContain('anyway')
  })

  test('does not keep the node from stopping', async () => {
    const gate = deferred()
    cleanup(() => gate.resolve())
    const deaf = defineTool({
      name: 'deaf',
      description: 'Does not listen.',
      input: { type: 'object' },
      run: () => gate.promise,
    })
    const node = await startNode({ tools: [deaf], server: { drainMs: 0, cancelGraceMs: 20 } })
    await begin(node.url, toolCall('deaf'))
    await within(node.stop(), 'the node to stop')
    expect(node.stats).toEqual({ running: 0, abandoned: 1 })
  })
})

describe.each(doors)('$name: a request that makes no sense', (door) => {
  const good = toolCall('strict', { count: 1 })
  const isLegacy = door.name.includes('0.3')

  async function errorOf(
    body: string,
    options: CallOptions = {},
  ): Promise<{ code?: number; http?: number; message: string }> {
    const node = await startNode({ tools: [strict], server: { maxBodyBytes: 1_000_000 } })
    const error = door.error(await door.post(node.url, body, options))
    expect(error.message.length).toBeLessThan(500)
    // Whatever came in, the node goes on.
    const task = door.task(await door.post(node.url, door.body({ ...good, messageId: randomUUID() })))
    expect(task.status.state).toBe('TASK_STATE_COMPLETED')
    return error
  }

  const invalid = door.name.startsWith('HTTP') ? { http: 400 } : { code: -32602 }
  const unreadable = door.name.startsWith('HTTP') ? { http: 400 } : { code: -32700 }
  const without = (key: keyof Message): Partial<Message> =>
    Object.fromEntries(Object.entries(good).filter(([name]) => name !== key))

  test.each<[string, unknown, Params?]>([
    ['empty parts', { ...good, parts: [] }],
    ['no parts', without('parts')],
    ['parts that are an object', { ...good, parts: {} }],
    ['no message', undefined],
    ['a message that is a text', 'hello'],
    ['no messageId', without('messageId')],
    ['no role', without('role')],
    ['an unknown role', { ...good, role: 'ROLE_KING' }],
    ['metadata that is an array', { ...good, metadata: [] }],
    ['negative historyLength', { ...good }, { configuration: { historyLength: -1 } }],
    ['a historyLength that is a text', { ...good }, { configuration: { historyLength: 'all' } }],
    [
      'a webhook without url',
      { ...good },
      { configuration: { taskPushNotificationConfig: {}, pushNotificationConfig: {} } },
    ],
  ])('%s', async (_what, message, more) => {
    expect(await errorOf(door.body(message, more))).toMatchObject(invalid)
  })

  test.each<[string, unknown]>([
    ['a part that is empty', [{}]],
    ['a part whose text is a number', [{ text: 7 }]],
    ['a part that is null', [null]],
    ['a part that is a text', ['hello']],
    // A part of 0.3 says which content counts.
    ...(isLegacy ? [] : [['a part with two contents', [{ text: 'a', data: { b: 1 } }]] as [string, unknown]]),
  ])('%s', async (_what, parts) => {
    expect(await errorOf(door.body({ ...good, parts }))).toMatchObject(invalid)
  })

  test('an empty body', async () => {
    // HTTP+JSON takes it for an empty request, as some clients marshal nothing.
    expect(await errorOf('')).toMatchObject(door.name.startsWith('HTTP') ? invalid : unreadable)
  })

  test.each(['{', '{"a":1', 'hello', '{"a":01}', '\u0000', '{"jsonrpc":"2.0","id":1,}'])(
    'malformed JSON: %j',
    async (body) => {
      expect(await errorOf(body)).toMatchObject(unreadable)
    },
  )

  test.each(['[', '{"a":'])('JSON that nests 100,000 deep in %s', async (bracket) => {
    const deep = bracket.repeat(100_000)
    const closed = `${deep}1${(bracket === '[' ? ']' : '}').repeat(100_000)}`
    expect(await errorOf(deep)).toMatchObject(unreadable)
    expect(await errorOf(closed)).toMatchObject(unreadable)
    const { metadata: _metadata, ...message } = good
    const body = door.body({ ...message, metadata: { _tool_call: { name: 'strict', params: 'HERE' } } })
    expect(await errorOf(body.replace('"HERE"', closed))).toMatchObject(unreadable)
  })

  test('a body over the limit is 413, as JSON', async () => {
    const node = await startNode({ tools: [strict], server: { maxBodyBytes: 10_000 } })
    const body = door.body(toolCall('strict', { count: 1, text: 'x'.repeat(1_000_000) }))
    const stream = new Blob([body]).stream()
    const url = door.name.startsWith('HTTP') ? `${node.url}/message:send` : node.url
    const headers = { 'content-type': 'application/json', 'a2a-version': isLegacy ? '0.3' : '1.0' }
    const answers = [
      await request(url, { method: 'POST', body, headers }),
      // Without a Content-Length the node finds out while it reads.
      await request(url, { method: 'POST', body: stream, headers, duplex: 'half' }),
    ]
    for (const answer of answers) {
      expect(answer.status).toBe(413)
      expect(answer.headers.get('content-type')).toMatch(/json/)
      expect(door.error(answer).message).toContain('10000 bytes')
    }
    const task = door.task(await door.post(node.url, door.body(toolCall('strict', { count: 1 }))))
    expect(task.status.state).toBe('TASK_STATE_COMPLETED')
  })

  test.each(['text/plain', 'application/xml', 'multipart/form-data; boundary=x', 'application/jsonp'])(
    'content type %s',
    async (type) => {
      const error = await errorOf(door.body(good), { headers: { 'content-type': type } })
      expect(error).toMatchObject(door.name.startsWith('HTTP') ? { http: 400 } : { code: -32005 })
    },
  )

  test('a compressed body', async () => {
    const error = await errorOf(door.body(good), { headers: { 'content-encoding': 'gzip' } })
    expect(error.message).toContain('compressed')
  })

  test.each(['99.0', '1', '0.2', 'latest', '1.0.x', '1.0, 99.0'])('version %s', async (version) => {
    const error = await errorOf(door.body(good), { headers: { 'a2a-version': version } })
    expect(error).toMatchObject(door.name.startsWith('HTTP') ? { http: 400 } : { code: -32009 })
  })
})

describe('JSON-RPC', () => {
  async function errorFor(body: unknown, version = '1.0'): Promise<{ code: number; message: string; id: unknown }> {
    const { url } = await startNode({ tools: [strict] })
    const answer = await request(url, {
      method: 'POST',
      body: JSON.stringify(body),
      headers: { 'content-type': 'application/json', 'a2a-version': version },
    })
    return { ...rpcError(answer), id: (answer.body as RpcBody).id }
  }

  test.each<[string, unknown, number, unknown]>([
    ['a batch', [{ jsonrpc: '2.0', id: 1, method: 'GetTask', params: { id: 'x' } }], -32600, null],
    ['an empty batch', [], -32600, null],
    ['null', null, -32600, null],
    ['a text', 'hello', -32600, null],
    ['no jsonrpc', { id: 1, method: 'GetTask', params: { id: 'x' } }, -32600, 1],
    ['jsonrpc 1.0', { jsonrpc: '1.0', id: 1, method: 'GetTask' }, -32600, 1],
    ['an id that is an object', { jsonrpc: '2.0', id: {}, method: 'GetTask' }, -32600, null],
    ['no method', { jsonrpc: '2.0', id: 'a' }, -32600, 'a'],
    ['a method that is a number', { jsonrpc: '2.0', id: 'a', method: 7 }, -32600, 'a'],
    ['an unknown method', { jsonrpc: '2.0', id: 1, method: 'DeleteEverything', params: {} }, -32601, 1],
    ['a method of objects', { jsonrpc: '2.0', id: 1, method: 'constructor', params: {} }, -32601, 1],
    ['__proto__ as method', { jsonrpc: '2.0', id: 1, method: '__proto__', params: {} }, -32601, 1],
    ['params that are an array', { jsonrpc: '2.0', id: 1, method: 'GetTask', params: ['x'] }, -32602, 1],
    ['params that are null', { jsonrpc: '2.0', id: 1, method: 'GetTask', params: null }, -32602, 1],
    ['no params', { jsonrpc: '2.0', id: 1, method: 'GetTask' }, -32602, 1],
    ['params without id', { jsonrpc: '2.0', id: 1, method: 'CancelTask', params: {} }, -32602, 1],
    ['an id that is no text', { jsonrpc: '2.0', id: 1, method: 'GetTask', params: { id: 7 } }, -32602, 1],
    [
      'negative historyLength',
      { jsonrpc: '2.0', id: 1, method: 'GetTask', params: { id: 'x', historyLength: -1 } },
      -32602,
      1,
    ],
    ['a page of none', { jsonrpc: '2.0', id: 1, method: 'ListTasks', params: { pageSize: 0 } }, -32602, 1],
    [
      'a page of far too many',
      { jsonrpc: '2.0', id: 1, method: 'ListTasks', params: { pageSize: 100_000 } },
      -32602,
      1,
    ],
    [
      'a page token that never was',
      { jsonrpc: '2.0', id: 1, method: 'ListTasks', params: { pageToken: '&&' } },
      -32602,
      1,
    ],
    ['a state that is none', { jsonrpc: '2.0', id: 1, method: 'ListTasks', params: { status: 'asleep' } }, -32602, 1],
    ['a task that is not there', { jsonrpc: '2.0', id: 1, method: 'GetTask', params: { id: 'x' } }, -32001, 1],
    ['__proto__ as task', { jsonrpc: '2.0', id: 1, method: 'GetTask', params: { id: '__proto__' } }, -32001, 1],
  ])('%s is an error with its code', async (_what, body, code, id) => {
    expect(await errorFor(body)).toMatchObject({ code, id })
  })

  test.each<[string, unknown, number, unknown]>([
    ['a batch', [{ jsonrpc: '2.0', id: 1, method: 'tasks/get', params: { id: 'x' } }], -32600, null],
    ['an unknown method', { jsonrpc: '2.0', id: 1, method: 'tasks/burn', params: {} }, -32601, 1],
    ['a method of 1.0 only', { jsonrpc: '2.0', id: 1, method: 'ListTasks', params: {} }, -32601, 1],
    ['params that are an array', { jsonrpc: '2.0', id: 1, method: 'tasks/get', params: [] }, -32602, 1],
    ['no params', { jsonrpc: '2.0', id: 1, method: 'tasks/get' }, -32602, 1],
    ['params without id', { jsonrpc: '2.0', id: 1, method: 'tasks/get', params: {} }, -32602, 1],
    [
      'negative historyLength',
      { jsonrpc: '2.0', id: 1, method: 'tasks/get', params: { id: 'x', historyLength: -1 } },
      -32602,
      1,
    ],
    ['a task that is not there', { jsonrpc: '2.0', id: 1, method: 'tasks/get', params: { id: 'x' } }, -32001, 1],
  ])('of version 0.3: %s is an error with its code', async (_what, body, code, id) => {
    expect(await errorFor(body, '0.3')).toMatchObject({ code, id })
  })
})

describe('HTTP+JSON', () => {
  test.each([
    ['GET /nothing/here', 404, 'NOT_FOUND'],
    ['POST /nothing', 404, 'NOT_FOUND'],
    ['DELETE /', 404, 'NOT_FOUND'],
    ['GET /../../etc/passwd', 404, 'NOT_FOUND'],
    ['GET /tasks/nobody', 404, 'NOT_FOUND'],
    ['POST /tasks/nobody:cancel', 404, 'NOT_FOUND'],
    ['GET /tasks/nobody:subscribe', 404, 'NOT_FOUND'],
    ['GET /tasks/nobody/pushNotificationConfigs', 404, 'NOT_FOUND'],
    ['GET /tasks/__proto__', 404, 'NOT_FOUND'],
    ['GET /tasks/%00', 400, 'INVALID_ARGUMENT'],
    ['GET /tasks/%zz', 400, 'INVALID_ARGUMENT'],
    ['GET /tasks?pageSize=-1', 400, 'INVALID_ARGUMENT'],
    ['GET /tasks?pageSize=many', 400, 'INVALID_ARGUMENT'],
    ['GET /tasks/x?historyLength=-1', 400, 'INVALID_ARGUMENT'],
    ['GET /tasks/x?historyLength=1&historyLength=2', 400, 'INVALID_ARGUMENT'],
    ['GET /extendedAgentCard', 400, 'FAILED_PRECONDITION'],
  ])('%s is %i %s, as JSON', async (route, code, status) => {
    const { url } = await startNode()
    const answer = await rest<RestErrorBody>(url, route)
    expect(answer.status).toBe(code)
    expect(answer.headers.get('content-type')).toMatch(/json/)
    expect(answer.body.error).toMatchObject({ code, status, message: expect.any(String) })
  })

  test('says in the words of the specification which error it is', async () => {
    const { url } = await startNode()
    const { body } = await rest<RestErrorBody>(url, 'GET /tasks/nobody')
    expect(body.error.details).toMatchObject([
      { '@type': 'type.googleapis.com/google.rpc.ErrorInfo', reason: 'TASK_NOT_FOUND', domain: 'a2a-protocol.org' },
    ])
  })
})

describe('a client that is too slow', () => {
  /** Opens a socket, sends this, and gives all that comes back until the node hangs up. */
  function dial({ url }: Node, text: string): Promise<string> {
    const { hostname, port } = new URL(url)
    const socket = connect(Number(port), hostname)
    cleanup(() => socket.destroy())
    let answer = ''
    socket.setEncoding('utf8').on('data', (more: string) => (answer += more))
    socket.write(text)
    return new Promise((resolve, reject) => socket.on('error', reject).on('close', () => resolve(answer)))
  }

  const server = { headersTimeoutMs: 100, requestTimeoutMs: 300 }

  test('with its headers is cut off', async () => {
    const node = await startNode({ server })
    const answer = await within(dial(node, 'POST / HTTP/1.1\r\nHost: localhost\r\nContent-Ty'), 'the node to hang up')
    expect(answer).toMatch(/^HTTP\/1\.1 4\d\d /)
  })

  test('with its body is cut off', async () => {
    const node = await startNode({ server })
    const head =
      'POST / HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{"jsonrpc"'
    const answer = await within(dial(node, head), 'the node to hang up')
    expect(answer).toMatch(/^HTTP\/1\.1 4\d\d /)
    expect(node.stats.running).toBe(0)
  })

  test('is not one whose tool takes long', async () => {
    const gate = deferred()
    const tool = defineTool({
      name: 'wait',
      description: 'Waits.',
      input: { type: 'object' },
      run: () => gate.promise.then(() => 'done'),
    })
    const node = await startNode({ tools: [tool], server })
    const reader = await sendStream(node.url, toolCall('wait'))
    // By the time that one is cut off every limit has passed for the other, too.
    await within(dial(node, 'GET / HTTP/1.1\r\n'), 'the node to hang up on another')
    gate.resolve()
    expect(stateOf((await reader.all()).at(-1)!)).toBe('TASK_STATE_COMPLETED')
  })
})

test('more tasks than the node may run are turned away, and it says when to come back', async () => {
  const { tool } = endless()
  const node = await startNode({ tools: [tool], server: { maxRunningTasks: 1 } })
  const { id } = await begin(node.url, toolCall('endless'))
  const refused = await rpc(node.url, 'SendMessage', { message: toolCall('endless') })
  expect(refused.status).toBeOneOf([429, 503])
  expect(refused.headers.get('retry-after')).toMatch(/^\d+$/)
  expect(refused.body.error?.message).toMatch(/Try again/)
  const overRest = await rest<RestErrorBody>(node.url, 'POST /message:send', { message: toolCall('endless') })
  expect(overRest.status).toBe(refused.status)
  expect(overRest.headers.get('retry-after')).toMatch(/^\d+$/)
  await rpc(node.url, 'CancelTask', { id })
  const { status } = await begin(node.url, toolCall('endless'))
  expect(status.state).not.toBe('TASK_STATE_REJECTED')
})

test('a call that a tool makes wrongly is a failure of the tool, not a mistake of its caller', async () => {
  const inner = defineTool({
    name: 'inner',
    description: 'Wants a number.',
    input: { type: 'object', properties: { n: { type: 'integer' } }, required: ['n'] },
    run: ({ n }) => n,
  })
  const outer = defineTool({
    name: 'outer',
    description: 'Calls another one without it.',
    input: { type: 'object', properties: { tool: { type: 'string' } }, required: ['tool'] },
    run: async ({ tool }, { tools }) => await tools.call(tool, {}),
  })
  const { url } = await startNode({ tools: [inner, outer] })
  for (const [tool, says] of [
    ['inner', /"n" is missing/],
    ['nobody', /There is no tool "nobody"/],
  ] as const) {
    const task = await send(url, toolCall('outer', { tool }))
    expect(task.status.state).toBe('TASK_STATE_FAILED')
    const error = toolErrorOf(task)
    expect(error).toMatchObject({ code: 'tool_failed', tool_name: 'outer', message: expect.stringMatching(says) })
    expect(error).not.toHaveProperty('issues')
  }
})
