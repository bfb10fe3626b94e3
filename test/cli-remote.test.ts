/** The commands for peers' tools against real nodes, as processes: what they print where, and how they exit. */
import { defineTool, type Node, type NodeOptions } from 'convoke'
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { describe, expect, test } from 'vitest'
import { hashToken } from '../dist/server/auth/token.js'
import { convoke, linesOf, main } from './support/command.ts'
import { cleanup, deferred, startNode, temporaryFolder, within } from './support/lifetime.ts'
import { startLegacyPeer, startMinimalPeer, startPlainPeer } from './support/peers.ts'
import { rpc } from './support/wire.ts'

const countTo = defineTool({
  name: 'count_to',
  description: 'Counts up to n.',
  input: {
    type: 'object',
    properties: { n: { type: 'integer', minimum: 1 }, step: { type: 'integer' }, unit: { enum: ['one', 'two'] } },
    required: ['n'],
    additionalProperties: false,
  },
  traits: { idempotent: true, category: 'demo' },
  async *run({ n }, context) {
    for (let i = 1; i <= n; i++) {
      context.progress({ progress: i, total: n, message: `At ${i}.` })
      yield { i }
    }
    return { counted: n }
  },
})

const echo = defineTool({
  name: 'echo',
  description: 'Gives back what it was sent.',
  input: {
    type: 'object',
    properties: {
      text: { type: 'string' },
      flag: { type: 'boolean' },
      numbers: { type: 'array', items: { type: 'number' } },
      nested: { type: 'object', properties: { deep: { type: 'object', properties: { n: { type: 'integer' } } } } },
      'with.dots': { type: 'string' },
      any: {},
    },
  },
  traits: { readOnly: true },
  run: (params) => params,
})

const bytes = defineTool({
  name: 'bytes',
  description: 'Gives bytes.',
  input: { type: 'object', properties: {} },
  run: () => new Uint8Array([0, 255, 10]),
})

const ask = defineTool({
  name: 'ask',
  description: 'Asks twice.',
  input: { type: 'object', properties: {} },
  async run(_params, context) {
    const name = await context.ask({ message: 'What is your name?' })
    const more = await context.ask({
      message: 'How many?',
      schema: { type: 'object', properties: { n: { type: 'integer' } }, required: ['n'] },
    })
    return { name, more }
  },
})

const murmur = defineTool({
  name: 'murmur',
  description: 'Logs.',
  input: { type: 'object', properties: {} },
  run(_params, { notice }) {
    notice({ level: 'notice', data: 'Looking\u001b[2J.' })
    notice({ level: 'error', data: { left: 3 }, logger: 'disk' })
    return 'done'
  },
})

const consult = defineTool({
  name: 'consult',
  description: 'Asks a language model.',
  input: { type: 'object', properties: {} },
  run: (_params, context) =>
    context.ask({
      message: 'What is 2 + 2?',
      schema: { type: 'object', properties: { content: { type: 'object' } }, required: ['role', 'content', 'model'] },
      sampling: { systemPrompt: 'Be brief.', messages: [], maxTokens: 5 },
    }),
})

const broken = defineTool({
  name: 'broken',
  description: 'Fails.',
  input: { type: 'object', properties: {} },
  run() {
    throw new Error('The disk is full.')
  },
})

function startAlice(options: Partial<NodeOptions> = {}): Promise<Node> {
  return startNode({ tools: [countTo, echo, bytes, ask, broken, murmur, consult], ...options })
}

/** A folder with a configuration that has these peers. */
async function folderWith(peers: Record<string, unknown>): Promise<string> {
  const folder = await temporaryFolder()
  await writeFile(join(folder, 'convoke.yaml'), JSON.stringify({ agent: { id: 'me' }, peers }))
  return folder
}

interface Envelope {
  readonly error: { readonly code: string; readonly message: string; readonly hint: string | null }
}

describe('convoke tools', () => {
  test('shows name, params, description and traits of each tool of a URL', async () => {
    const { url } = await startAlice()
    const { code, stdout, stderr } = await convoke(['tools', url])
    expect({ code, stderr }).toEqual({ code: 0, stderr: '' })
    expect(stdout).toContain(
      `${url} count_to(n: integer, step?: integer, unit?: "one" | "two")  [idempotent, streaming, demo]\n  Counts up to n.\n`,
    )
    expect(stdout).toContain('numbers?: number[]')
    expect(stdout).not.toContain('\u001b')
  })

  test('prints the tools with their schemas as JSON, and filters by tag and words', async () => {
    const { url } = await startAlice()
    const all = JSON.parse((await convoke(['tools', url, '-o', 'json'])).stdout) as { name: string }[]
    expect(all.map(({ name }) => name).toSorted()).toEqual([
      'ask',
      'broken',
      'bytes',
      'consult',
      'count_to',
      'echo',
      'murmur',
    ])
    expect(all.find(({ name }) => name === 'count_to')).toMatchObject({
      agent_id: 'peer',
      idempotent: true,
      parameters_schema: { required: ['n'] },
      schema_hash: expect.stringMatching(/^[0-9a-f]{64}$/),
      kind: 'a2a',
      source: url,
    })
    const [tagged, found, none, schemas] = await Promise.all([
      convoke(['tools', url, '--tag', 'demo', '-o', 'json']),
      convoke(['tools', url, '--search', 'GIVES', '-o', 'json']),
      convoke(['tools', url, '--search', 'nothing like it']),
      convoke(['tools', url, '--search', 'count', '--schema']),
    ])
    const names = (stdout: string): string[] => (JSON.parse(stdout) as { name: string }[]).map(({ name }) => name)
    expect(names(tagged.stdout)).toEqual(['count_to'])
    expect(names(found.stdout).toSorted()).toEqual(['bytes', 'echo'])
    expect(none.stdout).toBe('No tool fits.\n')
    expect(schemas.stdout).toContain('  Params:\n    {\n')
  })

  test('asks all peers of the configuration, and tells of those that fail in a line', async () => {
    const [alice, minimal] = await Promise.all([startAlice(), startMinimalPeer()])
    const cwd = await folderWith({
      alice: { url: alice.url },
      gone: { url: 'http://127.0.0.1:1' },
      minimal: { url: minimal.url },
    })
    const { code, stdout, stderr } = await convoke(['tools', '-o', 'json'], { cwd })
    const tools = JSON.parse(stdout) as { name: string; agent_id: string; source: string }[]
    expect(code).toBe(0)
    expect(new Set(tools.map((tool) => tool.agent_id))).toEqual(new Set(['alice', 'minimal']))
    expect(tools.every(({ agent_id: peer, source }) => peer === source)).toBe(true)
    expect(stderr).toMatch(/^gone: .*refused the connection\. \(network\)\n$/)
    const text = await convoke(['tools'], { cwd })
    expect(text.stdout).toContain('alice.count_to(n: integer')
    expect(text.stdout).toContain('minimal.count_to(n: integer)')
  })

  test('fails where all peers do, and where there is none', async () => {
    const [gone, none] = await Promise.all([
      folderWith({ gone: { url: 'http://127.0.0.1:1' } }).then((cwd) => convoke(['tools'], { cwd })),
      temporaryFolder().then((cwd) => convoke(['tools', '-o', 'json'], { cwd })),
    ])
    expect(gone.code).toBe(3)
    expect(none.code).toBe(2)
    expect((JSON.parse(none.stdout) as Envelope).error.code).toBe('A2ACLI_ERR_USAGE')
  })

  test('says that there is no configuration, and that a URL will do', async () => {
    const cwd = await temporaryFolder()
    const runs = await Promise.all([['tools'], ['peers'], ['call', 'bob.x']].map((args) => convoke(args, { cwd })))
    for (const { code, stderr } of runs) {
      expect(code).toBe(2)
      expect(stderr).toContain('There is no convoke.yaml or convoke.json in this folder.')
      expect(stderr).toContain('-c FILE, or a peer by its URL')
    }
  })

  test('names the peers there are when one is misspelt', async () => {
    const cwd = await folderWith({ alice: { url: 'http://127.0.0.1:1' } })
    const { code, stderr } = await convoke(['tools', 'alicee'], { cwd })
    expect(code).toBe(2)
    expect(stderr).toContain('Did you mean "alice"? There are: alice.')
  })

  test('lists an agent without tools as one that has none', async () => {
    const { url } = await startPlainPeer()
    expect(await convoke(['tools', url])).toEqual({ code: 0, stdout: 'There are no tools.\n', stderr: '' })
  })
})

describe('convoke call', () => {
  test('prints chunks and the result as lines of JSON, and progress on stderr', async () => {
    const { url } = await startAlice()
    const cwd = await folderWith({ alice: { url } })
    const { code, stdout, stderr } = await convoke(['call', 'alice.count_to', '{"n":2}'], { cwd })
    expect(code).toBe(0)
    expect(linesOf(stdout)).toEqual([{ i: 1 }, { i: 2 }, { counted: 2 }])
    expect(stderr).toContain('progress: 2/2 At 2.\n')
  })

  test('takes a URL or a peer, and the tool behind it', async () => {
    const { url } = await startAlice()
    const cwd = await folderWith({ alice: { url } })
    const runs = await Promise.all([
      convoke(['call', url, 'count_to', '{"n":1}'], { cwd }),
      convoke(['call', new URL(url).host, 'count_to', '--param', 'n=1'], { cwd }),
      convoke(['call', 'alice', 'count_to', '-'], { cwd, stdin: '{"n":1}' }),
    ])
    for (const { code, stdout } of runs) {
      expect(code).toBe(0)
      expect(linesOf(stdout).at(-1)).toEqual({ counted: 1 })
    }
  })

  test('prints one document with -o json, and a line for each event with --stream', async () => {
    const { url } = await startAlice()
    const one = await convoke(['call', url, 'count_to', '{"n":2}', '-o', 'json'])
    expect(JSON.parse(one.stdout)).toEqual({
      result: { counted: 2 },
      task_id: expect.any(String),
      context_id: expect.any(String),
      execution_time_ms: expect.any(Number),
    })
    const events = linesOf<{ type: string }>(
      (await convoke(['call', url, 'count_to', '{"n":2}', '-o', 'json', '--stream'])).stdout,
    )
    expect(events.filter(({ type }) => type === 'chunk')).toEqual([
      { type: 'chunk', chunk: { i: 1 } },
      { type: 'chunk', chunk: { i: 2 } },
    ])
    expect(events.at(-1)).toMatchObject({ type: 'result', result: { counted: 2 }, task_id: expect.any(String) })
  })

  test('reads --param as the schema of the tool has it', async () => {
    const { url } = await startAlice()
    const pairs = [
      'text=5',
      'flag=true',
      'numbers=1',
      'numbers=2.5',
      'nested.deep.n=7',
      'with.dots=whole',
      'any={"a":[1]}',
    ].flatMap((pair) => ['--param', pair])
    const { code, stdout } = await convoke(['call', url, 'echo', '{"text":"before","other":1}', ...pairs])
    expect(code).toBe(0)
    expect(JSON.parse(stdout)).toEqual({
      text: '5',
      other: 1,
      flag: true,
      numbers: [1, 2.5],
      nested: { deep: { n: 7 } },
      'with.dots': 'whole',
      any: { a: [1] },
    })
  })

  test('says everything that is wrong with the params before anything is sent, with an example that fits', async () => {
    const peer = await startMinimalPeer()
    const { url } = await startAlice()
    const wrong = ['--param', 'n=many', '--param', 'unit=three', '--param', 'x=1']
    const { code, stdout, stderr } = await convoke(['call', url, 'count_to', ...wrong])
    expect({ code, stdout }).toEqual({ code: 2, stdout: '' })
    expect(stderr).toContain('  /n: must be an integer, got a string: "many"\n')
    expect(stderr).toContain('  /unit: must be one of "one", "two", got "three"')
    expect(stderr).toContain('  /x: the property "x" is unknown')
    const [, params = ''] = /convoke call \S+ count_to '(.*)'\n/.exec(stderr) ?? []
    expect((await convoke(['call', url, 'count_to', params])).code).toBe(0)

    const json = await convoke(['call', peer.url, 'count_to', '{"n":0}', '-o', 'json'])
    expect((JSON.parse(json.stdout) as Envelope).error.message).toContain('/n: must be 1 or more, got 0')
    expect(peer.runs).toBe(0)
  })

  test.each([
    [['call'], 'missing required argument'],
    [['call', 'URL'], 'No tool is named.'],
    [['call', 'URL', 'echo', '{'], 'The params are not valid JSON: they end too early.'],
    [['call', 'URL', 'echo', '[]'], 'The params must be a JSON object.'],
    [['call', 'URL', 'echo', '--param', 'text'], 'is not NAME=VALUE'],
    [['call', 'URL', 'echo', '--param', '__proto__.x=1'], 'names nothing'],
    [['call', 'URL', 'echo', '{}', 'more'], 'too many arguments'],
    [['call', 'nobody.echo'], '"nobody" is no URL. There is no convoke.yaml or convoke.json in this folder.'],
    [['call', 'URL', 'echo', '--timeout', 'soon'], 'Write a number and its unit'],
  ])('refuses %j with exit code 2', async (args, message) => {
    const { url } = await startAlice()
    const { code, stdout, stderr } = await convoke(args.map((each) => (each === 'URL' ? url : each)))
    expect({ code, stdout }).toEqual({ code: 2, stdout: '' })
    expect(stderr).toContain(message)
  })

  test('says what is likely meant by words that make no call', async () => {
    const { url } = await startAlice()
    const { host } = new URL(url)
    const cwd = await folderWith({ alice: { url } })
    const cases: [args: string[], sentence: string, hint: string][] = [
      [[`${host}.count_to`], 'there is a space, not a dot', `convoke call ${host} count_to`],
      [['count_to', '--param', 'n=5'], 'No peer is named, only "count_to".', 'convoke call alice.count_to'],
      [['count_to', '{"n":5}'], 'No peer is named, only "count_to".', 'convoke call alice.count_to'],
      [['alice'], 'No tool is named.', 'convoke call bob.count_to'],
      [['alice.count_to', '{n:', '5}'], 'There are too many arguments.', `put quotes round them, '{"n": 5}'.`],
      [['alice.count_to', '{n: 5}'], 'see character 2, at "n: 5}".', 'Give an object in quotes'],
      [['alice.count_to', '{"n":3'], 'they end too early.', 'Give an object in quotes'],
      [['alice.count_to', 'n=5'], '"n=5" is a pair.', 'Write: --param n=5'],
      [['alice.count_to', '@params.json'], 'no file is read for @.', 'Write: - < params.json'],
      [['alice.count_to', '-'], 'There are no params on standard input: it is empty.', 'Give an object in quotes'],
      [['alice.count_to'], 'The params of count_to are wrong', 'to read params from stdin, put -'],
    ]
    await Promise.all(
      cases.map(async ([args, sentence, hint]) => {
        const { code, stdout, stderr } = await convoke(['call', ...args], { cwd })
        expect({ args, code, stdout }).toEqual({ args, code: 2, stdout: '' })
        expect(stderr).toContain(sentence)
        expect(stderr.slice(stderr.indexOf('hint: '))).toContain(hint)
      }),
    )
  })

  test('hints name the configuration that was used, and what of it', async () => {
    const server = { auth: { tokens: [{ id: 'me', sha256: hashToken('a-token-for-tests') }] } }
    const [open, closed] = await Promise.all([startAlice(), startAlice({ server })])
    const peers = {
      bob: { url: closed.url, auth: { bearer: '${env:BOB_TOKEN}' } },
      lost: { url: `${open.url}/foo` },
      alice: { url: open.url },
    }
    const cwd = await temporaryFolder()
    await writeFile(join(cwd, 'my.yaml'), JSON.stringify({ agent: { id: 'me' }, peers }))
    await writeFile(join(cwd, 'bad.yaml'), 'agent: {}')
    const cases: [args: string[], hint: string][] = [
      [['call', 'bob.echo'], 'Check peers.bob.auth in my.yaml, which takes BOB_TOKEN from the environment.'],
      [['call', 'lost.echo'], 'Check peers.lost.url in my.yaml.'],
      [['call', `${open.url}/foo`, 'echo'], 'Name the base URL of an agent, or that of its card'],
      [['call', 'alice.ecko'], 'convoke tools alice -c my.yaml'],
      [['call', 'alice.count_to'], `convoke call alice.count_to -c my.yaml '{"n":`],
      [['call', 'echo'], 'convoke call bob.echo -c my.yaml (there are bob, lost, alice)'],
      [['tools', 'alice', '-c', 'bad.yaml'], 'convoke config check -c bad.yaml'],
      [['tools', open.url.replace('http:', 'https:')], 'name it by http://'],
    ]
    await Promise.all(
      cases.map(async ([args, hint]) => {
        const config = args.includes('-c') ? [] : ['-c', 'my.yaml']
        const { stderr } = await convoke([...args, ...config], { cwd, env: { BOB_TOKEN: 'wrong' } })
        expect(stderr.slice(stderr.indexOf('hint: '))).toContain(hint)
      }),
    )
  })

  test('exits with 1 and the reason when the tool fails, or is not there', async () => {
    const { url } = await startAlice()
    const [failed, missing] = await Promise.all([
      convoke(['call', url, 'broken']),
      convoke(['call', url, 'count_too', '-o', 'json']),
    ])
    expect(failed.code).toBe(1)
    expect(failed.stderr).toContain('CONVOKE_ERR_TOOL: The tool failed (tool_failed): The disk is full.')
    expect(missing.code).toBe(1)
    expect((JSON.parse(missing.stdout) as Envelope).error.message).toContain('Did you mean "count_to"?')
  })

  test('writes bytes as they are into a pipe, and a result to --out', async () => {
    const { url } = await startAlice()
    const folder = await temporaryFolder()
    const [piped, saved, json] = await Promise.all([
      convoke(['call', url, 'bytes'], { asBytes: true }),
      convoke(['call', url, 'bytes', '--out', 'result.bin'], { cwd: folder }),
      convoke(['call', url, 'bytes', '-o', 'json']),
    ])
    expect(piped.stdout).toBe(Buffer.from([0, 255, 10]).toString('latin1'))
    expect({ code: saved.code, stdout: saved.stdout }).toEqual({ code: 0, stdout: '' })
    expect([...(await readFile(join(folder, 'result.bin')))]).toEqual([0, 255, 10])
    expect(JSON.parse(json.stdout)).toMatchObject({ result: { base64: 'AP8K', bytes: 3 } })
  })

  test('answers questions with --answer, and names the task that waits where nobody can', async () => {
    const { url } = await startAlice()
    const answered = await convoke(['call', url, 'ask', '--answer', 'Ann', '--answer', '{"n":3}'])
    expect(answered.code).toBe(0)
    expect(JSON.parse(answered.stdout)).toEqual({ name: 'Ann', more: { n: 3 } })

    const { code, stderr } = await convoke(['call', url, 'ask', '--answer', 'Ann'])
    expect(code).toBe(1)
    expect(stderr).toContain('CONVOKE_ERR_QUESTION: It asks, and nobody can answer here: How many? The task ')
    const [, taskId = ''] = /The task (\S+) waits/.exec(stderr) ?? []
    expect(stderr).toContain(`convoke send -a ${url} --task-id ${taskId} "<reply>"`)
    const { body } = await rpc<{ status: { state: string } }>(url, 'GetTask', { id: taskId })
    expect(body.result?.status.state).toBe('TASK_STATE_INPUT_REQUIRED')
  })

  test('takes a text for what a language model would have said', async () => {
    const { url } = await startAlice()
    const answered = await convoke(['call', url, 'consult', '--answer', 'Four.'])
    expect(JSON.parse(answered.stdout)).toMatchObject({ role: 'assistant', content: { type: 'text', text: 'Four.' } })
    const message = { role: 'assistant', content: { type: 'text', text: '4' }, model: 'm-1' }
    const whole = await convoke(['call', url, 'consult', '--answer', JSON.stringify(message)])
    expect(JSON.parse(whole.stdout)).toEqual(message)
    // On a terminal, or what the process takes for one.
    const isTerminal = 'for(const%20each%20of[process.stdin,process.stderr])each.isTTY=true'
    const env = { NODE_OPTIONS: `--import=data:text/javascript,${isTerminal}` }
    const typed = await convoke(['call', url, 'consult'], { stdin: 'Vier.\n', env })
    expect(JSON.parse(typed.stdout)).toMatchObject({ role: 'assistant', content: { type: 'text', text: 'Vier.' } })
    expect(typed.stderr).toContain(
      'The tool asks a language model. Answer in its place:\n(as: Be brief.)\nWhat is 2 + 2?\n',
    )
  })

  test('writes what a tool logs to stderr, or among its events', async () => {
    const { url } = await startAlice()
    const { stdout, stderr } = await convoke(['call', url, 'murmur'])
    expect(JSON.parse(stdout)).toBe('done')
    expect(stderr).not.toContain('\u001b')
    expect(stderr).toMatch(/^notice: Looking.*\nerror: disk: \{"left":3\}\n$/)
    const lines = (await convoke(['call', url, 'murmur', '--stream', '-o', 'json'])).stdout.trim().split('\n')
    expect(lines.map((line) => JSON.parse(line) as unknown).slice(0, 2)).toEqual([
      { type: 'log', level: 'notice', data: 'Looking\u001b[2J.' },
      { type: 'log', level: 'error', data: { left: 3 }, logger: 'disk' },
    ])
  })

  test('leaves a detached task to the peer, with the command that comes back to it', async () => {
    const go = deferred()
    const tool = defineTool({
      name: 'slow',
      description: 'Waits.',
      input: { type: 'object', properties: {} },
      run: async () => {
        await go.promise
        return 'done'
      },
    })
    const { url } = await startNode({ tools: [tool] })
    const { code, stdout, stderr } = await convoke(['call', url, 'slow', '--detach'])
    expect(code).toBe(0)
    const [, taskId = ''] = /^Task ID: (\S+)\n/.exec(stdout) ?? []
    expect(stderr).toBe(`Its events: convoke task subscribe --stream -a ${url} ${taskId}\n`)
    const [, follow = ''] = /Follow: convoke (.*)\n/.exec(stdout) ?? []
    const json = await convoke(['call', url, 'slow', '--detach', '-o', 'json'])
    expect(JSON.parse(json.stdout)).toEqual({
      task_id: expect.any(String),
      context_id: expect.any(String),
      state: expect.stringMatching(/SUBMITTED|WORKING/),
    })
    go.resolve()
    const followed = await convoke(follow.split(' '))
    expect(followed.stdout).toContain('State: TASK_STATE_COMPLETED\n')
    // The node answers no messages.
    expect(followed.stdout).not.toContain('Continue: ')
  })

  /** Says that it runs, counts, and stands still once it is stopped. */
  function ticker() {
    const state = { ticks: 0, stopped: deferred() }
    const tool = defineTool({
      name: 'tick',
      description: 'Ticks until it is stopped.',
      input: { type: 'object', properties: {} },
      async *run(_params, { signal }) {
        yield 'running'
        const timer = setInterval(() => state.ticks++, 1)
        try {
          return await new Promise<never>((_resolve, reject) => {
            signal.addEventListener('abort', () => reject(signal.reason as Error))
          })
        } finally {
          clearInterval(timer)
          state.stopped.resolve()
        }
      },
    })
    return { state, tool }
  }

  test('a Ctrl-C cancels the task, waits for the word of the peer, and exits with 130', async () => {
    const { state, tool } = ticker()
    const node = await startNode({ tools: [tool] })
    const { code, stdout, stderr } = await convoke(['call', node.url, 'tick'], { interruptAt: 'running' })
    const ticks = state.ticks
    expect({ code, stdout }).toEqual({ code: 130, stdout: '"running"\n' })
    expect(stderr).toContain('Cancelled: the peer says the task has stopped.\n')
    expect(stderr).toContain('CONVOKE_ERR_INTERRUPTED')
    await state.stopped.promise
    expect(state.ticks).toBe(ticks)
    expect(node.stats.running).toBe(0)
  })

  test('a reader that has seen enough stops the task, too', async () => {
    const state = { chunks: 0, stopped: deferred() }
    const talker = defineTool({
      name: 'talk',
      description: 'Talks until it is stopped.',
      input: { type: 'object', properties: {} },
      async *run(_params, { signal }) {
        try {
          for (;;) {
            yield { chunk: ++state.chunks }
            await new Promise((resolve) => setTimeout(resolve, 5))
            signal.throwIfAborted()
          }
        } finally {
          state.stopped.resolve()
        }
      },
    })
    const node = await startNode({ tools: [talker] })
    const { code, stderr } = await convoke(['call', node.url, 'talk'], { leaveAt: '"chunk":1' })
    const { chunks } = state
    expect({ code, stderr }).toEqual({ code: 0, stderr: 'Cancelled: the peer says the task has stopped.\n' })
    await state.stopped.promise
    expect(state.chunks).toBe(chunks)
  })

  test('a second Ctrl-C leaves at once, without the word of the peer', async () => {
    const [told, release] = [deferred(), deferred()]
    const deaf = defineTool({
      name: 'deaf',
      description: 'Goes on when it is told to stop.',
      input: { type: 'object', properties: {} },
      async *run(_params, { signal }) {
        signal.addEventListener('abort', () => told.resolve())
        yield 'running'
        await release.promise
        return null
      },
    })
    const { url } = await startNode({ tools: [deaf], server: { cancelGraceMs: 20_000 } })
    const child = spawn(process.execPath, [main, 'call', url, 'deaf'], { env: { PATH: process.env['PATH'] } })
    cleanup(() => child.kill('SIGKILL'))
    const exited = once(child, 'exit')
    child.stdout.once('data', () => child.kill('SIGINT'))
    await within(told.promise, 'the peer to be told')
    child.kill('SIGINT')
    // A shell says 130 for it.
    expect(await within(exited, 'the command to end')).toEqual([null, 'SIGINT'])
    release.resolve()
  })

  test('--timeout cancels the task, and exits with 5', async () => {
    const { tool } = ticker()
    const node = await startNode({ tools: [tool] })
    const { code, stdout } = await convoke(['call', node.url, 'tick', '--timeout', '1s', '-o', 'json'])
    expect(code).toBe(5)
    expect((JSON.parse(stdout) as Envelope).error.code).toBe('A2ACLI_ERR_TIMEOUT')
    expect(node.stats.running).toBe(0)
  })

  test('calls tools of agents of A2A 0.3', async () => {
    const { url } = await startLegacyPeer()
    const { code, stdout } = await convoke(['call', url, 'count_to', '{"n":2}'])
    expect(code).toBe(0)
    expect(linesOf(stdout).at(-1)).toEqual({ counted: 2 })
  })

  test('sends the credentials of the configuration, and exits with 4 without', async () => {
    const server = { auth: { tokens: [{ id: 'me', sha256: hashToken('a-token-for-tests') }] } }
    const { url } = await startAlice({ server })
    const cwd = await folderWith({ alice: { url, auth: { bearer: 'a-token-for-tests' } } })
    const [inside, outside] = await Promise.all([
      convoke(['call', 'alice.count_to', '{"n":1}'], { cwd, env: { A2ACLI_BEARER: 'of-somebody-else' } }),
      convoke(['call', url, 'count_to', '{"n":1}']),
    ])
    expect(inside.code).toBe(0)
    expect(outside.code).toBe(4)
    expect(outside.stderr).toContain('A2ACLI_ERR_CREDENTIALS_MISSING')
  })
})

describe('convoke peers', () => {
  test('shows how each peer is, and --check fails if one is down', async () => {
    const server = { auth: { tokens: [{ id: 'me', sha256: hashToken('a-token-for-tests') }] } }
    const [alice, closed] = await Promise.all([startAlice(), startAlice({ server })])
    const cwd = await folderWith({
      alice: { url: alice.url },
      closed: { url: closed.url, auth: { bearer: 'another' } },
      gone: { url: 'http://127.0.0.1:1' },
    })
    const [json, text, check] = await Promise.all([
      convoke(['peers', '-o', 'json'], { cwd }),
      convoke(['peers'], { cwd }),
      convoke(['peers', '--check'], { cwd }),
    ])
    expect(JSON.parse(json.stdout)).toMatchObject([
      { peer: 'alice', reachable: true, name: 'Alice', version: '1.0', tools: 7, auth: 'ok', error: null },
      { peer: 'closed', reachable: true, auth: 'refused', error: { code: 'unauthenticated' } },
      { peer: 'gone', reachable: false, tools: null, auth: 'unknown', error: { code: 'network' } },
    ])
    expect(json.code).toBe(0)
    expect(text.stdout).toMatch(/^PEER +STATE +AUTH +NAME/)
    expect(text.stdout).toMatch(/^alice +up +ok +Alice +1\.0 JSONRPC +7 +[\d.]+ ms +http/m)
    expect(check.code).toBe(1)
    const healthy = await folderWith({ alice: { url: alice.url } })
    expect((await convoke(['peers', '--check'], { cwd: healthy })).code).toBe(0)
  })
})

test('every command for tools has help with an example', async () => {
  const names = ['tools', 'call', 'servers', 'peers', 'doctor', 'types']
  const [completion, ...helps] = await Promise.all([
    convoke(['completion', 'bash']),
    ...names.map((name) => convoke([name, '--help'])),
  ])
  for (const [i, { code, stdout }] of helps.entries()) {
    expect(code).toBe(0)
    expect(stdout).toMatch(new RegExp(`Examples:\n {2}convoke ${names[i]} ?`))
    expect(completion.stdout).toContain(`'${names[i]}') words=`)
  }
})
