/**
 * The house as a drawing that cannot lie. Imports go down, never up or round; each foreign package lives in one room.
 */
import { readdirSync, readFileSync } from 'node:fs'
import { dirname, join, relative, resolve } from 'node:path'
import { expect, test } from 'vitest'

/** From the ground up; rooms on one line are siblings and do not know each other. */
const floors = [
  ['base'],
  ['protocol'],
  ['store'],
  ['tasks', 'tools'],
  ['agent', 'peers', 'mcp'],
  ['server'],
  [
    'node.ts',
    'node-agent.ts',
    'answering.ts',
    'execution.ts',
    'tool-space.ts',
    'config.ts',
    'config-file',
    'older-config',
    'options.ts',
    'agent-files.ts',
    'peer-agent.ts',
    'index.ts',
    'cli',
  ],
]

/** What a node is made from has types of all floors in it, and the auth of the server takes its part of them. */
const typesMayLookUp = new Set(['options.ts'])

const homes: Record<string, string[]> = {
  '@a2a-js/sdk': ['server', 'peers/legacy-transport.ts'],
  '@modelcontextprotocol/sdk': ['mcp'],
  '@modelcontextprotocol/server': ['mcp'],
  express: ['server'],
  ajv: ['tools/schema.ts'],
  'ajv-formats': ['tools/schema.ts'],
  'better-sqlite3': ['store/sqlite.ts', 'store/sqlite-agents.ts'],
  commander: ['cli'],
  'eventsource-parser': ['base/event-stream.ts'],
  'ipaddr.js': ['base/address.ts'],
  jose: ['server/auth'],
  minisearch: ['tools/search.ts'],
  'p-retry': ['peers/retry.ts'],
  pino: ['base/log.ts'],
  re2js: ['tools/safe-pattern.ts'],
  undici: ['base/guarded-fetch.ts', 'base/guarded-exchange.ts'],
  yaml: ['agent/configuration.ts', 'config-file/source.ts', 'older-config', 'tools/skill-bundles.ts'],
}

const src = resolve(import.meta.dirname, '../src')

interface Import {
  readonly from: string
  readonly to: string
  readonly isType: boolean
  /** When it is needed, `await import('…')`. */
  readonly isDynamic: boolean
}

function imports(): Import[] {
  const files = readdirSync(src, { recursive: true, encoding: 'utf8' }).filter((file) => file.endsWith('.ts'))
  return files.flatMap((file) => {
    const text = readFileSync(join(src, file), 'utf8')
    const statements = text.matchAll(/^(?:import|export)\s+(type\s+)?[^'"]*?from '([^']+)'|import\('([^']+)'\)/gm)
    return [...statements].map(([, type, named, dynamic]) => ({
      from: file,
      to: named ?? dynamic ?? '',
      isType: type !== undefined,
      isDynamic: dynamic !== undefined,
    }))
  })
}

function roomOf(file: string): string {
  return file.split('/')[0] ?? file
}

function floorOf(file: string): number {
  return floors.findIndex((rooms) => rooms.includes(roomOf(file)))
}

test('every file stands in a room of the house', () => {
  const lost = [...new Set(imports().map(({ from }) => from))].filter((file) => floorOf(file) === -1)
  expect(lost).toEqual([])
})

test('imports go down, and siblings do not import each other', () => {
  const wrong = imports()
    .filter(({ to }) => to.startsWith('.'))
    .map(({ from, to, isType }) => ({ from, to: relative(src, resolve(src, dirname(from), to)), isType }))
    .filter(({ from, to, isType }) => {
      if (roomOf(from) === roomOf(to)) return false
      if (isType && typesMayLookUp.has(to)) return false
      // The top floor is one landing: its files wire each other.
      if (floorOf(from) === floors.length - 1) return false
      return floorOf(to) >= floorOf(from)
    })
  expect(wrong).toEqual([])
})

test('each foreign package lives in its one room', () => {
  const foreign = imports().filter(({ to }) => !to.startsWith('.') && !to.startsWith('node:'))
  const strays = foreign.filter(({ from, to }) => {
    const name = to
      .split('/')
      .slice(0, to.startsWith('@') ? 2 : 1)
      .join('/')
    return !(homes[name] ?? []).some((home) => from === home || from.startsWith(`${home}/`))
  })
  expect(strays).toEqual([])
})

/** The packages that are loaded with a file, before any of its code runs. */
function loadedWith(entry: string): Set<string> {
  const values = imports().filter(({ isType, isDynamic }) => !isType && !isDynamic)
  const packages = new Set<string>()
  const files = new Set([entry])
  // A set is walked with what joins it meanwhile.
  for (const file of files) {
    for (const { from, to } of values) {
      if (from !== file) continue
      if (to.startsWith('.')) files.add(relative(src, resolve(src, dirname(from), to)))
      else packages.add(to)
    }
  }
  return packages
}

test('what takes long to load is loaded when it is needed', () => {
  const slow = /^(@modelcontextprotocol|better-sqlite3|pg)(\/|$)/
  expect([...loadedWith('node.ts')].filter((name) => slow.test(name))).toEqual([])
  expect([...loadedWith('cli/main.ts')].filter((name) => !name.startsWith('node:'))).toEqual(['commander'])
  for (const command of ['remote/tools', 'remote/call', 'remote/peers', 'remote/doctor', 'remote/types', 'chat/chat']) {
    const loaded = [...loadedWith(`cli/${command}.ts`)]
    expect(loaded.filter((name) => slow.test(name) || /^(minisearch|express|yaml|jose|pino)$/.test(name))).toEqual([])
  }
})

test('only config.ts and the command line read the environment', () => {
  const readers = readdirSync(src, { recursive: true, encoding: 'utf8' })
    .filter((file) => file.endsWith('.ts'))
    .filter((file) => readFileSync(join(src, file), 'utf8').includes('process.env'))
  expect(readers.toSorted()).toEqual(['cli/environment.ts', 'config.ts'])
})

test('every package that the node depends on is reached from its entry points', () => {
  const { dependencies } = JSON.parse(readFileSync(resolve(src, '../package.json'), 'utf8')) as {
    dependencies: Record<string, string>
  }
  const used = new Set(imports().map(({ to }) => to))
  const unused = Object.keys(dependencies).filter(
    (name) => ![...used].some((to) => to === name || to.startsWith(`${name}/`)),
  )
  expect(unused).toEqual([])
})
