/** Requests and responses of node:http in the web's own shapes, which the MCP server package speaks, and back. */
import type { IncomingMessage, ServerResponse } from 'node:http'

/**
 * The request without its body, which the caller has read. Its signal aborts when the connection is gone before the
 * response was finished.
 */
export function toWebRequest(req: IncomingMessage, res: ServerResponse): Request {
  const headers = new Headers()
  for (const [name, value] of Object.entries(req.headers)) {
    if (value !== undefined && !name.startsWith(':')) headers.set(name, Array.isArray(value) ? value.join(', ') : value)
  }
  const gone = new AbortController()
  const onClose = (): void => {
    if (!res.writableFinished) gone.abort()
  }
  if (res.closed) onClose()
  else res.once('close', onClose)
  // The path has been matched already, and nobody looks at the host again.
  return new Request('http://node/mcp', { method: req.method ?? 'GET', headers, signal: gone.signal })
}

/** Sends the response, a stream piece by piece as the socket takes it. Resolves when it has left or its reader is gone. */
export async function sendWebResponse(res: ServerResponse, response: Response): Promise<void> {
  const { body } = response
  if (res.destroyed || res.headersSent) {
    await body?.cancel()
    return
  }
  res.writeHead(response.status, Object.fromEntries(response.headers))
  if (body === null) {
    res.end()
    return
  }
  res.flushHeaders()
  const reader = (body as ReadableStream<Uint8Array>).getReader()
  const stop = (): void => {
    // What is cancelled here has nobody left to tell.
    reader.cancel().catch(() => {})
  }
  res.once('close', stop)
  try {
    for (;;) {
      const { done, value } = await reader.read()
      if (done || res.destroyed) break
      if (!res.write(value)) await drained(res)
    }
    res.end()
  } catch {
    // The stream broke off behind its headers; a cut connection is all that can still say so.
    res.destroy()
  } finally {
    res.off('close', stop)
  }
}

function drained(res: ServerResponse): Promise<void> {
  return new Promise((resolve) => {
    if (res.destroyed) return resolve()
    const done = (): void => {
      res.off('drain', done)
      res.off('close', done)
      resolve()
    }
    res.on('drain', done)
    res.on('close', done)
  })
}
