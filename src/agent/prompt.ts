/** Prompts: a text or messages with variables. */
import { ConvokeError } from '../base/errors.ts'
import { isObject, type Json } from '../base/json.ts'
import { excerpt } from '../tools/value.ts'
import { chatRoles, type ChatMessage, type ChatRole } from './chat-model.ts'
import type { Frozen } from './events.ts'

/** What a prompt is made of, as JSON: the one or the other. */
export type PromptTemplate = { readonly text: string } | { readonly messages: readonly ChatMessage[] }

/** Values by the names of the variables, also those that an event had. What is no text is put in as JSON. */
export type PromptVariables = Readonly<Record<string, Json | Frozen<Json>>>

/**
 * A template: `{name}` stands for a value. Names begin with a letter or `_` and go on with letters, digits, `_`, `-` and
 * `.`; `{order.price}` is the value called so, or else the member `price` of `order`. Values are put in literally and in
 * one pass: braces and `$&` in them mean nothing. All else stays as it is: names without a value, other braces, JSON.
 */
export class Prompt {
  static readonly resourceType = 'prompt'
  static readonly module = 'convoke'
  readonly template: PromptTemplate

  /** Throws `invalid_plan` for what is no template. */
  constructor(template: PromptTemplate) {
    this.template = checkTemplate(template)
  }

  static fromText(text: string): Prompt {
    return new Prompt({ text })
  }

  static fromMessages(messages: readonly ChatMessage[]): Prompt {
    return new Prompt({ messages })
  }

  /** What {@link toJSON} gave. Throws `invalid_plan` for anything else. */
  static fromJSON(json: unknown): Prompt {
    return new Prompt(json as PromptTemplate)
  }

  /** The template as one text; of messages `role: content` lines. */
  formatString(variables: PromptVariables = {}): string {
    if ('text' in this.template) return fill(this.template.text, variables)
    return this.template.messages.map(({ role, content }) => `${role}: ${fill(content, variables)}`).join('\n')
  }

  /** A text becomes one message of `role`; messages keep their own. */
  formatMessages(variables: PromptVariables = {}, role: ChatRole = 'system'): ChatMessage[] {
    if ('text' in this.template) return [{ role, content: fill(this.template.text, variables) }]
    return this.template.messages.map((message) => ({ ...message, content: fill(message.content, variables) }))
  }

  toJSON(): PromptTemplate {
    return this.template
  }
}

const variable = /\{([\p{L}_][\p{L}\p{N}_.-]*)\}/gu

function fill(template: string, variables: PromptVariables): string {
  // A function, since replace reads `$&` and the like in a text.
  return template.replace(variable, (asWritten, name: string) => {
    const value = valueOf(name, variables)
    // JSON.stringify gives undefined for what JSON has no word for.
    const text: string | undefined = typeof value === 'string' ? value : JSON.stringify(value)
    return text ?? asWritten
  })
}

function valueOf(name: string, variables: PromptVariables): unknown {
  if (Object.hasOwn(variables, name)) return variables[name]
  let value: unknown = variables
  for (const part of name.split('.')) {
    if (!isObject(value) || !Object.hasOwn(value, part)) return undefined
    value = value[part]
  }
  return value
}

function checkTemplate(template: unknown): PromptTemplate {
  const { text, messages } = isObject(template) ? template : {}
  if (typeof text === 'string' && messages === undefined) return Object.freeze({ text })
  if (!Array.isArray(messages) || text !== undefined)
    throw new ConvokeError(
      'invalid_plan',
      `A prompt is {text} or {messages: [{role, content}]}, got ${excerpt(template)}${describe(text, messages)}.`,
    )
  if (messages.length === 0) throw new ConvokeError('invalid_plan', 'A prompt of messages needs at least one.')
  return Object.freeze({ messages: Object.freeze(messages.map(checkMessage)) })
}

function describe(text: unknown, messages: unknown): string {
  if (text !== undefined && messages !== undefined) return ' with both'
  if (text !== undefined) return `, whose text is ${excerpt(text)}`
  return messages === undefined ? '' : `, whose messages are ${excerpt(messages)}`
}

function checkMessage(message: unknown, index: number): ChatMessage {
  const { role, content } = isObject(message) ? message : {}
  if (!(chatRoles as readonly unknown[]).includes(role))
    throw new ConvokeError(
      'invalid_plan',
      `The role of message ${index} of a prompt must be one of ${chatRoles.join(', ')}, got ${excerpt(role)}.`,
    )
  if (typeof content !== 'string')
    throw new ConvokeError(
      'invalid_plan',
      `The content of message ${index} of a prompt must be a text, got ${excerpt(content)}.`,
    )
  return Object.freeze({ ...(message as ChatMessage) })
}
