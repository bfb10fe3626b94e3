/** A2A 1.0 as raw HTTP: what is on the wire, without any client's idea of it. */
import type { Artifact, Json, JsonObject, Message, Part, Task } from 'convoke'
import { createParser } from 'eventsource-parser'
import { randomUUID } from 'node:crypto'
import { cleanup, within } from './lifetime.ts'

export const extensionUri = 'urn:convoke:tool-call:v1'

export interface RpcError {
  readonly code: number
  readonly message: string
  readonly data?: JsonObject[]
}

/** A whole HTTP answer. */
export interface Answer<Body = unknown> {
  readonly status: number
  readonly headers: Headers
  readonly text: string
  readonly body: Body
}

export interface RpcBody<Result = unknown> {
  readonly jsonrpc: '2.0'
  readonly id: string | number | null
  readonly result?: Result
  readonly error?: RpcError
}

export interface RestErrorBody {
  readonly error: {
    readonly code: number
    readonly status: string
    readonly message: string
    readonly details: JsonObject[]
  }
}

export interface CallOptions {
  /** `A2A-Version`. Default: 1.0. */
  readonly version?: string
  readonly headers?: Record<string, string>
  readonly signal?: AbortSignal
}

export type Params = Record<string, unknown>

/** Fails for text that shows how the node is made: stacks, and paths of its files. No answer ever may. */
function checkDiscreet(text: string): void {
  const innards =
    /\\n\s+at |\n\s+at |node_modules|file:\/\/\S*\.[jt]s|\/(src|dist)\/\w+|node:internal|\.[jt]s:\d+/.exec(text)
  if (innards === null) return
  throw new Error(
    `An answer shows "${innards[0]}": ${text.slice(Math.max(0, innards.index - 200), innards.index + 200)}`,
  )
}

/** Sends any request and reads the whole answer, as JSON if it is. */
export async function request<Body = unknown>(url: string, init: RequestInit = {}): Promise<Answer<Body>> {
  const response = await fetch(url, init)
  const text = await response.text()
  checkDiscreet(text)
  let body: unknown
  try {
    body = JSON.parse(text)
  } catch {
    body = undefined
  }
  return { status: response.status, headers: response.headers, text, body: body as Body }
}

function headersOf({ version = '1.0', headers }: CallOptions): Record<string, string> {
  return { 'content-type': 'application/json', 'a2a-version': version, ...headers }
}

/** One JSON-RPC call. */
export function rpc<Result = JsonObject>(
  url: string,
  method: string,
  params?: unknown,
  options: CallOptions = {},
): Promise<Answer<RpcBody<Result>>> {
  const body = JSON.stringify({ jsonrpc: '2.0', id: 1, method, params })
  return request(url, { method: 'POST', body, headers: headersOf(options), ...signalOf(options) })
}

/** One HTTP+JSON call, such as `POST /message:send`. */
export function rest<Body = JsonObject>(
  url: string,
  route: string,
  body?: unknown,
  options: CallOptions = {},
): Promise<Answer<Body>> {
  const [method = 'GET', path = '/'] = route.split(' ')
  return request(url + path, {
    method,
    headers: headersOf(options),
    ...(body === undefined ? {} : { body: JSON.stringify(body) }),
    ...signalOf(options),
  })
}

function signalOf({ signal }: CallOptions): { signal?: AbortSignal } {
  return signal === undefined ? {} : { signal }
}

/** The message that calls a tool. */
export function toolCall(name: string, params: unknown = {}, more: Partial<Message> = {}): Message {
  return {
    messageId: randomUUID(),
    role: 'ROLE_USER',
    parts: [{ text: `Call ${name}.` }],
    metadata: { _tool_call: { name, params: params as Json } },
    extensions: [extensionUri],
    ...more,
  }
}

/** A plain message. */
export function say(text: string, more: Partial<Message> = {}): Message {
  return { messageId: randomUUID(), role: 'ROLE_USER', parts: [{ text }], ...more }
}

export interface SendResult {
  readonly task?: Task
  readonly message?: Message
}

/** Sends a message over JSON-RPC and gives the task that answers it. */
export async function send(
  url: string,
  message: Message,
  configuration: Params = {},
  options: CallOptions = {},
): Promise<Task> {
  const answer = await rpc<SendResult>(url, 'SendMessage', { message, configuration }, options)
  return taskOf(answer)
}

export function taskOf({ body, text }: Answer<RpcBody<SendResult>>): Task {
  const task = body?.result?.task
  if (task === undefined) throw new Error(`No task came back: ${text.slice(0, 500)}`)
  return task
}

/** Starts a tool call and gives its task as it stands at once. */
export function begin(url: string, message: Message, options: CallOptions = {}): Promise<Task> {
  return send(url, message, { returnImmediately: true }, options)
}

export async function getTask(url: string, id: string, options: CallOptions = {}): Promise<Task> {
  const { body, text } = await rpc<Task>(url, 'GetTask', { id }, options)
  if (body.result === undefined) throw new Error(`No task came back: ${text.slice(0, 500)}`)
  return body.result
}

/** A value as the extension carries it, undone by hand: docs/protocol.md. */
export function valueOf(part: Part, wrapped: boolean): Json | Uint8Array | undefined {
  if (part.raw !== undefined) return new Uint8Array(Buffer.from(part.raw, 'base64'))
  if (part.text !== undefined) return part.text
  return wrapped ? (part.data as JsonObject)['result'] : part.data
}

export function resultOf(task: Pick<Task, 'artifacts'>): Json | Uint8Array | undefined {
  const artifact = task.artifacts?.find(({ metadata }) => metadata?.['_tool_result'] === true)
  const part = artifact?.parts[0]
  return part === undefined ? undefined : valueOf(part, artifact?.metadata?.['_tool_result_wrapped'] === true)
}

export interface ToolErrorBody {
  readonly code: string
  readonly message: string
  readonly retryable: boolean
  readonly tool_name: string
  readonly issues?: { path: string; message: string }[]
}

/** What a failed task says went wrong. */
export function toolErrorOf(task: Task): ToolErrorBody | undefined {
  return task.status.message?.metadata?.['_tool_error'] as ToolErrorBody | undefined
}

export function wordsOf(message: Pick<Message, 'parts'> | undefined): string {
  return (message?.parts ?? []).map(({ text = '' }) => text).join('')
}

/** One event of a stream, as both bindings of A2A 1.0 carry it. */
export interface StreamResponse {
  readonly task?: Task
  readonly message?: Message
  readonly statusUpdate?: { taskId: string; contextId: string; status: Task['status']; metadata?: JsonObject }
  readonly artifactUpdate?: {
    taskId: string
    contextId: string
    artifact: Artifact
    append?: boolean
    lastChunk?: boolean
    metadata?: JsonObject
  }
}

export interface StreamEvent {
  readonly id: number | undefined
  readonly data: StreamResponse
}

/** An event stream that is read one event at a time: what is not asked for stays in the socket. */
export interface EventReader {
  readonly status: number
  readonly headers: Headers
  /** How many comments came so far. */
  readonly comments: () => number
  /** The next event; undefined once the stream has ended. */
  next(): Promise<StreamEvent | undefined>
  /** The events up to the first that fits, that one included. Fails when the stream ends without one. */
  upTo(fits: (event: StreamEvent) => boolean): Promise<StreamEvent[]>
  /** All events that are left. */
  all(): Promise<StreamEvent[]>
  /** Reads one more piece from the socket, whatever is in it. */
  pull(): Promise<boolean>
  /** Hangs up. */
  close(): void
}

export interface StreamOptions extends CallOptions {
  readonly lastEventId?: number
}

/** Opens an event stream over JSON-RPC; hung up when the test is over. */
export function stream(url: string, method: string, params: Params, options: StreamOptions = {}): Promise<EventReader> {
  const body = JSON.stringify({ jsonrpc: '2.0', id: 1, method, params })
  return open(url, { method: 'POST', body }, options, (data) => {
    const { result, error } = data as RpcBody<StreamResponse>
    if (result === undefined) throw new Error(`An error on the stream: ${JSON.stringify(error)}`)
    return result
  })
}

/** Opens an event stream over HTTP+JSON. */
export function restStream(
  url: string,
  route: string,
  body?: unknown,
  options: StreamOptions = {},
): Promise<EventReader> {
  const [method = 'GET', path = '/'] = route.split(' ')
  return open(
    url + path,
    { method, ...(body === undefined ? {} : { body: JSON.stringify(body) }) },
    options,
    (data) => {
      return data as StreamResponse
    },
  )
}

/** Sends a message and opens the stream of what follows. */
export function sendStream(url: string, message: Message, options: StreamOptions = {}): Promise<EventReader> {
  return stream(url, 'SendStreamingMessage', { message }, options)
}

/** Opens the stream of a task that is there. */
export function subscribe(url: string, id: string, options: StreamOptions = {}): Promise<EventReader> {
  return stream(url, 'SubscribeToTask', { id }, options)
}

async function open(
  url: string,
  init: RequestInit,
  options: StreamOptions,
  unwrap: (data: unknown) => StreamResponse,
): Promise<EventReader> {
  const controller = new AbortController()
  const { lastEventId } = options
  const headers = {
    ...headersOf(options),
    ...(lastEventId === undefined ? {} : { 'last-event-id': String(lastEventId) }),
  }
  const response = await within(fetch(url, { ...init, headers, signal: controller.signal }), 'the headers of a stream')
  cleanup(() => controller.abort())
  if (response.headers.get('content-type')?.startsWith('text/event-stream') !== true) {
    throw new Error(`No stream came back, but ${response.status}: ${(await response.text()).slice(0, 500)}`)
  }
  const reader = response.body!.pipeThrough(new TextDecoderStream()).getReader()
  const ready: StreamEvent[] = []
  let comments = 0
  const parser = createParser({
    onEvent({ id, data }) {
      checkDiscreet(data)
      ready.push({ id: id === undefined ? undefined : Number(id), data: unwrap(JSON.parse(data)) })
    },
    onComment: () => comments++,
  })
  const pull = async (): Promise<boolean> => {
    const { done, value } = await within(reader.read(), 'more of a stream')
    if (value !== undefined) parser.feed(value)
    return !done
  }
  const next = async (): Promise<StreamEvent | undefined> => {
    while (ready.length === 0) if (!(await pull())) return undefined
    return ready.shift()
  }
  const gather = async (fits: (event: StreamEvent) => boolean): Promise<{ events: StreamEvent[]; found: boolean }> => {
    const events: StreamEvent[] = []
    for (;;) {
      const event = await next()
      if (event === undefined) return { events, found: false }
      events.push(event)
      if (fits(event)) return { events, found: true }
    }
  }
  return {
    status: response.status,
    headers: response.headers,
    comments: () => comments,
    next,
    pull,
    async upTo(fits) {
      const { events, found } = await gather(fits)
      if (!found) throw new Error(`The stream ended without the event; it had ${JSON.stringify(events).slice(0, 2000)}`)
      return events
    },
    async all() {
      return (await gather(() => false)).events
    },
    close: () => controller.abort(),
  }
}

/** The state that an event brings the task into, if it does. */
export function stateOf({ data }: StreamEvent): string | undefined {
  return data.statusUpdate?.status.state ?? data.task?.status.state
}

export function chunkOf({ data }: StreamEvent): Json | Uint8Array | undefined {
  const artifact = data.artifactUpdate?.artifact
  const part = artifact?.artifactId === 'stream' ? artifact.parts[0] : undefined
  return part === undefined ? undefined : valueOf(part, part.metadata?.['_tool_result_wrapped'] === true)
}

/** Every chunk among events, whatever it says of those before it. */
export function rawChunksOf(events: readonly StreamEvent[]): (Json | Uint8Array)[] {
  return events.map(chunkOf).filter((chunk) => chunk !== undefined)
}

/** The chunks among events, in order; one that does not append begins anew. */
export function chunksOf(events: readonly StreamEvent[]): (Json | Uint8Array)[] {
  let chunks: (Json | Uint8Array)[] = []
  for (const event of events) {
    const chunk = chunkOf(event)
    if (chunk === undefined) continue
    if (event.data.artifactUpdate?.append !== true) chunks = []
    chunks.push(chunk)
  }
  return chunks
}

/** The ids of events. */
export function idsOf(events: readonly StreamEvent[]): (number | undefined)[] {
  return events.map(({ id }) => id)
}

/** `from`, `from + 1` and so on up to `to`. */
export function range(from: number, to: number): number[] {
  return Array.from({ length: to - from + 1 }, (_, index) => from + index)
}
