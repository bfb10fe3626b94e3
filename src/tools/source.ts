/** What brings tools from elsewhere into an agent's tool space: peers, and servers of other protocols. */
import type { Tool } from './tool.ts'

/** Tools of other nodes or servers. A handle is `SERVICE.NAME`, split at its first dot. */
export interface ToolSource {
  /** Whether there is a service of that id, known or not yet looked at. */
  has(service: string): boolean
  /**
   * The tool, ready to be called. Looks at the service once if nobody has yet: a promise then. Throws, or rejects with,
   * `not_found`, whose cause says why the service could not be looked at.
   */
  resolve(service: string, name: string): Tool | Promise<Tool>
  /** The tools that are known, by handle. Never asks anybody. */
  list(): readonly Tool[]
  /** Those of the known tools that a bare name can mean. */
  named(name: string): readonly Tool[]
}
