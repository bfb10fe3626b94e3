/** The command line sees the tools of a configuration, wherever they live: as processes, with real MCP servers. */
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { readdir, readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { describe, expect, test } from 'vitest'
import { defineTool } from 'convoke'
import { Pins } from '../dist/tools/pins.js'
import { convoke, linesOf, main } from './support/command.ts'
import { cleanup, startNode, temporaryFolder, within } from './support/lifetime.ts'
import { isRunning, realServer, stdioServer } from './support/mcp-servers.ts'

const texts = fileURLToPath(new URL('../examples/tools/text.js', import.meta.url))
const basics = fileURLToPath(new URL('../examples/tools/basics.js', import.meta.url))

/** A folder with a configuration. */
async function folderWith(options: Record<string, unknown>): Promise<string> {
  const folder = await temporaryFolder()
  await writeFile(join(folder, 'convoke.yaml'), JSON.stringify({ agent: { id: 'me' }, ...options }))
  return folder
}

/** A process that takes its standard streams for a terminal. */
const onTerminal = {
  NODE_OPTIONS: `--import=data:text/javascript,for(const%20each%20of[process.stdin,process.stdout,process.stderr])Object.assign(each,{isTTY:true,hasColors:()=>false})`,
}

const broken = { command: '/no/such/program' }

interface Envelope {
  readonly error: { readonly code: string; readonly message: string; readonly hint: string | null }
}

describe('convoke tools', () => {
  test('lists own tools, those of MCP servers and of peers, each under its source', async () => {
    const [{ url }, server] = await Promise.all([startNode({ tools: [{ module: basics }] }), stdioServer()])
    const cwd = await folderWith({
      tools: [{ module: texts }, { module: './not-there.js' }],
      mcpServers: { srv: server.options, broken },
      peers: { alice: { url }, gone: { url: 'http://127.0.0.1:1' } },
    })
    const [text, search] = await Promise.all([
      convoke(['tools'], { cwd }),
      convoke(['tools', '--kind', 'mcp', '--search', 'say it again', '-o', 'json'], { cwd }),
    ])
    expect(text.code).toBe(0)
    expect(text.stdout).toMatch(
      /^Own tools:\n[^]*\nword_count\(text: string, top\?: integer\)  \[read-only, text\]\n[^]*\n\nMCP server srv:\n/,
    )
    expect(text.stdout).toContain('\n\nMCP server srv:\nsrv.echo(value: any)  [read-only]\n  Says it again.\n')
    expect(text.stdout).toContain(`\n\nPeer alice, ${url}:\nalice.`)
    expect(text.stderr).toContain('warning: ./not-there.js: cannot be loaded: ')
    expect(text.stderr).toMatch(/^broken: .*there is no program "\/no\/such\/program".* \(unavailable\)$/m)
    expect(text.stderr).toMatch(/^gone: .*refused the connection\. \(network\)$/m)

    // Nobody else is asked, and what fits best comes first.
    const [best] = JSON.parse(search.stdout) as unknown[]
    expect(best).toEqual({
      name: 'echo',
      description: 'Says it again.',
      capabilities: [],
      parameters_schema: expect.objectContaining({ required: ['value'] }),
      read_only: true,
      idempotent: expect.any(Boolean),
      kind: 'mcp',
      source: 'srv',
    })
    expect(search.stderr).not.toContain('gone')
    expect(search.stderr).not.toContain('not-there')
  })

  test('lists the tools of one server, and tells of those that cannot be used, and how to mend it', async () => {
    const server = await stdioServer()
    const plain = { name: 'plain', description: 'Does it.', inputSchema: { type: 'object' } }
    const odd = { name: 'odd', inputSchema: { type: 'object', properties: { n: { type: 'whole' } } } }
    server.set({ only: true, tools: [plain, odd] })
    const cwd = await folderWith({ mcpServers: { srv: server.options }, pins: { file: 'pins.json' } })
    const first = await convoke(['tools', 'srv', '--schema'], { cwd })
    expect(first.stdout).toBe('srv.plain()\n  Does it.\n  Params:\n    {\n      "type": "object"\n    }\n')
    expect(first.stderr).toMatch(/^srv\.odd: it cannot be used: .*\n$/)

    server.set({ only: true, tools: [{ ...plain, description: 'Does something else.' }] })
    const [second, call] = await Promise.all([
      convoke(['tools', '-o', 'json', '-c', 'convoke.yaml'], { cwd }),
      convoke(['call', 'srv.plain'], { cwd }),
    ])
    expect(JSON.parse(second.stdout)).toEqual([])
    expect(second.stderr).toBe(
      'srv.plain: it is quarantined, as it says something else than when it was pinned. ' +
        'See convoke pins diff srv.plain -c convoke.yaml\n',
    )
    expect(call.code).toBe(1)
    expect(call.stderr).toContain('hint: See what changed, and take it or not: convoke pins diff srv.plain\n')
  })

  test('fails where all sources do, and tells what there is when a name means nothing', async () => {
    const cwd = await folderWith({ mcpServers: { broken, bad: {}, off: { ...broken, disabled: true } } })
    const [none, bad, misspelt] = await Promise.all([
      convoke(['tools', '-o', 'json'], { cwd }),
      convoke(['call', 'bad.tool'], { cwd }),
      convoke(['tools', 'brokken'], { cwd }),
    ])
    expect(none.code).toBe(3)
    const { error } = JSON.parse(none.stdout) as Envelope
    expect(error).toMatchObject({ code: 'A2ACLI_ERR_UNREACHABLE' })
    expect(error.hint).toContain('Check mcpServers.broken in convoke.yaml')
    expect(bad.code).toBe(2)
    expect(bad.stderr).toContain('The MCP server bad is left out: it needs a command to start, or a url.')
    expect(misspelt.code).toBe(2)
    expect(misspelt.stderr).toContain('no peer or MCP server of convoke.yaml. Did you mean "broken"?')
  })
})

describe('convoke call', () => {
  test("runs an MCP server's tool, by its handle, in two words or by an alias", async () => {
    const server = await stdioServer()
    const cwd = await folderWith({ mcpServers: { srv: server.options }, aliases: { walk: 'srv.steps' } })
    const [alias, words, handle] = await Promise.all([
      convoke(['call', 'walk', '-'], { cwd, stdin: '{"n":2}' }),
      convoke(['call', 'srv', 'echo', '--param', 'value=[1]', '-o', 'json'], { cwd }),
      convoke(['call', 'srv.ask', '--answer', '{"colour":"red"}'], { cwd }),
    ])
    expect(alias).toEqual({ code: 0, stdout: '"done"\n', stderr: 'progress: 1/2 step 1\nprogress: 2/2 step 2\n' })
    expect(JSON.parse(words.stdout)).toEqual({
      result: '[1]',
      task_id: null,
      context_id: null,
      execution_time_ms: expect.any(Number),
    })
    expect(handle.stdout).toBe(`${JSON.stringify('{"action":"accept","content":{"colour":"red"}}')}\n`)
    expect(server.pids().filter(isRunning)).toEqual([])
  })

  test('runs a tool of its own in this process, and ends although the module holds something open', async () => {
    const cwd = await folderWith({ tools: [{ module: basics }, { module: './clock.js' }] })
    await writeFile(join(cwd, 'package.json'), '{"type":"module"}')
    await writeFile(join(cwd, 'clock.js'), 'setInterval(() => {}, 1e6)\nexport function now() { return 12 }\n')
    const [lines, missing, detached] = await Promise.all([
      convoke(['call', 'count_to', '--param', 'n=2', '-o', 'json', '--stream'], { cwd }),
      convoke(['call', 'count_too', '{"n":1}'], { cwd }),
      convoke(['call', 'count_to', '{"n":1}', '--detach'], { cwd }),
    ])
    const events = linesOf<{ type: string }>(lines.stdout)
    expect(lines.code).toBe(0)
    expect(events.filter(({ type }) => type === 'chunk')).toHaveLength(2)
    expect(events.at(-1)).toMatchObject({ type: 'result', task_id: null })
    expect(missing.code).toBe(1)
    expect(missing.stderr).toContain('Did you mean "count_to"?')
    expect(detached.code).toBe(2)
    expect(detached.stderr).toContain('this tool runs in this process, and ends with it')
  })

  test('says by its exit code what went wrong at a server', async () => {
    const server = await stdioServer()
    const mcpServers = { srv: server.options, broken }
    const cwd = await folderWith({ mcpServers, aliases: { lost: 'broken.tool' }, builtin: { tools: ['read_file'] } })
    const cases: [args: string[], code: number, sentence: string][] = [
      [['srv.fail'], 1, 'CONVOKE_ERR_TOOL: The tool failed (tool_failed): It did not work.'],
      [['srv.ecko', '{}'], 1, 'Did you mean "echo"?'],
      [['srv.leave'], 3, 'A2ACLI_ERR_UNREACHABLE'],
      [['lost'], 3, 'there is no program "/no/such/program"'],
      [['read_file', '{"path":"."}'], 1, 'CONVOKE_ERR_TOOL: The tool failed (invalid_params): '],
      [['read_file', '{"path":1}'], 2, 'A2ACLI_ERR_USAGE'],
      [['srv.echo'], 2, `An example that fits: convoke call srv.echo '{"value":`],
      [['srv.hold', '--timeout', '2s'], 5, 'A2ACLI_ERR_TIMEOUT'],
    ]
    const runs = await Promise.all(cases.map(async ([args]) => await convoke(['call', ...args], { cwd })))
    for (const [i, [args, code, sentence]] of cases.entries()) {
      expect({ args, code: runs[i]?.code, stdout: runs[i]?.stdout }).toEqual({ args, code, stdout: '' })
      expect(runs[i]?.stderr).toContain(sentence)
    }
    expect(server.pids().filter(isRunning)).toEqual([])
  })

  test.each(['SIGINT', 'SIGHUP'] as const)('%s cancels the call and leaves no process behind', async (signal) => {
    const server = await stdioServer()
    const cwd = await folderWith({ mcpServers: { srv: server.options } })
    const child = spawn(process.execPath, [main, 'call', 'srv.hold'], { cwd, env: { PATH: process.env['PATH'] } })
    cleanup(() => child.kill('SIGKILL'))
    const exited = once(child, 'exit')
    await server.heard('holding hold')
    child.kill(signal)
    expect(await within(exited, 'the command to end')).toEqual([130, null])
    expect(server.count('cancelled hold')).toBe(1)
    expect(server.pids().filter(isRunning)).toEqual([])
  })

  test.each(['serve', 'mcp'])('convoke %s ends its servers when the terminal is closed', async (command) => {
    const server = await stdioServer()
    const cwd = await folderWith({ mcpServers: { srv: server.options }, publish: ['srv.*'], server: { port: 0 } })
    const child = spawn(process.execPath, [main, command], { cwd, env: { PATH: process.env['PATH'] } })
    cleanup(() => child.kill('SIGKILL'))
    const exited = once(child, 'exit')
    await server.heard('list')
    child.kill('SIGHUP')
    expect(await within(exited, 'the command to end')).toEqual([0, null])
    expect(server.pids().filter(isRunning)).toEqual([])
  })

  test('what the configuration says of tools holds for those of a peer', async () => {
    const say = defineTool({
      name: 'say',
      description: 'Says it.',
      input: { type: 'object', properties: { text: { type: 'string' } } },
      run: ({ text }) => text ?? 'nothing',
    })
    const odd = defineTool({ name: 'odd', description: 'Is odd.', input: { type: 'object' }, run: () => 1 })
    const { url } = await startNode({ tools: [say, odd] })
    const cwd = await folderWith({
      peers: { bob: { url } },
      aliases: { speak: 'bob.say' },
      pins: { file: 'pins.json' },
      toolPolicy: [
        { tools: 'bob.say', callers: 'local', arguments: { required: ['text'] }, decision: 'ask' },
        { tools: 'bob.odd', decision: 'allow' },
      ],
    })
    const pins = new Pins({ file: join(cwd, 'pins.json') })
    pins.check({ name: 'bob.odd', kind: 'a2a', description: 'Was even.', input: {}, traits: {} })
    await pins.close()

    const [denied, alias, unasked, approved, begun, held, tools, open] = await Promise.all([
      convoke(['call', 'bob.say'], { cwd }),
      convoke(['call', 'speak', '{}'], { cwd }),
      convoke(['call', 'bob', 'say', '{"text":"a"}'], { cwd }),
      convoke(['call', 'bob.say', '{"text":"b"}', '--answer', 'yes'], { cwd }),
      convoke(['call', 'bob.say', '{"text":"c"}', '--detach', '--answer', 'no'], { cwd }),
      convoke(['call', 'bob.odd', '-o', 'json'], { cwd }),
      convoke(['tools', 'bob'], { cwd }),
      convoke(['call', url, 'odd'], { cwd }),
    ])
    for (const { code, stdout, stderr } of [denied, alias]) {
      expect({ code, stdout }).toEqual({ code: 1, stdout: '' })
      expect(stderr).toBe(
        'convoke: CONVOKE_ERR_TOOL: The tool "bob.say" may not be called so: No rule of the tool policy allows it.\n' +
          'hint: See which rule decides: convoke policy why local bob.say\n',
      )
    }
    expect(unasked).toMatchObject({ code: 1, stdout: '' })
    expect(unasked.stderr).toContain('CONVOKE_ERR_QUESTION')
    expect(approved).toEqual({ code: 0, stdout: '"b"\n', stderr: '' })
    expect(begun).toMatchObject({ code: 1, stdout: '' })
    expect(begun.stderr).toContain('was not approved')
    expect(held.code).toBe(1)
    expect((JSON.parse(held.stdout) as Envelope).error).toMatchObject({
      code: 'CONVOKE_ERR_TOOL',
      message: expect.stringContaining('The tool "bob.odd" is quarantined'),
      hint: 'See what changed, and take it or not: convoke pins diff bob.odd',
    })
    expect(tools.stdout).toContain('bob.say(')
    expect(tools.stdout).not.toContain('bob.odd')
    expect(tools.stderr).toMatch(/^bob\.odd: it is quarantined, .* See convoke pins diff bob\.odd\n$/)
    // A URL is none of the configuration's peers.
    expect(open).toMatchObject({ code: 0, stdout: '1\n' })
  })

  test('the tool policy holds, and what is to be approved is asked on the terminal', async () => {
    const shelf = await temporaryFolder()
    const cwd = await folderWith({
      mcpServers: { files: realServer('filesystem', shelf) },
      toolPolicy: [{ tools: 'files.create_directory', callers: 'local', decision: 'ask' }],
    })
    const make = (name: string): string[] => ['call', 'files.create_directory', '--param', `path=${join(shelf, name)}`]
    const [denied, unasked, asked] = await Promise.all([
      convoke(['call', 'files.list_directory', '--param', `path=${shelf}`], { cwd }),
      convoke(make('unasked'), { cwd }),
      convoke(make('asked'), { cwd, env: onTerminal, stdin: 'yes\n' }),
    ])
    expect(denied.code).toBe(1)
    expect(denied.stderr).toContain('hint: See which rule decides: convoke policy why local files.list_directory\n')
    expect(unasked.code).toBe(1)
    expect(unasked.stderr).toContain('CONVOKE_ERR_QUESTION')
    expect(unasked.stderr).toContain('give the answer with --answer')
    expect(asked.stderr).toContain('needs an approval to run with these arguments')
    expect(asked.stdout).toContain('Successfully created directory')
    expect(await readdir(shelf)).toEqual(['asked'])
  })

  test('shows a result of several parts: for people, as JSON, in a file', async () => {
    const server = await stdioServer()
    const cwd = await folderWith({ mcpServers: { srv: server.options } })
    const png = Buffer.from([0x89, 0x50, 0x4e, 0x47]).toString('base64')
    const content = [
      { type: 'text', text: 'A cat\u001b[2J.' },
      { type: 'image', data: png, mimeType: 'image/png' },
      { type: 'resource_link', uri: 'https://cats.example.com/1', name: 'cat one' },
    ]
    const call = (parts: readonly unknown[], ...args: string[]): string[] => {
      return ['call', 'srv.result', JSON.stringify({ result: { content: parts } }), ...args]
    }
    const [terminal, json, saved, image, split] = await Promise.all([
      convoke(call(content), { cwd, env: onTerminal }),
      convoke(call(content, '-o', 'json'), { cwd }),
      convoke(call(content, '--out', 'parts.json', '-o', 'json'), { cwd }),
      convoke(call(content.slice(1, 2), '--out', 'cat.png'), { cwd }),
      convoke(call(content.slice(0, 2), '--out', 'split.png'), { cwd, env: onTerminal }),
    ])
    expect(terminal.stdout).toBe(
      'A cat[2J.\n[image/png, 4 bytes; -o json has them]\n[link cat one: https://cats.example.com/1]\n',
    )
    const parts = [
      { text: 'A cat\u001b[2J.' },
      { raw: png, mediaType: 'image/png' },
      { url: 'https://cats.example.com/1', filename: 'cat one' },
    ]
    expect(JSON.parse(json.stdout)).toMatchObject({ result: { parts }, task_id: null })
    expect(JSON.parse(saved.stdout)).toMatchObject({ result: { file: 'parts.json' }, task_id: null })
    expect(JSON.parse(await readFile(join(cwd, 'parts.json'), 'utf8'))).toMatchObject({ parts })
    // The only part is the file.
    expect(image).toEqual({ code: 0, stdout: '', stderr: 'The result is in cat.png.\n' })
    expect([...(await readFile(join(cwd, 'cat.png')))]).toEqual([0x89, 0x50, 0x4e, 0x47])
    // The only one with bytes.
    expect(split).toEqual({ code: 0, stdout: 'A cat[2J.\n', stderr: 'Its bytes are in split.png.\n' })
    expect([...(await readFile(join(cwd, 'split.png')))]).toEqual([0x89, 0x50, 0x4e, 0x47])
  })
})

describe('convoke servers', () => {
  test('--timeout is for each server: the others are shown', async () => {
    const server = await stdioServer()
    const hanging = { command: process.execPath, args: ['-e', 'setInterval(() => {}, 1e6)'] }
    const cwd = await folderWith({ mcpServers: { hanging, srv: server.options } })
    const [servers, tools, one] = await Promise.all([
      convoke(['servers', '--timeout', '6s'], { cwd }),
      convoke(['tools', '--timeout', '6s'], { cwd }),
      convoke(['tools', 'hanging', '--timeout', '3s'], { cwd }),
    ])
    expect(servers.code).toBe(0)
    expect(servers.stdout).toMatch(/^hanging +down +stdio +- +- +-\nsrv +up /m)
    expect(servers.stdout).toContain('\nhanging: There was no answer within 6 s. (timeout)\n')
    expect(tools).toMatchObject({ code: 0, stderr: 'hanging: There was no answer within 6 s. (timeout)\n' })
    expect(tools.stdout).toContain('srv.echo(')
    expect(one.code).toBe(5)
    expect(one.stderr).not.toContain('task list')
  })

  test('shows how each server is, and --check fails if one cannot be started', async () => {
    const server = await stdioServer()
    const mcpServers = { srv: server.options, broken, off: { ...broken, disabled: true } }
    const cwd = await folderWith({ mcpServers })
    const [json, text] = await Promise.all([
      convoke(['servers', '--check', '-o', 'json'], { cwd }),
      convoke(['servers'], { cwd }),
    ])
    expect(json.code).toBe(1)
    expect(JSON.parse(json.stdout)).toMatchObject([
      { server: 'srv', state: 'up', transport: 'stdio', name: 'test-server', version: '1.2.3', error: null },
      { server: 'broken', state: 'down', tools: null, error: { code: 'unavailable' } },
      { server: 'off', state: 'disabled', error: null },
    ])
    expect(text.code).toBe(0)
    expect(text.stdout).toMatch(
      /^SERVER +STATE +OVER +NAME +TOOLS +READY\nsrv +up +stdio +test-server 1\.2\.3 +\d+ +\d+ ms\n/,
    )
    expect(text.stdout).toMatch(/^broken: .*there is no program/m)
  })
})
