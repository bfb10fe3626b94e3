/** MCP servers as a source of tools: real servers, over real pipes and sockets, and what happens when they misbehave. */
import {
  Content,
  ConvokeError,
  defineTool,
  type Json,
  type JsonObject,
  type McpServerOptions,
  type Node,
  type ToolEvent,
  type ToolValue,
} from 'convoke'
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { describe, expect, test } from 'vitest'
import { cleanup, startNode, temporaryFolder, until, within } from './support/lifetime.ts'
import { httpServer, isRunning, realServer, stdioServer, type TestServer } from './support/mcp-servers.ts'
import { toolsOf, type TestTools } from './support/mcp-tools.ts'
import { freePort } from './support/process.ts'
import { failureOf } from './support/failure.ts'

const partsOf = (value: ToolValue): readonly JsonObject[] => {
  expect(value).toBeInstanceOf(Content)
  return (value as Content).parts as unknown as readonly JsonObject[]
}

const pidOf = ({ servers }: TestTools, id = 'test'): number => {
  const pid = servers.health().find((each) => each.id === id)?.pid
  return pid ?? expect.fail('No process runs.')
}

const healthOf = ({ servers }: TestTools, id = 'test') => servers.health().find((each) => each.id === id)

/** server-everything behind a URL; gone when the test is over. */
async function everythingAt(mode: 'streamableHttp' | 'sse'): Promise<string> {
  const port = await freePort()
  const { command = '', args = [] } = realServer('everything', mode)
  const child = spawn(command, args.map(String), {
    env: { ...process.env, PORT: String(port) },
    stdio: ['ignore', 'pipe', 'pipe'],
  })
  const exited = once(child, 'exit')
  cleanup(async () => {
    child.kill('SIGKILL')
    await exited
  })
  let said = ''
  for (const pipe of [child.stdout, child.stderr]) pipe.setEncoding('utf8').on('data', (text: string) => (said += text))
  await until(
    () => /listening|running on port/i.test(said),
    () => `server-everything to listen; it said ${said}`,
  )
  return `http://127.0.0.1:${port}/${mode === 'sse' ? 'sse' : 'mcp'}`
}

describe('server-everything', () => {
  const transports: [string, () => Promise<McpServerOptions>, string][] = [
    ['stdio', async () => realServer('everything'), 'stdio'],
    ['streamable HTTP', async () => ({ url: await everythingAt('streamableHttp') }), 'http'],
    ['the old SSE', async () => ({ url: await everythingAt('sse') }), 'sse'],
  ]
  test.each(transports)('works over %s', async (_name, options, transport) => {
    const space = toolsOf({ every: await options() })
    const { call, fail } = space
    expect(await call('every.echo', { message: 'hello' })).toBe('Echo: hello')
    expect(healthOf(space, 'every')).toMatchObject({ state: 'up', transport, serverInfo: { version: '2.0.0' } })
    expect(await call('every.get-structured-content', { location: 'New York' })).toEqual({
      temperature: 33,
      conditions: 'Cloudy',
      humidity: 82,
    })
    const image = partsOf(await call('every.get-tiny-image'))
    expect(image[1]).toMatchObject({ mediaType: 'image/png', metadata: { _mcp: { type: 'image' } } })
    expect(
      Buffer.from(image[1]?.['raw'] as string, 'base64')
        .subarray(1, 4)
        .toString(),
    ).toBe('PNG')
    const links = partsOf(await call('every.get-resource-links', { count: 2 }))
    expect(links[1]).toMatchObject({ url: expect.stringMatching(/^demo:/) as unknown, filename: 'Blob Resource 1' })
    const resource = partsOf(await call('every.get-resource-reference', { resourceType: 'Text', resourceId: 1 }))
    expect(resource[1]).toMatchObject({
      text: expect.stringContaining('plaintext') as unknown,
      mediaType: 'text/plain',
      metadata: { _mcp: { type: 'resource', resource: { uri: 'demo://resource/dynamic/text/1' } } },
    })
    expect(await fail('every.get-sum', { a: 1 })).toMatchObject({ code: 'invalid_params' })
    expect(await fail('every.get-resource-reference', { resourceType: 'Text', resourceId: -1 })).toMatchObject({
      code: 'tool_failed',
    })

    const events: ToolEvent[] = []
    for await (const event of space.tools.stream('every.trigger-long-running-operation', { duration: 0.4, steps: 2 }))
      events.push(event)
    expect(events[0]).toMatchObject({ type: 'progress', progress: 1, total: 2 })
    expect(events.at(-1)).toMatchObject({ type: 'result', result: expect.stringContaining('completed') as unknown })
  })

  test('asks the caller, over stdio', async () => {
    const { call } = toolsOf({ every: realServer('everything') })
    const asked: unknown[] = []
    const answer = await call(
      'every.trigger-elicitation-request',
      {},
      {
        ask: async (question) => {
          asked.push(question)
          return { name: 'Ada', check: true }
        },
      },
    )
    expect(asked).toHaveLength(1)
    expect(JSON.stringify(answer)).toContain('Ada')
  })
})

test('server-filesystem reads and writes', async () => {
  const folder = await temporaryFolder()
  const { call, fail } = toolsOf({ files: realServer('filesystem', folder) })
  await call('files.write_file', { path: join(folder, 'a.txt'), content: 'Hello\n' })
  expect(await readFile(join(folder, 'a.txt'), 'utf8')).toBe('Hello\n')
  expect(await call('files.read_text_file', { path: join(folder, 'a.txt') })).toEqual({ content: 'Hello\n' })
  expect(await fail('files.read_text_file', { path: '/etc/hostname' })).toMatchObject({
    code: 'tool_failed',
    message: expect.stringContaining('Access denied') as unknown,
  })
})

test('server-memory remembers', async () => {
  const folder = await temporaryFolder()
  const { call } = toolsOf({
    memory: { ...realServer('memory'), env: { MEMORY_FILE_PATH: join(folder, 'memory.jsonl') } },
  })
  const entities = [{ name: 'Ada', entityType: 'person', observations: ['writes programs'] }]
  await call('memory.create_entities', { entities })
  expect(await call('memory.search_nodes', { query: 'Ada' })).toMatchObject({ entities })
})

test("a node has its MCP servers' tools, and ends them with itself", async () => {
  const server = await stdioServer()
  const node: Node = await startNode({ mcpServers: { test: server.options, broken: {} } })
  expect(node.warnings).toEqual(['The MCP server broken is left out: it needs a command to start, or a url.'])
  expect(await node.tools.call('test.echo', { value: 1 })).toBe('1')
  expect(node.mcpServers.health()).toMatchObject([{ id: 'test', state: 'up' }])
  expect(node.card()['skills']).toEqual([])
  const [pid = 0] = server.pids()
  expect(isRunning(pid)).toBe(true)
  await node.stop()
  expect(isRunning(pid)).toBe(false)
})

test("a question of a peer's MCP server reaches the caller through the peer, and so does a refusal", async () => {
  const server = await stdioServer()
  const asking = defineTool({
    name: 'ask',
    description: 'Asks by way of an MCP server.',
    input: { type: 'object', properties: {} },
    run: (_params, context) => context.tools.call('test.ask'),
  })
  const bob = await startNode({ agent: { id: 'bob' }, mcpServers: { test: server.options }, tools: [asking] })
  const alice = await startNode({ peers: { bob: { url: bob.url } } })
  const answered = await alice.tools.call('bob.ask', {}, { ask: async () => ({ colour: 'red' }) })
  expect(answered).toBe('{"action":"accept","content":{"colour":"red"}}')
  const refuse = { ask: () => Promise.reject(new ConvokeError('rejected', 'I would rather not.')) }
  expect(await alice.tools.call('bob.ask', {}, refuse)).toBe('{"action":"decline"}')
})

describe('listing', () => {
  test('pages are put together', async () => {
    const server = await stdioServer()
    server.set({ pages: 5 })
    const { servers } = toolsOf({ test: server.options })
    await servers.discover('test')
    expect(servers.list().map(({ name }) => name)).toContain('test.shout')
    expect(new Set(servers.list()).size).toBe(15)
    expect(server.count('list')).toBe(5)
  })

  test('pages in a circle are a failure, not a life', async () => {
    const server = await stdioServer()
    server.set({ circle: true })
    const { servers } = toolsOf({ test: server.options })
    expect(await failureOf(servers.discover('test'))).toMatchObject({ code: 'peer_failed' })
    expect(server.count('list')).toBe(2)
  })

  test('a tool that runs as a task only is left out', async () => {
    const { servers } = toolsOf({ every: realServer('everything') })
    await servers.discover('every')
    expect(servers.status('every').problems).toEqual([
      { name: 'simulate-research-query', reason: expect.stringContaining('task') as unknown },
    ])
  })

  const badTools: [string, Record<string, unknown>, RegExp][] = [
    ['an input schema that is no object', { inputSchema: { type: 'string' } }, /input schema .* must be "object"/],
    ['no input schema', {}, /input schema/],
    [
      'a schema with an unknown type',
      { inputSchema: { type: 'object', properties: { a: { type: 'strnig' } } } },
      /strnig/,
    ],
    [
      'an output schema that does not compile',
      { inputSchema: { type: 'object' }, outputSchema: { $ref: '#/nowhere' } },
      /output schema/,
    ],
    [
      'a schema that only the compiler refuses',
      {
        inputSchema: { type: 'object', properties: { a: { $id: 'inner', type: 'string' }, b: { $ref: '#/nowhere' } } },
      },
      /input schema/,
    ],
  ]
  test.each(badTools)('a tool with %s is left out alone', async (_name, parts, reason) => {
    const server = await stdioServer()
    server.set({ tools: [{ name: 'bad', ...parts }] })
    const { servers, call, fail, log } = toolsOf({ test: server.options })
    const failure = await fail('test.bad')
    expect(failure).toMatchObject({ code: 'not_found' })
    expect(failure.message).toMatch(reason)
    expect(await call('test.echo', { value: 1 })).toBe('1')
    expect(servers.status('test')).toMatchObject({ state: 'ok', tools: 15 })
    expect(servers.status('test').problems).toEqual([{ name: 'bad', reason: expect.stringMatching(reason) as unknown }])
    expect(servers.list().map(({ name }) => name)).not.toContain('test.bad')
    expect(log()).toMatch(/test\.bad.* cannot be used/)
  })

  test('names that are none, and things that are no tools, spoil nothing', async () => {
    const server = await stdioServer()
    const inputSchema = { type: 'object' }
    const tools = [
      { name: 'a\u200bb', inputSchema },
      { name: '', inputSchema },
      { inputSchema },
      7,
      null,
      { name: 'echo', inputSchema },
      { name: 'with.dots and spaces', inputSchema },
    ]
    server.set({ tools })
    const { servers, call } = toolsOf({ test: server.options })
    expect(await call('test.with.dots and spaces')).toBe('with.dots and spaces')
    expect(servers.status('test')).toMatchObject({ tools: 16 })
    expect(servers.status('test').problems?.map(({ name }) => name)).toEqual([
      '#16',
      '#17',
      '#18',
      '#19',
      '#20',
      'echo',
    ])
  })

  test('what people do not see is taken out of descriptions, titles and schemas; hints become traits', async () => {
    const server = await stdioServer()
    server.set({
      only: true,
      tools: [
        {
          name: 'a',
          title: 'The \u202eTool',
          description: 'Does\u200b it.\u0007',
          inputSchema: {
            type: 'object',
            properties: {
              description: { type: 'string', description: 'Say\u{E0041} it.', default: 'kept\u200b' },
              choice: { enum: ['a\u200b'] },
            },
          },
          annotations: { readOnlyHint: true, idempotentHint: true, destructiveHint: false, openWorldHint: true },
        },
      ],
    })
    const { tools } = toolsOf({ test: server.options })
    expect(await tools.resolve('test.a')).toMatchObject({
      description: 'The Tool: Does it.',
      input: {
        type: 'object',
        properties: {
          description: { type: 'string', description: 'Say it.', default: 'kept\u200b' },
          choice: { enum: ['a\u200b'] },
        },
      },
      traits: { readOnly: true, idempotent: true, tags: ['openWorld'], published: false },
    })
  })

  test('a change that the server tells is listed again, once for a burst', async () => {
    const server = await stdioServer()
    const { servers, tools, call } = toolsOf({ test: server.options })
    const echo = await tools.resolve('test.echo')
    const { revision } = servers
    let heard = 0
    servers.onChange(() => heard++)
    server.set({ tools: [{ name: 'late', inputSchema: { type: 'object' } }] })
    await Promise.all(Array.from({ length: 10 }, () => call('test.notify')))
    await until(() => servers.list().some(({ name }) => name === 'test.late'), 'the new tool')
    expect(heard).toBe(1)
    expect(servers.revision).toBe(revision + 1)
    expect(await tools.resolve('test.echo')).toBe(echo)
    // One for the lookup; the burst may fall into two.
    expect(server.count('list')).toBeLessThanOrEqual(3)
  })

  test('only the wanted tools are taken', async () => {
    const server = await stdioServer()
    const { servers, fail } = toolsOf({
      some: { ...server.options, includeTools: ['echo', 'fail', 'hold'], disabledTools: ['fail'] },
      all: { ...server.options, tools: ['*'], excludeTools: ['echo'] },
    })
    await Promise.all([servers.discover('some'), servers.discover('all')])
    expect(
      servers
        .list()
        .filter(({ name }) => name.startsWith('some.'))
        .map(({ name }) => name),
    ).toEqual(['some.echo', 'some.hold'])
    expect(servers.status('all').tools).toBe(14)
    expect((await fail('all.echo')).message).toContain('left out by the configuration')
  })
})

type Start = () => Promise<TestServer>

const withSessions: [string, Start][] = [
  ['stdio', () => stdioServer()],
  ['streamable HTTP', () => httpServer()],
  [
    'the old SSE',
    async () => {
      const server = await httpServer({ sse: true })
      return { ...server, options: { ...server.options, type: 'sse' } }
    },
  ],
]
const transports: [string, Start][] = [
  ...withSessions,
  ['streamable HTTP without sessions', () => httpServer({ stateless: true })],
]

/** What a call does is the same over each transport. */
describe.each(transports)('a call over %s', (_name, start) => {
  test('tells its progress', async () => {
    const server = await start()
    const { tools, call } = toolsOf({ test: server.options })
    const events: ToolEvent[] = []
    for await (const event of tools.stream('test.steps', { n: 3 })) events.push(event)
    expect(server.notes()).not.toContain('steps for nobody')
    expect(events.at(-1)).toEqual({ type: 'result', result: 'done' })
    const last = events.findLast(({ type }) => type === 'progress')
    expect(last).toEqual({ type: 'progress', progress: 3, total: 3, message: 'step 3' })
    // Where nobody takes progress the server is not asked for it.
    expect(await call('test.steps', { n: 3 })).toBe('done')
    expect(server.notes()).toContain('steps for nobody')
  })

  test('fails as the server says', async () => {
    const server = await start()
    const { fail } = toolsOf({ test: server.options })
    expect(await fail('test.fail', { text: 'No such colour.' })).toMatchObject({
      code: 'tool_failed',
      message: 'No such colour.',
      retryable: false,
    })
    expect(await fail('test.fail', { how: 'params' })).toMatchObject({
      code: 'invalid_params',
      message: 'That will not do.',
    })
    expect(await fail('test.fail', { how: 'internal' })).toMatchObject({ code: 'tool_failed', message: 'It broke.' })
    const lists = server.count('list')
    expect(await fail('test.fail', { how: 'unknown' })).toMatchObject({ code: 'not_found' })
    await until(() => server.count('list') > lists, 'the tools to be listed again')
  })

  test('brings large results, many at once', async () => {
    const server = await start()
    const { call } = toolsOf({ test: server.options })
    const bytes = 3_000_000
    const results = await Promise.all(Array.from({ length: 4 }, () => call('test.big', { bytes })))
    expect(results.map((result) => (result as string).length)).toEqual([bytes, bytes, bytes, bytes])
  })
})

/** Without a session no second request finds the call that it is about. */
describe.each(withSessions)('a call over %s, within its session,', (_name, start) => {
  test('is cancelled at the server, and ends at once', async () => {
    const server = await start()
    const { fail, call } = toolsOf({ test: server.options })
    const stop = new AbortController()
    const failing = fail('test.hold', {}, { signal: stop.signal })
    await server.heard('holding hold')
    stop.abort()
    expect(await within(failing, 'the end of the call')).toMatchObject({ code: 'canceled' })
    await server.heard('cancelled hold')
    expect(await call('test.echo', { value: [1] })).toBe('[1]')
  })

  test('ends at its deadline, and the server hears of it', async () => {
    const server = await start()
    const { fail } = toolsOf({ test: { ...server.options, timeoutMs: 300 } })
    expect(await fail('test.hold')).toMatchObject({ code: 'timeout' })
    await server.heard('cancelled hold')
  })

  test('asks its own caller', async () => {
    const server = await start()
    const { call } = toolsOf({ test: server.options })
    const asked: unknown[] = []
    const answer = (given: Json) => ({
      ask: async (question: unknown) => {
        asked.push(question)
        return given
      },
    })
    expect(await call('test.ask', {}, answer({ colour: 'red' }))).toBe('{"action":"accept","content":{"colour":"red"}}')
    expect(asked).toEqual([
      {
        message: 'Which colour?',
        schema: {
          type: 'object',
          properties: { colour: { type: 'string', description: 'Any colour.' } },
          required: ['colour'],
        },
      },
    ])
    expect(await call('test.ask', {}, answer({ action: 'decline' }))).toBe('{"action":"decline"}')
    const refuse = { ask: () => Promise.reject(new ConvokeError('rejected', 'I would rather not.')) }
    expect(await call('test.ask', {}, refuse)).toBe('{"action":"decline"}')
    // Nobody can be asked.
    expect(await call('test.ask')).toBe('{"action":"cancel"}')
    const visit = await call('test.ask', { url: 'https://example.com/sign-in' }, answer('done'))
    expect(visit).toBe('{"action":"accept"}')
    expect(JSON.stringify(asked.at(-1))).toContain('https://example.com/sign-in')
  })
})

describe('questions with several calls under way', () => {
  test('over streamable HTTP each reaches its own caller', async () => {
    const server = await httpServer()
    const { call } = toolsOf({ test: server.options })
    const colours = ['red', 'green', 'blue', 'black']
    const answers = await Promise.all(
      colours.map((colour) =>
        call(
          'test.ask',
          { message: colour },
          {
            ask: async ({ message }) => ({ colour: `${message} for ${colour}` }),
          },
        ),
      ),
    )
    expect(answers).toEqual(
      colours.map((colour) => `{"action":"accept","content":{"colour":"${colour} for ${colour}"}}`),
    )
  })

  test('on a pipe one waits until the other calls have ended, and new calls wait behind it', async () => {
    const server = await stdioServer()
    const { call, tools, log } = toolsOf({ test: server.options })
    await tools.resolve('test.ask')
    const slow = call('test.later', { ms: 500 })
    let answered = 0
    const answer = async () => {
      answered = server.count('answered later')
      return { colour: 'red' }
    }
    const asking = call('test.ask', {}, { ask: answer })
    await until(() => log().includes('waits until it is clear whose it is'), 'the question to wait')
    expect(await call('test.echo', { value: 1 })).toBe('1')
    expect(await asking).toBe('{"action":"accept","content":{"colour":"red"}}')
    expect(await slow).toBe('now')
    expect(answered).toBe(1)
    expect(server.notes().indexOf('call echo')).toBeGreaterThan(server.notes().indexOf('answered later'))
  })

  test('on a pipe two that ask at once never get the question of the other', async () => {
    const server = await stdioServer()
    const { call, tools } = toolsOf({ test: server.options })
    await tools.resolve('test.ask')
    const asking = ['ada', 'bob'].map((who) =>
      call('test.ask', { message: who }, { ask: async ({ message }) => ({ colour: `${message} by ${who}` }) }),
    )
    const answers = await Promise.all(asking)
    expect(answers.filter((each) => each === '{"action":"cancel"}')).toHaveLength(1)
    const [answered] = answers.filter((each) => each !== '{"action":"cancel"}')
    expect(answered).toMatch(/"(ada by ada|bob by bob)"/)
  })

  test('on a pipe nobody is asked what another call may have asked', async () => {
    const server = await stdioServer()
    const { call, fail, tools, log } = toolsOf({ test: server.options })
    await tools.resolve('test.ask')
    const ask = () => expect.fail('The wrong one was asked.')
    // One that was stopped a moment ago may still ask.
    const stop = new AbortController()
    const stopped = fail('test.hold', {}, { signal: stop.signal, ask })
    await server.heard('holding hold')
    stop.abort()
    await stopped
    expect(await call('test.ask', {}, { ask })).toBe('{"action":"cancel"}')
    expect(log()).toContain('could belong to several calls')
  })
})

describe('results', () => {
  const text = (said: string) => ({ type: 'text', text: said })
  const cases: [string, unknown, unknown][] = [
    ['a text is a string', { content: [text('a')] }, 'a'],
    ['nothing is null', { content: [] }, null],
    [
      'structured content whose text says the same is an object',
      { content: [text('{"b": 2, "a": 1}'), text('Two numbers.')], structuredContent: { a: 1, b: 2 } },
      { a: 1, b: 2 },
    ],
    ['structured content without words is an object', { content: [], structuredContent: { a: 1 } }, { a: 1 }],
  ]
  test.each(cases)('%s', async (_name, result, value) => {
    const server = await stdioServer()
    const { call } = toolsOf({ test: server.options })
    expect(await call('test.result', { result })).toEqual(value)
  })

  test('a tool with an output schema and without structured content gave an invalid result', async () => {
    const server = await stdioServer()
    const { fail, call } = toolsOf({ test: server.options })
    expect(await call('test.typed', { result: { content: [], structuredContent: { n: 1 } } })).toEqual({ n: 1 })
    expect(await fail('test.typed', { result: { content: [text('one')] } })).toMatchObject({ code: 'invalid_result' })
  })
})

describe('a server that is gone', () => {
  test('fails the call under way, and the next one starts it again', async () => {
    const server = await stdioServer()
    const space = toolsOf({ test: server.options })
    const holding = space.fail('test.hold')
    const safe = space.fail('test.hold_readonly')
    await Promise.all([server.heard('holding hold'), server.heard('holding hold_readonly')])
    const first = pidOf(space)
    process.kill(first, 'SIGKILL')
    const failure = await within(holding, 'the call to fail')
    expect(failure).toMatchObject({ code: 'network', retryable: false })
    expect(failure.message).toContain('was ended by SIGKILL')
    // Only what may run twice is worth another try.
    expect(await safe).toMatchObject({ code: 'network', retryable: true })
    expect(healthOf(space)).toMatchObject({ state: 'down', restarts: 0, lastError: failure.message })
    expect(await space.call('test.echo', { value: 1 })).toBe('1')
    expect(healthOf(space)).toMatchObject({ state: 'up', restarts: 1 })
    expect(healthOf(space)).not.toHaveProperty('lastError')
    expect(pidOf(space)).not.toBe(first)
    // Another process may have other tools.
    await until(() => server.count('list') === 2, 'the tools to be listed again')
  })

  test('again and again is left alone for a while', async () => {
    const server = await stdioServer()
    const space = toolsOf({ test: server.options })
    for (let i = 0; i < 11; i++) {
      await space.call('test.echo', { value: i })
      process.kill(pidOf(space), 'SIGKILL')
      await until(() => healthOf(space)?.state === 'down', 'the server to be down')
    }
    const failure = await space.fail('test.echo', { value: 0 })
    expect(failure).toMatchObject({ code: 'unavailable', retryable: true })
    expect(failure.retryAfterMs).toBeLessThanOrEqual(60_000)
    expect(server.pids()).toHaveLength(11)
  })

  test('that leaves by itself says how', async () => {
    const server = await stdioServer()
    const { fail } = toolsOf({ test: server.options })
    expect((await fail('test.leave')).message).toMatch(/ended with exit code 3 .*before it answered/)
  })

  test('that dies as soon as it starts says why, without its secrets, and is left alone for a while', async () => {
    const server = await stdioServer({ SECRET_KEY: 'hush-hush-4711' })
    const space = toolsOf({ test: server.options })
    await space.tools.resolve('test.echo')
    server.set({ dead: true })
    process.kill(pidOf(space), 'SIGKILL')
    await until(() => healthOf(space)?.state === 'down', 'the server to be down')
    const first = await space.fail('test.echo', { value: 1 })
    expect(first.message).toContain('ended with exit code 7 (it last wrote: cannot go on with [redacted])')
    const starts = server.pids().length
    const second = await space.fail('test.echo', { value: 1 })
    expect(second).toMatchObject({ code: 'unavailable', retryable: true })
    expect(second.retryAfterMs).toBeGreaterThan(0)
    expect(server.pids()).toHaveLength(starts)
    expect(JSON.stringify([space.servers.health(), space.log(), first, second])).not.toContain('hush-hush')
    // Who says so explicitly does not wait.
    server.set({})
    await space.servers.connect('test')
    expect(await space.call('test.echo', { value: 1 })).toBe('1')
  })

  test('says why without the secrets of its envFile', async () => {
    const folder = await temporaryFolder()
    await writeFile(join(folder, '.env'), 'SECRET_KEY=hush-hush-4711\n')
    const server = await stdioServer()
    server.set({ dead: true })
    const { servers, log } = toolsOf({ test: { ...server.options, envFile: '.env' } }, { baseDir: folder })
    const failure = await failureOf(servers.discover('test'))
    expect(failure.message).toContain('it last wrote: cannot go on with [redacted]')
    expect(JSON.stringify([servers.health(), log(), failure])).not.toContain('hush-hush')
  })

  test('that forgot the session gets a new one, and the call goes out once more', async () => {
    const server = await httpServer()
    const space = toolsOf({ test: server.options })
    await space.call('test.echo', { value: 1 })
    server.forget()
    expect(await space.fail('test.hold_readonly', {}, { timeoutMs: 300 })).toMatchObject({ code: 'timeout' })
    expect(server.count('call hold_readonly')).toBe(1)
    expect(healthOf(space)).toMatchObject({ state: 'up', restarts: 1 })
  })

  test('in the middle of a call over HTTP fails it', async () => {
    const server = await httpServer()
    const space = toolsOf({ test: server.options })
    const holding = space.fail('test.hold')
    await server.heard('holding hold')
    server.cut()
    expect(await within(holding, 'the call to fail')).toMatchObject({ code: 'network', retryable: false })
    expect(await space.call('test.echo', { value: 1 })).toBe('1')
  })

  test('in the middle of a call over SSE fails it', async () => {
    const server = await httpServer({ sse: true })
    const space = toolsOf({ test: { ...server.options, type: 'sse' } })
    const holding = space.fail('test.hold')
    await server.heard('holding hold')
    server.cut()
    expect(await within(holding, 'the call to fail')).toMatchObject({ code: 'network', retryable: false })
    expect(await space.call('test.echo', { value: 1 })).toBe('1')
    expect(healthOf(space)).toMatchObject({ restarts: 1 })
  })

  test('is found out by a ping, and ends when nobody calls it if that is wanted', async () => {
    const [server, idle] = [await stdioServer(), await stdioServer()]
    const space = toolsOf({
      test: { ...server.options, pingIntervalMs: 20, connectTimeoutMs: 1_500 },
      idle: { ...idle.options, idleMs: 50 },
    })
    await space.call('idle.echo', { value: 1 })
    await until(() => healthOf(space, 'idle')?.state === 'idle', 'the idle server to be ended')
    const [pid = 0] = idle.pids()
    await until(() => !isRunning(pid), 'its process to be gone')
    expect(await space.call('idle.echo', { value: 1 })).toBe('1')

    await space.call('test.echo', { value: 1 })
    const first = pidOf(space)
    process.kill(first, 'SIGSTOP')
    await until(() => healthOf(space)?.state === 'down', 'the silent server to be given up')
    expect(await space.call('test.echo', { value: 1 })).toBe('1')
    expect(pidOf(space)).not.toBe(first)
    await until(() => !isRunning(first), 'the silent server to be gone')
  })
})
