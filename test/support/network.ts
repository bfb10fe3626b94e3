/** Nodes in processes of their own that know each other, each behind tokens. */
import { createHash, randomUUID } from 'node:crypto'
import { mkdir } from 'node:fs/promises'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { temporaryFolder } from './lifetime.ts'
import { freePort, serveConfig, type NodeProcess } from './process.ts'
import type { CallOptions } from './wire.ts'

const tools = fileURLToPath(new URL('./traveller-tools.js', import.meta.url))

export interface NetworkOptions {
  /** Where `from` is told that `to` is. Default: where it is. */
  readonly via?: (from: string, to: string, url: string) => string | Promise<string>
  /** More of the configuration of all nodes. */
  readonly config?: Record<string, unknown>
  readonly server?: Record<string, unknown>
  readonly logLevel?: string
  /** The token that `from` shows to `to`. Default: one that `to` knows. */
  readonly token?: (from: string, to: string) => string | undefined
}

export interface Network {
  readonly nodes: Readonly<Record<string, NodeProcess>>
  /** Every token that is in use somewhere. */
  readonly secrets: readonly string[]
  /** What the call of somebody needs to be let in at a node. Default: of the test itself. */
  readonly as: (node: string, caller?: string) => CallOptions
  /** Starts a node again that has ended, at its address and with its store. */
  readonly restart: (id: string) => Promise<NodeProcess>
}

/** Starts nodes that all are peers of each other; gone when the test is over. */
export async function startNetwork(ids: readonly string[], options: NetworkOptions = {}): Promise<Network> {
  const { via = (_from, _to, url) => url, config = {}, server = {}, logLevel = 'silent', token } = options
  const folder = await temporaryFolder()
  const ports = new Map<string, number>()
  for (const id of ids) ports.set(id, await freePort())
  const callers = ['test', ...ids]
  const secrets = new Map(callers.flatMap((from) => ids.map((to) => [`${from} ${to}`, randomUUID()])))
  const secretOf = (from: string, to: string): string => secrets.get(`${from} ${to}`) ?? ''

  const start = async (id: string): Promise<NodeProcess> => {
    const others = ids.filter((each) => each !== id)
    const peers = await Promise.all(
      others.map(async (other) => {
        const url = await via(id, other, `http://127.0.0.1:${ports.get(other)}`)
        return [other, { url, auth: { bearer: `\${env:TOKEN_${other.toUpperCase()}}` } }] as const
      }),
    )
    const own = join(folder, id)
    await mkdir(own, { recursive: true })
    const tokens = callers
      .filter((caller) => caller !== id)
      .map((caller) => ({ id: caller, sha256: createHash('sha256').update(secretOf(caller, id)).digest('hex') }))
    return await serveConfig(
      own,
      {
        agent: { id },
        server: { port: ports.get(id), drainMs: 0, cancelGraceMs: 2_000, auth: { tokens }, ...server },
        store: { url: 'sqlite:./node.db' },
        tools: [{ module: tools }],
        peers: Object.fromEntries(peers),
        ...config,
      },
      {
        logLevel,
        env: Object.fromEntries(
          others.map((other) => [`TOKEN_${other.toUpperCase()}`, token?.(id, other) ?? secretOf(id, other)]),
        ),
      },
    )
  }

  const started = await Promise.all(ids.map(async (id) => [id, await start(id)] as const))
  const nodes = Object.fromEntries(started)
  return {
    nodes,
    secrets: [...secrets.values()],
    as: (node, caller = 'test') => ({ headers: { authorization: `Bearer ${secretOf(caller, node)}` } }),
    async restart(id) {
      nodes[id] = await start(id)
      return nodes[id]
    },
  }
}
