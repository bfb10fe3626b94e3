// A language model that is none: it answers by the rules of answers.js, over the HTTP of OpenAI's chat completions, streamed.
import { once } from 'node:events'
import { createServer } from 'node:http'
import { json } from 'node:stream/consumers'
import { answer } from './answers.js'

/** Listens on a free port until it is closed; `url` is what an endpoint is called by. */
export async function startScriptedModel() {
  const server = createServer((request, response) => void serve(request, response))
  await once(server.listen(0, '127.0.0.1'), 'listening')
  return {
    url: `http://127.0.0.1:${server.address().port}/v1`,
    async close() {
      server.close()
      server.closeAllConnections()
      await once(server, 'close')
    },
  }
}

async function serve(request, response) {
  try {
    if (request.method !== 'POST' || request.url !== '/v1/chat/completions') {
      response.writeHead(404, { 'content-type': 'application/json' })
      response.end(JSON.stringify({ error: { message: `There is no ${request.method} ${request.url}.` } }))
      return
    }
    const body = await json(request)
    const { text = '', calls = [] } = answer(body)
    response.writeHead(200, { 'content-type': 'text/event-stream' })
    const head = { id: 'chatcmpl-1', object: 'chat.completion.chunk', created: 0, model: body.model }
    const send = (delta, reason = null) => {
      const choices = [{ index: 0, delta, finish_reason: reason }]
      response.write(`data: ${JSON.stringify({ ...head, choices })}\n\n`)
    }
    for (const content of text.match(/\S+\s*/g) ?? []) send({ content })
    for (const [index, { name, params }] of calls.entries()) {
      const call = { name, arguments: JSON.stringify(params) }
      send({ tool_calls: [{ index, id: `call_${index + 1}`, type: 'function', function: call }] })
    }
    send({}, calls.length > 0 ? 'tool_calls' : 'stop')
    response.end('data: [DONE]\n\n')
  } catch {
    // The client has left, or sent what is no JSON.
    response.destroy()
  }
}
