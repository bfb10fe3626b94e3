import { mkdir, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { loadConfig } from '../dist/config.js'
import { ConvokeError } from '../dist/base/errors.js'
import type {
  AgentOptions,
  AuthOptions,
  JwtOptions,
  ServerOptions,
  StoreSettings,
  TokenOptions,
} from '../dist/options.js'
import { publicBindProblem } from '../dist/server/auth/public-bind.js'

let folder: string
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'convoke-config-'))
})
afterAll(() => rm(folder, { recursive: true }))

async function load(text: string, environment: Record<string, string> = {}, name = 'convoke.yaml') {
  const file = join(folder, name)
  await writeFile(file, text)
  return loadConfig(file, environment)
}

/** The lines of the error, without the folder. */
async function problemsOf(
  text: string,
  environment: Record<string, string> = {},
  name = 'convoke.yaml',
): Promise<string[]> {
  const error = await load(text, environment, name).then(
    () => undefined,
    (reason: unknown) => reason,
  )
  expect(error).toBeInstanceOf(ConvokeError)
  expect(error).toMatchObject({ code: 'config' })
  return (error as ConvokeError).message.replaceAll(`${folder}/`, '').split('\n')
}

const hash = 'ab'.repeat(32)

describe('a configuration file', () => {
  test('becomes the options of a node, with the defaults of a file', async () => {
    const { options, warnings } = await load('agent: { id: alice }\n')
    expect(options).toEqual({
      agent: { id: 'alice' },
      server: { port: 4120 },
      store: { url: 'sqlite:./data/convoke.db' },
      baseDir: folder,
    })
    expect(warnings).toEqual([])
  })

  test('keeps what it says', async () => {
    const text = `
agent: { id: alice, name: Alice, description: "Counts: words" }
server:
  host: 127.0.0.1
  port: 0
  auth: { tokens: [{ id: bob, sha256: ${hash}, scopes: ["tool:count_*", message] }] }
store: { url: ":memory:", retention: 12h }
tools:
  - module: ./tools/text.js
  - { module: ./tools/count.js, export: countTo, name: count }
logLevel: debug
`
    const { options } = await load(text)
    expect(options).toEqual({
      agent: { id: 'alice', name: 'Alice', description: 'Counts: words' },
      server: {
        host: '127.0.0.1',
        port: 0,
        auth: { tokens: [{ id: 'bob', sha256: hash, scopes: ['tool:count_*', 'message'] }] },
      },
      store: { url: ':memory:', retention: '12h' },
      tools: [{ module: './tools/text.js' }, { module: './tools/count.js', export: 'countTo', name: 'count' }],
      logLevel: 'debug',
      baseDir: folder,
    })
  })

  test('may be JSON, with $schema for the editor and tabs', async () => {
    const text =
      '{\n\t"$schema": "./convoke.schema.json",\n\t"agent": {"id": "alice"},\n\t"store": {"url": "sqlite:/var/x.db"}\n}'
    const { options } = await load(text, {}, 'convoke.json')
    expect(options).toEqual({
      agent: { id: 'alice' },
      server: { port: 4120 },
      store: { url: 'sqlite:/var/x.db' },
      baseDir: folder,
    })
  })

  test('may repeat parts by alias, and a mistake in them is told where they are used', async () => {
    const scopes = `agent: { id: alice }
server: { auth: { tokens: [{ id: a, sha256: ${hash}, scopes: &s [message] }, { id: b, sha256: ${'cd'.repeat(32)}, scopes: *s }] } }`
    expect((await load(scopes)).options.server?.auth?.tokens?.[1]?.scopes).toEqual(['message'])
    expect(await problemsOf('agent: &a { id: alice }\nstore: *a\n')).toEqual([
      'convoke.yaml:1:13: store.id is an unknown key; did you mean agent.id?',
    ])
    expect(await problemsOf('agent: { id: *nobody }')).toEqual([
      'convoke.yaml:1:14: Nothing in the file defines this alias.',
    ])
    expect(await problemsOf('agent: &a { id: alice, name: *a }')).toEqual([
      'convoke.yaml: The aliases of the file refer to themselves, or blow up.',
    ])
  })
})

describe('a wrong configuration', () => {
  test('is told all at once, each mistake with its line, key and value', async () => {
    const text = `agent:
  id: alice smith
  nam: Alice
  version: 1.0
sever:
  port: 1
port: 80
server:
  port: "abc"
  maxBodyBytes: 0
  drainMs:
  trustProxy: loopback
  allowAnonymous: yes
store:
  url: postgres://user:hunter2@db/convoke
  retention: 7 days
tools:
  - ./x.js
  - { module: ./x.js, name: foo }
  - { modul: ./x.js }
logLevel: verbose
`
    expect(await problemsOf(text)).toEqual([
      'convoke.yaml:2:7: agent.id must be 1 to 64 letters, digits, _ or -, but it is "alice smith".',
      'convoke.yaml:3:3: agent.nam is an unknown key; did you mean name?',
      'convoke.yaml:4:12: agent.version must be a text, but it is a number: put it in quotes, "1.0".',
      'convoke.yaml:5:1: sever is an unknown key; did you mean server?',
      'convoke.yaml:7:1: port is an unknown key; did you mean server.port?',
      'convoke.yaml:9:9: server.port must be a whole number from 0 (picks a free port) to 65535, but it is "abc".',
      'convoke.yaml:10:17: server.maxBodyBytes must be a whole number of bytes, 1 or more, but it is 0.',
      'convoke.yaml:11:3: server.drainMs must be a whole number of milliseconds, 0 or more, but it is empty.',
      'convoke.yaml:12:15: server.trustProxy must be a list of addresses or networks, but it is "loopback".',
      'convoke.yaml:13:19: server.allowAnonymous must be true or false, but it is "yes".',
      'convoke.yaml:15:8: store.url must be sqlite:PATH or :memory:, but it is "postgres://[redacted]@db/convoke".',
      'convoke.yaml:16:14: store.retention must be a number with its unit (ms, s, m, h or d) such as 30s or 7d, or milliseconds, but it is "7 days".',
      'convoke.yaml:18:5: tools[0] must be a mapping with the key module, but it is "./x.js".',
      'convoke.yaml:20:5: tools[2].module is missing: it must be a path.',
      'convoke.yaml:20:7: tools[2].modul is an unknown key; did you mean module?',
      'convoke.yaml:21:11: logLevel must be silent, error, warn, info or debug, but it is "verbose".',
    ])
  })

  test('has its issues as JSON pointers too', async () => {
    await expect(load('agent: { id: a b }\n')).rejects.toMatchObject({ issues: [{ path: '/agent/id' }] })
  })

  test.each([
    ['', 'convoke.yaml:1:1: The file is empty. It must at least say who the node is: agent: { id: NAME }.'],
    [
      '# nothing yet\n',
      'convoke.yaml:1:1: The file is empty. It must at least say who the node is: agent: { id: NAME }.',
    ],
    ['- agent\n', 'convoke.yaml:1:1: The file must be a mapping with the key agent, but it is a list.'],
    ['agent\n', 'convoke.yaml:1:1: The file must be a mapping with the key agent, but it is "agent".'],
    ['store: {}\n', 'convoke.yaml:1:1: agent is missing: it must be a mapping with the key id.'],
    ['agent:\n\tid: alice\n', 'convoke.yaml:2:1: YAML is indented with spaces, and here is a tab.'],
    [
      'agent: { id: alice }\n---\nagent: { id: bob }\n',
      'convoke.yaml:2:1: A second document begins here; the file must hold one.',
    ],
    [
      'agent: { id: ${env:NAME} }\n',
      'convoke.yaml:1:15: This is not valid YAML: Unexpected flow-map-start at node end. Inside of { } and [ ], put quotes round a text with a variable: "${env:NAME}".',
    ],
    [
      'agent: { id: a }\nstore:\n  url: :memory:\n',
      'convoke.yaml:3:8: This is not valid YAML: Nested mappings are not allowed in compact mappings. A text with a colon may need quotes, such as ":memory:".',
    ],
    [
      'agent: { id: a, name: @a }\n',
      'convoke.yaml:1:23: This is not valid YAML: Plain value cannot start with reserved character @. Put the text in quotes.',
    ],
    [
      'agent: { id: a }\nserver: { hots: 127.0.0.1 }\n',
      'convoke.yaml:2:11: server.hots is an unknown key; did you mean host?',
    ],
    [
      'agent: { id: a, __proto__: b }\n',
      'convoke.yaml:1:17: agent.__proto__ is an unknown key. Allowed: id, name, description, version, card, module.',
    ],
  ])('%j is told in a sentence', async (text, sentence) => {
    expect(await problemsOf(text)).toEqual([sentence])
  })

  test('names every key that is there twice, beside the other mistakes', async () => {
    const text = 'agent: { id: a b }\nserver:\n  port: 1\n  port: 2\ntools:\n  - { module: a, module: b }\nserver: {}\n'
    expect(await problemsOf(text)).toEqual([
      'convoke.yaml:1:14: agent.id must be 1 to 64 letters, digits, _ or -, but it is "a b".',
      'convoke.yaml:4:3: The key server.port is there twice; keep one.',
      'convoke.yaml:6:18: The key tools[0].module is there twice; keep one.',
      'convoke.yaml:7:1: The key server is there twice; keep one.',
    ])
  })

  test('is named when it cannot be read', async () => {
    await expect(loadConfig(join(folder, 'none.yaml'))).rejects.toThrow(
      `Cannot read the configuration ${folder}/none.yaml: there is no such file.`,
    )
    await expect(loadConfig(folder)).rejects.toThrow(`Cannot read the configuration ${folder}: it is a folder.`)
  })

  test('says JSON where the file is JSON', async () => {
    expect(await problemsOf('{"agent": {"id": "a"} "store": {}}', {}, 'convoke.json')).toEqual([
      'convoke.json:1:23: This is not valid JSON: Unexpected double-quoted-scalar at node end.',
    ])
  })
})

describe('${env:NAME}', () => {
  test('is replaced inside texts, and read as a number or a boolean where one is due', async () => {
    const text =
      'agent: { id: a, description: "${env:WHO} at ${env:WHERE}" }\nserver:\n  port: ${env:PORT}\n  allowAnonymous: ${env:OPEN}\n'
    const { options } = await load(text, { WHO: 'Alice', WHERE: 'home: #1', PORT: '8080', OPEN: 'true' })
    expect(options.agent.description).toBe('Alice at home: #1')
    expect(options.server).toMatchObject({ port: 8080, allowAnonymous: true })
  })

  test('names line, key and variable where the variable is not set', async () => {
    const text = `agent:\n  id: \${env:AGENT}\nserver:\n  auth: { tokens: [{ id: bob, sha256: "\${env:BOB_HASH}" }] }\n  host: "\${env:}"\n`
    expect(await problemsOf(text)).toEqual([
      'convoke.yaml:2:7: agent.id needs the environment variable AGENT, which is not set.',
      'convoke.yaml:4:39: server.auth.tokens[0].sha256 needs the environment variable BOB_HASH, which is not set.',
      'convoke.yaml:5:9: server.host has a ${env:…} that names no variable.',
    ])
  })

  test('never shows the value of a variable', async () => {
    const text = 'agent: { id: "${env:SECRET}" }\nserver:\n  port: ${env:SECRET}\n  basePath: x${env:SECRET}\n'
    const problems = await problemsOf(text, { SECRET: 'hunter 2' })
    expect(problems).toEqual([
      'convoke.yaml:1:14: agent.id must be 1 to 64 letters, digits, _ or -, but it is the value of ${env:SECRET}.',
      'convoke.yaml:3:9: server.port must be a whole number from 0 (picks a free port) to 65535, but it is the value of ${env:SECRET}.',
      'convoke.yaml:4:13: server.basePath must be a path that begins with /, but it is the value of x${env:SECRET}.',
    ])
  })

  test('written without env: stays as it is, with a warning', async () => {
    const { options, warnings } = await load('agent:\n  id: a\n  name: "${NAME}"\n')
    expect(options.agent.name).toBe('${NAME}')
    expect(warnings).toEqual([
      `${folder}/convoke.yaml:3:9: agent.name holds a \${…} that stays as it is; variables are written \${env:NAME}.`,
    ])
  })
})

describe('what stands under auth', () => {
  const secret = 'cvk_Zil2l7nwwve7JOnUrTShfSdOdxHje6hwgfKgmslE'

  test.each([
    `{ tokens: [{ id: bob, sha256: ${secret} }] }`,
    `{ tokens: [{ id: "${secret} !", sha256: ${hash} }] }`,
    `{ tokens: [{ ${secret}: bob }] }`,
    `{ tokens: [${secret}] }`,
    `{ tokens: ${secret} }`,
    `${secret}`,
    `{ ${secret}: 1 }`,
    `{ ${secret}: 1, ${secret}: 2 }`,
    `{ tokens: [{ id: bob, sha256: ${hash}, scopes: ["${secret}"] }] }`,
    `{ jwt: { issuer: "${secret}", audience: a, jwksUrl: "${secret}" } }`,
    `{ tokens: [{ id: bob, sha256: "${secret}`,
    `{ tokens: [{ id: bob, sha256: @${secret} }] }`,
    `{ tokens: [{ id: bob, sha256: "${secret}" x }] }`,
    `{ tokens: [{ id: bob, sha256: !${secret} x }] }`,
  ])('is never printed: %s', async (auth) => {
    const problems = await problemsOf(`agent: { id: a }\nserver:\n  auth: ${auth}\n`)
    expect(problems.length).toBeGreaterThan(0)
    expect(problems.join('\n')).not.toContain(secret.slice(0, 12))
  })

  test('must let somebody in, each with a token of its own', async () => {
    expect(await problemsOf('agent: { id: a }\nserver: { auth: {} }')).toEqual([
      'convoke.yaml:2:17: server.auth must have tokens, or jwt, or both; without either nobody could call.',
    ])
    expect(await problemsOf('agent: { id: a }\nserver: { auth: { tokens: [] } }')).toEqual([
      'convoke.yaml:2:27: server.auth.tokens must be a list with at least one token.',
    ])
    const twice = `agent: { id: a }\nserver: { auth: { tokens: [{ id: a, sha256: ${hash} }, { id: b, sha256: ${hash.toUpperCase()} }] } }`
    expect(await problemsOf(twice)).toEqual([
      'convoke.yaml:2:113: server.auth.tokens[1] has the same hash as server.auth.tokens[0]; give each caller a token of its own.',
    ])
  })

  test('warns of keys that come over plain http, except from this machine', async () => {
    const file = (url: string) =>
      `agent: { id: a }\nserver: { auth: { jwt: { issuer: i, audience: a, jwksUrl: "${url}" } } }`
    expect((await load(file('http://idp.example.com/keys'))).warnings).toEqual([
      `${folder}/convoke.yaml:2:59: server.auth.jwt.jwksUrl is plain http: whoever sits on the way can put in keys of their own.`,
    ])
    expect((await load(file('https://idp.example.com/keys'))).warnings).toEqual([])
    expect((await load(file('http://127.0.0.1:9/keys'))).warnings).toEqual([])
    expect(await problemsOf(file('https://idp.example.com:port/keys'))).toEqual([
      'convoke.yaml:2:59: server.auth.jwt.jwksUrl must be an http or https URL.',
    ])
  })
})

describe('publicBindProblem', () => {
  const tokens = [{ id: 'bob', sha256: hash }]

  test.each([{}, { host: '127.0.0.1' }, { host: 'localhost' }, { host: '::1' }, { host: '127.9.9.9' }])(
    'lets %j be',
    (server) => {
      expect(publicBindProblem({ server })).toBeUndefined()
    },
  )

  test.each(['0.0.0.0', '::', '10.0.0.1', 'example.com', '127.0.0.1.example.com', ''])(
    'refuses the host %j, and says how to go on',
    (host) => {
      expect(publicBindProblem({ server: { host } })?.message).toBe(
        `Refusing to listen on ${host} without authentication: everyone who reaches it could call the tools. Go on in one of three ways: add a token to server.auth.tokens (convoke token makes one); listen on this machine only (server.host: 127.0.0.1); or, where a gateway in front authenticates, set server.allowAnonymous: true.`,
      )
      expect(publicBindProblem({ server: { host, auth: { tokens } } })).toBeUndefined()
      expect(publicBindProblem({ server: { host, allowAnonymous: true } })).toBeUndefined()
    },
  )
})

describe('convoke.schema.json', () => {
  interface Schema {
    properties?: Record<string, Schema>
    items?: Schema
    description?: string
    errorMessage?: string
  }
  // The compiler finds a field that is missing here, the test one that is missing in the schema.
  const agent: Record<keyof AgentOptions, true> = {
    id: true,
    name: true,
    description: true,
    version: true,
    card: true,
    module: true,
  }
  const server: Record<keyof ServerOptions, true> = {
    host: true,
    port: true,
    publicUrl: true,
    basePath: true,
    trustProxy: true,
    allowedHosts: true,
    auth: true,
    allowAnonymous: true,
    maxBodyBytes: true,
    headersTimeoutMs: true,
    requestTimeoutMs: true,
    heartbeatMs: true,
    drainMs: true,
    cancelGraceMs: true,
    deduplicateMessages: true,
    maxRunningTasks: true,
    push: true,
    extendedCard: true,
  }
  const auth: Record<keyof AuthOptions, true> = { tokens: true, jwt: true }
  const token: Record<keyof TokenOptions, true> = { id: true, sha256: true, scopes: true }
  const jwt: Record<keyof JwtOptions, true> = { issuer: true, audience: true, jwksUrl: true, algorithms: true }
  const store: Record<keyof StoreSettings, true> = { url: true, retention: true, maxBytes: true }

  const read = async () =>
    JSON.parse(await readFile(new URL('../convoke.schema.json', import.meta.url), 'utf8')) as Schema
  const keysOf = (schema: Schema | undefined) => Object.keys(schema?.properties ?? {}).toSorted()

  test('has every option that a file can give', async () => {
    const { properties: top } = await read()
    expect(keysOf(top?.['agent'])).toEqual(Object.keys(agent).toSorted())
    expect(keysOf(top?.['server'])).toEqual(Object.keys(server).toSorted())
    expect(keysOf(top?.['store'])).toEqual(Object.keys(store).toSorted())
    const authSchema = top?.['server']?.properties?.['auth']
    expect(keysOf(authSchema)).toEqual(Object.keys(auth).toSorted())
    expect(keysOf(authSchema?.properties?.['tokens']?.items)).toEqual(Object.keys(token).toSorted())
    expect(keysOf(authSchema?.properties?.['jwt'])).toEqual(Object.keys(jwt).toSorted())
  })

  test('explains every key, for editors and for our messages', async () => {
    const visit = (schema: Schema, path: string) => {
      expect(schema.errorMessage, `errorMessage of ${path}`).toMatch(/^must be |^must have /)
      for (const [key, member] of Object.entries(schema.properties ?? {})) {
        expect(member.description, `description of ${path}/${key}`).toBeTruthy()
        visit(member, `${path}/${key}`)
      }
      if (schema.items !== undefined) visit(schema.items, `${path}/*`)
    }
    visit(await read(), '')
  })
})

test('relative paths start from the folder of the file', async () => {
  const nested = join(folder, 'deploy')
  await mkdir(nested, { recursive: true })
  const { options } = await load('agent: { id: a }\n', {}, 'deploy/convoke.yaml')
  expect(options.baseDir).toBe(nested)
})
