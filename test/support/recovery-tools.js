// Tools for a node in a process of its own. They wait for the test, and tell it what happens to them.
import { defineTool } from 'convoke'
import { tell, untilReleased } from './gates.js'

const count = (name, traits) =>
  defineTool({
    name,
    description: 'Counts up to n, and waits in the middle.',
    input: {
      type: 'object',
      properties: { n: { type: 'integer' }, pauseAt: { type: 'integer' } },
      required: ['n', 'pauseAt'],
    },
    traits,
    async *run({ n, pauseAt }) {
      tell(`${name} runs`)
      for (let i = 1; i <= n; i++) {
        yield { pid: process.pid, i }
        if (i === pauseAt) await untilReleased('go')
      }
      return { counted: n }
    },
  })

export const countAgain = count('count_again', { idempotent: true })
export const countOnce = count('count_once', {})

const interview = (name, traits) =>
  defineTool({
    name,
    description: 'Asks two questions.',
    input: { type: 'object', properties: { words: { type: 'array', default: [] } } },
    traits,
    async run(params, { ask }) {
      tell(`${name} runs`)
      params.words.push('changed')
      const first = await ask({ message: 'First?' })
      const second = await ask({ message: 'Second?' })
      return { words: params.words, answers: [first, second] }
    },
  })

export const interviewAgain = interview('interview_again', { idempotent: true })
export const interviewOnce = interview('interview_once', {})

export const hold = defineTool({
  name: 'hold',
  description: 'Runs until it is told to stop.',
  input: { type: 'object' },
  async *run(_params, { signal }) {
    yield 'holding'
    await new Promise((resolve) => signal.addEventListener('abort', resolve))
    tell(`hold was stopped: ${signal.reason.code}`)
    throw signal.reason
  },
})
