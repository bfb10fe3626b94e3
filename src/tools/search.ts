import type { Tool } from './tool.ts'
export class ToolSearch {
  update(_tools: readonly Tool[], _revision: number): void {}
  search(_text: string, _options: { limit: number }): { name: string; score: number }[] {
    return []
  }
}
