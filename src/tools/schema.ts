/** Validation by JSON Schema. The only file that knows ajv. */
import { Ajv, type Options, type ValidateFunction } from 'ajv'
import { Ajv2020 } from 'ajv/dist/2020.js'
import { ValueScope } from 'ajv/dist/compile/codegen/scope.js'
import formats from 'ajv-formats'
import type { Issue } from '../base/errors.ts'
import { canonicalJson, isObject } from '../base/json.ts'
import { describeIssues, maxIssues, toIssues } from './issues.ts'
import { toSafePattern } from './safe-pattern.ts'
import { checkSchema, dialectOf, toRegExp } from './schema-check.ts'
import type { JsonSchema } from './tool.ts'
import { clip, isLargerThan } from './value.ts'

/** Values with more members than this get their first issue reported, not all: an issue costs more than a member. */
const maxExplained = 10_000

const none: readonly Issue[] = []

export interface ValidatorOptions {
  /** The schema is a stranger's: its patterns are matched in linear time. Default: false. */
  readonly foreign?: boolean
  /** Write the schema's `default`s into the validated value, in place. Default: false. */
  readonly defaults?: boolean
}

/** A schema that is compiled when it is first used, once. `compile` makes one. */
export class Validator {
  readonly schema: JsonSchema
  readonly #defaults: boolean
  readonly #foreign: boolean
  #validate: ValidateFunction | undefined
  #explain: ValidateFunction | undefined
  #failure: Error | undefined

  constructor(schema: JsonSchema, options: ValidatorOptions = {}) {
    this.schema = schema
    this.#defaults = options.defaults ?? false
    this.#foreign = options.foreign ?? false
  }

  /**
   * Compiles now. Throws a plain Error that says what is wrong with the schema; the second time the same one,
   * without compiling again.
   */
  prepare(): void {
    this.#validate ??= this.#compile(false)
  }

  /**
   * What is wrong with the value; empty when nothing is. With `defaults`, missing members are filled in: pass a value
   * that belongs to the call. Throws when the schema cannot be compiled, as {@link prepare} does.
   */
  validate(value: unknown): readonly Issue[] {
    const validate = (this.#validate ??= this.#compile(false))
    if (validate(value)) return none
    // All issues are worth their own, slower function, but only once something is wrong: it stops at nothing.
    if (!isLargerThan(value, maxExplained)) {
      this.#explain ??= this.#compile(true)
      this.#explain(value)
      return toIssues(this.#explain.errors ?? []).slice(0, maxIssues)
    }
    return toIssues(validate.errors ?? [])
  }

  /** Whether the value fits, for those who need no reasons. Throws as {@link prepare} does. */
  fits(value: unknown): boolean {
    return (this.#validate ??= this.#compile(false))(value) === true
  }

  #compile(allErrors: boolean): ValidateFunction {
    if (this.#failure !== undefined) throw this.#failure
    try {
      return compileNow(this.schema, { allErrors, useDefaults: this.#defaults, foreign: this.#foreign })
    } catch (cause) {
      const reason = cause instanceof Error ? cause.message : String(cause)
      this.#failure = new Error(`The schema cannot be compiled: ${clip(reason, 500)}`, { cause })
      throw this.#failure
    }
  }
}

/** A validator for a schema: draft-07 or 2020-12, as `$schema` says. Costs nothing until it is used. */
export function compile(schema: JsonSchema, options?: ValidatorOptions): Validator {
  return new Validator(schema, options)
}

interface Flavour {
  readonly allErrors: boolean
  readonly useDefaults: boolean
  readonly foreign: boolean
}

/** One ajv for each dialect and flavour; it knows no schema but the one that it is compiling. */
const compilers = new Map<string, Ajv>()

function compileNow(schema: JsonSchema, { foreign, ...flavour }: Flavour): ValidateFunction {
  const issues = checkSchema(schema)
  if (issues.length > 0) throw new Error(describeIssues(issues))
  const dialect = dialectOf(schema) ?? '2020-12'
  // `{...}.constructor` is there on every object: schemas that speak of such names need the slower own-property checks.
  const ownProperties = mentions(schema, inheritedNames)
  const options = { ...base, ...flavour, ownProperties, code: { regExp: foreign ? safePatterns : patterns } }
  // The dialect is chosen; ajv would refuse the elder ones' names.
  const { $schema: _, ...keywords } = schema
  // Ids are registered in the ajv that compiles them, where they would meet those of other tools.
  if (mentions(schema, idNames)) return createCompiler(dialect, options).compile(keywords)
  const key = `${dialect} ${flavour.allErrors} ${flavour.useDefaults} ${ownProperties} ${foreign}`
  let ajv = compilers.get(key)
  if (ajv === undefined) compilers.set(key, (ajv = createCompiler(dialect, options)))
  try {
    return ajv.compile(keywords)
  } finally {
    // Its cache would keep the schemas of tools that are gone, and its scope what was compiled of them, 5 KiB each. What is
    // compiled looks into the scope once, when it is made.
    ajv.removeSchema(keywords)
    Object.assign(ajv, { scope: new ValueScope({ scope: {} }) })
  }
}

const base: Options = {
  strict: false,
  // Gives each violation its data and schema, for messages; costs nothing on the way that finds none.
  verbose: true,
  messages: false,
  // checkSchema has done it: the metaschema of 2020-12 takes 50 ms to compile, while the first caller waits.
  validateSchema: false,
  logger: false,
}

const patterns = Object.assign((pattern: string) => toRegExp(pattern) ?? new RegExp(pattern, 'u'), { code: 'toRegExp' })
const safePatterns = Object.assign(toSafePattern, { code: 'toSafePattern' })

function createCompiler(dialect: 'draft-07' | '2020-12', options: Options): Ajv {
  const ajv = dialect === 'draft-07' ? new Ajv(options) : new Ajv2020(options)
  formats.default(ajv)
  for (const keyword of ['minLength', 'maxLength', 'uniqueItems']) ajv.removeKeyword(keyword)
  ajv.addKeyword({
    keyword: 'minLength',
    type: 'string',
    schemaType: 'number',
    compile: (limit: number) => (text: string) => hasAtLeast(text, limit),
  })
  ajv.addKeyword({
    keyword: 'maxLength',
    type: 'string',
    schemaType: 'number',
    compile: (limit: number) => (text: string) => !hasAtLeast(text, limit + 1),
  })
  ajv.addKeyword({
    keyword: 'uniqueItems',
    type: 'array',
    schemaType: 'boolean',
    compile: (wanted: boolean) => (items: readonly unknown[]) => !wanted || areUnique(items),
  })
  return ajv
}

/**
 * Whether a text has at least so many characters (code points, as the specification counts). A character is one or
 * two UTF-16 units, so the length alone nearly always tells; ajv counts every time, 161 µs for 64 KiB.
 */
function hasAtLeast(text: string, limit: number): boolean {
  if (text.length < limit) return false
  if (text.length >= 2 * limit) return true
  // So many pairs may be there, and it still has `limit` characters.
  let spare = text.length - limit
  for (let i = 0; i < text.length - 1; i++) {
    if ((text.charCodeAt(i) & 0xfc00) === 0xd800 && (text.charCodeAt(i + 1) & 0xfc00) === 0xdc00) {
      if (--spare < 0) return false
      i++
    }
  }
  return true
}

/** ajv compares every item with every other; a caller may send 100,000 of them. */
function areUnique(items: readonly unknown[]): boolean {
  return items.length < 2 || new Set(items.map(canonicalJson)).size === items.length
}

const inheritedNames: ReadonlySet<string> = new Set(Object.getOwnPropertyNames(Object.prototype))
const idNames: ReadonlySet<string> = new Set(['$id'])

/** Whether one of the names stands anywhere in a schema, as a key or as a string: a hint too many does no harm. */
function mentions(schema: unknown, names: ReadonlySet<string>): boolean {
  if (typeof schema === 'string') return names.has(schema)
  if (Array.isArray(schema)) return schema.some((each) => mentions(each, names))
  if (!isObject(schema)) return false
  return Object.entries(schema).some(([key, value]) => names.has(key) || mentions(value, names))
}
