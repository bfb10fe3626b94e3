/**
 * Patterns that strangers wrote. A regular expression of JavaScript can take time without end for a text that its author
 * chose; RE2 takes time in proportion to the text, whatever the pattern.
 */
import { RE2JS } from 're2js'

export interface Pattern {
  test(text: string): boolean
}

/** What RE2 cannot do (looking ahead, references back) is not checked here: the stranger's own side knows what it wants. */
const anything: Pattern = { test: () => true }

export function toSafePattern(pattern: string): Pattern {
  try {
    return compilePattern(pattern)
  } catch {
    return anything
  }
}

export interface PatternOptions {
  readonly ignoreCase?: boolean
  /**
   * How large the pattern may become. `x{1000}` counts as a thousand characters, and a character of the text may take
   * time in proportion to that. Default: as large as it is.
   */
  readonly maxSize?: number
}

/** Throws an Error that says what is wrong with a pattern that RE2 does not take. */
export function compilePattern(
  pattern: string,
  { ignoreCase = false, maxSize = Infinity }: PatternOptions = {},
): Pattern {
  const compiled = RE2JS.compile(pattern, ignoreCase ? RE2JS.CASE_INSENSITIVE : 0)
  if (compiled.programSize() > maxSize) throw new Error('it repeats too much')
  return { test: (text) => compiled.test(text) }
}
