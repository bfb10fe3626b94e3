/** `convoke config check`, and how a command finds its configuration. */
import { access } from 'node:fs/promises'
import { ConvokeError } from '../base/errors.ts'
import type { LoadedConfig } from '../config.ts'
import type { NodeOptions } from '../options.ts'
import { CommandFailure, ExitRequest } from './failure.ts'

const defaultFiles = ['convoke.yaml', 'convoke.json']

const minimalFile = `There is no convoke.yaml or convoke.json in this folder. Name one with --config FILE, or begin with this convoke.yaml:

agent:
  id: my-agent
tools:
  - module: ./tools.js`

/** Loads the named file, or the default one of the working directory. Fails with exit code 2. */
export async function loadConfigFile(named: string | undefined): Promise<LoadedConfig & { file: string }> {
  const file = named ?? (await findConfigFile())
  if (file === undefined) throw new CommandFailure(2, minimalFile)
  // Commands that are given a URL need none of it.
  const { loadConfig } = await import('../config.ts')
  try {
    return { file, ...(await loadConfig(file)) }
  } catch (error) {
    throw new CommandFailure(2, error)
  }
}

export interface CheckFlags {
  readonly load: boolean
  readonly output: 'text' | 'json'
}

/**
 * Says whether `convoke serve` would take the file and everything in it. With `load` it makes the node, on an empty
 * store and without listening, so that what is skipped here is what would be skipped there.
 */
export async function checkConfig(named: string | undefined, { load, output }: CheckFlags): Promise<void> {
  if (output === 'json') return await checkAsJson(named, load)
  const { file, warnings, skipped } = await check(named, load)
  for (const warning of warnings) process.stderr.write(`warning: ${warning}\n`)
  for (const sentence of skipped) process.stderr.write(`error: ${sentence}\n`)
  if (skipped.length > 0) throw new CommandFailure(2, `The node of ${file} would start without these.`)
  process.stdout.write(`${file} is valid.\n`)
}

async function checkAsJson(named: string | undefined, load: boolean): Promise<void> {
  const file = named ?? (await findConfigFile()) ?? null
  const { warnings, problems } = await check(file ?? undefined, load).then(
    ({ warnings: told, skipped }) => ({ warnings: told, problems: skipped.map((message) => ({ message })) }),
    (error: unknown) => ({ warnings: [], problems: problemsOf(error) }),
  )
  const report = {
    file,
    valid: problems.length === 0,
    problems: problems.map((problem) => toFinding(problem, file)),
    warnings: warnings.map((message) => toFinding({ message }, file)),
  }
  process.stdout.write(`${JSON.stringify(report)}\n`)
  if (!report.valid) throw new ExitRequest(2)
}

/** Throws a CommandFailure for a file that no node could be made of. */
async function check(
  named: string | undefined,
  load: boolean,
): Promise<{ file: string; warnings: readonly string[]; skipped: readonly string[] }> {
  const { file, options, warnings } = await loadConfigFile(named)
  const { publicBindProblem } = await import('../server/auth/public-bind.ts')
  const problem = publicBindProblem(options)
  if (problem !== undefined) throw new CommandFailure(2, problem)
  return { file, warnings, skipped: load ? await skippedParts(options) : [] }
}

function problemsOf(error: unknown): readonly { readonly message: string; readonly path?: string }[] {
  if (!(error instanceof CommandFailure)) throw error
  const issues = error.cause instanceof ConvokeError ? error.cause.issues : undefined
  return issues ?? [{ message: error.message }]
}

interface Finding {
  readonly line?: number
  readonly column?: number
  /** A JSON Pointer. */
  readonly path?: string
  readonly message: string
}

/** The place in the file stands before the words. */
function toFinding({ message, path = '' }: { message: string; path?: string }, file: string | null): Finding {
  const text = message.startsWith(`${file}:`) ? message.slice(`${file}:`.length) : ''
  const [, line, column, sentence = message] = /^(\d+):(\d+): (.*)$/s.exec(text) ?? []
  return {
    ...(line === undefined ? {} : { line: Number(line), column: Number(column) }),
    ...(path === '' ? {} : { path }),
    message: sentence,
  }
}

async function skippedParts(options: NodeOptions): Promise<readonly string[]> {
  const { createNode } = await import('../node.ts')
  try {
    const node = await createNode({ ...options, store: { url: ':memory:' }, logLevel: 'silent' })
    await node.stop()
    return node.warnings
  } catch (error) {
    throw new CommandFailure(2, error)
  }
}

/** The default file of the working directory, if there is one. */
export async function findConfigFile(): Promise<string | undefined> {
  for (const file of defaultFiles) if (await exists(file)) return file
  return undefined
}

async function exists(file: string): Promise<boolean> {
  return access(file).then(
    () => true,
    () => false,
  )
}
