// The same reviews by ReAct agents, each of them a model with a prompt, tools and a schema for its answers:
// node examples/reviews-react.js [--model-url URL --model NAME]
import { getExecutionEnvironment, OpenAiConnection, ReActAgent, ResourceDescriptor } from 'convoke'
import { openModel } from './reviews/model.js'
import { printAdvice, reviews, shown } from './reviews/streams.js'
import { notifyShipping } from './reviews/tools.js'
import { adviceSchema, judgementSchema, reviewPrompt, suggestionPrompt } from './reviews/words.js'

const reviewer = new ReActAgent({
  chatModel: { connection: 'model', tools: ['notify_shipping'] },
  // The members of an input fill its variables.
  prompt: reviewPrompt,
  outputSchema: judgementSchema,
  // What fails is tried again, and an answer that does not fit goes back to the model.
  errorStrategy: 'retry',
})
const adviser = new ReActAgent({
  chatModel: { connection: 'model' },
  prompt: suggestionPrompt,
  outputSchema: adviceSchema,
  errorStrategy: 'retry',
})

let model
try {
  model = await openModel()
  console.log(`The model is ${model.name}.\n`)
  const environment = getExecutionEnvironment()
  environment.addResource('model', new ResourceDescriptor(OpenAiConnection, model.settings))
  environment.addResource('notify_shipping', notifyShipping)

  const judgements = environment.fromStream(reviews()).apply(reviewer)
  const advice = environment.fromStream(shown(judgements.toStream())).window(4).apply(adviser)
  await printAdvice(advice.toStream())
} catch (error) {
  // The message is for people: it says who failed and why.
  console.error(error.message)
  process.exitCode = 1
} finally {
  await model?.close()
}
