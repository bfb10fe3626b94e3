/** What is known of a peer's tool. */
import { createHash } from 'node:crypto'
import { canonicalJson, type JsonObject } from '../base/json.ts'
import { stripControls } from '../base/text.ts'
import type { ToolDescriptor } from '../protocol/card.ts'
import { cleanSchema } from '../tools/foreign-schema.ts'
import type { JsonSchema, ToolTraits } from '../tools/tool.ts'

/** A tool of a peer, as its card tells it. Texts and schemas are a stranger's. */
export class RemoteToolInfo {
  /** As the peer calls it; what goes on the wire. */
  readonly name: string
  readonly description: string
  /** What the peer is called on this side. */
  readonly agentId: string
  readonly agentUrl: string
  /** The tags of its skill without `tool`: the category first, then others. */
  readonly capabilities: readonly string[]
  readonly parametersSchema: JsonSchema | undefined
  readonly returnSchema: JsonSchema | undefined
  /** May it run twice, and does it change nothing, as the peer says. */
  readonly traits: Pick<ToolTraits, 'readOnly' | 'idempotent'>
  /** The tool's version on the card, where it has one. */
  readonly cardVersion: string | undefined
  /** Begins at 1 and goes up with each change of name, description or schemas. */
  readonly version: number
  /** SHA-256 of both schemas in canonical form, in hex: equal schemas have equal hashes. */
  readonly schemaHash: string
  /** When the peer was asked last, in milliseconds since 1970. */
  readonly lastUpdated: number

  constructor(fields: Omit<RemoteToolInfo, 'handle' | 'toJSON'>) {
    this.name = fields.name
    this.description = fields.description
    this.agentId = fields.agentId
    this.agentUrl = fields.agentUrl
    this.capabilities = fields.capabilities
    this.parametersSchema = fields.parametersSchema
    this.returnSchema = fields.returnSchema
    this.traits = fields.traits
    this.cardVersion = fields.cardVersion
    this.version = fields.version
    this.schemaHash = fields.schemaHash
    this.lastUpdated = fields.lastUpdated
  }

  /** `PEER.NAME`, by which this side calls it. */
  get handle(): string {
    return `${this.agentId}.${this.name}`
  }

  /** The names of the remote tool protocol. */
  toJSON(): JsonObject {
    const { parametersSchema, returnSchema } = this
    return {
      name: this.name,
      description: this.description,
      agent_id: this.agentId,
      agent_url: this.agentUrl,
      capabilities: [...this.capabilities],
      ...(parametersSchema === undefined ? {} : { parameters_schema: parametersSchema }),
      ...(returnSchema === undefined ? {} : { return_schema: returnSchema }),
      read_only: this.traits.readOnly ?? false,
      idempotent: this.traits.idempotent ?? false,
      version: this.version,
      schema_hash: this.schemaHash,
      last_updated: new Date(this.lastUpdated).toISOString(),
    }
  }
}

/** A tool as a card tells it, after what was known of it before. */
export function toRemoteToolInfo(
  tool: ToolDescriptor,
  peer: { readonly id: string; readonly url: string },
  before?: RemoteToolInfo,
): RemoteToolInfo {
  const fields = {
    name: tool.name,
    description: stripControls(tool.description),
    agentId: peer.id,
    agentUrl: peer.url,
    capabilities: tool.tags.map(stripControls),
    parametersSchema: cleanSchema(tool.inputSchema),
    returnSchema: cleanSchema(tool.outputSchema),
    traits: {
      readOnly: tool.annotations?.['readOnlyHint'] === true,
      idempotent: tool.annotations?.['idempotentHint'] === true,
    },
    cardVersion: tool.version,
    schemaHash: hashOf(tool.inputSchema, tool.outputSchema),
  }
  const isSame = before !== undefined && isUnchanged(before, fields)
  return new RemoteToolInfo({
    ...fields,
    version: before === undefined ? 1 : isSame ? before.version : before.version + 1,
    lastUpdated: Date.now(),
  })
}

function isUnchanged(
  before: RemoteToolInfo,
  now: Omit<RemoteToolInfo, 'handle' | 'toJSON' | 'version' | 'lastUpdated'>,
): boolean {
  return (
    before.schemaHash === now.schemaHash &&
    before.description === now.description &&
    before.agentUrl === now.agentUrl &&
    before.cardVersion === now.cardVersion &&
    before.traits.readOnly === now.traits.readOnly &&
    before.traits.idempotent === now.traits.idempotent &&
    canonicalJson(before.capabilities) === canonicalJson(now.capabilities)
  )
}

function hashOf(input: JsonSchema | undefined, output: JsonSchema | undefined): string {
  return createHash('sha256')
    .update(canonicalJson([input ?? null, output ?? null]))
    .digest('hex')
}
