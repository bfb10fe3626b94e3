/** An OAuth 2 authorization server that answers as the test scripts it. It can be the agent, too: any path is its. */
import { once } from 'node:events'
import { createServer, type IncomingHttpHeaders } from 'node:http'
import type { AddressInfo } from 'node:net'
import { cleanup } from './lifetime.ts'

export interface OAuthRequest {
  readonly method: string
  readonly path: string
  readonly headers: IncomingHttpHeaders
  /** The body. */
  readonly text: string
  readonly form: Readonly<Record<string, string>>
  /** Which request to this path it is, from 1. */
  readonly call: number
}

export interface OAuthAnswer {
  readonly status?: number
  readonly headers?: Record<string, string>
  /** An object is sent as JSON, a text as it is. */
  readonly body?: object | string
}

export interface OAuthServer {
  readonly origin: string
  readonly tokenUrl: string
  readonly deviceUrl: string
  /** The requests to a path so far, oldest first. */
  requests(path?: string): readonly OAuthRequest[]
}

type Script = (request: OAuthRequest) => OAuthAnswer | undefined | Promise<OAuthAnswer | undefined>

/** What `script` does not answer is answered with 404. */
export async function startOAuthServer(script: Script): Promise<OAuthServer> {
  const requests: OAuthRequest[] = []
  const server = createServer((req, res) => {
    let text = ''
    req.setEncoding('utf8').on('data', (more: string) => (text += more))
    req.on('end', () => {
      const path = (req.url ?? '/').split('?')[0]!
      const call = requests.filter((each) => each.path === path).length + 1
      const form = Object.fromEntries(new URLSearchParams(text))
      const request = { method: req.method ?? '', path, headers: req.headers, text, form, call }
      requests.push(request)
      void Promise.resolve(script(request)).then((answer = { status: 404, body: 'Not here.' }) => {
        const { status = 200, headers = {}, body = '' } = answer
        const type = typeof body === 'string' ? 'text/html' : 'application/json'
        res.writeHead(status, { 'content-type': type, ...headers })
        res.end(typeof body === 'string' ? body : JSON.stringify(body))
      })
    })
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  cleanup(() => {
    server.closeAllConnections()
    return new Promise((resolve) => server.close(resolve))
  })
  const { port } = server.address() as AddressInfo
  const origin = `http://127.0.0.1:${port}`
  return {
    origin,
    tokenUrl: `${origin}/token`,
    deviceUrl: `${origin}/device`,
    requests: (path) => requests.filter((each) => path === undefined || each.path === path),
  }
}

/** An answer with a token. */
export function grant(token: string, more: object = {}): OAuthAnswer {
  return { body: { access_token: token, token_type: 'Bearer', expires_in: 3600, ...more } }
}

/** What a server says no with. */
export function refusal(error: string, description?: string, status = 400): OAuthAnswer {
  return { status, body: { error, ...(description === undefined ? {} : { error_description: description }) } }
}
