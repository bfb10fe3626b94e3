/** Nodes that lose the MCP server which they have started. `options`: `{build}`. It listens nowhere. */
import { join } from 'node:path'
import { fileURLToPath, pathToFileURL } from 'node:url'
import { options, ready } from '../lib/child.js'

const { createNode } = await import(pathToFileURL(join(options.build, 'index.js')).href)
const server = { command: process.execPath, args: [fileURLToPath(new URL('mcp.js', import.meta.url))] }
const open = () => createNode({ agent: { id: 'bench' }, mcpServers: { srv: server }, logLevel: 'silent' })

/** A node that connects to the server, loses it to SIGKILL, connects again and stops. Gives the ids of both processes. */
async function crashRound() {
  const node = await open()
  const pid = () => node.mcpServers.health()[0].pid
  const pids = []
  for (const text of ['before', 'after']) {
    if ((await node.tools.call('srv.echo', { value: { text } })) !== JSON.stringify({ text }))
      throw new Error('An echo said something else.')
    pids.push(pid())
    if (text !== 'before') continue
    process.kill(pid(), 'SIGKILL')
    while (node.mcpServers.health()[0].state !== 'down') await new Promise((resolve) => setTimeout(resolve, 1))
  }
  await node.stop()
  return pids
}

function isRunning(pid) {
  try {
    return process.kill(pid, 0)
  } catch {
    return false
  }
}

/** What keeps a process alive, and its children: `ProcessWrap` is one that runs. Files being read end by themselves. */
function handles() {
  return process.getActiveResourcesInfo().filter((kind) => !/^(FS|Immediate|TickObject)/.test(kind)).length
}

ready(0, {
  handles,
  /** Gives how many of the processes that there were still run. */
  async crashes({ rounds }) {
    const pids = []
    for (let i = 0; i < rounds; i++) pids.push(...(await crashRound()))
    if (new Set(pids).size !== 2 * rounds) throw new Error('Some crash did not take place.')
    return pids.filter(isRunning).length
  },
})
