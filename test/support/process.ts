/** `convoke serve` in a process of its own: what a crash and a signal do can only be seen there. */
import { fork, type ChildProcess } from 'node:child_process'
import { once } from 'node:events'
import { writeFile } from 'node:fs/promises'
import { createServer } from 'node:net'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { cleanup, until, within } from './lifetime.ts'

const main = fileURLToPath(new URL('../../dist/cli/main.js', import.meta.url))
const tools = fileURLToPath(new URL('./recovery-tools.js', import.meta.url))

export interface NodeProcess {
  readonly url: string
  readonly child: ChildProcess
  /** Lets tools go on that wait for `name`. */
  release(name: string): void
  /** Resolves when a tool has told these news. */
  heard(news: string): Promise<unknown>
  /** How often a tool has told these news. */
  count(news: string): number
  /** Resolves with the exit code, null after SIGKILL, once the process has ended. */
  ended(): Promise<number | null>
  /** Sends a signal, and waits for the end. */
  end(signal: NodeJS.Signals): Promise<number | null>
  /** What it has logged so far. */
  log(): string
}

export interface Serving {
  /** The module of the tools. Default: `recovery-tools.js`. */
  readonly module?: string
  /** The module of the message handler. */
  readonly handler?: string
  /** Default: `silent`. */
  readonly logLevel?: string
}

/** Serves the tools of `recovery-tools.js` from a store in `folder`; gone when the test is over. */
export async function serve(
  folder: string,
  server: Record<string, unknown> = {},
  { module = tools, handler, logLevel = 'silent' }: Serving = {},
): Promise<NodeProcess> {
  const agent = { id: 'alice', ...(handler === undefined ? {} : { module: handler }) }
  const options = { agent, server: { port: 0, ...server }, store: { url: 'sqlite:./node.db' }, tools: [{ module }] }
  return await serveConfig(folder, options, { logLevel })
}

/** Serves a node of any configuration, written into `folder`; gone when the test is over. */
export async function serveConfig(
  folder: string,
  options: Record<string, unknown>,
  { logLevel = 'silent', env = {} }: { readonly logLevel?: string; readonly env?: Record<string, string> } = {},
): Promise<NodeProcess> {
  const config = join(folder, 'convoke.json')
  await writeFile(config, JSON.stringify(options))
  const child = fork(main, ['serve', '--config', config, '-o', 'json', '--log-level', logLevel], {
    stdio: ['ignore', 'pipe', 'pipe', 'ipc'],
    env: { ...process.env, ...env },
  })
  const exited = once(child, 'exit').then(([code]) => code as number | null)
  cleanup(async () => {
    if (child.exitCode === null && child.signalCode === null) child.kill('SIGKILL')
    await exited
  })
  const news: string[] = []
  child.on('message', (text) => news.push(text as string))
  let stdout = ''
  let stderr = ''
  child.stdout?.setEncoding('utf8').on('data', (text: string) => (stdout += text))
  child.stderr?.setEncoding('utf8').on('data', (text: string) => (stderr += text))
  await until(
    () => {
      if (child.exitCode !== null) throw new Error(`The node did not start: ${stdout}${stderr}`)
      return stdout.includes('\n')
    },
    () => `the node to say where it is; it said ${stdout}${stderr}`,
  )
  const { url } = JSON.parse(stdout) as { url: string }
  const count = (text: string): number => news.filter((each) => each === text).length
  return {
    url,
    child,
    release: (name) => child.send(name),
    heard: (text) => until(() => count(text) > 0, `the tools to say "${text}"; they said ${news.join(', ')}`),
    count,
    ended: () => within(exited, 'the node to end'),
    end(signal) {
      child.kill(signal)
      return within(exited, `the node to end after ${signal}`)
    },
    log: () => stderr,
  }
}

/** A port of this machine that is free now, below those that the system gives out by itself. */
export async function freePort(): Promise<number> {
  for (;;) {
    const port = 20_000 + Math.floor(Math.random() * 12_000)
    const server = createServer()
    server.listen(port, '127.0.0.1')
    try {
      await once(server, 'listening')
    } catch {
      // Somebody has it.
      continue
    }
    server.close()
    await once(server, 'close')
    return port
  }
}
