/**
 * `convoke completion`: scripts that complete commands, options and choices in a shell. They are made from the tree of
 * commands, so that none of them knows an option that is not there.
 */
import type { Command, Option } from 'commander'

export type Shell = 'bash' | 'zsh' | 'fish'

/** One command as a shell sees it. */
interface Place {
  /** `task get`; empty for the program itself. */
  readonly path: string
  readonly commands: readonly { readonly name: string; readonly description: string }[]
  readonly options: readonly Flag[]
  /** What the first argument may be, if that is known. */
  readonly choices: readonly string[]
}

interface Flag {
  /** `-a`, `--agent-card` */
  readonly names: readonly string[]
  readonly description: string
  readonly takesValue: boolean
  /** The values there are; empty where any will do, and files are offered. */
  readonly choices: readonly string[]
}

/** The script for one shell. */
export function completionScript(program: Command, shell: Shell): string {
  const places = placesOf(program)
  const name = program.name()
  switch (shell) {
    case 'bash':
      return bashScript(name, places)
    case 'zsh':
      // zsh runs bash's completions; they complete the same words, without descriptions.
      return `#compdef ${name}\nautoload -U +X bashcompinit && bashcompinit\n${bashScript(name, places)}`
    case 'fish':
      return fishScript(name, places)
  }
}

function placesOf(command: Command, parents: readonly string[] = []): Place[] {
  const help = command.createHelp()
  const commands = help.visibleCommands(command)
  const place: Place = {
    path: parents.join(' '),
    commands: commands.map((each) => ({ name: each.name(), description: each.description() })),
    options: help.visibleOptions(command).map(toFlag),
    choices: command.registeredArguments[0]?.argChoices ?? [],
  }
  return [place, ...command.commands.flatMap((each) => placesOf(each, [...parents, each.name()]))]
}

function toFlag(option: Option): Flag {
  return {
    names: [option.short, option.long].filter((name) => name !== undefined && name !== null),
    description: option.description,
    takesValue: option.required || option.optional,
    choices: option.argChoices ?? [],
  }
}

function bashScript(name: string, places: readonly Place[]): string {
  const paths = places.filter(({ path }) => path !== '').map(({ path }) => quote(path))
  const words = places.map(({ path, commands, options, choices }) => {
    const all = [...commands.map((each) => each.name), ...choices, ...options.flatMap((option) => option.names)]
    return `    ${quote(path)}) words=${quote(all.join(' '))} ;;\n`
  })
  const values = places.flatMap(({ path, options }) =>
    options.flatMap(({ names, takesValue, choices }) => {
      if (!takesValue) return []
      const patterns = names.map((each) => quote(`${path} ${each}`)).join('|')
      return [`    ${patterns}) values=${choices.length === 0 ? '' : quote(choices.join(' '))}; return 0 ;;\n`]
    }),
  )
  return `# bash completion for ${name}: source <(${name} completion bash)
_${name}_words() {
  case "$1" in
${words.join('')}    *) words='' ;;
  esac
}

# Whether the option takes a value, and which.
_${name}_values() {
  values=''
  case "$1 $2" in
${values.join('')}  esac
  return 1
}

_${name}() {
  local current="\${COMP_WORDS[COMP_CWORD]}" previous="" path="" words="" values="" word index
  COMPREPLY=()
  for ((index = 1; index < COMP_CWORD; index++)); do
    word="\${COMP_WORDS[index]}"
    if [[ "$word" == -* ]]; then
      previous="$word"
      if _${name}_values "$path" "$word"; then ((index++)); fi
      if ((index < COMP_CWORD)); then previous=""; fi
      continue
    fi
    previous=""
    case "\${path:+$path }$word" in
      ${paths.join('|')}) path="\${path:+$path }$word" ;;
    esac
  done
  if [[ -n "$previous" ]] && _${name}_values "$path" "$previous"; then
    if [[ -n "$values" ]]; then
      COMPREPLY=($(compgen -W "$values" -- "$current"))
    else
      compopt -o default 2>/dev/null || COMPREPLY=($(compgen -f -- "$current"))
    fi
    return
  fi
  _${name}_words "$path"
  COMPREPLY=($(compgen -W "$words" -- "$current"))
}
complete -F _${name} ${name}
`
}

function fishScript(name: string, places: readonly Place[]): string {
  const lines = places.flatMap(({ path, commands, options, choices }) => {
    const at = `-n ${quote(`__${name}_at ${path}`.trim())}`
    return [
      ...commands.map((each) => `complete -c ${name} -f ${at} -a ${quote(each.name)} -d ${quote(each.description)}`),
      ...choices.map((choice) => `complete -c ${name} -f ${at} -a ${quote(choice)}`),
      ...options.map((option) => {
        const names = option.names.map((each) =>
          each.startsWith('--') ? `-l ${each.slice(2)}` : `-s ${each.slice(1)}`,
        )
        const value =
          option.choices.length > 0 ? ` -x -a ${quote(option.choices.join(' '))}` : option.takesValue ? ' -r' : ''
        return `complete -c ${name} ${at} ${names.join(' ')}${value} -d ${quote(option.description)}`
      }),
    ]
  })
  const paths = places.filter(({ path }) => path !== '').map(({ path }) => quote(path))
  return `# fish completion for ${name}: ${name} completion fish | source
function __${name}_at --description 'Whether the command line is at this command'
  set -l path
  for word in (commandline -opc)[2..-1]
    if contains -- (string join ' ' -- $path $word) ${paths.join(' ')}
      set -a path $word
    end
  end
  test (string join ' ' -- $path) = (string join ' ' -- $argv)
end
${lines.join('\n')}
`
}

/** One word of a shell; descriptions of options hold quotes. */
function quote(text: string): string {
  return `'${text.replaceAll("'", `'\\''`)}'`
}
