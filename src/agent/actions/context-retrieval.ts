import type { Action } from '../context.ts'

export const contextRetrievalAction: Action = () => {
  throw new Error('This action is not there yet.')
}
