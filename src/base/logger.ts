/** What writes to a log, as those see it who do; `log.ts` makes one. */

/** Each line has a message, and details before it if there are any; a message alone, or an error alone, will do. */
export interface Logger {
  debug(details: object | string, message?: string): void
  info(details: object | string, message?: string): void
  warn(details: object | string, message?: string): void
  error(details: object | string, message?: string): void
}

/** Failures that stand in a log. */
const logged = new WeakSet<Error>()

/** Logs a failure as an error, unless somebody nearer to its cause has on its way up. */
export function logFailureOnce(log: Logger, error: Error, details: object, message: string): void {
  if (logged.has(error)) return
  logged.add(error)
  log.error({ error, ...details }, message)
}

/** What was told, by the log that heard it. */
const told = new WeakMap<Logger, Set<string>>()
/** How many lines are remembered for a log. */
const maxTold = 1_000

/** Warns of something that is found again and again, the first time alone. */
export function warnOnce(log: Logger, details: object, message: string): void {
  const lines = told.get(log) ?? new Set()
  told.set(log, lines)
  const line = JSON.stringify([message, details])
  if (lines.has(line) || lines.size >= maxTold) return
  lines.add(line)
  log.warn(details, message)
}

export const silentLog: Logger = { debug() {}, info() {}, warn() {}, error() {} }
