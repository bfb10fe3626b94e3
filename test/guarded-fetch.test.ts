import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { readFileSync } from 'node:fs'
import { createServer, type IncomingMessage, type RequestListener, type ServerResponse } from 'node:http'
import { createServer as createTlsServer, type ServerOptions } from 'node:https'
import type { AddressInfo, LookupFunction } from 'node:net'
import { join } from 'node:path'
import { brotliCompressSync, deflateSync, gzipSync } from 'node:zlib'
import { describe, expect, test, vi } from 'vitest'
import { isPublicAddress } from '../dist/base/address.js'
import {
  createGuardedFetch,
  NetworkError,
  type GuardedFetch,
  type GuardedFetchOptions,
  type GuardedRequest,
} from '../dist/base/guarded-fetch.js'
import { cleanup, deferred, until, within } from './support/lifetime.ts'

const get: GuardedRequest = { method: 'GET', headers: {} }
const mebibyte = 1024 * 1024

const pem = (name: string): string => readFileSync(join(import.meta.dirname, 'support/tls', `${name}.pem`), 'utf8')
const certificate = { cert: pem('certificate'), key: pem('key') }

interface Host {
  readonly url: string
  readonly port: number
  /** How many connections were made to it. */
  readonly connections: () => number
}

/** A server on this machine; with `tls` over https. */
async function serve(listener: RequestListener, tls?: ServerOptions): Promise<Host> {
  const server = tls === undefined ? createServer(listener) : createTlsServer(tls, listener)
  // Longer than any test waits: what ends sooner does not end because of this.
  server.keepAliveTimeout = 60_000
  let connections = 0
  server.on('connection', () => connections++)
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  cleanup(() => {
    server.closeAllConnections()
    return new Promise((resolve) => server.close(resolve))
  })
  const { port } = server.address() as AddressInfo
  return { url: `http${tls === undefined ? '' : 's'}://127.0.0.1:${port}`, port, connections: () => connections }
}

/** A fetch that may call this machine, closed when the test is over. */
function open(options: Partial<GuardedFetchOptions> = {}): GuardedFetch {
  const fetch = createGuardedFetch({ allowPrivate: true, ...options })
  cleanup(() => fetch.close())
  return fetch
}

/** Resolves every name to these addresses. */
function resolvingTo(...addresses: string[]): LookupFunction {
  return (_hostname, _options, callback) => {
    const answer = addresses.map((address) => ({ address, family: address.includes(':') ? 6 : 4 }))
    setImmediate(() => callback(null, answer))
  }
}

/** What a promise fails with. */
async function failureOf(promise: Promise<unknown>): Promise<unknown> {
  const failure = await within(
    promise.then(
      () => undefined,
      (error: unknown) => error,
    ),
    'a failure',
  )
  expect(failure).toBeDefined()
  return failure
}

async function networkErrorOf(promise: Promise<unknown>): Promise<NetworkError> {
  const failure = await failureOf(promise)
  if (!(failure instanceof NetworkError)) throw failure
  return failure
}

async function readAll(body: AsyncIterable<Uint8Array>): Promise<Buffer> {
  const chunks: Uint8Array[] = []
  for await (const chunk of body) chunks.push(chunk)
  return Buffer.concat(chunks)
}

async function bodyOf(req: IncomingMessage): Promise<string> {
  return (await readAll(req)).toString()
}

const ok: RequestListener = (_req, res) => res.end('ok')

describe('an address', () => {
  test.each([
    ['0.0.0.0', false],
    ['10.0.0.1', false],
    ['100.64.0.1', false],
    ['127.0.0.1', false],
    ['127.255.255.254', false],
    ['168.63.129.16', false],
    ['169.254.169.254', false],
    ['172.16.0.1', false],
    ['172.32.0.1', true],
    ['192.0.0.192', false],
    ['192.168.0.1', false],
    ['198.18.0.1', false],
    ['224.0.0.1', false],
    ['240.0.0.1', false],
    ['255.255.255.255', false],
    ['8.8.8.8', true],
    ['::', false],
    ['::1', false],
    ['::7f00:1', false],
    ['::10.0.0.1', false],
    ['::ffff:7f00:1', false],
    ['::ffff:10.0.0.1', false],
    ['::ffff:8.8.8.8', true],
    ['::ffff:0:10.0.0.1', false],
    ['64:ff9b::a00:1', false],
    ['64:ff9b::a9fe:a9fe', false],
    ['64:ff9b::808:808', true],
    ['64:ff9b:1::a00:1', false],
    ['100::1', false],
    ['2001:0:a00:1::', false],
    ['2001:db8::1', false],
    ['2002:a00:1::', false],
    ['2606:4700::1111', true],
    ['4000::1', false],
    ['fc00::1', false],
    ['fd00:ec2::254', false],
    ['fe80::1', false],
    ['fe80::1%eth0', false],
    ['fec0::1', false],
    ['ff02::1', false],
    ['localhost', false],
    ['', false],
  ])('%s: of the public internet is %s', (address, isPublic) => {
    expect(isPublicAddress(address)).toBe(isPublic)
  })

  test.each([
    '127.0.0.1',
    '2130706433',
    '0x7f000001',
    '0177.0.0.1',
    '127.1',
    '127.0.0.1.',
    '0',
    '0.0.0.0',
    'localhost',
    'LOCALHOST',
    'localhost.',
    'a.localhost',
    'a.localhost.',
    '[::1]',
    '[::]',
    '[::ffff:127.0.0.1]',
    '[::127.0.0.1]',
    '[64:ff9b::127.0.0.1]',
    '10.0.0.1',
    '169.254.169.254',
    '[fd00:ec2::254]',
  ])('%s is not connected to, even if a resolver says that it is public', async (host) => {
    const { port, connections } = await serve(ok)
    const fetch = open({ allowPrivate: false, lookup: resolvingTo('8.8.8.8') })
    const failure = await failureOf(fetch.text(`http://${host}:${port}/`, get))
    expect(failure).toMatchObject({ code: 'forbidden', message: expect.stringContaining('allowPrivate') as string })
    expect(failure).toMatchObject({
      message: expect.stringContaining(new URL(`http://${host}`).hostname.replace(/[[\]]/g, '')) as string,
    })
    expect(connections()).toBe(0)
  })

  test.each([[['127.0.0.1']], [['8.8.8.8', '127.0.0.1']], [['127.0.0.1', '8.8.8.8']], [['2606:4700::1111', '::1']]])(
    'that is not public is not connected to when a name leads to %j',
    async (addresses) => {
      const { port, connections } = await serve(ok)
      const fetch = open({ allowPrivate: false, lookup: resolvingTo(...addresses) })
      const failure = await failureOf(fetch.text(`http://example.com:${port}/`, get))
      expect(failure).toMatchObject({ code: 'forbidden', message: expect.stringContaining('example.com') as string })
      expect(connections()).toBe(0)
    },
  )

  test('that was public before is looked at again when a new connection is made', async () => {
    const { port } = await serve((_req, res) => res.writeHead(200, { connection: 'close' }).end('ok'))
    const answers = [['127.0.0.1'], ['10.0.0.1']]
    const fetch = open({
      allowPrivate: false,
      allow: ['127.0.0.1'],
      lookup: (...call) => resolvingTo(...answers.shift()!)(...call),
    })
    expect((await fetch.text(`http://example.com:${port}/`, get)).text).toBe('ok')
    expect(await failureOf(fetch.text(`http://example.com:${port}/`, get))).toMatchObject({ code: 'forbidden' })
  })

  test('of a network that is allowed is connected to, others are not', async () => {
    const { url, port } = await serve(ok)
    const fetch = open({ allowPrivate: false, allow: ['loopback', '10.1.0.0/16'] })
    expect((await fetch.text(url, get)).text).toBe('ok')
    expect((await fetch.text(`http://localhost:${port}`, get)).text).toBe('ok')
    expect(await failureOf(fetch.text('http://10.2.0.1/', get))).toMatchObject({ code: 'forbidden' })
  })

  test('that makes no sense among the allowed ones is a mistake of the configuration', () => {
    const create = () => createGuardedFetch({ allowPrivate: false, allow: ['10.0.0.0/8', 'office'] })
    expect(create).toThrow(
      expect.objectContaining({ code: 'config', message: expect.stringMatching(/^allow .*"office"/) as string }),
    )
  })
})

describe('a request', () => {
  test('brings status, headers and text, and keeps its connection for the next', async () => {
    const { url, connections } = await serve((req, res) => {
      void bodyOf(req).then((body) => {
        res
          .writeHead(418, { 'x-method': req.method, 'x-path': req.url, 'x-mine': req.headers['x-mine'] ?? '' })
          .end(body)
      })
    })
    const fetch = open()
    for (const text of ['{"a":1}', 'größer', '']) {
      const answer = await fetch.text(`${url}/a?b=c#d`, { method: 'POST', headers: { 'X-Mine': 'me' }, body: text })
      expect(answer).toMatchObject({ status: 418, text, url: `${url}/a?b=c` })
      expect(answer.headers).toMatchObject({ 'x-method': 'POST', 'x-path': '/a?b=c', 'x-mine': 'me' })
    }
    expect((await fetch.text(url, { method: 'DELETE', headers: {} })).headers['x-method']).toBe('DELETE')
    // A connection takes its next request one turn of the event loop later; until then there is a second one.
    expect(connections()).toBeLessThanOrEqual(2)
  })

  test('drops a byte order mark and waits for the answer behind early hints', async () => {
    const { url } = await serve((_req, res) => {
      res.writeEarlyHints({ link: '</style.css>; rel=preload' }, () => res.end('\ufeff{}'))
    })
    expect(await open().text(url, get)).toMatchObject({ status: 200, text: '{}' })
  })

  test.each([
    ['gzip', gzipSync],
    ['deflate', deflateSync],
    ['br', brotliCompressSync],
  ])('reads %s, and asks for it only when told to', async (encoding, compress) => {
    const { url } = await serve((req, res) => {
      if (req.headers['accept-encoding'] === undefined) res.end('plain')
      else res.writeHead(200, { 'content-encoding': encoding }).end(compress('compressed'))
    })
    const fetch = open()
    const asking: GuardedRequest = { ...get, headers: { 'accept-encoding': encoding } }
    expect((await fetch.text(url, get)).text).toBe('plain')
    expect((await fetch.text(url, asking)).text).toBe('compressed')
    expect(await (await fetch.open(url, asking)).body.text(100)).toBe('compressed')
  })

  test('fails for a compression that is broken or unknown', async () => {
    const { url } = await serve((req, res) => {
      res.writeHead(200, { 'content-encoding': req.url!.slice(1) }).end('not compressed')
    })
    const fetch = open()
    for (const encoding of ['gzip', 'constructor']) {
      expect(await networkErrorOf(fetch.text(`${url}/${encoding}`, get))).toMatchObject({ reason: 'other', sent: true })
    }
  })

  test.each<[string, (res: ServerResponse) => void]>([
    ['as it is', (res) => res.end(Buffer.alloc(2 * mebibyte))],
    ['when decompressed', (res) => res.setHeader('content-encoding', 'gzip').end(gzipSync(Buffer.alloc(2 * mebibyte)))],
  ])('fails for an answer that is too large %s', async (_how, answer) => {
    const { url } = await serve((_req, res) => answer(res))
    const fetch = open()
    expect(await failureOf(fetch.text(url, { ...get, maxBytes: mebibyte }))).toMatchObject({ code: 'too_large' })
    const { body } = await fetch.open(url, get)
    expect(await failureOf(body.text(mebibyte))).toMatchObject({ code: 'too_large' })
    expect((await fetch.text(url, { ...get, maxBytes: 2 * mebibyte })).text).toHaveLength(2 * mebibyte)
  })

  test('fails for an answer that says it will be too large without waiting for it', async () => {
    const { url } = await serve((_req, res) => res.writeHead(200, { 'content-length': 17 * mebibyte }).write('a'))
    expect(await failureOf(open().text(url, get))).toMatchObject({ code: 'too_large' })
  })

  test('whose answer nobody wants takes in a bounded part of it', async () => {
    const closed = deferred()
    const { url } = await serve((req, res) => {
      res.on('close', () => closed.resolve())
      if (req.url === '/endless') res.write(Buffer.alloc(mebibyte))
      else res.writeHead(202).end('much')
    })
    const fetch = open()
    expect(await fetch.send(url, get)).toMatchObject({ status: 202 })
    expect(await fetch.send(`${url}/endless`, get)).toMatchObject({ status: 200 })
    await within(closed.promise, 'the connection to end')
  })

  test('fails when it takes too long, and frees its connection', async () => {
    const closed = deferred()
    const { url } = await serve((req, res) => {
      res.on('close', () => closed.resolve())
      if (req.url === '/begun') res.write('begun')
    })
    const failure = await failureOf(open().text(`${url}/?secret`, { ...get, timeoutMs: 20 }))
    expect(failure).toMatchObject({ code: 'timeout', message: expect.stringContaining(new URL(url).host) as string })
    expect((failure as Error).message).not.toContain('secret')
    expect(await failureOf(open().text(`${url}/begun`, { ...get, timeoutMs: 20 }))).toMatchObject({ code: 'timeout' })
    await within(closed.promise, 'the connection to end')
  })

  test('is stopped by its signal, whatever it waits for', async () => {
    const arrived = deferred()
    const { url } = await serve(() => arrived.resolve())
    const fetch = open({ maxConnections: 1 })
    const unresolved = open({ lookup: () => {} })
    const controller = new AbortController()
    const request = { ...get, signal: controller.signal }
    const failures = [
      failureOf(fetch.text(url, request)),
      failureOf(fetch.text(url, request)),
      failureOf(unresolved.open('http://example.com', request)),
    ]
    await within(arrived.promise, 'the request')
    controller.abort()
    for (const failure of failures) expect(await failure).toMatchObject({ code: 'canceled' })
    expect(await failureOf(fetch.send(url, request))).toMatchObject({ code: 'canceled' })
  })

  test('may share its signal with many others', async () => {
    const { url } = await serve(ok)
    const fetch = open()
    const warnings: unknown[] = []
    const warn = (warning: unknown) => warnings.push(warning)
    process.on('warning', warn)
    cleanup(() => process.off('warning', warn))
    const { signal } = new AbortController()
    await Promise.all(Array.from({ length: 30 }, () => fetch.text(url, { ...get, signal })))
    expect(warnings).toEqual([])
  })

  test('waits for a connection when there are as many as may be', async () => {
    const waiting: ServerResponse[] = []
    const { url, connections } = await serve((_req, res) => waiting.push(res))
    const fetch = open({ maxConnections: 2 })
    const answers = [1, 2, 3].map(() => fetch.text(url, get))
    await until(() => waiting.length === 2)
    waiting.shift()!.end('first')
    await until(() => waiting.length === 2)
    for (const res of waiting) res.end('later')
    expect((await Promise.all(answers)).map(({ status }) => status)).toEqual([200, 200, 200])
    expect(connections()).toBe(2)
  })

  test.each(['file:///etc/passwd', 'ftp://example.com/', 'data:text/plain,a'])('does not go to %s', async (url) => {
    expect(await failureOf(open().text(url, get))).toMatchObject({ code: 'forbidden' })
  })

  test('fails before it is sent for what is no URL or no header, and says no secret', async () => {
    const { url } = await serve(ok)
    const fetch = open({ maxConnections: 1 })
    expect(await failureOf(fetch.text('nowhere?secret', get))).toMatchObject({
      code: 'invalid_params',
      message: expect.not.stringContaining('secret') as string,
    })
    for (const [name, value] of [
      ['x', 'secret\r\ny: z'],
      ['x y', 'secret'],
      ['Transfer-Encoding', 'secret'],
      ['host', 'secret'],
    ]) {
      expect(await failureOf(fetch.text(url, { ...get, headers: { [name!]: value! } }))).toMatchObject({
        code: 'invalid_params',
        message: expect.not.stringContaining('secret') as string,
      })
    }
    expect((await fetch.text(url, get)).text).toBe('ok')
  })
})

describe('a network failure', () => {
  test('says that nothing listens, and that nothing was sent', async () => {
    const { url, port } = await serve(ok)
    const other = createServer().listen(0, '127.0.0.1')
    await once(other, 'listening')
    const free = (other.address() as AddressInfo).port
    await new Promise((resolve) => other.close(resolve))
    const failure = await networkErrorOf(open().text(url.replace(`${port}`, `${free}/?secret`), get))
    expect(failure).toMatchObject({ code: 'network', reason: 'refused', sent: false, retryable: true })
    expect(failure.message).toBe(`127.0.0.1:${free} refused the connection.`)
  })

  test('says that a name is not known, or has no address', async () => {
    const notFound = Object.assign(new Error('getaddrinfo ENOTFOUND'), { code: 'ENOTFOUND' })
    const unknown = open({ lookup: (_hostname, _options, callback) => callback(notFound, '') })
    expect(await networkErrorOf(unknown.text('http://user:secret@nowhere.example/', get))).toMatchObject({
      reason: 'dns',
      sent: false,
      message: 'The name nowhere.example could not be resolved: it is not known.',
    })
    const empty = open({ lookup: resolvingTo() })
    expect(await networkErrorOf(empty.text('http://nowhere.example/', get))).toMatchObject({
      reason: 'dns',
      sent: false,
    })
  })

  test('says that a connection was not made in time', async () => {
    vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] })
    cleanup(() => vi.useRealTimers())
    const failure = networkErrorOf(open({ lookup: () => {} }).text('https://example.com/', get))
    vi.advanceTimersByTime(10_000)
    expect(await failure).toMatchObject({
      reason: 'connect_timeout',
      sent: false,
      message: expect.stringContaining('example.com:443') as string,
    })
  })

  test('of an answer that is cut says that the request was sent', async () => {
    const { url } = await serve((req, res) => {
      if (req.url === '/reset') return res.socket?.resetAndDestroy()
      if (req.url === '/begun') res.writeHead(200, { 'content-length': 100 })
      if (req.url !== '/silent') res.write('begun')
      setImmediate(() => res.destroy())
    })
    const fetch = open()
    for (const path of ['/silent', '/begun', '/chunked']) {
      expect(await networkErrorOf(fetch.text(url + path, get))).toMatchObject({ reason: 'closed', sent: true })
    }
    expect(await networkErrorOf(fetch.text(`${url}/reset`, get))).toMatchObject({ reason: 'reset', sent: true })
  })

  test('of a connection that was kept leaves open whether the request arrived', async () => {
    let calls = 0
    const { url } = await serve((_req, res) => {
      if (++calls === 1) res.end('ok')
      else res.destroy()
    })
    const fetch = open()
    await fetch.text(url, get)
    expect(await networkErrorOf(fetch.text(url, get))).toMatchObject({ reason: 'closed', sent: true })
  })

  test('says that a server does not speak HTTP', async () => {
    const { url } = await serve((_req, res) => res.socket?.end('SMTP ready\r\n'))
    expect(await networkErrorOf(open().text(url, get))).toMatchObject({ reason: 'other', sent: true })
  })
})

describe('over TLS', () => {
  const ca = certificate.cert

  test('a certificate of a known authority is good, for the name it is for', async () => {
    const { url, port } = await serve(ok, certificate)
    const fetch = open({ tls: { ca }, lookup: resolvingTo('127.0.0.1') })
    expect((await fetch.text(url, get)).text).toBe('ok')
    expect((await fetch.text(`https://localhost:${port}`, get)).text).toBe('ok')
    expect(await networkErrorOf(fetch.text(`https://elsewhere.example:${port}`, get))).toMatchObject({
      reason: 'tls',
      sent: false,
      retryable: false,
      message: `The certificate of elsewhere.example:${port} is for another host name.`,
    })
  })

  test('a certificate of nobody known, or of the past, is not', async () => {
    const { url, port } = await serve(ok, certificate)
    expect(await networkErrorOf(open().text(url, get))).toMatchObject({
      reason: 'tls',
      sent: false,
      retryable: false,
      message: `The certificate of 127.0.0.1:${port} is self-signed.`,
    })
    const old = await serve(ok, { ...certificate, cert: pem('expired') })
    const failure = await networkErrorOf(open({ tls: { ca } }).text(old.url, get))
    expect(failure).toMatchObject({ reason: 'tls', sent: false, retryable: false })
    expect(failure.message).toBe(`The certificate of 127.0.0.1:${old.port} has expired.`)
  })

  test('any certificate is good when told so', async () => {
    const { url } = await serve(ok, { ...certificate, cert: pem('expired') })
    expect((await open({ tls: { insecure: true } }).text(url, get)).text).toBe('ok')
  })

  test('a server that speaks none is told', async () => {
    const { port } = await serve(ok)
    expect(await networkErrorOf(open().text(`https://127.0.0.1:${port}`, get))).toMatchObject({
      reason: 'tls',
      sent: false,
      retryable: false,
    })
  })
})

describe('a redirect', () => {
  interface Call {
    readonly method: string | undefined
    readonly path: string | undefined
    readonly headers: IncomingMessage['headers']
    readonly body: string
  }

  /** Redirects `/STATUS?LOCATION` there, answers everything else, and keeps what came. */
  async function redirecting(tls?: ServerOptions): Promise<Host & { calls: Call[] }> {
    const calls: Call[] = []
    const host = await serve((req, res) => {
      void bodyOf(req).then((body) => {
        calls.push({ method: req.method, path: req.url, headers: req.headers, body })
        const [, status, location = ''] = /^\/(3\d\d)\?(.*)$/.exec(req.url ?? '') ?? []
        if (status === undefined) res.end('here')
        else res.writeHead(Number(status), { location: decodeURIComponent(location) }).end('there')
      })
    }, tls)
    return { ...host, calls }
  }

  test('is an answer unless it should be followed', async () => {
    const { url } = await redirecting()
    expect(await open().text(`${url}/302?/a`, get)).toMatchObject({
      status: 302,
      text: 'there',
      headers: { location: '/a' },
    })
  })

  test.each([
    ['GET', 301, true],
    ['GET', 302, true],
    ['GET', 303, true],
    ['GET', 307, true],
    ['GET', 308, true],
    ['POST', 301, false],
    ['POST', 302, false],
    ['POST', 303, false],
    ['POST', 307, true],
    ['POST', 308, true],
    ['DELETE', 307, false],
  ] as const)('of a %s with status %s: is followed is %s', async (method, status, isFollowed) => {
    const { url, calls } = await redirecting()
    const body = method === 'POST' ? { body: 'mine' } : {}
    const headers = { authorization: 'Bearer mine', 'x-mine': 'mine' }
    const answer = await open().text(`${url}/${status}?/a`, { method, headers, ...body, maxRedirects: 1 })
    expect(answer.status).toBe(isFollowed ? 200 : status)
    expect(answer.url).toBe(isFollowed ? `${url}/a` : `${url}/${status}?/a`)
    const followed = { method, path: '/a', headers: expect.objectContaining(headers) as unknown, body: body.body ?? '' }
    expect(calls.slice(1)).toEqual(isFollowed ? [followed] : [])
  })

  test('is followed for a body that is read piece by piece', async () => {
    const { url } = await redirecting()
    const { status, body } = await open().open(`${url}/307?/a`, { ...get, maxRedirects: 3 })
    expect(status).toBe(200)
    expect((await readAll(body)).toString()).toBe('here')
  })

  test('to another origin takes no secrets along', async () => {
    const there = await redirecting()
    const { url } = await redirecting()
    const harmless = {
      accept: 'a/b',
      'a2a-version': '1.0',
      'content-type': 'c/d',
      'if-none-match': '"e"',
      'user-agent': 'f',
    }
    const secrets = { Authorization: 'Bearer s', Cookie: 's', 'X-Api-Key': 's', 'x-custom-token': 's' }
    const location = encodeURIComponent(there.url.replace('//', '//user:secret@'))
    const headers = { ...harmless, ...secrets }
    const answer = await open().text(`${url}/302?${location}/a`, { ...get, headers, maxRedirects: 1 })
    expect(answer.url).toBe(`${there.url}/a`)
    expect(there.calls[0]?.headers).toMatchObject(harmless)
    for (const name of Object.keys(secrets)) expect(there.calls[0]?.headers).not.toHaveProperty(name.toLowerCase())
  })

  test('to an address that may not be called is refused', async () => {
    const { url } = await redirecting()
    const fetch = open({ allowPrivate: false, allow: ['127.0.0.1'] })
    const refused = fetch.text(`${url}/302?http://169.254.169.254/`, { ...get, maxRedirects: 1 })
    expect(await failureOf(refused)).toMatchObject({ code: 'forbidden' })
  })

  test.each(['http://127.0.0.1/', 'ftp://127.0.0.1/', 'file:///etc/passwd', 'https://'])(
    'from https to %s is refused',
    async (location) => {
      const { url } = await redirecting(certificate)
      const fetch = open({ tls: { ca: certificate.cert } })
      const refused = fetch.text(`${url}/302?${location}`, { ...get, maxRedirects: 5 })
      expect(await networkErrorOf(refused)).toMatchObject({ reason: 'redirects', sent: true, retryable: false })
    },
  )

  test('without end is given up', async () => {
    const calls: unknown[] = []
    const { url } = await serve((req, res) => {
      calls.push(req.url)
      res.writeHead(302, { location: '/again' }).end()
    })
    expect(await networkErrorOf(open().text(url, { ...get, maxRedirects: 3 }))).toMatchObject({ reason: 'redirects' })
    expect(calls).toHaveLength(4)
  })
})

describe('a body that is read piece by piece', () => {
  test('comes as it is sent', async () => {
    const gate = deferred()
    const { url } = await serve((_req, res) => {
      res.write('first')
      void gate.promise.then(() => res.end('second'))
    })
    const { status, body } = await open().open(url, get)
    expect(status).toBe(200)
    const pieces: string[] = []
    for await (const piece of body) {
      pieces.push(Buffer.from(piece).toString())
      gate.resolve()
    }
    expect(pieces).toEqual(['first', 'second'])
  })

  test('makes the sender wait for the reader', async () => {
    const total = 64 * mebibyte
    let written = 0
    const { url } = await serve((_req, res) => {
      const write = (): void => {
        while (written < total) {
          written += mebibyte
          if (!res.write(Buffer.alloc(mebibyte))) return void res.once('drain', write)
        }
        res.end()
      }
      write()
    })
    const { body } = await open().open(url, get)
    let before = 0
    let still = 0
    await until(() => {
      still = written === before ? still + 1 : 0
      before = written
      return still === 20
    }, 'the sender to wait')
    expect(written).toBeLessThan(total / 2)
    expect((await readAll(body)).length).toBe(total)
  })

  test.each([
    ['is cancelled', async (body) => body.cancel()],
    [
      'is left early',
      async (body) => {
        for await (const piece of body) if (piece.length > 0) break
      },
    ],
    [
      'is left because of an error',
      async (body) => {
        const read = async (): Promise<void> => {
          for await (const piece of body) if (piece.length > 0) throw new Error('No more.')
        }
        await failureOf(read())
      },
    ],
    [
      'is too large',
      async (body) => {
        await failureOf(body.text(2))
      },
    ],
  ] satisfies [string, (body: Awaited<ReturnType<GuardedFetch['open']>>['body']) => Promise<void>][])(
    'ends its connection when it %s',
    async (_how, leave) => {
      const closed = deferred()
      const { url } = await serve((_req, res) => {
        res.on('close', () => closed.resolve())
        res.write('much')
      })
      const { body } = await open().open(url, get)
      await leave(body)
      await within(closed.promise, 'the connection to end')
      expect(await readAll(body)).toHaveLength(0)
    },
  )

  test('throws the reason of its signal, at once', async () => {
    const closed = deferred()
    const { url } = await serve((_req, res) => {
      res.on('close', () => closed.resolve())
      res.write('first')
    })
    const controller = new AbortController()
    const { body } = await open().open(url, { ...get, signal: controller.signal })
    const reader = body[Symbol.asyncIterator]()
    await reader.next()
    const failure = failureOf(reader.next())
    controller.abort()
    expect(await failure).toMatchObject({ code: 'canceled' })
    expect(await failureOf(reader.next())).toMatchObject({ code: 'canceled' })
    await within(closed.promise, 'the connection to end')
  })

  test('that is cut gives what came and then throws', async () => {
    const gate = deferred()
    const { url } = await serve((_req, res) => {
      res.write('first')
      void gate.promise.then(() => res.destroy())
    })
    const { body } = await open().open(url, get)
    const pieces: string[] = []
    const read = async (): Promise<void> => {
      for await (const piece of body) {
        pieces.push(Buffer.from(piece).toString())
        gate.resolve()
      }
    }
    expect(await networkErrorOf(read())).toMatchObject({ reason: 'closed', sent: true })
    expect(pieces).toEqual(['first'])
  })

  test('may take as long as it likes, once its headers are there', async () => {
    vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] })
    cleanup(() => vi.useRealTimers())
    const gate = deferred()
    const { url } = await serve((_req, res) => {
      res.flushHeaders()
      void gate.promise.then(() => res.end('late'))
    })
    const { body } = await open().open(url, { ...get, timeoutMs: 1000 })
    vi.advanceTimersByTime(3_600_000)
    gate.resolve()
    expect((await readAll(body)).toString()).toBe('late')
  })

  test('does not begin when its headers take too long', async () => {
    const { url } = await serve(() => {})
    expect(await failureOf(open().open(url, { ...get, timeoutMs: 20 }))).toMatchObject({ code: 'timeout' })
  })
})

describe('closing', () => {
  test('ends all requests at once', async () => {
    const arrived = deferred()
    const { url } = await serve((req, res) => {
      if (req.url === '/begun') res.write('begun')
      else arrived.resolve()
    })
    const fetch = open()
    const unresolved = open({ lookup: () => {} })
    const silent = networkErrorOf(fetch.text(url, get))
    const dialling = networkErrorOf(unresolved.text('http://example.com', get))
    const { body } = await fetch.open(`${url}/begun`, get)
    const reading = networkErrorOf(readAll(body))
    await within(arrived.promise, 'the request')
    await within(Promise.all([fetch.close(), unresolved.close()]), 'the connections to close')
    expect(await silent).toMatchObject({ reason: 'closed', sent: true })
    expect(await reading).toMatchObject({ reason: 'closed', sent: true })
    expect(await dialling).toMatchObject({ reason: 'closed', sent: false })
    expect(await networkErrorOf(fetch.text(url, get))).toMatchObject({ reason: 'closed', sent: false })
    await fetch.close()
  })

  test('is not needed for a process to end by itself', async () => {
    const { url } = await serve(ok)
    const script = `
      const { createGuardedFetch } = await import(${JSON.stringify(new URL('../dist/base/guarded-fetch.js', import.meta.url).href)})
      const { text } = await createGuardedFetch({ allowPrivate: true }).text(process.argv[1], { method: 'GET', headers: {}, timeoutMs: 60000 })
      process.exitCode = text === 'ok' ? 0 : 1`
    const child = spawn(process.execPath, ['--input-type=module', '-e', script, url], { stdio: 'inherit' })
    cleanup(() => child.kill('SIGKILL'))
    expect(await within(once(child, 'exit'), 'the process to end')).toEqual([0, null])
  })
})
