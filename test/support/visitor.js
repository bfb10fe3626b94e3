// A program that calls a peer, by itself or with a node of its own, closes what it opened, and ends when nothing is
// left to do. It tells what was left when it was done, and how long its end took.
import { setImmediate as nextTurn } from 'node:timers/promises'
import { connectPeer, createNode } from 'convoke'

const [kind, url] = process.argv.slice(2)
const auth = { bearer: process.env.TOKEN }
let result

if (kind === 'node') {
  const node = await createNode({ agent: { id: 'visitor' }, peers: { bob: { url, auth } }, logLevel: 'silent' })
  await node.start()
  await node.tools.call('bob.values')
  for await (const _ of node.tools.stream('bob.count', { n: 3 }));
  for await (const { type } of node.tools.stream('bob.spin')) if (type === 'chunk') break
  result = await node.tools.call('bob.who')
  await node.stop()
} else {
  const peer = await connectPeer(url, { auth })
  await peer.executeRemoteTool('values')
  for await (const _ of peer.executeRemoteToolStreaming('count', { n: 3 }));
  for await (const { type } of peer.executeRemoteToolStreaming('spin')) if (type === 'chunk') break
  result = await peer.executeRemoteTool('who')
  await peer.close()
}

const doneAt = performance.now()
// What was closed is gone with the next turn.
await nextTurn()
// Standard output is a pipe, and not of our making.
const handles = process.getActiveResourcesInfo().filter((kind) => kind !== 'PipeWrap')
process.on('exit', () => process.stdout.write(JSON.stringify({ result, handles, msToEnd: performance.now() - doneAt })))
