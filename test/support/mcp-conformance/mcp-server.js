/** The tools that the MCP conformance suite calls as an MCP server on stdin and stdout. */
import { setTimeout as wait } from 'node:timers/promises'
import { Server } from '@modelcontextprotocol/sdk/server/index.js'
import { StdioServerTransport } from '@modelcontextprotocol/sdk/server/stdio.js'
import {
  CallToolRequestSchema,
  CreateMessageResultSchema,
  ElicitResultSchema,
  ErrorCode,
  ListToolsRequestSchema,
  McpError,
} from '@modelcontextprotocol/sdk/types.js'

const png = 'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8DwHwAFBQIAX8jx0gAAAABJRU5ErkJggg=='
const wav = 'UklGRiYAAABXQVZFZm10IBAAAAABAAEAQB8AAAB9AAACABAAZGF0YQIAAAA='
const nothing = { type: 'object', properties: {} }

const text = (said) => ({ type: 'text', text: said })
const image = { type: 'image', data: png, mimeType: 'image/png' }
const resource = (uri, mimeType, said) => ({ type: 'resource', resource: { uri, mimeType, text: said } })

const options = ['First', 'Second', 'Third'].map((title, i) => ({ const: `value${i + 1}`, title }))

const forms = {
  test_elicitation: {
    type: 'object',
    properties: {
      username: { type: 'string', description: "User's response" },
      email: { type: 'string', description: "User's email address" },
    },
    required: ['username', 'email'],
  },
  test_elicitation_sep1034_defaults: {
    type: 'object',
    properties: {
      name: { type: 'string', default: 'John Doe' },
      age: { type: 'integer', default: 30 },
      score: { type: 'number', default: 95.5 },
      status: { type: 'string', enum: ['active', 'inactive', 'pending'], default: 'active' },
      verified: { type: 'boolean', default: true },
    },
  },
  test_elicitation_sep1330_enums: {
    type: 'object',
    properties: {
      untitledSingle: { type: 'string', enum: ['option1', 'option2', 'option3'] },
      titledSingle: { type: 'string', oneOf: options },
      legacyEnum: {
        type: 'string',
        enum: ['opt1', 'opt2', 'opt3'],
        enumNames: ['Option One', 'Option Two', 'Option Three'],
      },
      untitledMulti: { type: 'array', items: { type: 'string', enum: ['option1', 'option2', 'option3'] } },
      titledMulti: { type: 'array', items: { anyOf: options } },
    },
  },
}

/** By name: what it gives, and its params where it has any. */
const tools = {
  test_simple_text: { run: () => [text('This is a simple text response for testing.')] },
  test_image_content: { run: () => [image] },
  test_audio_content: { run: () => [{ type: 'audio', data: wav, mimeType: 'audio/wav' }] },
  test_embedded_resource: {
    run: () => [resource('test://embedded-resource', 'text/plain', 'This is an embedded resource content.')],
  },
  test_multiple_content_types: {
    run: () => [
      text('Multiple content types test:'),
      image,
      resource('test://mixed-content-resource', 'application/json', '{"test":"data","value":123}'),
    ],
  },
  test_tool_with_logging: {
    async run(_given, { sendNotification }) {
      for (const data of ['Tool execution started', 'Tool processing data', 'Tool execution completed']) {
        await sendNotification({ method: 'notifications/message', params: { level: 'info', data } })
        await wait(50)
      }
      return [text('Done.')]
    },
  },
  test_tool_with_progress: {
    async run(_given, { sendNotification, _meta }) {
      for (const progress of [0, 50, 100]) {
        const params = { progressToken: _meta?.progressToken, progress, total: 100 }
        await sendNotification({ method: 'notifications/progress', params })
        await wait(50)
      }
      return [text('Done.')]
    },
  },
  test_error_handling: {
    run() {
      throw new Error('This tool intentionally returns an error for testing')
    },
  },
  test_sampling: {
    inputSchema: { type: 'object', properties: { prompt: { type: 'string' } }, required: ['prompt'] },
    async run({ prompt }, { sendRequest }) {
      const params = { messages: [{ role: 'user', content: text(prompt) }], maxTokens: 100 }
      const { content } = await sendRequest({ method: 'sampling/createMessage', params }, CreateMessageResultSchema)
      return [text(`LLM response: ${content.text}`)]
    },
  },
  json_schema_2020_12_tool: {
    inputSchema: {
      $schema: 'https://json-schema.org/draft/2020-12/schema',
      type: 'object',
      $defs: { address: { type: 'object', properties: { street: { type: 'string' }, city: { type: 'string' } } } },
      properties: { name: { type: 'string' }, address: { $ref: '#/$defs/address' } },
      additionalProperties: false,
    },
    run: ({ name = 'nobody' }) => [text(name)],
  },
}

for (const [name, requestedSchema] of Object.entries(forms)) {
  tools[name] = {
    inputSchema: { type: 'object', properties: { message: { type: 'string' } } },
    async run({ message = 'Please answer.' }, { sendRequest }) {
      const params = { message, requestedSchema }
      const answer = await sendRequest({ method: 'elicitation/create', params }, ElicitResultSchema)
      return [text(`User response: ${JSON.stringify(answer)}`)]
    },
  }
}

// oxlint-disable-next-line typescript/no-deprecated -- the one that gives schemas as they are written
const server = new Server({ name: 'suite', version: '1.0.0' }, { capabilities: { tools: {}, logging: {} } })
server.setRequestHandler(ListToolsRequestSchema, () => ({
  tools: Object.entries(tools).map(([name, { inputSchema = nothing }]) => ({
    name,
    description: `The tool ${name} of the suite.`,
    inputSchema,
  })),
}))
server.setRequestHandler(CallToolRequestSchema, async ({ params }, extra) => {
  const tool = tools[params.name]
  if (tool === undefined) throw new McpError(ErrorCode.InvalidParams, `Unknown tool: ${params.name}`)
  try {
    return { content: await tool.run(params.arguments ?? {}, extra) }
  } catch (error) {
    return { isError: true, content: [text(error instanceof Error ? error.message : String(error))] }
  }
})
await server.connect(new StdioServerTransport())
