/**
 * The file of the pins, which several processes write: nodes what they see, the command line what a person approves.
 * Each change is made to what the file holds at that moment, by one process at a time.
 */
import { randomBytes } from 'node:crypto'
import { readFileSync, statSync, unwatchFile, watchFile, type Stats } from 'node:fs'
import { mkdir, open, readFile, rename, rm, stat } from 'node:fs/promises'
import { dirname } from 'node:path'
import { setTimeout as wait } from 'node:timers/promises'
import { ConvokeError } from '../base/errors.ts'
import { fromText, toText, type PinRecord } from './pin-records.ts'

/** How long a writer waits for another one, in milliseconds. */
const lockTimeoutMs = 15_000
/** A lock that is older than this was left behind by a process that died, in milliseconds. */
const staleLockMs = 5_000
/** How often a change is begun anew because somebody does not keep to the lock. */
const maxAttempts = 20
const watchIntervalMs = 1_000

export type PinMap = Map<string, PinRecord>

export class PinFile {
  readonly path: string
  /** Of what was read or written last: tells whether the file is still that. */
  #stamp = 'unread'
  #watcher: (() => void) | undefined

  constructor(path: string) {
    this.path = path
  }

  /** What the file holds, undefined where there is none. Throws `config` for one that is broken or cannot be read. */
  read(): PinMap | undefined {
    const found = statSync(this.path, { throwIfNoEntry: false })
    this.#stamp = stampOf(found)
    if (found === undefined) return undefined
    let text: string
    try {
      text = readFileSync(this.path, 'utf8')
    } catch (cause) {
      throw unreadable(this.path, cause)
    }
    return parse(this.path, text)
  }

  /** Whether the file is another one than was last read or written. Costs one stat. */
  hasChanged(): boolean {
    return stampOf(statSync(this.path, { throwIfNoEntry: false })) !== this.#stamp
  }

  /**
   * Lets `change` change what the file holds (undefined: there is none), and writes what it returns unless that is
   * undefined. No other update goes on meanwhile, here or in another process. The new file is there in whole or not
   * at all. `change` may run more than once. Rejects with `config` for a broken file, which stays, with `unavailable`
   * when another writer does not end, and with the system's error.
   */
  async update(change: (held: PinMap | undefined) => PinMap | undefined): Promise<void> {
    await mkdir(dirname(this.path), { recursive: true, mode: 0o700 })
    for (let attempt = 1; attempt <= maxAttempts; attempt++) {
      const lock = await Lock.take(`${this.path}.lock`)
      try {
        if (await this.#tryUpdate(change, lock)) return
      } finally {
        await lock.release()
      }
    }
    throw new ConvokeError('unavailable', `${this.path} changes all the time; something writes it without its lock.`)
  }

  /** Calls the listener within a second or so after the file was changed. Keeps no process alive. */
  watch(listener: () => void): void {
    this.#watcher = listener
    watchFile(this.path, { interval: watchIntervalMs, persistent: false }, listener)
  }

  close(): void {
    if (this.#watcher !== undefined) unwatchFile(this.path, this.#watcher)
    this.#watcher = undefined
  }

  async #tryUpdate(change: (held: PinMap | undefined) => PinMap | undefined, lock: Lock): Promise<boolean> {
    const before = await statOf(this.path)
    let held: PinMap | undefined
    if (before !== undefined) {
      const text = await readFile(this.path, 'utf8').catch((cause: unknown) => {
        throw unreadable(this.path, cause)
      })
      held = parse(this.path, text)
    }
    const next = change(held)
    if (next === undefined) return true
    const fresh = `${this.path}.${process.pid}.${randomBytes(4).toString('hex')}`
    try {
      const handle = await open(fresh, 'wx', 0o600)
      try {
        await handle.writeFile(toText(next))
        await handle.sync()
      } finally {
        await handle.close()
      }
      // Who edits by hand keeps to no lock, and a process that slept for long may have lost it.
      if (stampOf(await statOf(this.path)) !== stampOf(before) || !(await lock.isHeld())) return false
      const stamp = stampOf(await statOf(fresh))
      await rename(fresh, this.path)
      this.#stamp = stamp
      return true
    } finally {
      await rm(fresh, { force: true })
    }
  }
}

/** A file that only one process can make: whoever has made it may write. */
class Lock {
  readonly #path: string
  readonly #stamp: string

  private constructor(path: string, stamp: string) {
    this.#path = path
    this.#stamp = stamp
  }

  static async take(path: string): Promise<Lock> {
    const deadline = Date.now() + lockTimeoutMs
    for (;;) {
      try {
        const handle = await open(path, 'wx', 0o600)
        const stamp = stampOf(await handle.stat())
        await handle.close()
        return new Lock(path, stamp)
      } catch (error) {
        if ((error as NodeJS.ErrnoException).code !== 'EEXIST') throw error
      }
      await breakStaleLock(path)
      if (Date.now() > deadline) {
        const text = `Another process has been writing for ${lockTimeoutMs / 1000} seconds. If there is none, delete ${path}.`
        throw new ConvokeError('unavailable', text)
      }
      await wait(5 + Math.random() * 20)
    }
  }

  async isHeld(): Promise<boolean> {
    return stampOf(await statOf(this.#path)) === this.#stamp
  }

  async release(): Promise<void> {
    if (await this.isHeld()) await rm(this.#path, { force: true })
  }
}

/**
 * Two that break the same lock at once could take away each other's new one. Who does not hold it any more finds that
 * out before the file is replaced, and begins anew.
 */
async function breakStaleLock(path: string): Promise<void> {
  const found = await statOf(path)
  if (found === undefined || Date.now() - found.mtimeMs < staleLockMs) return
  await rm(path, { force: true })
}

async function statOf(path: string): Promise<Stats | undefined> {
  try {
    return await stat(path)
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return undefined
    throw error
  }
}

/** Each replacement is another file, which has another number, time or size. */
function stampOf(found: Stats | undefined): string {
  return found === undefined ? 'none' : `${found.ino} ${found.mtimeMs} ${found.size}`
}

function parse(path: string, text: string): PinMap {
  try {
    return fromText(text)
  } catch (cause) {
    const why = (cause as Error).message
    const advice = 'Put back a copy of it; if you delete it, every tool is pinned anew as it is then.'
    throw new ConvokeError('config', `${path} is no file of pins: ${why}. ${advice}`, { cause })
  }
}

function unreadable(path: string, cause: unknown): ConvokeError {
  const code = (cause as NodeJS.ErrnoException).code ?? 'for an unknown reason'
  return new ConvokeError('config', `The pins in ${path} cannot be read (${code}).`, { cause })
}
