/** Documents with their vectors in memory, and the search for those that are near a vector. */
import { setImmediate as turn } from 'node:timers/promises'
import { abortReason } from '../base/abort.ts'
import { ConvokeError } from '../base/errors.ts'
import type { StoredDocument } from './chat-model.ts'

export interface IndexedDocument {
  readonly document: StoredDocument
  /** Of length 1; all zeros for a text that means nothing. */
  readonly vector: Float32Array
}

export interface Match {
  readonly document: StoredDocument
  /** The cosine of the angle to the query: 1 is the same direction. */
  readonly score: number
}

/** How many multiplications a search does before others have a turn: some 3 ms. */
const operationsPerTurn = 2_000_000
const firstCapacity = 64

/** All vectors stand in one array, one behind the other in the order in which their documents were added. */
export class VectorIndex {
  #dimensions = 0
  #vectors = new Float32Array(0)
  readonly #documents: StoredDocument[] = []
  readonly #places = new Map<string, number>()

  get size(): number {
    return this.#documents.length
  }

  get(id: string): IndexedDocument | undefined {
    const place = this.#places.get(id)
    return place === undefined ? undefined : this.#at(place)
  }

  /** Throws `model_invalid` for a vector of another length than those that are here. */
  checkLength(length: number): void {
    if (this.#dimensions === 0 || length === this.#dimensions) return
    const text = `The embedding model gives vectors of ${length} numbers, and those in the store have ${this.#dimensions}. Use the model that they were made with, or begin a new store.`
    throw new ConvokeError('model_invalid', text)
  }

  /** Puts it in; over one of the same id, which keeps its place. The vector must have the length of the others. */
  set({ document, vector }: IndexedDocument): void {
    this.#dimensions ||= vector.length
    const known = this.#places.get(document.id)
    const place = known ?? this.#documents.length
    const end = (place + 1) * this.#dimensions
    if (end > this.#vectors.length) {
      const grown = new Float32Array(Math.max(firstCapacity * this.#dimensions, this.#vectors.length * 2))
      grown.set(this.#vectors)
      this.#vectors = grown
    }
    this.#vectors.set(vector, place * this.#dimensions)
    this.#documents[place] = document
    this.#places.set(document.id, place)
  }

  /** All in their order, with `changes` in the places of those that they replace, and behind them. */
  *with(changes: ReadonlyMap<string, IndexedDocument>): Generator<IndexedDocument, void, void> {
    for (let place = 0; place < this.size; place++) {
      const held = this.#at(place)
      yield changes.get(held.document.id) ?? held
    }
    for (const [id, change] of changes) if (!this.#places.has(id)) yield change
  }

  /** The most similar first; of equal ones the one that was added first. Gives way to others while it searches many. */
  async nearest(query: Float32Array, maxResults: number, signal: AbortSignal | undefined): Promise<Match[]> {
    this.checkLength(query.length)
    const best = new Best(maxResults)
    const dimensions = this.#dimensions
    const perTurn = Math.max(1, Math.floor(operationsPerTurn / Math.max(1, dimensions)))
    // Documents that are added meanwhile are for the next search.
    const count = this.size
    for (let from = 0; from < count; from += perTurn) {
      if (from > 0) await turn()
      if (signal?.aborted === true) throw abortReason(signal)
      const end = Math.min(count, from + perTurn)
      for (let place = from; place < end; place++) best.offer(dot(this.#vectors, place * dimensions, query), place)
    }
    return best.sorted().flatMap(({ place, score }) => {
      const document = this.#documents[place]
      return document === undefined ? [] : [{ document, score }]
    })
  }

  #at(place: number): IndexedDocument {
    const document = this.#documents[place]
    if (document === undefined) throw new Error(`There is no document at ${place}.`)
    return { document, vector: this.#vectors.subarray(place * this.#dimensions, (place + 1) * this.#dimensions) }
  }
}

/** The vector in single precision, of length 1. */
export function toUnit(vector: readonly number[]): Float32Array {
  let squares = 0
  for (const value of vector) squares += value * value
  const factor = squares === 0 ? 0 : 1 / Math.sqrt(squares)
  const unit = new Float32Array(vector.length)
  vector.forEach((value, i) => (unit[i] = value * factor))
  return unit
}

/**
 * Four sums side by side, since each addition to the same one would wait for the last. Both arrays reach as far as is read:
 * to look whether they do takes three times as long as the rest.
 */
function dot(vectors: Float32Array, from: number, query: Float32Array): number {
  const { length } = query
  const end = length - (length % 4)
  let a = 0
  let b = 0
  let c = 0
  let d = 0
  for (let i = 0; i < end; i += 4) {
    a += (vectors[from + i] as number) * (query[i] as number)
    b += (vectors[from + i + 1] as number) * (query[i + 1] as number)
    c += (vectors[from + i + 2] as number) * (query[i + 2] as number)
    d += (vectors[from + i + 3] as number) * (query[i + 3] as number)
  }
  for (let i = end; i < length; i++) a += (vectors[from + i] as number) * (query[i] as number)
  return a + b + c + d
}

interface Scored {
  readonly place: number
  readonly score: number
}

/** The best `limit` of any number: a heap with the worst of them on top. */
class Best {
  readonly #limit: number
  readonly #heap: Scored[] = []

  constructor(limit: number) {
    this.#limit = limit
  }

  offer(score: number, place: number): void {
    const heap = this.#heap
    if (heap.length < this.#limit) {
      heap.push({ score, place })
      this.#rise()
      return
    }
    const [worst] = heap
    // Places come in rising order, so an equal one is behind those that are here.
    if (worst === undefined || score <= worst.score) return
    heap[0] = { score, place }
    this.#sink()
  }

  sorted(): Scored[] {
    return this.#heap.toSorted((a, b) => (isWorse(a, b) ? 1 : -1))
  }

  #rise(): void {
    let at = this.#heap.length - 1
    while (at > 0 && this.#swapIfWorse(at, (at - 1) >> 1)) at = (at - 1) >> 1
  }

  #sink(): void {
    for (let at = 0; ;) {
      const [left, right] = [this.#heap[2 * at + 1], this.#heap[2 * at + 2]]
      if (left === undefined) return
      const child = right !== undefined && isWorse(right, left) ? 2 * at + 2 : 2 * at + 1
      if (!this.#swapIfWorse(child, at)) return
      at = child
    }
  }

  #swapIfWorse(child: number, parent: number): boolean {
    const [below, above] = [this.#heap[child], this.#heap[parent]]
    if (below === undefined || above === undefined || !isWorse(below, above)) return false
    this.#heap[child] = above
    this.#heap[parent] = below
    return true
  }
}

function isWorse(a: Scored, b: Scored): boolean {
  return a.score < b.score || (a.score === b.score && a.place > b.place)
}
