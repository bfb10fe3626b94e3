/**
 * What is wrong with a value, said so that a language model can mend it: where, what is allowed, what it got. No
 * message grows with the value.
 */
import type { Issue } from '../base/errors.ts'
import { isObject } from '../base/json.ts'
import { clip, closest, escapePointer, excerpt } from './value.ts'

/** An error as ajv gives it with `verbose`. */
export interface Violation {
  readonly instancePath: string
  readonly schemaPath: string
  readonly keyword: string
  readonly params: Readonly<Record<string, unknown>>
  readonly propertyName?: string
  readonly schema?: unknown
  readonly parentSchema?: unknown
  readonly data?: unknown
}

/** How many issues are reported of one value. */
export const maxIssues = 20
/** How many allowed values or names one message lists. */
const maxListed = 20

/** All issues in one line, the first five spelled out: `/n: must be 1 or more, got 0; /m: …`. */
export function describeIssues(issues: readonly Issue[]): string {
  const shown = issues.slice(0, 5).map(({ path, message }) => (path === '' ? message : `${path}: ${message}`))
  const more = issues.length - shown.length
  return more > 0 ? `${shown.join('; ')}; and ${more} more` : shown.join('; ')
}

/** A violation on its way to an issue; a choice (anyOf, oneOf) swallows those of its branches. */
interface Finding {
  readonly violation: Violation
  readonly issue: Issue
}

export function toIssues(violations: readonly Violation[]): Issue[] {
  let findings: Finding[] = []
  for (const violation of violations) {
    // `if` and `propertyNames` only sum up violations that stand before them.
    if (violation.keyword === 'if' || violation.keyword === 'propertyNames') continue
    const branches = branchesOf(violation)
    if (branches === undefined) {
      findings.push({ violation, issue: toIssue(violation) })
      continue
    }
    const prefixes = branches.map((branch, i) => branchPath(violation, branch, i))
    const isInside = (each: Finding, prefix: string): boolean =>
      each.violation.schemaPath.startsWith(prefix) && each.violation.instancePath.startsWith(violation.instancePath)
    const groups = prefixes.map((prefix) => findings.filter((each) => isInside(each, prefix)))
    findings = findings.filter((each) => !prefixes.some((prefix) => isInside(each, prefix)))
    // A oneOf that matches more than once: what the other branches find wrong is no help.
    if (Array.isArray(violation.params['passingSchemas'])) findings.push({ violation, issue: toIssue(violation) })
    else findings.push(...choose(violation, groups))
  }
  return findings.slice(0, maxIssues).map(({ issue }) => issue)
}

function branchesOf({ keyword, schema }: Violation): readonly unknown[] | undefined {
  return (keyword === 'anyOf' || keyword === 'oneOf') && Array.isArray(schema) ? schema : undefined
}

/** Where ajv says the violations of a branch are: behind its `$ref`, where it has one. */
function branchPath({ schemaPath }: Violation, branch: unknown, i: number): string {
  return isObject(branch) && typeof branch['$ref'] === 'string' ? `${branch['$ref']}/` : `${schemaPath}/${i}/`
}

/** What to say about a value that fits no branch. */
function choose(choice: Violation, groups: readonly (readonly Finding[])[]): Finding[] {
  const all = groups.flat()
  const here = (message: string): Finding[] => [{ violation: choice, issue: { path: toPath(choice), message } }]
  const types = all.map(({ violation }) =>
    isWrongType(violation, choice.instancePath) ? violation.params['type'] : undefined,
  )
  if (all.length > 0 && types.every((type) => type !== undefined)) {
    return here(`must be ${typeNames(types.flat())}, got ${gotType(choice.data)}`)
  }
  // The branch that the value was meant for: the only one whose type fits, or whose constants (a discriminator) do.
  for (const isElsewhere of [(each: Finding) => isWrongType(each.violation, choice.instancePath), isConstant]) {
    const meant = groups.filter((group) => group.length > 0 && !group.some(isElsewhere))
    if (meant.length === 1) return [...(meant[0] ?? [])]
  }
  const constants = all.filter(isConstant)
  if (constants.length === all.length && all.length > 0 && new Set(all.map(({ issue }) => issue.path)).size === 1) {
    const [first] = constants
    const values = constants.flatMap(({ violation }) => allowedValues(violation))
    return first === undefined
      ? []
      : [{ ...first, issue: { ...first.issue, message: notAllowed(values, first.violation.data) } }]
  }
  const forms = groups
    .filter((group) => group.length > 0)
    .slice(0, 5)
    .map((group, i) => `(${i + 1}) ${describeIssues(group.slice(0, 2).map(({ issue }) => relative(issue, choice)))}`)
  return here(clip(`fits none of the ${groups.length} allowed forms: ${forms.join(' ')}`, 800))
}

function relative(issue: Issue, { instancePath }: Violation): Issue {
  return { ...issue, path: issue.path.slice(instancePath.length) }
}

function isWrongType({ keyword, instancePath }: Violation, path: string): boolean {
  return keyword === 'type' && instancePath === path
}

function isConstant({ violation: { keyword } }: Finding): boolean {
  return keyword === 'const' || keyword === 'enum'
}

function allowedValues({ keyword, params }: Violation): unknown[] {
  if (keyword === 'const') return [params['allowedValue']]
  return Array.isArray(params['allowedValues']) ? params['allowedValues'] : []
}

function toIssue(violation: Violation): Issue {
  const name = violation.propertyName
  const message = name === undefined ? explain(violation) : `the property name ${excerpt(name)} ${explain(violation)}`
  return { path: toPath(violation), message: clip(message, 800) }
}

/** A missing or unknown property's issue stands where the property is, or should be: a form can show it there. */
function toPath({ instancePath, params, keyword }: Violation): string {
  const key = keyword === 'required' ? params['missingProperty'] : unknownProperty(params)
  const path = typeof key === 'string' ? `${instancePath}/${escapePointer(clip(key, 100))}` : instancePath
  return clip(path, 500)
}

function unknownProperty(params: Violation['params']): unknown {
  return params['additionalProperty'] ?? params['unevaluatedProperty']
}

function explain(violation: Violation): string {
  const { keyword, params, schema, parentSchema, data } = violation
  const limit = String(params['limit'] ?? schema)
  switch (keyword) {
    case 'type':
      return `must be ${typeNames(list(params['type']))}, got ${gotType(data)}`
    case 'required':
      return `the required property ${excerpt(params['missingProperty'])} is missing${hint(parentSchema, params['missingProperty'])}${misspelt(data, params['missingProperty'], parentSchema)}`
    case 'additionalProperties':
    case 'unevaluatedProperties':
      return unknownName(String(unknownProperty(params)), propertyNames(parentSchema))
    case 'enum':
    case 'const':
      return notAllowed(allowedValues(violation), data)
    case 'minimum':
      return `must be ${limit} or more, got ${excerpt(data)}`
    case 'maximum':
      return `must be ${limit} or less, got ${excerpt(data)}`
    case 'exclusiveMinimum':
      return `must be more than ${limit}, got ${excerpt(data)}`
    case 'exclusiveMaximum':
      return `must be less than ${limit}, got ${excerpt(data)}`
    case 'multipleOf':
      return `must be a multiple of ${String(schema)}, got ${excerpt(data)}`
    case 'minLength':
      return `must have at least ${limit} characters, got ${excerpt(data)}`
    case 'maxLength':
      return `must have at most ${limit} characters, has ${typeof data === 'string' && data.length < 1000 ? Array.from(data).length : 'more'}`
    case 'minItems':
      return `must have at least ${limit} items, has ${Array.isArray(data) ? data.length : 'fewer'}`
    case 'maxItems':
      return `must have at most ${limit} items, has ${Array.isArray(data) ? data.length : 'more'}`
    case 'minProperties':
      return `must have at least ${limit} properties`
    case 'maxProperties':
      return `must have at most ${limit} properties`
    case 'uniqueItems':
      return 'must not hold the same item twice'
    case 'pattern':
      return `must match the pattern ${clip(String(schema), 120)}, got ${excerpt(data)}`
    case 'format':
      return `must be ${formatName(schema)}, got ${excerpt(data)}`
    case 'contains':
      return `must hold an item of the kind that \`contains\` describes`
    case 'dependentRequired':
    case 'dependencies':
      return `needs the property ${excerpt(params['missingProperty'])} when ${excerpt(params['property'])} is there`
    case 'oneOf':
      return 'fits more than one of the allowed forms, and must fit exactly one'
    case 'not':
      return 'is of the one form that is not allowed'
    case 'false schema':
      return 'is not allowed here'
    default:
      return `breaks the keyword ${keyword} of its schema, got ${excerpt(data)}`
  }
}

const typeArticles: Readonly<Record<string, string>> = {
  integer: 'an integer',
  object: 'an object',
  array: 'an array',
  null: 'null',
}

function typeNames(types: readonly unknown[]): string {
  const names = [...new Set(types.map(String))].map((type) => typeArticles[type] ?? `a ${type}`)
  return joinOr(names)
}

function joinOr(names: readonly string[]): string {
  return names.length < 2 ? names.join('') : `${names.slice(0, -1).join(', ')} or ${names.at(-1) ?? ''}`
}

/** `a string: "abc"`; arrays and objects by their kind alone. */
function gotType(data: unknown): string {
  if (data === null || data === undefined) return String(data)
  if (typeof data === 'object') return excerpt(data)
  return `a ${typeof data}: ${excerpt(data)}`
}

function notAllowed(values: readonly unknown[], data: unknown): string {
  const names = values.filter((value) => typeof value === 'string')
  const meant = typeof data === 'string' ? closest(data, names) : undefined
  const allowed = listed(values.map(shown))
  return `must be ${values.length === 1 ? allowed : `one of ${allowed}`}, got ${excerpt(data)}${didYouMean(meant)}`
}

/** An allowed value. It is the schema's own, so small objects are spelled out. */
function shown(value: unknown): string {
  return typeof value === 'string' ? excerpt(value) : clip(JSON.stringify(value), 80)
}

function unknownName(name: string, allowed: readonly string[]): string {
  const known = allowed.length === 0 ? 'none is allowed here' : `allowed: ${listed(allowed)}`
  return `the property ${excerpt(name)} is unknown${didYouMean(closest(name, allowed))}; ${known}`
}

function listed(values: readonly string[]): string {
  const more = values.length - maxListed
  return more > 0 ? `${values.slice(0, maxListed).join(', ')} and ${more} more` : values.join(', ')
}

function didYouMean(name: string | undefined): string {
  return name === undefined ? '' : ` (did you mean ${JSON.stringify(name)}?)`
}

/** ` (an integer: how far to count)`, as far as the schema says so. */
function hint(parentSchema: unknown, name: unknown): string {
  if (!isObject(parentSchema) || !isObject(parentSchema['properties']) || typeof name !== 'string') return ''
  const schema = Object.hasOwn(parentSchema['properties'], name) ? parentSchema['properties'][name] : undefined
  if (!isObject(schema)) return ''
  const type = Array.isArray(schema['enum'])
    ? `one of ${listed(schema['enum'].map(shown))}`
    : schema['type'] === undefined
      ? undefined
      : typeNames(list(schema['type']))
  const description = typeof schema['description'] === 'string' ? clip(schema['description'], 120) : undefined
  const words = [type, description].filter((word) => word !== undefined)
  return words.length === 0 ? '' : ` (${words.join(': ')})`
}

/** Names the property that was probably given under another name. */
function misspelt(data: unknown, name: unknown, parentSchema: unknown): string {
  if (!isObject(data) || typeof name !== 'string') return ''
  const known = new Set(propertyNames(parentSchema))
  const found = closest(
    name,
    Object.keys(data)
      .slice(0, 200)
      .filter((key) => !known.has(key)),
  )
  return found === undefined ? '' : `; got ${excerpt(found)} instead`
}

function propertyNames(schema: unknown): string[] {
  return isObject(schema) && isObject(schema['properties']) ? Object.keys(schema['properties']) : []
}

function list(value: unknown): readonly unknown[] {
  return Array.isArray(value) ? value : [value]
}

const formatExamples: Readonly<Record<string, string>> = {
  'date-time': '2026-01-31T12:00:00Z',
  date: '2026-01-31',
  time: '12:00:00Z',
  duration: 'PT30M',
  email: 'ada@example.org',
  uri: 'https://example.org/',
  uuid: '123e4567-e89b-12d3-a456-426614174000',
  ipv4: '192.0.2.1',
}

function formatName(schema: unknown): string {
  const format = String(schema)
  const example = Object.hasOwn(formatExamples, format) ? formatExamples[format] : undefined
  return `of the format ${clip(format, 60)}${example === undefined ? '' : ` such as ${example}`}`
}
