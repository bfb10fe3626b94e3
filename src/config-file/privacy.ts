/** Which parts of a configuration file may hold secrets, and how places are named without telling them. */
import type { JsonObject } from '../base/json.ts'
import type { Path } from './path.ts'
import { isNameFor, propertiesOf, schemaAt, similarOf } from './schema.ts'

/** Below these everything may be a secret that was put in the wrong place. */
const privateParts: readonly Path[] = [
  ['server', 'auth'],
  ['peers', '*', 'auth'],
  ['peers', '*', 'headers'],
  ['models', '*', 'apiKey'],
  ['models', '*', 'headers'],
  ['mcpServers', '*'],
  // Where a key is pasted for a certificate.
  ['peers', '*', 'tls', 'ca'],
]

/** How many segments lead to the private part that the path is in; undefined outside of them. */
function privateFrom(path: Path): number | undefined {
  return privateParts.find((part) => part.every((name, index) => (name === '*' ? index in path : name === path[index])))
    ?.length
}

export function isPrivate(path: Path): boolean {
  return privateFrom(path) !== undefined
}

/** What stands in a private part where a key should be may be a secret that slipped; our keys are short and known. */
export function masked(path: Path): Path {
  const from = privateFrom(path) ?? path.length
  return path.map((segment, index) => {
    if (index < from) return segment
    const parent = schemaAt(path.slice(0, index)) ?? {}
    const isKnown =
      schemaAt(path.slice(0, index + 1)) !== undefined ? isNameFor(parent, segment) : isKeyLike(segment, parent)
    return isKnown && segment.length <= 24 ? segment : '…'
  })
}

/** A plain word, or a slip of the fingers in one of the keys that are allowed there. */
function isKeyLike(segment: string, parent: JsonObject): boolean {
  return /^[A-Za-z]+$/.test(segment) || similarOf(segment, Object.keys(propertiesOf(parent) ?? {})) !== undefined
}

/** `server.auth.tokens[0].id` */
export function showPath(path: Path): string {
  if (path.length === 0) return 'The file'
  const text = masked(path)
    .map((segment) =>
      /^\d+$/.test(segment)
        ? `[${segment}]`
        : /^[\w$-]+$/.test(segment)
          ? `.${segment}`
          : `[${JSON.stringify(segment)}]`,
    )
    .join('')
  return text.startsWith('.') ? text.slice(1) : text
}
