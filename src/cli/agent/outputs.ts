/**
 * Outputs on their way from the store, where a run's commit has put them, to a file or to stdout. The store keeps all of them in
 * their order, so a file that was cut off anywhere is compared with them and goes on where it ends: none is lost, none
 * comes twice.
 */
import { open, type FileHandle } from 'node:fs/promises'
import type { AgentStore, OutputRow } from '../../store/agent-store.ts'
import { CommandFailure } from '../failure.ts'

/** How many outputs are read at once. */
const batchSize = 200

/** Outputs that are committed and not written, at which runs wait. */
const maxOwed = 1_000

export interface OutputsOptions {
  readonly store: AgentStore
  readonly scope: string
  /** A path, or a stream, which begins with the first output of all. */
  readonly to: string | OutputStream
  /** A start before may have written to it. */
  readonly isResumed: boolean
}

/** Where lines go. */
export interface OutputStream {
  write(lines: Buffer): Promise<void>
  /** Everything is where it belongs then. */
  close(): Promise<void>
}

export class Outputs {
  readonly #options: OutputsOptions
  readonly #stream: OutputStream
  /** Of the last one that was written. */
  #place: number
  #isWanted = false
  #draining: Promise<void> | undefined
  #owed = 0

  private constructor(options: OutputsOptions, stream: OutputStream, place: number) {
    this.#options = options
    this.#stream = stream
    this.#place = place
  }

  /** Throws a CommandFailure with exit code 2 for a file that holds anything but the outputs so far. */
  static async open(options: OutputsOptions): Promise<Outputs> {
    const { to } = options
    if (typeof to !== 'string') return new Outputs(options, to, 0)
    const handle = await openFile(to)
    try {
      const { place, bytes } = await findEnd(options, to, handle)
      return new Outputs(options, toStream(handle, bytes), place)
    } catch (error) {
      await handle.close()
      throw error
    }
  }

  /** Hears that there are more. Resolves when there is room for others. Rejects when they cannot be written. */
  async committed(count: number): Promise<void> {
    this.#owed += count
    const written = this.drain()
    if (this.#owed > maxOwed) return await written
    // Whoever drains last is told.
    written.catch(() => {})
  }

  /** Writes what is committed and not written. Rejects when it cannot be written. */
  drain(): Promise<void> {
    this.#isWanted = true
    this.#draining ??= this.#drain().finally(() => (this.#draining = undefined))
    return this.#draining
  }

  async close(): Promise<void> {
    await this.#draining?.catch(() => {})
    await this.#stream.close()
  }

  async #drain(): Promise<void> {
    while (this.#isWanted) {
      this.#isWanted = false
      for (;;) {
        const rows = await nextRows(this.#options, this.#place)
        const last = rows.at(-1)
        if (last === undefined) break
        await this.#stream.write(toLines(rows))
        this.#place = last.place
        // Those of a start before were not counted.
        this.#owed = Math.max(0, this.#owed - rows.length)
      }
    }
    // Some were written before they were told of.
    this.#owed = 0
  }
}

function nextRows({ store, scope }: OutputsOptions, after: number): Promise<OutputRow[]> {
  return store.outputs(scope, { after, limit: batchSize })
}

function toLine({ key, output }: OutputRow): string {
  return `{"key":${JSON.stringify(key)},"value":${output}}\n`
}

function toLines(rows: readonly OutputRow[]): Buffer {
  return Buffer.from(rows.map(toLine).join(''))
}

async function openFile(file: string): Promise<FileHandle> {
  let handle: FileHandle
  try {
    // Not `w`: what is there may be ours.
    handle = await open(file, 'r+').catch((error: unknown) => {
      if ((error as NodeJS.ErrnoException).code === 'ENOENT') return open(file, 'wx+')
      throw error
    })
  } catch (error) {
    const { message } = error as Error
    throw new CommandFailure(2, `The output file ${file} cannot be opened: ${message}.`)
  }
  if ((await handle.stat()).isFile()) return handle
  await handle.close()
  throw new CommandFailure(2, `${file} is no file. Without --out, outputs go to stdout.`)
}

/** Where the next output goes: behind the last whole one, a torn one being cut off. */
async function findEnd(
  options: OutputsOptions,
  file: string,
  handle: FileHandle,
): Promise<{ place: number; bytes: number }> {
  const { size } = await handle.stat()
  let place = 0
  let bytes = 0
  while (bytes < size) {
    const rows = await nextRows(options, place)
    const [last] = rows.slice(-1)
    if (last === undefined) throw otherContent(options, file, place)
    const lines = toLines(rows)
    if (lines.length <= size - bytes && lines.equals(await readAt(handle, bytes, lines.length))) {
      bytes += lines.length
      ;({ place } = last)
      continue
    }
    for (const row of rows) {
      const line = Buffer.from(toLine(row))
      const there = await readAt(handle, bytes, Math.min(line.length, size - bytes))
      if (!line.subarray(0, there.length).equals(there)) throw otherContent(options, file, place)
      if (there.length < line.length) {
        await handle.truncate(bytes)
        return { place, bytes }
      }
      bytes += line.length
      ;({ place } = row)
      if (bytes === size) break
    }
  }
  return { place, bytes }
}

async function readAt(handle: FileHandle, position: number, length: number): Promise<Buffer> {
  const buffer = Buffer.alloc(length)
  let read = 0
  while (read < length) {
    const { bytesRead } = await handle.read(buffer, read, length - read, position + read)
    if (bytesRead === 0) break
    read += bytesRead
  }
  return buffer.subarray(0, read)
}

function otherContent({ isResumed }: OutputsOptions, file: string, place: number): CommandFailure {
  if (!isResumed)
    return new CommandFailure(
      2,
      `The output file ${file} is there already, and this run begins anew: nothing is kept of one before, as of a run that is done. Move the file away, or name another one; to add lines to a run that is done, keep its state: --state FILE`,
    )
  const what = place === 0 ? 'is there already, and holds something else' : 'was changed since'
  return new CommandFailure(
    2,
    `The output file ${file} ${what} than the outputs of this run. Move it away, or name another one.`,
  )
}

function toStream(handle: FileHandle, start: number): OutputStream {
  let position = start
  return {
    async write(lines) {
      for (let written = 0; written < lines.length;) {
        const { bytesWritten } = await handle.write(lines, written, lines.length - written, position)
        written += bytesWritten
        position += bytesWritten
      }
    },
    async close() {
      try {
        await handle.sync()
      } finally {
        await handle.close()
      }
    },
  }
}

/**
 * stdout for outputs alone: what else is written to it from now on, as by an agent's module, goes to stderr. That nobody reads any
 * more is heard by whoever listens for SIGPIPE.
 */
export function takeStdout(): OutputStream {
  const write = process.stdout.write.bind(process.stdout)
  process.stdout.write = process.stderr.write.bind(process.stderr)
  return {
    write: (lines) => new Promise((resolve) => void write(lines, () => resolve())),
    close: () => Promise.resolve(),
  }
}
