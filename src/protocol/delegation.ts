/**
 * The chain of nodes that a call has come along, `_delegation` in a message's metadata. Every node adds itself when it
 * passes a call on, and refuses one that has gone round too often, too far or for too long.
 */
import { ConvokeError } from '../base/errors.ts'
import { isObject, type JsonObject } from '../base/json.ts'
import { keys } from './extension.ts'

/** The chain as it arrives: whoever receives it is not in it yet. */
export interface Delegation {
  /** The ids of the nodes that passed the call on, first one first. */
  readonly path: readonly string[]
  /** How often the call was passed on. */
  readonly hops: number
  /** When nobody waits any more, in milliseconds since 1970. */
  readonly deadline?: number
  /** Tickets that nodes gave to calls of theirs; only the node that gave one knows what it means. */
  readonly tickets?: readonly string[]
}

export interface DelegationLimits {
  /** How often a node may be in the path of a call that it takes. 1: A calls B calls A, and no second round. */
  readonly maxVisits: number
  readonly maxHops: number
}

export const delegationLimits: DelegationLimits = { maxVisits: 1, maxHops: 8 }

/** Longest path that is read; a longer one has passed every limit already. */
const maxPath = 64
const maxIdLength = 128

/** The chain in a message's metadata, or undefined where there is none. Throws `invalid_params` for one that is not one. */
export function fromDelegation(metadata: JsonObject | undefined): Delegation | undefined {
  const value = metadata?.[keys.delegation]
  if (value === undefined || value === null) return undefined
  if (!isObject(value)) throw invalid('must be an object {path, hops, deadline}')
  const { path = [], deadline, tickets } = value
  if (!isShortList(path)) {
    throw invalid(`has a path that is no list of at most ${maxPath} ids`)
  }
  const hops = value['hops'] ?? path.length
  if (typeof hops !== 'number' || !Number.isInteger(hops) || hops < 0)
    throw invalid('has hops that are no whole number')
  if (deadline !== undefined && deadline !== null && !(typeof deadline === 'number' && Number.isFinite(deadline))) {
    throw invalid('has a deadline that is no number of milliseconds since 1970')
  }
  return {
    path,
    // A shorter count than the path is long is a mistake, or a lie.
    hops: Math.max(hops, path.length),
    ...(typeof deadline === 'number' ? { deadline } : {}),
    ...(isShortList(tickets) ? { tickets } : {}),
  }
}

function isShortList(value: unknown): value is string[] {
  return (
    Array.isArray(value) &&
    value.length <= maxPath &&
    value.every((item) => typeof item === 'string' && item.length <= maxIdLength)
  )
}

function invalid(what: string): ConvokeError {
  const message = `${keys.delegation} ${what}.`
  return new ConvokeError('invalid_params', message, { issues: [{ path: `/metadata/${keys.delegation}`, message }] })
}

/** Throws `rejected` for a call that goes in circles or too far, `timeout` for one that nobody waits for any more. */
export function checkDelegation(chain: Delegation, self: string, { maxVisits, maxHops }: DelegationLimits): void {
  const visits = chain.path.filter((id) => id === self).length
  if (visits > maxVisits) {
    const times = visits === 1 ? 'once' : `${visits} times`
    throw new ConvokeError(
      'rejected',
      `The call goes in circles: it has come through "${self}" ${times} already (${showPath(chain)}).`,
    )
  }
  if (chain.hops > maxHops) {
    throw new ConvokeError(
      'rejected',
      `The call was passed on ${chain.hops} times (${showPath(chain)}); at most ${maxHops} are allowed.`,
    )
  }
  if (chain.deadline !== undefined && chain.deadline <= Date.now()) {
    throw new ConvokeError('timeout', 'The deadline of the call was over when it arrived; nobody waits for it.', {
      retryable: false,
    })
  }
}

function showPath({ path }: Delegation): string {
  return path.map((id) => id.slice(0, 64)).join(' → ')
}

/** The chain as `self` passes it on. `deadline` is that of the call it makes; the earlier one holds. */
export function extendDelegation(
  chain: Delegation | undefined,
  self: string,
  deadline: number | undefined,
): JsonObject {
  const ends = [chain?.deadline, deadline].filter((end) => end !== undefined)
  const tickets = (chain?.tickets ?? []).slice(-maxPath)
  return {
    path: [...(chain?.path ?? []), self],
    hops: (chain?.hops ?? 0) + 1,
    ...(ends.length === 0 ? {} : { deadline: Math.min(...ends) }),
    ...(tickets.length === 0 ? {} : { tickets }),
  }
}
