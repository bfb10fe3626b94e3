// A vitest reporter that closes a CI run with one plain line: "N passed, N failed, N skipped". A skip fails the run.
export default class Summary {
  onTestRunEnd(modules) {
    const counts = { passed: 0, failed: 0, skipped: 0 }
    const skipped = []
    for (const module of modules) {
      for (const test of module.children.allTests()) {
        const { state } = test.result()
        counts[state] = (counts[state] ?? 0) + 1
        if (state === 'skipped') skipped.push(test.fullName)
      }
    }
    if (skipped.length > 0) {
      console.error(`\nSkipped here, where everything must run:\n${skipped.map((name) => `  ${name}`).join('\n')}`)
      process.exitCode = 1
    }
    console.log(`\n${counts.passed} passed, ${counts.failed} failed, ${counts.skipped} skipped`)
  }
}
