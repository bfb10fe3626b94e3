/**
 * Pins: what the tools of others said of themselves when they were first seen. A tool that says something else later is
 * held back until somebody approves: its description and schemas are what a model and a person decide by.
 */
import { createHash } from 'node:crypto'
import { dirname, join, resolve } from 'node:path'
import { ConvokeError } from '../base/errors.ts'
import { canonicalJson } from '../base/json.ts'
import { silentLog, type Logger } from '../base/logger.ts'
import { diffSnapshots, type PinDiff } from './pin-diff.ts'
import { PinFile, type PinMap } from './pin-file.ts'
import { PinRecords, serviceOf, type PinRecord, type Sighting, type Snapshot } from './pin-records.ts'
import { tagsOf, traitOf } from './policy.ts'
import type { Tool } from './tool.ts'
import { closest, excerpt } from './value.ts'

/** What happens with a tool that changed: it is held back; taken with a warning in the log; or taken silently. */
export type PinPolicy = 'quarantine' | 'warn' | 'trust'

/** The key `pins` of a configuration. */
export interface PinSettings {
  /** Default: `quarantine`. */
  readonly policy?: PinPolicy
  /** For the tools of single peers and servers, by their ids. */
  readonly services?: Readonly<Record<string, PinPolicy>>
  /** Relative to `baseDir`, or `:memory:`. Default: `pins.json` beside the store, in memory where the store is. */
  readonly file?: string
}

export interface PinsOptions extends Omit<PinSettings, 'file'> {
  /** An absolute path. Default: they are kept in memory. */
  readonly file?: string | undefined
  readonly log?: Logger
  /** How many tools of one service are remembered. Default: 20,000. */
  readonly maxPerService?: number
}

export type PinVerdict =
  /** Seen for the first time, and pinned; as it is pinned; changed, and taken: told once. */
  | { readonly state: 'new' | 'same' | 'changed' }
  /** Not to be listed or called. `reason` is a sentence for whoever calls it, `since` in milliseconds since 1970. */
  | { readonly state: 'quarantined'; readonly reason: string; readonly since: number }

/** What a tool is pinned by. */
export type PinnedBy = Pick<Tool, 'name' | 'kind' | 'description' | 'input' | 'output' | 'traits'>

export interface PinnedTool {
  readonly handle: string
  readonly state: 'pinned' | 'quarantined'
  readonly hash: string
  /** In milliseconds since 1970. */
  readonly firstSeen: number
  /** To the hour. */
  readonly lastSeen: number
  /** When the last change was taken or approved. */
  readonly changedAt?: number
  readonly pending?: { readonly hash: string; readonly seenAt: number }
}

const defaultMaxPerService = 20_000
/** How exact `lastSeen` is: nobody wants the file written at each look. */
const lastSeenStepMs = 60 * 60 * 1000
/** How long what was seen may gather before it is written, in milliseconds. Approvals are written at once. */
const writeDelayMs = 200
/** The file is looked at for an approval this often at most, in milliseconds: a list may hold many quarantined tools. */
const statStepMs = 10

const same: PinVerdict = { state: 'same' }
const fresh: PinVerdict = { state: 'new' }
const changed: PinVerdict = { state: 'changed' }

export class Pins {
  readonly #policy: PinPolicy
  readonly #services: ReadonlyMap<string, PinPolicy>
  readonly #maxPerService: number
  readonly #log: Logger
  readonly #file: PinFile | undefined
  readonly #snapshots = new WeakMap<PinnedBy, Snapshot>()
  /** Tools that were as they are pinned, and for how long that need not be looked at again unless a record changes. */
  readonly #settled = new WeakMap<
    PinnedBy,
    { readonly records: PinRecords; readonly changes: number; readonly until: number }
  >()
  /** What is not in the file yet, by handle; `#records` has it already. */
  readonly #unwritten = new Map<string, Sighting>()
  readonly #listeners = new Set<() => void>()
  /** Services of which the log has told that they have too many tools. */
  readonly #fullServices = new Set<string>()
  #records: PinRecords
  #writing: Promise<unknown> = Promise.resolve()
  #timer: NodeJS.Timeout | undefined
  #lastStat = 0
  #isLost = false
  #isFailing = false
  /** Why the file could not be read the last time; told once. */
  #readFailure = ''
  #isTelling = false
  #closing: Promise<void> | undefined

  /** Reads the file, if there is one. Throws `config` for one that is broken. */
  constructor(options: PinsOptions = {}) {
    this.#policy = options.policy ?? 'quarantine'
    this.#services = new Map(Object.entries(options.services ?? {}))
    this.#maxPerService = options.maxPerService ?? defaultMaxPerService
    this.#log = options.log ?? silentLog
    this.#file = options.file === undefined ? undefined : new PinFile(options.file)
    this.#records = new PinRecords(this.#file?.read() ?? new Map<string, PinRecord>(), this.#maxPerService)
    this.#file?.watch(() => this.#refresh())
    const held = this.list().filter(({ state }) => state === 'quarantined').length
    if (held > 0) this.#log.warn({ tools: held }, `Quarantined tools: ${held}. See convoke pins list`)
  }

  /**
   * Looks at a tool as its service tells it now, and pins it if it is new. Cheap for an object that was seen before. The
   * agent's own tools are always `same`.
   */
  check(tool: PinnedBy): PinVerdict {
    if (tool.kind === 'local' || tool.name.indexOf('.') <= 0) return same
    const now = Date.now()
    const settled = this.#settled.get(tool)
    // Each call asks, and a list of ten thousand that often: the rest would take 2 µs.
    if (
      settled !== undefined &&
      settled.records === this.#records &&
      settled.changes === settled.records.changes &&
      now < settled.until
    )
      return same
    const { name: handle } = tool
    const snapshot = this.#snapshotOf(tool)
    let record = this.#records.byHandle.get(handle)
    // Somebody may have approved it a moment ago.
    if (record !== undefined && record.hash !== snapshot.hash && this.#lookAgain()) {
      record = this.#records.byHandle.get(handle)
    }
    const isSettled =
      record !== undefined &&
      now - record.lastSeen < lastSeenStepMs &&
      (record.hash === snapshot.hash
        ? record.pending === undefined
        : isPending(record, snapshot) && !this.#isTrusted(handle))
    if (record === undefined || !isSettled) return this.#see(tool, snapshot, record, now)
    if (record.hash !== snapshot.hash) return quarantined(handle, record.pending?.seenAt ?? now)
    const { changes } = this.#records
    this.#settled.set(tool, { records: this.#records, changes, until: record.lastSeen + lastSeenStepMs })
    return same
  }

  /** What is remembered, by handle. */
  list(): PinnedTool[] {
    return [...this.#records.byHandle]
      .map(([handle, record]) => toPinnedTool(handle, record))
      .sort((a, b) => (a.handle < b.handle ? -1 : 1))
  }

  /**
   * What changed at a tool: what is held back against what is pinned; where nothing is, the last change that was taken
   * or approved; undefined where there was none. Throws `not_found`.
   */
  diff(handle: string): PinDiff | undefined {
    const record = this.#records.byHandle.get(handle)
    if (record === undefined) throw unknownHandle(handle, this.#records)
    const { pending, previous } = record
    if (pending !== undefined)
      return { ...diffSnapshots(record, pending), handle, state: 'pending', at: pending.seenAt }
    if (previous === undefined) return undefined
    return { ...diffSnapshots(previous, record), handle, state: 'accepted', at: previous.until }
  }

  /**
   * Pins what is held back: of these tools, or with `*` of all. Resolves, once it is in the file, with those at which
   * something was held back, and with what is pinned now. Rejects with `not_found`, and with `conflict` where what is held
   * back is not what `hash` begins: the tool may have changed once more since somebody looked. Has approved nothing then.
   */
  async approve(
    handles: string | readonly string[],
    { hash }: { readonly hash?: string | undefined } = {},
  ): Promise<{ handle: string; hash: string }[]> {
    let approved: { handle: string; hash: string }[] = []
    await this.#change((records) => {
      const wanted = handles === '*' ? [...records.byHandle.keys()] : [handles].flat()
      const unknown = wanted.find((handle) => !records.byHandle.has(handle))
      if (unknown !== undefined) throw unknownHandle(unknown, records)
      if (hash !== undefined) for (const handle of wanted) checkHash(handle, records, hash)
      const now = Date.now()
      approved = wanted
        .filter((handle) => records.approve(handle, now))
        .map((handle) => ({ handle, hash: records.byHandle.get(handle)?.hash ?? '' }))
      return approved.length > 0
    })
    return approved
  }

  /** Forgets a tool: the next look at it is the first one. Resolves with whether it was known. */
  async forget(handle: string): Promise<boolean> {
    let found = false
    await this.#change((records) => (found = records.forget(handle)))
    return found
  }

  /**
   * Calls the listener soon after tools were quarantined, approved or forgotten, here or by another process; once for
   * all that happens in a turn of the event loop. Returns how to take it back.
   */
  onChange(listener: () => void): () => void {
    this.#listeners.add(listener)
    return () => this.#listeners.delete(listener)
  }

  /** Writes what is not written yet, and lets go of the file. Never rejects; the second call waits for the first. */
  close(): Promise<void> {
    this.#closing ??= this.#close()
    return this.#closing
  }

  async #close(): Promise<void> {
    clearTimeout(this.#timer)
    this.#file?.close()
    this.#listeners.clear()
    await this.#flush()
  }

  #see(tool: PinnedBy, snapshot: Snapshot, before: PinRecord | undefined, at: number): PinVerdict {
    const { name: handle } = tool
    const trusted = this.#isTrusted(handle)
    const sighting: Sighting = { handle, snapshot, at, trusted }
    const outcome = this.#records.see(sighting)
    if (outcome === 'full') return this.#refuse(handle, at)
    if (this.#file !== undefined) {
      this.#unwritten.set(handle, sighting)
      this.#schedule()
    }
    if (outcome === 'quarantined') {
      if (isPending(before, snapshot)) return quarantined(handle, before?.pending?.seenAt ?? at)
      this.#tellListeners()
      this.#log.warn({ tool: handle }, quarantineReason(handle))
      return quarantined(handle, at)
    }
    if (outcome !== 'changed') return outcome === 'new' ? fresh : same
    if (before?.pending !== undefined) this.#tellListeners()
    const text = `The tool ${excerpt(handle)} says something else than before: convoke pins diff ${handle} shows what.`
    this.#log[this.#policyOf(handle) === 'warn' ? 'warn' : 'debug']({ tool: handle }, text)
    return changed
  }

  /** What cannot be remembered cannot be held to it. */
  #refuse(handle: string, at: number): PinVerdict {
    const limit = `more than ${this.#maxPerService} tools of ${excerpt(serviceOf(handle))} cannot be remembered`
    if (this.#isTrusted(handle)) return same
    if (!this.#fullServices.has(serviceOf(handle))) {
      this.#fullServices.add(serviceOf(handle))
      this.#log.warn({ tool: handle }, `Tools are quarantined: ${limit}.`)
    }
    return { state: 'quarantined', reason: `The tool ${excerpt(handle)} is quarantined: ${limit}.`, since: at }
  }

  #policyOf(handle: string): PinPolicy {
    return this.#services.get(serviceOf(handle)) ?? this.#policy
  }

  #isTrusted(handle: string): boolean {
    return this.#policyOf(handle) !== 'quarantine'
  }

  #snapshotOf(tool: PinnedBy): Snapshot {
    let snapshot = this.#snapshots.get(tool)
    if (snapshot === undefined) this.#snapshots.set(tool, (snapshot = toSnapshot(tool)))
    return snapshot
  }

  /** Whether the file was another one, and was read. */
  #lookAgain(): boolean {
    if (this.#file === undefined || this.#closing !== undefined) return false
    const now = performance.now()
    if (now - this.#lastStat < statStepMs) return false
    this.#lastStat = now
    return this.#refresh()
  }

  #refresh(): boolean {
    const file = this.#file
    if (file === undefined || this.#closing !== undefined) return false
    try {
      if (!file.hasChanged()) return false
      const held = file.read()
      if (held === undefined) {
        this.#isLost = true
        this.#log.warn({}, `${file.path} was deleted and is written again; delete it while no node runs.`)
        this.#schedule()
        return false
      }
      this.#adopt(held)
      this.#readFailure = ''
      return true
    } catch (error) {
      // What is known already holds on.
      const { message } = error as Error
      if (message !== this.#readFailure) this.#log.error({ error }, `The pins cannot be read again: ${message}`)
      this.#readFailure = message
      return false
    }
  }

  /** Takes over what the file holds, and once more what it does not hold yet. */
  #adopt(held: PinMap): void {
    const before = this.#records.byHandle
    this.#records = new PinRecords(held, this.#maxPerService)
    for (const sighting of this.#unwritten.values()) this.#records.see(sighting)
    if (isOther(before, this.#records.byHandle)) this.#tellListeners()
  }

  #tellListeners(): void {
    if (this.#isTelling) return
    this.#isTelling = true
    queueMicrotask(() => {
      this.#isTelling = false
      for (const listener of this.#listeners) {
        try {
          listener()
        } catch (error) {
          // Nobody is there to catch it, and the process would end.
          this.#log.error({ error }, 'A listener for changes of the pins failed.')
        }
      }
    })
  }

  #schedule(): void {
    if (this.#timer !== undefined || this.#closing !== undefined) return
    this.#timer = setTimeout(() => {
      this.#timer = undefined
      void this.#flush()
    }, writeDelayMs).unref()
  }

  /** Writes what was seen. A failure is told once; what was not written is tried again with the next. */
  async #flush(): Promise<void> {
    if (this.#file === undefined || (this.#unwritten.size === 0 && !this.#isLost)) return
    try {
      await this.#change(() => false)
      this.#isFailing = false
    } catch (error) {
      if (!this.#isFailing) this.#log.error({ error }, `The pins cannot be written: ${(error as Error).message}`)
      this.#isFailing = true
    }
  }

  /** Changes the records, in the file too. `change` returns whether it changed any. One change after the other. */
  #change(change: (records: PinRecords) => boolean): Promise<void> {
    const next = this.#writing.then(() => this.#changeNow(change))
    this.#writing = next.catch(() => undefined)
    return next
  }

  async #changeNow(change: (records: PinRecords) => boolean): Promise<void> {
    const file = this.#file
    if (file === undefined) {
      if (change(this.#records)) this.#tellListeners()
      return
    }
    let sightings: Sighting[] = []
    let next: PinMap | undefined
    await file.update((held) => {
      sightings = [...this.#unwritten.values()]
      const records = new PinRecords(held ?? new Map(this.#records.byHandle), this.#maxPerService)
      for (const sighting of sightings) records.see(sighting)
      const isChanged = change(records)
      next = records.byHandle
      const isLost = held === undefined && next.size > 0
      return isChanged || sightings.length > 0 || isLost ? next : undefined
    })
    this.#isLost = false
    for (const sighting of sightings) {
      if (this.#unwritten.get(sighting.handle) === sighting) this.#unwritten.delete(sighting.handle)
    }
    if (next !== undefined) this.#adopt(next)
  }
}

/** Where the pins of a node are: what its settings say, else beside its store. Undefined: in memory. */
export function pinsPath(
  settings: PinSettings | undefined,
  { store = ':memory:', baseDir }: { readonly store?: string | undefined; readonly baseDir: string },
): string | undefined {
  if (settings?.file === ':memory:') return undefined
  if (settings?.file !== undefined) return resolve(baseDir, settings.file)
  const path = store.startsWith('sqlite:') ? store.slice('sqlite:'.length) : ':memory:'
  return path === ':memory:' ? undefined : join(dirname(resolve(baseDir, path)), 'pins.json')
}

function toSnapshot(tool: PinnedBy): Snapshot {
  const { description, input, output, traits } = tool
  const annotations = {
    readOnly: traitOf(traits, 'readOnly'),
    idempotent: traitOf(traits, 'idempotent'),
    tags: tagsOf(traits).toSorted(),
  }
  const said = { description, input, ...(output === undefined ? {} : { output }), annotations }
  return { hash: createHash('sha256').update(canonicalJson(said)).digest('hex'), ...said }
}

function isPending(record: PinRecord | undefined, { hash }: Snapshot): boolean {
  return record?.pending?.hash === hash
}

/** Whether another verdict may come of it. */
function isOther(before: PinMap, after: PinMap): boolean {
  if ([...before.keys()].some((handle) => !after.has(handle))) return true
  return [...after].some(([handle, { hash, pending }]) => {
    const known = before.get(handle)
    return known !== undefined && (known.hash !== hash || known.pending?.hash !== pending?.hash)
  })
}

function quarantined(handle: string, since: number): PinVerdict {
  return { state: 'quarantined', reason: quarantineReason(handle), since }
}

function quarantineReason(handle: string): string {
  const what = 'it says something else than when it was pinned'
  return `The tool ${excerpt(handle)} is quarantined: ${what}, and nobody has approved that. See convoke pins diff ${handle}`
}

function toPinnedTool(handle: string, { hash, firstSeen, lastSeen, pending, previous }: PinRecord): PinnedTool {
  return {
    handle,
    state: pending === undefined ? 'pinned' : 'quarantined',
    hash,
    firstSeen,
    lastSeen,
    ...(previous === undefined ? {} : { changedAt: previous.until }),
    ...(pending === undefined ? {} : { pending: { hash: pending.hash, seenAt: pending.seenAt } }),
  }
}

/** What is held back, or pinned already, is what somebody has looked at. */
function checkHash(handle: string, { byHandle }: PinRecords, hash: string): void {
  const record = byHandle.get(handle)
  const held = record?.pending?.hash ?? record?.hash ?? ''
  if (held.startsWith(hash)) return
  const text = `The tool ${excerpt(handle)} says something else by now (${held.slice(0, 12)}, not ${excerpt(hash)}).`
  throw new ConvokeError('conflict', `${text} Look at it again: convoke pins diff ${handle}`)
}

function unknownHandle(handle: string, { byHandle }: PinRecords): ConvokeError {
  const handles = [...byHandle.keys()]
  const alike = handles.filter((each) => each.startsWith(`${serviceOf(handle)}.`) || each.endsWith(`.${handle}`))
  const similar = closest(handle, alike) ?? closest(handle, handles)
  const shown = (similar === undefined ? (alike.length > 0 ? alike : handles) : [similar]).slice(0, 20)
  const known = shown.length === 0 ? 'Nothing is pinned yet.' : `There are: ${shown.join(', ')}.`
  const meant = similar === undefined ? known : `Did you mean ${excerpt(similar)}?`
  return new ConvokeError('not_found', `No tool ${excerpt(handle)} is pinned. ${meant}`)
}
