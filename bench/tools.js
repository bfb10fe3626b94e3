/** Ten thousand tools: what their schemas cost at start-up, what their card costs, what checking a large string costs. */
import { createHash } from 'node:crypto'
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { pathToFileURL } from 'node:url'
import { gunzipSync } from 'node:zlib'
import { connected, Connection, get, load } from './lib/client.js'
import { cpuPer, figure, interleave, main, median, min, ratio, say, short, spread } from './lib/figures.js'
import { Servers } from './lib/servers.js'

const count = 10_000
const path = '/.well-known/agent-card.json'

export async function tools({ quick, build }) {
  const servers = new Servers()
  try {
    return [
      ...(await startUp(servers, { quick, build })),
      ...(await card(servers, { quick, build })),
      ...(await validation({ quick, build })),
    ]
  } finally {
    await servers.close()
  }
}

/** `createNode` with all the tools, against the same with schemas of one word; each in a fresh process. */
async function startUp(servers, { quick, build }) {
  say(`tools: start-up with ${count}`)
  const once = (schemas) => async () => {
    const child = await servers.start('start-up', { build, count, schemas })
    const ms = await child.ask('ms')
    await child.stop()
    return ms
  }
  const samples = await interleave(quick ? 3 : 9, { all: once('all'), none: once('none'), look: once('look') })
  return [
    figure(`5a start-up, schemas of ${count} tools`, {
      value: min(samples.all) - min(samples.none),
      middle: median(samples.all) - median(samples.none),
      unit: 'ms',
      target: ['<=', 20],
      detail: `createNode ${spread(samples.all)}, with schemas of one word ${spread(samples.none)} ms`,
    }),
    figure('5b the look at these schemas alone', {
      value: min(samples.look),
      middle: median(samples.look),
      unit: 'ms',
    }),
  ]
}

/** The card of a node with all the tools, against bare node:http with the same headers and bytes. */
async function card(servers, { quick, build }) {
  say(`tools: the card of ${count}`)
  const node = await servers.start('convoke', { build, tools: count })
  const accepts = 'a2a-version: 1.0\r\naccept-encoding: gzip\r\n'
  const first = await Connection.open(node.port)
  const startedAt = performance.now()
  const answer = await first.request(get(path, accepts))
  const firstMs = performance.now() - startedAt
  const again = await first.request(get(path, accepts))
  const encoding = header(answer, 'content-encoding')
  const skills = JSON.parse(encoding === 'gzip' ? gunzipSync(answer.body) : answer.body).skills.length
  if (skills !== count) throw new Error(`The card has ${skills} skills.`)
  const etag = header(answer, 'etag')
  const notModified = await first.request(get(path, `${accepts}if-none-match: ${etag}\r\n`))
  if (notModified.status !== 304) throw new Error(`If-None-Match was answered with ${notModified.status}.`)
  first.close()

  const names = ['etag', 'cache-control', 'last-modified', 'vary']
  const headers = Object.fromEntries(names.map((name) => [name, header(answer, name)]))
  const file = join(servers.folder(), 'card')
  writeFileSync(file, answer.body)
  const fileHeaders = {
    'content-type': 'application/json',
    ...(encoding === undefined ? {} : { 'content-encoding': encoding }),
  }
  const floor = await servers.start('http', { headers, file, fileHeaders })
  const asking = (server, request, status) => {
    const check = (got) => {
      if (got.status !== status) throw new Error(`The card was answered with ${got.status}.`)
    }
    return (limit) =>
      connected(server, 16, (connections) =>
        cpuPer(server, () => load(connections, { ...limit, make: () => request, check })),
      )
  }
  const known = get(path, `${accepts}if-none-match: ${etag}\r\n`)
  const whole = get(path, accepts)
  const contenders = {
    ours304: asking(node, known, 304),
    floor304: asking(floor, known, 304),
    ours200: asking(node, whole, 200),
    floor200: asking(floor, whole, 200),
  }
  for (const run of Object.values(contenders)) await run({ count: quick ? 1500 : 3000 })
  const ms = quick ? 200 : 400
  const cpu = await interleave(
    quick ? 4 : 9,
    Object.fromEntries(Object.entries(contenders).map(([name, run]) => [name, () => run({ ms })])),
  )
  const sameBytes = encoding === 'gzip' && digest(answer.body) === digest(again.body)
  return [
    ratio(`5c card 304 : bare node:http 304, ${count} tools`, cpu.ours304, cpu.floor304, ['<=', 1.5]),
    ratio('5d card 200 : bare node:http, same bytes', cpu.ours200, cpu.floor200, ['<=', 1.5]),
    figure('5e card 200 comes compressed, the same bytes each time', {
      value: sameBytes ? 1 : 0,
      unit: 'yes',
      target: ['>=', 1],
      detail: `${encoding ?? 'not compressed'}, ${short(answer.body.length / 1024)} KiB, made in ${short(firstMs)} ms`,
    }),
  ]
}

/** What looks at a 64 KiB string argument, against JSON.parse of the same. In this process, without a server. */
async function validation({ quick, build }) {
  say('tools: validation of a 64 KiB string')
  const from = (file) => import(pathToFileURL(join(build, file)).href)
  const { defineTool } = await from('index.js')
  const { checkParams } = await from('tools/validation.js')
  const input = {
    type: 'object',
    properties: { text: { type: 'string', minLength: 1, maxLength: 100_000 } },
    required: ['text'],
    additionalProperties: false,
  }
  const tool = defineTool({ name: 'large', description: 'Takes a large string.', input, run: () => null })
  const times = 200
  const each = (work) => () => {
    const startedAt = performance.now()
    for (let i = 0; i < times; i++) work()
    return ((performance.now() - startedAt) * 1000) / times
  }
  const plain = 'The quick brown fox jumps over the lazy dog.\n'.repeat(1490).slice(0, 65_536)
  const accented = 'Größe, naïveté, Ærøskøbing, 東京, Ελλάδα, 🦊 '.repeat(2000).slice(0, 65_536)
  const figures = []
  for (const [name, text] of [
    ['ASCII', plain],
    ['other scripts', accented],
  ]) {
    const json = JSON.stringify({ text })
    const params = JSON.parse(json)
    const samples = await interleave(quick ? 10 : 30, {
      parse: each(() => JSON.parse(json)),
      validate: each(() => checkParams(tool, params)),
    })
    figures.push(
      ratio(`6 validating a 64 KiB string : its JSON.parse, ${name}`, samples.validate, samples.parse, ['<=', 0.1]),
    )
  }
  return figures
}

function header({ head }, name) {
  return new RegExp(`^${name}: (.*)$`, 'im').exec(head)?.[1].trim()
}

function digest(bytes) {
  return createHash('sha256').update(bytes).digest('hex')
}

await main(import.meta.url, tools)
