/** A stage of an environment: inputs are read as far as there is room, run, and their outputs passed on. */
import { onAbort } from '../base/abort.ts'
import { Channel } from '../base/channel.ts'
import { ConvokeError } from '../base/errors.ts'
import { explained, FailedRuns, maxFailures, type FailedRun } from './failed-runs.ts'
import type { Placed } from './keyed.ts'
import type { AgentRunner } from './runner.ts'

export interface StageOptions {
  /** How many inputs may be under way; more are not read. */
  readonly maxInFlight: number
  /** Hears of each run that fails. Default: {@link Stage.outputs} throws at its end. */
  readonly onFailure?: (failure: FailedRun) => void
}

/** One agent between two streams. Closes its runner when its outputs end. */
export class Stage {
  readonly #runner: AgentRunner
  readonly #source: AsyncIterable<Placed>
  readonly #options: StageOptions
  readonly #signal: AbortSignal
  /** The outputs of one run together, so that those of the key's next run cannot come between them. */
  readonly #channel: Channel<readonly Placed[]>
  #hasLeft = false
  /** Ends what the pump waits for, when nobody takes outputs any more. */
  #leave: (() => void) | undefined
  #inFlight = 0
  /** Ends the wait for a run's end. */
  #wake: (() => void) | undefined
  /** The first ones, and how many there are. */
  readonly #failures: FailedRun[] = []
  #failed = 0

  constructor(runner: AgentRunner, source: AsyncIterable<Placed>, options: StageOptions, signal: AbortSignal) {
    this.#runner = runner
    this.#source = source
    this.#options = options
    this.#signal = signal
    this.#channel = new Channel(options.maxInFlight)
  }

  /**
   * What the runs put out: of one key in order, keys in any. Ends early when the signal aborts. Throws what the source throws, and
   * {@link FailedRuns}, behind all outputs.
   */
  async *outputs(): AsyncGenerator<Placed, void, void> {
    const unlink = onAbort(this.#signal, () => void this.#channel.return())
    const pump = this.#pump().then(
      () => this.#channel.end(),
      (error: unknown) => this.#channel.fail(error),
    )
    try {
      for await (const outputs of this.#channel) yield* outputs
    } finally {
      unlink()
      this.#hasLeft = true
      this.#leave?.()
      await this.#channel.return()
      await this.#runner.close()
      await pump
    }
    if (this.#failed > 0) throw new FailedRuns(this.#failures, this.#failed)
  }

  /** Reads the source, as long as there is room, and waits for the last run. Throws what the source throws, behind that. */
  async #pump(): Promise<void> {
    const { maxInFlight } = this.#options
    const iterator = this.#source[Symbol.asyncIterator]()
    let broken: { readonly by: unknown } | undefined
    for (;;) {
      const step = await this.#orLeft(iterator.next()).catch((error: unknown) => {
        // Runs of a stage before this one: its other outputs are inputs here like any.
        if (error instanceof FailedRuns) this.#note(error.failures, error.count)
        else broken = { by: error }
        return undefined
      })
      if (step === undefined) break
      if (step === 'left') {
        // One that waits itself may never answer.
        iterator.return?.()?.catch(() => {})
        return
      }
      if (step.done === true) break
      this.#inFlight++
      void this.#runOne(step.value)
      while (this.#inFlight >= maxInFlight) if (await this.#oneEnded()) break
    }
    while (this.#inFlight > 0) if (await this.#oneEnded()) return
    if (broken !== undefined) throw broken.by
  }

  async #runOne({ key, value, place, id }: Placed): Promise<void> {
    try {
      const { outputs } = await this.#runner.run(key, value, id === undefined ? {} : { id })
      if (outputs.length > 0) await this.#channel.push(outputs.map((output) => ({ key, value: output, place })))
    } catch (error) {
      if (!this.#channel.closed) this.#fail({ key, value, error: explained(ConvokeError.from(error)) })
    } finally {
      this.#inFlight--
      this.#wake?.()
    }
  }

  #fail(failure: FailedRun): void {
    const { onFailure } = this.#options
    if (onFailure === undefined) return this.#note([failure], 1)
    try {
      onFailure(failure)
    } catch (error) {
      this.#channel.fail(error)
    }
  }

  #note(failures: readonly FailedRun[], count: number): void {
    this.#failed += count
    this.#failures.push(...failures.slice(0, maxFailures - this.#failures.length))
  }

  /** Waits until a run has ended; says whether nobody takes outputs any more. */
  async #oneEnded(): Promise<boolean> {
    const ended = new Promise<'ended'>((resolve) => {
      this.#wake = () => resolve('ended')
    })
    return (await this.#orLeft(ended)) === 'left'
  }

  /** A race with one promise that lives as long as the stream would keep all the others. */
  #orLeft<T>(work: Promise<T>): Promise<T | 'left'> {
    return new Promise((resolve, reject) => {
      if (this.#hasLeft) return resolve('left')
      this.#leave = () => resolve('left')
      work.then(resolve, reject)
    })
  }
}
