/** A conversation as text: the answers as they come, on stdout; what is no answer on stderr, or dim on the terminal. */
import type { Part } from '../../protocol/a2a.ts'
import type { Paint } from '../paint.ts'
import { askedText } from '../remote/question.ts'
import type { ChatEvent, ChatOutput } from './events.ts'
import { PrintablePieces, toPrintable } from './printable.ts'
import type { StatusLine } from './status-line.ts'

/** Where text goes. */
export interface Sink {
  write(text: string, done: () => void): unknown
}

/** Waits for a slow reader. That there is none any more is heard by whoever listens for SIGPIPE. */
export async function write(out: Sink, text: string): Promise<void> {
  await new Promise<void>((resolve) => {
    out.write(text, () => resolve())
  })
}

export interface TextOutputOptions {
  readonly out: Sink
  /** Where notes go. */
  readonly notes: Sink
  readonly paint: Paint
  /** On a terminal only. Without one the output is that of a program for programs: answers, and nothing to look at. */
  readonly status: StatusLine | undefined
  /** How a file of a task can be had. */
  readonly fileHint: (taskId: string) => string
}

type End = Extract<ChatEvent, { type: 'end' }>

export class TextOutput implements ChatOutput {
  readonly #options: TextOutputOptions
  readonly #pieces = new PrintablePieces()
  /** A text without a line break at its end was written. */
  #isInLine = false
  #artifactId: string | null | undefined
  /** The artifacts that something was answered in. */
  readonly #answered = new Set<string | null>()
  #taskId = ''

  constructor(options: TextOutputOptions) {
    this.#options = options
  }

  async show(event: ChatEvent): Promise<void> {
    const { status } = this.#options
    switch (event.type) {
      case 'sent':
        this.#artifactId = undefined
        if (event.taskId === null) this.#answered.clear()
        return
      case 'task':
        this.#taskId = event.taskId
        return
      case 'text':
        if (this.#artifactId !== event.artifactId) await this.#endLine()
        this.#artifactId = event.artifactId
        if (event.text.trim() !== '') this.#answered.add(event.artifactId)
        return await this.#write(this.#pieces.take(event.text))
      case 'part':
        this.#answered.add(event.artifactId)
        await this.#endLine()
        return await this.#showPart(event.part)
      case 'restart':
        if (event.artifactId === null) this.#answered.clear()
        else this.#answered.delete(event.artifactId)
        await this.#endLine()
        // Whoever looks on sees a new line; a program has to be told.
        return status === undefined
          ? this.#aside('The answer begins anew; what came so far does not count.')
          : undefined
      case 'progress':
        return status?.show(progressText(event))
      case 'status':
        return status?.show(event.text)
      case 'question':
        await this.#endLine()
        return await this.#write(`${toPrintable(askedText(event.message, event.schema))}\n`)
      case 'end':
        await this.#endLine()
        return this.#showEnd(event)
    }
  }

  note(sentence: string): void {
    const { notes, status } = this.#options
    status?.clear()
    const lines = this.#isInLine && status !== undefined ? `\n${sentence}\n` : `${sentence}\n`
    this.#isInLine = status === undefined && this.#isInLine
    status?.wrote(lines)
    notes.write(lines, () => {})
  }

  cut(): void {}

  /** Something by the way: dim on a terminal, on stderr where programs read. */
  #aside(sentence: string): void {
    this.note(this.#options.status === undefined ? `convoke: ${sentence}` : this.#options.paint('dim', sentence))
  }

  async #showPart(part: Part): Promise<void> {
    const { status, paint, fileHint } = this.#options
    const { data, url, raw, filename = 'without a name', mediaType } = part
    if (data !== undefined) {
      const json = JSON.stringify(data, null, status === undefined ? undefined : 2)
      return await this.#write(`${toPrintable(json)}\n`)
    }
    const type = mediaType === undefined ? '' : ` (${toPrintable(mediaType)})`
    if (url !== undefined) {
      const words = status === undefined ? url : `[file ${filename}${type} at ${url}]`
      return await this.#write(`${oneLine(words)}\n`)
    }
    const size = Buffer.byteLength(raw ?? '', 'base64')
    const where = this.#taskId === '' ? '' : `; ${fileHint(this.#taskId)}`
    const words = oneLine(`[file ${filename}${type}, ${size} bytes${where}]`)
    // Bytes are no text that a program could go on with.
    if (status === undefined) this.note(`convoke: ${words}`)
    else await this.#write(`${paint('dim', words)}\n`)
  }

  #showEnd({ state, message, error }: End): void {
    const { paint } = this.#options
    const words = error?.message ?? message
    const said = words === null ? '' : `: ${toPrintable(words)}`
    const code = error === null ? '' : ` (${oneLine(error.code)})`
    if (state === 'TASK_STATE_FAILED') this.note(paint('red', `The task failed${code}${said}`))
    else if (state === 'TASK_STATE_REJECTED') this.note(paint('red', `The agent rejected it${code}${said}`))
    else if (state === 'TASK_STATE_CANCELED') this.#aside('Cancelled: the agent says the task has stopped.')
    else if ((state === 'TASK_STATE_COMPLETED' || state === null) && this.#answered.size === 0)
      this.#aside(`The agent ended without an answer${said}${said === '' ? '.' : ''}`)
  }

  async #endLine(): Promise<void> {
    await this.#write(this.#pieces.end())
    if (this.#isInLine) await this.#write('\n')
    this.#artifactId = undefined
  }

  async #write(text: string): Promise<void> {
    const { out, status } = this.#options
    status?.clear()
    if (text === '') return
    this.#isInLine = !text.endsWith('\n')
    status?.wrote(text)
    await write(out, text)
  }
}

function oneLine(text: string): string {
  return toPrintable(text).replace(/\s+/g, ' ')
}

/** `[2/5] Reads the page.` */
function progressText({ progress, total, message = '' }: Extract<ChatEvent, { type: 'progress' }>): string {
  const count = total === undefined ? '' : `[${progress}/${total}] `
  return message === '' && total === undefined ? String(progress) : `${count}${message}`
}
