/** The words of this room: what a peer is, how it is reached, and what is known of it. */
import type { JsonObject } from '../base/json.ts'
import type { Message, StreamResponse, Task } from '../protocol/a2a.ts'

/** Credentials for a peer. They go to the origin of the peer's configured URL, and nowhere else. */
export type PeerAuth =
  /** `Authorization: Bearer …`; a function is asked before each request. */
  | { readonly bearer: string | (() => string | Promise<string>) }
  /** An API key, in the place that the card names for one; else in this header. Default: `X-API-Key`. */
  | { readonly apiKey: string; readonly header?: string }
  /** OAuth 2 client credentials. The token is kept until shortly before it expires. */
  | {
      readonly oauth2: {
        readonly tokenUrl: string
        readonly clientId: string
        readonly clientSecret: string
        readonly scopes?: readonly string[]
        readonly audience?: string
      }
    }

export type Binding = 'JSONRPC' | 'HTTP+JSON'
export type PeerVersion = '1.0' | '0.3'

/** How a peer is reached. All but the URL has a default. */
export interface PeerOptions {
  /** Where the agent is: its base URL (`/.well-known/agent-card.json` is asked below it), or the URL of its card (ends in `.json`). */
  readonly url: string
  readonly auth?: PeerAuth
  /** How long a tool call may take unless it says so itself, in milliseconds. Default: no limit. */
  readonly timeoutMs?: number
  /** How long any other request may take, in milliseconds. Default: 30,000. */
  readonly requestTimeoutMs?: number
  /** Silence on a stream after which it counts as cut, in milliseconds; a comment breaks the silence, too. Default: 45,000. */
  readonly idleTimeoutMs?: number
  /**
   * How long the answer to a call is waited for in one request before its task is followed as a stream, whose comments
   * show that the peer is there. In milliseconds. Default: 10,000.
   */
  readonly patienceMs?: number
  /** Connect to addresses that are not of the public internet. Default: only if `url` itself names one. */
  readonly allowPrivate?: boolean
  /** Origins beside the card's own on which its interfaces may stand. Default: none. Credentials never go there. */
  readonly allowOrigins?: readonly string[]
  /** Bindings to use, best first. Default: JSON-RPC, then HTTP+JSON. */
  readonly bindings?: readonly Binding[]
  /** Versions of A2A to speak, best first. Default: 1.0, then 0.3. */
  readonly versions?: readonly PeerVersion[]
  /** More headers for each request to the peer's origin. */
  readonly headers?: Readonly<Record<string, string>>
  readonly tls?: {
    /** PEM of further authorities. */
    readonly ca?: string
    /** Do not verify certificates. For development. */
    readonly insecure?: boolean
  }
}

/** What a client found out when it connected. */
export interface PeerInfo {
  /** The agent's name on its card. */
  readonly name: string
  readonly version: PeerVersion
  readonly binding: Binding
  /** Where requests go. */
  readonly url: string
  /** Sent with each request where the interface names one. */
  readonly tenant?: string
  readonly streaming: boolean
  readonly pushNotifications: boolean
  /** Speaks the tool-call extension: it deduplicates messages, and its streams carry event ids. */
  readonly convoke: boolean
}

/** What goes with one request. */
export interface RequestOptions {
  readonly signal?: AbortSignal
  /** For the whole request with its retries, in milliseconds. Default: the peer's `requestTimeoutMs`; none for waits and streams. */
  readonly timeoutMs?: number
}

/** What answers a message: a task, or a bare message. Exactly one member is there. */
export interface SendMessageResponse {
  readonly task?: Task
  readonly message?: Message
}

export interface SendOptions extends RequestOptions {
  /** Answer at once, with the task as it is. Default: wait until it ends or asks. */
  readonly returnImmediately?: boolean
  readonly historyLength?: number
  readonly acceptedOutputModes?: readonly string[]
  /** Metadata of the request, beside the message's own. */
  readonly metadata?: JsonObject
  readonly pushConfig?: PushConfigInput
}

export interface PushConfigInput {
  readonly url: string
  readonly id?: string
  readonly token?: string
  readonly authentication?: { readonly scheme: string; readonly credentials?: string }
}

export interface PushConfigRecord extends PushConfigInput {
  readonly id: string
  readonly taskId: string
}

/** One event of a stream; `id` is its seq at peers that give one. */
export interface PeerEvent {
  readonly id?: number
  readonly event: StreamResponse
}

export interface ListTasksQuery {
  readonly contextId?: string
  readonly status?: string
  readonly pageSize?: number
  readonly pageToken?: string
  readonly historyLength?: number
  readonly statusTimestampAfter?: string
  readonly includeArtifacts?: boolean
}

export interface ListTasksPage {
  readonly tasks: readonly Task[]
  readonly nextPageToken: string
  readonly pageSize: number
  readonly totalSize: number
}
