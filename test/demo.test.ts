/** `npm run demo` shows what it says, ends by itself, and leaves nothing behind, however it ends. */
import { spawn } from 'node:child_process'
import { readdir, readFile } from 'node:fs/promises'
import { text } from 'node:stream/consumers'
import { fileURLToPath } from 'node:url'
import { expect, test } from 'vitest'
import { cleanup, temporaryFolder, until } from './support/lifetime.ts'

const root = fileURLToPath(new URL('..', import.meta.url))

interface Ended {
  readonly code: number | null
  readonly stdout: string
  readonly stderr: string
  /** The processes of its nodes. */
  readonly pids: readonly number[]
}

/** Runs the demo to its end; `meanwhile` is called once, with the pids of alice and bob, when it prints `at`. */
async function runDemo(
  at?: string,
  meanwhile: (demo: number, nodes: readonly number[]) => void = () => {},
): Promise<Ended> {
  const { scripts } = JSON.parse(await readFile(`${root}/package.json`, 'utf8')) as { scripts: { demo: string } }
  const [program = '', ...args] = scripts.demo.split(' ')
  expect(program).toBe('node')
  const folder = await temporaryFolder()
  const child = spawn(process.execPath, args, {
    cwd: root,
    env: { PATH: process.env['PATH'], HOME: folder, TMPDIR: folder },
    stdio: ['ignore', 'pipe', 'pipe'],
  })
  cleanup(() => child.kill('SIGTERM'))
  const ended = new Promise<number | null>((resolve) => child.once('close', resolve))
  let seen = ''
  let isDone = at === undefined
  const pidsOf = (output: string): number[] => [...output.matchAll(/\(process (\d+)\)/g)].map(([, pid]) => Number(pid))
  child.stdout.on('data', (chunk: Buffer) => {
    seen += chunk.toString()
    if (isDone || !seen.includes(at ?? '')) return
    isDone = true
    meanwhile(child.pid ?? 0, pidsOf(seen))
  })
  const [stdout, stderr, code] = await Promise.all([text(child.stdout), text(child.stderr), ended])
  expect(isDone).toBe(true)
  expect(await readdir(folder)).toEqual([])
  return { code, stdout, stderr, pids: pidsOf(stdout) }
}

function isAlive(pid: number): boolean {
  try {
    return process.kill(pid, 0)
  } catch {
    return false
  }
}

test('shows each step, and ends with 0 when all of it worked', async () => {
  const { code, stdout, stderr, pids } = await runDemo()
  expect(stderr).toBe('')
  expect(code).toBe(0)
  const lines = stdout.split('\n')
  expect(lines.filter((line) => /^\d\. /.test(line)).map((line) => line.slice(0, line.indexOf(':')))).toEqual([
    '1. Discover',
    '2. Call',
    '3. Stream',
    '4. Resume',
    '5. Cancel',
    '6. Call back',
  ])
  const stars = 'Sirius Canopus Arcturus Vega ✂ Capella Rigel Procyon Achernar ✂ Betelgeuse Hadar Altair Acrux'
  for (const line of [
    '6 words; most often: be (2), to (2)',
    'without a token: unauthenticated',
    stars,
    'cut twice; each star came once, and the tool ran once',
    'alice asks bob what Lisbon costs',
    'bob asks alice for the dollars of 240 euros',
    'Lisbon: 240 euros, which are 300 dollars',
  ]) {
    expect(lines).toContain(`   ${line}`)
  }
  const [, turns] = /stopped at (\d+) turns: TASK_STATE_CANCELED/.exec(stdout) ?? []
  expect(lines).toContain(`   half a second later: ${turns} turns`)
  expect(lines.at(-2)).toMatch(/^All of it worked, in \d+\.\d s\.$/)
  // Colours are for terminals.
  expect(stdout).not.toContain('\u001B')
  expect(pids.map(isAlive)).toEqual([false, false])
})

test('ends with 1 and a sentence when a node dies, and takes the other one along', async () => {
  const { code, stdout, stderr, pids } = await runDemo('3. Stream', (_demo, [, bob = 0]) =>
    process.kill(bob, 'SIGKILL'),
  )
  expect(code).toBe(1)
  expect(stderr).toMatch(/^\nThe demo failed at "Stream: .*": bob has ended \(SIGKILL\)\.\n$/)
  expect(stdout).not.toContain('4. ')
  expect(pids.map(isAlive)).toEqual([false, false])
})

test.each(['1. Discover', '5. Cancel'])('a Ctrl-C at "%s" ends all of its processes', async (at) => {
  const { code, stderr, pids } = await runDemo(at, (demo) => process.kill(demo, 'SIGINT'))
  expect(code).toBe(130)
  expect(stderr).toBe('')
  expect(pids).toHaveLength(2)
  await until(() => !pids.some(isAlive), 'both nodes to end')
})
