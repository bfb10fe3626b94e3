import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdtemp, readFile, rm, stat, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join, relative } from 'node:path'
import { createInterface } from 'node:readline'
import Database from 'better-sqlite3'
import { afterEach, beforeEach, describe, expect, test } from 'vitest'
import { openStore } from '../dist/store/open.js'
import type { Store } from '../dist/store/store.js'
import { createMemoryAgentStore } from '../dist/store/agent-memory.js'
import type { AgentStore } from '../dist/store/agent-store.js'
import { sqliteSteps } from '../dist/store/migrations.js'
import { done, mail, testAgentStore } from './contract/agent-store.ts'
import { begun, completed, events, codeOf, newTask, status, testStore } from './contract/store.ts'

testStore('memory', () => openStore({ url: ':memory:' }), { durable: false, shared: false })
testStore('sqlite', (folder) => openStore({ url: `sqlite:${join(folder, 'store.db')}` }), {
  durable: true,
  shared: false,
})
testAgentStore('memory', () => openStore({ url: ':memory:' }), { durable: false, shared: false })
testAgentStore('sqlite', (folder) => openStore({ url: `sqlite:${join(folder, 'store.db')}` }), {
  durable: true,
  shared: false,
})

const finished = begun({ status: status(completed), events: events(1, 4, JSON.stringify('x'.repeat(200))) })

describe('memory store', () => {
  test('drops finished tasks, first finished first, once they pass maxBytes', async () => {
    const store = await openStore({ url: ':memory:', maxBytes: 1_000_000 })
    const slow = newTask({ messageId: 'slow' })
    await store.create(slow, begun())
    const tasks = Array.from({ length: 100 }, () => newTask())
    const big = begun({ status: status(completed), events: events(1, 1, JSON.stringify('x'.repeat(25_000))) })
    for (const task of tasks) await store.create(task, big)
    const kept = await Promise.all(tasks.map(async ({ id }) => (await store.load(id)) !== undefined))
    // Each counts 50,000 bytes and a little.
    expect(kept.indexOf(true)).toBe(100 - 19)
    expect(kept.lastIndexOf(false)).toBe(100 - 20)
    expect((await store.list({ owner: 'alice', limit: 1000 })).total).toBe(20)
    expect(await store.load(slow.id)).toBeDefined()
    expect((await store.create({ ...newTask(), messageId: tasks[0]?.messageId ?? '' }, big)).created).toBe(true)

    // The slow one began first and finishes last: it is the newest of the finished.
    await store.commit(slow.id, { rev: 1, epoch: 1 }, { status: status(completed, 2000) })
    for (let n = 0; n < 18; n++) await store.create(newTask(), big)
    expect(await store.load(slow.id)).toBeDefined()
    for (let n = 0; n < 2; n++) await store.create(newTask(), big)
    expect(await store.load(slow.id)).toBeUndefined()
    await store.close()
  })

  test('keeps the task that finished last, however big it is', async () => {
    const store = await openStore({ url: ':memory:', maxBytes: 1000 })
    const [first, second] = [newTask(), newTask()]
    await store.create(first, finished)
    expect(await store.load(first.id)).toBeDefined()
    await store.create(second, finished)
    expect(await store.load(first.id)).toBeUndefined()
    expect(await store.read(second.id, 0, 10_000)).toHaveLength(4)
    await store.close()
  })

  test('counts a compacted task for what is left of it', async () => {
    const store = await openStore({ url: ':memory:', maxBytes: 100_000 })
    const big = begun({ status: status(completed), events: events(1, 1, JSON.stringify('x'.repeat(40_000))) })
    const tasks = [newTask(), newTask(), newTask()]
    for (const task of tasks) {
      await store.create(task, big)
      await store.compact(task.id, '[]')
    }
    for (const task of tasks) expect(await store.load(task.id)).toMatchObject({ artifacts: '[]' })
    await store.close()
  })

  test('expires out of the middle of the queue and goes on dropping in order', async () => {
    const store = await openStore({ url: ':memory:', maxBytes: 1_000_000 })
    const ids: string[] = []
    for (let n = 0; n < 3000; n++) {
      const task = newTask()
      ids.push(task.id)
      // Two of three are old.
      await store.create(task, begun({ status: status(completed, n % 3 === 0 ? 5000 : 10) }))
      if (n % 500 === 499) while ((await store.expire(1000, 100)) === 100);
    }
    const left = (await store.list({ owner: 'alice', limit: 5000 })).rows.map(({ id }) => id).sort()
    expect(left).toEqual(ids.filter((_, n) => n % 3 === 0).slice(-left.length))
    expect(left.length).toBeGreaterThan(500)
    await store.close()
  })

  test('takes as long for a create among 50,000 tasks that are dropped in turn as among 50', async () => {
    const fastestOf = async (live: number): Promise<number> => {
      const store = await openStore({ url: ':memory:', maxBytes: live * 1000 })
      const small = begun({ status: status(completed) })
      let best = Infinity
      for (let batch = 0; batch < 16; batch++) {
        const tasks = Array.from({ length: 10_000 }, () => newTask())
        // Of the processor: the time on the clock is everybody's.
        const start = process.cpuUsage()
        for (const task of tasks) await store.create(task, small)
        const { user, system } = process.cpuUsage(start)
        best = Math.min(best, user + system)
        // Only once tasks are dropped.
        if (batch < 8) best = Infinity
      }
      const { total } = await store.list({ owner: 'alice', limit: 1 })
      expect(total).toBeGreaterThan(live / 2)
      expect(total).toBeLessThan(live * 2)
      await store.close()
      return best
    }
    const few = await fastestOf(50)
    const many = await fastestOf(50_000)
    // A queue that is searched from its beginning makes this 20 and more.
    expect(many / few).toBeLessThan(8)
  }, 30_000)
})

describe('memory agent store', () => {
  test('keeps as many results as it is told to, the newest ones', async () => {
    const agents = createMemoryAgentStore({ maxResults: 2 })
    for (const id of ['one', 'two', 'three']) {
      await agents.append('scope', 'key', { id, event: '{}' })
      const lease = await agents.lease('scope', 'key', 'worker', { now: 1, leaseMs: 1000, limit: 1 })
      if (lease === undefined) throw new Error('The key is held.')
      await agents.commit(lease, {
        mailId: id,
        now: 1,
        state: '{"kept":true}',
        outputs: [JSON.stringify(id)],
        failure: null,
      })
      await agents.release(lease)
    }
    const results = await Promise.all(['one', 'two', 'three'].map((id) => agents.result('scope', 'key', id)))
    expect(results.map((result) => result?.outputs)).toEqual([undefined, ['"two"'], ['"three"']])
    expect(await agents.state('scope', 'key')).toBe('{"kept":true}')
  })

  /** One input of a key, run to its end. */
  async function consume(agents: AgentStore, key: string, id: string, fields: Parameters<typeof done>[1] = {}) {
    await agents.append('s', key, mail(id))
    const lease = await agents.lease('s', key, 'w', { now: 1000, leaseMs: 1000, limit: 1 })
    if (!lease) throw new Error(`the key ${key} is held`)
    await agents.commit(lease, done(id, fields))
    await agents.release(lease)
  }

  /** Takes about 2,000,000 bytes. */
  const big = JSON.stringify('x'.repeat(1_000_000))

  test('drops results once they pass maxBytes, those consumed first at first, and no memory for them', async () => {
    const agents = createMemoryAgentStore({ maxBytes: 10_500_000 })
    for (let n = 0; n < 20; n++) await consume(agents, `k${n}`, 'x', { outputs: [big], state: `${n}` })
    const kept = await Promise.all(Array.from({ length: 20 }, (_, n) => agents.result('s', `k${n}`, 'x')))
    expect(kept.map((result) => result !== undefined)).toEqual(Array.from({ length: 20 }, (_, n) => n >= 15))
    expect((await agents.outputs('s', { after: 0, limit: 100 })).map(({ key }) => key)).toEqual([
      'k15',
      'k16',
      'k17',
      'k18',
      'k19',
    ])
    for (let n = 0; n < 20; n++) expect(await agents.state('s', `k${n}`)).toBe(`${n}`)
    // What was dropped is forgotten with its id; what is there is known.
    expect(await agents.append('s', 'k0', mail('x'))).toEqual({ seq: 2, isNew: true })
    expect(await agents.append('s', 'k19', mail('x'))).toEqual({ seq: 1, isNew: false })
  })

  test('then drops idle keys, those that are idle the longest first, and never the newest', async () => {
    const agents = createMemoryAgentStore({ maxBytes: 10_500_000 })
    for (let n = 0; n < 4; n++) await consume(agents, `k${n}`, 'x', { outputs: ['1'], state: big })
    await consume(agents, 'k0', 'y', { outputs: ['2'] })
    for (let n = 4; n < 7; n++) await consume(agents, `k${n}`, 'x', { outputs: ['1'], state: big })
    const states = async (): Promise<string[]> => {
      const keys = ['k0', 'k1', 'k2', 'k3', 'k4', 'k5', 'k6', 'huge']
      const known = await Promise.all(keys.map((key) => agents.state('s', key)))
      return keys.filter((_, index) => known[index] !== undefined)
    }
    expect(await states()).toEqual(['k0', 'k3', 'k4', 'k5', 'k6'])
    // The newest result is there for its caller.
    expect(await agents.result('s', 'k6', 'x')).toEqual({ outputs: ['1'], failure: null })
    expect(await agents.result('s', 'k5', 'x')).toBeUndefined()

    const huge = JSON.stringify('x'.repeat(20_000_000))
    await consume(agents, 'huge', 'x', { state: huge })
    expect(await states()).toEqual(['huge'])
    expect(await agents.result('s', 'huge', 'x')).toEqual({ outputs: [], failure: null })
    await consume(agents, 'k1', 'x', { state: '1' })
    expect(await states()).toEqual(['k1'])

    // A large key that is given back takes the room of others, but not of the result that came last.
    await consume(agents, 'huge', 'x', { state: JSON.stringify('x'.repeat(4_500_000)) })
    const lease = await agents.lease('s', 'huge', 'w', { now: 1000, leaseMs: 1000, limit: 1 })
    await consume(agents, 'k2', 'x', { state: '2' })
    await consume(agents, 'k3', 'x', { state: '3', outputs: [big] })
    if (lease) await agents.release(lease)
    expect(await states()).toEqual(['k3', 'huge'])
    expect(await agents.result('s', 'k3', 'x')).toEqual({ outputs: [big], failure: null })
  })

  test('refuses mail when what waits or is held fills it, and takes it again when some is consumed', async () => {
    const agents = createMemoryAgentStore({ maxBytes: 10_500_000 })
    await consume(agents, 'idle', 'x', { state: big, outputs: [big] })
    await consume(agents, 'held', 'x', { state: big })
    await agents.lease('s', 'held', 'w', { now: 1000, leaseMs: 1000, limit: 1 })
    for (let n = 0; n < 4; n++) await agents.append('s', `k${n}`, { id: 'x', event: big })
    // Everything that could go has gone for what waits.
    expect(await agents.state('s', 'idle')).toBeUndefined()
    expect(await agents.state('s', 'held')).toBe(big)
    const refused = agents.append('s', 'k4', { id: 'x', event: big })
    await expect(refused).rejects.toMatchObject({ code: 'rate_limited', retryable: true, retryAfterMs: 1000 })
    expect(await agents.ready('s', { now: 9000, limit: 10 })).toEqual(['k0', 'k1', 'k2', 'k3'])
    // What is small still fits, and what is known needs no room.
    expect(await agents.append('s', 'k4', mail('x'))).toEqual({ seq: 1, isNew: true })
    expect(await agents.append('s', 'k0', { id: 'x', event: big })).toEqual({ seq: 1, isNew: false })

    const lease = await agents.lease('s', 'k0', 'w', { now: 1000, leaseMs: 1000, limit: 1 })
    expect(lease?.mail).toEqual([{ seq: 1, id: 'x', event: big }])
    if (lease) {
      // A run that is over is never refused.
      await agents.commit(lease, done('x', { state: big, outputs: [big] }))
      await agents.release(lease)
    }
    expect(await agents.append('s', 'k5', { id: 'x', event: big })).toEqual({ seq: 1, isNew: true })
    expect(await agents.ready('s', { now: 9000, limit: 10 })).toEqual(['k1', 'k2', 'k3', 'k4', 'k5'])
  })

  test('says too_large of mail that could never be taken', async () => {
    const agents = createMemoryAgentStore({ maxBytes: 1_000_000 })
    expect(await codeOf(agents.append('s', 'a', { id: 'x', event: big }))).toBe('too_large')
    expect(await agents.ready('s', { now: 0, limit: 10 })).toEqual([])
    expect(await agents.append('s', 'a', mail('x'))).toEqual({ seq: 1, isNew: true })
  })

  test('counts steps, until their mail is consumed', async () => {
    const agents = createMemoryAgentStore({ maxBytes: 10_500_000 })
    await agents.append('s', 'a', mail('x'))
    const lease = await agents.lease('s', 'a', 'w', { now: 1000, leaseMs: 1000, limit: 1 })
    if (!lease) throw new Error('the key is held')
    for (const id of ['1', '2', '3', '4', '4', '4'])
      await agents.saveStep(lease, 'x', { id, state: 'done', value: big })
    expect(await codeOf(agents.append('s', 'b', { id: 'x', event: big }))).toBeUndefined()
    expect(await codeOf(agents.append('s', 'c', { id: 'x', event: big }))).toBe('rate_limited')
    await agents.commit(lease, done('x'))
    for (const key of ['c', 'd', 'e', 'f']) await agents.append('s', key, { id: 'x', event: big })
    expect(await codeOf(agents.append('s', 'g', { id: 'x', event: big }))).toBe('rate_limited')
  })

  test('of a store has a limit of its own beside the tasks', async () => {
    const store = await openStore({ url: ':memory:', maxBytes: 2_500_000 })
    const task = newTask()
    await store.create(task, begun({ status: status(completed), events: events(1, 1, big) }))
    await consume(store.agents, 'a', 'x', { outputs: [big] })
    await consume(store.agents, 'b', 'x', { outputs: [big] })
    expect(await store.load(task.id)).toBeDefined()
    expect(await store.agents.result('s', 'a', 'x')).toBeUndefined()
    expect(await store.agents.result('s', 'b', 'x')).toBeDefined()
    await store.close()
  })

  test('takes as long for a run among 10,000 keys and 100,000 results that are dropped in turn as among 10', async () => {
    const fastestOf = async (keys: number, maxBytes: number): Promise<number> => {
      const agents = createMemoryAgentStore({ maxBytes })
      let best = Infinity
      for (let batch = 0; batch < 20; batch++) {
        const start = performance.now()
        for (let n = 0; n < 10_000; n++) await consume(agents, `k${n % keys}`, `${batch} ${n}`, { outputs: ['1'] })
        best = Math.min(best, performance.now() - start)
        // Only once results are dropped.
        if (batch < 12) best = Infinity
      }
      const { length } = await agents.outputs('s', { after: 0, limit: 1e6 })
      expect(length).toBeLessThan(120_000)
      expect(length).toBeGreaterThan(keys)
      return best
    }
    const few = await fastestOf(10, 20_000)
    const many = await fastestOf(10_000, 40_000_000)
    // A queue that is searched from its beginning makes this 20 and more.
    expect(many / few).toBeLessThan(8)
  }, 60_000)

  test('finds the next keys as fast when 100,000 mails wait', async () => {
    const agents = createMemoryAgentStore()
    for (let n = 0; n < 50_000; n++) await agents.append('s', 'busy', { id: `${n}`, event: '1' })
    for (let n = 0; n < 50_000; n++) await agents.append('s', `k${n % 10_000}`, { id: `${n}`, event: '1' })
    const start = performance.now()
    let runs = 0
    for (;;) {
      const keys = await agents.ready('s', { now: 1000, limit: 10 })
      for (const key of keys) {
        const lease = await agents.lease('s', key, 'w', { now: 1000, leaseMs: 1000, limit: 1 })
        const id = lease?.mail[0]?.id
        if (lease && id !== undefined) await agents.commit(lease, done(id, { state: id }))
        if (lease) await agents.release(lease)
        runs++
      }
      if (keys.length === 0) break
    }
    expect(runs).toBe(100_000)
    // About 0.5 s; a walk over all that waits for each look makes it minutes.
    expect(performance.now() - start).toBeLessThan(10_000)
  }, 60_000)
})

describe('sqlite store', () => {
  let folder: string
  let path: string
  let store: Store | undefined

  beforeEach(async () => {
    folder = await mkdtemp(join(tmpdir(), 'convoke-sqlite-'))
    path = join(folder, 'data', 'store.db')
  })

  afterEach(async () => {
    await store?.close()
    store = undefined
    await rm(folder, { recursive: true })
  })

  async function open(maxBytes?: number): Promise<Store> {
    return (store = await openStore({ url: `sqlite:${path}`, ...(maxBytes !== undefined && { maxBytes }) }))
  }

  test('creates the folder of a relative path', async () => {
    store = await openStore({ url: `sqlite:${relative(process.cwd(), path)}` })
    expect((await stat(path)).isFile()).toBe(true)
  })

  test('is a file that no other user may read, nor its log', async () => {
    await (await open()).create(newTask(), begun())
    for (const file of [path, `${path}-wal`]) expect((await stat(file)).mode & 0o777, file).toBe(0o600)
  })

  test('belongs to one: a second open fails at once and says why, until the first is closed', async () => {
    const first = await open()
    const start = performance.now()
    const second = openStore({ url: `sqlite:${path}` })
    await expect(second).rejects.toMatchObject({
      code: 'unavailable',
      message: expect.stringContaining('another process has this database open'),
    })
    expect(performance.now() - start).toBeLessThan(1000)
    await first.check()
    await first.close()
    await (await open()).check()
  })

  test('refuses a file that is no database and leaves it as it is', async () => {
    const file = join(folder, 'notes.txt')
    await writeFile(file, 'not a database, whatever its name says '.repeat(100))
    const before = await readFile(file)
    await expect(openStore({ url: `sqlite:${file}` })).rejects.toMatchObject({
      code: 'unavailable',
      message: expect.stringContaining('not a SQLite database'),
    })
    expect((await readFile(file)).equals(before)).toBe(true)
  })

  test('refuses a database that a newer version wrote', async () => {
    await (await open()).close()
    const db = new Database(path)
    db.pragma('user_version = 999')
    db.close()
    await expect(open()).rejects.toMatchObject({ code: 'config', message: expect.stringContaining('999') })
    // And lets go of it.
    const again = new Database(path)
    expect(again.pragma('user_version', { simple: true })).toBe(999)
    again.close()
  })

  test('ends the leases of the process before, so that its tasks can be claimed at once', async () => {
    const task = newTask({ worker: 'before', leaseUntil: 2 ** 42 })
    await (await open()).create(task, begun())
    await store?.close()
    const after = await open()
    expect(await after.load(task.id)).toMatchObject({ worker: 'before', leaseUntil: 0, epoch: 1 })
    const claimed = await after.claim('after', { now: 1000, leaseMs: 1000, limit: 10 })
    expect(claimed).toMatchObject([{ id: task.id, worker: 'after', epoch: 2 }])
  })

  test('puts 100 commits of one turn into one transaction', async () => {
    const sqlite = await open()
    const tasks = Array.from({ length: 100 }, () => newTask())
    const before = await transactions(path)
    await Promise.all(tasks.map((task) => sqlite.create(task, begun())))
    expect((await transactions(path)) - before).toBe(1)
    await Promise.all(tasks.map(({ id }) => sqlite.commit(id, { rev: 1, epoch: 1 }, { events: events(1, 2) })))
    expect((await transactions(path)) - before).toBe(2)
    // One after the other they are durable one by one.
    for (const { id } of tasks.slice(0, 5)) await sqlite.commit(id, { rev: 2, epoch: 1 }, { events: events(3, 3) })
    expect((await transactions(path)) - before).toBe(7)
  })

  test('spreads a burst over rows of 256 KiB, so that a short read stays short', async () => {
    const sqlite = await open()
    const task = newTask()
    await sqlite.create(task, begun())
    await sqlite.commit(task.id, { rev: 1, epoch: 1 }, { events: events(1, 1000, JSON.stringify('x'.repeat(1000))) })
    await sqlite.close()
    const db = new Database(path)
    const longest = db.prepare('SELECT max(length(body)) FROM events').pluck().get()
    db.close()
    expect(longest).toBeGreaterThan(200 * 1024)
    expect(longest).toBeLessThan(257 * 1024)
  })

  test('undoes a write with a defect alone, not those of the same turn', async () => {
    const sqlite = await open()
    const [a, broken, b] = [newTask(), newTask(), newTask()]
    const results = await Promise.allSettled([
      sqlite.create(a, finished),
      // The row of the task goes in before that of its texts is refused.
      sqlite.create(broken, { ...finished, history: null as unknown as string }),
      sqlite.create(b, finished),
    ])
    expect(results).toMatchObject([
      { status: 'fulfilled', value: { created: true } },
      { status: 'rejected', reason: { code: 'internal' } },
      { status: 'fulfilled', value: { created: true } },
    ])
    expect(await sqlite.loadByMessage(broken.owner, broken.messageId)).toBeUndefined()
    expect((await sqlite.list({ owner: 'alice', limit: 10 })).total).toBe(2)
    expect(await sqlite.read(b.id, 0, 10_000)).toHaveLength(4)
  })

  test('says unavailable when it is full, still reads, and writes again once something expired', async () => {
    const maxBytes = 1024 * 1024
    const sqlite = await open(maxBytes)
    const written: string[] = []
    const big = begun({ status: status(completed), events: events(1, 1, JSON.stringify('x'.repeat(20_000))) })
    const writeUntilFull = async (): Promise<unknown> => {
      for (let n = 0; n < 100; n++) {
        const task = newTask()
        try {
          await sqlite.create(task, big)
        } catch (error) {
          return error
        }
        written.push(task.id)
      }
      return undefined
    }
    expect(await writeUntilFull()).toMatchObject({
      name: 'ConvokeError',
      code: 'unavailable',
      retryable: true,
      message: expect.stringMatching(/^The store cannot write now: .*1048576 bytes/),
      cause: { code: 'SQLITE_FULL' },
    })
    expect(written.length).toBeGreaterThan(20)

    for (const id of written) expect(await sqlite.read(id, 0, 1)).toHaveLength(1)
    expect((await sqlite.list({ owner: 'alice', limit: 1 })).total).toBe(written.length)
    // All writers of the turn hear of it, and none of them was written.
    const turn = [newTask(), newTask(), newTask()]
    for (const result of await Promise.allSettled(turn.map((task) => sqlite.create(task, big)))) {
      expect(result).toMatchObject({ status: 'rejected', reason: { code: 'unavailable' } })
    }
    for (const { id } of turn) expect(await sqlite.load(id)).toBeUndefined()

    expect(await sqlite.expire(5000, 10)).toBe(10)
    for (const task of turn) expect((await sqlite.create(task, big)).created).toBe(true)
    await sqlite.check()
    await sqlite.close()
    expect((await stat(path)).size).toBeLessThanOrEqual(maxBytes)
  })

  test('reads the task with the number 3,000,000 like the first', async () => {
    const first = newTask()
    await (await open()).create(first, begun())
    await store?.close()
    const db = new Database(path)
    db.exec('UPDATE tasks SET num = 2999999; UPDATE texts SET num = 2999999')
    db.close()
    const sqlite = await open()
    const [task, next] = [newTask(), newTask()]
    await sqlite.create(task, begun({ events: events(1, 1) }))
    await sqlite.create(next, begun({ events: events(1, 1) }))
    for (let n = 1; n <= 8; n++) await sqlite.commit(task.id, { rev: n, epoch: 1 }, { events: events(n + 1, n + 1) })
    for (let after = 0; after <= 9; after++) {
      expect((await sqlite.read(task.id, after, 1000)).map(({ seq }) => seq)).toEqual(
        Array.from({ length: 9 - after }, (_, index) => after + index + 1),
      )
    }
    expect(await sqlite.read(next.id, 0, 1000)).toHaveLength(1)
  })

  test('has everything it acknowledged after kill -9, and the file is free at once', async () => {
    const script = `
      import { openStore } from ${JSON.stringify(new URL('../dist/store/open.js', import.meta.url).href)}
      const store = await openStore({ url: process.argv[1] })
      const task = (id, worker) => ({ id, owner: 'alice', contextId: 'c', messageId: id, metadata: null, request: '{}',
        repeatable: false, worker, leaseUntil: worker ? 2 ** 42 : 0 })
      const status = { state: 'TASK_STATE_WORKING', text: '{}', at: 1000 }
      await store.create(task('running', 'before'), { status, history: '[]' })
      for (let n = 0; ; n++) {
        const ids = Array.from({ length: 8 }, (_, k) => 'task-' + n + '-' + k)
        await Promise.all(ids.map(async (id) => {
          await store.create(task(id, null), { status, history: '[]', events: [{ seq: 1, text: '{}' }] })
          await store.commit(id, { rev: 1, epoch: 1 }, { events: [{ seq: 2, text: '{}' }, { seq: 3, text: '{}' }] })
        }))
        process.stdout.write(ids.join('\\n') + '\\n')
      }`
    const child = spawn(process.execPath, ['--input-type=module', '-e', script, `sqlite:${path}`], {
      stdio: ['ignore', 'pipe', 'inherit'],
    })
    const exited = once(child, 'exit')
    const acknowledged: string[] = []
    let whileItRan: string | undefined
    try {
      for await (const id of createInterface({ input: child.stdout })) {
        acknowledged.push(id)
        if (acknowledged.length === 100) {
          whileItRan = await codeOf(openStore({ url: `sqlite:${path}` }))
          child.kill('SIGKILL')
        }
      }
    } finally {
      child.kill('SIGKILL')
    }
    expect(await exited).toEqual([null, 'SIGKILL'])
    expect(acknowledged.length).toBeGreaterThanOrEqual(100)
    expect(whileItRan).toBe('unavailable')

    const sqlite = await open()
    for (const id of acknowledged) {
      expect(await sqlite.load(id)).toMatchObject({ rev: 2, lastSeq: 3 })
      expect(await sqlite.read(id, 0, 1000)).toHaveLength(3)
    }
    const claimed = await sqlite.claim('after', { now: 5000, leaseMs: 1000, limit: 10 })
    expect(claimed.map(({ id }) => id)).toEqual(['running'])
  }, 20_000)
})

describe('sqlite agent store', () => {
  let folder: string
  let path: string
  let store: Store | undefined

  beforeEach(async () => {
    folder = await mkdtemp(join(tmpdir(), 'convoke-sqlite-agents-'))
    path = join(folder, 'store.db')
  })

  afterEach(async () => {
    await store?.close()
    store = undefined
    await rm(folder, { recursive: true })
  })

  async function open(maxBytes?: number): Promise<Store> {
    return (store = await openStore({ url: `sqlite:${path}`, ...(maxBytes !== undefined && { maxBytes }) }))
  }

  const soon = { now: 1000, leaseMs: 1000, limit: 10 }

  test('comes to a database of the version before, whose tasks stay', async () => {
    const db = new Database(path)
    db.exec(sqliteSteps[0] ?? '')
    db.exec(`
      INSERT INTO tasks VALUES (1, 'old', 'alice', 'm', 'c', 'TASK_STATE_WORKING', '{}', 1, NULL, 1, 1, 0, NULL, 0, 0, 0, 1);
      INSERT INTO texts VALUES (1, '[]', NULL, '{}', NULL, NULL);
      PRAGMA user_version = 1`)
    db.close()
    const migrated = await open()
    expect(await migrated.load('old')).toMatchObject({ id: 'old', owner: 'alice' })
    expect(await migrated.agents.append('s', 'a', mail('x'))).toEqual({ seq: 1, isNew: true })
    await migrated.close()
    const after = await open()
    expect(await after.load('old')).toBeDefined()
    expect(await after.agents.ready('s', { now: 0, limit: 1 })).toEqual(['a'])
  })

  test('shares one transaction with everything of a turn, tasks too; leases take none', async () => {
    const sqlite = await open()
    const { agents } = sqlite
    const keys = Array.from({ length: 100 }, (_, n) => `k${n}`)
    const before = await transactions(path)
    await Promise.all([...keys.map((key) => agents.append('s', key, mail('x'))), sqlite.create(newTask(), begun())])
    expect((await transactions(path)) - before).toBe(1)
    const leases = (await Promise.all(keys.map((key) => agents.lease('s', key, 'w', soon)))).filter(
      (it) => it !== undefined,
    )
    expect(leases).toHaveLength(100)
    await agents.renew('s', 'w', soon)
    expect((await transactions(path)) - before).toBe(1)
    await Promise.all(leases.map((lease) => agents.commit(lease, done('x', { outputs: ['1'], state: '1' }))))
    await Promise.all(leases.map((lease) => agents.release(lease)))
    expect((await transactions(path)) - before).toBe(2)
  })

  test('leaves nothing behind of what was consumed and has expired', async () => {
    const { agents } = await open()
    for (const key of ['a', 'b']) {
      for (const id of ['x', 'y']) await agents.append('s', key, mail(id))
      const lease = await agents.lease('s', key, 'w', soon)
      if (!lease) throw new Error(`the key ${key} is held`)
      for (const { id } of lease.mail) {
        await agents.saveStep(lease, id, { id: 'one', state: 'done', value: '1' })
        await agents.saveStep(lease, id, { id: 'two', state: 'begun', value: null })
        await agents.commit(lease, done(id, { state: '{}', outputs: ['1', '2'] }))
      }
      await agents.release(lease)
    }
    expect(await agents.expire(5000, 100)).toBe(6)
    await store?.close()
    const db = new Database(path)
    for (const table of ['agent_keys', 'agent_states', 'agent_mail', 'agent_steps', 'agent_outputs']) {
      expect([table, db.prepare(`SELECT count(*) FROM ${table}`).pluck().get()]).toEqual([table, 0])
    }
    db.close()
  })

  test('writes nothing when it is opened and agents have nothing to say', async () => {
    await (await open()).close()
    await open()
    expect(await transactions(path)).toBe(0)
  })

  test('undoes a write with a defect alone, not those of the same turn', async () => {
    const { agents } = await open()
    const results = await Promise.allSettled([
      agents.append('s', 'a', mail('x')),
      // The key goes in before the event is refused.
      agents.append('s', 'b', { id: 'x', event: {} as unknown as string }),
      agents.append('s', 'c', mail('x')),
    ])
    expect(results).toMatchObject([
      { status: 'fulfilled', value: { seq: 1 } },
      { status: 'rejected', reason: { code: 'internal' } },
      { status: 'fulfilled', value: { seq: 1 } },
    ])
    expect(await agents.ready('s', { now: 0, limit: 10 })).toEqual(['a', 'c'])
    expect(await agents.append('s', 'b', mail('x'))).toEqual({ seq: 1, isNew: true })
  })

  test('says unavailable when it is full, keeps all it had, and goes on once something expired', async () => {
    const { agents } = await open(1024 * 1024)
    const event = JSON.stringify('x'.repeat(20_000))
    const written: string[] = []
    const writeUntilFull = async (): Promise<unknown> => {
      for (let n = 0; n < 200; n++) {
        const key = `k${n}`
        try {
          await agents.append('s', key, { id: 'x', event: '1' })
          const lease = await agents.lease('s', key, 'w', soon)
          if (lease) await agents.commit(lease, done('x', { outputs: [event] }))
        } catch (error) {
          return error
        }
        written.push(key)
      }
      return undefined
    }
    expect(await writeUntilFull()).toMatchObject({ code: 'unavailable', cause: { code: 'SQLITE_FULL' } })
    expect(written.length).toBeGreaterThan(20)
    for (const key of written) expect(await agents.result('s', key, 'x')).toEqual({ outputs: [event], failure: null })
    const [first = ''] = written
    expect(await agents.expire(5000, 10)).toBe(10)
    expect(await agents.result('s', first, 'x')).toBeUndefined()
    expect(await agents.append('s', first, { id: 'x', event })).toEqual({ seq: 2, isNew: true })
  })

  test('numbers the outputs of the scope with the number 3,000,000 like the first', async () => {
    const { agents } = await open()
    await agents.append('s', 'a', mail('x'))
    await store?.close()
    const db = new Database(path)
    db.exec('UPDATE agent_scopes SET num = 2999999; UPDATE agent_keys SET scope = 2999999')
    db.exec('UPDATE agent_scopes SET last_place = 1000000007')
    db.close()
    const again = (await open()).agents
    await again.append('next', 'a', mail('x'))
    for (const scope of ['s', 'next']) {
      const lease = await again.lease(scope, 'a', 'w', soon)
      if (lease) await again.commit(lease, done('x', { outputs: ['1', '2', '3'] }))
    }
    const places = async (scope: string, after: number): Promise<number[]> =>
      (await again.outputs(scope, { after, limit: 10 })).map(({ place }) => place)
    expect(await places('s', 0)).toEqual([1_000_000_008, 1_000_000_009, 1_000_000_010])
    expect(await places('s', 1_000_000_008)).toEqual([1_000_000_009, 1_000_000_010])
    expect(await places('next', 0)).toEqual([1, 2, 3])
    expect(await again.result('s', 'a', 'x')).toEqual({ outputs: ['1', '2', '3'], failure: null })
    expect(await again.expire(5000, 100)).toBe(4)
    expect(await places('s', 0)).toEqual([])
  })

  test('has every mail once, waiting or with its whole commit, after kill -9', async () => {
    // Each key counts its runs in its memory and puts the count out twice; steps stand in between.
    const script = `
      import { openStore } from ${JSON.stringify(new URL('../dist/store/open.js', import.meta.url).href)}
      const { agents } = await openStore({ url: process.argv[1] })
      const say = (line) => process.stdout.write(line + '\\n')
      for (let at = 0; at < 16; at++) void (async () => {
        const k = 'key-' + at
        for (let n = 1; ; n++) {
          await agents.append('s', k, { id: 'm' + n, event: '{}' })
          say('append ' + k + ' ' + n)
          // One in three waits until there are two.
          if ((n + at) % 3 === 1) continue
          const lease = await agents.lease('s', k, 'w', { now: 1000, leaseMs: 1e12, limit: 10 })
          let state = Number(lease.state ?? 0)
          for (const { id } of lease.mail) {
            await agents.saveStep(lease, id, { id: 'step', state: 'begun', value: null })
            await agents.saveStep(lease, id, { id: 'step', state: 'done', value: '"' + id + '"' })
            say('step ' + k + ' ' + id.slice(1))
            state++
            const outputs = [JSON.stringify({ state, half: 1 }), JSON.stringify({ state, half: 2 })]
            await agents.commit(lease, { mailId: id, now: 1000, state: String(state), outputs, failure: null })
            say('commit ' + k + ' ' + state)
          }
          await agents.release(lease)
        }
      })()`
    const child = spawn(process.execPath, ['--input-type=module', '-e', script, `sqlite:${path}`], {
      stdio: ['ignore', 'pipe', 'inherit'],
    })
    const exited = once(child, 'exit')
    /** By what was said and the key, the last number. */
    const acknowledged = new Map<string, number>()
    let lines = 0
    try {
      for await (const line of createInterface({ input: child.stdout })) {
        const [what, key, n] = line.split(' ')
        acknowledged.set(`${what} ${key}`, Number(n))
        if (++lines === 1000) child.kill('SIGKILL')
      }
    } finally {
      child.kill('SIGKILL')
    }
    expect(await exited).toEqual([null, 'SIGKILL'])
    expect(lines).toBeGreaterThanOrEqual(1000)

    const { agents } = await open()
    const outputs = await agents.outputs('s', { after: 0, limit: 1e6 })
    const lostSteps: string[] = []
    let waited = 0
    for (const key of Array.from({ length: 16 }, (_, n) => `key-${n}`)) {
      const said = (what: string): number => acknowledged.get(`${what} ${key}`) ?? 0
      const lease = await agents.lease('s', key, 'after', soon)
      if (!lease) throw new Error(`the lease of the process that died still holds ${key}`)
      const consumed = Number(lease.state ?? 0)
      // What was acknowledged is there; what was under way is there too, or is not.
      expect(consumed).toBeGreaterThanOrEqual(said('commit'))
      expect(consumed).toBeLessThanOrEqual(said('commit') + 1)
      const appended = consumed + lease.mail.length
      expect(appended).toBeGreaterThanOrEqual(said('append'))
      expect(appended).toBeLessThanOrEqual(said('append') + 1)
      // Each mail once: consumed with both outputs, or waiting.
      expect(lease.mail.map(({ seq, id }) => [seq, id])).toEqual(
        Array.from({ length: lease.mail.length }, (_, n) => [consumed + n + 1, `m${consumed + n + 1}`]),
      )
      expect(outputs.filter((row) => row.key === key).map(({ mailId, output }) => [mailId, output])).toEqual(
        Array.from({ length: consumed }, (_, n) => [
          [`m${n + 1}`, JSON.stringify({ state: n + 1, half: 1 })],
          [`m${n + 1}`, JSON.stringify({ state: n + 1, half: 2 })],
        ]).flat(),
      )
      for (let n = 1; n <= appended; n++) {
        expect((await agents.result('s', key, `m${n}`))?.outputs.length).toBe(n <= consumed ? 2 : undefined)
        expect(await agents.append('s', key, mail(`m${n}`))).toEqual({ seq: n, isNew: false })
      }
      // A step that was done is there for whoever runs the mail again.
      const [step] = lease.steps
      if (said('step') > consumed && step?.value !== `"m${consumed + 1}"`) lostSteps.push(key)
      waited += lease.mail.length
    }
    expect(lostSteps).toEqual([])
    expect(waited).toBeGreaterThan(0)
  }, 30_000)
})

/**
 * How many transactions the write-ahead log holds: frames that carry the size of the database end one.
 * Nobody else can open the database, so the file is read as https://www.sqlite.org/fileformat.html#walformat
 * says. The log starts over after 4,000 pages, far from here.
 */
async function transactions(path: string): Promise<number> {
  const wal = await readFile(`${path}-wal`)
  if (wal.length === 0) return 0
  const pageSize = wal.readUInt32BE(8)
  const salts = wal.subarray(16, 24)
  let count = 0
  for (let frame = 32; frame < wal.length; frame += 24 + pageSize) {
    const current = wal.subarray(frame + 8, frame + 16).equals(salts)
    if (current && wal.readUInt32BE(frame + 4) !== 0) count++
  }
  return count
}
