/**
 * The floor: bare node:http. A POST is read and parsed and answered with the bytes it was given (`answer`), or, when it
 * asks for a stream, with events of the same bytes as ours, one write for each, `drain` awaited. As chunks of any real
 * source do, each comes in a turn of the event loop of its own; with `burst` they are all there at once, and node:http
 * gathers some 13 of them in one system call. GET answers 304 to the right ETag and else the bytes in `file`.
 */
import { readFileSync } from 'node:fs'
import { createServer } from 'node:http'
import { options, ready } from '../lib/child.js'

const file = options.file === undefined ? undefined : readFileSync(options.file)

const server = createServer((req, res) => {
  if (req.method === 'GET') return sendFile(req, res)
  let body
  req.on('data', (bytes) => (body = body === undefined ? bytes : Buffer.concat([body, bytes])))
  req.on('end', () => {
    const { method, params } = JSON.parse(body.toString())
    if (method === 'SendStreamingMessage') return void stream(res, params.message.metadata._tool_call.params.n)
    res.writeHead(200, { 'content-type': 'application/json', 'content-length': Buffer.byteLength(options.answer) })
    res.end(options.answer)
  })
})

async function stream(res, n) {
  res.writeHead(200, { 'content-type': 'text/event-stream', 'cache-control': 'no-cache, no-transform' })
  for (let i = 1; i <= n; i++) {
    if (!res.write(`id: ${i}\n${options.event}\n\n`)) await new Promise((resolve) => res.once('drain', resolve))
    else if (options.burst !== true) await new Promise((resolve) => setImmediate(resolve))
  }
  res.end()
}

function sendFile(req, res) {
  if (req.headers['if-none-match'] === options.headers.etag) {
    res.writeHead(304, options.headers)
    return res.end()
  }
  res.writeHead(200, { ...options.headers, ...options.fileHeaders, 'content-length': file.length })
  res.end(file)
}

server.listen(0, '127.0.0.1', () => ready(server.address().port))
