/**
 * Patterns out of schemas that strangers wrote. A regular expression of JavaScript can take time without end for a text
 * that its author chose; RE2 takes time in proportion to the text, whatever the pattern.
 */
import { RE2JS } from 're2js'

interface Pattern {
  test(text: string): boolean
}

/** What RE2 cannot do (looking ahead, references back) is not checked here: the stranger's own side knows what it wants. */
const anything: Pattern = { test: () => true }

export function toSafePattern(pattern: string): Pattern {
  try {
    const compiled = RE2JS.compile(pattern)
    return { test: (text) => compiled.test(text) }
  } catch {
    return anything
  }
}
