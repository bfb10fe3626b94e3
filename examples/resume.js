// Goes on with a stream behind the last event that it has, as a program that was started again would:
// node examples/resume.js [URL]
import { randomUUID } from 'node:crypto'
import { connectPeer } from 'convoke'

const [url = 'http://127.0.0.1:4120'] = process.argv.slice(2)
const message = {
  messageId: randomUUID(),
  role: 'ROLE_USER',
  parts: [{ text: 'Count to six.' }],
  metadata: { _tool_call: { name: 'count_to', params: { n: 6, delay_ms: 100 } } },
}
const numberIn = ({ artifactUpdate }) => artifactUpdate?.artifact.parts[0]?.data?.i

// These two are all that must be kept to find the stream again.
let taskId
let lastEventId

try {
  const first = await connectPeer(url)
  for await (const { id, event } of first.streamMessage(message)) {
    taskId ??= event.task?.id
    lastEventId = id
    if (numberIn(event) !== undefined) console.log(numberIn(event))
    if (numberIn(event) === 3) break
  }
  // Who merely hangs up stops nothing: the tool counts on.
  await first.close()
  console.log(`The connection is gone behind event ${lastEventId}.`)

  const second = await connectPeer(url)
  for await (const { event } of second.subscribe(taskId, { lastEventId })) {
    if (numberIn(event) !== undefined) console.log(numberIn(event))
    if (event.statusUpdate?.status.state === 'TASK_STATE_COMPLETED') console.log('completed')
  }
  await second.close()
} catch (error) {
  // The message is for people: it says who failed and why.
  console.error(error.message)
  process.exit(1)
}
