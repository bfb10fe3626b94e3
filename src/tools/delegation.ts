/** The guard of calls that other nodes pass on: it reads their chain, refuses circles, and knows its own calls again. */
import { randomUUID } from 'node:crypto'
import type { JsonObject } from '../base/json.ts'
import { checkDelegation, fromDelegation, type Delegation, type DelegationLimits } from '../protocol/delegation.ts'

export class DelegationGuard {
  readonly #self: string
  readonly #limits: DelegationLimits
  /** Tickets of the tasks that run here and have passed a call on. */
  readonly #tickets = new Set<string>()

  constructor(self: string, limits: DelegationLimits) {
    this.#self = self
    this.#limits = limits
  }

  /** The chain in a message's metadata. Throws `invalid_params`, `rejected` or `timeout` for one that may not go on. */
  read(metadata: JsonObject | undefined): Delegation | undefined {
    const chain = fromDelegation(metadata)
    if (chain !== undefined) checkDelegation(chain, this.#self, this.#limits)
    return chain
  }

  /** Whether a task that runs here waits for this call. The path alone proves nothing: anybody can write one. */
  isOurs(chain: Delegation | undefined): boolean {
    return chain?.tickets?.some((ticket) => this.#tickets.has(ticket)) ?? false
  }

  /** {@link isOurs} of a message's metadata, whatever stands in it. */
  knows(metadata: JsonObject | undefined): boolean {
    try {
      return this.isOurs(fromDelegation(metadata))
    } catch {
      // A chain that is none is refused where it is read.
      return false
    }
  }

  /** The chain as the calls of one task begin with it: with a ticket that counts until the task has ended. */
  open(chain: Delegation | undefined): { readonly chain: Delegation; close(): void } {
    const ticket = randomUUID()
    this.#tickets.add(ticket)
    const { path = [], hops = 0, deadline, tickets = [] } = chain ?? {}
    return {
      chain: { path, hops, ...(deadline === undefined ? {} : { deadline }), tickets: [...tickets, ticket] },
      close: () => this.#tickets.delete(ticket),
    }
  }
}

/** A chain that is opened when the task first passes a call on, and closed with the task. */
export class TaskChain {
  readonly #guard: DelegationGuard
  readonly #incoming: Delegation | undefined
  #opened: ReturnType<DelegationGuard['open']> | undefined

  constructor(guard: DelegationGuard, incoming: Delegation | undefined) {
    this.#guard = guard
    this.#incoming = incoming
  }

  get outgoing(): Delegation {
    return (this.#opened ??= this.#guard.open(this.#incoming)).chain
  }

  get reentrant(): boolean {
    return this.#incoming !== undefined && this.#guard.isOurs(this.#incoming)
  }

  close(): void {
    this.#opened?.close()
  }
}
