/** Answers for programs: what may still be taken back is held until it counts. */
import type { ChatEvent, ChatOutput } from './events.ts'
import { toPrintable } from './printable.ts'

type Piece = Extract<ChatEvent, { type: 'text' | 'part' }>

/** How much is held, in characters; an answer that is longer is passed on as it comes. */
const maxHeld = 8 * 1024 * 1024
/** What a piece takes beside its words. */
const pieceSize = 64

/** Pieces of an answer reach the output within when the agent asks, or has ended well; of one that did not end well it is noted what had come. */
export class HeldOutput implements ChatOutput {
  readonly #inner: ChatOutput
  #held: Piece[] = []
  #size = 0
  /** The answer is too long to be held. */
  #isOpen = false
  /** Artifacts of which something was passed on. */
  readonly #passed = new Set<string | null>()

  constructor(inner: ChatOutput) {
    this.#inner = inner
  }

  async show(event: ChatEvent): Promise<void> {
    switch (event.type) {
      case 'sent':
        this.#isOpen = false
        if (event.taskId === null) this.#passed.clear()
        break
      case 'text':
      case 'part':
        if (this.#isOpen) return await this.#pass(event)
        this.#held.push(event)
        this.#size += sizeOf(event)
        if (this.#size <= maxHeld) return
        this.#isOpen = true
        return await this.#passAll()
      case 'restart':
        this.#drop(event.artifactId)
        if (!this.#takesBack(event.artifactId)) return
        break
      case 'question':
        await this.#passAll()
        break
      case 'end':
        if (isGood(event.state)) await this.#passAll()
        else this.cut()
        break
      case 'task':
      case 'progress':
      case 'status':
    }
    await this.#inner.show(event)
  }

  note(sentence: string): void {
    this.#inner.note(sentence)
  }

  cut(): void {
    const text = this.#held.map(wordsOf).join('')
    this.#drop(null)
    if (text.trim() !== '') this.note(`convoke: This had come of the answer: ${toPrintable(text).trimEnd()}`)
    this.#inner.cut()
  }

  async #passAll(): Promise<void> {
    const pieces = this.#held
    this.#drop(null)
    for (const piece of pieces) await this.#pass(piece)
  }

  async #pass(piece: Piece): Promise<void> {
    this.#passed.add(piece.artifactId)
    await this.#inner.show(piece)
  }

  /** Whether something was passed on that does not count any more. Null: of all. */
  #takesBack(artifactId: string | null): boolean {
    if (artifactId !== null) return this.#passed.delete(artifactId)
    const { size } = this.#passed
    this.#passed.clear()
    return size > 0
  }

  /** Null: all. */
  #drop(artifactId: string | null): void {
    this.#held = artifactId === null ? [] : this.#held.filter((piece) => piece.artifactId !== artifactId)
    this.#size = this.#held.reduce((size, piece) => size + sizeOf(piece), 0)
  }
}

function wordsOf(piece: Piece): string {
  if (piece.type === 'text') return piece.text
  const { data, url } = piece.part
  return data === undefined ? (url === undefined ? '' : `\n${url}\n`) : `\n${JSON.stringify(data)}\n`
}

function sizeOf(piece: Piece): number {
  if (piece.type === 'text') return pieceSize + piece.text.length
  const { raw = '', data } = piece.part
  return pieceSize + raw.length + (data === undefined ? 0 : JSON.stringify(data).length)
}

/** It ended, or waits for a reply; null: there is no task. */
function isGood(state: string | null): boolean {
  return state !== 'TASK_STATE_FAILED' && state !== 'TASK_STATE_CANCELED' && state !== 'TASK_STATE_REJECTED'
}
