/** What actions keep for the length of a run beside its memory. */
import type { RunnerContext } from './context.ts'
import type { Memory } from './memory.ts'

/**
 * Gives each run a value of its own, made when somebody first asks for it, and gone with the run: for what is no JSON, or is used too
 * often to be copied each time as {@link RunnerContext.sensoryMemory} does.
 */
export function ofRun<Value>(make: () => Value): (context: Pick<RunnerContext, 'sensoryMemory'>) => Value {
  const values = new WeakMap<Memory, { readonly value: Value }>()
  return ({ sensoryMemory }) => {
    const known = values.get(sensoryMemory)
    if (known !== undefined) return known.value
    const value = make()
    values.set(sensoryMemory, { value })
    return value
  }
}
