/** `convoke policy why`: explains a decision of the tool policy without calling anybody. */
import { isObject, type JsonObject } from '../../base/json.ts'
import { createLog } from '../../base/log.ts'
import { stripControls } from '../../base/text.ts'
import type { NodeOptions } from '../../options.ts'
import { allows } from '../../tools/scopes.ts'
import { callerName, explainPolicy, type ExplainedCall, type PolicyExplanation } from '../../tools/policy-explain.ts'
import { ToolPolicy } from '../../tools/policy.ts'
import type { Caller, Tool } from '../../tools/tool.ts'
import { clip, closest } from '../../tools/value.ts'
import { loadConfigFile } from '../config.ts'
import { CommandFailure } from '../failure.ts'
import { createPaint, type Paint } from '../paint.ts'

export interface WhyFlags {
  readonly scopes?: string
  readonly agent?: string
  readonly config?: string
  readonly output: 'text' | 'json'
}

/** As whom a node makes its own calls. */
const localId = 'local'

export async function explainWhy(
  callerText: string,
  name: string,
  paramsText: string | undefined,
  flags: WhyFlags,
): Promise<void> {
  const params = paramsText === undefined ? undefined : parseParams(paramsText)
  const { options } = await loadConfigFile(flags.config)
  const caller = toCaller(callerText, options, flags)
  const tool = await findTool(name, options)
  const agent = flags.agent ?? (caller.id === localId ? options.agent.id : undefined)
  const policy = new ToolPolicy(options.toolPolicy, { aliases: options.aliases ?? {} })
  const explanation = explainPolicy(policy, { caller, tool, params, agent })
  const scopesAllow = allows(caller, `tool:${publicName(tool.name, options)}`)
  if (flags.output === 'json') {
    const { rule, ...rest } = explanation
    // Where tags and traits are not known, neither is this.
    const visible = tool.traits === undefined ? null : policy.visible(caller, { ...tool, traits: tool.traits }, agent)
    const call = { caller, tool: tool.name, agent: agent ?? null, params: params ?? null }
    print(`${JSON.stringify({ ...call, ...rest, rule: rule ?? null, scopesAllow, visible }, null, 2)}\n`)
  } else {
    print(toText({ caller, tool, params, agent }, explanation, scopesAllow, createPaint(process.stdout)))
  }
  const isDenied = !scopesAllow || explanation.possible.includes('deny')
  // A tool module may have opened something that would keep the process alive.
  await new Promise<void>((done) => process.stdout.write('', () => done()))
  process.exit(isDenied ? 1 : 0)
}

function parseParams(text: string): JsonObject {
  let value: unknown
  try {
    value = JSON.parse(text)
  } catch {
    // Said below.
  }
  if (isObject(value)) return value as JsonObject
  throw new CommandFailure(2, `The arguments must be a JSON object such as '{"n":5}', got ${clip(text, 80)}`)
}

/** What stands before the first slash is the tenant. */
function toCaller(text: string, options: NodeOptions, { scopes }: WhyFlags): Caller {
  const slash = text.indexOf('/')
  const tenant = slash > 0 ? text.slice(0, slash) : undefined
  const id = text.slice(slash + 1)
  if (id === '') throw new CommandFailure(2, 'The caller must have an id.')
  const held = scopes === undefined ? scopesOf(id, options) : scopes.split(',').map((scope) => scope.trim())
  return { id, ...(tenant === undefined ? {} : { tenant }), scopes: held }
}

function scopesOf(id: string, { server = {} }: NodeOptions): readonly string[] {
  const { auth } = server
  const token = auth?.tokens?.find((each) => each.id === id)
  if (auth === undefined || id === localId) return ['*']
  if (token !== undefined) return token.scopes ?? ['*']
  process.stderr.write(`note: The configuration does not say which scopes ${id} has; say so with --scopes.\n`)
  return []
}

/** What callers from outside know a tool by, and name in their scopes: one of others by its first alias. */
function publicName(handle: string, { aliases = {} }: NodeOptions): string {
  if (!handle.includes('.')) return handle
  return Object.keys(aliases).find((alias) => aliases[alias] === handle) ?? handle
}

async function findTool(name: string, options: NodeOptions): Promise<ExplainedCall['tool']> {
  const { aliases = {} } = options
  const own = name.includes('.') ? [] : await ownTools(options)
  const ownNamed = (wanted: string): Tool | undefined => own.find((tool) => tool.name === wanted)
  const handle = (Object.hasOwn(aliases, name) ? aliases[name] : undefined) ?? name
  // A tool of that name comes before an alias.
  const found = ownNamed(name) ?? ownNamed(handle)
  if (found !== undefined) return found
  if (handle.includes('.')) {
    const service = handle.slice(0, handle.indexOf('.'))
    const servers: unknown = 'mcpServers' in options ? options.mcpServers : undefined
    const services = [...Object.keys(options.peers ?? {}), ...Object.keys(isObject(servers) ? servers : {})]
    if (!services.includes(service) && options.discovery?.directory === undefined) {
      const known = services.length === 0 ? '' : ` There are: ${services.slice(0, 20).join(', ')}.`
      process.stderr.write(`note: The configuration has no peer or MCP server ${service}.${known}\n`)
    }
    return { name: handle }
  }
  const names = own.map((tool) => tool.name)
  const similar = closest(handle, names)
  const known = names.length === 0 ? 'There are none.' : `There are: ${names.slice(0, 20).join(', ')}.`
  const meant = similar === undefined ? known : `Did you mean ${similar}?`
  throw new CommandFailure(2, `There is no local tool ${handle}. ${meant} Others are named SERVICE.NAME.`)
}

/** Those of modules, and those that the package brings along. Nobody else is asked. */
async function ownTools(options: NodeOptions): Promise<readonly Tool[]> {
  const { openToolSpace } = await import('../../tool-space.ts')
  const own: NodeOptions = { ...options, mcpServers: {}, peers: {}, pins: { file: ':memory:' } }
  const space = await openToolSpace(own, { log: createLog('silent') })
  try {
    for (const warning of space.warnings) process.stderr.write(`warning: ${warning}\n`)
    return space.registry.list()
  } finally {
    await space.close()
  }
}

function toText(
  { caller, tool, params, agent }: ExplainedCall,
  { decision, possible, reason, rules }: PolicyExplanation,
  scopesAllow: boolean,
  paint: Paint,
): string {
  const from = agent === undefined ? '' : `, by the agent ${agent}`
  const what = params === undefined ? 'any arguments' : clip(JSON.stringify(params), 300)
  const lines = [paint('bold', `${callerName(caller)} calls ${tool.name} with ${what}${from}`), '']
  if (!scopesAllow) {
    lines.push(
      paint('red', 'Denied before any rule is asked: ') +
        `the scopes of ${callerName(caller)} (${caller.scopes.join(', ') || 'none'}) do not hold tool:${tool.name}.`,
      '',
    )
  }
  for (const { sentence, outcome } of rules) {
    const text = stripControls(sentence)
    lines.push(outcome === 'differs' || outcome === 'unreached' ? paint('dim', text) : text)
  }
  if (rules.length > 0) lines.push('')
  const words = {
    allow: paint('green', 'Allowed.'),
    deny: paint('red', 'Denied.'),
    ask: paint('yellow', 'Asked: the caller must approve exactly these arguments.'),
    depends: paint('yellow', `${possible.map((each) => outcomeWords[each]).join(', or ')}.`),
  }
  lines.push(scopesAllow ? `${words[decision]} ${stripControls(reason)}` : `${words.deny} The scopes do not hold it.`)
  return `${lines.join('\n')}\n`
}

const outcomeWords = { allow: 'Allowed', deny: 'denied', ask: 'asked for an approval' }

function print(text: string): void {
  process.stdout.write(text)
}
