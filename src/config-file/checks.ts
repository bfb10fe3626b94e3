/** What is wrong with a configuration file that a schema cannot say. */
import { readOutputSchema, readPrompt } from '../agent-files.ts'
import { ConvokeError } from '../base/errors.ts'
import { isSecret } from '../base/secrets.ts'
import type { PeerOptions } from '../peers/peer.ts'
import { isLoopback } from '../server/auth/origin.ts'
import { schemaProblem, ToolPolicy } from '../tools/policy.ts'
import { clip, toPointer } from '../tools/value.ts'
import { defaultPort, type ConfigFile } from './contents.ts'
import type { Path } from './path.ts'
import { showPath } from './privacy.ts'
import { messageOf, schemaAt, similarOf } from './schema.ts'
import type { Source } from './source.ts'
import { isOff } from './variables.ts'

/**
 * Tells the source what is wrong, and warns of what looks like a mistake. Reads the files that the agent's options name;
 * relative paths start from `baseDir`.
 */
export async function checkContents(
  source: Source,
  config: ConfigFile,
  baseDir: string,
  fromEnvironment: ReadonlyMap<string, string>,
): Promise<void> {
  checkServer(source, config)
  checkPeers(source, config, fromEnvironment)
  checkModels(source, config, fromEnvironment)
  await checkAgent(source, config, { baseDir, fromEnvironment })
  checkPolicy(source, config)
  checkPins(source, config)
  checkNames(source, config)
}

function checkServer(source: Source, { server = {} }: ConfigFile): void {
  if (server.publicUrl !== undefined && !URL.canParse(server.publicUrl)) {
    source.add(['server', 'publicUrl'], `server.publicUrl ${messageOf(schemaAt(['server', 'publicUrl']))}.`)
  }
  const jwksUrl = server.auth?.jwt?.jwksUrl
  const jwksPath = ['server', 'auth', 'jwt', 'jwksUrl']
  if (jwksUrl !== undefined && !URL.canParse(jwksUrl)) {
    source.add(jwksPath, `${showPath(jwksPath)} ${messageOf(schemaAt(jwksPath))}.`)
  } else if (jwksUrl !== undefined) {
    const url = new URL(jwksUrl)
    if (url.protocol === 'http:' && !isLoopback(url.hostname)) {
      source.warn(
        jwksPath,
        `${showPath(jwksPath)} is plain http: whoever sits on the way can put in keys of their own.`,
      )
    }
  }
  const hashes = new Map<string, number>()
  for (const [index, { sha256 }] of (server.auth?.tokens ?? []).entries()) {
    const first = hashes.get(sha256.toLowerCase())
    if (first === undefined) hashes.set(sha256.toLowerCase(), index)
    else {
      const path = ['server', 'auth', 'tokens', String(index)]
      source.add(
        path,
        `${showPath(path)} has the same hash as server.auth.tokens[${first}]; give each caller a token of its own.`,
      )
    }
  }
}

function checkPeers(source: Source, config: ConfigFile, fromEnvironment: ReadonlyMap<string, string>): void {
  for (const [index, url] of (config.discovery?.directory ?? []).entries()) {
    checkUrl(source, ['discovery', 'directory', String(index)], url)
  }
  for (const [id, { url, auth }] of Object.entries(config.peers ?? {})) {
    const path = ['peers', id]
    if (checkUrl(source, [...path, 'url'], url)) {
      const { protocol, hostname } = new URL(url)
      if (auth !== undefined && protocol === 'http:' && !isLoopback(hostname)) {
        source.warn(
          [...path, 'url'],
          `${showPath(path)} is sent credentials over plain http: whoever sits on the way can read them.`,
        )
      }
      if (isOwnUrl(url, config)) {
        source.warn([...path, 'url'], `${showPath(path)} is this node itself; its own tools need no peer.`)
      }
    }
    if (Object.hasOwn(config.mcpServers ?? {}, id) && !isOff(config, ['mcpServers', id])) {
      source.add(path, `${showPath(path)} has the id of an MCP server; each of them needs an id of its own.`, 'key')
    }
    const { bearer, apiKey, oauth2 } = (auth ?? {}) as { bearer?: string; apiKey?: string; oauth2?: OAuthInFile }
    if (oauth2 !== undefined) checkTokenUrl(source, [...path, 'auth', 'oauth2', 'tokenUrl'], oauth2.tokenUrl)
    const secrets: [secret: string | undefined, ...place: string[]][] = [
      [bearer, 'bearer'],
      [apiKey, 'apiKey'],
      [oauth2?.clientSecret, 'oauth2', 'clientSecret'],
    ]
    for (const [secret, ...place] of secrets) {
      const where = [...path, 'auth', ...place]
      if (secret !== undefined) warnOfSecret(source, where, fromEnvironment)
    }
  }
}

function warnOfSecret(source: Source, path: Path, fromEnvironment: ReadonlyMap<string, string>): void {
  if (fromEnvironment.has(toPointer(path))) return
  source.warn(
    path,
    `${showPath(path)} stands in the file in clear text; put it into the environment and write "\${env:NAME}".`,
  )
}

function checkModels(source: Source, { models = {} }: ConfigFile, fromEnvironment: ReadonlyMap<string, string>): void {
  for (const [name, { baseUrl, apiKey, headers = {} }] of Object.entries(models)) {
    const path = ['models', name]
    if (
      checkUrl(
        source,
        [...path, 'baseUrl'],
        baseUrl,
        'which is shown to people; credentials belong into apiKey or headers',
      )
    ) {
      const { protocol, hostname } = new URL(baseUrl)
      const hasSecrets = apiKey !== undefined || Object.keys(headers).length > 0
      if (hasSecrets && protocol === 'http:' && !isLoopback(hostname)) {
        source.warn(
          [...path, 'baseUrl'],
          `${showPath(path)} is sent credentials over plain http: whoever sits on the way can read them.`,
        )
      }
    }
    if (apiKey !== undefined) warnOfSecret(source, [...path, 'apiKey'], fromEnvironment)
    for (const header of Object.keys(headers)) {
      if (isSecret(header, '')) warnOfSecret(source, [...path, 'headers', header], fromEnvironment)
    }
  }
}

interface AgentSurroundings {
  readonly baseDir: string
  readonly fromEnvironment: ReadonlyMap<string, string>
}

async function checkAgent(
  source: Source,
  config: ConfigFile,
  { baseDir, fromEnvironment }: AgentSurroundings,
): Promise<void> {
  const { agent, models = {}, peers = {} } = config
  const { react, module } = agent
  if (react === undefined) return
  const path = ['agent', 'react']
  const at = (...keys: string[]): Path => [...path, ...keys]
  // What comes from the environment is named, and not shown.
  const got = (where: Path, value: string): string =>
    `got ${fromEnvironment.get(toPointer(where)) ?? clip(JSON.stringify(value), 80)}`
  if (module !== undefined) {
    source.add(['agent', 'module'], 'agent.module and agent.react both answer messages; keep one of them.', 'key')
  }
  const { model, prompt, outputSchema, tools = [], agents = [] } = react
  if (!Object.hasOwn(models, model)) {
    const written = got(at('model'), model)
    source.add(
      at('model'),
      `agent.react.model names no model, ${written}; ${knownOr('models', Object.keys(models), model)}`,
    )
  }
  for (const [index, id] of agents.entries()) {
    if (Object.hasOwn(peers, id)) continue
    const where = at('agents', String(index))
    source.add(
      where,
      `${showPath(where)} names no peer, ${got(where, id)}; ${knownOr('peers', Object.keys(peers), id)}`,
    )
  }
  if (agents.length > 0 && config.features?.delegate === false) {
    source.add(at('agents'), 'agent.react.agents needs peers, and features.delegate is false.')
  }
  for (const [index, glob] of tools.entries()) {
    const [, service] = /^([^.*]*)\./.exec(glob) ?? []
    if (service === undefined || maybeService(config, service)) continue
    const where = at('tools', String(index))
    source.warn(where, `${showPath(where)} gives nothing: there is no peer or MCP server ${service}.`)
  }
  if (prompt !== undefined) await tell(source, at('prompt'), readPrompt(prompt, baseDir))
  if (outputSchema !== undefined) await tell(source, at('outputSchema'), readOutputSchema(outputSchema, baseDir))
}

async function tell(source: Source, path: Path, reading: Promise<unknown>): Promise<void> {
  try {
    await reading
  } catch (error) {
    source.add(path, `${showPath(path)} ${ConvokeError.from(error).message}`)
  }
}

/** What was probably meant by a name that is none. */
function knownOr(key: string, known: readonly string[], name: string): string {
  const similar = similarOf(name, known)
  if (similar !== undefined) return `did you mean ${similar}?`
  return known.length === 0 ? `there are no ${key} in the file.` : `there are ${known.slice(0, 20).join(', ')}.`
}

function checkPolicy(source: Source, { toolPolicy = [] }: ConfigFile): void {
  let isWrong = false
  for (const [index, { arguments: schema }] of toolPolicy.entries()) {
    const problem = schema === undefined ? undefined : schemaProblem(schema)
    if (problem === undefined) continue
    isWrong = true
    const path = ['toolPolicy', String(index), 'arguments']
    source.add(path, `${showPath(path)} ${problem}.`)
  }
  if (isWrong) return
  for (const index of new ToolPolicy(toolPolicy).unreachable()) {
    const path = ['toolPolicy', String(index)]
    source.warn(path, `${showPath(path)} is never reached: a rule before it matches every call.`)
  }
}

function checkPins(source: Source, config: ConfigFile): void {
  for (const id of Object.keys(config.pins?.services ?? {})) {
    if (maybeService(config, id)) continue
    const path = ['pins', 'services', id]
    source.warn(path, `${showPath(path)} is for nobody: there is no peer or MCP server of that id.`)
  }
}

/** Aliases and globs that lead nowhere: which tools there are is not known here, whose they are is. */
function checkNames(source: Source, config: ConfigFile): void {
  const { aliases = {}, publish = [] } = config
  for (const [alias, handle] of Object.entries(aliases)) {
    const path = ['aliases', alias]
    const [, service] = /^([^.]*)\./.exec(handle) ?? []
    if (service !== undefined && !maybeService(config, service)) {
      source.warn(path, `${showPath(path)} leads nowhere: there is no peer or MCP server ${service}.`)
    }
    const behind = Object.hasOwn(aliases, handle) ? aliases[handle] : undefined
    if (behind !== undefined) {
      source.warn(path, `${showPath(path)} is the alias of an alias, which is not followed; write ${behind}.`)
    }
  }
  for (const [index, glob] of publish.entries()) {
    const [, service] = /^([^.*]*)\./.exec(glob) ?? []
    if (service === undefined || maybeService(config, service)) continue
    const path = ['publish', String(index)]
    source.warn(path, `${showPath(path)} publishes nothing: there is no peer or MCP server ${service}.`)
  }
}

/** Whether there is a peer or an MCP server of that id. Those found in a directory have ids that the file does not know. */
function maybeService({ peers = {}, mcpServers = {}, discovery }: ConfigFile, id: string): boolean {
  return discovery?.directory !== undefined || Object.hasOwn(peers, id) || Object.hasOwn(mcpServers, id)
}

type OAuthInFile = Extract<PeerOptions['auth'], { oauth2: unknown }>['oauth2']

const notSent = 'which is not sent; credentials belong into auth'

/** Whether it is one, without user and password, which would be sent to nobody and be seen by everybody. */
function checkUrl(source: Source, path: Path, url: string, why = notSent): boolean {
  if (!URL.canParse(url)) {
    source.add(path, `${showPath(path)} ${messageOf(schemaAt(path))}.`)
    return false
  }
  const { username, password } = new URL(url)
  if (username === '' && password === '') return true
  source.add(path, `${showPath(path)} has a user or a password in it, ${why}.`)
  return false
}

function checkTokenUrl(source: Source, path: Path, url: string): void {
  const { protocol, hostname } = URL.canParse(url) ? new URL(url) : { protocol: '', hostname: '' }
  if (protocol === 'https:' || (protocol === 'http:' && isLoopback(hostname))) return
  source.add(path, `${showPath(path)} ${messageOf(schemaAt(path))}.`)
}

/** As far as the file tells: other names may lead here as well. */
function isOwnUrl(url: string, { server = {} }: ConfigFile): boolean {
  const { host = '127.0.0.1', port = defaultPort, publicUrl, basePath = '/' } = server
  if (publicUrl !== undefined && toBase(publicUrl) === toBase(url)) return true
  const peer = new URL(url)
  const isThisMachine = isLoopback(peer.hostname) && (isLoopback(host) || host === '0.0.0.0' || host === '::')
  const own = `http://${isThisMachine ? peer.hostname : host}:${port}${basePath}`
  return URL.canParse(own) && toBase(own) === toBase(url)
}

function toBase(url: string): string {
  const { origin, pathname } = new URL(url)
  return origin + pathname.replace(/(\/\.well-known\/agent(-card)?\.json)?\/*$/, '')
}
