import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { afterAll, afterEach, beforeAll, describe, expect, test, vi } from 'vitest'
import { cleanup, startNode } from './support/lifetime.ts'

// Each test waits for processes, and the other files' tests share the machine.
vi.setConfig({ testTimeout: 30_000 })

const main = fileURLToPath(new URL('../dist/cli/main.js', import.meta.url))
const library = new URL('../dist/index.js', import.meta.url).href

let folder: string
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'convoke-serve-'))
  await writeFile(
    join(folder, 'tools.js'),
    `import { defineTool } from ${JSON.stringify(library)}
export const add = defineTool({
  name: 'add',
  description: 'Adds two numbers.',
  input: { type: 'object', properties: { a: { type: 'number' }, b: { type: 'number' } }, required: ['a', 'b'] },
  traits: { readOnly: true },
  run: ({ a, b }) => ({ sum: a + b }),
})
export const hold = defineTool({
  name: 'hold',
  description: 'Never ends by itself.',
  input: { type: 'object' },
  async *run(_params, { signal }) {
    yield 'holding'
    await new Promise((_resolve, reject) => signal.addEventListener('abort', () => reject(signal.reason)))
  },
})
`,
  )
})
afterAll(() => rm(folder, { recursive: true }))

const children: ChildProcess[] = []
afterEach(() => {
  for (const child of children.splice(0)) if (child.exitCode === null) child.kill('SIGKILL')
})

function start(...args: string[]) {
  const child = spawn(process.execPath, [main, 'serve', ...args], { cwd: folder, stdio: ['ignore', 'pipe', 'pipe'] })
  children.push(child)
  let stdout = ''
  let stderr = ''
  child.stdout.setEncoding('utf8').on('data', (text: string) => (stdout += text))
  child.stderr.setEncoding('utf8').on('data', (text: string) => (stderr += text))
  const ended = once(child, 'close').then(([code]) => ({ code: code as number, stdout, stderr }))
  return {
    child,
    ended,
    /** The text on stdout once it has a whole line (or what the process said when it ended without). */
    async output(line = /\n/): Promise<string> {
      while (!line.test(stdout)) {
        const more = once(child.stdout, 'data').then(() => true)
        if (!(await Promise.race([more, ended.then(() => false)]))) throw new Error(`ended without: ${stderr}`)
      }
      return stdout
    },
  }
}

interface Ready {
  readonly url: string
  readonly doors: readonly { readonly name: string; readonly url: string }[]
  readonly tools: readonly string[]
}

async function write(name: string, text: string): Promise<string> {
  await writeFile(join(folder, name), text)
  return name
}

const node = 'store: { url: ":memory:" }\ntools: [{ module: ./tools.js }]\n'

describe('convoke serve', () => {
  test('says where it is in one JSON line, serves its card, and exits with 0 on SIGTERM', async () => {
    const config = await write('alice.yaml', `agent: { id: alice, name: Alice }\n${node}`)
    const served = start('--config', config, '--port', '0', '-o', 'json', '--log-level', 'silent')
    const ready = JSON.parse(await served.output()) as Ready
    expect(ready.url).toMatch(/^http:\/\/127\.0\.0\.1:\d+/)
    expect(ready.tools).toEqual(['add', 'hold'])
    const card = (await (await fetch(new URL('/.well-known/agent-card.json', ready.url))).json()) as { name: string }
    expect(card.name).toBe('Alice')
    for (const door of ready.doors)
      expect(door).toEqual({ name: expect.any(String), url: expect.stringMatching(/^http:/) })

    served.child.kill('SIGTERM')
    const { code, stderr } = await served.ended
    expect({ code, stderr }).toEqual({ code: 0, stderr: '' })
  })

  test('prints its doors, its tools and a command that works when pasted', async () => {
    const config = await write('bob.yaml', `agent: { id: bob }\n${node}`)
    const served = start('-c', config, '-p', '0', '--log-level', 'silent')
    const text = await served.output(/curl [^]*\n.*\n/)
    expect(text).toMatch(/^bob listens on http:\/\/127\.0\.0\.1:\d+\n/)
    expect(text).toMatch(/\n {2}Agent card +http:\S+\/\.well-known\/agent-card\.json\n/)
    expect(text).toContain('\nTools: add, hold\n')
    const command = text.slice(text.indexOf('curl -s'))
    const curl = spawn('sh', ['-c', command], { stdio: ['ignore', 'pipe', 'inherit'] })
    let answer = ''
    curl.stdout.setEncoding('utf8').on('data', (more: string) => (answer += more))
    await once(curl, 'close')
    expect(JSON.parse(answer)).toMatchObject({ result: { task: { status: { state: 'TASK_STATE_COMPLETED' } } } })
    served.child.kill('SIGINT')
    expect((await served.ended).code).toBe(0)
  })

  test('of a gateway says the tools of others too, by the names that callers use', async () => {
    const { url } = await startNode({ tools: [{ module: join(folder, 'tools.js') }] })
    const silent = createServer()
    await new Promise<void>((done) => silent.listen(0, '127.0.0.1', done))
    cleanup(() => silent.close())
    const gone = `http://127.0.0.1:${(silent.address() as AddressInfo).port}`
    const options = { store: { url: ':memory:' }, aliases: { plus: 'bob.add' }, publish: ['*'] }
    const peers = { bob: { url } }
    const known = await write('gateway.json', JSON.stringify({ agent: { id: 'gw' }, ...options, peers }))
    const slow = { ...peers, slow: { url: gone } }
    const looking = await write('looking.json', JSON.stringify({ agent: { id: 'gw' }, ...options, peers: slow }))
    const first = start('-c', known, '-p', '0', '-o', 'json', '--log-level', 'silent')
    const second = start('-c', looking, '-p', '0', '--log-level', 'silent')
    const { tools, ...ready } = JSON.parse(await first.output()) as Ready
    expect(tools).toEqual(['plus', 'bob.hold'])
    expect(ready).toMatchObject({ looking: false })
    expect(await second.output(/^(Tools|It publishes).*\n/m)).toContain(
      '\nTools: plus, bob.hold (those of others are still being looked for)\n',
    )
    for (const { child, ended } of [first, second]) {
      child.kill('SIGTERM')
      await ended
    }
  })

  test('lets running work finish after the first signal, and exits at once with 130 on a second', async () => {
    const config = await write('hold.yaml', `agent: { id: hold }\nserver: { drainMs: 600000 }\n${node}`)
    const served = start('-c', config, '-p', '0', '-o', 'json', '--log-level', 'info')
    const { doors, url } = JSON.parse(await served.output()) as Ready
    const rpc = doors.find((door) => /json-?rpc/i.test(door.name))?.url ?? url
    const message = {
      messageId: 'm1',
      role: 'ROLE_USER',
      parts: [{ text: 'hold' }],
      metadata: { _tool_call: { name: 'hold', params: {} } },
    }
    const response = await fetch(rpc, {
      method: 'POST',
      headers: { 'Content-Type': 'application/json', 'A2A-Version': '1.0', Accept: 'text/event-stream' },
      body: JSON.stringify({ jsonrpc: '2.0', id: 1, method: 'SendStreamingMessage', params: { message } }),
    })
    const reader = response.body!.pipeThrough(new TextDecoderStream()).getReader()
    let stream = ''
    while (!stream.includes('holding')) stream += (await reader.read()).value ?? ''

    served.child.kill('SIGTERM')
    // It still runs: new connections are refused, and the work goes on.
    await expect
      .poll(() =>
        fetch(new URL('/healthz', url)).then(
          () => 'up',
          () => 'down',
        ),
      )
      .toBe('down')
    expect(served.child.exitCode).toBeNull()
    // A second signal right behind the first is taken for its echo.
    await expect.poll(() => served.child.kill('SIGTERM') && served.child.exitCode).not.toBeNull()
    const { code, stderr } = await served.ended
    expect(code).toBe(130)
    expect(lastLines(stderr)).toEqual([
      'Stopping: 1 task may finish within 600 s (server.drainMs). Ctrl-C again ends it at once.',
    ])
    await reader.cancel().catch(() => undefined)
  })

  test('says that there is an agent, with a message to try, and so does its card', async () => {
    const config = await write(
      'agent.yaml',
      `agent: { id: ann, react: { model: local } }\nmodels: { local: { baseUrl: "http://127.0.0.1:9/v1", model: tiny } }\n`,
    )
    const served = start('-c', config, '-p', '0')
    const told = await served.output(/Try it:\n.*\n/)
    expect(told).toContain('Agent: the model tiny answers messages (models.local)\n')
    const [, url = ''] = /npx convoke chat (http:\S+) --message /.exec(told) ?? []
    const card = (await (await fetch(`${url}/.well-known/agent-card.json`)).json()) as { description: string }
    expect(card.description).toBe('An A2A agent that answers messages.')
    served.child.kill('SIGTERM')
    expect((await served.ended).code).toBe(0)
  })

  test('says that a module was skipped', async () => {
    const config = await write('skips.yaml', `agent: { id: skips }\ntools: [{ module: ./none.js }]\n`)
    const served = start('-c', config, '-p', '0')
    expect(await served.output(/publishes.*\n/)).toContain('It publishes no tools; 1 module was skipped (see above).\n')
    served.child.kill('SIGTERM')
    expect((await served.ended).code).toBe(0)
  })

  test('says in one line that the port is taken', async () => {
    const other = createServer().listen(0, '127.0.0.1')
    await once(other, 'listening')
    const { port } = other.address() as AddressInfo
    const config = await write('taken.yaml', `agent: { id: taken }\n${node}`)
    const ended = await start('-c', config, '--port', String(port)).ended
    other.close()
    expect(ended.code).toBe(1)
    expect(lastLines(ended.stderr)).toEqual([
      `convoke: Another program listens on 127.0.0.1:${port} already. Stop it, or choose another port: --port N, where 0 picks a free one.`,
    ])
  })

  test('refuses a public address without auth in one line', async () => {
    const config = await write('open.yaml', `agent: { id: open }\n${node}`)
    const { code, stdout, stderr } = await start('-c', config, '--host', '0.0.0.0', '--port', '0').ended
    expect({ code, stdout }).toEqual({ code: 1, stdout: '' })
    expect(lastLines(stderr)).toEqual([
      expect.stringMatching(
        /^convoke: Refusing to listen on 0\.0\.0\.0 without authentication: .*allowAnonymous: true\.$/,
      ),
    ])
  })

  test('serves a database to one process only, and tells the second in one line', async () => {
    const config = await write('locked.yaml', `agent: { id: locked }\nstore: { url: "sqlite:./locked.db" }\n`)
    const first = start('-c', config, '--port', '0', '-o', 'json')
    await first.output()
    const { code, stderr } = await start('-c', config, '--port', '0').ended
    expect(code).toBe(1)
    expect(lastLines(stderr)).toEqual([
      expect.stringMatching(/^convoke: The database .* cannot be opened: .* give this one a store\.url of its own\.$/),
    ])
    first.child.kill('SIGTERM')
    expect((await first.ended).code).toBe(0)
  })
})

/** Without the log, whose lines are JSON. */
function lastLines(stderr: string): string[] {
  return stderr.split('\n').filter((line) => line !== '' && !line.startsWith('{'))
}
