/** The tree of commands: what there is, with which options. Each command loads what it needs when it runs. */
import { readFileSync } from 'node:fs'
import { Argument, Command, InvalidArgumentError, Option } from 'commander'
import { addClientCommands } from './a2a/commands.ts'
import { helpCommand } from './a2a/run.ts'
import { registerAgent } from './agent/commands.ts'
import { registerAuth } from './auth.ts'
import { registerChat } from './chat/commands.ts'
import type { Shell } from './completion.ts'
import type { CheckFlags } from './config.ts'
import { CommandFailure } from './failure.ts'
import { registerRemote } from './remote/commands.ts'
import type { McpFlags } from './mcp.ts'
import { registerRules } from './rules/commands.ts'
import type { ServeFlags } from './serve.ts'
import type { TokenFlags } from './token.ts'

const { version } = JSON.parse(readFileSync(new URL('../../package.json', import.meta.url), 'utf8')) as {
  version: string
}

/** A new tree: parsing leaves the values of options in it. */
export function createProgram(): Command {
  const program = new Command('convoke')
    .description('A2A node and client: publishes typed tools and runs them; talks to any A2A agent.')
    .version(version, '-v, --version', 'print the version')
    .exitOverride()
    .addHelpText(
      'after',
      `
Examples:
  convoke serve                          run the node that convoke.yaml describes
  convoke mcp                            serve its tools to an MCP host over stdio
  convoke token bob                      make a token for bob
  convoke config check                   say whether convoke.yaml is right
  convoke card get -a agent.example.com  show who an agent is
  convoke chat localhost:4120            talk to an agent
  convoke tools                          show the tools of convoke.yaml, wherever they live
  convoke tools localhost:4120           show the tools of an agent
  convoke call bob.echo '{"text":"hi"}'  run a tool of the peer or MCP server bob of convoke.yaml

Exit codes: 0 done, 1 could not do it, 2 called or configured wrongly, 130 interrupted (serve and mcp: by a second signal).
Commands that talk to an agent also know 3 (not reachable), 4 (credentials) and 5 (timeout).`,
    )

  program.commandsGroup('Node:')
  addServe(program)
  addMcp(program)
  addToken(program)
  const config = program
    .command('config')
    .description('Work on configurations.')
    .addHelpText('after', '\nExample:\n  convoke config check convoke.yaml')
  addConfigCheck(config)
  program.commandsGroup('Client:')
  registerChat(program)
  addClientCommands(program, config, version)
  registerAuth(program)
  program.commandsGroup('Tools:')
  registerRemote(program)
  program.commandsGroup('Agents:')
  registerAgent(program)
  program.commandsGroup('Tool policy:')
  registerRules(program)
  program.commandsGroup('Shell:')
  addCompletion(program)
  pointToHelp(program)
  return program
}

/** What is wrong with a command line is told with the help of that command. */
function pointToHelp(command: Command): void {
  command.showHelpAfterError(`(${helpCommand(command)} shows what there is)`)
  for (const each of command.commands) pointToHelp(each)
}

function outputOption(text: string): Option {
  return new Option('-o, --output <format>', text).choices(['text', 'json']).default('text')
}

function logLevelOption(): Option {
  const levels = ['silent', 'error', 'warn', 'info', 'debug']
  return new Option('--log-level <level>', 'least grave lines that go to the log').choices(levels)
}

function parsePort(text: string): number {
  const port = Number(text)
  if (!/^\d{1,5}$/.test(text) || port > 65_535) throw new InvalidArgumentError('A port is a number from 0 to 65535.')
  return port
}

function addServe(program: Command): void {
  program
    .command('serve')
    .description(
      'Run a node until SIGTERM, SIGINT or SIGHUP; running tasks may then finish, a second signal ends it at once.',
    )
    .option('-c, --config <file>', 'configuration file (default: convoke.yaml, then convoke.json)')
    .option('-p, --port <n>', 'port to listen on; 0 picks a free one', parsePort)
    .option('--host <address>', 'address to listen on')
    .addOption(logLevelOption())
    .addOption(outputOption('json prints one line {url, doors, tools} when ready'))
    .addHelpText('after', '\nExample:\n  convoke serve --config alice.yaml --port 0')
    .action(async (flags: ServeFlags) => {
      const { serve } = await import('./serve.ts')
      await serve(flags)
    })
}

function addMcp(program: Command): void {
  program
    .command('mcp')
    .description('Serve the tools of a node, or of agents, to an MCP host over stdin and stdout, until stdin ends.')
    .argument('[urls...]', 'agents whose tools are served, in place of a configuration')
    .option('-c, --config <file>', 'configuration file (default: convoke.yaml, then convoke.json)')
    .option('--store <url>', 'where tasks are kept, such as sqlite:./mcp.db (default: in memory)')
    .addOption(logLevelOption())
    .option('--install-hint', 'print the block for the configuration of an MCP host, and end')
    .addHelpText(
      'after',
      '\nExamples:\n  convoke mcp --config alice.yaml\n  convoke mcp https://bob.example.com\n  convoke mcp --install-hint',
    )
    .action(async (urls: string[], flags: McpFlags) => {
      const { serveMcp } = await import('./mcp.ts')
      await serveMcp(urls, flags)
    })
}

function addToken(program: Command): void {
  program
    .command('token')
    .description('Make a bearer token (or API key) and the line of configuration that lets it in.')
    .argument('[id]', 'who calls with it', 'caller')
    .option(
      '-s, --scopes <scopes>',
      'what it may do: *, message, tool:GLOB; a list with commas, repeatable (default: everything)',
      collectScopes,
    )
    .addOption(outputOption('json prints {token, id, sha256, scopes}'))
    .addHelpText('after', `\nExample:\n  convoke token bob --scopes 'tool:count_*,message'`)
    .action(async (id: string, flags: TokenFlags) => {
      const { printToken } = await import('./token.ts')
      printToken(id, flags)
    })
}

function collectScopes(list: string, previous: readonly string[] = []): string[] {
  return [...previous, ...list.split(',').map((scope) => scope.trim())]
}

function addConfigCheck(config: Command): void {
  config
    .command('check')
    .description(
      'Say everything that is wrong with a configuration file and the modules in it; exit code 0 if nothing is, else 2.',
    )
    .argument('[file]', 'configuration file (default: convoke.yaml, then convoke.json)')
    .option('-c, --config <file>', 'the same, as other commands take it')
    .option('--no-load', 'read the file only: run no tool module and no agent.module')
    .addOption(outputOption('json prints {file, valid, problems: [{message, line?, column?, path?}], warnings}'))
    .addHelpText('after', '\nExample:\n  convoke config check deploy/convoke.yaml')
    .action(async (argument: string | undefined, flags: CheckFlags & { readonly config?: string }) => {
      const file = argument ?? flags.config
      if (flags.config !== undefined && file !== flags.config) {
        throw new CommandFailure(2, `Two files are named, ${file} and ${flags.config}. Check one after the other.`)
      }
      const { checkConfig } = await import('./config.ts')
      await checkConfig(file, flags)
      // A module may have opened something that would keep the process alive.
      process.exit(0)
    })
}

function addCompletion(program: Command): void {
  program
    .command('completion')
    .description('Print a script that completes commands and options in a shell.')
    .addArgument(new Argument('<shell>', 'which').choices(['bash', 'zsh', 'fish']))
    .addHelpText('after', '\nExample:\n  source <(convoke completion bash)')
    .action(async (shell: Shell) => {
      const { completionScript } = await import('./completion.ts')
      process.stdout.write(completionScript(program, shell))
    })
}
