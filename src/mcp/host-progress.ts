/** Progress on its way to an MCP host: numbers that only rise, not too many of them, and a sign of life in silence. */
import { setTimeout as wait } from 'node:timers/promises'
import type { ToolProgress } from '../protocol/tool-call.ts'
import { clip } from '../tools/value.ts'

/** So many may leave at once; behind them one for each pause. What comes between is joined. */
const burst = 32
const pauseMs = 50
const maxMessage = 1000
/** A host may drop progress that reaches it together with the result; so long the result waits behind it. */
const settleMs = 5

export type SendProgress = (progress: ToolProgress) => Promise<void>

export class HostProgress {
  readonly #send: SendProgress | undefined
  readonly #heartbeat: NodeJS.Timeout | undefined
  #last = Number.NEGATIVE_INFINITY
  #total: number | undefined
  #allowance = burst
  #refill: NodeJS.Timeout | undefined
  #pending: Partial<ToolProgress> | undefined
  #sent: Promise<unknown> = Promise.resolve()
  #sentAt = Number.NEGATIVE_INFINITY

  /** Without `send`, for a host that did not ask for progress, it does nothing. `heartbeatMs` is the longest silence. */
  constructor(send: SendProgress | undefined, heartbeatMs: number) {
    this.#send = send
    if (send === undefined) return
    this.#heartbeat = setInterval(() => this.#add({}), heartbeatMs)
    this.#heartbeat.unref()
  }

  /** What the tool says of its progress. */
  report(progress: ToolProgress): void {
    this.#add(progress)
  }

  /** A piece of what the tool streams. Hosts take no partial results, but show what progress says. */
  say(text: string): void {
    this.#add({ message: text })
  }

  /** Sends what waits, and lets it arrive before the result does. Nothing is sent afterwards. */
  async settle(): Promise<void> {
    this.close()
    if (this.#pending !== undefined) this.#emit(this.#pending)
    await this.#sent
    const early = this.#sentAt + settleMs - performance.now()
    if (early > 0) await wait(early)
  }

  close(): void {
    clearInterval(this.#heartbeat)
    clearTimeout(this.#refill)
  }

  #add(news: Partial<ToolProgress>): void {
    if (this.#send === undefined) return
    this.#heartbeat?.refresh()
    if (this.#allowance > 0) {
      this.#allowance--
      this.#startRefill()
      return this.#emit(news)
    }
    // Of numbers the newest count; pieces of a stream belong together.
    const before = news.progress === undefined ? (this.#pending?.message ?? '') : ''
    const message = `${before}${news.message ?? ''}`.slice(-maxMessage)
    this.#pending = { ...this.#pending, ...news, ...(message === '' ? {} : { message }) }
  }

  #startRefill(): void {
    this.#refill ??= setTimeout(() => {
      this.#refill = undefined
      const pending = this.#pending
      this.#pending = undefined
      if (pending !== undefined) this.#emit(pending)
      else this.#allowance++
      if (this.#allowance < burst) this.#startRefill()
    }, pauseMs).unref()
  }

  #emit(news: Partial<ToolProgress>): void {
    this.#pending = undefined
    this.#sentAt = performance.now()
    if (news.total !== undefined) this.#total = news.total
    const progress = this.#next(news.progress)
    const total = this.#total !== undefined && this.#total >= progress ? { total: this.#total } : {}
    const message = news.message === undefined || news.message === '' ? {} : { message: clip(news.message, maxMessage) }
    // A connection that is gone shows itself by other means, and the work may go on without it.
    this.#sent = (this.#send?.({ progress, ...total, ...message }) ?? Promise.resolve()).catch(() => {})
  }

  /** Progress must rise with each message. What does not (a message alone, a tool that starts over) rises by next to nothing. */
  #next(wanted: number | undefined): number {
    if (wanted !== undefined && wanted > this.#last) return (this.#last = wanted)
    const step = Math.max(1e-3, Math.abs(this.#last) * 1e-6)
    return (this.#last = Number.isFinite(this.#last) ? this.#last + step : 0)
  }
}
