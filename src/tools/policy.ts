/**
 * The tool policy: rules that say who may call which tool with which arguments. The first rule that matches decides;
 * where there are rules and none matches, the call is denied.
 */
import { ConvokeError } from '../base/errors.ts'
import { fitsGlob } from '../base/glob.ts'
import { isObject } from '../base/json.ts'
import { compile, type Validator } from './schema.ts'
import type { Caller, JsonSchema, Tool } from './tool.ts'
import { closest, excerpt } from './value.ts'

/** `ask`: the caller must approve exactly these arguments. */
export type Decision = 'allow' | 'deny' | 'ask'

/** The traits that a rule may name. `readOnly` implies `idempotent`, as everywhere; a trait that is not said is false. */
export interface PolicyTraits {
  readonly readOnly?: boolean
  readonly idempotent?: boolean
}

/** Matches a call when everything that it says fits. In globs `*` stands for any run of characters, dots too. */
export interface PolicyRule {
  /**
   * Globs on the caller's id. With a slash, `TENANT/ID`: what stands before the first slash must fit the tenant
   * (`/ID` is a caller of none), what follows the id. Without one, the id alone counts.
   */
  readonly callers?: string | readonly string[]
  /** The caller holds one of these, or `*`. */
  readonly scopes?: string | readonly string[]
  /** Globs on the id of the agent that made the call. A call that no agent made fits none. What an agent calls itself proves nothing. */
  readonly agents?: string | readonly string[]
  /**
   * Globs on the handle: `SERVICE.NAME`, or the name of a local tool. One that fits an alias of the tool fits too, by
   * whichever name it is called: an alias gives no rights that its handle has not.
   */
  readonly tools?: string | readonly string[]
  /** Globs of which one fits the category or a tag of the tool. */
  readonly tags?: string | readonly string[]
  /** What the tool says of itself, which for a tool of others is what they say. */
  readonly traits?: PolicyTraits
  /** A JSON Schema that the arguments must fit. */
  readonly arguments?: JsonSchema
  readonly decision: Decision
  /** A sentence for whoever is denied or asked. */
  readonly reason?: string
}

export type PolicyTool = Pick<Tool, 'name' | 'traits'>

export interface PolicyCall {
  readonly caller: Caller
  readonly tool: PolicyTool
  /** Default: none are given, `{}`. */
  readonly params?: unknown
  /** Which agent made the call, if one did. */
  readonly agent?: string | undefined
}

export interface PolicyOptions {
  /**
   * Other names for tools, `{alias: handle}`, as they are in use: without those that are the name of a tool. Rules on
   * `tools` may name them. Default: none.
   */
  readonly aliases?: Readonly<Record<string, string>>
}

export interface PolicyDecision {
  readonly decision: Decision
  /** The rule that decided, counted from 0; absent where none matched or there are none. */
  readonly rule?: number
  /** A sentence for the caller. */
  readonly reason: string
}

/** What a rule says of one side of a call. `*` among globs of callers and tools says nothing. */
export interface CompiledRule {
  readonly rule: PolicyRule
  readonly callers: ((caller: Caller) => boolean) | undefined
  readonly scopes: readonly string[] | undefined
  readonly agents: Fits | undefined
  readonly tools: Fits | undefined
  readonly tags: Fits | undefined
  readonly traits: readonly (readonly [keyof PolicyTraits, boolean])[] | undefined
  readonly arguments: Validator | undefined
  readonly outcome: PolicyDecision
}

type Fits = (name: string) => boolean

const traitNames = ['readOnly', 'idempotent'] as const satisfies readonly (keyof PolicyTraits)[]
const decisions: readonly Decision[] = ['allow', 'deny', 'ask']
const globKeys = ['callers', 'scopes', 'agents', 'tools', 'tags'] as const
const ruleKeys: readonly string[] = [...globKeys, 'traits', 'arguments', 'decision', 'reason']

const withoutRules: PolicyDecision = { decision: 'allow', reason: 'There is no tool policy: every call is allowed.' }
const unmatched: PolicyDecision = { decision: 'deny', reason: 'No rule of the tool policy allows it.' }

/** Rules, ready to be asked. They do not change; another policy is another object. */
export class ToolPolicy {
  /** In the order in which they are asked. */
  readonly rules: readonly CompiledRule[]
  /** What is left of the rules for one caller. A request asks for one caller many times: with each tool of a list. */
  readonly #ofCaller = new WeakMap<Caller, readonly CompiledRule[]>()

  /** Throws `config` for rules that make no sense, with all that is wrong as issues. */
  constructor(rules: readonly PolicyRule[] = [], { aliases = {} }: PolicyOptions = {}) {
    const issues = rules.flatMap((rule, index) =>
      checkRule(rule).map(({ path, message }) => ({
        path: `/toolPolicy/${index}${path}`,
        message: `${ruleName(index)}${path.replaceAll('/', '.')} ${message}${message.endsWith('?') ? '' : '.'}`,
      })),
    )
    if (issues.length > 0) throw new ConvokeError('config', issues.map(({ message }) => message).join('\n'), { issues })
    const aliasesOf = new Map<string, string[]>()
    for (const [alias, handle] of Object.entries(aliases)) {
      aliasesOf.set(handle, [...(aliasesOf.get(handle) ?? []), alias])
    }
    this.rules = rules.map((rule, index) => compileRule(rule, index, aliasesOf))
  }

  /** What happens with a call when nothing matches. */
  get fallback(): PolicyDecision {
    return this.rules.length === 0 ? withoutRules : unmatched
  }

  /** What is to be done with a call. The params are those that the tool would get: defaults merged, hooks done. */
  decide({ caller, tool, params = {}, agent }: PolicyCall): PolicyDecision {
    for (const rule of this.#rulesOf(caller)) {
      if (!fitsTool(rule, tool)) continue
      if (rule.agents !== undefined && (agent === undefined || !rule.agents(agent))) continue
      if (rule.arguments === undefined || rule.arguments.fits(params)) return rule.outcome
    }
    return this.fallback
  }

  /**
   * Whether a tool stands on the card and in the lists of a caller: whether there may be arguments, and where `agent` is
   * not known an agent, with which its call is not denied.
   */
  visible(caller: Caller, tool: PolicyTool, agent?: string): boolean {
    for (const rule of this.#rulesOf(caller)) {
      if (!fitsTool(rule, tool)) continue
      if (rule.agents !== undefined && agent !== undefined && !rule.agents(agent)) continue
      const { decision } = rule.outcome
      if (decision !== 'deny') return true
      const isCertain = rule.arguments === undefined && (rule.agents === undefined || agent !== undefined)
      if (isCertain) return false
    }
    return this.fallback.decision !== 'deny'
  }

  /** Whether a tool stands where anybody can read of it: whether there may be a caller with whose call it is not denied. */
  visibleToAny(tool: PolicyTool): boolean {
    for (const rule of this.rules) {
      if (!fitsTool(rule, tool)) continue
      if (rule.outcome.decision !== 'deny') return true
      const { callers, scopes, agents, arguments: args } = rule
      if ([callers, scopes, agents, args].every((condition) => condition === undefined)) return false
    }
    return this.fallback.decision !== 'deny'
  }

  /** The rules that no call reaches, because one before them matches every call. */
  unreachable(): readonly number[] {
    const last = this.rules.findIndex(isUnconditional)
    return last === -1 ? [] : this.rules.flatMap((_rule, index) => (index > last ? [index] : []))
  }

  #rulesOf(caller: Caller): readonly CompiledRule[] {
    let rules = this.#ofCaller.get(caller)
    if (rules === undefined) {
      rules = this.rules.filter((rule) => fitsCaller(rule, caller))
      this.#ofCaller.set(caller, rules)
    }
    return rules
  }
}

/** How a rule is called in messages, as in those on the configuration. */
export function ruleName(index: number): string {
  return `toolPolicy[${index}]`
}

/** The category of a tool and its tags. */
export function tagsOf({ category, tags = [] }: PolicyTool['traits']): readonly string[] {
  return category === undefined ? tags : [category, ...tags]
}

export function traitOf(traits: PolicyTool['traits'], name: keyof PolicyTraits): boolean {
  return (traits.readOnly ?? false) || (name === 'idempotent' && (traits.idempotent ?? false))
}

/** Whether the caller holds one of the scopes. */
export function holdsScope(caller: Caller, scopes: readonly string[]): boolean {
  return caller.scopes.some((held) => held === '*' || scopes.includes(held))
}

export function toList(value: string | readonly string[]): readonly string[] {
  return typeof value === 'string' ? [value] : value
}

function fitsCaller({ callers, scopes }: CompiledRule, caller: Caller): boolean {
  return (callers === undefined || callers(caller)) && (scopes === undefined || holdsScope(caller, scopes))
}

function fitsTool({ tools, tags, traits }: CompiledRule, tool: PolicyTool): boolean {
  if (tools !== undefined && !tools(tool.name)) return false
  if (tags !== undefined && !tagsOf(tool.traits).some(tags)) return false
  return traits === undefined || traits.every(([name, wanted]) => traitOf(tool.traits, name) === wanted)
}

function isUnconditional({ callers, scopes, agents, tools, tags, traits, arguments: args }: CompiledRule): boolean {
  return [callers, scopes, agents, tools, tags, traits, args].every((condition) => condition === undefined)
}

/** `aliasesOf`: the aliases of each handle. */
function compileRule(rule: PolicyRule, index: number, aliasesOf: ReadonlyMap<string, readonly string[]>): CompiledRule {
  const { scopes, agents, tags, traits = {} } = rule
  const wanted = traitNames.flatMap((name) => {
    const value = traits[name]
    return value === undefined ? [] : [[name, value] as const]
  })
  return {
    rule,
    callers: callersFit(rule.callers),
    scopes: scopes === undefined ? undefined : toList(scopes),
    agents: agents === undefined ? undefined : anyFits(agents),
    tools: rule.tools === undefined || toList(rule.tools).includes('*') ? undefined : toolsFit(rule.tools, aliasesOf),
    tags: tags === undefined ? undefined : anyFits(tags),
    traits: wanted.length === 0 ? undefined : wanted,
    arguments: validatorOf(rule.arguments),
    outcome: Object.freeze({ decision: rule.decision, rule: index, reason: rule.reason ?? reasonOf(rule, index) }),
  }
}

/** A schema without keywords fits everything. */
function validatorOf(schema: JsonSchema | undefined): Validator | undefined {
  if (schema === undefined || Object.keys(schema).every((key) => key === '$schema')) return undefined
  const validator = compile(schema, { foreign: false })
  validator.prepare()
  return validator
}

function reasonOf({ decision }: PolicyRule, index: number): string {
  if (decision === 'allow') return `The tool policy allows it (${ruleName(index)}).`
  if (decision === 'ask') return `The tool policy wants an approval for it (${ruleName(index)}).`
  return `The tool policy does not allow it (${ruleName(index)}).`
}

function anyFits(globs: string | readonly string[]): Fits {
  const [first = toFits(''), ...others] = toList(globs).map(toFits)
  return others.length === 0 ? first : (name) => first(name) || others.some((fits) => fits(name))
}

/** Whether a handle fits, or one of its aliases. */
function toolsFit(globs: string | readonly string[], aliasesOf: ReadonlyMap<string, readonly string[]>): Fits {
  const fits = anyFits(globs)
  if (aliasesOf.size === 0) return fits
  return (handle) => fits(handle) || (aliasesOf.get(handle)?.some(fits) ?? false)
}

/** Most globs are a name, or the beginning of one: both are a single comparison. */
function toFits(glob: string): Fits {
  const star = glob.indexOf('*')
  if (star === -1) return (name) => name === glob
  if (glob === '*') return () => true
  const head = glob.slice(0, -1)
  if (star === head.length) return (name) => name.startsWith(head)
  return (name) => fitsGlob(name, glob)
}

function callersFit(globs: string | readonly string[] | undefined): ((caller: Caller) => boolean) | undefined {
  if (globs === undefined || toList(globs).includes('*')) return undefined
  const tests = toList(globs).map((glob) => {
    const slash = glob.indexOf('/')
    const fitsId = toFits(glob.slice(slash + 1))
    if (slash === -1) return ({ id }: Caller) => fitsId(id)
    const fitsTenant = toFits(glob.slice(0, slash))
    // An id may hold slashes of its own: a glob on the two joined would let an id pose as another tenant's.
    return ({ id, tenant = '' }: Caller) => fitsTenant(tenant) && fitsId(id)
  })
  return (caller) => tests.some((test) => test(caller))
}

interface Problem {
  readonly path: string
  readonly message: string
}

/** A mistyped key would be a condition that is not there, and such a rule matches too much. */
function checkRule(rule: unknown): Problem[] {
  if (!isObject(rule)) return [{ path: '', message: `must be a rule { …, decision }, got ${excerpt(rule)}` }]
  const problems: Problem[] = []
  const add = (path: string, message: string): void => void problems.push({ path, message })
  for (const key of Object.keys(rule)) {
    if (!ruleKeys.includes(key)) add(`/${key}`, `is an unknown key${didYouMean(key, ruleKeys)}`)
  }
  for (const key of globKeys) {
    const value = rule[key]
    if (value !== undefined && !isTexts(value)) {
      add(`/${key}`, `must be a text, or a list of at least one, got ${excerpt(value)}`)
    }
  }
  if (!decisions.some((decision) => decision === rule['decision'])) {
    add('/decision', `must be allow, deny or ask, got ${excerpt(rule['decision'])}`)
  }
  const { traits, arguments: schema, reason } = rule
  if (reason !== undefined && (typeof reason !== 'string' || reason === '')) {
    add('/reason', `must be a text, got ${excerpt(reason)}`)
  }
  if (traits !== undefined && !isObject(traits)) add('/traits', `must be an object, got ${excerpt(traits)}`)
  for (const [name, value] of Object.entries(isObject(traits) ? traits : {})) {
    if (!traitNames.some((known) => known === name)) {
      add(`/traits/${name}`, `is an unknown trait; there are ${traitNames.join(' and ')}`)
    } else if (value !== undefined && typeof value !== 'boolean') {
      add(`/traits/${name}`, `must be true or false, got ${excerpt(value)}`)
    }
  }
  const wrong = schema === undefined ? undefined : schemaProblem(schema)
  if (wrong !== undefined) add('/arguments', wrong)
  return problems
}

/** Why a rule's `arguments` cannot be used; undefined when they can. */
export function schemaProblem(schema: unknown): string | undefined {
  if (!isObject(schema)) return `must be a JSON Schema, got ${excerpt(schema)}`
  try {
    validatorOf(schema as JsonSchema)
    return undefined
  } catch (error) {
    return `must be a JSON Schema. ${(error as Error).message.replace(/\.$/, '')}`
  }
}

function isTexts(value: unknown): boolean {
  const isText = (each: unknown): boolean => typeof each === 'string' && each !== ''
  return isText(value) || (Array.isArray(value) && value.length > 0 && value.every(isText))
}

function didYouMean(key: string, known: readonly string[]): string {
  const similar = closest(key, known)
  return similar === undefined ? `; there are ${known.join(', ')}` : `; did you mean ${similar}?`
}
