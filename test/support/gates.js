// How tools in a process of their own wait for the test, and tell it what happens to them: over the process's channel.

/** What the test has let go so far. */
const released = new Set()
const waiting = new Map()
process.on('message', (name) => {
  released.add(name)
  waiting.get(name)?.()
})
// The test's end of the channel must not keep this process alive.
process.channel?.unref()

/** Resolves once the test has sent the name. */
export const untilReleased = (name) =>
  new Promise((resolve) => {
    if (released.has(name)) resolve()
    else waiting.set(name, resolve)
  })

export const tell = (news) => process.send?.(news)
