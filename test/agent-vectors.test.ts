/** Embeddings over HTTP, and the embedded vector store. */
import {
  ConvokeError,
  EmbeddedVectorStore,
  OpenAiEmbeddingModel,
  type EmbeddedVectorStoreOptions,
  type EmbeddingModel,
  type OpenAiEmbeddingOptions,
} from 'convoke'
import { readdir, readFile, rm, writeFile } from 'node:fs/promises'
import type { ServerResponse } from 'node:http'
import { join } from 'node:path'
import { inspect } from 'node:util'
import { describe, expect, test } from 'vitest'
import { cleanup, deferred, temporaryFolder, within } from './support/lifetime.ts'
import { startModelServer, type EmbeddingScript } from './support/model-server.ts'
import { failureOf } from './support/failure.ts'

const stopped = new ConvokeError('canceled', 'Enough.')

async function startEmbeddings(script?: EmbeddingScript, options: Partial<OpenAiEmbeddingOptions> = {}) {
  const server = await startModelServer([], script)
  const model = new OpenAiEmbeddingModel({ baseUrl: server.url, model: 'words', ...options })
  cleanup(() => model.close())
  return { server, model }
}

interface StoreSetup {
  readonly model: EmbeddingModel
  readonly folder?: string
}

function open({ model, folder = '/nowhere' }: StoreSetup, options: Partial<EmbeddedVectorStoreOptions> = {}) {
  const context = { getResource: () => Promise.resolve(model as never), baseDir: folder }
  const store = new EmbeddedVectorStore({ embeddingModel: 'words', ...options }, context)
  cleanup(() => store.close())
  return store
}

/** Texts that are their vectors: `1 0 0.5`. */
const numbers: EmbeddingModel = {
  embed: (texts) => Promise.resolve(texts.map((text) => text.split(' ').map(Number))),
}

function ids(matches: readonly { readonly id: string }[]): string[] {
  return matches.map(({ id }) => id)
}

const animals = [
  { id: 'cats', content: 'Cats sleep all day and hunt mice at night.' },
  { id: 'boats', content: 'Boats carry goods over the sea.', metadata: { topic: 'travel' } },
  { id: 'dogs', content: 'Dogs sleep at night and chase cats all day.' },
]

describe('embeddings', () => {
  test('come in the order of the texts, at most 128 with each request', async () => {
    const { server, model } = await startEmbeddings(undefined, { apiKey: 'sk-123456789' })
    const texts = Array.from({ length: 300 }, (_, i) => `word${i}`)
    const vectors = await model.embed(texts)
    expect(server.embedded.map((batch) => batch.length)).toEqual([128, 128, 44])
    expect(server.embedded.flat()).toEqual(texts)
    const [[single]] = [await model.embed(['word299'])]
    expect(vectors).toHaveLength(300)
    expect(vectors[299]).toEqual(single)
    expect(await model.embed([])).toEqual([])
    expect(server.embedded).toHaveLength(4)
  })

  test('are put into order by their index', async () => {
    const { model } = await startEmbeddings((texts) => ({
      data: texts.map((text, index) => ({ index, embedding: [Number(text)] })).toReversed(),
    }))
    expect(await model.embed(['1', '2', '3'])).toEqual([[1], [2], [3]])
  })

  test('are taken in their order where they have no index', async () => {
    const { model } = await startEmbeddings((texts) => ({ data: texts.map((text) => ({ embedding: [Number(text)] })) }))
    expect(await model.embed(['1', '2'])).toEqual([[1], [2]])
  })

  test.each<[string, unknown]>([
    ['1 vectors for 2 texts', { data: [{ embedding: [1] }] }],
    ['different lengths, 1 and 2', { data: [{ embedding: [1] }, { embedding: [1, 2] }] }],
    ['no vector of finite numbers at 1', { data: [{ embedding: [1] }, { embedding: [null] }] }],
    ['no vector of finite numbers at 0', { data: [{ embedding: [] }, { embedding: [1] }] }],
    ['no vector of finite numbers at 0', { data: ['x', { embedding: [1] }] }],
    ['the index 0 twice', { data: [0, 0].map((index) => ({ index, embedding: [1] })) }],
    ['no vector for text 0', { data: [1, 2].map((index) => ({ index, embedding: [1] })) }],
    ['has no embeddings', { data: 'none' }],
    ['has no embeddings', []],
  ])('are refused with %s', async (clause, body) => {
    const { model } = await startEmbeddings(() => body)
    expect(await failureOf(model.embed(['a', 'b']))).toMatchObject({
      code: 'model_invalid',
      message: expect.stringContaining(clause),
    })
  })

  test.each<[string, string, (res: ServerResponse) => unknown]>([
    ['a refusal', 'model_refused', (res) => res.writeHead(401).end('sk-123456789')],
    ['too many requests', 'model_unavailable', (res) => res.writeHead(429, { 'retry-after': '3' }).end()],
    ['broken JSON', 'model_invalid', (res) => res.end('{"data":[')],
    ['an error', 'model_unavailable', (res) => res.end('{"error":{"code":503,"message":"sk-123456789"}}')],
    ['a cut', 'model_interrupted', (res) => res.destroy()],
    ['silence', 'model_timeout', () => new Promise(() => {})],
    ['a silence in the middle', 'model_timeout', (res) => res.writeHead(200, { 'content-length': '9' }).write('{')],
  ])('fail with %s as completions do', async (_, code, answer) => {
    const script: EmbeddingScript = async (_texts, res) => {
      await answer(res)
      // Only what has not answered by itself is to be answered.
      return new Promise(() => {})
    }
    const { model } = await startEmbeddings(script, { apiKey: 'sk-123456789', timeoutMs: 1000 })
    const error = await failureOf(model.embed(['a']))
    expect(error.code).toBe(code)
    expect(inspect(error, { depth: 10 })).not.toContain('sk-123456789')
  })

  test('stop with their signal, at the endpoint too', async () => {
    const asked = deferred<ServerResponse>()
    const { model } = await startEmbeddings((_, res) => {
      asked.resolve(res)
      return new Promise(() => {})
    })
    const stop = new AbortController()
    const embedding = failureOf(model.embed(['a'], { signal: stop.signal }))
    const res = await within(asked.promise, 'the request')
    const closed = new Promise((resolve) => res.once('close', resolve))
    stop.abort(stopped)
    expect(await embedding).toBe(stopped)
    await within(closed, 'the request to end')
  })

  test.each<[string, object]>([
    ['got undefined', { model: undefined }],
    ['`parameters` of a model must be an object', { parameters: 'x' }],
    ['`baseUrl`', { baseUrl: 'x' }],
  ])('are not set up with wrong options: %s', (message, wrong) => {
    const options = { baseUrl: 'http://127.0.0.1:1/v1', model: 'm', ...wrong } as OpenAiEmbeddingOptions
    expect(() => new OpenAiEmbeddingModel(options)).toThrow(
      expect.objectContaining({ code: 'config', message: expect.stringContaining(message) }),
    )
  })
})

describe('the embedded vector store', () => {
  test('finds what is near, the nearest first', async () => {
    const { model } = await startEmbeddings()
    const store = open({ model })
    await store.add(animals)
    const found = await store.query('Do dogs chase cats?', { maxResults: 2 })
    expect(ids(found)).toEqual(['dogs', 'cats'])
    const [boats] = await store.query('the sea', { maxResults: 1 })
    expect(boats).toEqual({ ...animals[1], score: expect.closeTo(0.577, 2) })
  })

  test('finds nothing while it is empty, and asks nobody', async () => {
    const { server, model } = await startEmbeddings()
    expect(await open({ model }).query('cats', { maxResults: 3 })).toEqual([])
    expect(server.embedded).toEqual([])
  })

  test('gives those that are equally near in the order in which they were added', async () => {
    const store = open({ model: numbers })
    const place = (id: string, content: string) => ({ id, content })
    await store.add([place('c', '1 0'), place('a', '2 0'), place('x', '0 1'), place('b', '1 0'), place('d', '3 0')])
    expect(ids(await store.query('1 0', { maxResults: 3 }))).toEqual(['c', 'a', 'b'])
    // Another text in its place.
    await store.add([place('a', '0 1'), place('e', '5 0')])
    expect(ids(await store.query('1 0', { maxResults: 9 }))).toEqual(['c', 'b', 'd', 'e', 'a', 'x'])
    expect(ids(await store.query('0 0', { maxResults: 2 }))).toEqual(['c', 'a'])
  })

  test('gives the same as to sort them all', async () => {
    const store = open({ model: numbers })
    // Few directions, so that many are equally near.
    const documents = Array.from({ length: 2000 }, (_, i) => {
      const vector = Array.from({ length: 7 }, (_each, j) => ((i * (j + 3) * 7919) % 5) - 2)
      return { id: String(i), content: vector.join(' '), vector }
    })
    await store.add(documents)
    const query = [1, -2, 0, 1, 2, 0, 1]
    const expected = documents
      .map(({ id, vector }, place) => {
        const length = Math.hypot(...vector) * Math.hypot(...query)
        const dot = vector.reduce((sum, value, j) => sum + value * (query[j] ?? 0), 0)
        return { id, place, score: length === 0 ? 0 : dot / length }
      })
      .toSorted((a, b) => (Math.abs(a.score - b.score) < 1e-6 ? a.place - b.place : b.score - a.score))
    for (const maxResults of [1, 2, 10, 500, 5000]) {
      const found = await store.query(query.join(' '), { maxResults })
      expect(found).toHaveLength(Math.min(maxResults, 2000))
      found.forEach(({ score }, i) => expect(score).toBeCloseTo(expected[i]?.score ?? Number.NaN, 5))
    }
  })

  test('refuses vectors of another length', async () => {
    const folder = await temporaryFolder()
    const store = open({ model: numbers, folder }, { file: 'v.jsonl' })
    await store.add([{ id: 'a', content: '1 0' }])
    const message = 'vectors of 3 numbers, and those in the store have 2'
    const expected = { code: 'model_invalid', message: expect.stringContaining(message) }
    expect(await failureOf(store.add([{ id: 'b', content: '1 0 0' }]))).toMatchObject(expected)
    expect(await failureOf(store.query('1 0 0', { maxResults: 1 }))).toMatchObject(expected)
    const fresh = open({ model: numbers })
    const mixed = [
      { id: 'a', content: '1' },
      { id: 'b', content: '1 2' },
    ]
    expect(await failureOf(fresh.add(mixed))).toMatchObject({ code: 'model_invalid' })
    expect(ids(await store.query('1 0', { maxResults: 9 }))).toEqual(['a'])
    expect(await fresh.query('1', { maxResults: 9 })).toEqual([])
  })

  test('holds no more than it may', async () => {
    const store = open({ model: numbers }, { maxDocuments: 2 })
    await store.add([
      { id: 'a', content: '1' },
      { id: 'b', content: '2' },
    ])
    await store.add([{ id: 'a', content: '3' }])
    expect(await failureOf(store.add([{ id: 'c', content: '1' }]))).toMatchObject({
      code: 'too_large',
      message: 'The vector store would hold 3 documents, and may hold 2. Add fewer, or raise `maxDocuments`.',
    })
    // Those that come at the same time count together.
    const other = open({ model: numbers }, { maxDocuments: 2 })
    const outcomes = await Promise.allSettled(['a', 'b', 'c'].map((id) => other.add([{ id, content: '1' }])))
    expect(outcomes.map(({ status }) => status)).toEqual(['fulfilled', 'fulfilled', 'rejected'])
    expect(ids(await other.query('1', { maxResults: 9 }))).toEqual(['a', 'b'])
  })

  test('keeps its documents as they were given', async () => {
    const store = open({ model: numbers })
    const metadata = { tags: ['x'] }
    const document = { id: 'a', content: '1', metadata }
    const adding = store.add([document])
    metadata.tags.push('y')
    document.content = 'none'
    await adding
    const [found] = await store.query('1', { maxResults: 1 })
    expect(found).toEqual({ id: 'a', content: '1', metadata: { tags: ['x'] }, score: 1 })
    Object.assign(found?.metadata ?? {}, { tags: [] })
    expect((await store.query('1', { maxResults: 1 }))[0]?.metadata).toEqual({ tags: ['x'] })
  })

  test.each<[string, unknown]>([
    ['Documents must be a list, got an object.', {}],
    ['/0 must be an object {id, content, metadata}, got "x"', ['x']],
    ['/0/id must be a text of 1 to 1000 characters, got ""', [{ id: '', content: 'x' }]],
    ['/1/content must be a text of at most 1000000 characters, got 7', [animals[0], { id: 'a', content: 7 }]],
    ['/0/metadata must be an object, got an array of 0', [{ id: 'a', content: 'x', metadata: [] }]],
    ['/0/metadata/n NaN is not a JSON number', [{ id: 'a', content: 'x', metadata: { n: Number.NaN } }]],
  ])('refuses documents that are none: %s', async (message, documents) => {
    const store = open({ model: numbers })
    expect(await failureOf(store.add(documents as []))).toMatchObject({
      code: 'invalid_params',
      message: expect.stringContaining(message),
    })
    expect(() => open({ model: numbers }, { documents: documents as [] })).toThrow(
      expect.objectContaining({ code: 'config' }),
    )
  })

  test('refuses queries that are none', async () => {
    const store = open({ model: numbers })
    for (const maxResults of [0, -1, 1.5, Number.NaN]) {
      expect(await failureOf(store.query('1', { maxResults }))).toMatchObject({
        code: 'invalid_params',
        message: `\`maxResults\` must be 1 or more, got ${maxResults}.`,
      })
    }
    expect(await failureOf(store.query(7 as never, { maxResults: 1 }))).toMatchObject({ code: 'invalid_params' })
  })

  test.each<[string, object]>([
    ['`embeddingModel` must be the name of a resource', { embeddingModel: '' }],
    ['`file` of a vector store must be a path', { file: 7 }],
    ['`maxDocuments` must be 1 or more, got 0', { maxDocuments: 0 }],
  ])('is not made with wrong options: %s', (message, options) => {
    expect(() => open({ model: numbers }, options)).toThrow(
      expect.objectContaining({ code: 'config', message: expect.stringContaining(message) }),
    )
  })

  test('fails with what its model fails with, and works when that works again', async () => {
    const { server, model } = await startEmbeddings()
    const store = open({ model }, { documents: animals })
    await server.stop()
    expect(await failureOf(store.query('cats', { maxResults: 1 }))).toMatchObject({ code: 'model_unavailable' })
    await server.start()
    expect(ids(await store.query('boats', { maxResults: 1 }))).toEqual(['boats'])
  })

  test('stops with its signal', async () => {
    const asked = deferred()
    const { model } = await startEmbeddings(() => {
      asked.resolve()
      return new Promise(() => {})
    })
    const store = open({ model })
    const stop = new AbortController()
    const adding = failureOf(store.add(animals, { signal: stop.signal }))
    await within(asked.promise, 'the request')
    stop.abort(stopped)
    expect(await adding).toBe(stopped)
    // Nobody who waits for the first documents takes them from the others.
    const filling = open({ model }, { documents: animals })
    const leaving = new AbortController()
    const querying = failureOf(filling.query('cats', { maxResults: 1, signal: leaving.signal }))
    leaving.abort(stopped)
    expect(await querying).toBe(stopped)
    const staying = failureOf(filling.query('cats', { maxResults: 1 }))
    await filling.close()
    expect(await staying).toMatchObject({ code: 'unavailable', message: 'The vector store was closed.' })
    expect(await failureOf(filling.add(animals))).toMatchObject({ code: 'unavailable' })
  })
})

describe('a vector store with a file', () => {
  test('has everything again after a restart, without asking its model again', async () => {
    const folder = await temporaryFolder()
    const { server, model } = await startEmbeddings()
    const first = open({ model, folder }, { file: 'data/animals.jsonl' })
    await first.add(animals)
    await first.add([{ id: 'cats', content: 'Cats like boats.' }])
    const before = await first.query('boats', { maxResults: 3 })
    await first.close()
    const asked = server.embedded.length

    const second = open({ model, folder }, { file: 'data/animals.jsonl' })
    expect(await second.query('boats', { maxResults: 3 })).toEqual(before)
    expect(server.embedded.slice(asked)).toEqual([['boats']])
    expect(await readdir(join(folder, 'data'))).toEqual(['animals.jsonl'])
  })

  test('embeds only what is new of its first documents', async () => {
    const folder = await temporaryFolder()
    const { server, model } = await startEmbeddings()
    const options = { file: 'v.jsonl', documents: animals }
    await open({ model, folder }, options).query('x', { maxResults: 1 })
    const changed = [{ ...animals[0]!, metadata: { n: 1 } }, { ...animals[1]!, content: 'Ships.' }, animals[2]!]
    const store = open({ model, folder }, { ...options, documents: changed })
    const [found] = await store.query('Cats hunt mice', { maxResults: 1 })
    expect(server.embedded).toEqual([
      animals.map(({ content }) => content),
      ['x'],
      // Other metadata are no other text.
      ['Ships.'],
      ['Cats hunt mice'],
    ])
    expect(found).toMatchObject({ id: 'cats', metadata: { n: 1 } })
  })

  test('keeps what many add at the same time', async () => {
    const folder = await temporaryFolder()
    const store = open({ model: numbers, folder }, { file: 'v.jsonl' })
    const names = Array.from({ length: 100 }, (_, i) => `d${i}`)
    await Promise.all(names.map((id) => store.add([{ id, content: '1 2 3' }])))
    await store.close()
    const again = open({ model: numbers, folder }, { file: 'v.jsonl' })
    expect(ids(await again.query('1 2 3', { maxResults: 1000 })).toSorted()).toEqual(names.toSorted())
  })

  test('adds nothing that it cannot write, and goes on when it can', async () => {
    const folder = await temporaryFolder()
    const store = open({ model: numbers, folder }, { file: 'data/v.jsonl' })
    expect(await store.query('1', { maxResults: 9 })).toEqual([])
    // Where its folder is to be, there is a file.
    await writeFile(join(folder, 'data'), '')
    const error = await failureOf(store.add([{ id: 'a', content: '1' }]))
    expect(error).toMatchObject({ code: 'unavailable', message: expect.stringContaining('nothing was added') })
    expect(error.message).not.toContain(folder)
    expect(inspect(error.cause)).toContain(join(folder, 'data', 'v.jsonl'))
    expect(await store.query('1', { maxResults: 9 })).toEqual([])
    await rm(join(folder, 'data'))
    await store.add([{ id: 'b', content: '1' }])
    expect(ids(await store.query('1', { maxResults: 9 }))).toEqual(['b'])
    expect(await readdir(join(folder, 'data'))).toEqual(['v.jsonl'])
  })

  test.each([
    ['no JSON', '{"id":"a"\n'],
    ['no document', '{"id":"a","content":"x"}\n'],
    ['a cut vector', '{"id":"a","content":"x","vector":"AAA="}\n'],
    ['what is no number', `{"id":"a","content":"x","vector":"${Buffer.from([0, 0, 192, 127]).toString('base64')}"}\n`],
  ])('does not begin with a broken file: %s', async (_, line) => {
    const folder = await temporaryFolder()
    const path = join(folder, 'v.jsonl')
    const good = open({ model: numbers, folder }, { file: 'v.jsonl' })
    await good.add([{ id: 'good', content: '1' }])
    const text = (await readFile(path, 'utf8')) + line
    await writeFile(path, text)
    const store = open({ model: numbers, folder }, { file: 'v.jsonl' })
    const error = await failureOf(store.add([{ id: 'b', content: '1' }]))
    expect(error).toMatchObject({ code: 'resource_failed', message: expect.stringContaining('at line 2') })
    expect(error.message).not.toContain(folder)
    // It is left for somebody to mend.
    expect(await readFile(path, 'utf8')).toBe(text)
  })
})
