/** The entries of older shapes: tools, MCP servers, peers, and where the node listens. */
import { isMap, isScalar, isSeq, Pair, YAMLMap } from 'yaml'
import type { Node } from 'yaml'
import {
  find,
  inList,
  listOf,
  merge,
  nameOf,
  offsetOf,
  ownOf,
  placeAt,
  put,
  remove,
  scalarAs,
  scalarOf,
  under,
  type Mapping,
} from './nodes.ts'

/** Where findings go; `at` is an offset into the text. */
export interface OlderShapeReport {
  /** Once for each older key, with today's spelling. */
  warn(at: number, sentence: string): void
  /** What stands there has no meaning in today's shape. */
  add(at: number, sentence: string): void
}

// Tools.

const toolFields: Readonly<Record<string, string>> = {
  module_path: 'module',
  modulePath: 'module',
  function: 'export',
  func: 'export',
  function_name: 'export',
  functionName: 'export',
  parameters: 'input',
  input_schema: 'input',
  inputSchema: 'input',
  output_schema: 'output',
  outputSchema: 'output',
}

export function hasOlderToolFields(item: unknown): boolean {
  return isMap(item) && item.items.some((pair) => ownOf(toolFields, nameOf(pair)) !== undefined)
}

/** A list, or a mapping from names to entries. */
export function toTools(value: unknown, key: Node): unknown {
  if (isMap(value) && (find(value, 'module') ?? find(value, 'module_path')) === undefined) {
    for (const { key: name, value: item } of value.items) {
      if (isMap(item) && find(item, 'name') === undefined) put(item, 'name', name)
    }
    return toTools(listOf(value.items.map((pair) => pair.value)), key)
  }
  const list = inList(value)
  if (!isSeq(list)) return value
  list.items = list.items.filter(isSwitchedOn)
  for (const item of list.items) {
    if (!isMap(item)) continue
    const isToday = find(item, 'export') !== undefined
    renameMembers(item, toolFields)
    // Where only the function was named, that was by `name`; today it renames what the module brings.
    const name = find(item, 'name')
    const isOlder = nameOf({ key }) !== 'tools'
    if (isOlder && !isToday && name !== undefined && find(item, 'export') === undefined) put(item, 'export', name.value)
  }
  return list
}

// MCP servers.

const serverFields: Readonly<Record<string, string>> = {
  parameters: 'params',
  arguments: 'args',
  environment: 'env',
  timeout_ms: 'timeoutMs',
}

export function toServers(value: unknown, key: Node, report: OlderShapeReport): unknown {
  return byId(value, ['id', 'server_id', 'serverId', 'name'], key, report, (server) => {
    renameMembers(server, serverFields)
    const params = find(server, 'params')
    if (isMap(params?.value)) {
      remove(server, params)
      merge(server, params.value)
    } else if (params !== undefined && find(server, 'args') === undefined) {
      params.key = scalarAs('args', params.key)
    }
    splitCommand(server)
    const transport = find(server, 'transport')
    if (transport !== undefined && /^streamable[_-]?http$/i.test(String(scalarOf(transport.value))))
      transport.value = scalarAs('http', transport.value)
  })
}

/** `command: [npx, -y, server]` */
function splitCommand(server: Mapping): void {
  const command = find(server, 'command')
  if (!isSeq(command?.value)) return
  const [program, ...args] = command.value.items
  command.value = program
  if (args.length === 0) return
  const more = find(server, 'args')
  if (isSeq(more?.value)) more.value.items.unshift(...args)
  else if (more === undefined) put(server, 'args', listOf(args))
}

// Peers.

const peerFields: Readonly<Record<string, string>> = {
  agent_url: 'url',
  agentUrl: 'url',
  base_url: 'url',
  baseUrl: 'url',
  endpoint: 'url',
  auth_token: 'token',
  authToken: 'token',
  bearer_token: 'token',
  apiKey: 'api_key',
  timeout_ms: 'timeoutMs',
}

export function isPeer(value: unknown): boolean {
  return isMap(value) || /^https?:/.test(String(scalarOf(value)))
}

export function toPeers(value: unknown, key: Node, report: OlderShapeReport): unknown {
  if (isMap(value)) {
    for (const pair of value.items)
      if (isScalar(pair.value) && isPeer(pair.value)) pair.value = under('url', pair.value)
  }
  return byId(value, ['id', 'agent_id', 'agentId', 'name'], key, report, (peer) => {
    renameMembers(peer, peerFields)
    toAuth(peer, 'token', 'bearer')
    toAuth(peer, 'api_key', 'apiKey')
    toMilliseconds(peer, report)
    const name = find(peer, 'name')
    if (name !== undefined) remove(peer, name)
  })
}

/** A token beside the URL; an empty one was none. */
function toAuth(peer: Mapping, from: string, to: string): void {
  const token = find(peer, from)
  if (token === undefined) return
  if (['', null].includes(scalarOf(token.value) as '')) remove(peer, token)
  else if (find(peer, 'auth') === undefined) {
    token.value = under(to, token.value)
    token.key = scalarAs('auth', token.key)
  }
}

function toMilliseconds(peer: Mapping, report: OlderShapeReport): void {
  const timeout = find(peer, 'timeout')
  if (timeout === undefined) return
  const seconds = Number(scalarOf(timeout.value) ?? Number.NaN)
  if (find(peer, 'timeoutMs') !== undefined || scalarOf(timeout.value) === null) remove(peer, timeout)
  else if (seconds > 0) {
    timeout.key = scalarAs('timeoutMs', timeout.key)
    timeout.value = scalarAs(Math.round(seconds * 1000), timeout.value)
  } else {
    report.add(
      offsetOf(timeout.value ?? timeout.key),
      '`timeout` is a number of seconds; write timeoutMs, in milliseconds.',
    )
    remove(peer, timeout)
  }
}

// The server.

const hostAndPort = /^(?:\w+:\/\/)?(?:\[([^\]]+)\]|((?:[^:/${}]|\$\{env:\w+\})*)):(\d{1,5}|\$\{env:\w+\})\/?$/

/** `HOST:PORT`, `[::1]:PORT`, `:PORT` for all addresses, or a port alone. */
export function toServer(value: unknown, _key: Node, report: OlderShapeReport): unknown {
  const text = scalarOf(value)
  const server = new YAMLMap()
  if (/^\d+$/.test(String(text))) {
    put(server, 'port', scalarAs(Number(text), value))
    return server
  }
  const [matched, address, host, port] = hostAndPort.exec(String(text)) ?? []
  if (matched === undefined || port === undefined) {
    report.add(offsetOf(value), 'listen must be HOST:PORT; write server: { host: HOST, port: PORT }.')
    return server
  }
  put(server, 'host', scalarAs(address ?? (host || '0.0.0.0'), value))
  put(server, 'port', scalarAs(/^\d+$/.test(port) ? Number(port) : port, value))
  return server
}

/** A list of mappings, or a mapping already, as a mapping by id; each of its mappings is converted. */
function byId(
  value: unknown,
  ids: readonly string[],
  key: Node,
  report: OlderShapeReport,
  convert: (item: Mapping) => void,
): unknown {
  if (isMap(value)) {
    value.items = value.items.filter((pair) => isSwitchedOn(pair.value))
    for (const pair of value.items) if (isMap(pair.value)) convert(pair.value)
    return value
  }
  if (!isSeq(value)) return value
  const map = new YAMLMap()
  placeAt(map, value)
  for (const item of value.items.filter(isSwitchedOn)) {
    const found = ids.map((name) => find(item, name)).find((pair) => pair !== undefined)
    const id = scalarOf(found?.value)
    if (!isMap(item) || found === undefined || (typeof id !== 'string' && typeof id !== 'number')) {
      report.add(offsetOf(item ?? key), `Each item of ${nameOf({ key })} must be a mapping with the key ${ids[0]}.`)
    } else if (find(map, String(id)) !== undefined) {
      report.add(offsetOf(found.value), `${nameOf({ key })} has ${JSON.stringify(id)} twice; keep one.`)
    } else {
      remove(item, found)
      convert(item)
      map.items.push(new Pair(scalarAs(String(id), found.value), item))
    }
  }
  return map
}

/** An older `enabled: false` left the item out; `enabled: true` said nothing. */
function isSwitchedOn(item: unknown): boolean {
  const enabled = find(item, 'enabled')
  if (enabled === undefined || !isMap(item)) return true
  const isOff = scalarOf(enabled.value) === false
  if (typeof scalarOf(enabled.value) === 'boolean') remove(item, enabled)
  return !isOff
}

/** Today's member stays where both are there, and the older one is told as an unknown key. */
function renameMembers(map: Mapping, names: Readonly<Record<string, string>>): void {
  for (const pair of map.items) {
    const to = ownOf(names, nameOf(pair))
    if (to !== undefined && find(map, to) === undefined) pair.key = scalarAs(to, pair.key)
  }
}
