/** What is told on stderr while an agent runs over a file, and when it is over: for people, or as lines of JSON. */
import type { WriteStream } from 'node:tty'
import { stripControls } from '../../base/text.ts'
import { clipToWidth } from '../chat/printable.ts'

/** How often a bar is drawn, and a line of progress written where there is none, in milliseconds. */
const barMs = 200
const lineMs = 10_000
const barWidth = 24
const defaultColumns = 80
/** Failures that are told one by one. */
const maxShown = 10
/** Lines of the log that are shown; more are in the event log. */
const maxLogLines = 20

export interface ReportOptions {
  /** What to call the input. */
  readonly input: string
  readonly isJson: boolean
  readonly hasBar: boolean
  /** Of the input, in bytes; undefined where nobody knows. */
  readonly size: number | undefined
}

/** An item or line that came to nothing. */
export interface Failure {
  readonly line: number
  readonly key: string | null
  readonly code: string
  readonly message: string
}

/** How it ended. */
export type Outcome = 'done' | 'failed' | 'stopped' | 'interrupted'

/** Close it in the end. */
export class RunReport {
  readonly #options: ReportOptions
  readonly #screen: WriteStream
  readonly #timer: NodeJS.Timeout
  readonly #startedAt = performance.now()
  readonly #failures: Failure[] = []
  #done = 0
  #failed = 0
  #before = 0
  /** What was put out by the items that were run now. */
  #outputs = 0
  /** Bytes of lines that were dealt with now, and of those done before. */
  #size = 0
  #sizeBefore = 0
  #logged = 0
  #isBarShown = false

  constructor(options: ReportOptions, screen: WriteStream = process.stderr) {
    this.#options = options
    this.#screen = screen
    this.#timer = setInterval(() => this.#tick(), options.hasBar ? barMs : lineMs).unref()
  }

  get failed(): number {
    return this.#failed
  }

  /** An item was run, and put out so much. */
  done({ size }: { readonly size: number }, outputs: number): void {
    this.#done++
    this.#size += size
    this.#outputs += outputs
  }

  /** An item was run by a start before. */
  wasDone({ size }: { readonly size: number }): void {
    this.#before++
    this.#sizeBefore += size
  }

  failure(failure: Failure, size: number): void {
    this.#failed++
    this.#size += size
    if (this.#options.isJson) return this.#json({ type: 'failure', ...failure })
    if (this.#failures.length < maxShown) this.#failures.push(failure)
    // What is wrong with the file may be mended while the rest runs.
    if (failure.key === null && this.#failed <= maxShown) this.note(this.#failureText(failure))
  }

  /** A line of the log, JSON where this is: what a failure does not say. */
  log(line: string): void {
    if (this.#options.isJson) return this.#json({ type: 'log', ...(JSON.parse(line) as object) })
    this.#logged++
    if (this.#logged <= maxLogLines) this.note(line.trimEnd())
    if (this.#logged === maxLogLines)
      this.note('The log is not shown any further; --event-log FILE keeps what happens.')
  }

  /** What looks like a mistake, before anything is run. */
  warning(sentence: string): void {
    if (this.#options.isJson) this.#json({ type: 'warning', message: sentence })
    else this.note(`warning: ${sentence}`)
  }

  /** A line of its own. */
  note(text: string): void {
    this.#clear()
    this.#screen.write(`${text}\n`)
  }

  /** The last word. `hints`: what to do now, a line each. */
  end(outcome: Outcome, details: Readonly<Record<string, string | null>>, hints: readonly string[]): void {
    clearInterval(this.#timer)
    this.#clear()
    const seconds = (performance.now() - this.#startedAt) / 1000
    if (this.#options.isJson) {
      this.#json({
        type: 'summary',
        outcome,
        ...this.#counts(),
        outputs: this.#outputs,
        seconds: Math.round(seconds * 1000) / 1000,
        ...details,
      })
      return
    }
    const before = this.#before === 0 ? '' : `, ${this.#before} done before`
    const isSilent = this.#done > 0 && this.#outputs === 0
    const done = `${this.#done} done${isSilent ? ', no output' : ''}`
    this.note(`${done}, ${this.#failed} failed${before}, in ${timeText(seconds)}.`)
    if (isSilent)
      this.note('No action put out an OutputEvent; --event-log FILE and convoke agent trace FILE show what happened.')
    for (const failure of this.#failures) if (failure.key !== null) this.note(this.#failureText(failure))
    const more = this.#failed - this.#failures.length
    if (more > 0) this.note(`and ${more} more ${more === 1 ? 'failure' : 'failures'}.`)
    for (const hint of hints) this.note(hint)
  }

  close(): void {
    clearInterval(this.#timer)
    this.#clear()
  }

  #failureText({ line, key, code, message }: Failure): string {
    const what = key === null ? message : `key ${JSON.stringify(key)}: ${code}: ${message}`
    return stripControls(`${this.#options.input}:${line}: ${what}`).replace(/\s*\n\s*/g, ' ')
  }

  #counts(): { done: number; failed: number; before: number } {
    return { done: this.#done, failed: this.#failed, before: this.#before }
  }

  #tick(): void {
    const { size, isJson, hasBar } = this.#options
    const seconds = (performance.now() - this.#startedAt) / 1000
    const perSecond = (this.#done + this.#failed) / seconds
    const left = size === undefined ? undefined : Math.max(0, size - this.#size - this.#sizeBefore)
    const secondsLeft = left === undefined || this.#size === 0 ? undefined : (left / this.#size) * seconds
    if (isJson) {
      const rounded = { per_second: Math.round(perSecond * 10) / 10, seconds_left: toWhole(secondsLeft) }
      return this.#json({ type: 'progress', ...this.#counts(), ...rounded })
    }
    const rate = `${perSecond < 10 ? perSecond.toFixed(1) : Math.round(perSecond)}/s`
    const eta = secondsLeft === undefined ? '' : `, ${timeText(secondsLeft)} left`
    const words = `${this.#done + this.#before} done, ${this.#failed} failed, ${rate}${eta}`
    if (!hasBar) return this.note(`progress: ${words}`)
    const share = size === undefined || size === 0 || left === undefined ? undefined : 1 - left / size
    const filled = share === undefined ? 0 : Math.round(share * barWidth)
    const bar = share === undefined ? '' : `[${'#'.repeat(filled)}${'.'.repeat(barWidth - filled)}] `
    const { columns } = this.#screen
    this.#clear()
    this.#screen.write(clipToWidth(`${bar}${words}`, (columns > 0 ? columns : defaultColumns) - 2))
    this.#isBarShown = true
  }

  #clear(): void {
    if (this.#isBarShown) this.#screen.write('\r\u001b[K')
    this.#isBarShown = false
  }

  #json(line: object): void {
    this.#screen.write(`${JSON.stringify(line)}\n`)
  }
}

function toWhole(seconds: number | undefined): number | null {
  return seconds === undefined ? null : Math.round(seconds)
}

/** `4.2 s`, `3 min 20 s`, `2 h 5 min` */
function timeText(seconds: number): string {
  if (seconds < 59.95) return `${seconds < 10 ? seconds.toFixed(1) : Math.round(seconds)} s`
  const minutes = Math.floor(seconds / 60)
  if (minutes < 60) return `${minutes} min ${Math.round(seconds) % 60} s`
  return `${Math.floor(minutes / 60)} h ${minutes % 60} min`
}
