/** Secrets are taken out of what a server says before anybody else reads it. */

/** A shorter one is found in any text. */
const shortest = 6
/** What stands in `env` and is no secret: switches, numbers, names of levels. */
const plain = /^(true|false|null|none|\d+|production|development|debug|warning|silent|verbose)$/i

/** A function that takes these secrets out of a text, in all spellings that texts have for them. */
export function createRedactor(secrets: readonly string[]): (text: string) => string {
  const spellings = secrets
    .filter((secret) => secret.length >= shortest && !plain.test(secret))
    .flatMap((secret) => [secret, encodeURIComponent(secret), JSON.stringify(secret).slice(1, -1)])
  // The longest first: one may be part of another.
  const sorted = [...new Set(spellings)].toSorted((a, b) => b.length - a.length)
  return (text) => sorted.reduce((safe, secret) => safe.replaceAll(secret, '[redacted]'), text)
}
