/** What a model has called so far. */
import { ConvokeError, type ErrorCode } from '../base/errors.ts'
import type { JsonObject } from '../base/json.ts'
import { excerpt } from './value.ts'

/** One answered call. */
export interface CallRecord {
  /** The id of the call in its round. */
  readonly id: string
  /** As the model named the tool. */
  readonly name: string
  /** As the tool is called here. */
  readonly tool: string
  /** `{}` where they could not be read. */
  readonly arguments: JsonObject
  readonly success: boolean
  /** Whether the tool was called for this answer: false for a duplicate, and for what was refused. */
  readonly executed: boolean
  /** What the model was told, truncated. */
  readonly content: string
  readonly errorType?: ErrorCode
  /** When it was answered, in milliseconds since 1970. */
  readonly at: number
}

const defaultMaxRecords = 200

/** The newest calls of a conversation, oldest first. Holds at most `maxRecords` (default 200), the oldest go. */
export class CallHistory implements Iterable<CallRecord> {
  readonly #maxRecords: number
  #records: CallRecord[] = []
  #total = 0

  constructor({ maxRecords = defaultMaxRecords }: { readonly maxRecords?: number } = {}) {
    if (!Number.isSafeInteger(maxRecords) || maxRecords < 1)
      throw new ConvokeError(
        'config',
        `\`maxRecords\` must be a whole number of 1 or more, got ${excerpt(maxRecords)}.`,
      )
    this.#maxRecords = maxRecords
  }

  /** How many it holds. */
  get length(): number {
    return Math.min(this.#records.length, this.#maxRecords)
  }

  /** How many there ever were. */
  get total(): number {
    return this.#total
  }

  push(...records: CallRecord[]): void {
    this.#total += records.length
    for (const record of records) this.#records.push(record)
    // Cut in bulk: one by one each would move all the others.
    if (this.#records.length >= 2 * this.#maxRecords) this.#records = this.#records.slice(-this.#maxRecords)
  }

  /** A copy, oldest first. */
  toArray(): CallRecord[] {
    return this.#records.slice(-this.#maxRecords)
  }

  [Symbol.iterator](): Iterator<CallRecord> {
    return this.toArray()[Symbol.iterator]()
  }
}
