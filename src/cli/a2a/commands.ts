/** The commands that speak to an agent, any agent: their arguments, options and examples. */
import { type Command, Option } from 'commander'
import { addAgentOptions, collect, stateNames, toCount, toMetadata, toState } from './options.ts'
import { PartFlags } from './parts.ts'
import { reportUsageAsEnvelope, runClientCommand } from './run.ts'
import type { Session } from './session.ts'
import type { AgentFlags } from './settings.ts'

/** Adds `card`, `send` and `task` to the program, and `show` to its `config`. */
export function addClientCommands(program: Command, config: Command, version: string): void {
  const group = (parent: Command, name: string, description: string): Command =>
    reportUsageAsEnvelope(parent.command(name).description(description))
  const client = (parent: Command, name: string, description: string, define: (command: Command) => void): void => {
    const command = group(parent, name, description)
    define(command)
    addAgentOptions(command, version)
  }

  client(program, 'send', 'Send a message to an agent, and wait for what comes of it.', defineSend)
  const card = group(program, 'card', 'Look at agent cards.')
  client(card, 'get', 'Fetch an agent card and show it.', defineCardGet)
  example(card, 'convoke card get -a agent.example.com')

  const task = group(program, 'task', 'Look at the tasks of an agent, follow them, stop them, save what they made.')
  client(task, 'get', 'Show a task: its state and artifacts.', defineTaskGet)
  client(task, 'list', 'List tasks, newest first.', defineTaskList)
  client(task, 'cancel', 'Cancel a task.', defineTaskCancel)
  client(task, 'subscribe', 'Follow a task until it ends.', defineTaskSubscribe)
  client(task, 'download', 'Save the artifacts of a task as files.', defineTaskDownload)
  example(task, 'convoke task list -a agent.example.com')

  const push = group(task, 'push-config', 'Say where an agent reports on a task by itself.')
  client(push, 'create', 'Have the agent report on a task to a URL.', definePushCreate)
  client(push, 'get', 'Show one push configuration of a task.', definePushGet)
  client(push, 'list', 'List the push configurations of a task.', definePushList)
  client(push, 'delete', 'Delete a push configuration of a task.', definePushDelete)
  example(push, 'convoke task push-config create 0195… --url https://example.com/hook')

  client(config, 'show', 'Show the settings of the client commands and where each comes from.', defineConfigShow)
}

/** Taken where it changes nothing: one object is a line of JSON already (appendix B of the specification). */
/** For commands that only hold others. */
function example(command: Command, line: string): void {
  command.addHelpText('after', `\nExample:\n  ${line}`)
}

function streamTaken(): Option {
  return new Option('--stream').hideHelp()
}

const resultNote = `
The agent's result is no matter of the exit code: 0 is also a task that failed or asks back.
Exit codes: 0 done, 1 could not do it, 2 called wrongly, 3 not reachable, 4 credentials, 5 timeout.
Every option but --stream can be set by a variable, in the environment or a .env file: A2ACLI_AGENT_CARD, A2ACLI_BEARER.`

function examples(command: Command, ...lines: readonly string[]): Command {
  return command.addHelpText('after', `\nExamples:\n${lines.map((line) => `  ${line}\n`).join('')}${resultNote}`)
}

function defineSend(command: Command): void {
  const parts = new PartFlags()
  const add = (kind: 'text' | 'file' | 'data') => (value: string) => parts.add(kind, value)
  command
    .argument('[text]', 'what to say')
    .optionsGroup('Message:')
    .option('--text <text>', 'a text part; parts keep their order, all are repeatable', add('text'))
    .option('--file <path>', 'a part from a file; a URL is passed on as a reference', add('file'))
    .option('--data <path>', 'a part of JSON from a file, or from stdin with -', add('data'))
    .option('--media-type <type>', 'media type of the part before it (default: by extension)', (value: string) =>
      parts.setMediaType(value),
    )
    .option('--metadata <json>', 'metadata of the message, a JSON object', toMetadata)
    .option('--context-id <id>', 'begin a new task in this context')
    .option('--task-id <id>', 'go on with this task')
    .option('--message-id <id>', 'id of the message; the same again when it is sent again (default: a new one)')
    .optionsGroup('Delivery:')
    .option('--wait', 'wait until the task ends or asks (default)')
    .option('--async', 'answer at once, with the ids of the task')
    .option('--return-immediately', 'same as --async')
    .option('--no-wait', 'same as --async')
    .option('--stream', 'show events as they come; with -o json a line of JSON each')
    .action(async (text: string | undefined) => {
      const { send } = await import('./send.ts')
      await runClientCommand(command, (session) => send(session, text, parts))
    })
  examples(
    command,
    'convoke send -a localhost:4120 "What can you do?"',
    'convoke send -a agent.example.com --task-id 0195… "yes, go on" --stream',
    'convoke send --text "Sum this up" --file report.bin --media-type application/pdf -o json',
  )
}

function defineCardGet(command: Command): void {
  command.option('--validate', 'check the card against the schema of A2A 1.0; exit code 1 if it breaks it')
  command.addOption(streamTaken())
  run(command, async () => (await import('./card.ts')).getCard)
  examples(command, 'convoke card get -a agent.example.com', 'convoke card get -a ./agent-card.json --validate')
}

function defineTaskGet(command: Command): void {
  command
    .argument('<task-id>', 'the task')
    .option('--history <n>', 'show its last n messages (default: none)', toCount)
    .option('--wait', 'ask until it ends or waits for its caller (default: once)')
    .option('--watch', 'same as --wait')
    .addOption(streamTaken())
  run(command, async () => (await import('./tasks.ts')).getTask)
  examples(command, 'convoke task get 0195…', 'convoke task get --wait --poll-interval 5s --timeout 10m 0195…')
}

function defineTaskList(command: Command): void {
  command
    .addOption(new Option('--status <state>', `only tasks in this state`).choices(stateNames).argParser(toState))
    .option('--context-id <id>', 'only tasks of this context')
    .option('--page-size <n>', "tasks a page (default: the agent's own)", toCount)
    .option('--page-token <token>', 'the page that the last answer named as the next')
    .option('--all', 'all pages')
    .option('--history <n>', 'with the last n messages of each (default: none)', toCount)
    .option('--stream', 'with -o json: one line for each task')
  run(command, async () => (await import('./tasks.ts')).listTasks)
  examples(command, 'convoke task list --status WORKING', 'convoke task list --all --stream -o json')
}

function defineTaskCancel(command: Command): void {
  command.argument('<task-id>', 'the task').addOption(streamTaken())
  run(command, async () => (await import('./tasks.ts')).cancelTask)
  examples(command, 'convoke task cancel 0195…')
}

function defineTaskSubscribe(command: Command): void {
  command
    .argument('<task-id>', 'the task')
    .option('--stream', 'show events as they come (default: the task when it has ended)')
    .option('--last-event-id <n>', 'go on behind this event, at agents that number them', toCount)
  run(command, async () => (await import('./tasks.ts')).subscribe)
  examples(command, 'convoke task subscribe 0195… --stream')
}

function defineTaskDownload(command: Command): void {
  command
    .argument('<task-id>', 'the task')
    .option('--dir <folder>', 'where to; it is made if need be', '.')
    .option('--out <file>', 'the one file to write')
    .option('--artifact <name>', 'only this artifact, by id or name; repeatable (default: all)', collect)
    .option('--fetch-urls', 'also get the files that the agent names by URL')
    .option('--force', 'overwrite files')
  run(command, async () => (await import('./download.ts')).download)
  examples(
    command,
    'convoke task download 0195… --dir results',
    'convoke task download 0195… --artifact chart --out chart.png',
  )
}

function definePushCreate(command: Command): void {
  command
    .argument('<task-id>', 'the task')
    .option('--url <url>', 'where the agent sends its reports')
    .option('--token <token>', 'sent back with each report, to know it by')
    .option('--auth-scheme <scheme>', 'how the agent authenticates at the URL, such as Bearer')
    .option('--auth-credentials <credentials>', 'with what; other users see flags, so prefer A2ACLI_AUTH_CREDENTIALS')
    .option('--id <id>', "id of the configuration (default: the agent's choice)")
  run(command, async () => (await import('./push.ts')).createPushConfig)
  examples(command, 'convoke task push-config create 0195… --url https://example.com/hook --token T')
}

function definePushGet(command: Command): void {
  command.argument('<task-id>', 'the task').argument('<config-id>', 'the configuration')
  run(command, async () => (await import('./push.ts')).getPushConfig)
  examples(command, 'convoke task push-config get 0195… 0196…')
}

function definePushList(command: Command): void {
  command.argument('<task-id>', 'the task')
  run(command, async () => (await import('./push.ts')).listPushConfigs)
  examples(command, 'convoke task push-config list 0195…')
}

function definePushDelete(command: Command): void {
  command.argument('<task-id>', 'the task').argument('<config-id>', 'the configuration')
  run(command, async () => (await import('./push.ts')).deletePushConfig)
  examples(command, 'convoke task push-config delete 0195… 0196…')
}

function defineConfigShow(command: Command): void {
  run(command, async () => (await import('./config-show.ts')).showConfig)
  examples(command, 'convoke config show -a agent.example.com', 'convoke config show --config staging.env -o json')
}

/** The work of a command, loaded when it runs, with the command's arguments. */
function run<Flags extends AgentFlags>(
  command: Command,
  load: () => Promise<(session: Session<Flags>, ...args: string[]) => Promise<void> | void>,
): void {
  command.action(async () => {
    const work = await load()
    await runClientCommand<Flags>(command, async (session) => work(session, ...command.args))
  })
}
