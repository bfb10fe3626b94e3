// Starts a node for the official A2A compatibility kit and prints its URL. PORT chooses the port, 9999 unless given.
import { createNode } from 'convoke'
import { onMessage } from './agent.js'

const node = await createNode({
  agent: {
    id: 'conformance',
    name: 'Conformance',
    description: 'An agent for the A2A compatibility kit.',
    card: './card.json',
  },
  server: {
    port: Number(process.env['PORT'] ?? 9999),
    extendedCard: true,
    // The kit listens for webhooks on loopback.
    push: { allowPrivate: true },
    // It sends the same message ids again and again, and expects a new task each time.
    deduplicateMessages: false,
  },
  onMessage,
  baseDir: import.meta.dirname,
})
await node.start()
console.log(node.url)

for (const signal of ['SIGINT', 'SIGTERM']) process.once(signal, () => void node.stop().then(() => process.exit(0)))
