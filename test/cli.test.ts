import { execFile } from 'node:child_process'
import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { afterAll, beforeAll, describe, expect, test, vi } from 'vitest'
import type { Command } from 'commander'
import { formatBanner, exampleOf } from '../dist/cli/banner.js'
import { createProgram } from '../dist/cli/program.js'
import { loadConfig } from '../dist/config.js'
import { addressWarnings } from '../dist/cli/serve.js'
import { createAuthenticator } from '../dist/server/auth/authenticator.js'
import type { ToolTraits } from '../dist/tools/tool.js'

// Each test waits for processes, and the other files' tests share the machine.
vi.setConfig({ testTimeout: 30_000 })

const main = fileURLToPath(new URL('../dist/cli/main.js', import.meta.url))

let folder: string
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'convoke-cli-'))
})
afterAll(() => rm(folder, { recursive: true }))

function convoke(...args: string[]): Promise<{ code: number; stdout: string; stderr: string }> {
  return new Promise((resolve) => {
    execFile(process.execPath, [main, ...args], { cwd: folder }, (error, stdout, stderr) => {
      resolve({ code: typeof error?.code === 'number' ? error.code : 0, stdout, stderr })
    })
  })
}

describe('convoke token', () => {
  test('prints a token and the configuration that lets it in', async () => {
    const { code, stdout, stderr } = await convoke(
      'token',
      'bob',
      '--scopes',
      'tool:count_*,message',
      '--scopes',
      'tool:add',
    )
    expect({ code, stderr }).toEqual({ code: 0, stderr: '' })
    const [token] = /cvk_[\w-]{43}/.exec(stdout) ?? []
    const lines = stdout.slice(stdout.indexOf('server:'))
    const file = join(folder, 'pasted.yaml')
    await writeFile(file, `agent: { id: alice }\n${lines}`)
    const { options } = await loadConfig(file)
    const caller = createAuthenticator(options.server?.auth).authenticate({ authorization: `Bearer ${token}` })
    expect(caller).toEqual({ id: 'bob', scopes: ['tool:count_*', 'message', 'tool:add'] })
  })

  test('prints one JSON line for programs, with another token each time', async () => {
    const outputs = await Promise.all([
      convoke('token', '--scopes', 'message', '007', '-o', 'json'),
      convoke('token', '-o', 'json'),
    ])
    const [first, second] = outputs.map(
      ({ stdout }) => JSON.parse(stdout) as { token: string; id: string; sha256: string; scopes: string[] },
    )
    expect(first).toEqual({
      token: expect.any(String),
      id: '007',
      sha256: expect.stringMatching(/^[0-9a-f]{64}$/),
      scopes: ['message'],
    })
    expect(second).toMatchObject({ id: 'caller', scopes: ['*'] })
    expect(second?.token).not.toBe(first?.token)
    const authenticator = createAuthenticator({ tokens: [{ id: first!.id, sha256: first!.sha256 }] })
    expect(authenticator.authenticate({ 'x-api-key': first!.token })).toEqual({ id: '007', scopes: ['*'] })
  })

  test.each([
    [['a b'], 'convoke: The id must be 1 to 128 letters, digits, _, -, . or @; it is "a b".\n'],
    [
      ['bob', '--scopes', 'tools:*'],
      'convoke: A scope is *, message or tool:NAME (* in NAME stands for any characters); one is "tools:*".\n',
    ],
  ])('refuses %j with exit code 2', async (args, stderr) => {
    expect(await convoke('token', ...args)).toEqual({ code: 2, stdout: '', stderr })
  })
})

describe('convoke config check', () => {
  test('takes the file as other commands do, too, and one file only', async () => {
    await writeFile(join(folder, 'named.yaml'), 'agent: { id: alice }\n')
    const [named, two] = await Promise.all([
      convoke('config', 'check', '-c', 'named.yaml'),
      convoke('config', 'check', 'other.yaml', '--config', 'named.yaml'),
    ])
    expect(named).toEqual({ code: 0, stdout: 'named.yaml is valid.\n', stderr: '' })
    expect(two).toMatchObject({ code: 2, stderr: expect.stringContaining('other.yaml and named.yaml') })
  })

  test('exits with 0 for a file that is right, loads its modules, and warns of what looks wrong', async () => {
    await writeFile(join(folder, 'agent.mjs'), 'setInterval(() => {}, 1000)\nexport const onMessage = () => "hi"')
    await writeFile(join(folder, 'good.yaml'), 'agent: { id: alice, name: "${NAME}", module: ./agent.mjs }\n')
    expect(await convoke('config', 'check', 'good.yaml')).toEqual({
      code: 0,
      stdout: 'good.yaml is valid.\n',
      stderr:
        'warning: good.yaml:1:27: agent.name holds a ${…} that stays as it is; variables are written ${env:NAME}.\n',
    })
  })

  test('exits with 2 when a tool module would be skipped, unless it is told not to load any', async () => {
    await writeFile(join(folder, 'empty.mjs'), 'console.log("loaded")')
    const modules = 'tools: [{ module: ./empty.mjs }, { module: ./none.mjs }]\n'
    await writeFile(join(folder, 'skips.yaml'), `agent: { id: alice }\n${modules}`)
    const { code, stderr } = await convoke('config', 'check', 'skips.yaml')
    expect(code).toBe(2)
    expect(stderr.split('\n')).toEqual([
      'error: ./empty.mjs: exports no tool made by defineTool or from ToolBase; name a plain function with `export`.',
      'error: ./none.mjs: cannot be loaded: there is no such file.',
      'convoke: The node of skips.yaml would start without these.',
      '',
    ])
    expect(await convoke('config', 'check', '--no-load', 'skips.yaml')).toEqual({
      code: 0,
      stdout: 'skips.yaml is valid.\n',
      stderr: '',
    })
  })

  // A process of its own: the test runner loads modules in its own way.
  test('says what to do about modules that cannot be loaded', async () => {
    await writeFile(join(folder, 'broken.mjs'), 'export const = 1')
    await writeFile(join(folder, 'json.mjs'), 'JSON.parse("{")')
    // Newer versions of Node would take a module that has types and nothing else of TypeScript.
    await writeFile(join(folder, 'typed.ts'), 'export enum Kind { One }')
    const common = join(folder, 'common')
    await mkdir(common)
    await writeFile(join(common, 'package.json'), '{"type": "commonjs"}')
    await writeFile(join(common, 'tools.js'), 'import "node:fs"')
    const files = ['./broken.mjs', './json.mjs', './typed.ts', './common/tools.js']
    const modules = files.map((module) => `{ module: ${module} }`).join(', ')
    await writeFile(join(folder, 'broken.yaml'), `agent: { id: alice }\ntools: [${modules}]\n`)
    await writeFile(join(folder, 'agent.yaml'), `agent: { id: alice, module: ./typed.ts }\n`)
    const compile = /\. Compile it to JavaScript first, and name the \.js file\.$/
    const { stderr } = await convoke('config', 'check', 'broken.yaml')
    const [broken, json, typed, esm] = stderr.split('\n').filter((line) => line.startsWith('error: '))
    expect(broken).toMatch(/: SyntaxError: .*\. To see where, try node --check \/\S+\/broken\.mjs$/)
    expect(json).toMatch(/: SyntaxError: /)
    expect(json).not.toContain('--check')
    expect(typed).toMatch(compile)
    const file = join(common, 'tools.js')
    expect(esm).toBe(
      `error: ./common/tools.js: cannot be loaded: SyntaxError: Cannot use import statement outside a module. Node takes ${file} for CommonJS: name it .mjs, or have "type": "module" in its package.json.`,
    )
    await writeFile(join(folder, 'items.jsonl'), '')
    const [run, serve] = await Promise.all([
      convoke('agent', 'run', 'typed.ts', '--input', 'items.jsonl'),
      convoke('config', 'check', 'agent.yaml'),
    ])
    expect(run.stderr.trimEnd()).toMatch(compile)
    expect(serve.stderr.trimEnd()).toMatch(compile)
  })

  test('exits with 2 when the agent module has no handler, which would keep the node from starting', async () => {
    await writeFile(join(folder, 'silent.mjs'), 'export const other = 1')
    await writeFile(join(folder, 'silent.yaml'), 'agent: { id: alice, module: ./silent.mjs }\n')
    expect(await convoke('config', 'check', 'silent.yaml')).toEqual({
      code: 2,
      stdout: '',
      stderr: 'convoke: agent.module ./silent.mjs must export an agent, or a function onMessage(message, context).\n',
    })
  })

  test('exits with 2 and one line a mistake for a file that is wrong', async () => {
    await writeFile(join(folder, 'bad.yaml'), 'agent: { id: a b }\nserver: { port: -1 }\n')
    expect(await convoke('config', 'check', 'bad.yaml')).toEqual({
      code: 2,
      stdout: '',
      stderr:
        'bad.yaml:1:14: agent.id must be 1 to 64 letters, digits, _ or -, but it is "a b".\nbad.yaml:2:17: server.port must be a whole number from 0 (picks a free port) to 65535, but it is -1.\n',
    })
  })

  test('exits with 2 for a node that would stand open to the network', async () => {
    await writeFile(join(folder, 'open.yaml'), 'agent: { id: alice }\nserver: { host: 0.0.0.0 }\n')
    const { code, stderr } = await convoke('config', 'check', 'open.yaml')
    expect(code).toBe(2)
    expect(stderr).toMatch(/^convoke: Refusing to listen on 0\.0\.0\.0 without authentication: .*three ways.*\n$/)
  })

  test('takes peers without asking them, and refuses those that no request could reach', async () => {
    const peer = (members: string) => `agent: { id: alice }\npeers: { bob: { url: "http://127.0.0.1:1"${members} } }\n`
    const startup = 'discovery: { startup: true }\n'
    await writeFile(join(folder, 'peers.yaml'), peer(', auth: { bearer: in-the-file }') + startup)
    expect(await convoke('config', 'check', 'peers.yaml')).toEqual({
      code: 0,
      stdout: 'peers.yaml is valid.\n',
      stderr:
        'warning: peers.yaml:2:60: peers.bob.auth.bearer stands in the file in clear text; put it into the environment and write "${env:NAME}".\n',
    })
    await writeFile(join(folder, 'unset.yaml'), peer(', auth: { bearer: "${env:BOB_TOKEN}" }, timeout: 1'))
    expect(await convoke('config', 'check', 'unset.yaml')).toEqual({
      code: 2,
      stdout: '',
      stderr:
        'unset.yaml:2:60: peers.bob.auth.bearer needs the environment variable BOB_TOKEN, which is not set.\nunset.yaml:2:82: peers.bob.timeout is an unknown key; did you mean timeoutMs?\n',
    })
    await writeFile(join(folder, 'host.yaml'), peer(', auth: { apiKey: k, header: Host }'))
    expect(await convoke('config', 'check', 'host.yaml')).toMatchObject({
      code: 2,
      stderr: expect.stringContaining('The API key of peer "bob" cannot be sent in a header named "Host".'),
    })
  })

  test('-o json says the same as one object, with the same exit codes', async () => {
    const agent = 'agent: { id: alice, name: "${NAME}" }\n'
    await writeFile(join(folder, 'json-good.yaml'), agent)
    await writeFile(join(folder, 'json-bad.yaml'), `${agent}server:\n  port: -1\n`)
    await writeFile(join(folder, 'json-skips.yaml'), `${agent}tools: [{ module: ./json-none.mjs }]\n`)
    const check = async (...args: string[]): Promise<{ code: number | null; stderr: string; report: unknown }> => {
      const { code, stdout, stderr } = await convoke('config', 'check', '-o', 'json', ...args)
      return { code, stderr, report: JSON.parse(stdout) }
    }
    const warning = { line: 1, column: 27, message: expect.stringMatching(/^agent\.name holds a/) }
    const [good, bad, skips, none] = await Promise.all([
      check('json-good.yaml'),
      check('json-bad.yaml'),
      check('json-skips.yaml'),
      check('json-none.yaml'),
    ])
    expect(good).toEqual({
      code: 0,
      stderr: '',
      report: { file: 'json-good.yaml', valid: true, problems: [], warnings: [warning] },
    })
    const port = { line: 3, column: 9, path: '/server/port', message: expect.stringMatching(/^server\.port must be/) }
    expect(bad).toEqual({
      code: 2,
      stderr: '',
      report: { file: 'json-bad.yaml', valid: false, problems: [port], warnings: [] },
    })
    expect(skips).toMatchObject({
      code: 2,
      report: {
        valid: false,
        problems: [{ message: expect.stringMatching(/^\.\/json-none\.mjs: /) }],
        warnings: [warning],
      },
    })
    expect(none).toMatchObject({
      code: 2,
      report: { file: 'json-none.yaml', problems: [{ message: expect.stringContaining('there is no such file') }] },
    })
  })

  test('exits with 2 where there is no file', async () => {
    expect(await convoke('config', 'check', 'none.yaml')).toEqual({
      code: 2,
      stdout: '',
      stderr: 'convoke: Cannot read the configuration none.yaml: there is no such file.\n',
    })
  })

  test('looks for convoke.yaml, then convoke.json, and says how to begin where there is neither', async () => {
    const missing = await convoke('config', 'check')
    expect(missing).toMatchObject({ code: 2, stdout: '' })
    const minimal = missing.stderr.slice(missing.stderr.indexOf('\nagent:'))
    await writeFile(join(folder, 'convoke.json'), '{"agent": {"id": "json"}}')
    expect(await convoke('config', 'check')).toMatchObject({ code: 0, stdout: 'convoke.json is valid.\n' })
    await writeFile(join(folder, 'convoke.yaml'), minimal)
    expect(await convoke('config', 'check', '--no-load')).toMatchObject({ code: 0, stdout: 'convoke.yaml is valid.\n' })
    await Promise.all(['convoke.json', 'convoke.yaml'].map((file) => rm(join(folder, file))))
  })
})

describe('convoke', () => {
  test('prints its version', async () => {
    const { code, stdout } = await convoke('--version')
    expect(code).toBe(0)
    expect(stdout).toMatch(/^\d+\.\d+\.\d+/)
  })

  test.each([[], ['serve'], ['token'], ['config', 'check']])('has help with an example: %s %s', async (...command) => {
    const { code, stdout } = await convoke(...command, '--help')
    expect(code).toBe(0)
    expect(stdout).toMatch(/Examples?:\n {2}convoke /)
  })

  test.each([
    [['serv'], "error: unknown command 'serv'\n(Did you mean serve?)\n(convoke --help shows what there is)\n"],
    [
      ['serve', '--prot', '1'],
      "error: unknown option '--prot'\n(Did you mean --port?)\n(convoke serve --help shows what there is)\n",
    ],
    [
      ['serve', '--port', '65536'],
      "error: option '-p, --port <n>' argument '65536' is invalid. A port is a number from 0 to 65535.\n(convoke serve --help shows what there is)\n",
    ],
  ])('exits with 2 for wrong usage: %j', async (args, stderr) => {
    expect(await convoke(...args)).toEqual({ code: 2, stdout: '', stderr })
  })

  test('exits with 2 and no stack when there is nothing to serve', async () => {
    const { code, stderr } = await convoke('serve')
    expect(code).toBe(2)
    expect(stderr).toMatch(/^convoke: There is no convoke\.yaml or convoke\.json in this folder\./)
    expect(stderr).not.toMatch(/^\s+at /m)
  })
})

test('a node that listens on all addresses is told which URL it should name', () => {
  const serverAt = (host: string, publicUrl?: string) =>
    addressWarnings({ agent: { id: 'a' }, server: { host, ...(publicUrl === undefined ? {} : { publicUrl }) } })
  for (const host of ['0.0.0.0', '::', '[::]']) {
    expect(serverAt(host)).toEqual([
      `The node listens on all addresses of this machine (${host}). Set server.publicUrl to the URL that others use.`,
    ])
  }
  expect([...serverAt('127.0.0.1'), ...serverAt('10.0.0.1'), ...serverAt('0.0.0.0', 'https://a.example')]).toEqual([])
})

describe('the banner', () => {
  const tool = (name: string, required: Record<string, object> = {}, traits: ToolTraits = {}) => ({
    name,
    traits,
    input: { type: 'object', properties: required as never, required: Object.keys(required) },
  })
  const banner = {
    isLooking: false,
    hasForeign: false,
    skippedModules: 0,
    name: 'Alice',
    url: 'http://127.0.0.1:4120',
    doors: [
      { name: 'agent card', url: 'http://127.0.0.1:4120/.well-known/agent-card.json' },
      { name: 'JSON-RPC', url: 'http://127.0.0.1:4120/' },
    ],
    agent: undefined,
    tools: [
      tool('count_to', { n: { type: 'integer', minimum: 1 } }),
      tool('it_s', { who: { type: 'string', const: "it's" }, also: { type: 'string' } }),
    ],
    warnings: ['Something looks wrong.'],
    rpcUrl: 'http://127.0.0.1:4120/',
    authRequired: true,
  }
  const plain = (_format: string, text: string) => text

  test('has a line for each door, the tools, the warnings and a call to try', () => {
    expect(formatBanner(banner, plain)).toBe(String.raw`Alice listens on http://127.0.0.1:4120
  agent card  http://127.0.0.1:4120/.well-known/agent-card.json
  JSON-RPC    http://127.0.0.1:4120/
Tools: count_to, it_s
Warning: Something looks wrong.
Try it:
  curl -s 'http://127.0.0.1:4120/' -H 'Content-Type: application/json' -H 'A2A-Version: 1.0' -H "Authorization: Bearer $TOKEN" \
    -d '{"jsonrpc":"2.0","id":1,"method":"SendMessage","params":{"message":{"messageId":"try-'"$(date +%s)"'","role":"ROLE_USER","parts":[{"text":"count_to"}],"metadata":{"_tool_call":{"name":"count_to","params":{"n":3}}}}}}'
`)
  })

  test('names ten tools and counts the others', () => {
    const tools = Array.from({ length: 13 }, (_, n) => tool(`t${n}`))
    expect(formatBanner({ ...banner, tools }, plain)).toContain(
      'Tools: t0, t1, t2, t3, t4, t5, t6, t7, t8, t9 … and 3 more\n',
    )
    expect(formatBanner({ ...banner, tools: [] }, plain)).toContain('It publishes no tools.\n')
    expect(formatBanner({ ...banner, tools: [], hasForeign: true }, plain)).toContain('It publishes no tools yet.\n')
    expect(formatBanner({ ...banner, isLooking: true }, plain)).toMatch(
      /^Tools: .* \(those of others are still being looked for\)$/m,
    )
  })

  test('says what answers messages, with a message to try, and how to have something that does', () => {
    const agent = 'the model qwen3:8b answers messages (models.local)'
    const { rpcUrl } = banner
    const text = formatBanner({ ...banner, agent, tools: [], authRequired: false }, plain)
    expect(text).toContain(`Agent: ${agent}\nIt publishes no tools.\n`)
    expect(text).toMatch(/Try it:\n {2}npx convoke chat http:\/\/127\.0\.0\.1:4120\/ --message 'What can you do\?'\n$/)
    expect(formatBanner({ ...banner, agent }, plain)).toMatch(
      /Try it:\n {2}npx convoke chat .* --bearer "\$TOKEN" .*\n {2}curl /,
    )
    expect(text).not.toContain('Nobody answers')
    const idle = formatBanner({ ...banner, tools: [], rpcUrl }, plain)
    expect(idle).toContain('Nobody answers messages: set agent.react')
    expect(idle).not.toContain('Try it')
    expect(formatBanner(banner, plain)).not.toContain('Nobody answers')
  })

  test('says how many modules were skipped', () => {
    expect(formatBanner({ ...banner, tools: [], skippedModules: 1 }, plain)).toContain(
      'It publishes no tools; 1 module was skipped (see above).\n',
    )
    expect(formatBanner({ ...banner, skippedModules: 2 }, plain)).toContain(
      'Tools: count_to, it_s; 2 modules were skipped (see above).\n',
    )
  })

  test('suggests a tool that changes nothing, if there is one', () => {
    const tools = [
      tool('wipe'),
      tool('set', { key: { type: 'string' } }, { idempotent: true }),
      tool('get', { key: { type: 'string' } }, { readOnly: true }),
    ]
    expect(formatBanner({ ...banner, tools }, plain)).toContain('"_tool_call":{"name":"get",')
    expect(formatBanner({ ...banner, tools: tools.slice(0, 2) }, plain)).toContain('"_tool_call":{"name":"set",')
  })

  test('has a command that a shell reads as valid JSON, quotes and all', async () => {
    const text = formatBanner({ ...banner, tools: banner.tools.slice(1), rpcUrl: "http://x/'$(id)'" }, plain)
    const command = text.slice(text.indexOf('curl -s')).replace('curl -s', 'printf "%s\\n"')
    const env = { TOKEN: 'T', PATH: process.env['PATH'] }
    const { stdout: output } = await promisify(execFile)('sh', ['-c', command], { env })
    const lines = output.trimEnd().split('\n')
    expect(lines[0]).toBe("http://x/'$(id)'")
    expect(lines).toContain('Authorization: Bearer T')
    expect(JSON.parse(lines.at(-1) ?? '')).toMatchObject({
      params: { message: { metadata: { _tool_call: { name: 'it_s', params: { who: "it's", also: 'hello world' } } } } },
    })
  })

  test.each([
    [
      { type: 'object', properties: { a: { type: 'string' }, b: { type: 'string' } }, required: ['a'] },
      { a: 'hello world' },
    ],
    [{ type: 'integer', minimum: 10 }, 10],
    [{ type: 'number', exclusiveMinimum: 5 }, 6],
    [{ type: 'integer', maximum: 2 }, 2],
    [{ type: 'string', minLength: 15 }, 'hello world....'],
    [{ type: 'string', maxLength: 5 }, 'hello'],
    [{ enum: ['a', 'b'] }, 'a'],
    [{ type: 'string', examples: ['x'] }, 'x'],
    [{ type: ['integer', 'null'], default: 7 }, 7],
    [{ type: 'array', items: { type: 'boolean' }, minItems: 2 }, [true, true]],
    [{ anyOf: [{ type: 'null' }, { type: 'string' }] }, null],
    [true, {}],
    [{}, {}],
  ])('makes up params for %j', (schema, example) => {
    expect(exampleOf(schema)).toEqual(example)
  })
})

test('every command has help with an example', () => {
  const without: string[] = []
  const look = (command: Command, path: string): void => {
    let help = ''
    command.configureOutput({ writeOut: (text) => (help += text) }).outputHelp()
    if (!/^Examples?:\n {2}\S/m.test(help)) without.push(path)
    for (const each of command.commands) look(each, `${path} ${each.name()}`)
  }
  look(createProgram(), 'convoke')
  expect(without).toEqual([])
})
