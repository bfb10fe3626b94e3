/** A node: opens the store, builds the rooms, listens, and stops it all in reverse. */
import { readFile } from 'node:fs/promises'
import { isAbsolute, join, resolve } from 'node:path'
import { fileURLToPath } from 'node:url'
import { checkAgentOptions, readAnswering, type Answering } from './answering.ts'
import { pause } from './base/abort.ts'
import { ConvokeError } from './base/errors.ts'
import { parseDuration } from './base/duration.ts'
import { namesPrivateAddress } from './base/address.ts'
import { createGuardedFetch, type GuardedFetch } from './base/guarded-fetch.ts'
import { isObject, type Json, type JsonObject } from './base/json.ts'
import { createLog, type Log } from './base/log.ts'
import { McpPublisher } from './mcp/publisher.ts'
import type { McpServerRegistry } from './mcp/server-registry.ts'
import { openAgent, type OpenAgent } from './node-agent.ts'
import type { NodeOptions } from './options.ts'
import type { ClientManager } from './peers/client-manager.ts'
import { Discovery } from './peers/discovery.ts'
import type { RemoteToolRegistry } from './peers/remote-registry.ts'
import type { CardInput } from './protocol/card.ts'
import { HttpApp } from './server/app.ts'
import { anonymous, createAuthenticator } from './server/auth/authenticator.ts'
import { createOriginGuard, isLoopback } from './server/auth/origin.ts'
import { publicBindProblem } from './server/auth/public-bind.ts'
import { createBaseUrl } from './server/base-url.ts'
import { CardRoute } from './server/card-route.ts'
import { createExecutor } from './server/executor.ts'
import { LegacyDoor, toLegacyPushBody } from './server/legacy.ts'
import { createTaskDoor } from './server/mcp-door.ts'
import type { MessageHandler } from './server/message-handler.ts'
import { Operations, type StoredContext } from './server/operations.ts'
import { openStore } from './store/open.ts'
import type { Store } from './store/store.ts'
import { PushService } from './tasks/push.ts'
import { TaskRuntime } from './tasks/runtime.ts'
import { openToolSpace, type AgentTools } from './tool-space.ts'
import type { LocalToolRegistry } from './tools/local.ts'
import type { SourceHealth, ToolManager } from './tools/manager.ts'
import type { Pins } from './tools/pins.ts'

/** One way into the node. */
export interface Door {
  readonly name: string
  readonly url: string
}

/** A running node, or one that can be started once. `createNode` makes one. */
export interface Node {
  /** Where it listens, without a slash at the end; set once it has started. */
  readonly url: string
  readonly doors: readonly Door[]
  /** The agent's tools: call them from here, add and remove them at run time through `registry`. */
  readonly tools: ToolManager
  readonly registry: LocalToolRegistry
  /** The other agents: send them messages, look at their health, add and remove them at run time. */
  readonly peers: ClientManager
  /** What is known of the peers' tools: find them, ask again, be told of changes. */
  readonly remoteTools: RemoteToolRegistry
  /** The MCP servers: look at their health, connect to them, add and remove them at run time. */
  readonly mcpServers: McpServerRegistry
  /** What is remembered of the tools of others since they were first seen; approve changes here. */
  readonly pins: Pins
  /** The tool space as an MCP server; undefined where `mcp.publish` is false. */
  readonly mcp: McpPublisher | undefined
  /** What was skipped while the node was made: tool modules that could not be loaded, and the like; and tools and connections that the agent names and nobody has. */
  readonly warnings: readonly string[]
  /**
   * Resolves when those have been asked whose tools are published, or soon enough in any case: 10 seconds after the start,
   * or when the node stops. Resolved before the start.
   */
  readonly firstLook: Promise<void>
  /** How many tasks run, and how many tools were abandoned because they did not stop. */
  readonly stats: { readonly running: number; readonly abandoned: number }
  /** The agent card as callers of A2A 1.0 see it. */
  card(): JsonObject
  /**
   * Takes over unfinished tasks and listens, unless told not to: `url` and `doors` stay empty then. Rejects with
   * `unavailable` when the address is taken.
   */
  start(options?: { readonly listen?: boolean }): Promise<void>
  /**
   * Stops accepting, lets running tasks finish within the drain time, cancels the rest, closes everything. The second
   * call waits for the first.
   */
  stop(): Promise<void>
}

const defaults = {
  maxBodyBytes: 4 * 1024 * 1024,
  headersTimeoutMs: 10_000,
  requestTimeoutMs: 30_000,
  heartbeatMs: 15_000,
  drainMs: 10_000,
  cancelGraceMs: 5_000,
  maxRunningTasks: 10_000,
  retention: '7d',
  mcpPath: '/mcp',
  patienceMs: 50_000,
  maxWaitMs: 600_000,
  sessionTtlMs: 1_800_000,
  maxSessions: 1_000,
} as const

/** How long a host that asks for the tools waits for the first look at those of peers. */
const firstLookMs = 10_000

/**
 * Makes a node from its options. Nothing listens before `start`. Throws `config` for options that make no sense and
 * `unavailable` when the store cannot be opened.
 */
export async function createNode(options: NodeOptions): Promise<Node> {
  checkAgent(options)
  checkAgentOptions(options)
  checkServer(options)
  checkDiscovery(options)
  checkMcp(options)
  const problem = publicBindProblem(options)
  if (problem !== undefined) throw problem
  const baseDir = resolve(options.baseDir ?? '.')
  const log = options.log ?? createLog(options.logLevel ?? 'warn')
  const authenticator = createAuthenticator(options.server?.auth)
  const space = await openToolSpace(options, { log })
  try {
    const answering = await readAnswering(options, baseDir)
    const template = await readTemplate(options, answering, baseDir)
    const store = await openStore(storeOptions(options, baseDir))
    let agent: OpenAgent | undefined
    try {
      if (answering.agent !== undefined)
        agent = await openAgent({ agent: answering.agent, options, space, store: store.agents, log, baseDir })
      const { onMessage } = answering
      return new RunningNode({ options, log, authenticator, space, onMessage, agent, template, store })
    } catch (error) {
      await agent?.close()
      await store.close()
      throw error
    }
  } catch (error) {
    await space.close()
    throw error
  }
}

interface Parts {
  readonly options: NodeOptions
  readonly log: Log
  readonly authenticator: ReturnType<typeof createAuthenticator>
  readonly space: AgentTools
  readonly onMessage: MessageHandler | undefined
  readonly agent: OpenAgent | undefined
  readonly template: JsonObject
  readonly store: Store
}

class RunningNode implements Node {
  readonly tools: ToolManager
  readonly registry: LocalToolRegistry
  readonly peers: ClientManager
  readonly remoteTools: RemoteToolRegistry
  readonly mcpServers: McpServerRegistry
  readonly pins: Pins
  readonly mcp: McpPublisher | undefined
  readonly warnings: readonly string[]
  readonly #space: AgentTools
  readonly #agent: OpenAgent | undefined
  readonly #options: NodeOptions
  readonly #log: Log
  readonly #store: Store
  readonly #runtime: TaskRuntime<StoredContext>
  readonly #push: PushService
  readonly #fetch: GuardedFetch
  readonly #directoryFetch: GuardedFetch
  readonly #discovery: Discovery
  #firstLook: Promise<void> = Promise.resolve()
  /** Resolves once the tasks of the process before were taken over: their inputs come before those of new messages. */
  #recovered: Promise<unknown> = Promise.resolve()
  #lookingAgain: Promise<void> | undefined
  readonly #authenticator: ReturnType<typeof createAuthenticator>
  readonly #cards: CardRoute
  readonly #app: HttpApp
  readonly #basePath: string
  /** Aborts when the node stops. */
  readonly #life = new AbortController()
  #url = ''
  #isStarted = false
  #stopping: Promise<void> | undefined

  constructor({ options, log, authenticator, space, onMessage, agent: open, template, store }: Parts) {
    const { server = {} } = options
    const host = server.host ?? '127.0.0.1'
    this.#space = space
    this.#agent = open
    this.#options = options
    this.#log = log
    this.#store = store
    this.#authenticator = authenticator
    const { guard } = space
    this.tools = space.tools
    this.registry = space.registry
    this.peers = space.peers
    this.remoteTools = space.remoteTools
    this.mcpServers = space.mcpServers
    this.pins = space.pins
    this.warnings = [...space.warnings, ...(open?.warnings ?? [])]
    const { discovery = {} } = options
    this.#directoryFetch = createGuardedFetch({
      allowPrivate: discovery.allowPrivate ?? (discovery.directory ?? []).some(namesPrivateAddress),
    })
    this.#discovery = new Discovery(discovery, {
      ownUrls: () => [this.url, this.#publicUrl],
      clients: this.peers,
      registry: this.remoteTools,
      fetch: this.#directoryFetch,
      log,
    })
    this.#basePath = basePathOf(server)

    this.#runtime = new TaskRuntime({
      store,
      log,
      execute: createExecutor({
        tools: this.tools,
        onMessage,
        agent: open && { runs: open.runner, recovered: () => this.#recovered, ready: () => this.#ready() },
        guard,
        log,
      }),
      cancelGraceMs: server.cancelGraceMs ?? defaults.cancelGraceMs,
      deduplicate: server.deduplicateMessages ?? true,
      maxRuns: server.maxRunningTasks ?? defaults.maxRunningTasks,
      isAwaited: ({ metadata }) => guard.knows(metadata),
      resumed: (taskId) => void this.#push.adopt(taskId),
      retentionMs: parseDuration(options.store?.retention ?? defaults.retention),
    })
    const allowPrivate = server.push?.allowPrivate ?? isLoopback(host)
    this.#fetch = createGuardedFetch({ allowPrivate })
    this.#push = new PushService({
      store,
      log,
      fetch: this.#fetch,
      allowPrivate,
      snapshot: (taskId) => this.#runtime.peek(taskId),
      toLegacyBody: async (taskId, event) => toLegacyPushBody(event.text, (await this.#runtime.peek(taskId)).text),
    })
    this.#runtime.onPublished((taskId, isLast) => this.#push.published(taskId, isLast))

    const hasExtendedCard = server.extendedCard ?? authenticator.required
    const input: Omit<CardInput, 'url' | 'tools' | 'public' | 'toolsUrl'> = {
      template,
      security: authenticator.schemes(),
      streaming: true,
      pushNotifications: true,
      extendedCard: hasExtendedCard,
    }
    const baseUrl = createBaseUrl({
      publicUrl: server.publicUrl?.replace(/\/$/, ''),
      basePath: this.#basePath,
      trustProxy: server.trustProxy ?? [],
      listening: () => this.#url,
    })
    this.#cards = new CardRoute({
      tools: this.tools,
      // Behind credentials anybody may read the card, before it is known who it is.
      reader: authenticator.required ? undefined : anonymous,
      input,
      describe: (hasTools) => describeNode({ hasTools, answers: open !== undefined || onMessage !== undefined }),
      baseUrl,
      behindProxy: (server.trustProxy ?? []).length > 0,
    })
    const operations = new Operations({
      runtime: this.#runtime,
      push: this.#push,
      extendedCard: hasExtendedCard ? (caller) => this.#cards.extendedCard(this.#publicUrl, caller) : undefined,
    })
    const heartbeatMs = server.heartbeatMs ?? defaults.heartbeatMs
    const maxBodyBytes = server.maxBodyBytes ?? defaults.maxBodyBytes
    const { mcp = {}, agent } = options
    if (mcp.publish !== false) {
      const { description } = agent
      this.mcp = new McpPublisher({
        tools: {
          list: (caller) => this.tools.published(caller),
          onChange: (listener) => this.tools.onChange(listener),
          ready: () => this.#firstLook,
        },
        tasks: createTaskDoor(operations),
        agent: {
          name: agent.id,
          title: agent.name ?? agent.id,
          version: typeof template['version'] === 'string' ? template['version'] : '1.0.0',
          ...(description === undefined ? {} : { description }),
        },
        log,
        patienceMs: mcp.patienceMs ?? defaults.patienceMs,
        maxWaitMs: mcp.maxWaitMs ?? defaults.maxWaitMs,
        sessionTtlMs: mcp.sessionTtlMs ?? defaults.sessionTtlMs,
        maxSessions: mcp.maxSessions ?? defaults.maxSessions,
        maxMessageBytes: maxBodyBytes,
        heartbeatMs,
      })
    }
    this.#app = new HttpApp({
      operations,
      legacy: new LegacyDoor({ operations, card: () => this.card(), log, heartbeatMs }),
      cardRoute: this.#cards,
      mcp: this.mcp === undefined ? undefined : { publisher: this.mcp, path: this.#mcpPath },
      gatekeeper: {
        authenticator,
        guard: createOriginGuard({
          host,
          authRequired: authenticator.required,
          ...(server.publicUrl === undefined ? {} : { publicUrl: server.publicUrl }),
          ...(server.allowedHosts === undefined ? {} : { allowedHosts: server.allowedHosts }),
        }),
      },
      log,
      basePath: this.#basePath,
      maxBodyBytes,
      heartbeatMs,
      headersTimeoutMs: server.headersTimeoutMs ?? defaults.headersTimeoutMs,
      requestTimeoutMs: server.requestTimeoutMs ?? defaults.requestTimeoutMs,
      ready: async () => {
        if (this.#stopping !== undefined) throw new ConvokeError('unavailable', 'The node is shutting down.')
        await store.check()
      },
    })
  }

  get url(): string {
    return this.#url === '' ? '' : this.#url + this.#basePath
  }

  get #publicUrl(): string {
    return this.#options.server?.publicUrl?.replace(/\/$/, '') ?? this.url
  }

  get #mcpPath(): string {
    return this.#options.mcp?.path ?? defaults.mcpPath
  }

  get doors(): readonly Door[] {
    if (this.#url === '') return []
    const url = this.#publicUrl
    return [
      { name: 'Agent card', url: `${url}/.well-known/agent-card.json` },
      { name: 'JSON-RPC', url },
      { name: 'HTTP+JSON', url },
      ...(this.mcp === undefined ? [] : [{ name: 'MCP', url: `${url}${this.#mcpPath}` }]),
      { name: 'Health', url: `${this.url}/healthz` },
    ]
  }

  get firstLook(): Promise<void> {
    return this.#firstLook
  }

  get stats(): { running: number; abandoned: number } {
    return this.#runtime.stats
  }

  card(): JsonObject {
    return this.#cards.card(this.#publicUrl, '1.0')
  }

  async start({ listen = true }: { readonly listen?: boolean } = {}): Promise<void> {
    if (this.#isStarted || this.#stopping !== undefined) throw new ConvokeError('config', 'A node can be started once.')
    this.#isStarted = true
    if (listen) await this.#listen()
    if (this.#options.features?.delegate !== false) this.#discovery.start()
    // Nobody waits for it but hosts that ask for a list at once, and an agent, also with tasks of the process before.
    const looking = this.#look()
    this.#firstLook = Promise.race([looking, pause(firstLookMs, this.#life.signal)])
    const recovering = this.#runtime.recover()
    this.#recovered = recovering.catch(() => {})
    const recovered = await recovering
    if (recovered > 0) this.#log.info({ recovered }, 'Took over the tasks of a process that ended.')
    this.#push.start()
    void this.#endLeft()
  }

  /** Ends inputs of the agent that no task goes on with, so that none waits for ever. Those that do have told by now. */
  async #endLeft(): Promise<void> {
    await this.#firstLook
    await new Promise((done) => setImmediate(done))
    try {
      if (this.#stopping === undefined) await this.#agent?.runner.runLeft()
    } catch (error) {
      if (this.#stopping === undefined) this.#log.warn({ error }, 'What the agent had left over could not be ended.')
    }
  }

  /** Which tools the agent may call, as globs over handles: a model is offered only what is known. */
  get #agentTools(): readonly string[] {
    return this.#agent === undefined ? [] : (this.#options.agent.react?.tools ?? ['*'])
  }

  /** What the agent waits for with a message. Services that were not there before are looked at again meanwhile. */
  #ready(): Promise<void> {
    const { signal } = this.#life
    const isMissing = ({ state, kind }: SourceHealth): boolean => state === 'failed' && kind !== 'local'
    if (this.#lookingAgain === undefined && this.tools.health().some(isMissing)) {
      this.#lookingAgain = this.tools
        .discover({ missing: true, named: this.#agentTools, signal })
        .finally(() => (this.#lookingAgain = undefined))
    }
    return this.#firstLook
  }

  /** Finds the tools that are to be known from the start: all, or those that are to be published. */
  async #look(): Promise<void> {
    const { signal } = this.#life
    const { discovery, features } = this.#options
    const named = this.#agentTools
    if (discovery?.startup !== true) return await this.tools.discover({ published: true, named, signal })
    const scanning = features?.delegate === false ? undefined : this.#discovery.scan()
    await Promise.all([scanning, this.tools.discover({ kinds: ['mcp', 'custom'], signal })])
  }

  async #listen(): Promise<void> {
    const { host = '127.0.0.1', port = 0 } = this.#options.server ?? {}
    const listening = await this.#app.listen(host, port)
    this.#url = `http://${urlHost(host)}:${listening}`
  }

  stop(): Promise<void> {
    this.#stopping ??= this.#close()
    return this.#stopping
  }

  async #close(): Promise<void> {
    this.#life.abort(new ConvokeError('canceled', 'The node is stopping.'))
    this.#app.stopListening()
    const drainMs = this.#options.server?.drainMs ?? defaults.drainMs
    // A run of the agent that is left to the next process ends here without a word in the store.
    const leaving = (): void => void this.#agent?.close()
    await Promise.all([this.#runtime.close(drainMs, leaving), this.tools.drain(drainMs)])
    await this.#agent?.close()
    await this.mcp?.close()
    await this.#app.close()
    await this.#push.close()
    await this.#discovery.close()
    await this.#space.close()
    await Promise.all([this.#fetch.close(), this.#directoryFetch.close()])
    this.#authenticator.close()
    await this.#store.close()
  }
}

function checkAgent({ agent }: NodeOptions): void {
  if (!/^[A-Za-z0-9_-]{1,64}$/.test(agent?.id ?? '')) {
    const got = JSON.stringify(agent?.id)
    throw new ConvokeError('config', `agent.id must be 1 to 64 letters, digits, _ or -, got ${got}.`)
  }
}

/** Of the other doors. */
const takenPaths = new Set(['/tools', '/healthz', '/readyz', '/tasks', '/extendedAgentCard'])

function checkMcp({ mcp = {} }: NodeOptions): void {
  const { path } = mcp
  if (path !== undefined && !/^(\/[A-Za-z0-9_.~-]+)+$/.test(path)) {
    throw new ConvokeError('config', `mcp.path must be a path such as /mcp, got ${JSON.stringify(path)}.`)
  }
  if (path !== undefined && (takenPaths.has(path) || path.startsWith('/.well-known/'))) {
    throw new ConvokeError('config', `mcp.path must be a path that nothing else has, got ${JSON.stringify(path)}.`)
  }
  for (const key of ['patienceMs', 'maxWaitMs', 'sessionTtlMs', 'maxSessions'] as const) {
    const value = mcp[key] ?? 1
    if (Number.isSafeInteger(value) && value >= 1 && value < 2 ** 31) continue
    throw new ConvokeError('config', `mcp.${key} must be a whole number, 1 or more, got ${JSON.stringify(value)}.`)
  }
}

function checkDiscovery({ discovery = {} }: NodeOptions): void {
  for (const url of discovery.directory ?? []) {
    if (URL.canParse(url) && /^https?:$/.test(new URL(url).protocol)) continue
    throw new ConvokeError('config', `discovery.directory must list http or https URLs, got ${JSON.stringify(url)}.`)
  }
}

function checkServer({ server = {} }: NodeOptions): void {
  const { port = 0, publicUrl } = server
  if (!Number.isInteger(port) || port < 0 || port > 65_535) {
    throw new ConvokeError('config', `server.port must be a whole number from 0 to 65535, got ${JSON.stringify(port)}.`)
  }
  if (publicUrl !== undefined && !/^https?:$/.test(URL.canParse(publicUrl) ? new URL(publicUrl).protocol : '')) {
    throw new ConvokeError('config', `server.publicUrl must be an http or https URL, got ${JSON.stringify(publicUrl)}.`)
  }
}

/** The checked-in card, with the agent's own words in it. */
async function readTemplate({ agent }: NodeOptions, answering: Answering, baseDir: string): Promise<JsonObject> {
  const own = fileURLToPath(new URL('../agent-card.json', import.meta.url))
  const file = agent.card === undefined ? own : resolve(baseDir, agent.card)
  let template: unknown
  try {
    template = JSON.parse(await readFile(file, 'utf8'))
  } catch (cause) {
    throw new ConvokeError('config', `The card template ${agent.card ?? 'agent-card.json'} cannot be read as JSON.`, {
      cause,
    })
  }
  if (!isObject(template)) throw new ConvokeError('config', 'The card template must be a JSON object.')
  const { description, ...rest } = template as JsonObject
  return {
    ...rest,
    // That of our own is of any node; whoever wrote another one knows theirs.
    ...(agent.card === undefined || description === undefined ? {} : { description }),
    name: agent.name ?? agent.id,
    ...(agent.description === undefined ? {} : { description: agent.description }),
    ...(agent.version === undefined ? {} : { version: agent.version }),
    ...(answering.agent === undefined ? {} : { skills: withConversation(template['skills'], agent) }),
  }
}

function describeNode({ hasTools, answers }: { readonly hasTools: boolean; readonly answers: boolean }): string {
  if (!answers) return 'An A2A node that publishes typed tools and runs exactly the one that a caller names.'
  const tools = hasTools ? ', and publishes typed tools, of which it runs exactly the one that a caller names' : ''
  return `An A2A agent that answers messages${tools}.`
}

/** The skills of a template and an ordinary one for the conversation, unless it has one already. */
function withConversation(skills: unknown, { id, name = id, description }: NodeOptions['agent']): Json[] {
  const own = Array.isArray(skills) ? (skills as Json[]) : []
  if (own.some((skill) => isObject(skill) && skill['id'] === 'chat')) return own
  const chat = {
    id: 'chat',
    name: 'Chat',
    description: description ?? `Talks with ${name}: a message in words that names no tool.`,
    tags: ['chat'],
    inputModes: ['text/plain', 'application/json'],
    outputModes: ['text/plain', 'application/json'],
  }
  return [...own, chat]
}

function storeOptions({ store = {} }: NodeOptions, baseDir: string): { url: string; maxBytes?: number } {
  const { url = ':memory:', maxBytes } = store
  const path = url.startsWith('sqlite:') && url !== 'sqlite::memory:' ? url.slice('sqlite:'.length) : undefined
  return {
    url: path === undefined || isAbsolute(path) ? url : `sqlite:${join(baseDir, path)}`,
    ...(maxBytes === undefined ? {} : { maxBytes }),
  }
}

function basePathOf({ basePath, publicUrl }: NonNullable<NodeOptions['server']>): string {
  const path = basePath ?? (publicUrl === undefined ? '/' : new URL(publicUrl).pathname)
  return path === '/' ? '' : `/${path.replace(/^\/|\/$/g, '')}`
}

/** What a caller on this machine can dial: a wildcard address is none. */
function urlHost(host: string): string {
  if (host === '0.0.0.0' || host === '::') return '127.0.0.1'
  return host.includes(':') ? `[${host}]` : host
}
