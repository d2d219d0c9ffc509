package store

import (
	"errors"
	"fmt"
	"strings"
)

// statements are the writer's prepared statements.
type statements struct {
	begin, commit, rollback, checkpoint *stmt

	findTask, addTask, setHead, setData, setTask *stmt
	putCell, dropCell, putRuntime                *stmt
	dropOutbox, moveOutbox, clearOutbox          *stmt
	putMeta                                      *stmt
	events, outbox                               multi
}

func (q *statements) prepare(c *conn) error {
	var errs []error
	one := func(to **stmt, nargs int, query string) {
		st, err := c.prepare(query, nargs)
		*to = st
		errs = append(errs, err)
	}
	one(&q.begin, 0, "BEGIN IMMEDIATE")
	one(&q.commit, 0, "COMMIT")
	one(&q.rollback, 0, "ROLLBACK")
	one(&q.checkpoint, 0, "PRAGMA wal_checkpoint(PASSIVE)")
	one(&q.findTask, 1, "SELECT no, journal_uuid, head_seq, head_digest, origin, agent, state, terminal, data IS NOT NULL FROM tasks WHERE task_id = ?")
	one(&q.addTask, 12, "INSERT INTO tasks (no, task_id, journal_uuid, head_seq, head_digest, origin, agent, state, terminal, created_at, updated_at, data) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)")
	one(&q.setHead, 4, "UPDATE tasks SET journal_uuid = ?, head_seq = ?, head_digest = ? WHERE no = ?")
	one(&q.setData, 6, "UPDATE tasks SET head_seq = ?, head_digest = ?, created_at = ?, updated_at = ?, data = ? WHERE no = ?")
	one(&q.setTask, 11, "UPDATE tasks SET journal_uuid = ?, head_seq = ?, head_digest = ?, origin = ?, agent = ?, state = ?, terminal = ?, created_at = ?, updated_at = ?, data = ? WHERE no = ?")
	one(&q.putCell, 7, "INSERT OR REPLACE INTO cells (cell_id, incarnation, instance, mission_id, generation, state, data) VALUES (?, ?, ?, ?, ?, ?, ?)")
	one(&q.dropCell, 1, "DELETE FROM cells WHERE cell_id = ?")
	one(&q.putRuntime, 4, `INSERT OR REPLACE INTO runtime_state (task_no, generation, "offset", state) VALUES (?, ?, ?, ?)`)
	one(&q.dropOutbox, 1, "DELETE FROM outbox WHERE id = ? RETURNING task_no")
	one(&q.moveOutbox, 4, "INSERT INTO undeliverable (id, task_no, seq, event, at, data, terminal, why) SELECT id, task_no, seq, event, at, data, terminal, ? FROM outbox WHERE id >= ? AND id <= ? AND task_no = ?")
	one(&q.clearOutbox, 3, "DELETE FROM outbox WHERE id >= ? AND id <= ? AND task_no = ?")
	one(&q.putMeta, 2, "INSERT OR REPLACE INTO meta (key, value) VALUES (?, ?)")
	errs = append(errs,
		q.events.prepare(c, "INSERT OR FAIL INTO events (id, task_no, seq, event_id, at, kind, payload, blob, digest) VALUES ", 9),
		q.outbox.prepare(c, "INSERT OR FAIL INTO outbox (id, task_no, seq, event, at, data, terminal) VALUES ", 7))
	return errors.Join(errs...)
}

// multi is an INSERT of several rows at once, in a few sizes.
type multi struct {
	cols  int
	sizes []*stmt // of multiSizes rows
}

// multiSizes are the row counts, the largest first; the last is 1.
var multiSizes = [...]int{32, 8, 1}

func (m *multi) prepare(c *conn, insert string, cols int) error {
	m.cols = cols
	row := "(" + strings.TrimSuffix(strings.Repeat("?, ", cols), ", ") + ")"
	for _, n := range multiSizes {
		st, err := c.prepare(insert+strings.TrimSuffix(strings.Repeat(row+", ", n), ", "), n*cols)
		if err != nil {
			return fmt.Errorf("%d rows: %w", n, err)
		}
		m.sizes = append(m.sizes, st)
	}
	return nil
}

// insert writes n rows; set fills in the arguments of row i.
func (m *multi) insert(n int, set func(i int, args args)) error {
	for at, k := 0, 0; at < n; {
		if multiSizes[k] > n-at {
			k++
			continue
		}
		st := m.sizes[k]
		for i := range multiSizes[k] {
			set(at+i, args(st.args[i*m.cols:(i+1)*m.cols]))
		}
		if err := st.exec(); err != nil {
			return err
		}
		at += multiSizes[k]
	}
	return nil
}
