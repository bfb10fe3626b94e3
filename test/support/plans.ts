/** Plans across a process boundary, and what resources are made with. */
import type { AgentPlan, ResourceContext } from 'convoke'
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { text } from 'node:stream/consumers'
import { fileURLToPath } from 'node:url'

/** What test/support/plan-process.js prints. */
export interface Elsewhere {
  /** The plan, as the other process has it. */
  readonly again: unknown
  readonly outputs: readonly unknown[]
  /** What the plan puts out in an environment. */
  readonly applied: readonly unknown[]
  /** The results of all tools, by name. */
  readonly called: Readonly<Record<string, unknown>>
  /** What each vector store found. */
  readonly found: Readonly<Record<string, unknown>>
}

/** Runs a plan in a process of its own, which gets it over stdin. */
export async function runElsewhere(plan: AgentPlan, input: unknown): Promise<Elsewhere> {
  const child = spawn(process.execPath, [fileURLToPath(new URL('./plan-process.js', import.meta.url))], {
    stdio: ['pipe', 'pipe', 'pipe'],
  })
  child.stdin.end(JSON.stringify({ plan, input }))
  const [stdout, stderr] = await Promise.all([text(child.stdout), text(child.stderr), once(child, 'close')])
  if (child.exitCode !== 0) throw new Error(`The other process failed: ${stderr}`)
  return JSON.parse(stdout) as Elsewhere
}

/** For resources that need no others. */
export function resourceContext(
  baseDir = process.cwd(),
  onError: (details: object) => void = () => {},
): ResourceContext {
  const log = { debug() {}, info() {}, warn() {}, error: (details: object | string) => onError(details as object) }
  return { log, baseDir, getResource: (name) => Promise.reject(new Error(`There is no resource ${name}.`)) }
}
