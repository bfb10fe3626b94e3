/**
 * Tasks in one SQLite file that belongs to one process. Writes wait in a queue until the turn of the
 * event loop ends, then all of them go into one transaction and share its fsync; reads run at once.
 */
import { closeSync, existsSync, mkdirSync, openSync } from 'node:fs'
import { dirname, resolve } from 'node:path'
import Database from 'better-sqlite3'
import { ConvokeError } from '../base/errors.ts'
import { isTerminal } from '../protocol/a2a.ts'
import type { AgentStore } from './agent-store.ts'
import { sqliteSteps } from './migrations.ts'
import type { StoreOptions } from './open.ts'
import { createSqliteAgentStore } from './sqlite-agents.ts'
import type {
  Change,
  EventRecord,
  Expected,
  ListPage,
  ListQuery,
  NewTask,
  PushRow,
  StatusChange,
  Store,
  TaskRow,
} from './store.ts'
import { assertDense, isFinal } from './store.ts'

/** How long an open waits for the process before it to let go of the file. */
const busyTimeoutMs = 100
/** Of the page cache. */
const cacheKiB = 32 * 1024
/** The log grows to this many pages of 4 KiB before it is copied into the database file. */
const checkpointPages = 4000
/** Most characters of events in one row, so that a read of a few does not fetch a whole burst. */
const maxBodyChars = 256 * 1024

/**
 * Opens the database at `path`, relative to the working directory, and creates file and folder where there
 * are none, the file for this user alone. The leases of the process before are ended. `maxBytes` bounds the database file; the log beside
 * it (`-wal`) stays around 16 MiB. The file does not shrink: what expires makes room for what comes. At
 * `maxBytes` tasks can still expire; on a full disk nothing can be written, so a limit below the disk's
 * size is what lets retention help.
 * Throws `unavailable` when the file cannot be opened or another process has it open, `config` when a newer
 * Convoke wrote it.
 */
export function openSqliteStore(options: StoreOptions & { path: string }): Store {
  const path = resolve(options.path)
  let db: Database.Database | undefined
  try {
    mkdirSync(dirname(path), { recursive: true })
    // What callers said is for this user alone; the log beside it gets the mode of the file. One that is there is left alone:
    // to close it would give up this process's locks on it.
    if (!existsSync(path)) closeSync(openSync(path, 'a', 0o600))
    db = new Database(path, { timeout: busyTimeoutMs })
    // Before WAL: then the lock on the file is taken for good, and the log's index lives in our memory.
    // The kernel frees the lock when the process ends, however it ends.
    db.pragma('locking_mode = EXCLUSIVE')
    db.pragma('journal_mode = WAL')
    db.pragma('synchronous = FULL')
    db.pragma(`cache_size = ${-cacheKiB}`)
    db.pragma(`wal_autocheckpoint = ${checkpointPages}`)
    db.pragma(`journal_size_limit = ${64 * 1024 * 1024}`)
    migrate(db, path)
    if (options.maxBytes !== undefined) {
      const pageSize = Number(db.pragma('page_size', { simple: true }))
      db.pragma(`max_page_count = ${Math.max(1, Math.floor(options.maxBytes / pageSize))}`)
    }
    db.exec('UPDATE tasks SET lease_until = 0 WHERE worker IS NOT NULL')
    // A webhook that has not failed is hidden only by the lease of a delivery that the process before began.
    db.exec('UPDATE pushes SET next_at = 0 WHERE due = 1 AND attempts = 0')
    return new SqliteStore(db, options.maxBytes)
  } catch (error) {
    db?.close()
    throw cannotOpen(error, path)
  }
}

/** All missing steps in one transaction; a failure leaves the database as it was. */
function migrate(db: Database.Database, path: string): void {
  const version = Number(db.pragma('user_version', { simple: true }))
  if (version > sqliteSteps.length) {
    throw new ConvokeError(
      'config',
      `The database ${path} has schema version ${version}, this Convoke knows versions up to ${sqliteSteps.length}. ` +
        'Use the Convoke that wrote it, or a newer one.',
    )
  }
  if (version === sqliteSteps.length) return
  db.transaction(() => {
    for (const step of sqliteSteps.slice(version)) db.exec(step)
    db.pragma(`user_version = ${sqliteSteps.length}`)
  }).immediate()
}

class SqliteStore implements Store {
  readonly kind = 'sqlite'
  readonly agents: AgentStore
  readonly #db: Database.Database
  readonly #sql: Statements
  readonly #group: GroupCommit
  /** By their condition: each combination of filters has its own statements, and there are eight. */
  readonly #listings = new Map<string, Listing>()
  #closing: Promise<void> | undefined

  constructor(db: Database.Database, maxBytes: number | undefined) {
    this.#db = db
    this.#sql = prepare(db)
    this.#group = new GroupCommit(db, (error) => cannotWrite(error, maxBytes))
    this.agents = createSqliteAgentStore(db, {
      read: (query) => this.#read(query),
      write: (job) => this.#write(job),
    })
  }

  create(
    task: NewTask,
    change: Change & { status: StatusChange; history: string },
  ): Promise<{ created: boolean; row: TaskRow }> {
    return this.#write(() => {
      const { status, history } = change
      assertDense(change, 0)
      const lastSeq = change.events?.length ?? 0
      const free = change.release === true || isFinal(status.state)
      const row: TaskRow = {
        id: task.id,
        owner: task.owner,
        contextId: task.contextId,
        messageId: task.messageId,
        state: status.state,
        status: status.text,
        statusAt: status.at,
        history,
        metadata: task.metadata,
        request: task.request,
        reply: change.reply ?? null,
        rev: 1,
        epoch: 1,
        lastSeq,
        worker: free ? null : task.worker,
        leaseUntil: free ? 0 : task.leaseUntil,
        cancelRequested: false,
        repeatable: task.repeatable,
        artifacts: null,
        createdAt: status.at,
      }
      const { changes, lastInsertRowid } = this.#insertTask(row)
      if (changes === 0) {
        const known = this.#sql.loadByMessage.get(task.owner, task.messageId)
        if (!known) throw new ConvokeError('internal', 'A task is there by its message and cannot be loaded.')
        return { created: false, row: toRow(known) }
      }
      const num = Number(lastInsertRowid)
      this.#sql.insertTexts.run(num, history, row.metadata, row.request, row.reply)
      this.#append(num, change.events)
      return { created: true, row }
    })
  }

  commit(id: string, expected: Expected, change: Change): Promise<void> {
    return this.#write(() => {
      const task = this.#sql.version.get(id)
      if (!task) throw new ConvokeError('conflict', `There is no task "${id}" any more.`)
      if (task.rev !== expected.rev || task.epoch !== expected.epoch || task.ended !== null) {
        throw new ConvokeError('conflict', `The task "${id}" moved on under its writer.`)
      }
      assertDense(change, task.lastSeq)

      const { num } = task
      const { events, status, history, reply } = change
      const lastSeq = task.lastSeq + (events?.length ?? 0)
      if (status)
        this.#sql.setStatus.run(lastSeq, status.state, status.text, status.at, endedAs(status.state, lastSeq), num)
      else this.#sql.touch.run(lastSeq, num)
      if (change.release || (status && isFinal(status.state))) this.#sql.release.run(num)
      if (history !== undefined) this.#sql.setHistory.run(history, num)
      if (reply !== undefined) this.#sql.setReply.run(reply, num)
      if (events?.length) {
        this.#append(num, events)
        this.#sql.wakePushes.run(num)
      }
    })
  }

  async load(id: string, owner?: string): Promise<TaskRow | undefined> {
    const row = this.#read(() => this.#sql.load.get(id))
    return row && (owner === undefined || row.owner === owner) ? toRow(row) : undefined
  }

  async loadByMessage(owner: string, messageId: string): Promise<TaskRow | undefined> {
    const row = this.#read(() => this.#sql.loadByMessage.get(owner, messageId))
    return row && toRow(row)
  }

  async read(id: string, after: number, maxBytes: number): Promise<EventRecord[]> {
    const behind = Math.max(0, after)
    return this.#read(() => {
      const events: EventRecord[] = []
      let bytes = 0
      for (const { first, body } of this.#sql.events.iterate(behind, id)) {
        let seq = first
        for (let start = 0; start <= body.length; seq++) {
          const newline = body.indexOf('\n', start)
          const end = newline === -1 ? body.length : newline
          if (seq > behind) {
            bytes += end - start
            if (bytes > maxBytes && events.length > 0) return events
            events.push({ seq, text: body.slice(start, end) })
          }
          start = end + 1
        }
      }
      return events
    })
  }

  async list({ owner, contextId, state, statusFrom, limit, after }: ListQuery): Promise<ListPage> {
    let where = "owner = ? AND state <> 'MESSAGE'"
    const values: unknown[] = [owner]
    const filter = (condition: string, ...operands: unknown[]): void => {
      where += ` AND ${condition}`
      values.push(...operands)
    }
    if (contextId !== undefined) filter('context_id = ?', contextId)
    if (state !== undefined) filter('state = ?', state)
    if (statusFrom !== undefined) filter('status_at >= ?', statusFrom)
    return this.#read(() => {
      const { count, page, pageBehind } = this.#listing(where)
      const stored = after ? pageBehind.all(...values, after.statusAt, after.id, limit) : page.all(...values, limit)
      return { rows: stored.map(toRow), total: count.get(...values)?.total ?? 0 }
    })
  }

  requestCancel(id: string): Promise<void> {
    return this.#write(() => void this.#sql.requestCancel.run(id))
  }

  claim(worker: string, options: { now: number; leaseMs: number; limit: number }): Promise<TaskRow[]> {
    return this.#write(() =>
      this.#sql.lost.all(options.now, options.limit).map(({ id, num }) => this.#hand(id, num, worker, options)),
    )
  }

  acquire(id: string, worker: string, options: { now: number; leaseMs: number }): Promise<TaskRow | undefined> {
    return this.#write(() => {
      const task = this.#sql.version.get(id)
      if (!task || task.ended !== null) return undefined
      if (task.worker !== null && task.leaseUntil >= options.now) return undefined
      return this.#hand(id, task.num, worker, options)
    })
  }

  heartbeat(worker: string, options: { now: number; leaseMs: number }): Promise<string[]> {
    return this.#write(() => {
      this.#sql.renew.run(options.now + options.leaseMs, worker)
      return this.#sql.canceled.all(worker).map(({ id }) => id)
    })
  }

  putPush(row: PushRow): Promise<void> {
    return this.#write(() => {
      const task = this.#sql.version.get(row.taskId)
      if (!task) throw new ConvokeError('task_not_found', `There is no task "${row.taskId}".`)
      const due = !row.failed && row.cursor < task.lastSeq
      const { id, config, version, cursor, attempts, nextAt, failed } = row
      this.#sql.putPush.run(task.num, id, config, version, cursor, attempts, nextAt, failed ? 1 : 0, due ? 1 : 0)
    })
  }

  async getPush(taskId: string, id: string): Promise<PushRow | undefined> {
    const push = this.#read(() => this.#sql.getPush.get(taskId, id))
    return push && toPush(push)
  }

  async listPush(taskId: string): Promise<PushRow[]> {
    return this.#read(() => this.#sql.listPush.all(taskId)).map(toPush)
  }

  deletePush(taskId: string, id: string): Promise<void> {
    return this.#write(() => void this.#sql.deletePush.run(taskId, id))
  }

  claimPushes(options: { now: number; leaseMs: number; limit: number }): Promise<PushRow[]> {
    return this.#write(() => {
      const hiddenUntil = options.now + options.leaseMs
      return this.#sql.duePushes.all(options.now, options.limit).map((push) => {
        this.#sql.hidePush.run(hiddenUntil, push.taskId, push.id)
        return { ...toPush(push), nextAt: hiddenUntil }
      })
    })
  }

  advancePush(
    taskId: string,
    id: string,
    change: Pick<PushRow, 'cursor' | 'attempts' | 'nextAt' | 'failed'>,
  ): Promise<void> {
    const { cursor, attempts, nextAt, failed } = change
    return this.#write(
      () => void this.#sql.advancePush.run({ taskId, id, cursor, attempts, nextAt, failed: failed ? 1 : 0 }),
    )
  }

  async nextPushAt(): Promise<number | undefined> {
    return this.#read(() => this.#sql.nextPush.get())?.nextAt
  }

  async compactable(before: number, limit: number): Promise<string[]> {
    return this.#read(() => this.#sql.compactable.all(before, limit)).map(({ id }) => id)
  }

  compact(id: string, artifacts: string): Promise<void> {
    return this.#write(() => {
      const task = this.#sql.version.get(id)
      if (!task || task.ended === null || !isTerminal(task.state)) return
      this.#sql.deleteEvents.run(task.num, task.num + 1)
      this.#sql.setArtifacts.run(artifacts, task.num)
      this.#sql.setCompacted.run(task.num)
    })
  }

  expire(before: number, limit: number): Promise<number> {
    return this.#write(() => {
      const tasks = this.#sql.expired.all(before, limit)
      for (const { num } of tasks) {
        this.#sql.deleteEvents.run(num, num + 1)
        this.#sql.deletePushes.run(num)
        this.#sql.deleteTexts.run(num)
        this.#sql.deleteTask.run(num)
      }
      return tasks.length
    })
  }

  watch(): () => void {
    return () => {}
  }

  async check(): Promise<void> {
    await this.#write(() => void this.#sql.writeHealth.run())
    this.#read(() => this.#sql.readHealth.get())
  }

  close(): Promise<void> {
    this.#closing ??= this.#group.settled().then(() => {
      try {
        this.#db.pragma('wal_checkpoint(TRUNCATE)')
      } catch {
        // All is in the log already, and the next open reads it: a full disk must not keep a node from stopping.
      }
      this.#db.close()
    })
    return this.#closing
  }

  /** The job must look before it writes: what it wrote before it threw a ConvokeError stays. */
  #write<T>(job: () => T): Promise<T> {
    return this.#closing ? Promise.reject(closed()) : this.#group.run(job)
  }

  #read<T>(query: () => T): T {
    if (this.#closing) throw closed()
    try {
      return query()
    } catch (error) {
      throw outage(error, 'read') ?? ConvokeError.from(error)
    }
  }

  #listing(where: string): Listing {
    const known = this.#listings.get(where)
    if (known) return known
    const inOrder = 'ORDER BY status_at DESC, id DESC LIMIT ?'
    const listing: Listing = {
      count: this.#db.prepare(`SELECT count(*) AS total FROM tasks WHERE ${where}`),
      page: this.#db.prepare(`${selectTask} WHERE ${where} ${inOrder}`),
      pageBehind: this.#db.prepare(`${selectTask} WHERE ${where} AND (status_at, id) < (?, ?) ${inOrder}`),
    }
    this.#listings.set(where, listing)
    return listing
  }

  #insertTask(row: TaskRow): Database.RunResult {
    try {
      return this.#sql.insertTask.run(
        row.id,
        row.owner,
        row.messageId,
        row.contextId,
        row.state,
        row.status,
        row.statusAt,
        endedAs(row.state, row.lastSeq),
        row.lastSeq,
        row.worker,
        row.leaseUntil,
        row.repeatable ? 1 : 0,
        row.createdAt,
      )
    } catch (error) {
      if (!(error instanceof Database.SqliteError) || error.code !== 'SQLITE_CONSTRAINT_UNIQUE') throw error
      throw new ConvokeError('conflict', `There is a task with the id "${row.id}" already.`, { cause: error })
    }
  }

  #append(num: number, events: readonly EventRecord[] = []): void {
    let texts: string[] = []
    let chars = 0
    let last: EventRecord | undefined
    const flush = (): void => {
      if (last) this.#sql.insertEvents.run(num, last.seq, last.seq - texts.length + 1, texts.join('\n'))
    }
    for (const event of events) {
      if (last && chars + event.text.length > maxBodyChars) {
        flush()
        texts = []
        chars = 0
      }
      texts.push(event.text)
      chars += event.text.length
      last = event
    }
    flush()
  }

  #hand(id: string, num: number, worker: string, options: { now: number; leaseMs: number }): TaskRow {
    this.#sql.hand.run(worker, options.now + options.leaseMs, num)
    const row = this.#sql.load.get(id)
    if (!row) throw new ConvokeError('internal', `The task "${id}" is there by its number and cannot be loaded.`)
    return toRow(row)
  }
}

interface Job {
  run(): void
  resolve(): void
  reject(error: unknown): void
}

/** Runs the jobs of one turn of the event loop in one transaction. An fsync costs the same for one and for a hundred. */
class GroupCommit {
  readonly #begin: Database.Statement<[]>
  readonly #commit: Database.Statement<[]>
  readonly #rollback: Database.Statement<[]>
  readonly #db: Database.Database
  readonly #cannotWrite: (error: unknown) => ConvokeError | undefined
  #jobs: Job[] = []

  /** `cannotWrite` tells failures that concern every writer (a full disk) from the defect of one job. */
  constructor(db: Database.Database, cannotWrite: (error: unknown) => ConvokeError | undefined) {
    this.#db = db
    this.#cannotWrite = cannotWrite
    this.#begin = db.prepare('BEGIN IMMEDIATE')
    this.#commit = db.prepare('COMMIT')
    this.#rollback = db.prepare('ROLLBACK')
  }

  run<T>(job: () => T): Promise<T> {
    return new Promise<T>((resolve, reject) => {
      let value: T
      const run = (): void => {
        value = job()
      }
      if (this.#jobs.push({ run, resolve: () => resolve(value), reject }) === 1) setImmediate(() => this.#flush())
    })
  }

  /** Resolves once all jobs so far are settled, well or not. */
  settled(): Promise<void> {
    return this.run(() => {}).catch(() => {
      // Whoever wrote has been told.
    })
  }

  #flush(): void {
    let jobs = this.#jobs
    this.#jobs = []
    for (;;) {
      const broken = this.#attempt(jobs)
      if (!broken) return
      // The others have not been told anything yet: they run once more, without it.
      jobs = jobs.filter((job) => job !== broken)
    }
  }

  /** One transaction. Settles all jobs, unless one has a defect: then only that one, and returns it. */
  #attempt(jobs: readonly Job[]): Job | undefined {
    const refused = new Map<Job, ConvokeError>()
    let current: Job | undefined
    try {
      this.#begin.run()
      for (current of jobs) {
        try {
          current.run()
        } catch (error) {
          if (!(error instanceof ConvokeError)) throw error
          refused.set(current, error)
        }
      }
      current = undefined
      this.#commit.run()
    } catch (error) {
      // After SQLITE_FULL and its like SQLite has rolled back by itself, or not.
      if (this.#db.inTransaction) this.#rollback.run()
      const unavailable = this.#cannotWrite(error)
      if (current && !unavailable) {
        current.reject(ConvokeError.from(error))
        return current
      }
      for (const job of jobs) job.reject(unavailable ?? ConvokeError.from(error))
      return undefined
    }
    for (const job of jobs) {
      const error = refused.get(job)
      if (error) job.reject(error)
      else job.resolve()
    }
    return undefined
  }
}

type StoredTask = Omit<TaskRow, 'cancelRequested' | 'repeatable'> & { cancelRequested: number; repeatable: number }
type StoredPush = Omit<PushRow, 'failed'> & { failed: number }

interface Version extends Pick<TaskRow, 'state' | 'rev' | 'epoch' | 'lastSeq' | 'worker' | 'leaseUntil'> {
  num: number
  ended: number | null
}

const selectTask = `
  SELECT id, owner, context_id AS contextId, message_id AS messageId, state, status, status_at AS statusAt, history, metadata,
    request, reply, rev, epoch, last_seq AS lastSeq, worker, lease_until AS leaseUntil, cancel_requested AS cancelRequested,
    repeatable, artifacts, created_at AS createdAt
  FROM tasks JOIN texts USING (num)`

const selectPush = `
  SELECT tasks.id AS taskId, pushes.id AS id, config, version, cursor, attempts, next_at AS nextAt, failed
  FROM pushes JOIN tasks USING (num)`

const thisPush = 'num = (SELECT num FROM tasks WHERE id = ?) AND id = ?'

interface Listing {
  count: Database.Statement<unknown[], { total: number }>
  page: Database.Statement<unknown[], StoredTask>
  pageBehind: Database.Statement<unknown[], StoredTask>
}

type Statements = ReturnType<typeof prepare>

function prepare(db: Database.Database) {
  return {
    insertTask: db.prepare<
      [
        string,
        string,
        string,
        string,
        string,
        string,
        number,
        number | null,
        number,
        string | null,
        number,
        number,
        number,
      ]
    >(
      `INSERT INTO tasks (id, owner, message_id, context_id, state, status, status_at, ended, rev, epoch, last_seq, worker,
         lease_until, cancel_requested, repeatable, created_at)
       VALUES (?, ?, ?, ?, ?, ?, ?, ?, 1, 1, ?, ?, ?, 0, ?, ?) ON CONFLICT (owner, message_id) DO NOTHING`,
    ),
    insertTexts: db.prepare<[number, string, string | null, string, string | null]>(
      'INSERT INTO texts (num, history, metadata, request, reply) VALUES (?, ?, ?, ?, ?)',
    ),
    insertEvents: db.prepare<[number, number, number, string]>(
      'INSERT INTO events (place, first, body) VALUES (? << 32 | ?, ?, ?)',
    ),

    version: db.prepare<[string], Version>(
      `SELECT num, state, ended, rev, epoch, last_seq AS lastSeq, worker, lease_until AS leaseUntil FROM tasks WHERE id = ?`,
    ),
    touch: db.prepare<[number, number]>('UPDATE tasks SET rev = rev + 1, last_seq = ? WHERE num = ?'),
    setStatus: db.prepare<[number, string, string, number, number | null, number]>(
      'UPDATE tasks SET rev = rev + 1, last_seq = ?, state = ?, status = ?, status_at = ?, ended = ? WHERE num = ?',
    ),
    release: db.prepare<[number]>(
      'UPDATE tasks SET worker = NULL, lease_until = 0 WHERE num = ? AND worker IS NOT NULL',
    ),
    setHistory: db.prepare<[string, number]>('UPDATE texts SET history = ? WHERE num = ?'),
    setReply: db.prepare<[string, number]>('UPDATE texts SET reply = ? WHERE num = ?'),
    wakePushes: db.prepare<[number]>('UPDATE pushes SET due = 1 WHERE num = ? AND due = 0 AND failed = 0'),

    load: db.prepare<[string], StoredTask>(`${selectTask} WHERE id = ?`),
    loadByMessage: db.prepare<[string, string], StoredTask>(`${selectTask} WHERE owner = ? AND message_id = ?`),
    // Numbers are bound as doubles: without the cast the sum is one too, and wrong from task 2,097,152 on.
    events: db.prepare<[number, string], { first: number; body: string }>(
      `SELECT first, body FROM tasks JOIN events ON place > (num << 32) + CAST(? AS INTEGER) AND place < (num + 1) << 32
       WHERE id = ? ORDER BY place`,
    ),

    requestCancel: db.prepare<[string]>('UPDATE tasks SET cancel_requested = 1 WHERE id = ? AND ended IS NULL'),
    lost: db.prepare<[number, number], { id: string; num: number }>(
      'SELECT id, num FROM tasks WHERE worker IS NOT NULL AND lease_until < ? ORDER BY lease_until, num LIMIT ?',
    ),
    hand: db.prepare<[string, number, number]>(
      'UPDATE tasks SET worker = ?, lease_until = ?, epoch = epoch + 1 WHERE num = ?',
    ),
    renew: db.prepare<[number, string]>('UPDATE tasks SET lease_until = ? WHERE worker = ?'),
    canceled: db.prepare<[string], { id: string }>('SELECT id FROM tasks WHERE worker = ? AND cancel_requested = 1'),

    putPush: db.prepare<[number, string, string, string, number, number, number, number, number]>(
      `INSERT OR REPLACE INTO pushes (num, id, config, version, cursor, attempts, next_at, failed, due)
       VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)`,
    ),
    getPush: db.prepare<[string, string], StoredPush>(`${selectPush} WHERE tasks.id = ? AND pushes.id = ?`),
    listPush: db.prepare<[string], StoredPush>(`${selectPush} WHERE tasks.id = ? ORDER BY pushes.id`),
    deletePush: db.prepare<[string, string]>(`DELETE FROM pushes WHERE ${thisPush}`),
    duePushes: db.prepare<[number, number], StoredPush>(
      `${selectPush} WHERE due = 1 AND next_at <= ? ORDER BY next_at LIMIT ?`,
    ),
    hidePush: db.prepare<[number, string, string]>(`UPDATE pushes SET next_at = ? WHERE ${thisPush}`),
    advancePush: db.prepare<
      [{ taskId: string; id: string; cursor: number; attempts: number; nextAt: number; failed: number }]
    >(
      `UPDATE pushes SET cursor = @cursor, attempts = @attempts, next_at = @nextAt, failed = @failed,
         due = (NOT @failed AND @cursor < (SELECT last_seq FROM tasks WHERE id = @taskId))
       WHERE num = (SELECT num FROM tasks WHERE id = @taskId) AND id = @id`,
    ),
    nextPush: db.prepare<[], { nextAt: number }>(
      'SELECT next_at AS nextAt FROM pushes WHERE due = 1 ORDER BY next_at LIMIT 1',
    ),

    compactable: db.prepare<[number, number], { id: string }>(
      `SELECT id FROM tasks WHERE ended = 1 AND status_at < ?
         AND NOT EXISTS (SELECT 1 FROM pushes WHERE pushes.num = tasks.num AND due = 1)
       ORDER BY status_at LIMIT ?`,
    ),
    setArtifacts: db.prepare<[string, number]>('UPDATE texts SET artifacts = ? WHERE num = ?'),
    setCompacted: db.prepare<[number]>('UPDATE tasks SET ended = 2 WHERE num = ?'),
    expired: db.prepare<[number, number], { num: number }>(
      'SELECT num FROM tasks WHERE ended IN (1, 2) AND status_at < ? LIMIT ?',
    ),
    deleteEvents: db.prepare<[number, number]>('DELETE FROM events WHERE place > ? << 32 AND place < ? << 32'),
    deletePushes: db.prepare<[number]>('DELETE FROM pushes WHERE num = ?'),
    deleteTexts: db.prepare<[number]>('DELETE FROM texts WHERE num = ?'),
    deleteTask: db.prepare<[number]>('DELETE FROM tasks WHERE num = ?'),

    writeHealth: db.prepare<[]>('UPDATE health SET checks = checks + 1'),
    readHealth: db.prepare<[]>('SELECT checks FROM health'),
  }
}

function toRow(stored: StoredTask): TaskRow {
  return { ...stored, cancelRequested: stored.cancelRequested === 1, repeatable: stored.repeatable === 1 }
}

function toPush(stored: StoredPush): PushRow {
  return { ...stored, failed: stored.failed === 1 }
}

/** The column `ended` of a task in this state. */
function endedAs(state: string, lastSeq: number): number | null {
  if (!isFinal(state)) return null
  return isTerminal(state) && lastSeq > 0 ? 1 : 2
}

function closed(): ConvokeError {
  return new ConvokeError('unavailable', 'The store is closed.')
}

/** `unavailable` for what lies with disk, memory or file and may pass; undefined for a defect of ours. */
function outage(error: unknown, doing: 'read' | 'write'): ConvokeError | undefined {
  if (!(error instanceof Database.SqliteError)) return undefined
  if (!/^SQLITE_(IOERR|FULL|NOMEM|READONLY|CANTOPEN|BUSY|LOCKED|PROTOCOL|CORRUPT|NOTADB|PERM|AUTH)/.test(error.code))
    return undefined
  return new ConvokeError('unavailable', `The store cannot ${doing} now.`, { cause: error })
}

function cannotWrite(error: unknown, maxBytes: number | undefined): ConvokeError | undefined {
  if (!(error instanceof Database.SqliteError) || error.code !== 'SQLITE_FULL') return outage(error, 'write')
  // SQLite has one code for both.
  const limit = maxBytes === undefined ? '' : `, or the database has reached its limit of ${maxBytes} bytes`
  return new ConvokeError('unavailable', `The store cannot write now: the disk is full${limit}.`, { cause: error })
}

function cannotOpen(error: unknown, path: string): ConvokeError {
  if (error instanceof ConvokeError) return error
  const code = error instanceof Error && 'code' in error ? String(error.code) : ''
  const reason = code.startsWith('SQLITE_BUSY')
    ? 'another process has this database open. One process at a time can use it.'
    : code === 'SQLITE_NOTADB'
      ? 'it is not a SQLite database.'
      : `${error instanceof Error ? error.message : String(error)}.`
  return new ConvokeError('unavailable', `The database ${path} cannot be opened: ${reason}`, { cause: error })
}
