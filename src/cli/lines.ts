/** The lines of a stream of bytes, one at a time, however long the stream is. */

/** A line without its end. A `problem` in place of its text: it is too long, or not UTF-8. */
export type Line = { readonly number: number } & ({ readonly text: string } | { readonly problem: string })

const newline = 0x0a

/** Numbered from 1; a last line without an end counts, an empty one does not. A longer line than `maxBytes` is not kept. */
export async function* readLines(
  source: AsyncIterable<Uint8Array>,
  maxBytes: number,
): AsyncGenerator<Line, void, void> {
  const decoder = new TextDecoder('utf-8', { fatal: true })
  let held: Uint8Array[] = []
  let size = 0
  let number = 0
  const take = (): Line => {
    number++
    const pieces = held
    const isTooLong = size > maxBytes
    held = []
    size = 0
    if (isTooLong) return { number, problem: `is longer than ${maxBytes} bytes` }
    try {
      const [first] = pieces
      const text = decoder.decode(pieces.length === 1 && first !== undefined ? first : Buffer.concat(pieces))
      return { number, text: text.endsWith('\r') ? text.slice(0, -1) : text }
    } catch {
      return { number, problem: 'is not UTF-8' }
    }
  }
  for await (const chunk of source) {
    for (let start = 0; ;) {
      const end = chunk.indexOf(newline, start)
      const piece = chunk.subarray(start, end === -1 ? chunk.length : end)
      size += piece.length
      if (size <= maxBytes) held.push(piece)
      else held = []
      if (end === -1) break
      yield take()
      start = end + 1
    }
  }
  if (size > 0) yield take()
}
