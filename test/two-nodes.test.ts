/** Nodes in processes of their own, auth on, that call each other's tools: what one node alone cannot show. */
import { execFile } from 'node:child_process'
import { randomUUID } from 'node:crypto'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import type { Json, JsonObject, Message, Task } from 'convoke'
import { describe, expect, test } from 'vitest'
import { startFaultProxy, type FaultProxy } from './support/fault-proxy.ts'
import { until } from './support/lifetime.ts'
import { startNetwork, type Network, type NetworkOptions } from './support/network.ts'
import type { NodeProcess } from './support/process.ts'
import {
  begin,
  chunkOf,
  chunksOf,
  getTask,
  range,
  rawChunksOf,
  resultOf,
  rpc,
  send,
  sendStream,
  stateOf,
  toolCall,
  toolErrorOf,
  type StreamEvent,
} from './support/wire.ts'

interface Pair extends Network {
  readonly alice: NodeProcess
  readonly bob: NodeProcess
}

async function startPair(options: NetworkOptions = {}): Promise<Pair> {
  const network = await startNetwork(['alice', 'bob'], options)
  const { alice, bob } = network.nodes
  return { ...network, alice: alice!, bob: bob! }
}

/** A pair whose way from alice to bob leads through a network that fails on command. */
async function startPairBehindProxy(): Promise<Pair & { readonly proxy: FaultProxy }> {
  let proxy: FaultProxy | undefined
  const pair = await startPair({
    via: async (from, _to, url) => {
      if (from !== 'alice') return url
      proxy ??= await startFaultProxy(url)
      return proxy.url
    },
  })
  return { ...pair, proxy: proxy! }
}

const states = (tasks: readonly Task[]): string[] => tasks.map(({ status }) => status.state)

/** The tasks that a caller has at a node, oldest first. */
async function tasksOf(node: NodeProcess, options: ReturnType<Network['as']>): Promise<Task[]> {
  const { body } = await rpc<{ tasks: Task[] }>(node.url, 'ListTasks', { pageSize: 100 }, options)
  return body.result!.tasks.toReversed()
}

/** What the message that made a task says of its way. */
function chainOf(task: Task | undefined): { path: string[]; hops: number; tickets?: string[] } {
  return task!.history![0]!.metadata!['_delegation'] as ReturnType<typeof chainOf>
}

const progressOf = ({ data }: StreamEvent): Json | undefined => data.statusUpdate?.metadata?.['_tool_progress']

describe('two nodes', () => {
  test('call each other, each with its own name and token', async () => {
    const { alice, bob, as } = await startPair()
    const there = await send(alice.url, toolCall('relay', { route: ['bob'], tool: 'who' }), {}, as('alice'))
    expect(resultOf(there)).toEqual({ caller: 'alice', pid: bob.child.pid })
    const back = await send(bob.url, toolCall('relay', { route: ['alice'], tool: 'who' }), {}, as('bob'))
    expect(resultOf(back)).toEqual({ caller: 'bob', pid: alice.child.pid })
  })

  test('pass chunks and progress on unchanged', async () => {
    const { alice, bob, as } = await startPair()
    const direct = await (await sendStream(bob.url, toolCall('values'), as('bob'))).all()
    const relayed = await (
      await sendStream(alice.url, toolCall('relay', { route: ['bob'], tool: 'values' }), as('alice'))
    ).all()
    const chunks = rawChunksOf(direct)
    expect(chunks).toHaveLength(9)
    expect(rawChunksOf(relayed)).toEqual(chunks)
    // Progress that was not yet sent is replaced by newer; what comes is what was said, in order, and the last one comes.
    const told = direct.map(progressOf).filter((progress) => progress !== undefined)
    const passed = relayed.map(progressOf).filter((progress) => progress !== undefined)
    const all = range(0, 8).map((i) => ({ progress: i, total: 9, message: `Value ${i}.` }))
    for (const progress of [told, passed]) {
      expect(all.filter((each) => progress.some((one) => (one as JsonObject)['progress'] === each.progress))).toEqual(
        progress,
      )
      expect(progress.at(-1)).toEqual(all.at(-1))
    }
    expect(stateOf(relayed.at(-1)!)).toBe('TASK_STATE_COMPLETED')
  })

  test('go on behind each cut of a stream between them: nothing is lost, and nothing comes twice', async () => {
    const { alice, bob, proxy, as } = await startPairBehindProxy()
    const pauses = [3, 7, 11]
    const params = { route: ['bob'], tool: 'count', params: { n: 15, pauses } }
    const reader = await sendStream(alice.url, toolCall('relay', params), as('alice'))
    const events: StreamEvent[] = []
    for (const at of pauses) {
      events.push(...(await reader.upTo((event) => (chunkOf(event) as JsonObject | undefined)?.['i'] === at)))
      proxy.cut()
      // Part of them is made while nobody listens.
      bob.release(`go on at ${at}`)
    }
    events.push(...(await reader.all()))
    expect(proxy.cuts).toBeGreaterThanOrEqual(pauses.length)
    expect(rawChunksOf(events)).toEqual(range(1, 15).map((i) => ({ pid: bob.child.pid, i })))
    expect(stateOf(events.at(-1)!)).toBe('TASK_STATE_COMPLETED')
    expect(bob.count('count runs')).toBe(1)
  })

  test('a stream survives kill -9 of its node: the tool runs again there, and the caller is told', async () => {
    const { alice, bob, as, restart } = await startPair()
    const call = toolCall('watch', { tool: 'bob.count', params: { n: 5, pauses: [3] } })
    const reader = await sendStream(alice.url, call, as('alice'))
    const isChunk = (i: number) => (event: StreamEvent) =>
      ((chunkOf(event) as JsonObject | undefined)?.['chunk'] as JsonObject | undefined)?.['i'] === i
    const before = await reader.upTo(isChunk(3))
    expect(await bob.end('SIGKILL')).toBeNull()

    const second = await restart('bob')
    second.release('go on at 3')
    const after = await reader.all()
    const firstRun = range(1, 3).map((i) => ({ type: 'chunk', chunk: { pid: bob.child.pid, i } }))
    const secondRun = range(1, 5).map((i) => ({ type: 'chunk', chunk: { pid: second.child.pid, i } }))
    expect(rawChunksOf([...before, ...after])).toEqual([
      ...firstRun,
      { type: 'restart' },
      ...secondRun,
      { type: 'result', result: { counted: 5 } },
    ])
    expect(stateOf(after.at(-1)!)).toBe('TASK_STATE_COMPLETED')
    expect(second.count('count runs')).toBe(1)
    expect(states(await tasksOf(second, as('bob', 'alice')))).toEqual(['TASK_STATE_COMPLETED'])
  })

  test('a cancel of the outer caller stops the work on both: the counters stand still, the tasks are canceled', async () => {
    const { alice, bob, as } = await startPair()
    // There and back: a task of the test and one of bob's at alice, one of alice's at bob.
    const reader = await sendStream(alice.url, toolCall('spin', { route: ['bob', 'alice'] }), as('alice'))
    const head = await reader.upTo((event) => rawChunksOf([event]).length > 0)
    const id = head[0]!.data.task!.id
    await reader.upTo((event) => rawChunksOf([event]).length > 0)
    await reader.upTo((event) => rawChunksOf([event]).length > 0)
    const turnsOf = async (node: NodeProcess): Promise<number> => {
      const task = await send(node.url, toolCall('counter'), {}, as(node === alice ? 'alice' : 'bob'))
      return (resultOf(task) as { turns: number }).turns
    }
    for (const node of [alice, bob]) expect(await turnsOf(node)).toBeLessThan(await turnsOf(node))

    const canceled = await rpc<Task>(alice.url, 'CancelTask', { id }, as('alice'))
    expect(canceled.body.result?.status.state).toBe('TASK_STATE_CANCELED')
    // It counts each turn of the event loop, and every one of these calls takes several.
    for (const node of [alice, bob]) {
      const turns = await turnsOf(node)
      for (let n = 0; n < 20; n++) expect(await turnsOf(node)).toBe(turns)
    }
    expect(states(await tasksOf(bob, as('bob', 'alice')))).toEqual(['TASK_STATE_CANCELED'])
    expect(states(await tasksOf(alice, as('alice', 'bob')))).toEqual(['TASK_STATE_CANCELED'])
    await until(() => alice.count('spin was stopped: canceled') === 2, 'both runs at alice to tell that they stopped')
    await bob.heard('spin was stopped: canceled')
  })

  test('the deadline of a call runs down the chain, and ends the work on all of the way', async () => {
    const { alice, bob, as } = await startPair()
    const call = toolCall('spin', { route: ['bob', 'alice'] })
    const before = Date.now()
    ;(call.metadata!['_tool_call'] as JsonObject)['timeout_ms'] = 1_500
    const events = await (await sendStream(alice.url, call, as('alice'))).all()
    const deadlines = rawChunksOf(events).map((chunk) => (chunk as { deadline: number }).deadline)
    expect(deadlines).toHaveLength(3)
    expect(deadlines[0]).toBeGreaterThanOrEqual(before + 1_500)
    // Each node counts from when it begins, so that a busy machine may add to it; without a deadline it would be null.
    for (const deadline of deadlines) expect(Math.abs(deadline - deadlines[0]!)).toBeLessThan(500)
    const task = await getTask(alice.url, events[0]!.data.task!.id, as('alice'))
    expect(task.status.state).toBe('TASK_STATE_FAILED')
    expect(toolErrorOf(task)?.code).toBe('timeout')
    await until(
      () => alice.count('spin was stopped: timeout') + alice.count('spin was stopped: canceled') === 2,
      'alice to stop',
    )
    await until(
      async () => !states(await tasksOf(bob, as('bob', 'alice'))).includes('TASK_STATE_WORKING'),
      'bob to stop',
    )
  })
})

describe('a call that comes back', () => {
  test('takes no place in line at a tool that waits for it', async () => {
    const { alice, bob, as } = await startPair()
    const params = { route: ['bob', 'alice', 'bob'], tool: 'who' }
    const task = await send(alice.url, toolCall('relay_in_turn', params), {}, as('alice'))
    expect(resultOf(task)).toEqual({ caller: 'alice', pid: bob.child.pid })
    for (const node of [alice, bob]) expect(node.count('relay_in_turn runs')).toBe(2)
  })

  test('is taken in by a node that runs all it may: nothing else would ever end', async () => {
    const { alice, as } = await startPair({ server: { maxRunningTasks: 1 } })
    const task = await send(alice.url, toolCall('relay', { route: ['bob', 'alice'], tool: 'who' }), {}, as('alice'))
    expect(resultOf(task)).toEqual({ caller: 'bob', pid: alice.child.pid })
  })

  test('is refused when it comes for the second time', async () => {
    const { alice, bob, as } = await startPair()
    const params = { route: ['bob', 'alice', 'bob', 'alice'], tool: 'who' }
    const task = await send(alice.url, toolCall('relay', params), {}, as('alice'))
    expect(task.status.state).toBe('TASK_STATE_FAILED')
    expect(toolErrorOf(task)).toMatchObject({ code: 'rejected', retryable: false })
    expect(toolErrorOf(task)?.message).toContain('alice → bob → alice → bob')
    for (const node of [alice, bob]) expect(node.count('relay runs')).toBe(2)
    const atAlice = states(await tasksOf(alice, as('alice', 'bob')))
    expect(atAlice.toSorted()).toEqual(['TASK_STATE_FAILED', 'TASK_STATE_REJECTED'])
  })

  test('is refused behind eight hops, however often nodes may be passed', async () => {
    const { alice, bob, as } = await startPair({ config: { delegation: { maxVisits: 100 } } })
    const there = (hops: number): string[] => range(1, hops).map((hop) => (hop % 2 === 1 ? 'bob' : 'alice'))
    const eight = await send(alice.url, toolCall('relay', { route: there(8), tool: 'who' }), {}, as('alice'))
    expect(resultOf(eight)).toEqual({ caller: 'bob', pid: alice.child.pid })
    const nine = await send(alice.url, toolCall('relay', { route: there(9), tool: 'who' }), {}, as('alice'))
    expect(toolErrorOf(nine)).toMatchObject({ code: 'rejected', message: expect.stringContaining('9 times') })
    expect(alice.count('relay runs') + bob.count('relay runs')).toBe(9 + 9)
  })
})

describe('what a caller says of the way that its call came', () => {
  const delegated = (name: string, params: object, delegation: Json): Message => {
    const call = toolCall(name, params)
    return { ...call, metadata: { ...call.metadata, _delegation: delegation } }
  }

  test('refuses a call that nobody waits for any more', async () => {
    const { alice, as } = await startPair()
    const late = delegated('relay', { tool: 'who' }, { path: ['bob'], hops: 1, deadline: Date.now() - 1 })
    const task = await send(alice.url, late, {}, as('alice'))
    expect(task.status.state).toBe('TASK_STATE_REJECTED')
    expect(toolErrorOf(task)).toMatchObject({ code: 'timeout', retryable: false })
    expect(alice.count('relay runs')).toBe(0)
  })

  test('means nothing in the params of a tool', async () => {
    const { alice, bob, as } = await startPair()
    const _delegation = { path: ['alice', 'alice', 'bob', 'bob'], hops: 99, deadline: 1, tickets: ['t'] }
    const params = { route: ['bob'], tool: 'who', params: { _delegation }, _delegation }
    const task = await send(alice.url, toolCall('relay', params), {}, as('alice'))
    expect(resultOf(task)).toEqual({ caller: 'alice', pid: bob.child.pid })
    const [passed] = await tasksOf(bob, as('bob', 'alice'))
    expect(chainOf(passed)).toMatchObject({ path: ['alice'], hops: 1 })
  })

  test('opens no way past a line or a limit: not by a ticket that is made up, nor by one whose task is over', async () => {
    const { alice, bob, as } = await startPair({ server: { maxRunningTasks: 2 } })
    const first = toolCall('relay', { route: ['bob'], tool: 'who' })
    await send(alice.url, first, {}, as('alice'))
    const [passed] = await tasksOf(bob, as('bob', 'alice'))
    const { tickets: old = [] } = chainOf(passed)
    expect(old).toHaveLength(1)

    const chain = { path: ['alice', 'bob'], hops: 2, tickets: [...old, 'made-up'] }
    const inTurn = { tool: 'count', params: { n: 1, pauses: [1] } }
    const holding = await begin(alice.url, toolCall('relay_in_turn', inTurn), as('alice'))
    await alice.heard('count is at 1')
    const waiting = await begin(alice.url, delegated('relay_in_turn', inTurn, chain), as('alice', 'bob'))
    const third = delegated('relay', { tool: 'who' }, chain)
    const refused = await rpc(alice.url, 'SendMessage', { message: third }, as('alice', 'bob'))
    expect(refused.status).toBe(429)
    expect(alice.count('relay_in_turn runs')).toBe(1)

    alice.release('go on at 1')
    for (const [{ id }, caller] of [
      [holding, 'test'],
      [waiting, 'bob'],
    ] as const) {
      const options = as('alice', caller)
      await until(
        async () => (await getTask(alice.url, id, options)).status.state === 'TASK_STATE_COMPLETED',
        'the end',
      )
    }
    expect(alice.count('relay_in_turn runs')).toBe(2)
  })
})

test('a chain of three: streams, progress and a cancel reach from one end to the other', async () => {
  const { nodes, as } = await startNetwork(['alice', 'bob', 'carol'])
  const { alice, bob, carol } = nodes as Record<'alice' | 'bob' | 'carol', NodeProcess>
  const route = ['bob', 'carol']
  const params = { route, tool: 'count', params: { n: 6, pauses: [3] } }
  const reader = await sendStream(alice.url, toolCall('relay', params), as('alice'))
  const head = await reader.upTo((event) => (chunkOf(event) as JsonObject | undefined)?.['i'] === 3)
  carol.release('go on at 3')
  const tail = await reader.all()
  expect(chunksOf([...head, ...tail])).toEqual(range(1, 6).map((i) => ({ pid: carol.child.pid, i })))
  const [last] = await tasksOf(carol, as('carol', 'bob'))
  expect(chainOf(last)).toMatchObject({ path: ['alice', 'bob'], hops: 2 })

  const spinning = await sendStream(alice.url, toolCall('spin', { route }), as('alice'))
  const [first] = await spinning.upTo((event) => rawChunksOf([event]).length > 0)
  await carol.heard('spin runs')
  await rpc<Task>(alice.url, 'CancelTask', { id: first!.data.task!.id }, as('alice'))
  for (const node of [alice, bob, carol]) await node.heard('spin was stopped: canceled')
  expect(states(await tasksOf(bob, as('bob', 'alice')))).toEqual(['TASK_STATE_COMPLETED', 'TASK_STATE_CANCELED'])
  expect(states(await tasksOf(carol, as('carol', 'bob')))).toEqual(['TASK_STATE_COMPLETED', 'TASK_STATE_CANCELED'])
})

test('a wrong token is told as such, and no token stands in an answer, a task or a log', async () => {
  const wrong = randomUUID()
  const token = (from: string): string | undefined => (from === 'alice' ? wrong : undefined)
  const { alice, bob, as, secrets } = await startPair({ token, logLevel: 'debug' })
  const message = toolCall('relay', { route: ['bob'], tool: 'who' })
  const answer = await rpc<{ task: Task }>(alice.url, 'SendMessage', { message }, as('alice'))
  const { task } = answer.body.result!
  expect(task.status.state).toBe('TASK_STATE_FAILED')
  expect(toolErrorOf(task)).toMatchObject({ code: 'unauthenticated', retryable: false })
  // The other way is open, so that the right ones are used, too.
  const back = await rpc(
    bob.url,
    'SendMessage',
    { message: toolCall('relay', { route: ['alice'], tool: 'who' }) },
    as('bob'),
  )
  expect(back.text).toContain('TASK_STATE_COMPLETED')
  const stored = await rpc(alice.url, 'GetTask', { id: task.id }, as('alice'))
  // A peer that is gone is logged, with what was wrong.
  await bob.end('SIGKILL')
  const gone = await rpc(alice.url, 'SendMessage', { message: { ...message, messageId: 'again' } }, as('alice'))
  await until(() => alice.log() !== '', 'the log')
  const texts = [answer.text, stored.text, back.text, gone.text, alice.log(), bob.log()]
  for (const secret of [wrong, ...secrets]) for (const text of texts) expect(text).not.toContain(secret)
})

test.each(['program', 'node'])('a %s that has called peers and closed what it opened ends by itself', async (kind) => {
  const { bob, as } = await startPair()
  const visitor = fileURLToPath(new URL('./support/visitor.js', import.meta.url))
  const token = as('bob').headers!['authorization']!.slice('Bearer '.length)
  const { stdout } = await promisify(execFile)(process.execPath, [visitor, kind, bob.url], {
    env: { PATH: process.env['PATH'], TOKEN: token },
    timeout: 15_000,
  })
  const { result, handles, msToEnd } = JSON.parse(stdout) as { result: Json; handles: string[]; msToEnd: number }
  expect(result).toEqual({ caller: 'test', pid: bob.child.pid })
  expect(handles).toEqual([])
  // A connection that is kept for the next request would hold it for seconds.
  expect(msToEnd).toBeLessThan(1_000)
})
