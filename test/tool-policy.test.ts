/** The tool policy: which rule matches, what it decides, what a caller sees, and why. */
import { describe, expect, test } from 'vitest'
import { ConvokeError } from '../dist/base/errors.js'
import { isObject } from '../dist/base/json.js'
import { approvalQuestion, approvalReader, argumentsHash, checkApproval } from '../dist/tools/approval.js'
import { explainPolicy } from '../dist/tools/policy-explain.js'
import { ToolPolicy, type PolicyRule } from '../dist/tools/policy.js'
import { compile } from '../dist/tools/schema.js'
import type { Caller, ToolTraits } from '../dist/tools/tool.js'

const bob: Caller = { id: 'bob', scopes: ['tool:*'] }
const tool = (name: string, traits: ToolTraits = {}) => ({ name, traits })
const write = tool('files.write')

/** The decision on a call, with the rule that made it. */
function decide(
  rules: readonly PolicyRule[],
  call: { caller?: Caller; name?: string; traits?: ToolTraits; params?: unknown; agent?: string } = {},
): string {
  const { caller = bob, name = 'files.write', traits = {}, params, agent } = call
  const { decision, rule } = new ToolPolicy(rules).decide({ caller, tool: tool(name, traits), params, agent })
  return rule === undefined ? decision : `${decision} ${rule}`
}

/** Without what is undefined. */
function compact(value: object): object {
  return Object.fromEntries(Object.entries(value).filter(([, member]) => member !== undefined))
}

/** The error of a constructor or function that must throw. */
function thrownBy(run: () => unknown): ConvokeError {
  try {
    run()
  } catch (error) {
    if (error instanceof ConvokeError) return error
    throw error
  }
  throw new Error('Nothing was thrown.')
}

describe('a tool policy', () => {
  test('allows everything where there are no rules, and denies what no rule matches where there are some', () => {
    expect(new ToolPolicy().decide({ caller: bob, tool: write })).toEqual({
      decision: 'allow',
      reason: 'There is no tool policy: every call is allowed.',
    })
    expect(decide([])).toBe('allow')
    expect(new ToolPolicy([{ tools: 'other', decision: 'allow' }]).decide({ caller: bob, tool: write })).toEqual({
      decision: 'deny',
      reason: 'No rule of the tool policy allows it.',
    })
  })

  test('takes the first rule that matches', () => {
    const rules: PolicyRule[] = [
      { tools: 'files.write*', decision: 'ask' },
      { tools: 'files.*', decision: 'deny' },
      { callers: '*', tools: '*', decision: 'allow' },
    ]
    expect(decide(rules, { name: 'files.write_all' })).toBe('ask 0')
    expect(decide(rules, { name: 'files.read' })).toBe('deny 1')
    expect(decide(rules, { name: 'count_to' })).toBe('allow 2')
  })

  test('gives the reason of the rule to the caller, or one of its own', () => {
    const reasonOf = (rule: PolicyRule) => new ToolPolicy([rule]).decide({ caller: bob, tool: write }).reason
    expect(reasonOf({ decision: 'deny', reason: 'Nobody writes on Fridays.' })).toBe('Nobody writes on Fridays.')
    expect(reasonOf({ decision: 'deny' })).toBe('The tool policy does not allow it (toolPolicy[0]).')
    expect(reasonOf({ decision: 'ask' })).toBe('The tool policy wants an approval for it (toolPolicy[0]).')
    expect(reasonOf({ decision: 'allow' })).toBe('The tool policy allows it (toolPolicy[0]).')
  })

  test.each<[globs: string | string[], name: string, fits: boolean]>([
    ['files.write', 'files.write', true],
    ['files.write', 'files.write_all', false],
    ['files.write*', 'files.write.deep', true],
    ['*.write', 'files.write', true],
    ['*write', 'write', true],
    ['f*s.w*e', 'files.write', true],
    ['f*s.w*e', 'files.read', false],
    ['files.*.*', 'files.write', false],
    [['count_to', 'files.*'], 'files.write', true],
    [['count_to', 'files.*'], 'echo', false],
    ['echo', 'bob.echo', false],
  ])('the glob %j on tools: %s is %s', (tools, name, fits) => {
    expect(decide([{ tools, decision: 'allow' }], { name })).toBe(fits ? 'allow 0' : 'deny')
  })

  test('matches a tool by an alias of it, whatever the rule decides; the first rule still decides', () => {
    const aliases = { rev: 'bob.reverse', backwards: 'bob.reverse', delete: 'eve.delete' }
    const decisionOn = (name: string, rules: PolicyRule[]) =>
      new ToolPolicy(rules, { aliases }).decide({ caller: bob, tool: tool(name) })
    for (const decision of ['deny', 'allow', 'ask'] as const) {
      expect(decisionOn('bob.reverse', [{ tools: 'rev', decision }])).toMatchObject({ decision, rule: 0 })
      expect(decisionOn('bob.reverse', [{ tools: ['x', 'back*'], decision }])).toMatchObject({ decision, rule: 0 })
      expect(decisionOn('bob.echo', [{ tools: 'rev', decision }])).toMatchObject({ decision: 'deny' })
    }
    const denied: PolicyRule[] = [
      { tools: 'bob.*', decision: 'deny' },
      { tools: 'rev', decision: 'allow' },
    ]
    expect(decisionOn('bob.reverse', denied)).toMatchObject({ decision: 'deny', rule: 0 })
    const policy = new ToolPolicy([{ tools: 'rev', decision: 'deny' }, { decision: 'allow' }], { aliases })
    expect(policy.visible(bob, tool('bob.reverse'))).toBe(false)
    expect(policy.visibleToAny(tool('bob.reverse'))).toBe(false)
    expect(policy.visible(bob, tool('bob.echo'))).toBe(true)
  })

  test.each<[globs: string, caller: Partial<Caller>, fits: boolean]>([
    ['bob', { id: 'bob' }, true],
    ['bob', { id: 'bob', tenant: 'acme' }, true],
    ['b*', { id: 'bobby' }, true],
    ['acme/*', { id: 'bob', tenant: 'acme' }, true],
    ['acme/bob', { id: 'bob', tenant: 'acme' }, true],
    ['acme/*', { id: 'bob', tenant: 'evil' }, false],
    ['acme/*', { id: 'bob' }, false],
    // An id that looks like a tenant's is none.
    ['acme/bob', { id: 'acme/bob' }, false],
    ['acme/*', { id: 'acme/bob', tenant: 'evil' }, false],
    ['/bob', { id: 'bob' }, true],
    ['/bob', { id: 'bob', tenant: 'acme' }, false],
    ['*/https://id.example/u/1', { id: 'https://id.example/u/1' }, true],
    ['*/bob', { id: 'bob' }, true],
    ['*/bob', { id: 'bob', tenant: 'acme' }, true],
  ])('the glob %s on callers: %j is %s', (callers, caller, fits) => {
    const who = { scopes: ['*'], ...caller } as Caller
    expect(decide([{ callers, decision: 'allow' }], { caller: who })).toBe(fits ? 'allow 0' : 'deny')
  })

  test('matches a caller who holds one of the scopes, or all', () => {
    const rules: PolicyRule[] = [{ scopes: ['admin', 'ops'], decision: 'allow' }]
    expect(decide(rules, { caller: { id: 'a', scopes: ['message', 'ops'] } })).toBe('allow 0')
    expect(decide(rules, { caller: { id: 'a', scopes: ['*'] } })).toBe('allow 0')
    expect(decide(rules, { caller: { id: 'a', scopes: ['administrator'] } })).toBe('deny')
    expect(decide(rules, { caller: { id: 'a', scopes: [] } })).toBe('deny')
  })

  test('matches the agent that made the call; a call of no agent fits no glob', () => {
    const rules: PolicyRule[] = [{ agents: ['carol', 'd*'], decision: 'allow' }]
    expect(decide(rules, { agent: 'carol' })).toBe('allow 0')
    expect(decide(rules, { agent: 'dave' })).toBe('allow 0')
    expect(decide(rules, { agent: 'eve' })).toBe('deny')
    expect(decide(rules)).toBe('deny')
    expect(decide([{ agents: '*', decision: 'allow' }])).toBe('deny')
  })

  test('matches the category and the tags', () => {
    const rules: PolicyRule[] = [{ tags: ['billing*', 'money'], decision: 'deny' }, { decision: 'allow' }]
    expect(decide(rules, { traits: { category: 'billing' } })).toBe('deny 0')
    expect(decide(rules, { traits: { tags: ['x', 'billing-eu'] } })).toBe('deny 0')
    expect(decide(rules, { traits: { category: 'demo', tags: ['x'] } })).toBe('allow 1')
    expect(decide(rules)).toBe('allow 1')
    expect(decide([{ tags: '*', decision: 'allow' }])).toBe('deny')
  })

  test('matches traits; a trait that is not said is false, and what is read-only is idempotent', () => {
    const readOnly: PolicyRule[] = [{ traits: { readOnly: true }, decision: 'allow' }]
    expect(decide(readOnly, { traits: { readOnly: true } })).toBe('allow 0')
    expect(decide(readOnly, { traits: { readOnly: false } })).toBe('deny')
    expect(decide(readOnly)).toBe('deny')
    expect(decide([{ traits: { readOnly: false }, decision: 'ask' }])).toBe('ask 0')
    expect(decide([{ traits: { idempotent: true }, decision: 'allow' }], { traits: { readOnly: true } })).toBe(
      'allow 0',
    )
    const both: PolicyRule[] = [{ traits: { readOnly: false, idempotent: true }, decision: 'allow' }]
    expect(decide(both, { traits: { idempotent: true } })).toBe('allow 0')
    expect(decide(both, { traits: { readOnly: true } })).toBe('deny')
  })

  test('matches arguments that fit the schema', () => {
    const inTmp = { properties: { path: { type: 'string', pattern: '^/tmp/' } }, required: ['path'] }
    const rules: PolicyRule[] = [{ tools: 'files.*', arguments: inTmp, decision: 'allow' }]
    expect(decide(rules, { params: { path: '/tmp/a' } })).toBe('allow 0')
    expect(decide(rules, { params: { path: '/etc/passwd' } })).toBe('deny')
    expect(decide(rules, { params: { path: 5 } })).toBe('deny')
    expect(decide(rules, { params: {} })).toBe('deny')
    expect(decide(rules)).toBe('deny')
    expect(decide([{ arguments: {}, decision: 'allow' }])).toBe('allow 0')
  })

  test('a rule matches only when all that it says fits', () => {
    const rule: PolicyRule = {
      callers: 'bob',
      scopes: 'tool:*',
      agents: 'carol',
      tools: 'files.*',
      tags: 'disk',
      traits: { idempotent: true },
      arguments: { required: ['path'] },
      decision: 'allow',
    }
    const call = { traits: { category: 'disk', idempotent: true }, params: { path: 'a' }, agent: 'carol' }
    expect(decide([rule], call)).toBe('allow 0')
    expect(decide([rule], { ...call, caller: { id: 'eve', scopes: ['tool:*'] } })).toBe('deny')
    expect(decide([rule], { ...call, caller: { id: 'bob', scopes: ['message'] } })).toBe('deny')
    expect(decide([rule], { ...call, agent: 'dave' })).toBe('deny')
    expect(decide([rule], { ...call, name: 'count_to' })).toBe('deny')
    expect(decide([rule], { ...call, traits: { idempotent: true } })).toBe('deny')
    expect(decide([rule], { ...call, traits: { category: 'disk' } })).toBe('deny')
    expect(decide([rule], { ...call, params: {} })).toBe('deny')
  })

  test('keeps callers apart, whatever it was asked before', () => {
    const policy = new ToolPolicy([
      { callers: 'alice', decision: 'allow' },
      { scopes: 'admin', decision: 'ask' },
    ])
    const of = (caller: Caller) => policy.decide({ caller, tool: write }).decision
    for (let round = 0; round < 3; round++) {
      expect(of({ id: 'alice', scopes: [] })).toBe('allow')
      expect(of({ id: 'bob', scopes: ['admin'] })).toBe('ask')
      expect(of(bob)).toBe('deny')
    }
  })

  test('refuses rules that make no sense, and says all that is wrong', () => {
    const rules = [
      { tool: 'files.*', decision: 'allow' },
      { tools: [], decision: 'maybe' },
      { traits: { readonly: true, idempotent: 'yes' }, decision: 'deny' },
      { arguments: { type: 'objekt' }, reason: '', decision: 'deny' },
      { arguments: { properties: { a: { pattern: '(' } } }, decision: 'deny' },
      'deny',
    ] as unknown as PolicyRule[]
    const { code, message, issues } = thrownBy(() => new ToolPolicy(rules))
    expect(code).toBe('config')
    expect(message.split('\n')).toEqual([
      'toolPolicy[0].tool is an unknown key; did you mean tools?',
      'toolPolicy[1].tools must be a text, or a list of at least one, got an array of 0.',
      'toolPolicy[1].decision must be allow, deny or ask, got "maybe".',
      'toolPolicy[2].traits.readonly is an unknown trait; there are readOnly and idempotent.',
      'toolPolicy[2].traits.idempotent must be true or false, got "yes".',
      'toolPolicy[3].reason must be a text, got "".',
      expect.stringMatching(
        /^toolPolicy\[3\]\.arguments must be a JSON Schema\. The schema cannot be compiled: .*objekt/,
      ),
      expect.stringMatching(/^toolPolicy\[4\]\.arguments must be a JSON Schema\. The schema cannot be compiled: /),
      'toolPolicy[5] must be a rule { …, decision }, got "deny".',
    ])
    expect(issues?.[0]?.path).toBe('/toolPolicy/0/tool')
  })

  test('knows the rules that no call reaches', () => {
    const unreachable = (rules: PolicyRule[]) => new ToolPolicy(rules).unreachable()
    expect(unreachable([{ callers: '*', tools: ['a', '*'], decision: 'allow' }, { decision: 'deny' }])).toEqual([1])
    expect(unreachable([{ tools: 'a', decision: 'allow' }, { decision: 'deny' }])).toEqual([])
    expect(unreachable([{ agents: '*', decision: 'allow' }, { decision: 'deny' }])).toEqual([])
    expect(unreachable([{ tags: '*', decision: 'allow' }, { decision: 'deny' }])).toEqual([])
    expect(
      unreachable([{ arguments: {}, traits: {}, decision: 'deny' }, { decision: 'ask' }, { decision: 'ask' }]),
    ).toEqual([1, 2])
    expect(unreachable([])).toEqual([])
  })

  test('decides at once, also for callers whose patterns would take a regular expression years', () => {
    const policy = new ToolPolicy([{ tools: `${'a*'.repeat(40)}b`, decision: 'deny' }, { decision: 'allow' }])
    const startedAt = performance.now()
    expect(policy.decide({ caller: bob, tool: tool('a'.repeat(20_000)) }).decision).toBe('allow')
    expect(performance.now() - startedAt).toBeLessThan(500)
  })
})

describe('what a caller sees', () => {
  const visible = (rules: readonly PolicyRule[], agent?: string, caller = bob) =>
    new ToolPolicy(rules).visible(caller, tool('files.write', { category: 'disk' }), agent)

  test.each<[shows: boolean, what: string, rules: PolicyRule[]]>([
    [true, 'without rules', []],
    [false, 'what no rule matches', [{ tools: 'other', decision: 'allow' }]],
    [true, 'what is allowed', [{ tools: 'files.*', decision: 'allow' }]],
    [true, 'what must be approved', [{ tools: 'files.*', decision: 'ask' }]],
    [false, 'what is denied', [{ tools: 'files.*', decision: 'deny' }, { decision: 'allow' }]],
    [
      true,
      'what is denied with some arguments only',
      [{ arguments: { required: ['a'] }, decision: 'deny' }, { decision: 'allow' }],
    ],
    [
      false,
      'what is denied with some arguments, and with the rest',
      [{ arguments: { required: ['a'] }, decision: 'deny' }],
    ],
    [
      true,
      'what is allowed with some arguments only',
      [{ arguments: { required: ['a'] }, decision: 'allow' }, { decision: 'deny' }],
    ],
    [false, 'what is denied with every argument', [{ arguments: {}, decision: 'deny' }, { decision: 'allow' }]],
    [false, 'what is allowed to others', [{ callers: 'carol', decision: 'allow' }]],
    [true, 'what some agent may call', [{ agents: 'carol', decision: 'allow' }]],
    [true, 'what some agent may not call', [{ agents: 'carol', decision: 'deny' }, { decision: 'allow' }]],
    [false, 'tags that are denied', [{ tags: 'disk', decision: 'deny' }, { decision: 'allow' }]],
  ])('is %s: %s', (shows, _what, rules) => {
    expect(visible(rules)).toBe(shows)
  })

  test('knows the agent where it is told', () => {
    const rules: PolicyRule[] = [{ agents: 'carol', decision: 'deny' }, { decision: 'allow' }]
    expect(visible(rules, 'carol')).toBe(false)
    expect(visible(rules, 'dave')).toBe(true)
    expect(visible([{ agents: 'carol', decision: 'allow' }], 'dave')).toBe(false)
  })

  test('is hidden exactly if each call of it is denied, whatever two rules say', () => {
    const options = <Value>(value: Value) => [undefined, value]
    const rulesWith = (required: string, agent: string) =>
      (['allow', 'deny', 'ask'] as const).flatMap((decision) =>
        options('eve').flatMap((callers) =>
          options('x').flatMap((tools) =>
            options(agent).flatMap((agents) =>
              options({ required: [required] }).map(
                (schema) => compact({ callers, tools, agents, arguments: schema, decision }) as unknown as PolicyRule,
              ),
            ),
          ),
        ),
      )
    const pairs = rulesWith('a', 'carol').flatMap((first) => rulesWith('b', 'dave').map((second) => [first, second]))
    expect(pairs).toHaveLength(48 * 48)
    const withoutAgent = [{}, { a: 1 }, { b: 1 }, { a: 1, b: 1 }].map((params) => ({ params }))
    const calls = [undefined, 'carol', 'dave'].flatMap((agent) => withoutAgent.map((call) => ({ ...call, agent })))
    for (const pair of pairs) {
      const policy = new ToolPolicy(pair)
      const decide = (call: object) => policy.decide({ caller: bob, tool: write, ...call }).decision
      const isPossible = calls.some((call) => decide(call) !== 'deny')
      expect(policy.visible(bob, write), JSON.stringify(pair)).toBe(isPossible)
      const decisions = new Set(withoutAgent.map(decide))
      const { possible } = explainPolicy(policy, { caller: bob, tool: write })
      expect(new Set(possible), JSON.stringify(pair)).toEqual(decisions)
    }
  })

  test('takes a moment for 10,000 tools', () => {
    const policy = new ToolPolicy([
      { tools: 'files.write*', decision: 'ask' },
      { callers: 'carol', tools: ['a.*', '*.b'], decision: 'allow' },
      { tags: 'secret', decision: 'deny' },
      { decision: 'allow' },
    ])
    const tools = Array.from({ length: 10_000 }, (_, index) => tool(`service.tool_${index}`, { tags: ['x'] }))
    const startedAt = performance.now()
    expect(tools.filter((each) => policy.visible(bob, each))).toHaveLength(10_000)
    // 3 ms on a quiet machine.
    expect(performance.now() - startedAt).toBeLessThan(250)
  })
})

describe('an explanation', () => {
  const rules: PolicyRule[] = [
    { callers: ['carol', 'dave'], tools: 'files.*', decision: 'allow' },
    { tools: 'files.write*', arguments: { required: ['path'] }, decision: 'ask' },
    { traits: { readOnly: true }, decision: 'allow' },
    { callers: '*', decision: 'deny', reason: 'Only reading is for all.' },
    { decision: 'allow' },
  ]
  const policy = new ToolPolicy(rules)

  test('says of each rule in turn why it matches or not', () => {
    const {
      decision,
      rule,
      reason,
      rules: explained,
    } = explainPolicy(policy, {
      caller: bob,
      tool: tool('files.write', {}),
      params: {},
    })
    expect({ decision, rule, reason }).toEqual({ decision: 'deny', rule: 3, reason: 'Only reading is for all.' })
    expect(explained.map(({ sentence }) => sentence)).toEqual([
      'toolPolicy[0] (allow) does not match: the caller bob does not fit carol or dave.',
      'toolPolicy[1] (ask) does not match: the arguments do not fit: /path: the required property "path" is missing.',
      'toolPolicy[2] (allow) does not match: readOnly of the tool is false, not true.',
      'toolPolicy[3] (deny) matches: it matches every call.',
      'toolPolicy[4] (allow) is not reached.',
    ])
    expect(explained[0]?.conditions).toEqual([
      { condition: 'callers', fits: false, why: 'the caller bob does not fit carol or dave' },
      { condition: 'tools', fits: true, why: 'the tool files.write fits files.*' },
    ])
  })

  test('says what it depends on where arguments, tags or traits are not known', () => {
    const open = explainPolicy(policy, { caller: bob, tool: { name: 'files.write' } })
    expect(open).toMatchObject({
      decision: 'depends',
      possible: ['ask', 'allow', 'deny'],
      reason: 'It depends on whether toolPolicy[1] or toolPolicy[2] match.',
    })
    expect(open.rules[1]?.sentence).toBe('toolPolicy[1] (ask) may match: it depends on the arguments.')
    expect(open.rules[2]?.sentence).toBe(
      'toolPolicy[2] (allow) may match: whether readOnly is true is not known, as nobody has looked at the tool.',
    )
    const tagged = new ToolPolicy([{ tags: 'a', decision: 'deny' }])
    expect(explainPolicy(tagged, { caller: bob, tool: { name: 'x.y' } })).toMatchObject({
      decision: 'deny',
      possible: ['deny'],
      reason: 'Whichever rule matches, the decision is deny.',
    })
  })

  test('has a sentence for everything that a rule can say', () => {
    const all: PolicyRule = { scopes: ['admin', 'ops'], agents: 'carol', tags: ['a*'], decision: 'allow' }
    const why = (caller: Caller, traits: ToolTraits, agent?: string) =>
      explainPolicy(new ToolPolicy([all]), {
        caller,
        tool: tool('x', traits),
        params: {},
        agent,
      }).rules[0]?.conditions.map((condition) => condition.why)
    expect(why({ id: 'bob', scopes: ['ops'] }, { tags: ['abc'] }, 'carol')).toEqual([
      'the caller holds the scope ops',
      'the agent carol fits carol',
      'the tag abc fits a*',
    ])
    expect(why({ id: 'bob', scopes: ['*'] }, { tags: ['b', 'c'] }, 'dave')).toEqual([
      'the caller holds the scope *',
      'the agent dave does not fit carol',
      'of its tags b, c none fits a*',
    ])
    expect(why(bob, {})).toEqual([
      'the caller does not hold the scope admin or ops',
      'no agent made the call, and it does not fit carol',
      'no tag of the tool fits a*',
    ])
  })

  test('says that there are no rules, or that none matches', () => {
    expect(explainPolicy(new ToolPolicy(), { caller: bob, tool: write })).toEqual({
      decision: 'allow',
      possible: ['allow'],
      reason: 'There is no tool policy: every call is allowed.',
      rules: [],
    })
    expect(
      explainPolicy(new ToolPolicy([{ tools: 'x', decision: 'allow' }]), { caller: bob, tool: write }),
    ).toMatchObject({ decision: 'deny', reason: 'No rule of the tool policy allows it.' })
  })
})

describe('an approval', () => {
  const params = { path: '/etc/hosts', text: 'x' }
  const hash = argumentsHash(write, params)

  test('is asked for with the arguments in sight, and for nothing but them', () => {
    const { message, schema } = approvalQuestion(write, params)
    expect(message).toBe(
      'The tool "files.write" needs an approval to run with these arguments: {"path":"/etc/hosts","text":"x"}. ' +
        `Reply "approve ${hash.slice(0, 8)}" or "deny".`,
    )
    expect(schema).toMatchObject({
      type: 'object',
      properties: { approve: { type: 'boolean' }, arguments_hash: { const: hash, type: 'string' } },
      required: ['approve'],
    })
    const validator = compile(schema, { foreign: true })
    expect(validator.validate({ approve: false })).toEqual([])
    expect(validator.validate({})).not.toEqual([])
    expect(validator.validate({ approve: true, arguments_hash: hash })).toEqual([])
    expect(validator.validate({ approve: true, arguments_hash: argumentsHash(write, {}) })).not.toEqual([])
    expect(validator.validate({ approve: true })).not.toEqual([])
  })

  test('is asked for with the reason of the rule, where it has one', () => {
    const messageOf = (reason: string) => approvalQuestion(write, params, reason).message
    expect(messageOf('It is gone for good.')).toMatch(/"}\. Reason: It is gone for good\. Reply "approve /)
    expect(messageOf('it costs money')).toContain(' Reason: it costs money. Reply ')
  })

  test.each<[text: (hash: string) => string, approve: boolean | undefined]>([
    [(hash) => `approve ${hash.slice(0, 8)}`, true],
    [(hash) => `YES  ${hash.slice(0, 12).toUpperCase()}`, true],
    [(hash) => `approve ${hash}`, true],
    [() => 'deny', false],
    [() => 'No', false],
    [() => 'decline', false],
    [() => 'yes', undefined],
    [() => 'approve', undefined],
    [(hash) => `approve ${hash.slice(0, 7)}`, undefined],
    [(hash) => `approve ${hash}0`, undefined],
    [(hash) => `approve ${hash.slice(1, 9)}`, undefined],
    [(hash) => `do not approve ${hash.slice(0, 8)}`, undefined],
    [(hash) => `approve ${hash.slice(0, 8)} please`, undefined],
    [() => 'deny 1', undefined],
  ])('in words: %s is read as %s', (text, approve) => {
    const { schema, read } = approvalQuestion(write, params)
    const meant = read(text(hash))
    expect(isObject(meant) ? meant['approve'] : meant).toBe(approve)
    expect(meant === undefined || compile(schema).fits(meant)).toBe(true)
    // A node between the one that asks and the one that answers reads the same out of the schema.
    expect(approvalReader(schema)?.(text(hash))).toEqual(meant)
  })

  test('is what a schema with a hash asks for; other questions have no words of their own', () => {
    const approve = { type: 'boolean' }
    for (const properties of [
      { approve },
      { approve, arguments_hash: { const: 'x' } },
      { approve: { type: 'string' }, arguments_hash: { const: hash } },
      { approve, arguments_hash: { const: hash }, amount: { type: 'number' } },
    ])
      expect(approvalReader({ type: 'object', properties })).toBeUndefined()
    expect(approvalReader({ type: 'string' })).toBeUndefined()
  })

  test('is bound to the tool and to each of the arguments, not to their order', () => {
    expect(hash).toMatch(/^[0-9a-f]{64}$/)
    expect(argumentsHash(write, { text: 'x', path: '/etc/hosts' })).toBe(hash)
    const others = [
      argumentsHash(tool('files.write2'), params),
      argumentsHash(write, { ...params, text: 'y' }),
      argumentsHash(write, { ...params, force: true }),
      argumentsHash(write, { path: params.path }),
      argumentsHash(write, { path: params.path, text: null }),
    ]
    expect(new Set([hash, ...others]).size).toBe(6)
    expect(argumentsHash(write, undefined)).toBe(argumentsHash(write, {}))
  })

  test('counts for these arguments only', () => {
    expect(() => checkApproval({ approve: true, arguments_hash: hash }, write, params)).not.toThrow()
    const other = thrownBy(() =>
      checkApproval({ approve: true, arguments_hash: hash }, write, { ...params, text: 'y' }),
    )
    expect(other).toMatchObject({
      code: 'forbidden',
      message:
        'The approval is for other arguments, or for another tool than "files.write"; it does not count for this call.',
    })
    expect(thrownBy(() => checkApproval({ approve: true, arguments_hash: hash }, tool('x'), params)).code).toBe(
      'forbidden',
    )
  })

  test('is a clear yes, and nothing else', () => {
    expect(thrownBy(() => checkApproval({ approve: false, arguments_hash: hash }, write, params))).toMatchObject({
      code: 'forbidden',
      message: 'The call of the tool "files.write" was not approved.',
    })
    for (const answer of [
      'yes',
      true,
      null,
      [],
      {},
      { approve: true },
      { approve: 'true', arguments_hash: hash },
      { arguments_hash: hash },
    ]) {
      expect(thrownBy(() => checkApproval(answer, write, params))).toMatchObject({
        code: 'forbidden',
        message:
          'The call of the tool "files.write" was not approved: an approval is { approve: true, arguments_hash }.',
      })
    }
  })

  test('does not show what a person cannot see, and says what it leaves out', () => {
    const { message } = approvalQuestion(tool('a\u202Eb'), { a: 'x\u200B\u001B[2Jy\u{E0041}' })
    expect(message).toContain(
      'The tool "ab" needs an approval to run with these arguments: {"a":"x\\u001b[2Jy"}. Reply',
    )
    const long = approvalQuestion(write, { a: 'z'.repeat(10_000) }).message
    expect(long.length).toBeLessThan(2_200)
    expect(long).toMatch(/z… \(8008 more characters are not shown\)\. Reply /)
  })
})
