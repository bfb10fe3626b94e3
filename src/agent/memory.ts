/** An agent's memory: JSON values under dotted paths. */
import type { Json } from '../base/json.ts'

/**
 * What goes in and comes out is a copy. Paths are dotted: `set('order.items', […])` makes `order` an object on the way.
 * Throws `invalid_event` for a value that is not JSON or a path that leads through something that is no object, and
 * `run_ended` once the run has ended.
 */
export interface Memory {
  /** Undefined where there is nothing. */
  get(path: string): Json | undefined
  set(path: string, value: Json): void
  has(path: string): boolean
  /** Whether there was something. */
  delete(path: string): boolean
  /** The names right below the path (default: the top), in the order in which they were set. */
  keys(path?: string): string[]
  /** Everything, as one object. */
  toJSON(): Json
}
