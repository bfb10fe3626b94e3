/** What a session's streams have sent lately, for a host that lost its connection and comes back with `Last-Event-ID`. */
import type { EventStore, JSONRPCMessage } from '@modelcontextprotocol/server'

/** What one session may hold for that, in characters of JSON; its oldest events go first. */
const maxChars = 4 * 1024 * 1024
const maxEvents = 1000

/** What all sessions hold together. */
export interface ReplayBudget {
  chars: number
}

/** What all of them may hold. Where that is reached, a session keeps new events in place of its own old ones. */
const maxTotalChars = 64 * 1024 * 1024

interface StoredEvent {
  readonly seq: number
  readonly stream: string
  readonly text: string
}

/** Bounded, in memory, one for each session: it goes with it. */
export class EventReplay implements EventStore {
  readonly #budget: ReplayBudget
  readonly #events: StoredEvent[] = []
  #chars = 0
  #lastSeq = 0

  constructor(budget: ReplayBudget) {
    this.#budget = budget
  }

  /** Gives everything up. */
  clear(): void {
    while (this.#events.length > 0) this.#drop()
  }

  async storeEvent(stream: string, message: JSONRPCMessage): Promise<string> {
    const text = JSON.stringify(message)
    const seq = ++this.#lastSeq
    const fits = (): boolean =>
      this.#events.length < maxEvents &&
      this.#chars + text.length <= maxChars &&
      this.#budget.chars + text.length <= maxTotalChars
    while (!fits() && this.#events.length > 0) this.#drop()
    if (fits()) {
      this.#events.push({ seq, stream, text })
      this.#count(text.length)
    }
    // The stream's name is in the id, so that a host whose event is no longer here still finds its stream.
    return `${seq}.${stream}`
  }

  async getStreamIdForEventId(eventId: string): Promise<string | undefined> {
    return parseId(eventId)?.stream
  }

  async replayEventsAfter(
    lastEventId: string,
    { send }: { send: (eventId: string, message: JSONRPCMessage) => Promise<void> },
  ): Promise<string> {
    const { seq, stream } = parseId(lastEventId) ?? { seq: 0, stream: '' }
    for (const event of [...this.#events]) {
      // `{}` stands for the event that opens a stream, which says nothing.
      if (event.seq <= seq || event.stream !== stream || event.text === '{}') continue
      await send(`${event.seq}.${stream}`, JSON.parse(event.text) as JSONRPCMessage)
    }
    return stream
  }

  #drop(): void {
    this.#count(-(this.#events.shift()?.text.length ?? 0))
  }

  #count(chars: number): void {
    this.#chars += chars
    this.#budget.chars += chars
  }
}

function parseId(eventId: string): { seq: number; stream: string } | undefined {
  const match = /^(\d{1,15})\.([A-Za-z0-9_-]{1,64})$/.exec(eventId)
  return match?.[2] === undefined ? undefined : { seq: Number(match[1]), stream: match[2] }
}
