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
import { messageOf, schemaAt, similarOf } from './schema.ts'
import type { Source } from './source.ts'
import { isOff } from './variables.ts'

/**
 * Tells the source what is wrong, and warns of what looks like a mistake. Reads the files that the agent's options name;
 * relative paths start from `baseDir`.
 */
export async function checkContents(source: Source, config: ConfigFile, baseDir: string): Promise<void> {
  checkServer(source, config)
  checkPeers(source, config)
  checkModels(source, config)
  await checkAgent(source, config, baseDir)
  checkPolicy(source, config)
  checkPins(source, config)
  checkNames(source, config)
}

function checkServer(source: Source, { server = {} }: ConfigFile): void {
  if (server.publicUrl !== undefined && !URL.canParse(server.publicUrl)) refuse(source, ['server', 'publicUrl'])
  const jwksUrl = server.auth?.jwt?.jwksUrl
  const jwksPath = ['server', 'auth', 'jwt', 'jwksUrl']
  if (jwksUrl !== undefined && !URL.canParse(jwksUrl)) refuse(source, jwksPath)
  else if (jwksUrl !== undefined && isOpen(new URL(jwksUrl)))
    source.warn(jwksPath, 'is plain http: whoever sits on the way can put in keys of their own.')
  const hashes = new Map<string, number>()
  for (const [index, { sha256 }] of (server.auth?.tokens ?? []).entries()) {
    const first = hashes.get(sha256.toLowerCase())
    if (first === undefined) hashes.set(sha256.toLowerCase(), index)
    else {
      const words = `has the same hash as server.auth.tokens[${first}]; give each caller a token of its own.`
      source.add(['server', 'auth', 'tokens', String(index)], words)
    }
  }
}

function checkPeers(source: Source, config: ConfigFile): void {
  for (const [index, url] of (config.discovery?.directory ?? []).entries()) {
    checkUrl(source, ['discovery', 'directory', String(index)], url, notSent)
  }
  for (const [id, { url, auth }] of Object.entries(config.peers ?? {})) {
    const name = ['peers', id]
    const urlPath = [...name, 'url']
    const address = checkUrl(source, urlPath, url, notSent)
    if (address !== undefined) {
      if (auth !== undefined && isOpen(address)) source.warn(urlPath, sentInClear, { name })
      if (isOwnUrl(address, config)) source.warn(urlPath, 'is this node itself; its own tools need no peer.', { name })
    }
    if (Object.hasOwn(config.mcpServers ?? {}, id) && !isOff(config, ['mcpServers', id]))
      source.add(name, 'has the id of an MCP server; each of them needs an id of its own.', { at: 'key' })
    const { bearer, apiKey, oauth2 } = (auth ?? {}) as { bearer?: string; apiKey?: string; oauth2?: OAuthInFile }
    if (oauth2 !== undefined) checkTokenUrl(source, [...name, 'auth', 'oauth2', 'tokenUrl'], oauth2.tokenUrl)
    const secrets: [secret: string | undefined, ...place: string[]][] = [
      [bearer, 'bearer'],
      [apiKey, 'apiKey'],
      [oauth2?.clientSecret, 'oauth2', 'clientSecret'],
    ]
    for (const [secret, ...place] of secrets) {
      if (secret !== undefined) warnOfSecret(source, [...name, 'auth', ...place])
    }
  }
}

function warnOfSecret(source: Source, path: Path): void {
  if (source.variables.has(toPointer(path))) return
  source.warn(path, 'stands in the file in clear text; put it into the environment and write "${env:NAME}".')
}

function checkModels(source: Source, { models = {} }: ConfigFile): void {
  for (const [id, { baseUrl, apiKey, headers = {} }] of Object.entries(models)) {
    const name = ['models', id]
    const urlPath = [...name, 'baseUrl']
    const address = checkUrl(source, urlPath, baseUrl, shown)
    const hasSecrets = apiKey !== undefined || Object.keys(headers).length > 0
    if (address !== undefined && hasSecrets && isOpen(address)) source.warn(urlPath, sentInClear, { name })
    if (apiKey !== undefined) warnOfSecret(source, [...name, 'apiKey'])
    for (const header of Object.keys(headers)) {
      if (isSecret(header, '')) warnOfSecret(source, [...name, 'headers', header])
    }
  }
}

async function checkAgent(source: Source, config: ConfigFile, baseDir: string): Promise<void> {
  const { agent, models = {}, peers = {} } = config
  const { react, module } = agent
  if (react === undefined) return
  const at = (...keys: string[]): Path => ['agent', 'react', ...keys]
  // What comes from the environment is named, and not shown.
  const got = (where: Path, value: string): string =>
    `got ${source.variables.get(toPointer(where)) ?? clip(JSON.stringify(value), 80)}`
  if (module !== undefined)
    source.add(['agent', 'module'], 'and agent.react both answer messages; keep one of them.', { at: 'key' })
  const { model, prompt, outputSchema, tools = [], agents = [] } = react
  if (!Object.hasOwn(models, model)) {
    const where = at('model')
    source.add(where, `names no model, ${got(where, model)}; ${knownOr('models', Object.keys(models), model)}`)
  }
  for (const [index, id] of agents.entries()) {
    if (Object.hasOwn(peers, id)) continue
    const where = at('agents', String(index))
    source.add(where, `names no peer, ${got(where, id)}; ${knownOr('peers', Object.keys(peers), id)}`)
  }
  if (agents.length > 0 && config.features?.delegate === false)
    source.add(at('agents'), 'needs peers, and features.delegate is false.')
  for (const [index, glob] of tools.entries()) {
    const service = strangerIn(glob, config)
    if (service === undefined) continue
    source.warn(at('tools', String(index)), `gives nothing: there is no peer or MCP server ${service}.`)
  }
  if (prompt !== undefined) await tell(source, at('prompt'), readPrompt(prompt, baseDir))
  if (outputSchema !== undefined) await tell(source, at('outputSchema'), readOutputSchema(outputSchema, baseDir))
}

async function tell(source: Source, path: Path, reading: Promise<unknown>): Promise<void> {
  try {
    await reading
  } catch (error) {
    source.add(path, ConvokeError.from(error).message)
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
    source.add(['toolPolicy', String(index), 'arguments'], `${problem}.`)
  }
  if (isWrong) return
  for (const index of new ToolPolicy(toolPolicy).unreachable()) {
    source.warn(['toolPolicy', String(index)], 'is never reached: a rule before it matches every call.')
  }
}

function checkPins(source: Source, config: ConfigFile): void {
  for (const id of Object.keys(config.pins?.services ?? {})) {
    if (maybeService(config, id)) continue
    source.warn(['pins', 'services', id], 'is for nobody: there is no peer or MCP server of that id.')
  }
}

/** Aliases and globs that lead nowhere: which tools there are is not known here, whose they are is. */
function checkNames(source: Source, config: ConfigFile): void {
  const { aliases = {}, publish = [] } = config
  for (const [alias, handle] of Object.entries(aliases)) {
    const path = ['aliases', alias]
    const service = strangerIn(handle, config)
    if (service !== undefined) source.warn(path, `leads nowhere: there is no peer or MCP server ${service}.`)
    const behind = Object.hasOwn(aliases, handle) ? aliases[handle] : undefined
    if (behind !== undefined) source.warn(path, `is the alias of an alias, which is not followed; write ${behind}.`)
  }
  for (const [index, glob] of publish.entries()) {
    const service = strangerIn(glob, config)
    if (service === undefined) continue
    source.warn(['publish', String(index)], `publishes nothing: there is no peer or MCP server ${service}.`)
  }
}

/** The peer or MCP server that a handle or a glob over handles names, if there is none of that id. */
function strangerIn(handle: string, config: ConfigFile): string | undefined {
  const [, service] = /^([^.*]*)\./.exec(handle) ?? []
  return service === undefined || maybeService(config, service) ? undefined : service
}

/** Whether there is a peer or an MCP server of that id. Those found in a directory have ids that the file does not know. */
function maybeService({ peers = {}, mcpServers = {}, discovery }: ConfigFile, id: string): boolean {
  return discovery?.directory !== undefined || Object.hasOwn(peers, id) || Object.hasOwn(mcpServers, id)
}

type OAuthInFile = Extract<PeerOptions['auth'], { oauth2: unknown }>['oauth2']

const notSent = 'which is not sent; credentials belong into auth'
const shown = 'which is shown to people; credentials belong into apiKey or headers'
const sentInClear = 'is sent credentials over plain http: whoever sits on the way can read them.'

/** In the words of the schema, which takes any text. */
function refuse(source: Source, path: Path): void {
  source.add(path, `${messageOf(schemaAt(path))}.`)
}

/** The URL, if it is one, and without user and password: they would be sent to nobody and be seen by everybody. */
function checkUrl(source: Source, path: Path, text: string, why: string): URL | undefined {
  if (!URL.canParse(text)) {
    refuse(source, path)
    return undefined
  }
  const url = new URL(text)
  if (url.username === '' && url.password === '') return url
  source.add(path, `has a user or a password in it, ${why}.`)
  return undefined
}

function checkTokenUrl(source: Source, path: Path, text: string): void {
  const url = URL.canParse(text) ? new URL(text) : undefined
  if (url?.protocol === 'https:' || (url?.protocol === 'http:' && isLoopback(url.hostname))) return
  refuse(source, path)
}

/** Whether others can read what is sent there. */
function isOpen({ protocol, hostname }: URL): boolean {
  return protocol === 'http:' && !isLoopback(hostname)
}

/** As far as the file tells: other names may lead here as well. */
function isOwnUrl(peer: URL, { server = {} }: ConfigFile): boolean {
  const { host = '127.0.0.1', port = defaultPort, publicUrl, basePath = '/' } = server
  const isSame = (own: string): boolean => URL.canParse(own) && toBase(new URL(own)) === toBase(peer)
  if (publicUrl !== undefined && isSame(publicUrl)) return true
  const isThisMachine = isLoopback(peer.hostname) && (isLoopback(host) || host === '0.0.0.0' || host === '::')
  return isSame(`http://${isThisMachine ? peer.hostname : host}:${port}${basePath}`)
}

function toBase({ origin, pathname }: URL): string {
  return origin + pathname.replace(/(\/\.well-known\/agent(-card)?\.json)?\/*$/, '')
}
