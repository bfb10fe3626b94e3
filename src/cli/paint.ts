/** Colours, where somebody sees them. */
import { styleText } from 'node:util'
import type { WriteStream } from 'node:tty'

/** How to set off a text; the identity where there are no colours. */
export type Paint = (format: 'bold' | 'dim' | 'green' | 'red' | 'yellow', text: string) => string

/** Colours for a terminal that has them; hasColors knows NO_COLOR and TERM. */
export function createPaint(stream: WriteStream): Paint {
  const colors = stream.isTTY && stream.hasColors()
  return (format, text) => (colors ? styleText(format, text, { validateStream: false }) : text)
}
