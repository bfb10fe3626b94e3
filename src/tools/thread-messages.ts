/** What a node and its worker threads say to each other. Structured clones: keep to plain data. */
import type { Caller, Progress, ToolContext, ToolLog } from './tool.ts'

/** What a tool gets in a worker thread: no signal, because a stop ends the thread; no questions, no other tools. */
export type BlockingContext = Pick<ToolContext, 'progress' | 'notice' | 'call' | 'caller' | 'deadline' | 'log'>

export type ToWorker =
  | {
      readonly type: 'run'
      readonly module: string
      readonly exportName: string
      readonly params: unknown
      readonly call: ToolContext['call']
      readonly caller: Caller
      readonly deadline: number | undefined
      /** Two counters, shared: messages posted (by the worker) and handled (by the node). */
      readonly counters: SharedArrayBuffer
    }
  /** The node has room for so many chunks more. */
  | { readonly type: 'credit'; readonly chunks: number }

export type FromWorker =
  | { readonly type: 'chunk'; readonly chunk: unknown }
  | { readonly type: 'progress'; readonly progress: Progress }
  | { readonly type: 'notice'; readonly log: ToolLog }
  | {
      readonly type: 'log'
      readonly level: LogLevel
      readonly details: object | string
      readonly message: string | undefined
    }
  | { readonly type: 'result'; readonly result: unknown }
  | { readonly type: 'thrown'; readonly thrown: Thrown }

export type LogLevel = 'debug' | 'info' | 'warn' | 'error'

/** Something thrown, taken apart: a structured clone of an error loses its class and code. */
export type Thrown =
  | {
      readonly kind: 'error'
      readonly name: string
      readonly message: string
      readonly stack: string | undefined
      readonly code: unknown
      readonly retryable: unknown
      readonly retryAfterMs: unknown
      readonly issues: unknown
    }
  | { readonly kind: 'value'; readonly value: unknown }

/** How many chunks may be under way from a worker at once; it waits for credit then. */
export const chunkWindow = 16
/** How many words of progress and log may be under way; the worker drops more (progress: but the newest). */
export const noteWindow = 64
export const posted = 0
export const handled = 1
