/** Results that are more than one value: texts, images, sound, files and links, as the parts of an A2A artifact. */
import type { Part } from './a2a.ts'

/** The same in every copy of this package, as a tool's module may have been installed with its own. */
const brand = Symbol.for('convoke.content')

/**
 * A tool's result in parts, in their order. Each part holds exactly one of `text`, `raw` (base64), `url` and `data` (JSON),
 * and may have a `mediaType`, a `filename` and `metadata`. There is at least one. A tool with an output schema gives one
 * data part that fits it, beside whatever else it gives.
 */
export class Content {
  readonly [brand] = true
  readonly parts: readonly Part[]

  /** Throws TypeError for parts that are none. */
  constructor(parts: readonly Part[]) {
    if (!Array.isArray(parts) || parts.length === 0) throw new TypeError('Content needs at least one part.')
    for (const part of parts as readonly Partial<Part>[]) {
      const { text, raw, url, data } = part ?? {}
      if ([text, raw, url, data].filter((each) => each !== undefined).length !== 1)
        throw new TypeError('A part of Content holds exactly one of `text`, `raw`, `url` and `data`.')
      for (const each of [text, raw, url])
        if (each !== undefined && typeof each !== 'string')
          throw new TypeError('`text`, `raw` (base64) and `url` of a part of Content are strings.')
    }
    this.parts = parts
  }

  /** What it says in words: its texts, a line each. */
  get text(): string {
    return this.parts.flatMap(({ text }) => (text === undefined ? [] : [text])).join('\n')
  }

  /** `{parts}`, for those who write it down. */
  toJSON(): { parts: readonly Part[] } {
    return { parts: this.parts }
  }
}

/** Whether a value is {@link Content}, of this copy of the package or another. */
export function isContent(value: unknown): value is Content {
  return typeof value === 'object' && value !== null && Reflect.get(value, brand) === true
}
