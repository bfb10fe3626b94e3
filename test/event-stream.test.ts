/** The reader of event streams, against streams cut in every way. */
import { ConvokeError } from '../dist/base/errors.js'
import { createParser } from 'eventsource-parser'
import { afterEach, describe, expect, test, vi } from 'vitest'
import { readEvents } from '../dist/base/event-stream.js'
import type { EventStreamOptions, ServerSentEvent } from '../dist/base/event-stream.js'

afterEach(() => {
  vi.useRealTimers()
})

const patient = { idleTimeoutMs: 60_000 }

/** A body of these pieces that knows what was pulled from it and whether it was left. */
function bodyOf(pieces: readonly (string | Uint8Array)[]) {
  const seen = { pulled: 0, returned: 0 }
  const body: AsyncIterable<Uint8Array> = {
    [Symbol.asyncIterator]: () => ({
      next() {
        const piece = pieces[seen.pulled]
        if (piece === undefined) return Promise.resolve({ value: undefined, done: true })
        seen.pulled++
        return Promise.resolve({ value: Buffer.from(piece), done: false })
      },
      return() {
        seen.returned++
        return Promise.resolve({ value: undefined, done: true })
      },
    }),
  }
  return { body, seen }
}

/** A body that gives one piece and then waits for ever. */
function silentAfter(piece: string) {
  const { body, seen } = bodyOf([piece])
  const iterator = body[Symbol.asyncIterator]()
  const next = () => (seen.pulled === 0 ? iterator.next() : new Promise<never>(() => {}))
  return { body: { [Symbol.asyncIterator]: () => ({ ...iterator, next }) }, seen }
}

async function batchesOf(
  pieces: readonly (string | Uint8Array)[],
  options: Partial<EventStreamOptions> = {},
): Promise<(readonly ServerSentEvent[])[]> {
  const batches: (readonly ServerSentEvent[])[] = []
  for await (const batch of readEvents(bodyOf(pieces).body, { ...patient, ...options })) batches.push(batch)
  return batches
}

async function eventsOf(pieces: readonly (string | Uint8Array)[], options?: Partial<EventStreamOptions>) {
  return (await batchesOf(pieces, options)).flat()
}

/** The error that reading ends with. */
async function failureOf(reading: Promise<unknown>): Promise<ConvokeError> {
  const error: unknown = await reading.then(
    () => undefined,
    (reason: unknown) => reason,
  )
  if (!(error instanceof ConvokeError)) throw new Error(`It did not fail as it should, but with ${String(error)}.`)
  return error
}

function cut(bytes: Buffer, size: number): Buffer[] {
  return Array.from({ length: Math.ceil(bytes.length / size) }, (_, i) => bytes.subarray(i * size, (i + 1) * size))
}

describe('a stream', () => {
  const text = [
    ': hello\n\n',
    'id: 1\ndata: plain\n\n',
    'data: two\ndata: lines\nid: 2\n\n',
    'event: x\nid: 3\ndata: {"text":"Grüße, 日本語, 🎈"}\n\n',
    'retry: 250\n\n',
    '\n\n',
    'data:no space\n\n',
    'data\n\n',
    'id: 4\n\n',
    ':comment\ndata: ï»¿ \uFEFF after a comment\n\n',
    'unknown: field\ndata: last\n\n',
    'data: unfinished',
  ].join('')
  const expected = [
    { id: '1', data: 'plain' },
    { id: '2', data: 'two\nlines' },
    { id: '3', data: '{"text":"Grüße, 日本語, 🎈"}' },
    { id: undefined, data: 'no space' },
    { id: undefined, data: '' },
    { id: undefined, data: 'ï»¿ \uFEFF after a comment' },
    { id: undefined, data: 'last' },
  ]
  const spellings = {
    LF: text,
    CRLF: text.replaceAll('\n', '\r\n'),
    CR: text.replaceAll('\n', '\r'),
    'a byte order mark': `\uFEFF${text}`,
    // In this order no LF follows a CR that ends a line of its own.
    'all kinds of line ends': text.split('\n').reduce((all, line, i) => all + ['\r', '\r\n', '\n'][i % 3] + line),
  }

  test.each(Object.entries(spellings))('with %s gives the same events, wherever it is cut', async (_, spelling) => {
    const bytes = Buffer.from(spelling)
    for (let at = 0; at <= bytes.length; at++) {
      const events = await eventsOf([bytes.subarray(0, at), bytes.subarray(at)])
      expect(events, `cut at byte ${at}`).toEqual(expected)
    }
    for (let size = 1; size < 20; size++) {
      expect(await eventsOf(cut(bytes, size)), `in pieces of ${size} bytes`).toEqual(expected)
    }
  })

  test('gives what eventsource-parser gives', async () => {
    const events: ServerSentEvent[] = []
    createParser({ onEvent: ({ id, data }) => events.push({ id, data }) }).feed(text)
    expect(await eventsOf([text])).toEqual(events)
  })

  test('comes in batches, one for each piece that completes any events', async () => {
    const pieces = ['id: 1\ndata: a\n\nid: 2\ndata: b\n\nid: 3\n', 'data: ', 'c\n\n', ':\n\n', 'data: d\n\n']
    const batches = await batchesOf(pieces)
    expect(batches.map((batch) => batch.map(({ data }) => data))).toEqual([['a', 'b'], ['c'], ['d']])
  })

  test('gives an event as soon as its empty line is there, also when that ends in CR', async () => {
    const { body, seen } = bodyOf(['data: a\r\r', '\ndata: b\r\n\r', '\n'])
    const events = readEvents(body, patient)
    expect(await events.next()).toEqual({ value: [{ id: undefined, data: 'a' }], done: false })
    expect(seen.pulled).toBe(1)
    expect(await events.next()).toEqual({ value: [{ id: undefined, data: 'b' }], done: false })
    expect(seen.pulled).toBe(2)
    expect(await events.next()).toEqual({ value: undefined, done: true })
  })

  test('keeps bytes that are no UTF-8 as replacement characters', async () => {
    const bytes = Buffer.concat([Buffer.from('data: a'), Buffer.from([0xff, 0xe6, 0x97]), Buffer.from('\n\n')])
    const long = Buffer.concat([Buffer.from(`data: ${'x'.repeat(10_000)}`), bytes.subarray(6)])
    expect(await eventsOf(cut(bytes, 1))).toEqual([{ id: undefined, data: 'a\uFFFD\uFFFD' }])
    expect(await eventsOf([long])).toEqual([{ id: undefined, data: `${'x'.repeat(10_000)}a\uFFFD\uFFFD` }])
  })

  test('may be of plain arrays of bytes', async () => {
    const { buffer } = new Uint8Array(Buffer.from('data: a\n\ndata: b\n\n'))
    async function* body() {
      yield new Uint8Array(buffer, 0, 12)
      yield new Uint8Array(buffer, 12)
    }
    const events: ServerSentEvent[] = []
    for await (const batch of readEvents(body(), patient)) events.push(...batch)
    expect(events.map(({ data }) => data)).toEqual(['a', 'b'])
  })
})

describe('a large event', () => {
  test.each([
    ['ASCII', 'x'],
    ['other scripts', '日本'],
  ])('of %s comes whole, whatever its pieces', async (_, letters) => {
    const data = JSON.stringify({ text: letters.repeat(100_000) })
    const bytes = Buffer.from(`id: 1\ndata: ${data}\n\nid: 2\ndata: next\n\n`)
    for (const size of [7, 1448, 65_536, bytes.length]) {
      expect(await eventsOf(cut(bytes, size))).toEqual([
        { id: '1', data },
        { id: '2', data: 'next' },
      ])
    }
  })

  test('is refused above the limit, wherever it is cut', async () => {
    const event = 'id: 7\ndata: 12345678\n\n'
    const bytes = Buffer.from(`data: before\n\n${event}`)
    for (let at = 0; at <= bytes.length; at++) {
      const pieces = [bytes.subarray(0, at), bytes.subarray(at)]
      expect(await eventsOf(pieces, { maxEventBytes: event.length }), `cut at byte ${at}`).toHaveLength(2)
      const { code } = await failureOf(eventsOf(pieces, { maxEventBytes: event.length - 1 }))
      expect(code, `cut at byte ${at}`).toBe('too_large')
    }
  })

  test('is refused before it is complete, in one line or in many, and the body is left', async () => {
    for (const line of ['x'.repeat(100), 'data: x\n', ': x\n']) {
      const { body, seen } = bodyOf(Array.from({ length: 1000 }, () => line))
      const reading = readEvents(body, { ...patient, maxEventBytes: 500 }).next()
      expect((await failureOf(reading)).code).toBe('too_large')
      expect(seen.pulled * line.length).toBeLessThan(700)
      expect(seen.returned).toBe(1)
    }
  })
})

describe('whoever reads', () => {
  test('gets the next piece pulled only when the batch was consumed', async () => {
    const { body, seen } = bodyOf(['data: a\n\n', 'data: b\n\n', 'data: c\n\n'])
    const pulled: number[] = []
    for await (const _ of readEvents(body, patient)) pulled.push(seen.pulled)
    expect(pulled).toEqual([1, 2, 3])
  })

  test('ends the body by leaving', async () => {
    const { body, seen } = bodyOf(['data: a\n\n', 'data: b\n\n'])
    const events = readEvents(body, patient)
    await events.next()
    await events.return()
    expect(seen).toEqual({ pulled: 1, returned: 1 })
  })

  test('gets the error of the body', async () => {
    const failure = new ConvokeError('network', 'The connection was cut.')
    async function* body() {
      yield Buffer.from('data: a\n\ndata: b')
      throw failure
    }
    const events = readEvents(body(), patient)
    expect((await events.next()).value).toHaveLength(1)
    await expect(events.next()).rejects.toBe(failure)
    expect(await events.next()).toEqual({ value: undefined, done: true })
  })

  test('leaves no timer behind', async () => {
    vi.useFakeTimers()
    await eventsOf(['data: a\n\n'])
    expect(vi.getTimerCount()).toBe(0)
  })
})

describe('silence', () => {
  test('ends the stream and leaves the body', async () => {
    vi.useFakeTimers()
    const { body, seen } = silentAfter('data: a\n\n')
    const events = readEvents(body, { idleTimeoutMs: 1000 })
    await events.next()
    const failure = failureOf(events.next())
    await vi.advanceTimersByTimeAsync(999)
    expect(seen.returned).toBe(0)
    await vi.advanceTimersByTimeAsync(1)
    expect(await failure).toMatchObject({ code: 'network', message: 'The stream fell silent for 1000 ms.' })
    expect(seen.returned).toBe(1)
    expect(vi.getTimerCount()).toBe(0)
  })

  test('ends the stream of a body that is deaf while it waits', async () => {
    vi.useFakeTimers()
    async function* body(): AsyncGenerator<Uint8Array> {
      yield Buffer.from(':\n\n')
      await new Promise(() => {})
    }
    const failure = failureOf(readEvents(body(), { idleTimeoutMs: 1000 }).next())
    await vi.advanceTimersByTimeAsync(1000)
    expect((await failure).code).toBe('network')
  })

  test('is broken by any byte, those of comments too', async () => {
    vi.useFakeTimers()
    async function* body() {
      for (const piece of [':', ' ', 'ping\n', '\n', 'data: a', '\n\n']) {
        await new Promise((resolve) => setTimeout(resolve, 900))
        yield Buffer.from(piece)
      }
    }
    const next = readEvents(body(), { idleTimeoutMs: 1000 }).next()
    await vi.advanceTimersByTimeAsync(6000)
    expect((await next).value).toEqual([{ id: undefined, data: 'a' }])
  })

  test('is not what a slow reader makes', async () => {
    vi.useFakeTimers()
    const { body } = bodyOf(['data: a\n\n', 'data: b\n\n'])
    const seen: ServerSentEvent[] = []
    const reading = (async () => {
      for await (const batch of readEvents(body, { idleTimeoutMs: 1000 })) {
        seen.push(...batch)
        await new Promise((resolve) => setTimeout(resolve, 5000))
      }
    })()
    await vi.advanceTimersByTimeAsync(10_000)
    await reading
    expect(seen).toHaveLength(2)
  })
})
