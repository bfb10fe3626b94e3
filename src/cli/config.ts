/** `convoke config check`, and how a command finds its configuration. */
import { access } from 'node:fs/promises'
import { resolve } from 'node:path'
import { loadConfig } from '../config.ts'
import type { LoadedConfig } from '../config.ts'
import type { ToolModule } from '../options.ts'
import { publicBindProblem } from '../server/auth/public-bind.ts'
import type { Tool } from '../tools/tool.ts'
import { CommandFailure } from './failure.ts'

const defaultFiles = ['convoke.yaml', 'convoke.json']

const minimalFile = `There is no convoke.yaml or convoke.json in this folder. Name one with --config FILE, or begin with this convoke.yaml:

agent:
  id: my-agent
tools:
  - module: ./tools.js`

/** Loads the named file, or the default one of the working directory. Fails with exit code 2. */
export async function loadConfigFile(named: string | undefined): Promise<LoadedConfig & { file: string }> {
  const file = named ?? (await firstThatExists(defaultFiles))
  if (file === undefined) throw new CommandFailure(2, minimalFile)
  try {
    return { file, ...(await loadConfig(file)) }
  } catch (error) {
    throw new CommandFailure(2, error)
  }
}

/** Says whether `convoke serve` would take the file: everything short of loading its modules. */
export async function checkConfig(named: string | undefined): Promise<void> {
  const { file, options, warnings } = await loadConfigFile(named)
  const problem = publicBindProblem(options)
  if (problem !== undefined) throw new CommandFailure(2, problem)
  const missing: string[] = []
  for (const { module } of (options.tools ?? []).filter(isModule)) {
    // Other names may be packages.
    if (/^\.{0,2}\//.test(module) && !(await exists(resolve(options.baseDir ?? '.', module))))
      missing.push(`The tool module ${module} does not exist.`)
  }
  for (const warning of [...warnings, ...missing]) process.stderr.write(`warning: ${warning}\n`)
  process.stdout.write(`${file} is valid.\n`)
}

function isModule(entry: Tool | ToolModule): entry is ToolModule {
  return 'module' in entry
}

async function firstThatExists(files: readonly string[]): Promise<string | undefined> {
  for (const file of files) if (await exists(file)) return file
  return undefined
}

async function exists(file: string): Promise<boolean> {
  return access(file).then(
    () => true,
    () => false,
  )
}
