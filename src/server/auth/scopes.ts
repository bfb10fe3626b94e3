/** What a caller may do. */
import type { Caller } from '../../tools/tool.ts'

/** `message` is sending a message that names no tool; `tool:NAME` is calling that tool. */
export type Scope = 'message' | `tool:${string}`

/**
 * Whether one of the caller's scopes covers `scope`. `*` covers everything, `message` itself, and
 * `tool:GLOB` the tools whose name fits, where `*` stands for any run of characters.
 */
export function allows(caller: Caller, scope: Scope): boolean {
  return caller.scopes.some((granted) => {
    if (granted === '*' || granted === scope) return true
    return granted.startsWith('tool:') && scope.startsWith('tool:') && fits(scope, granted)
  })
}

/** Whether a scope that somebody is granted means anything here; others are allowed in JWTs and grant nothing. */
export function isGrant(text: string): boolean {
  return /^(\*|message|tool:[A-Za-z0-9_*-]+)$/.test(text)
}

/** A glob in linear time: each piece between stars is looked for once, left to right. No regex, so nothing to blow up. */
function fits(name: string, glob: string): boolean {
  const [head = '', ...rest] = glob.split('*')
  const tail = rest.pop()
  if (tail === undefined) return name === glob
  if (name.length < head.length + tail.length || !name.startsWith(head) || !name.endsWith(tail)) return false
  let from = head.length
  for (const piece of rest) {
    const at = name.indexOf(piece, from)
    if (at === -1) return false
    from = at + piece.length
  }
  return from <= name.length - tail.length
}
