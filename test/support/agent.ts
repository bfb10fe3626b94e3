/** A small A2A agent made for one test: what it answers is the test's word, and what it was asked is remembered. */
import type { JsonObject } from 'convoke'
import { createServer, type IncomingHttpHeaders, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { text } from 'node:stream/consumers'
import { cleanup } from './lifetime.ts'

export interface AgentRequest {
  /** Of JSON-RPC; that of HTTP for a request without a body, which is answered with 404. */
  readonly method: string
  readonly params: Record<string, never>
  readonly headers: IncomingHttpHeaders
  /** Path and query. */
  readonly url: string
}

/** A JSON-RPC result, the events of a stream, or an error: `{code, message}` behind `error`. */
export type AgentAnswer =
  | { readonly result: unknown }
  | { readonly error: { readonly code: number; readonly message: string } }
  | { readonly events: readonly unknown[] }
  | { readonly status: number }

export interface Agent {
  readonly url: string
  readonly card: JsonObject
  /** Oldest first; requests for the card not among them. */
  readonly requests: readonly AgentRequest[]
  /** The headers of each request for the card, which stands at its usual place and anywhere below `/cards/`. */
  readonly cardRequests: readonly IncomingHttpHeaders[]
}

/** Starts an agent that speaks JSON-RPC; gone when the test is over. Without an answer for its method, a request hangs. */
export async function startAgent(
  answers: Record<string, (request: AgentRequest) => AgentAnswer | undefined>,
  changes: JsonObject | ((url: string) => JsonObject) = {},
): Promise<Agent> {
  const requests: AgentRequest[] = []
  const cardRequests: IncomingHttpHeaders[] = []
  const server = createServer((request, response) => {
    void text(request).then((body) => {
      const { headers, url = '/' } = request
      if (url.startsWith('/.well-known/') || url.startsWith('/cards/')) {
        cardRequests.push(headers)
        sendJson(response, agent.card)
        return
      }
      if (body === '') {
        requests.push({ method: request.method ?? '', params: {}, headers, url })
        response.writeHead(404).end()
        return
      }
      const { id, method, params } = JSON.parse(body) as { id: number; method: string; params: Record<string, never> }
      const asked = { method, params, headers, url }
      requests.push(asked)
      const answer = answers[method]?.(asked)
      if (answer !== undefined) send(response, id, answer)
    })
  })
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  cleanup(async () => {
    server.closeAllConnections()
    await new Promise((resolve) => server.close(resolve))
  })
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`
  const agent: Agent = {
    url,
    card: { ...cardFor(url), ...(typeof changes === 'function' ? changes(url) : changes) },
    requests,
    cardRequests,
  }
  return agent
}

function cardFor(url: string): JsonObject {
  return {
    name: 'Fake',
    description: 'Answers as the test says.',
    version: '1.0.0',
    supportedInterfaces: [{ url: `${url}/rpc`, protocolBinding: 'JSONRPC', protocolVersion: '1.0' }],
    capabilities: { streaming: false, pushNotifications: false },
    defaultInputModes: ['text/plain'],
    defaultOutputModes: ['text/plain'],
    skills: [],
  }
}

function send(response: ServerResponse, id: number, answer: AgentAnswer): void {
  if ('status' in answer) {
    response.writeHead(answer.status).end()
  } else if ('events' in answer) {
    response.writeHead(200, { 'content-type': 'text/event-stream' })
    for (const result of answer.events) response.write(`data: ${JSON.stringify({ jsonrpc: '2.0', id, result })}\n\n`)
    response.end()
  } else {
    sendJson(response, { jsonrpc: '2.0', id, ...answer })
  }
}

function sendJson(response: ServerResponse, body: unknown): void {
  response.writeHead(200, { 'content-type': 'application/json' }).end(JSON.stringify(body))
}
