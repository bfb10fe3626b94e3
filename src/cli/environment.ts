/**
 * Where the client commands take settings from that are not on the command line: the environment, then the nearest
 * `.env` file (or the one that --config names), then `~/.config/a2a-cli/.env`. The names are those of the a2a-cli
 * specification, section 7.2, so that one file serves every A2A command line.
 */
import { readFile, stat } from 'node:fs/promises'
import { homedir } from 'node:os'
import { dirname, join, resolve } from 'node:path'

export type Variables = Readonly<Record<string, string | undefined>>

/** Variables that come from one place. */
export interface Source {
  readonly kind: 'environment' | 'local' | 'global'
  /** The path of the file; absent for the environment. */
  readonly file?: string
  readonly variables: Variables
}

/** The file that holds for all folders. */
export function globalFile(): string {
  return join(homedir(), '.config', 'a2a-cli', '.env')
}

/** The variables of this process. */
export function environment(): Variables {
  return process.env
}

/** Every place there is, the one that wins first. Throws the system's error when the named file cannot be read. */
export async function loadSources(named: string | undefined): Promise<readonly Source[]> {
  const local = named === undefined ? await findUpwards(process.cwd()) : resolve(named)
  const shared = globalFile()
  return [
    { kind: 'environment', variables: environment() },
    ...(local === undefined || local === shared ? [] : [await readSource('local', local)]),
    ...((await isFile(shared)) ? [await readSource('global', shared)] : []),
  ]
}

async function readSource(kind: 'local' | 'global', file: string): Promise<Source> {
  return { kind, file, variables: parseDotenv(await readFile(file, 'utf8')) }
}

/** Whether others on this machine can read a file of settings. Windows has no such bits. */
export async function isReadableByOthers(file: string): Promise<boolean> {
  return process.platform !== 'win32' && ((await stat(file)).mode & 0o044) !== 0
}

async function findUpwards(folder: string): Promise<string | undefined> {
  const file = join(folder, '.env')
  if (await isFile(file)) return file
  const parent = dirname(folder)
  return parent === folder ? undefined : findUpwards(parent)
}

function isFile(file: string): Promise<boolean> {
  return stat(file).then(
    (found) => found.isFile(),
    () => false,
  )
}

const line =
  /^\s*(?:export\s+)?([A-Za-z_][A-Za-z0-9_]*)\s*=[ \t]*(?:'([^']*)'|"((?:[^"\\]|\\[\s\S])*)"|([^\r\n]*?))[ \t]*(?:(?:^|[ \t])#[^\r\n]*)?$/gm

/** `NAME=value` lines. Single quotes keep a value as it is, double quotes know `\n`; ` #` begins a comment. */
export function parseDotenv(text: string): Variables {
  const variables: Record<string, string> = Object.create(null) as Record<string, string>
  for (const [, name = '', single, double, bare] of text.matchAll(line)) {
    variables[name] = single ?? (double === undefined ? toBare(bare ?? '') : unescape(double))
  }
  return variables
}

function toBare(text: string): string {
  return text.replace(/(^|\s)#.*$/, '').trim()
}

function unescape(text: string): string {
  return text.replace(/\\([\s\S])/g, (_match, character: string) => (character === 'n' ? '\n' : character))
}
