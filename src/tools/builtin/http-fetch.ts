/** `http_fetch` */
import { onAbort } from '../../base/abort.ts'
import { ConvokeError } from '../../base/errors.ts'
import { fitsGlob } from '../../base/glob.ts'
import type { Answer, BodyStream, GuardedFetch, ResponseHeaders } from '../../base/guarded-fetch.ts'
import { Content } from '../../protocol/content.ts'
import { defineTool } from '../define.ts'
import type { Tool } from '../tool.ts'
import { excerpt } from '../value.ts'
import type { Kit } from './kit.ts'
import { looksBinary, toText } from './read.ts'

const maxRedirects = 5

export interface FetchKit extends Kit {
  /** Whoever opened it closes it. */
  readonly fetch: GuardedFetch
  /** Globs of the host names that may be called. Undefined: any that the fetch may dial. */
  readonly hosts: readonly string[] | undefined
}

export function createHttpFetch({ fetch, hosts, maxBytes, timeoutMs: longest, traits }: FetchKit): Tool {
  const which = hosts === undefined ? '' : ` Hosts: ${hosts.join(', ') || 'none'}.`
  return defineTool({
    name: 'http_fetch',
    description:
      'Sends an HTTP request and gives the status, the headers and the body of the answer: as text, or as bytes where it ' +
      `is none. A status of 400 and more is an answer like any other. At most ${maxRedirects} redirects are followed, by ` +
      `GET and HEAD any, by POST, PUT and PATCH 307 and 308.${which}`,
    input: {
      type: 'object',
      properties: {
        url: { type: 'string', minLength: 1, maxLength: 8000, description: 'An http or https URL.' },
        method: { enum: ['GET', 'HEAD', 'POST', 'PUT', 'PATCH', 'DELETE'], default: 'GET' },
        headers: {
          type: 'object',
          additionalProperties: { type: 'string' },
          maxProperties: 100,
          default: {},
          description: 'Names and values. To another origin than that of `url` most of them do not go.',
        },
        body: { type: 'string', description: 'What is sent; say what it is in the header content-type.' },
        timeout_ms: {
          type: 'integer',
          minimum: 1,
          maximum: longest,
          default: Math.min(30_000, longest),
          description: 'How long it may take in all, in milliseconds.',
        },
      },
      required: ['url'],
      additionalProperties: false,
    },
    output: {
      type: 'object',
      properties: {
        status: { type: 'integer' },
        url: { type: 'string', description: 'Where the answer came from, after redirects.' },
        headers: { type: 'object', additionalProperties: { type: 'string' } },
        media_type: { type: 'string' },
        size: { type: 'integer', description: 'Of the body, in bytes.' },
        text: {
          type: 'string',
          description: 'The body; absent where it is no text, then its bytes are a part of their own.',
        },
      },
      required: ['status', 'url', 'headers', 'size'],
    },
    traits: traits('http_fetch', {}),
    async run({ url, method, headers, body, timeout_ms: timeoutMs }, { signal }) {
      checkUrl(url, hosts)
      checkHeaders(headers)
      if (body !== undefined && (method === 'GET' || method === 'HEAD')) {
        throw new ConvokeError('invalid_params', `A ${method} request has no \`body\`; leave it out, or use POST.`)
      }
      const controller = new AbortController()
      const stopListening = onAbort(signal, () => controller.abort(signal.reason))
      const timer = setTimeout(() => {
        controller.abort(
          new ConvokeError('timeout', `The request took longer than ${timeoutMs} ms.`, { retryable: false }),
        )
      }, timeoutMs)
      try {
        const answer = await fetch.open(url, {
          method,
          headers,
          ...(body === undefined ? {} : { body }),
          signal: controller.signal,
          maxRedirects,
          onRedirect: (next) => checkUrl(next, hosts),
        })
        return toResult(answer, await readBody(answer, method, maxBytes, timeoutMs))
      } finally {
        clearTimeout(timer)
        stopListening()
      }
    },
  })
}

/** Throws for a URL that may not be called. Which addresses may, the fetch itself sees when it dials. */
function checkUrl(url: string, hosts: readonly string[] | undefined): void {
  if (!URL.canParse(url)) throw new ConvokeError('invalid_params', `\`url\` is no URL, got ${excerpt(url)}.`)
  const { protocol, hostname, username, password } = new URL(url)
  if (protocol !== 'http:' && protocol !== 'https:') {
    throw new ConvokeError('forbidden', `Only http: and https: URLs may be called, not ${excerpt(protocol)}.`)
  }
  if (username !== '' || password !== '') {
    const how = 'put credentials into the header authorization'
    throw new ConvokeError('invalid_params', `\`url\` has a user or a password in it, which is not sent; ${how}.`)
  }
  const host = hostname.replace(/^\[|\]$|\.$/g, '').toLowerCase()
  if (hosts === undefined || hosts.some((glob) => fitsGlob(host, glob.toLowerCase()))) return
  const which = hosts.length === 0 ? 'none may' : `these may: ${hosts.join(', ')}`
  throw new ConvokeError('forbidden', `The host ${excerpt(host)} may not be called; ${which}.`)
}

/** They are about the connection, which is not the caller's, or about how the body travels. */
const ofTheConnection = new Set([
  'accept-encoding',
  'connection',
  'content-length',
  'expect',
  'host',
  'http2-settings',
  'keep-alive',
  'proxy-authenticate',
  'proxy-authorization',
  'proxy-connection',
  'te',
  'trailer',
  'transfer-encoding',
  'upgrade',
])

function checkHeaders(headers: Readonly<Record<string, string>>): void {
  for (const name of Object.keys(headers)) {
    if (!ofTheConnection.has(name.toLowerCase())) continue
    throw new ConvokeError('invalid_params', `The header ${excerpt(name)} is set by the node itself; leave it out.`)
  }
}

async function readBody(
  { headers, body }: Answer & { readonly body: BodyStream },
  method: string,
  maxBytes: number,
  timeoutMs: number,
): Promise<Buffer> {
  // The length of the body that a HEAD is not given.
  if (method !== 'HEAD' && Number(headers['content-length']) > maxBytes) {
    body.cancel()
    throw new ConvokeError(
      'too_large',
      `The answer has ${String(headers['content-length'])} bytes, more than ${maxBytes}.`,
    )
  }
  return await body.bytes(maxBytes, timeoutMs)
}

function toResult({ status, url, headers }: Answer, body: Buffer) {
  const mediaType = mediaTypeOf(headers)
  const answer = {
    status,
    url,
    headers: toFlat(headers),
    ...(mediaType === undefined ? {} : { media_type: mediaType }),
    size: body.length,
  }
  const text = isTextual(mediaType) ? decode(body, headers) : undefined
  if (text !== undefined) return { ...answer, text }
  const raw = { raw: body.toString('base64'), mediaType: mediaType ?? 'application/octet-stream' }
  return new Content([{ data: answer }, raw])
}

function mediaTypeOf({ 'content-type': type }: ResponseHeaders): string | undefined {
  return typeof type === 'string' ? type.split(';', 1)[0]?.trim().toLowerCase() : undefined
}

/** In the character set that the server names, if it is known; undefined for what is no such text. */
function decode(body: Buffer, { 'content-type': type }: ResponseHeaders): string | undefined {
  const charset = /;\s*charset\s*=\s*"?([\w.:-]+)/i.exec(String(type))?.[1]
  if (charset === undefined || /^utf-?8$/i.test(charset)) return looksBinary(body) ? undefined : toText(body)
  try {
    return new TextDecoder(charset, { fatal: true }).decode(body)
  } catch {
    return undefined
  }
}

/** A picture or a sound may look like text, and is none. */
function isTextual(mediaType = ''): boolean {
  return !/^(image\/(?!svg)|audio\/|video\/|font\/|application\/(octet-stream|pdf|zip|gzip|wasm)$)/.test(mediaType)
}

/** One text for each header; several values of one name stand behind each other. */
function toFlat(headers: ResponseHeaders): Record<string, string> {
  return Object.fromEntries(
    Object.entries(headers).flatMap(([name, value]) =>
      value === undefined ? [] : [[name, [value].flat().join(', ')]],
    ),
  ) as Record<string, string>
}
