/** What a schema says, in words: for the description of a place whose provider does not take the keyword. */
import { isObject, type Json, type JsonObject } from '../../base/json.ts'

/** Longest JSON within a sentence, in characters. */
const maxQuoted = 2000

/** A text of at most `limit` characters, which says how much of it was cut. */
export function cut(text: string, limit: number): string {
  if (text.length <= limit) return text
  const told = (left: number): string => ` […${left} more characters]`
  // The number of what is cut may have a digit less than that of the whole: then the result is one short of the limit.
  let end = Math.max(0, limit - told(text.length).length)
  // Never half of a character that takes two.
  const last = text.charCodeAt(end - 1)
  if (last >= 0xd800 && last <= 0xdbff) end--
  return text.slice(0, end) + told(text.length - end)
}

export function quote(value: Json): string {
  return cut(JSON.stringify(value), maxQuoted)
}

export function asText(value: Json): string {
  return typeof value === 'string' ? value : quote(value)
}

/** Sentences behind a description, each said once. */
export function joinWords(parts: readonly (string | undefined)[]): string {
  return [...new Set(parts.flatMap((part) => (part === undefined || part.trim() === '' ? [] : [part.trim()])))].join(
    '\n',
  )
}

type Say = (value: Json, node: JsonObject) => string | undefined

const names = (value: Json): string =>
  Array.isArray(value) ? value.map((name) => `\`${asText(name)}\``).join(', ') : ''
const plural = (count: Json, one: string, many: string): string => `${quote(count)} ${count === 1 ? one : many}`

const sentences = new Map<string, Say>([
  ['title', (value) => `Title: ${asText(value)}.`],
  ['default', (value) => `Default: ${quote(value)}.`],
  ['const', (value) => `Must be ${quote(value)}.`],
  ['enum', (value) => (Array.isArray(value) ? `One of: ${value.map(quote).join(', ')}.` : undefined)],
  ['examples', (value) => (Array.isArray(value) ? `Examples: ${value.map(quote).join(', ')}.` : undefined)],
  ['example', (value) => `Example: ${quote(value)}.`],
  ['deprecated', (value) => (value === true ? 'Deprecated.' : undefined)],
  ['readOnly', (value) => (value === true ? 'Read-only.' : undefined)],
  ['writeOnly', (value) => (value === true ? 'Write-only.' : undefined)],
  ['format', (value) => `Format: ${asText(value)}.`],
  ['pattern', (value) => `Must match the regular expression ${asText(value)}`],
  ['minLength', (value) => `At least ${plural(value, 'character', 'characters')}.`],
  ['maxLength', (value) => `At most ${plural(value, 'character', 'characters')}.`],
  ['minimum', (value) => `At least ${quote(value)}.`],
  ['maximum', (value) => `At most ${quote(value)}.`],
  ['exclusiveMinimum', (value) => `More than ${quote(value)}.`],
  ['exclusiveMaximum', (value) => `Less than ${quote(value)}.`],
  ['multipleOf', (value) => `A multiple of ${quote(value)}.`],
  ['minItems', (value) => `At least ${plural(value, 'item', 'items')}.`],
  ['maxItems', (value) => `At most ${plural(value, 'item', 'items')}.`],
  ['uniqueItems', (value) => (value === true ? 'No item twice.' : undefined)],
  ['prefixItems', sayPositions],
  ['contains', sayContains],
  ['unevaluatedItems', (value) => (value === false ? 'No other items.' : `Other items fit ${quote(value)}.`)],
  ['minProperties', (value) => `At least ${plural(value, 'property', 'properties')}.`],
  ['maxProperties', (value) => `At most ${plural(value, 'property', 'properties')}.`],
  ['additionalProperties', sayOthers],
  ['unevaluatedProperties', sayOthers],
  ['patternProperties', sayPatterns],
  ['propertyNames', (value) => (value === true ? undefined : `The names of properties fit ${quote(value)}.`)],
  ['dependentRequired', sayDependents],
  ['dependentSchemas', sayDependents],
  ['not', (value) => `Must not fit ${quote(value)}.`],
  ['if', sayCondition],
  ['anyOf', (value) => (Array.isArray(value) ? `Fits at least one of: ${value.map(quote).join(' or ')}.` : undefined)],
  ['oneOf', (value) => (Array.isArray(value) ? `Fits exactly one of: ${value.map(quote).join(' or ')}.` : undefined)],
  ['allOf', (value) => (Array.isArray(value) ? `Fits all of: ${value.map(quote).join(' and ')}.` : undefined)],
])

/** Said with another keyword, or of no meaning for who fills in params: where a schema is, and notes between authors. */
const unsaid = new Set([
  '$schema',
  '$id',
  '$anchor',
  '$dynamicAnchor',
  '$vocabulary',
  '$comment',
  '$defs',
  'definitions',
  'then',
  'else',
  'minContains',
  'maxContains',
])

/** A keyword as a sentence; undefined for one that says nothing. `node` is the schema that it stands in. */
export function say(keyword: string, value: Json, node: JsonObject): string | undefined {
  if (unsaid.has(keyword)) return undefined
  const sentence = sentences.get(keyword)
  return sentence === undefined ? `${keyword}: ${quote(value)}.` : sentence(value, node)
}

function sayOthers(value: Json, node: JsonObject): string | undefined {
  if (value === true || (isObject(value) && Object.keys(value).length === 0)) return undefined
  const none = node['properties'] === undefined
  if (value === false) return none ? 'No properties.' : 'No other properties.'
  return `${none ? 'Properties of any name, each of which fits' : 'Other properties fit'} ${quote(value)}.`
}

function sayPatterns(value: Json): string | undefined {
  if (!isObject(value)) return undefined
  return Object.entries(value)
    .map(([pattern, schema]) => `Properties whose names match ${pattern} fit ${quote(schema)}.`)
    .join(' ')
}

function sayDependents(value: Json): string | undefined {
  if (!isObject(value)) return undefined
  return Object.entries(value)
    .map(([name, needs]) =>
      Array.isArray(needs)
        ? `With \`${name}\` these must be given too: ${names(needs)}.`
        : `With \`${name}\` the whole must fit ${quote(needs)}.`,
    )
    .join(' ')
}

function sayPositions(value: Json): string | undefined {
  if (!Array.isArray(value)) return undefined
  return `By position: ${value.map((schema, i) => `item ${i + 1} fits ${quote(schema)}`).join('; ')}.`
}

function sayContains(value: Json, { minContains, maxContains }: JsonObject): string {
  const least = typeof minContains === 'number' ? minContains : 1
  const most = typeof maxContains === 'number' ? ` and at most ${maxContains}` : ''
  return `At least ${least}${most} of the items must fit ${quote(value)}.`
}

function sayCondition(value: Json, node: JsonObject): string | undefined {
  const { then: yes, else: no } = node
  if (yes === undefined && no === undefined) return undefined
  const forms = [
    yes === undefined ? [] : [`What fits ${quote(value)} must fit ${quote(yes)} too.`],
    no === undefined ? [] : [`What does not fit ${quote(value)} must fit ${quote(no)}.`],
  ]
  return forms.flat().join(' ')
}
