#!/usr/bin/env node
/** The command `convoke`. Exit codes: 0 done, 1 could not do it, 2 called or configured wrongly, 130 stopped twice. */
import { readFileSync } from 'node:fs'
import { Command, CommanderError, InvalidArgumentError, Option } from 'commander'
import { ConvokeError } from '../base/errors.ts'
import type { ServeFlags } from './serve.ts'
import type { TokenFlags } from './token.ts'
import { CommandFailure, toSentence } from './failure.ts'

// Each command loads what it needs: `convoke token` does not wait for a web server and a database.

const { version } = JSON.parse(readFileSync(new URL('../../package.json', import.meta.url), 'utf8')) as {
  version: string
}

function outputOption(text: string): Option {
  return new Option('-o, --output <format>', text).choices(['text', 'json']).default('text')
}

function parsePort(text: string): number {
  const port = Number(text)
  if (!/^\d{1,5}$/.test(text) || port > 65_535) throw new InvalidArgumentError('A port is a number from 0 to 65535.')
  return port
}

const program = new Command('convoke')
  .description('A2A node: publishes typed tools, runs the one a caller names, streams its output and stops it.')
  .version(version)
  .exitOverride()
  .showHelpAfterError('(convoke --help shows what there is)')
  .addHelpText(
    'after',
    `
Examples:
  convoke serve                  run the node that convoke.yaml describes
  convoke token bob              make a token for bob
  convoke config check           say whether convoke.yaml is right

Exit codes: 0 done, 1 could not do it, 2 called or configured wrongly, 130 stopped by a second signal.`,
  )

program
  .command('serve')
  .description('Run a node until SIGTERM or SIGINT; running tasks may then finish, a second signal ends it at once.')
  .option('-c, --config <file>', 'configuration file (default: convoke.yaml, then convoke.json)')
  .option('-p, --port <n>', 'port to listen on; 0 picks a free one', parsePort)
  .option('--host <address>', 'address to listen on')
  .addOption(
    new Option('--log-level <level>', 'least grave lines that go to the log').choices([
      'silent',
      'error',
      'warn',
      'info',
      'debug',
    ]),
  )
  .addOption(outputOption('json prints one line {url, doors, tools} when ready'))
  .addHelpText('after', '\nExample:\n  convoke serve --config alice.yaml --port 0')
  .action(async (flags: ServeFlags) => {
    const { serve } = await import('./serve.ts')
    await serve(flags)
  })

program
  .command('token')
  .description('Make a bearer token (or API key) and the line of configuration that lets it in.')
  .argument('[id]', 'who calls with it', 'caller')
  .option('-s, --scopes <scope...>', 'what it may do: *, message, tool:GLOB (default: everything)')
  .addOption(outputOption('json prints {token, id, sha256, scopes}'))
  .addHelpText('after', `\nExample:\n  convoke token bob --scopes 'tool:count_*' message`)
  .action(async (id: string, flags: TokenFlags) => {
    const { printToken } = await import('./token.ts')
    printToken(id, flags)
  })

program
  .command('config')
  .description('Work on configuration files.')
  .command('check')
  .description(
    'Say everything that is wrong with a configuration file and the modules in it; exit code 0 if nothing is, else 2.',
  )
  .argument('[file]', 'configuration file (default: convoke.yaml, then convoke.json)')
  .option('--no-load', 'read the file only: run no tool module and no agent.module')
  .addHelpText('after', '\nExample:\n  convoke config check deploy/convoke.yaml')
  .action(async (file: string | undefined, flags: { load: boolean }) => {
    const { checkConfig } = await import('./config.ts')
    await checkConfig(file, flags)
    // A module may have opened something that would keep the process alive.
    process.exit(0)
  })

try {
  await program.parseAsync()
} catch (error) {
  // A node that failed to start may have left something open; waiting for it would look like a start.
  process.exit(report(error))
}

/** Says what went wrong in one line (a configuration: one line a mistake) and answers the exit code. */
function report(error: unknown): number {
  // Commander has written its message already; its help and version come as errors too, with code 0.
  if (error instanceof CommanderError) return error.exitCode === 0 ? 0 : 2
  // Mistakes in a file begin with its name and line, where editors and terminals look for it.
  const isAboutFile = error instanceof CommandFailure && error.cause instanceof ConvokeError && error.cause.issues
  process.stderr.write(`${isAboutFile ? '' : 'convoke: '}${toSentence(error)}\n`)
  if (error instanceof CommandFailure && error.debug) console.error(error.cause)
  return error instanceof CommandFailure ? error.exitCode : 1
}
