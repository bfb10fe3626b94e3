/** Reading files in bounded pieces, and telling text from bytes. */
import type { FileHandle } from 'node:fs/promises'
import { extname } from 'node:path'
import { abortReason } from '../../base/abort.ts'
import { ConvokeError } from '../../base/errors.ts'

const pieceBytes = 64 * 1024
/** How much of a file is looked at to tell whether it is text, as git does. */
const sniffedBytes = 8000
const lineFeed = 0x0a

/** Up to `maxBytes` bytes from `position` on; fewer only where the file ends. */
export async function readBytes(handle: FileHandle, position: number, maxBytes: number): Promise<Buffer> {
  const pieces: Buffer[] = []
  let length = 0
  while (length < maxBytes) {
    const piece = Buffer.allocUnsafe(Math.min(pieceBytes, maxBytes - length))
    const { bytesRead } = await handle.read(piece, 0, piece.length, position + length)
    if (bytesRead === 0) break
    pieces.push(piece.subarray(0, bytesRead))
    length += bytesRead
  }
  return Buffer.concat(pieces)
}

/** Where the line of that number, from 1, begins; or how many lines there are where it is none of them. */
export async function findLine(
  handle: FileHandle,
  number: number,
  signal: AbortSignal,
): Promise<{ readonly position: number } | { readonly lines: number }> {
  let line = 1
  let position = 0
  let isAtStart = true
  while (line < number) {
    if (signal.aborted) throw abortReason(signal)
    const piece = await readBytes(handle, position, pieceBytes)
    if (piece.length === 0) return { lines: isAtStart ? line - 1 : line }
    let from = 0
    while (line < number) {
      const at = piece.indexOf(lineFeed, from)
      if (at === -1) break
      from = at + 1
      line++
    }
    if (line === number) return await positionIn(handle, position + from, number)
    position += piece.length
    isAtStart = piece.at(-1) === lineFeed
  }
  return { position }
}

/** What follows the last line feed of a file is no line when there is nothing. */
async function positionIn(
  handle: FileHandle,
  position: number,
  number: number,
): Promise<{ readonly position: number } | { readonly lines: number }> {
  return (await readBytes(handle, position, 1)).length === 0 ? { lines: number - 1 } : { position }
}

/** The first `limit` lines of some bytes, up to and with their line feeds. */
export function cutLines(bytes: Buffer, limit: number): { readonly lines: number; readonly end: number } {
  let end = 0
  let lines = 0
  while (lines < limit && end < bytes.length) {
    const at = bytes.indexOf(lineFeed, end)
    end = at === -1 ? bytes.length : at + 1
    lines++
  }
  return { lines, end }
}

/** The bytes up to and with their last line feed; undefined when they hold none. */
export function wholeLines(bytes: Buffer): Buffer | undefined {
  const at = bytes.lastIndexOf(lineFeed)
  return at === -1 ? undefined : bytes.subarray(0, at + 1)
}

/** Whether the beginning of a file tells that it is not text. */
export function looksBinary(bytes: Buffer): boolean {
  return bytes.subarray(0, sniffedBytes).includes(0)
}

/** The bytes as UTF-8, or undefined where they are not. Nothing is left out, also no byte order mark. */
export function toText(bytes: Uint8Array): string | undefined {
  try {
    return new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(bytes)
  } catch {
    return undefined
  }
}

/** The whole file. Throws `too_large` beyond `maxBytes`. */
export async function readWhole(handle: FileHandle, maxBytes: number): Promise<Buffer> {
  const bytes = await readBytes(handle, 0, maxBytes + 1)
  if (bytes.length <= maxBytes) return bytes
  throw new ConvokeError('too_large', `The file is larger than ${maxBytes} bytes.`)
}

const mediaTypes: Readonly<Record<string, string | undefined>> = {
  '.gif': 'image/gif',
  '.gz': 'application/gzip',
  '.jpeg': 'image/jpeg',
  '.jpg': 'image/jpeg',
  '.mp3': 'audio/mpeg',
  '.mp4': 'video/mp4',
  '.ogg': 'audio/ogg',
  '.pdf': 'application/pdf',
  '.png': 'image/png',
  '.wasm': 'application/wasm',
  '.wav': 'audio/wav',
  '.webm': 'video/webm',
  '.webp': 'image/webp',
  '.zip': 'application/zip',
}

/** The media type of a file of bytes, by its name. */
export function mediaTypeOf(path: string): string {
  return mediaTypes[extname(path).toLowerCase()] ?? 'application/octet-stream'
}
