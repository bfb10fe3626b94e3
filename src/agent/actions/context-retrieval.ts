/** The built-in action that looks for what is known. */
import type { Json } from '../../base/json.ts'
import type { Action } from '../context.ts'
import { type ContextRetrievalRequestEvent, ContextRetrievalResponseEvent, type RetrievedDocument } from '../events.ts'
import { checkCount } from '../model-limits.ts'

/**
 * Asks the vector store that a {@link ContextRetrievalRequestEvent} names, and answers with one {@link ContextRetrievalResponseEvent}. Throws
 * `config` for a wrong `maxResults`, and what the store throws.
 */
export const contextRetrievalAction: Action = async (event, context) => {
  const { id, payload } = event as ContextRetrievalRequestEvent
  const { query, vectorStore, maxResults = 3 } = payload
  checkCount('maxResults', maxResults, 1)
  const store = await context.getResource(vectorStore, 'vectorStore')
  const found = await context.durableExecute(
    'query',
    async (signal) => (await store.query(query, { maxResults, signal })) as unknown as Json,
    { repeatable: true },
  )
  const documents = found as unknown as RetrievedDocument[]
  context.sendEvent(new ContextRetrievalResponseEvent({ requestId: id, query, documents }))
}
