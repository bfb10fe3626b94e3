/**
 * Agents by decorators, and what cannot be one. Neither Node nor the tests' transform knows standard decorators, so
 * `support/compiled.ts` has the compiler make JavaScript of this folder.
 */
import {
  action,
  Agent,
  AgentEvent,
  chatModelConnection,
  chatModelSetup,
  defineTool,
  embeddingModel,
  exportedFrom,
  InputEvent,
  mcpServer,
  OutputEvent,
  Prompt,
  prompt,
  remoteAgent,
  ResourceDescriptor,
  tool,
  vectorStore,
  type ChatModelSetupOptions,
  type JsonObject,
  type RunnerContext,
  type VectorStore,
} from 'convoke'

export class ScoredEvent extends AgentEvent<'scored', { score: number }> {
  static readonly type = 'scored'
  constructor(score: number) {
    super(ScoredEvent.type, { score })
  }
}

/** Documents that say when they are closed. */
export class Documents implements VectorStore {
  static readonly resourceType = 'vectorStore'
  static readonly module = import.meta.url
  isClosed = false
  constructor(settings: JsonObject) {
    this.settings = settings
  }
  readonly settings: JsonObject
  async add(): Promise<void> {}
  async query(text: string): Promise<{ id: string; content: string; metadata: JsonObject; score: number }[]> {
    return [{ id: '1', content: `${JSON.stringify(this.settings['prefix'])} ${text}`, metadata: {}, score: 1 }]
  }
  close(): void {
    this.isClosed = true
  }
}

const toolInput = { type: 'object', properties: { product: { type: 'string' } }, required: ['product'] } as const

/** What the class below says, without decorators. */
export class Reviews extends Agent {
  static readonly module = import.meta.url
  static readonly carrier: string = 'DHL'

  @action(InputEvent)
  static start(this: void, event: InputEvent, context: RunnerContext): void {
    context.sendEvent(new ScoredEvent(Number(event.value)))
  }

  @action({ events: [ScoredEvent, 'scored_by_hand'], config: { least: 3 }, name: 'judge' })
  static decide(event: ScoredEvent | AgentEvent, context: RunnerContext): void {
    context.sendEvent(new OutputEvent({ score: event.payload['score'] ?? null, least: context.actionConfig['least']! }))
  }

  @tool({ description: 'Tells shipping.', input: toolInput })
  static notify({ product }: { product: string }): JsonObject {
    return { told: product, by: this.carrier }
  }

  @tool
  static lookup(): ReturnType<typeof defineTool> {
    return defineTool({
      name: 'look_up',
      description: 'Looks a product up.',
      input: toolInput,
      run: ({ product }) => ({ product, price: 5 }),
    })
  }

  @prompt static readonly greeting = Prompt.fromText('Judge {review}.')

  @chatModelConnection static get endpoint(): ResourceDescriptor {
    return new ResourceDescriptor(
      { module: 'convoke', export: 'OpenAiConnection' },
      { baseUrl: 'http://127.0.0.1:9/v1', model: 'm' },
    )
  }

  @chatModelSetup static model(): ChatModelSetupOptions {
    return { connection: 'endpoint', prompt: 'greeting', tools: ['notify'] }
  }

  @mcpServer static files(): JsonObject {
    return { command: 'mcp-files', args: ['/data'] }
  }

  @embeddingModel static embedder(): ResourceDescriptor {
    return new ResourceDescriptor({ module: './embedder.js', export: 'Embedder' })
  }

  @vectorStore static docs(): ResourceDescriptor {
    return new ResourceDescriptor(Documents, { prefix: 'found' })
  }

  @vectorStore static drafts(): Documents {
    return new Documents({ prefix: 'draft' })
  }

  @remoteAgent static bob(): ResourceDescriptor {
    return new ResourceDescriptor({ module: 'convoke', export: 'PeerAgent' }, { peer: 'bob' })
  }
}

/** The same agent in calls. */
export function reviewsByCalls(): Agent {
  const at = (member: string): { module: string; export: string } => ({
    module: import.meta.url,
    export: `Reviews.${member}`,
  })
  return new Agent()
    .addAction('start', [InputEvent], exportedFrom(import.meta.url, 'Reviews.start', Reviews.start))
    .addAction('judge', [ScoredEvent, 'scored_by_hand'], at('decide'), { least: 3 })
    .addResource('notify', at('notify'), 'tool')
    .addResource('look_up', at('lookup'), 'tool')
    .addResource('greeting', Prompt.fromText('Judge {review}.'))
    .addResource('endpoint', Reviews.endpoint, 'chatModelConnection')
    .addResource('model', { connection: 'endpoint', prompt: 'greeting', tools: ['notify'] }, 'chatModelSetup')
    .addResource('files', { command: 'mcp-files', args: ['/data'] }, 'mcpServer')
    .addResource('embedder', Reviews.embedder(), 'embeddingModel')
    .addResource('docs', new ResourceDescriptor(Documents, { prefix: 'found' }))
    .addResource('drafts', at('drafts'), 'vectorStore')
    .addResource('bob', Reviews.bob(), 'remoteAgent')
}

/** Inherits; replaces one action, one tool and one prompt; adds one action. */
export class ShopReviews extends Reviews {
  static override readonly module = import.meta.url
  static override readonly carrier: string = 'UPS'

  static override start(this: void, event: InputEvent, context: RunnerContext): void {
    context.sendEvent(new ScoredEvent(Number(event.value) * 2))
  }

  @tool({ description: 'Tells the shop.', input: toolInput })
  static override notify({ product }: { product: string }): JsonObject {
    return { told: `shop ${product}`, by: this.carrier }
  }

  @prompt static override readonly greeting = Prompt.fromText('Judge {review} for a shop.')

  @action('scored')
  static alsoScored(): void {}
}

/** Its own members are known to this process only. */
export class Homeless extends Reviews {
  @action(InputEvent)
  static extra(): void {}
}

/** A member of an instance. */
export function onInstance(): unknown {
  return class Wrong extends Agent {
    @action(InputEvent)
    start(): void {}
  }
}

export function onInstancePrompt(): unknown {
  return class Wrong extends Agent {
    @prompt
    greeting(): Prompt {
      return Prompt.fromText('Hi.')
    }
  }
}

export function twice(): unknown {
  return class Wrong extends Agent {
    @action(InputEvent)
    @action('other')
    static start(): void {}
  }
}

export function onNoAgent(): unknown {
  return class Plain {
    @action(InputEvent)
    static start(): void {}
  }
}

export function onPrivate(): unknown {
  return class Wrong extends Agent {
    @action(InputEvent)
    static #start(): void {}
    static readonly use = (): void => Wrong.#start()
  }
}

export function withoutEvents(): Agent {
  class Wrong extends Agent {
    @action()
    static start(): void {}
  }
  return new Wrong()
}

export function sameNameTwice(): Agent {
  class Wrong extends Agent {
    @action({ events: [InputEvent], name: 'one' })
    static first(): void {}
    @action({ events: [InputEvent], name: 'one' })
    static second(): void {}
  }
  return new Wrong()
}

export function noPrompt(): Agent {
  class Wrong extends Agent {
    // @ts-expect-error a text is no prompt
    @prompt
    static greeting(): string {
      return 'Hi.'
    }
  }
  return new Wrong()
}
