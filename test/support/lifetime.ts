/** Whatever a test starts is stopped behind it, newest first; a test that leaves something running fails. */
import { createNode, type Node, type NodeOptions } from 'convoke'
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as wait } from 'node:timers/promises'
import { afterEach, expect, vi } from 'vitest'

// Tests wait for events, not for a time; the machine may be busy with the tests of other files.
vi.setConfig({ testTimeout: 30_000 })

const closers: (() => unknown)[] = []
/** What keeps a process alive and belongs to nobody when a test is over: listening servers and child processes. */
const leftovers = (): string[] =>
  process.getActiveResourcesInfo().filter((kind) => kind === 'TCPServerWrap' || kind === 'ProcessWrap')

afterEach(async () => {
  const failures: unknown[] = []
  for (const close of closers.splice(0).toReversed()) {
    try {
      await close()
    } catch (error) {
      failures.push(error)
    }
  }
  if (failures.length > 0) throw new AggregateError(failures, 'Something could not be stopped.')
  await until(
    () => leftovers().length === 0,
    () => `everything to be stopped; there is still ${leftovers().join(', ')}`,
  )
})

/** Runs `close` when the test is over. */
export function cleanup(close: () => unknown): void {
  closers.push(close)
}

/** Starts a node, and stops it when the test is over: nothing of it may be running then. */
export async function startNode(options: Partial<NodeOptions> = {}): Promise<Node> {
  const { server, ...rest } = options
  const node = await createNode({
    agent: { id: 'alice', name: 'Alice' },
    logLevel: 'silent',
    ...rest,
    // Tests that leave a task running are about what happens to it, not about how long a node waits for it.
    server: { drainMs: 0, cancelGraceMs: 500, ...server },
  })
  await node.start()
  cleanup(async () => {
    await node.stop()
    expect(node.stats.running, 'tasks that run on after the node was stopped').toBe(0)
  })
  return node
}

/** A folder that is gone when the test is over. */
export async function temporaryFolder(): Promise<string> {
  const folder = await mkdtemp(join(tmpdir(), 'convoke-test-'))
  cleanup(() => rm(folder, { recursive: true, force: true, maxRetries: 3 }))
  return folder
}

export interface Deferred<Value = void> {
  readonly promise: Promise<Value>
  readonly resolve: (value: Value) => void
}

/** A promise and how to resolve it: what tools and tests wait for each other with. */
export function deferred<Value = void>(): Deferred<Value> {
  let resolve: (value: Value) => void = () => {}
  const promise = new Promise<Value>((each) => (resolve = each))
  return { promise, resolve }
}

// Only what will never come waits as long as this: a busy machine must not make a test fail that is right.
// Less than a test may take, so that the failure says what was waited for.
const patienceMs = 15_000
const waited = `Waited ${patienceMs / 1_000} seconds for`

/** Resolves with what `condition` gives as soon as that is truthy. For what sends no event; fails after 15 seconds. */
export async function until<Value>(
  condition: () => Value | Promise<Value>,
  what: string | (() => string) = 'the condition',
): Promise<Exclude<Value, undefined | null | false>> {
  const deadline = Date.now() + patienceMs
  for (;;) {
    const value = await condition()
    if (value) return value as Exclude<Value, undefined | null | false>
    if (Date.now() > deadline) throw new Error(`${waited} ${typeof what === 'string' ? what : what()}.`)
    await wait(5)
  }
}

/** The promise's value; fails, naming what was waited for, when it does not come within 15 seconds. */
export async function within<Value>(promise: Promise<Value>, what: string): Promise<Value> {
  const controller = new AbortController()
  try {
    return await Promise.race([
      promise,
      wait(patienceMs, undefined, { signal: controller.signal }).then(() => {
        throw new Error(`${waited} ${what}.`)
      }),
    ])
  } finally {
    controller.abort()
  }
}
