/** Streams of 1 KB chunks: CPU for each chunk, at three lengths, and when the first one leaves. */
import { connected, Connection, eventsOf } from './lib/client.js'
import { cpuPer, figure, interleave, main, max, median, min, ratio, say, short, spread } from './lib/figures.js'
import { startCall, streamCall } from './lib/requests.js'
import { Servers } from './lib/servers.js'

const sizes = [1000, 10_000, 100_000]

export async function streams({ quick, build }) {
  const servers = new Servers()
  try {
    say('streams: CPU of one chunk')
    const event = await sample(servers, build)
    const contenders = {}
    // A process for each length, so that each pays for the memory that it uses itself.
    for (const size of sizes) {
      const times = Math.max(1, (quick ? 10_000 : 50_000) / size)
      contenders[`memory ${size}`] = streaming(await servers.start('convoke', { build }), size, times)
      const store = servers.sqlite()
      contenders[`sqlite ${size}`] = streaming(await servers.start('convoke', { build, store }), size, times)
    }
    // Its chunks cost the same at any length.
    contenders.floor = streaming(await servers.start('http', { event }), 10_000, quick ? 1 : 5)
    contenders.burst = streaming(await servers.start('http', { event, burst: true }), 10_000, quick ? 1 : 5)
    for (const run of Object.values(contenders)) await run()
    const cpu = await interleave(quick ? 2 : 6, contenders)
    const sdk = streaming(await servers.start('sdk'), 1000, 1)
    const sdkCpu = await interleave(quick ? 1 : 4, { sdk })
    const flat = (name, store) =>
      figure(name, {
        value: steepness(sizes.map((size) => min(cpu[`${store} ${size}`]))),
        middle: steepness(sizes.map((size) => median(cpu[`${store} ${size}`]))),
        target: ['<=', 1.25],
        detail: `${sizes.map((size) => spread(cpu[`${store} ${size}`])).join(', ')} µs`,
      })
    return [
      ...sizes.map((size) =>
        ratio(`3a chunk of ${size}, memory : SSE floor`, cpu[`memory ${size}`], cpu.floor, ['<=', 1]),
      ),
      ...sizes.map((size) =>
        ratio(`3b chunk of ${size}, sqlite : SSE floor`, cpu[`sqlite ${size}`], cpu.floor, ['<=', 2]),
      ),
      ratio('3a chunk of 10000, memory : bare loop that has all chunks at once', cpu['memory 10000'], cpu.burst),
      flat('3c 1,000 to 100,000 chunks, memory, largest : smallest', 'memory'),
      flat('3d the same, sqlite', 'sqlite'),
      ratio('3e chunk of 1000, SDK : memory', sdkCpu.sdk, cpu['memory 1000'], ['>=', 200]),
      ...(await firstChunk(await servers.start('convoke', { build }), 'memory')),
      ...(await firstChunk(await servers.start('convoke', { build, store: servers.sqlite() }), 'sqlite')),
    ]
  } finally {
    await servers.close()
  }
}

function steepness(values) {
  return max(values) / min(values)
}

/** Measures `times` streams one after the other. */
function streaming(server, size, times) {
  const run = async ([connection]) => {
    for (let i = 0; i < times; i++) {
      const bytes = await connection.stream(streamCall('stream', `{"n":${size}}`))
      if (bytes < size * 1024) throw new Error(`A stream of ${size} chunks brought only ${bytes} bytes.`)
    }
    return size * times
  }
  return () => connected(server, 1, (connections) => cpuPer(server, () => run(connections)))
}

/** The bytes of one of our events, for the floor; and a look whether a stream is what it should be. */
async function sample(servers, build) {
  const server = await servers.start('convoke', { build })
  const connection = await Connection.open(server.port)
  const pieces = []
  await connection.stream(streamCall('stream', '{"n":2000}'), (bytes) => pieces.push(bytes))
  connection.close()
  const events = eventsOf(Buffer.concat(pieces))
  const chunks = events.filter(({ data }) => data.result.artifactUpdate?.artifact.artifactId === 'stream')
  if (chunks.length !== 2000) throw new Error(`A stream of 2000 chunks brought ${chunks.length}.`)
  if (events.some(({ id }, i) => id !== i + 1)) throw new Error('The seqs of a stream are not dense.')
  await server.stop()
  return `data: ${JSON.stringify(chunks[1000].data)}`
}

/** When things leave; what happened first: the tool going on, or the caller seeing what it had yielded before. */
async function firstChunk(server, store) {
  const connection = await Connection.open(server.port)
  const seen = []
  await connection.stream(streamCall('gated', '{}'), (bytes) => {
    const at = now()
    const text = bytes.toString()
    for (const word of ['first', 'second']) if (text.includes(`"${word}"`)) seen.push({ word, at })
    if (text.includes('"first"')) void server.ask('release')
  })
  const marks = await server.ask('marks')
  const order = [...marks, ...seen.map(({ word, at }) => ({ name: `saw ${word}`, at }))].sort((a, b) => a.at - b.at)
  const names = order.map(({ name }) => name).join(', ')
  const isRight = names === 'yield 1, saw first, yield 2, saw second'

  // A tool that computes and yields and never waits: how many chunks had it yielded when the caller saw the first?
  const n = 100
  let sawAt
  await connection.stream(streamCall('busy', `{"n":${n}}`), (bytes) => {
    if (sawAt === undefined && bytes.includes('{"i":1}')) sawAt = now()
  })
  // A tool that yields without end must not hold back the answer of a call that does not want to wait.
  const { body } = await connection.request(startCall('stream', '{"n":30000}'))
  const { state } = JSON.parse(body).result.task.status
  connection.close()
  const yields = await server.ask('marks')
  const before = yields.filter(({ at }) => at <= sawAt).length
  return [
    figure(`3f first chunk leaves when it is yielded, ${store}`, {
      value: isRight ? 1 : 0,
      unit: 'yes',
      target: ['>=', 1],
      detail: `${names}; ${short((seen[0].at - marks[0].at) / 1000)} ms`,
    }),
    figure(`3g chunks yielded by a busy tool when the first is seen, ${store}`, {
      value: before,
      unit: `of ${n}`,
      detail: `${short((sawAt - yields[0].at) / 1000)} ms after its yield`,
    }),
    figure(`3h returnImmediately answers while a fast stream runs, ${store}`, {
      value: /WORKING|SUBMITTED/.test(state) ? 1 : 0,
      unit: 'yes',
      target: ['>=', 1],
      detail: `answered with ${state}`,
    }),
  ]
}

/** The machine's clock in microseconds, the same as in the server. */
function now() {
  return Number(process.hrtime.bigint() / 1000n)
}

await main(import.meta.url, streams)
