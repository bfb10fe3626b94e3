import type { JsonObject, Json } from '../base/json.ts'
import type { Caller, Question, Tool } from './tool.ts'
export interface PolicyDecision {
  readonly decision: 'allow' | 'deny' | 'ask'
  readonly reason: string
}
export interface ToolPolicy {
  decide(call: { caller: Caller; tool: Tool; params: JsonObject; agent: string | undefined }): PolicyDecision
  visible(caller: Caller | undefined, tool: Tool): boolean
}
export function approvalQuestion(_tool: Tool, _params: JsonObject): Question {
  throw new Error()
}
export function checkApproval(_answer: Json, _tool: Tool, _params: JsonObject): void {}
