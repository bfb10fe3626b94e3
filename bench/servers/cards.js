/** Agent cards of any number of peers: `/N/.well-known/agent-card.json`, five tools each, after `delayMs`. */
import { createServer } from 'node:http'
import { options, ready } from '../lib/child.js'

const { delayMs = 2 } = options
const schema = { type: 'object', properties: { text: { type: 'string' } }, required: ['text'] }
let now = 0
let most = 0

const server = createServer((req, res) => {
  most = Math.max(most, ++now)
  setTimeout(() => {
    now--
    const url = `http://127.0.0.1:${server.address().port}/${req.url.split('/')[1]}`
    const tools = Array.from({ length: 5 }, (_, i) => `tool_${i}`)
    const card = {
      name: url,
      description: 'One of many.',
      version: '1.0.0',
      supportedInterfaces: [{ url, protocolBinding: 'JSONRPC', protocolVersion: '1.0' }],
      capabilities: {
        streaming: true,
        extensions: [
          {
            uri: 'urn:convoke:tool-call:v1',
            params: {
              tools: Object.fromEntries(tools.map((name) => [`tool-${name}`, { name, input_schema: schema }])),
            },
          },
        ],
      },
      skills: tools.map((name) => ({ id: `tool-${name}`, name, description: 'Does it.', tags: ['tool'] })),
    }
    res.setHeader('content-type', 'application/json').end(JSON.stringify(card))
  }, delayMs)
})
server.listen(0, '127.0.0.1', () => ready(server.address().port, { most: () => most }))
