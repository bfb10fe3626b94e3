/** References within one schema. */
import { isObject } from '../../base/json.ts'

/** A chain of references that is longer leads nowhere. */
const maxHops = 20

/** What a schema is behind its `$ref`s; undefined where one leads out of the schema, nowhere, or round. */
export function resolveRef(schema: unknown, root: unknown): unknown {
  let found = schema
  for (let hops = 0; hops < maxHops; hops++) {
    if (!isObject(found) || typeof found['$ref'] !== 'string') return found
    found = atPointer(found['$ref'], root)
  }
  return undefined
}

/** What a reference such as `#/$defs/node` names in `root`; undefined for one that leads elsewhere, or nowhere. */
export function atPointer(reference: string, root: unknown): unknown {
  if (!reference.startsWith('#')) return undefined
  if (reference === '#') return root
  if (!reference.startsWith('#/')) return undefined
  let found: unknown = root
  for (const token of reference.slice(2).split('/')) {
    const key = decode(token).replaceAll('~1', '/').replaceAll('~0', '~')
    if (typeof found !== 'object' || found === null || !Object.hasOwn(found, key)) return undefined
    found = (found as Record<string, unknown>)[key]
  }
  return found
}

function decode(token: string): string {
  try {
    return decodeURIComponent(token)
  } catch {
    // A percent sign that encodes nothing is part of the name.
    return token
  }
}
