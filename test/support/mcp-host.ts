/** MCP hosts: the official client for sessions, and single requests of protocol 2026-07-28, which it does not speak. */
import { Client } from '@modelcontextprotocol/sdk/client/index.js'
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js'
import type { Transport } from '@modelcontextprotocol/sdk/shared/transport.js'
import type { ClientCapabilities, CallToolResult } from '@modelcontextprotocol/sdk/types.js'
import type { JsonObject, Node } from 'convoke'
import { cleanup } from './lifetime.ts'

export interface Host {
  readonly client: Client
  readonly transport: StreamableHTTPClientTransport
}

export interface HostOptions {
  readonly token?: string
  readonly capabilities?: ClientCapabilities
}

/** A host with a session at `/mcp`; gone when the test is over. */
export async function connectHost(node: Node, { token, capabilities = {} }: HostOptions = {}): Promise<Host> {
  const headers: Record<string, string> = token === undefined ? {} : { authorization: `Bearer ${token}` }
  const transport = new StreamableHTTPClientTransport(new URL(mcpUrl(node)), { requestInit: { headers } })
  return { client: await connect(transport, capabilities), transport }
}

export async function connect(transport: Transport, capabilities: ClientCapabilities = {}): Promise<Client> {
  const client = new Client({ name: 'test-host', version: '1.0.0' }, { capabilities })
  // The package's own types disagree with themselves where optional members must be left out.
  await client.connect(transport)
  cleanup(() => client.close())
  return client
}

export function mcpUrl(node: Node): string {
  return node.doors.find(({ name }) => name === 'MCP')?.url ?? ''
}

/** The texts of a result, a line each. */
export function textOf(result: unknown): string {
  const { content } = result as CallToolResult
  return content.flatMap((block) => (block.type === 'text' ? [block.text] : [])).join('\n')
}

/** The handle that a call has left. */
export function handleOf(result: unknown): { task_id: string; state: string; message: string; question?: string } {
  return JSON.parse(textOf(result)) as ReturnType<typeof handleOf>
}

export interface Answer {
  readonly status: number
  readonly headers: Headers
  /** The messages in the order they came, the response last. */
  readonly messages: readonly JsonObject[]
  readonly result: JsonObject
  readonly error: { readonly code: number; readonly message: string } | undefined
}

export interface ModernOptions extends HostOptions {
  readonly signal?: AbortSignal
  readonly progressToken?: string
}

/** One request of 2026-07-28, with everything in it that a host says about itself. */
export async function request(
  node: Node,
  method: string,
  params: JsonObject = {},
  options: ModernOptions = {},
): Promise<Answer> {
  const response = await send(node, method, params, options)
  return read(response)
}

export function send(
  node: Node,
  method: string,
  params: JsonObject,
  { token, capabilities = {}, signal, progressToken }: ModernOptions = {},
): Promise<Response> {
  const _meta: JsonObject = {
    'io.modelcontextprotocol/protocolVersion': '2026-07-28',
    'io.modelcontextprotocol/clientInfo': { name: 'test-host', version: '1.0.0' },
    'io.modelcontextprotocol/clientCapabilities': capabilities as JsonObject,
    ...(progressToken === undefined ? {} : { progressToken }),
  }
  return post(
    node,
    JSON.stringify({ jsonrpc: '2.0', id: 1, method, params: { ...params, _meta } }),
    {
      'mcp-protocol-version': '2026-07-28',
      'mcp-method': method,
      ...(typeof params['name'] === 'string' ? { 'mcp-name': params['name'] } : {}),
      ...(token === undefined ? {} : { authorization: `Bearer ${token}` }),
    },
    signal,
  )
}

/** Any body, with the headers that every host sends and those given. */
export function post(
  node: Node,
  body: string,
  headers: Record<string, string> = {},
  signal?: AbortSignal,
): Promise<Response> {
  return fetch(mcpUrl(node), {
    method: 'POST',
    headers: { 'content-type': 'application/json', accept: 'application/json, text/event-stream', ...headers },
    body,
    ...(signal === undefined ? {} : { signal }),
  })
}

export async function read(response: Response): Promise<Answer> {
  const text = await response.text()
  const isStream = response.headers.get('content-type')?.includes('event-stream') === true
  const texts = isStream ? [...text.matchAll(/^data: (.+)$/gm)].map(([, data = '']) => data) : text === '' ? [] : [text]
  const messages = texts.map((each) => JSON.parse(each) as JsonObject)
  const last = messages.at(-1) ?? {}
  return {
    status: response.status,
    headers: response.headers,
    messages,
    result: (last['result'] ?? {}) as JsonObject,
    error: last['error'] as Answer['error'],
  }
}

/** The `initialize` request of a session. */
export const initialize = JSON.stringify({
  jsonrpc: '2.0',
  id: 0,
  method: 'initialize',
  params: { protocolVersion: '2025-11-25', capabilities: {}, clientInfo: { name: 'test-host', version: '1.0.0' } },
})

/** A session without a client: its id. */
export async function beginSession(node: Node, token?: string): Promise<string> {
  const headers: Record<string, string> = token === undefined ? {} : { authorization: `Bearer ${token}` }
  const response = await post(node, initialize, headers)
  await response.text()
  return response.headers.get('mcp-session-id') ?? ''
}
