/** Prompts, by name or as they are written. */
import type { RunnerContext } from './context.ts'
import { Prompt } from './prompt.ts'
import type { Resources } from './resources.ts'

/** The prompt resource of that name; where there is none, the text itself is the prompt. A single word can only be a name: throws `not_found`. */
export async function findPrompt(
  nameOrText: string,
  context: Pick<RunnerContext, 'getResource' | 'hasResource'>,
): Promise<Resources['prompt']> {
  if (context.hasResource(nameOrText, 'prompt') || /^[\w.-]+$/.test(nameOrText))
    return await context.getResource(nameOrText, 'prompt')
  return Prompt.fromText(nameOrText)
}
