/** The contract of a source of tools as a suite. Every source runs it through {@link testToolSource}. */
import type { Tool, ToolSource } from 'convoke'
import { describe, expect, test } from 'vitest'
import { ConvokeError } from '../../dist/base/errors.js'

/** A tool that a service shows: another description is another tool. */
export interface Shown {
  readonly name: string
  readonly description?: string
}

/** A source with one service, of which nothing is known yet. */
export interface Stage {
  readonly source: ToolSource
  readonly service: string
  /** What the service has from now on. */
  show(tools: readonly Shown[]): void
}

/** A source whose service has to be asked. */
export interface RemoteStage extends Stage {
  /** Whether the service fails when it is asked from now on. */
  fail(isFailing: boolean): void
  /** How often the service was asked for its tools. */
  asked(): number
}

/** Sources of tools that are at hand: what {@link testToolSource} asks of all of them. */
export function testLocalToolSource(name: string, open: () => Promise<Stage>): void {
  // oxlint-disable-next-line vitest/valid-title -- the caller names the source
  describe(name, () => {
    testAny(open)
  })
}

/** Opens a new stage for each test; whoever opens it closes it. */
export function testToolSource(name: string, open: () => Promise<RemoteStage>): void {
  // oxlint-disable-next-line vitest/valid-title -- the caller names the source
  describe(name, () => {
    testAny(open)
    testAsking(open)
  })
}

const lookup = async ({ source, service }: Stage, name: string): Promise<Tool> => await source.resolve(service, name)

async function failureOf(work: () => unknown): Promise<ConvokeError> {
  try {
    await work()
  } catch (error) {
    if (error instanceof ConvokeError) return error
    throw error
  }
  return expect.fail('It did not fail.')
}

const handleOf = ({ service }: Stage, name: string): string => (service === '' ? name : `${service}.${name}`)
const namesIn = ({ source }: Stage): string[] => source.list().map((tool) => tool.name)

function testAny(open: () => Promise<Stage>): void {
  test('it knows its services, and no others', async () => {
    const stage = await open()
    const { source, service } = stage
    expect(source.services()).toEqual([service])
    expect(source.has(service)).toBe(true)
    expect(source.has('nobody')).toBe(false)
    expect(await failureOf(() => source.resolve('nobody', 'a'))).toMatchObject({ code: 'not_found' })
    expect(await failureOf(() => source.discover('nobody'))).toMatchObject({ code: 'not_found' })
    expect(source.status('nobody')).toEqual(expect.objectContaining({ state: 'never', tools: 0 }))
    source.invalidate('nobody')
  })

  test('a tool is found by its name, and listed by its handle', async () => {
    const stage = await open()
    stage.show([{ name: 'a' }, { name: 'b' }])
    const tool = await lookup(stage, 'a')
    expect(tool).toMatchObject({ name: handleOf(stage, 'a'), kind: stage.source.kind, input: { type: 'object' } })
    expect(namesIn(stage)).toEqual([handleOf(stage, 'a'), handleOf(stage, 'b')])
    expect(stage.source.list()[0]).toBe(tool)
    expect(await lookup(stage, 'a')).toBe(tool)
    expect(stage.source.status(stage.service)).toMatchObject({ state: 'ok', tools: 2 })
    expect(await failureOf(() => lookup(stage, 'c'))).toMatchObject({ code: 'not_found' })
  })

  test('a change raises the revision and tells the listeners; those that were taken back hear nothing', async () => {
    const stage = await open()
    const { source, service } = stage
    stage.show([{ name: 'a' }])
    await source.discover(service)
    const before = source.revision
    let heard = 0
    let late = 0
    const stop = source.onChange(() => {
      heard++
      // It has taken effect.
      expect(source.revision).toBeGreaterThan(before)
    })
    source.onChange(() => late++)()
    stage.show([{ name: 'a' }, { name: 'b' }])
    await source.discover(service)
    expect(namesIn(stage)).toContain(handleOf(stage, 'b'))
    expect(heard).toBeGreaterThan(0)
    expect(late).toBe(0)
    stop()
    const once = heard
    stage.show([])
    await source.discover(service)
    expect(heard).toBe(once)
  })

  test('a tool that is gone disappears, one that changed is another, and the rest stay the same objects', async () => {
    const stage = await open()
    const { source, service } = stage
    stage.show([{ name: 'a' }, { name: 'b' }, { name: 'c' }])
    const [a, b] = [await lookup(stage, 'a'), await lookup(stage, 'b')]
    stage.show([{ name: 'a' }, { name: 'b', description: 'Is another one.' }])
    await source.discover(service)
    expect(await lookup(stage, 'a')).toBe(a)
    const other = await lookup(stage, 'b')
    expect(other).not.toBe(b)
    expect(other.description).toContain('Is another one.')
    expect(await failureOf(() => lookup(stage, 'c'))).toMatchObject({ code: 'not_found' })
    expect(namesIn(stage)).toHaveLength(2)
  })

  test('a signal that has aborted already stops a discovery', async () => {
    const stage = await open()
    const reason = new ConvokeError('canceled', 'Never mind.')
    const options = { signal: AbortSignal.abort(reason) }
    expect(await failureOf(() => stage.source.discover(stage.service, options))).toBe(reason)
  })

  test('after it was closed it lists nothing, and lookups fail', async () => {
    const stage = await open()
    const { source, service } = stage
    stage.show([{ name: 'a' }])
    await lookup(stage, 'a')
    await source.close()
    expect(source.list()).toEqual([])
    expect((await failureOf(() => lookup(stage, 'a'))).code).toMatch(/^(not_found|unavailable)$/)
    expect((await failureOf(() => source.discover(service))).code).toMatch(/^(not_found|unavailable)$/)
    await source.close()
  })
}

function testAsking(open: () => Promise<RemoteStage>): void {
  test('nobody is asked before a tool is looked up, and a list asks nobody', async () => {
    const stage = await open()
    stage.show([{ name: 'a' }])
    const { source, service } = stage
    expect(source.list()).toEqual([])
    expect(source.status(service)).toMatchObject({ state: 'never', tools: 0 })
    expect(stage.asked()).toBe(0)
    await lookup(stage, 'a')
    expect(stage.asked()).toBe(1)
    for (let i = 0; i < 50; i++) source.list()
    expect(stage.asked()).toBe(1)
  })

  test('fifty lookups at once ask once, and later ones, of unknown tools too, ask nobody', async () => {
    const stage = await open()
    stage.show([{ name: 'a' }])
    const tools = await Promise.all(Array.from({ length: 50 }, () => lookup(stage, 'a')))
    expect(new Set(tools).size).toBe(1)
    for (let i = 0; i < 50; i++) await failureOf(() => lookup(stage, 'none'))
    expect(stage.asked()).toBe(1)
  })

  test('a failure is silent, has its cause, and is not repeated until somebody says so', async () => {
    const stage = await open()
    const { source, service } = stage
    stage.show([{ name: 'a' }])
    stage.fail(true)
    const failures = await Promise.all(Array.from({ length: 50 }, () => failureOf(() => lookup(stage, 'a'))))
    for (let i = 0; i < 50; i++) failures.push(await failureOf(() => lookup(stage, 'a')))
    for (const failure of failures) {
      expect(failure.code).toBe('not_found')
      expect(failure.cause).toBeInstanceOf(ConvokeError)
    }
    expect(stage.asked()).toBe(1)
    const { state, lastError, lastDiscovery } = source.status(service)
    expect(state).toBe('failed')
    expect(lastError).toBe(failures[0]?.cause)
    expect(lastDiscovery).toBeLessThanOrEqual(Date.now())

    source.invalidate(service)
    for (let i = 0; i < 50; i++) await failureOf(() => lookup(stage, 'a'))
    expect(stage.asked()).toBe(2)

    stage.fail(false)
    source.invalidate(service)
    await Promise.all(Array.from({ length: 50 }, () => lookup(stage, 'a')))
    expect(stage.asked()).toBe(3)
    expect(source.status(service)).toMatchObject({ state: 'ok', tools: 1 })
    expect(source.status(service).lastError).toBeUndefined()
  })

  test('what is known no longer counts after an invalidation', async () => {
    const stage = await open()
    const { source, service } = stage
    stage.show([{ name: 'a' }])
    await lookup(stage, 'a')
    const { revision } = source
    source.invalidate(service)
    expect(source.list()).toEqual([])
    expect(source.revision).toBeGreaterThan(revision)
    stage.show([{ name: 'b' }])
    expect((await lookup(stage, 'b')).name).toBe(handleOf(stage, 'b'))
    expect(stage.asked()).toBe(2)
  })

  test('a discovery that fails tells why, and the known tools stay', async () => {
    const stage = await open()
    const { source, service } = stage
    stage.show([{ name: 'a' }])
    const tool = await lookup(stage, 'a')
    stage.fail(true)
    const failure = await failureOf(() => source.discover(service))
    expect(source.status(service)).toMatchObject({ state: 'failed', tools: 1, lastError: failure })
    expect(await lookup(stage, 'a')).toBe(tool)
    expect(namesIn(stage)).toEqual([tool.name])
  })

  test('a discovery counts as the attempt of a lookup', async () => {
    const stage = await open()
    stage.show([{ name: 'a' }])
    await stage.source.discover(stage.service)
    await lookup(stage, 'a')
    await failureOf(() => lookup(stage, 'none'))
    expect(stage.asked()).toBe(1)
  })

  test('who stops waiting leaves alone; the others get their tools', async () => {
    const stage = await open()
    const { source, service } = stage
    stage.show([{ name: 'a' }])
    const stop = new AbortController()
    const leaving = failureOf(() => source.discover(service, { signal: stop.signal }))
    const staying = source.discover(service)
    const reason = new ConvokeError('canceled', 'Never mind.')
    stop.abort(reason)
    expect(await leaving).toBe(reason)
    await staying
    expect(stage.asked()).toBe(1)
    expect(namesIn(stage)).toEqual([handleOf(stage, 'a')])
  })

  test('a discovery that nobody waits for any more says nothing of the service', async () => {
    const stage = await open()
    const { source, service } = stage
    stage.show([{ name: 'a' }])
    const stop = new AbortController()
    const leaving = failureOf(() => source.discover(service, { signal: stop.signal }))
    stop.abort()
    expect(await leaving).toMatchObject({ code: 'canceled' })
    expect((await lookup(stage, 'a')).name).toBe(handleOf(stage, 'a'))
    expect(source.status(service).state).toBe('ok')
  })
}
