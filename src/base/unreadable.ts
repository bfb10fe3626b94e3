/** What keeps a file from being read, in words that stand behind a colon. `error` is the system's. */
export function whyUnreadable(error: unknown): string {
  const { code = 'for an unknown reason' } = error as NodeJS.ErrnoException
  return reasons[code] ?? `reading it failed (${code})`
}

const reasons: Readonly<Record<string, string>> = {
  ENOENT: 'there is no such file',
  ENOTDIR: 'there is no such file',
  EISDIR: 'it is a folder',
  EACCES: 'this user may not read it',
  EPERM: 'this user may not read it',
}
