/** Lengths of time as people write them. */
import { ConvokeError } from './errors.ts'

const unitMs: Readonly<Record<string, number>> = { ms: 1, s: 1000, m: 60_000, h: 3_600_000, d: 86_400_000 }

/**
 * `250ms`, `30s`, `15m`, `12h`, `7d` (or `1.5h`) in milliseconds, rounded; a number is milliseconds already.
 * Throws `config` for anything else; `what` names the setting in the message.
 */
export function parseDuration(value: string | number, what = 'A duration'): number {
  if (typeof value === 'number') {
    if (Number.isFinite(value) && value >= 0) return value
  } else {
    const [, amount, unit] = /^(\d+(?:\.\d+)?)(ms|s|m|h|d)$/.exec(value) ?? []
    const ms = Math.round(Number(amount) * (unitMs[unit ?? ''] ?? Number.NaN))
    if (Number.isSafeInteger(ms)) return ms
  }
  throw new ConvokeError(
    'config',
    `${what} must be a number with its unit (ms, s, m, h or d) such as 30s or 7d, or milliseconds; it is ${JSON.stringify(value)}.`,
  )
}
