/** Documents with their vectors on disk: a JSON object on each line, its vector as base64 of 32-bit floats. */
import { randomBytes } from 'node:crypto'
import { mkdir, open, rename, rm } from 'node:fs/promises'
import { dirname } from 'node:path'
import { ConvokeError } from '../base/errors.ts'
import { isObject, type JsonObject } from '../base/json.ts'
import type { IndexedDocument } from './vector-index.ts'

const bytesPerNumber = 4
/** How many lines are written at once. */
const linesPerWrite = 64

/** Yields what the file holds; nothing where there is none. Throws `resource_failed` for a file that is broken or cannot be read. */
export async function* readVectors(path: string): AsyncGenerator<IndexedDocument, void, void> {
  let number = 0
  try {
    await using file = await open(path)
    for await (const line of file.readLines({ autoClose: false })) {
      number++
      yield fromLine(line)
    }
  } catch (cause) {
    if (isMissing(cause)) return
    const where = number === 0 ? '' : ` at line ${number}`
    const text = `The file of the vector store could not be read${where}. Mend it, or remove it to begin anew; the log has its path.`
    throw new ConvokeError('resource_failed', text, { cause: new Error(path, { cause }) })
  }
}

/** Writes the file anew: it is there in whole, or as it was before. Throws `unavailable` when it cannot be written. */
export async function writeVectors(path: string, documents: Iterable<IndexedDocument>): Promise<void> {
  const fresh = `${path}.${randomBytes(6).toString('hex')}.tmp`
  try {
    await mkdir(dirname(path), { recursive: true })
    try {
      await using file = await open(fresh, 'wx', 0o600)
      for (const lines of inBatches(documents)) await file.appendFile(lines)
      await file.sync()
    } catch (error) {
      await rm(fresh, { force: true })
      throw error
    }
    await rename(fresh, path)
  } catch (cause) {
    const text =
      'The file of the vector store could not be written, and nothing was added. Is there room left, and may its folder be written? The log has its path.'
    throw new ConvokeError('unavailable', text, { cause: new Error(path, { cause }) })
  }
}

function* inBatches(documents: Iterable<IndexedDocument>): Generator<string, void, void> {
  let lines: string[] = []
  for (const document of documents) {
    if (lines.push(toLine(document)) < linesPerWrite) continue
    yield lines.join('')
    lines = []
  }
  yield lines.join('')
}

function toLine({ document, vector }: IndexedDocument): string {
  const bytes = Buffer.from(vector.buffer, vector.byteOffset, vector.byteLength)
  return `${JSON.stringify({ ...document, vector: bytes.toString('base64') })}\n`
}

function fromLine(line: string): IndexedDocument {
  const value: unknown = JSON.parse(line)
  if (!isObject(value)) throw new Error('It is no object.')
  const { id, content, metadata, vector } = value
  if (typeof id !== 'string' || typeof content !== 'string' || typeof vector !== 'string')
    throw new Error('It has no id, content or vector.')
  const bytes = Buffer.from(vector, 'base64')
  if (bytes.length === 0 || bytes.length % bytesPerNumber !== 0) throw new Error('Its vector is cut.')
  const numbers = new Float32Array(bytes.length / bytesPerNumber)
  Buffer.from(numbers.buffer).set(bytes)
  if (!numbers.every(Number.isFinite)) throw new Error('Its vector has what is no number.')
  const document = { id, content, ...(isObject(metadata) ? { metadata: metadata as JsonObject } : {}) }
  return { document, vector: numbers }
}

function isMissing(error: unknown): boolean {
  return error instanceof Error && 'code' in error && error.code === 'ENOENT'
}
