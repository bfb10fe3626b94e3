// Starts a node for the official A2A compatibility kit and prints its URL. PORT chooses the port, 9999 unless given.
// Push notifications go to loopback, where the kit listens; the kit sends the same message ids again and again and
// expects a new task each time.
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
    extendedCard: process.env['EXTENDED_CARD'] !== 'off',
    push: { allowPrivate: true },
  },
  onMessage,
  baseDir: import.meta.dirname,
})
await node.start()
console.log(node.url)

for (const signal of ['SIGINT', 'SIGTERM']) process.once(signal, () => void node.stop().then(() => process.exit(0)))
