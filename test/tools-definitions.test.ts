import { defineTool, LocalToolRegistry, toOpenAi, toParameters } from 'convoke'
import { expect, test } from 'vitest'

const search = defineTool({
  name: 'search',
  description: 'Finds notes.',
  input: {
    type: 'object',
    properties: {
      text: { type: 'string', description: 'What to look for.' },
      limit: { type: 'integer', default: 10 },
      since: { type: ['string', 'null'] },
      anything: {},
    },
    required: ['text'],
  },
  run: () => [],
})

test('the params of a tool are listed with type, need and default, in the order of its schema', () => {
  expect(toParameters(search)).toEqual([
    { name: 'text', type: 'string', required: true, description: 'What to look for.' },
    { name: 'limit', type: 'integer', required: false, default: 10 },
    { name: 'since', type: 'string|null', required: false },
    { name: 'anything', type: 'any', required: false },
  ])
  const none = defineTool({ name: 'none', description: 'Takes nothing.', input: { type: 'object' }, run: () => null })
  expect(toParameters(none)).toEqual([])
})

test('a model is given the whole schema of a tool', () => {
  expect(toOpenAi(search)).toEqual({
    type: 'function',
    function: { name: 'search', description: 'Finds notes.', parameters: search.input },
  })
})

test('tools are told apart by where they come from', () => {
  const registry = new LocalToolRegistry()
  registry.register(search)
  registry.register({ name: 'plain', call: () => 1 })
  expect(registry.list({ kind: 'local' }).map(({ name }) => name)).toEqual(['search'])
  expect(registry.list({ kind: 'custom' }).map(({ name }) => name)).toEqual(['plain'])
  expect(registry.list({ kind: 'mcp' })).toEqual([])
})
