/** What answers a node's messages: the agent that its options or a module describe, or a message handler. */
import { stat } from 'node:fs/promises'
import { resolve } from 'node:path'
import { pathToFileURL } from 'node:url'
import { isAgent, isAgentClass, type Agent } from './agent/agent.ts'
import { Prompt } from './agent/prompt.ts'
import { ReActAgent } from './agent/react-agent.ts'
import { readOutputSchema, readPrompt } from './agent-files.ts'
import { ConvokeError } from './base/errors.ts'
import { whyUnreadable } from './base/unreadable.ts'
import type { NodeOptions, ReactOptions } from './options.ts'
import { askToolName } from './peers/remote-agent.ts'
import type { MessageHandler } from './server/message-handler.ts'
import { whyUnloadable } from './tools/unloadable.ts'
import { closest, excerpt } from './tools/value.ts'

/** What answers messages: an agent, a handler, or nobody. */
export interface Answering {
  readonly agent?: Agent
  readonly onMessage?: MessageHandler
}

/** Throws `config` for options of an agent that make no sense together. */
export function checkAgentOptions({ agent, models = {}, peers = {}, onMessage, features }: NodeOptions): void {
  const { react, module } = agent
  const ways = [
    ...(react === undefined ? [] : ['agent.react']),
    ...(module === undefined ? [] : ['agent.module']),
    ...(onMessage === undefined ? [] : ['onMessage']),
  ]
  if (react !== undefined && ways.length > 1)
    throw wrong(`${ways.join(' and ')} both answer messages; keep one of them.`)
  if (react === undefined) return
  if (!Object.hasOwn(models, react.model))
    throw wrong(`agent.react.model names no model, ${meant(react.model, Object.keys(models))}`)
  for (const id of react.agents ?? []) {
    if (!Object.hasOwn(peers, id)) throw wrong(`agent.react.agents names no peer, ${meant(id, Object.keys(peers))}`)
  }
  if ((react.agents ?? []).length > 0 && features?.delegate === false)
    throw wrong('agent.react.agents needs peers, and features.delegate is false.')
}

/** What stands in place of a name, and what was probably meant. */
export function meant(name: string, known: readonly string[]): string {
  const similar = closest(name, known)
  return `got ${excerpt(name)}.${similar === undefined ? '' : ` Did you mean "${similar}"?`}`
}

/** Reads what answers messages: from the options, from a module, from the files of a ReAct agent. Throws `config`. */
export async function readAnswering(options: NodeOptions, baseDir: string): Promise<Answering> {
  const { agent, onMessage } = options
  if (isAgent(onMessage)) return { agent: onMessage }
  if (onMessage !== undefined) return { onMessage }
  if (agent.react !== undefined) return { agent: await createReact(agent.react, options, baseDir) }
  return agent.module === undefined ? {} : await loadModule(agent.module, baseDir)
}

/** `agent` or the default export is an Agent or its class; `onMessage` or the default export a message handler. */
async function loadModule(module: string, baseDir: string): Promise<Answering> {
  const file = resolve(baseDir, module)
  const problem = await stat(file).then((found) => (found.isFile() ? undefined : 'it is no file'), whyUnreadable)
  if (problem !== undefined) throw wrong(`agent.module ${module} cannot be loaded: ${problem}.`)
  let loaded: { onMessage?: unknown; agent?: unknown; default?: unknown }
  try {
    loaded = (await import(pathToFileURL(file).href)) as typeof loaded
  } catch (cause) {
    throw wrong(`agent.module ${module} cannot be loaded: ${whyUnloadable(cause, pathToFileURL(file).href)}`, cause)
  }
  const { agent, onMessage } = loaded
  if (agent !== undefined && onMessage !== undefined)
    throw wrong(`agent.module ${module} exports both agent and onMessage; keep one of them.`)
  const given = agent ?? onMessage ?? loaded.default
  if (isAgent(given)) return { agent: given }
  if (isAgentClass(given)) {
    try {
      return { agent: new given() }
    } catch (cause) {
      const why = cause instanceof Error ? cause.message : String(cause)
      throw wrong(`agent.module ${module} has an agent that cannot be made: ${why}`, cause)
    }
  }
  if (agent !== undefined) throw wrong(`agent.module ${module} exports an agent that is none, got ${excerpt(agent)}.`)
  if (typeof given === 'function') return { onMessage: given as MessageHandler }
  throw wrong(`agent.module ${module} must export an agent, or a function onMessage(message, context).`)
}

async function createReact(react: ReactOptions, options: NodeOptions, baseDir: string): Promise<Agent> {
  const { model, prompt, outputSchema, onError, history = {}, tools = ['*'], agents = [] } = react
  const { retries } = options.models?.[model] ?? {}
  const { name = options.agent.id, description = '' } = options.agent
  const text = prompt ?? `You are ${name}. ${description}`.trim()
  const limits = {
    ...(react.maxRounds === undefined ? {} : { maxRounds: react.maxRounds }),
    ...(react.maxToolCalls === undefined ? {} : { maxToolCalls: react.maxToolCalls }),
    ...(react.maxTokens === undefined ? {} : { maxTokens: react.maxTokens }),
    ...(react.timeoutMs === undefined ? {} : { timeoutMs: react.timeoutMs }),
  }
  try {
    return new ReActAgent({
      chatModel: {
        connection: model,
        tools: [...tools, ...agents.map(askToolName)],
        ...(retries === undefined ? {} : { retries }),
      },
      prompt: Prompt.fromText(await about('prompt', readPrompt(text, baseDir))),
      ...(outputSchema === undefined
        ? {}
        : { outputSchema: await about('outputSchema', readOutputSchema(outputSchema, baseDir)) }),
      ...(onError === undefined ? {} : { errorStrategy: onError }),
      limits,
      conversation: history,
      stream: true,
    })
  } catch (error) {
    if (error instanceof ConvokeError && error.code === 'config' && error.message.startsWith('agent.react')) throw error
    throw wrong(`agent.react is wrong: ${error instanceof Error ? error.message : String(error)}`, error)
  }
}

async function about<Value>(key: string, reading: Promise<Value>): Promise<Value> {
  try {
    return await reading
  } catch (error) {
    throw wrong(`agent.react.${key} ${ConvokeError.from(error).message}`, error)
  }
}

function wrong(message: string, cause?: unknown): ConvokeError {
  return new ConvokeError('config', message, cause === undefined ? {} : { cause })
}
