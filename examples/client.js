// A client that answers a tool's questions and tells failures apart: node examples/client.js [URL]
import { connectPeer, PeerError } from 'convoke'

const [url = 'http://127.0.0.1:4120'] = process.argv.slice(2)
const answers = [{ date: '2030-05-01', time: '19:30', guests: 2 }, { confirm: true }]
const ask = async ({ message }) => {
  const answer = answers.shift()
  console.log(`? ${message}\n! ${JSON.stringify(answer)}`)
  return answer
}

let peer
try {
  peer = await connectPeer(url, {
    // bearer: process.env.TOKEN,
    requestTimeoutMs: 10_000,
  })
  console.log(await peer.executeRemoteTool('book_table', { restaurant: 'Chez Ada' }, { ask }))
  for (const [tool, params] of [
    ['word_count', { words: 3 }],
    ['fail_with', { how: 'throw' }],
    ['no_such_tool', {}],
  ]) {
    try {
      await peer.executeRemoteTool(tool, params)
    } catch (error) {
      if (!(error instanceof PeerError)) throw error
      // `kind` and `code` are for programs, the message is for people and models.
      console.log(`${error.kind} ${error.code}: ${error.message}`)
    }
  }
} catch (error) {
  // The message is for people: it says who failed and why.
  console.error(error.message)
  process.exitCode = 1
} finally {
  await peer?.close()
}
