/** Are the tools such that others can call them? */
import { ConvokeError } from '../../../base/errors.ts'
import type { CardInterface } from '../../../peers/card-resolver.ts'
import type { ToolDescriptor } from '../../../protocol/card.ts'
import { compile } from '../../../tools/schema.ts'
import { clip } from '../../../tools/value.ts'
import type { Patient } from './patient.ts'

/** How many tools a sentence names. */
const maxNamed = 5

/** The tools of the peer, having looked at each. */
export async function checkTools(patient: Patient, way: CardInterface): Promise<readonly ToolDescriptor[]> {
  const { findings, signal } = patient
  const client = patient.client(way)
  let tools: readonly ToolDescriptor[]
  try {
    tools = await client.descriptors({ signal })
  } catch (error) {
    if (signal.aborted) throw error
    findings.fail(
      'tools.list',
      `The list of tools cannot be read: ${ConvokeError.from(error).message}`,
      'Serve params.tools_url of the extension as JSON, without credentials, on the origin of the card.',
    )
    return []
  } finally {
    await client.close()
  }
  if (tools.length === 0) {
    findings.ok('tools.list', 'It publishes no typed tools; it takes messages.')
    return tools
  }
  const names = tools.map(({ name }) => name)
  const twice = names.filter((name, i) => names.indexOf(name) !== i)
  if (twice.length > 0)
    findings.warning(
      'tools.list',
      `These tools stand on the card twice: ${listed(twice)}.`,
      'Give each tool a name of its own.',
    )
  else findings.ok('tools.list', `It publishes ${tools.length === 1 ? '1 tool' : `${tools.length} tools`}.`)
  checkSchemas(patient, tools)
  const mute = tools.filter(({ description }) => description.trim() === '').map(({ name }) => name)
  if (mute.length === 0) findings.ok('tools.descriptions', 'All of them have a description.')
  else
    findings.warning(
      'tools.descriptions',
      `These tools have no description: ${listed(mute)}.`,
      'Say what each does and when to use it: models choose by that.',
    )
  return tools
}

function checkSchemas({ findings }: Patient, tools: readonly ToolDescriptor[]): void {
  const broken = tools.flatMap(({ name, inputSchema, outputSchema }) =>
    [
      { what: 'params', schema: inputSchema },
      { what: 'result', schema: outputSchema },
    ].flatMap(({ what, schema }) => {
      try {
        if (schema !== undefined) compile(schema).prepare()
        return []
      } catch (error) {
        return [`the ${what} of ${name} (${clip(error instanceof Error ? error.message : String(error), 200)})`]
      }
    }),
  )
  const untyped = tools.filter(({ inputSchema }) => inputSchema === undefined).map(({ name }) => name)
  if (broken.length > 0)
    findings.fail(
      'tools.schemas',
      `These schemas cannot be used: ${broken.slice(0, maxNamed).join('; ')}.`,
      'Publish JSON Schema of draft 2020-12 or draft-07 that needs no other document.',
    )
  else if (untyped.length > 0)
    findings.warning(
      'tools.schemas',
      `These tools have no input_schema: ${listed(untyped)}.`,
      'Publish one, so that params can be checked before they are sent.',
    )
  else findings.ok('tools.schemas', 'All their schemas can be compiled.')
}

function listed(names: readonly string[]): string {
  const more = names.length > maxNamed ? ` and ${names.length - maxNamed} more` : ''
  return `${names.slice(0, maxNamed).join(', ')}${more}`
}
