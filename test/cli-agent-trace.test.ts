import { openEventLog } from 'convoke'
import type { EventLogEntry } from 'convoke'
import { appendFile, mkdir, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { describe, expect, test } from 'vitest'
import { AgentEvent, InputEvent } from '../dist/agent/events.js'
import { ConvokeError } from '../dist/base/errors.js'
import { convoke, type Run } from './support/command.ts'
import { temporaryFolder } from './support/lifetime.ts'

/** Two runs as an agent's runner tells of them: one goes well, one fails. */
function twoRuns(): EventLogEntry[] {
  const failure = new ConvokeError('action_failed', 'The action "ship" failed.')
  const tea = { runId: 'run-1', key: 'tea' }
  const cup = { runId: 'run-2', key: 'cup' }
  return [
    { ...tea, kind: 'run', phase: 'begun' },
    { ...tea, kind: 'event', event: new InputEvent({ stars: 5 }, 'e1'), cause: undefined },
    { ...cup, kind: 'run', phase: 'begun' },
    {
      ...tea,
      kind: 'event',
      event: new AgentEvent('output', { value: 'good' }, 'e2'),
      cause: { eventId: 'e1', action: 'rate' },
    },
    { ...tea, kind: 'action', action: 'rate', eventId: 'e1', durationMs: 2.5 },
    { ...cup, kind: 'event', event: new InputEvent('broken', 'e1'), cause: undefined },
    { ...tea, kind: 'run', phase: 'ended' },
    { ...cup, kind: 'action', action: 'ship', eventId: 'e1', durationMs: 40, error: failure },
    { ...cup, kind: 'run', phase: 'failed', error: failure },
  ]
}

async function logOf(entries: readonly EventLogEntry[]): Promise<string> {
  const file = join(await temporaryFolder(), 'events.jsonl')
  const log = await openEventLog({ file })
  for (const entry of entries) log.write(entry)
  await log.close()
  return file
}

describe('convoke agent trace', () => {
  test('prints a tree for each run', async () => {
    const file = await logOf(twoRuns())
    const { code, stdout, stderr } = await convoke(['agent', 'trace', file])
    expect({ code, stderr }).toEqual({ code: 0, stderr: '' })
    const time = String.raw`\d{4}-\d\d-\d\dT[\d:.]+Z`
    expect(stdout).toMatch(
      new RegExp(
        `^run run-1  key tea  ${time}  ended after \\d+ ms\n` +
          '└─ input {"value":{"stars":5}} → rate 2.5 ms\n' +
          '   └─ output {"value":"good"}\n' +
          '\n' +
          `run run-2  key cup  ${time}  failed after \\d+ ms\n` +
          '  action_failed: The action "ship" failed.\n' +
          '└─ input {"value":"broken"} → ship failed after 40 ms\n' +
          '     action_failed: The action "ship" failed.\n$',
      ),
    )
  })

  test('prints the runs that are asked for', async () => {
    const file = await logOf(twoRuns())
    const [byRun, byKey, both] = await Promise.all([
      convoke(['agent', 'trace', file, '--run', 'run-2']),
      convoke(['agent', 'trace', '--key', 'tea', file]),
      convoke(['agent', 'trace', file, '--run', 'run-2', '--key', 'tea']),
    ])
    expect(byRun.stdout.match(/^run \S+/gm)).toEqual(['run run-2'])
    expect(byKey.stdout.match(/^run \S+/gm)).toEqual(['run run-1'])
    expect(both).toEqual({
      code: 1,
      stdout: '',
      stderr: `convoke: ${file} has no run "run-2" of the key "tea". Its newest keys: "cup", "tea". Without --run and --key all runs are shown.\n`,
    })
  })

  test('finds a conversation of a node by its contextId', async () => {
    const of = (runId: string, key: string): EventLogEntry => ({ runId, key, kind: 'run', phase: 'begun' })
    const [mine, theirs] = [JSON.stringify(['bob', 'c-"1"']), JSON.stringify(['c-"1"', 'c-2'])]
    const file = await logOf([of('run-1', mine), of('run-2', theirs), of('run-3', mine)])
    const byKey = (key: string): Promise<Run> => convoke(['agent', 'trace', file, '--key', key])
    const [byContext, byWhole, byOwner] = await Promise.all([byKey('c-"1"'), byKey(theirs), byKey('bob')])
    expect(byContext.stdout.match(/^run \S+/gm)).toEqual(['run run-1', 'run run-3'])
    expect(byWhole.stdout.match(/^run \S+/gm)).toEqual(['run run-2'])
    expect(byOwner).toMatchObject({ code: 1, stdout: '' })
    expect(byOwner.stderr).toContain(`Its newest keys: ${JSON.stringify(mine)}, ${JSON.stringify(theirs)}.`)
  })

  test('prints JSON in a stable shape', async () => {
    const file = await logOf(twoRuns())
    const { code, stdout, stderr } = await convoke(['agent', 'trace', file, '-o', 'json'])
    expect({ code, stderr }).toEqual({ code: 0, stderr: '' })
    const at = expect.stringMatching(/Z$/)
    const error = { code: 'action_failed', message: 'The action "ship" failed.' }
    expect(JSON.parse(stdout)).toEqual({
      runs: [
        {
          run: 'run-1',
          key: 'tea',
          attempt: 1,
          state: 'ended',
          at,
          duration_ms: expect.any(Number),
          error: null,
          events: [
            {
              id: 'e1',
              type: 'input',
              at,
              payload: { value: { stars: 5 } },
              cause: null,
              actions: [{ action: 'rate', duration_ms: 2.5, error: null }],
            },
            {
              id: 'e2',
              type: 'output',
              at,
              payload: { value: 'good' },
              cause: { event: 'e1', action: 'rate' },
              actions: [],
            },
          ],
        },
        {
          run: 'run-2',
          key: 'cup',
          attempt: 1,
          state: 'failed',
          at,
          duration_ms: expect.any(Number),
          error,
          events: [
            {
              id: 'e1',
              type: 'input',
              at,
              payload: { value: 'broken' },
              cause: null,
              actions: [{ action: 'ship', duration_ms: 40, error }],
            },
          ],
        },
      ],
      broken: 0,
      dropped: 0,
    })
  })

  test('shows a loop of many rounds as text and as JSON', async () => {
    const loop = { runId: 'run-1', key: 'tea' }
    const rounds = 5_000
    const file = await logOf(
      Array.from({ length: rounds }, (_, i) => ({
        ...loop,
        kind: 'event',
        event: new AgentEvent('again', { i }, `e${i}`),
        cause: i === 0 ? undefined : { eventId: `e${i - 1}`, action: 'loop' },
      })),
    )
    const [text, json] = await Promise.all([
      convoke(['agent', 'trace', file]),
      convoke(['agent', 'trace', file, '-o', 'json']),
    ])
    expect(text.stdout.trimEnd().split('\n')).toHaveLength(rounds + 1)
    const { runs } = JSON.parse(json.stdout) as { runs: { events: { id: string }[] }[] }
    expect(runs[0]?.events.map(({ id }) => id)).toEqual(Array.from({ length: rounds }, (_, i) => `e${i}`))
  })

  test('skips broken lines and says so, and nothing of a last one that is half written', async () => {
    const file = await logOf(twoRuns())
    await appendFile(file, 'broken\n{"at":"2030-01-01T00:00:00.000Z","kind":"dropped","dropped":3}\n{"at":"20')
    const [text, json] = await Promise.all([
      convoke(['agent', 'trace', file]),
      convoke(['agent', 'trace', file, '--output', 'json']),
    ])
    expect(text.code).toBe(0)
    expect(text.stdout.match(/^run \S+/gm)).toEqual(['run run-1', 'run run-2'])
    expect(text.stderr).toBe(
      `warning: skipped 1 line of ${file}: broken, or not of an event log.\n` +
        'warning: without 3 entries that came faster than they could be written.\n',
    )
    expect(JSON.parse(json.stdout)).toMatchObject({ broken: 1, dropped: 3 })
    expect(json.stderr).toBe('')
  })

  test('says that a log has no runs yet', async () => {
    const file = await logOf([])
    expect(await convoke(['agent', 'trace', file])).toEqual({ code: 0, stdout: 'There are no runs.\n', stderr: '' })
    const { stdout } = await convoke(['agent', 'trace', file, '-o', 'json'])
    expect(JSON.parse(stdout)).toEqual({ runs: [], broken: 0, dropped: 0 })
  })

  test('refuses what is no event log', async () => {
    const folder = await temporaryFolder()
    const file = join(folder, 'agent.js')
    await writeFile(file, 'export const agent = 5\n\nconsole.log(agent)\n')
    await mkdir(join(folder, 'events'))
    const missing = join(folder, 'missing.jsonl')
    const [code, folderGiven, nothing] = await Promise.all([
      convoke(['agent', 'trace', file, '--run', 'x']),
      convoke(['agent', 'trace', join(folder, 'events')]),
      convoke(['agent', 'trace', missing]),
    ])
    expect(code).toEqual({
      code: 2,
      stdout: '',
      stderr: `convoke: ${file} is no event log: none of its 2 lines is one of a log.\n`,
    })
    expect(folderGiven).toMatchObject({
      code: 2,
      stderr: `convoke: Cannot read the event log ${join(folder, 'events')}: it is a folder.\n`,
    })
    expect(nothing).toMatchObject({
      code: 2,
      stderr: `convoke: Cannot read the event log ${missing}: there is no such file.\n`,
    })
  })

  test('tells wrong usage with exit code 2, and where the help is', async () => {
    const [noFile, badOutput] = await Promise.all([
      convoke(['agent', 'trace']),
      convoke(['agent', 'trace', 'x.jsonl', '-o', 'xml']),
    ])
    expect([noFile.code, badOutput.code]).toEqual([2, 2])
    expect(noFile.stderr).toContain("missing required argument 'file'")
    expect(noFile.stderr).toContain('convoke agent trace --help')
    const help = await convoke(['agent', 'trace', '--help'])
    expect(help.code).toBe(0)
    expect(help.stdout).toMatch(/Examples:\n {2}convoke agent trace events\.jsonl --key/)
  })

  test('ends quietly when nobody reads on', async () => {
    const run = { runId: 'run-1', key: 'tea' }
    const file = await logOf(
      Array.from({ length: 20_000 }, (_, i) => ({
        ...run,
        kind: 'event',
        event: new AgentEvent('tick', { i }, `e${i}`),
        cause: undefined,
      })),
    )
    const { code, stderr } = await convoke(['agent', 'trace', file], { leaveAt: 'run-1' })
    expect({ code, stderr }).toEqual({ code: 0, stderr: '' })
  })
})
