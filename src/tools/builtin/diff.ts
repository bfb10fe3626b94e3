/** Unified diffs of two texts. */

/** Lines around a change that are shown with it. */
const context = 3
/** Up to this many pairs of lines the shortest difference is looked for; beyond, the whole part counts as replaced. */
const maxPairs = 1_000_000
const maxLength = 64 * 1024

interface Line {
  readonly mark: ' ' | '-' | '+'
  readonly text: string
}

/** Empty for equal texts; cut at a line after some 64 Ki characters. */
export function toDiff(
  path: string,
  before: string,
  after: string,
): { readonly diff: string; readonly isCut: boolean } {
  if (before === after) return { diff: '', isCut: false }
  const diff = [`--- a/${path}\n`, `+++ b/${path}\n`]
  let length = 0
  for (const hunk of hunksOf(compare(toLines(before), toLines(after)))) {
    for (const line of hunk) {
      length += line.length
      if (length > maxLength) return { diff: diff.join(''), isCut: true }
      diff.push(line)
    }
  }
  return { diff: diff.join(''), isCut: false }
}

/** With their line ends: two texts may differ in nothing else. */
function toLines(text: string): string[] {
  return text === '' ? [] : text.split(/(?<=\n)/)
}

function compare(before: readonly string[], after: readonly string[]): Line[] {
  let head = 0
  while (head < before.length && head < after.length && before[head] === after[head]) head++
  let tail = 0
  const most = Math.min(before.length, after.length) - head
  while (tail < most && before.at(-1 - tail) === after.at(-1 - tail)) tail++
  return [
    ...marked(' ', before.slice(0, head)),
    ...compareMiddle(before.slice(head, before.length - tail), after.slice(head, after.length - tail)),
    ...marked(' ', before.slice(before.length - tail)),
  ]
}

function marked(mark: Line['mark'], texts: readonly string[]): Line[] {
  return texts.map((text) => ({ mark, text }))
}

/** By the longest common subsequence of lines. */
function compareMiddle(before: readonly string[], after: readonly string[]): Line[] {
  const width = after.length + 1
  if (before.length * after.length > maxPairs) return [...marked('-', before), ...marked('+', after)]
  // At [i, j] stands how many lines the rests from i and j on have in common.
  const common = new Uint32Array((before.length + 1) * width)
  for (let i = before.length - 1; i >= 0; i--) {
    for (let j = after.length - 1; j >= 0; j--) {
      common[i * width + j] =
        before[i] === after[j]
          ? (common[(i + 1) * width + j + 1] ?? 0) + 1
          : Math.max(common[(i + 1) * width + j] ?? 0, common[i * width + j + 1] ?? 0)
    }
  }
  const lines: Line[] = []
  let i = 0
  let j = 0
  while (i < before.length || j < after.length) {
    const old = before[i]
    const fresh = after[j]
    if (old !== undefined && old === fresh) {
      lines.push({ mark: ' ', text: old })
      i++
      j++
    } else if (
      old !== undefined &&
      (fresh === undefined || (common[(i + 1) * width + j] ?? 0) >= (common[i * width + j + 1] ?? 0))
    ) {
      lines.push({ mark: '-', text: old })
      i++
    } else {
      lines.push({ mark: '+', text: fresh ?? '' })
      j++
    }
  }
  return lines
}

/** The changes with what is around them, each hunk its lines, a header first. */
function* hunksOf(lines: readonly Line[]): Generator<string[], void, void> {
  let oldLine = 1
  let newLine = 1
  for (let at = 0; at < lines.length;) {
    let first = at
    while (lines[first]?.mark === ' ') first++
    if (first === lines.length) return
    const start = Math.max(at, first - context)
    oldLine += start - at
    newLine += start - at
    let end = first + 1
    for (let next = end; next < lines.length && next <= end + 2 * context; next++) {
      if (lines[next]?.mark !== ' ') end = next + 1
    }
    const hunk = lines.slice(start, Math.min(end + context, lines.length))
    const olds = hunk.filter(({ mark }) => mark !== '+').length
    const news = hunk.filter(({ mark }) => mark !== '-').length
    yield [`@@ -${rangeOf(oldLine, olds)} +${rangeOf(newLine, news)} @@\n`, ...hunk.map(toDiffLine)]
    oldLine += olds
    newLine += news
    at = start + hunk.length
  }
}

function rangeOf(line: number, count: number): string {
  return `${count === 0 ? line - 1 : line},${count}`
}

function toDiffLine({ mark, text }: Line): string {
  return text.endsWith('\n') ? mark + text : `${mark}${text}\n\\ No newline at end of file\n`
}
