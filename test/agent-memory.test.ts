import type { Json, JsonObject } from 'convoke'
import { describe, expect, test } from 'vitest'
import { MemoryTree } from '../dist/agent/memory.js'

/** What the function throws, as `code: message`. */
function failureOf(work: () => unknown): string {
  try {
    work()
  } catch (error) {
    const { code, message } = error as { code?: string; message: string }
    return `${code}: ${message}`
  }
  return 'nothing was thrown'
}

describe('the memory of an agent', () => {
  test('keeps JSON values under dotted paths, and makes the objects on the way', () => {
    const memory = new MemoryTree()
    memory.set('order.items', ['tea'])
    memory.set('order.customer.name', 'Bob')
    memory.set('count', 0)
    memory.set('nothing', null)
    expect(memory.get('order')).toEqual({ items: ['tea'], customer: { name: 'Bob' } })
    expect(memory.get('order.customer.name')).toBe('Bob')
    expect(memory.get('count')).toBe(0)
    expect(memory.get('nothing')).toBeNull()
    expect(memory.get('order.price')).toBeUndefined()
    expect(memory.get('a.b.c')).toBeUndefined()
    expect([memory.has('order.items'), memory.has('nothing'), memory.has('order.price')]).toEqual([true, true, false])
    expect(memory.keys()).toEqual(['order', 'count', 'nothing'])
    expect(memory.keys('order')).toEqual(['items', 'customer'])
    expect([memory.keys('order.items'), memory.keys('count'), memory.keys('missing')]).toEqual([[], [], []])
    expect(memory.toJSON()).toEqual({ order: { items: ['tea'], customer: { name: 'Bob' } }, count: 0, nothing: null })
    expect(memory.toText()).toBe('{"order":{"items":["tea"],"customer":{"name":"Bob"}},"count":0,"nothing":null}')
  })

  test('puts a value over what is there, objects too, and deletes', () => {
    const memory = new MemoryTree({ order: { items: [1], note: 'x' } })
    memory.set('order', 'sold')
    expect(memory.get('order')).toBe('sold')
    expect(memory.delete('order')).toBe(true)
    expect(memory.delete('order')).toBe(false)
    expect(memory.delete('a.b')).toBe(false)
    expect(memory.toJSON()).toEqual({})
  })

  test('gives and takes copies', () => {
    const given = { list: [{ a: 1 }] }
    const start = { kept: { a: 1 } }
    const memory = new MemoryTree(start)
    start.kept.a = 2
    memory.set('value', given)
    given.list[0]!.a = 2
    const got = memory.get('value') as typeof given
    expect(got).toEqual({ list: [{ a: 1 }] })
    got.list.push({ a: 3 })
    const all = memory.toJSON()
    all['kept'] = 'changed'
    expect(memory.toJSON()).toEqual({ kept: { a: 1 }, value: { list: [{ a: 1 }] } })
    // What came out can be changed and put back: that is how a list grows.
    memory.set('value', got)
    expect(memory.get('value.list')).toEqual([{ a: 1 }, { a: 3 }])
  })

  test('goes on from the text of the last run, which it gives back letter for letter when nothing has changed', () => {
    const text = '{ "order": {"count": 1} }'
    const idle = new MemoryTree(text)
    expect(idle.get('order.count')).toBe(1)
    expect([idle.changed, idle.toText()]).toEqual([false, text])
    const busy = new MemoryTree(text)
    busy.set('order.count', 2)
    expect([busy.changed, busy.toText()]).toEqual([true, '{"order":{"count":2}}'])
    const smaller = new MemoryTree(text)
    smaller.delete('order.count')
    expect([smaller.changed, smaller.toText()]).toEqual([true, '{"order":{}}'])
  })

  test('parses the text with the first use, and says so when the store has given it nonsense', () => {
    const memory = new MemoryTree('{"order": ')
    expect(failureOf(() => memory.get('order'))).toBe('internal: The memory of this key cannot be read from the store.')
    expect(failureOf(() => new MemoryTree('[1]').keys())).toBe(
      'internal: The memory of this key in the store is no object.',
    )
  })

  test.each<[string, unknown, string]>([
    ['undefined', undefined, 'cannot be kept: undefined is not JSON; use null, or delete.'],
    ['NaN', { list: [1, Number.NaN] }, 'cannot be kept at /list/1: NaN is not a JSON number.'],
    ['a Date', { at: new Date(0) }, 'cannot be kept at /at: a Date (use toISOString()) is not JSON.'],
    ['a promise', Promise.resolve(1), 'cannot be kept: a Promise (a forgotten await?) is not JSON.'],
    ['a function', { f: () => 1 }, 'cannot be kept at /f: a function is not JSON.'],
    ['a map', [new Map()], 'cannot be kept at /0: an instance of Map is not JSON.'],
    // oxlint-disable-next-line no-sparse-arrays -- the point
    ['a hole', [1, , 3], 'cannot be kept at /1: undefined is not JSON; use null.'],
  ])('refuses %s, and stays as it was', (_what, value, why) => {
    const memory = new MemoryTree('{"a":1}')
    expect(failureOf(() => memory.set('b.c', value as Json))).toBe(`invalid_event: The value for "b.c" ${why}`)
    expect([memory.changed, memory.toText()]).toEqual([false, '{"a":1}'])
  })

  test('refuses a circle and what nests too deep', () => {
    const circle: JsonObject = {}
    circle['self'] = circle
    const memory = new MemoryTree()
    expect(failureOf(() => memory.set('a', circle))).toContain('is circular, or nests deeper than 200 levels')
    const nested = (levels: number): Json => JSON.parse(`${'['.repeat(levels)}${']'.repeat(levels)}`) as Json
    expect(failureOf(() => memory.set('a.b.c', nested(199)))).toBe(
      'invalid_event: The value for "a.b.c" cannot be kept: nests deeper than 200 levels, those of its path included.',
    )
    memory.set('a.b.c', nested(197))
    // What was taken can be taken again.
    memory.set('a', memory.get('a')!)
    expect(memory.get('a.b.c')).toEqual(nested(197))
  })

  test('leaves out members that are undefined, as JSON does', () => {
    const memory = new MemoryTree()
    memory.set('a', { b: undefined, c: 1 } as unknown as Json)
    expect(memory.toText()).toBe('{"a":{"c":1}}')
  })

  test.each(['', '.', 'a.', '.a', 'a..b', 'a.'.repeat(250)])('refuses the path "%.5s"', (path) => {
    const memory = new MemoryTree()
    const uses: ((path: string) => unknown)[] = [
      (at) => memory.get(at),
      (at) => memory.set(at, 1),
      (at) => memory.has(at),
      (at) => memory.delete(at),
      (at) => memory.keys(at),
    ]
    for (const use of uses)
      expect(failureOf(() => use(path))).toMatch(/^invalid_event: A path in memory is names with dots between them/)
    expect(failureOf(() => memory.get(7 as unknown as string))).toMatch(/^invalid_event: A path .*, got 7\.$/)
    expect(memory.toJSON()).toEqual({})
  })

  test('leads through objects only, and says what to do about anything else', () => {
    const memory = new MemoryTree({ list: [{ a: 1 }], text: 'x', none: null })
    const through = (path: string, whole: string, what: string) =>
      `invalid_event: The path "${path}" leads through "${whole}", which is ${what} and no object. ` +
      `Get "${whole}" as a whole, change it, and set it again.`
    expect(failureOf(() => memory.get('list.0'))).toBe(through('list.0', 'list', 'a list'))
    expect(failureOf(() => memory.set('list.0.a', 2))).toBe(through('list.0.a', 'list', 'a list'))
    expect(failureOf(() => memory.delete('text.length'))).toBe(through('text.length', 'text', 'a string'))
    expect(failureOf(() => memory.set('none.a.b', 1))).toBe(through('none.a.b', 'none', 'null'))
    expect(memory.has('list.0')).toBe(false)
    expect(memory.has('text.length')).toBe(false)
    expect(memory.changed).toBe(false)
  })

  test('has only what was put in: names of Object.prototype are names like any other', () => {
    const memory = new MemoryTree('{"__proto__":{"read":1}}')
    expect(memory.get('__proto__.read')).toBe(1)
    expect([memory.get('constructor'), memory.has('toString'), memory.delete('valueOf')]).toEqual([
      undefined,
      false,
      false,
    ])
    memory.set('__proto__.polluted', true)
    memory.set('a.__proto__.polluted', true)
    memory.set('constructor.prototype.polluted', true)
    memory.set('value', JSON.parse('{"__proto__":{"polluted":true}}') as Json)
    expect(({} as { polluted?: unknown }).polluted).toBeUndefined()
    expect(Object.getPrototypeOf(memory.get('value'))).toBe(Object.prototype)
    expect(memory.toText()).toBe(
      '{"__proto__":{"read":1,"polluted":true},"a":{"__proto__":{"polluted":true}},' +
        '"constructor":{"prototype":{"polluted":true}},"value":{"__proto__":{"polluted":true}}}',
    )
  })

  test('holds 1 MiB of JSON unless told otherwise, and stays as it was when something does not fit', () => {
    const memory = new MemoryTree('{"a":1}')
    // {"a":1,"b":"…"} is 14 bytes around the text.
    memory.set('b', 'x'.repeat(1_048_576 - 14))
    expect(memory.toText()).toHaveLength(1_048_576)
    const before = memory.toText()
    expect(failureOf(() => memory.set('a', 10))).toMatch(
      /^too_large: With "a" the memory would be 1048577 bytes of JSON, and may be 1048576\. Keep less in it/,
    )
    expect(failureOf(() => memory.set('c.d.e', 1))).toMatch(/^too_large: With "c\.d\.e"/)
    expect(memory.toText()).toBe(before)
    expect([memory.has('c'), memory.get('a')]).toEqual([false, 1])
    memory.delete('b')
    memory.set('c.d.e', 1)
    expect(memory.toText()).toBe('{"a":1,"c":{"d":{"e":1}}}')
  })

  test('counts bytes, not characters', () => {
    const memory = new MemoryTree(undefined, { maxBytes: 20 })
    memory.set('a', 'é'.repeat(6))
    expect(Buffer.byteLength(memory.toText())).toBe(20)
    expect(failureOf(() => memory.set('a', 'é'.repeat(7)))).toMatch(/^too_large: .* 22 bytes .* may be 20\./)
    expect(failureOf(() => memory.set('a', '\u0000\u0000\u0000'))).toMatch(/^too_large: .* 26 bytes/)
    expect(memory.get('a')).toBe('é'.repeat(6))
  })

  test('is closed when the run has ended, but for its text', () => {
    const memory = new MemoryTree('{"a":1}')
    memory.set('b', 2)
    memory.end()
    const ended =
      'run_ended: The memory was used after its run had ended. Await everything that an action begins before the action returns.'
    const uses: (() => unknown)[] = [
      () => memory.get('a'),
      () => memory.set('a', 2),
      () => memory.has('a'),
      () => memory.delete('a'),
      () => memory.keys(),
      () => memory.keys('a'),
      () => memory.toJSON(),
    ]
    for (const use of uses) expect(failureOf(use)).toBe(ended)
    expect([memory.changed, memory.toText()]).toEqual([true, '{"a":1,"b":2}'])
  })
})
