/** `search_files` */
import { setImmediate as nextTurn } from 'node:timers/promises'
import { abortReason } from '../../base/abort.ts'
import { ConvokeError } from '../../base/errors.ts'
import { defineTool } from '../define.ts'
import { compilePattern, type Pattern } from '../safe-pattern.ts'
import type { Tool } from '../tool.ts'
import { clip, excerpt } from '../value.ts'
import { toFileGlob } from './file-glob.ts'
import type { Kit } from './kit.ts'
import { looksBinary, readBytes } from './read.ts'
import { walk, type Found } from './walk.ts'
import type { Workspace } from './workspace.ts'

/** Whole trees of what others made. */
const skippedFolders: ReadonlySet<string> = new Set(['node_modules', '.git'])
const maxFiles = 50_000
/** Most bytes that a search reads, of all files together. */
const maxTotalBytes = 512 * 1024 * 1024
const maxPatternSize = 2000
/** Of a line that much is looked at, and that much shown. */
const maxLineLength = 10_000
const maxShownLength = 400
/** How long the event loop may be held up, in milliseconds. */
const maxHoldMs = 10

interface Match {
  readonly path: string
  readonly line?: number
  readonly text?: string
}

export function createSearchFiles({ workspace, maxBytes, traits }: Kit): Tool {
  return defineTool({
    name: 'search_files',
    description:
      'Finds files of the workspace by their names (`name`, a glob such as *.ts or src/**/*.md), by what stands in a line ' +
      '(`text`, or `regex`), or by both. Gives the files, or the lines that match, as they are found. Does not look into ' +
      'binary files, files that are too large, links, and, without `everything`, hidden files, node_modules and .git.',
    input: {
      type: 'object',
      properties: {
        path: { type: 'string', minLength: 1, default: '.', description: 'The folder to search.' },
        name: {
          type: 'string',
          minLength: 1,
          maxLength: 500,
          description:
            'A glob for the name; with a slash in it for the path below the root of the workspace. * ? ** [abc] {a,b}',
        },
        text: { type: 'string', minLength: 1, maxLength: 2000, description: 'What a line must hold, as it is.' },
        regex: {
          type: 'string',
          minLength: 1,
          maxLength: 1000,
          description: 'What a line must match, as a regular expression of RE2: no lookaround, no references back.',
        },
        ignore_case: { type: 'boolean', default: false, description: 'For `text` and `regex`.' },
        everything: {
          type: 'boolean',
          default: false,
          description: 'Also hidden files, and what is in node_modules and .git.',
        },
        depth: { type: 'integer', minimum: 1, maximum: 32, default: 32, description: 'How deep to go.' },
        limit: {
          type: 'integer',
          minimum: 1,
          maximum: 2000,
          default: 200,
          description: 'How many matches to give at most.',
        },
      },
      additionalProperties: false,
    },
    output: {
      type: 'object',
      properties: {
        matches: {
          type: 'array',
          items: {
            type: 'object',
            properties: {
              path: { type: 'string', description: 'Relative to the root of the workspace.' },
              line: { type: 'integer', description: 'From 1.' },
              text: { type: 'string', description: 'The line, or its beginning.' },
            },
            required: ['path'],
          },
        },
        files: { type: 'integer', description: 'How many files were looked at.' },
        skipped: { type: 'integer', description: 'How many of them were too large, or could not be read.' },
        truncated: { type: 'boolean', description: 'Whether there may be more matches than these.' },
      },
      required: ['matches', 'files', 'skipped', 'truncated'],
    },
    traits: traits('search_files', { readOnly: true }),
    async *run({ path, name, text, regex, ignore_case: ignoreCase, everything, depth, limit }, { signal }) {
      if ([name, text, regex].every((each) => each === undefined)) {
        throw new ConvokeError('invalid_params', 'Say what to search for: `name`, `text` or `regex`.')
      }
      if (text !== undefined && regex !== undefined) {
        throw new ConvokeError('invalid_params', '`text` and `regex` are two ways to say the same; send one of them.')
      }
      const glob = name === undefined ? undefined : toFileGlob(name)
      const wanted = toPattern(text, regex, ignoreCase)
      const tally = { files: 0, skipped: 0, bytes: 0, truncated: false }
      const matches: { path: string; line?: number; text?: string }[] = []
      const onCut = (): void => void (tally.truncated = true)
      const skipped = everything ? {} : { skipped: skippedFolders }
      const found = walk(workspace, path, { depth, hidden: everything, signal, onCut, ...skipped })
      for await (const each of found) {
        if (each.type !== 'file' || glob?.fits(each.path) === false) continue
        if (tally.files >= maxFiles || tally.bytes >= maxTotalBytes) {
          tally.truncated = true
          break
        }
        tally.files++
        for await (const match of wanted === undefined ? [{ path: each.path }] : search(workspace, each, wanted)) {
          if (matches.length >= limit) {
            tally.truncated = true
            break
          }
          matches.push(match)
          yield { ...match }
        }
        if (tally.truncated && matches.length >= limit) break
      }
      return { matches, files: tally.files, skipped: tally.skipped, truncated: tally.truncated }

      async function* search(from: Workspace, file: Found, pattern: Pattern): AsyncGenerator<Match, void, void> {
        const bytes = await readFound(from, file, maxBytes)
        if (bytes === undefined) tally.skipped++
        else {
          tally.bytes += bytes.length
          if (!looksBinary(bytes)) yield* matchLines(file.path, bytes.toString('utf8'), pattern, signal)
        }
      }
    },
  })
}

/** Undefined where only names are looked for. */
function toPattern(text: string | undefined, regex: string | undefined, ignoreCase: boolean): Pattern | undefined {
  if (text !== undefined && !ignoreCase) return { test: (line) => line.includes(text) }
  if (text !== undefined) {
    const lower = text.toLowerCase()
    return { test: (line) => line.toLowerCase().includes(lower) }
  }
  if (regex === undefined) return undefined
  try {
    return compilePattern(regex, { ignoreCase, maxSize: maxPatternSize })
  } catch (cause) {
    const why = cause instanceof Error ? clip(cause.message, 200) : 'it is wrong'
    throw new ConvokeError('invalid_params', `\`regex\` ${excerpt(regex)} cannot be used: ${why}.`, { cause })
  }
}

/** Undefined for a file that is too large, or that cannot be read. */
async function readFound(workspace: Workspace, { folder, name }: Found, maxBytes: number): Promise<Buffer | undefined> {
  try {
    const { handle, stats } = await workspace.openFileIn(folder, name)
    try {
      if (stats.size > maxBytes) return undefined
      const bytes = await readBytes(handle, 0, maxBytes + 1)
      return bytes.length > maxBytes ? undefined : bytes
    } finally {
      await handle.close()
    }
  } catch {
    // Gone meanwhile, or closed to this user; it is counted.
    return undefined
  }
}

async function* matchLines(
  path: string,
  content: string,
  pattern: Pattern,
  signal: AbortSignal,
): AsyncGenerator<Match, void, void> {
  let holdsSince = performance.now()
  let line = 0
  for (let from = 0; from < content.length;) {
    const at = content.indexOf('\n', from)
    const end = at === -1 ? content.length : at
    const text = content.slice(from, Math.min(end, from + maxLineLength)).replace(/\r$/, '')
    from = end + 1
    line++
    if (pattern.test(text)) yield { path, line, text: clip(text, maxShownLength) }
    if (performance.now() - holdsSince < maxHoldMs) continue
    await nextTurn()
    if (signal.aborted) throw abortReason(signal)
    holdsSince = performance.now()
  }
}
