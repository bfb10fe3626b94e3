/** What an agent's options say in files: prompts and schemas. */
import { readFile } from 'node:fs/promises'
import { resolve } from 'node:path'
import { ConvokeError } from './base/errors.ts'
import { isObject, type JsonObject } from './base/json.ts'
import { whyUnreadable } from './base/unreadable.ts'
import { schemaProblem } from './tools/policy.ts'

/** The text of a prompt that is one, or the path of one. Throws `config`, the rest of a sentence about the option. */
export async function readPrompt(prompt: string, baseDir: string): Promise<string> {
  if (prompt.includes('\n') || !/^\.\.?\/|\.(md|txt)$/i.test(prompt)) return prompt
  const text = await read(prompt, baseDir)
  if (text.trim() === '') throw wrong(`is the path of a file that is empty, ${prompt}.`)
  return text
}

/** A JSON Schema that is one, or stands in a file. Throws `config`, the rest of a sentence about the option. */
export async function readOutputSchema(schema: JsonObject | string, baseDir: string): Promise<JsonObject> {
  if (typeof schema !== 'string') return checked(schema)
  const text = await read(schema, baseDir)
  let value: unknown
  try {
    value = JSON.parse(text)
  } catch {
    throw wrong(`is the path of a file that is not JSON, ${schema}.`)
  }
  return checked(value)
}

function checked(schema: unknown): JsonObject {
  const problem = schemaProblem(schema)
  if (problem !== undefined || !isObject(schema)) throw wrong(`${problem ?? 'must be a JSON Schema'}.`)
  return schema as JsonObject
}

async function read(path: string, baseDir: string): Promise<string> {
  try {
    return await readFile(resolve(baseDir, path), 'utf8')
  } catch (error) {
    throw wrong(`is the path of a file that cannot be read, ${path}: ${whyUnreadable(error)}.`)
  }
}

function wrong(message: string): ConvokeError {
  return new ConvokeError('config', message)
}
