/** TypeScript that neither Node nor the tests' transform runs: standard decorators. The compiler makes JavaScript of it. */
import { execFile } from 'node:child_process'
import { mkdir, mkdtemp, rm, symlink, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join, resolve } from 'node:path'
import { promisify } from 'node:util'

const root = resolve(import.meta.dirname, '../..')

/**
 * Compiles a folder below test/ into a folder of its own, where `convoke` is this package. `options` are further ones of the
 * compiler. Returns that folder, and how to remove it.
 * Types are checked with those of all tests, not here.
 */
export async function compiled(
  folder: string,
  options: Readonly<Record<string, unknown>> = {},
): Promise<{ folder: string; remove: () => Promise<void> }> {
  const into = await mkdtemp(join(tmpdir(), 'convoke-compiled-'))
  const from = join(root, 'test', folder)
  const settings = {
    extends: join(root, 'tsconfig.json'),
    compilerOptions: { rootDir: from, outDir: into, declaration: false, noCheck: true, types: [], ...options },
    include: [`${from}/*.ts`],
  }
  await writeFile(join(into, 'tsconfig.json'), JSON.stringify(settings))
  await writeFile(join(into, 'package.json'), '{"type":"module"}')
  await mkdir(join(into, 'node_modules'))
  await symlink(root, join(into, 'node_modules/convoke'))
  await promisify(execFile)(process.execPath, [join(root, 'node_modules/typescript/bin/tsc'), '-p', into])
  return { folder: into, remove: () => rm(into, { recursive: true }) }
}
