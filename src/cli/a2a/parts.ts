/** What `convoke send` says: the parts of its message, in the order in which they were given. */
import { readFile, stat } from 'node:fs/promises'
import { basename, extname } from 'node:path'
import { addAbortSignal } from 'node:stream'
import { text as readText } from 'node:stream/consumers'
import type { Json } from '../../base/json.ts'
import { whyUnreadable } from '../../base/unreadable.ts'
import type { Part } from '../../protocol/a2a.ts'
import { ClientFailure, usageFailure } from './failure.ts'

/** A part flag as it was given. */
export interface PartFlag {
  readonly kind: 'text' | 'file' | 'data'
  readonly value: string
  mediaType?: string
}

/** Collects part flags while the command line is read: --media-type belongs to the one before it. */
export class PartFlags {
  readonly list: PartFlag[] = []
  /** A --media-type that had no part before it. */
  isMisplaced = false

  add(kind: PartFlag['kind'], value: string): void {
    this.list.push({ kind, value })
  }

  setMediaType(mediaType: string): void {
    const last = this.list.at(-1)
    if (last === undefined || last.mediaType !== undefined) this.isMisplaced = true
    else last.mediaType = mediaType
  }
}

/** Whatever is larger should be passed by URL: agents limit their requests, and base64 adds a third. */
const maxFileBytes = 64 * 1024 * 1024

/**
 * The parts of a message: the plain text first, if there is one. Throws `A2ACLI_ERR_USAGE` for what makes none. The
 * signal ends the wait for standard input.
 */
export async function toParts(text: string | undefined, flags: PartFlags, signal: AbortSignal): Promise<Part[]> {
  if (flags.isMisplaced) {
    throw usageFailure('--media-type must follow the --text, --file or --data that it is for, once for each.')
  }
  if (flags.list.filter(({ kind, value }) => kind === 'data' && value === '-').length > 1) {
    throw usageFailure('Standard input can be read once: give one --data -.')
  }
  const parts: Part[] = text === undefined ? [] : [{ text }]
  for (const flag of flags.list) parts.push(await toPart(flag, signal))
  if (parts.length === 0) {
    throw usageFailure('There is nothing to send.', 'Give a text, or --text, --file or --data: convoke send "hello"')
  }
  return parts
}

function toPart(flag: PartFlag, signal: AbortSignal): Promise<Part> | Part {
  switch (flag.kind) {
    case 'text':
      return { text: flag.value, ...mediaTypeOf(flag.mediaType) }
    case 'data':
      return toDataPart(flag, signal)
    case 'file':
      return /^[a-z][a-z0-9+.-]+:\/\//i.test(flag.value) && !flag.value.startsWith('file://')
        ? toUrlPart(flag)
        : toFilePart(flag)
  }
}

function mediaTypeOf(mediaType: string | undefined): { mediaType?: string } {
  return mediaType === undefined ? {} : { mediaType }
}

function toUrlPart({ value, mediaType }: PartFlag): Part {
  if (!URL.canParse(value)) throw usageFailure(`--file ${JSON.stringify(value)} is neither a file nor a URL.`)
  const name = decodeName(basename(new URL(value).pathname))
  return {
    url: value,
    ...(name === '' ? {} : { filename: name }),
    ...mediaTypeOf(mediaType ?? typesByExtension[extname(name).toLowerCase()]),
  }
}

function decodeName(name: string): string {
  try {
    return decodeURIComponent(name)
  } catch {
    // A percent sign that encodes nothing is part of the name.
    return name
  }
}

async function toFilePart({ value, mediaType }: PartFlag): Promise<Part> {
  const path = value.startsWith('file://') ? new URL(value) : value
  const bytes = await reading(value, async () => {
    const { size } = await stat(path)
    if (size > maxFileBytes) {
      const sizes = `${size} bytes, more than the ${maxFileBytes} that fit into a message`
      throw usageFailure(`${value} has ${sizes}.`, 'Pass a URL instead: --file https://…')
    }
    return readFile(path)
  })
  const filename = basename(value)
  const type = mediaType ?? typesByExtension[extname(filename).toLowerCase()] ?? 'application/octet-stream'
  return { raw: bytes.toString('base64'), filename, mediaType: type }
}

async function toDataPart({ value, mediaType }: PartFlag, signal: AbortSignal): Promise<Part> {
  const what = value === '-' ? 'Standard input' : value
  const json =
    value === '-'
      ? await readText(addAbortSignal(signal, process.stdin))
      : await reading(value, () => readFile(value, 'utf8'))
  try {
    return { data: JSON.parse(json) as Json, mediaType: mediaType ?? 'application/json' }
  } catch (cause) {
    throw usageFailure(`${what} is not valid JSON: ${cause instanceof Error ? cause.message : String(cause)}`)
  }
}

async function reading<T>(name: string, read: () => Promise<T>): Promise<T> {
  try {
    return await read()
  } catch (error) {
    if (error instanceof ClientFailure) throw error
    const hint = /^\s*[[{]/.test(name)
      ? `For JSON in place, pipe it: echo '${name}' | convoke send --data -`
      : undefined
    throw usageFailure(`Cannot read ${name}: ${whyUnreadable(error)}.`, hint)
  }
}

/** By extension; what is not here is bytes. */
const typesByExtension: Readonly<Record<string, string>> = {
  '.txt': 'text/plain',
  '.md': 'text/markdown',
  '.csv': 'text/csv',
  '.html': 'text/html',
  '.xml': 'application/xml',
  '.json': 'application/json',
  '.jsonl': 'application/jsonl',
  '.yaml': 'application/yaml',
  '.yml': 'application/yaml',
  '.pdf': 'application/pdf',
  '.zip': 'application/zip',
  '.gz': 'application/gzip',
  '.png': 'image/png',
  '.jpg': 'image/jpeg',
  '.jpeg': 'image/jpeg',
  '.gif': 'image/gif',
  '.webp': 'image/webp',
  '.svg': 'image/svg+xml',
  '.mp3': 'audio/mpeg',
  '.wav': 'audio/wav',
  '.ogg': 'audio/ogg',
  '.mp4': 'video/mp4',
  '.webm': 'video/webm',
}

/** An extension for a file whose name has none; empty for types that we do not know. */
export function extensionOf(mediaType: string | undefined): string {
  const plain = mediaType?.split(';')[0]?.trim().toLowerCase()
  return Object.entries(typesByExtension).find(([, type]) => type === plain)?.[0] ?? ''
}
