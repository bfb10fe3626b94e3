/** Approvals: what a caller is asked before a call that the tool policy wants approved, and what counts as a yes. */
import { createHash } from 'node:crypto'
import { ConvokeError } from '../base/errors.ts'
import { canonicalJson, isObject, type Json } from '../base/json.ts'
import { stripControls } from '../base/text.ts'
import type { JsonSchema, Question, Tool } from './tool.ts'
import { excerpt } from './value.ts'

export type ApprovedTool = Pick<Tool, 'name'>

/** Longest arguments that a question shows, in characters. */
const maxShown = 2_000
/** How many digits of the hash a person has to write. */
const shortHash = 8

/** What an approval is for: SHA-256 in hex of the canonical JSON of `{tool, params}`. */
export function argumentsHash(tool: ApprovedTool, params: unknown): string {
  return createHash('sha256')
    .update(canonicalJson({ tool: tool.name, params: params ?? {} }))
    .digest('hex')
}

/**
 * The question that asks for an approval, by `approve` and the first digits of the hash, or as data. Its schema lets an
 * approval of no other arguments through; a refusal needs no hash. `reason` is a sentence that tells why it is asked.
 */
export function approvalQuestion(
  tool: ApprovedTool,
  params: unknown,
  reason?: string,
): { message: string; schema: JsonSchema; read: (reply: string) => Json | undefined } {
  const text = stripControls(JSON.stringify(params ?? {}))
  const rest = text.length - maxShown
  // Whoever approves what is not shown shall know it.
  const shown = rest > 0 ? `${text.slice(0, maxShown)}… (${rest} more characters are not shown)` : text
  const hash = argumentsHash(tool, params)
  const sentences = [
    `The tool ${excerpt(stripControls(tool.name))} needs an approval to run with these arguments: ${shown}.`,
    ...(reason === undefined ? [] : [`Reason: ${/[.!?]$/.test(reason) ? reason : `${reason}.`}`]),
    // As `withoutReplies` looks for it.
    `Reply "approve ${hash.slice(0, shortHash)}" or "deny".`,
  ]
  return {
    message: sentences.join(' '),
    schema: {
      type: 'object',
      properties: { approve: { type: 'boolean' }, arguments_hash: { const: hash, type: 'string' } },
      required: ['approve'],
      if: { properties: { approve: { const: true } } },
      // oxlint-disable-next-line unicorn/no-thenable -- the keyword of JSON Schema
      then: { required: ['arguments_hash'] },
    },
    read: (reply) => readApproval(reply, hash),
  }
}

/** What a text reply to the question of an approval means; undefined where it is neither a yes to this hash nor a no. */
function readApproval(reply: string, hash: string): Json | undefined {
  if (/^(?:no|deny|decline)$/i.test(reply)) return { approve: false }
  const digits = /^(?:approve|yes)\s+([0-9a-f]{8,64})$/i.exec(reply)?.[1]?.toLowerCase()
  return digits !== undefined && hash.startsWith(digits) ? { approve: true, arguments_hash: hash } : undefined
}

/**
 * How the replies to a question are read that another node asks: undefined unless its schema is that of an approval.
 * The other node has the last word.
 */
export function approvalReader(schema: JsonSchema): Question['read'] {
  const hash = hashOf(schema)
  return hash === undefined ? undefined : (reply) => readApproval(reply, hash)
}

/** The text that approves what such a question is about; undefined for a question of another kind. */
export function approvingReply(schema: JsonSchema): string | undefined {
  const hash = hashOf(schema)
  return hash === undefined ? undefined : `approve ${hash.slice(0, shortHash)}`
}

/** Such a question's words without how to reply, for those who are told a shorter way. */
export function withoutReplies(message: string): string {
  return message.replace(/ Reply "approve [0-9a-f]+" or "deny"\.$/, '')
}

/** What the schema of an approval says that the arguments' hash must be; undefined for any other schema. */
function hashOf({ properties }: JsonSchema): string | undefined {
  if (!isObject(properties)) return undefined
  const { approve, arguments_hash: hashed, ...others } = properties
  if (Object.keys(others).length > 0 || !isObject(approve) || approve['type'] !== 'boolean') return undefined
  const hash = isObject(hashed) ? hashed['const'] : undefined
  return typeof hash === 'string' && /^[0-9a-f]{64}$/.test(hash) ? hash : undefined
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
