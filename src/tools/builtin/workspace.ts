/**
 * A folder that tools work in, and that no path leads out of: no `..`, no absolute path, no symbolic link, and no link
 * that somebody puts in place of a folder while a path is being followed.
 *
 * Node has no `openat`. On Linux an open folder can be gone through by `/proc/self/fd/N/NAME`, which means that very
 * folder whatever has become of its path, and `/proc/self/fd/N` tells where an open file really is. Elsewhere a path is
 * resolved, opened and resolved again, and what was opened must be what then stands there.
 */
import { randomUUID } from 'node:crypto'
import { constants, realpathSync, statSync, type Stats } from 'node:fs'
import { lstat, mkdir, open, readlink, realpath, rename, stat, unlink, type FileHandle } from 'node:fs/promises'
import { isAbsolute, join, relative, sep } from 'node:path'
import { abortReason } from '../../base/abort.ts'
import { ConvokeError, type ErrorCode } from '../../base/errors.ts'
import { excerpt } from '../value.ts'

/** An open file. Whoever opened it closes its handle. */
export interface OpenFile {
  readonly handle: FileHandle
  readonly stats: Stats
}

/** An open folder of the workspace. Whoever opened it closes it. */
export interface OpenFolder {
  /** Below the root, with `/`; the root itself is `.`. */
  readonly path: string
  /** A path that leads to this folder for certain, as long as it is open. */
  readonly at: string
  close(): Promise<void>
}

const maxPathLength = 4096
const folderFlags = constants.O_RDONLY | constants.O_DIRECTORY | constants.O_NOFOLLOW
/** Without O_NONBLOCK, opening a pipe that nobody writes to would wait for ever. */
const fileFlags = constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK

/** All that fails is a ConvokeError that names the path as the caller wrote it, and never one outside. */
export class Workspace {
  readonly #root: string
  #turn: Promise<unknown> = Promise.resolve()

  /** `setting` names the root in the `config` error that is thrown when there is no such folder. */
  constructor(root: string, setting: string) {
    try {
      this.#root = realpathSync(root)
      if (!statSync(this.#root).isDirectory()) throw new Error('It is no folder.')
    } catch (cause) {
      throw new ConvokeError('config', `${setting} must be a folder that exists, got ${excerpt(root)}.`, { cause })
    }
  }

  /** The real path of the root. */
  get root(): string {
    return this.#root
  }

  /** Whether a real path is the root or below it. */
  contains(real: string): boolean {
    return real === this.#root || real.startsWith(this.#root.endsWith(sep) ? this.#root : this.#root + sep)
  }

  /** A regular file, for reading. */
  async openFile(path: string): Promise<OpenFile> {
    return await this.#told(path, async () => {
      const real = await this.#resolve(this.#segments(path), path)
      // A device may do something when it is opened, so it is looked at before; and again behind, as it may be another.
      checkFile(await lstat(real), path)
      return await this.#openFile(real, real, path)
    })
  }

  /** A regular file in an open folder; no link. */
  async openFileIn(folder: OpenFolder, name: string): Promise<OpenFile> {
    const path = within(folder, name)
    return await this.#told(path, async () => {
      const at = join(folder.at, name)
      checkFile(await lstat(at), path)
      return await this.#openFile(at, this.#realOf(path), path)
    })
  }

  async openFolder(path: string): Promise<OpenFolder> {
    return await this.#told(path, () => this.#openFolder(this.#segments(path), path))
  }

  /** A folder in an open folder; no link. */
  async openFolderIn(folder: OpenFolder, name: string): Promise<OpenFolder> {
    const path = within(folder, name)
    return await this.#told(path, () => this.#openAt(join(folder.at, name), this.#realOf(path), path))
  }

  /**
   * Puts a file in place of what is there, or makes it, with the folders above it: written beside it and renamed, so that
   * nobody sees half of it. It keeps the mode of the one before. A link is followed, and stays. With `expected` throws
   * `conflict` if the file is not as it was then.
   */
  async replace(path: string, bytes: Uint8Array, expected?: Stats): Promise<{ readonly created: boolean }> {
    return await this.#told(path, async () => {
      let segments = this.#segments(path)
      let folder = await this.#openParent(segments, path)
      try {
        let before = await statsIn(folder, segments)
        if (before?.isSymbolicLink() === true) {
          segments = relative(this.#root, await this.#resolve(segments, path)).split(sep)
          await folder.close()
          folder = await this.#openParent(segments, path)
          before = await statsIn(folder, segments)
        }
        if (before !== undefined) checkFile(before, path)
        if (expected !== undefined && !isSame(before, expected)) throw refusal('conflict', path, changed)
        await writeIn(folder, segments.at(-1) ?? '', bytes, before)
        return { created: before === undefined }
      } finally {
        await folder.close()
      }
    })
  }

  /**
   * Does `work` when all work that was given here before is done: of two edits of a file none is lost. Work that was
   * stopped while it waited is not begun.
   */
  async inTurn<Value>(signal: AbortSignal, work: () => Promise<Value>): Promise<Value> {
    const mine = this.#turn.then(async () => {
      if (signal.aborted) throw abortReason(signal)
      return await work()
    })
    // Its failure is the matter of the one who gave it.
    this.#turn = mine.catch(() => {})
    return await mine
  }

  /** The names that lead from the root to a path; none for the root. */
  #segments(path: string): string[] {
    if (path.includes('\0')) throw new ConvokeError('invalid_params', 'A path cannot hold a NUL character.')
    if (path.length > maxPathLength) {
      throw new ConvokeError('invalid_params', `A path can have ${maxPathLength} characters, got ${path.length}.`)
    }
    let inside = path
    if (isAbsolute(path)) {
      if (!this.contains(path)) {
        // Not said again: what a caller guesses of the machine is not for messages that go on to others.
        throw new ConvokeError('forbidden', 'The path leads out of the workspace; write it relative to its root.')
      }
      inside = path.slice(this.#root.length)
    }
    const segments = inside.split(sep === '/' ? '/' : /[\\/]/).filter((segment) => segment !== '' && segment !== '.')
    if (segments.includes('..')) {
      throw refusal('forbidden', path, 'holds "..", which could lead out of the workspace; write the path without it')
    }
    return segments
  }

  #realOf(path: string): string {
    return path === '.' ? this.#root : join(this.#root, path)
  }

  /** Where a path really leads. */
  async #resolve(segments: readonly string[], path: string): Promise<string> {
    const real = await realpath(join(this.#root, ...segments))
    if (!this.contains(real)) throw refusal('forbidden', path, leadsOut)
    return real
  }

  async #openFolder(segments: readonly string[], path: string): Promise<OpenFolder> {
    const real = await this.#resolve(segments, path)
    return await this.#openAt(real, real, path)
  }

  async #openAt(at: string, real: string, path: string): Promise<OpenFolder> {
    const handle = await open(at, folderFlags)
    try {
      await this.#confirm(handle, real, path)
    } catch (error) {
      await handle.close()
      throw error
    }
    return {
      path: relative(this.#root, real).replaceAll(sep, '/') || '.',
      at: process.platform === 'linux' ? `/proc/self/fd/${handle.fd}` : real,
      close: () => handle.close(),
    }
  }

  async #openFile(at: string, real: string, path: string): Promise<OpenFile> {
    const handle = await open(at, fileFlags)
    try {
      await this.#confirm(handle, real, path)
      const stats = await handle.stat()
      checkFile(stats, path)
      return { handle, stats }
    } catch (error) {
      await handle.close()
      throw error
    }
  }

  /** Throws unless what was opened is inside: between the look and the opening somebody may have put a link there. */
  async #confirm(handle: FileHandle, real: string, path: string): Promise<void> {
    if (process.platform === 'linux') {
      if (!this.contains(await readlink(`/proc/self/fd/${handle.fd}`))) throw refusal('forbidden', path, leadsOut)
      return
    }
    const [now, there, opened] = [await realpath(real), await stat(real), await handle.stat()]
    const isThere = there.dev === opened.dev && there.ino === opened.ino
    if (!isThere || !this.contains(now)) throw refusal('forbidden', path, leadsOut)
  }

  /** The folder that a file is in, made if need be. */
  async #openParent(segments: readonly string[], path: string): Promise<OpenFolder> {
    if (segments.length === 0) throw refusal('invalid_params', path, isFolder)
    const parents = segments.slice(0, -1)
    let there = parents.length
    let folder: OpenFolder | undefined
    while (folder === undefined) {
      try {
        folder = await this.#openFolder(parents.slice(0, there), path)
      } catch (error) {
        if (there === 0 || (error as NodeJS.ErrnoException).code !== 'ENOENT') throw error
        there--
      }
    }
    for (const name of parents.slice(there)) {
      const above = folder
      try {
        await makeFolder(join(above.at, name))
        // A link that leads nowhere is as good as missing up to here; this does not follow it.
        folder = await this.#openAt(join(above.at, name), this.#realOf(within(above, name)), path)
      } finally {
        await above.close()
      }
    }
    return folder
  }

  async #told<Value>(path: string, work: () => Promise<Value>): Promise<Value> {
    try {
      return await work()
    } catch (error) {
      throw toOurs(error, path)
    }
  }
}

const leadsOut = 'leads out of the workspace'
const isFolder = 'is a folder, not a file'
const changed = 'was changed by somebody else meanwhile; read it again'

function within(folder: OpenFolder, name: string): string {
  return folder.path === '.' ? name : `${folder.path}/${name}`
}

function refusal(code: ErrorCode, path: string, why: string, cause?: unknown): ConvokeError {
  return new ConvokeError(code, `The path ${excerpt(path)} ${why}.`, { cause })
}

function checkFile(stats: Stats, path: string): void {
  if (stats.isFile()) return
  if (stats.isDirectory()) throw refusal('invalid_params', path, isFolder)
  if (stats.isSymbolicLink()) throw refusal('forbidden', path, 'is a link')
  throw refusal('invalid_params', path, 'is no regular file but a device, a pipe or a socket')
}

async function statsIn(folder: OpenFolder, segments: readonly string[]): Promise<Stats | undefined> {
  try {
    return await lstat(join(folder.at, segments.at(-1) ?? ''))
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return undefined
    throw error
  }
}

function isSame(now: Stats | undefined, then: Stats): boolean {
  return now?.ino === then.ino && now.size === then.size && now.mtimeMs === then.mtimeMs
}

async function makeFolder(at: string): Promise<void> {
  try {
    await mkdir(at)
  } catch (error) {
    // Made by somebody else just now, or no folder at all, which opening it shows.
    if ((error as NodeJS.ErrnoException).code !== 'EEXIST') throw error
  }
}

async function writeIn(folder: OpenFolder, name: string, bytes: Uint8Array, before: Stats | undefined): Promise<void> {
  const draft = join(folder.at, `.convoke-${randomUUID()}.tmp`)
  const handle = await open(draft, 'wx')
  try {
    try {
      await handle.writeFile(bytes)
      // Without the bits that lend a program the rights of its owner: that is for whoever wrote it.
      if (before !== undefined) await handle.chmod(before.mode & 0o777)
      await handle.datasync()
    } finally {
      await handle.close()
    }
    await rename(draft, join(folder.at, name))
  } catch (error) {
    await unlink(draft)
    throw error
  }
}

const failures: Readonly<Record<string, readonly [code: ErrorCode, why: string] | undefined>> = {
  ENOENT: ['not_found', 'does not exist in the workspace'],
  ENOTDIR: ['invalid_params', 'is no folder, or leads through something that is none'],
  EISDIR: ['invalid_params', isFolder],
  ELOOP: ['forbidden', 'leads through a link that leads nowhere, or in a circle'],
  EACCES: ['forbidden', 'is closed to this node by the rights of the file system'],
  EPERM: ['forbidden', 'is closed to this node by the rights of the file system'],
  EROFS: ['forbidden', 'is on a file system that can only be read'],
  ENAMETOOLONG: ['invalid_params', 'has a name that is too long'],
  ENXIO: ['invalid_params', 'is no regular file but a device, a pipe or a socket'],
  EFBIG: ['too_large', 'would be too large for the file system'],
  ENOSPC: ['unavailable', 'cannot be written: the disk is full'],
  EDQUOT: ['unavailable', 'cannot be written: the disk is full'],
  EMFILE: ['unavailable', 'cannot be opened now: the node has too many files open'],
  ENFILE: ['unavailable', 'cannot be opened now: the node has too many files open'],
}

/** Errors of Node name the real path, which is nobody's business. */
export function toOurs(error: unknown, path: string): unknown {
  if (error instanceof ConvokeError || !(error instanceof Error) || !('code' in error)) return error
  const reason = String(error.code)
  const known = failures[reason]
  return refusal(known?.[0] ?? 'tool_failed', path, known?.[1] ?? `cannot be used (${reason})`, error)
}
