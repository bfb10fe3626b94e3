/** What a server says of its tools, one by one: a tool that is no tool spoils no other. */
import { canonicalJson, isObject, type JsonObject } from '../base/json.ts'
import { cleanSchema, cleanText, foreignNameRule, isForeignName } from '../tools/foreign.ts'
import { describeIssues } from '../tools/issues.ts'
import { checkInputSchema, checkSchema } from '../tools/schema-check.ts'
import type { JsonSchema, ToolTraits } from '../tools/tool.ts'
import { clip, excerpt } from '../tools/value.ts'

/** A tool as its server tells it, cleaned. */
export interface McpToolInfo {
  /** As the server calls it. */
  readonly name: string
  readonly description: string
  readonly input: JsonSchema
  readonly output: JsonSchema | undefined
  readonly traits: Pick<ToolTraits, 'readOnly' | 'idempotent' | 'tags'>
  /** Equal for equal tools. */
  readonly fingerprint: string
}

export interface Problem {
  readonly name: string
  readonly reason: string
}

/** What a server lists, taken apart. */
export interface Listing {
  readonly tools: ReadonlyMap<string, McpToolInfo>
  /** The tools that cannot be used, and why. */
  readonly problems: readonly Problem[]
}

/** Most tools that are taken from one server. */
const maxTools = 10_000
/** Most problems that are kept. */
const maxProblems = 1_000

/** Takes a listing apart. `wants` says which tools are looked at, by name. */
export function readListing(listed: readonly unknown[], wants: (name: string) => boolean): Listing {
  const tools = new Map<string, McpToolInfo>()
  const problems: Problem[] = []
  for (const [index, given] of listed.entries()) {
    const name: unknown = isObject(given) ? given['name'] : undefined
    if (typeof name === 'string' && !wants(name)) continue
    const info = toInfo(given, tools)
    if (typeof info !== 'string') tools.set(info.name, info)
    else if (problems.length < maxProblems)
      problems.push({ name: isForeignName(name) ? name : `#${index + 1}`, reason: info })
    if (tools.size === maxTools) {
      if (index + 1 < listed.length) problems.push({ name: '*', reason: `there are more than ${maxTools} tools` })
      break
    }
  }
  return { tools, problems }
}

function toInfo(given: unknown, taken: ReadonlyMap<string, unknown>): McpToolInfo | string {
  if (!isObject(given)) return `it must be an object, got ${excerpt(given)}`
  const { name, title, description, inputSchema, outputSchema } = given
  if (!isForeignName(name)) return `its name must be ${foreignNameRule}, got ${excerpt(name)}`
  if (taken.has(name)) return 'there is another one of that name'
  // What is not found here is found when the schema is first used; compiling all of them costs a millisecond each.
  const input = checkInputSchema(inputSchema)
  if (input.length > 0) return `its input schema is wrong: ${describeIssues(input)}`
  const output = outputSchema === undefined || outputSchema === null ? [] : checkSchema(outputSchema)
  if (output.length > 0) return `its output schema is wrong: ${describeIssues(output)}`
  const execution = isObject(given['execution']) ? given['execution'] : {}
  if (execution['taskSupport'] === 'required')
    return 'it only runs as a task of its server, and such tasks are not spoken here'
  const annotations = isObject(given['annotations']) ? given['annotations'] : {}
  const shown = [title, annotations['title']].find((each) => typeof each === 'string' && each !== '') as
    | string
    | undefined
  const info = {
    name,
    description: toDescription(typeof description === 'string' ? description : '', shown),
    input: cleanSchema(inputSchema as JsonSchema),
    output: isObject(outputSchema) ? cleanSchema(outputSchema as JsonObject) : undefined,
    traits: toTraits(annotations),
  }
  return { ...info, fingerprint: canonicalJson(info) }
}

/** The title goes before a description that does not say it. */
function toDescription(description: string, title: string | undefined): string {
  const said = cleanText(description).trim()
  const name = clip(cleanText(title ?? '').trim(), 200)
  if (name === '' || said.toLowerCase().includes(name.toLowerCase())) return said
  return said === '' ? name : `${name}: ${said}`
}

/** Hints are a stranger's word: they say what a tool is for, and widen nothing but the right to run it twice. */
function toTraits(annotations: Record<string, unknown>): McpToolInfo['traits'] {
  const tags = (['destructive', 'openWorld'] as const).filter((each) => annotations[`${each}Hint`] === true)
  return {
    readOnly: annotations['readOnlyHint'] === true,
    idempotent: annotations['idempotentHint'] === true,
    ...(tags.length === 0 ? {} : { tags }),
  }
}
