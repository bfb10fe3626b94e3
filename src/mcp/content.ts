/**
 * Results of MCP tools as values of ours, and back. What a content block says beside its payload travels in the part's
 * `metadata._mcp`, so that a block that came in over MCP goes out over MCP as it was, with any number of nodes between.
 */
import { createHash } from 'node:crypto'
import { isObject, type Json, type JsonObject } from '../base/json.ts'
import type { Part } from '../protocol/a2a.ts'
import { Content, isContent } from '../protocol/content.ts'
import type { ToolValue } from '../protocol/tool-call.ts'

/** A content block: `{type: 'text', text}`, `{type: 'image', data, mimeType}` and so on. */
export type McpBlock = JsonObject & { type: string }

/** What stands in the result of `tools/call`. */
export interface McpContent {
  content: McpBlock[]
  /** There where the value is, or has in it, a JSON object. */
  structuredContent?: JsonObject
}

/** The key of a part's metadata that holds its block without the payload. */
const blockKey = '_mcp'
/** Of a data part that is the `structuredContent` of its result, which said nothing of it in `content`. */
const structured = 'structured'
/** Of a data part that is a whole block, of a type that is not known here. */
const verbatim = 'verbatim'

/**
 * The value that a result of `tools/call` stands for: its `structuredContent` where there are only plain texts beside it,
 * which say the same for hosts that know no better; the string of a single text; null for nothing at all; and for all else
 * {@link Content}, with the structured content as its first part. A block of an unknown type or a wrong shape becomes a
 * data part.
 */
export function fromMcpContent(content: unknown, structuredContent?: unknown): ToolValue {
  const blocks: unknown[] = Array.isArray(content) ? content : []
  if (isObject(structuredContent)) {
    const data = structuredContent as JsonObject
    if (blocks.every(isPlainText)) return data
    return new Content([{ data, metadata: { [blockKey]: { type: structured } } }, ...blocks.map(toPart)])
  }
  const [first, ...others] = blocks
  if (first === undefined) return null
  if (others.length === 0 && isPlainText(first)) return first.text
  return new Content(blocks.map(toPart))
}

/** What a value is in MCP. Objects go as structured content with their JSON as text beside it, for hosts that know only that. */
export function toMcpContent(value: ToolValue, hasOutput = true): McpContent {
  if (typeof value === 'string') return { content: [{ type: 'text', text: value }] }
  if (value instanceof Uint8Array) return { content: [toBlobBlock(Buffer.from(value).toString('base64'), {}, {})] }
  if (!isContent(value)) {
    const content = [toTextBlock(value)]
    return isObject(value) ? { content, structuredContent: value } : { content }
  }
  const result: McpContent = { content: [] }
  for (const part of value.parts) {
    const about = aboutOf(part)
    if (part.data !== undefined && about['type'] !== verbatim && result.structuredContent === undefined) {
      // Hosts that see it may look at nothing else.
      if (isObject(part.data) && (hasOutput || about['type'] === structured)) result.structuredContent = part.data
      if (isObject(part.data) && about['type'] === structured) continue
    }
    result.content.push(toBlock(part, about))
  }
  return result
}

function isPlainText(block: unknown): block is { type: 'text'; text: string } {
  return (
    isObject(block) && block['type'] === 'text' && typeof block['text'] === 'string' && Object.keys(block).length === 2
  )
}

function toPart(given: unknown): Part {
  if (!isObject(given)) return toVerbatimPart(given as Json)
  const block = given as JsonObject
  const { type } = block
  switch (typeof type === 'string' ? type : '') {
    case 'text': {
      const { text, ...about } = block
      if (typeof text !== 'string') break
      return Object.keys(about).length === 1 ? { text } : { text, metadata: { [blockKey]: about } }
    }
    case 'image':
    case 'audio': {
      const { data, mimeType, ...about } = block
      if (!isBase64(data) || typeof mimeType !== 'string') break
      return { raw: data, mediaType: mimeType, metadata: { [blockKey]: about } }
    }
    case 'resource': {
      const { resource, ...about } = block
      if (!isObject(resource) || typeof resource['uri'] !== 'string') break
      const { text, blob, mimeType, ...rest } = resource
      const mediaType = typeof mimeType === 'string' ? { mediaType: mimeType } : {}
      const metadata = { [blockKey]: { ...about, resource: rest } }
      if (typeof text === 'string') return { text, ...mediaType, metadata }
      if (isBase64(blob)) return { raw: blob, ...mediaType, metadata }
      break
    }
    case 'resource_link': {
      const { uri, name, mimeType, ...about } = block
      if (typeof uri !== 'string' || typeof name !== 'string') break
      const mediaType = typeof mimeType === 'string' ? { mediaType: mimeType } : {}
      return { url: uri, filename: name, ...mediaType, metadata: { [blockKey]: about } }
    }
  }
  return toVerbatimPart(block)
}

function toVerbatimPart(data: Json): Part {
  return { data, metadata: { [blockKey]: { type: verbatim } } }
}

/** What was kept of the block. It may come from a stranger: whoever builds a block of it puts type and payload over it. */
function aboutOf({ metadata }: Part): JsonObject {
  const kept = metadata?.[blockKey]
  if (!isObject(kept)) return {}
  const { annotations, _meta, ...about } = kept
  return { ...about, ...(isObject(annotations) ? { annotations } : {}), ...(isObject(_meta) ? { _meta } : {}) }
}

function toBlock(part: Part, about: JsonObject): McpBlock {
  const { text, raw, url, data, mediaType } = part
  const { type } = about
  if (text !== undefined) {
    if (type !== 'resource') return { ...about, type: 'text', text }
    return { ...about, type: 'resource', resource: { ...resourceOf(part, about, text), text } }
  }
  if (raw !== undefined) {
    const isImage = type === 'image' || (type === undefined && mediaType?.startsWith('image/') === true)
    const isAudio = type === 'audio' || (type === undefined && mediaType?.startsWith('audio/') === true)
    if (!isImage && !isAudio) return toBlobBlock(raw, part, about)
    const mimeType = mediaType ?? 'application/octet-stream'
    return { ...about, type: isImage ? 'image' : 'audio', data: raw, mimeType }
  }
  if (url !== undefined) {
    const mimeType = mediaType === undefined ? {} : { mimeType: mediaType }
    return { ...about, type: 'resource_link', uri: url, name: part.filename ?? nameOf(url), ...mimeType }
  }
  if (type === verbatim && isObject(data) && typeof data['type'] === 'string') return data as McpBlock
  return toTextBlock(data ?? null)
}

function toTextBlock(value: Json): McpBlock {
  return { type: 'text', text: JSON.stringify(value) }
}

function toBlobBlock(blob: string, part: Part, about: JsonObject): McpBlock {
  const given = { mediaType: 'application/octet-stream', ...part }
  const before = about['type'] === 'resource' ? part : given
  return { ...about, type: 'resource', resource: { ...resourceOf(before, about, blob), blob } }
}

/** A resource needs a URI. What has none is named by what is in it, so that equal results stay equal. */
function resourceOf({ mediaType, filename }: Part, { resource }: JsonObject, payload: string): JsonObject {
  const kept = isObject(resource) ? resource : {}
  const mimeType = mediaType === undefined ? {} : { mimeType: mediaType }
  if (typeof kept['uri'] === 'string') return { ...kept, ...mimeType }
  const digest = createHash('sha256').update(payload).digest('hex')
  const uri = `urn:sha256:${digest}${filename === undefined ? '' : `#${encodeURIComponent(filename)}`}`
  return { ...kept, uri, ...mimeType }
}

function nameOf(url: string): string {
  const path = URL.canParse(url) ? new URL(url).pathname : ''
  const last = path.slice(path.lastIndexOf('/') + 1)
  return last === '' ? url : last
}

/** Parts hold base64 and nothing else; peers refuse a result with other text in it. */
function isBase64(value: unknown): value is string {
  return typeof value === 'string' && value.length % 4 === 0 && /^[A-Za-z0-9+/]*={0,2}$/.test(value)
}
