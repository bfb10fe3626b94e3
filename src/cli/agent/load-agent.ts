/** The agent that a file exports. */
import { stat } from 'node:fs/promises'
import { resolve } from 'node:path'
import { pathToFileURL } from 'node:url'
import { isAgent, isAgentClass, type Agent } from '../../agent/agent.ts'
import { ConvokeError } from '../../base/errors.ts'
import { whyUnloadable } from '../../tools/unloadable.ts'
import { closest } from '../../tools/value.ts'
import { CommandFailure } from '../failure.ts'

/**
 * Loads the file and takes the export `name`; without a name its default export, else `agent`. An agent, or a class of agents, of
 * which one is made. Throws a CommandFailure with exit code 2 that says what the file has instead.
 */
export async function loadAgent(file: string, name: string | undefined): Promise<Agent> {
  const exported = await load(file)
  const wanted = name ?? ['default', 'agent'].find((each) => exported[each] !== undefined)
  const found = wanted === undefined ? undefined : exported[wanted]
  if (wanted === undefined || found === undefined) throw noExport(file, name, exported)
  if (isAgent(found)) return found
  if (isAgentClass(found)) return make(file, wanted, found)
  const others = agentsIn(exported)
  const hint = others.length === 0 ? '' : ` Name another one: --export ${others.join(', or ')}.`
  throw new CommandFailure(
    2,
    `${file} exports ${wanted}, which is neither an Agent nor a class that extends Agent.${hint}`,
  )
}

type Exports = Readonly<Record<string, unknown>>

async function load(file: string): Promise<Exports> {
  const found = await stat(file).catch(() => undefined)
  if (found?.isFile() !== true) {
    const what = found?.isDirectory() === true ? `${file} is a folder.` : `There is no file ${file}.`
    throw new CommandFailure(2, `${what} Name a module that exports an agent.`)
  }
  const { href } = pathToFileURL(resolve(file))
  try {
    return (await import(href)) as Exports
  } catch (error) {
    throw new CommandFailure(2, `${file} cannot be loaded: ${whyUnloadable(error, href)}`)
  }
}

function make(file: string, name: string, AgentClass: new () => Agent): Agent {
  try {
    return new AgentClass()
  } catch (error) {
    throw new CommandFailure(2, `${file}: an agent of the class ${name} cannot be made: ${reasonOf(error)}`)
  }
}

function noExport(file: string, name: string | undefined, exported: Exports): CommandFailure {
  const others = agentsIn(exported)
  if (name === undefined && others.length === 0)
    return new CommandFailure(2, `${file} exports no agent. Export one as default, or as \`agent\`.`)
  if (name === undefined)
    return new CommandFailure(
      2,
      `${file} has no default export, nor \`agent\`. Say which: --export ${others.join(', or ')}.`,
    )
  const similar = closest(name, Object.keys(exported))
  const meant = similar === undefined ? '' : ` Did you mean "${similar}"?`
  const known = others.length === 0 ? 'It exports no agent.' : `Its agents: ${others.join(', ')}.`
  return new CommandFailure(2, `${file} has no export ${JSON.stringify(name)}.${meant} ${known}`)
}

function agentsIn(exported: Exports): string[] {
  return Object.entries(exported).flatMap(([name, value]) => (isAgent(value) || isAgentClass(value) ? [name] : []))
}

function reasonOf(error: unknown): string {
  const text = error instanceof Error ? error.message : String(error)
  return error instanceof ConvokeError || /[.!?]$/.test(text) ? text : `${text}.`
}
