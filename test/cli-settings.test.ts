/** Where settings come from, and which wins; what shells complete. */
import { execFile } from 'node:child_process'
import { chmod, mkdir, readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { describe, expect, test } from 'vitest'
import { fileName } from '../dist/cli/a2a/download.js'
import { parseDotenv } from '../dist/cli/environment.js'
import { convoke, fieldsOf, main } from './support/command.ts'
import { temporaryFolder } from './support/lifetime.ts'

interface Shown {
  readonly settings: readonly { name: string; value?: unknown; source: string; from?: string }[]
}

/** What `config show` says of each setting. */
async function shown(args: string[], cwd: string, env: Record<string, string>): Promise<Record<string, unknown[]>> {
  const { code, stdout, stderr } = await convoke(['config', 'show', '-o', 'json', ...args], { cwd, env })
  expect({ code, stderr }).toEqual({ code: 0, stderr: '' })
  const { settings } = JSON.parse(stdout) as Shown
  return Object.fromEntries(settings.map(({ name, value, source, from }) => [name, [value, source, from]]))
}

describe('settings', () => {
  test('a flag wins over the environment, that over the nearest .env, that over the global one, that over what is built in', async () => {
    const home = await temporaryFolder()
    const global = join(home, '.config', 'a2a-cli', '.env')
    await mkdir(join(home, '.config', 'a2a-cli'), { recursive: true })
    const work = join(home, 'work', 'deep')
    await mkdir(work, { recursive: true })
    const every = (name: string): string =>
      ['AGENT_CARD', 'TRANSPORT', 'VERBOSE', 'TIMEOUT'].map((each) => `A2ACLI_${each}=${name}\n`).join('')
    await writeFile(
      global,
      `${every('')}A2ACLI_TIMEOUT=1s\nA2ACLI_AGENT_CARD=global\nA2ACLI_VERBOSE=no\nA2ACLI_BEARER=b-secret\nA2ACLI_STREAM=true\n`,
      { mode: 0o600 },
    )
    const local = join(home, 'work', '.env')
    await writeFile(
      local,
      'OTHER=1\nexport A2ACLI_AGENT_CARD=local # mine\nA2ACLI_VERBOSE="yes"\nA2ACLI_TRANSPORT=grpc,rest\n',
    )
    const env = { HOME: home, A2ACLI_AGENT_CARD: 'variable', A2ACLI_API_KEY: 'k-secret', A2ACLI_CONTEXT_ID: 'c-1' }
    expect(await shown(['-a', 'flag'], work, env)).toEqual({
      'agent-card': ['flag', 'flag', '--agent-card'],
      bearer: ['[redacted]', 'global', global],
      'api-key': ['[redacted]', 'environment', 'A2ACLI_API_KEY'],
      'svc-param': [undefined, 'default', undefined],
      transport: [['GRPC', 'HTTP+JSON'], 'local', local],
      'a2a-version': ['1.0', 'default', undefined],
      insecure: [false, 'default', undefined],
      timeout: ['1000ms', 'global', global],
      'poll-interval': ['2000ms', 'default', undefined],
      output: ['json', 'flag', '--output'],
      verbose: [true, 'local', local],
      debug: [false, 'default', undefined],
      stream: ['true', 'global', global],
      'context-id': ['c-1', 'environment', 'A2ACLI_CONTEXT_ID'],
    })
    const other = join(home, 'other.env')
    await writeFile(other, 'A2ACLI_TRANSPORT=jsonrpc\n')
    const { HOME } = env
    const [named, variable, empty] = await Promise.all([
      shown(['--config', other], work, { HOME }),
      shown([], work, env),
      shown([], work, { HOME, A2ACLI_AGENT_CARD: '', A2ACLI_CONFIG: other }),
    ])
    expect(named).toMatchObject({
      'agent-card': ['global', 'global', global],
      transport: [['JSONRPC'], 'local', other],
    })
    expect(variable).toMatchObject({ 'agent-card': ['variable', 'environment', 'A2ACLI_AGENT_CARD'] })
    expect(empty).toMatchObject({
      'agent-card': [undefined, 'environment', 'A2ACLI_AGENT_CARD'],
      transport: [['JSONRPC'], 'local', other],
    })
  })

  test('a value that an option does not take is told with its place, in the format that is asked for', async () => {
    const folder = await temporaryFolder()
    await writeFile(join(folder, '.env'), 'A2ACLI_TIMEOUT=soon\nA2ACLI_OUTPUT=json\n')
    const [bad, flag, parameter] = await Promise.all([
      convoke(['config', 'show'], { cwd: folder }),
      convoke(['config', 'show', '--debug', 'x'], { env: { A2ACLI_DEBUG: 'perhaps' } }),
      convoke(['task', 'list', '-a', 'localhost:1', '--svc-param', 'Authorization=secret'], {}),
    ])
    expect(bad).toMatchObject({ code: 2, stderr: '' })
    expect(JSON.parse(bad.stdout)).toMatchObject({
      error: {
        code: 'A2ACLI_ERR_USAGE',
        message: `A2ACLI_TIMEOUT in ${join(folder, '.env')} is invalid. Write a number and its unit: 500ms, 30s, 5m, 1h.`,
      },
    })
    expect(flag.code).toBe(2)
    expect(parameter).toMatchObject({ code: 2, stdout: '' })
    expect(parameter.stderr).not.toContain('secret')
  })

  test('warns of a credential that others can read', async () => {
    const folder = await temporaryFolder()
    const file = join(folder, '.env')
    await writeFile(file, 'A2ACLI_BEARER=b\n')
    await chmod(file, 0o644)
    const { stdout, stderr } = await convoke(['config', 'show'], { cwd: folder })
    expect(stderr).toBe(`warning: others can read the credential in ${file}: chmod 600 it.\n`)
    expect(fieldsOf(stdout)['bearer']).toEqual([`[redacted] (local: ${file})`])
    expect(await readFile(file, 'utf8')).toBe('A2ACLI_BEARER=b\n')
  })

  test('reads .env files as others do', () => {
    const text = `# c\nA=b\nexport B = "x \\"y\\"\\nz" # hi\nC='it # is'\nD=a#b # c\nE=\nF=  # only\n  G = spaced value  \r\nH=http://x/?a=b\nI="un\n`
    expect({ ...parseDotenv(text) }).toEqual({
      A: 'b',
      B: 'x "y"\nz',
      C: 'it # is',
      D: 'a#b',
      E: '',
      F: '',
      G: 'spaced value',
      H: 'http://x/?a=b',
      I: '"un',
    })
  })
})

test.each([
  ['../../etc/passwd', 'text/plain', 'passwd.txt'],
  ['C:\\Windows\\system.ini', '', 'system.ini'],
  ['.bashrc', '', 'bashrc.bin'],
  ['..', 'image/png', 'artifact.png'],
  ['', '', 'artifact.bin'],
  ['a\u0000b\n.txt', '', 'ab_.txt'],
  ['con.txt', '', '_con.txt'],
  ['x'.repeat(300), '', `${'x'.repeat(120)}.bin`],
  ['é\u202egnp.exe', '', 'égnp.exe'],
])('a file that an agent calls %j is saved under a plain name', (given, mediaType, name) => {
  expect(fileName(given, mediaType, '.bin')).toBe(name)
})

describe('convoke completion', () => {
  test('completes commands, options and choices in bash', async () => {
    const { stdout: script } = await convoke(['completion', 'bash'])
    const lines: [words: string[], found: string[]][] = [
      [['ta'], ['task']],
      [
        ['task', 'push-config', ''],
        ['create', 'get', 'list', 'delete'],
      ],
      [['task', 'list', '--status', 'W'], ['WORKING']],
      [
        ['send', '-o', ''],
        ['text', 'json'],
      ],
      [['send', '-a', 'task', '--str'], ['--stream']],
      [['serve', '--log-level', 'de'], ['debug']],
      [['completion', 'z'], ['zsh']],
    ]
    const calls = lines.map(([words]) => {
      const list = ['convoke', ...words].map((word) => `'${word}'`).join(' ')
      return `COMP_WORDS=(${list}); COMP_CWORD=${words.length}; COMPREPLY=(); _convoke; echo "\${COMPREPLY[*]}"`
    })
    const { stdout } = await promisify(execFile)('bash', ['-c', `${script}\n${calls.join('\n')}`])
    const found = stdout
      .trimEnd()
      .split('\n')
      .map((line) => line.split(' '))
    for (const [index, [words, expected]] of lines.entries())
      expect({ words, found: found[index] }).toEqual({ words, found: expect.arrayContaining(expected) })
  })

  test.each(['zsh', 'fish'])('makes a script for %s that knows every command', async (shell) => {
    const { code, stdout } = await convoke(['completion', shell])
    expect(code).toBe(0)
    for (const path of ['send', 'card get', 'task push-config create', 'config show'])
      expect(stdout).toContain(`'${path}'`)
  })
})

test('every client command has help with an example and its defaults, and says the version', async () => {
  const commands = ['send', 'card get', 'task get', 'task list', 'task cancel', 'task subscribe', 'task download']
  const push = ['create', 'get', 'list', 'delete'].map((each) => `task push-config ${each}`)
  await Promise.all(
    [...commands, ...push, 'config show'].map(async (command) => {
      const { code, stdout } = await convoke([...command.split(' '), '--help'])
      expect(code).toBe(0)
      expect(stdout).toMatch(/Examples:\n {2}convoke /)
      expect(stdout).toMatch(/default: "text"[\s\S]*default: concise|default: 2s/)
    }),
  )
  const { stdout } = await promisify(execFile)(process.execPath, [main, 'task', 'get', '-v'])
  expect(stdout).toMatch(/^\d+\.\d+\.\d+/)
})
