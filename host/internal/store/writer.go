package store

import (
	"errors"
	"fmt"
	"runtime"
	"time"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/airlock-host/airlock/host/internal/journal"
)

// Bounds of one transaction.
const (
	groupMax     = 512     // requests
	groupBytes   = 8 << 20 // payload
	checkpointAt = 4000    // pages written since the last checkpoint (16 MiB of log)
	idleAfter    = time.Second
	gatherTime   = 100 * time.Microsecond // see gather
)

// writer is the one goroutine that writes, and what only it touches.
type writer struct {
	s     *Store
	c     *conn
	q     queue
	spare []request
	done  chan struct{}

	cache
	nextNo, nextEvent    int64
	nextOutbox, outboxTo int64 // ids up to outboxTo are ours to give

	sql   statements
	works map[string]*stmt // statements of the workflow, by their text
	tx    transaction

	pages   int // written since the last checkpoint
	written sqlite.DBStatus
}

// transaction is what the open transaction has staged.
type transaction struct {
	touched       []*task
	events        []eventRow
	outbox        []outboxRow
	heads         []journal.NewHead
	urgent        bool
	added         []added   // outbox items
	dropped       []dropped // likewise
	undeliverable int64     // change of their number
	fresh         []string  // tasks that the cache met first in this transaction

	nextNo, nextEvent, nextOutbox, outboxTo int64 // as they were at its begin
}

type added struct{ no, id int64 }

type dropped struct{ no, n int64 }

func newWriter(s *Store, c *conn) (*writer, error) {
	w := &writer{s: s, c: c, done: make(chan struct{})}
	w.q.wake = make(chan struct{}, 1)
	w.works = map[string]*stmt{}
	w.cache = cache{tasks: map[string]*task{}, max: s.opts.cacheMax}
	w.written, _ = c.dc.(sqlite.DBStatus)
	return w, w.sql.prepare(c)
}

// load reads what the writer goes on from.
func (w *writer) load() error {
	n, err := w.c.ints(`SELECT (SELECT max(coalesce((SELECT max(no) FROM tasks), 0), coalesce((SELECT max(task_no) FROM retired), 0))),
		(SELECT max(coalesce((SELECT max(id) FROM events), 0), coalesce((SELECT CAST(value AS INTEGER) FROM meta WHERE key = 'events_to'), 0))),
		(SELECT coalesce(max(value), 0) FROM (SELECT max(id) AS value FROM outbox UNION ALL SELECT max(id) FROM undeliverable UNION ALL SELECT CAST(value AS INTEGER) FROM meta WHERE key = 'outbox_to')),
		(SELECT count(*) FROM undeliverable)`)
	if err != nil {
		return err
	}
	w.nextNo, w.nextEvent, w.nextOutbox = n[0]+1, n[1]+1, n[2]+1
	w.outboxTo = n[2]
	w.s.undeliverable.Store(n[3])
	return w.loadPending()
}

func (w *writer) run() {
	defer close(w.done)
	for {
		reqs, open := w.take(idleAfter, w.idle)
		for rest := reqs; len(rest) > 0; {
			rest = rest[w.commit(rest):]
			w.trim()
			if w.pages >= checkpointAt {
				w.checkpoint()
			}
		}
		n := len(reqs)
		clear(reqs)
		w.spare = reqs
		if !open {
			return
		}
		w.gather(n)
	}
}

// gather lets those who were just answered come again, so that they share the
// next sync instead of taking turns. It waits for as many as there were, and
// for a fraction of what a sync takes at most.
func (w *writer) gather(n int) {
	for begun := time.Now(); ; {
		runtime.Gosched()
		if w.q.len() >= n || time.Since(begun) > gatherTime {
			return
		}
	}
}

// close takes no more requests, answers those that wait, and ends run.
func (w *writer) close() {
	w.stop()
	if w.s.poison.Load() == nil {
		w.checkpoint()
	}
}

// stop takes no more commits and ends the goroutine.
func (w *writer) stop() {
	w.q.mu.Lock()
	w.q.closed = true
	w.q.mu.Unlock()
	select {
	case w.q.wake <- struct{}{}:
	default:
	}
	<-w.done
}

// idle is what is done while nobody waits.
func (w *writer) idle() {
	if w.s.poison.Load() != nil {
		return
	}
	if w.s.space.full.Load() && w.s.space.recovered() {
		w.s.log.Info("there is space for the store again")
	}
	if w.pages > 0 {
		w.checkpoint()
	}
}

// commit takes requests from the front of the list, at most a transaction
// full, and answers them. It gives how many.
func (w *writer) commit(reqs []request) int {
	n, bytes := 0, 0
	group := reqs[:0:0]
	for n < len(reqs) && n < groupMax && bytes < groupBytes {
		r := reqs[n]
		n++
		if !r.base().state.CompareAndSwap(waiting, taken) {
			continue // withdrawn
		}
		if b, ok := r.(*batchRequest); ok {
			bytes += b.size
		}
		group = append(group, r)
	}
	w.group(group)
	for _, r := range group {
		close(r.base().done)
	}
	if err := w.s.at(PointAnswered); err != nil {
		_ = w.s.poisonBy(err)
	}
	return n
}

// group commits requests and puts each one's answer into its ticket.
func (w *writer) group(group []request) {
	if w.s.space.full.Load() && !w.s.space.recovered() {
		group = refuse(group, ErrFull, request.mayUseReserve)
	}
	if err := w.s.poison.Load(); err != nil {
		refuse(group, *err, nil)
		return
	}
	if len(group) == 0 {
		return
	}
	if err := w.s.home(); err != nil {
		refuse(group, w.s.poisonBy(err), nil)
		return
	}
	err := w.transact(group, false)
	if err != nil && isBatchs(err) {
		err = w.transact(group, true)
	}
	if isFull(err) {
		w.s.space.full.Store(true)
		w.s.log.Error("no space left for the store: only stop, revocation and ended events are taken", "error", err)
		group = refuse(group, fmt.Errorf("%w: %w", ErrFull, err), request.mayUseReserve)
		if len(group) == 0 {
			return
		}
		if w.s.space.free() {
			err = w.transact(group, true)
		}
		if isFull(err) {
			refuse(group, fmt.Errorf("%w: %w", ErrFull, err), nil)
			return
		}
	}
	if err != nil {
		poison := w.s.poisonBy(w.s.damaged(err))
		if errors.As(err, new(commitError)) {
			poison = fmt.Errorf("%w: %w", ErrUncertain, poison)
		}
		refuse(group, poison, nil)
	}
}

// commitError is an error at or after the commit point.
type commitError struct{ error }

func (e commitError) Unwrap() error { return e.error }

// refuse answers requests with an error, but for those that keep names.
func refuse(group []request, err error, keep func(request) bool) (kept []request) {
	for _, r := range group {
		if keep != nil && keep(r) {
			kept = append(kept, r)
			continue
		}
		r.base().err = err
	}
	return kept
}

// transact commits all requests in one transaction. A request that is refused
// in memory fails alone. An error is SQLite's: everything was rolled back.
// With apart each request has a savepoint of its own, so that one that SQLite
// refuses fails alone too.
func (w *writer) transact(group []request, apart bool) (err error) {
	if err := w.s.at(PointQueued); err != nil {
		return err
	}
	w.begin()
	if err := w.sql.begin.exec(); err != nil {
		return err
	}
	defer func() {
		if err != nil {
			w.rollback()
		}
	}()
	if err := w.s.at(PointBegun); err != nil {
		return err
	}
	for _, r := range group {
		t := r.base()
		if apart {
			if t.err, err = w.applyApart(r); err != nil {
				return err
			}
		} else if t.err = r.apply(w); code(t.err) != 0 || isBatchs(t.err) {
			return t.err
		}
	}
	if err := w.flush(); err != nil {
		return err
	}
	if err := w.s.at(PointApplied); err != nil {
		return err
	}
	if err := w.sql.commit.exec(); err != nil {
		return commitError{err}
	}
	hooked := w.s.at(PointCommitted)
	w.committed()
	if err := errors.Join(hooked, w.s.at(PointPublished)); err != nil {
		return commitError{err}
	}
	return nil
}

// applyApart applies a request inside a savepoint. own is the request's error,
// err the transaction's.
func (w *writer) applyApart(r request) (own, err error) {
	if err := w.flush(); err != nil {
		return nil, err
	}
	mark := w.mark()
	if err := w.c.exec("SAVEPOINT one"); err != nil {
		return nil, err
	}
	own = r.apply(w)
	if own == nil {
		own = w.flush()
	}
	if own == nil {
		return nil, w.c.exec("RELEASE one")
	}
	if c := code(own); c != 0 && !isBatchs(own) {
		return nil, own
	}
	w.reset(mark)
	if err := errors.Join(w.c.exec("ROLLBACK TO one"), w.c.exec("RELEASE one")); err != nil {
		return nil, err
	}
	if isBatchs(own) {
		own = fmt.Errorf("%w: %w", ErrInvalid, own)
	}
	return own, nil
}

func (w *writer) rollback() {
	w.undo()
	if err := w.sql.rollback.exec(); err != nil && code(err) != sqlite3.SQLITE_ERROR {
		// SQLITE_ERROR: SQLite has rolled back by itself.
		_ = w.s.poisonBy(fmt.Errorf("roll back: %w", err))
	}
}

// checkpoint copies the write-ahead log into the database. It runs between
// commits, when nobody waits for this one.
func (w *writer) checkpoint() {
	err := w.s.at(PointBeforeCheckpoint)
	if err == nil {
		_, err = w.sql.checkpoint.row(nil)
	}
	if err == nil {
		err = w.s.at(PointAfterCheckpoint)
	}
	w.pages = 0
	switch {
	case err == nil:
	case isFull(err):
		w.s.space.full.Store(true)
		w.s.log.Error("no space left to copy the store's log into its file", "error", err)
	case code(err) == sqlite3.SQLITE_BUSY || code(err) == sqlite3.SQLITE_LOCKED:
	default:
		_ = w.s.poisonBy(fmt.Errorf("checkpoint: %w", err))
	}
}
