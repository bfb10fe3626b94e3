/** What an examination found: checks in order, and the grade that they make. */

/** `skipped`: it could not be told, or there was nothing to look at. */
export type CheckStatus = 'ok' | 'warning' | 'fail' | 'skipped'

export interface Check {
  /** `card.path`; the same from version to version, for programs. */
  readonly id: string
  readonly status: CheckStatus
  /** What was found, in a sentence. */
  readonly message: string
  /** What to do about it; undefined where nothing is to be done. */
  readonly fix: string | undefined
}

export type Grade = 'A' | 'B' | 'C' | 'D' | 'E' | 'F'

export class Findings {
  readonly checks: Check[] = []
  /** Nothing could be said to the peer at all. */
  isHopeless = false
  readonly #onCheck: (check: Check) => void

  /** Hears each check as it is made. */
  constructor(onCheck: (check: Check) => void = () => {}) {
    this.#onCheck = onCheck
  }

  ok(id: string, message: string): void {
    this.#add({ id, status: 'ok', message, fix: undefined })
  }

  skip(id: string, message: string): void {
    this.#add({ id, status: 'skipped', message, fix: undefined })
  }

  warning(id: string, message: string, fix: string): void {
    this.#add({ id, status: 'warning', message, fix })
  }

  fail(id: string, message: string, fix: string): void {
    this.#add({ id, status: 'fail', message, fix })
  }

  count(status: CheckStatus): number {
    return this.checks.filter((check) => check.status === status).length
  }

  /** A: nothing to mend. B, C: it works, with one or two, or more warnings. D, E: one or two, or more things fail. F: it cannot be spoken to. */
  get grade(): Grade {
    if (this.isHopeless) return 'F'
    const fails = this.count('fail')
    if (fails > 0) return fails > 2 ? 'E' : 'D'
    const warnings = this.count('warning')
    return warnings === 0 ? 'A' : warnings > 2 ? 'C' : 'B'
  }

  #add(check: Check): void {
    this.checks.push(check)
    this.#onCheck(check)
  }
}
