/** What an agent was configured with: typed options over nested values. */
export interface AgentConfiguration {
  get(key: string): unknown
}
