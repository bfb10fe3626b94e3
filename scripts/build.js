// Builds dist/ from src/ with plain tsc. `prepare` runs this on `npm ci`, so a fresh clone needs no further step.
// dist/ is swapped in whole at the end: a build that fails, or runs beside another, leaves no half of one behind.
import { spawnSync } from 'node:child_process'
import { chmodSync, renameSync, rmSync } from 'node:fs'
import { fileURLToPath } from 'node:url'

const at = (path) => fileURLToPath(new URL(`../${path}`, import.meta.url))
const fresh = at(`.dist-${process.pid}`)

const { status } = spawnSync(
  process.execPath,
  [at('node_modules/typescript/bin/tsc'), '-p', at(''), '--outDir', fresh],
  {
    stdio: 'inherit',
  },
)
if (status === 0) {
  chmodSync(`${fresh}/cli/main.js`, 0o755)
  rmSync(at('dist'), { recursive: true, force: true })
  renameSync(fresh, at('dist'))
} else {
  rmSync(fresh, { recursive: true, force: true })
  process.exitCode = status ?? 1
}
