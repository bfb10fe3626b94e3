// Stops a tool by leaving its stream; an AbortSignal does the same: node examples/cancel.js [URL]
import { connectPeer } from 'convoke'

const [url = 'http://127.0.0.1:4120'] = process.argv.slice(2)
let peer
try {
  peer = await connectPeer(url)
  let taskId
  const onTask = (task) => (taskId = task.taskId)
  for await (const event of peer.executeRemoteToolStreaming('count_to', { n: 1_000_000, delay_ms: 50 }, { onTask })) {
    if (event.type !== 'chunk') continue
    console.log(event.chunk)
    if (event.chunk.i === 3) break
  }
  // The loop is left when the peer has said that the work stands still.
  const { status } = await peer.getTask(taskId)
  console.log(status.state)

  // With a signal, here one that aborts after 200 ms, the call rejects.
  const signal = AbortSignal.timeout(200)
  try {
    await peer.executeRemoteTool('count_to', { n: 1_000_000, delay_ms: 50 }, { signal })
  } catch (error) {
    console.log(error.code)
  }
} catch (error) {
  // The message is for people: it says who failed and why.
  console.error(error.message)
  process.exitCode = 1
} finally {
  await peer?.close()
}
