/** `convoke config show`: what would hold for a command, and where each value comes from. */
import { globalFile } from '../environment.ts'
import type { Session } from './session.ts'
import { variableOf, type Setting } from './settings.ts'
import { field } from './text.ts'

const secret = /^(bearer|api-key|svc-param)$|secret|token$|credentials$/

/** What holds where no source says anything, in words. */
const builtIn: Readonly<Record<string, unknown>> = {
  transport: 'order of the card',
  'a2a-version': '1.0',
  insecure: false,
  timeout: 'none',
  verbose: false,
  debug: false,
}

/** Changes nothing, and shows no secret. */
export function showConfig(session: Session): void {
  const own = session.settings.filter(({ name }) => name !== 'config')
  const settings = [...own, ...othersOf(session)].map((setting) => ({ ...setting, value: shown(setting) }))
  session.show({ settings, globalFile: globalFile() }, () => {
    const lines = settings.map(({ name, value, source, from }) => {
      const text = value === undefined ? '(not set)' : typeof value === 'string' ? value : JSON.stringify(value)
      return field(name, `${text} (${from === undefined ? source : `${source}: ${from}`})`)
    })
    return `${lines.join('')}${field('Global file', globalFile())}`
  })
}

/** What is set for the options of single commands, such as A2ACLI_CONTEXT_ID; a name that is misspelt shows here, too. */
function othersOf({ sources, settings }: Session): Setting[] {
  const known = new Set(settings.map(({ name }) => variableOf(name)))
  const names = new Set(sources.flatMap(({ variables }) => Object.keys(variables)).filter((name) => !known.has(name)))
  return [...names]
    .filter((variable) => variable.startsWith('A2ACLI_'))
    .toSorted()
    .flatMap((variable) => {
      const source = sources.find(({ variables }) => variables[variable] !== undefined)
      if (source === undefined) return []
      const name = variable.slice('A2ACLI_'.length).toLowerCase().replaceAll('_', '-')
      return [{ name, value: source.variables[variable], source: source.kind, from: source.file ?? variable }]
    })
}

function shown({ name, value = builtIn[name] }: Setting): unknown {
  if (value !== undefined && secret.test(name)) return '[redacted]'
  if (typeof value === 'number') return `${value}ms`
  // A URL may have a password in it.
  return typeof value === 'string' ? value.replace(/(:\/\/)[^\s/@]+@/g, '$1[redacted]@') : value
}
