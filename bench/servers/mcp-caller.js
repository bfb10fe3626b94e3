/**
 * Calls an MCP server that it starts itself: through the tool space of a node, or by the SDK's client alone. `options`:
 * `{build, how}`, `how` is `node` or `sdk`. It listens nowhere.
 */
import { Client } from '@modelcontextprotocol/sdk/client/index.js'
import { StdioClientTransport } from '@modelcontextprotocol/sdk/client/stdio.js'
import { join } from 'node:path'
import { fileURLToPath, pathToFileURL } from 'node:url'
import { options, ready } from '../lib/child.js'

const { createNode } = await import(pathToFileURL(join(options.build, 'index.js')).href)
const server = { command: process.execPath, args: [fileURLToPath(new URL('mcp-echo.js', import.meta.url))] }
const open = () => createNode({ agent: { id: 'bench' }, mcpServers: { srv: server }, logLevel: 'silent' })

const openers = {
  async node() {
    const node = await open()
    return (params) => node.tools.call('srv.echo', params)
  },
  async sdk() {
    const client = new Client({ name: 'bench', version: '1.0.0' })
    await client.connect(new StdioClientTransport(server))
    return async (params) => {
      const { content } = await client.callTool({ name: 'echo', arguments: params })
      return content[0].text
    }
  },
}

/** Opened at the first call. */
let caller

/** `n` calls, `width` at a time. */
async function call({ n, width }) {
  caller ??= await openers[options.how]()
  let left = n
  const calling = async () => {
    while (left-- > 0) {
      const text = `Call ${left}`
      if ((await caller({ text, times: 1 })) !== text) throw new Error('An echo said something else.')
    }
  }
  await Promise.all(Array.from({ length: width }, calling))
  return n
}

/** Microseconds for each of `n` calls, one at a time. */
async function time({ n }) {
  const startedAt = performance.now()
  await call({ n, width: 1 })
  return ((performance.now() - startedAt) * 1000) / n
}

/** A node that connects to the server, loses it to SIGKILL, connects again and stops. Gives the ids of both processes. */
async function crashRound() {
  const node = await open()
  const pid = () => node.mcpServers.health()[0].pid
  const pids = []
  for (const text of ['before', 'after']) {
    if ((await node.tools.call('srv.echo', { text })) !== text) throw new Error('An echo said something else.')
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
  call,
  time,
  handles,
  /** Gives how many of the processes that there were still run. */
  async crashes({ rounds }) {
    const pids = []
    for (let i = 0; i < rounds; i++) pids.push(...(await crashRound()))
    if (new Set(pids).size !== 2 * rounds) throw new Error('Some crash did not take place.')
    return pids.filter(isRunning).length
  },
})
