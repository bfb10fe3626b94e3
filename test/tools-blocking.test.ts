// Tools that run in worker threads.
import { execFile } from 'node:child_process'
import { once } from 'node:events'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { createServer, type AddressInfo, type Socket } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { pathToFileURL } from 'node:url'
import { promisify } from 'node:util'
import { afterAll, expect, test } from 'vitest'
import { closeIdleWorkers } from '../dist/tools/blocking.js'
import { defineTool } from '../dist/tools/define.js'
import { LocalToolRegistry } from '../dist/tools/local.js'
import { ToolManager } from '../dist/tools/manager.js'
import type { ToolContext, ToolEvent } from '../dist/tools/tool.js'

const folder = mkdtempSync(join(tmpdir(), 'convoke-blocking-'))
const module = join(folder, 'work.mjs')
const bare = join(folder, 'bare.mjs')
writeFileSync(bare, 'export const other = () => 1')
const asDefault = join(folder, 'default.mjs')
writeFileSync(asDefault, 'export default ({ n }) => n * 3')
writeFileSync(
  module,
  `
import { connect } from 'node:net'
import { threadId } from 'node:worker_threads'

export const run = ({ n }) => n * 2
export const thread = async () => threadId
export function* count({ n }, context) {
  for (let i = 1; i <= n; i++) {
    context.progress({ progress: i, total: n })
    yield { i }
  }
  return { counted: n }
}
export async function* slowly() { yield 1; yield Buffer.from('bytes'); return Buffer.from('end') }
export const look = (params, context) => {
  context.log.info({ params, cannot: () => {} }, 'In the thread.')
  return { params, call: context.call, caller: context.caller.id, keys: Object.keys(context).sort() }
}
// Tells the test that it runs by a connection, which closes when the thread is gone.
export const spin = async ({ port }) => {
  const socket = connect(port, '127.0.0.1')
  await new Promise((resolve) => socket.once('connect', resolve))
  for (;;) {}
}
export async function* yieldThenSpin({ port }) {
  const socket = connect(port, '127.0.0.1')
  await new Promise((resolve) => socket.once('connect', resolve))
  yield 1
  for (;;) {}
}
export const progressOf = ({ kind }, context) => {
  const odd = { bigint: 1n, nan: NaN, infinite: Infinity, text: 'half', none: undefined }
  context.progress({ progress: odd[kind] })
}
export const progressFn = (params, context) => context.progress({ progress: 1, note: () => {} })
export const tell = ({ odd }, { notice }) => {
  notice({ level: 'info', data: { n: 1 } })
  notice(odd ?? { level: 'error', data: 'two', logger: 'thread' })
}
export const tellFn = (params, { notice }) => notice({ level: 'info', data: () => {} })
export const steady = (params, context) => {
  context.progress({ progress: 1 })
  for (;;) {}
}
export const flood = (params, context) => {
  for (let i = 0; i <= 1e6; i++) context.progress({ progress: i })
  for (let i = 0; i <= 1e5; i++) context.log.info({ i }, 'line')
}
export const exit = () => process.exit(3)
export const uncaught = () => new Promise(() => { setTimeout(() => { throw new Error('later') }) })
export const memory = () => { const all = []; for (;;) all.push(new Array(10_000).fill({})) }
export const throws = () => { throw new RangeError('Not that far.') }
export const text = () => { throw 'Just no.' }
export const coded = () => { throw Object.assign(new Error('Later.'), { name: 'ConvokeError', code: 'rate_limited', retryAfterMs: 9, retryable: true }) }
export const big = () => ({ a: 1n })
export const fn = () => ({ a: { f() {} } })
export function* fnChunk() { yield { f() {} } }
export const notAFunction = 5
`,
)

afterAll(async () => {
  await closeIdleWorkers()
  rmSync(folder, { recursive: true })
})

function managerFor(blocking: { module?: string | URL; export?: string; maxMemoryMb?: number } = {}) {
  const lines: { details: object; message: string }[] = []
  const line = (details: object, message: string): void => void lines.push({ details, message })
  const registry = new LocalToolRegistry()
  registry.register(
    defineTool({ name: 'work', description: 'Works.', input: { type: 'object' }, blocking: { module, ...blocking } }),
  )
  return { lines, manager: new ToolManager({ registry, log: { debug: line, info: line, warn: line, error: line } }) }
}

async function failureOf(promise: Promise<unknown>): Promise<unknown> {
  return await promise.then(
    () => undefined,
    (thrown: unknown) => thrown,
  )
}

async function eventsOf(stream: AsyncIterable<ToolEvent>): Promise<ToolEvent[]> {
  const events: ToolEvent[] = []
  for await (const event of stream) events.push(event)
  return events
}

/** A tool that spins, and the connection that lives as long as its thread. */
async function spinning() {
  const server = createServer()
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  const connected = once(server, 'connection') as Promise<[Socket]>
  const { port } = server.address() as AddressInfo
  return { port, connected, server }
}

test('a function in a thread gives its result, and `run` is its default name', async () => {
  expect(await managerFor().manager.call('work', { n: 21 })).toBe(42)
  expect(await managerFor({ module: pathToFileURL(module) }).manager.call('work', { n: 1 })).toBe(2)
})

test('a module without `run` has its default export run', async () => {
  expect(await managerFor({ module: asDefault }).manager.call('work', { n: 2 })).toBe(6)
})

test('an idle thread takes the next call', async () => {
  const { manager } = managerFor({ export: 'thread' })
  const first = await manager.call('work')
  expect(await manager.call('work')).toBe(first)
  const [a, b] = await Promise.all([manager.call('work'), manager.call('work')])
  expect(a).not.toBe(b)
})

test('a generator in a thread streams chunks, progress and bytes', async () => {
  const events = await eventsOf(managerFor({ export: 'count' }).manager.stream('work', { n: 100 }))
  const chunks = events.filter((event) => event.type === 'chunk').map(({ chunk }) => chunk)
  expect(chunks).toEqual(Array.from({ length: 100 }, (_, i) => ({ i: i + 1 })))
  expect(events.at(-1)).toEqual({ type: 'result', result: { counted: 100 } })
  expect(events.some((event) => event.type === 'progress')).toBe(true)
  expect(await eventsOf(managerFor({ export: 'slowly' }).manager.stream('work'))).toEqual([
    { type: 'chunk', chunk: 1 },
    { type: 'chunk', chunk: new Uint8Array(Buffer.from('bytes')) },
    { type: 'result', result: new Uint8Array(Buffer.from('end')) },
  ])
})

test('the thread waits for a slow reader', async () => {
  const { manager } = managerFor({ export: 'count' })
  let furthest = 0
  const stream = manager.stream('work', { n: 100_000 })
  const read = async () => {
    const { value } = await stream.next()
    if (value?.type === 'progress') furthest = value.progress
  }
  for (let i = 0; i < 3; i++) await read()
  // Another thread starts, works and ends meanwhile: time for thousands of chunks.
  expect(await managerFor().manager.call('work', { n: 1 })).toBe(2)
  await managerFor({ export: 'memory', maxMemoryMb: 16 }).manager.tryCall('work')
  for (let i = 0; i < 10; i++) await read()
  expect(furthest).toBeGreaterThan(0)
  expect(furthest).toBeLessThan(100)
  await stream.return()
})

test('the context in a thread has the call, the caller, progress, notice and log', async () => {
  const { manager, lines } = managerFor({ export: 'look' })
  expect(await manager.call('work', { a: 1 }, { call: { id: 'c1' }, caller: { id: 'ada', scopes: [] } })).toEqual({
    params: { a: 1 },
    call: { id: 'c1' },
    caller: 'ada',
    keys: ['call', 'caller', 'deadline', 'log', 'notice', 'progress'],
  })
  expect(lines).toEqual([{ details: {}, message: 'In the thread.' }])
})

test('an endless loop ends when its call is cancelled: the call at once, the thread with it', async () => {
  const { port, connected, server } = await spinning()
  const { manager } = managerFor({ export: 'spin' })
  const controller = new AbortController()
  const calling = failureOf(manager.call('work', { port }, { signal: controller.signal }))
  const [socket] = await connected
  const closed = once(
    socket.resume().on('error', () => {}),
    'close',
  )
  controller.abort()
  expect(await calling).toMatchObject({ code: 'canceled' })
  await closed
  server.close()
  expect(await managerFor().manager.call('work', { n: 1 })).toBe(2)
})

test('an endless loop ends when its deadline passes', async () => {
  const { port, connected, server } = await spinning()
  const calling = failureOf(managerFor({ export: 'spin' }).manager.call('work', { port }, { timeoutMs: 1000 }))
  const [socket] = await connected
  const closed = once(
    socket.resume().on('error', () => {}),
    'close',
  )
  expect(await calling).toMatchObject({ code: 'timeout' })
  await closed
  server.close()
})

test('an endless loop behind a chunk ends when its reader leaves', async () => {
  const { port, connected, server } = await spinning()
  const stream = managerFor({ export: 'yieldThenSpin' }).manager.stream('work', { port })
  expect((await stream.next()).value).toEqual({ type: 'chunk', chunk: 1 })
  await stream.return()
  const [socket] = await connected
  if (!socket.destroyed)
    await once(
      socket.resume().on('error', () => {}),
      'close',
    )
  server.close()
})

test.each([
  [
    'ends the process',
    { export: 'exit' },
    "The tool's worker thread ended itself (exit code 3) before it had a result.",
  ],
  ['throws where nobody catches', { export: 'uncaught' }, 'The tool crashed its worker thread.'],
  [
    'takes too much memory',
    { export: 'memory', maxMemoryMb: 32 },
    'The tool needed more than its 32 MB of memory, and was ended.',
  ],
  ['throws an Error', { export: 'throws' }, 'Not that far.'],
  ['throws a text', { export: 'text' }, 'Just no.'],
  [
    'has no such export',
    { export: 'none' },
    'The module of this blocking tool has no function `none` among its exports.',
  ],
  [
    'exports neither run nor default',
    { module: bare },
    'The module of this blocking tool has no function `run`, and no default one, among its exports.',
  ],
  ['exports no function', { export: 'notAFunction' }, 'has no function `notAFunction`'],
  [
    'has no module',
    { module: join(folder, 'none.mjs') },
    'The module of this blocking tool cannot be loaded. The log says why.',
  ],
])('a blocking tool that %s is tool_failed with a sentence, and the next call is served', async (_, blocking, said) => {
  expect(await failureOf(managerFor(blocking).manager.call('work'))).toMatchObject({
    code: 'tool_failed',
    message: expect.stringContaining(said),
  })
  expect(await managerFor().manager.call('work', { n: 2 })).toBe(4)
})

test('errors with a code keep it, and values that are not JSON are invalid_result', async () => {
  expect(await failureOf(managerFor({ export: 'coded' }).manager.call('work'))).toMatchObject({
    code: 'rate_limited',
    retryAfterMs: 9,
  })
  const at = async (name: string) => await failureOf(managerFor({ export: name }).manager.call('work'))
  expect(await at('big')).toMatchObject({ code: 'invalid_result', issues: [{ path: '/a' }] })
  expect(await at('fn')).toMatchObject({ code: 'invalid_result', issues: [{ path: '/a/f' }] })
  expect(await at('fnChunk')).toMatchObject({ code: 'invalid_result', issues: [{ path: '/f' }] })
})

test('a loop that floods progress and log does not flood the node', async () => {
  const { manager, lines } = managerFor({ export: 'flood' })
  const events = await eventsOf(manager.stream('work'))
  expect(events.at(-2)).toEqual({ type: 'progress', progress: 1e6 })
  expect(events.length).toBeLessThan(100_000)
  expect(lines.length).toBeLessThan(100_000)
})

test.each([
  ['bigint', 'a BigInt is not JSON'],
  ['nan', 'NaN is not a JSON number'],
  ['infinite', 'Infinity is not a JSON number'],
  ['text', 'must be a number'],
  ['none', 'must be a number'],
])('progress that is no number (%s) fails its call alone', async (kind, said) => {
  const failure = await failureOf(managerFor({ export: 'progressOf' }).manager.call('work', { kind }))
  expect(failure).toMatchObject({ code: 'tool_failed', message: expect.stringContaining(`/progress: ${said}`) })
  expect(await managerFor().manager.call('work', { n: 2 })).toBe(4)
})

test('progress with more in it than can be sent fails its call alone', async () => {
  expect(await failureOf(managerFor({ export: 'progressFn' }).manager.call('work'))).toMatchObject({
    code: 'tool_failed',
    message: expect.stringContaining('/note: a function is not JSON'),
  })
  expect(await managerFor().manager.call('work', { n: 2 })).toBe(4)
})

test('what a thread says for the log of its caller reaches the caller', async () => {
  const { manager } = managerFor({ export: 'tell' })
  expect(await eventsOf(manager.stream('work'))).toEqual([
    { type: 'log', level: 'info', data: { n: 1 } },
    { type: 'log', level: 'error', data: 'two', logger: 'thread' },
    { type: 'result', result: null },
  ])
  const odd = { level: 'loud', data: 'x' }
  expect(await failureOf(eventsOf(manager.stream('work', { odd })))).toMatchObject({ code: 'invalid_result' })
  expect(await failureOf(managerFor({ export: 'tellFn' }).manager.call('work'))).toMatchObject({
    code: 'tool_failed',
    message: expect.stringContaining('/data: a function is not JSON'),
  })
})

test('progress that the node cannot take ends the call and its thread, not the process', async () => {
  const tool = defineTool({
    name: 'work',
    description: 'Works.',
    input: { type: 'object' },
    blocking: { module, export: 'steady' },
  })
  const refuse = (): void => {
    throw new Error('The disk is full.')
  }
  const context = {
    signal: new AbortController().signal,
    deadline: undefined,
    caller: { id: 'ada', scopes: [] },
    call: { id: 'c1' },
    progress: refuse,
  } as unknown as ToolContext
  expect(await failureOf(tool.run({}, context).next())).toMatchObject({ code: 'internal' })
  expect(await managerFor().manager.call('work', { n: 2 })).toBe(4)
})

test('params that cannot cross to a thread fail their call alone', async () => {
  const registry = new LocalToolRegistry()
  const input = {
    type: 'object',
    '~standard': {
      version: 1,
      vendor: 'test',
      validate: () => ({ value: { f() {} } }),
      jsonSchema: { input: () => ({ type: 'object' }) },
    },
  }
  registry.register(defineTool({ name: 'work', description: 'Works.', input: input as never, blocking: { module } }))
  const manager = new ToolManager({ registry })
  expect(await failureOf(manager.call('work'))).toMatchObject({ code: 'tool_failed' })
  expect(await managerFor().manager.call('work', { n: 2 })).toBe(4)
})

test('idle threads do not keep the process alive', async () => {
  const script = join(folder, 'script.mjs')
  const dist = (path: string): string => JSON.stringify(new URL(`../dist/tools/${path}`, import.meta.url).href)
  writeFileSync(
    script,
    `
import { defineTool } from ${dist('define.js')}
import { LocalToolRegistry } from ${dist('local.js')}
const registry = new LocalToolRegistry()
registry.register(defineTool({ name: 'work', description: 'Works.', input: { type: 'object' }, blocking: { module: ${JSON.stringify(module)} } }))
const begin = Date.now()
console.log(await registry.call('work', { n: 2 }))
process.on('exit', () => console.log(Date.now() - begin < 8000 ? 'soon' : 'late'))
`,
  )
  const { stdout } = await promisify(execFile)(process.execPath, [script], { timeout: 30_000 })
  expect(stdout).toBe('4\nsoon\n')
})
