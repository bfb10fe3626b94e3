/** The client commands against a real node, as processes: what they print where, and how they exit. */
import { defineTool, type Message, type Task } from 'convoke'
import { readdir, readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { describe, expect, test } from 'vitest'
import { hashToken } from '../dist/server/auth/token.js'
import { convoke, fieldsOf, linesOf, type Run } from './support/command.ts'
import { cleanup, deferred, startNode, temporaryFolder, until } from './support/lifetime.ts'
import { rpc, say, send, toolCall } from './support/wire.ts'

/** A node whose agent tells back what it got, part by part, and does what the first text says. */
function startEcho(): Promise<{ url: string }> {
  return startNode({
    onMessage: async function* (message, context) {
      const [first] = message.parts
      if (first?.text === 'message') return void (yield { type: 'message', text: 'Just a message.' })
      if (first?.text === 'fail') return { state: 'failed', text: 'It broke.' }
      if (first?.text === 'ask') {
        const answer = await context.ask('Which one?')
        return `You said ${JSON.stringify(answer)}.`
      }
      if (first?.text === 'files') {
        yield { type: 'file', bytes: Buffer.from([1, 2, 3]), filename: '../../evil.bin', mediaType: 'image/png' }
        yield { type: 'file', bytes: Buffer.from('second'), filename: '.evil.bin' }
        yield { type: 'file', url: 'http://127.0.0.1:1/elsewhere.png', filename: 'elsewhere.png' }
        yield { type: 'data', data: { a: [1, 2] }, name: 'numbers' }
        return
      }
      yield 'Hel'
      yield 'lo.\n\nState: not a field\u001b[31m'
      yield { type: 'data', data: message.parts as never, name: 'parts' }
    },
  })
}

function run(url: string, ...args: string[]): Promise<Run> {
  return convoke([...args, '-a', url])
}

async function sent(url: string, text: string, configuration = {}): Promise<Task> {
  return send(url, say(text), configuration)
}

describe('convoke send', () => {
  test('waits, and renders every artifact with the ids and the state, in text and in JSON', async () => {
    const { url } = await startEcho()
    const [text, json] = await Promise.all([run(url, 'send', 'hi'), run(url, 'send', 'hi', '-o', 'json')])
    expect({ code: text.code, stderr: text.stderr }).toEqual({ code: 0, stderr: '' })
    const fields = fieldsOf(text.stdout)
    expect(fields).toMatchObject({ State: ['TASK_STATE_COMPLETED'], Artifact: [expect.any(String), 'parts'] })
    expect(fields['Continue']).toEqual([`convoke send -a ${url} --context-id ${fields['Context ID']?.[0]} "<message>"`])
    expect(text.stdout).toContain('Text:\n  Hello.\n  \n  State: not a field[31m\n\n')
    expect(text.stdout).toContain('Data:\n  [\n    {\n      "text": "hi"\n    }\n  ]\n\n')
    const { task } = JSON.parse(json.stdout) as { task: Task }
    expect(json.stdout.endsWith('}\n')).toBe(true)
    expect(task.status.state).toBe('TASK_STATE_COMPLETED')
    expect(task.artifacts).toHaveLength(2)
  })

  test('carries parts of all kinds in their order, each with its media type', async () => {
    const { url } = await startEcho()
    const folder = await temporaryFolder()
    await writeFile(join(folder, 'a.md'), '# A')
    await writeFile(join(folder, 'plain'), 'P')
    const { stdout } = await convoke(
      [
        ...['send', 'zero', '--file', 'a.md', '--text', 'two', '--media-type', 'text/markdown', '--data', '-'],
        ...['--file', 'plain', '--media-type', 'application/pdf', '--file', 'https://example.com/pic.png?x=1'],
        ...['-a', url, '-o', 'json'],
      ],
      { cwd: folder, stdin: '{"three": 3}' },
    )
    const { task } = JSON.parse(stdout) as { task: Task }
    expect(task.artifacts?.at(-1)?.parts).toEqual([
      {
        data: [
          { text: 'zero' },
          { raw: Buffer.from('# A').toString('base64'), filename: 'a.md', mediaType: 'text/markdown' },
          { text: 'two', mediaType: 'text/markdown' },
          { data: { three: 3 }, mediaType: 'application/json' },
          { raw: Buffer.from('P').toString('base64'), filename: 'plain', mediaType: 'application/pdf' },
          { url: 'https://example.com/pic.png?x=1', filename: 'pic.png', mediaType: 'image/png' },
        ],
      },
    ])
  })

  test('exits with 0 and a warning when the task fails, and prints a message that is no task', async () => {
    const { url } = await startEcho()
    const [failed, message, streamed] = await Promise.all([
      run(url, 'send', 'fail'),
      run(url, 'send', 'message', '-o', 'json'),
      run(url, 'send', 'message', '-o', 'json', '--stream'),
    ])
    expect(failed).toMatchObject({ code: 0, stderr: 'warning: the task ended TASK_STATE_FAILED.\n' })
    expect(failed.stdout).toContain('Status message:\n  It broke.\n\n')
    for (const { code, stdout } of [message, streamed]) {
      expect(code).toBe(0)
      expect(linesOf(stdout)).toEqual([{ message: expect.objectContaining({ parts: [{ text: 'Just a message.' }] }) }])
    }
  })

  test('stops where the agent asks back, with the command that answers; that command answers', async () => {
    const { url } = await startEcho()
    const asked = await run(url, 'send', 'ask')
    const fields = fieldsOf(asked.stdout)
    const taskId = fields['Task ID']?.[0] ?? ''
    const resume = `convoke send -a ${url} --task-id ${taskId} "<reply>"`
    expect(asked).toMatchObject({
      code: 0,
      stderr: `warning: the task waits for you (TASK_STATE_INPUT_REQUIRED). Resume it: ${resume}\n`,
    })
    expect(fields).toMatchObject({ State: ['TASK_STATE_INPUT_REQUIRED'], Resume: [resume] })
    const answered = await run(url, 'send', '--task-id', taskId, 'the red one')
    expect(fieldsOf(answered.stdout)).toMatchObject({ 'Task ID': [taskId], State: ['TASK_STATE_COMPLETED'] })
    const again = await run(url, 'send', '--task-id', taskId, 'more', '-o', 'json')
    expect(again.code).toBe(1)
    expect(JSON.parse(again.stdout)).toMatchObject({
      error: { code: 'UnsupportedOperationError', hint: expect.stringContaining('--debug'), a2aCode: -32004 },
    })
  })

  test('--async gives the ids at once; task get --wait follows the task to its end', async () => {
    const gate = deferred()
    const { url } = await startNode({ onMessage: () => gate.promise.then(() => 'Done.') })
    const started = await run(url, 'send', 'go', '--async', '-o', 'json')
    const { task } = JSON.parse(started.stdout) as { task: Task }
    expect({ code: started.code, state: task.status.state }).toMatchObject({ code: 0 })
    expect(['TASK_STATE_SUBMITTED', 'TASK_STATE_WORKING']).toContain(task.status.state)
    const waiting = run(url, 'task', 'get', task.id, '--wait', '--poll-interval', '50ms', '-o', 'json')
    await until(
      async () => (await rpc<Task>(url, 'GetTask', { id: task.id })).body.result?.status.state === 'TASK_STATE_WORKING',
    )
    gate.resolve()
    const { code, stdout } = await waiting
    expect(code).toBe(0)
    expect((JSON.parse(stdout) as Task).status.state).toBe('TASK_STATE_COMPLETED')
  })

  test('--stream shows events as they come: a line of JSON each, the last one with ids and state', async () => {
    const { url } = await startEcho()
    const [json, text] = await Promise.all([
      run(url, 'send', 'hi', '--stream', '-o', 'json'),
      run(url, 'send', 'hi', '--stream'),
    ])
    const events = linesOf<Record<string, object>>(json.stdout)
    expect(events.every((event) => Object.keys(event).length === 1)).toBe(true)
    expect(events[0]).toHaveProperty('task')
    expect(events.at(-1)).toMatchObject({
      statusUpdate: {
        taskId: expect.any(String),
        contextId: expect.any(String),
        status: { state: 'TASK_STATE_COMPLETED' },
      },
    })
    const { 'Task ID': ids, State: states } = fieldsOf(text.stdout)
    expect(new Set(ids).size).toBe(1)
    expect(states?.at(-1)).toBe('TASK_STATE_COMPLETED')
    expect(text.stdout.slice(text.stdout.lastIndexOf('Task ID:'))).toMatch(
      /^Task ID: .*\nContext ID: .*\nState: TASK_STATE_COMPLETED\n/,
    )
  })

  test('--stream as text is one block for each text, with progress, and with what begins anew', async () => {
    const { url } = await startNode({
      async *onMessage() {
        yield 'Let me '
        yield 'see.\nWell'
        yield { type: 'progress', progress: 1, total: 1, message: 'word_count' }
        yield { type: 'status', text: 'Counted.' }
        yield { type: 'text', text: 'It is', append: false }
        yield ' two.\n'
        yield '\nBye.\n'
      },
    })
    const [text, verbose] = await Promise.all([
      run(url, 'send', 'hi', '--stream'),
      run(url, 'send', 'hi', '--stream', '--verbose'),
    ])
    expect(text.stdout.replace(/^(Task ID|Context ID|Continue): .*\n/gm, '$1\n')).toBe(`Task ID
Context ID
State: TASK_STATE_SUBMITTED
Task ID
Context ID
State: TASK_STATE_WORKING
Artifact: answer
Text:
  Let me see.
  Well

Progress: 1/1 word_count
Status message:
  Counted.

Begins anew: answer; what came of it so far does not count
Artifact: answer
Text:
  It is two.
  
  Bye.

Task ID
Context ID
State: TASK_STATE_COMPLETED
Continue
`)
    expect(verbose.stdout).toContain('Progress: 1/1 word_count\n')
    expect(verbose.stdout).toContain('Begins anew: answer; ')
  })

  test('attaches metadata to message and request, and repeats an id that it is given', async () => {
    let got: Message | undefined
    const { url } = await startNode({
      onMessage: (message) => {
        got = message
        return 'Done.'
      },
    })
    await run(url, 'send', 'hi', '--metadata', '{"k":{"v":1}}', '--message-id', 'm-1', '--context-id', 'c-1')
    expect(got).toMatchObject({ messageId: 'm-1', contextId: 'c-1', metadata: { k: { v: 1 } } })
  })

  test('a timeout exits with 5, an interruption with 130, and both say how to wait on', async () => {
    const gate = deferred()
    cleanup(gate.resolve)
    const { url } = await startNode({
      onMessage: async function* () {
        yield 'begun'
        await gate.promise
      },
    })
    const [late, stopped] = await Promise.all([
      run(url, 'send', 'go', '--timeout', '3s', '-o', 'json'),
      convoke(['send', 'go', '--stream', '-a', url], { interruptAt: 'begun' }),
    ])
    expect(late.code).toBe(5)
    expect(JSON.parse(late.stdout)).toEqual({
      error: {
        code: 'A2ACLI_ERR_TIMEOUT',
        message: expect.stringContaining('3000 ms'),
        hint: expect.stringMatching(/^Wait on: convoke task get --wait -a http:\S+ \S+$/),
        a2aCode: null,
      },
    })
    expect(stopped.code).toBe(130)
    expect(stopped.stderr).toMatch(
      /^convoke: CONVOKE_ERR_INTERRUPTED: Interrupted\.\nhint: Wait on: convoke task get --wait /m,
    )
  })
})

describe('convoke task', () => {
  test('get shows one task, with history only when asked for it', async () => {
    const { url } = await startEcho()
    const { id, contextId } = await sent(url, 'hi')
    const [text, json, history] = await Promise.all([
      run(url, 'task', 'get', id),
      run(url, 'task', 'get', id, '-o', 'json', '--transport', 'http+json'),
      run(url, 'task', 'get', id, '--history', '1'),
    ])
    expect(fieldsOf(text.stdout)).toMatchObject({
      'Task ID': [id],
      'Context ID': [contextId],
      State: ['TASK_STATE_COMPLETED'],
    })
    expect(text.stdout).not.toContain('ROLE_USER')
    expect(JSON.parse(json.stdout)).toMatchObject({ id, contextId })
    expect(fieldsOf(history.stdout)).toMatchObject({ Role: ['ROLE_USER'] })
  })

  test('list filters, pages, and streams one task a line', async () => {
    const { url } = await startEcho()
    const first = await sent(url, 'fail')
    const second = await sent(url, 'fail')
    const third = await sent(url, 'hi')
    const [failed, page, all] = await Promise.all([
      run(url, 'task', 'list', '--status', 'failed'),
      run(url, 'task', 'list', '--page-size', '1', '--context-id', third.contextId, '-o', 'json'),
      run(url, 'task', 'list', '--page-size', '1', '--all', '--stream', '-o', 'json'),
    ])
    expect(fieldsOf(failed.stdout)['Task ID']?.toSorted()).toEqual([first.id, second.id].toSorted())
    expect(JSON.parse(page.stdout)).toMatchObject({ tasks: [{ id: third.id }], nextPageToken: '', totalSize: 1 })
    expect(linesOf<Task>(all.stdout)).toHaveLength(3)
  })

  test('cancel reports the state, is repeatable, and refuses a task that ended otherwise', async () => {
    const { url } = await startEcho()
    const { id } = await sent(url, 'ask')
    const done = await sent(url, 'hi')
    const first = await run(url, 'task', 'cancel', id)
    expect(first).toMatchObject({ code: 0, stderr: '' })
    expect(fieldsOf(first.stdout)).toMatchObject({ 'Task ID': [id], State: ['TASK_STATE_CANCELED'] })
    const [again, ended] = await Promise.all([
      run(url, 'task', 'cancel', id, '-o', 'json'),
      run(url, 'task', 'cancel', done.id, '-o', 'json'),
    ])
    expect(again.code).toBe(0)
    expect(JSON.parse(again.stdout)).toMatchObject({ id, status: { state: 'TASK_STATE_CANCELED' } })
    expect(ended).toMatchObject({ code: 1, stderr: 'convoke: the task had ended already: TASK_STATE_COMPLETED\n' })
    expect(JSON.parse(ended.stdout)).toMatchObject({ error: { code: 'TaskNotCancelableError' } })
  })

  test('subscribe begins with the task, goes on behind an event, and shows a task that has ended', async () => {
    const gate = deferred()
    const { url } = await startNode({
      onMessage: async function* () {
        yield 'begun '
        await gate.promise
        yield 'done'
      },
    })
    const { id } = await sent(url, 'go', { returnImmediately: true })
    const following = run(url, 'task', 'subscribe', id, '--stream', '-o', 'json')
    const waiting = run(url, 'task', 'subscribe', id, '-o', 'json')
    await until(async () => (await rpc<Task>(url, 'GetTask', { id })).body.result?.artifacts !== undefined)
    gate.resolve()
    const [followed, waited] = await Promise.all([following, waiting])
    expect(linesOf(followed.stdout)[0]).toMatchObject({ task: { id } })
    expect(linesOf(followed.stdout).at(-1)).toMatchObject({
      [linesOf(followed.stdout).length === 1 ? 'task' : 'statusUpdate']: { status: { state: 'TASK_STATE_COMPLETED' } },
    })
    expect(JSON.parse(waited.stdout)).toMatchObject({ id, status: { state: 'TASK_STATE_COMPLETED' } })
    const ended = await run(url, 'task', 'subscribe', id, '--stream', '-o', 'json')
    expect(ended.code).toBe(0)
    expect(linesOf(ended.stdout)).toEqual([{ task: expect.objectContaining({ id }) }])
  })

  test('download saves artifacts inside of its folder, whatever their names, and overwrites nothing', async () => {
    const { url } = await startEcho()
    const folder = await temporaryFolder()
    const { id } = await sent(url, 'files')
    const args = ['task', 'download', id, '--dir', 'out', '-a', url]
    const first = await convoke(args, { cwd: folder })
    expect(first.code).toBe(0)
    expect(first.stderr).toBe(
      'convoke: elsewhere.png stands at http://127.0.0.1:1/elsewhere.png; --fetch-urls gets it.\n',
    )
    expect(await readdir(folder)).toEqual(['out'])
    expect((await readdir(join(folder, 'out'))).toSorted()).toEqual(['evil-2.bin', 'evil.bin', 'numbers.json'])
    expect(await readFile(join(folder, 'out', 'evil.bin'))).toEqual(Buffer.from([1, 2, 3]))
    await writeFile(join(folder, 'out', 'evil.bin'), 'mine')
    const again = await convoke([...args, '-o', 'json'], { cwd: folder })
    expect(again.code).toBe(1)
    expect(JSON.parse(again.stdout)).toMatchObject({ error: { code: 'CONVOKE_ERR_FILE' } })
    expect(await readFile(join(folder, 'out', 'evil.bin'), 'utf8')).toBe('mine')
    const [forced, one, guarded] = await Promise.all([
      convoke([...args, '--force', '-o', 'json'], { cwd: folder }),
      convoke(['task', 'download', id, '--artifact', 'numbers', '--out', 'n.json', '-a', url], { cwd: folder }),
      // An agent may not send its caller into the caller's own network.
      convoke([...args, '--force', '--fetch-urls', '-o', 'json'], { cwd: folder }),
    ])
    expect(JSON.parse(forced.stdout)).toMatchObject({
      task: { id },
      files: [{ bytes: 3, mediaType: 'image/png' }, {}, {}],
    })
    expect(one.code).toBe(0)
    expect(JSON.parse(await readFile(join(folder, 'n.json'), 'utf8'))).toEqual({ a: [1, 2] })
    expect(guarded.code).not.toBe(0)
    expect(guarded.stdout).toContain('not an address of the public internet')
  })

  test('a call of a tool is shown with the tool, its chunks in one block and one file', async () => {
    const tool = defineTool({
      name: 'count',
      description: 'Counts.',
      input: { type: 'object' },
      async *run() {
        yield { i: 1 }
        yield { i: 2 }
        yield 'that is all'
        return { counted: 2 }
      },
    })
    const { url } = await startNode({ tools: [tool] })
    const { id } = await send(url, toolCall('count'))
    const folder = await temporaryFolder()
    const [text, list, followed, saved] = await Promise.all([
      run(url, 'task', 'get', id),
      run(url, 'task', 'list'),
      run(url, 'task', 'subscribe', id, '--stream'),
      convoke(['task', 'download', id, '-a', url], { cwd: folder }),
    ])
    expect(text.stdout).toContain('Data:\n  {"i":1}\n  {"i":2}\n\nText:\n  that is all\n\n')
    expect(fieldsOf(list.stdout)['Tool']).toEqual(['count'])
    for (const { stdout } of [text, followed]) expect(stdout).not.toContain('Continue: ')
    expect(saved.code).toBe(0)
    expect((await readdir(folder)).toSorted()).toEqual(['result.json', 'stream.jsonl'])
    expect(linesOf(await readFile(join(folder, 'stream.jsonl'), 'utf8'))).toEqual([{ i: 1 }, { i: 2 }, 'that is all'])
  })

  test('push-config creates, gets, lists and deletes', async () => {
    const { url } = await startEcho()
    const { id } = await sent(url, 'ask')
    const base = ['task', 'push-config']
    const hook = ['--url', 'https://example.com/hook', '--token', 'tok-secret', '--auth-scheme', 'Bearer']
    const created = await run(url, ...base, 'create', id, ...hook, '-o', 'json', '--debug')
    const config = JSON.parse(created.stdout) as { id: string }
    expect(config).toMatchObject({ taskId: id, url: 'https://example.com/hook' })
    expect(created.stderr).not.toContain('tok-secret')
    const [got, list] = await Promise.all([
      run(url, ...base, 'get', id, config.id),
      run(url, ...base, 'list', id, '-o', 'json'),
    ])
    expect(fieldsOf(got.stdout)).toMatchObject({
      'Task ID': [id],
      State: ['TASK_STATE_INPUT_REQUIRED'],
      'Push config': [config.id],
      Authentication: ['Bearer'],
    })
    expect(JSON.parse(list.stdout)).toMatchObject({ configs: [{ id: config.id }] })
    expect(await run(url, ...base, 'delete', id, config.id, '-o', 'json')).toMatchObject({ code: 0, stdout: '{}\n' })
    const empty = await run(url, ...base, 'list', id)
    expect(fieldsOf(empty.stdout)['Push configs']).toEqual(['0'])
  })
})

describe('convoke card get', () => {
  test('shows a card from a host, a URL and a file, and validates it', async () => {
    const { url } = await startEcho()
    const folder = await temporaryFolder()
    const json = await run(url.replace('http://', ''), 'card', 'get', '-o', 'json', '--validate')
    expect({ code: json.code, stderr: json.stderr }).toEqual({ code: 0, stderr: '' })
    const card = JSON.parse(json.stdout) as Record<string, unknown>
    await writeFile(join(folder, 'card.json'), JSON.stringify(card))
    await writeFile(join(folder, 'bad.json'), JSON.stringify({ ...card, version: 1, skills: [{ id: 'x' }] }))
    const [text, byUrl, byFile, bad, used] = await Promise.all([
      run(url, 'card', 'get', '--validate'),
      run(`${url}/.well-known/agent-card.json`, 'card', 'get', '-o', 'json'),
      run(`file://${folder}/card.json`, 'card', 'get', '-o', 'json'),
      run(join(folder, 'bad.json'), 'card', 'get', '-o', 'json', '--validate'),
      run(join(folder, 'card.json'), 'send', 'hi'),
    ])
    expect(fieldsOf(text.stdout)).toMatchObject({ Name: ['Alice'], Streaming: ['yes'], Valid: ['yes'] })
    expect(fieldsOf(text.stdout)['Interface']).toContain(`JSONRPC 1.0 ${url}`)
    expect(JSON.parse(byUrl.stdout)).toEqual(card)
    expect(JSON.parse(byFile.stdout)).toEqual(card)
    expect(bad.code).toBe(1)
    const { error } = JSON.parse(bad.stdout) as { error: { code: string; message: string } }
    expect(error.code).toBe('A2ACLI_ERR_CARD_INVALID')
    expect(error.message).toMatch(/\/version .*\/skills\/0\/name /)
    expect(fieldsOf(used.stdout)['State']).toEqual(['TASK_STATE_COMPLETED'])
  })
})

describe('failures', () => {
  test('each has its code, its exit code and a hint, and the streams are not mixed', async () => {
    const { url } = await startEcho()
    const tokens = [{ id: 'bob', sha256: hashToken('right-token') }]
    const closed = await startNode({ onMessage: () => 'hi', server: { auth: { tokens } } })
    const rows: [args: string[], exitCode: number, code: string][] = [
      [['task', 'get', 'nope', '-a', url], 1, 'TaskNotFoundError'],
      [['send', 'hi', '--task-id', 'nope', '-a', url], 1, 'TaskNotFoundError'],
      [['send', 'hi', '-a', 'localhost:1'], 3, 'A2ACLI_ERR_UNREACHABLE'],
      [['card', 'get', '-a', `${url}/nothing.json`], 3, 'A2ACLI_ERR_CARD_NOT_FOUND'],
      [['card', 'get', '-a', './no-such-card.json'], 3, 'A2ACLI_ERR_CARD_NOT_FOUND'],
      [['send', 'hi', '-a', closed.url], 4, 'A2ACLI_ERR_CREDENTIALS_MISSING'],
      [['send', 'hi', '-a', closed.url, '--bearer', 'wrong-token'], 4, 'A2ACLI_ERR_AUTH_FAILED'],
      [['send', 'hi'], 2, 'A2ACLI_ERR_USAGE'],
      [['send', '-a', url], 2, 'A2ACLI_ERR_USAGE'],
      [['send', '--media-type', 'text/plain', '--text', 'x', '-a', url], 2, 'A2ACLI_ERR_USAGE'],
      [['send', 'x', '--stream', '--async', '-a', url], 2, 'A2ACLI_ERR_USAGE'],
      [['send', 'x', '--nonsense', '-a', url], 2, 'A2ACLI_ERR_USAGE'],
      [['send', 'x', '--data', '{"a":1}', '-a', url], 2, 'A2ACLI_ERR_USAGE'],
      [['task'], 2, 'A2ACLI_ERR_USAGE'],
    ]
    await Promise.all(
      rows.map(async ([args, exitCode, code]) => {
        const { stdout, stderr, ...run } = await convoke([...args, '-o', 'json'])
        expect({ args, ...run, envelope: JSON.parse(stdout) }).toEqual({
          args,
          code: exitCode,
          envelope: {
            error: {
              code,
              message: expect.any(String),
              hint: expect.any(String),
              a2aCode: expect.toBeOneOf([null, expect.any(Number)]),
            },
          },
        })
        expect(stderr).not.toMatch(/wrong-token|^\s+at /m)
      }),
    )
    const folder = await temporaryFolder()
    await writeFile(join(folder, 'convoke.yaml'), `agent: { id: me }\npeers: { nobody-there: { url: "${url}" } }`)
    const peer = await convoke(['send', 'hi', '-a', 'nobody-there'], { cwd: folder })
    expect(peer.stderr).toContain(`hint: -a takes a URL: -a ${url}. nobody-there is a peer of convoke.yaml;`)
    const missing = await convoke(['task', 'get'])
    expect(missing.stderr).toBe(
      "error: missing required argument 'task-id'\n(convoke task get --help shows what there is)\n",
    )
    const text = await convoke(['task', 'get', 'nope', '-a', url])
    expect(text).toMatchObject({ code: 1, stdout: '' })
    expect(text.stderr).toBe(
      `convoke: TaskNotFoundError: Task "nope" was not found.\nhint: See the tasks there are: convoke task list -a ${url}\n`,
    )
  })

  test('credentials get in by flag and by variable, and --debug shows none of them', async () => {
    const tokens = [{ id: 'bob', sha256: hashToken('right-token') }]
    const { url } = await startNode({ onMessage: () => 'hi right-token', server: { auth: { tokens } } })
    const [flag, variable, key] = await Promise.all([
      run(url, 'send', 'right-token', '--bearer', 'right-token', '--debug', '--svc-param', 'x-trace: trace-secret'),
      convoke(['send', 'hi', '-a', url], { env: { A2ACLI_BEARER: 'right-token' } }),
      run(url, 'send', 'hi', '--api-key', 'right-token'),
    ])
    for (const { code } of [flag, variable, key]) expect(code).toBe(0)
    expect(flag.stderr).toContain('"SendStreamingMessage')
    expect(flag.stderr).not.toMatch(/right-token|trace-secret/)
    expect(flag.stderr).toContain('[redacted]')
  })
})
