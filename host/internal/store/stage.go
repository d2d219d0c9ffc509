package store

import (
	"database/sql/driver"
	"fmt"
	"strconv"

	"github.com/airlock-host/airlock/host/internal/journal"
)

// args are the arguments of one row.
type args []driver.NamedValue

type eventRow struct {
	id, no int64
	ev     *journal.Event
	blob   []byte
}

type outboxRow struct {
	id, no int64
	item   *OutboxItem
}

// outboxBlock is how many outbox ids are taken at once: the block's end is in
// meta, so that ids never come again, though delivered rows are deleted.
const outboxBlock = 1 << 16

// task finds a task, from the file if it is not cached. One that is not there
// at all comes with no 0.
func (w *writer) task(id string) (*task, error) {
	if t := w.tasks[id]; t != nil {
		return t, nil
	}
	t := &task{id: id}
	t.known.head.TaskID = id
	_, err := w.sql.findTask.row(func(v []driver.Value) {
		k := &t.known
		k.no, _ = v[0].(int64)
		k.head.JournalUUID, _ = v[1].(string)
		seq, _ := v[2].(int64)
		k.head.Sequence = uint64(seq)
		digest, _ := v[3].([]byte)
		copy(k.head.Digest[:], digest)
		k.origin, _ = v[4].(string)
		k.agent, _ = v[5].(string)
		k.state, _ = v[6].(string)
		k.ended = v[7] == int64(1)
		k.row = v[8] == int64(1)
	}, id)
	if err != nil {
		return nil, err
	}
	t.staged = t.known
	w.tasks[id] = t
	w.tx.fresh = append(w.tx.fresh, id)
	return t, nil
}

// existing is task for references: the task has to be there.
func (w *writer) existing(id string) (*task, error) {
	t, err := w.task(id)
	if err == nil && t.staged.no == 0 {
		return nil, fmt.Errorf("%w: it refers to the mission %q, which is not there", ErrInvalid, id)
	}
	return t, err
}

func (w *writer) touch(t *task) {
	if !t.dirty {
		t.dirty = true
		w.tx.touched = append(w.tx.touched, t)
	}
}

func (w *writer) addEvent(t *task, ev *journal.Event, blob []byte) {
	w.tx.events = append(w.tx.events, eventRow{id: w.nextEvent, no: t.staged.no, ev: ev, blob: blob})
	w.nextEvent++
}

func (w *writer) addOutbox(item *OutboxItem) error {
	t, err := w.existing(item.MissionID)
	if err != nil {
		return err
	}
	if w.nextOutbox > w.outboxTo {
		to := w.nextOutbox + outboxBlock
		if err := w.sql.putMeta.exec("outbox_to", strconv.FormatInt(to, 10)); err != nil {
			return err
		}
		w.outboxTo = to
	}
	w.tx.outbox = append(w.tx.outbox, outboxRow{id: w.nextOutbox, no: t.staged.no, item: item})
	w.nextOutbox++
	w.tx.added = append(w.tx.added, added{t.staged.no, w.nextOutbox - 1})
	return nil
}

// newHead notes a head for the sink and the followers.
func (w *writer) newHead(head journal.Head, events []journal.Event) {
	h := journal.NewHead{Head: head}
	for i := range events {
		h.Ended = h.Ended || events[i].Kind == journal.Ended
		w.tx.urgent = w.tx.urgent || events[i].Kind.SignAtOnce()
	}
	w.tx.heads = append(w.tx.heads, h)
}

// flush writes what is staged.
func (w *writer) flush() error {
	tx := &w.tx
	for _, t := range tx.touched {
		if t.dirty {
			if err := w.writeTask(t); err != nil {
				return err
			}
		}
	}
	err := w.sql.events.insert(len(tx.events), func(i int, a args) {
		r := &tx.events[i]
		a[0].Value, a[1].Value, a[2].Value = r.id, r.no, int64(r.ev.Sequence)
		a[3].Value, a[4].Value, a[5].Value = r.ev.EventID, r.ev.Timestamp.UnixMilli(), string(r.ev.Kind)
		if r.blob != nil {
			a[6].Value, a[7].Value = nil, r.blob
		} else {
			a[6].Value, a[7].Value = r.ev.Payload, nil
		}
		a[8].Value = r.ev.Digest[:]
	})
	if err != nil {
		return err
	}
	tx.events = tx.events[:0]
	err = w.sql.outbox.insert(len(tx.outbox), func(i int, a args) {
		r := &tx.outbox[i]
		a[0].Value, a[1].Value, a[2].Value = r.id, r.no, int64(r.item.Sequence)
		a[3].Value, a[4].Value, a[5].Value, a[6].Value = r.item.Event, nanos(r.item.TS), r.item.Data, flag(r.item.Terminal)
	})
	tx.outbox = tx.outbox[:0]
	return err
}

// writeTask writes a task's row in the cheapest way: columns that are indexed
// are left alone while they do not change.
func (w *writer) writeTask(t *task) error {
	st, m, h := &t.staged, t.mission, &t.staged.head
	t.dirty, t.mission = false, nil
	var digest []byte
	if h.Sequence > 0 {
		digest = h.Digest[:]
	}
	if m == nil {
		if t.known.no == 0 && !st.written {
			st.written = true
			return w.sql.addTask.exec(st.no, t.id, h.JournalUUID, int64(h.Sequence), digest, "", "", "", int64(0), int64(0), int64(0), nil)
		}
		return w.sql.setHead.exec(h.JournalUUID, int64(h.Sequence), digest, st.no)
	}
	data := m.Data
	if len(data) == 0 {
		data = []byte("{}")
	}
	same := st.row && st.origin == m.Origin && st.agent == m.Agent && st.state == m.State && st.ended == m.Terminal && t.known.head.JournalUUID == h.JournalUUID
	st.row, st.origin, st.agent, st.state, st.ended = true, m.Origin, m.Agent, m.State, m.Terminal
	created, updated := nanos(m.CreatedAt), nanos(m.UpdatedAt)
	switch {
	case t.known.no == 0 && !st.written:
		st.written = true
		return w.sql.addTask.exec(st.no, t.id, h.JournalUUID, int64(h.Sequence), digest, m.Origin, m.Agent, m.State, flag(m.Terminal), created, updated, data)
	case same:
		return w.sql.setData.exec(int64(h.Sequence), digest, created, updated, data, st.no)
	}
	return w.sql.setTask.exec(h.JournalUUID, int64(h.Sequence), digest, m.Origin, m.Agent, m.State, flag(m.Terminal), created, updated, data, st.no)
}

func flag(b bool) int64 {
	if b {
		return 1
	}
	return 0
}
