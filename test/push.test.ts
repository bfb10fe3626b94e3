import { defineTool, type Task, type Tool } from 'convoke'
import { join } from 'node:path'
import { describe, expect, test } from 'vitest'
import { createGuardedFetch } from '../dist/base/guarded-fetch.js'
import { cleanup, deferred, startNode, temporaryFolder, until, type Deferred } from './support/lifetime.ts'
import { startReceiver, type Answering, type Delivery } from './support/receiver.ts'
import {
  begin,
  rest,
  rpc,
  say,
  send,
  sendStream,
  subscribe,
  toolCall,
  type Params,
  type RestErrorBody,
  type StreamResponse,
} from './support/wire.ts'

/** Counts to three, waits for the test, and counts to six. */
function counter(): { tool: Tool; gate: Deferred<void> } {
  const gate = deferred()
  const tool = defineTool({
    name: 'count',
    description: 'Counts.',
    input: { type: 'object' },
    async *run() {
      yield* ['1', '2', '3']
      await gate.promise
      yield* ['4', '5', '6']
      return 'counted'
    },
  })
  cleanup(() => gate.resolve())
  return { tool, gate }
}

const stateOf = (body: StreamResponse): string | undefined => body.statusUpdate?.status.state ?? body.task?.status.state
const isCompleted = (body: StreamResponse): boolean => stateOf(body) === 'TASK_STATE_COMPLETED'
const saysText = (text: string) => (body: StreamResponse) => body.artifactUpdate?.artifact.parts[0]?.text === text
const bodies = (deliveries: readonly Delivery[]): StreamResponse[] => deliveries.map(({ body }) => body)

/** What the stream of a task says from its beginning. */
async function story(url: string, id: string): Promise<StreamResponse[]> {
  return (await (await subscribe(url, id, { lastEventId: 0 })).all()).map(({ data }) => data)
}

describe('a webhook', () => {
  test('that came with the message gets what the stream gets, in the same order, with its credentials', async () => {
    const { tool, gate } = counter()
    const receiver = await startReceiver()
    const { url } = await startNode({ tools: [tool] })
    const taskPushNotificationConfig = {
      url: receiver.hook('mine'),
      token: 'my-token',
      authentication: { scheme: 'Bearer', credentials: 'my-credentials' },
    }
    gate.resolve()
    const { id } = await send(url, toolCall('count'), { taskPushNotificationConfig })
    const deliveries = await receiver.upTo('mine', isCompleted)
    expect(bodies(deliveries)).toEqual(await story(url, id))
    for (const { headers } of deliveries) {
      expect(headers).toMatchObject({
        'content-type': 'application/a2a+json',
        'a2a-version': '1.0',
        'x-a2a-notification-token': 'my-token',
        authorization: 'Bearer my-credentials',
      })
    }
  })

  test('that is made for a running task gets what comes from then on', async () => {
    const { tool, gate } = counter()
    const receiver = await startReceiver()
    const { url } = await startNode({ tools: [tool] })
    const reader = await sendStream(url, toolCall('count'))
    const id = (await reader.upTo(({ data }) => saysText('3')(data)))[0]!.data.task!.id
    const overRest = await rest(url, `POST /tasks/${id}/pushNotificationConfigs`, {
      url: receiver.hook('rest'),
      id: 'rest',
    })
    expect(overRest.body).toMatchObject({ id: 'rest', taskId: id })
    await rpc(url, 'CreateTaskPushNotificationConfig', { taskId: id, url: receiver.hook('rpc') })
    gate.resolve()
    const following = (await reader.all()).map(({ data }) => data)
    for (const name of ['rest', 'rpc']) expect(bodies(await receiver.upTo(name, isCompleted))).toEqual(following)
  })

  test('hears a question, and what follows from the answer', async () => {
    const asking = defineTool({
      name: 'ask',
      description: 'Asks.',
      input: { type: 'object' },
      run: (_params, { ask }) => ask({ message: 'Well?' }),
    })
    const receiver = await startReceiver()
    const { url } = await startNode({ tools: [asking] })
    const { id } = await send(url, toolCall('ask'), { taskPushNotificationConfig: { url: receiver.hook('mine') } })
    const asked = await receiver.upTo('mine', (body) => stateOf(body) === 'TASK_STATE_INPUT_REQUIRED')
    expect(asked.at(-1)?.body.statusUpdate?.status.message?.parts).toEqual([{ text: 'Well?' }])
    await send(url, say('Good.', { taskId: id }))
    expect(bodies(await receiver.upTo('mine', isCompleted))).toEqual(await story(url, id))
  })

  test('that fails gets everything in order when it works again', async () => {
    const { tool, gate } = counter()
    // The third event fails twice, the second time with the wish to be left alone for a while.
    const receiver = await startReceiver((name, call) => {
      if (name === 'well' || (call !== 3 && call !== 4)) return { status: 200 }
      return call === 3 ? { status: 500 } : { status: 503, headers: { 'retry-after': '0.05' } }
    })
    const { url } = await startNode({ tools: [tool] })
    const { id } = await begin(url, toolCall('count'))
    await rpc(url, 'CreateTaskPushNotificationConfig', { taskId: id, url: receiver.hook('ill') })
    await rpc(url, 'CreateTaskPushNotificationConfig', { taskId: id, url: receiver.hook('well') })
    gate.resolve()
    // It does not hold up another one.
    await receiver.upTo('well', isCompleted)
    expect(bodies(receiver.taken('ill')).some(isCompleted)).toBe(false)
    const deliveries = await receiver.upTo('ill', isCompleted)
    const whole = await story(url, id)
    expect(bodies(deliveries)).toEqual(whole.slice(-deliveries.length))
    expect(bodies(deliveries).filter((body) => body.artifactUpdate !== undefined).length).toBeGreaterThan(3)
    expect(receiver.calls('ill')).toBe(deliveries.length + 2)
  })

  test('that says it is gone is left alone', async () => {
    const { tool, gate } = counter()
    const receiver = await startReceiver((name) => ({ status: name === 'gone' ? 410 : 200 }))
    const { url } = await startNode({ tools: [tool] })
    const { id } = await begin(url, toolCall('count'))
    for (const name of ['gone', 'there']) {
      await rpc(url, 'CreateTaskPushNotificationConfig', { taskId: id, url: receiver.hook(name), id: name })
    }
    gate.resolve()
    await receiver.upTo('there', isCompleted)
    expect(receiver.calls('gone')).toBe(1)
  })

  test('that was deleted gets nothing more', async () => {
    const { tool, gate } = counter()
    const receiver = await startReceiver()
    const { url } = await startNode({ tools: [tool] })
    const { id } = await send(url, toolCall('count'), {
      taskPushNotificationConfig: { url: receiver.hook('gone'), id: 'gone' },
      returnImmediately: true,
    })
    await rpc(url, 'CreateTaskPushNotificationConfig', { taskId: id, url: receiver.hook('there'), id: 'there' })
    const before = [...(await receiver.upTo('gone', saysText('3')))]
    await rpc(url, 'DeleteTaskPushNotificationConfig', { taskId: id, id: 'gone' })
    gate.resolve()
    await receiver.upTo('there', isCompleted)
    expect(receiver.taken('gone')).toEqual(before)
  })

  test('that redirects is not followed', async () => {
    const { tool, gate } = counter()
    const receiver = await startReceiver((name) =>
      name === 'away' ? { status: 307, headers: { location: '/elsewhere' } } : { status: 200 },
    )
    const { url } = await startNode({ tools: [tool] })
    const { id } = await begin(url, toolCall('count'))
    for (const name of ['away', 'there']) {
      await rpc(url, 'CreateTaskPushNotificationConfig', { taskId: id, url: receiver.hook(name), id: name })
    }
    gate.resolve()
    await receiver.upTo('there', isCompleted)
    expect(receiver.calls('away')).toBe(1)
    expect(receiver.calls('elsewhere')).toBe(0)
  })

  test('of version 0.3 gets the whole task at every change of its status', async () => {
    const { tool, gate } = counter()
    const receiver = await startReceiver()
    const { url } = await startNode({ tools: [tool] })
    const message = { ...toolCall('count'), kind: 'message', role: 'user', parts: [{ kind: 'text', text: 'count' }] }
    const configuration = { blocking: false, pushNotificationConfig: { url: receiver.hook('old'), token: 'my-token' } }
    const { body } = await rpc<Task>(url, 'message/send', { message, configuration }, { version: '0.3' })
    const id = body.result!.id
    gate.resolve()
    const old = (each: StreamResponse): { kind: string; id: string; status: { state: string } } => each as never
    const deliveries = await receiver.upTo('old', (each) => old(each).status.state === 'completed')
    for (const { body: each, headers } of deliveries) {
      expect(old(each)).toMatchObject({ kind: 'task', id })
      expect(headers).toMatchObject({ 'content-type': 'application/json', 'x-a2a-notification-token': 'my-token' })
    }
    expect((await rpc<Task>(url, 'tasks/get', { id }, { version: '0.3' })).body.result).toEqual(deliveries.at(-1)?.body)
  })
})

describe('when another process opens the same store delivery goes on where it stood', () => {
  /** The first process is stopped at the third call of the hook; the second finds a receiver that works. */
  async function restart(third: Answering | undefined): Promise<{ expected: StreamResponse[]; got: StreamResponse[] }> {
    const { tool, gate } = counter()
    let works = false
    const receiver = await startReceiver((_name, call) => (works || call < 3 ? { status: 200 } : third))
    const store = { url: `sqlite:${join(await temporaryFolder(), 'node.db')}` }
    const first = await startNode({ tools: [tool], store })
    gate.resolve()
    const { id } = await send(first.url, toolCall('count'), {
      taskPushNotificationConfig: { url: receiver.hook('mine') },
    })
    const whole = await story(first.url, id)
    await until(() => receiver.calls('mine') === 3, 'the third call')
    await first.stop()
    expect(receiver.taken('mine')).toHaveLength(2)
    works = true
    await startNode({ tools: [tool], store })
    return { expected: whole, got: bodies(await receiver.upTo('mine', isCompleted)) }
  }

  test('behind a receiver that failed', async () => {
    const { expected, got } = await restart({ status: 503, headers: { 'retry-after': '0.05' } })
    expect(got).toEqual(expected)
  })

  test('in the middle of a call', async () => {
    const { expected, got } = await restart(undefined)
    expect(got).toEqual(expected)
  })

  test('and its task, when that goes on there', async () => {
    const asking = defineTool({
      name: 'ask',
      description: 'Asks.',
      input: { type: 'object' },
      traits: { idempotent: true },
      run: (_params, { ask }) => ask({ message: 'Well?' }),
    })
    const receiver = await startReceiver()
    const store = { url: `sqlite:${join(await temporaryFolder(), 'node.db')}` }
    const first = await startNode({ tools: [asking], store })
    const { id } = await send(first.url, toolCall('ask'), {
      taskPushNotificationConfig: { url: receiver.hook('mine') },
    })
    await receiver.upTo('mine', (body) => stateOf(body) === 'TASK_STATE_INPUT_REQUIRED')
    await first.stop()
    const second = await startNode({ tools: [asking], store })
    await send(second.url, say('Good.', { taskId: id }))
    expect(bodies(await receiver.upTo('mine', isCompleted))).toEqual(await story(second.url, id))
  })
})

describe('an address that is not public', () => {
  const refused = [
    'http://127.0.0.1:1/',
    'http://localhost/',
    'http://sub.localhost/',
    'http://10.1.2.3/',
    'http://192.168.0.1/',
    'http://172.16.0.1/',
    'http://169.254.169.254/latest/meta-data',
    'http://0.0.0.0/',
    'http://[::1]/',
    'http://[::ffff:127.0.0.1]/',
    'http://[fd00::1]/',
    'http://2130706433/',
    'http://0x7f.1/',
    'http://100.64.0.1/',
  ]

  test.each(refused)('is refused when a webhook names it: %s', async (hook) => {
    const { tool, gate } = counter()
    gate.resolve()
    const { url } = await startNode({ tools: [tool], server: { push: { allowPrivate: false } } })
    const { id } = await send(url, toolCall('count'))
    const { body } = await rpc(url, 'CreateTaskPushNotificationConfig', { taskId: id, url: hook })
    expect(body.error).toMatchObject({ code: -32602, message: expect.stringContaining('not public') })
    const overRest = await rest<RestErrorBody>(url, `POST /tasks/${id}/pushNotificationConfigs`, { url: hook })
    expect(overRest.status).toBe(400)
    const legacy: Params = { taskId: id, pushNotificationConfig: { url: hook } }
    const old = await rpc(url, 'tasks/pushNotificationConfig/set', legacy, { version: '0.3' })
    expect(old.body.error?.code).toBe(-32602)
  })

  test.each(['ftp://example.com/', 'file:///etc/passwd', 'javascript:alert(1)', 'nonsense', '//example.com'])(
    'is refused when it is no web address at all: %s',
    async (hook) => {
      const { tool, gate } = counter()
      gate.resolve()
      const { url } = await startNode({ tools: [tool] })
      const { id } = await send(url, toolCall('count'))
      const { body } = await rpc(url, 'CreateTaskPushNotificationConfig', { taskId: id, url: hook })
      expect(body.error?.code).toBe(-32602)
    },
  )

  test('starts no work when it comes with the message', async () => {
    const { tool } = counter()
    const node = await startNode({ tools: [tool], server: { push: { allowPrivate: false } } })
    const taskPushNotificationConfig = { url: 'http://10.0.0.1/' }
    const { body } = await rpc(node.url, 'SendMessage', {
      message: toolCall('count'),
      configuration: { taskPushNotificationConfig },
    })
    expect(body.error?.code).toBe(-32602)
    expect(node.stats.running).toBe(0)
  })

  test('is not connected to, whatever name leads there', async () => {
    const receiver = await startReceiver()
    const { port } = new URL(receiver.hook('x'))
    const guarded = createGuardedFetch({ allowPrivate: false })
    cleanup(() => guarded.close())
    for (const host of ['localhost', '127.0.0.1']) {
      const sent = guarded.send(`http://${host}:${port}/x`, {
        method: 'POST',
        headers: {},
        body: '{}',
        timeoutMs: 5000,
      })
      await expect(sent).rejects.toMatchObject({ code: 'forbidden' })
    }
    expect(receiver.calls('x')).toBe(0)
  })
})

test('a task takes so many webhooks and no more', async () => {
  const { tool, gate } = counter()
  const receiver = await startReceiver()
  const { url } = await startNode({ tools: [tool] })
  const { id } = await begin(url, toolCall('count'))
  for (let n = 1; n <= 16; n++) {
    const config = { taskId: id, id: `hook-${n}`, url: receiver.hook(`hook-${n}`) }
    expect((await rpc(url, 'CreateTaskPushNotificationConfig', config)).body.error).toBeUndefined()
  }
  const more = { taskId: id, id: 'hook-17', url: receiver.hook('hook-17') }
  expect((await rpc(url, 'CreateTaskPushNotificationConfig', more)).body.error?.code).toBe(-32602)
  // One that is there can be replaced.
  const again = { taskId: id, id: 'hook-16', url: receiver.hook('replaced') }
  expect((await rpc(url, 'CreateTaskPushNotificationConfig', again)).body.error).toBeUndefined()
  gate.resolve()
  await receiver.upTo('replaced', isCompleted)
  for (let n = 1; n <= 15; n++) await receiver.upTo(`hook-${n}`, isCompleted)
  expect(receiver.calls('hook-17')).toBe(0)
})
