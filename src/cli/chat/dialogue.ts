/** A chat at a terminal: what is typed, what the words with a slash do, and what Ctrl-C does between messages. */
import { onAbort } from '../../base/abort.ts'
import { ConvokeError } from '../../base/errors.ts'
import { ExitRequest } from '../failure.ts'
import { createPaint, type Paint } from '../paint.ts'
import { hintLines, readAnswer } from '../remote/question.ts'
import type { Chat } from './chat.ts'
import { toPrintable } from './printable.ts'
import { TerminalLines } from './terminal-lines.ts'

const help = `/new          begin a new conversation
/context      say which conversation this is
/context ID   go on with another one
/quit         leave; so does Ctrl-D
//text        send text that begins with a slash
Ctrl-C stops the answer under way; a second one leaves. What the agent asks is answered by the next line.`

export class Dialogue {
  readonly #chat: Chat
  readonly #lines: TerminalLines
  readonly #paint: Paint

  constructor(chat: Chat) {
    // With stdout in a pipe, stderr is what is left of the terminal.
    const screen = process.stdout.isTTY ? process.stdout : process.stderr
    this.#chat = chat
    this.#lines = new TerminalLines(process.stdin, screen)
    this.#paint = createPaint(screen)
  }

  /** Until somebody leaves. Throws an ExitRequest with 130 where that was by Ctrl-C, and when a signal ends it. */
  async run(): Promise<void> {
    const { info, interrupts, session } = this.#chat
    const who = toPrintable(`${info.name} at ${info.url} (A2A ${info.version}).`).replace(/\s+/g, ' ')
    this.#aside(`${who} /help shows what can be typed; Ctrl-D leaves.`)
    try {
      while (!interrupts.leave.aborted && !session.signal.aborted) {
        const line = await this.#next()
        if (line === undefined || /^\/(quit|exit)\s*$/.test(line)) break
        if (line.trim() !== '') await this.#heard(line)
      }
    } finally {
      this.#lines.close()
    }
    if (session.signal.aborted) return
    for (const hint of this.#chat.resumeHints) this.#aside(hint)
    if (interrupts.leave.aborted) throw new ExitRequest(130)
  }

  /** The next line; undefined when it is time to leave. Empty where there was none, and there is something new to ask. */
  async #next(): Promise<string | undefined> {
    const { conversation, interrupts, session } = this.#chat
    const isQuestion = conversation.question !== undefined
    let isDropped = false
    const end = new AbortController()
    const unlinks = [interrupts.leave, session.signal].map((signal) => onAbort(signal, () => end.abort()))
    const line = await this.#lines.next(this.#paint('bold', isQuestion ? '? ' : '> '), end.signal, () => {
      interrupts.interrupt()
      if (isQuestion) {
        isDropped = true
        end.abort()
      } else if (!interrupts.leave.aborted) this.#aside('Ctrl-C again leaves, and so do Ctrl-D and /quit.')
    })
    for (const unlink of unlinks) unlink()
    if (!isDropped) return line
    await this.#drop()
    return ''
  }

  /** The task whose question nobody wants to answer is stopped. */
  async #drop(): Promise<void> {
    try {
      await this.#chat.conversation.drop()
      this.#aside('Cancelled: the agent says the task has stopped.')
    } catch (error) {
      this.#tell(error)
    }
  }

  async #heard(line: string): Promise<void> {
    const { conversation } = this.#chat
    const [, command, rest = ''] = /^\/(\w+)(?:\s+(.*))?$/.exec(line.trim()) ?? []
    if (command !== undefined) return this.#obey(command, rest.trim())
    const text = line.startsWith('//') ? line.slice(1) : line
    if (conversation.question !== undefined) {
      const { issues } = readAnswer(text, conversation.question)
      if (issues !== '') return this.#aside(issues)
    }
    try {
      await this.#chat.turn(text)
      this.#explain()
    } catch (error) {
      if (!this.#chat.session.signal.aborted && !this.#chat.interrupts.leave.aborted) this.#tell(error)
    }
  }

  #obey(command: string, rest: string): void {
    const { conversation } = this.#chat
    const { contextId = 'none yet: the agent names it with its first answer' } = conversation
    if (command === 'help') this.#aside(help)
    else if (command === 'new') {
      conversation.turnTo(undefined)
      this.#aside('A new conversation.')
    } else if (command === 'context' && rest === '') this.#aside(`The conversation is ${toPrintable(contextId)}.`)
    else if (command === 'context') conversation.turnTo(rest)
    else this.#aside(`There is no /${command}; /help shows what there is. To send it, write //${command}.`)
  }

  /** What an answer to the question must look like. */
  #explain(): void {
    const { question } = this.#chat.conversation
    if (question === undefined) return
    // The question itself was shown as what the agent says.
    for (const line of hintLines(question)) this.#aside(line)
  }

  #tell(error: unknown): void {
    const { code, message, hint } = this.#chat.failure(error)
    const isStopped = error instanceof ConvokeError && error.code === 'canceled'
    this.#chat.output.note(this.#paint(isStopped ? 'dim' : 'red', isStopped ? message : `${code}: ${message}`))
    if (hint !== undefined && !isStopped) this.#aside(hint)
  }

  #aside(text: string): void {
    this.#chat.output.note(this.#paint('dim', text))
  }
}
