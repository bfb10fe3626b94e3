/** Approvals: what a caller is asked before a call that the tool policy wants approved, and what counts as a yes. */
import { createHash } from 'node:crypto'
import { ConvokeError } from '../base/errors.ts'
import { canonicalJson, isObject } from '../base/json.ts'
import { stripControls } from '../base/text.ts'
import type { JsonSchema, Tool } from './tool.ts'
import { excerpt } from './value.ts'

export type ApprovedTool = Pick<Tool, 'name'>

/** Longest arguments that a question shows, in characters. */
const maxShown = 2_000

/** What an approval is for: SHA-256 in hex of the canonical JSON of `{tool, params}`. */
export function argumentsHash(tool: ApprovedTool, params: unknown): string {
  return createHash('sha256')
    .update(canonicalJson({ tool: tool.name, params: params ?? {} }))
    .digest('hex')
}

/** The question that asks for an approval. Its schema lets no other arguments through than these. */
export function approvalQuestion(tool: ApprovedTool, params: unknown): { message: string; schema: JsonSchema } {
  const text = stripControls(JSON.stringify(params ?? {}))
  const rest = text.length - maxShown
  // Whoever approves what is not shown shall know it.
  const shown = rest > 0 ? `${text.slice(0, maxShown)}… (${rest} more characters are not shown)` : text
  return {
    message: `The tool ${excerpt(stripControls(tool.name))} needs an approval to run with these arguments: ${shown}`,
    schema: {
      type: 'object',
      properties: {
        approve: { type: 'boolean' },
        arguments_hash: { const: argumentsHash(tool, params), type: 'string' },
      },
      required: ['approve', 'arguments_hash'],
    },
  }
}

/** Throws `forbidden` unless the answer approves exactly these arguments of this tool. */
export function checkApproval(answer: unknown, tool: ApprovedTool, params: unknown): void {
  const name = excerpt(tool.name)
  const { approve, arguments_hash: hash } = isObject(answer) ? answer : {}
  if (approve === false) throw new ConvokeError('forbidden', `The call of the tool ${name} was not approved.`)
  if (approve !== true || typeof hash !== 'string') {
    const text = `The call of the tool ${name} was not approved: an approval is { approve: true, arguments_hash }.`
    throw new ConvokeError('forbidden', text)
  }
  if (hash === argumentsHash(tool, params)) return
  const text = `The approval is for other arguments, or for another tool than ${name}; it does not count for this call.`
  throw new ConvokeError('forbidden', text)
}
