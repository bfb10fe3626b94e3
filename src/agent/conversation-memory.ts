/** What was said before, kept for a key between runs: whole turns, the oldest go first. */
import { ConvokeError } from '../base/errors.ts'
import { isObject, type Json } from '../base/json.ts'
import { cutText } from '../tools/truncate.ts'
import { excerpt } from '../tools/value.ts'
import type { ChatMessage } from './chat-model.ts'
import type { Memory } from './memory.ts'
import { checkCount } from './model-limits.ts'

export interface ConversationOptions {
  /** Most messages that are kept. Default: 100. */
  readonly maxMessages?: number
  /** Most characters of all of them together, what calls are made with and what the endpoint wants back included; memory holds 1 MiB in any case. Default: 200,000. */
  readonly maxChars?: number
}

/** A user's message and all that came of it, the answer last. */
type Turn = readonly ChatMessage[]

type Limits = Required<ConversationOptions>

/** Where it stands in the key's memory. */
const place = 'conversation'
/** What of a tool's answer is kept for later turns, in characters: the model has drawn from it what it wanted. */
const maxToolAnswer = 2_000

/** `true` is with the defaults. Throws `config` for limits that make no sense. */
export function readConversation(given: ConversationOptions | true | false | undefined): Limits | undefined {
  if (given === undefined || given === false) return undefined
  if (given !== true && (typeof given !== 'object' || given === null))
    throw new ConvokeError(
      'config',
      `\`conversation\` must be true or { maxMessages, maxChars }, got ${excerpt(given)}.`,
    )
  const { maxMessages = 100, maxChars = 200_000 } = given === true ? {} : given
  checkCount('conversation.maxMessages', maxMessages, 1)
  checkCount('conversation.maxChars', maxChars, 1)
  return { maxMessages, maxChars }
}

/** What was said before, oldest first. */
export function recall(memory: Memory, limits: Limits): ChatMessage[] {
  return fit(turnsOf(memory), limits).flat()
}

/** Adds a turn; what is too much goes. */
export function remember(memory: Memory, turn: Turn, limits: Limits): void {
  let turns = fit([...turnsOf(memory), shortened(turn)], limits)
  for (;;) {
    try {
      return memory.set(place, { turns } as unknown as Json)
    } catch (error) {
      // Memory has a limit of its own, in bytes, and others of the key have their share of it.
      if (!(error instanceof ConvokeError) || error.code !== 'too_large' || turns.length === 0) throw error
      turns = turns.slice(1)
    }
  }
}

function turnsOf(memory: Memory): Turn[] {
  const kept = memory.get(place)
  const turns = isObject(kept) ? kept['turns'] : undefined
  // Whatever else an agent keeps under the name is no conversation.
  return Array.isArray(turns) ? (turns as unknown as Turn[]).filter(Array.isArray) : []
}

/** The last turns that there is room for. A call and its answers stay together, since they are of one turn. */
function fit(turns: readonly Turn[], limits: Limits): Turn[] {
  const kept: Turn[] = []
  let messages = 0
  let chars = 0
  for (const turn of turns.toReversed()) {
    // Of a last turn that is too large what was asked and answered is better than nothing.
    const wanted = kept.length > 0 || fits(turn, limits) ? turn : ends(turn)
    messages += wanted.length
    chars += sizeOf(wanted)
    if (messages > limits.maxMessages || chars > limits.maxChars) break
    kept.push(wanted)
  }
  return kept.reverse()
}

function fits(turn: Turn, { maxMessages, maxChars }: Limits): boolean {
  return turn.length <= maxMessages && sizeOf(turn) <= maxChars
}

function sizeOf(turn: Turn): number {
  return turn.reduce((sum, { content, toolCalls, extra }) => {
    return sum + content.length + lengthOf(toolCalls) + lengthOf(extra)
  }, 0)
}

function lengthOf(value: object | undefined): number {
  return value === undefined ? 0 : JSON.stringify(value).length
}

function ends(turn: Turn): Turn {
  const [first] = turn
  const last = turn.at(-1)
  return first === undefined || last === undefined || last === first ? turn : [first, last]
}

function shortened(turn: Turn): Turn {
  return turn.map((message) =>
    message.role === 'tool' ? { ...message, content: cutText(message.content, maxToolAnswer) } : message,
  )
}
