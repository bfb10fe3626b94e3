/** `convoke agent run` as a process over real files: every output once, whatever happens to the process. */
import { spawn, type ChildProcessWithoutNullStreams } from 'node:child_process'
import { once } from 'node:events'
import { access, appendFile, readFile, rm, stat, truncate, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import type { WriteStream } from 'node:tty'
import { describe, expect, test } from 'vitest'
import { runInLanes } from '../dist/cli/agent/lanes.js'
import { RunReport } from '../dist/cli/agent/run-report.js'
import { readLines } from '../dist/cli/lines.js'
import { convoke, linesOf, main, type Run } from './support/command.ts'
import { cleanup, deferred, startNode, temporaryFolder, until, within } from './support/lifetime.ts'
import { stdioServer } from './support/mcp-servers.ts'
import { startModelServer } from './support/model-server.ts'

const entry = new URL('../dist/index.js', import.meta.url).href

/**
 * Counts the items of each key in its memory and says that with the value. `slow` is how long an item takes, in
 * milliseconds; a value `bad` fails unless there is a file `mended`; `wait` writes a file `waits` and waits for a file `go`.
 */
const agentModule = `import { existsSync, writeFileSync } from 'node:fs'
import { setTimeout as wait } from 'node:timers/promises'
import { Agent, InputEvent, OutputEvent } from ${JSON.stringify(entry)}
console.log('a module that talks')
let running = 0
let most = 0
const busy = new Set()
export class Counter extends Agent {
  constructor() {
    super()
    this.addAction('count', [InputEvent], async (event, context) => {
      const { value } = event
      if (busy.has(context.key)) throw new Error('two at once of one key')
      busy.add(context.key)
      most = Math.max(most, ++running)
      try {
        const slow = context.config.get('slow')
        if (typeof slow === 'number') await wait(slow, undefined, { signal: context.signal })
        if (value === 'bad' && !existsSync(new URL('./mended', import.meta.url))) throw new Error('It is a bad one.')
        if (value === 'wait') writeFileSync(new URL('./waits', import.meta.url), '')
        while (value === 'wait' && !existsSync(new URL('./go', import.meta.url)))
          await wait(5, undefined, { signal: context.signal })
        const n = (context.shortTermMemory.get('n') ?? 0) + 1
        context.shortTermMemory.set('n', n)
        context.sendEvent(new OutputEvent(value === 'most' ? { most } : { n, value }))
        if (value === 'twice') context.sendEvent(new OutputEvent({ again: n }))
      } finally {
        running--
        busy.delete(context.key)
      }
    })
  }
}
export default Counter
`

interface Item {
  readonly key: string
  readonly value: unknown
}

/** `count` items of `keys` keys, in turns. */
function someItems(count: number, keys: number): Item[] {
  return Array.from({ length: count }, (_, i) => ({ key: `k${i % keys}`, value: i }))
}

function toLines(items: readonly unknown[]): string {
  return items.map((item) => `${JSON.stringify(item)}\n`).join('')
}

async function folderWith(items: readonly unknown[], module = agentModule): Promise<string> {
  const folder = await temporaryFolder()
  await writeFile(join(folder, 'agent.mjs'), module)
  await writeFile(join(folder, 'items.jsonl'), toLines(items))
  return folder
}

const command = ['agent', 'run', 'agent.mjs', '--input', 'items.jsonl']
const toFile = [...command, '--out', 'out.jsonl']

function start(cwd: string, args: readonly string[]): ChildProcessWithoutNullStreams {
  const env = { PATH: process.env['PATH'], HOME: '/nonexistent' }
  const child = spawn(process.execPath, [main, ...args], { cwd, env })
  cleanup(() => child.kill('SIGKILL'))
  child.stdout.resume()
  return child
}

interface Output {
  readonly key: string
  readonly value: { readonly n: number; readonly value: unknown }
}

async function outputsIn(folder: string): Promise<Output[]> {
  return linesOf<Output>(await readFile(join(folder, 'out.jsonl'), 'utf8'))
}

/** That each key's outputs are those of its items, in their order, each counted once. */
function expectAll(outputs: readonly Output[], items: readonly Item[]): void {
  const byKey = (list: readonly Item[]): Map<string, unknown[]> => {
    const found = new Map<string, unknown[]>()
    for (const { key, value } of list) found.set(key, [...(found.get(key) ?? []), value])
    return found
  }
  const counts = new Map<string, number>()
  const wanted = items.map(({ key, value }) => {
    const n = (counts.get(key) ?? 0) + 1
    counts.set(key, n)
    return { key, value: { n, value } }
  })
  expect(outputs).toHaveLength(items.length)
  const [found, expected] = [byKey(outputs), byKey(wanted)]
  for (const [key, values] of expected) expect(found.get(key)).toEqual(values)
}

async function isThere(file: string): Promise<boolean> {
  return access(file).then(
    () => true,
    () => false,
  )
}

/** How many bytes a file has; 0 for one that is not there. */
async function sizeOf(file: string): Promise<number> {
  return stat(file).then(
    ({ size }) => size,
    () => 0,
  )
}

interface Told {
  readonly type: string
  readonly [member: string]: unknown
}

describe('a run', () => {
  test('runs each key in its order and puts all outputs into the file; nothing else is left', async () => {
    const items = someItems(500, 7)
    const cwd = await folderWith(items)
    const { code, stdout, stderr } = await convoke(toFile, { cwd })
    expect({ code, stdout }).toEqual({ code: 0, stdout: 'a module that talks\n' })
    expect(stderr).toMatch(/^500 done, 0 failed, in [\d.]+ s\.\n$/)
    expectAll(await outputsIn(cwd), items)
    expect(await isThere(join(cwd, 'items.jsonl.state.db'))).toBe(false)
  })

  test('on stdout are outputs alone, whatever a module prints; k and v will do, and a line may end with CRLF', async () => {
    const cwd = await folderWith([])
    const lines = ['\ufeff{"k":"a","v":"twice"}\r', '', '   ', '{"key":7,"value":null}', '{"k":"a","v":2}'].join('\n')
    await writeFile(join(cwd, 'items.jsonl'), lines)
    const { code, stdout, stderr } = await convoke([...command, '--concurrency', '1'], { cwd })
    expect(code).toBe(0)
    expect(linesOf(stdout)).toEqual([
      { key: 'a', value: { n: 1, value: 'twice' } },
      { key: 'a', value: { again: 1 } },
      { key: '7', value: { n: 1, value: null } },
      { key: 'a', value: { n: 2, value: 2 } },
    ])
    expect(stderr).toContain('a module that talks\n')
  })

  test('--key names the member that is the key; the whole line is the value', async () => {
    const cwd = await folderWith([{ product: 'x', stars: 5 }, { product: 3 }, { stars: 1 }])
    const { code, stdout, stderr } = await convoke([...command, '--key', 'product'], { cwd })
    expect(code).toBe(1)
    expect(linesOf<Output>(stdout).map(({ key, value }) => [key, value.value])).toEqual([
      ['x', { product: 'x', stars: 5 }],
      ['3', { product: 3 }],
    ])
    expect(stderr).toContain('items.jsonl:3: The line has no "product".\n')
  })

  test('a line that is no item is told with its place and counts as failed; the others are run', async () => {
    const cwd = await folderWith([])
    const bad = [
      '{"key":"a","value":1}',
      '{"key":"a"',
      '5',
      '{"value":1}',
      '{"key":[],"value":1}',
      '{"key":"a"}',
      '{"a":1}',
    ]
    const tooDeep = `{"key":"a","value":${'['.repeat(300)}${']'.repeat(300)}}`
    const file = join(cwd, 'items.jsonl')
    await writeFile(file, `${[...bad, tooDeep].join('\n')}\n`)
    await appendFile(file, Buffer.from([0x22, 0xff, 0x22, 0x0a]))
    await appendFile(file, '{"key":"a","value":2}')
    const { code, stdout, stderr } = await convoke(command, { cwd })
    expect(code).toBe(1)
    expect(linesOf<Output>(stdout).map(({ value }) => value.n)).toEqual([1, 2])
    const told = stderr.split('\n').filter((line) => line.startsWith('items.jsonl:'))
    expect(told).toEqual([
      expect.stringMatching(/^items\.jsonl:2: The line is no JSON: Expected .* after property value[^.]*\.$/),
      'items.jsonl:3: The line must be {"key": …, "value": …}, got 5.',
      'items.jsonl:4: The line has no "key".',
      'items.jsonl:5: The line has a "key" that is no text or number, but an array of 0.',
      'items.jsonl:6: The line has no "value".',
      'items.jsonl:7: The line has no "key" and no "value"; if one of its members is the key, name it: --key FIELD.',
      'items.jsonl:8: The line is no JSON: The JSON nests deeper than 200 levels.',
      'items.jsonl:9: The line is not UTF-8.',
    ])
    expect(stderr).toContain('2 done, 8 failed')
  })

  test('an item that fails is told with its key and code, and why is on stderr; the next of its key is run', async () => {
    const cwd = await folderWith([
      { key: 'a', value: 1 },
      { key: 'a', value: 'bad' },
      { key: 'a', value: 2 },
    ])
    const { code, stderr } = await convoke(toFile, { cwd })
    expect(code).toBe(1)
    expect((await outputsIn(cwd)).map(({ value }) => value)).toEqual([
      { n: 1, value: 1 },
      { n: 2, value: 2 },
    ])
    expect(stderr).toMatch(/items\.jsonl:2: key "a": action_failed: The action "count".*: It is a bad one\.$/m)
    expect(stderr).toMatch(
      /2 done, 1 failed, in .*\n[\s\S]*To try the rest again: convoke agent run agent\.mjs --input items/,
    )
  })

  test('no more than --concurrency items are run at once, of as many keys, though one key has most of them', async () => {
    const items = [...someItems(300, 1), ...someItems(40, 40), { key: 'last', value: 'most' }]
    const cwd = await folderWith(items)
    await writeFile(join(cwd, 'config.yaml'), 'slow: 2\n')
    const { code, stdout } = await convoke([...command, '--concurrency', '4', '--settings', 'config.yaml'], { cwd })
    expect(code).toBe(0)
    const outputs = linesOf<{ key: string; value: { most?: number } }>(stdout)
    expect(outputs).toHaveLength(items.length)
    expect(outputs.find(({ key }) => key === 'last')?.value).toEqual({ most: 4 })
    // The others did not wait for the key that has so many.
    expect(outputs.findIndex(({ key }) => key === 'last')).toBeLessThan(100)
  })

  test('-o json tells failures as they come, and a summary in the end', async () => {
    const cwd = await folderWith([{ key: 'a', value: 1 }, { key: 'b', value: 'bad' }, 5])
    const { code, stderr } = await convoke([...toFile, '-o', 'json'], { cwd })
    expect(code).toBe(1)
    const told = linesOf<Told>(stderr).filter(({ type }) => type !== 'log')
    expect(
      told.filter(({ type }) => type === 'failure').toSorted((a, b) => Number(a['line']) - Number(b['line'])),
    ).toEqual([
      {
        type: 'failure',
        line: 2,
        key: 'b',
        code: 'action_failed',
        message: expect.stringMatching(/: It is a bad one\.$/),
      },
      { type: 'failure', line: 3, key: null, code: 'invalid_params', message: expect.any(String) },
    ])
    expect(told.at(-1)).toEqual({
      type: 'summary',
      outcome: 'failed',
      done: 1,
      failed: 2,
      before: 0,
      seconds: expect.any(Number),
      outputs: 1,
      out: 'out.jsonl',
      state: 'items.jsonl.state.db',
    })
  })

  test('items of stdin are run as they come', async () => {
    const cwd = await folderWith([])
    const child = start(cwd, ['agent', 'run', 'agent.mjs', '--input', '-'])
    let out = ''
    child.stdout.on('data', (chunk: Buffer) => (out += chunk.toString()))
    const exited = once(child, 'close')
    child.stdin.write('{"key":"a","value":1}\n{"key":"a",')
    await until(() => out.endsWith('\n'), 'the first output, while stdin is open')
    child.stdin.end('"value":2}')
    expect(await within(exited, 'the run to end')).toEqual([0, null])
    expect(linesOf<Output>(out).map(({ value }) => value)).toEqual([
      { n: 1, value: 1 },
      { n: 2, value: 2 },
    ])
  })

  test('an agent that puts nothing out is told of, and is no failure', async () => {
    const module = `import { Agent, AgentEvent, InputEvent } from ${JSON.stringify(entry)}
export const agent = new Agent().addAction('score', [InputEvent], (_event, context) => context.sendEvent(new AgentEvent('scord', {})))`
    const cwd = await folderWith(someItems(3, 3), module)
    const [text, json] = [await convoke(command, { cwd }), await convoke([...command, '-o', 'json'], { cwd })]
    expect({ code: text.code, stdout: text.stdout }).toEqual({ code: 0, stdout: '' })
    expect(text.stderr).toMatch(
      /^3 done, no output, 0 failed, in [\d.]+ s\.\nNo action put out an OutputEvent; --event-log/m,
    )
    expect(linesOf<Told>(json.stderr).at(-1)).toMatchObject({ done: 3, outputs: 0 })
  })

  test('where no line is an item, nothing is kept, and nothing is said to be', async () => {
    const cwd = await folderWith(someItems(2, 2))
    const { code, stderr } = await convoke([...command, '--key', 'product'], { cwd })
    expect(code).toBe(1)
    expect(stderr).toContain('0 done, 2 failed')
    expect(stderr).not.toContain('kept')
    expect(await isThere(join(cwd, 'items.jsonl.state.db'))).toBe(false)
  })

  test('what happens goes into the event log, where trace finds it', async () => {
    const cwd = await folderWith([{ key: 'a', value: 1 }])
    await convoke([...toFile, '--event-log', 'log/events.jsonl'], { cwd })
    const { code, stdout } = await convoke(['agent', 'trace', 'log/events.jsonl', '--key', 'a'], { cwd })
    expect(code).toBe(0)
    expect(stdout).toContain('count')
  })

  test('a file that is larger than the memory is no matter', async () => {
    const filler = 'x'.repeat(4000)
    const count = 30_000
    const cwd = await folderWith([])
    const lines = Array.from({ length: count }, (_, i) => `{"key":"k${i % 500}","value":"${i}${filler}"}\n`)
    await writeFile(join(cwd, 'items.jsonl'), lines.join(''))
    const env = { NODE_OPTIONS: '--max-old-space-size=72' }
    const { code, stderr } = await convoke([...toFile, '--concurrency', '100'], { cwd, env })
    expect({ code, stderr }).toEqual({ code: 0, stderr: expect.stringContaining(`${count} done, 0 failed`) })
    expect(await sizeOf(join(cwd, 'out.jsonl'))).toBeGreaterThan(count * 4000)
  }, 120_000)
})

describe('going on', () => {
  test('kill -9, again and again: nothing is lost, nothing comes twice, and no item is run twice', async () => {
    const items = someItems(3000, 23)
    const cwd = await folderWith(items)
    await writeFile(join(cwd, 'config.yaml'), 'slow: 1\n')
    const args = [...toFile, '--concurrency', '8', '--settings', 'config.yaml']
    const out = join(cwd, 'out.jsonl')
    let kills = 0
    for (let size = 0; kills < 4; kills++) {
      const child = start(cwd, args)
      const exited = once(child, 'exit')
      const before = size
      await until(async () => (size = await sizeOf(out)) > before + 2000, 'some more outputs')
      child.kill('SIGKILL')
      await exited
      size = await sizeOf(out)
    }
    expect((await outputsIn(cwd)).length).toBeLessThan(items.length)
    const { code, stderr } = await convoke(args, { cwd })
    expect(code).toBe(0)
    const [, done = 0, before = 0] = (/^(\d+) done, 0 failed, (\d+) done before/m.exec(stderr) ?? []).map(Number)
    expect(done + before).toBe(items.length)
    expect(before).toBeGreaterThan(0)
    expectAll(await outputsIn(cwd), items)
    expect(await isThere(join(cwd, 'items.jsonl.state.db'))).toBe(false)
  }, 90_000)

  /** A run that was killed while its last item was under way. */
  async function killed(count: number): Promise<{ cwd: string; items: Item[] }> {
    const items = [...someItems(count, 3), { key: 'w', value: 'wait' }]
    const cwd = await folderWith(items)
    const child = start(cwd, toFile)
    const exited = once(child, 'exit')
    const out = join(cwd, 'out.jsonl')
    const lines = async (): Promise<number> => (await readFile(out, 'utf8').catch(() => '')).split('\n').length - 1
    await until(async () => (await lines()) === count, 'all outputs but the last')
    child.kill('SIGKILL')
    await exited
    await writeFile(join(cwd, 'go'), '')
    return { cwd, items }
  }

  test.each<[string, (out: string) => Promise<void>]>([
    ['as it was', async () => {}],
    ['cut in the middle of a line', async (out) => truncate(out, (await sizeOf(out)) - 5)],
    ['cut behind a line', async (out) => truncate(out, (await readFile(out, 'utf8')).indexOf('\n') + 1)],
    ['cut by its last line end', async (out) => truncate(out, (await sizeOf(out)) - 1)],
    ['empty', (out) => truncate(out, 0)],
    ['gone', (out) => rm(out)],
  ])('an output file that was found %s is whole in the end', async (_how, change) => {
    const { cwd, items } = await killed(250)
    await change(join(cwd, 'out.jsonl'))
    const { code, stderr } = await convoke(toFile, { cwd })
    expect({ code, stderr }).toEqual({ code: 0, stderr: expect.stringContaining('1 done, 0 failed, 250 done before') })
    expectAll(await outputsIn(cwd), items)
  })

  test.each<[string, (out: string) => Promise<void>]>([
    ['has more in it than was put out', (out) => appendFile(out, '{"key":"x","value":1}\n')],
    [
      'was changed in its middle',
      async (out) => writeFile(out, (await readFile(out, 'utf8')).replace('"n":2', '"n":3')),
    ],
  ])('an output file that %s is refused and left as it is', async (_how, change) => {
    const { cwd } = await killed(10)
    const out = join(cwd, 'out.jsonl')
    await change(out)
    const before = await readFile(out, 'utf8')
    const { code, stderr } = await convoke(toFile, { cwd })
    expect(code).toBe(2)
    expect(stderr).toContain('was changed since')
    expect(await readFile(out, 'utf8')).toBe(before)
  })

  test('Ctrl-C stops the items under way, and the line to go on is told', async () => {
    const items = [...someItems(50, 5), { key: 'w', value: 'wait' }]
    const cwd = await folderWith(items)
    const child = start(cwd, toFile)
    let stderr = ''
    child.stderr.on('data', (chunk: Buffer) => (stderr += chunk.toString()))
    const exited = once(child, 'close')
    await until(async () => (await outputsIn(cwd).catch(() => [])).length === 50, 'all outputs but the last')
    child.kill('SIGINT')
    expect(await within(exited, 'the run to end')).toEqual([130, null])
    expect(stderr).toMatch(
      /50 done, 0 failed.*\nWhat is done is kept in items\.jsonl\.state\.db\. To go on: convoke agent run agent\.mjs --input items\.jsonl --out out\.jsonl\n$/,
    )
    await writeFile(join(cwd, 'go'), '')
    expect((await convoke(toFile, { cwd })).code).toBe(0)
    expectAll(await outputsIn(cwd), items)
  })

  test('what failed is tried again at the next start, and nothing else', async () => {
    const cwd = await folderWith([
      { key: 'a', value: 'bad' },
      { key: 'a', value: 1 },
    ])
    expect((await convoke(toFile, { cwd })).code).toBe(1)
    expect((await convoke(toFile, { cwd })).code).toBe(1)
    await writeFile(join(cwd, 'mended'), '')
    const { code, stderr } = await convoke(toFile, { cwd })
    expect({ code, stderr }).toEqual({ code: 0, stderr: expect.stringContaining('1 done, 0 failed, 1 done before') })
    expect((await outputsIn(cwd)).map(({ value }) => value)).toEqual([
      { n: 1, value: 1 },
      { n: 2, value: 'bad' },
    ])
    expect(await isThere(join(cwd, 'items.jsonl.state.db'))).toBe(false)
  })

  test('an item that was under way when it was stopped is done now, also behind one of its key that failed', async () => {
    const cwd = await folderWith([
      { key: 'a', value: 'bad' },
      { key: 'a', value: 'wait' },
    ])
    const child = start(cwd, toFile)
    const exited = once(child, 'close')
    await until(() => isThere(join(cwd, 'waits')), 'the second item to begin')
    child.kill('SIGINT')
    expect(await within(exited, 'the run to end')).toEqual([130, null])
    await Promise.all(['go', 'mended'].map((file) => writeFile(join(cwd, file), '')))
    const { code, stderr } = await convoke(toFile, { cwd })
    expect({ code, stderr }).toEqual({ code: 0, stderr: expect.stringMatching(/^2 done, 0 failed, in /) })
    expect((await outputsIn(cwd)).map(({ value }) => value)).toEqual([
      { n: 1, value: 'wait' },
      { n: 2, value: 'bad' },
    ])
  })

  test('once all is done the same command begins anew, and says so of the file that is there', async () => {
    const cwd = await folderWith([{ key: 'a', value: 1 }])
    expect((await convoke(toFile, { cwd })).code).toBe(0)
    const { code, stderr } = await convoke(toFile, { cwd })
    expect(code).toBe(2)
    expect(stderr).toContain('out.jsonl is there already, and this run begins anew')
    expect(stderr).toContain('--state FILE')
    expect(await outputsIn(cwd)).toHaveLength(1)
  })

  test('--fail fast stops at the first failure, and goes on with it', async () => {
    const items = [{ key: 'a', value: 1 }, { key: 'b', value: 'bad' }, ...someItems(200, 200)]
    const cwd = await folderWith(items)
    const args = [...toFile, '--fail', 'fast', '--concurrency', '1']
    const { code, stderr } = await convoke(args, { cwd })
    expect(code).toBe(1)
    expect(stderr).toContain('1 done, 1 failed')
    await writeFile(join(cwd, 'mended'), '')
    expect((await convoke(args, { cwd })).code).toBe(0)
    expectAll(await outputsIn(cwd), items)
  })

  test('a line that was mended is run, and lines that were added are, where the state was named', async () => {
    const cwd = await folderWith([])
    const file = join(cwd, 'items.jsonl')
    await writeFile(file, '{"key":"a","value":1\n{"key":"a","value":2}\n')
    const args = [...toFile, '--state', 'run.db']
    expect((await convoke(args, { cwd })).code).toBe(1)
    await writeFile(file, '{"key":"a","value":1}\n{"key":"a","value":2}\n')
    expect((await convoke(args, { cwd })).code).toBe(0)
    await appendFile(file, '{"key":"a","value":3}\n')
    expect((await convoke(args, { cwd })).stderr).toContain('1 done, 0 failed, 2 done before')
    expect((await outputsIn(cwd)).map(({ value }) => value)).toEqual([
      { n: 1, value: 2 },
      { n: 2, value: 1 },
      { n: 3, value: 3 },
    ])
    expect(await isThere(join(cwd, 'run.db'))).toBe(true)
  })

  test('stdout has all outputs at each start', async () => {
    const cwd = await folderWith([
      { key: 'a', value: 1 },
      { key: 'b', value: 'bad' },
    ])
    const first = await convoke(command, { cwd })
    await writeFile(join(cwd, 'mended'), '')
    const second = await convoke(command, { cwd })
    expect(linesOf(first.stdout)).toHaveLength(1)
    expect(linesOf(second.stdout)).toHaveLength(2)
  })

  test('a step that was completed before the process died is not done again', async () => {
    const module = `import { appendFileSync, existsSync, writeFileSync } from 'node:fs'
import { Agent, InputEvent, OutputEvent } from ${JSON.stringify(entry)}
const at = (name) => new URL(name, import.meta.url)
export const agent = new Agent().addAction('pay', [InputEvent], async (event, context) => {
  const paid = await context.durableExecute('pay', () => {
    appendFileSync(at('./paid'), 'x')
    return 'receipt'
  })
  if (!existsSync(at('./died'))) {
    writeFileSync(at('./died'), '')
    process.kill(process.pid, 'SIGKILL')
    await new Promise(() => {})
  }
  context.sendEvent(new OutputEvent(paid))
})`
    const cwd = await folderWith([{ key: 'a', value: 1 }], module)
    expect((await convoke(toFile, { cwd })).code).toBeNull()
    expect((await convoke(toFile, { cwd })).code).toBe(0)
    expect(await readFile(join(cwd, 'paid'), 'utf8')).toBe('x')
    expect(await outputsIn(cwd)).toEqual([{ key: 'a', value: 'receipt' }])
  })

  test.each([
    ['done', `'found'`, 'x', 'found'],
    ['not done', 'undefined', 'xx', 'receipt'],
  ])('a step in whose middle the process died was %s, as its reconciler says', async (_what, found, begun, value) => {
    const module = `import { appendFileSync, existsSync, writeFileSync } from 'node:fs'
import { Agent, InputEvent, OutputEvent } from ${JSON.stringify(entry)}
const at = (name) => new URL(name, import.meta.url)
export const agent = new Agent().addAction('pay', [InputEvent], async (event, context) => {
  const pay = async () => {
    appendFileSync(at('./begun'), 'x')
    if (existsSync(at('./died'))) return 'receipt'
    writeFileSync(at('./died'), '')
    process.kill(process.pid, 'SIGKILL')
    await new Promise(() => {})
  }
  context.sendEvent(new OutputEvent(await context.durableExecute('pay', pay, { reconcile: () => ${found} })))
})`
    const cwd = await folderWith([{ key: 'a', value: 1 }], module)
    expect((await convoke(toFile, { cwd })).code).toBeNull()
    expect((await convoke(toFile, { cwd })).code).toBe(0)
    expect(await readFile(join(cwd, 'begun'), 'utf8')).toBe(begun)
    expect(await outputsIn(cwd)).toEqual([{ key: 'a', value }])
  })

  test('two at once are kept apart', async () => {
    const cwd = await folderWith([{ key: 'w', value: 'wait' }])
    const child = start(cwd, toFile)
    const exited = once(child, 'exit')
    await until(() => isThere(join(cwd, 'items.jsonl.state.db')), 'the state')
    await until(() => isThere(join(cwd, 'out.jsonl')), 'the first one to run')
    const { code, stderr } = await convoke(toFile, { cwd })
    expect(code).toBe(1)
    expect(stderr).toContain('another process has this database open')
    await writeFile(join(cwd, 'go'), '')
    expect(await within(exited, 'the first one to end')).toEqual([0, null])
  })

  test('whoever reads no further ends it, and it goes on at the next start', async () => {
    const items = someItems(2000, 50)
    const cwd = await folderWith(items)
    await writeFile(join(cwd, 'config.yaml'), 'slow: 1\n')
    const args = [...command, '--settings', 'config.yaml']
    const { code } = await convoke(args, { cwd, leaveAt: '"n":1' })
    expect(code).toBe(130)
    const again = await convoke([...args, '--out', 'out.jsonl'], { cwd })
    expect(again).toMatchObject({ code: 0, stderr: expect.stringContaining('done before') })
    expectAll(await outputsIn(cwd), items)
  })
})

describe('--config', () => {
  /** Asks the model, a tool, an MCP server and a peer of its node, and says what they said. */
  const everything = `import { Agent, InputEvent, OutputEvent } from ${JSON.stringify(entry)}
export const agent = new Agent().addAction('ask', [InputEvent], async (event, context) => {
  const model = await context.getResource('local', 'chatModelConnection')
  const bob = await context.getResource('bob', 'remoteAgent')
  let text = ''
  const request = { messages: [{ role: 'user', content: event.value }], tools: [], parameters: {} }
  for await (const each of model.chat(request, { signal: context.signal })) if (each.type === 'text') text += each.text
  context.sendEvent(new OutputEvent({
    model: text,
    tool: await context.tools.call('word_count', { text: event.value }),
    server: await context.tools.call('files.echo', { value: 7 }),
    peer: (await bob.ask('hello')).answer,
    mood: context.config.get('mood') ?? null,
  }))
})`

  async function nodeFolder(): Promise<string> {
    const model = await startModelServer(() => 'Fine.')
    const bob = await startNode({ onMessage: () => 'I am Bob.' })
    const server = await stdioServer()
    const cwd = await folderWith([{ key: 'a', value: 'one two' }], everything)
    await writeFile(
      join(cwd, 'tools.mjs'),
      `import { defineTool } from ${JSON.stringify(entry)}
export const count = defineTool({
  name: 'word_count',
  description: 'Counts words.',
  input: { type: 'object', properties: { text: { type: 'string' } } },
  run: ({ text }) => text.split(' ').length,
})`,
    )
    const config = {
      agent: { id: 'me', module: './agent.mjs', settings: { mood: 'good' } },
      models: { local: { baseUrl: model.url, model: 'tiny' } },
      tools: [{ module: './tools.mjs' }],
      mcpServers: { files: server.options },
      peers: { bob: { url: bob.url, allowPrivate: true } },
      // Taken: who listens there fails.
      server: { port: Number(new URL(model.url).port) },
    }
    await writeFile(join(cwd, 'convoke.yaml'), JSON.stringify(config))
    return cwd
  }

  test('gives the agent what its node gives it, and nothing listens', async () => {
    const cwd = await nodeFolder()
    const run = await convoke([...command, '--config', 'convoke.yaml'], { cwd })
    expect(run).toMatchObject({ code: 0, stderr: expect.stringMatching(/^1 done, 0 failed/) })
    const { value } = JSON.parse(run.stdout) as { value: object }
    expect(value).toMatchObject({ model: 'Fine.', tool: 2, peer: 'I am Bob.', mood: 'good' })
    expect(JSON.stringify(value)).toContain('7')
    // Nor is the store of the node opened.
    expect(await isThere(join(cwd, 'data/convoke.db'))).toBe(false)
    const onNode = await convoke(['chat', '--message', 'one two'], { cwd })
    expect(JSON.parse(onNode.stdout)).toEqual(value)
  })

  test('settings of its own win over those of the configuration; without it nothing of a convoke.yaml is read', async () => {
    const cwd = await nodeFolder()
    await writeFile(join(cwd, 'other.yaml'), 'mood: bad\n')
    const own = await convoke([...command, '--config', 'convoke.yaml', '--settings', 'other.yaml'], { cwd })
    expect(JSON.parse(own.stdout)).toMatchObject({ value: { mood: 'bad' } })
    const alone = await convoke(command, { cwd })
    expect(alone.code).toBe(1)
    expect(alone.stderr).toContain('no resource "local"')
  })

  test('a server that cannot be started is told, and the items that do without are run', async () => {
    const cwd = await folderWith([{ key: 'a', value: 1 }])
    const config = { agent: { id: 'me' }, mcpServers: { files: { command: 'no-such-program' } } }
    await writeFile(join(cwd, 'convoke.yaml'), JSON.stringify(config))
    const { code, stderr } = await convoke([...command, '--config', 'convoke.yaml'], { cwd })
    expect(code).toBe(0)
    expect(stderr).toContain('warning: files gives no tools: ')
  })

  test('is the configuration of a node: anything else is refused, with where it belongs', async () => {
    const cwd = await folderWith([{ key: 'a', value: 1 }])
    await writeFile(join(cwd, 'slow.yaml'), 'slow: 1\n')
    const tools = `import { Agent, defineTool } from ${JSON.stringify(entry)}
export const t = defineTool({ name: 't', description: 'T.', input: { type: 'object' }, run: () => 1 })
`
    await writeFile(join(cwd, 'tools.mjs'), tools)
    const agent = `export const agent = new Agent().addAction('a', 'input', () => {}).addResource('t', t)\n`
    await writeFile(join(cwd, 'twice.mjs'), tools + agent)
    await writeFile(
      join(cwd, 'convoke.yaml'),
      JSON.stringify({ agent: { id: 'me' }, tools: [{ module: './tools.mjs' }] }),
    )
    const [other, twice, none] = await Promise.all([
      convoke([...command, '--config', 'slow.yaml'], { cwd }),
      convoke(
        ['agent', 'run', 'twice.mjs', '--input', 'items.jsonl', '--config', 'convoke.yaml', '--state', 'twice.db'],
        { cwd },
      ),
      convoke([...command, '--config', 'none.yaml'], { cwd }),
    ])
    for (const { code } of [other, twice, none]) expect(code).toBe(2)
    expect(other.stderr).toContain('--settings FILE is for context.config.')
    expect(twice.stderr).toContain('The agent brings a tool "t", and there is one already.')
    expect(none.stderr).toContain('none.yaml')
  })
})

describe('called wrongly', () => {
  const others = `import { Agent } from ${JSON.stringify(entry)}
export const first = new Agent().addAction('start', ['input'], () => {})
export class Second extends Agent { constructor() { super(); this.addAction('start', ['input'], () => {}) } }
export class Broken extends Agent { constructor() { super(); throw new Error('No key') } }
export const agentless = 5`

  test.each<[string, string[], string | RegExp]>([
    ['no agent file', ['none.mjs', '--input', 'items.jsonl'], 'There is no file none.mjs.'],
    ['a folder as the agent', ['.', '--input', 'items.jsonl'], '. is a folder. Name a module'],
    ['a module that breaks', ['broken.mjs', '--input', 'items.jsonl'], /broken\.mjs cannot be loaded: .*nothing/],
    ['no agent by the usual names', ['others.mjs', '--input', 'items.jsonl'], /Say which: --export .*first/],
    [
      'an export that is not there',
      ['others.mjs', '--export', 'Secnd', '--input', 'items.jsonl'],
      'Did you mean "Second"?',
    ],
    [
      'an export that is no agent',
      ['others.mjs', '--export', 'agentless', '--input', 'items.jsonl'],
      'neither an Agent nor',
    ],
    [
      'a class that cannot be made',
      ['others.mjs', '--export', 'Broken', '--input', 'items.jsonl'],
      'cannot be made: No key.',
    ],
    ['no input', ['agent.mjs'], "required option '--input <file>'"],
    ['an input that is not there', ['agent.mjs', '--input', 'none.jsonl'], 'There is no file none.jsonl.'],
    ['a folder as input', ['agent.mjs', '--input', '.'], '. is a folder. --input names a file'],
    ['output over input', ['agent.mjs', '--input', 'items.jsonl', '--out', './items.jsonl'], 'are the same file'],
    [
      'output into a folder that is not there',
      ['agent.mjs', '--input', 'items.jsonl', '--out', 'no/out.jsonl'],
      'cannot be opened',
    ],
    ['output to a device', ['agent.mjs', '--input', 'items.jsonl', '--out', '/dev/null'], '/dev/null is no file.'],
    ['output over something else', ['agent.mjs', '--input', 'items.jsonl', '--out', 'agent.mjs'], 'is there already'],
    ['a concurrency of 0', ['agent.mjs', '--input', 'items.jsonl', '--concurrency', '0'], 'from 1 to 10000'],
    [
      'an unknown way to fail',
      ['agent.mjs', '--input', 'items.jsonl', '--fail', 'slow'],
      'Allowed choices are fast, continue',
    ],
    [
      'a configuration that is none',
      ['agent.mjs', '--input', 'items.jsonl', '--settings', 'bad.yaml'],
      'bad.yaml:1:5: ',
    ],
  ])('%s: exit code 2, and nothing is run', async (_what, args, words) => {
    const cwd = await folderWith([{ key: 'a', value: 1 }])
    await writeFile(join(cwd, 'others.mjs'), others)
    await writeFile(join(cwd, 'broken.mjs'), `import './nothing.mjs'`)
    await writeFile(join(cwd, 'bad.yaml'), 'a: [')
    const before = await readFile(join(cwd, 'agent.mjs'), 'utf8')
    const run: Run = await convoke(['agent', 'run', ...args], { cwd })
    expect({ code: run.code, out: run.stdout.replace('a module that talks\n', '') }).toEqual({ code: 2, out: '' })
    expect(run.stderr).toMatch(words)
    expect(run.stderr).not.toMatch(/^ +at /m)
    expect(await readFile(join(cwd, 'agent.mjs'), 'utf8')).toBe(before)
    expect(await isThere(join(cwd, 'items.jsonl.state.db'))).toBe(false)
  })

  test('an instance, a class and a named export are all agents', async () => {
    const cwd = await folderWith([{ key: 'a', value: 1 }])
    await writeFile(join(cwd, 'others.mjs'), others)
    for (const name of ['first', 'Second'])
      expect(
        (await convoke(['agent', 'run', 'others.mjs', '--export', name, '--input', 'items.jsonl'], { cwd })).code,
      ).toBe(0)
  })

  test('a state of another input, or of another --key, is refused', async () => {
    const cwd = await folderWith([{ key: 'a', value: 1 }])
    const args = [...command, '--state', 'run.db']
    expect((await convoke(args, { cwd })).code).toBe(0)
    const byKey = await convoke([...args, '--key', 'key'], { cwd })
    await writeFile(join(cwd, 'items.jsonl'), '{"key":"b","value":1}\n')
    const other = await convoke(args, { cwd })
    for (const { code, stderr } of [byKey, other]) {
      expect(code).toBe(2)
      expect(stderr).toContain('The state run.db is of a run over another input, or by another --key.')
    }
  })

  test('a state that is no state is told, and left alone', async () => {
    const cwd = await folderWith([{ key: 'a', value: 1 }])
    const { code, stderr } = await convoke([...command, '--state', 'agent.mjs'], { cwd })
    expect(code).toBe(1)
    expect(stderr).toContain('it is not a SQLite database')
    expect(await readFile(join(cwd, 'agent.mjs'), 'utf8')).toBe(agentModule)
  })
})

describe('the parts', () => {
  async function read(chunks: readonly Uint8Array[], maxBytes: number): Promise<unknown[]> {
    async function* source(): AsyncGenerator<Uint8Array> {
      for (const chunk of chunks) yield await Promise.resolve(chunk)
    }
    const lines: unknown[] = []
    for await (const line of readLines(source(), maxBytes)) lines.push(line)
    return lines
  }

  test('lines are the same, wherever their bytes are cut', async () => {
    const bytes = Buffer.from('é漢🙂\r\n\nlonger than ten\nlast')
    const expected = [
      { number: 1, text: 'é漢🙂' },
      { number: 2, text: '' },
      { number: 3, problem: 'is longer than 10 bytes' },
      { number: 4, text: 'last' },
    ]
    for (let at = 0; at <= bytes.length; at++) {
      expect(await read([bytes.subarray(0, at), bytes.subarray(at)], 10)).toEqual(expected)
    }
    expect(await read([Buffer.from('a\n')], 10)).toEqual([{ number: 1, text: 'a' }])
    expect(await read([], 10)).toEqual([])
    expect(await read([Buffer.from([0xc3, 0x28, 0x0a, 0x61])], 10)).toEqual([
      { number: 1, problem: 'is not UTF-8' },
      { number: 2, text: 'a' },
    ])
  })

  test('no more items are read than there is room for, and a key that stands still holds up nobody', async () => {
    const gate = deferred()
    let given = 0
    const done: string[] = []
    async function* source(): AsyncGenerator<{ key: string; n: number }> {
      for (; given < 5000; given++)
        yield await Promise.resolve({ key: given % 2 === 0 ? 'slow' : `k${given}`, n: given })
    }
    const { signal } = new AbortController()
    const options = { concurrency: 3, signal, sizeOf: () => 1 }
    const running = runInLanes(
      source(),
      async ({ key }) => {
        if (key === 'slow') await gate.promise
        done.push(key)
      },
      options,
    )
    await until(() => given >= 1000, 'the room to be full')
    expect(done.length).toBeGreaterThan(400)
    expect(done).not.toContain('slow')
    const stopped = given
    gate.resolve()
    await running
    expect(stopped).toBeLessThan(2100)
    expect(done).toHaveLength(5000)
  })

  test('what fails first ends the lanes, once those under way have ended', async () => {
    const ended: number[] = []
    const gate = deferred()
    const items = (async function* () {
      for (let n = 0; n < 100; n++) yield await Promise.resolve({ key: String(n), n })
    })()
    const { signal } = new AbortController()
    const running = runInLanes(
      items,
      async ({ n }) => {
        if (n === 1) throw new Error('broken')
        await gate.promise
        ended.push(n)
      },
      { concurrency: 2, signal, sizeOf: () => 1 },
    )
    // The other one ends behind the failure.
    const failed = within(running, 'the lanes to end').catch((error: unknown) => (error as Error).message)
    gate.resolve()
    expect(await failed).toBe('broken')
    expect(ended).toEqual([0])
  })

  test('on a terminal the report is one line that never gets to the edge', async () => {
    let text = ''
    const screen = { columns: 50, write: (more: string) => (text += more) } as unknown as WriteStream
    const report = new RunReport({ input: 'items.jsonl', isJson: false, hasBar: true, size: 1000 }, screen)
    cleanup(() => report.close())
    report.done({ size: 250 }, 1)
    report.failure({ line: 2, key: 'a', code: 'action_failed', message: 'It\u001b[2J broke.' }, 250)
    // The bar is drawn in its own time.
    await until(() => text !== '', 'the bar')
    const [bar = ''] = text.split('\r')
    expect(bar).toMatch(/^\[#{12}\.{12}\] 1 done, 1 failed, /)
    expect(bar.length).toBeLessThan(50)
    text = ''
    report.end('failed', {}, ['Try again.'])
    expect(text.replace('\r\u001b[K', '')).toMatch(
      /^1 done, 1 failed, in [\d.]+ s\.\nitems\.jsonl:2: key "a": action_failed: It\[2J broke\.\nTry again\.\n$/,
    )
  })
})

test('the command has help with examples, and completion', async () => {
  const [help, completion] = await Promise.all([convoke(['agent', 'run', '--help']), convoke(['completion', 'bash'])])
  expect(help.stdout).toMatch(/Examples:\n {2}convoke agent run /)
  expect(completion.stdout).toContain(`'agent run') words=`)
  expect(completion.stdout).toContain('--concurrency')
})
