/** `convoke doctor` against agents that are well, agents that are not, and what stands between. */
import { defineTool, type JsonObject } from 'convoke'
import { once } from 'node:events'
import { createServer, request, type IncomingMessage, type RequestListener } from 'node:http'
import type { AddressInfo } from 'node:net'
import { buffer } from 'node:stream/consumers'
import { setTimeout as wait } from 'node:timers/promises'
import { describe, expect, test } from 'vitest'
import { hashToken } from '../dist/server/auth/token.js'
import { convoke, type RunOptions } from './support/command.ts'
import { cleanup, startNode } from './support/lifetime.ts'
import { startLegacyPeer, startMinimalPeer } from './support/peers.ts'

interface Check {
  readonly id: string
  readonly status: 'ok' | 'warning' | 'fail' | 'skipped'
  readonly message: string
  readonly fix: string | null
}

interface Report {
  readonly code: number | null
  readonly grade: string
  readonly checks: readonly Check[]
  /** The checks with something to mend, as `id status`. */
  readonly bad: readonly string[]
}

async function examine(url: string, args: readonly string[] = [], options: RunOptions = {}): Promise<Report> {
  const { code, stdout, stderr } = await convoke(['doctor', url, '-o', 'json', ...args], options)
  expect(stderr).toBe('')
  const { grade, checks } = JSON.parse(stdout) as { grade: string; checks: Check[] }
  for (const { status, fix } of checks) expect(fix === null).toBe(status === 'ok' || status === 'skipped')
  const bad = checks.filter(({ fix }) => fix !== null).map(({ id, status }) => `${id} ${status}`)
  return { code, grade, checks, bad }
}

async function listen(listener: RequestListener): Promise<string> {
  const server = createServer(listener)
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  cleanup(() => {
    server.closeAllConnections()
    server.close()
  })
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}`
}

const steps = defineTool({
  name: 'steps',
  description: 'Takes a while.',
  input: { type: 'object', properties: { n: { type: 'integer', minimum: 1, maximum: 20 } }, required: ['n'] },
  traits: { idempotent: true },
  async *run({ n }, { signal }) {
    for (let i = 1; i <= n; i++) {
      await wait(40, undefined, { signal })
      yield { i }
    }
    return n
  },
})

const instant = defineTool({
  name: 'instant',
  description: 'Takes no time.',
  input: { type: 'object', properties: { text: { type: 'string' } }, required: ['text'] },
  run: () => null,
})

const counted = { runs: 0 }
const risky = defineTool({
  name: 'risky',
  description: 'Changes something.',
  input: { type: 'object', properties: {} },
  run() {
    counted.runs++
    return null
  },
})

/** Passes everything on, and answers only when the answer is whole, as a proxy that buffers does. */
function startBufferingProxy(target: string, compress = false): Promise<string> {
  return listen((req, res) => {
    const pass = async (): Promise<void> => {
      const headers = { ...req.headers }
      const onward = request(target + (req.url ?? ''), { method: req.method, headers })
      onward.end(await buffer(req))
      const [answer] = (await once(onward, 'response')) as [IncomingMessage]
      const body = await buffer(answer)
      const isStream = String(answer.headers['content-type']).startsWith('text/event-stream')
      const { 'transfer-encoding': _, ...kept } = answer.headers
      res.writeHead(answer.statusCode ?? 502, {
        ...kept,
        'content-length': body.length,
        ...(compress && isStream ? { 'content-encoding': 'gzip' } : {}),
      })
      res.end(body)
    }
    // A client that has left gets nothing.
    pass().catch(() => res.destroy())
  })
}

describe('an agent that is well', () => {
  test('is graded A, and nothing runs there', async () => {
    counted.runs = 0
    const node = await startNode({ tools: [steps, risky] })
    const { code, grade, bad, checks } = await examine(node.url)
    expect({ code, grade, bad }).toEqual({ code: 0, grade: 'A', bad: [] })
    expect(checks.map(({ id }) => id)).toEqual(
      expect.arrayContaining([
        'url',
        'card.path',
        'card.fields',
        'card.caching',
        'card.secrets',
        'interfaces.origin',
        'auth.declared',
        'interface.1.0.jsonrpc',
        'interface.1.0.rest',
        'interface.0.3.jsonrpc',
        'interface.0.3.rest',
        'errors.method',
        'errors.large',
        'webhooks',
        'tools.schemas',
      ]),
    )
    expect(checks.some(({ id }) => id.startsWith('stream') || id === 'cancel')).toBe(false)
    expect(counted.runs).toBe(0)
  })

  test('is graded A with --probe, which calls only what is marked as harmless', async () => {
    counted.runs = 0
    const { url } = await startNode({ tools: [risky, steps, instant] })
    const { code, grade, checks, bad } = await examine(url, ['--tool', 'steps', '--params', '{"n":12}'])
    expect({ code, grade, bad }).toEqual({ code: 0, grade: 'A', bad: [] })
    expect(checks.find(({ id }) => id === 'stream.live')?.message).toContain('Events arrive as they are made')
    expect(checks.map(({ id }) => id)).toEqual(
      expect.arrayContaining(['stream.type', 'stream.ids', 'stream.resume', 'stream.end', 'cancel']),
    )
    const short = await examine(url, ['--probe', '--params', '{"text":"a"}', '--tool', 'instant'])
    expect(short).toMatchObject({ code: 0, grade: 'A', bad: [] })
    const skipped = short.checks.filter(({ status }) => status === 'skipped')
    expect(skipped.map(({ id }) => id)).toEqual(['stream.live', 'cancel'])
    expect((await examine(url, ['--probe'])).grade).toBe('A')
    expect(counted.runs).toBe(0)
  })

  test('is told in lines that end with the grade, without colours', async () => {
    const { url } = await startNode({ tools: [steps] })
    const { code, stdout } = await convoke(['doctor', url])
    expect(code).toBe(0)
    expect(stdout).toMatch(/^ok +card\.path: The card is at http/m)
    expect(stdout).toMatch(/\nGrade: A \(\d+ ok, 0 warnings, 0 failed, 1 skipped\)\n$/)
    expect(stdout).toMatch(/^skipped {2}probe: Streaming, resumption and cancel were not tried/m)
    expect(stdout).not.toContain('\u001b')
  })

  test('is examined further with credentials, and refuses wrong ones', async () => {
    const server = { auth: { tokens: [{ id: 'me', sha256: hashToken('a-token-for-tests') }] } }
    const { url } = await startNode({ tools: [steps], server })
    const [none, right, wrong] = await Promise.all([
      examine(url),
      examine(url, [], { env: { A2ACLI_BEARER: 'a-token-for-tests' } }),
      examine(url, [], { env: { A2ACLI_BEARER: 'another-token' } }),
    ])
    expect(none).toMatchObject({ code: 0, grade: 'B', bad: ['auth.credentials warning'] })
    expect(right).toMatchObject({ code: 0, grade: 'A', bad: [] })
    expect(wrong).toMatchObject({ code: 1, grade: 'D', bad: ['auth.credentials fail'] })
  })
})

describe('other agents', () => {
  test('one without caching headers and one of A2A 0.3 get warnings for it', async () => {
    const [minimal, legacy] = await Promise.all([startMinimalPeer(), startLegacyPeer()])
    const [first, second] = await Promise.all([examine(minimal.url), examine(legacy.url)])
    expect(first.code).toBe(0)
    expect(first.bad).toContain('card.caching warning')
    expect(second.code).toBe(0)
    expect(second.bad).toContain('interfaces.version warning')
    expect(minimal.runs).toBe(0)
    expect(legacy.runs).toBe(0)
  })

  test('one that is broken in many ways gets a row for each, and exit code 1', async () => {
    const card = (url: string): JsonObject => ({
      name: 'Broken',
      description: 'Token for debugging: ghp_abcdefghijklmnopqrstuvwxyz0123456789',
      supportedInterfaces: [
        { url, protocolBinding: 'JSONRPC', protocolVersion: '1.0' },
        { url: 'https://elsewhere.example.com', protocolBinding: 'HTTP+JSON', protocolVersion: '1.0' },
      ],
      capabilities: { streaming: true, pushNotifications: true },
      securityRequirements: [{ schemes: { key: { list: [] } } }],
      securitySchemes: { key: { apiKeySecurityScheme: { location: 'header', name: 'X-Key' } } },
      defaultInputModes: ['text/plain'],
      defaultOutputModes: ['text/plain'],
      skills: [{ id: 'tool-odd', name: 'odd', description: '', tags: ['tool'], input_schema: { type: 'objekt' } }],
    })
    const url = await listen((req, res) => {
      if (req.url === '/.well-known/agent-card.json') {
        res.writeHead(200, { 'content-type': 'text/plain' }).end(JSON.stringify(card(`http://${req.headers.host}`)))
        return
      }
      req.resume().once('end', () => {
        res.writeHead(404, { 'content-type': 'text/html' }).end('<html>Not found</html>')
      })
    })
    const { code, grade, bad } = await examine(url)
    expect({ code, grade }).toEqual({ code: 1, grade: 'F' })
    expect(bad).toEqual([
      'card.content_type warning',
      'card.fields fail',
      'card.caching warning',
      'card.secrets fail',
      'interfaces.origin warning',
      'auth.declared fail',
      'interface.1.0.jsonrpc fail',
      'tools.schemas fail',
      'tools.descriptions warning',
    ])
  })

  test('mistakes in the URL are told with the right one', async () => {
    const { url } = await startNode({ tools: [steps] })
    const page = await listen((_req, res) => void res.writeHead(200).end('<html>Welcome</html>'))
    const moved = await listen((req, res) => void res.writeHead(301, { location: url + (req.url ?? '') }).end())
    const [card, path, website, nobody, redirected] = await Promise.all([
      examine(`${url}/.well-known/agent-card.json`),
      examine(`${url}/some/path`),
      examine(page),
      examine('http://127.0.0.1:1'),
      examine(moved),
    ])
    expect(card.bad).toEqual(['url warning'])
    expect(card.checks[0]?.fix).toBe(`Name the agent by ${url}; the card is found there.`)
    expect(path.bad).toEqual(['card.path warning'])
    expect(website).toMatchObject({ code: 1, grade: 'F', bad: ['card.json fail'] })
    expect(nobody).toMatchObject({ code: 1, grade: 'F', bad: ['card.path fail'] })
    expect(nobody.checks.map(({ id }) => id)).toEqual(['card.path'])
    expect(redirected.bad).toContain('card.redirect warning')
  })
})

describe('a proxy before the agent', () => {
  test('that buffers streams is found out', async () => {
    const node = await startNode({ tools: [steps] })
    const proxy = await startBufferingProxy(node.url)
    const { code, bad, checks } = await examine(proxy, ['--tool', 'steps', '--params', '{"n":15}'])
    expect(code).toBe(1)
    expect(bad).toEqual(['stream.live fail'])
    expect(checks.find(({ id }) => id === 'stream.live')?.fix).toContain('X-Accel-Buffering: no')
  })

  test('that compresses streams is found out', async () => {
    const node = await startNode({ tools: [steps] })
    const proxy = await startBufferingProxy(node.url, true)
    const { code, bad } = await examine(proxy, ['--probe'])
    expect(code).toBe(1)
    expect(bad).toEqual(['stream.encoding fail'])
  })
})
