/** What a model thinks, told from what it answers, where both come as content. */
import type { ChatDelta } from './chat-model.ts'

const openings = ['<think>', '<thinking>', '<thought>']
const loneClosing = '</think>'

/**
 * Takes the content of an answer piece by piece. Thoughts stand before the answer, in tags; where the model's template has written
 * the opening one itself, only the closing one comes: https://github.com/vllm-project/vllm/issues/22507. What was told until then
 * is taken back. Endpoints that tell thoughts apart need none of that, but the space that stood between the two.
 */
export class ContentAssembly {
  #place: 'before' | 'thoughts' | 'answer' = 'before'
  /** What may be the beginning of a tag. */
  #held = ''
  #closing = loneClosing
  #hasThoughts = false
  #isWithoutLoneClosing = false
  #text: string[] = []

  /** The answer without its thoughts. */
  get text(): string {
    return this.#text.join('')
  }

  /** Thoughts came beside the content. */
  noteThoughts(): void {
    this.#hasThoughts = true
  }

  /** What of the content is to be told now. */
  take(piece: string): ChatDelta[] {
    const told: ChatDelta[] = []
    let rest = this.#held + piece
    this.#held = ''
    while (rest !== '') rest = this.#next(rest, told)
    return told
  }

  /** What is left when no more comes. */
  finish(): ChatDelta[] {
    const held = this.#held
    this.#held = ''
    if (this.#place === 'thoughts') return thoughts(held)
    return this.#say(this.#hasThoughts ? held.trimStart() : held)
  }

  /** Returns what is behind. */
  #next(text: string, told: ChatDelta[]): string {
    switch (this.#place) {
      case 'before':
        return this.#begin(text)
      case 'thoughts':
        return this.#think(text, told)
      case 'answer':
        return this.#answer(text, told)
    }
  }

  #begin(text: string): string {
    const begun = text.trimStart()
    const opening = openings.find((tag) => begun.startsWith(tag))
    if (opening !== undefined) {
      this.#place = 'thoughts'
      this.#closing = opening.replace('<', '</')
      return begun.slice(opening.length)
    }
    if (openings.some((tag) => tag.startsWith(begun))) {
      this.#held = text
      return ''
    }
    this.#place = 'answer'
    return this.#hasThoughts ? begun : text
  }

  #think(text: string, told: ChatDelta[]): string {
    const end = this.#find(this.#closing, text)
    told.push(...thoughts(text.slice(0, end.at)))
    if (!end.isWhole) return ''
    this.#place = 'before'
    this.#hasThoughts = true
    return text.slice(end.at + this.#closing.length)
  }

  #answer(text: string, told: ChatDelta[]): string {
    if (this.#hasThoughts || this.#isWithoutLoneClosing) {
      told.push(...this.#say(text))
      return ''
    }
    const end = this.#find(loneClosing, text)
    if (!end.isWhole) {
      told.push(...this.#say(text.slice(0, end.at)))
      return ''
    }
    const before = this.text + text.slice(0, end.at)
    // An answer about such tags opens them, or quotes them.
    if (openings.some((tag) => before.includes(tag)) || /[`'"]$/.test(before)) {
      this.#isWithoutLoneClosing = true
      return text
    }
    if (this.#text.length > 0) told.push({ type: 'restart' })
    told.push(...thoughts(before))
    this.#text = []
    this.#place = 'before'
    this.#hasThoughts = true
    return text.slice(end.at + loneClosing.length)
  }

  /** Where the tag is, or its beginning, which is held back; else the end. */
  #find(tag: string, text: string): { readonly at: number; readonly isWhole: boolean } {
    const whole = text.indexOf(tag)
    if (whole !== -1) return { at: whole, isWhole: true }
    const last = text.lastIndexOf('<')
    if (last === -1 || !tag.startsWith(text.slice(last))) return { at: text.length, isWhole: false }
    this.#held = text.slice(last)
    return { at: last, isWhole: false }
  }

  #say(text: string): ChatDelta[] {
    if (text === '') return []
    this.#text.push(text)
    return [{ type: 'text', text }]
  }
}

function thoughts(text: string): ChatDelta[] {
  return text === '' ? [] : [{ type: 'reasoning', text }]
}
