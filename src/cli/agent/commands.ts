/** The commands for agents: `agent`. */
import { type Command, InvalidArgumentError, Option } from 'commander'
import type { RunFlags } from './run.ts'
import type { TraceFlags } from './trace.ts'

export function registerAgent(program: Command): void {
  const agent = program
    .command('agent')
    .description('Run agents over files, and look into what they do.')
    .addHelpText('after', '\nExample:\n  convoke agent run agent.js --input items.jsonl --out results.jsonl')
  addRun(agent)
  addTrace(agent)
}

function outputOption(text: string): Option {
  return new Option('-o, --output <format>', text).choices(['text', 'json']).default('text')
}

const mostAtOnce = 10_000

function toConcurrency(text: string): number {
  const n = Number(text)
  if (!/^\d+$/.test(text) || n < 1 || n > mostAtOnce)
    throw new InvalidArgumentError(`Give a whole number from 1 to ${mostAtOnce}.`)
  return n
}

function addRun(agent: Command): void {
  agent
    .command('run')
    .description('Run an agent over the items of a file; the same command again goes on where it was stopped.')
    .argument('<agent.js>', 'a module that exports an Agent, or a class that extends it: as default, or as `agent`')
    .requiredOption('--input <file>', 'a line of JSON for each item, {"key": …, "value": …}; - for stdin')
    .option('--out <file>', 'where outputs go, a line {"key": …, "value": …} each (default: stdout)')
    .option(
      '--state <file>',
      'what is done so far (default: the input with .state.db behind it, gone when all is done)',
    )
    .option('--key <field>', 'the member of each line that is its key; the whole line is the value then')
    .option('--export <name>', 'the export of the module that is the agent')
    .addOption(
      new Option('--concurrency <n>', 'how many items are run at the same time, of as many keys')
        .argParser(toConcurrency)
        .default(10),
    )
    .addOption(
      new Option('--fail <how>', 'when an item fails: stop, or go on')
        .choices(['fast', 'continue'])
        .default('continue'),
    )
    .option(
      '-c, --config <file>',
      'a convoke.yaml whose models, tools, MCP servers and peers the agent has, as on its node',
    )
    .option('--settings <file>', 'context.config of the actions, YAML or JSON (default: agent.settings of --config)')
    .option('--event-log <file>', 'write down what happens; convoke agent trace shows it')
    .addOption(outputOption('what is told on stderr: text, or lines of JSON'))
    .addHelpText(
      'after',
      `
Items of one key are run in their order, those of different keys at the same time. An item's id is its line, so what is
done is not done again, by Ctrl-C or a crash; steps of durableExecute within an item neither. The output file is written
from what is committed: no output is lost, none comes twice, and the file holds nothing else. On stdout each start
prints all outputs from the beginning. A line that is no item counts as failed; what failed is tried again at the next
start, behind items of its key that went well. Once all is done, the same command begins anew, with another --out; a
state that was named stays, and then only lines that were added are run.
Without --config nothing of a convoke.yaml is read: the agent has its own resources alone.
-o json prints {type: failure, line, key, code, message}, {type: progress, done, failed, before, per_second, seconds_left},
{type: warning, message}, {type: log, …} and last {type: summary, outcome: done | failed | stopped | interrupted, done, failed, before, outputs,
seconds, out, state}.

Exit codes: 0 all done, 1 some failed, or it could not go on, 2 called wrongly, 130 interrupted.

Examples:
  convoke agent run agent.js --input reviews.jsonl --out scores.jsonl
  convoke agent run agent.js --config convoke.yaml --input reviews.jsonl --out scores.jsonl
  convoke agent run agents.js --export Scorer --input reviews.jsonl --key product --concurrency 50
  generate | convoke agent run agent.js --input - > scores.jsonl`,
    )
    .action(async (file: string, flags: RunFlags) => {
      const { runAgent } = await import('./run.ts')
      await runAgent(file, flags)
    })
}

function addTrace(agent: Command): void {
  agent
    .command('trace')
    .description('Show what came of what in the runs of an agent: its event log as trees.')
    .argument('<file>', 'the event log; the older FILE.1 beside it is read, too')
    .option('--run <id>', 'only this run')
    .option('--key <key>', 'only the runs of this key: a product, a customer, a conversation by its contextId')
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
