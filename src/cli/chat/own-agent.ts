/** The agent of the configuration itself, in this process: a node that listens on this machine, and to nobody but us. */
import { ConvokeError } from '../../base/errors.ts'
import type { NodeOptions } from '../../options.ts'
import { connectPeer, type Peer } from '../../peers/connect-peer.ts'
import { localCaller } from '../../tools/local.ts'
import { ClientFailure, usageFailure } from '../a2a/failure.ts'
import type { Session } from '../a2a/session.ts'
import type { ClientFlags } from '../a2a/settings.ts'
import { quote } from '../a2a/text.ts'
import { configFlag, fileOrUrl, noFile, readDirectory } from '../remote/target.ts'
import { watchUncaught } from '../uncaught.ts'

/**
 * Starts the node of the configuration, runs `use` with a connection to it, and stops it. What its agent does is what `convoke
 * serve` would do, with its store, so that conversations can be gone on with; whoever chats is the caller `local`. `onLog` gets the
 * lines of the node's log. Throws `A2ACLI_ERR_UNREACHABLE` where another process has the store.
 */
export async function withOwnAgent(
  session: Session<ClientFlags>,
  onLog: (line: string) => void,
  use: (peer: Peer) => Promise<void>,
): Promise<void> {
  const { file, options } = await readDirectory(session)
  if (options === undefined || file === undefined)
    throw usageFailure(`No agent is named. ${noFile}`, `${fileOrUrl.replace(' in place of its id', '')}`)
  // A chat with somebody else needs none of it.
  const [{ createNode }, { createToken, hashToken }, { createLog }] = await Promise.all([
    import('../../node.ts'),
    import('../../server/auth/token.ts'),
    import('../../base/log.ts'),
  ])
  const token = createToken()
  // Failures are told by the chat; what is tried again, and then goes well, is nothing to read on.
  const level = session.flags.debug === true ? 'debug' : (options.logLevel ?? 'error')
  const pretty = session.isJson ? {} : { pretty: true, color: false }
  const log = createLog(level, { ...pretty, write: (line) => onLog(line.trimEnd()) })
  const ours = { ...forUs(options, hashToken(token)), log }
  watchUncaught(log)
  const node = await createNode(ours).catch((error: unknown) => {
    throw startFailure(error, options, configFlag(session))
  })
  try {
    // Else the log has said them.
    if (level === 'error' || level === 'silent')
      for (const warning of node.warnings) session.note(`warning: ${warning}`)
    await node.start()
    // What is published of others' tools is known before the first message.
    const peer = await connectPeer(node.url, { id: 'agent', bearer: token, signal: session.signal })
    try {
      session.isConnected = true
      await use(peer)
    } finally {
      await peer.close()
    }
  } finally {
    await node.stop()
  }
}

/** The same node at another address: no other program of this machine gets in, and no card sends us elsewhere. */
function forUs(options: NodeOptions, sha256: string): NodeOptions {
  const { publicUrl: _url, basePath: _path, trustProxy: _proxy, ...server } = options.server ?? {}
  return {
    ...options,
    server: {
      ...server,
      host: '127.0.0.1',
      port: 0,
      auth: { tokens: [{ id: localCaller.id, sha256, scopes: [...localCaller.scopes] }] },
      extendedCard: false,
      // When the chat is over, nobody waits for what runs.
      drainMs: 0,
    },
  }
}

function startFailure(error: unknown, { server = {}, store }: NodeOptions, flag: string): unknown {
  if (!(error instanceof ConvokeError) || error.code !== 'unavailable') return error
  const { host = '127.0.0.1', port } = server
  const isAny = /^(0\.0\.0\.0|\[?::\]?)$/.test(host)
  const url = server.publicUrl ?? `http://${isAny ? '127.0.0.1' : host}:${port}`
  const isKnown = server.publicUrl !== undefined || (port !== undefined && port !== 0)
  const isLocked = isBusy(error)
  return new ClientFailure(
    'A2ACLI_ERR_UNREACHABLE',
    isLocked ? `The store ${store?.url ?? ''} of this configuration is open in another process.` : error.message,
    {
      hint: isLocked
        ? `If that is this node, talk to it by its URL: convoke chat ${isKnown ? quote(url) : 'URL'}${server.auth === undefined ? '' : ' --bearer TOKEN'}; if it is another one, give this one a store.url of its own.`
        : `Check store.url: convoke config check${flag}`,
      cause: error,
    },
  )
}

/** Whether another process has the database. */
function isBusy(error: unknown): boolean {
  if (!(error instanceof Error)) return false
  return ('code' in error && String(error.code).startsWith('SQLITE_BUSY')) || isBusy(error.cause)
}
