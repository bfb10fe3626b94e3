/** A peer that answers as the test says, over HTTP or HTTPS: also late, in pieces, or with nothing that is A2A. */
import type { JsonObject, Message, Task } from 'convoke'
import { randomUUID } from 'node:crypto'
import { once } from 'node:events'
import { createServer, type IncomingHttpHeaders, type IncomingMessage, type ServerResponse } from 'node:http'
import { createServer as createSecureServer } from 'node:https'
import type { AddressInfo } from 'node:net'
import { text } from 'node:stream/consumers'
import { cleanup } from './lifetime.ts'
import { extensionUri, type StreamResponse } from './wire.ts'

export interface ScriptedRequest {
  /** That of JSON-RPC, or `GET`. */
  readonly method: string
  /** With the query. */
  readonly path: string
  readonly params: JsonObject
  readonly messageId: string | undefined
  readonly headers: IncomingHttpHeaders
}

export interface ScriptedExchange extends ScriptedRequest {
  readonly res: ServerResponse
  /** Which request of its method it is, from 1. */
  readonly call: number
  /** Answers with a result. */
  readonly result: (value: unknown) => void
  /** Answers with a JSON-RPC error. */
  readonly error: (code: number, message: string, data?: unknown) => void
  /** Sends events, opening the stream with the first. Resolves when the kernel has them. */
  readonly events: (...events: readonly StreamResponse[]) => Promise<void>
  /** Any other answer. */
  readonly raw: (status: number, headers: Record<string, string>, body: string) => void
}

export interface ScriptedPeer {
  readonly url: string
  /** Requests for the card among them, oldest first. */
  readonly requests: readonly ScriptedRequest[]
  readonly count: (method: string) => number
}

export interface ScriptOptions {
  /** Changes of the card. */
  readonly card?: (url: string) => JsonObject
  readonly tls?: { readonly key: string; readonly cert: string }
}

type Script = (exchange: ScriptedExchange) => unknown

/** Starts the peer, gone when the test is over. The card is served by itself; the script may take that over. */
export async function startScriptedPeer(script: Script, options: ScriptOptions = {}): Promise<ScriptedPeer> {
  const requests: ScriptedRequest[] = []
  const handle = async (req: IncomingMessage, body: string, res: ServerResponse): Promise<void> => {
    const parsed = (body === '' ? {} : JSON.parse(body)) as { id?: number; method?: string; params?: JsonObject }
    const { id = null, method = req.method ?? '', params = {} } = parsed
    const { messageId } = (params['message'] ?? {}) as { messageId?: string }
    const request: ScriptedRequest = { method, path: req.url ?? '/', params, messageId, headers: req.headers }
    requests.push(request)
    const raw = (status: number, headers: Record<string, string>, words: string): void => {
      res.writeHead(status, headers).end(words)
    }
    const json = (value: unknown): void => raw(200, { 'content-type': 'application/json' }, JSON.stringify(value))
    await script({
      ...request,
      res,
      call: requests.filter((each) => each.method === method).length,
      raw,
      result: (result) => json({ jsonrpc: '2.0', id, result }),
      error: (code, message, data) => json({ jsonrpc: '2.0', id, error: { code, message, data } }),
      async events(...events) {
        if (!res.headersSent) res.writeHead(200, { 'content-type': 'text/event-stream' })
        const lines = events.map((result) => `data: ${JSON.stringify({ jsonrpc: '2.0', id, result })}\n\n`)
        await new Promise<void>((resolve) => res.write(lines.join(''), () => resolve()))
      },
    })
    if (req.method === 'GET' && !res.headersSent && !res.destroyed) raw(200, cardHeaders, JSON.stringify(card()))
  }
  const listener = (req: IncomingMessage, res: ServerResponse): void => {
    // A request that is cut off has no text; its connection is gone with it.
    text(req).then(
      (body) => void handle(req, body, res),
      () => {},
    )
  }
  const { tls } = options
  const server = tls === undefined ? createServer(listener) : createSecureServer(tls, listener)
  // Handshakes that a client gives up are the test's matter.
  server.on('tlsClientError', () => {})
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  cleanup(() => {
    server.closeAllConnections()
    return new Promise((resolve) => server.close(resolve))
  })
  const { port } = server.address() as AddressInfo
  const url = tls === undefined ? `http://127.0.0.1:${port}` : `https://localhost:${port}`
  const card = (): JsonObject => ({ ...toolCard(url), ...options.card?.(url) })
  return { url, requests, count: (method) => requests.filter((each) => each.method === method).length }
}

const cardHeaders = { 'content-type': 'application/json', 'cache-control': 'max-age=60' }

/** A card with the tools `add` (idempotent) and `put` (not), of an agent that does not know the extension. */
function toolCard(url: string): JsonObject {
  const skill = (name: string): JsonObject => ({
    id: `tool-${name}`,
    name,
    description: `The tool ${name}.`,
    tags: ['tool'],
    input_schema: { type: 'object', properties: { n: { type: 'integer' } }, required: ['n'] },
  })
  return {
    name: 'Scripted',
    description: 'Answers as the test says.',
    version: '1.0.0',
    supportedInterfaces: [{ url, protocolBinding: 'JSONRPC', protocolVersion: '1.0' }],
    defaultInputModes: ['text/plain'],
    defaultOutputModes: ['application/json'],
    capabilities: { streaming: true, pushNotifications: false },
    skills: [skill('add'), skill('put')],
  }
}

/** The capabilities of an agent that declares the extension, whose tool `add` may run twice and `put` may not. */
export function extension(streaming = true): JsonObject {
  const input = { type: 'object', properties: { n: { type: 'integer' } }, required: ['n'] }
  const entry = (name: string, idempotentHint: boolean): JsonObject => ({
    name,
    input_schema: input,
    output_schema: { type: 'object', properties: { sum: { type: 'integer' } } },
    annotations: { readOnlyHint: false, idempotentHint },
  })
  return {
    streaming,
    pushNotifications: false,
    extensions: [
      {
        uri: extensionUri,
        required: false,
        params: { tools: { 'tool-add': entry('add', true), 'tool-put': entry('put', false) } },
      },
    ],
  }
}

/** A task as it stands. */
export function taskAs(id: string, state: string, more: Partial<Task> = {}): Task {
  return { id, contextId: 'c', status: { state, timestamp: `2026-01-01T00:00:00.000Z` } as Task['status'], ...more }
}

export function statusOf(id: string, state: string, message?: Message): StreamResponse {
  const status = { state, timestamp: new Date().toISOString(), ...(message === undefined ? {} : { message }) }
  return { statusUpdate: { taskId: id, contextId: 'c', status: status as Task['status'] } }
}

export function artifactOf(id: string, artifactId: string, parts: Message['parts'], append = false): StreamResponse {
  return { artifactUpdate: { taskId: id, contextId: 'c', artifact: { artifactId, parts }, append } }
}

export function resultArtifact(value: JsonObject): NonNullable<Task['artifacts']>[number] {
  return { artifactId: 'result', parts: [{ data: value }], metadata: { _tool_result: true, tool_name: 'add' } }
}

/** What an agent says, perhaps with metadata. */
export function says(words: string, metadata?: JsonObject): Message {
  const message: Message = { messageId: randomUUID(), role: 'ROLE_AGENT', parts: [{ text: words }] }
  return metadata === undefined ? message : { ...message, metadata }
}
