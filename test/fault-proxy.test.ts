/** The network that other tests trust to fail as they say. */
import { createServer } from 'node:http'
import { connect, createServer as createTcpServer, type AddressInfo } from 'node:net'
import { once } from 'node:events'
import { expect, test } from 'vitest'
import { cleanup, deferred, startNode, until, within } from './support/lifetime.ts'
import { httpAnswer, startFaultProxy, type FaultProxy } from './support/fault-proxy.ts'

/** A server that says its letters as soon as it hears anything, and tells what it heard. */
async function startLetters(letters: string): Promise<{ url: string; heard: () => string }> {
  let heard = ''
  const server = createTcpServer((socket) => {
    socket.on('data', (bytes) => {
      heard += bytes.toString()
      socket.write(letters)
    })
    socket.on('error', () => {})
    cleanup(() => socket.destroy())
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  cleanup(() => server.close())
  return { url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`, heard: () => heard }
}

/** A raw connection: what it got, and how it ended. */
function dial({ url }: FaultProxy, words: string) {
  const { hostname, port } = new URL(url)
  const socket = connect(Number(port), hostname)
  const seen = { got: '', error: '' }
  const ended = deferred()
  socket.on('data', (bytes) => (seen.got += bytes.toString()))
  socket.on('error', (error: NodeJS.ErrnoException) => (seen.error = error.code ?? ''))
  socket.on('close', () => ended.resolve())
  socket.write(words)
  cleanup(() => socket.destroy())
  return { seen, socket, ended: () => within(ended.promise, 'the end of a connection') }
}

test('a proxy in front of a node is where its card says the node is', async () => {
  const node = await startNode()
  const proxy = await startFaultProxy(node.url)
  const card = await (await fetch(`${proxy.url}/.well-known/agent-card.json`)).json()
  expect((card as { url: string }).url).toBe(proxy.url)
  expect(proxy.connections).toBe(1)
  expect(proxy.sent).toMatch(/^GET \/\.well-known\/agent-card\.json HTTP\/1\.1\r\n/)
})

test('an answer is cut behind any byte, once', async () => {
  const letters = await startLetters('abcdefghij')
  const proxy = await startFaultProxy(letters.url)
  for (let bytes = 1; bytes <= 10; bytes++) {
    proxy.cutAfter(bytes)
    const { seen, ended } = dial(proxy, 'hello')
    await ended()
    expect(seen.got).toBe('abcdefghij'.slice(0, bytes))
    expect(proxy.cuts).toBe(bytes)
  }
  const { seen } = dial(proxy, 'hello')
  await until(() => seen.got === 'abcdefghij')
})

test('a request is cut behind any byte, once', async () => {
  const letters = await startLetters('abc')
  const proxy = await startFaultProxy(letters.url)
  proxy.cutRequestAfter(3)
  const { seen, ended } = dial(proxy, 'hello')
  await ended()
  expect(seen).toEqual({ got: '', error: 'ECONNRESET' })
  await until(() => letters.heard() === 'hel')
  const second = dial(proxy, 'hello')
  await until(() => second.seen.got === 'abc')
})

test('a cut resets every open connection', async () => {
  const proxy = await startFaultProxy((await startLetters('abc')).url)
  const both = [dial(proxy, 'one'), dial(proxy, 'two')]
  await until(() => both.every(({ seen }) => seen.got === 'abc'))
  proxy.cut()
  await Promise.all(both.map(({ ended }) => ended()))
  expect(both.map(({ seen }) => seen.error)).toEqual(['ECONNRESET', 'ECONNRESET'])
  await until(() => proxy.open === 0)
})

test('a half-open connection says nothing until it is healed', async () => {
  const letters = await startLetters('abc')
  const proxy = await startFaultProxy(letters.url)
  const { seen, socket } = dial(proxy, 'one')
  await until(() => seen.got === 'abc')
  proxy.halfOpen()
  socket.write('two')
  await until(() => proxy.sent === 'onetwo')
  expect(letters.heard()).toBe('one')
  expect(socket.closed).toBe(false)
  proxy.heal()
  await until(() => seen.got === 'abcabc')
})

test('answers can be held for a time', async () => {
  const proxy = await startFaultProxy((await startLetters('abc')).url)
  proxy.delay(40)
  const startedAt = performance.now()
  const { seen } = dial(proxy, 'one')
  await until(() => seen.got === 'abc')
  expect(performance.now() - startedAt).toBeGreaterThan(35)
})

test('nobody comes in while connections are refused', async () => {
  const proxy = await startFaultProxy((await startLetters('abc')).url)
  const before = dial(proxy, 'one')
  await until(() => before.seen.got === 'abc')
  proxy.refuse()
  const during = dial(proxy, 'two')
  await during.ended()
  expect(during.seen.error).toBe('ECONNREFUSED')
  before.socket.write('more')
  await until(() => before.seen.got === 'abcabc')
  await proxy.resume()
  const after = dial(proxy, 'three')
  await until(() => after.seen.got === 'abc')
})

test('requests get canned answers, also on connections that are open already', async () => {
  let served = 0
  const server = createServer((_req, res) => {
    served++
    res.end('real')
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  cleanup(() => {
    server.closeAllConnections()
    server.close()
  })
  const proxy = await startFaultProxy(`http://127.0.0.1:${(server.address() as AddressInfo).port}`)
  const post = (body = 'x') => fetch(proxy.url, { method: 'POST', body, redirect: 'manual' })
  expect(await (await post()).text()).toBe('real')

  proxy.respond(httpAnswer(429, { 'retry-after': '7' }, 'Später.'), 1)
  const limited = await post()
  expect([limited.status, limited.headers.get('retry-after'), await limited.text()]).toEqual([429, '7', 'Später.'])
  expect(served).toBe(1)
  expect(await (await post()).text()).toBe('real')

  proxy.respond(httpAnswer(302, { location: 'http://127.0.0.1:1/' }))
  expect((await post('x'.repeat(1_000_000))).status).toBe(302)
  proxy.respond(httpAnswer(200, { 'content-length': '100' }, '{"jsonrpc'))
  await expect(post().then((answer) => answer.text())).rejects.toThrow('terminated')
  proxy.garbage()
  await expect(post()).rejects.toThrow('fetch failed')
  expect(served).toBe(2)
  proxy.heal()
  expect(await (await post()).text()).toBe('real')
})
