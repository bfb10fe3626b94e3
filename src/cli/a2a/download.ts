/** `convoke task download`: the artifacts of a task as files. Names are the agent's choice, the folder never is. */
import { randomUUID } from 'node:crypto'
import { access, mkdir, rename, rm, writeFile } from 'node:fs/promises'
import { extname, join, resolve } from 'node:path'
import { createGuardedFetch, type BodyStream } from '../../base/guarded-fetch.ts'
import type { Json } from '../../base/json.ts'
import { stripControls } from '../../base/text.ts'
import type { Artifact, Part, Task } from '../../protocol/a2a.ts'
import { withClient } from './connection.ts'
import { ClientFailure, usageFailure } from './failure.ts'
import { extensionOf } from './parts.ts'
import type { Session } from './session.ts'
import type { AgentFlags } from './settings.ts'
import { field, idsText } from './text.ts'

export interface DownloadFlags extends AgentFlags {
  readonly dir: string
  readonly out?: string
  readonly artifact?: readonly string[]
  readonly force?: boolean
  readonly fetchUrls?: boolean
}

/** What becomes one file. */
interface Item {
  readonly artifactId: string
  readonly name: string
  readonly mediaType: string
  /** A URL is fetched when it is its turn. */
  readonly content: Buffer | { readonly url: string }
}

interface SavedFile {
  readonly path: string
  readonly artifactId: string
  readonly mediaType: string
  readonly bytes: number
}

export async function download(session: Session<DownloadFlags>, taskId: string): Promise<void> {
  const { flags, signal } = session
  await withClient(session, async ({ client }) => {
    session.taskId = taskId
    const task = await client.getTask(taskId, { signal })
    const items = toItems(task, flags.artifact)
    const left = items.filter(({ content }) => !Buffer.isBuffer(content) && flags.fetchUrls !== true)
    const wanted = items.filter((item) => !left.includes(item))
    for (const { name, content } of left) {
      if (!Buffer.isBuffer(content)) session.note(`convoke: ${name} stands at ${content.url}; --fetch-urls gets it.`)
    }
    const paths = await choosePaths(wanted, flags)
    const files: SavedFile[] = []
    for (const [index, item] of wanted.entries()) {
      const path = paths[index] ?? ''
      const content = Buffer.isBuffer(item.content) ? item.content : await fetchFile(item.content.url, session)
      await save(path, content, flags.force === true)
      files.push({ path, artifactId: item.artifactId, mediaType: item.mediaType, bytes: content.length })
    }
    showFiles(session, task, files)
  })
}

function toItems({ artifacts = [] }: Task, wanted: readonly string[] | undefined): Item[] {
  const chosen = artifacts.filter(({ artifactId, name }) => {
    return wanted === undefined || wanted.includes(artifactId) || (name !== undefined && wanted.includes(name))
  })
  const missing = wanted?.find(
    (each) => !artifacts.some(({ artifactId, name }) => each === artifactId || each === name),
  )
  if (missing !== undefined) {
    const there = artifacts.map(({ artifactId, name }) => name ?? artifactId).join(', ') || 'none'
    throw usageFailure(`The task has no artifact ${JSON.stringify(missing)}. It has: ${there}.`)
  }
  return chosen.flatMap(itemsOf)
}

/**
 * A file for each part; texts that follow each other are one, since a stream comes in pieces. Values that come in pieces
 * are a line of JSON each in one file, texts between them as well.
 */
function itemsOf(artifact: Artifact): Item[] {
  const { artifactId, name = artifactId, parts } = artifact
  const isList = parts.length > 1 && parts.some(({ data }) => data !== undefined)
  if (isList && parts.every(({ text, data, filename }) => filename === undefined && (text ?? data) !== undefined)) {
    const mediaType = 'application/jsonl'
    const content = Buffer.from(parts.map(({ text, data }) => `${JSON.stringify(text ?? data)}\n`).join(''))
    return [{ artifactId, name: fileName(name, mediaType, '.jsonl'), mediaType, content }]
  }
  const items: Item[] = []
  let lines: Part[] = []
  const flush = (): void => {
    const [first] = lines
    if (first !== undefined) {
      const mediaType = first.mediaType ?? 'text/plain'
      const content = Buffer.from(lines.map((part) => part.text ?? '').join(''))
      items.push({ artifactId, name: fileName(first.filename ?? name, mediaType, '.txt'), mediaType, content })
    }
    lines = []
  }
  for (const part of parts) {
    if (part.text !== undefined) {
      if (part.filename !== undefined && part.filename !== lines[0]?.filename) flush()
      lines.push(part)
      continue
    }
    flush()
    const item = toItem(artifactId, name, part)
    if (item !== undefined) items.push(item)
  }
  flush()
  return items
}

function toItem(artifactId: string, artifactName: string, part: Part): Item | undefined {
  const { filename = artifactName, raw, url, data } = part
  if (data !== undefined) {
    const mediaType = part.mediaType ?? 'application/json'
    return { artifactId, name: fileName(filename, mediaType, '.json'), mediaType, content: toJsonFile(data) }
  }
  const mediaType = part.mediaType ?? 'application/octet-stream'
  const name = fileName(filename, mediaType, '')
  if (raw !== undefined) return { artifactId, name, mediaType, content: Buffer.from(raw, 'base64') }
  return url === undefined ? undefined : { artifactId, name, mediaType, content: { url } }
}

function toJsonFile(data: Json): Buffer {
  return Buffer.from(`${JSON.stringify(data, null, 2)}\n`)
}

const longestName = 120

/** One name in one folder, whatever the agent wrote: no path, no hidden file, nothing that a system reads otherwise. */
export function fileName(given: string, mediaType: string, fallbackExtension: string): string {
  const last = given.split(/[/\\]/).at(-1) ?? ''
  const plain = stripControls(last)
    .normalize('NFC')
    .replace(/[\t\r\n<>:"|?*]/g, '_')
    .replace(/^[.\s]+|[.\s]+$/g, '')
  const extension = extname(plain)
  const stem = Array.from(plain.slice(0, plain.length - extension.length))
    .slice(0, longestName)
    .join('')
  // The names of devices on Windows, with any extension.
  const safe = /^(con|prn|aux|nul|com\d|lpt\d)$/i.test(stem) ? `_${stem}` : stem
  const ending = extension === '' ? extensionOf(mediaType) || fallbackExtension : extension.slice(0, 20)
  return `${safe === '' ? 'artifact' : safe}${ending}`
}

/** A path for each file, two of one name made two. Throws before anything is written if one is there already. */
async function choosePaths(items: readonly Item[], flags: DownloadFlags): Promise<string[]> {
  if (flags.out !== undefined && items.length !== 1) {
    throw usageFailure(
      `--out names one file, and there are ${items.length}.`,
      'Choose one with --artifact, or use --dir.',
    )
  }
  const folder = resolve(flags.dir)
  if (flags.out === undefined) await mkdir(folder, { recursive: true })
  const taken = new Set<string>()
  const paths = items.map(({ name }) => {
    if (flags.out !== undefined) return resolve(flags.out)
    const extension = extname(name)
    const stem = name.slice(0, name.length - extension.length)
    let unique = name
    for (let count = 2; taken.has(unique.toLowerCase()); count++) unique = `${stem}-${count}${extension}`
    taken.add(unique.toLowerCase())
    return join(folder, unique)
  })
  if (flags.force !== true) for (const path of paths) if (await exists(path)) throw alreadyThere(path)
  return paths
}

function exists(path: string): Promise<boolean> {
  return access(path).then(
    () => true,
    () => false,
  )
}

function alreadyThere(path: string, cause?: unknown): ClientFailure {
  return new ClientFailure('CONVOKE_ERR_FILE', `${path} is there already.`, {
    hint: 'Choose another folder with --dir, or overwrite with --force.',
    cause,
  })
}

/** Whole or not at all. Neither way follows a link that somebody has put at the path. */
async function save(path: string, content: Buffer, force: boolean): Promise<void> {
  const temporary = `${path}.${randomUUID().slice(0, 8)}.part`
  try {
    if (!force) {
      await writeFile(path, content, { flag: 'wx' })
      return
    }
    await writeFile(temporary, content, { flag: 'wx' })
    await rename(temporary, path)
  } catch (cause) {
    await rm(temporary, { force: true })
    if ((cause as NodeJS.ErrnoException).code === 'EEXIST') throw alreadyThere(path, cause)
    const why = cause instanceof Error ? cause.message : String(cause)
    throw new ClientFailure('CONVOKE_ERR_FILE', `Cannot write ${path}: ${why}`, { cause })
  }
}

const maxFetchedBytes = 1024 * 1024 * 1024

/** An agent names the URL, so it may not lead into the user's own network, and gets no credentials. */
async function fetchFile(url: string, session: Session): Promise<Buffer> {
  const { signal, flags } = session
  if (!/^https?:\/\//i.test(url)) throw new ClientFailure('CONVOKE_ERR_FILE', `${url} is not an http or https URL.`)
  const fetch = createGuardedFetch({
    allowPrivate: false,
    ...(flags.insecure === true ? { tls: { insecure: true } } : {}),
  })
  try {
    session.debug('>', { direction: 'out', method: 'GET', url })
    const { status, body } = await fetch.open(url, { method: 'GET', headers: {}, signal, maxRedirects: 5 })
    session.debug('<', { direction: 'in', url, status })
    if (status !== 200) throw new ClientFailure('CONVOKE_ERR_FILE', `${url} answered with ${status}.`)
    return await readAll(body, url)
  } finally {
    await fetch.close()
  }
}

async function readAll(body: BodyStream, url: string): Promise<Buffer> {
  const chunks: Uint8Array[] = []
  let bytes = 0
  for await (const chunk of body) {
    bytes += chunk.length
    if (bytes > maxFetchedBytes) {
      throw new ClientFailure('CONVOKE_ERR_FILE', `${url} has more than ${maxFetchedBytes} bytes.`)
    }
    chunks.push(chunk)
  }
  return Buffer.concat(chunks)
}

/** No type of the protocol tells of files on this machine: the task without its artifacts, and the files beside it. */
function showFiles(session: Session, { id, contextId, status }: Task, files: readonly SavedFile[]): void {
  session.show({ task: { id, contextId, status }, files }, () => {
    const lines = files.map(({ path, mediaType, bytes }) => field('File', `${path} (${mediaType}, ${bytes} bytes)`))
    return [idsText(id, contextId, status.state), field('Files', files.length), ...lines].join('')
  })
}
