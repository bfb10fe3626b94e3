/** What an agent is, what of it makes no sense, and a plan that runs in another process. */
import * as convoke from 'convoke'
import {
  Agent,
  AgentEvent,
  AgentPlan,
  ChatModelSetup,
  ChatRequestEvent,
  defineTool,
  exportedFrom,
  InputEvent,
  Prompt,
  ResourceDescriptor,
  ToolBase,
  type Action,
  type AgentPlanJson,
  type ModuleReference,
  type ResourceType,
} from 'convoke'
import { execFile } from 'node:child_process'
import { cp, symlink, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { pathToFileURL } from 'node:url'
import { promisify } from 'node:util'
import { describe, expect, test } from 'vitest'
import { loadFunction, loadReference } from '../dist/agent/function-reference.js'
import { temporaryFolder } from './support/lifetime.ts'
import { resourceContext, runElsewhere } from './support/plans.ts'
import * as fixture from './support/plan-agent.js'

const module = pathToFileURL(join(import.meta.dirname, 'support/plan-agent.js')).href
const at = (path: string): ModuleReference => ({ module, export: path })

const echo = defineTool({ name: 'echo', description: 'Echoes.', input: { type: 'object' }, run: () => 'echo' })
const nothing: Action = () => {}

class ScoredEvent extends AgentEvent<'scored', { score: number }> {
  static readonly type = 'scored'
}

/** The failure of what must fail. */
async function failureOf(
  work: () => unknown,
): Promise<{ name: string; code?: string; message: string; cause?: Error }> {
  try {
    await work()
  } catch (error) {
    return error as never
  }
  throw new Error('It did not fail.')
}

describe('an agent', () => {
  test('keeps its actions in order, each with the types that it hears', () => {
    const agent = new Agent()
      .addAction('first', [InputEvent, 'by_hand', InputEvent], nothing, { least: 3 })
      .addAction('second', ScoredEvent, nothing)
      .addAction('third', 'input', at('start'))
    expect([...agent.actions.values()].map(({ name, events, config }) => ({ name, events, config }))).toEqual([
      { name: 'first', events: ['input', 'by_hand'], config: { least: 3 } },
      { name: 'second', events: ['scored'], config: {} },
      { name: 'third', events: ['input'], config: {} },
    ])
  })

  test('has a config of its own that nobody changes behind its back', () => {
    const config = { limits: { least: 3 } }
    const agent = new Agent().addAction('first', InputEvent, nothing, config)
    config.limits.least = 4
    expect(agent.actions.get('first')?.config).toEqual({ limits: { least: 3 } })
  })

  test('may be a subclass that adds in its constructor', () => {
    class Reviews extends Agent {
      constructor(readonlyName: string) {
        super()
        this.addAction(readonlyName, InputEvent, nothing)
      }
    }
    expect(AgentPlan.fromAgent(new Reviews('start')).actionsByEvent['input']).toEqual(['start'])
  })

  const classWithoutType = class Untyped {}
  test.each<[string, () => unknown, RegExp]>([
    [
      'a name that is taken',
      () => new Agent().addAction('a', InputEvent, nothing).addAction('a', 'other', nothing),
      /There is an action "a" already\. Give one of them another name\./,
    ],
    ['no name', () => new Agent().addAction('', InputEvent, nothing), /name of an action must be a text, got ""/],
    ['no events', () => new Agent().addAction('a', [], nothing), /"a" hears no events\. Name at least one/],
    [
      'no events at all',
      () => new Agent().addAction('a', undefined as unknown as string, nothing),
      /"a" hears no events/,
    ],
    ['an empty type', () => new Agent().addAction('a', [''], nothing), /cannot hear ""\. An event is a class/],
    [
      'a class without a type',
      () => new Agent().addAction('a', classWithoutType as never, nothing),
      /cannot hear the class Untyped\. An event is a class with `static readonly type = '…'`/,
    ],
    ['a number for an event', () => new Agent().addAction('a', [5 as never], nothing), /cannot hear 5\./],
    [
      'the name of a built-in action',
      () => new Agent().addAction('tool_call_action', InputEvent, nothing),
      /"tool_call_action" comes with every agent\. Give yours another name\./,
    ],
    [
      'no function',
      () => new Agent().addAction('a', InputEvent, 'start' as never),
      /"a" needs a function \(event, context\), or { module, export } that names one, got "start"\./,
    ],
    [
      'a reference to text that would be evaluated',
      () => new Agent().addAction('a', InputEvent, { module: 'data:text/javascript,export const x = 1', export: 'x' }),
      /`module` must be a path, a `file:` URL or an installed package, got "data:/,
    ],
    [
      'a reference that is code',
      () => new Agent().addAction('a', InputEvent, { module: './a.js', export: 'run()' }),
      /`export` must be the name of an export, or `Class\.member`, got "run\(\)"/,
    ],
    [
      'a config that is not JSON',
      () => new Agent().addAction('a', InputEvent, nothing, { when: [new Date()] } as never),
      /The config of the action "a" is no JSON object at \/when\/0\./,
    ],
    [
      'a config that is a list',
      () => new Agent().addAction('a', InputEvent, nothing, [] as never),
      /config of the action "a" is no JSON object\./,
    ],
  ])('refuses %s', async (_what, add, message) => {
    expect(await failureOf(add)).toMatchObject({ code: 'invalid_plan', message: expect.stringMatching(message) })
  })
})

describe('resources', () => {
  const prompt = Prompt.fromText('Hi {name}.')
  const setup = { connection: 'local' }

  test.each<[string, ResourceType, string, object, ResourceType?]>([
    ['a tool of defineTool', 'tool', 'echo', echo],
    ['an instance of ToolBase', 'tool', 'upper', fixture.upper],
    ['a prompt', 'prompt', 'x', prompt],
    ['a descriptor', 'vectorStore', 'x', new ResourceDescriptor(fixture.Notes, {})],
    ['an instance of a class that says it', 'vectorStore', 'x', new fixture.Notes({}, resourceContext())],
    ['a chat model setup', 'chatModelSetup', 'x', new ChatModelSetup(setup)],
    ['options and their type', 'chatModelSetup', 'x', setup, 'chatModelSetup'],
    ['a server and its type', 'mcpServer', 'x', { url: 'https://mcp.example.com' }, 'mcpServer'],
    ['a reference and its type', 'tool', 'x', at('add'), 'tool'],
    ['a descriptor by reference and its type', 'vectorStore', 'x', new ResourceDescriptor(at('Notes')), 'vectorStore'],
    ['an object that can do it and its type', 'embeddingModel', 'x', { embed: () => [] }, 'embeddingModel'],
    ['a function and its type', 'remoteAgent', 'x', () => ({ ask: nothing }), 'remoteAgent'],
  ])('are known by what they are: %s', (_what, type, name, value, given) => {
    const { resources } = new Agent().addResource(name, value, given)
    expect([...resources.keys()]).toEqual([type])
    expect(resources.get(type)?.get(name)).toMatchObject({ type, name })
  })

  test('that are tools may be added alone, under their own names', () => {
    class Upper extends ToolBase {
      readonly name = 'upper'
      readonly description = 'Shouts.'
      readonly input = { type: 'object' }
      run(): string {
        return 'UP'
      }
    }
    const agent = new Agent().addResource(echo).addResource(new Upper())
    expect([...(AgentPlan.fromAgent(agent).resources.get('tool')?.keys() ?? [])]).toEqual(['echo', 'upper'])
    expect(() => agent.addResource(echo)).toThrow(/a resource "echo" of type tool already/)
    expect(() => agent.addResource({ url: 'https://x' } as never)).toThrow(
      'Only a tool is added without a name, got an object. Say it: addResource(name, resource, type).',
    )
  })

  test('of two types may have one name, of one type not', async () => {
    const agent = new Agent().addResource('x', prompt).addResource('x', setup, 'chatModelSetup')
    expect([...agent.resources.keys()]).toEqual(['prompt', 'chatModelSetup'])
    expect(await failureOf(() => agent.addResource('x', Prompt.fromText('Hello.')))).toMatchObject({
      code: 'invalid_plan',
      message: 'There is a resource "x" of type prompt already. Give one of them another name.',
    })
  })

  test.each<[string, () => unknown, RegExp]>([
    ['a text', () => new Agent().addResource('x', 'text' as never), /The resource "x" is none, it is "text"/],
    ['null', () => new Agent().addResource('x', null as never), /it is null/],
    ['a plain object', () => new Agent().addResource('x', {}), /it is an object: add an instance/],
    ['a promise', () => new Agent().addResource('x', Promise.resolve(prompt)), /a promise: await it first/],
    [
      'a class',
      () => new Agent().addResource('x', fixture.Notes),
      /the class Notes: add an instance of it, or new ResourceDescriptor\(Notes, …\)/,
    ],
    [
      'a function without a type',
      () => new Agent().addResource('x', () => prompt),
      /Say it: addResource\(name, function, type\)/,
    ],
    ['a reference without a type', () => new Agent().addResource('x', at('add')), /cannot be seen in a reference/],
    [
      'a type that there is not',
      () => new Agent().addResource('x', prompt, 'model' as never),
      /must be one of .*got "model"/,
    ],
    [
      'another type',
      () => new Agent().addResource('x', prompt, 'tool'),
      /"x" is of type prompt, and was added as tool/,
    ],
    [
      'an object that cannot do it',
      () => new Agent().addResource('x', { add: nothing }, 'vectorStore'),
      /"x" of type vectorStore must be an object with a method `query`/,
    ],
  ])('that are none are a TypeError: %s', async (_what, add, message) => {
    expect(await failureOf(add)).toMatchObject({ name: 'TypeError', message: expect.stringMatching(message) })
  })

  test.each<[string, () => unknown, RegExp]>([
    ['no name', () => new Agent().addResource('', prompt), /The name of a resource must be a text/],
    ['a tool by another name', () => new Agent().addResource('x', echo), /"x" is a tool of the name "echo"/],
    [
      'a server without a place',
      () => new Agent().addResource('x', { args: [] }, 'mcpServer'),
      /The MCP server "x" needs a `command` or a `url`/,
    ],
    [
      'a server that is not JSON',
      () => new Agent().addResource('x', { url: 'https://x', retry: () => 1 }, 'mcpServer'),
      /The options of the MCP server "x" are no JSON object at \/retry/,
    ],
    [
      'arguments that are not JSON',
      () => new ResourceDescriptor(fixture.Notes, { at: new Date() }),
      /The arguments of the resource Notes are no JSON at \/at/,
    ],
    [
      'a class of no resource',
      () => new ResourceDescriptor(fixture.NoResource as never),
      /A resource's class needs `static readonly resourceType`, one of .*; got NoResource/,
    ],
    ['a setup without a connection', () => new ChatModelSetup({} as never), /`connection` must be the name of/],
  ])('that make no sense are refused: %s', async (_what, add, message) => {
    expect(await failureOf(add)).toMatchObject({ code: 'invalid_plan', message: expect.stringMatching(message) })
  })

  test.each<[string, object, RegExp]>([
    ['a field that there is not', { conection: 'x' }, /unknown field `conection`; write `connection`/],
    ['a word of others', { connection: 'x', systemPrompt: 'Hi.' }, /`systemPrompt`; write `prompt`/],
    ['a parameter beside the parameters', { connection: 'x', temperature: 1 }, /write `parameters\.temperature`/],
    ['a limit that there is not', { connection: 'x', limits: { rounds: 1 } }, /`limits\.rounds`; (known are|write)/],
    [
      'no rounds',
      { connection: 'x', limits: { maxRounds: 0 } },
      /`limits\.maxRounds` must be a whole number, 1 or more, got 0/,
    ],
    ['half a call', { connection: 'x', limits: { maxToolCalls: 0.5 } }, /0 or more, got 0\.5/],
    ['endless time', { connection: 'x', limits: { timeoutMs: 2 ** 31 } }, /1 to 2147483647, got 2147483648/],
    ['fewer than no retries', { connection: 'x', retries: -1 }, /`retries` must be a whole number, 0 or more, got -1/],
    ['tools that are no list', { connection: 'x', tools: '*' }, /`tools` must be a list .*, got "\*"/],
    ['an empty model', { connection: 'x', model: '' }, /`model` must be a text, got ""/],
    [
      'parameters that are not JSON',
      { connection: 'x', parameters: { at: new Date() } },
      /`parameters\/at` is no JSON/,
    ],
  ])('a chat model setup refuses %s', async (_what, options, message) => {
    expect(await failureOf(() => new Agent().addResource('x', options, 'chatModelSetup'))).toMatchObject({
      code: 'invalid_plan',
      message: expect.stringMatching(message),
    })
  })

  test('are made when they are asked for, anew for each who asks; what was given stays its own', async () => {
    const given = new fixture.Notes({}, resourceContext())
    const before = fixture.Notes.open
    const { resources } = AgentPlan.fromAgent(
      new Agent()
        .addResource('described', new ResourceDescriptor(fixture.Notes, { prefix: 'a' }))
        .addResource('made', fixture.makeNotes, 'vectorStore')
        .addResource('named', at('makeNotes'), 'vectorStore')
        .addResource('given', given),
    )
    expect(fixture.Notes.open).toBe(before)
    const stores = resources.get('vectorStore')!
    for (const name of ['described', 'made', 'named']) {
      const provider = stores.get(name)!
      const [first, second] = [await provider.provide(resourceContext('/x')), await provider.provide(resourceContext())]
      expect(first).not.toBe(second)
      expect(first).toMatchObject({ baseDir: '/x' })
      expect([provider.owns(first), provider.owns(second)]).toEqual([true, true])
    }
    expect(await stores.get('given')!.provide(resourceContext())).toBe(given)
    expect(stores.get('given')!.owns(given)).toBe(false)
  })

  test.each<[string, object, ResourceType, RegExp]>([
    ['a constructor that throws', new ResourceDescriptor(fixture.Notes, { broken: true }), 'vectorStore', /s3cret/],
    [
      'a function that throws',
      () => {
        throw new Error('s3cret')
      },
      'tool',
      /s3cret/,
    ],
    ['a module that is not there', { module: './s3cret.js', export: 'x' }, 'tool', /no module ".\/s3cret\.js"/],
    ['an export that is none', at('s3cret'), 'tool', /no export `s3cret`/],
    ['a tool by another name', at('add'), 'tool', /"x" is a tool of the name "add"/],
    ['an export that is no tool', at('notTool'), 'tool', /a method `run`/],
    [
      'a class of another type',
      new ResourceDescriptor(at('Notes')),
      'remoteAgent',
      /makes vectorStore, and is to make remoteAgent/,
    ],
    ['a class of no resource', new ResourceDescriptor(at('NoResource')), 'vectorStore', /makes no resources/],
  ])('that cannot be made fail without their reason: %s', async (_what, value, type, cause) => {
    const { resources } = new Agent().addResource('x', value, type)
    const logged: object[] = []
    const context = resourceContext(undefined, (details) => logged.push(details))
    const failure = await failureOf(() => resources.get(type)?.get('x')?.provide(context))
    expect(failure).toMatchObject({
      code: 'resource_failed',
      message: `The resource "x" of type ${type} could not be made. The reason is in the log.`,
    })
    expect(failure.cause?.message).toMatch(cause)
    expect(logged).toEqual([{ error: failure, resource: 'x', type }])
  })
})

describe('a plan', () => {
  test('has the built-in actions behind those of the agent', async () => {
    const heard: string[] = []
    const plan = AgentPlan.fromAgent(
      new Agent()
        .addAction('first', InputEvent, () => void heard.push('first'))
        .addAction('second', [InputEvent, ChatRequestEvent, 'constructor'], () => void heard.push('second')),
    )
    expect([...plan.actions.keys()]).toEqual([
      'first',
      'second',
      'chat_model_action',
      'tool_call_action',
      'context_retrieval_action',
    ])
    expect({ ...plan.actionsByEvent }).toEqual({
      input: ['first', 'second'],
      chat_request: ['second', 'chat_model_action'],
      constructor: ['second'],
      tool_response: ['chat_model_action'],
      tool_request: ['tool_call_action'],
      context_retrieval_request: ['context_retrieval_action'],
    })
    for (const action of plan.actionsFor('input')) {
      const run = await action.load()
      await run(new InputEvent(1), {} as never)
    }
    expect(heard).toEqual(['first', 'second'])
    expect(plan.actionsFor('toString')).toEqual([])
    expect(plan.actionsByEvent['toString']).toBeUndefined()
    for (const action of [...plan.actions.values()].slice(2)) expect(await action.load()).toBeTypeOf('function')
  })

  test('is not changed by what the agent gets later', () => {
    const agent = new Agent().addAction('first', InputEvent, nothing).addResource('echo', echo)
    const plan = AgentPlan.fromAgent(agent)
    agent.addAction('second', InputEvent, nothing).addResource('x', Prompt.fromText('Hi.'))
    expect(plan.actionsByEvent['input']).toEqual(['first'])
    expect([...plan.resources.keys()]).toEqual(['tool'])
  })

  test("has the environment's resources, where the agent has none of the name", async () => {
    const own = Prompt.fromText('own')
    const environment = new Agent()
      .addResource('a', Prompt.fromText('environment'))
      .addResource('b', Prompt.fromText('environment'))
      .addResource('echo', echo)
    const { resources } = AgentPlan.fromAgent(new Agent().addResource('a', own), { resources: environment.resources })
    const prompts = resources.get('prompt')!
    expect([...prompts.keys()]).toEqual(['a', 'b'])
    expect(await prompts.get('a')?.provide(resourceContext())).toBe(own)
    expect([...(resources.get('tool')?.keys() ?? [])]).toEqual(['echo'])
    expect([...environment.resources.get('prompt')!.keys()]).toEqual(['a', 'b'])
  })

  test('is made of an agent that another copy of this package made, too', async () => {
    const folder = await temporaryFolder()
    const root = join(import.meta.dirname, '..')
    await cp(join(root, 'dist'), join(folder, 'dist'), { recursive: true })
    for (const each of ['src', 'node_modules']) await symlink(join(root, each), join(folder, each))
    await writeFile(join(folder, 'package.json'), '{"type":"module"}')
    const other = (await import(pathToFileURL(join(folder, 'dist/index.js')).href)) as typeof convoke
    expect(other.Agent).not.toBe(Agent)
    const agent = new other.Agent()
      .addAction(
        'start',
        other.InputEvent,
        other.exportedFrom(module, 'start', () => {}),
      )
      .addResource('greeting', other.Prompt.fromText('Hi.'))
      .addResource('notes', new other.ResourceDescriptor(fixture.Notes, {}))
    const plan = AgentPlan.fromAgent(agent)
    expect(AgentPlan.fromJSON(plan.toJSON()).toJSON()).toEqual(plan.toJSON())

    // And the other way round: what one copy makes another takes.
    const mixed = new Agent()
      .addAction(
        'start',
        'input',
        other.exportedFrom(module, 'start', () => {}),
      )
      .addResource('greeting', other.Prompt.fromText('Hi.'))
      .addResource('notes', new other.ResourceDescriptor(fixture.Notes, {}))
    expect(AgentPlan.fromAgent(mixed).toJSON()).toEqual(plan.toJSON())
  })

  test('needs an agent', async () => {
    for (const [value, message] of [
      [{}, 'AgentPlan.fromAgent needs an agent, got an object.'],
      [Agent, 'AgentPlan.fromAgent needs an agent, got the class Agent; make an instance of it.'],
    ] as const) {
      const failure = await failureOf(() => AgentPlan.fromAgent(value as never))
      expect(failure.name).toBe('TypeError')
      expect(failure.message).toMatch(message)
    }
  })
})

/** Everything that a plan can carry. */
function portable(): Agent {
  return new Agent()
    .addAction('start', InputEvent, fixture.start)
    .addAction('end', ['started', 'other'], at('end'), { least: 3 })
    .addResource('add', fixture.add)
    .addResource('upper', fixture.upper)
    .addResource('greeting', Prompt.fromMessages([{ role: 'user', content: 'Hi {name}.' }]))
    .addResource('model', new ChatModelSetup({ connection: 'local', limits: { maxRounds: 3 } }))
    .addResource('model2', new ResourceDescriptor(ChatModelSetup, { connection: 'local' }))
    .addResource('files', { command: 'mcp-files' }, 'mcpServer')
    .addResource('notes', new ResourceDescriptor(fixture.Notes, { prefix: 'found ' }))
    .addResource('more', new ResourceDescriptor(at('Notes'), { prefix: 'more ' }), 'vectorStore')
    .addResource('made', fixture.makeNotes, 'vectorStore')
}

describe('a plan as JSON', () => {
  test('says where everything stands', () => {
    expect(JSON.parse(JSON.stringify(AgentPlan.fromAgent(portable())))).toEqual({
      convoke_plan: 1,
      actions: [
        { name: 'start', events: ['input'], config: {}, function: at('start') },
        { name: 'end', events: ['started', 'other'], config: { least: 3 }, function: at('end') },
      ],
      resources: [
        {
          type: 'chatModelSetup',
          name: 'model',
          value: { connection: 'local', limits: { maxRounds: 3 } },
        },
        {
          type: 'chatModelSetup',
          name: 'model2',
          descriptor: { clazz: { module: 'convoke', export: 'ChatModelSetup' }, arguments: { connection: 'local' } },
        },
        { type: 'tool', name: 'add', reference: at('add') },
        { type: 'tool', name: 'upper', reference: at('upper') },
        { type: 'prompt', name: 'greeting', value: { messages: [{ role: 'user', content: 'Hi {name}.' }] } },
        { type: 'mcpServer', name: 'files', value: { command: 'mcp-files' } },
        {
          type: 'vectorStore',
          name: 'notes',
          descriptor: { clazz: at('Notes'), arguments: { prefix: 'found ' } },
        },
        { type: 'vectorStore', name: 'more', descriptor: { clazz: at('Notes'), arguments: { prefix: 'more ' } } },
        { type: 'vectorStore', name: 'made', reference: at('makeNotes') },
      ],
    })
  })

  test('names the classes of this package by its name', async () => {
    const own = Object.entries(convoke).filter(([, value]) => typeof value === 'function' && 'resourceType' in value)
    expect(own.map(([name]) => name)).toEqual(expect.arrayContaining(['ChatModelSetup', 'OpenAiConnection', 'Prompt']))
    for (const [name, clazz] of own) {
      const descriptor = new ResourceDescriptor(clazz as never, {})
      expect(descriptor.toJSON()).toEqual({ clazz: { module: 'convoke', export: name }, arguments: {} })
    }
  })

  test('comes back as the same plan', async () => {
    const text = JSON.stringify(AgentPlan.fromAgent(portable()))
    const plan = AgentPlan.fromJSON(JSON.parse(text))
    expect(JSON.stringify(plan)).toBe(text)
    expect(plan.actionsByEvent).toEqual(AgentPlan.fromAgent(portable()).actionsByEvent)
    const prompt = await plan.resources.get('prompt')?.get('greeting')?.provide(resourceContext())
    expect((prompt as Prompt).formatString({ name: 'Bob' })).toBe('user: Hi Bob.')
    for (const name of ['model', 'model2']) {
      const setup = await plan.resources.get('chatModelSetup')?.get(name)?.provide(resourceContext())
      expect(setup).toMatchObject({ connection: 'local' })
    }
  })

  test('runs in another process, in a runner and in an environment', async () => {
    const plan = AgentPlan.fromAgent(portable())
    const { again, outputs, applied, called, found } = await runElsewhere(plan, 'tea')
    expect(again).toEqual(plan.toJSON())
    expect(outputs).toEqual([{ sum: 4, found: 'found tea', least: 3 }])
    expect(applied).toEqual([{ key: 'key', value: { sum: 4, found: 'found tea', least: 3 } }])
    expect(called).toEqual({ add: 5, upper: 'HI' })
    expect(found).toEqual({ notes: 'found tea', more: 'more tea', made: 'made tea' })
  })

  test('finds relative modules from its base folder, each time until they are there', async () => {
    const folder = await temporaryFolder()
    const json: AgentPlanJson = {
      convoke_plan: 1,
      actions: [{ name: 'a', events: ['input'], config: {}, function: { module: './late.js', export: 'run' } }],
      resources: [],
    }
    const action = AgentPlan.fromJSON(json, { baseDir: folder }).actions.get('a')!
    expect(await failureOf(() => action.load())).toMatchObject({
      code: 'invalid_plan',
      message: `There is no module "./late.js": no file ${join(folder, 'late.js')}.`,
    })
    await writeFile(join(folder, 'package.json'), '{"type":"module"}')
    await writeFile(join(folder, 'late.js'), 'export function run() {}')
    const run = await action.load()
    expect(run.name).toBe('run')
    // Loaded once: no promise to wait for any more.
    expect(action.load()).toBe(run)
  })

  class Local extends fixture.Notes {
    static override resourceType = 'vectorStore' as const
  }
  class Special extends Prompt {}

  test.each<[string, Agent, RegExp]>([
    [
      'an action',
      new Agent().addAction('a', InputEvent, () => {}),
      /the action "a" is a function of this process\. Export it and pass it through exportedFrom\(import\.meta\.url, fn\)/,
    ],
    [
      'a tool',
      new Agent().addResource('echo', echo),
      /the resource "echo" of type tool is an object of this process\. Export it/,
    ],
    [
      'a function',
      new Agent().addResource('x', () => echo, 'tool'),
      /the resource "x" of type tool is made by a function of this process/,
    ],
    [
      'a class',
      new Agent().addResource('x', new ResourceDescriptor(Local as never)),
      /"x" of type vectorStore cannot leave its process: the class Local is known to this process only\. Export it and give it `static readonly module/,
    ],
    [
      'an instance',
      new Agent().addResource('x', new fixture.Notes({}, resourceContext())),
      /"x" of type vectorStore is an object of this process\. .*a ResourceDescriptor in its place/,
    ],
    [
      'a prompt of a class of its own',
      new Agent().addResource('x', new Special({ text: 'Hi.' })),
      /"x" of type prompt is an object of this process/,
    ],
  ])('is refused for a closure: %s', async (_what, agent, message) => {
    expect(await failureOf(() => JSON.stringify(AgentPlan.fromAgent(agent)))).toMatchObject({
      code: 'invalid_plan',
      message: expect.stringMatching(message),
    })
  })

  const fine = { name: 'a', events: ['input'], config: {}, function: at('start') }
  const tool = { type: 'tool', name: 'add', reference: at('add') }
  test.each<[string, unknown, RegExp]>([
    ['text', '{}', /at its top: must be an object, got "{}"; parse the text first\./],
    ['no plan', {}, /at its top: has no `convoke_plan`/],
    ['another version', { convoke_plan: 2 }, /at \/convoke_plan: is version 2, and this program reads version 1/],
    ['no actions', { convoke_plan: 1, resources: [] }, /at \/actions: must be a list, got undefined/],
    ['no resources', { convoke_plan: 1, actions: [], resources: {} }, /at \/resources: must be a list, got an object/],
    [
      'an unknown member',
      { convoke_plan: 1, actions: [], resources: [], x: 1 },
      /at its top: has an unknown member "x"/,
    ],
    ['an action that is none', withActions(null), /at \/actions\/0: must be an object, got null/],
    ['an action with more', withActions({ ...fine, code: '1' }), /at \/actions\/0: has an unknown member "code"/],
    ['no name', withActions({ ...fine, name: undefined }), /at \/actions\/0: is wrong\. The name of an action must be/],
    ['no events', withActions({ ...fine, events: [] }), /at \/actions\/0: is wrong\. The action "a" hears no events/],
    ['wrong events', withActions(fine, { ...fine, name: 'b', events: [5] }), /at \/actions\/1\/events: must be a list/],
    ['a wrong config', withActions({ ...fine, config: 5 }), /at \/actions\/0: is wrong\. The config of the action/],
    [
      'a function as text',
      withActions({ ...fine, function: '() => 1' }),
      /at \/actions\/0\/function: must be { module, export }/,
    ],
    [
      'text to evaluate',
      withActions({ ...fine, function: { module: 'data:text/javascript,', export: 'x' } }),
      /at \/actions\/0\/function: `module` must be/,
    ],
    ['an action twice', withActions(fine, fine), /at \/actions\/1: is wrong\. There is an action "a" already/],
    [
      'a built-in action',
      withActions({ ...fine, name: 'chat_model_action' }),
      /at \/actions\/0: .*comes with every agent/,
    ],
    [
      'an unknown type',
      withResources({ ...tool, type: 'model' }),
      /at \/resources\/0\/type: must be a type of resources, got "model"/,
    ],
    ['a resource twice', withResources(tool, tool), /at \/resources\/1: is wrong\. There is a resource "add"/],
    [
      'nothing of a resource',
      withResources({ type: 'tool', name: 'x' }),
      /at \/resources\/0: must have one of .*, and has none/,
    ],
    ['two of a resource', withResources({ ...tool, value: {} }), /at \/resources\/0: must have one of .*, and has 2/],
    [
      'a tool as JSON',
      withResources({ type: 'tool', name: 'x', value: {} }),
      /at \/resources\/0\/value: a resource of type tool has no JSON/,
    ],
    [
      'a wrong prompt',
      withResources({ type: 'prompt', name: 'x', value: { text: 5 } }),
      /at \/resources\/0: is wrong\. A prompt is/,
    ],
    [
      'a wrong setup',
      withResources({ type: 'chatModelSetup', name: 'x', value: {} }),
      /at \/resources\/0: is wrong\. A chat model setup/,
    ],
    [
      'a wrong class',
      withResources({ type: 'vectorStore', name: 'x', descriptor: { clazz: 'Notes', arguments: {} } }),
      /at \/resources\/0\/descriptor\/clazz: must be/,
    ],
  ])('is refused with the place of what is wrong: %s', async (_what, json, message) => {
    expect(await failureOf(() => AgentPlan.fromJSON(json))).toMatchObject({
      code: 'invalid_plan',
      message: expect.stringMatching(message),
    })
  })
})

function withActions(...actions: unknown[]): unknown {
  return { convoke_plan: 1, actions, resources: [] }
}

function withResources(...resources: unknown[]): unknown {
  return { convoke_plan: 1, actions: [], resources }
}

describe('references', () => {
  test('are remembered with the value', () => {
    expect(exportedFrom(module, 'Reviews.start', nothing)).toBe(nothing)
    const named = exportedFrom(module, function hear() {})
    const { actions } = AgentPlan.fromAgent(
      new Agent().addAction('a', InputEvent, nothing).addAction('b', InputEvent, named),
    ).toJSON()
    expect(actions.map((each) => each.function)).toEqual([at('Reviews.start'), at('hear')])
  })

  test('of values without a name or place are refused', async () => {
    expect(await failureOf(() => exportedFrom(module, () => {}))).toMatchObject({
      code: 'invalid_plan',
      message: expect.stringContaining("Say what it is exported as: exportedFrom(import.meta.url, 'name', fn)."),
    })
    expect(await failureOf(() => exportedFrom('data:text/javascript,1', 'x', nothing))).toMatchObject({
      code: 'invalid_plan',
      message: expect.stringContaining('`module` must be a path'),
    })
    expect(await failureOf(() => exportedFrom(module, 'x', 5 as never))).toMatchObject({ name: 'TypeError' })
  })

  test('lead to exports and their members', async () => {
    expect((await loadFunction(at('start'))).name).toBe('start')
    expect(await loadReference(at('Notes'))).toHaveProperty('resourceType', 'vectorStore')
    const deep = await loadFunction(at('nested.inner.deep'))
    expect(deep()).toBe('deep')
  })

  test.each<[string, ModuleReference, RegExp]>([
    [
      'a module that is not there',
      { module: 'file:///nowhere/x.js', export: 'x' },
      /no module "file:\/\/\/nowhere\/x\.js": no file \/nowhere\/x\.js/,
    ],
    [
      'a package that is not installed',
      { module: 'no-such-package', export: 'x' },
      /neither a file in .* nor an installed package/,
    ],
    [
      'a module of Node',
      { module: 'node:child_process', export: 'execSync' },
      /must be a path, a `file:` URL or an installed package/,
    ],
    ['an export that is not there', at('starts'), /has no export `starts`\. Did you mean `start`\?/],
    [
      'a member that is not there',
      at('Notes.opens'),
      /`Notes` of the module .* has no static member `opens`\. Did you mean `open`\?/,
    ],
    ['a member of null', at('nothing.x'), /`nothing` of the module .* is null and has no members/],
    ['what every function has', at('start.call'), /`start` of the module .* has no static member `call`/],
    ['no function', at('notTool'), /`notTool` of .* must be a function, and is an object/],
    ['a class', at('Notes'), /`Notes` of .* must be a function, and is a class/],
  ])('that lead nowhere say so: %s', async (_what, reference, message) => {
    const failure = await failureOf(() => loadFunction(reference, { baseDir: join(import.meta.dirname, '..') }))
    expect(failure).toMatchObject({ code: 'invalid_plan', message: expect.stringMatching(message) })
  })

  test('to modules that cannot be loaded say why, and what to do', async () => {
    // In a process of its own: that of the tests loads more than Node does.
    const program = `import { loadFunction } from ${JSON.stringify(new URL('../dist/agent/function-reference.js', import.meta.url).href)}
      for (const module of ['./bad.js', './agent.ts'])
        await loadFunction({ module, export: 'x' }).catch(({ code, message }) => console.log(code, message))`
    const folder = await temporaryFolder()
    await writeFile(join(folder, 'package.json'), '{"type":"module"}')
    await writeFile(join(folder, 'bad.js'), "throw new RangeError('No licence')")
    await writeFile(join(folder, 'agent.ts'), 'export enum x { a }')
    const { stdout } = await promisify(execFile)(process.execPath, ['--input-type=module', '-e', program], {
      cwd: folder,
    })
    const [bad, ts] = stdout.trim().split('\n')
    expect(bad).toBe('invalid_plan The module "./bad.js" cannot be loaded: RangeError: No licence.')
    expect(ts).toMatch(/^invalid_plan .* Compile it to JavaScript first, and name the \.js file\.$/)
  })
})
