/**
 * The configuration file: from YAML or JSON to {@link NodeOptions}. The only file of the node that reads the environment.
 *
 * `convoke.schema.json` is the one description of what may stand in it, for editors and for this check. Its
 * keyword `errorMessage` (editors know it too) holds the words in which a mistake is told; the validator only
 * says where the mistakes are.
 */
import { readFileSync } from 'node:fs'
import { readFile } from 'node:fs/promises'
import { dirname, resolve } from 'node:path'
import { isAlias, isMap, isScalar, isSeq, LineCounter, parseDocument, visit } from 'yaml'
import type { Document, Node, Pair, YAMLError } from 'yaml'
import type { Issue } from './base/errors.ts'
import { ConvokeError } from './base/errors.ts'
import type { JsonObject } from './base/json.ts'
import { isObject } from './base/json.ts'
import { isSecret } from './base/secrets.ts'
import { readOutputSchema, readPrompt, whyUnreadable } from './agent-files.ts'
import { rewriteOlderShapes } from './older-config/shapes.ts'
import type { NodeOptions } from './options.ts'
import type { PeerOptions } from './peers/peer.ts'
import { isLoopback } from './server/auth/origin.ts'
import { schemaProblem, ToolPolicy } from './tools/policy.ts'
import { compile } from './tools/schema.ts'
import { clip, closest, toPointer } from './tools/value.ts'

export interface LoadedConfig {
  /** With the defaults of a file: port 4120, a SQLite file below its folder, peers asked each minute, `baseDir` its folder. */
  readonly options: NodeOptions
  /** What works and yet looks like a mistake, one sentence each. */
  readonly warnings: readonly string[]
  /** What stands in the file where a text holds a `${env:NAME}`, by JSON pointers. */
  readonly variables: ReadonlyMap<string, string>
}

export type Environment = Readonly<Record<string, string | undefined>>

/** The variables of this process. Of these, programs that tools start get a few harmless ones. */
export function processEnvironment(): Environment {
  return process.env
}

/**
 * Reads a configuration file and replaces each `${env:NAME}` in its texts, and below `mcpServers` the spellings of other
 * hosts, `${NAME}` and `${NAME:-default}`, too. Throws one `config` error that names
 * every mistake, a line each (`FILE:LINE:COLUMN: …`), and never a secret: no value from below `server.auth`, from `auth`
 * and `headers` of a peer, `apiKey` and `headers` of a model, or from a server of `mcpServers`, no user and password of a URL, nothing from the environment.
 */
export async function loadConfig(file: string, environment: Environment = process.env): Promise<LoadedConfig> {
  const source = new Source(file, await readText(file))
  const [value, fromEnvironment] = replaceVariables(source, environment)
  const issues = validateConfig(value)
  for (const path of new Set(issues.map((issue) => issue.path))) explain(source, value, path, fromEnvironment)
  source.throwProblems()

  // The schema has just said that it is one.
  const { $schema: _, peers, ...config } = value as ConfigFile
  const baseDir = dirname(resolve(file))
  checkServer(source, config)
  checkPeers(source, { peers, ...config }, fromEnvironment)
  checkModels(source, config, fromEnvironment)
  await checkAgent(source, { peers, ...config }, { baseDir, fromEnvironment })
  checkPolicy(source, config)
  checkPins(source, { peers, ...config })
  checkNames(source, { peers, ...config })
  const withAuthorities = await readAuthorities(source, peers, baseDir)
  source.throwProblems()
  return {
    options: {
      ...config,
      ...(withAuthorities === undefined ? {} : { peers: withAuthorities }),
      server: { port: defaultPort, ...config.server },
      store: { url: defaultStoreUrl, ...config.store },
      discovery: { intervalMs: defaultDiscoveryMs, ...config.discovery },
      baseDir,
    },
    warnings: source.warnings,
    variables: fromEnvironment,
  }
}

/** What a file holds: the node's options as far as text can say them. */
type ConfigFile = Omit<NodeOptions, 'onMessage' | 'baseDir' | 'peers'> & {
  readonly $schema?: string
  readonly peers?: Peers | undefined
}

type Peers = Readonly<Record<string, PeerInFile>>

interface PeerInFile extends Omit<PeerOptions, 'tls'> {
  readonly tls?: PeerOptions['tls'] & { readonly caFile?: string }
}

const defaultPort = 4120
const defaultStoreUrl = 'sqlite:./data/convoke.db'
/** A node that is served finds by itself what its peers have become. */
const defaultDiscoveryMs = 60_000

async function readText(file: string): Promise<string> {
  try {
    return await readFile(file, 'utf8')
  } catch (cause) {
    throw new ConvokeError('config', `Cannot read the configuration ${file}: ${whyUnreadable(cause)}.`, { cause })
  }
}

/** Keys and indices from the top of the file down. */
type Path = readonly string[]

/** A parsed file that knows where each value stands, and gathers what is wrong with it. */
class Source {
  readonly problems: { offset: number; path: string; sentence: string }[] = []
  readonly warnings: string[] = []
  readonly value: unknown
  readonly #file: string
  readonly #lines = new LineCounter()
  #document: Document

  /** Throws when the text is so broken that its values would mean nothing. */
  constructor(file: string, text: string) {
    this.#file = file
    this.#document = parseDocument(text, {
      lineCounter: this.#lines,
      prettyErrors: false,
      stringKeys: true,
      logLevel: 'error',
    })
    if (this.#document.contents === null && this.#document.errors.length === 0) {
      this.#addAt(0, [], 'The file is empty. It must at least say who the node is: agent: { id: NAME }.')
    }
    const reportedLines = new Set<number>()
    for (const error of [...this.#document.errors, ...this.#document.warnings]) {
      // One mistake makes the parser stumble several times in a line.
      const { line } = this.#lines.linePos(error.pos[0])
      if (reportedLines.has(line)) continue
      reportedLines.add(line)
      this.#addAt(error.pos[0], [], this.#syntaxSentence(error, lineAt(text, error.pos[0])))
    }
    visit(this.#document, {
      Alias: (_key, node) => {
        if (node.resolve(this.#document) === undefined) {
          this.#addAt(node.range?.[0] ?? 0, [], 'Nothing in the file defines this alias.')
        }
      },
    })
    if (this.problems.some((problem) => !problem.sentence.endsWith(keepOne))) this.throwProblems()
    const value = this.#toValue()
    this.value = this.#takeOlderShapes() ? this.#toValue() : value
  }

  add(path: Path, sentence: string, at: 'key' | 'value' = 'value'): void {
    const { key, value } = this.#find(path)
    // An empty value has no place of its own.
    const node = at === 'value' && value !== undefined && !isEmpty(value) ? value : (key ?? value)
    this.#addAt(node?.range?.[0] ?? 0, path, sentence)
  }

  warn(path: Path, sentence: string): void {
    this.warnings.push(`${this.#place(this.#find(path).value?.range?.[0] ?? 0)}: ${sentence}`)
  }

  /** A scalar as it stands in the file: `1.0` where the value is 1. */
  text(path: Path): string | undefined {
    const { value } = this.#find(path)
    return isScalar(value) ? value.source : undefined
  }

  throwProblems(): void {
    if (this.problems.length === 0) return
    const sorted = this.problems.toSorted((a, b) => a.offset - b.offset)
    const issues: Issue[] = sorted.map(({ offset, path, sentence }) => ({
      path,
      message: `${this.#place(offset)}: ${sentence}`,
    }))
    throw new ConvokeError('config', issues.map((issue) => issue.message).join('\n'), { issues })
  }

  #addAt(offset: number, path: Path, sentence: string): void {
    this.problems.push({ offset, path: toPointer(masked(path)), sentence })
  }

  #place(offset: number): string {
    const { line, col } = this.#lines.linePos(offset)
    return `${this.#file}:${Math.max(line, 1)}:${Math.max(col, 1)}`
  }

  /** Puts older shapes into today's, with a warning each. Returns whether there were any. */
  #takeOlderShapes(): boolean {
    const copy = this.#document.clone()
    const changed = rewriteOlderShapes(copy, {
      warn: (offset, sentence) => void this.warnings.push(`${this.#place(offset)}: ${sentence}`),
      add: (offset, sentence) => this.#addAt(offset, [], sentence),
    })
    if (changed) this.#document = copy
    return changed
  }

  #toValue(): unknown {
    try {
      const value: unknown = this.#document.toJS()
      // An alias inside of its own anchor makes a value without end.
      JSON.stringify(value)
      return value
    } catch (cause) {
      throw new ConvokeError('config', `${this.#file}: The aliases of the file refer to themselves, or blow up.`, {
        cause,
      })
    }
  }

  #find(path: Path): { key?: Node; value?: Node } {
    let found: { key?: Node; value?: Node } = this.#document.contents === null ? {} : { value: this.#document.contents }
    for (const segment of path) {
      const parent = isAlias(found.value) ? found.value.resolve(this.#document) : found.value
      if (isMap<Node, Node | null>(parent)) {
        const pair = parent.items.find(({ key }) => isScalar(key) && String(key.value) === segment)
        if (pair === undefined) return {}
        found = { key: pair.key, ...(pair.value === null ? {} : { value: pair.value }) }
      } else if (isSeq<Node>(parent)) {
        const item = parent.items[Number(segment)]
        if (item === undefined) return {}
        found = { value: item }
      } else {
        return {}
      }
    }
    return found
  }

  /** The parser's own messages may quote the text, where secrets may be: only the words up to the quotation are used. */
  #syntaxSentence(error: YAMLError, line: string): string {
    if (error.code === 'TAB_AS_INDENT') return 'YAML is indented with spaces, and here is a tab.'
    if (error.code === 'MULTIPLE_DOCS') return 'A second document begins here; the file must hold one.'
    if (error.code === 'DUPLICATE_KEY')
      return `The key ${showPath(this.#pathOfKey(error.pos[0]))} is there twice; ${keepOne}`
    const words = error.message.split(/[:"\\]/, 1)[0]?.trim() ?? ''
    const hint = line.includes('${env:')
      ? ' Inside of { } and [ ], put quotes round a text with a variable: "${env:NAME}".'
      : error.code === 'BLOCK_AS_IMPLICIT_KEY' || error.code === 'BLOCK_IN_FLOW'
        ? ' A text with a colon may need quotes, such as ":memory:".'
        : error.code === 'BAD_SCALAR_START'
          ? ' Put the text in quotes.'
          : ''
    return `This is not valid ${this.#file.endsWith('.json') ? 'JSON' : 'YAML'}: ${words}.${hint}`
  }

  #pathOfKey(offset: number): Path {
    let found: Path = []
    visit(this.#document, {
      Pair: (_key, pair, ancestors) => {
        if (keyOffset(pair) !== offset) return undefined
        found = [...ancestors, pair].flatMap((node, index, all) => {
          if (!('key' in node)) return []
          const parent = all[index - 1]
          const grandparent = all[index - 2]
          const item = isSeq(grandparent) && isMap(parent) ? [String(grandparent.items.indexOf(parent))] : []
          return [...item, isScalar(node.key) ? String(node.key.value) : '']
        })
        return visit.BREAK
      },
    })
    return found
  }
}

/** Repeated keys are the one syntax error behind which the other values still mean something. */
const keepOne = 'keep one.'

function keyOffset(pair: Pair<unknown, unknown>): number | undefined {
  return isScalar(pair.key) ? pair.key.range?.[0] : undefined
}

function isEmpty(node: Node): boolean {
  return isScalar(node) && node.value === null
}

function lineAt(text: string, offset: number): string {
  const end = text.indexOf('\n', offset)
  return text.slice(text.lastIndexOf('\n', offset - 1) + 1, end === -1 ? undefined : end)
}

/**
 * The value with its variables put in, and which places hold one, with the text that stands there. Where the
 * schema wants a number or a boolean and the whole text is one variable, its content is read as one.
 */
function replaceVariables(
  source: Source,
  environment: Environment,
): [value: unknown, replaced: ReadonlyMap<string, string>] {
  const replaced = new Map<string, string>()
  const replaceIn = (text: string, path: Path): unknown => {
    if (path[0] === 'mcpServers') return replaceForeign(text, path)
    const [, slipped] = (isPrivate(path) && /^(?:\w+ )?\$\{([A-Za-z_]\w*)\}$/.exec(text)) || []
    if (slipped !== undefined) {
      // No credential looks like that, and nobody could tell from its refusal.
      source.add(path, `${showPath(path)} is \${${slipped}} as it stands; did you mean \${env:${slipped}}?`)
    } else if (!isPrivate(path) && /\$\{(?!env:)\w+\}/.test(text)) {
      source.warn(path, `${showPath(path)} holds a \${…} that stays as it is; variables are written \${env:NAME}.`)
    }
    const whole = /^\$\{env:\w+\}$/.test(text)
    const filled = text.replace(/\$\{env:([^}]*)\}/g, (_match, name: string) => {
      replaced.set(toPointer(path), text)
      const content = environment[name]
      if (content === undefined) source.add(path, `${showPath(path)} ${variableProblem(name)}.`)
      return content ?? ''
    })
    return whole ? readAs(schemaAt(path), filled) : filled
  }
  /** A block of another host: what no variable can be called, such as `${input:key}`, is none of ours. */
  const replaceForeign = (text: string, path: Path): unknown => {
    const filled = text.replace(/\$\{([^{}]*)\}/g, (whole, inside: string) => {
      const [, name, preset] = /^(?:env:)?([A-Za-z_]\w*)(?::-(.*))?$/s.exec(inside) ?? []
      if (name === undefined) {
        source.warn(path, `${showPath(path)} holds a \${…} that stays as it is; variables are written \${NAME}.`)
        return whole
      }
      replaced.set(toPointer(path), text)
      const content = environment[name]
      // As a shell does: what is empty counts as not set where there is a default.
      if (preset !== undefined) return content === undefined || content === '' ? preset : content
      if (content === undefined && !isOff(source.value, path))
        source.add(path, `${showPath(path)} ${variableProblem(name)}.`)
      return content ?? ''
    })
    return /^\$\{[^{}]*\}$/.test(text) ? readAs(schemaAt(path), filled) : filled
  }
  // A copy: an alias gives the same object in two places, and each is a place of its own here.
  const walk = (value: unknown, path: Path): unknown => {
    if (typeof value === 'string') return replaceIn(value, path)
    if (Array.isArray(value)) return value.map((item, index) => walk(item, [...path, String(index)]))
    if (!isObject(value)) return value
    return Object.fromEntries(Object.entries(value).map(([key, member]) => [key, walk(member, [...path, key])]))
  }
  return [walk(source.value, []), replaced]
}

/** Whether a value belongs to an MCP server that is switched off: it may lack what it needs. */
function isOff(root: unknown, [part, id]: Path): boolean {
  const server = valueAt(root, [part ?? '', id ?? ''])
  return isObject(server) && (server['disabled'] === true || server['enabled'] === false)
}

function variableProblem(name: string): string {
  return /^[A-Za-z_][A-Za-z0-9_]*$/.test(name)
    ? `needs the environment variable ${name}, which is not set`
    : 'has a ${env:…} that names no variable'
}

function readAs(schema: JsonObject | undefined, text: string): unknown {
  if (schema?.['type'] === 'boolean' && (text === 'true' || text === 'false')) return text === 'true'
  const types = [schema?.['type']].flat()
  return (types.includes('integer') || types.includes('number')) && /^-?\d+(\.\d+)?$/.test(text) ? Number(text) : text
}

/** Says in words what is wrong at the place where the validator found something. */
function explain(source: Source, root: unknown, pointer: string, fromEnvironment: ReadonlyMap<string, string>): void {
  let path = fromPointer(pointer)
  // Validators differ in whether a missing or unknown key is an issue of the key or of the mapping around it.
  while (path.length > 0 && (schemaAt(path) === undefined || valueAt(root, path) === undefined))
    path = path.slice(0, -1)
  const schema = schemaAt(path) ?? {}
  const value = valueAt(root, path)
  const { propertyNames } = schema
  if (isObject(propertyNames) && isObject(value)) {
    const wrong = Object.keys(value).filter((key) => !isNameFor(schema, key))
    for (const key of wrong) {
      const where = [...path, key]
      addOnce(source, where, `${showPath(where)} ${messageOf(propertyNames)}.`, 'key')
    }
    if (wrong.length > 0) return
  }
  const allowed = propertiesOf(schema)
  if (allowed !== undefined && isObject(value)) {
    const unknown = Object.keys(value).filter((key) => !Object.hasOwn(allowed, key))
    const required = Array.isArray(schema['required']) ? schema['required'].map(String) : []
    const missing = required.filter((key) => !Object.hasOwn(value, key))
    for (const key of unknown)
      addOnce(source, [...path, key], unknownKeySentence(path, key, Object.keys(allowed)), 'key')
    for (const key of missing) {
      addOnce(source, path, `${showPath([...path, key])} is missing: it ${messageOf(schemaAt([...path, key]))}.`, 'key')
    }
    if (unknown.length > 0 || missing.length > 0) return
  }
  // A variable that is not set was told already.
  if (source.problems.some((problem) => problem.path === toPointer(path) && fromEnvironment.has(problem.path))) return
  const what = path.length === 0 ? 'The file' : showPath(path)
  addOnce(source, path, `${what} ${messageOf(schema)}${butItIs(source, path, value, schema, fromEnvironment)}.`)
}

function addOnce(source: Source, path: Path, sentence: string, at: 'key' | 'value' = 'value'): void {
  if (!source.problems.some((problem) => problem.sentence === sentence)) source.add(path, sentence, at)
}

function unknownKeySentence(parent: Path, key: string, allowed: readonly string[]): string {
  const where = showPath([...parent, key])
  const similar = similarOf(key, allowed)
  if (similar !== undefined) return `${where} is an unknown key; did you mean ${similar}?`
  const elsewhere = placesOf(key)
  if (elsewhere[0] !== undefined) return `${where} is an unknown key; did you mean ${elsewhere[0]}?`
  return `${where} is an unknown key. Allowed: ${allowed.filter((name) => name !== '$schema').join(', ')}.`
}

function similarOf(key: string, allowed: readonly string[]): string | undefined {
  return allowed.find((name) => isSwapped(key, name)) ?? closest(key, allowed)
}

/** Whether two neighbouring letters changed places: `hots` for `host`, which counts as two mistakes otherwise. */
function isSwapped(typed: string, name: string): boolean {
  let at = 0
  while (at < name.length && name[at] === typed[at]) at++
  return name.slice(0, at) + name.charAt(at + 1) + name.charAt(at) + name.slice(at + 2) === typed
}

function butItIs(
  source: Source,
  path: Path,
  value: unknown,
  schema: JsonObject,
  fromEnvironment: ReadonlyMap<string, string>,
): string {
  const wantsText = [schema['type']].flat().includes('string')
  if (value === null) return ', but it is empty'
  if (Array.isArray(value)) {
    if (![schema['type']].flat().includes('array')) return ', but it is a list'
    return value.length === 0 && schema['minItems'] !== undefined ? ', but it is empty' : ''
  }
  if (isObject(value)) return schema['type'] === 'object' ? '' : ', but it is a mapping'
  if (typeof value === 'number' && wantsText && schema['minimum'] === undefined) {
    return isPrivate(path)
      ? ', but it is a number: put it in quotes'
      : `, but it is a number: put it in quotes, "${source.text(path)}"`
  }
  const variable = fromEnvironment.get(toPointer(path))
  if (isPrivate(path)) return value === '' ? `, but ${variable ?? 'it'} is empty` : ''
  if (variable !== undefined) return `, but it is the value of ${variable}`
  return `, but it is ${clip(withoutUser(JSON.stringify(value)), 80)}`
}

/** A URL may carry a password, which may hold any character, and the URL may lack its beginning. */
function withoutUser(text: string): string {
  return text.includes(':') ? text.replace(/^"([a-z][a-z0-9+.-]*:\/\/)?.*@/i, '"$1[redacted]@') : text
}

/** Below these everything may be a secret that was put in the wrong place. */
const privateParts: readonly Path[] = [
  ['server', 'auth'],
  ['peers', '*', 'auth'],
  ['peers', '*', 'headers'],
  ['models', '*', 'apiKey'],
  ['models', '*', 'headers'],
  ['mcpServers', '*'],
  // Where a key is pasted for a certificate.
  ['peers', '*', 'tls', 'ca'],
]

/** How many segments lead to the private part that the path is in; undefined outside of them. */
function privateFrom(path: Path): number | undefined {
  return privateParts.find((part) => part.every((name, index) => (name === '*' ? index in path : name === path[index])))
    ?.length
}

function isPrivate(path: Path): boolean {
  return privateFrom(path) !== undefined
}

/** What stands in a private part where a key should be may be a secret that slipped; our keys are short and known. */
function masked(path: Path): Path {
  const from = privateFrom(path) ?? path.length
  return path.map((segment, index) => {
    if (index < from) return segment
    const parent = schemaAt(path.slice(0, index)) ?? {}
    const isKnown =
      schemaAt(path.slice(0, index + 1)) !== undefined ? isNameFor(parent, segment) : isKeyLike(segment, parent)
    return isKnown && segment.length <= 24 ? segment : '…'
  })
}

/** A plain word, or a slip of the fingers in one of the keys that are allowed there. */
function isKeyLike(segment: string, parent: JsonObject): boolean {
  return /^[A-Za-z]+$/.test(segment) || similarOf(segment, Object.keys(propertiesOf(parent) ?? {})) !== undefined
}

// What a schema cannot say.

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

/** The peers with the text of each `tls.caFile` as their `tls.ca`. */
async function readAuthorities(
  source: Source,
  peers: Peers | undefined,
  baseDir: string,
): Promise<Record<string, PeerOptions> | undefined> {
  if (peers === undefined) return undefined
  const entries = Object.entries(peers).map(async ([id, peer]): Promise<[string, PeerOptions]> => {
    const { caFile, ...tls } = peer.tls ?? {}
    if (caFile === undefined) return [id, peer]
    const path = ['peers', id, 'tls', 'caFile']
    const add = (why: string): void => source.add(path, `${showPath(path)} ${messageOf(schemaAt(path))}, but ${why}.`)
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

// The published schema: parsed when the first file is read, and compiled with it.

let parsedSchema: JsonObject | undefined

function configSchema(): JsonObject {
  parsedSchema ??= JSON.parse(readFileSync(new URL('../convoke.schema.json', import.meta.url), 'utf8')) as JsonObject
  return parsedSchema
}

function validateConfig(value: unknown): readonly Issue[] {
  return compile(configSchema()).validate(value)
}

function schemaAt(path: Path): JsonObject | undefined {
  let schema: unknown = configSchema()
  for (const segment of path) {
    if (!isObject(schema)) return undefined
    const properties: unknown = schema['properties']
    schema =
      isObject(properties) && Object.hasOwn(properties, segment)
        ? properties[segment]
        : (schema['items'] ?? schema['additionalProperties'])
  }
  return isObject(schema) ? (schema as JsonObject) : undefined
}

function propertiesOf(schema: JsonObject): JsonObject | undefined {
  return isObject(schema['properties']) ? schema['properties'] : undefined
}

/** Whether a mapping may have that key, where the schema says what keys look like. */
function isNameFor(schema: JsonObject, key: string): boolean {
  const { propertyNames } = schema
  const pattern: unknown = isObject(propertyNames) ? propertyNames['pattern'] : undefined
  return typeof pattern !== 'string' || new RegExp(pattern).test(key)
}

function messageOf(schema: JsonObject | undefined): string {
  const words = schema?.['errorMessage']
  return typeof words === 'string' ? words : 'is not what it must be'
}

/** Where in the file a key of that name may stand. */
function placesOf(key: string, schema: JsonObject = configSchema(), path: Path = []): string[] {
  const { additionalProperties: members } = schema
  const properties = Object.entries(propertiesOf(schema) ?? {})
  return properties
    .flatMap(([name, member]) => {
      const here = [...path, name]
      return [...(name === key ? [showPath(here)] : []), ...(isObject(member) ? placesOf(key, member, here) : [])]
    })
    .concat(isObject(members) ? placesOf(key, members, [...path, 'ID']) : [])
}

function valueAt(root: unknown, path: Path): unknown {
  let value = root
  for (const segment of path) {
    if (Array.isArray(value)) value = value[Number(segment)]
    else if (isObject(value) && Object.hasOwn(value, segment)) value = value[segment]
    else return undefined
  }
  return value
}

function fromPointer(pointer: string): Path {
  return pointer
    .split('/')
    .slice(1)
    .map((segment) => segment.replaceAll('~1', '/').replaceAll('~0', '~'))
}

/** `server.auth.tokens[0].id` */
function showPath(path: Path): string {
  const text = masked(path)
    .map((segment) =>
      /^\d+$/.test(segment)
        ? `[${segment}]`
        : /^[\w$-]+$/.test(segment)
          ? `.${segment}`
          : `[${JSON.stringify(segment)}]`,
    )
    .join('')
  return text.startsWith('.') ? text.slice(1) : text
}
