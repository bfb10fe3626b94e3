/** An MCP server on stdin and stdout with one tool, made of the SDK alone. No child of `fork`: its clients start it. */
import { Server } from '@modelcontextprotocol/sdk/server/index.js'
import { StdioServerTransport } from '@modelcontextprotocol/sdk/server/stdio.js'
import { CallToolRequestSchema, ListToolsRequestSchema } from '@modelcontextprotocol/sdk/types.js'
import { echoInput } from './work.js'

// oxlint-disable-next-line typescript/no-deprecated -- the one with the least between a request and its answer
const server = new Server({ name: 'echo', version: '1.0.0' }, { capabilities: { tools: {} } })
server.setRequestHandler(ListToolsRequestSchema, () => ({
  tools: [
    {
      name: 'echo',
      description: 'Gives back the text it was sent.',
      inputSchema: echoInput,
      annotations: { readOnlyHint: true },
    },
  ],
}))
server.setRequestHandler(CallToolRequestSchema, ({ params }) => ({
  content: [{ type: 'text', text: params.arguments.text }],
}))
await server.connect(new StdioServerTransport())
