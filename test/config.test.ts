import { mkdir, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { loadConfig } from '../dist/config.js'
import { ConvokeError } from '../dist/base/errors.js'
import { createNode } from '../dist/node.js'
import type {
  AgentOptions,
  AuthOptions,
  DelegationOptions,
  JwtOptions,
  NodeOptions,
  ServerOptions,
  StoreSettings,
  TokenOptions,
} from '../dist/options.js'
import type { DiscoveryOptions } from '../dist/peers/discovery.js'
import type { PeerAuth, PeerOptions } from '../dist/peers/peer.js'
import type { PinSettings } from '../dist/tools/pins.js'
import type { PolicyRule, PolicyTraits } from '../dist/tools/policy.js'
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
      discovery: { intervalMs: 60_000 },
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
      discovery: { intervalMs: 60_000 },
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
      discovery: { intervalMs: 60_000 },
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
      'convoke.yaml:1:17: agent.__proto__ is an unknown key. Allowed: id, name, description, version, card, module, settings, eventLog, react.',
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
      'convoke.yaml:2:27: server.auth.tokens must be a list with at least one token, but it is empty.',
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

describe('peers', () => {
  const secret = 'cvk_Zil2l7nwwve7JOnUrTShfSdOdxHje6hwgfKgmslE'
  const pem = '-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n'
  const peers = (text: string) => `agent: { id: alice }\npeers:\n${text}\n`
  /** The warnings about one peer, without the place. */
  const warningsOf = async (peer: string, rest = '', environment: Record<string, string> = {}) => {
    const { warnings } = await load(peers(`  bob: ${peer}\n${rest}`), environment)
    return warnings.map((warning) => warning.replace(/^.*?:\d+:\d+: /, ''))
  }

  test('are read with everything that can be said of them', async () => {
    const text = `
agent: { id: alice }
peers:
  bob:
    url: http://127.0.0.1:4121
    auth: { bearer: "\${env:BOB_TOKEN}" }
    timeoutMs: 60000
    requestTimeoutMs: \${env:LIMIT}
    idleTimeoutMs: 5000
    patienceMs: 2000
    allowPrivate: true
    allowOrigins: [https://rpc.example.com]
    bindings: [HTTP+JSON, JSONRPC]
    versions: ["1.0"]
    headers: { X-Tenant: "\${env:TENANT}", X-Plain: yes }
    tls: { ca: "-----BEGIN CERTIFICATE-----", insecure: true }
  carol: { url: https://carol.example.com/agent-card.json, auth: { apiKey: "\${env:BOB_TOKEN}", header: X-Key } }
  dave:
    url: https://dave.example.com
    auth:
      oauth2:
        tokenUrl: https://login.example.com/token
        clientId: alice
        clientSecret: "\${env:BOB_TOKEN}"
        scopes: [a, b]
        audience: dave
discovery: { intervalMs: 300000, startup: true, directory: ["https://example.com/agents.json"], allowPrivate: false }
delegation: { maxVisits: 1, maxHops: 8 }
features: { delegate: true }
`
    const { options, warnings } = await load(text, { BOB_TOKEN: secret, LIMIT: '1000', TENANT: 'acme' })
    expect(warnings).toEqual([])
    expect(options).toMatchObject({
      peers: {
        bob: {
          url: 'http://127.0.0.1:4121',
          auth: { bearer: secret },
          timeoutMs: 60_000,
          requestTimeoutMs: 1000,
          idleTimeoutMs: 5000,
          patienceMs: 2000,
          allowPrivate: true,
          allowOrigins: ['https://rpc.example.com'],
          bindings: ['HTTP+JSON', 'JSONRPC'],
          versions: ['1.0'],
          headers: { 'X-Tenant': 'acme', 'X-Plain': 'yes' },
          tls: { ca: '-----BEGIN CERTIFICATE-----', insecure: true },
        },
        carol: { auth: { apiKey: secret, header: 'X-Key' } },
        dave: { auth: { oauth2: { clientSecret: secret, scopes: ['a', 'b'], audience: 'dave' } } },
      },
      discovery: { intervalMs: 300_000, startup: true, directory: ['https://example.com/agents.json'] },
      delegation: { maxVisits: 1, maxHops: 8 },
      features: { delegate: true },
    })
    const node = await createNode({ ...options, store: { url: ':memory:' }, logLevel: 'silent' })
    expect(node.peers.ids).toEqual(['bob', 'carol', 'dave'])
    await node.stop()
  })

  test('are told all that is wrong with them at once', async () => {
    const text = peers(`  bob smith: { url: http://127.0.0.1 }
  ann: { ulr: http://127.0.0.1 }
  bob: http://127.0.0.1:4121
  carol:
    url: 127.0.0.1:4121
    auht: {}
    timeoutMs: 0
    bindings: [grpc]
    versions: [1.0]
    allowOrigins: [https://example.com/path]
    allowPrivate: "no"
    tls: { caFile: a.pem, ca: b }
  dave: { url: "http://h", bearer: x, auth: {}, headers: { X: 1 } }`)
    expect(await problemsOf(text)).toEqual([
      'convoke.yaml:3:3: peers["bob smith"] is the id of a peer and must be 1 to 64 letters, digits, _ or -.',
      'convoke.yaml:4:3: peers.ann.url is missing: it must be an http or https URL.',
      'convoke.yaml:4:10: peers.ann.ulr is an unknown key; did you mean url?',
      'convoke.yaml:5:8: peers.bob must be a mapping with the key url, but it is "http://127.0.0.1:4121".',
      'convoke.yaml:7:10: peers.carol.url must be an http or https URL, but it is "127.0.0.1:4121".',
      'convoke.yaml:8:5: peers.carol.auht is an unknown key; did you mean auth?',
      'convoke.yaml:9:16: peers.carol.timeoutMs must be a whole number of milliseconds, 1 or more, but it is 0.',
      'convoke.yaml:10:16: peers.carol.bindings[0] must be JSONRPC or HTTP+JSON, but it is "grpc".',
      'convoke.yaml:11:16: peers.carol.versions[0] must be "1.0" or "0.3", but it is a number: put it in quotes, "1.0".',
      'convoke.yaml:12:20: peers.carol.allowOrigins[0] must be an origin such as https://example.com, without a path, but it is "https://example.com/path".',
      'convoke.yaml:13:19: peers.carol.allowPrivate must be true or false, but it is "no".',
      'convoke.yaml:14:10: peers.carol.tls must be a mapping with insecure, and one of ca and caFile.',
      'convoke.yaml:14:31: peers.carol.tls.ca must be PEM with a certificate (for a file, write caFile).',
      'convoke.yaml:15:28: peers.dave.bearer is an unknown key; did you mean peers.ID.auth.bearer?',
      'convoke.yaml:15:45: peers.dave.auth must have exactly one of bearer, apiKey and oauth2; header goes with apiKey.',
      'convoke.yaml:15:63: peers.dave.headers.X must be a text that a header can carry, but it is a number: put it in quotes.',
    ])
    const around = `agent: { id: alice }
discovery: { interval: 5, directory: here, startup: 1 }
delegation: { maxVisit: 1, maxHops: -1 }
features: { delegation: true }`
    expect(await problemsOf(around)).toEqual([
      'convoke.yaml:2:14: discovery.interval is an unknown key; did you mean intervalMs?',
      'convoke.yaml:2:38: discovery.directory must be a list of URLs, but it is "here".',
      'convoke.yaml:2:53: discovery.startup must be true or false, but it is 1.',
      'convoke.yaml:3:15: delegation.maxVisit is an unknown key; did you mean maxVisits?',
      'convoke.yaml:3:37: delegation.maxHops must be a whole number, 0 or more, but it is -1.',
      'convoke.yaml:4:13: features.delegation is an unknown key; did you mean delegate?',
    ])
  })

  test('have one way to be let in', async () => {
    const sentence =
      'convoke.yaml:3:33: peers.bob.auth must have exactly one of bearer, apiKey and oauth2; header goes with apiKey.'
    for (const auth of ['{}', '{ bearer: a, apiKey: b }', '{ bearer: a, header: X-Key }', '{ header: X-Key }']) {
      expect(await problemsOf(peers(`  bob: { url: "http://h", auth: ${auth} }`)), auth).toEqual([sentence])
    }
    expect(await problemsOf(peers('  bob: { url: "http://h", auth: { baerer: a } }'))).toEqual([
      'convoke.yaml:3:35: peers.bob.auth.baerer is an unknown key; did you mean bearer?',
    ])
    expect(await problemsOf(peers('  bob: { url: "http://h", auth: { token: a } }'))).toEqual([
      'convoke.yaml:3:35: peers.bob.auth.token is an unknown key. Allowed: bearer, apiKey, header, oauth2.',
    ])
  })

  test('say of a credential that is empty or a variable misspelt what it is', async () => {
    const file = (bearer: string) => peers(`  bob: { url: "http://h", auth: { bearer: "${bearer}" } }`)
    const words = 'convoke.yaml:3:43: peers.bob.auth.bearer'
    expect(await problemsOf(file(''))).toEqual([`${words} must be a token without spaces, but it is empty.`])
    expect(await problemsOf(file('${env:TOKEN}'), { TOKEN: '' })).toEqual([
      `${words} must be a token without spaces, but \${env:TOKEN} is empty.`,
    ])
    expect(await problemsOf(file('${TOKEN}'))).toEqual([
      `${words} is \${TOKEN} as it stands; did you mean \${env:TOKEN}?`,
    ])
  })

  test.each([
    `auth: ${secret}`,
    'auth: hunter2',
    `auth: { bearer: [${secret}] }`,
    `auth: { bearer: "${secret} x" }`,
    'auth: { bearer: { hunter2: 1 } }',
    'auth: { hunter2: 1 }',
    'auth: { hunter2: "${env:NONE}" }',
    'auth: { bearer: hunter2, bearer: hunter2 }',
    `auth: { apiKey: "${secret}\\n" }`,
    `auth: { apiKey: k, header: "${secret}: x" }`,
    `auth: { oauth2: { tokenUrl: "${secret}", clientId: "${secret}", clientSecret: 7 } }`,
    `auth: { oauth2: { tokenUrl: "https://u:${secret}@host name", clientId: a, clientSecret: b } }`,
    'auth: { oauth2: hunter2 }',
    'auth: { bearer: "hunter2" x }',
    `headers: { ${secret}: [1] }`,
    'headers: { "a hunter2": 1 }',
    `headers: { Authorization: "Bearer ${secret}\\n" }`,
    `headers: ["${secret}"]`,
    'headers: hunter2',
    'tls: { ca: "-----BEGIN PRIVATE KEY-----\\nhunter2" }',
    `url: "https://u:${secret}@host"`,
    `url: "ftp://u:${secret}@host"`,
    `url: "ftp://u:pa/hunter2@x@host"`,
    `url: "u:hun ter2@host"`,
  ])('keep their secrets when something is wrong: %s', async (member) => {
    const url = member.startsWith('url') ? '' : 'url: "http://127.0.0.1:1", '
    const problems = await problemsOf(peers(`  bob: { ${url}${member} }`))
    expect(problems.length).toBeGreaterThan(0)
    for (const hidden of [secret.slice(0, 12), 'hunter2', 'hun ter2']) {
      expect(problems.join('\n')).not.toContain(hidden)
    }
  })

  test('have URLs without users, and token endpoints that nobody can listen to', async () => {
    expect(await problemsOf(peers('  bob: { url: "https://me:pw@example.com" }'))).toEqual([
      'convoke.yaml:3:15: peers.bob.url has a user or a password in it, which is not sent; credentials belong into auth.',
    ])
    expect(await problemsOf(peers('  bob: { url: "https://example.com:port" }'))).toEqual([
      'convoke.yaml:3:15: peers.bob.url must be an http or https URL.',
    ])
    const oauth = (url: string) =>
      peers(`  bob: { url: "https://h", auth: { oauth2: { tokenUrl: "${url}", clientId: a, clientSecret: b } } }`)
    expect(await problemsOf(oauth('http://login.example.com'))).toEqual([
      'convoke.yaml:3:56: peers.bob.auth.oauth2.tokenUrl must be an https URL, or an http URL on this machine.',
    ])
    expect((await load(oauth('http://127.0.0.1:9'))).options.peers).toHaveProperty('bob')
    expect(await problemsOf('agent: { id: a }\ndiscovery: { directory: ["https://u:p@h"] }')).toEqual([
      'convoke.yaml:2:26: discovery.directory[0] has a user or a password in it, which is not sent; credentials belong into auth.',
    ])
  })

  test('are warned of when their credentials lie open', async () => {
    const open = 'peers.bob is sent credentials over plain http: whoever sits on the way can read them.'
    const token = { T: 'x' }
    const auth = 'auth: { bearer: "${env:T}" }'
    expect(await warningsOf(`{ url: "http://example.com", ${auth} }`, '', token)).toEqual([open])
    expect(await warningsOf(`{ url: "https://example.com", ${auth} }`, '', token)).toEqual([])
    expect(await warningsOf(`{ url: "http://localhost:1", ${auth} }`, '', token)).toEqual([])
    expect(await warningsOf('{ url: "http://example.com" }')).toEqual([])

    const inClear = (key: string) =>
      `peers.bob.auth.${key} stands in the file in clear text; put it into the environment and write "\${env:NAME}".`
    expect(await warningsOf('{ url: "https://h", auth: { bearer: x } }')).toEqual([inClear('bearer')])
    expect(await warningsOf('{ url: "https://h", auth: { apiKey: x } }')).toEqual([inClear('apiKey')])
    const oauth = 'oauth2: { tokenUrl: "https://h", clientId: a, clientSecret: x }'
    expect(await warningsOf(`{ url: "https://h", auth: { ${oauth} } }`)).toEqual([inClear('oauth2.clientSecret')])
  })

  test.each([
    ['http://127.0.0.1:4120', ''],
    ['http://localhost:4120/', 'server: {}'],
    ['http://localhost:5000/.well-known/agent-card.json', 'server: { port: 5000 }'],
    ['http://127.0.0.1:4120/alice', 'server: { host: 0.0.0.0, basePath: /alice }'],
    ['http://10.0.0.7:4120', 'server: { host: 10.0.0.7 }'],
    ['https://example.com/alice/', 'server: { publicUrl: "https://example.com/alice" }'],
  ])('are warned of when they are the node itself: %s', async (url, server) => {
    expect(await warningsOf(`{ url: "${url}" }`, server)).toEqual([
      'peers.bob is this node itself; its own tools need no peer.',
    ])
  })

  test.each([
    ['http://127.0.0.1:4121', ''],
    ['http://10.0.0.7:4120', ''],
    ['http://127.0.0.1:4120/bob', 'server: { basePath: /alice }'],
    ['https://example.com/bob', 'server: { publicUrl: "https://example.com/alice" }'],
  ])('are not taken for the node itself: %s', async (url, server) => {
    expect(await warningsOf(`{ url: "${url}" }`, server)).toEqual([])
  })

  test('do not hide that the URL of the node is none', async () => {
    const text =
      'agent: { id: alice }\nserver: { publicUrl: "http://[" }\npeers: { bob: { url: "http://127.0.0.1:4121" } }'
    expect(await problemsOf(text)).toEqual([
      'convoke.yaml:2:22: server.publicUrl must be an http or https URL without query or fragment.',
    ])
  })

  test('may bring the certificates of an authority in a file beside the configuration', async () => {
    await writeFile(join(folder, 'ca.pem'), pem)
    await writeFile(join(folder, 'empty.pem'), 'nothing')
    const file = (path: string) => peers(`  bob: { url: "https://h", tls: { caFile: ${path}, insecure: false } }`)
    expect((await load(file('./ca.pem'))).options.peers).toEqual({
      bob: { url: 'https://h', tls: { ca: pem, insecure: false } },
    })
    const sentence = 'convoke.yaml:3:43: peers.bob.tls.caFile must be the path of a PEM file with a certificate'
    expect(await problemsOf(file('./none.pem'))).toEqual([`${sentence}, but there is no such file.`])
    expect(await problemsOf(file('./empty.pem'))).toEqual([`${sentence}, but it holds none.`])
    expect(await problemsOf(file('.'))).toEqual([`${sentence}, but it is a folder.`])
  })

  test('may have any id that is allowed, and no other', async () => {
    const { options } = await load(peers('  __proto__: { url: "https://a" }\n  constructor: { url: "https://b" }'))
    expect(Object.keys(options.peers ?? {})).toEqual(['__proto__', 'constructor'])
    expect(await problemsOf(peers(`  ${'x'.repeat(65)}: { url: "https://a" }\n  a.b: { url: "https://b" }`))).toEqual([
      `convoke.yaml:3:3: peers.${'x'.repeat(65)} is the id of a peer and must be 1 to 64 letters, digits, _ or -.`,
      'convoke.yaml:4:3: peers["a.b"] is the id of a peer and must be 1 to 64 letters, digits, _ or -.',
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

describe('the tool policy and the pins', () => {
  test('are kept as they stand', async () => {
    const text = `
agent: { id: alice }
peers: { bob: { url: "http://127.0.0.1:4121" } }
toolPolicy:
  - { tools: "files.write*", decision: ask }
  - tools: [files.*]
    arguments: { properties: { path: { type: string, pattern: "^/tmp/" } }, required: [path] }
    traits: { readOnly: true }
    decision: allow
    reason: Reading below /tmp is for all.
  - { callers: "*", tools: "*", decision: allow }
pins: { policy: warn, services: { bob: trust }, file: ./pins.json }
`
    const { options, warnings } = await load(text)
    expect(warnings).toEqual([])
    expect(options.toolPolicy).toEqual([
      { tools: 'files.write*', decision: 'ask' },
      {
        tools: ['files.*'],
        arguments: { properties: { path: { type: 'string', pattern: '^/tmp/' } }, required: ['path'] },
        traits: { readOnly: true },
        decision: 'allow',
        reason: 'Reading below /tmp is for all.',
      },
      { callers: '*', tools: '*', decision: 'allow' },
    ])
    expect(options.pins).toEqual({ policy: 'warn', services: { bob: 'trust' }, file: './pins.json' })
  })

  test('say what is wrong with them, and where', async () => {
    const text = `
agent: { id: alice }
toolPolicy:
  - { tool: "files.*", decision: allow }
  - { tools: [], decision: maybe }
  - { traits: { readonly: true }, decision: deny }
  - { arguments: { type: objekt }, decision: deny }
  - { callers: { id: bob }, decision: deny }
  - { tools: "*" }
pins: { policy: strict, services: { "bob.x": trust, carol: no } }
`
    expect(await problemsOf(text)).toEqual([
      'convoke.yaml:4:7: toolPolicy[0].tool is an unknown key; did you mean tools?',
      'convoke.yaml:5:14: toolPolicy[1].tools must be a glob on tools, or a list of at least one, but it is empty.',
      'convoke.yaml:5:28: toolPolicy[1].decision must be allow, deny or ask, but it is "maybe".',
      'convoke.yaml:6:17: toolPolicy[2].traits.readonly is an unknown key; did you mean readOnly?',
      'convoke.yaml:8:16: toolPolicy[4].callers must be a glob on callers, or a list of at least one, but it is a mapping.',
      'convoke.yaml:9:5: toolPolicy[5].decision is missing: it must be allow, deny or ask.',
      'convoke.yaml:10:17: pins.policy must be quarantine, warn or trust, but it is "strict".',
      'convoke.yaml:10:37: pins.services["bob.x"] is the id of a peer or MCP server and must be 1 to 64 letters, digits, _ or -.',
      'convoke.yaml:10:60: pins.services.carol must be quarantine, warn or trust, but it is "no".',
    ])
  })

  test('have schemas that compile', async () => {
    const text = `
agent: { id: alice }
toolPolicy:
  - { arguments: { type: object }, decision: deny }
  - { arguments: { type: objekt }, decision: deny }
  - { arguments: { properties: { a: { pattern: "(" } } }, decision: deny }
`
    expect(await problemsOf(text)).toEqual([
      expect.stringMatching(
        /^convoke.yaml:5:18: toolPolicy\[1\]\.arguments must be a JSON Schema\. The schema cannot be compiled: .*objekt.*[^.]\.$/,
      ),
      expect.stringMatching(
        /^convoke.yaml:6:18: toolPolicy\[2\]\.arguments must be a JSON Schema\. The schema cannot be compiled: .*[^.]\.$/,
      ),
    ])
  })

  test('warn of rules that are never reached, and of services that there are none of', async () => {
    const text = `
agent: { id: alice }
toolPolicy:
  - { tools: "a", decision: ask }
  - { callers: "*", tools: ["*"], decision: allow }
  - { tools: "b", decision: deny }
pins: { services: { bob: trust } }
`
    const { warnings } = await load(text)
    expect(warnings.map((warning) => warning.replace(`${folder}/`, ''))).toEqual([
      'convoke.yaml:6:5: toolPolicy[2] is never reached: a rule before it matches every call.',
      'convoke.yaml:7:26: pins.services.bob is for nobody: there is no peer or MCP server of that id.',
    ])
    const directory =
      'agent: { id: a }\ndiscovery: { directory: ["https://agents.example.com"] }\npins: { services: { bob: trust } }'
    expect((await load(directory)).warnings).toEqual([])
  })
})

describe('names of the tool space', () => {
  const services = `
agent: { id: alice }
peers: { bob: { url: "http://localhost:1" } }
mcpServers: { files: { command: files } }
`

  test('that lead nowhere are warned of', async () => {
    const text = `${services}aliases:
  say: bob.echo
  read: files.read
  own: word_count
  lost: bo.echo
  again: say
publish: ["bob.*", "files.read*", "*", "b*.echo", "fils.*"]
`
    const { warnings } = await load(text)
    expect(warnings.map((warning) => warning.replace(`${folder}/`, ''))).toEqual([
      'convoke.yaml:9:9: aliases.lost leads nowhere: there is no peer or MCP server bo.',
      'convoke.yaml:10:10: aliases.again is the alias of an alias, which is not followed; write bob.echo.',
      'convoke.yaml:11:51: publish[4] publishes nothing: there is no peer or MCP server fils.',
    ])
    const directory = `${text}discovery: { directory: ["https://agents.example.com"] }\n`
    expect((await load(directory)).warnings).toHaveLength(1)
  })

  test('are those of one service each', async () => {
    const same = services.replace('files:', 'bob:')
    expect(await problemsOf(same)).toEqual([
      'convoke.yaml:3:10: peers.bob has the id of an MCP server; each of them needs an id of its own.',
    ])
    expect((await load(same.replace('command: files', 'command: files, disabled: true'))).warnings).toEqual([])
  })
})

describe('convoke.schema.json', () => {
  interface Schema {
    properties?: Record<string, Schema>
    items?: Schema
    additionalProperties?: Schema | boolean
    propertyNames?: Schema
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
    react: true,
    module: true,
    settings: true,
    eventLog: true,
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

  type PeerInFile = PeerOptions & { tls: { caFile: string } }
  const peer: Record<keyof PeerInFile, true> = {
    url: true,
    auth: true,
    timeoutMs: true,
    requestTimeoutMs: true,
    idleTimeoutMs: true,
    patienceMs: true,
    allowPrivate: true,
    allowOrigins: true,
    bindings: true,
    versions: true,
    headers: true,
    tls: true,
  }
  const tls: Record<keyof PeerInFile['tls'], true> = { ca: true, caFile: true, insecure: true }
  type KeyOfEach<T> = T extends unknown ? keyof T : never
  const peerAuth: Record<KeyOfEach<PeerAuth>, true> = { bearer: true, apiKey: true, header: true, oauth2: true }
  const oauth2: Record<keyof Extract<PeerAuth, { oauth2: unknown }>['oauth2'], true> = {
    tokenUrl: true,
    clientId: true,
    clientSecret: true,
    scopes: true,
    audience: true,
  }
  const discovery: Record<keyof DiscoveryOptions, true> = {
    intervalMs: true,
    startup: true,
    directory: true,
    allowPrivate: true,
  }
  const delegation: Record<keyof DelegationOptions, true> = { maxVisits: true, maxHops: true }
  const features: Record<keyof NonNullable<NodeOptions['features']>, true> = { delegate: true }

  const rule: Record<keyof PolicyRule, true> = {
    callers: true,
    scopes: true,
    agents: true,
    tools: true,
    tags: true,
    traits: true,
    arguments: true,
    decision: true,
    reason: true,
  }
  const traits: Record<keyof PolicyTraits, true> = { readOnly: true, idempotent: true }
  const pins: Record<keyof PinSettings, true> = { policy: true, services: true, file: true }

  const read = async () =>
    JSON.parse(await readFile(new URL('../convoke.schema.json', import.meta.url), 'utf8')) as Schema
  const membersOf = ({ additionalProperties: members }: Schema = {}) =>
    typeof members === 'object' ? members : undefined
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
    const peerSchema = membersOf(top?.['peers'])
    expect(keysOf(peerSchema)).toEqual(Object.keys(peer).toSorted())
    expect(keysOf(peerSchema?.properties?.['tls'])).toEqual(Object.keys(tls).toSorted())
    const peerAuthSchema = peerSchema?.properties?.['auth']
    expect(keysOf(peerAuthSchema)).toEqual(Object.keys(peerAuth).toSorted())
    expect(keysOf(peerAuthSchema?.properties?.['oauth2'])).toEqual(Object.keys(oauth2).toSorted())
    expect(keysOf(top?.['discovery'])).toEqual(Object.keys(discovery).toSorted())
    expect(keysOf(top?.['delegation'])).toEqual(Object.keys(delegation).toSorted())
    expect(keysOf(top?.['features'])).toEqual(Object.keys(features).toSorted())
    const ruleSchema = top?.['toolPolicy']?.items
    expect(keysOf(ruleSchema)).toEqual(Object.keys(rule).toSorted())
    expect(keysOf(ruleSchema?.properties?.['traits'])).toEqual(Object.keys(traits).toSorted())
    expect(keysOf(top?.['pins'])).toEqual(Object.keys(pins).toSorted())
  })

  test('explains every key, for editors and for our messages', async () => {
    const visit = (schema: Schema, path: string) => {
      expect(schema.errorMessage, `errorMessage of ${path}`).toMatch(/^must be |^must have /)
      const names = schema.propertyNames ?? schema
      expect(names.errorMessage, `errorMessage of the names in ${path}`).toMatch(/must (be|have) /)
      const members = membersOf(schema)
      if (members !== undefined) visit(members, `${path}/*`)
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
