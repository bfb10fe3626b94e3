/**
 * Where a server's time goes: `node bench/profile.js [--build DIR] [--top 40] [--lines] SCENARIO`. Not a figure, a help to reach
 * them. Runs the load of one bench against a server under V8's profiler and prints the functions by self time.
 */
import { readdirSync } from 'node:fs'
import { join } from 'node:path'
import { parseArgs } from 'node:util'
import { fileURLToPath } from 'node:url'
import { get, load, open } from './lib/client.js'
import { cpuPer, short } from './lib/figures.js'
import { hotLines, hotSpots } from './lib/profile.js'
import { call, echoParams, streamCall } from './lib/requests.js'
import { Servers } from './lib/servers.js'

const echo = (tool) => async (server) => {
  const connections = await open(server.port, 16)
  const run = (limit) => load(connections, { ...limit, make: () => call(tool, echoParams), check: () => {} })
  await run({ count: 20_000 })
  return cpuPer(server, () => run({ ms: 4000 }))
}

const streamOf = (n, times) => async (server) => {
  const [connection] = await open(server.port, 1)
  const run = async () => {
    for (let i = 0; i < times; i++) await connection.stream(streamCall('stream', `{"n":${n}}`))
    return n * times
  }
  await run()
  return cpuPer(server, run)
}

const card = async (server) => {
  const connections = await open(server.port, 16)
  const path = '/.well-known/agent-card.json'
  const { head } = await connections[0].request(get(path, 'a2a-version: 1.0\r\n'))
  const etag = /etag: (.*)/i.exec(head)[1]
  const request = get(path, `a2a-version: 1.0\r\nif-none-match: ${etag}\r\n`)
  const run = (limit) => load(connections, { ...limit, make: () => request, check: () => {} })
  await run({ count: 10_000 })
  return cpuPer(server, () => run({ ms: 3000 }))
}

const scenarios = {
  call: ['convoke', echo('echo'), 'memory'],
  'call-sqlite': ['convoke', echo('echo'), 'sqlite'],
  'write-sqlite': ['convoke', echo('write'), 'sqlite'],
  'call-sdk': ['sdk', echo('echo')],
  'call-http': ['http', echo('echo')],
  stream: ['convoke', streamOf(10_000, 20), 'memory'],
  'stream-small': ['convoke', streamOf(1000, 200), 'memory'],
  'stream-large': ['convoke', streamOf(100_000, 3), 'memory'],
  'stream-sqlite': ['convoke', streamOf(10_000, 20), 'sqlite'],
  'stream-http': ['http', streamOf(10_000, 20)],
  card: ['convoke', card, 'memory'],
}

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    build: { type: 'string', default: fileURLToPath(new URL('../dist', import.meta.url)) },
    top: { type: 'string', default: '40' },
    lines: { type: 'boolean', default: false },
  },
})
const scenario = scenarios[positionals[0]]
if (scenario === undefined) {
  console.error(`Usage: node bench/profile.js [--build DIR] [--top N] [--lines] ${Object.keys(scenarios).join('|')}`)
  process.exit(2)
}

const [name, measure, store] = scenario
const servers = new Servers()
try {
  const folder = servers.folder()
  const options = { build: values.build, answer: '{}', event: `data: ${'x'.repeat(1200)}` }
  if (store === 'sqlite') options.store = servers.sqlite()
  const flags = ['--cpu-prof', `--cpu-prof-dir=${folder}`, '--cpu-prof-interval=200']
  const server = await servers.start(name, options, flags)
  const us = await measure(server)
  await server.stop()
  const [file] = readdirSync(folder)
  console.log(`${positionals[0]}: ${short(us)} µs of CPU for each, the profiler's share included\n`)
  for (const { name: spot, where, selfMs, share } of hotSpots(join(folder, file), 1500).slice(0, Number(values.top))) {
    console.log(`${(share * 100).toFixed(1).padStart(5)} %  ${selfMs.toFixed(0).padStart(6)} ms  ${spot}  ${where}`)
  }
  if (values.lines) {
    console.log()
    for (const { where, share } of hotLines(join(folder, file)).slice(0, Number(values.top))) {
      console.log(`${(share * 100).toFixed(1).padStart(5)} %  ${where}`)
    }
  }
} finally {
  await servers.close()
}
