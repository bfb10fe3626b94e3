/** The calls that are under way at a peer. A list of their own links: a Set costs each call more than the rest of it does. */

/** A call, with its place in the list. */
export interface OpenCall {
  next: OpenCall | undefined
  previous: OpenCall | undefined
  /** Tells the peer to stop; resolves when it has, or will not be waited for. Never rejects. */
  leave(): Promise<void>
}

export class OpenCalls {
  #first: OpenCall | undefined

  add(call: OpenCall): void {
    call.next = this.#first
    if (this.#first !== undefined) this.#first.previous = call
    this.#first = call
  }

  delete(call: OpenCall): void {
    if (call.previous !== undefined) call.previous.next = call.next
    else if (this.#first === call) this.#first = call.next
    if (call.next !== undefined) call.next.previous = call.previous
    call.next = undefined
    call.previous = undefined
  }

  /** Stops all of them. */
  async leave(): Promise<void> {
    const leaving: Promise<void>[] = []
    for (let call = this.#first; call !== undefined; call = call.next) leaving.push(call.leave())
    await Promise.all(leaving)
  }
}
