/** Calls of a tool of an MCP server over stdio: through a node, and by the SDK's client alone. In this process. */
import { join } from 'node:path'
import { fileURLToPath, pathToFileURL } from 'node:url'
import { Client } from '@modelcontextprotocol/sdk/client/index.js'
import { StdioClientTransport } from '@modelcontextprotocol/sdk/client/stdio.js'
import { interleave, main, ratio, say } from './lib/figures.js'

const server = { command: process.execPath, args: [fileURLToPath(new URL('servers/mcp.js', import.meta.url))] }
const params = { value: { name: 'Ada', count: 3, tags: ['a', 'b'] } }

export async function mcp({ quick, build }) {
  say('mcp: calls through a node and by the bare client')
  const { createNode } = await import(pathToFileURL(join(build, 'index.js')).href)
  const node = await createNode({ agent: { id: 'bench' }, logLevel: 'silent', mcpServers: { bench: server } })
  const bare = new Client({ name: 'bench', version: '1' })
  await bare.connect(new StdioClientTransport(server))
  try {
    const contenders = {
      node: () => node.tools.call('bench.echo', params),
      // With a limit, as most calls have one.
      limited: () => node.tools.call('bench.echo', params, { timeoutMs: 60_000 }),
      bare: () => bare.callTool({ name: 'echo', arguments: params }),
    }
    const figures = []
    for (const width of [1, 16]) {
      const measured = await interleave(quick ? 4 : 12, rounds(contenders, width, quick ? 500 : 3000))
      const cpu = (name) => measured[name].map((sample) => sample.cpu)
      const wall = (name) => measured[name].map((sample) => sample.wall)
      const how = width === 1 ? 'one at a time' : `${width} at once`
      figures.push(
        ratio(`8a MCP call, time, ${how}, node : SDK client`, wall('node'), wall('bare'), ['<=', 1.3]),
        ratio(`8b MCP call, CPU, ${how}, node : SDK client`, cpu('node'), cpu('bare'), ['<=', 1.3]),
        ratio(`8c the same with a time limit, CPU`, cpu('limited'), cpu('bare')),
      )
    }
    return figures
  } finally {
    await bare.close()
    await node.stop()
  }
}

/** `{wall, cpu}` of a call in microseconds; that of the server is in the time, not in the CPU. */
function rounds(contenders, width, calls) {
  const measure = (call) => async () => {
    const cpuBefore = process.cpuUsage()
    const startedAt = performance.now()
    let left = calls
    const work = async () => {
      while (left-- > 0) await call()
    }
    await Promise.all(Array.from({ length: width }, work))
    const { user, system } = process.cpuUsage(cpuBefore)
    return { wall: ((performance.now() - startedAt) * 1000) / calls, cpu: (user + system) / calls }
  }
  return Object.fromEntries(Object.entries(contenders).map(([name, call]) => [name, measure(call)]))
}

await main(import.meta.url, mcp)
