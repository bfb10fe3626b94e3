/** What this room tells apart of errors without the SDK, which is loaded when a server is first connected to. */
import { ConvokeError } from '../base/errors.ts'

/** The session is unknown to the server: the request was not looked at, and goes out again with another one. */
export class SessionLost extends ConvokeError {
  constructor(server: string, cause: unknown) {
    super('network', `The MCP server ${server} has forgotten the session.`, { cause })
  }
}

/** Whether an error speaks of a tool that is not there. The protocol has no code for it. */
export function saysUnknown(text: string): boolean {
  return /^(MCP error -32602: )?(unknown tool|tool\b.{0,200}\b(not found|does not exist|is unknown))/is.test(text)
}
