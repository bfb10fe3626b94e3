/** A tool in a line: `count_to(n: integer, delay_ms?: integer)`. */
import { isObject } from '../../base/json.ts'
import type { JsonSchema } from '../../tools/tool.ts'
import { clip } from '../../tools/value.ts'
import { resolveRef } from './schema-ref.ts'

const maxParams = 20
const maxChoices = 6

/** The params of a tool, the required ones first. `…` where any other may be given. */
export function paramsText(schema: JsonSchema | undefined): string {
  if (schema === undefined) return '…'
  const root = resolveRef(schema, schema)
  const properties = isObject(root) && isObject(root['properties']) ? root['properties'] : {}
  const required = new Set(isObject(root) && Array.isArray(root['required']) ? root['required'] : [])
  const all = Object.entries(properties)
    .toSorted(([a], [b]) => Number(required.has(b)) - Number(required.has(a)))
    .map(([name, each]) => `${name}${required.has(name) ? '' : '?'}: ${typeText(each, schema)}`)
  return [...all.slice(0, maxParams), ...(all.length > maxParams ? ['…'] : [])].join(', ')
}

/** A type in a few words. */
export function typeText(schema: unknown, root: JsonSchema, depth = 0): string {
  const found = resolveRef(schema, root)
  if (!isObject(found) || depth > 3) return 'any'
  if ('const' in found) return clip(JSON.stringify(found['const']), 40)
  const { enum: choices, items } = found
  if (Array.isArray(choices)) {
    const shown = choices.slice(0, maxChoices).map((each) => clip(JSON.stringify(each), 40))
    return [...shown, ...(choices.length > maxChoices ? ['…'] : [])].join(' | ')
  }
  const branches: unknown = found['anyOf'] ?? found['oneOf']
  if (Array.isArray(branches)) return union(branches.map((branch) => typeText(branch, root, depth + 1)))
  const fallback = found['properties'] === undefined ? 'any' : 'object'
  const types = [found['type'] ?? fallback].flat().map((type) => (typeof type === 'string' ? type : 'any'))
  return union(
    types.map((type) => {
      if (type !== 'array') return type
      const item = items === undefined ? 'any' : typeText(items, root, depth + 1)
      return item.includes(' ') ? `(${item})[]` : `${item}[]`
    }),
  )
}

function union(types: readonly string[]): string {
  return [...new Set(types)].join(' | ')
}
