/** The names of our diagnostics channels. What goes over them is told here, and nowhere else. */
import { channel } from 'node:diagnostics_channel'
import type { ErrorCode } from './errors.ts'

/** One call of a tool that has ended. `params` are those that the tool was given; a record can be called again by them. */
export interface ToolCallRecord {
  /** The handle. */
  readonly tool: string
  readonly kind: string
  readonly params: unknown
  readonly caller: string
  readonly tenant?: string
  readonly callId: string
  readonly taskId?: string
  /** Milliseconds since 1970. */
  readonly startedAt: number
  /** From the first check to the end, waiting in line included. */
  readonly durationMs: number
  readonly outcome: 'ok' | ErrorCode
  /** How often the tool was run; 0 where the call was refused before. */
  readonly attempts: number
  readonly chunks: number
}

/** A {@link ToolCallRecord} for every call of a tool, however it ends. Subscribe by `node:diagnostics_channel`. */
export const toolCalls = channel('convoke:tool.call')
