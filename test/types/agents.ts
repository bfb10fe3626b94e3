/** The types of agents. `npm run typecheck` compiles this file; nothing runs it. */
import {
  action,
  Agent,
  AgentEvent,
  ChatModelSetup,
  exportedFrom,
  InputEvent,
  OutputEvent,
  Prompt,
  prompt,
  ResourceDescriptor,
  tool,
  type ChatResponseEvent,
  type JsonObject,
  type RunnerContext,
  type Tool,
} from 'convoke'

type Equal<A, B> = (<T>() => T extends A ? 1 : 2) extends <T>() => T extends B ? 1 : 2 ? true : false
const is =
  <Expected>() =>
  <Actual>(_value: Actual & (Equal<Actual, Expected> extends true ? unknown : never)): void => {}

class ScoredEvent extends AgentEvent<'scored', { score: number }> {
  static readonly type = 'scored'
}

interface Order {
  readonly id: string
  readonly items: string[]
}

// An action gets the events that it is added with.
new Agent()
  .addAction('class', InputEvent, (event, context) => {
    is<InputEvent>()(event)
    is<RunnerContext>()(context)
  })
  .addAction('own class', [ScoredEvent], (event) => is<number>()(event.payload.score))
  .addAction('several', [ScoredEvent, OutputEvent], (event) => is<ScoredEvent | OutputEvent>()(event))
  .addAction('type', 'chat_response', (event) => is<ChatResponseEvent>()(event))
  .addAction('own type', ['by_hand'], (event) => is<AgentEvent>()(event))
  .addAction('mixed', [InputEvent, 'by_hand'], (event) => is<InputEvent | AgentEvent>()(event))
  .addAction('async', InputEvent, async () => {})
  // An input may say what its value is taken to be, alone and beside others.
  .addAction('order', [InputEvent], ({ value }: InputEvent<Order>, context) => {
    is<number>()(value.items.length)
    is<RunnerContext>()(context)
  })
  .addAction('order or not', [InputEvent, 'by_hand'], (event: InputEvent<Order> | AgentEvent) => void event)
  // @ts-expect-error it does not hear inputs alone
  .addAction('order alone', [InputEvent, 'by_hand'], (event: InputEvent<Order>) => void event)
  .addAction('named', InputEvent, { module: './a.js', export: 'start' }, { least: 3 })
  // @ts-expect-error it hears another event
  .addAction('wrong', InputEvent, (event: ScoredEvent) => void event)
  // @ts-expect-error a class without a type
  .addAction('wrong', class {}, () => {})
  // @ts-expect-error what an action returns is nobody's
  .addAction('wrong', InputEvent, () => 5)

// Types of resources are known.
declare const echo: Tool
new Agent().addResource('setup', new ResourceDescriptor(ChatModelSetup, { connection: 'local' }))
new Agent().addResource(echo).addResource('echo', echo).addResource('x', { url: 'https://x' }, 'mcpServer')
// @ts-expect-error only a tool has a name of its own
new Agent().addResource({ url: 'https://x' })
// @ts-expect-error no such type
new Agent().addResource('x', {}, 'model')
// @ts-expect-error a text is no resource
new Agent().addResource('x', 'text', 'prompt')
new ResourceDescriptor(ChatModelSetup, { connection: 'local' })
// @ts-expect-error the class wants others
new ResourceDescriptor(ChatModelSetup, { connection: 5 })
// @ts-expect-error no class of a resource
new ResourceDescriptor(class {}, {})
// @ts-expect-error arguments are JSON
new ResourceDescriptor({ module: './a.js', export: 'A' }, { at: new Date() })

// What is exported stays what it was.
is<(a: number) => string>()(exportedFrom(import.meta.url, 'name', (a: number) => String(a)))

export class Decorated extends Agent {
  @action(ScoredEvent, 'by_hand')
  static fine(event: ScoredEvent | AgentEvent): void {
    void event
  }

  @action(InputEvent)
  static order(event: InputEvent<Order>): void {
    is<string>()(event.value.id)
  }

  // @ts-expect-error it hears another event
  @action(InputEvent)
  static wrong(event: ScoredEvent): void {
    void event
  }

  @tool({ description: 'Adds.', input: { type: 'object', properties: { a: { type: 'number' } }, required: ['a'] } })
  static add({ a }: { a: number }): number {
    return a
  }

  // @ts-expect-error `a` is a number
  @tool({ description: 'Adds.', input: { type: 'object', properties: { a: { type: 'number' } }, required: ['a'] } })
  static wrongParams({ a }: { a: string }): string {
    return a
  }

  @tool static get made(): Tool {
    return echo
  }

  // @ts-expect-error returns no tool
  @tool
  static noTool(): JsonObject {
    return {}
  }

  @prompt static readonly greeting = Prompt.fromText('Hi.')
  // @ts-expect-error a text is no prompt
  @prompt static readonly text = 'Hi.'
}
