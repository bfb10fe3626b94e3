/** The items of an agent's input file: one JSON value a line, each with its key. */
import { createHash } from 'node:crypto'
import { createReadStream } from 'node:fs'
import { addAbortSignal, type Readable } from 'node:stream'
import { ConvokeError } from '../../base/errors.ts'
import { isObject, parseJson, type Json } from '../../base/json.ts'
import { excerpt } from '../../tools/value.ts'
import { readLines } from '../lines.ts'

/** Longest line, in bytes. */
const maxLineBytes = 16 * 1024 * 1024

/** One line of the input. */
export interface Item {
  /** From 1. */
  readonly line: number
  readonly key: string
  readonly value: Json
  /** The same for the same text on the same line. */
  readonly id: string
  /** Of the line, in bytes. */
  readonly size: number
}

/** A line that is no item, and why. */
export interface BadLine {
  readonly line: number
  readonly problem: string
  readonly size: number
}

export interface ItemsOptions {
  /** A path; undefined: standard input. */
  readonly file: string | undefined
  /** The member of each line that is its key; the whole line is the value then. Default: lines are `{key, value}`. */
  readonly keyField: string | undefined
  /** Ends the reading. */
  readonly signal: AbortSignal
}

/** Reads as fast as somebody takes them; lines of white space are skipped. Throws the signal's AbortError, and the system's for a file that cannot be read. */
export async function* readItems({ file, keyField, signal }: ItemsOptions): AsyncGenerator<Item | BadLine, void, void> {
  const source: Readable = addAbortSignal(signal, file === undefined ? process.stdin : createReadStream(file))
  for await (const line of readLines(source, maxLineBytes)) {
    if ('problem' in line) {
      yield { line: line.number, problem: line.problem, size: 0 }
      continue
    }
    // A mark of byte order is no part of the text.
    const text = line.number === 1 && line.text.startsWith('\ufeff') ? line.text.slice(1) : line.text
    if (text.trim() === '') continue
    const read = readItem(text, keyField)
    const size = Buffer.byteLength(text) + 1
    if ('problem' in read) yield { line: line.number, problem: read.problem, size }
    else yield { line: line.number, ...read, id: idOf(line.number, text), size }
  }
}

/** A line that was changed is another input, though it stands where it stood. */
function idOf(line: number, text: string): string {
  return `${line}-${createHash('sha256').update(text).digest('hex').slice(0, 16)}`
}

function readItem(
  text: string,
  keyField: string | undefined,
): { readonly key: string; readonly value: Json } | { readonly problem: string } {
  let parsed: unknown
  try {
    parsed = parseJson(text)
  } catch (error) {
    return { problem: `is no JSON: ${reasonOf(text, error)}` }
  }
  if (!isObject(parsed)) {
    const wanted = keyField === undefined ? '{"key": …, "value": …}' : `an object with "${keyField}"`
    return { problem: `must be ${wanted}, got ${excerpt(parsed)}` }
  }
  if (keyField !== undefined) return withKey(parsed[keyField], parsed as Json, keyField)
  const [keyName, valueName] = parsed['key'] === undefined && parsed['k'] !== undefined ? ['k', 'v'] : ['key', 'value']
  const value = parsed[valueName]
  if (value === undefined && parsed[keyName] === undefined)
    return { problem: 'has no "key" and no "value"; if one of its members is the key, name it: --key FIELD' }
  if (value === undefined) return { problem: `has no "${valueName}"` }
  return withKey(parsed[keyName], value as Json, keyName)
}

/** Why a line is no JSON, with the place in it. */
function reasonOf(text: string, error: unknown): string {
  try {
    JSON.parse(text)
    return ConvokeError.from(error).message.replace(/\.$/, '')
  } catch (syntax) {
    return (syntax as SyntaxError).message
  }
}

function withKey(key: unknown, value: Json, name: string): { key: string; value: Json } | { problem: string } {
  if (key === undefined) return { problem: `has no "${name}"` }
  if (typeof key === 'string') return { key, value }
  if (typeof key === 'number') return { key: String(key), value }
  return { problem: `has a "${name}" that is no text or number, but ${excerpt(key)}` }
}
