/** `convoke tools`: the whole tool space of the configuration, or the tools of one peer or MCP server. */
import { ConvokeError } from '../../base/errors.ts'
import { inTurns } from '../../base/in-turns.ts'
import type { JsonObject } from '../../base/json.ts'
import { PeerError } from '../../peers/errors.ts'
import type { RemoteToolInfo } from '../../peers/remote-tool-info.ts'
import type { ToolSource } from '../../tools/source.ts'
import type { AgentTools } from '../../tool-space.ts'
import type { JsonSchema, Tool, ToolKind } from '../../tools/tool.ts'
import { usageFailure } from '../a2a/failure.ts'
import { block, field } from '../a2a/text.ts'
import type { Session } from '../a2a/session.ts'
import { ExitRequest } from '../failure.ts'
import { createPaint, type Paint } from '../paint.ts'
import type { RemoteFlags } from './options.ts'
import { withPeerRules } from './peer-rules.ts'
import { paramsText } from './signature.ts'
import {
  hasOwnTools,
  lookAtServer,
  serverFailure,
  unusableTools,
  withinTimeout,
  withSpace,
  type WithOptions,
} from './space.ts'
import { configFlag, fileOrUrl, findTarget, isServer, noFile, readDirectory, urlOf, withPeer } from './target.ts'

export interface ToolsFlags extends RemoteFlags {
  readonly schema?: boolean
  readonly tag?: readonly string[]
  readonly search?: string
  readonly kind?: ToolKind
}

/** A tool as it is shown. */
interface Shown {
  /** As a call names it: `bob.count_to`, `https://bob.example.com count_to`, `word_count`. */
  readonly name: string
  /** What tells it from others in a search: no URL. */
  readonly key: string
  readonly description: string
  readonly input: JsonSchema | undefined
  readonly output: JsonSchema | undefined
  readonly kind: ToolKind
  /** The category first. */
  readonly tags: readonly string[]
  /** What it promises, and its tags. */
  readonly marks: readonly string[]
  readonly json: JsonObject
}

/** The tools of one source. */
interface Shelf {
  /** What stands above them where there are several sources. */
  readonly heading: string | undefined
  readonly tools: readonly Shown[]
}

/** How many peers or servers are asked at the same time. */
export const maxAtOnce = 8
/** How long one of several peers may take, in milliseconds, unless the configuration says otherwise. */
export const peerTimeoutMs = 10_000

export async function showTools(session: Session<ToolsFlags>, reference: string | undefined): Promise<void> {
  // Nobody is at it any more when this ends.
  session.isOver = true
  const { shelves, hasRunModules } =
    reference === undefined ? await allShelves(session) : await oneShelf(session, reference)
  const total = shelves.reduce((sum, { tools }) => sum + tools.length, 0)
  const found = await wantedOf(shelves, session.flags)
  session.show(
    found.flatMap(({ tools }) => tools.map(({ json }) => json)),
    () => {
      const paint = createPaint(process.stdout)
      const shown = found.filter(({ tools }) => tools.length > 0)
      if (shown.length === 0) return total === 0 ? 'There are no tools.\n' : 'No tool fits.\n'
      return shown.map((shelf) => shelfText(shelf, session.flags, paint)).join('\n')
    },
  )
  // A module may have opened something that would keep the process alive.
  if (hasRunModules) throw new ExitRequest(0)
}

interface Shelves {
  readonly shelves: readonly Shelf[]
  readonly hasRunModules: boolean
}

/** The tools of the peer, URL or MCP server that was named. */
async function oneShelf(session: Session<ToolsFlags>, reference: string): Promise<Shelves> {
  const directory = urlOf(reference) === undefined ? await readDirectory(session) : undefined
  if (directory !== undefined && !directory.peers.has(reference) && (await isServer(directory, reference))) {
    const shelf = await withSpace(session, directory as WithOptions, { servers: true }, async (space) => {
      await lookAtServer(session, space, { directory, server: reference })
      noteUnusable(session, space)
      return { heading: undefined, tools: space.tools.list({ source: reference }).map(shownTool) }
    })
    return { shelves: [shelf], hasRunModules: false }
  }
  const target = await findTarget(session, reference, directory)
  const tools = await withPeerRules(
    session,
    { peer: reference, directory },
    async (rules) =>
      await withPeer(session, target, async (peer) => {
        session.isConnected = true
        const listed = await peer.listRemoteTools({ signal: session.signal })
        const { streaming } = await peer.connect()
        const before = `${target.reference}${target.id === 'peer' ? ' ' : '.'}`
        const source = target.reference
        return (rules?.usable(listed) ?? listed).map((tool) =>
          shownPeerTool(tool, { name: `${before}${tool.name}`, key: tool.name, source, streaming }),
        )
      }),
  )
  return { shelves: [{ heading: undefined, tools }], hasRunModules: false }
}

/** All tools of the configuration. A source that fails is a line on stderr; where nothing else is, the command fails with it. */
async function allShelves(session: Session<ToolsFlags>): Promise<Shelves> {
  const directory = await readDirectory(session)
  const { file, options } = directory
  if (file === undefined || options === undefined) throw usageFailure(noFile, fileOrUrl)
  const { mcpServers = {} } = options
  if (!hasOwnTools(options) && directory.peers.size === 0 && Object.keys(mcpServers).length === 0) {
    throw usageFailure(
      `There are no tools, no mcpServers and no peers in ${file}.`,
      'Name a peer by its URL, or write it into the file: peers: { bob: { url: https://bob.example.com } }',
    )
  }
  const { kind } = session.flags
  const own = hasOwnTools(options) && (kind ?? 'local') === 'local'
  const wanted = { own, servers: (kind ?? 'mcp') === 'mcp', peers: (kind ?? 'a2a') === 'a2a', peerTimeoutMs }
  // Whether the node calls peers by itself is another question than what they have.
  const listed = { ...options, features: { ...options.features, delegate: true } }
  const shelves = await withSpace(session, { ...directory, options: listed }, wanted, async (space) => {
    for (const warning of space.warnings) session.note(field('warning', warning).trimEnd())
    await discoverAll(session, space, { directory: { ...directory, options }, hasOthers: own })
    noteUnusable(session, space)
    return [
      { heading: 'Own tools:', tools: space.tools.list({ source: '' }).map(shownTool) },
      ...space.mcpServers.services().map((id) => serverShelf(space, id)),
      ...space.remoteTools.services().map((id) => peerShelf(space, id)),
    ]
  })
  return { shelves, hasRunModules: own }
}

async function discoverAll(
  session: Session<ToolsFlags>,
  space: AgentTools,
  { directory, hasOthers }: { readonly directory: WithOptions; readonly hasOthers: boolean },
): Promise<void> {
  const sources = [space.mcpServers, space.remoteTools].flatMap((source: ToolSource) =>
    source.services().map((id) => ({ source, id })),
  )
  const failures: { readonly id: string; readonly error: ConvokeError }[] = []
  await inTurns(sources, maxAtOnce, async ({ source, id }) => {
    try {
      await withinTimeout(session, (signal) => source.discover(id, { signal }))
    } catch (thrown) {
      const error = ConvokeError.from(thrown)
      failures.push({ id, error })
      if (session.signal.aborted) return
      const sentence = error instanceof PeerError ? error.sentence : error.message
      session.note(field(id, `${sentence} (${error.code})`).trimEnd())
    }
  })
  session.signal.throwIfAborted()
  const [first] = failures
  if (first === undefined || hasOthers || failures.length < sources.length) return
  if (first.error instanceof PeerError) throw first.error
  throw serverFailure(first.error, { directory, server: first.id, flag: configFlag(session) })
}

function noteUnusable(session: Session<ToolsFlags>, space: AgentTools): void {
  for (const line of unusableTools(session, space)) session.note(line)
}

function serverShelf({ tools }: AgentTools, id: string): Shelf {
  return { heading: `MCP server ${id}:`, tools: tools.list({ source: id }).map(shownTool) }
}

function peerShelf({ tools, remoteTools, peers }: AgentTools, id: string): Shelf {
  const usable = new Set(tools.list({ source: id }).map(({ name }) => name))
  const streaming = peers.get(id).info?.streaming === true
  const listed = remoteTools.find({ peer: id }).filter(({ handle }) => usable.has(handle))
  return {
    heading: `Peer ${id}, ${peers.optionsOf(id)?.url ?? ''}:`,
    tools: listed.map((tool) => shownPeerTool(tool, { name: tool.handle, key: tool.handle, source: id, streaming })),
  }
}

function shownPeerTool(
  tool: RemoteToolInfo,
  {
    name,
    key,
    source,
    streaming,
  }: Pick<Shown, 'name' | 'key'> & { readonly source: string; readonly streaming: boolean },
): Shown {
  const { description, capabilities, parametersSchema, returnSchema, traits } = tool
  return {
    name,
    key,
    description,
    input: parametersSchema,
    output: returnSchema,
    kind: 'a2a',
    tags: capabilities,
    marks: [...promises(traits), ...(streaming ? ['streaming'] : []), ...capabilities],
    json: { ...tool.toJSON(), kind: 'a2a', source },
  }
}

function shownTool(tool: Tool): Shown {
  const { name: handle, description, input, output, traits, kind } = tool
  const dot = handle.indexOf('.')
  const tags = [...(traits.category === undefined ? [] : [traits.category]), ...(traits.tags ?? [])]
  return {
    name: handle,
    key: handle,
    description,
    input,
    output,
    kind,
    tags,
    marks: [...promises(traits), ...tags],
    // By the names that tools of peers have there.
    json: {
      name: handle.slice(dot + 1),
      description,
      capabilities: tags,
      parameters_schema: input,
      ...(output === undefined ? {} : { return_schema: output }),
      read_only: traits.readOnly ?? false,
      idempotent: traits.idempotent ?? false,
      kind,
      source: dot > 0 ? handle.slice(0, dot) : '',
    },
  }
}

function promises({ readOnly, idempotent }: Tool['traits']): string[] {
  return [...(readOnly === true ? ['read-only'] : []), ...(idempotent === true ? ['idempotent'] : [])]
}

/** What the filters leave; where words are searched for, what fits them best comes first on each shelf. */
async function wantedOf(shelves: readonly Shelf[], { tag = [], kind, search }: ToolsFlags): Promise<readonly Shelf[]> {
  const isWanted = ({ tags, ...tool }: Shown): boolean =>
    tag.every((each) => tags.includes(each)) && (kind === undefined || tool.kind === kind)
  const left = shelves.map(({ heading, tools }) => ({ heading, tools: tools.filter(isWanted) }))
  if (search === undefined) return left
  const { ToolSearch } = await import('../../tools/search.ts')
  const index = new ToolSearch()
  const all = left.flatMap(({ tools }) => tools)
  const searched = all.map(({ key, description, input = {}, tags }) => ({
    name: key,
    description,
    input,
    traits: { tags },
  }))
  index.update(searched, 0)
  const ranks = new Map(index.search(search, { limit: Math.max(1, all.length) }).map(({ name }, rank) => [name, rank]))
  const rankOf = ({ key }: Shown): number => ranks.get(key) ?? Infinity
  return left.map(({ heading, tools }) => ({
    heading,
    tools: tools.filter((tool) => ranks.has(tool.key)).toSorted((a, b) => rankOf(a) - rankOf(b)),
  }))
}

function shelfText({ heading, tools }: Shelf, { schema, verbose }: ToolsFlags, paint: Paint): string {
  const isVerbose = schema === true || verbose === true
  const lines = tools.map(({ name, description, input, output, marks }) => {
    const head = `${name}(${paramsText(input)})${marks.length === 0 ? '' : `  [${marks.join(', ')}]`}`
    return [
      paint('bold', printableLine(head)),
      '\n',
      description === '' ? '' : `  ${printableLine(description)}\n`,
      isVerbose ? schemaText('Params', input) + schemaText('Result', output) : '',
    ].join('')
  })
  return `${heading === undefined ? '' : `${paint('dim', printableLine(heading))}\n`}${lines.join('')}`
}

function schemaText(label: string, schema: unknown): string {
  return schema === undefined
    ? ''
    : `  ${block(label, JSON.stringify(schema, null, 2))
        .trimEnd()
        .replaceAll('\n', '\n  ')}\n`
}

/** A stranger's text as one line. */
function printableLine(text: string): string {
  return field('', text).slice(': '.length).trimEnd()
}
