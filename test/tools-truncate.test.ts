import { Content, toModelText, type Json } from 'convoke'
import { describe, expect, test } from 'vitest'

const lines = (count: number): string => Array.from({ length: count }, (_, n) => `line ${n}`).join('\n')

describe('a result that fits', () => {
  test.each<[string, Json, string]>([
    ['a text', 'hello "you"', 'hello "you"'],
    ['an empty text', '', ''],
    ['an object', { a: [1, null, true] }, '{"a":[1,null,true]}'],
    ['null', null, 'null'],
    ['a number', 1.5, '1.5'],
  ])('is given whole: %s', (_, value, expected) => {
    expect(toModelText(value)).toBe(expected)
  })

  test('of several parts stands below each other, bytes and links in a line each', () => {
    const raw = Buffer.alloc(1234).toString('base64')
    const content = new Content([
      { text: 'Here it is:' },
      { data: { a: 1 } },
      { raw, mediaType: 'image/png', filename: 'a.png' },
      { raw },
      { url: 'https://a.example/x', filename: 'x', mediaType: 'text/html' },
    ])
    expect(toModelText(content).split('\n')).toEqual([
      'Here it is:',
      '{"a":1}',
      '[image "a.png": image/png, 1,234 bytes]',
      '[bytes: application/octet-stream, 1,234 bytes]',
      '[link "x": https://a.example/x, text/html]',
    ])
  })

  test('is not given twice where a server says it as text and as data', () => {
    const content = new Content([
      { text: '{ "b": [2], "a": 1 }' },
      { data: { a: 1, b: [2] } },
      { text: '{ not the same' },
    ])
    expect(toModelText(content)).toBe('{"a":1,"b":[2]}\n{ not the same')
  })

  test('may hold bytes, if that is asked for and they fit', () => {
    const bytes = new Uint8Array([1, 2, 3])
    expect(toModelText(bytes)).toBe('[bytes: application/octet-stream, 3 bytes]')
    expect(toModelText(bytes, { bytes: 'base64' })).toBe('data:application/octet-stream;base64,AQID')
    const image = new Content([{ raw: 'AQID', mediaType: 'image/png' }])
    expect(toModelText(image, { bytes: 'base64' })).toBe('data:image/png;base64,AQID')
    expect(toModelText(new Uint8Array(1000), { bytes: 'base64', maxChars: 500 })).toMatch(/^\[bytes: .* 1,000 bytes\]$/)
  })
})

describe('a result that is too long', () => {
  test('keeps head and tail of a text, and says how much is missing', () => {
    const text = lines(20_000)
    const cut = toModelText(text)
    expect(cut.length).toBeLessThanOrEqual(20_000)
    expect(cut.length).toBeGreaterThan(19_900)
    const [, head, missing, tail] = /^(.*)\n… ([\d,]+) characters left out …\n(.*)$/s.exec(cut) ?? []
    expect(text.startsWith(head!)).toBe(true)
    expect(text.endsWith(tail!)).toBe(true)
    expect(head!.length + Number(missing!.replaceAll(',', '')) + tail!.length).toBe(text.length)
    expect(missing).toContain(',')
  })

  test('halves no character', () => {
    for (let maxChars = 100; maxChars < 140; maxChars++) {
      for (const text of ['😀'.repeat(500), `x${'😀'.repeat(500)}`]) {
        const cut = toModelText(text, { maxChars })
        // A lone half of a character is written as an escape.
        expect(JSON.stringify(cut)).not.toMatch(/\\ud[89a-f]/)
        const json = toModelText([text], { maxChars })
        expect(json).not.toMatch(/\\ud[89a-f]/)
      }
    }
  })

  test('keeps the first items of an array and the number of the others', () => {
    const items = Array.from({ length: 5000 }, (_, id) => ({ id, name: `item ${id}` }))
    const parsed = JSON.parse(toModelText(items, { maxChars: 1000 })) as Json[]
    const kept = parsed.slice(0, -1)
    expect(kept.length).toBeGreaterThan(20)
    expect(kept).toEqual(items.slice(0, kept.length))
    expect(parsed.at(-1)).toBe(`… ${(5000 - kept.length).toLocaleString('en')} more items left out …`)
  })

  test('keeps what is short in an object, and cuts what is long', () => {
    const value = {
      id: 7,
      status: 'ok',
      log: lines(5000),
      note: 'short',
      list: Array.from({ length: 9999 }, () => 'abc'),
    }
    const parsed = JSON.parse(toModelText(value, { maxChars: 2000 })) as typeof value
    expect(parsed).toMatchObject({ id: 7, status: 'ok', note: 'short' })
    expect(parsed.log).toMatch(/^line 0\n.*characters left out.*line 4999$/s)
    expect(parsed.list[0]).toBe('abc')
    expect(parsed.list.at(-1)).toMatch(/more items left out/)
  })

  test('counts the members of an object that has too many', () => {
    const value = Object.fromEntries(Array.from({ length: 10_000 }, (_, n) => [`key ${n}`, n]))
    const parsed = JSON.parse(toModelText(value, { maxChars: 500 })) as Record<string, unknown>
    expect(parsed['key 0']).toBe(0)
    expect(parsed['…']).toMatch(/^[\d,]+ more members left out$/)
  })

  test('says that something lies too deep', () => {
    let deep: Json = 'bottom'
    for (let i = 0; i < 5000; i++) deep = { inner: deep }
    const cut = toModelText(deep)
    expect(() => JSON.parse(cut) as unknown).not.toThrow()
    expect(cut).toMatch(/… object of 1 left out …/)
  })

  test('shares the room among its parts', () => {
    const content = new Content([
      { text: 'short' },
      { text: lines(9000) },
      { data: Array.from({ length: 9000 }, (_, n) => n) },
    ])
    const cut = toModelText(content, { maxChars: 1000 })
    expect(cut.length).toBeLessThanOrEqual(1000)
    expect(cut).toMatch(/^short\nline 0\n.*characters left out.*\nline 8999\n\[0,1,2,.*more items left out …"\]$/s)
    const many = new Content(Array.from({ length: 5000 }, (_, n) => ({ text: `part ${n}` })))
    expect(toModelText(many, { maxChars: 1000 })).toMatch(/^part 0\n.*… 4,991 more parts left out …$/s)
  })
})

test.each([0, 99, 100.5, Number.NaN, '200'])('the longest text cannot be %j', (maxChars) => {
  expect(() => toModelText('x', { maxChars: maxChars as number })).toThrow(
    /`maxChars` must be a whole number of 100 or more/,
  )
})

test('no result is longer than it may be, and none is broken JSON', () => {
  let state = 1
  const next = (below: number): number => {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0
    return Math.floor((state / 2 ** 32) * below)
  }
  const texts = ['', 'a', '"quoted"\n', '\u0000\u0001\u0002', '😀', 'word ', '\ud800', '\\']
  let left = 0
  const value = (depth: number): Json => {
    const kind = next(depth > 5 || --left < 0 ? 4 : 7)
    if (kind === 0) return next(1e9) * (next(2) === 0 ? -1 : 1e-7)
    if (kind === 1) return [true, false, null][next(3)] ?? null
    if (kind < 4) return texts[next(texts.length)]!.repeat(next(next(4) === 0 ? 3000 : 20))
    const count = next(next(3) === 0 ? 200 : 6)
    if (kind < 6) return Array.from({ length: Math.floor(count / (depth + 1)) }, () => value(depth + 1))
    const key = (): string => texts[next(texts.length)]!.repeat(next(next(20) === 0 ? 100 : 3)) + String(next(99))
    return Object.fromEntries(Array.from({ length: Math.floor(count / (depth + 1)) }, () => [key(), value(depth + 1)]))
  }
  let cut = 0
  for (let round = 0; round < 1500; round++) {
    left = 100
    const given = round % 3 === 0 ? [value(0), value(0)] : { a: value(0), b: value(0) }
    const maxChars = 100 + next(round % 2 === 0 ? 100 : 3000)
    const text = toModelText(given, { maxChars })
    expect(text.length, `round ${round}`).toBeLessThanOrEqual(maxChars)
    expect(() => JSON.parse(text) as unknown, `round ${round}: ${text}`).not.toThrow()
    const whole = JSON.stringify(given)
    if (whole.length > maxChars) cut++
    expect(text === whole, `round ${round}`).toBe(whole.length <= maxChars)
  }
  expect(cut).toBeGreaterThan(300)
})

test('the time it takes grows with the size of the result, not faster', () => {
  const nested = (levels: number): Json => {
    let value: Json = [lines(50)]
    for (let i = 0; i < levels; i++) value = { inner: value, beside: lines(200) }
    return value
  }
  const time = (value: Json): number => {
    const times = Array.from({ length: 5 }, () => {
      const startedAt = performance.now()
      toModelText(value, { maxChars: 1000 })
      return performance.now() - startedAt
    })
    return Math.min(...times)
  }
  time(nested(20))
  // Ten times the size; a walk of all that is below at each level would take a hundred times as long.
  expect(time(nested(190)) / time(nested(19))).toBeLessThan(40)
})
