/** Types as JSDoc writes them, `{string[]}` or `{{a: number, b?: 'x' | 'y'}}`, as JSON Schema. */
import type { Json } from '../base/json.ts'
import type { JsonSchema } from './tool.ts'
import { clip } from './value.ts'

/** What a type says. Without a schema it is one that has none: bytes, or anything at all. */
export interface JsdocType {
  readonly schema: JsonSchema | undefined
  /** Whether the value may be left out: `number=`, `string | undefined`. */
  readonly optional: boolean
}

export type TypeSide = 'param' | 'result'

/** Thrown for what is not understood; the message is the rest of a sentence about the type. */
export class TypeProblem extends Error {}

/**
 * Reads a type. The object types of a param take no other members than theirs; a result may have more. Of promises and
 * generators of a result it is what comes out in the end. Throws {@link TypeProblem} for whatever it does not understand,
 * and, of a param, for types that would take anything.
 */
export function parseType(text: string, side: TypeSide): JsdocType {
  const parser = new TypeParser(text, side)
  const parsed = parser.union()
  if (parser.peek() !== undefined) throw parser.unexpected()
  return parsed
}

const tokenPattern =
  /\s*(?:("(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')|(-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)|([A-Za-z_$][\w$.]*)|(.))/gsy
/** Deeper is no type that anybody reads. */
const maxDepth = 50

interface Token {
  readonly kind: 'text' | 'number' | 'name' | 'sign'
  readonly text: string
}

const simple: Readonly<Record<string, JsonSchema | undefined>> = {
  string: { type: 'string' },
  String: { type: 'string' },
  number: { type: 'number' },
  Number: { type: 'number' },
  integer: { type: 'integer' },
  int: { type: 'integer' },
  boolean: { type: 'boolean' },
  Boolean: { type: 'boolean' },
  bool: { type: 'boolean' },
  null: { type: 'null' },
  true: { const: true },
  false: { const: false },
}

const lists: ReadonlySet<string> = new Set(['Array', 'ReadonlyArray'])
const records: ReadonlySet<string> = new Set(['Record', 'Object'])
const anything: ReadonlySet<string> = new Set(['any', 'unknown', '*', 'object', 'Object'])
const bytes: ReadonlySet<string> = new Set(['Uint8Array', 'Buffer'])
const last: ReadonlySet<string> = new Set(['Generator', 'AsyncGenerator'])

const required = (schema: JsonSchema | undefined): JsdocType => ({ schema, optional: false })

class TypeParser {
  readonly #text: string
  readonly #side: TypeSide
  readonly #tokens: Token[]
  #at = 0
  #depth = 0

  constructor(text: string, side: TypeSide) {
    this.#text = text
    this.#side = side
    this.#tokens = [...text.trim().matchAll(tokenPattern)].map(([, quoted, number, name, sign]) =>
      quoted !== undefined
        ? { kind: 'text', text: unquote(quoted) }
        : number !== undefined
          ? { kind: 'number', text: number }
          : name !== undefined
            ? { kind: 'name', text: name }
            : { kind: 'sign', text: sign ?? '' },
    )
  }

  peek(): Token | undefined {
    return this.#tokens[this.#at]
  }

  unexpected(): TypeProblem {
    const token = this.peek()
    const where = token === undefined ? 'ends too early' : `is not understood at "${clip(token.text, 40)}"`
    return new TypeProblem(`the type {${clip(this.#text, 100)}} ${where}`)
  }

  /** `A | B`, `?A`, `A=`. */
  union(): JsdocType {
    if (++this.#depth > maxDepth) throw new TypeProblem(`the type {${clip(this.#text, 100)}} nests too deep`)
    this.#takeSign('|')
    const nullable = this.#takeSign('?')
    const members = [this.#postfix()]
    while (this.#takeSign('|')) members.push(this.#postfix())
    const isLeftOut = this.#takeSign('=')
    this.#depth--
    // A param that is undefined is left out; a result that is undefined is null.
    const there = members.filter(({ schema }) => this.#side === 'result' || schema !== nothing)
    const optional = isLeftOut || there.length < members.length
    if (there.length === 0) throw new TypeProblem(`the type {${clip(this.#text, 100)}} leaves nothing to pass`)
    if (there.some(({ schema }) => schema === undefined)) return { schema: undefined, optional }
    const schemas = there.map(({ schema }) => schema as JsonSchema)
    return { schema: either(nullable ? [...schemas, { type: 'null' }] : schemas), optional }
  }

  #postfix(): JsdocType {
    while (this.peek()?.kind === 'name' && this.peek()?.text === 'readonly') this.#at++
    let type = this.#primary()
    while (this.#takeSign('[')) {
      this.#expect(']')
      type = required({ type: 'array', ...this.#itemsOf(type) })
    }
    return type
  }

  #primary(): JsdocType {
    const token = this.peek()
    if (token === undefined) throw this.unexpected()
    if (token.kind === 'sign' && token.text !== '*') return this.#signed(token)
    this.#at++
    if (token.kind === 'text') return required({ const: token.text })
    if (token.kind === 'number') return required({ const: Number(token.text) })
    return this.#named(token.text)
  }

  #signed(token: Token): JsdocType {
    this.#at++
    if (token.text === '{') return required(this.#object())
    if (token.text === '(') {
      const type = this.union()
      this.#expect(')')
      return type
    }
    this.#at--
    throw this.unexpected()
  }

  #named(word: string): JsdocType {
    // Closure writes Array.<string>.
    const name = word.endsWith('.') && this.peek()?.text === '<' ? word.slice(0, -1) : word
    if (name === 'undefined' || name === 'void') return required(nothing)
    const args = this.#arguments()
    const [first, second] = args ?? []
    if (args === undefined) {
      const found = Object.hasOwn(simple, name) ? simple[name] : undefined
      if (found !== undefined) return required(found)
      if (this.#side === 'result' && (name === 'object' || name === 'Object')) return required({ type: 'object' })
      if (this.#side === 'result' && (anything.has(name) || bytes.has(name))) return required(undefined)
      if (anything.has(name) || lists.has(name)) {
        throw new TypeProblem(`the type {${clip(this.#text, 100)}} does not say what is in "${name}"`)
      }
    } else if (first !== undefined && args.length === 1 && lists.has(name)) {
      return required({ type: 'array', ...this.#itemsOf(first) })
    } else if (first !== undefined && second !== undefined && args.length === 2 && records.has(name)) {
      return required({
        type: 'object',
        ...(second.schema === undefined ? {} : { additionalProperties: second.schema }),
      })
    } else if (this.#side === 'result' && first !== undefined && name === 'Promise') {
      return first
    } else if (this.#side === 'result' && last.has(name)) {
      return second ?? required(undefined)
    }
    throw new TypeProblem(`the type {${clip(this.#text, 100)}} has "${clip(name, 40)}" in it, which is not understood`)
  }

  #itemsOf({ schema }: JsdocType): { items?: JsonSchema } {
    return schema === undefined ? {} : { items: schema }
  }

  /** `<A, B>` */
  #arguments(): JsdocType[] | undefined {
    if (!this.#takeSign('<')) return undefined
    const args = [this.union()]
    while (this.#takeSign(',')) args.push(this.union())
    this.#expect('>')
    return args
  }

  /** Behind its `{`. */
  #object(): JsonSchema {
    // A member may be called __proto__.
    const properties = new Map<string, Json>()
    const needed: string[] = []
    while (!this.#takeSign('}')) {
      const key = this.peek()
      if (key === undefined || key.kind === 'sign') throw this.unexpected()
      this.#at++
      const isOptional = this.#takeSign('?')
      this.#expect(':')
      const { schema, optional } = this.union()
      properties.set(key.text, schema ?? {})
      if (!isOptional && !optional) needed.push(key.text)
      if (!this.#takeSign(',') && !this.#takeSign(';') && this.peek()?.text !== '}') throw this.unexpected()
    }
    return objectSchema(properties, needed, this.#side)
  }

  #takeSign(sign: string): boolean {
    const token = this.peek()
    if (token?.kind !== 'sign' || token.text !== sign) return false
    this.#at++
    return true
  }

  #expect(sign: string): void {
    if (!this.#takeSign(sign)) throw this.unexpected()
  }
}

/** The schema of an object with these members. That of a param takes no others. */
export function objectSchema(
  properties: ReadonlyMap<string, Json>,
  needed: readonly string[],
  side: TypeSide,
): JsonSchema {
  return {
    type: 'object',
    properties: Object.fromEntries(properties),
    ...(needed.length === 0 ? {} : { required: [...needed] }),
    ...(side === 'param' ? { additionalProperties: false } : {}),
  }
}

/** A function that returns nothing gives null. */
const nothing: JsonSchema = { type: 'null' }

function either(schemas: readonly JsonSchema[]): JsonSchema {
  const [only] = schemas
  if (only !== undefined && schemas.length === 1) return only
  const words = schemas.flatMap((schema) =>
    'const' in schema ? [schema['const']] : schema['type'] === 'null' ? [null] : [],
  )
  return words.length === schemas.length ? { enum: words } : { anyOf: [...schemas] }
}

function unquote(quoted: string): string {
  return quoted.slice(1, -1).replace(/\\(.)/gs, '$1')
}
