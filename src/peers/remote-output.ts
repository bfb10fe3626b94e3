/** What a task at a peer has said, and the value that it comes to. */
import { ConvokeError } from '../base/errors.ts'
import type { Json } from '../base/json.ts'
import type { Artifact, Message, TaskStatus } from '../protocol/a2a.ts'
import type { ToolValue } from '../tools/tool.ts'

/** How much output of a peer without the extension is kept until its end, in characters. */
const maxGathered = 16 * 1024 * 1024
/** What a part or an artifact counts beside its characters: an endless row of empty ones takes memory, too. */
const ownSize = 32

/** Puts artifacts and the closing words of a task into one value. */
export type Convert = (artifacts: readonly Artifact[], closing: Message | undefined) => ToolValue

/** What a task has said so far. */
export class Output {
  status: TaskStatus | undefined
  isMessage = false
  result: { readonly value: ToolValue } | undefined
  /** How many chunks of the present attempt have come. */
  chunks = 0
  attempt = 1
  /** The number that the peer gives its attempt. */
  peerAttempt = 1
  readonly #convert: Convert
  readonly #gathered = new Map<string, { readonly artifact: Artifact; readonly size: number }>()
  #size = 0

  constructor(toValue: Convert) {
    this.#convert = toValue
  }

  restart(): void {
    if (this.chunks > 0 || this.#gathered.size > 0) this.attempt++
    this.chunks = 0
    this.result = undefined
    this.#gathered.clear()
    this.#size = 0
  }

  /** Keeps an artifact of a peer that does not say which one is the result. */
  gather(artifact: Artifact, append: boolean): void {
    const known = this.#gathered.get(artifact.artifactId)
    const before = append ? known : undefined
    const size = (before?.size ?? 0) + sizeOf(artifact)
    this.#size += size - (known?.size ?? 0)
    if (this.#size > maxGathered) {
      throw new ConvokeError('too_large', `The peer's answer is larger than ${maxGathered} characters.`)
    }
    const { artifactId } = artifact
    const kept = before?.artifact ?? { artifactId, parts: [] }
    // Appended in place: what comes in many pieces would be copied as often.
    for (const part of artifact.parts) kept.parts.push(part)
    this.#gathered.set(artifactId, { artifact: kept, size })
  }

  /** The result; of a peer without the extension what its artifacts and closing words come to. */
  value(closing: Message | undefined): ToolValue {
    if (this.result !== undefined) return this.result.value
    return this.#convert(
      [...this.#gathered.values()].map(({ artifact }) => artifact),
      closing,
    )
  }
}

function sizeOf({ artifactId, parts }: Artifact): number {
  return parts.reduce((sum, { text = '', ...others }) => {
    const size = Object.keys(others).length === 0 ? 0 : JSON.stringify(others).length
    return sum + ownSize + text.length + size
  }, ownSize + artifactId.length)
}

/** The result in the artifacts of any agent: a data part, then text that is JSON, then text, then its closing words. */
export function convert(artifacts: readonly Artifact[], closing: Message | undefined): ToolValue {
  const parts = artifacts.flatMap((artifact) => artifact.parts)
  const data = parts.find((part) => part.data !== undefined)?.data
  if (data !== undefined) return data
  const texts = textsOf(artifacts)
  for (const text of texts) {
    const said = fromText(text)
    if (said !== text) return said
  }
  if (parts.some(({ text }) => text !== undefined)) return texts.join('')
  const raw = parts.find((part) => part.raw !== undefined)?.raw
  if (raw !== undefined) return new Uint8Array(Buffer.from(raw, 'base64'))
  const url = parts.find((part) => part.url !== undefined)?.url
  if (url !== undefined) return url
  if (closing === undefined) return null
  const said = closing.parts.find((part) => part.data !== undefined)?.data
  return said === undefined ? fromText(textOf(closing)) : said
}

/** The text of each artifact: what was appended to one goes on with it. */
export function textsOf(artifacts: readonly Artifact[]): string[] {
  return artifacts.map(({ parts }) => parts.map(({ text = '' }) => text).join(''))
}

/** An object or a list in words is taken for what it says; a number or a word stays text. */
function fromText(text: string): Json {
  if (!/^\s*[[{]/.test(text)) return text
  try {
    return JSON.parse(text) as Json
  } catch {
    // It only looks like JSON.
    return text
  }
}

export function textOf(message: Message | undefined): string {
  return (message?.parts ?? []).flatMap(({ text }) => (text === undefined ? [] : [text])).join('\n')
}
