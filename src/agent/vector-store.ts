/** The vector store that comes along: in memory, in a file if it is to survive, searched from end to end. */
import { resolve } from 'node:path'
import { abortReason, onAbort } from '../base/abort.ts'
import { ConvokeError } from '../base/errors.ts'
import { cloneJson, isObject, type JsonObject } from '../base/json.ts'
import { excerpt, findNotJson } from '../tools/value.ts'
import type { EmbeddingModel, StoredDocument, VectorStore } from './chat-model.ts'
import type { ResourceContext } from './resources.ts'
import { readVectors, writeVectors } from './vector-file.ts'
import { toUnit, VectorIndex, type IndexedDocument } from './vector-index.ts'

export interface EmbeddedVectorStoreOptions {
  /** The name of the resource that turns texts into vectors. */
  readonly embeddingModel: string
  /** Where the documents survive a restart; a relative path starts at the agent's folder. Default: they do not. */
  readonly file?: string
  /** What is in the store from the beginning. Only those that are not in the file as they are here are embedded. */
  readonly documents?: readonly StoredDocument[]
  /** How many documents there may be. Default: 100,000. */
  readonly maxDocuments?: number
}

interface Adding {
  readonly changes: readonly IndexedDocument[]
  readonly resolve: () => void
  readonly reject: (error: unknown) => void
}

const defaultMaxDocuments = 100_000
/** In characters. */
const maxContent = 1_000_000
/** Some file systems take no longer names, and people read them. */
const maxId = 1_000

/**
 * Compares a query with every document, by the cosine of their vectors. Each `add` writes the file anew, once for all that
 * are called meanwhile: many documents go better with one `add`. The file is for one process at a time.
 */
export class EmbeddedVectorStore implements VectorStore {
  static readonly resourceType = 'vectorStore'
  static readonly module = 'convoke'
  readonly #options: EmbeddedVectorStoreOptions
  readonly #context: Pick<ResourceContext, 'getResource' | 'baseDir'>
  readonly #path: string | undefined
  readonly #maxDocuments: number
  readonly #closing = new AbortController()
  /** Once for all who wait; anew after it failed. */
  #opening: Promise<VectorIndex> | undefined
  #queue: Adding[] = []
  #isWriting = false
  #writing: Promise<void> | undefined

  /** Throws `config` for options that make no sense. The file is read with the first `add` or `query`. */
  constructor(options: EmbeddedVectorStoreOptions, context: Pick<ResourceContext, 'getResource' | 'baseDir'>) {
    checkOptions(options)
    this.#options = options
    this.#context = context
    this.#path = options.file === undefined ? undefined : resolve(context.baseDir, options.file)
    this.#maxDocuments = options.maxDocuments ?? defaultMaxDocuments
  }

  /**
   * Resolves when the documents are found, and in the file. All are added or none. One that is there as it is given is not embedded again. Throws
   * `invalid_params`, `too_large`, `unavailable` where the file cannot be written, and what the embedding model throws.
   */
  async add(documents: readonly StoredDocument[], { signal }: { readonly signal?: AbortSignal } = {}): Promise<void> {
    const checked = checkDocuments(documents)
    const index = await this.#open(signal)
    await this.#add(index, checked, signal)
  }

  /** An empty store gives nothing, and does not ask the embedding model. */
  async query(
    text: string,
    { maxResults, signal }: { readonly maxResults: number; readonly signal?: AbortSignal },
  ): Promise<{ id: string; content: string; metadata: JsonObject; score: number }[]> {
    if (typeof text !== 'string')
      throw new ConvokeError('invalid_params', `A query must be a text, got ${excerpt(text)}.`)
    if (!Number.isSafeInteger(maxResults) || maxResults < 1)
      throw new ConvokeError('invalid_params', `\`maxResults\` must be 1 or more, got ${excerpt(maxResults)}.`)
    const index = await this.#open(signal)
    if (index.size === 0) return []
    const [vector] = await this.#embed([text], signal)
    if (vector === undefined) return []
    const matches = await index.nearest(vector, maxResults, signal)
    return matches.map(({ document: { id, content, metadata }, score }) => ({
      id,
      content,
      metadata: cloneJson(metadata ?? {}),
      score,
    }))
  }

  /** Waits for what is being written. */
  async close(): Promise<void> {
    this.#closing.abort(closed())
    await this.#writing
  }

  async #open(signal: AbortSignal | undefined): Promise<VectorIndex> {
    if (this.#closing.signal.aborted) throw closed()
    this.#opening ??= this.#load().catch((error: unknown) => {
      this.#opening = undefined
      throw error
    })
    // Whoever leaves, leaves the others their store.
    return await unlessAborted(this.#opening, signal)
  }

  async #load(): Promise<VectorIndex> {
    const index = new VectorIndex()
    if (this.#path !== undefined) {
      for await (const document of readVectors(this.#path)) {
        index.checkLength(document.vector.length)
        index.set(document)
        this.#checkSize(index.size)
      }
    }
    await this.#add(index, checkDocuments(this.#options.documents ?? []), this.#closing.signal)
    return index
  }

  async #add(index: VectorIndex, given: readonly StoredDocument[], signal: AbortSignal | undefined): Promise<void> {
    // The last of one id counts.
    const documents = [...new Map(given.map((document) => [document.id, document])).values()].filter(
      (document) => !isSame(index.get(document.id)?.document, document),
    )
    if (documents.length === 0) return
    this.#checkSize(index.size + documents.filter(({ id }) => index.get(id) === undefined).length)
    const vectors = new Map<string, Float32Array>()
    // Other metadata are no other text. A copy: the index may move its own meanwhile.
    for (const { id, content } of documents) {
      const held = index.get(id)
      if (held?.document.content === content) vectors.set(id, held.vector.slice())
    }
    const unknown = documents.filter(({ id }) => !vectors.has(id))
    const texts = unknown.map(({ content }) => content)
    const fresh = await this.#embed(texts, signal)
    unknown.forEach(({ id }, i) => vectors.set(id, fresh[i] ?? new Float32Array()))
    if (this.#closing.signal.aborted) throw closed()
    const changes = documents.map((document) => ({ document, vector: vectors.get(document.id) ?? new Float32Array() }))
    await new Promise<void>((resolve, reject) => {
      this.#queue.push({ changes, resolve, reject })
      if (!this.#isWriting) this.#writing = this.#writeAll(index)
    })
  }

  /** Takes in what waits: one write for all that came during the last one. Never rejects. */
  async #writeAll(index: VectorIndex): Promise<void> {
    this.#isWriting = true
    while (this.#queue.length > 0) {
      const taken: Adding[] = []
      const changes = new Map<string, IndexedDocument>()
      for (const adding of this.#queue.splice(0)) {
        try {
          this.#check(index, changes, adding.changes)
          for (const change of adding.changes) changes.set(change.document.id, change)
          taken.push(adding)
        } catch (error) {
          adding.reject(error)
        }
      }
      try {
        if (this.#path !== undefined && changes.size > 0) await writeVectors(this.#path, index.with(changes))
        for (const change of changes.values()) index.set(change)
        for (const { resolve: done } of taken) done()
      } catch (error) {
        for (const { reject } of taken) reject(error)
      }
    }
    this.#isWriting = false
  }

  /** Again, with what others have added since. */
  #check(index: VectorIndex, changes: ReadonlyMap<string, IndexedDocument>, more: readonly IndexedDocument[]): void {
    const ids = [...changes.keys(), ...more.map(({ document }) => document.id)]
    this.#checkSize(index.size + new Set(ids.filter((id) => index.get(id) === undefined)).size)
    const [first = more[0]] = changes.values()
    for (const { vector } of more) {
      index.checkLength(vector.length)
      if (vector.length === 0 || vector.length !== first?.vector.length)
        throw new ConvokeError(
          'model_invalid',
          'The embedding model gives vectors of different lengths, or empty ones. Use another one.',
        )
    }
  }

  #checkSize(count: number): void {
    if (count <= this.#maxDocuments) return
    const text = `The vector store would hold ${count} documents, and may hold ${this.#maxDocuments}. Add fewer, or raise \`maxDocuments\`.`
    throw new ConvokeError('too_large', text)
  }

  async #embed(texts: readonly string[], signal: AbortSignal | undefined): Promise<Float32Array[]> {
    if (texts.length === 0) return []
    const model: EmbeddingModel = await this.#context.getResource(this.#options.embeddingModel, 'embeddingModel')
    const vectors = await model.embed(texts, signal === undefined ? {} : { signal })
    // Any class may be an embedding model.
    if (vectors.length !== texts.length) {
      const text = `The embedding model gave ${vectors.length} vectors for ${texts.length} texts. Use another model.`
      throw new ConvokeError('model_invalid', text)
    }
    return vectors.map(toUnit)
  }
}

function isSame(held: StoredDocument | undefined, document: StoredDocument): boolean {
  return (
    held !== undefined &&
    held.content === document.content &&
    JSON.stringify(held.metadata ?? {}) === JSON.stringify(document.metadata ?? {})
  )
}

/** Copies that nobody else changes. Throws `invalid_params`. */
function checkDocuments(documents: readonly StoredDocument[]): StoredDocument[] {
  if (!Array.isArray(documents))
    throw new ConvokeError('invalid_params', `Documents must be a list, got ${excerpt(documents)}.`)
  return documents.map((document: unknown, i) => {
    if (!isObject(document))
      throw wrongDocument(`/${i}`, `must be an object {id, content, metadata}, got ${excerpt(document)}`)
    const { id, content, metadata } = document
    if (typeof id !== 'string' || id === '' || id.length > maxId)
      throw wrongDocument(`/${i}/id`, `must be a text of 1 to ${maxId} characters, got ${excerpt(id)}`)
    if (typeof content !== 'string' || content.length > maxContent)
      throw wrongDocument(
        `/${i}/content`,
        `must be a text of at most ${maxContent} characters, got ${excerpt(content)}`,
      )
    if (metadata === undefined) return { id, content }
    if (!isObject(metadata)) throw wrongDocument(`/${i}/metadata`, `must be an object, got ${excerpt(metadata)}`)
    const issue = findNotJson(metadata)
    if (issue !== undefined) throw wrongDocument(`/${i}/metadata${issue.path}`, issue.message)
    return { id, content, metadata: cloneJson(metadata as JsonObject) }
  })
}

function wrongDocument(path: string, message: string): ConvokeError {
  return new ConvokeError('invalid_params', `A document cannot be stored: ${path} ${message}.`, {
    issues: [{ path, message }],
  })
}

function closed(): ConvokeError {
  return new ConvokeError('unavailable', 'The vector store was closed.', { retryable: false })
}

function unlessAborted<T>(work: Promise<T>, signal: AbortSignal | undefined): Promise<T> {
  if (signal === undefined) return work
  return new Promise((resolve, reject) => {
    const stop = onAbort(signal, () => reject(abortReason(signal)))
    work.then(resolve, reject).finally(stop)
  })
}

function checkOptions({ embeddingModel, file, documents, maxDocuments = 1 }: EmbeddedVectorStoreOptions): void {
  const wrong = (text: string): ConvokeError => new ConvokeError('config', text)
  if (typeof embeddingModel !== 'string' || embeddingModel === '')
    throw wrong(`\`embeddingModel\` must be the name of a resource, got ${excerpt(embeddingModel)}.`)
  if (file !== undefined && (typeof file !== 'string' || file === ''))
    throw wrong(`\`file\` of a vector store must be a path, got ${excerpt(file)}.`)
  if (!Number.isSafeInteger(maxDocuments) || maxDocuments < 1)
    throw wrong(`\`maxDocuments\` must be 1 or more, got ${excerpt(maxDocuments)}.`)
  if (documents === undefined) return
  try {
    checkDocuments(documents)
  } catch (cause) {
    throw wrong(`\`documents\` of a vector store: ${cause instanceof Error ? cause.message : ''}`)
  }
}
