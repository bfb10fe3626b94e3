/** The built-in action that asks models: rounds, streams, limits, structured answers and every way in which a model fails. */
import {
  AgentRunner,
  AgentPlan,
  ChatRequestEvent,
  createMemoryAgentStore,
  defineTool,
  InputEvent,
  Prompt,
  ToolRequestEvent,
  ToolResponseEvent,
  type ChatAnswer,
  type ChatDelta,
  type ChatModelConnection,
  type Json,
  type RunEvent,
} from 'convoke'
import { expect, test } from 'vitest'
import { add, chatAgent, readableLog, said, startChat, startRunner } from './support/chat-agents.ts'
import { cleanup, deferred, until, within } from './support/lifetime.ts'
import { startModelServer, type ModelScript, type ModelStep } from './support/model-server.ts'
import { failureOf } from './support/failure.ts'

const callAdd = (a: number, b: number, id?: string): ModelStep => {
  return { call: { name: 'add', arguments: { a, b }, ...(id === undefined ? {} : { id }) } }
}

function texts(told: readonly RunEvent[]): string[] {
  return told.flatMap((event) => (event.type === 'text' ? [event.text] : event.type === 'restart' ? ['<restart>'] : []))
}

test('a request is answered once, by its id, with all messages', async () => {
  const chat = await startChat(['Hi there.'])
  const response = await chat.ask('Hello?')
  expect(response).toMatchObject({
    response: { role: 'assistant', content: 'Hi there.' },
    messages: [
      { role: 'user', content: 'Hello?' },
      { role: 'assistant', content: 'Hi there.' },
    ],
    rounds: 1,
  })
  expect(response.usage?.outputTokens).toBe(2)
  expect(said(chat.model.requests[0])).toEqual(['user: Hello?'])
})

test('the model is asked again with the answers of its calls until it has an answer of its own', async () => {
  const chat = await startChat([[callAdd(1, 2, 'x'), callAdd(3, 4, 'y')], [callAdd(3, 7, 'z')], 'It is 10.'], {
    tools: [add],
  })
  const response = await chat.ask('1+2+3+4?')
  expect(response.rounds).toBe(3)
  expect(response.messages.map(({ role, content, toolCallId }) => [role, content, toolCallId])).toEqual([
    ['user', '1+2+3+4?', undefined],
    ['assistant', '', undefined],
    ['tool', '3', 'x'],
    ['tool', '7', 'y'],
    ['assistant', '', undefined],
    ['tool', '10', 'z'],
    ['assistant', 'It is 10.', undefined],
  ])
  // What the endpoint gets are its own native calls, each followed by its answer.
  expect(chat.model.requests[2]?.body.messages[1]?.tool_calls?.map(({ id }) => id)).toEqual(['x', 'y'])
  expect(chat.model.requests[2]?.body.messages[3]).toEqual({ role: 'tool', tool_call_id: 'y', content: '7' })
  expect(chat.told.map(({ type }) => type)).toEqual([
    'tool-call',
    'tool-call',
    'tool-result',
    'tool-result',
    'tool-call',
    'tool-result',
    'output',
  ])
})

test('the model gets the tools that its setup names, by names and globs, under names that endpoints take', async () => {
  const tools = ['add_one', 'add_two', 'remove'].map((name) =>
    defineTool({ name, description: `Does ${name}.`, input: { type: 'object', properties: {} }, run: () => name }),
  )
  const namesFor = async (setup: Json): Promise<string[]> => {
    const chat = await startChat(['ok'], { tools, setup: { tools: setup } })
    await chat.ask()
    return (chat.model.requests[0]?.body.tools ?? []).map((tool) => tool.function.name)
  }
  expect(await namesFor(['*'])).toEqual(['add_one', 'add_two', 'remove'])
  expect(await namesFor(['remove', 'add_*'])).toEqual(['remove', 'add_one', 'add_two'])
  expect(await namesFor([])).toEqual([])
})

test('what tools want said goes to the model: before, beside the message, and after they were used', async () => {
  const speaking = defineTool({
    name: 'search',
    description: 'Searches.',
    input: { type: 'object', properties: { words: { type: 'string' } } },
    traits: {
      prompt: { system: 'Search before you answer.', user: 'One topic at a time.', reminder: 'Name the source.' },
    },
    run: () => 'found',
  })
  const chat = await startChat([[{ call: { name: 'search', arguments: { words: 'tea' } } }], 'ok'], {
    tools: [speaking, add],
    setup: { prompt: 'You know tea.' },
  })
  await chat.ask('What is tea?')
  const [system, user] = said(chat.model.requests[0])
  expect(system).toMatch(/^system: You know tea\.\n\n# Tools\n\n## search\n[^]*Search before you answer\./)
  // A tool without words of its own is described by its definition.
  expect(system).not.toContain('## add')
  expect(user).toBe('user: What is tea?\n\nsearch: One topic at a time.')
  expect(said(chat.model.requests[1]).at(-1)).toBe('tool: found\n\nsearch: Name the source.')
  expect(said(chat.model.requests[1]).filter((text) => text.startsWith('system'))).toHaveLength(1)
})

test('the prompt of a setup is a resource with variables, or a text', async () => {
  const chat = await startChat(['ok'], {
    setup: { prompt: 'manner' },
    request: { variables: { tone: 'kind $& {x}' } },
    more: (agent) => agent.addResource('manner', Prompt.fromText('Be {tone}, {unknown}.')),
  })
  await chat.ask()
  expect(said(chat.model.requests[0])).toEqual(['system: Be kind $& {x}, {unknown}.', 'user: hello'])
  const plain = await startChat(['ok'], { setup: { prompt: 'Be brief.' } })
  await plain.ask()
  expect(said(plain.model.requests[0])).toEqual(['system: Be brief.', 'user: hello'])
})

test('text goes out as it comes, and does not count when the round calls tools', async () => {
  const more = deferred()
  const chat = await startChat(
    [
      ['Let me see. ', callAdd(1, 1)],
      [{ reasoning: 'two' }, 'It ', { wait: more.promise }, 'is 2.'],
    ],
    { tools: [add], request: { stream: true } },
  )
  const asked = chat.ask()
  await until(() => texts(chat.told).includes('It '))
  expect(texts(chat.told)).toEqual(['Let me see. ', '<restart>', 'It '])
  expect(chat.told).toContainEqual(expect.objectContaining({ type: 'reasoning', text: 'two' }))
  more.resolve()
  const { requestId } = await asked
  expect(texts(chat.told)).toEqual(['Let me see. ', '<restart>', 'It ', 'is 2.'])
  expect(chat.told.every((event) => !('requestId' in event) || event.requestId === requestId)).toBe(true)
})

test('without stream, and with an output schema, no text goes out', async () => {
  const silent = await startChat(['Hello.'])
  await silent.ask()
  const schema = { type: 'object', properties: { a: { type: 'number' } }, required: ['a'] }
  const structured = await startChat(['{"a": 1}'], { request: { stream: true, outputSchema: schema } })
  expect((await structured.ask()).output).toEqual({ a: 1 })
  expect(texts([...silent.told, ...structured.told])).toEqual([])
})

test('a failure that may pass is retried, and what was told before does not count', async () => {
  const chat = await startChat([['Half of ', { cut: true }], { status: 503 }, 'A whole answer.'], {
    setup: { retries: 2 },
    request: { stream: true, retry: { backoffMs: 1 } },
  })
  expect((await chat.ask()).response.content).toBe('A whole answer.')
  expect(texts(chat.told)).toEqual(['Half of ', '<restart>', 'A whole answer.'])
  expect(chat.model.requests).toHaveLength(3)
})

test('a model that is down, slow, cut off or talking nonsense has a code of its own', async () => {
  const down = await startChat(['never'])
  await down.model.stop()
  expect(await down.failure()).toMatchObject({ code: 'model_unavailable', retryable: true })
  const slow = await startChat([{ silent: true }], { connection: { timeoutMs: 50 } })
  expect((await slow.failure()).code).toBe('model_timeout')
  const cut = await startChat([['Half of ', { cut: true }]])
  expect((await cut.failure()).code).toBe('model_interrupted')
  const broken = await startChat([[{ raw: 'data: {"choices": [{\n\n' }]])
  expect((await broken.failure()).code).toBe('model_invalid')
  const refused = await startChat([{ status: 401 }], { setup: { retries: 5 } })
  expect((await refused.failure()).code).toBe('model_refused')
  expect(refused.model.requests).toHaveLength(1)
})

test('the next input of the key works after a failed one', async () => {
  const chat = await startChat([{ status: 500 }, 'Back again.'])
  expect((await chat.failure()).code).toBe('model_unavailable')
  expect((await chat.ask()).response.content).toBe('Back again.')
})

test('retries end with the last failure, and a wish for a long rest is granted at once', async () => {
  const chat = await startChat(() => ({ status: 503 }), { setup: { retries: 3 }, request: { retry: { backoffMs: 1 } } })
  expect((await chat.failure()).code).toBe('model_unavailable')
  expect(chat.model.requests).toHaveLength(4)
  const tired = await startChat(() => ({ status: 429, headers: { 'retry-after': '3600' } }), { setup: { retries: 3 } })
  expect((await tired.failure()).code).toBe('model_unavailable')
  expect(tired.model.requests).toHaveLength(1)
})

test('an endpoint that says when to come back is asked then', async () => {
  const chat = await startChat([{ status: 429, headers: { 'retry-after': '1' } }, 'Now.'], {
    setup: { retries: 1 },
    request: { retry: { backoffMs: 0 } },
  })
  const startedAt = performance.now()
  await chat.ask()
  expect(performance.now() - startedAt).toBeGreaterThan(900)
})

test('the strategy retry asks again after answers that are none, too', async () => {
  const twice = [callAdd(1, 1, 'same'), callAdd(2, 2, 'same')]
  const chat = await startChat([[{ raw: 'data: {"choi\n\n' }], twice, 'Fine.'], {
    tools: [add],
    request: { errorStrategy: 'retry', retry: { attempts: 3, backoffMs: 1 } },
  })
  expect((await chat.ask()).response.content).toBe('Fine.')
})

test('the strategy ignore ends without a response, and says so', async () => {
  const log = readableLog()
  const model = await startModelServer(['no JSON', { status: 503 }])
  const schema = { type: 'object' }
  const runner = startRunner(chatAgent(model, { request: { errorStrategy: 'ignore', outputSchema: schema } }), { log })
  const told: RunEvent[] = []
  const onEvent = (event: RunEvent): undefined => void told.push(event)
  expect(await runner.run('key', 'a', { onEvent })).toEqual({ outputs: [] })
  expect(told).toContainEqual({ type: 'ignored', requestId: expect.any(String), reason: 'schema mismatch' })
  expect(await runner.run('key', 'b', { onEvent })).toEqual({ outputs: [] })
  expect(told.at(-1)).toMatchObject({ type: 'ignored', reason: expect.stringContaining('model') })
  expect(log.lines.filter((line) => line.includes('ignored'))).toHaveLength(2)
})

test('ignore covers whatever a model does', async () => {
  let n = 0
  const calling = (): ModelStep[] => [callAdd(n++, 1)]
  const same = (): ModelStep[] => [callAdd(1, 1)]
  const unknown = (): ModelStep[] => [{ call: { name: 'fly' } }]
  const runs: [ModelScript, object][] = [
    [[{ silent: true }], { timeoutMs: 50 }],
    [calling, { maxRounds: 2 }],
    [calling, { maxToolCalls: 2 }],
    [[['word', { usage: { input: 40, output: 11 } }]], { maxTokens: 50 }],
    [same, {}],
    [unknown, {}],
    [[[callAdd(1, 1, 'same'), callAdd(2, 2, 'same')]], {}],
    [[{ status: 401 }], {}],
    [[['One', { cut: true }]], {}],
  ]
  for (const [script, limits] of runs) {
    const model = await startModelServer(script)
    const request = { errorStrategy: 'ignore', limits: limits as never } as const
    const runner = startRunner(chatAgent(model, { tools: [add], request }))
    const told: RunEvent[] = []
    expect(await runner.run('key', 'a', { onEvent: (event) => void told.push(event) })).toEqual({ outputs: [] })
    expect(told.at(-1)?.type).toBe('ignored')
  }
})

test('ignore covers failures of the model, not mistakes in the agent', async () => {
  const chat = await startChat([], { request: { errorStrategy: 'ignore', model: 'chatt' } })
  const failure = await chat.failure()
  expect(failure.code).toBe('not_found')
  expect(failure.message).toContain('"chatt"')
  // The names of an agent's resources are for its log.
  expect(failure.message).not.toContain('"chat"')
})

test('a cancelled run stops the model at once', async () => {
  const chat = await startChat([['Once upon ', { silent: true }]], { request: { stream: true }, setup: { retries: 5 } })
  const controller = new AbortController()
  const asked = chat.failure('hello', { signal: controller.signal })
  await until(() => texts(chat.told).length === 1)
  controller.abort()
  expect((await within(asked, 'the run to end')).code).toBe('canceled')
  const request = await chat.model.request(0)
  await within(request.aborted, 'the model to hear of it')
})

test('rounds, tool calls, tokens and time have limits with codes of their own', async () => {
  let n = 0
  const endless = (): ModelStep[] => [callAdd(n++, 1)]
  const limited = async (limits: object, script = endless as never): Promise<[string, string, number]> => {
    const chat = await startChat(script, { tools: [add], request: { limits: limits as never } })
    const { code, message } = await chat.failure()
    return [code, message, chat.model.requests.length]
  }
  const [roundCode, roundMessage, rounds] = await limited({ maxRounds: 3 })
  expect([roundCode, rounds]).toEqual(['round_limit', 3])
  expect(roundMessage).toContain('asked 3 times')
  expect(roundMessage).toContain('`maxRounds`')
  expect((await limited({ maxToolCalls: 2 })).filter((_, i) => i !== 1)).toEqual(['tool_call_limit', 3])
  expect((await limited({ maxToolCalls: 0 })).filter((_, i) => i !== 1)).toEqual(['tool_call_limit', 1])
  const [tokenCode, tokenMessage] = await limited({ maxTokens: 50 }, [
    ['word ', { usage: { input: 40, output: 11 } }],
  ] as never)
  expect(tokenCode).toBe('token_limit')
  expect(tokenMessage).toContain('51 tokens and may take 50')
  const [timeCode, timeMessage, asked] = await limited({ timeoutMs: 80 }, [{ silent: true }] as never)
  expect([timeCode, asked]).toEqual(['time_limit', 1])
  expect(timeMessage).toContain('80 ms')
})

test('by default a request may have 12 rounds', async () => {
  let n = 0
  const chat = await startChat(() => [callAdd(n++, 1)], { tools: [add] })
  expect((await chat.failure()).code).toBe('round_limit')
  expect(chat.model.requests).toHaveLength(12)
})

test('limits of the request stand over those of the setup', async () => {
  let n = 0
  const chat = await startChat(() => [callAdd(n++, 1)], {
    tools: [add],
    setup: { limits: { maxRounds: 2, maxToolCalls: 1 } },
    request: { limits: { maxToolCalls: 64 } },
  })
  expect((await chat.failure()).code).toBe('round_limit')
})

test('tokens are estimated where the endpoint does not count them', async () => {
  const chat = await startChat(
    [{ status: 200, headers: { 'content-type': 'text/event-stream' }, body: sse('word '.repeat(400)) }],
    {
      request: { limits: { maxTokens: 300 } },
    },
  )
  expect((await chat.failure()).code).toBe('token_limit')
})

function sse(content: string): string {
  const chunk = { choices: [{ index: 0, delta: { content }, finish_reason: 'stop' }] }
  return `data: ${JSON.stringify(chunk)}\n\ndata: [DONE]\n\n`
}

test('a limit that makes no sense is refused', async () => {
  const chat = await startChat([], { request: { limits: { maxRounds: 0 } } })
  expect(await chat.failure()).toMatchObject({
    code: 'config',
    message: '`limits.maxRounds` must be a whole number of 1 or more, got 0.',
  })
})

test('the time limit stops the tools, too', async () => {
  const stopped = deferred<string>()
  const hang = defineTool({
    name: 'hang',
    description: 'Never ends.',
    input: { type: 'object', properties: {} },
    run: (_params, { signal }) =>
      new Promise((_resolve, reject) => {
        signal.addEventListener('abort', () => {
          stopped.resolve('stopped')
          reject(new Error('stopped'))
        })
      }),
  })
  const chat = await startChat([[{ call: { name: 'hang' } }], 'never'], {
    tools: [hang],
    request: { limits: { timeoutMs: 150 } },
  })
  expect((await within(chat.failure(), 'the run to end')).code).toBe('time_limit')
  expect(await within(stopped.promise, 'the tool to stop')).toBe('stopped')
  expect(chat.model.requests).toHaveLength(1)
})

test('a retry does not begin behind the time limit', async () => {
  const chat = await startChat(() => ({ status: 503 }), {
    setup: { retries: 5 },
    request: { limits: { timeoutMs: 200 }, retry: { backoffMs: 10_000 } },
  })
  expect((await within(chat.failure(), 'the run to end')).code).toBe('model_unavailable')
  expect(chat.model.requests).toHaveLength(1)
})

test('a model that calls only tools that do not exist is told so twice, and ended the third time', async () => {
  const chat = await startChat((_request, index) => [{ call: { name: `ad${index}` } }], { tools: [add] })
  const failure = await chat.failure()
  expect(failure.code).toBe('unknown_tool')
  expect(failure.message).toContain('"ad2"')
  expect(failure.message).toContain('It has add')
  expect(chat.model.requests).toHaveLength(3)
  expect(said(chat.model.requests[1]).at(-1)).toContain('not_found')
})

test('a model that finds its tools after a wrong name goes on', async () => {
  const wrong: ModelStep[] = [{ call: { name: 'addd', arguments: { a: 1, b: 2 } } }]
  const chat = await startChat([wrong, wrong, [callAdd(1, 2)], wrong, wrong, '3'], { tools: [add] })
  expect((await chat.ask()).response.content).toBe('3')
  expect(said(chat.model.requests[1]).at(-1)).toContain('Did you mean')
})

test('the same call with the same answer three rounds in a row is a loop', async () => {
  const chat = await startChat(
    (_request, index) => [{ call: { name: 'add', arguments: index === 1 ? '{"b":2, "a":1}' : '{"a":1,"b":2}' } }],
    { tools: [add] },
  )
  const failure = await chat.failure()
  expect(failure.code).toBe('tool_loop')
  expect(failure.message).toContain('"add"')
  expect(chat.model.requests).toHaveLength(3)
})

test('the same call with another answer each time is no loop', async () => {
  let n = 0
  const next = defineTool({
    name: 'next',
    description: 'The next number.',
    input: { type: 'object', properties: {} },
    run: () => n++,
  })
  const chat = await startChat((_request, index) => (index < 5 ? [{ call: { name: 'next' } }] : 'Done.'), {
    tools: [next],
  })
  expect((await chat.ask()).rounds).toBe(6)
})

test('two calls of one id in an answer are refused, and nothing is called', async () => {
  let calls = 0
  const count = defineTool({
    name: 'count',
    description: 'Counts.',
    input: { type: 'object', properties: { n: { type: 'number' } } },
    run: () => ++calls,
  })
  const chat = await startChat(
    [
      [
        { call: { name: 'count', arguments: { n: 1 }, id: 'c' } },
        { call: { name: 'count', arguments: { n: 2 }, id: 'c' } },
      ],
    ],
    { tools: [count] },
  )
  expect((await chat.failure()).code).toBe('duplicate_call_id')
  expect(calls).toBe(0)
})

test('a round that is answered twice is refused, and said clearly', async () => {
  const chat = await startChat([[callAdd(1, 2, 'x')], [callAdd(1, 3, 'y')], 'never'], {
    tools: [add],
    more: (agent) =>
      agent.addAction('also', [ToolRequestEvent], (event, context) => {
        context.sendEvent(
          new ToolResponseEvent({
            requestId: event.id,
            callIds: ['x'],
            responses: { x: { name: 'add', success: true, content: '3' } },
            success: { x: true },
            errors: {},
            externalIds: { x: 'x' },
          }),
        )
      }),
  })
  const failure = await chat.failure()
  expect(failure.code).toBe('duplicate_call_id')
  expect(failure.message).toContain('answered twice')
})

test('broken arguments go back to the model, which mends them', async () => {
  const chat = await startChat([[{ call: { name: 'add', arguments: '{"a": 1, "b"' } }], [callAdd(1, 2)], '3'], {
    tools: [add],
  })
  expect((await chat.ask()).response.content).toBe('3')
  expect(said(chat.model.requests[1]).at(-1)).toContain('not complete JSON')
})

const scored = {
  type: 'object',
  properties: { score: { type: 'integer', minimum: 1, maximum: 5 } },
  required: ['score'],
  additionalProperties: false,
}

test('an answer is JSON however the model wraps it', async () => {
  const wrappings = [
    '{"score": 5}',
    '```json\n{"score": 5}\n```',
    'Here it is:\n```\n{"score": 5}\n```\nAnything else?',
    'I would say {"score": 5}, because [it] is good.',
    '```json\n{"score": 5}',
    '\n\n  {"score": 5}  \n',
  ]
  for (const wrapping of wrappings) {
    const chat = await startChat([wrapping], { request: { outputSchema: scored } })
    expect((await chat.ask()).output, wrapping).toEqual({ score: 5 })
  }
})

test('of several values in an answer the only one that fits is taken', async () => {
  for (const answer of [
    'As in [1] and [2], {"score": 5}',
    'Such as:\n```json\n{"score": 9}\n```\nSo:\n```json\n{"score": 5}\n```',
  ]) {
    const chat = await startChat([answer], { request: { outputSchema: scored } })
    expect((await chat.ask()).output, answer).toEqual({ score: 5 })
  }
  const torn = await startChat(['{"score": 5} or {"score": 4}'], { request: { outputSchema: scored } })
  const failure = await torn.failure()
  expect(failure.issues).toEqual([{ path: '', message: 'must be one JSON value, and holds 2 of them' }])
})

test('a text with code fences inside of its JSON is taken as it is', async () => {
  const value = { code: '```js\nlet a = {}\n```', note: 'as {"score": 5}' }
  const chat = await startChat([`\`\`\`json\n${JSON.stringify(value)}\n\`\`\``], {
    request: { outputSchema: { type: 'object' } },
  })
  expect((await chat.ask()).output).toEqual(value)
})

test('the endpoint is asked to hold the model to the schema', async () => {
  const chat = await startChat(['{"score": 5}'], { request: { outputSchema: scored } })
  await chat.ask()
  expect(chat.model.requests[0]?.body.response_format).toMatchObject({ type: 'json_schema' })
})

test('a model with tools is free to call them, and held to the schema only when its answer does not fit', async () => {
  const request = { outputSchema: scored }
  const call: ModelStep[] = [callAdd(2, 3)]
  const fits = await startChat([call, 'So {"score": 5}.'], { tools: [add], request })
  expect((await fits.ask()).output).toEqual({ score: 5 })
  for (const { body } of fits.model.requests) {
    expect(body.tools).toHaveLength(1)
    expect(body.response_format).toBeUndefined()
    expect(body.messages[0]?.content).toContain('JSON Schema')
  }
  const held = await startChat([call, 'Five.', '{"score": 5}'], { tools: [add], request })
  expect(await held.ask()).toMatchObject({ output: { score: 5 }, rounds: 3 })
  expect(held.model.requests[2]?.body.tools).toBeUndefined()
  expect(held.model.requests[2]?.body.response_format).toMatchObject({ type: 'json_schema' })
  expect(said(held.model.requests[2]).at(-1)).toContain('must be JSON')
  const stubborn = await startChat(() => 'Five.', { tools: [add], request })
  expect((await stubborn.failure()).code).toBe('invalid_output')
  expect(stubborn.model.requests).toHaveLength(2)
})

test('an answer that does not fit fails the run with what is wrong', async () => {
  const cases: [string, string][] = [
    ['{"score": 9}', '/score'],
    ['no JSON at all', 'must be JSON'],
    ['{"score": 5} or {"score": 4}', '2 of them'],
    ['{"score": 5', 'its end is missing'],
    ['First {"score": 5} and then {"score": ', 'its end is missing'],
    ['', 'is empty'],
    [`${'['.repeat(100_000)}`, 'its end is missing'],
    [`{"score": ${'['.repeat(300)}${']'.repeat(300)}}`, 'deeper than 200'],
  ]
  for (const [answer, words] of cases) {
    const chat = await startChat([answer], { request: { outputSchema: scored } })
    const failure = await chat.failure()
    expect(failure.code, answer.slice(0, 40)).toBe('invalid_output')
    expect(failure.message).toContain(words)
    expect(failure.issues?.length).toBeGreaterThan(0)
  }
})

test('an answer that was cut at the limit of tokens says so', async () => {
  const chat = await startChat([['{"score": ', { finish: 'length' }]], { request: { outputSchema: scored } })
  expect((await chat.failure()).message).toContain('`max_tokens`')
})

test('what does not fit goes back to the model as often as the request says, and each is a round', async () => {
  const chat = await startChat(['{"score": 9}', 'four', '{"score": 4}'], {
    request: { outputSchema: scored, invalidRetries: 2 },
  })
  const response = await chat.ask()
  expect([response.output, response.rounds]).toEqual([{ score: 4 }, 3])
  const [system, , answer, words] = said(chat.model.requests[1])
  expect(system).toContain('JSON Schema')
  expect(answer).toBe('assistant: {"score": 9}')
  expect(words).toMatch(/^user: Your answer does not fit[^]*\/score[^]*5/)
  const stubborn = await startChat(() => '{"score": 9}', { request: { outputSchema: scored, invalidRetries: 2 } })
  expect((await stubborn.failure()).code).toBe('invalid_output')
  expect(stubborn.model.requests).toHaveLength(3)
  const few = await startChat(() => 'four', {
    request: { outputSchema: scored, invalidRetries: 9, limits: { maxRounds: 2 } },
  })
  expect((await few.failure()).code).toBe('round_limit')
})

test('a prompt that asks by itself needs no further messages', async () => {
  const prompt = Prompt.fromMessages([
    { role: 'system', content: 'You judge tea.' },
    { role: 'user', content: 'Judge {tea}.' },
  ])
  const { ask, model } = await startChat(['Good.'], {
    setup: { prompt: 'judge' },
    request: { messages: [], variables: { tea: 'oolong' } },
    more: (agent) => agent.addResource('judge', prompt),
    tools: [{ ...add, traits: { prompt: { user: 'Add with care.' } } }],
  })
  expect((await ask()).response.content).toBe('Good.')
  expect(said(model.requests[0])).toEqual(['system: You judge tea.', 'user: Judge oolong.\n\nadd: Add with care.'])
})

test('a request that makes no sense is refused in words', async () => {
  const messageOf = async (request: object): Promise<string> => {
    const chat = await startChat([], { request: request as never })
    const { code, message } = await chat.failure()
    return `${code}: ${message}`
  }
  expect(await messageOf({ messages: [] })).toBe(
    'invalid_event: A chat request is wrong: `messages` is empty, and the prompt of the chat model setup "chat" has no message of a user.',
  )
  expect(await messageOf({ messages: 'Hi.' })).toContain('`messages` must be a list of messages, got "Hi."')
  expect(await messageOf({ messages: [{ role: 'bot', content: 'x' }] })).toContain('`messages[0]`')
  expect(await messageOf({ model: '' })).toContain('`model` must name a chat model setup')
  expect(await messageOf({ continues: 7 })).toContain('`continues` must be the id of a request')
  expect(await messageOf({ errorStrategy: 'hope' })).toContain('config: `errorStrategy` must be one of')
  expect(await messageOf({ errorStrategy: 'retry', retry: { attempts: 0 } })).toContain('`retry.attempts`')
})

test('an output schema that makes no sense is said so', async () => {
  const chat = await startChat(['{}'], { request: { outputSchema: { type: 'objekt' } } })
  expect(await chat.failure()).toMatchObject({ code: 'config', message: expect.stringContaining('output schema') })
})

test('two requests of one run keep their messages apart', async () => {
  const model = await startModelServer(({ body }) => {
    const last = body.messages.at(-1)
    return last?.role === 'tool' ? `so ${last.content}` : [callAdd(Number(last?.content), 1)]
  })
  const agent = chatAgent(model, { tools: [add] })
  agent.addAction('second', [InputEvent], (_event, context) =>
    context.sendEvent(
      new ChatRequestEvent({ model: 'chat', messages: [{ role: 'user', content: '10' }] }, 'an.id with dots'),
    ),
  )
  const { outputs } = await startRunner(agent).run('key', '1')
  expect(outputs.map((each) => (each as never)['response']['content'])).toEqual(['so 2', 'so 11'])
})

test('a resumed run does not ask again for rounds that it has, and tells their text', async () => {
  const store = createMemoryAgentStore()
  const finish = deferred()
  const model = await startModelServer(async (_request, index) => {
    if (index === 0) return [callAdd(1, 2)]
    if (index === 1) return 'It is 3.'
    return 'Asked too often.'
  })
  let attempt = 0
  const agent = chatAgent(model, { tools: [add], request: { stream: true } })
  agent.addAction('hold', ['chat_response'], async (_event, context) => {
    if (++attempt > 1) return
    await new Promise((resolve) => {
      context.signal.addEventListener('abort', resolve)
      finish.resolve()
    })
  })
  const first = new AgentRunner({ plan: AgentPlan.fromAgent(agent), store })
  const lost = failureOf(first.run('key', 'hello', { id: 'input-1' }))
  await finish.promise
  await first.close()
  await lost
  const told: RunEvent[] = []
  const second = new AgentRunner({ plan: AgentPlan.fromAgent(agent), store })
  cleanup(() => second.close())
  const { outputs } = await second.run('key', 'hello', { id: 'input-1', onEvent: (event) => void told.push(event) })
  expect(outputs).toHaveLength(1)
  expect(model.requests).toHaveLength(2)
  expect(texts(told)).toEqual(['It is 3.'])
})

test('the first words leave as soon as they come', async () => {
  const first = deferred<string>()
  // The model never comes to its second word.
  const chat = await startChat([['one', { wait: new Promise(() => {}) }]], { request: { stream: true } })
  const controller = new AbortController()
  const asked = chat.failure('hello', {
    signal: controller.signal,
    onEvent: (event) => void (event.type === 'text' && first.resolve(event.text)),
  })
  expect(await within(first.promise, 'the first word')).toBe('one')
  controller.abort()
  await asked
})

test('a request holds a megabyte and more of what its tools answer', async () => {
  const page = defineTool({
    name: 'page',
    description: 'A page of a long book.',
    input: { type: 'object', properties: { n: { type: 'number' } } },
    run: ({ n }) => String(n).repeat(30_000),
  })
  const chat = await startChat(
    (_request, index) =>
      index === 8
        ? 'Read.'
        : Array.from({ length: 8 }, (_, i) => ({ call: { name: 'page', arguments: { n: index * 8 + i } } })),
    { tools: [page] },
  )
  const { messages, rounds } = await chat.ask('Read it all.')
  expect(rounds).toBe(9)
  expect(JSON.stringify(messages).length).toBeGreaterThan(1_200_000)
})

test('a connection of another make is asked, told from and stopped like any other', async () => {
  const begun = deferred()
  const answers: (() => AsyncGenerator<ChatDelta, ChatAnswer, void>)[] = [
    async function* () {
      yield { type: 'text', text: 'One' }
      yield { type: 'restart' }
      return { message: { role: 'assistant', content: 'Two in one piece.' } }
    },
    async function* () {
      yield { type: 'text', text: '' }
      return undefined as never
    },
    // Deaf to its signal.
    async function* () {
      begun.resolve()
      yield await new Promise<never>(() => {})
      throw new Error('never')
    },
    async function* () {
      yield { type: 'reasoning', text: 'hm' }
      const toolCalls = [{ id: '', name: 'add', arguments: { a: 1, b: 2 } }]
      return { message: { role: 'assistant', content: '', toolCalls } }
    },
    async function* () {
      yield { type: 'text', text: 'Three.' }
      return { message: { role: 'assistant', content: 'Three.' } }
    },
  ]
  let asked = 0
  const connection: ChatModelConnection = { chat: () => answers[asked++]!() }
  const chat = await startChat([], {
    tools: [add],
    setup: { connection: 'other' },
    request: { stream: true },
    more: (agent) => agent.addResource('other', connection, 'chatModelConnection'),
  })
  expect((await chat.ask()).response.content).toBe('Two in one piece.')
  expect(texts(chat.told)).toEqual(['One', '<restart>', 'Two in one piece.'])
  expect((await chat.failure()).code).toBe('model_invalid')
  const controller = new AbortController()
  const stopped = chat.failure('hello', { signal: controller.signal })
  await begun.promise
  controller.abort()
  expect((await within(stopped, 'the run to end')).code).toBe('canceled')
  const { messages } = await chat.ask()
  expect(messages[2]?.content).toBe('3')
  expect(messages[2]?.toolCallId).toMatch(/^call_/)
})
