/** One run of a client command: its settings, its two outputs, and what stops it. */
import { isInterrupted } from '../../protocol/a2a.ts'
import type { Source } from '../environment.ts'
import type { AgentFlags, ClientFlags, Setting } from './settings.ts'
import { quote, resumeCommand, type TextOptions } from './text.ts'

/** A wait that is over sooner than this needs no word; who stops it earlier is told by the failure. */
const unhurriedMs = 1_000

/** What the work of a client command is given; `runClientCommand` makes one and closes it. */
export class Session<Flags extends ClientFlags = AgentFlags> {
  readonly flags: Flags
  readonly settings: readonly Setting[]
  /** Where the settings came from, besides flags. */
  readonly sources: readonly Source[]
  /** Aborts with `timeout` when --timeout has passed, and with `canceled` when the user interrupts. */
  readonly signal: AbortSignal
  /** The card is at hand; failures before that are about finding it. */
  isConnected = false
  /** A token of `convoke auth login` is put on requests. */
  isSignedIn = false
  /** How to get in, read off the card. */
  credentialsHint: string | undefined
  /** How to name the agent so that its card is found, where that is not --agent-card. */
  cardHint: string | undefined
  /** What the name that led nowhere may have meant. */
  addressHint: string | undefined
  /** Where the agent is that commands which are shown must name: the one of an argument, not of --agent-card. */
  agentUrl: string | undefined
  /** The task that this is about, once it has a name. */
  taskId: string | undefined
  /** The agent has said that the work stands still. */
  isOver = false
  #announcement: NodeJS.Timeout | undefined

  constructor(flags: Flags, settings: readonly Setting[], sources: readonly Source[], signal: AbortSignal) {
    this.flags = flags
    this.settings = settings
    this.sources = sources
    this.signal = signal
  }

  get isJson(): boolean {
    return this.flags.output === 'json'
  }

  /** `-a REF` for commands that are shown, if this one was told so: a file or a variable holds for the next one, too. */
  get agentFlag(): string {
    if (this.agentUrl !== undefined) return ` -a ${quote(this.agentUrl)}`
    const { agentCard } = this.flags as Partial<AgentFlags>
    const isFlag = this.settings.some(({ name, source }) => name === 'agent-card' && source === 'flag')
    return agentCard === undefined || !isFlag ? '' : ` -a ${quote(agentCard)}`
  }

  get textOptions(): TextOptions {
    const isVerbose = this.flags.verbose === true
    const history = isVerbose || ('history' in this.flags && this.flags.history !== undefined)
    return { verbose: isVerbose, history, agentFlag: this.agentFlag }
  }

  get hasCredentials(): boolean {
    return this.isSignedIn || this.flags.bearer !== undefined || this.flags.apiKey !== undefined
  }

  /** Writes a result to stdout: the protocol's own object as one line of JSON, or the text that stands for it. */
  show(value: unknown, text: () => string): void {
    process.stdout.write(this.isJson ? `${JSON.stringify(value)}\n` : text())
  }

  /** Tells the user something that is no result. */
  note(sentence: string): void {
    process.stderr.write(`${sentence}\n`)
  }

  /** A line on stderr under --debug. Secrets are taken out of every text in `details`. */
  debug(what: string, details: object): void {
    if (this.flags.debug !== true) return
    const line = { ms: Math.round(performance.now()), ...details }
    const redact = (_key: string, value: unknown): unknown => (typeof value === 'string' ? this.#redact(value) : value)
    this.note(`debug: ${what} ${JSON.stringify(line, redact)}`)
  }

  /** Names the task on stderr when it is waited for, so that whoever stops waiting can come back to it. */
  announce(taskId: string): void {
    this.taskId = taskId
    this.#announcement ??= setTimeout(() => this.note(`convoke: waiting for task ${taskId}`), unhurriedMs)
  }

  close(): void {
    clearTimeout(this.#announcement)
  }

  /** Says on stderr when a task went another way than well; that is the agent's result, not a failure of the command. */
  warnOfOutcome(taskId: string, state: string): void {
    if (isInterrupted(state)) {
      this.note(`warning: the task waits for you (${state}). Resume it: ${resumeCommand(taskId, this.agentFlag)}`)
    } else if (/^TASK_STATE_(FAILED|REJECTED|CANCELED)$/.test(state)) {
      this.note(`warning: the task ended ${state}.`)
    }
  }

  /** A second net: the client takes out what it sent itself; here goes whatever was given as a secret, wherever it stands. */
  #redact(text: string): string {
    const { bearer, apiKey, svcParam = [], token, authCredentials } = this.flags as ClientFlags & PushSecrets
    const values = svcParam.map((pair) => pair.slice(pair.indexOf(':') + 1).trim())
    const secrets = [
      bearer,
      apiKey,
      token,
      authCredentials,
      ...values,
      ...values.flatMap((value) => value.split(/\s+/)),
    ]
    return secrets
      .flatMap((secret) => (secret === undefined ? [] : [secret, JSON.stringify(secret).slice(1, -1)]))
      .filter((secret) => secret.length >= shortestSecret)
      .reduce((shown, secret) => shown.replaceAll(secret, '[redacted]'), text)
      .replace(/(:\/\/)[^\s/@"]+@/g, '$1[redacted]@')
  }
}

/** Those of `task push-config create`. */
interface PushSecrets {
  readonly token?: string
  readonly authCredentials?: string
}

/** A shorter one is found in any text. */
const shortestSecret = 4
