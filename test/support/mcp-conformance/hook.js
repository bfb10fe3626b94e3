/** The suite was built for Node 22, whose `fs` has `globSync`; nothing that is run here calls it. */
import { register } from 'node:module'

const source = `
export * from 'node:fs'
export { default } from 'node:fs'
export const globSync = () => { throw new Error('There is no globSync here.') }
`
const shim = `data:text/javascript,${encodeURIComponent(source)}`

register(
  `data:text/javascript,${encodeURIComponent(`
export function resolve(specifier, context, next) {
  const isSuite = context.parentURL?.includes('/@modelcontextprotocol/conformance/') === true
  if (isSuite && (specifier === 'fs' || specifier === 'node:fs')) return { url: ${JSON.stringify(shim)}, shortCircuit: true }
  return next(specifier, context)
}
`)}`,
)
