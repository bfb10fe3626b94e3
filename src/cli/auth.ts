/** `convoke auth`: signs in to agents, keeps what comes of it for the client commands, and signs out. */
import { type Command, Option } from 'commander'
import { addAgentOptions, collect } from './a2a/options.ts'
import { reportUsageAsEnvelope, runClientCommand } from './a2a/run.ts'
import type { LoginFlags, LogoutFlags } from './sign-in.ts'

export function registerAuth(program: Command): void {
  const version = program.version() ?? ''
  const auth = reportUsageAsEnvelope(program.command('auth'))
    .description('Sign in to agents, and out again.')
    .addHelpText('after', '\nExample:\n  convoke auth login -a agent.example.com --client-id my-cli')

  const login = reportUsageAsEnvelope(auth.command('login'))
    .description('Get a token from the authorization server of an agent, and keep it for the other commands.')
    .optionsGroup('Sign-in:')
    .addOption(
      new Option('--flow <flow>', 'who signs in: you, by a code on another device, or the client itself').choices([
        'device',
        'client-credentials',
      ]),
    )
    .option('--client-id <id>', 'the client, as the authorization server knows it')
    .option('--client-secret-stdin', 'read the secret of the client from stdin (or set A2ACLI_CLIENT_SECRET)')
    .option('--scope <scope>', 'ask for this, repeatable (default: what the card requires)', collect)
    .option('--audience <audience>', 'whom the token is for, at servers that ask for it')
    .option('--token-url <url>', 'token endpoint (default: from the card)')
    .option('--device-url <url>', 'device authorization endpoint (default: from the card)')
  addAgentOptions(login, version)
    .addHelpText(
      'after',
      `
Without --flow, the client signs in if its secret is given, and else you do.
-o json prints {origin, expiresAt, scopes}; what you have to do is on stderr.

The token, and the secret of the client for renewing it, are kept in $XDG_CONFIG_HOME/a2a-cli/credentials.json (else
below ~/.config), which only you can read. The token goes to the origin of --agent-card, and nowhere else.

Examples:
  convoke auth login -a bob.example --client-id my-cli
  A2ACLI_CLIENT_SECRET=... convoke auth login -a bob.example --client-id ci`,
    )
    .action(() => runClientCommand<LoginFlags>(login, async (session) => (await import('./sign-in.ts')).login(session)))

  const logout = reportUsageAsEnvelope(auth.command('logout'))
    .description('Forget the token of an agent.')
    .option('--all', 'forget all tokens')
  addAgentOptions(logout, version)
    .addHelpText('after', '\n-o json prints {origins}.\n\nExample:\n  convoke auth logout -a bob.example')
    .action(() =>
      runClientCommand<LogoutFlags>(logout, async (session) => (await import('./sign-in.ts')).logout(session)),
    )

  const status = reportUsageAsEnvelope(auth.command('status')).description(
    'Say where you are signed in and until when; with an agent, fail if not there.',
  )
  addAgentOptions(status, version)
    .addHelpText(
      'after',
      '\n-o json prints [{origin, expiresAt, scopes, renewable}].\n\nExample:\n  convoke auth status',
    )
    .action(() => runClientCommand(status, async (session) => (await import('./sign-in.ts')).showStatus(session)))
}
