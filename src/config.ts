/** The configuration file: from YAML or JSON to {@link NodeOptions}. The only file of the node that reads the environment. */
import { readFile } from 'node:fs/promises'
import { dirname, resolve } from 'node:path'
import { ConvokeError } from './base/errors.ts'
import { whyUnreadable } from './base/unreadable.ts'
import { checkContents } from './config-file/checks.ts'
import { defaultPort, type ConfigFile } from './config-file/contents.ts'
import { explain } from './config-file/explain.ts'
import { messageOf, schemaAt, validateConfig } from './config-file/schema.ts'
import { Source } from './config-file/source.ts'
import { replaceVariables, type Environment } from './config-file/variables.ts'
import type { NodeOptions } from './options.ts'
import type { PeerOptions } from './peers/peer.ts'

export interface LoadedConfig {
  /** With the defaults of a file: port 4120, a SQLite file below its folder, peers asked each minute, `baseDir` its folder. */
  readonly options: NodeOptions
  /** What works and yet looks like a mistake, one sentence each. */
  readonly warnings: readonly string[]
  /** What stands in the file where a text holds a `${env:NAME}`, by JSON pointers. */
  readonly variables: ReadonlyMap<string, string>
}

/** The variables of this process. Of these, programs that tools start get a few harmless ones. */
export function processEnvironment(): Environment {
  return process.env
}

const defaultStoreUrl = 'sqlite:./data/convoke.db'
/** A node that is served finds by itself what its peers have become. */
const defaultDiscoveryMs = 60_000

/**
 * Reads a configuration file and replaces each `${env:NAME}` in its texts, and below `mcpServers` the spellings of other
 * hosts, `${NAME}` and `${NAME:-default}`, too. Throws one `config` error that names every mistake, a line each
 * (`FILE:LINE:COLUMN: …`), and never a secret: no value from below `server.auth`, from `auth`, `headers` and `tls.ca` of a peer,
 * `apiKey` and `headers` of a model, or from a server of `mcpServers`, no user and password of a URL, nothing from the environment.
 */
export async function loadConfig(file: string, environment: Environment = process.env): Promise<LoadedConfig> {
  const source = new Source(file, await readText(file))
  const value = replaceVariables(source, environment)
  const issues = validateConfig(value)
  for (const path of new Set(issues.map((issue) => issue.path))) explain(source, value, path)
  source.throwProblems()

  // The schema has just said that it is one.
  const contents = value as ConfigFile
  const baseDir = dirname(resolve(file))
  await checkContents(source, contents, baseDir)
  const { $schema: _, peers: asWritten, ...config } = contents
  const peers = await readAuthorities(source, asWritten, baseDir)
  source.throwProblems()
  return {
    options: {
      ...config,
      ...(peers === undefined ? {} : { peers }),
      server: { port: defaultPort, ...config.server },
      store: { url: defaultStoreUrl, ...config.store },
      discovery: { intervalMs: defaultDiscoveryMs, ...config.discovery },
      baseDir,
    },
    warnings: source.warnings,
    variables: source.variables,
  }
}

async function readText(file: string): Promise<string> {
  try {
    return await readFile(file, 'utf8')
  } catch (cause) {
    throw new ConvokeError('config', `Cannot read the configuration ${file}: ${whyUnreadable(cause)}.`, { cause })
  }
}

/** The peers with the text of each `tls.caFile` as their `tls.ca`. */
async function readAuthorities(
  source: Source,
  peers: ConfigFile['peers'],
  baseDir: string,
): Promise<Record<string, PeerOptions> | undefined> {
  if (peers === undefined) return undefined
  const entries = Object.entries(peers).map(async ([id, peer]): Promise<[string, PeerOptions]> => {
    const { caFile, ...tls } = peer.tls ?? {}
    if (caFile === undefined) return [id, peer]
    const path = ['peers', id, 'tls', 'caFile']
    const add = (why: string): void => source.add(path, `${messageOf(schemaAt(path))}, but ${why}.`)
    let ca = ''
    try {
      ca = await readFile(resolve(baseDir, caFile), 'utf8')
      if (!ca.includes('-----BEGIN CERTIFICATE-----')) add('it holds none')
    } catch (error) {
      add(whyUnreadable(error))
    }
    return [id, { ...peer, tls: { ...tls, ca } }]
  })
  return Object.fromEntries(await Promise.all(entries))
}
