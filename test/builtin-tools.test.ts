// The builtin tools, through a node: real files, links, pipes, processes and servers.
import { spawn, spawnSync } from 'node:child_process'
import { once } from 'node:events'
import { createServer, type RequestListener } from 'node:http'
import type { AddressInfo } from 'node:net'
import {
  chmod,
  link,
  mkdir,
  open,
  readdir,
  readFile,
  rename,
  stat,
  symlink,
  truncate,
  writeFile,
} from 'node:fs/promises'
import { dirname, join } from 'node:path'
import { gzipSync } from 'node:zlib'
import {
  ConvokeError,
  createNode,
  defineTool,
  loadConfig,
  type BuiltinSettings,
  type Content,
  type JsonObject,
  type Node,
} from 'convoke'
import { describe, expect, test } from 'vitest'
import { Workspace } from '../dist/tools/builtin/workspace.js'
import { cleanup, deferred, startNode, temporaryFolder, until, within } from './support/lifetime.ts'

interface Desk {
  readonly node: Node
  /** The workspace. */
  readonly root: string
  /** A folder beside it, with a file `secret.txt`. */
  readonly outside: string
  readonly call: (name: string, params?: unknown) => Promise<JsonObject>
  /** What the call fails with; its message names nothing outside of the workspace. */
  readonly failure: (name: string, params?: unknown) => Promise<ConvokeError>
}

/** A node with all builtin tools over a workspace of its own. */
async function openDesk(settings: Partial<BuiltinSettings> = {}): Promise<Desk> {
  const folder = await temporaryFolder()
  const root = join(folder, 'workspace')
  const outside = join(folder, 'outside')
  await mkdir(root)
  await mkdir(outside)
  await writeFile(join(outside, 'secret.txt'), 'a secret\n')
  const node = await startNode({
    baseDir: folder,
    builtin: { tools: ['*'], root: './workspace', commands: [process.execPath], ...settings },
  })
  return {
    node,
    root,
    outside,
    call: async (name, params) => (await within(node.tools.call(name, params), name)) as JsonObject,
    async failure(name, params) {
      const error = await within(
        node.tools.call(name, params).then(
          (result) => Promise.reject(new Error(`${name} did not fail: ${JSON.stringify(result)}`)),
          (thrown: unknown) => thrown,
        ),
        `${name} to fail`,
      )
      if (!(error instanceof ConvokeError)) throw error
      expect(error.message).not.toContain(folder)
      expect(error.message).not.toContain('/proc/')
      return error
    },
  }
}

async function put(root: string, path: string, content: string | Uint8Array): Promise<void> {
  await mkdir(dirname(join(root, path)), { recursive: true })
  await writeFile(join(root, path), content)
}

async function collect<Item>(items: AsyncIterable<Item>): Promise<Item[]> {
  const collected: Item[] = []
  for await (const item of items) collected.push(item)
  return collected
}

/** What must be a text. */
function text(value: unknown): string {
  if (typeof value !== 'string') throw new TypeError(`There is no text but ${JSON.stringify(value)}.`)
  return value
}

const all = [
  'read_file',
  'write_file',
  'edit_file',
  'list_directory',
  'search_files',
  'run_command',
  'http_fetch',
] as const

describe('which there are', () => {
  test('none, unless they are named', async () => {
    const plain = await startNode()
    expect(plain.tools.list()).toEqual([])
    const some = await startNode({ baseDir: await temporaryFolder(), builtin: { tools: ['http_fetch', 'read_file'] } })
    expect(some.tools.list().map(({ name }) => name)).toEqual(['read_file', 'http_fetch'])
  })

  test('all of them say what they take and give, and are of the category builtin', async () => {
    const { node } = await openDesk()
    const tools = node.tools.list({ category: 'builtin' })
    expect(tools.map(({ name }) => name)).toEqual([...all])
    for (const tool of tools) {
      expect(tool.output, tool.name).toBeDefined()
      expect(tool.input['additionalProperties'], tool.name).toBe(false)
      expect(tool.description.length, tool.name).toBeGreaterThan(80)
    }
    expect(tools.filter(({ traits }) => traits.readOnly).map(({ name }) => name)).toEqual([
      'read_file',
      'list_directory',
      'search_files',
    ])
    expect(node.warnings).toEqual([])
  })

  test('those that write are told of where they could change the node itself', async () => {
    const baseDir = await temporaryFolder()
    await mkdir(join(baseDir, 'work'))
    const warningsOf = async (builtin: object): Promise<readonly string[]> =>
      (await startNode({ baseDir, logLevel: 'silent', builtin })).warnings
    const sentence = /^write_file and edit_file can change the node's own configuration, .* builtin\.root is/
    expect(await warningsOf({ tools: ['*'] })).toEqual([expect.stringMatching(sentence)])
    expect(await warningsOf({ tools: ['write_file'], root: '..' })).toHaveLength(1)
    expect(await warningsOf({ tools: ['write_file', 'edit_file'], root: 'work' })).toEqual([])
    expect(await warningsOf({ tools: ['read_file', 'search_files'] })).toEqual([])
  })

  test('a name that is none, and a root that is no folder, are told before the node starts', async () => {
    const agent = { id: 'alice' }
    const wrong = { tools: ['read_fil'] } as unknown as BuiltinSettings
    await expect(createNode({ agent, builtin: wrong })).rejects.toThrow('did you mean read_file?')
    await expect(createNode({ agent, builtin: { tools: ['read_file'], publish: ['run_command'] } })).rejects.toThrow(
      'builtin.publish has "run_command"',
    )
    await expect(createNode({ agent, builtin: { tools: ['read_file'], root: './no-such' } })).rejects.toMatchObject({
      code: 'config',
      message: expect.stringContaining('builtin.root must be a folder that exists') as string,
    })
  })

  test('limits and hosts that make no sense are told, too', async () => {
    const agent = { id: 'alice' }
    const tools = ['http_fetch'] as const
    for (const builtin of [{ maxBytes: 0 }, { maxBytes: NaN }, { timeoutMs: 2 ** 31 }, { hosts: ['https://a.b'] }]) {
      const made = createNode({ agent, builtin: { tools, ...builtin } })
      await expect(made).rejects.toThrow(`builtin.${Object.keys(builtin).join()} must`)
    }
    const folder = await temporaryFolder()
    await mkdir(join(folder, 'workspace'))
    await writeFile(
      join(folder, 'convoke.yaml'),
      `agent: { id: alice }
builtin:
  tools: ["*"]
  root: ./workspace
  commands: [git]
  hosts: [api.example.com, "*.example.org", "::1"]
  publish: [read_file]
skills: { dirs: [./skills], builtin: false, only: [a-b] }
`,
    )
    const { options } = await loadConfig(join(folder, 'convoke.yaml'))
    const node = await createNode({ ...options, store: { url: ':memory:' }, logLevel: 'silent' })
    cleanup(() => node.stop())
    expect(node.tools.list().map(({ name }) => name)).toEqual([...all, 'list_skills', 'load_skill'])
    await writeFile(
      join(folder, 'wrong.yaml'),
      `agent: { id: alice }
builtin: { tools: [read], hosts: ["a.b:80"], command: [git], maxBytes: 0 }
`,
    )
    const problems = await loadConfig(join(folder, 'wrong.yaml')).catch((error: unknown) => (error as Error).message)
    expect(
      text(problems)
        .replaceAll(/^.*wrong.yaml:/gm, '')
        .split('\n'),
    ).toEqual([
      '2:20: builtin.tools[0] must be one of read_file, write_file, edit_file, list_directory, search_files, run_command, http_fetch and *, but it is "read".',
      '2:35: builtin.hosts[0] must be a host name such as api.example.com or *.example.org, without a scheme, a port or a path, but it is "a.b:80".',
      '2:46: builtin.command is an unknown key; did you mean commands?',
      '2:72: builtin.maxBytes must be a whole number of bytes from 1 to 67108864, but it is 0.',
    ])
  })

  test('a tool of a module whose name is taken by one is skipped with a warning', async () => {
    const folder = await temporaryFolder()
    await writeFile(
      join(folder, 'own.mjs'),
      `import { defineTool } from ${JSON.stringify(new URL('../dist/tools/define.js', import.meta.url).href)}
       const tool = (name) => defineTool({ name, description: name, input: { type: 'object' }, run: () => 'own' })
       export const tools = [tool('read_file'), tool('other')]`,
    )
    const node = await startNode({
      baseDir: folder,
      builtin: { tools: ['read_file'] },
      tools: [{ module: './own.mjs' }],
    })
    expect(node.tools.list().map(({ name }) => name)).toEqual(['other', 'read_file'])
    expect(node.warnings).toEqual(['There is a tool "read_file" already; the one of a module was skipped.'])
    await expect(node.tools.call('read_file', { path: 'own.mjs' })).resolves.toMatchObject({ path: 'own.mjs' })
  })

  test('none is published unless it is listed, and a peer can call those that are', async () => {
    const { node, root, outside } = await openDesk({ publish: ['read_file'] })
    await put(root, 'a.txt', 'for all\n')
    const skills = (node.card()['skills'] ?? []) as { id: string }[]
    expect(skills.map(({ id }) => id)).toEqual(['tool-read_file'])
    const peer = await startNode({ agent: { id: 'bob' }, peers: { alice: { url: node.url } } })
    expect(await peer.tools.call('alice.read_file', { path: 'a.txt' })).toMatchObject({ text: 'for all\n' })
    await put(root, 'a.png', new Uint8Array([0x89, 0]))
    const picture = (await peer.tools.call('alice.read_file', { path: 'a.png' })) as Content
    expect(picture.parts).toMatchObject([{ data: { size: 2 } }, { raw: 'iQA=', mediaType: 'image/png' }])
    await expect(peer.tools.call('alice.write_file', { path: 'a.txt', content: '' })).rejects.toMatchObject({
      code: 'not_found',
    })
    const stranger = await peer.tools.call('alice.read_file', { path: join(outside, 'secret.txt') }).catch(String)
    expect(stranger).toContain('leads out of the workspace')
    expect(await readFile(join(root, 'a.txt'), 'utf8')).toBe('for all\n')
  })

  test('what the node does not publish is refused on the wire, too', async () => {
    const { node, root } = await openDesk()
    const response = await fetch(node.url, {
      method: 'POST',
      headers: { 'content-type': 'application/json', 'a2a-version': '1.0' },
      body: JSON.stringify({
        jsonrpc: '2.0',
        id: 1,
        method: 'SendMessage',
        params: {
          message: {
            messageId: 'm1',
            role: 'ROLE_USER',
            parts: [{ text: 'Write.' }],
            metadata: { _tool_call: { name: 'write_file', params: { path: 'x', content: 'x' } } },
          },
        },
      }),
    })
    expect(await response.text()).toContain('not_found')
    expect(await readdir(root)).toEqual([])
  })
})

describe('paths', () => {
  const everyTool: [string, (path: string) => JsonObject][] = [
    ['read_file', (path) => ({ path })],
    ['write_file', (path) => ({ path, content: 'x' })],
    ['edit_file', (path) => ({ path, edits: [{ old: 'a', new: 'b' }] })],
    ['list_directory', (path) => ({ path })],
    ['search_files', (path) => ({ path, text: 'secret' })],
    ['run_command', (cwd) => ({ program: process.execPath, args: ['-e', '0'], cwd })],
  ]

  test.each(everyTool)('%s stays inside of the workspace', async (name, params) => {
    const { failure, root, outside } = await openDesk()
    await symlink(outside, join(root, 'out'))
    await symlink(join(outside, 'secret.txt'), join(root, 'secret'))
    await symlink('../outside', join(root, 'out-relative'))
    await symlink(join(outside, 'new'), join(root, 'dangling'))
    const targets = ['..', '../outside', 'a/../../outside', outside, join(outside, 'secret.txt'), '/etc/passwd', '/']
    for (const path of targets) expect((await failure(name, params(path))).code, path).toBe('forbidden')
    for (const path of ['out', 'secret', 'out-relative', 'out/secret.txt', 'out/new/deep.txt']) {
      expect(['forbidden', 'invalid_params', 'not_found'], path).toContain((await failure(name, params(path))).code)
    }
    expect((await failure(name, params('a\0b'))).code).toBe('invalid_params')
    expect((await failure(name, params('x'.repeat(5000)))).code).toBe('invalid_params')
    expect((await failure(name, params('x'.repeat(300)))).code).toBe('invalid_params')
    await failure(name, params('dangling'))
    await failure(name, params('dangling/x'))
    expect(await readdir(outside)).toEqual(['secret.txt'])
    expect(await readFile(join(outside, 'secret.txt'), 'utf8')).toBe('a secret\n')
  })

  test('links that stay inside are followed, and absolute paths that do are taken', async () => {
    const { call, root, failure } = await openDesk()
    await put(root, 'a/b.txt', 'inside\n')
    await symlink('a', join(root, 'to-folder'))
    await symlink(join(root, 'a', 'b.txt'), join(root, 'to-file'))
    await symlink('round', join(root, 'round'))
    for (const path of ['to-folder/b.txt', 'to-file', './a//b.txt', join(root, 'a', 'b.txt')]) {
      expect((await call('read_file', { path }))['text'], path).toBe('inside\n')
    }
    await call('write_file', { path: 'to-file', content: 'written\n' })
    expect(await readFile(join(root, 'a/b.txt'), 'utf8')).toBe('written\n')
    expect(
      (await readdir(root, { withFileTypes: true })).find(({ name }) => name === 'to-file')?.isSymbolicLink(),
    ).toBe(true)
    expect((await failure('read_file', { path: 'round' })).code).toBe('forbidden')
  })

  test('a root that is reached by a link is a root like any other', async () => {
    const folder = await temporaryFolder()
    await mkdir(join(folder, 'real'))
    await symlink('real', join(folder, 'root'))
    await writeFile(join(folder, 'real', 'a.txt'), 'here')
    const node = await startNode({ baseDir: folder, builtin: { tools: ['read_file'], root: 'root' } })
    expect(await node.tools.call('read_file', { path: 'a.txt' })).toMatchObject({ text: 'here' })
  })

  test('where the system cannot tell where an open file is, paths are looked at before and behind', async () => {
    const { call, failure, root, outside } = await openDesk()
    const platform = process.platform
    Object.defineProperty(process, 'platform', { value: 'darwin' })
    cleanup(() => Object.defineProperty(process, 'platform', { value: platform }))
    await put(root, 'a/b.txt', 'inside\n')
    await symlink(outside, join(root, 'out'))
    await symlink('a', join(root, 'in'))
    expect(await call('read_file', { path: 'in/b.txt' })).toMatchObject({ text: 'inside\n' })
    await call('write_file', { path: 'in/deep/c.txt', content: 'inside, too\n' })
    expect(await readFile(join(root, 'a/deep/c.txt'), 'utf8')).toBe('inside, too\n')
    const found = await call('search_files', { regex: 'inside|secret' })
    expect((found['matches'] as { path: string }[]).map(({ path }) => path)).toEqual(['a/b.txt', 'a/deep/c.txt'])
    expect((await call('list_directory', { path: 'in' }))['entries']).toHaveLength(2)
    for (const path of ['out', 'out/secret.txt', '../outside/secret.txt']) {
      expect((await failure('read_file', { path })).code).toBe('forbidden')
      expect((await failure('write_file', { path, content: 'x' })).code).toBe('forbidden')
      expect((await failure('list_directory', { path })).code).toBe('forbidden')
    }
    expect(await readdir(outside)).toEqual(['secret.txt'])
  })

  test('pipes, sockets, devices and folders are refused at once', async () => {
    const { failure, call, root } = await openDesk()
    expect(spawnSync('sh', ['-c', 'mkfifo pipe'], { cwd: root }).status).toBe(0)
    const server = createServer()
    server.listen(join(root, 'socket'))
    await once(server, 'listening')
    cleanup(() => new Promise((resolve) => server.close(resolve)))
    await mkdir(join(root, 'folder'))
    for (const path of ['pipe', 'socket', 'folder', '.']) {
      for (const [name, more] of [
        ['read_file', {}],
        ['edit_file', { edits: [{ old: 'a', new: 'b' }] }],
        ['write_file', { content: 'x' }],
      ] as const) {
        expect((await failure(name, { path, ...more })).code, `${name} ${path}`).toBe('invalid_params')
      }
    }
    expect((await stat(join(root, 'pipe'))).isFIFO()).toBe(true)
    const { entries } = await call('list_directory')
    expect(entries).toEqual([
      { path: 'folder', type: 'directory' },
      { path: 'pipe', type: 'other' },
      { path: 'socket', type: 'other' },
    ])
    expect(await call('search_files', { text: 'x' })).toMatchObject({ matches: [], files: 0 })
  })

  test('a folder that becomes a link while paths are followed leads nowhere', async () => {
    const { node, root, outside } = await openDesk()
    await put(root, 'real/secret.txt', 'harmless\n')
    await symlink(outside, join(root, 'trap'))
    await rename(join(root, 'real'), join(root, 'swapped'))
    // A process of its own swaps as fast as it can: in this one it would never come in between two calls of a tool.
    const swapper = new SwapProcess(root)
    cleanup(() => swapper.stop())
    await swapper.running
    const seen = { inside: 0, refused: 0 }
    const results: unknown[] = []
    for (let i = 0; i < 3000 && (seen.inside < 15 || seen.refused < 15); i++) {
      const [read, , listed, found] = await Promise.all([
        node.tools.tryCall('read_file', { path: 'swapped/secret.txt' }),
        node.tools.tryCall('write_file', { path: `swapped/new-${i % 10}.txt`, content: 'x' }),
        node.tools.tryCall('list_directory', { path: 'swapped' }),
        node.tools.tryCall('search_files', { path: '.', text: 'a secret' }),
      ])
      if (read.success) seen.inside++
      else seen.refused++
      results.push(read, listed, found)
    }
    await swapper.stop()
    expect(Math.min(seen.inside, seen.refused)).toBeGreaterThanOrEqual(15)
    expect(JSON.stringify(results)).not.toContain('a secret')
    expect(await readdir(outside)).toEqual(['secret.txt'])
    expect(await readFile(join(outside, 'secret.txt'), 'utf8')).toBe('a secret\n')
  })
})

/** Swaps the folder `swapped` and the link `trap` of a workspace without a pause. */
class SwapProcess {
  readonly running: Promise<unknown>
  readonly #child
  readonly #ended: Promise<unknown>

  constructor(root: string) {
    const program = `
      const { renameSync, rmSync, writeSync } = require('node:fs')
      process.chdir(${JSON.stringify(root)})
      // A tool that writes may have made a folder of that name in between.
      const put = (name) => {
        for (;;) {
          try { return renameSync(name, 'swapped') } catch {}
          try { rmSync('swapped', { recursive: true, force: true }) } catch {}
        }
      }
      writeSync(1, 'running')
      for (;;) {
        renameSync('swapped', 'aside'); put('trap')
        renameSync('swapped', 'trap'); put('aside')
      }`
    this.#child = spawn(process.execPath, ['-e', program], { stdio: ['ignore', 'pipe', 'inherit'] })
    this.#ended = once(this.#child, 'close')
    this.running = once(this.#child.stdout, 'data')
  }

  async stop(): Promise<void> {
    this.#child.kill('SIGKILL')
    await this.#ended
  }
}

describe('read_file', () => {
  test('gives lines from an offset on, as they are, and where to go on', async () => {
    const { call, failure, root } = await openDesk()
    await put(root, 'a.txt', 'one\r\ntwo\nthree\n\nfünf')
    expect(await call('read_file', { path: 'a.txt' })).toEqual({
      path: 'a.txt',
      size: 21,
      text: 'one\r\ntwo\nthree\n\nfünf',
      first_line: 1,
      lines: 5,
    })
    const second = await call('read_file', { path: 'a.txt', offset: 2, limit: 2 })
    expect(second).toMatchObject({ text: 'two\nthree\n', first_line: 2, lines: 2, next_offset: 4 })
    const last = await call('read_file', { path: 'a.txt', offset: 5 })
    expect(last).toMatchObject({ text: 'fünf', lines: 1 })
    expect(last).not.toHaveProperty('next_offset')
    expect((await failure('read_file', { path: 'a.txt', offset: 6 })).message).toContain('has 5 lines')
    await put(root, 'b.txt', 'one\n')
    expect(await call('read_file', { path: 'b.txt' })).toMatchObject({ lines: 1, text: 'one\n' })
    expect((await failure('read_file', { path: 'b.txt', offset: 2 })).message).toContain('has 1 lines')
    await put(root, 'empty', '')
    expect(await call('read_file', { path: 'empty' })).toMatchObject({ size: 0, text: '', lines: 0 })
  })

  test('a file of any size is read in pieces that have a limit', async () => {
    const { call, root } = await openDesk({ maxBytes: 1000 })
    const lines = Array.from({ length: 30_000 }, (_, i) => `line ${i + 1} ä\n`)
    await put(root, 'long.txt', lines.join(''))
    let read = ''
    let offset: unknown = 29_000
    while (offset !== undefined) {
      const piece = await call('read_file', { path: 'long.txt', offset })
      expect(Buffer.byteLength(text(piece['text']))).toBeLessThanOrEqual(1000)
      read += text(piece['text'])
      offset = piece['next_offset']
    }
    expect(read).toBe(lines.slice(28_999).join(''))
  })

  test('a line that is larger than the limit, and bytes that are, are refused', async () => {
    const { failure, root } = await openDesk({ maxBytes: 1000 })
    await put(root, 'line.txt', `short\n${'x'.repeat(2000)}\n`)
    expect(await failure('read_file', { path: 'line.txt', offset: 2 })).toMatchObject({
      code: 'too_large',
      message: 'Line 2 of "line.txt" is longer than 1000 bytes.',
    })
    await put(root, 'huge.bin', new Uint8Array(10))
    await truncate(join(root, 'huge.bin'), 8 * 1024 ** 3)
    expect((await failure('read_file', { path: 'huge.bin' })).code).toBe('too_large')
  })

  test('a file that is no text comes back as bytes', async () => {
    const { node, root } = await openDesk()
    const bytes = Buffer.from([0x89, 0x50, 0x4e, 0x47, 0, 1, 2, 255])
    await put(root, 'a.png', bytes)
    await put(root, 'latin', Buffer.from([0x66, 0xfc, 0x6e, 0x66]))
    const picture = (await node.tools.call('read_file', { path: 'a.png' })) as Content
    expect(picture.parts).toEqual([
      { data: { path: 'a.png', size: 8, media_type: 'image/png' } },
      { raw: bytes.toString('base64'), mediaType: 'image/png', filename: 'a.png' },
    ])
    const latin = (await node.tools.call('read_file', { path: 'latin' })) as Content
    expect(latin.parts[1]).toMatchObject({ raw: 'ZvxuZg==', mediaType: 'application/octet-stream' })
  })

  test('what is not there, or closed to the node, is told in a sentence', async () => {
    const { failure, root } = await openDesk()
    expect(await failure('read_file', { path: 'none.txt' })).toMatchObject({
      code: 'not_found',
      message: 'The path "none.txt" does not exist in the workspace.',
    })
    await put(root, 'a.txt', 'x')
    expect((await failure('read_file', { path: 'a.txt/b' })).code).toBe('invalid_params')
    expect((await failure('read_file', { path: '' })).code).toBe('invalid_params')
    expect((await failure('read_file', {})).code).toBe('invalid_params')
  })
})

describe('write_file', () => {
  test('makes the file and its folders, and tells whether it was there', async () => {
    const { call, root } = await openDesk()
    const path = 'deep/er/file.txt'
    expect(await call('write_file', { path, content: 'fünf' })).toEqual({ path, bytes: 5, created: true })
    expect(await readFile(join(root, path), 'utf8')).toBe('fünf')
    expect(await call('write_file', { path, content: '' })).toEqual({ path, bytes: 0, created: false })
    await call('write_file', { path: 'b.bin', content: 'AAEC/w==', encoding: 'base64' })
    expect([...(await readFile(join(root, 'b.bin')))]).toEqual([0, 1, 2, 255])
  })

  test('keeps the mode, replaces in one step, and leaves nothing beside the file', async () => {
    const { call, root } = await openDesk()
    await put(root, 'run.sh', 'old')
    await chmod(join(root, 'run.sh'), 0o755)
    await link(join(root, 'run.sh'), join(root, 'other-name'))
    const before = await open(join(root, 'run.sh'))
    cleanup(() => before.close())
    await call('write_file', { path: 'run.sh', content: 'new' })
    expect((await stat(join(root, 'run.sh'))).mode & 0o777).toBe(0o755)
    // Whoever has it open reads the old file to its end, and another name of it is another file now.
    expect(await before.readFile('utf8')).toBe('old')
    expect(await readFile(join(root, 'other-name'), 'utf8')).toBe('old')
    expect((await readdir(root)).sort()).toEqual(['other-name', 'run.sh'])
  })

  test('refuses what is too large, what is no base64, and a path through a file', async () => {
    const { failure, root } = await openDesk({ maxBytes: 100 })
    await put(root, 'a.txt', 'x')
    expect((await failure('write_file', { path: 'b', content: 'ä'.repeat(51) })).code).toBe('too_large')
    expect((await failure('write_file', { path: 'b', content: '!!', encoding: 'base64' })).code).toBe('invalid_params')
    expect((await failure('write_file', { path: 'a.txt/b', content: '' })).code).toBe('invalid_params')
    expect(await readdir(root)).toEqual(['a.txt'])
  })

  test('many at once leave one of them, whole', async () => {
    const { call, root } = await openDesk()
    await Promise.all(
      Array.from({ length: 50 }, (_, i) => call('write_file', { path: 'a', content: `${i} `.repeat(5000) })),
    )
    const [first, ...others] = (await readFile(join(root, 'a'), 'utf8')).trim().split(' ')
    expect(others).toHaveLength(4999)
    expect(new Set(others)).toEqual(new Set([first]))
  })
})

describe('edit_file', () => {
  const numbers = 'one\ntwo\nthree\nfour\nfive\nsix\nseven\neight\nnine\nten\nfour\n'

  test('replaces exactly, in order, and shows the diff', async () => {
    const { call, root } = await openDesk()
    await put(root, 'a.txt', numbers)
    await chmod(join(root, 'a.txt'), 0o640)
    const edits = [
      { old: 'two\n', new: 'zwei\nzweieinhalb\n' },
      { old: 'zweieinhalb', new: '$& 2½' },
      { old: 'ten', new: 'zehn' },
    ]
    const edited = await call('edit_file', { path: 'a.txt', edits })
    expect(edited).toEqual({
      path: 'a.txt',
      replacements: 3,
      written: true,
      diff: [
        '--- a/a.txt',
        '+++ b/a.txt',
        '@@ -1,5 +1,6 @@',
        ' one',
        '-two',
        '+zwei',
        '+$& 2½',
        ' three',
        ' four',
        ' five',
        '@@ -7,5 +8,5 @@',
        ' seven',
        ' eight',
        ' nine',
        '-ten',
        '+zehn',
        ' four',
        '',
      ].join('\n'),
    })
    expect(await readFile(join(root, 'a.txt'), 'utf8')).toBe(
      numbers.replace('two\n', 'zwei\n$$& 2½\n').replace('ten', 'zehn'),
    )
    expect((await stat(join(root, 'a.txt'))).mode & 0o777).toBe(0o640)
  })

  test('the diff is one that patch takes', async () => {
    const { call, root } = await openDesk()
    const cases: [before: string, edits: { old: string; new: string; all?: boolean }[]][] = [
      [numbers, [{ old: 'four', new: 'vier\nvier', all: true }]],
      [numbers, [{ old: numbers, new: 'gone' }]],
      ['no end', [{ old: 'end', new: 'end\n' }]],
      [
        'a\nb\nc\nb\na\n',
        [
          { old: 'b\nc', new: 'c' },
          { old: 'b\na', new: 'a\nb' },
        ],
      ],
      [
        'x\n'.repeat(50) + 'y\n' + 'x\n'.repeat(7) + 'z',
        [
          { old: 'y\n', new: '' },
          { old: 'z', new: 'Z' },
        ],
      ],
    ]
    for (const [before, edits] of cases) {
      await put(root, 'a.txt', before)
      const { diff } = await call('edit_file', { path: 'a.txt', edits })
      const after = await readFile(join(root, 'a.txt'), 'utf8')
      await put(root, 'patched/a.txt', before)
      const patched = spawnSync('git', ['apply', '--unsafe-paths', '--directory=patched', '-'], {
        cwd: root,
        input: text(diff),
        encoding: 'utf8',
        env: { PATH: process.env['PATH'], GIT_DIR: '/nonexistent' },
      })
      expect(patched.stderr).toBe('')
      expect(await readFile(join(root, 'patched/a.txt'), 'utf8')).toBe(after)
    }
  })

  test('changes nothing when one edit does not fit, and says which', async () => {
    const { failure, call, root } = await openDesk()
    await put(root, 'a.txt', numbers)
    const good = { old: 'one', new: '1' }
    const missing = await failure('edit_file', { path: 'a.txt', edits: [good, { old: 'eleven', new: '' }] })
    expect(missing).toMatchObject({ code: 'invalid_params', issues: [{ path: '/edits/1/old' }] })
    expect(missing.message).toBe('The `old` of edit 2, "eleven", does not stand in the file. Nothing was changed.')
    const several = await failure('edit_file', { path: 'a.txt', edits: [good, { old: 'four', new: '4' }] })
    expect(several.message).toContain('stands in the file 2 times')
    expect((await failure('edit_file', { path: 'a.txt', edits: [] })).code).toBe('invalid_params')
    expect((await failure('edit_file', { path: 'a.txt', edits: [{ old: '', new: 'x' }] })).code).toBe('invalid_params')
    expect((await failure('edit_file', { path: 'b.txt', edits: [good] })).code).toBe('not_found')
    expect(await readFile(join(root, 'a.txt'), 'utf8')).toBe(numbers)
    expect(await call('edit_file', { path: 'a.txt', edits: [{ old: 'four', new: '4', all: true }] })).toMatchObject({
      replacements: 2,
    })
  })

  test('a dry run writes nothing', async () => {
    const { call, root } = await openDesk()
    await put(root, 'a.txt', numbers)
    const before = await stat(join(root, 'a.txt'))
    const edits = [{ old: 'one', new: '1' }]
    const dry = await call('edit_file', { path: 'a.txt', edits, dry_run: true })
    expect(dry).toMatchObject({ written: false, diff: expect.stringContaining('-one\n+1\n') as string })
    expect(await readFile(join(root, 'a.txt'), 'utf8')).toBe(numbers)
    expect((await stat(join(root, 'a.txt'))).ino).toBe(before.ino)
  })

  test('refuses bytes, what is too large, and what would become so', async () => {
    const { failure, root } = await openDesk({ maxBytes: 1000 })
    await put(root, 'a.bin', new Uint8Array([97, 0, 98]))
    await put(root, 'latin', Buffer.from([97, 0xfc]))
    await put(root, 'large', 'a'.repeat(1001))
    await put(root, 'bomb', 'a'.repeat(900))
    const edits = [{ old: 'a', new: 'b'.repeat(500), all: true }]
    expect((await failure('edit_file', { path: 'a.bin', edits })).message).toContain('is no UTF-8 text')
    expect((await failure('edit_file', { path: 'latin', edits })).code).toBe('invalid_params')
    expect((await failure('edit_file', { path: 'large', edits })).code).toBe('too_large')
    expect((await failure('edit_file', { path: 'bomb', edits })).code).toBe('too_large')
  })

  test('what somebody else has changed meanwhile is not written over', async () => {
    const root = await temporaryFolder()
    const workspace = new Workspace(root, 'root')
    await put(root, 'a.txt', 'old')
    const { handle, stats } = await workspace.openFile('a.txt')
    await handle.close()
    await put(root, 'a.txt', 'new one')
    await expect(workspace.replace('a.txt', Buffer.from('mine'), stats)).rejects.toMatchObject({ code: 'conflict' })
    expect(await readFile(join(root, 'a.txt'), 'utf8')).toBe('new one')
    expect(await readdir(root)).toEqual(['a.txt'])
  })

  test('an edit that is stopped while it waits for its turn is not made', async () => {
    const root = await temporaryFolder()
    const workspace = new Workspace(root, 'root')
    const first = deferred()
    const controller = new AbortController()
    const done: string[] = []
    const turns = [
      workspace.inTurn(controller.signal, () => first.promise.then(() => done.push('first'))),
      workspace.inTurn(controller.signal, () => Promise.resolve(done.push('second'))),
      workspace.inTurn(new AbortController().signal, () => Promise.resolve(done.push('third'))),
    ]
    const outcomes = Promise.allSettled(turns)
    // The first has begun when its turn of the event loop has come.
    await new Promise(setImmediate)
    controller.abort()
    first.resolve()
    expect((await outcomes).map(({ status }) => status)).toEqual(['fulfilled', 'rejected', 'fulfilled'])
    expect(done).toEqual(['first', 'third'])
  })

  test('of many at once none is lost, and a byte order mark and line ends stay', async () => {
    const { call, root } = await openDesk()
    const marks = Array.from({ length: 40 }, (_, i) => `<${i}>`)
    await put(root, 'a.txt', `\uFEFF${marks.join('\r\n')}`)
    await Promise.all(marks.map((old) => call('edit_file', { path: 'a.txt', edits: [{ old, new: `${old}!` }] })))
    expect(await readFile(join(root, 'a.txt'), 'utf8')).toBe(`\uFEFF${marks.map((mark) => `${mark}!`).join('\r\n')}`)
  })
})

describe('list_directory', () => {
  test('lists by name, with sizes, as deep as it is told', async () => {
    const { call, root } = await openDesk()
    await put(root, 'b/c/d.txt', 'four')
    await put(root, 'a.txt', 'x')
    await put(root, '.hidden', '')
    await symlink('a.txt', join(root, 'z'))
    const flat = [
      { path: 'a.txt', type: 'file', size: 1 },
      { path: 'b', type: 'directory' },
      { path: 'z', type: 'link' },
    ]
    expect(await call('list_directory')).toEqual({ path: '.', entries: flat, truncated: false })
    const deep = await call('list_directory', { depth: 3, hidden: true })
    expect((deep['entries'] as { path: string }[]).map(({ path }) => path)).toEqual([
      '.hidden',
      'a.txt',
      'b',
      'b/c',
      'b/c/d.txt',
      'z',
    ])
    expect(await call('list_directory', { path: 'b/c' })).toMatchObject({
      entries: [{ path: 'b/c/d.txt', type: 'file', size: 4 }],
    })
  })

  test('gives no more than it is asked for, and says so', async () => {
    const { call, root, failure } = await openDesk()
    for (let i = 0; i < 20; i++) await put(root, `f${i}`, '')
    const cut = await call('list_directory', { limit: 7 })
    expect(cut['entries']).toHaveLength(7)
    expect(cut['truncated']).toBe(true)
    expect(await call('list_directory', { limit: 20 })).toMatchObject({ truncated: false })
    expect((await failure('list_directory', { path: 'f1' })).code).toBe('invalid_params')
    expect((await failure('list_directory', { path: 'none' })).code).toBe('not_found')
  })
})

describe('search_files', () => {
  async function desk(): Promise<Desk> {
    const opened = await openDesk()
    const { root, outside } = opened
    await put(root, 'src/a.ts', 'const one = 1\nconst Two = 2\r\n')
    await put(root, 'src/deep/b.js', 'let two = 2')
    await put(root, 'notes.md', 'one two three\nTWO\n')
    await put(root, 'node_modules/x/i.js', 'one')
    await put(root, '.git/config', 'one')
    await put(root, '.env', 'one')
    await put(root, 'a.bin', Buffer.from('one\0two'))
    await symlink(outside, join(root, 'out'))
    return opened
  }
  const paths = (result: JsonObject): string[] => (result['matches'] as { path: string }[]).map(({ path }) => path)

  test('finds lines by text and by regular expression, with or without their case', async () => {
    const { call } = await desk()
    expect(await call('search_files', { text: 'Two' })).toEqual({
      matches: [{ path: 'src/a.ts', line: 2, text: 'const Two = 2' }],
      files: 4,
      skipped: 0,
      truncated: false,
    })
    expect(paths(await call('search_files', { text: 'two', ignore_case: true }))).toEqual([
      'notes.md',
      'notes.md',
      'src/a.ts',
      'src/deep/b.js',
    ])
    expect(paths(await call('search_files', { regex: '^(const|let) \\w+ = 2$' }))).toEqual([
      'src/a.ts',
      'src/deep/b.js',
    ])
    expect(paths(await call('search_files', { regex: '^TWO', ignore_case: true, name: '*.md' }))).toEqual(['notes.md'])
  })

  test.each([
    ['*.ts', ['src/a.ts']],
    ['*.{ts,js}', ['src/a.ts', 'src/deep/b.js']],
    ['src/**/*.js', ['src/deep/b.js']],
    ['src/**/*.ts', ['src/a.ts']],
    ['src/*', ['src/a.ts']],
    ['**/b.*', ['src/deep/b.js']],
    ['[an]*.[!b]*', ['notes.md', 'src/a.ts']],
    ['?.ts', ['src/a.ts']],
    ['a.+', []],
    ['\\*.ts', []],
  ])('finds files by the glob %s', async (name, expected) => {
    const { call } = await desk()
    expect(paths(await call('search_files', { name }))).toEqual(expected)
  })

  test('looks into hidden files and node_modules only when asked, and never through links', async () => {
    const { call } = await desk()
    expect(paths(await call('search_files', { text: 'one' }))).toEqual(['notes.md', 'src/a.ts'])
    expect(paths(await call('search_files', { text: 'one', everything: true }))).toEqual([
      '.env',
      '.git/config',
      'node_modules/x/i.js',
      'notes.md',
      'src/a.ts',
    ])
    expect(paths(await call('search_files', { text: 'a secret', everything: true }))).toEqual([])
    expect(paths(await call('search_files', { name: '*.js', depth: 1 }))).toEqual([])
  })

  test('gives matches as they are found, no more than asked for, and counts what it left out', async () => {
    const { node, root } = await openDesk({ maxBytes: 1000 })
    await put(root, 'a', 'x\n'.repeat(30))
    await put(root, 'b', 'x\n'.repeat(30))
    await put(root, 'large', 'x'.repeat(1001))
    const events = await collect(node.tools.stream('search_files', { text: 'x', limit: 40 }))
    const chunks = events.filter(({ type }) => type === 'chunk')
    expect(chunks).toHaveLength(40)
    const last = events.at(-1)
    expect(last).toMatchObject({ type: 'result', result: { files: 2, truncated: true } })
    expect(await node.tools.call('search_files', { text: 'y' })).toMatchObject({
      files: 3,
      skipped: 1,
      truncated: false,
    })
  })

  test('refuses a search for nothing, and patterns that are wrong or would take too long', async () => {
    const { failure, root } = await openDesk()
    await put(root, 'a', 'x')
    expect((await failure('search_files')).message).toContain('`name`, `text` or `regex`')
    expect((await failure('search_files', { text: 'a', regex: 'a' })).code).toBe('invalid_params')
    for (const regex of ['(', '(?=a)', '(a)\\1', 'x{1000}'.repeat(20)]) {
      expect((await failure('search_files', { regex })).message, regex).toContain('cannot be used')
    }
    for (const name of ['[z-a]', '{'.repeat(3), '{a,b']) {
      expect((await failure('search_files', { name })).code, name).toBe('invalid_params')
    }
  })

  test('a pattern that blows up elsewhere takes no time, and a search can be stopped', async () => {
    const { node, root, call } = await openDesk()
    await put(root, 'a', `${'a'.repeat(9000)}!\n`.repeat(100))
    expect(await call('search_files', { regex: '^(a+)+$' })).toMatchObject({ matches: [] })
    for (let i = 0; i < 30; i++) await put(root, `many/${i}`, 'y\n'.repeat(100_000))
    const controller = new AbortController()
    const search = node.tools.stream('search_files', { path: 'many', regex: 'y(x|y)*' }, { signal: controller.signal })
    await search.next()
    controller.abort()
    await expect(collect(search)).rejects.toMatchObject({ code: 'canceled' })
  })
})

describe('run_command', () => {
  const program = process.execPath
  const script = (code: string): { program: string; args: string[] } => ({ program, args: ['-e', code] })

  /** Whether a process runs; one that has ended and that nobody has asked for its end does not. */
  async function runs(pid: number): Promise<boolean> {
    const status = await readFile(`/proc/${pid}/stat`, 'utf8').catch(() => '')
    return status !== '' && !/\) [ZX] /.test(status)
  }

  test('gives what the program said, and how it ended', async () => {
    const { call, root } = await openDesk()
    await mkdir(join(root, 'sub'))
    const said = await call('run_command', {
      ...script('console.log(process.cwd(), process.argv[1]); console.error("oh"); process.exitCode = 3'),
      cwd: 'sub',
    })
    expect(said).toMatchObject({ exit_code: 3, signal: null, timed_out: false, stderr: 'oh\n', truncated: false })
    expect(said['stdout']).toBe(`${join(root, 'sub')} undefined\n`)
    expect(await call('run_command', script('process.kill(process.pid, "SIGKILL")'))).toMatchObject({
      exit_code: null,
      signal: 'SIGKILL',
    })
  })

  test('arguments reach the program as they are, and no shell sees them', async () => {
    const { call, root } = await openDesk()
    const args = ['$HOME', '*', '; touch evil', '$(touch evil)', '', 'a b', '"', '`id`']
    const code = 'process.stdout.write(JSON.stringify(process.argv.slice(1)))'
    const { stdout } = await call('run_command', { program, args: ['-e', code, '--', ...args] })
    expect(JSON.parse(text(stdout))).toEqual(args)
    expect(await readdir(root)).toEqual([])
  })

  test('the program reads what it is given, or nothing', async () => {
    const { call } = await openDesk()
    const cat = script('process.stdin.pipe(process.stdout)')
    expect(await call('run_command', { ...cat, stdin: 'fünf\n'.repeat(10_000) })).toMatchObject({
      stdout: 'fünf\n'.repeat(10_000),
    })
    expect(await call('run_command', cat)).toMatchObject({ stdout: '', exit_code: 0 })
    const deaf = await call('run_command', { ...script('process.exit(0)'), stdin: 'x'.repeat(500_000) })
    expect(deaf).toMatchObject({ exit_code: 0 })
  })

  test('it gets a few harmless variables of the environment, and no other', async () => {
    process.env['BUILTIN_TEST_SECRET'] = 'a secret'
    cleanup(() => delete process.env['BUILTIN_TEST_SECRET'])
    const { call } = await openDesk()
    const { stdout } = await call('run_command', script('console.log(JSON.stringify(process.env))'))
    const environment = JSON.parse(text(stdout)) as Record<string, string>
    expect(environment['PATH']).toBe(process.env['PATH'])
    expect(environment).not.toHaveProperty('BUILTIN_TEST_SECRET')
    expect(Object.keys(environment).length).toBeLessThanOrEqual(12)
  })

  test('only programs that are allowed run, and none out of the workspace by a name', async () => {
    const { failure, call, root, node } = await openDesk({
      commands: ['node', 'no-such-program', './workspace/own.sh'],
    })
    expect(await failure('run_command', { program: 'sh', args: ['-c', 'id'] })).toMatchObject({
      code: 'forbidden',
      message: 'The program "sh" may not run here; these may: node, no-such-program, ./workspace/own.sh.',
    })
    for (const other of [program, './node', 'node ', '/bin/sh', 'workspace/own.sh']) {
      expect((await failure('run_command', { program: other })).code, other).toBe('forbidden')
    }
    expect((await failure('run_command', { program: 'no-such-program' })).code).toBe('not_found')
    expect((await failure('run_command', { program: './workspace/own.sh' })).code).toBe('not_found')
    await put(root, 'own.sh', '#!/bin/sh\necho own\n')
    await chmod(join(root, 'own.sh'), 0o755)
    expect(await call('run_command', { program: './workspace/own.sh' })).toMatchObject({ stdout: 'own\n' })
    await put(root, 'bin/node', '#!/bin/sh\necho trap\n')
    await chmod(join(root, 'bin/node'), 0o755)
    const path = process.env['PATH']
    process.env['PATH'] = `${join(root, 'bin')}:bin:.:${path}`
    cleanup(() => (process.env['PATH'] = path))
    const trapped = await startNode({ builtin: { tools: ['run_command'], root, commands: ['node'] } })
    expect(await trapped.tools.call('run_command', { program: 'node', args: ['-p', '1'], cwd: 'bin' })).toMatchObject({
      stdout: '1\n',
    })
    expect(node.registry.get('run_command')?.description).toContain('Programs: node, no-such-program')
  })

  test('without a list none may run; arguments that no program can take are refused', async () => {
    const { failure } = await openDesk({ commands: [] })
    expect((await failure('run_command', { program })).message).toContain('none may')
    const other = await openDesk()
    expect((await other.failure('run_command', { program, args: ['a\0b'] })).code).toBe('invalid_params')
    const endless = Array.from({ length: 50 }, () => 'x'.repeat(100_000))
    expect((await other.failure('run_command', { program, args: endless })).code).toBe('too_large')
    expect((await other.failure('run_command', { program, cwd: 'none' })).code).toBe('not_found')
  })

  test('what it says comes as it is said', async () => {
    const { node } = await openDesk()
    const code = 'console.log("one"); process.stdin.once("data", () => process.exit(0)); setInterval(() => {}, 1000)'
    const said = node.tools.stream('run_command', script(code))
    expect((await within(said.next(), 'the first line')).value).toEqual({
      type: 'chunk',
      chunk: { stream: 'stdout', text: 'one\n' },
    })
    await said.return()
  })

  test('what it says beyond the limit is left out, and does not hold it up', async () => {
    const { node, call } = await openDesk({ maxBytes: 1001 })
    const code = 'process.stdout.write("ä".repeat(1_000_000), () => console.error("end"))'
    const said = await call('run_command', script(code))
    expect(said).toMatchObject({ exit_code: 0, truncated: true, stderr: 'end\n' })
    expect(said['stdout']).toBe('ä'.repeat(500))
    const events = await collect(node.tools.stream('run_command', script(code)))
    const texts = events.flatMap((event) => (event.type === 'chunk' ? [(event.chunk as { text: string }).text] : []))
    expect(texts.join('')).toBe(`${'ä'.repeat(500)}end\n`)
  })

  test('a slow reader gets all of it', async () => {
    const { node } = await openDesk()
    // In pieces: when all places for them are taken, the rest waits in the pipe, and the program ends.
    const code = `
      let left = 100
      const timer = setInterval(() => {
        process.stdout.write('x'.repeat(300))
        if (--left === 0) clearInterval(timer)
      }, 5)`
    let length = 0
    const slow = deferred()
    for await (const event of node.tools.stream('run_command', script(code))) {
      if (length === 0) {
        // Longer than the program runs, and the node would wait for pipes that somebody else holds.
        setTimeout(slow.resolve, 2500)
        await slow.promise
      }
      if (event.type === 'chunk') length += (event.chunk as { text: string }).text.length
    }
    expect(length).toBe(30_000)
  })

  /** A program that starts another, which starts a third; all of them do not listen to SIGTERM. Says their ids. */
  const family = `
    const { spawn } = require('node:child_process')
    const depth = Number(process.argv[1] ?? 0)
    process.on('SIGTERM', () => {})
    console.log(process.pid)
    if (depth < 2) spawn(process.execPath, ['-e', process.env.CODE ?? process.execArgv[1], String(depth + 1)], { stdio: ['ignore', 'inherit', 'inherit'] })
    setInterval(() => {}, 1000)`

  async function readPids(stream: AsyncGenerator<unknown, void, void>, count: number): Promise<number[]> {
    let said = ''
    while (said.trim().split('\n').length < count || !said.endsWith('\n')) {
      const { value, done } = await within(stream.next(), 'the ids of the processes')
      if (done === true) throw new Error(`It ended: ${said}`)
      const { type, chunk } = value as { type: string; chunk: { text: string } }
      if (type === 'chunk') said += chunk.text
    }
    return said.trim().split('\n').map(Number)
  }

  test.each(['a cancel', 'a reader who leaves', 'a node that stops'])('%s leaves no process behind', async (how) => {
    const { node } = await openDesk({ publish: ['run_command'] })
    const controller = new AbortController()
    const { signal } = controller
    const peer = await startNode({ agent: { id: 'bob' }, peers: { alice: { url: node.url } } })
    const stream =
      how === 'a node that stops'
        ? peer.tools.stream('alice.run_command', script(family), { signal })
        : node.tools.stream('run_command', script(family), { signal })
    const pids = await readPids(stream, 3)
    expect(await Promise.all(pids.map(runs))).toEqual([true, true, true])
    const rest = how === 'a reader who leaves' ? stream.return().then(() => []) : collect(stream).catch(() => [])
    if (how === 'a cancel') controller.abort()
    if (how === 'a node that stops') await node.stop()
    await until(async () => (await Promise.all(pids.map(runs))).every((each) => !each), 'all three to be gone')
    controller.abort()
    await within(rest, 'the call to end')
  })

  test('one that takes too long is ended, with what it said so far', async () => {
    const { call, failure } = await openDesk({ timeoutMs: 60_000 })
    const code = 'console.log(process.pid); setInterval(() => {}, 1000)'
    const said = await call('run_command', { ...script(code), timeout_ms: 1000 })
    expect(said).toMatchObject({ exit_code: null, signal: 'SIGTERM', timed_out: true })
    await until(async () => !(await runs(Number(text(said['stdout'])))), 'it to be gone')
    expect((await failure('run_command', { ...script(code), timeout_ms: 60_001 })).code).toBe('invalid_params')
  })

  test('nor does a node whose process exits', async () => {
    const { root } = await openDesk()
    const program = `
      import { createNode } from ${JSON.stringify(new URL('../dist/index.js', import.meta.url).href)}
      const node = await createNode({
        agent: { id: 'a' }, logLevel: 'silent',
        builtin: { tools: ['run_command'], root: ${JSON.stringify(root)}, commands: [process.execPath] },
      })
      const code = 'console.log(process.pid); process.on("SIGTERM", () => {}); setInterval(() => {}, 1000)'
      for await (const { chunk } of node.tools.stream('run_command', { program: process.execPath, args: ['-e', code] })) {
        process.stdout.write(chunk.text, () => process.exit(7))
      }`
    const child = spawn(process.execPath, ['--input-type=module', '-e', program], {
      stdio: ['ignore', 'pipe', 'inherit'],
    })
    const pid = once(child.stdout.setEncoding('utf8'), 'data')
    expect(await within(once(child, 'close'), 'the process to exit')).toEqual([7, null])
    const [said] = (await pid) as [string]
    await until(async () => !(await runs(Number(said))), 'it to be gone')
  })

  test('what it leaves running when it ends is ended, too', async () => {
    const { call } = await openDesk()
    const code = `const { spawn } = require('node:child_process')
      const child = spawn(process.execPath, ['-e', 'setInterval(() => {}, 1000)'], { stdio: 'ignore' })
      child.unref(); console.log(child.pid)`
    const said = await call('run_command', script(code))
    expect(said).toMatchObject({ exit_code: 0 })
    await until(async () => !(await runs(Number(text(said['stdout'])))), 'it to be gone')
  })

  test('one that has left the group and holds the pipes is not waited for', async () => {
    const { call } = await openDesk()
    const code = `const { spawn } = require('node:child_process')
      const child = spawn(process.execPath, ['-e', 'setTimeout(() => {}, 60_000)'], { detached: true, stdio: 'inherit' })
      child.unref(); console.log(child.pid)`
    const said = await call('run_command', script(code))
    process.kill(Number(text(said['stdout'])), 'SIGKILL')
    expect(said).toMatchObject({ exit_code: 0 })
  })
})

describe('http_fetch', () => {
  async function serve(listener: RequestListener): Promise<string> {
    const server = createServer(listener)
    server.listen(0, '127.0.0.1')
    await once(server, 'listening')
    cleanup(() => {
      server.closeAllConnections()
      return new Promise((resolve) => server.close(resolve))
    })
    return `http://127.0.0.1:${(server.address() as AddressInfo).port}`
  }

  test('gives status, headers and text', async () => {
    const url = await serve((request, response) => {
      let body = ''
      request.on('data', (chunk) => (body += String(chunk)))
      request.on('end', () => {
        response.writeHead(418, { 'content-type': 'application/json; charset=utf-8', 'x-a': ['1', '2'] })
        response.end(JSON.stringify({ method: request.method, body, agent: request.headers['x-agent'] }))
      })
    })
    const { call } = await openDesk({ allowPrivate: true })
    const answer = await call('http_fetch', { url, method: 'PUT', body: 'fünf', headers: { 'X-Agent': 'a' } })
    expect(answer).toMatchObject({ status: 418, url: `${url}/`, media_type: 'application/json', size: 43 })
    expect((answer['headers'] as JsonObject)['x-a']).toBe('1, 2')
    expect(JSON.parse(text(answer['text']))).toEqual({ method: 'PUT', body: 'fünf', agent: 'a' })
    for (const method of ['GET', 'POST', 'PATCH', 'DELETE']) {
      expect(JSON.parse(text((await call('http_fetch', { url, method }))['text']))).toMatchObject({ method })
    }
    expect(await call('http_fetch', { url, method: 'HEAD' })).toMatchObject({ status: 418, size: 0, text: '' })
  })

  test('bytes come as bytes, compressed text as text, other character sets as they are meant', async () => {
    const png = Buffer.from([0x89, 0x50, 0x4e, 0x47, 0])
    const url = await serve(({ url: path }, response) => {
      if (path === '/png') response.writeHead(200, { 'content-type': 'image/png' }).end(png)
      else if (path === '/gzip') {
        response.writeHead(200, { 'content-type': 'text/plain', 'content-encoding': 'gzip' }).end(gzipSync('hello'))
      } else response.writeHead(200, { 'content-type': 'text/plain; charset=iso-8859-1' }).end(Buffer.from([0xfc]))
    })
    const { call, node } = await openDesk({ allowPrivate: true })
    const picture = (await node.tools.call('http_fetch', { url: `${url}/png` })) as Content
    expect(picture.parts[0]?.data).toMatchObject({ status: 200, media_type: 'image/png', size: 5 })
    expect(picture.parts[1]).toEqual({ raw: png.toString('base64'), mediaType: 'image/png' })
    expect(await call('http_fetch', { url: `${url}/gzip` })).toMatchObject({ text: 'hello' })
    expect(await call('http_fetch', { url: `${url}/latin` })).toMatchObject({ text: 'ü' })
  })

  test('private addresses, other schemes, credentials in URLs and headers of the connection are refused', async () => {
    const url = await serve((_request, response) => response.end('private'))
    const { failure } = await openDesk()
    expect((await failure('http_fetch', { url })).code).toBe('forbidden')
    expect((await failure('http_fetch', { url: url.replace('127.0.0.1', 'localhost') })).code).toBe('forbidden')
    expect((await failure('http_fetch', { url: 'http://169.254.169.254/latest' })).code).toBe('forbidden')
    expect((await failure('http_fetch', { url: 'file:///etc/passwd' })).code).toBe('forbidden')
    expect((await failure('http_fetch', { url: 'nonsense' })).code).toBe('invalid_params')
    const secret = await failure('http_fetch', { url: 'http://user:pass@example.com/' })
    expect(secret.code).toBe('invalid_params')
    expect(secret.message).not.toContain('pass@')
    for (const name of [
      'Host',
      'Connection',
      'Transfer-Encoding',
      'content-length',
      'Proxy-Authorization',
      'TE',
      'a b',
    ]) {
      const refused = await failure('http_fetch', { url: 'http://example.com', headers: { [name]: 'x' } })
      expect(refused.code, name).toBe('invalid_params')
    }
    expect((await failure('http_fetch', { url: 'http://example.com', body: 'x' })).code).toBe('invalid_params')
  })

  test('only hosts that are listed are called, also behind a redirect', async () => {
    const other = await serve((_request, response) => response.end('elsewhere'))
    const url = await serve(({ url: path }, response) => {
      if (path === '/away') {
        response.writeHead(302, { location: other.replace('127.0.0.1', 'localhost') }).end()
      } else if (path === '/file') response.writeHead(302, { location: 'file:///etc/passwd' }).end()
      else response.end('here')
    })
    const { call, failure } = await openDesk({ allowPrivate: true, hosts: ['127.0.0.*', '*.example.org'] })
    expect(await call('http_fetch', { url })).toMatchObject({ text: 'here' })
    expect(await failure('http_fetch', { url: `${url}/away` })).toMatchObject({
      code: 'forbidden',
      message: 'The host "localhost" may not be called; these may: 127.0.0.*, *.example.org.',
    })
    for (const host of ['example.org', 'example.org.evil.com', 'a.example.orgg']) {
      expect((await failure('http_fetch', { url: `http://${host}/?.example.org` })).code, host).toBe('forbidden')
    }
    await failure('http_fetch', { url: `${url}/file` })
    const none = await openDesk({ allowPrivate: true, hosts: [] })
    expect((await none.failure('http_fetch', { url })).message).toContain('none may')
  })

  test('redirects are followed a few times, and take no secret to another origin', async () => {
    const seen: (string | undefined)[] = []
    const other = await serve(({ headers }, response) => {
      seen.push(headers.authorization, headers['x-key'] as string | undefined)
      response.end('elsewhere')
    })
    const url = await serve(({ url: path }, response) => {
      if (path === '/loop') response.writeHead(302, { location: '/loop' }).end()
      else if (path === '/post') response.writeHead(303, { location: '/' }).end('see')
      else response.writeHead(301, { location: other }).end()
    })
    const { call, failure } = await openDesk({ allowPrivate: true })
    const headers = { authorization: 'Bearer secret', 'x-key': 'secret' }
    expect(await call('http_fetch', { url, headers })).toMatchObject({ text: 'elsewhere', url: `${other}/` })
    expect(await call('http_fetch', { url, method: 'HEAD' })).toMatchObject({ status: 200, url: `${other}/` })
    expect(seen).toEqual([undefined, undefined, undefined, undefined])
    expect((await failure('http_fetch', { url: `${url}/loop` })).message).toContain('redirected more than 5 times')
    expect(await call('http_fetch', { url: `${url}/post`, method: 'POST', body: 'x' })).toMatchObject({
      status: 303,
      headers: { location: '/' },
    })
  })

  test('a body that is too large, announced or not, compressed or not, is refused', async () => {
    const url = await serve(({ url: path }, response) => {
      if (path === '/announced') response.writeHead(200, { 'content-length': '5000' }).end('x'.repeat(5000))
      else if (path === '/bomb') response.writeHead(200, { 'content-encoding': 'gzip' }).end(gzipSync('x'.repeat(1e6)))
      else {
        const more = (): void => {
          while (response.write('x'.repeat(1000)));
          response.once('drain', more)
        }
        more()
      }
    })
    const { failure } = await openDesk({ allowPrivate: true, maxBytes: 2000 })
    for (const path of ['announced', 'bomb', 'endless']) {
      expect((await failure('http_fetch', { url: `${url}/${path}` })).code, path).toBe('too_large')
    }
  })

  test('one that takes too long, or is cancelled, ends with its connection', async () => {
    const closed = deferred()
    const asked = deferred()
    const url = await serve(({ url: path, socket }, response) => {
      if (path === '/drip') {
        response.write('a')
        const drip = setInterval(() => response.write('a'), 20)
        response.once('close', () => clearInterval(drip))
      }
      if (path === '/silent') {
        socket.once('close', closed.resolve)
        asked.resolve()
      }
    })
    const { failure, node } = await openDesk({ allowPrivate: true })
    expect((await failure('http_fetch', { url: `${url}/drip`, timeout_ms: 300 })).code).toBe('timeout')
    const controller = new AbortController()
    const call = node.tools.call('http_fetch', { url: `${url}/silent` }, { signal: controller.signal })
    await within(asked.promise, 'the request')
    controller.abort()
    await expect(call).rejects.toMatchObject({ code: 'canceled' })
    await within(closed.promise, 'the connection to be closed')
  })
})

test('a tool of the agent may call them', async () => {
  const folder = await temporaryFolder()
  await writeFile(join(folder, 'a.txt'), 'one\ntwo\n')
  const count = defineTool({
    name: 'count_lines',
    description: 'Counts the lines of a file.',
    input: { type: 'object', properties: { path: { type: 'string' } }, required: ['path'] },
    run: async ({ path }, { tools }) => ((await tools.call('read_file', { path })) as { lines: number }).lines,
  })
  const node = await startNode({ baseDir: folder, builtin: { tools: ['read_file'] }, tools: [count] })
  expect(await node.tools.call('count_lines', { path: 'a.txt' })).toBe(2)
})
