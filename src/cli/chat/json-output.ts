/** Events as lines of JSON. */
import type { ChatEvent, ChatOutput } from './events.ts'
import { write, type Sink } from './text-output.ts'

export class JsonOutput implements ChatOutput {
  readonly #out: Sink

  constructor(out: Sink) {
    this.#out = out
  }

  async show(event: ChatEvent): Promise<void> {
    await write(this.#out, `${JSON.stringify(event)}\n`)
  }

  note(sentence: string): void {
    process.stderr.write(`${sentence}\n`)
  }

  cut(): void {}
}
