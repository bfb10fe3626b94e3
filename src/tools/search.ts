/** Finds tools among thousands by words. */
import MiniSearch, { type Options } from 'minisearch'
import { ConvokeError } from '../base/errors.ts'
import { isObject } from '../base/json.ts'
import type { JsonSchema, Tool } from './tool.ts'
import { excerpt } from './value.ts'

export interface ToolMatch {
  /** The tool's handle. */
  readonly name: string
  /** Higher is better; comparable within one search only. */
  readonly score: number
}

/** What a search sees of a tool. */
export type SearchedTool = Pick<Tool, 'name' | 'description' | 'input' | 'traits'>

/** What of a tool is looked at; more says nothing more and costs memory. */
const maxDescription = 600
const maxParams = 50
const maxParamDescription = 100
const maxQuery = 200
const maxQueryWords = 16
/** How long the index is built at a time by {@link ToolSearch.prepare}, in milliseconds. */
const sliceMs = 5
/** How many tools are indexed between two looks at the clock. */
const sliceTools = 20

/** Most entries of the index that the words of a search may have together; those that nearly every tool has are left out. */
const maxEntries = 4000

/** The words of a tool, each in the one field where it weighs most: that keeps the index small. */
interface Document {
  readonly id: number
  readonly name: string
  readonly description: string
  readonly params: string
}

/**
 * An index of tools by the words of their names, descriptions, tags and params. It is built at the first search, and
 * afterwards what has changed is indexed anew: tools are the same while they are the same objects.
 */
export class ToolSearch {
  #index = createIndex()
  /** What is in the index, by handle. */
  #known = new Map<string, { readonly id: number; readonly tool: SearchedTool }>()
  #byId: (SearchedTool | undefined)[] = []
  /** How many tools have a word. */
  #counts = new Map<string, number>()
  /** What is to be in it; undefined when nothing has changed. */
  #wanted: readonly SearchedTool[] | undefined
  #revision: number | undefined
  /** What is not in the index yet, from `#next` on. */
  #todo: SearchedTool[] = []
  #next = 0

  /** Sets the tools that are looked at. Costs nothing until the next search, and nothing ever for a revision that is known. */
  update(tools: readonly SearchedTool[], revision: number): void {
    if (revision === this.#revision) return
    this.#revision = revision
    this.#wanted = tools
  }

  /**
   * The tools that fit a text best, best first; at most `limit` (default 10). Words may be begun or slightly misspelt; a
   * tool need not have all of them. A handle, written whole, comes first. Builds what is not built yet. Throws `config` for a wrong limit.
   */
  search(text: string, { limit = 10 }: { readonly limit?: number } = {}): ToolMatch[] {
    if (!Number.isSafeInteger(limit) || limit < 1)
      throw new ConvokeError('config', `\`limit\` must be a whole number of 1 or more, got ${excerpt(limit)}.`)
    this.#begin()
    this.#build(Infinity)
    const query = text.trim().slice(0, maxQuery)
    const words = this.#telling(toWords(query).slice(0, maxQueryWords))
    const matches: ToolMatch[] = []
    const found = this.#index.search(words.join(' '))
    for (const { id, score } of found) {
      const name = this.#byId[id as number]?.name
      if (name !== undefined) matches.push({ name, score })
      if (matches.length > limit) break
    }
    const exact = this.#known.has(query) ? query : undefined
    if (exact !== undefined && matches[0]?.name !== exact) {
      const others = matches.filter(({ name }) => name !== exact)
      return [{ name: exact, score: matches[0]?.score ?? 1 }, ...others].slice(0, limit)
    }
    return matches.slice(0, limit)
  }

  /**
   * Builds the index in slices of some milliseconds, so that a search finds it built and the event loop is free
   * meanwhile. Resolves when that is done, or given up for the signal.
   */
  async prepare({ signal }: { readonly signal?: AbortSignal } = {}): Promise<void> {
    for (;;) {
      if (signal?.aborted === true) return
      this.#begin()
      if (this.#build(performance.now() + sliceMs)) return
      await new Promise((resolve) => setImmediate(resolve))
    }
  }

  /** Takes out what is gone, and notes what is new. */
  #begin(): void {
    const wanted = this.#wanted
    if (wanted === undefined) return
    this.#wanted = undefined
    // Of two of one name the first counts.
    const byName = new Map<string, SearchedTool>()
    for (const tool of wanted) if (!byName.has(tool.name)) byName.set(tool.name, tool)
    const stale = [...this.#known].filter(([name, { tool }]) => byName.get(name) !== tool)
    if (stale.length * 2 > this.#known.size) {
      this.#index = createIndex()
      this.#known = new Map()
      this.#byId = []
      this.#counts = new Map()
    } else {
      for (const [name, { id, tool }] of stale) {
        const document = toDocument(id, tool)
        // Unlike `discard` this leaves nothing behind, and needs no timer that cleans up.
        this.#index.remove(document)
        this.#count(document, -1)
        this.#byId[id] = undefined
        this.#known.delete(name)
      }
    }
    this.#todo = [...byName.values()].filter(({ name }) => !this.#known.has(name))
    this.#next = 0
  }

  /** Returns whether all is indexed. */
  #build(until: number): boolean {
    while (this.#next < this.#todo.length) {
      for (const tool of this.#todo.slice(this.#next, this.#next + sliceTools)) {
        const id = this.#byId.length
        const document = toDocument(id, tool)
        this.#index.add(document)
        this.#count(document, 1)
        this.#byId.push(tool)
        this.#known.set(tool.name, { id, tool })
      }
      this.#next += sliceTools
      if (performance.now() >= until) return this.#next >= this.#todo.length
    }
    this.#todo = []
    this.#next = 0
    return true
  }

  #count({ name, description, params }: Document, by: 1 | -1): void {
    for (const words of [name, description, params]) {
      for (const word of words.split(' ')) {
        const count = (this.#counts.get(word) ?? 0) + by
        if (count === 0) this.#counts.delete(word)
        else this.#counts.set(word, count)
      }
    }
  }

  /** The words that tell tools apart, rarest first. What most tools have says little, and is what takes the time. */
  #telling(words: readonly string[]): string[] {
    const counted = words.map((word) => ({ word, count: this.#counts.get(word) ?? 0 }))
    let entries = 0
    return counted
      .sort((a, b) => a.count - b.count)
      .filter(({ count }, i) => (entries += count) <= maxEntries || i === 0)
      .map(({ word }) => word)
  }
}

function createIndex(): MiniSearch<Document> {
  return new MiniSearch<Document>(options)
}

const options: Options<Document> = {
  fields: ['name', 'description', 'params'],
  tokenize: (words) => words.split(' '),
  processTerm: (word) => word,
  searchOptions: {
    boost: { name: 4, description: 2, params: 0.5 },
    prefix: (word) => word.length >= 2,
    // Another number is another thing.
    fuzzy: (word) => (word.length >= 4 && !/\d/.test(word) ? 0.2 : false),
    maxFuzzy: 2,
    weights: { prefix: 0.5, fuzzy: 0.3 },
  },
}

function toDocument(id: number, { name, description, input, traits }: SearchedTool): Document {
  const taken = new Set<string>()
  const fresh = (text: string): string => {
    const words: string[] = []
    for (const word of toWords(text)) {
      if (taken.has(word)) continue
      taken.add(word)
      words.push(word)
    }
    return words.join(' ')
  }
  const { category = '', tags = [] } = traits
  return {
    id,
    name: fresh(name),
    description: fresh(`${category} ${tags.join(' ')} ${description.slice(0, maxDescription)}`),
    params: fresh(paramsText(input)),
  }
}

function paramsText({ properties }: JsonSchema): string {
  if (!isObject(properties)) return ''
  const texts: string[] = []
  for (const [name, schema] of Object.entries(properties).slice(0, maxParams)) {
    const description = isObject(schema) ? schema['description'] : undefined
    texts.push(name, typeof description === 'string' ? description.slice(0, maxParamDescription) : '')
  }
  return texts.join(' ')
}

/** The words of a text, each once, but for those that tell nothing. `readFile`, `read_file` and `srv.read-file` are words like those of a sentence. */
function toWords(text: string): string[] {
  const plain = isAscii(text) ? text : text.normalize('NFKD').replace(/\p{M}+/gu, '')
  const found = plain.match(isAscii(plain) ? asciiWords : anyWords) ?? []
  return [...new Set(found.map((word) => word.toLowerCase()))].filter((word) => !stopWords.has(word))
}

const asciiWords = /[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+/g
const anyWords = /\p{Lu}+(?!\p{Ll})|\p{Lu}?\p{Ll}+|[\p{Lo}\p{Lm}\p{Lt}]+|\p{N}+/gu

function isAscii(text: string): boolean {
  // oxlint-disable-next-line no-control-regex -- just these
  return /^[\u0000-\u007F]*$/.test(text)
}

/** Every other description has them, so they tell nothing apart. */
const stopWords = new Set(
  'a an and are as at be by for from if in into is it its of on or that the this to was when which with'.split(' '),
)
