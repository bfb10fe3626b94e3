/** `list_skills` and `load_skill`: what skill bundles there are, and what stands in them. */
import { basename } from 'node:path'
import { ConvokeError } from '../../base/errors.ts'
import { Content } from '../../protocol/content.ts'
import { defineTool } from '../define.ts'
import { maxSkillBytes, readSkill, skillFile, type SkillBundle } from '../skill-bundles.ts'
import type { Tool, ToolTraits } from '../tool.ts'
import { closest, excerpt } from '../value.ts'
import { looksBinary, mediaTypeOf, readWhole, toText } from './read.ts'
import { walk } from './walk.ts'
import { toOurs, Workspace } from './workspace.ts'

/** Most files of a bundle that are named. */
const maxFiles = 500
const maxDepth = 8

const traits: ToolTraits = { category: 'skills', readOnly: true, published: false }

/** The two tools for these bundles. Their texts are read when they are asked for, from the folder as it is then. */
export function createSkillTools(bundles: readonly SkillBundle[]): Tool[] {
  return [createListSkills(bundles), createLoadSkill(bundles)]
}

function createListSkills(bundles: readonly SkillBundle[]): Tool {
  return defineTool({
    name: 'list_skills',
    description:
      'Lists the skills there are: instructions for kinds of work, each with a description that says when it helps. ' +
      'Load one with load_skill before you do such work.',
    input: { type: 'object', properties: {}, additionalProperties: false },
    output: {
      type: 'object',
      properties: {
        skills: {
          type: 'array',
          items: {
            type: 'object',
            properties: {
              name: { type: 'string' },
              description: { type: 'string' },
              source: { enum: ['builtin', 'user'] },
              license: { type: 'string' },
              compatibility: { type: 'string' },
              metadata: { type: 'object', additionalProperties: { type: 'string' } },
              allowed_tools: { type: 'array', items: { type: 'string' } },
            },
            required: ['name', 'description', 'source'],
          },
        },
      },
      required: ['skills'],
    },
    traits,
    run: () => ({
      skills: bundles.map(({ name, description, source, license, compatibility, metadata, allowedTools }) => ({
        name,
        description,
        source,
        ...(license === undefined ? {} : { license }),
        ...(compatibility === undefined ? {} : { compatibility }),
        ...(metadata === undefined ? {} : { metadata: { ...metadata } }),
        ...(allowedTools === undefined ? {} : { allowed_tools: [...allowedTools] }),
      })),
    }),
  })
}

function createLoadSkill(bundles: readonly SkillBundle[]): Tool {
  const known = new Map(bundles.map((bundle) => [bundle.name, bundle]))
  return defineTool({
    name: 'load_skill',
    description:
      'Gives the instructions of a skill, and the names of the other files in it. With `file` gives one of those instead. ' +
      'list_skills says which skills there are.',
    input: {
      type: 'object',
      properties: {
        name: { type: 'string', minLength: 1, description: 'Which skill.' },
        file: {
          type: 'string',
          minLength: 1,
          description: 'A file of the skill, such as references/api.md. Default: its instructions.',
        },
      },
      required: ['name'],
      additionalProperties: false,
    },
    output: {
      type: 'object',
      properties: {
        name: { type: 'string' },
        file: { type: 'string' },
        text: {
          type: 'string',
          description: 'Absent for a file that is no text; its bytes are in a part of their own.',
        },
        files: { type: 'array', items: { type: 'string' }, description: 'The other files of the skill.' },
        truncated: { type: 'boolean', description: 'There where the skill has more files than are named.' },
      },
      required: ['name', 'file'],
    },
    traits,
    async run({ name, file }, { signal }) {
      const bundle = known.get(name)
      if (bundle === undefined) throw unknownSkill(name, [...known.keys()])
      const workspace = openBundle(bundle)
      if (file !== undefined && file !== skillFile) return await loadFile(workspace, name, file)
      const text = await loadText(workspace, name)
      return { name, file: skillFile, text, ...(await filesOf(workspace, signal)) }
    },
  })
}

function unknownSkill(name: string, known: readonly string[]): ConvokeError {
  const meant = closest(name, known)
  const hint = meant === undefined ? 'list_skills says which there are' : `did you mean ${meant}?`
  return new ConvokeError('not_found', `There is no skill ${excerpt(name)}; ${hint}.`)
}

function openBundle({ name, folder }: SkillBundle): Workspace {
  try {
    return new Workspace(folder, 'The folder of a skill')
  } catch (cause) {
    throw new ConvokeError('not_found', `The skill "${name}" is gone.`, { cause })
  }
}

async function loadText(workspace: Workspace, name: string): Promise<string> {
  try {
    return (await readSkill(workspace)).text
  } catch (cause) {
    if (!(cause instanceof ConvokeError) || cause.code !== 'config') throw cause
    throw new ConvokeError('tool_failed', `The skill "${name}" was changed and is wrong now: ${cause.message}`, {
      cause,
    })
  }
}

async function loadFile(workspace: Workspace, name: string, file: string) {
  const { handle } = await workspace.openFile(file)
  try {
    const bytes = await readWhole(handle, maxSkillBytes)
    const text = looksBinary(bytes) ? undefined : toText(bytes)
    if (text !== undefined) return { name, file, text }
    const raw = { raw: bytes.toString('base64'), mediaType: mediaTypeOf(file), filename: basename(file) }
    return new Content([{ data: { name, file } }, raw])
  } catch (error) {
    throw toOurs(error, file)
  } finally {
    await handle.close()
  }
}

async function filesOf(workspace: Workspace, signal: AbortSignal): Promise<{ files: string[]; truncated?: boolean }> {
  const files: string[] = []
  let truncated = false
  const onCut = (): void => void (truncated = true)
  for await (const { path, type } of walk(workspace, '.', { depth: maxDepth, hidden: false, signal, onCut })) {
    if (type !== 'file' || path === skillFile) continue
    if (files.length === maxFiles) {
      onCut()
      break
    }
    files.push(path)
  }
  return { files, ...(truncated ? { truncated } : {}) }
}
