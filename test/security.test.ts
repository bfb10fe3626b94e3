import { createNode, defineTool, type AuthOptions, type JsonObject, type Message, type Node, type Task } from 'convoke'
import { createHash, randomUUID } from 'node:crypto'
import { get as httpGet, request as httpRequest } from 'node:http'
import { describe, expect, test } from 'vitest'
import { clients } from './support/clients.ts'
import { startNode } from './support/lifetime.ts'
import {
  request,
  resultOf,
  rest,
  rpc,
  say,
  send,
  stream,
  taskOf,
  toolCall,
  toolErrorOf,
  wordsOf,
  type Answer,
  type CallOptions,
  type RestErrorBody,
  type RpcBody,
  type SendResult,
} from './support/wire.ts'

const sha256 = (token: string): string => createHash('sha256').update(token).digest('hex')
const tokens = {
  admin: 'token-of-admin',
  bob: 'token-of-bob',
  carol: 'token-of-carol',
  dave: 'token-of-dave',
}
const auth: AuthOptions = {
  tokens: [
    { id: 'admin', sha256: sha256(tokens.admin) },
    { id: 'bob', sha256: sha256(tokens.bob), scopes: ['tool:read_*', 'tool:echo'] },
    { id: 'carol', sha256: sha256(tokens.carol), scopes: ['message'] },
    { id: 'dave', sha256: sha256(tokens.dave) },
  ],
}
const as = (who: keyof typeof tokens): CallOptions => ({ headers: { authorization: `Bearer ${tokens[who]}` } })

const named = (name: string) =>
  defineTool({ name, description: `It is ${name}.`, input: { type: 'object' }, run: () => name })
const asking = defineTool({
  name: 'echo',
  description: 'Asks, and gives the answer back.',
  input: { type: 'object' },
  run: (_params, { ask }) => ask({ message: 'What?' }),
})
const whoami = defineTool({
  name: 'read_whoami',
  description: 'Says who calls.',
  input: { type: 'object' },
  run: (_params, { caller }) => ({ id: caller.id, scopes: [...caller.scopes] }),
})
const tools = [named('read_file'), named('write_file'), asking, whoami]

function guarded(): Promise<Node> {
  return startNode({ tools, server: { auth }, onMessage: () => 'Hello.' })
}

describe('without credentials', () => {
  const legacy = { kind: 'message', messageId: 'm', role: 'user', parts: [{ kind: 'text', text: 'x' }] }
  const doors: [string, (url: string, options: CallOptions) => Promise<Answer>][] = [
    ['JSON-RPC', (url, options) => rpc(url, 'SendMessage', { message: toolCall('read_file') }, options)],
    [
      'a JSON-RPC stream',
      (url, options) => rpc(url, 'SendStreamingMessage', { message: toolCall('read_file') }, options),
    ],
    ['an unknown method', (url, options) => rpc(url, 'Nonsense', {}, options)],
    ['a body that is no JSON', (url, { headers = {} }) => request(url, { method: 'POST', body: '{', headers })],
    ['HTTP+JSON', (url, options) => rest(url, 'POST /message:send', { message: toolCall('read_file') }, options)],
    ['an HTTP+JSON read', (url, options) => rest(url, 'GET /tasks/x', undefined, options)],
    ['an HTTP+JSON list', (url, options) => rest(url, 'GET /tasks', undefined, options)],
    ['the extended card', (url, options) => rest(url, 'GET /extendedAgentCard', undefined, options)],
    ['JSON-RPC 0.3', (url, options) => rpc(url, 'message/send', { message: legacy }, { version: '0.3', ...options })],
    [
      'HTTP+JSON 0.3',
      (url, options) => rest(url, 'POST /v1/message:send', { message: legacy }, { version: '0.3', ...options }),
    ],
    [
      'an HTTP+JSON 0.3 read',
      (url, options) => rest(url, 'GET /v1/tasks/x', undefined, { version: '0.3', ...options }),
    ],
  ]

  test.each(doors)('%s is 401 and says which credentials are wanted', async (_name, call) => {
    const node = await guarded()
    const missing = await call(node.url, {})
    expect(missing.status).toBe(401)
    expect(missing.headers.get('www-authenticate')).toBe('Bearer realm="convoke"')
    expect(missing.headers.get('content-type')).toMatch(/json/)
    const wrong = await call(node.url, { headers: { authorization: 'Bearer nonsense' } })
    expect(wrong.status).toBe(401)
    expect(wrong.headers.get('www-authenticate')).toBe('Bearer realm="convoke", error="invalid_token"')
    expect(wrong.text).not.toContain('nonsense')
    expect(node.stats.running).toBe(0)
  })

  test('the public card, the health and the readiness are there', async () => {
    const { url } = await guarded()
    for (const path of ['/.well-known/agent-card.json', '/healthz', '/readyz', '/tools']) {
      expect((await request(url + path)).status).toBe(200)
    }
  })

  test('an API key works as a bearer token does', async () => {
    const { url } = await guarded()
    for (const headers of [{ 'x-api-key': tokens.bob }, { authorization: `bearer ${tokens.bob}` }]) {
      const task = await send(url, toolCall('read_whoami'), {}, { headers })
      expect(resultOf(task)).toEqual({ id: 'bob', scopes: ['tool:read_*', 'tool:echo'] })
    }
  })
})

test.each(clients)('$name gets in with its token, and reads the card with the schemes', async ({ connect }) => {
  const { url } = await guarded()
  const withToken: typeof fetch = (input, init) => {
    const headers = new Headers(init?.headers)
    headers.set('authorization', `Bearer ${tokens.bob}`)
    return fetch(input, { ...init, headers })
  }
  const client = await connect(url, withToken)
  expect(client.skills).toContain('read_file')
  expect(resultOf(await client.send(toolCall('read_file')))).toBe('read_file')
})

describe('scopes', () => {
  test('allow the tools that they name, and hide the others', async () => {
    const { url } = await guarded()
    expect(resultOf(await send(url, toolCall('read_file'), {}, as('bob')))).toBe('read_file')
    const blur = (task: Task, name: string): string => JSON.stringify(toolErrorOf(task)).replaceAll(name, 'NAME')
    const refused = await send(url, toolCall('write_file'), {}, as('bob'))
    const unknown = await send(url, toolCall('write_fyle'), {}, as('bob'))
    expect(refused.status.state).toBe('TASK_STATE_REJECTED')
    expect(blur(refused, 'write_file')).toBe(blur(unknown, 'write_fyle'))
    expect(resultOf(await send(url, toolCall('write_file'), {}, as('admin')))).toBe('write_file')
  })

  test('allow messages, or do not', async () => {
    const { url } = await guarded()
    const { body } = await rpc<SendResult>(url, 'SendMessage', { message: say('Hi.') }, as('carol'))
    expect(wordsOf(body.result?.message)).toBe('Hello.')
    const refused = await rpc(url, 'SendMessage', { message: say('Hi.') }, as('bob'))
    expect(refused.status).toBe(403)
    expect(refused.body.error?.code).toBe(-32051)
    const overRest = await rest<RestErrorBody>(url, 'POST /message:send', { message: say('Hi.') }, as('bob'))
    expect(overRest.status).toBe(403)
    expect(overRest.body.error.status).toBe('PERMISSION_DENIED')
    const tool = await send(url, toolCall('read_file'), {}, as('carol'))
    expect(toolErrorOf(tool)).toMatchObject({ code: 'not_found' })
  })

  test('let a caller answer what its tool asks, whether it may send messages or not', async () => {
    const { url } = await guarded()
    const asked = await send(url, toolCall('echo'), {}, as('bob'))
    expect(asked.status.state).toBe('TASK_STATE_INPUT_REQUIRED')
    const done = await send(url, say('This.', { taskId: asked.id }), {}, as('bob'))
    expect(resultOf(done)).toBe('This.')
  })

  test('narrow the extended card to what the caller may call', async () => {
    const { url } = await guarded()
    const skills = async (who: keyof typeof tokens): Promise<string[]> => {
      const answer = await rest<{ skills: { name: string }[] }>(url, 'GET /extendedAgentCard', undefined, as(who))
      const overRpc = await rpc<{ skills: { name: string }[] }>(url, 'GetExtendedAgentCard', {}, as(who))
      expect(overRpc.body.result).toEqual(answer.body)
      return answer.body.skills.map(({ name }) => name)
    }
    expect(await skills('bob')).toEqual(['read_file', 'echo', 'read_whoami'])
    expect(await skills('carol')).toEqual([])
    expect(await skills('admin')).toEqual(['read_file', 'write_file', 'echo', 'read_whoami'])
  })
})

describe("another caller's task", () => {
  /** What differs between any two answers: the ids that were asked for, and the time. */
  function blur({ status, headers, text }: Answer, ...ids: string[]): unknown {
    let blurred = text.replaceAll(/\d{4}-\d\d-\d\dT[\d:.]+Z/g, 'TIME')
    for (const id of ids) blurred = blurred.replaceAll(id, 'ID')
    const own = [...headers].filter(([name]) => name !== 'date')
    return { status, own, blurred }
  }

  const configs: [string, (url: string, id: string, options: CallOptions) => Promise<Answer>][] = [
    ['GetTask', (url, id, options) => rpc(url, 'GetTask', { id }, options)],
    ['CancelTask', (url, id, options) => rpc(url, 'CancelTask', { id }, options)],
    ['SubscribeToTask', (url, id, options) => rpc(url, 'SubscribeToTask', { id }, options)],
    ['SendMessage', (url, id, options) => rpc(url, 'SendMessage', { message: say('I.', { taskId: id }) }, options)],
    [
      'SendStreamingMessage',
      (url, id, options) => rpc(url, 'SendStreamingMessage', { message: say('I.', { taskId: id }) }, options),
    ],
    [
      'CreateTaskPushNotificationConfig',
      (url, id, options) =>
        rpc(url, 'CreateTaskPushNotificationConfig', { taskId: id, url: 'https://a.example' }, options),
    ],
    [
      'GetTaskPushNotificationConfig',
      (url, id, options) => rpc(url, 'GetTaskPushNotificationConfig', { taskId: id, id: 'hook' }, options),
    ],
    [
      'ListTaskPushNotificationConfigs',
      (url, id, options) => rpc(url, 'ListTaskPushNotificationConfigs', { taskId: id }, options),
    ],
    [
      'DeleteTaskPushNotificationConfig',
      (url, id, options) => rpc(url, 'DeleteTaskPushNotificationConfig', { taskId: id, id: 'hook' }, options),
    ],
    ['GET /tasks/ID', (url, id, options) => rest(url, `GET /tasks/${id}`, undefined, options)],
    ['POST /tasks/ID:cancel', (url, id, options) => rest(url, `POST /tasks/${id}:cancel`, undefined, options)],
    ['GET /tasks/ID:subscribe', (url, id, options) => rest(url, `GET /tasks/${id}:subscribe`, undefined, options)],
    [
      'GET /tasks/ID/pushNotificationConfigs',
      (url, id, options) => rest(url, `GET /tasks/${id}/pushNotificationConfigs`, undefined, options),
    ],
    ['tasks/get of 0.3', (url, id, options) => rpc(url, 'tasks/get', { id }, { version: '0.3', ...options })],
    ['tasks/cancel of 0.3', (url, id, options) => rpc(url, 'tasks/cancel', { id }, { version: '0.3', ...options })],
    [
      'tasks/resubscribe of 0.3',
      (url, id, options) => rpc(url, 'tasks/resubscribe', { id }, { version: '0.3', ...options }),
    ],
    [
      'GET /v1/tasks/ID of 0.3',
      (url, id, options) => rest(url, `GET /v1/tasks/${id}`, undefined, { version: '0.3', ...options }),
    ],
  ]

  test.each(configs)('is not there: %s', async (_name, call) => {
    const { url } = await guarded()
    const { id } = await send(url, toolCall('echo'), {}, as('admin'))
    const hook = { taskId: id, id: 'hook', url: 'http://127.0.0.1:9/hook' }
    expect((await rpc(url, 'CreateTaskPushNotificationConfig', hook, as('admin'))).body.error).toBeUndefined()
    const nobody = randomUUID()
    const theirs = await call(url, id, as('dave'))
    const none = await call(url, nobody, as('dave'))
    expect(blur(theirs, id)).toEqual(blur(none, nobody))
    expect(theirs.text).toMatch(/not found/i)
    // And it was left alone.
    const { status } = (await rpc<Task>(url, 'GetTask', { id }, as('admin'))).body.result!
    expect(status.state).toBe('TASK_STATE_INPUT_REQUIRED')
    expect(
      (await rpc<{ configs: unknown[] }>(url, 'ListTaskPushNotificationConfigs', { taskId: id }, as('admin'))).body
        .result?.configs,
    ).toHaveLength(1)
  })

  test('is on nobody else’s list, and its messageId and contextId mean nothing to others', async () => {
    const { url } = await guarded()
    const message: Message = toolCall('read_whoami', {}, { contextId: 'shared' })
    const mine = await send(url, message, {}, as('admin'))
    const list = async (who: keyof typeof tokens): Promise<string[]> => {
      const { body } = await rpc<{ tasks: Task[]; totalSize: number }>(
        url,
        'ListTasks',
        { contextId: 'shared' },
        as(who),
      )
      expect(body.result?.totalSize).toBe(body.result?.tasks.length)
      return body.result!.tasks.map(({ id }) => id)
    }
    expect(await list('dave')).toEqual([])
    const theirs = await send(url, message, {}, as('dave'))
    expect(theirs.id).not.toBe(mine.id)
    expect(resultOf(theirs)).toMatchObject({ id: 'dave' })
    expect(await list('dave')).toEqual([theirs.id])
    expect(await list('admin')).toEqual([mine.id])
    // Nor do the paths of a tenant lead to it.
    expect((await rest(url, `GET /admin/tasks/${mine.id}`, undefined, as('dave'))).status).toBe(404)
    expect((await rpc(url, 'GetTask', { id: mine.id, tenant: '/admin' }, as('dave'))).body.error?.code).toBe(-32001)
  })
})

describe('a node on loopback without auth', () => {
  /** fetch does not let anyone choose a Host header. */
  function withHeaders(
    url: string,
    headers: Record<string, string>,
    body?: string,
  ): Promise<{ status: number; text: string }> {
    return new Promise((resolve, reject) => {
      const req = (body === undefined ? httpGet : httpRequest)(
        url,
        { method: body === undefined ? 'GET' : 'POST', headers },
        (res) => {
          let text = ''
          res.setEncoding('utf8').on('data', (more: string) => (text += more))
          res.on('end', () => resolve({ status: res.statusCode ?? 0, text }))
        },
      )
      req.on('error', reject).end(body)
    })
  }

  const body = JSON.stringify({
    jsonrpc: '2.0',
    id: 1,
    method: 'SendMessage',
    params: { message: toolCall('read_file') },
  })
  const json = { 'content-type': 'application/json', 'a2a-version': '1.0' }

  test.each([
    ['a foreign Host', { host: 'foo.example' }],
    ['a foreign Host with our port', { host: 'foo.example:80' }],
    ['a Host that only looks like ours', { host: '127.0.0.1.evil.example' }],
    ['an address of the network as Host', { host: '192.168.1.5' }],
    ['a foreign Origin', { origin: 'https://evil.example' }],
    ['the Origin of a file', { origin: 'null' }],
  ])('turns %s away at every door', async (_what, headers) => {
    const { url } = await startNode({ tools })
    const answers = [
      await withHeaders(url, { ...json, ...headers }, body),
      await withHeaders(
        `${url}/message:send`,
        { ...json, ...headers },
        JSON.stringify({ message: toolCall('read_file') }),
      ),
      await withHeaders(`${url}/v1/message:send`, { ...json, ...headers, 'a2a-version': '0.3' }, '{}'),
      await withHeaders(`${url}/.well-known/agent-card.json`, headers),
      await withHeaders(`${url}/tasks`, headers),
      await withHeaders(`${url}/tools`, headers),
      await withHeaders(url, headers),
    ]
    for (const { status, text } of answers) {
      expect(status).toBe(403)
      expect(JSON.parse(text)).toMatchObject({ error: { message: expect.stringContaining('allowedHosts') } })
    }
    expect((await rpc<{ tasks: unknown[] }>(url, 'ListTasks', {})).body.result?.tasks).toEqual([])
  })

  test.each([
    { host: 'localhost' },
    { host: 'localhost:4120' },
    { host: '[::1]:1' },
    { origin: 'http://localhost:3000' },
  ])('takes %j', async (headers) => {
    const { url } = await startNode({ tools })
    expect((await withHeaders(url, { ...json, ...headers }, body)).status).toBe(200)
  })

  test('takes the hosts that it is told to', async () => {
    const { url } = await startNode({ tools, server: { allowedHosts: ['alice.example'] } })
    expect((await withHeaders(url, { ...json, host: 'alice.example' }, body)).status).toBe(200)
    expect((await withHeaders(url, { ...json, origin: 'https://alice.example' }, body)).status).toBe(200)
    expect((await withHeaders(url, { ...json, host: 'bob.example' }, body)).status).toBe(403)
  })

  test('has no extended card', async () => {
    const { url } = await startNode({ tools })
    expect((await rpc(url, 'GetExtendedAgentCard', {})).body.error).toMatchObject({ code: expect.any(Number) })
    const card = await rest<{ capabilities: { extendedAgentCard: boolean } }>(url, 'GET /.well-known/agent-card.json')
    expect(card.body.capabilities.extendedAgentCard).toBe(false)
  })
})

describe('a public address', () => {
  test.each(['0.0.0.0', '::', '192.0.2.1', 'alice.example'])(
    '%s without auth is refused with a way on',
    async (host) => {
      const made = createNode({ agent: { id: 'alice' }, server: { host } })
      await expect(made).rejects.toMatchObject({ code: 'config', message: expect.stringContaining('convoke token') })
    },
  )

  test('is served with auth, under whatever Host', async () => {
    const { url } = await startNode({ tools, server: { host: '0.0.0.0', auth } })
    expect(resultOf(await send(url, toolCall('read_file'), {}, as('bob')))).toBe('read_file')
    expect((await rpc(url, 'SendMessage', { message: toolCall('read_file') })).status).toBe(401)
    const foreign = await rpc(
      url,
      'GetTask',
      { id: 'x' },
      { headers: { ...as('bob').headers, origin: 'https://evil.example' } },
    )
    expect(foreign.status).toBe(403)
  })

  test('is served without auth by those who say so', async () => {
    const { url } = await startNode({ tools, server: { host: '0.0.0.0', allowAnonymous: true } })
    expect((await send(url, toolCall('read_file'))).status.state).toBe('TASK_STATE_COMPLETED')
  })
})

describe('the card of a node with auth', () => {
  test('declares the schemes in the words of each version', async () => {
    const { url } = await guarded()
    const card = async (version?: string): Promise<JsonObject> =>
      (
        await request<JsonObject>(
          `${url}/.well-known/agent-card.json`,
          version === undefined ? {} : { headers: { 'a2a-version': version } },
        )
      ).body
    expect(await card('1.0')).toMatchObject({
      capabilities: { extendedAgentCard: true },
      securitySchemes: {
        bearer: { httpAuthSecurityScheme: { scheme: 'Bearer' } },
        apiKey: { apiKeySecurityScheme: { location: 'header', name: 'X-API-Key' } },
      },
      securityRequirements: [{ schemes: { bearer: {} } }, { schemes: { apiKey: {} } }],
    })
    expect(await card('0.3')).toMatchObject({
      supportsAuthenticatedExtendedCard: true,
      securitySchemes: {
        bearer: { type: 'http', scheme: 'bearer' },
        apiKey: { type: 'apiKey', in: 'header', name: 'X-API-Key' },
      },
      security: [{ bearer: [] }, { apiKey: [] }],
    })
    const both = await card()
    expect(both).toMatchObject({
      securitySchemes: { bearer: { type: 'http', httpAuthSecurityScheme: {} } },
      security: [{ bearer: [] }, { apiKey: [] }],
      securityRequirements: [{}, {}],
    })
    expect(JSON.stringify(both)).not.toContain('$case')
  })

  test('of a node without auth says nothing of them', async () => {
    const { url } = await startNode({ tools })
    const { body } = await request<JsonObject>(`${url}/.well-known/agent-card.json`)
    for (const key of ['securitySchemes', 'security', 'securityRequirements']) expect(body).not.toHaveProperty(key)
  })

  test('gives no secret away', async () => {
    const { url } = await guarded()
    const { text } = await request(`${url}/.well-known/agent-card.json`)
    for (const [id, token] of Object.entries(tokens)) {
      expect(text).not.toContain(token)
      expect(text).not.toContain(sha256(token))
      expect(text).not.toContain(id)
    }
  })
})

test('a caller of 0.3 owns the same tasks as under 1.0', async () => {
  const { url } = await guarded()
  const { id } = await send(url, toolCall('read_file'), {}, as('bob'))
  const answer = await rpc<Task>(url, 'tasks/get', { id }, { version: '0.3', ...as('bob') })
  expect(answer.body.result?.id).toBe(id)
  const refused = await rpc(
    url,
    'message/send',
    { message: { kind: 'message', messageId: 'm', role: 'user', parts: [{ kind: 'text', text: 'Hi.' }] } },
    { version: '0.3', ...as('bob') },
  )
  expect(refused.status).toBe(403)
  expect((refused.body as RpcBody).error?.code).toBe(-32051)
})

test('a stream needs credentials, too, and nobody follows it with those of another', async () => {
  const { url } = await guarded()
  const asked = taskOf(await rpc<SendResult>(url, 'SendMessage', { message: toolCall('echo') }, as('admin')))
  const mine = await stream(url, 'SubscribeToTask', { id: asked.id }, as('admin'))
  expect((await mine.next())?.data.task?.id).toBe(asked.id)
  await expect(stream(url, 'SubscribeToTask', { id: asked.id }, as('dave'))).rejects.toThrow(/-32001/)
  await expect(stream(url, 'SubscribeToTask', { id: asked.id })).rejects.toThrow(/401/)
})
