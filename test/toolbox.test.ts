import { defineTool, LocalToolRegistry, Toolbox, ToolManager, type Tool, type ToolKind, type ToolTraits } from 'convoke'
import { describe, expect, test } from 'vitest'

function tool(name: string, traits: ToolTraits = {}, kind: ToolKind = 'local'): Tool {
  const input = { type: 'object' } as const
  return { ...defineTool({ name: 'x', description: `Does ${name}.`, input, traits, run: () => name }), name, kind }
}

const names = (tools: readonly { readonly name: string }[]): string[] => tools.map(({ name }) => name)

/** A log that keeps its warnings and what it is told beside. */
function keptLog(): { warnings: string[]; infos: string[]; log: Record<'debug' | 'info' | 'warn' | 'error', never> } {
  const warnings: string[] = []
  const infos: string[] = []
  const to = (lines: string[]) => (details: object | string, message?: string) => {
    lines.push(message ?? JSON.stringify(details))
  }
  return { warnings, infos, log: { debug() {}, info: to(infos), warn: to(warnings), error() {} } as never }
}

describe('which tools a model has', () => {
  const all = [
    tool('plain'),
    tool('other'),
    tool('research', { exclusive: true }),
    tool('writer', { exclusive: true }),
    tool('todo', { capability: true }),
    tool('off', { enabled: false }),
    tool('off_capability', { enabled: () => false, capability: true }),
    tool('on', { enabled: () => true }),
  ]
  const selected = (toolChoices: string[], disabledTools: string[] = []): string[] =>
    names(new Toolbox(all, { toolChoices, disabledTools }).getTools())

  test.each<[string, string[], string[], string[]]>([
    ['all that are enabled, but for exclusive ones', [], [], ['plain', 'other', 'todo', 'on']],
    ['not those that the run disabled', [], ['other', 'todo'], ['plain', 'on']],
    ['only the chosen ones, and capability tools', ['other'], [], ['other', 'todo']],
    ['not a chosen one that is off', ['off', 'plain'], [], ['plain', 'todo']],
    ['not a chosen one that the run disabled', ['other', 'plain'], ['other'], ['plain', 'todo']],
    ['an exclusive one alone that was chosen', ['plain', 'research'], [], ['research', 'todo']],
    ['the first of several exclusive ones', ['writer', 'research'], [], ['research', 'todo']],
    ['not an exclusive one that the run disabled', ['research', 'plain'], ['research'], ['plain', 'todo']],
    ['nothing else where what was chosen is unknown', ['gone'], [], ['todo']],
  ])('%s', (_, choices, disabled, expected) => {
    expect(selected(choices, disabled)).toEqual(expected)
  })

  test('in the order internal, MCP servers’, sub-agents’, built in', () => {
    const box = new Toolbox([
      tool('read_file', { category: 'builtin' }),
      tool('bob.b', {}, 'a2a'),
      tool('srv.a', {}, 'mcp'),
      tool('mine', {}, 'custom'),
      tool('bob.a', {}, 'a2a'),
      tool('local'),
    ])
    expect(names(box.getTools())).toEqual(['mine', 'local', 'srv.a', 'bob.b', 'bob.a', 'read_file'])
  })

  test('an internal tool gives way to another one of its name', () => {
    const { log, warnings } = keptLog()
    const box = new Toolbox([tool('x'), tool('x', {}, 'mcp'), tool('y', {}, 'a2a'), tool('y')], { log })
    expect(box.getTools().map(({ name, kind }) => `${kind} ${name}`)).toEqual(['mcp x', 'a2a y'])
    expect(warnings).toEqual([
      'There are two tools "x"; the MCP one is used.',
      `There are two tools "y"; the sub-agent's one is used.`,
    ])
  })

  test('a tool that cannot say whether it is enabled is not, and the others are', () => {
    const { log, warnings } = keptLog()
    const enabled = (): boolean => {
      throw new Error('no licence file')
    }
    expect(names(new Toolbox([tool('a', { enabled }), tool('b')], { log }).getTools())).toEqual(['b'])
    expect(warnings).toEqual(['The tool "a" is not used: its `enabled` threw.'])
  })

  test('a chosen tool that is not there is told of', () => {
    const { log, warnings } = keptLog()
    expect(new Toolbox([tool('a')], { toolChoices: ['a', 'b'], log }).getTools()).toHaveLength(1)
    expect(warnings).toEqual(['Chosen, but not among the tools of this run: "b".'])
  })
})

describe('forced tools', () => {
  test('are those that the user chose, in the first iteration only', () => {
    const box = new Toolbox([tool('a'), tool('b'), tool('c', { capability: true })], { toolChoices: ['b'] })
    expect(box.getForcedTools()).toEqual([{ type: 'function', function: { name: 'b' } }])
    box.nextIteration()
    expect(box.iteration).toBe(1)
    expect(box.getForcedTools()).toEqual([])
    // The model still has no others.
    expect(names(box.getTools())).toEqual(['b', 'c'])
  })

  test('are named as the model knows them', () => {
    const table = { nameOf: (handle: string) => handle.replace('.', '__'), handleOf: () => undefined }
    const box = new Toolbox([tool('bob.a', {}, 'a2a')], { toolChoices: ['bob.a'], names: table })
    expect(box.getForcedTools()).toEqual([{ type: 'function', function: { name: 'bob__a' } }])
    expect(box.getToolDefinitions()[0]?.function.name).toBe('bob__a')
    expect(box.getToolPrompts().system).toContain('## bob__a')
  })

  test('can be added, for the iteration in which they are', () => {
    const box = new Toolbox([tool('a'), tool('b')])
    box.nextIteration()
    box.addForcedTool('a')
    box.addForcedTool('a')
    expect(box.getForcedTools()).toEqual([{ type: 'function', function: { name: 'a' } }])
    expect(names(box.getTools())).toEqual(['a', 'b'])
    box.nextIteration()
    expect(box.getForcedTools()).toEqual([])
  })

  test('that are added beside chosen ones are offered too', () => {
    const box = new Toolbox([tool('a'), tool('b')], { toolChoices: ['a'] })
    box.addForcedTool('b')
    expect(names(box.getTools())).toEqual(['a', 'b'])
    expect(box.getForcedTools()).toHaveLength(2)
  })

  test('must be known, enabled and allowed beside the others', () => {
    const tools = [tool('search'), tool('off', { enabled: false }), tool('alone', { exclusive: true })]
    const box = new Toolbox(tools, { disabledTools: ['search'], toolChoices: ['alone'] })
    expect(() => box.addForcedTool('serch')).toThrow(
      'There is no tool "serch" in this run to force. Did you mean "search"?',
    )
    expect(() => box.addForcedTool('search')).toThrow('The tool "search" is disabled in this run and cannot be forced.')
    expect(() => box.addForcedTool('off')).toThrow(/disabled/)
    const beside = new Toolbox([tool('a'), tool('alone', { exclusive: true })], { toolChoices: ['alone'] })
    expect(() => beside.addForcedTool('a')).toThrow('The tool "a" cannot be forced beside an exclusive one.')
    expect(names(beside.getForcedTools().map((each) => each.function))).toEqual(['alone'])
  })

  test('that are exclusive stay alone', () => {
    const box = new Toolbox([tool('a'), tool('alone', { exclusive: true })])
    box.addForcedTool('alone')
    expect(names(box.getTools())).toEqual(['alone'])
  })
})

describe('the tools of a run', () => {
  test('can be looked at without being changed', () => {
    const box = new Toolbox([tool('a')])
    box.getTools().push(tool('b'))
    expect(names(box.getTools())).toEqual(['a'])
    expect(box.getToolByName('a')?.description).toBe('Does a.')
    expect(box.getToolByName('b')).toBeUndefined()
  })

  test('can become more', () => {
    const box = new Toolbox([tool('read', { category: 'builtin' })])
    box.addTool(tool('a'))
    box.addTool(tool('off', { enabled: false }))
    expect(names(box.getTools())).toEqual(['a', 'read'])
    expect(() => box.addTool(tool('a'))).toThrow('There is a tool "a" in this run already; exclude it first.')
  })

  test('can become fewer, in every list', async () => {
    const registry = new LocalToolRegistry()
    for (const name of ['a', 'b']) registry.register(tool(name))
    const space = new ToolManager({ registry })
    const box = Toolbox.fromRunContext({ space, toolChoices: ['a', 'b'] })
    expect(box.excludeTool('a')).toBe(true)
    expect(box.excludeTool('a')).toBe(false)
    expect(box.excludeTool('never')).toBe(false)
    expect(names(box.getTools())).toEqual(['b'])
    expect(box.getForcedTools().map((each) => each.function.name)).toEqual(['b'])
    expect(box.getToolDefinitions().map((each) => each.function.name)).toEqual(['b'])
    expect(() => box.addForcedTool('a')).toThrow(/There is no tool "a"/)
    const { answers } = await box.executeBatch(space, [{ id: '1', name: 'a', arguments: {} }])
    expect(answers[0]).toMatchObject({ errorType: 'not_found', executed: false })
    // The last of the chosen gone does not mean that everything was chosen.
    box.excludeTool('b')
    box.addTool(tool('c'))
    expect(box.getTools()).toEqual([])
  })

  test('are defined and described for the model', () => {
    const box = new Toolbox([tool('a'), tool('b', { enabled: false })])
    expect(box.getToolDefinitions()).toEqual([
      {
        type: 'function',
        function: { name: 'a', description: 'Does a.', parameters: { type: 'object', properties: {} } },
      },
    ])
    expect(box.getToolPrompts().system).toBe('# Tools\n\n## a\nDoes a.\nNo params.')
    expect(box.getToolDefinitions((tools) => names(tools).join())).toBe('a')
  })

  test('are named in the log, not all of thousands', () => {
    const { log, infos } = keptLog()
    new Toolbox([tool('a'), tool('b', { enabled: false })], { log }).logLoadedTools()
    expect(infos).toEqual(['Loaded tools: a, b', 'Tools of the model: a'])
    new Toolbox(
      Array.from({ length: 1000 }, (_, n) => tool(`t${n}`)),
      { log },
    ).logLoadedTools()
    expect(infos[2]).toMatch(/t49 and 950 more$/)
  })
})

test('the checks of all rounds of a run come together, each once', async () => {
  const registry = new LocalToolRegistry()
  registry.register(tool('a', { evaluationChecks: ['hallucination'] }))
  registry.register(tool('b', { evaluationChecks: ['tone', 'hallucination'] }))
  registry.register(tool('c', { evaluationChecks: ['never'] }))
  const space = new ToolManager({ registry })
  const box = Toolbox.fromRunContext({ space, toolChoices: ['a', 'b'] })
  expect(box.getEvaluationCheckList()).toEqual([])
  const first = await box.executeBatch(space, [{ id: '1', name: 'a', arguments: {} }])
  expect(first.answers[0]).toMatchObject({
    success: true,
    content: 'a',
    debug: { is_forced: true, is_exclusive: false },
  })
  box.nextIteration()
  const second = await box.executeBatch(space, [
    { id: '1', name: 'b', arguments: {} },
    { id: '2', name: 'c', arguments: {} },
  ])
  expect(second.answers.map(({ success, debug }) => [success, debug.is_forced])).toEqual([
    [true, false],
    [false, false],
  ])
  expect(box.getEvaluationCheckList()).toEqual(['hallucination', 'tone'])
})

test.each<[keyof ToolTraits, unknown, string]>([
  ['exclusive', 'yes', 'The trait `exclusive` of the tool "x" must be true or false, got "yes".'],
  ['capability', 1, 'The trait `capability` of the tool "x" must be true or false, got 1.'],
  ['takeControl', null, 'The trait `takeControl` of the tool "x" must be true or false, got null.'],
  ['enabled', 'no', 'The trait `enabled` of the tool "x" must be true, false or a function that says so, got "no".'],
  ['evaluationChecks', 'tone', 'The trait `evaluationChecks` of the tool "x" must be an array of texts, got "tone".'],
  [
    'evaluationChecks',
    [''],
    'The trait `evaluationChecks` of the tool "x" must be an array of texts, got an array of 1.',
  ],
])('a wrong trait %s is refused: %j', (key, value, message) => {
  expect(() => tool('t', { [key]: value })).toThrow(message)
})
