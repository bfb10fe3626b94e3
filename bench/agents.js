/** The agent runtime: what it costs per event, whether many keys keep their order in flat memory, how soon a token leaves. */
import { Connection, post } from './lib/client.js'
import { cpuPer, figure, interleave, main, max, median, min, ratio, say, short, spread } from './lib/figures.js'
import { streamMessage } from './lib/requests.js'
import { Servers } from './lib/servers.js'

const withGc = ['--expose-gc']
const megabyte = 1e6

export async function agents({ quick, build }) {
  const servers = new Servers()
  try {
    return [
      ...(await perEvent(servers, { quick, build })),
      ...(await manyKeys(servers, { build })),
      ...(await firstToken(servers, { quick, build })),
    ]
  } finally {
    await servers.close()
  }
}

/** The CPU of a process that runs the agent, less that of one that does the actions' work in bare functions. */
async function perEvent(servers, { quick, build }) {
  say('agents: what the runtime adds to an event')
  const work = { count: quick ? 10_000 : 40_000, keys: 1_000 }
  const running = async (how) => {
    const child = await servers.start('agents', { build, how })
    const measure = () => cpuPer(child, () => child.ask('run', work))
    await measure()
    return measure
  }
  const cpu = await interleave(quick ? 5 : 10, {
    bare: await running('bare'),
    agent: await running('agent'),
    react: await running('react'),
    round: await running('round'),
    calls: await running('calls'),
  })
  const added = (name, ours, bare) =>
    figure(name, {
      value: min(ours) - min(bare),
      middle: median(ours) - median(bare),
      unit: 'µs',
      target: ['<=', 20],
      detail: `${spread(ours)} - ${spread(bare)} µs`,
    })
  return [
    added('10a CPU added to an event of an agent with three actions', cpu.agent, cpu.bare),
    added('10a CPU added to an event of a ReAct agent whose model answers at once', cpu.react, cpu.bare),
    added('10a CPU added to an event of a ReAct agent whose model calls a tool first', cpu.round, cpu.calls),
  ]
}

/** One stream through one environment, looked at after each quarter; the first fills the keys. */
async function manyKeys(servers, { build }) {
  const parts = 4
  const work = { count: 100_000, keys: 10_000, parts }
  say(`agents: ${work.keys} keys with ${work.count} inputs`)
  const child = await servers.start('agents', { build, how: 'agent' }, withGc)
  const heap = async () => (await child.ask('memory')).heapUsed / megabyte
  const empty = await heap()
  await child.ask('begin', work)
  const heaps = []
  for (let part = 0; part < parts; part++) {
    await child.ask('reach')
    heaps.push(await heap())
    await child.ask('go')
  }
  const { outputs, wrong } = await child.ask('end')
  const [first, ...later] = heaps
  return [
    figure('10b heap after all inputs : after a quarter of them', {
      value: heaps.at(-1) / first,
      middle: median(later) / first,
      target: ['<=', 1.1],
      detail: `${heaps.map(short).join(', ')} MB; ${short(empty)} MB empty`,
    }),
    figure('10b inputs lost, doubled or out of their key’s order', {
      value: Math.abs(work.count - outputs) + wrong,
      middle: Math.abs(work.count - outputs) + wrong,
      unit: '',
      target: ['<=', 0],
      detail: `${outputs} outputs of ${work.count} inputs`,
    }),
  ]
}

/** From the moment a token leaves the model's process until a caller has it, through a node and through a bare relay. */
async function firstToken(servers, { quick, build }) {
  say('agents: how long a token takes')
  const model = await servers.start('model')
  const node = await servers.start('convoke', { build, model: model.port })
  const stored = await servers.start('convoke', { build, model: model.port, store: servers.sqlite() })
  const relay = await servers.start('relay', { model: model.port })
  const through = (port, request) => {
    const delays = { first: [], later: [] }
    return {
      delays,
      measure: async () => {
        const connection = await Connection.open(port)
        let isFirst = true
        await connection.stream(request(), (data) => {
          const now = process.hrtime.bigint()
          for (const [, at] of data.toString().matchAll(/"(\d{10,}) "/g)) {
            delays[isFirst ? 'first' : 'later'].push(Number(now - BigInt(at)) / 1e6)
            isFirst = false
          }
        })
        connection.socket.destroy()
        return 1
      },
    }
  }
  const ways = {
    memory: through(node.port, () => streamMessage('Say something.')),
    sqlite: through(stored.port, () => streamMessage('Say something.')),
    relay: through(relay.port, () => post('{}')),
  }
  const contenders = Object.fromEntries(Object.entries(ways).map(([name, { measure }]) => [name, measure]))
  await interleave(2, contenders)
  for (const { delays } of Object.values(ways)) {
    delays.first = []
    delays.later = []
  }
  await interleave(quick ? 8 : 25, contenders)
  const told = (store) =>
    figure(`10c first token, from the model through a node (${store}) to the caller`, {
      value: median(ways[store].delays.first),
      middle: median(ways[store].delays.first),
      unit: 'ms',
      target: ['<=', 5],
      detail: `${spread(ways[store].delays.first)}, worst ${short(max(ways[store].delays.first))} ms; relay ${spread(ways.relay.delays.first)} ms`,
    })
  return [
    told('memory'),
    told('sqlite'),
    ratio('10c a further token, node : relay', ways.memory.delays.later, ways.relay.delays.later, undefined, 'ms'),
  ]
}

await main(import.meta.url, agents)
