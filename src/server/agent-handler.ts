/**
 * An agent as what answers messages. Each message is an input of the conversation that it belongs to, one for each caller and
 * context; what the run says becomes the events of the message's task.
 */
import { randomUUID } from 'node:crypto'
import type { AgentToolSpace, RunEvent, RunOptions } from '../agent/context.ts'
import { Channel } from '../base/channel.ts'
import type { Json, JsonObject } from '../base/json.ts'
import type { Artifact, Message, Part } from '../protocol/a2a.ts'
import type { Delegation } from '../protocol/delegation.ts'
import { ignoredWords, keys } from '../protocol/extension.ts'
import { toProgressMetadata } from '../protocol/tool-call.ts'
import type { Outcome, Start, Work, WorkContext, WorkEvent } from '../tasks/work.ts'
import { TaskChain } from '../tools/delegation.ts'
import { createSpace, type Surroundings } from '../tools/invoke.ts'
import { tried, type ToolCallOptions, type ToolManager } from '../tools/manager.ts'
import type { Caller, Question } from '../tools/tool.ts'
import { ask } from './ask.ts'
import { failMessage } from './message-handler.ts'
import { surroundingsOf, timeoutOf, type TaskServices } from './task-services.ts'

/** What runs the agent; an AgentRunner does. */
export interface AgentRuns {
  run(key: string, value: Json, options: RunOptions): Promise<{ readonly outputs: readonly Json[] }>
}

export interface ConversationAgent {
  readonly runs: AgentRuns
  /** Resolves once the tasks of the process before were taken over: their inputs come before those of new messages. */
  readonly recovered: () => Promise<unknown>
  /** Resolves when the tools that the agent may call are known, or soon enough in any case. */
  readonly ready: () => Promise<void>
}

export interface AgentServices extends TaskServices {
  /** The tools that there are. */
  readonly tools: Pick<ToolManager, 'list' | 'get'>
}

/** Events of a run that a slow task lets pile up before the run waits. */
const eventCapacity = 64

/** A message as an input of the agent. `incoming` is the way that it came, if it was passed on. */
export function toAgentWork(
  agent: ConversationAgent,
  start: Start<{ caller: Caller }>,
  services: AgentServices,
  incoming: Delegation | undefined,
): Work {
  return {
    repeatable: false,
    resumable: true,
    timeoutMs: timeoutOf(incoming),
    fail: failMessage,
    run: (work) => converse(agent, start, services, incoming, work),
  }
}

async function* converse(
  agent: ConversationAgent,
  start: Start<{ caller: Caller }>,
  services: AgentServices,
  incoming: Delegation | undefined,
  work: WorkContext,
): AsyncGenerator<WorkEvent, Outcome, void> {
  const { caller } = start.request.context
  const key = conversationOf(start)
  const chain = new TaskChain(services.guard, incoming)
  const events = new Channel<RunEvent>(eventCapacity)
  const askCaller = (question: Question): Promise<Json> => ask(question, '', work)
  const around = surroundingsOf(work, { caller, chain, path: incoming?.path, ask: askCaller }, services)
  const run = async (): Promise<readonly Json[]> => {
    try {
      await agent.recovered()
      const { outputs } = await agent.runs.run(key, toInput(start.message), {
        id: `${start.taskId} ${start.message.messageId}`,
        signal: work.signal,
        before: agent.ready,
        ask: askCaller,
        tools: toToolSpace(around, services, { taskId: work.taskId, contextId: work.contextId, conversation: key }),
        onEvent: (event) => events.push(event),
        // What is committed belongs to the conversation, and a task that was cancelled must not.
        onCommit: () => work.conclude(),
      })
      events.end()
      return outputs
    } catch (error) {
      events.fail(error)
      throw error
    }
  }
  const running = run()
  // It is awaited below, and must not count as unhandled until then.
  running.catch(() => {})
  const answer = new Answer(work.attempt)
  try {
    for await (const event of events) yield* answer.take(event)
    yield* answer.settle(await running)
    return answer.outcome(work)
  } finally {
    events.return().catch(() => {})
    // The task ends when the model and the tools have stopped.
    await running.catch(() => {})
    chain.close()
  }
}

/** Whose memory it is: callers choose the ids of their contexts themselves, and none sees another's. */
function conversationOf({ request, contextId }: Start): string {
  return JSON.stringify([request.owner, contextId])
}

/** A text as it is, one data part alone as its value, anything else as `{text, data, files}`. */
function toInput({ parts }: Message): Json {
  const text = parts.flatMap((part) => (part.text === undefined ? [] : [part.text])).join('\n')
  const data = parts.flatMap((part) => (part.data === undefined ? [] : [part.data]))
  const files = parts.flatMap((part) => (part.url === undefined && part.raw === undefined ? [] : [toFile(part)]))
  if (data.length === 0 && files.length === 0) return text
  const [only] = data
  return parts.length === 1 && only !== undefined ? only : { text, data, files }
}

/** `{filename?, mediaType?, url | bytes}`; bytes are base64. */
function toFile({ url, raw, filename, mediaType }: Part): JsonObject {
  return {
    ...(filename === undefined ? {} : { filename }),
    ...(mediaType === undefined ? {} : { mediaType }),
    ...(url === undefined ? { bytes: raw ?? '' } : { url }),
  }
}

/** The node's tools, as this run may call them. */
function toToolSpace(
  around: Surroundings,
  { tools, pipeline }: AgentServices,
  ids: Omit<NonNullable<Surroundings['call']>, 'id'>,
): AgentToolSpace {
  const call: AgentToolSpace['call'] = (name, params, options = {}) =>
    createSpace(within(around, options, ids)).call(name, params, options)
  return {
    // What rules keep from this caller would only be refused.
    list: () => tools.list().filter((tool) => pipeline.policy?.visible(around.caller, tool) ?? true),
    get: (name) => tools.get(name),
    chain: () => around.chain?.(),
    call,
    tryCall: (name, params, options = {}) => tried(name, options, (tracked) => call(name, params, tracked)),
  }
}

function within(
  around: Surroundings,
  { caller, ask: own, call }: ToolCallOptions,
  ids: Omit<NonNullable<Surroundings['call']>, 'id'>,
): Surroundings {
  return {
    ...around,
    ...(caller === undefined ? {} : { caller }),
    ...(own === undefined ? {} : { ask: own, isAskChecked: false }),
    call: { ...ids, id: randomUUID(), ...call },
  }
}

/** The answer as it comes: what the run says, in the words of tasks. */
class Answer {
  readonly #attempt: number
  /** The request whose text comes now, its text so far, and that of those before. */
  #requestId: string | undefined
  #text = ''
  #before = ''
  /** What was sent is what there is: the next piece goes on with it. */
  #goesOn = false
  #hasBegun = false
  #calls = 0
  #answered = 0
  #ignored: string | undefined

  constructor(attempt: number) {
    this.#attempt = attempt
  }

  *take(event: RunEvent): Generator<WorkEvent, void, void> {
    switch (event.type) {
      case 'text':
        if (event.text !== '') yield this.#add(event.requestId, event.text)
        return
      case 'restart':
        if (event.requestId !== this.#requestId || this.#text === '') return
        this.#text = ''
        this.#goesOn = false
        return
      case 'tool-call':
        this.#calls++
        // Each name is to be seen, so none is replaced by the next.
        yield { type: 'status', metadata: this.#progress(event.tool), isKept: true }
        return
      case 'tool-result':
        this.#answered++
        yield { type: 'status', metadata: this.#progress(event.answer.tool) }
        return
      case 'ignored':
        this.#ignored = event.reason
        return
      // What a model thinks is no part of the answer, and outputs count when they are committed.
      case 'reasoning':
      case 'output':
    }
  }

  /** What the outputs come to beside what was sent already. */
  *settle(outputs: readonly Json[]): Generator<WorkEvent, void, void> {
    for (const [index, value] of outputs.entries()) {
      const artifactId = index === 0 ? 'answer' : `answer-${index + 1}`
      const isThere = index === 0 && this.#goesOn && value === this.#before + this.#text
      if (isThere) yield { type: 'end', artifactId }
      else {
        const part: Part = typeof value === 'string' ? { text: value } : { data: value }
        yield { type: 'artifact', artifact: this.#artifact(artifactId, part), append: false, lastChunk: true }
      }
    }
    // An output that is ignored takes back what was seen of it.
    if (outputs.length === 0 && this.#ignored !== undefined && this.#hasBegun) {
      yield { type: 'status', metadata: { [keys.attempt]: this.#attempt + 1 }, isKept: true }
    }
  }

  outcome({ taskId, contextId }: WorkContext): Outcome {
    if (this.#ignored === undefined) return { state: 'TASK_STATE_COMPLETED' }
    const parts = [{ text: `${ignoredWords}${this.#ignored}` }]
    return {
      state: 'TASK_STATE_COMPLETED',
      message: { messageId: randomUUID(), contextId, taskId, role: 'ROLE_AGENT', parts },
    }
  }

  #add(requestId: string, text: string): WorkEvent {
    if (requestId !== this.#requestId) {
      this.#before += this.#text
      this.#text = ''
      this.#requestId = requestId
    }
    this.#text += text
    const append = this.#goesOn
    const artifact = this.#artifact('answer', { text: append ? text : this.#before + this.#text })
    if (!append) artifact.metadata = { ...artifact.metadata, [keys.joined]: true }
    this.#goesOn = true
    this.#hasBegun = true
    return { type: 'artifact', artifact, append, lastChunk: false }
  }

  #artifact(artifactId: string, part: Part): Artifact {
    const artifact: Artifact = { artifactId, parts: [part] }
    if (this.#attempt > 1) artifact.metadata = { [keys.attempt]: this.#attempt }
    return artifact
  }

  #progress(tool: string): JsonObject {
    return toProgressMetadata({ progress: this.#answered, total: this.#calls, message: tool })
  }
}
