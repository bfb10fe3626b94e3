// A node whose tool calls the tools of a peer: node examples/delegate.js [URL]
import { createNode, defineTool } from 'convoke'

const [url = 'http://127.0.0.1:4120'] = process.argv.slice(2)

const compare = defineTool({
  name: 'compare',
  description: 'Says which of two texts has more words.',
  input: { type: 'object', properties: { a: { type: 'string' }, b: { type: 'string' } }, required: ['a', 'b'] },
  async run({ a, b }, { tools }) {
    // A cancel and the deadline of this call hold for what it calls, wherever that runs.
    const [first, second] = await Promise.all([a, b].map((text) => tools.call('peer.word_count', { text })))
    return first.words === second.words ? 'neither' : first.words > second.words ? 'a' : 'b'
  },
})

const node = await createNode({ agent: { id: 'comparer' }, tools: [compare], peers: { peer: { url } } })
await node.start()
try {
  console.log(`${node.url} has a tool "compare", which asks ${url}.`)
  console.log(await node.tools.call('compare', { a: 'to be or not to be', b: 'that is the question' }))
} catch (error) {
  // The message is for people: it says who failed and why.
  console.error(error.message)
  process.exitCode = 1
} finally {
  await node.stop()
}
