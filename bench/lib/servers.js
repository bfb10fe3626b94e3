/** Servers as child processes, so that their CPU is theirs alone. Whoever opens the group closes it, and all in it end. */
import { fork } from 'node:child_process'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'

const startTimeoutMs = 30_000
const answerTimeoutMs = 60_000

const folders = new Set()
process.on('exit', () => {
  for (const folder of folders) rmSync(folder, { recursive: true, force: true })
})
// Children end when their channel closes, however we end.
for (const signal of ['SIGINT', 'SIGTERM']) process.once(signal, () => process.exit(1))

export class Servers {
  #children = []

  /**
   * Starts `servers/NAME.js` and resolves once it listens. `flags` are Node's own.
   * Returns `{port, ask(what, argument), cpu(), stop()}`.
   */
  async start(name, options = {}, flags = []) {
    const file = fileURLToPath(new URL(`../servers/${name}.js`, import.meta.url))
    const child = fork(file, [JSON.stringify(options)], { execArgv: flags })
    const server = new Server(name, child)
    this.#children.push(server)
    await server.started
    return server
  }

  /** A folder of its own that is gone with the group. */
  folder() {
    const folder = mkdtempSync(join(tmpdir(), 'convoke-bench-'))
    folders.add(folder)
    return folder
  }

  /** The URL of a SQLite store in a folder of its own. */
  sqlite() {
    return `sqlite:${join(this.folder(), 'bench.db')}`
  }

  async close() {
    await Promise.all(this.#children.map((server) => server.stop()))
  }
}

class Server {
  port = 0
  #name
  #child
  #waiting = new Map()
  #lastId = 0
  #exited

  constructor(name, child) {
    this.#name = name
    this.#child = child
    this.#exited = new Promise((resolve) => child.once('exit', resolve))
    this.started = new Promise((resolve, reject) => {
      const timer = setTimeout(() => reject(new Error(`${name} did not start.`)), startTimeoutMs)
      child.on('message', ({ port, id, answer, error }) => {
        if (port !== undefined) {
          clearTimeout(timer)
          this.port = port
          return resolve()
        }
        const waiting = this.#waiting.get(id)
        this.#waiting.delete(id)
        clearTimeout(waiting?.timer)
        if (error === undefined) waiting?.resolve(answer)
        else waiting?.reject(new Error(`${name}: ${error}`))
      })
      child.once('exit', (code, signal) => {
        clearTimeout(timer)
        const error = new Error(`${name} ended with ${signal ?? code}.`)
        reject(error)
        for (const waiting of this.#waiting.values()) {
          clearTimeout(waiting.timer)
          waiting.reject(error)
        }
        this.#waiting.clear()
      })
    })
  }

  ask(what, argument) {
    return new Promise((resolve, reject) => {
      const id = ++this.#lastId
      const timer = setTimeout(() => {
        this.#waiting.delete(id)
        reject(new Error(`${this.#name} did not answer "${what}".`))
      }, answerTimeoutMs)
      this.#waiting.set(id, { resolve, reject, timer })
      this.#child.send({ id, what, argument })
    })
  }

  /** CPU time of the process so far, user and system, in microseconds. */
  cpu() {
    return this.ask('cpu')
  }

  async stop() {
    if (this.#child.exitCode !== null || this.#child.signalCode !== null) return
    if (this.#child.connected) this.#child.disconnect()
    const timer = setTimeout(() => this.#child.kill('SIGKILL'), 5000)
    await this.#exited
    clearTimeout(timer)
  }
}
