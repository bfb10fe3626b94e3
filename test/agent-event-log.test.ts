import { appendFile, mkdir, readFile, readdir, rm, stat, truncate, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { ConvokeError, formatTrace, openEventLog, readTrace, toTree } from 'convoke'
import type { EventLog, EventLogEntry, EventLogOptions, Json, JsonObject, TraceRecord } from 'convoke'
import { describe, expect, test } from 'vitest'
import { AgentEvent, InputEvent } from '../dist/agent/events.js'
import { cleanup, temporaryFolder, until } from './support/lifetime.ts'

const run = { runId: 'run-1', key: 'bob' }

async function logInto(options: Partial<EventLogOptions> = {}): Promise<{ log: EventLog; file: string }> {
  const file = options.file ?? join(await temporaryFolder(), 'events.jsonl')
  const log = await openEventLog({ ...options, file })
  cleanup(() => log.close())
  return { log, file }
}

async function linesIn(file: string): Promise<JsonObject[]> {
  const text = await readFile(file, 'utf8')
  return text
    .split('\n')
    .filter((line) => line !== '')
    .map((line) => JSON.parse(line) as JsonObject)
}

function said(type: string, payload: JsonObject, by?: { eventId: string; action: string }, id = type): EventLogEntry {
  return { ...run, kind: 'event', event: new AgentEvent(type, payload, id), cause: by }
}

/** What stands in the log of a payload. */
async function shown(payload: JsonObject, options: Partial<EventLogOptions> = {}): Promise<JsonObject> {
  const { log, file } = await logInto(options)
  log.write(said('review', payload))
  await log.close()
  const [line] = await linesIn(file)
  return line?.['payload'] as JsonObject
}

describe('the event log', () => {
  test('is one JSON line an entry, with the fields that its page names', async () => {
    const { log, file } = await logInto()
    const input = new InputEvent({ text: 'hi' }, 'e1')
    log.write({ ...run, kind: 'run', phase: 'begun' })
    log.write({ ...run, kind: 'event', event: input, cause: undefined })
    log.write({ ...run, kind: 'action', action: 'score', eventId: 'e1', durationMs: 1.23456 })
    log.write(said('scored', { score: 5 }, { eventId: 'e1', action: 'score' }, 'e2'))
    const cause = new Error('GET http://bob:s3cret@shop/ with Bearer s3cret-s3cret: refused')
    const error = new ConvokeError('action_failed', 'The action "tell" failed.', { cause })
    log.write({ ...run, kind: 'action', action: 'tell', eventId: 'e2', durationMs: 7, error })
    log.write({ ...run, kind: 'run', phase: 'failed', error })
    await log.close()
    const at = expect.stringMatching(/^\d{4}-\d\d-\d\dT[\d:.]+Z$/)
    const why = 'GET http://[redacted]@shop/ with Bearer [redacted]: refused'
    const failure = { code: 'action_failed', message: 'The action "tell" failed.', cause: why }
    const head = { at, run: 'run-1', key: 'bob' }
    expect(await linesIn(file)).toEqual([
      { ...head, kind: 'run', phase: 'begun' },
      { ...head, kind: 'event', id: 'e1', type: 'input', payload: { value: { text: 'hi' } } },
      { ...head, kind: 'action', cause: { event: 'e1' }, action: 'score', duration_ms: 1.235 },
      {
        ...head,
        kind: 'event',
        id: 'e2',
        type: 'scored',
        payload: { score: 5 },
        cause: { event: 'e1', action: 'score' },
      },
      { ...head, kind: 'action', cause: { event: 'e2' }, action: 'tell', duration_ms: 7, error: failure },
      { ...head, kind: 'run', phase: 'failed', error: failure },
    ])
  })

  test.each<[EventLogOptions['level'], string[]]>([
    ['off', []],
    ['run', ['run', 'run']],
    ['event', ['run', 'event', 'action', 'event', 'run']],
    ['full', ['run', 'event', 'action', 'event', 'run']],
  ])('at level %s writes %j', async (level, kinds) => {
    const { log, file } = await logInto({ ...(level === undefined ? {} : { level }) })
    log.write({ ...run, kind: 'run', phase: 'begun' })
    log.write(said('a', {}))
    log.write({ ...run, kind: 'action', action: 'x', eventId: 'a', durationMs: 1 })
    log.write(said('b', {}, { eventId: 'a', action: 'x' }))
    log.write({ ...run, kind: 'run', phase: 'ended' })
    await log.close()
    const lines = level === 'off' ? [] : await linesIn(file)
    expect(lines.map((line) => line['kind'])).toEqual(kinds)
    // A log that is off leaves no file behind.
    expect(await readdir(join(file, '..'))).toHaveLength(level === 'off' ? 0 : 1)
  })

  test('has levels for types of events', async () => {
    const long = 'x'.repeat(3_000)
    const { log, file } = await logInto({ levels: { quiet: 'off', whole: 'full' } })
    for (const type of ['quiet', 'whole', 'other']) log.write(said(type, { long }))
    await log.close()
    const lines = await linesIn(file)
    expect(lines.map(({ type }) => type)).toEqual(['whole', 'other'])
    expect(lines[0]?.['payload']).toEqual({ long })
    expect(lines[1]?.['payload']).toEqual({ long: `${'x'.repeat(2_000)}… 1000 more characters` })
    const only = await logInto({ level: 'off', levels: { other: 'event' } })
    for (const type of ['quiet', 'toString', 'other']) only.log.write(said(type, {}))
    only.log.write({ ...run, kind: 'run', phase: 'ended' })
    await only.log.close()
    expect((await linesIn(only.file)).map(({ type }) => type)).toEqual(['other'])
  })

  test('cuts what is long in a payload, and says how much is missing', async () => {
    const deep = JSON.parse(`${'{"a":'.repeat(30)}1${'}'.repeat(30)}`) as JsonObject
    const payload = await shown(
      { text: 'abcdef', list: Array.from({ length: 100 }, (_, i) => i), deep, kept: [true, null, 1.5, ''] },
      { maxPayloadChars: 4 },
    )
    expect(payload['text']).toBe('abcd… 2 more characters')
    expect(payload['list']).toEqual([...Array(20).keys(), '… 80 more'])
    expect(JSON.stringify(payload['deep'])).toBe(`${'{"a":'.repeat(11)}"…"${'}'.repeat(11)}`)
    expect(payload['kept']).toEqual([true, null, 1.5, ''])
  })

  test.each<[string, JsonObject]>([
    ['many members', Object.fromEntries(Array.from({ length: 50_000 }, (_, i) => [`name-${i}`, i]))],
    ['many long texts', Object.fromEntries(Array.from({ length: 400 }, (_, i) => [`t${i}`, 'é"\u0000'.repeat(5_000)]))],
    [
      'lists of lists',
      { list: JSON.parse(JSON.stringify(Array(50).fill(Array(50).fill(Array(50).fill('x'))))) as Json },
    ],
    ['long names', Object.fromEntries(Array.from({ length: 400 }, (_, i) => [`${i}${'n'.repeat(9_000)}`, i]))],
  ])('never writes a long line: %s', async (_what, payload) => {
    const cut = await shown(payload)
    expect(JSON.stringify(cut).length).toBeLessThan(150_000)
    expect(JSON.stringify(cut)).toMatch(/… \d+ more/)
    // What was to be whole and cannot be is cut.
    const whole = await shown(payload, { level: 'full' })
    expect(JSON.stringify(whole).length).toBeLessThan(1_048_576)
  })

  test('takes secrets out, by name and in texts, at every level', async () => {
    const payload: JsonObject = {
      apiKey: 's3cret',
      deep: [{ password: 's3cret', Authorization: { inner: 's3cret' } }],
      header: 'Bearer s3cret-s3cret',
      url: 'https://me:s3cret@example.com/',
      arguments: '{"user": "bob", "access_token" : "s3cret \\" s3cret", "n": 1}',
      cut: `{"password":"${'s3cret'.repeat(1_000)}"}`,
      maxTokens: 5,
      tokens: 12,
    }
    for (const level of ['event', 'full'] as const) {
      const safe = await shown(payload, { level })
      expect(JSON.stringify(safe)).not.toContain('s3cret')
      expect(safe).toMatchObject({
        apiKey: '[redacted]',
        deep: [{ password: '[redacted]', Authorization: '[redacted]' }],
        header: 'Bearer [redacted]',
        url: 'https://[redacted]@example.com/',
        arguments: '{"user": "bob", "access_token":"[redacted]", "n": 1}',
        maxTokens: 5,
        tokens: 12,
      })
    }
    const { log, file } = await logInto()
    const error = new ConvokeError('model_refused', 'The endpoint refuses Bearer s3cret-s3cret now.')
    log.write({ ...run, kind: 'run', phase: 'failed', error })
    await log.close()
    expect((await linesIn(file))[0]?.['error']).toEqual({
      code: 'model_refused',
      message: 'The endpoint refuses Bearer [redacted] now.',
    })
  })

  test('is not held up by a text that is made to be slow', async () => {
    const evil = ['"a":"\\'.repeat(20_000), `"${' '.repeat(100_000)}`, '"a" '.repeat(30_000), '"\\'.repeat(50_000)]
    const begun = performance.now()
    await shown({ evil }, { level: 'full' })
    expect(performance.now() - begun).toBeLessThan(2_000)
  })

  test('is a file for this user alone, in a folder that is made', async () => {
    const file = join(await temporaryFolder(), 'a', 'b', 'events.jsonl')
    const { log } = await logInto({ file })
    log.write({ ...run, kind: 'run', phase: 'ended' })
    await log.close()
    expect((await stat(file)).mode & 0o777).toBe(0o600)
  })

  test('goes on where it was, on a line of its own when the last one was cut off', async () => {
    const file = join(await temporaryFolder(), 'events.jsonl')
    for (const half of ['', '{"at":"2030-01-', '']) {
      const { log } = await logInto({ file })
      log.write({ ...run, kind: 'run', phase: 'ended' })
      await log.close()
      await appendFile(file, half)
    }
    const lines = (await readFile(file, 'utf8')).split('\n')
    expect(lines).toHaveLength(5)
    expect(lines[2]).toBe('{"at":"2030-01-')
    expect(lines[3]).toContain('"phase":"ended"')
  })

  test('keeps one old file when the file has grown, and loses nothing between the two', async () => {
    const { log, file } = await logInto({ maxBytes: 20_000 })
    const count = 600
    for (let i = 0; i < count; i++) {
      log.write(said('tick', { i }))
      if (i % 10 === 9) await until(async () => (await readAll(file)).some((line) => line.includes(`"i":${i}}`)))
    }
    await log.close()
    expect((await readdir(join(file, '..'))).toSorted()).toEqual(['events.jsonl', 'events.jsonl.1'])
    const sizes = await Promise.all([file, `${file}.1`].map(async (each) => (await stat(each)).size))
    for (const size of sizes) expect(size).toBeLessThanOrEqual(20_000)
    const numbers = [...(await linesIn(`${file}.1`)), ...(await linesIn(file))].map(
      ({ payload }) => (payload as { i: number }).i,
    )
    expect(numbers.at(-1)).toBe(count - 1)
    expect(numbers).toEqual(numbers.map((_, i) => count - numbers.length + i))
    expect(numbers.length).toBeLessThan(count)
  })

  test('puts no empty file away for a line that is longer than a file may be', async () => {
    const { log, file } = await logInto({ maxBytes: 10 })
    log.write(said('tick', { i: 0 }))
    await log.close()
    expect(await readdir(join(file, '..'))).toEqual(['events.jsonl'])
    expect(await linesIn(file)).toHaveLength(1)
  })

  test('stays within its size when the old file cannot be put away, tells the log once, and goes on when it can', async () => {
    const warnings: unknown[] = []
    const silent = { debug() {}, info() {}, error() {} }
    const { log, file } = await logInto({
      maxBytes: 1_000,
      log: { ...silent, warn: (details) => warnings.push(details) },
    })
    await mkdir(`${file}.1`)
    for (let i = 0; i < 30; i++) log.write(said('tick', { i }))
    await until(() => warnings.length > 0)
    log.write(said('tick', { i: 30 }))
    // A file that somebody has moved away is begun anew.
    await rm(file, { force: true })
    await rm(`${file}.1`, { recursive: true })
    await until(async () => {
      log.write(said('tock', {}))
      return (await readAll(file)).some((line) => line.includes('dropped'))
    })
    await log.close()
    expect(warnings).toEqual([{ error: expect.objectContaining({ code: expect.stringMatching(/^E/) }), file }])
    expect((await stat(file)).size).toBeLessThanOrEqual(1_100)
  })

  test('writes a burst in order, and close waits for all of it', async () => {
    const { log, file } = await logInto()
    for (let i = 0; i < 20_000; i++) log.write(said('tick', { i }))
    await log.close()
    const lines = await linesIn(file)
    expect(lines.map(({ payload }) => (payload as { i: number }).i)).toEqual([...Array(20_000).keys()])
    log.write(said('late', {}))
    await log.close()
    expect(await linesIn(file)).toHaveLength(20_000)
  })

  test('drops what does not fit into its queue, and a line says how much', async () => {
    const { log, file } = await logInto({ level: 'full' })
    const text = 'x'.repeat(500_000)
    for (let i = 0; i < 30; i++) log.write(said('big', { i, text }))
    await log.close()
    const lines = await linesIn(file)
    const numbers = lines.flatMap(({ kind, payload }) => (kind === 'event' ? [(payload as { i: number }).i] : []))
    const dropped = lines.filter(({ kind }) => kind === 'dropped')
    expect(numbers).toEqual([...Array(16).keys()])
    expect(dropped).toEqual([{ at: expect.any(String), kind: 'dropped', dropped: 14 }])
  })

  test('never throws, whatever it is given', async () => {
    const { log, file } = await logInto()
    log.write(undefined as unknown as EventLogEntry)
    log.write({ ...run, kind: 'event', event: null, cause: undefined } as unknown as EventLogEntry)
    log.write({ ...run, kind: 'run', phase: 'ended' })
    await log.close()
    expect((await linesIn(file)).map(({ kind, dropped }) => [kind, dropped])).toEqual([
      ['run', undefined],
      ['dropped', 2],
    ])
  })

  test.skipIf(process.platform !== 'linux')('tells the log once that the disk is full, and goes on', async () => {
    const warnings: unknown[] = []
    const silent = { debug() {}, info() {}, error() {} }
    const log = await openEventLog({
      file: '/dev/full',
      log: { ...silent, warn: (details) => warnings.push(details) },
    })
    for (let i = 0; i < 3; i++) {
      log.write(said('tick', { i }))
      await until(() => warnings.length > 0)
    }
    await log.close()
    expect(warnings).toEqual([{ error: expect.objectContaining({ code: 'ENOSPC' }), file: '/dev/full' }])
  })

  test.each<[Partial<EventLogOptions>, string]>([
    [{ file: '' }, 'The file of the event log must be a path, got "".'],
    [{ level: 'debug' as 'run' }, 'The level of the event log must be off, run, event or full, got "debug".'],
    [
      { levels: { chat_request: 'run' as 'off' } },
      'The level of "chat_request" in the event log must be off, event or full, got "run".',
    ],
    [{ maxPayloadChars: -1 }, 'maxPayloadChars of the event log must be a whole number, 0 or more, got -1.'],
    [{ maxBytes: 0 }, 'maxBytes of the event log must be a whole number, 1 or more, got 0.'],
  ])('refuses %j', async (options, message) => {
    await expect(openEventLog({ file: 'unused.jsonl', ...options })).rejects.toMatchObject({ code: 'config', message })
  })

  test('says that its file cannot be opened', async () => {
    const folder = await temporaryFolder()
    await mkdir(join(folder, 'events.jsonl'))
    await expect(openEventLog({ file: join(folder, 'events.jsonl') })).rejects.toMatchObject({
      code: 'config',
      message: expect.stringContaining('cannot be opened (EISDIR)'),
    })
  })
})

/** The lines of both files, whole or not. */
async function readAll(file: string): Promise<string[]> {
  const texts = await Promise.all([`${file}.1`, file].map((each) => readFile(each, 'utf8').catch(() => '')))
  return texts.join('').split('\n')
}

const plain = (_format: string, text: string): string => text

/** A record as the log writes it. */
function record(fields: JsonObject, ms = 0): string {
  return JSON.stringify({ at: new Date(1_900_000_000_000 + ms).toISOString(), run: 'r1', key: 'bob', ...fields })
}

async function recordsOf(lines: readonly string[], end = '\n'): Promise<Awaited<ReturnType<typeof readTrace>>> {
  const file = join(await temporaryFolder(), 'events.jsonl')
  await writeFile(file, lines.join('\n') + end)
  return await readTrace(file)
}

/** The run of an agent that has a look at a review and tells the shipping. */
const reviewRun = [
  record({ kind: 'run', phase: 'begun' }),
  record({ kind: 'event', id: 'e1', type: 'input', payload: { value: 'broken on arrival' } }, 1),
  record({ kind: 'event', id: 'e2', type: 'score', payload: { stars: 1 }, cause: { event: 'e1', action: 'rate' } }, 2),
  record({ kind: 'event', id: 'e3', type: 'tell', payload: {}, cause: { event: 'e1', action: 'rate' } }, 3),
  record({ kind: 'action', cause: { event: 'e1' }, action: 'rate', duration_ms: 2.5 }, 4),
  record({ kind: 'action', cause: { event: 'e1' }, action: 'count', duration_ms: 0.04 }, 4),
  record(
    {
      kind: 'event',
      id: 'e4',
      type: 'output',
      payload: { value: { ok: true } },
      cause: { event: 'e2', action: 'store' },
    },
    5,
  ),
  record({ kind: 'action', cause: { event: 'e2' }, action: 'store', duration_ms: 120 }, 6),
  record(
    {
      kind: 'action',
      cause: { event: 'e3' },
      action: 'ship',
      duration_ms: 61_000,
      error: { code: 'action_failed', message: 'The action "ship" failed.' },
    },
    7,
  ),
  record(
    { kind: 'run', phase: 'failed', error: { code: 'action_failed', message: 'The action "ship" failed.' } },
    1_500,
  ),
]

describe('a trace', () => {
  test('shows which event and action caused which, how long it took and what failed', async () => {
    const { records } = await recordsOf(reviewRun)
    expect(formatTrace(toTree(records), plain)).toBe(
      `run r1  key bob  2030-03-17T17:46:40.000Z  failed after 1.5 s
  action_failed: The action "ship" failed.
└─ input {"value":"broken on arrival"}
   ├─ → rate 2.5 ms
   │  ├─ score {"stars":1} → store 120 ms
   │  │  └─ output {"value":{"ok":true}}
   │  └─ tell {} → ship failed after 1 min 1 s
   │       action_failed: The action "ship" failed.
   └─ → count 0.04 ms
`,
    )
  })

  test('has the lineage as data', async () => {
    const { records } = await recordsOf(reviewRun)
    const [trace, ...others] = toTree(records)
    expect(others).toEqual([])
    expect(trace).toMatchObject({
      run: 'r1',
      key: 'bob',
      attempt: 1,
      state: 'failed',
      durationMs: 1_500,
      error: { code: 'action_failed' },
    })
    const [input] = trace!.roots
    expect(input!.actions.map(({ action, events }) => [action, events.map(({ id }) => id)])).toEqual([
      ['rate', ['e2', 'e3']],
      ['count', []],
    ])
  })

  test('is of the runs and the key that are asked for', async () => {
    const lines = ['r1', 'r2', 'r3'].flatMap((run) => [
      record({ run, key: run === 'r3' ? 'eve' : 'bob', kind: 'run', phase: 'begun' }),
      record({ run, key: run === 'r3' ? 'eve' : 'bob', kind: 'run', phase: 'ended' }, 1),
    ])
    const { records } = await recordsOf(lines)
    const runs = (options?: { run?: string; key?: string }) => toTree(records, options).map(({ run }) => run)
    expect(runs()).toEqual(['r1', 'r2', 'r3'])
    expect(runs({ run: 'r2' })).toEqual(['r2'])
    expect(runs({ key: 'bob' })).toEqual(['r1', 'r2'])
    expect(runs({ run: 'r3', key: 'bob' })).toEqual([])
  })

  test('tells the runs of several keys apart that go on at once, with the same ids', async () => {
    const lines = ['a', 'b'].map((key) => record({ key, kind: 'event', id: 'e1', type: 'input', payload: { key } }))
    const { records } = await recordsOf(lines)
    expect(toTree(records).map(({ key, state, roots }) => [key, state, roots.length])).toEqual([
      ['a', 'running', 1],
      ['b', 'running', 1],
    ])
  })

  test('shows a run that was resumed twice: what was cut off, and what came then', async () => {
    const begin = [record({ kind: 'event', id: 'e1', type: 'input', payload: {} }, 1)]
    const { records } = await recordsOf([
      record({ kind: 'run', phase: 'begun' }),
      ...begin,
      record({ kind: 'run', phase: 'resumed' }, 10),
      ...begin,
      record({ kind: 'run', phase: 'ended' }, 14),
    ])
    expect(toTree(records).map(({ attempt, state }) => [attempt, state])).toEqual([
      [1, 'lost'],
      [2, 'ended'],
    ])
    expect(formatTrace(toTree(records), plain)).toBe(
      `run r1  key bob  2030-03-17T17:46:40.000Z  cut off, and resumed
└─ input {}

run r1  attempt 2  key bob  2030-03-17T17:46:40.010Z  ended after 4 ms
└─ input {}
`,
    )
  })

  test('skips and counts broken lines, and takes a half-written last one as it is', async () => {
    const lines = [
      'not JSON',
      '5',
      '{"kind":"event"}',
      record({ kind: 'event', id: 5, type: 'input', payload: {} }),
      record({ kind: 'action', action: 'x', cause: { event: 1 } }),
      record({ kind: 'run', phase: 'vanished' }),
      record({ at: 'yesterday', kind: 'run', phase: 'ended' }),
      record({ kind: 'something of tomorrow' }),
      JSON.stringify({ at: new Date(0).toISOString(), kind: 'dropped', dropped: 7 }),
      record({ kind: 'run', phase: 'begun' }),
      '',
      '{"at":"2030-01-01T00:',
    ]
    const cut = await recordsOf(lines, '')
    expect(cut).toMatchObject({ broken: 7, dropped: 7, isCut: true })
    expect(cut.records).toHaveLength(1)
    const whole = await recordsOf(lines)
    expect(whole).toMatchObject({ broken: 8, dropped: 7, isCut: false })
  })

  test('reads the file before this one, too, and only what is asked for', async () => {
    const file = join(await temporaryFolder(), 'events.jsonl')
    await writeFile(`${file}.1`, `${reviewRun.slice(0, 5).join('\n')}\n`)
    await writeFile(file, `${[...reviewRun.slice(5), record({ run: 'r2', kind: 'run', phase: 'begun' })].join('\n')}\n`)
    const { records } = await readTrace(file, { run: 'r1' })
    expect(records).toHaveLength(reviewRun.length)
    expect(toTree(records)).toEqual(toTree((await recordsOf(reviewRun)).records))
    expect((await readTrace(file, { key: 'eve' })).records).toEqual([])
  })

  test('is bounded where a file is no log: a line without an end is one broken line', async () => {
    const file = join(await temporaryFolder(), 'events.jsonl')
    await writeFile(file, '')
    await truncate(file, 200_000_000)
    await appendFile(file, `\n${record({ kind: 'run', phase: 'begun' })}\n`)
    const before = process.memoryUsage().rss
    const { records, broken } = await readTrace(file)
    expect([records.length, broken]).toEqual([1, 1])
    expect(process.memoryUsage().rss - before).toBeLessThan(120_000_000)
  })

  test('hangs events whose cause is not in the log where they belong, and survives circles and twins', async () => {
    const { records } = await recordsOf([
      record({ kind: 'event', id: 'b', type: 'scored', payload: {}, cause: { event: 'gone', action: 'rate' } }),
      record({ kind: 'event', id: 'b', type: 'scored', payload: {}, cause: { event: 'gone', action: 'rate' } }),
      record({ kind: 'action', cause: { event: 'gone' }, action: 'rate', duration_ms: 1 }),
      record({ kind: 'event', id: 'x', type: 'x', payload: {}, cause: { event: 'y', action: 'a' } }),
      record({ kind: 'event', id: 'y', type: 'y', payload: {}, cause: { event: 'x', action: 'a' } }),
      record({ kind: 'event', id: 'self', type: 'self', payload: {}, cause: { event: 'self', action: 'a' } }),
    ])
    expect(formatTrace(toTree(records), plain)).toBe(
      `run r1  key bob  2030-03-17T17:46:40.000Z  running
├─ (event gone, which is not in the log) → rate 1 ms
│  └─ scored {}
├─ y {} → a
│  └─ x {}
└─ self {}
`,
    )
  })

  test('of a loop of ten thousand rounds is made, and stays narrow', async () => {
    const rounds = 10_000
    const { records } = await recordsOf(
      Array.from({ length: rounds }, (_, i) =>
        record({
          kind: 'event',
          id: `e${i}`,
          type: 'again',
          payload: { i },
          ...(i === 0 ? {} : { cause: { event: `e${i - 1}`, action: 'loop' } }),
        }),
      ),
    )
    const text = formatTrace(toTree(records), plain)
    const lines = text.trimEnd().split('\n')
    expect(lines).toHaveLength(rounds + 1)
    expect(lines.at(-1)).toContain('again {"i":9999}')
    expect(Math.max(...lines.map(({ length }) => length))).toBeLessThan(160)
  })

  test('shows strangers’ texts on one line, short, and without what a terminal would obey', async () => {
    const { records } = await recordsOf([
      record({
        kind: 'event',
        id: 'e1',
        type: 'in\u001B[31mput\n',
        payload: { text: `a\nb\u001B[2J\u009B1m\u202E${'long '.repeat(100)}` },
      }),
      record({
        kind: 'action',
        cause: { event: 'e1' },
        action: 'a\nb',
        error: { code: 'x', message: 'one\ntwo\u0007' },
      }),
    ])
    const text = formatTrace(toTree(records), plain)
    // oxlint-disable-next-line no-control-regex -- the point
    expect(text).not.toMatch(/[\u0000-\u0009\u000B-\u001F\u007F-\u009F\u202E]/)
    expect(text.split('\n')).toHaveLength(4)
    for (const line of text.split('\n')) expect(line.length).toBeLessThan(150)
  })

  test('of a log that was written as agents write it is whole', async () => {
    const { log, file } = await logInto()
    log.write({ ...run, kind: 'run', phase: 'begun' })
    log.write(said('input', { value: 1 }))
    log.write(said('scored', {}, { eventId: 'input', action: 'rate' }))
    log.write({ ...run, kind: 'action', action: 'rate', eventId: 'input', durationMs: 3 })
    log.write({ ...run, kind: 'run', phase: 'ended' })
    await log.close()
    const { records, broken, dropped, isCut } = await readTrace(file)
    expect([broken, dropped, isCut]).toEqual([0, 0, false])
    expect(formatTrace(toTree(records), plain)).toMatch(
      /^run run-1 {2}key bob {2}\S+Z {2}ended after \S+ ms\n└─ input \{"value":1\} → rate 3 ms\n {3}└─ scored \{\}\n$/,
    )
    const kinds: TraceRecord['kind'][] = records.map(({ kind }) => kind)
    expect(kinds).toEqual(['run', 'event', 'event', 'action', 'run'])
    await rm(file)
  })
})
