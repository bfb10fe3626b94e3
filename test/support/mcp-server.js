/**
 * An MCP server for tests, on stdin and stdout when it is run, or built into an HTTP server. What it lists stands in a
 * state that the test changes at will; what happens to it is told to `note`.
 */
import { appendFileSync, readFileSync } from 'node:fs'
import { spawn } from 'node:child_process'
import { pathToFileURL } from 'node:url'
import { Server } from '@modelcontextprotocol/sdk/server/index.js'
import { StdioServerTransport } from '@modelcontextprotocol/sdk/server/stdio.js'
import { CallToolRequestSchema, ErrorCode, ListToolsRequestSchema, McpError } from '@modelcontextprotocol/sdk/types.js'

const any = { type: 'object' }
const noParams = { type: 'object', properties: {}, additionalProperties: false }

const own = {
  echo: {
    description: 'Says it again.',
    inputSchema: { type: 'object', properties: { value: {} }, required: ['value'] },
    annotations: { readOnlyHint: true },
  },
  fail: {
    description: 'Fails.',
    inputSchema: { type: 'object', properties: { how: { type: 'string' }, text: { type: 'string' } } },
  },
  hold: { description: 'Waits until it is cancelled.', inputSchema: any },
  hold_readonly: { description: 'Waits until it is cancelled.', inputSchema: any, annotations: { readOnlyHint: true } },
  steps: {
    description: 'Tells its progress.',
    inputSchema: { type: 'object', properties: { n: { type: 'integer' } } },
  },
  big: { description: 'Says much.', inputSchema: { type: 'object', properties: { bytes: { type: 'integer' } } } },
  result: { description: 'Gives just that result.', inputSchema: { type: 'object', properties: { result: {} } } },
  typed: {
    description: 'Has an output schema.',
    inputSchema: { type: 'object', properties: { result: {} } },
    outputSchema: { type: 'object', properties: { n: { type: 'integer' } }, required: ['n'] },
  },
  ask: {
    description: 'Asks.',
    inputSchema: {
      type: 'object',
      properties: { message: { type: 'string' }, url: { type: 'string' }, prompt: { type: 'string' } },
    },
  },
  who: {
    description: 'Tells the variable or header.',
    inputSchema: { type: 'object', properties: { variable: { type: 'string' } } },
  },
  child: { description: 'Starts a process that outlives its parent.', inputSchema: noParams },
  leave: { description: 'Ends the process.', inputSchema: noParams },
  later: {
    description: 'Answers after so many milliseconds.',
    inputSchema: { type: 'object', properties: { ms: { type: 'integer' } } },
  },
  notify: { description: 'Tells that the list has changed.', inputSchema: noParams },
  shout: {
    description: 'Logs.',
    inputSchema: { type: 'object', properties: { text: {}, level: { type: 'string' }, lines: { type: 'integer' } } },
  },
}

/** `state()` gives `{tools?: [], only?: true, fail?: true, pages?: n, circle?: true}`; `who(variable, extra)` what `who` says. */
export function createTestServer({ state, note, who }) {
  // oxlint-disable-next-line typescript/no-deprecated -- the one that lets a test answer anything
  const server = new Server(
    { name: 'test-server', version: '1.2.3' },
    { capabilities: { tools: { listChanged: true }, logging: {} } },
  )
  server.setRequestHandler(ListToolsRequestSchema, ({ params }) => {
    const { tools = [], only = false, fail = false, pages = 1, circle = false } = state()
    note('list')
    if (fail) throw new McpError(ErrorCode.InternalError, 'The shelf is locked.')
    const all = [...(only ? [] : Object.entries(own).map(([name, tool]) => ({ name, ...tool }))), ...tools]
    if (circle) return { tools: all, nextCursor: 'again' }
    const page = Number(params?.cursor ?? 0)
    const size = Math.ceil(all.length / pages)
    return {
      tools: all.slice(page * size, (page + 1) * size),
      ...(page + 1 < pages ? { nextCursor: String(page + 1) } : {}),
    }
  })
  server.setRequestHandler(CallToolRequestSchema, async ({ params }, extra) => {
    const { name, arguments: given = {} } = params
    note(`call ${name}`)
    const text = (said) => ({ content: [{ type: 'text', text: said }] })
    switch (name) {
      case 'echo':
        return text(JSON.stringify(given.value))
      case 'fail':
        if (given.how === 'params') throw new McpError(ErrorCode.InvalidParams, 'That will not do.')
        if (given.how === 'internal') throw new Error('It broke.')
        if (given.how === 'unknown') throw new McpError(ErrorCode.InvalidParams, 'Unknown tool: fail')
        return { ...text(given.text ?? 'It did not work.'), isError: true }
      case 'hold':
      case 'hold_readonly':
        return await new Promise((resolve) => {
          extra.signal.addEventListener('abort', () => {
            note(`cancelled ${name}`)
            resolve(text('stopped'))
          })
          note(`holding ${name}`)
        })
      case 'steps':
        if (extra._meta?.progressToken === undefined) note('steps for nobody')
        for (let i = 1; i <= given.n; i++) {
          if (extra._meta?.progressToken === undefined) continue
          await extra.sendNotification({
            method: 'notifications/progress',
            params: {
              progressToken: extra._meta.progressToken,
              progress: i,
              total: given.n,
              message: `step\u200b ${i}`,
            },
          })
        }
        // What is sent right before the result may come behind it.
        await new Promise((resolve) => setTimeout(resolve, 20))
        return text('done')
      case 'big':
        return text('x'.repeat(given.bytes))
      case 'result':
      case 'typed':
        return given.result
      case 'ask': {
        if (given.prompt !== undefined) {
          const messages = [{ role: 'user', content: { type: 'text', text: given.prompt } }]
          const request = {
            method: 'sampling/createMessage',
            params: { messages, systemPrompt: 'Be brief.', maxTokens: 9 },
          }
          try {
            return text(JSON.stringify(await extra.sendRequest(request, (await schemas()).CreateMessageResultSchema)))
          } catch (error) {
            return text(`refused: ${error.code} ${error.message}`)
          }
        }
        const question =
          given.url === undefined
            ? {
                message: given.message ?? 'Which colour?',
                requestedSchema: {
                  type: 'object',
                  properties: { colour: { type: 'string', description: 'Any\u200b colour.' } },
                  required: ['colour'],
                },
              }
            : { mode: 'url', message: given.message ?? 'Sign in.', url: given.url, elicitationId: 'e1' }
        const answer = await extra.sendRequest(
          { method: 'elicitation/create', params: question },
          (await schemas()).ElicitResultSchema,
        )
        return text(JSON.stringify(answer))
      }
      case 'who':
        return text(String(who(given.variable, extra)))
      case 'child': {
        const child = spawn(process.execPath, ['-e', 'setInterval(() => {}, 1e6)'], { stdio: 'inherit' })
        return text(String(child.pid))
      }
      case 'later':
        await new Promise((resolve) => setTimeout(resolve, given.ms))
        note('answered later')
        return text('now')
      case 'leave':
        process.exit(3)
        break
      case 'notify':
        await server.sendToolListChanged()
        return text('told')
      case 'shout':
        process.stderr.write(`${String(given.text)}\n`)
        if (given.related === true) {
          const params = { level: 'info', data: given.text }
          await extra.sendNotification({ method: 'notifications/message', params })
          return text('said')
        }
        for (let i = 0; i < (given.lines ?? 1); i++) {
          await server.sendLoggingMessage({ level: given.level ?? 'info', data: given.text, logger: 'shouter' })
        }
        return text('said')
      default:
        if ((state().tools ?? []).some((tool) => tool?.name === name)) return text(name)
        throw new McpError(ErrorCode.InvalidParams, `Unknown tool: ${name}`)
    }
  })
  return server
}

const schemas = () => import('@modelcontextprotocol/sdk/types.js')

if (import.meta.url === pathToFileURL(process.argv[1] ?? '').href) {
  const { MCP_STATE: stateFile, MCP_NOTES: notesFile } = process.env
  const state = () => (stateFile === undefined ? {} : JSON.parse(readFileSync(stateFile, 'utf8')))
  const note = (text) => {
    if (notesFile !== undefined) appendFileSync(notesFile, `${text}\n`)
  }
  note(`start ${process.pid}`)
  if (state().dead === true) {
    process.stderr.write(`cannot go on with ${process.env.SECRET_KEY ?? 'nothing'}\n`)
    process.exit(7)
  }
  if (state().stubborn === true) {
    process.on('SIGTERM', () => note('ignored SIGTERM'))
    setInterval(() => {}, 1_000)
  }
  const server = createTestServer({ state, note, who: (variable) => process.env[variable] })
  console.log('Welcome to the test server!')
  await server.connect(new StdioServerTransport())
}
