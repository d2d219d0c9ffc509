package store

// schema3 is for what is archived and removed. retired keeps the little that is
// needed for ever of a task that is gone: that its id is taken, how it ended, and
// where its bundle is. work is what is still to be removed of it, NULL when
// nothing is; blobs are payload files that only it may have needed, 32 bytes
// each. The indexes find what is over, oldest first, and who needs a payload
// file.
const schema3 = `
CREATE TABLE retired (
	task_no      INTEGER PRIMARY KEY,
	task_id      TEXT NOT NULL UNIQUE,
	journal_uuid TEXT NOT NULL,
	head_seq     INTEGER NOT NULL,
	head_digest  BLOB NOT NULL,
	origin       TEXT NOT NULL,
	agent        TEXT NOT NULL,
	state        TEXT NOT NULL,
	payload      TEXT NOT NULL,
	at           INTEGER NOT NULL,
	bundle       TEXT NOT NULL,
	work         BLOB,
	blobs        BLOB
) STRICT;
CREATE INDEX retired_open  ON retired(task_no)   WHERE work IS NOT NULL;
CREATE INDEX missions_over ON tasks(updated_at)  WHERE terminal = 1 AND data IS NOT NULL;
CREATE INDEX events_blob   ON events(blob)       WHERE blob IS NOT NULL;
`
