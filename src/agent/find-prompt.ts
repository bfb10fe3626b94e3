/** Prompts, by name or as they are written. */
import { ConvokeError } from '../base/errors.ts'
import { excerpt } from '../tools/value.ts'
import type { RunnerContext } from './context.ts'
import { Prompt } from './prompt.ts'
import type { Resources } from './resources.ts'

/**
 * The prompt resource of that name; where there is none, the text itself is the prompt. A single word can only be a name: throws
 * `not_found`, which says what to do if it was none. `takesPrompt`: whether a Prompt may stand in the text's place.
 */
export async function findPrompt(
  nameOrText: string,
  context: Pick<RunnerContext, 'getResource' | 'hasResource'>,
  { takesPrompt }: { readonly takesPrompt: boolean },
): Promise<Resources['prompt']> {
  const isKnown = context.hasResource(nameOrText, 'prompt')
  if (!isKnown && !/^[\w.-]+$/.test(nameOrText)) return Prompt.fromText(nameOrText)
  try {
    return await context.getResource(nameOrText, 'prompt')
  } catch (error) {
    if (isKnown || !(error instanceof ConvokeError)) throw error
    const prompt = `Prompt.fromText(${excerpt(nameOrText)})`
    const instead = takesPrompt ? `pass ${prompt}` : `add ${prompt} as a resource, and name that`
    throw new ConvokeError(
      error.code,
      `${error.message} A single word is taken for a name; if it is the prompt itself, ${instead}.`,
    )
  }
}
