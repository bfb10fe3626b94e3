// Configuration files of older shapes: they load, each older key with one warning that shows today's spelling.
import { writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { expect, test } from 'vitest'
import { parseDocument } from 'yaml'
import { ConvokeError } from '../dist/base/errors.js'
import { loadConfig } from '../dist/config.js'
import { rewriteOlderShapes } from '../dist/older-config/shapes.js'
import { defineTool } from '../dist/tools/define.js'
import { startNode, temporaryFolder } from './support/lifetime.ts'

async function load(text: string, environment: Record<string, string> = {}) {
  const folder = await temporaryFolder()
  const file = join(folder, 'convoke.yaml')
  await writeFile(file, text)
  const within = (line: string): string => line.replaceAll(`${folder}/`, '')
  try {
    const { options, warnings } = await loadConfig(file, environment)
    return { options, warnings: warnings.map(within), problems: [] }
  } catch (error) {
    if (!(error instanceof ConvokeError)) throw error
    return { options: undefined, warnings: [], problems: within(error.message).split('\n') }
  }
}

/** For keys whose values other parts of the schema judge. */
function rewrite(text: string) {
  const document = parseDocument(text, { stringKeys: true })
  const lines: string[] = []
  const note = (at: number, sentence: string): void => void lines.push(`${at}: ${sentence}`)
  const changed = rewriteOlderShapes(document, { warn: note, add: note })
  return { changed, value: document.toJS() as unknown, lines }
}

const olderTools = 'write tools: [{ module: ./tools.js, export: NAME, name: NAME }].'
const olderPeers = 'write peers: { ID: { url: URL, auth: { bearer: TOKEN }, timeoutMs: 30000 } }.'

test('a whole file of the first shape loads, with one warning for each older key', async () => {
  const { options, warnings } = await load(
    `
config_version: 1
agent_id: alice
agent_name: Alice
listen: 127.0.0.1:0
local_functions:
  - { module: ./a.js, name: add }
  - { module_path: ./b.js, function: sub, name: minus }
  - { module: ./c.js, func: mul, enabled: true }
  - { module: ./d.js, func: div, enabled: false }
local_tools: { echo: { module: ./e.js } }
a2a_agents:
  - { id: bob, url: "http://127.0.0.1:4121", token: "\${env:BOB}", timeout: 2.5 }
  - { id: 7, name: Carol, agent_url: "http://127.0.0.1:4122", token: "" }
  - { id: dave, url: "http://127.0.0.1:4123", enabled: false }
remote_agents: { eve: "http://127.0.0.1:4124", mia: { url: "http://127.0.0.1:4125", api_key: "\${env:BOB}" } }
discovery: { auto: true, intervalMs: 0 }
features: { bidir-delegate: false }
`,
    { BOB: 'secret' },
  )
  expect(options).toMatchObject({
    agent: { id: 'alice', name: 'Alice' },
    server: { host: '127.0.0.1', port: 0 },
    tools: [
      { module: './a.js', name: 'add', export: 'add' },
      { module: './b.js', export: 'sub', name: 'minus' },
      { module: './c.js', export: 'mul' },
      { module: './e.js', name: 'echo', export: 'echo' },
    ],
    discovery: { startup: true, intervalMs: 0 },
    features: { delegate: false },
  })
  expect(options?.peers).toEqual({
    7: { url: 'http://127.0.0.1:4122' },
    bob: { url: 'http://127.0.0.1:4121', auth: { bearer: 'secret' }, timeoutMs: 2500 },
    eve: { url: 'http://127.0.0.1:4124' },
    mia: { url: 'http://127.0.0.1:4125', auth: { apiKey: 'secret' } },
  })
  expect(warnings).toEqual([
    'convoke.yaml:2:1: config_version is not needed any more: leave it out.',
    'convoke.yaml:17:14: discovery.auto is an older spelling; write discovery: { startup: true }.',
    'convoke.yaml:18:13: features.bidir-delegate is an older spelling; write features: { delegate: false }.',
    'convoke.yaml:3:1: agent_id is an older spelling; write agent: { id: ID }.',
    'convoke.yaml:4:1: agent_name is an older spelling; write agent: { name: NAME }.',
    'convoke.yaml:5:1: listen is an older spelling; write server: { host: HOST, port: PORT }.',
    `convoke.yaml:6:1: local_functions is an older spelling; ${olderTools}`,
    `convoke.yaml:11:1: local_tools is an older spelling; ${olderTools}`,
    `convoke.yaml:12:1: a2a_agents is an older spelling; ${olderPeers}`,
    `convoke.yaml:16:1: remote_agents is an older spelling; ${olderPeers}`,
  ])
})

test('today\u2019s shape loads without a word, and is not touched', async () => {
  const text = `
agent: { id: alice }
tools: [{ module: ./a.js, export: a, name: b }]
peers: { bob: { url: "http://127.0.0.1:4121" } }
discovery: { startup: true }
features: { delegate: true }
`
  expect(await load(text)).toMatchObject({ warnings: [], problems: [] })
  expect(rewrite(text)).toMatchObject({ changed: false, lines: [] })
})

test('where both are there they are merged, and today\u2019s wins', async () => {
  const good = await load(`
agent: { id: alice }
peers:
  bob: { url: "http://127.0.0.1:1" }
a2a_agents:
  - { id: bob, url: "http://127.0.0.1:2" }
  - { id: carol, url: "http://127.0.0.1:3" }
remote_agents: [{ id: carol, url: "http://127.0.0.1:4" }]
agent_id: other
agent_name: Alice
tools: [{ module: ./new.js, export: add, name: add }]
local_functions: [{ module: ./old.js, name: add }, { module: ./old.js, name: sub }]
discovery: { startup: false, auto_discover: true }
auto_discover: true
`)
  expect(good.problems).toEqual([])
  expect(good.options).toMatchObject({
    agent: { id: 'alice', name: 'Alice' },
    peers: { bob: { url: 'http://127.0.0.1:1' }, carol: { url: 'http://127.0.0.1:3' } },
    tools: [
      { module: './new.js', name: 'add' },
      { module: './old.js', name: 'sub', export: 'sub' },
    ],
    discovery: { startup: false },
  })
  const said = good.warnings.map((line) => line.replace(/ write .*?\.(?= |$)/, ' …'))
  expect(said).toEqual([
    'convoke.yaml:13:30: discovery.auto_discover is an older spelling; … discovery.startup is there too, and wins.',
    'convoke.yaml:5:1: a2a_agents is an older spelling; … peers is there too: both count. For bob what stands in peers wins.',
    'convoke.yaml:8:1: remote_agents is an older spelling; … peers is there too: both count. For carol what stands in peers wins.',
    'convoke.yaml:9:1: agent_id is an older spelling; … agent is there too: both count. For id what stands in agent wins.',
    'convoke.yaml:10:1: agent_name is an older spelling; … agent is there too: both count.',
    'convoke.yaml:12:1: local_functions is an older spelling; … tools is there too: both count. For add what stands in tools wins.',
    'convoke.yaml:14:1: auto_discover is an older spelling; … discovery is there too: both count. For startup what stands in discovery wins.',
  ])
})

test('older lists under today\u2019s keys are put into shape', async () => {
  const { options, warnings } = await load(`
agent: { id: alice }
tools:
  - { module_path: ./a.js, function: add }
  - { module: ./b.js, name: renamed }
peers: [{ id: bob, url: "http://127.0.0.1:4121", timeout: 30 }]
`)
  expect(options).toMatchObject({
    tools: [
      { module: './a.js', export: 'add' },
      { module: './b.js', name: 'renamed' },
    ],
    peers: { bob: { url: 'http://127.0.0.1:4121', timeoutMs: 30_000 } },
  })
  expect(options?.tools?.[1]).not.toHaveProperty('export')
  expect(warnings).toEqual([
    `convoke.yaml:3:1: tools has an older shape; ${olderTools}`,
    `convoke.yaml:6:1: peers has an older shape; ${olderPeers}`,
  ])
})

test('MCP servers, built-in tools and skills of older shapes become today\u2019s', () => {
  const { value, lines } = rewrite(`
mcp_servers:
  - { id: files, transport: stdio, command: npx, params: [-y, server, ./data] }
  - { id: memory, transport: stdio, params: { command: node, args: [m.js], env: { A: b } } }
  - { name: search, transport: streamable_http, url: "https://x/mcp", headers: { a: b } }
  - { id: listed, command: [npx, -y], args: [z] }
  - { id: off, enabled: false, command: x }
builtin_tools: [read_file, http_fetch]
skill_dirs: ./skills
`)
  expect(value).toEqual({
    mcpServers: {
      files: { transport: 'stdio', command: 'npx', args: ['-y', 'server', './data'] },
      memory: { transport: 'stdio', command: 'node', args: ['m.js'], env: { A: 'b' } },
      search: { transport: 'http', url: 'https://x/mcp', headers: { a: 'b' } },
      listed: { command: 'npx', args: ['-y', 'z'] },
    },
    builtin: { tools: ['read_file', 'http_fetch'] },
    skills: { dirs: ['./skills'] },
  })
  expect(lines).toEqual([
    expect.stringContaining(
      'mcp_servers is an older spelling; write mcpServers: { ID: { command: PROGRAM, args: [] } }',
    ),
    expect.stringContaining('builtin_tools is an older spelling; write builtin: { tools: [NAME] }.'),
    expect.stringContaining('skill_dirs is an older spelling; write skills: { dirs: [./skills] }.'),
  ])
  const map = rewrite(
    'mcp_servers: { a: { params: { command: x } } }\nmcpServers: { b: { command: y } }\nskills: [a, b]\n',
  )
  expect(map.value).toEqual({ mcpServers: { b: { command: 'y' }, a: { command: 'x' } }, skills: { dirs: ['a', 'b'] } })
  expect(map.lines).toHaveLength(2)
})

test('what is wrong in an older shape is told where it stands', async () => {
  const { problems } = await load(
    `agent_id: a b
config_version: 3
listen: nowhere
local_functions:
  - { module: "", name: add }
  - { name: sub }
  - just text
a2a_agents:
  - { url: "http://127.0.0.1:1" }
  - { id: bob, url: ftp://x, timeout: soon }
  - { id: bob, url: "http://127.0.0.1:2" }
  - { id: eve, url: "http://127.0.0.1:3", token: "\${env:NONE}", colour: red }
features: { bidir_delegate: maybe }
`,
  )
  expect(problems).toEqual([
    'convoke.yaml:1:11: agent.id must be 1 to 64 letters, digits, _ or -, but it is "a b".',
    "convoke.yaml:2:17: config_version is that of the file's shape and must be 1 or 2, but it is 3.",
    'convoke.yaml:3:9: listen must be HOST:PORT; write server: { host: HOST, port: PORT }.',
    'convoke.yaml:5:15: tools[0].module must be a path, but it is "".',
    'convoke.yaml:6:5: tools[1].module is missing: it must be a path.',
    'convoke.yaml:7:5: tools[2] must be a mapping with the key module, but it is "just text".',
    'convoke.yaml:9:5: Each item of a2a_agents must be a mapping with the key id.',
    'convoke.yaml:10:21: peers.bob.url must be an http or https URL, but it is "ftp://x".',
    'convoke.yaml:10:39: `timeout` is a number of seconds; write timeoutMs, in milliseconds.',
    'convoke.yaml:11:11: a2a_agents has "bob" twice; keep one.',
    'convoke.yaml:12:50: peers.eve.auth.bearer needs the environment variable NONE, which is not set.',
    'convoke.yaml:12:65: peers.eve.colour is an unknown key. Allowed: url, auth, headers, timeoutMs, requestTimeoutMs, idleTimeoutMs, patienceMs, allowPrivate, allowOrigins, bindings, versions, tls.',
    'convoke.yaml:13:29: features.delegate must be true or false, but it is "maybe".',
  ])
})

test('a secret in an older shape is kept out of warnings and errors', async () => {
  const text = (url: string) =>
    `agent: { id: alice }\na2a_agents: [{ id: bob, url: "${url}", token: "hunter two" }]\nlisten: "\${env:HOST}:\${env:PORT}"\n`
  const { problems } = await load(text('http://127.0.0.1:1'), { HOST: '127.0.0.1', PORT: '0' })
  expect(problems).toEqual(['convoke.yaml:2:59: peers.bob.auth.bearer must be a token without spaces.'])
  const good = await load(text('http://127.0.0.1:1').replace('hunter two', 'hunter2'), { HOST: '127.0.0.1', PORT: '0' })
  expect(good.options?.server).toEqual({ host: '127.0.0.1', port: 0 })
  expect(good.warnings.join('\n')).not.toContain('hunter2')
  expect(good.warnings).toHaveLength(3)
  expect(good.warnings[2]).toContain('peers.bob.auth.bearer stands in the file in clear text')
})

test.each([
  ['4300', { port: 4300 }],
  ['":4300"', { host: '0.0.0.0', port: 4300 }],
  ['"[::1]:4300"', { host: '::1', port: 4300 }],
  ['localhost:4300', { host: 'localhost', port: 4300 }],
  ['"http://127.0.0.1:4300/"', { host: '127.0.0.1', port: 4300 }],
])('listen: %s is a host and a port', (listen, server) => {
  expect(rewrite(`listen: ${listen}\n`).value).toEqual({ server })
})

test('version is that of the file where it is 1 or 2', async () => {
  expect((await load('agent: { id: a }\nversion: 2\n')).warnings).toEqual([
    'convoke.yaml:2:1: version is not needed any more: leave it out.',
  ])
  expect((await load('agent: { id: a }\nversion: 1.4.0\n')).problems).toEqual([
    'convoke.yaml:2:10: version is that of the file\u2019s shape and must be 1 or 2, but it is "1.4.0"; the version of the agent is agent.version.'.replace(
      '\u2019',
      "'",
    ),
  ])
})

test('several older members of one mapping are each told', () => {
  const { value, lines } = rewrite(
    'discovery: { startup: true, auto: false, auto_discover: false, autoDiscover: false }\nfeatures: { bidirDelegate: true }\n',
  )
  expect(value).toEqual({ discovery: { startup: true }, features: { delegate: true } })
  expect(lines).toHaveLength(4)
})

test('a slip for agent is no list of peers', async () => {
  expect((await load('agents: { id: alice }\n')).problems).toContain(
    'convoke.yaml:1:1: agents is an unknown key; did you mean agent?',
  )
  expect((await load('agent: { id: a }\nagents: { bob: { url: "http://127.0.0.1:1" } }\n')).options?.peers).toEqual({
    bob: { url: 'http://127.0.0.1:1' },
  })
})

test('aliases keep their meaning when values move', async () => {
  const { options, problems } = await load(`
a2a_agents: [&b { id: bob, url: &u "http://127.0.0.1:1" }, { id: eve, url: *u }]
agent: { id: alice }
local_functions: &t [{ module: ./a.js, name: add }]
tools: *t
peers: { mia: { url: *u } }
`)
  expect(problems).toEqual([])
  expect(options?.peers).toEqual({
    mia: { url: 'http://127.0.0.1:1' },
    bob: { url: 'http://127.0.0.1:1' },
    eve: { url: 'http://127.0.0.1:1' },
  })
})

test('odd values in older keys are refused where they stand, never a crash', async () => {
  const values = ['5', 'text', '[null]', '[[]]', '{ a: [] }', '[{ id: [] }]']
  for (const key of ['local_functions', 'a2a_agents', 'listen', 'agent_id', 'features']) {
    for (const value of values) {
      const { options, problems } = await load(`agent: { name: Alice }\n${key}: ${value}\n`)
      // An id of digits is one; for all others there is at least the id missing.
      expect(options === undefined || key === 'agent_id', `${key}: ${value}`).toBe(true)
      for (const line of problems) expect(line).toMatch(/^convoke\.yaml:[12]:\d+: .+[.?]$/)
    }
  }
  for (const value of ['', 'null', '[]', '{}', '[null]', '{ a: null }', '[{ id: {} }]', '- x\n- [y]']) {
    for (const key of ['mcp_servers', 'builtin_tools', 'skill_dirs', 'agents', 'local_tools', 'peers'])
      expect(() => rewrite(`${key}: ${value}\n`)).not.toThrow()
  }
})

test('a node starts from a file of the older shape and calls its peer', async () => {
  const echo = defineTool({ name: 'echo', description: 'Echo.', input: { type: 'object' }, run: (params) => params })
  const bob = await startNode({ agent: { id: 'bob' }, tools: [echo] })
  const { options } = await load(`agent_id: alice\nlisten: 127.0.0.1:0\na2a_agents: [{ id: bob, url: "${bob.url}" }]\n`)
  if (options === undefined) throw new Error('It does not load.')
  const alice = await startNode({ ...options, store: { url: ':memory:' } })
  expect(await alice.tools.call('bob.echo', { a: 1 })).toEqual({ a: 1 })
})
