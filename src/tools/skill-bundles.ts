/**
 * Skill bundles: folders with a `SKILL.md` that tell a model how something is done, in the format of Agent Skills
 * (https://agentskills.io/specification). What A2A calls a skill, an entry of the agent card, is something else.
 */
import type { Dirent } from 'node:fs'
import { readdir, realpath, stat } from 'node:fs/promises'
import { basename, join } from 'node:path'
import { parseDocument } from 'yaml'
import { ConvokeError } from '../base/errors.ts'
import { isObject } from '../base/json.ts'
import { silentLog, type Logger } from '../base/logger.ts'
import { readWhole, toText } from './builtin/read.ts'
import { Workspace } from './builtin/workspace.ts'
import { excerpt } from './value.ts'

export interface SkillBundle {
  /** That of its folder. */
  readonly name: string
  /** What it is for, and when to load it. */
  readonly description: string
  /** Absolute. */
  readonly folder: string
  /** Whether it comes with this package, or from a folder of the user. */
  readonly source: 'builtin' | 'user'
  readonly license?: string
  /** What it needs where it is used. */
  readonly compatibility?: string
  readonly metadata?: Readonly<Record<string, string>>
  /** The tools that it was written for, as its author names them. They give no rights. */
  readonly allowedTools?: readonly string[]
}

export interface SkillFolder {
  /** Absolute. Each folder in it that has a `SKILL.md` is a bundle. */
  readonly folder: string
  readonly source: SkillBundle['source']
}

export interface DiscoverOptions {
  /** Takes only these. Default: all. */
  readonly only?: readonly string[]
  readonly log?: Logger
}

export interface DiscoveredBundles {
  /** By name. */
  readonly bundles: readonly SkillBundle[]
  /** A sentence for each that was skipped. */
  readonly warnings: readonly string[]
}

export const skillFile = 'SKILL.md'
/** Most bytes of a `SKILL.md`, and of any other file of a bundle that is given out. */
export const maxSkillBytes = 256 * 1024
const maxBundles = 1000
const namePattern = /^[a-z0-9-]{1,64}$/
const maxDescriptionLength = 1024

/**
 * Finds the bundles in some folders. One that is wrong is skipped with a warning, which is logged too; the others are
 * found. Of two with the same name the user's wins over the builtin one, and of two of the user the first.
 */
export async function discoverSkillBundles(
  folders: readonly SkillFolder[],
  { only, log = silentLog }: DiscoverOptions = {},
): Promise<DiscoveredBundles> {
  const found = new Map<string, SkillBundle>()
  const warnings: string[] = []
  const warn = (message: string): void => {
    warnings.push(message)
    log.warn(message)
  }
  for (const each of folders) {
    for (const folder of await candidatesIn(each, warn)) {
      try {
        const bundle = await readBundle(folder, each.source)
        if (only === undefined || only.includes(bundle.name)) add(found, bundle, { log, warn })
      } catch (error) {
        const why = error instanceof ConvokeError ? error.message : 'it cannot be read.'
        warn(`The skill ${excerpt(basename(folder))} was skipped: ${why}`)
      }
    }
  }
  for (const name of only ?? [])
    if (!found.has(name)) warn(`There is no skill ${excerpt(name)}, which skills.only names.`)
  return { bundles: [...found.values()].sort((a, b) => (a.name < b.name ? -1 : 1)), warnings }
}

interface Reporters {
  readonly log: Logger
  readonly warn: (message: string) => void
}

function add(found: Map<string, SkillBundle>, bundle: SkillBundle, { log, warn }: Reporters): void {
  const { name, source } = bundle
  const known = found.get(name)
  if (known === undefined || (known.source === 'builtin' && source === 'user')) found.set(name, bundle)
  if (known === undefined) return
  if (known.source === source) warn(`There is a skill ${excerpt(name)} already; the second one was skipped.`)
  else log.info({ skill: name }, `The skill "${name}" of the user is taken instead of the builtin one.`)
}

/** The folders with a `SKILL.md`, by name. Links are followed: whoever has put them there meant it. */
async function candidatesIn({ folder }: SkillFolder, warn: Reporters['warn']): Promise<string[]> {
  let entries: Dirent[]
  try {
    entries = await readdir(folder, { withFileTypes: true })
  } catch (cause) {
    const { code } = cause as NodeJS.ErrnoException
    warn(`The folder of skills ${excerpt(folder)} cannot be read (${code ?? 'for an unknown reason'}).`)
    return []
  }
  const names = entries.filter((entry) => entry.isDirectory() || entry.isSymbolicLink()).map(({ name }) => name)
  const candidates: string[] = []
  for (const name of names.sort()) {
    const path = join(folder, name)
    if (!(await exists(join(path, skillFile)))) continue
    if (candidates.length === maxBundles) {
      warn(`The folder of skills ${excerpt(folder)} has more than ${maxBundles}; the others were skipped.`)
      break
    }
    candidates.push(path)
  }
  return candidates
}

async function exists(path: string): Promise<boolean> {
  return await stat(path).then(
    () => true,
    () => false,
  )
}

async function readBundle(path: string, source: SkillBundle['source']): Promise<SkillBundle> {
  const folder = await realpath(path)
  const { frontmatter } = await readSkill(new Workspace(folder, 'The folder of a skill'))
  const { name, description, license, compatibility, metadata, 'allowed-tools': allowedTools } = frontmatter
  if (typeof name !== 'string' || !namePattern.test(name)) {
    throw wrong(`its name must be 1 to 64 small letters, digits or -, got ${excerpt(name)}.`)
  }
  // That of the link where the folder is one: that is what the user calls it.
  if (name !== basename(path)) throw wrong(`its name, ${excerpt(name)}, must be that of its folder.`)
  if (typeof description !== 'string' || description.trim() === '') {
    throw wrong('it has no description, by which it would be chosen.')
  }
  if (description.length > maxDescriptionLength) {
    throw wrong(`its description has ${description.length} characters; it may have ${maxDescriptionLength}.`)
  }
  return {
    name,
    description: description.trim(),
    folder,
    source,
    ...(typeof license === 'string' ? { license } : {}),
    ...(typeof compatibility === 'string' ? { compatibility } : {}),
    ...(isObject(metadata) ? { metadata: toTexts(metadata) } : {}),
    ...(allowedTools === undefined ? {} : { allowedTools: toNames(allowedTools) }),
  }
}

function wrong(message: string, cause?: unknown): ConvokeError {
  return new ConvokeError('config', message, { cause })
}

function toTexts(metadata: Record<string, unknown>): Record<string, string> {
  return Object.fromEntries(
    Object.entries(metadata).flatMap(([key, value]) =>
      ['string', 'number', 'boolean'].includes(typeof value) ? [[key, String(value)]] : [],
    ),
  ) as Record<string, string>
}

/** Some write a list, the specification one text with spaces, others commas; `Bash(git add:*)` is one name. */
function toNames(allowed: unknown): string[] {
  if (Array.isArray(allowed)) return allowed.filter((name): name is string => typeof name === 'string')
  return typeof allowed === 'string' ? (allowed.match(/[^\s,(]+(\([^)]*\))?/g) ?? []) : []
}

/** What stands above the text of a `SKILL.md`, and the text. Throws a ConvokeError for what is none. */
export async function readSkill(
  bundle: Workspace,
): Promise<{ readonly frontmatter: Record<string, unknown>; readonly text: string }> {
  const { handle } = await bundle.openFile(skillFile)
  let bytes: Buffer
  try {
    bytes = await readWhole(handle, maxSkillBytes)
  } finally {
    await handle.close()
  }
  const content = toText(bytes)
  if (content === undefined) throw wrong(`its ${skillFile} is no UTF-8 text.`)
  const match = /^\uFEFF?---[ \t]*\r?\n(.*?)^---[ \t]*(?:\r?\n|$)/ms.exec(content)
  if (match === null) throw wrong(`its ${skillFile} does not begin with YAML between two lines of ---.`)
  return { frontmatter: parseFrontmatter(match[1] ?? ''), text: content.slice(match[0].length).trim() }
}

function parseFrontmatter(yaml: string): Record<string, unknown> {
  const document = parseDocument(yaml, { prettyErrors: false, stringKeys: true, logLevel: 'error' })
  const [error] = document.errors
  let value: unknown
  try {
    // Aliases that multiply without end throw here.
    value = error === undefined ? document.toJS() : undefined
  } catch (cause) {
    throw wrong('the aliases in its YAML blow up.', cause)
  }
  if (error !== undefined) throw wrong(`its YAML is not valid (${error.code}).`, error)
  if (!isObject(value)) throw wrong('its YAML must be a mapping with name and description.')
  return value
}
