// Work on texts that language models do badly by themselves: counting, comparing, matching.
import { defineTool } from 'convoke'

const text = { type: 'string', maxLength: 1_000_000 }

export const wordCount = defineTool({
  name: 'word_count',
  description: 'Counts the characters, words, lines and sentences of a text, and lists its most frequent words.',
  input: {
    type: 'object',
    properties: {
      text,
      top: { type: 'integer', minimum: 0, maximum: 100, default: 5, description: 'How many frequent words to list.' },
    },
    required: ['text'],
    additionalProperties: false,
  },
  output: {
    type: 'object',
    properties: {
      characters: { type: 'integer' },
      words: { type: 'integer' },
      lines: { type: 'integer' },
      sentences: { type: 'integer' },
      frequent: {
        type: 'array',
        items: {
          type: 'object',
          properties: { word: { type: 'string' }, count: { type: 'integer' } },
          required: ['word', 'count'],
        },
      },
    },
    required: ['characters', 'words', 'lines', 'sentences', 'frequent'],
  },
  traits: { readOnly: true, category: 'text' },
  run({ text, top }) {
    const words = text.toLowerCase().match(/[\p{L}\p{N}]+(?:['’-][\p{L}\p{N}]+)*/gu) ?? []
    /** @type {Map<string, number>} */
    const counts = new Map()
    for (const word of words) counts.set(word, (counts.get(word) ?? 0) + 1)
    const frequent = [...counts].sort(([a, m], [b, n]) => n - m || (a < b ? -1 : 1)).slice(0, top)
    return {
      characters: Array.from(text).length,
      words: words.length,
      lines: text === '' ? 0 : text.split('\n').length,
      sentences: text.match(/[^.!?…]*[^\s.!?…][.!?…]+(?=\s|$)/gu)?.length ?? 0,
      frequent: frequent.map(([word, count]) => ({ word, count })),
    }
  },
})

const maxDiffLines = 5000

export const diff = defineTool({
  name: 'diff',
  description:
    'Compares two texts line by line. Lines begin with "-" (only before), "+" (only after) or a blank (both).',
  input: {
    type: 'object',
    properties: { before: text, after: text },
    required: ['before', 'after'],
    additionalProperties: false,
  },
  output: {
    type: 'object',
    properties: {
      added: { type: 'integer' },
      removed: { type: 'integer' },
      lines: { type: 'array', items: { type: 'string' } },
    },
    required: ['added', 'removed', 'lines'],
  },
  traits: { readOnly: true, category: 'text' },
  run({ before, after }) {
    const a = before.split('\n')
    const b = after.split('\n')
    if (a.length > maxDiffLines || b.length > maxDiffLines) {
      throw new Error(`diff compares texts of up to ${maxDiffLines} lines; these have ${a.length} and ${b.length}.`)
    }
    const lines = compare(a, b)
    const starting = (/** @type {string} */ sign) => lines.filter((line) => line.startsWith(sign)).length
    return { added: starting('+'), removed: starting('-'), lines }
  },
})

/**
 * By the longest common subsequence. What both texts begin and end with is set aside first: of two versions of a text
 * that is most of it, and the rest costs memory by its square.
 *
 * @param {string[]} a
 * @param {string[]} b
 * @returns {string[]}
 */
function compare(a, b) {
  let start = 0
  while (start < a.length && start < b.length && a[start] === b[start]) start++
  let end = 0
  while (end < a.length - start && end < b.length - start && a[a.length - 1 - end] === b[b.length - 1 - end]) end++
  const left = a.slice(start, a.length - end)
  const right = b.slice(start, b.length - end)
  const width = right.length + 1
  const common = new Uint16Array((left.length + 1) * width)
  for (let i = left.length - 1; i >= 0; i--) {
    for (let j = right.length - 1; j >= 0; j--) {
      const at = i * width + j
      common[at] = left[i] === right[j] ? common[at + width + 1] + 1 : Math.max(common[at + width], common[at + 1])
    }
  }
  const lines = a.slice(0, start).map((line) => ` ${line}`)
  for (let i = 0, j = 0; i < left.length || j < right.length;) {
    if (i < left.length && j < right.length && left[i] === right[j]) {
      lines.push(` ${left[i]}`)
      i++
      j++
    } else if (j === right.length || (i < left.length && common[(i + 1) * width + j] >= common[i * width + j + 1])) {
      lines.push(`-${left[i++]}`)
    } else {
      lines.push(`+${right[j++]}`)
    }
  }
  return [...lines, ...a.slice(a.length - end).map((line) => ` ${line}`)]
}

export const extract = defineTool({
  name: 'extract',
  description:
    'Finds the e-mail addresses, URLs, numbers, ISO dates or hashtags in a text, in order, each with its position.',
  input: {
    type: 'object',
    properties: {
      text,
      kind: { enum: ['email', 'url', 'number', 'date', 'hashtag'] },
      limit: { type: 'integer', minimum: 1, maximum: 10_000, default: 100 },
    },
    required: ['text', 'kind'],
    additionalProperties: false,
  },
  traits: { readOnly: true, category: 'text' },
  run({ text, kind, limit }) {
    const found = []
    for (const match of text.matchAll(patterns[kind])) {
      if (found.length === limit) break
      found.push({ value: match[0], index: match.index })
    }
    return { found }
  },
})

// Each of them takes time in proportion to the text, whatever stands in it.
const patterns = {
  email: /[\w.+-]{1,64}@[a-z0-9-]{1,63}(?:\.[a-z0-9-]{1,63}){1,8}/gi,
  url: /https?:\/\/[^\s<>"'()]{1,2000}/gi,
  number: /[-+]?\d{1,30}(?:\.\d{1,30})?(?:e[-+]?\d{1,4})?/gi,
  date: /\d{4}-(?:0[1-9]|1[0-2])-(?:0[1-9]|[12]\d|3[01])/g,
  hashtag: /#[\p{L}\p{N}_]{1,100}/gu,
}

export const statistics = defineTool({
  name: 'statistics',
  description: 'Sums up a list of numbers: count, sum, mean, median, standard deviation, smallest and largest.',
  input: {
    type: 'object',
    properties: { numbers: { type: 'array', items: { type: 'number' }, minItems: 1, maxItems: 100_000 } },
    required: ['numbers'],
    additionalProperties: false,
  },
  traits: { readOnly: true, category: 'text' },
  run({ numbers }) {
    const sorted = [...numbers].sort((a, b) => a - b)
    const count = sorted.length
    const sum = sorted.reduce((total, number) => total + number, 0)
    const mean = sum / count
    const middle = count / 2
    const median = count % 2 === 1 ? sorted[Math.floor(middle)] : (sorted[middle - 1] + sorted[middle]) / 2
    const variance = sorted.reduce((total, number) => total + (number - mean) ** 2, 0) / count
    return { count, sum, mean, median, deviation: Math.sqrt(variance), min: sorted[0], max: sorted[count - 1] }
  },
})
