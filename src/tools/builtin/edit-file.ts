/** `edit_file` */
import type { Stats } from 'node:fs'
import { ConvokeError } from '../../base/errors.ts'
import { defineTool } from '../define.ts'
import type { Tool } from '../tool.ts'
import { excerpt } from '../value.ts'
import { toDiff } from './diff.ts'
import type { Kit } from './kit.ts'
import { looksBinary, readBytes, toText } from './read.ts'
import { toOurs, type Workspace } from './workspace.ts'

interface Edit {
  readonly old: string
  readonly new: string
  readonly all: boolean
}

export function createEditFile({ workspace, maxBytes, traits }: Kit): Tool {
  return defineTool({
    name: 'edit_file',
    description:
      'Replaces parts of a text file of the workspace. Each `old` must stand in the file exactly once, character by ' +
      'character, unless `all` is true: take in enough of what stands around it. Edits are made in their order, each in ' +
      'what the one before left. If one does not fit, nothing is changed. With `dry_run` nothing is written, and the ' +
      'diff shows what would be.',
    input: {
      type: 'object',
      properties: {
        path: { type: 'string', minLength: 1, description: 'The file, relative to the root of the workspace.' },
        edits: {
          type: 'array',
          minItems: 1,
          maxItems: 200,
          items: {
            type: 'object',
            properties: {
              old: { type: 'string', minLength: 1, description: 'What is replaced.' },
              new: { type: 'string', description: 'What comes in its place.' },
              all: { type: 'boolean', default: false, description: 'Replace it wherever it stands.' },
            },
            required: ['old', 'new'],
            additionalProperties: false,
          },
        },
        dry_run: { type: 'boolean', default: false, description: 'Only show what would change.' },
      },
      required: ['path', 'edits'],
      additionalProperties: false,
    },
    output: {
      type: 'object',
      properties: {
        path: { type: 'string' },
        replacements: { type: 'integer', description: 'How many places were changed.' },
        written: { type: 'boolean', description: 'False for a dry run, and where nothing is different.' },
        diff: { type: 'string', description: 'What changed, as a unified diff.' },
        diff_is_cut: { type: 'boolean', description: 'There where the diff is longer than what is shown.' },
      },
      required: ['path', 'replacements', 'written', 'diff'],
    },
    traits: traits('edit_file', {}),
    run: ({ path, edits, dry_run: isDry }, { signal }) =>
      workspace.inTurn(signal, async () => {
        const { text, stats } = await readText(workspace, path, maxBytes)
        const { edited, replacements } = applyEdits(text, edits, maxBytes)
        const written = !isDry && edited !== text
        if (written) await workspace.replace(path, Buffer.from(edited, 'utf8'), stats)
        const { diff, isCut } = toDiff(path, text, edited)
        return { path, replacements, written, diff, ...(isCut ? { diff_is_cut: true } : {}) }
      }),
  })
}

async function readText(
  workspace: Workspace,
  path: string,
  maxBytes: number,
): Promise<{ readonly text: string; readonly stats: Stats }> {
  const { handle, stats } = await workspace.openFile(path)
  try {
    const bytes = await readBytes(handle, 0, maxBytes + 1)
    if (bytes.length > maxBytes) {
      const text = `The file ${excerpt(path)} is larger than the ${maxBytes} bytes that can be edited.`
      throw new ConvokeError('too_large', text)
    }
    const text = looksBinary(bytes) ? undefined : toText(bytes)
    if (text === undefined) {
      throw new ConvokeError('invalid_params', `The file ${excerpt(path)} is no UTF-8 text, and cannot be edited.`)
    }
    return { text, stats }
  } catch (error) {
    throw toOurs(error, path)
  } finally {
    await handle.close()
  }
}

/** Throws `invalid_params` for an edit that does not fit, with its number from 1. */
function applyEdits(
  text: string,
  edits: readonly Edit[],
  maxBytes: number,
): { readonly edited: string; readonly replacements: number } {
  let edited = text
  let replacements = 0
  for (const [index, edit] of edits.entries()) {
    const places = count(edited, edit.old)
    if (places === 0) throw misfit(index, edit, 'does not stand in the file')
    if (places > 1 && !edit.all) {
      throw misfit(
        index,
        edit,
        `stands in the file ${places} times; take in more of what is around it, or set \`all\` to true`,
      )
    }
    // Known before it is made: a few replacements can make a text of any size.
    const grown = edited.length + places * (edit.new.length - edit.old.length)
    if (grown > maxBytes) throw tooLarge(maxBytes)
    edited = edited.split(edit.old).join(edit.new)
    replacements += places
  }
  if (Buffer.byteLength(edited) > maxBytes) throw tooLarge(maxBytes)
  return { edited, replacements }
}

function count(text: string, part: string): number {
  let places = 0
  for (let at = text.indexOf(part); at !== -1; at = text.indexOf(part, at + part.length)) places++
  return places
}

function misfit(index: number, { old }: Edit, why: string): ConvokeError {
  const message = `The \`old\` of edit ${index + 1}, ${excerpt(old)}, ${why}. Nothing was changed.`
  return new ConvokeError('invalid_params', message, { issues: [{ path: `/edits/${index}/old`, message }] })
}

function tooLarge(maxBytes: number): ConvokeError {
  return new ConvokeError('too_large', `The file would become larger than ${maxBytes} bytes. Nothing was changed.`)
}
