/** The official MCP conformance suite against a node's door: every scenario that is about what a node has. */
import { execFile } from 'node:child_process'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { describe, expect, test } from 'vitest'
import { startNode, temporaryFolder } from './support/lifetime.ts'
import { startRenamingProxy } from './support/mcp-conformance/renaming-proxy.ts'
import { mcpUrl } from './support/mcp-host.ts'

const hook = fileURLToPath(new URL('./support/mcp-conformance/hook.js', import.meta.url))
const tools = fileURLToPath(new URL('./support/mcp-conformance/tools.js', import.meta.url))
const suite = fileURLToPath(new URL('../node_modules/@modelcontextprotocol/conformance/dist/index.js', import.meta.url))

/** The others are about prompts, resources, completion, logging and sampling, which a node's tools do not need. */
const scenarios = [
  'server-initialize',
  'ping',
  'tools-list',
  'tools-call-simple-text',
  'tools-call-image',
  'tools-call-audio',
  'tools-call-embedded-resource',
  'tools-call-mixed-content',
  'tools-call-error',
  'tools-call-with-progress',
  'tools-call-elicitation',
  'elicitation-sep1034-defaults',
  'elicitation-sep1330-enums',
  'json-schema-2020-12',
  'server-sse-multiple-streams',
  'dns-rebinding-protection',
]

/** What they find when the tools are those of another node. The others are about the door itself, not about tools. */
const scenariosOfTools = scenarios.filter((name) => /^(?:tools|elicitation|json)-/.test(name))

describe('the official conformance suite', { timeout: 60_000 }, () => {
  test('finds nothing wrong with the tools of a node', async () => {
    const node = await startNode({ tools: [{ module: tools }] })
    expect(node.warnings).toEqual([])
    expect(await passedAt(mcpUrl(node))).toEqual(expect.arrayContaining(scenarios))
  })

  test('finds nothing wrong with those of a peer behind it', async () => {
    const bob = await startNode({ agent: { id: 'bob' }, tools: [{ module: tools }] })
    const alice = await startNode({ peers: { bob: { url: bob.url } }, publish: ['bob.*'] })
    const passed = await passedAt(await startRenamingProxy(mcpUrl(alice), 'bob__'))
    expect(passed).toEqual(expect.arrayContaining(scenariosOfTools))
  })
})

/** The scenarios in which the suite finds nothing wrong. */
async function passedAt(url: string): Promise<string[]> {
  const args = ['--url', url, '--suite', 'all', '-o', await temporaryFolder()]
  // It ends with 1 for the scenarios that are not for us.
  const { stdout } = await promisify(execFile)(process.execPath, ['--import', hook, suite, 'server', ...args], {
    timeout: 50_000,
  }).catch((error: unknown) => error as { stdout: string })
  const verdicts = [...stdout.matchAll(/^. ([a-z0-9-]+): (\d+) passed, (\d+) failed$/gm)]
  return verdicts.flatMap(([, name = '', ok, failed]) => (ok !== '0' && failed === '0' ? [name] : []))
}
