// Finds out what an agent is and which tools it has: node examples/discover.js [URL]
import { connectPeer } from 'convoke'

const [url = 'http://127.0.0.1:4120'] = process.argv.slice(2)
let peer
try {
  peer = await connectPeer(url)
  const { name, version, binding, streaming } = await peer.connect()
  console.log(`${name} speaks A2A ${version} over ${binding}${streaming ? ' and streams' : ''}.`)
  for (const tool of await peer.listRemoteTools()) {
    const params = Object.keys(tool.parametersSchema?.properties ?? {}).join(', ')
    console.log(`  ${tool.name}(${params})\n    ${tool.description}`)
  }
} catch (error) {
  // The message is for people: it says who failed and why.
  console.error(error.message)
  process.exitCode = 1
} finally {
  await peer?.close()
}
