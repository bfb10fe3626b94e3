/** `convoke chat` against real nodes and scripted agents, as a process; what is only for a terminal, by its parts. */
import { defineTool, type MessageContext, type MessageHandler } from 'convoke'
import { spawn, type ChildProcessWithoutNullStreams } from 'node:child_process'
import { once } from 'node:events'
import { mkdir, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { PassThrough } from 'node:stream'
import type { ReadStream, WriteStream } from 'node:tty'
import { setTimeout as wait } from 'node:timers/promises'
import { describe, expect, test } from 'vitest'
import { clipToWidth, PrintablePieces, widthOf } from '../dist/cli/chat/printable.js'
import { StatusLine } from '../dist/cli/chat/status-line.js'
import { TerminalLines } from '../dist/cli/chat/terminal-lines.js'
import { TextOutput } from '../dist/cli/chat/text-output.js'
import { hashToken } from '../dist/server/auth/token.js'
import { startAgent } from './support/agent.ts'
import { convoke, linesOf, main } from './support/command.ts'
import { startModelServer } from './support/model-server.ts'
import { cleanup, deferred, startNode, temporaryFolder, until, within } from './support/lifetime.ts'
import { atTerminal } from './support/terminal.ts'
import { artifactOf, says, startScriptedPeer, statusOf, taskAs } from './support/scripted-peer.ts'
import { getTask } from './support/wire.ts'

function wordsOf(message: { parts: { text?: string }[] }): string {
  return message.parts.map(({ text = '' }) => text).join('')
}

/** An agent that says the word back, with what number it is in its conversation. */
function counter(): { onMessage: MessageHandler; contexts: string[] } {
  const contexts: string[] = []
  async function* onMessage(message: Parameters<MessageHandler>[0], { contextId }: MessageContext) {
    contexts.push(contextId)
    const number = contexts.filter((each) => each === contextId).length
    yield `${number}: `
    yield wordsOf(message)
  }
  return { onMessage, contexts }
}

/** A chat whose stdin and signals are the test's. */
function startChat(...args: string[]): RunningChat {
  return startChatIn(import.meta.dirname, ...args)
}

/** What it told is stdout, what it said stderr. */
type RunningChat = ChildProcessWithoutNullStreams & { told: () => string; said: () => string }

function startChatIn(cwd: string, ...args: string[]): RunningChat {
  const env = { PATH: process.env['PATH'], HOME: '/nonexistent' }
  const child = spawn(process.execPath, [main, 'chat', ...args], { cwd, env })
  cleanup(() => child.kill('SIGKILL'))
  let stdout = ''
  let stderr = ''
  child.stdout.on('data', (chunk: Buffer) => (stdout += chunk.toString()))
  child.stderr.on('data', (chunk: Buffer) => (stderr += chunk.toString()))
  return Object.assign(child, { told: () => stdout, said: () => stderr })
}

async function folderWith(config: object): Promise<string> {
  const folder = await temporaryFolder()
  await writeFile(join(folder, 'convoke.yaml'), JSON.stringify({ agent: { id: 'me' }, ...config }))
  return folder
}

interface Line {
  readonly type: string
  readonly [member: string]: unknown
}

describe('with an agent of ours', () => {
  test('an answer is written when it is complete, and with -o json as it comes', async () => {
    const seen = deferred()
    const { url } = await startNode({
      async *onMessage() {
        yield { type: 'progress', progress: 1, total: 2, message: 'calls bob.look' }
        yield 'First, '
        await seen.promise
        yield 'then.'
      },
    })
    const [json, text] = [startChat(url, '--message', 'hello', '-o', 'json'), startChat(url, '--context', 'c')]
    text.stdin.end('hello\n')
    const exited = [json, text].map((child) => once(child, 'close'))
    await until(() => json.told().includes('First, '), 'the first piece, before there is a second')
    expect(text.told()).toBe('')
    seen.resolve()
    for (const each of exited) expect(await within(each, 'the chat to end')).toEqual([0, null])
    expect(text.told()).toBe('First, then.\n')
    expect(json.said() + text.said()).toBe('')
  })

  test('each line of stdin is a message of one conversation, as it stands', async () => {
    const { onMessage, contexts } = counter()
    const { url } = await startNode({ onMessage })
    const { code, stdout, stderr } = await convoke(['chat', url], { stdin: 'one\n\n  \n/new\r\nthree' })
    expect({ code, stdout, stderr }).toEqual({ code: 0, stdout: '1: one\n2: /new\n3: three\n', stderr: '' })
    expect(new Set(contexts).size).toBe(1)
  })

  test('--context goes on with a conversation', async () => {
    const { onMessage, contexts } = counter()
    const { url } = await startNode({ onMessage })
    const first = await convoke(['chat', url, '--message', 'one', '-o', 'json'])
    const contextId = linesOf<Line>(first.stdout).at(-1)?.['contextId']
    const { stdout } = await convoke(['chat', url, '--message', 'two', '--context', String(contextId)])
    expect(stdout).toBe('2: two\n')
    expect(contexts).toEqual([contextId, contextId])
  })

  test('what the agent asks is answered by the next line, on the same task', async () => {
    const tasks: string[] = []
    const { url } = await startNode({
      async *onMessage(_message, context) {
        tasks.push(context.taskId)
        const n = await context.ask({ message: 'How many?', schema: { type: 'integer', minimum: 1 } })
        const name = await context.ask('Whose?')
        yield `${JSON.stringify(n)} of ${JSON.stringify(name)}`
      },
    })
    const { code, stdout } = await convoke(['chat', url], { stdin: 'ask\n0\n3\n7\n' })
    expect(code).toBe(0)
    expect(stdout).toMatch(/^How many\?\nHow many\? The answer did not fit: .*\nWhose\?\n3 of "7"\n$/)
    expect(tasks).toHaveLength(1)
  })

  test('an agent that waits for its next message gets it on its task', async () => {
    const { url } = await startNode({
      async *onMessage(message, { history }) {
        if (history.length === 1) return { state: 'input-required', text: 'Where to?' }
        yield `To ${wordsOf(message)}.`
        return undefined
      },
    })
    const { stdout } = await convoke(['chat', url], { stdin: 'go\nRome\n' })
    expect(stdout).toBe('Where to?\nTo Rome.\n')
  })

  test('a question that nobody answers is a failure, with the way to answer it', async () => {
    const { url } = await startNode({
      async *onMessage(_message, context) {
        yield JSON.stringify(await context.ask('Really?'))
      },
    })
    const { code, stdout, stderr } = await convoke(['chat', url, '--message', 'do it'])
    expect({ code, stdout }).toEqual({ code: 1, stdout: 'Really?\n' })
    expect(stderr).toMatch(
      /^convoke: CONVOKE_ERR_QUESTION: The agent asks, and there is no answer\.\nhint: Answer it: convoke send -a http:\S+ --task-id \S+ "<reply>", or send it again with --answer "<reply>"\.\n$/,
    )
  })

  test('--answer answers what is asked about the --message', async () => {
    const { url } = await startNode({
      async *onMessage(_message, context) {
        const n = await context.ask({ message: 'How many?', schema: { type: 'integer' } })
        yield `${JSON.stringify(n)} of ${JSON.stringify(await context.ask('Whose?'))}`
      },
    })
    const args = ['chat', url, '--message', 'x', '--answer', '3']
    const [all, some, none] = await Promise.all([
      convoke([...args, '--answer', '7', '--answer', 'too much']),
      convoke(args),
      convoke(['chat', url, '--answer', 'x']),
    ])
    expect(all).toMatchObject({ code: 0, stdout: 'How many?\nWhose?\n3 of "7"\n' })
    expect(some).toMatchObject({ code: 1, stdout: 'How many?\nWhose?\n' })
    expect(none).toMatchObject({ code: 2, stdout: '' })
  })

  test('an approval is asked for with one way to give it, and that works', async () => {
    const { url } = await startNode({
      tools: [defineTool({ name: 'pay', description: 'Pays.', input: { type: 'object' }, run: () => 'Paid.' })],
      toolPolicy: [{ tools: 'pay', decision: 'ask' }],
      onMessage: async (_message, { tools }) => JSON.stringify(await tools.call('pay', {})),
    })
    const asked = 'The tool "pay" needs an approval to run with these arguments: {}.\n'
    const [piped, alone, along] = await Promise.all([
      convoke(['chat', url], { stdin: 'pay\nyes\n' }),
      convoke(['chat', url, '--message', 'pay']),
      convoke(['chat', url, '--message', 'pay', '--answer', 'yes', '--context', 'c']),
    ])
    expect(piped).toEqual({ code: 0, stdout: `${asked}"Paid."\n`, stderr: 'convoke: (yes or no)\n' })
    expect(along).toEqual(piped)
    expect(alone).toMatchObject({ code: 1, stdout: asked })
    const [, taskId = '', reply = ''] = /--task-id (\S+) "(approve [0-9a-f]{8})"/.exec(alone.stderr) ?? []
    expect((await convoke(['send', '-a', url, '--task-id', taskId, reply])).stdout).toContain('TASK_STATE_COMPLETED')
  })

  test('a task that fails is told with its code, the lines behind it are sent, and the exit code is 1', async () => {
    const { url } = await startNode({
      async *onMessage(message) {
        if (wordsOf(message) === 'break') return { state: 'failed', text: 'The disk is\u001b[2J full.' }
        yield 'fine'
        return undefined
      },
    })
    const { code, stdout, stderr } = await convoke(['chat', url], { stdin: 'break\ngo on\n' })
    expect({ code, stdout }).toEqual({ code: 1, stdout: 'fine\n' })
    expect(stderr).toBe('The task failed: The disk is[2J full.\n')
  })

  test('-o json tells each event in a line, and an envelope where there is no answer', async () => {
    const { url } = await startNode({
      async *onMessage(_message, context) {
        yield { type: 'progress', progress: 1, message: 'looks' }
        yield { type: 'status', text: 'Thinking.' }
        yield 'a'
        yield { type: 'text', text: 'b', append: false }
        yield { type: 'data', data: { n: 1 }, artifact: 'data' }
        await context.ask({ message: 'Yes?', schema: { type: 'boolean' } })
        return { state: 'rejected', text: 'No.' }
      },
    })
    const { code, stdout } = await convoke(['chat', url, '-o', 'json'], { stdin: 'x\ntrue\n' })
    const lines = linesOf<Line>(stdout)
    const [, task] = lines
    const { taskId, contextId } = task as unknown as { taskId: string; contextId: string }
    const ids = { taskId, contextId }
    expect(lines).toEqual([
      { type: 'sent', text: 'x', messageId: expect.any(String), contextId: null, taskId: null },
      { type: 'task', ...ids },
      { type: 'progress', progress: 1, message: 'looks' },
      { type: 'status', text: 'Thinking.' },
      { type: 'text', artifactId: 'answer', text: 'a' },
      { type: 'restart', artifactId: 'answer' },
      { type: 'text', artifactId: 'answer', text: 'b' },
      { type: 'part', artifactId: 'data', part: { data: { n: 1 } } },
      { type: 'question', taskId, message: 'Yes?', schema: { type: 'boolean' } },
      { type: 'end', state: 'TASK_STATE_INPUT_REQUIRED', ...ids, message: 'Yes?', error: null },
      { type: 'sent', text: 'true', messageId: expect.any(String), ...ids },
      { type: 'end', state: 'TASK_STATE_REJECTED', ...ids, message: 'No.', error: null },
    ])
    expect(code).toBe(1)
    const gone = await convoke(['chat', 'http://127.0.0.1:1', '--message', 'x', '-o', 'json'])
    expect(JSON.parse(gone.stdout)).toMatchObject({ error: { code: 'A2ACLI_ERR_UNREACHABLE' } })
    expect(gone.code).toBe(3)
  })

  test('files are named, data is JSON, and nothing an agent says moves the cursor', async () => {
    const { url } = await startNode({
      async *onMessage() {
        yield 'red \u001b[31m\u009b2J\rover\r\nlong'
        yield { type: 'data', data: { a: [1] } }
        yield { type: 'file', url: 'https://example.com/a.pdf', filename: 'a.pdf' }
        yield { type: 'file', bytes: new Uint8Array(10), filename: 'b\u001b]0;x\u0007.bin', mediaType: 'image/png' }
      },
    })
    const { stdout, stderr } = await convoke(['chat', url, '--message', 'x'])
    expect(stdout).toBe('red [31m2J\nover\nlong\n{"a":[1]}\nhttps://example.com/a.pdf\n')
    expect(stderr).toMatch(
      /^convoke: \[file b\]0;x\.bin \(image\/png\), 10 bytes; convoke task download -a \S+ \S+ saves it\]\n/,
    )
  })

  test('of an answer that begins anew only what stands in the end is written', async () => {
    const { url } = await startNode({
      async *onMessage() {
        yield 'Let me see'
        yield { type: 'text', text: 'Aside.', artifact: 'aside' }
        yield { type: 'text', text: 'It is 5.', append: false }
      },
    })
    const run = await convoke(['chat', url], { stdin: 'x' })
    expect(run).toEqual({ code: 0, stdout: 'Aside.\nIt is 5.\n', stderr: '' })
  })

  test('an answer that is too long to be held is written as it comes, and then told to begin anew', async () => {
    const long = 'x'.repeat(3_000_000)
    const { url } = await startNode({
      async *onMessage() {
        for (let n = 0; n < 3; n++) yield long
        yield { type: 'text', text: 'Short.', append: false }
      },
    })
    const { code, stdout, stderr } = await convoke(['chat', url], { stdin: 'x' })
    expect({ code, length: stdout.length, end: stdout.slice(-8) }).toEqual({
      code: 0,
      length: 9_000_008,
      end: '\nShort.\n',
    })
    expect(stderr).toBe('convoke: The answer begins anew; what came so far does not count.\n')
  })

  test('what had come of an answer that fails is on stderr', async () => {
    const { url } = await startNode({
      async *onMessage() {
        yield 'half '
        yield { type: 'data', data: { n: 1 } }
        return { state: 'failed', text: 'The model was cut off.' }
      },
    })
    const run = await convoke(['chat', url, '--message', 'x'])
    expect(run).toEqual({
      code: 1,
      stdout: '',
      stderr: 'convoke: This had come of the answer: half \n{"n":1}\nThe task failed: The model was cut off.\n',
    })
  })

  test('an end without an answer is told', async () => {
    const { url } = await startNode({
      async *onMessage(message) {
        if (wordsOf(message) === 'blank') yield ' \n'
        if (wordsOf(message) === 'data') yield { type: 'data', data: 0 }
      },
    })
    const { code, stdout, stderr } = await convoke(['chat', url], { stdin: 'nothing\nblank\ndata\n' })
    expect({ code, stdout }).toEqual({ code: 0, stdout: ' \n0\n' })
    expect(stderr).toBe('convoke: The agent ended without an answer.\n'.repeat(2))
  })

  test('--message tells how to go on with the conversation, unless that is known', async () => {
    const { onMessage, contexts } = counter()
    const { url } = await startNode({ onMessage })
    const first = await convoke(['chat', url, '--message', 'one'])
    expect(first).toEqual({
      code: 0,
      stdout: '1: one\n',
      stderr: `convoke: Go on with this conversation: convoke chat ${url} --context ${contexts[0]}\n`,
    })
    const second = await convoke(['chat', url, '--message', 'two', '--context', contexts[0] ?? ''])
    expect(second).toEqual({ code: 0, stdout: '2: two\n', stderr: '' })
  })

  test('the id of a conversation moves no cursor where it is told how to go on', async () => {
    const contextId = 'c\u001b]0;owned\u0007\u009b2J\r\u202e'
    const { url } = await startScriptedPeer(
      ({ method, result }) => {
        if (method !== 'GET') result({ message: { ...says('Hello.'), contextId } })
      },
      { card: () => ({ capabilities: {} }) },
    )
    const { code, stderr } = await convoke(['chat', url, '--message', 'one'])
    expect({ code, stderr }).toEqual({
      code: 0,
      stderr: `convoke: Go on with this conversation: convoke chat ${url} --context 'c]0;owned2J\n'\n`,
    })
  })

  test('what there is to choose from is told without a terminal, too', async () => {
    const { url } = await startNode({
      async *onMessage(_message, context) {
        yield JSON.stringify(await context.ask({ message: 'Which?', schema: { enum: ['red', 'blue'] } }))
      },
    })
    const [piped, alone, sent] = await Promise.all([
      convoke(['chat', url], { stdin: 'x\nred\n' }),
      convoke(['chat', url, '--message', 'x']),
      convoke(['send', 'x', '-a', url]),
    ])
    expect(piped).toEqual({ code: 0, stdout: 'Which?\n"red"\n', stderr: 'convoke: ("red" | "blue")\n' })
    expect(alone.stderr).toContain('convoke: ("red" | "blue")\n')
    expect(sent.stdout).toContain('\nAnswer: "red" | "blue"\nResume: convoke send ')
  })

  test('peers of the configuration are known by their ids, with their credentials', async () => {
    const server = { auth: { tokens: [{ id: 'me', sha256: hashToken('a-token-for-tests') }] } }
    const { url } = await startNode({ onMessage: () => 'Inside.', server })
    const cwd = await folderWith({ peers: { bob: { url, auth: { bearer: 'a-token-for-tests' } } } })
    const [inside, outside, nobody] = await Promise.all([
      convoke(['chat', 'bob', '--message', 'x'], { cwd }),
      convoke(['chat', url, '--message', 'x']),
      convoke(['chat', 'bib', '--message', 'x'], { cwd }),
    ])
    expect(inside).toMatchObject({ code: 0, stdout: 'Inside.\n' })
    expect(outside.code).toBe(4)
    expect(nobody).toMatchObject({ code: 2, stdout: '' })
    expect(nobody.stderr).toContain('Did you mean "bob"?')
  })
})

describe('stopping', () => {
  /** An agent that says something and then only stops when it is told to. */
  function holder(): { onMessage: MessageHandler; stopped: Promise<void>; task: () => string } {
    const stopped = deferred()
    let task = ''
    async function* onMessage(_message: unknown, { signal, taskId }: MessageContext) {
      task = taskId
      yield 'Well, '
      await wait(60_000, undefined, { signal }).catch(() => stopped.resolve())
    }
    return { onMessage, stopped: stopped.promise, task: () => task }
  }

  test('Ctrl-C cancels the task under way, waits for the word of the agent, and ends with 130', async () => {
    const { onMessage, stopped, task } = holder()
    const { url } = await startNode({ onMessage })
    const child = startChat(url, '-o', 'json')
    const exited = once(child, 'close')
    child.stdin.write('think\nnever sent\n')
    await until(() => child.told().includes('Well, '), 'the answer to begin')
    child.kill('SIGINT')
    await within(stopped, 'the handler to hear of it')
    expect(await within(exited, 'the chat to end')).toEqual([130, null])
    const lines = linesOf<Line>(child.told())
    expect(lines.filter(({ type }) => type === 'sent')).toHaveLength(1)
    expect(lines.at(-2)).toMatchObject({ type: 'end', state: 'TASK_STATE_CANCELED' })
    expect((await getTask(url, task())).status.state).toBe('TASK_STATE_CANCELED')
  })

  test('a second Ctrl-C leaves at once, without the word of the agent', async () => {
    const told = deferred()
    const peer = await startScriptedPeer(async ({ method, events }) => {
      if (method === 'SendStreamingMessage') await events({ task: taskAs('t', 'TASK_STATE_WORKING') })
      // It never answers.
      if (method === 'CancelTask') told.resolve()
    })
    const child = startChat(peer.url, '--message', 'x', '-o', 'json')
    const exited = once(child, 'exit')
    await until(() => child.told().includes('"task"'), 'the task to begin')
    child.kill('SIGINT')
    await within(told.promise, 'the agent to be told')
    child.kill('SIGINT')
    expect(await within(exited, 'the chat to end')).toEqual([130, null])
  })

  test('Ctrl-C before the agent has named the task stops it, too', async () => {
    const { onMessage, stopped } = holder()
    const node = await startNode({ onMessage })
    // A proxy that holds the stream back: the first word of it never comes.
    const peer = await startScriptedPeer(
      async ({ method, params, result, res }) => {
        if (method === 'SendStreamingMessage') {
          res.writeHead(200, { 'content-type': 'text/event-stream' }).flushHeaders()
          await send(node.url, 'SendMessage', { ...params, configuration: { returnImmediately: true } })
        } else if (method !== 'GET') result(await send(node.url, method, params))
      },
      {
        card: (url) => ({
          ...node.card(),
          supportedInterfaces: [{ url, protocolBinding: 'JSONRPC', protocolVersion: '1.0' }],
        }),
      },
    )
    const child = startChat(peer.url, '--message', 'x')
    const exited = once(child, 'exit')
    await until(() => node.stats.running === 1, 'the task to begin')
    child.kill('SIGINT')
    await within(stopped, 'the handler to hear of it')
    expect(await within(exited, 'the chat to end')).toEqual([130, null])
  })

  test('SIGTERM cancels the task, too', async () => {
    const { onMessage, stopped } = holder()
    const node = await startNode({ onMessage })
    const child = startChat(node.url, '--message', 'x')
    const exited = once(child, 'close')
    await until(() => node.stats.running === 1, 'the answer to begin')
    child.kill('SIGTERM')
    await within(stopped, 'the handler to hear of it')
    expect(await within(exited, 'the chat to end')).toEqual([130, null])
    expect(child.told()).toBe('')
    expect(child.said()).toContain('Cancelled: the agent says the task has stopped.')
  })

  test('while nothing is under way, Ctrl-C ends a chat that reads a pipe', async () => {
    const { url } = await startNode({ onMessage: () => 'Hi.' })
    const child = startChat(url)
    const exited = once(child, 'exit')
    child.stdin.write('hello\n')
    await until(() => child.told() === 'Hi.\n', 'the answer')
    child.kill('SIGINT')
    expect(await within(exited, 'the chat to end')).toEqual([130, null])
  })

  test('--timeout is for each message: the task is cancelled, and the exit code is 5', async () => {
    const { onMessage, stopped } = holder()
    const { url } = await startNode({ onMessage })
    const { code, stderr } = await convoke(['chat', url, '--message', 'x', '--timeout', '300ms'])
    await within(stopped, 'the handler to hear of it')
    expect(code).toBe(5)
    expect(stderr).toContain('A2ACLI_ERR_TIMEOUT')
  })

  test('whoever reads no further has the task stopped', async () => {
    const stopped = deferred()
    const { url } = await startNode({
      async *onMessage(_message, { signal }) {
        signal.addEventListener('abort', () => stopped.resolve())
        for (;;) {
          signal.throwIfAborted()
          yield 'word '
          await wait(1)
        }
      },
    })
    const { code } = await convoke(['chat', url, '--message', 'x', '-o', 'json'], { leaveAt: 'word' })
    await within(stopped.promise, 'the handler to hear of it')
    expect(code).toBe(0)
  })
})

async function send(url: string, method: string, params: object): Promise<unknown> {
  const response = await fetch(url, {
    method: 'POST',
    headers: { 'content-type': 'application/json', 'a2a-version': '1.0' },
    body: JSON.stringify({ jsonrpc: '2.0', id: 1, method, params }),
  })
  return ((await response.json()) as { result: unknown }).result
}

describe('with agents of others', () => {
  test('an agent of A2A 0.3 streams its answer and asks', async () => {
    const status = (state: string, text?: string) => ({
      kind: 'status-update',
      taskId: 't',
      contextId: 'c',
      final: state !== 'working',
      status: {
        state,
        ...(text === undefined
          ? {}
          : { message: { kind: 'message', messageId: 'm', role: 'agent', parts: [{ kind: 'text', text }] } }),
      },
    })
    const piece = (text: string, append: boolean) => ({
      kind: 'artifact-update',
      taskId: 't',
      contextId: 'c',
      append,
      artifact: { artifactId: 'a', parts: [{ kind: 'text', text }] },
    })
    const agent = await startAgent(
      {
        'message/stream': ({ params }) => {
          const { message } = params as unknown as { message: { taskId?: string } }
          if (message.taskId !== undefined)
            return { events: [piece('Rome it is.', false), status('completed', 'Rome it is.')] }
          return {
            events: [
              status('working', 'Looking.'),
              piece('To', false),
              piece(' go.', true),
              status('input-required', 'Where?'),
            ],
          }
        },
      },
      (url) => ({
        protocolVersion: '0.3.0',
        url: `${url}/rpc`,
        preferredTransport: 'JSONRPC',
        supportedInterfaces: [],
        capabilities: { streaming: true },
      }),
    )
    const { code, stdout, stderr } = await convoke(['chat', agent.url], { stdin: 'go\nRome\n' })
    expect({ code, stdout }).toEqual({ code: 0, stdout: 'To go.\nWhere?\nRome it is.\n' })
    expect(stderr).toContain('begins anew')
    const sent = agent.requests.map(({ params }) => (params as unknown as { message: object }).message)
    expect(sent).toMatchObject([{ role: 'user' }, { contextId: 'c', taskId: 't' }])
  })

  test('an agent that does not stream is asked until it is done', async () => {
    let looks = 0
    const agent = await startAgent({
      SendMessage: () => ({ result: { task: taskAs('t', 'TASK_STATE_WORKING') } }),
      GetTask: () => {
        const isDone = ++looks > 2
        const artifacts = [{ artifactId: 'a', parts: [{ text: 'Done.' }] }]
        return {
          result: isDone ? taskAs('t', 'TASK_STATE_COMPLETED', { artifacts }) : taskAs('t', 'TASK_STATE_WORKING'),
        }
      },
    })
    const { code, stdout } = await convoke(['chat', agent.url, '--message', 'x'])
    expect({ code, stdout }).toEqual({ code: 0, stdout: 'Done.\n' })
  })

  test('a bare message is an answer, and its context that of the conversation', async () => {
    const agent = await startAgent({
      SendMessage: () => ({ result: { message: { ...says('Hello.'), contextId: 'theirs' } } }),
    })
    const { stdout } = await convoke(['chat', agent.url], { stdin: 'a\nb\n' })
    expect(stdout).toBe('Hello.\nHello.\n')
    const sent = agent.requests.map(({ params }) => (params as unknown as { message: { contextId?: string } }).message)
    expect(sent.map(({ contextId }) => contextId)).toEqual([undefined, 'theirs'])
  })

  test('the closing words of a task are shown, unless they are the answer once more', async () => {
    const peer = await startScriptedPeer(async ({ method, events, call, res }) => {
      if (method !== 'SendStreamingMessage') return
      const id = `t${call}`
      await events({ task: taskAs(id, 'TASK_STATE_WORKING') })
      if (call === 1) {
        await events(artifactOf(id, 'a', [{ text: 'Same.' }]), statusOf(id, 'TASK_STATE_COMPLETED', says('Same.')))
      } else if (call === 2) {
        await events(artifactOf(id, 'a', [{ text: 'Answer.' }]), statusOf(id, 'TASK_STATE_COMPLETED', says('Bye.')))
      } else {
        // One that says everything in the state of its task.
        await events(statusOf(id, 'TASK_STATE_WORKING', says('Only this.')), statusOf(id, 'TASK_STATE_COMPLETED'))
      }
      res.end()
    })
    const { stdout } = await convoke(['chat', peer.url], { stdin: '1\n2\n3\n' })
    expect(stdout).toBe('Same.\nAnswer.\nBye.\nOnly this.\n')
  })

  test('an answer whose connection is lost goes on where it was, and nothing comes twice', async () => {
    const peer = await startScriptedPeer(async ({ method, events, result, res, call }) => {
      if (method === 'SendStreamingMessage') {
        await events({ task: taskAs('t', 'TASK_STATE_WORKING') }, artifactOf('t', 'a', [{ text: 'One, ' }]))
        res.destroy()
      } else if (method === 'SubscribeToTask' && call === 1) {
        const artifacts = [{ artifactId: 'a', parts: [{ text: 'One, ' }, { text: 'two, ' }] }]
        await events({ task: taskAs('t', 'TASK_STATE_WORKING', { artifacts }) })
        res.destroy()
      } else if (method === 'SubscribeToTask') {
        const artifacts = [{ artifactId: 'a', parts: [{ text: 'One, ' }, { text: 'two, ' }, { text: 'three.' }] }]
        await events({ task: taskAs('t', 'TASK_STATE_COMPLETED', { artifacts }) })
        res.end()
      } else if (method !== 'GET') result(taskAs('t', 'TASK_STATE_WORKING'))
    })
    const { code, stdout } = await convoke(['chat', peer.url, '--message', 'x'])
    expect({ code, stdout }).toEqual({ code: 0, stdout: 'One, two, three.\n' })
  })

  test('of a task that goes on after a reply, what was shown is not shown again', async () => {
    const first = [{ artifactId: 'a', parts: [{ text: 'First.' }] }]
    const peer = await startScriptedPeer(async ({ method, events, call, res }) => {
      if (method !== 'SendStreamingMessage') return
      if (call === 1) {
        await events(
          artifactOf('t', 'a', [{ text: 'First.' }]),
          statusOf('t', 'TASK_STATE_INPUT_REQUIRED', says('More?')),
        )
      } else {
        const artifacts = [...first, { artifactId: 'b', parts: [{ text: 'Second.' }] }]
        await events({ task: taskAs('t', 'TASK_STATE_COMPLETED', { artifacts }) })
      }
      res.end()
    })
    const { stdout } = await convoke(['chat', peer.url], { stdin: 'x\nyes\n' })
    expect(stdout).toBe('First.\nMore?\nSecond.\n')
  })
})

describe('with the agent of the configuration', () => {
  const module = `import { setTimeout as wait } from 'node:timers/promises'
export async function* onMessage(message, { caller, contextId, signal }) {
  const text = message.parts[0].text
  yield caller.id + ' in ' + contextId + ': ' + text
  if (text === 'hold') await wait(60000, undefined, { signal })
}
setInterval(() => {}, 1000)`

  async function ownFolder(config: object = {}): Promise<string> {
    const folder = await folderWith({ agent: { id: 'me', module: './agent.js' }, ...config })
    await writeFile(join(folder, 'agent.js'), module)
    await writeFile(join(folder, 'package.json'), '{"type":"module"}')
    return folder
  }

  test('it runs in this process, as the caller local, with the store of the configuration', async () => {
    const auth = { tokens: [{ id: 'somebody', sha256: hashToken('else') }] }
    const cwd = await ownFolder({ server: { host: '0.0.0.0', publicUrl: 'https://alice.example.com/a', auth } })
    const first = await convoke(['chat', '--message', 'one', '-o', 'json'], { cwd })
    const { contextId = '', taskId = '' } = linesOf<{ contextId?: string; taskId?: string }>(first.stdout).at(-1) ?? {}
    const second = await convoke(['chat', '--context', contextId, '--message', 'two'], { cwd })
    expect({ code: second.code, stdout: second.stdout }).toEqual({ code: 0, stdout: `local in ${contextId}: two\n` })
    // What was said stays with the node.
    const { createNode } = await import('convoke')
    const { loadConfig } = await import('../dist/config.js')
    const { options } = await loadConfig(join(cwd, 'convoke.yaml'))
    const token = hashToken('local-token')
    const node = await createNode({
      ...options,
      logLevel: 'silent',
      server: { port: 0, auth: { tokens: [{ id: 'local', sha256: token }] } },
    })
    await node.start()
    cleanup(() => node.stop())
    const headers = { authorization: 'Bearer local-token' }
    expect((await getTask(node.url, taskId, { headers })).contextId).toBe(contextId)
  })

  test('a model streams its answer, calls tools by their names, and goes on with the conversation at the next start', async () => {
    const model = await startModelServer([
      ['Let me see.', { call: { name: 'word_count', arguments: { text: 'one two' } } }],
      ['It is ', 'two.'],
      'You asked for words.',
    ])
    const cwd = await folderWith({
      agent: { id: 'me', react: { model: 'local' } },
      models: { local: { baseUrl: model.url, model: 'tiny' } },
      tools: [{ module: './tools.js' }],
    })
    await writeFile(join(cwd, 'package.json'), '{"type":"module"}')
    await writeFile(
      join(cwd, 'tools.js'),
      `import { defineTool } from ${JSON.stringify(new URL('../dist/index.js', import.meta.url).href)}
export const count = defineTool({
  name: 'word_count',
  description: 'Counts words.',
  input: { type: 'object', properties: { text: { type: 'string' } } },
  run: ({ text }) => text.split(' ').length,
})`,
    )
    const first = await convoke(['chat', '--message', 'How many?', '-o', 'json'], { cwd })
    const lines = linesOf<Line & { contextId?: string; text?: string }>(first.stdout)
    expect(first).toMatchObject({ code: 0, stderr: '' })
    expect(lines.filter(({ type }) => type === 'progress')[0]).toMatchObject({ total: 1, message: 'word_count' })
    const answer = lines.slice(lines.findLastIndex(({ type }) => type === 'restart') + 1)
    expect(answer.flatMap(({ type, text }) => (type === 'text' ? [text] : [])).join('')).toBe('It is two.')
    const contextId = lines.at(-1)?.contextId ?? ''
    const second = await convoke(['chat', '--context', contextId, '--message', 'And what?'], { cwd })
    expect(second).toEqual({ code: 0, stdout: 'You asked for words.\n', stderr: '' })
    const said = model.requests[2]?.body.messages.map(({ content }) => content)
    expect(said).toEqual(expect.arrayContaining(['How many?', 'It is two.', 'And what?']))
  })

  test('of a model that is down its address is told, and no attempt before the last', async () => {
    const cwd = await folderWith({
      agent: { id: 'me', react: { model: 'local' } },
      models: { local: { baseUrl: 'http://127.0.0.1:1/v1', model: 'tiny' } },
    })
    const args = ['chat', '--message', 'x', '--context', 'c']
    const { code, stdout, stderr } = await convoke(args, { cwd })
    const all = await convoke([...args, '--debug'], { cwd })
    expect({ code, stdout }).toEqual({ code: 1, stdout: '' })
    expect(stderr).toMatch(
      /^[\d:]{8} error .*127\.0\.0\.1:1 refused the connection.*\nThe task failed \(model_unavailable\): .*\n$/,
    )
    expect(all.stderr).toContain(' warn  A request to a model failed and is made again.')
  })

  test('of an answer that is ignored nothing is on stdout, and why is on stderr', async () => {
    const model = await startModelServer(() => 'No number.')
    const outputSchema = { type: 'object', properties: { n: { type: 'integer' } }, required: ['n'] }
    const cwd = await folderWith({
      agent: { id: 'me', react: { model: 'local', outputSchema, onError: 'ignore' } },
      models: { local: { baseUrl: model.url, model: 'tiny' } },
    })
    const { code, stdout, stderr } = await convoke(['chat'], { cwd, stdin: 'How many?\n' })
    expect({ code, stdout }).toEqual({ code: 0, stdout: '' })
    expect(stderr).toContain('convoke: The agent ended without an answer: output ignored: schema mismatch\n')
  })

  test('where another process has its store, both is said that this may mean', async () => {
    const cwd = await ownFolder({ server: { port: 4129 }, store: { url: 'sqlite:./data/me.db' } })
    await mkdir(join(cwd, 'data'))
    await startNode({ store: { url: `sqlite:${join(cwd, 'data/me.db')}` } })
    const { code, stderr } = await convoke(['chat', '--message', 'x'], { cwd })
    expect(code).toBe(3)
    expect(stderr).toContain('The store sqlite:./data/me.db of this configuration is open in another process.\n')
    expect(stderr).toContain(
      'hint: If that is this node, talk to it by its URL: convoke chat http://127.0.0.1:4129; if it is another one, give this one a store.url of its own.\n',
    )
  })

  test('without an agent and without a configuration, it says what there is to do', async () => {
    const cwd = await temporaryFolder()
    const [nothing, broken] = await Promise.all([
      convoke(['chat'], { cwd }),
      convoke(['chat'], { cwd: await folderWith({ agent: { id: 'me', module: './none.js' } }) }),
    ])
    expect(nothing).toMatchObject({ code: 2, stdout: '' })
    expect(nothing.stderr).toMatch(
      /No agent is named\. There is no convoke\.yaml.*\nhint: Name a configuration: -c FILE/,
    )
    expect(broken.code).not.toBe(0)
    expect(broken.stderr).toContain('./none.js cannot be loaded')
  })

  test('Ctrl-C stops the answer and the node', async () => {
    const cwd = await ownFolder()
    const child = startChatIn(cwd, '-o', 'json')
    const exited = once(child, 'close')
    child.stdin.write('hold\n')
    await until(() => /"local in \S+: hold"/.test(child.told()), 'the answer to begin')
    child.kill('SIGINT')
    expect(await within(exited, 'the chat to end')).toEqual([130, null])
    expect(linesOf<Line>(child.told()).at(-2)).toMatchObject({ type: 'end', state: 'TASK_STATE_CANCELED' })
  })
})

describe('on a terminal', () => {
  const plain = (_format: string, text: string): string => text

  /** What a terminal got, and how wide it is. */
  function screen(columns: number): {
    columns: number
    text: string
    write: (text: string, done?: () => void) => void
  } {
    return {
      columns,
      text: '',
      write(text, done) {
        this.text += text
        done?.()
      },
    }
  }

  test('progress is one line that is replaced, and taken away when the answer goes on', async () => {
    const out = screen(60)
    const status = new StatusLine(out, plain)
    const output = new TextOutput({ out, notes: out, paint: plain, status, fileHint: () => '' })
    await output.show({ type: 'progress', progress: 1, total: 3, message: 'calls bob.look\u001b[2J\nnow' })
    await output.show({ type: 'text', artifactId: 'a', text: 'It is' })
    await output.show({ type: 'progress', progress: 2, message: 'calls bob.tell' })
    await output.show({ type: 'text', artifactId: 'a', text: ' five.' })
    await output.show({ type: 'end', state: null, taskId: null, contextId: null, message: null, error: null })
    const taken = '\u001b8\u001b[K'
    expect(out.text).toBe(`\u001b7[1/3] calls bob.look[2J now${taken}It is\u001b7  calls bob.tell${taken} five.\n`)
  })

  test.each([
    ['of letters', 'x'.repeat(200)],
    ['of wide characters', '漢'.repeat(100)],
    ['of pictures', '🙂'.repeat(100)],
  ])('a line %s never gets to the edge, wherever it begins', (_what, words) => {
    for (const before of ['', 'abc', '漢字', 'x'.repeat(25), 'x'.repeat(40), `${'x'.repeat(39)}\nab`, '\t']) {
      const out = screen(40)
      const status = new StatusLine(out, plain)
      status.wrote(before)
      status.show(words)
      // oxlint-disable-next-line no-control-regex -- the codes of the terminal are what is taken out
      const shown = out.text.replace(/\u001b7|\u001b8|\u001b\[K/g, '')
      const column = widthOf(before.slice(before.lastIndexOf('\n') + 1).replace('\t', ' '.repeat(8))) % 40
      expect(column + widthOf(shown)).toBeLessThan(40)
      // Where there is room for some words.
      expect(shown.includes('…')).toBe(column < 25)
    }
  })

  test('line ends and characters that are cut in two are put together', () => {
    const pieces = new PrintablePieces()
    const [high = '', low = ''] = '🙂'.split('')
    expect(pieces.take(`a${high}`)).toBe('a')
    expect(pieces.take(`${low}b\r`)).toBe('🙂b')
    expect(pieces.take('\nc\r')).toBe('\nc')
    expect(pieces.end()).toBe('\n')
    expect(pieces.end()).toBe('')
    expect(clipToWidth('漢字漢字', 5)).toBe('漢字…')
    expect(clipToWidth('cafe\u0301', 4)).toBe('cafe\u0301')
  })

  /** A keyboard and a terminal, as far as readline knows. */
  function terminal(): { keys: PassThrough; lines: TerminalLines } {
    const keys = new PassThrough()
    const out = Object.assign(new PassThrough(), { isTTY: true, columns: 80 })
    out.resume()
    return { keys, lines: new TerminalLines(keys as unknown as ReadStream, out as unknown as WriteStream) }
  }

  test('what is pasted in many lines is a line each, and Ctrl-D is the end', async () => {
    const { keys, lines } = terminal()
    const { signal } = new AbortController()
    const next = (): Promise<string | undefined> =>
      within(
        lines.next('> ', signal, () => {}),
        'a line',
      )
    const first = next()
    keys.write('one\rtwo\rthr')
    expect(await first).toBe('one')
    expect(await next()).toBe('two')
    const third = next()
    keys.write('ee\r')
    expect(await third).toBe('three')
    const last = next()
    keys.write('\u0004')
    expect(await last).toBeUndefined()
  })

  test('Ctrl-C throws away what was typed, and is told where there is nothing', async () => {
    const { keys, lines } = terminal()
    const end = new AbortController()
    let interrupts = 0
    const line = lines.next('> ', end.signal, () => void interrupts++)
    keys.write('wrong\u0003')
    keys.write('right\r')
    expect(await within(line, 'the line')).toBe('right')
    expect(interrupts).toBe(0)
    const none = lines.next('> ', end.signal, () => {
      interrupts++
      end.abort()
    })
    keys.write('\u0003')
    expect(await within(none, 'the end')).toBeUndefined()
    expect(interrupts).toBe(1)
  })
})

// Elsewhere `script` takes other options.
describe.skipIf(process.platform !== 'linux')('at a real terminal', () => {
  /** An agent that says the first half of its answer, and the other one when it is let. */
  async function startSlow(): Promise<{ url: string; goOn: () => void }> {
    const { promise, resolve: goOn } = deferred()
    const { url } = await startNode({
      async *onMessage(message, { signal }) {
        yield `You said ${wordsOf(message)}, `
        await Promise.race([promise, once(signal, 'abort')])
        signal.throwIfAborted()
        yield 'I say bye.'
      },
    })
    return { url, goOn }
  }

  test('an answer stands behind what was typed, and the next prompt behind it', async () => {
    const { url, goOn } = await startSlow()
    goOn()
    const chat = atTerminal(['chat', url])
    await chat.shows('Ctrl-D leaves.')
    await chat.shows('> ')
    chat.type('one\r')
    await chat.shows('You said one, I say bye.\r\n')
    await chat.shows('> ')
    chat.type('two\r')
    await chat.shows('You said two, I say bye.\r\n')
    await chat.shows('> ')
    chat.type('\u0004')
    await chat.shows('Go on with this conversation')
    expect(await chat.ended()).toBe(0)
  })

  test('Ctrl-D during an answer leaves behind it, and behind lines that were typed before', async () => {
    const { url, goOn } = await startSlow()
    const chat = atTerminal(['chat', url])
    await chat.shows('> ')
    chat.type('one\r')
    await chat.shows('You said one, ')
    chat.type('two\r\u0004')
    chat.type('\u0004')
    await chat.shows('two\r\n')
    goOn()
    await chat.shows('I say bye.\r\n')
    await chat.shows('> two\r\n')
    await chat.shows('You said two, I say bye.\r\n')
    expect(await chat.ended()).toBe(0)
  })

  test('what is logged during an answer is a line of its own', async () => {
    const cwd = await folderWith({ agent: { id: 'me', module: './agent.mjs' } })
    await writeFile(
      join(cwd, 'agent.mjs'),
      `import { existsSync } from 'node:fs'
import { setTimeout as wait } from 'node:timers/promises'
export async function* onMessage(message, { log }) {
  yield 'First, '
  while (!existsSync(${JSON.stringify(join(cwd, 'go'))})) await wait(5)
  log.error({ n: 1 }, 'Something broke.')
  yield 'then.'
}`,
    )
    const chat = atTerminal(['chat'], { cwd })
    await chat.shows('> ')
    chat.type('go\r')
    await chat.shows('First, ')
    await writeFile(join(cwd, 'go'), '')
    await chat.shows('then.\r\n')
    expect(chat.shown()).toMatch(/First, \r\n[\d:]{8} error Something broke\. n=1\r\nthen\.\r\n/)
    await chat.shows('> ')
    chat.type('\u0004')
    expect(await chat.ended()).toBe(0)
  })

  test('Ctrl-C during an answer stops it, and there is a prompt again', async () => {
    const { url, goOn } = await startSlow()
    const chat = atTerminal(['chat', url])
    await chat.shows('> ')
    chat.type('one\r')
    await chat.shows('You said one, ')
    chat.type('\u0003')
    await chat.shows('Cancelled: the agent says the task has stopped.\r\n')
    await chat.shows('> ')
    goOn()
    chat.type('two\r')
    await chat.shows('You said two, I say bye.\r\n')
    await chat.shows('> ')
    chat.type('/quit\r')
    expect(await chat.ended()).toBe(0)
  })
})

test('the command has help with examples, completion, and refuses what makes no sense', async () => {
  const [help, completion, empty, bad] = await Promise.all([
    convoke(['chat', '--help']),
    convoke(['completion', 'bash']),
    convoke(['chat', 'localhost:1', '--message', '']),
    convoke(['chat', '--nope', '-o', 'json']),
  ])
  expect(help.stdout).toMatch(/Examples:\n {2}convoke chat\n/)
  expect(completion.stdout).toContain(`'chat') words=`)
  expect(completion.stdout).toContain('--context')
  expect(empty).toMatchObject({ code: 2, stdout: '' })
  expect(JSON.parse(bad.stdout)).toMatchObject({ error: { code: 'A2ACLI_ERR_USAGE' } })
})
