/** The command `convoke` at a terminal of its own, as somebody sits there. */
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { main } from './command.ts'
import { cleanup, until, within } from './lifetime.ts'

export interface Terminal {
  /** Hits the keys: `\r` is Enter, `\u0003` Ctrl-C, `\u0004` Ctrl-D. */
  type(keys: string): void
  /** All that was on the screen, with the codes that move the cursor. */
  shown(): string
  /** Resolves when the screen has shown this text, behind what was waited for before. */
  shows(text: string): Promise<unknown>
  /** Resolves with the exit code. */
  ended(): Promise<number | null>
}

/** Starts a command; gone when the test is over. The terminal is made by `script` of util-linux. */
export function atTerminal(args: readonly string[], { cwd = import.meta.dirname } = {}): Terminal {
  const words = [process.execPath, main, ...args].map((word) => `'${word.replaceAll("'", `'\\''`)}'`)
  const env = { PATH: process.env['PATH'], HOME: '/nonexistent', TERM: 'xterm', NO_COLOR: '1' }
  const child = spawn('script', ['-qfec', `exec ${words.join(' ')}`, '/dev/null'], { cwd, env })
  const exited = once(child, 'close').then(([code]) => code as number | null)
  // Its terminal goes with it, and the command with that.
  cleanup(() => child.kill('SIGKILL'))
  let shown = ''
  let seen = 0
  child.stdout.setEncoding('utf8').on('data', (text: string) => (shown += text))
  return {
    type: (keys) => void child.stdin.write(keys),
    shown: () => shown,
    shows: (text) =>
      until(
        () => {
          const at = shown.indexOf(text, seen)
          if (at >= 0) seen = at + text.length
          return at >= 0
        },
        () => `${JSON.stringify(text)} on the screen; there is ${JSON.stringify(shown)}`,
      ),
    ended: () => within(exited, 'the command to end'),
  }
}
