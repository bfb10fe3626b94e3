/** Not a server: defines and registers many tools in a fresh process, says how long that took, and ends. */
import { join } from 'node:path'
import { pathToFileURL } from 'node:url'
import { options, ready } from '../lib/child.js'
import { manyTools } from './work.js'

const { createNode, defineTool } = await import(pathToFileURL(join(options.build, 'index.js')).href)
const { checkInputSchema, checkSchema } = await import(pathToFileURL(join(options.build, 'tools/schema-check.js')).href)

const definitions = manyTools(options.count)
if (options.schemas === 'none') {
  for (const definition of definitions) {
    definition.input = { type: 'object' }
    delete definition.output
  }
}

/** Only the look at the schemas, in a process as cold as at any start-up. */
function lookMs() {
  const startedAt = performance.now()
  for (const { input, output } of definitions) {
    checkInputSchema(input)
    checkSchema(output)
  }
  return performance.now() - startedAt
}

async function startMs() {
  const startedAt = performance.now()
  const node = await createNode({ agent: { id: 'bench' }, tools: definitions.map((tool) => defineTool(tool)) })
  const ms = performance.now() - startedAt
  if (node.registry.list().length !== options.count) throw new Error('Some tools are missing.')
  await node.stop()
  return ms
}

const ms = options.schemas === 'look' ? lookMs() : await startMs()
ready(0, { ms: () => ms })
