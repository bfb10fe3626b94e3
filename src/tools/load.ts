/** Loads the tools that a configuration names by module. A bad entry is told and skipped; the others load. */
import { existsSync } from 'node:fs'
import { createRequire } from 'node:module'
import { join, resolve } from 'node:path'
import { fileURLToPath, pathToFileURL } from 'node:url'
import { ConvokeError } from '../base/errors.ts'
import type { Logger } from '../base/logger.ts'
import { toolNamePattern } from '../protocol/extension.ts'
import { isDefinedTool } from './define.ts'
import type { Tool } from './tool.ts'
import { clip, excerpt } from './value.ts'

export interface ToolEntry {
  /** A path relative to the base folder, or a package. */
  readonly module: string
  /** Only this export. Default: every tool that the module exports. */
  readonly export?: string
  /** What to call it here; for an entry that brings one tool. */
  readonly name?: string
}

export interface LoadedTools {
  readonly tools: Tool[]
  /** One sentence for each entry, or part of one, that was skipped. */
  readonly warnings: string[]
}

/**
 * Imports the modules in order and collects the tools they export: by name, as default, or in an exported array.
 * Nothing else that they export is touched. Of two tools of the same name the first counts. Never rejects for what a
 * module does; each warning is logged too.
 */
export async function loadTools(
  entries: readonly ToolEntry[],
  options: { readonly baseDir: string; readonly log?: Logger },
): Promise<LoadedTools> {
  const tools = new Map<string, Tool>()
  const warnings: string[] = []
  const warn = (entry: ToolEntry, message: string, error?: unknown): void => {
    warnings.push(`${entry.module}: ${message}`)
    options.log?.warn(
      { module: entry.module, ...(error === undefined ? {} : { error }) },
      `Skipped in ${entry.module}: ${message}`,
    )
  }
  for (const entry of entries) {
    try {
      for (const tool of await loadEntry(entry, options.baseDir)) {
        const known = tools.get(tool.name)
        if (known === undefined) tools.set(tool.name, tool)
        else if (known !== tool) warn(entry, `there is a tool "${tool.name}" already; rename one with \`name\`.`)
      }
    } catch (error) {
      const message =
        error instanceof ConvokeError
          ? error.message
          : `cannot be loaded: ${reasonOf(error)}${hintFor(entry, options.baseDir, error)}`
      warn(entry, message, error)
    }
  }
  return { tools: [...tools.values()], warnings }
}

async function loadEntry(entry: ToolEntry, baseDir: string): Promise<Tool[]> {
  const module = (await import(locate(entry.module, baseDir))) as Record<string, unknown>
  const tools = entry.export === undefined ? toolsIn(Object.values(module)) : namedExport(module, entry.export)
  if (tools.length === 0) throw skip('exports no tool made by defineTool.')
  if (entry.name === undefined) return tools
  const [tool] = tools
  if (tool === undefined || tools.length > 1) {
    throw skip(`exports ${tools.length} tools, and \`name\` can rename one; say which with \`export\`.`)
  }
  if (!toolNamePattern.test(entry.name))
    throw skip(`\`name\` must be 1 to 64 letters, digits, _ or -, got ${excerpt(entry.name)}.`)
  return [Object.freeze({ ...tool, name: entry.name })]
}

function skip(message: string): ConvokeError {
  return new ConvokeError('config', message)
}

function namedExport(module: Record<string, unknown>, name: string): Tool[] {
  if (!Object.hasOwn(module, name)) {
    throw skip(`has no export \`${name}\`; it exports ${Object.keys(module).sort().join(', ') || 'nothing'}.`)
  }
  const tools = toolsIn([module[name]])
  if (tools.length > 0) return tools
  const hint =
    typeof module[name] === 'function' ? ' but a plain function, whose params nobody knows; wrap it in defineTool' : ''
  throw skip(`its export \`${name}\` is no tool${hint}.`)
}

/** Each tool once, also when it is exported twice. */
function toolsIn(values: readonly unknown[]): Tool[] {
  return [
    ...new Set(
      values.flatMap((value: unknown) => (Array.isArray(value) ? (value as unknown[]) : [value])).filter(isDefinedTool),
    ),
  ]
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

/** What to do about it, where Node's own words do not say so. */
function hintFor({ module }: ToolEntry, baseDir: string, error: unknown): string {
  if (!(error instanceof Error)) return ''
  if ('code' in error && /^ERR_(UNKNOWN_FILE|UNSUPPORTED)/.test(String(error.code)) && /\.[cm]?tsx?$/.test(module)) {
    return '. Compile it to JavaScript first, and name the .js file.'
  }
  // Node does not say where a module cannot be parsed. Missing exports and bad JSON are SyntaxErrors too, and say it.
  const isUnparsed = error instanceof SyntaxError && !/does not provide an export|JSON/.test(error.stack ?? '')
  return isUnparsed ? `. To see where, try node --check ${fileURLToPath(locate(module, baseDir))}` : ''
}
