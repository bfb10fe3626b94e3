/**
 * Requests from strangers, made into our own shapes. Strict about what the specification requires, generous in
 * spelling: snake_case as ProtoJSON allows it, lower-case roles, and the part forms of A2A 0.2 and 0.3. Unknown fields
 * are dropped. Everything here throws `invalid_params` with the fields that are wrong.
 */
import { ConvokeError, type Issue } from '../base/errors.ts'
import { isObject, type Json, type JsonObject } from '../base/json.ts'
import {
  taskStates,
  type ListTasksRequest,
  type Message,
  type Part,
  type PushConfig,
  type SendMessageRequest,
  type TaskState,
} from './a2a.ts'

/** How many tasks a page holds unless the caller says otherwise, and at most. A2A specification 3.1.4. */
const pageSizes = { default: 50, most: 100 }
const maxIdLength = 1024

type Fields = Record<string, unknown>

/** Reads fields of one object and gathers what is wrong with them. */
class Reader {
  readonly issues: Issue[]
  readonly #fields: Fields
  readonly #path: string

  constructor(fields: Fields, path: string, issues: Issue[]) {
    this.#fields = fields
    this.#path = path
    this.issues = issues
  }

  /** The field's value; null counts as absent, as in ProtoJSON. */
  get(name: string): unknown {
    const value = this.#fields[name]
    if (value !== undefined && value !== null) return value
    const snake = this.#fields[snakeCase(name)]
    return snake === null ? undefined : snake
  }

  path(name: string): string {
    return `${this.#path}/${name}`
  }

  wrong(name: string, message: string): undefined {
    this.issues.push({ path: this.path(name), message })
    return undefined
  }

  string(name: string): string | undefined {
    const value = this.get(name)
    if (value === undefined || value === '') return undefined
    return typeof value === 'string' ? value : this.wrong(name, `must be a string, got ${kind(value)}`)
  }

  /** An id: a string of bounded length that any database holds. */
  id(name: string): string | undefined {
    const value = this.string(name)
    if (value !== undefined && /[\0\p{Surrogate}]/u.test(value))
      return this.wrong(name, 'must be well-formed Unicode without NUL')
    if (value === undefined || value.length <= maxIdLength) return value
    return this.wrong(name, `must be at most ${maxIdLength} characters long, got ${value.length}`)
  }

  required(name: string): string {
    const count = this.issues.length
    const value = this.id(name)
    if (value === undefined && this.issues.length === count) this.wrong(name, 'is required')
    return value ?? ''
  }

  object(name: string): JsonObject | undefined {
    const value = this.get(name)
    if (value === undefined) return undefined
    return isObject(value) ? (value as JsonObject) : this.wrong(name, `must be an object, got ${kind(value)}`)
  }

  strings(name: string): string[] | undefined {
    const value = this.get(name)
    if (value === undefined) return undefined
    if (Array.isArray(value) && value.every((item) => typeof item === 'string')) return value
    return this.wrong(name, 'must be an array of strings')
  }

  /** Query strings carry numbers and booleans as text. */
  integer(name: string, least: number, most = Number.MAX_SAFE_INTEGER): number | undefined {
    const value = this.get(name)
    if (value === undefined || value === '') return undefined
    const number = typeof value === 'string' ? Number(value) : value
    if (typeof number === 'number' && Number.isInteger(number) && number >= least && number <= most) return number
    const range = most === Number.MAX_SAFE_INTEGER ? `${least} or more` : `from ${least} to ${most}`
    return this.wrong(name, `must be an integer, ${range}, got ${excerpt(value)}`)
  }

  boolean(name: string): boolean | undefined {
    const value = this.get(name)
    if (value === undefined || value === '') return undefined
    if (value === true || value === 'true') return true
    if (value === false || value === 'false') return false
    return this.wrong(name, `must be true or false, got ${excerpt(value)}`)
  }
}

const snakeNames = new Map<string, string>()

function snakeCase(name: string): string {
  let snake = snakeNames.get(name)
  if (snake === undefined) {
    snake = name.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`)
    snakeNames.set(name, snake)
  }
  return snake
}

function kind(value: unknown): string {
  if (value === undefined) return 'nothing'
  return value === null ? 'null' : Array.isArray(value) ? 'an array' : `a ${typeof value}`
}

function excerpt(value: unknown): string {
  const text = JSON.stringify(value) ?? String(value)
  return text.length > 60 ? `${text.slice(0, 60)}…` : text
}

/** Hands the object to `read` and throws what it found wrong. */
function parse<T>(value: unknown, path: string, what: string, read: (reader: Reader) => T): T {
  const issues: Issue[] = []
  if (!isObject(value)) {
    const text = `${what} must be an object, got ${kind(value)}.`
    throw new ConvokeError('invalid_params', text, { issues: [{ path, message: text }] })
  }
  const result = read(new Reader(value, path, issues))
  const first = issues[0]
  if (first !== undefined) {
    const text = issues.map((issue) => `${issue.path.slice(1).replaceAll('/', '.')} ${issue.message}`).join('; ')
    throw new ConvokeError('invalid_params', `Invalid parameters: ${text}.`, { issues })
  }
  return result
}

export function parseSendMessageRequest(value: unknown): SendMessageRequest {
  return parse(value, '', 'The parameters', (reader) => {
    const raw = reader.get('message')
    const request: SendMessageRequest = {
      message: isObject(raw)
        ? readMessage(new Reader(raw, '/message', reader.issues))
        : (reader.wrong('message', raw === undefined ? 'is required' : `must be an object, got ${kind(raw)}`),
          noMessage),
    }
    const tenant = reader.id('tenant')
    if (tenant !== undefined) request.tenant = tenant
    const metadata = reader.object('metadata')
    if (metadata !== undefined) request.metadata = metadata
    const configuration = reader.object('configuration')
    if (configuration !== undefined) {
      request.configuration = readConfiguration(new Reader(configuration, '/configuration', reader.issues))
    }
    return request
  })
}

const noMessage: Message = { messageId: '', role: 'ROLE_USER', parts: [] }

function readMessage(reader: Reader): Message {
  const message: Message = { messageId: reader.required('messageId'), role: readRole(reader), parts: [] }
  const contextId = reader.id('contextId')
  if (contextId !== undefined) message.contextId = contextId
  const taskId = reader.id('taskId')
  if (taskId !== undefined) message.taskId = taskId
  const parts = reader.get('parts')
  if (!Array.isArray(parts)) {
    reader.wrong('parts', parts === undefined ? 'is required' : `must be an array, got ${kind(parts)}`)
  } else if (parts.length === 0) {
    reader.wrong('parts', 'must hold at least one part')
  } else {
    message.parts = parts.map((part: unknown, index) =>
      readPart(part, `${reader.path('parts')}/${index}`, reader.issues),
    )
  }
  const metadata = reader.object('metadata')
  if (metadata !== undefined) message.metadata = metadata
  const extensions = reader.strings('extensions')
  if (extensions !== undefined && extensions.length > 0) message.extensions = extensions
  const references = reader.strings('referenceTaskIds')
  if (references !== undefined && references.length > 0) message.referenceTaskIds = references
  return message
}

function readRole(reader: Reader): Message['role'] {
  const role = reader.get('role')
  if (role === 'ROLE_USER' || role === 'user' || role === 1) return 'ROLE_USER'
  // What comes in is said by the caller; the agent's own words are told apart from it by the role.
  reader.wrong('role', role === undefined ? 'is required' : `must be ROLE_USER, got ${excerpt(role)}`)
  return 'ROLE_USER'
}

/** Also takes `{kind | type: "file", file: {bytes | uri, mimeType, name}}`, as 0.2 and 0.3 wrote it. */
function readPart(value: unknown, path: string, issues: Issue[]): Part {
  if (!isObject(value)) {
    issues.push({ path, message: `must be an object, got ${kind(value)}` })
    return {}
  }
  const reader = new Reader(value, path, issues)
  const part: Part = {}
  const file = isObject(value['file']) ? new Reader(value['file'], `${path}/file`, issues) : undefined
  let contents = 0
  if (value['text'] !== undefined && value['text'] !== null) {
    contents++
    if (typeof value['text'] === 'string') part.text = value['text']
    else reader.wrong('text', `must be a string, got ${kind(value['text'])}`)
  }
  const raw = value['raw'] ?? file?.get('bytes')
  if (raw !== undefined && raw !== null) {
    contents++
    if (typeof raw === 'string') part.raw = raw
    else reader.wrong('raw', `must be base64 text, got ${kind(raw)}`)
  }
  const url = value['url'] ?? file?.get('uri')
  if (url !== undefined && url !== null) {
    contents++
    if (typeof url === 'string') part.url = url
    else reader.wrong('url', `must be a string, got ${kind(url)}`)
  }
  // data is a google.protobuf.Value: null is a value, not an absence.
  if ('data' in value && value['data'] !== undefined) {
    contents++
    part.data = value['data'] as Json
  }
  if (contents !== 1) {
    const message = `must hold exactly one of text, raw, url and data, got ${contents === 0 ? 'none' : contents}`
    issues.push({ path, message })
  }
  const metadata = reader.object('metadata')
  if (metadata !== undefined) part.metadata = metadata
  const filename = reader.string('filename') ?? file?.string('name')
  if (filename !== undefined) part.filename = filename
  const mediaType = reader.string('mediaType') ?? file?.string('mimeType')
  if (mediaType !== undefined) part.mediaType = mediaType
  return part
}

function readConfiguration(reader: Reader): NonNullable<SendMessageRequest['configuration']> {
  const configuration: NonNullable<SendMessageRequest['configuration']> = {}
  const modes = reader.strings('acceptedOutputModes')
  if (modes !== undefined) configuration.acceptedOutputModes = modes
  const historyLength = reader.integer('historyLength', 0)
  if (historyLength !== undefined) configuration.historyLength = historyLength
  const returnImmediately = reader.boolean('returnImmediately')
  if (returnImmediately !== undefined) configuration.returnImmediately = returnImmediately
  const push = reader.object('taskPushNotificationConfig')
  if (push !== undefined) {
    configuration.taskPushNotificationConfig = readPush(
      new Reader(push, '/configuration/taskPushNotificationConfig', reader.issues),
    )
  }
  return configuration
}

function readPush(reader: Reader): Omit<PushConfig, 'id' | 'taskId'> & { id?: string } {
  const url = reader.required('url')
  if (url !== '') {
    const parsed = URL.canParse(url) ? new URL(url) : undefined
    if (parsed === undefined || (parsed.protocol !== 'http:' && parsed.protocol !== 'https:')) {
      reader.wrong('url', `must be an http or https URL, got ${excerpt(url)}`)
    }
  }
  const push: Omit<PushConfig, 'id' | 'taskId'> & { id?: string } = { url }
  const id = reader.id('id')
  if (id !== undefined) push.id = id
  const token = reader.string('token')
  if (token !== undefined) push.token = token
  const authentication = reader.object('authentication')
  if (authentication !== undefined) {
    const auth = new Reader(authentication, reader.path('authentication'), reader.issues)
    const scheme = auth.string('scheme')
    const credentials = auth.string('credentials')
    if (scheme !== undefined) push.authentication = { scheme, ...(credentials === undefined ? {} : { credentials }) }
  }
  return push
}

/** `{id}` of GetTask, CancelTask and SubscribeToTask. */
export function parseTaskRequest(value: unknown): { id: string; tenant?: string; historyLength?: number } {
  return parse(value, '', 'The parameters', (reader) => {
    const tenant = reader.id('tenant')
    const historyLength = reader.integer('historyLength', 0)
    return {
      id: reader.required('id'),
      ...(tenant === undefined ? {} : { tenant }),
      ...(historyLength === undefined ? {} : { historyLength }),
    }
  })
}

export function parseListTasksRequest(value: unknown): ListTasksRequest & { pageSize: number } {
  return parse(value ?? {}, '', 'The parameters', (reader) => {
    const request: ListTasksRequest & { pageSize: number } = {
      pageSize: reader.integer('pageSize', 1, pageSizes.most) ?? pageSizes.default,
    }
    const tenant = reader.id('tenant')
    if (tenant !== undefined) request.tenant = tenant
    const contextId = reader.id('contextId')
    if (contextId !== undefined) request.contextId = contextId
    const status = reader.string('status')
    if (status !== undefined && status !== 'TASK_STATE_UNSPECIFIED') {
      if (taskStates.has(status)) request.status = status as TaskState
      else reader.wrong('status', `must be one of ${[...taskStates].join(', ')}, got ${excerpt(status)}`)
    }
    const pageToken = reader.string('pageToken')
    if (pageToken !== undefined) request.pageToken = pageToken
    const historyLength = reader.integer('historyLength', 0)
    if (historyLength !== undefined) request.historyLength = historyLength
    const from = reader.string('statusTimestampAfter')
    if (from !== undefined) {
      if (Number.isNaN(Date.parse(from)))
        reader.wrong('statusTimestampAfter', `must be an ISO 8601 time, got ${excerpt(from)}`)
      else request.statusTimestampAfter = from
    }
    const includeArtifacts = reader.boolean('includeArtifacts')
    if (includeArtifacts !== undefined) request.includeArtifacts = includeArtifacts
    return request
  })
}

export interface PushConfigRequest extends Omit<PushConfig, 'id'> {
  id?: string
  tenant?: string
}

export function parsePushConfig(value: unknown): PushConfigRequest {
  return parse(value, '', 'The parameters', (reader) => {
    const tenant = reader.id('tenant')
    const taskId = reader.required('taskId')
    return { ...readPush(reader), taskId, ...(tenant === undefined ? {} : { tenant }) }
  })
}

/** `{taskId, id}` of the push configuration methods; `id` is absent when listing. */
export function parsePushRequest(value: unknown, needsId: boolean): { taskId: string; id: string; tenant?: string } {
  return parse(value, '', 'The parameters', (reader) => {
    const tenant = reader.id('tenant')
    return {
      taskId: reader.required('taskId'),
      id: needsId ? reader.required('id') : '',
      ...(tenant === undefined ? {} : { tenant }),
    }
  })
}
