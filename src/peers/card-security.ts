/** What an agent card says about getting in, read alike from cards of 1.0 and 0.3. */
import { isObject, type JsonObject } from '../base/json.ts'

/** One security scheme of a card, as it stands there. */
export interface SecurityScheme {
  readonly members: Readonly<Record<string, unknown>>
  /** The scopes that the card requires with it. */
  readonly scopes: readonly string[]
}

/** The schemes of a card: those that it requires, in its order, then the others. What is malformed is left out. */
export function securitySchemes(card: JsonObject): SecurityScheme[] {
  const schemes = membersOf(card['securitySchemes'])
  const required = [...listOf(card['securityRequirements']), ...listOf(card['security'])].flatMap((each) =>
    // 1.0 has the names below `schemes`, 0.3 has nothing around them.
    Object.entries(membersOf(membersOf(each)['schemes'] ?? each)),
  )
  const scopes = new Map<string, string[]>()
  for (const [name, list] of required) {
    if (!scopes.has(name)) scopes.set(name, listOf(membersOf(list)['list'] ?? list).filter(isText))
  }
  return [...new Set([...scopes.keys(), ...Object.keys(schemes)])].flatMap((name) => {
    const members = Object.hasOwn(schemes, name) ? schemes[name] : undefined
    return isObject(members) ? [{ members, scopes: scopes.get(name) ?? [] }] : []
  })
}

/** An object's members; none for anything else. */
export function membersOf(value: unknown): Record<string, unknown> {
  return isObject(value) ? value : {}
}

function listOf(value: unknown): unknown[] {
  return Array.isArray(value) ? value : []
}

function isText(value: unknown): value is string {
  return typeof value === 'string'
}
