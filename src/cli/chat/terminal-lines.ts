/** Lines that somebody types at a terminal, one for each prompt. */
import { createInterface } from 'node:readline'
import { StringDecoder } from 'node:string_decoder'
import type { ReadStream, WriteStream } from 'node:tty'

const maxHistory = 200
/** How many lines may wait for a prompt; what is typed behind them waits in the terminal. */
const maxWaiting = 1_000

/** Close it when no more lines are wanted: it hears the terminal between prompts, too. */
export class TerminalLines {
  readonly #input: ReadStream
  readonly #output: WriteStream
  #history: string[] = []
  /** Lines that came before they were asked for, and what was begun behind them. */
  readonly #waiting: string[] = []
  #begun = ''
  #decoder = new StringDecoder()
  /** There was a Ctrl-D between prompts. */
  #isEnded = false

  constructor(input: ReadStream, output: WriteStream) {
    this.#input = input
    this.#output = output
  }

  /**
   * The next line; undefined at Ctrl-D, and when the signal aborts. `onInterrupt` hears each Ctrl-C; a line that was begun is
   * thrown away by it first. Between prompts the terminal is its usual self: a Ctrl-C is a signal then, and what else is typed
   * is for the next prompts.
   */
  next(prompt: string, signal: AbortSignal, onInterrupt: () => void): Promise<string | undefined> {
    const waiting = this.#waiting.shift()
    if (waiting !== undefined) {
      this.#output.write(`${prompt}${waiting}\n`)
      return Promise.resolve(waiting)
    }
    if (signal.aborted || this.#isEnded) return Promise.resolve(undefined)
    this.close()
    return new Promise((resolve) => {
      const reader = createInterface({
        input: this.#input,
        output: this.#output,
        history: [...this.#history],
        historySize: maxHistory,
        removeHistoryDuplicates: true,
        prompt,
      })
      let answer: string | undefined
      let isClosed = false
      const close = (): void => reader.close()
      reader.on('history', (history) => (this.#history = history))
      reader.on('line', (line) => {
        if (answer !== undefined) return void this.#waiting.push(line)
        answer = line
        // What was pasted behind it is in the same piece of input, and comes before that.
        setImmediate(close)
      })
      reader.on('SIGINT', () => {
        this.#output.write('^C\n')
        if (reader.line === '') onInterrupt()
        else {
          reader.write(null, { ctrl: true, name: 'e' })
          reader.write(null, { ctrl: true, name: 'u' })
        }
        if (!isClosed) reader.prompt()
      })
      reader.once('close', () => {
        isClosed = true
        signal.removeEventListener('abort', close)
        // The cursor is behind the prompt still.
        if (answer === undefined && !signal.aborted) this.#output.write('\n')
        this.#begun = answer === undefined ? '' : reader.line
        if (answer !== undefined) this.#listen()
        resolve(answer)
      })
      signal.addEventListener('abort', close, { once: true })
      reader.prompt()
      if (this.#begun !== '') reader.write(this.#begun)
      this.#begun = ''
    })
  }

  close(): void {
    this.#input.off('data', this.#onTyped).off('end', this.#onEnd).off('error', this.#onEnd).pause()
  }

  /** Left to the next prompt, a Ctrl-D would be a character like any: the terminal has taken it for the end of a line by then. */
  #listen(): void {
    this.#decoder = new StringDecoder()
    this.#input.on('data', this.#onTyped).on('end', this.#onEnd).on('error', this.#onEnd).resume()
  }

  readonly #onTyped = (typed: Buffer): void => {
    const lines = `${this.#begun}${this.#decoder.write(typed)}`.split(/\r?\n|\r/)
    this.#begun = lines.pop() ?? ''
    this.#waiting.push(...lines)
    if (this.#waiting.length >= maxWaiting) this.#input.pause()
  }

  /** Also where the terminal itself is gone. */
  readonly #onEnd = (): void => {
    this.#isEnded = true
  }
}
