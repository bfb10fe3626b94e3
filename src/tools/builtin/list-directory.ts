/** `list_directory` */
import { lstat } from 'node:fs/promises'
import { join } from 'node:path'
import { defineTool } from '../define.ts'
import type { Tool } from '../tool.ts'
import type { Kit } from './kit.ts'
import { walk, type Found } from './walk.ts'

export function createListDirectory({ workspace, traits }: Kit): Tool {
  return defineTool({
    name: 'list_directory',
    description:
      'Lists what is in a folder of the workspace, in the order of the names, with the size of files; with a `depth` above ' +
      '1 what is in the folders below it, too. Links are named and not followed.',
    input: {
      type: 'object',
      properties: {
        path: {
          type: 'string',
          minLength: 1,
          default: '.',
          description: 'The folder, relative to the root of the workspace.',
        },
        depth: {
          type: 'integer',
          minimum: 1,
          maximum: 32,
          default: 1,
          description: 'How deep to go: 1 is the folder alone.',
        },
        hidden: { type: 'boolean', default: false, description: 'Also names that begin with a dot.' },
        limit: {
          type: 'integer',
          minimum: 1,
          maximum: 10_000,
          default: 1000,
          description: 'How many entries to give at most.',
        },
      },
      additionalProperties: false,
    },
    output: {
      type: 'object',
      properties: {
        path: { type: 'string' },
        entries: {
          type: 'array',
          items: {
            type: 'object',
            properties: {
              path: { type: 'string', description: 'Relative to the root of the workspace.' },
              type: { enum: ['file', 'directory', 'link', 'other'] },
              size: { type: 'integer', description: 'Of a file, in bytes.' },
            },
            required: ['path', 'type'],
          },
        },
        truncated: { type: 'boolean', description: 'Whether there is more than is listed.' },
      },
      required: ['path', 'entries', 'truncated'],
    },
    traits: traits('list_directory', { readOnly: true }),
    async run({ path, depth, hidden, limit }, { signal }) {
      const entries: { path: string; type: Found['type']; size?: number }[] = []
      let truncated = false
      const onCut = (): void => void (truncated = true)
      for await (const found of walk(workspace, path, { depth, hidden, signal, onCut })) {
        if (entries.length >= limit) {
          truncated = true
          break
        }
        const size = await sizeOf(found)
        entries.push({ path: found.path, type: found.type, ...(size === undefined ? {} : { size }) })
      }
      return { path, entries, truncated }
    },
  })
}

async function sizeOf({ type, folder, name }: Found): Promise<number | undefined> {
  if (type !== 'file') return undefined
  try {
    return (await lstat(join(folder.at, name))).size
  } catch {
    // Gone meanwhile.
    return undefined
  }
}
