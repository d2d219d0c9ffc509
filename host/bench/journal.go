package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/airlock-host/airlock/host/internal/journal"
	"github.com/airlock-host/airlock/host/internal/mission"
	"github.com/airlock-host/airlock/host/internal/store"
)

// progressed is a typical event of a running mission.
func progressed(i int) mission.Fact {
	n, tokens := int64(i), int64(1000*i)
	return mission.Progressed{V: 1, Progress: mission.Progress{Phase: "execution", Iteration: &n, TokensUsed: &tokens,
		Summary: strings.Repeat("edited a file and ran the tests; ", 6)}}
}

// measureJournal measures durable commits: each is one event, the mission's row
// and an item for the orchestrator. Delivered items are taken out meanwhile, as
// the executor does it.
func measureJournal(b *bench, figure string, writers int) error {
	dir, err := os.MkdirTemp(b.dir, "j")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	s, closeStore, err := openStore(dir)
	if err != nil {
		return err
	}
	lives := make([]*life, writers)
	for i := range lives {
		lives[i] = newLife(fmt.Sprintf("mission-%02d", i))
		batch, err := lives[i].then(time.Now(), true, opened(lives[i].head.JournalUUID, time.Now())...)
		if err == nil {
			err = commitTo(b.ctx, s, batch)
		}
		if err != nil {
			return errors.Join(err, closeStore())
		}
	}
	ctx, stop := context.WithCancel(b.ctx)
	drained := make(chan error, 1)
	go func() { drained <- drain(ctx, s) }()

	plain, err := newAppender(dir, exportSize(lives[0]))
	if err != nil {
		stop()
		return errors.Join(err, <-drained, closeStore())
	}
	defer plain.close()
	counts := make([]int, writers)
	commit := func(w int) error {
		counts[w]++
		batch, err := lives[w].then(time.Now(), true, progressed(counts[w]))
		if err != nil {
			return err
		}
		return s.Commit(b.ctx, batch)
	}
	var commits, appends []float64
	total := 0
	slices := func(n int, into *[]float64, op func(int) error) int {
		done := 0
		for range n {
			if err != nil {
				break
			}
			var rate float64
			var count int
			rate, count, err = perSecond(b.ctx, writers, op)
			*into, done = append(*into, rate), done+count
		}
		return done
	}
	bare := func(int) error { return plain.append() }
	slices(b.rounds(2, 1), &appends, bare)
	total = slices(b.rounds(5, 2), &commits, commit) // without a rest: what is put off must be done meanwhile
	slices(b.rounds(2, 1), &appends, bare)
	waiting, _, statErr := s.OutboxStats(b.ctx)
	stop()
	err = errors.Join(err, statErr, <-drained, closeStore())
	if err != nil {
		return err
	}
	b.note("%s: %.0f/s by %d writers, %d items still in the outbox at the end; append + fdatasync of %d bytes to one file by as many: %.0f/s",
		figure, median(commits), writers, waiting, len(plain.data), median(appends))
	b.emit(figure, "1/s", median(commits), median(appends), total, spread(commits))
	return nil
}

// exportSize is the size of one of a mission's events.
func exportSize(l *life) int {
	copied := *l
	batch, err := copied.then(time.Now(), false, progressed(1000))
	if err != nil || len(batch.Events) == 0 {
		return 512
	}
	return len(batch.Events[0].AppendExport(nil)) + 1
}

// perSecond lets writers work for a second and gives how many operations were
// done, and at which rate.
func perSecond(ctx context.Context, writers int, op func(writer int) error) (float64, int, error) {
	var n atomic.Int64
	errs := make([]error, writers)
	began := time.Now()
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			for time.Since(began) < time.Second && ctx.Err() == nil {
				if errs[w] = op(w); errs[w] != nil {
					return
				}
				n.Add(1)
			}
		})
	}
	wg.Wait()
	took := time.Since(began)
	return float64(n.Load()) / took.Seconds(), int(n.Load()), errors.Join(errors.Join(errs...), ctx.Err())
}

// drain takes items out of the outbox until ctx ends, the way the executor
// does: page by page, and deletes together what was delivered in 50 ms.
func drain(ctx context.Context, s *store.Store) error {
	var cursor int64
	var ids []int64
	flushed := time.Now()
	for ctx.Err() == nil {
		changed := s.OutboxChanged()
		items, err := s.Outbox(ctx, cursor, 100)
		if err != nil {
			return ignoreEnd(ctx, err)
		}
		for _, it := range items {
			ids, cursor = append(ids, it.ID), it.ID
		}
		if len(ids) > 0 && time.Since(flushed) >= 50*time.Millisecond {
			if err := s.OutboxDone(ctx, ids); err != nil {
				return ignoreEnd(ctx, err)
			}
			ids, flushed = ids[:0:0], time.Now()
		}
		if len(items) > 0 {
			continue
		}
		select {
		case <-changed:
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
		}
	}
	return nil
}

// ignoreEnd drops an error that only says that the context has ended.
func ignoreEnd(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// measureVerify measures journal.Verify over an export in memory.
func measureVerify(b *bench) error {
	events := b.rounds(250_000, 50_000)
	var export bytes.Buffer
	w := journal.NewWriter(&export)
	l := newLife("mission")
	at := time.Now()
	for i := range events {
		facts := []mission.Fact{progressed(i)}
		if i == 0 {
			facts = opened(l.head.JournalUUID, at)
		}
		batch, err := l.then(at, false, facts...)
		if err != nil {
			return err
		}
		for k := range batch.Events {
			if err := w.Write(&batch.Events[k]); err != nil {
				return err
			}
		}
	}
	if err := w.Flush(); err != nil {
		return err
	}
	total := float64(l.head.Sequence)
	trusted := l.head
	var rates, hashes []float64
	runtime.GC() // what was left over from making the export is not Verify's
	for i := range b.rounds(9, 3) + 1 {
		began := time.Now()
		head, err := journal.Verify(bytes.NewReader(export.Bytes()), &trusted)
		if err != nil {
			return err
		}
		if head != trusted {
			return fmt.Errorf("the export was verified up to %d of %d", head.Sequence, trusted.Sequence)
		}
		took := time.Since(began)
		began = time.Now()
		if sha256.Sum256(export.Bytes()) == [sha256.Size]byte{} {
			return errors.New("SHA-256 gave zeros")
		}
		if i > 0 { // the first one warms up
			rates = append(rates, total/took.Seconds())
			hashes = append(hashes, total/time.Since(began).Seconds())
		}
		if b.ctx.Err() != nil {
			return b.ctx.Err()
		}
	}
	b.note("journal_verify_per_s: %d events of %d bytes each; one SHA-256 over all the bytes would do %.0f/s",
		int(total), export.Len()/int(total), median(hashes))
	b.emit("journal_verify_per_s", "1/s", median(rates), median(hashes), int(total)*len(rates), spread(rates))
	return nil
}
