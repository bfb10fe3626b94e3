/** Globs over paths of files. */
import { ConvokeError } from '../../base/errors.ts'
import { compilePattern, type Pattern } from '../safe-pattern.ts'
import { excerpt } from '../value.ts'

const maxSize = 2000

/**
 * `*` and `?` stand for characters of one name, `**` for any number of folders, `[abc]` for one of these characters,
 * `{a,b}` for one of these words; a backslash takes the next character as it is. Without a slash it is about the name of a
 * file alone, in whatever folder. Throws `invalid_params` for what is none.
 */
export function toFileGlob(glob: string): { fits(path: string): boolean } {
  const pattern = compile(glob)
  const isOfPath = glob.includes('/')
  return { fits: (path) => pattern.test(isOfPath ? path : path.slice(path.lastIndexOf('/') + 1)) }
}

function compile(glob: string): Pattern {
  try {
    return compilePattern(`(?s)^(?:${toPattern(glob.replace(/^\.?\//, ''))})$`, { maxSize })
  } catch (cause) {
    const why = 'write for example *.ts, src/**/*.{js,ts}'
    throw new ConvokeError('invalid_params', `\`name\` is no glob, got ${excerpt(glob)}; ${why}.`, { cause })
  }
}

const tokens = /\*\*\/|\*\*|\*|\?|\\.|\[[!^]?\]?[^\]]*\]|[{},]|[^]/gu

function toPattern(glob: string): string {
  let depth = 0
  const pattern = (glob.match(tokens) ?? []).map((token) => {
    switch (token) {
      case '**/':
        return '(?:.*/)?'
      case '**':
        return '.*'
      case '*':
        return '[^/]*'
      case '?':
        return '[^/]'
      case '{':
        depth++
        return '(?:'
      case '}':
        return depth > 0 && depth-- > 0 ? ')' : '\\}'
      case ',':
        return depth > 0 ? '|' : ','
      default:
        return token.startsWith('[') && token.length > 2 ? toClass(token) : escape(token.replace(/^\\(?=.)/u, ''))
    }
  })
  return pattern.join('')
}

function toClass(token: string): string {
  const isNot = /^\[[!^]/.test(token)
  const members = token.slice(isNot ? 2 : 1, -1).replace(/[\\\][^]/g, '\\$&')
  return `[${isNot ? '^/' : ''}${members}]`
}

function escape(token: string): string {
  return token.replace(/[\\^$.*+?()[\]{}|]/g, '\\$&')
}
