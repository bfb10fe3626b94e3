/** What the author of an agent is told, and where: what a message leaves to the log is in it, and what does nothing is told. */
import {
  Agent,
  AgentEvent,
  AgentPlan,
  AgentRunner,
  ChatRequestEvent,
  createMemoryAgentStore,
  createNode,
  getExecutionEnvironment,
  InputEvent,
  openEventLog,
  OutputEvent,
  ReActAgent,
  type AgentRunnerOptions,
  type JsonObject,
  type Node,
  type NodeOptions,
} from 'convoke'
import { execFile } from 'node:child_process'
import { readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { describe, expect, test } from 'vitest'
import { formatTrace } from '../dist/agent/trace-text.js'
import { readTrace, toTree } from '../dist/agent/event-trace.js'
import { createLog } from '../dist/base/log.js'
import { add, addModel, chatAgent, said, startChat, startRunner } from './support/chat-agents.ts'
import { convoke } from './support/command.ts'
import { cleanup, temporaryFolder } from './support/lifetime.ts'
import { startModelServer, type ModelScript } from './support/model-server.ts'
import { failureOf } from './support/failure.ts'

interface Told extends Record<string, unknown> {
  readonly level: string
  readonly msg: string
}

/** The log as it is written: secrets and all that is left out are gone. */
function writtenLog(): { readonly log: NonNullable<AgentRunnerOptions['log']>; readonly lines: Told[] } {
  const lines: Told[] = []
  const write = (line: string): void => void lines.push(JSON.parse(line) as Told)
  return { lines, log: createLog('warn', { pretty: false, write }) }
}

const warningsIn = (lines: readonly Told[]): string[] => lines.map(({ msg }) => msg)

describe('the last failure of a model', () => {
  test.each<[string, JsonObject, string]>([
    ['its refusal', { error: { message: 'maximum context length is 8192 tokens, api_key s3cret-key' } }, '8192 tokens'],
    ['its broken answer', { choices: 'none' }, ''],
  ])('is logged once, with the URL, the model and %s', async (_what, body, words) => {
    const { log, lines } = writtenLog()
    const status = words === '' ? 200 : 400
    const { failure, model } = await startChat(
      [
        { status, body },
        { status, body },
        { status, body },
      ],
      {
        connection: { apiKey: 's3cret-key', structuredOutput: false },
        runner: { log },
      },
    )
    const error = await failure()
    expect(lines).toEqual([
      expect.objectContaining({ level: 'error', msg: 'A chat request to a model failed.', model: 'tiny' }),
    ])
    const [{ error: logged }] = lines as unknown as [{ error: { message: string; cause: string } }]
    expect(logged.message).toBe(error.message)
    expect(logged.cause).toContain(`POST ${model.url}/chat/completions`)
    expect(logged.cause).toContain(words)
    expect(JSON.stringify(lines)).not.toContain('s3cret')
    expect(error.message).not.toMatch(/http|8192/)
  })

  test('is logged behind the attempts before it, and without saying anything twice', async () => {
    const { log, lines } = writtenLog()
    const { failure, model } = await startChat([], {
      request: { errorStrategy: 'retry', retry: { attempts: 2, backoffMs: 1 } },
      runner: { log },
    })
    await model.stop()
    await failure()
    expect(warningsIn(lines)).toEqual([
      'A request to a model failed and is made again.',
      'A chat request to a model failed.',
    ])
    const { host } = new URL(model.url)
    const { error } = lines[1] as unknown as { error: { cause: string } }
    expect(error.cause).toMatch(
      new RegExp(`^POST ${model.url}/chat/completions: ${host} refused the connection: connect ECONNREFUSED [\\d.:]+$`),
    )
  })

  test('is one warning where it is ignored', async () => {
    const { log, lines } = writtenLog()
    const model = await startModelServer([{ status: 401, body: { error: 'no key' } }])
    const runner = startRunner(chatAgent(model, { request: { errorStrategy: 'ignore' } }), { log })
    expect(await runner.run('key', 'hello')).toEqual({ outputs: [] })
    expect(lines).toEqual([
      expect.objectContaining({
        level: 'warn',
        model: 'tiny',
        error: expect.objectContaining({ cause: expect.stringContaining('no key') }),
      }),
    ])
  })

  test('is logged where an action asks the connection by itself', async () => {
    const { log, lines } = writtenLog()
    const model = await startModelServer([{ status: 404, body: 'no such page' }])
    const agent = new Agent().addAction('ask', [InputEvent], async (_event, context) => {
      const connection = await context.getResource('local', 'chatModelConnection')
      await connection.chat({ messages: [{ role: 'user', content: 'Hi.' }] }, { signal: context.signal }).next()
    })
    addModel(agent, model)
    expect(await failureOf(startRunner(agent, { log }).run('key', 1))).toMatchObject({ code: 'model_refused' })
    expect(lines).toEqual([
      expect.objectContaining({
        action: 'ask',
        error: expect.objectContaining({ cause: `POST ${model.url}/chat/completions: no such page` }),
      }),
    ])
  })
})

describe('an action that fails', () => {
  const failing = (): Agent =>
    new Agent().addAction('ask', [InputEvent], () => {
      throw new Error('No stock at http://bob:s3cret@shop/.')
    })

  test('is in the log, which is stderr in a script unless it says otherwise', async () => {
    const script = `
      import { Agent, AgentPlan, AgentRunner, createMemoryAgentStore, getExecutionEnvironment } from 'convoke'
      const agent = new Agent().addAction('ask', ['input'], () => { throw new Error('No stock.') })
      const runner = new AgentRunner({ plan: AgentPlan.fromAgent(agent), store: createMemoryAgentStore() })
      for (const work of [
        () => getExecutionEnvironment().fromList([{ value: 1 }]).apply(agent).toList(),
        () => runner.run('a', 1),
      ]) await work().catch((error) => console.log(error.message))
      await runner.close()`
    const { stdout, stderr } = await promisify(execFile)(process.execPath, ['--input-type=module', '-e', script])
    const sentence = 'The action "ask" of the agent failed; the next input is not affected. Why is in the log'
    // The author of the program may know.
    expect(stdout).toBe(`${sentence}: No stock.\n${sentence}.\n`)
    expect(stderr.match(/An action of an agent failed\./g)).toHaveLength(2)
    expect(stderr.match(/No stock\./g)?.length).toBeGreaterThanOrEqual(2)
  })

  test('is told with why in a program of its own, without secrets', async () => {
    const told: string[] = []
    const stream = getExecutionEnvironment({ log: writtenLog().log }).fromList([{ value: 1 }])
    await stream.apply(failing(), { onFailure: ({ error }) => void told.push(error.message) }).toList()
    expect(told).toEqual([
      'The action "ask" of the agent failed; the next input is not affected. Why is in the log: No stock at http://[redacted]@shop/.',
    ])
  })

  test('is a screenful where nobody catches it, whatever came of the others', async () => {
    const script = `
      import { Agent, getExecutionEnvironment, OutputEvent } from 'convoke'
      const agent = new Agent().addAction('ask', ['input'], (event, context) => {
        if (event.value > 50) throw new Error('No stock.')
        context.sendEvent(new OutputEvent({ some: 'thing' }))
      })
      const items = Array.from({ length: 100 }, (_, value) => ({ value }))
      await getExecutionEnvironment({ log: { debug() {}, info() {}, warn() {}, error() {} } }).fromList(items).apply(agent).toList()`
    const run = promisify(execFile)(process.execPath, ['--input-type=module', '-e', script])
    const { stderr } = (await run.catch((error: unknown) => error)) as { stderr: string }
    expect(stderr).toContain('49 runs failed; the first one: The action "ask" of the agent failed')
    expect(stderr.match(/\[cause\]/g)).toHaveLength(1)
    expect(stderr).not.toContain('thing')
    expect(stderr.split('\n').length).toBeLessThan(35)
  })

  test('has why in the event log, without secrets, and in its trace', async () => {
    const file = join(await temporaryFolder(), 'events.jsonl')
    const eventLog = await openEventLog({ file })
    await failureOf(startRunner(failing(), { eventLog, log: writtenLog().log }).run('key', 1))
    await eventLog.close()
    const { records } = await readTrace(file)
    expect(records.find(({ kind }) => kind === 'action')).toMatchObject({
      error: { code: 'action_failed', cause: 'No stock at http://[redacted]@shop/.' },
    })
    const trace = formatTrace(toTree(records), (_format: unknown, text: string) => text)
    expect(trace).toMatch(/^ +why: No stock at http:\/\/\[redacted\]@shop\/\.$/m)
    expect(await readFile(file, 'utf8')).not.toContain('s3cret')
  })
})

describe('an event that nobody hears', () => {
  test('is a warning once, with what was probably meant, and is marked in the trace', async () => {
    const { log, lines } = writtenLog()
    const file = join(await temporaryFolder(), 'events.jsonl')
    const eventLog = await openEventLog({ file })
    const agent = new Agent()
      .addAction('rate', [InputEvent], (_event, context) => {
        context.sendEvent(new AgentEvent('scord', {}))
        context.sendEvent(new AgentEvent('something_else', {}))
        context.sendEvent(new AgentEvent('scored', {}))
      })
      .addAction('tell', ['scored'], (_event, context) => context.sendEvent(new OutputEvent('done')))
    const runner = startRunner(agent, { eventLog, log })
    for (const key of ['a', 'b']) expect(await runner.run(key, 1)).toEqual({ outputs: ['done'] })
    expect(lines).toEqual([
      expect.objectContaining({
        level: 'warn',
        action: 'rate',
        msg: 'Nobody hears the event "scord". Did you mean "scored"?',
      }),
      expect.objectContaining({
        msg: 'Nobody hears the event "something_else". No action of the agent listens to it.',
      }),
    ])
    await eventLog.close()
    const { records } = await readTrace(file)
    const trace = formatTrace(toTree(records), (_format: unknown, text: string) => text)
    expect(trace.match(/scord \{\} \(nobody hears it\)/g)).toHaveLength(2)
    expect(trace.match(/nobody hears it/g)).toHaveLength(4)
  })

  test('is told for a hundred types at most: an agent may make up any number of them', async () => {
    const { log, lines } = writtenLog()
    const agent = new Agent().addAction('talk', [InputEvent], (_event, context) => {
      for (let n = 0; n < 150; n++) context.sendEvent(new AgentEvent(`word_${n}`, {}))
    })
    await startRunner(agent, { log }).run('key', 1)
    expect(lines).toHaveLength(100)
  })

  test('may be the input, or the response of a chat request', async () => {
    const { log, lines } = writtenLog()
    const model = await startModelServer(['Hello.'])
    const agent = new Agent()
      .addAction('ask', [InputEvent], (_event, context) =>
        context.sendEvent(new ChatRequestEvent({ model: 'chat', messages: [{ role: 'user', content: 'Hi.' }] })),
      )
      .addResource('chat', { connection: 'local' }, 'chatModelSetup')
    addModel(agent, model)
    expect(await startRunner(agent, { log }).run('key', 1)).toEqual({ outputs: [] })
    const deaf = new Agent().addAction('start', ['InputEvnt'], () => {})
    expect(await startRunner(deaf, { log }).run('key', 1)).toEqual({ outputs: [] })
    expect(warningsIn(lines)).toEqual([
      'Nobody hears the event "chat_response". No action of the agent listens to it.',
      'The action "start" hears "InputEvnt", which is no built-in event. Did you mean "input"?',
      'Nobody hears the event "input". No action of the agent listens to it.',
    ])
  })

  test.each(['reviews', 'inputs', 'scored', 'out', 'chat', 'tool_done'])(
    'is none of an agent that has a type %s of its own',
    async (type) => {
      const { log, lines } = writtenLog()
      const agent = new Agent()
        .addAction('start', [InputEvent], (_event, context) => context.sendEvent(new AgentEvent(type, {})))
        .addAction('end', [type], (_event, context) => context.sendEvent(new OutputEvent(1)))
      expect(await startRunner(agent, { log }).run('key', 1)).toEqual({ outputs: [1] })
      expect(lines).toEqual([])
    },
  )
})

test('an agent without an action is refused when it is to run', async () => {
  const refused = expect.objectContaining({ code: 'invalid_plan', message: expect.stringContaining('has no actions') })
  const plan = AgentPlan.fromAgent(new Agent())
  expect(() => new AgentRunner({ plan, store: createMemoryAgentStore() })).toThrow(refused)
  const stream = getExecutionEnvironment().fromList([{ value: 1 }])
  expect(() => stream.apply(new Agent())).toThrow(refused)
  expect(() => stream.apply(plan)).toThrow(refused)
  await expect(nodeOf({ module: 'export default new Agent()' })).rejects.toThrow(refused)
})

describe('an empty answer', () => {
  test('is asked for once more, and then fails with what to do', async () => {
    const { log, lines } = writtenLog()
    const { failure, model } = await startChat(['', ' \n'], { runner: { log } })
    const error = await failure()
    expect(error).toMatchObject({ code: 'model_invalid', retryable: false })
    expect(error.message).toBe(
      'The model\'s answer is empty (finish_reason "stop"): it has no text and calls no tool. Ask again, say in the prompt that it is to answer in words, or use another model.',
    )
    expect(model.requests).toHaveLength(2)
    expect(lines.map(({ level }) => level)).toEqual(['warn', 'error'])
  })

  test('behind a round of tools is not the last word when the model has one', async () => {
    const calls = [{ call: { name: 'add', arguments: { a: 1, b: 2 } } }]
    const { ask, model } = await startChat([calls, '', 'It is 3.'], { tools: [add] })
    expect((await ask()).response.content).toBe('It is 3.')
    expect(said(model.requests[2])).toEqual(said(model.requests[1]))
  })

  test('is asked for as often as the strategy retry says', async () => {
    const retry = { errorStrategy: 'retry', retry: { attempts: 4, backoffMs: 1 } }
    const { failure, model } = await startChat(['', '', '', '', 'late'], { request: retry })
    expect((await failure()).code).toBe('model_invalid')
    expect(model.requests).toHaveLength(4)
  })

  test('that used up its tokens says so', async () => {
    const thinking = [{ reasoning: 'Hm.' }, { finish: 'length' }]
    const { failure } = await startChat([thinking, thinking])
    expect((await failure()).message).toContain('raise `max_tokens`')
  })
})

test('an answer that does not fit says what else may help, and how often it was tried', async () => {
  const outputSchema = { type: 'object', properties: { score: { type: 'number' } }, required: ['score'] }
  const once = await startChat(['none'], { request: { outputSchema } })
  expect((await once.failure()).message).toContain(
    'try again with the error strategy `retry` (`onError` of agent.react)',
  )
  const thrice = await startChat(['none', 'none', 'none'], {
    request: { outputSchema, errorStrategy: 'retry', retry: { attempts: 3, backoffMs: 1 } },
  })
  const { message } = await thrice.failure()
  expect(message).toMatch(/^The model's answer does not fit the output schema, after 3 tries: /)
  expect(message).not.toContain('error strategy')
})

describe('what nobody has', () => {
  test('of tools is told once, not in each round', async () => {
    const { log, lines } = writtenLog()
    const calls = [{ call: { name: 'add', arguments: { a: 1, b: 2 } } }]
    const script: ModelScript = [calls, 'a', calls, 'b']
    const { ask } = await startChat(script, { tools: [add], setup: { tools: ['add', 'nosuch'] }, runner: { log } })
    for (const key of ['a', 'b']) await ask(key)
    expect(lines).toEqual([
      expect.objectContaining({ msg: 'No tool here fits some that a chat model names.', tools: ['nosuch'] }),
    ])
  })

  test('is a warning of the node, for its own tools and connections alone', async () => {
    const models = { local: { baseUrl: 'http://127.0.0.1:9/v1', model: 'tiny' } }
    const react = { model: 'local', tools: ['wether', 'weather', 'bob.*', 'fs.read', '*_fast'] }
    const tools = [{ ...add, name: 'weather' }]
    expect((await nodeOf({ react, models, tools })).warnings).toEqual([
      'agent.react.tools names a tool that there is not, got "wether". Did you mean "weather"?',
    ])
    const module = `
      export default new ReActAgent({ chatModel: { connection: 'locl', tools: ['wether', '*'] } })
        .addResource('other', { connection: 'elsewhere' }, 'chatModelSetup')`
    expect((await nodeOf({ module, models, tools })).warnings).toEqual([
      'The chat model setup "react_chat_model" of the agent names a connection that is neither its own nor in models, got "locl". Did you mean "local"?',
      'The chat model setup "react_chat_model" of the agent names a tool that there is not, got "wether". Did you mean "weather"?',
      'The chat model setup "other" of the agent names a connection that is neither its own nor in models, got "elsewhere".',
    ])
  })

  test('of connections says where they may be', async () => {
    const agent = new ReActAgent({ chatModel: { connection: 'local' } })
    const { message } = await failureOf(startRunner(agent).run('key', 'hi'))
    expect(message).toMatch(/Add it by `addResource`, or under `models` of the node's configuration\.$/)
  })
})

test('a chat with the own agent says on stderr what the messages leave to the log, once', async () => {
  const cwd = await temporaryFolder()
  const models = { local: { baseUrl: 'http://127.0.0.1:9/v1', model: 'tiny', retries: 0 } }
  const agent = { id: 'alice', react: { model: 'local', tools: ['wether'] } }
  await writeFile(join(cwd, 'convoke.json'), JSON.stringify({ agent, models }))
  const { code, stderr } = await convoke(['chat', '--message', 'Hi.'], { cwd })
  expect(code).toBe(1)
  expect(stderr).toContain('The log has the address.')
  expect(stderr).toContain('POST http://127.0.0.1:9/v1/chat/completions: 127.0.0.1:9 refused the connection')
  expect(stderr.match(/agent\.react\.tools names a tool that there is not/g)).toHaveLength(1)
})

test('a module that is not there is told without the insides of this package', async () => {
  const baseDir = await temporaryFolder()
  for (const [module, why] of [
    ['./gone.mjs', 'there is no such file.'],
    ['.', 'it is no file.'],
  ] as const) {
    const failure = await failureOf(createNode({ agent: { id: 'alice', module }, baseDir, logLevel: 'silent' }))
    expect(failure.code).toBe('config')
    expect(failure.message.startsWith(`agent.module ${module} cannot be loaded: `)).toBe(true)
    expect(failure.message.endsWith(why)).toBe(true)
    expect(failure.message).not.toContain('dist')
  }
})

interface NodeParts extends Pick<NodeOptions, 'models' | 'tools'> {
  readonly react?: NonNullable<NodeOptions['agent']['react']>
  /** The text of a module that exports an agent. */
  readonly module?: string
}

async function nodeOf({ react, module, ...rest }: NodeParts): Promise<Node> {
  const baseDir = await temporaryFolder()
  const convoke = new URL('../dist/index.js', import.meta.url).href
  await writeFile(join(baseDir, 'agent.mjs'), `import { Agent, ReActAgent } from '${convoke}'\n${module ?? ''}`)
  const agent = { id: 'alice', ...(react === undefined ? { module: './agent.mjs' } : { react }) }
  const node = await createNode({ agent, baseDir, logLevel: 'silent', store: { url: ':memory:' }, ...rest })
  cleanup(() => node.stop())
  return node
}
