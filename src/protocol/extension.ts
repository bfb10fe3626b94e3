/** The tool-call extension, version 1. `docs/protocol.md` is its specification, `test/wire/` its test vectors. */

export const extensionUri = 'urn:convoke:tool-call:v1'

/** Metadata keys, as they stand on the wire. */
export const keys = {
  call: '_tool_call',
  result: '_tool_result',
  wrapped: '_tool_result_wrapped',
  parts: '_tool_result_parts',
  progress: '_tool_progress',
  log: '_tool_log',
  error: '_tool_error',
  attempt: '_tool_attempt',
  question: '_tool_question',
  joined: '_joined_text',
  delegation: '_delegation',
} as const

/** On the card a tool is the skill `tool-NAME` with this tag. */
export const skillPrefix = 'tool-'
export const toolTag = 'tool'

export const streamArtifact = 'stream'
export const resultArtifact = 'result'

/** How the closing words of a task begin whose answer the agent was told to ignore; why comes behind. */
export const ignoredWords = 'output ignored: '

/** `^[A-Za-z0-9_-]{1,64}$`: what a tool may be called. */
export const toolNamePattern = /^[A-Za-z0-9_-]{1,64}$/
