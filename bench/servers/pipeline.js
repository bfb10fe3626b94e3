/**
 * A local function, called bare or through a tool space. `options`: `{build, around}`, where `around` is `nothing`, or
 * what the tool space has around its calls: `plain` or `all`. It listens nowhere.
 */
import { subscribe } from 'node:diagnostics_channel'
import { join } from 'node:path'
import { pathToFileURL } from 'node:url'
import { options, ready } from '../lib/child.js'
import { echoInput } from './work.js'

const load = (file) => import(pathToFileURL(join(options.build, file)).href)
const { defineTool, executeBatch, LocalToolRegistry, ToolManager } = await load('index.js')
const { ToolPolicy } = await load('tools/policy.js')

const run = async ({ text, times }) => ({ text, times })
/** What a caller writes once; each call gets params of its own, as every call has. */
const paramsOf = (i) => ({ text: `Call ${i}`, times: 1 })

const registry = new LocalToolRegistry()
registry.register(
  defineTool({
    name: 'echo',
    description: 'Gives back the text it was sent.',
    input: echoInput,
    output: {
      type: 'object',
      properties: { text: { type: 'string' }, times: { type: 'integer' } },
      required: ['text', 'times'],
      additionalProperties: false,
    },
    traits: { readOnly: true, category: 'texts' },
    run,
  }),
)

/** Five rules of which the last one decides; limits that nobody reaches; a retry rule for others and one that fits. */
const everything = () => ({
  policy: new ToolPolicy([
    { callers: 'guest-*', decision: 'deny' },
    { tools: ['mail.*', '*.delete_*'], decision: 'ask' },
    { tags: 'dangerous', scopes: 'admin', decision: 'allow' },
    { tools: 'echo', arguments: { type: 'object', properties: { text: { const: 'forbidden' } } }, decision: 'deny' },
    { tools: '*', decision: 'allow' },
  ]),
  limits: { perTool: 64, perSource: 64, perCaller: 64 },
  retry: [{ tools: 'mail.*', retries: 3 }, { retries: 1 }],
  hooks: [{ before: () => void seen++, after: () => void seen++ }],
  results: { own: 'strict', foreign: 'strict' },
})
/** So that hooks and subscriber have something to do that nobody can leave out. */
let seen = 0
if (options.around === 'all') subscribe('convoke:tool.call', () => void seen++)
const manager = new ToolManager({ registry, ...(options.around === 'all' ? everything() : {}) })

const callers = {
  call: options.around === 'nothing' ? run : (params) => manager.call('echo', params),
  tryCall: async (params) => {
    const { success, error } = await manager.tryCall('echo', params)
    if (!success) throw new Error(error)
  },
}

/** `n` calls, one after the other. */
async function call({ how = 'call', n }) {
  const work = callers[how]
  for (let i = 0; i < n; i++) await work(paramsOf(i))
  return n
}

ready(0, {
  call,
  /** `n` rounds of ten calls each, by `executeBatch` or by as many calls of `tryCall` at once. */
  async round({ how, n }) {
    for (let i = 0; i < n; i++) {
      const all = Array.from({ length: 10 }, (_, k) => paramsOf(i * 10 + k))
      if (how === 'tryCall') {
        await Promise.all(all.map((params) => callers.tryCall(params)))
        continue
      }
      const calls = all.map((params, k) => ({ id: `call_${k}`, name: 'echo', arguments: params }))
      const { answers } = await executeBatch(manager, calls)
      if (answers.some(({ success }) => !success)) throw new Error('A call of a round failed.')
    }
    return n
  },
  seen: () => seen,
})
