/** Which programs may run, and where they are. */
import { constants } from 'node:fs'
import { access, realpath, stat } from 'node:fs/promises'
import { delimiter, extname, isAbsolute, join, resolve } from 'node:path'
import { ConvokeError } from '../../base/errors.ts'
import { excerpt } from '../value.ts'
import type { Workspace } from './workspace.ts'

export type Environment = Readonly<Record<string, string | undefined>>

/** All that a command gets of the node's environment: the rest may hold secrets. */
const passedOn = [
  'HOME',
  'LANG',
  'LC_ALL',
  'LC_CTYPE',
  'LOGNAME',
  'PATH',
  'PATHEXT',
  'SYSTEMROOT',
  'TEMP',
  'TMP',
  'TMPDIR',
  'TZ',
  'USER',
  'USERPROFILE',
]

export function toCommandEnvironment(environment: Environment): Record<string, string> {
  return Object.fromEntries(
    Object.entries(environment).filter(
      (entry): entry is [string, string] => entry[1] !== undefined && passedOn.includes(entry[0].toUpperCase()),
    ),
  )
}

export interface Programs {
  readonly allowed: readonly string[]
  readonly environment: Environment
  readonly workspace: Workspace
  /** What allowed paths that are not absolute start from. */
  readonly baseDir: string
}

/**
 * The file of a program that may run. A name is looked up in PATH, but not in folders of the workspace: a tool that
 * writes files there could put a program of its own in front of the one that was meant. Throws `forbidden` for a program
 * that is not allowed and `not_found` for one that is not there.
 */
export async function findProgram(program: string, programs: Programs): Promise<string> {
  const { allowed, environment, workspace, baseDir } = programs
  if (!allowed.includes(program)) {
    const which = allowed.length === 0 ? 'none may' : `these may: ${allowed.join(', ')}`
    throw new ConvokeError('forbidden', `The program ${excerpt(program)} may not run here; ${which}.`)
  }
  if (/[\\/]/.test(program)) {
    const file = resolve(baseDir, program)
    if (await isProgram(file)) return file
    throw new ConvokeError('not_found', `The program ${excerpt(program)} is not there, or cannot be run.`)
  }
  for (const folder of (environment['PATH'] ?? environment['Path'] ?? '').split(delimiter)) {
    // What is relative would be looked up in the folder that the command runs in.
    if (!isAbsolute(folder)) continue
    for (const extension of extensionsOf(program, environment)) {
      const file = join(folder, program + extension)
      if ((await isProgram(file)) && !workspace.contains(await realpath(folder))) return file
    }
  }
  throw new ConvokeError('not_found', `The program ${excerpt(program)} is not installed where the node runs.`)
}

function extensionsOf(program: string, environment: Environment): readonly string[] {
  if (process.platform !== 'win32' || extname(program) !== '') return ['']
  return (environment['PATHEXT'] ?? '.COM;.EXE').split(';')
}

async function isProgram(file: string): Promise<boolean> {
  try {
    await access(file, constants.X_OK)
    return (await stat(file)).isFile()
  } catch {
    return false
  }
}
