// `npm run demo`: two nodes, each in a process of its own, and what they can do for each other. Writes no files.
import { setTimeout as delay } from 'node:timers/promises'
import { styleText } from 'node:util'
import { connectPeer } from 'convoke'
import { startNodes, startWire } from './stage.js'

const style = (format, text) =>
  process.stdout.isTTY && process.env.NO_COLOR === undefined ? styleText(format, text) : text
const say = (text) => console.log(`   ${text}`)
const shown = (name, params) => say(style('cyan', `> ${name}(${JSON.stringify(params)})`))

/** What the demo was about to show, for the sentence that tells that it failed. */
let step = 'Start'
function heading(number, title) {
  step = title
  console.log(`\n${style('bold', `${number}. ${title}`)}`)
}

/** A demo that only looks right would prove nothing. */
function check(isTrue, sentence) {
  if (!isTrue) throw new Error(sentence)
}

async function discover(bob) {
  heading(1, 'Discover: bob publishes his tools on his card')
  const tools = await bob.listRemoteTools()
  for (const { name, parametersSchema, description } of tools) {
    const params = Object.keys(parametersSchema.properties).join(', ')
    say(`${style('green', `${name}(${params})`.padEnd(24))} ${description.split(/[,;.]/)[0]}`)
  }
  check(tools.length === 5, `Bob should have 5 tools, and has ${tools.length}.`)
}

async function call(bob, url) {
  heading(2, 'Call: exactly the tool that is named runs')
  const params = { text: 'to be or not to be', top: 2 }
  shown('bob.word_count', params)
  const { words, frequent } = await bob.executeRemoteTool('word_count', params)
  say(`${words} words; most often: ${frequent.map(({ word, count }) => `${word} (${count})`).join(', ')}`)
  check(words === 6, `There are 6 words in it, and bob counted ${words}.`)

  const stranger = await connectPeer(url, { id: 'bob' })
  try {
    const code = await failureOf(stranger.executeRemoteTool('word_count', params))
    check(code === 'unauthenticated', 'A call without a token should be refused.')
    say(`without a token: ${code}`)
  } finally {
    await stranger.close()
  }
}

/** The code of the error that a call ends with. */
async function failureOf(calling) {
  try {
    await calling
  } catch (error) {
    return error.code
  }
}

/** Prints the stars as they come; `onStar` hears each number. Returns the numbers and the result. */
async function watchStars(bob, stars, onStar = () => {}) {
  shown('bob.observe', { stars })
  const numbers = []
  process.stdout.write('  ')
  for await (const event of bob.executeRemoteToolStreaming('observe', { stars })) {
    if (event.type === 'result') {
      process.stdout.write('\n')
      return { numbers, result: event.result }
    }
    if (event.type !== 'chunk') continue
    numbers.push(event.chunk.number)
    process.stdout.write(` ${event.chunk.star}`)
    onStar(event.chunk.number)
  }
  throw new Error('The stream ended without a result.')
}

function checkStars({ numbers, result }, stars) {
  const expected = Array.from({ length: stars }, (_, i) => i + 1).join(' ')
  check(numbers.join(' ') === expected && result.seen === stars, `The stars came as ${numbers.join(' ')}.`)
}

async function stream(bob) {
  heading(3, 'Stream: what a long-running tool says comes as it is made')
  const startedAt = performance.now()
  let firstMs = 0
  const seen = await watchStars(bob, 6, (number) => {
    if (number === 1) firstMs = performance.now() - startedAt
  })
  checkStars(seen, 6)
  say(`the first star came after ${seconds(firstMs)}, the last after ${seconds(performance.now() - startedAt)}`)
}

async function cutAndResume(bob, wire) {
  heading(4, 'Resume: a connection breaks, and nothing is lost')
  const seen = await watchStars(bob, 12, (number) => {
    if (number !== 4 && number !== 8) return
    process.stdout.write(style('red', ' ✂'))
    wire.cut()
  })
  checkStars(seen, 12)
  check(seen.result.night === 2, `The tool should have run once for this, and ran ${seen.result.night - 1} times.`)
  say('cut twice; each star came once, and the tool ran once')
}

async function cancel(bob) {
  heading(5, 'Cancel: the work really stops')
  const turns = async () => (await bob.executeRemoteTool('mill_turns')).turns
  shown('bob.mill', {})
  let taskId
  const onTask = (task) => (taskId = task.taskId)
  for await (const event of bob.executeRemoteToolStreaming('mill', {}, { onTask })) {
    if (event.type === 'chunk' && event.chunk.turns >= 25) break
  }
  const stopped = await turns()
  const { status } = await bob.getTask(taskId)
  say(`stopped at ${stopped} turns: ${status.state}`)
  await delay(500)
  const later = await turns()
  say(`half a second later: ${later} turns`)
  check(status.state === 'TASK_STATE_CANCELED' && later === stopped, 'The mill should stand still.')
}

async function callBack(alice) {
  heading(6, 'Call back: you call alice, alice calls bob, bob calls alice')
  shown('alice.plan_trip', { city: 'Lisbon' })
  for await (const event of alice.executeRemoteToolStreaming('plan_trip', { city: 'Lisbon' })) {
    if (event.type === 'chunk') say(event.chunk)
    if (event.type !== 'result') continue
    const { euros, dollars } = event.result.cost
    say(`${event.result.city}: ${euros} euros, which are ${dollars} dollars`)
    check(dollars === 300, 'They should be 300 dollars.')
  }
}

const seconds = (ms) => `${(ms / 1000).toFixed(1)} s`

async function tell({ alice, bob, token }, closers) {
  const wire = await startWire(bob.url)
  closers.push(() => wire.close())
  const connected = async (id, url) => {
    const peer = await connectPeer(url, { id, bearer: token })
    closers.push(() => peer.close())
    return peer
  }
  const toBob = await connected('bob', wire.url)
  await discover(toBob)
  await call(toBob, bob.url)
  await stream(toBob)
  await cutAndResume(toBob, wire)
  await cancel(toBob)
  await callBack(await connected('alice', alice.url))
}

const startedAt = performance.now()
let interrupted = false
const closers = []
const close = async () => {
  for (const each of closers.splice(0).toReversed()) await each()
}

for (const [signal, code] of [
  ['SIGINT', 130],
  ['SIGTERM', 143],
]) {
  process.once(signal, () => {
    interrupted = true
    void close().finally(() => process.exit(code))
  })
}

try {
  console.log(style('bold', 'Two nodes, each in a process of its own'))
  const nodes = await startNodes(closers)
  for (const { name, url, pid } of [nodes.alice, nodes.bob]) say(`${name.padEnd(6)} ${url}  (process ${pid})`)
  await Promise.race([tell(nodes, closers), nodes.broken])
  console.log(`\n${style('green', `All of it worked, in ${seconds(performance.now() - startedAt)}.`)}`)
} catch (error) {
  // Whatever fails behind a Ctrl-C fails because of it.
  if (!interrupted) console.error(`\nThe demo failed at "${step}": ${error.message}`)
  process.exitCode = 1
} finally {
  await close()
}
