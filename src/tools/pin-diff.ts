/** What differs between two states of a tool: its description line by line, its schemas place by place. */
import { canonicalJson, isObject, type Json } from '../base/json.ts'
import type { Snapshot } from './pin-records.ts'
import { escapePointer } from './value.ts'

export interface LineChange {
  readonly type: 'same' | 'added' | 'removed'
  readonly line: string
}

export interface PlaceChange {
  readonly type: 'added' | 'removed' | 'changed'
  /** A JSON Pointer that begins with `/input`, `/output` or `/annotations`. */
  readonly path: string
  readonly before?: Json
  readonly after?: Json
}

export interface SnapshotDiff {
  /** The hashes. */
  readonly before: string
  readonly after: string
  /** All lines, those that are the same too; empty when the description did not change. */
  readonly description: readonly LineChange[]
  /** In the order of the places; at most 1,000. */
  readonly places: readonly PlaceChange[]
}

export interface PinDiff extends SnapshotDiff {
  readonly handle: string
  /** `pending`: held back until somebody approves; `accepted`: the last change that was. */
  readonly state: 'pending' | 'accepted'
  /** When the change was seen or accepted, in milliseconds since 1970. */
  readonly at: number
}

const maxPlaces = 1_000
/** The table of the longest common subsequence has so many cells at most; beyond, all lines count as other ones. */
const maxCells = 1_000_000

export function diffSnapshots(before: Snapshot, after: Snapshot): SnapshotDiff {
  const places: PlaceChange[] = []
  comparePlaces(toPlaces(before), toPlaces(after), '', places)
  return {
    before: before.hash,
    after: after.hash,
    description: before.description === after.description ? [] : diffLines(before.description, after.description),
    places: places.slice(0, maxPlaces),
  }
}

function toPlaces({ input, output, annotations }: Snapshot): Json {
  const { readOnly, idempotent, tags } = annotations
  return { input, ...(output === undefined ? {} : { output }), annotations: { readOnly, idempotent, tags: [...tags] } }
}

function comparePlaces(before: Json, after: Json, path: string, places: PlaceChange[]): void {
  if (places.length >= maxPlaces) return
  if (isObject(before) && isObject(after)) {
    for (const key of new Set([...Object.keys(before), ...Object.keys(after)])) {
      const place = `${path}/${escapePointer(key)}`
      const [old, now] = [own(before, key), own(after, key)]
      if (old === undefined && now !== undefined) places.push({ type: 'added', path: place, after: now })
      else if (now === undefined && old !== undefined) places.push({ type: 'removed', path: place, before: old })
      else if (old !== undefined && now !== undefined) comparePlaces(old, now, place, places)
    }
    return
  }
  if (Array.isArray(before) && Array.isArray(after) && before.length === after.length && before.every(isObject)) {
    for (const [index, old] of before.entries()) comparePlaces(old, after[index] as Json, `${path}/${index}`, places)
    return
  }
  if (canonicalJson(before) !== canonicalJson(after)) places.push({ type: 'changed', path, before, after })
}

/** A schema may have a property that is called as those are which every object has. */
function own(value: Record<string, Json>, key: string): Json | undefined {
  return Object.hasOwn(value, key) ? value[key] : undefined
}

function diffLines(before: string, after: string): LineChange[] {
  const old = before === '' ? [] : before.split('\n')
  const now = after === '' ? [] : after.split('\n')
  let head = 0
  while (head < old.length && head < now.length && old[head] === now[head]) head++
  let tail = 0
  while (tail < Math.min(old.length, now.length) - head && old.at(-1 - tail) === now.at(-1 - tail)) tail++
  const same = (line: string): LineChange => ({ type: 'same', line })
  return [
    ...old.slice(0, head).map(same),
    ...diffMiddle(old.slice(head, old.length - tail), now.slice(head, now.length - tail)),
    ...old.slice(old.length - tail).map(same),
  ]
}

function diffMiddle(old: readonly string[], now: readonly string[]): LineChange[] {
  const removed = (line: string): LineChange => ({ type: 'removed', line })
  const added = (line: string): LineChange => ({ type: 'added', line })
  if (old.length * now.length > maxCells) return [...old.map(removed), ...now.map(added)]
  // common[i][j]: how many lines old[i…] and now[j…] have in common, in order.
  const common = Array.from({ length: old.length + 1 }, () => new Uint32Array(now.length + 1))
  const at = (i: number, j: number): number => common[i]?.[j] ?? 0
  for (let i = old.length - 1; i >= 0; i--) {
    const row = common[i]
    for (let j = now.length - 1; row !== undefined && j >= 0; j--) {
      row[j] = old[i] === now[j] ? at(i + 1, j + 1) + 1 : Math.max(at(i + 1, j), at(i, j + 1))
    }
  }
  const changes: LineChange[] = []
  let [i, j] = [0, 0]
  while (i < old.length || j < now.length) {
    const [oldLine, nowLine] = [old[i], now[j]]
    if (oldLine !== undefined && oldLine === nowLine) {
      changes.push({ type: 'same', line: oldLine })
      i++
      j++
    } else if (oldLine !== undefined && (nowLine === undefined || at(i + 1, j) >= at(i, j + 1))) {
      changes.push(removed(oldLine))
      i++
    } else if (nowLine !== undefined) {
      changes.push(added(nowLine))
      j++
    }
  }
  return changes
}
