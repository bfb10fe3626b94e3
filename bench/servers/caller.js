/**
 * The calling side as a process of its own, so that its CPU and its memory are its alone: our client, undici alone, our
 * reader of event streams, eventsource-parser alone. It listens nowhere. `options`: `{build, url}`, `url` where to call.
 */
import { JsonRpcTransportFactory } from '@a2a-js/sdk/client'
import { SendMessageRequest } from '@a2a-js/sdk'
import { createParser } from 'eventsource-parser'
import { join } from 'node:path'
import { pathToFileURL } from 'node:url'
import { Pool } from 'undici'
import { options, ready } from '../lib/child.js'
import { callBody, echoParams } from '../lib/requests.js'
import { chunk } from './work.js'

const load = (file) => import(pathToFileURL(join(options.build, file)).href)
const { readEvents } = await load('base/event-stream.js')
const idleTimeoutMs = 60_000
const headers = {
  'content-type': 'application/json',
  'a2a-version': '1.0',
  'a2a-extensions': 'urn:convoke:tool-call:v1',
}

/** Opened at the first call. */
let pool
let peer

async function connectPeer() {
  const { connectPeer: connect } = await load('index.js')
  return connect(options.url)
}

const callers = {
  async client() {
    peer ??= await connectPeer()
    await peer.executeRemoteTool('echo', JSON.parse(echoParams))
  },
  async undici() {
    await (await request(callBody('SendMessage', 'echo', echoParams))).text()
  },
}

async function request(body) {
  pool ??= new Pool(options.url)
  const answer = await pool.request({ method: 'POST', path: '/', headers, body })
  if (answer.statusCode !== 200) throw new Error(`A call was answered with ${answer.statusCode}.`)
  return answer.body
}

/** `n` calls, `width` at a time. */
async function call({ how, n, width }) {
  let left = n
  const caller = async () => {
    while (left-- > 0) await callers[how]()
  }
  await Promise.all(Array.from({ length: width }, caller))
  return n
}

/** Each reads all events out of pieces and gives how many there were. */
const readers = {
  async ours(pieces) {
    let n = 0
    for await (const batch of readEvents(bodyOf(pieces), { idleTimeoutMs })) n += batch.length
    return n
  },
  /** As its readme has it. */
  async parser(pieces) {
    let n = 0
    const parser = createParser({ onEvent: () => n++ })
    const decoder = new TextDecoder()
    for await (const piece of bodyOf(pieces)) parser.feed(decoder.decode(piece, { stream: true }))
    return n
  },
  async sdk(pieces) {
    const body = ReadableStream.from(bodyOf(pieces))
    const fetchImpl = async () => new Response(body, { headers: { 'content-type': 'text/event-stream' } })
    const transport = await new JsonRpcTransportFactory({ fetchImpl }).create('http://127.0.0.1', {})
    let n = 0
    for await (const _ of transport.sendMessageStream(SendMessageRequest.fromJSON({}))) n++
    return n
  },
}

async function* bodyOf(pieces) {
  for (const piece of pieces) yield piece
}

const events = {
  chunks: (n) => Array.from({ length: n }, (_, i) => eventOf(i + 1, { text: chunk })),
  /** One event of 3.9 MB: text that is text. */
  text: () => [eventOf(1, { text: chunk.repeat(3808) })],
  /** The same size as the members of a table. */
  table: () => {
    const rows = Array.from({ length: 44_500 }, (_, i) => ({
      i,
      name: `Row number ${i}`,
      value: i / 7,
      tags: ['a', 'b'],
    }))
    return [eventOf(1, { data: { rows } })]
  },
}

function eventOf(id, part) {
  const artifact = { artifactId: 'stream', name: 'stream', parts: [part] }
  const result = { artifactUpdate: { append: id > 1, lastChunk: false, taskId: 't', contextId: 'c', artifact } }
  return { id, json: JSON.stringify({ jsonrpc: '2.0', id: 1, result }) }
}

let made
/** The pieces of a stream, `size` bytes each; without it one for each event. Made once for all who read them. */
function piecesOf({ what, n, size }) {
  const key = `${what} ${n} ${size}`
  if (made?.key === key) return made
  const all = events[what](n)
  const whole = all.map(({ id, json }) => Buffer.from(`id: ${id}\ndata: ${json}\n\n`))
  const bytes = Buffer.concat(whole)
  const cut = () =>
    Array.from({ length: Math.ceil(bytes.length / size) }, (_, i) => bytes.subarray(i * size, (i + 1) * size))
  made = { key, pieces: size === undefined ? whole : cut(), count: all.length, json: all[0].json }
  return made
}

/**
 * The CPU time of one reading, in microseconds; the pieces are made before. No collection is forced in between: it
 * throws optimised code away, and both readers then take up to five times as long.
 */
async function read({ reader, ...stream }) {
  const { pieces, count, json } = piecesOf(stream)
  const before = process.cpuUsage()
  if (reader === 'parse') JSON.parse(json)
  else if ((await readers[reader](pieces)) !== count) throw new Error(`${reader} lost events.`)
  const { user, system } = process.cpuUsage(before)
  return user + system
}

/** Streams of `n` chunks as values, by our client or by our reader alone. */
const streams = {
  client: async function* (n) {
    peer ??= await connectPeer()
    for await (const event of peer.executeRemoteToolStreaming('stream', { n })) if (event.type === 'chunk') yield event
  },
  reader: async function* (n) {
    const body = await request(callBody('SendStreamingMessage', 'stream', `{"n":${n}}`))
    for await (const batch of readEvents(body, { idleTimeoutMs })) {
      for (const { data } of batch) if (JSON.parse(data).result.artifactUpdate?.artifact.name === 'stream') yield data
    }
  },
}

async function stream({ how, n }) {
  let seen = 0
  for await (const _ of streams[how](n)) seen++
  if (seen !== n) throw new Error(`A stream of ${n} chunks brought ${seen}.`)
  return n
}

/** Finds the tools of `n` peers below `url`, as a node does when it starts. In milliseconds. */
async function discover({ url, n }) {
  const { createNode } = await load('index.js')
  const peers = Object.fromEntries(Array.from({ length: n }, (_, i) => [`peer${i}`, { url: `${url}/${i}` }]))
  const node = await createNode({ agent: { id: 'bench' }, peers, discovery: { startup: true } })
  const before = performance.now()
  await node.start()
  while (node.remoteTools.find().length < n * 5) await new Promise((resolve) => setTimeout(resolve, 1))
  const ms = performance.now() - before
  await node.stop()
  return ms
}

let stalled

ready(0, {
  call,
  read,
  stream,
  discover,
  /** Consumes `chunks` of a stream of `n` and then stops; {@link leave} ends it. */
  async stall({ how, n, chunks }) {
    stalled = streams[how](n)
    for (let i = 0; i < chunks; i++) await stalled.next()
  },
  leave: async () => void (await stalled.return()),
})
