/** An agent by decorators is the same as one by calls. */
import { AgentPlan, type Agent } from 'convoke'
import { join } from 'node:path'
import { pathToFileURL } from 'node:url'
import { afterAll, beforeAll, expect, test } from 'vitest'
import type * as Agents from './decorated/agents.ts'
import { compiled } from './support/compiled.ts'
import './support/lifetime.ts'
import { resourceContext, runElsewhere } from './support/plans.ts'

let agents: typeof Agents
let remove: () => Promise<void>
beforeAll(async () => {
  const made = await compiled('decorated')
  remove = made.remove
  agents = (await import(pathToFileURL(join(made.folder, 'agents.js')).href)) as typeof Agents
})
afterAll(() => remove())

const jsonOf = (agent: Agent): ReturnType<AgentPlan['toJSON']> => AgentPlan.fromAgent(agent).toJSON()

test('decorators and calls give the same plan', () => {
  const decorated = jsonOf(new agents.Reviews())
  // The text, so that the order counts, too.
  expect(JSON.stringify(decorated)).toBe(JSON.stringify(jsonOf(agents.reviewsByCalls())))
  expect(decorated.actions).toEqual([
    { name: 'start', events: ['input'], config: {}, function: at('Reviews.start') },
    { name: 'judge', events: ['scored', 'scored_by_hand'], config: { least: 3 }, function: at('Reviews.decide') },
  ])
  expect(new Set(decorated.resources.map(({ type }) => type))).toEqual(
    new Set([
      'tool',
      'prompt',
      'chatModelConnection',
      'chatModelSetup',
      'mcpServer',
      'embeddingModel',
      'vectorStore',
      'remoteAgent',
    ]),
  )
  expect(decorated.resources).toContainEqual({
    type: 'vectorStore',
    name: 'docs',
    descriptor: { clazz: at('Documents'), arguments: { prefix: 'found' } },
  })
  expect(AgentPlan.fromJSON(structuredClone(decorated)).toJSON()).toEqual(decorated)
})

function at(path: string): { module: string; export: string } {
  return { module: agents.Documents.module, export: path }
}

test('what decorators say runs in another process', async () => {
  const plan = AgentPlan.fromAgent(new agents.Reviews())
  const { again, outputs, called, found } = await runElsewhere(plan, 4)
  expect(again).toEqual(plan.toJSON())
  expect(outputs).toEqual([{ score: 4, least: 3 }])
  expect(called).toEqual({ notify: { told: 'tea', by: 'DHL' }, look_up: { product: 'tea', price: 5 } })
  expect(found).toEqual({ docs: '"found" tea', drafts: '"draft" tea' })
})

test('a subclass inherits, and replaces by the same name', async () => {
  const { resources, actions } = AgentPlan.fromAgent(new agents.ShopReviews())
  expect([...actions.keys()].slice(0, 3)).toEqual(['start', 'judge', 'alsoScored'])
  expect([...(resources.get('tool')?.keys() ?? [])]).toEqual(['notify', 'look_up'])
  const tool = await resources.get('tool')?.get('notify')?.provide(resourceContext())
  expect(tool).toMatchObject({ name: 'notify', description: 'Tells the shop.' })

  const { outputs, called } = await runElsewhere(AgentPlan.fromAgent(new agents.ShopReviews()), 4)
  expect(outputs).toEqual([{ score: 8, least: 3 }])
  expect(called).toEqual({ notify: { told: 'shop tea', by: 'UPS' }, look_up: { product: 'tea', price: 5 } })
  // The base class is as it was.
  expect([...AgentPlan.fromAgent(new agents.Reviews()).actions.keys()].slice(0, 2)).toEqual(['start', 'judge'])
})

test('what a static method makes is made anew for each runner, and is its to close', async () => {
  const provider = AgentPlan.fromAgent(new agents.Reviews()).resources.get('vectorStore')?.get('drafts')
  const first = (await provider!.provide(resourceContext())) as Agents.Documents
  const second = (await provider!.provide(resourceContext())) as Agents.Documents
  expect(first).toBeInstanceOf(agents.Documents)
  expect(second).not.toBe(first)
  expect([provider!.owns(first), provider!.owns(second)]).toEqual([true, true])
})

test('members of a class that does not say its module run, and cannot leave the process', () => {
  const plan = AgentPlan.fromAgent(new agents.Homeless())
  expect(plan.actionsByEvent['input']).toEqual(['start', 'extra'])
  expect(() => plan.toJSON()).toThrow(
    expect.objectContaining({
      code: 'invalid_plan',
      message: expect.stringMatching(/the action "extra" .*static readonly module = import\.meta\.url/),
    }),
  )
})

test.each([
  ['onInstance', /@action stands before the instance member `start`\. Make it `static`/],
  ['onInstancePrompt', /@prompt stands before the instance member `greeting`\. Make it `static`/],
  ['twice', /@action is the second decorator before `Wrong\.start`/],
  ['onNoAgent', /`Plain\.start`, and Plain is no agent\. Let the class extend Agent\./],
  ['onPrivate', /@action stands before `#start`, which nobody can name/],
  ['withoutEvents', /The action "start" hears no events\./],
  ['sameNameTwice', /There is an action "one" already/],
] as const)('%s is refused with what to do', (name, message) => {
  expect(() => agents[name]()).toThrow(
    expect.objectContaining({ code: 'invalid_plan', message: expect.stringMatching(message) }),
  )
})

test('the decorators of `experimentalDecorators` are refused with what to do', async () => {
  const made = await compiled('decorated', { experimentalDecorators: true })
  try {
    await expect(import(pathToFileURL(join(made.folder, 'agents.js')).href)).rejects.toMatchObject({
      code: 'invalid_plan',
      message:
        '@action before `start` was compiled with `experimentalDecorators`, and is a standard decorator. Compile without that option.',
    })
  } finally {
    await made.remove()
  }
})

test('a member that returns no resource is a TypeError', () => {
  expect(() => agents.noPrompt()).toThrow(
    expect.objectContaining({ name: 'TypeError', message: 'The resource "greeting" of type prompt cannot be "Hi.".' }),
  )
})
