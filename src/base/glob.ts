/** Globs over names: `*` stands for any run of characters, dots too. */

/** In linear time: each piece between stars is looked for once, left to right. No regex, so nothing to blow up. */
export function fitsGlob(name: string, glob: string): boolean {
  const [head = '', ...rest] = glob.split('*')
  const tail = rest.pop()
  if (tail === undefined) return name === glob
  if (name.length < head.length + tail.length || !name.startsWith(head) || !name.endsWith(tail)) return false
  let from = head.length
  for (const piece of rest) {
    const at = name.indexOf(piece, from)
    if (at === -1) return false
    from = at + piece.length
  }
  return from <= name.length - tail.length
}

/** Whether a glob over handles, `SERVICE.NAME`, may fit a name of that service. */
export function mayFitService(service: string, glob: string): boolean {
  const [head = ''] = glob.split('.', 1)
  return head === service || (head.includes('*') && fitsGlob(service, head)) || glob.startsWith('*')
}
