/**
 * The log: pino, one JSON line an event, on stderr (stdout belongs to what a command prints). On a terminal
 * one short line for people instead. Secrets are taken out here, so that no caller has to remember it.
 */
import { styleText } from 'node:util'
import { pino } from 'pino'
import { ConvokeError, reasonsOf, type ErrorCode } from './errors.ts'
import { isObject } from './json.ts'
import type { Logger } from './logger.ts'
import { isSecret, redacted, redactText } from './secrets.ts'
import { stripControls } from './text.ts'

/** What {@link createLog} makes. */
export type Log = Logger

export type LogLevel = 'silent' | 'error' | 'warn' | 'info' | 'debug'

export interface LogOptions {
  /** One line for people instead of JSON. Default: whether stderr is a terminal. */
  readonly pretty?: boolean
  /** Colours in pretty lines. Default: whether stderr has them; NO_COLOR turns them off. */
  readonly color?: boolean
  /** Gets each finished line with its newline. Default: writes to stderr, at once, so that a crash loses none. */
  readonly write?: (line: string) => void
}

/**
 * A log that writes what is at least as grave as `level`. Details are JSON-like values and errors: an error
 * anywhere in them is written with its stack and its chain of causes, unless it is one of ours that is no
 * defect: that is one line, but at level debug. Values under keys that name a secret
 * (`authorization`, `token`, `apiKey`, `password`, …) and bearer tokens in texts become `[redacted]`.
 */
export function createLog(level: LogLevel, options: LogOptions = {}): Log {
  const write = options.write
  const stderr = write === undefined ? pino.destination({ fd: 2, sync: true }) : { write }
  const pretty = options.pretty ?? process.stderr.isTTY
  const color = options.color ?? (process.stderr.isTTY && process.stderr.hasColors())
  const destination = pretty ? { write: (line: string) => stderr.write(toPretty(line, color)) } : stderr
  const logger = pino(
    {
      level,
      base: null,
      timestamp: pino.stdTimeFunctions.isoTime,
      formatters: { level: (label) => ({ level: label }) },
    },
    destination,
  )
  // Asked before the details are copied: most lines are not written.
  const writer = (grade: keyof Logger) => (details: object | string, message?: string) => {
    if (grades[grade] < grades[level]) return
    if (typeof details === 'string') return logger[grade](safeText(message ?? details))
    const text = message ?? (details instanceof Error ? details.message : '')
    logger[grade](loggableDetails(details ?? {}, level === 'debug'), safeText(String(text)))
  }
  return { debug: writer('debug'), info: writer('info'), warn: writer('warn'), error: writer('error') }
}

const grades = { debug: 0, info: 1, warn: 2, error: 3, silent: 4 } as const

const maxDepth = 8
const maxItems = 100
const maxValues = 2_000
const maxText = 16_384

/** What is left to be written, and how. */
interface Budget {
  left: number
  /** All errors with stacks and causes. */
  readonly isFull: boolean
}

function loggableDetails(details: object, isFull: boolean): object {
  const budget = { left: maxValues, isFull }
  const value = loggable(details instanceof Error ? { error: details } : details, 0, budget)
  return isObject(value) ? value : { details: value }
}

/** A copy that is safe to write: no secrets, no cycles, errors spelled out, at most about `maxValues` values. */
function loggable(value: unknown, depth: number, budget: Budget): unknown {
  budget.left--
  switch (typeof value) {
    case 'string':
      return safeText(value)
    case 'bigint':
    case 'symbol':
      return String(value)
    case 'function':
      return '[function]'
    case 'object':
      break
    default:
      return value
  }
  if (value === null) return null
  if (depth > maxDepth) return '[deeper]'
  if (value instanceof Error) return loggableError(value, depth, budget)
  if (budget.left < 0) return '[more]'
  if (ArrayBuffer.isView(value) || value instanceof ArrayBuffer) return `[${value.byteLength} bytes]`
  if (Array.isArray(value)) {
    const items = value.slice(0, maxItems).map((item) => loggable(item, depth + 1, budget))
    return value.length > maxItems ? [...items, `[${value.length - maxItems} more]`] : items
  }
  if (value instanceof Map || value instanceof Set) return loggable([...value], depth, budget)
  if (hasJson(value)) return loggable(value.toJSON(), depth + 1, budget)
  const copy: Record<string, unknown> = {}
  let members = 0
  for (const [key, member] of Object.entries(value)) {
    if (++members > maxItems) {
      copy['…'] = '[more]'
      break
    }
    copy[key] = isSecret(key, member) ? redacted : loggable(member, depth + 1, budget)
  }
  return copy
}

function hasJson(value: object): value is { toJSON(): unknown } {
  return 'toJSON' in value && typeof value.toJSON === 'function'
}

/** The codes of a defect, ours or that of a tool: somebody has to find its place in the code. */
const defects: readonly string[] = ['internal', 'tool_failed'] satisfies ErrorCode[]

/** Peers that are down, calls that are refused and the like: a stack would show where we noticed it, which helps nobody. */
function isExpected(error: Error): boolean {
  return error instanceof ConvokeError && !defects.includes(error.code)
}

/** Only the members that tell what happened: foreign errors carry requests, headers and token payloads along. */
function loggableError(error: Error, depth: number, budget: Budget): object {
  const { code, issues } = error as { code?: unknown; issues?: unknown }
  const isAggregate = error instanceof AggregateError
  const isShort = !budget.isFull && isExpected(error)
  const why = isShort ? reasonsOf(error) : ''
  return {
    name: error.name,
    message: safeText(error.message),
    ...(typeof code === 'string' || typeof code === 'number' ? { code } : {}),
    ...(issues === undefined ? {} : { issues: loggable(issues, depth + 1, budget) }),
    ...(isShort ? {} : { stack: safeText(error.stack ?? '') }),
    ...(why === '' ? {} : { cause: safeText(why) }),
    ...(isShort || error.cause === undefined ? {} : { cause: loggable(error.cause, depth + 1, budget) }),
    ...(isAggregate ? { errors: loggable(error.errors, depth + 1, budget) } : {}),
  }
}

function safeText(text: string): string {
  return redactText(text.length > maxText ? `${text.slice(0, maxText)}… [${text.length} characters]` : text)
}

const levelStyles = { debug: 'gray', info: 'green', warn: 'yellow', error: 'red' } as const

/** `12:30:05.123 warn  The message key=value` and, below it, the stacks of errors. */
function toPretty(line: string, color: boolean): string {
  const { level, time, msg, ...details } = JSON.parse(line) as Record<string, unknown>
  const style = (format: 'gray' | 'green' | 'yellow' | 'red' | 'bold', text: string) =>
    color ? styleText(format, text, { validateStream: false }) : text
  const name = typeof level === 'string' && level in levelStyles ? (level as keyof typeof levelStyles) : 'info'
  const clock = new Date(String(time)).toTimeString().slice(0, 8)
  const stacks: string[] = []
  const fields = Object.entries(details).map(([key, value]) => {
    if (isObject(value) && value['stack'] === undefined && typeof value['code'] === 'string') {
      const { message, code, cause } = value
      if (typeof message === 'string') {
        const why = typeof cause === 'string' ? `; ${cause}` : ''
        return `${key}=${JSON.stringify(`${message} (${code}${why})`)}`
      }
    }
    if (!isObject(value) || typeof value['stack'] !== 'string') return `${key}=${JSON.stringify(value)}`
    for (let cause: unknown = value; isObject(cause); cause = cause['cause']) {
      stacks.push(`${cause === value ? '' : 'Caused by: '}${String(cause['stack'] ?? cause['message'])}`)
    }
    return `${key}=${JSON.stringify(value['message'])}`
  })
  const said = typeof msg === 'string' ? toShown(msg) : ''
  const head = `${style('gray', clock)} ${style(levelStyles[name], name.padEnd(5))} ${said}`
  const tail = fields.length === 0 ? '' : ` ${style('gray', toShown(fields.join(' ')))}`
  const below = stacks.map((stack) => `\n${style('gray', toShown(stack).replace(/^/gm, '    '))}`).join('')
  return `${head}${tail}${below}\n`
}

/** Messages, names and stacks may hold what strangers have said: that moves no cursor and sets no colour. */
function toShown(text: string): string {
  return stripControls(text.replace(/\r\n?/g, '\n'))
}
