/** Texts as vectors, by any endpoint that speaks OpenAI's embeddings. */
import { abortReason } from '../base/abort.ts'
import { ConvokeError } from '../base/errors.ts'
import { isObject, parseJson, type JsonObject } from '../base/json.ts'
import { excerpt } from '../tools/value.ts'
import type { EmbeddingModel } from './chat-model.ts'
import { OpenAiEndpoint, type OpenAiEndpointOptions } from './openai-endpoint.ts'
import { maxAnswerBytes } from './openai-stream.ts'

export interface OpenAiEmbeddingOptions extends OpenAiEndpointOptions {
  /** What the endpoint calls the model. */
  readonly model: string
  /** Further members of each request's body, such as `dimensions`. */
  readonly parameters?: JsonObject
}

/** How many texts go with one request. */
const batchSize = 128

/** Asks for {@link batchSize} texts at a time, one request after the other. Repeats nothing that failed. */
export class OpenAiEmbeddingModel implements EmbeddingModel {
  static readonly resourceType = 'embeddingModel'
  static readonly module = 'convoke'
  readonly #endpoint: OpenAiEndpoint
  readonly #model: string
  readonly #parameters: JsonObject

  /** Throws `config` for options that make no sense. Nothing is sent before the first texts. */
  constructor(options: OpenAiEmbeddingOptions) {
    const { model, parameters = {} } = options
    if (typeof model !== 'string' || model === '')
      throw new ConvokeError(
        'config',
        `\`model\` must be the name that the endpoint has for the embedding model, got ${excerpt(model)}.`,
      )
    if (!isObject(parameters))
      throw new ConvokeError('config', `\`parameters\` of a model must be an object, got ${excerpt(parameters)}.`)
    this.#endpoint = new OpenAiEndpoint('/embeddings', options)
    this.#model = model
    this.#parameters = parameters
  }

  async embed(texts: readonly string[], { signal }: { readonly signal?: AbortSignal } = {}): Promise<number[][]> {
    const vectors: number[][] = []
    for (let from = 0; from < texts.length; from += batchSize) {
      vectors.push(...(await this.#embedBatch(texts.slice(from, from + batchSize), signal)))
    }
    const [first] = vectors
    const odd = vectors.find(({ length }) => length !== first?.length)
    if (odd !== undefined)
      throw this.#endpoint.invalid(`has vectors of different lengths, ${first?.length ?? 0} and ${odd.length}`)
    return vectors
  }

  /** Ends all requests and connections. */
  async close(): Promise<void> {
    await this.#endpoint.close()
  }

  async #embedBatch(texts: readonly string[], signal: AbortSignal | undefined): Promise<number[][]> {
    const endpoint = this.#endpoint
    const body = { ...this.#parameters, model: this.#model, input: [...texts] }
    const answer = await endpoint.post(body, 'application/json', signal)
    if (answer.status < 200 || answer.status >= 300) throw (await endpoint.refusal(answer, signal)).error
    try {
      return this.#vectorsOf(parseJson(await answer.body.text(maxAnswerBytes, endpoint.timeoutMs)), texts.length)
    } catch (error) {
      throw signal?.aborted === true ? abortReason(signal) : endpoint.failure(error, signal)
    }
  }

  /** In the order of the texts, which the endpoint need not keep. */
  #vectorsOf(answer: unknown, count: number): number[][] {
    const endpoint = this.#endpoint
    if (!isObject(answer)) throw endpoint.foreign('has no embeddings')
    if (answer['error'] !== undefined && answer['error'] !== null) throw endpoint.said(answer['error'])
    const { data } = answer
    if (!Array.isArray(data)) throw endpoint.foreign('has no embeddings')
    if (data.length !== count) throw endpoint.invalid(`has ${data.length} vectors for ${count} texts`)
    const vectors = new Map<number, number[]>()
    data.forEach((entry: unknown, place) => {
      const { index = place, embedding } = isObject(entry) ? entry : {}
      if (!isVector(embedding)) throw endpoint.invalid(`has no vector of finite numbers at ${place}`)
      if (!Number.isInteger(index) || vectors.has(index as number))
        throw endpoint.invalid(`has the index ${excerpt(index)} twice, or where none can be`)
      vectors.set(index as number, embedding)
    })
    return Array.from({ length: count }, (_, index) => {
      const vector = vectors.get(index)
      if (vector === undefined) throw endpoint.invalid(`has no vector for text ${index}`)
      return vector
    })
  }
}

function isVector(value: unknown): value is number[] {
  return Array.isArray(value) && value.length > 0 && value.every((each) => Number.isFinite(each))
}
