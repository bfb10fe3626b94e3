// What the demo needs around its story: two nodes in processes of their own, and a wire that can be cut.
import { spawn } from 'node:child_process'
import { createHash, randomBytes } from 'node:crypto'
import { once } from 'node:events'
import { connect, createServer } from 'node:net'
import { createInterface } from 'node:readline'
import { fileURLToPath } from 'node:url'

const main = fileURLToPath(new URL('../../dist/cli/main.js', import.meta.url))
const sha256 = (token) => createHash('sha256').update(token).digest('hex')

/**
 * Starts alice and bob, each with tokens for you and the other. `broken` rejects when one of them ends before it was
 * closed. How to close them is pushed to `closers` before anything can fail.
 */
export async function startNodes(closers) {
  const tokens = { you: newToken(), alice: newToken(), bob: newToken() }
  const [alicePort, bobPort] = [await freePort(), await freePort()]
  const env = {
    ...process.env,
    ALICE_URL: `http://127.0.0.1:${alicePort}`,
    BOB_URL: `http://127.0.0.1:${bobPort}`,
    SHA256_YOU: sha256(tokens.you),
    SHA256_ALICE: sha256(tokens.alice),
    SHA256_BOB: sha256(tokens.bob),
  }
  // Each has one token, and shows it to the other.
  const alice = spawnNode('alice', alicePort, { ...env, BOB_TOKEN: tokens.alice })
  const bob = spawnNode('bob', bobPort, { ...env, ALICE_TOKEN: tokens.bob })
  closers.push(alice.close, bob.close)
  const broken = Promise.race([alice.broken, bob.broken])
  // Whoever waits for it hears of it; until then it is nobody's.
  broken.catch(() => {})
  await Promise.race([Promise.all([alice.ready, bob.ready]), broken])
  return { alice, bob, token: tokens.you, broken }
}

function newToken() {
  return randomBytes(24).toString('base64url')
}

function spawnNode(name, port, env) {
  const config = fileURLToPath(new URL(`${name}.yaml`, import.meta.url))
  const args = [main, 'serve', '--config', config, '--port', String(port), '--log-level', 'error', '-o', 'json']
  const child = spawn(process.execPath, args, { env, stdio: ['ignore', 'pipe', 'inherit'] })
  let closing = false
  const ended = new Promise((resolve) => child.once('close', (code, signal) => resolve(code ?? signal)))
  const broken = ended.then((how) => {
    if (!closing) throw new Error(`${name} has ended (${how}).`)
  })
  // The first line says that the node listens.
  const ready = once(createInterface(child.stdout), 'line')
  ready.catch(() => {})
  return {
    name,
    url: `http://127.0.0.1:${port}`,
    pid: child.pid,
    ready,
    // Never resolves: a node that was closed is not broken.
    broken: broken.then(() => new Promise(() => {})),
    close: async () => {
      closing = true
      child.kill('SIGTERM')
      await ended
    },
  }
}

/** A port that is free now, below those that the system gives out by itself. */
async function freePort() {
  for (;;) {
    const port = 20_000 + Math.floor(Math.random() * 12_000)
    const server = createServer()
    try {
      await once(server.listen(port, '127.0.0.1'), 'listening')
    } catch {
      // Somebody has it.
      continue
    }
    await once(server.close(), 'close')
    return port
  }
}

/** A wire to an address: `url` is its near end, and `cut` breaks what runs over it. */
export async function startWire(target) {
  const { hostname, port } = new URL(target)
  const sockets = new Set()
  const server = createServer((near) => {
    const far = connect({ host: hostname, port: Number(port) })
    for (const [socket, other] of [
      [near, far],
      [far, near],
    ]) {
      sockets.add(socket)
      socket.on('error', () => {})
      socket.once('close', () => {
        sockets.delete(socket)
        other.destroy()
      })
      socket.pipe(other)
    }
  })
  await once(server.listen(0, '127.0.0.1'), 'listening')
  const cut = () => {
    for (const socket of sockets) socket.resetAndDestroy()
  }
  return {
    url: `http://127.0.0.1:${server.address().port}`,
    cut,
    close() {
      server.close()
      cut()
    },
  }
}
