/** The commands for agents: `agent`. */
import { type Command, Option } from 'commander'
import type { TraceFlags } from './trace.ts'

export function registerAgent(program: Command): void {
  const agent = program
    .command('agent')
    .description('Look into what agents do.')
    .addHelpText('after', '\nExample:\n  convoke agent trace events.jsonl')
  addTrace(agent)
}

function outputOption(text: string): Option {
  return new Option('-o, --output <format>', text).choices(['text', 'json']).default('text')
}

function addTrace(agent: Command): void {
  agent
    .command('trace')
    .description('Show what came of what in the runs of an agent: its event log as trees.')
    .argument('<file>', 'the event log; the older FILE.1 beside it is read, too')
    .option('--run <id>', 'only this run')
    .option('--key <key>', 'only the runs of this key: a conversation, a product, a customer')
    .addOption(
      outputOption('json prints {runs: [{run, key, attempt, state, at, duration_ms, error, events}], broken, dropped}'),
    )
    .addHelpText(
      'after',
      `
Each line is an event with the action that heard it and how long that took; below it stands what the action said.
In JSON the events of a run are one list, each behind its cause: {id, type, at, payload, cause: {event, action}, actions:
[{action, duration_ms, error}]}. What is not known is null. Broken lines are skipped, and counted.

Exit codes: 0 done, 1 no such run or key, 2 called wrongly, or the file is no event log.

Examples:
  convoke agent trace events.jsonl --key customer-7
  convoke agent trace events.jsonl --run 3f0c9a52-6d5e-4c0b-9a3e-0f6f2c1d7b11 -o json`,
    )
    .action(async (file: string, flags: TraceFlags) => {
      const { showTrace } = await import('./trace.ts')
      await showTrace(file, flags)
    })
}
