/** One dim line that says what an agent is at, on the terminal behind what it has said, and replaced by what comes next. */
import type { Paint } from '../paint.ts'
import { clipToWidth, toPrintable, widthOf } from './printable.ts'

/** A terminal, as far as it is needed here. */
export interface Screen {
  write(text: string): unknown
  /** Undefined where nobody knows. */
  readonly columns?: number | undefined
}

const defaultColumns = 80
/** With less room there are no words worth reading. */
const leastRoom = 12
const tabWidth = 8

const saveCursor = '\u001b7'
const restoreCursor = '\u001b8'
const clearToEnd = '\u001b[K'

export class StatusLine {
  readonly #screen: Screen
  readonly #paint: Paint
  /** Where the cursor is, by what was written. */
  #column = 0
  #isShown = false

  constructor(screen: Screen, paint: Paint) {
    this.#screen = screen
    this.#paint = paint
  }

  /** Says it, in place of what was said before. Where the line that is begun leaves no room, nothing is shown. */
  show(words: string): void {
    this.clear()
    const { columns = defaultColumns } = this.#screen
    const gap = this.#column === 0 ? '' : '  '
    // Not the last column: a line that wraps could not be taken back.
    const room = (columns > 0 ? columns : defaultColumns) - this.#column - gap.length - 2
    if (room < leastRoom) return
    const line = clipToWidth(toPrintable(words).replace(/\s+/g, ' ').trim(), room)
    if (line === '') return
    this.#screen.write(`${saveCursor}${gap}${this.#paint('dim', line)}`)
    this.#isShown = true
  }

  /** Takes it away, the cursor to where it was. */
  clear(): void {
    if (this.#isShown) this.#screen.write(`${restoreCursor}${clearToEnd}`)
    this.#isShown = false
  }

  /** Hears what was written to the terminal, to know where its end is. */
  wrote(text: string): void {
    const { columns = defaultColumns } = this.#screen
    const from = text.lastIndexOf('\n') + 1
    if (from > 0) this.#column = 0
    for (const [index, piece] of text.slice(from).split('\t').entries()) {
      if (index > 0) this.#column += tabWidth - (this.#column % tabWidth)
      this.#column += widthOf(piece)
    }
    if (columns > 0) this.#column %= columns
  }
}
