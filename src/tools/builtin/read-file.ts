/** `read_file` */
import { basename } from 'node:path'
import { ConvokeError } from '../../base/errors.ts'
import { Content } from '../../protocol/content.ts'
import { defineTool } from '../define.ts'
import type { Tool } from '../tool.ts'
import { excerpt } from '../value.ts'
import type { Kit } from './kit.ts'
import { cutLines, findLine, looksBinary, mediaTypeOf, readBytes, toText, wholeLines } from './read.ts'
import { toOurs, type OpenFile } from './workspace.ts'

const defaultLines = 2000

export function createReadFile({ workspace, maxBytes, traits }: Kit): Tool {
  return defineTool({
    name: 'read_file',
    description:
      `Reads a file of the workspace. Text comes back as it is, ${defaultLines} lines at a time: go on with ` +
      '`offset` at `next_offset`, which is there as long as more follows. A file that is not UTF-8 text comes back as bytes.',
    input: {
      type: 'object',
      properties: {
        path: { type: 'string', minLength: 1, description: 'The file, relative to the root of the workspace.' },
        offset: { type: 'integer', minimum: 1, default: 1, description: 'The first line to read, from 1.' },
        limit: {
          type: 'integer',
          minimum: 1,
          maximum: 100_000,
          default: defaultLines,
          description: 'How many lines to read at most.',
        },
      },
      required: ['path'],
      additionalProperties: false,
    },
    output: {
      type: 'object',
      properties: {
        path: { type: 'string' },
        size: { type: 'integer', description: 'Of the whole file, in bytes.' },
        media_type: {
          type: 'string',
          description: 'Of a file that is not text; its bytes are in a part of their own.',
        },
        text: { type: 'string', description: 'The lines, with their line ends.' },
        first_line: { type: 'integer' },
        lines: { type: 'integer', description: 'How many lines `text` holds.' },
        next_offset: { type: 'integer', description: 'The `offset` to go on with; absent when the file ends here.' },
      },
      required: ['path', 'size'],
    },
    traits: traits('read_file', { readOnly: true }),
    async run({ path, offset, limit }, { signal }) {
      const { handle, stats } = await workspace.openFile(path)
      try {
        const text = await readLines({ handle, stats }, { path, offset, limit, maxBytes, signal })
        if (text !== undefined) return { path, size: stats.size, ...text }
        return await toBytes({ handle, stats }, path, maxBytes)
      } catch (error) {
        throw toOurs(error, path)
      } finally {
        await handle.close()
      }
    },
  })
}

interface Wanted {
  readonly path: string
  readonly offset: number
  readonly limit: number
  readonly maxBytes: number
  readonly signal: AbortSignal
}

interface Lines {
  readonly text: string
  readonly first_line: number
  readonly lines: number
  readonly next_offset?: number
}

/** Undefined for a file that is not text. */
async function readLines(
  { handle, stats }: OpenFile,
  { path, offset, limit, maxBytes, signal }: Wanted,
): Promise<Lines | undefined> {
  if (looksBinary(await readBytes(handle, 0, Math.min(stats.size, 8192)))) return undefined
  const found = await findLine(handle, offset, signal)
  if ('lines' in found) {
    const got = `The file ${excerpt(path)} has ${found.lines} lines; \`offset\` is ${offset}.`
    throw new ConvokeError('invalid_params', got)
  }
  const read = await readBytes(handle, found.position, maxBytes + 1)
  const isCut = read.length > maxBytes
  const bytes = isCut ? wholeLines(read.subarray(0, maxBytes)) : read
  if (bytes === undefined) {
    throw new ConvokeError('too_large', `Line ${offset} of ${excerpt(path)} is longer than ${maxBytes} bytes.`)
  }
  const { lines, end } = cutLines(bytes, limit)
  const text = toText(bytes.subarray(0, end))
  if (text === undefined) return undefined
  const hasMore = isCut || end < bytes.length
  return { text, first_line: offset, lines, ...(hasMore ? { next_offset: offset + lines } : {}) }
}

async function toBytes({ handle, stats }: OpenFile, path: string, maxBytes: number): Promise<Content> {
  const bytes = await readBytes(handle, 0, maxBytes + 1)
  if (bytes.length > maxBytes) {
    const why = `is no UTF-8 text, and with ${stats.size} bytes larger than the ${maxBytes} that can be given as bytes`
    throw new ConvokeError('too_large', `The file ${excerpt(path)} ${why}.`)
  }
  const mediaType = mediaTypeOf(path)
  return new Content([
    { data: { path, size: bytes.length, media_type: mediaType } },
    { raw: bytes.toString('base64'), mediaType, filename: basename(path) },
  ])
}
