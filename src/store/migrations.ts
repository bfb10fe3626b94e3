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
  /*
   * What agents keep. Scopes, keys and mail have short names (`num`) too. A lease is not here: the process has it.
   *
   * agent_opens: how many processes have written here. Numbers that must grow over the life of the database begin
   * behind opens << 32 in each process: the epochs of leases, and agent_keys.waiting.
   *
   * agent_keys.waiting: the key's place among those that wait; null while it has no mail. active_at: the latest
   * time of its commits. Memory may be large and stands by itself, so that mail does not rewrite it.
   *
   * agent_mail.num grows in the order of arrival. Mail that was consumed stays as its result: without event, with
   * the number of its outputs and the place of the first.
   *
   * agent_outputs.place is scope << 40 | the place that readers know.
   */
  `
  CREATE TABLE agent_opens (opens INTEGER NOT NULL) STRICT;
  INSERT INTO agent_opens VALUES (0);

  CREATE TABLE agent_scopes (
    num INTEGER PRIMARY KEY,
    scope TEXT NOT NULL UNIQUE,
    last_place INTEGER NOT NULL
  ) STRICT;

  CREATE TABLE agent_keys (
    num INTEGER PRIMARY KEY,
    scope INTEGER NOT NULL,
    key TEXT NOT NULL,
    last_seq INTEGER NOT NULL,
    waiting INTEGER,
    active_at INTEGER NOT NULL,
    UNIQUE (scope, key)
  ) STRICT;
  CREATE INDEX agent_keys_ready ON agent_keys (scope, waiting) WHERE waiting IS NOT NULL;
  CREATE INDEX agent_keys_idle ON agent_keys (active_at) WHERE waiting IS NULL;

  CREATE TABLE agent_states (
    key INTEGER PRIMARY KEY,
    state TEXT NOT NULL
  ) STRICT;

  CREATE TABLE agent_mail (
    num INTEGER PRIMARY KEY,
    key INTEGER NOT NULL,
    seq INTEGER NOT NULL,
    id TEXT NOT NULL,
    event TEXT,
    consumed_at INTEGER,
    failure TEXT,
    place INTEGER,
    outputs INTEGER,
    UNIQUE (key, id)
  ) STRICT;
  CREATE INDEX agent_mail_waiting ON agent_mail (key) WHERE consumed_at IS NULL;
  CREATE INDEX agent_mail_consumed ON agent_mail (consumed_at) WHERE consumed_at IS NOT NULL;

  CREATE TABLE agent_steps (
    num INTEGER PRIMARY KEY,
    mail INTEGER NOT NULL,
    id TEXT NOT NULL,
    state TEXT NOT NULL,
    value TEXT,
    UNIQUE (mail, id)
  ) STRICT;

  CREATE TABLE agent_outputs (
    place INTEGER PRIMARY KEY,
    mail INTEGER NOT NULL,
    output TEXT NOT NULL
  ) STRICT;
  `,
]
