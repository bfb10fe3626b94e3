import type { Server } from '@modelcontextprotocol/sdk/server/index.js'

export function createTestServer(options: {
  readonly state: () => object
  readonly note: (text: string) => void
  readonly who: (variable: string, extra: { requestInfo?: { headers: Record<string, unknown> } }) => unknown
  // oxlint-disable-next-line typescript/no-deprecated -- the one that lets a test answer anything
}): Server
