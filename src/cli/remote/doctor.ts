/** `convoke doctor`: examines a peer, and says what to mend. */
import { ConvokeError } from '../../base/errors.ts'
import type { JsonObject } from '../../base/json.ts'
import { stripControls } from '../../base/text.ts'
import { fetchFor } from '../../peers/client.ts'
import type { WireLine } from '../../peers/link.ts'
import { usageFailure } from '../a2a/failure.ts'
import type { Session } from '../a2a/session.ts'
import { ExitRequest } from '../failure.ts'
import { createPaint, type Paint } from '../paint.ts'
import { checkCard } from './doctor/card-checks.ts'
import { Findings, type Check } from './doctor/findings.ts'
import { Patient } from './doctor/patient.ts'
import { probe } from './doctor/probe.ts'
import { checkTools } from './doctor/tool-checks.ts'
import { checkWire } from './doctor/wire-checks.ts'
import type { RemoteFlags } from './options.ts'
import { findTarget } from './target.ts'

export interface DoctorFlags extends RemoteFlags {
  readonly probe?: boolean
  readonly tool?: string
  readonly params?: JsonObject
  readonly message?: string
}

export async function examine(session: Session<DoctorFlags>, reference: string): Promise<void> {
  const { flags, signal } = session
  if (flags.params !== undefined && flags.tool === undefined)
    throw usageFailure('--params are those of --tool, which is missing.')
  if (flags.tool !== undefined && flags.message !== undefined) throw usageFailure('Give either --tool or --message.')
  const { options } = await findTarget(session, reference)
  const paint = createPaint(process.stdout)
  const findings = new Findings((check) => {
    if (!session.isJson) process.stdout.write(checkText(check, paint))
  })
  const fetch = fetchFor(options)
  const onWire = (line: WireLine): void => session.debug(line.direction === 'out' ? '>' : '<', line)
  const patient = new Patient({ options, fetch, signal, findings, onWire })
  try {
    await examineAll(patient, flags)
  } catch (error) {
    if (signal.aborted) throw error
    const { message } = ConvokeError.from(error)
    findings.fail(
      'connection',
      `The examination ended early: ${message}`,
      'Check that the agent runs, and try again with --debug.',
    )
  } finally {
    await fetch.close()
  }
  const { grade, checks } = findings
  const skipped = findings.count('skipped')
  session.show({ grade, checks: checks.map(({ fix, ...check }) => ({ ...check, fix: fix ?? null })) }, () => {
    const counts = `${findings.count('ok')} ok, ${findings.count('warning')} warnings, ${findings.count('fail')} failed${skipped === 0 ? '' : `, ${skipped} skipped`}`
    return `${paint('bold', `Grade: ${grade}`)} (${counts})\n`
  })
  if (findings.count('fail') > 0) throw new ExitRequest(1)
}

async function examineAll(patient: Patient, { probe: isProbe, tool, params, message }: DoctorFlags): Promise<void> {
  if (!(await checkCard(patient))) return
  const way = await checkWire(patient)
  const [first] = patient.interfaces
  if (first === undefined) return
  const tools = await checkTools(patient, way ?? first)
  // A tool or a text that is named is there to be tried.
  const isWanted = isProbe === true || tool !== undefined || message !== undefined
  if (way === undefined) return
  if (isWanted) await probe(patient, way, tools, { tool, params, message })
  else
    patient.findings.skip(
      'probe',
      'Streaming, resumption and cancel were not tried, since that takes a call; --probe calls a tool that may run twice.',
    )
}

const colors = { ok: 'green', skipped: 'dim', warning: 'yellow', fail: 'red' } as const

function checkText({ id, status, message, fix }: Check, paint: Paint): string {
  const line = `${paint(colors[status], status.padEnd(7))}  ${id}: ${oneLine(message)}\n`
  return fix === undefined ? line : `${line}         fix: ${oneLine(fix)}\n`
}

/** Some of it are the words of the peer. */
function oneLine(text: string): string {
  return stripControls(text).replace(/\s+/g, ' ')
}
