/** The programs in examples/ do what they say, with the node that `npm start` runs. */
import { execFile } from 'node:child_process'
import { readdir, readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { loadConfig } from 'convoke'
import { expect, test } from 'vitest'
import { startNode } from './support/lifetime.ts'

const root = fileURLToPath(new URL('..', import.meta.url))

/** Starts the node of convoke.yaml, runs a program with its URL, and gives what it prints. It must end by itself. */
async function run(program: string, ...args: string[]): Promise<{ url: string; lines: string[] }> {
  const { options } = await loadConfig(join(root, 'convoke.yaml'))
  const { url } = await startNode({ ...options, server: { port: 0 }, store: { url: ':memory:' }, logLevel: 'silent' })
  const { stdout, stderr } = await promisify(execFile)(
    process.execPath,
    [join(root, 'examples', program), url, ...args],
    {
      timeout: 15_000,
    },
  )
  expect(stderr).toBe('')
  return { url, lines: stdout.trimEnd().split('\n') }
}

test('discover.js says what the agent is, and which tools it has', async () => {
  const { lines } = await run('discover.js')
  expect(lines[0]).toBe('Alice speaks A2A 1.0 over JSONRPC and streams.')
  expect(lines).toContain('  count_to(n, delay_ms)')
  expect(lines).toContain('    Gives back the text it was sent.')
})

test('call.js prints the result of a call', async () => {
  expect(JSON.parse((await run('call.js')).lines.join('\n'))).toMatchObject({
    words: 6,
    frequent: [{ word: 'be' }, { word: 'to' }],
  })
  expect(JSON.parse((await run('call.js', 'echo', '{"text": "Hi."}')).lines.join('\n'))).toEqual({ text: 'Hi.' })
})

test('stream.js prints progress, chunks and the result', async () => {
  const { lines } = await run('stream.js', '3')
  expect(lines.filter((line) => !line.startsWith('progress'))).toEqual([
    'chunk { i: 1 }',
    'chunk { i: 2 }',
    'chunk { i: 3 }',
    'result { counted: 3 }',
  ])
  expect(lines).toContain('progress 3 of 3')
})

test('resume.js has every number once', async () => {
  const { lines } = await run('resume.js')
  expect(lines.map((line) => line.replace(/\d+\.$/, 'N.'))).toEqual([
    ...['1', '2', '3'],
    'The connection is gone behind event N.',
    ...['4', '5', '6'],
    'completed',
  ])
})

test('cancel.js stops its tools', async () => {
  const { lines } = await run('cancel.js')
  expect(lines).toEqual(['{ i: 1 }', '{ i: 2 }', '{ i: 3 }', 'TASK_STATE_CANCELED', 'timeout'])
})

test('delegate.js is a node that asks a peer', async () => {
  const { url, lines } = await run('delegate.js')
  expect(lines[0]).toContain(`has a tool "compare", which asks ${url}.`)
  expect(lines[1]).toBe('a')
})

test('client.js answers questions and tells failures apart', async () => {
  const { lines } = await run('client.js')
  expect(lines.filter((line) => line.startsWith('!'))).toHaveLength(2)
  expect(lines).toContain("{ booked: true, reference: 'CHE-2030-05-01-1930' }")
  expect(lines.map((line) => /^\w+ \w+(?=: peer)/.exec(line)?.[0]).filter((kind) => kind !== undefined)).toEqual([
    'tool invalid_params',
    'tool tool_failed',
    'protocol not_found',
  ])
})

test('a program that reaches nobody says so in a line', async () => {
  const programs = (await readdir(join(root, 'examples'))).filter((file) => file.endsWith('.js'))
  await Promise.all(
    programs.map(async (program) => {
      const ran = promisify(execFile)(process.execPath, [join(root, 'examples', program), 'http://127.0.0.1:1'])
      const { code, stderr } = (await ran.catch((error: unknown) => error)) as { code: number; stderr: string }
      expect({ program, code }).toEqual({ program, code: 1 })
      // delegate.js is a node, whose log comes before.
      const lines = stderr.split('\n').filter((line) => line !== '' && !line.startsWith('{"level":"warn"'))
      expect(lines).toEqual([expect.stringMatching(/^(peer: 127\.0\.0\.1:1 refused|.* peer could not be asked)/)])
    }),
  )
})

test('each program has its line in the README, is short, and has a test', async () => {
  const programs = (await readdir(join(root, 'examples'))).filter((file) => file.endsWith('.js'))
  const readme = await readFile(join(root, 'examples', 'README.md'), 'utf8')
  const tests = await readFile(import.meta.filename, 'utf8')
  expect(programs).toHaveLength(8)
  for (const program of programs) {
    expect(readme).toContain(`\`node examples/${program}\``)
    expect(tests).toContain(`run('${program}'`)
    const lines = (await readFile(join(root, 'examples', program), 'utf8')).trimEnd().split('\n')
    expect(lines.length, program).toBeLessThanOrEqual(52)
    expect(lines[0], program).toMatch(/^\/\/ /)
  }
})

test('tool-space.js has three sources in one space, and answers a round of calls', async () => {
  const { lines } = await run('tool-space.js')
  const text = lines.join('\n')
  expect(text).toContain("'': 1")
  expect(text).toContain('call_1 shout TO BE OR NOT TO BE!')
  expect(text).toMatch(/call_2 server__\S+word_count\S* .*"words":6/)
  expect(text).toMatch(/call_3 peer__word_count .*"words":6/)
  expect(text).toMatch(/call_9 shout .*text/)
  expect(lines.at(-1)).toContain('It takes too long.')
})
