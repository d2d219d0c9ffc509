package store_test

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/airlock-host/airlock/host/internal/heads"
	"github.com/airlock-host/airlock/host/internal/journal"
	"github.com/airlock-host/airlock/host/internal/store"
)

// childEnv makes the test binary play a host that is killed, starved or
// denied; see children.
const childEnv = "AIRLOCK_STORE_CHILD"

func TestMain(m *testing.M) {
	if role := os.Getenv(childEnv); role != "" {
		if err := children[role](os.Getenv("AIRLOCK_STORE_DIR")); err != nil {
			fmt.Fprintln(os.Stderr, "child:", err)
			os.Exit(3)
		}
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

// children are the roles; a test starts them with child.
var children = map[string]func(dir string) error{
	"crash": crashChild,
	"hold":  holdChild,
	"full":  fullChild,
	"eio":   deniedChild,
	"rss":   rssChild,
}

// child prepares this binary in a role.
func child(t testing.TB, role, dir string, env ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(append(os.Environ(), childEnv+"="+role, "AIRLOCK_STORE_DIR="+dir), env...)
	cmd.Stderr = os.Stderr
	return cmd
}

// require skips where the machine cannot do it, and fails where it has to.
func require(t *testing.T, why string) {
	t.Helper()
	if os.Getenv("AIRLOCK_REQUIRE") != "" {
		t.Fatalf("required, but %s", why)
	}
	t.Skip(why)
}

func openHeads(t testing.TB, dir string) *heads.Log {
	t.Helper()
	key, err := heads.LoadOrCreateKey(filepath.Join(dir, "key", "host.key"))
	if err != nil {
		t.Fatal(err)
	}
	log, err := heads.Open(heads.Options{File: filepath.Join(dir, "heads", "heads.jsonl"), Key: key})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = log.Close() })
	return log
}

// open opens a store whose data directory is dir/data.
func open(t testing.TB, dir string, change ...func(*store.Options)) *store.Store {
	t.Helper()
	opts := store.Options{Dir: filepath.Join(dir, "data"), Ballast: -1}
	for _, c := range change {
		c(&opts)
	}
	s, err := store.Open(opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func closeStore(t testing.TB, s *store.Store) {
	t.Helper()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

func commit(t testing.TB, s *store.Store, b store.Batch) {
	t.Helper()
	if err := s.Commit(context.Background(), b); err != nil {
		t.Fatal(err)
	}
}

// mission commits a mission of n events and gives its workload.
func mission(t testing.TB, s *store.Store, id string, n int) *workload {
	t.Helper()
	w := newWorkload(id)
	for range n {
		commit(t, s, w.next(time.Now()))
	}
	return w
}

// tamper changes the closed database behind the store's back.
func tamper(t testing.TB, dir string, query string, args ...any) {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+filepath.Join(dir, "data", "missions.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	res, err := db.Exec(query, args...)
	if err != nil {
		t.Fatal(err)
	}
	if n, err := res.RowsAffected(); err != nil || n == 0 {
		t.Fatalf("nothing was tampered with: %v", err)
	}
}

func allEvents(t testing.TB, s *store.Store, task string) []journal.Event {
	t.Helper()
	var out []journal.Event
	for {
		page, err := s.Events(context.Background(), task, uint64(len(out)), 100)
		if err != nil {
			t.Fatal(err)
		}
		if len(page) == 0 {
			return out
		}
		out = append(out, page...)
	}
}

// pragma runs a statement that changes no rows behind the store's back.
func pragma(t testing.TB, dir string, query string) {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+filepath.Join(dir, "data", "missions.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if _, err := db.Exec(query); err != nil {
		t.Fatal(err)
	}
}
