import {
  ConvokeError,
  createNode,
  defineTool,
  type JsonObject,
  type Message,
  type MessageContext,
  type MessageHandler,
  type MessageOutcome,
  type Node,
  type Task,
} from 'convoke'
import { readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { describe, expect, test } from 'vitest'
import { cleanup, deferred, startNode, temporaryFolder, until, within } from './support/lifetime.ts'
import {
  begin,
  getTask,
  request,
  rest,
  resultOf,
  rpc,
  say,
  send,
  sendStream,
  stateOf,
  toolCall,
  toolErrorOf,
  valueOf,
  wordsOf,
  type SendResult,
} from './support/wire.ts'

async function answer(onMessage: MessageHandler, message: Message = say('Hello.')): Promise<SendResult> {
  const { url } = await startNode({ onMessage })
  const { body, text } = await rpc<SendResult>(url, 'SendMessage', { message })
  if (body.result === undefined) throw new Error(`No answer: ${text}`)
  return body.result
}

const ask = async (handler: MessageHandler): Promise<Task> => (await answer(handler)).task!

describe('a bare message', () => {
  test.each<[string, MessageHandler]>([
    ['a plain function', () => 'Hello.'],
    ['an async function', async () => 'Hello.'],
    [
      'a generator that yields a message',
      async function* () {
        yield { type: 'message', text: 'Hello.' }
      },
    ],
    [
      'a generator that goes on behind it',
      async function* () {
        yield { type: 'message', text: 'Hello.' }
        yield 'unheard'
      },
    ],
  ])('is the answer of %s', async (_what, handler) => {
    const result = await answer(handler, say('Hello?', { contextId: 'ours' }))
    expect(result.task).toBeUndefined()
    expect(result.message).toMatchObject({ role: 'ROLE_AGENT', contextId: 'ours', parts: [{ text: 'Hello.' }] })
    expect(result.message?.messageId).toMatch(/./)
  })

  test('may have any parts and metadata', async () => {
    const { message } = await answer(async function* () {
      yield { type: 'message', parts: [{ text: 'Look:' }, { data: { x: 1 } }], metadata: { mood: 'good' } }
    })
    expect(message).toMatchObject({ parts: [{ text: 'Look:' }, { data: { x: 1 } }], metadata: { mood: 'good' } })
  })

  test('is no task that anybody could get or list', async () => {
    const node = await startNode({ onMessage: () => 'Hello.' })
    const { body } = await rpc<SendResult>(node.url, 'SendMessage', { message: say('Hello?') })
    expect((await rpc<{ tasks: unknown[] }>(node.url, 'ListTasks', {})).body.result?.tasks).toEqual([])
    const { taskId = 'none' } = body.result!.message!
    expect((await rpc(node.url, 'GetTask', { id: taskId })).body.error?.code).toBe(-32001)
  })

  test('comes again for the same message, and the handler is not asked twice', async () => {
    let calls = 0
    const { url } = await startNode({ onMessage: () => `call ${++calls}` })
    const message = say('Hello?')
    const ask = async (): Promise<Message | undefined> =>
      (await rpc<SendResult>(url, 'SendMessage', { message })).body.result?.message
    const first = await ask()
    expect(await ask()).toEqual(first)
    expect(wordsOf(first)).toBe('call 1')
  })

  test('becomes the closing words of a task where the caller would not wait for it', async () => {
    const gate = deferred()
    const node = await startNode({ onMessage: () => gate.promise.then(() => 'Late hello.') })
    const started = await begin(node.url, say('Hello?'))
    expect(started.status.state).toBe('TASK_STATE_WORKING')
    gate.resolve()
    await until(() => node.stats.running === 0, 'the handler')
    const { status } = await getTask(node.url, started.id)
    expect(status.state).toBe('TASK_STATE_COMPLETED')
    expect(wordsOf(status.message)).toBe('Late hello.')
  })
})

describe('a task', () => {
  test('has the text that was yielded in one artifact, chunk by chunk', async () => {
    const node = await startNode({
      async *onMessage() {
        yield 'Hel'
        yield 'lo'
        yield { type: 'text', text: '.', last: true }
      },
    })
    const events = await (await sendStream(node.url, say('Hello?'))).all()
    const updates = events.flatMap(({ data }) => data.artifactUpdate ?? [])
    expect(
      updates.map(({ artifact, append = false, lastChunk = false }) => ({ ...artifact, append, lastChunk })),
    ).toEqual([
      { artifactId: 'answer', parts: [{ text: 'Hel' }], append: false, lastChunk: false },
      { artifactId: 'answer', parts: [{ text: 'lo' }], append: true, lastChunk: false },
      { artifactId: 'answer', parts: [{ text: '.' }], append: true, lastChunk: true },
    ])
    const task = await getTask(node.url, events[0]!.data.task!.id)
    expect(task.artifacts).toEqual([{ artifactId: 'answer', parts: [{ text: 'Hel' }, { text: 'lo' }, { text: '.' }] }])
  })

  test('has data, bytes, addresses and whole parts as artifacts', async () => {
    const task = await ask(async function* () {
      yield { type: 'data', data: { key: 'value' }, name: 'record', description: 'A record.', metadata: { n: 1 } }
      yield { type: 'data', data: [1, null], mediaType: 'application/x-list', artifact: 'list' }
      yield {
        type: 'file',
        bytes: new Uint8Array([0, 255, 7]),
        filename: 'out.bin',
        mediaType: 'application/octet-stream',
      }
      yield { type: 'file', url: 'https://example.com/out.txt', filename: 'out.txt' }
      yield { type: 'parts', artifact: 'both', parts: [{ text: 'a' }, { data: { b: 1 } }] }
    })
    expect(task.status.state).toBe('TASK_STATE_COMPLETED')
    const [record, list, bytes, url, both] = task.artifacts!
    expect(record).toMatchObject({
      name: 'record',
      description: 'A record.',
      metadata: { n: 1 },
      parts: [{ data: { key: 'value' } }],
    })
    expect(list).toEqual({ artifactId: 'list', parts: [{ data: [1, null], mediaType: 'application/x-list' }] })
    expect(bytes?.parts).toMatchObject([{ filename: 'out.bin', mediaType: 'application/octet-stream' }])
    expect(valueOf(bytes!.parts[0]!, false)).toEqual(new Uint8Array([0, 255, 7]))
    expect(url?.parts).toEqual([{ url: 'https://example.com/out.txt', filename: 'out.txt' }])
    expect(both).toEqual({ artifactId: 'both', parts: [{ text: 'a' }, { data: { b: 1 } }] })
    expect(new Set(task.artifacts?.map(({ artifactId }) => artifactId)).size).toBe(5)
  })

  test('can begin an artifact anew', async () => {
    const task = await ask(async function* () {
      yield 'a first try'
      yield { type: 'text', text: 'a second', append: false }
      yield { type: 'text', text: ' one' }
    })
    expect(task.artifacts).toEqual([{ artifactId: 'answer', parts: [{ text: 'a second' }, { text: ' one' }] }])
  })

  test('tells its progress, and what it is doing in words', async () => {
    const gate = deferred()
    const { url } = await startNode({
      async *onMessage() {
        yield { type: 'progress', progress: 1, total: 2, message: 'half' }
        await gate.promise
        yield { type: 'status', text: 'Looking it up.', metadata: { step: 2 } }
        yield 'Found.'
        return 'Done.'
      },
    })
    const reader = await sendStream(url, say('Where?'))
    const begun = await reader.upTo(({ data }) => data.statusUpdate?.metadata !== undefined)
    expect(begun.at(-1)?.data.statusUpdate?.metadata).toEqual({
      _tool_progress: { progress: 1, total: 2, message: 'half' },
    })
    gate.resolve()
    const rest = await reader.all()
    expect(rest[0]?.data.statusUpdate).toMatchObject({ status: { state: 'TASK_STATE_WORKING' }, metadata: { step: 2 } })
    expect(wordsOf(rest[0]?.data.statusUpdate?.status.message)).toBe('Looking it up.')
    expect(stateOf(rest.at(-1)!)).toBe('TASK_STATE_COMPLETED')
    expect(wordsOf(rest.at(-1)?.data.statusUpdate?.status.message)).toBe('Done.')
  })

  const outcomes: [MessageOutcome, string, string][] = [
    [undefined, 'TASK_STATE_COMPLETED', ''],
    ['Done.', 'TASK_STATE_COMPLETED', 'Done.'],
    [{ state: 'completed', text: 'All of it.' }, 'TASK_STATE_COMPLETED', 'All of it.'],
    [{ state: 'failed', text: 'No paper.' }, 'TASK_STATE_FAILED', 'No paper.'],
    [{ state: 'rejected', text: 'I would rather not.' }, 'TASK_STATE_REJECTED', 'I would rather not.'],
    [{ state: 'canceled', text: 'Never mind.' }, 'TASK_STATE_CANCELED', 'Never mind.'],
    [{ state: 'input-required', text: 'Which one?' }, 'TASK_STATE_INPUT_REQUIRED', 'Which one?'],
    [{ state: 'auth-required', text: 'Who are you?' }, 'TASK_STATE_AUTH_REQUIRED', 'Who are you?'],
    [{ state: 'working', text: 'Tomorrow.' }, 'TASK_STATE_WORKING', 'Tomorrow.'],
  ]

  test.each(outcomes)('ends as the handler says: %j', async (outcome, state, words) => {
    const task = await ask(async function* () {
      yield 'Something.'
      return outcome
    })
    expect(task.status.state).toBe(state)
    expect(wordsOf(task.status.message)).toBe(words)
    expect(task.artifacts).toHaveLength(1)
  })

  test('ends in the same way where nothing was yielded', async () => {
    // oxlint-disable-next-line eslint/require-yield -- it returns without a chunk, which is what is tested
    const task = await ask(async function* () {
      return { state: 'rejected', parts: [{ data: { why: 'no' } }], metadata: { kind: 'x' } }
    })
    expect(task.status).toMatchObject({ state: 'TASK_STATE_REJECTED', message: { parts: [{ data: { why: 'no' } }] } })
  })
})

describe('what a handler throws', () => {
  async function* fails(error: unknown): AsyncGenerator<string, void> {
    yield 'Half of it.'
    throw error
  }

  test('makes the task FAILED, and stays in the log', async () => {
    const task = await ask(() => fails(new Error('password=hunter2')))
    expect(task.status.state).toBe('TASK_STATE_FAILED')
    expect(toolErrorOf(task)?.code).toBe('internal')
    expect(wordsOf(task.status.message)).toMatch(/internal error/i)
    expect(JSON.stringify(task)).not.toContain('hunter2')
    expect(task.artifacts?.[0]?.parts).toEqual([{ text: 'Half of it.' }])
  })

  test.each<[string, MessageHandler]>([
    [
      'a plain function',
      () => {
        throw new Error('hunter2')
      },
    ],
    [
      'an async function',
      async () => {
        throw new Error('hunter2')
      },
    ],
    ['a string', () => fails('hunter2')],
    [
      'an unknown event',
      async function* () {
        yield { type: 'hunter2' } as never
      },
    ],
    [
      'an unknown outcome',
      async function* () {
        yield 'x'
        return { state: 'hunter2' } as never
      },
    ],
  ])('as %s, too', async (_what, handler) => {
    const task = await ask(handler)
    expect(task.status.state).toBe('TASK_STATE_FAILED')
    expect(JSON.stringify(task.status)).not.toMatch(/Error: |\n\s+at /)
  })

  test.each([
    [new ConvokeError('rejected', 'Not on Sundays.'), 'TASK_STATE_REJECTED'],
    [new ConvokeError('network', 'The library is closed.'), 'TASK_STATE_FAILED'],
    [new ConvokeError('canceled', 'Somebody changed their mind.'), 'TASK_STATE_CANCELED'],
  ])('as a ConvokeError is told as it is: %s', async (error, state) => {
    const task = await ask(() => fails(error))
    expect(task.status.state).toBe(state)
    expect(toolErrorOf(task)).toMatchObject({ code: error.code, message: error.message })
    expect(wordsOf(task.status.message)).toBe(error.message)
  })
})

describe('a question', () => {
  const schema = { type: 'object', properties: { size: { type: 'integer' } }, required: ['size'] }

  test('with a schema is asked until the answer fits', async () => {
    const { url } = await startNode({
      async *onMessage(_message, context) {
        const answer = await context.ask({ message: 'Which size?', schema })
        yield { type: 'data', data: answer, artifact: 'order' }
        return 'Ordered.'
      },
    })
    const asked = await send(url, say('A shirt.'))
    expect(asked.status).toMatchObject({
      state: 'TASK_STATE_INPUT_REQUIRED',
      message: { parts: [{ text: 'Which size?' }], metadata: { _tool_question: { schema } } },
    })
    const reply = (part: Message['parts'][number]): Promise<Task> =>
      send(url, say('', { taskId: asked.id, parts: [part] }))
    for (const part of [{ text: 'medium' }, { data: { size: 'XL' } }, { data: {} }]) {
      const again = await reply(part)
      expect(again.status.state).toBe('TASK_STATE_INPUT_REQUIRED')
      expect(wordsOf(again.status.message)).toMatch(/^Which size\? The answer did not fit: .*/)
    }
    const done = await reply({ text: '{"size": 42}' })
    expect(done.status.state).toBe('TASK_STATE_COMPLETED')
    expect(done.artifacts).toMatchObject([{ artifactId: 'order', parts: [{ data: { size: 42 } }] }])
  })

  test('in plain words gets plain words, one after the other', async () => {
    const { url } = await startNode({
      async *onMessage(_message, context) {
        yield `${(await context.ask('Name?')) as string} is ${(await context.ask('Age?')) as string}.`
      },
    })
    const first = await send(url, say('Hi.'))
    expect(wordsOf(first.status.message)).toBe('Name?')
    const second = await send(url, say('Ann', { taskId: first.id }))
    expect(wordsOf(second.status.message)).toBe('Age?')
    const done = await send(url, say('7', { taskId: first.id, contextId: first.contextId }))
    expect(done.artifacts).toEqual([{ artifactId: 'answer', parts: [{ text: 'Ann is 7.' }] }])
    expect(done.history?.map((message) => wordsOf(message))).toEqual(['Hi.', 'Name?', 'Ann', 'Age?', '7'])
  })

  test('is answered once: the same reply again changes nothing', async () => {
    let asked = 0
    const { url } = await startNode({
      async *onMessage(_message, context) {
        for (;;) yield (await context.ask(`Question ${++asked}?`)) as string
      },
    })
    const { id } = await send(url, say('Go.'))
    const reply = say('one', { taskId: id })
    expect(wordsOf((await send(url, reply)).status.message)).toBe('Question 2?')
    expect(wordsOf((await send(url, reply)).status.message)).toBe('Question 2?')
    expect(asked).toBe(2)
    expect((await rpc<Task>(url, 'CancelTask', { id })).body.result?.status.state).toBe('TASK_STATE_CANCELED')
  })

  test('is not answered from another context', async () => {
    const { url } = await startNode({
      async *onMessage(_message, context) {
        yield (await context.ask('Name?')) as string
      },
    })
    const { id } = await send(url, say('Hi.'))
    const { body } = await rpc(url, 'SendMessage', { message: say('Ann', { taskId: id, contextId: 'another' }) })
    expect(body.error?.code).toBe(-32602)
    expect((await getTask(url, id)).status.state).toBe('TASK_STATE_INPUT_REQUIRED')
  })
})

describe('a handler that leaves its task open', () => {
  test.each(['input-required', 'auth-required', 'working'] as const)(
    'as %s is called again with the next message on it',
    async (state) => {
      const seen: { text: string; history: string[]; taskId: string; contextId: string }[] = []
      const node = await startNode({
        async *onMessage(message, { history, taskId, contextId }) {
          seen.push({ text: wordsOf(message), history: history.map((each) => wordsOf(each)), taskId, contextId })
          yield `Turn ${seen.length}. `
          return seen.length < 3 ? { state, text: `And ${seen.length}?` } : 'Enough.'
        },
      })
      const first = await send(node.url, say('one'))
      expect(node.stats.running).toBe(0)
      const again = (text: string): Promise<Task> => send(node.url, say(text, { taskId: first.id }))
      expect((await again('two')).status.state).toBe(first.status.state)
      const last = await again('three')
      expect(last.status.state).toBe('TASK_STATE_COMPLETED')
      const { id: taskId, contextId } = first
      expect(seen).toEqual([
        { text: 'one', history: ['one'], taskId, contextId },
        { text: 'two', history: ['one', 'And 1?', 'two'], taskId, contextId },
        { text: 'three', history: ['one', 'And 1?', 'two', 'And 2?', 'three'], taskId, contextId },
      ])
      const refused = await rpc(node.url, 'SendMessage', { message: say('four', { taskId }) })
      expect(refused.body.error?.code).toBe(-32004)
      expect(seen).toHaveLength(3)
    },
  )

  test('streams from each message to where it rests', async () => {
    let turn = 0
    const { url } = await startNode({
      async *onMessage() {
        yield `Turn ${++turn}.`
        return turn < 2 ? { state: 'input-required', text: 'Go on?' } : undefined
      },
    })
    const first = await (await sendStream(url, say('one'))).all()
    expect(stateOf(first.at(-1)!)).toBe('TASK_STATE_INPUT_REQUIRED')
    const taskId = first[0]!.data.task!.id
    const second = await (await sendStream(url, say('two', { taskId }))).all()
    expect(stateOf(second.at(-1)!)).toBe('TASK_STATE_COMPLETED')
    expect(JSON.stringify(second)).toContain('Turn 2.')
  })

  test('is not called for a cancel', async () => {
    let calls = 0
    const { url } = await startNode({
      async *onMessage() {
        calls++
        yield 'One moment.'
        return { state: 'input-required' }
      },
    })
    const { id } = await send(url, say('one'))
    expect((await rpc<Task>(url, 'CancelTask', { id })).body.result?.status.state).toBe('TASK_STATE_CANCELED')
    expect(calls).toBe(1)
  })
})

describe('what a handler is given', () => {
  const add = defineTool({
    name: 'add',
    description: 'Adds.',
    input: { type: 'object', properties: { a: { type: 'number' }, b: { type: 'number' } }, required: ['a', 'b'] },
    run: ({ a, b }) => a + b,
  })

  test('is the message, the caller, the metadata and the tools', async () => {
    let given: { message: Message; context: MessageContext } | undefined
    const { url } = await startNode({
      tools: [add],
      async *onMessage(message, context) {
        given = { message, context }
        yield `It is ${JSON.stringify(await context.tools.call('add', { a: 1, b: 2 }))}.`
      },
    })
    const message = say('1 + 2?', { metadata: { mine: true } })
    const { body } = await rpc<SendResult>(url, 'SendMessage', { message, metadata: { theirs: true } })
    expect(body.result?.task?.artifacts?.[0]?.parts).toEqual([{ text: 'It is 3.' }])
    expect(given?.message).toMatchObject({ ...message, taskId: body.result?.task?.id })
    expect(given?.context).toMatchObject({ caller: { id: 'anonymous' }, metadata: { theirs: true } })
    expect(given?.context.taskId).toBe(body.result?.task?.id)
  })

  test('does not reach calls of tools', async () => {
    const { url } = await startNode({
      tools: [add],
      onMessage: () => {
        throw new Error('not for me')
      },
    })
    expect(resultOf(await send(url, toolCall('add', { a: 1, b: 1 })))).toBe(2)
  })

  test.each(['cancel', 'stop'])('is a signal that a %s aborts', async (how) => {
    const stopped = deferred<unknown>()
    let cleaned = false
    const node = await startNode({
      async *onMessage(_message, { signal }) {
        try {
          yield 'Begun.'
          await new Promise((_resolve, reject) =>
            signal.addEventListener('abort', () => reject(signal.reason as Error)),
          )
        } finally {
          cleaned = true
          stopped.resolve(signal.reason)
        }
      },
    })
    const reader = await sendStream(node.url, say('Go.'))
    const id = (await reader.upTo(({ data }) => data.artifactUpdate !== undefined))[0]!.data.task!.id
    await (how === 'cancel' ? rpc(node.url, 'CancelTask', { id }) : node.stop())
    expect(await within(stopped.promise, 'the signal')).toMatchObject({ code: 'canceled' })
    expect(stateOf((await reader.all()).at(-1)!)).toBe('TASK_STATE_CANCELED')
    expect(cleaned).toBe(true)
    expect(node.stats).toEqual({ running: 0, abandoned: 0 })
  })
})

describe('without a handler', () => {
  test('a message gets a polite answer that names the tools', async () => {
    const named = (name: string, published = true) =>
      defineTool({ name, description: name, input: { type: 'object' }, traits: { published }, run: () => null })
    const { url } = await startNode({ tools: [named('alpha'), named('beta'), named('gamma', false)] })
    const { body } = await rpc<SendResult>(url, 'SendMessage', { message: say('Who are you?') })
    expect(wordsOf(body.result?.message)).toMatch(/_tool_call.*alpha, beta\./)
    expect(wordsOf(body.result?.message)).not.toContain('gamma')
  })

  test('and without tools it says so', async () => {
    const { url } = await startNode()
    const { body } = await rpc<SendResult>(url, 'SendMessage', { message: say('Who are you?') })
    expect(wordsOf(body.result?.message)).toMatch(/no tools/)
  })
})

describe('agent.module', () => {
  async function nodeOf(code: string): Promise<Node> {
    const baseDir = await temporaryFolder()
    await writeFile(join(baseDir, 'agent.mjs'), code)
    const node = await createNode({ agent: { id: 'alice', module: './agent.mjs' }, baseDir, logLevel: 'silent' })
    cleanup(() => node.stop())
    await node.start()
    return node
  }

  test.each([
    ['onMessage', "export async function* onMessage(message) { yield 'You said ' + message.parts[0].text }"],
    ['the default export', "export default async function* (message) { yield 'You said ' + message.parts[0].text }"],
  ])('answers with %s', async (_what, code) => {
    const { url } = await nodeOf(code)
    expect((await send(url, say('this'))).artifacts?.[0]?.parts).toEqual([{ text: 'You said this' }])
  })

  test.each([
    ['is not there', undefined, /cannot be loaded/],
    ['does not parse', 'export default {', /cannot be loaded/],
    ['throws', 'throw new Error("on purpose")', /cannot be loaded: on purpose/],
    ['exports no function', 'export default 7', /must export an agent, or a function onMessage/],
  ])('that %s is a config error', async (_what, code, message) => {
    const baseDir = await temporaryFolder()
    if (code !== undefined) await writeFile(join(baseDir, 'agent.mjs'), code)
    const made = createNode({ agent: { id: 'alice', module: './agent.mjs' }, baseDir, logLevel: 'silent' })
    await expect(made).rejects.toMatchObject({ code: 'config', message: expect.stringMatching(message) })
  })
})

describe('the card', () => {
  const add = defineTool({
    name: 'add',
    description: 'Adds two numbers.',
    input: { type: 'object', properties: { a: { type: 'number' } }, required: ['a'] },
    output: { type: 'object', properties: { sum: { type: 'number' } }, required: ['sum'] },
    traits: { category: 'maths', tags: ['sum'], readOnly: true },
    run: ({ a }) => ({ sum: a }),
  })
  const hidden = defineTool({
    name: 'hidden',
    description: 'Hidden.',
    input: { type: 'object' },
    traits: { published: false },
    run: () => null,
  })
  const more = defineTool({ name: 'more', description: 'One more.', input: { type: 'object' }, run: () => null })

  const cardOf = (url: string, headers: Record<string, string> = {}) =>
    request<JsonObject>(`${url}/.well-known/agent-card.json`, { headers })

  test('is the checked-in template with the published tools, and nothing else', async () => {
    const template = JSON.parse(
      await readFile(fileURLToPath(new URL('../agent-card.json', import.meta.url)), 'utf8'),
    ) as JsonObject
    const node = await startNode({ tools: [add, hidden] })
    const { url } = node
    const { input, output } = add
    const expected = {
      ...template,
      name: 'Alice',
      supportedInterfaces: [
        { url, protocolBinding: 'JSONRPC', protocolVersion: '1.0' },
        { url, protocolBinding: 'HTTP+JSON', protocolVersion: '1.0' },
        { url, protocolBinding: 'JSONRPC', protocolVersion: '0.3' },
        { url, protocolBinding: 'HTTP+JSON', protocolVersion: '0.3' },
      ],
      capabilities: {
        streaming: true,
        pushNotifications: true,
        extendedAgentCard: false,
        extensions: [
          {
            uri: 'urn:convoke:tool-call:v1',
            description: expect.any(String),
            required: false,
            params: {
              tools: {
                'tool-add': {
                  name: 'add',
                  input_schema: input,
                  output_schema: output,
                  annotations: { readOnlyHint: true, idempotentHint: true },
                },
              },
            },
          },
        ],
      },
      skills: [
        {
          id: 'tool-add',
          name: 'add',
          description: 'Adds two numbers.',
          tags: ['tool', 'maths', 'sum'],
          input_schema: input,
          output_schema: output,
        },
      ],
    }
    expect((await cardOf(url, { 'a2a-version': '1.0' })).body).toEqual(expected)
    expect(node.card()).toEqual(expected)
    const legacy = {
      url,
      preferredTransport: 'JSONRPC',
      protocolVersion: '0.3.0',
      additionalInterfaces: [
        { url, transport: 'JSONRPC' },
        { url, transport: 'HTTP+JSON' },
      ],
      supportsAuthenticatedExtendedCard: false,
    }
    const { supportedInterfaces: _interfaces, ...rest } = expected
    const { extendedAgentCard: _extended, ...capabilities } = expected.capabilities
    expect((await cardOf(url, { 'a2a-version': '0.3' })).body).toEqual({ ...rest, ...legacy, capabilities })
    // Who says no version may be either.
    expect((await cardOf(url)).body).toEqual({ ...expected, ...legacy })
    expect((await request<JsonObject>(`${url}/.well-known/agent.json`)).body).toEqual({ ...expected, ...legacy })
  })

  test('says what the agent is called, and can start from another template', async () => {
    const baseDir = await temporaryFolder()
    await writeFile(
      join(baseDir, 'card.json'),
      '{"name":"x","description":"Mine.","version":"9.9.9","iconUrl":"https://a.example/i.png","skills":[{"id":"talk","name":"Talk","description":"Talks.","tags":[]}]}',
    )
    const agent = { id: 'bob', name: 'Bob', description: 'Bob himself.', version: '1.2.3', card: './card.json' }
    const { url } = await startNode({ agent, baseDir, tools: [more] })
    const { body } = await cardOf(url)
    expect(body).toMatchObject({
      name: 'Bob',
      description: 'Bob himself.',
      version: '1.2.3',
      iconUrl: 'https://a.example/i.png',
    })
    expect((body['skills'] as { id: string }[]).map(({ id }) => id)).toEqual(['talk', 'tool-more'])
  })

  test('follows the tools at once, with another ETag', async () => {
    const node = await startNode({ tools: [add] })
    const before = await cardOf(node.url)
    expect(before.headers.get('cache-control')).toMatch(/max-age=\d+/)
    expect(before.headers.get('last-modified')).toMatch(/GMT$/)
    expect(before.headers.get('vary')).toMatch(/A2A-Version/i)
    const etag = before.headers.get('etag')!
    expect(etag).toMatch(/^"[^"]+"$/)
    for (const tag of [etag, `W/${etag}`, `"other", ${etag}`, '*']) {
      const fresh = await cardOf(node.url, { 'if-none-match': tag })
      expect([fresh.status, fresh.text, fresh.headers.get('etag')]).toEqual([304, '', etag])
    }

    node.registry.register(more)
    const after = await cardOf(node.url, { 'if-none-match': etag })
    expect(after.status).toBe(200)
    expect(after.headers.get('etag')).not.toBe(etag)
    expect((after.body['skills'] as { name: string }[]).map(({ name }) => name)).toEqual(['add', 'more'])
    expect((await send(node.url, toolCall('more'))).status.state).toBe('TASK_STATE_COMPLETED')

    node.registry.deregister('more')
    const back = await cardOf(node.url)
    expect(back.body).toEqual(before.body)
    expect(back.headers.get('etag')).toBe(etag)
    expect(toolErrorOf(await send(node.url, toolCall('more')))?.code).toBe('not_found')
  })

  test('has an ETag for each version, and an answer to HEAD', async () => {
    const { url } = await startNode({ tools: [add] })
    const tags = await Promise.all(
      ['1.0', '0.3', ''].map(async (version) => (await cardOf(url, { 'a2a-version': version })).headers.get('etag')),
    )
    expect(new Set(tags).size).toBe(3)
    const head = await request(`${url}/.well-known/agent-card.json`, {
      method: 'HEAD',
      headers: { 'accept-encoding': 'identity' },
    })
    expect([head.status, head.text, head.headers.get('etag')]).toEqual([200, '', tags[2]?.replace('-gzip', '')])
    expect((await cardOf(url, { 'a2a-version': '99.0' })).status).toBe(400)
  })

  test('leaves its schemas to a list in pages when it grows too large', async () => {
    const description = 'x'.repeat(1000)
    const tools = Array.from({ length: 450 }, (_, n) =>
      defineTool({ name: `tool${n}`, description, input: { type: 'object' }, run: () => n }),
    )
    const { url } = await startNode({ tools })
    const { body } = await cardOf(url, { 'a2a-version': '1.0' })
    const { extensions } = body['capabilities'] as { extensions: { params: { tools?: unknown; tools_url?: string } }[] }
    expect(extensions[0]?.params).toEqual({ tools_url: `${url}/tools` })
    expect(body['skills']).toHaveLength(450)
    const names: string[] = []
    let token = ''
    do {
      const page = await rest<{ tools: { name: string; input_schema: unknown }[]; next_page_token: string }>(
        url,
        `GET /tools?page_token=${token}`,
      )
      expect(page.body.tools.every((tool) => tool.input_schema !== undefined)).toBe(true)
      names.push(...page.body.tools.map(({ name }) => name))
      token = page.body.next_page_token
    } while (token !== '')
    expect(names).toEqual(tools.map(({ name }) => name))
  })
})

describe('behind a proxy', () => {
  const echo = defineTool({ name: 'echo', description: 'Echoes.', input: { type: 'object' }, run: () => 'here' })
  const forwarded = {
    'x-forwarded-host': 'alice.example',
    'x-forwarded-proto': 'https',
    'x-forwarded-prefix': '/agents/alice',
  }
  const urlsOf = async (url: string, headers: Record<string, string> = {}): Promise<string[]> => {
    const { body } = await request<{ supportedInterfaces: { url: string }[] }>(`${url}/.well-known/agent-card.json`, {
      headers,
    })
    return [...new Set(body.supportedInterfaces.map((each) => each.url))]
  }

  test('that is trusted the card has the URL that callers use', async () => {
    const { url } = await startNode({ tools: [echo], server: { trustProxy: ['loopback'] } })
    expect(await urlsOf(url, forwarded)).toEqual(['https://alice.example/agents/alice'])
    expect(await urlsOf(url, { 'x-forwarded-host': 'first.example, second.example' })).toEqual(['http://first.example'])
    expect(await urlsOf(url, { ...forwarded, 'x-forwarded-host': 'evil.example/path?"<script>' })).toEqual([url])
    expect(await urlsOf(url)).toEqual([url])
  })

  test('that is not trusted its headers count for nothing', async () => {
    const { url } = await startNode({ tools: [echo], server: { trustProxy: ['10.0.0.0/8'] } })
    expect(await urlsOf(url, forwarded)).toEqual([url])
    const { url: another } = await startNode({ tools: [echo] })
    expect(await urlsOf(another, forwarded)).toEqual([another])
  })

  test('the public URL is what the operator says', async () => {
    const { url } = await startNode({
      tools: [echo],
      server: { publicUrl: 'https://alice.example/a/', trustProxy: ['loopback'] },
    })
    expect(await urlsOf(url, forwarded)).toEqual(['https://alice.example/a'])
  })

  test('everything stands below the base path, and a proxy may have taken it off', async () => {
    const node = await startNode({ tools: [echo], server: { basePath: '/agents/alice/' } })
    const root = node.url.slice(0, -'/agents/alice'.length)
    expect(node.url).toBe(`${root}/agents/alice`)
    for (const url of [node.url, root]) {
      expect(await urlsOf(url)).toEqual([node.url])
      expect(resultOf(await send(url, toolCall('echo')))).toBe('here')
      const overRest = await rest<SendResult>(url, 'POST /message:send', { message: toolCall('echo') })
      expect(resultOf(overRest.body.task!)).toBe('here')
      expect((await rest(url, 'GET /tasks')).status).toBe(200)
      expect((await request(`${url}/healthz`)).status).toBe(200)
    }
    expect((await request(`${root}/agents/alicex/healthz`)).status).toBe(404)
  })
})
