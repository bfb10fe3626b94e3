import type { LocalToolRegistry } from './local.ts'
import type { ToolSource } from './source.ts'
export function localSource(registry: LocalToolRegistry): ToolSource {
  return {
    kind: 'local',
    get revision() {
      return registry.revision
    },
    services: () => [''],
    has: (service) => service === '',
    resolve: (_service, name) => registry.resolve(name),
    list: () => registry.list(),
    discover: async () => {},
    invalidate: () => {},
    status: () => ({ state: 'ok', tools: registry.list().length, problems: registry.problems() }),
    onChange: (listener) => registry.onChange(listener),
    close: async () => {},
  }
}
