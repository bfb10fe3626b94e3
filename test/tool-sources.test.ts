/** Every source of tools there is keeps the one contract. */
import {
  ConvokeError,
  defineTool,
  LocalToolRegistry,
  localSource,
  McpServerRegistry,
  type McpServerOptions,
  ToolManager,
  type Tool,
  type ToolSource,
} from 'convoke'
import { expect, test } from 'vitest'
import { testLocalToolSource, testToolSource, type Shown } from './contract/tool-source.ts'
import { startCards } from './support/cards.ts'
import { cleanup, startNode } from './support/lifetime.ts'
import { httpServer, stdioServer, type TestServer } from './support/mcp-servers.ts'

const noParams = { type: 'object', properties: {} } as const

const toTool = ({ name, description = `Is ${name}.` }: Shown): Tool =>
  defineTool({ name, description, input: noParams, run: () => null })

/** Makes a registry hold just these, and touches none that is as it should be. */
function showIn(registry: LocalToolRegistry, tools: readonly Shown[]): void {
  const wanted = tools.map(toTool)
  for (const { name } of registry.list()) if (!wanted.some((tool) => tool.name === name)) registry.deregister(name)
  for (const tool of wanted)
    if (registry.get(tool.name)?.description !== tool.description) registry.register(tool, { replace: true })
}

testLocalToolSource("the source of an agent's own tools", async () => {
  const registry = new LocalToolRegistry()
  const source = localSource(registry)
  cleanup(() => source.close())
  return { source, service: '', show: (tools) => showIn(registry, tools) }
})

testToolSource('the registry of peers that are real nodes', async () => {
  const bob = await startNode({ agent: { id: 'bob' } })
  let isFailing = false
  const cardPath = '/.well-known/agent-card.json'
  const front = await startCards(async ({ path }) => {
    if (isFailing) return { status: 500 }
    return path === cardPath ? { body: await (await fetch(bob.url + path)).text() } : undefined
  })
  const node = await startNode({ peers: { bob: { url: front.url, allowOrigins: [bob.url] } } })
  return {
    source: node.remoteTools,
    service: 'bob',
    show: (tools) => showIn(bob.registry, tools),
    fail: (is) => (isFailing = is),
    asked: () => front.count(cardPath),
  }
})

async function openMcp(server: TestServer, options: McpServerOptions) {
  const source = new McpServerRegistry({ servers: { test: options } })
  cleanup(() => source.close())
  let tools: readonly unknown[] = []
  let fail = false
  const set = (): void => server.set({ tools, only: true, fail })
  return {
    source,
    service: 'test',
    show(shown: readonly Shown[]) {
      tools = shown.map(({ name, description }) => ({ name, description: description ?? '', inputSchema: noParams }))
      set()
    },
    fail(is: boolean) {
      fail = is
      set()
    },
    asked: () => server.count('list'),
  }
}

testToolSource('the registry of MCP servers, over stdio', async () => {
  const server = await stdioServer()
  return await openMcp(server, server.options)
})

testToolSource('the registry of MCP servers, over streamable HTTP', async () => {
  const server = await httpServer()
  return await openMcp(server, server.options)
})

testToolSource('the registry of MCP servers, over the old SSE', async () => {
  const server = await httpServer({ sse: true })
  return await openMcp(server, { ...server.options, type: 'sse' })
})

/** A source as somebody would write it who has tools elsewhere: a shelf that a function fills. */
function customSource(service: string, load: (signal: AbortSignal) => Promise<readonly Shown[]>): ToolSource {
  let tools = new Map<string, Tool>()
  let revision = 0
  let isAttempted = false
  let isClosed = false
  let lastError: ConvokeError | undefined
  let lastDiscovery: number | undefined
  let running: { work: Promise<void>; stop: AbortController; waiting: number } | undefined
  const listeners = new Set<() => void>()
  const replace = (next: Map<string, Tool>): void => {
    const isSame = next.size === tools.size && [...next].every(([name, tool]) => tools.get(name) === tool)
    tools = next
    if (isSame) return
    revision++
    for (const listener of listeners) listener()
  }
  const missing = (name: string): ConvokeError =>
    new ConvokeError('not_found', `There is no tool ${name} at ${service}.`, { cause: lastError })
  const check = (given: string): void => {
    if (given !== service) throw new ConvokeError('not_found', `There is no service ${given}.`)
    if (isClosed) throw new ConvokeError('unavailable', 'The source is closed.')
  }
  const look = async (signal: AbortSignal): Promise<void> => {
    try {
      const shown = await load(signal)
      signal.throwIfAborted()
      lastError = undefined
      replace(
        new Map(
          shown.map((each) => {
            const before = tools.get(each.name)
            const tool: Tool = { ...toTool(each), name: `${service}.${each.name}`, kind: 'custom' }
            return [each.name, before?.description === tool.description ? before : tool]
          }),
        ),
      )
    } catch (error) {
      signal.throwIfAborted()
      lastError = ConvokeError.from(error)
      throw error
    } finally {
      if (!signal.aborted) {
        isAttempted = true
        lastDiscovery = Date.now()
      }
    }
  }
  const source: ToolSource = {
    kind: 'custom',
    get revision() {
      return revision
    },
    services: () => [service],
    has: (given) => given === service,
    resolve(given, name) {
      check(given)
      const known = tools.get(name)
      if (known !== undefined) return known
      if (isAttempted && running === undefined) throw missing(name)
      return source.discover(given).then(
        () => tools.get(name) ?? Promise.reject(missing(name)),
        () => Promise.reject(missing(name)),
      )
    },
    list: () => [...tools.values()],
    async discover(given, { signal } = {}) {
      check(given)
      signal?.throwIfAborted()
      if (running === undefined) {
        const stop = new AbortController()
        const mine = { stop, waiting: 0, work: Promise.resolve() }
        mine.work = look(stop.signal).finally(() => {
          if (running === mine) running = undefined
        })
        running = mine
      }
      const joined = running
      joined.waiting++
      await new Promise<void>((resolve, reject) => {
        signal?.addEventListener('abort', () => {
          const { reason } = signal as { reason: unknown }
          reject(reason instanceof ConvokeError ? reason : new ConvokeError('canceled', 'It was stopped.'))
          if (--joined.waiting > 0) return
          if (running === joined) running = undefined
          joined.stop.abort()
        })
        joined.work.then(resolve, reject)
      })
    },
    invalidate(given) {
      if (given !== service) return
      isAttempted = false
      replace(new Map())
    },
    status(given) {
      if (given !== service) return { state: 'never', tools: 0 }
      const state = lastError !== undefined ? 'failed' : isAttempted ? 'ok' : 'never'
      return {
        state,
        tools: tools.size,
        ...(lastError === undefined ? {} : { lastError }),
        ...(lastDiscovery === undefined ? {} : { lastDiscovery }),
      }
    },
    onChange(listener) {
      listeners.add(listener)
      return () => listeners.delete(listener)
    },
    async close() {
      isClosed = true
      tools = new Map()
    },
  }
  return source
}

testToolSource('a source that somebody has written', async () => {
  let shown: readonly Shown[] = []
  let isFailing = false
  let asked = 0
  const source = customSource('shelf', async () => {
    asked++
    await new Promise((resolve) => setImmediate(resolve))
    if (isFailing) throw new ConvokeError('unavailable', 'The shelf is locked.')
    return shown
  })
  cleanup(() => source.close())
  return {
    source,
    service: 'shelf',
    show: (tools) => (shown = tools),
    fail: (is) => (isFailing = is),
    asked: () => asked,
  }
})

test('a service that has moved from one source to another is found there', async () => {
  let home = 'here'
  const sourceAt = (place: string): ToolSource => {
    const source = customSource('shelf', async () => [{ name: place }])
    const has = (service: string): boolean => home === place && service === 'shelf'
    return Object.assign(source, { has, services: () => (has('shelf') ? ['shelf'] : []) })
  }
  const tools = new ToolManager({ sources: [sourceAt('here'), sourceAt('there')] })
  cleanup(() => tools.close())
  expect(await tools.resolve('shelf.here')).toMatchObject({ name: 'shelf.here' })
  home = 'there'
  expect(await tools.resolve('shelf.there')).toMatchObject({ name: 'shelf.there' })
  home = 'nowhere'
  expect(() => tools.resolve('shelf.there')).toThrow('nothing is known by the name "shelf"')
})
