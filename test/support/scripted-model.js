/**
 * A language model that answers as its script says, over the HTTP of OpenAI's chat completions: streamed, late, cut, or with
 * nothing that makes sense. Needs Node alone, so that programs can start it too. `model-server.ts` has the types of a
 * script, and starts it for tests.
 */
import { once } from 'node:events'
import { createServer } from 'node:http'

const dimensions = 256
const pieceLength = 12

export class ModelServer {
  #script
  #embeddings
  #asked = 0
  #server
  #port = 0
  /** Those who wait for a request, by its index. */
  #waiting = new Map()
  /** Requests for completions, oldest first. */
  /** @type {import('./model-server.ts').ModelRequest[]} */
  requests = []
  /** Texts that were embedded, one list for each request. */
  /** @type {string[][]} */
  embedded = []

  /** How many connections were made. */
  connections = 0

  /**
   * @param {import('./model-server.ts').ModelScript} script
   * @param {import('./model-server.ts').EmbeddingScript} [embeddings]
   */
  constructor(script, embeddings) {
    this.#script = script
    this.#embeddings = embeddings
  }

  /** What stands in `baseUrl`. */
  get url() {
    return `http://127.0.0.1:${this.#port}/v1`
  }

  /** Listens; after {@link stop}, on the same port again. */
  async start() {
    const server = createServer((req, res) => void this.#serve(req, res))
    server.on('connection', () => this.connections++)
    server.listen(this.#port, '127.0.0.1')
    await once(server, 'listening')
    this.#server = server
    this.#port = server.address().port
  }

  /** Ends all connections; who calls now is refused. */
  async stop() {
    const server = this.#server
    if (server === undefined) return
    this.#server = undefined
    server.closeAllConnections()
    await new Promise((resolve) => server.close(resolve))
  }

  /**
   * Resolves with the request of that index, from 0, as soon as it has come.
   * @returns {Promise<import('./model-server.ts').ModelRequest>}
   */
  request(index) {
    const request = this.requests[index]
    if (request !== undefined) return Promise.resolve(request)
    return new Promise((resolve) => {
      this.#waiting.set(index, [...(this.#waiting.get(index) ?? []), resolve])
    })
  }

  async #serve(req, res) {
    let text = ''
    try {
      for await (const piece of req.setEncoding('utf8')) text += piece
      const body = text === '' ? {} : JSON.parse(text)
      const path = new URL(req.url, this.url).pathname
      if (path === '/v1/models') json(res, 200, { object: 'list', data: [{ id: 'scripted', object: 'model' }] })
      else if (path === '/v1/embeddings') await this.#embed(body, res)
      else if (path === '/v1/chat/completions') await this.#complete(req, body, res)
      else json(res, 404, { error: { message: `There is no ${path}.` } })
    } catch (error) {
      if (res.headersSent || res.destroyed) res.destroy()
      else json(res, 500, { error: { message: String(error) } })
    }
  }

  async #embed(body, res) {
    const texts = [body.input].flat()
    this.embedded.push(texts)
    const given = await this.#embeddings?.(texts, res)
    if (res.headersSent || res.destroyed) return
    if (given !== undefined) return json(res, 200, given)
    const data = texts.map((text, index) => ({ object: 'embedding', index, embedding: embed(text) }))
    json(res, 200, { object: 'list', data, model: body.model, usage: { prompt_tokens: 1, total_tokens: 1 } })
  }

  async #complete(req, body, res) {
    const index = this.#asked++
    let isOver = false
    const aborted = new Promise((resolve) => {
      res.once('close', () => {
        if (!isOver && !res.writableFinished) resolve()
      })
    })
    const request = { index, path: req.url, headers: req.headers, body, aborted }
    this.requests.push(request)
    for (const resolve of this.#waiting.get(index) ?? []) resolve(request)
    this.#waiting.delete(index)

    const script = this.#script
    const answer = typeof script === 'function' ? await script(request, index) : script[index]
    if (answer === undefined) throw new Error(`The script has no answer ${index}.`)
    const over = () => (isOver = true)
    if (typeof answer === 'string' || Array.isArray(answer)) await stream(res, body, index, [answer].flat(), over)
    else if (answer.cut === true) {
      over()
      res.destroy()
    } else if (answer.silent === true) await once(res, 'close')
    else if (answer.whole !== undefined) json(res, 200, wholeOf(body, index, answer.whole))
    else {
      const { status = 200, headers = {}, body: words = { error: { message: `Status ${answer.status}.` } } } = answer
      if (typeof words === 'string') res.writeHead(status, headers).end(words)
      else json(res, status, words, headers)
    }
  }
}

/** Each step as it comes, then what ends a stream unless a step has ended it. */
async function stream(res, body, index, steps, over) {
  const write = (text) => new Promise((resolve) => res.write(text, resolve))
  const closed = new Promise((resolve) => res.once('close', resolve))
  const event = (value) => write(`data: ${JSON.stringify(value)}\n\n`)
  const delta = (fields, reason = null) =>
    event(chunk(body, index, [{ index: 0, delta: fields, finish_reason: reason }]))
  res.writeHead(200, { 'content-type': 'text/event-stream', 'cache-control': 'no-cache' })
  res.flushHeaders()
  let calls = 0
  let words = 0
  let finish
  let usage
  for (const step of steps) {
    if (res.destroyed) return
    if (typeof step === 'string') {
      words += count(step)
      await delta({ content: step })
    } else if ('reasoning' in step) await delta({ reasoning_content: step.reasoning })
    else if ('call' in step) {
      const { head, pieces } = callOf(step.call, calls, index)
      await delta({ tool_calls: [{ index: calls, ...head }] })
      for (const piece of pieces) await delta({ tool_calls: [{ index: calls, function: { arguments: piece } }] })
      calls++
    } else if ('delta' in step) await delta(step.delta)
    else if ('chunk' in step) await event(step.chunk)
    else if ('raw' in step) await write(step.raw)
    else if ('usage' in step) usage = step.usage
    else if ('wait' in step) {
      // A client that has left is not waited for.
      await Promise.race([step.wait, closed])
    } else if ('silent' in step) await closed
    else if ('cut' in step) {
      over()
      res.destroy()
    } else if ('end' in step) {
      over()
      res.end()
      return
    } else finish = step.finish
  }
  if (res.destroyed) return
  await delta({}, finish ?? (calls > 0 ? 'tool_calls' : 'stop'))
  if (body.stream_options?.include_usage === true || usage !== undefined) {
    await event({ ...chunk(body, index, []), usage: usageOf(body, words, usage) })
  }
  over()
  res.end('data: [DONE]\n\n')
}

/** The same steps as one completion. */
function wholeOf(body, index, answer) {
  const steps = [answer].flat()
  const content = steps.filter((step) => typeof step === 'string').join('')
  const calls = steps
    .filter((step) => step.call !== undefined)
    .map(({ call }, place) => {
      const { head, pieces } = callOf(call, place, index)
      return { ...head, function: { ...head.function, arguments: pieces.join('') } }
    })
  const reasoning = steps.map((step) => step.reasoning ?? '').join('')
  const message = {
    role: 'assistant',
    content: content === '' ? null : content,
    ...(reasoning === '' ? {} : { reasoning_content: reasoning }),
    ...(calls.length === 0 ? {} : { tool_calls: calls }),
  }
  const finish = steps.find((step) => step.finish !== undefined)?.finish ?? (calls.length > 0 ? 'tool_calls' : 'stop')
  const usage = usageOf(body, count(content), steps.find((step) => step.usage !== undefined)?.usage)
  const choices = [{ index: 0, message, finish_reason: finish }]
  return { ...chunk(body, index, choices), object: 'chat.completion', usage }
}

function chunk(body, index, choices) {
  return { id: `chatcmpl-${index}`, object: 'chat.completion.chunk', created: 0, model: body.model, choices }
}

function callOf({ name, arguments: given = {}, id }, place, index) {
  const text = typeof given === 'string' ? given : JSON.stringify(given)
  const pieces = text.match(new RegExp(`.{1,${pieceLength}}`, 'gsu')) ?? []
  const head = { id: id ?? `call_${index}_${place}`, type: 'function', function: { name, arguments: '' } }
  return { head, pieces }
}

function usageOf(body, words, given) {
  const { input = count(JSON.stringify(body.messages)), output = words } = given ?? {}
  return { prompt_tokens: input, completion_tokens: output, total_tokens: input + output }
}

function count(text) {
  return text.match(/\S+/g)?.length ?? 0
}

function json(res, status, value, headers = {}) {
  res.writeHead(status, { 'content-type': 'application/json', ...headers }).end(JSON.stringify(value))
}

/** The words of a text, each at a place of its own as far as there are places: texts that share words are near each other. */
export function embed(text) {
  const vector = Array.from({ length: dimensions }, () => 0)
  for (const [word] of String(text)
    .toLowerCase()
    .matchAll(/[\p{L}\p{N}]+/gu)) {
    let hash = 2_166_136_261
    for (const letter of word) hash = Math.imul(hash ^ letter.codePointAt(0), 16_777_619) >>> 0
    vector[hash % dimensions]++
  }
  const length = Math.hypot(...vector)
  return length === 0 ? vector : vector.map((value) => value / length)
}
