/** Agents that are not Convoke: what its client meets in the wild. Each tells what it was asked. */
import type { AgentCard as LegacyCard, Message as LegacyMessage, TaskStatusUpdateEvent } from 'a2a-sdk-0.3'
import {
  DefaultRequestHandler,
  InMemoryTaskStore,
  type AgentExecutor,
  type ExecutionEventBus,
} from 'a2a-sdk-0.3/server'
import { agentCardHandler, jsonRpcHandler, restHandler, UserBuilder } from 'a2a-sdk-0.3/server/express'
import type { Artifact, Json, JsonObject, Message, Part, Task } from 'convoke'
import express from 'express'
import { randomUUID } from 'node:crypto'
import { once } from 'node:events'
import { createServer } from 'node:http'
import type { IncomingHttpHeaders, IncomingMessage, RequestListener, ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { text } from 'node:stream/consumers'
import { cleanup, deferred } from './lifetime.ts'
import { extensionUri, type StreamResponse } from './wire.ts'

/** One request that a peer got. */
export interface PeerRequest {
  /** That of JSON-RPC, or `GET /path`. */
  readonly method: string
  readonly messageId: string | undefined
  readonly params: JsonObject
  readonly headers: IncomingHttpHeaders
}

export interface TestPeer {
  readonly url: string
  /** In the order in which they came. */
  readonly requests: readonly PeerRequest[]
  /** How many of them had this method. */
  count(method: string): number
  /** How often it began to work: repeats that it recognises do not count. */
  readonly runs: number
}

type State = Task['status']['state']

const schemas = {
  count_to: {
    type: 'object',
    properties: { n: { type: 'integer', minimum: 1 } },
    required: ['n'],
    additionalProperties: false,
  },
  echo: { type: 'object', properties: { value: {} }, required: ['value'] },
  fail: { type: 'object', properties: {} },
  ask: { type: 'object', properties: {} },
  hold: { type: 'object', properties: {} },
} satisfies Record<string, JsonObject>

/** A refusal in the words of JSON-RPC. */
class Refusal extends Error {
  readonly code: number

  constructor(code: number, message: string) {
    super(message)
    this.code = code
  }
}

/** A task and all its events; event n is the one with seq n + 1. */
class TaskLog {
  readonly task: Task
  readonly events: StreamResponse[] = []
  readonly #stop = new AbortController()
  #changed = deferred()
  #reply: ((message: Message) => void) | undefined

  constructor(message: Message) {
    const id = randomUUID()
    const contextId = message.contextId ?? randomUUID()
    const call = message.metadata?.['_tool_call']
    this.task = {
      id,
      contextId,
      status: { state: 'TASK_STATE_SUBMITTED', timestamp: new Date().toISOString() },
      history: [{ ...message, taskId: id, contextId }],
      ...(call === undefined ? {} : { metadata: { _tool_call: call } }),
    }
    this.#emit({ task: structuredClone(this.task) })
  }

  get hasEnded(): boolean {
    return /COMPLETED|FAILED|CANCELED|REJECTED/.test(this.task.status.state)
  }

  get isSettled(): boolean {
    return this.hasEnded || this.task.status.state === 'TASK_STATE_INPUT_REQUIRED'
  }

  /** Resolves with the next event. */
  changed(): Promise<void> {
    return this.#changed.promise
  }

  async settled(): Promise<Task> {
    while (!this.isSettled) await this.changed()
    return this.task
  }

  stop(): void {
    this.#stop.abort()
  }

  /** Never resolves; rejects once the task is stopped. */
  async stopped(): Promise<never> {
    if (!this.#stop.signal.aborted) await once(this.#stop.signal, 'abort')
    throw new Error('stopped')
  }

  /** Begins the work; its end is that of the task. */
  async run(tool: string, work: () => Promise<void>): Promise<void> {
    this.status('TASK_STATE_WORKING')
    try {
      await Promise.race([work(), this.stopped()])
      if (!this.hasEnded) this.status('TASK_STATE_COMPLETED')
    } catch (error) {
      const isStopped = this.#stop.signal.aborted
      const body = {
        code: isStopped ? 'canceled' : 'tool_failed',
        message: (error as Error).message,
        retryable: false,
        tool_name: tool,
      }
      this.status(isStopped ? 'TASK_STATE_CANCELED' : 'TASK_STATE_FAILED', {
        ...agentSays(body.message),
        metadata: { _tool_error: body },
      })
    }
  }

  status(state: State, message?: Message, metadata?: JsonObject): void {
    this.task.status = {
      state,
      timestamp: new Date().toISOString(),
      ...(message === undefined ? {} : { message }),
    }
    const { id, contextId, status } = this.task
    this.#emit({ statusUpdate: { taskId: id, contextId, status, ...(metadata === undefined ? {} : { metadata }) } })
  }

  artifact(artifact: Artifact, append = false, lastChunk = !append): void {
    const artifacts = (this.task.artifacts ??= [])
    const at = artifacts.findIndex(({ artifactId }) => artifactId === artifact.artifactId)
    if (at === -1) artifacts.push(structuredClone(artifact))
    else if (append) artifacts[at]?.parts.push(...artifact.parts)
    else artifacts[at] = structuredClone(artifact)
    const { id, contextId } = this.task
    this.#emit({ artifactUpdate: { append, lastChunk, taskId: id, contextId, artifact } })
  }

  /** Asks the caller, and gives the reply. */
  async ask(question: Message): Promise<Message> {
    const reply = deferred<Message>()
    this.#reply = reply.resolve
    this.status('TASK_STATE_INPUT_REQUIRED', question)
    const message = await reply.promise
    this.task.history?.push(question, message)
    this.status('TASK_STATE_WORKING')
    return message
  }

  reply(message: Message): void {
    const reply = this.#reply
    if (reply === undefined) throw new Refusal(-32004, 'The task asks nothing.')
    this.#reply = undefined
    reply(message)
  }

  #emit(event: StreamResponse): void {
    this.events.push(event)
    this.#changed.resolve()
    this.#changed = deferred()
  }
}

/** The tasks of one peer; those that still run when the test is over are stopped. */
class Tasks {
  readonly #logs = new Map<string, TaskLog>()
  runs = 0

  constructor() {
    cleanup(() => this.#logs.forEach((log) => log.stop()))
  }

  add(message: Message): TaskLog {
    const log = new TaskLog(message)
    this.#logs.set(log.task.id, log)
    return log
  }

  find(id: unknown): TaskLog {
    const log = this.#logs.get(String(id))
    if (log === undefined) throw new Refusal(-32001, `Task ${JSON.stringify(id)} was not found.`)
    return log
  }

  /** Answers `GetTask` and `CancelTask`, and refuses every other method. */
  async answer({ method, params }: PeerRequest): Promise<Task> {
    if (method !== 'GetTask' && method !== 'CancelTask') {
      throw new Refusal(-32601, `There is no method "${method}".`)
    }
    const log = this.find(params['id'])
    if (method === 'GetTask') return log.task
    if (log.hasEnded) throw new Refusal(-32002, 'The task has ended.')
    log.stop()
    while (!log.hasEnded) await log.changed()
    return log.task
  }
}

/** What `SendMessage` is answered with. */
async function toSendResult(log: TaskLog, { params }: PeerRequest): Promise<{ task: Task }> {
  const { returnImmediately } = (params['configuration'] ?? {}) as { returnImmediately?: boolean }
  return { task: returnImmediately === true ? log.task : await log.settled() }
}

function agentSays(words: string): Message {
  return { messageId: randomUUID(), role: 'ROLE_AGENT', parts: [{ text: words }] }
}

async function listen(listener: RequestListener): Promise<string> {
  const server = createServer(listener)
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  cleanup(() => {
    server.closeAllConnections()
    return new Promise((resolve) => server.close(resolve))
  })
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}`
}

function toRequest(method: string, params: JsonObject, { headers }: IncomingMessage): PeerRequest {
  const { messageId } = (params['message'] ?? {}) as { messageId?: string }
  return { method, params, headers, messageId }
}

interface Exchange extends PeerRequest {
  readonly id: Json
  readonly res: ServerResponse
}

/** Serves the card, records what comes, and answers JSON-RPC with what `answer` gives; undefined says it did itself. */
async function startRpcServer(
  card: (url: string) => JsonObject,
  answer: (exchange: Exchange) => Promise<unknown>,
  headers: Record<string, string> = {},
): Promise<{ url: string; requests: PeerRequest[] }> {
  const requests: PeerRequest[] = []
  const handle = async (req: IncomingMessage, res: ServerResponse): Promise<void> => {
    const say = (status: number, body: unknown): void => {
      res.writeHead(status, { 'content-type': 'application/json', ...headers }).end(JSON.stringify(body))
    }
    if (req.method !== 'POST') {
      requests.push(toRequest(`GET ${req.url}`, {}, req))
      return req.url === '/.well-known/agent-card.json' ? say(200, card(url)) : say(404, {})
    }
    const sent = await text(req)
    if (!sent.endsWith('}')) return say(200, { jsonrpc: '2.0', id: null, error: { code: -32700, message: 'No JSON.' } })
    const body = JSON.parse(sent) as { id: Json; method: string; params?: JsonObject }
    const request = toRequest(body.method, body.params ?? {}, req)
    requests.push(request)
    try {
      const result = await answer({ ...request, id: body.id, res })
      if (result !== undefined) say(200, { jsonrpc: '2.0', id: body.id, result })
    } catch (error) {
      const code = error instanceof Refusal ? error.code : -32603
      say(200, { jsonrpc: '2.0', id: body.id, error: { code, message: String(error) } })
    }
  }
  const url = await listen((req, res) => void handle(req, res))
  return { url, requests }
}

/** Sends a task's events from number `from` on; ends when the task has ended, or settled if `untilSettled`. */
async function sendEvents(
  { id, res }: Exchange,
  log: TaskLog,
  events: { from: number; snapshot?: boolean; untilSettled: boolean; withIds: boolean; cutAfter?: number },
): Promise<void> {
  res.writeHead(200, { 'content-type': 'text/event-stream', 'a2a-extensions': extensionUri })
  let sent = 0
  const send = async (result: StreamResponse, seq: number): Promise<void> => {
    const head = events.withIds ? `id: ${seq}\n` : ''
    const data = JSON.stringify({ jsonrpc: '2.0', id, result })
    await new Promise<void>((resolve) => res.write(`${head}data: ${data}\n\n`, () => resolve()))
    if (++sent === events.cutAfter) res.destroy()
  }
  if (events.snapshot === true) await send({ task: log.task }, events.from)
  for (let seq = events.from + 1; !res.destroyed;) {
    const event = log.events[seq - 1]
    if (event !== undefined) await send(event, seq++)
    else if (log.hasEnded || (events.untilSettled && log.isSettled)) return void res.end()
    else await log.changed()
  }
}

export interface MinimalPeerOptions {
  /** Waited for before each chunk of `count_to`, which counts from 1. */
  readonly beforeChunk?: (i: number) => void | Promise<void>
}

/** An agent that knows the wire of docs/protocol.md and nothing more: tools, dense event ids, messages taken in once. */
export async function startMinimalPeer({ beforeChunk }: MinimalPeerOptions = {}): Promise<TestPeer> {
  const tasks = new Tasks()
  const byMessage = new Map<string, TaskLog>()

  const result = (log: TaskLog, tool: string, part: Part, wrapped = false): void => {
    const metadata = { _tool_result: true, tool_name: tool, execution_time_ms: 1 }
    log.artifact({
      artifactId: 'result',
      name: 'result',
      metadata: wrapped ? { ...metadata, _tool_result_wrapped: true } : metadata,
      extensions: [extensionUri],
      parts: [part],
    })
  }
  const tools: Record<keyof typeof schemas, (log: TaskLog, params: JsonObject) => Promise<void>> = {
    async count_to(log, { n }) {
      for (let i = 1; i <= Number(n); i++) {
        await beforeChunk?.(i)
        const progress = { progress: i, total: Number(n), message: `At ${i}.` }
        log.status('TASK_STATE_WORKING', undefined, { _tool_progress: progress })
        log.artifact({ artifactId: 'stream', name: 'stream', parts: [{ data: { i } }] }, i > 1, false)
      }
      result(log, 'count_to', { data: { counted: Number(n) } })
    },
    async echo(log, { value = null }) {
      result(log, 'echo', { data: { result: value } }, true)
    },
    async fail() {
      throw new Error('The disk is full.')
    },
    async ask(log) {
      const schema = { type: 'object', properties: { name: { type: 'string' } }, required: ['name'] }
      const question = { message: 'What is your name?', tool_name: 'ask', schema }
      const { parts } = await log.ask({ ...agentSays(question.message), metadata: { _tool_question: question } })
      result(log, 'ask', { data: { answer: parts[0]?.data ?? parts[0]?.text ?? null } })
    },
    hold(log) {
      log.artifact({ artifactId: 'stream', name: 'stream', parts: [{ text: 'holding' }] }, false, false)
      return log.stopped()
    },
  }
  /** The task of a message, and whether the message made it. */
  const take = (message: Message): { log: TaskLog; isNew: boolean } => {
    const known = byMessage.get(message.messageId)
    if (known !== undefined) return { log: known, isNew: false }
    if (message.taskId !== undefined) {
      const log = tasks.find(message.taskId)
      log.reply(message)
      byMessage.set(message.messageId, log)
      return { log, isNew: false }
    }
    const log = tasks.add(message)
    byMessage.set(message.messageId, log)
    tasks.runs++
    const { name = '', params = {} } = (message.metadata?.['_tool_call'] ?? {}) as {
      name?: string
      params?: JsonObject
    }
    if (Object.hasOwn(tools, name)) {
      void log.run(name, () => tools[name as keyof typeof tools](log, params))
    } else {
      const body = { code: 'not_found', message: `There is no tool "${name}".`, retryable: false, tool_name: name }
      log.status('TASK_STATE_REJECTED', { ...agentSays(body.message), metadata: { _tool_error: body } })
    }
    return { log, isNew: true }
  }

  const answer = async (exchange: Exchange): Promise<unknown> => {
    const { method, params, headers } = exchange
    const lastEventId = headers['last-event-id'] === undefined ? undefined : Number(headers['last-event-id'])
    const missed = (log: TaskLog): { from: number; snapshot?: boolean } =>
      lastEventId !== undefined && lastEventId <= log.events.length
        ? { from: lastEventId }
        : { from: log.events.length, snapshot: true }
    switch (method) {
      case 'SendMessage': {
        return toSendResult(take(params['message'] as unknown as Message).log, exchange)
      }
      case 'SendStreamingMessage': {
        const { log, isNew } = take(params['message'] as unknown as Message)
        const begin = isNew ? { from: 0 } : missed(log)
        return sendEvents(exchange, log, { ...begin, untilSettled: true, withIds: true })
      }
      case 'SubscribeToTask': {
        const log = tasks.find(params['id'])
        if (log.hasEnded && (lastEventId ?? log.events.length) >= log.events.length) {
          throw new Refusal(-32004, 'The task has ended.')
        }
        return sendEvents(exchange, log, { ...missed(log), untilSettled: false, withIds: true })
      }
      default:
        return tasks.answer(exchange)
    }
  }
  const card = (url: string): JsonObject => ({
    ...plainCard(url, true),
    name: 'Minimal',
    skills: Object.entries(schemas).map(([name, schema]) => ({
      id: `tool-${name}`,
      name,
      description: `The tool ${name}.`,
      tags: ['tool'],
      input_schema: schema,
    })),
    capabilities: {
      streaming: true,
      pushNotifications: false,
      extensions: [
        {
          uri: extensionUri,
          required: false,
          params: {
            tools: Object.fromEntries(
              Object.entries(schemas).map(([name, schema]) => {
                const repeatable = name === 'count_to' || name === 'echo'
                const annotations = { readOnlyHint: repeatable, idempotentHint: repeatable }
                return [`tool-${name}`, { name, input_schema: schema, annotations }]
              }),
            ),
          },
        },
      ],
    },
  })
  const { url, requests } = await startRpcServer(card, answer, { 'a2a-extensions': extensionUri })
  return toPeer(url, requests, () => tasks.runs)
}

function plainCard(url: string, streaming: boolean): JsonObject {
  return {
    name: 'Plain',
    description: 'Answers by text.',
    version: '1.0.0',
    supportedInterfaces: [{ url, protocolBinding: 'JSONRPC', protocolVersion: '1.0' }],
    defaultInputModes: ['text/plain'],
    defaultOutputModes: ['text/plain', 'application/json'],
    capabilities: { streaming, pushNotifications: false },
    skills: [{ id: 'talk', name: 'Talk', description: 'Talks.', tags: ['talk'] }],
  }
}

function toPeer(url: string, requests: readonly PeerRequest[], runs: () => number): TestPeer {
  return {
    url,
    requests,
    count: (method) => requests.filter((request) => request.method === method).length,
    get runs() {
      return runs()
    },
  }
}

export interface PlainPeerOptions {
  /** Whether it streams. Default: true. */
  readonly streaming?: boolean
  /** Cuts the first stream behind so many events. */
  readonly cutAfter?: number
}

/**
 * An agent without the extension: no tools, no event ids, and a message that comes twice is done twice. What it does
 * depends on the first word of the message's text:
 *
 * - `data`, `json`, `text`: a task with the rest of the text as data part `{answer}`, as JSON text, as text;
 * - `status`: a task with the rest in the message of its last status; `message`: no task but a bare message;
 * - `count N`: the artifact `numbers`, one text part for each; `fail`: a task that fails; `hold`: one that has to be
 *   cancelled; `ask`: one that asks, and has the reply as its result.
 */
export async function startPlainPeer({ streaming = true, cutAfter }: PlainPeerOptions = {}): Promise<TestPeer> {
  const tasks = new Tasks()
  let cutsLeft = cutAfter === undefined ? 0 : 1

  const work = async (log: TaskLog, word: string, rest: string): Promise<void> => {
    const put = (...parts: Part[]): void => log.artifact({ artifactId: 'answer', parts })
    switch (word) {
      case 'data':
        return put({ data: { answer: rest } })
      case 'json':
        return put({ text: JSON.stringify({ answer: rest }), mediaType: 'application/json' })
      case 'status':
        return log.status('TASK_STATE_COMPLETED', agentSays(rest))
      case 'count':
        for (let i = 1; i <= Number(rest); i++) {
          log.artifact({ artifactId: 'numbers', parts: [{ text: `${i} ` }] }, i > 1, i === Number(rest))
        }
        return
      case 'fail':
        throw new Error(rest)
      case 'hold':
        return log.stopped()
      case 'ask':
        return put(...(await log.ask(agentSays('Which one?'))).parts)
      default:
        return put({ text: rest })
    }
  }
  const take = (message: Message): TaskLog | Message => {
    const [word = '', ...rest] = (message.parts[0]?.text ?? '').split(' ')
    if (message.taskId !== undefined) {
      const log = tasks.find(message.taskId)
      log.reply(message)
      return log
    }
    tasks.runs++
    if (word === 'message') return agentSays(rest.join(' '))
    const log = tasks.add(message)
    void log.run('', () => work(log, word, rest.join(' ')))
    return log
  }
  const follow = (exchange: Exchange, log: TaskLog, begin: { from: number; snapshot?: boolean }): Promise<void> => {
    const cut = cutsLeft > 0 && cutAfter !== undefined ? { cutAfter } : {}
    cutsLeft--
    return sendEvents(exchange, log, { ...begin, ...cut, untilSettled: true, withIds: false })
  }
  const answer = async (exchange: Exchange): Promise<unknown> => {
    const { id, res, method, params } = exchange
    const isStream = method === 'SendStreamingMessage' || method === 'SubscribeToTask'
    if (isStream && !streaming) throw new Refusal(-32004, 'This agent does not stream.')
    switch (method) {
      case 'SendMessage': {
        const taken = take(params['message'] as unknown as Message)
        return taken instanceof TaskLog ? toSendResult(taken, exchange) : { message: taken }
      }
      case 'SendStreamingMessage': {
        const message = params['message'] as unknown as Message
        const seen = message.taskId === undefined ? 0 : tasks.find(message.taskId).events.length
        const taken = take(message)
        if (taken instanceof TaskLog) return follow(exchange, taken, { from: seen })
        res.writeHead(200, { 'content-type': 'text/event-stream' })
        res.end(`data: ${JSON.stringify({ jsonrpc: '2.0', id, result: { message: taken } })}\n\n`)
        return undefined
      }
      case 'SubscribeToTask': {
        const log = tasks.find(params['id'])
        if (log.hasEnded) throw new Refusal(-32004, 'The task has ended.')
        return follow(exchange, log, { from: log.events.length, snapshot: true })
      }
      default:
        return tasks.answer(exchange)
    }
  }
  const { url, requests } = await startRpcServer((base) => plainCard(base, streaming), answer)
  return toPeer(url, requests, () => tasks.runs)
}

/** A tool of the legacy peer; chunks are its yields. */
type LegacyTool = (params: JsonObject, stopped: Promise<never>) => AsyncGenerator<JsonObject, JsonObject, void>

const legacyTools: Record<'count_to' | 'echo' | 'hold', LegacyTool> = {
  async *count_to({ n }) {
    for (let i = 1; i <= Number(n); i++) yield { i }
    return { counted: Number(n) }
  },
  // oxlint-disable-next-line require-yield -- a tool without chunks
  async *echo({ value = null }) {
    return { result: value }
  },
  async *hold(_params, stopped) {
    yield { holding: true }
    return stopped
  },
}

/** Runs `_tool_call` on the event bus of the 0.3 SDK. */
class LegacyExecutor implements AgentExecutor {
  readonly #running = new Map<string, AbortController>()
  runs = 0

  execute: AgentExecutor['execute'] = async ({ userMessage, taskId, contextId }, bus) => {
    this.runs++
    const stop = new AbortController()
    this.#running.set(taskId, stop)
    bus.publish({
      kind: 'task',
      id: taskId,
      contextId,
      status: { state: 'submitted', timestamp: new Date().toISOString() },
      history: [userMessage],
    })
    const say = (state: TaskStatusUpdateEvent['status']['state'], final: boolean, words?: string): void =>
      bus.publish({
        kind: 'status-update',
        taskId,
        contextId,
        status: {
          state,
          timestamp: new Date().toISOString(),
          ...(words === undefined ? {} : { message: legacySays(words) }),
        },
        final,
      })
    say('working', false)
    try {
      await this.#run(userMessage, bus, { taskId, contextId }, stop.signal)
      say('completed', true)
    } catch (error) {
      say(stop.signal.aborted ? 'canceled' : 'failed', true, (error as Error).message)
    }
    this.#running.delete(taskId)
    bus.finished()
  }

  cancelTask: AgentExecutor['cancelTask'] = async (taskId) => {
    this.#running.get(taskId)?.abort()
  }

  stop(): void {
    for (const stop of this.#running.values()) stop.abort()
  }

  async #run(
    message: LegacyMessage,
    bus: ExecutionEventBus,
    ids: { taskId: string; contextId: string },
    signal: AbortSignal,
  ): Promise<void> {
    const { name = '', params = {} } = (message.metadata?.['_tool_call'] ?? {}) as {
      name?: string
      params?: JsonObject
    }
    if (!Object.hasOwn(legacyTools, name)) throw new Error(`There is no tool "${name}".`)
    const put = (artifactId: string, data: JsonObject, append: boolean, metadata?: JsonObject): void =>
      bus.publish({
        kind: 'artifact-update',
        ...ids,
        artifact: {
          artifactId,
          name: artifactId,
          parts: [{ kind: 'data', data }],
          ...(metadata === undefined ? {} : { metadata }),
        },
        append,
        lastChunk: false,
      })
    const stopped = once(signal, 'abort').then(() => {
      throw new Error('stopped')
    })
    stopped.catch(() => {})
    const work = legacyTools[name as keyof typeof legacyTools](params, stopped)
    for (let chunks = 0; ; chunks++) {
      const { done, value } = await work.next()
      if (done !== true) {
        put('stream', value, chunks > 0)
        continue
      }
      const wrapped = name === 'echo' ? { _tool_result_wrapped: true } : {}
      return put('result', value, false, { _tool_result: true, tool_name: name, execution_time_ms: 1, ...wrapped })
    }
  }
}

function legacySays(words: string): LegacyMessage {
  return { kind: 'message', messageId: randomUUID(), role: 'agent', parts: [{ kind: 'text', text: words }] }
}

/** A 0.3 agent on the SDK of its time, with the tools `count_to`, `echo` and `hold` on its card, over both bindings. No event ids. */
export async function startLegacyPeer(): Promise<TestPeer> {
  const executor = new LegacyExecutor()
  cleanup(() => executor.stop())
  const requests: PeerRequest[] = []
  const app = express()
  const url = await listen(app)
  const card: LegacyCard = {
    name: 'Legacy',
    description: 'An agent of A2A 0.3.',
    version: '1.0.0',
    protocolVersion: '0.3.0',
    url,
    preferredTransport: 'JSONRPC',
    additionalInterfaces: [
      { url, transport: 'JSONRPC' },
      { url, transport: 'HTTP+JSON' },
    ],
    capabilities: { streaming: true, pushNotifications: false },
    defaultInputModes: ['text/plain'],
    defaultOutputModes: ['application/json'],
    skills: (['count_to', 'echo', 'hold'] as const).map((name) => {
      // Its types know no schemas; its JSON carries them all the same.
      const schema = { input_schema: schemas[name] }
      return { id: `tool-${name}`, name, description: `The tool ${name}.`, tags: ['tool'], ...schema }
    }),
  }
  const requestHandler = new DefaultRequestHandler(card, new InMemoryTaskStore(), executor)
  app.use(express.json(), (req, _res, next) => {
    const { method, params = {} } = (req.body ?? {}) as { method?: string; params?: JsonObject }
    requests.push(toRequest(method ?? `GET ${req.path}`, params, req))
    next()
  })
  app.use('/.well-known/agent-card.json', agentCardHandler({ agentCardProvider: requestHandler }))
  app.use(restHandler({ requestHandler, userBuilder: UserBuilder.noAuthentication }))
  app.use(jsonRpcHandler({ requestHandler, userBuilder: UserBuilder.noAuthentication }))
  return toPeer(url, requests, () => executor.runs)
}
