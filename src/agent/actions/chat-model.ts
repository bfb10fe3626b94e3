import type { Action } from '../context.ts'

export const chatModelAction: Action = () => {
  throw new Error('This action is not there yet.')
}
