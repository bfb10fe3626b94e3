import { createHash } from 'node:crypto'
import { expect, test } from 'vitest'
import { ModelNames } from '../dist/tools/model-names.js'

const accepted = /^[A-Za-z0-9_-]{1,64}$/

function sha(text: string): string {
  return createHash('sha256').update(text).digest('hex').slice(0, 8)
}

/** The same numbers in every run (mulberry32). */
function randomFrom(seed: number): () => number {
  return () => {
    seed = (seed + 0x6d2b79f5) | 0
    let t = Math.imul(seed ^ (seed >>> 15), 1 | seed)
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t
    return ((t ^ (t >>> 14)) >>> 0) / 2 ** 32
  }
}

test('a handle that models accept stays, a dot becomes two underscores, anything else ends in a hash', () => {
  const names = new ModelNames()
  expect(names.nameOf('word_count')).toBe('word_count')
  expect(names.nameOf('bob.word-count')).toBe('bob__word-count')
  expect(names.nameOf('bob.files.read')).toBe('bob__files__read')
  expect(names.nameOf('bob__word-count')).toBe(`bob__word-count_${sha('bob__word-count')}`)
  expect(names.nameOf('bob.größe')).toBe(`bob__gr__e_${sha('bob.größe')}`)
  expect(names.nameOf('bob._x')).toBe(`bob___x_${sha('bob._x')}`)
  expect(names.nameOf('bob_.x')).toBe(`bob___x_${sha('bob_.x')}`)
  expect(names.nameOf('')).toBe(`_${sha('')}`)
})

test('a name leads back to its handle, and only names that were given out do', () => {
  const names = new ModelNames()
  expect(names.handleOf('bob__x')).toBeUndefined()
  const name = names.nameOf('bob.x')
  expect(names.handleOf(name)).toBe('bob.x')
  expect(names.handleOf('bob.x')).toBeUndefined()
  expect(names.handleOf('constructor')).toBeUndefined()
})

test('of a handle that is too long the name of the tool is kept before that of its service', () => {
  const handle = `${'s'.repeat(64)}.read_the_whole_file`
  const name = new ModelNames({ maxLength: 45 }).nameOf(handle)
  expect(name).toHaveLength(45)
  expect(name).toBe(`${'s'.repeat(15)}__read_the_whole_file_${sha(handle)}`)
  const long = new ModelNames({ maxLength: 45 }).nameOf('x'.repeat(1_000_000))
  expect(long).toBe(`${'x'.repeat(36)}_${sha('x'.repeat(1_000_000))}`)
})

test('a name begins with a letter or an underscore where that is asked for', () => {
  const names = new ModelNames({ letterFirst: true })
  expect(names.nameOf('a1.x')).toBe('a1__x')
  expect(names.nameOf('1a.x')).toBe(`_1a__x_${sha('1a.x')}`)
  expect(names.nameOf('-')).toBe(`_-_${sha('-')}`)
  expect(names.nameOf(`7${'x'.repeat(80)}`)).toMatch(/^_7x{53}_[0-9a-f]{8}$/)
})

test('a name that looks like the hashed one of another handle is not given twice', () => {
  const hashed = `a__b_${sha('a__b')}`
  const impostor = `a.b_${sha('a__b')}`
  for (const handles of [
    ['a__b', impostor],
    [impostor, 'a__b'],
  ]) {
    const names = new ModelNames()
    const [first, second] = handles.map((handle) => names.nameOf(handle))
    expect(first).toBe(hashed)
    expect(second).not.toBe(hashed)
    expect(second).toMatch(accepted)
    expect(handles.map((handle) => names.handleOf(names.nameOf(handle)))).toEqual(handles)
  }
  // Texts that are the same bytes in UTF-8.
  const names = new ModelNames()
  expect(names.nameOf('\ud800')).not.toBe(names.nameOf('\ud801'))
})

test.each([64, 45])('of 10,000 awkward handles no two share a name of %i characters', (maxLength) => {
  const random = randomFrom(maxLength)
  const alphabet = ['a', 'b', '_', '__', '.', '-', 'é', ' ', '1', 'x'.repeat(30)]
  const handles = new Set<string>()
  while (handles.size < 10_000) {
    const length = 1 + Math.floor(random() * 9)
    handles.add(Array.from({ length }, () => alphabet[Math.floor(random() * alphabet.length)]).join(''))
  }
  const names = new ModelNames({ maxLength })
  const given = new Map([...handles].map((handle) => [names.nameOf(handle), handle]))
  expect(given.size).toBe(handles.size)
  for (const [name, handle] of given) {
    expect(name).toMatch(accepted)
    expect(name.length).toBeLessThanOrEqual(maxLength)
    expect(names.handleOf(name)).toBe(handle)
  }
  // Alone, or in another order, they get the same.
  const again = new ModelNames({ maxLength })
  expect([...handles].reverse().every((handle) => again.nameOf(handle) === names.nameOf(handle))).toBe(true)
})

test('what was given out long ago is forgotten, what is in use is not', () => {
  const names = new ModelNames()
  names.nameOf('in.use')
  names.nameOf('long.gone')
  for (let i = 0; i < 220_000; i++) {
    names.nameOf(`t${i}`)
    if (i % 50_000 === 0) names.nameOf('in.use')
  }
  expect(names.handleOf('in__use')).toBe('in.use')
  expect(names.handleOf('long__gone')).toBeUndefined()
  expect(names.nameOf('long.gone')).toBe('long__gone')
})

test.each([0, 15, 20.5, Number.NaN])('a length of %d is refused', (maxLength) => {
  expect(() => new ModelNames({ maxLength })).toThrow(/`maxLength` of names must be an integer of 16 or more, got/)
})
