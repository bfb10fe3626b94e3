/** `convoke card get`: who an agent is, and what it can do. */
import { isObject, type JsonObject } from '../../base/json.ts'
import { cardIssues } from './card-schema.ts'
import { withCard } from './connection.ts'
import { ClientFailure } from './failure.ts'
import type { Session } from './session.ts'
import type { AgentFlags } from './settings.ts'
import { block, field } from './text.ts'

export interface CardFlags extends AgentFlags {
  readonly validate?: boolean
}

export async function getCard(session: Session<CardFlags>): Promise<void> {
  await withCard(session, async ({ card }) => {
    session.isConnected = true
    if (session.flags.validate === true) {
      const issues = cardIssues(card)
      if (issues.length > 0) {
        const text = issues.map(({ path, message }) => `${path === '' ? 'The card' : path} ${message}`).join('; ')
        throw new ClientFailure('A2ACLI_ERR_CARD_INVALID', `The card breaks the schema of A2A 1.0: ${text}`)
      }
    }
    session.show(card, () => cardText(card, session.flags.validate === true, session.flags.verbose === true))
    await Promise.resolve()
  })
}

function cardText(card: JsonObject, isValid: boolean, verbose: boolean): string {
  const provider = isObject(card['provider']) ? card['provider'] : {}
  return [
    field('Name', show(card['name'])),
    field('Description', show(card['description'])),
    field('Version', show(card['version'])),
    field('Provider', show(provider['organization'])),
    field('Documentation', show(card['documentationUrl'])),
    ...capabilityLines(card),
    ...interfaceLines(card),
    ...securityLines(card),
    field('Input modes', list(card['defaultInputModes']).map(show).join(', ')),
    field('Output modes', list(card['defaultOutputModes']).map(show).join(', ')),
    ...skillLines(card, verbose),
    isValid ? field('Valid', 'yes') : '',
  ].join('')
}

function capabilityLines(card: JsonObject): string[] {
  const capabilities = isObject(card['capabilities']) ? card['capabilities'] : {}
  const can = (value: unknown): string => (value === true ? 'yes' : 'no')
  const extensions = list(capabilities['extensions']).map((each) => (isObject(each) ? show(each['uri']) : ''))
  return [
    field('Streaming', can(capabilities['streaming'])),
    field('Push notifications', can(capabilities['pushNotifications'])),
    field('Extended card', can(capabilities['extendedAgentCard'] ?? card['supportsAuthenticatedExtendedCard'])),
    field('Extensions', extensions.join(', ')),
  ]
}

function interfaceLines(card: JsonObject): string[] {
  const current = list(card['supportedInterfaces']).filter(isObject)
  if (current.length > 0) {
    return current.map((each) => {
      const tenant = typeof each['tenant'] === 'string' && each['tenant'] !== '' ? ` (tenant ${each['tenant']})` : ''
      return field(
        'Interface',
        `${show(each['protocolBinding'])} ${show(each['protocolVersion'])} ${show(each['url'])}${tenant}`,
      )
    })
  }
  const version = show(card['protocolVersion'])
  const main =
    card['url'] === undefined ? [] : [{ url: card['url'], transport: card['preferredTransport'] ?? 'JSONRPC' }]
  return [...main, ...list(card['additionalInterfaces']).filter(isObject)].map((each) => {
    return field('Interface', `${show(each['transport'])} ${version} ${show(each['url'])}`)
  })
}

function securityLines(card: JsonObject): string[] {
  const schemes = isObject(card['securitySchemes']) ? card['securitySchemes'] : {}
  return Object.entries(schemes).map(([name, scheme]) => field('Security scheme', `${name} (${schemeKind(scheme)})`))
}

function schemeKind(scheme: unknown): string {
  if (!isObject(scheme)) return 'unknown'
  if (typeof scheme['type'] === 'string') return scheme['type']
  return Object.keys(scheme)[0]?.replace(/SecurityScheme$/, '') ?? 'unknown'
}

function skillLines(card: JsonObject, verbose: boolean): string[] {
  return list(card['skills'])
    .filter(isObject)
    .map((skill) => {
      const line = field('Skill', `${show(skill['id'])}: ${show(skill['description'])}`)
      return verbose ? `${line}${block('Skill details', JSON.stringify(skill, null, 2))}` : line
    })
}

function list(value: unknown): unknown[] {
  return Array.isArray(value) ? value : []
}

function show(value: unknown): string {
  return typeof value === 'string' ? value : value === undefined ? '' : JSON.stringify(value)
}
