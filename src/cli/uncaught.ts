/** Errors that nobody caught, in a process that has an agent. */
import { ConvokeError } from '../base/errors.ts'
import type { Logger } from '../base/logger.ts'

/**
 * Ends the process with exit code 1, and says why in the log, but for one error: what an action began and did not await is refused
 * its memory and its events once the run has ended. Nothing came of it, so the work of the others goes on.
 */
export function watchUncaught(log: Logger): void {
  process.on('uncaughtException', (error) => {
    if (error instanceof ConvokeError && error.code === 'run_ended') {
      log.error({ error }, 'An action went on after its run had ended; what it did then was refused.')
      return
    }
    log.error({ error }, 'An error that nobody caught ends the process.')
    process.exit(1)
  })
}
