/**
 * The SQLite schema, step by step. `PRAGMA user_version` of a database is the number of steps it has seen.
 * Steps are appended, never edited: each one meets databases that stopped at any earlier step.
 */
export const sqliteSteps: readonly string[] = [
  /*
   * A commit rewrites the whole row that it touches, so `tasks` holds what changes with every commit and
   * `texts` what may be large. `num` is the short name that all other tables and indexes know a task by.
   *
   * ended: null while the task may change; 1 terminal, with its events; 2 terminal without events, or MESSAGE.
   *
   * events: one row is the events of one commit, their texts joined by newlines (JSON on one line has none).
   * place is num << 32 | seq of the last one. One integer as rowid instead of a key (num, last) in a table
   * WITHOUT ROWID: such a table moves all but 1 KB of a row to overflow pages, a rowid table all but 4 KB.
   *
   * pushes.due: 1 when there is something to deliver, so that served webhooks cost nothing in the index.
   */
  `
  CREATE TABLE tasks (
    num INTEGER PRIMARY KEY,
    id TEXT NOT NULL UNIQUE,
    owner TEXT NOT NULL,
    message_id TEXT NOT NULL,
    context_id TEXT NOT NULL,
    state TEXT NOT NULL,
    status TEXT NOT NULL,
    status_at INTEGER NOT NULL,
    ended INTEGER,
    rev INTEGER NOT NULL,
    epoch INTEGER NOT NULL,
    last_seq INTEGER NOT NULL,
    worker TEXT,
    lease_until INTEGER NOT NULL,
    cancel_requested INTEGER NOT NULL,
    repeatable INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    UNIQUE (owner, message_id)
  ) STRICT;
  CREATE INDEX tasks_list ON tasks (owner, status_at, id, state) WHERE state <> 'MESSAGE';
  CREATE INDEX tasks_list_context ON tasks (owner, context_id, status_at, id, state) WHERE state <> 'MESSAGE';
  CREATE INDEX tasks_lease ON tasks (lease_until) WHERE worker IS NOT NULL;
  CREATE INDEX tasks_worker ON tasks (worker) WHERE worker IS NOT NULL;
  CREATE INDEX tasks_ended ON tasks (ended, status_at) WHERE ended IS NOT NULL;

  CREATE TABLE texts (
    num INTEGER PRIMARY KEY,
    history TEXT NOT NULL,
    metadata TEXT,
    request TEXT NOT NULL,
    reply TEXT,
    artifacts TEXT
  ) STRICT;

  CREATE TABLE events (
    place INTEGER PRIMARY KEY,
    first INTEGER NOT NULL,
    body TEXT NOT NULL
  ) STRICT;

  CREATE TABLE pushes (
    num INTEGER NOT NULL,
    id TEXT NOT NULL,
    config TEXT NOT NULL,
    version TEXT NOT NULL,
    cursor INTEGER NOT NULL,
    attempts INTEGER NOT NULL,
    next_at INTEGER NOT NULL,
    failed INTEGER NOT NULL,
    due INTEGER NOT NULL,
    PRIMARY KEY (num, id)
  ) STRICT, WITHOUT ROWID;
  CREATE INDEX pushes_due ON pushes (next_at) WHERE due = 1;

  CREATE TABLE health (checks INTEGER NOT NULL) STRICT;
  INSERT INTO health VALUES (0);
  `,
]
