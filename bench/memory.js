/** What stays: over a million calls, behind idle followers, behind a reader that stalls. */
import { connected, Connection, load, open } from './lib/client.js'
import { cpuPer, figure, main, median, min, say, short } from './lib/figures.js'
import { call, checkAnswers, echoParams, isEchoed, rpc, startCall, streamCall } from './lib/requests.js'
import { Servers } from './lib/servers.js'

const MB = 1024 * 1024
const withGc = ['--expose-gc']

export async function memory({ quick, build }) {
  const servers = new Servers()
  try {
    return [
      ...(await manyCalls(servers, { quick, build })),
      ...(await followers(servers, { quick, build })),
      ...(await stalledReader(servers, { quick, build })),
    ]
  } finally {
    await servers.close()
  }
}

/** Pipelined calls in steps of 10,000, each with its CPU; fewer than a million when they take too long. */
async function manyCalls(servers, { quick, build }) {
  let total = quick ? 60_000 : 1_000_000
  const step = 10_000
  const until = performance.now() + (quick ? 5_000 : 85_000)
  say(`memory: ${total} calls`)
  const server = await servers.start('convoke', { build }, withGc)
  const run = { count: step, depth: 8, make: () => call('echo', echoParams), check: checkAnswers(isEchoed) }
  const cpu = []
  let early
  const middle = quick ? 40_000 : 100_000
  for (let done = 0; done < total; done += step) {
    cpu.push(await connected(server, 16, (connections) => cpuPer(server, () => load(connections, run))))
    if (done + step === middle) early = await server.ask('memory')
    if (done >= middle && performance.now() > until) total = done + step
  }
  const late = await server.ask('memory')
  await server.stop()
  // The first step is the compiler's.
  const first = cpu.slice(1, quick ? 3 : 6)
  const last = cpu.slice(quick ? -2 : -5)
  return [
    figure(`4a the last of ${total} calls : those after 10,000`, {
      value: min(last) / min(first),
      middle: median(last) / median(first),
      target: ['<=', 1.15],
      detail: `${last.map(short).join(' ')} : ${first.map(short).join(' ')} µs`,
    }),
    figure(`4b heap after ${total} calls : after ${middle}`, {
      value: late.heapUsed / early.heapUsed,
      target: ['<=', 1.1],
      detail: `${short(late.heapUsed / MB)} : ${short(early.heapUsed / MB)} MB; resident ${short(late.rss / MB)} MB`,
    }),
  ]
}

/** Heap behind each of many subscribers of one task that waits, their connections included. */
async function followers(servers, { quick, build }) {
  const count = 1000
  say(`memory: ${count} idle followers`)
  const server = await servers.start('convoke', { build }, withGc)
  const id = await start(server, 'wait', '{}')
  const heap = async () => {
    const { heapUsed, external } = await server.ask('memory')
    return heapUsed + external
  }
  const follow = async (method, params) => {
    const connections = await open(server.port, count)
    await Promise.all(
      connections.map(
        (connection) =>
          new Promise((resolve, reject) => {
            // The task as it stands comes first, then nothing. The stream itself ends with the connection.
            connection
              .stream(rpc(method, params), (bytes) => bytes.includes('TASK_STATE_WORKING') && resolve())
              .catch(reject)
          }),
      ),
    )
    return async () => {
      for (const each of connections) each.close()
      await new Promise((resolve) => setTimeout(resolve, 300))
    }
  }
  const subscribe = () => follow('SubscribeToTask', { id })
  // A few times for the code, and for what pools and tables grow to.
  for (let i = 0; i < (quick ? 2 : 3); i++) await (await subscribe())()
  const before = await heap()
  const leave = await subscribe()
  const during = await heap()
  await leave()
  const after = await heap()
  for (let i = 0; i < 3; i++) await (await subscribe())()
  const afterMore = await heap()

  // The same connections without a follower behind them: open, one answer given, kept alive.
  const idle = await open(server.port, count)
  await Promise.all(idle.map((connection) => connection.request(call('echo', echoParams))))
  const beforeIdle = await heap()
  for (const each of idle) each.close()
  await new Promise((resolve) => setTimeout(resolve, 300))
  const connectionOnly = (beforeIdle - (await heap())) / count
  await server.ask('release')
  await server.stop()
  const each = (during - before) / count
  return [
    figure('4c heap of an idle follower, connection included', {
      value: each / 1024,
      unit: 'KiB',
      target: ['<=', 7],
      detail: `of ${count}; an idle connection alone takes ${short(connectionOnly / 1024)} KiB`,
    }),
    figure('4d heap left by a follower that is gone', {
      value: Math.max(0, afterMore - before) / (4 * count),
      unit: 'bytes',
      target: ['<=', 100],
      detail: `${short((after - before) / 1024)} KiB after ${count}, ${short((afterMore - before) / 1024)} KiB after ${4 * count}`,
    }),
  ]
}

/** A stream of 125 MB whose reader stops reading, beside the same work without a reader. */
async function stalledReader(servers, { quick, build }) {
  const chunks = quick ? 30_000 : 125_000
  say(`memory: a reader that stalls on ${chunks} chunks of 1 KB`)
  const params = `{"n":${chunks}}`
  const measure = async (stalled) => {
    const server = await servers.start('convoke', { build, store: servers.sqlite() }, withGc)
    let reader
    let ended
    let bytes = 0
    await start(server, 'stream', '{"n":1000}')
    await settled(server, 1)
    if (stalled) {
      reader = await Connection.open(server.port)
      ended = reader.stream(streamCall('stream', params), (data) => {
        if (bytes === 0) reader.socket.pause()
        bytes += data.length
      })
      // Not handled before the reader goes on; a failure shows there.
      ended.catch(() => {})
    } else {
      await start(server, 'stream', params)
    }
    const peak = await settled(server, 2)
    const { heapUsed, external, rss } = await server.ask('memory')
    let complete = true
    if (stalled) {
      reader.socket.resume()
      complete = (await ended) > chunks * 1024
      reader.close()
    }
    await server.stop()
    return { live: heapUsed + external, rss, peak, complete }
  }
  const none = []
  const stalled = []
  for (let round = 0; round < (quick ? 1 : 2); round++) {
    none.push(await measure(false))
    stalled.push(await measure(true))
  }
  const least = (samples, key) => min(samples.map((each) => each[key])) / MB
  return [
    figure(`4e live memory behind a reader stalled on ${Math.round(chunks / 1000)} MB`, {
      value: least(stalled, 'live') - least(none, 'live'),
      unit: 'MB',
      target: ['<=', 1],
      detail:
        `${short(least(stalled, 'live'))} : ${short(least(none, 'live'))} MB of heap and buffers without a reader; ` +
        `resident ${short(least(stalled, 'rss'))} : ${short(least(none, 'rss'))}, ` +
        `at its peak ${short(least(stalled, 'peak'))} : ${short(least(none, 'peak'))}`,
    }),
    figure('4f the stalled reader gets all once it reads on', {
      value: stalled.every(({ complete }) => complete) ? 1 : 0,
      unit: 'yes',
      target: ['>=', 1],
    }),
  ]
}

/** Starts a call and returns the task's id. */
async function start(server, tool, params) {
  const connection = await Connection.open(server.port)
  const { body } = await connection.request(startCall(tool, params))
  connection.close()
  return JSON.parse(body).result.task.id
}

/** Waits until so many tasks have completed. Resolves with the largest resident set seen meanwhile. */
async function settled(server, count) {
  const until = performance.now() + 60_000
  return await connected(server, 1, async ([connection]) => {
    for (let peak = 0; ;) {
      peak = Math.max(peak, await server.ask('rss'))
      const { body } = await connection.request(rpc('ListTasks', { status: 'TASK_STATE_COMPLETED', pageSize: 1 }))
      if (JSON.parse(body).result.totalSize >= count) return peak
      if (performance.now() > until) throw new Error('A task did not complete in time.')
      await new Promise((resolve) => setTimeout(resolve, 25))
    }
  })
}

await main(import.meta.url, memory)
