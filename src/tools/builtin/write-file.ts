/** `write_file` */
import { ConvokeError } from '../../base/errors.ts'
import { defineTool } from '../define.ts'
import type { Tool } from '../tool.ts'
import type { Kit } from './kit.ts'

export function createWriteFile({ workspace, maxBytes, traits }: Kit): Tool {
  return defineTool({
    name: 'write_file',
    description:
      'Writes a whole file of the workspace, and makes the folders above it. What is there already is replaced, in one ' +
      'step; to change a part of a file use edit_file.',
    input: {
      type: 'object',
      properties: {
        path: { type: 'string', minLength: 1, description: 'The file, relative to the root of the workspace.' },
        content: { type: 'string', description: 'All that the file will hold.' },
        encoding: {
          enum: ['utf8', 'base64'],
          default: 'utf8',
          description: 'How `content` is to be read: as text, or as base64 of bytes.',
        },
      },
      required: ['path', 'content'],
      additionalProperties: false,
    },
    output: {
      type: 'object',
      properties: {
        path: { type: 'string' },
        bytes: { type: 'integer', description: 'How many bytes the file has now.' },
        created: { type: 'boolean', description: 'Whether there was no such file before.' },
      },
      required: ['path', 'bytes', 'created'],
    },
    traits: traits('write_file', { idempotent: true }),
    async run({ path, content, encoding }, { signal }) {
      const bytes = toBytes(content, encoding)
      if (bytes.length > maxBytes) {
        throw new ConvokeError('too_large', `\`content\` has ${bytes.length} bytes; a file may have ${maxBytes}.`)
      }
      const { created } = await workspace.inTurn(signal, () => workspace.replace(path, bytes))
      return { path, bytes: bytes.length, created }
    },
  })
}

function toBytes(content: string, encoding: 'utf8' | 'base64'): Buffer {
  if (encoding === 'utf8') return Buffer.from(content, 'utf8')
  // Node skips what is no base64, and would write something else than was meant.
  if (!/^[A-Za-z0-9+/\s]*={0,2}\s*$/.test(content)) {
    throw new ConvokeError('invalid_params', '`content` is not base64, as `encoding` says.')
  }
  return Buffer.from(content, 'base64')
}
