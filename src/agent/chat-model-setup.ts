/** Which model an agent asks, with what. */
import { ConvokeError } from '../base/errors.ts'
import { freezeJson, isObject, type JsonObject } from '../base/json.ts'
import { maxTimerMs } from '../base/timer.ts'
import { closest, excerpt } from '../tools/value.ts'
import type { ChatModelSetupOptions, ModelLimits } from './chat-model.ts'

const keys = ['connection', 'model', 'prompt', 'tools', 'limits', 'parameters', 'retries']
const limitKeys = ['maxRounds', 'maxToolCalls', 'maxTokens', 'timeoutMs']

/** What other libraries call it. */
const otherWords: Readonly<Record<string, string | undefined>> = {
  chatModelConnection: 'connection',
  modelName: 'model',
  systemPrompt: 'prompt',
  system: 'prompt',
  temperature: 'parameters.temperature',
  maxTokens: 'limits.maxTokens',
  maxRounds: 'limits.maxRounds',
  timeoutMs: 'limits.timeoutMs',
  maxRetries: 'retries',
  modelParameters: 'parameters',
  timeout: 'timeoutMs',
}

/**
 * A chat model setup, checked: unknown and wrong fields throw `invalid_plan` that names them. It is its own JSON, so an instance is as
 * portable as a descriptor of it.
 */
export class ChatModelSetup implements ChatModelSetupOptions {
  static readonly resourceType = 'chatModelSetup'
  static readonly module = 'convoke'

  readonly connection: string
  // Declared only: an absent option is no member.
  declare readonly model?: string
  declare readonly prompt?: string
  declare readonly tools?: readonly string[]
  declare readonly limits?: ModelLimits
  declare readonly parameters?: JsonObject
  declare readonly retries?: number

  constructor(options: ChatModelSetupOptions) {
    const copy = freezeJson(options)
    if ('at' in copy) throw wrong(`${copy.at === '' ? 'its options are' : `\`${copy.at.slice(1)}\` is`} no JSON`)
    const checked: unknown = copy.value
    if (!isObject(checked)) throw wrong(`it needs an object { connection, … }, got ${excerpt(checked)}`)
    checkKeys(checked, keys, '')
    const { connection, model, prompt, tools, limits, parameters, retries } = checked
    if (typeof connection !== 'string' || connection === '')
      throw wrong(
        `\`connection\` must be the name of a resource of type chatModelConnection, got ${excerpt(connection)}`,
      )
    for (const [key, text] of Object.entries({ model, prompt })) {
      if (text !== undefined && (typeof text !== 'string' || text === ''))
        throw wrong(`\`${key}\` must be a text, got ${excerpt(text)}`)
    }
    if (
      tools !== undefined &&
      !(Array.isArray(tools) && tools.every((each) => typeof each === 'string' && each !== ''))
    )
      throw wrong(
        `\`tools\` must be a list of tools' handles and globs, such as ["add", "bob.*"], got ${excerpt(tools)}`,
      )
    if (parameters !== undefined && !isObject(parameters))
      throw wrong(`\`parameters\` must be an object, got ${excerpt(parameters)}`)
    checkNumber('retries', retries, 0)
    if (limits !== undefined) checkLimits(limits)
    this.connection = connection
    Object.assign(this, checked)
    Object.freeze(this)
  }
}

function checkLimits(limits: unknown): void {
  if (!isObject(limits)) throw wrong(`\`limits\` must be an object, got ${excerpt(limits)}`)
  checkKeys(limits, limitKeys, 'limits.')
  checkNumber('limits.maxRounds', limits['maxRounds'], 1)
  checkNumber('limits.maxToolCalls', limits['maxToolCalls'], 0)
  checkNumber('limits.maxTokens', limits['maxTokens'], 1)
  checkNumber('limits.timeoutMs', limits['timeoutMs'], 1, maxTimerMs)
}

function checkNumber(key: string, value: unknown, least: number, most = Number.MAX_SAFE_INTEGER): void {
  if (value === undefined || (Number.isSafeInteger(value) && Number(value) >= least && Number(value) <= most)) return
  const range = most === Number.MAX_SAFE_INTEGER ? `${least} or more` : `${least} to ${most}`
  throw wrong(`\`${key}\` must be a whole number, ${range}, got ${excerpt(value)}`)
}

function checkKeys(object: Record<string, unknown>, known: readonly string[], before: string): void {
  for (const key of Object.keys(object)) {
    if (known.includes(key)) continue
    const other = Object.hasOwn(otherWords, key) ? otherWords[key] : undefined
    const isHere = other !== undefined && (known.includes(other) || (before === '' && other.includes('.')))
    const meant = isHere ? other : closest(key, known)
    const hint = meant === undefined ? `known are ${known.join(', ')}` : `write \`${before}${meant}\``
    throw wrong(`it has an unknown field \`${before}${key}\`; ${hint}`)
  }
}

function wrong(what: string): ConvokeError {
  return new ConvokeError('invalid_plan', `A chat model setup is wrong: ${what}.`)
}
