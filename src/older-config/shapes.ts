/**
 * Older shapes of the configuration file, put into today's before anything else looks at them. The nodes of the file are
 * moved, not copied, so that each value keeps its place in the file, and what is wrong with it is told there.
 */
import { isMap, isSeq, visit } from 'yaml'
import type { Document, Node } from 'yaml'
import { hasOlderToolFields, isPeer, toPeers, toServer, toServers, toTools, type OlderShapeReport } from './entries.ts'
import {
  find,
  inList,
  merge,
  nameOf,
  offsetOf,
  ownOf,
  remove,
  scalarAs,
  scalarOf,
  under,
  type Mapping,
  type Member,
} from './nodes.ts'

/**
 * Rewrites the document in place. Returns whether it did anything. Where the older and today's key are both there, they
 * are merged, and today's wins. Values that fit no older shape either are left for the schema to refuse.
 */
export function rewriteOlderShapes(document: Document, report: OlderShapeReport): boolean {
  const top = document.contents
  if (!isMap(top)) return false
  expandAliases(document)
  const file = new OlderFile(top, report)
  file.rewrite()
  return file.changed
}

/** An alias before its anchor means nothing, and values are about to move. */
function expandAliases(document: Document): void {
  visit(document, {
    Alias: (_key, alias) => {
      const target = alias.resolve(document)
      if (target === undefined) return undefined
      const copy = target.clone() as Node & { anchor?: string }
      delete copy.anchor
      if (alias.range !== undefined) copy.range = alias.range
      return copy
    },
  })
}

/** An older key at the top of the file. */
interface Section {
  /** Today's key. */
  readonly to: string
  /** Today's spelling, for the warning. */
  readonly shown: string
  readonly convert: (value: unknown, key: Node, report: OlderShapeReport) => unknown
  /** Default: always. */
  readonly fits?: (value: unknown) => boolean
}

const toolsShown = 'tools: [{ module: ./tools.js, export: NAME, name: NAME }]'
const serversShown = 'mcpServers: { ID: { command: PROGRAM, args: [] } } or { ID: { url: URL, headers: {} } }'
const peersShown = 'peers: { ID: { url: URL, auth: { bearer: TOKEN }, timeoutMs: 30000 } }'
const skillsShown = 'skills: { dirs: [./skills] }'

const toolList: Section = { to: 'tools', shown: toolsShown, convert: toTools }
const servers: Section = { to: 'mcpServers', shown: serversShown, convert: toServers }
const peers: Section = { to: 'peers', shown: peersShown, convert: toPeers }
const builtin: Section = {
  to: 'builtin',
  shown: 'builtin: { tools: [NAME] }',
  convert: (value) => under('tools', inList(value)),
}
const skills: Section = { to: 'skills', shown: skillsShown, convert: (value) => under('dirs', inList(value)) }
const startup: Section = {
  to: 'discovery',
  shown: 'discovery: { startup: true }',
  convert: (value) => under('startup', value),
}
const agent = (field: string): Section => ({
  to: 'agent',
  shown: `agent: { ${field}: ${field.toUpperCase()} }`,
  convert: (value) => under(field, value),
})

const sections: Readonly<Record<string, Section>> = {
  local_functions: toolList,
  localFunctions: toolList,
  local_tools: toolList,
  localTools: toolList,
  mcp_servers: servers,
  a2a_agents: peers,
  a2aAgents: peers,
  // Of a slip for `agent` the schema says so.
  agents: {
    ...peers,
    fits: (value) => isSeq(value) || (isMap(value) && value.items.every((each) => isPeer(each.value))),
  },
  remote_agents: peers,
  remoteAgents: peers,
  builtin_tools: builtin,
  builtinTools: builtin,
  skill_dirs: skills,
  skillDirs: skills,
  auto_discover: startup,
  auto_discovery: startup,
  agent_id: agent('id'),
  agent_name: agent('name'),
  listen: { to: 'server', shown: 'server: { host: HOST, port: PORT }', convert: toServer },
}

/** Today's keys that had another shape once. */
const reshaped: Readonly<Record<string, Section>> = {
  tools: { ...toolList, fits: (value) => isSeq(value) && value.items.some(hasOlderToolFields) },
  mcpServers: { ...servers, fits: isSeq },
  peers: { ...peers, fits: isSeq },
  skills: { ...skills, fits: isSeq },
}

/** Members of today's mappings that were called otherwise. */
const renamed: Readonly<Record<string, Readonly<Record<string, string>>>> = {
  discovery: { auto: 'startup', auto_discover: 'startup', autoDiscover: 'startup', auto_discovery: 'startup' },
  features: { 'bidir-delegate': 'delegate', bidir_delegate: 'delegate', bidirDelegate: 'delegate' },
}

class OlderFile {
  changed = false
  /** Which older key brought one of today's. */
  readonly #brought = new Map<string, string>()
  readonly #top: Mapping
  readonly #report: OlderShapeReport

  constructor(top: Mapping, report: OlderShapeReport) {
    this.#top = top
    this.#report = report
  }

  rewrite(): void {
    for (const pair of [...this.#top.items]) {
      const name = nameOf(pair)
      if (name === 'config_version' || name === 'version') this.#dropVersion(pair, name)
      const section = ownOf(reshaped, name)
      if (section?.fits?.(pair.value) === true) this.#reshape(pair, name, section)
      if (isMap(pair.value)) for (const member of [...pair.value.items]) this.#rename(pair.value, name, member)
    }
    // Behind the others, so that what they are merged into has its shape.
    for (const pair of [...this.#top.items]) {
      const name = nameOf(pair)
      const section = ownOf(sections, name)
      if (section !== undefined && section.fits?.(pair.value) !== false) this.#move(pair, name, section)
    }
  }

  /** Which shape a file has is seen by its keys. */
  #dropVersion(pair: Member, name: string): void {
    const value = scalarOf(pair.value)
    if (!['1', '2'].includes(String(value))) {
      const got = value === undefined ? '' : `, but it is ${JSON.stringify(value)}`
      const hint = name === 'version' ? '; the version of the agent is agent.version' : ''
      this.#report.add(
        offsetOf(pair.value ?? pair.key),
        `${name} is that of the file's shape and must be 1 or 2${got}${hint}.`,
      )
    }
    this.#warn(pair, `${name} is not needed any more: leave it out.`)
    remove(this.#top, pair)
  }

  #reshape(pair: Member, name: string, { shown, convert }: Section): void {
    this.#warn(pair, `${name} has an older shape; write ${shown}.`)
    pair.value = convert(pair.value, pair.key as Node, this.#report)
  }

  #rename(parent: Mapping, name: string, member: Member): void {
    const to = ownOf(ownOf(renamed, name) ?? {}, nameOf(member))
    if (to === undefined) return
    const older = `${name}.${nameOf(member)}`
    const both = find(parent, to) === undefined ? '' : ` ${name}.${to} is there too, and wins.`
    this.#warn(
      member,
      `${older} is an older spelling; write ${name}: { ${to}: ${String(scalarOf(member.value))} }.${both}`,
    )
    if (both === '') member.key = scalarAs(to, member.key)
    else remove(parent, member)
  }

  #move(pair: Member, name: string, { to, shown, convert }: Section): void {
    const value = convert(pair.value, pair.key as Node, this.#report)
    const today = find(this.#top, to)
    if (today === undefined) {
      this.#warn(pair, `${name} is an older spelling; write ${shown}.`)
      pair.key = scalarAs(to, pair.key)
      pair.value = value
      this.#brought.set(to, name)
      return
    }
    if (today.value === null || scalarOf(today.value) === null) today.value = value
    const shared = today.value === value ? [] : merge(today.value, value)
    const brought = this.#brought.get(to)
    const both = brought === undefined ? ` ${to} is there too: both count.` : ''
    const winner = shared.length === 0 ? '' : ` For ${shared.join(', ')} what stands in ${brought ?? to} wins.`
    this.#warn(pair, `${name} is an older spelling; write ${shown}.${both}${winner}`)
    remove(this.#top, pair)
  }

  #warn(pair: Member, sentence: string): void {
    this.changed = true
    this.#report.warn(offsetOf(pair.key), sentence)
  }
}
