/** The lineage of runs as a tree for people. */
import { stripControls } from '../base/text.ts'
import { clip } from '../tools/value.ts'
import type { Trace, TraceAction, TraceError, TraceEvent } from './event-trace.ts'

/** How texts are set off on a terminal. */
export type TracePaint = (format: 'bold' | 'dim' | 'green' | 'red' | 'yellow', text: string) => string

/** How many levels are indented; a loop goes on below itself for as long as it runs. */
const maxIndent = 24
const maxPayloadChars = 80
const maxNameChars = 60
const maxMessageChars = 120
const maxCauseChars = 240

/** One tree a run, an empty line between two: each event with what heard it, and below that what it said. */
export function formatTrace(traces: readonly Trace[], paint: TracePaint): string {
  return traces.map((trace) => `${linesOfTrace(trace, paint).join('\n')}\n`).join('\n')
}

/** What is still to be written: a line, and where it stands. */
interface Open {
  readonly node: TraceEvent | TraceAction
  readonly isLast: boolean
  readonly prefix: string
  readonly depth: number
}

function linesOfTrace(trace: Trace, paint: TracePaint): string[] {
  const lines = [headOf(trace, paint)]
  if (trace.error !== undefined) lines.push(...errorLines(trace.error, '  ', paint))
  // No recursion: a loop is as deep as it has rounds.
  const open: Open[] = []
  const push = (nodes: readonly (TraceEvent | TraceAction)[], prefix: string, depth: number): void => {
    for (const [i, node] of [...nodes.entries()].toReversed())
      open.push({ node, isLast: i === nodes.length - 1, prefix, depth })
  }
  push(trace.roots, '', 1)
  for (let next = open.pop(); next !== undefined; next = open.pop()) {
    const { node, isLast, prefix, depth } = next
    const isDeep = depth > maxIndent
    const branch = isDeep ? paint('dim', `⋯ ${depth} `) : isLast ? '└─ ' : '├─ '
    const below = isDeep ? prefix : `${prefix}${isLast ? '   ' : '│  '}`
    const [only, ...others] = 'actions' in node ? node.actions : [node]
    // An event that one action heard shares a line with it.
    const action = others.length === 0 ? only : undefined
    const event = 'actions' in node ? eventText(node, paint) : ''
    const heard = action === undefined ? '' : actionText(action, paint)
    lines.push(`${prefix}${branch}${[event, heard].filter((text) => text !== '').join(' ')}`)
    if (action?.error !== undefined)
      lines.push(...errorLines(action.error, `${below}${action.events.length > 0 ? '│ ' : '  '}`, paint))
    if (action !== undefined) push(action.events, below, depth + 1)
    else if ('actions' in node) push(node.actions, below, depth + 1)
  }
  return lines
}

function headOf({ run, attempt, key, at, state, durationMs }: Trace, paint: TracePaint): string {
  const after = durationMs === undefined ? '' : ` after ${durationText(durationMs)}`
  const ends = {
    running: paint('yellow', 'running'),
    ended: paint('green', `ended${after}`),
    failed: paint('red', `failed${after}`),
    lost: paint('yellow', 'cut off, and resumed'),
  } as const
  return [
    paint('bold', `run ${printable(run, 200)}`),
    ...(attempt > 1 ? [`attempt ${attempt}`] : []),
    `key ${printable(key, 200)}`,
    paint('dim', printable(at, 40)),
    ends[state],
  ].join('  ')
}

function eventText({ id, type, payload, isUnheard }: TraceEvent, paint: TracePaint): string {
  if (type === undefined) return paint('dim', `(event ${printable(id, maxNameChars)}, which is not in the log)`)
  const shown = payload === undefined ? '' : ` ${paint('dim', printable(JSON.stringify(payload), maxPayloadChars))}`
  const mark = isUnheard ? ` ${paint('yellow', '(nobody hears it)')}` : ''
  return `${paint('bold', printable(type, maxNameChars))}${shown}${mark}`
}

function actionText({ action, durationMs, error }: TraceAction, paint: TracePaint): string {
  const name = `→ ${printable(action, maxNameChars)}`
  const took = durationMs === undefined ? '' : durationText(durationMs)
  if (error === undefined) return took === '' ? name : `${name} ${paint('dim', took)}`
  return `${name} ${paint('red', took === '' ? 'failed' : `failed after ${took}`)}`
}

function errorLines({ code, message, cause }: TraceError, before: string, paint: TracePaint): string[] {
  const said = paint('red', `${printable(code, maxNameChars)}: ${printable(message, maxMessageChars)}`)
  const why = cause === undefined ? [] : [paint('red', `why: ${printable(cause, maxCauseChars)}`)]
  return [said, ...why].map((line) => before + line)
}

function durationText(ms: number): string {
  if (ms < 10) return `${Math.round(ms * 100) / 100} ms`
  if (ms < 999.5) return `${Math.round(ms)} ms`
  if (ms < 59_950) return `${Math.round(ms / 100) / 10} s`
  const seconds = Math.round(ms / 1_000)
  return `${Math.floor(seconds / 60)} min ${seconds % 60} s`
}

/** On one line, and without what a terminal would obey. */
function printable(text: string, maxLength: number): string {
  return clip(stripControls(text).replace(/\s+/g, ' ').trim(), maxLength)
}
