/**
 * A function's own words in the file that it comes from: its parameters, and the JSDoc before it. A function knows its
 * text, to the letter (ECMAScript, Function.prototype.toString), so nothing of the file needs to be parsed to find it.
 */
import { clip } from './value.ts'

/** A parameter as it is declared. */
export interface Parameter {
  /** Undefined where it is taken apart, `{ a, b }`. */
  readonly name: string | undefined
  readonly hasDefault: boolean
}

export interface DocComment {
  /** With its slashes and stars. */
  readonly text: string
  /** Where it begins, counted from 1. */
  readonly line: number
}

/** Thrown for what is not understood; the message is a sentence without its full stop. */
export class SourceProblem extends Error {}

/** Whether a function is a class, which needs `new`. */
export function isClass(value: unknown): value is new (...args: unknown[]) => object {
  return typeof value === 'function' && /^class\b/.test(Function.prototype.toString.call(value))
}

/** What may stand between the beginning of a declaration and the function's own text. */
const declaration = /(?:^|\n|\*\/)[^\S\n]*(?:export\s+(default\s+)?)?(?:(?:const|let|var)\s+([\w$]+)\s*=\s*)?$/
/** A declaration's beginning is not longer than this. */
const maxDeclaration = 500

/**
 * The JSDoc right before the function, which is declared on a line of its own: `export function …`, `const name = …`. Line
 * comments may stand between them. Throws {@link SourceProblem} where the text has no such function or has it twice, and
 * where there is no JSDoc.
 */
export function docCommentOf(run: { readonly name: string }, source: string): DocComment {
  const text = Function.prototype.toString.call(run)
  const begins: number[] = []
  for (let at = source.indexOf(text); at !== -1; at = source.indexOf(text, at + 1)) {
    const from = Math.max(0, at - maxDeclaration)
    const before = declaration.exec(source.slice(from, at))
    if (before === null) continue
    const [head, isDefault, name] = before
    // Short arrow functions are often alike; a declaration gives its function its name.
    const isIts =
      name === undefined ? isDefault !== undefined || /^(?:async\s+)?function\b/.test(text) : name === run.name
    if (isIts) begins.push(from + before.index + (head.startsWith('*/') ? 2 : 0))
  }
  const [begin, second] = begins
  if (begin === undefined)
    throw new SourceProblem(
      'is not declared in that file as `export function` or `export const`, where its JSDoc could be read',
    )
  if (second !== undefined) throw new SourceProblem('stands twice in its file, so its JSDoc cannot be told')
  const head = withoutLineComments(source.slice(0, begin).trimEnd())
  const found = head.endsWith('*/') ? lastOpening(head) : undefined
  if (found === undefined) throw new SourceProblem('has no JSDoc right before it')
  return { text: head.slice(found), line: head.slice(0, found).split('\n').length }
}

function withoutLineComments(head: string): string {
  const lineStart = head.lastIndexOf('\n') + 1
  if (!/^\s*\/\//.test(head.slice(lineStart))) return head
  return withoutLineComments(head.slice(0, lineStart).trimEnd())
}

/** Where the last comment begins, on a line of its own; undefined where that is none of JSDoc's. */
function lastOpening(head: string): number | undefined {
  const from = head.lastIndexOf('*/', head.length - 3) + 1
  const opening = /^[^\S\n]*\/\*\*(?!\/)/gm
  opening.lastIndex = from === 0 ? 0 : from + 1
  const found = opening.exec(head)
  return found === null ? undefined : found.index + found[0].length - 3
}

/** The parameters in order. Throws {@link SourceProblem} for rest parameters and for those that take a list apart. */
export function parametersOf(run: object): Parameter[] {
  const text = Function.prototype.toString.call(run)
  const start = /^(?:async\b\s*)?(?:function\s*\*?\s*[\w$]*\s*)?(?:(\()|([A-Za-z_$][\w$]*)\s*=>)/.exec(text)
  if (start === null)
    throw new SourceProblem(`has a head that is not understood: ${clip(text.split('\n')[0] ?? '', 60)}`)
  if (start[2] !== undefined) return [{ name: start[2], hasDefault: false }]
  return split(text, start[0].length).map(toParameter)
}

function toParameter(text: string): Parameter {
  if (text.startsWith('{')) return { name: undefined, hasDefault: /\}\s*=/.test(text) }
  const named = /^([A-Za-z_$][\w$]*)\s*(=|$)/.exec(text)
  if (named === null) throw new SourceProblem(`has a parameter that cannot be passed by its name: ${clip(text, 60)}`)
  return { name: named[1], hasDefault: named[2] === '=' }
}

/** What of a parameter list is one token to us: comments, texts, brackets, commas. */
const listToken = /\/\*[\s\S]*?\*\/|\/\/[^\n]*|"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|`(?:[^`\\]|\\[\s\S])*`|[\s\S]/g

/** The parameters' texts without comments, from behind the opening parenthesis up to the one that closes it. */
function split(text: string, from: number): string[] {
  const parts: string[] = []
  let part = ''
  let depth = 0
  for (const [token] of text.slice(from).matchAll(listToken)) {
    if (token.startsWith('//') || token.startsWith('/*')) continue
    if (depth === 0 && (token === ')' || token === ',')) {
      if (part.trim() !== '') parts.push(part.trim())
      part = ''
      if (token === ')') return parts
      continue
    }
    if ('([{'.includes(token)) depth++
    else if (')]}'.includes(token)) depth--
    part += token
  }
  throw new SourceProblem('has parameters that are not understood')
}
