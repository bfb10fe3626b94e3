/** What an agent card must be: the `AgentCard` of A2A 1.0 (`specification/a2a.proto`) as a JSON Schema. */
import type { Issue } from '../../base/errors.ts'
import type { JsonObject } from '../../base/json.ts'
import { compile } from '../../tools/schema.ts'

/** What is wrong with a card; empty when nothing is. Members that the schema does not know are right: cards grow. */
export function cardIssues(card: JsonObject): readonly Issue[] {
  return compile(cardSchema).validate(card)
}

const text = { type: 'string' }
const name = { type: 'string', minLength: 1 }
const texts = { type: 'array', items: text }
const flag = { type: 'boolean' }
const uri = { type: 'string', minLength: 1, format: 'uri' }

function object(required: readonly string[], properties: JsonObject): JsonObject {
  return { type: 'object', required: [...required], properties }
}

function list(items: JsonObject, minItems = 0): JsonObject {
  return { type: 'array', items, minItems }
}

function mapOf(values: JsonObject): JsonObject {
  return { type: 'object', additionalProperties: values }
}

const securityRequirement = object([], {
  schemes: mapOf(object([], { list: texts })),
})

function flow(required: readonly string[]): JsonObject {
  return object(required, {
    authorizationUrl: text,
    deviceAuthorizationUrl: text,
    tokenUrl: text,
    refreshUrl: text,
    scopes: mapOf(text),
    pkceRequired: flag,
  })
}

const oauthFlows = {
  ...object([], {
    authorizationCode: flow(['authorizationUrl', 'tokenUrl', 'scopes']),
    clientCredentials: flow(['tokenUrl', 'scopes']),
    deviceCode: flow(['deviceAuthorizationUrl', 'tokenUrl', 'scopes']),
    implicit: flow([]),
    password: flow([]),
  }),
  minProperties: 1,
  maxProperties: 1,
}

const securityScheme = {
  ...object([], {
    apiKeySecurityScheme: object(['location', 'name'], {
      location: { enum: ['query', 'header', 'cookie'] },
      name,
      description: text,
    }),
    httpAuthSecurityScheme: object(['scheme'], { scheme: name, bearerFormat: text, description: text }),
    oauth2SecurityScheme: object(['flows'], { flows: oauthFlows, oauth2MetadataUrl: text, description: text }),
    openIdConnectSecurityScheme: object(['openIdConnectUrl'], { openIdConnectUrl: uri, description: text }),
    mtlsSecurityScheme: object([], { description: text }),
  }),
  anyOf: [
    'apiKeySecurityScheme',
    'httpAuthSecurityScheme',
    'oauth2SecurityScheme',
    'openIdConnectSecurityScheme',
    'mtlsSecurityScheme',
  ].map((kind) => ({ required: [kind] })),
}

const skill = object(['id', 'name', 'description', 'tags'], {
  id: name,
  name,
  description: text,
  tags: texts,
  examples: texts,
  inputModes: texts,
  outputModes: texts,
  securityRequirements: list(securityRequirement),
})

const cardSchema = object(
  [
    'name',
    'description',
    'supportedInterfaces',
    'version',
    'capabilities',
    'defaultInputModes',
    'defaultOutputModes',
    'skills',
  ],
  {
    name,
    description: text,
    version: name,
    documentationUrl: text,
    iconUrl: text,
    supportedInterfaces: list(
      object(['url', 'protocolBinding', 'protocolVersion'], {
        url: uri,
        protocolBinding: name,
        protocolVersion: { type: 'string', pattern: '^\\d+\\.\\d+' },
        tenant: text,
      }),
      1,
    ),
    provider: object(['url', 'organization'], { url: text, organization: text }),
    capabilities: object([], {
      streaming: flag,
      pushNotifications: flag,
      extendedAgentCard: flag,
      extensions: list(object([], { uri: text, description: text, required: flag, params: { type: 'object' } })),
    }),
    securitySchemes: mapOf(securityScheme),
    securityRequirements: list(securityRequirement),
    defaultInputModes: texts,
    defaultOutputModes: texts,
    skills: list(skill),
    signatures: list(
      object(['protected', 'signature'], { protected: name, signature: name, header: { type: 'object' } }),
    ),
  },
)
