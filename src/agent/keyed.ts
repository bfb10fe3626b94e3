/** Values with their keys, on their way from one agent to the next. */
import { ConvokeError } from '../base/errors.ts'
import type { Json } from '../base/json.ts'
import { excerpt } from '../tools/value.ts'

/** One value of a key. `id` names the input where it must not be run twice; a UUID unless given. */
export interface Keyed {
  readonly key: string
  readonly value: Json
  readonly id?: string
}

/** As lists give it: `{key, value}` or `{k, v}`, a key being a text or a number; without a key each value has one of its own. */
export interface KeyedInput {
  readonly key?: string | number
  readonly value?: Json
  readonly k?: string | number
  readonly v?: Json
  readonly id?: string
}

/** A value on its way, and the place of the input that it comes from. */
export interface Placed extends Keyed {
  readonly place: number
}

/** Elements of a source as values of keys, in their order. Throws `config` for one without shape. */
export async function* place(
  source: AsyncIterable<unknown> | Iterable<unknown>,
  keySelector: ((value: never) => string | number) | undefined,
): AsyncGenerator<Placed, void, void> {
  let at = 0
  for await (const item of source) {
    yield keySelector === undefined
      ? { ...readKeyed(item, at), place: at }
      : { key: toKey(keySelector(item as never)), value: item as Json, place: at }
    at++
  }
}

function readKeyed(item: unknown, at: number): Keyed {
  const { key, k, value, v, id } = (typeof item === 'object' && item !== null ? item : {}) as KeyedInput
  const held = value === undefined ? v : value
  if (held === undefined) {
    throw new ConvokeError(
      'config',
      `An input must be {key, value}, got ${excerpt(item)} at place ${at}. Give \`fromStream\` a key selector for values alone.`,
    )
  }
  return { key: toKey(key ?? k ?? `input-${at}`), value: held, ...(id === undefined ? {} : { id }) }
}

/** Throws `config` for what is no key. */
export function toKey(key: unknown): string {
  if (typeof key === 'string') return key
  if (typeof key === 'number' && Number.isFinite(key)) return String(key)
  throw new ConvokeError('config', `A key must be a text or a number, got ${excerpt(key)}.`)
}
