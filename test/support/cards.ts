/** Servers of agent cards, and of what surrounds them: each answer is the test's word, each request is remembered. */
import type { Json, JsonObject } from 'convoke'
import { once } from 'node:events'
import { createServer, type IncomingHttpHeaders } from 'node:http'
import type { AddressInfo } from 'node:net'
import { text } from 'node:stream/consumers'
import { cleanup } from './lifetime.ts'

export interface CardRequest {
  readonly method: string
  /** With the query. */
  readonly path: string
  readonly headers: IncomingHttpHeaders
  readonly body: string
}

export interface CardAnswer {
  /** Default: 200. */
  readonly status?: number
  readonly headers?: Readonly<Record<string, string>>
  /** A text goes out as it is, anything else as JSON. */
  readonly body?: unknown
}

export interface CardServer {
  readonly url: string
  /** Oldest first. */
  readonly requests: readonly CardRequest[]
  /** How many requests went to this path; without one, to any. */
  count(path?: string): number
  /** How many requests were open at the same time, at most. */
  readonly mostAtOnce: number
}

export const cardPath = '/.well-known/agent-card.json'

/** Starts a server that answers every request with what `answer` gives; undefined is 404. Gone when the test is over. */
export async function startCards(
  answer: (request: CardRequest) => CardAnswer | undefined | Promise<CardAnswer | undefined>,
): Promise<CardServer> {
  const requests: CardRequest[] = []
  let open = 0
  let mostAtOnce = 0
  const server = createServer((req, res) => {
    mostAtOnce = Math.max(mostAtOnce, ++open)
    res.on('close', () => open--)
    void text(req)
      .then((body) => {
        const request = { method: req.method ?? '', path: req.url ?? '', headers: req.headers, body }
        requests.push(request)
        return answer(request)
      })
      .then((given) => {
        const { status = given === undefined ? 404 : 200, headers = {}, body = '' } = given ?? {}
        res.writeHead(status, { 'content-type': 'application/json', ...headers })
        res.end(typeof body === 'string' ? body : JSON.stringify(body))
      })
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  cleanup(async () => {
    server.closeAllConnections()
    await new Promise((resolve) => server.close(resolve))
  })
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    requests,
    count: (path) => requests.filter((each) => path === undefined || each.path === path).length,
    get mostAtOnce() {
      return mostAtOnce
    },
  }
}

/** A card of A2A 1.0 whose tools stand on its skills. */
export function cardOf(url: string, skills: readonly Json[] = [], changes: JsonObject = {}): JsonObject {
  return {
    name: 'Fake',
    description: 'Has a card.',
    version: '1.0.0',
    supportedInterfaces: [{ url, protocolBinding: 'JSONRPC', protocolVersion: '1.0' }],
    capabilities: { streaming: false },
    defaultInputModes: ['text/plain'],
    defaultOutputModes: ['text/plain'],
    skills: [...skills],
    ...changes,
  }
}

/** The skill of a tool, with everything that `changes` says instead. */
export function skillOf(name: string, changes: JsonObject = {}): JsonObject {
  return {
    id: `tool-${name}`,
    name,
    description: `The tool ${name}.`,
    tags: ['tool'],
    input_schema: { type: 'object', properties: {} },
    ...changes,
  }
}
