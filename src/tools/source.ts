/** What brings tools into an agent's tool space: the agent itself, peers, MCP servers, and anything else. */
import type { ConvokeError } from '../base/errors.ts'
import type { Tool, ToolKind } from './tool.ts'

/** What is known of the discovery of one service. */
export interface SourceStatus {
  /** `never` looked at, `ok` the last time, or `failed`. */
  readonly state: 'never' | 'ok' | 'failed'
  /** How many tools are known. */
  readonly tools: number
  /** When it was looked at last, in milliseconds since 1970. */
  readonly lastDiscovery?: number
  /** Why the last look failed. */
  readonly lastError?: ConvokeError
  /** Tools that cannot be used, and why; the others can. */
  readonly problems?: readonly { readonly name: string; readonly reason: string }[]
}

/**
 * The tools of some services. A handle is `SERVICE.NAME`, split at its first dot; the tools of the service `''` are called
 * by their names alone. All sources pass `test/contract/tool-source.ts`.
 */
export interface ToolSource {
  readonly kind: ToolKind
  /** Goes up with each change of the known tools: of two equal ones, what was built from them still stands. */
  readonly revision: number
  /** The ids of its services, in the order of configuration; whether they were looked at or not. */
  services(): readonly string[]
  /** Whether there is a service of that id. */
  has(service: string): boolean
  /**
   * The tool, ready to be called. The first lookup at a service looks at it, and all who ask meanwhile wait for that; a
   * promise then. No later lookup does, until somebody says `invalidate` or `discover`. Throws, or rejects with,
   * `not_found`, whose cause says why the service could not be looked at.
   */
  resolve(service: string, name: string): Tool | Promise<Tool>
  /** The tools that are known, by handle, in a stable order. Never asks anybody. */
  list(): readonly Tool[]
  /** Looks at a service now. Rejects with why that failed; the tools known before stay. */
  discover(service: string, options?: { readonly signal?: AbortSignal }): Promise<unknown>
  /** What is known of a service no longer counts, nor that it was looked at: the next lookup does so once more. */
  invalidate(service: string): void
  status(service: string): SourceStatus
  /** Calls the listener after each change of the known tools. Returns how to take it back. */
  onChange(listener: () => void): () => void
  /** Ends all that it has opened. What is called afterwards fails. */
  close(): Promise<void>
}
