// A node whose model answers messages and calls the node's tools, asked over A2A and answered token by token:
// node examples/agent-node.js [--model-url URL --model NAME]
import { randomUUID } from 'node:crypto'
import { connectPeer, createNode } from 'convoke'
import { openModel } from './reviews/model.js'
import { findReviews, notifyShipping } from './reviews/tools.js'

const text = 'What do people not like about the lamp? Tell shipping of what they did wrong.'
const message = { messageId: randomUUID(), role: 'ROLE_USER', parts: [{ text }] }

let model, node, peer
try {
  model = await openModel()
  node = await createNode({
    // The model may call all tools that the node knows, also those of MCP servers and peers, if it has any.
    agent: { id: 'shop', react: { model: 'local', prompt: 'You know the reviews of a shop. Answer briefly.' } },
    models: { local: model.settings },
    tools: [findReviews, notifyShipping],
    logLevel: 'error',
  })
  await node.start()
  console.log(`${node.url} answers by ${model.name}.\n\n? ${text}`)

  // From here on as any A2A client would, on any machine.
  peer = await connectPeer(node.url)
  for await (const { event } of peer.streamMessage(message)) {
    const { statusUpdate, artifactUpdate } = event
    const progress = statusUpdate?.metadata?._tool_progress
    if (progress !== undefined) console.log(`(${progress.message}: ${progress.progress} of ${progress.total} done)`)
    if (artifactUpdate !== undefined) {
      // Pieces of one text; one that is not appended begins it anew.
      if (artifactUpdate.append !== true) process.stdout.write('\n! ')
      process.stdout.write(artifactUpdate.artifact.parts[0].text)
    }
    const { state, message: closing } = statusUpdate?.status ?? {}
    if (state === 'TASK_STATE_FAILED') throw new Error(closing.parts[0].text)
    if (state === 'TASK_STATE_COMPLETED') console.log()
  }
} catch (error) {
  // The message is for people: it says who failed and why.
  console.error(error.message)
  process.exitCode = 1
} finally {
  await peer?.close()
  await node?.stop()
  await model?.close()
}
