/** The tools that the MCP conformance suite calls, by the names and with the results that it asks for. */
import { Content, defineTool } from 'convoke'
import { setTimeout as wait } from 'node:timers/promises'

const nothing = { type: 'object', properties: {} }
const png = 'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8DwHwAFBQIAX8jx0gAAAABJRU5ErkJggg=='
const wav = 'UklGRiYAAABXQVZFZm10IBAAAAABAAEAQB8AAAB9AAACABAAZGF0YQIAAAA='

export const simpleText = defineTool({
  name: 'test_simple_text',
  description: 'Gives a text.',
  input: nothing,
  run: () => 'This is a simple text response for testing.',
})

export const imageContent = defineTool({
  name: 'test_image_content',
  description: 'Gives an image.',
  input: nothing,
  run: () => new Content([{ raw: png, mediaType: 'image/png' }]),
})

export const audioContent = defineTool({
  name: 'test_audio_content',
  description: 'Gives a sound.',
  input: nothing,
  run: () => new Content([{ raw: wav, mediaType: 'audio/wav' }]),
})

const resource = (uri, mediaType, text) => ({
  text,
  mediaType,
  metadata: { _mcp: { type: 'resource', resource: { uri } } },
})

export const embeddedResource = defineTool({
  name: 'test_embedded_resource',
  description: 'Gives a resource.',
  input: nothing,
  run: () => new Content([resource('test://embedded-resource', 'text/plain', 'This is an embedded resource content.')]),
})

export const multipleContentTypes = defineTool({
  name: 'test_multiple_content_types',
  description: 'Gives a text, an image and a resource.',
  input: nothing,
  run: () =>
    new Content([
      { text: 'Multiple content types test:' },
      { raw: png, mediaType: 'image/png' },
      resource('test://mixed-content-resource', 'application/json', '{"test":"data","value":123}'),
    ]),
})

export const toolWithProgress = defineTool({
  name: 'test_tool_with_progress',
  description: 'Says how far it is.',
  input: nothing,
  async run(_params, { progress }) {
    for (const done of [0, 50, 100]) {
      progress({ progress: done, total: 100 })
      await wait(50)
    }
    return 'Done.'
  },
})

export const errorHandling = defineTool({
  name: 'test_error_handling',
  description: 'Always fails.',
  input: nothing,
  run() {
    throw new Error('This tool intentionally returns an error for testing')
  },
})

export const elicitation = defineTool({
  name: 'test_elicitation',
  description: 'Asks the user.',
  input: { type: 'object', properties: { message: { type: 'string' } }, required: ['message'] },
  async run({ message }, { ask }) {
    const schema = {
      type: 'object',
      properties: {
        username: { type: 'string', description: "User's response" },
        email: { type: 'string', description: "User's email address" },
      },
      required: ['username', 'email'],
    }
    return `User response: ${JSON.stringify(await ask({ message, schema }))}`
  },
})

export const elicitationDefaults = defineTool({
  name: 'test_elicitation_sep1034_defaults',
  description: 'Asks the user, with presets.',
  input: nothing,
  async run(_params, { ask }) {
    const schema = {
      type: 'object',
      properties: {
        name: { type: 'string', default: 'John Doe' },
        age: { type: 'integer', default: 30 },
        score: { type: 'number', default: 95.5 },
        status: { type: 'string', enum: ['active', 'inactive', 'pending'], default: 'active' },
        verified: { type: 'boolean', default: true },
      },
    }
    return `Elicitation completed: ${JSON.stringify(await ask({ message: 'Who are you?', schema }))}`
  },
})

export const elicitationEnums = defineTool({
  name: 'test_elicitation_sep1330_enums',
  description: 'Asks the user to choose.',
  input: nothing,
  async run(_params, { ask }) {
    const options = ['First', 'Second', 'Third'].map((title, i) => ({ const: `value${i + 1}`, title }))
    const schema = {
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
    }
    return `Elicitation completed: ${JSON.stringify(await ask({ message: 'Which?', schema }))}`
  },
})

export const jsonSchema = defineTool({
  name: 'json_schema_2020_12_tool',
  description: 'Has keywords of JSON Schema 2020-12.',
  input: {
    $schema: 'https://json-schema.org/draft/2020-12/schema',
    type: 'object',
    $defs: { address: { type: 'object', properties: { street: { type: 'string' }, city: { type: 'string' } } } },
    properties: { name: { type: 'string' }, address: { $ref: '#/$defs/address' } },
    additionalProperties: false,
  },
  run: ({ name = 'nobody' }) => name,
})
