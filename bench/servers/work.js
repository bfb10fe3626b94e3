/** What all contenders do: the echo tool's params, the chunks, the many tools. */

export const echoInput = {
  type: 'object',
  properties: {
    text: { type: 'string', maxLength: 10_000 },
    times: { type: 'integer', minimum: 1, maximum: 10, default: 1 },
  },
  required: ['text'],
  additionalProperties: false,
}

/** 1 KB of text that JSON leaves as it is. */
export const chunk = 'The quick brown fox jumps over the lazy dog. '.repeat(23).slice(0, 1024)

/** Definitions of tools with schemas as people write them, no two alike. */
export function manyTools(n) {
  return Array.from({ length: n }, (_, i) => ({
    name: `tool_${i}`,
    description: `Looks up record ${i} and returns what is known about it.`,
    input: {
      type: 'object',
      properties: {
        query: { type: 'string', minLength: 1, maxLength: 500 + i, description: 'What to look for.' },
        limit: { type: 'integer', minimum: 1, maximum: 100, default: 20 },
        order: { enum: ['newest', 'oldest', `score_${i}`] },
        filter: {
          type: 'object',
          properties: { tags: { type: 'array', items: { type: 'string' } }, since: { type: 'string', format: 'date' } },
        },
      },
      required: ['query'],
      additionalProperties: false,
    },
    output: {
      type: 'object',
      properties: { total: { type: 'integer' }, rows: { type: 'array', items: { type: 'object' } } },
      required: ['rows'],
    },
    traits: { readOnly: true, category: 'lookup' },
    run: () => ({ total: 0, rows: [] }),
  }))
}
