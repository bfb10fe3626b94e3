#!/usr/bin/env node
/**
 * The command `convoke`. Exit codes: 0 done, 1 could not do it, 2 called or configured wrongly, 130 interrupted;
 * commands that talk to an agent also know 3, 4 and 5 (`a2a/failure.ts`).
 */
import { CommanderError } from 'commander'
import { ConvokeError } from '../base/errors.ts'
import { CommandFailure, ExitRequest, toSentence } from './failure.ts'
import { createProgram } from './program.ts'

// Who reads no further (`| head`) has what they wanted; a command with work under way hears of it, and ends that first.
process.stdout.on('error', (error: NodeJS.ErrnoException) => {
  if (isTerminalGone(error)) return
  if (error.code !== 'EPIPE') throw error
  if (!process.emit('SIGPIPE')) process.exit(0)
})

process.stderr.on('error', (error: NodeJS.ErrnoException) => {
  if (!isTerminalGone(error)) throw error
})

/** SIGHUP says so, too: what runs is ended in order, although nobody sees what is told of it. */
function isTerminalGone({ code }: NodeJS.ErrnoException): boolean {
  return code === 'EIO'
}

try {
  await createProgram().parseAsync()
} catch (error) {
  const exitCode = report(error)
  // What was written to a pipe may be on its way still.
  await new Promise<void>((resolve) => process.stdout.write('', () => resolve()))
  // A node that failed to start may have left something open; waiting for it would look like a start.
  process.exit(exitCode)
}

/** Says what went wrong in one line (a configuration: one line a mistake) and answers the exit code. */
function report(error: unknown): number {
  if (error instanceof ExitRequest) return error.exitCode
  // Commander has written its message already; its help and version come as errors too, with code 0.
  if (error instanceof CommanderError) return error.exitCode === 0 ? 0 : 2
  // Mistakes in a file begin with its name and line, where editors and terminals look for it.
  const isAboutFile = error instanceof CommandFailure && error.cause instanceof ConvokeError && error.cause.issues
  process.stderr.write(`${isAboutFile ? '' : 'convoke: '}${toSentence(error)}\n`)
  if (error instanceof CommandFailure && error.debug) console.error(error.cause)
  return error instanceof CommandFailure ? error.exitCode : 1
}
