/**
 * What a call shows while it runs and at its end. On stdout stands what the tool says: for people as text, else a line of
 * JSON each, the result last; bytes as they are. On stderr stands how far it is.
 */
import { writeFile } from 'node:fs/promises'
import { stripControls } from '../../base/text.ts'
import type { Part } from '../../protocol/a2a.ts'
import { Content, isContent } from '../../protocol/content.ts'
import type { RemoteTask, ToolEvent, ToolValue } from '../../tools/tool.ts'
import { clip } from '../../tools/value.ts'
import { ClientFailure, usageFailure } from '../a2a/failure.ts'

export interface OutputOptions {
  /** `json`: one document at the end; `lines`: each event as a line of JSON. */
  readonly form: 'text' | 'json' | 'lines'
  /** Where the result goes in place of stdout. */
  readonly out: string | undefined
}

/** Characters of a progress bar. */
const barWidth = 24
const defaultColumns = 80

export class CallOutput {
  readonly #options: OutputOptions
  readonly #isTerminal = process.stdout.isTTY
  readonly #hasBar = process.stderr.isTTY
  #isBarShown = false
  /** A text without a line break at its end was written. */
  #isInLine = false

  constructor(options: OutputOptions) {
    this.#options = options
  }

  /** Shows one event of the call. `task` is what is known of its task by now, as far as there is one. */
  async show(event: ToolEvent, task: Partial<RemoteTask> | undefined): Promise<void> {
    const { form } = this.#options
    if (event.type === 'result') return this.#showResult(event.result, task)
    if (form === 'lines') {
      const { type, ...rest } = event
      const line = event.type === 'chunk' ? { chunk: toJson(event.chunk) } : rest
      await this.#write(`${JSON.stringify({ type, ...line })}\n`)
    } else if (event.type === 'progress') this.#showProgress(event)
    else if (event.type === 'log') this.#showLog(event)
    else if (event.type === 'restart') this.note('convoke: the tool begins anew; what came so far no longer counts.')
    else if (form === 'text') await this.#showValue(event.chunk, false)
  }

  /** Tells the user something on stderr, in a line of its own. */
  note(sentence: string): void {
    this.endLine()
    process.stderr.write(`${sentence}\n`)
  }

  /** Takes the progress bar away, and ends a line that is begun. */
  endLine(): void {
    if (this.#isBarShown) process.stderr.write('\r\u001b[K')
    this.#isBarShown = false
    if (this.#isInLine) process.stdout.write('\n')
    this.#isInLine = false
  }

  async #showResult(result: ToolValue, task: Partial<RemoteTask> | undefined): Promise<void> {
    const { form, out } = this.#options
    this.endLine()
    const { file, rest } = out === undefined ? { file: undefined, rest: result } : split(result, out)
    if (out !== undefined && file !== undefined) await writeResult(out, file)
    if (form === 'text') {
      if (rest !== undefined) await this.#showValue(rest, true)
      if (out !== undefined) this.note(`${rest === undefined ? 'The result is' : 'Its bytes are'} in ${out}.`)
      this.endLine()
      return
    }
    const document = {
      result: out === undefined ? toJson(result) : { file: out, ...(isContent(rest) ? { parts: rest.parts } : {}) },
      task_id: task?.taskId ?? null,
      context_id: task?.contextId ?? null,
      execution_time_ms: task?.executionTimeMs ?? null,
    }
    await this.#write(`${JSON.stringify(form === 'lines' ? { type: 'result', ...document } : document)}\n`)
  }

  async #showValue(value: ToolValue, isResult: boolean): Promise<void> {
    if (value instanceof Uint8Array) {
      if (this.#isTerminal) throw bytesFailure(value)
      return this.#write(value)
    }
    if (!this.#isTerminal) return this.#write(`${JSON.stringify(value)}\n`)
    this.#clearBar()
    if (typeof value === 'string' && !isResult) {
      // Texts that come in pieces are one text.
      const text = stripControls(value)
      this.#isInLine = text === '' ? this.#isInLine : !text.endsWith('\n')
      return this.#write(text)
    }
    this.endLine()
    const text = isContent(value)
      ? value.parts.map((part) => partText(part, value.parts.length === 1)).join('\n')
      : typeof value === 'string'
        ? value
        : JSON.stringify(value, null, isResult ? 2 : undefined)
    return this.#write(`${stripControls(text)}\n`)
  }

  #showProgress({ progress, total, message }: Extract<ToolEvent, { type: 'progress' }>): void {
    const words = message === undefined ? '' : ` ${stripControls(message).replace(/\s+/g, ' ')}`
    const count = total === undefined ? String(progress) : `${progress}/${total}`
    if (!this.#hasBar) {
      process.stderr.write(`progress: ${count}${words}\n`)
      return
    }
    // A bar on a line that stdout has begun would be in its way.
    if (this.#isInLine && this.#isTerminal) return
    const share = total === undefined || !(total > 0) ? undefined : Math.min(1, Math.max(0, progress / total))
    const filled = share === undefined ? 0 : Math.round(share * barWidth)
    const bar = share === undefined ? '' : `[${'#'.repeat(filled)}${'.'.repeat(barWidth - filled)}] `
    const { columns } = process.stderr
    process.stderr.write(`\r\u001b[K${clip(`${bar}${count}${words}`, (columns > 0 ? columns : defaultColumns) - 2)}`)
    this.#isBarShown = true
  }

  #showLog({ level, data, logger }: Extract<ToolEvent, { type: 'log' }>): void {
    const words = typeof data === 'string' ? data : JSON.stringify(data)
    const from = logger === undefined ? '' : ` ${stripControls(logger)}:`
    this.note(`${level}:${from} ${stripControls(words)}`)
  }

  #clearBar(): void {
    if (this.#isBarShown) process.stderr.write('\r\u001b[K')
    this.#isBarShown = false
  }

  /** Waits for a slow reader. */
  async #write(chunk: string | Uint8Array): Promise<void> {
    await new Promise<void>((resolve, reject) => {
      process.stdout.write(chunk, (error) => (error === undefined || error === null ? resolve() : reject(error)))
    })
  }
}

/** Throws `A2ACLI_ERR_USAGE` where the result could not be written. */
async function writeResult(file: string, content: Uint8Array | string): Promise<void> {
  try {
    await writeFile(file, content)
  } catch (cause) {
    const reason = cause instanceof Error ? cause.message : String(cause)
    throw new ClientFailure('CONVOKE_ERR_FILE', `The result cannot be written to ${file}: ${reason}`, { cause })
  }
}

/**
 * What of a result goes into a file, and what is shown besides: bytes as they are, also those of the one part that has any,
 * and the other parts are the rest; anything else as JSON, and so is all that goes into a file of that name.
 */
function split(
  result: ToolValue,
  out: string,
): { readonly file: Uint8Array | string; readonly rest: ToolValue | undefined } {
  if (result instanceof Uint8Array) return { file: result, rest: undefined }
  const parts = isContent(result) ? result.parts : []
  const [first, ...others] = parts.filter(({ raw }) => raw !== undefined)
  const isWhole = others.length > 0 || (parts.length > 1 && /\.json$/i.test(out))
  if (first?.raw === undefined || isWhole) return { file: `${JSON.stringify(result, null, 2)}\n`, rest: undefined }
  const rest = parts.filter((part) => part !== first)
  return { file: Buffer.from(first.raw, 'base64'), rest: rest.length === 0 ? undefined : new Content(rest) }
}

/** A part of a result for a terminal. */
function partText({ text, data, raw, url, mediaType = 'bytes', filename }: Part, isOnly: boolean): string {
  if (text !== undefined) return text
  if (data !== undefined) return JSON.stringify(data, null, 2)
  const name = filename === undefined ? '' : ` ${filename}`
  if (url !== undefined) return `[link${name}: ${url}]`
  const hint = isOnly ? '--out FILE writes them' : '-o json has them'
  return `[${mediaType}${name}, ${Buffer.byteLength(raw ?? '', 'base64')} bytes; ${hint}]`
}

function bytesFailure(bytes: Uint8Array): ClientFailure {
  return usageFailure(
    `The tool gave ${bytes.byteLength} bytes, which do not belong on a terminal.`,
    'Write them to a file, --out FILE, or into a pipe.',
  )
}

function toJson(value: ToolValue): unknown {
  if (!(value instanceof Uint8Array)) return value
  return { base64: Buffer.from(value).toString('base64'), bytes: value.byteLength }
}
