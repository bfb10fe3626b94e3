/** One piece of work for all who want it at the same time. */
import { abortReason, onAbort } from './abort.ts'
import { ConvokeError } from './errors.ts'

interface Running<T> {
  readonly result: Promise<T>
  readonly stop: AbortController
  waiting: number
}

/** Whoever leaves, leaves alone: the others get the result. Once all have left, the work is stopped. */
export class SharedWork<T> {
  #running: Running<T> | undefined

  get isRunning(): boolean {
    return this.#running !== undefined
  }

  /** Begins the work, or joins that which is under way. Rejects with the reason of the signal as soon as that aborts. */
  run(work: (signal: AbortSignal) => Promise<T>, signal: AbortSignal | undefined): Promise<T> {
    if (signal?.aborted === true) return Promise.reject(abortReason(signal))
    const running = (this.#running ??= this.#begin(work))
    running.waiting++
    return new Promise((resolve, reject) => {
      let stopListening = (): void => {}
      if (signal !== undefined) {
        stopListening = onAbort(signal, () => {
          reject(abortReason(signal))
          if (--running.waiting > 0) return
          this.#end(running)
          running.stop.abort(new ConvokeError('canceled', 'Nobody waits for it any more.'))
        })
      }
      running.result.then(resolve, reject).finally(stopListening)
    })
  }

  #begin(work: (signal: AbortSignal) => Promise<T>): Running<T> {
    const stop = new AbortController()
    const running: Running<T> = {
      result: work(stop.signal).finally(() => this.#end(running)),
      stop,
      waiting: 0,
    }
    return running
  }

  #end(running: Running<T>): void {
    if (this.#running === running) this.#running = undefined
  }
}
