package store_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/airlock-host/airlock/host/internal/heads"
	"github.com/airlock-host/airlock/host/internal/journal"
	"github.com/airlock-host/airlock/host/internal/store"
)

const crashWriters = 8

// crashChild commits with several writers until it is killed: at the point in
// the environment, when it is met for the n-th time, or from outside. It
// prints a line for each commit that was answered.
func crashChild(dir string) error {
	at := store.Point(os.Getenv("AIRLOCK_STORE_POINT"))
	nth, _ := strconv.ParseInt(os.Getenv("AIRLOCK_STORE_NTH"), 10, 64)
	var met atomic.Int64
	key, err := heads.LoadOrCreateKey(filepath.Join(dir, "key", "host.key"))
	if err != nil {
		return err
	}
	log, err := heads.Open(heads.Options{File: filepath.Join(dir, "heads", "heads.jsonl"), Key: key, Interval: 5 * time.Millisecond})
	if err != nil {
		return err
	}
	s, err := store.Open(store.Options{Dir: filepath.Join(dir, "data"), Heads: log, Ballast: -1, BlobOver: 1000, Hook: func(p store.Point) error {
		if p == at && met.Add(1) == nth {
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
			select {}
		}
		return nil
	}})
	if err != nil {
		return err
	}
	failed := make(chan error)
	for i := range crashWriters {
		go func() { failed <- crashWriter(s, fmt.Sprintf("m-%d", i)) }()
	}
	return <-failed
}

func crashWriter(s *store.Store, id string) error {
	w := newWorkload(id)
	if head, err := s.Head(ctx, id); err == nil {
		w.head, w.n = head, int(head.Sequence)
	} else if !errors.Is(err, store.ErrNotFound) {
		return err
	}
	for n := 0; ; n++ {
		b := w.next(time.Now())
		switch {
		case n%10 == 9: // now and then a pause long enough for an idle checkpoint
			time.Sleep(time.Duration(rand.IntN(3)) * time.Millisecond)
		case n%5 == 4:
			big := w.with(journal.Progress, `{"v":1,"text":"`+strings.Repeat("x", 1000+rand.IntN(3))+fmt.Sprint(w.n)+`"}`)
			b.Events = append(b.Events, big.Events...)
			b.Outbox = append(b.Outbox, store.OutboxItem{MissionID: id, Sequence: w.head.Sequence, Event: "mission.progress", TS: time.Now()})
		}
		b.Mission.Data = fmt.Appendf(nil, `{"n":%d}`, w.head.Sequence)
		if n%7 == 6 {
			b.Mission.State = []string{"running", "paused"}[n%2]
		}
		if err := s.Commit(ctx, b); err != nil {
			return err
		}
		fmt.Printf("%s %d\n", id, w.head.Sequence)
	}
}

func TestAKillLosesAndDoublesNothing(t *testing.T) {
	t.Parallel()
	type kill struct {
		point store.Point // empty: from outside
		nth   int
	}
	var kills []kill
	for _, p := range store.Points() {
		kills = append(kills, kill{p, 1})
		if p != store.PointBeforeCheckpoint && p != store.PointAfterCheckpoint { // these are rare
			kills = append(kills, kill{p, 17})
		}
	}
	for range 6 {
		kills = append(kills, kill{})
	}
	dir := t.TempDir()
	acked := map[string]uint64{}
	for i, k := range kills {
		cmd := child(t, "crash", dir, "AIRLOCK_STORE_POINT="+string(k.point), "AIRLOCK_STORE_NTH="+strconv.Itoa(k.nth))
		runCrash(t, cmd, k.point == "", acked)
		if t.Failed() {
			return
		}
		checkCrash(t, dir, acked, fmt.Sprintf("kill %d at %q/%d", i, k.point, k.nth))
	}
	if len(acked) != crashWriters {
		t.Fatalf("only %d missions ever committed", len(acked))
	}
}

// runCrash runs the child to its end and notes what it was told is durable.
func runCrash(t *testing.T, cmd *exec.Cmd, fromOutside bool, acked map[string]uint64) {
	t.Helper()
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	left := 50 + rand.IntN(400)
	for sc := bufio.NewScanner(out); sc.Scan(); left-- {
		id, seq, _ := strings.Cut(sc.Text(), " ")
		n, err := strconv.ParseUint(seq, 10, 64)
		if err != nil {
			break // the line was cut by the kill
		}
		acked[id] = n
		if fromOutside && left == 0 {
			if err := cmd.Process.Kill(); err != nil {
				t.Error(err)
			}
		}
	}
	var exit *exec.ExitError
	if err := cmd.Wait(); !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
		t.Errorf("the child was not killed: %v", err)
	}
}

func checkCrash(t *testing.T, dir string, acked map[string]uint64, when string) {
	t.Helper()
	log := openHeads(t, dir)
	s := open(t, dir, withHeads(log))
	perMission := map[string][]uint64{}
	for last := int64(0); ; {
		items, err := s.Outbox(ctx, last, 100)
		if err != nil {
			t.Fatal(err)
		}
		if len(items) == 0 {
			break
		}
		for _, it := range items {
			perMission[it.MissionID] = append(perMission[it.MissionID], it.Sequence)
			last = it.ID
		}
	}
	for id, seq := range acked {
		head, err := s.Head(ctx, id)
		if err != nil || head.Sequence < seq {
			t.Fatalf("%s: mission %s was acknowledged up to %d, the store has %d (%v)", when, id, seq, head.Sequence, err)
		}
		if err := s.VerifyTask(ctx, id); err != nil {
			t.Fatalf("%s: %v", when, err)
		}
		m, err := s.Mission(ctx, id)
		if err != nil || string(m.Data) != fmt.Sprintf(`{"n":%d}`, head.Sequence) {
			t.Fatalf("%s: the row of %s says %s, the head is %d (%v)", when, id, m.Data, head.Sequence, err)
		}
		if got := perMission[id]; len(got) != int(head.Sequence) {
			t.Fatalf("%s: mission %s has %d outbox items for %d events", when, id, len(got), head.Sequence)
		}
		for i, seq := range perMission[id] {
			if seq != uint64(i+1) {
				t.Fatalf("%s: outbox item %d of %s is of event %d", when, i, id, seq)
			}
		}
	}
	closeStore(t, s)
	if err := log.Close(); err != nil {
		t.Fatal(err)
	}
}

// A failing hook stands for a disk that fails there: the caller is not told
// yes, and no commit comes after.
func TestAFailureAtAnyPointFailsClosed(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken disk")
	for _, p := range store.Points() {
		t.Run(string(p), func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			var on, armed atomic.Bool // armed: the batch before has been through all points
			s := open(t, dir, func(o *store.Options) {
				o.BlobOver = 150
				o.Hook = func(at store.Point) error {
					if on.Load() && (at == store.PointQueued || at == store.PointBlobWritten) {
						armed.Store(true)
					}
					if at == p && armed.Load() {
						return broken
					}
					return nil
				}
			})
			w := mission(t, s, "m", 3)
			before, err := s.Head(ctx, "m")
			if err != nil {
				t.Fatal(err)
			}
			on.Store(true)
			inBlob := p == store.PointBlobWritten || p == store.PointBlobNamed
			afterCommit := p == store.PointAnswered || p == store.PointBeforeCheckpoint || p == store.PointAfterCheckpoint
			err = s.Commit(context.Background(), w.with(journal.Progress, `{"v":1,"text":"`+strings.Repeat("y", 200)+`"}`))
			switch {
			case afterCommit && err != nil, !afterCommit && err == nil:
				t.Fatalf("the commit's answer is %v", err)
			case inBlob && errors.Is(err, store.ErrPoisoned):
				t.Fatal("one caller's file poisons the store")
			case !inBlob && !afterCommit && !errors.Is(err, store.ErrPoisoned):
				t.Fatal(err)
			}
			if !inBlob {
				for end := time.Now().Add(time.Minute); s.Healthy() == nil; time.Sleep(time.Millisecond) {
					if time.Now().After(end) {
						t.Fatal("still healthy")
					}
				}
				if err := s.Commit(ctx, newWorkload("n").next(time.Now())); !errors.Is(err, store.ErrPoisoned) || !errors.Is(err, broken) {
					t.Fatalf("a commit after the failure: %v", err)
				}
			}
			if head, err := s.Head(ctx, "m"); err != nil || head.Sequence < before.Sequence {
				t.Fatalf("reads do not go on: %+v %v", head, err)
			}
			closeStore(t, s)
			s = open(t, dir)
			if err := s.VerifyTask(ctx, "m"); err != nil {
				t.Fatal(err)
			}
		})
	}
}
