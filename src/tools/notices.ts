/** What a tool says for its caller's log, on its way there: not too much of it, and no line too long. */
import { ConvokeError } from '../base/errors.ts'
import { isObject } from '../base/json.ts'
import { isToolLogLevel, toolLogLevels, type ToolLog } from '../protocol/tool-call.ts'
import { describeIssues } from './issues.ts'
import { clip, excerpt, findNotJson } from './value.ts'

/** Lines of one call in one second, and characters in them; the rest is counted. */
const maxLines = 100
const maxCharsInAll = 64 * 1024
const secondMs = 1_000
/** Of a text, or of JSON as text. */
const maxChars = 8_000
const maxLogger = 200
/** In the data of the line that tells what was left out. */
const leftOutKey = 'left_out'

/** Takes a line; false where there is no room for it. The last one of a call is to be taken in any case. */
export type SendLog = (log: ToolLog, isLast: boolean) => boolean

export class Notices {
  readonly #send: SendLog
  #lines = 0
  #chars = 0
  #leftOut = 0
  #begunAt = -Infinity
  #timer: NodeJS.Timeout | undefined
  #isClosed = false

  constructor(send: SendLog) {
    this.#send = send
  }

  /** Passes a line on, or counts it. Throws `invalid_result` for what is none. */
  say(log: ToolLog): void {
    if (this.#isClosed) return
    if (performance.now() - this.#begunAt >= secondMs) this.#beginAnew()
    if (this.#lines < maxLines && this.#chars < maxCharsInAll) {
      const line = checkLog(log)
      if (this.#send(line, false)) {
        this.#lines++
        this.#chars += typeof line.data === 'string' ? line.data.length : JSON.stringify(line.data).length
        return
      }
    }
    this.#leftOut += leftOutBefore(log) ?? 1
    this.#timer ??= setTimeout(() => this.#beginAnew(), secondMs).unref()
  }

  /** Says how many were left out; nothing is said afterwards. To be called before the result leaves. */
  close(): void {
    if (this.#isClosed) return
    this.#isClosed = true
    clearTimeout(this.#timer)
    this.#tell(true)
  }

  #beginAnew(): void {
    clearTimeout(this.#timer)
    this.#timer = undefined
    this.#lines = 0
    this.#chars = 0
    this.#begunAt = performance.now()
    this.#tell(false)
  }

  #tell(isLast: boolean): void {
    if (this.#leftOut === 0) return
    const data = {
      [leftOutKey]: this.#leftOut,
      reason: `A tool may log ${maxLines} lines in a second, and ${maxCharsInAll} characters.`,
    }
    if (this.#send({ level: 'warning', data }, isLast)) this.#leftOut = 0
  }
}

/** How many lines a line stands for that an earlier node of a chain has left out: they are not to be lost with it. */
function leftOutBefore({ data }: ToolLog): number | undefined {
  const count = isObject(data) ? data[leftOutKey] : undefined
  return typeof count === 'number' && Number.isSafeInteger(count) && count > 0 ? count : undefined
}

/** A copy, cut to what may leave: the tool may go on with its object. */
function checkLog({ level, data, logger }: ToolLog): ToolLog {
  if (!isToolLogLevel(level))
    throw new ConvokeError(
      'invalid_result',
      `context.notice takes a level of ${toolLogLevels.join(', ')}, got ${excerpt(level)}.`,
    )
  const more = logger === undefined ? {} : { logger: clip(String(logger), maxLogger) }
  if (typeof data === 'string') return { level, data: clip(data, maxChars), ...more }
  const issue = findNotJson(data)
  if (issue !== undefined)
    throw new ConvokeError('invalid_result', `The data of context.notice is no JSON: ${describeIssues([issue])}`)
  const text = JSON.stringify(data)
  return { level, data: text.length > maxChars ? clip(text, maxChars) : (JSON.parse(text) as ToolLog['data']), ...more }
}
