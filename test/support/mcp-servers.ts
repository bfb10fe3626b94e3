/** MCP servers that tests start, and what they have seen. */
import type { McpServerOptions } from 'convoke'
import { randomUUID } from 'node:crypto'
import { once } from 'node:events'
import { readFileSync, writeFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import { createServer, type IncomingHttpHeaders, type IncomingMessage, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { join } from 'node:path'
import { json } from 'node:stream/consumers'
import { fileURLToPath } from 'node:url'
// oxlint-disable typescript/no-deprecated -- servers of the old transport are what is tested
import { SSEServerTransport } from '@modelcontextprotocol/sdk/server/sse.js'
import { StreamableHTTPServerTransport } from '@modelcontextprotocol/sdk/server/streamableHttp.js'
import { cleanup, temporaryFolder, until } from './lifetime.ts'
import { createTestServer } from './mcp-server.js'

const script = fileURLToPath(new URL('./mcp-server.js', import.meta.url))
const require = createRequire(import.meta.url)
const programs = {
  everything: require.resolve('@modelcontextprotocol/server-everything/dist/index.js'),
  filesystem: require.resolve('@modelcontextprotocol/server-filesystem/dist/index.js'),
  memory: require.resolve('@modelcontextprotocol/server-memory/dist/index.js'),
}

/** The program of a server that others wrote. */
export function realServer(name: keyof typeof programs, ...args: string[]): McpServerOptions {
  return { command: process.execPath, args: [programs[name], ...args] }
}

/** What the test server lists. */
export interface State {
  readonly tools?: readonly unknown[]
  /** Without the tools of its own. */
  readonly only?: boolean
  readonly fail?: boolean
  readonly pages?: number
  readonly circle?: boolean
  /** Ends at once when it is started. */
  readonly dead?: boolean
  /** Ends neither when stdin does nor when it is told to. */
  readonly stubborn?: boolean
}

export interface TestServer {
  readonly options: McpServerOptions
  readonly set: (state: State) => void
  /** What has happened to it, in order: `start PID`, `list`, `call NAME`, `holding NAME`, `cancelled NAME`. */
  readonly notes: () => string[]
  readonly count: (note: string) => number
  readonly heard: (note: string) => Promise<unknown>
  /** The processes that were started, newest last. */
  readonly pids: () => number[]
}

/** The test server as a program; each registry that is given its options starts a process of its own. */
export async function stdioServer(env: Record<string, string> = {}): Promise<TestServer> {
  const folder = await temporaryFolder()
  const stateFile = join(folder, 'state.json')
  const notesFile = join(folder, 'notes.txt')
  writeFileSync(stateFile, '{}')
  writeFileSync(notesFile, '')
  const notes = (): string[] => readFileSync(notesFile, 'utf8').split('\n').slice(0, -1)
  const count = (note: string): number => notes().filter((each) => each === note).length
  const pids = (): number[] =>
    notes().flatMap((each) => (each.startsWith('start ') ? [Number(each.slice('start '.length))] : []))
  cleanup(() => {
    const left = pids().filter(isRunning)
    for (const pid of left) process.kill(pid, 'SIGKILL')
    if (left.length > 0) throw new Error(`Servers were left running: ${left.join(', ')}.`)
  })
  return {
    options: {
      command: process.execPath,
      args: [script],
      env: { MCP_STATE: stateFile, MCP_NOTES: notesFile, ...env },
    },
    set: (state) => writeFileSync(stateFile, JSON.stringify(state)),
    notes,
    count,
    heard: (note) =>
      until(
        () => count(note) > 0,
        () => `the server to note "${note}"; it noted ${notes().join(', ')}`,
      ),
    pids,
  }
}

/** Whether there is such a process. One that has ended and was not fetched by its parent counts as gone. */
export function isRunning(pid: number): boolean {
  try {
    process.kill(pid, 0)
    return process.platform !== 'linux' || !/^State:\s+Z/m.test(readFileSync(`/proc/${pid}/status`, 'utf8'))
  } catch {
    return false
  }
}

export interface HttpTestServer extends TestServer {
  readonly url: string
  /** Requests as they came: `POST tools/list`, `GET`, `DELETE`. */
  readonly requests: readonly { readonly line: string; readonly headers: IncomingHttpHeaders }[]
  /** How many connections were ever taken in. */
  readonly connections: () => number
  /** How many sessions there are. */
  readonly sessions: () => number
  /** Forgets all sessions, as a server does that was started anew. */
  readonly forget: () => void
  /** Answers every request with this status; undefined to answer again. */
  readonly refuse: (status: number | undefined) => void
  /** Cuts all connections. */
  readonly cut: () => void
}

export interface HttpTestServerOptions {
  /** The old transport instead: `/sse` and `/message`. */
  readonly sse?: boolean
  /** Keeps no sessions. */
  readonly stateless?: boolean
  /** Answers before anything else; true where it has. */
  readonly before?: (request: IncomingMessage, response: ServerResponse) => boolean
}

/** The test server behind a URL of this machine. */
export async function httpServer(options: HttpTestServerOptions = {}): Promise<HttpTestServer> {
  let state: State = {}
  let refusal: number | undefined
  const notes: string[] = []
  const requests: { line: string; headers: IncomingHttpHeaders }[] = []
  const sessions = new Map<string, StreamableHTTPServerTransport>()
  const streams = new Map<string, SSEServerTransport>()
  const create = () =>
    createTestServer({
      state: () => state,
      note: (text: string) => notes.push(text),
      who: (name: string, extra: { requestInfo?: { headers: Record<string, unknown> } }) =>
        extra.requestInfo?.headers[name],
    })

  const streamable = async (request: IncomingMessage, response: ServerResponse, body: unknown): Promise<void> => {
    const id = request.headers['mcp-session-id']
    const known = typeof id === 'string' ? sessions.get(id) : undefined
    if (typeof id === 'string' && known === undefined) return void response.writeHead(404).end()
    if (known !== undefined) return await known.handleRequest(request, response, body)
    if (request.method !== 'POST') return void response.writeHead(405).end()
    const transport = new StreamableHTTPServerTransport({
      sessionIdGenerator: options.stateless === true ? undefined : randomUUID,
      onsessioninitialized: (each) => void sessions.set(each, transport),
      onsessionclosed: (each) => void sessions.delete(each),
    } as ConstructorParameters<typeof StreamableHTTPServerTransport>[0])
    await create().connect(transport)
    await transport.handleRequest(request, response, body)
  }
  const old = async (request: IncomingMessage, response: ServerResponse, body: unknown): Promise<void> => {
    const { pathname, searchParams } = new URL(request.url ?? '/', 'http://localhost')
    if (request.method === 'GET' && pathname === '/mcp') {
      const transport = new SSEServerTransport('/message', response)
      streams.set(transport.sessionId, transport)
      response.on('close', () => streams.delete(transport.sessionId))
      return await create().connect(transport)
    }
    const stream = streams.get(searchParams.get('sessionId') ?? '')
    if (request.method !== 'POST' || pathname !== '/message' || stream === undefined)
      return void response.writeHead(404).end()
    await stream.handlePostMessage(request, response, body)
  }

  const server = createServer((request, response) => {
    void (async () => {
      const body = request.method === 'POST' ? ((await json(request)) as { method?: string }) : undefined
      const line = [request.method, ...(body?.method === undefined ? [] : [body.method])].join(' ')
      requests.push({ line, headers: request.headers })
      if (options.before?.(request, response) === true) return
      if (refusal !== undefined) return void response.writeHead(refusal).end()
      await (options.sse === true ? old : streamable)(request, response, body)
    })()
  })
  let connections = 0
  server.on('connection', () => connections++)
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  cleanup(async () => {
    server.closeAllConnections()
    server.close()
    await once(server, 'close')
  })
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}/mcp`
  const count = (note: string): number => notes.filter((each) => each === note).length
  return {
    url,
    options: { url },
    requests,
    set: (next) => (state = next),
    notes: () => notes,
    count,
    heard: (note) =>
      until(
        () => count(note) > 0,
        () => `the server to note "${note}"; it noted ${notes.join(', ')}`,
      ),
    pids: () => [],
    connections: () => connections,
    sessions: () => sessions.size + streams.size,
    forget: () => sessions.clear(),
    refuse: (status) => (refusal = status),
    cut: () => server.closeAllConnections(),
  }
}
