// Calls a tool that takes its time, and prints what it says as it comes: node examples/stream.js [URL [N]]
import { connectPeer } from 'convoke'

const [url = 'http://127.0.0.1:4120', n = '5'] = process.argv.slice(2)
let peer
try {
  peer = await connectPeer(url)
  for await (const event of peer.executeRemoteToolStreaming('count_to', { n: Number(n), delay_ms: 100 })) {
    switch (event.type) {
      case 'progress':
        console.log(`progress ${event.progress} of ${event.total}`)
        break
      case 'chunk':
        console.log('chunk', event.chunk)
        break
      case 'log':
        console.log(event.level, event.data)
        break
      case 'restart':
        console.log('restart: the peer died and runs the tool again, the chunks so far no longer count')
        break
      case 'result':
        console.log('result', event.result)
    }
  }
} catch (error) {
  // The message is for people: it says who failed and why.
  console.error(error.message)
  process.exitCode = 1
} finally {
  await peer?.close()
}
