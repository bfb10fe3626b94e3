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
    const folder = await temporaryFolder()
    const verdicts = await Promise.all(scenarios.map((scenario) => run(mcpUrl(node), scenario, folder)))
    expect(Object.fromEntries(verdicts)).toEqual(Object.fromEntries(scenarios.map((each) => [each, 'passed'])))
  })
})

/** `passed`, or what the suite said. */
async function run(url: string, scenario: string, folder: string): Promise<[string, string]> {
  const args = ['--import', hook, suite, 'server', '--url', url, '--scenario', scenario, '-o', folder]
  try {
    const { stdout } = await promisify(execFile)(process.execPath, args, { timeout: 50_000 })
    return [scenario, /Passed: (\d+)\/\1, 0 failed, 0 warnings/.test(stdout) ? 'passed' : stdout]
  } catch (error) {
    return [scenario, (error as { stdout?: string }).stdout ?? String(error)]
  }
}
