/** Which names and words are secrets: what is written down is written without them. */

const secretKey =
  /^(proxy-)?authorization$|^(set-)?cookies?$|^credentials?$|^bearer$|pass(word|phrase)$|secrets?$|tokens?$|api[-_]?keys?$|private[-_]?key$/i

/** What stands in place of a secret. */
export const redacted = '[redacted]'

/** Numbers under such a name (`maxTokens: 4096`) count something; they are no secrets. */
export function isSecret(key: string, value: unknown): boolean {
  return (typeof value === 'string' || typeof value === 'object') && value !== null && secretKey.test(key)
}

/** The text without bearer tokens, and without what stands before the host of a URL. */
export function redactText(text: string): string {
  return text
    .replace(/\b(Bearer|Basic)\s+[\w.~+/=-]{8,}/gi, `$1 ${redacted}`)
    .replace(/(:\/\/)[^\s/@]+@/g, `$1${redacted}@`)
}
