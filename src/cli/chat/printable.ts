/** An agent's words on a terminal: what they may not do there, and how much room they take. */
import { stripControls } from '../../base/text.ts'

/** Text that moves no cursor and sets no colour. Line ends of any kind are line breaks. */
export function toPrintable(text: string): string {
  return stripControls(text.replace(/\r\n?/g, '\n'))
}

/** The same for text that comes in pieces, cut anywhere: half a line end or half a character waits for its other half. */
export class PrintablePieces {
  #held = ''

  take(piece: string): string {
    const text = this.#held + piece
    const isHalf = /[\r\ud800-\udbff]$/.test(text)
    this.#held = isHalf ? text.slice(-1) : ''
    return toPrintable(isHalf ? text.slice(0, -1) : text)
  }

  /** What is still held back when nothing more comes. */
  end(): string {
    const text = this.#held
    this.#held = ''
    return toPrintable(text)
  }
}

const wide =
  /[\u1100-\u115f\u2e80-\u303e\u3041-\ua4cf\ua960-\ua97f\uac00-\ud7a3\uf900-\ufaff\ufe30-\ufe6f\uff00-\uff60\uffe0-\uffe6\u{1b000}-\u{1b2ff}\u{1f300}-\u{1faff}\u{20000}-\u{3fffd}]|\p{Emoji_Presentation}/u
const combining = /\p{M}/u

/** Columns that a character takes on most terminals. */
function widthOfCharacter(character: string): number {
  if (character < '\u0300') return 1
  return combining.test(character) ? 0 : wide.test(character) ? 2 : 1
}

/** Columns that a line takes, without tabs and line breaks. */
export function widthOf(line: string): number {
  let width = 0
  for (const character of line) width += widthOfCharacter(character)
  return width
}

/** As much of a line as fits, with an ellipsis where something is missing. */
export function clipToWidth(line: string, columns: number): string {
  if (line.length <= columns / 2 || widthOf(line) <= columns) return line
  let clipped = ''
  let width = 1
  for (const character of line) {
    width += widthOfCharacter(character)
    if (width > columns) break
    clipped += character
  }
  return `${clipped}…`
}
