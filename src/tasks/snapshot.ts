/**
 * Events and snapshots as text. An event is put into JSON once, when it happens; the text serves the store, every
 * stream and, sliced, the snapshot. The member order below is what makes slicing safe: whatever strings a caller
 * chose stand escaped, so the first bare match of a member name is the member.
 */
import type { Artifact, Message, Part, TaskState } from '../protocol/a2a.ts'
import { keys } from '../protocol/extension.ts'
import type { EventRecord, TaskRow } from '../store/store.ts'
import type { JsonObject } from '../base/json.ts'

const artifactEvent = '{"artifactUpdate":'
const artifactMember = '"artifact":{'
const statusEvent = '{"statusUpdate":'
const newAttempt = new RegExp(`\\},"metadata":\\{"${keys.attempt}":\\d+\\}\\}\\}$`)
const appendEvent = '{"artifactUpdate":{"append":true'
const statePattern = /"status":\{"state":"(TASK_STATE_[A-Z_]+)"/
const artifactIdPattern = /^\{"artifactId":("(?:[^"\\]|\\.)*")/

export interface TaskIds {
  readonly id: string
  readonly contextId: string
}

/** The ids as members, composed once per run: `"taskId":"…","contextId":"…"`. */
export function idMembers(ids: TaskIds): string {
  return `"taskId":${JSON.stringify(ids.id)},"contextId":${JSON.stringify(ids.contextId)}`
}

/** A `TaskStatus` as JSON, its state first. */
export function statusText(state: TaskState, timestamp: string, message?: Message): string {
  const words = message === undefined ? '' : `,"message":${JSON.stringify(message)}`
  return `{"state":"${state}","timestamp":"${timestamp}"${words}}`
}

export function statusEventText(members: string, status: string, metadata: JsonObject | undefined): string {
  const tail = metadata === undefined ? '' : `,"metadata":${JSON.stringify(metadata)}`
  return `${statusEvent}{${members},"status":${status}${tail}}}`
}

export function artifactEventText(members: string, artifact: Artifact, append: boolean, lastChunk: boolean): string {
  let ordered = JSON.stringify(artifact)
  if (!ordered.startsWith('{"artifactId":')) {
    // The fold finds an artifact's id at its beginning.
    const { artifactId, ...rest } = artifact
    ordered = JSON.stringify({ artifactId, ...rest })
  }
  return `${artifactEvent}{"append":${append},"lastChunk":${lastChunk},${members},"artifact":${ordered}}}`
}

/** The event with `lastChunk: true`, if it is a chunk of this artifact. */
export function markLastChunk(text: string, artifactId: string): string | undefined {
  if (!text.startsWith(artifactEvent) || !text.includes(`"artifact":{"artifactId":${JSON.stringify(artifactId)}`))
    return undefined
  return text.replace('"lastChunk":false', '"lastChunk":true')
}

export function taskEventText(ids: TaskIds, status: string, history: string, metadata: string | null): string {
  return `{"task":${composeTask(ids, status, undefined, history, metadata)}}`
}

/** The state that an event brings, or undefined for chunks and the like. */
export function stateOf(event: EventRecord): string | undefined {
  return event.text.startsWith(statusEvent) ? statePattern.exec(event.text)?.[1] : undefined
}

/**
 * Gathers artifacts from events in order: `append` adds parts, anything else replaces. Memory is that of the
 * artifacts; an artifact that came whole is never parsed.
 */
export class ArtifactFold {
  readonly #artifacts = new Map<string, string | Artifact>()

  add(events: readonly EventRecord[]): void {
    for (const { text } of events) {
      // Work that begins anew says everything again.
      if (text.startsWith(statusEvent) && newAttempt.test(text.slice(-64))) this.#artifacts.clear()
      if (!text.startsWith(artifactEvent)) continue
      const artifact = text.slice(text.indexOf(artifactMember) + artifactMember.length - 1, -2)
      const id = artifactIdPattern.exec(artifact)?.[1] ?? ''
      const known = text.startsWith(appendEvent) ? this.#artifacts.get(id) : undefined
      if (known === undefined) {
        this.#artifacts.set(id, artifact)
        continue
      }
      const whole = typeof known === 'string' ? (JSON.parse(known) as Artifact) : known
      const more = JSON.parse(artifact) as Artifact
      for (const part of more.parts) if (!joins(whole, part)) whole.parts.push(part)
      if (more.metadata !== undefined) whole.metadata = { ...whole.metadata, ...more.metadata }
      this.#artifacts.set(id, whole)
    }
  }

  /** A JSON array. */
  toText(): string {
    const texts: string[] = []
    for (const artifact of this.#artifacts.values()) {
      texts.push(typeof artifact === 'string' ? artifact : JSON.stringify(artifact))
    }
    return `[${texts.join(',')}]`
  }
}

/** Adds a piece of a text that came in pieces to the piece before, in artifacts that say so: readers join parts as they like. */
function joins({ metadata, parts }: Artifact, { text, ...rest }: Part): boolean {
  if (metadata?.[keys.joined] !== true || text === undefined || Object.keys(rest).length > 0) return false
  const last = parts[parts.length - 1]
  if (last?.text === undefined || Object.keys(last).length > 1) return false
  last.text += text
  return true
}

export interface SnapshotOptions {
  /** At most so many of the newest messages; 0 leaves the history out. Default: all. */
  readonly historyLength?: number | undefined
}

/** The `Task` as JSON. `artifacts` is a JSON array; undefined leaves the member out. */
export function taskText(row: TaskRow, artifacts: string | undefined, options: SnapshotOptions = {}): string {
  return composeTask(row, row.status, artifacts, cutHistory(row.history, options.historyLength), row.metadata)
}

function composeTask(
  ids: TaskIds,
  status: string,
  artifacts: string | undefined,
  history: string | undefined,
  metadata: string | null,
): string {
  let text = `{"id":${JSON.stringify(ids.id)},"contextId":${JSON.stringify(ids.contextId)},"status":${status}`
  if (artifacts !== undefined && artifacts !== '[]') text += `,"artifacts":${artifacts}`
  if (history !== undefined && history !== '[]') text += `,"history":${history}`
  if (metadata !== null) text += `,"metadata":${metadata}`
  return text + '}'
}

function cutHistory(history: string, length: number | undefined): string | undefined {
  if (length === undefined) return history
  if (length === 0) return undefined
  return JSON.stringify((JSON.parse(history) as Message[]).slice(-length))
}
