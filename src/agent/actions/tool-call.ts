import type { Action } from '../context.ts'

export const toolCallAction: Action = () => {
  throw new Error('This action is not there yet.')
}
