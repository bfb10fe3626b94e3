/**
 * A tool space with many tools of many sources. `options`: `{build, sources, tools}`, `tools` in each source. The tool space
 * is made by the question `open`, so that the process can be looked at before. It listens nowhere.
 */
import { join } from 'node:path'
import { pathToFileURL } from 'node:url'
import { options, ready } from '../lib/child.js'

const load = (file) => import(pathToFileURL(join(options.build, file)).href)
const { createDefinitions, ToolManager } = await load('index.js')
const { Pins } = await load('tools/pins.js')

const verbs = 'create get list update delete search send archive export import approve cancel assign merge'.split(' ')
const things =
  'invoice customer order ticket calendar_event mail_message pull_request repository deployment build_log alert contact document spreadsheet row payment refund subscription user_group webhook report dashboard comment attachment label milestone release branch shipment warehouse'.split(
    ' ',
  )

/** The definition of a tool as services write them, six params each, no two alike. In JSON, as it comes from a service. */
function toolText(service, i) {
  const verb = verbs[i % verbs.length]
  const thing = things[(i * 7 + service) % things.length]
  const words = thing.replace('_', ' ')
  return JSON.stringify({
    name: `${verb}_${thing}_${i}`,
    description: `Can ${verb} a ${words} in the workspace of service ${service}. Returns the ${words} with its id and its state, or says why it could not ${verb} it.`,
    input: {
      type: 'object',
      properties: {
        id: { type: 'string', minLength: 1, maxLength: 64, description: `The id of the ${words}, as a list gives it.` },
        title: { type: 'string', maxLength: 200 + i, description: `What the ${words} is called from now on.` },
        state: { type: 'string', enum: ['open', 'closed', `state_${service}_${i}`], description: 'Only those in it.' },
        limit: { type: 'integer', minimum: 1, maximum: 100, default: 20, description: 'How many at most.' },
        labels: { type: 'array', items: { type: 'string' }, description: `Labels that the ${words} must have.` },
        options: {
          type: 'object',
          description: 'What is seldom needed.',
          properties: { notify: { type: 'boolean' }, since: { type: 'string', format: 'date-time' } },
        },
      },
      required: ['id'],
      additionalProperties: false,
    },
    traits: { readOnly: verb === 'get' || verb === 'list', category: words, tags: [`team-${service % 7}`] },
  })
}

/** One service as a source of its own. */
class Source {
  kind = 'custom'
  revision = 0
  #service
  #tools = new Map()
  #listeners = new Set()

  constructor(number) {
    this.#service = `service${number}`
    for (let i = 0; i < options.tools; i++) this.#put(JSON.parse(toolText(number, i)))
  }

  #put(definition) {
    const tool = { ...definition, name: `${this.#service}.${definition.name}`, kind: this.kind, run }
    this.#tools.set(definition.name, tool)
  }

  /** A tool more, or the same one less: a change of one tool. */
  toggle() {
    const definition = { ...JSON.parse(toolText(0, 0)), name: 'now_and_then' }
    if (!this.#tools.delete(definition.name)) this.#put(definition)
    this.revision++
    for (const listener of this.#listeners) listener()
  }

  services() {
    return [this.#service]
  }

  has(service) {
    return service === this.#service
  }

  resolve(service, name) {
    const tool = this.#tools.get(name)
    if (tool === undefined) throw new Error(`There is no tool ${name} at ${service}.`)
    return tool
  }

  list() {
    return [...this.#tools.values()]
  }

  async discover() {}

  invalidate() {}

  status() {
    return { state: 'ok', tools: this.#tools.size }
  }

  onChange(listener) {
    this.#listeners.add(listener)
    return () => this.#listeners.delete(listener)
  }

  async close() {}
}

// oxlint-disable-next-line require-yield -- nobody calls it
async function* run() {
  return null
}

/** As people and models ask: words of names, of sentences, begun ones, misspelt ones, a handle. */
const queries = [
  'create invoice',
  'send a mail message to the customer',
  'list open pull requests of a repository',
  'calender event',
  'refund payment',
  'what was deployed last',
  'approve deployment release',
  'search documents by label',
  'build log',
  'archive ticket',
  'dashboard report export',
  'shipm wareh',
  'delete webhook',
  'cancel subscription of a user group',
  'merge branch',
  'assign milestone',
  'attachment comment',
  'team-3 contact',
  'service42 alert',
  'service7.get_customer_1',
  'create',
  'workspace',
  'id title state limit labels options',
  'get the row of a spreadsheet and update it',
  'nothing of this kind is there',
]

let sources
let manager

function timed(work) {
  const startedAt = performance.now()
  work()
  return performance.now() - startedAt
}

async function timedAsync(work) {
  const startedAt = performance.now()
  await work()
  return performance.now() - startedAt
}

function checkCount(found, wanted = options.sources * options.tools) {
  if (found.length !== wanted) throw new Error(`There are ${found.length} tools instead of ${wanted}.`)
}

/** All handles in an order that no cache likes. */
function shuffledHandles() {
  const handles = manager.list().map(({ name }) => name)
  return handles.map((_, i) => handles[(i * 7919) % handles.length])
}

ready(0, {
  /** Makes the space, and lists for the first time. In milliseconds, without the making of the definitions. */
  open() {
    sources = Array.from({ length: options.sources }, (_, i) => new Source(i))
    return timed(() => {
      manager = new ToolManager({ sources, pins: new Pins() })
      checkCount(manager.list())
    })
  },
  list: () => timed(() => checkCount(manager.list())),
  /** Microseconds for each lookup. */
  lookup({ how }) {
    const handles = shuffledHandles()
    const ms = timed(() => {
      for (const handle of handles) {
        if (manager[how](handle).name !== handle) throw new Error(`${handle} was not found.`)
      }
    })
    return (ms * 1000) / handles.length
  },
  /** Milliseconds for each query. */
  async search() {
    const times = []
    for (const query of queries) times.push(await timedAsync(() => manager.search(query)))
    return times
  },
  /** One search, after a change of one tool where that is asked for. */
  searchOnce: async ({ changed }) => {
    if (changed) sources[50].toggle()
    return await timedAsync(() => manager.search('create invoice'))
  },
  /** From the change of one tool to a list that has it. */
  change() {
    const before = manager.list().length
    const ms = timed(() => {
      sources[50].toggle()
      if (Math.abs(manager.list().length - before) !== 1) throw new Error('The change does not show.')
    })
    return ms
  },
  define: () =>
    timed(() => checkCount(createDefinitions(manager.list(), { for: 'openai' }).definitions, manager.list().length)),
})
