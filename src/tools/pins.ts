import type { Tool } from './tool.ts'
export interface Pins {
  readonly revision: number
  check(tool: Tool): { readonly state: string }
  admit(tool: Tool): void
  onChange(listener: () => void): () => void
  close(): Promise<void>
}
