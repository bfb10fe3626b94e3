/** Does the peer speak what its card says, and are its refusals in the right shape? Nothing here changes anything. */
import { randomUUID } from 'node:crypto'
import { ConvokeError } from '../../../base/errors.ts'
import { isObject } from '../../../base/json.ts'
import type { CardInterface } from '../../../peers/card-resolver.ts'
import { securitySchemes } from '../../../peers/card-security.ts'
import { type PeerError, toPeerError } from '../../../peers/errors.ts'
import type { WireLine } from '../../../peers/link.ts'
import { clip } from '../../../tools/value.ts'
import { isLoopbackHost } from '../../a2a/connection.ts'
import { headerOf, jsonOf, part, type Patient, type RawAnswer } from './patient.ts'

/** More than what servers take unless they are told otherwise (1 MiB to 4 MiB). */
const largeBodyBytes = 6 * 1024 * 1024

/** The way in that further checks use; undefined where none works. */
export async function checkWire(patient: Patient): Promise<CardInterface | undefined> {
  const canEnter = await checkAuth(patient)
  const working: CardInterface[] = []
  if (canEnter) {
    for (const way of patient.interfaces) if (await checkInterface(patient, way)) working.push(way)
    if (working.length === 0) patient.findings.isHopeless = true
  }
  const rpc = working.find(({ binding, version }) => binding === 'JSONRPC' && version === '1.0')
  if (rpc !== undefined) {
    await checkUnknownMethod(patient, rpc)
    await checkBadJson(patient, rpc)
    await checkLargeBody(patient, rpc)
  }
  const best = rpc ?? working[0]
  if (best !== undefined) {
    await checkUnknownCancel(patient, best)
    await checkWebhooks(patient, best)
  }
  return best
}

/** Compares what the card says with what a request without credentials gets. Whether requests can be made at all. */
async function checkAuth(patient: Patient): Promise<boolean> {
  const { findings, card, hasCredentials } = patient
  const required = [card['securityRequirements'], card['security']].some(
    (list) => Array.isArray(list) && list.length > 0,
  )
  const declared = securitySchemes(card).length > 0
  const [way] = patient.interfaces
  if (way === undefined) return false
  const refusal = await refusalOf(patient, way, true)
  const isClosed = refusal?.kind === 'auth'
  if (isClosed && !declared) {
    findings.fail(
      'auth.declared',
      'Requests need credentials, and the card does not say which.',
      'Declare securitySchemes and securityRequirements.',
    )
  } else if (isClosed) findings.ok('auth.declared', 'The card says that credentials are needed, and they are.')
  else if (required) {
    findings.fail(
      'auth.declared',
      'The card requires credentials, and a request without any was answered all the same.',
      'Check credentials on every route, or take the requirement off the card.',
    )
  } else if (!isLoopbackHost(way.url)) {
    findings.warning(
      'auth.declared',
      'Everybody may use the agent: it asks for no credentials.',
      'Turn on authentication, unless the agent is meant for the public.',
    )
  } else findings.ok('auth.declared', 'It asks for no credentials, and the card requires none.')
  if (!isClosed) return true
  if (!hasCredentials) {
    findings.warning(
      'auth.credentials',
      'Without credentials nothing more can be checked.',
      'Give some: A2ACLI_BEARER, A2ACLI_API_KEY, auth of the peer in convoke.yaml, or convoke auth login.',
    )
    return false
  }
  const own = await refusalOf(patient, way, false)
  if (own?.kind === 'auth') {
    findings.fail(
      'auth.credentials',
      `The credentials are refused: ${own.sentence}`,
      'Check that the token is whole and has not ended, and that it is for this agent.',
    )
    return false
  }
  findings.ok('auth.credentials', 'The credentials are taken.')
  return true
}

async function refusalOf(patient: Patient, way: CardInterface, bare: boolean): Promise<PeerError | undefined> {
  const client = patient.client(way, undefined, bare)
  try {
    await client.getTask(randomUUID(), { signal: patient.signal })
    return undefined
  } catch (error) {
    if (patient.signal.aborted) throw error
    return toPeerError(error, client.id)
  } finally {
    await client.close()
  }
}

/** Asks for a task that does not exist, and looks at the words of the refusal. Whether the interface can be used. */
async function checkInterface(patient: Patient, way: CardInterface): Promise<boolean> {
  const { findings } = patient
  const { version, binding, url } = way
  const id = `interface.${version}.${binding === 'JSONRPC' ? 'jsonrpc' : 'rest'}`
  const what = `A2A ${version} over ${binding}`
  let last: WireLine | undefined
  const client = patient.client(way, (line) => {
    if (line.direction === 'in') last = line
  })
  try {
    await client.getTask(randomUUID(), { signal: patient.signal })
    findings.fail(
      id,
      `${what}: a task that does not exist was found.`,
      'Answer GetTask for an unknown id with TaskNotFoundError.',
    )
    return true
  } catch (error) {
    if (patient.signal.aborted) throw error
    const failure = toPeerError(error, client.id)
    const told = clip(failure.sentence, 300)
    if (failure.code === 'task_not_found') {
      const flaw = shapeFlaw(way, last)
      if (flaw === undefined) findings.ok(id, `${what} is spoken at ${url}.`)
      else
        findings.warning(
          id,
          `${what} is spoken, but a refusal has the wrong shape: ${flaw}.`,
          'Send errors as section 9.5 (JSON-RPC) or 11.6 (HTTP+JSON) of A2A has them.',
        )
      return true
    }
    findings.fail(
      id,
      `${what} is on the card, but a question for an unknown task got ${failure.code}: ${told}`,
      'Make the interface work, or take it off the card. Behind a proxy, check that the path and the method reach the agent.',
    )
    return false
  } finally {
    await client.close()
  }
}

function shapeFlaw({ version, binding }: CardInterface, line: WireLine | undefined): string | undefined {
  const body = jsonOf(line?.text ?? '')
  const error = part(body, 'error')
  if (binding === 'JSONRPC') {
    if (line?.status !== 200) return `its HTTP status is ${line?.status ?? 'unknown'} and not 200`
    if (error['code'] !== -32001)
      return `its code is ${clip(JSON.stringify(error['code']) ?? 'missing', 40)} and not -32001`
    if (!isObject(body) || body['jsonrpc'] !== '2.0') return 'it has no jsonrpc: "2.0"'
    return undefined
  }
  if (line?.status !== 404) return `its HTTP status is ${line?.status ?? 'unknown'} and not 404`
  return version === '1.0' && error['status'] !== 'NOT_FOUND' ? 'it has no error.status NOT_FOUND' : undefined
}

/** What a raw request gets; undefined where that is no answer, which is told under `id`. */
async function post(
  patient: Patient,
  { url }: CardInterface,
  body: string,
  { id, what, fix }: { readonly id: string; readonly what: string; readonly fix: string },
): Promise<RawAnswer | undefined> {
  const headers = { 'content-type': 'application/json', accept: 'application/json', 'a2a-version': '1.0' }
  try {
    return await patient.request(url, { method: 'POST', headers, body })
  } catch (error) {
    if (patient.signal.aborted) throw error
    patient.findings.warning(id, `${what} gets no answer: ${ConvokeError.from(error).message}`, fix)
    return undefined
  }
}

function describeCode(status: number, code: unknown): string {
  return code === undefined
    ? `${status} without a JSON-RPC error`
    : `the code ${clip(JSON.stringify(code) ?? 'undefined', 40)}`
}

async function checkUnknownMethod(patient: Patient, way: CardInterface): Promise<void> {
  const request = '{"jsonrpc":"2.0","id":"doctor","method":"NoSuchMethod","params":{}}'
  const check = {
    id: 'errors.method',
    what: 'An unknown method',
    fix: 'Answer with the JSON-RPC error -32601 and the id of the request.',
  }
  const answer = await post(patient, way, request, check)
  if (answer === undefined) return
  const body = jsonOf(answer.text)
  const code = part(body, 'error')['code']
  const isRight = code === -32601 && isObject(body) && body['id'] === 'doctor'
  if (isRight) patient.findings.ok(check.id, 'An unknown method is refused with -32601.')
  else
    patient.findings.warning(
      check.id,
      `${check.what} is answered with ${describeCode(answer.status, code)}.`,
      check.fix,
    )
}

async function checkBadJson(patient: Patient, way: CardInterface): Promise<void> {
  const check = {
    id: 'errors.json',
    what: 'A body that is not JSON',
    fix: 'Answer with the JSON-RPC error -32700: the parser of the framework likely answers first.',
  }
  const answer = await post(patient, way, '{"jsonrpc":', check)
  if (answer === undefined) return
  const code = part(jsonOf(answer.text), 'error')['code']
  if (code === -32700) patient.findings.ok(check.id, 'A body that is not JSON is refused with -32700.')
  else
    patient.findings.warning(
      check.id,
      `${check.what} is answered with ${describeCode(answer.status, code)}.`,
      check.fix,
    )
}

/** A question for a task with an endless id: harmless, and larger than most servers take. */
async function checkLargeBody(patient: Patient, way: CardInterface): Promise<void> {
  const { findings } = patient
  const request = { jsonrpc: '2.0', id: 1, method: 'GetTask', params: { id: 'x'.repeat(largeBodyBytes) } }
  const check = {
    id: 'errors.large',
    what: `A body of ${largeBodyBytes / 1024 / 1024} MiB`,
    fix: 'Let the agent refuse large bodies with JSON, and read on until they end: give the proxy before it the larger limit (nginx: client_max_body_size).',
  }
  const answer = await post(patient, way, JSON.stringify(request), check)
  if (answer === undefined) return
  if (jsonOf(answer.text) !== undefined) {
    findings.ok(check.id, `${check.what} is answered with ${answer.status} and JSON.`)
    return
  }
  const isPage = headerOf(answer, 'content-type').includes('html') || /^\s*</.test(answer.text)
  const got = `${answer.status} and ${isPage ? 'a page of HTML' : 'no JSON'}`
  findings.warning(check.id, `${check.what} is answered with ${got}.`, check.fix)
}

async function checkUnknownCancel(patient: Patient, way: CardInterface): Promise<void> {
  const client = patient.client(way)
  try {
    await client.cancelTask(randomUUID(), { signal: patient.signal })
    patient.findings.fail(
      'errors.cancel',
      'A task that does not exist was cancelled.',
      'Answer CancelTask for an unknown id with TaskNotFoundError.',
    )
  } catch (error) {
    if (patient.signal.aborted) throw error
    const { code } = toPeerError(error, client.id)
    if (code === 'task_not_found')
      patient.findings.ok('errors.cancel', 'CancelTask for an unknown task is refused as it should.')
    else
      patient.findings.warning(
        'errors.cancel',
        `CancelTask for an unknown task is answered with ${code}.`,
        'Answer with TaskNotFoundError; clients cancel tasks that may be gone.',
      )
  } finally {
    await client.close()
  }
}

async function checkWebhooks(patient: Patient, way: CardInterface): Promise<void> {
  const { findings, card } = patient
  const isDeclared = part(card, 'capabilities')['pushNotifications'] === true
  if (!isDeclared) {
    findings.ok('webhooks', 'It declares no webhooks; clients follow streams, or ask.')
    return
  }
  const client = patient.client(way)
  try {
    await client.listPushConfigs(randomUUID(), { signal: patient.signal })
    findings.ok('webhooks', 'It declares webhooks, and knows their methods.')
  } catch (error) {
    if (patient.signal.aborted) throw error
    const { code } = toPeerError(error, client.id)
    if (code === 'task_not_found') findings.ok('webhooks', 'It declares webhooks, and knows their methods.')
    else
      findings.warning(
        'webhooks',
        `It declares webhooks, but their list is answered with ${code}.`,
        'Serve the methods for push notification configurations, or set capabilities.pushNotifications to false.',
      )
  } finally {
    await client.close()
  }
}
