/** What a caller may do. */
import { fitsGlob } from '../base/glob.ts'
import type { Caller } from './tool.ts'

/** `message` is sending a message that names no tool; `tool:NAME` is calling that tool. */
export type Scope = 'message' | `tool:${string}`

/**
 * Whether one of the caller's scopes covers `scope`. `*` covers everything, `message` itself, and
 * `tool:GLOB` the tools whose name fits, where `*` stands for any run of characters.
 */
export function allows(caller: Caller, scope: Scope): boolean {
  return caller.scopes.some((granted) => {
    if (granted === '*' || granted === scope) return true
    return granted.startsWith('tool:') && scope.startsWith('tool:') && fitsGlob(scope, granted)
  })
}

/** Whether a scope that somebody is granted means anything here; others are allowed in JWTs and grant nothing. */
export function isGrant(text: string): boolean {
  return /^(\*|message|tool:[A-Za-z0-9_.*-]+)$/.test(text)
}
