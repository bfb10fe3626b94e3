/** The tools with which a host follows a task that outlived one call of it. */
import type { Tool as McpTool } from '@modelcontextprotocol/server'

export const taskToolKinds = ['task_status', 'task_result', 'task_answer', 'task_cancel'] as const

export type TaskToolKind = (typeof taskToolKinds)[number]

const taskId = { type: 'string', description: 'The `task_id` that a call gave.' }
const onlyTaskId: McpTool['inputSchema'] = { type: 'object', properties: { task_id: taskId }, required: ['task_id'] }

const definitions: Readonly<Record<TaskToolKind, Omit<McpTool, 'name'>>> = {
  task_status: {
    description:
      'Says how a task stands that a call has left running: working, input_required, completed, failed, canceled.',
    inputSchema: onlyTaskId,
    annotations: { readOnlyHint: true, idempotentHint: true },
  },
  task_result: {
    description:
      'Waits for a task that a call has left running, and gives its result. When it still runs after a while, it says so: ask again.',
    inputSchema: onlyTaskId,
    annotations: { readOnlyHint: true, idempotentHint: true },
  },
  task_answer: {
    description: 'Answers the question that a task asks (its state is input_required), and waits for its result.',
    inputSchema: {
      type: 'object',
      properties: {
        task_id: taskId,
        answer: { description: 'The answer: text, or JSON that fits the `schema` which came with the question.' },
      },
      required: ['task_id', 'answer'],
    },
  },
  task_cancel: {
    description: 'Stops a task that a call has left running.',
    inputSchema: onlyTaskId,
    annotations: { idempotentHint: true },
  },
}

/** The definition, under the name that the tool has for a caller. */
export function toTaskTool(name: string, kind: TaskToolKind): McpTool {
  return { name, ...definitions[kind] }
}
