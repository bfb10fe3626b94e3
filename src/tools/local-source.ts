/** The agent's own tools as a source: they are called by their names alone, and there is nobody to ask for them. */
import { ConvokeError } from '../base/errors.ts'
import { KeyError, type LocalToolRegistry } from './local.ts'
import type { ToolSource } from './source.ts'
import { excerpt } from './value.ts'

/** The one service of the agent's own tools. */
const own = ''

/** A registry as the source of the service `''`. The registry is its owner's, who may go on with it after `close`. */
export function localSource(registry: LocalToolRegistry): ToolSource {
  const listeners = new Set<() => void>()
  let isClosed = false
  const check = (service: string): void => {
    if (service !== own) throw new KeyError(`The agent's own tools have no service ${excerpt(service)}.`)
    if (isClosed) throw new ConvokeError('unavailable', "The source of the agent's own tools is closed.")
  }
  return {
    kind: 'local',
    get revision() {
      return registry.revision
    },
    services: () => [own],
    has: (service) => service === own,
    resolve(service, name) {
      check(service)
      return registry.resolve(name)
    },
    list: () => (isClosed ? [] : registry.list()),
    async discover(service, { signal } = {}) {
      signal?.throwIfAborted()
      check(service)
    },
    invalidate() {},
    status(service) {
      if (service !== own || isClosed) return { state: 'never', tools: 0 }
      const problems = registry.problems()
      const tools = registry.list().length
      return { state: 'ok', tools, ...(problems.length === 0 ? {} : { problems }) }
    },
    onChange(listener) {
      const stop = registry.onChange(listener)
      listeners.add(stop)
      return () => {
        listeners.delete(stop)
        stop()
      }
    },
    async close() {
      isClosed = true
      for (const stop of listeners) stop()
      listeners.clear()
    },
  }
}
