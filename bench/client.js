/** The calling side: CPU of a remote call and of reading streams, and what a slow consumer keeps in memory. */
import { cpuPer, figure, interleave, main, ratio, say, short } from './lib/figures.js'
import { Servers } from './lib/servers.js'

const withGc = ['--expose-gc']
/** Readings before the first that counts: streams are read by a node that is warm. */
const warmUps = 40

export async function client({ quick, build }) {
  const servers = new Servers()
  try {
    const server = await servers.start('convoke', { build })
    const url = `http://127.0.0.1:${server.port}`
    const start = () => servers.start('caller', { build, url }, withGc)
    return [
      ...(await remoteCall(start, quick)),
      ...(await chunks(start, quick)),
      ...(await wholeStream(start, quick)),
      ...(await largeEvent(await start(), quick)),
      ...(await slowConsumer(server, await start(), 'reader')),
      ...(await slowConsumer(server, await start(), 'client')),
      ...(await discovery(servers, start, quick)),
    ]
  } finally {
    await servers.close()
  }
}

/** Ours reads what came and checks it; undici alone reads the bytes as text. */
async function remoteCall(start, quick) {
  say('client: CPU of one remote call')
  const n = quick ? 1000 : 5000
  const calling = async (how, width) => {
    const caller = await start()
    const measure = () => cpuPer(caller, () => caller.ask('call', { how, n, width }))
    await measure()
    return measure
  }
  const cpu = await interleave(quick ? 3 : 8, {
    client: await calling('client', 16),
    undici: await calling('undici', 16),
    'client alone': await calling('client', 1),
    'undici alone': await calling('undici', 1),
  })
  return [
    ratio('7a remote call, client : undici Pool.request', cpu.client, cpu.undici, ['<=', 1.6]),
    ratio('7b the same as 7a, one call at a time', cpu['client alone'], cpu['undici alone']),
  ]
}

async function chunks(start, quick) {
  say('client: CPU of reading one chunk')
  const n = 10_000
  const caller = await start()
  const reading = (reader, size) => async () => (await caller.ask('read', { reader, what: 'chunks', n, size })) / n
  const figures = []
  for (const [name, size] of [
    ['one event each', undefined],
    ['1.4 KB', 1448],
    ['64 KiB', 65_536],
  ]) {
    const contenders = { ours: reading('ours', size), parser: reading('parser', size) }
    await interleave(warmUps, contenders)
    const cpu = await interleave(quick ? 10 : 30, contenders)
    figures.push(
      ratio(`7c reading a 1 KB chunk in pieces of ${name}, ours : eventsource-parser`, cpu.ours, cpu.parser, ['<=', 1]),
    )
  }
  await caller.stop()
  return figures
}

/** For information: a tool's stream from the socket to its chunks. */
async function wholeStream(start, quick) {
  const streaming = async (how) => {
    const caller = await start()
    const measure = () => cpuPer(caller, () => caller.ask('stream', { how, n: 10_000 }))
    await measure()
    return measure
  }
  const contenders = { client: await streaming('client'), reader: await streaming('reader') }
  const cpu = await interleave(quick ? 2 : 6, contenders)
  return [
    ratio('7d chunk of 10000 over HTTP, client : undici, our reader and JSON.parse alone', cpu.client, cpu.reader),
  ]
}

async function largeEvent(caller, quick) {
  say('client: CPU of reading one event of 3.9 MB')
  const figures = []
  for (const what of ['text', 'table']) {
    for (const [name, size] of [
      ['1.4 KB', 1448],
      ['64 KiB', 65_536],
    ]) {
      const reading = (reader) => () => caller.ask('read', { reader, what, size })
      const contenders = { ours: reading('ours'), parse: reading('parse') }
      await interleave(warmUps, contenders)
      const cpu = await interleave(quick ? 10 : 30, contenders)
      const inMs = (values) => values.map((us) => us / 1000)
      const title = `7e reading one event of 3.9 MB (${what}) in pieces of ${name}`
      figures.push(ratio(`${title}, ours : its JSON.parse`, inMs(cpu.ours), inMs(cpu.parse), ['<=', 1.5], 'ms'))
      if (what !== 'text') continue
      const others = { parser: reading('parser'), sdk: reading('sdk') }
      const rest = await interleave(quick ? 1 : 3, others)
      for (const [other, label] of [
        ['parser', 'eventsource-parser'],
        ['sdk', "the SDK's reader"],
      ]) {
        figures.push(ratio(`${title}, ${label} : ours`, inMs(rest[other]), inMs(cpu.ours), undefined, 'ms'))
      }
    }
  }
  await caller.stop()
  return figures
}

/** 100 MB are offered; the consumer takes 1 MB and then nothing. */
async function slowConsumer(server, caller, how) {
  say(`client: a consumer that stalls, ${how}`)
  const megabyte = 1e6
  const heap = async () => {
    const { heapUsed, external } = await caller.ask('memory')
    return heapUsed + external
  }
  // The code and the connection are there before.
  await caller.ask('stream', { how, n: 1000 })
  const before = await heap()
  const writtenBefore = await server.ask('written')
  await caller.ask('stall', { how, n: 100_000, chunks: 1000 })
  const written = await settled(async () => (await server.ask('written')) - writtenBefore)
  const during = await heap()
  const rss = await caller.ask('rss')
  await caller.ask('leave')
  await caller.stop()
  return [
    figure(`7f memory of a consumer stalled on 100 MB, ${how}`, {
      value: (during - before) / megabyte,
      unit: 'MB',
      target: ['<=', 10],
      detail: `${short(during / megabyte)} : ${short(before / megabyte)} MB of heap and buffers; resident ${short(rss / megabyte)}`,
    }),
    figure(`7g what the server could write meanwhile, the kernel's buffers included, ${how}`, {
      value: written / megabyte,
      unit: 'MB',
      detail: 'of 125, of which 1.25 were consumed',
    }),
  ]
}

/** The value once it has stayed the same for half a second. */
async function settled(measure) {
  for (let last = await measure(); ;) {
    await new Promise((resolve) => setTimeout(resolve, 500))
    const value = await measure()
    if (value === last) return value
    last = value
  }
}

/** A registry in a fresh process each time finds the tools of so many peers. */
async function discovery(servers, start, quick) {
  say('client: discovery of many peers')
  const cards = await servers.start('cards')
  const finding = (n) => async () => {
    const caller = await start()
    const ms = await caller.ask('discover', { url: `http://127.0.0.1:${cards.port}`, n })
    await caller.stop()
    return ms
  }
  const time = await interleave(quick ? 1 : 3, { many: finding(1000), few: finding(100) })
  const most = await cards.ask('most')
  return [
    ratio('7h discovering 1,000 peers : 100 peers', time.many, time.few, ['<=', 10], 'ms'),
    figure('7i peers asked at the same time', { value: most, unit: '', target: ['<=', 10] }),
  ]
}

await main(import.meta.url, client)
