/** The side of a server process: says where it listens, answers what the bench asks, ends with its parent. */

const answers = {
  cpu: () => {
    const { user, system } = process.cpuUsage()
    return user + system
  },
  /** Bytes in use after a collection (with --expose-gc), and the resident set. */
  memory: async () => {
    for (let i = 0; i < 3; i++) {
      globalThis.gc?.()
      // Finalizers and closed handles run in later turns, and free more.
      await new Promise((resolve) => setTimeout(resolve, 80))
    }
    const { heapUsed, external, rss } = process.memoryUsage()
    return { heapUsed, external, rss }
  },
  /** The resident set as it is now, without a collection. */
  rss: () => process.memoryUsage.rss(),
}

/** What the parent wants of this server. */
export const options = JSON.parse(process.argv[2] ?? '{}')

/** Tells the parent that the server is up. `more` are further questions that this one can answer. */
export function ready(port, more = {}) {
  const known = { ...answers, ...more }
  const answer = async ({ id, what, argument }) => {
    try {
      process.send({ id, answer: await known[what](argument) })
    } catch (error) {
      process.send({ id, error: error.message })
    }
  }
  process.on('message', (question) => void answer(question))
  process.send({ port })
}

// A bench that was killed leaves no servers behind. exit() lets --cpu-prof write its file.
process.on('disconnect', () => process.exit(0))
// The terminal's Ctrl-C reaches the whole group; the parent ends us in order.
process.on('SIGINT', () => {})
