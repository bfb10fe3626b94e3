import { describe, expect, test } from 'vitest'
import { Prompt } from 'convoke'
import type { Json } from 'convoke'

describe('a prompt', () => {
  test('of a text becomes a text, or one message whose role is system unless told otherwise', () => {
    const prompt = Prompt.fromText('You are {name}. Rate {count} reviews.')
    const variables = { name: 'Alice', count: 3 }
    expect(prompt.formatString(variables)).toBe('You are Alice. Rate 3 reviews.')
    expect(prompt.formatMessages(variables)).toEqual([{ role: 'system', content: 'You are Alice. Rate 3 reviews.' }])
    expect(prompt.formatMessages(variables, 'user')).toEqual([
      { role: 'user', content: 'You are Alice. Rate 3 reviews.' },
    ])
  })

  test('of messages keeps their roles, and is a text of "role: content" lines', () => {
    const toolCalls = [{ id: '1', name: 'look_up', arguments: '{"q":"{topic}"}' }]
    const prompt = Prompt.fromMessages([
      { role: 'system', content: 'You are {name}.' },
      { role: 'assistant', content: '', toolCalls },
      { role: 'user', content: 'Tell me of {topic}.' },
    ])
    const variables = { name: 'Alice', topic: 'tea' }
    expect(prompt.formatMessages(variables, 'tool')).toEqual([
      { role: 'system', content: 'You are Alice.' },
      { role: 'assistant', content: '', toolCalls },
      { role: 'user', content: 'Tell me of tea.' },
    ])
    expect(prompt.formatString(variables)).toBe('system: You are Alice.\nassistant: \nuser: Tell me of tea.')
  })

  test('leaves names without a value, and all other braces, as they are', () => {
    const text = 'Hi {name}, {missing}: answer as {"score": 5, "tags": {}}, not {0}, { name }, {name or {}, {}, {a-}.'
    expect(Prompt.fromText(text).formatString({ name: 'Bob' })).toBe(text.replace('{name}', 'Bob'))
    expect(Prompt.fromText('{a} {b}').formatString({ a: undefined as unknown as Json })).toBe('{a} {b}')
    expect(Prompt.fromText('{a}').formatString({ a: (() => 1) as unknown as Json })).toBe('{a}')
    expect(Prompt.fromText('{a}').formatString()).toBe('{a}')
    expect(Prompt.fromText('{a}').formatMessages()).toEqual([{ role: 'system', content: '{a}' }])
    // Doubled braces are no escape: the inner ones are a variable like any other.
    expect(Prompt.fromText('{{name}}').formatString({ name: 'Bob' })).toBe('{Bob}')
  })

  test.each([
    ['the patterns of replace', "$& $1 $$ $` $' $<name>"],
    ['names of other variables', 'I am {other}, and {name}'],
    ['braces', '} { {} {{x}} }}'],
    ['backslashes and line breaks', 'a\\n\nb\r\n\t"c"'],
    ['nothing at all', ''],
  ])('puts a value in literally that holds %s', (_what, value) => {
    const prompt = Prompt.fromText('<{name}|{other}|{name}>')
    expect(prompt.formatString({ name: value, other: '{name}' })).toBe(`<${value}|{name}|${value}>`)
  })

  test.each<[Json, string]>([
    [0, '0'],
    [false, 'false'],
    [null, 'null'],
    [['a', 1], '["a",1]'],
    [{ a: { b: '{name}' } }, '{"a":{"b":"{name}"}}'],
  ])('puts %j in as JSON', (value, text) => {
    expect(Prompt.fromText('({name})').formatString({ name: value })).toBe(`(${text})`)
  })

  test('finds members of values by dotted names, the value that is called so before them', () => {
    const variables = { order: { price: 3, lines: [{ a: 1 }] }, 'order.name': 'tea', 'a-b': 1, größe: 2 }
    expect(Prompt.fromText('{order.price} {order.name} {a-b} {größe}').formatString(variables)).toBe('3 tea 1 2')
    const missing = '{order.price.x} {order.lines.length} {order.} {order.tax}'
    expect(Prompt.fromText(missing).formatString(variables)).toBe(missing)
  })

  test('knows own members only', () => {
    const text = '{constructor} {toString} {__proto__} {a.constructor.name}'
    expect(Prompt.fromText(text).formatString({ a: {} })).toBe(text)
    expect(Prompt.fromText('{__proto__}').formatString(JSON.parse('{"__proto__":"own"}') as Record<string, Json>)).toBe(
      'own',
    )
  })

  test('fills a large template with many variables in one pass', () => {
    const text = '{name} and {missing} {'.repeat(50_000)
    const filled = Prompt.fromText(text).formatString({ name: '{name}'.repeat(10) })
    expect(filled).toHaveLength(50_000 * (60 + ' and {missing} {'.length))
  })

  test('goes through JSON and comes back the same', () => {
    for (const prompt of [Prompt.fromText('Hi {name}'), Prompt.fromMessages([{ role: 'user', content: '{name}' }])]) {
      const back = Prompt.fromJSON(JSON.parse(JSON.stringify(prompt)))
      expect(back).toBeInstanceOf(Prompt)
      expect(back).toEqual(prompt)
      expect(back.formatMessages({ name: 'Bob' })).toEqual(prompt.formatMessages({ name: 'Bob' }))
    }
    expect(Prompt.resourceType).toBe('prompt')
  })

  test('does not change with what it was made of, nor with what it gave', () => {
    const messages = [{ role: 'user' as const, content: 'Hi {name}' }]
    const prompt = Prompt.fromMessages(messages)
    messages[0]!.content = 'changed'
    prompt.formatMessages()[0]!.content = 'changed'
    expect(prompt.formatString({ name: 'Bob' })).toBe('user: Hi Bob')
  })

  test.each<[unknown, string]>([
    [undefined, 'A prompt is {text} or {messages: [{role, content}]}, got undefined.'],
    ['Hi', 'A prompt is {text} or {messages: [{role, content}]}, got "Hi".'],
    [{}, 'A prompt is {text} or {messages: [{role, content}]}, got an object.'],
    [{ text: 5 }, 'A prompt is {text} or {messages: [{role, content}]}, got an object, whose text is 5.'],
    [{ messages: 'x' }, 'A prompt is {text} or {messages: [{role, content}]}, got an object, whose messages are "x".'],
    [{ text: 'x', messages: [] }, 'A prompt is {text} or {messages: [{role, content}]}, got an object with both.'],
    [{ messages: [] }, 'A prompt of messages needs at least one.'],
    [
      {
        messages: [
          { role: 'user', content: 'x' },
          { role: 'boss', content: 'x' },
        ],
      },
      'The role of message 1 of a prompt must be one of system, user, assistant, tool, got "boss".',
    ],
    [
      { messages: [null] },
      'The role of message 0 of a prompt must be one of system, user, assistant, tool, got undefined.',
    ],
    [{ messages: [{ role: 'user' }] }, 'The content of message 0 of a prompt must be a text, got undefined.'],
  ])('is not made of %j', (json, message) => {
    expect(() => Prompt.fromJSON(json)).toThrow(expect.objectContaining({ code: 'invalid_plan', message }))
  })
})
