// The README's commands and samples do what it says.
import { execFile } from 'node:child_process'
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { loadConfig } from '../dist/config.js'
import { createNode, type Node } from '../dist/index.js'

const run = promisify(execFile)
const root = fileURLToPath(new URL('..', import.meta.url))
const readme = await readFile(new URL('../README.md', import.meta.url), 'utf8')
const blocks = (language: string): string[] =>
  [...readme.matchAll(new RegExp(`^\`\`\`${language}\n([^]*?)^\`\`\`$`, 'gm'))].map(([, text]) => text ?? '')

let folder: string
let node: Node
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'convoke-readme-'))
  const { options } = await loadConfig(join(root, 'convoke.yaml'))
  node = await createNode({
    ...options,
    server: { port: 0, drainMs: 0 },
    store: { url: ':memory:' },
    logLevel: 'silent',
  })
  await node.start()
})
afterAll(async () => {
  await node.stop()
  await rm(folder, { recursive: true })
})

interface CurlCall {
  readonly headers: Readonly<Record<string, string>>
  readonly body: string
}

/** What each curl of a block would send: a shell takes the quotes off, and curl itself need not be there. */
async function curlCalls(block: string, env: Readonly<Record<string, string>> = {}): Promise<CurlCall[]> {
  const script = `curl() { printf '%s\\0' curl "$@"; }\n${block}`
  const { stdout } = await run('sh', ['-c', script], { env: { PATH: process.env['PATH'], ...env } })
  const calls: { headers: Record<string, string>; body: string }[] = []
  const words = stdout.split('\0').slice(0, -1)
  for (let i = 0; i < words.length; i++) {
    const next = words[i + 1] ?? ''
    const call = calls.at(-1)
    if (words[i] === 'curl') calls.push({ headers: {}, body: '' })
    else if (words[i] === '-H')
      call!.headers[next.slice(0, next.indexOf(':'))] = next.slice(next.indexOf(':') + 1).trim()
    else if (words[i] === '-d') call!.body = next
  }
  return calls
}

async function send({ headers, body }: CurlCall): Promise<Response> {
  return await fetch(node.url, { method: 'POST', headers, body })
}

async function taskOf(answer: Response): Promise<{ id: string }> {
  const { result } = (await answer.json()) as { result: { task: { id: string } } }
  return result.task
}

describe('the commands of the README', () => {
  const withCurl = blocks('sh').filter((block) => block.includes('curl '))

  test('call a tool, with another message id each time', async () => {
    const calls = [...(await curlCalls(withCurl[0]!)), ...(await curlCalls(withCurl[0]!))]
    const tasks = await Promise.all(calls.map(async (call) => await taskOf(await send(call))))
    for (const task of tasks) {
      expect(task).toMatchObject({
        status: { state: 'TASK_STATE_COMPLETED' },
        artifacts: [{ parts: [{ data: { words: 6 } }] }],
      })
    }
    expect(tasks[0]!.id).not.toBe(tasks[1]!.id)
  })

  test('stream, resume and cancel as the text around them says', async () => {
    const [name, params] = /the tool `(\w+)` and the params `(\{.*?\})`/.exec(readme)?.slice(1) ?? []
    const [call] = await curlCalls(withCurl[0]!)
    const request = JSON.parse(call!.body)
    request.method = 'SendStreamingMessage'
    request.params.message.metadata._tool_call = { name, params: { ...JSON.parse(params ?? ''), delay_ms: 1 } }
    expect(JSON.parse(params ?? '')).toHaveProperty('delay_ms')
    const whole = await (await send({ ...call!, body: JSON.stringify(request) })).text()
    expect(whole).toContain('{"counted":10}')

    request.params.message.messageId = 'slow'
    request.params.message.metadata._tool_call.params = { n: 1000, delay_ms: 60_000 }
    request.method = 'SendMessage'
    request.params.configuration = { returnImmediately: true }
    const { id } = await taskOf(await send({ ...call!, body: JSON.stringify(request) }))
    const [resume, cancel] = await curlCalls(withCurl[1]!, { TASK: id })
    expect(resume!.headers).toHaveProperty('last-event-id')
    const resumed = await send(resume!)
    expect(resumed.headers.get('content-type')).toBe('text/event-stream')
    expect(await (await send(cancel!)).json()).toMatchObject({ result: { status: { state: 'TASK_STATE_CANCELED' } } })
    expect(await resumed.text()).toContain('TASK_STATE_CANCELED')
  })

  test('are commands that there are', async () => {
    const { scripts } = JSON.parse(await readFile(join(root, 'package.json'), 'utf8')) as { scripts: object }
    for (const [, script] of readme.matchAll(/npm run (\w+)/g)) expect(scripts).toHaveProperty(script!)
    for (const [, command] of readme.matchAll(/^npx convoke (\w+(?: check| run)?)/gm)) {
      await run(process.execPath, [join(root, 'dist/cli/main.js'), ...command!.split(' '), '--help'])
    }
  })
})

test.each(blocks('yaml'))('the configuration of the README is valid: %s', async (text) => {
  const file = join(folder, 'convoke.yaml')
  const whole = text.includes('agent:') ? text : `agent: { id: alice }\n${text}`
  await writeFile(file, whole.replace('<hex>', 'ab'.repeat(32)))
  expect((await loadConfig(file, { BOB_TOKEN: 'secret', SEARCH: 'secret' })).warnings).toEqual([])
})

test('the samples of the README type-check', async () => {
  const [tool, library, handler, peers, client, hooks, models, runs, agents, decorated] = blocks('ts')
  const settings = {
    extends: join(root, 'tsconfig.json'),
    compilerOptions: {
      noEmit: true,
      rootDir: '/',
      paths: { convoke: [join(root, 'dist/index.d.ts')] },
      typeRoots: [join(root, 'node_modules/@types')],
    },
    include: ['*.ts'],
  }
  const surroundings = `import { createNode } from 'convoke'
const node = await createNode({ agent: { id: 'alice' } })
const message = { tool_calls: [] as { id: string; type: 'function'; function: { name: string; arguments: string } }[] }
const messages: unknown[] = []
`
  await Promise.all([
    writeFile(join(folder, 'package.json'), '{"type":"module"}'),
    writeFile(join(folder, 'tsconfig.json'), JSON.stringify(settings)),
    writeFile(join(folder, 'count.ts'), tool!),
    writeFile(join(folder, 'agent.ts'), handler!),
    writeFile(
      join(folder, 'peers.ts'),
      `import { createNode } from 'convoke'\nconst node = await createNode({ agent: { id: 'alice' } })\nconst { signal } = new AbortController()\n${peers}`,
    ),
    writeFile(join(folder, 'client.ts'), `const bearer = ''\n${client}`),
    writeFile(join(folder, 'hooks.ts'), `import { createNode } from 'convoke'\n${hooks}`),
    writeFile(join(folder, 'runs.ts'), `${surroundings}${runs}`),
    writeFile(join(folder, 'agents.ts'), `import { countTo as notifyShipping } from './count.js'\n${agents}`),
    writeFile(join(folder, 'decorated.ts'), decorated!),
    writeFile(join(folder, 'models.ts'), `${surroundings}${models}`),
    writeFile(
      join(folder, 'node.ts'),
      `import { countTo } from './count.js'\nimport { countTo as anotherTool } from './count.js'\n${library}`,
    ),
  ])
  const tsc = join(root, 'node_modules/typescript/bin/tsc')
  const said = await run(process.execPath, [tsc, '-p', folder]).then(
    ({ stdout }) => stdout,
    (error: unknown) => (error as { stdout: string }).stdout,
  )
  expect(said).toBe('')
})
