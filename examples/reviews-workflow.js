// Reviews by workflow agents: judges each, keeps an average, and gives advice on a product after every four of its reviews:
// node examples/reviews-workflow.js [--model-url URL --model NAME]
import { getExecutionEnvironment, OpenAiConnection, ResourceDescriptor } from 'convoke'
import { openModel } from './reviews/model.js'
import { printAdvice, reviews, shown } from './reviews/streams.js'
import { ReviewAgent, SuggestionAgent } from './reviews/workflow.js'

let model
try {
  model = await openModel()
  console.log(`The model is ${model.name}.\n`)
  const environment = getExecutionEnvironment()
  // For all agents; each brings its own setups, prompts and tools.
  environment.addResource('model', new ResourceDescriptor(OpenAiConnection, model.settings))

  // The keys are products: reviews of one stay in order, and share a memory; different products go on at the same time.
  const judgements = environment.fromStream(reviews()).apply(new ReviewAgent())
  const advice = environment.fromStream(shown(judgements.toStream())).window(4).apply(new SuggestionAgent())
  await printAdvice(advice.toStream())
} catch (error) {
  // The message is for people: it says who failed and why.
  console.error(error.message)
  process.exitCode = 1
} finally {
  await model?.close()
}
