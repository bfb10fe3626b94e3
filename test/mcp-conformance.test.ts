/** The official MCP conformance suite against a node's door: every scenario that is about what a node has. */
import { execFile } from 'node:child_process'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { describe, expect, test } from 'vitest'
import { startNode, temporaryFolder } from './support/lifetime.ts'
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

describe('the official conformance suite', () => {
  test('finds nothing wrong', { timeout: 60_000 }, async () => {
    const node = await startNode({ tools: [{ module: tools }] })
    expect(node.warnings).toEqual([])
    const args = ['--url', mcpUrl(node), '--suite', 'all', '-o', await temporaryFolder()]
    // It ends with 1 for the scenarios that are not for us.
    const { stdout } = await promisify(execFile)(process.execPath, ['--import', hook, suite, 'server', ...args], {
      timeout: 50_000,
    }).catch((error: unknown) => error as { stdout: string })
    const verdicts = [...stdout.matchAll(/^(.) ([a-z0-9-]+): \d+ passed, (\d+) failed$/gm)]
    const failed = verdicts.flatMap(([, , name = '', count]) => (count === '0' ? [] : [name]))
    const ran = verdicts.map(([, , name]) => name)
    expect(ran, stdout.slice(-2000)).toEqual(expect.arrayContaining(scenarios))
    expect(failed.filter((name) => scenarios.includes(name))).toEqual([])
  })
})
