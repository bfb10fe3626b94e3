/** The calls of a model's answer, put together from the pieces in which endpoints stream them. */
import { ConvokeError } from '../base/errors.ts'
import { isObject, type JsonObject } from '../base/json.ts'
import { excerpt } from '../tools/value.ts'
import type { ModelToolCall } from './chat-model.ts'

/** How many calls one answer may make. */
const maxCalls = 128
/** How long the arguments of all of them together may be, with what goes with them, in characters. */
const maxArguments = 1024 * 1024
/** How long a name may be, in characters. */
const maxName = 1024
/** How long an id may be, in characters: some gateways put a model's signed thoughts into it. */
const maxId = 64 * 1024

interface OpenCall {
  id: string | undefined
  name: string
  arguments: string | JsonObject
  extra: JsonObject | undefined
  /** Whether the last piece of the arguments closes an object. To look at what is joined already would join it anew each time. */
  isClosed: boolean
}

/** One piece of a call, as it stands in `tool_calls`. */
interface Piece {
  readonly index: number | undefined
  readonly id: string | undefined
  readonly name: string | undefined
  readonly arguments: string | JsonObject
  readonly extra: JsonObject | undefined
}

/**
 * Takes pieces by their `index`, and whole calls with no index, or all with the same one. What an endpoint breaks is told by
 * `invalid`, which makes the error.
 */
export class CallAssembly {
  readonly #invalid: (clause: string) => ConvokeError
  readonly #calls: OpenCall[] = []
  /** The latest call of each index. */
  readonly #byIndex = new Map<number, OpenCall>()
  /** Of the arguments of all calls and what goes with them, in characters. */
  #length = 0

  constructor(invalid: (clause: string) => ConvokeError) {
    this.#invalid = invalid
  }

  get isEmpty(): boolean {
    return this.#calls.length === 0
  }

  /** Takes one entry of `tool_calls`. Throws `model_invalid` for what is none, or is too much. */
  add(entry: unknown): void {
    const piece = this.#read(entry)
    const known = this.#find(piece)
    const call = known === undefined || beginsAnew(known, piece) ? this.#begin(piece) : known
    call.id ??= piece.id
    if (call.extra === undefined && piece.extra !== undefined) {
      call.extra = piece.extra
      this.#count(piece.extra)
    }
    // Some endpoints say it again with each piece.
    if (piece.name !== undefined && call.name !== piece.name) call.name += piece.name
    if (call.name.length > maxName)
      throw this.#invalid(`has a tool call with a name of more than ${maxName} characters`)
    if (piece.arguments === '') return
    if (typeof piece.arguments !== 'string') call.arguments = piece.arguments
    else if (typeof call.arguments === 'string') {
      call.arguments += piece.arguments
      call.isClosed = piece.arguments.endsWith('}')
    }
    this.#count(piece.arguments)
  }

  #count(given: string | JsonObject): void {
    this.#length += typeof given === 'string' ? given.length : JSON.stringify(given).length
    if (this.#length > maxArguments)
      throw this.#invalid(`has tool calls with more than ${maxArguments} characters of arguments`)
  }

  /** The calls in their order; one without an id gets `call_N`. Throws `duplicate_call_id`, `model_invalid`. */
  finish(): ModelToolCall[] {
    const ids = new Set<string>()
    for (const { id, name } of this.#calls) {
      if (name === '') throw this.#invalid('has a tool call without a name')
      if (id === undefined) continue
      if (ids.has(id)) {
        const text = `The model gave two tool calls the same id, ${excerpt(id)}, so their results could not be told apart. Ask again.`
        throw new ConvokeError('duplicate_call_id', text)
      }
      ids.add(id)
    }
    let number = 0
    const makeId = (): string => {
      do number++
      while (ids.has(`call_${number}`))
      return `call_${number}`
    }
    return this.#calls.map(({ id, name, arguments: given, extra }) => {
      return { id: id ?? makeId(), name, arguments: given, ...(extra === undefined ? {} : { extra }) }
    })
  }

  #find({ index, id, name }: Piece): OpenCall | undefined {
    if (index !== undefined) return this.#byIndex.get(index)
    // Without an index, whoever says a name begins a call.
    if (name !== undefined) return undefined
    return id === undefined ? this.#calls.at(-1) : this.#calls.findLast((call) => call.id === id)
  }

  #begin({ index }: Piece): OpenCall {
    if (this.#calls.length === maxCalls) throw this.#invalid(`has more than ${maxCalls} tool calls`)
    const call: OpenCall = { id: undefined, name: '', arguments: '', extra: undefined, isClosed: false }
    this.#calls.push(call)
    if (index !== undefined) this.#byIndex.set(index, call)
    return call
  }

  #read(entry: unknown): Piece {
    if (!isObject(entry)) throw this.#invalid('has a tool call that is no object')
    // Gemini's signatures stand in it: https://ai.google.dev/gemini-api/docs/thought-signatures
    const { index, id, extra_content } = entry
    const called = isObject(entry['function']) ? entry['function'] : {}
    const { name, arguments: given = '' } = called
    if (typeof given !== 'string' && given !== null && !isObject(given))
      throw this.#invalid(`has tool arguments that are neither text nor an object, but ${excerpt(given)}`)
    if (typeof id === 'string' && id.length > maxId)
      throw this.#invalid(`has a tool call with an id of more than ${maxId} characters`)
    return {
      index: typeof index === 'number' ? index : undefined,
      id: typeof id === 'string' && id !== '' ? id : undefined,
      name: typeof name === 'string' && name !== '' ? name : undefined,
      arguments: isObject(given) ? (given as JsonObject) : (given ?? ''),
      extra: isObject(extra_content) ? ({ extra_content } as JsonObject) : undefined,
    }
  }
}

/** Whether a piece for the index of a call is another call: endpoints that send whole calls often give all the index 0. */
function beginsAnew(call: OpenCall, { id, name, arguments: given }: Piece): boolean {
  // Some endpoints give each piece another id, but name the tool once.
  if (name === undefined) return false
  if (id !== undefined && call.id !== undefined) return id !== call.id
  if (typeof call.arguments !== 'string') return true
  // `}{` stands between two objects, and nowhere in one outside of its strings.
  return call.isClosed && (typeof given !== 'string' || given.startsWith('{'))
}
