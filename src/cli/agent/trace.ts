/** `convoke agent trace`: an event log as trees of what came of what. */
import { readTrace, toTree, type Trace, type TraceEvent, type TraceFile } from '../../agent/event-trace.ts'
import { formatTrace } from '../../agent/trace-text.ts'
import { whyUnreadable } from '../../base/unreadable.ts'
import { CommandFailure } from '../failure.ts'
import { createPaint } from '../paint.ts'

export interface TraceFlags {
  readonly run?: string
  readonly key?: string
  readonly output: 'text' | 'json'
}

export async function showTrace(file: string, flags: TraceFlags): Promise<void> {
  const { run, key, output } = flags
  const filter = { ...(run === undefined ? {} : { run }), ...(key === undefined ? {} : { key }) }
  const found = await read(file, filter)
  const traces = toTree(found.records)
  const isFiltered = run !== undefined || key !== undefined
  if (traces.length === 0) {
    if (found.total === 0 && found.broken > 0)
      throw new CommandFailure(
        2,
        `${file} is no event log: none of its ${countOf(found.broken, 'line')} is one of a log.`,
      )
    if (isFiltered) {
      const keys = found.keys.map((each) => JSON.stringify(each)).join(', ')
      const known = key === undefined || keys === '' ? '' : ` Its newest keys: ${keys}.`
      throw new CommandFailure(1, `${file} has ${wanted(flags)}.${known} Without --run and --key all runs are shown.`)
    }
  }
  if (output === 'json') {
    const { broken, dropped } = found
    process.stdout.write(`${JSON.stringify({ runs: traces.map(toJson), broken, dropped }, null, 2)}\n`)
    return
  }
  process.stdout.write(traces.length === 0 ? 'There are no runs.\n' : formatTrace(traces, createPaint(process.stdout)))
  if (found.broken > 0) note(`skipped ${countOf(found.broken, 'line')} of ${file}: broken, or not of an event log.`)
  if (found.dropped > 0)
    note(`without ${countOf(found.dropped, 'entry', 'entries')} that came faster than they could be written.`)
}

async function read(file: string, filter: { run?: string; key?: string }): Promise<TraceFile> {
  try {
    return await readTrace(file, filter)
  } catch (error) {
    throw new CommandFailure(2, `Cannot read the event log ${file}: ${whyUnreadable(error)}.`)
  }
}

function wanted({ run, key }: TraceFlags): string {
  if (run === undefined) return `no run of the key ${JSON.stringify(key)}`
  return `no run ${JSON.stringify(run)}${key === undefined ? '' : ` of the key ${JSON.stringify(key)}`}`
}

function note(text: string): void {
  process.stderr.write(`warning: ${text}\n`)
}

function countOf(count: number, one: string, many = `${one}s`): string {
  return `${count} ${count === 1 ? one : many}`
}

/** A list of events in place of a tree: a loop is as deep as it has rounds, and few read JSON that deep. */
function toJson({ run, key, attempt, state, at, durationMs, error, roots }: Trace): object {
  const events: object[] = []
  const open: { event: TraceEvent; cause: { event: string; action: string } | null }[] = []
  const push = (more: readonly TraceEvent[], cause: { event: string; action: string } | null): void => {
    for (const event of more.toReversed()) open.push({ event, cause })
  }
  push(roots, null)
  for (let next = open.pop(); next !== undefined; next = open.pop()) {
    const { id, type, at: saidAt, payload, actions } = next.event
    events.push({
      id,
      type: type ?? null,
      at: saidAt ?? null,
      payload: payload ?? null,
      cause: next.cause,
      actions: actions.map((each) => ({
        action: each.action,
        duration_ms: each.durationMs ?? null,
        error: each.error ?? null,
      })),
    })
    for (const { action, events: said } of actions.toReversed()) push(said, { event: id, action })
  }
  return { run, key, attempt, state, at, duration_ms: durationMs ?? null, error: error ?? null, events }
}
