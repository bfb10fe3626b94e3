/** The agents' store contract as a suite. Every adapter runs it through {@link testAgentStore}. */
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, beforeEach, describe, expect, test } from 'vitest'
import { ConvokeError } from '../../dist/base/errors.js'
import type { AgentStore, KeyLease, MailResult } from '../../dist/store/agent-store.js'
import type { Store } from '../../dist/store/store.js'
import { type Abilities, codeOf } from './store.ts'

/** Mail with an event that says its id. */
export function mail(id: string): { id: string; event: string } {
  return { id, event: JSON.stringify({ id }) }
}

interface Commit {
  readonly now: number
  readonly state: string
  readonly outputs: readonly string[]
  readonly failure: string | null
}

/** A commit of the mail at time 1000 that leaves the memory as it is and puts nothing out, unless told otherwise. */
export function done(mailId: string, fields: Partial<Commit> = {}): { mailId: string; now: number } & MailResult {
  return { mailId, now: 1000, outputs: [], failure: null, ...fields }
}

/** Runs the contract against an adapter, as `testStore` does. The suite closes what it opens. */
export function testAgentStore(name: string, open: (folder: string) => Promise<Store>, abilities: Abilities): void {
  describe(`${name} agent store`, () => {
    let folder: string
    let opened: Store[]
    let agents: AgentStore
    /** What another worker uses: a handle of its own where there can be two. */
    let others: AgentStore

    beforeEach(async () => {
      folder = await mkdtemp(join(tmpdir(), 'convoke-agent-store-'))
      opened = [await open(folder)]
      if (abilities.shared) opened.push(await open(folder))
      agents = last(opened.slice(0, 1)).agents
      others = last(opened).agents
    })

    afterEach(async () => {
      await Promise.all(opened.map((each) => each.close()))
      await rm(folder, { recursive: true })
    })

    /** Closes everything and opens the folder again. */
    async function reopen(): Promise<void> {
      await Promise.all(opened.map((each) => each.close()))
      opened = [await open(folder)]
      agents = others = last(opened).agents
    }

    async function append(key: string, ...ids: string[]): Promise<void> {
      for (const id of ids) await agents.append('s', key, mail(id))
    }

    /** Takes the key for worker `w` at time 1000, for a second; a key that is held fails the test. */
    async function take(
      key: string,
      { scope = 's', worker = 'w', now = 1000, limit = 10, from = agents } = {},
    ): Promise<KeyLease> {
      const lease = await from.lease(scope, key, worker, { now, leaseMs: 1000, limit })
      if (!lease) throw new Error(`the key ${key} is held`)
      return lease
    }

    /** Mail and its end in one go. */
    async function consume(key: string, id: string, fields: Partial<Commit> = {}): Promise<void> {
      await append(key, id)
      const lease = await take(key)
      await agents.commit(lease, done(id, fields))
      await agents.release(lease)
    }

    function readyAt(now: number, limit = 100): Promise<string[]> {
      return agents.ready('s', { now, limit })
    }

    async function placed(after = 0, limit = 100): Promise<string[]> {
      return (await agents.outputs('s', { after, limit })).map(({ output }) => output)
    }

    describe('append', () => {
      test('numbers the mail of each key 1, 2, 3', async () => {
        expect(await agents.append('s', 'a', mail('x'))).toEqual({ seq: 1, isNew: true })
        expect(await agents.append('s', 'a', mail('y'))).toEqual({ seq: 2, isNew: true })
        expect(await agents.append('s', 'b', mail('z'))).toEqual({ seq: 1, isNew: true })
        expect((await take('a')).mail).toEqual([
          { seq: 1, id: 'x', event: '{"id":"x"}' },
          { seq: 2, id: 'y', event: '{"id":"y"}' },
        ])
      })

      test('of an id that waits writes nothing and says its seq', async () => {
        await append('a', 'x', 'y')
        expect(await agents.append('s', 'a', { id: 'x', event: '"other"' })).toEqual({ seq: 1, isNew: false })
        expect((await take('a')).mail).toMatchObject([{ id: 'x', event: '{"id":"x"}' }, { id: 'y' }])
        // Another key knows nothing of it.
        expect(await agents.append('s', 'b', mail('x'))).toEqual({ seq: 1, isNew: true })
      })

      test('of an id that was consumed writes nothing and says its seq', async () => {
        await append('a', 'x', 'y')
        const lease = await take('a')
        await agents.commit(lease, done('x', { outputs: ['1'] }))
        await agents.commit(lease, done('y', { failure: '{"code":"tool_failed"}' }))
        await agents.release(lease)
        expect(await agents.append('s', 'a', mail('x'))).toEqual({ seq: 1, isNew: false })
        expect(await agents.append('s', 'a', mail('y'))).toEqual({ seq: 2, isNew: false })
        expect(await readyAt(9000)).toEqual([])
        expect(await agents.append('s', 'a', mail('z'))).toEqual({ seq: 3, isNew: true })
      })

      test('of one id many times at once is one mail', async () => {
        const answers = await Promise.all(
          Array.from({ length: 20 }, (_, n) => (n % 2 ? others : agents).append('s', 'a', mail('x'))),
        )
        expect(answers.filter(({ isNew }) => isNew)).toHaveLength(1)
        expect(new Set(answers.map(({ seq }) => seq))).toEqual(new Set([1]))
        expect((await take('a')).mail).toHaveLength(1)
      })

      test('of many at once to one key leaves no gap, whoever appends', async () => {
        const answers = await Promise.all(
          Array.from({ length: 100 }, (_, n) => (n % 2 ? others : agents).append('s', 'a', mail(`m${n}`))),
        )
        expect(answers.map(({ seq }) => seq).toSorted((a, b) => a - b)).toEqual(
          Array.from({ length: 100 }, (_, n) => n + 1),
        )
        const { mail: waiting } = await take('a', { limit: 1000 })
        expect(waiting.map(({ seq }) => seq)).toEqual(Array.from({ length: 100 }, (_, n) => n + 1))
        for (const { seq, id } of waiting) expect(answers[Number(id.slice(1))]?.seq).toBe(seq)
      })

      test('comes to a key that is held, and is seen by the next lease', async () => {
        await append('a', 'x')
        const lease = await take('a')
        await others.append('s', 'a', mail('y'))
        await agents.commit(lease, done('x'))
        expect((await take('a')).mail).toEqual([{ seq: 2, id: 'y', event: '{"id":"y"}' }])
      })

      test('refuses names that databases refuse or bend', async () => {
        for (const odd of ['a\0b', '\0', 'half \ud83d', '\udc00 half']) {
          expect(await codeOf(agents.append(odd, 'a', mail('x')))).toBe('invalid_params')
          expect(await codeOf(agents.append('s', odd, mail('x')))).toBe('invalid_params')
          expect(await codeOf(agents.append('s', 'a', mail(odd)))).toBe('invalid_params')
          expect(await codeOf(agents.lease('s', odd, 'w', { now: 1, leaseMs: 1, limit: 1 }))).toBe('invalid_params')
          expect(await codeOf(agents.lease(odd, 'a', 'w', { now: 1, leaseMs: 1, limit: 1 }))).toBe('invalid_params')
        }
        await append('a', 'x')
        const lease = await take('a')
        expect(await codeOf(agents.saveStep(lease, 'x', { id: '\0', state: 'begun', value: null }))).toBe(
          'invalid_params',
        )
        expect((await take('a')).mail).toHaveLength(1)
      })
    })

    describe('lease', () => {
      test('gives a key that nobody has heard of, without mail and memory', async () => {
        const lease = await take('new')
        expect(lease).toEqual({
          scope: 's',
          key: 'new',
          worker: 'w',
          epoch: expect.any(Number),
          state: null,
          mail: [],
          steps: [],
        })
        await agents.release(lease)
        expect(await agents.state('s', 'new')).toBeUndefined()
      })

      test('brings memory along, and at most `limit` of what waits, the oldest', async () => {
        await consume('a', 'x', { state: '{"n":1}' })
        await append('a', 'y', 'z', 'q')
        const { state, mail: waiting } = await take('a', { limit: 2 })
        expect(state).toBe('{"n":1}')
        expect(waiting.map(({ id }) => id)).toEqual(['y', 'z'])
      })

      test('keeps others away until it has run out', async () => {
        await append('a', 'x')
        const lease = await take('a', { now: 1000 })
        expect(await others.lease('s', 'a', 'v', { now: 1500, leaseMs: 1, limit: 1 })).toBeUndefined()
        expect(await others.lease('s', 'a', 'v', { now: 2000, leaseMs: 1, limit: 1 })).toBeUndefined()
        const taken = await take('a', { worker: 'v', now: 2001, from: others })
        expect(taken.epoch).toBeGreaterThan(lease.epoch)
        expect(taken.mail).toEqual(lease.mail)
      })

      test('that ran out still writes while nobody has taken the key', async () => {
        await append('a', 'x')
        const lease = await take('a', { now: 0 })
        await agents.saveStep(lease, 'x', { id: 's', state: 'begun', value: null })
        await agents.commit(lease, done('x', { now: 90_000, outputs: ['1'] }))
        expect(await agents.result('s', 'a', 'x')).toEqual({ outputs: ['1'], failure: null })
      })

      test('of the same worker is taken anew, and the one before is lost', async () => {
        await append('a', 'x')
        const before = await take('a')
        const lease = await take('a')
        expect(lease.epoch).toBeGreaterThan(before.epoch)
        expect(await codeOf(agents.commit(before, done('x')))).toBe('conflict')
        await agents.commit(lease, done('x'))
      })

      test('of one key is won by one of many workers at once', async () => {
        await append('a', 'x')
        for (const now of [1000, 9000, 17_000]) {
          const leases = await Promise.all(
            Array.from({ length: 20 }, (_, n) =>
              (n % 2 ? others : agents).lease('s', 'a', `w${n}`, { now, leaseMs: 1000, limit: 1 }),
            ),
          )
          expect(leases.filter((lease) => lease !== undefined)).toHaveLength(1)
        }
      })

      test('is prolonged by renew, for this worker and scope only', async () => {
        const lease = (scope: string, key: string, worker: string): Promise<KeyLease | undefined> =>
          agents.lease(scope, key, worker, { now: 1000, leaseMs: 1000, limit: 1 })
        await Promise.all([
          lease('s', 'a', 'w'),
          lease('s', 'b', 'w'),
          lease('s', 'c', 'v'),
          lease('other', 'a', 'w'),
          lease('s', 'given back', 'w').then((given) => given && agents.release(given)),
        ])
        // Two seconds later they have run out; what nobody has taken is prolonged all the same.
        await agents.renew('s', 'w', { now: 4000, leaseMs: 1000 })
        const free = async (scope: string, key: string): Promise<boolean> =>
          (await others.lease(scope, key, 'u', { now: 5000, leaseMs: 1, limit: 1 })) !== undefined
        expect(await free('s', 'a')).toBe(false)
        expect(await free('s', 'b')).toBe(false)
        expect(await free('s', 'c')).toBe(true)
        expect(await free('other', 'a')).toBe(true)
        expect(await free('s', 'given back')).toBe(true)
        await agents.renew('nobody has heard of it', 'w', { now: 1, leaseMs: 1 })
      })

      test('is over once it is given back, and its owner writes no more', async () => {
        await append('a', 'x')
        const lease = await take('a')
        await agents.release(lease)
        expect(await codeOf(agents.commit(lease, done('x')))).toBe('conflict')
        expect(await codeOf(agents.saveStep(lease, 'x', { id: 's', state: 'begun', value: null }))).toBe('conflict')
        await agents.release(lease)
        const next = await take('a', { worker: 'v', from: others })
        expect(next.epoch).toBeGreaterThan(lease.epoch)
      })

      test('of somebody else is not given back by who had it before', async () => {
        const lost = await take('a', { now: 1000 })
        const lease = await take('a', { worker: 'v', now: 3000, from: others })
        await agents.release(lost)
        expect(await agents.lease('s', 'a', 'u', { now: 3000, leaseMs: 1, limit: 1 })).toBeUndefined()
        await others.release(lease)
        await take('a', { worker: 'u', now: 3000 })
      })

      test('of a key that was forgotten meanwhile is not valid again', async () => {
        await consume('a', 'x')
        const old = await take('a', { now: 1000 })
        await agents.release(old)
        expect(await agents.expire(5000, 100)).toBe(2)
        await append('a', 'x')
        const lease = await take('a', { now: 6000 })
        expect(lease.epoch).toBeGreaterThan(old.epoch)
        expect(await codeOf(agents.commit(old, done('x')))).toBe('conflict')
      })
    })

    describe('ready', () => {
      test('has keys with mail, those that have waited the longest first', async () => {
        await append('c', '1')
        await append('a', '1')
        await append('b', '1')
        await append('c', '2')
        expect(await readyAt(1000)).toEqual(['c', 'a', 'b'])
        expect(await readyAt(1000, 2)).toEqual(['c', 'a'])
        expect(await agents.ready('other', { now: 1000, limit: 10 })).toEqual([])
      })

      test('leaves out what is held, until the lease has run out or was given back', async () => {
        await append('a', '1')
        await append('b', '1')
        await append('c', '1')
        const lease = await take('a', { now: 1000 })
        await take('b', { now: 1500 })
        expect(await readyAt(2000)).toEqual(['c'])
        expect(await readyAt(2001)).toEqual(['a', 'c'])
        expect(await readyAt(2501)).toEqual(['a', 'b', 'c'])
        await agents.release(lease)
        expect(await readyAt(2000, 1)).toEqual(['a'])
      })

      test('lets keys with much mail take turns with the others', async () => {
        await append('busy', '1', '2', '3')
        await append('quiet', '1')
        const order: string[] = []
        for (;;) {
          const [key] = await readyAt(1000, 1)
          if (key === undefined) break
          const lease = await take(key)
          const id = lease.mail[0]?.id ?? ''
          order.push(`${key} ${id}`)
          await agents.commit(lease, done(id))
          await agents.release(lease)
        }
        expect(order).toEqual(['busy 1', 'quiet 1', 'busy 2', 'busy 3'])
      })

      test('has no key whose mail is consumed, until the next one comes', async () => {
        await consume('a', '1')
        await consume('b', '1')
        expect(await readyAt(9000)).toEqual([])
        await append('b', '2')
        await append('a', '2')
        expect(await readyAt(9000)).toEqual(['b', 'a'])
      })

      test('finds each of 2,000 keys once, by turns', async () => {
        const keys = Array.from({ length: 2000 }, (_, n) => `k${n}`)
        await Promise.all(keys.map((key) => agents.append('s', key, mail('x'))))
        const found: string[] = []
        for (;;) {
          const some = await readyAt(1000, 150)
          if (some.length === 0) break
          found.push(...some)
          await Promise.all(some.map((key) => take(key)))
        }
        expect(found.toSorted()).toEqual(keys.toSorted())
      })
    })

    describe('saveStep', () => {
      const begun = (id: string): { id: string; state: 'begun'; value: null } => ({ id, state: 'begun', value: null })

      test('keeps steps in the order in which they began, the newest word of each', async () => {
        await append('a', 'x', 'y')
        const lease = await take('a')
        await agents.saveStep(lease, 'x', begun('one'))
        await agents.saveStep(lease, 'x', begun('two'))
        await agents.saveStep(lease, 'x', { id: 'one', state: 'done', value: '{"n":1}' })
        const { steps } = await take('a')
        expect(steps).toEqual([{ id: 'one', state: 'done', value: '{"n":1}' }, begun('two')])
      })

      test('many at once are all there', async () => {
        await append('a', 'x')
        const lease = await take('a')
        await Promise.all(Array.from({ length: 50 }, (_, n) => agents.saveStep(lease, 'x', begun(`step ${n}`))))
        expect((await take('a')).steps.map(({ id }) => id).toSorted()).toEqual(
          Array.from({ length: 50 }, (_, n) => `step ${n}`).toSorted(),
        )
      })

      test('belongs to the first mail, and goes with it', async () => {
        await append('a', 'x', 'y')
        await append('b', 'x')
        const lease = await take('a')
        expect(await codeOf(agents.saveStep(lease, 'y', begun('early')))).toBe('conflict')
        expect(await codeOf(agents.saveStep(lease, 'unknown', begun('lost')))).toBe('conflict')
        await agents.saveStep(lease, 'x', begun('one'))
        expect((await take('b')).steps).toEqual([])
        await agents.commit(lease, done('x'))
        expect(await codeOf(agents.saveStep(lease, 'x', begun('late')))).toBe('conflict')
        expect((await take('a')).steps).toEqual([])
      })

      test('is there for whoever takes the key over; the loser writes none', async () => {
        await append('a', 'x')
        const lost = await take('a', { now: 1000 })
        await agents.saveStep(lost, 'x', { id: 'paid', state: 'done', value: 'null' })
        const lease = await take('a', { worker: 'v', now: 3000, from: others })
        expect(lease.steps).toEqual([{ id: 'paid', state: 'done', value: 'null' }])
        expect(await codeOf(agents.saveStep(lost, 'x', begun('late')))).toBe('conflict')
        expect(await codeOf(agents.saveStep(lost, 'x', begun('paid')))).toBe('conflict')
        expect((await take('a', { worker: 'v', now: 3000, from: others })).steps).toEqual(lease.steps)
      })
    })

    describe('commit', () => {
      test('consumes the mail, keeps the result and writes the memory', async () => {
        await append('a', 'x')
        const lease = await take('a')
        await agents.commit(lease, done('x', { state: '{"n":1}', outputs: ['1', '"two"', '{"three":3}'] }))
        expect(await agents.state('s', 'a')).toBe('{"n":1}')
        expect(await agents.result('s', 'a', 'x')).toEqual({ outputs: ['1', '"two"', '{"three":3}'], failure: null })
        expect((await take('a')).mail).toEqual([])
      })

      test('without a state leaves the memory as it is', async () => {
        await consume('a', 'x', { state: '{"n":1}' })
        await consume('a', 'y', { failure: '{"code":"action_failed","message":"no"}' })
        expect(await agents.state('s', 'a')).toBe('{"n":1}')
        expect(await agents.result('s', 'a', 'y')).toEqual({
          outputs: [],
          failure: '{"code":"action_failed","message":"no"}',
        })
      })

      test('leaves the lease to its owner, for the next mail', async () => {
        await append('a', 'x', 'y')
        const lease = await take('a')
        await agents.commit(lease, done('x', { state: '1' }))
        expect(await readyAt(1000)).toEqual([])
        await agents.saveStep(lease, 'y', { id: 'one', state: 'begun', value: null })
        await agents.commit(lease, done('y', { state: '2' }))
        expect(await agents.state('s', 'a')).toBe('2')
      })

      test('of mail that is not the first, or no more, writes nothing', async () => {
        await append('a', 'x', 'y')
        const lease = await take('a')
        const change = { state: '"wrong"', outputs: ['"wrong"'] }
        expect(await codeOf(agents.commit(lease, done('y', change)))).toBe('conflict')
        expect(await codeOf(agents.commit(lease, done('unknown', change)))).toBe('conflict')
        await agents.commit(lease, done('x', { state: '"right"', outputs: ['"right"'] }))
        expect(await codeOf(agents.commit(lease, done('x', change)))).toBe('conflict')
        expect(await agents.state('s', 'a')).toBe('"right"')
        expect(await placed()).toEqual(['"right"'])
        expect((await take('a')).mail.map(({ id }) => id)).toEqual(['y'])
        // Nor of a key that has never had mail.
        expect(await codeOf(agents.commit(await take('empty'), done('x', change)))).toBe('conflict')
      })

      test('twice at once is made once', async () => {
        await append('a', 'x')
        const lease = await take('a')
        const codes = await Promise.all(
          ['1', '2', '3'].map((output) => codeOf(agents.commit(lease, done('x', { outputs: [output] })))),
        )
        expect(codes.filter((code) => code === undefined)).toHaveLength(1)
        expect(codes.filter((code) => code === 'conflict')).toHaveLength(2)
        expect(await placed()).toHaveLength(1)
      })

      test('of who lost the key writes nothing', async () => {
        await append('a', 'x')
        const lost = await take('a', { now: 1000 })
        const lease = await take('a', { worker: 'v', now: 3000, from: others })
        expect(await codeOf(agents.commit(lost, done('x', { state: '"lost"', outputs: ['"lost"'] })))).toBe('conflict')
        expect(await agents.state('s', 'a')).toBeUndefined()
        expect(await agents.result('s', 'a', 'x')).toBeUndefined()
        expect(await placed()).toEqual([])
        await others.commit(lease, done('x', { state: '"kept"' }))
        expect(await agents.state('s', 'a')).toBe('"kept"')
      })

      test('and a takeover at the same time: the mail ends once', async () => {
        for (let round = 0; round < 20; round++) {
          const key = `k${round}`
          await append(key, 'x')
          const one = await take(key, { now: 1000 })
          const [code, two] = await Promise.all([
            codeOf(agents.commit(one, done('x', { state: '1', outputs: [`"${round}"`] }))),
            take(key, { worker: 'v', now: 3000, from: others }),
          ])
          expect([undefined, 'conflict']).toContain(code)
          // Whichever came first: who took over sees mail that it can end, or cannot end what has ended.
          const again = await codeOf(others.commit(two, done('x', { state: '2', outputs: [`"${round}"`] })))
          expect([code, again].filter((each) => each === undefined)).toHaveLength(1)
          expect(await agents.state('s', key)).toBe(code === undefined ? '1' : '2')
        }
        expect((await placed()).toSorted()).toEqual(Array.from({ length: 20 }, (_, n) => `"${n}"`).toSorted())
      })
    })

    test('results are of consumed mail only', async () => {
      await consume('a', 'x', { outputs: ['1'] })
      await append('a', 'y')
      expect(await agents.result('s', 'a', 'y')).toBeUndefined()
      expect(await agents.result('s', 'a', 'z')).toBeUndefined()
      expect(await agents.result('s', 'b', 'x')).toBeUndefined()
      expect(await agents.result('t', 'a', 'x')).toBeUndefined()
      expect(await agents.state('s', 'b')).toBeUndefined()
      expect(await agents.state('t', 'a')).toBeUndefined()
    })

    describe('outputs', () => {
      test('come in the order of the commits, with key and mail, and go on behind a cursor', async () => {
        await consume('a', 'x', { outputs: ['1', '2'] })
        await consume('b', 'x')
        await consume('b', 'y', { outputs: ['3'] })
        await consume('a', 'z', { outputs: ['4', '5', '6'] })
        const all = await agents.outputs('s', { after: 0, limit: 100 })
        expect(all).toEqual([
          { place: expect.any(Number), key: 'a', mailId: 'x', output: '1' },
          { place: expect.any(Number), key: 'a', mailId: 'x', output: '2' },
          { place: expect.any(Number), key: 'b', mailId: 'y', output: '3' },
          { place: expect.any(Number), key: 'a', mailId: 'z', output: '4' },
          { place: expect.any(Number), key: 'a', mailId: 'z', output: '5' },
          { place: expect.any(Number), key: 'a', mailId: 'z', output: '6' },
        ])
        const places = all.map(({ place }) => place)
        expect(places[0]).toBeGreaterThan(0)
        expect(places).toEqual([...new Set(places)].toSorted((a, b) => a - b))
        for (const [index, place] of places.entries()) {
          expect(await agents.outputs('s', { after: place, limit: 100 })).toEqual(all.slice(index + 1))
          expect(await agents.outputs('s', { after: place, limit: 2 })).toEqual(all.slice(index + 1, index + 3))
        }
        expect(await agents.outputs('s', { after: 0, limit: 4 })).toEqual(all.slice(0, 4))
        expect(await agents.outputs('never heard of', { after: 0, limit: 4 })).toEqual([])
      })

      test('are all seen by a reader who follows while many commit', async () => {
        const keys = Array.from({ length: 40 }, (_, n) => `k${n}`)
        let writing = true
        const read: string[] = []
        const reader = (async () => {
          for (let after = 0; ;) {
            const finished = !writing
            const rows = await others.outputs('s', { after, limit: 7 })
            for (const row of rows) {
              expect(row.place).toBeGreaterThan(after)
              after = row.place
              read.push(row.output)
            }
            if (finished && rows.length === 0) return
            await new Promise((resolve) => setImmediate(resolve))
          }
        })()
        await Promise.all(
          keys.map(async (key, k) => {
            for (let n = 0; n < 5; n++) {
              await agents.append('s', key, mail(`m${n}`))
              const from = k % 2 ? others : agents
              const lease = await take(key, { from })
              await from.commit(lease, done(`m${n}`, { outputs: [`"${key} ${n}a"`, `"${key} ${n}b"`] }))
            }
          }),
        )
        writing = false
        await reader
        expect(read).toHaveLength(400)
        expect(new Set(read).size).toBe(400)
        for (const key of keys) {
          expect(read.filter((output) => output.startsWith(`"${key} `))).toEqual(
            Array.from({ length: 5 }, (_, n) => [`"${key} ${n}a"`, `"${key} ${n}b"`]).flat(),
          )
        }
      })

      test('never use a place again, also when all before are gone', async () => {
        await consume('a', 'x', { outputs: ['1', '2', '3'] })
        const before = await agents.outputs('s', { after: 0, limit: 10 })
        expect(await agents.expire(5000, 100)).toBe(2)
        expect(await placed()).toEqual([])
        await consume('a', 'y', { outputs: ['4'], now: 6000 })
        expect(await placed(before.at(-1)?.place)).toEqual(['4'])
      })
    })

    describe('expire', () => {
      test('forgets results before the time, and their ids and outputs', async () => {
        await consume('a', 'old', { now: 1000, outputs: ['1', '2'], state: '"kept"' })
        await consume('a', 'new', { now: 3000, outputs: ['3'] })
        expect(await agents.expire(2000, 100)).toBe(1)
        expect(await agents.result('s', 'a', 'old')).toBeUndefined()
        expect(await agents.result('s', 'a', 'new')).toEqual({ outputs: ['3'], failure: null })
        expect(await placed()).toEqual(['3'])
        expect(await agents.append('s', 'a', mail('old'))).toEqual({ seq: 3, isNew: true })
        // The key has a commit since: its memory stays.
        expect(await agents.state('s', 'a')).toBe('"kept"')
        expect(await agents.expire(2000, 100)).toBe(0)
        expect(await agents.expire(3000, 100)).toBe(0)
      })

      test('forgets keys without mail, lease and commit since, and they begin anew', async () => {
        for (const key of ['idle', 'waits', 'held', 'left']) await consume(key, 'x', { now: 1000, state: '1' })
        await append('waits', 'y')
        await agents.lease('s', 'held', 'w', { now: 4000, leaseMs: 1000, limit: 1 })
        // Its worker is gone, and nobody misses it.
        const left = await agents.lease('s', 'left', 'w', { now: 1000, leaseMs: 1000, limit: 1 })
        expect(await agents.expire(5000, 100)).toBe(4 + 2)
        expect(await agents.state('s', 'idle')).toBeUndefined()
        expect(await agents.state('s', 'left')).toBeUndefined()
        expect(await agents.state('s', 'waits')).toBe('1')
        expect(await agents.state('s', 'held')).toBe('1')
        expect(await agents.append('s', 'idle', mail('x'))).toEqual({ seq: 1, isNew: true })
        expect(await agents.append('s', 'left', mail('x'))).toEqual({ seq: 1, isNew: true })
        expect(left && (await codeOf(agents.commit(left, done('x'))))).toBe('conflict')
        expect(await agents.append('s', 'waits', mail('z'))).toEqual({ seq: 3, isNew: true })
        expect((await take('waits')).mail.map(({ id }) => id)).toEqual(['y', 'z'])
      })

      test('never touches mail that waits, with its steps', async () => {
        await append('a', 'x')
        const lease = await take('a', { now: 0 })
        await agents.saveStep(lease, 'x', { id: 'one', state: 'done', value: '1' })
        expect(await agents.expire(1e12, 100)).toBe(0)
        const { mail: waiting, steps } = await take('a', { worker: 'v' })
        expect(waiting).toHaveLength(1)
        expect(steps).toHaveLength(1)
      })

      test('goes on in steps until fewer than the limit go', async () => {
        for (let n = 0; n < 10; n++) {
          await consume(`k${n}`, 'x', { now: 1000 + n, outputs: ['1'] })
          await consume(`k${n}`, 'y', { now: 1000 + n })
        }
        await consume('new', 'x', { now: 9000, outputs: ['2'] })
        const gone: number[] = []
        do gone.push(await agents.expire(5000, 7))
        while (gone.at(-1) === 7)
        expect(gone).toEqual([7, 7, 7, 7, 2])
        expect(await placed()).toEqual(['2'])
        expect(await agents.result('s', 'new', 'x')).toBeDefined()
      })

      test('goes by the time of the commit, whatever order the clocks gave', async () => {
        await consume('a', 'x', { now: 9000, state: '"a"', outputs: ['1'] })
        await consume('a', 'y', { now: 1000, outputs: ['2'] })
        await consume('b', 'x', { now: 1000, outputs: ['3'] })
        expect(await agents.expire(5000, 100)).toBe(3)
        expect(await placed()).toEqual(['1'])
        expect(await agents.state('s', 'a')).toBe('"a"')
        expect(await agents.append('s', 'a', mail('z'))).toEqual({ seq: 3, isNew: true })
      })
    })

    test('scopes with the same keys and ids see nothing of each other', async () => {
      for (const scope of ['one', 'two']) {
        expect(await agents.append(scope, 'k', mail('x'))).toEqual({ seq: 1, isNew: true })
        const lease = await take('k', { scope, worker: `worker of ${scope}` })
        await agents.saveStep(lease, 'x', { id: 'step', state: 'done', value: `"${scope}"` })
        const { steps } = await take('k', { scope, worker: `worker of ${scope}` })
        expect(steps).toEqual([{ id: 'step', state: 'done', value: `"${scope}"` }])
      }
      const lease = await take('k', { scope: 'one', worker: 'worker of one' })
      await agents.commit(lease, done('x', { state: '1', outputs: ['1'] }))
      expect(await agents.state('two', 'k')).toBeUndefined()
      expect(await agents.result('two', 'k', 'x')).toBeUndefined()
      expect(await agents.outputs('two', { after: 0, limit: 10 })).toEqual([])
      expect(await agents.ready('two', { now: 9000, limit: 10 })).toEqual(['k'])
      expect(await agents.ready('one', { now: 9000, limit: 10 })).toEqual([])
      // A lease of one scope says nothing in the other.
      expect(await codeOf(agents.commit({ ...lease, scope: 'two' }, done('x')))).toBe('conflict')
    })

    test('any text is a name: empty, quoted, of many scripts, long, alike', async () => {
      const names = [
        '',
        ' ',
        "it's",
        'say "hi"',
        '\\',
        '%_%',
        ';--',
        'null',
        '__proto__',
        'constructor',
        'A',
        'a',
        'é',
        'e\u0301',
        '日本語',
        '👩‍👩‍👧',
        '\u200b',
        '\n\t',
        'x'.repeat(10_000),
      ]
      for (const scope of names) await agents.append(scope, scope, mail(scope))
      for (const key of names) await agents.append('s', key, mail(key))
      expect(await agents.ready('s', { now: 0, limit: 100 })).toEqual(names)
      if (abilities.durable) await reopen()
      for (const key of names) {
        for (const scope of ['s', key]) {
          const lease = await take(key, { scope })
          expect(lease.mail).toEqual([{ seq: 1, id: key, event: JSON.stringify({ id: key }) }])
          await agents.saveStep(lease, key, { id: key, state: 'done', value: JSON.stringify(key) })
          await agents.commit(lease, done(key, { state: JSON.stringify(key), outputs: [JSON.stringify(key)] }))
          expect(await agents.state(scope, key)).toBe(JSON.stringify(key))
          expect(await agents.result(scope, key, key)).toEqual({ outputs: [JSON.stringify(key)], failure: null })
        }
      }
      expect((await agents.outputs('s', { after: 0, limit: 100 })).map(({ key }) => key)).toEqual(names)
    })

    test('memory, events, steps and outputs of a megabyte stay as they are', async () => {
      const big = (letter: string): string => JSON.stringify(`${letter}ü👍\n`.repeat(200_000))
      await agents.append('s', 'a', { id: 'x', event: big('e') })
      const lease = await take('a')
      expect(lease.mail[0]?.event).toBe(big('e'))
      await agents.saveStep(lease, 'x', { id: 'step', state: 'done', value: big('s') })
      expect((await take('a')).steps[0]?.value).toBe(big('s'))
      const again = await take('a')
      const failure = JSON.stringify({ code: 'tool_failed', message: 'x'.repeat(1e6) })
      await agents.commit(again, done('x', { state: big('m'), outputs: [big('o'), '1'], failure }))
      if (abilities.durable) await reopen()
      expect(await agents.state('s', 'a')).toBe(big('m'))
      expect((await take('a', { worker: 'v', now: 9000 })).state).toBe(big('m'))
      expect(await agents.result('s', 'a', 'x')).toEqual({ outputs: [big('o'), '1'], failure })
      expect(await placed()).toEqual([big('o'), '1'])
    })

    test('workers that take keys from each other end every mail once and in order', async () => {
      const keys = Array.from({ length: 12 }, (_, n) => `k${n}`)
      const perKey = 15
      const turn = (): Promise<void> => new Promise((resolve) => setImmediate(resolve))
      let left = keys.length * perKey
      let thefts = 0
      let losses = 0
      const work = async (worker: string, store: AgentStore): Promise<void> => {
        for (let round = 1; left > 0; round++) {
          // Now and then a clock is ahead by hours: no lease holds it off, whoever is at work.
          const isThief = thefts < 60 && round % 3 === 0
          const now = isThief ? ++thefts * 3.6e6 : 0
          const [key] = isThief ? [keys[thefts % keys.length]] : await store.ready('s', { now, limit: 1 })
          const lease =
            key === undefined ? undefined : await store.lease('s', key, worker, { now, leaseMs: 1000, limit: 3 })
          if (!lease) {
            await turn()
            continue
          }
          try {
            let state = Number(lease.state ?? 0)
            for (const { id, seq } of lease.mail) {
              await store.saveStep(lease, id, { id: 'one', state: 'begun', value: null })
              await turn()
              await store.commit(lease, { ...done(id), state: String(++state), outputs: [`${seq}`] })
              left--
            }
            await store.release(lease)
          } catch (error) {
            if (!(error instanceof ConvokeError) || error.code !== 'conflict') throw error
            losses++
          }
        }
      }
      const workers = Promise.all(['w1', 'w2', 'w3', 'w4'].map((name, n) => work(name, n % 2 ? others : agents)))
      await Promise.all(
        keys.map(async (key) => {
          for (let n = 0; n < perKey; n++) await agents.append('s', key, mail(`m${n}`))
        }),
      )
      await workers
      const outputs = await agents.outputs('s', { after: 0, limit: 1000 })
      expect(outputs).toHaveLength(keys.length * perKey)
      for (const key of keys) {
        expect(outputs.filter((row) => row.key === key).map(({ output }) => Number(output))).toEqual(
          Array.from({ length: perKey }, (_, n) => n + 1),
        )
        expect(await agents.state('s', key)).toBe(String(perKey))
      }
      expect(await readyAt(1e9)).toEqual([])
      // Else the test has not shown what it says.
      expect(losses).toBeGreaterThan(0)
    })

    test('says unavailable once the store is closed', async () => {
      await append('a', 'x')
      const lease = await take('a')
      await Promise.all(opened.map((each) => each.close()))
      for (const call of [
        () => agents.append('s', 'a', mail('y')),
        () => agents.lease('s', 'a', 'w', { now: 1, leaseMs: 1, limit: 1 }),
        () => agents.ready('s', { now: 1, limit: 1 }),
        () => agents.renew('s', 'w', { now: 1, leaseMs: 1 }),
        () => agents.release(lease),
        () => agents.saveStep(lease, 'x', { id: 's', state: 'begun', value: null }),
        () => agents.commit(lease, done('x')),
        () => agents.result('s', 'a', 'x'),
        () => agents.state('s', 'a'),
        () => agents.outputs('s', { after: 0, limit: 1 }),
        () => agents.expire(1, 1),
      ])
        expect(await codeOf(call())).toBe('unavailable')
    })

    if (abilities.durable)
      describe('opened again', () => {
        test('has mail, memory, steps, results and outputs', async () => {
          await consume('a', 'x', { state: '{"n":1}', outputs: ['1', '2'] })
          await append('b', '1')
          await append('a', 'y', 'z')
          const lease = await take('a')
          await agents.saveStep(lease, 'y', { id: 'one', state: 'done', value: '1' })
          await agents.saveStep(lease, 'y', { id: 'two', state: 'begun', value: null })
          const rows = await agents.outputs('s', { after: 0, limit: 10 })
          await reopen()
          expect(await readyAt(99_000)).toEqual(['b', 'a'])
          const next = await take('a', { worker: 'v', now: 99_000 })
          expect(next).toMatchObject({
            state: '{"n":1}',
            mail: [
              { seq: 2, id: 'y' },
              { seq: 3, id: 'z' },
            ],
          })
          expect(next.steps).toEqual([
            { id: 'one', state: 'done', value: '1' },
            { id: 'two', state: 'begun', value: null },
          ])
          expect(next.epoch).toBeGreaterThan(lease.epoch)
          expect(await codeOf(agents.commit(lease, done('y')))).toBe('conflict')
          expect(await agents.result('s', 'a', 'x')).toEqual({ outputs: ['1', '2'], failure: null })
          expect(await agents.outputs('s', { after: 0, limit: 10 })).toEqual(rows)
          expect(await agents.append('s', 'a', mail('x'))).toEqual({ seq: 1, isNew: false })
          expect(await agents.append('s', 'a', mail('new'))).toEqual({ seq: 4, isNew: true })
        })

        test('puts what comes to wait behind what waited before', async () => {
          await append('b', '1')
          await append('a', '1')
          await reopen()
          await append('c', '1')
          await append('b', '2')
          expect(await readyAt(0)).toEqual(['b', 'a', 'c'])
          await reopen()
          expect(await readyAt(0)).toEqual(['b', 'a', 'c'])
        })
      })
  })
}

function last<Item>(items: readonly Item[]): Item {
  const item = items.at(-1)
  if (item === undefined) throw new Error('there is none')
  return item
}
