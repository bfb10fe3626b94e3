/** The options of the client commands, and how their values are read. */
import { type Command, InvalidArgumentError, Option } from 'commander'
import { ConvokeError } from '../../base/errors.ts'
import { parseDuration } from '../../base/duration.ts'
import { isObject, type JsonObject } from '../../base/json.ts'

const defaultPollIntervalMs = 2_000

/** The options that say which agent, as whom, and how to show what it answers. */
export function addAgentOptions(command: Command, version: string): Command {
  return command
    .optionsGroup('Agent:')
    .option('-a, --agent-card <ref>', 'the agent: a host, the URL of its card, or a card file')
    .option('--bearer <token>', 'bearer token; other users see flags, so prefer A2ACLI_BEARER')
    .option('--api-key <key>', 'API key, sent where the card wants it; prefer A2ACLI_API_KEY')
    .option('--svc-param <name:value>', 'one more service parameter (HTTP header); repeatable', collect)
    .addOption(
      new Option(
        '--transport <binding>',
        'JSONRPC or HTTP+JSON, repeatable, best first (default: the order of the card)',
      ).argParser(collectTransport),
    )
    .addOption(
      new Option('--a2a-version <version>', 'version of A2A (default: 1.0; 0.3 only if asked for)').choices([
        '1.0',
        '0.3',
      ]),
    )
    .option('--insecure', 'do not verify certificates; for development (default: verify)')
    .option('--timeout <duration>', 'give up after this time: 30s, 5m (default: none)', toDuration)
    .addOption(
      new Option('--poll-interval <duration>', 'how often to look at a task while waiting')
        .argParser(toInterval)
        .default(defaultPollIntervalMs, '2s'),
    )
    .optionsGroup('Output:')
    .addOption(
      new Option('-o, --output <format>', 'text, or JSON of the protocol').choices(['text', 'json']).default('text'),
    )
    .option('--verbose', 'show all of what was exchanged, part by part (default: concise)')
    .option('--debug', 'tell on stderr what goes over the wire, without credentials')
    .option('--config <file>', '.env file in place of the nearest one')
    .version(version, '-v, --version', 'print the version')
}

export function collect(value: string, previous: readonly string[] = []): string[] {
  return [...previous, value]
}

const bindings: Readonly<Record<string, string>> = {
  jsonrpc: 'JSONRPC',
  'json-rpc': 'JSONRPC',
  'http+json': 'HTTP+JSON',
  rest: 'HTTP+JSON',
  grpc: 'GRPC',
}

export function collectTransport(value: string, previous: readonly string[] = []): string[] {
  const binding = bindings[value.toLowerCase()]
  if (binding === undefined) throw new InvalidArgumentError('A transport is JSONRPC, HTTP+JSON or GRPC.')
  return [...previous, binding]
}

export function toDuration(text: string): number {
  try {
    return parseDuration(text)
  } catch (error) {
    if (error instanceof ConvokeError)
      throw new InvalidArgumentError('Write a number and its unit: 500ms, 30s, 5m, 1h.')
    throw error
  }
}

/** Shorter intervals than this would be a loop that never rests. */
const minIntervalMs = 50

function toInterval(text: string): number {
  const ms = toDuration(text)
  if (ms < minIntervalMs) throw new InvalidArgumentError(`The shortest interval is ${minIntervalMs}ms.`)
  return ms
}

export function toCount(text: string): number {
  if (!/^\d{1,9}$/.test(text)) throw new InvalidArgumentError('Give a whole number, 0 or more.')
  return Number(text)
}

export function toMetadata(text: string): JsonObject {
  try {
    const value: unknown = JSON.parse(text)
    if (isObject(value)) return value as JsonObject
  } catch {
    // Told below, as any other value that is no object.
  }
  throw new InvalidArgumentError(`Give a JSON object: '{"key":"value"}'.`)
}

/** The states by their short names, which --status takes beside the full ones. */
export const stateNames = [
  'SUBMITTED',
  'WORKING',
  'INPUT_REQUIRED',
  'AUTH_REQUIRED',
  'COMPLETED',
  'FAILED',
  'CANCELED',
  'REJECTED',
]

export function toState(text: string): string {
  const name = text
    .toUpperCase()
    .replaceAll('-', '_')
    .replace(/^TASK_STATE_/, '')
  if (!stateNames.includes(name)) throw new InvalidArgumentError(`A state is one of ${stateNames.join(', ')}.`)
  return `TASK_STATE_${name}`
}
