// Builds dist/ from src/ with plain tsc. `prepare` runs this on `npm ci`, so a fresh clone needs no further step.
import { spawnSync } from 'node:child_process'
import { chmodSync, rmSync } from 'node:fs'
import { fileURLToPath } from 'node:url'

const root = fileURLToPath(new URL('..', import.meta.url))
const tsc = fileURLToPath(new URL('../node_modules/typescript/bin/tsc', import.meta.url))

rmSync(new URL('../dist', import.meta.url), { recursive: true, force: true })
const { status } = spawnSync(process.execPath, [tsc, '-p', root], { stdio: 'inherit' })
if (status !== 0) process.exit(status ?? 1)
chmodSync(new URL('../dist/cli/main.js', import.meta.url), 0o755)
