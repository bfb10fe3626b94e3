/** What actions keep for the length of a run beside its memory. */
import type { RunnerContext } from './context.ts'
import type { Memory } from './memory.ts'

/** One entry for all values of a run, as one costs the better part of a microsecond. */
const valuesOf = new WeakMap<Memory, Map<() => unknown, unknown>>()

/**
 * Gives each run a value of its own, made when somebody first asks for it, and gone with the run: for what is no JSON, or is used too
 * often to be copied each time as {@link RunnerContext.sensoryMemory} does.
 */
export function ofRun<Value>(make: () => Value): (context: Pick<RunnerContext, 'sensoryMemory'>) => Value {
  return ({ sensoryMemory }) => {
    let values = valuesOf.get(sensoryMemory)
    if (values === undefined) valuesOf.set(sensoryMemory, (values = new Map<() => unknown, unknown>()))
    if (!values.has(make)) values.set(make, make())
    return values.get(make) as Value
  }
}
