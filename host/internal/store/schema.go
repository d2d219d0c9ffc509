package store

import (
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"
)

// applicationID marks the file as ours ("Alk1").
const applicationID = 0x416c6b31

// migration brings a file from the version before to its place in the list.
type migration struct {
	script string
	// shrinks: from this version on the file gives space back while it is in use.
	// A file that was begun without that is rewritten once.
	shrinks bool
}

// migrations are all schema versions, the first is version 1. A script never
// changes once it was released: a new version is a new entry. Events are never
// migrated; their payloads carry "v".
func migrations() []migration {
	return []migration{{script: schema1}, {script: schema2}, {script: schema3, shrinks: true}}
}

// Schema is the version of the newest store that this program reads; it writes
// no other.
func Schema() int { return len(migrations()) }

// schema1. tasks holds a task and, where it is a mission, its row: one row per
// task that is rewritten with each commit. no is the order in which tasks came.
// Events and outbox are append-only, so a group commit dirties few pages.
const schema1 = `
CREATE TABLE tasks (
	no           INTEGER PRIMARY KEY,
	task_id      TEXT NOT NULL UNIQUE,
	journal_uuid TEXT NOT NULL,
	head_seq     INTEGER NOT NULL,
	head_digest  BLOB,
	origin       TEXT NOT NULL,
	agent        TEXT NOT NULL,
	state        TEXT NOT NULL,
	terminal     INTEGER NOT NULL,
	created_at   INTEGER NOT NULL,
	updated_at   INTEGER NOT NULL,
	data         BLOB
) STRICT;
CREATE INDEX missions_live  ON tasks(no)        WHERE terminal = 0 AND data IS NOT NULL;
CREATE INDEX missions_state ON tasks(state, no) WHERE data IS NOT NULL;
CREATE INDEX missions_agent ON tasks(agent, no) WHERE data IS NOT NULL;

CREATE TABLE events (
	id       INTEGER PRIMARY KEY,
	task_no  INTEGER NOT NULL,
	seq      INTEGER NOT NULL,
	event_id TEXT NOT NULL,
	at       INTEGER NOT NULL,
	kind     TEXT NOT NULL,
	payload  TEXT,
	blob     BLOB,
	digest   BLOB NOT NULL
) STRICT;
CREATE UNIQUE INDEX events_seq ON events(task_no, seq);

CREATE TABLE outbox (
	id       INTEGER PRIMARY KEY,
	task_no  INTEGER NOT NULL,
	seq      INTEGER NOT NULL,
	event    TEXT NOT NULL,
	at       INTEGER NOT NULL,
	data     BLOB,
	terminal INTEGER NOT NULL
) STRICT;

CREATE TABLE undeliverable (
	id       INTEGER PRIMARY KEY,
	task_no  INTEGER NOT NULL,
	seq      INTEGER NOT NULL,
	event    TEXT NOT NULL,
	at       INTEGER NOT NULL,
	data     BLOB,
	terminal INTEGER NOT NULL,
	why      TEXT NOT NULL
) STRICT;

CREATE TABLE cells (
	cell_id     TEXT PRIMARY KEY,
	incarnation INTEGER NOT NULL,
	instance    TEXT NOT NULL,
	mission_id  TEXT NOT NULL,
	generation  INTEGER NOT NULL,
	state       TEXT NOT NULL,
	data        BLOB
) STRICT, WITHOUT ROWID;

CREATE TABLE runtime_state (
	task_no    INTEGER PRIMARY KEY,
	generation INTEGER NOT NULL,
	"offset"   INTEGER NOT NULL,
	state      BLOB
) STRICT;

CREATE TABLE meta (
	key   TEXT PRIMARY KEY,
	value TEXT NOT NULL
) STRICT, WITHOUT ROWID;
`

// migrate brings the schema up to date. Before it touches a file that has one
// it makes a copy of it. It gives the connection to go on with.
func migrate(s *Store, c *conn) (*conn, error) {
	fail := func(err error) (*conn, error) { return nil, errors.Join(err, c.close()) }
	newest := int64(len(s.opts.migrations))
	head, err := c.ints("SELECT (SELECT user_version FROM pragma_user_version), (SELECT application_id FROM pragma_application_id), (SELECT count(*) FROM sqlite_schema)")
	if err != nil {
		return fail(fmt.Errorf("%w: %w", ErrDamaged, err))
	}
	version, app, tables := head[0], head[1], head[2]
	switch {
	case tables > 0 && app != applicationID:
		return fail(fmt.Errorf("%w: the file was not made by Airlock", ErrSchema))
	case version > newest:
		return fail(fmt.Errorf("%w: it has version %d, this program knows up to %d; use the newer program, or start it on the copy that was made before the upgrade (%s.v*)", ErrSchema, version, newest, fileName))
	case version == newest:
		return c, nil
	}
	if tables > 0 {
		if c, err = copyBefore(s, c, version); err != nil {
			return nil, err
		}
	}
	for v := version; v < newest; v++ {
		script := fmt.Sprintf("BEGIN IMMEDIATE; %s; PRAGMA application_id = %d; PRAGMA user_version = %d; COMMIT;", s.opts.migrations[v].script, applicationID, v+1)
		if err := c.exec(script); err != nil {
			return fail(fmt.Errorf("migrate to version %d: %w", v+1, err))
		}
		if s.opts.migrations[v].shrinks && tables > 0 {
			// It costs time and space once; without it the file only never shrinks.
			if err := c.exec("PRAGMA auto_vacuum = INCREMENTAL; VACUUM"); err != nil {
				s.log.Warn("the store could not be rewritten so that it gives space back", "error", err)
			}
		}
	}
	// The packages of older versions look for the version in the file itself.
	if err := c.exec("PRAGMA wal_checkpoint(TRUNCATE)"); err != nil {
		return fail(fmt.Errorf("checkpoint after the migration: %w", err))
	}
	return c, nil
}

// copyBefore copies the whole database, checkpointed, beside itself.
func copyBefore(s *Store, c *conn, version int64) (*conn, error) {
	err := c.exec("PRAGMA wal_checkpoint(TRUNCATE)")
	if err = errors.Join(err, c.close()); err != nil {
		return nil, fmt.Errorf("checkpoint before the copy: %w", err)
	}
	to := fmt.Sprintf("%s.v%d.%s", s.path(), version, time.Now().UTC().Format("20060102T150405"))
	if err := copySynced(s.path(), to); err != nil {
		return nil, fmt.Errorf("copy before the migration: %w", err)
	}
	s.log.Info("a copy of the store was made before its schema is migrated", "copy", to, "version", version)
	return openConn(s.path(), writerCache)
}

func copySynced(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	err = errors.Join(err, out.Sync(), out.Close())
	if err != nil {
		return errors.Join(err, os.Remove(to))
	}
	return syncDir(filepath.Dir(to))
}

// quickCheck looks at what every start needs: the schema, the size of the file
// and the small tables. Events are verified by their chain, task by task, so a
// start does not read the missions that are over.
func quickCheck(c *conn) error {
	for _, table := range []string{"cells", "runtime_state", "meta"} {
		st, err := c.prepareOnce("PRAGMA quick_check("+table+")", 0)
		if err != nil {
			return fmt.Errorf("%w: %w", ErrDamaged, err)
		}
		verdict := "no answer"
		_, err = st.row(func(vals []driver.Value) { verdict = fmt.Sprint(vals[0]) })
		err = errors.Join(err, st.s.Close())
		if err == nil && verdict != "ok" {
			err = errors.New(verdict)
		}
		if err != nil {
			return fmt.Errorf("%w: table %s: %w", ErrDamaged, table, err)
		}
	}
	return nil
}
