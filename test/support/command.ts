/** The command `convoke` in a process of its own, as a shell would run it. */
import { spawn } from 'node:child_process'
import { text } from 'node:stream/consumers'
import { fileURLToPath } from 'node:url'

export const main = fileURLToPath(new URL('../../dist/cli/main.js', import.meta.url))

export interface Run {
  readonly code: number | null
  readonly stdout: string
  readonly stderr: string
}

export interface RunOptions {
  readonly cwd?: string
  /** In place of the test's own. Default: a home that is not there. */
  readonly env?: Record<string, string>
  /** `open`: never ends. Default: nothing. */
  readonly stdin?: string | { readonly open: true }
  /** Sends SIGINT once stdout holds this text. */
  readonly interruptAt?: string
  /** Stops reading stdout once it holds this text, as `head` does. */
  readonly leaveAt?: string
  /** Gives stdout as latin1, a character for each byte. Default: false, as UTF-8. */
  readonly asBytes?: boolean
}

/** Runs a command to its end. Settings of whoever runs the tests do not reach it. */
export async function convoke(args: readonly string[], options: RunOptions = {}): Promise<Run> {
  const child = spawn(process.execPath, [main, ...args], {
    cwd: options.cwd ?? import.meta.dirname,
    env: { PATH: process.env['PATH'], HOME: '/nonexistent', ...options.env },
  })
  if (typeof options.stdin !== 'object') child.stdin.end(options.stdin ?? '')
  if (options.asBytes === true) child.stdout.setEncoding('latin1')
  const { interruptAt } = options
  if (interruptAt !== undefined) {
    let seen = ''
    let isSent = false
    child.stdout.on('data', (chunk: Buffer) => {
      seen += chunk.toString()
      if (!isSent && seen.includes(interruptAt)) isSent = child.kill('SIGINT')
    })
  }
  const { leaveAt } = options
  if (leaveAt !== undefined) {
    child.stdout.on('data', (chunk: Buffer) => {
      if (chunk.toString().includes(leaveAt)) child.stdout.destroy()
    })
  }
  const ended = new Promise<number | null>((resolve) => child.once('close', resolve))
  const left = leaveAt === undefined ? text(child.stdout) : text(child.stdout).catch(() => '')
  const [stdout, stderr, code] = await Promise.all([left, text(child.stderr), ended])
  return { code, stdout, stderr }
}

/** The fields of a text output: each label with its values, blocks left out. */
export function fieldsOf(output: string): Record<string, string[]> {
  const fields: Record<string, string[]> = {}
  for (const [, label = '', value = ''] of output.matchAll(/^(\S[^:\n]*): (.*)$/gm)) (fields[label] ??= []).push(value)
  return fields
}

/** The lines of a JSONL output. */
export function linesOf<Line = Record<string, never>>(output: string): Line[] {
  return output
    .trimEnd()
    .split('\n')
    .map((line) => JSON.parse(line) as Line)
}
