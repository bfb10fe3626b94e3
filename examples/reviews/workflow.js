// The two workflow agents: what happens in which order is code, and the model is asked where words must be understood.
import {
  Agent,
  AgentEvent,
  ChatModelSetup,
  ChatRequestEvent,
  ChatResponseEvent,
  InputEvent,
  OutputEvent,
  ResourceDescriptor,
} from 'convoke'
import { notifyShipping } from './tools.js'
import { adviceSchema, judgementSchema, reviewPrompt, suggestionPrompt } from './words.js'

/** An event of our own: the model has judged a review. */
export class ReviewJudged extends AgentEvent {
  static type = 'review_judged'
  constructor(payload) {
    super(ReviewJudged.type, payload)
  }
}

/** Takes `{id, product, review}` and puts out `{id, score, reasons, average}`. Needs a connection `model`. */
export class ReviewAgent extends Agent {
  constructor() {
    super()
    this.addResource('review_prompt', reviewPrompt)
    this.addResource('notify_shipping', notifyShipping)
    const setup = { connection: 'model', tools: ['notify_shipping'] }
    this.addResource('reviewer', new ResourceDescriptor(ChatModelSetup, setup))
    this.addAction('ask', InputEvent, async ({ value }, context) => {
      const prompt = await context.getResource('review_prompt', 'prompt')
      const messages = prompt.formatMessages(value)
      context.sendEvent(new ChatRequestEvent({ model: 'reviewer', messages, outputSchema: judgementSchema }))
    })
    this.addAction('judge', ChatResponseEvent, ({ payload }, context) => {
      context.sendEvent(new ReviewJudged(payload.output))
    })
    this.addAction('average', ReviewJudged, ({ payload }, context) => {
      // Each product has a memory of its own, as products are the keys.
      const { shortTermMemory: memory } = context
      const count = (memory.get('count') ?? 0) + 1
      const sum = (memory.get('sum') ?? 0) + payload.score
      memory.set('count', count)
      memory.set('sum', sum)
      context.sendEvent(new OutputEvent({ ...payload, average: sum / count }))
    })
  }
}

/** Takes a list of judgements and puts out `{scores, suggestions}`, `scores` being how often each of 1 to 5 was given. */
export class SuggestionAgent extends Agent {
  constructor() {
    super()
    this.addResource('suggestion_prompt', suggestionPrompt)
    this.addResource('adviser', new ResourceDescriptor(ChatModelSetup, { connection: 'model' }))
    this.addAction('ask', InputEvent, async ({ value: reviews }, context) => {
      const scores = [1, 2, 3, 4, 5].map((score) => reviews.filter((review) => review.score === score).length)
      const reasons = reviews.flatMap((review) => review.reasons)
      context.sensoryMemory.set('scores', scores)
      const prompt = await context.getResource('suggestion_prompt', 'prompt')
      const messages = prompt.formatMessages({ input: { scores, reasons } })
      context.sendEvent(new ChatRequestEvent({ model: 'adviser', messages, outputSchema: adviceSchema }))
    })
    this.addAction('answer', ChatResponseEvent, ({ payload }, context) => {
      const scores = context.sensoryMemory.get('scores')
      context.sendEvent(new OutputEvent({ scores, suggestions: payload.output.suggestions }))
    })
  }
}
