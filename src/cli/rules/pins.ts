/** `convoke pins`: what is pinned of the tools of others, in the file that a running node uses too. */
import { ConvokeError } from '../../base/errors.ts'
import type { Json } from '../../base/json.ts'
import { stripControls } from '../../base/text.ts'
import type { LineChange, PinDiff, PlaceChange } from '../../tools/pin-diff.ts'
import { Pins, pinsPath, type PinnedTool } from '../../tools/pins.ts'
import { clip } from '../../tools/value.ts'
import { quote } from '../a2a/text.ts'
import { loadConfigFile } from '../config.ts'
import { CommandFailure } from '../failure.ts'
import { createPaint, type Paint } from '../paint.ts'

export interface PinsFlags {
  readonly all?: boolean
  readonly hash?: string
  readonly config?: string
  readonly output: 'text' | 'json'
}

/** Longest value of a place in a diff, in characters; JSON output has it whole. */
const maxValue = 200

export async function listPins(handles: readonly string[], flags: PinsFlags): Promise<void> {
  await withPins(flags, (pins) => {
    for (const handle of handles) pins.diff(handle)
    const tools = pins.list().filter(({ handle }) => handles.length === 0 || handles.includes(handle))
    if (flags.output === 'json') print(`${JSON.stringify(tools, null, 2)}\n`)
    else print(tools.length === 0 ? 'Nothing is pinned yet.\n' : table(tools, createPaint(process.stdout)))
  })
}

export async function diffPins(handles: readonly string[], flags: PinsFlags): Promise<void> {
  await withPins(flags, (pins) => {
    const paint = createPaint(process.stdout)
    const quarantined = pins.list().flatMap(({ handle, state }) => (state === 'quarantined' ? [handle] : []))
    const wanted = handles.length === 0 ? quarantined : handles
    const diffs = wanted.map((handle) => ({ handle, diff: pins.diff(handle) }))
    if (flags.output === 'json') {
      print(
        `${JSON.stringify(
          diffs.flatMap(({ diff }) => diff ?? []),
          null,
          2,
        )}\n`,
      )
    } else if (wanted.length === 0) print('No tool is quarantined.\n')
    else print(diffs.map(({ handle, diff }) => diffText(handle, diff, paint)).join('\n'))
  })
}

export async function approvePins(handles: readonly string[], flags: PinsFlags): Promise<void> {
  if (flags.all === true ? handles.length > 0 : handles.length === 0) {
    throw new CommandFailure(2, 'Name the tools to approve, or say --all for every quarantined one.')
  }
  const { hash: wanted } = flags
  if (wanted !== undefined && (handles.length !== 1 || !/^[0-9a-f]{8,64}$/.test(wanted))) {
    throw new CommandFailure(2, 'With --hash goes one tool, and at least 8 hex digits as convoke pins diff shows them.')
  }
  await withPins(flags, async (pins) => {
    const approved = await pins.approve(flags.all === true ? '*' : handles, { hash: wanted })
    if (flags.output === 'json') {
      print(`${JSON.stringify(approved, null, 2)}\n`)
      return
    }
    const lines = approved.map(({ handle, hash }) => `Approved ${printable(handle)} (${hash.slice(0, 12)}).\n`)
    const settled = handles.filter((each) => !approved.some(({ handle }) => handle === each))
    print([...lines, ...settled.map((handle) => `Nothing is held back at ${printable(handle)}.\n`)].join(''))
    if (approved.length === 0 && flags.all === true) print('No tool is quarantined.\n')
  })
}

async function withPins(flags: PinsFlags, use: (pins: Pins) => unknown): Promise<void> {
  const { options, file: config } = await loadConfigFile(flags.config)
  const file = pinsPath(options.pins, { store: options.store?.url, baseDir: options.baseDir ?? '.' })
  if (file === undefined) {
    throw new CommandFailure(2, `The pins of ${config} are in the memory of the node. Give them a file: pins.file.`)
  }
  const pins = openPins(file)
  try {
    await use(pins)
  } catch (error) {
    throw error instanceof ConvokeError && (error.code === 'not_found' || error.code === 'conflict')
      ? new CommandFailure(1, printable(error.message))
      : error
  } finally {
    await pins.close()
  }
}

function openPins(file: string): Pins {
  try {
    return new Pins({ file })
  } catch (error) {
    throw new CommandFailure(2, error)
  }
}

const headings = ['TOOL', 'STATE', 'FIRST SEEN', 'CHANGED', 'HASH']

function table(tools: readonly PinnedTool[], paint: Paint): string {
  const rows = tools.map(({ handle, state, firstSeen, pending, changedAt, hash }) => [
    printable(handle),
    state,
    day(firstSeen),
    day(pending?.seenAt ?? changedAt),
    hash.slice(0, 12),
  ])
  const widths = headings.map((heading, i) =>
    rows.reduce((width, row) => Math.max(width, row[i]?.length ?? 0), heading.length),
  )
  const line = (cells: readonly string[]): string =>
    cells
      .map((cell, i) => cell.padEnd(widths[i] ?? 0))
      .join('  ')
      .trimEnd()
  const body = rows.map((row) => (row[1] === 'quarantined' ? paint('yellow', line(row)) : line(row)))
  return `${[paint('bold', line(headings)), ...body].join('\n')}\n`
}

function day(time: number | undefined): string {
  return time === undefined ? '-' : new Date(time).toISOString().slice(0, 16).replace('T', ' ')
}

function diffText(handle: string, diff: PinDiff | undefined, paint: Paint): string {
  if (diff === undefined) return `${paint('bold', printable(handle))}: nothing has changed since it was pinned.\n`
  const { state, at, before, after, description, places } = diff
  const what = state === 'pending' ? 'held back since' : 'accepted'
  const hashes = `${before.slice(0, 12)} → ${after.slice(0, 12)}`
  const head = `${paint('bold', printable(handle))}: ${what} ${day(at)}, ${hashes}`
  const lines = description.length === 0 ? [] : ['  description', ...description.map((each) => lineText(each, paint))]
  const body = [head, ...lines, ...places.flatMap((place) => placeText(place, paint))]
  const command = `convoke pins approve ${quote(handle)} --hash ${after.slice(0, 12)}`
  return `${[...body, ...(state === 'pending' ? [paint('dim', `  Take it: ${command}`)] : [])].join('\n')}\n`
}

const signs = { same: ' ', added: '+', removed: '-' } as const

function lineText({ type, line }: LineChange, paint: Paint): string {
  const text = `    ${signs[type]} ${printable(line)}`
  return type === 'same' ? text : paint(type === 'added' ? 'green' : 'red', text)
}

function placeText({ type, path, before, after }: PlaceChange, paint: Paint): string[] {
  const old = before === undefined ? [] : [paint('red', `    - ${valueText(before)}`)]
  const now = after === undefined ? [] : [paint('green', `    + ${valueText(after)}`)]
  return [`  ${printable(path)} ${type}`, ...old, ...now]
}

function valueText(value: Json): string {
  return clip(printable(JSON.stringify(value)), maxValue)
}

/** What a stranger wrote, for a terminal. What nobody would see is spelt out: it may be all that changed. */
function printable(text: string): string {
  if (stripControls(text) === text) return text.replace(/[\r\n]/g, ' ')
  return Array.from(text)
    .map((each) => (stripControls(each) === each ? each : `\\u{${(each.codePointAt(0) ?? 0).toString(16)}}`))
    .join('')
    .replace(/[\r\n]/g, ' ')
}

function print(text: string): void {
  process.stdout.write(text)
}
