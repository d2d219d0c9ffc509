package engine

import (
	"errors"
	"io"
	"testing"

	"github.com/airlock-host/airlock/host/internal/session"
)

// After a restart a reader may be there before the mission has found its cell
// again: its look must not end the log of a session that goes on.
func TestAReaderEndsNoLogOfALivingSession(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	first := newLogs(dir)
	s, err := first.create("s1", "m1")
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Log.Append(session.Stdout, 0, []byte("before")); err != nil {
		t.Fatal(err)
	}
	if err := s.Log.Sync(); err != nil {
		t.Fatal(err)
	}
	first.close()

	again := newLogs(dir) // as after a restart
	defer again.close()
	read, err := again.open("s1", func() bool { return true })
	if err != nil {
		t.Fatal(err)
	}
	s, err = again.create("s1", "m1") // the mission has found its cell
	if err != nil || s != read {
		t.Fatalf("%p, %p, %v", s, read, err)
	}
	if err := s.Log.Append(session.Stdout, 6, []byte(" after")); err != nil {
		t.Fatalf("the session's output cannot go on: %v", err)
	}
	again.finished("s1")
	if got, err := read.Log.ReadAt(0, 0); err != nil || len(got) != 1 && len(got) != 2 {
		t.Errorf("%v, %v", got, err)
	}
	if _, err := read.Log.ReadAt(12, 0); !errors.Is(err, io.EOF) {
		t.Errorf("behind the end: %v", err)
	}
	again.close()

	last := newLogs(dir)
	defer last.close()
	over, err := last.open("s1", func() bool { return false })
	if err != nil || !over.Log.Finished() {
		t.Errorf("a session that nobody has: %v, %v", over, err)
	}
	if _, err := last.open("s2", func() bool { return true }); !errors.Is(err, ErrNotFound) {
		t.Errorf("an unknown session: %v", err)
	}
}
