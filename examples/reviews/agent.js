// The workflow agent by itself:
// npx convoke agent run examples/reviews/agent.js --input examples/reviews/reviews.jsonl
import { OpenAiConnection } from 'convoke'
import { openModel } from './model.js'
import { ReviewAgent } from './workflow.js'

/** Made once for each runner, and closed with it. The command line is not ours here, so the environment says which model. */
async function connect() {
  const model = await openModel([])
  const connection = new OpenAiConnection(model.settings)
  return {
    chat: (request, options) => connection.chat(request, options),
    async close() {
      await connection.close()
      await model.close()
    },
  }
}

export const agent = new ReviewAgent().addResource('model', connect, 'chatModelConnection')
