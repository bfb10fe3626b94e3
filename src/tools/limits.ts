/** How many calls may run at once: of a tool, at a source, for a caller. More wait their turn; a full line turns them away. */
import { defaultMaxWaiting, Gate } from './gate.ts'
import { serviceOf } from './table.ts'
import type { Tool, ToolContext } from './tool.ts'

export interface CallLimits {
  /** Calls of one tool; a tool's own `concurrency` comes before it. Default: no limit. */
  readonly perTool?: number
  /** Calls at one peer or MCP server, or of all the agent's own tools together. Default: no limit. */
  readonly perSource?: number
  /** Calls of one caller. Default: no limit. */
  readonly perCaller?: number
  /** How many may wait in each line. More are `rate_limited`. Default: 1,000. */
  readonly maxWaiting?: number
}

/** One pass through the gates. Call it once, when the call has ended. */
export type Leave = () => void

/** A tool's own limit holds however it is called. */
const ownGates = new WeakMap<Tool, Gate>()

/** The lines of one tool space. */
export class Limits {
  readonly #limits: CallLimits
  readonly #maxWaiting: number
  readonly #ofTools = new WeakMap<Tool, Gate>()
  /** Those in use only: there may be any number of callers. */
  readonly #others = new Map<string, Gate>()

  constructor(limits: CallLimits = {}) {
    this.#limits = limits
    this.#maxWaiting = limits.maxWaiting ?? defaultMaxWaiting
  }

  /**
   * Goes through the gates that the call must pass, in one order for all; undefined where there is none. Throws, or
   * rejects with, `rate_limited` where a line is full, and the reason of the signal when that aborts first. A call that
   * is part of one that waits for it takes no place: it would wait for itself.
   */
  enter(tool: Tool, context: ToolContext): Leave | Promise<Leave> | undefined {
    const { perTool, perSource, perCaller } = this.#limits
    const { concurrency = perTool } = tool.traits
    if (concurrency === undefined && perSource === undefined && perCaller === undefined) return undefined
    const { hop } = context
    if (hop?.reentrant === true) return undefined
    const isInner = hop?.inner === true
    const service = serviceOf(tool)
    const passes: Pass[] = []
    if (concurrency !== undefined) passes.push(this.#passOfTool(tool, concurrency))
    // Only what runs in this process can call on: an own tool that calls another would wait for itself.
    if (perSource !== undefined && !(isInner && service === '')) {
      const what = service === '' ? 'This agent' : `"${service}"`
      passes.push(this.#passOf(`source ${service}`, perSource, what))
    }
    if (perCaller !== undefined && !isInner) {
      const { id, tenant = '' } = context.caller
      passes.push(this.#passOf(`caller ${tenant} ${id}`, perCaller, `The caller "${id}"`))
    }
    if (passes.length === 0) return undefined
    return enterAll(passes, context)
  }

  #passOfTool(tool: Tool, limit: number): Pass {
    const gates = tool.traits.concurrency === undefined ? this.#ofTools : ownGates
    let gate = gates.get(tool)
    if (gate === undefined) gates.set(tool, (gate = new Gate(limit, this.#maxWaiting)))
    const own = gate
    const what = `The tool "${tool.name}"`
    return { enter: (call) => own.enter(call, what), leave: () => own.leave() }
  }

  /** The gate is looked up when the call comes to it: while it stood in an earlier line, the one of before may have gone. */
  #passOf(key: string, limit: number, what: string): Pass {
    let own: Gate | undefined
    return {
      enter: (call) => {
        own = this.#others.get(key)
        if (own === undefined) this.#others.set(key, (own = new Gate(limit, this.#maxWaiting)))
        return own.enter(call, what)
      },
      leave: () => {
        own?.leave()
        if (own?.isIdle === true) this.#others.delete(key)
      },
    }
  }
}

/** One gate on a call's way. `leave` is for calls that got in. */
interface Pass {
  /** As {@link Gate.enter}. */
  enter(call: Pick<ToolContext, 'signal'>): Promise<void> | undefined
  leave(): void
}

function enterAll(passes: readonly Pass[], context: ToolContext): Leave | Promise<Leave> {
  const entered: Pass[] = []
  const leave: Leave = () => {
    for (const pass of entered.splice(0).reverse()) pass.leave()
  }
  for (const [index, pass] of passes.entries()) {
    let turn: Promise<void> | undefined
    try {
      turn = pass.enter(context)
    } catch (error) {
      leave()
      throw error
    }
    if (turn !== undefined) return wait(passes, index, turn, entered, leave, context)
    entered.push(pass)
  }
  return leave
}

async function wait(
  passes: readonly Pass[],
  from: number,
  turn: Promise<void>,
  entered: Pass[],
  leave: Leave,
  context: ToolContext,
): Promise<Leave> {
  try {
    await turn
    for (const [index, pass] of passes.entries()) {
      if (index < from) continue
      if (index > from) await pass.enter(context)
      entered.push(pass)
    }
    return leave
  } catch (error) {
    leave()
    throw error
  }
}
