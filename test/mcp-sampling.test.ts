/** Questions for a language model: from MCP servers to callers, and from tools to MCP hosts. */
import { CreateMessageRequestSchema, McpError } from '@modelcontextprotocol/sdk/types.js'
import { ConvokeError, defineTool, type Json, type JsonObject, type Question } from 'convoke'
import { describe, expect, test } from 'vitest'
import { startNode } from './support/lifetime.ts'
import { connectHost, handleOf, request, textOf } from './support/mcp-host.ts'
import { httpServer, stdioServer } from './support/mcp-servers.ts'
import { toolsOf } from './support/mcp-tools.ts'

const said: JsonObject = {
  role: 'assistant',
  content: { type: 'text', text: 'Four.' },
  model: 'm-1',
  stopReason: 'endTurn',
}

describe('an MCP server that asks a language model', () => {
  test.each([
    ['stdio', () => stdioServer()],
    ['streamable HTTP', () => httpServer()],
  ])('asks the caller, and gets what it answers, over %s', async (_name, start) => {
    const { tools } = toolsOf({ test: (await start()).options })
    const questions: Question[] = []
    const ask = async (answer: () => Json): Promise<string> => {
      const options = {
        ask: async (question: Question) => {
          questions.push(question)
          return answer()
        },
      }
      return (await tools.call('test.ask', { prompt: 'What is 2 + 2?' }, options)) as string
    }
    expect(JSON.parse(await ask(() => said))).toEqual(said)
    expect(questions[0]).toMatchObject({
      message: 'What is 2 + 2?',
      schema: { required: ['role', 'content', 'model'] },
      sampling: {
        messages: [{ role: 'user', content: { type: 'text', text: 'What is 2 + 2?' } }],
        systemPrompt: 'Be brief.',
        maxTokens: 9,
      },
    })
    expect(questions[0]?.sampling).not.toHaveProperty('_meta')
    // In words, by whoever has no model.
    expect(JSON.parse(await ask(() => 'Vier.'))).toMatchObject({ role: 'assistant', content: { text: 'Vier.' } })
    const refusals: [() => Json, RegExp][] = [
      [
        () => {
          throw new ConvokeError('rejected', 'No.')
        },
        /^refused: -1 .*The user rejected the request/,
      ],
      [
        () => {
          throw new ConvokeError('unsupported_operation', 'Nobody is here.')
        },
        /^refused: -1 .*No model could be asked/,
      ],
      [() => ({ what: 'is this?' }), /^refused: -1 .*is no message/],
      [() => ({ ...said, role: 'nobody' }), /^refused: -\d+ /],
    ]
    for (const [answer, words] of refusals) expect(await ask(answer)).toMatch(words)
    // Nobody is there to be asked.
    expect(await tools.call('test.ask', { prompt: 'And now?' })).toMatch(/^refused: -1 /)
    expect(await ask(() => said)).toContain('Four.')
  })

  test('asks nobody something of a megabyte', async () => {
    const { tools } = toolsOf({ test: (await stdioServer()).options })
    const prompt = 'x'.repeat(1024 * 1024)
    const asked: Question[] = []
    const ask = async (question: Question) => (asked.push(question), said)
    expect(await tools.call('test.ask', { prompt }, { ask })).toMatch(
      /^refused: -32602 .*longer than 262144 characters/,
    )
    expect(asked).toEqual([])
  })
})

describe('a tool that asks a language model', () => {
  const sampling: JsonObject = {
    messages: [{ role: 'user', content: { type: 'text', text: 'What is 2 + 2?' } }],
    maxTokens: 9,
  }
  const consult = defineTool({
    name: 'consult',
    description: 'Asks a language model.',
    input: { type: 'object', properties: {} },
    async run(_params, { ask }) {
      const schema = { type: 'object', required: ['role', 'content', 'model'] }
      return { answer: await ask({ message: 'What is 2 + 2?', schema, sampling }) }
    },
  })
  const model = { capabilities: { sampling: {} } }

  test('asks that of the host of a session', async () => {
    const node = await startNode({ tools: [consult] })
    const { client } = await connectHost(node, model)
    const asked: unknown[] = []
    let fails: McpError | undefined
    client.setRequestHandler(CreateMessageRequestSchema, ({ params }) => {
      asked.push(params)
      if (fails !== undefined) throw fails
      return { role: 'assistant', content: { type: 'text', text: 'Four.' }, model: 'm-1', stopReason: 'endTurn' }
    })
    expect((await client.callTool({ name: 'consult' })).structuredContent).toEqual({ answer: said })
    expect(asked).toEqual([sampling])
    fails = new McpError(-1, 'User rejected sampling request')
    const refused = await client.callTool({ name: 'consult' })
    expect(refused).toMatchObject({ isError: true, _meta: { _tool_error: { code: 'rejected' } } })
    expect(node.stats.running).toBe(0)
    // Whoever cannot ask now may answer by hand.
    fails = new McpError(-32603, 'The model is out.')
    const { task_id, state } = handleOf(await client.callTool({ name: 'consult' }))
    expect(state).toBe('input_required')
    const done = await client.callTool({ name: 'task_answer', arguments: { task_id, answer: 'Five.' } })
    expect(done.structuredContent).toMatchObject({ answer: { content: { text: 'Five.' } } })
  })

  test('asks it in the result, of a host of 2026-07-28', async () => {
    const node = await startNode({ tools: [consult] })
    const { result } = await request(node, 'tools/call', { name: 'consult' }, model)
    expect(result).toMatchObject({
      resultType: 'input_required',
      inputRequests: { answer: { method: 'sampling/createMessage', params: sampling } },
    })
    const requestState = result['requestState'] as string
    const params = { name: 'consult', inputResponses: { answer: said }, requestState }
    expect((await request(node, 'tools/call', params, model)).result).toMatchObject({
      structuredContent: { answer: said },
    })
  })

  test('asks a person where the host has no model, and lets it be answered by hand where there is nobody', async () => {
    const node = await startNode({ tools: [consult] })
    const { result } = await request(
      node,
      'tools/call',
      { name: 'consult' },
      { capabilities: { elicitation: { form: {} } } },
    )
    expect(result).toMatchObject({
      inputRequests: {
        answer: {
          method: 'elicitation/create',
          params: {
            message: 'What is 2 + 2?',
            requestedSchema: { properties: { answer: { type: 'string' } }, required: ['answer'] },
          },
        },
      },
    })
    const { client } = await connectHost(node)
    const left = await client.callTool({ name: 'consult' })
    expect(JSON.parse(textOf(left))).toMatchObject({ question: 'What is 2 + 2?', sampling })
  })
})
