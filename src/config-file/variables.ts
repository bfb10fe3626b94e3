/** Puts variables of the environment into the texts of a configuration file. */
import { isObject, type JsonObject } from '../base/json.ts'
import { toPointer } from '../tools/value.ts'
import { valueAt, type Path } from './path.ts'
import { isPrivate } from './privacy.ts'
import { schemaAt } from './schema.ts'
import type { Source } from './source.ts'

export type Environment = Readonly<Record<string, string | undefined>>

/**
 * The value with its variables put in; the source hears which places hold one. Where the schema wants a number or a boolean
 * and the whole text is one variable, its content is read as one.
 */
export function replaceVariables(source: Source, environment: Environment): unknown {
  const replaceIn = (text: string, path: Path): unknown => {
    if (path[0] === 'mcpServers') return replaceForeign(text, path)
    const [, slipped] = (isPrivate(path) && /^(?:\w+ )?\$\{([A-Za-z_]\w*)\}$/.exec(text)) || []
    if (slipped !== undefined) {
      // No credential looks like that, and nobody could tell from its refusal.
      source.add(path, `is \${${slipped}} as it stands; did you mean \${env:${slipped}}?`)
    } else if (!isPrivate(path) && /\$\{(?!env:)\w+\}/.test(text)) {
      source.warn(path, `holds a \${…} that stays as it is; variables are written \${env:NAME}.`)
    }
    const whole = /^\$\{env:\w+\}$/.test(text)
    const filled = text.replace(/\$\{env:([^}]*)\}/g, (_match, name: string) => {
      source.variables.set(toPointer(path), text)
      const content = environment[name]
      if (content === undefined) source.add(path, `${variableProblem(name)}.`)
      return content ?? ''
    })
    return whole ? readAs(schemaAt(path), filled) : filled
  }
  /** A block of another host: what no variable can be called, such as `${input:key}`, is none of ours. */
  const replaceForeign = (text: string, path: Path): unknown => {
    const filled = text.replace(/\$\{([^{}]*)\}/g, (whole, inside: string) => {
      const [, name, preset] = /^(?:env:)?([A-Za-z_]\w*)(?::-(.*))?$/s.exec(inside) ?? []
      if (name === undefined) {
        source.warn(path, `holds a \${…} that stays as it is; variables are written \${NAME}.`)
        return whole
      }
      source.variables.set(toPointer(path), text)
      const content = environment[name]
      // As a shell does: what is empty counts as not set where there is a default.
      if (preset !== undefined) return content === undefined || content === '' ? preset : content
      if (content === undefined && !isOff(source.value, path)) source.add(path, `${variableProblem(name)}.`)
      return content ?? ''
    })
    return /^\$\{[^{}]*\}$/.test(text) ? readAs(schemaAt(path), filled) : filled
  }
  // A copy: an alias gives the same object in two places, and each is a place of its own here.
  const walk = (value: unknown, path: Path): unknown => {
    if (typeof value === 'string') return replaceIn(value, path)
    if (Array.isArray(value)) return value.map((item, index) => walk(item, [...path, String(index)]))
    if (!isObject(value)) return value
    return Object.fromEntries(Object.entries(value).map(([key, member]) => [key, walk(member, [...path, key])]))
  }
  return walk(source.value, [])
}

/** Whether a value belongs to an MCP server that is switched off: it may lack what it needs. */
export function isOff(root: unknown, [part, id]: Path): boolean {
  const server = valueAt(root, [part ?? '', id ?? ''])
  return isObject(server) && (server['disabled'] === true || server['enabled'] === false)
}

function variableProblem(name: string): string {
  return /^[A-Za-z_][A-Za-z0-9_]*$/.test(name)
    ? `needs the environment variable ${name}, which is not set`
    : 'has a ${env:…} that names no variable'
}

function readAs(schema: JsonObject | undefined, text: string): unknown {
  if (schema?.['type'] === 'boolean' && (text === 'true' || text === 'false')) return text === 'true'
  const types = [schema?.['type']].flat()
  return (types.includes('integer') || types.includes('number')) && /^-?\d+(\.\d+)?$/.test(text) ? Number(text) : text
}
