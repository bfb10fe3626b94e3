/** Agents around a scripted model, run by a runner that ends with the test. */
import {
  Agent,
  AgentPlan,
  AgentRunner,
  ChatRequestEvent,
  ChatResponseEvent,
  type ConvokeError,
  createMemoryAgentStore,
  defineTool,
  InputEvent,
  OpenAiConnection,
  OutputEvent,
  ResourceDescriptor,
  type AgentRunnerOptions,
  type Json,
  type JsonObject,
  type RunEvent,
  type RunOptions,
  type Tool,
} from 'convoke'
import { expect } from 'vitest'
import { cleanup } from './lifetime.ts'
import { startModelServer, type ModelScript, type ModelServer } from './model-server.ts'
import { failureOf } from './failure.ts'

export interface ChatTestOptions {
  readonly tools?: readonly Tool[]
  /** Of the chat model setup `chat`. Default: all tools, and no retries. */
  readonly setup?: JsonObject
  /** Of each chat request. */
  readonly request?: JsonObject
  /** Of the connection `local`. */
  readonly connection?: JsonObject
  readonly runner?: Partial<AgentRunnerOptions>
  /** Adds to the agent. */
  readonly more?: (agent: Agent) => void
}

/** The resources of an agent that asks a scripted model. */
export function addModel(
  agent: Agent,
  model: ModelServer,
  { tools = [], connection = {} }: ChatTestOptions = {},
): void {
  agent.addResource(
    'local',
    new ResourceDescriptor(OpenAiConnection, { baseUrl: model.url, model: 'tiny', ...connection }),
  )
  for (const tool of tools) agent.addResource(tool.name, tool)
}

export function startRunner(agent: Agent, options: Partial<AgentRunnerOptions> = {}): AgentRunner {
  const runner = new AgentRunner({ plan: AgentPlan.fromAgent(agent), store: createMemoryAgentStore(), ...options })
  cleanup(() => runner.close())
  return runner
}

/** Asks the model what each input says, and puts out the payload of the response. */
export function chatAgent(model: ModelServer, options: ChatTestOptions = {}): Agent {
  const { setup = {}, request = {}, more } = options
  const agent = new Agent()
    .addAction('ask', [InputEvent], (event, context) => {
      const messages = [{ role: 'user' as const, content: event.value as string }]
      context.sendEvent(new ChatRequestEvent({ model: 'chat', messages, ...request }))
    })
    .addAction('answer', [ChatResponseEvent], (event, context) =>
      context.sendEvent(new OutputEvent(event.payload as unknown as Json)),
    )
    .addResource('chat', { connection: 'local', tools: ['*'], retries: 0, ...setup }, 'chatModelSetup')
  addModel(agent, model, options)
  more?.(agent)
  return agent
}

export interface Chat {
  readonly model: ModelServer
  readonly runner: AgentRunner
  /** What the runs told, oldest first. */
  readonly told: RunEvent[]
  /** The payload of the response to `text`. */
  readonly ask: (text?: string, options?: RunOptions) => Promise<Response>
  /** Why a run failed. */
  readonly failure: (text?: string, options?: RunOptions) => Promise<ConvokeError>
}

export interface Response {
  readonly requestId: string
  readonly response: { readonly role: string; readonly content: string }
  readonly messages: readonly { readonly role: string; readonly content: string; readonly toolCallId?: string }[]
  readonly output?: Json
  readonly usage?: { readonly inputTokens: number; readonly outputTokens: number }
  readonly rounds: number
}

export async function startChat(script: ModelScript, options: ChatTestOptions = {}): Promise<Chat> {
  const model = await startModelServer(script)
  const runner = startRunner(chatAgent(model, options), options.runner)
  const told: RunEvent[] = []
  const run = async (text = 'hello', more: RunOptions = {}): Promise<Response> => {
    const onEvent = (event: RunEvent): undefined => void told.push(event)
    const { outputs } = await runner.run('key', text, { onEvent, ...more })
    expect(outputs).toHaveLength(1)
    return outputs[0] as unknown as Response
  }
  return { model, runner, told, ask: run, failure: (text, more) => failureOf(run(text, more)) }
}

/** Adds numbers; reads only. */
export const add = defineTool({
  name: 'add',
  description: 'Adds two numbers.',
  input: {
    type: 'object',
    properties: { a: { type: 'number' }, b: { type: 'number' } },
    required: ['a', 'b'],
    additionalProperties: false,
  },
  traits: { readOnly: true },
  run: ({ a, b }) => Number(a) + Number(b),
})

/** The roles and contents of a request's messages. */
export function said(request: { readonly body: { readonly messages: readonly object[] } } | undefined): string[] {
  const messages = (request?.body.messages ?? []) as { role: string; content: string | null }[]
  return messages.map(({ role, content }) => `${role}: ${content ?? ''}`)
}

/** A log whose lines a test can read. */
export function readableLog(): NonNullable<AgentRunnerOptions['log']> & {
  readonly lines: string[]
  readonly details: object[]
} {
  const lines: string[] = []
  const details: object[] = []
  const write = (given: object | string, message?: string): void => {
    if (typeof given === 'object') details.push(given)
    lines.push(message ?? JSON.stringify(given))
  }
  return { lines, details, debug: write, info: write, warn: write, error: write }
}
