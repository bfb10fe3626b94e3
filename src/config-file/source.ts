/** A configuration file as it was written: its values, and where each of them stands. */
import { isAlias, isMap, isScalar, isSeq, LineCounter, parseDocument, visit } from 'yaml'
import type { Document, Node, Pair, YAMLError } from 'yaml'
import { ConvokeError, type Issue } from '../base/errors.ts'
import { rewriteOlderShapes } from '../older-config/shapes.ts'
import { toPointer } from '../tools/value.ts'
import type { Path } from './path.ts'
import { masked, showPath } from './privacy.ts'

/** A parsed file that knows where each value stands, and gathers what is wrong with it. */
export class Source {
  readonly problems: { offset: number; path: string; sentence: string }[] = []
  readonly warnings: string[] = []
  /** What stands in the file where a text holds variables, by JSON pointers; whoever puts them in says so here. */
  readonly variables = new Map<string, string>()
  readonly value: unknown
  readonly #file: string
  readonly #lines = new LineCounter()
  #document: Document

  /** Throws when the text is so broken that its values would mean nothing. */
  constructor(file: string, text: string) {
    this.#file = file
    this.#document = parseDocument(text, {
      lineCounter: this.#lines,
      prettyErrors: false,
      stringKeys: true,
      logLevel: 'error',
    })
    if (this.#document.contents === null && this.#document.errors.length === 0) {
      this.#addAt(0, [], 'The file is empty. It must at least say who the node is: agent: { id: NAME }.')
    }
    const reportedLines = new Set<number>()
    for (const error of [...this.#document.errors, ...this.#document.warnings]) {
      // One mistake makes the parser stumble several times in a line.
      const { line } = this.#lines.linePos(error.pos[0])
      if (reportedLines.has(line)) continue
      reportedLines.add(line)
      this.#addAt(error.pos[0], [], this.#syntaxSentence(error, lineAt(text, error.pos[0])))
    }
    visit(this.#document, {
      Alias: (_key, node) => {
        if (node.resolve(this.#document) === undefined) {
          this.#addAt(node.range?.[0] ?? 0, [], 'Nothing in the file defines this alias.')
        }
      },
    })
    if (this.problems.some((problem) => !problem.sentence.endsWith(keepOne))) this.throwProblems()
    const value = this.#toValue()
    this.value = this.#takeOlderShapes() ? this.#toValue() : value
  }

  /** What is wrong at a place: `words` go behind its name, or another one. Said once. */
  add(path: Path, words: string, { at = 'value', name = path }: { at?: 'key' | 'value'; name?: Path } = {}): void {
    const sentence = `${showPath(name)} ${words}`
    const { key, value } = this.#find(path)
    // An empty value has no place of its own.
    const node = at === 'value' && value !== undefined && !isEmpty(value) ? value : (key ?? value)
    const offset = node?.range?.[0] ?? 0
    if (this.problems.some((problem) => problem.offset === offset && problem.sentence === sentence)) return
    this.#addAt(offset, path, sentence)
  }

  /** What looks like a mistake there; as {@link add}. */
  warn(path: Path, words: string, { name = path }: { name?: Path } = {}): void {
    this.warnings.push(`${this.#place(this.#find(path).value?.range?.[0] ?? 0)}: ${showPath(name)} ${words}`)
  }

  /** A scalar as it stands in the file: `1.0` where the value is 1. */
  text(path: Path): string | undefined {
    const { value } = this.#find(path)
    return isScalar(value) ? value.source : undefined
  }

  throwProblems(): void {
    if (this.problems.length === 0) return
    const sorted = this.problems.toSorted((a, b) => a.offset - b.offset)
    const issues: Issue[] = sorted.map(({ offset, path, sentence }) => ({
      path,
      message: `${this.#place(offset)}: ${sentence}`,
    }))
    throw new ConvokeError('config', issues.map((issue) => issue.message).join('\n'), { issues })
  }

  #addAt(offset: number, path: Path, sentence: string): void {
    this.problems.push({ offset, path: toPointer(masked(path)), sentence })
  }

  #place(offset: number): string {
    const { line, col } = this.#lines.linePos(offset)
    return `${this.#file}:${Math.max(line, 1)}:${Math.max(col, 1)}`
  }

  /** Puts older shapes into today's, with a warning each. Returns whether there were any. */
  #takeOlderShapes(): boolean {
    const copy = this.#document.clone()
    const changed = rewriteOlderShapes(copy, {
      warn: (offset, sentence) => void this.warnings.push(`${this.#place(offset)}: ${sentence}`),
      add: (offset, sentence) => this.#addAt(offset, [], sentence),
    })
    if (changed) this.#document = copy
    return changed
  }

  #toValue(): unknown {
    try {
      const value: unknown = this.#document.toJS()
      // An alias inside of its own anchor makes a value without end.
      JSON.stringify(value)
      return value
    } catch (cause) {
      throw new ConvokeError('config', `${this.#file}: The aliases of the file refer to themselves, or blow up.`, {
        cause,
      })
    }
  }

  #find(path: Path): { key?: Node; value?: Node } {
    let found: { key?: Node; value?: Node } = this.#document.contents === null ? {} : { value: this.#document.contents }
    for (const segment of path) {
      const parent = isAlias(found.value) ? found.value.resolve(this.#document) : found.value
      if (isMap<Node, Node | null>(parent)) {
        const pair = parent.items.find(({ key }) => isScalar(key) && String(key.value) === segment)
        if (pair === undefined) return {}
        found = { key: pair.key, ...(pair.value === null ? {} : { value: pair.value }) }
      } else if (isSeq<Node>(parent)) {
        const item = parent.items[Number(segment)]
        if (item === undefined) return {}
        found = { value: item }
      } else {
        return {}
      }
    }
    return found
  }

  /** The parser's own messages may quote the text, where secrets may be: only the words up to the quotation are used. */
  #syntaxSentence(error: YAMLError, line: string): string {
    if (error.code === 'TAB_AS_INDENT') return 'YAML is indented with spaces, and here is a tab.'
    if (error.code === 'MULTIPLE_DOCS') return 'A second document begins here; the file must hold one.'
    if (error.code === 'DUPLICATE_KEY')
      return `The key ${showPath(this.#pathOfKey(error.pos[0]))} is there twice; ${keepOne}`
    const words = error.message.split(/[:"\\]/, 1)[0]?.trim() ?? ''
    const hint = line.includes('${env:')
      ? ' Inside of { } and [ ], put quotes round a text with a variable: "${env:NAME}".'
      : error.code === 'BLOCK_AS_IMPLICIT_KEY' || error.code === 'BLOCK_IN_FLOW'
        ? ' A text with a colon may need quotes, such as ":memory:".'
        : error.code === 'BAD_SCALAR_START'
          ? ' Put the text in quotes.'
          : ''
    return `This is not valid ${this.#file.endsWith('.json') ? 'JSON' : 'YAML'}: ${words}.${hint}`
  }

  #pathOfKey(offset: number): Path {
    let found: Path = []
    visit(this.#document, {
      Pair: (_key, pair, ancestors) => {
        if (keyOffset(pair) !== offset) return undefined
        found = [...ancestors, pair].flatMap((node, index, all) => {
          if (!('key' in node)) return []
          const parent = all[index - 1]
          const grandparent = all[index - 2]
          const item = isSeq(grandparent) && isMap(parent) ? [String(grandparent.items.indexOf(parent))] : []
          return [...item, isScalar(node.key) ? String(node.key.value) : '']
        })
        return visit.BREAK
      },
    })
    return found
  }
}

/** Repeated keys are the one syntax error behind which the other values still mean something. */
const keepOne = 'keep one.'

function keyOffset(pair: Pair<unknown, unknown>): number | undefined {
  return isScalar(pair.key) ? pair.key.range?.[0] : undefined
}

function isEmpty(node: Node): boolean {
  return isScalar(node) && node.value === null
}

function lineAt(text: string, offset: number): string {
  const end = text.indexOf('\n', offset)
  return text.slice(text.lastIndexOf('\n', offset - 1) + 1, end === -1 ? undefined : end)
}
