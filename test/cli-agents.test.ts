/** The client commands against agents that are unlike ours: those that cannot stream, that break, that speak otherwise. */
import { describe, expect, test } from 'vitest'
import { startAgent, type AgentAnswer } from './support/agent.ts'
import { convoke, fieldsOf, linesOf, type Run } from './support/command.ts'

function run(url: string, ...args: string[]): Promise<Run> {
  return convoke([...args, '-a', url])
}

function task(state: string, more: object = {}): object {
  return { id: 't-1', contextId: 'c-1', status: { state: `TASK_STATE_${state}` }, ...more }
}

/** Answers GetTask with one state after the other, the last one for ever. */
function states(...names: string[]): () => AgentAnswer {
  const left = [...names]
  return () => ({ result: task((left.length > 1 ? left.shift() : left[0]) ?? '') })
}

describe('waiting', () => {
  test('polls an agent that cannot stream, through an unspecified state, to the end', async () => {
    const agent = await startAgent({
      SendMessage: () => ({ result: { task: task('SUBMITTED') } }),
      GetTask: states('WORKING', 'UNSPECIFIED', 'COMPLETED'),
    })
    const { code, stdout } = await run(agent.url, 'send', 'go', '--poll-interval', '50ms', '-o', 'json')
    expect(code).toBe(0)
    expect(JSON.parse(stdout)).toEqual({ task: task('COMPLETED') })
    expect(agent.requests.map(({ method }) => method)).toEqual(['SendMessage', 'GetTask', 'GetTask', 'GetTask'])
    expect(agent.requests.map(({ headers }) => headers['a2a-version'])).toEqual(['1.0', '1.0', '1.0', '1.0'])
  })

  test('stops at once where the task waits for its caller', async () => {
    const agent = await startAgent({ GetTask: states('WORKING', 'AUTH_REQUIRED', 'COMPLETED') })
    const { code, stdout, stderr } = await run(agent.url, 'task', 'get', 't-1', '--watch', '--poll-interval', '50ms')
    expect(code).toBe(0)
    expect(fieldsOf(stdout)).toMatchObject({ State: ['TASK_STATE_AUTH_REQUIRED'], 'Task ID': ['t-1'] })
    expect(stderr).toContain('convoke send -a ')
    expect(agent.requests).toHaveLength(2)
  })

  test('asks for the task when its stream breaks, and polls it to its end', async () => {
    const agent = await startAgent(
      {
        SendStreamingMessage: () => ({ events: [{ task: task('WORKING') }, { task: { broken: true } }] }),
        GetTask: states('WORKING', 'COMPLETED'),
      },
      { capabilities: { streaming: true } },
    )
    const { code, stdout } = await run(agent.url, 'send', 'go', '--poll-interval', '50ms', '-o', 'json')
    expect({ code, stdout: JSON.parse(stdout) as unknown }).toEqual({ code: 0, stdout: { task: task('COMPLETED') } })
  })

  test('gives up at the timeout while an agent works on', async () => {
    const agent = await startAgent({
      SendMessage: () => ({ result: { task: task('WORKING') } }),
      GetTask: states('WORKING'),
    })
    const { code, stdout } = await run(
      agent.url,
      'send',
      'go',
      '--poll-interval',
      '50ms',
      '--timeout',
      '1500ms',
      '-o',
      'json',
    )
    expect(code).toBe(5)
    expect(JSON.parse(stdout)).toMatchObject({
      error: { code: 'A2ACLI_ERR_TIMEOUT', hint: expect.stringContaining('t-1') },
    })
  })

  test('--stream at an agent that cannot stream still gives lines, and the last one is the task', async () => {
    const agent = await startAgent({
      SendMessage: () => ({ result: { task: task('SUBMITTED') } }),
      GetTask: states('COMPLETED'),
    })
    const { code, stdout, stderr } = await run(agent.url, 'send', 'go', '--stream', '-o', 'json')
    expect(code).toBe(0)
    expect(linesOf(stdout)).toEqual([{ task: task('COMPLETED') }])
    expect(stderr).toContain('does not stream')
  })

  test('goes on with a stream that was cut', async () => {
    const agent = await startAgent(
      {
        SendStreamingMessage: () => ({ events: [{ task: task('WORKING') }] }),
        SubscribeToTask: () => ({ events: [{ task: task('COMPLETED') }] }),
      },
      { capabilities: { streaming: true } },
    )
    const { code, stdout } = await run(agent.url, 'send', 'go', '--stream', '-o', 'json')
    expect(code).toBe(0)
    expect(linesOf(stdout)).toMatchObject([
      { task: task('WORKING') },
      { statusUpdate: { taskId: 't-1', contextId: 'c-1', status: { state: 'TASK_STATE_COMPLETED' } } },
    ])
    expect(agent.requests.map(({ method }) => method)).toEqual(['SendStreamingMessage', 'SubscribeToTask'])
  })

  test('standard input that never ends is left at the timeout', async () => {
    const args = ['send', '--data', '-', '-a', 'localhost:1', '--timeout', '500ms', '-o', 'json']
    const { code, stdout } = await convoke(args, { stdin: { open: true } })
    expect(code).toBe(5)
    expect(JSON.parse(stdout)).toMatchObject({ error: { code: 'A2ACLI_ERR_TIMEOUT' } })
  })

  test('an error that ends a stream is the last line of it', async () => {
    const agent = await startAgent(
      { SendStreamingMessage: () => ({ events: [{ task: task('WORKING') }, 'no event'] }) },
      { capabilities: { streaming: true } },
    )
    const { code, stdout } = await run(agent.url, 'send', 'go', '--stream', '-o', 'json')
    expect(code).toBe(1)
    expect(linesOf(stdout)).toEqual([
      { task: task('WORKING') },
      { error: expect.objectContaining({ code: 'InvalidAgentResponseError' }) },
    ])
  })
})

describe('the card decides', () => {
  test('which interface is used: the first that is spoken, or the one that is wished for, with its tenant', async () => {
    const agent = await startAgent({ GetTask: states('COMPLETED') }, (url) => ({
      supportedInterfaces: [
        { url, protocolBinding: 'GRPC', protocolVersion: '1.0' },
        { url: `${url}/first`, protocolBinding: 'JSONRPC', protocolVersion: '1.0', tenant: 'acme' },
        { url: `${url}/rest`, protocolBinding: 'HTTP+JSON', protocolVersion: '1.0' },
      ],
    }))
    await run(agent.url, 'task', 'get', 't-1')
    await run(agent.url, 'task', 'get', 't-1', '--transport', 'grpc')
    expect(agent.requests).toMatchObject([
      { url: '/first', params: { tenant: 'acme', id: 't-1' } },
      { url: '/first', params: { tenant: 'acme', id: 't-1' } },
    ])
    await run(agent.url, 'task', 'get', 't-1', '--transport', 'grpc', '--transport', 'http+json')
    expect(agent.requests.at(-1)).toMatchObject({ method: 'GET', url: '/rest/tasks/t-1' })
  })

  test('where a credential goes, and the card itself gets none', async () => {
    const agent = await startAgent(
      { GetTask: states('COMPLETED') },
      { securitySchemes: { key: { apiKeySecurityScheme: { location: 'query', name: 'k' } } } },
    )
    const { code, stderr } = await run(
      agent.url,
      'task',
      'get',
      't-1',
      '--api-key',
      'very-secret',
      '--debug',
      '--insecure',
    )
    expect(code).toBe(0)
    expect(agent.requests[0]?.url).toBe('/rpc?k=very-secret')
    expect(agent.cardRequests).toHaveLength(1)
    expect(JSON.stringify(agent.cardRequests)).not.toContain('very-secret')
    expect(stderr).not.toContain('very-secret')
    expect(stderr).toMatch(/^WARNING: --insecure/m)
    expect(stderr).toMatch(/^WARNING: a credential is sent over this unverified connection/m)
  })

  test('where it is itself: a URL with a path is that of a card, or of an agent that has its card below', async () => {
    const agent = await startAgent({ GetTask: states('COMPLETED') })
    const [card, below] = await Promise.all([
      run(`${agent.url}/cards/one`, 'card', 'get', '-o', 'json'),
      run(`${agent.url}/agents/one`, 'card', 'get', '-o', 'json'),
    ])
    expect(JSON.parse(card.stdout)).toEqual(agent.card)
    expect(below.code).toBe(3)
    const used = await run(`${agent.url}/cards/one`, 'task', 'get', 't-1')
    expect(fieldsOf(used.stdout)['Task ID']).toEqual(['t-1'])
  })

  test('what is not offered is not asked for', async () => {
    const agent = await startAgent({})
    const { code, stdout } = await run(agent.url, 'task', 'push-config', 'list', 't-1', '-o', 'json')
    expect(code).toBe(1)
    expect(JSON.parse(stdout)).toMatchObject({ error: { code: 'PushNotificationNotSupportedError', a2aCode: null } })
    expect(agent.requests).toEqual([])
  })

  test('an agent of 0.3 is spoken to only when that is asked for', async () => {
    const agent = await startAgent(
      {
        'tasks/get': () => ({ result: { kind: 'task', id: 't-1', contextId: 'c-1', status: { state: 'completed' } } }),
      },
      (url) => ({
        supportedInterfaces: [{ url, protocolBinding: 'JSONRPC', protocolVersion: '0.3' }],
      }),
    )
    const [refused, asked] = await Promise.all([
      run(agent.url, 'task', 'get', 't-1', '-o', 'json'),
      run(agent.url, 'task', 'get', 't-1', '-o', 'json', '--a2a-version', '0.3'),
    ])
    expect(refused.code).toBe(1)
    expect(JSON.parse(refused.stdout)).toMatchObject({
      error: { code: 'VersionNotSupportedError', hint: expect.stringContaining('--a2a-version 0.3') },
    })
    expect(asked.code).toBe(0)
    expect(JSON.parse(asked.stdout)).toMatchObject({ id: 't-1', status: { state: 'TASK_STATE_COMPLETED' } })
  })
})

test('--stream is never taken from the environment, other options are', async () => {
  const agent = await startAgent({
    SendMessage: ({ params }) => ({ result: { task: task('SUBMITTED', { metadata: params['configuration'] }) } }),
  })
  const env = { A2ACLI_AGENT_CARD: agent.url, A2ACLI_STREAM: 'true', A2ACLI_ASYNC: 'true', A2ACLI_CONTEXT_ID: 'c-9' }
  const { code, stdout, stderr } = await convoke(['send', 'go', '-o', 'json'], { env })
  expect({ code, stderr }).toEqual({ code: 0, stderr: '' })
  expect(JSON.parse(stdout)).toEqual({ task: task('SUBMITTED', { metadata: { returnImmediately: true } }) })
  expect(agent.requests[0]?.params).toMatchObject({ message: { contextId: 'c-9' } })
})

test('--verbose shows what was sent, and part by part what came', async () => {
  const parts = [{ text: 'a' }, { text: 'b', metadata: { lang: 'en' } }]
  const agent = await startAgent({
    SendMessage: () => ({ result: { task: task('COMPLETED', { artifacts: [{ artifactId: 'x', parts }] }) } }),
  })
  const [plain, verbose] = await Promise.all([
    run(agent.url, 'send', 'hello'),
    run(agent.url, 'send', 'hello', '--verbose'),
  ])
  expect(plain.stdout).toContain('Artifact: x\nText:\n  ab\n\n')
  expect(fieldsOf(verbose.stdout)).toMatchObject({ Sent: [expect.any(String)], Part: ['1 of 1', '1 of 2', '2 of 2'] })
  expect(verbose.stdout).toContain('Metadata:\n  {\n    "lang": "en"\n  }\n\n')
})

describe('answers that are none', () => {
  test.each<[AgentAnswer, string, number]>([
    [{ result: { nothing: true } }, 'InvalidAgentResponseError', 1],
    [{ error: { code: -32603, message: 'Boom.' } }, 'InternalError', 1],
    [{ error: { code: -32001, message: 'Gone.' } }, 'TaskNotFoundError', 1],
    [{ error: { code: -32602, message: 'No.' } }, 'InvalidParamsError', 1],
    [{ status: 401 }, 'A2ACLI_ERR_CREDENTIALS_MISSING', 4],
  ])('%j is %s', async (answer, code, exitCode) => {
    const agent = await startAgent({ GetTask: () => answer })
    const result = await run(agent.url, 'task', 'get', 't-1', '-o', 'json')
    expect(result.code).toBe(exitCode)
    expect(JSON.parse(result.stdout)).toMatchObject({ error: { code } })
  })

  test('a card that is no card is told apart from none', async () => {
    const agent = await startAgent({}, { name: 7 })
    const { code, stdout } = await run(agent.url, 'card', 'get', '-o', 'json')
    expect(code).toBe(1)
    expect(JSON.parse(stdout)).toMatchObject({ error: { code: 'A2ACLI_ERR_CARD_INVALID' } })
  })
})
