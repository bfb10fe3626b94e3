/** `convoke mcp`: the tools of a node for an MCP host that starts this program and speaks over stdin and stdout. */
import { basename, resolve } from 'node:path'
import { Writable } from 'node:stream'
import { fileURLToPath } from 'node:url'
import { createNode, type Node } from '../node.ts'
import type { NodeOptions } from '../options.ts'
import type { PeerOptions } from '../peers/peer.ts'
import { localCaller } from '../tools/local.ts'
import { pinsPath } from '../tools/pins.ts'
import { hostUrl } from './a2a/connection.ts'
import { loadConfigFile } from './config.ts'
import { storedCredentials } from './credentials.ts'
import { CommandFailure } from './failure.ts'
import { stopSignals } from './signals.ts'

export interface McpFlags {
  readonly config?: string
  readonly store?: string
  readonly logLevel?: NonNullable<NodeOptions['logLevel']>
  readonly installHint?: boolean
}

/** What a host is to run, and under which name. */
interface Served {
  readonly options: NodeOptions
  readonly warnings: readonly string[]
  readonly name: string
  /** The arguments that serve the same, from any folder. */
  readonly args: readonly string[]
}

/** Serves until stdin ends, or a signal says so; then ends the process, with what runs cancelled. A second signal ends it at once. */
export async function serveMcp(urls: readonly string[], flags: McpFlags): Promise<void> {
  if (flags.installHint === true) return printInstallHint(await toServed(urls, flags))
  // Tools that print something would break the protocol, from their first line on.
  const stdout = takeStdout()
  const { options, warnings } = await toServed(urls, flags)
  const logLevel = options.logLevel ?? 'warn'
  const asked = stopRequests()
  let node: Node | undefined
  try {
    node = await createNode(options)
    if (logLevel !== 'silent')
      for (const warning of [...warnings, ...node.warnings]) process.stderr.write(`warning: ${warning}\n`)
    await node.start({ listen: false })
    if (process.stdin.isTTY)
      process.stderr.write('This is for MCP hosts, which start it themselves: see --install-hint. Ctrl-D ends it.\n')
    const gone = node.mcp?.serveStdio({ stdin: process.stdin, stdout, caller: localCaller })
    await Promise.race([gone, asked])
  } catch (error) {
    throw new CommandFailure(1, error, logLevel === 'debug')
  } finally {
    await node?.stop()
  }
  await new Promise<void>((done) => stdout.end(done))
  process.exit(0)
}

/** With URLs those agents and all their tools; else the node of the configuration, with a store of its own. */
async function toServed(urls: readonly string[], flags: McpFlags): Promise<Served> {
  const { store = ':memory:' } = flags
  if (urls.length > 0) {
    if (flags.config !== undefined)
      throw new CommandFailure(2, 'Name a configuration with --config, or agents by their URLs, not both.')
    const peers = toPeers(urls)
    const [first = 'convoke'] = Object.keys(peers)
    const options: NodeOptions = {
      agent: { id: 'convoke-mcp', name: 'Convoke', description: `Tools of ${Object.keys(peers).join(', ')}.` },
      peers,
      publish: ['*'],
      discovery: { intervalMs: 60_000 },
    }
    const args = Object.values(peers).map(({ url }) => url)
    return { options: complete(options, flags, store), warnings: [], name: urls.length === 1 ? first : 'convoke', args }
  }
  const { options, warnings, file } = await loadConfigFile(flags.config)
  return {
    options: complete(options, flags, store),
    warnings,
    name: options.agent.id,
    args: ['--config', resolve(file)],
  }
}

function complete(options: NodeOptions, flags: McpFlags, store: string): NodeOptions {
  return {
    ...options,
    logLevel: flags.logLevel ?? options.logLevel ?? 'warn',
    // A node that is served from the same file has its own one open; what was seen of others' tools holds for both.
    store: { ...options.store, url: store },
    pins: { ...options.pins, file: options.pins?.file ?? pinsFile(options) },
    // The host is gone when this ends: nobody waits for what runs.
    server: { ...options.server, drainMs: 0 },
    mcp: { ...options.mcp, publish: true },
  }
}

function pinsFile({ store = {}, baseDir = '.' }: NodeOptions): string {
  return pinsPath(undefined, { store: store.url, baseDir }) ?? ':memory:'
}

function toPeers(urls: readonly string[]): Record<string, PeerOptions> {
  const peers: Record<string, PeerOptions> = {}
  for (const text of urls) {
    const url = /^https?:\/\//i.test(text) ? text : hostUrl(text)
    if (url === undefined || !URL.canParse(url)) throw new CommandFailure(2, `${JSON.stringify(text)} is not a URL.`)
    const auth = storedCredentials(url)
    // Whoever writes an address wants it, a private one too.
    peers[freeId(idOf(new URL(url)), peers)] = { url, allowPrivate: true, ...(auth === undefined ? {} : { auth }) }
  }
  return peers
}

/** What the tools of an agent begin with: the end of its path, else the first word of its host. */
function idOf({ hostname, pathname }: URL): string {
  const path = pathname.replace(/\/\.well-known\/.*$|\/[^/]*\.json$/, '')
  const [word = ''] = hostname.split('.')
  const name = basename(path) || (/^(?:localhost|www|\d+|\[.*)$/.test(word) ? 'peer' : word)
  return name.replace(/[^A-Za-z0-9_-]/g, '-').slice(0, 32)
}

function freeId(id: string, taken: Readonly<Record<string, unknown>>): string {
  let free = id
  for (let i = 2; Object.hasOwn(taken, free); i++) free = `${id}-${i}`
  return free
}

/** stdout for the protocol alone: whatever else is written to it goes to stderr from now on. */
function takeStdout(): Writable {
  const write = process.stdout.write.bind(process.stdout)
  process.stdout.write = process.stderr.write.bind(process.stderr)
  return new Writable({
    decodeStrings: false,
    write: (chunk: string, encoding, done) => void write(chunk, encoding, done),
  })
}

/** Resolves with the first signal to stop; a second one ends the process. */
function stopRequests(): Promise<void> {
  return new Promise((done) => {
    let isAsked = false
    const onSignal = (): void => {
      if (isAsked) process.exit(130)
      isAsked = true
      done()
    }
    for (const signal of stopSignals) process.on(signal, onSignal)
    // The host reads no further.
    process.on('SIGPIPE', () => done())
  })
}

/** The block for the host's configuration on stdout; where it belongs on stderr. */
function printInstallHint({ name, args }: Served): void {
  const script = fileURLToPath(new URL('./main.js', import.meta.url))
  const server = { command: process.execPath, args: [script, 'mcp', ...args] }
  process.stdout.write(`${JSON.stringify({ mcpServers: { [name]: server } }, null, 2)}\n`)
  process.stderr.write(
    `Claude Desktop: into claude_desktop_config.json. Claude Code, Cursor and others: into .mcp.json.
VS Code: into .vscode/mcp.json, with "servers" in place of "mcpServers".\n`,
  )
}
