/** An MCP server on stdin and stdout, as small as the SDK lets it be. Ends when stdin does. */
import { Server } from '@modelcontextprotocol/sdk/server/index.js'
import { StdioServerTransport } from '@modelcontextprotocol/sdk/server/stdio.js'
import { CallToolRequestSchema, ListToolsRequestSchema } from '@modelcontextprotocol/sdk/types.js'

// oxlint-disable-next-line typescript/no-deprecated -- what stands above it costs more
const server = new Server({ name: 'bench', version: '1' }, { capabilities: { tools: {} } })
const inputSchema = { type: 'object', properties: { value: { type: 'object' } }, required: ['value'] }
server.setRequestHandler(ListToolsRequestSchema, () => ({
  tools: [{ name: 'echo', description: 'Says it again.', inputSchema }],
}))
server.setRequestHandler(CallToolRequestSchema, ({ params }) => ({
  content: [{ type: 'text', text: JSON.stringify(params.arguments.value) }],
}))
await server.connect(new StdioServerTransport())
