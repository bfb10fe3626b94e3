// What goes into the agents of both programs, and how what comes out is printed.
import { createReadStream } from 'node:fs'
import { createInterface } from 'node:readline'

/** The reviews of reviews.jsonl: `{key, value}`, the key being the product. */
export async function* reviews() {
  const file = createReadStream(new URL('reviews.jsonl', import.meta.url))
  for await (const line of createInterface({ input: file })) yield JSON.parse(line)
}

/** Prints judgements on their way from one agent to the next. */
export async function* shown(judgements) {
  for await (const judgement of judgements) {
    const { id, score, reasons, average } = judgement.value
    const stars = '★'.repeat(score).padEnd(5, '☆')
    const mean = average === undefined ? '' : `  average ${average.toFixed(1)}`
    console.log(`${id}  ${judgement.key.padEnd(8)}  ${stars}${mean}`)
    for (const reason of reasons) console.log(`     - ${reason}`)
    yield judgement
  }
}

export async function printAdvice(advice) {
  for await (const { key, value } of advice) {
    const scores = value.scores?.map((count, i) => `  ${count} × ${i + 1}★`) ?? []
    console.log(`\n${key}:${scores.join('')}`)
    for (const suggestion of value.suggestions) console.log(`  * ${suggestion}`)
  }
}
