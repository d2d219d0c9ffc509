package store

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
)

const outboxColumns = "SELECT o.id, t.task_id, o.seq, o.event, o.at, o.data, o.terminal FROM outbox o JOIN tasks t ON t.no = o.task_no "

// Outbox reads items with an id above afterID, in id order, at most limit
// (1 to 100).
func (s *Store) Outbox(ctx context.Context, afterID int64, limit int) ([]OutboxItem, error) {
	return s.readOutbox(ctx, outboxColumns+"WHERE o.id > ? ORDER BY o.id LIMIT ?", afterID, page(limit))
}

// OutboxOf reads all items of one mission, in id order.
func (s *Store) OutboxOf(ctx context.Context, missionID string) ([]OutboxItem, error) {
	var no int64
	err := s.readers.QueryRowContext(ctx, "SELECT no FROM tasks WHERE task_id = ?", missionID).Scan(&no)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, nil
	}
	if err != nil {
		return nil, s.readError(err)
	}
	sp, ok := s.pending.of(no)
	if !ok {
		return nil, nil
	}
	return s.readOutbox(ctx, outboxColumns+"WHERE o.id >= ? AND o.id <= ? AND o.task_no = ? ORDER BY o.id", sp.first, sp.last, no)
}

func (s *Store) readOutbox(ctx context.Context, query string, args ...any) ([]OutboxItem, error) {
	return queryAll(ctx, s, query, args, func(rows *sql.Rows) (it OutboxItem, err error) {
		var at int64
		err = rows.Scan(&it.ID, &it.MissionID, &it.Sequence, &it.Event, &at, &it.Data, &it.Terminal)
		it.TS = fromNanos(at)
		return it, err
	})
}

// OutboxDone deletes items that were delivered; ids that are not there are
// ignored. It shares the commits of others.
func (s *Store) OutboxDone(ctx context.Context, ids []int64) error {
	if len(ids) == 0 {
		return nil
	}
	return s.change(ctx, func(w *writer) error {
		for _, id := range ids {
			_, err := w.sql.dropOutbox.row(func(v []driver.Value) {
				no, _ := v[0].(int64)
				w.tx.dropped = append(w.tx.dropped, dropped{no, 1})
			}, id)
			if err != nil {
				return err
			}
		}
		return nil
	})
}

// OutboxMarkUndeliverable takes a mission's items out of the outbox and keeps
// them, with the reason, for status.
func (s *Store) OutboxMarkUndeliverable(ctx context.Context, missionID, why string) error {
	return s.change(ctx, func(w *writer) error {
		t, err := w.task(missionID)
		if err != nil {
			return err
		}
		if t.staged.no == 0 {
			return fmt.Errorf("%w: mission %q", ErrNotFound, missionID)
		}
		if err := w.flush(); err != nil { // items of this very transaction too
			return err
		}
		no, last := t.staged.no, w.nextOutbox
		n, err := w.sql.moveOutbox.changed(why, int64(0), last, no)
		if err != nil {
			return err
		}
		w.tx.dropped = append(w.tx.dropped, dropped{no, n})
		w.tx.undeliverable += n
		return w.sql.clearOutbox.exec(int64(0), last, no)
	})
}

// OutboxStats gives how many items wait and how many are undeliverable. It
// reads no rows.
func (s *Store) OutboxStats(context.Context) (pending, undeliverable int, err error) {
	return int(s.pending.count()), int(s.undeliverable.Load()), nil
}

// changeRequest is a write that is no Batch.
type changeRequest struct {
	ticket
	do func(*writer) error
}

func (r *changeRequest) apply(w *writer) error { return r.do(w) }
func (r *changeRequest) mayUseReserve() bool   { return false }

// change runs a write in the writer's next transaction.
func (s *Store) change(ctx context.Context, do func(*writer) error) error {
	if err := s.refusal(false); err != nil {
		return err
	}
	return s.w.do(ctx, &changeRequest{do: do})
}

// SetMeta keeps a small fact of the host, for example that an import was done.
func (s *Store) SetMeta(ctx context.Context, key, value string) error {
	return s.change(ctx, func(w *writer) error { return w.sql.putMeta.exec("host:"+key, value) })
}

// Meta reads a fact; ErrNotFound when there is none.
func (s *Store) Meta(ctx context.Context, key string) (string, error) {
	var value string
	err := s.readers.QueryRowContext(ctx, "SELECT value FROM meta WHERE key = ?", "host:"+key).Scan(&value)
	if errors.Is(err, sql.ErrNoRows) {
		return "", fmt.Errorf("%w: %q", ErrNotFound, key)
	}
	return value, err
}
