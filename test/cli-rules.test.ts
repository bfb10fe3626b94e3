/** `convoke policy`, `convoke pins`, and approvals at the command line. */
import { defineTool } from 'convoke'
import { mkdir, readFile, writeFile } from 'node:fs/promises'
import { dirname, join } from 'node:path'
import { describe, expect, test } from 'vitest'
import { approvalQuestion, argumentsHash, checkApproval } from '../dist/tools/approval.js'
import { Pins } from '../dist/tools/pins.js'
import type { Tool } from '../dist/tools/tool.js'
import { convoke } from './support/command.ts'
import { startNode, temporaryFolder } from './support/lifetime.ts'

/** The path of a configuration, and of modules beside it. */
async function configFile(options: Record<string, unknown>, modules: Record<string, string> = {}): Promise<string> {
  const folder = await temporaryFolder()
  for (const [name, text] of Object.entries(modules)) await writeFile(join(folder, name), text)
  const file = join(folder, 'convoke.json')
  await writeFile(file, JSON.stringify({ agent: { id: 'alice' }, ...options }))
  return file
}

const tools = `
import { defineTool } from ${JSON.stringify(new URL('../dist/index.js', import.meta.url).href)}
export const read = defineTool({
  name: 'read_file', description: 'Reads.', input: { type: 'object' },
  traits: { readOnly: true, category: 'disk' }, run: () => null,
})
export const write = defineTool({ name: 'write_file', description: 'Writes.', input: { type: 'object' }, run: () => null })
setInterval(() => {}, 1000)
`

describe('convoke policy why', () => {
  const sha256 = 'ab'.repeat(32)
  const policy = {
    tools: [{ module: './tools.js' }],
    peers: { bob: { url: 'http://127.0.0.1:9' } },
    aliases: { say: 'bob.shout', write_file: 'bob.write' },
    server: {
      auth: {
        tokens: [
          { id: 'carol', sha256, scopes: ['tool:*_file', 'tool:bob.*'] },
          { id: 'dave', sha256: 'cd'.repeat(32) },
        ],
      },
    },
    toolPolicy: [
      { traits: { readOnly: true }, decision: 'allow' },
      { tools: 'write_*', arguments: { required: ['path'] }, decision: 'ask' },
      { callers: 'acme/*', tools: 'bob.*', decision: 'allow' },
      { agents: 'alice', decision: 'allow' },
      { callers: 'carol', decision: 'deny', reason: 'Not for carol.' },
    ],
  }
  const why = async (...args: string[]) => {
    const file = await configFile(policy, { 'tools.js': tools })
    return await convoke(['policy', 'why', ...args, '-c', file])
  }

  test('explains each rule in turn, and the decision', async () => {
    const { code, stdout, stderr } = await why('carol', 'write_file', '{"text":"x"}')
    expect({ code, stderr }).toEqual({ code: 1, stderr: '' })
    expect(stdout).toBe(`carol calls write_file with {"text":"x"}

toolPolicy[0] (allow) does not match: readOnly of the tool is false, not true.
toolPolicy[1] (ask) does not match: the arguments do not fit: /path: the required property "path" is missing.
toolPolicy[2] (allow) does not match: the caller carol does not fit acme/*, and the tool write_file does not fit bob.*.
toolPolicy[3] (allow) does not match: no agent made the call, and it does not fit alice.
toolPolicy[4] (deny) matches: the caller carol fits carol.

Denied. Not for carol.
`)
  })

  test.each([
    [0, 'Allowed.', ['carol', 'read_file']],
    [0, 'Asked: the caller must approve exactly these arguments.', ['carol', 'write_file', '{"path":"a"}']],
    [1, 'asked for an approval, or denied. It depends on whether toolPolicy[1] matches.', ['carol', 'write_file']],
    [0, 'Allowed.', ['acme/eve', 'bob.echo', '--scopes', 'tool:bob.*']],
    [
      1,
      'Denied before any rule is asked: the scopes of acme/eve (message) do not hold',
      ['acme/eve', 'bob.echo', '--scopes', 'message'],
    ],
    [1, '\n\nDenied. The scopes do not hold it.\n', ['acme/eve', 'bob.echo', '--scopes', 'message']],
    // An alias, which hides no tool of one's own.
    [0, 'acme/eve calls bob.shout with any arguments', ['acme/eve', 'say', '--scopes', 'tool:say']],
    [0, 'Allowed.', ['dave', 'write_file', '{}', '--agent', 'alice']],
    [1, 'Denied. No rule of the tool policy allows it.', ['dave', 'write_file', '{}']],
    // The node's own calls are made by its agent.
    [0, 'Allowed.', ['local', 'write_file', '{}']],
  ])('ends with code %i: %s', async (exitCode, words, args) => {
    const { code, stdout, stderr } = await why(...args)
    expect(stdout + stderr).toContain(words)
    expect(code).toBe(exitCode)
  })

  test('says what is not known of the tools of others, and of callers', async () => {
    const { code, stdout, stderr } = await why('eve', 'nobody.echo')
    expect(stderr).toBe(
      'note: The configuration does not say which scopes eve has; say so with --scopes.\nnote: The configuration has no peer or MCP server nobody. There are: bob.\n',
    )
    expect(stdout).toContain('toolPolicy[0] (allow) may match: whether readOnly is true is not known')
    expect(stdout).toContain('the scopes of eve (none) do not hold tool:nobody.echo')
    expect(code).toBe(1)
  })

  test('prints JSON', async () => {
    const { code, stdout } = await why('carol', 'write_file', '{"path":"a"}', '-o', 'json')
    expect(code).toBe(0)
    expect(JSON.parse(stdout)).toMatchObject({
      caller: { id: 'carol', scopes: ['tool:*_file', 'tool:bob.*'] },
      tool: 'write_file',
      agent: null,
      params: { path: 'a' },
      decision: 'ask',
      possible: ['ask'],
      rule: 1,
      reason: 'The tool policy wants an approval for it (toolPolicy[1]).',
      scopesAllow: true,
      visible: true,
      rules: [
        { rule: 0, decision: 'allow', outcome: 'differs', conditions: [{ condition: 'traits', fits: false }] },
        { rule: 1, outcome: 'matches' },
        { rule: 2, outcome: 'unreached', conditions: [] },
        { rule: 3, outcome: 'unreached' },
        { rule: 4, outcome: 'unreached' },
      ],
    })
    const open = await why('dave', 'bob.echo', '-o', 'json')
    expect(open.code).toBe(1)
    expect(JSON.parse(open.stdout)).toMatchObject({
      decision: 'depends',
      possible: ['allow', 'deny'],
      rule: null,
      visible: null,
    })
  })

  test('refuses what it cannot explain', async () => {
    const noTool = await why('carol', 'write_fil')
    expect(noTool).toMatchObject({ code: 2, stdout: '' })
    expect(noTool.stderr).toContain(
      'There is no local tool write_fil. Did you mean write_file? Others are named SERVICE.NAME.',
    )
    const noObject = await why('carol', 'write_file', '[1]')
    expect(noObject).toMatchObject({ code: 2 })
    expect(noObject.stderr).toContain(`The arguments must be a JSON object such as '{"n":5}', got [1]`)
    expect((await why('acme/', 'write_file')).stderr).toContain('The caller must have an id.')
    expect(await why('carol')).toMatchObject({ code: 2 })
  })

  test('takes an alias for the tool behind it, in rules and as the name', async () => {
    const file = await configFile({
      peers: { bob: { url: 'http://127.0.0.1:9' } },
      aliases: { rev: 'bob.reverse' },
      toolPolicy: [{ tools: 'rev', decision: 'deny' }, { decision: 'allow' }],
    })
    for (const name of ['rev', 'bob.reverse']) {
      const { code, stdout } = await convoke(['policy', 'why', 'eve', name, '--scopes', '*', '-c', file])
      expect(code).toBe(1)
      expect(stdout).toContain('toolPolicy[0] (deny) matches: the tool bob.reverse fits rev.')
    }
  })

  test('knows the tools that come along, and those of others by their aliases', async () => {
    const sha256 = 'ab'.repeat(32)
    const file = await configFile({
      builtin: { tools: ['read_file'] },
      peers: { bob: { url: 'http://127.0.0.1:9' } },
      aliases: { research: 'bob.deep_research', cat: 'read_file' },
      publish: ['bob.*'],
      server: { auth: { tokens: [{ id: 'carol', sha256, scopes: ['tool:research'] }] } },
      toolPolicy: [
        { traits: { readOnly: true }, tools: '*_file', decision: 'allow' },
        { tools: 'bob.deep_*', decision: 'ask' },
      ],
    })
    const asked = async (...args: string[]) => await convoke(['policy', 'why', ...args, '-c', file])
    const own = await asked('local', 'read_file')
    expect(own.stdout).toContain('Allowed. The tool policy allows it (toolPolicy[0]).')
    expect((await asked('local', 'cat')).stdout).toBe(own.stdout)
    const ofBob = await asked('carol', 'research')
    expect(ofBob.stdout).toMatch(/^carol calls bob\.deep_research with any arguments\n/)
    expect(ofBob.stdout).toContain('Asked: the caller must approve')
    // Callers from outside know it by its alias, and their scopes speak of that.
    expect(ofBob).toMatchObject({ code: 0, stderr: '' })
  })

  test('says that there is no policy', async () => {
    const file = await configFile({ peers: { bob: { url: 'http://127.0.0.1:9' } } })
    const { code, stdout } = await convoke(['policy', 'why', 'eve', 'bob.echo', '-c', file])
    expect({ code, stdout }).toEqual({
      code: 0,
      stdout: 'eve calls bob.echo with any arguments\n\nAllowed. There is no tool policy: every call is allowed.\n',
    })
  })
})

describe('convoke pins', () => {
  function foreign(name: string, fields: Partial<Tool> = {}): Tool {
    return {
      name,
      description: 'Says it.',
      input: { type: 'object', properties: { text: { type: 'string' } } },
      traits: {},
      kind: 'mcp',
      // oxlint-disable-next-line require-yield
      async *run() {
        return null
      },
      ...fields,
    }
  }

  /** A configuration whose node has seen three tools, two of which have changed. */
  async function seen(): Promise<{ config: string; file: string }> {
    const config = await configFile({})
    const file = join(dirname(config), 'data', 'pins.json')
    const pins = new Pins({ file })
    for (const name of ['bob.count', 'bob.echo', 'files.read']) pins.check(foreign(name))
    const evil = { description: 'Says it.\nAnd \u001B[31mmore\u200B.' }
    pins.check(foreign('bob.echo', { ...evil, input: { type: 'object' } }))
    pins.check(foreign('files.read', { traits: { readOnly: true } }))
    await pins.close()
    return { config, file }
  }

  test('list, diff and approve what has changed', async () => {
    const { config, file } = await seen()
    const list = await convoke(['pins', 'list', '-c', config])
    expect({ code: list.code, stderr: list.stderr }).toEqual({ code: 0, stderr: '' })
    expect(list.stdout.split('\n').map((line) => line.split(/ {2,}/).slice(0, 2))).toEqual([
      ['TOOL', 'STATE'],
      ['bob.count', 'pinned'],
      ['bob.echo', 'quarantined'],
      ['files.read', 'quarantined'],
      [''],
    ])

    const diff = await convoke(['pins', 'diff', 'bob.echo', 'bob.count', '-c', config])
    expect(diff.stdout.replaceAll(/[0-9a-f]{12}/g, 'HASH').replaceAll(/\d{4}-\d\d-\d\d \d\d:\d\d/g, 'DAY'))
      .toBe(`bob.echo: held back since DAY, HASH → HASH
  description
      Says it.
    + And \\u{1b}[31mmore\\u{200b}.
  /input/properties removed
    - {"text":{"type":"string"}}
  Take it: convoke pins approve bob.echo --hash HASH

bob.count: nothing has changed since it was pinned.
`)
    const all = await convoke(['pins', 'diff', '-c', config])
    expect(all.stdout).toMatch(/^bob\.echo: held back[\s\S]*\nfiles\.read: held back/)

    const approve = await convoke(['pins', 'approve', 'bob.echo', 'bob.count', '-c', config])
    expect(approve.code).toBe(0)
    expect(approve.stdout).toMatch(/^Approved bob\.echo \([0-9a-f]{12}\)\.\nNothing is held back at bob\.count\.\n$/)
    const rest = await convoke(['pins', 'approve', '--all', '-c', config, '-o', 'json'])
    expect(JSON.parse(rest.stdout)).toEqual([{ handle: 'files.read', hash: expect.stringMatching(/^[0-9a-f]{64}$/) }])
    expect((await convoke(['pins', 'approve', '--all', '-c', config])).stdout).toBe('No tool is quarantined.\n')
    expect((await convoke(['pins', 'diff', '-c', config])).stdout).toBe('No tool is quarantined.\n')
    expect((await convoke(['pins', 'diff', 'files.read', '-c', config])).stdout).toMatch(/^files\.read: accepted /)
    expect(new Pins({ file }).list().map(({ state }) => state)).toEqual(['pinned', 'pinned', 'pinned'])
  })

  test('print JSON', async () => {
    const { config } = await seen()
    const list = await convoke(['pins', 'list', '-c', config, '-o', 'json'])
    expect(JSON.parse(list.stdout)).toMatchObject([
      { handle: 'bob.count', state: 'pinned' },
      { handle: 'bob.echo', state: 'quarantined', pending: { hash: expect.any(String), seenAt: expect.any(Number) } },
      { handle: 'files.read', state: 'quarantined' },
    ])
    const one = await convoke(['pins', 'list', 'files.read', '-c', config, '-o', 'json'])
    expect(JSON.parse(one.stdout)).toMatchObject([{ handle: 'files.read' }])
    const diff = await convoke(['pins', 'diff', 'files.read', 'bob.count', '-c', config, '-o', 'json'])
    expect(JSON.parse(diff.stdout)).toMatchObject([
      {
        handle: 'files.read',
        state: 'pending',
        description: [],
        places: [
          { type: 'changed', path: '/annotations/readOnly', before: false, after: true },
          { type: 'changed', path: '/annotations/idempotent', before: false, after: true },
        ],
      },
    ])
  })

  test.each(['list', 'diff', 'approve'])('%s names the candidates of a handle that is not known', async (command) => {
    const { config } = await seen()
    const { code, stdout, stderr } = await convoke(['pins', command, 'bob.eco', '-c', config])
    expect({ code, stdout, stderr }).toEqual({
      code: 1,
      stdout: '',
      stderr: 'convoke: No tool "bob.eco" is pinned. Did you mean "bob.echo"?\n',
    })
  })

  test('approve takes what was looked at, and nothing that came later', async () => {
    const { config, file } = await seen()
    const { stdout } = await convoke(['pins', 'diff', 'bob.echo', '-c', config])
    const hash = /--hash (\w+)/.exec(stdout)?.[1] ?? ''
    const pins = new Pins({ file })
    pins.check(foreign('bob.echo', { description: 'Says what nobody has seen.' }))
    await pins.close()
    const late = await convoke(['pins', 'approve', 'bob.echo', '--hash', hash, '-c', config])
    expect(late).toMatchObject({ code: 1, stdout: '' })
    expect(late.stderr).toMatch(
      /^convoke: The tool "bob\.echo" says something else by now \(\w{12}, not "\w{12}"\)\. Look at it again: convoke pins diff bob\.echo\n$/,
    )
    const now = await convoke(['pins', 'diff', 'bob.echo', '-c', config])
    const args = ['bob.echo', '--hash', /--hash (\w+)/.exec(now.stdout)?.[1] ?? '', '-c', config]
    expect((await convoke(['pins', 'approve', ...args])).stdout).toMatch(/^Approved bob\.echo/)
    for (const wrong of [
      ['--all', '--hash', hash],
      ['bob.echo', '--hash', 'xyz'],
      ['bob.echo', 'bob.count', '--hash', hash],
    ]) {
      const { code, stderr } = await convoke(['pins', 'approve', ...wrong, '-c', config])
      expect(code).toBe(2)
      expect(stderr).toContain('With --hash goes one tool')
    }
  })

  test('approve wants to know what', async () => {
    const { config } = await seen()
    for (const args of [[], ['--all', 'bob.echo']]) {
      const { code, stderr } = await convoke(['pins', 'approve', ...args, '-c', config])
      expect({ code, stderr }).toEqual({
        code: 2,
        stderr: 'convoke: Name the tools to approve, or say --all for every quarantined one.\n',
      })
    }
  })

  test('say that nothing is pinned, that the pins are in memory, or that their file is broken', async () => {
    const fresh = await configFile({})
    expect(await convoke(['pins', 'list', '-c', fresh])).toMatchObject({ code: 0, stdout: 'Nothing is pinned yet.\n' })
    const inMemory = await configFile({ store: { url: ':memory:' } })
    const { code, stderr } = await convoke(['pins', 'list', '-c', inMemory])
    expect(code).toBe(2)
    expect(stderr).toBe(
      `convoke: The pins of ${inMemory} are in the memory of the node. Give them a file: pins.file.\n`,
    )
    const broken = await configFile({ pins: { file: './p/pins.json' } })
    const file = join(dirname(broken), 'p', 'pins.json')
    await mkdir(dirname(file))
    await writeFile(file, '{')
    const failed = await convoke(['pins', 'approve', '--all', '-c', broken])
    expect(failed.code).toBe(2)
    expect(failed.stderr).toContain(`${file} is no file of pins: it is not JSON.`)
    expect(await readFile(file, 'utf8')).toBe('{')
  })
})

describe('an approval at the command line', () => {
  const remove = defineTool({
    name: 'remove',
    description: 'Removes a file once it is approved.',
    input: { type: 'object', properties: { path: { type: 'string' } }, required: ['path'] },
    async run(params, context) {
      const self = { name: 'remove' }
      checkApproval(await context.ask(approvalQuestion(self, params)), self, params)
      return { removed: params.path }
    },
  })

  const digits = argumentsHash({ name: 'remove' }, { path: 'a.txt' }).slice(0, 8)

  test.each(['yes', 'approve', '{"approve":true}', `approve ${digits}`])('is given with %s', async (answer) => {
    const { url } = await startNode({ tools: [remove] })
    const { code, stdout, stderr } = await convoke([
      'call',
      url,
      'remove',
      '{"path":"a.txt"}',
      '--answer',
      answer,
      '-o',
      'json',
    ])
    expect({ code, stderr }).toEqual({ code: 0, stderr: '' })
    expect(JSON.parse(stdout)).toMatchObject({ result: { removed: 'a.txt' } })
  })

  test.each(['no', 'deny', '{"approve":false}'])('is refused with %s', async (answer) => {
    const { url } = await startNode({ tools: [remove] })
    const { code, stdout, stderr } = await convoke(['call', url, 'remove', '{"path":"a.txt"}', '--answer', answer])
    expect({ code, stdout }).toEqual({ code: 1, stdout: '' })
    expect(stderr).toContain('The call of the tool "remove" was not approved.')
  })

  test('is bound to the arguments, whatever the answer says', async () => {
    const { url } = await startNode({ tools: [remove] })
    const forged = JSON.stringify({ approve: true, arguments_hash: '0'.repeat(64) })
    const { code, stdout, stderr } = await convoke(['call', url, 'remove', '{"path":"a.txt"}', '--answer', forged])
    expect({ code: code === 0, stdout }).toEqual({ code: false, stdout: '' })
    // The node asks once more, and nobody answers.
    expect(stderr).toMatch(/nobody can answer here: .* The answer did not fit: \/arguments_hash/)
  })
})
