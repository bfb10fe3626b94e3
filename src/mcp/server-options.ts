/**
 * What is known of an MCP server before it is asked: a block of `mcpServers` as any host's file spells it, read into
 * settings of one shape. What is not understood is told and left out; nothing here is worth refusing a whole file.
 */
import { existsSync } from 'node:fs'
import { resolve } from 'node:path'
import { namesPrivateAddress } from '../base/address.ts'
import { isObject } from '../base/json.ts'
import { maxTimerMs } from '../base/timer.ts'
import { clip, excerpt } from '../tools/value.ts'

/**
 * An MCP server: a program to start (`command`) or a URL. The names of other hosts are understood, too, so that a block
 * of theirs works as it is; whatever else stands in it is told once and ignored.
 */
export interface McpServerOptions {
  /** The program that speaks MCP on its stdin and stdout. Started as it is, never by a shell. */
  readonly command?: string
  readonly args?: readonly (string | number)[]
  /** Variables for it, beside PATH, HOME and the like, which it gets from the node. */
  readonly env?: Readonly<Record<string, string | number | boolean>>
  /** A file of `NAME=VALUE` lines with more of them, relative to `baseDir`; `env` wins. */
  readonly envFile?: string
  /** Where it runs, relative to `baseDir`. Default: `baseDir`. */
  readonly cwd?: string
  /** Where the server is. */
  readonly url?: string
  readonly serverUrl?: string
  readonly httpUrl?: string
  /** `stdio`, `http` (also `streamable-http`, `streamableHttp`) or `sse`. Default: by `command` or `url`; a URL is tried as `http`, then as `sse`. */
  readonly type?: string
  readonly transport?: string
  readonly transportType?: string
  /** For each request to the URL's origin; they go nowhere else. */
  readonly headers?: Readonly<Record<string, string>>
  readonly requestInit?: { readonly headers?: Readonly<Record<string, string>> }
  /** Connect to private and loopback addresses. Default: only if the URL itself names one. */
  readonly allowPrivate?: boolean
  readonly disabled?: boolean
  readonly enabled?: boolean
  /** How long a call may take, in milliseconds. Default: no limit. */
  readonly timeoutMs?: number
  /** As other hosts have it: below 1,000 in seconds, from there in milliseconds. `timeoutMs` wins. */
  readonly timeout?: number
  /** How long connecting, and each question but a call, may take, in milliseconds. Default: 30,000. */
  readonly connectTimeoutMs?: number
  /** How often an idle connection is checked, in milliseconds. Default: 30,000; 0 never. */
  readonly pingIntervalMs?: number
  /** Ends the server after so many milliseconds without a call; the next one starts it again. Default: it stays. */
  readonly idleMs?: number
  /** Take these tools only; `["*"]` is all. */
  readonly includeTools?: readonly string[]
  readonly tools?: readonly string[]
  /** Leave these tools out. */
  readonly excludeTools?: readonly string[]
  readonly disabledTools?: readonly string[]
  readonly name?: string
  readonly description?: string
  readonly [key: string]: unknown
}

export interface StdioSettings {
  readonly type: 'stdio'
  readonly command: string
  readonly args: readonly string[]
  readonly env: Readonly<Record<string, string>>
  readonly envFile: string | undefined
  readonly cwd: string
}

export interface HttpSettings {
  /** `auto` is streamable HTTP, and SSE for a server that does not know it. */
  readonly type: 'http' | 'sse' | 'auto'
  readonly url: string
  readonly headers: Readonly<Record<string, string>>
  readonly allowPrivate: boolean
}

/** A server's options, complete. */
export interface ServerSettings {
  readonly id: string
  readonly transport: StdioSettings | HttpSettings
  readonly isDisabled: boolean
  readonly timeoutMs: number | undefined
  readonly connectTimeoutMs: number
  /** 0 is never. */
  readonly pingIntervalMs: number
  readonly idleMs: number | undefined
  /** Whether a tool of that name is wanted. */
  wants(name: string): boolean
}

const known = new Set(
  (
    'command args env envFile cwd url serverUrl httpUrl type transport transportType headers requestInit allowPrivate ' +
    'disabled enabled timeout timeoutMs connectTimeoutMs pingIntervalMs idleMs includeTools tools excludeTools ' +
    'disabledTools name description'
  ).split(' '),
)
/** Who may do what is said elsewhere here. */
const permissions = ['autoApprove', 'alwaysAllow', 'trust']

const defaultConnectMs = 30_000
const defaultPingMs = 30_000
/** No call is given less than a second; what looks like it is meant in seconds. */
const fewestMs = 1_000

/** An id that can stand before the dot of a handle, and is none of those taken. */
export function toServiceId(given: string, taken: (id: string) => boolean): string {
  if (serviceId.test(given) && !taken(given)) return given
  const safe =
    given
      .replace(/[^A-Za-z0-9_-]+/g, '_')
      .replace(/^_+|_+$/g, '')
      .slice(0, 60) || 'server'
  for (let number = 1; ; number++) {
    const id = number === 1 ? safe : `${safe}_${number}`
    if (!taken(id)) return id
  }
}

export const serviceId = /^[A-Za-z0-9_-]{1,64}$/

/**
 * The settings of a server, or what makes it useless; and what was ignored, a sentence each. No sentence holds a value
 * that could be a secret.
 */
export function toServerSettings(
  id: string,
  options: McpServerOptions,
  baseDir: string,
): { readonly settings: ServerSettings | string; readonly warnings: readonly string[] } {
  const warnings: string[] = []
  const block = new Block(options)
  const transport = toTransport(block, baseDir, warnings)
  const ignored = Object.keys(options).filter((key) => !known.has(key) && !permissions.includes(key))
  const listed = ignored.slice(0, 10).map((key) => clip(key, 40))
  if (ignored.length > 0)
    warnings.push(`does not know ${listed.join(', ')}, which ${ignored.length > 1 ? 'are' : 'is'} ignored`)
  const granted = permissions.filter((key) => Object.hasOwn(options, key))
  if (granted.length > 0)
    warnings.push(
      `has ${granted.join(', ')}, which is ignored here: who may call what is said for all tools in one place`,
    )
  if (typeof transport === 'string') return { settings: transport, warnings }

  const timeoutMs = block.number('timeoutMs') ?? toMilliseconds(block.number('timeout'))
  const include = [...block.texts('includeTools'), ...block.texts('tools')]
  const exclude = new Set([...block.texts('excludeTools'), ...block.texts('disabledTools')])
  const wanted = include.length === 0 || include.includes('*') ? undefined : new Set(include)
  return {
    settings: {
      id,
      transport,
      isDisabled: options.disabled === true || options.enabled === false,
      timeoutMs,
      connectTimeoutMs: block.number('connectTimeoutMs') ?? defaultConnectMs,
      pingIntervalMs: options.pingIntervalMs === 0 ? 0 : (block.number('pingIntervalMs') ?? defaultPingMs),
      idleMs: block.number('idleMs'),
      wants: (name) => (wanted === undefined || wanted.has(name)) && !exclude.has(name),
    },
    warnings,
  }
}

/** A mapping that nobody has checked. */
class Block {
  readonly #values: Readonly<Record<string, unknown>>

  constructor(values: Readonly<Record<string, unknown>>) {
    this.#values = values
  }

  /** The first text under one of these keys. */
  text(...keys: string[]): string | undefined {
    const found = keys.map((key) => this.#values[key]).find((value) => typeof value === 'string' && value !== '')
    return found as string | undefined
  }

  texts(key: string): string[] {
    const value = this.#values[key]
    return Array.isArray(value)
      ? value.filter((each) => typeof each === 'string' || typeof each === 'number').map(String)
      : []
  }

  number(key: string): number | undefined {
    const value = this.#values[key]
    return typeof value === 'number' && value > 0 ? Math.min(Math.ceil(value), maxTimerMs) : undefined
  }

  flag(key: string): boolean | undefined {
    const value = this.#values[key]
    return typeof value === 'boolean' ? value : undefined
  }

  mapping(key: string): Record<string, string> {
    const value = this.#values[key]
    if (!isObject(value)) return {}
    const plain = Object.entries(value).filter(([, each]) => ['string', 'number', 'boolean'].includes(typeof each))
    return Object.fromEntries(plain.map(([name, each]) => [name, String(each)]))
  }

  within(key: string): Block {
    const value = this.#values[key]
    return new Block(isObject(value) ? value : {})
  }
}

function toMilliseconds(timeout: number | undefined): number | undefined {
  return timeout === undefined || timeout >= fewestMs ? timeout : timeout * 1_000
}

const spellings: Readonly<Record<string, 'stdio' | 'http' | 'sse'>> = {
  stdio: 'stdio',
  local: 'stdio',
  http: 'http',
  https: 'http',
  streamablehttp: 'http',
  remote: 'http',
  sse: 'sse',
}

function toTransport(block: Block, baseDir: string, warnings: string[]): StdioSettings | HttpSettings | string {
  const command = block.text('command')
  const url = block.text('url', 'serverUrl', 'httpUrl')
  const named = block.text('type', 'transport', 'transportType')
  const spelled = named === undefined ? undefined : spellings[named.toLowerCase().replace(/[^a-z]/g, '')]
  if (named !== undefined && spelled === undefined) return `its type must be stdio, http or sse, got ${excerpt(named)}`
  const type = spelled ?? (command === undefined ? 'auto' : 'stdio')
  if (type === 'stdio') {
    if (command === undefined) return 'it needs a command to start'
    if (url !== undefined) warnings.push('has a command and a URL; the command is started, and the URL ignored')
    return toStdio(block, command, baseDir, warnings)
  }
  if (url === undefined) return 'it needs a command to start, or a url'
  if (command !== undefined) warnings.push('has a command and a URL; the URL is called, and the command ignored')
  if (!URL.canParse(url) || !/^https?:$/.test(new URL(url).protocol)) return 'its url must be an http or https URL'
  const { username, password } = new URL(url)
  if (username !== '' || password !== '')
    return 'its url has a user or a password in it; credentials belong into headers'
  const headers = toHeaders(block, warnings)
  if (Object.keys(headers).length > 0 && url.toLowerCase().startsWith('http:') && !namesPrivateAddress(url)) {
    warnings.push('is sent headers over plain http: whoever sits on the way can read them')
  }
  const allowPrivate = block.flag('allowPrivate') ?? namesPrivateAddress(url)
  return {
    type: block.text('httpUrl') === url && named === undefined ? 'http' : type,
    url,
    headers,
    allowPrivate,
  }
}

function toStdio(block: Block, given: string, baseDir: string, warnings: string[]): StdioSettings {
  const cwd = resolve(baseDir, block.text('cwd') ?? '.')
  let command = given
  let args = block.texts('args')
  if (/\s/.test(given) && args.length === 0 && !existsSync(resolve(cwd, given))) {
    const [program = given, ...rest] = splitWords(given)
    warnings.push(
      `has a command with spaces, which is taken for ${excerpt(program)} and its arguments; write them as args`,
    )
    command = program
    args = rest
  }
  // `./server` is a file; a name without a slash is looked up in PATH.
  if (command.startsWith('.')) command = resolve(cwd, command)
  const envFile = block.text('envFile')
  return {
    type: 'stdio',
    command,
    args,
    env: block.mapping('env'),
    envFile: envFile === undefined ? undefined : resolve(baseDir, envFile),
    cwd,
  }
}

/** Words as a shell splits them, quotes and backslashes included; nothing else of a shell. */
function splitWords(line: string): string[] {
  const words = line.match(/(?:[^\s"'\\]|\\.|"(?:[^"\\]|\\.)*"|'[^']*')+/g) ?? []
  return words.map((word) =>
    word.replace(
      /\\(.)|"((?:[^"\\]|\\.)*)"|'([^']*)'/g,
      (_all, escaped?: string, double?: string, single?: string) =>
        escaped ?? single ?? (double ?? '').replace(/\\(["\\])/g, '$1'),
    ),
  )
}

const framing =
  /^(connection|content-length|expect|host|keep-alive|transfer-encoding|upgrade|accept|content-type|mcp-.*)$/i

function toHeaders(block: Block, warnings: string[]): Record<string, string> {
  const given = { ...block.within('requestInit').mapping('headers'), ...block.mapping('headers') }
  const usable = Object.entries(given).filter(([name, value]) => {
    if (/^[\w!#$%&'*+.^`|~-]+$/.test(name) && !framing.test(name) && !/[^\t\x20-\x7e\x80-\xff]/.test(value)) return true
    warnings.push(`has a header ${excerpt(name)} that cannot be sent as it is, and is left out`)
    return false
  })
  return Object.fromEntries(usable)
}

/** Every text of a server's settings that may be a secret. They are taken out of whatever it says in logs and errors. */
export function secretsOf({ transport }: Pick<ServerSettings, 'transport'>): string[] {
  if (transport.type !== 'stdio') {
    const headers = Object.values(transport.headers).flatMap((value) => [value, value.slice(value.indexOf(' ') + 1)])
    const { pathname, searchParams } = new URL(transport.url)
    return [...headers, ...searchParams.values(), ...pathname.split('/').filter((segment) => keyLike.test(segment))]
  }
  // An argument may be `--api-key=SECRET`, or stand behind `--api-key`.
  const args = transport.args.flatMap((arg, index) => {
    const before = transport.args[index - 1] ?? ''
    if (secretName.test(before) && !arg.startsWith('-')) return [arg, arg.slice(arg.search(/[:=]\s*/) + 1).trim()]
    return secretName.test(arg) && /[:=]/.test(arg) ? [arg.slice(arg.search(/[:=]/) + 1).trim()] : []
  })
  const given = [...Object.values(transport.env), ...args]
  return [...given, ...[...given, ...transport.args].flatMap(passwordIn)]
}

/** Servers that are called by a URL of one's own have the key in its path. */
const keyLike = /^(?=.*\d)[A-Za-z0-9_~.-]{16,}$/

/** Of an address such as `postgres://user:password@host`. */
function passwordIn(text: string): string[] {
  const password = URL.canParse(text) ? new URL(text).password : ''
  if (password === '') return []
  try {
    return [password, decodeURIComponent(password)]
  } catch {
    // A % that encodes nothing.
    return [password]
  }
}

const secretName = /auth|key|token|secret|pass|cookie|credential|header/i
