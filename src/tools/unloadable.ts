/** Why a module of somebody's cannot be loaded, and what to do about it where Node's own words do not say so. */
import { existsSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import { clip, excerpt } from './value.ts'

const maxReason = 500

/** A sentence that stands behind a colon. `error` is what `import(url)` threw; `url` is that of a file. */
export function whyUnloadable(error: unknown, url: string): string {
  const file = fileURLToPath(url)
  // Node names the file of ours that imports it.
  if (!existsSync(file)) return 'there is no such file.'
  if (!(error instanceof Error)) return excerpt(error)
  const { name, message, stack = '' } = error
  const isPlain = name === 'Error' || name === 'ConvokeError'
  const reason = clip(isPlain ? message : `${name}: ${message}`, maxReason)
  const hint = hintFor(error, file, stack)
  if (hint !== undefined) return `${reason.replace(/\.$/, '')}. ${hint}`
  return /[.!?]$/.test(reason) ? reason : `${reason}.`
}

function hintFor(error: Error, file: string, stack: string): string | undefined {
  const isTypeScript = 'code' in error && /^ERR_(UNKNOWN_FILE|UNSUPPORTED)/.test(String(error.code))
  if (isTypeScript && /\.[cm]?tsx?$/.test(file)) return 'Compile it to JavaScript first, and name the .js file.'
  if (!(error instanceof SyntaxError)) return undefined
  // Above the message stands which file it is: the module, or one that it imports.
  const [, place] = /^(\S.*\.c?js):\d+\n/.exec(stack) ?? []
  if (place !== undefined && /import statement outside|Unexpected token 'export'|top level bodies/.test(error.message))
    return `Node takes ${place} for CommonJS: name it .mjs, or have "type": "module" in its package.json.`
  // Node does not say where a module cannot be parsed. Missing exports and bad JSON are SyntaxErrors too, and say it.
  return /does not provide an export|JSON/.test(stack) ? undefined : `To see where, try node --check ${file}`
}
