/** The requests that the benches send. */
import { randomBytes } from 'node:crypto'
import { post } from './client.js'

const run = randomBytes(6).toString('hex')
let last = 0

/** A JSON-RPC call of a tool, with a message id that was never used before and always has the same length. */
export function callBody(method, tool, params, configuration = '') {
  const id = String(++last).padStart(9, '0')
  return (
    `{"jsonrpc":"2.0","id":${last},"method":"${method}","params":{"message":{"messageId":"${run}-${id}",` +
    `"role":"ROLE_USER","parts":[{"text":"Call the tool ${tool}."}],"metadata":{"_tool_call":{"name":"${tool}",` +
    `"params":${params}}},"extensions":["urn:convoke:tool-call:v1"]}${configuration}}}`
  )
}

export function call(tool, params) {
  return post(callBody('SendMessage', tool, params))
}

/** Returns as soon as there is a task. */
export function startCall(tool, params) {
  return post(callBody('SendMessage', tool, params, ',"configuration":{"returnImmediately":true}'))
}

export function streamCall(tool, params) {
  return post(callBody('SendStreamingMessage', tool, params))
}

/** A message that names no tool, in a conversation of its own. */
export function streamMessage(text) {
  return rpc('SendStreamingMessage', {
    message: { messageId: `${run}-${++last}`, role: 'ROLE_USER', parts: [{ text }] },
  })
}

export function rpc(method, params) {
  return post(JSON.stringify({ jsonrpc: '2.0', id: ++last, method, params }))
}

export const echoParams = '{"text":"Hello, who is there?"}'

/** Looks at every answer's status, and into one of a hundred. */
export function checkAnswers(isRight) {
  let seen = 0
  return ({ status, body }) => {
    if (status !== 200) throw new Error(`A call was answered with ${status}: ${body.toString().slice(0, 300)}`)
    if (seen++ % 100 === 0 && !isRight(JSON.parse(body)))
      throw new Error(`A wrong answer: ${body.toString().slice(0, 300)}`)
  }
}

export const isEchoed = ({ result }) =>
  /COMPLETED/.test(result.task.status.state) &&
  result.task.artifacts.at(-1).parts[0].data.text === JSON.parse(echoParams).text
