/** What a tool says for the log of its caller: in order, bounded, and through other nodes. */
import { connectPeer, defineTool, type Json, type Node, type ToolEvent, type ToolLog } from 'convoke'
import { describe, expect, test } from 'vitest'
import { Notices } from '../dist/tools/notices.js'
import { cleanup, deferred, startNode, until } from './support/lifetime.ts'
import { begin, getTask, send, sendStream, toolCall } from './support/wire.ts'

const nothing = { type: 'object', properties: {} }

const murmur = defineTool({
  name: 'murmur',
  description: 'Logs.',
  input: { type: 'object', properties: { times: { type: 'integer', default: 1 } } },
  *run({ times }, { notice }) {
    notice({ level: 'debug', data: 'first', logger: 'm' })
    yield 'chunk'
    for (let i = 0; i < times; i++) notice({ level: 'critical', data: { i } })
    return 'done'
  },
})

const odd = defineTool({
  name: 'odd',
  description: 'Logs what is none.',
  input: { type: 'object', properties: { level: { type: 'string' } } },
  run({ level }, { notice }) {
    notice({ level, data: level === 'info' ? new Map() : 'x' } as unknown as ToolLog)
    return 'done'
  },
})

async function eventsOf(stream: AsyncIterable<ToolEvent>): Promise<ToolEvent[]> {
  const events: ToolEvent[] = []
  for await (const event of stream) events.push(event)
  return events
}

const leftOut = (events: readonly ToolEvent[]): number[] =>
  events.flatMap((event) => {
    const data = event.type === 'log' ? (event.data as { left_out?: number }) : {}
    return data.left_out ?? []
  })

const logsIn = (events: readonly ToolEvent[]) => events.filter(({ type }) => type === 'log')

describe.each<[string, (node: Node) => Promise<(name: string, params?: Json) => AsyncIterable<ToolEvent>>]>([
  ['in its own process', (node) => Promise.resolve((name, params) => node.tools.stream(name, params))],
  [
    'at a peer',
    async (node) => {
      const peer = await connectPeer(node.url)
      cleanup(() => peer.close())
      return (name, params) => peer.executeRemoteToolStreaming(name, params)
    },
  ],
  [
    'at a peer of a peer',
    async (bob) => {
      const alice = await startNode({ peers: { bob: { url: bob.url } }, publish: ['bob.*'] })
      await alice.tools.discover()
      const peer = await connectPeer(alice.url)
      cleanup(() => peer.close())
      return (name, params) => peer.executeRemoteToolStreaming(`bob.${name}`, params)
    },
  ],
])('a tool %s', (_where, connect) => {
  test('is heard in order, before its result', async () => {
    const stream = await connect(await startNode({ agent: { id: 'bob' }, tools: [murmur] }))
    expect(await eventsOf(stream('murmur'))).toEqual([
      { type: 'log', level: 'debug', data: 'first', logger: 'm' },
      { type: 'chunk', chunk: 'chunk' },
      { type: 'log', level: 'critical', data: { i: 0 } },
      { type: 'result', result: 'done' },
    ])
  })

  test('is not heard more often than a hundred times a second, and what is left out is counted', async () => {
    const stream = await connect(await startNode({ agent: { id: 'bob' }, tools: [murmur] }))
    const events = await eventsOf(stream('murmur', { times: 20_000 }))
    const counts = leftOut(events)
    const lines = logsIn(events).length - counts.length
    expect(lines).toBeGreaterThanOrEqual(99)
    expect(lines).toBeLessThan(1_000)
    expect(counts.reduce((sum, count) => sum + count, lines)).toBe(20_001)
    expect(events.at(-1)).toEqual({ type: 'result', result: 'done' })
  })

  test.each([
    ['loud', 'got "loud"'],
    ['info', 'is not JSON'],
  ])('fails with a line that is none (%s)', async (level, said) => {
    const stream = await connect(await startNode({ agent: { id: 'bob' }, tools: [odd], logLevel: 'silent' }))
    await expect(eventsOf(stream('odd', { level }))).rejects.toMatchObject({
      code: 'invalid_result',
      message: expect.stringContaining(said),
    })
  })
})

test('a log is no part of a task, and fills no log of events', async () => {
  const { url } = await startNode({ tools: [murmur] })
  const task = await send(url, toolCall('murmur', { times: 20_000 }))
  expect(JSON.stringify(task)).not.toContain('_tool_log')
  const events = await (await sendStream(url, toolCall('murmur', { times: 20_000 }))).all()
  expect(events.length).toBeLessThan(500)
})

test('what is said while a question waits does not take its place', async () => {
  const asked = deferred()
  const ask = defineTool({
    name: 'ask',
    description: 'Asks, and says something meanwhile.',
    input: nothing,
    async run(_params, context) {
      const answer = context.ask({ message: 'Who?' })
      context.notice({ level: 'info', data: 'waiting' })
      asked.resolve()
      return answer
    },
  })
  const { url } = await startNode({ tools: [ask] })
  const { id } = await begin(url, toolCall('ask'))
  await asked.promise
  const task = await until(async () => {
    const each = await getTask(url, id)
    return each.status.state === 'TASK_STATE_INPUT_REQUIRED' && each
  }, 'the question')
  expect(task.status.message?.parts).toEqual([{ text: 'Who?' }])
})

test('a declined question without a schema is no answer', async () => {
  const ask = defineTool({
    name: 'ask',
    description: 'Asks.',
    input: nothing,
    run: async (_params, context) => {
      try {
        return await context.ask({ message: 'Who?' })
      } catch (error) {
        return { code: (error as { code: string }).code }
      }
    },
  })
  const { url } = await startNode({ tools: [ask] })
  const peer = await connectPeer(url)
  cleanup(() => peer.close())
  const answered = (answer: Json) => peer.executeRemoteTool('ask', {}, { ask: () => Promise.resolve(answer) })
  expect(await answered({ action: 'decline' })).toEqual({ code: 'rejected' })
  expect(await answered({ action: 'go' })).toEqual({ action: 'go' })
})

describe('the lines of one call', () => {
  const line = (data: Json, level: ToolLog['level'] = 'info'): ToolLog => ({ level, data })

  test('are cut at 8,000 characters, and keep nothing of the object that was given', () => {
    const said: ToolLog[] = []
    const notices = new Notices((log) => said.push(log) > 0)
    const data = { a: [1] }
    notices.say(line(data))
    data.a.push(2)
    notices.say(line('x'.repeat(10_000)))
    notices.say(line({ long: 'y'.repeat(10_000) }))
    notices.close()
    expect(said[0]).toEqual(line({ a: [1] }))
    expect(said.slice(1).map(({ data: text }) => (text as string).length)).toEqual([8_001, 8_001])
  })

  test('are left out where they are too long in all', () => {
    const said: ToolLog[] = []
    const notices = new Notices((log) => said.push(log) > 0)
    for (let i = 0; i < 50; i++) notices.say(line('x'.repeat(8_000)))
    notices.close()
    expect(said).toHaveLength(10)
    expect(said.at(-1)).toMatchObject({ level: 'warning', data: { left_out: 41 } })
  })

  test('wait for a reader that is slow, up to a limit; the rest is counted to the end', () => {
    const said: ToolLog[] = []
    const notices = new Notices((log, isLast) => (said.length < 3 || isLast) && said.push(log) > 0)
    for (let i = 0; i < 10; i++) notices.say(line(i))
    notices.say(line({ left_out: 5 }, 'warning'))
    expect(said).toHaveLength(3)
    notices.close()
    notices.close()
    notices.say(line('late'))
    expect(said.slice(3)).toEqual([
      { level: 'warning', data: { left_out: 12, reason: expect.stringContaining('100 lines in a second') } },
    ])
  })
})
