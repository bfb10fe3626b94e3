/** `convoke policy why`: explains a decision of the tool policy without calling anybody. */
import { isObject, type JsonObject } from '../../base/json.ts'
import { silentLog } from '../../base/logger.ts'
import { stripControls } from '../../base/text.ts'
import type { NodeOptions, ToolModule } from '../../options.ts'
import { allows } from '../../tools/scopes.ts'
import { loadTools } from '../../tools/load.ts'
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
  const policy = new ToolPolicy(options.toolPolicy)
  const explanation = explainPolicy(policy, { caller, tool, params, agent })
  const scopesAllow = allows(caller, `tool:${tool.name}`)
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

/** The tool of a handle, or of an alias: rules are about what it stands for. A local tool comes before an alias. */
async function findTool(name: string, options: NodeOptions): Promise<ExplainedCall['tool']> {
  const { aliases = {} } = options
  const alias = Object.hasOwn(aliases, name) ? aliases[name] : undefined
  if (alias === undefined) return await findByHandle(name, options)
  const own = await localTools(options)
  return own.find((tool) => tool.name === name) ?? (await findByHandle(alias, options))
}

async function findByHandle(handle: string, options: NodeOptions): Promise<ExplainedCall['tool']> {
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
  const tools = await localTools(options)
  const found = tools.find(({ name }) => name === handle)
  if (found !== undefined) return found
  const names = tools.map(({ name }) => name)
  const similar = closest(handle, names)
  const known = names.length === 0 ? 'There are none.' : `There are: ${names.slice(0, 20).join(', ')}.`
  const meant = similar === undefined ? known : `Did you mean ${similar}?`
  throw new CommandFailure(2, `There is no local tool ${handle}. ${meant} Others are named SERVICE.NAME.`)
}

async function localTools(options: NodeOptions): Promise<readonly Tool[]> {
  const modules = (options.tools ?? []).filter((entry): entry is ToolModule => 'module' in entry)
  const { tools, warnings } = await loadTools(modules, { baseDir: options.baseDir ?? '.', log: silentLog })
  for (const warning of warnings) process.stderr.write(`warning: ${warning}\n`)
  return tools
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
