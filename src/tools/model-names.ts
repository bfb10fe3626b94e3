/** Handles of tools as names that language models and MCP hosts accept, and back. */
import { createHash } from 'node:crypto'
import { ConvokeError } from '../base/errors.ts'

export interface ModelNamesOptions {
  /** Longest name in characters, 16 or more. Default: 64. */
  readonly maxLength?: number
  /** Whether names begin with a letter or an underscore, as Gemini wants them. Default: false. */
  readonly letterFirst?: boolean
}

/** How many names are remembered at least. Tools come and go; a node that runs for months must not keep all that ever were. */
const remembered = 100_000

/** Dots stand alone: of `a_.b` and `a._b` both would become `a___b`. */
const plain = /^(?!.*(?:__|_\.|\._))[A-Za-z0-9_.-]+$/
const hashLength = 8

/**
 * Names for handles: `^[A-Za-z0-9_-]{1,64}$`, and no two handles share one. A handle that is such a name already, and has
 * no `__`, keeps it; a dot becomes `__`; any other is cut to what is allowed and ends in `_` and 8 digits of its SHA-256.
 * So a name is the same in every run and whatever other tools there are, but where two of those hashes meet: then the
 * handle that came second is hashed once more.
 */
export class ModelNames {
  readonly #maxLength: number
  readonly #letterFirst: boolean
  /** Two generations: the elder is dropped when the younger is full. Cheaper than to find the eldest entry of one. */
  #young = new Generation()
  #old = new Generation()

  /** Throws `config` for a length that leaves no room for the hash. */
  constructor(options: ModelNamesOptions = {}) {
    const { maxLength = 64, letterFirst = false } = options
    if (!Number.isSafeInteger(maxLength) || maxLength < 16)
      throw new ConvokeError('config', `\`maxLength\` of names must be an integer of 16 or more, got ${maxLength}.`)
    this.#maxLength = maxLength
    this.#letterFirst = letterFirst
  }

  /** The name of a handle. The same each time. */
  nameOf(handle: string): string {
    const known = this.#young.names.get(handle)
    if (known !== undefined) return known
    const name = this.#old.names.get(handle) ?? this.#create(handle)
    if (this.#young.names.size >= remembered) {
      this.#old = this.#young
      this.#young = new Generation()
    }
    this.#young.names.set(handle, name)
    this.#young.handles.set(name, handle)
    return name
  }

  /** The handle of a name that {@link nameOf} has given out; undefined for any other. */
  handleOf(name: string): string | undefined {
    return this.#young.handles.get(name) ?? this.#old.handles.get(name)
  }

  #create(handle: string): string {
    const simple = handle.replaceAll('.', '__')
    if (plain.test(handle) && this.#fits(simple) && this.#isFree(simple)) return simple
    const stem = this.#toStem(handle)
    for (let attempt = 1; ; attempt++) {
      const text = attempt === 1 ? handle : JSON.stringify([handle, attempt])
      const hash = createHash('sha256').update(text).digest('hex').slice(0, hashLength)
      const name = `${stem}_${hash}`
      if (this.#isFree(name)) return name
    }
  }

  #fits(name: string): boolean {
    return name.length <= this.#maxLength && (!this.#letterFirst || /^[A-Za-z_]/.test(name))
  }

  #isFree(name: string): boolean {
    return this.handleOf(name) === undefined
  }

  /** Of a long handle the service gives way first: what the tool is called says more to those who choose it. */
  #toStem(handle: string): string {
    const room = this.#maxLength - hashLength - 1
    const dot = handle.indexOf('.')
    const service = sanitize(handle.slice(0, Math.max(dot, 0)))
    const tool = sanitize(handle.slice(dot + 1))
    const kept = Math.max(Math.floor(room / 3), room - 2 - tool.length)
    const stem = dot === -1 ? tool : `${service.slice(0, kept)}__${tool}`
    return (this.#letterFirst && !/^[A-Za-z_]/.test(stem) ? `_${stem}` : stem).slice(0, room)
  }
}

class Generation {
  readonly names = new Map<string, string>()
  readonly handles = new Map<string, string>()
}

function sanitize(text: string): string {
  // No name is longer than a few hundred characters; what a stranger sends may be.
  return text
    .slice(0, 1000)
    .replaceAll('.', '__')
    .replace(/[^A-Za-z0-9_-]/g, '_')
}
