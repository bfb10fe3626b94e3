/** `convoke config check`, and how a command finds its configuration. */
import { access } from 'node:fs/promises'
import type { LoadedConfig } from '../config.ts'
import type { NodeOptions } from '../options.ts'
import { CommandFailure } from './failure.ts'

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

/**
 * Says whether `convoke serve` would take the file and everything in it. With `load` it makes the node, on an empty
 * store and without listening, so that what is skipped here is what would be skipped there.
 */
export async function checkConfig(named: string | undefined, { load }: { readonly load: boolean }): Promise<void> {
  const { file, options, warnings } = await loadConfigFile(named)
  const { publicBindProblem } = await import('../server/auth/public-bind.ts')
  const problem = publicBindProblem(options)
  if (problem !== undefined) throw new CommandFailure(2, problem)
  for (const warning of warnings) process.stderr.write(`warning: ${warning}\n`)
  const skipped = load ? await skippedParts(options) : []
  for (const sentence of skipped) process.stderr.write(`error: ${sentence}\n`)
  if (skipped.length > 0) throw new CommandFailure(2, `${file} is valid, but the node would start without these.`)
  process.stdout.write(`${file} is valid.\n`)
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
