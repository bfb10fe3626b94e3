/** A tool's schema in the JSON Schema of a provider, with all that it says. */
import type { JsonObject } from '../../base/json.ts'
import type { JsonSchema } from '../tool.ts'
import { Bending } from './bending.ts'
import type { Dialect } from './dialects.ts'
import { bendOpen } from './open-schema.ts'
import { beyondStrict } from './strict-limits.ts'
import { SubsetBender } from './subset-schema.ts'

/** A schema for a provider. */
export interface Bent {
  /** Read-only: it is shared by all who ask for it. */
  readonly schema: JsonObject
  /** Whether names of properties were changed: arguments must be translated back. */
  readonly renamed: boolean
  /** Why it is no schema for this provider, where it cannot be; only a closed dialect has such reasons. */
  readonly unfit?: string
}

const known = new WeakMap<JsonSchema, Map<Dialect, Bent>>()

/** The schema in a dialect; the same object for the same schema. It is made once, and the tool's own is not touched. */
export function bend(schema: JsonSchema, dialect: Dialect): Bent {
  let byDialect = known.get(schema)
  if (byDialect === undefined) known.set(schema, (byDialect = new Map<Dialect, Bent>()))
  let bent = byDialect.get(dialect)
  if (bent === undefined) byDialect.set(dialect, (bent = bendNow(schema, dialect)))
  return bent
}

function bendNow(schema: JsonSchema, dialect: Dialect): Bent {
  const bending = new Bending(schema, dialect)
  const subset = dialect.keywords === undefined ? undefined : new SubsetBender(bending)
  const bent = subset === undefined ? bendOpen(bending) : subset.root()
  if (Object.keys(bending.definitions).length > 0) bent['$defs'] = bending.definitions
  const unfit = subset?.unfit ?? (dialect.closed ? beyondStrict(bent) : undefined)
  return { schema: bent, renamed: bending.renamed, ...(unfit === undefined ? {} : { unfit }) }
}
