/**
 * The agents' part of a SQLite store, over the same connection and the same group commit. The file belongs to one process, so
 * leases are kept in that process: to take a key and to give it back costs no write, and the leases of a process that died
 * are gone with it. They are looked at when a write's turn comes, within its transaction.
 */
import type Database from 'better-sqlite3'
import type { AgentStore, Consumption, KeyLease, Mail, MailResult, OutputRow, StepRecord } from './agent-store.ts'
import { assertName, leaseLost, notFirst } from './agent-store.ts'

/** How the store that this is a part of reads and writes. */
export interface SqliteAccess {
  /** Runs `query` at once. Throws `unavailable` for an outage and once the store is closed. */
  read<T>(query: () => T): T
  /** Runs `job` with all others of this turn in one transaction; perhaps twice, if another one has a defect. It must look before it writes. */
  write<T>(job: () => T): Promise<T>
}

interface Held {
  readonly worker: string
  readonly epoch: number
  until: number
}

/** `db` has its schema already. Writes nothing until somebody else does. */
export function createSqliteAgentStore(db: Database.Database, access: SqliteAccess): AgentStore {
  const before = db.prepare<[], { opens: number }>('SELECT opens FROM agent_opens').get()
  return new InSqlite(prepare(db), access, (before?.opens ?? 0) + 1)
}

class InSqlite implements AgentStore {
  readonly #sql: Statements
  readonly #access: SqliteAccess
  /** By scope, then by key. */
  readonly #leases = new Map<string, Map<string, Held>>()
  /** For epochs and for places in the line of waiting keys: greater than any before it in this database. */
  #counter: number
  /** Which one this process is among those that wrote the database. */
  readonly #opens: number
  #isCounted = false

  constructor(sql: Statements, access: SqliteAccess, opens: number) {
    this.#sql = sql
    this.#access = access
    this.#opens = opens
    this.#counter = opens * 2 ** 32
  }

  async append(
    scope: string,
    key: string,
    { id, event }: { readonly id: string; readonly event: string },
  ): Promise<{ seq: number; isNew: boolean }> {
    assertName('scope', scope)
    assertName('key', key)
    assertName('id', id)
    return this.#write(() => {
      const entry = this.#sql.key.get(scope, key) ?? this.#addKey(scope, key)
      const known = this.#sql.seqOf.get(entry.num, id)
      if (known) return { seq: known.seq, isNew: false }
      const seq = entry.lastSeq + 1
      this.#sql.insertMail.run(entry.num, seq, id, event)
      this.#sql.receive.run(seq, ++this.#counter, entry.num)
      return { seq, isNew: true }
    })
  }

  async lease(
    scope: string,
    key: string,
    worker: string,
    { now, leaseMs, limit }: { readonly now: number; readonly leaseMs: number; readonly limit: number },
  ): Promise<KeyLease | undefined> {
    assertName('scope', scope)
    assertName('key', key)
    const held = this.#leases.get(scope)?.get(key)
    if (held && held.worker !== worker && held.until >= now) return undefined
    const found = this.#access.read(() => {
      const entry = this.#sql.key.get(scope, key)
      if (!entry) return { state: null, mail: [], steps: [] }
      const state = this.#sql.state.get(scope, key)?.state ?? null
      const first = this.#sql.first.get(entry.num)
      if (!first) return { state, mail: [], steps: [] }
      return { state, mail: this.#sql.mail.all(entry.num, limit), steps: this.#sql.steps.all(first.num) }
    })
    // Only once nothing can fail any more.
    const epoch = ++this.#counter
    let keys = this.#leases.get(scope)
    if (!keys) this.#leases.set(scope, (keys = new Map<string, Held>()))
    keys.set(key, { worker, epoch, until: now + leaseMs })
    return { scope, key, worker, epoch, ...found }
  }

  async ready(scope: string, { now, limit }: { readonly now: number; readonly limit: number }): Promise<string[]> {
    const leases = this.#leases.get(scope)
    return this.#access.read(() => {
      const keys: string[] = []
      for (const { key } of this.#sql.waiting.iterate(scope)) {
        if (keys.length >= limit) break
        const held = leases?.get(key)
        if (!held || held.until < now) keys.push(key)
      }
      return keys
    })
  }

  async renew(
    scope: string,
    worker: string,
    { now, leaseMs }: { readonly now: number; readonly leaseMs: number },
  ): Promise<void> {
    this.#access.read(() => {
      for (const held of this.#leases.get(scope)?.values() ?? []) if (held.worker === worker) held.until = now + leaseMs
    })
  }

  async release(lease: KeyLease): Promise<void> {
    this.#access.read(() => {
      if (this.#isHeld(lease)) this.#leases.get(lease.scope)?.delete(lease.key)
    })
  }

  async saveStep(lease: KeyLease, mailId: string, step: StepRecord): Promise<void> {
    assertName('id', step.id)
    return this.#write(() => {
      const { mail } = this.#first(lease, mailId)
      this.#sql.saveStep.run(mail, step.id, step.state, step.value)
    })
  }

  async commit(lease: KeyLease, change: Consumption): Promise<void> {
    return this.#write(() => {
      const { mailId, now, state, outputs, failure } = change
      const { key, scope, mail } = this.#first(lease, mailId)
      const lastPlace = outputs.length === 0 ? 0 : (this.#sql.takePlaces.get(outputs.length, scope)?.lastPlace ?? 0)
      const place = lastPlace - outputs.length + 1
      for (const [n, output] of outputs.entries()) this.#sql.insertOutput.run(scope, place + n, mail, output)
      this.#sql.consume.run(now, failure, place, outputs.length, mail)
      this.#sql.deleteSteps.run(mail)
      const next = this.#sql.first.get(key)
      this.#sql.settle.run(next ? ++this.#counter : null, now, key)
      if (state !== undefined) this.#sql.setState.run(key, state)
    })
  }

  async result(scope: string, key: string, mailId: string): Promise<MailResult | undefined> {
    return this.#access.read(() => {
      const result = this.#sql.result.get(scope, key, mailId)
      if (!result) return undefined
      const { scopeNum, place, outputs, failure } = result
      const rows = outputs === 0 ? [] : this.#sql.outputsOf.all(scopeNum, place, scopeNum, place + outputs - 1)
      return { outputs: rows.map(({ output }) => output), failure }
    })
  }

  async state(scope: string, key: string): Promise<string | undefined> {
    return this.#access.read(() => this.#sql.state.get(scope, key)?.state)
  }

  async outputs(scope: string, options: { readonly after: number; readonly limit: number }): Promise<OutputRow[]> {
    return this.#access.read(() => {
      const known = this.#sql.scope.get(scope)
      return known ? this.#sql.outputs.all(known.num, known.num, options.after, known.num, options.limit) : []
    })
  }

  expire(before: number, limit: number): Promise<number> {
    return this.#write(() => {
      for (const leases of this.#leases.values()) {
        for (const [key, { until }] of leases) if (until < before) leases.delete(key)
      }
      const results = this.#sql.expiredResults.all(before, limit)
      for (const { num, scope, place, outputs } of results) {
        if (outputs > 0) this.#sql.deleteOutputs.run(scope, place, scope, place + outputs - 1)
        this.#sql.deleteMail.run(num)
      }
      if (results.length === limit) return limit

      let held = 0
      for (const leases of this.#leases.values()) held += leases.size
      const keys = this.#sql.expiredKeys
        .all(before, limit - results.length + held)
        .filter(({ scope, key }) => !this.#leases.get(scope)?.has(key))
        .slice(0, limit - results.length)
      for (const { num } of keys) {
        this.#sql.deleteState.run(num)
        this.#sql.deleteKey.run(num)
      }
      return results.length + keys.length
    })
  }

  async #write<T>(job: () => T): Promise<T> {
    if (this.#isCounted) return this.#access.write(job)
    const value = await this.#access.write(() => {
      this.#sql.countOpen.run(this.#opens)
      return job()
    })
    this.#isCounted = true
    return value
  }

  #addKey(scope: string, key: string): { num: number; scope: number; lastSeq: number } {
    const scopeNum = this.#sql.scope.get(scope)?.num ?? Number(this.#sql.insertScope.run(scope).lastInsertRowid)
    return { num: Number(this.#sql.insertKey.run(scopeNum, key).lastInsertRowid), scope: scopeNum, lastSeq: 0 }
  }

  #isHeld({ scope, key, worker, epoch }: KeyLease): boolean {
    const held = this.#leases.get(scope)?.get(key)
    return held?.epoch === epoch && held.worker === worker
  }

  /** The numbers of the lease's key and of its first mail. Throws `conflict` unless the lease holds and the mail is `mailId`. */
  #first(lease: KeyLease, mailId: string): { key: number; scope: number; mail: number } {
    if (!this.#isHeld(lease)) throw leaseLost(lease)
    const entry = this.#sql.key.get(lease.scope, lease.key)
    const first = entry && this.#sql.first.get(entry.num)
    if (!first || first.id !== mailId) throw notFirst(lease, mailId)
    return { key: entry.num, scope: entry.scope, mail: first.num }
  }
}

type Statements = ReturnType<typeof prepare>

function prepare(db: Database.Database) {
  // Numbers are bound as doubles, and a sum with one is a double too: wrong from the scope with the number 8,192 on.
  const place = '((? << 40) + CAST(? AS INTEGER))'
  const keyByName = `FROM agent_keys JOIN agent_scopes ON agent_scopes.num = agent_keys.scope
    WHERE agent_scopes.scope = ? AND agent_keys.key = ?`
  return {
    countOpen: db.prepare<[number]>('UPDATE agent_opens SET opens = ?'),

    scope: db.prepare<[string], { num: number }>('SELECT num FROM agent_scopes WHERE scope = ?'),
    insertScope: db.prepare<[string]>('INSERT INTO agent_scopes (scope, last_place) VALUES (?, 0)'),
    takePlaces: db.prepare<[number, number], { lastPlace: number }>(
      'UPDATE agent_scopes SET last_place = last_place + ? WHERE num = ? RETURNING last_place AS lastPlace',
    ),

    key: db.prepare<[string, string], { num: number; scope: number; lastSeq: number }>(
      `SELECT agent_keys.num AS num, agent_keys.scope AS scope, last_seq AS lastSeq ${keyByName}`,
    ),
    insertKey: db.prepare<[number, string]>(
      'INSERT INTO agent_keys (scope, key, last_seq, active_at) VALUES (?, ?, 0, 0)',
    ),
    receive: db.prepare<[number, number, number]>(
      'UPDATE agent_keys SET last_seq = ?, waiting = coalesce(waiting, ?) WHERE num = ?',
    ),
    settle: db.prepare<[number | null, number, number]>(
      'UPDATE agent_keys SET waiting = ?, active_at = max(active_at, ?) WHERE num = ?',
    ),
    waiting: db.prepare<[string], { key: string }>(
      `SELECT key FROM agent_keys WHERE scope = (SELECT num FROM agent_scopes WHERE scope = ?) AND waiting IS NOT NULL
       ORDER BY waiting`,
    ),

    state: db.prepare<[string, string], { state: string }>(
      `SELECT state FROM agent_states WHERE key = (SELECT agent_keys.num ${keyByName})`,
    ),
    setState: db.prepare<[number, string]>('INSERT OR REPLACE INTO agent_states (key, state) VALUES (?, ?)'),

    seqOf: db.prepare<[number, string], { seq: number }>('SELECT seq FROM agent_mail WHERE key = ? AND id = ?'),
    insertMail: db.prepare<[number, number, string, string]>(
      'INSERT INTO agent_mail (key, seq, id, event) VALUES (?, ?, ?, ?)',
    ),
    first: db.prepare<[number], { num: number; id: string }>(
      'SELECT num, id FROM agent_mail WHERE key = ? AND consumed_at IS NULL ORDER BY num LIMIT 1',
    ),
    mail: db.prepare<[number, number], Mail>(
      'SELECT seq, id, event FROM agent_mail WHERE key = ? AND consumed_at IS NULL ORDER BY num LIMIT ?',
    ),
    consume: db.prepare<[number, string | null, number, number, number]>(
      'UPDATE agent_mail SET event = NULL, consumed_at = ?, failure = ?, place = ?, outputs = ? WHERE num = ?',
    ),

    steps: db.prepare<[number], StepRecord>('SELECT id, state, value FROM agent_steps WHERE mail = ? ORDER BY num'),
    saveStep: db.prepare<[number, string, string, string | null]>(
      `INSERT INTO agent_steps (mail, id, state, value) VALUES (?, ?, ?, ?)
       ON CONFLICT (mail, id) DO UPDATE SET state = excluded.state, value = excluded.value`,
    ),
    deleteSteps: db.prepare<[number]>('DELETE FROM agent_steps WHERE mail = ?'),

    insertOutput: db.prepare<[number, number, number, string]>(
      `INSERT INTO agent_outputs (place, mail, output) VALUES (${place}, ?, ?)`,
    ),
    outputs: db.prepare<[number, number, number, number, number], OutputRow>(
      `SELECT agent_outputs.place - (? << 40) AS place, agent_keys.key AS key, agent_mail.id AS mailId, output
       FROM agent_outputs CROSS JOIN agent_mail ON agent_mail.num = agent_outputs.mail
         CROSS JOIN agent_keys ON agent_keys.num = agent_mail.key
       WHERE agent_outputs.place > ${place} AND agent_outputs.place < (? + 1) << 40
       ORDER BY agent_outputs.place LIMIT ?`,
    ),
    outputsOf: db.prepare<[number, number, number, number], { output: string }>(
      `SELECT output FROM agent_outputs WHERE place BETWEEN ${place} AND ${place} ORDER BY place`,
    ),
    result: db.prepare<
      [string, string, string],
      { scopeNum: number; place: number; outputs: number; failure: string | null }
    >(
      `SELECT agent_keys.scope AS scopeNum, place, outputs, failure
       FROM agent_mail JOIN agent_keys ON agent_keys.num = agent_mail.key
       WHERE agent_keys.num = (SELECT agent_keys.num ${keyByName}) AND id = ? AND consumed_at IS NOT NULL`,
    ),

    expiredResults: db.prepare<[number, number], { num: number; scope: number; place: number; outputs: number }>(
      `SELECT agent_mail.num AS num, scope, place, outputs
       FROM agent_mail CROSS JOIN agent_keys ON agent_keys.num = agent_mail.key
       WHERE consumed_at < ? ORDER BY consumed_at LIMIT ?`,
    ),
    expiredKeys: db.prepare<[number, number], { num: number; scope: string; key: string }>(
      `SELECT agent_keys.num AS num, agent_scopes.scope AS scope, key
       FROM agent_keys CROSS JOIN agent_scopes ON agent_scopes.num = agent_keys.scope
       WHERE waiting IS NULL AND active_at < ? ORDER BY active_at LIMIT ?`,
    ),
    deleteOutputs: db.prepare<[number, number, number, number]>(
      `DELETE FROM agent_outputs WHERE place BETWEEN ${place} AND ${place}`,
    ),
    deleteMail: db.prepare<[number]>('DELETE FROM agent_mail WHERE num = ?'),
    deleteState: db.prepare<[number]>('DELETE FROM agent_states WHERE key = ?'),
    deleteKey: db.prepare<[number]>('DELETE FROM agent_keys WHERE num = ?'),
  }
}
