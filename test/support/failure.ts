import { ConvokeError } from 'convoke'
import { inspect } from 'node:util'

/** The failure that this ends with. Throws what is no ConvokeError, and where it does not fail. */
export async function failureOf(work: Promise<unknown>): Promise<ConvokeError> {
  const error: unknown = await work.then(
    (value) => new Error(`It did not fail, but gave ${inspect(value)}.`),
    (reason: unknown) => reason,
  )
  if (!(error instanceof ConvokeError)) throw error
  return error
}
