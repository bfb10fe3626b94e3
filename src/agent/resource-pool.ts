/** The resources of one runner: each made when first asked for, once, and closed at the end, before those that it needed. */
import { pause } from '../base/abort.ts'
import { ConvokeError } from '../base/errors.ts'
import type { Logger } from '../base/logger.ts'
import { clip, closest, excerpt } from '../tools/value.ts'
import type { AgentPlan, ResourceProvider } from './plan.ts'
import type { Resources, ResourceType } from './resources.ts'

export interface ResourcePoolOptions {
  readonly plan: AgentPlan
  readonly log: Logger
  readonly baseDir: string
  /** How long a resource may take to close, in milliseconds. */
  readonly graceMs: number
  /** Finds what the plan has not: what may come while the agent runs. Default: nothing. */
  readonly find?: (name: string, type: ResourceType) => ResourceProvider | undefined
}

interface Made {
  readonly promise: Promise<Resources[ResourceType]>
  readonly provider: ResourceProvider
}

export class ResourcePool {
  readonly #options: ResourcePoolOptions
  /** In the order in which they were ready: each behind those that it needed. */
  readonly #made = new Map<string, Made>()
  /** Which resources those that are being made wait for. */
  readonly #waits = new Map<string, Set<string>>()
  #isClosed = false

  constructor(options: ResourcePoolOptions) {
    this.#options = options
  }

  /** Throws `not_found` for a name that there is not, `resource_failed` for one that cannot be made; the next call tries again. */
  get<Type extends ResourceType>(name: string, type: Type): Promise<Resources[Type]> {
    return this.#get(name, type, undefined)
  }

  /** Whether there is a resource of that name, made or not. */
  has(name: string, type: ResourceType): boolean {
    return this.#find(name, type) !== undefined
  }

  /** Closes what was made. What fails at that, or takes too long, is logged and left behind. The second time does nothing. */
  async close(): Promise<void> {
    this.#isClosed = true
    await this.#inTime(Promise.allSettled([...this.#made.values()].map(({ promise }) => promise)))
    const made = [...this.#made].toReversed()
    this.#made.clear()
    for (const [id, each] of made) {
      try {
        if (await this.#inTime(close(each))) continue
        this.#options.log.warn({ resource: clip(id, 80) }, 'A resource of an agent took too long to close.')
      } catch (error) {
        this.#options.log.warn({ resource: clip(id, 80), error }, 'A resource of an agent could not be closed.')
      }
    }
  }

  /** Whether the work has ended when the grace time is over. Throws what it throws until then. */
  async #inTime(work: Promise<unknown>): Promise<boolean> {
    const end = new AbortController()
    try {
      const late = pause(this.#options.graceMs, end.signal, { keepAlive: true }).then(() => false)
      return await Promise.race([work.then(() => true), late])
    } finally {
      end.abort()
    }
  }

  /** `from`: the resource that is being made and wants this one. */
  async #get<Type extends ResourceType>(name: string, type: Type, from: string | undefined): Promise<Resources[Type]> {
    const id = `${type} ${name}`
    if (from !== undefined) this.#wait(from, id)
    try {
      return (await (this.#made.get(id) ?? this.#make(name, type, id)).promise) as Resources[Type]
    } finally {
      if (from !== undefined) this.#waits.get(from)?.delete(id)
    }
  }

  /** Notes that one resource waits for another. Throws where that one waits for the first: neither would ever be made. */
  #wait(from: string, id: string): void {
    const seen = new Set([id])
    for (const each of seen) {
      if (each === from) {
        throw new ConvokeError(
          'resource_failed',
          `The resources ${clip(from, 80)} and ${clip(id, 80)} want each other.`,
        )
      }
      for (const next of this.#waits.get(each) ?? []) seen.add(next)
    }
    const waits = this.#waits.get(from)
    if (waits === undefined) this.#waits.set(from, new Set([id]))
    else waits.add(id)
  }

  #make(name: string, type: ResourceType, id: string): Made {
    if (this.#isClosed) throw new ConvokeError('run_ended', 'The runner of this agent is closed.')
    const { log, baseDir } = this.#options
    const provider = this.#find(name, type)
    if (provider === undefined) throw this.#missing(name, type)
    const promise = provider.provide({ log, baseDir, getResource: (other, of) => this.#get(other, of, id) })
    const made = { promise, provider }
    this.#made.set(id, made)
    const settle = (isReady: boolean) => () => {
      if (this.#made.get(id) !== made) return
      this.#made.delete(id)
      if (isReady) this.#made.set(id, made)
    }
    promise.then(settle(true), settle(false))
    return made
  }

  #find(name: string, type: ResourceType): ResourceProvider | undefined {
    const { plan, find } = this.#options
    return plan.resources.get(type)?.get(name) ?? find?.(name, type)
  }

  /** Callers may hear of it, and the names of the others are none of theirs: those are in the log. */
  #missing(name: string, type: ResourceType): ConvokeError {
    const { plan, log } = this.#options
    const known = [...(plan.resources.get(type)?.keys() ?? [])]
    const others = [...plan.resources].flatMap(([other, named]) => (named.has(name) ? [other] : []))
    const meant = closest(name, known)
    log.warn(
      { resource: clip(name, 80), type, known: known.slice(0, 20), ...(meant === undefined ? {} : { meant }) },
      'An agent wants a resource that it does not have.',
    )
    const hint =
      others.length > 0
        ? `There is one of the type ${others.join(', ')}.`
        : known.length > 0
          ? 'The log says which ones there are.'
          : type === 'chatModelConnection' || type === 'chatModelSetup'
            ? "Add it by `addResource`, or under `models` of the node's configuration."
            : 'Add it by `addResource`.'
    return new ConvokeError('not_found', `The agent has no resource ${excerpt(name)} of the type ${type}. ${hint}`)
  }
}

/** One that the agent was given is its owner's to close. */
async function close({ promise, provider }: Made): Promise<void> {
  const resource = await promise.catch(() => undefined)
  if (resource === undefined || !provider.owns(resource)) return
  if ('close' in resource && typeof resource.close === 'function') await resource.close()
}
