/** The least that can stand between a model and a caller: passes the bytes of the model's stream on as they come. `options`: `{model}`, its port. */
import { createServer, request as ask } from 'node:http'
import { options, ready } from '../lib/child.js'

const server = createServer((request, response) => {
  request.resume()
  request.on('end', () => {
    const forward = ask(
      { port: options.model, host: '127.0.0.1', method: 'POST', path: '/v1/chat/completions' },
      (answer) => {
        response.writeHead(200, { 'content-type': 'text/event-stream' })
        answer.pipe(response)
      },
    )
    forward.end('{}')
  })
})
server.listen(0, '127.0.0.1', () => ready(server.address().port))
