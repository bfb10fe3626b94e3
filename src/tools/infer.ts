/** The TypeScript type that a JSON Schema written in place describes. */
import type { Json, JsonObject } from '../base/json.ts'
import type { StandardInput, StandardOutput, StandardSchema } from './standard.ts'

/** JSON as a `const` type parameter infers it. */
export type ReadonlyJson =
  | string
  | number
  | boolean
  | null
  | readonly ReadonlyJson[]
  | { readonly [key: string]: ReadonlyJson }

/** A JSON Schema, written in place or held in a variable. */
export interface SchemaLiteral {
  readonly [keyword: string]: ReadonlyJson
}

/** What `defineTool` takes for `input` and `output`. */
export type SchemaSource = SchemaLiteral | StandardSchema

/** What `run` gets: validated, defaults merged. */
export type ParamsOf<Source extends SchemaSource> = Source extends StandardSchema
  ? StandardOutput<Source>
  : string extends keyof Source
    ? JsonObject
    : FromSchema<Source, Json>

/** What `run` may return. Without an output schema that is any JSON value or bytes, checked at run time. */
export type ResultOf<Source extends SchemaSource | undefined> = Source extends StandardSchema
  ? StandardInput<Source>
  : Source extends SchemaLiteral
    ? string extends keyof Source
      ? unknown
      : Widened<FromSchema<Source, unknown>>
    : unknown

/**
 * `string` for the words of an enum: TypeScript infers what a function returns before it knows this schema, and would
 * refuse `{ status: 'ok' }` because `status` is a string. The words are checked at run time.
 */
type Widened<Value> = unknown extends Value
  ? Value
  : Value extends string
    ? string
    : Value extends number
      ? number
      : Value extends boolean
        ? boolean
        : { [Key in keyof Value]: Widened<Value[Key]> }

/**
 * Follows type, properties, required, default, additionalProperties, items, enum, const, anyOf and oneOf. Where it
 * meets anything else that decides the type ($ref, allOf, no type at all) it says `Other`.
 */
export type FromSchema<Schema, Other> = Schema extends { readonly const: infer Value }
  ? Mutable<Value>
  : Schema extends { readonly enum: readonly (infer Value)[] }
    ? Mutable<Value>
    : Schema extends { readonly anyOf: readonly (infer Branch)[] } | { readonly oneOf: readonly (infer Branch)[] }
      ? FromBranch<Branch, Other>
      : Schema extends { readonly type: infer Type }
        ? FromTypes<Type extends readonly (infer Each)[] ? Each : Type, Schema, Other>
        : Other

type FromBranch<Branch, Other> = Branch extends unknown ? FromSchema<Branch, Other> : never

type FromTypes<Type, Schema, Other> = Type extends 'object'
  ? FromObject<Schema, Other>
  : Type extends 'array'
    ? (Schema extends { readonly items: infer Items } ? FromSchema<Items, Other> : Other)[]
    : Type extends 'string'
      ? string
      : Type extends 'number' | 'integer'
        ? number
        : Type extends 'boolean'
          ? boolean
          : Type extends 'null'
            ? null
            : Other

type FromObject<Schema, Other> = Schema extends { readonly properties: infer Properties extends object }
  ? keyof Properties extends never
    ? FromMembers<Schema, Other>
    : Flat<
        { [Key in PresentKey<Schema, Properties>]: FromSchema<Properties[Key], Other> } & {
          [Key in Exclude<keyof Properties, PresentKey<Schema, Properties>>]?: FromSchema<Properties[Key], Other>
        }
      >
  : FromMembers<Schema, Other>

/** Required, or filled in from its default. */
type PresentKey<Schema, Properties> =
  | (Schema extends { readonly required: readonly (infer Key)[] } ? Key & keyof Properties : never)
  | { [Key in keyof Properties]: Properties[Key] extends { readonly default: unknown } ? Key : never }[keyof Properties]

type FromMembers<Schema, Other> = Schema extends { readonly additionalProperties: infer Members }
  ? Members extends false
    ? Record<string, never>
    : { [key: string]: FromSchema<Members, Other> }
  : { [key: string]: Other }

type Flat<Type> = { [Key in keyof Type]: Type[Key] }

type Mutable<Value> = Value extends object ? { -readonly [Key in keyof Value]: Mutable<Value[Key]> } : Value
