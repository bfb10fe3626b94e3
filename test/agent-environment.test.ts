/** Environments: inputs with keys go in, outputs with keys come out. */
import {
  Agent,
  type AgentEvent,
  AgentPlan,
  ConvokeError,
  createMemoryAgentStore,
  FailedRuns,
  getExecutionEnvironment,
  InputEvent,
  OutputEvent,
  Prompt,
  ResourceDescriptor,
  type Json,
} from 'convoke'
import { expect, test } from 'vitest'
import { deferred, until } from './support/lifetime.ts'

function value(event: AgentEvent<string, object>): Json {
  return (event.payload as { value: Json }).value
}

/** Puts out how many inputs the key has had, and the input. */
function counting(): Agent {
  return new Agent().addAction('count', [InputEvent], (event, context) => {
    const n = Number(context.shortTermMemory.get('n') ?? 0) + 1
    context.shortTermMemory.set('n', n)
    context.sendEvent(new OutputEvent([n, value(event)]))
  })
}

test('a list goes in and a list comes out, in the order of the inputs', async () => {
  const list = [
    { key: 'tea', value: 'a' },
    { k: 'cup', v: 'b' },
    { key: 'tea', value: 'c' },
    { key: 7, value: null },
  ]
  expect(await getExecutionEnvironment().fromList(list).apply(counting()).toList()).toEqual([
    { key: 'tea', value: [1, 'a'] },
    { key: 'cup', value: [1, 'b'] },
    { key: 'tea', value: [2, 'c'] },
    { key: '7', value: [1, null] },
  ])
})

test('a stream with a key selector is read as fast as the agent takes it', async () => {
  let read = 0
  async function* numbers(): AsyncGenerator<number> {
    for (; read < 10_000; read++) yield read
  }
  const outputs = getExecutionEnvironment({ maxInFlight: 4 })
    .fromStream(numbers(), (n) => n % 3)
    .apply(counting())
    .toStream()
  const seen: unknown[] = []
  for await (const { key, value: got } of outputs) {
    seen.push([key, ...(got as Json[])])
    if (seen.length === 6) break
  }
  expect(seen.filter((each) => (each as Json[])[0] === '0').slice(0, 2)).toEqual([
    ['0', 1, 0],
    ['0', 2, 3],
  ])
  expect(read).toBeLessThan(20)
})

/** Counts, and says when its runner has closed what it had opened. */
function closing(close: () => void): Agent {
  class Notes {
    static readonly resourceType = 'vectorStore'
    add(): Promise<void> {
      return Promise.resolve()
    }
    query(): Promise<[]> {
      return Promise.resolve([])
    }
    close(): void {
      close()
    }
  }
  return new Agent()
    .addResource('notes', new ResourceDescriptor(Notes))
    .addAction('count', [InputEvent], async (event, { getResource, sendEvent }) => {
      await getResource('notes', 'vectorStore')
      sendEvent(new OutputEvent(value(event)))
    })
}

test('leaving a stream whose source waits for ever closes every agent of it', async () => {
  async function* source(): AsyncGenerator<{ key: string; value: Json }> {
    yield { key: 'a', value: 1 }
    await new Promise(() => {})
  }
  const closed: string[] = []
  const outputs = getExecutionEnvironment()
    .fromStream(source())
    .apply(closing(() => closed.push('first')))
    .keyBy((_value, key) => key)
    .apply(closing(() => closed.push('second')))
    .toStream()
  expect((await outputs.next()).value).toEqual({ key: 'a', value: 1 })
  await outputs.return()
  await until(() => closed.length === 2)
  expect(closed.toSorted()).toEqual(['first', 'second'])
})

test('outputs of one key stay in their order, however slowly they are read', async () => {
  const thrice = new Agent().addAction('thrice', [InputEvent], (event, context) => {
    for (let n = 0; n < 3; n++) context.sendEvent(new OutputEvent(Number(value(event)) * 3 + n))
  })
  const items = Array.from({ length: 20 }, (_, n) => ({ key: 'a', value: n }))
  const seen: Json[] = []
  for await (const each of getExecutionEnvironment({ maxInFlight: 4 }).fromList(items).apply(thrice).toStream()) {
    seen.push(each.value)
    await new Promise((resolve) => setImmediate(resolve))
  }
  expect(seen).toEqual(Array.from({ length: 60 }, (_, n) => n))
})

test('agents stand one behind the other, with windows between them', async () => {
  const summing = new Agent().addAction('sum', [InputEvent], (event, context) => {
    const window = value(event) as Json[][]
    context.sendEvent(new OutputEvent(window.map(([, text]) => text ?? null)))
  })
  const outputs = await getExecutionEnvironment()
    .fromList(['a', 'b', 'c', 'd', 'e'].map((text, n) => ({ key: n % 2, value: text })))
    .apply(counting())
    .window(2)
    .apply(summing)
    .toList()
  expect(outputs).toEqual([
    { key: '0', value: ['a', 'c'] },
    { key: '1', value: ['b', 'd'] },
    { key: '0', value: ['e'] },
  ])
})

test('stages that share a store are told apart in the order in which they were applied, also by the next program', async () => {
  const store = createMemoryAgentStore()
  const twice = new Agent().addAction('twice', [InputEvent], (event, context) => {
    context.shortTermMemory.set('twice', true)
    context.sendEvent(new OutputEvent(value(event)))
  })
  for (const n of [1, 2]) {
    const outputs = await getExecutionEnvironment({ store })
      .fromList([{ key: 'a', value: 'tea' }])
      .apply(counting())
      .apply(twice)
      .toList()
    expect(outputs).toEqual([{ key: 'a', value: [n, 'tea'] }])
  }
  expect(JSON.parse((await store.state('agent', 'a')) ?? '')).toEqual({ n: 2 })
  expect(JSON.parse((await store.state('agent-2', 'a')) ?? '')).toEqual({ twice: true })
})

test('a run that fails is told, and the others go on', async () => {
  const picky = new Agent().addAction('pick', [InputEvent], (event, context) => {
    if (value(event) === 'bad') throw new ConvokeError('forbidden', 'No bad ones.')
    context.sendEvent(new OutputEvent(value(event)))
  })
  const items = ['good', 'bad', 'better'].map((text) => ({ key: 'a', value: text }))
  const failures: unknown[] = []
  const outputs = await getExecutionEnvironment()
    .fromList(items)
    .apply(picky, { onFailure: ({ key, value: input, error }) => void failures.push([key, input, error.code]) })
    .toList()
  expect(outputs.map((each) => each.value)).toEqual(['good', 'better'])
  expect(failures).toEqual([['a', 'bad', 'forbidden']])

  const seen: Json[] = []
  const stream = getExecutionEnvironment().fromList(items).apply(picky).toStream()
  await expect(
    (async () => {
      for await (const each of stream) seen.push(each.value)
    })(),
  ).rejects.toMatchObject({ code: 'forbidden', message: 'No bad ones.' })
  expect(seen).toEqual(['good', 'better'])
})

/** Fails for what is odd, and puts the others out; counts how many it has seen. */
function pickyAt(name: string): Agent {
  return new Agent().addAction('pick', [InputEvent], (event, context) => {
    const n = value(event) as number
    if (n % 2 === 1) throw new ConvokeError('forbidden', `No ${n} at ${name}.`)
    context.sendEvent(new OutputEvent(n / 2))
  })
}

test('what fails takes nothing from the outputs of the others, through several agents and windows', async () => {
  const inputs = [0, 1, 2, 3, 4, 8].map((n) => ({ key: 'a', value: n }))
  const first = getExecutionEnvironment().fromList(inputs).apply(pickyAt('first'))
  const alone = await first.toList().catch((error: unknown) => error)
  expect(alone).toBeInstanceOf(FailedRuns)
  const { code, message, count, failures, outputs } = alone as FailedRuns
  expect([code, message, count]).toEqual(['forbidden', '2 runs failed; the first one: No 1 at first.', 2])
  expect(failures.map(({ key, value: input, error }) => [key, input, error.message])).toEqual([
    ['a', 1, 'No 1 at first.'],
    ['a', 3, 'No 3 at first.'],
  ])
  expect(outputs).toEqual([0, 1, 2, 4].map((n) => ({ key: 'a', value: n })))

  const both = getExecutionEnvironment().fromList(inputs).apply(pickyAt('first')).apply(pickyAt('second')).window(2)
  await expect(both.toList()).rejects.toMatchObject({
    count: 3,
    failures: [{ value: 1 }, { value: 3 }, { value: 1 }].map((each) => expect.objectContaining(each)),
    outputs: [
      { key: 'a', value: [0, 1] },
      { key: 'a', value: [2] },
    ],
  })
})

test('of very many failures all are counted, and the first ones kept', async () => {
  const inputs = Array.from({ length: 1_005 }, (_, n) => ({ key: 'a', value: 2 * n + 1 }))
  const failed = await getExecutionEnvironment()
    .fromList(inputs)
    .apply(pickyAt('first'))
    .toList()
    .catch((error: unknown) => error as FailedRuns)
  expect(failed).toMatchObject({ count: 1_005 })
  expect((failed as FailedRuns).failures.map(({ value: input }) => input)).toEqual(
    inputs.slice(0, 1_000).map(({ value: input }) => input),
  )
})

test('a source that breaks waits for the runs that it has begun', async () => {
  async function* source(): AsyncGenerator<{ key: string; value: Json }> {
    yield { key: 'a', value: 1 }
    throw new Error('The file ended in the middle.')
  }
  const gate = deferred()
  const slow = new Agent().addAction('wait', [InputEvent], async (_event, context) => {
    await gate.promise
    context.sendEvent(new OutputEvent('done'))
  })
  const stream = getExecutionEnvironment().fromStream(source()).apply(slow).toStream()
  const first = stream.next()
  gate.resolve()
  expect((await first).value).toEqual({ key: 'a', value: 'done' })
  await expect(stream.next()).rejects.toThrow('in the middle')
})

test('a plan runs as its agent does, with the resources of the environment beside its own', async () => {
  const greet = new Agent()
    .addAction('greet', [InputEvent], async (_event, context) => {
      const texts = ['own', 'shared'].map(async (name) => (await context.getResource(name, 'prompt')).formatString({}))
      context.sendEvent(new OutputEvent(await Promise.all(texts)))
    })
    .addResource('own', Prompt.fromText('its own'))
  const environment = getExecutionEnvironment()
    .addResource('own', Prompt.fromText('of all'))
    .addResource('shared', Prompt.fromText('of all'))
  const stream = environment.fromList([{ key: 'a', value: 1 }])
  expect(() => stream.apply(AgentPlan.fromAgent(counting()).actions as never)).toThrow(TypeError)
  expect(() => stream.apply({ convoke_plan: 1 } as never)).toThrow(/the JSON of a plan; AgentPlan\.fromJSON makes one/)
  const outputs = await stream.apply(AgentPlan.fromAgent(greet)).toList()
  expect(outputs).toEqual([{ key: 'a', value: ['its own', 'of all'] }])
})

test('execute runs what nobody reads', async () => {
  const seen: Json[] = []
  const agent = new Agent().addAction('see', [InputEvent], (event) => void seen.push(value(event)))
  const environment = getExecutionEnvironment()
  environment.fromList([{ key: 'a', value: 1 }]).apply(agent)
  environment.fromList([{ key: 'a', value: 2 }]).apply(agent)
  await environment.execute()
  expect(new Set(seen)).toEqual(new Set([1, 2]))
})

test('what is no input is refused with what it is', async () => {
  const run = (item: unknown): Promise<unknown> =>
    getExecutionEnvironment()
      .fromList([item as never])
      .apply(counting())
      .toList()
  await expect(run('text')).rejects.toMatchObject({ code: 'config', message: expect.stringContaining('{key, value}') })
  await expect(run({ key: true, value: 1 })).rejects.toMatchObject({
    code: 'config',
    message: expect.stringContaining('true'),
  })
  const stream = getExecutionEnvironment().fromList([])
  stream.apply(counting())
  expect(() => stream.apply(counting())).toThrow(/read once/)
  expect(() => getExecutionEnvironment({ maxInFlight: 0 })).toThrow(/maxInFlight/)
  expect(() => getExecutionEnvironment().fromList([]).window(0)).toThrow(/window/)
})

test('a source that breaks ends the stream with its error', async () => {
  async function* source(): AsyncGenerator<{ key: string; value: Json }> {
    yield { key: 'a', value: 1 }
    throw new Error('The file ended in the middle.')
  }
  await expect(getExecutionEnvironment().fromStream(source()).apply(counting()).toList()).rejects.toThrow(
    'in the middle',
  )
})

test('ten thousand keys keep their order, and nothing is lost', async () => {
  const environment = getExecutionEnvironment()
  const last = new Map<string, number>()
  let count = 0
  function* items(): Generator<{ key: number; value: number }> {
    for (let i = 0; i < 20_000; i++) yield { key: i % 10_000, value: i }
  }
  for await (const { key, value: output } of environment.fromStream(items()).apply(counting()).toStream()) {
    const [n, i] = output as [number, number]
    expect(n).toBe((last.get(key) ?? 0) + 1)
    expect(i % 10_000).toBe(Number(key))
    last.set(key, n)
    count++
  }
  expect(count).toBe(20_000)
  await until(() => last.size === 10_000)
})
