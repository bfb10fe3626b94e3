/** Who hears an event. A type is any text, so one that is misspelt breaks nothing, and does nothing: that is told to the log. */
import type { Logger } from '../base/logger.ts'
import { closest, excerpt } from '../tools/value.ts'
import { eventTypes } from './events.ts'
import type { AgentPlan, PlannedAction } from './plan.ts'

/** How many types are remembered as told. */
const maxTold = 100

/** The actions of a plan by what they hear; tells the log of each type that nobody hears, once. */
export class Hearing {
  readonly #plan: AgentPlan
  readonly #log: Logger
  readonly #told = new Set<string>()

  constructor(plan: AgentPlan, log: Logger) {
    this.#plan = plan
    this.#log = log
    warnOfLookalikes(plan, log)
  }

  /** The actions that hear a type, in the order in which they were added. `sender` is the action that said it. */
  of(type: string, sender: string | undefined): readonly PlannedAction[] {
    const actions = this.#plan.actionsFor(type)
    if (actions.length === 0) this.#tell(type, sender)
    return actions
  }

  #tell(type: string, sender: string | undefined): void {
    // Outputs leave the agent.
    if (type === 'output' || this.#told.has(type) || this.#told.size >= maxTold) return
    this.#told.add(type)
    // What answers a built-in request is spelt right: it is the listener that is missing.
    const heard = eventTypes.includes(type) ? [] : [...Object.keys(this.#plan.actionsByEvent), 'output']
    const meant = closest(type, heard)
    const hint = meant === undefined ? 'No action of the agent listens to it.' : `Did you mean ${excerpt(meant)}?`
    this.#log.warn(sender === undefined ? {} : { action: sender }, `Nobody hears the event ${excerpt(type)}. ${hint}`)
  }
}

/** Names of the built-in types as people write them from memory. */
const spellings = new Map(
  eventTypes.flatMap((type) => [
    [type, type],
    [`${type}_event`, type],
  ]),
)

function warnOfLookalikes(plan: AgentPlan, log: Logger): void {
  for (const { name, events } of plan.actions.values()) {
    for (const type of events) {
      if (eventTypes.includes(type)) continue
      // Closer than otherwise: an agent's own types may well be like these.
      const meant = closest(type, [...spellings.keys()], Math.max(1, Math.floor(type.length / 6)))
      if (meant === undefined || type === `${meant}s`) continue
      const builtIn = excerpt(spellings.get(meant))
      log.warn(
        `The action ${excerpt(name)} hears ${excerpt(type)}, which is no built-in event. Did you mean ${builtIn}?`,
      )
    }
  }
}
