/** The store contract as a suite. Every adapter runs it through {@link testStore}. */
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, beforeEach, describe, expect, test } from 'vitest'
import { ConvokeError, type ErrorCode } from '../../dist/base/errors.js'
import type { Change, EventRecord, NewTask, PushRow, StatusChange, Store, TaskRow } from '../../dist/store/store.js'

export interface Abilities {
  /** What was acknowledged is there when the same folder is opened again. */
  readonly durable: boolean
  /** Two handles of one folder can be open at once, and see what the other writes. */
  readonly shared: boolean
}

type Created = Change & { status: StatusChange; history: string }

export const working = 'TASK_STATE_WORKING'
export const completed = 'TASK_STATE_COMPLETED'

let serial = 0

/** A task of its own, owned by `alice` and held by nobody, unless told otherwise. */
export function newTask(fields: Partial<NewTask> = {}): NewTask {
  const number = String(++serial).padStart(6, '0')
  return {
    id: `task-${number}`,
    owner: 'alice',
    contextId: `context-${number}`,
    messageId: `message-${number}`,
    metadata: null,
    request: '{}',
    repeatable: false,
    worker: null,
    leaseUntil: 0,
    ...fields,
  }
}

export function status(state: string, at = 1000): StatusChange {
  return { state, text: JSON.stringify({ state }), at }
}

/** Events `first` to `last`. A text may be anything but hold a raw newline, which JSON on one line never does. */
export function events(first: number, last: number, text = '{"n":1}'): EventRecord[] {
  return Array.from({ length: last - first + 1 }, (_, index) => ({ seq: first + index, text }))
}

/** A first change: a working task without events, unless told otherwise. */
export function begun(fields: Partial<Created> = {}): Created {
  return { status: status(working), history: '[]', ...fields }
}

/** With which code it fails; undefined if it does not. */
export async function codeOf(promise: Promise<unknown>): Promise<ErrorCode | undefined> {
  try {
    await promise
  } catch (error) {
    if (error instanceof ConvokeError) return error.code
    throw error
  }
  return undefined
}

function webhook(taskId: string, fields: Partial<PushRow> = {}): PushRow {
  return {
    taskId,
    id: 'hook',
    config: '{"url":"https://example.org/hook"}',
    version: '1.0',
    cursor: 0,
    attempts: 0,
    nextAt: 0,
    failed: false,
    ...fields,
  }
}

function ids(rows: readonly { id: string }[]): string[] {
  return rows.map(({ id }) => id)
}

function seqs(records: readonly EventRecord[]): number[] {
  return records.map(({ seq }) => seq)
}

/**
 * Runs the contract against an adapter. `open` gets an empty folder that is removed after the test; an
 * adapter that keeps its data elsewhere uses the folder's name for its own. Opening a folder again must
 * give the same data if the adapter is durable. The suite closes what it opens.
 */
export function testStore(name: string, open: (folder: string) => Promise<Store>, abilities: Abilities): void {
  describe(`${name} store`, () => {
    let folder: string
    let store: Store
    let others: Store[]

    beforeEach(async () => {
      folder = await mkdtemp(join(tmpdir(), 'convoke-store-'))
      others = []
      store = await open(folder)
    })

    afterEach(async () => {
      await Promise.all([store, ...others].map((each) => each.close()))
      await rm(folder, { recursive: true })
    })

    async function another(): Promise<Store> {
      const other = await open(folder)
      others.push(other)
      return other
    }

    async function create(task: Partial<NewTask> = {}, change: Partial<Created> = {}): Promise<TaskRow> {
      return (await store.create(newTask(task), begun(change))).row
    }

    /** The row as it is now; a missing one fails the test. */
    async function row(id: string): Promise<TaskRow> {
      const found = await store.load(id)
      if (!found) throw new Error(`no row ${id}`)
      return found
    }

    describe('create', () => {
      test('gives back the whole row, as a load does afterwards', async () => {
        const task = newTask({
          metadata: '{"a":1}',
          request: '{"b":2}',
          repeatable: true,
          worker: 'w',
          leaseUntil: 9000,
        })
        const first = events(1, 2)
        const change = { status: status(working, 1234), history: '[1]', reply: '{"c":3}', events: first }
        const { created, row: given } = await store.create(task, change)
        expect(created).toBe(true)
        expect(given).toEqual({
          ...task,
          state: working,
          status: change.status.text,
          statusAt: 1234,
          history: '[1]',
          reply: '{"c":3}',
          rev: 1,
          epoch: 1,
          lastSeq: 2,
          cancelRequested: false,
          artifacts: null,
          createdAt: 1234,
        })
        expect(await store.load(task.id)).toEqual(given)
        expect(await store.loadByMessage('alice', task.messageId)).toEqual(given)
        expect(await store.read(task.id, 0, 1000)).toEqual(first)
      })

      test('of the same message again writes nothing and gives the task that is there', async () => {
        const first = await create({ messageId: 'm' }, { events: events(1, 1) })
        await store.commit(first.id, first, { status: status(completed, 2000) })
        const again = await store.create(newTask({ messageId: 'm' }), begun({ events: events(1, 3) }))
        expect(again).toEqual({ created: false, row: await row(first.id) })
        expect(again.row.state).toBe(completed)
        expect((await store.list({ owner: 'alice', limit: 10 })).total).toBe(1)
      })

      test('of one message many times at once makes one task', async () => {
        const results = await Promise.all(
          Array.from({ length: 20 }, () => store.create(newTask({ messageId: 'm' }), begun())),
        )
        expect(results.filter(({ created }) => created)).toHaveLength(1)
        expect(new Set(results.map((result) => result.row.id)).size).toBe(1)
      })

      test('of the same messageId by another owner makes another task', async () => {
        const alice = await create({ messageId: 'm' })
        const bob = await create({ messageId: 'm', owner: 'bob' })
        expect(bob.id).not.toBe(alice.id)
        expect((await store.loadByMessage('bob', 'm'))?.id).toBe(bob.id)
        expect(await store.loadByMessage('carol', 'm')).toBeUndefined()
      })

      test('with an id that another message took is a conflict', async () => {
        const { id } = await create()
        expect(await codeOf(store.create(newTask({ id }), begun()))).toBe('conflict')
        expect((await store.list({ owner: 'alice', limit: 10 })).total).toBe(1)
      })

      test('of a finished task leaves it held by nobody', async () => {
        const finished = await create({ worker: 'w', leaseUntil: 5000 }, { status: status(completed) })
        expect(finished).toMatchObject({ worker: null, leaseUntil: 0 })
        expect(await store.claim('v', { now: 9000, leaseMs: 10, limit: 10 })).toEqual([])
      })

      test('refuses first events that do not begin at 1', async () => {
        const task = newTask()
        expect(await codeOf(store.create(task, begun({ events: events(2, 2) })))).toBe('internal')
        expect(await store.load(task.id)).toBeUndefined()
      })
    })

    describe('commit', () => {
      test('appends events, changes what is named and leaves the rest', async () => {
        const task = await create(
          { worker: 'w', leaseUntil: 5000, metadata: '{}' },
          { history: '[1]', events: events(1, 1) },
        )
        await store.commit(task.id, task, { events: events(2, 4) })
        expect(await row(task.id)).toEqual({ ...task, rev: 2, lastSeq: 4 })
        await store.commit(task.id, { rev: 2, epoch: 1 }, { history: '[1,2]', reply: '{}' })
        expect(await row(task.id)).toEqual({ ...task, rev: 3, lastSeq: 4, history: '[1,2]', reply: '{}' })
        const next = status('TASK_STATE_INPUT_REQUIRED', 2000)
        await store.commit(task.id, { rev: 3, epoch: 1 }, { status: next, release: true, events: events(5, 5) })
        expect(await row(task.id)).toEqual({
          ...task,
          rev: 4,
          lastSeq: 5,
          history: '[1,2]',
          reply: '{}',
          state: next.state,
          status: next.text,
          statusAt: 2000,
          worker: null,
          leaseUntil: 0,
        })
        expect(seqs(await store.read(task.id, 0, 1000))).toEqual([1, 2, 3, 4, 5])
      })

      test('does not change a row that was handed out before', async () => {
        const task = await create({ worker: 'w', leaseUntil: 5000 })
        const loaded = await row(task.id)
        const copy = { ...loaded }
        await store.commit(task.id, task, { events: events(1, 1), status: status(completed, 2000), history: '[1]' })
        expect(loaded).toEqual(copy)
        expect(task).toEqual(copy)
      })

      test('with a stale rev is a conflict and writes nothing', async () => {
        const task = await create({}, { events: events(1, 1) })
        await store.commit(task.id, task, { events: events(2, 2) })
        const before = await row(task.id)
        expect(
          await codeOf(
            store.commit(task.id, task, { events: events(3, 3), status: status(completed), history: '[9]' }),
          ),
        ).toBe('conflict')
        expect(await codeOf(store.commit(task.id, { rev: 3, epoch: 1 }, { events: events(3, 3) }))).toBe('conflict')
        expect(await row(task.id)).toEqual(before)
        expect(seqs(await store.read(task.id, 0, 1000))).toEqual([1, 2])
      })

      test('with a stale epoch is a conflict and writes nothing', async () => {
        const task = await create({ worker: 'w', leaseUntil: 5000 })
        await store.claim('v', { now: 6000, leaseMs: 1000, limit: 1 })
        expect(await codeOf(store.commit(task.id, task, { events: events(1, 1) }))).toBe('conflict')
        expect(await row(task.id)).toMatchObject({ rev: 1, epoch: 2, lastSeq: 0, worker: 'v' })
        await store.commit(task.id, { rev: 1, epoch: 2 }, { events: events(1, 1) })
        expect(seqs(await store.read(task.id, 0, 1000))).toEqual([1])
      })

      test('to a task that is not there is a conflict', async () => {
        expect(await codeOf(store.commit('nowhere', { rev: 1, epoch: 1 }, {}))).toBe('conflict')
      })

      test.each([completed, 'TASK_STATE_FAILED', 'TASK_STATE_CANCELED', 'TASK_STATE_REJECTED', 'MESSAGE'])(
        'to a task in state %s is a conflict: it never changes again',
        async (state) => {
          const task = await create({ worker: 'w', leaseUntil: 5000 })
          await store.commit(task.id, task, { status: status(state, 2000), events: events(1, 1) })
          const before = await row(task.id)
          expect(before).toMatchObject({ state, rev: 2, worker: null, leaseUntil: 0 })
          expect(
            await codeOf(store.commit(task.id, before, { status: status(working, 3000), events: events(2, 2) })),
          ).toBe('conflict')
          await store.requestCancel(task.id)
          expect(await store.acquire(task.id, 'v', { now: 9000, leaseMs: 10 })).toBeUndefined()
          expect(await store.claim('v', { now: 9000, leaseMs: 10, limit: 10 })).toEqual([])
          expect(await row(task.id)).toEqual(before)
        },
      )

      test('of many writers at one rev succeeds for exactly one', async () => {
        const task = await create()
        const results = await Promise.allSettled(
          Array.from({ length: 20 }, (_, writer) =>
            store.commit(task.id, task, { events: [{ seq: 1, text: `{"writer":${writer}}` }] }),
          ),
        )
        expect(results.filter((result) => result.status === 'fulfilled')).toHaveLength(1)
        const winner = results.findIndex((result) => result.status === 'fulfilled')
        expect(await store.read(task.id, 0, 1000)).toEqual([{ seq: 1, text: `{"writer":${winner}}` }])
        expect((await row(task.id)).rev).toBe(2)
      })

      test('that is refused does not touch those of the same turn', async () => {
        const [a, b, c] = [await create(), await create(), await create()]
        const results = await Promise.allSettled([
          store.commit(a.id, a, { events: events(1, 1) }),
          store.commit(b.id, { rev: 7, epoch: 1 }, { events: events(1, 1) }),
          store.commit(c.id, c, { events: events(1, 1) }),
        ])
        expect(results.map((result) => result.status)).toEqual(['fulfilled', 'rejected', 'fulfilled'])
        expect(await Promise.all([a, b, c].map(async ({ id }) => (await row(id)).lastSeq))).toEqual([1, 0, 1])
      })

      test('one behind the other in one turn runs in that order', async () => {
        const task = await create()
        await Promise.all([
          store.commit(task.id, { rev: 1, epoch: 1 }, { events: events(1, 2) }),
          store.commit(task.id, { rev: 2, epoch: 1 }, { events: events(3, 3) }),
          store.commit(task.id, { rev: 3, epoch: 1 }, { status: status(completed, 2000), events: events(4, 4) }),
        ])
        expect(await row(task.id)).toMatchObject({ rev: 4, lastSeq: 4, state: completed })
      })

      test.each([
        ['a gap', events(3, 3)],
        ['a repeat', events(1, 1)],
        ['a gap within', [...events(2, 2), ...events(4, 4)]],
      ])('refuses events with %s and writes nothing', async (_, wrong) => {
        const task = await create({}, { events: events(1, 1) })
        expect(await codeOf(store.commit(task.id, task, { events: wrong, status: status(completed) }))).toBe('internal')
        expect(await row(task.id)).toEqual(task)
        expect(seqs(await store.read(task.id, 0, 1000))).toEqual([1])
      })
    })

    describe('read', () => {
      test('gives what lies behind the cursor, wherever commits begin and end', async () => {
        const task = await create({}, { events: events(1, 3) })
        await store.commit(task.id, task, { events: events(4, 4) })
        await store.commit(task.id, { rev: 2, epoch: 1 }, { events: events(5, 9) })
        for (let after = 0; after <= 9; after++) {
          const expected = Array.from({ length: 9 - after }, (_, index) => after + index + 1)
          expect(seqs(await store.read(task.id, after, 10_000))).toEqual(expected)
        }
        expect(await store.read(task.id, 10, 1000)).toEqual([])
        expect(await store.read(task.id, 2 ** 40, 1000)).toEqual([])
        expect(seqs(await store.read(task.id, -5, 1000))).toHaveLength(9)
        expect(await store.read('nowhere', 0, 1000)).toEqual([])
      })

      test('never gives the events of a neighbour', async () => {
        const [a, b, c] = [
          await create({}, { events: events(1, 2) }),
          await create(),
          await create({}, { events: events(1, 2) }),
        ]
        expect(await store.read(b.id, 0, 1000)).toEqual([])
        expect(seqs(await store.read(a.id, 1, 1000))).toEqual([2])
        expect(seqs(await store.read(c.id, 1, 1000))).toEqual([2])
      })

      test('stops at about maxBytes, and gives at least one event', async () => {
        const text = JSON.stringify('x'.repeat(98))
        const task = await create({}, { events: events(1, 10, text) })
        await store.commit(task.id, task, { events: events(11, 20, text) })
        expect(seqs(await store.read(task.id, 0, 350))).toEqual([1, 2, 3])
        expect(seqs(await store.read(task.id, 8, 350))).toEqual([9, 10, 11])
        expect(seqs(await store.read(task.id, 8, 1))).toEqual([9])
        expect(seqs(await store.read(task.id, 19, 1))).toEqual([20])
        expect(await store.read(task.id, 20, 1)).toEqual([])
      })

      test('walks through one commit of 3,000 events of 1 KB without a gap', async () => {
        const text = JSON.stringify('x'.repeat(1022))
        const task = await create()
        await store.commit(task.id, task, { events: events(1, 3000, text) })
        let cursor = 0
        for (let page = 0; page < 40; page++) {
          const records = await store.read(task.id, cursor, 100_000)
          expect(records.length).toBeLessThanOrEqual(100)
          expect(seqs(records)).toEqual(records.map((_, index) => cursor + index + 1))
          cursor += records.length
        }
        expect(cursor).toBe(3000)
      })

      test('gives every text back exactly', async () => {
        const texts = [
          '',
          '{}',
          '"Grüße, 世界 \u2028\u2029\u0085\u00a0 👩‍👩‍👧‍👦"',
          '"\\n\\r\\u0000\\\\"',
          '"\t\r\f"',
          JSON.stringify('€'.repeat(1_700_000)),
          JSON.stringify('x'.repeat(5_000_000)),
          '{"last":true}',
        ]
        const records = texts.map((text, index) => ({ seq: index + 1, text }))
        const task = await create(
          { request: texts[6] ?? '', metadata: texts[2] ?? '' },
          { events: records, history: texts[5] ?? '' },
        )
        expect(await store.read(task.id, 0, 100_000_000)).toEqual(records)
        const loaded = await row(task.id)
        expect([loaded.request === texts[6], loaded.metadata === texts[2], loaded.history === texts[5]]).toEqual([
          true,
          true,
          true,
        ])
        // Pieces of every size: where one ends the next begins.
        const pieces: EventRecord[] = []
        for (let n = 0; n < records.length; n++) pieces.push(...(await store.read(task.id, pieces.length, 10)))
        expect(pieces).toEqual(records)
      })
    })

    describe('load', () => {
      test('with the wrong owner finds nothing', async () => {
        const { id } = await create({ owner: 'alice' })
        expect((await store.load(id, 'alice'))?.id).toBe(id)
        expect(await store.load(id, 'bob')).toBeUndefined()
        expect(await store.load(id, '')).toBeUndefined()
        expect(await store.load('nowhere', 'alice')).toBeUndefined()
        expect(await store.load('nowhere')).toBeUndefined()
      })
    })

    describe('list', () => {
      test('is ordered by status time and then id, both descending', async () => {
        await create({ id: 'b' }, { status: status(working, 20) })
        await create({ id: 'd' }, { status: status(working, 10) })
        await create({ id: 'a' }, { status: status(working, 20) })
        await create({ id: 'e' }, { status: status(working, 30) })
        await create({ id: 'c' }, { status: status(working, 20) })
        const { rows, total } = await store.list({ owner: 'alice', limit: 10 })
        expect(ids(rows)).toEqual(['e', 'c', 'b', 'a', 'd'])
        expect(total).toBe(5)
        expect(rows[0]).toEqual(await row('e'))
      })

      test('moves a task to where its newest status belongs', async () => {
        const old = await create({ id: 'old' }, { status: status(working, 10) })
        await create({ id: 'new' }, { status: status(working, 20) })
        await create({ id: 'newest' }, { status: status(working, 30) })
        await store.commit(old.id, old, { status: status(working, 25) })
        expect(ids((await store.list({ owner: 'alice', limit: 10 })).rows)).toEqual(['newest', 'old', 'new'])
        await store.commit(old.id, { rev: 2, epoch: 1 }, { status: status(completed, 40) })
        expect(ids((await store.list({ owner: 'alice', limit: 10 })).rows)).toEqual(['old', 'newest', 'new'])
      })

      test('shows an owner only what is theirs', async () => {
        const { id } = await create({ owner: 'alice', contextId: 'c' })
        await create({ owner: 'bob', contextId: 'c' })
        expect(ids((await store.list({ owner: 'alice', contextId: 'c', limit: 10 })).rows)).toEqual([id])
        expect(await store.list({ owner: 'carol', limit: 10 })).toEqual({ rows: [], total: 0 })
      })

      test('filters by context, state and status time, and counts what matches', async () => {
        await create({ id: 'a', contextId: 'x' }, { status: status(working, 10) })
        await create({ id: 'b', contextId: 'x' }, { status: status(completed, 20) })
        await create({ id: 'c', contextId: 'y' }, { status: status(completed, 30) })
        await create({ id: 'd', contextId: 'x' }, { status: status(completed, 40) })
        const found = async (filter: { contextId?: string; state?: string; statusFrom?: number }) => {
          const { rows, total } = await store.list({ owner: 'alice', limit: 10, ...filter })
          expect(total).toBe(rows.length)
          return ids(rows).join('')
        }
        expect(await found({ contextId: 'x' })).toBe('dba')
        expect(await found({ state: completed })).toBe('dcb')
        expect(await found({ statusFrom: 30 })).toBe('dc')
        expect(await found({ contextId: 'x', state: completed })).toBe('db')
        expect(await found({ contextId: 'x', statusFrom: 20 })).toBe('db')
        expect(await found({ state: working, statusFrom: 11 })).toBe('')
        expect(await found({ contextId: 'x', state: completed, statusFrom: 21 })).toBe('d')
        expect(await found({ contextId: 'z' })).toBe('')
      })

      test.each([
        ['all', {}],
        ['filtered', { state: completed }],
      ])('pages through equal status times without a gap or a repeat: %s', async (_, filter) => {
        for (const [index, at] of [5, 7, 7, 7, 7, 7, 9, 7, 7].entries()) {
          await create({ id: `task-${(index * 5) % 9}` }, { status: status(completed, at) })
        }
        const whole = ids((await store.list({ owner: 'alice', limit: 100, ...filter })).rows)
        expect(whole).toHaveLength(9)
        for (const limit of [1, 2, 4, 8, 9]) {
          const paged: string[] = []
          let after: { statusAt: number; id: string } | undefined
          // The last page is empty.
          for (let n = 0; n <= Math.ceil(9 / limit); n++) {
            const page = await store.list({ owner: 'alice', limit, ...filter, ...(after && { after }) })
            expect(page.total).toBe(9)
            expect(page.rows.length).toBeLessThanOrEqual(limit)
            paged.push(...ids(page.rows))
            after = page.rows.at(-1) ?? after
          }
          expect(paged).toEqual(whole)
        }
      })

      test('never shows a bare message', async () => {
        const task = await create()
        const other = await create({}, { status: status('MESSAGE'), reply: '{}' })
        await store.commit(task.id, task, { status: status('MESSAGE', 2000), reply: '{}' })
        expect(await store.list({ owner: 'alice', limit: 10 })).toEqual({ rows: [], total: 0 })
        expect(await store.list({ owner: 'alice', state: 'MESSAGE', limit: 10 })).toEqual({ rows: [], total: 0 })
        expect(await store.load(other.id, 'alice')).toMatchObject({ state: 'MESSAGE', reply: '{}' })
      })
    })

    describe('workers', () => {
      const lease = { leaseMs: 1000, limit: 10 }

      test('claim takes what its worker lost, and only that', async () => {
        const lost = await create({ worker: 'dead', leaseUntil: 5000 })
        await create({ worker: 'alive', leaseUntil: 9000 })
        await create()
        await create({ worker: 'dead', leaseUntil: 5000 }, { status: status(completed) })
        expect(await store.claim('w', { now: 4000, ...lease })).toEqual([])
        const claimed = await store.claim('w', { now: 6000, ...lease })
        expect(claimed).toEqual([{ ...lost, worker: 'w', leaseUntil: 7000, epoch: 2 }])
        expect(claimed).toEqual([await row(lost.id)])
        expect(await store.claim('v', { now: 6500, ...lease })).toEqual([])
      })

      test('claim takes the oldest first, at most limit', async () => {
        const tasks: TaskRow[] = []
        for (let n = 0; n < 5; n++) tasks.push(await create({ worker: 'dead', leaseUntil: 1000 + n }))
        const first = await store.claim('w', { now: 6000, leaseMs: 1000, limit: 2 })
        const rest = await store.claim('w', { now: 6000, leaseMs: 1000, limit: 9 })
        expect(ids(first)).toEqual(ids(tasks.slice(0, 2)))
        expect(ids(rest)).toEqual(ids(tasks.slice(2)))
      })

      test('two who claim at once never get the same task', async () => {
        for (let n = 0; n < 10; n++) await create({ worker: 'dead', leaseUntil: 1000 })
        const claims = await Promise.all(
          ['v', 'w', 'v', 'w'].map((worker) => store.claim(worker, { now: 6000, leaseMs: 1000, limit: 4 })),
        )
        expect(claims.flat()).toHaveLength(10)
        expect(new Set(ids(claims.flat())).size).toBe(10)
      })

      test('acquire takes a task at rest or one whose lease ended, and no other', async () => {
        const resting = await create({}, { status: status('TASK_STATE_INPUT_REQUIRED') })
        const held = await create({ worker: 'v', leaseUntil: 5000 })
        const now = 4000
        expect(await store.acquire(resting.id, 'w', { now, leaseMs: 500 })).toEqual({
          ...resting,
          worker: 'w',
          leaseUntil: 4500,
          epoch: 2,
        })
        expect(await store.acquire(resting.id, 'v', { now, leaseMs: 500 })).toBeUndefined()
        expect(await store.acquire(resting.id, 'w', { now, leaseMs: 500 })).toBeUndefined()
        expect(await store.acquire(held.id, 'w', { now, leaseMs: 500 })).toBeUndefined()
        expect(await store.acquire(held.id, 'w', { now: 6000, leaseMs: 500 })).toMatchObject({ worker: 'w', epoch: 2 })
        expect(await store.acquire('nowhere', 'w', { now, leaseMs: 500 })).toBeUndefined()
      })

      test('acquire by two at once succeeds for one', async () => {
        const { id } = await create()
        const results = await Promise.all(
          ['v', 'w'].map((worker) => store.acquire(id, worker, { now: 10, leaseMs: 500 })),
        )
        expect(results.filter((result) => result !== undefined)).toHaveLength(1)
        expect((await row(id)).epoch).toBe(2)
      })

      test('release lays a task to rest, for the next worker to acquire', async () => {
        const task = await create({ worker: 'w', leaseUntil: 5000 })
        await store.commit(task.id, task, { release: true })
        expect(await row(task.id)).toMatchObject({ worker: null, leaseUntil: 0, state: working })
        expect(await store.claim('v', { now: 9000, ...lease })).toEqual([])
        expect(await store.heartbeat('w', { now: 9000, leaseMs: 1000 })).toEqual([])
        expect((await row(task.id)).worker).toBeNull()
        expect(await store.acquire(task.id, 'v', { now: 10, leaseMs: 1000 })).toMatchObject({ worker: 'v', epoch: 2 })
      })

      test('heartbeat renews the leases of one worker', async () => {
        const [mine, also, theirs] = [
          await create({ worker: 'w', leaseUntil: 5000 }),
          await create({ worker: 'w', leaseUntil: 5500 }),
          await create({ worker: 'v', leaseUntil: 5000 }),
        ]
        expect(await store.heartbeat('w', { now: 4000, leaseMs: 6000 })).toEqual([])
        expect(await Promise.all([mine, also, theirs].map(async ({ id }) => (await row(id)).leaseUntil))).toEqual([
          10000, 10000, 5000,
        ])
        expect(ids(await store.claim('x', { now: 7000, ...lease }))).toEqual([theirs.id])
      })

      test('heartbeat brings back what is to be cancelled, to its worker only, until it is', async () => {
        const task = await create({ worker: 'w', leaseUntil: 5000 })
        await create({ worker: 'w', leaseUntil: 5000 })
        await store.requestCancel(task.id)
        await store.requestCancel('nowhere')
        expect((await row(task.id)).cancelRequested).toBe(true)
        expect(await store.heartbeat('v', { now: 4000, leaseMs: 1000 })).toEqual([])
        expect(await store.heartbeat('w', { now: 4000, leaseMs: 1000 })).toEqual([task.id])
        expect(await store.heartbeat('w', { now: 4000, leaseMs: 1000 })).toEqual([task.id])
        await store.commit(task.id, task, { status: status('TASK_STATE_CANCELED', 2000) })
        expect(await store.heartbeat('w', { now: 4000, leaseMs: 1000 })).toEqual([])
      })

      test('a cancel request outlives the worker that was to hear it', async () => {
        const task = await create({ worker: 'dead', leaseUntil: 5000 })
        await store.requestCancel(task.id)
        expect(await store.claim('w', { now: 6000, ...lease })).toMatchObject([{ id: task.id, cancelRequested: true }])
        expect(await store.heartbeat('w', { now: 6000, leaseMs: 1000 })).toEqual([task.id])
      })
    })

    describe('webhooks', () => {
      const claim = { now: 1000, leaseMs: 100, limit: 10 }

      test('are put, replaced, listed by id and deleted', async () => {
        const { id } = await create()
        await store.putPush(webhook(id, { id: 'b' }))
        await store.putPush(webhook(id, { id: 'a', cursor: 3, attempts: 2, nextAt: 77, failed: true, version: '0.3' }))
        await store.putPush(webhook(id, { id: 'b', config: '{"url":"new"}' }))
        const a = webhook(id, { id: 'a', cursor: 3, attempts: 2, nextAt: 77, failed: true, version: '0.3' })
        const b = webhook(id, { id: 'b', config: '{"url":"new"}' })
        expect(await store.listPush(id)).toEqual([a, b])
        expect(await store.getPush(id, 'b')).toEqual(b)
        await store.deletePush(id, 'b')
        await store.deletePush(id, 'b')
        await store.deletePush('nowhere', 'b')
        expect(await store.getPush(id, 'b')).toBeUndefined()
        expect(await store.listPush(id)).toEqual([a])
        expect(await store.listPush('nowhere')).toEqual([])
        expect(await store.getPush('nowhere', 'b')).toBeUndefined()
      })

      test('of a task that is not there are refused', async () => {
        expect(await codeOf(store.putPush(webhook('nowhere')))).toBe('task_not_found')
      })

      test('are claimed earliest first, at most limit', async () => {
        const { id } = await create({}, { events: events(1, 1) })
        for (const [hook, nextAt] of Object.entries({ a: 30, b: 10, c: 20, later: 5000 })) {
          await store.putPush(webhook(id, { id: hook, nextAt }))
        }
        expect(ids(await store.claimPushes({ ...claim, limit: 2 }))).toEqual(['b', 'c'])
        expect(ids(await store.claimPushes(claim))).toEqual(['a'])
      })

      test('are hidden once claimed until the lease ends or they are advanced', async () => {
        const { id } = await create({}, { events: events(1, 3) })
        await store.putPush(webhook(id))
        expect(await store.claimPushes(claim)).toMatchObject([
          { taskId: id, id: 'hook', cursor: 0, attempts: 0, failed: false },
        ])
        expect(await store.claimPushes({ ...claim, now: 1099 })).toEqual([])
        expect(ids(await store.claimPushes({ ...claim, now: 1101 }))).toEqual(['hook'])
        await store.advancePush(id, 'hook', { cursor: 1, attempts: 0, nextAt: 1000, failed: false })
        expect(await store.claimPushes({ ...claim, now: 1102 })).toMatchObject([{ cursor: 1 }])
      })

      test('claimed by two at once go to one of them', async () => {
        const { id } = await create({}, { events: events(1, 1) })
        for (let n = 0; n < 6; n++) await store.putPush(webhook(id, { id: `hook-${n}` }))
        const claims = await Promise.all([1, 2, 3].map(() => store.claimPushes({ ...claim, limit: 3 })))
        expect(ids(claims.flat()).sort()).toEqual(['hook-0', 'hook-1', 'hook-2', 'hook-3', 'hook-4', 'hook-5'])
      })

      test('are due only while their cursor lies behind the last event', async () => {
        const task = await create({}, { events: events(1, 2) })
        await store.putPush(webhook(task.id, { cursor: 2, nextAt: 50 }))
        expect(await store.claimPushes(claim)).toEqual([])
        expect(await store.nextPushAt()).toBeUndefined()
        await store.commit(task.id, task, { events: events(3, 3) })
        expect(await store.nextPushAt()).toBe(50)
        expect(ids(await store.claimPushes(claim))).toEqual(['hook'])
        await store.advancePush(task.id, 'hook', { cursor: 3, attempts: 0, nextAt: 60, failed: false })
        expect(await store.getPush(task.id, 'hook')).toEqual(webhook(task.id, { cursor: 3, nextAt: 60 }))
        expect(await store.nextPushAt()).toBeUndefined()
        expect(await store.claimPushes(claim)).toEqual([])
      })

      test('wait for their time after a failed delivery', async () => {
        const { id } = await create({}, { events: events(1, 1) })
        await store.putPush(webhook(id))
        await store.claimPushes(claim)
        await store.advancePush(id, 'hook', { cursor: 0, attempts: 1, nextAt: 3000, failed: false })
        expect(await store.nextPushAt()).toBe(3000)
        expect(await store.claimPushes({ ...claim, now: 2999 })).toEqual([])
        expect(await store.claimPushes({ ...claim, now: 3000 })).toMatchObject([{ attempts: 1 }])
      })

      test('that were given up are never due again', async () => {
        const task = await create({}, { events: events(1, 1) })
        await store.putPush(webhook(task.id))
        await store.advancePush(task.id, 'hook', { cursor: 0, attempts: 9, nextAt: 0, failed: true })
        await store.commit(task.id, task, { events: events(2, 2) })
        expect(await store.claimPushes(claim)).toEqual([])
        expect(await store.nextPushAt()).toBeUndefined()
        expect(await store.getPush(task.id, 'hook')).toMatchObject({ failed: true, attempts: 9 })
      })

      test('that were deleted meanwhile are not brought back by the end of a delivery', async () => {
        const { id } = await create({}, { events: events(1, 1) })
        await store.putPush(webhook(id))
        await store.claimPushes(claim)
        await store.deletePush(id, 'hook')
        await store.advancePush(id, 'hook', { cursor: 1, attempts: 0, nextAt: 0, failed: false })
        await store.advancePush('nowhere', 'hook', { cursor: 1, attempts: 0, nextAt: 0, failed: false })
        expect(await store.listPush(id)).toEqual([])
        expect(await store.nextPushAt()).toBeUndefined()
      })

      test('nextPushAt is the earliest of all that are due', async () => {
        expect(await store.nextPushAt()).toBeUndefined()
        const { id } = await create({}, { events: events(1, 1) })
        const idle = await create()
        await store.putPush(webhook(id, { id: 'a', nextAt: 300 }))
        await store.putPush(webhook(id, { id: 'b', nextAt: 200 }))
        await store.putPush(webhook(idle.id, { nextAt: 100 }))
        expect(await store.nextPushAt()).toBe(200)
        await store.deletePush(id, 'b')
        expect(await store.nextPushAt()).toBe(300)
        await store.claimPushes(claim)
        expect(await store.nextPushAt()).toBe(1100)
      })
    })

    describe('retention', () => {
      const finished = (at: number): Partial<Created> => ({ status: status(completed, at), events: events(1, 2) })

      test('compactable names terminal tasks with events that are old enough, at most limit', async () => {
        const old = await create({}, finished(10))
        const next = await create({}, finished(20))
        await create({}, finished(30))
        await create({}, { events: events(1, 2), status: status(working, 10) })
        await create({}, { status: status(completed, 10) })
        await create({}, { events: events(1, 1), status: status('MESSAGE', 10) })
        expect((await store.compactable(30, 10)).sort()).toEqual([old.id, next.id])
        expect(await store.compactable(30, 1)).toHaveLength(1)
        expect(await store.compactable(10, 10)).toEqual([])
      })

      test('compactable waits for webhooks that are not served', async () => {
        const { id } = await create({}, finished(10))
        await store.putPush(webhook(id, { id: 'a' }))
        await store.putPush(webhook(id, { id: 'b' }))
        expect(await store.compactable(20, 10)).toEqual([])
        await store.advancePush(id, 'a', { cursor: 2, attempts: 0, nextAt: 0, failed: false })
        expect(await store.compactable(20, 10)).toEqual([])
        await store.advancePush(id, 'b', { cursor: 1, attempts: 9, nextAt: 0, failed: true })
        expect(await store.compactable(20, 10)).toEqual([id])
      })

      test('compact puts the artifacts in the place of the events, once', async () => {
        const task = await create({}, finished(10))
        const neighbour = await create({}, finished(10))
        await store.compact(task.id, '[{"artifactId":"a"}]')
        expect(await store.read(task.id, 0, 1000)).toEqual([])
        expect(await row(task.id)).toEqual({ ...task, artifacts: '[{"artifactId":"a"}]' })
        expect(seqs(await store.read(neighbour.id, 0, 1000))).toEqual([1, 2])
        expect(await store.compactable(20, 10)).toEqual([neighbour.id])
      })

      test('compact leaves a running task alone, and one that is gone', async () => {
        const task = await create({}, { events: events(1, 2) })
        await store.compact(task.id, '[]')
        await store.compact('nowhere', '[]')
        expect(await row(task.id)).toEqual(task)
        expect(seqs(await store.read(task.id, 0, 1000))).toEqual([1, 2])
      })

      test('expire deletes what is over and old enough, at most limit, with all that is theirs', async () => {
        const old = [await create({}, finished(10)), await create({}, finished(11)), await create({}, finished(12))]
        const kept = [
          await create({}, finished(90)),
          await create({}, { status: status(working, 10), events: events(1, 2) }),
        ]
        const [first] = old
        if (!first) throw new Error('unreachable')
        await store.compact(first.id, '[]')
        const message = await create({}, { status: status('MESSAGE', 10), reply: '{}' })
        for (const { id } of [...old, ...kept]) await store.putPush(webhook(id))
        expect(await store.expire(50, 3)).toBe(3)
        expect(await store.expire(50, 3)).toBe(1)
        expect(await store.expire(50, 3)).toBe(0)
        for (const { id, messageId } of [...old, message]) {
          expect(await store.load(id)).toBeUndefined()
          expect(await store.loadByMessage('alice', messageId)).toBeUndefined()
          expect(await store.read(id, 0, 1000)).toEqual([])
          expect(await store.listPush(id)).toEqual([])
        }
        expect(ids(await store.claimPushes({ now: 1000, leaseMs: 10, limit: 10 }))).toHaveLength(2)
        expect((await store.list({ owner: 'alice', limit: 10 })).total).toBe(2)
        for (const { id } of kept) expect(seqs(await store.read(id, 0, 1000))).toEqual([1, 2])
      })

      test('a message may make a new task once the old one expired, and it inherits nothing', async () => {
        const old = await create({ messageId: 'm' }, finished(10))
        await store.putPush(webhook(old.id))
        await store.expire(50, 10)
        const again = await store.create(newTask({ messageId: 'm' }), begun({ events: events(1, 1) }))
        expect(again.created).toBe(true)
        expect(again.row.id).not.toBe(old.id)
        expect(seqs(await store.read(again.row.id, 0, 1000))).toEqual([1])
        expect(await store.listPush(again.row.id)).toEqual([])
        expect(await store.nextPushAt()).toBeUndefined()
      })
    })

    describe('lifetime', () => {
      test('check resolves while the store works', async () => {
        await expect(store.check()).resolves.toBeUndefined()
        await create()
        await expect(store.check()).resolves.toBeUndefined()
      })

      test('close waits for what was accepted', async () => {
        const tasks = [newTask(), newTask()]
        const writes = tasks.map((task) => store.create(task, begun()))
        await store.close()
        expect((await Promise.all(writes)).map(({ created }) => created)).toEqual([true, true])
      })

      test('a closed store refuses every call, and closes twice', async () => {
        const task = await create()
        await Promise.all([store.close(), store.close()])
        await store.close()
        const calls = [
          store.create(newTask(), begun()),
          store.commit(task.id, task, {}),
          store.load(task.id),
          store.loadByMessage('alice', task.messageId),
          store.read(task.id, 0, 1),
          store.list({ owner: 'alice', limit: 1 }),
          store.requestCancel(task.id),
          store.claim('w', { now: 1, leaseMs: 1, limit: 1 }),
          store.acquire(task.id, 'w', { now: 1, leaseMs: 1 }),
          store.heartbeat('w', { now: 1, leaseMs: 1 }),
          store.putPush(webhook(task.id)),
          store.getPush(task.id, 'hook'),
          store.listPush(task.id),
          store.deletePush(task.id, 'hook'),
          store.claimPushes({ now: 1, leaseMs: 1, limit: 1 }),
          store.advancePush(task.id, 'hook', { cursor: 0, attempts: 0, nextAt: 0, failed: false }),
          store.nextPushAt(),
          store.compactable(1, 1),
          store.compact(task.id, '[]'),
          store.expire(1, 1),
          store.check(),
        ]
        for (const call of calls) expect(await codeOf(call)).toBe('unavailable')
      })

      test('watch never makes up a change, and can be stopped twice', async () => {
        const seen: string[] = []
        const stop = store.watch((id) => seen.push(id))
        const { id } = await create()
        stop()
        stop()
        expect(seen.filter((each) => each !== id)).toEqual([])
      })
    })

    if (abilities.durable)
      describe('reopened', () => {
        test('has all that was acknowledged', async () => {
          const task = await create(
            { worker: 'w', leaseUntil: 5000, metadata: '{"ü":"\u2028"}' },
            { events: events(1, 2) },
          )
          await store.commit(task.id, task, { events: events(3, 3), status: status(completed, 2000), history: '[1]' })
          await store.putPush(webhook(task.id, { cursor: 1 }))
          await store.requestCancel((await create({ id: 'running' })).id)
          const before = await row(task.id)
          await store.close()
          store = await another()
          expect(await row(task.id)).toEqual(before)
          expect(seqs(await store.read(task.id, 0, 1000))).toEqual([1, 2, 3])
          expect(await store.listPush(task.id)).toEqual([webhook(task.id, { cursor: 1 })])
          expect((await row('running')).cancelRequested).toBe(true)
          expect(await store.create(newTask({ messageId: task.messageId }), begun())).toEqual({
            created: false,
            row: before,
          })
        })
      })

    if (abilities.shared)
      describe('with two handles', () => {
        test('shows to one what the other was told is written', async () => {
          const other = await another()
          const task = await create({}, { events: events(1, 1) })
          expect(await other.load(task.id)).toEqual(task)
          await other.commit(task.id, task, { events: events(2, 2) })
          expect(seqs(await store.read(task.id, 0, 1000))).toEqual([1, 2])
        })

        test('makes one task of one message that comes to both', async () => {
          const other = await another()
          for (let round = 0; round < 10; round++) {
            const results = await Promise.all(
              [store, other].map((each) => each.create(newTask({ messageId: `m-${round}` }), begun())),
            )
            expect(results.filter(({ created }) => created)).toHaveLength(1)
            expect(results[0]?.row.id).toBe(results[1]?.row.id)
          }
        })

        test('lets one of two writers at one rev win', async () => {
          const other = await another()
          const task = await create()
          for (let rev = 1; rev <= 10; rev++) {
            const results = await Promise.allSettled(
              [store, other].map((each) => each.commit(task.id, { rev, epoch: 1 }, { events: events(rev, rev) })),
            )
            expect(results.filter((result) => result.status === 'fulfilled')).toHaveLength(1)
          }
          expect(await row(task.id)).toMatchObject({ rev: 11, lastSeq: 10 })
        })

        test('gives each lost task and each webhook to one of them', async () => {
          const other = await another()
          for (let n = 0; n < 20; n++) {
            const { id } = await create({ worker: 'dead', leaseUntil: 1000 }, { events: events(1, 1) })
            await store.putPush(webhook(id))
          }
          const both = [store, other, store, other]
          const tasks = await Promise.all(
            both.map((each, n) => each.claim(`w-${n}`, { now: 6000, leaseMs: 1000, limit: 5 })),
          )
          expect(new Set(ids(tasks.flat())).size).toBe(tasks.flat().length)
          const hooks = await Promise.all(both.map((each) => each.claimPushes({ now: 6000, leaseMs: 1000, limit: 5 })))
          expect(new Set(hooks.flat().map(({ taskId }) => taskId)).size).toBe(hooks.flat().length)
        })

        test('stops a writer whose task the other took over', async () => {
          const other = await another()
          const task = await create({ worker: 'w', leaseUntil: 5000 })
          await other.claim('v', { now: 6000, leaseMs: 1000, limit: 1 })
          expect(await codeOf(store.commit(task.id, task, { events: events(1, 1) }))).toBe('conflict')
          await other.requestCancel(task.id)
          expect(await other.heartbeat('v', { now: 6000, leaseMs: 1000 })).toEqual([task.id])
        })
      })
  })
}
