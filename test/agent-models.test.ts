/** Language models over HTTP: every way to answer, and every way to fail, over real sockets. */
import {
  ConvokeError,
  OpenAiConnection,
  type ChatAnswer,
  type ChatDelta,
  type ChatRequest,
  type JsonObject,
  type OpenAiConnectionOptions,
} from 'convoke'
import { inspect } from 'node:util'
import { describe, expect, test } from 'vitest'
import { CallAssembly } from '../dist/agent/openai-calls.js'
import { cleanup, deferred, within } from './support/lifetime.ts'
import { startModelServer, type ModelAnswer, type ModelScript, type ModelStep } from './support/model-server.ts'
import { failureOf } from './support/failure.ts'

const hello: ChatRequest = { messages: [{ role: 'user', content: 'Hello.' }] }

/** A connection that is closed when the test is over. */
function connect(options: OpenAiConnectionOptions): OpenAiConnection {
  const connection = new OpenAiConnection({ model: 'scripted', ...options })
  cleanup(() => connection.close())
  return connection
}

async function start(script: ModelScript, options: Partial<OpenAiConnectionOptions> = {}) {
  const model = await startModelServer(script)
  return { model, connection: connect({ baseUrl: model.url, ...options }) }
}

interface Outcome {
  readonly deltas: ChatDelta[]
  readonly answer: ChatAnswer
}

async function ask(
  connection: OpenAiConnection,
  request: ChatRequest = hello,
  signal: AbortSignal = new AbortController().signal,
  deltas: ChatDelta[] = [],
): Promise<Outcome> {
  const answering = connection.chat(request, { signal })
  for (;;) {
    const step = await answering.next()
    if (step.done === true) return { deltas, answer: step.value }
    deltas.push(step.value)
  }
}

/** What one answer of the model comes to. */
async function answerTo(answer: ModelAnswer, request: ChatRequest = hello): Promise<Outcome> {
  const { connection } = await start([answer])
  return await ask(connection, request)
}

function text(deltas: readonly ChatDelta[]): string {
  return deltas.map((delta) => (delta.type === 'text' ? delta.text : '')).join('')
}

/** A step with these entries of `tool_calls`. */
function calls(...entries: readonly object[]): ModelStep {
  return { delta: { tool_calls: entries } }
}

describe('an answer', () => {
  test('is told piece by piece as it comes, and returned whole', async () => {
    const more = deferred()
    const { connection } = await start([['Hel', { wait: more.promise }, 'lo', { usage: { input: 5, output: 2 } }]])
    const answering = connection.chat(hello, { signal: new AbortController().signal })
    expect(await answering.next()).toEqual({ done: false, value: { type: 'text', text: 'Hel' } })
    more.resolve()
    expect(await answering.next()).toEqual({ done: false, value: { type: 'text', text: 'lo' } })
    expect(await answering.next()).toEqual({
      done: true,
      value: {
        message: { role: 'assistant', content: 'Hello' },
        finishReason: 'stop',
        usage: { inputTokens: 5, outputTokens: 2 },
      },
    })
  })

  test('comes whole from an endpoint that does not stream', async () => {
    const { deltas, answer } = await answerTo({
      whole: [
        { reasoning: 'Hm.' },
        'Hello',
        { call: { name: 'add', arguments: { a: 1 }, id: 'x' } },
        { usage: { input: 5, output: 2 } },
      ],
    })
    expect(deltas).toEqual([
      { type: 'reasoning', text: 'Hm.' },
      { type: 'text', text: 'Hello' },
    ])
    expect(answer).toEqual({
      message: { role: 'assistant', content: 'Hello', toolCalls: [{ id: 'x', name: 'add', arguments: '{"a":1}' }] },
      finishReason: 'tool_calls',
      usage: { inputTokens: 5, outputTokens: 2 },
    })
  })

  test('has its thoughts beside it, in either spelling, once', async () => {
    const { deltas, answer } = await answerTo([
      { reasoning: 'a' },
      { delta: { reasoning: 'b' } },
      { delta: { reasoning: 'c', reasoning_content: 'c' } },
      { delta: { content: [{ type: 'thinking', thinking: [{ type: 'text', text: 'd' }] }] } },
      'Yes.',
    ])
    expect(deltas.map((delta) => ('text' in delta ? `${delta.type} ${delta.text}` : delta.type))).toEqual([
      'reasoning a',
      'reasoning b',
      'reasoning c',
      'reasoning d',
      'text Yes.',
    ])
    expect(answer.message.content).toBe('Yes.')
  })

  test('may have its content as a list of parts', async () => {
    const parts = [{ type: 'text', text: 'Hel' }, 'lo', { type: 'image_url', image_url: {} }]
    expect((await answerTo([{ delta: { content: parts } }])).answer.message.content).toBe('Hello')
    const completion = { choices: [{ message: { role: 'assistant', content: parts }, finish_reason: 'stop' }] }
    expect((await answerTo({ status: 200, body: completion })).answer.message.content).toBe('Hello')
  })

  test('that is a refusal has the words of the refusal, and says so', async () => {
    const { deltas, answer } = await answerTo([{ delta: { refusal: 'I can’t ' } }, { delta: { refusal: 'do that.' } }])
    expect(answer).toMatchObject({ message: { content: 'I can’t do that.' }, finishReason: 'refusal' })
    expect(text(deltas)).toBe('I can’t do that.')
  })

  test('may end for any reason, and be empty', async () => {
    const { answer } = await answerTo([{ finish: 'length' }])
    expect(answer).toMatchObject({ message: { role: 'assistant', content: '' }, finishReason: 'length' })
  })

  test.each<[string, ModelStep[]]>([
    ['ends without [DONE]', [{ end: true }]],
    ['is cut before [DONE]', [{ cut: true }]],
    ['falls silent before [DONE]', [{ silent: true }]],
  ])('is complete with its finish reason, also when the stream %s', async (_, end) => {
    const last = { chunk: { choices: [{ index: 0, delta: {}, finish_reason: 'stop' }] } }
    const { connection } = await start([['Hello', last, ...end]], { timeoutMs: 1000 })
    expect((await ask(connection)).answer).toEqual({
      message: { role: 'assistant', content: 'Hello' },
      finishReason: 'stop',
    })
  })

  test('is complete with [DONE], also without a finish reason', async () => {
    const { answer } = await answerTo(['Hello', { raw: 'data: [DONE]\n\n' }])
    expect(answer).toEqual({ message: { role: 'assistant', content: 'Hello' } })
  })

  test('goes by the first choice, past comments and events that are something else', async () => {
    const { answer } = await answerTo([
      { raw: ': processing\n\n' },
      { chunk: { type: 'ping' } },
      { chunk: { choices: [], prompt_filter_results: [] } },
      { chunk: { choices: [{ index: 1, delta: { content: 'other' } }] } },
      { delta: { role: 'assistant', content: null } },
      { chunk: { choices: [{ index: 0, delta: { content: 'Hello' } }], error: null, usage: null } },
    ])
    expect(answer.message.content).toBe('Hello')
  })

  test('does without usage that makes no sense', async () => {
    const body = { choices: [{ message: { content: 'x' } }], usage: { prompt_tokens: -1, completion_tokens: 'many' } }
    expect((await answerTo({ status: 200, body })).answer).not.toHaveProperty('usage')
  })

  test('is taken as a stream from an endpoint that does not say that it is one', async () => {
    const body = 'data: {"choices":[{"delta":{"content":"Hello"},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'
    const { answer } = await answerTo({ status: 200, headers: { 'content-type': 'text/plain' }, body })
    expect(answer.message.content).toBe('Hello')
  })

  test('leaves its connection to the next one', async () => {
    const { model, connection } = await start(() => 'Hello')
    for (let i = 0; i < 5; i++) await ask(connection)
    expect(model.requests).toHaveLength(5)
    // The end of a stream may come a moment after its answer; then the next one dials.
    expect(model.connections).toBeLessThan(5)
  })

  test('waits for its reader: what nobody reads is not taken in', async () => {
    const piece = 'x'.repeat(100_000)
    const pieces = 150
    let sent = 0
    const count = {
      get wait(): Promise<void> {
        sent++
        return Promise.resolve()
      },
    }
    const long = Array.from({ length: pieces }, () => [piece, count]).flat()
    const { connection } = await start([long, Array.from({ length: pieces }, () => piece)])
    const answering = connection.chat(hello, { signal: new AbortController().signal })
    await answering.next()
    // A second one, just as long, goes through meanwhile.
    expect((await ask(connection)).answer.message.content).toHaveLength(piece.length * pieces)
    expect(sent).toBeLessThan(pieces)
    let length = piece.length
    for await (const delta of answering) length += delta.type === 'text' ? delta.text.length : 0
    expect(length).toBe(piece.length * pieces)
  })
})

describe('a request', () => {
  test('says everything in the words of chat completions', async () => {
    const { model, connection } = await start(['Yes.'], {
      apiKey: 'sk-123456789',
      headers: { 'X-Team': 'shipping' },
      parameters: { temperature: 0.5, seed: 1, stream: false, model: 'not this' },
    })
    const add = {
      type: 'function' as const,
      function: { name: 'add', description: 'Adds.', parameters: { type: 'object' as const } },
    }
    await ask(connection, {
      messages: [
        { role: 'system', content: 'Be brief.' },
        { role: 'user', content: '1 + 2?' },
        {
          role: 'assistant',
          content: '',
          toolCalls: [
            { id: 'a', name: 'add', arguments: '{"a":1,"b":2}' },
            { id: 'b', name: 'add', arguments: { a: 1 } },
            { id: 'c', name: 'add', arguments: '' },
            { id: 'd', name: 'add', arguments: '{"a":' },
          ],
        },
        { role: 'tool', content: '3', toolCallId: 'a' },
      ],
      tools: [add],
      parameters: { temperature: 0 },
    })
    const { body, headers } = await model.request(0)
    const called = (id: string, args: string) => ({ id, type: 'function', function: { name: 'add', arguments: args } })
    expect(body).toEqual({
      model: 'scripted',
      temperature: 0,
      seed: 1,
      stream: true,
      stream_options: { include_usage: true },
      messages: [
        { role: 'system', content: 'Be brief.' },
        { role: 'user', content: '1 + 2?' },
        {
          role: 'assistant',
          content: null,
          tool_calls: [
            called('a', '{"a":1,"b":2}'),
            called('b', '{"a":1}'),
            called('c', '{}'),
            // Endpoints that parse it would refuse the whole conversation.
            called('d', '{"broken":"{\\"a\\":"}'),
          ],
        },
        { role: 'tool', tool_call_id: 'a', content: '3' },
      ],
      tools: [add],
    })
    expect(headers).toMatchObject({ authorization: 'Bearer sk-123456789', 'x-team': 'shipping' })
  })

  test('names the model of the request before that of the connection', async () => {
    const { model, connection } = await start(() => 'Yes.')
    await ask(connection, { ...hello, model: 'other' })
    await ask(connection)
    expect(model.requests.map(({ body }) => body.model)).toEqual(['other', 'scripted'])
    const nameless = new OpenAiConnection({ baseUrl: model.url })
    cleanup(() => nameless.close())
    expect(await failureOf(ask(nameless))).toMatchObject({
      code: 'model_refused',
      message: 'No model is named. Set `model` of the connection, or of the setup.',
    })
  })

  test('asks below a base without a path with one slash', async () => {
    const model = await startModelServer(() => 'Yes.')
    const { origin } = new URL(model.url)
    for (const baseUrl of [origin, `${origin}/`]) {
      const { cause } = await failureOf(ask(connect({ baseUrl })))
      expect(String(cause)).toContain(`POST ${origin}/chat/completions: `)
    }
  })

  test('keeps the path and the query of the base, and sends its user as Basic credentials', async () => {
    const model = await startModelServer(() => 'Yes.')
    const baseUrl = `${model.url.replace('//', '//me:pass%20word@')}/?api-version=2`
    await ask(connect({ baseUrl }))
    const { path, headers } = await model.request(0)
    expect(path).toBe('/v1/chat/completions?api-version=2')
    expect(headers.authorization).toBe(`Basic ${Buffer.from('me:pass word').toString('base64')}`)
  })

  test.each<[string, object]>([
    ['`baseUrl` of a model must be an http or https URL', { baseUrl: 'localhost:11434' }],
    ['`baseUrl` of a model must be an http or https URL', { baseUrl: undefined }],
    ['`apiKey` of a model must be a text without line breaks', { apiKey: 'a\nb' }],
    ['The header "a b" of a model cannot be sent', { headers: { 'a b': 'x' } }],
    ['`timeoutMs` of a model must be above 0, got 0', { timeoutMs: 0 }],
    ['`model` must be the name that the endpoint has for it, got ""', { model: '' }],
    ['`parameters` of a model must be an object, got an array of 0', { parameters: [] }],
    [
      '`structuredOutput` must be auto, json_schema, json_object or false, got "strict"',
      { structuredOutput: 'strict' },
    ],
    ['`allowPrivate` of a model must be true or false, got "yes"', { allowPrivate: 'yes' }],
  ])('is not made with wrong options: %s', (message, wrong) => {
    const options = { baseUrl: 'http://127.0.0.1:1/v1', model: 'm', ...wrong } as OpenAiConnectionOptions
    expect(() => new OpenAiConnection(options)).toThrow(
      expect.objectContaining({ code: 'config', message: expect.stringContaining(message) }),
    )
  })
})

describe('tool calls', () => {
  async function callsOf(answer: ModelAnswer): Promise<unknown> {
    return (await answerTo(answer)).answer.message.toolCalls
  }

  test('are put together from pieces that come mixed', async () => {
    const toolCalls = await callsOf([
      calls({ index: 0, id: 'a', type: 'function', function: { name: 'add', arguments: '' } }),
      calls({ index: 1, id: 'b', type: 'function', function: { name: 'put', arguments: '{"x"' } }),
      calls({ index: 0, function: { arguments: '{"n":' } }, { index: 1, function: { arguments: ':"}{"}' } }),
      calls({ index: 0, function: { arguments: '1}' } }),
    ])
    expect(toolCalls).toEqual([
      { id: 'a', name: 'add', arguments: '{"n":1}' },
      { id: 'b', name: 'put', arguments: '{"x":"}{"}' },
    ])
  })

  test('are put together where each piece says id and name again', async () => {
    const piece = (args: string) => calls({ index: 0, id: 'a', function: { name: 'add', arguments: args } })
    expect(await callsOf([piece('{"n":{'), piece('}'), piece('}')])).toEqual([
      { id: 'a', name: 'add', arguments: '{"n":{}}' },
    ])
    const nameless = (args: string) => calls({ index: 0, function: { name: 'add', arguments: args } })
    expect(await callsOf([nameless('{"n"'), nameless(':1'), nameless('}')])).toEqual([
      { id: 'call_1', name: 'add', arguments: '{"n":1}' },
    ])
  })

  test('may come whole without an index, without ids, or with empty ones', async () => {
    const toolCalls = await callsOf([
      calls(
        { function: { name: 'add', arguments: '{"n":1}' } },
        { id: '', function: { name: 'add', arguments: '{"n":2}' } },
        { id: 'call_1', function: { name: 'add', arguments: '{"n":3}' } },
        { id: null, function: { name: 'now' } },
      ),
    ])
    expect(toolCalls).toEqual([
      { id: 'call_2', name: 'add', arguments: '{"n":1}' },
      { id: 'call_3', name: 'add', arguments: '{"n":2}' },
      { id: 'call_1', name: 'add', arguments: '{"n":3}' },
      { id: 'call_4', name: 'now', arguments: '' },
    ])
  })

  test('take no longer where each piece says the name again', () => {
    const timeOf = (piece: object): number => {
      const assembly = new CallAssembly((clause) => new ConvokeError('model_invalid', clause))
      const begunAt = performance.now()
      for (let i = 0; i < 300_000; i++) assembly.add(piece)
      expect(assembly.finish()[0]?.arguments).toHaveLength(300_000)
      return performance.now() - begunAt
    }
    const plainMs = timeOf({ index: 0, id: 'a', function: { name: 'add', arguments: 'x' } })
    expect(timeOf({ index: 0, function: { name: 'add', arguments: 'x' } })).toBeLessThan(10 * plainMs + 200)
  })

  test('without an index go on with pieces that have no name', async () => {
    const toolCalls = await callsOf([
      calls({ id: 'a', function: { name: 'add', arguments: '{"n"' } }),
      calls({ function: { arguments: ':1' } }),
      calls({ id: 'a', function: { arguments: '}' } }),
    ])
    expect(toolCalls).toEqual([{ id: 'a', name: 'add', arguments: '{"n":1}' }])
  })

  test('may all have the index 0', async () => {
    const whole = (id: string | undefined, n: number) =>
      calls({ index: 0, id, function: { name: 'add', arguments: `{"n":${n}}` } })
    expect(await callsOf([whole('a', 1), whole('b', 2)])).toEqual([
      { id: 'a', name: 'add', arguments: '{"n":1}' },
      { id: 'b', name: 'add', arguments: '{"n":2}' },
    ])
    expect(await callsOf([whole(undefined, 1), whole(undefined, 2)])).toEqual([
      { id: 'call_1', name: 'add', arguments: '{"n":1}' },
      { id: 'call_2', name: 'add', arguments: '{"n":2}' },
    ])
  })

  test('may have arguments that are an object, or broken', async () => {
    const toolCalls = await callsOf([
      calls({ index: 0, id: 'a', function: { name: 'add', arguments: { n: 1 } } }),
      calls({ index: 1, id: 'b', function: { name: 'add', arguments: '{"n":' } }),
    ])
    expect(toolCalls).toEqual([
      { id: 'a', name: 'add', arguments: { n: 1 } },
      { id: 'b', name: 'add', arguments: '{"n":' },
    ])
  })

  test.each<[string, ModelAnswer]>([
    ['a stream', [{ call: { name: 'add', id: 'a' } }, { call: { name: 'put', id: 'a' } }]],
    ['a stream without indices', [calls({ id: 'a', function: { name: 'x' } }, { id: 'a', function: { name: 'x' } })]],
    ['one completion', { whole: [{ call: { name: 'add', id: 'a' } }, { call: { name: 'put', id: 'a' } }] }],
  ])('with the same id in %s are refused', async (_, answer) => {
    expect(await failureOf(answerTo(answer))).toMatchObject({
      code: 'duplicate_call_id',
      message: expect.stringContaining('the same id, "a"'),
    })
  })

  test.each<[string, ModelStep]>([
    [
      'more than 128 tool calls',
      calls(...Array.from({ length: 129 }, (_, index) => ({ index, function: { name: 'x' } }))),
    ],
    ['1048576 characters', calls({ index: 0, function: { name: 'x', arguments: 'x'.repeat(1024 * 1024 + 1) } })],
    [
      '1048576 characters',
      calls({ index: 0, function: { name: 'x', arguments: { a: 'x'.repeat(600_000), b: 'x'.repeat(600_000) } } }),
    ],
    [
      'tool calls with more than 1048576 characters',
      calls(...[0, 1].map((index) => ({ index, function: { name: 'x', arguments: 'x'.repeat(600_000) } }))),
    ],
    ['a name of more than 1024 characters', calls({ index: 0, function: { name: 'x'.repeat(1025) } })],
    ['an id of more than 65536 characters', calls({ index: 0, id: 'x'.repeat(65_537), function: { name: 'x' } })],
    ['a tool call without a name', calls({ index: 0, id: 'a', function: { arguments: '{}' } })],
    ['a tool call that is no object', { delta: { tool_calls: ['add'] } }],
    ['`tool_calls` that are no list', { delta: { tool_calls: {} } }],
    ['neither text nor an object, but 7', calls({ index: 0, function: { name: 'x', arguments: 7 } })],
  ])('are refused with %s', async (clause, step) => {
    expect(await failureOf(answerTo([step]))).toMatchObject({
      code: 'model_invalid',
      retryable: false,
      message: expect.stringContaining(clause),
    })
  })
})

describe('an endpoint that fails', () => {
  test('by being down is unavailable, and is asked again when it is back', async () => {
    const { model, connection } = await start(['Hello'])
    await model.stop()
    expect(await failureOf(ask(connection))).toMatchObject({
      code: 'model_unavailable',
      retryable: true,
      message:
        'The model endpoint cannot be reached: it refused the connection. Is the model server running, and its baseUrl right? The log has the address.',
    })
    await model.start()
    expect((await ask(connection)).answer.message.content).toBe('Hello')
  })

  test('by its name being unknown is unavailable', async () => {
    expect(await failureOf(ask(connect({ baseUrl: 'http://nowhere.invalid/v1' })))).toMatchObject({
      code: 'model_unavailable',
      message: expect.stringContaining('its name is not known'),
    })
  })

  test('by an address that may not be called is unavailable for good', async () => {
    const { model, connection } = await start(['Hello'], { allowPrivate: false })
    expect(await failureOf(ask(connection))).toMatchObject({
      code: 'model_unavailable',
      retryable: false,
      message: expect.stringContaining('allowPrivate'),
    })
    expect(model.requests).toEqual([])
  })

  test.each<[number, string, boolean, string]>([
    [429, 'model_unavailable', true, 'asked too much'],
    [500, 'model_unavailable', true, 'cannot answer now (500)'],
    [503, 'model_unavailable', true, 'cannot answer now (503)'],
    [408, 'model_unavailable', true, 'cannot answer now (408)'],
    [401, 'model_refused', false, 'apiKey'],
    [403, 'model_refused', false, 'apiKey'],
    [404, 'model_refused', false, '(404)'],
    [400, 'model_refused', false, 'refused the request (400)'],
    [422, 'model_refused', false, 'refused the request (422)'],
    [413, 'model_refused', false, 'larger than the model endpoint takes'],
    [302, 'model_refused', false, 'redirect'],
  ])('with %i has its code', async (status, code, retryable, message) => {
    const { connection } = await start(() => ({ status, headers: { location: 'http://127.0.0.1:1/' } }))
    const error = await failureOf(ask(connection))
    expect(error).toMatchObject({ code, retryable, message: expect.stringContaining(message) })
  })

  // As Ollama, vLLM and OpenAI say it; Ollama, FastAPI, LM Studio and nginx; and an endpoint that says nothing.
  test.each<[string, JsonObject | string, RegExp]>([
    ['model', { error: { message: 'model "tiny" not found, try pulling it first' } }, /^\D+ have this model \(404\)/],
    ['model', { object: 'error', message: 'The model `tiny` does not exist.' }, /^\D+ have this model \(404\)/],
    ['model', { error: { message: 'No.', code: 'model_not_found' } }, /^\D+ have this model \(404\)/],
    ['path', '404 page not found', /^\D+ has no such path \(404\)/],
    ['path', { detail: 'Not Found' }, /^\D+ has no such path \(404\)/],
    ['path', { error: 'Unexpected endpoint or method. (POST /models/chat)' }, /^\D+ has no such path \(404\)/],
    ['path', '<html><title>Our models</title>', /^\D+ has no such path \(404\)/],
    ['one or the other', '', /have this model, or has no such path \(404\)/],
  ])('with 404 means the %s: %j', async (_what, body, message) => {
    const { connection } = await start([{ status: 404, body }])
    const error = await failureOf(ask(connection))
    expect(error).toMatchObject({ code: 'model_refused', message: expect.stringMatching(message) })
    expect(error.message).not.toMatch(/tiny|http|pulling|detail/)
  })

  test('says when to come back', async () => {
    const { connection } = await start([
      { status: 429, headers: { 'retry-after': '7' } },
      { status: 503, headers: { 'retry-after': '7', 'retry-after-ms': '1500' } },
      { status: 429, body: { error: { code: 'insufficient_quota' } } },
    ])
    expect(await failureOf(ask(connection))).toMatchObject({
      retryAfterMs: 7000,
      message: expect.stringContaining('Try again in 7 s.'),
    })
    expect(await failureOf(ask(connection))).toMatchObject({ retryAfterMs: 1500 })
    expect(await failureOf(ask(connection))).toMatchObject({ code: 'model_unavailable', retryable: false })
  })

  test('by saying nothing at all runs into the timeout, and hears that nobody waits', async () => {
    const { model, connection } = await start([{ silent: true }], { timeoutMs: 100 })
    expect(await failureOf(ask(connection))).toMatchObject({
      code: 'model_timeout',
      retryable: true,
      message: expect.stringContaining('said nothing for 100 ms'),
    })
    await within((await model.request(0)).aborted, 'the request to end')
  })

  test('by falling silent in the middle runs into the timeout', async () => {
    const { model, connection } = await start([['Hel', { silent: true }]], { timeoutMs: 1000 })
    const deltas: ChatDelta[] = []
    expect(await failureOf(ask(connection, hello, undefined, deltas))).toMatchObject({ code: 'model_timeout' })
    expect(text(deltas)).toBe('Hel')
    await within((await model.request(0)).aborted, 'the request to end')
  })

  test('by a completion that does not end runs into the timeout', async () => {
    const cut = { status: 200, headers: { 'content-type': 'application/json', 'content-length': '100' }, body: '{' }
    const { connection } = await start([cut], { timeoutMs: 1000 })
    expect(await failureOf(ask(connection))).toMatchObject({ code: 'model_timeout' })
  })

  test.each<[string, ModelAnswer]>([
    ['in the middle', ['Hel', { cut: true }]],
    ['before it has begun', { cut: true }],
    ['by ending without a word', ['Hel', { end: true }]],
    ['with no event at all', [{ end: true }]],
  ])('by cutting its stream %s has interrupted it', async (_, answer) => {
    const { connection } = await start([answer])
    expect(await failureOf(ask(connection))).toMatchObject({
      code: 'model_interrupted',
      retryable: true,
      message: "The model's answer was cut before it was complete. Try again.",
    })
  })

  test('tells what came before the cut', async () => {
    const { connection } = await start([['Hel', { cut: true }]])
    const deltas: ChatDelta[] = []
    await failureOf(ask(connection, hello, undefined, deltas))
    expect(text(deltas)).toBe('Hel')
  })

  test.each<[string, ModelAnswer]>([
    ['a chunk of broken JSON', ['Hel', { raw: 'data: {"choices":[{"del\n\n' }]],
    ['a chunk that is no object', [{ chunk: 7 }]],
    ['choices that are no list', [{ chunk: { choices: {} } }]],
    ['a choice that is no object', [{ chunk: { choices: ['Hello'] } }]],
    ['a delta that is no object', [{ chunk: { choices: [{ index: 0, delta: 'Hello' }] } }]],
    ['content that is a number', [{ delta: { content: 7 } }]],
    ['a stream without any choice', [{ raw: 'data: {"choices":[]}\n\ndata: [DONE]\n\n' }]],
    ['a completion without choices', { status: 200, body: { choices: [] } }],
    ['an object that is none', { status: 200, body: { ok: true } }],
    [
      'JSON too deep',
      { status: 200, body: '['.repeat(300) + ']'.repeat(300), headers: { 'content-type': 'application/json' } },
    ],
    ['broken JSON', { status: 200, body: '{"choices":[', headers: { 'content-type': 'application/json' } }],
    ['a page', { status: 200, body: '<html>Hello</html>', headers: { 'content-type': 'text/html' } }],
    ['a plain text', { status: 200, body: 'Ollama is running', headers: { 'content-type': 'text/plain' } }],
    ['nothing', { status: 204, body: '' }],
  ])('with %s is no model', async (_, answer) => {
    const error = await failureOf(answerTo(answer))
    expect(error).toMatchObject({ code: 'model_invalid', retryable: false })
    expect(error.message).toMatch(/another model|mostly ends in \/v1/)
  })

  test('with more than 16 MiB is no model, streamed or not', async () => {
    const piece = 'x'.repeat(1024 * 1024)
    const { connection } = await start([Array.from({ length: 17 }, () => piece), { whole: piece.repeat(17) }])
    for (let i = 0; i < 2; i++) {
      expect(await failureOf(ask(connection))).toMatchObject({
        code: 'model_invalid',
        message: expect.stringContaining('larger than an answer may be'),
      })
    }
  })

  test.each<[string, unknown, string]>([
    ['a status', { message: 'Slow down.', code: 429 }, 'model_unavailable'],
    ['a status as text', { message: 'Slow down.', status: '503' }, 'model_unavailable'],
    ['an overload', { message: 'Slow down.', type: 'overloaded_error' }, 'model_unavailable'],
    ['a bad request', { message: 'No.', type: 'invalid_request_error' }, 'model_refused'],
    ['words alone', 'Something went wrong.', 'model_interrupted'],
    ['an unknown type', { message: 'Oh.', type: 'oh' }, 'model_interrupted'],
  ])('in the middle of its stream with %s has that failure', async (_, error, code) => {
    expect(await failureOf(answerTo(['Hel', { chunk: { error } }]))).toMatchObject({ code })
    expect(await failureOf(answerTo({ status: 200, body: { error } }))).toMatchObject({ code })
    const choice = { index: 0, delta: { content: '' }, finish_reason: 'error', error }
    expect(await failureOf(answerTo(['Hel', { chunk: { choices: [choice] } }]))).toMatchObject({ code })
  })
})

describe('a stop', () => {
  const stopped = new ConvokeError('canceled', 'Enough.')

  test.each<[string, ModelAnswer]>([
    ['before the answer begins', { silent: true }],
    ['in the middle', ['Hel', { silent: true }]],
  ])('%s ends the request at the endpoint, with the reason of the signal', async (_, answer) => {
    const { model, connection } = await start([answer])
    const stop = new AbortController()
    const asking = failureOf(ask(connection, hello, stop.signal))
    const request = await model.request(0)
    stop.abort(stopped)
    expect(await asking).toBe(stopped)
    await within(request.aborted, 'the request to end')
  })

  test('before the request sends nothing', async () => {
    const { model, connection } = await start(['Hello'])
    expect(await failureOf(ask(connection, hello, AbortSignal.abort(stopped)))).toBe(stopped)
    expect(model.requests).toEqual([])
  })

  test('between two pieces that have come already tells no more of them', async () => {
    const { connection } = await start([[{ raw: 'data: {"choices":[{"delta":{"content":"x"}}]}\n\n'.repeat(10) }, 'y']])
    const stop = new AbortController()
    const answering = connection.chat(hello, { signal: stop.signal })
    await answering.next()
    stop.abort(stopped)
    expect(await failureOf(answering.next())).toBe(stopped)
  })

  test('by leaving its generator ends the request at the endpoint', async () => {
    const { model, connection } = await start([['Hel', { silent: true }]])
    const answering = connection.chat(hello, { signal: new AbortController().signal })
    expect(await answering.next()).toMatchObject({ value: { text: 'Hel' } })
    expect(await answering.return({} as ChatAnswer)).toMatchObject({ done: true })
    await within((await model.request(0)).aborted, 'the request to end')
  })

  test('while an endpoint says why it refuses is a stop', async () => {
    const { model, connection } = await start([{ status: 500, headers: { 'content-length': '10' }, body: 'x' }])
    const stop = new AbortController()
    const asking = failureOf(ask(connection, hello, stop.signal))
    await model.request(0)
    stop.abort(stopped)
    expect(await asking).toBe(stopped)
  })

  test('of the connection ends what it does, and it does no more', async () => {
    const { model, connection } = await start([['Hel', { silent: true }]])
    const asking = failureOf(ask(connection))
    const { aborted } = await model.request(0)
    await connection.close()
    expect(await asking).toMatchObject({ code: 'model_unavailable', retryable: false })
    await within(aborted, 'the request to end')
    expect(await failureOf(ask(connection))).toMatchObject({ code: 'model_unavailable', retryable: false })
  })
})

describe('an endpoint that refuses a member', () => {
  const refusing =
    (member: string, words: string): ModelScript =>
    ({ body }) =>
      body[member] === undefined ? 'Yes.' : { status: 400, body: words }

  test.each([
    ['by its name', '{"detail":[{"type":"extra_forbidden","loc":["body","stream_options"]}]}'],
    ['in vague words', 'Bad request.'],
  ])('stream_options %s is asked again without, once', async (_, words) => {
    const { model, connection } = await start(refusing('stream_options', words))
    expect((await ask(connection)).answer.message.content).toBe('Yes.')
    await ask(connection)
    expect(model.requests.map(({ body }) => 'stream_options' in body)).toEqual([true, false, false])
  })

  test('is not taken to refuse one that it took before', async () => {
    const { model, connection } = await start(['Yes.', { status: 400, body: 'Bad request.' }, 'Yes.'])
    await ask(connection)
    expect(await failureOf(ask(connection))).toMatchObject({ code: 'model_refused' })
    await ask(connection)
    expect(model.requests.map(({ body }) => 'stream_options' in body)).toEqual([true, true, true])
  })

  test('is not remembered to refuse what was not the reason', async () => {
    const bad = { status: 400, body: 'Bad request.' }
    const { model, connection } = await start([bad, bad, 'Yes.'])
    await failureOf(ask(connection))
    await ask(connection)
    expect(model.requests.map(({ body }) => 'stream_options' in body)).toEqual([true, false, true])
  })
})

describe('structured output', () => {
  const schema: JsonObject = {
    type: 'object',
    properties: { score: { type: 'integer' }, reason: { type: 'string' } },
    required: ['score'],
  }
  const formatOf = ({ body }: { body: { response_format?: JsonObject } }): unknown => body.response_format?.['type']

  test('is strict where the schema can be, and nulls that mean nothing are taken out again', async () => {
    const { model, connection } = await start(['{"score":5,"reason":null}', '{"score": 5, "reason": "x"}', 'no JSON'])
    expect((await ask(connection, { ...hello, outputSchema: schema })).answer.message.content).toBe('{"score":5}')
    const { body } = await model.request(0)
    expect(body.response_format).toMatchObject({
      type: 'json_schema',
      json_schema: {
        name: 'answer',
        strict: true,
        schema: { additionalProperties: false, required: ['score', 'reason'] },
      },
    })
    // What needs no change stays as the model wrote it.
    expect((await ask(connection, { ...hello, outputSchema: schema })).answer.message.content).toBe(
      '{"score": 5, "reason": "x"}',
    )
    expect((await ask(connection, { ...hello, outputSchema: schema })).answer.message.content).toBe('no JSON')
  })

  test('that nests without end comes as it is, for whoever checks it', async () => {
    const deep = `{"score":${'['.repeat(100_000)}${']'.repeat(100_000)}}`
    const { connection } = await start([deep])
    const outputSchema: JsonObject = { ...schema, additionalProperties: false }
    expect((await ask(connection, { ...hello, outputSchema })).answer.message.content).toBe(deep)
  })

  test('is plain where the schema cannot be strict', async () => {
    const { model, connection } = await start(() => '[1]')
    const list: JsonObject = { type: 'array', items: { type: 'integer' } }
    const open: JsonObject = { type: 'object', additionalProperties: { type: 'integer' } }
    for (const outputSchema of [list, open]) await ask(connection, { ...hello, outputSchema })
    expect(model.requests.map(({ body }) => body.response_format)).toEqual(
      [list, open].map((each) => ({ type: 'json_schema', json_schema: { name: 'answer', schema: each } })),
    )
  })

  test('falls back to what the endpoint takes, and remembers it', async () => {
    const { model, connection } = await start((request) => {
      if (formatOf(request) === 'json_schema')
        return { status: 400, body: { error: { message: 'response_format: no.' } } }
      if (formatOf(request) === 'json_object')
        return { status: 422, body: { error: { message: 'response_format: no.' } } }
      return '{"score":5}'
    })
    for (let i = 0; i < 2; i++) {
      const { answer } = await ask(connection, { ...hello, outputSchema: schema })
      expect(answer.message.content).toBe('{"score":5}')
    }
    expect(model.requests.map(formatOf)).toEqual(['json_schema', 'json_object', undefined, undefined])
    // That is about the format alone.
    expect(model.requests.every(({ body }) => body.stream_options?.include_usage === true)).toBe(true)
  })

  test('is asked for as before where only one schema was refused', async () => {
    const { model, connection } = await start([
      '{"score":5}',
      { status: 400, body: { error: { message: 'Invalid schema for response_format.' } } },
      '{"score":5}',
      '{"score":5}',
    ])
    for (let i = 0; i < 3; i++) await ask(connection, { ...hello, outputSchema: schema })
    expect(model.requests.map(formatOf)).toEqual(['json_schema', 'json_schema', 'json_object', 'json_schema'])
  })

  test('goes without where an endpoint refuses both members in vague words', async () => {
    const { model, connection } = await start(({ body }) =>
      'response_format' in body || 'stream_options' in body ? { status: 400, body: 'Bad request.' } : '{"score":5}',
    )
    for (let i = 0; i < 2; i++) await ask(connection, { ...hello, outputSchema: schema })
    expect(model.requests.map(formatOf)).toEqual(['json_schema', 'json_schema', 'json_object', undefined, undefined])
  })

  test.each(['json_schema', 'json_object'] as const)(
    'is asked for as the setting %s says, and no other way',
    async (structuredOutput) => {
      const { model, connection } = await start(() => ({ status: 400, body: 'response_format: no.' }), {
        structuredOutput,
      })
      const error = await failureOf(ask(connection, { ...hello, outputSchema: schema }))
      expect(error).toMatchObject({ code: 'model_refused' })
      expect(model.requests.map(formatOf)).toEqual([structuredOutput])
    },
  )

  test('is not asked for where that is turned off', async () => {
    const { model, connection } = await start(['Yes.'], { structuredOutput: false })
    await ask(connection, { ...hello, outputSchema: schema })
    expect(model.requests.map(formatOf)).toEqual([undefined])
  })
})

test('no failure shows a secret, and only its cause shows the address or what the endpoint said', async () => {
  const secrets = ['sk-very-secret-key', 'pass-word-1', 'header-secret-2', 'query-secret-3']
  const said = `You sent ${secrets.join(' and ')}; words of the endpoint.`
  const answers: ModelAnswer[] = [
    ...[400, 401, 403, 404, 413, 429, 500].map((status) => ({ status, body: { error: { message: said } } })),
    { status: 500, body: `<html>${said}</html>` },
    { status: 200, body: { error: { message: said } } },
    [{ chunk: { error: said } }],
    [{ raw: `data: {${said}\n\n` }],
    { status: 200, headers: { 'content-type': 'text/plain' }, body: said },
    ['Hel', { cut: true }],
    { silent: true },
  ]
  const model = await startModelServer(({ body }) => answers[Number(body['seed'])] ?? { cut: true })
  const { port } = new URL(model.url)
  const connection = connect({
    baseUrl: `${model.url.replace('//', '//me-myself:pass-word-1@')}?key=query-secret-3`,
    apiKey: 'sk-very-secret-key',
    headers: { 'x-auth': 'Token header-secret-2' },
    timeoutMs: 1000,
  })
  const failures: ConvokeError[] = []
  for (let seed = 0; seed < answers.length; seed++)
    failures.push(await failureOf(ask(connection, { ...hello, parameters: { seed } })))
  await model.stop()
  failures.push(await failureOf(ask(connection)))
  for (const error of failures) {
    expect(error.code).toMatch(/^model_/)
    const all = inspect(error, { depth: 10, showHidden: true })
    for (const secret of [...secrets, 'me-myself']) expect(all).not.toContain(secret)
    expect(error.message).not.toContain(port)
    expect(error.message).not.toContain('127.0.0.1')
    expect(error.message).not.toContain('words of the endpoint')
    expect(inspect(error.cause)).toContain(`POST http://127.0.0.1:${port}/v1`)
  }
  expect(inspect(failures[0]?.cause)).toContain('[redacted]; words of the endpoint.')
})
