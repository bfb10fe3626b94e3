// One tool space: an own function, a peer's tools, and those of an MCP server: node examples/tool-space.js [URL]
import { fileURLToPath } from 'node:url'
import { createDefinitions, createNode, defineTool, executeBatch } from 'convoke'

const [url = 'http://127.0.0.1:4120'] = process.argv.slice(2)

const shout = defineTool({
  name: 'shout',
  description: 'Says a text loudly.',
  input: { type: 'object', properties: { text: { type: 'string' } }, required: ['text'] },
  run: ({ text }) => `${text.toUpperCase()}!`,
})

// Any MCP server will do. This one is `convoke mcp URL`: the agent's tools, for MCP hosts.
const main = fileURLToPath(new URL('../dist/cli/main.js', import.meta.url))
const node = await createNode({
  agent: { id: 'collector' },
  tools: [shout],
  peers: { peer: { url } },
  mcpServers: { server: { command: process.execPath, args: [main, 'mcp', url] } },
  toolPolicy: [{ tools: '*.count_to', decision: 'deny', reason: 'It takes too long.' }, { decision: 'allow' }],
})
try {
  await node.tools.discover()
  const failed = node.tools.health().find(({ source, state }) => source === 'peer' && state === 'failed')
  if (failed?.lastError !== undefined) throw failed.lastError
  console.log(node.tools.summary().bySource)

  // What a language model is given, and a round of calls as it answers with them.
  const tools = createDefinitions(node.tools.list(), { for: 'openai', select: { handles: ['shout', '*word_count'] } })
  console.log(tools.definitions.map((each) => each.function.name))
  const calls = tools.definitions.map((each, index) => ({
    id: `call_${index + 1}`,
    function: { name: each.function.name, arguments: '{"text": "to be or not to be"}' },
  }))
  calls.push({ id: 'call_9', function: { name: tools.nameOf('shout'), arguments: '{"txt": "no"}' } })
  const { answers } = await executeBatch(node.tools, calls, { names: tools })
  for (const { id, name, content } of answers) console.log(id, name, content)

  const denied = await node.tools.tryCall('peer.count_to', { n: 3 })
  console.log(denied.error)
} catch (error) {
  console.error(error.message)
  process.exitCode = 1
} finally {
  await node.stop()
}
