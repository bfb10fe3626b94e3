/** Plays golden exchanges against a node and puts placeholders where the golden answer has them. */
import { randomUUID } from 'node:crypto'
import { createParser } from 'eventsource-parser'

export interface GoldenRequest {
  readonly method: string
  readonly path: string
  readonly headers?: Readonly<Record<string, string>>
  /** JSON, or a string that is sent as it stands. */
  readonly body?: unknown
}

export interface GoldenEvent {
  /** The `id` line; absent where the event has none. */
  readonly id?: string
  readonly data: unknown
}

export interface GoldenResponse {
  readonly status: number
  /** Those that matter; a response may have more. */
  readonly headers?: Readonly<Record<string, string>>
  readonly body?: unknown
  readonly events?: readonly GoldenEvent[]
}

export interface Step {
  /** The node is stopped and started again on the same store before this step. */
  readonly restart?: boolean
  readonly request: GoldenRequest
  readonly response: GoldenResponse
  /** Steps to play once so many events of this step's stream have come, while it is open. */
  readonly during?: { readonly after: number; readonly steps: readonly Step[] }
}

export interface Played {
  readonly actual: GoldenResponse
  readonly expected: GoldenResponse
}

const id = /<id:([a-z0-9]+)>/g
const placeholder = /^<(id(:[a-z0-9]+)?|time|ms|attempt|boolean|text(:[^]*)?)>$/
const time = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/

export interface Addresses {
  readonly node: string
  /** Where webhooks are received, if any are. */
  readonly webhook?: string
}

/** One run through a case: `<id:NAME>` is the same id in all of its steps. */
export class Player {
  #addresses: Addresses
  readonly #restart: (() => Promise<Addresses>) | undefined
  readonly #ids = new Map<string, string>()

  constructor(addresses: Addresses, restart?: () => Promise<Addresses>) {
    this.#addresses = addresses
    this.#restart = restart
  }

  /** The answers in the order in which they were complete, those of `during` before their stream's. */
  async play(steps: readonly Step[]): Promise<Played[]> {
    const played: Played[] = []
    for (const step of steps) played.push(...(await this.#playOne(step)))
    return played
  }

  /** Something that the node sent by itself, with the placeholders of what was expected. */
  compare(actual: unknown, golden: unknown): { actual: unknown; expected: unknown } {
    const expected = this.#withAddresses(golden)
    return { actual: this.#normalise(actual, expected), expected }
  }

  async #playOne({ restart, request, response, during }: Step): Promise<Played[]> {
    if (restart === true && this.#restart !== undefined) this.#addresses = await this.#restart()
    const { method, path, headers = {}, body } = request
    const inner: Played[] = []
    const answer = await fetch(this.#addresses.node + this.#fill(path), {
      method,
      headers: this.#fillAll(headers) as Record<string, string>,
      ...(body === undefined ? {} : { body: typeof body === 'string' ? body : JSON.stringify(this.#fillAll(body)) }),
    })
    const expected = this.#withAddresses(response) as GoldenResponse
    const names = Object.keys(expected.headers ?? {})
    const received = {
      status: answer.status,
      ...(names.length === 0
        ? {}
        : { headers: Object.fromEntries(names.map((name) => [name, answer.headers.get(name) ?? ''])) }),
    }
    if (answer.headers.get('content-type') === 'text/event-stream') {
      const events: GoldenEvent[] = []
      for await (const event of readEvents(answer)) {
        events.push(this.#normalise(event, expected.events?.[events.length]) as GoldenEvent)
        if (during?.after === events.length) inner.push(...(await this.play(during.steps)))
      }
      return [...inner, { actual: { ...this.#normalised(received, expected), events }, expected }]
    }
    const text = await answer.text()
    const whole = { ...received, ...(text === '' ? {} : { body: JSON.parse(text) as unknown }) }
    return [{ actual: this.#normalised(whole, expected), expected }]
  }

  #fill(text: string): string {
    return this.#withAddress(text).replace(id, (_all, name: string) => {
      if (!this.#ids.has(name)) this.#ids.set(name, randomUUID())
      return this.#ids.get(name) ?? ''
    })
  }

  #fillAll(value: unknown): unknown {
    return map(value, (text) => this.#fill(text))
  }

  #withAddress(text: string): string {
    const { node, webhook = '' } = this.#addresses
    return text.replaceAll('<url>', node).replaceAll('<webhook>', webhook)
  }

  #withAddresses(value: unknown): unknown {
    return map(value, (text) => this.#withAddress(text))
  }

  #normalised(actual: GoldenResponse, golden: GoldenResponse): GoldenResponse {
    return this.#normalise(actual, golden) as GoldenResponse
  }

  /** The value with a placeholder for each one that the golden value has in its place and that fits it. */
  #normalise(actual: unknown, golden: unknown): unknown {
    if (typeof golden === 'string') return placeholder.test(golden) && this.#fits(actual, golden) ? golden : actual
    if (Array.isArray(actual) && Array.isArray(golden)) {
      return actual.map((item, index) => this.#normalise(item, golden[index]))
    }
    if (!isRecord(actual) || !isRecord(golden)) return actual
    return Object.fromEntries(Object.entries(actual).map(([key, value]) => [key, this.#normalise(value, golden[key])]))
  }

  #fits(actual: unknown, golden: string): boolean {
    if (golden === '<ms>') return typeof actual === 'number' && actual >= 0
    if (golden === '<attempt>') return typeof actual === 'number' && actual > 1
    // Whether the last chunk had left when the tool returned.
    if (golden === '<boolean>') return typeof actual === 'boolean'
    if (typeof actual !== 'string' || actual === '') return false
    if (golden === '<time>') return time.test(actual)
    const name = /^<id:(.*)>$/.exec(golden)?.[1]
    if (name === undefined) return true
    const known = this.#ids.get(name)
    if (known === undefined) this.#ids.set(name, actual)
    return known === undefined || known === actual
  }
}

/** The events of a stream that is being read. */
export async function* readEvents(response: Response): AsyncGenerator<GoldenEvent, void, void> {
  const events: GoldenEvent[] = []
  const parser = createParser({
    onEvent: ({ id: eventId, data }) => {
      events.push({ ...(eventId === undefined ? {} : { id: eventId }), data: JSON.parse(data) })
    },
  })
  const decoder = new TextDecoder()
  for await (const bytes of response.body ?? []) {
    parser.feed(decoder.decode(bytes as Uint8Array, { stream: true }))
    yield* events.splice(0)
  }
}

/** A copy with every string changed. */
function map(value: unknown, change: (text: string) => string): unknown {
  if (typeof value === 'string') return change(value)
  if (Array.isArray(value)) return value.map((item) => map(item, change))
  if (!isRecord(value)) return value
  return Object.fromEntries(Object.entries(value).map(([key, member]) => [key, map(member, change)]))
}

function isRecord(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}
