/** Places in a configuration file. */
import { isObject } from '../base/json.ts'

/** Keys and indices from the top of the file down. */
export type Path = readonly string[]

/** Undefined where there is nothing. */
export function valueAt(root: unknown, path: Path): unknown {
  let value = root
  for (const segment of path) {
    if (Array.isArray(value)) value = value[Number(segment)]
    else if (isObject(value) && Object.hasOwn(value, segment)) value = value[segment]
    else return undefined
  }
  return value
}

/** Out of a JSON pointer. */
export function fromPointer(pointer: string): Path {
  return pointer
    .split('/')
    .slice(1)
    .map((segment) => segment.replaceAll('~1', '/').replaceAll('~0', '~'))
}
