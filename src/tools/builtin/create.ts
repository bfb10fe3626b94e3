/** The tools that the package brings along. All are off until somebody names them. */
import { ConvokeError } from '../../base/errors.ts'
import type { GuardedFetch } from '../../base/guarded-fetch.ts'
import { maxTimerMs } from '../../base/timer.ts'
import type { Tool } from '../tool.ts'
import { closest, excerpt } from '../value.ts'
import { createEditFile } from './edit-file.ts'
import { createHttpFetch } from './http-fetch.ts'
import type { Kit } from './kit.ts'
import { createListDirectory } from './list-directory.ts'
import type { Environment } from './program.ts'
import { createReadFile } from './read-file.ts'
import { createRunCommand } from './run-command.ts'
import { createSearchFiles } from './search-files.ts'
import { Workspace } from './workspace.ts'
import { createWriteFile } from './write-file.ts'

/** In the order in which they stand in the registry. */
export const builtinNames = [
  'read_file',
  'write_file',
  'edit_file',
  'list_directory',
  'search_files',
  'run_command',
  'http_fetch',
] as const

export type BuiltinName = (typeof builtinNames)[number]

/** Which builtin tools there are, and how far they reach. */
export interface BuiltinSettings {
  /** Their names; `*` is all of them. Default: none. */
  readonly tools?: readonly (BuiltinName | '*')[]
  /**
   * The folder that they work in, relative to `baseDir`. No path and no link leads out of it. Default: `baseDir`, which is
   * no place for those that write: the node's configuration, pins and store may be there.
   */
  readonly root?: string
  /**
   * The programs that `run_command` may run: names that are looked up in PATH, or paths, relative to `baseDir`. A program
   * is not held inside of `root`, and one that runs others (a shell, npm, git) may run anything. Default: none.
   */
  readonly commands?: readonly string[]
  /** The host names that `http_fetch` may call; `*` stands for any characters. Default: any host of the public internet. */
  readonly hosts?: readonly string[]
  /** Lets `http_fetch` call private and loopback addresses, too. Default: false. */
  readonly allowPrivate?: boolean
  /** Those that stand on the card and may be called from outside; `*` is all that are on. Default: none. */
  readonly publish?: readonly (BuiltinName | '*')[]
  /** Most bytes that a call reads, writes, fetches or gives back; of a command of each of its two outputs. Default: 1 MiB. */
  readonly maxBytes?: number
  /** The longest that a command or a request may take, in milliseconds; a call may ask for less. Default: 120,000. */
  readonly timeoutMs?: number
}

export interface BuiltinOptions extends BuiltinSettings {
  /** Absolute. */
  readonly root: string
  /** What relative paths of `commands` start from. Absolute. */
  readonly baseDir: string
  /** What commands get a few harmless variables from, and PATH. */
  readonly environment: Environment
  /** What `http_fetch` calls with. Whoever opened it closes it. */
  readonly fetch: GuardedFetch
}

const defaults = { maxBytes: 1024 * 1024, timeoutMs: 120_000 } as const
/** A result is held in memory, several times. */
const most = { maxBytes: 64 * 1024 * 1024, timeoutMs: maxTimerMs } as const

/**
 * Makes the tools that are switched on, in the order of {@link builtinNames}. Throws `config` for a name that is none,
 * and for a root that is no folder.
 */
export function createBuiltins(options: BuiltinOptions): Tool[] {
  const names = chosen(options.tools, 'builtin.tools', builtinNames)
  if (names.size === 0) return []
  const published = chosen(options.publish, 'builtin.publish', [...names])
  const { maxBytes = defaults.maxBytes, timeoutMs = defaults.timeoutMs } = options
  checkLimit('maxBytes', maxBytes, most.maxBytes)
  checkLimit('timeoutMs', timeoutMs, most.timeoutMs)
  for (const host of options.hosts ?? []) checkHost(host)
  const kit: Kit = {
    workspace: new Workspace(options.root, 'builtin.root'),
    maxBytes,
    timeoutMs,
    traits: (name, more) => ({ category: 'builtin', ...more, published: published.has(name) }),
  }
  const { commands = [], hosts, environment, baseDir, fetch } = options
  const makers: Record<BuiltinName, () => Tool> = {
    read_file: () => createReadFile(kit),
    write_file: () => createWriteFile(kit),
    edit_file: () => createEditFile(kit),
    list_directory: () => createListDirectory(kit),
    search_files: () => createSearchFiles(kit),
    run_command: () => createRunCommand({ ...kit, commands, environment, baseDir }),
    http_fetch: () => createHttpFetch({ ...kit, fetch, hosts }),
  }
  return builtinNames.filter((name) => names.has(name)).map((name) => makers[name]())
}

function chosen(names: readonly string[] = [], setting: string, known: readonly string[]): ReadonlySet<string> {
  for (const name of names) {
    if (name === '*' || known.includes(name)) continue
    const meant = closest(name, known)
    const hint = meant === undefined ? `it takes ${known.join(', ')} and *` : `did you mean ${meant}?`
    throw new ConvokeError('config', `${setting} has ${excerpt(name)}, which is none of its tools; ${hint}.`)
  }
  return new Set(names.includes('*') ? known : names)
}

function checkLimit(name: string, value: number, limit: number): void {
  if (Number.isSafeInteger(value) && value >= 1 && value <= limit) return
  throw new ConvokeError('config', `builtin.${name} must be a whole number from 1 to ${limit}, got ${excerpt(value)}.`)
}

/** A scheme, a port or a path would never match, and so forbid what it was to allow. */
function checkHost(host: string): void {
  if (/^([^:/@\s[\]]+|[\da-f.]*:[\da-f:.]*:[\da-f:.]*)$/i.test(host)) return
  const what = 'host names such as api.example.com or *.example.org, without a scheme, a port or a path'
  throw new ConvokeError('config', `builtin.hosts must hold ${what}, got ${excerpt(host)}.`)
}
