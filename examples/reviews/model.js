// The model that the examples ask: the endpoint of --model-url, else a scripted one, for which nothing need be installed.
import { parseArgs } from 'node:util'
import { startScriptedModel } from './scripted-model.js'

const { MODEL_URL, MODEL_NAME, MODEL_API_KEY } = process.env

/**
 * Takes `--model-url URL --model NAME`, or MODEL_URL and MODEL_NAME of the environment; the key of the endpoint, if it needs one, is
 * MODEL_API_KEY. `settings` are those of an OpenAiConnection, or of one of a node's `models`. `close` when it is no longer needed.
 */
export async function openModel(args = process.argv.slice(2)) {
  const options = {
    'model-url': { type: 'string', default: MODEL_URL },
    model: { type: 'string', default: MODEL_NAME },
  }
  /** @type {{ 'model-url'?: string, model?: string }} */
  const { 'model-url': baseUrl, model } = parseArgs({ args, options }).values
  if (baseUrl === undefined) {
    const scripted = await startScriptedModel()
    const settings = { baseUrl: scripted.url, model: 'scripted' }
    const name = 'a scripted one (another: --model-url URL --model NAME)'
    return { name, settings, close: () => scripted.close() }
  }
  if (model === undefined) throw new Error('Say which model, too: --model NAME.')
  const settings = { baseUrl, model, ...(MODEL_API_KEY === undefined ? {} : { apiKey: MODEL_API_KEY }) }
  return { name: `${model} at ${baseUrl}`, settings, close: async () => {} }
}
