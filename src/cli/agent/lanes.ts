/** Many items at the same time, those of one key one after the other, in their order. */

export interface LaneOptions<Item> {
  /** How many run at the same time. */
  readonly concurrency: number
  /** Aborts: nothing more is begun. */
  readonly signal: AbortSignal
  /** What an item takes of the room that waiting ones have, see {@link maxWaitingSize}. */
  readonly sizeOf: (item: Item) => number
}

/** Items that are read and not done, so that a key with many of them does not hold up the others. */
const maxWaiting = 1_000
/** The same by size, in bytes: lines may be long. One may always come in. */
const maxWaitingSize = 64 * 1024 * 1024

/**
 * Runs `work` for each item. Reads no further than it has room; resolves when all are done, or the signal has aborted and those
 * under way have ended. Throws what the source or `work` throws first, once those under way have ended.
 */
export async function runInLanes<Item extends { readonly key: string }>(
  items: AsyncIterable<Item>,
  work: (item: Item) => Promise<void>,
  options: LaneOptions<Item>,
): Promise<void> {
  await new Lanes(work, options).run(items)
}

class Lanes<Item extends { readonly key: string }> {
  readonly #work: (item: Item) => Promise<void>
  readonly #options: LaneOptions<Item>
  /** By key, what waits behind the one that runs, or is ready to. */
  readonly #waiting = new Map<string, Item[]>()
  /** The first of keys of which none runs. */
  readonly #ready: Item[] = []
  readonly #limit: number
  #running = 0
  #held = 0
  #size = 0
  #failure: { readonly error: unknown } | undefined
  #wake: (() => void) | undefined

  constructor(work: (item: Item) => Promise<void>, options: LaneOptions<Item>) {
    this.#work = work
    this.#options = options
    this.#limit = Math.max(maxWaiting, 2 * options.concurrency)
  }

  get #isOver(): boolean {
    return this.#options.signal.aborted || this.#failure !== undefined
  }

  async run(items: AsyncIterable<Item>): Promise<void> {
    try {
      for await (const item of items) {
        if (this.#isOver) break
        this.#add(item)
        while ((this.#held >= this.#limit || this.#size >= maxWaitingSize) && !this.#isOver) await this.#oneEnded()
      }
    } catch (error) {
      if (!this.#options.signal.aborted) this.#failure ??= { error }
    }
    while (this.#running > 0 || (this.#ready.length > 0 && !this.#isOver)) await this.#oneEnded()
    if (this.#failure !== undefined) throw this.#failure.error
  }

  #add(item: Item): void {
    this.#held++
    this.#size += this.#options.sizeOf(item)
    const lane = this.#waiting.get(item.key)
    if (lane !== undefined) return void lane.push(item)
    this.#waiting.set(item.key, [])
    this.#ready.push(item)
    this.#begin()
  }

  #begin(): void {
    while (this.#running < this.#options.concurrency && !this.#isOver) {
      const item = this.#ready.shift()
      if (item === undefined) return
      this.#running++
      void this.#one(item)
    }
  }

  async #one(item: Item): Promise<void> {
    try {
      await this.#work(item)
    } catch (error) {
      this.#failure ??= { error }
    }
    this.#running--
    this.#held--
    this.#size -= this.#options.sizeOf(item)
    const next = this.#waiting.get(item.key)?.shift()
    if (next === undefined) this.#waiting.delete(item.key)
    else this.#ready.push(next)
    this.#begin()
    this.#wake?.()
  }

  #oneEnded(): Promise<void> {
    return new Promise((resolve) => {
      this.#wake = resolve
    })
  }
}
