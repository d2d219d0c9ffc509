package daemon

import (
	"bytes"
	"database/sql"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	hclog "github.com/hashicorp/go-hclog"

	"github.com/airlock-host/airlock/config"
	"github.com/airlock-host/airlock/host/internal/heads"
	"github.com/airlock-host/airlock/host/internal/journal"
	"github.com/airlock-host/airlock/host/internal/store"
)

func TestARunDirHasOneHost(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "run")
	first, err := takeRunDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	second, err := takeRunDir(dir)
	if err == nil {
		t.Fatalf("a second host has it too: %v", second)
	}
	for _, word := range []string{"pid " + strconv.Itoa(os.Getpid()), dir, "a run_dir and a data_dir of its own"} {
		if !strings.Contains(err.Error(), word) {
			t.Errorf("%q lacks %q", err, word)
		}
	}
	if err := first.check(); err != nil {
		t.Errorf("the refused host has done something to it: %v", err)
	}
	if err := first.release(); err != nil {
		t.Fatal(err)
	}
	again, err := takeRunDir(dir)
	if err != nil {
		t.Fatalf("it was given back, and %v", err)
	}
	// Deleted and made anew by somebody else, or only deleted.
	for range 2 {
		if err := os.RemoveAll(dir); err != nil {
			t.Fatal(err)
		}
		if err := again.check(); err == nil || !strings.Contains(err.Error(), "deleted or replaced") || !strings.Contains(err.Error(), "restart the host") {
			t.Errorf("a deleted run_dir gives %v", err)
		}
		other, err := takeRunDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		if err := again.check(); err == nil {
			t.Error("another host's run_dir is taken for its own")
		}
		if err := other.release(); err != nil {
			t.Error(err)
		}
	}
	if err := again.release(); err != nil {
		t.Error(err)
	}
}

// begin opens what a host opens, and gives what it logs and says in status.
func begin(t *testing.T, dir string, work func(*store.Store)) (said string, trouble []string) {
	t.Helper()
	var out bytes.Buffer
	h := &host{cfg: &config.Config{DataDir: filepath.Join(dir, "data")}, log: hclog.New(&hclog.LoggerOptions{Output: &out})}
	h.cfg.Governance.Head = config.Head{File: filepath.Join(dir, "heads", "heads.jsonl"), KeyFile: filepath.Join(dir, "host.key")}
	key, err := heads.LoadOrCreateKey(h.cfg.Governance.Head.KeyFile)
	if err == nil {
		err = os.MkdirAll(h.cfg.DataDir, 0o700)
	}
	if err == nil {
		h.heads, err = heads.Open(heads.Options{File: h.cfg.Governance.Head.File, Key: key, Log: h.log})
	}
	if err == nil {
		h.store, err = store.Open(store.Options{Dir: h.cfg.DataDir, Heads: h.heads})
	}
	if err == nil {
		err = h.findLosses()
	}
	if err != nil {
		t.Fatal(err)
	}
	if work != nil {
		work(h.store)
	}
	if err := errors.Join(h.store.Close(), h.heads.Close()); err != nil {
		t.Fatal(err)
	}
	return out.String(), h.trouble.all()
}

func TestALostHalfIsSaidLoudly(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	said, trouble := begin(t, dir, nil)
	if said != "" || len(trouble) > 0 {
		t.Errorf("a first start says %q %q", said, trouble)
	}
	if said, trouble := begin(t, dir, nil); said != "" || len(trouble) > 0 {
		t.Errorf("a second start of a host without missions says %q %q", said, trouble)
	}
	_, _ = begin(t, dir, func(s *store.Store) { commitOne(t, s) })
	if said, trouble := begin(t, dir, nil); said != "" || len(trouble) > 0 {
		t.Errorf("an ordinary start says %q %q", said, trouble)
	}
	lose := func(what string) func(string) error {
		return func(dir string) error { return os.RemoveAll(filepath.Join(dir, what)) }
	}
	for name, tt := range map[string]struct {
		lose        func(dir string) error
		log, status string
	}{
		"the file of heads": {lose("heads"), "[ERROR] the file of signed heads is gone", "was not there, but the store has missions"},
		"the store":         {lose("data"), "[ERROR] the store is new, but there are signed heads", "put the store back"},
		"what the file of heads held": {func(dir string) error { return os.Truncate(filepath.Join(dir, "heads", "heads.jsonl"), 0) },
			"[ERROR] the file of signed heads is gone or was emptied", "has nothing in it, but the store has missions"},
		"a task of the store": {func(dir string) error {
			db, err := sql.Open("sqlite", filepath.Join(dir, "data", "missions.db"))
			if err != nil {
				return err
			}
			_, err = db.ExecContext(t.Context(), "DELETE FROM events; DELETE FROM tasks")
			return errors.Join(err, db.Close())
		}, "[ERROR] tasks with a signed head are not in the store", `1 tasks have a signed head`},
	} {
		copied := t.TempDir()
		if err := os.CopyFS(copied, os.DirFS(dir)); err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(os.Chmod(filepath.Join(copied, "host.key"), 0o400), tt.lose(copied)); err != nil {
			t.Fatal(err)
		}
		said, trouble := begin(t, copied, nil)
		if strings.Count(said, "[ERROR]") != 1 || !strings.Contains(said, tt.log) {
			t.Errorf("%s: logged %q", name, said)
		}
		if len(trouble) != 1 || !strings.Contains(trouble[0], tt.status) {
			t.Errorf("%s: status says %q", name, trouble)
		}
	}
}

// commitOne puts one mission into a store.
func commitOne(t *testing.T, s *store.Store) {
	t.Helper()
	const id, uuid = "m-1", "01890a5d-ac96-774b-bcce-b302099a8057"
	ev, _ := journal.Genesis(id, uuid).Next("0b4f5f6e-8f3c-4f55-9d0c-000000000001", time.Now(), journal.TaskOpened, `{"v":1,"journal_uuid":"`+uuid+`"}`)
	if err := s.Commit(t.Context(), store.Batch{Task: id, JournalUUID: uuid, Events: []journal.Event{ev},
		Mission: &store.MissionRow{MissionID: id, State: "assigned", CreatedAt: time.Now()}}); err != nil {
		t.Fatal(err)
	}
}
