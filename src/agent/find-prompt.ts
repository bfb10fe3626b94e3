/** Prompts, by name or as they are written. */
import { ConvokeError } from '../base/errors.ts'
import type { RunnerContext } from './context.ts'
import { Prompt } from './prompt.ts'
import type { Resources } from './resources.ts'

/** The prompt resource of that name; where there is none, the text itself is the prompt. */
export async function findPrompt(
  nameOrText: string,
  context: Pick<RunnerContext, 'getResource'>,
): Promise<Resources['prompt']> {
  try {
    return await context.getResource(nameOrText, 'prompt')
  } catch (error) {
    if (!(error instanceof ConvokeError) || error.code !== 'not_found') throw error
    return Prompt.fromText(nameOrText)
  }
}
