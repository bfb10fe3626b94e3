/** The events of a stream as text: what is new of each, and the pieces of a text as one block. */
import type { Artifact, Part, StreamResponse } from '../../protocol/a2a.ts'
import { keys } from '../../protocol/extension.ts'
import { fromLogMetadata, fromProgressMetadata } from '../../protocol/tool-call.ts'
import { PrintablePieces } from '../chat/printable.ts'
import { eventText, field, partsText, toolOf, type TextOptions } from './text.ts'

type StatusUpdate = NonNullable<StreamResponse['statusUpdate']>
type ArtifactUpdate = NonNullable<StreamResponse['artifactUpdate']>

export class StreamText {
  readonly #options: TextOptions
  #isToolCall = false
  /** The last state that was shown, with its task. */
  #state = ''
  /** Artifacts of which something was shown. */
  readonly #shown = new Set<string>()
  /** The artifact whose text goes on, if the last thing shown was one. */
  #open: string | undefined
  #pieces = new PrintablePieces()
  /** A line break that counts only when something follows it. */
  #break = ''

  constructor(options: TextOptions) {
    this.#options = options
  }

  take(event: StreamResponse): string {
    const { task, statusUpdate, artifactUpdate } = event
    if (artifactUpdate !== undefined) return this.#artifact(artifactUpdate)
    const before = this.end()
    if (statusUpdate !== undefined) return before + this.#status(statusUpdate)
    if (task !== undefined) {
      this.#isToolCall ||= toolOf(task) !== undefined
      this.#state = `${task.id} ${task.status.state}`
      for (const { artifactId } of task.artifacts ?? []) this.#shown.add(artifactId)
    }
    return before + this.#text(event)
  }

  /** What is left to write of a text that was going on. */
  end(): string {
    if (this.#open === undefined) return ''
    this.#open = undefined
    this.#break = ''
    return `${indented(this.#pieces.end())}\n\n`
  }

  #text(event: StreamResponse): string {
    return eventText(event, { ...this.#options, isToolCall: this.#isToolCall })
  }

  #status(update: StatusUpdate): string {
    const { taskId, status, metadata } = update
    const { verbose } = this.#options
    const isSame = this.#state === `${taskId} ${status.state}`
    this.#state = `${taskId} ${status.state}`
    const isAnew = metadata?.[keys.attempt] !== undefined && this.#shown.size > 0
    if (isAnew) this.#shown.clear()
    const { progress, total, message = '' } = fromProgressMetadata(metadata) ?? {}
    const count = progress === undefined ? '' : total === undefined ? String(progress) : `${progress}/${total}`
    const log = fromLogMetadata(metadata)
    const parts = status.message?.parts ?? []
    const words = partsText(parts, this.#options, 'Status message')
    return [
      isAnew ? field('Begins anew', 'everything; what came so far does not count') : '',
      isSame && !verbose ? words : this.#text({ statusUpdate: update }),
      field('Progress', `${count} ${message}`.trim()),
      log === undefined ? '' : field('Log', typeof log.data === 'string' ? log.data : JSON.stringify(log.data)),
    ].join('')
  }

  #artifact(update: ArtifactUpdate): string {
    const { artifact, append = false } = update
    const { artifactId, parts, name = artifactId } = artifact
    const text = this.#options.verbose ? undefined : textOf(parts)
    if (append && text !== undefined && this.#open === artifactId) return this.#goOn(text)
    const before = this.end()
    const isAnew = !append && this.#shown.has(artifactId)
    this.#shown.add(artifactId)
    const anew = isAnew ? field('Begins anew', `${name}; what came of it so far does not count`) : ''
    // The end of what was shown already.
    if (append && parts.length === 0) return before
    if (text === undefined) return before + anew + this.#text({ artifactUpdate: update })
    this.#open = artifactId
    this.#pieces = new PrintablePieces()
    return `${before}${anew}${headOf(artifact)}Text:\n  ${this.#goOn(text)}`
  }

  #goOn(piece: string): string {
    const text = this.#break + this.#pieces.take(piece)
    this.#break = text.endsWith('\n') ? '\n' : ''
    return indented(this.#break === '' ? text : text.slice(0, -1))
  }
}

function headOf({ artifactId, name = artifactId }: Artifact): string {
  return field('Artifact', name)
}

/** Undefined where there is more than text, or none. */
function textOf(parts: readonly Part[]): string | undefined {
  const texts = parts.flatMap(({ text }) => (text === undefined ? [] : [text]))
  return texts.length === parts.length && parts.length > 0 ? texts.join('') : undefined
}

/** The lines behind the first one. */
function indented(text: string): string {
  return text.replaceAll('\n', '\n  ')
}
