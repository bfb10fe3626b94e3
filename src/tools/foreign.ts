/** What strangers say of their tools: names, texts and schemas of peers and MCP servers, before models and people read them. */
import { isObject } from '../base/json.ts'
import { stripControls } from '../base/text.ts'
import type { JsonSchema } from './tool.ts'

const maxNameLength = 128
/** Deeper no schema is looked at; the validator refuses such a one anyway. */
const maxDepth = 100

/** Names go into handles, messages and the definitions that models read: nothing invisible, and nothing endless. */
export function isForeignName(name: unknown): name is string {
  if (typeof name !== 'string' || name === '' || name.length > maxNameLength) return false
  return name.trim() === name && !/[\t\r\n]/.test(name) && stripControls(name) === name
}

/** What {@link isForeignName} asks for, for messages. */
export const foreignNameRule = `1 to ${maxNameLength} visible characters`

/** A text as people see it. */
export function cleanText(text: string): string {
  return stripControls(text)
}

/** The schema with clean titles, descriptions and comments; the same object where they are. All else counts and stays. */
export function cleanSchema(schema: JsonSchema): JsonSchema {
  return cleanNode(schema, 0) as JsonSchema
}

const texts = new Set(['title', 'description', '$comment'])
/** Their members are values, not schemas. */
const values = new Set(['const', 'default', 'enum', 'examples'])
/** Their members are schemas under names of the author's choice. */
const named = new Set(['properties', 'patternProperties', '$defs', 'definitions', 'dependentSchemas'])

function cleanNode(node: unknown, depth: number): unknown {
  if (depth > maxDepth) return node
  if (Array.isArray(node)) return cleanMembers(node, node.entries(), (member) => cleanNode(member, depth + 1))
  if (!isObject(node)) return node
  return cleanMembers(node, Object.entries(node), (member, key) => {
    if (texts.has(key)) return typeof member === 'string' ? cleanText(member) : member
    if (values.has(key)) return member
    if (!named.has(key) || !isObject(member)) return cleanNode(member, depth + 1)
    return cleanMembers(member, Object.entries(member), (each) => cleanNode(each, depth + 1))
  })
}

/** The node itself as long as nothing changes: most schemas are clean, and are many. */
function cleanMembers<Key extends string | number>(
  node: object,
  members: Iterable<[Key, unknown]>,
  clean: (member: unknown, key: Key) => unknown,
): unknown {
  const changes = [...members].flatMap(([key, member]): [Key, unknown][] => {
    const cleaned = clean(member, key)
    return cleaned === member ? [] : [[key, cleaned]]
  })
  if (changes.length === 0) return node
  const copy: object = Array.isArray(node) ? [...(node as unknown[])] : { ...node }
  // Assigning to `__proto__`, which may be the name of a property, would set the prototype instead.
  for (const [key, value] of changes)
    Object.defineProperty(copy, key, { value, enumerable: true, configurable: true, writable: true })
  return copy
}
