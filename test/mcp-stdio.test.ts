/** `convoke mcp`: a process that an MCP host starts, by the official client, by a real host program, and by hand. */
import { StdioClientTransport } from '@modelcontextprotocol/sdk/client/stdio.js'
import { CallToolResultSchema, ElicitRequestSchema, type Progress } from '@modelcontextprotocol/sdk/types.js'
import { defineTool } from 'convoke'
import { execFile, spawn, type ChildProcess } from 'node:child_process'
import { once } from 'node:events'
import { readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { describe, expect, test, vi } from 'vitest'
import { cleanup, deferred, startNode, temporaryFolder, until, within } from './support/lifetime.ts'
import { connect, initialize } from './support/mcp-host.ts'

// Each test waits for processes, and the other files' tests share the machine.
vi.setConfig({ testTimeout: 60_000 })

const main = fileURLToPath(new URL('../dist/cli/main.js', import.meta.url))
const library = new URL('../dist/index.js', import.meta.url).href
const mcporter = fileURLToPath(new URL('../node_modules/mcporter/dist/cli.js', import.meta.url))

/** Tools that print, and that leave a note when they are stopped. */
const module = `
import { defineTool } from ${JSON.stringify(library)}
import { once } from 'node:events'
import { appendFileSync } from 'node:fs'
console.log('a line of a module')
const note = (text) => appendFileSync(new URL('./notes.txt', import.meta.url), text + '\\n')
export const add = defineTool({
  name: 'add',
  description: 'Adds two numbers.',
  input: { type: 'object', properties: { a: { type: 'number' }, b: { type: 'number' } }, required: ['a', 'b'] },
  run({ a, b }) {
    console.log('a line of a tool')
    process.stdout.write('and half of one')
    return { sum: a + b }
  },
})
export const hold = defineTool({
  name: 'hold',
  description: 'Never ends by itself.',
  input: { type: 'object' },
  async run(_params, { signal, progress }) {
    note('begun')
    progress({ progress: 1 })
    await once(signal, 'abort')
    note('stopped')
    throw signal.reason
  },
})
export const ask = defineTool({
  name: 'ask',
  description: 'Asks a question.',
  input: { type: 'object' },
  run: async (_params, { ask }) => ({ answer: await ask({ message: 'Who?' }) }),
})
`

async function configured(changes: Record<string, unknown> = {}): Promise<{ folder: string; config: string }> {
  const folder = await temporaryFolder()
  await writeFile(join(folder, 'tools.mjs'), module)
  const config = join(folder, 'convoke.json')
  await writeFile(config, JSON.stringify({ agent: { id: 'alice' }, tools: [{ module: './tools.mjs' }], ...changes }))
  return { folder, config }
}

const notes = (folder: string) => readFile(join(folder, 'notes.txt'), 'utf8').catch(() => '')

interface Message {
  readonly id?: number
  readonly result?: unknown
}

/** A process that is spoken to by hand. */
function start(...args: string[]) {
  const child = spawn(process.execPath, [main, 'mcp', ...args], { stdio: ['pipe', 'pipe', 'pipe'] })
  const exited = once(child, 'exit').then(([code]) => code as number | null)
  cleanup(async () => {
    if (child.exitCode === null && child.signalCode === null) child.kill('SIGKILL')
    await exited
  })
  let stdout = ''
  let stderr = ''
  child.stdout.setEncoding('utf8').on('data', (text: string) => (stdout += text))
  child.stderr.setEncoding('utf8').on('data', (text: string) => (stderr += text))
  // A process that has ended reads no more.
  child.stdin.on('error', () => {})
  const messages = (): Message[] =>
    stdout
      .split('\n')
      .filter((line) => line !== '')
      .map((line) => JSON.parse(line) as Message)
  return {
    child,
    stdout: () => stdout,
    stderr: () => stderr,
    say: (message: unknown) =>
      child.stdin.write(`${typeof message === 'string' ? message : JSON.stringify(message)}\n`),
    messages,
    /** The first `count` messages, as soon as there are so many. */
    async heard(count: number): Promise<Message[]> {
      while (stdout.split('\n').length <= count) {
        const more = once(child.stdout, 'data').then(() => true)
        if (!(await Promise.race([more, exited.then(() => false)]))) throw new Error(`It ended: ${stderr}`)
      }
      return messages()
    },
    ended: () => within(exited, `the process to end; it said ${stderr}`),
  }
}

function transport(args: readonly string[]): StdioClientTransport {
  return new StdioClientTransport({ command: process.execPath, args: [main, 'mcp', ...args], stderr: 'pipe' })
}

describe('convoke mcp', () => {
  test('serves the node of a configuration, and nothing but the protocol is on stdout', async () => {
    const { config } = await configured()
    const client = await connect(transport(['--config', config]))
    const { tools } = await client.listTools()
    expect(tools.map(({ name }) => name)).toEqual(expect.arrayContaining(['add', 'hold', 'ask', 'task_result']))
    expect((await client.callTool({ name: 'add', arguments: { a: 1, b: 2 } })).structuredContent).toEqual({ sum: 3 })

    const raw = start('--config', config)
    raw.say(initialize)
    raw.say({ jsonrpc: '2.0', id: 1, method: 'tools/call', params: { name: 'add', arguments: { a: 1, b: 2 } } })
    raw.say('this is not JSON')
    raw.say({ jsonrpc: '2.0', id: 2, method: 'tools/call', params: { name: 'add', arguments: { a: 3, b: 4 } } })
    expect((await raw.heard(3)).map(({ id }) => id)).toEqual([0, 1, 2])
    expect(raw.stderr()).toContain('a line of a module')
    expect(raw.stderr()).toContain('a line of a tool')
    raw.child.stdin.end()
    expect(await raw.ended()).toBe(0)
  })

  test('speaks 2026-07-28, too', async () => {
    const { config } = await configured()
    const raw = start('--config', config)
    const _meta = {
      'io.modelcontextprotocol/protocolVersion': '2026-07-28',
      'io.modelcontextprotocol/clientInfo': { name: 'test-host', version: '1.0.0' },
      'io.modelcontextprotocol/clientCapabilities': { elicitation: { form: {} } },
    }
    raw.say({ jsonrpc: '2.0', id: 1, method: 'server/discover', params: { _meta } })
    raw.say({ jsonrpc: '2.0', id: 2, method: 'tools/call', params: { name: 'ask', _meta } })
    const [, asked] = await raw.heard(2)
    expect(asked?.result).toMatchObject({ resultType: 'input_required' })
    const { requestState } = (asked?.result ?? {}) as { requestState?: string }
    const inputResponses = { answer: { action: 'accept', content: { answer: 'me' } } }
    raw.say({
      jsonrpc: '2.0',
      id: 3,
      method: 'tools/call',
      params: { name: 'ask', inputResponses, requestState, _meta },
    })
    const [, , done] = await raw.heard(3)
    expect(done?.result).toMatchObject({ structuredContent: { answer: 'me' } })
    raw.child.stdin.end()
    expect(await raw.ended()).toBe(0)
  })

  test.each<[string, (child: ChildProcess) => unknown]>([
    ['the end of stdin', (child) => child.stdin?.end()],
    ['SIGTERM', (child) => child.kill('SIGTERM')],
    ['SIGINT', (child) => child.kill('SIGINT')],
    ['a host that reads no more', (child) => child.stdout?.destroy()],
  ])('ends with %s, and stops what runs', async (how, end) => {
    const { folder, config } = await configured({ server: { heartbeatMs: 50 } })
    const raw = start('--config', config)
    raw.say(initialize)
    await raw.heard(1)
    const _meta = { progressToken: 1 }
    raw.say({ jsonrpc: '2.0', id: 1, method: 'tools/call', params: { name: 'hold', _meta } })
    await until(async () => (await notes(folder)).includes('begun'), `the tool to begin before ${how}`)
    end(raw.child)
    expect(await raw.ended()).toBe(0)
    expect(await notes(folder)).toBe('begun\nstopped\n')
  })

  test('a call that the host takes back stops the tool, and the process goes on', async () => {
    const { folder, config } = await configured()
    const client = await connect(transport(['--config', config]), { elicitation: {} })
    client.setRequestHandler(ElicitRequestSchema, () => ({ action: 'accept', content: { answer: 'me' } }))
    const aborter = new AbortController()
    client.callTool({ name: 'hold' }, CallToolResultSchema, { signal: aborter.signal }).catch(() => {})
    await until(async () => (await notes(folder)).includes('begun'), 'the tool to begin')
    aborter.abort()
    await until(async () => (await notes(folder)).includes('stopped'), 'the tool to stop')
    expect((await client.callTool({ name: 'ask' })).structuredContent).toEqual({ answer: 'me' })
  })

  test('says on stderr what is wrong with its arguments, and ends with 2', async () => {
    const { config } = await configured({ server: { port: 'x' } })
    const { config: good } = await configured()
    for (const args of [
      ['--config', config],
      ['--config', '/nowhere/convoke.yaml'],
      ['--config', good, 'http://127.0.0.1:9'],
      ['not a url'],
      ['--log-level', 'loud'],
    ]) {
      const raw = start(...args)
      expect(await raw.ended(), args.join(' ')).toBe(2)
      expect(raw.stdout()).toBe('')
      expect(raw.stderr()).not.toBe('')
    }
  })

  test('prints the block that a host needs to start it', async () => {
    const { config } = await configured()
    const { stdout } = await promisify(execFile)(process.execPath, [main, 'mcp', '--config', config, '--install-hint'])
    const { mcpServers } = JSON.parse(stdout) as { mcpServers: Record<string, { command: string; args: string[] }> }
    expect(Object.keys(mcpServers)).toEqual(['alice'])
    const { command = '', args = [] } = mcpServers['alice'] ?? {}
    const client = await connect(new StdioClientTransport({ command, args, cwd: '/', stderr: 'pipe' }))
    expect((await client.listTools()).tools.map(({ name }) => name)).toContain('add')

    const urls = [
      'localhost:4120',
      'https://agents.example.com/bob',
      'https://carol.example.com/.well-known/agent-card.json',
    ]
    for (const [i, name] of ['peer', 'bob', 'carol'].entries()) {
      const hint = await promisify(execFile)(process.execPath, [main, 'mcp', urls[i] ?? '', '--install-hint'])
      expect(Object.keys((JSON.parse(hint.stdout) as { mcpServers: object }).mcpServers)).toEqual([name])
    }
  })
})

describe('convoke mcp with the URL of an agent', () => {
  test('serves its tools, with progress, questions and cancel all the way', async () => {
    const begun = deferred()
    const stopped = deferred<unknown>()
    const hold = defineTool({
      name: 'hold',
      description: 'Runs until it is stopped.',
      input: { type: 'object' },
      async run(_params, { signal, progress }) {
        progress({ progress: 1, total: 3, message: 'one of three' })
        begun.resolve()
        await once(signal, 'abort')
        stopped.resolve(signal.reason)
        throw signal.reason
      },
    })
    const ask = defineTool({
      name: 'ask',
      description: 'Asks a question.',
      input: { type: 'object' },
      run: async (_params, context) => ({ answer: await context.ask({ message: 'Who?' }) }),
    })
    const peer = await startNode({ agent: { id: 'bob' }, tools: [hold, ask] })
    const client = await connect(transport([peer.url]), { elicitation: {} })
    client.setRequestHandler(ElicitRequestSchema, () => ({ action: 'accept', content: { answer: 'me' } }))
    // The list waits for the first look at the agent.
    const { tools } = await client.listTools()
    expect(tools.map(({ name, title }) => [name, title]).slice(0, 2)).toEqual([
      ['peer__hold', 'peer.hold'],
      ['peer__ask', 'peer.ask'],
    ])
    expect((await client.callTool({ name: 'peer__ask' })).structuredContent).toEqual({ answer: 'me' })
    const heard: Progress[] = []
    const aborter = new AbortController()
    const options = { signal: aborter.signal, onprogress: (progress: Progress) => heard.push(progress) }
    client.callTool({ name: 'peer__hold' }, CallToolResultSchema, options).catch(() => {})
    await begun.promise
    await until(() => heard.some(({ message }) => message === 'one of three'), 'progress')
    aborter.abort()
    expect(await within(stopped.promise, 'the tool of the agent to stop')).toMatchObject({ code: 'canceled' })
    await until(() => peer.stats.running === 0, 'the task of the agent to end')
  })

  test('serves what it can where an agent does not answer', async () => {
    const peer = await startNode({ agent: { id: 'bob' }, tools: [] })
    const { url } = peer
    await peer.stop()
    const client = await connect(transport([url]))
    expect((await client.listTools()).tools.map(({ name }) => name)).toEqual([
      'task_status',
      'task_result',
      'task_answer',
      'task_cancel',
    ])
  })
})

describe('mcporter, a real host program', () => {
  /** In a home of its own: it looks for the hosts that are configured on a machine. */
  const run = async (folder: string, ...args: string[]): Promise<string> => {
    const options = { timeout: 50_000, cwd: folder, env: { ...process.env, HOME: folder } }
    return (await promisify(execFile)(process.execPath, [mcporter, ...args], options)).stdout
  }

  test('lists and calls tools over stdio and over HTTP', async () => {
    const { folder, config } = await configured()
    const stdio = ['--stdio', `${process.execPath} ${main} mcp --config ${config}`, '--name', 'alice']
    expect(await run(folder, 'list', ...stdio, '--schema')).toContain('add')
    expect(JSON.parse(await run(folder, 'call', ...stdio, 'add', 'a=1', 'b=2', '--output', 'json'))).toEqual({ sum: 3 })

    const add = defineTool({
      name: 'add',
      description: 'Adds two numbers.',
      input: { type: 'object', properties: { a: { type: 'number' }, b: { type: 'number' } }, required: ['a', 'b'] },
      run: ({ a, b }) => ({ sum: a + b }),
    })
    const node = await startNode({ tools: [add] })
    const http = ['--http-url', `${node.url}/mcp`, '--allow-http', '--name', 'alice']
    expect(await run(folder, 'list', ...http)).toContain('add')
    expect(JSON.parse(await run(folder, 'call', ...http, 'add', 'a=1', 'b=2', '--output', 'json'))).toEqual({ sum: 3 })
  })
})
