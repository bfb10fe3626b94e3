/** Blocks of `mcpServers` as other hosts write them, and the content of results on its way there and back. */
import { Content, loadConfig, type Json, type JsonObject, type McpServerOptions } from 'convoke'
import { mkdir, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { describe, expect, test } from 'vitest'
import { fromMcpContent, toMcpContent } from '../dist/mcp/content.js'
import { createRedactor } from '../dist/base/redact.js'
import { secretsOf, toServerSettings, toServiceId, type ServerSettings } from '../dist/mcp/server-options.js'
import { cleanSchema } from '../dist/tools/foreign.js'
import { temporaryFolder } from './support/lifetime.ts'
import { stdioServer } from './support/mcp-servers.ts'
import { toolsOf } from './support/mcp-tools.ts'
import { failureOf } from './support/failure.ts'

function settingsOf(options: McpServerOptions): { settings: ServerSettings; warnings: readonly string[] } {
  const { settings, warnings } = toServerSettings('test', options, '/base')
  if (typeof settings === 'string') throw new Error(settings)
  return { settings, warnings }
}

const transportOf = (options: McpServerOptions) => settingsOf(options).settings.transport
const url = 'https://example.com/mcp'

describe('a block of another host', () => {
  test('starts a program with its arguments, where the configuration is', () => {
    const { settings, warnings } = settingsOf({
      command: 'npx',
      args: ['-y', 'server', 7],
      env: { A: 'x', N: 1, B: true },
    })
    expect(settings).toMatchObject({
      id: 'test',
      isDisabled: false,
      timeoutMs: undefined,
      idleMs: undefined,
      connectTimeoutMs: 30_000,
      transport: {
        type: 'stdio',
        command: 'npx',
        args: ['-y', 'server', '7'],
        cwd: '/base',
        env: { A: 'x', N: '1', B: 'true' },
      },
    })
    expect(warnings).toEqual([])
    expect(transportOf({ command: './serve', cwd: 'sub', envFile: '.env' })).toMatchObject({
      command: '/base/sub/serve',
      cwd: '/base/sub',
      envFile: '/base/.env',
    })
  })

  const spellings: [McpServerOptions, string][] = [
    [{ url }, 'auto'],
    [{ serverUrl: url }, 'auto'],
    [{ httpUrl: url }, 'http'],
    [{ url, type: 'http' }, 'http'],
    [{ url, type: 'streamable-http' }, 'http'],
    [{ url, transport: 'streamableHttp' }, 'http'],
    [{ url, transportType: 'streamable_http' }, 'http'],
    [{ url, type: 'sse' }, 'sse'],
    [{ url, transport: 'SSE' }, 'sse'],
    [{ command: 'x', type: 'stdio' }, 'stdio'],
    [{ command: 'x', url }, 'stdio'],
    [{ command: 'x', url, type: 'http' }, 'http'],
  ]
  test.each(spellings)('%j is %s', (options, type) => {
    expect(transportOf(options)).toMatchObject({ type })
  })

  const wrong: [McpServerOptions, RegExp][] = [
    [{}, /needs a command/],
    [{ type: 'stdio', url }, /needs a command/],
    [{ type: 'http', command: 'x' }, /or a url/],
    [{ url: 'ftp://example.com' }, /must be an http or https URL/],
    [{ url: 'https://ada:secret-4711@example.com' }, /belong into headers/],
    [{ type: 'carrier-pigeon', url }, /carrier-pigeon/],
  ]
  test.each(wrong)('%j makes no sense', (options, reason) => {
    const { settings } = toServerSettings('test', options, '/base')
    expect(settings).toMatch(reason)
    expect(settings).not.toContain('secret-4711')
  })

  test('what is not known, or not for here, is told once', () => {
    const { warnings } = settingsOf({
      command: 'x',
      autoApprove: ['a'],
      alwaysAllow: [],
      trust: true,
      icon: 'i',
      gallery: true,
    })
    expect(warnings).toEqual([
      'does not know icon, gallery, which are ignored',
      'has autoApprove, alwaysAllow, trust, which is ignored here: who may call what is said for all tools in one place',
    ])
    expect(settingsOf({ command: 'x', name: 'X', description: 'Y' }).warnings).toEqual([])
  })

  test('headers come from both places, and those that cannot be sent are left out', () => {
    const { settings, warnings } = settingsOf({
      url,
      requestInit: { headers: { a: '1', b: '2' } },
      headers: { b: '3', Host: 'evil', 'x y': '4', c: 'a\nb' },
    })
    expect(settings.transport).toMatchObject({ headers: { a: '1', b: '3' } })
    expect(warnings).toHaveLength(3)
    expect(settingsOf({ url: 'http://example.com/mcp', headers: { a: '1' } }).warnings[0]).toContain('plain http')
  })

  test('a timeout is in seconds where it is small', () => {
    expect(settingsOf({ command: 'x', timeout: 60 }).settings.timeoutMs).toBe(60_000)
    expect(settingsOf({ command: 'x', timeout: 60_000 }).settings.timeoutMs).toBe(60_000)
    expect(settingsOf({ command: 'x', timeout: 60, timeoutMs: 5 }).settings.timeoutMs).toBe(5)
  })

  test('a command line is split into words, unless it is a file', async () => {
    const { settings, warnings } = settingsOf({ command: `npx -y "a b" 'c d' e\\ f` })
    expect(settings.transport).toMatchObject({ command: 'npx', args: ['-y', 'a b', 'c d', 'e f'] })
    expect(warnings[0]).toContain('"npx"')
    const folder = await temporaryFolder()
    await writeFile(join(folder, 'my server'), '')
    expect(transportOf({ command: join(folder, 'my server') })).toMatchObject({
      command: join(folder, 'my server'),
      args: [],
    })
  })

  test('ids that are none get safe ones, each its own', () => {
    const { servers, lines } = toolsOf({
      'my server': { command: 'x' },
      '@org/x': { command: 'x' },
      'brave.search': { command: 'x' },
      my_server: { command: 'x' },
      'my/server': { command: 'x' },
      '…': { command: 'x' },
    })
    expect(servers.services()).toEqual(['my_server_2', 'org_x', 'brave_search', 'my_server', 'my_server_3', 'server'])
    expect(lines.map(({ text }) => text)).toContain(
      'The MCP server "brave.search" is called brave_search here: an id is 1 to 64 letters, digits, _ or -.',
    )
    expect(toServiceId('x'.repeat(80), () => false)).toBe('x'.repeat(60))
  })

  test('an envFile holds more variables, and env wins', async () => {
    const folder = await temporaryFolder()
    await writeFile(join(folder, '.env'), 'FROM_FILE="a b"\nBOTH=file # comment\n')
    const server = await stdioServer({ BOTH: 'env' })
    const { call } = toolsOf({ test: { ...server.options, envFile: '.env' } }, { baseDir: folder })
    expect(await call('test.who', { variable: 'FROM_FILE' })).toBe('a b')
    expect(await call('test.who', { variable: 'BOTH' })).toBe('env')
    const { servers } = toolsOf({ test: { ...server.options, envFile: 'none' } }, { baseDir: folder })
    expect((await failureOf(servers.discover('test'))).message).toContain('envFile')
  })

  test('secrets are known wherever they stand', () => {
    const secrets = secretsOf(
      settingsOf({
        command: 'x',
        args: [
          '--api-key',
          'arg-secret',
          '--token=flag-secret',
          '--header',
          'Authorization: Bearer head-secret',
          '--port=8080',
          'postgres://ann:url%2Fsecret@host/db',
        ],
        env: { K: 'env-secret' },
      }).settings,
    )
    const redact = createRedactor(secrets)
    expect(redact('arg-secret flag-secret Bearer head-secret env-secret url/secret 8080')).not.toMatch(/secret/)
    expect(redact('on port 8080')).toBe('on port 8080')
    const ofHttp = createRedactor(
      secretsOf(
        settingsOf({
          url: `${url}/s/path-secret-4711/mcp?key=query-secret`,
          headers: { authorization: 'Bearer a/b+secret' },
        }).settings,
      ),
    )
    expect(ofHttp('query-secret a/b+secret a%2Fb%2Bsecret')).toBe('[redacted] [redacted] [redacted]')
    expect(ofHttp('POST /s/path-secret-4711/mcp')).toBe('POST /s/[redacted]/mcp')
  })
})

describe('mcpServers in a configuration file', () => {
  async function load(block: unknown, environment: Record<string, string> = {}) {
    const folder = await temporaryFolder()
    const file = join(folder, 'convoke.json')
    await writeFile(file, JSON.stringify({ agent: { id: 'alice' }, mcpServers: block }))
    return await loadConfig(file, environment)
  }

  test('a block of another host is taken as it is', async () => {
    const block = {
      'my server': {
        command: 'npx',
        args: ['-y', '@org/x'],
        env: { KEY: 'v' },
        autoApprove: [],
        disabled: false,
        timeout: 60,
        gallery: true,
      },
      remote: { type: 'streamable-http', url, headers: { 'X-Key': 'v' }, alwaysAllow: ['a'] },
      windsurf: { serverUrl: url },
    }
    const { options, warnings } = await load(block)
    expect(options.mcpServers).toEqual(block)
    expect(warnings).toEqual([])
  })

  test('variables are filled in in each of the spellings', async () => {
    const args = ['${A}', '${env:A}/x', '${NONE:-preset}', '${EMPTY:-}', '${A:-preset}', '$A', '${input:key}']
    const { options, warnings } = await load({ test: { command: 'x', args } }, { A: 'a' })
    expect(options.mcpServers?.['test']?.args).toEqual(['a', 'a/x', 'preset', '', 'a', '$A', '${input:key}'])
    expect(warnings).toHaveLength(1)
    expect(warnings[0]).toContain('mcpServers.test.args[6] holds a ${…} that stays as it is')
  })

  test('a variable that is not set is told, unless its server is off', async () => {
    const server = { command: 'x', env: { KEY: '${MISSING}' } }
    const failure = await failureOf(load({ test: server }))
    expect(failure.message).toContain(
      'mcpServers.test.env.KEY needs the environment variable MISSING, which is not set.',
    )
    const { options } = await load({ test: { ...server, disabled: true } })
    expect(Object.keys(options.mcpServers ?? {})).toEqual(['test'])
  })

  const mistakes: [unknown, string][] = [
    [['npx'], 'mcpServers must be a mapping'],
    [{ test: 'npx' }, 'mcpServers.test must be a mapping with the key command or url'],
    [{ test: { command: 'x', args: 'secret-4711' } }, 'mcpServers.test.args must be a list of texts'],
    [{ test: { url: 'secret-4711' } }, 'mcpServers.test.url must be an http or https URL'],
    [{ test: { url, headers: { a: ['secret-4711'] } } }, 'mcpServers.test.headers.a must be a text'],
    [{ test: { command: 'x', timeoutMs: 0 } }, 'mcpServers.test.timeoutMs must be a whole number of milliseconds'],
  ]
  test.each(mistakes)('%j is told, with its place and without its values', async (block, sentence) => {
    const failure = await failureOf(load(block))
    expect(failure.code).toBe('config')
    expect(failure.message).toContain(sentence)
    expect(failure.message).not.toContain('secret-4711')
  })

  test('a peer of the same id is told', async () => {
    const folder = await temporaryFolder()
    await mkdir(folder, { recursive: true })
    const file = join(folder, 'convoke.json')
    const config = { agent: { id: 'alice' }, peers: { bob: { url } }, mcpServers: { bob: { command: 'x' } } }
    await writeFile(file, JSON.stringify(config))
    await expect(loadConfig(file)).rejects.toThrow(/convoke.json:1:\d+: .*bob/)
  })
})

describe('content', () => {
  const text = { type: 'text', text: 'Hello' }
  const image = { type: 'image', data: 'AAAA', mimeType: 'image/png' }
  const blocks: [string, JsonObject][] = [
    ['a text with annotations', { ...text, annotations: { audience: ['user'], priority: 0.5 }, _meta: { a: 1 } }],
    ['an image', image],
    ['an image of a strange type', { ...image, mimeType: 'application/x-image', _meta: { a: 1 } }],
    ['audio', { type: 'audio', data: 'AAAA', mimeType: 'audio/wav' }],
    [
      'a text resource',
      {
        type: 'resource',
        resource: { uri: 'file:///a', mimeType: 'text/plain', text: 'a', _meta: { b: 1 } },
        annotations: { priority: 1 },
      },
    ],
    ['a binary resource', { type: 'resource', resource: { uri: 'file:///a', blob: 'AAAA' } }],
    [
      'an image as a resource',
      { type: 'resource', resource: { uri: 'file:///a.png', mimeType: 'image/png', blob: 'AAAA' } },
    ],
    [
      'a link',
      {
        type: 'resource_link',
        uri: 'file:///a',
        name: 'a',
        title: 'A',
        description: 'The a.',
        mimeType: 'text/plain',
        size: 3,
      },
    ],
    ['a block of an unknown type', { type: 'hologram', depth: 3 }],
    ['a broken block', { type: 'image', data: 'not base64!', mimeType: 'image/png' }],
  ]
  test.each(blocks)('%s comes back as it was', (_name, block) => {
    const given = [text, block]
    const value = fromMcpContent(given)
    expect(value).toBeInstanceOf(Content)
    // Over the wire, and through as many nodes as there are.
    const travelled = new Content((JSON.parse(JSON.stringify(value)) as { parts: Content['parts'] }).parts)
    expect(toMcpContent(travelled)).toEqual({ content: given })
    expect(toMcpContent(fromMcpContent([block]))).toEqual({ content: [block] })
  })

  test('structured content beside an image is the first part, and comes back', () => {
    const value = fromMcpContent([text, image], { n: 1 })
    expect((value as Content).parts[0]).toMatchObject({ data: { n: 1 } })
    expect(toMcpContent(value)).toEqual({ content: [text, image], structuredContent: { n: 1 } })
  })

  const values: [Json, unknown][] = [
    ['Hello', { content: [text] }],
    [{ a: 1 }, { content: [{ type: 'text', text: '{"a":1}' }], structuredContent: { a: 1 } }],
    [[1], { content: [{ type: 'text', text: '[1]' }] }],
    [null, { content: [{ type: 'text', text: 'null' }] }],
  ]
  test.each(values)('%j goes out as MCP', (value, expected) => {
    expect(toMcpContent(value)).toEqual(expected)
  })

  test('what never was a block becomes one', () => {
    expect(toMcpContent(new Uint8Array([1, 2, 3]))).toEqual({
      content: [
        {
          type: 'resource',
          resource: {
            uri: expect.stringMatching(/^urn:sha256:/) as unknown,
            blob: 'AQID',
            mimeType: 'application/octet-stream',
          },
        },
      ],
    })
    const parts = [
      { data: { a: 1 } },
      { data: { b: 2 } },
      { raw: 'AAAA', mediaType: 'image/png' },
      { raw: 'AAAA', mediaType: 'application/pdf', filename: 'a.pdf' },
      { url: 'https://example.com/x/report.pdf', mediaType: 'application/pdf' },
    ]
    expect(toMcpContent(new Content(parts))).toEqual({
      structuredContent: { a: 1 },
      content: [
        { type: 'text', text: '{"a":1}' },
        { type: 'text', text: '{"b":2}' },
        image,
        {
          type: 'resource',
          resource: { uri: expect.stringMatching(/#a\.pdf$/) as unknown, blob: 'AAAA', mimeType: 'application/pdf' },
        },
        {
          type: 'resource_link',
          uri: 'https://example.com/x/report.pdf',
          name: 'report.pdf',
          mimeType: 'application/pdf',
        },
      ],
    })
  })

  test('what a stranger says of a block changes neither its type nor its payload', () => {
    const metadata = { _mcp: { type: 'resource_link', text: 'other', data: 'other', annotations: 'none' } }
    expect(toMcpContent(new Content([{ text: 'a', metadata }]))).toEqual({
      content: [{ type: 'text', text: 'a', data: 'other' }],
    })
  })
})

test('a clean schema stays the same object, and only what people read is cleaned', () => {
  const clean = { type: 'object', properties: { title: { type: 'string', title: 'T' } } }
  expect(cleanSchema(clean)).toBe(clean)
  const schema = {
    type: 'object',
    title: 'a\u200b',
    properties: { const: { description: 'b\u200b' }, plain: { const: { title: 'c\u200b' } } },
    anyOf: [{ description: 'd\u200b' }, true],
    $defs: { title: { $comment: 'e\u200b', enum: ['f\u200b'] } },
  }
  expect(cleanSchema(schema)).toEqual({
    type: 'object',
    title: 'a',
    properties: { const: { description: 'b' }, plain: { const: { title: 'c\u200b' } } },
    anyOf: [{ description: 'd' }, true],
    $defs: { title: { $comment: 'e', enum: ['f\u200b'] } },
  })
})
