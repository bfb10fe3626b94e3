/**
 * Event streams out. Each batch of events leaves in one write, and the next is not fetched before the socket has taken
 * it: a reader that stalls costs one batch, and its cursor stands still.
 */
import type { ServerResponse } from 'node:http'
import type { EventRecord } from '../store/store.ts'
import type { EventStream } from './operations.ts'

export interface SseOptions {
  /** Silence before a comment is sent to keep the connection open, in milliseconds. */
  readonly heartbeatMs: number
  /** What stands in front of and behind each event's JSON on its `data` line. */
  readonly prefix: string
  readonly suffix: string
  /** The `data` line for a stream that breaks off. */
  readonly onError: (error: unknown) => string
}

const headers = {
  'content-type': 'text/event-stream',
  'cache-control': 'no-cache, no-transform',
  // nginx holds an event stream back until its buffer is full, unless told not to.
  'x-accel-buffering': 'no',
}

/** Writes the events until they end or the reader is gone. Ends the response; never rejects. */
export async function writeEvents(res: ServerResponse, events: EventStream, options: SseOptions): Promise<void> {
  res.writeHead(200, headers)
  res.flushHeaders()
  const heartbeat = setInterval(() => {
    if (!res.writableNeedDrain) res.write(':\n\n')
  }, options.heartbeatMs)
  try {
    for await (const batch of events) {
      heartbeat.refresh()
      // Composed elsewhere, so that a stream which waits for its next event does not hold the text of the last.
      if (!res.write(compose(batch, options))) await drained(res)
      if (res.destroyed) return
    }
  } catch (error) {
    if (!res.destroyed) res.write(`data: ${options.onError(error)}\n\n`)
  } finally {
    clearInterval(heartbeat)
    res.end()
  }
}

function compose(batch: readonly EventRecord[], { prefix, suffix }: SseOptions): string {
  let text = ''
  for (const { seq, text: body } of batch) {
    // A bare message is no event of a task, so it has no seq.
    text += seq === 0 ? `data: ${prefix}${body}${suffix}\n\n` : `id: ${seq}\ndata: ${prefix}${body}${suffix}\n\n`
  }
  return text
}

/** Resolves when the socket has taken what was written, or is gone. */
export function drained(res: ServerResponse): Promise<void> {
  return new Promise((resolve) => {
    if (res.destroyed) return resolve()
    const done = (): void => {
      res.off('drain', done)
      res.off('close', done)
      resolve()
    }
    res.on('drain', done)
    res.on('close', done)
  })
}
