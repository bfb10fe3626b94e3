/** Lines that somebody types at a terminal, one for each prompt. */
import { createInterface } from 'node:readline'
import type { ReadStream, WriteStream } from 'node:tty'

const maxHistory = 200

export class TerminalLines {
  readonly #input: ReadStream
  readonly #output: WriteStream
  #history: string[] = []
  /** Lines that were pasted together with the one that was asked for, and what was begun behind them. */
  readonly #waiting: string[] = []
  #begun = ''

  constructor(input: ReadStream, output: WriteStream) {
    this.#input = input
    this.#output = output
  }

  /**
   * The next line; undefined at Ctrl-D, and when the signal aborts. `onInterrupt` hears each Ctrl-C; a line that was begun is
   * thrown away by it first. Between prompts the terminal is its usual self: a Ctrl-C is a signal then.
   */
  next(prompt: string, signal: AbortSignal, onInterrupt: () => void): Promise<string | undefined> {
    const waiting = this.#waiting.shift()
    if (waiting !== undefined) {
      this.#output.write(`${prompt}${waiting}\n`)
      return Promise.resolve(waiting)
    }
    if (signal.aborted) return Promise.resolve(undefined)
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
        resolve(answer)
      })
      signal.addEventListener('abort', close, { once: true })
      reader.prompt()
      if (this.#begun !== '') reader.write(this.#begun)
      this.#begun = ''
    })
  }
}
