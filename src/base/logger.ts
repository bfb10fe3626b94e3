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

export const silentLog: Logger = { debug() {}, info() {}, warn() {}, error() {} }
