/** What the builtin tools are made with. */
import type { ToolTraits } from '../tool.ts'
import type { Workspace } from './workspace.ts'

export interface Kit {
  readonly workspace: Workspace
  /** Most bytes that a call reads, writes, fetches or gives back. */
  readonly maxBytes: number
  /** The longest that a command or a request may take, in milliseconds. */
  readonly timeoutMs: number
  /** The traits of a builtin tool: its category, and whether it is published. */
  readonly traits: (name: string, more: Pick<ToolTraits, 'readOnly' | 'idempotent'>) => ToolTraits
}
