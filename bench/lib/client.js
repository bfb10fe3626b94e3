/** A bare HTTP/1.1 client on keep-alive sockets: the load must not cost more than the servers that it measures. */
import { connect } from 'node:net'

const headEnd = Buffer.from('\r\n\r\n')
const lastChunk = Buffer.from('\r\n0\r\n\r\n')
const timeoutMs = 120_000

export function post(body, headers = '') {
  return (
    `POST / HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\na2a-version: 1.0\r\n${headers}` +
    `content-length: ${Buffer.byteLength(body)}\r\n\r\n${body}`
  )
}

export function get(path, headers = '') {
  return `GET ${path} HTTP/1.1\r\nhost: 127.0.0.1\r\n${headers}\r\n`
}

/** One connection. Requests may be pipelined; answers come in order. */
export class Connection {
  #socket
  #waiting = []
  #head = 0
  /** What came and is not an answer yet, and how many bytes it takes to be one, as far as that is known. */
  #pieces = []
  #bytes = 0
  #needed = 0
  #stream = null
  #failure

  static open(port) {
    return new Promise((resolve, reject) => {
      const socket = connect({ port, host: '127.0.0.1', noDelay: true })
      socket.once('connect', () => resolve(new Connection(socket)))
      socket.once('error', reject)
    })
  }

  constructor(socket) {
    this.#socket = socket
    socket.setTimeout(timeoutMs, () => socket.destroy(new Error(`No answer within ${timeoutMs} ms.`)))
    socket.on('data', (chunk) => this.#read(chunk))
    socket.on('error', (error) => this.#fail(error))
    socket.on('close', () => this.#fail(new Error('The server closed the connection.')))
  }

  get socket() {
    return this.#socket
  }

  /** Calls `done(error, answer)` with `{status, head, body}`; the body is a Buffer. */
  send(request, done) {
    if (this.#failure !== undefined) return done(this.#failure)
    this.#waiting.push(done)
    this.#socket.write(request)
  }

  request(request) {
    return new Promise((resolve, reject) => {
      this.send(request, (error, answer) => (error === undefined ? resolve(answer) : reject(toError(error))))
    })
  }

  /**
   * Sends a request whose answer is a stream in chunked encoding, and resolves at its end with the bytes that came.
   * `onData` gets them as they come, the encoding included. Nothing else may be under way on the connection.
   */
  stream(request, onData = () => {}) {
    if (this.#failure !== undefined) return Promise.reject(toError(this.#failure))
    return new Promise((resolve, reject) => {
      this.#stream = { bytes: 0, tail: Buffer.alloc(0), onData, resolve, reject }
      this.#socket.write(request)
    })
  }

  close() {
    this.#failure = new Error('Closed.')
    this.#socket.destroy()
  }

  #read(chunk) {
    if (this.#stream !== null) return this.#readStream(chunk)
    let data = chunk
    if (this.#bytes > 0) {
      this.#pieces.push(chunk)
      this.#bytes += chunk.length
      // Joining for each piece would cost a large answer its square.
      if (this.#bytes < this.#needed) return
      data = Buffer.concat(this.#pieces)
      this.#pieces = []
      this.#bytes = 0
    }
    this.#needed = 0
    while (data.length > 0) {
      const end = data.indexOf(headEnd)
      if (end === -1) break
      const head = data.latin1Slice(0, end)
      const status = Number(head.slice(9, 12))
      const length = status === 304 ? 0 : Number(/content-length: (\d+)/i.exec(head)?.[1])
      const next = end + 4 + length
      if (data.length < next) {
        this.#needed = next
        break
      }
      const body = data.subarray(end + 4, next)
      data = data.subarray(next)
      const done = this.#waiting[this.#head]
      this.#waiting[this.#head++] = undefined
      if (this.#head === 1024) {
        this.#waiting = this.#waiting.slice(this.#head)
        this.#head = 0
      }
      done(undefined, { status, head, body })
    }
    if (data.length === 0) return
    this.#pieces = [data]
    this.#bytes = data.length
  }

  #readStream(chunk) {
    const stream = this.#stream
    if (stream.bytes === 0 && !chunk.latin1Slice(0, 12).endsWith('200')) {
      return this.#fail(new Error(`The stream was refused: ${chunk.toString().slice(0, 500)}`))
    }
    stream.bytes += chunk.length
    stream.onData(chunk)
    const tail = chunk.length >= lastChunk.length ? chunk : Buffer.concat([stream.tail, chunk])
    stream.tail = tail.subarray(-lastChunk.length)
    if (!stream.tail.equals(lastChunk)) return
    this.#stream = null
    stream.resolve(stream.bytes)
  }

  #fail(error) {
    if (this.#failure !== undefined) return
    this.#failure = error
    this.#stream?.reject(error)
    for (const done of this.#waiting.slice(this.#head)) done(error)
    this.#waiting = []
    this.#head = 0
    this.#socket.destroy()
  }
}

export function open(port, count) {
  return Promise.all(Array.from({ length: count }, () => Connection.open(port)))
}

/** Hands fresh connections to `work` and closes them: a server drops those that were idle since the last round. */
export async function connected({ port }, count, work) {
  const connections = await open(port, count)
  try {
    return await work(connections)
  } finally {
    for (const each of connections) each.close()
  }
}

/**
 * Keeps the process awake while `work` goes on. A server pays for waking a client that sleeps (some 25 µs of its CPU a
 * call on a virtual machine), and only the slower ones find it asleep: that would count against them twice.
 */
async function awake(work) {
  let on = true
  const spin = () => on && setImmediate(spin)
  spin()
  try {
    return await work
  } finally {
    on = false
  }
}

/**
 * Keeps `depth` requests under way on each connection until `count` were sent or `ms` have passed, and resolves with
 * how many were answered. `make(i)` gives the request; `check(answer)` throws for an answer that is wrong.
 */
export function load(connections, options) {
  return awake(send(connections, options))
}

function send(connections, { count = Infinity, ms = Infinity, depth = 1, make, check }) {
  return new Promise((resolve, reject) => {
    const until = performance.now() + ms
    let sent = 0
    let answered = 0
    let over = false
    const next = (connection) => {
      over ||= sent >= count || (ms !== Infinity && performance.now() >= until)
      if (over) {
        if (answered === sent) resolve(answered)
        return
      }
      connection.send(make(sent++), (error, answer) => {
        try {
          if (error !== undefined) throw error
          check(answer)
          answered++
          next(connection)
        } catch (cause) {
          over = true
          reject(toError(cause))
        }
      })
    }
    for (const connection of connections) for (let i = 0; i < depth; i++) next(connection)
  })
}

/** The events of a whole stream, from the bytes that `stream` gave: `[{id, data}]`. */
export function eventsOf(bytes) {
  const start = bytes.indexOf(headEnd) + 4
  const parts = []
  for (let at = start; at < bytes.length;) {
    const lineEnd = bytes.indexOf('\r\n', at)
    const size = Number.parseInt(bytes.latin1Slice(at, lineEnd), 16)
    if (!(size > 0)) break
    parts.push(bytes.subarray(lineEnd + 2, lineEnd + 2 + size))
    at = lineEnd + 4 + size
  }
  return Buffer.concat(parts)
    .toString()
    .split('\n\n')
    .filter((text) => text.includes('data: '))
    .map((text) => ({ id: Number(/^id: (\d+)$/m.exec(text)?.[1]), data: JSON.parse(/^data: (.*)$/m.exec(text)[1]) }))
}

function toError(cause) {
  return cause instanceof Error ? cause : new Error(String(cause))
}
