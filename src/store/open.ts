/** Opens a store by its URL; each adapter is loaded only when it is used. */
import { ConvokeError } from '../base/errors.ts'
import type { Store } from './store.ts'

export interface StoreOptions {
  /** `:memory:`, or `sqlite:PATH` (a path relative to the working directory, or absolute). */
  readonly url: string
  /**
   * Most bytes that finished tasks may take in memory (`:memory:`), and as many again what agents keep; or the database file on
   * disk. Default: 64 MiB in memory, no limit on disk.
   */
  readonly maxBytes?: number
}

/** Throws `config` for a URL that names no adapter, `unavailable` when the store cannot be opened. */
export async function openStore(options: StoreOptions): Promise<Store> {
  const { url } = options
  if (url === ':memory:' || url === 'sqlite::memory:') {
    const { openMemoryStore } = await import('./memory.ts')
    return openMemoryStore(options)
  }
  if (url.startsWith('sqlite:') && url.length > 'sqlite:'.length) {
    const { openSqliteStore } = await import('./sqlite.ts')
    try {
      return openSqliteStore({ ...options, path: url.slice('sqlite:'.length) })
    } catch (cause) {
      if ((cause as NodeJS.ErrnoException).code !== 'ERR_DLOPEN_FAILED') throw cause
      const text = `The SQLite driver was built for another Node than ${process.version}. Run "npm rebuild better-sqlite3" with this one.`
      throw new ConvokeError('config', text, { cause })
    }
  }
  throw new ConvokeError(
    'config',
    `store.url must be ":memory:" or "sqlite:PATH", got "${url.replace(/\/\/[^@/]*@/, '//…@')}".`,
  )
}
