package store

// schema2 holds the rows of package workflow: one table for each kind, all of
// one form. data is the entity as JSON; the other columns are what rows are
// found by and what the file itself must refuse: two live attempts of a task,
// two waiting wakes of an agent, a goal whose end contradicts its state. state
// is empty where nothing waits for the row any more, so that the indexes of what
// is open stay small.
const schema2 = `
CREATE TABLE wf_goals (
	n      INTEGER PRIMARY KEY,
	id     TEXT NOT NULL UNIQUE,
	owner  BLOB NOT NULL,
	parent TEXT,
	ref    TEXT,
	state  TEXT NOT NULL,
	data   TEXT NOT NULL,
	CHECK ((state = 'active') = (json_extract(data, '$.summary.terminal_at_unix_ms') IS NULL))
) STRICT;
CREATE INDEX wf_goals_owner ON wf_goals(owner);

CREATE TABLE wf_agents (
	n      INTEGER PRIMARY KEY,
	id     TEXT NOT NULL UNIQUE,
	owner  BLOB NOT NULL,
	parent TEXT,
	ref    TEXT,
	state  TEXT NOT NULL,
	data   TEXT NOT NULL
) STRICT;

CREATE TABLE wf_endpoints (
	n      INTEGER PRIMARY KEY,
	id     TEXT NOT NULL UNIQUE,
	owner  BLOB NOT NULL,
	parent TEXT,
	ref    TEXT,
	state  TEXT NOT NULL,
	data   TEXT NOT NULL
) STRICT;

CREATE TABLE wf_tasks (
	n      INTEGER PRIMARY KEY,
	id     TEXT NOT NULL UNIQUE,
	owner  BLOB NOT NULL,
	parent TEXT,
	ref    TEXT,
	state  TEXT NOT NULL,
	data   TEXT NOT NULL
) STRICT;
CREATE INDEX wf_tasks_owner ON wf_tasks(owner);

CREATE TABLE wf_attempts (
	n      INTEGER PRIMARY KEY,
	id     TEXT NOT NULL UNIQUE,
	owner  BLOB NOT NULL,
	parent TEXT,
	ref    TEXT,
	state  TEXT NOT NULL,
	data   TEXT NOT NULL
) STRICT;
CREATE INDEX wf_attempts_parent ON wf_attempts(parent);
CREATE UNIQUE INDEX wf_attempts_live ON wf_attempts(parent) WHERE state = 'active';

CREATE TABLE wf_wakes (
	n      INTEGER PRIMARY KEY,
	id     TEXT NOT NULL UNIQUE,
	owner  BLOB NOT NULL,
	parent TEXT,
	ref    TEXT,
	state  TEXT NOT NULL,
	data   TEXT NOT NULL
) STRICT;
CREATE INDEX wf_wakes_open ON wf_wakes(parent) WHERE state <> '';
CREATE UNIQUE INDEX wf_wakes_queued ON wf_wakes(parent) WHERE state = 'pending' OR state = 'claimed';
CREATE UNIQUE INDEX wf_wakes_sent ON wf_wakes(parent) WHERE state = 'prepared' OR state = 'delivered' OR state = 'delivery_unknown';
CREATE INDEX wf_wakes_between ON wf_wakes(state) WHERE state = 'claimed' OR state = 'prepared';

CREATE TABLE wf_sessions (
	n      INTEGER PRIMARY KEY,
	id     TEXT NOT NULL UNIQUE,
	owner  BLOB NOT NULL,
	parent TEXT,
	ref    TEXT,
	state  TEXT NOT NULL,
	data   TEXT NOT NULL
) STRICT;
CREATE INDEX wf_sessions_owner ON wf_sessions(owner);

CREATE TABLE wf_messages (
	n      INTEGER PRIMARY KEY,
	id     TEXT NOT NULL UNIQUE,
	owner  BLOB NOT NULL,
	parent TEXT,
	ref    TEXT,
	state  TEXT NOT NULL,
	data   TEXT NOT NULL
) STRICT;
CREATE INDEX wf_messages_open ON wf_messages(parent) WHERE state <> '';
CREATE INDEX wf_messages_ref ON wf_messages(ref) WHERE ref IS NOT NULL;

CREATE TABLE wf_invocations (
	n      INTEGER PRIMARY KEY,
	id     TEXT NOT NULL UNIQUE,
	owner  BLOB NOT NULL,
	parent TEXT,
	ref    TEXT,
	state  TEXT NOT NULL,
	data   TEXT NOT NULL
) STRICT;
CREATE INDEX wf_invocations_open ON wf_invocations(owner) WHERE state <> '';
CREATE INDEX wf_invocations_ref ON wf_invocations(ref) WHERE ref IS NOT NULL;
CREATE INDEX wf_invocations_between ON wf_invocations(state) WHERE state = 'open' OR state = 'intended';

CREATE TABLE wf_runs (
	n      INTEGER PRIMARY KEY,
	id     TEXT NOT NULL UNIQUE,
	owner  BLOB NOT NULL,
	parent TEXT,
	ref    TEXT,
	state  TEXT NOT NULL,
	data   TEXT NOT NULL
) STRICT;

CREATE TABLE wf_keys (
	owner        BLOB NOT NULL,
	operation    TEXT NOT NULL,
	key_hash     BLOB NOT NULL,
	request_hash BLOB NOT NULL,
	resource_id  TEXT NOT NULL,
	revision     INTEGER NOT NULL,
	created_at   INTEGER NOT NULL,
	PRIMARY KEY (owner, operation, key_hash)
) STRICT, WITHOUT ROWID;
`
