import { describe, expect, test } from 'vitest'
import { parseDuration } from '../dist/base/duration.js'
import { ConvokeError } from '../dist/base/errors.js'
import { createLog } from '../dist/base/log.js'
import { PeerError } from '../dist/peers/errors.js'
import type { LogLevel } from '../dist/base/log.js'

function logTo(lines: string[], level: LogLevel = 'debug', pretty = false) {
  return createLog(level, { pretty, color: false, write: (line) => lines.push(line) })
}

function onlyLine(lines: string[]): Record<string, unknown> {
  expect(lines).toHaveLength(1)
  return JSON.parse(lines[0]!) as Record<string, unknown>
}

describe('the log', () => {
  test('takes a message alone, an error alone, and nothing at all, and never throws', () => {
    const lines: string[] = []
    const log = logTo(lines)
    log.info('hello')
    log.warn(new Error('broken'))
    // What plain JavaScript may do.
    ;(log.error as () => void)()
    const [info, warn, error] = lines.map((line) => JSON.parse(line) as Record<string, unknown>)
    expect(info).toMatchObject({ level: 'info', msg: 'hello' })
    expect(warn).toMatchObject({ level: 'warn', msg: 'broken', error: { message: 'broken' } })
    expect(error).toMatchObject({ level: 'error' })
  })

  test('is one JSON line an event, with level, time, message and details', () => {
    const lines: string[] = []
    logTo(lines).info({ tool: 'echo', ms: 3 }, 'The tool ran.')
    expect(lines[0]?.endsWith('\n')).toBe(true)
    expect(onlyLine(lines)).toEqual({
      level: 'info',
      time: expect.stringMatching(/^\d{4}-.*Z$/),
      msg: 'The tool ran.',
      tool: 'echo',
      ms: 3,
    })
  })

  test.each([
    ['silent', 0],
    ['error', 1],
    ['warn', 2],
    ['info', 3],
    ['debug', 4],
  ] as const)('at level %s writes %d of four', (level, count) => {
    const lines: string[] = []
    const log = logTo(lines, level)
    for (const grade of ['error', 'warn', 'info', 'debug'] as const) log[grade]({}, 'x')
    expect(lines).toHaveLength(count)
  })

  test('takes secrets out, however deep, and leaves numbers that only sound like them', () => {
    const lines: string[] = []
    logTo(lines).info(
      {
        headers: { authorization: 'Bearer s3cret', Cookie: 's3cret', 'set-cookie': ['s3cret'], 'x-api-key': 's3cret' },
        list: [
          {
            deep: {
              apiKey: 's3cret',
              access_token: 's3cret',
              clientSecret: 's3cret',
              password: 's3cret',
              passphrase: 's3cret',
            },
          },
        ],
        map: new Map([['k', { secret: { inner: 's3cret' } }]]),
        maxTokens: 4096,
        tokens: 12,
        url: 'postgres://user:s3cret@db/x',
        text: 'sent Authorization: Bearer s3cret-s3cret to bob',
      },
      'got Bearer s3cret.s3cret',
    )
    expect(lines[0]).not.toContain('s3cret')
    expect(onlyLine(lines)).toMatchObject({ maxTokens: 4096, tokens: 12, url: 'postgres://[redacted]@db/x' })
  })

  test('writes errors with their stacks and the chain of their causes, and nothing else that hangs on them', () => {
    const lines: string[] = []
    const root = Object.assign(new Error('disk full'), { code: 'ENOSPC', request: { body: 'private' } })
    const error = new ConvokeError('unavailable', 'Cannot store it now.', {
      cause: root,
      issues: [{ path: '/a', message: 'b' }],
    })
    logTo(lines).error({ error }, 'x')
    expect(lines[0]).not.toContain('private')
    expect(onlyLine(lines)).toMatchObject({
      error: {
        name: 'ConvokeError',
        code: 'unavailable',
        message: 'Cannot store it now.',
        stack: expect.stringContaining('cli-log.test'),
        issues: [{ path: '/a', message: 'b' }],
        cause: { message: 'disk full', code: 'ENOSPC', stack: expect.any(String) },
      },
    })
  })

  test('writes failures that are no defects in one line, but at level debug', () => {
    const cause = new TypeError('fetch failed', { cause: new Error('connect\nECONNREFUSED Bearer s3cret-s3cret') })
    const down = new PeerError('network', 'bob', 'It refused the connection.', { cause })
    const broken = new ConvokeError('internal', 'Broken.', { cause })
    const lines: string[] = []
    const log = logTo(lines, 'info')
    log.warn({ error: down }, 'x')
    log.warn({ error: broken }, 'x')
    log.warn({ error: cause }, 'x')
    logTo(lines, 'info', true).warn({ error: down }, 'x')
    const [short, internal, foreign] = lines.slice(0, 3).map((line) => (JSON.parse(line) as { error: unknown }).error)
    const why = 'fetch failed: connect ECONNREFUSED Bearer [redacted]'
    expect(short).toEqual({ name: down.name, message: down.message, code: 'network', cause: why })
    const full = { stack: expect.any(String), cause: expect.objectContaining({ stack: expect.any(String) }) }
    expect(internal).toMatchObject(full)
    expect(foreign).toMatchObject(full)
    expect(lines[3]).toMatch(/^\S+ warn {2}x error="[^\n]* \(network; fetch failed: connect [^\n]*\)"\n$/)
  })

  test('takes what JSON cannot: cycles, big integers, bytes, functions, huge lists', () => {
    const lines: string[] = []
    const cycle: Record<string, unknown> = {}
    cycle['self'] = cycle
    const list = Array.from({ length: 1_000 }, () => 0)
    const bytes = new Uint8Array(3)
    logTo(lines).info({ cycle, list, big: 1n, bytes, call: () => 1, at: new Date(0), text: 'x'.repeat(1e6) }, 'x')
    expect(lines[0]!.length).toBeLessThan(20_000)
    const { list: shown, ...line } = onlyLine(lines)
    expect(shown).toHaveLength(101)
    expect(line).toMatchObject({ big: '1', bytes: '[3 bytes]', call: '[function]', at: '1970-01-01T00:00:00.000Z' })
  })

  test('stays short for a value without end, and still has the error', () => {
    const lines: string[] = []
    const wide: unknown[] = []
    for (let n = 0; n < 100; n++) wide.push(wide)
    logTo(lines).info({ wide, error: new Error('what happened') }, 'x')
    expect(lines[0]!.length).toBeLessThan(50_000)
    expect(onlyLine(lines)).toMatchObject({ error: { message: 'what happened' } })
  })

  test('moves no cursor on a terminal, whatever strangers have said', () => {
    const lines: string[] = []
    const log = logTo(lines, 'debug', true)
    const said = 'a\u001b]0;owned\u0007\u009b31m\u202eb\rc'
    log.warn({ said }, `They said ${said}.`)
    log.error({ error: new Error(said, { cause: new Error(said) }) }, 'It failed.')
    // oxlint-disable-next-line no-control-regex -- these are what must not be there
    for (const line of lines) expect(line).not.toMatch(/[\0-\b\v-\u001f\u007f-\u009f\u202e]/)
    expect(lines[0]).toContain('They said a]0;owned31mb\nc.')
  })

  test('is a short line for people on a terminal, with stacks below', () => {
    const lines: string[] = []
    const log = logTo(lines, 'debug', true)
    log.warn({ tool: 'echo', n: 1 }, 'It is slow.')
    expect(lines[0]).toMatch(/^\d\d:\d\d:\d\d warn {2}It is slow\. tool="echo" n=1\n$/)
    log.error({ error: new Error('outer', { cause: new Error('inner') }) }, 'It failed.')
    expect(lines[1]).toMatch(
      /^\d\d:\d\d:\d\d error It failed\. error="outer"\n {4}Error: outer\n {8}at [^]*\n {4}Caused by: Error: inner\n {8}at /,
    )
  })
})

describe('parseDuration', () => {
  test.each([
    ['250ms', 250],
    ['30s', 30_000],
    ['15m', 900_000],
    ['12h', 43_200_000],
    ['7d', 604_800_000],
    ['1.5h', 5_400_000],
    ['0s', 0],
    [1234, 1234],
  ])('reads %j as %d ms', (text, ms) => {
    expect(parseDuration(text)).toBe(ms)
  })

  test.each([
    '',
    '7',
    '7 d',
    '-1s',
    '1w',
    'd',
    '1e3s',
    '1h30m',
    'Infinityd',
    '9'.repeat(400) + 'd',
    -1,
    Number.NaN,
    Number.POSITIVE_INFINITY,
  ])('refuses %j', (text) => {
    expect(() => parseDuration(text, 'store.retention')).toThrow(/^store\.retention must be a number with its unit/)
  })
})
