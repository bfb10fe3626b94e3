/** `convoke peers`: the peers of the configuration, and how they are. */
import { randomUUID } from 'node:crypto'
import { inTurns } from '../../base/in-turns.ts'
import type { Json, JsonObject } from '../../base/json.ts'
import { stripControls } from '../../base/text.ts'
import type { Peer } from '../../peers/connect-peer.ts'
import { toPeerError, type PeerError } from '../../peers/errors.ts'
import { ExitRequest } from '../failure.ts'
import type { Session } from '../a2a/session.ts'
import { createPaint, type Paint } from '../paint.ts'
import type { RemoteFlags } from './options.ts'
import { allTargets, withPeer, type Target } from './target.ts'
import { maxAtOnce, peerTimeoutMs } from './tools.ts'

export interface PeersFlags extends RemoteFlags {
  readonly check?: boolean
}

/** What was found out about one peer. */
interface Health {
  readonly peer: string
  readonly url: string
  readonly reachable: boolean
  readonly name?: string
  readonly version?: string
  readonly binding?: string
  readonly tools?: number
  /** Whether it lets us in. `unknown`: it answered otherwise than a peer does. */
  readonly auth: 'ok' | 'refused' | 'unknown'
  /** Of one small request, when the connection stands. */
  readonly latencyMs?: number
  readonly error?: PeerError
}

export async function showPeers(session: Session<PeersFlags>): Promise<void> {
  const targets = await allTargets(session)
  const found = new Map<Target, Health>()
  await inTurns(targets, maxAtOnce, async (target) => {
    found.set(target, await look(session, target))
  })
  const all = targets.flatMap((target) => found.get(target) ?? [])
  session.show(all.map(toJson), () => table(all, createPaint(process.stdout)))
  const isDown = all.some(({ reachable, auth }) => !reachable || auth === 'refused')
  if (session.flags.check === true && isDown) throw new ExitRequest(1)
}

async function look(session: Session<PeersFlags>, target: Target): Promise<Health> {
  const { id, options } = target
  const known = { peer: id, url: options.url }
  try {
    return await withPeer(
      session,
      { ...target, options: { requestTimeoutMs: peerTimeoutMs, ...options } },
      async (peer) => {
        const { name, version, binding } = await peer.connect()
        const tools = (await peer.listRemoteTools({ signal: session.signal })).length
        return { ...known, reachable: true, name, version, binding, tools, ...(await knock(session, peer)) }
      },
    )
  } catch (error) {
    if (session.signal.aborted) throw error
    const failure = toPeerError(error, id)
    return { ...known, reachable: false, auth: failure.kind === 'auth' ? 'refused' : 'unknown', error: failure }
  }
}

/** Asks for a task that does not exist: a peer that says so has let us in. */
async function knock(session: Session<PeersFlags>, peer: Peer): Promise<Pick<Health, 'auth' | 'latencyMs' | 'error'>> {
  const startedAt = performance.now()
  const latency = (): number => Math.round((performance.now() - startedAt) * 10) / 10
  try {
    await peer.getTask(randomUUID(), { signal: session.signal })
    return { auth: 'ok', latencyMs: latency() }
  } catch (error) {
    const failure = toPeerError(error, peer.id)
    if (failure.code === 'task_not_found') return { auth: 'ok', latencyMs: latency() }
    const isRefused = failure.code === 'unauthenticated' || failure.code === 'forbidden'
    return { auth: isRefused ? 'refused' : 'unknown', latencyMs: latency(), error: failure }
  }
}

function toJson({ latencyMs, error, ...health }: Health): JsonObject {
  const { name = null, version = null, binding = null, tools = null, ...rest } = health
  const failure: Json = error === undefined ? null : { code: error.code, message: error.sentence }
  return { ...rest, name, version, binding, tools, latency_ms: latencyMs ?? null, error: failure }
}

const headings = ['PEER', 'STATE', 'AUTH', 'NAME', 'SPEAKS', 'TOOLS', 'LATENCY', 'URL']

function table(all: readonly Health[], paint: Paint): string {
  const rows = all.map(({ peer, reachable, auth, name, version, binding, tools, latencyMs, url }) => [
    peer,
    reachable ? 'up' : 'down',
    auth,
    stripControls(name ?? '-').replace(/\s+/g, ' '),
    version === undefined ? '-' : `${version} ${binding ?? ''}`,
    String(tools ?? '-'),
    latencyMs === undefined ? '-' : `${latencyMs} ms`,
    url,
  ])
  const widths = headings.map((heading, i) => Math.max(heading.length, ...rows.map((row) => row[i]?.length ?? 0)))
  const line = (cells: readonly string[]): string =>
    cells
      .map((cell, i) => cell.padEnd(widths[i] ?? 0))
      .join('  ')
      .trimEnd()
  const failures = all.flatMap(({ peer, error }) =>
    error === undefined ? [] : [`${peer}: ${oneLine(error.sentence)} (${error.code})`],
  )
  return [paint('bold', line(headings)), ...rows.map(line), ...failures.map((each) => paint('red', each)), ''].join(
    '\n',
  )
}

function oneLine(text: string): string {
  return stripControls(text).replace(/\s+/g, ' ')
}
