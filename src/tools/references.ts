/** What a tool's result refers to: pages, files and other sources. */
import { isObject } from '../base/json.ts'
import { isContent } from '../protocol/content.ts'
import type { ToolValue } from './tool.ts'
import { clip } from './value.ts'

/** Has at least one of `url`, `id` and `title`. */
export interface Reference {
  readonly url?: string
  /** The tool's own name for it. */
  readonly id?: string
  readonly title?: string
  readonly mediaType?: string
}

/** Most references of one result; those beyond are not looked at. */
const maxReferences = 100
/** Longest text in a reference; longer titles are cut, longer URLs and ids are none. */
const maxText = 2000

/**
 * The references in a result, in their order, each once. They are taken from
 * - the members `references` and `sources` of a JSON object: texts (a URL, or a title), or objects with `url` (or `uri`,
 *   `href`, `link`), `title` (or `name`), `id` and `mediaType` (or `mimeType`);
 * - the URL parts of {@link Content}, and its data parts like any JSON object;
 * - MCP's resource links and embedded resources in the member `content` of a JSON object.
 */
export function findReferences(result: ToolValue): Reference[] {
  const found = new Map<string, Reference>()
  const add = (reference: Reference | undefined): void => {
    if (reference === undefined || found.size >= maxReferences) return
    const { url, id, title } = reference
    const key = JSON.stringify([url, id, url === undefined && id === undefined ? title : undefined])
    if (!found.has(key)) found.set(key, reference)
  }
  if (!isContent(result)) fromJson(result, add)
  else {
    for (const { url, data, filename, mediaType } of result.parts.slice(0, maxParts)) {
      if (url !== undefined) add(toReference({ url, title: filename, mediaType }))
      else if (data !== undefined) fromJson(data, add)
    }
  }
  return [...found.values()]
}

/** Most parts and items that are looked at. */
const maxParts = 1000

function fromJson(value: unknown, add: (reference: Reference | undefined) => void): void {
  if (!isObject(value) || value instanceof Uint8Array) return
  for (const key of ['references', 'sources']) {
    const items = value[key]
    if (Array.isArray(items)) for (const item of items.slice(0, maxParts)) add(toReference(item))
  }
  const { content } = value
  if (!Array.isArray(content)) return
  for (const item of content.slice(0, maxParts) as unknown[]) {
    if (!isObject(item)) continue
    if (item['type'] === 'resource_link') add(toReference(item))
    else if (item['type'] === 'resource') add(toReference(item['resource']))
  }
}

function toReference(item: unknown): Reference | undefined {
  if (typeof item === 'string') return toReference(isUrl(item) ? { url: item } : { title: item })
  if (!isObject(item)) return undefined
  const url = firstText(item, ['url', 'uri', 'href', 'link'])
  const id = typeof item['id'] === 'number' ? String(item['id']) : firstText(item, ['id'])
  const title = firstText(item, ['title', 'name'])
  const mediaType = firstText(item, ['mediaType', 'mimeType'])
  const isUsable = (text: string | undefined): text is string => text !== undefined && text.length <= maxText
  const reference: Reference = {
    ...(isUsable(url) ? { url } : {}),
    ...(isUsable(id) ? { id } : {}),
    ...(title === undefined ? {} : { title: clip(title, maxText) }),
    ...(isUsable(mediaType) ? { mediaType } : {}),
  }
  return (reference.url ?? reference.id ?? reference.title) ? reference : undefined
}

function isUrl(text: string): boolean {
  return text.length <= maxText && /^[a-z][a-z0-9+.-]*:\/\/\S+$/i.test(text)
}

function firstText(item: Record<string, unknown>, keys: readonly string[]): string | undefined {
  for (const key of keys) {
    const value = item[key]
    if (typeof value === 'string' && value !== '') return value
  }
  return undefined
}
