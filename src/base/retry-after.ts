/** When a server says to come back. */

/** `Retry-After` in seconds or as a date, in milliseconds from now. */
export function parseRetryAfter(header: string | undefined): number | undefined {
  if (header === undefined) return undefined
  if (/^\d+$/.test(header.trim())) return Number(header) * 1000
  const at = Date.parse(header)
  return Number.isNaN(at) ? undefined : Math.max(0, at - Date.now())
}
