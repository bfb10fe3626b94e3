/** The official MCP conformance suite against a node's door: every scenario that is about what a node has. */
import { execFile } from 'node:child_process'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { describe, expect, test } from 'vitest'
import { startNode, temporaryFolder } from './support/lifetime.ts'
import { mcpUrl } from './support/mcp-host.ts'

const hook = fileURLToPath(new URL('./support/mcp-conformance/hook.js', import.meta.url))
const tools = fileURLToPath(new URL('./support/mcp-conformance/tools.js', import.meta.url))
const server = fileURLToPath(new URL('./support/mcp-conformance/mcp-server.js', import.meta.url))
const suite = fileURLToPath(new URL('../node_modules/@modelcontextprotocol/conformance/dist/index.js', import.meta.url))

/** What is about tools, in the order of the suite. */
const scenariosOfTools = [
  'tools-list',
  'tools-call-simple-text',
  'tools-call-image',
  'tools-call-audio',
  'tools-call-embedded-resource',
  'tools-call-mixed-content',
  'tools-call-with-logging',
  'tools-call-error',
  'tools-call-with-progress',
  'tools-call-sampling',
  'tools-call-elicitation',
  'json-schema-2020-12',
  'elicitation-sep1034-defaults',
  'elicitation-sep1330-enums',
]

/** What is about the door. The others are about prompts, resources and completion, which a node has not. */
const scenariosOfDoor = [
  'server-initialize',
  'logging-set-level',
  'ping',
  'server-sse-multiple-streams',
  'dns-rebinding-protection',
]

const toolNames = [
  'test_simple_text',
  'test_image_content',
  'test_audio_content',
  'test_embedded_resource',
  'test_multiple_content_types',
  'test_tool_with_logging',
  'test_error_handling',
  'test_tool_with_progress',
  'test_sampling',
  'test_elicitation',
  'test_elicitation_sep1034_defaults',
  'test_elicitation_sep1330_enums',
  'json_schema_2020_12_tool',
]

describe('the official conformance suite', { timeout: 60_000 }, () => {
  test('finds nothing wrong with the tools of a node', async () => {
    const node = await startNode({ tools: [{ module: tools }] })
    expect(node.warnings).toEqual([])
    const passed = await passedAt(mcpUrl(node))
    expect(passed.filter(isOfTools)).toEqual(scenariosOfTools)
    expect(passed).toEqual(expect.arrayContaining(scenariosOfDoor))
  })

  test('finds nothing wrong with those of an MCP server behind a peer', async () => {
    const bob = await startNode({
      agent: { id: 'bob' },
      mcpServers: { suite: { command: process.execPath, args: [server] } },
      publish: ['suite.*'],
      aliases: Object.fromEntries(toolNames.map((name) => [name, `suite.${name}`])),
    })
    // What alice sees first is all that there is.
    await bob.tools.discover()
    const alice = await startNode({
      peers: { bob: { url: bob.url } },
      publish: ['bob.*'],
      aliases: Object.fromEntries(toolNames.map((name) => [name, `bob.${name}`])),
    })
    const passed = await passedAt(mcpUrl(alice))
    expect(passed.filter(isOfTools)).toEqual(scenariosOfTools)
  })
})

function isOfTools(name: string): boolean {
  return /^(?:tools|elicitation|json)-/.test(name)
}

/** The scenarios in which the suite finds nothing wrong, in its order. */
async function passedAt(url: string): Promise<string[]> {
  const args = ['--url', url, '--suite', 'all', '-o', await temporaryFolder()]
  // It ends with 1 for the scenarios that are not for us.
  const { stdout } = await promisify(execFile)(process.execPath, ['--import', hook, suite, 'server', ...args], {
    timeout: 50_000,
  }).catch((error: unknown) => error as { stdout: string })
  const verdicts = [...stdout.matchAll(/^. ([a-z0-9-]+): (\d+) passed, (\d+) failed$/gm)]
  return verdicts.flatMap(([, name = '', ok, failed]) => (ok !== '0' && failed === '0' ? [name] : []))
}
