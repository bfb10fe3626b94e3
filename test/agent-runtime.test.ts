/** Runs of agents: order, memory, failure, stop, and what a resumed run does again. */
import {
  Agent,
  AgentEvent,
  AgentPlan,
  AgentRunner,
  ConvokeError,
  createMemoryAgentStore,
  defineTool,
  InputEvent,
  OutputEvent,
  Prompt,
  ResourceDescriptor,
  type Action,
  type AgentRunnerOptions,
  type AgentStore,
  type Json,
  type ResourceContext,
  type RunEvent,
  type RunnerContext,
} from 'convoke'
import { setFlagsFromString } from 'node:v8'
import { runInNewContext } from 'node:vm'
import { expect, test } from 'vitest'
import { createLog } from '../dist/base/log.js'
import { cleanup, deferred, until, within, type Deferred } from './support/lifetime.ts'
import { readableLog } from './support/chat-agents.ts'
import { failureOf } from './support/failure.ts'

function value(event: AgentEvent<string, object>): Json {
  return (event.payload as { value: Json }).value
}

/** An agent with one action on its inputs. */
function agentOf(action: Action): Agent {
  return new Agent().addAction('start', [InputEvent], action)
}

function startRunner(agent: Agent, options: Partial<AgentRunnerOptions> = {}): AgentRunner {
  const runner = new AgentRunner({ plan: AgentPlan.fromAgent(agent), store: createMemoryAgentStore(), ...options })
  cleanup(() => runner.close())
  return runner
}

/** A store that does some things in its own way. */
function around(inner: AgentStore, own: Partial<AgentStore>): AgentStore {
  return {
    append: (...args) => inner.append(...args),
    lease: (...args) => inner.lease(...args),
    ready: (...args) => inner.ready(...args),
    renew: (...args) => inner.renew(...args),
    release: (...args) => inner.release(...args),
    saveStep: (...args) => inner.saveStep(...args),
    commit: (...args) => inner.commit(...args),
    result: (...args) => inner.result(...args),
    state: (...args) => inner.state(...args),
    outputs: (...args) => inner.outputs(...args),
    expire: (...args) => inner.expire(...args),
    ...own,
  }
}

test('an input goes through the actions that hear it, and outputs come in the order in which they were put out', async () => {
  const agent = new Agent()
    .addAction('first', [InputEvent], (event, context) => {
      context.sendEvent(new AgentEvent('scored', { score: 1, of: value(event) }))
      context.sendEvent(new OutputEvent('first'))
    })
    .addAction('second', [InputEvent], (_event, context) => context.sendEvent(new OutputEvent('second')))
    .addAction('on score', ['scored', 'never'], (event, context) =>
      context.sendEvent(new OutputEvent({ ...event.payload })),
    )
  const runner = startRunner(agent)
  const { outputs } = await runner.run('a', 'tea')
  expect(outputs).toEqual(['first', 'second', { score: 1, of: 'tea' }])
})

test('actions may loop until they are done', async () => {
  const agent = new Agent()
    .addAction('start', [InputEvent], (event, context) =>
      context.sendEvent(new AgentEvent('down', { n: value(event) })),
    )
    .addAction('count', ['down'], (event, context) => {
      const { n } = event.payload as { n: number }
      context.sendEvent(n === 0 ? new OutputEvent('done') : new AgentEvent('down', { n: n - 1 }))
    })
  expect(await startRunner(agent).run('a', 50)).toEqual({ outputs: ['done'] })
})

test('events without end are ended with event_limit, and the key goes on', async () => {
  let heard = 0
  const agent = agentOf((event, context) => {
    heard++
    context.sendEvent(value(event) === 'stop' ? new OutputEvent('ok') : new InputEvent('again'))
  })
  const runner = startRunner(agent, { maxEvents: 100 })
  const failure = await failureOf(runner.run('a', 'go'))
  expect(heard).toBe(100)
  expect(failure.code).toBe('event_limit')
  expect(failure.message).toContain('100 events')
  expect(await runner.run('a', 'stop')).toEqual({ outputs: ['ok'] })
})

test('inputs of one key run one after the other, in order, and those of others at the same time', async () => {
  const gates = new Map<string, Deferred>()
  const begun: string[] = []
  const agent = agentOf(async (event, context) => {
    const name = `${context.key}${value(event) as number}`
    begun.push(name)
    await (gates.get(name) ?? deferred()).promise
    context.sendEvent(new OutputEvent(name))
  })
  for (const name of ['a1', 'a2', 'b1']) gates.set(name, deferred())
  const runner = startRunner(agent)
  const a1 = runner.run('a', 1)
  const a2 = runner.run('a', 2)
  const b1 = runner.run('b', 1)
  await until(() => begun.length === 2)
  expect(begun.toSorted()).toEqual(['a1', 'b1'])
  gates.get('b1')?.resolve()
  expect(await b1).toEqual({ outputs: ['b1'] })
  gates.get('a2')?.resolve()
  expect(begun).not.toContain('a2')
  gates.get('a1')?.resolve()
  expect(await a1).toEqual({ outputs: ['a1'] })
  expect(await a2).toEqual({ outputs: ['a2'] })
})

test('short-term memory belongs to the key and outlives the run, sensory memory does not', async () => {
  const agent = agentOf((event, context) => {
    const seen = (context.shortTermMemory.get('seen.values') ?? []) as Json[]
    const before = context.sensoryMemory.get('seen') ?? null
    context.shortTermMemory.set('seen.values', [...seen, value(event)])
    context.sensoryMemory.set('seen', true)
    context.sendEvent(new OutputEvent([before, ...seen]))
  })
  const runner = startRunner(agent)
  await runner.run('a', 1)
  await runner.run('b', 9)
  expect(await runner.run('a', 2)).toEqual({ outputs: [[null, 1]] })
  expect(await runner.run('a', 3)).toEqual({ outputs: [[null, 1, 2]] })
})

test('a run that fails leaves memory as it was, and the next input of the key works', async () => {
  const agent = agentOf((event, context) => {
    context.shortTermMemory.set('count', Number(context.shortTermMemory.get('count') ?? 0) + 1)
    if (value(event) === 'bad') throw new Error('postgres://user:secret@host is down')
    context.sendEvent(new OutputEvent(context.shortTermMemory.get('count') ?? 0))
  })
  const runner = startRunner(agent)
  await runner.run('a', 'good')
  const failure = await failureOf(runner.run('a', 'bad'))
  expect(failure.code).toBe('action_failed')
  expect(failure.message).toContain('"start"')
  expect(failure.message).not.toContain('secret')
  expect(await runner.run('a', 'good')).toEqual({ outputs: [2] })
})

test('what an action throws as a ConvokeError keeps its code', async () => {
  const runner = startRunner(
    agentOf(() => {
      throw new ConvokeError('forbidden', 'Not on Sundays.')
    }),
  )
  const failure = await failureOf(runner.run('a', 1))
  expect([failure.code, failure.message]).toEqual(['forbidden', 'Not on Sundays.'])
})

test('a context that is kept for later can do nothing any more', async () => {
  const kept: RunnerContext[] = []
  const agent = agentOf((event, context) => {
    kept.push(context)
    const [first] = kept
    if (value(event) === 'memory') first?.shortTermMemory.set('late', 1)
    if (value(event) === 'event') first?.sendEvent(new OutputEvent('late'))
    if (value(event) === 'sensory') first?.sensoryMemory.get('late')
  })
  const runner = startRunner(agent)
  await runner.run('a', 'first')
  for (const late of ['memory', 'event', 'sensory']) {
    const failure = await failureOf(runner.run('a', late))
    expect(failure.code).toBe('run_ended')
    expect(failure.message).toMatch(/await/i)
  }
  await expect(kept[0]?.durableExecute('late', () => 1)).rejects.toMatchObject({ code: 'run_ended' })
  await expect(kept[0]?.getResource('x', 'prompt')).rejects.toMatchObject({ code: 'run_ended' })
})

test('a payload that is no JSON is refused where the event is made, with its place', async () => {
  const agent = agentOf((event, context) => {
    const bad = value(event) === 'date' ? { when: new Date() } : { list: [1, { n: Number.NaN }] }
    context.sendEvent(new AgentEvent('odd', bad as never))
  })
  const runner = startRunner(agent)
  expect(await failureOf(runner.run('a', 'date'))).toMatchObject({
    code: 'invalid_event',
    message: expect.stringContaining('/when'),
  })
  expect(await failureOf(runner.run('a', 'nan'))).toMatchObject({
    code: 'invalid_event',
    message: expect.stringContaining('/list/1/n'),
  })
})

test('what is no event, or an output of nothing, is refused where it is sent', async () => {
  const sends: Record<string, () => unknown> = {
    text: () => 'hello',
    plain: () => ({ type: 'output', value: 1 }),
    changeable: () => ({ id: '1', type: 'output', payload: { value: 1 } }),
    nothing: () => new OutputEvent(undefined as never),
    empty: () => new AgentEvent('output', {}),
    byType: () => new AgentEvent('output', { value: 7 }),
  }
  const runner = startRunner(
    agentOf((event, context) => context.sendEvent(sends[value(event) as string]?.() as OutputEvent)),
  )
  for (const name of ['text', 'plain', 'changeable']) {
    expect(await failureOf(runner.run('a', name))).toMatchObject({
      code: 'invalid_event',
      message: expect.stringContaining('such as new OutputEvent(value)'),
    })
  }
  for (const name of ['nothing', 'empty']) {
    expect(await failureOf(runner.run('a', name))).toMatchObject({
      code: 'invalid_event',
      message: 'An output has the value undefined, which is no JSON. Put out null for nothing.',
    })
  }
  expect(await runner.run('a', 'byType')).toEqual({ outputs: [7] })
})

test('an event is as it was sent, whatever an action does to it', async () => {
  const changes: ((event: { payload: unknown; type: string; id: string }) => void)[] = [
    (event) => (event.payload = { value: () => 1 }),
    (event) => (event.payload = Object.freeze({ value: 1n })),
    (event) => (event.type = 'output'),
    (event) => (event.id = ''),
  ]
  const seen: unknown[] = []
  const agent = new Agent()
    .addAction('start', [InputEvent], (event, context) => {
      changes[value(event) as number]?.(event)
      context.sendEvent(new AgentEvent('other', {}))
    })
    .addAction('look', [InputEvent], (event) => void seen.push(event.toJSON()))
  const runner = startRunner(agent)
  for (const change of changes.keys()) {
    expect((await failureOf(runner.run('a', change))).code).toBe('action_failed')
  }
  await runner.run('a', changes.length)
  expect(seen).toEqual([{ id: expect.any(String), type: 'input', payload: { value: changes.length } }])
})

test('what another copy of the library has made is an event, and what only looks like one is not', async () => {
  const looks: Record<string, () => unknown> = {
    good: () => ({ id: '1', type: 'output', payload: Object.freeze({ value: 'good' }) }),
    bigint: () => ({ id: '1', type: 'output', payload: Object.freeze({ value: 1n }) }),
    inside: () => ({ id: '1', type: 'output', payload: Object.freeze({ value: { deep: [() => 1] } }) }),
    replaced: () => Object.assign(new OutputEvent(1) as object, { payload: Object.freeze({ value: 1n }) }),
  }
  const runner = startRunner(
    agentOf((event, context) => context.sendEvent(looks[value(event) as string]?.() as OutputEvent)),
  )
  for (const name of ['bigint', 'inside', 'replaced']) {
    expect(await failureOf(runner.run('a', name))).toMatchObject({
      code: 'invalid_event',
      message: expect.stringMatching(/payload of the event "output" at \/value/),
    })
  }
  expect(await runner.run('a', 'good')).toEqual({ outputs: ['good'] })
})

test('payloads are frozen copies', () => {
  const given = { list: [1] }
  const event = new AgentEvent('x', given)
  given.list.push(2)
  expect(event.payload).toEqual({ list: [1] })
  expect(() => (event.payload.list as number[]).push(3)).toThrow(TypeError)
  expect(JSON.parse(JSON.stringify(event))).toEqual({ id: event.id, type: 'x', payload: { list: [1] } })
  expect(event.id).toMatch(/^[0-9a-f-]{36}$/)
})

test('the signal of a run stops it, and nothing of it is kept', async () => {
  const stopped = deferred()
  const begun = deferred()
  const agent = agentOf(async (event, context) => {
    begun.resolve()
    context.shortTermMemory.set('last', value(event))
    if (value(event) !== 'long') return context.sendEvent(new OutputEvent(context.shortTermMemory.toJSON()))
    await new Promise<void>((resolve) => context.signal.addEventListener('abort', () => resolve()))
    stopped.resolve()
  })
  const runner = startRunner(agent)
  const caller = new AbortController()
  const long = runner.run('a', 'long', { signal: caller.signal, id: 'long' })
  const behind = new AbortController()
  const waiting = runner.run('a', 'waits', { signal: behind.signal })
  behind.abort(new ConvokeError('canceled', 'Never mind.'))
  expect((await failureOf(waiting)).message).toBe('Never mind.')
  await begun.promise
  caller.abort(new ConvokeError('canceled', 'Enough.'))
  expect((await failureOf(long)).message).toBe('Enough.')
  await stopped.promise
  expect(await runner.run('a', 'short')).toEqual({ outputs: [{ last: 'short' }] })
  expect((await failureOf(runner.run('a', 'long', { id: 'long' }))).message).toBe('Enough.')
})

test('what an input that was left came with is not held until its turn', async () => {
  setFlagsFromString('--expose-gc')
  const gc = runInNewContext('gc') as () => void
  const go = deferred()
  const begun = deferred()
  const runner = startRunner(
    agentOf(async () => {
      begun.resolve()
      await go.promise
    }),
  )
  const first = runner.run('a', 'first')
  await begun.promise
  const leave = async (n: number): Promise<WeakRef<object>> => {
    const caller = new AbortController()
    const onEvent = (): undefined => undefined
    const running = runner.run('a', n, { signal: caller.signal, onEvent })
    caller.abort(new ConvokeError('canceled', 'Enough.'))
    expect((await failureOf(running)).code).toBe('canceled')
    return new WeakRef(onEvent)
  }
  const held: WeakRef<object>[] = []
  for (let n = 0; n < 20; n++) held.push(await leave(n))
  // A WeakRef holds on until its turn of the event loop has ended.
  await new Promise((resolve) => setImmediate(resolve))
  gc()
  // The last one may still be on the stack.
  expect(held.filter((each) => each.deref() !== undefined).length).toBeLessThanOrEqual(1)
  go.resolve()
  await first
  expect((await runner.run('a', 'last')).outputs).toEqual([])
})

test('an input that is left while the agent is made ready for it does not run', async () => {
  let ran = 0
  const caller = new AbortController()
  const agent = agentOf(() => void ran++).addResource('files', { command: 'files' }, 'mcpServer')
  const space = { list: () => [], get: () => undefined, call: unused, tryCall: unused }
  const runner = startRunner(agent, {
    // With the first run.
    openServers: () => {
      caller.abort(new ConvokeError('canceled', 'Enough.'))
      return Promise.resolve({ tools: space, close: () => Promise.resolve() })
    },
  })
  expect((await failureOf(runner.run('a', 1, { signal: caller.signal }))).code).toBe('canceled')
  await runner.run('a', 2)
  expect(ran).toBe(1)
})

const unused = (): Promise<never> => Promise.reject(new Error('unused'))

test('a run whose signal has aborted before does not begin, and leaves no mail', async () => {
  const store = createMemoryAgentStore()
  const runner = startRunner(
    agentOf(() => {}),
    { store },
  )
  const failure = await failureOf(runner.run('a', 1, { signal: AbortSignal.abort() }))
  expect(failure.code).toBe('canceled')
  expect(await store.ready('agent', { now: Date.now(), limit: 10 })).toEqual([])
})

test('an action that does not heed the signal is abandoned', async () => {
  const never = deferred()
  const runner = startRunner(
    agentOf(() => never.promise),
    { graceMs: 20 },
  )
  const failure = await failureOf(runner.run('a', 1, { signal: AbortSignal.timeout(20) }))
  expect(failure.code).toBe('timeout')
  never.resolve()
})

test('the same id is the same run', async () => {
  let runs = 0
  const agent = agentOf((_event, context) => {
    runs++
    context.sendEvent(new OutputEvent(runs))
  })
  const runner = startRunner(agent)
  const told: RunEvent[] = []
  expect(await runner.run('a', 1, { id: 'x' })).toEqual({ outputs: [1] })
  const onEvent = (event: RunEvent): undefined => void told.push(event)
  expect(await runner.run('a', 1, { id: 'x', onEvent })).toEqual({ outputs: [1] })
  expect(told).toEqual([{ type: 'output', value: 1 }])
  expect(runs).toBe(1)
})

test('a key with too much waiting takes no more', async () => {
  const held = deferred()
  const runner = startRunner(
    agentOf(() => held.promise),
    { maxWaiting: 2 },
  )
  const runs = [runner.run('a', 1), runner.run('a', 2)]
  expect((await failureOf(runner.run('a', 3))).code).toBe('rate_limited')
  held.resolve()
  await Promise.all(runs)
})

/** Runs in a runner that is closed in the middle, as a process that ends would leave it; then in another one on the same store. */
async function interrupted(agent: Agent, whenToClose: Promise<void>): Promise<AgentRunner> {
  const store = createMemoryAgentStore()
  const first = startRunner(agent, { store })
  const run = failureOf(first.run('a', 'in', { id: 'run' }))
  await whenToClose
  await first.close()
  expect((await run).code).toBe('unavailable')
  return startRunner(agent, { store })
}

test('a resumed run does not do its completed steps again', async () => {
  const inSecond = deferred()
  const done: string[] = []
  let attempt = 0
  const agent = agentOf(async (_event, context) => {
    attempt++
    const one = await context.durableExecute('one', () => {
      done.push('one')
      return { n: 1, id: context.stableId('message') }
    })
    const two = await context.durableExecute(
      'two',
      async (signal) => {
        done.push('two')
        if (attempt > 1) return 2
        inSecond.resolve()
        return await new Promise<number>((_resolve, reject) =>
          signal.addEventListener('abort', () => reject(new Error('stopped'))),
        )
      },
      { repeatable: true },
    )
    context.sendEvent(new OutputEvent([one, two, context.stableId('message')]))
  })
  const second = await interrupted(agent, inSecond.promise)
  const { outputs } = await second.run('a', 'in', { id: 'run' })
  const [[one, two, id]] = outputs as [[{ n: number; id: string }, number, string]]
  expect([one.n, two]).toEqual([1, 2])
  expect(one.id).toBe(id)
  expect(id).toMatch(/^[0-9a-f]{8}-[0-9a-f]{4}-8[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/)
  expect(done).toEqual(['one', 'two', 'two'])
})

test('a step that had begun asks its reconciler, and is not done again without one', async () => {
  for (const found of ['charged', undefined, 'no reconciler'] as const) {
    const begun = deferred()
    let charges = 0
    const agent = agentOf(async (_event, context) => {
      const receipt = await context.durableExecute(
        'charge',
        async (signal) => {
          charges++
          if (charges > 1) return 'charged anew'
          begun.resolve()
          return await new Promise<string>((_resolve, reject) =>
            signal.addEventListener('abort', () => reject(new Error('stopped'))),
          )
        },
        found === 'no reconciler' ? {} : { reconcile: () => found },
      )
      context.sendEvent(new OutputEvent(receipt))
    })
    const second = await interrupted(agent, begun.promise)
    const run = second.run('a', 'in', { id: 'run' })
    const came = await run.then(
      ({ outputs }) => outputs[0],
      (error: unknown) => (error as ConvokeError).code,
    )
    expect(came).toBe(found === 'no reconciler' ? 'worker_lost' : (found ?? 'charged anew'))
    expect(charges).toBe(found === undefined ? 2 : 1)
  }
})

test('steps and ids of one name are told apart by the action and the event', async () => {
  const ids: string[] = []
  const note: Action = async (_event, context) => void ids.push(context.stableId('message'))
  const agent = new Agent()
    .addAction('send', [InputEvent], (_event, context) => context.sendEvent(new AgentEvent('more', {})))
    .addAction('one', [InputEvent, 'more'], note)
    .addAction('two', [InputEvent, 'more'], note)
  const runner = startRunner(agent)
  await runner.run('a', 1)
  await runner.run('a', 2)
  expect(new Set(ids).size).toBe(8)
})

test('two steps of one name in one call of an action are refused', async () => {
  const runner = startRunner(
    agentOf(async (_event, context) => {
      await context.durableExecute('x', () => 1)
      await context.durableExecute('x', () => 2)
    }),
  )
  expect((await failureOf(runner.run('a', 1))).message).toContain('"x"')
})

test('what a process has left is run by the next one, or ended, before what comes later', async () => {
  for (const orphans of ['run', 'fail'] as const) {
    const store = createMemoryAgentStore()
    const event = JSON.stringify(new InputEvent('left', 'left'))
    await store.append('agent', 'a', { id: 'left', event })
    const seen: Json[] = []
    const agent = agentOf((heard) => void seen.push(value(heard)))
    const runner = startRunner(agent, { store, orphans })
    await runner.run('a', 'new')
    expect(seen).toEqual(orphans === 'run' ? ['left', 'new'] : ['new'])
    const result = await store.result('agent', 'a', 'left')
    expect(result?.failure ?? '').toContain(orphans === 'run' ? '' : 'worker_lost')
  }
  const store = createMemoryAgentStore()
  for (const key of ['a', 'b']) {
    await store.append('agent', key, { id: 'left', event: JSON.stringify(new InputEvent(key, 'left')) })
  }
  const seen: Json[] = []
  await startRunner(
    agentOf((heard) => void seen.push(value(heard))),
    { store },
  ).runLeft()
  expect(new Set(seen)).toEqual(new Set(['a', 'b']))
})

test('an input that comes while an empty mailbox is looked at is run', async () => {
  const store = createMemoryAgentStore()
  const look = deferred()
  const looking = deferred()
  const slow = around(store, {
    lease: async (...args) => {
      const lease = await store.lease(...args)
      if (lease?.mail.length !== 0) return lease
      looking.resolve()
      await look.promise
      return lease
    },
  })
  const runner = startRunner(
    agentOf((event, context) => context.sendEvent(new OutputEvent(value(event)))),
    { store: slow },
  )
  await runner.run('a', 1)
  await looking.promise
  const second = runner.run('a', 2)
  // It is in the mailbox, and the lane does not know it yet.
  await new Promise((resolve) => setImmediate(resolve))
  look.resolve()
  expect(await second).toEqual({ outputs: [2] })
})

test('two runners on one store take turns with a key', async () => {
  const store = createMemoryAgentStore()
  let running = 0
  const agent = agentOf(async (_event, context) => {
    expect(++running).toBe(1)
    await new Promise((resolve) => setImmediate(resolve))
    running--
    context.shortTermMemory.set('n', Number(context.shortTermMemory.get('n') ?? 0) + 1)
    context.sendEvent(new OutputEvent(context.shortTermMemory.get('n') ?? 0))
  })
  const [one, other] = [startRunner(agent, { store }), startRunner(agent, { store })]
  const results = await Promise.all([one.run('a', 1), other.run('a', 2), one.run('a', 3), other.run('a', 4)])
  expect(new Set(results.flatMap(({ outputs }) => outputs))).toEqual(new Set([1, 2, 3, 4]))
})

test('a run that takes longer than its lease keeps its key', async () => {
  const inner = createMemoryAgentStore()
  const go = deferred()
  let renewed = 0
  const renew: AgentStore['renew'] = async (...args) => {
    renewed++
    await inner.renew(...args)
  }
  const store = around(inner, { renew })
  const seen: Json[] = []
  const agent = agentOf(async (event) => {
    seen.push(value(event))
    if (value(event) === 'long') await go.promise
  })
  const one = startRunner(agent, { store, leaseMs: 900 })
  const other = startRunner(agent, { store: inner, leaseMs: 900 })
  const long = one.run('a', 'long')
  await until(() => seen.length === 1)
  const behind = other.run('a', 'behind')
  // Three for each lease.
  await until(() => renewed > 5)
  expect(seen).toEqual(['long'])
  go.resolve()
  await Promise.all([long, behind])
  expect(seen).toEqual(['long', 'behind'])
})

test("an action calls the agent's own tools", async () => {
  const add = defineTool({
    name: 'add',
    description: 'Adds.',
    input: { type: 'object', properties: { a: { type: 'number' }, b: { type: 'number' } }, required: ['a', 'b'] },
    run: ({ a, b }) => Number(a) + Number(b),
  })
  const agent = agentOf(async (_event, context) => {
    context.sendEvent(new OutputEvent((await context.tools.call('add', { a: 1, b: 2 })) as Json))
    const { success } = await context.tools.tryCall('add', { a: 'x' })
    context.sendEvent(new OutputEvent(success))
  }).addResource('add', add)
  expect(await startRunner(agent).run('a', 1)).toEqual({ outputs: [3, false] })
})

test('functions may be taken out of the context', async () => {
  const agent = agentOf(async (event, { sendEvent, durableExecute, stableId }) => {
    const step = await durableExecute('step', () => value(event))
    sendEvent(new OutputEvent([step, typeof stableId('x')]))
  })
  expect(await startRunner(agent).run('a', 1)).toEqual({ outputs: [[1, 'string']] })
})

test('tools are called for the one who asked for the run, who answers their questions', async () => {
  const book = defineTool({
    name: 'book',
    description: 'Books.',
    input: { type: 'object' },
    run: async (_params, { ask, caller }) => ({ by: caller.id, day: await ask({ message: 'Which day?' }) }),
  })
  const agent = agentOf(async (_event, context) =>
    context.sendEvent(new OutputEvent((await context.tools.call('book')) as Json)),
  ).addResource('book', book)
  const caller = { id: 'ann', scopes: ['*'] }
  const ask = (): Promise<Json> => Promise.resolve('Monday')
  expect(await startRunner(agent).run('a', 1, { caller, ask })).toEqual({
    outputs: [{ by: 'ann', day: 'Monday' }],
  })
})

test('a tool that an action calls stops with the run', async () => {
  const [begun, stopped] = [deferred(), deferred()]
  const hold = defineTool({
    name: 'hold',
    description: 'Holds.',
    input: { type: 'object' },
    run: async (_params, { signal }) => {
      begun.resolve()
      await new Promise<void>((resolve) => signal.addEventListener('abort', () => resolve()))
      stopped.resolve()
    },
  })
  const agent = agentOf(async (_event, context) => {
    await context.tools.tryCall('hold', {}, { signal: new AbortController().signal })
  }).addResource('hold', hold)
  const caller = new AbortController()
  const run = failureOf(startRunner(agent).run('a', 1, { signal: caller.signal }))
  await begun.promise
  caller.abort()
  await within(stopped.promise, 'the tool to stop')
  expect((await run).code).toBe('canceled')
})

test('a resource is made once, when it is first asked for, and closed with the runner, the newest first', async () => {
  const life: string[] = []
  class Numbers {
    static readonly resourceType = 'vectorStore'
    readonly #name: string
    constructor(args: { readonly name: string }) {
      this.#name = args.name
      life.push(`made ${args.name}`)
    }
    add(): Promise<void> {
      return Promise.resolve()
    }
    query(): Promise<[]> {
      return Promise.resolve([])
    }
    close(): void {
      life.push(`closed ${this.#name}`)
    }
  }
  const agent = agentOf(async (_event, context) => {
    const [one, two] = await Promise.all([
      context.getResource('n', 'vectorStore'),
      context.getResource('n', 'vectorStore'),
    ])
    expect(one).toBe(two)
    await context.getResource('m', 'vectorStore')
  })
  for (const name of ['m', 'n']) agent.addResource(name, new ResourceDescriptor(Numbers, { name }))
  const runner = startRunner(agent)
  expect(life).toEqual([])
  await runner.run('a', 1)
  await runner.run('b', 1)
  expect(life).toEqual(['made n', 'made m'])
  await runner.close()
  expect(life).toEqual(['made n', 'made m', 'closed m', 'closed n'])
  expect((await failureOf(runner.run('a', 1))).code).toBe('unavailable')
})

test('resources are closed before those that they need, also when one breaks or hangs at that', async () => {
  const life: string[] = []
  const store = (name: string, close: () => unknown, need?: string) => async (around: ResourceContext) => {
    await Promise.resolve()
    if (need !== undefined) await around.getResource(need, 'vectorStore')
    return {
      add: () => Promise.resolve(),
      query: () => Promise.resolve([]),
      close: async () => {
        life.push(name)
        await close()
      },
    }
  }
  const agent = agentOf(async (_event, context) => void (await context.getResource('top', 'vectorStore')))
    .addResource(
      'top',
      store('top', () => {}, 'middle'),
      'vectorStore',
    )
    .addResource(
      'middle',
      store('middle', () => Promise.reject(new Error('broken')), 'hanging'),
      'vectorStore',
    )
    .addResource(
      'hanging',
      store('hanging', () => new Promise(() => {}), 'base'),
      'vectorStore',
    )
    .addResource(
      'base',
      store('base', () => {}),
      'vectorStore',
    )
  const lines: string[] = []
  const log = createLog('warn', { write: (line) => void lines.push(line) })
  const runner = startRunner(agent, { log, graceMs: 20 })
  await runner.run('a', 1)
  await runner.close()
  expect(life).toEqual(['top', 'middle', 'hanging', 'base'])
  expect(lines).toHaveLength(2)
  expect(lines[0]).toContain('vectorStore middle')
  expect(lines[1]).toContain('vectorStore hanging')
})

test('a resource that the agent was given is not closed with the runner', async () => {
  let closed = 0
  const given = { add: () => Promise.resolve(), query: () => Promise.resolve([]), close: () => void closed++ }
  const agent = agentOf(async (_event, context) => {
    expect(await context.getResource('n', 'vectorStore')).toBe(given)
  }).addResource('n', given, 'vectorStore')
  const runner = startRunner(agent)
  await runner.run('a', 1)
  await runner.close()
  expect(closed).toBe(0)
})

test('a resource that there is not is a failure, and the log says which ones there are', async () => {
  const agent = agentOf(async (_event, context) => void (await context.getResource('revews', 'prompt')))
  agent.addResource('reviews', Prompt.fromText('Judge {review}.'))
  const log = readableLog()
  expect(await failureOf(startRunner(agent, { log }).run('a', 1))).toMatchObject({
    code: 'not_found',
    message: 'The agent has no resource "revews" of the type prompt. The log says which ones there are.',
  })
  expect(log.details).toContainEqual({ resource: 'revews', type: 'prompt', known: ['reviews'], meant: 'reviews' })
  const other = agentOf(async (_event, context) => void (await context.getResource('greeting', 'chatModelSetup')))
  other.addResource('greeting', Prompt.fromText('Hi.'))
  expect((await failureOf(startRunner(other).run('a', 1))).message).toBe(
    'The agent has no resource "greeting" of the type chatModelSetup. There is one of the type prompt.',
  )
})

test('what an event had goes into memory, prompts and outputs as it is', async () => {
  const agent = agentOf((event, context) => {
    const { value: review } = event as InputEvent
    context.shortTermMemory.set('last', review)
    const text = Prompt.fromText('{review.stars} of 5').formatString({ review })
    context.sendEvent(new OutputEvent([text, context.shortTermMemory.get('last.stars') ?? null, review]))
  })
  expect((await startRunner(agent).run('a', { stars: 3 })).outputs).toEqual([['3 of 5', 3, { stars: 3 }]])
})

test('an input that came twice leaves its key free for what others have left', async () => {
  const store = createMemoryAgentStore()
  const seen: Json[] = []
  const runner = startRunner(
    agentOf((event) => void seen.push(value(event))),
    { store },
  )
  await runner.run('a', 'in', { id: 'in' })
  await until(async () => (await store.lease('agent', 'a', 'other', { now: 0, leaseMs: 0, limit: 1 })) !== undefined)
  await runner.run('a', 'in', { id: 'in' })
  await store.append('agent', 'a', { id: 'left', event: JSON.stringify(new InputEvent('left', 'left')) })
  await runner.runLeft()
  expect(seen).toEqual(['in', 'left'])
})

test('a runner that closes while its resources are made runs nothing any more', async () => {
  const [making, go] = [deferred(), deferred()]
  let hasRun = false
  const agent = agentOf(async (_event, { signal }) => {
    hasRun = true
    await new Promise<void>((resolve) => signal.addEventListener('abort', () => resolve()))
  }).addResource(
    'slow',
    async () => {
      making.resolve()
      await go.promise
      return defineTool({ name: 'slow', description: 'Slow to make.', input: { type: 'object' }, run: () => 1 })
    },
    'tool',
  )
  const runner = startRunner(agent)
  const run = failureOf(runner.run('a', 1))
  await making.promise
  const closed = runner.close()
  go.resolve()
  await within(closed, 'the runner to close')
  expect((await run).code).toBe('unavailable')
  expect(hasRun).toBe(false)
})

test('a promise of any make is waited for', async () => {
  const agent = agentOf((_event, context) => {
    const then = (resolve: () => void): void => {
      setImmediate(() => {
        context.sendEvent(new OutputEvent('late'))
        resolve()
      })
    }
    // oxlint-disable-next-line unicorn/no-thenable -- as a query builder is one
    return { then } as unknown as Promise<void>
  })
  expect(await startRunner(agent).run('a', 1)).toEqual({ outputs: ['late'] })
})

test('an input that comes while the store fails another one of its key is run all the same', async () => {
  const inner = createMemoryAgentStore()
  const [appending, go] = [deferred(), deferred()]
  let fails = true
  const append: AgentStore['append'] = async (scope, key, mail) => {
    if (mail.id === 'second') {
      appending.resolve()
      await go.promise
    }
    return await inner.append(scope, key, mail)
  }
  const commit: AgentStore['commit'] = async (...args) => {
    await appending.promise
    if (fails) throw new ConvokeError('unavailable', 'The disk is full.')
    await inner.commit(...args)
  }
  const store = around(inner, { append, commit })
  const seen: Json[] = []
  const agent = agentOf((event, context) => {
    seen.push(value(event))
    context.sendEvent(new OutputEvent(value(event)))
  })
  const runner = startRunner(agent, { store })
  const first = runner.run('a', 1, { id: 'first' })
  const second = runner.run('a', 2, { id: 'second' })
  await expect(first).rejects.toMatchObject({ code: 'unavailable' })
  fails = false
  go.resolve()
  expect(await second).toEqual({ outputs: [2] })
  // The first one was told to come again, and finds its run.
  expect(await runner.run('a', 1, { id: 'first' })).toEqual({ outputs: [1] })
  expect(seen).toEqual([1, 1, 2])
})
