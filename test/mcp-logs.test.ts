/** Logs over MCP: what a server tells reaches the caller that it belongs to, and what a tool tells reaches the host. */
import { LoggingMessageNotificationSchema } from '@modelcontextprotocol/sdk/types.js'
import { defineTool, type ToolEvent, type ToolLogLevel } from 'convoke'
import { describe, expect, test } from 'vitest'
import { startNode, until } from './support/lifetime.ts'
import { connectHost, request } from './support/mcp-host.ts'
import { httpServer, stdioServer } from './support/mcp-servers.ts'
import { toolsOf, type TestTools } from './support/mcp-tools.ts'

async function logsOf({ tools }: TestTools, params: object): Promise<unknown[]> {
  const events: ToolEvent[] = []
  for await (const event of tools.stream('test.shout', params)) events.push(event)
  expect(events.at(-1)).toEqual({ type: 'result', result: 'said' })
  return events.flatMap(({ type, ...event }) => (type === 'log' ? [event] : []))
}

describe('a line of an MCP server', () => {
  test.each([
    ['stdio', () => stdioServer({ SECRET_KEY: 'sesame-opens' })],
    ['the old SSE', () => httpServer({ sse: true })],
  ])('is for the caller of the one call under way, over %s', async (_name, start) => {
    const server = await start()
    const space = toolsOf({ test: server.options })
    expect(await logsOf(space, { text: 'one\u200b' })).toEqual([{ level: 'info', data: 'one', logger: 'shouter' }])
    expect(await logsOf(space, { text: { two: [2, null] }, level: 'alert' })).toEqual([
      { level: 'alert', data: { two: [2, null] }, logger: 'shouter' },
    ])
  })

  test('of less than `info` is not wanted, and servers are told so', async () => {
    const server = await stdioServer()
    const space = toolsOf({ test: server.options })
    expect(await logsOf(space, { text: 'one', level: 'debug' })).toEqual([])
    expect(await logsOf(space, { text: 'two', level: 'info' })).toHaveLength(1)
  })

  test('holds no secret', async () => {
    const server = await stdioServer({ SECRET_KEY: 'sesame-opens' })
    const space = toolsOf({ test: server.options })
    const logs = [
      await logsOf(space, { text: 'key: sesame-opens' }),
      await logsOf(space, { text: { key: 'sesame-opens', list: ['sesame-opens'] } }),
    ]
    expect(JSON.stringify(logs)).not.toContain('sesame')
    expect(logs[1]).toEqual([
      { level: 'info', data: expect.objectContaining({ list: [expect.any(String)] }), logger: 'shouter' },
    ])
  })

  test('is for nobody but the log of the node where several calls are under way on a pipe', async () => {
    const server = await stdioServer()
    const space = toolsOf({ test: server.options })
    const aborter = new AbortController()
    const held = space.tools.tryCall('test.hold', {}, { signal: aborter.signal })
    await server.heard('holding hold')
    expect(await logsOf(space, { text: 'whose is it?' })).toEqual([])
    await until(() => space.log().includes('whose is it?'), 'the line in the log of the node')
    aborter.abort()
    await held
    // The call that was stopped may still have its say.
    expect(await logsOf(space, { text: 'and this?' })).toEqual([])
  })

  test('is for the call whose stream brought it, over HTTP', async () => {
    const server = await httpServer()
    const space = toolsOf({ test: server.options })
    const aborter = new AbortController()
    const held = space.tools.tryCall('test.hold', {}, { signal: aborter.signal })
    await server.heard('holding hold')
    expect(await logsOf(space, { text: 'mine', related: true })).toEqual([{ level: 'info', data: 'mine' }])
    aborter.abort()
    await held
  })
})

describe('a line of a tool', () => {
  const levels: ToolLogLevel[] = ['debug', 'warning', 'emergency']
  const murmur = defineTool({
    name: 'murmur',
    description: 'Logs.',
    input: { type: 'object', properties: {} },
    run(_params, { notice }) {
      for (const level of levels) notice({ level, data: { level } })
      return 'done'
    },
  })

  test('reaches the host of a session that has asked for its level', async () => {
    const node = await startNode({ tools: [murmur] })
    const { client } = await connectHost(node)
    const { client: other } = await connectHost(node)
    const heard: unknown[] = []
    client.setNotificationHandler(LoggingMessageNotificationSchema, ({ params }) => void heard.push(params))
    const elsewhere: unknown[] = []
    other.setNotificationHandler(LoggingMessageNotificationSchema, ({ params }) => void elsewhere.push(params))
    await client.callTool({ name: 'murmur' })
    expect(heard).toEqual(levels.map((level) => ({ level, data: { level } })))
    await client.setLoggingLevel('error')
    await client.callTool({ name: 'murmur' })
    expect(heard.slice(3)).toEqual([{ level: 'emergency', data: { level: 'emergency' } }])
    expect(elsewhere).toEqual([])
    await other.callTool({ name: 'murmur' })
    expect(elsewhere).toHaveLength(3)
  })

  test('reaches a host of 2026-07-28 only where its request names a level', async () => {
    const node = await startNode({ tools: [murmur] })
    const told = async (options: { logLevel?: string }): Promise<unknown[]> => {
      const { messages, result } = await request(node, 'tools/call', { name: 'murmur' }, options)
      expect(result['content']).toEqual([{ type: 'text', text: 'done' }])
      return messages.flatMap(({ method, params }) => (method === 'notifications/message' ? [params] : []))
    }
    expect(await told({})).toEqual([])
    expect(await told({ logLevel: 'warning' })).toEqual([
      { level: 'warning', data: { level: 'warning' } },
      { level: 'emergency', data: { level: 'emergency' } },
    ])
  })
})
