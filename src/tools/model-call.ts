/** The calls that language models make, in the spellings of their providers, and what is wrong with those that are none. */
import type { Issue } from '../base/errors.ts'
import { cloneJson, isObject, type JsonObject } from '../base/json.ts'
import { excerpt, findNotJson } from './value.ts'

/**
 * One call of a model's round, in one of the spellings `{id, name, arguments}`, OpenAI's
 * `{id, type: 'function', function: {name, arguments}}` and `{type: 'function_call', call_id, name, arguments}`,
 * Anthropic's `{type: 'tool_use', id, name, input}`, and Gemini's `{functionCall: {id, name, args}}`. Arguments are an
 * object, or its JSON as text.
 */
export type ModelCall =
  | {
      readonly id?: string | null | undefined
      readonly type?: string
      readonly call_id?: string
      readonly name: string
      readonly arguments?: object | string | null | undefined
      readonly input?: unknown
      readonly args?: unknown
    }
  | {
      readonly id?: string | null | undefined
      readonly type?: string
      readonly function: { readonly name: string; readonly arguments?: object | string | null | undefined }
    }
  | { readonly functionCall: { readonly id?: string | undefined; readonly name: string; readonly args?: unknown } }

/** A call as it was read. `problem` says why it cannot be carried out. */
export interface ReadCall {
  /** As it was given; undefined where there is none. */
  readonly id: string | undefined
  /** The empty text where there is none. */
  readonly name: string
  readonly params: JsonObject
  readonly problem?: { readonly message: string; readonly issues?: readonly Issue[] }
}

/** Reads a call. Never throws, whatever it is given. */
export function readModelCall(given: unknown): ReadCall {
  try {
    return read(given)
  } catch {
    // A getter or a proxy of the caller's own that throws.
    return { id: undefined, name: '', params: {}, problem: { message: 'This call cannot be read.' } }
  }
}

function read(given: unknown): ReadCall {
  if (!isObject(given)) {
    const message = `A call must be an object { id, name, arguments }, got ${given === null ? 'null' : excerpt(given)}.`
    return { id: undefined, name: '', params: {}, problem: { message } }
  }
  const inner = [given['function'], given['functionCall']].find(isObject) ?? given
  // In OpenAI's responses `id` is that of the item; what the answer has to name is `call_id`.
  const id = toId(given['call_id']) ?? toId(given['id']) ?? toId(inner['id'])
  const { name } = inner
  if (typeof name !== 'string' || name === '') {
    const message = `A call must name its tool in \`name\`, got ${name === null ? 'null' : excerpt(name)}.`
    return { id, name: '', params: {}, problem: { message } }
  }
  return { id, name, ...readArguments(inner['arguments'] ?? inner['input'] ?? inner['args']) }
}

function toId(value: unknown): string | undefined {
  if (typeof value === 'number') return String(value)
  return typeof value === 'string' && value !== '' ? value : undefined
}

/**
 * Arguments as an object. Absent ones, null and an empty text are `{}`: models write all three for a tool without params.
 * JSON inside of JSON is unpacked once, as models sometimes write their arguments twice; never more, as a text that
 * is JSON may be meant.
 */
export function readArguments(given: unknown): Pick<ReadCall, 'params' | 'problem'> {
  let value = given
  if (typeof value === 'string') {
    const parsed = parse(value)
    if (typeof parsed === 'object' && 'broken' in parsed) return wrong(parsed.broken)
    value = parsed.value
    const again = typeof value === 'string' ? parse(value) : undefined
    if (again !== undefined && 'value' in again && isObject(again.value)) value = again.value
  }
  if (value === undefined || value === null) return { params: {} }
  if (!isObject(value)) return wrong(`must be an object, got ${excerpt(value)}`)
  const notJson = findNotJson(value)
  // An object of the caller's may change while the round runs.
  if (notJson === undefined) return { params: cloneJson(value as JsonObject) }
  const { path, message } = notJson
  return { params: {}, problem: { message: `The arguments are not JSON at "${path}": ${message}.`, issues: [notJson] } }
}

function wrong(clause: string): Pick<ReadCall, 'params' | 'problem'> {
  return {
    params: {},
    problem: { message: `The arguments ${clause}.`, issues: [{ path: '', message: clause }] },
  }
}

function parse(text: string): { readonly value: unknown } | { readonly broken: string } {
  if (text.trim() === '') return { value: undefined }
  try {
    return { value: JSON.parse(text) as unknown }
  } catch {
    const at = findJsonBreak(text)
    if (at >= text.length) return { broken: `are not complete JSON: they end after ${text.length} characters` }
    const before = text.slice(Math.max(0, at - 20), at)
    const near = `behind ${JSON.stringify(before)} stands ${JSON.stringify(text.slice(at, at + 10))}`
    return { broken: `are not JSON from character ${at + 1} on: ${near}` }
  }
}

/**
 * Where a text that JSON.parse refused stops being JSON, as an index into it; its length where only the end is missing.
 * The engine's own messages say it for some mistakes only, and each version says it in other words.
 */
export function findJsonBreak(text: string): number {
  const open: ('{' | '[')[] = []
  /** What may stand next. `first` is a value or key, or the end of what has just been opened. */
  let next: 'value' | 'first' | 'key' | 'colon' | 'comma' = 'value'
  let i = 0
  for (;;) {
    while (i < text.length && ' \t\n\r'.includes(text.charAt(i))) i++
    if (i === text.length) return i
    const char = text.charAt(i)
    const inObject = open.at(-1) === '{'
    if ((next === 'comma' || next === 'first') && open.length > 0 && char === (inObject ? '}' : ']')) {
      open.pop()
      next = 'comma'
      i++
    } else if (next === 'comma') {
      if (char !== ',' || open.length === 0) return i
      next = inObject ? 'key' : 'value'
      i++
    } else if (next === 'colon') {
      if (char !== ':') return i
      next = 'value'
      i++
    } else if (next === 'key' || (next === 'first' && inObject)) {
      if (char !== '"') return i
      const end = endOfString(text, i)
      if (end.broken) return end.at
      i = end.at
      next = 'colon'
    } else if (char === '{' || char === '[') {
      open.push(char)
      next = 'first'
      i++
    } else {
      const end = char === '"' ? endOfString(text, i) : endOfWord(text, i)
      if (end.broken) return end.at
      i = end.at
      next = 'comma'
    }
  }
}

interface End {
  readonly at: number
  readonly broken: boolean
}

function endOfString(text: string, start: number): End {
  for (let i = start + 1; i < text.length; i++) {
    const code = text.charCodeAt(i)
    if (code === 0x22) return { at: i + 1, broken: false }
    if (code < 0x20) return { at: i, broken: true }
    if (code !== 0x5c) continue
    const escaped = text.charAt(i + 1)
    if (escaped === '') break
    if (escaped === 'u') {
      const digits = text.slice(i + 2, i + 6)
      if (!/^[\dA-Fa-f]*$/.test(digits)) return { at: i, broken: true }
      i += 1 + digits.length
    } else if ('"\\/bfnrt'.includes(escaped)) i++
    else return { at: i, broken: true }
  }
  return { at: text.length, broken: true }
}

function endOfWord(text: string, start: number): End {
  const word = /[-+.\w]*/y
  word.lastIndex = start
  const found = word.exec(text)?.[0] ?? ''
  if (/^(?:true|false|null|-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][-+]?\d+)?)$/.test(found))
    return { at: start + found.length, broken: false }
  // The beginning of a word at the end of the text may have gone on.
  const isCut =
    start + found.length === text.length &&
    /^(?:t|tr|tru|f|fa|fal|fals|n|nu|nul|-|-?\d+\.|-?\d+(?:\.\d+)?[eE][-+]?)$/.test(found)
  return { at: isCut ? text.length : start, broken: true }
}
