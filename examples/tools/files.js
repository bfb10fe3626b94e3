// Streams a file while it is read: the caller sees rows at once, the file never stands in memory, and a cancel closes
// it. Only files below the folder in DATA_DIR (default: the working directory) can be read.
import { createReadStream } from 'node:fs'
import { realpath, stat } from 'node:fs/promises'
import path from 'node:path'
import { createInterface } from 'node:readline'
import { defineTool } from 'convoke'

export const csvRows = defineTool({
  name: 'csv_rows',
  description: 'Streams the rows of a CSV file as objects, a batch at a time, with the bytes read so far as progress.',
  input: {
    type: 'object',
    properties: {
      file: {
        type: 'string',
        minLength: 1,
        description: 'Path relative to the data folder. Its first line names the columns.',
      },
      separator: { type: 'string', minLength: 1, maxLength: 1, default: ',' },
      batch: { type: 'integer', minimum: 1, maximum: 10_000, default: 100, description: 'Rows in one chunk.' },
    },
    required: ['file'],
    additionalProperties: false,
  },
  output: {
    type: 'object',
    properties: { rows: { type: 'integer' }, columns: { type: 'array', items: { type: 'string' } } },
    required: ['rows', 'columns'],
  },
  traits: { readOnly: true, category: 'files' },
  async *run({ file, separator, batch }, context) {
    const found = await locate(file)
    const { size } = await stat(found)
    const stream = createReadStream(found, { signal: context.signal })
    const lines = createInterface({ input: stream, crlfDelay: Infinity })
    /** @type {string[] | undefined} */
    let columns
    /** @type {Record<string, string>[]} */
    let rows = []
    let count = 0
    // readline keeps the lines to itself when its input fails.
    const failed = new Promise((_resolve, reject) => stream.on('error', reject))
    failed.catch(() => {})
    try {
      for await (const record of records(lines)) {
        const cells = split(record, separator)
        if (columns === undefined) {
          columns = cells
          continue
        }
        const names = columns
        rows.push(Object.fromEntries(names.map((name, i) => [name, cells[i] ?? ''])))
        count++
        if (rows.length < batch) continue
        context.progress({ progress: stream.bytesRead, total: size })
        yield rows
        rows = []
      }
      if (stream.errored) await failed
      if (rows.length > 0) yield rows
      return { rows: count, columns: columns ?? [] }
    } finally {
      stream.destroy()
    }
  },
})

/**
 * @param {string} file
 * @returns {Promise<string>} a path that is really below the data folder, links followed
 */
async function locate(file) {
  const folder = await realpath(process.env.DATA_DIR ?? '.')
  const found = await realpath(path.resolve(folder, file)).catch(() => undefined)
  if (found === undefined || !found.startsWith(folder + path.sep)) {
    throw new Error(`There is no file "${file}" in the data folder.`)
  }
  return found
}

const maxRecordLength = 1_000_000

/**
 * Lines put together to records: a quoted cell may go over several.
 *
 * @param {AsyncIterable<string>} lines
 */
async function* records(lines) {
  let record = ''
  for await (const line of lines) {
    record = record === '' ? line : `${record}\n${line}`
    if (record.length > maxRecordLength) throw new Error('A row is too long; is a quote missing?')
    if ((record.split('"').length - 1) % 2 === 1) continue
    if (record !== '') yield record
    record = ''
  }
  if (record !== '') throw new Error('The file ends inside of a quoted cell.')
}

/**
 * @param {string} record
 * @param {string} separator
 */
function split(record, separator) {
  const cells = []
  let cell = ''
  let quoted = false
  for (let i = 0; i < record.length; i++) {
    const char = record[i]
    if (quoted && char === '"' && record[i + 1] === '"') cell += record[++i]
    else if (char === '"') quoted = !quoted
    else if (char === separator && !quoted) {
      cells.push(cell)
      cell = ''
    } else cell += char
  }
  return [...cells, cell]
}
