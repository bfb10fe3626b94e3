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
import { begun, completed, events, codeOf, newTask, status, testStore } from './contract/store.ts'

testStore('memory', () => openStore({ url: ':memory:' }), { durable: false, shared: false })
testStore('sqlite', (folder) => openStore({ url: `sqlite:${join(folder, 'store.db')}` }), {
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
        const start = performance.now()
        for (const task of tasks) await store.create(task, small)
        best = Math.min(best, performance.now() - start)
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
