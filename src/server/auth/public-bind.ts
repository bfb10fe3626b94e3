/** No node stands open to a network by accident. */
import { ConvokeError } from '../../base/errors.ts'
import type { NodeOptions } from '../../options.ts'
import { isLoopback } from './origin.ts'

/**
 * The error of a node that would let everyone on its network call its tools although nobody said so; undefined
 * where the node listens on loopback, has auth, or was told to take everyone.
 */
export function publicBindProblem({ server = {} }: Pick<NodeOptions, 'server'>): ConvokeError | undefined {
  const host = server.host ?? '127.0.0.1'
  if (isLoopback(host) || server.auth !== undefined || server.allowAnonymous === true) return undefined
  return new ConvokeError(
    'config',
    `Refusing to listen on ${host} without authentication: everyone who reaches it could call the tools. ` +
      'Go on in one of three ways: add a token to server.auth.tokens (convoke token makes one); ' +
      'listen on this machine only (server.host: 127.0.0.1); ' +
      'or, where a gateway in front authenticates, set server.allowAnonymous: true.',
  )
}
