/** The programs in examples/ do what they say, with the node that `npm start` runs. */
import { execFile, spawn } from 'node:child_process'
import { once } from 'node:events'
import { readdir, readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { loadConfig } from 'convoke'
import { describe, expect, test } from 'vitest'
import { answer } from '../examples/reviews/answers.js'
import { cleanup, deferred, startNode, temporaryFolder, until } from './support/lifetime.ts'
import { startModelServer, type ModelRequest, type ModelStep } from './support/model-server.ts'

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

/** Without what somebody may have set for a model of their own. */
const env = Object.fromEntries(Object.entries(process.env).filter(([name]) => !name.startsWith('MODEL_')))

/** Runs a program that needs no node, and gives what it prints. */
async function runAlone(program: string, ...args: string[]): Promise<string[]> {
  const command = [join(root, 'examples', program), ...args]
  const { stdout, stderr } = await promisify(execFile)(process.execPath, command, { timeout: 15_000, env })
  expect(stderr).toBe('')
  return stdout.trimEnd().split('\n')
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

/** Those that ask a language model, and nobody else. */
const modelPrograms = ['agent-node.js', 'reviews-react.js', 'reviews-workflow.js']

test('a program that reaches nobody says so in a line', async () => {
  const programs = (await readdir(join(root, 'examples'))).filter((file) => file.endsWith('.js'))
  await Promise.all(
    programs.map(async (program) => {
      const asksModel = modelPrograms.includes(program)
      const args = asksModel ? ['--model-url', 'http://127.0.0.1:1/v1', '--model', 'any'] : ['http://127.0.0.1:1']
      const ran = promisify(execFile)(process.execPath, [join(root, 'examples', program), ...args], { env })
      const { code, stderr } = (await ran.catch((error: unknown) => error)) as { code: number; stderr: string }
      expect({ program, code }).toEqual({ program, code: 1 })
      // The log comes before, with what a message does not say.
      const lines = stderr.split('\n').filter((line) => line !== '' && !line.startsWith('{"level":"'))
      expect(stderr).toContain(asksModel ? 'POST http://127.0.0.1:1/v1/chat/completions' : '')
      const said = asksModel
        ? /^(12 runs failed; the first one: )?The model endpoint cannot be reached: it refused the connection/
        : /^(peer: 127\.0\.0\.1:1 refused|.* peer could not be asked)/
      expect(lines).toEqual([expect.stringMatching(said)])
    }),
  )
})

test('each program has its line in the README, is short, and has a test', async () => {
  const programs = (await readdir(join(root, 'examples'))).filter((file) => file.endsWith('.js'))
  const readme = await readFile(join(root, 'examples', 'README.md'), 'utf8')
  const tests = await readFile(import.meta.filename, 'utf8')
  expect(programs).toHaveLength(11)
  for (const program of programs) {
    expect(readme).toContain(`\`node examples/${program}\``)
    expect(tests).toMatch(new RegExp(`run(Alone)?\\('${program}'`))
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

describe('the reviews', () => {
  const products: Record<string, string[]> = {
    kettle: ['r01', 'r04', 'r05', 'r11'],
    lamp: ['r02', 'r06', 'r08', 'r10'],
    backpack: ['r03', 'r07', 'r09', 'r12'],
  }
  const scores = {
    ...{ r01: 5, r02: 1, r03: 5, r04: 2, r05: 3, r06: 3 },
    ...{ r07: 2, r08: 5, r09: 2, r10: 1, r11: 3, r12: 5 },
  }
  const complaints = ['r02', 'r05', 'r09', 'r10']

  interface Printed {
    readonly id: string
    readonly product: string
    readonly score: number
    readonly average: string | undefined
    readonly place: number
  }

  const judgementsIn = (lines: readonly string[]): Printed[] =>
    lines.flatMap((line, place) => {
      const [, id = '', product = '', stars = '', average] =
        /^(r\d\d)  (\w+) +([★☆]{5})(?:  average (\d\.\d))?$/.exec(line) ?? []
      return id === '' ? [] : [{ id, product, score: stars.replaceAll('☆', '').length, average, place }]
    })

  /** Of each product, with the line where it begins. */
  function adviceIn(lines: readonly string[]): Map<string, { place: number; head: string; suggestions: string[] }> {
    const advice = new Map<string, { place: number; head: string; suggestions: string[] }>()
    let suggestions: string[] = []
    for (const [place, line] of lines.entries()) {
      const [, product, head = ''] = /^(\w+):(.*)$/.exec(line) ?? []
      if (product !== undefined) {
        suggestions = []
        advice.set(product, { place, head, suggestions })
      } else if (line.startsWith('  * ')) suggestions.push(line.slice(4))
    }
    return advice
  }

  /** Each is judged, in the order of its product; shipping hears of each complaint once, before; advice comes last. */
  function checkReviews(lines: readonly string[]): void {
    const judgements = judgementsIn(lines)
    expect(Object.fromEntries(judgements.map(({ id, score }) => [id, score]))).toEqual(scores)
    expect(judgements).toHaveLength(12)
    const told = lines.flatMap((line) => /^(r\d\d)  ✉ shipping: \w/.exec(line)?.[1] ?? [])
    expect(told.toSorted()).toEqual(complaints)
    for (const id of complaints) {
      const place = lines.findIndex((line) => line.startsWith(`${id}  ✉`))
      expect(place).toBeLessThan(judgements.find((each) => each.id === id)!.place)
    }
    const advice = adviceIn(lines)
    expect([...advice.keys()].toSorted()).toEqual(Object.keys(products).toSorted())
    for (const [product, ids] of Object.entries(products)) {
      const own = judgements.filter((each) => each.product === product)
      expect(own.map(({ id }) => id)).toEqual(ids)
      expect(advice.get(product)!.place).toBeGreaterThan(own.at(-1)!.place)
      expect(advice.get(product)!.suggestions).toContainEqual(expect.stringContaining('Talk to the courier'))
    }
    expect(advice.get('kettle')!.suggestions).toContain('Mend this: The lid leaks.')
    expect(advice.get('lamp')!.suggestions).toContain('Mend this: The switch is flimsy.')
    expect(advice.get('backpack')!.suggestions).toContain('Mend this: A zip broke on the second day.')
  }

  test('reviews-workflow.js judges each, keeps an average, and gives advice', async () => {
    const lines = await runAlone('reviews-workflow.js')
    checkReviews(lines)
    const averages = judgementsIn(lines).filter(({ product }) => product === 'lamp')
    expect(averages.map(({ average }) => average)).toEqual(['1.0', '2.0', '3.0', '2.5'])
    expect(adviceIn(lines).get('lamp')!.head).toBe('  2 × 1★  0 × 2★  1 × 3★  0 × 4★  1 × 5★')
  })

  test('reviews-react.js does it with nothing but models', async () => {
    const lines = await runAlone('reviews-react.js')
    checkReviews(lines)
    expect(lines.at(-1)).toMatch(/^  \* /)
  })

  test('any endpoint will do, and is asked in its own words', async () => {
    const model = await startModelServer((request) => steps(request))
    checkReviews(await runAlone('reviews-react.js', '--model-url', model.url, '--model', 'any-model'))
    // One for each review, one more for each call of a tool, and one for each product.
    expect(model.requests).toHaveLength(12 + complaints.length + 3)
    const [first] = model.requests
    expect(first!.body).toMatchObject({
      model: 'any-model',
      stream: true,
      tools: [{ type: 'function', function: { name: 'notify_shipping' } }],
    })
    const adviser = model.requests.at(-1)!.body
    expect(adviser.tools).toBeUndefined()
    expect(adviser).toMatchObject({ response_format: { type: 'json_schema' } })
    const program = join(root, 'examples', 'reviews-react.js')
    await expect(
      promisify(execFile)(process.execPath, [program, '--model-url', model.url], { env }),
    ).rejects.toMatchObject({ code: 1, stderr: 'Say which model, too: --model NAME.\n' })
  })

  test('the workflow agent runs from the command line, too', async () => {
    const folder = await temporaryFolder()
    const [output, state] = [join(folder, 'out.jsonl'), join(folder, 'state.db')]
    const [agent, input] = ['agent.js', 'reviews.jsonl'].map((file) => join(root, 'examples/reviews', file))
    const command = ['agent', 'run', agent!, '--input', input!, '--out', output, '--state', state]
    await promisify(execFile)(process.execPath, [join(root, 'dist/cli/main.js'), ...command], { timeout: 15_000, env })
    const outputs = (await readFile(output, 'utf8'))
      .trim()
      .split('\n')
      .map((line) => JSON.parse(line) as { key: string; value: { id: string; score: number; average: number } })
    expect(Object.fromEntries(outputs.map(({ value }) => [value.id, value.score]))).toEqual(scores)
    for (const [product, ids] of Object.entries(products)) {
      expect(outputs.filter(({ key }) => key === product).map(({ value }) => value.id)).toEqual(ids)
    }
    expect(outputs.findLast(({ key }) => key === 'lamp')!.value.average).toBe(2.5)
  })

  test('agent-node.js is asked over A2A, and its model calls tools', async () => {
    const lines = await runAlone('agent-node.js')
    expect(lines).toContain('(find_reviews: 1 of 1 done)')
    expect(lines.filter((line) => line.includes('✉')).map((line) => line.slice(0, 3))).toEqual(['r02', 'r10', 'r10'])
    expect(lines).toContain('(notify_shipping: 4 of 4 done)')
    expect(lines.at(-1)).toMatch(/^! What people do not like about the lamp: .*Shipping was told of 3\.$/)
  })

  test('agent-node.js prints an answer while it comes', async () => {
    const go = deferred()
    const model = await startModelServer((request, index) =>
      index < 2 ? steps(request) : ['First', ' words.', { wait: go.promise }, ' Last ones.'],
    )
    const args = [join(root, 'examples/agent-node.js'), '--model-url', model.url, '--model', 'any']
    const child = spawn(process.execPath, args, { env, stdio: ['ignore', 'pipe', 'inherit'] })
    cleanup(() => child.kill())
    const closed = once(child, 'close')
    let text = ''
    child.stdout.setEncoding('utf8').on('data', (piece: string) => (text += piece))
    await until(() => text.endsWith('\n! First words.'), 'the first words')
    go.resolve()
    expect(await closed).toEqual([0, null])
    expect(text).toMatch(/\n! First words\. Last ones\.\n$/)
  })

  /** What the model that comes along with the examples would say. */
  function steps({ body }: ModelRequest): ModelStep[] {
    const { text, calls = [] } = answer(body as never) as {
      text?: string
      calls?: readonly { readonly name: string; readonly params: object }[]
    }
    return [
      ...(text === undefined ? [] : [text]),
      ...calls.map(({ name, params }) => ({ call: { name, arguments: params } })),
    ]
  }
})
