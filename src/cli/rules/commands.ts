/** The commands for what tools may do: `policy` and `pins`. */
import { type Command, Option } from 'commander'
import type { PinsFlags } from './pins.ts'
import type { WhyFlags } from './policy.ts'

export function registerRules(program: Command): void {
  addPolicy(program)
  addPins(program)
}

const configOption = ['-c, --config <file>', 'configuration file (default: convoke.yaml, then convoke.json)'] as const

function outputOption(text: string): Option {
  return new Option('-o, --output <format>', text).choices(['text', 'json']).default('text')
}

function addPolicy(program: Command): void {
  const policy = program
    .command('policy')
    .description('Work on the tool policy of a configuration.')
    .addHelpText('after', `\nExample:\n  convoke policy why bob files.write '{"path":"a.txt"}'`)
  policy
    .command('why')
    .description('Explain whether a caller may call a tool, rule by rule. Calls nobody.')
    .argument('<caller>', 'id of the caller, or TENANT/ID; local is the node itself')
    .argument('<tool>', 'handle of the tool: SERVICE.NAME, the name of a local one, or an alias')
    .argument('[params]', 'arguments of the call, as a JSON object (default: any)')
    .option('--scopes <scopes>', 'what the caller may do, a list with commas (default: what server.auth.tokens says)')
    .option('--agent <id>', 'the agent that makes the call (default: none)')
    .option(...configOption)
    .addOption(
      outputOption('json prints {caller, tool, decision, possible, rule, reason, scopesAllow, visible, rules}'),
    )
    .addHelpText(
      'after',
      `
Exit codes: 0 allowed, or allowed once it is approved; 1 denied, or denied with some arguments; 2 called wrongly.

Local tools are loaded. What the tags and traits of others' tools are is not known here, as nobody is asked.

Examples:
  convoke policy why bob files.write '{"path":"a.txt"}'
  convoke policy why acme/ann bob.count_to --scopes 'tool:*' -o json`,
    )
    .action(async (caller: string, tool: string, params: string | undefined, flags: WhyFlags) => {
      const { explainWhy } = await import('./policy.ts')
      await explainWhy(caller, tool, params, flags)
    })
}

function addPins(program: Command): void {
  const pins = program
    .command('pins')
    .description('See and approve what tools of peers and MCP servers say of themselves. A running node takes it up.')
    .addHelpText('after', '\nExample:\n  convoke pins diff && convoke pins approve bob.count_to')
  pins
    .command('list')
    .description('Show every pinned tool, and which are quarantined.')
    .argument('[handles...]', 'these only')
    .option(...configOption)
    .addOption(outputOption('json prints [{handle, state, hash, firstSeen, lastSeen, changedAt, pending}]'))
    .addHelpText('after', '\nExample:\n  convoke pins list')
    .action(async (handles: string[], flags: PinsFlags) => (await import('./pins.ts')).listPins(handles, flags))
  pins
    .command('diff')
    .description('Show what changed at tools: what is held back, else the last change that was taken.')
    .argument('[handles...]', 'tools (default: all that are quarantined)')
    .option(...configOption)
    .addOption(outputOption('json prints [{handle, state, at, before, after, description, places}]'))
    .addHelpText('after', '\nExample:\n  convoke pins diff bob.count_to')
    .action(async (handles: string[], flags: PinsFlags) => (await import('./pins.ts')).diffPins(handles, flags))
  pins
    .command('approve')
    .description('Take the change of quarantined tools: they can be called again at once.')
    .argument('[handles...]', 'tools')
    .option('--all', 'all that are quarantined')
    .option('--hash <hash>', 'only if the change is still the one that convoke pins diff showed')
    .option(...configOption)
    .addOption(outputOption('json prints [{handle, hash}] of those that were quarantined'))
    .addHelpText('after', '\nExample:\n  convoke pins approve bob.count_to --hash 5f0c2ab09e1d')
    .action(async (handles: string[], flags: PinsFlags) => (await import('./pins.ts')).approvePins(handles, flags))
}
