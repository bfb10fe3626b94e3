/** What `convoke serve` says when the node is ready: its doors, its tools, and a call to try. */
import { isObject } from '../base/json.ts'
import { stripControls } from '../base/text.ts'
import type { Tool } from '../tools/tool.ts'
import { quote as shellWord } from './a2a/text.ts'
import type { Paint } from './paint.ts'

export type BannerTool = Pick<Tool, 'name' | 'input' | 'traits'>

export interface Banner {
  readonly name: string
  readonly url: string
  readonly doors: readonly { readonly name: string; readonly url: string }[]
  /** What answers messages, in words; undefined: nobody does. */
  readonly agent: string | undefined
  /** Those that are published. */
  readonly tools: readonly BannerTool[]
  /** Some of those whose tools are published have not answered yet. */
  readonly isLooking: boolean
  /** Tools of others may be published, too. */
  readonly hasForeign: boolean
  /** Tool modules that were skipped, in whole or in part; the log has said why. */
  readonly skippedModules: number
  readonly warnings: readonly string[]
  /** Where JSON-RPC is spoken. */
  readonly rpcUrl: string
  readonly authRequired: boolean
}

const shownTools = 10

export function formatBanner(banner: Banner, paint: Paint): string {
  const { doors, tools } = banner
  const width = Math.max(0, ...doors.map((door) => door.name.length))
  const lines = [
    paint('bold', `${banner.name} listens on ${banner.url}`),
    ...doors.map((door) => `  ${door.name.padEnd(width)}  ${door.url}`),
    ...(banner.agent === undefined ? [] : [`Agent: ${stripControls(banner.agent)}`]),
    `${toolsPart(banner)}${skippedPart(banner)}`,
    ...(isIdle(banner) ? [idleAdvice] : []),
    ...banner.warnings.map((warning) => paint('yellow', `Warning: ${warning}`)),
  ]
  const tool = easiest(tools)
  const tries = [
    ...(banner.agent === undefined ? [] : [chatCommand(banner)]),
    ...(tool === undefined ? [] : [curlCommand(banner.rpcUrl, tool, banner.authRequired)]),
  ]
  if (tries.length > 0) lines.push('Try it:', ...tries)
  return `${lines.join('\n')}\n`
}

/** Nobody can do anything with it. */
function isIdle({ agent, tools, hasForeign, skippedModules }: Banner): boolean {
  return agent === undefined && tools.length === 0 && !hasForeign && skippedModules === 0
}

const idleAdvice =
  'Nobody answers messages: set agent.react (a model of models) or agent.module (your own agent), or give it tools.'

function chatCommand({ rpcUrl, authRequired }: Banner): string {
  return `  npx convoke chat ${shellWord(rpcUrl)}${authRequired ? ' --bearer "$TOKEN"' : ''} --message 'What can you do?'`
}

function toolsPart({ tools, isLooking, hasForeign }: Banner): string {
  const looking = isLooking ? ' (those of others are still being looked for)' : ''
  if (tools.length === 0) return `It publishes no tools${hasForeign ? ' yet' : ''}${looking}`
  const names = tools.slice(0, shownTools).map((tool) => tool.name)
  const more = tools.length > shownTools ? ` … and ${tools.length - shownTools} more` : ''
  return `Tools: ${names.join(', ')}${more}${looking}`
}

function skippedPart({ tools, skippedModules: count }: Banner): string {
  if (count === 0) return tools.length === 0 ? '.' : ''
  return `; ${count === 1 ? '1 module was' : `${count} modules were`} skipped (see above).`
}

/** One that changes nothing before one that may, then the one that needs the fewest params: made-up ones likely fit. */
function easiest(tools: readonly BannerTool[]): BannerTool | undefined {
  const risk = ({ traits }: BannerTool) => (traits.readOnly === true ? 0 : traits.idempotent === true ? 1 : 2)
  const size = ({ input }: BannerTool) => JSON.stringify(exampleOf(input)).length
  return tools.toSorted((a, b) => risk(a) - risk(b) || size(a) - size(b))[0]
}

/** A command for a POSIX shell that calls `tool`. The message id changes with the time: a repeated id gets the old task. */
export function curlCommand(rpcUrl: string, tool: BannerTool, authRequired: boolean): string {
  const before = `{"jsonrpc":"2.0","id":1,"method":"SendMessage","params":{"message":{"messageId":"try-`
  const call = { name: tool.name, params: exampleOf(tool.input) }
  const after = `","role":"ROLE_USER","parts":[{"text":${JSON.stringify(tool.name)}}],"metadata":{"_tool_call":${JSON.stringify(call)}}}}}`
  const body = `${quote(before)}"$(date +%s)"${quote(after)}`
  const headers = [`-H 'Content-Type: application/json'`, `-H 'A2A-Version: 1.0'`]
  if (authRequired) headers.push(`-H "Authorization: Bearer $TOKEN"`)
  return `  curl -s ${quote(rpcUrl)} ${headers.join(' ')} \\\n    -d ${body}`
}

function quote(text: string): string {
  return `'${text.replaceAll("'", `'\\''`)}'`
}

const maxDepth = 5

/** A small value that a schema likely takes: what it names itself (default, example, enum), else the least of its type. */
export function exampleOf(schema: unknown, depth = 0): unknown {
  if (!isObject(schema) || depth > maxDepth) return {}
  if ('const' in schema) return schema['const']
  if ('default' in schema) return schema['default']
  const [given] = [schema['examples'], schema['enum']].flatMap((list: unknown) =>
    Array.isArray(list) ? [list[0] as unknown] : [],
  )
  if (given !== undefined) return given
  const alternative = [schema['anyOf'], schema['oneOf'], schema['allOf']].find(Array.isArray) as unknown[] | undefined
  if (alternative !== undefined && schema['properties'] === undefined) return exampleOf(alternative[0], depth + 1)
  const type: unknown = [schema['type']].flat()[0] ?? (isObject(schema['properties']) ? 'object' : undefined)
  switch (type) {
    case 'string':
      return exampleText(schema)
    case 'integer':
    case 'number':
      return exampleNumber(schema)
    case 'boolean':
      return true
    case 'null':
      return null
    case 'array':
      return Array.from({ length: Math.max(1, Math.min(numberAt(schema, 'minItems') ?? 1, 10)) }, () =>
        exampleOf(schema['items'], depth + 1),
      )
    case 'object': {
      const properties = isObject(schema['properties']) ? schema['properties'] : {}
      const required = Array.isArray(schema['required']) ? schema['required'].map(String) : []
      return Object.fromEntries(required.map((key) => [key, exampleOf(properties[key], depth + 1)]))
    }
    default:
      return depth === 0 ? {} : 'hello'
  }
}

function exampleText(schema: Record<string, unknown>): string {
  const byFormat: Readonly<Record<string, string>> = {
    date: '2030-01-31',
    'date-time': '2030-01-31T12:00:00Z',
    email: 'someone@example.com',
    uri: 'https://example.com/',
    uuid: '00000000-0000-4000-8000-000000000000',
  }
  const text = byFormat[String(schema['format'])] ?? 'hello world'
  const shortest = numberAt(schema, 'minLength') ?? 0
  return text.padEnd(Math.min(shortest, 1_000), '.').slice(0, numberAt(schema, 'maxLength') ?? text.length + shortest)
}

function exampleNumber(schema: Record<string, unknown>): number {
  const above = numberAt(schema, 'exclusiveMinimum')
  const least = numberAt(schema, 'minimum') ?? (above === undefined ? undefined : above + 1)
  const most = numberAt(schema, 'maximum') ?? Number.POSITIVE_INFINITY
  // A round small number says more than the least that is allowed, where both are.
  return Math.min(Math.max(3, least ?? 3), most)
}

function numberAt(schema: Record<string, unknown>, key: string): number | undefined {
  const value = schema[key]
  return typeof value === 'number' ? value : undefined
}
