/** A network that fails on command: a TCP proxy between a client and a real server. */
import { once } from 'node:events'
import { connect, createServer, type AddressInfo, type Socket } from 'node:net'
import { setTimeout as wait } from 'node:timers/promises'
import { cleanup, deferred, type Deferred } from './lifetime.ts'

/** Faults stay until {@link heal}, but for those that say `once`. They meet connections that are open already, too. */
export interface FaultProxy {
  /** Where the server seems to be. The Host header comes through as it is, so a node's card names this address. */
  readonly url: string
  /** How many connections were ever taken in. */
  readonly connections: number
  /** How many are open. */
  readonly open: number
  /** How many connections were cut here. */
  readonly cuts: number
  /** How many bytes of answers came through. */
  readonly received: number
  /** All that clients sent, one after the other, whether it came through or not. */
  readonly sent: string
  /** Resets every open connection, on both sides. */
  cut(): void
  /**
   * Once: resets the connection whose answer brings the `bytes`-th byte from now on, right behind that byte. A client
   * that finds bytes and reset together may take the reset for an end: libuv does.
   */
  cutAfter(bytes: number): void
  /** Once: resets the connection whose request brings the `bytes`-th byte; the server sees what was before the cut. */
  cutRequestAfter(bytes: number): void
  /** Holds every piece of an answer for so many milliseconds. */
  delay(ms: number): void
  /** Forwards nothing any more and keeps all connections open; what comes meanwhile waits for {@link heal}. */
  halfOpen(): void
  /** Answers requests with these bytes, as they stand, and closes the connection; the server hears nothing of them. */
  respond(raw: string, times?: number): void
  /** Answers with bytes that are not HTTP. */
  garbage(): void
  /** Refuses new connections; open ones stay. */
  refuse(): void
  /** Takes connections in again, at the same address. */
  resume(): Promise<void>
  /** Ends all faults but {@link refuse}. */
  heal(): void
}

interface Bridge {
  readonly client: Socket
  readonly server: Socket
  /** Aborts when either side is gone. */
  readonly gone: AbortController
  isAnswered: boolean
}

/** Counts the bytes that may still pass. */
interface Budget {
  left: number
}

/** Starts a proxy in front of `target`, an `http:` URL; gone when the test is over. */
export async function startFaultProxy(target: string): Promise<FaultProxy> {
  const { hostname, port: targetPort } = new URL(target)
  const bridges = new Set<Bridge>()
  let connections = 0
  let cuts = 0
  let received = 0
  let sent = ''
  let delayMs = 0
  let held: Deferred<void> | undefined
  let answer: { readonly raw: string; times: number } | undefined
  let requestBudget: Budget | undefined
  let answerBudget: Budget | undefined

  const reset = ({ client, server }: Bridge): void => {
    cuts++
    client.resetAndDestroy()
    server.resetAndDestroy()
  }

  /** What may pass of a piece. The rest of it, and the connection, is lost when the budget ends in it. */
  const spend = (budget: Budget | undefined, bytes: Buffer): { rest: Buffer; isLast: boolean } => {
    if (budget === undefined) return { rest: bytes, isLast: false }
    const rest = bytes.subarray(0, budget.left)
    budget.left -= rest.length
    return { rest, isLast: budget.left === 0 }
  }

  const write = async (to: Socket, bytes: Buffer): Promise<void> => {
    // Resolves when the kernel has the bytes: a reset behind them cannot overtake them then.
    if (bytes.length > 0) await new Promise<void>((resolve) => to.write(bytes, () => resolve()))
  }

  const forwardRequests = async (bridge: Bridge): Promise<void> => {
    const { client, server } = bridge
    for await (const bytes of client as AsyncIterable<Buffer>) {
      sent += bytes.toString('latin1')
      await held?.promise
      // A client that is answered early still gets the rest of its request taken off its hands.
      if (bridge.isAnswered) continue
      if (answer !== undefined && answer.times > 0) {
        answer.times--
        bridge.isAnswered = true
        server.destroy()
        client.end(answer.raw, 'latin1')
        continue
      }
      const { rest, isLast } = spend(requestBudget, bytes)
      await write(server, rest)
      if (!isLast) continue
      requestBudget = undefined
      return reset(bridge)
    }
    server.end()
  }

  const forwardAnswers = async (bridge: Bridge): Promise<void> => {
    const { client, server, gone } = bridge
    for await (const bytes of server as AsyncIterable<Buffer>) {
      if (delayMs > 0) await wait(delayMs, undefined, { signal: gone.signal })
      await held?.promise
      const { rest, isLast } = spend(answerBudget, bytes)
      await write(client, rest)
      received += rest.length
      if (!isLast) continue
      answerBudget = undefined
      return reset(bridge)
    }
    client.end()
  }

  const listener = createServer({ allowHalfOpen: true, noDelay: true }, (client) => {
    connections++
    const server = connect({ host: hostname, port: Number(targetPort), allowHalfOpen: true, noDelay: true })
    const bridge: Bridge = { client, server, gone: new AbortController(), isAnswered: false }
    bridges.add(bridge)
    for (const [socket, other] of [
      [client, server],
      [server, client],
    ] as const) {
      // What is wrong with a socket ends it, and its end is what matters here.
      socket.on('error', () => {})
      socket.once('close', (hadError: boolean) => {
        bridge.gone.abort()
        bridges.delete(bridge)
        if (hadError && !bridge.isAnswered) other.resetAndDestroy()
      })
    }
    // They fail when a socket is gone, which the other one has heard of above.
    forwardRequests(bridge).catch(() => {})
    forwardAnswers(bridge).catch(() => {})
  })
  const listen = async (port: number): Promise<void> => {
    listener.listen(port, '127.0.0.1')
    await once(listener, 'listening')
  }
  const respond = (raw: string, times = Number.POSITIVE_INFINITY): void => {
    answer = { raw, times }
  }
  await listen(0)
  const { port } = listener.address() as AddressInfo
  cleanup(() => {
    held?.resolve()
    listener.close()
    for (const { client, server } of bridges) {
      client.destroy()
      server.destroy()
    }
  })

  return {
    url: `http://127.0.0.1:${port}`,
    get connections() {
      return connections
    },
    get open() {
      return bridges.size
    },
    get cuts() {
      return cuts
    },
    get received() {
      return received
    },
    get sent() {
      return sent
    },
    cut() {
      for (const bridge of bridges) reset(bridge)
    },
    cutAfter(bytes) {
      answerBudget = { left: bytes }
    },
    cutRequestAfter(bytes) {
      requestBudget = { left: bytes }
    },
    delay(ms) {
      delayMs = ms
    },
    halfOpen() {
      held ??= deferred()
    },
    respond,
    garbage: () => respond('\x16\x03\x01 This is not HTTP.\r\n\r\n'),
    refuse() {
      listener.close()
    },
    resume: () => listen(port),
    heal() {
      delayMs = 0
      answer = undefined
      requestBudget = undefined
      answerBudget = undefined
      held?.resolve()
      held = undefined
    },
  }
}

/** The text of an HTTP answer for {@link FaultProxy.respond}; `headers` may contradict the body. */
export function httpAnswer(status: number, headers: Readonly<Record<string, string>> = {}, body = ''): string {
  const all = { connection: 'close', 'content-length': String(Buffer.byteLength(body)), ...headers }
  const lines = Object.entries(all).map(([name, value]) => `${name}: ${value}\r\n`)
  // respond() sends latin1, so that any byte can be in an answer.
  return `HTTP/1.1 ${status} Canned\r\n${lines.join('')}\r\n${Buffer.from(body).toString('latin1')}`
}
