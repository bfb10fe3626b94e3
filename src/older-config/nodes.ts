/** Small moves of the nodes of a parsed file. */
import { isMap, isNode, isScalar, isSeq, Pair, Scalar, YAMLMap, YAMLSeq } from 'yaml'
import type { Node } from 'yaml'

export type Mapping = YAMLMap<unknown, unknown>
export type Member = Pair<unknown, unknown>

export function ownOf<Value>(table: Readonly<Record<string, Value>>, name: string): Value | undefined {
  return Object.hasOwn(table, name) ? table[name] : undefined
}

export function nameOf({ key }: { readonly key: unknown }): string {
  return isScalar(key) ? String(key.value) : ''
}

export function find(map: unknown, name: string): Member | undefined {
  return isMap(map) ? map.items.find((pair) => isScalar(pair.key) && nameOf(pair) === name) : undefined
}

export function remove(map: Mapping, pair: Member): void {
  map.items.splice(map.items.indexOf(pair), 1)
}

/** A new member; its key stands where its value does. */
export function put(map: Mapping, name: string, value: unknown): void {
  map.items.push(new Pair(scalarAs(name, value), value))
}

export function under(name: string, value: unknown): Mapping {
  const map: Mapping = new YAMLMap()
  placeAt(map, value)
  put(map, name, value)
  return map
}

export function inList(value: unknown): unknown {
  return isScalar(value) || isMap(value) ? listOf([value]) : value
}

export function listOf(items: unknown[]): YAMLSeq {
  const list = new YAMLSeq()
  list.items = items
  placeAt(list, items[0])
  return list
}

/** Another value in the same place. */
export function scalarAs(value: string | number, at: unknown): Scalar {
  const scalar = new Scalar(value)
  placeAt(scalar, at)
  return scalar
}

export function scalarOf(node: unknown): string | number | boolean | null | undefined {
  return isScalar(node) ? (node.value as string | number | boolean | null) : undefined
}

/** Where it begins in the text. */
export function offsetOf(node: unknown): number {
  return isNode(node) ? (node.range?.[0] ?? 0) : 0
}

/** Gives a new node the place of another, so that what is wrong with it is told there. */
export function placeAt(node: Node, at: unknown): void {
  if (isNode(at) && at.range) node.range = at.range
}

/** Puts what is in `older` behind what is in `today`, unless it is there. Returns the names of what is in both. */
export function merge(today: unknown, older: unknown): string[] {
  if (isSeq(today) && isSeq(older)) {
    const names = new Set(today.items.map((item) => scalarOf(find(item, 'name')?.value)))
    const isThere = (item: unknown): boolean => {
      const name = scalarOf(find(item, 'name')?.value)
      return name !== undefined && names.has(name)
    }
    today.items.push(...older.items.filter((item) => !isThere(item)))
    return older.items.filter(isThere).map((item) => String(scalarOf(find(item, 'name')?.value)))
  }
  if (!isMap(today) || !isMap(older)) return []
  const shared = older.items.filter((pair) => find(today, nameOf(pair)) !== undefined)
  today.items.push(...older.items.filter((pair) => !shared.includes(pair)))
  return shared.map(nameOf)
}
