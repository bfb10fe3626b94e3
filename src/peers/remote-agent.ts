/**
 * Another node's agent, asked in words. The ids of its messages follow from what asks, so a step that is repeated after a crash
 * finds the answer that it had, at peers that take a message once; the conversation at the peer goes on with each message.
 */
import { randomUUID } from 'node:crypto'
import { ConvokeError } from '../base/errors.ts'
import type { Json } from '../base/json.ts'
import { silentLog, type Logger } from '../base/logger.ts'
import { stableUuid } from '../base/stable-id.ts'
import type { Artifact, Message, Part } from '../protocol/a2a.ts'
import { isContent } from '../protocol/content.ts'
import { extendDelegation, type Delegation } from '../protocol/delegation.ts'
import { keys } from '../protocol/extension.ts'
import type { Question, Tool, ToolContext, ToolValue } from '../tools/tool.ts'
import type { PeerClient } from './client.ts'
import { PeerError, toPeerError } from './errors.ts'
import { RemoteCall, type CallSurroundings } from './remote-call.ts'
import { textOf, textsOf } from './remote-output.ts'

export interface RemoteAgentOptions {
  /** Throws where there is no such peer any more. */
  readonly client: () => PeerClient
  /** The id of this node in the chains of its messages; a program that is no node has none. */
  readonly self?: string
  readonly log?: Logger
}

export interface AskOptions {
  /** The same one again gets the same answer without asking twice, at peers that take a message once. Default: a UUID. */
  readonly messageId?: string
  /** The conversation that the message goes on with. Default: a new one. */
  readonly contextId?: string
  /** Stops the task at the peer. */
  readonly signal?: AbortSignal
  /** Answers what the agent asks meanwhile. Default: then it fails with `unsupported_operation`. */
  readonly ask?: (question: Question) => Promise<Json>
  /** The way that the work came which this is part of. Default: it begins here. */
  readonly chain?: Delegation | undefined
}

export interface AgentAnswer {
  readonly answer: Json
  readonly contextId?: string
  readonly taskId?: string
}

/**
 * The agent of a peer. `ask` sends a message and resolves with the answer: data where it has some (a list where there are
 * several), else its text, else its closing words, else null; a file is its URL, or base64. Rejects with PeerError, whose
 * code is the one that the agent told.
 */
export function createRemoteAgent({ client, self, log = silentLog }: RemoteAgentOptions): {
  ask(message: string, options?: AskOptions): Promise<AgentAnswer>
} {
  return {
    async ask(text, { messageId = randomUUID(), contextId, signal = new AbortController().signal, ask, chain } = {}) {
      const message = toMessage(text, { messageId, contextId, self, chain })
      const around: CallSurroundings = {
        signal,
        progress: ignore,
        notice: ignore,
        ask: ask ?? refuse,
        hop: { ...plainHop, chain },
      }
      const call = new RemoteCall({ client: client(), message, repeatable: false, convert: toAnswer, log }, around)
      const steps = call.run()
      for (;;) {
        const step = await steps.next()
        if (step.done !== true) continue
        const ids = {
          ...(call.contextId === undefined ? {} : { contextId: call.contextId }),
          ...(call.taskId === undefined ? {} : { taskId: call.taskId }),
        }
        return { answer: toJson(step.value), ...ids }
      }
    },
  }
}

export interface AskToolOptions extends RemoteAgentOptions {
  /** What the peer is called here. */
  readonly peer: string
  /** {@link askToolName} of the peer. */
  readonly name: string
}

/** Conversations at peers that choose their ids themselves are remembered for so many conversations of this side. */
const maxConversations = 10_000

/**
 * An agent as a tool for models, `{message}`; not published. What belongs to one conversation here is one conversation there.
 * It counts as idempotent: the id of its message follows from the call.
 */
export function createAskTool({ peer, name, client, self, log = silentLog }: AskToolOptions): Tool {
  /** The ids that the peer gave, where it did not take ours; the newest last. */
  const conversations = new Map<string, string>()
  return {
    name,
    description: `Asks the agent "${peer}", another agent, and waits for its answer. It knows what you have told it before in this conversation, and nothing else of it.`,
    input: {
      type: 'object',
      properties: { message: { type: 'string', minLength: 1, description: 'What you ask or tell the agent.' } },
      required: ['message'],
      additionalProperties: false,
    },
    traits: { published: false, idempotent: true, category: 'agent' },
    kind: 'a2a',
    elsewhere: {
      failure: (error, task) =>
        // Params that are wrong were never sent: the peer has refused nothing.
        task === undefined && !(error instanceof PeerError) && error.code === 'invalid_params'
          ? error
          : toPeerError(error, peer, { ...(task === undefined ? {} : { taskId: task.taskId }), attempt: 1 }),
    },
    async *run(params, context) {
      const { id, taskId = '', conversation } = context.call
      const { message: text } = params as { message: string }
      const contextId =
        conversation === undefined
          ? undefined
          : (conversations.get(conversation) ?? stableUuid('conversation', self ?? '', peer, conversation))
      const messageId = stableUuid('ask', self ?? '', peer, conversation ?? '', taskId, id, text)
      const { deadline, hop } = context
      const message = toMessage(text, { messageId, contextId, self, chain: hop?.chain, deadline })
      const call = new RemoteCall({ client: client(), message, repeatable: false, convert: toAnswer, log }, context)
      const answer = toJson(yield* call.run())
      if (conversation !== undefined && call.contextId !== undefined && call.contextId !== contextId) {
        conversations.delete(conversation)
        conversations.set(conversation, call.contextId)
        const [oldest] = conversations.keys()
        if (conversations.size > maxConversations && oldest !== undefined) conversations.delete(oldest)
      }
      return answer
    },
  }
}

/** `ask_PEER`; of a very long id its beginning and a hash. */
export function askToolName(peer: string): string {
  const name = `ask_${peer}`
  return name.length <= 64 ? name : `${name.slice(0, 55)}_${stableUuid(peer).slice(0, 8)}`
}

interface MessageParts {
  readonly messageId: string
  readonly contextId: string | undefined
  readonly self: string | undefined
  readonly chain: Delegation | undefined
  readonly deadline?: number | undefined
}

function toMessage(text: string, { messageId, contextId, self, chain, deadline }: MessageParts): Message {
  return {
    messageId,
    role: 'ROLE_USER',
    parts: [{ text }],
    ...(contextId === undefined ? {} : { contextId }),
    ...(self === undefined ? {} : { metadata: { [keys.delegation]: extendDelegation(chain, self, deadline) } }),
  }
}

function toAnswer(artifacts: readonly Artifact[], closing: Message | undefined): Json {
  const parts = artifacts.flatMap((artifact) => artifact.parts)
  const data = dataOf(parts)
  if (data !== undefined) return data
  if (parts.some(({ text }) => text !== undefined))
    return textsOf(artifacts)
      .filter((text) => text !== '')
      .join('\n\n')
  const file = parts.find(({ url, raw }) => url !== undefined || raw !== undefined)
  if (file !== undefined) return file.url ?? file.raw ?? ''
  if (closing === undefined) return null
  return dataOf(closing.parts) ?? textOf(closing)
}

/** The answer of an agent that says it in the form of a tool's result, too. */
function toJson(value: ToolValue): Json {
  if (value instanceof Uint8Array) return Buffer.from(value).toString('base64')
  return isContent(value) ? toAnswer([{ artifactId: '', parts: [...value.parts] }], undefined) : value
}

function dataOf(parts: readonly Part[]): Json | undefined {
  const data = parts.flatMap((part) => (part.data === undefined ? [] : [part.data]))
  return data.length > 1 ? data : data[0]
}

const ignore = (): void => {}

const refuse = (question: Question): Promise<never> =>
  Promise.reject(new ConvokeError('unsupported_operation', `Nobody can be asked in this call: ${question.message}`))

/** Of a message that no tool's call sends. */
const plainHop: Omit<NonNullable<ToolContext['hop']>, 'chain'> = {
  streaming: false,
  stoppable: true,
  detach: false,
  reentrant: false,
  inner: true,
  path: [],
  restart: ignore,
}
