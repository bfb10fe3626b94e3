/** What MCP servers leave behind: no process, no handle, no session, and nothing of one server at another. */
import { createNode, McpServerRegistry, type McpServerOptions } from 'convoke'
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { join } from 'node:path'
import { pathToFileURL } from 'node:url'
import { describe, expect, test } from 'vitest'
import { cleanup, temporaryFolder, until, within } from './support/lifetime.ts'
import { httpServer, isRunning, stdioServer, type TestServer } from './support/mcp-servers.ts'
import { toolsOf } from './support/mcp-tools.ts'
import { failureOf } from './support/failure.ts'

const handles = (): string[] =>
  process.getActiveResourcesInfo().filter((kind) => !/^(FS|Immediate|TickObject)/.test(kind))

describe('processes', () => {
  test('ten rounds of connecting, crashing and connecting again leave nothing', async () => {
    const server = await stdioServer()
    const before = handles().toSorted()
    const exitListeners = process.listenerCount('exit')
    for (let round = 0; round < 10; round++) {
      const { servers, call } = toolsOf({ test: server.options })
      expect(await call('test.echo', { value: round })).toBe(String(round))
      const pid = servers.health()[0]?.pid ?? 0
      process.kill(pid, 'SIGKILL')
      await until(() => servers.health()[0]?.state === 'down', 'the crash to be noticed')
      expect(await call('test.echo', { value: round })).toBe(String(round))
      await servers.close()
    }
    expect(server.pids()).toHaveLength(20)
    expect(server.pids().filter(isRunning)).toEqual([])
    expect(process.listenerCount('exit')).toBe(exitListeners)
    await until(
      () => handles().length <= before.length,
      () => `the handles ${handles().join(', ')} to be ${before.join(', ')}`,
    )
  })

  test('ten rounds over HTTP leave no session and no connection', async () => {
    const server = await httpServer()
    const before = handles().length
    for (let round = 0; round < 10; round++) {
      const { servers, call } = toolsOf({ test: server.options })
      expect(await call('test.echo', { value: round })).toBe(String(round))
      expect(server.sessions()).toBe(1)
      await servers.close()
      expect(server.sessions()).toBe(0)
    }
    await until(
      () => handles().length <= before,
      () => `the handles ${handles().join(', ')} to be gone`,
    )
  })

  test('what a server has started ends with it', async () => {
    const server = await stdioServer()
    const { servers, call } = toolsOf({ test: server.options })
    const grandchild = Number(await call('test.child'))
    cleanup(() => isRunning(grandchild) && process.kill(grandchild, 'SIGKILL'))
    expect(isRunning(grandchild)).toBe(true)
    await servers.close()
    expect(server.pids().filter(isRunning)).toEqual([])
    expect(isRunning(grandchild)).toBe(false)
  })

  test('what a server that crashed has started ends, too', async () => {
    const server = await stdioServer()
    const { servers, call } = toolsOf({ test: server.options })
    const grandchild = Number(await call('test.child'))
    cleanup(() => isRunning(grandchild) && process.kill(grandchild, 'SIGKILL'))
    process.kill(servers.health()[0]?.pid ?? 0, 'SIGKILL')
    await until(() => !isRunning(grandchild), 'the grandchild to be gone')
    // The pipes of the two are closed a moment later.
    await until(() => servers.health()[0]?.state === 'down', 'the crash to be noticed')
    expect(server.pids().filter(isRunning)).toEqual([])
  })

  test('a server that does not end by itself is killed', async () => {
    const server = await stdioServer()
    server.set({ stubborn: true })
    const { servers, call } = toolsOf({ test: server.options })
    await call('test.echo', { value: 1 })
    await servers.close()
    expect(server.notes()).toContain('ignored SIGTERM')
    expect(server.pids().filter(isRunning)).toEqual([])
  })

  test('closing while it connects leaves nothing', async () => {
    const server = await stdioServer()
    const { servers } = toolsOf({ test: server.options })
    const connecting = failureOf(servers.connect('test'))
    await servers.close()
    expect(await connecting).toMatchObject({ code: 'unavailable' })
    expect(server.pids().filter(isRunning)).toEqual([])
  })

  const endings: [string, string][] = [
    ['process.exit', 'process.exit(0)'],
    ['an uncaught error', "setImmediate(() => { throw new Error('oh') })"],
    ['SIGKILL', "process.kill(process.pid, 'SIGKILL')"],
    ['SIGTERM', "process.kill(process.pid, 'SIGTERM')"],
  ]
  test.each(endings)('none outlives its node, which ends by %s', async (ending, code) => {
    const server = await stdioServer()
    // Only what a process does that is killed leaves it to the servers to end: stdin does.
    server.set({ stubborn: !ending.startsWith('SIG') })
    const index = pathToFileURL(join(import.meta.dirname, '../dist/index.js')).href
    const program = `
      import { McpServerRegistry } from ${JSON.stringify(index)}
      const servers = new McpServerRegistry({ servers: { test: ${JSON.stringify(server.options)} } })
      await servers.discover('test')
      ${code}`
    const child = spawn(process.execPath, ['--input-type=module', '-e', program], { stdio: 'ignore' })
    await within(once(child, 'exit'), 'the node to end')
    expect(server.pids()).toHaveLength(1)
    await until(() => server.pids().filter(isRunning).length === 0, 'the server to be gone')
  })

  test('the environment of a server is its own and little more', async () => {
    const server = await stdioServer({ OWN: 'mine' })
    const environment = { PATH: process.env['PATH'], HOME: '/home/ada', LANG: '() { evil; }', NODE_SECRET: 'not yours' }
    const { call } = toolsOf({ test: server.options }, { environment })
    expect(await call('test.who', { variable: 'OWN' })).toBe('mine')
    expect(await call('test.who', { variable: 'HOME' })).toBe('/home/ada')
    expect(await call('test.who', { variable: 'LANG' })).toBe('undefined')
    expect(await call('test.who', { variable: 'NODE_SECRET' })).toBe('undefined')
  })

  test('a program that is not there is told by its name, and not tried again', async () => {
    const { servers, fail } = toolsOf({ test: { command: 'no-such-program-4711', args: ['--token=sesame-4711'] } })
    const failure = await fail('test.echo')
    expect(failure.code).toBe('not_found')
    expect((failure.cause as Error).message).toContain('there is no program "no-such-program-4711"')
    expect(JSON.stringify(servers.health())).not.toContain('sesame')
    expect(servers.health()[0]).toMatchObject({ state: 'down', restarts: 0 })
  })

  test('a call that talks too much ends its server, not its node', async () => {
    const server = await stdioServer()
    const { fail, call } = toolsOf({ test: server.options })
    expect(await fail('test.big', { bytes: 65 * 1024 * 1024 })).toMatchObject({ code: 'network' })
    expect(await call('test.echo', { value: 1 })).toBe('1')
  })
})

describe('two registries with the same server id', () => {
  const both: [string, (who: string) => Promise<{ server: TestServer; options: McpServerOptions }>, string][] = [
    [
      'stdio',
      async (who) => {
        const server = await stdioServer({ ROLE: who })
        return { server, options: server.options }
      },
      'ROLE',
    ],
    [
      'HTTP',
      async (who) => {
        const server = (shared ??= await httpServer())
        return { server, options: { ...server.options, headers: { 'x-role': who } } }
      },
      'x-role',
    ],
  ]
  let shared: Awaited<ReturnType<typeof httpServer>> | undefined
  test.each(both)('never mix their credentials or connections over %s', async (_name, start, variable) => {
    shared = undefined
    const [ada, bob] = [await start('ada'), await start('bob')]
    const [hers, his] = [toolsOf({ same: ada.options }), toolsOf({ same: bob.options })]
    const said = await Promise.all(
      Array.from({ length: 20 }, (_, index) => (index % 2 === 0 ? hers : his).call('same.who', { variable })),
    )
    expect(said).toEqual(Array.from({ length: 20 }, (_, index) => (index % 2 === 0 ? 'ada' : 'bob')))
    await hers.servers.close()
    expect(await his.call('same.who', { variable })).toBe('bob')
  })
})

describe('over HTTP', () => {
  test('credentials go to the configured origin alone, redirects or not, and never into a log', async () => {
    const seen: (string | undefined)[] = []
    const thief = createServer((request, response) => {
      seen.push(request.headers.authorization)
      response.writeHead(500).end()
    })
    thief.listen(0, '127.0.0.1')
    await once(thief, 'listening')
    cleanup(() => {
      thief.closeAllConnections()
      thief.close()
    })
    const elsewhere = `http://127.0.0.1:${(thief.address() as AddressInfo).port}/mcp`
    const server = await httpServer({
      before: (_request, response) => {
        response.writeHead(307, { location: elsewhere }).end()
        return true
      },
    })
    const space = toolsOf({ test: { ...server.options, headers: { authorization: 'Bearer sesame-open-4711' } } })
    const failure = await space.fail('test.echo')
    expect(failure.code).toBe('not_found')
    expect(server.requests[0]?.headers.authorization).toBe('Bearer sesame-open-4711')
    expect(seen).toEqual([])
    expect(JSON.stringify([space.servers.health(), space.log(), failure.message, String(failure.cause)])).not.toContain(
      'sesame',
    )
  })

  test('what a server says back of its credentials is in no error, no cause and no log', async () => {
    const server = await httpServer({
      before: ({ headers }, response) => {
        response.writeHead(500).end(`I know you: ${headers.authorization}`)
        return true
      },
    })
    const space = toolsOf({ test: { ...server.options, headers: { authorization: 'Bearer sesame-open-4711' } } })
    const failure = await space.fail('test.echo')
    const causes: string[] = []
    for (let error: unknown = failure; error instanceof Error; error = error.cause)
      causes.push(error.message, error.stack ?? '')
    expect(causes.length).toBeGreaterThan(2)
    expect(JSON.stringify([space.servers.health(), space.log(), causes])).not.toContain('sesame')
    expect(causes.join(' ')).toContain('I know you: [redacted]')
  })

  test('calls one after the other take few connections', async () => {
    const server = await httpServer()
    const { call } = toolsOf({ test: server.options })
    for (let i = 0; i < 30; i++) expect(await call('test.echo', { value: i })).toBe(String(i))
    expect(server.connections()).toBeLessThan(6)
  })

  test('a refusal is told as what it is', async () => {
    const server = await httpServer()
    server.refuse(401)
    const { servers } = toolsOf({ test: server.options })
    expect(await failureOf(servers.discover('test'))).toMatchObject({ code: 'unauthenticated' })
    server.refuse(403)
    expect(await failureOf(servers.discover('test'))).toMatchObject({ code: 'forbidden' })
    server.refuse(503)
    expect(await failureOf(servers.discover('test'))).toMatchObject({ code: 'unavailable' })
    server.refuse(undefined)
    await servers.discover('test')
    // Neither was taken for an old server.
    expect(server.requests.filter(({ line }) => line === 'GET').length).toBeLessThanOrEqual(1)
  })

  test('private addresses are called only where the URL names one', async () => {
    const server = await httpServer()
    const { servers } = toolsOf({ test: { url: server.url, allowPrivate: false } })
    await expect(servers.discover('test')).rejects.toMatchObject({ code: 'forbidden' })
    expect(server.requests).toEqual([])
  })

  test('an old server is found out by its refusal', async () => {
    const server = await httpServer({ sse: true })
    const { servers, call } = toolsOf({ test: server.options })
    expect(await call('test.echo', { value: 1 })).toBe('1')
    expect(servers.health()[0]).toMatchObject({ transport: 'sse' })
    expect(server.requests[0]?.line).toBe('POST initialize')
  })

  test('a server that never answers is given up', async () => {
    const server = await httpServer({ before: () => true })
    const { servers } = toolsOf({
      test: { ...server.options, connectTimeoutMs: 200 },
      old: { ...server.options, type: 'sse', connectTimeoutMs: 200 },
    })
    await expect(servers.discover('test')).rejects.toMatchObject({ code: 'timeout' })
    await expect(servers.discover('old')).rejects.toMatchObject({ code: 'timeout' })
  })
})

describe('at run time', () => {
  test('servers come and go, with their processes and tools', async () => {
    const server = await stdioServer()
    const { servers, call, fail } = toolsOf({})
    let heard = 0
    servers.onChange(() => heard++)
    servers.register('late', server.options)
    expect(() => servers.register('late', server.options)).toThrow('There is an MCP server "late" already.')
    expect(() => servers.register('no id', server.options)).toThrow('must be 1 to 64 letters')
    expect(() => servers.register('none', {})).toThrow('it needs a command to start, or a url')
    expect(servers.health()).toEqual([
      { id: 'late', state: 'idle', transport: 'stdio', tools: 0, restarts: 0, since: expect.any(Number) as unknown },
    ])
    expect(await call('late.echo', { value: 1 })).toBe('1')
    expect(await servers.deregister('late')).toBe(true)
    expect(await servers.deregister('late')).toBe(false)
    expect(server.pids().filter(isRunning)).toEqual([])
    expect(servers.list()).toEqual([])
    expect(heard).toBe(2)
    expect(await fail('late.echo')).toMatchObject({ code: 'not_found' })
  })

  test('a closed registry starts nothing', async () => {
    const server = await stdioServer()
    const servers = new McpServerRegistry({ servers: { test: server.options } })
    await servers.close()
    await expect(servers.connect('test')).rejects.toMatchObject({ code: 'unavailable' })
    expect(() => servers.register('other', server.options)).toThrow('closed')
    expect(server.pids()).toEqual([])
  })

  test('a server that is switched off is left alone, and says so', async () => {
    const server = await stdioServer()
    const { servers, fail } = toolsOf({
      test: { ...server.options, disabled: true },
      other: { ...server.options, enabled: false },
    })
    expect(servers.services()).toEqual([])
    expect(servers.health().map(({ state }) => state)).toEqual(['disabled', 'disabled'])
    expect((await fail('test.echo')).message).toBe('The MCP server test is disabled in the configuration.')
    await expect(servers.connect('other')).rejects.toThrow('is disabled')
    expect(server.pids()).toEqual([])
  })

  test('a node that was never started ends its servers, too', async () => {
    const folder = await temporaryFolder()
    const server = await stdioServer()
    const node = await createNode({
      agent: { id: 'alice' },
      logLevel: 'silent',
      baseDir: folder,
      mcpServers: { test: server.options },
    })
    expect(await node.tools.call('test.echo', { value: 1 })).toBe('1')
    await node.stop()
    expect(server.pids().filter(isRunning)).toEqual([])
  })
})
