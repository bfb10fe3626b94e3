/**
 * A proxy in front of `/mcp` that takes a prefix off the names of tools, and puts it back: the suite knows its tools by
 * their names alone, and behind another node they have its name in front.
 */
import { createServer, request, type IncomingMessage, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { createInterface } from 'node:readline'
import { text } from 'node:stream/consumers'
import { cleanup } from '../lifetime.ts'

/** Its URL; gone when the test is over. */
export async function startRenamingProxy(target: string, prefix: string): Promise<string> {
  const server = createServer((incoming, outgoing) => void pass(incoming, outgoing, new URL(target), prefix))
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  cleanup(async () => {
    server.closeAllConnections()
    await new Promise((resolve) => server.close(resolve))
  })
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}/mcp`
}

async function pass(incoming: IncomingMessage, outgoing: ServerResponse, target: URL, prefix: string): Promise<void> {
  const body = await text(incoming)
  const named = body.includes('"method":"tools/call"') ? body.replace('"name":"', `"name":"${prefix}`) : body
  const { 'content-length': _, ...headers } = incoming.headers
  const forwarded = request(
    target,
    { method: incoming.method, headers: { ...headers, host: target.host } },
    (answer) => {
      const { 'content-length': __, ...rest } = answer.headers
      outgoing.writeHead(answer.statusCode ?? 500, rest)
      outgoing.flushHeaders()
      const lines = createInterface({ input: answer })
      lines.on('line', (line) => outgoing.write(`${line.replaceAll(`"name":"${prefix}`, '"name":"')}\n`))
      lines.on('close', () => outgoing.end())
      // A stream that its reader has left breaks off.
      lines.on('error', () => outgoing.destroy())
      outgoing.on('close', () => forwarded.destroy())
    },
  )
  forwarded.on('error', () => outgoing.destroy())
  forwarded.end(named)
}
