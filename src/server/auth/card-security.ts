/** The ways to authenticate, as agent cards of both protocol versions declare them. */
import type { JsonObject } from '../../base/json.ts'
import type { AuthOptions } from '../../options.ts'
import type { CardSecurity } from '../../protocol/card.ts'

const tokenText = 'A bearer token that the operator of the node gave out.'
const keyText = 'The same token as an API key.'

export function toCardSecurity({ tokens, jwt }: AuthOptions): CardSecurity {
  const v1: JsonObject = {}
  const v03: JsonObject = {}
  if (tokens !== undefined && tokens.length > 0) {
    v1['bearer'] = { httpAuthSecurityScheme: { description: tokenText, scheme: 'Bearer' } }
    v1['apiKey'] = { apiKeySecurityScheme: { description: keyText, location: 'header', name: 'X-API-Key' } }
    v03['bearer'] = { type: 'http', description: tokenText, scheme: 'bearer' }
    v03['apiKey'] = { type: 'apiKey', description: keyText, in: 'header', name: 'X-API-Key' }
  }
  if (jwt !== undefined) {
    const description = `A JSON Web Token issued by ${jwt.issuer} for the audience ${jwt.audience}.`
    v1['jwt'] = { httpAuthSecurityScheme: { description, scheme: 'Bearer', bearerFormat: 'JWT' } }
    v03['jwt'] = { type: 'http', description, scheme: 'bearer', bearerFormat: 'JWT' }
  }
  return {
    v1: {
      securitySchemes: v1,
      securityRequirements: Object.keys(v1).map((name) => ({ schemes: { [name]: { list: [] } } })),
    },
    v03: { securitySchemes: v03, security: Object.keys(v03).map((name) => ({ [name]: [] })) },
  }
}
