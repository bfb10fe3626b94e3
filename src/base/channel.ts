/**
 * A bounded queue between writers that push and one reader that pulls. It carries what a generator cannot say by
 * itself: words that come in between its yields, such as progress.
 */

interface Reader<T> {
  resolve(step: IteratorResult<T, void>): void
  reject(error: unknown): void
}

/**
 * Values come out in the order they went in. At most `capacity` pushed values wait, plus one for each writer that
 * does not wait for room; between two of them at most one offered value waits, and whatever was inserted.
 */
export class Channel<T> implements AsyncIterableIterator<T, void, void> {
  readonly #capacity: number
  #values: { readonly value: T; readonly as: 'pushed' | 'offered' | 'inserted' }[] = []
  #pushed = 0
  #reader: Reader<T> | undefined
  #writers: (() => void)[] = []
  #failure: { readonly error: unknown } | undefined
  #closed = false

  constructor(capacity: number) {
    this.#capacity = capacity
  }

  /** Whether nothing more is taken in: ended, failed, or left by the reader. */
  get closed(): boolean {
    return this.#closed
  }

  /**
   * Takes the value in at once. Returns a promise when the queue is now full: wait for it before the next one. It
   * resolves when there is room, or when the channel is closed; look at {@link closed} then. Once closed, does nothing.
   */
  push(value: T): Promise<void> | undefined {
    if (this.#closed || this.#handOver(value)) return undefined
    this.#values.push({ value, as: 'pushed' })
    if (++this.#pushed < this.#capacity) return undefined
    return new Promise((resolve) => {
      this.#writers.push(resolve)
    })
  }

  /** Takes in a value that replaces the one offered just before, if nobody has read that yet. Never waits. */
  offer(value: T): void {
    if (this.#closed || this.#handOver(value)) return
    if (this.#values.at(-1)?.as === 'offered') this.#values.pop()
    this.#values.push({ value, as: 'offered' })
  }

  /** Takes in a value that is never replaced, and that no writer waits for: whoever inserts must count what is unread. */
  insert(value: T): void {
    if (this.#closed || this.#handOver(value)) return
    this.#values.push({ value, as: 'inserted' })
  }

  /** The reader gets what is queued, then the end. */
  end(): void {
    if (this.#closed) return
    this.#close()
    this.#reader?.resolve({ value: undefined, done: true })
    this.#reader = undefined
  }

  /** The reader gets what is queued, then the error. */
  fail(error: unknown): void {
    if (this.#closed) return
    this.#close()
    if (this.#reader === undefined) this.#failure = { error }
    else this.#reader.reject(error)
    this.#reader = undefined
  }

  /** One read at a time: `for await` does it so. */
  next(): Promise<IteratorResult<T, void>> {
    const first = this.#values.shift()
    if (first !== undefined) {
      if (first.as === 'pushed' && --this.#pushed < this.#capacity) this.#writers.shift()?.()
      return Promise.resolve({ value: first.value, done: false })
    }
    if (this.#failure !== undefined) {
      const { error } = this.#failure
      this.#failure = undefined
      // oxlint-disable-next-line typescript/prefer-promise-reject-errors -- whatever the writer failed with
      return Promise.reject(error)
    }
    if (this.#closed) return Promise.resolve({ value: undefined, done: true })
    if (this.#reader !== undefined)
      return Promise.reject(new Error('A channel has one reader, which reads one value at a time.'))
    return new Promise((resolve, reject) => {
      this.#reader = { resolve, reject }
    })
  }

  /** The reader leaves: what is queued is dropped, writers go on. */
  return(): Promise<IteratorResult<T, void>> {
    this.#close()
    this.#values = []
    this.#failure = undefined
    this.#reader?.resolve({ value: undefined, done: true })
    this.#reader = undefined
    return Promise.resolve({ value: undefined, done: true })
  }

  [Symbol.asyncIterator](): this {
    return this
  }

  #handOver(value: T): boolean {
    if (this.#reader === undefined) return false
    const reader = this.#reader
    this.#reader = undefined
    reader.resolve({ value, done: false })
    return true
  }

  #close(): void {
    this.#closed = true
    const writers = this.#writers
    this.#writers = []
    for (const go of writers) go()
  }
}
