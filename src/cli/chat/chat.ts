/** `convoke chat`: a conversation with an agent, typed at a terminal, given as one message, or a line each on stdin. */
import { addAbortSignal } from 'node:stream'
import { abortReason, onAbort } from '../../base/abort.ts'
import { ConvokeError } from '../../base/errors.ts'
import type { Peer } from '../../peers/connect-peer.ts'
import type { PeerInfo } from '../../peers/peer.ts'
import { isTerminal } from '../../protocol/a2a.ts'
import { approvingReply } from '../../tools/approval.ts'
import { ClientFailure, toClientFailure, usageFailure } from '../a2a/failure.ts'
import type { Session } from '../a2a/session.ts'
import { quote, resumeCommand } from '../a2a/text.ts'
import { ExitRequest } from '../failure.ts'
import { readLines } from '../lines.ts'
import { createPaint } from '../paint.ts'
import type { RemoteFlags } from '../remote/options.ts'
import { hintLines } from '../remote/question.ts'
import { configFlag, findTarget, withPeer } from '../remote/target.ts'
import { Conversation } from './conversation.ts'
import { Dialogue } from './dialogue.ts'
import type { ChatOutput } from './events.ts'
import { HeldOutput } from './held-output.ts'
import { Interrupts } from './interrupts.ts'
import { JsonOutput } from './json-output.ts'
import { StatusLine } from './status-line.ts'
import { TextOutput } from './text-output.ts'
import type { AskedQuestion } from './words.ts'

export interface ChatFlags extends RemoteFlags {
  readonly context?: string
  readonly message?: string
  readonly answer?: readonly string[]
}

/** Longest line of standard input: what nodes take as a message by themselves. */
const maxLineBytes = 4 * 1024 * 1024

export async function chat(session: Session<ChatFlags>, reference?: string): Promise<void> {
  const { message, answer } = session.flags
  if (message === '') throw usageFailure('--message is empty.', 'Give a text: --message "hello"')
  if (answer !== undefined && message === undefined)
    throw usageFailure('--answer is for what is asked about a --message.', 'In a chat the next line is the answer.')
  if (reference !== undefined) {
    const target = await findTarget(session, reference)
    const command = `convoke chat ${quote(reference)}${target.id === 'peer' ? '' : configFlag(session)}`
    await withPeer(session, target, async (peer) => {
      session.isConnected = true
      await new Chat(session, peer, { command, isOwn: false }).run()
    })
    return
  }
  const { withOwnAgent } = await import('./own-agent.ts')
  const paint = createPaint(process.stderr)
  let note = (line: string): void => session.note(line)
  const onLog = (line: string): void => note(paint('dim', line))
  await withOwnAgent(session, onLog, async (peer) => {
    const own = new Chat(session, peer, { command: `convoke chat${configFlag(session)}`, isOwn: true })
    // Between the lines of an answer, not in them.
    note = (line) => own.output.note(line)
    await own.run()
  })
  // A module may have opened something that would keep the process alive.
  throw new ExitRequest(0)
}

interface Place {
  /** The command that talks to the same agent again. */
  readonly command: string
  /** The agent lives in this process: nobody else can reach it, nor later. */
  readonly isOwn: boolean
}

/** One run of the command, for as long as there is something to say. */
export class Chat {
  readonly session: Session<ChatFlags>
  readonly info: PeerInfo
  readonly conversation: Conversation
  readonly output: ChatOutput
  readonly interrupts: Interrupts
  readonly #place: Place
  #isLeft = false

  constructor(session: Session<ChatFlags>, peer: Peer, place: Place) {
    const { flags } = session
    if (peer.info === undefined) throw new ConvokeError('internal', 'A chat began before its agent was known.')
    this.session = session
    this.info = peer.info
    this.#place = place
    this.conversation = new Conversation(peer, peer.info, flags.context)
    this.output = createOutput(session, place)
    this.interrupts = new Interrupts(this.#isDialogue)
  }

  get #isDialogue(): boolean {
    return this.session.flags.message === undefined && process.stdin.isTTY
  }

  /** Throws an ExitRequest where a message did not end well, or the chat was left in the middle of one. */
  async run(): Promise<void> {
    const { message } = this.session.flags
    process.on('SIGPIPE', this.#onClosed)
    try {
      if (message !== undefined) await this.#sendOne(message)
      else if (this.#isDialogue) await new Dialogue(this).run()
      else await this.#sendAll(readLines(addAbortSignal(this.interrupts.leave, process.stdin), maxLineBytes))
    } catch (error) {
      if (this.#isLeft) return
      if (this.interrupts.leave.aborted && !(error instanceof ExitRequest)) throw abortReason(this.interrupts.leave)
      throw error
    } finally {
      process.off('SIGPIPE', this.#onClosed)
      this.interrupts.close()
    }
  }

  /** Sends one message and shows what comes of it. Resolves with the state of its task; null where there is none. */
  async turn(text: string): Promise<string | null> {
    const { session, interrupts, conversation } = this
    const { timeout } = session.flags
    const stopping = interrupts.begin()
    const late = new ConvokeError('timeout', `The --timeout of ${timeout} ms passed before the agent had answered.`)
    const timer = timeout === undefined ? undefined : setTimeout(() => stopping.abort(late), timeout)
    const unlink = onAbort(session.signal, () => stopping.abort(abortReason(session.signal)))
    let state: string | null = null
    session.isOver = false
    session.taskId = conversation.taskId
    try {
      const stops = { stop: stopping.signal, leave: interrupts.leave }
      for await (const event of conversation.send(text, stops)) {
        if (event.type === 'task') session.taskId = event.taskId
        if (event.type === 'end') ({ state } = event)
        if (!this.#isLeft) await this.output.show(event)
      }
    } catch (error) {
      if (!this.#isLeft) this.output.cut()
      throw error
    } finally {
      clearTimeout(timer)
      unlink()
      interrupts.end()
      session.isOver = state !== null && isTerminal(state)
    }
    if (stopping.signal.aborted && stopping.signal.reason === late) throw late
    if (session.signal.aborted) throw abortReason(session.signal)
    return state
  }

  /** Any failure as it is told. */
  failure(error: unknown): ClientFailure {
    const { session } = this
    const { hasCredentials, agentFlag, taskId, isOver, credentialsHint, cardHint, addressHint } = session
    const known = { hasCredentials, agentFlag, taskId, isOver, credentialsHint, cardHint, addressHint }
    return toClientFailure(error, { ...known, connecting: false })
  }

  /** How to go on with the conversation, and with a task that waits; empty where neither can be. */
  get resumeHints(): string[] {
    const { conversation, session } = this
    const { contextId, taskId, question } = conversation
    const context =
      contextId === undefined
        ? []
        : [`Go on with this conversation: ${this.#place.command} --context ${quote(contextId)}`]
    if (question === undefined || taskId === undefined || this.#place.isOwn) return context
    return [`The task waits for your reply: ${resumeCommand(taskId, session.agentFlag)}`, ...context]
  }

  async #sendOne(text: string): Promise<void> {
    const { flags, isJson } = this.session
    await this.#sendAll(this.#withAnswers(text))
    // Who named the conversation knows how to go on with it.
    if (isJson || flags.context !== undefined || this.#isLeft) return
    for (const hint of this.resumeHints) this.output.note(`convoke: ${hint}`)
  }

  /** The message, and what was given along for the questions that come of it. */
  *#withAnswers(text: string): Generator<SentLine, void, void> {
    yield { number: 1, text }
    for (const answer of this.session.flags.answer ?? []) {
      if (this.conversation.question === undefined) return
      yield { number: 1, text: answer }
    }
  }

  /** One message after the other; what a task asks is answered by the next one. */
  async #sendAll(lines: AsyncIterable<SentLine> | Iterable<SentLine>): Promise<void> {
    let isWell = true
    for await (const line of lines) {
      if (!('text' in line)) throw usageFailure(`Line ${line.number} of standard input ${line.problem}.`)
      if (line.text.trim() === '') continue
      const state = await this.turn(line.text)
      this.#explain()
      // What an agent asks is no failure while there may be an answer.
      isWell &&= state === null || state === 'TASK_STATE_COMPLETED' || this.conversation.question !== undefined
      if (this.#isLeft) return
      if (this.interrupts.isAsked) throw new ConvokeError('canceled', 'Interrupted.')
    }
    const { question } = this.conversation
    // What it asks has been shown.
    if (question !== undefined)
      throw new ClientFailure('CONVOKE_ERR_QUESTION', 'The agent asks, and there is no answer.', {
        hint: this.#answerHint(question),
      })
    if (!isWell) throw new ExitRequest(1)
  }

  /** How the question can be answered. */
  #answerHint({ schema }: AskedQuestion): string {
    const { taskId = '' } = this.conversation
    const { agentFlag, flags } = this.session
    const reply = schema === undefined ? undefined : approvingReply(schema)
    // That of a process of its own ends with it.
    const resume = this.#place.isOwn ? [] : [`Answer it: ${resumeCommand(taskId, agentFlag, reply)}`]
    const along = flags.message === undefined ? 'the answer as the next line' : '--answer "<reply>"'
    return [...resume, `${resume.length === 0 ? 'Send' : 'send'} it again with ${along}.`].join(', or ')
  }

  /** What an answer to a question must look like. */
  #explain(): void {
    const { question } = this.conversation
    if (question === undefined || this.session.isJson || this.#isLeft) return
    for (const line of hintLines(question)) this.output.note(`convoke: ${line}`)
  }

  /** Whoever read the output has what they wanted: what is under way is stopped. */
  readonly #onClosed = (): void => {
    if (this.#isLeft) return
    this.#isLeft = true
    this.interrupts.interrupt()
  }
}

type SentLine = { readonly number: number } & ({ readonly text: string } | { readonly problem: string })

function createOutput(session: Session<ChatFlags>, { isOwn }: Place): ChatOutput {
  if (session.isJson) return new JsonOutput(process.stdout)
  const paint = createPaint(process.stdout)
  const output = new TextOutput({
    out: process.stdout,
    notes: process.stderr,
    paint: process.stdout.isTTY ? paint : (_format, text) => text,
    status: process.stdout.isTTY ? new StatusLine(process.stdout, paint) : undefined,
    fileHint: (taskId) =>
      isOwn ? '-o json has its bytes' : `convoke task download${session.agentFlag} ${quote(taskId)} saves it`,
  })
  return process.stdout.isTTY ? output : new HeldOutput(output)
}
