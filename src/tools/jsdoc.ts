/** The params and the result of a plain function, as its JSDoc tells them. */
import type { Json } from '../base/json.ts'
import { objectSchema, parseType, TypeProblem, type TypeSide } from './jsdoc-type.ts'
import { compile } from './schema.ts'
import type { JsonSchema } from './tool.ts'
import { clip, excerpt } from './value.ts'

export interface DocParam {
  readonly name: string
  /** Undefined for the tool's context, which the caller does not give. */
  readonly schema: JsonSchema | undefined
  readonly optional: boolean
}

export interface FunctionDoc {
  /** What stands before the first tag, or behind `@description`; perhaps nothing. */
  readonly description: string
  /** In the order of the tags; members of a param (`params.text`) are in its schema. */
  readonly params: readonly DocParam[]
  /** Undefined without `@returns`, and for results that no schema describes. */
  readonly result: JsonSchema | undefined
}

/** Thrown for what is not understood. */
export class JsdocProblem extends Error {}

/**
 * Reads `@param` and `@returns` with their types; other tags say nothing here. `line` is that of the comment's first
 * line. Throws {@link JsdocProblem}, which says on which line, for a param without a type and for whatever is not
 * understood: a schema that is guessed would let anything through.
 */
export function parseJsdoc(comment: string, line: number): FunctionDoc {
  const [first, ...tags] = blocksOf(comment, line)
  const roots = new Map<string, Branch>()
  let description = first?.text ?? ''
  let result: JsonSchema | undefined
  for (const tag of tags) {
    const [, name, body = ''] = /^@(\w+)\s*([\s\S]*)$/.exec(tag.text.trim()) ?? []
    if (name === 'param' || name === 'arg' || name === 'argument') addParam(roots, body, tag.line)
    else if (name === 'returns' || name === 'return') result = readResult(body, tag.line)
    else if (name === 'description' || name === 'desc') description = body
  }
  return {
    description: description.replace(/\s+/g, ' ').trim(),
    params: [...roots].map(([name, branch]) => toParam(name, branch)),
    result,
  }
}

interface Block {
  readonly text: string
  readonly line: number
}

/** The text before the tags, then each tag with what belongs to it. */
function blocksOf(comment: string, line: number): Block[] {
  const lines = comment
    .replace(/^\/\*\*/, '')
    .replace(/\*\/$/, '')
    .split('\n')
    .map((text) => text.replace(/^\s*\*? ?/, '').trimEnd())
  const blocks = [{ text: '', line }]
  for (const [index, text] of lines.entries()) {
    const block = blocks.at(-1)
    if (/^\s*@\w/.test(text) || block === undefined) blocks.push({ text: text.trim(), line: line + index })
    else block.text += `\n${text}`
  }
  return blocks
}

/** A param, or a member of one. */
interface Branch {
  type: string | undefined
  optional: boolean
  standard: string | undefined
  description: string
  line: number
  readonly members: Map<string, Branch>
}

const newBranch = (line: number): Branch => ({
  type: undefined,
  optional: false,
  standard: undefined,
  description: '',
  line,
  members: new Map(),
})

function problem(line: number, message: string): JsdocProblem {
  return new JsdocProblem(`line ${line}: ${message}`)
}

/** `{type} name - description`, `{type} [name=default]`, `{type} params.name`. */
function addParam(roots: Map<string, Branch>, body: string, line: number): void {
  const { type, rest } = takeType(body, line)
  const named =
    /^(?:\[\s*([^\]=\s]+)\s*(?:=\s*((?:[^[\]]|\[[^\]]*\])*?)\s*)?\]|([^\s[\]]+))(?:\s+(?:-\s*)?([\s\S]*))?$/.exec(rest)
  const name = named?.[1] ?? named?.[3]
  if (name === undefined || !/^[\w$]+(\.[\w$]+)*$/.test(name))
    throw problem(line, `a @param whose name is not understood: ${excerpt(rest)}`)
  let members = roots
  let branch: Branch | undefined
  for (const part of name.split('.')) {
    branch = members.get(part)
    if (branch === undefined) members.set(part, (branch = newBranch(line)))
    members = branch.members
  }
  if (branch === undefined || branch.type !== undefined) throw problem(line, `@param ${name} is there twice`)
  branch.type = type ?? ''
  branch.line = line
  branch.optional = named?.[1] !== undefined
  branch.standard = named?.[2]
  branch.description = (named?.[4] ?? '').replace(/\s+/g, ' ').trim()
}

function readResult(body: string, line: number): JsonSchema | undefined {
  const { type } = takeType(body, line)
  return type === undefined ? undefined : read(type, 'result', line, '@returns').schema
}

/** The type in braces at the beginning, and what stands behind it. */
function takeType(body: string, line: number): { type: string | undefined; rest: string } {
  if (!body.startsWith('{')) return { type: undefined, rest: body }
  let depth = 0
  for (const { index, 0: token } of body.matchAll(/"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|[{}]/g)) {
    if (token === '{') depth++
    else if (token === '}' && --depth === 0)
      return { type: body.slice(1, index).trim(), rest: body.slice(index + 1).trim() }
  }
  throw problem(line, `the type ${excerpt(body)} has no end`)
}

function read(type: string, side: TypeSide, line: number, what: string): ReturnType<typeof parseType> {
  try {
    return parseType(type, side)
  } catch (error) {
    if (!(error instanceof TypeProblem)) throw error
    throw problem(line, `${what}: ${error.message}`)
  }
}

const contextType = /^(?:import\([^)]*\)\.)?ToolContext$/

function toParam(name: string, branch: Branch): DocParam {
  if (contextType.test(branch.type ?? '')) return { name, schema: undefined, optional: true }
  const { schema, optional } = toSchema(name, branch)
  return { name, schema, optional }
}

function toSchema(name: string, branch: Branch): { schema: JsonSchema; optional: boolean } {
  const { type, line, members, standard, description } = branch
  const what = `@param ${name}`
  let { optional } = branch
  let schema: JsonSchema
  if (members.size > 0) {
    if (type !== undefined && !/^(object|Object)?$/.test(type))
      throw problem(line, `${what}: it has members, so its type must be {object}, got {${clip(type, 60)}}`)
    schema = toObject(name, members)
  } else {
    if (type === undefined || type === '') throw problem(line, `${what} has no type; write @param {string} ${name}`)
    const parsed = read(type, 'param', line, what)
    if (parsed.schema === undefined) throw problem(line, `${what}: the type {${clip(type, 60)}} takes anything`)
    optional ||= parsed.optional
    schema = parsed.schema
  }
  if (description !== '') schema = { ...schema, description }
  // `[params={}]` says that all of it may be left out, which its members say too.
  const hasDefault = standard !== undefined && members.size === 0
  return { schema: hasDefault ? withDefault(schema, standard, what, line) : schema, optional }
}

function toObject(name: string, members: ReadonlyMap<string, Branch>): JsonSchema {
  const properties = new Map<string, Json>()
  const needed: string[] = []
  for (const [key, member] of members) {
    const { schema, optional } = toSchema(`${name}.${key}`, member)
    properties.set(key, schema)
    if (!optional) needed.push(key)
  }
  return objectSchema(properties, needed, 'param')
}

/** `[n=3]` and `[name=Ada]`: what is no JSON is a text as it stands, if the type allows one. */
function withDefault(schema: JsonSchema, text: string, what: string, line: number): JsonSchema {
  const candidates = [asJson(text), /^'.*'$/s.test(text) ? text.slice(1, -1) : text]
  const validator = compile(schema)
  const value = candidates.find((each) => each !== undefined && validator.validate(each).length === 0)
  if (value === undefined) throw problem(line, `${what}: its default ${excerpt(text)} is not of its type`)
  return { ...schema, default: value }
}

function asJson(text: string): Json | undefined {
  try {
    return JSON.parse(text) as Json
  } catch {
    // Then it is a text.
    return undefined
  }
}
