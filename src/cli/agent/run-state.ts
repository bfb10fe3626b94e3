/** What an agent's run over a file has done so far: a SQLite file, from which it goes on after a stop or a crash. */
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { ConvokeError } from '../../base/errors.ts'
import { isObject, type JsonObject } from '../../base/json.ts'
import type { AgentStore, KeyLease } from '../../store/agent-store.ts'
import { openStore } from '../../store/open.ts'
import type { Store } from '../../store/store.ts'
import { CommandFailure } from '../failure.ts'
import type { Item } from './items.ts'

/** What the items' runs are kept under. */
export const itemScope = 'items'
/** Where the state remembers what it is of. */
const ownScope = 'run'
const ownKey = 'input'

export interface RunStateOptions {
  /** A path; undefined: a file that is gone with the process, for an input that cannot be read again. */
  readonly file: string | undefined
  /** It was named by somebody, and stays when everything is done. */
  readonly isNamed: boolean
  readonly keyField: string | undefined
}

/** The first item of the input, by which it is known again. */
interface Remembered {
  readonly line: number
  readonly id: string
  readonly keyField: string | null
}

/** Close it in the end. */
export class RunState {
  readonly path: string
  readonly #options: RunStateOptions
  readonly #store: Store
  #remembered: Remembered | undefined
  /** It was begun by a start before. */
  readonly isResumed: boolean
  /** By key, what a start before has begun and not ended: it may be run before its turn, behind an item of its key. */
  readonly #begun: ReadonlySet<string>

  private constructor(
    options: RunStateOptions,
    path: string,
    store: Store,
    remembered: Remembered | undefined,
    begun: ReadonlySet<string>,
  ) {
    this.path = path
    this.#options = options
    this.#store = store
    this.#remembered = remembered
    this.isResumed = remembered !== undefined
    this.#begun = begun
  }

  /** Throws a CommandFailure: 2 for a state of something else, 1 where it cannot be opened. */
  static async open(options: RunStateOptions): Promise<RunState> {
    const path = options.file ?? join(await mkdtemp(join(tmpdir(), 'convoke-run-')), 'state.db')
    let store: Store
    try {
      store = await openStore({ url: `sqlite:${path}` })
    } catch (error) {
      const { message } = ConvokeError.from(error)
      throw new CommandFailure(1, `The state of the run cannot be kept: ${message} Name another file: --state FILE`)
    }
    try {
      const text = await store.agents.state(ownScope, ownKey)
      const remembered = text === undefined ? undefined : toRemembered(JSON.parse(text))
      const { keyField = null } = options
      if (remembered !== undefined && remembered.keyField !== keyField) throw otherInput(path)
      const begun = remembered === undefined ? new Set<string>() : await begunItems(store.agents)
      return new RunState(options, path, store, remembered, begun)
    } catch (error) {
      await store.close()
      throw error
    }
  }

  get store(): AgentStore {
    return this.#store.agents
  }

  /** Whether a later start can go on with it. */
  get isKept(): boolean {
    return this.#isFile && (this.#remembered !== undefined || this.#options.isNamed)
  }

  /** It would be kept, and nothing was run. */
  get isEmpty(): boolean {
    return this.#isFile && !this.isKept
  }

  get #isFile(): boolean {
    return this.#options.file !== undefined
  }

  /** Hears of each item in its order, before it is run. Throws a CommandFailure where the state is of another input. */
  async check(item: Item): Promise<void> {
    if (this.#remembered === undefined) return await this.#remember(item)
    const { line, id } = this.#remembered
    // A line before that may have been mended since.
    if (item.line > line || (item.line === line && item.id !== id)) throw otherInput(this.path)
    if (item.line === line) this.#remembered = { ...this.#remembered, line: Infinity }
  }

  /** The id that the item is to be run under; undefined where it is done. One that failed at a start before is run again. */
  async idOf({ key, id }: Item): Promise<string | undefined> {
    if (!this.isResumed) return id
    for (let attempt = 1; ; attempt++) {
      const tried = attempt === 1 ? id : `${id}-${attempt}`
      // Whether it has been run by now or not: its runner knows.
      if (this.#begun.has(nameOf(key, tried))) return tried
      const result = await this.store.result(itemScope, key, tried)
      if (result === undefined) return tried
      if (result.failure === null) return undefined
    }
  }

  /** Whether a run has ended, well or not, and will not be done again. */
  async isConsumed(key: string, id: string): Promise<boolean> {
    return (await this.store.result(itemScope, key, id)) !== undefined
  }

  /** `isDone`: nothing is left to do. A state that nobody named is removed then, and one with nothing in it. */
  async close(isDone: boolean): Promise<void> {
    await this.#store.close()
    if (!this.#isFile) return await rm(dirname(this.path), { recursive: true, force: true })
    if ((!isDone && this.#remembered !== undefined) || this.#options.isNamed) return
    for (const end of ['', '-wal', '-shm', '-journal']) await rm(this.path + end, { force: true })
  }

  async #remember({ line, id }: Item): Promise<void> {
    const { keyField = null } = this.#options
    const remembered = { line, id, keyField }
    await this.store.append(ownScope, ownKey, { id, event: '{}' })
    const lease = await this.store.lease(ownScope, ownKey, 'run', { now: Date.now(), leaseMs: 60_000, limit: 1 })
    if (lease === undefined) throw new ConvokeError('conflict', 'The state of the run belongs to another process.')
    const change = { mailId: lease.mail[0]?.id ?? id, now: Date.now(), state: JSON.stringify(remembered) }
    await this.store.commit(lease, { ...change, outputs: [], failure: null })
    await this.store.release(lease)
    this.#remembered = { ...remembered, line: Infinity }
  }
}

/** How many keys are looked at together. */
const batchSize = 1_000

/** The items in the mailboxes, by {@link nameOf}. */
async function begunItems(store: AgentStore): Promise<ReadonlySet<string>> {
  const leases: KeyLease[] = []
  for (;;) {
    const now = Date.now()
    const keys = await store.ready(itemScope, { now, limit: batchSize })
    if (keys.length === 0) break
    for (const key of keys) {
      const lease = await store.lease(itemScope, key, 'look', { now, leaseMs: 600_000, limit: batchSize })
      if (lease !== undefined) leases.push(lease)
    }
  }
  for (const lease of leases) await store.release(lease)
  return new Set(leases.flatMap(({ key, mail }) => mail.map(({ id }) => nameOf(key, id))))
}

function nameOf(key: string, id: string): string {
  return `${id} ${key}`
}

function toRemembered(value: unknown): Remembered | undefined {
  const { line, id, keyField = null } = isObject(value) ? (value as JsonObject) : {}
  if (typeof line !== 'number' || typeof id !== 'string') return undefined
  return { line, id, keyField: typeof keyField === 'string' ? keyField : null }
}

function otherInput(path: string): CommandFailure {
  return new CommandFailure(
    2,
    `The state ${path} is of a run over another input, or by another --key. Remove it to begin anew, or name another one: --state FILE`,
  )
}
