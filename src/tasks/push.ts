/**
 * Webhooks. The outbox is the task's event log itself: each webhook keeps a cursor over it and is delivered one event
 * after the other, at least once, across restarts. What fails is tried again with growing pauses, and what keeps
 * failing is given up.
 */
import { randomUUID } from 'node:crypto'
import { namesPrivateAddress } from '../base/address.ts'
import { ConvokeError } from '../base/errors.ts'
import type { GuardedFetch } from '../base/guarded-fetch.ts'
import type { Logger } from '../base/logger.ts'
import type { PushConfig } from '../protocol/a2a.ts'
import type { EventRecord, PushRow, Store } from '../store/store.ts'
import { stateOf } from './snapshot.ts'

export interface PushOptions {
  readonly store: Store
  readonly log: Logger
  readonly fetch: GuardedFetch
  readonly allowPrivate: boolean
  /** The task as JSON, and the seq of the last event in it. Throws `task_not_found`. */
  readonly snapshot: (taskId: string) => Promise<{ seq: number; text: string }>
  /** The event as a receiver of version 0.3 expects it, or undefined when it expects nothing. */
  readonly toLegacyBody: (taskId: string, event: EventRecord) => Promise<string | undefined>
}

/** How many webhooks a task may have. */
const maxConfigs = 16
const concurrency = 16
const requestTimeoutMs = 15_000
/** Longer than one delivery takes, so that no other replica delivers the same event meanwhile. */
const leaseMs = 30_000
const retry = { firstMs: 1000, mostMs: 300_000, attempts: 12 }

export class PushService {
  readonly #options: PushOptions
  /** Tasks known to have webhooks; an event of any other task wakes nobody. */
  readonly #tasks = new Set<string>()
  readonly #stop = new AbortController()
  readonly #busy = new Set<Promise<void>>()
  #timer: NodeJS.Timeout | undefined
  #scanning: Promise<void> | undefined
  #again = false

  constructor(options: PushOptions) {
    this.#options = options
  }

  /** Begins with what an earlier process left undelivered. */
  start(): void {
    this.#scan()
  }

  /** Throws `invalid_params` for an address that may not be called, as far as that shows without DNS. */
  check({ url }: Pick<PushConfig, 'url'>): void {
    if (!this.#options.allowPrivate && namesPrivateAddress(url)) throw invalidUrl('names an address that is not public')
  }

  /** Creates or replaces a webhook. Throws `invalid_params` for an address that may not be called, or one too many. */
  async put(
    config: Omit<PushConfig, 'id'> & { id?: string },
    { version, cursor }: { version: '1.0' | '0.3'; cursor: number },
  ): Promise<PushConfig> {
    const { store } = this.#options
    this.check(config)
    // Version 0.3 lets the id out and expects to find the one configuration again.
    const id = config.id ?? (version === '0.3' ? 'default' : randomUUID())
    const known = await store.listPush(config.taskId)
    if (known.length >= maxConfigs && !known.some((row) => row.id === id)) {
      throw new ConvokeError(
        'invalid_params',
        `A task may have ${maxConfigs} push notification configurations; delete one first.`,
      )
    }
    const whole: PushConfig = { ...config, id }
    const { taskId } = config
    const row: PushRow = {
      taskId,
      id,
      config: JSON.stringify(whole),
      version,
      cursor,
      attempts: 0,
      nextAt: 0,
      failed: false,
    }
    await store.putPush(row)
    this.#tasks.add(taskId)
    this.#scan()
    return whole
  }

  async get(taskId: string, id: string): Promise<PushConfig | undefined> {
    const row = await this.#options.store.getPush(taskId, id)
    return row === undefined ? undefined : (JSON.parse(row.config) as PushConfig)
  }

  async list(taskId: string): Promise<PushConfig[]> {
    return (await this.#options.store.listPush(taskId)).map((row) => JSON.parse(row.config) as PushConfig)
  }

  async delete(taskId: string, id: string): Promise<void> {
    await this.#options.store.deletePush(taskId, id)
  }

  /** Tells of new events of a task, and whether they are its last. Cheap for tasks without webhooks. */
  published(taskId: string, isLast: boolean): void {
    if (!this.#tasks.has(taskId)) return
    if (isLast) this.#tasks.delete(taskId)
    this.#scan()
  }

  /** A task with webhooks that this process has not met before is running again. */
  async adopt(taskId: string): Promise<void> {
    const { store, log } = this.#options
    try {
      if ((await store.listPush(taskId)).length === 0) return
      this.#tasks.add(taskId)
      this.#scan()
    } catch (error) {
      log.warn({ error, taskId }, 'The webhooks of a task could not be looked up.')
    }
  }

  /** Ends deliveries under way; what was not acknowledged is delivered by whoever opens the store next. */
  async close(): Promise<void> {
    this.#stop.abort()
    clearTimeout(this.#timer)
    await this.#scanning
    await Promise.all(this.#busy)
  }

  /** Looks for due webhooks; while that is under way another call makes it look once more. */
  #scan(): void {
    if (this.#scanning !== undefined) {
      this.#again = true
      return
    }
    this.#scanning = this.#scanAll().finally(() => {
      this.#scanning = undefined
      if (this.#again && !this.#stop.signal.aborted) {
        this.#again = false
        this.#scan()
      }
    })
  }

  async #scanAll(): Promise<void> {
    const { store, log } = this.#options
    clearTimeout(this.#timer)
    try {
      while (!this.#stop.signal.aborted && this.#busy.size < concurrency) {
        const limit = concurrency - this.#busy.size
        const rows = await store.claimPushes({ now: Date.now(), leaseMs, limit })
        for (const row of rows) {
          const work = this.#deliver(row).finally(() => {
            this.#busy.delete(work)
            this.#scan()
          })
          this.#busy.add(work)
        }
        if (rows.length < limit) break
      }
      const next = await store.nextPushAt()
      if (next !== undefined && !this.#stop.signal.aborted) this.#wakeIn(next - Date.now())
    } catch (error) {
      log.warn({ error }, 'Webhooks could not be looked up; trying again in 5 seconds.')
      this.#wakeIn(5000)
    }
  }

  #wakeIn(ms: number): void {
    clearTimeout(this.#timer)
    this.#timer = setTimeout(() => this.#scan(), Math.min(Math.max(ms, 10), 60_000))
    this.#timer.unref()
  }

  /** Delivers what lies behind the cursor, in order, until there is no more, one fails, or the lease is half over. */
  async #deliver(row: PushRow): Promise<void> {
    const { store, log } = this.#options
    const config = JSON.parse(row.config) as PushConfig
    const until = Date.now() + leaseMs / 2 - requestTimeoutMs / 2
    let { cursor } = row
    try {
      for (;;) {
        const events = await store.read(row.taskId, cursor, 64 * 1024)
        for (const event of events) {
          if (this.#stop.signal.aborted) return await this.#advance(row, cursor, true)
          const body = row.version === '0.3' ? await this.#options.toLegacyBody(row.taskId, event) : event.text
          if (body !== undefined) await this.#post(config, body, row.version)
          cursor = event.seq
          const isOver = Date.now() > until
          if (stateOf(event) !== undefined || isOver) await this.#advance(row, cursor, isOver)
          if (isOver) return
        }
        if (events.length > 0) continue
        // The single events may have been compacted away: the task as it stands speaks for them.
        const whole = await this.#options.snapshot(row.taskId)
        if (whole.seq > cursor) {
          const event = { seq: whole.seq, text: `{"task":${whole.text}}` }
          const body = row.version === '0.3' ? await this.#options.toLegacyBody(row.taskId, event) : event.text
          if (body !== undefined) await this.#post(config, body, row.version)
          cursor = whole.seq
        }
        return await this.#advance(row, cursor, true)
      }
    } catch (error) {
      if (this.#stop.signal.aborted) {
        // Whoever opens the store next goes on at once; without this it waits for the lease to end, no more.
        return await this.#advance(row, cursor, true).catch(() => {})
      }
      const attempts = cursor === row.cursor ? row.attempts + 1 : 1
      const failed = attempts >= retry.attempts || (error instanceof ConvokeError && error.code === 'forbidden')
      const wait = Math.min(retry.firstMs * 2 ** (attempts - 1), retry.mostMs) * (0.75 + Math.random() / 2)
      const nextAt =
        Date.now() + (error instanceof ConvokeError && error.retryAfterMs !== undefined ? error.retryAfterMs : wait)
      log.warn(
        { error, taskId: row.taskId, pushId: row.id, attempts, failed },
        failed ? 'A webhook was given up.' : 'A webhook failed.',
      )
      await store.advancePush(row.taskId, row.id, { cursor, attempts, nextAt, failed }).catch((cause: unknown) => {
        log.warn({ error: cause }, 'What became of a webhook could not be stored; it will be delivered again.')
      })
    }
  }

  /** `isDone` lets the webhook go; until then the lease keeps others away from it. */
  async #advance(row: PushRow, cursor: number, isDone: boolean): Promise<void> {
    const nextAt = isDone ? 0 : Date.now() + leaseMs
    await this.#options.store.advancePush(row.taskId, row.id, { cursor, attempts: 0, nextAt, failed: false })
  }

  async #post(config: PushConfig, body: string, version: string): Promise<void> {
    const headers: Record<string, string> = {
      'content-type': version === '0.3' ? 'application/json' : 'application/a2a+json',
      'a2a-version': version,
    }
    if (config.token !== undefined) headers['x-a2a-notification-token'] = config.token
    if (config.authentication?.credentials !== undefined) {
      headers['authorization'] = `${config.authentication.scheme} ${config.authentication.credentials}`
    }
    const { status, headers: answer } = await this.#options.fetch.send(config.url, {
      method: 'POST',
      headers,
      body,
      timeoutMs: requestTimeoutMs,
      signal: this.#stop.signal,
    })
    if (status >= 200 && status < 300) return
    const seconds = Number(answer['retry-after'])
    throw new ConvokeError(status === 410 ? 'forbidden' : 'unavailable', `The webhook answered ${status}.`, {
      ...(seconds > 0 && seconds < 3600 ? { retryAfterMs: seconds * 1000 } : {}),
    })
  }
}

function invalidUrl(why: string): ConvokeError {
  return new ConvokeError('invalid_params', `The webhook's url ${why}.`, { issues: [{ path: '/url', message: why }] })
}
