/**
 * What the configuration says of calls to its peers, toolPolicy and pins, for commands that speak to one peer without
 * opening the tool space around it.
 */
import type { JsonObject } from '../../base/json.ts'
import type { NodeOptions } from '../../options.ts'
import type { RemoteToolInfo } from '../../peers/remote-tool-info.ts'
import { describeRemoteTool, type RemoteToolDescription } from '../../peers/remote-tool.ts'
import { permit } from '../../tools/call.ts'
import { localCaller } from '../../tools/local.ts'
import { Pins, pinsPath } from '../../tools/pins.ts'
import { ToolPolicy } from '../../tools/policy.ts'
import type { ToolContext } from '../../tools/tool.ts'
import type { Session } from '../a2a/session.ts'
import type { ClientFlags } from '../a2a/settings.ts'
import { ClientFailure } from '../a2a/failure.ts'
import { changedFailure, forbiddenFailure, unanswered } from './refusals.ts'
import { quarantineNote } from './space.ts'
import { configFlag, type Directory } from './target.ts'

/** Where a peer was named. */
interface Named {
  /** An id of the configuration, or a URL. */
  readonly peer: string
  readonly directory: Directory | undefined
}

/** Runs `use` with the rules for a peer of the configuration. There are none for a URL. */
export async function withPeerRules<Result>(
  session: Session<ClientFlags>,
  { peer, directory }: Named,
  use: (rules: PeerRules | undefined) => Promise<Result>,
): Promise<Result> {
  if (directory?.options === undefined || !directory.peers.has(peer)) return await use(undefined)
  const rules = new PeerRules(session, peer, directory.options)
  try {
    return await use(rules)
  } finally {
    await rules.close()
  }
}

/** The rules for one peer. Close them: pins are written then. */
export class PeerRules {
  readonly #session: Session<ClientFlags>
  readonly #peer: string
  readonly #policy: ToolPolicy | undefined
  readonly #pins: Pins

  /** Throws `config` for rules or pins that make no sense. */
  constructor(session: Session<ClientFlags>, peer: string, { toolPolicy, pins, store, baseDir = '.' }: NodeOptions) {
    this.#session = session
    this.#peer = peer
    this.#policy = toolPolicy === undefined ? undefined : new ToolPolicy(toolPolicy)
    this.#pins = new Pins({ ...pins, file: pinsPath(pins, { store: store?.url, baseDir }) })
  }

  /** The tools that are not held back, with a note on stderr for each one that is. */
  usable(tools: readonly RemoteToolInfo[]): RemoteToolInfo[] {
    return tools.filter((info) => {
      const tool = this.#toolOf(info)
      if (this.#pins.check(tool).state !== 'quarantined') return true
      this.#session.note(quarantineNote(this.#session, tool.name))
      return false
    })
  }

  /** Throws `CONVOKE_ERR_TOOL` for a tool that is held back. */
  checkPin(info: RemoteToolInfo): void {
    const tool = this.#toolOf(info)
    const verdict = this.#pins.check(tool)
    if (verdict.state === 'quarantined')
      throw changedFailure(verdict.reason, { handle: tool.name, flag: configFlag(this.#session) })
  }

  /** Asks for an approval where the policy wants one. Throws the ClientFailure that tells why a call may not be made. */
  async permit(
    info: RemoteToolInfo,
    params: JsonObject,
    shown: { readonly ask: ToolContext['ask']; readonly isAsked: boolean; readonly signal: AbortSignal },
  ): Promise<void> {
    if (this.#policy === undefined) return
    const tool = this.#toolOf(info)
    try {
      await permit(tool, params, { caller: localCaller, ask: shown.ask }, this.#policy)
    } catch (error) {
      if (shown.signal.aborted || error instanceof ClientFailure) throw error
      throw shown.isAsked
        ? unanswered(error)
        : forbiddenFailure(error, { handle: tool.name, flag: configFlag(this.#session) })
    }
  }

  async close(): Promise<void> {
    await this.#pins.close()
  }

  #toolOf(info: RemoteToolInfo): RemoteToolDescription {
    return { ...describeRemoteTool(info), name: `${this.#peer}.${info.name}` }
  }
}
