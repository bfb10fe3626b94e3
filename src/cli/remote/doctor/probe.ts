/** What only shows when the peer works: a call is made, its stream is timed, cut and resumed, and another one is cancelled. */
import { randomUUID } from 'node:crypto'
import { ConvokeError } from '../../../base/errors.ts'
import { readEvents } from '../../../base/event-stream.ts'
import { isObject, type JsonObject } from '../../../base/json.ts'
import type { CardInterface } from '../../../peers/card-resolver.ts'
import { toPeerError } from '../../../peers/errors.ts'
import { isInterrupted, isTerminal, type Message } from '../../../protocol/a2a.ts'
import type { ToolDescriptor } from '../../../protocol/card.ts'
import { extensionUri } from '../../../protocol/extension.ts'
import { toCallMessage } from '../../../protocol/tool-call.ts'
import { compile } from '../../../tools/schema.ts'
import { clip } from '../../../tools/value.ts'
import { exampleOf } from '../../banner.ts'
import { headerOf, jsonOf, part, type Patient } from './patient.ts'

/** What the peer is asked to do: a tool by name, a text, or what can be tried without harm. */
export interface ProbeRequest {
  readonly tool?: string | undefined
  readonly params?: JsonObject | undefined
  readonly message?: string | undefined
}

/** Silence on a stream after which it counts as dead, in milliseconds. */
const idleTimeoutMs = 45_000
/** A stream that is over sooner says nothing about buffers, in milliseconds. */
const tellingMs = 250
/** The first event of a live stream comes at once; one that comes in the last part of the time was held back. */
const lateShare = 0.7

interface Event {
  readonly id: string | undefined
  /** Since the request, in milliseconds. */
  readonly atMs: number
  readonly data: Record<string, unknown>
}

export async function probe(
  patient: Patient,
  way: CardInterface,
  tools: readonly ToolDescriptor[],
  request: ProbeRequest,
): Promise<void> {
  const { findings } = patient
  const create = toMessageMaker(tools, request)
  if (create === undefined) {
    const fix = 'Name one: --tool NAME --params JSON, or send a text: --message TEXT.'
    findings.warning(
      'probe',
      'There is no tool that is marked readOnly or idempotent and takes params that can be made up.',
      fix,
    )
    return
  }
  if (way.version !== '1.0' || part(patient.card, 'capabilities')['streaming'] !== true) {
    findings.skip('stream', 'It declares no streaming over A2A 1.0; none was tried.')
    await checkCancel(patient, way, create())
    return
  }
  const events = await stream(patient, way, create())
  if (events === undefined) return
  checkPace(patient, events)
  checkEnd(patient, events)
  if (checkIds(patient, events)) await checkResume(patient, way, events)
  await checkCancel(patient, way, create())
}

/** What makes the messages to send, each a new one. */
function toMessageMaker(
  tools: readonly ToolDescriptor[],
  { tool, params, message }: ProbeRequest,
): (() => Message) | undefined {
  if (message !== undefined) return () => ({ messageId: randomUUID(), role: 'ROLE_USER', parts: [{ text: message }] })
  if (tool !== undefined) {
    const known = tools.find(({ name }) => name === tool)
    const made = params ?? (exampleOf(known?.inputSchema) as JsonObject)
    return () => toCallMessage({ name: tool, params: made }, randomUUID())
  }
  const risk = ({ annotations }: ToolDescriptor): number =>
    annotations?.['readOnlyHint'] === true ? 0 : annotations?.['idempotentHint'] === true ? 1 : 2
  const [first] = tools
    .filter((each) => risk(each) < 2)
    .map((each) => ({
      name: each.name,
      risk: risk(each),
      params: exampleOf(each.inputSchema) as JsonObject,
      schema: each.inputSchema,
    }))
    .filter(({ params: made, schema }) => schema !== undefined && fits(made, schema))
    .toSorted((a, b) => a.risk - b.risk || JSON.stringify(a.params).length - JSON.stringify(b.params).length)
  return first && (() => toCallMessage({ name: first.name, params: first.params }, randomUUID()))
}

function fits(params: JsonObject, schema: JsonObject): boolean {
  try {
    return compile(schema).validate(params).length === 0
  } catch {
    // What cannot be compiled is another check's matter.
    return false
  }
}

/** All events of a streamed message; undefined where no stream came. */
async function stream(patient: Patient, way: CardInterface, message: Message): Promise<Event[] | undefined> {
  const { findings } = patient
  const events: Event[] = []
  const answer = await open(patient, way, { method: 'SendStreamingMessage', message })
  const type = headerOf(answer, 'content-type')
  if (answer.status !== 200 || !type.startsWith('text/event-stream')) {
    const text = await answer.body.text(64 * 1024)
    const told: unknown = part(jsonOf(text), 'error')['message']
    const said = typeof told === 'string' ? told : `${answer.status} and ${type === '' ? 'no content type' : type}`
    findings.fail(
      'stream.type',
      `Streaming is declared, but a streamed message is answered with: ${clip(said, 300)}`,
      'Answer with text/event-stream, or set capabilities.streaming to false.',
    )
    return undefined
  }
  findings.ok('stream.type', 'A streamed message is answered with an event stream.')
  const encoding = headerOf(answer, 'content-encoding')
  if (encoding === '' || encoding === 'identity') findings.ok('stream.encoding', 'The stream is not compressed.')
  else {
    answer.body.cancel()
    findings.fail(
      'stream.encoding',
      `The stream is compressed (${clip(encoding, 40)}), so events wait until a block is full.`,
      'Turn compression off for text/event-stream.',
    )
    return undefined
  }
  try {
    for await (const event of answer.events()) events.push(event)
  } catch (error) {
    if (patient.signal.aborted) throw error
    findings.fail(
      'stream.whole',
      `The stream broke off behind ${events.length} events: ${ConvokeError.from(error).message}`,
      'Look for a timeout of a proxy on the way: comments every 15 seconds keep a stream open.',
    )
    return undefined
  }
  return events
}

type StreamRequest =
  | { readonly method: 'SendStreamingMessage'; readonly message: Message }
  | { readonly method: 'SubscribeToTask'; readonly id: string; readonly lastEventId: string }

/** The answer to a request for a stream, whatever it is, and its events, if it has any. */
async function open(patient: Patient, way: CardInterface, request: StreamRequest) {
  const { url, binding, tenant } = way
  const { method } = request
  const isNew = method === 'SendStreamingMessage'
  const params = isNew ? { message: request.message } : { id: request.id }
  const base = `${url.replace(/\/$/, '')}${tenant === undefined ? '' : `/${encodeURIComponent(tenant)}`}`
  const path = isNew ? '/message:stream' : `/tasks/${encodeURIComponent(request.id)}:subscribe`
  const rpc = { jsonrpc: '2.0', id: 1, method, params: tenant === undefined ? params : { tenant, ...params } }
  const startedAt = performance.now()
  const answer = await patient.open(binding === 'JSONRPC' ? url : base + path, {
    method: 'POST',
    headers: {
      'content-type': binding === 'JSONRPC' ? 'application/json' : 'application/a2a+json',
      accept: 'text/event-stream, application/json',
      'a2a-version': '1.0',
      'a2a-extensions': extensionUri,
      ...(isNew ? {} : { 'last-event-id': request.lastEventId }),
    },
    body: JSON.stringify(binding === 'JSONRPC' ? rpc : params),
  })
  const events = async function* (): AsyncGenerator<Event, void, void> {
    for await (const batch of readEvents(answer.body, { idleTimeoutMs })) {
      const atMs = performance.now() - startedAt
      for (const { id: eventId, data } of batch) {
        const body = jsonOf(data)
        const event = binding === 'JSONRPC' ? part(body, 'result') : body
        if (isObject(event)) yield { id: eventId, atMs, data: event }
      }
    }
  }
  return { ...answer, events }
}

function checkPace({ findings }: Patient, events: readonly Event[]): void {
  const first = events[0]?.atMs ?? 0
  const last = events.at(-1)?.atMs ?? 0
  const times = `the first of ${events.length} events came after ${Math.round(first)} ms, the last after ${Math.round(last)} ms`
  if (last < tellingMs)
    findings.skip(
      'stream.live',
      `The stream was too short to tell whether something holds it back (${Math.round(last)} ms). Name a tool that runs longer: --tool and --params.`,
    )
  else if (first < last * lateShare) findings.ok('stream.live', `Events arrive as they are made: ${times}.`)
  else {
    findings.fail(
      'stream.live',
      `Something on the way holds the stream back: ${times}.`,
      'Turn buffering off in the proxy before the agent (nginx: proxy_buffering off, or the header X-Accel-Buffering: no), and compression.',
    )
  }
}

function stateOf({ data }: Event): string | undefined {
  const status = { ...part(part(data, 'task'), 'status'), ...part(part(data, 'statusUpdate'), 'status') }
  return typeof status['state'] === 'string' ? status['state'] : undefined
}

function checkEnd({ findings }: Patient, events: readonly Event[]): void {
  if (events.some(({ data }) => isObject(data['message']))) {
    findings.ok('stream.end', 'The peer answered with one message, and no task.')
    return
  }
  const state = events.map(stateOf).findLast((each) => each !== undefined)
  if (state !== undefined && (isTerminal(state) || isInterrupted(state))) {
    if (state === 'TASK_STATE_COMPLETED') findings.ok('stream.end', 'The stream ends with the end of its task.')
    else
      findings.warning(
        'stream.end',
        `The task that was tried ended ${state}.`,
        'Try another one: --tool NAME --params JSON, or --message TEXT.',
      )
  } else
    findings.fail(
      'stream.end',
      `The stream ended while its task was ${state ?? 'without any state'}.`,
      'Send the last status before the stream ends; a proxy may have cut it.',
    )
}

/** Whether events have ids that one can come back with. */
function checkIds({ findings, card }: Patient, events: readonly Event[]): boolean {
  if (events.some(({ data }) => isObject(data['message']))) return false
  const ids = events.map(({ id }) => id)
  const isDense = ids.every((id, i) => id === String(i + 1))
  if (isDense) {
    findings.ok('stream.ids', 'Events are numbered from 1 without gaps.')
    return ids.length > 1
  }
  const text = ids.some((id) => id !== undefined)
    ? 'The ids of events are not 1, 2, 3 and so on.'
    : 'Events have no ids, so a stream that is cut begins anew.'
  const fix = 'Give each event the id of its place in the task, and take Last-Event-ID.'
  if (JSON.stringify(card).includes(extensionUri)) findings.fail('stream.ids', text, fix)
  else findings.warning('stream.ids', text, fix)
  return false
}

async function checkResume(patient: Patient, way: CardInterface, events: readonly Event[]): Promise<void> {
  const { findings } = patient
  const id = taskIdOf(events)
  if (id === undefined) return
  const answer = await open(patient, way, { method: 'SubscribeToTask', id, lastEventId: '1' })
  const first = headerOf(answer, 'content-type').startsWith('text/event-stream')
    ? await firstOf(answer.events())
    : undefined
  answer.body.cancel()
  if (first?.id === '2') findings.ok('stream.resume', 'With Last-Event-ID a stream goes on behind that event.')
  else {
    const got = first === undefined ? `no stream (${answer.status})` : `the event ${first.id ?? 'without an id'}`
    findings.fail(
      'stream.resume',
      `A stream that should go on behind event 1 began with ${got}.`,
      'Take Last-Event-ID on SubscribeToTask; check that the proxy passes the header on.',
    )
  }
}

async function firstOf(events: AsyncGenerator<Event, void, void>): Promise<Event | undefined> {
  try {
    const step = await events.next()
    return step.done === true ? undefined : step.value
  } finally {
    await events.return()
  }
}

function taskIdOf(events: readonly Event[]): string | undefined {
  for (const { data } of events) {
    const id =
      part(data, 'task')['id'] ?? part(data, 'statusUpdate')['taskId'] ?? part(data, 'artifactUpdate')['taskId']
    if (typeof id === 'string') return id
  }
  return undefined
}

/** Begins a task and cancels it. One that ended first tells only that the peer says so. */
async function checkCancel(patient: Patient, way: CardInterface, message: Message): Promise<void> {
  const { findings, signal } = patient
  const client = patient.client(way)
  try {
    const { task } = await client.sendMessage(message, { returnImmediately: true, signal })
    if (task === undefined) return
    const state = await client.cancelTask(task.id, { signal }).then(
      ({ status }) => status.state,
      (error: unknown) => {
        if (toPeerError(error, client.id).code === 'task_not_cancelable') return undefined
        throw error
      },
    )
    if (state === undefined)
      findings.skip(
        'cancel',
        'The task had ended before it could be cancelled, which the peer says. Name a tool that runs longer: --tool and --params.',
      )
    else if (state === 'TASK_STATE_CANCELED') findings.ok('cancel', 'A task that is cancelled stops.')
    else
      findings.fail(
        'cancel',
        `A task that was cancelled is ${state}.`,
        'Stop the work, and answer CancelTask with the task once it has ended.',
      )
  } catch (error) {
    if (signal.aborted) throw error
    findings.fail(
      'cancel',
      `A task could not be cancelled: ${toPeerError(error, client.id).sentence}`,
      'Serve CancelTask: whoever gives up must be able to stop the work.',
    )
  } finally {
    await client.close()
  }
}
