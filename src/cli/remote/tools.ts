/** `convoke tools`: the tools of a peer, or of all peers of the configuration. */
import { inTurns } from '../../base/in-turns.ts'
import { toPeerError, type PeerError } from '../../peers/errors.ts'
import type { PeerInfo } from '../../peers/peer.ts'
import type { RemoteToolInfo } from '../../peers/remote-tool-info.ts'
import { block, field } from '../a2a/text.ts'
import type { Session } from '../a2a/session.ts'
import { createPaint, type Paint } from '../paint.ts'
import type { RemoteFlags } from './options.ts'
import { paramsText } from './signature.ts'
import { allTargets, findTarget, withPeer, type Target } from './target.ts'

export interface ToolsFlags extends RemoteFlags {
  readonly schema?: boolean
  readonly tag?: readonly string[]
  readonly search?: string
}

interface Shelf {
  readonly target: Target
  readonly info: PeerInfo
  readonly tools: readonly RemoteToolInfo[]
}

/** How many peers are asked at the same time. */
export const maxPeersAtOnce = 8
/** How long one of several peers may take, in milliseconds, unless the configuration says otherwise. */
export const peerTimeoutMs = 10_000

export async function showTools(session: Session<ToolsFlags>, reference: string | undefined): Promise<void> {
  const shelves = reference === undefined ? await shelvesOfAll(session) : [await shelfOf(session, reference)]
  const all = shelves.flatMap(({ tools }) => tools)
  const isWanted = filterOf(session.flags)
  const found = shelves.map((shelf) => ({ ...shelf, tools: shelf.tools.filter(isWanted) }))
  session.show(
    found.flatMap(({ tools }) => tools),
    () => {
      const paint = createPaint(process.stdout)
      const shown = found.filter(({ tools }) => tools.length > 0)
      if (shown.length === 0) return all.length === 0 ? 'There are no tools.\n' : 'No tool fits.\n'
      return shown.map((shelf) => shelfText(shelf, session.flags, paint)).join('\n')
    },
  )
}

async function shelfOf(session: Session<ToolsFlags>, reference: string): Promise<Shelf> {
  const target = await findTarget(session, reference)
  return withPeer(session, target, async (peer) => {
    session.isConnected = true
    const tools = await peer.listRemoteTools({ signal: session.signal })
    return { target, info: await peer.connect(), tools }
  })
}

/** The failure of one peer is a line; that of all is the failure of the command. */
async function shelvesOfAll(session: Session<ToolsFlags>): Promise<Shelf[]> {
  const targets = await allTargets(session)
  const shelves = new Map<Target, Shelf>()
  const failures: PeerError[] = []
  await inTurns(targets, maxPeersAtOnce, async (target) => {
    const options = { requestTimeoutMs: peerTimeoutMs, ...target.options }
    try {
      await withPeer(session, { ...target, options }, async (peer) => {
        const tools = await peer.listRemoteTools({ signal: session.signal })
        shelves.set(target, { target, info: await peer.connect(), tools })
      })
    } catch (error) {
      const failure = toPeerError(error, target.id)
      failures.push(failure)
      session.note(field(target.id, `${failure.sentence} (${failure.code})`).trimEnd())
    }
  })
  const [first] = failures
  if (first !== undefined && failures.length === targets.length) throw first
  return targets.flatMap((target) => shelves.get(target) ?? [])
}

function filterOf({ tag = [], search }: ToolsFlags): (tool: RemoteToolInfo) => boolean {
  const words = search?.toLowerCase()
  return ({ name, description, capabilities }) =>
    tag.every((each) => capabilities.includes(each)) &&
    (words === undefined || `${name}\n${description}`.toLowerCase().includes(words))
}

function shelfText({ target, info, tools }: Shelf, { schema, verbose }: ToolsFlags, paint: Paint): string {
  const isVerbose = schema === true || verbose === true
  return tools
    .map((tool) => {
      const marks = [
        ...(tool.traits.readOnly === true ? ['read-only'] : []),
        ...(tool.traits.idempotent === true ? ['idempotent'] : []),
        ...(info.streaming ? ['streaming'] : []),
        ...tool.capabilities,
      ]
      const name = `${target.reference}${target.id === 'peer' ? ' ' : '.'}${tool.name}`
      const head = `${name}(${paramsText(tool.parametersSchema)})${marks.length === 0 ? '' : `  [${marks.join(', ')}]`}`
      return [
        paint('bold', printableLine(head)),
        '\n',
        tool.description === '' ? '' : `  ${printableLine(tool.description)}\n`,
        isVerbose ? schemaText('Params', tool.parametersSchema) + schemaText('Result', tool.returnSchema) : '',
      ].join('')
    })
    .join('')
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
