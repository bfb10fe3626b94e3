/** What a bench says: figures with their targets, as a table or as JSON. */
import { parseArgs } from 'node:util'
import { cpus } from 'node:os'
import { writeFileSync } from 'node:fs'
import { fileURLToPath, pathToFileURL } from 'node:url'

export function min(values) {
  return Math.min(...values)
}

export function max(values) {
  return Math.max(...values)
}

export function median(values) {
  const sorted = values.toSorted((a, b) => a - b)
  const middle = Math.floor(sorted.length / 2)
  return sorted.length % 2 === 1 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2
}

/**
 * Runs each contender once a round, in turn, so that noise on the machine meets all of them. Each gives one number a
 * round; resolves with `{name: [number, …]}`.
 */
export async function interleave(rounds, contenders) {
  const samples = Object.fromEntries(Object.keys(contenders).map((name) => [name, []]))
  for (let round = 0; round < rounds; round++) {
    for (const [name, measure] of Object.entries(contenders)) samples[name].push(await measure(round))
  }
  return samples
}

/** CPU microseconds of a server for each unit of the work; `work` resolves with how many units it was. */
export async function cpuPer(server, work) {
  const before = await server.cpu()
  const units = await work()
  return ((await server.cpu()) - before) / units
}

/**
 * One figure. `value` decides, `median` stands beside it: a target is reached by what the machine can do when nobody
 * disturbs it. `target` is `['<=', 1.6]`, `['>=', 6]` or undefined for what is only told.
 */
export function figure(name, { value, middle, unit = 'x', target, detail = '' }) {
  const reached = target === undefined ? undefined : target[0] === '<=' ? value <= target[1] : value >= target[1]
  return { name, value, median: middle, unit, target, reached, detail }
}

/** How much more CPU `ours` takes than `theirs`: minimum over minimum, median over median. */
export function ratio(name, ours, theirs, target, unitOfDetail = 'µs') {
  return figure(name, {
    value: min(ours) / min(theirs),
    middle: median(ours) / median(theirs),
    target,
    detail: `${spread(ours)} : ${spread(theirs)} ${unitOfDetail}`,
  })
}

/** Minimum and median of some samples, in few digits. */
export function spread(values) {
  return `${short(min(values))}/${short(median(values))}`
}

export function short(value) {
  if (value === undefined || Number.isNaN(value)) return '-'
  const size = Math.abs(value)
  return value.toFixed(size >= 100 ? 0 : size >= 10 ? 1 : 2)
}

export function table(figures) {
  const rows = figures.map(({ name, value, median: middle, unit, target, reached, detail }) => [
    name,
    `${short(value)} ${unit}`,
    middle === undefined ? '' : short(middle),
    target === undefined ? '' : `${target[0]} ${target[1]}`,
    reached === undefined ? '' : reached ? 'reached' : 'NOT REACHED',
    detail,
  ])
  const head = ['figure', 'minimum', 'median', 'target', 'verdict', 'samples, minimum/median']
  const widths = head.map((title, i) => max([title, ...rows.map((row) => row[i])].map((cell) => cell.length)))
  return [head, widths.map((width) => '-'.repeat(width)), ...rows]
    .map((row) =>
      row
        .map((cell, i) => cell.padEnd(widths[i]))
        .join('  ')
        .trimEnd(),
    )
    .join('\n')
}

const help = `Options:
  --quick         fewer and shorter rounds
  --build DIR     the built node to measure (default: ../dist)
  -o, --output F  table (default), json, or a file name for JSON beside the table`

/** Runs a bench's figures and prints them when the script was started by itself. `measure({quick, build})` gives them. */
export async function main(url, measure) {
  if (pathToFileURL(process.argv[1] ?? '').href !== url) return
  const { values } = parseArgs({
    options: {
      quick: { type: 'boolean', default: false },
      build: { type: 'string', default: fileURLToPath(new URL('../../dist', import.meta.url)) },
      output: { type: 'string', short: 'o', default: 'table' },
      help: { type: 'boolean', short: 'h', default: false },
    },
  })
  if (values.help) return console.log(help)
  const startedAt = performance.now()
  const figures = await measure({ quick: values.quick, build: values.build })
  const seconds = Math.round((performance.now() - startedAt) / 1000)
  const machine = { node: process.version, cpu: cpus()[0]?.model, cores: cpus().length }
  const json = JSON.stringify({ at: new Date().toISOString(), quick: values.quick, seconds, machine, figures }, null, 2)
  if (values.output === 'json') return console.log(json)
  console.log(table(figures))
  const missed = figures.filter(({ reached }) => reached === false).length
  console.log(
    `\n${missed === 0 ? 'All targets reached' : `${missed} not reached`}, in ${seconds} s on Node ${process.version}.`,
  )
  if (values.output !== 'table') writeFileSync(values.output, `${json}\n`)
}

/** For progress, beside the table. */
export function say(text) {
  process.stderr.write(`${String(Math.round(performance.now() / 1000)).padStart(4)} s  ${text}\n`)
}
