/** The part of a configuration that is about models and the agent. */
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { ConvokeError, createNode, loadConfig, type ModelOptions, type NodeOptions, type ReactOptions } from 'convoke'

let folder: string
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'convoke-agent-config-'))
  await writeFile(join(folder, 'alice.md'), 'You are Alice.')
  await writeFile(join(folder, 'empty.txt'), ' \n')
  await writeFile(
    join(folder, 'answer.json'),
    JSON.stringify({ type: 'object', properties: { score: { type: 'integer' } } }),
  )
  await writeFile(join(folder, 'broken.json'), '{ "type": ')
  await writeFile(join(folder, 'wrong.json'), '{ "type": "objekt" }')
})
afterAll(() => rm(folder, { recursive: true }))

async function load(text: string, environment: Record<string, string> = {}) {
  const file = join(folder, 'convoke.yaml')
  await writeFile(file, text)
  return loadConfig(file, environment)
}

async function failureOf(work: Promise<unknown>): Promise<ConvokeError> {
  const error: unknown = await work.then(
    () => undefined,
    (reason: unknown) => reason,
  )
  expect(error).toBeInstanceOf(ConvokeError)
  expect(error).toMatchObject({ code: 'config' })
  return error as ConvokeError
}

/** The lines of the error, without the folder. */
async function problemsOf(text: string, environment: Record<string, string> = {}): Promise<string[]> {
  const { message } = await failureOf(load(text, environment))
  return message.replaceAll(`${folder}/`, '').split('\n')
}

async function warningsOf(text: string, environment: Record<string, string> = {}): Promise<string[]> {
  return (await load(text, environment)).warnings.map((each) => each.replaceAll(`${folder}/`, ''))
}

const models = 'models: { local: { baseUrl: "http://127.0.0.1:11434/v1", model: "qwen3:8b" } }\n'
const withReact = (react: string): string => `${models}agent: { id: alice, react: { model: local, ${react} } }\n`

describe('models and a ReAct agent', () => {
  test('are read with everything that can be said of them', async () => {
    const model: Required<ModelOptions> = {
      baseUrl: 'https://models.example.com/v1',
      model: 'large',
      apiKey: 'key-1',
      headers: { 'X-Team': 'blue' },
      timeoutMs: 60_000,
      retries: 0,
      temperature: 0.2,
      maxTokens: 1000,
      parameters: { seed: 7 },
      structuredOutput: false,
      allowPrivate: true,
    }
    const react: Required<ReactOptions> = {
      model: 'local',
      prompt: './alice.md',
      tools: ['files.*', 'bob.*'],
      agents: ['bob'],
      maxRounds: 3,
      maxToolCalls: 0,
      maxTokens: 5000,
      timeoutMs: 90_000,
      outputSchema: { type: 'object' },
      onError: 'ignore',
      history: { maxMessages: 10, maxChars: 5000 },
    }
    const file = {
      agent: { id: 'alice', react },
      models: { local: { ...model, apiKey: '${env:KEY}' } },
      peers: { bob: { url: 'http://127.0.0.1:4121' } },
      mcpServers: { files: { command: 'files' } },
    }
    const { options, warnings } = await load(JSON.stringify(file), { KEY: 'key-1' })
    expect(warnings).toEqual([])
    expect(options.models).toEqual({ local: model })
    expect(options.agent.react).toEqual(react)
  })

  test('have no key in the schema that the options have not, and none that it explains not', async () => {
    interface Schema {
      properties: Record<string, Schema>
      additionalProperties: Schema
    }
    const path = new URL('../convoke.schema.json', import.meta.url)
    const { properties } = JSON.parse(await readFile(path, 'utf8')) as Schema
    const react: Record<keyof ReactOptions, true> = {
      model: true,
      prompt: true,
      tools: true,
      agents: true,
      maxRounds: true,
      maxToolCalls: true,
      maxTokens: true,
      timeoutMs: true,
      outputSchema: true,
      onError: true,
      history: true,
    }
    const model: Record<keyof ModelOptions, true> = {
      baseUrl: true,
      model: true,
      apiKey: true,
      headers: true,
      timeoutMs: true,
      retries: true,
      temperature: true,
      maxTokens: true,
      parameters: true,
      structuredOutput: true,
      allowPrivate: true,
    }
    const keysOf = (schema: Schema | undefined): string[] => Object.keys(schema?.properties ?? {}).toSorted()
    expect(keysOf(properties['agent']?.properties['react'])).toEqual(Object.keys(react).toSorted())
    expect(keysOf(properties['models']?.additionalProperties)).toEqual(Object.keys(model).toSorted())
  })

  test('are told all that is wrong with them at once', async () => {
    const problems = await problemsOf(`
models:
  local: { baseUrl: ftp://x, model: '' }
  other: { baseUrl: "http://127.0.0.1/v1", temperature: 3, structuredOutput: xml, modell: a }
  bad name: { baseUrl: "http://127.0.0.1/v1", model: a }
agent:
  id: alice
  react:
    tools: "*"
    maxRounds: 0
    timeoutMs: soon
    onError: panic
    history: { maxMessages: 0 }
`)
    expect(problems).toEqual([
      'convoke.yaml:3:21: models.local.baseUrl must be an http or https URL, but it is "ftp://x".',
      'convoke.yaml:3:37: models.local.model must be the name that the endpoint has for the model, but it is "".',
      'convoke.yaml:4:3: models.other.model is missing: it must be the name that the endpoint has for the model.',
      'convoke.yaml:4:57: models.other.temperature must be a number from 0 to 2, but it is 3.',
      'convoke.yaml:4:78: models.other.structuredOutput must be auto, json_schema, json_object or false, but it is "xml".',
      'convoke.yaml:4:83: models.other.modell is an unknown key; did you mean model?',
      'convoke.yaml:5:3: models["bad name"] is the name of a model and must be 1 to 64 letters, digits, _ or -.',
      'convoke.yaml:8:3: agent.react.model is missing: it must be the name of one of models.',
      'convoke.yaml:9:12: agent.react.tools must be a list of globs, such as "files.*", but it is "*".',
      'convoke.yaml:10:16: agent.react.maxRounds must be a whole number, 1 or more, but it is 0.',
      'convoke.yaml:11:16: agent.react.timeoutMs must be a whole number of milliseconds, 1 or more, but it is "soon".',
      'convoke.yaml:12:14: agent.react.onError must be fail, ignore or retry, but it is "panic".',
      'convoke.yaml:13:29: agent.react.history.maxMessages must be a whole number, 1 or more, but it is 0.',
    ])
  })

  test.each<[string, string, string]>([
    [
      'a module beside react',
      `${models}agent: { id: a, module: ./a.js, react: { model: local } }`,
      'agent.module and agent.react both answer messages; keep one of them.',
    ],
    [
      'a model that there is not',
      `${models}agent: { id: a, react: { model: locl } }`,
      'agent.react.model names no model, got "locl"; did you mean local?',
    ],
    [
      'no models',
      'agent: { id: a, react: { model: local } }',
      'agent.react.model names no model, got "local"; there are no models in the file.',
    ],
    [
      'a peer that there is not',
      withReact('agents: [bob]'),
      'agent.react.agents[0] names no peer, got "bob"; there are no peers in the file.',
    ],
    [
      'a prompt that cannot be read',
      withReact('prompt: ./alise.md'),
      'agent.react.prompt is the path of a file that cannot be read, ./alise.md: there is no such file.',
    ],
    [
      'an empty prompt',
      withReact('prompt: empty.txt'),
      'agent.react.prompt is the path of a file that is empty, empty.txt.',
    ],
    [
      'a prompt that is a folder',
      withReact('prompt: ./'),
      'agent.react.prompt is the path of a file that cannot be read, ./: it is a folder.',
    ],
    [
      'a schema that cannot be read',
      withReact('outputSchema: ./no.json'),
      'agent.react.outputSchema is the path of a file that cannot be read, ./no.json: there is no such file.',
    ],
    [
      'a schema that is no JSON',
      withReact('outputSchema: ./broken.json'),
      'agent.react.outputSchema is the path of a file that is not JSON, ./broken.json.',
    ],
    [
      'a schema of a file that is none',
      withReact('outputSchema: ./wrong.json'),
      'agent.react.outputSchema must be a JSON Schema.',
    ],
    [
      'a schema that is none',
      withReact('outputSchema: { type: objekt }'),
      'agent.react.outputSchema must be a JSON Schema.',
    ],
    [
      'a user in the URL',
      'models: { local: { baseUrl: "http://me:hunter2@models.example.com/v1", model: a } }\nagent: { id: a }',
      'models.local.baseUrl has a user or a password in it, which is shown to people; credentials belong into apiKey or headers.',
    ],
  ])('are refused with %s', async (_what, text, expected) => {
    const problems = await problemsOf(text)
    expect(problems).toEqual([expect.stringMatching(/^convoke\.yaml:\d+:\d+: /)])
    expect(problems[0]).toContain(expected)
    expect(problems[0]).not.toContain('hunter2')
  })

  test('a name that comes from the environment is told by its variable', async () => {
    const text = `${models}agent: { id: a, react: { model: "\${env:MODEL}" } }`
    const [problem = ''] = await problemsOf(text, { MODEL: 'elsewhere-7' })
    expect(problem).toContain('agent.react.model names no model, got ${env:MODEL}; there are local.')
    expect(problem).not.toContain('elsewhere')
  })

  test('may have a prompt as text, or as a file beside the configuration', async () => {
    for (const prompt of ['You are Alice.', './alice.md', 'alice.md', '"Read\\nREADME.md"']) {
      expect((await load(withReact(`prompt: ${prompt}`))).warnings).toEqual([])
    }
    expect((await load(withReact('outputSchema: ./answer.json'))).warnings).toEqual([])
  })

  test('never show a key', async () => {
    const secret = 'sk-12345-hunter2'
    for (const text of [
      `models: { local: { baseUrl: "http://127.0.0.1/v1", model: a, apiKey: "${secret} x" } }\nagent: { id: a }`,
      `models: { local: { baseUrl: "http://127.0.0.1/v1", model: a, apiKey: [${secret}] } }\nagent: { id: a }`,
      `models: { local: { baseUrl: "http://127.0.0.1/v1", model: a, headers: { X-Key: [${secret}] } } }\nagent: { id: a }`,
      `models: { local: { baseUrl: "http://127.0.0.1/v1", model: a, headers: ${secret} } }\nagent: { id: a }`,
    ]) {
      const problems = await problemsOf(text)
      expect(problems).toHaveLength(1)
      expect(problems.join()).not.toContain('hunter2')
    }
    const empty =
      'models: { local: { baseUrl: "http://127.0.0.1/v1", model: a, apiKey: "${env:KEY}" } }\nagent: { id: a }'
    expect((await problemsOf(empty, { KEY: '' }))[0]).toContain(
      'models.local.apiKey must be a key without spaces, but ${env:KEY} is empty.',
    )
    expect((await problemsOf(empty.replace('env:', ''), {}))[0]).toContain('did you mean ${env:KEY}?')
  })

  test('are warned of when their keys lie open, or names lead nowhere', async () => {
    const text = `
models:
  open: { baseUrl: "http://models.example.com/v1", model: a, apiKey: key, headers: { X-Api-Key: key, X-Team: blue } }
  safe: { baseUrl: "http://models.example.com/v1", model: a }
  here: { baseUrl: "http://127.0.0.1/v1", model: a, apiKey: "\${env:KEY}" }
agent: { id: alice, react: { model: open, tools: ["files.*", "own", "*"] } }
`
    expect(await warningsOf(text, { KEY: 'key' })).toEqual([
      'convoke.yaml:3:20: models.open is sent credentials over plain http: whoever sits on the way can read them.',
      expect.stringMatching(/models\.open\.apiKey stands in the file in clear text; put it into the environment/),
      expect.stringMatching(/models\.open\.headers\.X-Api-Key stands in the file in clear text/),
      expect.stringMatching(/agent\.react\.tools\[0\] gives nothing: there is no peer or MCP server files\.$/),
    ])
  })
})

describe('a program', () => {
  const local = { baseUrl: 'http://127.0.0.1:1/v1', model: 'a' }
  test.each<[string, Partial<NodeOptions> & Pick<NodeOptions, 'agent'>, string]>([
    [
      'two that answer',
      { agent: { id: 'a', react: { model: 'local' } }, models: { local }, onMessage: () => 'Hi.' },
      'agent.react and onMessage both answer messages; keep one of them.',
    ],
    [
      'no such model',
      { agent: { id: 'a', react: { model: 'locl' } }, models: { local } },
      'agent.react.model names no model, got "locl". Did you mean "local"?',
    ],
    [
      'no such peer',
      { agent: { id: 'a', react: { model: 'local', agents: ['bob'] } }, models: { local } },
      'agent.react.agents names no peer, got "bob".',
    ],
    [
      'no delegation',
      {
        agent: { id: 'a', react: { model: 'local', agents: ['bob'] } },
        models: { local },
        peers: { bob: { url: 'http://127.0.0.1:1' } },
        features: { delegate: false },
      },
      'agent.react.agents needs peers, and features.delegate is false.',
    ],
    [
      'no prompt file',
      { agent: { id: 'a', react: { model: 'local', prompt: './nobody.md' } }, models: { local } },
      'agent.react.prompt is the path of a file that cannot be read',
    ],
    [
      'a limit that is none',
      { agent: { id: 'a', react: { model: 'local', maxRounds: 0 } }, models: { local } },
      'agent.react is wrong: ',
    ],
    [
      'a model that is none',
      { agent: { id: 'a', react: { model: 'local' } }, models: { local: { ...local, baseUrl: 'x' } } },
      'models.local is wrong: `baseUrl` of a model must be an http or https URL',
    ],
    [
      'a module that is not there',
      { agent: { id: 'a', module: './nobody.js' } },
      'agent.module ./nobody.js cannot be loaded',
    ],
  ])('is told of %s', async (_what, options, expected) => {
    const { message } = await failureOf(createNode({ baseDir: folder, logLevel: 'silent', ...options }))
    expect(message).toContain(expected)
  })
})
