// Looks at tools of the service that it is told to be, in a process of its own.
// pin-process.js FILE SERVICE: on 'write' sees one new tool after the other and writes each, until 'stop'; on 'watch'
// says what becomes of a tool whose description is the one it is sent with.
import { Pins } from '../../dist/tools/pins.js'

const [file, service] = process.argv.slice(2)
const pins = new Pins({ file })

function tool(name, description) {
  return {
    name: `${service}.${name}`,
    description,
    input: { type: 'object' },
    traits: {},
    kind: 'a2a',
    async *run() {},
  }
}

let isStopped = false
process.on('message', (message) => void follow(message))

async function follow({ order, description }) {
  if (order === 'write') {
    let count = 0
    while (!isStopped) {
      pins.check(tool(`t${count++}`, 'A tool.'))
      await pins.approve([])
      process.send({ count })
    }
    await pins.close()
    process.disconnect()
  } else if (order === 'watch') {
    const seen = tool('echo', description)
    pins.onChange(() => process.send({ state: pins.check(seen).state }))
    process.send({ state: pins.check(seen).state })
  } else {
    isStopped = true
  }
}
process.send({ ready: true })
