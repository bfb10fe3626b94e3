/** Going through a folder of the workspace and those below it. */
import { opendir } from 'node:fs/promises'
import { abortReason } from '../../base/abort.ts'
import type { OpenFolder, Workspace } from './workspace.ts'
import { toOurs } from './workspace.ts'

/** Most names of one folder that are looked at; the others are left out. */
const maxNames = 100_000

export interface Found {
  readonly name: string
  /** Below the root of the workspace, with `/`. */
  readonly path: string
  readonly type: 'file' | 'directory' | 'link' | 'other'
  /** Where it is; open until the next one is asked for. */
  readonly folder: OpenFolder
}

export interface Walk {
  /** How deep: 1 is what stands in the folder itself. */
  readonly depth: number
  /** Also names that begin with a dot. */
  readonly hidden: boolean
  /** Folders of these names are left out. */
  readonly skipped?: ReadonlySet<string>
  readonly signal: AbortSignal
  /** Hears that something was left out because there is too much of it. */
  readonly onCut: () => void
}

/**
 * What is in the folder, in the order of the names, each folder before what is in it. Links are told and not followed.
 * Throws for the folder itself; one below it that cannot be opened is told and left at that.
 */
export async function* walk(workspace: Workspace, path: string, options: Walk): AsyncGenerator<Found, void, void> {
  yield* walkFolder(workspace, await workspace.openFolder(path), options, 1)
}

async function* walkFolder(
  workspace: Workspace,
  folder: OpenFolder,
  options: Walk,
  depth: number,
): AsyncGenerator<Found, void, void> {
  try {
    for (const { name, type } of await namesIn(folder, options)) {
      if (options.signal.aborted) throw abortReason(options.signal)
      const path = folder.path === '.' ? name : `${folder.path}/${name}`
      yield { name, path, type, folder }
      if (type !== 'directory' || depth >= options.depth) continue
      const below = await openBelow(workspace, folder, name)
      if (below !== undefined) yield* walkFolder(workspace, below, options, depth + 1)
    }
  } finally {
    await folder.close()
  }
}

async function openBelow(workspace: Workspace, folder: OpenFolder, name: string): Promise<OpenFolder | undefined> {
  try {
    return await workspace.openFolderIn(folder, name)
  } catch {
    // Gone or changed meanwhile, or closed to this user: there is nothing to be seen in it.
    return undefined
  }
}

async function namesIn(
  folder: OpenFolder,
  { hidden, skipped, signal, onCut }: Walk,
): Promise<{ readonly name: string; readonly type: Found['type'] }[]> {
  const names: { readonly name: string; readonly type: Found['type'] }[] = []
  try {
    for await (const entry of await opendir(folder.at, { bufferSize: 256 })) {
      if (signal.aborted) throw abortReason(signal)
      if (!hidden && entry.name.startsWith('.')) continue
      if (skipped?.has(entry.name) === true) continue
      if (names.length >= maxNames) {
        onCut()
        break
      }
      const type = entry.isFile()
        ? 'file'
        : entry.isDirectory()
          ? 'directory'
          : entry.isSymbolicLink()
            ? 'link'
            : 'other'
      names.push({ name: entry.name, type })
    }
  } catch (error) {
    throw toOurs(error, folder.path)
  }
  return names.sort((a, b) => (a.name < b.name ? -1 : 1))
}
