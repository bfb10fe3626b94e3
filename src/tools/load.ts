/** Loads the tools that a configuration names by module. A bad entry is told and skipped; the others load. */
import { existsSync } from 'node:fs'
import { createRequire } from 'node:module'
import { join, resolve } from 'node:path'
import { pathToFileURL } from 'node:url'
import { ConvokeError } from '../base/errors.ts'
import type { JsonObject } from '../base/json.ts'
import { silentLog, type Logger } from '../base/logger.ts'
import { toolNamePattern } from '../protocol/extension.ts'
import { isDefinedTool } from './define.ts'
import { hasOwnSchema, isPlainFunction, toolOfFunction, type PlainFunction } from './plain-function.ts'
import { isToolClass, isToolInstance, isToolLikeClass, toolOfInstance } from './tool-base.ts'
import type { JsonSchema, Tool } from './tool.ts'
import { whyUnloadable } from './unloadable.ts'
import { clip, excerpt } from './value.ts'

/** A tool module, and what to take of it. */
export interface ToolEntry {
  /** A path relative to the base folder, or a package. */
  readonly module: string
  /** Only this export. Default: every tool that the module exports. */
  readonly export?: string
  /** What to call it here; for an entry that brings one tool. */
  readonly name?: string
  /** What it does, for an entry that brings one function or class. Default: what the module says. */
  readonly description?: string
  /** The params' schema, for an entry that brings one function or class. Default: what the module says. */
  readonly input?: JsonSchema
  /** The result's schema, likewise. */
  readonly output?: JsonSchema
  /** What the constructor of a class gets. Default: nothing. */
  readonly options?: JsonObject
}

export interface LoadedTools {
  readonly tools: Tool[]
  /** One sentence for each entry, or part of one, that was skipped. */
  readonly warnings: string[]
}

/**
 * Imports the modules in order and collects the tools they export, by name, as default, or in an exported array: what
 * defineTool made, subclasses of ToolBase (one instance of each) and instances of them, and plain functions that carry
 * their schema. An entry that names its export takes any plain function whose params are known, and any class with `run`
 * or `call`. Nothing else that a module exports is touched. Of two tools of the same name the first counts. Never rejects
 * for what a module does; each warning is logged too.
 */
export async function loadTools(
  entries: readonly ToolEntry[],
  { baseDir, log = silentLog }: { readonly baseDir: string; readonly log?: Logger },
): Promise<LoadedTools> {
  const tools = new Map<string, Tool>()
  const warnings: string[] = []
  const derived: string[] = []
  for (const entry of entries) {
    const warn = (message: string, error?: unknown): void => {
      warnings.push(`${entry.module}: ${message}`)
      const details = { module: entry.module, ...(error === undefined ? {} : { error }) }
      log.warn(details, `Skipped in ${entry.module}: ${message}`)
    }
    const warnOf = (error: unknown): void => {
      const message =
        error instanceof ConvokeError
          ? error.message
          : `cannot be loaded: ${whyUnloadable(error, locate(entry.module, baseDir))}`
      warn(message, error)
    }
    try {
      for (const candidate of await candidatesIn(entry, baseDir)) {
        try {
          const tool = await toTool(candidate, entry, baseDir)
          // It has said that it is not to be there.
          if (tool === undefined) continue
          const known = tools.get(tool.name)
          if (known === undefined) tools.set(tool.name, tool)
          else if (known !== tool) warn(`there is a tool "${tool.name}" already; rename one with \`name\`.`)
          if (known === undefined && hasDerivedName(candidate, entry)) derived.push(tool.name)
        } catch (error) {
          warnOf(error)
        }
      }
    } catch (error) {
      warnOf(error)
    }
  }
  if (derived.length > 0) {
    const message = `Plain functions are tools under the names of their exports, ${derived.join(', ')}; whoever renames a function renames the tool. Give them a \`name\`.`
    log.warn({ tools: derived }, message)
  }
  return { tools: [...tools.values()], warnings }
}

/** An export that is a tool, or is to be made one. */
interface Candidate {
  readonly export: string
  readonly value: unknown
}

async function candidatesIn(entry: ToolEntry, baseDir: string): Promise<Candidate[]> {
  const module = (await import(locate(entry.module, baseDir))) as Record<string, unknown>
  const candidates =
    entry.export === undefined ? toolsIn(Object.entries(module)) : namedExport(module, entry.export, entry)
  if (candidates.length === 0) {
    throw skip('exports no tool made by defineTool or from ToolBase; name a plain function with `export`.')
  }
  const forOne = (['name', 'description', 'input', 'output'] as const).find((key) => entry[key] !== undefined)
  if (forOne !== undefined && candidates.length > 1) {
    const verb = forOne === 'name' ? 'rename' : 'describe'
    throw skip(`exports ${candidates.length} tools, and \`${forOne}\` can ${verb} one; say which with \`export\`.`)
  }
  if (entry.options !== undefined && !candidates.some(({ value }) => isToolLikeClass(value)))
    throw skip('exports no class, and `options` are for the constructor of one.')
  if (entry.name !== undefined && !toolNamePattern.test(entry.name))
    throw skip(`\`name\` must be 1 to 64 letters, digits, _ or -, got ${excerpt(entry.name)}.`)
  return candidates
}

function skip(message: string): ConvokeError {
  return new ConvokeError('config', message)
}

function namedExport(module: Record<string, unknown>, name: string, entry: ToolEntry): Candidate[] {
  if (!Object.hasOwn(module, name)) {
    throw skip(`has no export \`${name}\`; it exports ${Object.keys(module).sort().join(', ') || 'nothing'}.`)
  }
  const value = module[name]
  const candidates = toolsIn([[name, value]])
  if (candidates.length > 0) return candidates
  if (isToolLikeClass(value) || isPlainFunction(value)) return [{ export: name, value }]
  const hint =
    typeof value === 'function'
      ? ' but a class without `run`'
      : entry.input === undefined
        ? ''
        : ', and `input` makes one of a function only'
  throw skip(`its export \`${name}\` is no tool${hint}.`)
}

/** Each tool once, also when it is exported twice, with the name of its first export. */
function toolsIn(exported: readonly (readonly [name: string, value: unknown])[]): Candidate[] {
  const found = new Map<unknown, Candidate>()
  for (const [name, value] of exported) {
    for (const each of Array.isArray(value) ? (value as unknown[]) : [value]) {
      if (found.has(each)) continue
      if (isDefinedTool(each) || isToolInstance(each) || isToolClass(each) || hasOwnSchema(each))
        found.set(each, { export: name, value: each })
    }
  }
  return [...found.values()]
}

function hasDerivedName({ value }: Candidate, { name }: ToolEntry): boolean {
  return name === undefined && isPlainFunction(value)
}

/** The tool that an export is; undefined where it says that it is disabled. */
async function toTool(
  { export: exported, value }: Candidate,
  entry: ToolEntry,
  baseDir: string,
): Promise<Tool | undefined> {
  if (isDefinedTool(value)) return renamed(value, entry)
  if (isPlainFunction(value)) {
    return await toolOfFunction(
      value,
      { ...entry, name: entry.name ?? nameOf(exported, value) },
      locate(entry.module, baseDir),
    )
  }
  const instance = isToolLikeClass(value) ? construct(exported, value, entry) : (value as object)
  return (await isDisabled(instance)) ? undefined : toolOfInstance(instance, entry)
}

function renamed(tool: Tool, { name, description, input, output }: ToolEntry): Tool {
  if (input !== undefined || output !== undefined)
    throw skip(`the tool "${tool.name}" has its schemas from defineTool; leave out \`input\` and \`output\`.`)
  if (name === undefined && description === undefined) return tool
  return Object.freeze({
    ...tool,
    ...(name === undefined ? {} : { name }),
    ...(description === undefined ? {} : { description }),
  })
}

/** A default export has the function's own name. */
function nameOf(exported: string, value: PlainFunction): string {
  const name = exported === 'default' ? value.name : exported
  if (toolNamePattern.test(name) && name !== 'default') return name
  throw skip(`the plain function of the export \`${exported}\` needs a \`name\` of 1 to 64 letters, digits, _ or -.`)
}

function construct(exported: string, Class: new (options?: unknown) => object, { options }: ToolEntry): object {
  try {
    return options === undefined ? new Class() : new Class(options)
  } catch (cause) {
    const message = `the constructor of the class \`${exported}\` failed: ${reasonOf(cause)}`
    throw new ConvokeError('config', message, { cause })
  }
}

async function isDisabled(instance: object): Promise<boolean> {
  const ask: unknown = Reflect.get(instance, 'isEnabled')
  return typeof ask === 'function' && (await Reflect.apply(ask, instance, [])) === false
}

/** A file below the base folder if there is one, else what Node finds from there. */
function locate(module: string, baseDir: string): string {
  if (module.startsWith('file:')) return module
  const path = resolve(baseDir, module)
  if (existsSync(path) || /^\.{0,2}\//.test(module)) return pathToFileURL(path).href
  try {
    return pathToFileURL(createRequire(join(resolve(baseDir), 'tools.js')).resolve(module)).href
  } catch (cause) {
    throw new ConvokeError('config', `is neither a file in ${resolve(baseDir)} nor an installed package.`, { cause })
  }
}

function reasonOf(error: unknown): string {
  return error instanceof Error ? clip(`${error.name}: ${error.message}`, 500) : excerpt(error)
}
