/** Why the tool policy decides as it does: each rule in turn, in sentences. */
import { describeIssues } from './issues.ts'
import { holdsScope, ruleName, tagsOf, toList, traitOf } from './policy.ts'
import type { CompiledRule, Decision, PolicyTraits, ToolPolicy } from './policy.ts'
import type { Caller, ToolTraits } from './tool.ts'
import { clip } from './value.ts'

export interface ExplainedCall {
  readonly caller: Caller
  readonly tool: {
    readonly name: string
    /** Absent: nobody has looked at the tool, so that its tags and traits are not known. */
    readonly traits?: ToolTraits | undefined
  }
  /** Absent: the decision is about any arguments. */
  readonly params?: unknown
  readonly agent?: string | undefined
}

/** One thing that a rule says. */
export interface ConditionExplanation {
  readonly condition: 'callers' | 'scopes' | 'agents' | 'tools' | 'tags' | 'traits' | 'arguments'
  /** null: it depends on what is not known. */
  readonly fits: boolean | null
  /** A clause without a full stop. */
  readonly why: string
}

export interface RuleExplanation {
  /** Counted from 0. */
  readonly rule: number
  readonly decision: Decision
  /** `open`: it depends on what is not known. `unreached`: a rule before it has decided. */
  readonly outcome: 'matches' | 'differs' | 'open' | 'unreached'
  /** What the rule says, in the order in which it is looked at; of an unreached one nothing. */
  readonly conditions: readonly ConditionExplanation[]
  /** The whole in one sentence. */
  readonly sentence: string
}

export interface PolicyExplanation {
  /** `depends`: on what is not known, see `possible`. */
  readonly decision: Decision | 'depends'
  /** Every decision that there may be, in the order of the rules. */
  readonly possible: readonly Decision[]
  /** The rule that decides; absent where it depends or none matches. */
  readonly rule?: number
  /** The sentence that the caller would get; where it depends, what it depends on. */
  readonly reason: string
  readonly rules: readonly RuleExplanation[]
}

/** Longest arguments, names and lists in a sentence. */
const maxShown = 300

/** Explains what {@link ToolPolicy.decide} says of a call, and what it could say where something is not known. */
export function explainPolicy(policy: ToolPolicy, call: ExplainedCall): PolicyExplanation {
  const rules: RuleExplanation[] = []
  const possible: { readonly decision: Decision; readonly rule?: number; readonly reason: string }[] = []
  let isDecided = false
  for (const [index, compiled] of policy.rules.entries()) {
    if (isDecided) {
      rules.push(unreached(index, compiled))
      continue
    }
    const explained = explainRule(index, compiled, call)
    rules.push(explained)
    if (explained.outcome === 'differs') continue
    possible.push(compiled.outcome)
    isDecided = explained.outcome === 'matches'
  }
  if (!isDecided) possible.push(policy.fallback)
  const different = [...new Set(possible.map(({ decision }) => decision))]
  const [first] = different
  const [only] = possible
  if (first === undefined || only === undefined || different.length > 1) {
    const open = rules.filter(({ outcome }) => outcome === 'open').map(({ rule }) => ruleName(rule))
    const reason = `It depends on whether ${open.join(' or ')} ${open.length === 1 ? 'matches' : 'match'}.`
    return { decision: 'depends', possible: different, reason, rules }
  }
  const decided = { decision: first, possible: different, rules }
  if (possible.length > 1) return { ...decided, reason: `Whichever rule matches, the decision is ${first}.` }
  return { ...decided, reason: only.reason, ...(only.rule === undefined ? {} : { rule: only.rule }) }
}

function explainRule(rule: number, compiled: CompiledRule, call: ExplainedCall): RuleExplanation {
  const conditions = conditionsOf(compiled, call)
  const { decision } = compiled.rule
  const differing = conditions.filter(({ fits }) => fits === false)
  const open = conditions.filter(({ fits }) => fits === null)
  const outcome = differing.length > 0 ? 'differs' : open.length > 0 ? 'open' : 'matches'
  const telling = outcome === 'differs' ? differing : outcome === 'open' ? open : conditions
  const words = { matches: 'matches', differs: 'does not match', open: 'may match' }[outcome]
  const why = telling.length === 0 ? 'it matches every call' : telling.map((each) => each.why).join(', and ')
  return { rule, decision, outcome, conditions, sentence: `${ruleName(rule)} (${decision}) ${words}: ${why}.` }
}

function unreached(rule: number, { rule: { decision } }: CompiledRule): RuleExplanation {
  const sentence = `${ruleName(rule)} (${decision}) is not reached.`
  return { rule, decision, outcome: 'unreached', conditions: [], sentence }
}

function conditionsOf(compiled: CompiledRule, { caller, tool, params, agent }: ExplainedCall): ConditionExplanation[] {
  const { rule } = compiled
  const conditions: ConditionExplanation[] = []
  const add = (condition: ConditionExplanation['condition'], fits: boolean | null, why: string): void =>
    void conditions.push({ condition, fits, why: clip(why, 4 * maxShown) })
  if (compiled.callers !== undefined && rule.callers !== undefined) {
    const fits = compiled.callers(caller)
    add('callers', fits, `the caller ${callerName(caller)} ${fitsWords(fits)} ${listed(rule.callers)}`)
  }
  if (compiled.scopes !== undefined) {
    const fits = holdsScope(caller, compiled.scopes)
    const held = caller.scopes.includes('*') ? '*' : compiled.scopes.find((scope) => caller.scopes.includes(scope))
    const why = fits
      ? `the caller holds the scope ${held}`
      : `the caller does not hold the scope ${listed(compiled.scopes)}`
    add('scopes', fits, why)
  }
  if (compiled.agents !== undefined && rule.agents !== undefined) {
    const fits = agent !== undefined && compiled.agents(agent)
    const who = agent === undefined ? 'no agent made the call, and it' : `the agent ${agent}`
    add('agents', fits, `${who} ${fitsWords(fits)} ${listed(rule.agents)}`)
  }
  if (compiled.tools !== undefined && rule.tools !== undefined) {
    const fits = compiled.tools(tool.name)
    add('tools', fits, `the tool ${tool.name} ${fitsWords(fits)} ${listed(rule.tools)}`)
  }
  if (compiled.tags !== undefined && rule.tags !== undefined) {
    const tags = tool.traits === undefined ? undefined : tagsOf(tool.traits)
    const fits = tags === undefined ? null : tags.some(compiled.tags)
    const has = tags === undefined || tags.length === 0 ? 'no tag of the tool' : `of its tags ${tags.join(', ')} none`
    const why =
      fits === null
        ? `whether a tag of the tool fits ${listed(rule.tags)} is not known, as nobody has looked at it`
        : fits
          ? `the tag ${tags?.find(compiled.tags)} fits ${listed(rule.tags)}`
          : `${has} fits ${listed(rule.tags)}`
    add('tags', fits, why)
  }
  for (const trait of compiled.traits ?? []) add('traits', ...explainTrait(trait, tool.traits))
  if (compiled.arguments !== undefined) {
    if (params === undefined) add('arguments', null, 'it depends on the arguments')
    else {
      const issues = compiled.arguments.validate(params)
      const why = issues.length === 0 ? 'the arguments fit' : `the arguments do not fit: ${describeIssues(issues)}`
      add('arguments', issues.length === 0, why.replace(/\.$/, ''))
    }
  }
  return conditions
}

function explainTrait(
  [name, wanted]: readonly [keyof PolicyTraits, boolean],
  traits: ToolTraits | undefined,
): [fits: boolean | null, why: string] {
  if (traits === undefined) return [null, `whether ${name} is ${wanted} is not known, as nobody has looked at the tool`]
  const is = traitOf(traits, name)
  return [is === wanted, is === wanted ? `${name} of the tool is ${is}` : `${name} of the tool is ${is}, not ${wanted}`]
}

function fitsWords(fits: boolean): string {
  return fits ? 'fits' : 'does not fit'
}

function listed(globs: string | readonly string[]): string {
  return clip(toList(globs).join(' or '), maxShown)
}

export function callerName({ id, tenant }: Caller): string {
  return tenant === undefined ? id : `${tenant}/${id}`
}
