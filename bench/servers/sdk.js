/** The smallest node on the SDK's own request handler and store, doing the same work as ours. */
import { AGENT_CARD_PATH, TaskState } from '@a2a-js/sdk'
import { AgentEvent, DefaultRequestHandler, InMemoryTaskStore } from '@a2a-js/sdk/server'
import { agentCardHandler, jsonRpcHandler, UserBuilder } from '@a2a-js/sdk/server/express'
import { Ajv2020 } from 'ajv/dist/2020.js'
import express from 'express'
import { ready } from '../lib/child.js'
import { chunk, echoInput } from './work.js'

const validate = new Ajv2020({ useDefaults: true }).compile(echoInput)

const executor = {
  async execute({ taskId, contextId, userMessage }, bus) {
    const { name, params } = userMessage.metadata._tool_call
    const status = (state) => ({ state, message: undefined, timestamp: new Date().toISOString() })
    const say = (state) =>
      bus.publish(AgentEvent.statusUpdate({ taskId, contextId, status: status(state), metadata: undefined }))
    const put = (artifactId, content, append, lastChunk) => {
      const part = { content, metadata: undefined, filename: '', mediaType: '' }
      const artifact = { artifactId, name: artifactId, description: '', parts: [part], metadata: {}, extensions: [] }
      bus.publish(AgentEvent.artifactUpdate({ taskId, contextId, artifact, append, lastChunk, metadata: undefined }))
    }
    bus.publish(
      AgentEvent.task({
        id: taskId,
        contextId,
        status: status(TaskState.TASK_STATE_WORKING),
        artifacts: [],
        history: [userMessage],
        metadata: { _tool_call: userMessage.metadata._tool_call },
      }),
    )
    if (name === 'stream') {
      for (let i = 0; i < params.n; i++) {
        put('stream', { $case: 'text', value: chunk }, i > 0, false)
        // Its bus is a list without a limit; a turn now and then lets the stream leave.
        if (i % 16 === 15) await new Promise((resolve) => setImmediate(resolve))
      }
    } else if (!validate(params)) {
      throw new Error('Invalid params')
    }
    const value = name === 'stream' ? { n: params.n } : { text: params.text }
    put('result', { $case: 'data', value }, false, true)
    say(TaskState.TASK_STATE_COMPLETED)
    bus.finished()
  },
  async cancelTask() {},
}

const card = {
  name: 'bench',
  description: 'The same work on the SDK alone.',
  version: '1.0.0',
  supportedInterfaces: [{ url: 'http://127.0.0.1', protocolBinding: 'JSONRPC', tenant: '', protocolVersion: '1.0' }],
  provider: undefined,
  capabilities: { streaming: true, pushNotifications: false, extensions: [] },
  securitySchemes: {},
  securityRequirements: [],
  defaultInputModes: ['application/json'],
  defaultOutputModes: ['application/json'],
  skills: [],
  signatures: [],
}

const requestHandler = new DefaultRequestHandler(card, new InMemoryTaskStore(), executor)
const app = express()
app.use(`/${AGENT_CARD_PATH}`, agentCardHandler({ agentCardProvider: requestHandler }))
app.use(jsonRpcHandler({ requestHandler, userBuilder: UserBuilder.noAuthentication }))
const server = app.listen(0, '127.0.0.1', () => ready(server.address().port))
