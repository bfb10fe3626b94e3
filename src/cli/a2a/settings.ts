/** What holds for one run of a client command: flags, then the environment, then files, then what is built in. */
import { type Command, InvalidArgumentError, type Option } from 'commander'
import type { Source } from '../environment.ts'
import { usageFailure } from './failure.ts'

/** The options of everything that speaks to agents. */
export interface ClientFlags {
  readonly bearer?: string
  readonly apiKey?: string
  readonly svcParam?: readonly string[]
  /** Best first. */
  readonly transport?: readonly string[]
  readonly a2aVersion?: '1.0' | '0.3'
  readonly insecure?: boolean
  readonly debug?: boolean
  readonly verbose?: boolean
  readonly output: 'text' | 'json'
  readonly config?: string
  /** In milliseconds; no limit if it is not there. */
  readonly timeout?: number
}

/** The options of the commands for one agent. */
export interface AgentFlags extends ClientFlags {
  readonly agentCard?: string
  /** In milliseconds. */
  readonly pollInterval: number
}

/** One setting and where its value came from. */
export interface Setting {
  /** The long flag without its dashes. */
  readonly name: string
  readonly value: unknown
  readonly source: 'flag' | 'environment' | 'local' | 'global' | 'default'
  /** `--bearer`, `A2ACLI_BEARER`, or the path of a file. Absent for what is built in. */
  readonly from?: string
}

/** Those that no variable sets: what a person must write out, what is bound to its place, and other names of options. */
const flagsOnly = new Set([
  'stream',
  'help',
  'version',
  'config',
  'text',
  'file',
  'data',
  'media-type',
  'message-id',
  'force',
  'return-immediately',
  'watch',
  'param',
  'params',
  'answer',
  'detach',
  'probe',
  'tool',
  'message',
  'context',
  'check',
  'schema',
  'tag',
  'search',
  'kind',
])

/** The flag that decides against another one, which may be set for good in a file. */
const opposites: Readonly<Record<string, string>> = { wait: 'async', async: 'wait' }

/** `agent-card` as `A2ACLI_AGENT_CARD`. */
export function variableOf(name: string): string {
  return `A2ACLI_${name.toUpperCase().replaceAll('-', '_')}`
}

/**
 * Puts the values of all sources into the command's options and says where each came from. A variable that is set to
 * nothing unsets what the sources behind it say. Throws `A2ACLI_ERR_USAGE` for a value that an option does not take.
 */
export function resolveSettings(command: Command, sources: readonly Source[]): Setting[] {
  return command.options.flatMap((option): Setting[] => {
    const name = option.long?.replace(/^--/, '') ?? ''
    if (name === 'help' || name === 'version' || option.negate) return []
    const attribute = option.attributeName()
    if (command.getOptionValueSource(attribute) === 'cli') {
      return [{ name, value: command.getOptionValue(attribute) as unknown, source: 'flag', from: `--${name}` }]
    }
    const opposite = opposites[name]
    const isDecided = opposite !== undefined && command.getOptionValueSource(opposite) === 'cli'
    const variable = variableOf(name)
    const found = sources.find(({ variables }) => variables[variable] !== undefined)
    if (found === undefined || flagsOnly.has(name) || isDecided) {
      return [{ name, value: command.getOptionValue(attribute) as unknown, source: 'default' }]
    }
    const from = found.file ?? variable
    const text = found.variables[variable] ?? ''
    const value: unknown =
      text === '' ? option.defaultValue : parseVariable(option, text, `${variable}${inFile(found)}`)
    command.setOptionValueWithSource(attribute, value, 'env')
    return [{ name, value, source: found.kind, from }]
  })
}

function inFile({ file }: Source): string {
  return file === undefined ? '' : ` in ${file}`
}

function parseVariable(option: Option, text: string, where: string): unknown {
  if (option.isBoolean()) {
    if (/^(true|1|yes|on)$/i.test(text)) return true
    if (/^(false|0|no|off)$/i.test(text)) return false
    throw usageFailure(`${where} must be true or false.`)
  }
  try {
    return items(option.attributeName(), text).reduce<unknown>(
      (previous, item) => (option.parseArg === undefined ? item : option.parseArg(item, previous as never)),
      undefined,
    )
  } catch (error) {
    if (error instanceof InvalidArgumentError) throw usageFailure(`${where} is invalid. ${error.message}`)
    throw error
  }
}

/** Options that may be given many times take a list: transports by comma; parameters by line, or by comma before `name:`. */
function items(attribute: string, text: string): string[] {
  if (attribute === 'transport') return text.split(',').map((item) => item.trim())
  if (attribute === 'svcParam') return text.split(/\n|,(?=\s*[\w-]+:)/).map((item) => item.trim())
  return [text]
}

/** `name:value` pairs as headers. Throws `A2ACLI_ERR_USAGE`, without the value, for what is no pair. */
export function parseServiceParameters(pairs: readonly string[] = []): Record<string, string> {
  const headers: Record<string, string> = {}
  for (const [index, pair] of pairs.entries()) {
    const [, name, value] = /^([\w!#$%&'*+.^`|~-]+):[ \t]*([\x20-\x7e\t]*)$/.exec(pair) ?? []
    if (name === undefined || value === undefined) {
      throw usageFailure(`Service parameter ${index + 1} is not NAME:VALUE (--svc-param x-trace-id:abc).`)
    }
    if (/^(host|content-.*|transfer-encoding|connection|accept|a2a-version)$/i.test(name)) {
      throw usageFailure(`The service parameter ${name} belongs to the protocol and cannot be set.`)
    }
    headers[name.toLowerCase()] = value.trim()
  }
  return headers
}
