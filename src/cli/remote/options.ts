/** The options that the commands for peers have in common. */
import { type Command, Option } from 'commander'
import { collect, collectTransport, toDuration } from '../a2a/options.ts'
import type { ClientFlags } from '../a2a/settings.ts'

export interface RemoteFlags extends ClientFlags {
  readonly envFile?: string
}

const configOption = ['-c, --config <file>', 'configuration file (default: convoke.yaml, then convoke.json)'] as const
const timeoutOption = ['--timeout <duration>', 'give up after this time: 30s, 5m (default: none)', toDuration] as const
const envFileOption = [
  '--env-file <file>',
  '.env file with A2ACLI_ variables, in place of the nearest one; not for ${env:NAME} of the configuration',
] as const

/** The options of a command that speaks to no peer. */
export function addOwnOptions(command: Command): Command {
  return addOutputOptions(
    command
      .optionsGroup('Configuration:')
      .option(...configOption)
      .option(...timeoutOption)
      .option(...envFileOption),
  )
}

/** The options that say where peers are configured, as whom to speak to them, and how to show what they answer. */
export function addRemoteOptions(command: Command): Command {
  const withPeers = command
    .optionsGroup('Peers:')
    .option(...configOption)
    .option('--bearer <token>', 'bearer token for the peer named; other users see flags, so prefer A2ACLI_BEARER')
    .option('--api-key <key>', 'API key for the peer named, sent where its card wants it; prefer A2ACLI_API_KEY')
    .option('--svc-param <name:value>', 'one more HTTP header for the peer named; repeatable', collect)
    .addOption(
      new Option(
        '--transport <binding>',
        'JSONRPC or HTTP+JSON, repeatable, best first (default: the order of the card)',
      ).argParser(collectTransport),
    )
    .addOption(new Option('--a2a-version <version>', 'version of A2A (default: 1.0, else 0.3)').choices(['1.0', '0.3']))
    .option('--insecure', 'do not verify certificates; for development (default: verify)')
    .option(...timeoutOption)
    .option(...envFileOption)
  return addOutputOptions(withPeers)
}

function addOutputOptions(command: Command): Command {
  return command
    .optionsGroup('Output:')
    .addOption(new Option('-o, --output <format>', 'text, or JSON').choices(['text', 'json']).default('text'))
    .option('--debug', 'tell on stderr what goes over the wire, without credentials')
}
