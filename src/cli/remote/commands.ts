/** The commands for the tools of peers: their arguments, options and examples. */
import type { Command } from 'commander'
import { collect, toMetadata } from '../a2a/options.ts'
import { reportUsageAsEnvelope, runClientCommand } from '../a2a/run.ts'
import type { Session } from '../a2a/session.ts'
import { addRemoteOptions, type RemoteFlags } from './options.ts'

/** Adds `tools`, `call`, `peers`, `doctor` and `types` to the program. */
export function registerRemote(program: Command): void {
  defineTools(program)
  defineCall(program)
  definePeers(program)
  defineDoctor(program)
  defineTypes(program)
}

const peerArgument = 'a peer of the configuration, or a URL'

function defineTools(program: Command): void {
  const command = define(program, 'tools', 'List the tools of a peer, or of all peers of the configuration.')
    .argument('[peer]', `${peerArgument} (default: all peers)`)
    .optionsGroup('Filters:')
    .option('--tag <tag>', 'only tools with this tag; repeatable, all must be there', collect)
    .option('--search <words>', 'only tools with these words in their name or description')
    .option('--schema', 'show the schemas of params and results as well')
    .option('--verbose', 'same as --schema')
  finish(
    command,
    async () => (await import('./tools.ts')).showTools,
    ['convoke tools', 'convoke tools bob --search count', 'convoke tools https://bob.example.com -o json'],
    `-o json prints a list of tools with their schemas. Peers that fail are told on stderr; exit code 1 or more if all do.
What --bearer, --api-key and --svc-param say goes to a peer that is named, never to all.`,
  )
}

function defineCall(program: Command): void {
  const command = define(program, 'call', 'Run a tool of a peer, and show what it says as it comes.')
    .argument('<tool>', 'PEER.TOOL; or a peer or URL, and the tool behind it')
    .argument('[params...]', "its params, a JSON object '{…}', or - to read them from stdin")
    .optionsGroup('Call:')
    .option('--param <name=value>', 'one param, typed as its schema says; a.b for b in a; repeatable', collect)
    .option('--out <file>', 'write the result to a file')
    .option('--stream', 'with -o json: a line of JSON for each event')
    .option('--detach', 'leave the work to the peer, and print the ids of the task and its state')
    .option('--answer <answer>', 'answer to a question of the tool, text or JSON; repeatable, in order', collect)
  finish(
    command,
    async () => (await import('./call.ts')).callTool,
    [
      `convoke call bob.count_to '{"n":3}'`,
      'convoke call bob.count_to --param n=3 --timeout 1m',
      `convoke call localhost:4120 word_count '{"text":"one two"}' -o json`,
    ],
    `Chunks and result are on stdout: as text on a terminal, else a line of JSON each, the result last. Bytes are written
as they are, to a pipe or to --out. Progress is on stderr. Ctrl-C cancels the task and waits for the peer's word.
-o json prints {result, task_id, context_id, execution_time_ms}; with --detach {task_id, context_id, state}, of which
\`-o json | jq -r .task_id\` is the id alone.`,
  )
}

function definePeers(program: Command): void {
  const command = define(program, 'peers', 'Show the peers of the configuration, and whether they can be reached.')
    .optionsGroup('Health:')
    .option('--check', 'exit with 1 if any cannot be reached, or refuses the credentials')
  finish(
    command,
    async () => (await import('./peers.ts')).showPeers,
    ['convoke peers', 'convoke peers --check -o json -c deploy/convoke.yaml'],
    `-o json prints [{peer, url, reachable, name, version, binding, tools, auth, latency_ms, error}]; auth is ok, refused or
unknown. Each peer is asked for its card, and for a task that does not exist: that shows whether it lets us in.`,
  )
}

function defineDoctor(program: Command): void {
  const command = define(program, 'doctor', 'Examine a peer: what is wrong with it, and what to do about it.')
    .argument('<peer>', peerArgument)
    .optionsGroup('Probe:')
    .option('--probe', 'also call a tool that is marked readOnly or idempotent, with made-up params')
    .option('--tool <name>', 'the tool to call; it may change what it changes')
    .option('--params <json>', 'its params, a JSON object (default: made up)', toMetadata)
    .option('--message <text>', 'send this text in place of a call')
  finish(
    command,
    async () => (await import('./doctor.ts')).examine,
    ['convoke doctor bob', 'convoke doctor https://bob.example.com --probe -o json'],
    `Without --probe, --tool and --message nothing is changed at the peer. Exit code 0 if nothing failed, else 1.
-o json prints {grade, checks: [{id, status, message, fix}]}; grades are A to F, a status is ok, warning, fail or
skipped, which is of no matter for the grade.`,
  )
}

function defineTypes(program: Command): void {
  const command = define(program, 'types', "Write the TypeScript types of a peer's tools.")
    .argument('<peer>', peerArgument)
    .optionsGroup('File:')
    .option('--out <file>', 'the file to write, such as bob.d.ts (default: stdout)')
  finish(
    command,
    async () => (await import('./types.ts')).writeTypes,
    ['convoke types bob --out src/bob.d.ts', 'convoke types https://bob.example.com > bob.d.ts'],
    `In a program: import type { Tools } from './bob.js'; const bob = await connectPeer<Tools>(url)
-o json prints {peer, url, tools, types}.`,
  )
}

function define(program: Command, name: string, description: string): Command {
  return reportUsageAsEnvelope(program.command(name).description(description))
}

/** The common options, the help, and the work, which is loaded when it runs. */
function finish<Flags extends RemoteFlags>(
  command: Command,
  load: () => Promise<(session: Session<Flags>, ...args: string[]) => Promise<void>>,
  examples: readonly string[],
  notes: string,
): void {
  addRemoteOptions(command)
    .addHelpText('after', `\n${notes}\n\nExamples:\n${examples.map((line) => `  ${line}\n`).join('')}${exitCodes}`)
    .action(async () => {
      const work = await load()
      await runClientCommand<Flags>(command, (session) => work(session, ...command.args), 'envFile')
    })
}

const exitCodes = `
Exit codes: 0 done, 1 could not do it, 2 called wrongly, 3 not reachable, 4 credentials, 5 timeout.`
