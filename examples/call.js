// Calls a tool and prints its result: node examples/call.js [URL [TOOL [PARAMS]]]
import { connectPeer } from 'convoke'

const [url = 'http://127.0.0.1:4120', tool = 'word_count', params = '{"text": "to be or not to be", "top": 2}'] =
  process.argv.slice(2)
let peer
try {
  peer = await connectPeer(url)
  // The params are checked against the schema on the peer's card before they are sent, the result when it comes.
  const result = await peer.executeRemoteTool(tool, JSON.parse(params), { timeoutMs: 30_000 })
  console.log(JSON.stringify(result, null, 2))
} catch (error) {
  // The message is for people: it says who failed and why.
  console.error(error.message)
  process.exitCode = 1
} finally {
  await peer?.close()
}
