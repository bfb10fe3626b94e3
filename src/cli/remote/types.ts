/** `convoke types`: the types of a peer's tools, for `connectPeer<Tools>(url)`. */
import { writeFile } from 'node:fs/promises'
import { ClientFailure } from '../a2a/failure.ts'
import type { Session } from '../a2a/session.ts'
import type { RemoteFlags } from './options.ts'
import { findTarget, withPeer } from './target.ts'
import { toDeclarations } from './declarations.ts'

export interface TypesFlags extends RemoteFlags {
  readonly out?: string
}

export async function writeTypes(session: Session<TypesFlags>, reference: string): Promise<void> {
  const target = await findTarget(session, reference)
  const { out } = session.flags
  await withPeer(session, target, async (peer) => {
    session.isConnected = true
    const tools = await peer.listRemoteTools({ signal: session.signal })
    const { name } = await peer.connect()
    const types = toDeclarations(tools, `${name} (${target.options.url})`)
    if (out !== undefined) await write(out, types)
    const names = tools.map((tool) => tool.name).toSorted()
    if (out === undefined || session.isJson) {
      session.show({ peer: name, url: target.options.url, tools: names, types }, () => types)
    } else {
      session.note(`${out} has the types of ${tools.length === 1 ? '1 tool' : `${tools.length} tools`}.`)
    }
  })
}

async function write(file: string, text: string): Promise<void> {
  try {
    await writeFile(file, text)
  } catch (cause) {
    const reason = cause instanceof Error ? cause.message : String(cause)
    throw new ClientFailure('CONVOKE_ERR_FILE', `The types cannot be written to ${file}: ${reason}`, { cause })
  }
}
