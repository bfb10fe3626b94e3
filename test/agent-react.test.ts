/** The agent that is one model with tools: inputs, prompts, output schemas, error strategies and conversations. */
import {
  Agent,
  AgentPlan,
  AgentRunner,
  ChatRequestEvent,
  ChatResponseEvent,
  createMemoryAgentStore,
  InputEvent,
  OutputEvent,
  Prompt,
  ReActAgent,
  ResourceDescriptor,
  ChatModelSetup,
  type Json,
  type ReActAgentOptions,
  type RunEvent,
} from 'convoke'
import { execFile } from 'node:child_process'
import { writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { expect, test } from 'vitest'
import { z } from 'zod'
import { readOutput } from '../dist/agent/structured-output.js'
import { add, addModel, readableLog, said, startRunner, type ChatTestOptions } from './support/chat-agents.ts'
import { cleanup, temporaryFolder } from './support/lifetime.ts'
import { startModelServer, type ModelScript, type ModelServer } from './support/model-server.ts'
import { failureOf } from './support/failure.ts'

interface Started {
  readonly model: ModelServer
  readonly runner: AgentRunner
  readonly told: RunEvent[]
  readonly ask: (value: Json, key?: string) => Promise<readonly Json[]>
}

async function start(
  script: ModelScript,
  options: Partial<ReActAgentOptions> = {},
  { more, ...rest }: ChatTestOptions = {},
): Promise<Started> {
  const model = await startModelServer(script)
  const agent = new ReActAgent({ chatModel: { connection: 'local', tools: ['*'], retries: 0 }, ...options })
  addModel(agent, model, rest)
  more?.(agent)
  const runner = startRunner(agent, rest.runner)
  const told: RunEvent[] = []
  const ask = async (value: Json, key = 'key'): Promise<readonly Json[]> => {
    const { outputs } = await runner.run(key, value, { onEvent: (event) => void told.push(event) })
    return outputs
  }
  return { model, runner, told, ask }
}

test('a text goes to the model, through its tools, and the answer comes out', async () => {
  const script: ModelScript = [[{ call: { name: 'add', arguments: { a: 1, b: 2 } } }], 'It is 3.']
  const { ask, model } = await start(script, {}, { tools: [add] })
  expect(await ask('1+2?')).toEqual(['It is 3.'])
  expect(said(model.requests[0])).toEqual(['user: 1+2?'])
})

test('plain inputs become a text', async () => {
  const { ask, model } = await start(() => 'ok')
  for (const value of [7, true, null]) await ask(value)
  expect(model.requests.map((request) => said(request)[0])).toEqual(['user: 7', 'user: true', 'user: null'])
})

test('a text fills {input} of the prompt, an object the variables of its members', async () => {
  const { ask, model } = await start(() => 'ok', { prompt: 'Say it in French: {input} {other}' })
  await ask('two {input} $&')
  expect(said(model.requests[0])).toEqual(['user: Say it in French: two {input} $& {other}'])
  const prompt = Prompt.fromMessages([
    { role: 'system', content: 'You judge {kind}.' },
    { role: 'user', content: '{review}: {stars}, {input}' },
  ])
  const review = await start(() => 'ok', { prompt })
  await review.ask({ kind: 'tea', review: 'Good', stars: 5 })
  expect(said(review.model.requests[0])).toEqual([
    'system: You judge tea.',
    'user: Good: 5, {"kind":"tea","review":"Good","stars":5}',
  ])
})

test('a prompt that mentions nothing of the input is the system message', async () => {
  const { ask, model } = await start(() => 'ok', { prompt: 'You are Alice. Answer as {"name": "Alice"}.' })
  await ask('Who are you?')
  expect(said(model.requests[0])).toEqual(['system: You are Alice. Answer as {"name": "Alice"}.', 'user: Who are you?'])
  await ask({ text: 'And this?', data: [1] })
  expect(said(model.requests[1]).at(-1)).toBe('user: {"text":"And this?","data":[1]}')
})

test('a prompt may be the name of a resource', async () => {
  const { ask, model } = await start(
    () => 'ok',
    { prompt: 'manner' },
    {
      more: (agent) => agent.addResource('manner', Prompt.fromText('Kindly: {input}')),
    },
  )
  await ask('hello')
  expect(said(model.requests[0])).toEqual(['user: Kindly: hello'])
})

test('a prompt of a single word is a name, and where there is none, it is said how to mean the word', async () => {
  const { ask, model } = await start(() => 'ok', { prompt: 'Summarize' })
  expect((await failureOf(ask('a text'))).message).toBe(
    'The agent has no resource "Summarize" of the type prompt. Add it by `addResource`. A single word is taken for a name; if it is the prompt itself, pass Prompt.fromText("Summarize").',
  )
  expect(model.requests).toHaveLength(0)
  const meant = await start(() => 'ok', { prompt: Prompt.fromText('Summarize') })
  await meant.ask('a text')
  expect(said(meant.model.requests[0])).toEqual(['system: Summarize', 'user: a text'])
  const setup = { connection: 'local', prompt: 'Summarize' }
  const { ask: askSetup } = await start(() => 'ok', { chatModel: setup })
  expect((await failureOf(askSetup('a text'))).message).toMatch(
    /, add Prompt\.fromText\("Summarize"\) as a resource, and name that\.$/,
  )
})

test('an object without a prompt is an error that says what to do', async () => {
  const { runner, model } = await start([])
  const failure = await failureOf(runner.run('key', { a: 1 }))
  expect(failure.code).toBe('invalid_params')
  expect(failure.message).toContain('Give the agent a prompt')
  expect((await failureOf(runner.run('key', [1]))).code).toBe('invalid_params')
  expect(model.requests).toHaveLength(0)
})

test('the chat model may be options, a descriptor or a name', async () => {
  const setup = { connection: 'local', prompt: 'Be brief.' }
  const chatModels: ReActAgentOptions['chatModel'][] = [setup, new ResourceDescriptor(ChatModelSetup, setup), 'named']
  for (const chatModel of chatModels) {
    const { ask, model } = await start(
      ['ok'],
      { chatModel },
      {
        more: (agent) => agent.addResource('named', setup, 'chatModelSetup'),
      },
    )
    expect(await ask('hello')).toEqual(['ok'])
    expect(said(model.requests[0])[0]).toBe('system: Be brief.')
  }
  expect(() => new ReActAgent({ chatModel: 5 as never })).toThrow('`chatModel` of a ReActAgent must be')
  expect(() => new ReActAgent({ chatModel: {} as never })).toThrow('connection')
})

test('options that make no sense are refused when the agent is made', () => {
  const make = (options: object) => () => new ReActAgent({ chatModel: 'm', ...options })
  expect(make({ errorStrategy: 'hope' })).toThrow('`errorStrategy` must be one of fail, ignore, retry, got "hope".')
  expect(make({ retry: { attempts: 0 } })).toThrow('`retry.attempts` must be a whole number of 1 or more, got 0.')
  expect(make({ limits: { maxTokens: -1 } })).toThrow('`limits.maxTokens`')
  expect(make({ conversation: { maxMessages: 0 } })).toThrow('`conversation.maxMessages`')
  expect(make({ prompt: '' })).toThrow('`prompt` of a ReActAgent is empty')
  expect(make({ prompt: 5 })).toThrow(TypeError)
  expect(make({ conversation: 'yes' })).toThrow('`conversation` must be')
  expect(make({ tools: ['*'] })).toThrow('A ReActAgent has no option `tools`; write `chatModel.tools`.')
  expect(make({ output_schema: {} })).toThrow('no option `output_schema`; write `outputSchema`.')
  expect(make({ outputSchema: { score: 'number' } })).toThrow("did you mean { type: 'object', properties:")
  expect(make({ colour: 'red' })).toThrow('no option `colour`; known are chatModel, prompt, outputSchema,')
  expect(() => new ReActAgent(undefined as never)).toThrow('A ReActAgent needs options { chatModel, … }')
})

const scored = {
  type: 'object',
  properties: {
    score: { type: 'integer', minimum: 1, maximum: 5 },
    reasons: { type: 'array', items: { type: 'string' } },
  },
  required: ['score', 'reasons'],
}

test('with an output schema the output is JSON that fits it, and the model is told of it', async () => {
  const { ask, model } = await start(['```json\n{"score": 4, "reasons": []}\n```'], {
    prompt: 'You judge.',
    outputSchema: scored,
  })
  expect(await ask('Nice tea.')).toEqual([{ score: 4, reasons: [] }])
  const [system, user] = said(model.requests[0])
  expect(system).toMatch(/^system: You judge\.\n\n[^]*JSON Schema[^]*"maximum":5/)
  expect(user).toBe('user: Nice tea.')
  expect(model.requests[0]?.body.response_format).toBeDefined()
})

test.each([
  ['fences', '```json\n'.repeat(2_000_000)],
  ['braces', '{"a" '.repeat(2_000_000)],
])('an answer of nothing but %s is refused as fast as it is read', (_, answer) => {
  // Looked at again from each place, it would take minutes, and the test's time would be up.
  expect(readOutput(answer, { type: 'object' })).toHaveProperty('issues')
})

test('a zod schema validates and transforms, beyond what JSON Schema can say', async () => {
  const schema = z.object({ score: z.number().refine((n) => n !== 3, 'take a side'), tag: z.string().default('none') })
  const { ask, model } = await start(['{"score": 3}', '{"score": 4}'], { outputSchema: schema, errorStrategy: 'retry' })
  expect(await ask('Nice tea.')).toEqual([{ score: 4, tag: 'none' }])
  expect(said(model.requests[1]).at(-1)).toContain('/score: take a side')
  const strict = await start(['{"score": 3}'], { outputSchema: schema })
  const failure = await failureOf(strict.ask('Nice tea.'))
  expect(failure.code).toBe('invalid_output')
  expect(failure.issues).toEqual([{ path: '/score', message: 'take a side' }])
  const stubborn = await start(() => '{"score": 3}', {
    outputSchema: schema,
    errorStrategy: 'retry',
    retry: { attempts: 2 },
  })
  expect((await failureOf(stubborn.ask('Nice tea.'))).code).toBe('invalid_output')
  expect(stubborn.model.requests).toHaveLength(2)
  const ignoring = await start(['{"score": 3}'], { outputSchema: schema, errorStrategy: 'ignore' })
  expect(await ignoring.ask('Nice tea.')).toEqual([])
  expect(ignoring.told).toContainEqual(expect.objectContaining({ type: 'ignored', reason: 'schema mismatch' }))
})

test('answers that only the schema of a library refuses count for the limits, as all do', async () => {
  const outputSchema = z.object({ n: z.number().refine((n) => n > 5, 'too small') })
  const retry = { errorStrategy: 'retry', retry: { attempts: 5, backoffMs: 1 }, outputSchema } as const
  for (const [limits, code, asked] of [
    [{ maxRounds: 2 }, 'round_limit', 2],
    [{ maxTokens: 40 }, 'token_limit', 3],
    [{}, 'invalid_output', 5],
  ] as const) {
    const { ask, model } = await start(() => ['{"n": 1}', { usage: { input: 10, output: 10 } }], { ...retry, limits })
    expect(await failureOf(ask('How many?'))).toMatchObject({ code })
    expect(model.requests).toHaveLength(asked)
  }
})

test('a row type is an object with its fields', async () => {
  const row = {
    names: ['id', 'score', 'text', 'ok', 'of'],
    types: ['BIGINT', 'double', 'VARCHAR(20)', 'Boolean', { names: ['n'], types: ['int'] }],
  }
  const value = { id: 1, score: 0.5, text: 'x', ok: true, of: { n: 2 } }
  const { ask } = await start([JSON.stringify(value)], { outputSchema: row })
  expect(await ask('x')).toEqual([value])
  const wrong = await start([JSON.stringify({ ...value, id: 'one' })], { outputSchema: row })
  expect((await failureOf(wrong.ask('x'))).issues?.[0]?.path).toBe('/id')
})

test('whatever is no output schema is a TypeError', () => {
  const wrong: unknown[] = [
    'string',
    5,
    null,
    [],
    () => ({}),
    new Date(0),
    { type: 'objekt' },
    { names: ['a'], types: [] },
    { names: ['a'], types: ['blob'] },
    { names: ['a', 'a'], types: ['int', 'int'] },
    { names: [1], types: ['int'] },
    z.object({ at: z.date() }),
  ]
  for (const outputSchema of wrong) {
    expect(() => new ReActAgent({ chatModel: 'm', outputSchema: outputSchema as never }), String(outputSchema)).toThrow(
      TypeError,
    )
  }
})

test('fail: the run fails with the code, and the key goes on', async () => {
  const { ask } = await start([{ status: 500 }, 'no JSON', '{"score": 1, "reasons": []}'], { outputSchema: scored })
  expect((await failureOf(ask('a'))).code).toBe('model_unavailable')
  expect((await failureOf(ask('b'))).code).toBe('invalid_output')
  expect(await ask('c')).toHaveLength(1)
})

test('ignore: no output, a warning, and the run says so', async () => {
  const log = readableLog()
  const { ask, told } = await start(
    ['no JSON', { status: 500 }],
    { outputSchema: scored, errorStrategy: 'ignore' },
    { runner: { log } },
  )
  expect(await ask('a')).toEqual([])
  expect(told.at(-1)).toEqual({ type: 'ignored', requestId: expect.any(String), reason: 'schema mismatch' })
  expect(await ask('b')).toEqual([])
  expect(log.lines.filter((line) => line.includes('ignored'))).toHaveLength(2)
})

test('retry: failures of the model and answers that do not fit are tried again', async () => {
  const script: ModelScript = [{ status: 500 }, { status: 500 }, '{"score": 9}', '{"score": 5, "reasons": ["hot"]}']
  const { ask, model } = await start(script, {
    outputSchema: scored,
    errorStrategy: 'retry',
    retry: { backoffMs: 1 },
  })
  expect(await ask('a')).toEqual([{ score: 5, reasons: ['hot'] }])
  expect(model.requests).toHaveLength(4)
  const words = said(model.requests[3]).at(-1)
  expect(words).toContain('/score')
  expect(words).toContain('reasons')
})

test('retry: three attempts, then the failure', async () => {
  const { ask, model } = await start(() => ({ status: 500 }), { errorStrategy: 'retry', retry: { backoffMs: 1 } })
  expect((await failureOf(ask('a'))).code).toBe('model_unavailable')
  expect(model.requests).toHaveLength(3)
  const stubborn = await start(() => 'no', { outputSchema: scored, errorStrategy: 'retry', retry: { attempts: 2 } })
  expect((await failureOf(stubborn.ask('a'))).code).toBe('invalid_output')
  expect(stubborn.model.requests).toHaveLength(2)
})

test('limits hold for the agent', async () => {
  const script: ModelScript = (_request, index) => [{ call: { name: 'add', arguments: { a: index, b: 0 } } }]
  const { ask, model } = await start(script, { limits: { maxRounds: 2 } }, { tools: [add] })
  expect((await failureOf(ask('a'))).code).toBe('round_limit')
  expect(model.requests).toHaveLength(2)
})

test('the answer goes out as it comes where that is wanted', async () => {
  const { ask, told } = await start([['One ', 'two.']], { stream: true })
  await ask('count')
  expect(told.flatMap((event) => (event.type === 'text' ? [event.text] : []))).toEqual(['One ', 'two.'])
})

test('a conversation goes on under its key: users, assistants and tools', async () => {
  const script: ModelScript = [
    [{ call: { name: 'add', arguments: { a: 1, b: 2 }, id: 'x' } }],
    'It is 3.',
    'I said 3.',
    'Nothing yet.',
  ]
  const { ask, model } = await start(script, { prompt: 'You add.', conversation: true }, { tools: [add] })
  await ask('1+2?')
  await ask('What did you say?')
  expect(said(model.requests[2])).toEqual([
    'system: You add.',
    'user: 1+2?',
    'assistant: ',
    'tool: 3',
    'assistant: It is 3.',
    'user: What did you say?',
  ])
  expect(model.requests[2]?.body.messages[2]?.tool_calls?.[0]?.id).toBe('x')
  await ask('What did you say?', 'another key')
  expect(said(model.requests[3])).toEqual(['system: You add.', 'user: What did you say?'])
})

test('a conversation goes on with another runner, as after a restart', async () => {
  const model = await startModelServer(['Hello Ann.', 'You are Ann.'])
  const store = createMemoryAgentStore()
  const make = (): AgentRunner => {
    const agent = new ReActAgent({ chatModel: { connection: 'local' }, conversation: true })
    addModel(agent, model)
    return new AgentRunner({ plan: AgentPlan.fromAgent(agent), store })
  }
  const first = make()
  await first.run('key', 'I am Ann.')
  await first.close()
  const second = make()
  cleanup(() => second.close())
  await second.run('key', 'Who am I?')
  expect(said(model.requests[1])).toEqual(['user: I am Ann.', 'assistant: Hello Ann.', 'user: Who am I?'])
})

test('a turn that failed is not remembered', async () => {
  const { ask, model } = await start([{ status: 500 }, 'ok'], { conversation: true })
  await failureOf(ask('one'))
  await ask('two')
  expect(said(model.requests[1])).toEqual(['user: two'])
})

test('a conversation is cut at whole turns, and keeps calls beside their answers', async () => {
  const script: ModelScript = ({ body }, index) =>
    body.messages.at(-1)?.role === 'tool'
      ? `answer ${index}`
      : [{ call: { name: 'add', arguments: { a: index, b: 0 } } }]
  const { ask, model } = await start(script, { conversation: { maxMessages: 9 } }, { tools: [add] })
  for (const n of [1, 2, 3, 4]) await ask(`question ${n}`)
  const roles = said(model.requests[6]).map((text) => text.replace(/: .*/, ''))
  // Two turns of four messages are kept, and the new question.
  expect(roles).toEqual(['user', 'assistant', 'tool', 'assistant', 'user', 'assistant', 'tool', 'assistant', 'user'])
  expect(said(model.requests[6])[0]).toBe('user: question 2')
})

test('a conversation is cut by its size, too, and of a huge turn question and answer stay', async () => {
  const { ask, model } = await start(() => 'short', { conversation: { maxChars: 300 } })
  await ask('a'.repeat(200))
  await ask('b'.repeat(200))
  await ask('c')
  expect(said(model.requests[2]).map((text) => text.slice(0, 8))).toEqual(['user: bb', 'assistan', 'user: c'])
  const script: ModelScript = ({ body }, index) =>
    index === 0
      ? [{ call: { name: 'add', arguments: { a: 1, b: 2, c: 'x'.repeat(400) } } }]
      : `answer ${body.messages.length}`
  const huge = await start(script, { conversation: { maxChars: 300 } }, { tools: [add] })
  await huge.ask('big')
  await huge.ask('next')
  expect(said(huge.model.requests[2])).toEqual(['user: big', 'assistant: answer 3', 'user: next'])
})

test('a conversation that is wished longer than memory is goes on with what fits', async () => {
  const { ask, model } = await start((_request, index) => `Answer ${index}.`, {
    conversation: { maxChars: 5_000_000 },
  })
  const text = 'x'.repeat(400_000)
  for (let n = 0; n < 4; n++) expect(await ask(`${n} ${text}`)).toEqual([`Answer ${n}.`])
  expect(said(model.requests[3]).map((each) => each.slice(0, 20).split(' x')[0])).toEqual([
    'user: 1',
    'assistant: Answer 1.',
    'user: 2',
    'assistant: Answer 2.',
    'user: 3',
  ])
  // One that does not fit alone is not remembered, and neither is anything before it.
  expect(await ask('y'.repeat(1_200_000))).toEqual(['Answer 4.'])
  await ask('And now?')
  expect(said(model.requests[5])).toEqual(['user: And now?'])
})

test('its plan leaves the process as JSON and runs in another one', async () => {
  const model = await startModelServer(['{"score": 4, "reasons": []}'])
  const agent = new ReActAgent({
    chatModel: { connection: 'local' },
    prompt: Prompt.fromText('Judge: {input}'),
    outputSchema: scored,
    errorStrategy: 'retry',
    conversation: true,
  })
  addModel(agent, model)
  const folder = await temporaryFolder()
  await writeFile(join(folder, 'plan.json'), JSON.stringify(AgentPlan.fromAgent(agent)))
  const program = `
    import { AgentPlan, AgentRunner, createMemoryAgentStore } from ${JSON.stringify(import.meta.resolve('convoke'))}
    import { readFileSync } from 'node:fs'
    const plan = AgentPlan.fromJSON(JSON.parse(readFileSync('plan.json', 'utf8')))
    const runner = new AgentRunner({ plan, store: createMemoryAgentStore() })
    console.log(JSON.stringify(await runner.run('key', 'tea')))
    await runner.close()
  `
  await writeFile(join(folder, 'run.mjs'), program)
  const { stdout } = await promisify(execFile)(process.execPath, ['run.mjs'], { cwd: folder, timeout: 20_000 })
  expect(JSON.parse(stdout)).toEqual({ outputs: [{ score: 4, reasons: [] }] })
  expect(said(model.requests[0]).at(-1)).toBe('user: Judge: tea')
})

test('a plan with the schema of a library says that it cannot leave', () => {
  const agent = new ReActAgent({ chatModel: 'm', outputSchema: z.object({ a: z.string() }) })
  expect(() => AgentPlan.fromAgent(agent).toJSON()).toThrow('react_stop')
})

test('other actions beside it, and a subclass, work as with any agent', async () => {
  class Counting extends ReActAgent {
    constructor() {
      super({ chatModel: { connection: 'local' } })
      this.addAction('count', [ChatResponseEvent], (event, context) =>
        context.sendEvent(new OutputEvent({ rounds: event.payload.rounds })),
      )
    }
  }
  const model = await startModelServer(['ok'])
  const agent = new Counting()
  addModel(agent, model)
  expect(agent).toBeInstanceOf(Agent)
  const { outputs } = await startRunner(agent).run('key', 'hello')
  expect(outputs).toEqual(['ok', { rounds: 1 }])
})

test('responses of requests that others made are not its outputs', async () => {
  const { ask } = await start(
    ['mine', 'theirs'],
    {},
    {
      more: (agent) =>
        agent.addAction('also', [InputEvent], (_event, context) => {
          const messages = [{ role: 'user' as const, content: 'other' }]
          context.sendEvent(new ChatRequestEvent({ model: 'react_chat_model', messages }))
        }),
    },
  )
  expect(await ask('hello')).toEqual(['mine'])
})
