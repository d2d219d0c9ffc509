package heads

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/airlock-host/airlock/host/internal/heads/record"
	"github.com/airlock-host/airlock/host/internal/journal"
)

// place is a server that takes heads and checks their signatures.
type place struct {
	*httptest.Server
	t    *testing.T
	key  Key
	mode atomic.Pointer[string]
	free chan struct{}

	mu    sync.Mutex
	heads map[string]uint64 // highest sequence by task
	posts int
}

func newPlace(t *testing.T, key Key, mode string) *place {
	t.Helper()
	p := &place{t: t, key: key, free: make(chan struct{}), heads: map[string]uint64{}}
	p.mode.Store(&mode)
	p.Server = httptest.NewServer(p)
	t.Cleanup(func() {
		p.CloseClientConnections()
		p.Close()
	})
	return p
}

func (p *place) set(mode string) { p.mode.Store(&mode) }

func (p *place) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	text, err := io.ReadAll(r.Body) // the server sees a caller go only then
	if err != nil {
		return
	}
	switch *p.mode.Load() {
	case "500":
		w.WriteHeader(http.StatusInternalServerError)
		return
	case "redirect":
		http.Redirect(w, r, "/", http.StatusTemporaryRedirect)
		return
	case "slow":
		select {
		case <-p.free:
		case <-r.Context().Done():
			return
		}
	}
	var body struct {
		V       int
		Host    string
		Records []json.RawMessage
	}
	if err := json.Unmarshal(text, &body); err != nil || body.V != 1 || body.Host != "host-1" || len(body.Records) == 0 {
		p.t.Errorf("posted was %+v (%v)", body, err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.posts++
	for _, line := range body.Records {
		rec, err := record.Parse(line)
		if err == nil {
			err = rec.Verify(p.key.record())
		}
		if err != nil {
			p.t.Errorf("record %s: %v", line, err)
		}
		for _, h := range rec.Heads {
			p.heads[h.TaskID] = max(p.heads[h.TaskID], h.Sequence)
		}
	}
}

func (p *place) has(task string) uint64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.heads[task]
}

// sinkRig is a log of heads with a second place.
func sinkRig(t *testing.T, key Key, dir, to string, queue int) (*Log, *Sink) {
	t.Helper()
	s := OpenSink(SinkOptions{URL: to, Host: "host-1", Gather: time.Millisecond, Wait: time.Millisecond, Timeout: time.Minute, Queue: queue})
	l, err := Open(Options{File: file1(dir), Key: key, Interval: time.Millisecond, Also: s.Offer})
	if err != nil {
		t.Fatal(err)
	}
	return l, s
}

func closeSink(t *testing.T, s *Sink) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	return s.Close(ctx)
}

func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(2 * time.Millisecond) {
		if ok() {
			return
		}
	}
	t.Fatalf("it did not come to this: %s", what)
}

func publish(t *testing.T, l *Log, task string, seq uint64) {
	t.Helper()
	l.Publish([]journal.NewHead{head(task, seq)}, true)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := l.Flush(ctx); err != nil {
		t.Fatal(err)
	}
}

func TestHeadsReachTheSecondPlaceSigned(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	key := testKey(t, dir)
	p := newPlace(t, key, "")
	l, s := sinkRig(t, key, dir, p.URL, 0)
	for i := range uint64(20) {
		publish(t, l, fmt.Sprint("m", i%3), i+1)
	}
	closeLog(t, l)
	if err := closeSink(t, s); err != nil {
		t.Fatal(err)
	}
	for task, want := range map[string]uint64{"m0": 19, "m1": 20, "m2": 18} {
		if got := p.has(task); got != want {
			t.Errorf("the head of %s there is %d, not %d", task, got, want)
		}
	}
}

// What the place has missed while the host was away it learns at the start.
func TestLiveHeadsAreOfferedAgainAtTheStart(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	key := testKey(t, dir)
	l := open(t, dir, key)
	publish(t, l, "m", 7)
	closeLog(t, l)
	p := newPlace(t, key, "")
	l, s := sinkRig(t, key, dir, p.URL, 0)
	until(t, "the head is there", func() bool { return p.has("m") == 7 })
	closeLog(t, l)
	if err := closeSink(t, s); err != nil {
		t.Fatal(err)
	}
}

// A place that fails or is away costs no commit anything, is told about, and
// gets everything once it is back.
func TestAFailingPlaceIsTriedAgain(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"500", "redirect"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			key := testKey(t, dir)
			p := newPlace(t, key, mode)
			l, s := sinkRig(t, key, dir, p.URL, 0)
			publish(t, l, "m", 1)
			until(t, "the failure is told", func() bool { return s.Err() != nil })
			if text := s.Err().Error(); !strings.Contains(text, "governance.head.url") || !strings.Contains(text, "answered with") {
				t.Errorf("%s", text)
			}
			if l.Err() != nil {
				t.Errorf("the file of heads is fine: %v", l.Err())
			}
			publish(t, l, "m", 2)
			p.set("")
			until(t, "the head is there", func() bool { return p.has("m") == 2 && s.Err() == nil })
			closeLog(t, l)
			if err := closeSink(t, s); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// A place that takes posts and does not answer: commits go on, the queue is
// bounded, and the newest heads are those that are kept.
func TestASlowPlaceBlocksNothing(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	key := testKey(t, dir)
	p := newPlace(t, key, "slow")
	l, s := sinkRig(t, key, dir, p.URL, 8)
	const n = 100
	for i := range uint64(n) {
		publish(t, l, "m", i+1)
	}
	if got := s.waiting(); got > 8 {
		t.Errorf("%d records wait", got)
	}
	p.set("")
	close(p.free)
	until(t, "the newest head is there", func() bool { return p.has("m") == n })
	closeLog(t, l)
	if err := closeSink(t, s); err != nil {
		t.Fatal(err)
	}
	if p.posts >= n {
		t.Errorf("%d heads took %d posts", n, p.posts)
	}
}

// A place that is down does not hold the end of a host up.
func TestADeadPlaceDoesNotHoldTheEndUp(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"slow", "down"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			key := testKey(t, dir)
			p := newPlace(t, key, mode)
			if mode == "down" {
				p.Close()
			}
			l, s := sinkRig(t, key, dir, p.URL, 0)
			publish(t, l, "m", 1)
			closeLog(t, l)
			ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
			defer cancel()
			ended := make(chan error, 1)
			go func() { ended <- s.Close(ctx) }()
			select {
			case err := <-ended:
				if err == nil {
					t.Error("nothing was sent, and nobody is told")
				}
			case <-time.After(time.Minute):
				t.Fatal("it does not end")
			}
			if got, ok := reread(t, dir, key, "m"); !ok || got != 1 {
				t.Errorf("the file has %d", got)
			}
		})
	}
}

func reread(t *testing.T, dir string, key Key, task string) (uint64, bool) {
	t.Helper()
	h, ok, _, err := Find(file1(dir), key, task)
	if err != nil {
		t.Fatal(err)
	}
	return h.Sequence, ok
}
