/** All benches in one table: `node bench/run.js [--quick] [-o json]`. */
import { agents } from './agents.js'
import { calls } from './calls.js'
import { client } from './client.js'
import { main } from './lib/figures.js'
import { mcp } from './mcp.js'
import { memory } from './memory.js'
import { space } from './space.js'
import { streams } from './streams.js'
import { tools } from './tools.js'

await main(import.meta.url, async (options) => {
  const figures = []
  for (const bench of [calls, streams, memory, tools, client, mcp, space, agents])
    figures.push(...(await bench(options)))
  return figures
})
