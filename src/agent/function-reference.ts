/**
 * Functions by the place where they stand. A plan that goes to another process carries no code: it names modules and their
 * exports, and the other process loads them. Text is never evaluated.
 */
import { statSync } from 'node:fs'
import { createRequire } from 'node:module'
import { join, resolve } from 'node:path'
import { fileURLToPath, pathToFileURL } from 'node:url'
import { ConvokeError } from '../base/errors.ts'
import { isObject } from '../base/json.ts'
import { isClass } from '../tools/function-source.ts'
import { whyUnloadable } from '../tools/unloadable.ts'
import { clip, closest, excerpt } from '../tools/value.ts'
import type { ModuleReference } from './resources.ts'

/** One for all copies of this package in a process: an agent's file may bring its own copy. */
const shared = Symbol.for('convoke.references')
const holder = globalThis as { [shared]?: WeakMap<object, ModuleReference> }
const references = (holder[shared] ??= new WeakMap())

/**
 * Says where a value is exported from, and returns it: `exportedFrom(import.meta.url, start)` for a function or class that is exported
 * under its own name, `exportedFrom(import.meta.url, 'Reviews.start', value)` for any other export or a static member of
 * an exported class. What is remembered goes with the value; said twice, the last word counts. Throws `invalid_plan` for a
 * place that could not be found again, TypeError for a value that is neither an object nor a function.
 */
export function exportedFrom<Value extends Named>(module: string, value: Value): Value
export function exportedFrom<Value extends object>(module: string, path: string, value: Value): Value
export function exportedFrom(module: string, ...rest: readonly [unknown, unknown?]): object {
  const [path, value] = rest.length === 1 ? [nameOf(rest[0]), rest[0]] : rest
  if ((typeof value !== 'object' && typeof value !== 'function') || value === null)
    throw new TypeError(`Only functions, classes and objects have a place that they come from, got ${excerpt(value)}.`)
  const reference = { module, export: path as string }
  const problem = problemOfReference(reference)
  if (problem !== undefined) throw new ConvokeError('invalid_plan', `exportedFrom: ${problem}`)
  references.set(value, toReference(reference))
  return value
}

type Named = ((...args: never) => unknown) | (abstract new (...args: never) => unknown)

function nameOf(value: unknown): string {
  if (typeof value !== 'function')
    throw new TypeError(
      `exportedFrom(module, fn) needs a function or class, got ${excerpt(value)}. Name what else it is.`,
    )
  if (exportPath.test(value.name)) return value.name
  throw new ConvokeError(
    'invalid_plan',
    `exportedFrom was given a function without a name (${excerpt(value.name)}). Say what it is exported as: exportedFrom(import.meta.url, 'name', fn).`,
  )
}

/** Where a value was said to come from, if it was; of a class with `static readonly module` its own name there. */
export function referenceOf(value: object): ModuleReference | undefined {
  const known = references.get(value)
  if (known !== undefined || typeof value !== 'function' || !Object.hasOwn(value, 'module')) return known
  const module: unknown = Reflect.get(value, 'module')
  const reference = { module, export: value.name }
  return isModuleReference(reference) && problemOfReference(reference) === undefined ? reference : undefined
}

/** `{module, export}`, and nothing else. */
export function isModuleReference(value: unknown): value is ModuleReference {
  return (
    isObject(value) &&
    typeof value['module'] === 'string' &&
    typeof value['export'] === 'string' &&
    Object.keys(value).length === 2
  )
}

/** A frozen copy, so that nobody changes where a plan leads. */
export function toReference({ module, export: path }: ModuleReference): ModuleReference {
  return Object.freeze({ module, export: path })
}

const exportPath = /^[\p{ID_Start}$_][\p{ID_Continue}$]*(\.[\p{ID_Start}$_][\p{ID_Continue}$]*){0,7}$/u
/** A URL that is no file's: `data:` would be text that is evaluated. */
const otherScheme = /^(?!file:)[a-z][a-z0-9+.-]*:/i

/** What is wrong with it before anything is loaded: a sentence, or undefined. */
export function problemOfReference({ module, export: path }: ModuleReference): string | undefined {
  if (module === '') return '`module` must name a module, got "".'
  if (otherScheme.test(module))
    return `\`module\` must be a path, a \`file:\` URL or an installed package, got ${excerpt(module)}.`
  if (!exportPath.test(path))
    return `\`export\` must be the name of an export, or \`Class.member\`, got ${excerpt(path)}.`
  return undefined
}

export interface LoadOptions {
  /** What relative paths start from, and where packages are looked for. Default: the working directory. */
  readonly baseDir?: string
}

/** What a reference names, and what it is a member of: the module itself, or a class. */
export interface Found {
  readonly value: unknown
  readonly parent: unknown
  /** The last name of the path. */
  readonly member: string
}

/** Loads the module and follows the path. Throws `invalid_plan` that says what is missing. */
export async function findReference(reference: ModuleReference, options: LoadOptions = {}): Promise<Found> {
  const problem = problemOfReference(reference)
  if (problem !== undefined) throw new ConvokeError('invalid_plan', problem)
  const { module, export: path } = reference
  let value: unknown = await load(module, options.baseDir ?? process.cwd())
  let parent: unknown
  let member = ''
  let walked = ''
  for (member of path.split('.')) {
    parent = value
    value = memberOf(parent, member)
    if (value === undefined) throw new ConvokeError('invalid_plan', missing(module, walked, member, parent))
    walked = walked === '' ? member : `${walked}.${member}`
  }
  return { value, parent, member }
}

/**
 * The value that a reference names. Of a dotted path the members are static ones of exported classes, inherited ones too; a
 * method comes bound to its class. Throws `invalid_plan` that says what is missing.
 */
export async function loadReference(reference: ModuleReference, options?: LoadOptions): Promise<unknown> {
  const { value, parent } = await findReference(reference, options)
  // A class is a value as it is: bound it would lose its static members.
  if (!reference.export.includes('.') || typeof value !== 'function' || isClass(value)) return value
  const bound = value.bind(parent) as object
  references.set(bound, reference)
  return bound
}

/** {@link loadReference} of what must be a function. */
export async function loadFunction(
  reference: ModuleReference,
  options?: LoadOptions,
): Promise<(...args: never[]) => unknown> {
  const value = await loadReference(reference, options)
  if (typeof value === 'function' && !isClass(value)) return value as (...args: never[]) => unknown
  const found = isClass(value) ? 'a class' : excerpt(value)
  throw new ConvokeError(
    'invalid_plan',
    `\`${reference.export}\` of ${excerpt(reference.module)} must be a function, and is ${found}.`,
  )
}

/** What every function and object has is nobody's export. */
function memberOf(parent: unknown, name: string): unknown {
  if ((typeof parent !== 'object' && typeof parent !== 'function') || parent === null) return undefined
  for (let at: object | null = parent; at !== null; at = Object.getPrototypeOf(at) as object | null) {
    if (at === Function.prototype || at === Object.prototype) return undefined
    if (Object.hasOwn(at, name)) return Reflect.get(parent, name)
  }
  return undefined
}

function missing(module: string, walked: string, name: string, parent: unknown): string {
  const where = walked === '' ? `The module ${excerpt(module)}` : `\`${walked}\` of the module ${excerpt(module)}`
  if ((typeof parent !== 'object' && typeof parent !== 'function') || parent === null)
    return `${where} is ${excerpt(parent)} and has no members, \`${name}\` neither.`
  const known = Object.keys(Object.getOwnPropertyDescriptors(parent)).filter(
    (key) => !['length', 'name', 'prototype'].includes(key),
  )
  const meant = closest(name, known)
  const hint = meant === undefined ? `It has ${clip(known.join(', '), 200) || 'none'}.` : `Did you mean \`${meant}\`?`
  const what = walked === '' ? 'export' : 'static member'
  return `${where} has no ${what} \`${name}\`. ${hint}`
}

async function load(module: string, baseDir: string): Promise<unknown> {
  const url = locate(module, baseDir)
  try {
    return (await import(url)) as unknown
  } catch (cause) {
    throw new ConvokeError(
      'invalid_plan',
      `The module ${excerpt(module)} cannot be loaded: ${whyUnloadable(cause, url)}`,
      {
        cause,
      },
    )
  }
}

/** This package by its own name, which Node finds from inside: its classes are found wherever it is installed. */
const ownModule = 'convoke'

function locate(module: string, baseDir: string): string {
  if (module === ownModule) return module
  const isFile = module.startsWith('file:')
  const path = isFile ? toPath(module) : resolve(baseDir, module)
  if (statSync(path, { throwIfNoEntry: false })?.isFile() === true) return isFile ? module : pathToFileURL(path).href
  if (isFile || /^\.{0,2}\//.test(module))
    throw new ConvokeError('invalid_plan', `There is no module ${excerpt(module)}: no file ${path}.`)
  try {
    return pathToFileURL(createRequire(join(resolve(baseDir), 'agent.js')).resolve(module)).href
  } catch (cause) {
    throw new ConvokeError(
      'invalid_plan',
      `There is no module ${excerpt(module)}: it is neither a file in ${resolve(baseDir)} nor an installed package.`,
      { cause },
    )
  }
}

function toPath(url: string): string {
  try {
    return fileURLToPath(url)
  } catch (cause) {
    throw new ConvokeError('invalid_plan', `${excerpt(url)} is no file's URL.`, { cause })
  }
}
