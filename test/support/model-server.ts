/** A scripted language model for tests, over a real socket; gone when the test is over. */
import type { JsonObject } from 'convoke'
import type { IncomingHttpHeaders, ServerResponse } from 'node:http'
import { cleanup } from './lifetime.ts'
import { ModelServer } from './scripted-model.js'

export { ModelServer }

/** A request for a completion. */
export interface ModelRequest {
  /** From 0, in the order in which they came. */
  readonly index: number
  /** With the query. */
  readonly path: string
  readonly headers: IncomingHttpHeaders
  readonly body: ModelRequestBody
  /** Resolves when the client leaves before the answer is complete. */
  readonly aborted: Promise<void>
}

export interface ModelRequestBody {
  readonly model?: string
  readonly messages: readonly {
    readonly role: string
    readonly content: string | null
    readonly tool_call_id?: string
    readonly tool_calls?: readonly {
      readonly id: string
      readonly type: string
      readonly function: { readonly name: string; readonly arguments: string }
    }[]
  }[]
  readonly tools?: readonly { readonly type: string; readonly function: JsonObject & { readonly name: string } }[]
  readonly stream?: boolean
  readonly stream_options?: { readonly include_usage?: boolean }
  readonly response_format?: JsonObject
  readonly [parameter: string]: unknown
}

/**
 * The answers in order, one for each request (one request too many gets a 500), or what makes them: also from what the request
 * says, and after whatever it waits for.
 */
export type ModelScript =
  | readonly ModelAnswer[]
  | ((request: ModelRequest, index: number) => ModelAnswer | Promise<ModelAnswer>)

export type ModelAnswer =
  /** A stream of one piece of text. */
  | string
  /** A stream. Its finish reason, its usage and its `[DONE]` come by themselves, unless a step ends it before. */
  | readonly ModelStep[]
  /** One completion, though a stream was asked for. Takes text, `reasoning`, `call`, `usage` and `finish`. */
  | { readonly whole: string | readonly ModelStep[] }
  /** Any other answer; a body that is no string goes as JSON. Without a body: an error in OpenAI's shape. */
  | { readonly status: number; readonly headers?: Readonly<Record<string, string>>; readonly body?: unknown }
  /** Nothing, until the client leaves. */
  | { readonly silent: true }
  /** The connection is cut before anything was said. */
  | { readonly cut: true }

export type ModelStep =
  /** A piece of text. */
  | string
  | { readonly reasoning: string }
  /** A call, its arguments in pieces: an object, or text as it is. Default id: `call_REQUEST_PLACE`. */
  | { readonly call: { readonly name: string; readonly arguments?: object | string; readonly id?: string } }
  /** A delta as it is. */
  | { readonly delta: object }
  /** An event with this as its data. */
  | { readonly chunk: unknown }
  /** Bytes as they are. */
  | { readonly raw: string }
  /** Tokens to be told of. Default: words. */
  | { readonly usage: { readonly input?: number; readonly output?: number } }
  | { readonly finish: string }
  /** Goes on when the test says so, or the client has left. */
  | { readonly wait: Promise<unknown> }
  /** Says nothing more, until the client leaves. */
  | { readonly silent: true }
  /** The connection is cut. */
  | { readonly cut: true }
  /** The stream ends here, with neither finish reason nor `[DONE]`. */
  | { readonly end: true }

/** The body of an answer to a request for embeddings; undefined: the vectors of the words. Or it answers by itself. */
export type EmbeddingScript = (texts: readonly string[], res: ServerResponse) => unknown

/**
 * Starts a model; `url` is its `baseUrl`, `requests` what it was asked, `request(index)` waits for one. `stop()` and `start()`
 * take it down and bring it back on the same port. It also gives embeddings: texts with the same words are near each other.
 */
export async function startModelServer(script: ModelScript, embeddings?: EmbeddingScript): Promise<ModelServer> {
  const server = new ModelServer(script, embeddings)
  await server.start()
  cleanup(() => server.stop())
  return server
}
