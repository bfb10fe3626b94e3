import { defineTool, type Tool } from 'convoke'
import { beforeAll, describe, expect, test } from 'vitest'
import { ToolSearch } from '../dist/tools/search.js'

function tool(name: string, description: string, params: Record<string, string> = {}, traits = {}): Tool {
  const properties = Object.fromEntries(
    Object.entries(params).map(([key, about]) => [key, { type: 'string' as const, description: about }]),
  )
  return {
    ...defineTool({ name: 'x', description, input: { type: 'object', properties }, traits, run: () => null }),
    name,
  }
}

const few = [
  tool('files.read_file', 'Reads a text file whole.', { path: 'Where it lies.' }),
  tool('files.write_file', 'Writes a text file.', { path: 'Where it lies.', content: 'What it shall hold.' }),
  tool('mail.sendMessage', 'Sends an e-mail.', { recipient: 'The address of who gets it.' }, { tags: ['smtp'] }),
  tool('bank.transfer', 'Moves money between two accounts.', { iban: 'Of the recipient.' }, { category: 'finance' }),
  tool('weather', 'Tells the forecast of a city.', { city: 'Its name, such as Zürich.' }),
]

function searchOver(tools: readonly Tool[]): ToolSearch {
  const search = new ToolSearch()
  search.update(tools, 1)
  return search
}

const found = (search: ToolSearch, text: string, limit = 10): string[] =>
  search.search(text, { limit }).map(({ name }) => name)

describe('a search', () => {
  const search = searchOver(few)

  test.each([
    ['read file', 'files.read_file'],
    ['READ_FILE', 'files.read_file'],
    ['files.write_file', 'files.write_file'],
    ['send message', 'mail.sendMessage'],
    ['smtp', 'mail.sendMessage'],
    ['finance', 'bank.transfer'],
    ['iban', 'bank.transfer'],
    ['forcast', 'weather'],
    ['fore', 'weather'],
    ['zurich', 'weather'],
    ['move the money', 'bank.transfer'],
    ['account', 'bank.transfer'],
  ])('for %j finds %s first', (text, expected) => {
    expect(found(search, text)[0]).toBe(expected)
  })

  test('counts a name for more than a description, and that for more than params', () => {
    const ranked = searchOver([
      tool('a', 'Does this.', { invoice: 'It.' }),
      tool('b', 'Does an invoice.'),
      tool('invoice', 'Does that.'),
    ])
    expect(found(ranked, 'invoice')).toEqual(['invoice', 'b', 'a'])
  })

  test('for nothing, for nothing that is a word, and for what nobody has finds nothing', () => {
    for (const text of ['', '  ', '...', 'the', 'quetzalcoatl']) expect(found(search, text), text).toEqual([])
    expect(new ToolSearch().search('file')).toEqual([])
  })

  test('gives no more than it may, best first', () => {
    expect(found(search, 'file', 1)).toHaveLength(1)
    const scores = search.search('file text path').map(({ score }) => score)
    expect(scores.length).toBeGreaterThan(1)
    expect(scores).toEqual(scores.toSorted((a, b) => b - a))
    for (const limit of [0, -1, 1.5, Number.NaN])
      expect(() => search.search('file', { limit })).toThrow(/`limit` must be a whole number of 1 or more/)
  })

  test('puts the handle that was written whole first', () => {
    const alike = searchOver([
      tool('a.get_file_list', 'get file list get'),
      tool('a.get_file', 'x'),
      tool('get', 'file'),
    ])
    expect(found(alike, 'a.get_file')[0]).toBe('a.get_file')
    expect(found(alike, 'get')[0]).toBe('get')
  })

  test('takes any text for words', () => {
    for (const text of [
      'a'.repeat(100_000),
      '* ? ( [ {',
      '__proto__ constructor',
      '\ud800',
      '工具 инструмент',
      'x '.repeat(9999),
    ])
      expect(() => search.search(text), text.slice(0, 20)).not.toThrow()
    const foreign = searchOver([tool('a', 'Читает файл.'), tool('__proto__', 'constructor of toString')])
    expect(found(foreign, 'файл')).toEqual(['a'])
    expect(found(foreign, 'constructor')).toEqual(['__proto__'])
  })
})

describe('tools that change', () => {
  test('are found as they are, and no more when they are gone', () => {
    const search = searchOver(few)
    expect(found(search, 'money')).toEqual(['bank.transfer'])
    const next = few.map((each) => (each.name === 'weather' ? tool('weather', 'Tells the tide.') : each))
    search.update([...next.filter(({ name }) => name !== 'bank.transfer'), tool('new.one', 'Paints a fence.')], 2)
    expect(found(search, 'money')).toEqual([])
    expect(found(search, 'forecast')).toEqual([])
    expect(found(search, 'tide')).toEqual(['weather'])
    expect(found(search, 'fence')).toEqual(['new.one'])
    expect(found(search, 'read')).toEqual(['files.read_file'])
    search.update([], 3)
    expect(found(search, 'read')).toEqual([])
  })

  test('are not looked at again for a revision that is known', () => {
    const search = searchOver(few)
    expect(found(search, 'weather')).toEqual(['weather'])
    search.update([], 1)
    expect(found(search, 'weather')).toEqual(['weather'])
  })

  test('cost what has changed: the others are not read again', () => {
    const reads = new Map<string, number>()
    const watched = few.map((each) =>
      Object.defineProperty({ ...each }, 'description', {
        get: () => {
          reads.set(each.name, (reads.get(each.name) ?? 0) + 1)
          return each.description
        },
      }),
    )
    const search = searchOver(watched)
    expect(reads.size, 'read before the first search').toBe(0)
    search.search('file')
    expect([...reads.values()]).toEqual([1, 1, 1, 1, 1])
    search.update([...watched.slice(1), tool('other', 'Other.')], 2)
    search.search('file')
    // That which went is read to be taken out.
    expect(reads.get('files.read_file')).toBe(2)
    expect([...reads].filter(([name]) => name !== 'files.read_file').map(([, count]) => count)).toEqual([1, 1, 1, 1])
  })

  test('give the same results as an index that is built anew, whatever changes', () => {
    const words = ['read', 'write', 'invoice', 'customer', 'mail', 'picture', 'video', 'city', 'money', 'fence']
    let state = 7
    const next = (below: number): number => {
      state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0
      return Math.floor((state / 2 ** 32) * below)
    }
    const any = (n: number): Tool =>
      tool(`s.t${n}`, `${words[next(10)]} ${words[next(10)]}`, { [words[next(10)]!]: words[next(10)]! })
    const grown = new ToolSearch()
    let tools: Tool[] = Array.from({ length: 60 }, (_, n) => any(n))
    for (let revision = 1; revision <= 40; revision++) {
      grown.update(tools, revision)
      const fresh = searchOver(tools)
      for (const word of words) {
        const sorted = (search: ToolSearch): string[] => found(search, word, 100).toSorted()
        expect(sorted(grown), `${word} in revision ${revision}`).toEqual(sorted(fresh))
      }
      tools = tools.filter(() => next(10) > 0).map((each) => (next(8) === 0 ? any(Number(each.name.slice(3))) : each))
      for (let more = next(8); more > 0; more--) tools.push(any(100 * revision + more))
    }
  })
})

describe('ten thousand tools of a hundred sources', () => {
  const verbs = ['create', 'list', 'get', 'update', 'delete', 'find', 'send', 'export', 'approve', 'render']
  const nouns = ['file', 'issue', 'user', 'invoice', 'payment', 'order', 'message', 'event', 'contact', 'document']
  const said =
    'Returns the matching entries with identifiers. Use this when the user asks about the workspace. Fails without access.'
  let tools: Tool[] = []

  beforeAll(() => {
    tools = Array.from({ length: 10_000 }, (_, n) => {
      const verb = verbs[n % 10]!
      const noun = nouns[Math.floor(n / 10) % 10]!
      return tool(`s${Math.floor(n / 100)}.${verb}_${noun}_${n}`, `Can ${verb} the ${noun} number ${n}. ${said}`, {
        [`${noun}_id`]: `The ${noun} to ${verb}.`,
      })
    })
  })

  test('are indexed in slices that leave the event loop free', async () => {
    const search = searchOver(tools)
    let turns = 0
    let running = true
    const turn = (): void => {
      turns++
      if (running) setImmediate(turn)
    }
    setImmediate(turn)
    await search.prepare()
    running = false
    expect(turns).toBeGreaterThan(20)
    const times = [
      'approve invoice',
      'matching entries identifiers workspace',
      's42.get_file_4200',
      'docment rendr',
    ].map((text) => {
      const runs = Array.from({ length: 5 }, () => {
        const startedAt = performance.now()
        expect(search.search(text).length).toBe(10)
        return performance.now() - startedAt
      })
      return Math.min(...runs)
    })
    // Some 3 ms on an idle machine.
    expect(Math.max(...times)).toBeLessThan(30)
    expect(found(search, 'approve invoice', 3).every((name) => name.includes('approve_invoice'))).toBe(true)
  })

  test('may be given up, and are complete at the next search', async () => {
    const search = searchOver(tools.slice(0, 2000))
    const controller = new AbortController()
    const preparing = search.prepare({ signal: controller.signal })
    controller.abort()
    await preparing
    expect(found(search, '1999')).toEqual([tools[1999]!.name])
  })

  test('may change while they are indexed', async () => {
    const search = searchOver(tools.slice(0, 2000))
    const preparing = search.prepare()
    search.update(tools.slice(1000, 3000), 2)
    expect(found(search, '2999')).toEqual([tools[2999]!.name])
    await preparing
    expect(found(search, '2999')).toEqual([tools[2999]!.name])
    expect(found(search, '500').includes(tools[500]!.name)).toBe(false)
  })
})
