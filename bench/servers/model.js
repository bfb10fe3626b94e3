/** A model of few words: answers a chat completion with tokens that say when they left, in nanoseconds of the machine's clock. */
import { createServer } from 'node:http'
import { ready } from '../lib/child.js'

const tokens = 20
/** Between two tokens; a model is not faster. */
const pauseMs = 10

const server = createServer((request, response) => {
  request.resume()
  request.on('end', () => {
    response.writeHead(200, { 'content-type': 'text/event-stream' })
    const say = (choice, more = {}) =>
      response.write(
        `data: ${JSON.stringify({ object: 'chat.completion.chunk', choices: [{ index: 0, ...choice }], ...more })}\n\n`,
      )
    let left = tokens
    const timer = setInterval(() => {
      if (left-- > 0) return say({ delta: { content: `${process.hrtime.bigint()} ` } })
      clearInterval(timer)
      say({ delta: {}, finish_reason: 'stop' })
      response.end('data: [DONE]\n\n')
    }, pauseMs)
    response.on('close', () => clearInterval(timer))
  })
})
server.listen(0, '127.0.0.1', () => ready(server.address().port))
