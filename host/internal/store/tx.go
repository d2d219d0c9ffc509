package store

// begin forgets the transaction before.
func (w *writer) begin() {
	tx := &w.tx
	clear(tx.touched)
	clear(tx.events)
	clear(tx.outbox)
	*tx = transaction{
		touched: tx.touched[:0], events: tx.events[:0], outbox: tx.outbox[:0],
		heads: tx.heads[:0], fresh: tx.fresh[:0], added: tx.added[:0], dropped: tx.dropped[:0],
		nextNo: w.nextNo, nextEvent: w.nextEvent, nextOutbox: w.nextOutbox, outboxTo: w.outboxTo,
	}
}

// committed makes what was staged known, and tells sink and followers.
func (w *writer) committed() {
	tx := &w.tx
	for _, t := range tx.touched {
		t.staged.written = false
		t.known = t.staged
	}
	for _, a := range tx.added {
		w.s.pending.add(a.no, a.id)
	}
	for _, d := range tx.dropped {
		w.s.pending.drop(d.no, d.n)
	}
	w.s.undeliverable.Add(tx.undeliverable)
	if w.written != nil {
		if n, _, err := w.written.Status(pagesWritten, true); err == nil {
			w.pages += n
		}
	}
	if len(tx.heads) > 0 {
		if w.s.opts.Heads != nil {
			w.s.opts.Heads.Publish(tx.heads, tx.urgent)
		}
		w.s.follow.fire(tx.heads)
	}
	if len(tx.added) > 0 {
		w.s.outbox.fire()
	}
	w.begin()
}

// undo puts the memory back to the last commit.
func (w *writer) undo() {
	tx := &w.tx
	for _, t := range tx.touched {
		t.staged, t.mission, t.dirty = t.known, nil, false
	}
	for _, id := range tx.fresh {
		delete(w.tasks, id)
	}
	w.nextNo, w.nextEvent, w.nextOutbox, w.outboxTo = tx.nextNo, tx.nextEvent, tx.nextOutbox, tx.outboxTo
	w.begin()
}

// mark is a place inside a transaction to go back to. Everything staged has
// been flushed there.
type mark struct {
	tx     transaction
	states map[*task]taskState
	outbox int64
}

func (w *writer) mark() mark {
	m := mark{tx: w.tx, states: make(map[*task]taskState, len(w.tx.touched)), outbox: w.outboxTo}
	for _, t := range w.tx.touched {
		m.states[t] = t.staged
	}
	return m
}

// reset goes back to a mark. Ids that were given are not given again.
func (w *writer) reset(m mark) {
	for _, t := range w.tx.touched[len(m.tx.touched):] {
		t.staged, t.mission, t.dirty = t.known, nil, false
	}
	for t, st := range m.states {
		t.staged, t.mission, t.dirty = st, nil, false
	}
	fresh := w.tx.fresh
	w.tx = m.tx
	w.tx.fresh = fresh
	w.outboxTo = m.outbox
}
