/** What the many endpoints that speak chat completions really send, each in its own way, over real sockets. */
import {
  defineTool,
  OpenAiConnection,
  ReActAgent,
  type ChatAnswer,
  type ChatDelta,
  type ChatMessage,
  type ChatRequest,
  type JsonObject,
  type OpenAiConnectionOptions,
} from 'convoke'
import { describe, expect, test } from 'vitest'
import { add, addModel, startChat, startRunner } from './support/chat-agents.ts'
import { failureOf } from './support/failure.ts'
import { cleanup } from './support/lifetime.ts'
import {
  startModelServer,
  type ModelAnswer,
  type ModelRequest,
  type ModelScript,
  type ModelStep,
} from './support/model-server.ts'

const hello: ChatRequest = { messages: [{ role: 'user', content: 'Hello.' }] }
const tool = {
  type: 'function' as const,
  function: { name: 'add', description: 'Adds.', parameters: { type: 'object' as const } },
}
const withTools: ChatRequest = { ...hello, tools: [tool] }

async function start(script: ModelScript, options: Partial<OpenAiConnectionOptions> = {}) {
  const model = await startModelServer(script)
  const connection = new OpenAiConnection({ baseUrl: model.url, model: 'scripted', ...options })
  cleanup(() => connection.close())
  const ask = async (request: ChatRequest = hello): Promise<{ deltas: ChatDelta[]; answer: ChatAnswer }> => {
    const deltas: ChatDelta[] = []
    const answering = connection.chat(request, { signal: new AbortController().signal })
    for (;;) {
      const step = await answering.next()
      if (step.done === true) return { deltas, answer: step.value }
      deltas.push(step.value)
    }
  }
  return { model, ask }
}

async function answerTo(answer: ModelAnswer, request?: ChatRequest) {
  const { ask } = await start([answer])
  return await ask(request)
}

/** The deltas as one line each, those of one type put together. */
function told(deltas: readonly ChatDelta[]): string[] {
  const lines: string[] = []
  let last = ''
  for (const delta of deltas) {
    const text = 'text' in delta ? delta.text : ''
    if (delta.type === last) lines.push(lines.pop() + text)
    else lines.push(`${delta.type}: ${text}`)
    last = delta.type
  }
  return lines
}

/** Bytes of a stream as they are. */
function stream(body: string): ModelAnswer {
  return { status: 200, headers: { 'content-type': 'text/event-stream' }, body }
}

describe('thoughts in the content of an answer', () => {
  test.each<[string, ModelStep[], string[]]>([
    ['in one piece', ['<think>Hm.</think>\n\nYes.'], ['reasoning: Hm.', 'text: Yes.']],
    [
      'in pieces that cut the tags',
      ['\n<th', 'ink>\nHm', '.\n</', 'thin', 'k>', '\n\n', 'Yes', '.'],
      ['reasoning: \nHm.\n', 'text: Yes.'],
    ],
    ['one character after the other', '<think>a<b</think>Yes.'.split(''), ['reasoning: a<b', 'text: Yes.']],
    ['that are empty', ['<think>\n\n</think>\n\nYes.'], ['reasoning: \n\n', 'text: Yes.']],
    ['by another name', ['<thought>Hm.</thought>Yes.'], ['reasoning: Hm.', 'text: Yes.']],
    ['that never end', ['<think>Hm. </thi', { finish: 'length' }], ['reasoning: Hm. </thi']],
    ['beside others', [{ reasoning: 'Hm.' }, '\n\nYes.'], ['reasoning: Hm.', 'text: Yes.']],
  ])('%s are no part of it', async (_, steps, expected) => {
    const { deltas, answer } = await answerTo(steps)
    expect(told(deltas)).toEqual(expected)
    expect(answer.message.content).toBe(expected[1]?.slice('text: '.length) ?? '')
  })

  test.each<[string, string[]]>([
    ['words that only look like a tag', ['<th', 'ree> thoughts']],
    ['a tag in its middle', ['Write <think>', 'so</think>.']],
    ['a closing tag in quotes', ['End it with `</think>', '`.']],
    ['the beginning of a tag at its end', ['a <', '/think']],
    ['nothing but space', ['\n ']],
  ])('are not made of %s', async (_, pieces) => {
    const { deltas, answer } = await answerTo(pieces)
    expect(told(deltas)).toEqual([`text: ${pieces.join('')}`])
    expect(answer.message.content).toBe(pieces.join(''))
  })

  test('are found where the template has written the opening tag: what was told is taken back', async () => {
    const { deltas, answer } = await answerTo(['Hm. ', 'I see.\n</th', 'ink>\n\nYes', '.'])
    expect(told(deltas)).toEqual(['text: Hm. I see.\n', 'restart: ', 'reasoning: Hm. I see.\n', 'text: Yes.'])
    expect(answer.message.content).toBe('Yes.')
    expect((await answerTo({ whole: 'Hm.\n</think>\n\nYes.' })).answer.message.content).toBe('Yes.')
    // Whoever sends thoughts apart has cut them out.
    const apart = await answerTo([{ reasoning: 'Hm.' }, 'Not </think> there.'])
    expect(apart.answer.message.content).toBe('Not </think> there.')
  })

  test('are neither streamed nor kept, and do not break an answer that is data', async () => {
    const thinking = '<think>Perhaps {"score": 1}?</think>\n{"score": 5}'
    const outputSchema = { type: 'object', properties: { score: { type: 'integer' } }, required: ['score'] }
    const data = await startChat([thinking], { request: { outputSchema } })
    expect(await data.ask()).toMatchObject({ output: { score: 5 }, response: { content: '{"score": 5}' } })

    const plain = await startChat([['Hm.\n</think>\n\n', 'Yes.']], { request: { stream: true } })
    const { messages } = await plain.ask()
    expect(messages.map(({ content }) => content)).toEqual(['hello', 'Yes.'])
    const texts = plain.told.slice(plain.told.findLastIndex(({ type }) => type === 'restart') + 1)
    expect(texts.flatMap((event) => (event.type === 'text' ? event.text : []))).toEqual(['Yes.'])
  })
})

describe('what an endpoint wants back', () => {
  const signature = { google: { thought_signature: 'c2lnbmVk' } }
  const secret = { type: 'reasoning.encrypted', data: 'abc', index: 1 }
  const call: ModelStep = { call: { name: 'add', arguments: { a: 1, b: 2 }, id: 'a' } }

  // DeepSeek and Kimi refuse a conversation whose tool calls have lost their thoughts; Groq and Cerebras take
  // `reasoning` and refuse `reasoning_content`; Gemini 3 wants its signatures, behind OpenRouter as details.
  test.each<[string, ModelStep[], JsonObject, JsonObject?]>([
    ['reasoning_content', [{ reasoning: 'Two ' }, { reasoning: 'numbers.' }], { reasoning_content: 'Two numbers.' }],
    [
      'reasoning',
      [{ delta: { reasoning: 'Two ' } }, { delta: { reasoning: 'numbers.' } }],
      { reasoning: 'Two numbers.' },
    ],
    [
      'reasoning_details',
      [
        {
          delta: { reasoning: 'a', reasoning_details: [{ type: 'reasoning.text', text: 'a', index: 0, format: 'x' }] },
        },
        {
          delta: { reasoning: 'b', reasoning_details: [{ type: 'reasoning.text', text: 'b', index: 0, format: 'x' }] },
        },
        { delta: { reasoning_details: [{ type: 'reasoning.text', signature: 's', index: 0 }, secret] } },
      ],
      {
        reasoning: 'ab',
        reasoning_details: [{ type: 'reasoning.text', text: 'ab', index: 0, format: 'x', signature: 's' }, secret],
      },
    ],
  ])('as %s goes back with the calls that it led to', async (_, steps, extra) => {
    const { model, ask } = await startChat([[...steps, call], 'It is 3.'], { tools: [add] })
    const { messages } = await ask()
    const [, second] = model.requests
    expect(second?.body.messages[1]).toMatchObject({ role: 'assistant', content: null, ...extra })
    expect(messages[1]).toMatchObject({ content: '' })
  })

  test('stays in the conversation of an agent, whose calls would be refused without', async () => {
    const model = await startModelServer([[{ reasoning: 'Two numbers.' }, call], 'It is 3.', 'Bye.'])
    const agent = new ReActAgent({ chatModel: { connection: 'local', tools: ['*'], retries: 0 }, conversation: true })
    addModel(agent, model, { tools: [add] })
    const runner = startRunner(agent)
    await runner.run('key', '1 + 2?')
    expect((await runner.run('key', 'Thank you.')).outputs).toEqual(['Bye.'])
    const { messages } = (await model.request(2)).body
    expect(messages.map((message) => (message as { reasoning_content?: string }).reasoning_content)).toEqual([
      undefined,
      'Two numbers.',
      undefined,
      undefined,
      undefined,
    ])
  })

  test('of a call goes back with the call, also where it comes by itself', async () => {
    const whole = { id: 'a', type: 'function', function: { name: 'add', arguments: '{"a":1,"b":2}' } }
    const { model, ask } = await startChat(
      [
        [
          { delta: { tool_calls: [whole] } },
          { delta: { tool_calls: [{ extra_content: signature }] } },
          { finish: 'stop' },
        ],
        'It is 3.',
      ],
      { tools: [add] },
    )
    expect(await ask()).toMatchObject({ response: { content: 'It is 3.' } })
    const [, second] = model.requests
    expect(second?.body.messages[1]?.tool_calls).toEqual([{ ...whole, extra_content: signature }])
  })

  test('is not kept where no tools are: nobody wants it then', async () => {
    const { ask } = await start(() => [{ reasoning: 'Hm.' }, 'Yes.'])
    expect((await ask()).answer.message).toEqual({ role: 'assistant', content: 'Yes.' })
    expect((await ask(withTools)).answer.message).toEqual({
      role: 'assistant',
      content: 'Yes.',
      extra: { reasoning_content: 'Hm.' },
    })
  })

  test('never stands over what a message says itself, and is left out where another endpoint refuses it', async () => {
    const refusal =
      "'messages.1' : for 'role:assistant' the following must be satisfied[('messages.1' : property 'reasoning_content' is unsupported)]"
    const { model, ask } = await start([{ status: 400, body: { error: { message: refusal } } }, 'Yes.'])
    const before: ChatMessage = {
      role: 'assistant',
      content: 'Hi.',
      extra: { reasoning_content: 'Hm.', role: 'system' },
    }
    const { answer } = await ask({ messages: [...hello.messages, before, ...hello.messages] })
    expect(answer.message.content).toBe('Yes.')
    expect(model.requests.map(({ body }) => body.messages[1])).toEqual([
      { role: 'assistant', content: 'Hi.', reasoning_content: 'Hm.' },
      { role: 'assistant', content: 'Hi.' },
    ])
  })
})

describe('tool calls', () => {
  async function callsOf(...deltas: object[]): Promise<unknown> {
    const steps = deltas.map((delta) => ({ delta: { tool_calls: [delta] } }))
    return (await answerTo([...steps, { finish: 'stop' }])).answer.message.toolCalls
  }

  test('hold together when their pieces have other ids', async () => {
    expect(
      await callsOf(
        { index: 0, id: 'a', function: { name: 'add', arguments: '{"n"' } },
        { index: 0, id: 'b', function: { arguments: ':1' } },
        { index: 0, id: 'c', function: { arguments: '}' } },
      ),
    ).toEqual([{ id: 'a', name: 'add', arguments: '{"n":1}' }])
  })

  test('may say their name after their id, or in pieces', async () => {
    expect(
      await callsOf(
        { index: 0, id: 'a', function: { arguments: '' } },
        { index: 0, function: { name: 'ad', arguments: '' } },
        { index: 0, function: { name: 'd_all', arguments: '{}' } },
      ),
    ).toEqual([{ id: 'a', name: 'add_all', arguments: '{}' }])
  })

  test.each([
    ['', '{}'],
    ['null', '{}'],
    [' ', '{}'],
    ['[1]', '{"broken":"[1]"}'],
  ])('with %j for arguments go back as %s', async (given, sent) => {
    const { model, ask } = await start(['Yes.'])
    const calling: ChatMessage = {
      role: 'assistant',
      content: '',
      toolCalls: [{ id: 'a', name: 'add', arguments: given }],
    }
    await ask({ messages: [...hello.messages, calling] })
    expect(model.requests[0]?.body.messages[1]?.tool_calls?.[0]?.function.arguments).toBe(sent)
  })

  test('reach a tool without params, whose schema says that there are none', async () => {
    const now = defineTool({ name: 'now', description: 'Tells the hour.', input: { type: 'object' }, run: () => 7 })
    const { model, ask } = await startChat([[{ call: { name: 'now', arguments: '' } }], '7.'], { tools: [now] })
    expect(await ask()).toMatchObject({ response: { content: '7.' } })
    // OpenAI: "object schema missing properties".
    expect(model.requests[0]?.body.tools?.[0]?.function['parameters']).toEqual({ type: 'object', properties: {} })
  })
})

describe('a limit of tokens', () => {
  const refuses = ({ body }: ModelRequest): ModelAnswer =>
    'max_tokens' in body
      ? {
          status: 400,
          body: {
            error: {
              message:
                "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead.",
              type: 'invalid_request_error',
              param: 'max_tokens',
              code: 'unsupported_parameter',
            },
          },
        }
      : 'Yes.'

  test('goes by the name that the model takes, which is remembered', async () => {
    const { model, ask } = await start(refuses, { parameters: { max_tokens: 50 } })
    for (let i = 0; i < 2; i++) expect((await ask()).answer.message.content).toBe('Yes.')
    expect(model.requests.map(({ body }) => [body['max_tokens'], body['max_completion_tokens']])).toEqual([
      [50, undefined],
      [undefined, 50],
      [undefined, 50],
    ])
    expect(model.requests.every(({ body }) => 'stream_options' in body)).toBe(true)
  })
})

test('an answer that was empty goes back as something: many endpoints refuse an empty message', async () => {
  const outputSchema = { type: 'object', properties: { score: { type: 'integer' } }, required: ['score'] }
  const { model, ask } = await startChat([['<think>Hm.', { finish: 'length' }], '{"score":5}'], {
    request: { outputSchema, invalidRetries: 1 },
  })
  expect(await ask()).toMatchObject({ output: { score: 5 } })
  const [, , answer, complaint] = model.requests[1]?.body.messages ?? []
  expect(answer).toEqual({ role: 'assistant', content: '…' })
  expect(complaint).toMatchObject({ role: 'user', content: expect.stringContaining('is empty') })
})

test('what Groq says of calls that it could not read is asked for again', async () => {
  const error = { message: 'Failed to call a function.', type: 'invalid_request_error', code: 'tool_use_failed' }
  const { model, ask } = await start([{ status: 400, body: { error } }, [{ chunk: { error } }]])
  for (let i = 0; i < 2; i++) {
    expect(await failureOf(ask(withTools))).toMatchObject({ code: 'model_interrupted', retryable: true })
  }
  expect(model.requests).toHaveLength(2)
})

test('what Gemini says of when to come back is heard', async () => {
  const body = [
    { error: { code: 429, details: [{ '@type': 'type.googleapis.com/google.rpc.RetryInfo', retryDelay: '4.5s' }] } },
  ]
  const { ask } = await start([{ status: 429, body }])
  expect(await failureOf(ask())).toMatchObject({ code: 'model_unavailable', retryAfterMs: 4500 })
})

test.each<[string, number, JsonObject, string]>([
  [
    'OpenAI, that a conversation is too long,',
    400,
    { error: { message: "This model's maximum context length is 8192 tokens.", code: 'context_length_exceeded' } },
    'longer than the model takes (400)',
  ],
  [
    'llama.cpp, that a conversation is too long,',
    400,
    {
      error: {
        code: 400,
        message: 'the request exceeds the available context size',
        type: 'exceed_context_size_error',
      },
    },
    'longer than the model takes (400)',
  ],
  [
    'Ollama, that its model calls no tools,',
    400,
    { error: { message: 'registry.ollama.ai/library/gemma:2b does not support tools', type: 'invalid_request_error' } },
    'cannot call tools (400)',
  ],
  [
    'vLLM, that its model calls no tools,',
    400,
    {
      object: 'error',
      message: '"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set',
    },
    'cannot call tools (400)',
  ],
  [
    'OpenRouter, that its model calls no tools,',
    404,
    { error: { message: 'No endpoints found that support tool use.', code: 404 } },
    'cannot call tools (404)',
  ],
  ['DeepSeek, that it is to be paid,', 402, { error: { message: 'Insufficient Balance' } }, 'used up (402)'],
])('what %s says is told', async (_, status, body, message) => {
  const { ask } = await start(() => ({ status, body }))
  expect(await failureOf(ask(withTools))).toMatchObject({
    code: 'model_refused',
    retryable: false,
    message: expect.stringContaining(message),
  })
})

const chunk = (delta: object, finish: string | null = null): string =>
  JSON.stringify({ choices: [{ index: 0, delta, finish_reason: finish }] })

test.each<[string, string]>([
  ['with CRLF', `data: ${chunk({ content: 'Yes.' }, 'stop')}\r\n\r\ndata: [DONE]\r\n\r\n`],
  ['with a BOM', `\uFEFFdata: ${chunk({ content: 'Yes.' }, 'stop')}\n\ndata: [DONE]\n\n`],
  ['without a space', `data:${chunk({ content: 'Yes.' }, 'stop')}\n\ndata:[DONE]\n\n`],
  ['with comments', `: keep-alive\n\n: OPENROUTER PROCESSING\n\ndata: ${chunk({ content: 'Yes.' }, 'stop')}\n\n`],
  ['without its last empty line', `data: ${chunk({ content: 'Yes.' }, 'stop')}\n\ndata: [DONE]`],
  ['with names of events', `event: message\nid: 1\ndata: ${chunk({ content: 'Yes.' }, 'stop')}\n\ndata: [DONE]\n\n`],
  [
    'with usage and an empty list, or null, of choices',
    `data: ${chunk({ content: 'Yes.' }, 'stop')}\n\ndata: {"choices":[],"usage":{"prompt_tokens":1,"completion_tokens":1}}\n\ndata: {"choices":null}\n\ndata: [DONE]\n\n`,
  ],
  [
    'with a role in each piece and nulls everywhere',
    `data: ${chunk({ role: 'assistant', content: '', refusal: null, tool_calls: null, reasoning_content: null })}\n\ndata: ${chunk({ role: 'assistant', content: 'Yes.', function_call: null })}\n\ndata: ${chunk({}, 'stop')}\n\n`,
  ],
])('a stream %s is read', async (_, body) => {
  const whole = { message: { content: 'Yes.' }, finishReason: 'stop' }
  expect((await answerTo(stream(body))).answer).toMatchObject(whole)
  // Some gateways say something else of it.
  for (const type of ['text/plain', 'application/json'])
    expect((await answerTo({ status: 200, headers: { 'content-type': type }, body })).answer).toMatchObject(whole)
})

test.each<[string, string, string]>([
  [
    'OpenRouter',
    `data: {"error":{"code":429,"message":"Rate limit"},"choices":[{"index":0,"delta":{"content":""},"finish_reason":"error"}]}\n\n`,
    'model_unavailable',
  ],
  [
    'vLLM',
    `data: {"error":{"object":"error","message":"boom","type":"InternalServerError","param":null,"code":500}}\n\ndata: [DONE]\n\n`,
    'model_unavailable',
  ],
  ['LM Studio', `event: error\ndata: {"error":{"message":"The model has crashed"}}\n\n`, 'model_interrupted'],
  ['llama.cpp of old', `error: {"code":500,"message":"boom","type":"server_error"}\n\n`, 'model_interrupted'],
  ['Ollama', `data: ${chunk({ content: '' })}\n\n`, 'model_interrupted'],
])('an error that %s puts into its stream is a failure', async (_, body, code) => {
  const { ask } = await start([stream(`data: ${chunk({ content: 'Yes' })}\n\n${body}`)])
  expect(await failureOf(ask())).toMatchObject({ code, retryable: true })
})

test('a thinking model with tools, as Ollama serves it, is understood to its end', async () => {
  // https://github.com/ollama/ollama/blob/main/openai/openai.go; all calls with the index 0: ollama/ollama#15457.
  const event = (more: object): string =>
    `data: ${JSON.stringify({ id: 'chatcmpl-1', object: 'chat.completion.chunk', created: 1, model: 'qwen3:8b', system_fingerprint: 'fp_ollama', ...more })}\n\n`
  const choice = (delta: object, finish: string | null = null): string =>
    event({ choices: [{ index: 0, delta, finish_reason: finish }] })
  const end = (finish: string): string =>
    `${choice({}, finish)}${event({ choices: [], usage: { prompt_tokens: 9, completion_tokens: 5, total_tokens: 14 } })}data: [DONE]\n\n`
  const call = (id: string, a: number) => ({
    content: '',
    tool_calls: [{ id, index: 0, type: 'function', function: { name: 'add', arguments: `{"a":${a},"b":2}` } }],
  })
  const {
    model,
    ask,
    told: events,
  } = await startChat(
    [
      stream(
        choice({ role: 'assistant', content: '', reasoning: 'Two ' }) +
          choice({ content: '', reasoning: 'sums.' }) +
          choice(call('call_1', 1)) +
          choice(call('call_2', 2)) +
          end('tool_calls'),
      ),
      stream(
        choice({ role: 'assistant', content: '', reasoning: 'So.' }) + choice({ content: '3 and 4.' }) + end('stop'),
      ),
    ],
    { tools: [add], request: { stream: true } },
  )
  expect(await ask()).toMatchObject({
    response: { content: '3 and 4.' },
    usage: { inputTokens: 18, outputTokens: 10 },
    rounds: 2,
  })
  expect(events.flatMap((each) => (each.type === 'text' ? each.text : []))).toEqual(['3 and 4.'])
  expect(model.requests[1]?.body.messages.slice(1)).toEqual([
    {
      role: 'assistant',
      content: null,
      reasoning: 'Two sums.',
      tool_calls: [
        { id: 'call_1', type: 'function', function: { name: 'add', arguments: '{"a":1,"b":2}' } },
        { id: 'call_2', type: 'function', function: { name: 'add', arguments: '{"a":2,"b":2}' } },
      ],
    },
    { role: 'tool', tool_call_id: 'call_1', content: '3' },
    { role: 'tool', tool_call_id: 'call_2', content: '4' },
  ])
})
