// Runs in a worker thread: see primes.js. No params need checking here, the node has done it.

const block = 1_000_000

/**
 * The sieve of Eratosthenes, block by block, so that memory does not grow with the limit.
 *
 * @param {{ limit: number }} params
 * @param {{ progress(progress: { progress: number, total: number }): void }} context
 */
export function* findPrimes({ limit }, context) {
  const small = sieve(Math.floor(Math.sqrt(limit)))
  let count = 0
  let largest = 2
  for (let from = 2; from <= limit; from += block) {
    const to = Math.min(from + block - 1, limit)
    const composite = new Uint8Array(to - from + 1)
    for (const prime of small) {
      if (prime * prime > to) break
      const first = Math.max(prime * prime, Math.ceil(from / prime) * prime)
      for (let n = first; n <= to; n += prime) composite[n - from] = 1
    }
    for (let n = from; n <= to; n++) {
      if (composite[n - from] === 1) continue
      count++
      largest = n
    }
    context.progress({ progress: to, total: limit })
    yield { up_to: to, count, largest }
  }
  return { count, largest }
}

/** @param {number} limit */
function sieve(limit) {
  const composite = new Uint8Array(limit + 1)
  const found = []
  for (let n = 2; n <= limit; n++) {
    if (composite[n] === 1) continue
    found.push(n)
    for (let multiple = n * n; multiple <= limit; multiple += n) composite[multiple] = 1
  }
  return found
}
