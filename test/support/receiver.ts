/** A webhook receiver that does what the test tells it to. */
import { once } from 'node:events'
import { createServer, type IncomingHttpHeaders } from 'node:http'
import type { AddressInfo } from 'node:net'
import { cleanup, until } from './lifetime.ts'
import type { StreamResponse } from './wire.ts'

export interface Delivery {
  readonly path: string
  readonly headers: IncomingHttpHeaders
  readonly body: StreamResponse
}

export interface Answering {
  readonly status: number
  readonly headers?: Record<string, string>
}

export interface Receiver {
  /** The URL of one of its hooks. */
  hook(name: string): string
  /** What a hook took, in order. */
  taken(name: string): readonly Delivery[]
  /** How often a hook was called, those included that it did not take. */
  calls(name: string): number
  /** Resolves once a hook has taken an event that fits, with all that it took. */
  upTo(name: string, fits: (body: StreamResponse) => boolean): Promise<readonly Delivery[]>
}

/**
 * `answer` says what the n-th call of a hook (from 1) gets: anything from 200 to 299 takes the event, undefined leaves
 * the caller without an answer.
 */
export async function startReceiver(
  answer: (name: string, call: number) => Answering | undefined = () => ({ status: 204 }),
): Promise<Receiver> {
  const hooks = new Map<string, { calls: number; taken: Delivery[] }>()
  const of = (name: string): { calls: number; taken: Delivery[] } => {
    const known = hooks.get(name) ?? { calls: 0, taken: [] }
    hooks.set(name, known)
    return known
  }
  const server = createServer((req, res) => {
    let text = ''
    req.setEncoding('utf8').on('data', (more: string) => (text += more))
    req.on('end', () => {
      const name = (req.url ?? '/').slice(1)
      const hook = of(name)
      const answering = answer(name, ++hook.calls)
      if (answering === undefined) return
      const { status, headers = {} } = answering
      if (status >= 200 && status < 300) {
        hook.taken.push({ path: req.url ?? '', headers: req.headers, body: JSON.parse(text) as StreamResponse })
      }
      res.writeHead(status, headers).end()
    })
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  cleanup(() => {
    server.closeAllConnections()
    return new Promise((resolve) => server.close(resolve))
  })
  const { port } = server.address() as AddressInfo
  return {
    hook: (name) => `http://127.0.0.1:${port}/${name}`,
    taken: (name) => of(name).taken,
    calls: (name) => of(name).calls,
    async upTo(name, fits) {
      const { taken } = of(name)
      await until(
        () => taken.some(({ body }) => fits(body)),
        () => `the hook "${name}"; it took ${JSON.stringify(taken.map(({ body }) => body)).slice(0, 2000)}`,
      )
      return taken
    },
  }
}
