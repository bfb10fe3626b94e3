/** A small blocking call over JSON-RPC: CPU for each one, and calls per second. */
import { connected, load } from './lib/client.js'
import { cpuPer, figure, interleave, main, max, median, ratio, say, short, spread } from './lib/figures.js'
import { call, checkAnswers, echoParams, isEchoed } from './lib/requests.js'
import { Servers } from './lib/servers.js'

const always = () => true

export async function calls({ quick, build }) {
  const servers = new Servers()
  try {
    say('calls: CPU of one small blocking call')
    const node = await servers.start('convoke', { build })
    const answer = await sample(node)
    const floor = await servers.start('http', { answer })
    const contenders = {
      node: calling(node, 16, isEchoed),
      floor: calling(floor, 16, always),
      sdk: calling(await servers.start('sdk'), 16, isEchoed),
      express: calling(await servers.start('express', { answer }), 16, always),
    }
    contenders.nodeAlone = calling(node, 1, isEchoed)
    contenders.floorAlone = calling(floor, 1, always)
    const ms = quick ? 150 : 500
    // Long enough for the memory store to be full and to drop a task for each new one, as it does from then on.
    await contenders.node({ count: quick ? 8000 : 20_000 })
    for (const name of ['floor', 'sdk', 'express']) await contenders[name]({ count: quick ? 1000 : 4000 })
    const runs = await interleave(quick ? 3 : 11, timed(contenders, ms))
    const cpu = pick(runs, 'cpu')
    return [
      ratio('1a call, memory : bare node:http', cpu.node, cpu.floor, ['<=', 1.6]),
      ratio('1b call, SDK : memory', cpu.sdk, cpu.node, ['>=', 6]),
      ratio('1c the same as 1a, one call at a time', cpu.nodeAlone, cpu.floorAlone),
      ratio('1d bare express 5 : bare node:http', cpu.express, cpu.floor),
      ...(await throughput(servers, { quick, build })),
    ]
  } finally {
    await servers.close()
  }
}

/** Calls per second at 64 connections. Wall-clock time, so the load and everybody else on the machine count too. */
async function throughput(servers, { quick, build }) {
  say('calls: calls per second with SQLite on disk')
  const durable = await servers.start('convoke', { build, store: servers.sqlite() })
  const sdk = await servers.start('sdk')
  const contenders = {
    readOnly: calling(durable, 64, isEchoed),
    // Stored before it runs and again at its end: two commits in a row.
    write: calling(durable, 64, isEchoed, 'write'),
    sdk: calling(sdk, 64, isEchoed),
  }
  for (const run of Object.values(contenders)) await run({ count: quick ? 1000 : 4000 })
  const runs = await interleave(quick ? 3 : 9, timed(contenders, quick ? 300 : 700))
  const cpu = pick(runs, 'cpu')
  const perSecond = pick(runs, 'perSecond')
  const faster = (name, ours, target) =>
    figure(name, {
      value: max(perSecond[ours]) / max(perSecond.sdk),
      middle: median(perSecond[ours]) / median(perSecond.sdk),
      target,
      detail:
        `${short(max(perSecond[ours]))}/${short(median(perSecond[ours]))} : ` +
        `${short(max(perSecond.sdk))}/${short(median(perSecond.sdk))} calls/s, maximum/median; CPU ${spread(cpu[ours])} µs`,
    })
  return [
    faster('2a calls/s, sqlite durable : SDK in memory', 'readOnly', ['>=', 1]),
    faster('2b the same, stored before it runs too', 'write'),
  ]
}

/** Runs a load on fresh connections: resolves with CPU microseconds for each call, and calls for each second. */
function calling(server, count, isRight, tool = 'echo') {
  const check = checkAnswers(isRight)
  const make = () => call(tool, echoParams)
  return (limit) =>
    connected(server, count, async (connections) => {
      const startedAt = performance.now()
      let calls = 0
      const cpu = await cpuPer(server, async () => (calls = await load(connections, { ...limit, make, check })))
      return { cpu, perSecond: (calls * 1000) / (performance.now() - startedAt) }
    })
}

function timed(contenders, ms) {
  return Object.fromEntries(Object.entries(contenders).map(([name, run]) => [name, () => run({ ms })]))
}

/** One of the numbers of each run. */
function pick(runs, key) {
  return Object.fromEntries(Object.entries(runs).map(([name, samples]) => [name, samples.map((each) => each[key])]))
}

/** One answer of ours, for those that answer the same bytes. */
async function sample(server) {
  return await connected(server, 1, async ([connection]) => {
    let answer
    // The time that a first call took has more digits than any later one.
    for (let i = 0; i < 50; i++) answer = await connection.request(call('echo', echoParams))
    return answer.body.toString()
  })
}

await main(import.meta.url, calls)
