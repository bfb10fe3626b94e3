/** The commands for tools, wherever they are: their arguments, options and examples. */
import { type Command, Option } from 'commander'
import { collect, toMetadata } from '../a2a/options.ts'
import { reportUsageAsEnvelope, runClientCommand } from '../a2a/run.ts'
import type { Session } from '../a2a/session.ts'
import { addOwnOptions, addRemoteOptions, type RemoteFlags } from './options.ts'

/** Adds `tools`, `call`, `servers`, `peers`, `doctor` and `types` to the program. */
export function registerRemote(program: Command): void {
  defineTools(program)
  defineCall(program)
  defineServers(program)
  definePeers(program)
  defineDoctor(program)
  defineTypes(program)
}

const peerArgument = 'a peer of the configuration, or a URL'

function defineTools(program: Command): void {
  const command = define(program, 'tools', 'List the tools of the configuration: its own, of MCP servers, of peers.')
    .argument('[source]', 'an MCP server or peer of the configuration, or the URL of a peer (default: all there are)')
    .optionsGroup('Filters:')
    .addOption(
      new Option(
        '--kind <kind>',
        'only own tools, those of MCP servers, or those of peers; others are not asked',
      ).choices(['local', 'mcp', 'a2a', 'custom']),
    )
    .option('--tag <tag>', 'only tools with this tag; repeatable, all must be there', collect)
    .option('--search <words>', 'only tools that these words fit, in name, description or params; the best first')
    .option('--schema', 'show the schemas of params and results as well')
    .option('--verbose', 'same as --schema')
  finish(
    command,
    async () => (await import('./tools.ts')).showTools,
    [
      'convoke tools',
      'convoke tools --kind mcp --search "read a file"',
      'convoke tools files',
      'convoke tools https://bob.example.com -o json',
    ],
    `-o json prints a list of tools with their schemas, the kind and the source of each. Sources that fail, and tools that
cannot be used, are told on stderr; exit code 1 or more if all sources do, and there is no tool of one's own.
What --bearer, --api-key and --svc-param say goes to a peer that is named, never to all; --timeout is for each source.`,
    { hasOwnLimits: true },
  )
}

function defineCall(program: Command): void {
  const command = define(program, 'call', 'Run a tool, wherever it lives, and show what it says as it comes.')
    .argument('<tool>', 'SERVER.TOOL, PEER.TOOL, or a URL and the tool behind it; an own tool or alias by its name')
    .argument('[params...]', "its params, a JSON object '{…}', or - to read them from stdin")
    .optionsGroup('Call:')
    .option('--param <name=value>', 'one param, typed as its schema says; a.b for b in a; repeatable', collect)
    .option('--out <file>', 'write the result to a file; of several parts the one with bytes')
    .option('--stream', 'with -o json: a line of JSON for each event')
    .option('--detach', 'leave the work to the peer, and print the ids of the task and its state')
    .option('--answer <answer>', 'answer to a question of the tool, text or JSON; repeatable, in order', collect)
  finish(
    command,
    async () => (await import('./call.ts')).callTool,
    [
      `convoke call files.read_file '{"path":"README.md"}'`,
      'convoke call bob.count_to --param n=3 --timeout 1m',
      `convoke call word_count --param text="one two"`,
      `convoke call localhost:4120 word_count '{"text":"one two"}' -o json`,
    ],
    `Tools of peers run there. Those of MCP servers and one's own run here, without a node, as the caller "local" of
toolPolicy; what is started for it is ended with it.
Chunks and result are on stdout: as text on a terminal, else a line of JSON each, the result last. Bytes are written
as they are, to a pipe or to --out. Progress is on stderr. Ctrl-C cancels the call; a peer's word is waited for.
-o json prints {result, task_id, context_id, execution_time_ms}, the ids null where there is no peer; with --detach
{task_id, context_id, state}, of which \`-o json | jq -r .task_id\` is the id alone.`,
  )
}

function defineServers(program: Command): void {
  const command = define(program, 'servers', 'Show the MCP servers of the configuration, and whether they answer.')
    .optionsGroup('Health:')
    .option('--check', 'exit with 1 if any cannot be started or reached, or makes no sense')
  finish(
    command,
    async () => (await import('./servers.ts')).showServers,
    ['convoke servers', 'convoke servers --check -o json -c deploy/convoke.yaml'],
    `Each server is started or connected to, asked for its tools, and ended again. -o json prints [{server, state, transport,
name, version, tools, problems: [{name, reason}], quarantined, ready_ms, error}]; state is up, down or disabled.
--timeout is for each server: one that has not answered by then is down.`,
    { addOptions: addOwnOptions, hasOwnLimits: true },
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

interface FinishOptions {
  readonly addOptions?: (command: Command) => Command
  /** Without arguments it asks all sources, and --timeout is for each of them. Default: false. */
  readonly hasOwnLimits?: boolean
}

/** The common options, the help, and the work, which is loaded when it runs. */
function finish<Flags extends RemoteFlags>(
  command: Command,
  load: () => Promise<(session: Session<Flags>, ...args: string[]) => Promise<void>>,
  examples: readonly string[],
  notes: string,
  { addOptions = addRemoteOptions, hasOwnLimits = false }: FinishOptions = {},
): void {
  addOptions(command)
    .addHelpText('after', `\n${notes}\n\nExamples:\n${examples.map((line) => `  ${line}\n`).join('')}${exitCodes}`)
    .action(async () => {
      const work = await load()
      const limit = hasOwnLimits && command.args.length === 0 ? 'each' : 'all'
      await runClientCommand<Flags>(command, (session) => work(session, ...command.args), 'envFile', limit)
    })
}

const exitCodes = `
Exit codes: 0 done, 1 could not do it, 2 called wrongly, 3 not reachable, 4 credentials, 5 timeout.`
