/**
 * The golden messages of test/wire/, both ways: our codecs make and read exactly them, and a node answers the golden
 * requests with exactly the golden answers. test/wire/README.md explains the files.
 */
import { createHash } from 'node:crypto'
import { once } from 'node:events'
import { mkdtemp, readFile, rm } from 'node:fs/promises'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { isDeepStrictEqual } from 'node:util'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { ConvokeError, createNode, errorCodes, type ErrorCode, type Json, type Node } from '../dist/index.js'
import type { Artifact, Message, Part, StreamResponse, Task } from '../dist/protocol/a2a.js'
import { Content } from '../dist/protocol/content.js'
import { fromAgentCard, toAgentCard, type CardFlavor, type ToolDescriptor } from '../dist/protocol/card.js'
import { parseSendMessageRequest } from '../dist/protocol/requests.js'
import {
  fromAnswerMessage,
  fromChunkArtifact,
  fromErrorMessage,
  fromLogMetadata,
  fromProgressMetadata,
  fromQuestionMessage,
  fromResultArtifact,
  readToolCall,
  toCallMessage,
  toChunkArtifact,
  toErrorMessage,
  toLogMetadata,
  toProgressMetadata,
  toQuestionMessage,
  toResultArtifact,
  type ToolCall,
  type ToolLog,
  type Chunk,
  type ToolValue,
} from '../dist/protocol/tool-call.js'
import { toRestError, toRpcError } from '../dist/protocol/wire-errors.js'
import { Player, type Step } from './wire/player.ts'
import { tools } from './wire/tools.ts'

interface Case {
  readonly name: string
  readonly description: string
  readonly version: string
  readonly binding: string
  readonly steps: readonly Step[]
  /** What the node sends to the webhook, up to the end of the task. */
  readonly deliveries?: readonly unknown[]
  /** The tool call that the first request holds; null for none. */
  readonly call?: ToolCall | null
  /** The code with which the call in the first request is refused. */
  readonly refused?: string
  /** The result, or the chunks, of the call. */
  readonly value?: unknown
  readonly values?: readonly unknown[]
}

interface Topic {
  readonly topic: string
  readonly about: string
  readonly tools: readonly string[]
  readonly auth?: boolean
  readonly store?: 'file'
  readonly maxBodyBytes?: number
  readonly cases: readonly Case[]
}

interface WireCode {
  readonly code: ErrorCode
  readonly rpc: number
  readonly rpcStatus: number
  readonly restStatus: number
  readonly status: string
  readonly reason?: string
}

async function read<T>(name: string): Promise<T> {
  return JSON.parse(await readFile(new URL(`wire/${name}.json`, import.meta.url), 'utf8')) as T
}

const names = [
  'card',
  'calls',
  'progress',
  'log',
  'chunks',
  'results',
  'rejected',
  'delegation',
  'failed',
  'canceled',
  'question',
  'sampling',
  'streams',
  'attempt',
  'push',
  'tasks',
  'errors',
  'auth',
]
const topics = await Promise.all(names.map((name) => read<Topic>(name)))
const { codes } = await read<{ codes: readonly WireCode[] }>('codes')

describe.each(topics)('the golden exchanges of $topic', (topic) => {
  let node: Node
  let folder: string
  const received: { headers: Record<string, unknown>; body: unknown }[] = []
  const webhook = createServer((req, res) => {
    let text = ''
    req.setEncoding('utf8').on('data', (more: string) => (text += more))
    req.on('end', () => {
      received.push({ headers: req.headers, body: JSON.parse(text) })
      res.end()
      webhook.emit('received')
    })
  })

  async function start(): Promise<{ node: string; webhook: string }> {
    const hash = (token: string) => createHash('sha256').update(token).digest('hex')
    const tokens = [
      { id: 'golden', sha256: hash('golden') },
      { id: 'narrow', sha256: hash('narrow'), scopes: ['tool:echo'] },
    ]
    node = await createNode({
      agent: { id: 'golden', name: 'Golden', card: 'wire/template.json' },
      baseDir: import.meta.dirname,
      tools: tools.filter((tool) => topic.tools.includes(tool.name)),
      store: { url: topic.store === 'file' ? `sqlite:${join(folder, 'convoke.db')}` : ':memory:' },
      server: {
        drainMs: 0,
        ...(topic.maxBodyBytes === undefined ? {} : { maxBodyBytes: topic.maxBodyBytes }),
        ...(topic.auth === true ? { auth: { tokens } } : {}),
      },
    })
    await node.start()
    return { node: node.url, webhook: `http://127.0.0.1:${(webhook.address() as AddressInfo).port}` }
  }

  async function restart(): Promise<{ node: string; webhook: string }> {
    await node.stop()
    return start()
  }

  let addresses: { node: string; webhook: string }
  beforeAll(async () => {
    folder = await mkdtemp(join(tmpdir(), 'convoke-wire-'))
    webhook.listen(0, '127.0.0.1')
    await once(webhook, 'listening')
    addresses = await start()
  })
  afterAll(async () => {
    await node.stop()
    webhook.closeAllConnections()
    webhook.close()
    await rm(folder, { recursive: true })
  })

  /** Pairs of what the node said and what it should have said. */
  async function play(golden: Case): Promise<{ actual: unknown; expected: unknown }[]> {
    received.length = 0
    const player = new Player(addresses, async () => (addresses = await restart()))
    const pairs = await player.play(golden.steps)
    if (golden.deliveries === undefined) return pairs
    while (!received.some(({ body }) => hasEnded(body))) await once(webhook, 'received')
    // Version 0.3 gets the task as it is when it is sent, so only the last delivery is always the same.
    const from = golden.version === '0.3' ? -1 : 0
    const seen = received.slice(from).map(({ headers, body }) => ({ headers: withoutHop(headers), body }))
    return [...pairs, player.compare(seen, golden.deliveries)]
  }

  test.each(topic.cases)('$name: $description', async (golden) => {
    for (const { actual, expected } of await play(golden)) expect(actual).toStrictEqual(expected)
  })
})

/** Whether a webhook was told of the end of a task, in either version. */
function hasEnded(body: unknown): boolean {
  return /"state":"(TASK_STATE_COMPLETED|completed)"/.test(JSON.stringify(body))
}

function withoutHop(headers: Record<string, unknown>): Record<string, unknown> {
  const { host: _host, connection: _connection, 'content-length': _length, ...rest } = headers
  return rest
}

function casesOf(topic: string): readonly Case[] {
  return topics.find((each) => each.topic === topic)?.cases ?? []
}

/** The golden value with an example in place of every placeholder. */
function exemplify<T>(value: T): T {
  const text = JSON.stringify(value, (_key, member: unknown) => {
    if (member === '<ms>') return 12.5
    if (member === '<attempt>') return 2
    if (member === '<boolean>') return true
    if (typeof member !== 'string') return member
    return member.replace(/^<text:([^]*)>$/, '$1')
  })
  return JSON.parse(text) as T
}

/** `{"$bytes": base64}` stands for bytes, which JSON has no word for. */
function toValue(golden: unknown): Chunk {
  if (typeof golden === 'object' && golden !== null && '$bytes' in golden) {
    return new Uint8Array(Buffer.from(String(golden.$bytes), 'base64'))
  }
  return golden as Json
}

/** `{"$parts": […]}` stands for a result of several parts. */
function toResult(golden: unknown): ToolValue {
  if (typeof golden === 'object' && golden !== null && '$parts' in golden) return new Content(golden.$parts as Part[])
  return toValue(golden)
}

interface RpcBody {
  readonly result: { readonly task?: Task } & Task
}

/** Of the first answer of a 1.0 JSON-RPC case. */
function taskOf(golden: Case, step = 0): Task {
  const { result } = exemplify(answered<RpcBody>(golden, step))
  return result.task ?? result
}

function eventsOf(golden: Case): StreamResponse[] {
  const events = golden.steps[0]?.response.events ?? []
  return events.map(({ data }) => exemplify((data as { result: StreamResponse }).result))
}

const isRpc = ({ version, binding }: Case): boolean => version === '1.0' && binding === 'JSONRPC'

/** The body of a step's request, or of its answer. */
function sent<T>(golden: Case | undefined, step = 0): T {
  return golden?.steps[step]?.request.body as T
}

function answered<T>(golden: Case | undefined, step = 0): T {
  return golden?.steps[step]?.response.body as T
}

interface SendParams {
  readonly params: { readonly message: Message }
}

describe('the codec of calls', () => {
  const golden = casesOf('calls')

  function read(each: Case): ToolCall | undefined {
    const body = sent<{ params?: unknown }>(each)
    const { message, metadata } = parseSendMessageRequest(body.params ?? body)
    return readToolCall(message, metadata)
  }

  test.each(golden.filter(({ call }) => call !== undefined))('reads $name', (each) => {
    expect(read(each) ?? null).toEqual(each.call)
  })

  test.each(golden.filter(({ refused }) => refused !== undefined))('refuses $name', (each) => {
    expect(() => read(each)).toThrow(expect.objectContaining({ code: each.refused }))
  })

  test.each(['call', 'call-with-options'])('makes the message of the case %s', (name) => {
    const each = golden.find((other) => other.name === name)
    const { message } = sent<SendParams>(each).params
    expect(toCallMessage(each?.call as ToolCall, '<id:call>')).toStrictEqual(message)
  })

  test('reads snake_case, lower-case roles and the file parts of older versions', () => {
    const { message } = parseSendMessageRequest({
      message: {
        message_id: 'm',
        context_id: 'c',
        role: 'user',
        parts: [
          { kind: 'text', text: 'Look.' },
          { type: 'data', data: null },
          { kind: 'file', file: { bytes: 'AAE=', mimeType: 'image/png', name: 'a.png' } },
          { kind: 'file', file: { uri: 'https://example.com/a.png' } },
        ],
      },
    })
    expect(message).toStrictEqual({
      messageId: 'm',
      contextId: 'c',
      role: 'ROLE_USER',
      parts: [
        { text: 'Look.' },
        { data: null },
        { raw: 'AAE=', filename: 'a.png', mediaType: 'image/png' },
        { url: 'https://example.com/a.png' },
      ],
    })
  })
})

describe('the codec of results', () => {
  for (const golden of casesOf('results').filter(isRpc)) {
    test(`makes and reads ${golden.name}`, () => {
      const artifact = taskOf(golden).artifacts?.[0] as Artifact
      const toolName = artifact.metadata?.['tool_name'] as string
      const result = toResult(golden.value)
      expect(toResultArtifact(result, toolName, 12.5)).toStrictEqual(artifact)
      expect(fromResultArtifact(artifact)).toStrictEqual({ result, toolName, executionTimeMs: 12.5 })
    })
  }

  test('reads a result of an older peer that names nothing but the mark', () => {
    const artifact = { artifactId: 'a', metadata: { _tool_result: true }, parts: [{ text: 'plain' }] }
    expect(fromResultArtifact(artifact)).toStrictEqual({ result: 'plain', toolName: '', executionTimeMs: undefined })
  })

  test('sees no result in an artifact without the mark', () => {
    expect(fromResultArtifact({ artifactId: 'result', parts: [{ data: { a: 1 } }] })).toBeUndefined()
  })
})

describe('the codec of chunks', () => {
  const [streamed, together] = casesOf('chunks') as [Case, Case]
  const values = streamed.values?.map(toValue) ?? []

  test('makes the chunks of the stream, one artifact each', () => {
    const artifacts = eventsOf(streamed).flatMap(({ artifactUpdate }) => {
      return artifactUpdate?.artifact.artifactId === 'stream' ? [artifactUpdate.artifact] : []
    })
    expect(values.map((value) => toChunkArtifact(value, 1))).toStrictEqual(artifacts)
  })

  test('reads the chunks from the whole artifact, in order', () => {
    expect(fromChunkArtifact(taskOf(together).artifacts?.[0] as Artifact)).toStrictEqual(values)
  })

  test('says on every chunk of a later attempt which attempt it is', () => {
    const [golden] = casesOf('attempt') as [Case]
    const events = exemplify(golden.steps[1]?.response.events ?? [])
    const update = events.map(({ data }) => (data as { result: StreamResponse }).result.artifactUpdate)[1]
    expect(toChunkArtifact('Let me see.', 2)).toStrictEqual(update?.artifact)
    expect(update?.append).toBe(false)
  })
})

describe('the codec of progress', () => {
  test('makes and reads the progress of the stream', () => {
    const [stream] = casesOf('progress') as [Case]
    const updates = eventsOf(stream).map(({ statusUpdate }) => statusUpdate?.metadata)
    const metadata = updates.filter((each) => each !== undefined)
    const progress = [1, 2].map((n) => ({ progress: n, total: 2, message: `At ${n}.` }))
    expect(progress.map(toProgressMetadata)).toStrictEqual(metadata)
    expect(metadata.map((each) => fromProgressMetadata(each))).toStrictEqual(progress)
  })
})

describe('the codec of logs', () => {
  const [golden] = casesOf('log') as [Case]

  test('makes and reads what is on the wire', () => {
    const logs: ToolLog[] = [
      { level: 'info', data: 'Looking.' },
      { level: 'warning', data: { left: 3 }, logger: 'disk' },
    ]
    const metadata = eventsOf(golden).flatMap(({ statusUpdate }) =>
      statusUpdate?.metadata === undefined ? [] : [statusUpdate.metadata],
    )
    expect(logs.map(toLogMetadata)).toStrictEqual(metadata)
    expect(metadata.map((each) => fromLogMetadata(each))).toStrictEqual(logs)
  })

  test('takes a level that it does not know for info, and reads nothing where nothing is said', () => {
    const read = (line: Json): unknown => fromLogMetadata({ _tool_log: line })
    expect(read({ level: 'loud', message: 'x', logger: 3 })).toStrictEqual({ level: 'info', data: 'x' })
    expect(read({ level: 'error', data: null })).toStrictEqual({ level: 'error', data: null })
    for (const line of [{ level: 'info' }, 'x', null, [1]] as Json[]) expect(read(line)).toBeUndefined()
    expect(fromLogMetadata(undefined)).toBeUndefined()
  })
})

describe('the codec of failures', () => {
  const golden = ['rejected', 'failed', 'canceled'].flatMap(casesOf).filter(isRpc)

  for (const each of golden.filter(({ steps }) => steps[0]?.response.body !== undefined)) {
    test(`makes and reads ${each.name}`, () => {
      const message = taskOf(each).status.message as Message
      const error = fromErrorMessage(message) as ConvokeError
      const body = message.metadata?.['_tool_error'] as Record<string, unknown>
      expect(error).toBeInstanceOf(ConvokeError)
      expect(error).toMatchObject({ code: body['code'], message: body['message'], retryable: body['retryable'] })
      expect(error.retryAfterMs).toBe(body['retry_after_ms'])
      expect(error.issues).toStrictEqual(body['issues'])
      const made = toErrorMessage(error, body['tool_name'] as string)
      expect({ ...made, messageId: '<id>' }).toStrictEqual(message)
    })
  }

  test('reads a code that it does not know as tool_failed and keeps whether to try again', () => {
    const body = { code: 'on_fire', message: 'Hot.', retryable: true, retry_after_ms: 5 }
    const parts = [{ text: 'Hot.' }]
    const error = fromErrorMessage({ messageId: 'm', role: 'ROLE_AGENT', parts, metadata: { _tool_error: body } })
    expect(error).toMatchObject({ code: 'tool_failed', message: 'Hot.', retryable: true, retryAfterMs: 5 })
  })
})

describe('the codec of questions', () => {
  const golden = casesOf('question').find(({ name }) => name === 'question') as Case

  test('makes the question', () => {
    const message = taskOf(golden).status.message as Message
    const question = message.metadata?.['_tool_question'] as { [key: string]: { [key: string]: Json } } | undefined
    const made = toQuestionMessage({ message: 'What is your name?', schema: question?.['schema'] ?? {} }, 'survey')
    expect({ ...made, messageId: '<id>' }).toStrictEqual(message)
  })

  test('makes and reads the question for a language model', () => {
    const [asked] = casesOf('sampling') as [Case]
    const message = taskOf(asked).status.message as Message
    const question = fromQuestionMessage(message)
    expect(question).toMatchObject({ message: 'What is 2 + 2?', sampling: { maxTokens: 10 } })
    const made = toQuestionMessage(question ?? { message: '' }, 'consult')
    expect({ ...made, messageId: '<id>' }).toStrictEqual(message)
  })

  test('reads the answer from a data part, from a wrapped one, and from text', () => {
    const answer = (parts: Message['parts']): Json => fromAnswerMessage({ messageId: 'm', role: 'ROLE_USER', parts })
    expect(answer(sent<SendParams>(golden, 2).params.message.parts)).toStrictEqual({ name: 'Ann' })
    expect(answer([{ data: { result: 7 }, metadata: { _tool_result_wrapped: true } }])).toBe(7)
    expect(answer([{ data: { result: 7 } }])).toStrictEqual({ result: 7 })
    expect(answer([{ text: 'Ann' }, { text: 'Lee' }])).toBe('Ann\nLee')
  })
})

describe('the codec of cards', () => {
  const descriptors: ToolDescriptor[] = tools
    .filter(({ name }) => name === 'count_to' || name === 'picture')
    .map(({ name, description, input, output, traits }) => ({
      name,
      description,
      tags: traits.category === undefined ? [] : [traits.category, ...(traits.tags ?? [])],
      inputSchema: input,
      ...(output === undefined ? {} : { outputSchema: output }),
      annotations: { readOnlyHint: false, idempotentHint: traits.idempotent === true },
    }))
  const flavors: [string, CardFlavor][] = [
    ['card-1.0', '1.0'],
    ['card-0.3', '0.3'],
    ['card-unversioned', 'both'],
  ]

  test.each(flavors)('makes the %s and reads the tools from it', async (name, flavor) => {
    const card = answered<unknown>(casesOf('card').find((each) => each.name === name))
    const template = { ...(await read<{ [key: string]: Json }>('template')), name: 'Golden' }
    const made = toAgentCard(
      {
        template,
        url: '<url>',
        tools: descriptors,
        security: undefined,
        streaming: true,
        pushNotifications: true,
        extendedCard: false,
        public: true,
      },
      flavor,
    )
    expect(made).toStrictEqual(card)
    expect(fromAgentCard(card)).toStrictEqual({ tools: descriptors })
  })

  test('reads the tools of a card whose skills carry no schemas from the params of the extension', () => {
    const golden = casesOf('auth').find(({ name }) => name === 'extended-card')
    const { result } = answered<{ result: unknown }>(golden)
    const { tools: found } = fromAgentCard(result)
    expect(found.map(({ name, inputSchema }) => [name, inputSchema !== undefined])).toStrictEqual([['echo', true]])
  })

  test('reads a card without the extension from its skills, and leaves ordinary skills out', () => {
    const schema = { type: 'object' }
    const skills = [
      { id: 'chat', name: 'Chat', description: 'Talks.', tags: ['talk'] },
      { id: 'tool-add', name: 'add', description: 'Adds.', tags: ['tool', 'maths'], input_schema: schema },
      { id: 'tool-bare', name: 'bare', description: 'Says no schema.', tags: ['tool'] },
    ]
    expect(fromAgentCard({ skills })).toStrictEqual({
      tools: [
        { name: 'add', description: 'Adds.', tags: ['maths'], inputSchema: schema },
        { name: 'bare', description: 'Says no schema.', tags: [] },
      ],
    })
  })

  test('reads where the list is when the schemas are not on the card', () => {
    const params = { tools_url: 'https://node.example/tools' }
    const extensions = [{ uri: 'urn:convoke:tool-call:v1', params }]
    expect(fromAgentCard({ capabilities: { extensions }, skills: [] })).toStrictEqual({
      tools: [],
      toolsUrl: 'https://node.example/tools',
    })
  })
})

describe('the codec of errors', () => {
  test.each(codes)('$code is $rpc in JSON-RPC and $restStatus in HTTP+JSON', (golden) => {
    const { code, rpc, rpcStatus, restStatus, status, reason } = golden
    const error = new ConvokeError(code, 'Said so.')
    const asRpc = toRpcError(error)
    const asRest = toRestError(error)
    expect({ rpcStatus: asRpc.httpStatus, rpc: asRpc.error.code, message: asRpc.error.message }).toStrictEqual({
      rpcStatus,
      rpc,
      message: 'Said so.',
    })
    expect({ ...asRest.body.error, details: [] }).toStrictEqual({
      code: restStatus,
      status,
      message: 'Said so.',
      details: [],
    })
    expect(asRest.httpStatus).toBe(restStatus)
    expect(asRest.body.error.details[0]?.['reason']).toBe(reason)
  })

  test('a code that is not in the list leaves as an internal error without its words', () => {
    const known = new Set<string>(codes.map(({ code }) => code))
    for (const code of Object.keys(errorCodes).filter((each) => !known.has(each)) as ErrorCode[]) {
      const { error } = toRpcError(new ConvokeError(code, 'Inner words.'))
      expect(error.code).toBe(-32603)
      expect(error.message).not.toContain('Inner words.')
    }
  })
})

describe('docs/protocol.md', async () => {
  const source = await readFile(new URL('../docs/protocol.md', import.meta.url), 'utf8')
  // The formatter pads the columns of tables.
  const text = source.replace(/(?<=\|[^\n]*) +/g, ' ')
  const examples = [...source.matchAll(/^```json\n([^]*?)^```$/gm)].map(
    ([, example]) => JSON.parse(example ?? '') as unknown,
  )

  test.each(examples.map((example, index) => [index + 1, example]))(
    'has example %i from the golden files',
    (_, example) => {
      expect(topics.some((topic) => holds(topic, example))).toBe(true)
    },
  )

  test('has each error code in one of its tables, with its own numbers', () => {
    for (const { rpc, rpcStatus, restStatus, status, reason } of codes) {
      expect(text).toContain(`| ${rpc} | ${rpcStatus} | ${restStatus} | ${status} | ${reason ?? ''}`)
    }
    const ofProtocol = new Set<string>(codes.map(({ code }) => code))
    for (const [code, { retryable, retries }] of Object.entries(errorCodes)) {
      if (code === 'config' || (ofProtocol.has(code) && !text.includes(`| \`${code}\` |`))) continue
      const advice = new RegExp(`^\\| \`${code}\` \\| .* \\| ${retryable ? `(${retries} times|once)` : 'no'}`, 'm')
      expect(text).toMatch(advice)
    }
  })
})

/** Whether a value has another one in it, at any depth. */
function holds(value: unknown, part: unknown): boolean {
  if (isDeepStrictEqual(value, part)) return true
  return typeof value === 'object' && value !== null && Object.values(value).some((member) => holds(member, part))
}

describe('the stream on the wire', () => {
  let node: Node
  beforeAll(async () => {
    node = await createNode({ agent: { id: 'golden' }, tools: [...tools], server: { heartbeatMs: 10, drainMs: 0 } })
    await node.start()
  })
  afterAll(() => node.stop())

  test('is events of an id line and one data line, and a comment while nothing happens', async () => {
    const message = toCallMessage({ name: 'hold', params: {} })
    const answer = await fetch(`${node.url}/message:stream`, {
      method: 'POST',
      headers: { 'content-type': 'application/a2a+json', 'a2a-version': '1.0' },
      body: JSON.stringify({ message }),
    })
    expect(answer.headers.get('content-type')).toBe('text/event-stream')
    expect(answer.headers.get('cache-control')).toBe('no-cache, no-transform')
    expect(answer.headers.get('x-accel-buffering')).toBe('no')
    let text = ''
    for await (const bytes of answer.body ?? []) {
      text += Buffer.from(bytes as Uint8Array).toString()
      if (text.includes('\n:\n\n')) break
    }
    expect(text).toMatch(/^(id: \d+\ndata: \{.*\}\n\n){3}(:\n\n)+$/)
  })

  test('ends with the task, and its ids are 1, 2, 3', async () => {
    const message = toCallMessage({ name: 'echo', params: { value: 1 } })
    const answer = await fetch(`${node.url}/message:stream`, {
      method: 'POST',
      headers: { 'content-type': 'application/a2a+json', 'a2a-version': '1.0' },
      body: JSON.stringify({ message }),
    })
    const text = await answer.text()
    expect([...text.matchAll(/^id: (\d+)$/gm)].map(([, id]) => Number(id))).toStrictEqual([1, 2, 3, 4])
  })
})

describe('a card that would be too large', () => {
  test('names the list of tools, whose pages together hold every tool once', async () => {
    const [echo] = tools
    if (echo === undefined) throw new Error('There are no tools.')
    const description = 'Says much. '.repeat(100)
    const many = Array.from({ length: 250 }, (_, i) => ({ ...echo, name: `echo_${i}`, description }))
    const node = await createNode({ agent: { id: 'golden' }, tools: many })
    await node.start()
    try {
      const card: unknown = await (await fetch(`${node.url}/.well-known/agent-card.json`)).json()
      const { tools: onCard, toolsUrl } = fromAgentCard(card)
      expect(toolsUrl).toBe(`${node.url}/tools`)
      expect(onCard.every(({ inputSchema }) => inputSchema === undefined)).toBe(true)
      const listed: string[] = []
      let token = ''
      do {
        const url = new URL(toolsUrl ?? '')
        if (token !== '') url.searchParams.set('page_token', token)
        const page = (await (await fetch(url)).json()) as {
          tools: { name: string; input_schema: unknown }[]
          next_page_token: string
        }
        for (const { name, input_schema: schema } of page.tools) {
          expect(schema).toStrictEqual(echo.input)
          listed.push(name)
        }
        token = page.next_page_token
      } while (token !== '')
      expect(listed.toSorted()).toStrictEqual(many.map(({ name }) => name).toSorted())
    } finally {
      await node.stop()
    }
  })
})
