/** What both ways of bending a schema share: its document, the `$defs` of the result, and the names of its properties. */
import { createHash } from 'node:crypto'
import { isObject, type Json, type JsonObject } from '../../base/json.ts'
import type { JsonSchema } from '../tool.ts'
import type { Dialect } from './dialects.ts'
import { Document, nameOf } from './document.ts'

/** What a property is called where its name is not accepted: the same each time, and told apart by a hash. */
export function acceptedName(name: string, pattern: RegExp | undefined): string {
  if (pattern === undefined || pattern.test(name)) return name
  const stem = name.slice(0, 50).replace(/[^A-Za-z0-9_-]/g, '_')
  const hash = createHash('sha256').update(name).digest('hex').slice(0, 8)
  return `${/^[A-Za-z_]/.test(stem) ? '' : '_'}${stem}_${hash}`
}

export class Bending {
  readonly dialect: Dialect
  readonly document: Document
  /** What is referred to, under its name. */
  readonly definitions: JsonObject = {}
  /** Whether a property has another name now. */
  renamed = false
  readonly #names = new Map<JsonObject, string>()

  constructor(schema: JsonSchema, dialect: Dialect) {
    this.dialect = dialect
    this.document = new Document(schema)
  }

  accepted(name: string): string {
    const accepted = acceptedName(name, this.dialect.propertyName)
    if (accepted !== name) this.renamed = true
    return accepted
  }

  /** A reference to `$defs`, where what it leads to is put once. */
  reference(ref: string, bendTarget: (target: JsonObject) => Json): JsonObject {
    const target = this.document.find(ref)
    if (target === undefined) return { description: `Must fit what ${JSON.stringify(ref)} describes.` }
    if (!isObject(target)) return target === false ? { not: {} } : {}
    if (target === this.document.root) return { $ref: '#' }
    let name = this.#names.get(target)
    if (name === undefined) {
      const stem = nameOf(ref)
        .replace(/[^A-Za-z0-9_.-]/g, '_')
        .slice(0, 60)
      name = stem
      for (let i = 2; Object.hasOwn(this.definitions, name); i++) name = `${stem}_${i}`
      this.#names.set(target, name)
      // Its place is taken before it is filled, as it may refer to itself.
      this.definitions[name] = {}
      this.definitions[name] = bendTarget(target)
    }
    return { $ref: `#/$defs/${name}` }
  }
}
