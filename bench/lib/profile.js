/** Reads a CPU profile of V8: where the time goes, by function, in lines of the sources where there are source maps. */
import { existsSync, readFileSync } from 'node:fs'
import { SourceMap } from 'node:module'
import { relative } from 'node:path'
import { fileURLToPath } from 'node:url'

const root = fileURLToPath(new URL('../..', import.meta.url))
const maps = new Map()

/** `[{where, name, selfMs, share}]`, the costliest first; `skipMs` leaves out the start. */
export function hotSpots(file, skipMs = 0) {
  const { nodes, samples, timeDeltas } = JSON.parse(readFileSync(file, 'utf8'))
  const byId = new Map(nodes.map((node) => [node.id, node]))
  const spent = new Map()
  let at = 0
  let total = 0
  for (const [i, id] of samples.entries()) {
    const us = timeDeltas[i]
    at += us
    if (at < skipMs * 1000) continue
    const { functionName, url, lineNumber, columnNumber } = byId.get(id).callFrame
    if (functionName === '(idle)') continue
    const key = `${functionName}\n${url}\n${lineNumber}\n${columnNumber}`
    spent.set(key, (spent.get(key) ?? 0) + us)
    total += us
  }
  return [...spent]
    .sort((a, b) => b[1] - a[1])
    .map(([key, us]) => {
      const [name, url, line, column] = key.split('\n')
      return {
        name: name === '' ? '(anonymous)' : name,
        where: locate(url, Number(line), Number(column)),
        selfMs: us / 1000,
        share: us / total,
      }
    })
}

/** `[{where, share}]`: the same by line, where the profiler knows lines. The start counts too. */
export function hotLines(file) {
  const { nodes } = JSON.parse(readFileSync(file, 'utf8'))
  const ticks = new Map()
  let total = 0
  for (const { callFrame, positionTicks = [] } of nodes) {
    for (const { line, ticks: count } of positionTicks) {
      total += count
      if (callFrame.url === '' || callFrame.url.startsWith('node:')) continue
      const where = locate(callFrame.url, line - 1, 200)
      ticks.set(where, (ticks.get(where) ?? 0) + count)
    }
  }
  return [...ticks].sort((a, b) => b[1] - a[1]).map(([where, count]) => ({ where, share: count / total }))
}

function locate(url, line, column) {
  if (url === '' || url.startsWith('node:')) return url
  const file = url.startsWith('file:') ? fileURLToPath(url) : url
  if (!maps.has(file)) {
    const map = `${file}.map`
    maps.set(file, existsSync(map) ? new SourceMap(JSON.parse(readFileSync(map, 'utf8'))) : undefined)
  }
  const entry = maps.get(file)?.findEntry(line, column)
  const short = file.includes('node_modules/')
    ? file.slice(file.lastIndexOf('node_modules/') + 13)
    : relative(root, file)
  if (entry?.originalSource === undefined) return `${short}:${line + 1}`
  return `${entry.originalSource.replace(/^(\.\.\/)+/, '')}:${entry.originalLine + 1}`
}
