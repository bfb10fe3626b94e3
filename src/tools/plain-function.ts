/** Plain functions as tools, where their params are known: by a schema on the function, by the configuration, by JSDoc. */
import { readFile, stat } from 'node:fs/promises'
import { fileURLToPath } from 'node:url'
import { ConvokeError } from '../base/errors.ts'
import { isObject, type Json, type JsonObject } from '../base/json.ts'
import { createTool } from './define.ts'
import { docCommentOf, isClass, parametersOf, SourceProblem, type Parameter } from './function-source.ts'
import { objectSchema } from './jsdoc-type.ts'
import { JsdocProblem, parseJsdoc, type DocParam, type FunctionDoc } from './jsdoc.ts'
import { isStandardSchema } from './standard.ts'
import type { JsonSchema, Tool, ToolContext } from './tool.ts'

export type PlainFunction = (...args: unknown[]) => unknown

/** What is said of a function elsewhere than in its module. */
export interface FunctionEntry {
  readonly name: string
  readonly description?: string | undefined
  readonly input?: JsonSchema | undefined
  readonly output?: JsonSchema | undefined
}

/** Larger files are not read for the JSDoc in them. */
const maxSourceBytes = 4 * 1024 * 1024

const inputMembers = ['input', 'inputSchema', 'input_schema', 'schema']
const outputMembers = ['output', 'outputSchema', 'output_schema']

export function isPlainFunction(value: unknown): value is PlainFunction {
  return typeof value === 'function' && !isClass(value)
}

/**
 * Whether a function carries the schema of its params: a JSON Schema of type object or a Standard Schema as `input` or the
 * like. Other libraries' functions have members of these names too.
 */
export function hasOwnSchema(value: unknown): value is PlainFunction {
  // ArkType's schemas are functions that have such members.
  if (!isPlainFunction(value) || isStandardSchema(value)) return false
  const schema = ownMember(value, inputMembers)
  return isStandardSchema(schema) || (isObject(schema) && schema['type'] === 'object')
}

/**
 * Makes a tool of a function. Its schema is the entry's, else that of its static member, else that of its JSDoc in the file
 * at `url`. With a schema it is called as `run` is, `(params, context)`; by its JSDoc with its parameters one by one, or
 * with one object where that is its only parameter, and with the context where it asks for that. Throws `config` where
 * no schema is known, or where not all of the JSDoc is understood.
 */
export async function toolOfFunction(run: PlainFunction, entry: FunctionEntry, url: string): Promise<Tool> {
  const { name } = entry
  const input = entry.input ?? ownMember(run, inputMembers)
  const output = entry.output ?? ownMember(run, outputMembers)
  const description = entry.description ?? ownMember(run, ['description'])
  const traits = ownMember(run, ['traits'])
  const more = traits === undefined ? {} : { traits }
  if (input !== undefined) {
    return createTool({ name, description, input, ...(output === undefined ? {} : { output }), ...more, run })
  }
  const doc = await readDoc(run, name, url)
  const plan = explain(name, () => planCall(parametersOf(run), doc))
  return createTool({
    name,
    description: description ?? doc.description,
    input: plan.input,
    ...(output === undefined && doc.result === undefined ? {} : { output: output ?? doc.result }),
    ...more,
    run: (params: JsonObject, context: ToolContext): unknown => run(...plan.toArguments(params, context)),
  })
}

/** A member of its own: `name` and `length` every function has, and an inherited one says nothing of this function. */
function ownMember(run: object, names: readonly string[]): unknown {
  const found = names.find((name) => Object.hasOwn(run, name))
  return found === undefined ? undefined : (Reflect.get(run, found) as unknown)
}

const advice = 'Say its params with `input` in the entry, a JSON Schema as its member `input`, JSDoc, or defineTool'

function explain<Value>(name: string, work: () => Value): Value {
  try {
    return work()
  } catch (error) {
    if (!(error instanceof SourceProblem || error instanceof JsdocProblem)) throw error
    const what = error instanceof JsdocProblem ? `has JSDoc that cannot be read: ${error.message}` : error.message
    const message = `the plain function \`${name}\` ${what}. ${advice}.`
    throw new ConvokeError('config', message, { cause: error })
  }
}

async function readDoc(run: PlainFunction, name: string, url: string): Promise<FunctionDoc> {
  const file = fileURLToPath(url)
  const isJavaScript = /\.[cm]?js$/.test(file)
  const isSmall = isJavaScript && (await stat(file)).size <= maxSourceBytes
  const source = isSmall ? await readFile(file, 'utf8') : ''
  return explain(name, () => {
    if (!isJavaScript) throw new SourceProblem('is not in a JavaScript file, where its JSDoc could be read')
    if (!isSmall) throw new SourceProblem(`is in a file above ${maxSourceBytes} bytes, which is not read for its JSDoc`)
    const { text, line } = docCommentOf(run, source)
    return parseJsdoc(text, line)
  })
}

interface CallPlan {
  readonly input: JsonSchema
  toArguments(params: JsonObject, context: ToolContext): unknown[]
}

type Argument =
  | { readonly kind: 'context' }
  | { readonly kind: 'params' }
  | { readonly kind: 'member'; readonly name: string }

/** Which params there are, and how the function gets them. */
function planCall(parameters: readonly Parameter[], doc: FunctionDoc): CallPlan {
  const documented = new Map(doc.params.map((param) => [param.name, param]))
  const pairs = parameters.map((parameter, index) => {
    const param = parameter.name === undefined ? doc.params[index] : documented.get(parameter.name)
    if (param !== undefined) documented.delete(param.name)
    // What `run` gets as its second parameter, by the name that it usually has.
    else if (parameter.name !== 'context' || index !== parameters.length - 1 || index === 0)
      throw undocumented(parameter)
    return { parameter, param }
  })
  const [extra] = documented.keys()
  if (extra !== undefined) throw new SourceProblem(`has no parameter \`${extra}\`, of which its JSDoc speaks`)
  const given = pairs.flatMap(({ parameter, param }) => (param?.schema === undefined ? [] : [{ parameter, param }]))
  const [only] = given
  const takesObject = only !== undefined && given.length === 1 && only.param.schema?.['type'] === 'object'
  const args = pairs.map(({ param }): Argument => {
    if (param?.schema === undefined) return { kind: 'context' }
    return takesObject ? { kind: 'params' } : { kind: 'member', name: param.name }
  })
  return {
    input: takesObject ? (only.param.schema as JsonSchema) : membersOf(given),
    toArguments: (params, context) =>
      args.map((arg) => (arg.kind === 'member' ? params[arg.name] : arg.kind === 'params' ? params : context)),
  }
}

function membersOf(given: readonly { readonly parameter: Parameter; readonly param: DocParam }[]): JsonSchema {
  const properties = new Map(given.map(({ param }): [string, Json] => [param.name, param.schema ?? {}]))
  const needed = given.filter(({ parameter, param }) => !param.optional && !parameter.hasDefault)
  return objectSchema(
    properties,
    needed.map(({ param }) => param.name),
    'param',
  )
}

function undocumented({ name }: Parameter): SourceProblem {
  return new SourceProblem(
    name === undefined
      ? 'takes an object whose members have no @param {TYPE} params.NAME'
      : `has a parameter \`${name}\` without a @param {TYPE} ${name}`,
  )
}
