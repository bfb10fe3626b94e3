/** The tool space: what it adds to a call, what ten thousand tools cost, what a call of an MCP server costs, and what crashes leave. */
import { cpuPer, figure, interleave, main, max, median, min, ratio, say, short, spread } from './lib/figures.js'
import { Servers } from './lib/servers.js'

const withGc = ['--expose-gc']
const megabyte = 1e6
const many = { sources: 100, tools: 100 }

export async function space({ quick, build }) {
  const servers = new Servers()
  try {
    return [
      ...(await pipeline(servers, { quick, build })),
      ...(await manyTools(servers, { quick, build })),
      ...(await crashes(servers, { quick, build })),
    ]
  } finally {
    await servers.close()
  }
}

/** Each way to call in a process of its own: a subscriber is one for all calls of its process. */
async function pipeline(servers, { quick, build }) {
  say('space: what the pipeline adds to a call')
  const n = quick ? 20_000 : 50_000
  const start = (around) => servers.start('pipeline', { build, around })
  const calling = async (around) => {
    const child = await start(around)
    const measure = () => cpuPer(child, () => child.ask('call', { n }))
    await measure()
    return measure
  }
  const cpu = await interleave(quick ? 5 : 12, {
    bare: await calling('nothing'),
    plain: await calling('plain'),
    all: await calling('all'),
  })
  const added = (name, ours) =>
    figure(name, {
      value: min(ours) - min(cpu.bare),
      middle: median(ours) - median(cpu.bare),
      unit: 'µs',
      target: ['<=', 15],
      detail: `${spread(ours)} - ${spread(cpu.bare)} µs`,
    })
  const child = await start('plain')
  const rounds = (how) => () => cpuPer(child, () => child.ask('round', { how, n: n / 20 }))
  const contenders = { batch: rounds('batch'), tryCall: rounds('tryCall') }
  await interleave(2, contenders)
  const ofRounds = await interleave(quick ? 5 : 12, contenders)
  return [
    added('9a CPU added to a call of a local function, plain', cpu.plain),
    added('9a the same with policy, limits, retry, hooks, strict results and a subscriber', cpu.all),
    ratio('9a a round of 10 calls by executeBatch : 10 tryCalls', ofRounds.batch, ofRounds.tryCall),
  ]
}

/** Of a few milliseconds each, so many times; in one process, which is alone with them. */
async function manyTools(servers, { quick, build }) {
  const count = many.sources * many.tools
  say(`space: ${count} tools of ${many.sources} sources`)
  const child = await servers.start('many-tools', { build, ...many }, withGc)
  const times = async (number, what, argument) => {
    const samples = []
    for (let i = 0; i < number; i++) samples.push(await child.ask(what, argument))
    return samples
  }
  const told = (name, samples, unit, target) =>
    figure(name, { value: min(samples), middle: median(samples), unit, target, detail: `worst ${short(max(samples))}` })
  const heap = async () => (await child.ask('memory')).heapUsed / megabyte

  const empty = await heap()
  const openMs = await child.ask('open')
  const listed = await heap()
  const firstSearchMs = await child.ask('searchOnce', {})
  const full = await heap()
  const lists = await times(quick ? 20 : 60, 'list')
  const gets = await times(quick ? 10 : 30, 'lookup', { how: 'get' })
  const resolves = await times(quick ? 10 : 30, 'lookup', { how: 'resolve' })
  await child.ask('search')
  const searches = await times(quick ? 3 : 10, 'search')
  const ofQueries = searches[0].map((_, i) => searches.map((each) => each[i]))
  const changes = await times(quick ? 10 : 30, 'change')
  const searchesAfter = await times(quick ? 6 : 20, 'searchOnce', { changed: true })
  const firstDefineMs = await child.ask('define')
  const defines = await times(quick ? 5 : 15, 'define')
  await child.stop()
  return [
    told(`9b list of ${count} tools from ${many.sources} sources`, lists, 'ms', ['<=', 5]),
    told('9b lookup by name, get', gets, 'µs', ['<=', 2]),
    told('9b lookup by name, resolve', resolves, 'µs', ['<=', 2]),
    figure('9b search, the median of 25 queries', {
      value: median(ofQueries.map(min)),
      middle: median(ofQueries.map(median)),
      unit: 'ms',
      target: ['<=', 10],
      detail: `the first ${short(firstSearchMs)} ms, with the index`,
    }),
    figure('9b search, the worst of 25 queries', {
      value: max(ofQueries.map(min)),
      middle: max(ofQueries.map(median)),
      unit: 'ms',
      target: ['<=', 10],
      detail: `worst ${short(max(ofQueries.map(max)))}`,
    }),
    figure('9b heap of all that, pins and index included', {
      value: full - empty,
      unit: 'MB',
      target: ['<=', 100],
      detail: `${short(full)} - ${short(empty)} MB; ${short(listed - empty)} before the first search`,
    }),
    figure('9b the first list, which pins all of them', { value: openMs, unit: 'ms' }),
    told('9b from the change of one tool to the next list', changes, 'ms'),
    told('9b from the change of one tool to the end of a search', searchesAfter, 'ms'),
    told(`9d definitions of ${count} tools for OpenAI, made before`, defines, 'ms'),
    figure('9d the first time', { value: firstDefineMs, unit: 'ms' }),
  ]
}

/** A leak leaves something in each ten rounds, so the fewest that ten rounds left counts. */
async function crashes(servers, { quick, build }) {
  say('space: connect, crash and connect again')
  const rounds = 10
  const child = await servers.start('crashes', { build }, withGc)
  const heap = async () => {
    const { heapUsed, external } = await child.ask('memory')
    return heapUsed + external
  }
  // The code is loaded before, and what V8 learns and compiles of it in the first forty rounds is no leak.
  for (let i = 0; i < 4; i++) await child.ask('crashes', { rounds })
  const handles = await child.ask('handles')
  const growth = []
  let running = 0
  let last = await heap()
  for (let i = 0; i < (quick ? 2 : 6); i++) {
    running += await child.ask('crashes', { rounds })
    const now = await heap()
    growth.push((now - last) / rounds)
    last = now
  }
  const handlesAfter = await child.ask('handles')
  await child.stop()
  return [
    figure(`9c processes left by ${rounds * growth.length} rounds of connect, crash and reconnect`, {
      value: running,
      unit: '',
      target: ['<=', 0],
    }),
    figure('9c handles left by them', {
      value: handlesAfter - handles,
      unit: '',
      target: ['<=', 0],
      detail: `${handlesAfter} - ${handles}`,
    }),
    figure('9c heap left by each of them', {
      value: min(growth) / 1024,
      middle: median(growth) / 1024,
      unit: 'KiB',
      target: ['<=', 5],
      detail: `${growth.map((each) => short(each / 1024)).join(' ')} KiB after ten each; ${short(last / megabyte)} MB`,
    }),
  ]
}

await main(import.meta.url, space)
