/** The few things that every door does with a request: read its body, know its caller, hear when it is gone. */
import type { IncomingMessage, ServerResponse } from 'node:http'
import { ConvokeError } from '../base/errors.ts'
import { extensionUri } from '../protocol/extension.ts'
import { retryAfterSeconds } from '../protocol/wire-errors.ts'
import type { Caller } from '../tools/tool.ts'
import { wwwAuthenticate, type Authenticator } from './auth/authenticator.ts'
import type { OriginGuard } from './auth/origin.ts'

export interface Gatekeeper {
  readonly authenticator: Authenticator
  readonly guard: OriginGuard
}

/** The caller, once the request has passed the guard. Throws `forbidden`, `unauthenticated`, `unavailable`. */
export function admit(req: IncomingMessage, { authenticator, guard }: Gatekeeper): Caller | Promise<Caller> {
  guard(req.headers)
  return authenticator.authenticate(req.headers)
}

/**
 * The body as text. Throws `too_large` as soon as it passes the limit, `content_type_not_supported` for one that is
 * compressed.
 */
export function readBody(req: IncomingMessage, maxBytes: number): Promise<string> {
  return new Promise((resolve, reject) => {
    const encoding = req.headers['content-encoding']
    if (encoding !== undefined && encoding !== 'identity') {
      return reject(
        new ConvokeError(
          'content_type_not_supported',
          `The body must not be compressed, got ${encoding.slice(0, 40)}.`,
        ),
      )
    }
    const tooLarge = (): void =>
      reject(new ConvokeError('too_large', `The body is larger than ${maxBytes} bytes, which is what this node takes.`))
    if (Number(req.headers['content-length']) > maxBytes) return tooLarge()
    let only: Buffer | undefined
    let chunks: Buffer[] | undefined
    let bytes = 0
    req.on('data', (chunk: Buffer) => {
      bytes += chunk.length
      if (bytes > maxBytes) return tooLarge()
      // Most bodies come in one piece.
      if (only === undefined) only = chunk
      else (chunks ??= [only]).push(chunk)
    })
    // A caller who hangs up in the middle gets no answer, and nothing is held for it: the promise goes with the request.
    req.on('end', () =>
      resolve(chunks === undefined ? (only?.toString('utf8') ?? '') : Buffer.concat(chunks).toString('utf8')),
    )
  })
}

/** Aborts when the connection is gone before the response is finished. */
export function goneSignal(res: ServerResponse): AbortSignal {
  const controller = new AbortController()
  const onClose = (): void => {
    if (!res.writableFinished) controller.abort(new ConvokeError('canceled', 'The caller hung up.'))
  }
  if (res.closed) onClose()
  else res.once('close', onClose)
  return controller.signal
}

/** Says in the answer that the extension is in use, if the caller asked for it. */
export function echoExtension(req: IncomingMessage, res: ServerResponse, header = 'a2a-extensions'): void {
  const asked = req.headers[header]
  if (typeof asked !== 'string' || !asked.includes(extensionUri)) return
  if (asked.split(',').some((uri) => uri.trim() === extensionUri)) res.setHeader(header, extensionUri)
}

/** The seq in a `Last-Event-ID` header, if there is one. */
export function lastEventId(req: IncomingMessage): number | undefined {
  const value = req.headers['last-event-id']
  return typeof value === 'string' && /^\d{1,15}$/.test(value) ? Number(value) : undefined
}

/**
 * The protocol version that the request asks for, as Major.Minor; undefined when it does not say.
 * Throws `version_not_supported`. A2A specification 3.6.
 */
export function requestedVersion(req: IncomingMessage): '1.0' | '0.3' | undefined {
  let value = req.headers['a2a-version']
  if (value === undefined && req.url?.includes('A2A-Version=') === true) {
    value = new URL(req.url, 'http://node').searchParams.get('A2A-Version') ?? undefined
  }
  if (value === undefined || value === '') return undefined
  if (value === '1.0') return '1.0'
  const version = /^(\d+\.\d+)(\.\d+)?$/.exec(String(value).trim())?.[1]
  if (version === '1.0' || version === '0.3') return version
  throw new ConvokeError(
    'version_not_supported',
    `A2A version "${String(value).slice(0, 40)}" is not spoken here; 1.0 and 0.3 are.`,
  )
}

/** The headers that say how to come back: with credentials, or after a while. */
export function failureHeaders(req: IncomingMessage, httpStatus: number, error: unknown): Record<string, string> {
  const headers: Record<string, string> = {}
  if (httpStatus === 401) headers['www-authenticate'] = wwwAuthenticate(req.headers)
  const seconds = retryAfterSeconds(error)
  if (seconds !== undefined) headers['retry-after'] = String(seconds)
  return headers
}

/** How much of a refused body is read and thrown away, so that the refusal arrives. */
const maxDrainedBytes = 16 * 1024 * 1024

/**
 * Sends a whole response. A body that was not read to its end is thrown away. A long one, or one of unknown length, takes
 * the connection with it: closing on a caller that still sends resets the connection, often before the answer is read.
 */
export function sendText(
  res: ServerResponse,
  status: number,
  contentType: string,
  text: string,
  extra?: Record<string, string>,
): void {
  if (res.headersSent || res.destroyed) {
    res.destroy()
    return
  }
  const headers: Record<string, string | number> = {
    'content-type': contentType,
    'content-length': Buffer.byteLength(text),
  }
  if (extra !== undefined) Object.assign(headers, extra)
  if (!res.req.complete && !(Number(res.req.headers['content-length']) <= maxDrainedBytes)) {
    headers['connection'] = 'close'
  }
  res.writeHead(status, headers)
  res.end(text)
}
