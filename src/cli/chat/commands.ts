/** The command `chat`: its argument, options and examples. */
import type { Command } from 'commander'
import { collect } from '../a2a/options.ts'
import { reportUsageAsEnvelope, runClientCommand } from '../a2a/run.ts'
import { addRemoteOptions } from '../remote/options.ts'
import type { ChatFlags } from './chat.ts'

/** Adds `chat` to the program. */
export function registerChat(program: Command): void {
  const command = reportUsageAsEnvelope(program.command('chat'))
    .description('Talk to an agent: any A2A agent, or that of the configuration.')
    .argument('[peer]', 'a URL, HOST:PORT, or a peer of the configuration (default: its own agent, in this process)')
    .optionsGroup('Conversation:')
    .option('--context <id>', 'go on with this conversation (default: a new one)')
    .option('--message <text>', 'send this one message, show the answer, and end')
    .option('--answer <answer>', 'answer to what is asked about that message; repeatable, in order', collect)
  addRemoteOptions(command)
    .addHelpText(
      'after',
      `
Answers come piece by piece; what the agent is at, and which tools it calls, is shown meanwhile. What it asks is
answered by the next line. At a terminal: Ctrl-C stops the answer under way, a second one leaves, and so do Ctrl-D and
/quit; /new begins a new conversation, /context ID goes on with one, /help shows all.
Where stdin is no terminal, each of its lines is a message, as it stands; answers are on stdout, and nothing else.
Where stdout is none, an answer is written when it is complete; one that does not end well is on stderr.
--timeout is for each message. -o json prints a line for each event: {type: sent | task | text | part | restart |
progress | status | question | end, …}; texts of one artifact are one text, and end has the state of the task.

Examples:
  convoke chat
  convoke chat localhost:4120
  convoke chat bob --context 0195…
  convoke chat https://bob.example.com --message "What can you do?"
  convoke chat bob --message "Delete the old files." --answer yes
  convoke chat bob < questions.txt

Exit codes: 0 answered, or left; 1 a task failed, was rejected, or asks with nobody to answer; 2 called wrongly,
3 not reachable, 4 credentials, 5 timeout, 130 interrupted.`,
    )
    .action(async () => {
      const { chat } = await import('./chat.ts')
      // Ctrl-C stops an answer, and not the chat.
      const signals = ['SIGTERM', 'SIGHUP'] as const
      await runClientCommand<ChatFlags>(
        command,
        (session) => chat(session, ...command.args.slice(0, 1)),
        'envFile',
        'each',
        signals,
      )
    })
}
